// The tuning database: a row for each measured candidate of a kernel on a device.
//
// One SQLite file for CPUs and GPUs, `tuned.sqlite` in the user's cache directory or a file that
// the user names. Unlike the cache, rows are never evicted and the file is never replaced: one that
// is damaged, of another program or of another version is an error. Processes may share a file.
#ifndef KILN_TUNE_RESULTS_H
#define KILN_TUNE_RESULTS_H

#include "support/ctx.h"
#include "support/digest.h"

#include <stdbool.h>

#define KILN_RESULTS_GAIN 0.97 // of the first candidate's time, that another one must need at most

typedef struct kiln_results kiln_results;

// The key of a row.
typedef struct kiln_results_key {
  unsigned char program[KILN_DIGEST_BYTES]; // the kernel's canonical program, its types in it
  const char *device;                       // "NVIDIA H200"
  const char *driver;                       // its version; of a CPU what is compiled for
  const char *compiler;                     // the versions of Kiln and of what compiles for it
} kiln_results_key;

typedef enum kiln_verdict {
  KILN_VERDICT_RIGHT,
  KILN_VERDICT_WRONG,   // its results differ from the reference's
  KILN_VERDICT_LOST,    // its process ended or hung
  KILN_VERDICT_REFUSED, // by the compiler of the device or its driver
  KILN_N_VERDICTS
} kiln_verdict;

typedef struct kiln_result {
  const char *script;
  bool is_first; // the cost model's choice
  kiln_verdict verdict;
  double us, predicted_us; // a launch; 0: not known
} kiln_result;

// Opens |path|, or `tuned.sqlite` in the user's cache directory, making it.
//
// gives:  *out, to be closed by the caller; NULL on failure, and with KILN_OK where |path| is NULL
//         and there is no cache directory
// errors: KILN_BAD_INPUT: the file cannot be had, or is no such database of this version
KILN_MUST_USE kiln_status kiln_results_open(const char *path, kiln_diag *diag, kiln_results **out);
void kiln_results_close(kiln_results *r); // NULL is allowed
// Whether the candidate |io->script| was measured, and then how it went.
bool kiln_results_find(kiln_results *r, const kiln_results_key *key, kiln_result *io);
// Stores a measurement, replacing an older one of the same key; |label| is for people.
//
// errors: KILN_BAD_INPUT: the database cannot be written, or is locked for long
KILN_MUST_USE kiln_status kiln_results_put(kiln_results *r, const kiln_results_key *key,
                                           const char *label, const kiln_result *result,
                                           kiln_diag *diag);
// The script of the fastest correct candidate, in cx->perm: the cost model's choice unless another
// is faster by more than KILN_RESULTS_GAIN. If |key->driver| is NULL, measurements of the driver
// version that was used last count.
//
// gives: NULL where none was measured
const char *kiln_results_best(kiln_ctx *cx, kiln_results *r, const kiln_results_key *key);
// The time of a launch of the cost model's own candidate of the program; 0: it was not measured.
double kiln_results_first_us(kiln_results *r, const kiln_results_key *key);
// A stamp that changes whenever a row of that device, driver and compiler is added; 0: no rows.
int64_t kiln_results_stamp(kiln_results *r, const kiln_results_key *key);
// The devices that there are rows of, joined by ", "; "none".
const char *kiln_results_devices(kiln_ctx *cx, kiln_results *r);

#endif

// The tuning database: a row for each measured candidate of a kernel on a device.
//
// One SQLite file for CPUs and GPUs, `tuned.sqlite` in the user's cache directory or a file given
// by the user. Unlike in the cache, rows are never evicted and the file is never replaced: a
// damaged file or one of another program or version is an error. Processes may share a file.
#ifndef KILN_TUNE_RESULTS_H
#define KILN_TUNE_RESULTS_H

#include "support/ctx.h"
#include "support/digest.h"

#include <stdbool.h>

// A candidate replaces the first one only if it takes at most this fraction of its time.
#define KILN_RESULTS_GAIN 0.97

typedef struct kiln_results kiln_results;

// The key of a row.
typedef struct kiln_results_key {
  unsigned char program[KILN_DIGEST_BYTES]; // canonical program of the kernel, with dtypes
  const char *device;                       // "NVIDIA H200"
  const char *driver;                       // driver version; for a CPU the compilation target
  const char *compiler;                     // versions of Kiln and of the device's compiler
} kiln_results_key;

typedef enum kiln_verdict {
  KILN_VERDICT_RIGHT,
  KILN_VERDICT_WRONG,   // results differ from the reference
  KILN_VERDICT_LOST,    // the process crashed or hung
  KILN_VERDICT_REFUSED, // by the device's compiler or driver
  KILN_N_VERDICTS
} kiln_verdict;

typedef struct kiln_result {
  const char *script;
  bool is_first; // the cost model's first choice
  kiln_verdict verdict;
  double us, predicted_us; // of a launch; 0: unknown
} kiln_result;

// Opens |path|, or `tuned.sqlite` in the user's cache directory; creates it if it does not exist.
//
// gives:  *out, to be closed by the caller; NULL on failure, and with KILN_OK if |path| is NULL and
//         there is no cache directory
// errors: KILN_BAD_INPUT: the file cannot be opened, or is not a tuning database of this version
KILN_MUST_USE kiln_status kiln_results_open(const char *path, kiln_diag *diag, kiln_results **out);
void kiln_results_close(kiln_results *r); // NULL is allowed
// Whether the candidate |io->script| was measured; if so fills |io|.
bool kiln_results_find(kiln_results *r, const kiln_results_key *key, kiln_result *io);
// Stores a measurement, replacing an older one with the same key; |label| is shown in listings.
//
// errors: KILN_BAD_INPUT: the database cannot be written, or stays locked too long
KILN_MUST_USE kiln_status kiln_results_put(kiln_results *r, const kiln_results_key *key,
                                           const char *label, const kiln_result *result,
                                           kiln_diag *diag);
// The script of the fastest correct candidate, in cx->perm: the cost model's choice unless another
// is faster by more than KILN_RESULTS_GAIN. If |key->driver| is NULL, measurements with the most
// recently used driver version count.
//
// gives: NULL if none was measured
const char *kiln_results_best(kiln_ctx *cx, kiln_results *r, const kiln_results_key *key);
// The time of a launch of the cost model's choice; 0: not measured.
double kiln_results_first_us(kiln_results *r, const kiln_results_key *key);
// A number that changes whenever a row of that device, driver and compiler is added; 0: no rows.
int64_t kiln_results_stamp(kiln_results *r, const kiln_results_key *key);
// The devices with rows, joined by ", "; "none".
const char *kiln_results_devices(kiln_ctx *cx, kiln_results *r);

#endif

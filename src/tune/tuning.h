// Tuning: the cheapest candidates of every kernel are measured. Shared by CPUs and GPUs.
#ifndef KILN_TUNE_TUNING_H
#define KILN_TUNE_TUNING_H

#include "module/build.h"
#include "tune/results.h"

// A lowered candidate.
typedef struct kiln_tuning_candidate {
  const kiln_tile_candidate *candidate;
  kiln_result result;
  bool is_known; // |result| is set
} kiln_tuning_candidate;

// The candidates of one kernel.
typedef struct kiln_tuning_candidates {
  const kiln_kernel *kernel;
  int n; // 0 or 1: no choice
  kiln_tuning_candidate *at;
  kiln_results_key key;
  int n_launches;
  double weight;  // predicted time of all its launches
  bool was_known; // all were measured by earlier tunings
} kiln_tuning_candidates;

typedef struct kiln_tuner {
  kiln_ctx *cx;
  kiln_build *b;
  kiln_results *results; // NULL: results are not stored
  const char *device, *driver, *compiler;
  int n; // number of kernels
  kiln_tuning_candidates *of;
  double end_ms; // deadline; INFINITY: none
} kiln_tuner;

// The index of the candidate to take: Kiln's fastest correct one, unless a library kernel takes at
// most 95 % of its time. On a GPU the library's time includes launch overhead that a run of the
// model does not overlap, its own and the next kernel's. 0 if none is correct.
int kiln_tuning_candidates_best(const kiln_machine *m, const kiln_tuning_candidates *r);
// The key of this processor's rows in the tuning database, for the kernel with key |kernel|, or for
// all kernels if it is NULL. |*out|'s texts are in the perm arena.
void kiln_tuner_key(kiln_ctx *cx, const kiln_build *b, const char *kernel, kiln_results_key *out);
// Whether the user stopped tuning, or its time is over.
bool kiln_tuner_is_over(const kiln_tuner *t);
// The key of candidate |i|'s row; a library's has the library's version.
kiln_results_key kiln_tuner_candidate_key(const kiln_tuner *t, const kiln_tuning_candidates *r,
                                          int i);
// Stores the result of candidate |i|.
kiln_status kiln_tuner_keep(kiln_tuner *t, kiln_tuning_candidates *r, int i, kiln_verdict verdict,
                            double us);

// The pass that replaces the cost model's choices by measured candidates. (tune.c)
//
// errors: KILN_BAD_INPUT: there are no measurements for the named device
kiln_status kiln_build_choose_measured(kiln_ctx *cx, kiln_build *b, int *io_n);

// Measure the candidates of |t->of| without a result until the time is over. (on_cpu.c, on_gpu.c)
kiln_status kiln_tune_on_cpu(kiln_tuner *t);
// Opens the device first, sets |t->device| and |t->driver|, then calls |find|.
//
// errors: KILN_DEVICE_ERROR: no such device, or it does not restart; its architecture is not the
// target's
kiln_status kiln_tune_on_gpu(kiln_tuner *t, kiln_status (*find)(kiln_tuner *t));

#endif

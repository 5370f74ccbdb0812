// Tuning: the cheapest candidates of every kernel, measured; what CPUs and GPUs share of it.
#ifndef KILN_TUNE_TUNING_H
#define KILN_TUNE_TUNING_H

#include "module/build.h"
#include "tune/results.h"

// A candidate that was lowered.
typedef struct kiln_rival {
  const kiln_tile_candidate *candidate;
  kiln_result result;
  bool is_known; // the result is
} kiln_rival;

// Those of one kernel.
typedef struct kiln_rivals {
  const kiln_kernel *kernel;
  int n; // 0 or 1: nothing to choose
  kiln_rival *at;
  kiln_results_key key;
  int n_launches;
  double weight;  // predicted time of all launches
  bool was_known; // all of them, before anything was measured
} kiln_rivals;

typedef struct kiln_tuner {
  kiln_ctx *cx;
  kiln_build *b;
  kiln_results *results; // NULL: nothing is kept
  const char *device, *driver, *compiler;
  int n; // kernels
  kiln_rivals *of;
  double end_ms; // of the time that the user gives; INFINITY: none
} kiln_tuner;

// The number of the candidate that is taken: Kiln's fastest correct one, unless a library needs at
// most 95 % of its time. On a GPU the library's time includes the launch overhead that a run of the
// model does not hide, its own and the next kernel's. 0 if none is correct.
int kiln_rivals_best(const kiln_machine *m, const kiln_rivals *r);
// The key of this processor's rows in the tuning database, for the kernel of that key, or NULL for
// all kernels. |*out|'s texts lie in the perm arena.
void kiln_tuner_key(kiln_ctx *cx, const kiln_build *b, const char *kernel, kiln_results_key *out);
// Whether the user or the time says so.
bool kiln_tuner_is_over(const kiln_tuner *t);
// The key under which candidate |i| is stored; a library's has the library's version.
kiln_results_key kiln_tuner_rival_key(const kiln_tuner *t, const kiln_rivals *r, int i);
// Stores the result of candidate |i|.
kiln_status kiln_tuner_keep(kiln_tuner *t, kiln_rivals *r, int i, kiln_verdict verdict, double us);

// The pass that takes measured candidates in place of the cost model's choice. (tune.c)
//
// errors: KILN_BAD_INPUT: nothing was measured on a device that was named
kiln_status kiln_build_choose_measured(kiln_ctx *cx, kiln_build *b, int *io_n);

// Measure the candidates of |t->of| that have no result yet, until time is over. (on_cpu.c,
// on_gpu.c)
kiln_status kiln_tune_on_cpu(kiln_tuner *t);
// First of all the device is opened: |find| is called, when |t->device| and |t->driver| are known.
//
// errors: KILN_DEVICE_ERROR: there is no such device, or it does not start again; its architecture
//         is not the target's
kiln_status kiln_tune_on_gpu(kiln_tuner *t, kiln_status (*find)(kiln_tuner *t));

#endif

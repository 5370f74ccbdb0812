// Checks one kernel on random data: its loops against the reference interpreter.
#ifndef KILN_VERIFY_CHECK_H
#define KILN_VERIFY_CHECK_H

#include "analysis/interpret.h"
#include "module/build.h"

typedef struct kiln_kernel_check {
  kiln_ctx *cx;
  const kiln_program *p;
  bool has_wanted;
  kiln_interpreter
      *judge;    // the interpreter with expected results and error bounds; NULL: the kernel is too
                 // large for it
  void **data;   // [tensors] row-major, malloc'ed: random inputs, expected results; NULL: unused
  void **memory; // arguments of the current loops, malloc'ed
  int n_memory;
} kiln_kernel_check;

// An argument of a kernel; outputs and workspaces are filled with ones before it runs.
typedef struct kiln_check_arg {
  char *data;
  uint64_t bytes;
  bool is_result;
} kiln_check_arg;
// Runs the kernel on some device. False: there are no results to compare.
typedef struct kiln_check_runner {
  kiln_status (*run)(void *user, int n, const kiln_check_arg *args, bool *out_ran);
  void *user;
} kiln_check_runner;
// The tolerance relative to other loops, which have rounding errors, too: a result is right if each
// element is (kiln_compare) and the relative error of all elements in the l2 norm is at most |l2|;
// 0: no limit. |is_wanted|: use it also instead of the interpreter's error bounds; for libraries,
// which round intermediate values that the program does not, for example a bias to halves.
typedef struct kiln_check_tolerance {
  double rtol, atol, l2;
  bool is_wanted; // use it although the interpreter has error bounds
} kiln_check_tolerance;

// Whether |p| can run on random data: no index is data-dependent.
bool kiln_kernel_check_suits(const kiln_program *p);
// Fills the inputs with random data. The reference interpreter computes expected results with error
// bounds (docs/design/verdicts.md). For more than |interpreted_flops| operations, the results of
// the first loops that are run are expected instead, with a tolerance.
kiln_status kiln_kernel_check_init(kiln_kernel_check *c, kiln_ctx *cx, const kiln_program *p,
                                   uint64_t seed, double interpreted_flops, kiln_freedoms may);
// Runs |l| with |runner| and compares the results.
kiln_status kiln_kernel_check_by(kiln_kernel_check *c, const kiln_loops *l,
                                 const kiln_check_runner *runner,
                                 const kiln_check_tolerance *tolerance, bool *out_is_right);
// Runs the nests of |l| on this processor, parallel ones in two parts, and compares the results.
kiln_status kiln_kernel_check_run(kiln_kernel_check *c, const kiln_loops *l,
                                  const kiln_kernel_fn *functions,
                                  const kiln_check_tolerance *tolerance, bool *out_is_right);
void kiln_kernel_check_deinit(kiln_kernel_check *c);

#endif

// Writes a reproducer of one wrong kernel: its program, loops, script and data.
#ifndef KILN_VERIFY_REPRODUCE_H
#define KILN_VERIFY_REPRODUCE_H

#include "analysis/interpret.h"
#include "fuse/kernel.h"

typedef struct kiln_reproducer {
  const char *dir; // created if it does not exist
  const kiln_program *prog;
  const kiln_kernel *kernel;
  const kiln_launch *launch;
  char *const *args; // as passed to the kernel, including its results
  kiln_interpreter *reference;
} kiln_reproducer;

// Files: KERNEL.prim, .loop, .schedule, .args (a table), .argN.raw, .wantN.raw.
// errors: KILN_BAD_INPUT if the folder is not writable
kiln_status kiln_reproducer_write(kiln_ctx *cx, const kiln_reproducer *r);

#endif

// The loops that a machine is measured with: loop programs, compiled into this process.
#ifndef KILN_TUNE_PROBE_H
#define KILN_TUNE_PROBE_H

#include "runtime/module.h"
#include "target/target.h"

typedef enum kiln_probe_kind {
  KILN_PROBE_READ,   // sums |bytes| of memory in registers
  KILN_PROBE_COPY,   // writes half of |bytes| from the other half, every element plus one
  KILN_PROBE_F32,    // multiplies and adds in registers
  KILN_PROBE_BF16,   // the same with the machine's dot products of bfloat16
  KILN_PROBE_INT8,   // and of bytes
  KILN_PROBE_NOTHING // stores one element
} kiln_probe_kind;

typedef struct kiln_probe {
  kiln_probe_kind kind;
  int64_t bytes; // READ, COPY: how much memory; rounded by kiln_probes_compile
  double work;   // out: bytes or operations of a call; 0: the machine has no such instructions
  // out: args[0] the memory, args[1] a page for results, args[2] a page of numbers; NULL where work
  //      is 0
  kiln_kernel_fn run;
} kiln_probe;

// Compiles |probes|.
//
// gives:  *out_jit, what the functions live in, to be destroyed by the caller
// errors: KILN_INTERNAL: the loops do not compile; KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_probes_compile(kiln_ctx *cx, const kiln_machine *m, int n,
                                              kiln_probe *probes, kiln_jit **out_jit);

#endif

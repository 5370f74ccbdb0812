// Loop programs that measure a machine, compiled into this process.
#ifndef KILN_TUNE_PROBE_H
#define KILN_TUNE_PROBE_H

#include "runtime/module.h"
#include "target/target.h"

typedef enum kiln_probe_kind {
  KILN_PROBE_READ,   // sums |bytes| of memory
  KILN_PROBE_COPY,   // copies one half of |bytes| to the other, adding one to every element
  KILN_PROBE_F32,    // multiply-adds in registers
  KILN_PROBE_BF16,   // dot products of bf16
  KILN_PROBE_INT8,   // dot products of bytes
  KILN_PROBE_NOTHING // stores one element
} kiln_probe_kind;

typedef struct kiln_probe {
  kiln_probe_kind kind;
  int64_t bytes; // READ, COPY: bytes of memory; rounded by kiln_probes_compile
  double work;   // out: bytes or operations a call; 0: the machine lacks the instructions
  // out: args[0] is the memory, args[1] a page for results, args[2] a page of operands; NULL if
  // work is 0
  kiln_kernel_fn run;
} kiln_probe;

// Compiles |probes|.
//
// gives:  *out_jit, which owns the functions; the caller destroys it
// errors: KILN_INTERNAL: compilation failed; KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_probes_compile(kiln_ctx *cx, const kiln_machine *m, int n,
                                              kiln_probe *probes, kiln_jit **out_jit);

#endif

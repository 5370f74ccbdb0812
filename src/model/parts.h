// The division of a program with loops that are kept (fission/flow/kept.h): what a region holds,
// what is before it and what is behind it become programs of their own, each compiled like any
// other, and the steps of a flow (runtime/flow/flow.h) run them.
//
//     A = x + 1; loop { s' = s*A }; y = s - 1     ->     part 0: A      part 1: s'      part 2: y
#ifndef KILN_MODEL_PARTS_H
#define KILN_MODEL_PARTS_H

#include "fission/flow/kept.h"
#include "model/model.h"
#include "runtime/flow/flow.h"

// A program in parts, whose buffers' offsets begin at 0.
typedef struct kiln_parted {
  kiln_flow flow;
  kiln_program **parts;    // [flow.n_parts]
  const kiln_op *user_ops; // that the graph was lowered with; NULL: none
  kiln_model *unrolled;    // the same as one program; NULL: not yet made
} kiln_parted;

// Divides |p|, of which the ports are left.
//
// needs:  static shapes, or counts with bounds
// errors: KILN_UNSUPPORTED: a value has elements of fewer than 8 bits; and those of
//         kiln_data_dependent_resolve
kiln_status kiln_parts_divide(kiln_ctx *cx, kiln_program *p, const kiln_unresolved *u,
                              kiln_parted **out);

// Stores f32 values as |half|, as the ports of the parts will be; KILN_F32: as they are.
void kiln_parts_halve(kiln_parted *io, kiln_dtype half);

// A model of part |i| of |m| alone, with the options of |m|.
kiln_model kiln_parts_model(kiln_ctx *cx, const kiln_model *m, int i);

#endif

// Ranges of named dimensions: the parts they are cut into, and for each the program at its largest
// extents.
//
// A module for ranges has a variant for each part (runtime/dynamic.h). A variant's program is the
// model's with the dimensions bound to the largest values of the part. Smaller values are runs in
// which a part of every tensor is of no
// account: what the program computes there is arbitrary, and what it computes elsewhere does not
//          depend on it. That
// holds because the program at smaller values, which is made too and compared, has the same
// statements, of which each element depends on the same elements, only of smaller extents; where it
// does not hold, the range is refused.
#ifndef KILN_DYNAMIC_RANGES_H
#define KILN_DYNAMIC_RANGES_H

#include "model/model.h"
#include "runtime/dynamic.h"

// The extents of a tensor in a run, over VARs of the dimensions.
typedef struct kiln_live {
  kiln_symbol tensor; // name
  int id, rank;
  const kiln_expr **extents, **most; // [rank]; the latter are those of the variant's program
} kiln_live;

typedef struct kiln_range_part {
  int64_t least[KILN_MAX_DIMS], most[KILN_MAX_DIMS];
  const kiln_program *prog; // with the dimensions' values as its last input
  kiln_interface inputs, outputs;
  KILN_VEC(kiln_live) live; // tensors that are smaller in some runs
} kiln_range_part;

typedef struct kiln_model_ranges {
  int n_dims, n_parts;
  kiln_dim_range dims[KILN_MAX_DIMS];
  kiln_symbol symbols[KILN_MAX_DIMS];
  kiln_range_part *parts;
  const kiln_expr ***in_shapes, ***out_shapes; // of the model's ports, over VARs of the dimensions
} kiln_model_ranges;

// Makes m->ranges of the options, and all programs, from m->graph, in which these dimensions are
// not bound.
//
// gives:  m->prog, that of the largest values
// errors: KILN_BAD_INPUT: a range is empty or of no dimension of the inputs; KILN_UNSUPPORTED: the
//         model computes something else at other values than the same of more elements
kiln_status kiln_ranges_make(kiln_ctx *cx, kiln_model *m, const kiln_op *user_ops,
                             const kiln_compile_options *o);
// The interfaces of model and parts, once it is known what f32 is stored as.
void kiln_ranges_faces(kiln_ctx *cx, kiln_model *m);

#endif

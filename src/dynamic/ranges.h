// Ranges of named dimensions: their division into shape buckets, and the program of each.
//
// A module for ranges has a variant for each bucket (runtime/dynamic.h): the model with its
// dimensions bound to the bucket's largest values. A run at smaller values computes arbitrary
// elements beyond the ends of its tensors, on which no element within them depends. To prove this,
// programs for smaller values are made and compared (equivalence.h); ranges that fail are refused.
#ifndef KILN_DYNAMIC_RANGES_H
#define KILN_DYNAMIC_RANGES_H

#include "model/model.h"
#include "runtime/dynamic.h"

// The needed extents of a tensor in a run, over VARs of the dimensions.
typedef struct kiln_live {
  kiln_symbol tensor; // name
  int id, rank;
  const kiln_expr **extents, **most; // [rank]; |most| are those of the variant's program
} kiln_live;

typedef struct kiln_bucket {
  int64_t least[KILN_MAX_DIMS], most[KILN_MAX_DIMS];
  const kiln_program *prog; // its last input has the dimensions' values
  kiln_interface inputs, outputs;
  KILN_VEC(kiln_live) live; // tensors that may be smaller in a run
} kiln_bucket;

typedef struct kiln_model_ranges {
  int n_dims, n_buckets;
  kiln_dim_range dims[KILN_MAX_DIMS];
  kiln_symbol symbols[KILN_MAX_DIMS];
  kiln_bucket *buckets;
  const kiln_expr ***in_shapes, ***out_shapes; // of the model's ports, over VARs of the dimensions
} kiln_model_ranges;

// Makes m->ranges from the options, and all programs from m->graph, in which these dimensions are
// unbound.
//
// gives:  m->prog, that of the largest values
// errors: KILN_BAD_INPUT: a range is empty, or its dimension is not one of the inputs;
//         KILN_UNSUPPORTED: programs at smaller values are not equivalent
kiln_status kiln_ranges_make(kiln_ctx *cx, kiln_model *m, const kiln_op *user_ops,
                             const kiln_compile_options *o);
// Widens the needed extents of tensors whose statements are equal but for them.
// (equal_statements.c)
void kiln_bucket_join_equal(kiln_ctx *cx, kiln_bucket *part);
// Sets the signatures (ports with types and shapes) of the model and its buckets, once the storage
// type of f32 is chosen.
void kiln_ranges_signatures(kiln_ctx *cx, kiln_model *m);

#endif

// Modules for ranges of named dimensions: a table of variants, one for each shape bucket, each an
// ordinary plan for the largest extents of its bucket.
//
// A variant's plan has one input more than the module, its last: the dimensions' values in the run,
// as i64. The ports of a run have the run's extents, those of a variant its bucket's largest; of a
// temporary, only the part that the run needs is defined. A trim reduces the iterations of a
// parallel loop, or a device's blocks, to those that the run needs.
//
// Its blob replaces the plan's in a module, and is checked in the same way.
#ifndef KILN_RUNTIME_DYNAMIC_H
#define KILN_RUNTIME_DYNAMIC_H

#include "kiln/module.h"
#include "runtime/plan.h"

enum { KILN_DYNAMIC_VERSION = 2, KILN_FORMULA_MAX = 256, KILN_FORMULA_DEPTH = 32 };

// Operations of a formula, on a stack of wrapping i64; / and % round down, x/0 = x%0 = 0.
typedef enum kiln_formula_op {
  KILN_FORMULA_CONST, // pushes |value|
  KILN_FORMULA_DIM,   // pushes dimension |value|
  KILN_FORMULA_ADD,   // binary operations: pop two, push one
  KILN_FORMULA_SUB,
  KILN_FORMULA_MUL,
  KILN_FORMULA_DIV,
  KILN_FORMULA_MOD,
  KILN_FORMULA_MIN,
  KILN_FORMULA_MAX_OF,
  KILN_N_FORMULA_OPS
} kiln_formula_op;

typedef struct kiln_formula_step {
  kiln_formula_op op;
  int64_t value;
} kiln_formula_step;

// An integer expression of the dimensions.
typedef struct kiln_formula {
  uint32_t n;
  kiln_formula_step *steps; // which leave one value
} kiln_formula;

typedef struct kiln_dynamic_port {
  const char *name;
  const kiln_type *type;
  int32_t rank;
  kiln_formula shape[KILN_PORT_MAX_RANK];
} kiln_dynamic_port;

typedef struct kiln_trim {
  uint32_t nest;       // number of the nest in the plan
  uint32_t axis;       // of a device's grid; 0 for a CPU
  kiln_formula extent; // iterations of its parallel loop, or blocks along the axis
} kiln_trim;

typedef struct kiln_variant {
  int64_t least[KILN_MAX_DIMS], most[KILN_MAX_DIMS];
  uint32_t n_trims;
  kiln_trim *trims;
  const void *plan; // a blob of its own
  uint64_t plan_bytes;
} kiln_variant;

typedef struct kiln_dynamic {
  uint32_t n_dims, n_inputs, n_outputs, n_variants;
  kiln_dim_range *dims;
  kiln_dynamic_port *inputs, *outputs;
  kiln_variant *variants;
  void *text; // reader: the copy of the blob that strings and plans point into
} kiln_dynamic;

bool kiln_formula_is_dim(const kiln_formula *f, uint32_t dim); // whether it is just dimension |dim|
int64_t kiln_formula_value(const kiln_formula *f, const int64_t *dims);

bool kiln_dynamic_is(const void *blob, size_t bytes); // whether |blob| has the magic number
// gives: *out, malloc'ed; NULL if memory ran out
void kiln_dynamic_write(const kiln_dynamic *d, void **out, size_t *out_bytes);
// gives: *out, to be freed by kiln_dynamic_deinit; zeroed on failure
// errors: KILN_BAD_INPUT with |place| and the byte, KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_dynamic_read(const void *blob, size_t bytes, const char *place,
                                            kiln_diag *diag, kiln_dynamic *out);
void kiln_dynamic_deinit(kiln_dynamic *d);

// errors: KILN_BAD_INPUT: |values| are out of range
KILN_MUST_USE kiln_status kiln_dynamic_check(const kiln_dynamic *d, const int64_t *values,
                                             kiln_diag *diag);
// The same as kiln_module_find_dims, for a module with dimensions.
KILN_MUST_USE kiln_status kiln_dynamic_find_dims(const kiln_dynamic *d, size_t n_inputs,
                                                 const DLTensor *const *inputs, kiln_diag *diag,
                                                 int64_t *out_values);
void kiln_dynamic_shape(const kiln_dynamic_port *port, const int64_t *values, int64_t *out_shape);
// The first variant for |values|, which are in range; -1 if a damaged table has none.
int kiln_dynamic_choose(const kiln_dynamic *d, const int64_t *values);

#endif

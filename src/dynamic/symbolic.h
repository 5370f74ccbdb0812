// Programs whose extents are expressions over variables of the dimensions, as the sweep over the
// graph makes them (fission/lower.h) when no value is given.
//
//     y(i0:p + t, i1:4) = i0 < p ? k(i0, i1) : x(i0 - p, i1)
//
// Such a program says how every extent and every number depends on the dimensions. From it follow
// the programs at given values, and that of a bucket: extents become their greatest values in the
// bucket, and numbers loads from a vector with the dimensions' values in the run.
#ifndef KILN_DYNAMIC_SYMBOLIC_H
#define KILN_DYNAMIC_SYMBOLIC_H

#include "ir/prim.h"
#include "kiln/module.h"

typedef struct kiln_symbolic {
  const kiln_program *prog;
  int n_dims;
  kiln_symbol names[KILN_MAX_DIMS]; // variables of the dimensions; no statement has such a dim
  int64_t least[KILN_MAX_DIMS], most[KILN_MAX_DIMS];
} kiln_symbolic;

// Whether |e|, which may be NULL, uses a dimension.
bool kiln_symbolic_uses(const kiln_symbolic *s, const kiln_expr *e);
// Makes arithmetic of choices in extents of |p|: a < b ? a : b is min(a, b).
void kiln_symbolic_make_formulas(kiln_ctx *cx, const kiln_symbolic *s, kiln_program *p);
// A tensor of which an extent has no bound in the ranges, or is no arithmetic that a run can
// evaluate; NULL: there is none.
const char *kiln_symbolic_unbounded(kiln_ctx *cx, const kiln_symbolic *s,
                                    const kiln_expr **out_extent);
// An extent at given values; -1: it is not known.
int64_t kiln_symbolic_value(kiln_ctx *cx, const kiln_symbolic *s, const int64_t *values,
                            const kiln_expr *e);
// The program at given values.
kiln_program *kiln_symbolic_bind(kiln_ctx *cx, const kiln_symbolic *s, const int64_t *values);
// A new last input of |p|: the dimensions' values, as i64.
const kiln_tensor *kiln_symbolic_add_input(kiln_ctx *cx, kiln_program *p, int n_dims);
// Replaces the dimensions in |e|, which may be NULL, by loads from |input|.
const kiln_expr *kiln_symbolic_read(kiln_ctx *cx, const kiln_symbolic *s, const kiln_tensor *input,
                                    const kiln_expr *e);
// The program at given values, except that all but extents is read from an added last input.
kiln_program *kiln_symbolic_bind_extents(kiln_ctx *cx, const kiln_symbolic *s,
                                         const int64_t *values);
// The program of the greatest extents, whose statements keep their variables.
kiln_program *kiln_symbolic_bound(kiln_ctx *cx, const kiln_symbolic *s);
// Replaces factors, divisors and moduli of indices, which flattened axes have, by their numbers at
// the greatest values:  x(i / w, i % w)  becomes  x(i / 40, i % 40).
const kiln_expr *kiln_symbolic_scale(kiln_ctx *cx, const kiln_symbolic *s, const kiln_expr *e);

#endif

// Random loop programs and inputs for them, for the tests of the targets.
#ifndef KILN_TEST_CPU_PROGRAMS_H
#define KILN_TEST_CPU_PROGRAMS_H

#include "analysis/interpret.h"
#include "target/target.h"

#include <math.h>

enum { N_INPUTS = 6, MAX_DIMS = 3 };

typedef struct maker {
  kiln_ctx *cx;
  kiln_loops *loops;
  uint64_t state;
  kiln_buffer *inputs[N_INPUTS];
  int n_vars;
  kiln_symbol vars[8];
  int64_t extents[8];
  const kiln_buffer *temp; // a row, which temp_index goes through
  const kiln_expr *temp_index;
} maker;

static int pick(maker *m, int n) {
  m->state = m->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((m->state >> 33) % (uint64_t)n);
}

static const kiln_dtype dtypes[] = {KILN_F32, KILN_F32, KILN_F16, KILN_BF16, KILN_I32, KILN_I8,
                                    KILN_U8,  KILN_I64, KILN_F64, KILN_BOOL, KILN_U16, KILN_U32};

static const kiln_expr *number(maker *m, int64_t v) { return kiln_int(m->cx, v); }

// Affine in the variables, of any value.
static const kiln_expr *affine(maker *m) {
  static const int64_t coefs[] = {0, 1, 1, 1, 2, 3, 4, -1, 16, 7, -2};
  const kiln_expr *x = number(m, pick(m, 9) - 4);
  for (int i = 0; i < m->n_vars; i++) {
    const kiln_expr *c = number(m, coefs[pick(m, KILN_LEN(coefs))]);
    x = kiln_add(m->cx, x, kiln_mul(m->cx, kiln_var(m->cx, m->vars[i]), c));
  }
  if (pick(m, 5) == 0) x = kiln_div(m->cx, x, number(m, 1 + pick(m, 9)));
  return x;
}

static const kiln_expr *in_range(maker *m, const kiln_expr *x, int64_t extent) {
  return kiln_binary(m->cx, KILN_EXPR_AND, kiln_binary(m->cx, KILN_EXPR_GE, x, number(m, 0)),
                     kiln_binary(m->cx, KILN_EXPR_LT, x, number(m, extent)));
}

static const kiln_expr *clamped(maker *m, const kiln_expr *x, int64_t extent) {
  if (pick(m, 2)) return kiln_mod(m->cx, x, number(m, extent));
  x = kiln_binary(m->cx, KILN_EXPR_MAX, x, number(m, 0));
  return kiln_binary(m->cx, KILN_EXPR_MIN, x, number(m, extent - 1));
}

// |x| if it is a number, otherwise 0: a selection by its own operand.
static const kiln_expr *gated(maker *m, const kiln_expr *x) {
  const kiln_expr *least = kiln_number(m->cx, x->dtype, pick(m, 3));
  return kiln_select(m->cx, kiln_binary(m->cx, KILN_EXPR_GT, x, least), x,
                     kiln_number(m->cx, x->dtype, 0));
}

static const kiln_expr *reversed(maker *m, const kiln_expr *x, int64_t extent) {
  return kiln_sub(m->cx, number(m, extent - 1), x);
}

// An element of the temporary row: of the row forwards or backwards, or any.
static const kiln_expr *load_some(maker *m) {
  const bool is_temp = m->temp && pick(m, 3) == 0;
  const int how = is_temp ? pick(m, 4) : 0;
  if (is_temp && how < 3) {
    const kiln_expr *at =
        how == 2 ? reversed(m, m->temp_index, m->temp->extents[0]) : m->temp_index;
    return kiln_load(m->cx, m->temp->id, m->temp->dtype, 1, &at);
  }
  const kiln_buffer *b = is_temp ? m->temp : m->inputs[pick(m, N_INPUTS)];
  const kiln_expr *index[MAX_DIMS] = {NULL}, *cond = NULL;
  for (int i = 0; i < b->rank; i++) {
    index[i] = affine(m);
    if (pick(m, 2)) {
      index[i] = clamped(m, index[i], b->extents[i]);
    } else {
      const kiln_expr *c = in_range(m, index[i], b->extents[i]);
      cond = cond ? kiln_binary(m->cx, KILN_EXPR_AND, cond, c) : c;
    }
  }
  const kiln_expr *x = kiln_load(m->cx, b->id, b->dtype, b->rank, index);
  if (!cond) return x;
  if (x->dtype != KILN_BOOL && pick(m, 3) == 0) x = gated(m, x);
  return kiln_select(m->cx, cond, x, kiln_number(m->cx, b->dtype, pick(m, 2)));
}

static const kiln_expr *value(maker *m, kiln_dtype t, int depth);

static const kiln_expr *condition(maker *m, int depth) {
  static const kiln_expr_kind kinds[] = {KILN_EXPR_LT, KILN_EXPR_LE, KILN_EXPR_GT,
                                         KILN_EXPR_GE, KILN_EXPR_EQ, KILN_EXPR_NE};
  const kiln_expr_kind k = kinds[pick(m, 6)];
  if (pick(m, 2)) return kiln_binary(m->cx, k, affine(m), number(m, pick(m, 20)));
  const kiln_dtype t = dtypes[pick(m, 9)];
  return kiln_binary(m->cx, k, value(m, t, depth - 1), value(m, t, depth - 1));
}

static const kiln_expr *operation(maker *m, kiln_dtype t, int depth) {
  static const kiln_expr_kind floats[] = {KILN_EXPR_ADD, KILN_EXPR_SUB, KILN_EXPR_MUL,
                                          KILN_EXPR_MIN, KILN_EXPR_MAX, KILN_EXPR_DIV};
  static const kiln_expr_kind ints[] = {
      KILN_EXPR_ADD, KILN_EXPR_SUB, KILN_EXPR_MUL,  KILN_EXPR_MIN,  KILN_EXPR_MAX,  KILN_EXPR_DIV,
      KILN_EXPR_MOD, KILN_EXPR_BOR, KILN_EXPR_BAND, KILN_EXPR_BXOR, KILN_EXPR_TDIV, KILN_EXPR_FMOD};
  static const kiln_expr_kind bools[] = {KILN_EXPR_AND, KILN_EXPR_OR, KILN_EXPR_BXOR};
  const bool is_float = kiln_dtype_is_float(t);
  const kiln_expr_kind k = is_float         ? floats[pick(m, KILN_LEN(floats))]
                           : t == KILN_BOOL ? bools[pick(m, KILN_LEN(bools))]
                                            : ints[pick(m, KILN_LEN(ints))];
  return kiln_binary(m->cx, k, value(m, t, depth - 1), value(m, t, depth - 1));
}

static const kiln_expr *function(maker *m, kiln_dtype t, int depth) {
  static const kiln_expr_kind kinds[] = {KILN_EXPR_NEG,   KILN_EXPR_ABS,  KILN_EXPR_SIGN,
                                         KILN_EXPR_FLOOR, KILN_EXPR_CEIL, KILN_EXPR_ROUND,
                                         KILN_EXPR_TRUNC};
  const kiln_expr *a = value(m, t, depth - 1);
  if (t == KILN_BOOL) return kiln_unary(m->cx, KILN_EXPR_NOT, a);
  if (!kiln_dtype_is_float(t)) return kiln_unary(m->cx, KILN_EXPR_NEG, a);
  return kiln_unary(m->cx, kinds[pick(m, KILN_LEN(kinds))], a);
}

static const kiln_expr *value(maker *m, kiln_dtype t, int depth) {
  const int choice = depth > 0 ? pick(m, 10) : 0;
  if (choice < 4) return kiln_cast(m->cx, t, load_some(m));
  if (choice == 4) return kiln_number(m->cx, t, t == KILN_BOOL ? pick(m, 2) : pick(m, 7) + 1);
  if (choice == 5) return kiln_cast(m->cx, t, affine(m));
  if (choice == 6)
    return kiln_select(m->cx, condition(m, depth), value(m, t, depth - 1), value(m, t, depth - 1));
  if (choice == 7) return function(m, t, depth);
  return operation(m, t, depth);
}

static kiln_buffer *make_buffer(maker *m, const char *name, kiln_dtype t, kiln_scope scope,
                                int rank, const int64_t *extents) {
  // Axes in a random order, the innermost perhaps with gaps.
  int64_t strides[MAX_DIMS], stride = 1 + (pick(m, 4) == 0) * pick(m, 3);
  int order[MAX_DIMS] = {0, 1, 2};
  for (int i = rank - 1; i > 0 && pick(m, 2); i--) {
    const int k = pick(m, i + 1), other = order[i];
    order[i] = order[k];
    order[k] = other;
  }
  for (int i = rank - 1; i >= 0; i--) {
    strides[order[i]] = stride;
    stride *= extents[order[i]];
  }
  return kiln_buffer_make(m->cx, m->loops, name, t, scope, rank, extents, strides);
}

static kiln_loop *wrap(maker *m, kiln_loop *body, int from, bool *vectorized) {
  for (int i = m->n_vars - 1; i >= from; i--) {
    body = kiln_for_make(m->cx, m->vars[i], number(m, m->extents[i]), body);
    const int how = pick(m, 4);
    if (i == m->n_vars - 1 || how == 0) {
      body->how = *vectorized ? KILN_SERIAL : KILN_VECTORIZED;
      *vectorized = true;
    } else if (i == 0 && how == 1) {
      body->how = KILN_PARALLEL;
    } else if (how == 2 && m->extents[i] < 8) {
      body->how = KILN_UNROLLED;
    }
  }
  return body;
}

static void add_var(maker *m, const char *name, int64_t extent) {
  m->vars[m->n_vars] = kiln_symbol_of(m->cx, name);
  m->extents[m->n_vars++] = extent;
}

// A guard that is often all true, or cuts the last lanes.
static kiln_loop *guarded(maker *m, kiln_loop *body) {
  if (pick(m, 3)) return body;
  const int last = m->n_vars - 1;
  const kiln_expr *x = kiln_var(m->cx, m->vars[last]);
  if (last > 0 && pick(m, 2))
    x = kiln_add(m->cx, x,
                 kiln_mul(m->cx, kiln_var(m->cx, m->vars[0]), number(m, m->extents[last])));
  const kiln_expr *c =
      kiln_binary(m->cx, KILN_EXPR_LT, x, number(m, 1 + pick(m, 2 * (int)m->extents[last])));
  if (pick(m, 3) == 0) c = kiln_binary(m->cx, KILN_EXPR_AND, c, condition(m, 1));
  return kiln_if_make(m->cx, c, body);
}

static kiln_loop *map_nest(maker *m, const kiln_buffer *out) {
  const kiln_expr *index[MAX_DIMS] = {NULL};
  for (int i = 0; i < out->rank; i++) index[i] = kiln_var(m->cx, m->vars[i]);
  kiln_loop *s = kiln_store_make(m->cx, out, index, KILN_COMBINE_NONE, value(m, out->dtype, 3));
  bool vectorized = false;
  return wrap(m, guarded(m, s), 0, &vectorized);
}

// The last variable is reduced.
static kiln_loop *reduce_nest(maker *m, const kiln_buffer *out) {
  static const kiln_combiner all[] = {KILN_COMBINE_SUM, KILN_COMBINE_SUM, KILN_COMBINE_MAX,
                                      KILN_COMBINE_MIN};
  const kiln_expr *index[MAX_DIMS] = {NULL};
  for (int i = 0; i < out->rank; i++) index[i] = kiln_var(m->cx, m->vars[i]);
  const kiln_combiner c = out->dtype == KILN_BOOL ? KILN_COMBINE_OR : all[pick(m, 4)];
  const kiln_expr *x = value(m, out->dtype, 1);
  if (c == KILN_COMBINE_SUM && pick(m, 2)) x = kiln_mul(m->cx, x, value(m, out->dtype, 1));
  kiln_loop *s = kiln_store_make(m->cx, out, index, c, x);
  bool vectorized = false;
  return wrap(m, guarded(m, s), 0, &vectorized);
}

// Combines into a row's elements, reversed or strided.
static kiln_loop *amend(maker *m, const kiln_buffer *t, const kiln_expr *x) {
  const bool turned = pick(m, 2);
  const int64_t extent = t->extents[0];
  const kiln_expr *at =
      turned ? reversed(m, x, extent) : kiln_add(m->cx, x, number(m, pick(m, 9) - 4));
  kiln_loop *s = kiln_store_make(m->cx, t, &at, pick(m, 2) ? KILN_COMBINE_MAX : KILN_COMBINE_NONE,
                                 value(m, t->dtype, 2));
  return turned ? s : kiln_if_make(m->cx, in_range(m, at, extent), s);
}

// A temporary row, written and read in the body of the outermost loop, or one element a lane.
static kiln_loop *local_nest(maker *m, const kiln_buffer *out) {
  const bool inside = pick(m, 2);
  const int64_t extent = m->extents[out->rank - 1], one = 1;
  const kiln_scope scope = pick(m, 2) ? KILN_SCOPE_REGISTER : KILN_SCOPE_LOCAL;
  const kiln_buffer *t = kiln_buffer_make(m->cx, m->loops, "t", dtypes[pick(m, KILN_LEN(dtypes))],
                                          scope, 1, inside ? &one : &extent, NULL);
  const kiln_expr *index[MAX_DIMS] = {NULL};
  for (int i = 0; i < out->rank; i++) index[i] = kiln_var(m->cx, m->vars[i]);
  const int last = m->n_vars - 1;
  const kiln_expr *at = inside ? number(m, 0) : kiln_var(m->cx, m->vars[last]);
  kiln_loop *first = kiln_store_make(m->cx, t, &at, KILN_COMBINE_NONE, value(m, t->dtype, 2));
  const kiln_symbol second = kiln_symbol_of(m->cx, "w");
  bool vectorized = false;
  if (!inside) {
    kiln_loop *fill = kiln_for_make(m->cx, m->vars[last], number(m, extent), first);
    fill->how = pick(m, 2) ? KILN_VECTORIZED : KILN_UNROLLED;
    m->vars[last] = kiln_symbol_of(m->cx, "u");
    const kiln_expr *u = kiln_var(m->cx, m->vars[last]);
    fill->next = kiln_for_make(m->cx, m->vars[last], number(m, extent), amend(m, t, u));
    fill->next->how = pick(m, 2) ? KILN_VECTORIZED : KILN_UNROLLED;
    m->vars[last] = second;
    at = index[out->rank - 1] = kiln_var(m->cx, second);
    first = fill;
  }
  m->temp = t;
  m->temp_index = at;
  kiln_loop *s = kiln_store_make(m->cx, out, index, KILN_COMBINE_NONE, value(m, out->dtype, 3));
  if (inside) {
    first->next = s;
    return wrap(m, kiln_alloc_make(m->cx, t, first), 0, &vectorized);
  }
  kiln_loop *read = kiln_for_make(m->cx, second, number(m, extent), s);
  read->how = pick(m, 2) ? KILN_VECTORIZED : KILN_UNROLLED;
  first->next->next = read;
  vectorized = true;
  kiln_loop *body = kiln_alloc_make(m->cx, t, first);
  for (int i = last - 1; i >= 0; i--)
    body = kiln_for_make(m->cx, m->vars[i], number(m, m->extents[i]), body);
  return body;
}

static void make_inputs(maker *m) {
  m->loops = kiln_loops_make(m->cx, "k");
  for (int i = 0; i < N_INPUTS; i++) {
    int64_t extents[MAX_DIMS];
    const int rank = 1 + pick(m, MAX_DIMS);
    for (int k = 0; k < rank; k++) extents[k] = 1 + pick(m, pick(m, 2) ? 40 : 5);
    m->inputs[i] = make_buffer(m, kiln_arena_printf(&m->cx->perm, "in%d", i),
                               dtypes[i == 0 ? 0 : pick(m, KILN_LEN(dtypes))], KILN_SCOPE_PARAM,
                               rank, extents);
  }
}

static const kiln_buffer *make_program(maker *m) {
  make_inputs(m);
  static const char *const names[] = {"i", "j", "v"};
  const int n_vars = 1 + pick(m, MAX_DIMS);
  for (int i = 0; i < n_vars; i++) add_var(m, names[i], 1 + pick(m, i == n_vars - 1 ? 45 : 6));
  const int kind = pick(m, 3);
  const int rank = kind == 1 ? n_vars - 1 : n_vars;
  kiln_dtype t = dtypes[pick(m, KILN_LEN(dtypes))];
  if (kind == 1 && (t == KILN_F16 || t == KILN_BF16)) t = KILN_F32; // would round at every step
  const kiln_buffer *out = make_buffer(m, "out", t, KILN_SCOPE_PARAM, rank, m->extents);
  m->loops->body = kind == 0   ? map_nest(m, out)
                   : kind == 1 ? reduce_nest(m, out)
                               : local_nest(m, out);
  return out;
}

static void fill_buffer(maker *m, const kiln_buffer *b, void *data) {
  for (int64_t i = 0; i < kiln_buffer_elems(b) + 8; i++) {
    if (kiln_dtype_is_float(b->dtype))
      kiln_element_set(b->dtype, data, i, (pick(m, 129) - 64) / 16.0);
    else
      kiln_element_set_int(b->dtype, data, i,
                           b->dtype == KILN_BOOL ? pick(m, 2) : pick(m, 23) - 11);
  }
}

static bool is_near(kiln_dtype t, double a, double b) {
  if (a == b || (isnan(a) && isnan(b))) return true;
  if (!kiln_dtype_is_float(t)) return false;
  const double tolerance = t == KILN_F64 ? 1e-12 : t == KILN_F32 ? 1e-5 : 1.0 / 128;
  return fabs(a - b) <= tolerance * (fabs(a) + 4);
}

#endif

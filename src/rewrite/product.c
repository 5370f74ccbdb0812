// Sums of products and linear maps (rewrite/product.h).
#include "rewrite/product.h"

enum { MAX_MAPS = 16 }; // most maps on a path

int64_t kiln_dims_elems(int n, const kiln_dim *dims) {
  int64_t all = 1;
  for (int d = 0; d < n; d++)
    if (__builtin_mul_overflow(all, kiln_expr_int_or(dims[d].extent, -1), &all)) return INT64_MAX;
  return all;
}

kiln_ranges kiln_stmt_bounds(kiln_ctx *cx, const kiln_stmt *s) {
  kiln_ranges r;
  kiln_ranges_init(&r, &cx->scratch);
  for (int d = 0; d < s->n_space + s->n_reduce; d++)
    kiln_ranges_push(&r, s->dims[d].name, 0, kiln_expr_int_or(s->dims[d].extent, -1) - 1);
  return r;
}

static bool is_operand(const kiln_expr *e) {
  return e->kind == KILN_EXPR_LOAD && (e->dtype == KILN_F32 || e->dtype == KILN_F64);
}

bool kiln_bilinear_of(kiln_ctx *cx, kiln_stmt *s, kiln_bilinear *out) {
  if (s->combiner != KILN_COMBINE_SUM || s->n_reduce == 0 || s->guard ||
      !kiln_stmt_is_plain(cx, s) || s->body->kind != KILN_EXPR_MUL)
    return false;
  *out = (kiln_bilinear){s, {s->body->args[0], s->body->args[1]}};
  const kiln_expr *zero = kiln_int(cx, 0);
  for (int i = 0; i < 2; i++) {
    if (!is_operand(out->args[i])) return false;
    for (int d = 0; d < s->n_space + s->n_reduce; d++)
      if (kiln_expr_int_or(s->dims[d].extent, -1) == 1)
        out->args[i] = kiln_expr_substitute(cx, out->args[i], 1, &s->dims[d].name, &zero);
  }
  return true;
}

typedef struct constness {
  const kiln_program *p;
  bool reads_data;
} constness;

static void see_load(const kiln_expr *e, void *argument) {
  constness *c = argument;
  c->reads_data |= e->kind == KILN_EXPR_LOAD && c->p->tensors.data[e->u.tensor]->role != KILN_CONST;
}

bool kiln_reads_constants(kiln_ctx *cx, const kiln_program *p, const kiln_expr *e) {
  constness c = {p, false};
  if (e->has_load) kiln_expr_visit(cx, e, see_load, &c);
  return !c.reads_data;
}

static kiln_search find_computed(const kiln_expr *e, void *argument) {
  (void)argument;
  if (e->kind == KILN_EXPR_SELECT)
    return kiln_expr_has_load(e->args[0]) ? KILN_SEARCH_ENDS : KILN_SEARCH_REST;
  for (int k = 0; k < e->n_args; k++)
    if (kiln_expr_has_load(e->args[k])) return KILN_SEARCH_ENDS;
  const bool is_moved = e->kind == KILN_EXPR_LOAD || (e->n_args == 0 && e->kind != KILN_EXPR_VAR);
  return is_moved ? KILN_SEARCH_PAST : KILN_SEARCH_ENDS;
}

bool kiln_only_moves(kiln_ctx *cx, const kiln_expr *e) {
  return !kiln_expr_search(cx, e, find_computed, NULL);
}

const kiln_stmt *kiln_map_of(kiln_ctx *cx, const kiln_program *p, int tensor) {
  const kiln_tensor *t = p->tensors.data[tensor];
  if (t->role != KILN_TEMP || t->def < 0) return NULL;
  const kiln_stmt *s = p->stmts.data[t->def];
  const bool is_map = s->n_reduce == 0 && s->combiner == KILN_COMBINE_NONE && !s->guard &&
                      kiln_stmt_is_plain(cx, s);
  return is_map ? s : NULL;
}

static const kiln_expr *sum_of(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return !a ? b : !b ? a : kiln_add(cx, a, b);
}

static const kiln_expr *times(kiln_ctx *cx, const kiln_expr *factor, const kiln_expr *e) {
  return !factor ? e : !e ? NULL : kiln_mul(cx, factor, e);
}

// Descends one step into the expression |e| of |at|'s load towards a single load, moving the rest
// into factor and shift. NULL: |e| is not linear in one operand.
static const kiln_expr *step(kiln_ctx *cx, const kiln_program *p, const kiln_expr *e,
                             kiln_linear *at) {
  if (!kiln_dtype_is_float(e->dtype)) return NULL;
  const kiln_expr *const one = kiln_float(cx, e->dtype, 1), *minus = kiln_float(cx, e->dtype, -1);
  if (e->kind == KILN_EXPR_NEG) {
    at->factor = times(cx, at->factor, minus);
    return e->args[0];
  }
  if (e->n_args != 2) return NULL;
  const bool first = kiln_reads_constants(cx, p, e->args[0]);
  const kiln_expr *c = e->args[!first], *x = e->args[first];
  if (!kiln_reads_constants(cx, p, c)) return NULL;
  if (e->kind == KILN_EXPR_MUL) {
    at->factor = times(cx, at->factor, c);
  } else if (e->kind == KILN_EXPR_DIV && !first) {
    at->factor = kiln_div(cx, at->factor ? at->factor : one, c);
  } else if (e->kind == KILN_EXPR_ADD || (e->kind == KILN_EXPR_SUB && first)) {
    at->shift = sum_of(cx, times(cx, at->factor, c), at->shift);
    if (e->kind == KILN_EXPR_SUB) at->factor = times(cx, at->factor, minus);
  } else if (e->kind == KILN_EXPR_SUB) {
    at->shift = sum_of(cx, times(cx, at->factor, kiln_mul(cx, minus, c)), at->shift);
  } else {
    return NULL;
  }
  return x;
}

bool kiln_linear_in(kiln_ctx *cx, const kiln_program *p, const kiln_expr *e, int tensor,
                    kiln_linear *out) {
  *out = (kiln_linear){0};
  while (e && e->kind != KILN_EXPR_LOAD) e = step(cx, p, e, out);
  out->load = e;
  return e && e->u.tensor == tensor;
}

// Continues through the map that computes |at|'s load; false if it is not linear.
static bool open_map(kiln_ctx *cx, const kiln_program *p, const int *n_readers,
                     const kiln_ranges *ranges, kiln_linear *at) {
  const int tensor = at->load->u.tensor;
  const kiln_stmt *s = kiln_map_of(cx, p, tensor);
  if (!s || n_readers[tensor] != 1 || kiln_tensor_is_output(p, tensor)) return false;
  kiln_symbol vars[KILN_MAX_RANK];
  for (int k = 0; k < s->n_space; k++) vars[k] = s->dims[k].name;
  kiln_linear next = *at;
  const kiln_expr *e = kiln_expr_substitute(cx, s->body, s->n_space, vars, at->load->args);
  while (e && e->kind != KILN_EXPR_LOAD) e = step(cx, p, e, &next);
  if (!e || e->dtype != at->load->dtype || kiln_reads_constants(cx, p, e)) return false;
  next.load = kiln_simplify(cx, e, ranges);
  if (next.factor) next.factor = kiln_simplify(cx, next.factor, ranges);
  if (next.shift) next.shift = kiln_simplify(cx, next.shift, ranges);
  *at = next;
  return true;
}

kiln_linear kiln_linear_of(kiln_ctx *cx, const kiln_program *p, const int *n_readers,
                           const kiln_ranges *ranges, const kiln_expr *load) {
  kiln_linear at = {.load = load};
  for (int i = 0; i < MAX_MAPS && open_map(cx, p, n_readers, ranges, &at); i++) {}
  return at;
}

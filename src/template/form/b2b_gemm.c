// Brings two GEMMs, the second of a map of the first, into the form of back-to-back GEMM.
#include "template/form/b2b_gemm.h"

enum { CAPABILITY = 80, UNIT = 16 }; // the least compute capability; extents are multiples of UNIT

typedef struct making {
  kiln_ctx *cx;
  kiln_program *p;
  const kiln_stmt *first; // the first contraction
  kiln_product_numbers f; // the dims of the second
  kiln_stmt *x;
} making;

static const kiln_stmt *writer_of(const making *w, int tensor) {
  for (int i = 0; i < w->p->stmts.n; i++)
    if (w->p->stmts.data[i]->out == tensor) return w->p->stmts.data[i];
  return NULL;
}

// --- recognition ---

// Whether the statements between the contractions are maps that only the second contraction needs.
static bool are_between(const making *w, const kiln_stmt *t, const kiln_stmt *y) {
  const kiln_program *p = w->p;
  for (int i = 0; i + 2 < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    if (s->guard || s->init || p->tensors.data[s->out]->role != KILN_TEMP || (i > 0 && s->n_reduce))
      return false;
  }
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, p, y);
  for (int i = 0; i < loads.n; i++)
    if (loads.data[i]->u.tensor != t->out && writer_of(w, loads.data[i]->u.tensor)) return false;
  return true;
}

// Inlines maps into the expressions that load them.
static const kiln_expr *read_maps(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const making *w = argument;
  const kiln_stmt *s = e->kind == KILN_EXPR_LOAD ? writer_of(w, e->u.tensor) : NULL;
  kiln_symbol vars[KILN_MAX_RANK];
  if (!s || s == w->first) return NULL;
  for (int d = 0; d < s->n_space; d++) vars[d] = s->dims[d].name;
  const kiln_expr *body = kiln_expr_substitute(cx, s->body, s->n_space, vars, e->args);
  return kiln_expr_replace(cx, body, read_maps, argument);
}

// The second contraction with those maps inlined, so that it loads the first one's elements.
static kiln_stmt *expanded(making *w, const kiln_stmt *t) {
  kiln_stmt *all = KILN_NEW(&w->cx->perm, kiln_stmt);
  *all = *t;
  all->body = kiln_stmt_simplify(w->cx, t, kiln_expr_replace(w->cx, t->body, read_maps, w));
  return all;
}

// The only load of the first contraction in the left factor, at the new dims: of row m and of the
// hidden element k, the contraction's dim |*out_hidden|.
static const kiln_expr *load_of(making *w, int *out_hidden) {
  const kiln_expr *left = kiln_product_renumber(&w->f, w->f.left), *found = NULL;
  const kiln_stmt over = {.n_space = 2,
                          .dims = (kiln_dim[]){{w->f.m, kiln_int(w->cx, w->f.m_extent)},
                                               {w->f.k, kiln_int(w->cx, w->f.k_extent)}}};
  const kiln_loads loads =
      kiln_loads_of(w->cx, &w->cx->scratch, kiln_stmt_simplify(w->cx, &over, left));
  for (int i = 0; i < loads.n; i++) {
    if (loads.data[i]->u.tensor != w->first->out) continue;
    if (found && found != loads.data[i]) return NULL;
    found = loads.data[i];
  }
  *out_hidden = -1;
  for (int d = 0; found && d < found->n_args; d++) {
    if (!kiln_expr_uses(found->args[d], w->f.k)) continue;
    if (*out_hidden >= 0 || found->args[d] != kiln_var(w->cx, w->f.k)) return NULL;
    *out_hidden = d;
  }
  return *out_hidden >= 0 ? found : NULL;
}

// --- the new statements ---

// Makes the first product's operand |factor| over (first, second), for the element of the
// contraction that |load| reads.
static kiln_stmt *operand_of(making *w, const char *name, const kiln_expr *factor,
                             const kiln_expr *load, const kiln_symbol *names,
                             const int64_t *extents) {
  kiln_ctx *cx = w->cx;
  const kiln_stmt *t = w->first;
  const kiln_expr *values[KILN_MAX_RANK + 1];
  kiln_symbol vars[KILN_MAX_RANK + 1];
  for (int d = 0; d <= t->n_space; d++) {
    vars[d] = t->dims[d].name;
    values[d] = d < t->n_space ? load->args[d] : kiln_var(cx, kiln_symbol_of(cx, "d"));
  }
  kiln_stmt *s =
      kiln_product_over(&w->f, 2, names, extents, 0,
                        kiln_tensor_make(cx, w->p, name, factor->dtype, KILN_TEMP, 0, NULL));
  s->body =
      kiln_stmt_simplify(cx, s, kiln_expr_substitute(cx, factor, t->n_space + 1, vars, values));
  return s;
}

static const kiln_expr *wide_element(making *w, const kiln_stmt *s, kiln_symbol a, kiln_symbol b) {
  const kiln_expr *at[] = {kiln_var(w->cx, a), kiln_var(w->cx, b)};
  return kiln_cast(w->cx, KILN_F32, kiln_product_read(&w->f, s, 2, at));
}

static const kiln_expr *read_first(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const making *w = argument;
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != w->first->out) return NULL;
  return kiln_product_read(&w->f, w->x, 2,
                           (const kiln_expr *[]){kiln_var(cx, w->f.m), kiln_var(cx, w->f.k)});
}

// Makes I, J and X; false if the first contraction is no matrix product.
static bool make_first(making *w, const kiln_expr *load, int hidden, kiln_stmt **out) {
  kiln_ctx *cx = w->cx;
  const kiln_stmt *t = w->first;
  const kiln_expr *a = NULL, *b = NULL;
  const int64_t depth = kiln_dim_extent(&t->dims[t->n_space]);
  const kiln_symbol d = kiln_symbol_of(cx, "d"), column = t->dims[hidden].name;
  if (!kiln_stmt_is_product(t, &a, &b)) return false;
  if (kiln_expr_uses(a, column)) {
    const kiln_expr *other = a;
    a = b;
    b = other;
  }
  if (kiln_expr_uses(a, column) || a->dtype != w->f.left->dtype || b->dtype != a->dtype ||
      depth % UNIT || depth > KILN_B2B_GEMM_DEPTH)
    return false;
  for (int i = 0; i < t->n_space; i++) // a dim of rows occurs in the left operand only
    if (i != hidden && kiln_expr_uses(b, t->dims[i].name)) return false;
  out[0] = operand_of(w, "I", a, load, (const kiln_symbol[]){w->f.m, d},
                      (const int64_t[]){w->f.m_extent, depth});
  out[1] = operand_of(w, "J", b, load, (const kiln_symbol[]){d, w->f.k},
                      (const int64_t[]){depth, w->f.k_extent});
  out[2] = w->x = kiln_product_over(&w->f, 3, (const kiln_symbol[]){w->f.m, w->f.k, d},
                                    (const int64_t[]){w->f.m_extent, w->f.k_extent, depth}, 1,
                                    kiln_tensor_make(cx, w->p, "X", KILN_F32, KILN_TEMP, 0, NULL));
  w->x->combiner = KILN_COMBINE_SUM;
  w->x->body = kiln_mul(cx, wide_element(w, out[0], w->f.m, d), wide_element(w, out[1], d, w->f.k));
  return true;
}

static bool are_units(const kiln_product_numbers *f) {
  return f->n_extent % UNIT == 0 && f->n_extent <= KILN_B2B_GEMM_COLUMNS &&
         f->k_extent % UNIT == 0 && f->n_padded == f->n_extent && f->k_padded == f->k_extent;
}

bool kiln_b2b_gemm_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p) {
  making w = {.cx = cx, .p = p};
  int64_t strides[KILN_MAX_RANK];
  const int n = p->stmts.n;
  int hidden = -1;
  if (m->gpu.capability < CAPABILITY || n < 4) return false;
  kiln_stmt *t = p->stmts.data[n - 2], *y = p->stmts.data[n - 1], *front[3];
  w.first = p->stmts.data[0];
  if (w.first->n_reduce != 1 || p->tensors.data[w.first->out]->dtype != KILN_F32 ||
      t->n_reduce != 1 || !kiln_product_finishes(cx, p, t, y) || !are_between(&w, t, y))
    return false;
  kiln_tensor_strides(p->tensors.data[y->out], strides);
  if (!kiln_product_number(cx, p, expanded(&w, t), strides, &w.f) || w.f.n_batch ||
      w.f.n_columns != 1 || !kiln_dtype_is_half(w.f.left->dtype) ||
      w.f.right->dtype != w.f.left->dtype || p->tensors.data[t->out]->dtype != KILN_F32 ||
      kiln_expr_loads(cx, w.f.right, w.first->out))
    return false;
  const kiln_expr *load = load_of(&w, &hidden);
  if (!load || !are_units(&w.f) || !make_first(&w, load, hidden, front)) return false;
  kiln_product_factors(&w.f);
  const kiln_expr *element =
      kiln_product_unrounded(cx, kiln_expr_replace(cx, w.f.a->body, read_first, &w));
  w.f.a->body = kiln_stmt_simplify(cx, w.f.a, element);
  y = kiln_product_finish(&w.f, y);
  kiln_product_list(&w.f, 3, front, 1, &y);
  kiln_program_drop_unwritten(cx, p);
  return true;
}

// --- reading the form back ---

bool kiln_b2b_gemm_is(const kiln_program *p, kiln_b2b_gemm *out) {
  kiln_stmt *const *s = p->stmts.data;
  if (p->stmts.n != 7 || s[2]->n_reduce != 1 || s[2]->combiner != KILN_COMBINE_SUM ||
      s[2]->n_space != 2 || !kiln_product_is_of(s + 3, s[6], &out->p) || out->p.n_batch ||
      out->p.a != s[3])
    return false;
  for (int d = 0; d < 2; d++)
    if (s[2]->dims[d].name != s[3]->dims[d].name) return false;
  out->i = s[0], out->j = s[1], out->x = s[2];
  out->depth = kiln_dim_extent(&s[2]->dims[2]);
  return true;
}

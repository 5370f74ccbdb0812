// Statements over the rows of a product: recognition, and the statements that they become.
#include "template/form/row_stmt.h"

enum {
  EIGHT = 8, // the columns of an instruction's result, of which a lane has two
  PAIR = 2
};

// --- recognition ---

static bool has_rows(const kiln_rows_of *r, const kiln_stmt *s) {
  if (s->n_space < r->n_rows) return false;
  for (int d = 0; d < r->n_rows; d++)
    if (s->dims[d].name != r->t->dims[d].name) return false;
  return true;
}

bool kiln_row_kind_of(const kiln_rows_of *r, const kiln_stmt *s, kiln_row_kind *out) {
  const kiln_tensor *t = r->p->tensors.data[s->out];
  if (s->guard || s->init || !has_rows(r, s) || s->n_reduce > 1) return false;
  if (s->n_space + s->n_reduce > r->n_rows && (s->n_space + s->n_reduce != r->n_rows + 1 ||
                                               kiln_dim_extent(&s->dims[r->n_rows]) != r->columns))
    return false;
  *out = s->n_reduce ? KILN_ROW_SUM : s->n_space > r->n_rows ? KILN_ROW_ELEMENTS : KILN_ROW_MAP;
  if (*out != KILN_ROW_ELEMENTS && t->role != KILN_TEMP) return false;
  return *out != KILN_ROW_SUM ||
         (t->dtype == KILN_F32 && s->body->dtype == KILN_F32 &&
          (s->combiner == KILN_COMBINE_SUM || s->combiner == KILN_COMBINE_MAX));
}

static bool is_computed(const kiln_rows_of *r, int tensor) {
  for (int i = 0; i < r->p->stmts.n; i++)
    if (r->p->stmts.data[i]->out == tensor) return true;
  return false;
}

bool kiln_row_reads_in_place(const kiln_rows_of *r, const kiln_stmt *s) {
  const kiln_loads loads = kiln_stmt_loads(r->cx, &r->cx->scratch, r->p, s);
  for (int i = 0; i < loads.n; i++) {
    const kiln_expr *load = loads.data[i];
    if (!is_computed(r, load->u.tensor)) continue;
    for (int d = 0; d < load->n_args; d++)
      if (d >= s->n_space + s->n_reduce || load->args[d] != kiln_var(r->cx, s->dims[d].name))
        return false;
  }
  return true;
}

// --- the new statements ---

static kiln_symbol named(kiln_ctx *cx, const char *name) { return kiln_symbol_of(cx, name); }

const kiln_expr *kiln_row_copy(kiln_ctx *cx) { return kiln_var(cx, named(cx, "q")); }

const kiln_expr *kiln_row_copy_of(kiln_ctx *cx, const kiln_expr *column) {
  return kiln_div(cx, kiln_mod(cx, column, kiln_int(cx, EIGHT)), kiln_int(cx, PAIR));
}

const kiln_expr *kiln_row_column(kiln_ctx *cx) {
  const kiln_expr *eight = kiln_mul(cx, kiln_var(cx, named(cx, "h")), kiln_int(cx, EIGHT)),
                  *pair = kiln_mul(cx, kiln_row_copy(cx), kiln_int(cx, PAIR));
  return kiln_add(cx, kiln_add(cx, eight, pair), kiln_var(cx, named(cx, "e")));
}

kiln_stmt *kiln_row_add(const kiln_product_numbers *f, kiln_row_list *io, kiln_stmt *s,
                        kiln_combiner combiner, const kiln_expr *body) {
  s->combiner = combiner;
  s->body = kiln_stmt_simplify(f->cx, s, body);
  return io->stmts[io->n++] = s;
}

kiln_tensor *kiln_row_temp(const kiln_product_numbers *f, const kiln_row_list *l, const char *name,
                           kiln_dtype t) {
  const char *numbered = kiln_arena_printf(&f->cx->scratch, "%s%d", name, l->n);
  return kiln_tensor_make(f->cx, f->p, numbered, t, KILN_TEMP, 0, NULL);
}

kiln_stmt *kiln_row_over(const kiln_product_numbers *f, const kiln_row_list *l, const char *name,
                         kiln_dtype t, int n_more, const kiln_symbol *more,
                         const int64_t *extents) {
  kiln_symbol names[4] = {f->m, named(f->cx, "q")};
  int64_t all[4] = {f->m_extent, KILN_QUAD};
  for (int i = 0; i < n_more; i++) names[2 + i] = more[i], all[2 + i] = extents[i];
  return kiln_product_over(f, 2 + n_more, names, all, n_more, kiln_row_temp(f, l, name, t));
}

kiln_stmt *kiln_row_reduce(const kiln_product_numbers *f, kiln_row_list *io, kiln_combiner combiner,
                           int64_t extent, const kiln_expr *body) {
  kiln_ctx *cx = f->cx;
  const kiln_symbol own[] = {named(cx, "h"), named(cx, "e")}, l = named(cx, "l");
  kiln_stmt *parts =
      kiln_row_over(f, io, "P", KILN_F32, 2, own, (const int64_t[]){extent / EIGHT, PAIR});
  kiln_row_add(f, io, parts, combiner, body);
  kiln_stmt *whole = kiln_row_over(f, io, "R", KILN_F32, 1, &l, (const int64_t[]){KILN_QUAD});
  const kiln_expr *at[] = {kiln_var(cx, f->m), kiln_var(cx, l)};
  return kiln_row_add(f, io, whole, combiner, kiln_product_read(f, parts, 2, at));
}

const kiln_expr *kiln_row_unrounded(kiln_ctx *cx, const kiln_expr *e) {
  if (kiln_dtype_is_half(e->dtype)) e = kiln_cast(cx, KILN_F32, e);
  return kiln_product_unrounded(cx, e);
}

kiln_row_nest kiln_row_nest_of(const kiln_stmt *s) {
  return s->n_reduce == 2 ? KILN_NEST_PARTS : s->n_reduce ? KILN_NEST_WHOLE : KILN_NEST_ROWS;
}

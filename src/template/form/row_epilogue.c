// Brings a contraction and statements over rows of its results into the form of a row-wise
// epilogue.
#include "template/form/row_epilogue.h"

#include <string.h>

// A statement of the program, and what it becomes.
typedef struct part {
  const kiln_stmt *s;
  kiln_row_kind kind;
  kiln_stmt *made; // the statement whose result replaces it
} part;

// A program while it is brought into the form.
typedef struct making {
  kiln_rows_of r;
  kiln_product_numbers f;
  int n;
  part parts[KILN_ROW_MOST]; // the contraction first
  kiln_row_list made;
} making;

// --- recognition ---

// Finds the statements, the contraction first; false if the program is no GEMM with a row-wise
// epilogue.
static bool find_parts(making *w) {
  const kiln_program *p = w->r.p;
  const kiln_stmt *t = p->stmts.data[0];
  const kiln_expr *a = NULL, *b = NULL;
  bool sums = false;
  if (p->stmts.n < 3 || p->stmts.n > KILN_ROW_MOST || t->n_space < 2 ||
      !kiln_stmt_is_product(t, &a, &b) || !kiln_dtype_is_half(a->dtype) || a->dtype != b->dtype ||
      p->tensors.data[t->out]->dtype != KILN_F32)
    return false;
  w->r.t = t;
  w->r.n_rows = t->n_space - 1;
  w->r.columns = kiln_dim_extent(&t->dims[w->r.n_rows]);
  if (w->r.columns % KILN_ROW_UNIT || w->r.columns > KILN_ROW_EPILOGUE_COLUMNS) return false;
  w->parts[w->n++] = (part){t, KILN_ROW_ELEMENTS, NULL};
  for (int i = 1; i < p->stmts.n; i++) {
    part one = {.s = p->stmts.data[i]};
    if (!kiln_row_kind_of(&w->r, one.s, &one.kind) || !kiln_row_reads_in_place(&w->r, one.s))
      return false;
    sums |= one.kind == KILN_ROW_SUM;
    w->parts[w->n++] = one;
  }
  return sums && w->parts[w->n - 1].kind == KILN_ROW_ELEMENTS;
}

static const part *part_of(const making *w, int tensor) {
  for (int i = 0; i < w->n; i++)
    if (w->parts[i].s->out == tensor) return &w->parts[i];
  return NULL;
}

static bool is_result(const making *w, const kiln_stmt *s) {
  return w->r.p->tensors.data[s->out]->role == KILN_OUTPUT;
}

// Whether all results have the same strides, so that their dims can be numbered alike.
static bool lie_alike(const making *w, const int64_t *strides) {
  for (int i = 1; i + 1 < w->n; i++) {
    int64_t own[KILN_MAX_RANK];
    if (!is_result(w, w->parts[i].s)) continue;
    kiln_tensor_strides(w->r.p->tensors.data[w->parts[i].s->out], own);
    if (memcmp(own, strides, (size_t)(w->r.n_rows + 1) * sizeof *own) != 0) return false;
  }
  return true;
}

// --- the new statements ---

// How loads of computed tensors are replaced: elements at |column|, results of rows by copy |copy|.
typedef struct reading {
  making *w;
  const kiln_expr *column, *copy;
} reading;

static const kiln_expr *read_part(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const reading *r = argument;
  const part *from = e->kind == KILN_EXPR_LOAD ? part_of(r->w, e->u.tensor) : NULL;
  if (!from) return NULL;
  const kiln_expr *index[] = {kiln_var(cx, r->w->f.m),
                              from->kind == KILN_ROW_ELEMENTS ? r->column : r->copy},
                  *load = kiln_product_read(&r->w->f, from->made, 2, index);
  return load->dtype == e->dtype ? load : kiln_cast(cx, e->dtype, load);
}

// The body of |s| with |column| for its column.
static const kiln_expr *body_of(making *w, const kiln_stmt *s, const kiln_expr *column,
                                const kiln_expr *copy) {
  kiln_ctx *cx = w->r.cx;
  reading r = {w, column, copy};
  const kiln_expr *body = kiln_expr_replace(cx, s->body, read_part, &r);
  if (s->n_space + s->n_reduce > w->r.n_rows)
    body = kiln_expr_substitute(cx, body, 1, &s->dims[w->r.n_rows].name, &column);
  return kiln_row_unrounded(cx, kiln_product_renumber(&w->f, body));
}

// The body of |s| for element (m, n), with the row's copy of the lane that has column n.
static const kiln_expr *element_of(making *w, const kiln_stmt *s) {
  kiln_ctx *cx = w->r.cx;
  const kiln_expr *n = kiln_var(cx, w->f.n);
  return body_of(w, s, n, kiln_row_copy_of(cx, n));
}

static kiln_dtype inner_dtype(const making *w, const kiln_stmt *s) {
  const kiln_dtype t = w->r.p->tensors.data[s->out]->dtype;
  return kiln_dtype_is_half(t) ? KILN_F32 : t;
}

// Adds the statement that stores the result of |s| in its type.
static void add_result(making *w, const kiln_stmt *s, const kiln_expr *body) {
  kiln_tensor *y = w->f.p->tensors.data[s->out];
  if (body->dtype != y->dtype) body = kiln_cast(w->r.cx, y->dtype, body);
  kiln_row_add(&w->f, &w->made, kiln_product_store(&w->f, y), KILN_COMBINE_NONE, body);
}

// The statement whose own element |body| is; NULL if |body| is another expression.
static kiln_stmt *same_as(const making *w, const kiln_expr *body) {
  if (body->kind != KILN_EXPR_LOAD) return NULL;
  for (int i = 0; i < w->made.n; i++)
    if (w->made.stmts[i]->out == body->u.tensor) return w->made.stmts[i];
  return body->u.tensor == w->f.t->out ? w->f.t : NULL;
}

static kiln_stmt *add_elements(making *w, const kiln_stmt *s) {
  const kiln_expr *body = element_of(w, s);
  kiln_stmt *made = same_as(w, body); // only its rounding is dropped
  if (made) return made;
  made = kiln_product_over(&w->f, 2, (const kiln_symbol[]){w->f.m, w->f.n},
                           (const int64_t[]){w->f.m_extent, w->f.n_extent}, 0,
                           kiln_row_temp(&w->f, &w->made, "W", inner_dtype(w, s)));
  return kiln_row_add(&w->f, &w->made, made, KILN_COMBINE_NONE, body);
}

static void make_bucket(making *w, part *one) {
  const kiln_stmt *s = one->s;
  const kiln_expr *copy = kiln_row_copy(w->r.cx);
  switch (one->kind) {
  case KILN_ROW_ELEMENTS: one->made = add_elements(w, s); break;
  case KILN_ROW_SUM:
    one->made = kiln_row_reduce(&w->f, &w->made, s->combiner, w->f.n_extent,
                                body_of(w, s, kiln_row_column(w->r.cx), copy));
    break;
  case KILN_ROW_MAP:
    one->made = kiln_row_over(&w->f, &w->made, "R", inner_dtype(w, s), 0, NULL, NULL);
    kiln_row_add(&w->f, &w->made, one->made, KILN_COMBINE_NONE, body_of(w, s, NULL, copy));
    break;
  }
}

// Adds copies of elements that are also results, before the last result.
static void store_others(making *w) {
  for (int i = 1; i + 1 < w->n; i++) {
    const part *one = &w->parts[i];
    if (!is_result(w, one->s)) continue;
    const kiln_expr *at[] = {kiln_var(w->r.cx, w->f.m), kiln_var(w->r.cx, w->f.n)};
    add_result(w, one->s, kiln_product_read(&w->f, one->made, 2, at));
  }
}

bool kiln_row_epilogue_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p) {
  making w = {.r = {.cx = cx, .p = p}};
  int64_t strides[KILN_MAX_RANK];
  if (m->gpu.capability < KILN_ROW_CAPABILITY || !find_parts(&w)) return false;
  const part *last = &w.parts[w.n - 1];
  kiln_tensor_strides(p->tensors.data[last->s->out], strides);
  if (!lie_alike(&w, strides) || !kiln_product_number(cx, p, p->stmts.data[0], strides, &w.f) ||
      w.f.n_columns != 1)
    return false;
  kiln_product_factors(&w.f);
  w.parts[0].made = w.f.t;
  for (int i = 1; i + 1 < w.n; i++) make_bucket(&w, &w.parts[i]);
  store_others(&w);
  add_result(&w, last->s, element_of(&w, last->s));
  kiln_product_list(&w.f, 0, NULL, w.made.n, w.made.stmts);
  kiln_program_drop_unwritten(cx, p);
  return true;
}

// --- reading the form back ---

bool kiln_row_epilogue_is(const kiln_program *p, kiln_row_epilogue *out) {
  *out = (kiln_row_epilogue){.n = p->stmts.n - 3};
  if (out->n < 3 || out->n > KILN_ROW_MADE) return false;
  const kiln_stmt *t = p->stmts.data[2];
  const int rank = t->n_space;
  bool sums = false;
  for (int i = 0; i < out->n; i++) {
    const kiln_stmt *s = out->stmts[i] = p->stmts.data[3 + i];
    const bool is_element = s->n_space == rank && s->dims[rank - 1].name == t->dims[rank - 1].name;
    if (s->n_space != rank || s->n_reduce > 2 || (is_element && s->n_reduce)) return false;
    if (!is_element && kiln_dim_extent(&s->dims[rank - 1]) != KILN_QUAD) return false;
    out->nests[i] = is_element ? KILN_NEST_ELEMENTS : kiln_row_nest_of(s);
    sums |= out->nests[i] == KILN_NEST_WHOLE;
  }
  return sums && kiln_product_is_of(p->stmts.data, out->stmts[out->n - 1], &out->p);
}

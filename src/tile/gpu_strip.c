// From a contraction and rows of its results to the program that tensor cores run.
#include "tile/gpu_strip.h"

#include "tile/gpu_quads.h"

#include <string.h>

enum {
  CAPABILITY = 80,
  COLUMNS = 16, // come in multiples of it
  EIGHT = 8,    // columns of an instruction's sums, of which a lane has two
  PAIR = 2
};

// What a statement of the program becomes.
typedef struct part {
  const kiln_stmt *s;  // NULL: it is the contraction
  kiln_strip_kind kind; // ELEMENTS, WHOLE or ROWS
  kiln_stmt *made;      // that has its value
} part;

typedef struct making {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_product_numbers f;
  int n_rows; // dims of a row's number: all but the last of the contraction
  int n;
  part parts[KILN_STRIP_MAX];
  int n_made;
  kiln_stmt *made[2 * KILN_STRIP_MAX];
  kiln_symbol q, l, h, e;
} making;

// --- what it is ---

static bool has_rows(const making *w, const kiln_stmt *s) {
  const kiln_stmt *t = w->parts[0].s;
  for (int d = 0; d < w->n_rows; d++)
    if (s->dims[d].name != t->dims[d].name) return false;
  return true;
}

static int64_t columns_of(const making *w) {
  return kiln_dim_extent(&w->parts[0].s->dims[w->n_rows]);
}

// The kind of a statement behind the contraction; false: it has none.
static bool find_kind(const making *w, part *io) {
  const kiln_stmt *s = io->s;
  if (s->guard || s->init || !has_rows(w, s)) return false;
  if (s->n_reduce == 0 && s->n_space == w->n_rows + 1) {
    io->kind = KILN_STRIP_ELEMENTS;
    return kiln_dim_extent(&s->dims[w->n_rows]) == columns_of(w);
  }
  io->kind = s->n_reduce ? KILN_STRIP_WHOLE : KILN_STRIP_ROWS;
  const kiln_tensor *out = w->p->tensors.data[s->out];
  if (s->n_space != w->n_rows || s->n_reduce > 1 || out->role != KILN_TEMP) return false;
  if (s->n_reduce == 0) return true;
  return kiln_dim_extent(&s->dims[w->n_rows]) == columns_of(w) && out->dtype == KILN_F32 &&
         (s->combiner == KILN_COMBINE_SUM || s->combiner == KILN_COMBINE_MAX);
}

static const part *part_of(const making *w, int tensor) {
  for (int i = 0; i < w->n; i++)
    if (w->parts[i].s->out == tensor) return &w->parts[i];
  return NULL;
}

// Whether |s| reads what others in the program compute at its own row and column.
static bool reads_in_place(const making *w, const kiln_stmt *s) {
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  for (int i = 0; i < loads.n; i++) {
    const kiln_expr *load = loads.data[i];
    const part *from = part_of(w, load->u.tensor);
    if (!from) continue;
    for (int d = 0; d < load->n_args; d++)
      if (d >= s->n_space + s->n_reduce || load->args[d] != kiln_var(w->cx, s->dims[d].name))
        return false;
  }
  return true;
}

// The statements, the first of which is the contraction; false: they are no strip.
static bool find_parts(making *w) {
  const kiln_program *p = w->p;
  const kiln_expr *a = NULL, *b = NULL;
  bool sums = false;
  if (p->stmts.n < 3 || p->stmts.n > KILN_STRIP_MAX / 2) return false;
  w->parts[w->n++] = (part){.s = p->stmts.data[0]};
  w->n_rows = w->parts[0].s->n_space - 1;
  if (w->n_rows < 1 || !kiln_stmt_is_product(w->parts[0].s, &a, &b) ||
      columns_of(w) % COLUMNS || columns_of(w) > KILN_STRIP_COLUMNS)
    return false;
  for (int i = 1; i < p->stmts.n; i++) {
    part one = {.s = p->stmts.data[i]};
    if (!find_kind(w, &one) || !reads_in_place(w, one.s)) return false;
    sums |= one.kind == KILN_STRIP_WHOLE;
    w->parts[w->n++] = one;
  }
  return sums && w->parts[w->n - 1].kind == KILN_STRIP_ELEMENTS &&
         kiln_dtype_is_half(a->dtype) && a->dtype == b->dtype &&
         p->tensors.data[w->parts[0].s->out]->dtype == KILN_F32;
}

// --- the new statements ---

// What loads of computed tensors become: elements at |column|, what is known of a row from copy |copy|.
typedef struct reading {
  making *w;
  const kiln_expr *column, *copy;
} reading;

static const kiln_expr *read_part(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const reading *r = argument;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const part *from = part_of(r->w, e->u.tensor);
  if (!from) return NULL;
  const bool is_element = from->kind == KILN_STRIP_ELEMENTS;
  const kiln_expr *index[] = {kiln_var(cx, r->w->f.m), is_element ? r->column : r->copy},
                  *load = kiln_product_read(&r->w->f, from->made, 2, index);
  return load->dtype == e->dtype ? load : kiln_cast(cx, e->dtype, load);
}

// The body of |s| with its column numbered |column|, in f32 if it is half.
static const kiln_expr *body_of(making *w, const kiln_stmt *s, const kiln_expr *column,
                                const kiln_expr *copy) {
  reading r = {w, column, copy};
  const kiln_expr *body = kiln_expr_replace(w->cx, s->body, read_part, &r);
  if (s->n_space + s->n_reduce > w->n_rows)
    body = kiln_expr_substitute(w->cx, body, 1, &s->dims[w->n_rows].name, &column);
  body = kiln_product_renumber(&w->f, body);
  if (kiln_dtype_is_half(body->dtype)) body = kiln_cast(w->cx, KILN_F32, body);
  return kiln_product_unrounded(w->cx, body);
}

static kiln_stmt *add(making *w, kiln_stmt *s, kiln_combiner combiner, const kiln_expr *body) {
  s->combiner = combiner;
  s->body = kiln_stmt_simplify(w->cx, s, body);
  return w->made[w->n_made++] = s;
}

static kiln_tensor *temp(making *w, const char *name, kiln_dtype t) {
  return kiln_tensor_make(w->cx, w->p, kiln_arena_printf(&w->cx->scratch, "%s%d", name, w->n_made),
                          t, KILN_TEMP, 0, NULL);
}

static kiln_dtype inner_dtype(const making *w, const kiln_stmt *s) {
  const kiln_dtype t = w->p->tensors.data[s->out]->dtype;
  return kiln_dtype_is_half(t) ? KILN_F32 : t;
}

// The result |s| writes, in its type.
static void add_result(making *w, const kiln_stmt *s, const kiln_expr *body) {
  kiln_tensor *y = w->p->tensors.data[s->out];
  const kiln_expr *rounded = body->dtype == y->dtype ? body : kiln_cast(w->cx, y->dtype, body);
  add(w, kiln_product_store(&w->f, y), KILN_COMBINE_NONE, rounded);
}

static kiln_stmt *add_elements(making *w, const kiln_stmt *s, const kiln_expr *body) {
  kiln_stmt *made =
      kiln_product_over(&w->f, 2, (const kiln_symbol[]){w->f.m, w->f.n},
                        (const int64_t[]){w->f.m_extent, w->f.n_extent}, 0,
                        temp(w, "W", inner_dtype(w, s)));
  return add(w, made, KILN_COMBINE_NONE, body);
}

// A statement for each copy of a row, over |n_more| dims more that it reduces.
static kiln_stmt *over_rows(making *w, const char *name, kiln_dtype t, int n_more,
                            const kiln_symbol *more, const int64_t *extents) {
  kiln_symbol names[4] = {w->f.m, w->q};
  int64_t all[4] = {w->f.m_extent, KILN_QUAD};
  for (int i = 0; i < n_more; i++) names[2 + i] = more[i], all[2 + i] = extents[i];
  return kiln_product_over(&w->f, 2 + n_more, names, all, n_more, temp(w, name, t));
}

// A reduction of rows: each lane its own columns, then the four of them.
static kiln_stmt *add_reduction(making *w, const kiln_stmt *s) {
  kiln_ctx *cx = w->cx;
  const kiln_expr *copy = kiln_var(cx, w->q),
                  *column = kiln_add(
                      cx,
                      kiln_add(cx, kiln_mul(cx, kiln_var(cx, w->h), kiln_int(cx, EIGHT)),
                               kiln_mul(cx, copy, kiln_int(cx, PAIR))),
                      kiln_var(cx, w->e));
  kiln_stmt *parts = over_rows(w, "P", KILN_F32, 2, (const kiln_symbol[]){w->h, w->e},
                               (const int64_t[]){w->f.n_extent / EIGHT, PAIR});
  add(w, parts, s->combiner, body_of(w, s, column, copy));
  kiln_stmt *whole = over_rows(w, "R", KILN_F32, 1, &w->l, (const int64_t[]){KILN_QUAD});
  return add(w, whole, s->combiner,
             kiln_product_read(&w->f, parts, 2,
                               (const kiln_expr *[]){kiln_var(cx, w->f.m), kiln_var(cx, w->l)}));
}

static const kiln_expr *own_copy(making *w) { // of the lane that has column n
  kiln_ctx *cx = w->cx;
  return kiln_div(cx, kiln_mod(cx, kiln_var(cx, w->f.n), kiln_int(cx, EIGHT)), kiln_int(cx, PAIR));
}

static void make_part(making *w, part *one) {
  const kiln_stmt *s = one->s;
  if (one->kind == KILN_STRIP_WHOLE) one->made = add_reduction(w, s);
  else if (one->kind == KILN_STRIP_ROWS)
    one->made = add(w, over_rows(w, "R", inner_dtype(w, s), 0, NULL, NULL), KILN_COMBINE_NONE,
                    body_of(w, s, NULL, kiln_var(w->cx, w->q)));
  else one->made = add_elements(w, s, body_of(w, s, kiln_var(w->cx, w->f.n), own_copy(w)));
}

// What others read, too, is stored at the end, in front of the last result.
static void store_others(making *w) {
  for (int i = 1; i + 1 < w->n; i++) {
    const part *one = &w->parts[i];
    if (w->p->tensors.data[one->s->out]->role != KILN_OUTPUT) continue;
    const kiln_expr *at[] = {kiln_var(w->cx, w->f.m), kiln_var(w->cx, w->f.n)};
    add_result(w, one->s, kiln_product_read(&w->f, one->made, 2, at));
  }
}

// Whether all results lie alike, so that their dims are numbered alike.
static bool lie_alike(const making *w, const int64_t *strides) {
  for (int i = 1; i + 1 < w->n; i++) {
    const kiln_tensor *t = w->p->tensors.data[w->parts[i].s->out];
    int64_t own[KILN_MAX_RANK];
    if (t->role != KILN_OUTPUT) continue;
    kiln_tensor_strides(t, own);
    if (memcmp(own, strides, (size_t)(w->n_rows + 1) * sizeof *own) != 0) return false;
  }
  return true;
}

void kiln_strip_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p) {
  making w = {.cx = cx,
              .p = p,
              .q = kiln_symbol_of(cx, "q"),
              .l = kiln_symbol_of(cx, "l"),
              .h = kiln_symbol_of(cx, "h"),
              .e = kiln_symbol_of(cx, "e")};
  int64_t strides[KILN_MAX_RANK];
  if (m->kind != KILN_MACHINE_CUDA || m->gpu.capability < CAPABILITY || !find_parts(&w)) return;
  const part *last = &w.parts[w.n - 1];
  kiln_tensor_strides(p->tensors.data[last->s->out], strides);
  if (!lie_alike(&w, strides) ||
      !kiln_product_number(cx, p, p->stmts.data[0], strides, &w.f) || w.f.n_columns != 1)
    return;
  w.parts[0].kind = KILN_STRIP_ELEMENTS;
  w.parts[0].made = w.f.t;
  for (int i = 1; i + 1 < w.n; i++) make_part(&w, &w.parts[i]);
  store_others(&w);
  add_result(&w, last->s, body_of(&w, last->s, kiln_var(cx, w.f.n), own_copy(&w)));
  kiln_product_list(&w.f, w.n_made, w.made);
  kiln_program_drop_unwritten(cx, p);
}

// --- what is one ---

bool kiln_strip_is(const kiln_program *p, kiln_strip *out) {
  *out = (kiln_strip){.n = p->stmts.n - 3};
  if (out->n < 3 || out->n > KILN_STRIP_MAX) return false;
  const kiln_stmt *t = p->stmts.data[2];
  const int rank = t->n_space;
  bool sums = false;
  for (int i = 0; i < out->n; i++) {
    const kiln_stmt *s = out->stmts[i] = p->stmts.data[3 + i];
    const bool is_element = s->n_space == rank && s->dims[rank - 1].name == t->dims[rank - 1].name;
    if (s->n_space != rank || s->n_reduce > 2 || (is_element && s->n_reduce)) return false;
    if (!is_element && kiln_dim_extent(&s->dims[rank - 1]) != KILN_QUAD) return false;
    out->kinds[i] = is_element           ? KILN_STRIP_ELEMENTS
                    : s->n_reduce == 2   ? KILN_STRIP_PARTS
                    : s->n_reduce == 1   ? KILN_STRIP_WHOLE
                                         : KILN_STRIP_ROWS;
    sums |= out->kinds[i] == KILN_STRIP_WHOLE;
  }
  return sums && kiln_product_is_of(p->stmts.data, out->stmts[out->n - 1], &out->p);
}

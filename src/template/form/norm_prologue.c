// Brings normalized rows and a contraction of them into the form of normalization prologue fusion.
#include "template/form/norm_prologue.h"

#include <string.h>

// A statement before the contraction, and what it becomes. Maps of elements become no statement:
// they are inlined where they are used.
typedef struct part {
  const kiln_stmt *s;
  kiln_row_kind kind;
  kiln_stmt *made, *shared; // R; S, if A reads it
} part;

// A program while it is brought into the form.
typedef struct making {
  kiln_rows_of r;
  kiln_product_numbers f;
  int n;
  part parts[KILN_ROW_MOST];
  kiln_row_list made; // the statements after X
  kiln_stmt *x;
} making;

static const part *part_of(const making *w, int tensor) {
  for (int i = 0; i < w->n; i++)
    if (w->parts[i].s->out == tensor) return &w->parts[i];
  return NULL;
}

// --- recognition ---

// Finds the statements before |t|; false if one does not have its rows.
static bool find_parts(making *w, const kiln_stmt *t) {
  const kiln_program *p = w->r.p;
  bool sums = false;
  w->r.t = t;
  w->r.n_rows = t->n_space - 1;
  if (t->n_space < 2 || t->n_reduce != 1) return false;
  w->r.columns = kiln_dim_extent(&t->dims[t->n_space]);
  if (w->r.columns % KILN_ROW_UNIT || w->r.columns > KILN_NORM_PROLOGUE_COLUMNS) return false;
  for (int i = 0; i + 2 < p->stmts.n; i++) {
    part one = {.s = p->stmts.data[i]};
    if (!kiln_row_kind_of(&w->r, one.s, &one.kind) || !kiln_row_reads_in_place(&w->r, one.s) ||
        p->tensors.data[one.s->out]->role != KILN_TEMP)
      return false;
    sums |= one.kind == KILN_ROW_SUM;
    w->parts[w->n++] = one;
  }
  return sums;
}

// --- inlining of maps of elements ---

static const kiln_expr *read_elements(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const making *w = argument;
  const part *from = e->kind == KILN_EXPR_LOAD ? part_of(w, e->u.tensor) : NULL;
  kiln_symbol vars[KILN_MAX_RANK];
  if (!from || from->kind != KILN_ROW_ELEMENTS) return NULL;
  for (int d = 0; d < from->s->n_space; d++) vars[d] = from->s->dims[d].name;
  const kiln_expr *body = kiln_expr_substitute(cx, from->s->body, from->s->n_space, vars, e->args);
  return kiln_expr_replace(cx, body, read_elements, argument);
}

// --- the new statements ---

// How loads are replaced: |load|, of x, by X at |column|; loads of rows by R's copy, or by S.
typedef struct reading {
  making *w;
  const kiln_expr *load, *column, *copy;
  bool is_shared;
} reading;

static const kiln_expr *read_part(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const reading *r = argument;
  const kiln_expr *m = kiln_var(cx, r->w->f.m);
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  if (e == r->load)
    return kiln_product_read(&r->w->f, r->w->x, 2, (const kiln_expr *[]){m, r->column});
  const part *from = part_of(r->w, e->u.tensor);
  if (!from) return NULL;
  return kiln_product_read(&r->w->f, r->is_shared ? from->shared : from->made, 2,
                           (const kiln_expr *[]){m, r->copy});
}

// |e| over m, and over k if it has columns, whose variable is |column|.
static const kiln_expr *renumbered(making *w, const kiln_expr *e, kiln_symbol column) {
  kiln_ctx *cx = w->r.cx;
  const kiln_expr *own = kiln_var(cx, w->r.t->dims[w->r.n_rows + 1].name);
  e = kiln_expr_replace(cx, e, read_elements, w);
  if (column) e = kiln_expr_substitute(cx, e, 1, &column, &own);
  kiln_stmt over = {.n_space = 2,
                    .dims = (kiln_dim[]){{w->f.m, kiln_int(cx, w->f.m_extent)},
                                         {w->f.k, kiln_int(cx, w->r.columns)}}};
  return kiln_stmt_simplify(cx, &over, kiln_product_renumber(&w->f, e));
}

// The only load in |e| from which all rows are computed, element by element; NULL if there are
// others or none.
static const kiln_expr *load_of(making *w, const kiln_expr *e) {
  const kiln_loads loads = kiln_loads_of(w->r.cx, &w->r.cx->scratch, e);
  const kiln_expr *found = NULL;
  for (int i = 0; i < loads.n; i++) {
    if (part_of(w, loads.data[i]->u.tensor)) continue;
    if (!kiln_expr_uses(loads.data[i], w->f.m) || !kiln_expr_uses(loads.data[i], w->f.k)) continue;
    if (found) return NULL;
    found = loads.data[i];
  }
  return found;
}

static void add_x(making *w, const kiln_expr *load) {
  kiln_tensor *t = kiln_tensor_make(w->r.cx, w->f.p, "X", load->dtype, KILN_TEMP, 0, NULL);
  w->x = kiln_product_over(&w->f, 2, (const kiln_symbol[]){w->f.m, w->f.k},
                           (const int64_t[]){w->f.m_extent, w->r.columns}, 0, t);
  w->x->body = load;
}

static const kiln_expr *body_of(making *w, const kiln_stmt *s, const kiln_expr *load) {
  kiln_ctx *cx = w->r.cx;
  const bool has_columns = s->n_reduce > 0;
  reading r = {w, load, kiln_row_column(cx), kiln_row_copy(cx), false};
  const kiln_expr *body = renumbered(w, s->body, has_columns ? s->dims[w->r.n_rows].name : 0),
                  *column = kiln_row_column(cx);
  body = kiln_expr_replace(cx, body, read_part, &r);
  // an operand that is the same for all rows
  body = kiln_expr_substitute(cx, body, 1, &w->f.k, &column);
  return kiln_row_unrounded(cx, body);
}

static void make_bucket(making *w, part *one, const kiln_expr *load) {
  if (one->kind == KILN_ROW_SUM)
    one->made =
        kiln_row_reduce(&w->f, &w->made, one->s->combiner, w->r.columns, body_of(w, one->s, load));
  if (one->kind != KILN_ROW_MAP) return;
  one->made = kiln_row_over(&w->f, &w->made, "R", KILN_F32, 0, NULL, NULL);
  kiln_row_add(&w->f, &w->made, one->made, KILN_COMBINE_NONE, body_of(w, one->s, load));
}

// Makes S for the rows that |e| reads, in memory that all threads of the block can read.
static void share(making *w, const kiln_expr *e) {
  for (int i = 0; i < w->n; i++) {
    part *one = &w->parts[i];
    if (!one->made || !kiln_expr_loads(w->r.cx, e, one->s->out)) continue;
    one->shared = kiln_row_over(&w->f, &w->made, "S", KILN_F32, 0, NULL, NULL);
    const kiln_expr *at[] = {kiln_var(w->r.cx, w->f.m), kiln_row_copy(w->r.cx)};
    kiln_row_add(&w->f, &w->made, one->shared, KILN_COMBINE_NONE,
                 kiln_product_read(&w->f, one->made, 2, at));
  }
}

// Whether all rows are computed from |load|, and the results are f32.
static bool read_alike(making *w, const kiln_expr *load) {
  for (int i = 0; i < w->n; i++) {
    const kiln_stmt *s = w->parts[i].s;
    const bool has_columns = s->n_reduce > 0;
    if (w->parts[i].kind == KILN_ROW_ELEMENTS) continue;
    if (w->r.p->tensors.data[s->out]->dtype != KILN_F32) return false;
    if (has_columns && load_of(w, renumbered(w, s->body, s->dims[w->r.n_rows].name)) != load)
      return false;
  }
  return true;
}

// The contraction with the maps of its operand's elements inlined.
static kiln_stmt *expanded(making *w, const kiln_stmt *t) {
  kiln_stmt *all = KILN_NEW(&w->r.cx->perm, kiln_stmt);
  *all = *t;
  all->body = kiln_stmt_simplify(w->r.cx, t, kiln_expr_replace(w->r.cx, t->body, read_elements, w));
  return all;
}

bool kiln_norm_prologue_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p) {
  making w = {.r = {.cx = cx, .p = p}};
  int64_t strides[KILN_MAX_RANK];
  const int n = p->stmts.n;
  if (m->gpu.capability < KILN_ROW_CAPABILITY || n < 4 || n > KILN_ROW_MOST) return false;
  kiln_stmt *t = p->stmts.data[n - 2], *y = p->stmts.data[n - 1];
  if (!kiln_product_finishes(cx, p, t, y) || !find_parts(&w, t)) return false;
  kiln_tensor_strides(p->tensors.data[y->out], strides);
  if (!kiln_product_number(cx, p, expanded(&w, t), strides, &w.f) || w.f.n_batch ||
      w.f.n_columns != 1 || w.f.old->n_reduce != 1 || !kiln_dtype_is_half(w.f.left->dtype))
    return false;
  const kiln_expr *load = load_of(&w, renumbered(&w, w.f.left, 0));
  kiln_ranges ranges;
  kiln_ranges_init(&ranges, &cx->scratch);
  kiln_ranges_push(&ranges, w.f.m, 0, w.f.m_extent - 1);
  kiln_ranges_push(&ranges, w.f.k, 0, w.r.columns - 1);
  if (!load || !kiln_load_is_inside(cx, w.f.p, load, &ranges) || !read_alike(&w, load))
    return false;
  kiln_product_factors(&w.f);
  add_x(&w, load);
  for (int i = 0; i < w.n; i++) make_bucket(&w, &w.parts[i], load);
  share(&w, w.f.a->body);
  const kiln_expr *k = kiln_var(cx, w.f.k);
  reading r = {&w, load, k, kiln_row_copy_of(cx, k), true};
  w.f.a->body = kiln_stmt_simplify(cx, w.f.a, kiln_expr_replace(cx, w.f.a->body, read_part, &r));
  y = kiln_product_finish(&w.f, y);
  kiln_stmt *front[KILN_ROW_MADE + 1] = {w.x};
  memcpy(front + 1, w.made.stmts, (size_t)w.made.n * sizeof *front);
  kiln_product_list(&w.f, 1 + w.made.n, front, 1, &y);
  kiln_program_drop_unwritten(cx, p);
  return true;
}

// --- reading the form back ---

static bool is_shared(const kiln_stmt *s) {
  return kiln_row_nest_of(s) == KILN_NEST_ROWS && s->body->kind == KILN_EXPR_LOAD;
}

bool kiln_norm_prologue_is(const kiln_program *p, kiln_norm_prologue *out) {
  *out = (kiln_norm_prologue){.n = p->stmts.n - 5};
  if (out->n < 3 || out->n > KILN_ROW_MADE) return false;
  kiln_stmt *const *s = p->stmts.data, *const *abt = s + p->stmts.n - 4;
  if (!kiln_product_is_of(abt, abt[3], &out->p) || out->p.n_batch || s[0]->n_space != 2 ||
      s[0]->n_reduce || kiln_dim_extent(&s[0]->dims[1]) != out->p.k)
    return false;
  out->x = s[0];
  for (int i = 0; i < out->n; i++) {
    const kiln_stmt *one = out->stmts[i] = s[1 + i];
    if (one->n_space != 2 || kiln_dim_extent(&one->dims[1]) != KILN_QUAD) return false;
    out->nests[i] = kiln_row_nest_of(one);
  }
  while (out->n_shared < out->n && is_shared(out->stmts[out->n - 1 - out->n_shared]))
    out->n_shared++;
  return out->n_shared > 0;
}

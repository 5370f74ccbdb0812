// Panels of rows: which operands lie so that they can be had, and their copies.
#include "tile/row_panels.h"

#include "analysis/simplify.h"
#include "schedule/index.h"

enum { MAX_DIGITS = 8 };

typedef enum digit_kind { DIGIT_OTHER, DIGIT_ROW, DIGIT_SUM } digit_kind;

// An axis of the operand, or a part of one: |e| * |coef| of its index.
typedef struct digit {
  const kiln_expr *e;
  int64_t coef;
  digit_kind kind;
} digit;

// How an operand is addressed, from the outside. Where |is_cut|, the digits are parts of its one axis.
typedef struct address {
  int n;
  digit digits[MAX_DIGITS];
  bool is_cut;
} address;

static const kiln_tensor *operand(const kiln_contraction *k) {
  return k->w->p->tensors.data[k->a->u.tensor];
}

// gives: false where more than one dim of the contraction moves the digit
static bool add_digit(const kiln_contraction *k, const kiln_expr *e, int64_t coef, address *out) {
  const bool in_rows = kiln_expr_uses(e, k->dims[k->col].dim),
             in_sum = kiln_expr_uses(e, kiln_contraction_stepped(k)->name);
  if (out->n == MAX_DIGITS || (in_rows && (in_sum || e->kind != KILN_EXPR_VAR)) || coef <= 0)
    return false;
  int at = out->n++;
  for (; at > 0 && out->digits[at - 1].coef < coef; at--) out->digits[at] = out->digits[at - 1];
  out->digits[at] = (digit){e, coef, in_rows ? DIGIT_ROW : in_sum ? DIGIT_SUM : DIGIT_OTHER};
  return true;
}

// Whether each digit stays below what the next one counts.
static bool is_positional(const kiln_contraction *k, const address *a) {
  const kiln_ranges ranges = kiln_stmt_ranges(&k->w->cx->scratch, k->c);
  int64_t above = kiln_tensor_elems(operand(k));
  for (int i = 0; i < a->n; i++) {
    const digit *d = &a->digits[i];
    const kiln_interval in = kiln_expr_interval(k->w->cx, d->e, &ranges);
    if (above % d->coef != 0 || in.lo < 0 || in.hi >= above / d->coef) return false;
    above = d->coef;
  }
  return above == 1;
}

static bool read_address(const kiln_contraction *k, address *out) {
  *out = (address){.is_cut = k->a->n_args == 1};
  if (out->is_cut) {
    const kiln_terms t = kiln_terms_of(k->w->cx, k->a->args[0]);
    for (int i = 0; i < t.n; i++)
      if (!add_digit(k, t.data[i].atom, t.data[i].coef, out)) return false;
    return t.constant == 0 && is_positional(k, out);
  }
  for (int i = 0; i < k->a->n_args; i++)
    if (!add_digit(k, k->a->args[i], 1, out)) return false;
  return true;
}

// Whether neighbours along the reduction are neighbours of the last digit, in whole chunks.
static bool ends_in_chunks(const kiln_contraction *k, const address *a) {
  const digit *last = &a->digits[a->n - 1];
  int64_t period = kiln_dim_extent(kiln_contraction_stepped(k));
  if (last->kind != DIGIT_SUM || period % KILN_ROW_CHUNK != 0) return false;
  const kiln_expr *e = last->e;
  if (e->kind == KILN_EXPR_MOD && kiln_expr_is_int(e->args[1], &period)) e = e->args[0];
  return e->kind == KILN_EXPR_VAR && period % KILN_ROW_CHUNK == 0;
}

// Others that read the operand, a residual's map, would find it in panels.
static bool is_read_once(const kiln_contraction *k) {
  const kiln_program *p = k->w->p;
  const kiln_mark mark = kiln_arena_mark(&k->w->cx->scratch);
  int reads = 0;
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_loads loads = kiln_stmt_loads(k->w->cx, &k->w->cx->scratch, p, p->stmts.data[i]);
    for (int j = 0; j < loads.n; j++) reads += loads.data[j]->u.tensor == k->a->u.tensor;
  }
  kiln_arena_rewind(&k->w->cx->scratch, mark);
  return reads == 1;
}

bool kiln_row_panels_pay(const kiln_contraction *k) {
  enum { FEWEST_PANELS = 8 }; // of the other operand that pass a copied row
  address a;
  if (k->dot || k->point_by_point || k->node->step || k->node->decoded || k->keeps_b ||
      k->c->n_reduce != 1 || k->col < 0 || k->row >= 0 || operand(k)->def >= 0 ||
      operand(k)->role == KILN_CONST || kiln_dtype_bytes(operand(k)->dtype) != 4)
    return false;
  const int64_t vectors = k->v.extent / k->w->lanes;
  if (vectors < FEWEST_PANELS * 2 || !is_read_once(k) || !read_address(k, &a)) return false;
  int n_rows = 0;
  for (int i = 0; i < a.n; i++) n_rows += a.digits[i].kind == DIGIT_ROW;
  return n_rows == 1 && ends_in_chunks(k, &a);
}

static kiln_status view_digits(const kiln_contraction *k, const address *a) {
  for (int i = 0; i + 1 < a->n && a->is_cut; i++)
    KILN_TRY(kiln_view(&k->w->s, operand(k)->name, i, a->digits[i].coef));
  return KILN_OK;
}

kiln_status kiln_row_panels_view(const kiln_contraction *k) {
  address a;
  if (!read_address(k, &a))
    return KILN_FAIL(k->w->cx->diag, KILN_BAD_INPUT, "lowering: contraction",
                     "the index of %s must count axes",
                     kiln_symbol_text(k->w->cx, operand(k)->name));
  return view_digits(k, &a);
}

kiln_status kiln_row_panels_stage(const kiln_contraction *k, kiln_symbol at) {
  kiln_lowering *w = k->w;
  kiln_stage_axis axes[MAX_DIGITS + 2];
  address a;
  int n = 0, row = 0;
  if (!read_address(k, &a)) return KILN_OK;
  const int64_t tile = k->dims[k->col].tile;
  const kiln_symbol name = operand(k)->name,
                    rows = kiln_symbol_printf(w->cx, "%s.rows", kiln_symbol_text(w->cx, name));
  KILN_TRY(view_digits(k, &a));
  for (int i = 0; i < a.n; i++)
    if (a.digits[i].kind == DIGIT_OTHER) axes[n++] = (kiln_stage_axis){.axis = i};
    else if (a.digits[i].kind == DIGIT_ROW) row = i;
  axes[n++] = (kiln_stage_axis){.axis = row, .block = tile, .outer = true};
  for (int i = 0; i + 1 < a.n; i++)
    if (a.digits[i].kind == DIGIT_SUM) axes[n++] = (kiln_stage_axis){.axis = i};
  axes[n++] = (kiln_stage_axis){.axis = a.n - 1, .block = KILN_ROW_CHUNK, .outer = true};
  axes[n++] = (kiln_stage_axis){.axis = row, .block = tile};
  axes[n++] = (kiln_stage_axis){.axis = a.n - 1, .block = KILN_ROW_CHUNK};
  KILN_TRY(kiln_stage(&w->s, name, at, KILN_SCOPE_LOCAL, n, axes, rows));
  KILN_TRY(kiln_vectorize(
      &w->s, kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, rows), n - 1)));
  return kiln_unroll(&w->s,
                     kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, rows), n - 2));
}

// Row panels: which operands can be packed, and their copies.
#include "template/cpu/row_panels.h"

#include "template/cpu/address.h"

typedef enum digit_kind { DIGIT_OTHER, DIGIT_ROW, DIGIT_SUM } digit_kind;

// The operand's digits, and the kind of dims that moves each.
typedef struct address {
  kiln_address is;
  digit_kind kinds[KILN_MAX_DIGITS];
} address;

static const kiln_tensor *operand(const kiln_contraction *k) {
  return k->w->p->tensors.data[k->a->u.tensor];
}

// gives: false where rows and sums move one digit, or rows move one that does not count them
static bool read_address(const kiln_contraction *k, address *out) {
  if (!kiln_address_read(k, k->a, &out->is)) return false;
  for (int i = 0; i < out->is.n; i++) {
    const kiln_expr *e = out->is.digits[i].e;
    const bool in_rows = kiln_expr_uses(e, k->dims[k->col].dim),
               in_sum = kiln_expr_uses(e, kiln_contraction_stepped(k)->name);
    if (in_rows && (in_sum || e->kind != KILN_EXPR_VAR)) return false;
    out->kinds[i] = in_rows ? DIGIT_ROW : in_sum ? DIGIT_SUM : DIGIT_OTHER;
  }
  return true;
}

// Whether the reduction is contiguous in the last digit, in whole chunks.
static bool ends_in_chunks(const kiln_contraction *k, const address *a) {
  const int last = a->is.n - 1;
  int64_t period = kiln_dim_extent(kiln_contraction_stepped(k));
  if (a->kinds[last] != DIGIT_SUM || period % KILN_ROW_CHUNK != 0) return false;
  const kiln_expr *e = a->is.digits[last].e;
  if (e->kind == KILN_EXPR_MOD && kiln_expr_is_int(e->args[1], &period)) e = e->args[0];
  return e->kind == KILN_EXPR_VAR && period % KILN_ROW_CHUNK == 0;
}

// Whether the operand has one reader: others, as a residual's map, would find it packed.
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
  for (int i = 0; i < a.is.n; i++) n_rows += a.kinds[i] == DIGIT_ROW;
  return n_rows == 1 && ends_in_chunks(k, &a);
}

kiln_status kiln_row_panels_view(const kiln_contraction *k) {
  address a;
  if (!read_address(k, &a))
    return KILN_FAIL(k->w->cx->diag, KILN_BAD_INPUT, "lowering: contraction",
                     "the index of %s must count axes",
                     kiln_symbol_text(k->w->cx, operand(k)->name));
  return kiln_address_view(k, k->a, &a.is);
}

kiln_status kiln_row_panels_stage(const kiln_contraction *k, kiln_symbol at) {
  kiln_lowering *w = k->w;
  kiln_stage_axis axes[KILN_MAX_DIGITS + 2];
  address a;
  int n = 0, row = 0;
  if (!read_address(k, &a)) return KILN_OK;
  const int64_t tile = k->dims[k->col].tile;
  const kiln_symbol name = operand(k)->name,
                    rows = kiln_symbol_printf(w->cx, "%s.rows", kiln_symbol_text(w->cx, name));
  KILN_TRY(kiln_address_view(k, k->a, &a.is));
  for (int i = 0; i < a.is.n; i++)
    if (a.kinds[i] == DIGIT_OTHER) axes[n++] = (kiln_stage_axis){.axis = i};
    else if (a.kinds[i] == DIGIT_ROW) row = i;
  axes[n++] = (kiln_stage_axis){.axis = row, .block = tile, .outer = true};
  for (int i = 0; i + 1 < a.is.n; i++)
    if (a.kinds[i] == DIGIT_SUM) axes[n++] = (kiln_stage_axis){.axis = i};
  axes[n++] = (kiln_stage_axis){.axis = a.is.n - 1, .block = KILN_ROW_CHUNK, .outer = true};
  axes[n++] = (kiln_stage_axis){.axis = row, .block = tile};
  axes[n++] = (kiln_stage_axis){.axis = a.is.n - 1, .block = KILN_ROW_CHUNK};
  KILN_TRY(kiln_stage(&w->s, name, at, KILN_SCOPE_LOCAL, n, axes, rows));
  KILN_TRY(kiln_vectorize(
      &w->s, kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, rows), n - 1)));
  return kiln_unroll(&w->s,
                     kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, rows), n - 2));
}

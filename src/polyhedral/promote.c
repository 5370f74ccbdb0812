// Memory promotion: finds boxes that a tile reuses, and estimates whether copying them pays.
#include "schedule/index.h"
#include "polyhedral/polyhedral.h"

enum {
  MAX_UNROLLED = 16, // most iterations to unroll
  TURN_PAYS = 4      // loads of an element: three gathers cost as much as the copy
};

// The reads of one buffer by the statements of a tile.
typedef struct reads {
  kiln_accesses all;
  double loads;     // executed in one tile
  int axis;         // axis along which all contiguous loops move, other than the last; -1: none
  bool is_fixed;    // all loops of the tile in the subscripts are short reductions
  kiln_vars fixed;  // these loops
  int64_t unrolled; // product of their extents
} reads;

typedef struct search {
  kiln_lowering *w;
  kiln_edit e;
  kiln_loop *tile;
} search;

int64_t kiln_poly_stride(kiln_ctx *cx, const kiln_buffer *b, const kiln_expr *const *index,
                         kiln_symbol v) {
  int64_t stride = 0;
  for (int a = 0; a < b->rank; a++) {
    if (!kiln_expr_uses(index[a], v)) continue;
    const kiln_terms t = kiln_terms_of(cx, index[a]);
    for (int i = 0; i < t.n; i++) {
      const kiln_expr *atom = t.data[i].atom;
      if (!kiln_expr_uses(atom, v)) continue;
      if (atom->kind != KILN_EXPR_VAR) return INT64_MAX;
      stride += t.data[i].coef * b->strides[a];
    }
  }
  return stride;
}

// The axis along which the statement's contiguous loop |v| moves with a stride; -1: none.
static int apart_along(search *g, const kiln_buffer *b, const kiln_access *a, kiln_symbol v) {
  const int64_t stride = kiln_poly_stride(g->w->cx, b, a->index, v);
  int axis = -1;
  if (stride == 0 || stride == 1) return -1;
  for (int k = 0; k < b->rank; k++)
    if (kiln_expr_uses(a->index[k], v)) axis = axis < 0 ? k : b->rank;
  return axis < b->rank - 1 ? axis : -1;
}

static bool uses(int n, const kiln_expr *const *index, kiln_symbol v) {
  for (int k = 0; k < n; k++)
    if (kiln_expr_uses(index[k], v)) return true;
  return false;
}

static void add_loop(search *g, const kiln_access *a, const kiln_loop *l, reads *r) {
  const kiln_loop *store = a->node;
  const int rank = g->e.l->buffers.data[store->buffer]->rank;
  if (!uses(a->n, a->index, l->var)) return;
  r->is_fixed &= !uses(rank, store->index, l->var) && kiln_poly_extent(l) <= MAX_UNROLLED &&
                 (l->how == KILN_SERIAL || l->how == KILN_UNROLLED);
  if (!r->is_fixed || kiln_vars_has(&r->fixed, l->var)) return;
  r->unrolled *= kiln_poly_extent(l);
  r->is_fixed = r->unrolled <= MAX_UNROLLED;
  KILN_VEC_PUSH(&g->w->cx->perm, &r->fixed, l->var);
}

static void add_read(search *g, const kiln_buffer *b, const kiln_access *a, reads *r) {
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(g->e.l, a->node, path);
  const kiln_buffer *out = g->e.l->buffers.data[a->node->buffer];
  double times = 1;
  int from = 0, axis = -1;
  while (from < depth && path[from] != g->tile) from++;
  for (int i = from + 1; i < depth; i++) {
    if (path[i]->kind != KILN_LOOP_FOR) continue;
    times *= (double)kiln_poly_extent(path[i]);
    add_loop(g, a, path[i], r);
    if (kiln_poly_stride(g->w->cx, out, a->node->index, path[i]->var) == 1)
      axis = apart_along(g, b, a, path[i]->var);
  }
  r->axis = r->loads == 0 || r->axis == axis ? axis : -1;
  r->loads += times;
}

// False if the tile writes the buffer, does not read it, or reads it with unknown bounds.
static bool reads_of(search *g, const kiln_buffer *b, reads *out) {
  *out = (reads){.axis = -1, .is_fixed = true, .unrolled = 1};
  out->all = kiln_accesses_of(g->w->cx, g->e.l, g->tile->body, true, b->id);
  for (int i = 0; i < out->all.n; i++) {
    const kiln_access *a = &out->all.data[i];
    if (a->write || a->opaque || a->node->kind != KILN_LOOP_STORE) return false;
    for (int k = 0; k < a->n; k++)
      if (kiln_expr_has_load(a->index[k])) return false;
    add_read(g, b, a, out);
  }
  out->is_fixed &= out->fixed.n > 0;
  return out->all.n > 0;
}

static void set_axes(const kiln_buffer *b, int last, kiln_promotion *p) {
  for (int k = 0; k < b->rank; k++)
    if (k != last) p->axes[p->n_axes++].axis = k;
  if (last >= 0) p->axes[p->n_axes++].axis = last;
}

static bool judge(search *g, const kiln_buffer *b, bool asked, kiln_scope scope,
                  kiln_promotion *out) {
  const kiln_vars inner = kiln_vars_under(g->w->cx, g->tile->body);
  reads r;
  if (b->rank == 0 || !reads_of(g, b, &r)) return false;
  kiln_box box;
  kiln_box_of(&g->e, b, &r.all, &inner, &box);
  *out = (kiln_promotion){
      .buffer = b->name, .tile = g->tile->var, .scope = scope, .elems = 1, .loads = r.loads};
  for (int k = 0; k < b->rank; k++) out->elems *= box.extent[k];
  out->bytes = out->elems * kiln_dtype_bytes(b->dtype);
  out->unrolled = r.fixed;
  out->is_turned = r.axis >= 0;
  set_axes(b, r.axis, out);
  const bool registers = asked && r.is_fixed && out->elems <= g->w->m->n_vector_regs / 2;
  if (registers != (scope == KILN_SCOPE_REGISTER)) return false;
  const double elems = (double)out->elems;
  return asked ? r.loads > elems : out->is_turned && r.loads >= TURN_PAYS * elems;
}

kiln_promotions kiln_poly_promotions(kiln_lowering *w, kiln_symbol tile, bool asked,
                                     kiln_scope scope) {
  kiln_promotions all = {0};
  search g = {.w = w, .e = kiln_edit_begin(&w->s, "promote", tile)};
  g.tile = kiln_loops_find(g.e.l, tile);
  for (int i = 0; g.tile && i < g.e.l->buffers.n; i++) {
    const kiln_buffer *b = g.e.l->buffers.data[i];
    kiln_promotion p;
    if (!b || !kiln_scope_is_argument(b->scope)) continue;
    if (judge(&g, b, asked, scope, &p)) KILN_VEC_PUSH(&w->cx->perm, &all, p);
  }
  return all;
}

kiln_status kiln_poly_promote(kiln_lowering *w, const kiln_promotion *p, kiln_symbol name) {
  const bool registers = p->scope == KILN_SCOPE_REGISTER;
  for (int i = 0; registers && i < p->unrolled.n; i++)
    KILN_TRY(kiln_unroll(&w->s, p->unrolled.data[i]));
  KILN_TRY(kiln_stage(&w->s, p->buffer, p->tile, p->scope, p->n_axes, p->axes, name));
  for (int k = 0; registers && k < p->n_axes; k++)
    KILN_TRY(
        kiln_unroll(&w->s, kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, name), k)));
  return KILN_OK;
}

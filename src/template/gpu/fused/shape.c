// Extents of a fused tile's axes, and the layouts of its tiles.
#include "template/gpu/fused/tile.h"

#include "support/integer.h"

enum { WARP = KILN_FUSED_WARP, UNIT = 4 }; // neighbouring columns of a thread

const kiln_dim *kiln_fused_columns(const kiln_fused *x, const kiln_stmt *s) {
  return &s->dims[x->f.n_batch + 1];
}

const kiln_dim *kiln_fused_terms(const kiln_stmt *s) { return &s->dims[s->n_space]; }

bool kiln_fused_has_columns(const kiln_fused_statement *t) {
  return t->nest == KILN_NEST_SUMS || t->nest == KILN_NEST_TILE || t->nest == KILN_NEST_RESULT;
}

bool kiln_fused_is_left_factor(const kiln_fused *x, int i) {
  for (int k = 0; k < x->f.n; k++)
    if (x->f.all[k].left == i) return true;
  return false;
}

kiln_fused_use kiln_fused_use_of(const kiln_fused *x, kiln_symbol axis) {
  kiln_fused_use u = {0};
  for (int i = 0; i < x->f.n; i++) {
    const kiln_fused_statement *t = &x->f.all[i];
    if (kiln_fused_has_columns(t) && kiln_fused_columns(x, t->s)->name == axis) {
      u.columns = true;
      u.stored |= t->nest == KILN_NEST_RESULT;
    }
    u.terms |= t->nest == KILN_NEST_SUMS && kiln_fused_terms(t->s)->name == axis;
    u.reduced |= t->nest == KILN_NEST_REDUCED && kiln_fused_terms(t->s)->name == axis;
  }
  return u;
}

bool kiln_fused_streams(const kiln_fused *x, kiln_symbol axis) {
  const kiln_fused_use u = kiln_fused_use_of(x, axis);
  return u.columns && u.terms && !u.reduced && !u.stored;
}

// Columns that the threads of a row take at a time.
static int64_t unit_of(const kiln_fused_shape *s) {
  return (s->by_mma ? 2 * KILN_MMA_N : UNIT * s->lanes_n) * s->warps[1];
}

int64_t kiln_fused_padded(const kiln_fused *x, const kiln_dim *dim) {
  const kiln_fused_use u = kiln_fused_use_of(x, dim->name);
  const int64_t unit = unit_of(&x->s), step = x->s.step;
  int64_t multiple = unit;
  if (kiln_fused_streams(x, dim->name)) multiple = x->s.chunk;
  else if (u.terms) multiple = u.columns && unit > step ? unit : step;
  return kiln_round_up(kiln_dim_extent(dim), multiple);
}

int64_t kiln_fused_width(const kiln_fused *x, const kiln_dim *dim) {
  return kiln_fused_streams(x, dim->name) ? x->s.chunk : kiln_fused_padded(x, dim);
}

bool kiln_fused_layout(const kiln_fused *x, int64_t width, kiln_layout *out) {
  const kiln_fused_shape *s = &x->s;
  const int64_t extents[] = {s->rows, width}, warp[] = {s->rows / s->warps[0], width / s->warps[1]};
  const kiln_simt_tile t = {.extents = {s->rows, width},
                            .warps = {s->warps[0], s->warps[1]},
                            .lanes = {WARP / s->lanes_n, s->lanes_n},
                            .unit = {1, UNIT}};
  if (width % unit_of(s)) return false;
  return s->by_mma
             ? kiln_layout_of_operand(x->w->cx, x->instr, KILN_OPERAND_SUMS, extents, warp, out)
             : kiln_layout_of_simt(&t, out);
}

kiln_product kiln_fused_product(const kiln_fused *x, const kiln_fused_statement *t) {
  return (kiln_product){.a = x->f.all[t->left].s,
                        .b = x->f.all[t->right].s,
                        .t = t->s,
                        .n_batch = x->f.n_batch,
                        .m = x->f.m,
                        .n = kiln_dim_extent(kiln_fused_columns(x, t->s)),
                        .k = kiln_dim_extent(kiln_fused_terms(t->s)),
                        .batch = x->f.batch};
}

// Winograd convolutions (transform/winograd.h): blocks of tiles whose transformed outputs stay in
// the L2, for some output channels; the transforms run in registers, vectorized over channels; in
// between are 16 or 36 matrix products.
#include "support/integer.h"
#include "template/lower.h"
#include "tile/panels.h"
#include "template/cpu/winograd_plan.h"

// The statements by their place in the kernel's program.
enum { SIZES, WINDOWS, FITS, ROWS, INPUTS, PRODUCTS, COLUMNS, DIRECT, OUTPUTS, N_STMTS };

typedef struct winograd {
  kiln_lowering *w;
  const kiln_stmt *stmts[N_STMTS];
  const kiln_tiling *t;
  int n_images; // 1: there is a dim of images; 0: there is one image
  int64_t panel;
  kiln_symbol h_block, w_block, k_block, w_tile, k_vector; // loops of y
} winograd;

static const char *tensor_name(const winograd *v, int stmt) {
  return kiln_symbol_text(v->w->cx, v->w->p->tensors.data[v->stmts[stmt]->out]->name);
}

// The loop over dim |d| of a statement, counted from the end where |d| is negative.
static kiln_symbol loop_of(const winograd *v, int stmt, const char *part, int d) {
  const kiln_stmt *s = v->stmts[stmt];
  return kiln_lowering_loop(v->w, tensor_name(v, stmt), part,
                            s->dims[d < 0 ? s->n_space + d : d].name);
}

static kiln_symbol root_loop(const winograd *v, int d) {
  const kiln_stmt *s = v->w->root;
  return kiln_lowering_loop(v->w, "y", "", s->dims[s->n_space + d].name);
}

static int64_t root_extent(const winograd *v, int d) {
  return kiln_lowering_extent(v->w->root, v->w->root->n_space + d);
}

// Unrolls all loops but the last, which is vectorized, in this order.
static kiln_status run_in_registers(winograd *v, int n, const kiln_symbol *loops) {
  KILN_TRY(kiln_reorder(&v->w->s, n, loops));
  for (int i = 0; i + 1 < n; i++) KILN_TRY(kiln_unroll(&v->w->s, loops[i]));
  return kiln_vectorize(&v->w->s, loops[n - 1]);
}

// --- the result ---

// Splits |loop| into .o and .i.
static kiln_status split(winograd *v, kiln_symbol loop, int64_t factor, kiln_tail tail,
                         kiln_symbol *out_outer, kiln_symbol *out_inner) {
  *out_outer = kiln_lowering_name(v->w, "o", loop);
  *out_inner = kiln_lowering_name(v->w, "i", loop);
  return kiln_split(&v->w->s, loop, factor, tail, *out_outer, *out_inner);
}

// The result's loops: blocks, then tiles in them, then the elements of a tile.
static kiln_status tile_result(winograd *v) {
  kiln_symbol path[9], inside[3], fused, k_tile;
  const int64_t lanes = v->w->lanes, m = v->t->tile[0];
  const int64_t blocks[] = {kiln_divide_up(kiln_divide_up(root_extent(v, -3), m), v->t->block[0]),
                            kiln_divide_up(kiln_divide_up(root_extent(v, -2), m), v->t->block[1]),
                            kiln_divide_up(root_extent(v, -1), v->t->block[2])};
  int n_fused;
  for (int k = 0; k < 2; k++) {
    kiln_symbol outer;
    KILN_TRY(split(v, root_loop(v, k - 3), m, KILN_TAIL_GUARD, &outer, &path[6 + k]));
    KILN_TRY(split(v, outer, v->t->block[k], KILN_TAIL_SHIFT, &path[k], &path[3 + k]));
  }
  KILN_TRY(split(v, root_loop(v, -1), v->t->block[2], KILN_TAIL_GUARD, &path[2], &k_tile));
  KILN_TRY(split(v, k_tile, lanes, KILN_TAIL_GUARD, &path[5], &path[8]));
  KILN_TRY(kiln_reorder(&v->w->s, 9, path));
  for (int k = 0; k < 3; k++) inside[k] = path[6 + k];
  KILN_TRY(run_in_registers(v, 3, inside));
  v->w_block = path[1];
  v->k_block = path[2];
  v->w_tile = path[4];
  v->k_vector = path[5];
  kiln_symbol outer[4];
  int64_t extents[4];
  int n = 0;
  if (v->n_images) {
    outer[n] = root_loop(v, -4);
    extents[n++] = root_extent(v, -4);
  }
  // blocks of channels are independent where all inputs are transformed before
  for (int k = 0; k < (v->t->variant ? 3 : 2); k++) {
    outer[n] = path[k];
    extents[n++] = blocks[k];
  }
  KILN_TRY(kiln_lowering_parallel(v->w, n, outer, extents, &fused, &n_fused));
  if (n_fused == n && n > 0) {
    if (v->t->variant) v->k_block = fused;
    else v->w_block = fused;
  }
  return KILN_OK;
}

// The first of the output transforms, for one tile and one vector.
static kiln_status place_columns(winograd *v) {
  const kiln_symbol loops[] = {loop_of(v, COLUMNS, "", 1), loop_of(v, COLUMNS, "", 0),
                               loop_of(v, COLUMNS, "", -1)};
  KILN_TRY(kiln_compute_at(&v->w->s, v->w->p->tensors.data[v->stmts[COLUMNS]->out]->name,
                           v->k_vector, KILN_SCOPE_REGISTER));
  return run_in_registers(v, 3, loops);
}

// --- the products ---

// The weights of the products, transformed, or of the convolution as it is; NULL if the kernel is
// of another form.
static const kiln_tensor *weights_of(const kiln_lowering *w, const kiln_stmt *s) {
  const kiln_expr *a = NULL, *b = NULL;
  if (!kiln_stmt_is_contraction(s, &a, &b)) return NULL;
  const kiln_tensor *t = w->p->tensors.data[a->u.tensor], *u = w->p->tensors.data[b->u.tensor];
  return t->role == KILN_CONST ? t : u->role == KILN_CONST ? u : NULL;
}

static kiln_symbol copy_loop(const winograd *v, int stmt, int axis) {
  return kiln_symbol_printf(v->w->cx, "%s.copy.%d", tensor_name(v, stmt), axis);
}

static kiln_status clear_sums(winograd *v, int stmt) {
  kiln_symbol loops[3];
  for (int d = 0; d < 3; d++) loops[d] = loop_of(v, stmt, "init.", d - 3);
  return run_in_registers(v, 3, loops);
}

// Prefetches weights from beyond the L2 while all tiles multiply the panel before, in loop
// |panels|.
static kiln_status accumulate(winograd *v, kiln_symbol panels) {
  const kiln_stmt *s = v->stmts[PRODUCTS];
  kiln_symbol loops[5], counting = loop_of(v, PRODUCTS, "", s->n_space), steps = 0;
  int n = 0;
  KILN_TRY(kiln_lowering_split_steps(v->w, kiln_lowering_extent(s, s->n_space),
                                     v->t->tile[1] * v->t->tile[2], v->panel / v->w->lanes,
                                     &counting, &steps));
  if (counting) loops[n++] = counting;
  if (steps) loops[n++] = steps;
  for (int d = -3; d < 0; d++) loops[n++] = loop_of(v, PRODUCTS, "", d);
  KILN_TRY(kiln_reorder(&v->w->s, n, loops));
  if (steps) KILN_TRY(kiln_unroll(&v->w->s, steps));
  KILN_TRY(run_in_registers(v, 3, loops + n - 3));
  return kiln_prefetch_in_turns(&v->w->s, weights_of(v->w, s)->name, panels, 1, loops[0]);
}

static kiln_status place_products(winograd *v) {
  kiln_lowering *w = v->w;
  const int n = v->stmts[PRODUCTS]->n_space;
  const kiln_symbol name = w->p->tensors.data[v->stmts[PRODUCTS]->out]->name,
                    sums = kiln_lowering_name(w, "sums", name);
  kiln_symbol path[8];
  KILN_TRY(kiln_cache_write(&w->s, name, sums, 0, NULL));
  KILN_TRY(kiln_compute_at(&w->s, name, v->k_block, KILN_SCOPE_LOCAL));
  const int64_t extents[] = {v->t->block[0], v->t->block[1]};
  path[0] = copy_loop(v, PRODUCTS, 0);
  path[1] = copy_loop(v, PRODUCTS, 1);
  KILN_TRY(split(v, copy_loop(v, PRODUCTS, n - 1), v->panel, KILN_TAIL_EXACT, &path[2], &path[7]));
  for (int k = 0; k < 2; k++)
    KILN_TRY(split(v, copy_loop(v, PRODUCTS, n - 3 + k), v->t->tile[1 + k],
                   v->t->tile[1 + k] <= extents[k] ? KILN_TAIL_SHIFT : KILN_TAIL_GUARD,
                   &path[3 + k], &path[5 + k]));
  KILN_TRY(kiln_reorder(&w->s, 8, path));
  KILN_TRY(run_in_registers(v, 3, path + 5));
  KILN_TRY(kiln_compute_at(&w->s, sums, path[4], KILN_SCOPE_REGISTER));
  KILN_TRY(clear_sums(v, PRODUCTS));
  return accumulate(v, v->t->block[2] > v->panel ? path[2] : path[1]);
}

// --- the transformed inputs ---

static kiln_status place_inputs(winograd *v) {
  kiln_lowering *w = v->w;
  const kiln_stmt *s = v->stmts[INPUTS];
  const int64_t channels = kiln_lowering_extent(s, s->n_space - 1);
  kiln_symbol path[7], fused;
  int64_t extents[3];
  int n = 0, n_fused;
  if (!v->t->variant)
    KILN_TRY(
        kiln_compute_at(&w->s, w->p->tensors.data[s->out]->name, v->w_block, KILN_SCOPE_LOCAL));
  if (v->n_images) {
    extents[n] = kiln_lowering_extent(s, 2);
    path[n++] = loop_of(v, INPUTS, "", 2);
  }
  for (int d = -3; d < -1; d++) {
    extents[n] = kiln_lowering_extent(s, s->n_space + d);
    path[n++] = loop_of(v, INPUTS, "", d);
  }
  const int outer = n;
  KILN_TRY(split(v, loop_of(v, INPUTS, "", -1), w->lanes,
                 channels < w->lanes ? KILN_TAIL_GUARD : KILN_TAIL_SHIFT, &path[n], &path[n + 3]));
  const kiln_symbol at = path[n++];
  path[n++] = loop_of(v, INPUTS, "", 0);
  path[n++] = loop_of(v, INPUTS, "", 1);
  KILN_TRY(kiln_reorder(&w->s, n + 1, path));
  KILN_TRY(run_in_registers(v, 3, path + n - 2));
  KILN_TRY(kiln_compute_at(&w->s, w->p->tensors.data[v->stmts[ROWS]->out]->name, at,
                           KILN_SCOPE_REGISTER));
  const kiln_symbol rows[] = {loop_of(v, ROWS, "", 1), loop_of(v, ROWS, "", 0),
                              loop_of(v, ROWS, "", -1)};
  KILN_TRY(run_in_registers(v, 3, rows));
  return v->t->variant ? kiln_lowering_parallel(w, outer, path, extents, &fused, &n_fused)
                       : KILN_OK;
}

// --- the guard ---

static kiln_symbol out_of(const winograd *v, int stmt) {
  return v->w->p->tensors.data[v->stmts[stmt]->out]->name;
}

// Decides which tiles fit before a block's first tile, or before all blocks where all inputs are
// transformed first.
static kiln_status place_guard(winograd *v) {
  kiln_lowering *w = v->w;
  kiln_symbol at = v->w_block;
  if (v->t->variant) {
    kiln_symbol loops[2];
    int64_t extents[2];
    int n = 0, n_fused;
    for (int d = v->n_images ? -3 : -2; d < -1; d++) {
      loops[n] = loop_of(v, FITS, "", d);
      extents[n++] = kiln_lowering_extent(v->stmts[FITS], v->stmts[FITS]->n_space + d);
    }
    KILN_TRY(kiln_lowering_parallel(w, n, loops, extents, &at, &n_fused));
    if (n_fused < n) at = loops[n - 1];
  } else {
    KILN_TRY(kiln_compute_at(&w->s, out_of(v, FITS), at, KILN_SCOPE_LOCAL));
  }
  KILN_TRY(kiln_compute_at(&w->s, out_of(v, WINDOWS), at, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_compute_at(&w->s, out_of(v, SIZES), at, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_lowering_vectorize_map(w, loop_of(v, WINDOWS, "", -1), KILN_F32));
  return kiln_lowering_vectorize_reduction(w, v->stmts[SIZES]);
}

// Packs the weights of the direct convolution: a vector of output channels, for all inputs of an
// element.
static kiln_status pack_weights(winograd *v) {
  kiln_lowering *w = v->w;
  const kiln_symbol weights = weights_of(w, v->stmts[DIRECT])->name;
  const kiln_stage_axis axes[] = {{.axis = 0, .block = w->lanes, .outer = true},
                                  {.axis = 2},
                                  {.axis = 3},
                                  {.axis = 1},
                                  {.axis = 0, .block = w->lanes}};
  return kiln_stage(&w->s, weights, 0, KILN_SCOPE_WORKSPACE, (int)KILN_LEN(axes), axes,
                    kiln_lowering_name(w, "panels", weights));
}

// The convolution itself, for one tile that does not fit and one vector of its channels: two rows
// at a time, whose sums are in registers.
static kiln_status place_direct(winograd *v) {
  kiln_lowering *w = v->w;
  const kiln_stmt *s = v->stmts[DIRECT];
  const kiln_symbol name = out_of(v, DIRECT), sums = kiln_lowering_name(w, "sums", name);
  const int n = s->n_space;
  kiln_symbol loops[6], copy[3], rows;
  KILN_TRY(kiln_cache_write(&w->s, name, sums, 0, NULL));
  KILN_TRY(kiln_compute_at(&w->s, name, kiln_lowering_name(w, "b", v->k_vector), KILN_SCOPE_LOCAL));
  KILN_TRY(split(v, copy_loop(v, DIRECT, n - 3), 2, KILN_TAIL_GUARD, &rows, &copy[0]));
  for (int d = 1; d < 3; d++) copy[d] = copy_loop(v, DIRECT, n - 3 + d);
  KILN_TRY(run_in_registers(v, 3, copy));
  KILN_TRY(kiln_compute_at(&w->s, sums, rows, KILN_SCOPE_REGISTER));
  KILN_TRY(clear_sums(v, DIRECT));
  for (int d = 0; d < 3; d++) {
    loops[d] = loop_of(v, DIRECT, "", n + (d + 1) % 3); // kh, kw, c
    loops[3 + d] = loop_of(v, DIRECT, "", d - 3);
  }
  KILN_TRY(kiln_reorder(&w->s, 6, loops));
  return run_in_registers(v, 3, loops + 3);
}

// --- the template ---

static bool describe(winograd *v, kiln_lowering *w, const kiln_tiling *t) {
  *v = (winograd){.w = w, .t = t};
  const int n = w->p->stmts.n;
  if (n != N_STMTS && n != N_STMTS + 1) return false;
  if (n > N_STMTS) v->stmts[OUTPUTS] = w->p->stmts.data[OUTPUTS];
  for (int i = 0; i < OUTPUTS; i++) v->stmts[i] = w->p->stmts.data[i];
  const kiln_tensor *u = weights_of(w, v->stmts[PRODUCTS]);
  if (!u || !weights_of(w, v->stmts[DIRECT]) || w->root->n_space < 3) return false;
  v->n_images = w->root->n_space - 3;
  for (int i = 0; i < OUTPUTS; i++) {
    const int own = i <= FITS ? 2 : i == DIRECT ? 3 : 5;
    if (v->stmts[i]->n_space != own + v->n_images) return false;
  }
  return kiln_expr_is_int(u->shape[u->rank - 1], &v->panel);
}

static kiln_status propose_winograd(kiln_lowering *w, kiln_tile_candidates *out) {
  winograd v;
  if (!describe(&v, w, NULL)) return KILN_OK;
  const kiln_stmt *s = v.stmts[INPUTS], *direct = v.stmts[DIRECT];
  const int64_t points = kiln_lowering_extent(s, 0);
  const int dims = w->root->n_space;
  const kiln_winograd_shape shape = {v.n_images ? kiln_lowering_extent(w->root, 0) : 1,
                                     kiln_lowering_extent(w->root, dims - 3),
                                     kiln_lowering_extent(w->root, dims - 2),
                                     kiln_lowering_extent(s, s->n_space - 1),
                                     kiln_lowering_extent(w->root, dims - 1),
                                     kiln_lowering_extent(direct, direct->n_space + 1),
                                     kiln_lowering_extent(direct, direct->n_space + 2)};
  kiln_winograd_plan plan;
  (void)kiln_winograd_plan_make(w->m, w->n_threads, &shape, 0,
                                kiln_panels_bit((int)points - 2, v.panel / w->lanes), &plan);
  if (!plan.form) return KILN_OK;
  kiln_tile_candidate c = {.cost = {.ns = plan.ns}};
  c.tiling = (kiln_tiling){.block = {plan.block_h, plan.block_w, plan.block_k},
                           .tile = {points - 2, plan.tile_h, plan.tile_w},
                           .variant = plan.whole_input};
  KILN_VEC_PUSH(w->proposed, out, c);
  return KILN_OK;
}

static kiln_status lower_winograd(kiln_lowering *w, const kiln_tiling *t) {
  winograd v;
  if (!describe(&v, w, t))
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, NULL,
                     "rule: winograd: must be the statements of a convolution and a map");
  if (v.stmts[OUTPUTS])
    KILN_TRY(kiln_inline(&w->s, w->p->tensors.data[v.stmts[OUTPUTS]->out]->name));
  KILN_TRY(tile_result(&v));
  KILN_TRY(place_guard(&v));
  KILN_TRY(kiln_unswitch(&w->s, v.w_tile));
  KILN_TRY(pack_weights(&v));
  KILN_TRY(place_direct(&v));
  KILN_TRY(place_columns(&v));
  KILN_TRY(place_products(&v));
  return place_inputs(&v);
}

const kiln_template kiln_template_winograd = {.name = "winograd",
                                              .kinds = 1u << KILN_GROUP_WINOGRAD,
                                              .propose = propose_winograd,
                                              .lower = lower_winograd};

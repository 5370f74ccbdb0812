// Fused tiles as scripts: blocks of rows, producers at the block, products by steps, and every nest
// on the threads that hold its elements.
#include "template/gpu/fused_tile.h"

#include "support/integer.h"

enum { WARP = KILN_FUSED_WARP, UNIT = 4, PAD = 4 };

int64_t kiln_fused_columns(const kiln_fused_shape *s, int64_t columns) {
  const int64_t unit = (s->by_mma ? 2 * KILN_MMA_N : UNIT * s->lanes_n) * s->warps[1];
  return kiln_round_up(columns, unit);
}

bool kiln_fused_layout(const kiln_fused *x, int64_t columns, kiln_layout *out) {
  const kiln_fused_shape *s = &x->s;
  const int64_t extents[] = {s->rows, kiln_fused_columns(s, columns)},
                warp[] = {s->rows / s->warps[0], extents[1] / s->warps[1]};
  const kiln_simt_tile t = {.extents = {extents[0], extents[1]},
                            .warps = {s->warps[0], s->warps[1]},
                            .lanes = {WARP / s->lanes_n, s->lanes_n},
                            .unit = {1, UNIT}};
  return s->by_mma ? kiln_layout_of_sums(x->w, false, extents, warp, out)
                   : kiln_layout_of_simt(&t, out);
}

kiln_product kiln_fused_product(const kiln_fused *x, const kiln_fused_statement *t) {
  const kiln_stmt *s = t->s;
  const int m = x->f.n_batch;
  return (kiln_product){.a = x->f.all[t->left].s,
                        .b = x->f.all[t->right].s,
                        .t = s,
                        .n_batch = m,
                        .m = kiln_dim_extent(&s->dims[m]),
                        .n = kiln_dim_extent(&s->dims[m + 1]),
                        .k = kiln_dim_extent(&s->dims[m + 2]),
                        .batch = x->f.batch};
}

// --- names ---

static kiln_symbol buffer_of(const kiln_fused *x, const kiln_fused_statement *t) {
  return kiln_product_tensor(x->w, t->s);
}

static kiln_symbol loop_of(kiln_fused *x, const kiln_stmt *s, const char *part, int d) {
  return kiln_lowering_loop(x->w, kiln_symbol_text(x->w->cx, kiln_product_tensor(x->w, s)), part,
                            s->dims[d].name);
}

static bool exists(const kiln_fused *x, kiln_symbol loop) {
  return kiln_loops_find(x->w->s.loops, loop) != NULL;
}

// The position of the rows among the dims of |s|; its columns or terms are behind.
static int rows_of(const kiln_fused *x, const kiln_stmt *s) {
  return kiln_stmt_space_dim(s, kiln_symbol_of(x->w->cx, "m"));
}

static int64_t threads_of(const kiln_fused *x) { return kiln_fused_warps(&x->s) * WARP; }

static bool has_columns(const kiln_fused_statement *t) {
  return t->nest == KILN_NEST_SUMS || t->nest == KILN_NEST_TILE || t->nest == KILN_NEST_RESULT;
}

// --- padding ---

static kiln_status pad_loop(kiln_fused *x, kiln_symbol loop, int64_t extent, int64_t padded) {
  return padded > extent && exists(x, loop) ? kiln_pad(&x->w->s, loop, padded) : KILN_OK;
}

// Pads dim |d| of |s| to what the threads take.
static kiln_status pad_columns(kiln_fused *x, const kiln_stmt *s, int d) {
  const int64_t extent = kiln_dim_extent(&s->dims[d]), padded = kiln_fused_columns(&x->s, extent);
  if (d < s->n_space) KILN_TRY(pad_loop(x, loop_of(x, s, "init.", d), extent, padded));
  return pad_loop(x, loop_of(x, s, "", d), extent, padded);
}

static kiln_status pad_terms(kiln_fused *x, const kiln_stmt *s, int d) {
  const int64_t extent = kiln_dim_extent(&s->dims[d]),
                padded = (extent + x->s.step - 1) / x->s.step * x->s.step;
  return pad_loop(x, loop_of(x, s, "", d), extent, padded);
}

// Columns to whole words of all threads; terms to whole steps.
static kiln_status pad(kiln_fused *x) {
  for (int i = 0; i < x->f.n; i++) {
    const kiln_fused_statement *t = &x->f.all[i];
    if (t->nest != KILN_NEST_SUMS) continue;
    const kiln_stmt *a = x->f.all[t->left].s, *b = x->f.all[t->right].s;
    if (x->f.all[t->left].nest == KILN_NEST_OPERAND) KILN_TRY(pad_terms(x, a, a->n_space - 1));
    KILN_TRY(pad_terms(x, b, b->n_space - 2));
    KILN_TRY(pad_columns(x, b, b->n_space - 1));
    KILN_TRY(pad_terms(x, t->s, t->s->n_space));
  }
  for (int i = 0; i < x->f.n; i++) {
    const kiln_fused_statement *t = &x->f.all[i];
    const int d = rows_of(x, t->s) + 1;
    if (has_columns(t) || t->nest == KILN_NEST_REDUCED) KILN_TRY(pad_columns(x, t->s, d));
  }
  return KILN_OK;
}

// --- nests ---

// Runs the nest of |loop| on the threads that hold its elements.
static kiln_status run(kiln_fused *x, kiln_symbol loop) {
  if (!exists(x, loop)) return KILN_OK;
  return kiln_layout_run(x->w, loop, WARP, kiln_fused_warps(&x->s));
}

// Lets each of the block's first threads take a row of the nest |loop|.
static kiln_status run_rows(kiln_fused *x, kiln_symbol loop) {
  if (!exists(x, loop)) return KILN_OK;
  return kiln_gpu_distribute_cyclic(x->w, 1, &loop, threads_of(x), WARP);
}

// --- reductions along rows ---

// The column digits of a layout, the highest first.
static int column_digits(const kiln_layout *l, const kiln_layout_digit **out) {
  int n = 0;
  for (int i = 0; i < l->n; i++) {
    const kiln_layout_digit *d = &l->digits[i];
    if (d->axis != 1) continue;
    int at = n++;
    for (; at > 0 && out[at - 1]->stride < d->stride; at--) out[at] = out[at - 1];
    out[at] = d;
  }
  return n;
}

// Cuts |loop|, over a row's columns, into what threads and a thread take: parts[0..*out_n), warps
// first, then lanes, and own[0..*out_own).
static kiln_status cut_columns(kiln_fused *x, const kiln_layout *l, kiln_symbol loop,
                               kiln_symbol *parts, int *out_n, kiln_symbol *own, int *out_own) {
  const kiln_layout_digit *digits[KILN_MAX_DIGITS];
  kiln_symbol loops[KILN_MAX_DIGITS];
  const int n = column_digits(l, digits);
  for (int i = 0; i + 1 < n; i++)
    KILN_TRY(kiln_gpu_cut(x->w, &loop, digits[i]->stride, "d", "r", &loops[i]));
  loops[n - 1] = loop;
  *out_n = *out_own = 0;
  for (int holder = KILN_HOLDER_WARP; holder <= KILN_HOLDER_REGISTER; holder++)
    for (int i = 0; i < n; i++) {
      if (digits[i]->holder != (kiln_holder)holder) continue;
      if (holder == KILN_HOLDER_REGISTER) own[(*out_own)++] = loops[i];
      else parts[(*out_n)++] = loops[i];
    }
  return KILN_OK;
}

static int64_t extent_of_columns(const kiln_stmt *s, int d) { return kiln_dim_extent(&s->dims[d]); }

// Cuts reduction |s| into the parts of the threads that share a row, NAME.part, which meet in
// shared memory, NAME.meet.
static kiln_status cut_reduction(kiln_fused *x, int i) {
  const kiln_stmt *s = x->f.all[i].s;
  kiln_symbol order[2 * KILN_MAX_DIGITS], own[KILN_MAX_DIGITS];
  int n = 0, n_own = 0;
  int64_t extent = 0;
  kiln_layout l;
  if (!kiln_fused_layout(x, extent_of_columns(s, s->n_space), &l)) return KILN_INTERNAL;
  KILN_TRY(cut_columns(x, &l, loop_of(x, s, "", s->n_space), order, &n, own, &n_own));
  const int n_parts = n;
  for (int d = 0; d < s->n_space; d++) order[n++] = loop_of(x, s, "", d);
  for (int k = 0; k < n_own; k++) order[n++] = own[k];
  KILN_TRY(kiln_reorder(&x->w->s, n, order));
  KILN_TRY(kiln_gpu_fuse(x->w, n_parts, order, &x->parts[i], &extent));
  return kiln_rfactor(&x->w->s, x->parts[i],
                      kiln_lowering_name(x->w, "part", kiln_product_tensor(x->w, s)));
}

// Loop |d| of the nest NAME.part.. that runs over partial results.
static kiln_symbol numbered(kiln_fused *x, kiln_symbol name, int d) {
  return kiln_symbol_printf(x->w->cx, "%s.%d", kiln_symbol_text(x->w->cx, name), d);
}

// Computes the parts of reduction |s| in the block, a copy for each thread of a row, and combines
// them.
static kiln_status run_reduction(kiln_fused *x, int i, kiln_symbol block) {
  kiln_lowering *w = x->w;
  const kiln_stmt *s = x->f.all[i].s;
  const kiln_symbol t = kiln_product_tensor(w, s), part = kiln_lowering_name(w, "part", t),
                    meet = kiln_lowering_name(w, "meet", t),
                    init = kiln_lowering_name(w, "init", part);
  const int lead = x->f.n_batch;
  kiln_stage_axis axes[KILN_MAX_RANK];
  kiln_layout l, reduced;
  if (!kiln_fused_layout(x, extent_of_columns(s, s->n_space), &l)) return KILN_INTERNAL;
  kiln_layout_reduced(&l, 1, &reduced);
  KILN_TRY(kiln_compute_at(&w->s, part, block, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_stage(&w->s, part, block, KILN_SCOPE_SHARED, kiln_axes_lead(axes, lead + 2), axes,
                      meet));
  KILN_TRY(kiln_storage_align(&w->s, meet, lead, 2, 1));
  KILN_TRY(kiln_layout_apply(w, part, &reduced));
  KILN_TRY(run(x, numbered(x, init, lead)));
  KILN_TRY(run(x, x->parts[i]));
  KILN_TRY(run(x, numbered(x, meet, lead)));
  KILN_TRY(run_rows(x, loop_of(x, s, "init.", lead)));
  return run_rows(x, numbered(x, part, lead));
}

// --- products ---

static kiln_status pack(kiln_fused *x, const kiln_fused_statement *operand) {
  return operand->nest == KILN_NEST_OPERAND && kiln_product_is_packed(x->w, operand->s)
             ? kiln_prepack(&x->w->s, buffer_of(x, operand))
             : KILN_OK;
}

// Copies an operand's part of a step to shared memory, some steps ahead of its use.
static kiln_status stage(kiln_fused *x, const kiln_stmt *operand, kiln_symbol step) {
  kiln_symbol buffer;
  KILN_TRY(kiln_product_stage(x->w, operand, false, 0, step, threads_of(x), WARP, &buffer));
  if (x->s.depth > 1) KILN_TRY(kiln_pipeline(&x->w->s, buffer, step, x->s.depth));
  return kiln_storage_align(&x->w->s, buffer, operand->n_space - 2 + (x->s.depth > 1), 2 * PAD,
                            PAD);
}

static kiln_status multiply_by_threads(kiln_fused *x, const kiln_fused_statement *t,
                                       const kiln_product_loops *l) {
  KILN_TRY(kiln_reorder(&x->w->s, 4, (const kiln_symbol[]){l->step, l->k, l->m, l->n}));
  KILN_TRY(stage(x, x->f.all[t->right].s, l->step));
  if (x->f.all[t->left].nest == KILN_NEST_OPERAND) KILN_TRY(stage(x, x->f.all[t->left].s, l->step));
  KILN_TRY(run(x, l->k));
  return kiln_unroll(&x->w->s, l->k);
}

// The same by matrix instructions of warps.
static kiln_status multiply_by_warps(kiln_fused *x, const kiln_fused_statement *t,
                                     const kiln_product_loops *l) {
  const int64_t columns = kiln_fused_columns(&x->s, kiln_dim_extent(&t->s->dims[x->f.n_batch + 1]));
  const kiln_mma_shape shape = {.m = x->s.rows,
                                .n = columns,
                                .k = x->s.step,
                                .warp_m = x->s.rows / x->s.warps[0],
                                .warp_n = columns / x->s.warps[1],
                                .slice_k = 1};
  kiln_mma m = {.w = x->w,
                .s = &shape,
                .p = kiln_fused_product(x, t),
                .l = *l,
                .depth = x->s.depth,
                .sums = buffer_of(x, t)};
  m.steps = kiln_divide_up(m.p.k, x->s.step);
  kiln_mma_find(&m);
  KILN_TRY(kiln_reorder(&x->w->s, 2, (const kiln_symbol[]){l->step, l->m}));
  return kiln_mma_multiply(&m);
}

static kiln_status run_product(kiln_fused *x, const kiln_fused_statement *t) {
  const int m = x->f.n_batch;
  kiln_product_loops l = {.m = loop_of(x, t->s, "", m),
                          .n = loop_of(x, t->s, "", m + 1),
                          .k = loop_of(x, t->s, "", m + 2)};
  KILN_TRY(kiln_gpu_cut(x->w, &l.k, x->s.step, "o", "i", &l.step));
  return x->s.by_mma ? multiply_by_warps(x, t, &l) : multiply_by_threads(x, t, &l);
}

// --- the block ---

// Cuts the result |s| into blocks of rows; all results share the loop *io_block over them.
static kiln_status cut_result(kiln_fused *x, const kiln_stmt *s, kiln_symbol *io_block) {
  kiln_lowering *w = x->w;
  const char *name = kiln_symbol_text(w->cx, kiln_product_tensor(w, s)),
             *block = kiln_arena_printf(&w->cx->scratch, "%s.block", name);
  kiln_symbol loops[KILN_MAX_RANK];
  for (int d = 0; d < s->n_space; d++) loops[d] = loop_of(x, s, "", d);
  kiln_product_loops l = {.y_m = kiln_lowering_name(w, "i", loops[x->f.n_batch]),
                          .y_n = kiln_lowering_name(w, "i", loops[x->f.n_batch + 1])};
  KILN_TRY(kiln_product_tile(w, block, x->f.n_batch, loops, x->s.rows,
                             kiln_gpu_extent(w, loops[x->f.n_batch + 1]), &l));
  if (!*io_block) *io_block = l.block;
  else KILN_TRY(kiln_merge(&w->s, *io_block, l.block, 0));
  return KILN_OK;
}

static bool is_left_factor(const kiln_fused *x, int i) {
  for (int k = 0; k < x->f.n; k++)
    if (x->f.all[k].left == i) return true;
  return false;
}

static kiln_scope scope_of(const kiln_fused *x, int i) {
  return has_columns(&x->f.all[i]) && !is_left_factor(x, i) ? KILN_SCOPE_LOCAL : KILN_SCOPE_SHARED;
}

// Computes all that results need in the block, the last first.
static kiln_status place(kiln_fused *x, kiln_symbol block) {
  for (int i = x->f.n - 1; i >= 0; i--) {
    const kiln_fused_statement *t = &x->f.all[i];
    if (t->nest == KILN_NEST_OPERAND || t->nest == KILN_NEST_RESULT) continue;
    KILN_TRY(kiln_compute_at(&x->w->s, buffer_of(x, t), block, scope_of(x, i)));
    if (t->nest == KILN_NEST_REDUCED) KILN_TRY(run_reduction(x, i, block));
  }
  return KILN_OK;
}

static kiln_status layout_tiles(kiln_fused *x) {
  for (int i = 0; i < x->f.n; i++) {
    const kiln_fused_statement *t = &x->f.all[i];
    kiln_layout l;
    if (t->nest == KILN_NEST_OPERAND || t->nest == KILN_NEST_RESULT ||
        scope_of(x, i) != KILN_SCOPE_LOCAL || (t->nest == KILN_NEST_SUMS && x->s.by_mma))
      continue; // kiln_mma_multiply lays sums out
    if (!kiln_fused_layout(x, kiln_dim_extent(&t->s->dims[x->f.n_batch + 1]), &l))
      return KILN_INTERNAL;
    KILN_TRY(kiln_layout_apply(x->w, buffer_of(x, t), &l));
  }
  return KILN_OK;
}

static kiln_status run_map(kiln_fused *x, int i) {
  const kiln_stmt *s = x->f.all[i].s;
  kiln_symbol rows = loop_of(x, s, "", x->f.n_batch);
  if (x->f.all[i].nest == KILN_NEST_RESULT) rows = kiln_lowering_name(x->w, "i", rows);
  return run(x, rows);
}

static kiln_status run_statement(kiln_fused *x, int i) {
  const kiln_fused_statement *t = &x->f.all[i];
  switch (t->nest) {
  case KILN_NEST_SUMS:
    KILN_TRY(run_product(x, t));
    return run(x, loop_of(x, t->s, "init.", x->f.n_batch));
  case KILN_NEST_BY_ROW: return run_rows(x, loop_of(x, t->s, "", x->f.n_batch));
  case KILN_NEST_TILE:
  case KILN_NEST_RESULT: return run_map(x, i);
  case KILN_NEST_OPERAND:
  case KILN_NEST_REDUCED: break;
  }
  return KILN_OK;
}

kiln_status kiln_fused_lower(kiln_fused *x) {
  kiln_symbol block = 0;
  KILN_TRY(pad(x));
  for (int i = 0; i < x->f.n; i++) KILN_TRY(pack(x, &x->f.all[i]));
  for (int i = 0; i < x->f.n; i++)
    if (x->f.all[i].nest == KILN_NEST_REDUCED) KILN_TRY(cut_reduction(x, i));
  for (int i = 0; i < x->f.n; i++)
    if (x->f.all[i].nest == KILN_NEST_RESULT) KILN_TRY(cut_result(x, x->f.all[i].s, &block));
  KILN_TRY(place(x, block));
  KILN_TRY(layout_tiles(x));
  for (int i = 0; i < x->f.n; i++) KILN_TRY(run_statement(x, i));
  return kiln_bind(&x->w->s, block, KILN_BLOCK_X);
}

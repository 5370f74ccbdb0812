// Fused tiles as scripts: blocks of rows, producers at the block, products by steps, and every nest
// on the threads that hold its elements.
#include "template/gpu/fused/tile.h"

#include "support/integer.h"

enum { WARP = KILN_FUSED_WARP, PAD = 4, MAX_UNROLLED = 16 };

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

static int64_t threads_of(const kiln_fused *x) { return kiln_fused_warps(&x->s) * WARP; }

// --- padding ---

static kiln_status pad_loop(kiln_fused *x, kiln_symbol loop, int64_t extent, int64_t padded) {
  return padded > extent && exists(x, loop) ? kiln_pad(&x->w->s, loop, padded) : KILN_OK;
}

// Pads all dims but rows and batch to what the threads take.
static kiln_status pad(kiln_fused *x, const kiln_stmt *s) {
  const int rows = kiln_stmt_space_dim(s, kiln_symbol_of(x->w->cx, "m")), n = s->n_space;
  for (int d = rows < 0 ? n - 2 : rows + 1; d < n + s->n_reduce; d++) {
    const int64_t extent = kiln_dim_extent(&s->dims[d]), padded = kiln_fused_padded(x, &s->dims[d]);
    if (d < n) KILN_TRY(pad_loop(x, loop_of(x, s, "init.", d), extent, padded));
    KILN_TRY(pad_loop(x, loop_of(x, s, "", d), extent, padded));
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

// Cuts reduction |s| into the parts of the threads that share a row, NAME.part, which meet in
// shared memory, NAME.meet.
static kiln_status cut_reduction(kiln_fused *x, int i) {
  const kiln_stmt *s = x->f.all[i].s;
  kiln_symbol order[2 * KILN_MAX_DIGITS], own[KILN_MAX_DIGITS];
  int n = 0, n_own = 0;
  int64_t extent = 0;
  kiln_layout l;
  if (!kiln_fused_layout(x, kiln_fused_width(x, kiln_fused_terms(s)), &l)) return KILN_INTERNAL;
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
  if (!kiln_fused_layout(x, kiln_fused_width(x, kiln_fused_terms(s)), &l)) return KILN_INTERNAL;
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
  const bool is_long = kiln_gpu_extent(x->w, l->k) > MAX_UNROLLED;
  kiln_symbol k = l->k, first = k;
  if (is_long) KILN_TRY(kiln_gpu_cut(x->w, &k, MAX_UNROLLED, "o", "i", &first));
  KILN_TRY(kiln_reorder(&x->w->s, is_long ? 4 : 3,
                        is_long ? (const kiln_symbol[]){first, k, l->m, l->n}
                                : (const kiln_symbol[]){k, l->m, l->n}));
  KILN_TRY(stage(x, x->f.all[t->right].s, l->step));
  if (x->f.all[t->left].nest == KILN_NEST_OPERAND) KILN_TRY(stage(x, x->f.all[t->left].s, l->step));
  KILN_TRY(run(x, first));
  return kiln_unroll(&x->w->s, k);
}

// The same by matrix instructions of warps.
static kiln_status multiply_by_warps(kiln_fused *x, const kiln_fused_statement *t,
                                     const kiln_product_loops *l) {
  const kiln_fused_statement *left = &x->f.all[t->left];
  const int64_t columns = kiln_fused_width(x, kiln_fused_columns(x, t->s));
  const kiln_mma_shape shape = {.m = x->s.rows,
                                .n = columns,
                                .k = kiln_gpu_extent(x->w, l->k),
                                .warp_m = x->s.rows / x->s.warps[0],
                                .warp_n = columns / x->s.warps[1],
                                .slice_k = 1};
  kiln_mma m = {.w = x->w,
                .s = &shape,
                .p = kiln_fused_product(x, t),
                .l = *l,
                .steps = kiln_gpu_extent(x->w, l->step),
                .depth = x->s.depth,
                .left = left->nest == KILN_NEST_OPERAND ? 0 : buffer_of(x, left),
                .sums = buffer_of(x, t)};
  kiln_mma_find(&m);
  return kiln_mma_multiply(&m);
}

static kiln_status run_product(kiln_fused *x, int i) {
  const kiln_fused_statement *t = &x->f.all[i];
  const int m = x->f.n_batch;
  kiln_product_loops l = {.m = loop_of(x, t->s, "", m),
                          .n = loop_of(x, t->s, "", m + 1),
                          .k = loop_of(x, t->s, "", m + 2),
                          .step = x->chunks[i]};
  if (x->chunks[i]) l.k = kiln_lowering_name(x->w, "e", l.k);
  else {
    KILN_TRY(kiln_gpu_cut(x->w, &l.k, x->s.step, "o", "i", &l.step));
    KILN_TRY(kiln_reorder(&x->w->s, 2, (const kiln_symbol[]){l.step, l.m}));
  }
  return x->s.by_mma ? multiply_by_warps(x, t, &l) : multiply_by_threads(x, t, &l);
}

// --- the block ---

// Whether results are stored in whole words by way of shared memory: a lane has pairs of halves.
static bool by_words(const kiln_fused *x, const kiln_stmt *s) {
  enum { WORD = 16, FLOAT = 4 };
  const kiln_dim *columns = kiln_fused_columns(x, s);
  const int64_t bytes = kiln_dtype_bytes(x->w->p->tensors.data[s->out]->dtype),
                extent = kiln_dim_extent(columns);
  return x->s.by_mma && bytes < FLOAT && extent * bytes % WORD == 0 &&
         extent == kiln_fused_padded(x, columns);
}

// Cuts the copy of |s|'s elements to its result into blocks of rows.
static kiln_status cut_words(kiln_fused *x, const kiln_stmt *s, kiln_symbol *out_block) {
  const kiln_product p = {.n_batch = x->f.n_batch};
  const int64_t columns = kiln_dim_extent(kiln_fused_columns(x, s));
  return kiln_product_result(x->w, &p, s, x->s.rows, columns, threads_of(x), WARP, out_block);
}

// Cuts the nest of |s| itself, by threads that store what they have.
static kiln_status cut_elements(kiln_fused *x, const kiln_stmt *s, kiln_symbol *out_block) {
  kiln_lowering *w = x->w;
  const char *name = kiln_symbol_text(w->cx, kiln_product_tensor(w, s)),
             *block = kiln_arena_printf(&w->cx->scratch, "%s.block", name);
  kiln_symbol loops[KILN_MAX_RANK];
  KILN_TRY(pad(x, s));
  for (int d = 0; d < s->n_space; d++) loops[d] = loop_of(x, s, "", d);
  kiln_product_loops l = {.y_m = kiln_lowering_name(w, "i", loops[x->f.n_batch]),
                          .y_n = kiln_lowering_name(w, "i", loops[x->f.n_batch + 1])};
  KILN_TRY(kiln_product_tile(w, block, x->f.n_batch, loops, x->s.rows,
                             kiln_gpu_extent(w, loops[x->f.n_batch + 1]), &l));
  *out_block = l.block;
  return KILN_OK;
}

// All results share the loop *io_block over the blocks.
static kiln_status cut_result(kiln_fused *x, const kiln_stmt *s, kiln_symbol *io_block) {
  kiln_symbol block = 0;
  KILN_TRY(by_words(x, s) ? cut_words(x, s, &block) : cut_elements(x, s, &block));
  if (*io_block) return kiln_merge(&x->w->s, *io_block, block, 0);
  *io_block = block;
  return KILN_OK;
}

static kiln_scope scope_of(const kiln_fused *x, int i) {
  return kiln_fused_has_columns(&x->f.all[i]) && !kiln_fused_is_left_factor(x, i)
             ? KILN_SCOPE_LOCAL
             : KILN_SCOPE_SHARED;
}

// The loop at which statement |t| is computed: over the chunks of the product that reduces its
// columns, or the block.
static kiln_symbol home_of(const kiln_fused *x, const kiln_fused_statement *t, kiln_symbol block) {
  for (int i = 0; kiln_fused_has_columns(t) && i < x->f.n; i++)
    if (x->chunks[i] && kiln_fused_terms(x->f.all[i].s)->name == kiln_fused_columns(x, t->s)->name)
      return x->chunks[i];
  return block;
}

// Takes the terms of product |i| in chunks, if what it multiplies is computed by chunk.
static kiln_status cut_chunks(kiln_fused *x, int i) {
  const kiln_stmt *s = x->f.all[i].s;
  kiln_symbol inner = loop_of(x, s, "", s->n_space);
  if (!kiln_fused_streams(x, kiln_fused_terms(s)->name)) return KILN_OK;
  KILN_TRY(kiln_gpu_cut(x->w, &inner, x->s.chunk, "c", "e", &x->chunks[i]));
  return kiln_reorder(&x->w->s, 2,
                      (const kiln_symbol[]){x->chunks[i], loop_of(x, s, "", x->f.n_batch)});
}

// Computes all that results need in the block, the last first.
static kiln_status place(kiln_fused *x, kiln_symbol block) {
  for (int i = x->f.n - 1; i >= 0; i--) {
    const kiln_fused_statement *t = &x->f.all[i];
    if (t->nest == KILN_NEST_OPERAND || t->nest == KILN_NEST_RESULT) continue;
    KILN_TRY(kiln_compute_at(&x->w->s, buffer_of(x, t), home_of(x, t, block), scope_of(x, i)));
    if (t->nest == KILN_NEST_REDUCED) KILN_TRY(run_reduction(x, i, block));
    if (t->nest == KILN_NEST_SUMS) KILN_TRY(cut_chunks(x, i));
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
    if (!kiln_fused_layout(x, kiln_fused_width(x, kiln_fused_columns(x, t->s)), &l))
      return KILN_INTERNAL;
    KILN_TRY(kiln_layout_apply(x->w, buffer_of(x, t), &l));
  }
  return KILN_OK;
}

// Whether statement |i| reads or writes elements that lie in registers.
static bool has_fragment(const kiln_fused *x, int i) {
  for (int k = 0; k < x->f.n; k++) {
    const kiln_fused_statement *t = &x->f.all[k];
    if (t->nest == KILN_NEST_OPERAND || t->nest == KILN_NEST_RESULT ||
        scope_of(x, k) != KILN_SCOPE_LOCAL)
      continue;
    if (k == i || kiln_expr_loads(x->w->cx, x->f.all[i].s->body, t->s->out)) return true;
  }
  return false;
}

static kiln_status run_map(kiln_fused *x, int i) {
  const kiln_fused_statement *t = &x->f.all[i];
  kiln_symbol rows = loop_of(x, t->s, "", x->f.n_batch);
  if (t->nest == KILN_NEST_RESULT && !by_words(x, t->s)) rows = kiln_lowering_name(x->w, "i", rows);
  if (has_fragment(x, i)) return run(x, rows);
  return kiln_distribute(&x->w->s, rows, buffer_of(x, t), WARP, kiln_fused_warps(&x->s));
}

static kiln_status run_statement(kiln_fused *x, int i) {
  const kiln_fused_statement *t = &x->f.all[i];
  switch (t->nest) {
  case KILN_NEST_SUMS:
    KILN_TRY(run_product(x, i));
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
  for (int i = 0; i < x->f.n; i++)
    if (x->f.all[i].nest != KILN_NEST_RESULT) KILN_TRY(pad(x, x->f.all[i].s));
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

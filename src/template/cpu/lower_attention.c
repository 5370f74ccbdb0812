// Flash attention on CPUs, in one kernel (template/form/attention.h). A task computes a block of
// rows
#include "support/integer.h"
#include "price/registers.h"
#include "template/form/attention.h"
#include "template/lower.h"

enum { MAX_BLOCK = 128 };

// Cycles, as in kiln_tile_registers: of a vector of weights (maximum, exponential, sum); of
// rescaling a vector of the result; of initializing, dividing and storing one; of transposing one
// of a query.
static const double weight_cycles = 13, rescale_cycles = 1, finish_cycles = 4, turn_cycles = 0.5;

typedef struct stream {
  kiln_lowering *w;
  kiln_attention_form f;
  int64_t block, chunk;  // rows of a task, keys of a chunk
  bool turned;           // the result has the rows in the lanes
  const kiln_stmt *tile; // writes a chunk of scores: Z, or X, copied from registers
  kiln_symbol at, over;  // loops of a task, and over the chunks
} stream;

static kiln_symbol name_of(const stream *k, const kiln_stmt *s) {
  return k->w->p->tensors.data[s->out]->name;
}

static kiln_symbol loop_of(const stream *k, const kiln_stmt *s, const char *part, kiln_symbol dim) {
  return kiln_lowering_loop(k->w, kiln_symbol_text(k->w->cx, name_of(k, s)), part, dim);
}

static kiln_symbol named(const stream *k, const char *format, kiln_symbol name, int number)
    __attribute__((format(printf, 2, 0)));
static kiln_symbol named(const stream *k, const char *format, kiln_symbol name, int number) {
  return kiln_symbol_printf(k->w->cx, format, kiln_symbol_text(k->w->cx, name), number);
}

static kiln_symbol reduction_of(const kiln_stmt *s) { return s->dims[s->n_space].name; }

// Puts the space dims of |s| in order, |outer| and |inner| last; as loops with |part|, or as axes.
static int order_dims(const stream *k, const kiln_stmt *s, const char *part, kiln_symbol outer,
                      kiln_symbol inner, kiln_symbol *loops, kiln_stage_axis *axes) {
  int n = 0;
  for (int pass = 0; pass < 3; pass++)
    for (int d = 0; d < s->n_space; d++) {
      const kiln_symbol v = s->dims[d].name;
      if ((v == inner ? 2 : v == outer ? 1 : 0) != pass) continue;
      if (loops) loops[n] = loop_of(k, s, part, v);
      if (axes) axes[n] = (kiln_stage_axis){.axis = d, .outer = true};
      n++;
    }
  return n;
}

// Stores the result of |s| with |inner| innermost, and |outer| around it.
static kiln_status store_inside(stream *k, const kiln_stmt *s, kiln_symbol outer,
                                kiln_symbol inner) {
  kiln_stage_axis axes[KILN_MAX_RANK];
  const int n = order_dims(k, s, "", outer, inner, NULL, axes);
  bool same = true;
  for (int i = 0; i < n; i++) same &= axes[i].axis == i;
  return same ? KILN_OK : kiln_transform_layout(&k->w->s, name_of(k, s), n, axes);
}

// --- the blocks ---

static kiln_symbol root_dim(const stream *k, kiln_symbol mix_dim) {
  const kiln_stmt *y = k->w->root;
  const kiln_loads loads = kiln_loads_of(k->w->cx, &k->w->cx->scratch, y->body);
  for (int i = 0; i < loads.n; i++)
    for (int d = 0; d < y->n_space && loads.data[i]->u.tensor == k->f.mix->out; d++) {
      const kiln_expr *x = loads.data[i]->args[kiln_stmt_dim(k->f.mix, mix_dim)];
      if (x->kind == KILN_EXPR_VAR && x->u.sym == y->dims[d].name) return y->dims[d].name;
    }
  return 0;
}

// Whether the result is stored with the rows innermost.
static bool stores_rows(const stream *k) {
  const kiln_stmt *y = k->w->root;
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(k->w->p->tensors.data[y->out], strides);
  return strides[kiln_stmt_space_dim(y, root_dim(k, k->f.mix_row))] == 1;
}

static kiln_status split_blocks(stream *k) {
  kiln_lowering *w = k->w;
  const kiln_stmt *y = w->root;
  const kiln_symbol row = loop_of(k, y, "", root_dim(k, k->f.mix_row)),
                    value = loop_of(k, y, "", root_dim(k, k->f.mix_value)),
                    o = kiln_lowering_name(w, "o", row), i = kiln_lowering_name(w, "i", row);
  kiln_symbol path[KILN_MAX_RANK + 1], first;
  int64_t extents[KILN_MAX_RANK + 1];
  int n = 0, fused;
  KILN_TRY(kiln_split(&w->s, row, k->block, KILN_TAIL_SHIFT, o, i));
  for (int d = 0; d < y->n_space; d++) {
    const kiln_symbol loop = loop_of(k, y, "", y->dims[d].name);
    if (loop == row || loop == value) continue;
    extents[n] = kiln_lowering_extent(y, d);
    path[n++] = loop;
  }
  extents[n] = kiln_divide_up(k->f.n_rows, k->block);
  path[n++] = o;
  const bool along_rows = stores_rows(k);
  path[n] = along_rows ? value : i;
  path[n + 1] = along_rows ? i : value;
  KILN_TRY(kiln_reorder(&w->s, n + 2, path));
  KILN_TRY(kiln_lowering_parallel(w, n, path, extents, &first, &fused));
  k->at = n > fused ? path[n - 1] : first;
  return kiln_lowering_vectorize_map(w, along_rows ? i : value, KILN_F32);
}

// --- the chunks ---

// Splits the keys of a reduction into chunks, which become the outermost loop.
static kiln_status split_keys(stream *k, const kiln_stmt *s, kiln_symbol row, kiln_symbol value,
                              kiln_symbol *out) {
  kiln_lowering *w = k->w;
  const kiln_symbol loop = loop_of(k, s, "", reduction_of(s)), o = kiln_lowering_name(w, "o", loop),
                    i = kiln_lowering_name(w, "i", loop);
  kiln_symbol path[KILN_MAX_RANK + 3], space[KILN_MAX_RANK];
  int n = 0;
  KILN_TRY(kiln_split(&w->s, loop, k->chunk, KILN_TAIL_GUARD, o, i));
  path[n++] = o;
  const int n_space = order_dims(k, s, "", row, value ? value : row, space, NULL);
  const int n_outer = n_space - (value ? 2 : 1);
  for (int d = 0; d < n_outer; d++) path[n++] = space[d];
  path[n++] = i;
  for (int d = n_outer; d < n_space; d++) path[n++] = space[d];
  *out = o;
  return kiln_reorder(&w->s, n, path);
}

static kiln_status make_stream(stream *k) {
  kiln_lowering *w = k->w;
  const kiln_attention_form *f = &k->f;
  kiln_symbol loops[3];
  KILN_TRY(kiln_compute_at(&w->s, name_of(k, f->mix), k->at, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_compute_at(&w->s, name_of(k, f->sum), k->at, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_compute_at(&w->s, name_of(k, f->top), k->at, KILN_SCOPE_LOCAL));
  KILN_TRY(split_keys(k, f->top, f->top_row, 0, &loops[0]));
  KILN_TRY(split_keys(k, f->sum, f->sum_row, 0, &loops[1]));
  KILN_TRY(split_keys(k, f->mix, k->turned ? f->mix_value : f->mix_row,
                      k->turned ? f->mix_row : f->mix_value, &loops[2]));
  k->over = loops[0];
  return kiln_online_softmax(&w->s, 3, loops, kiln_symbol_of(w->cx, "w"), true, NULL);
}

// --- the scores of a chunk ---

// The loop over dim |d| of the statement that writes the chunk.
static kiln_symbol tile_loop(const stream *k, int d) {
  return k->f.mapped ? loop_of(k, k->tile, "", k->tile->dims[d].name)
                     : named(k, "%s.copy.%d", name_of(k, k->tile), d);
}

static kiln_register_tile score_tile(const stream *k) {
  const kiln_tile_extents e = {.v = k->block, .col = k->chunk, .row = 1, .depth = k->f.depth};
  return kiln_tile_registers_even(k->w->m, &e);
}

static kiln_register_tile mix_tile(const stream *k) {
  const int64_t rows = k->turned ? k->f.n_values : k->block,
                vecs = k->turned ? k->block : k->f.n_values;
  const kiln_tile_extents e = {.v = vecs, .col = rows, .row = 1, .depth = k->chunk};
  kiln_register_tile tile = kiln_tile_registers_even(k->w->m, &e);
  while (rows % tile.cols) tile.cols--;
  return kiln_tile_given(k->w->m, &e, &tile);
}

static kiln_status clear_tile(stream *k) {
  const kiln_stmt *x = k->f.scores;
  kiln_symbol path[KILN_MAX_RANK];
  const int n = order_dims(k, x, "init.", k->f.score_key, k->f.score_row, path, NULL);
  KILN_TRY(kiln_reorder(&k->w->s, n, path));
  KILN_TRY(kiln_unroll(&k->w->s, path[n - 2]));
  return kiln_vectorize(&k->w->s, path[n - 1]);
}

// Outer products of a tile: the reduction outside, keys unrolled, rows in a vector.
static kiln_status unroll_tile(stream *k) {
  const kiln_stmt *x = k->f.scores;
  const kiln_register_tile tile = score_tile(k);
  kiln_symbol path[KILN_MAX_RANK + 2], counting = loop_of(k, x, "", reduction_of(x)), steps = 0;
  int n = order_dims(k, x, "", k->f.score_key, k->f.score_row, path, NULL) - 2;
  const kiln_symbol key = path[n], row = path[n + 1];
  KILN_TRY(kiln_lowering_split_steps(k->w, k->f.depth, tile.cols, tile.vectors, &counting, &steps));
  if (counting) path[n++] = counting;
  if (steps) path[n++] = steps;
  path[n++] = key;
  path[n++] = row;
  KILN_TRY(kiln_reorder(&k->w->s, n, path));
  if (steps) KILN_TRY(kiln_unroll(&k->w->s, steps));
  KILN_TRY(kiln_unroll(&k->w->s, key));
  return kiln_vectorize(&k->w->s, row);
}

// Keys in rows of a register tile, rows of the block in its vectors.
static kiln_status tile_scores(stream *k, kiln_symbol sums) {
  kiln_lowering *w = k->w;
  const kiln_attention_form *f = &k->f;
  const kiln_stmt *z = k->tile;
  const kiln_register_tile tile = score_tile(k);
  kiln_symbol key = 0, row = 0, path[KILN_MAX_RANK + 2];
  int n = 0;
  for (int d = 0; d < z->n_space; d++) {
    const kiln_symbol v = z->dims[d].name, loop = tile_loop(k, d);
    if (v == f->tile_key) key = loop;
    else if (v == f->tile_row) row = loop;
    else path[n++] = loop;
  }
  const kiln_symbol inner[] = {kiln_lowering_name(w, "i", key), kiln_lowering_name(w, "i", row)};
  path[n++] = kiln_lowering_name(w, "o", key);
  path[n++] = kiln_lowering_name(w, "o", row);
  path[n++] = inner[0];
  path[n++] = inner[1];
  KILN_TRY(kiln_split(&w->s, key, tile.cols, KILN_TAIL_SHIFT, path[n - 4], inner[0]));
  KILN_TRY(kiln_split(&w->s, row, tile.vectors * w->lanes, KILN_TAIL_EXACT, path[n - 3], inner[1]));
  KILN_TRY(kiln_reorder(&w->s, n, path));
  KILN_TRY(kiln_compute_at(&w->s, sums, path[n - 3], KILN_SCOPE_REGISTER));
  KILN_TRY(kiln_unroll(&w->s, inner[0]));
  return kiln_vectorize(&w->s, inner[1]);
}

static kiln_status schedule_scores(stream *k) {
  kiln_lowering *w = k->w;
  const kiln_attention_form *f = &k->f;
  kiln_symbol sums = name_of(k, f->scores);
  if (!f->mapped) {
    sums = kiln_symbol_printf(w->cx, "%s.sums", kiln_symbol_text(w->cx, sums));
    KILN_TRY(kiln_cache_write(&w->s, name_of(k, f->scores), sums, 0, NULL));
  }
  KILN_TRY(kiln_compute_at(&w->s, name_of(k, k->tile), k->over, KILN_SCOPE_LOCAL));
  KILN_TRY(store_inside(k, k->tile, f->tile_key, f->tile_row));
  KILN_TRY(tile_scores(k, sums));
  kiln_stage_axis axes[KILN_MAX_RANK];
  const int n = order_dims(k, f->scores, "", f->score_key, f->score_row, NULL, axes);
  KILN_TRY(kiln_transform_layout(&w->s, sums, n, axes));
  KILN_TRY(clear_tile(k));
  return unroll_tile(k);
}

// The block's queries, rows innermost.
static kiln_status stage_queries(stream *k) {
  kiln_lowering *w = k->w;
  const kiln_expr *q = k->f.queries;
  kiln_stage_axis axes[KILN_MAX_RANK];
  int n = 0, row = 0;
  for (int i = 0; i < q->n_args; i++)
    if (kiln_expr_uses(q->args[i], k->f.score_row)) row = i;
  for (int i = 0; i < q->n_args; i++)
    if (i != row) axes[n++] = (kiln_stage_axis){.axis = i, .outer = true};
  axes[n++] = (kiln_stage_axis){.axis = row, .outer = true};
  const kiln_symbol name = kiln_symbol_of(w->cx, "q");
  KILN_TRY(kiln_stage(&w->s, w->p->tensors.data[q->u.tensor]->name, k->at, KILN_SCOPE_LOCAL, n,
                      axes, name));
  return kiln_vectorize(&w->s, named(k, "%s.%d", name, n - 1));
}

// The axes of a mask's copy, the rows innermost: an axis that the rows alone index, or one in which
// they are flattened with other dims.
//
// gives: how many; 0 where the mask is read in place, or no axis is known to be the rows'
static int mask_axes(const stream *k, const kiln_expr *load, kiln_stage_axis *axes) {
  const kiln_program *p = k->w->p;
  const kiln_tensor *t = p->tensors.data[load->u.tensor];
  const kiln_symbol row = k->f.tile_row;
  int n = 0, at = -1;
  for (int i = 0; i < load->n_args; i++) {
    if (load->args[i]->has_load || (at >= 0 && kiln_expr_uses(load->args[i], row))) return 0;
    if (kiln_expr_uses(load->args[i], row)) at = i;
  }
  const int64_t stride = at >= 0 ? kiln_load_stride(k->w->cx, p, load, row) : 0;
  if (stride <= 1 || load->n_args >= KILN_MAX_RANK) return 0;
  for (int i = 0; i < load->n_args; i++)
    if (i != at) axes[n++] = (kiln_stage_axis){.axis = i, .outer = true};
  if (load->args[at]->kind == KILN_EXPR_VAR) {
    axes[n++] = (kiln_stage_axis){.axis = at, .outer = true};
    return n;
  }
  if (load->n_args != 1 || kiln_tensor_elems(t) % stride) return 0;
  axes[n++] = (kiln_stage_axis){.axis = at, .block = stride};
  axes[n++] = (kiln_stage_axis){.axis = at, .block = stride, .outer = true};
  return n;
}

// Copies all keys for a vector of rows before the next vector: the lines read stay in the L1.
static kiln_status schedule_mask(stream *k, kiln_symbol name, int n) {
  kiln_lowering *w = k->w;
  kiln_symbol path[KILN_MAX_RANK + 2];
  const kiln_symbol rows = named(k, "%s.%d", name, n - 1);
  path[0] = kiln_lowering_name(w, "o", rows);
  for (int i = 0; i + 1 < n; i++) path[i + 1] = named(k, "%s.%d", name, i);
  path[n] = kiln_lowering_name(w, "i", rows);
  KILN_TRY(kiln_split(&w->s, rows, w->lanes, KILN_TAIL_SHIFT, path[0], path[n]));
  KILN_TRY(kiln_reorder(&w->s, n + 1, path));
  KILN_TRY(kiln_vectorize(&w->s, path[n]));
  return kiln_parallel(&w->s, path[0]);
}

// Prefetches rows of constant mask |name| some keys ahead, where they come from beyond the L2:
// their stride is too large for hardware prefetchers.
static kiln_status fetch_mask(stream *k, const kiln_tensor *t, kiln_symbol name) {
  enum { CYCLES = 400 }; // that memory takes
  const kiln_lowering *w = k->w;
  const bool is_once = 2 * kiln_tensor_elems(t) > k->f.n_batch * k->f.n_rows * k->f.n_keys,
             is_long = 2 * kiln_tensor_elems(t) * kiln_dtype_bytes(t->dtype) > w->m->l2_bytes;
  const int64_t key_cycles = kiln_divide_up(k->block / w->lanes * k->f.depth, 2),
                ahead = kiln_divide_up(CYCLES, key_cycles), cols = score_tile(k).cols;
  const kiln_symbol key = tile_loop(k, kiln_stmt_dim(k->tile, k->f.tile_key));
  if (!is_once && !is_long) return KILN_OK;
  return kiln_prefetch(&k->w->s, name, kiln_lowering_name(k->w, "i", key),
                       ahead > cols ? ahead : cols);
}

// Masks by row and key, rows innermost: once for all heads that share one, and at compile time
// where it is a constant.
static kiln_status stage_masks(stream *k) {
  kiln_lowering *w = k->w;
  if (!k->f.mapped) return KILN_OK;
  const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, k->f.mapped->body);
  for (int i = 0; i < loads.n; i++) {
    const kiln_tensor *t = w->p->tensors.data[loads.data[i]->u.tensor];
    const bool is_const = t->role == KILN_CONST;
    kiln_stage_axis axes[KILN_MAX_RANK];
    bool alone = true;
    for (int j = 0; j < loads.n; j++)
      alone &= i == j || loads.data[j]->u.tensor != loads.data[i]->u.tensor;
    const int n =
        alone && (is_const || t->role == KILN_INPUT) ? mask_axes(k, loads.data[i], axes) : 0;
    if (n == 0 ||
        (!is_const && 2 * kiln_tensor_elems(t) > k->f.n_batch * k->f.n_rows * k->f.n_keys))
      continue;
    const kiln_symbol name = kiln_symbol_printf(w->cx, "m%d", i);
    KILN_TRY(kiln_stage(&w->s, t->name, 0, KILN_SCOPE_WORKSPACE, n, axes, name));
    if (kiln_loops_find(w->s.loops, named(k, "%s.%d", name, n - 1)))
      KILN_TRY(schedule_mask(k, name, n));
    else if (kiln_expr_uses(loads.data[i], k->f.tile_key)) KILN_TRY(fetch_mask(k, t, name));
  }
  return KILN_OK;
}

// --- the result of a chunk ---

// Vectorizes a nest NAME.0, NAME.1, ... or NAME.PART.0, ... over the axes of |s|'s result, along
// |dim|.
static kiln_status vectorize_whole(stream *k, const kiln_stmt *s, const char *part,
                                   kiln_symbol dim) {
  kiln_lowering *w = k->w;
  kiln_symbol path[KILN_MAX_RANK];
  int n = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int d = 0; d < s->n_space; d++)
      if ((s->dims[d].name == dim) == pass)
        path[n++] =
            kiln_symbol_printf(w->cx, "%s%s.%d", kiln_symbol_text(w->cx, name_of(k, s)), part, d);
  if (!kiln_loops_find(w->s.loops, path[0])) return KILN_OK; // one chunk: nothing is rescaled
  if (n > 1) KILN_TRY(kiln_reorder(&w->s, n, path));
  return kiln_vectorize(&w->s, path[n - 1]);
}

static kiln_status vectorize_init(stream *k, const kiln_stmt *s, kiln_symbol dim) {
  kiln_symbol path[KILN_MAX_RANK];
  const int n = order_dims(k, s, "init.", 0, dim, path, NULL);
  if (n > 1) KILN_TRY(kiln_reorder(&k->w->s, n, path));
  return kiln_vectorize(&k->w->s, path[n - 1]);
}

// A tile of partial sums over the chunk in registers: a loop that runs once is factored out.
static kiln_status schedule_mix(stream *k) {
  kiln_lowering *w = k->w;
  const kiln_attention_form *f = &k->f;
  const kiln_stmt *y = f->mix;
  const kiln_symbol row = k->turned ? f->mix_value : f->mix_row,
                    vec = k->turned ? f->mix_row : f->mix_value;
  const kiln_register_tile tile = mix_tile(k);
  const kiln_symbol r = loop_of(k, y, "", row), v = loop_of(k, y, "", vec),
                    key = kiln_lowering_name(w, "i", loop_of(k, y, "", f->mix_key)),
                    one = kiln_lowering_name(w, "i", key), acc = kiln_symbol_of(w->cx, "acc");
  kiln_symbol space[KILN_MAX_RANK], path[KILN_MAX_RANK + 4], steps = 0;
  const int n_space = order_dims(k, y, "", row, vec, space, NULL);
  int n = 0;
  KILN_TRY(kiln_split(&w->s, key, 1, KILN_TAIL_EXACT, kiln_lowering_name(w, "o", key), one));
  KILN_TRY(kiln_split(&w->s, r, tile.cols, KILN_TAIL_EXACT, kiln_lowering_name(w, "o", r),
                      kiln_lowering_name(w, "i", r)));
  KILN_TRY(kiln_split(&w->s, v, tile.vectors * w->lanes, KILN_TAIL_EXACT,
                      kiln_lowering_name(w, "o", v), kiln_lowering_name(w, "i", v)));
  for (int d = 0; d + 2 < n_space; d++) path[n++] = space[d];
  path[n++] = kiln_lowering_name(w, "o", r);
  path[n++] = kiln_lowering_name(w, "o", v);
  path[n++] = kiln_lowering_name(w, "o", key);
  path[n++] = one;
  path[n++] = kiln_lowering_name(w, "i", r);
  path[n++] = kiln_lowering_name(w, "i", v);
  KILN_TRY(kiln_reorder(&w->s, n, path));
  KILN_TRY(kiln_rfactor(&w->s, one, acc));
  KILN_TRY(kiln_lowering_split_steps(w, k->chunk, tile.cols, tile.vectors, &path[n - 4], &steps));
  if (steps) KILN_TRY(kiln_unroll(&w->s, steps));
  KILN_TRY(kiln_unroll(&w->s, path[n - 2]));
  KILN_TRY(kiln_vectorize(&w->s, path[n - 1]));
  for (int init = 0; init < 2; init++) {
    const char *form = init ? "%s.init.%d" : "%s.%d";
    const kiln_symbol last[] = {named(k, form, acc, n_space), named(k, form, acc, n_space - 2),
                                named(k, form, acc, n_space - 1)};
    KILN_TRY(kiln_reorder(&w->s, 3, last));
    KILN_TRY(kiln_unroll(&w->s, last[1]));
    KILN_TRY(kiln_vectorize(&w->s, last[2]));
  }
  KILN_TRY(vectorize_whole(k, y, ".scale", vec));
  KILN_TRY(vectorize_whole(k, y, ".end", vec));
  return vectorize_init(k, y, vec);
}

// Maxima, sums and weights: the rows in vectors.
static kiln_status vectorize_rows(stream *k) {
  kiln_lowering *w = k->w;
  const kiln_stmt *const sums[] = {k->f.top, k->f.sum};
  static const char *const parts[] = {"w.before", "w.shift", "w.scale"};
  for (size_t i = 0; i < KILN_LEN(sums); i++) {
    const kiln_symbol row = i ? k->f.sum_row : k->f.top_row;
    KILN_TRY(vectorize_init(k, sums[i], row));
    KILN_TRY(kiln_vectorize(&w->s, loop_of(k, sums[i], "", row)));
  }
  KILN_TRY(vectorize_whole(k, k->f.sum, ".scale", k->f.sum_row));
  KILN_TRY(vectorize_whole(k, k->f.sum, ".end", k->f.sum_row));
  const int row = kiln_stmt_dim(k->f.top, k->f.top_row);
  for (size_t i = 0; i < KILN_LEN(parts); i++) {
    const kiln_symbol loop = kiln_symbol_printf(w->cx, "%s.%d", parts[i], row);
    if (kiln_loops_find(w->s.loops, loop)) KILN_TRY(kiln_vectorize(&w->s, loop));
  }
  return kiln_vectorize(&w->s, kiln_symbol_printf(w->cx, "w.%d", k->f.top->n_space));
}

// Adds a weight to its sum where it is computed.
static kiln_status sum_weights(stream *k) {
  const kiln_stmt *s = k->f.sum;
  const kiln_symbol keys = loop_of(k, s, "", reduction_of(s));
  kiln_symbol loops[KILN_MAX_RANK];
  const int n = order_dims(k, s, "", 0, k->f.sum_row, loops, NULL);
  loops[n - 1] = kiln_lowering_name(k->w, "i", keys);
  for (int d = 0; d < n; d++)
    KILN_TRY(kiln_merge(&k->w->s, kiln_symbol_printf(k->w->cx, "w.%d", d), loops[d], 0));
  return KILN_OK;
}

static kiln_status inline_maps(stream *k) {
  kiln_lowering *w = k->w;
  KILN_TRY(kiln_inline(&w->s, name_of(k, k->f.ratio)));
  KILN_TRY(kiln_inline(&w->s, name_of(k, k->f.weight)));
  for (int i = 0; i < k->f.n_copies; i++) // each reads the next
    KILN_TRY(kiln_inline(&w->s, name_of(k, k->f.copies[i])));
  return KILN_OK;
}

static bool describe(stream *k, kiln_lowering *w) {
  *k = (stream){.w = w};
  if (!kiln_attention_is(w->cx, w->p, &k->f)) return false;
  k->tile = k->f.mapped ? k->f.mapped : k->f.scores;
  if (!root_dim(k, k->f.mix_row) || !root_dim(k, k->f.mix_value)) return false;
  k->turned = k->f.n_values % w->lanes != 0 || stores_rows(k) ||
              kiln_load_stride(w->cx, w->p, k->f.values, k->f.mix_value) != 1;
  return true;
}

static kiln_status lower_attention(kiln_lowering *w, const kiln_tiling *t) {
  stream k;
  if (!describe(&k, w))
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, NULL, "rule: stream: must be attention");
  k.block = t->block[0];
  k.chunk = t->step[0];
  KILN_TRY(inline_maps(&k));
  KILN_TRY(split_blocks(&k));
  KILN_TRY(make_stream(&k));
  KILN_TRY(schedule_scores(&k));
  KILN_TRY(stage_queries(&k));
  KILN_TRY(stage_masks(&k));
  KILN_TRY(vectorize_rows(&k));
  KILN_TRY(sum_weights(&k));
  KILN_TRY(store_inside(&k, k.f.mix, k.turned ? k.f.mix_value : k.f.mix_row,
                        k.turned ? k.f.mix_row : k.f.mix_value));
  return schedule_mix(&k);
}

// --- candidates ---

// A tile with just enough accumulators to hide the FMA latency stalls on other latencies.
static double tile_cycles(kiln_register_tile tile) {
  enum { ENOUGH = 10 };
  return tile.cycles * (tile.rows * tile.cols * tile.vectors < ENOUGH ? 1.1 : 1);
}

static double task_cycles(const stream *k) {
  const double vectors = (double)kiln_divide_up(k->block, k->w->lanes),
               values = (double)k->f.n_values,
               n_chunks = (double)kiln_divide_up(k->f.n_keys, k->chunk);
  const double chunk = tile_cycles(score_tile(k)) + tile_cycles(mix_tile(k)) +
                       weight_cycles * vectors * (double)k->chunk +
                       (n_chunks > 1 ? rescale_cycles * vectors * values : 0);
  return n_chunks * chunk + finish_cycles * vectors * values +
         turn_cycles * (double)(k->block * k->f.depth);
}

typedef struct traffic {
  double rows, keys;  // bytes of a task's rows, read and written; of its head's keys and values
  double held, again; // of its buffers; of these reread, over all chunks
} traffic;

static traffic traffic_of(const stream *k) {
  const double block = 4 * (double)k->block, keys = (double)k->f.n_keys,
               both = (double)(k->f.depth + k->f.n_values);
  return (traffic){.rows = block * both,
                   .keys = 4 * keys * both,
                   .held = block * (2 * (double)k->chunk + both),
                   .again = 4 * block * keys + 2 * block * both * keys / (double)k->chunk};
}

// A task reads keys and values once, from the L2 where they fit beside its buffers; it rereads its
// buffers in every chunk.
static void count_bytes(const stream *k, const kiln_device *d, kiln_tile_cost *c) {
  const traffic b = traffic_of(k);
  for (int l = 0; l + 1 < d->n_levels; l++) {
    const kiln_mem_level *in = &d->levels[l + 1]; // the cache in front of the boundary
    const bool holds = b.held < in->usable * (double)in->capacity_bytes,
               keeps = b.held + b.keys < in->usable * (double)in->capacity_bytes;
    const double n_tasks = (double)c->tiles, n_heads = (double)k->f.n_batch;
    c->bytes[l] =
        n_tasks * b.rows + (keeps ? n_heads : n_tasks) * b.keys + (holds ? 0 : n_tasks * b.again);
    c->footprint[l] = b.held;
  }
}

// Stalls on the L2 beside the products: a block reads all keys and values, its tiles of rows reread
// the chunk's values, and scores and weights are written and read eight times, from the L1 or not.
// Measured on a Zen 3 with chunks of 32 to 256 keys and blocks of 24 to 96 rows.
static double waiting_ns(const stream *k, const kiln_device *d, const kiln_tile_cost *c) {
  enum { PASSES = 8 };
  const double line_by_line = 2,
               row_by_row = 0.75; // stalled share of the transfer time
  const int l1 = kiln_device_level(d, "L1");
  const double rows = (double)k->block, keys = (double)k->f.n_keys, chunk = (double)k->chunk,
               depth = (double)k->f.depth, values = (double)k->f.n_values;
  if (l1 <= 0) return 0;
  const double room = (double)d->levels[l1].capacity_bytes,
               tiles =
                   (double)kiln_divide_up(k->turned ? k->f.n_values : k->block, mix_tile(k).cols),
               again = k->turned || 4 * chunk * values <= room ? 1 : tiles;
  double waited = line_by_line * 4 * keys * (depth + values * again);
  if (2 * 4 * rows * chunk > room) waited += row_by_row * PASSES * 4 * rows * keys;
  return waited * (double)c->tiles / d->levels[l1 - 1].unit_bytes_ns;
}

static kiln_status propose_one(stream *k, kiln_tile_candidates *out) {
  kiln_lowering *w = k->w;
  kiln_tile_candidate c = {0};
  c.tiling.block[0] = k->block;
  c.tiling.step[0] = k->chunk;
  c.cost.tiles = k->f.n_batch * kiln_divide_up(k->f.n_rows, k->block);
  c.cost.flops = task_cycles(k) * (double)c.cost.tiles * 4 * w->lanes;
  if (w->m->device) {
    count_bytes(k, w->m->device, &c.cost);
    kiln_tile_cost_finish(w->m->device, w->n_threads, KILN_PEAK_F32, 1, &c.cost);
    const double threads = (double)(c.cost.tiles < w->n_threads ? c.cost.tiles : w->n_threads);
    c.cost.ns += waiting_ns(k, w->m->device, &c.cost) / threads;
  }
  KILN_VEC_PUSH(w->proposed, out, c);
  return KILN_OK;
}

static kiln_status propose_stream(kiln_lowering *w, kiln_tile_candidates *out) {
  stream k;
  int64_t chunks[KILN_MAX_ATTENTION_CHUNKS];
  if (!describe(&k, w)) return KILN_OK;
  const int n = kiln_attention_chunks(k.f.n_keys, chunks);
  for (int i = 0; i < n; i++)
    for (int64_t vectors = 4; vectors > 0; vectors--)
      for (int64_t times = 1; vectors * times * w->lanes <= MAX_BLOCK; times *= 2) {
        k.block = vectors * times * w->lanes;
        k.chunk = chunks[i];
        if (k.block <= k.f.n_rows && (times == 1 || vectors > 2)) KILN_TRY(propose_one(&k, out));
      }
  return KILN_OK;
}

const kiln_template kiln_template_flash_attention = {.name = "flash_attention",
                                                     .was = "stream",
                                                     .kinds = 1u << KILN_GROUP_ATTENTION,
                                                     .propose = propose_stream,
                                                     .lower = lower_attention};

#include "template/gpu/split_k.h"

#include <math.h>

enum {
  WORD = 4,   // elements of the result that a thread of the second nest computes
  WIDTH = 32, // threads along x
  BANKS = 32,
  PAD = 8 // elements
};

static kiln_symbol named(const kiln_lowering *w, const char *buffer, const char *part, int axis) {
  return kiln_symbol_printf(w->cx, "%s%s.%d", buffer, part, axis);
}

kiln_status kiln_split_k_factor(kiln_lowering *w, const kiln_product *p, kiln_symbol loop,
                                kiln_symbol outer, kiln_symbol inner, kiln_symbol name) {
  const char *sums = kiln_symbol_text(w->cx, kiln_product_tensor(w, p->t));
  kiln_symbol order[KILN_MAX_RANK + 4] = {loop, outer};
  int n = outer ? 2 : 1;
  for (int d = 0; d < p->n_batch + 2; d++)
    order[n++] = kiln_lowering_loop(w, sums, "", p->t->dims[d].name);
  order[n++] = inner;
  KILN_TRY(kiln_reorder(&w->s, n, order));
  return kiln_rfactor(&w->s, loop, name);
}

// Hoists a condition out of |loop| if it is the same for all iterations (loop unswitching).
static kiln_status ask_once(kiln_lowering *w, kiln_symbol loop) {
  const kiln_loop *cond = kiln_loops_find(w->s.loops, loop)->body;
  return cond->kind == KILN_LOOP_IF && !kiln_expr_uses(cond->cond, loop) ? kiln_hoist(&w->s, loop)
                                                                         : KILN_OK;
}

kiln_status kiln_split_k_combine(kiln_lowering *w, const kiln_product *p, kiln_symbol sum,
                                 kiln_symbol clear_column, kiln_symbol unit, const char *from,
                                 kiln_symbol at) {
  kiln_schedule *s = &w->s;
  const int column = p->n_batch + 1;
  const bool has_unit = unit != 0;
  const kiln_symbol columns = named(w, from, "", column),
                    part = named(w, from, "", column + 1 + has_unit);
  KILN_TRY(kiln_compute_at(s, sum, at, KILN_SCOPE_LOCAL));
  if (has_unit) KILN_TRY(kiln_reorder(s, 2, (const kiln_symbol[]){unit, clear_column}));
  KILN_TRY(kiln_vectorize(s, clear_column));
  KILN_TRY(kiln_reorder(s, 2, (const kiln_symbol[]){part, columns}));
  KILN_TRY(ask_once(w, columns));
  KILN_TRY(kiln_unroll(s, part));
  return kiln_vectorize(s, columns);
}

// A packed operand has no loops to pad.
bool kiln_split_k_fits(const kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n) {
  return p->n % WORD == 0 && (p->m % m == 0 || !kiln_product_is_packed(w, p->a)) &&
         (p->n % n == 0 || !kiln_product_is_packed(w, p->b));
}

kiln_status kiln_split_k_pad(kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n) {
  const struct {
    const char *dim;
    const kiln_stmt *operand;
    int64_t extent, tile;
  } sides[] = {{"m", p->a, p->m, m}, {"n", p->b, p->n, n}};
  for (int i = 0; i < 2; i++) {
    if (sides[i].extent % sides[i].tile == 0) continue;
    KILN_TRY(
        kiln_pad(&w->s, kiln_product_loop(w, sides[i].operand, "", sides[i].dim), sides[i].tile));
    KILN_TRY(kiln_pad(&w->s, kiln_product_loop(w, p->t, "init.", sides[i].dim), sides[i].tile));
    KILN_TRY(kiln_pad(&w->s, kiln_product_loop(w, p->t, "", sides[i].dim), sides[i].tile));
  }
  return KILN_OK;
}

// Threads of the second nest's blocks: fewer where there would be less than a block for each
// multiprocessor.
static int64_t threads_of(const kiln_lowering *w, const kiln_product *p) {
  int64_t threads = KILN_GPU_THREADS;
  while (threads > WIDTH && p->m * p->n * p->batch < WORD * threads * w->m->device->n_units)
    threads /= 2;
  return threads;
}

kiln_status kiln_split_k_finish(kiln_lowering *w, const kiln_product *p, kiln_symbol all) {
  kiln_stage_axis axes[KILN_MAX_RANK + 1] = {{.axis = p->n_batch + 2}};
  for (int d = 0; d < p->n_batch + 2; d++) axes[1 + d] = (kiln_stage_axis){.axis = d};
  KILN_TRY(kiln_transform_layout(&w->s, all, p->n_batch + 3, axes));
  return kiln_parallel_k_add(w, p, all);
}

kiln_status kiln_parallel_k_add(kiln_lowering *w, const kiln_product *p, kiln_symbol all) {
  const int n = p->n_batch;
  kiln_symbol loops[KILN_MAX_RANK], lane, thread;
  for (int d = 0; d < n + 2; d++) loops[d] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
  lane = kiln_lowering_name(w, "v", loops[n + 1]);
  const kiln_symbol words = kiln_lowering_name(w, "w", loops[n + 1]);
  KILN_TRY(kiln_split(&w->s, loops[n + 1], WORD, KILN_TAIL_EXACT, words, lane));
  loops[n + 1] = words;
  KILN_TRY(kiln_gpu_map_grid(w, n + 2, loops, threads_of(w, p), &thread));
  KILN_TRY(kiln_split_k_combine(w, p, kiln_product_tensor(w, p->t),
                                kiln_product_loop(w, p->t, "init.", "n"), 0,
                                kiln_symbol_text(w->cx, all), thread));
  return kiln_vectorize(&w->s, lane);
}

double kiln_split_k_finish_ns(const kiln_lowering *w, const kiln_product *p, double parts) {
  static const double BEGIN_NS = 1000, TIMES = 4; // partial sums are stored and read again
  const kiln_mem_level *l2 = &w->m->device->levels[1];
  const double elems = (double)(p->m * p->n * p->batch), stored = 4 * elems * parts,
               blocks = ceil(elems / (double)(WORD * threads_of(w, p)));
  return BEGIN_NS + fmax(TIMES * stored / l2->all_bytes_ns, stored / (blocks * l2->unit_bytes_ns));
}

// --- groups of a block's threads ---

// Splits the reduction into splits and steps, and each step into slices, which get partial sums.
static kiln_status split_sums(kiln_parallel_k *x) {
  kiln_lowering *w = x->w;
  kiln_schedule *s = &w->s;
  const kiln_symbol t = kiln_product_tensor(w, x->p.t);
  const char *name = kiln_symbol_text(w->cx, t);
  kiln_symbol k = kiln_product_loop(w, x->p.t, "", "k"), split = 0;
  x->whole = x->sums = name;
  if (x->split_k > 1) {
    KILN_TRY(kiln_split_k_pad(w, &x->p, x->m, x->n));
    const kiln_symbol all = kiln_symbol_printf(w->cx, "%s.all", name);
    x->block = kiln_symbol_printf(w->cx, "%s.block", name);
    KILN_TRY(kiln_gpu_cut(w, &k, x->p.k / x->split_k, "split", "part", &split));
    KILN_TRY(kiln_split_k_factor(w, &x->p, split, 0, k, all));
    x->n_more++;
    KILN_TRY(kiln_cache_write(s, all, x->block, 0, NULL));
    x->whole = kiln_symbol_text(w->cx, all);
    x->sums = kiln_symbol_text(w->cx, x->block);
  }
  KILN_TRY(kiln_split(s, k, x->k, KILN_TAIL_EXACT, x->l.step, x->l.k));
  if (x->slice_k > 1) {
    const kiln_symbol meet = kiln_symbol_printf(w->cx, "%s.parts", name), step = x->l.k;
    x->group = kiln_symbol_of(w->cx, "group");
    x->l.k = kiln_symbol_of(w->cx, "group.ki");
    KILN_TRY(kiln_split(s, step, x->k / x->slice_k, KILN_TAIL_EXACT, x->group, x->l.k));
    KILN_TRY(kiln_reorder(s, 2, (const kiln_symbol[]){x->group, x->l.step}));
    KILN_TRY(kiln_split_k_factor(w, &x->p, x->group, split, x->l.step, meet));
    x->n_more++;
    x->sums = kiln_symbol_text(w->cx, meet);
  }
  x->kept = kiln_symbol_printf(w->cx, "%s.kept", x->sums);
  return kiln_cache_write(s, kiln_symbol_of(w->cx, x->sums), x->kept, 0, NULL);
}

// Tiles the nest that reads the sums, a tile a block: the result's, or that of the splits' sums.
static kiln_status cut_tiles(kiln_parallel_k *x) {
  kiln_lowering *w = x->w;
  const int n = x->p.n_batch;
  kiln_symbol loops[KILN_MAX_RANK + 3];
  if (x->split_k == 1) {
    for (int d = 0; d < n + 2; d++)
      loops[d] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
    return kiln_product_tile(w, "block", n, loops, x->m, x->n, &x->l);
  }
  loops[0] = named(x->w, x->whole, ".copy", n + 2);
  for (int d = 0; d < n + 2; d++) loops[1 + d] = named(x->w, x->whole, ".copy", d);
  KILN_TRY(kiln_reorder(&w->s, n + 3, loops));
  return kiln_product_tile(w, "block", n + 1, loops, x->m, x->n, &x->l);
}

// Runs the tiles' nest by words of a tile in order, cyclically distributed over the threads.
//
// gives: *out_round, the loop over the words of a thread; *out_lane, over a word's elements
static kiln_status distribute_words(kiln_parallel_k *x, kiln_symbol *out_round,
                                    kiln_symbol *out_lane) {
  kiln_lowering *w = x->w;
  kiln_schedule *s = &w->s;
  const kiln_symbol words = kiln_lowering_name(w, "w", x->l.y_n),
                    all = kiln_lowering_name(w, "f", x->l.y_m),
                    thread = kiln_lowering_name(w, "t", x->l.y_m),
                    row = kiln_lowering_name(w, "y", thread),
                    column = kiln_lowering_name(w, "x", thread);
  *out_lane = kiln_lowering_name(w, "v", x->l.y_n);
  *out_round = kiln_lowering_name(w, "o", x->l.y_m);
  KILN_TRY(kiln_split(s, x->l.y_n, x->word, KILN_TAIL_EXACT, words, *out_lane));
  KILN_TRY(kiln_fuse(s, x->l.y_m, words, all));
  KILN_TRY(kiln_split(s, all, x->threads, KILN_TAIL_EXACT, *out_round, thread));
  KILN_TRY(kiln_reorder(s, 2, (const kiln_symbol[]){thread, *out_round}));
  KILN_TRY(kiln_split(s, thread, WIDTH, KILN_TAIL_EXACT, row, column));
  KILN_TRY(kiln_bind(s, row, KILN_THREAD_Y));
  return kiln_bind(s, column, KILN_THREAD_X);
}

static kiln_status combine_groups(kiln_parallel_k *x, kiln_symbol round) {
  kiln_lowering *w = x->w;
  const int column = x->p.n_batch + 1;
  if (!x->block)
    return kiln_split_k_combine(w, &x->p, kiln_product_tensor(w, x->p.t),
                                kiln_product_loop(w, x->p.t, "init.", "n"), 0, x->sums, round);
  return kiln_split_k_combine(w, &x->p, x->block, named(x->w, x->whole, ".init", column),
                              named(x->w, x->whole, ".init", column + 1), x->sums, round);
}

// Where the groups' sums meet: one group's behind the other's, rows padded against bank conflicts.
static kiln_status place_parts(kiln_parallel_k *x) {
  const int n = x->p.n_batch + 2, more = x->n_more;
  const kiln_symbol buffer = kiln_symbol_of(x->w->cx, x->sums);
  kiln_stage_axis axes[KILN_MAX_RANK + 2];
  for (int d = 0; d < more; d++) axes[d] = (kiln_stage_axis){.axis = n + more - 1 - d};
  for (int d = 0; d < n; d++) axes[more + d] = (kiln_stage_axis){.axis = d};
  if (more) KILN_TRY(kiln_transform_layout(&x->w->s, buffer, n + more, axes));
  return kiln_storage_align(&x->w->s, buffer, n - 2 + more, BANKS, PAD);
}

kiln_status kiln_parallel_k_begin_in_registers(kiln_parallel_k *x) {
  kiln_lowering *w = x->w;
  const char *name = kiln_symbol_text(w->cx, kiln_product_tensor(w, x->p.t));
  const kiln_symbol all = kiln_symbol_printf(w->cx, "%s.all", name);
  kiln_symbol k = kiln_product_loop(w, x->p.t, "", "k"), split;
  x->whole = x->sums = kiln_symbol_text(w->cx, all);
  x->kept = kiln_symbol_printf(w->cx, "%s.block", name);
  x->n_more = 1;
  KILN_TRY(kiln_product_begin(w, &x->p, &x->l));
  KILN_TRY(kiln_split_k_pad(w, &x->p, x->m, x->n));
  KILN_TRY(kiln_gpu_cut(w, &k, x->p.k / x->split_k, "split", "part", &split));
  KILN_TRY(kiln_split_k_factor(w, &x->p, split, 0, k, all));
  KILN_TRY(kiln_cache_write(&w->s, all, x->kept, 0, NULL));
  KILN_TRY(kiln_split(&w->s, k, x->k, KILN_TAIL_EXACT, x->l.step, x->l.k));
  KILN_TRY(cut_tiles(x));
  KILN_TRY(kiln_compute_at(&w->s, x->kept, x->l.block, KILN_SCOPE_LOCAL));
  return kiln_reorder(&w->s, 4, (const kiln_symbol[]){x->l.step, x->l.m, x->l.n, x->l.k});
}

kiln_status kiln_parallel_k_begin(kiln_parallel_k *x) {
  kiln_schedule *s = &x->w->s;
  kiln_symbol round, lane;
  KILN_TRY(kiln_product_begin(x->w, &x->p, &x->l));
  KILN_TRY(split_sums(x));
  KILN_TRY(cut_tiles(x));
  KILN_TRY(distribute_words(x, &round, &lane));
  if (x->group) KILN_TRY(combine_groups(x, round));
  KILN_TRY(kiln_vectorize(s, lane));
  KILN_TRY(kiln_compute_at(s, kiln_symbol_of(x->w->cx, x->sums), x->l.block, KILN_SCOPE_SHARED));
  KILN_TRY(kiln_compute_at(s, x->kept, x->l.block, KILN_SCOPE_LOCAL));
  const kiln_symbol nest[] = {x->l.step, x->l.m, x->l.n, x->l.k, x->group};
  KILN_TRY(kiln_reorder(s, x->group ? 5 : 4, nest));
  return place_parts(x);
}

kiln_parallel_k_nest kiln_parallel_k_clears(const kiln_parallel_k *x) {
  const int row = x->p.n_batch;
  if (x->group)
    return (kiln_parallel_k_nest){named(x->w, x->sums, ".init", row + 1 + x->n_more),
                                  named(x->w, x->sums, ".init", row),
                                  named(x->w, x->sums, ".init", row + 1)};
  if (x->split_k > 1) // sums of splits, not of the product
    return (kiln_parallel_k_nest){0, named(x->w, x->whole, ".init", row),
                                  named(x->w, x->whole, ".init", row + 1)};
  return (kiln_parallel_k_nest){0, kiln_product_loop(x->w, x->p.t, "init.", "m"),
                                kiln_product_loop(x->w, x->p.t, "init.", "n")};
}

kiln_parallel_k_nest kiln_parallel_k_copies(const kiln_parallel_k *x) {
  const int row = x->p.n_batch;
  if (x->split_k > 1 && !x->block) return (kiln_parallel_k_nest){0, x->l.y_m, x->l.y_n};
  return (kiln_parallel_k_nest){x->group ? named(x->w, x->sums, ".copy", row + 1 + x->n_more) : 0,
                                named(x->w, x->sums, ".copy", row),
                                named(x->w, x->sums, ".copy", row + 1)};
}

kiln_status kiln_parallel_k_finish(kiln_parallel_k *x) {
  if (x->split_k > 1)
    KILN_TRY(kiln_split_k_finish(x->w, &x->p, kiln_symbol_of(x->w->cx, x->whole)));
  return kiln_bind(&x->w->s, x->l.block, KILN_BLOCK_X);
}

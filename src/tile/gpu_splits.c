#include "tile/gpu_splits.h"

enum { WORD = 4 }; // elements of the result that a thread of the second nest computes

static kiln_symbol named(const kiln_lowering *w, const char *buffer, const char *part, int axis) {
  return kiln_symbol_printf(w->cx, "%s%s.%d", buffer, part, axis);
}

kiln_status kiln_sums_factor(kiln_lowering *w, const kiln_product *p, kiln_symbol loop,
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

kiln_status kiln_sums_combine(kiln_lowering *w, const kiln_product *p, kiln_symbol sum,
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
  KILN_TRY(kiln_unroll(s, part));
  return kiln_vectorize(s, columns);
}

// A packed operand has no loops to pad.
bool kiln_splits_fit(const kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n) {
  return p->n % WORD == 0 && (p->m % m == 0 || !kiln_product_is_packed(w, p->a)) &&
         (p->n % n == 0 || !kiln_product_is_packed(w, p->b));
}

kiln_status kiln_splits_pad(kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n) {
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

kiln_status kiln_splits_finish(kiln_lowering *w, const kiln_product *p, kiln_symbol all) {
  const int n = p->n_batch;
  kiln_stage_axis axes[KILN_MAX_RANK + 1] = {{.axis = n + 2}};
  kiln_symbol loops[KILN_MAX_RANK], lane, thread;
  for (int d = 0; d < n + 2; d++) {
    axes[1 + d] = (kiln_stage_axis){.axis = d};
    loops[d] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
  }
  KILN_TRY(kiln_transform_layout(&w->s, all, n + 3, axes));
  lane = kiln_lowering_name(w, "v", loops[n + 1]);
  const kiln_symbol words = kiln_lowering_name(w, "w", loops[n + 1]);
  KILN_TRY(kiln_split(&w->s, loops[n + 1], WORD, KILN_TAIL_EXACT, words, lane));
  loops[n + 1] = words;
  KILN_TRY(kiln_gpu_spread(w, n + 2, loops, KILN_GPU_THREADS, &thread));
  KILN_TRY(kiln_sums_combine(w, p, kiln_product_tensor(w, p->t),
                             kiln_product_loop(w, p->t, "init.", "n"), 0,
                             kiln_symbol_text(w->cx, all), thread));
  return kiln_vectorize(&w->s, lane);
}

double kiln_splits_finish_ns(const kiln_lowering *w, const kiln_product *p, int64_t splits) {
  static const double BEGIN_NS = 1000, TIMES = 4; // what is stored is read as well
  const double stored = 4.0 * (double)(p->m * p->n * p->batch * splits);
  return BEGIN_NS + TIMES * stored / w->m->device->levels[1].all_bytes_ns;
}

// Loop-carried scatters: a scatter that reads its own result runs in the order of its dims, as the
// rounds of a non-maximum suppression. Loops that carry a dependence stay serial, and each step of
// a round becomes a nest of its own: a dim is split where the statement's expressions go from one
// case to the next, invariant conditions are hoisted out of a nest, and its innermost loop is
// vectorized. The outer dims, whose rounds are independent, are shared among the threads.
#include "template/lower.h"

#include <math.h>

enum { MOST_CASES = 8, MAP_VECTORS = 4, SUM_VECTORS = 16 };

// Where a loop goes from one case to the next (i < 5), ascending.
typedef struct cases {
  kiln_symbol var;
  int n;
  int64_t at[MOST_CASES];
} cases;

static void find_case(const kiln_expr *e, void *argument) {
  cases *c = argument;
  int64_t at = 0;
  if (e->kind != KILN_EXPR_LT || e->args[0]->kind != KILN_EXPR_VAR || e->args[0]->u.sym != c->var ||
      !kiln_expr_is_int(e->args[1], &at))
    return;
  int k = 0;
  while (k < c->n && c->at[k] < at) k++;
  if ((k < c->n && c->at[k] == at) || c->n == MOST_CASES) return;
  for (int i = c->n++; i > k; i--) c->at[i] = c->at[i - 1];
  c->at[k] = at;
}

static kiln_symbol suffixed(kiln_lowering *w, kiln_symbol loop, int n) {
  for (int i = 0; i < n; i++)
    loop = kiln_symbol_printf(w->cx, "%s.b", kiln_symbol_text(w->cx, loop));
  return loop;
}

// Splits |loop|, whose variable is |var| in |e|, into its cases, the last first: loops inside of
// them get suffixes.
static kiln_status cut(kiln_lowering *w, kiln_symbol loop, kiln_symbol var, const kiln_expr *e,
                       int *out_n) {
  cases c = {.var = var};
  const kiln_loop *l = kiln_loops_find(w->s.loops, loop);
  int64_t extent = 0;
  *out_n = 1;
  if (!l || !kiln_expr_is_int(l->extent, &extent)) return KILN_OK;
  kiln_expr_visit(w->cx, e, find_case, &c);
  for (int i = c.n - 1; i >= 0; i--) {
    if (c.at[i] <= 0 || c.at[i] >= extent) continue;
    KILN_TRY(kiln_peel(&w->s, loop, c.at[i]));
    ++*out_n;
  }
  return KILN_OK;
}

static kiln_status hoist(kiln_lowering *w, void *argument) {
  return kiln_hoist(&w->s, *(const kiln_symbol *)argument);
}

// The only store of |loop|, under conditions; NULL: there is none, or more.
static const kiln_loop *store_in(const kiln_loop *loop) {
  const kiln_loop *l = loop->body;
  while (l && l->kind == KILN_LOOP_IF) l = l->body;
  return l && l->kind == KILN_LOOP_STORE && !l->next ? l : NULL;
}

static bool is_sum(const kiln_lowering *w, const kiln_loop *loop, const kiln_loop *store) {
  const kiln_buffer *b = w->s.loops->buffers.data[store->buffer];
  for (int k = 0; k < b->rank; k++)
    if (kiln_expr_uses(store->index[k], loop->var)) return false;
  return true;
}

// Vectorizes the innermost loop, and its remainder as one vector.
static kiln_status vectorize(kiln_lowering *w, void *argument) {
  const kiln_symbol loop = *(const kiln_symbol *)argument;
  const kiln_loop *l = kiln_loops_find(w->s.loops, loop), *store = l ? store_in(l) : NULL;
  int64_t extent = 0;
  if (!store || !kiln_expr_is_int(l->extent, &extent) || extent < 2) return KILN_OK;
  const int64_t lanes = w->m->vector_bytes / (kiln_dtype_bytes(store->value->dtype) > 4 ? 8 : 4),
                factor = lanes * (is_sum(w, l, store) ? SUM_VECTORS : MAP_VECTORS);
  if (extent <= factor) return kiln_vectorize(&w->s, loop);
  const kiln_symbol outer = kiln_lowering_name(w, "o", loop),
                    inner = kiln_lowering_name(w, "i", loop);
  KILN_TRY(kiln_split(&w->s, loop, factor, KILN_TAIL_PEEL, outer, inner));
  KILN_TRY(kiln_vectorize(&w->s, inner));
  const kiln_loop *rest = kiln_loops_find(w->s.loops, outer)->next;
  return extent % factor > 1 && rest ? kiln_vectorize(&w->s, rest->var) : KILN_OK;
}

static kiln_status begin(kiln_lowering *w) {
  const kiln_tensor *t = w->p->tensors.data[w->root->out];
  const kiln_symbol last = kiln_symbol_printf(w->cx, "o%d", t->rank - 1);
  kiln_symbol loop = kiln_lowering_loop(w, "y", "init.", last);
  int n = 0;
  KILN_TRY(cut(w, loop, last, w->root->init, &n));
  for (int i = 0; i < n; i++) {
    const kiln_symbol part = suffixed(w, loop, i);
    KILN_TRY(kiln_lowering_vectorize_map(w, part, t->dtype));
  }
  return KILN_OK;
}

// Fuses the outer loops that index the result until there is work for all threads.
static kiln_status share(kiln_lowering *w, void *argument) {
  const char *part = argument;
  const bool is_init = *part != 0;
  kiln_symbol loops[KILN_MAX_RANK], first;
  int64_t extents[KILN_MAX_RANK];
  int n = 0, n_fused = 0;
  for (; n < w->root->n_space; n++) {
    const kiln_symbol dim = is_init ? kiln_symbol_printf(w->cx, "o%d", n) : w->root->dims[n].name;
    loops[n] = kiln_lowering_loop(w, "y", part, dim);
    extents[n] = kiln_lowering_extent(w->root, n);
  }
  return kiln_lowering_parallel(w, n, loops, extents, &first, &n_fused);
}

static kiln_status lower_sequential_scatter(kiln_lowering *w, const kiln_tiling *t) {
  (void)t;
  const kiln_stmt *s = w->root;
  const int last = s->n_space + s->n_reduce - 1;
  int n_cases = 1, step = s->n_space - 1;
  KILN_TRY(begin(w));
  while (n_cases == 1 && ++step <= last) {
    const kiln_symbol dim = s->dims[step].name;
    KILN_TRY(cut(w, kiln_lowering_loop(w, "y", "", dim), dim, s->body, &n_cases));
  }
  for (int i = 0; i < n_cases && step != last && last >= 0; i++) {
    kiln_symbol loop = suffixed(w, kiln_lowering_loop(w, "y", "", s->dims[last].name), i);
    KILN_TRY(kiln_lowering_try(w, hoist, &loop));
    KILN_TRY(kiln_lowering_try(w, vectorize, &loop));
  }
  if (w->n_threads < 2) return KILN_OK;
  KILN_TRY(kiln_lowering_try(w, share, (char[]){"init."}));
  return kiln_lowering_try(w, share, (char[]){""});
}

static kiln_status propose_rounds(kiln_lowering *w, kiln_tile_candidates *out) {
  if (!kiln_stmt_reads_itself(w->cx, w->p, w->root)) return KILN_OK;
  KILN_VEC_PUSH(w->proposed, out, (kiln_tile_candidate){.cost.ns = INFINITY});
  return KILN_OK;
}

const kiln_template kiln_template_sequential_scatter = {.name = "sequential_scatter",
                                                        .was = "rounds",
                                                        .kinds = 1u << KILN_GROUP_SCATTER,
                                                        .propose = propose_rounds,
                                                        .lower = lower_sequential_scatter};

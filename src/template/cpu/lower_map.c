// Maps, and the fallback schedule of other kernels; and helpers shared by all lowerings.
#include "support/integer.h"
#include "template/lower.h"

#include <math.h>

enum { TASKS_PER_THREAD = 4, SMALL_WORK = 8192, MAX_CUTS = 32 };

kiln_symbol kiln_lowering_loop(kiln_lowering *w, const char *tensor, const char *part,
                               kiln_symbol dim) {
  return kiln_symbol_printf(w->cx, "%s.%s%s", tensor, part, kiln_symbol_text(w->cx, dim));
}

kiln_symbol kiln_lowering_name(kiln_lowering *w, const char *suffix, kiln_symbol dim) {
  return kiln_symbol_printf(w->cx, "%s.%s", kiln_symbol_text(w->cx, dim), suffix);
}

// Each load of a vector of several registers takes as many registers, and LLVM takes three times as
// long for four times as many: maps are as fast with fewer (bench/vectors.py).
static int64_t most_vectors_of(int n_loads) {
  enum { MOST_LOADS = 24 };
  const int64_t n = n_loads > 0 ? MOST_LOADS / n_loads : KILN_MOST_VECTORS;
  return n < 1 ? 1 : n > KILN_MOST_VECTORS ? KILN_MOST_VECTORS : n;
}

int64_t kiln_lowering_most_vectors(const kiln_lowering *w, const kiln_stmt *s) {
  return most_vectors_of(kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s).n);
}

// The most loads of an assignment under |l|.
static int loads_under(const kiln_lowering *w, const kiln_loop *l) {
  int most = 0;
  for (const kiln_loop *c = l->body; c; c = c->next) {
    const bool is_map = c->kind == KILN_LOOP_STORE && c->combiner == KILN_COMBINE_NONE;
    const int n = is_map ? kiln_loads_of(w->cx, &w->cx->scratch, c->value).n : loads_under(w, c);
    if (n > most) most = n;
  }
  return most;
}

int64_t kiln_lowering_vector(const kiln_lowering *w, int64_t extent, kiln_dtype t, int64_t most) {
  int64_t lanes = w->m->vector_bytes / (kiln_dtype_bytes(t) > 4 ? 8 : 4);
  for (int64_t n = most; n > 1; n--) // without a remainder
    if (extent % (n * lanes) == 0) return n * lanes;
  for (int64_t n = most; n >= 1; n /= 2)
    if (extent >= n * lanes) return n * lanes;
  return extent;
}

kiln_status kiln_lowering_vectorize(kiln_lowering *w, kiln_symbol loop, kiln_dtype t,
                                    kiln_tail tail) {
  const kiln_loop *l = kiln_loops_find(w->s.loops, loop);
  int64_t extent = 0;
  if (!l || !kiln_expr_is_int(l->extent, &extent)) return KILN_OK;
  const int64_t factor = kiln_lowering_vector(w, extent, t, most_vectors_of(loads_under(w, l)));
  if (factor < 2) return KILN_OK;
  if (factor == extent) return kiln_vectorize(&w->s, loop);
  const kiln_symbol inner = kiln_lowering_name(w, "i", loop);
  KILN_TRY(kiln_split(&w->s, loop, factor, tail, kiln_lowering_name(w, "o", loop), inner));
  return kiln_vectorize(&w->s, inner);
}

kiln_status kiln_lowering_vectorize_map(kiln_lowering *w, kiln_symbol loop, kiln_dtype t) {
  return kiln_lowering_vectorize(w, loop, t, KILN_TAIL_SHIFT);
}

// A name for a fused loop: another nest of the kernel may have fused some before.
static kiln_symbol free_name(const kiln_lowering *w, int n) {
  kiln_symbol name;
  do name = kiln_symbol_printf(w->cx, "f%d", n++);
  while (kiln_loops_find(w->s.loops, name) != NULL);
  return name;
}

// Whether unrolled steps spill: with one vector a row, LLVM puts a sum into its broadcast element's
// register, so that elements need as many registers as sums.
static bool spills(const kiln_lowering *w, int64_t rows, int64_t vectors) {
  return vectors == 1 && 2 * rows + vectors > w->m->n_vector_regs;
}

static int64_t steps_at_once(int64_t extent, int64_t rows, int64_t vectors) {
  enum { MOST_STEPS = 4, MOST_INSTRS = 80 };
  const int64_t fit = MOST_INSTRS / (rows * vectors + rows + vectors);
  int64_t steps = fit < MOST_STEPS ? fit : MOST_STEPS;
  while (steps > 1 && extent % steps != 0) steps--;
  return steps;
}

kiln_status kiln_lowering_split_steps(kiln_lowering *w, int64_t extent, int64_t rows,
                                      int64_t vectors, kiln_symbol *io_loop,
                                      kiln_symbol *out_steps) {
  const kiln_symbol loop = *io_loop;
  const int64_t steps = spills(w, rows, vectors) ? 1 : steps_at_once(extent, rows, vectors);
  *out_steps = 0;
  if (steps <= 1) return KILN_OK;
  *out_steps = steps == extent ? loop : kiln_lowering_name(w, "i", loop);
  *io_loop = steps == extent ? 0 : kiln_lowering_name(w, "o", loop);
  return *io_loop ? kiln_split(&w->s, loop, steps, KILN_TAIL_EXACT, *io_loop, *out_steps) : KILN_OK;
}

kiln_status kiln_lowering_parallel(kiln_lowering *w, int n, const kiln_symbol *loops,
                                   const int64_t *extents, kiln_symbol *out_first,
                                   int *out_n_fused) {
  *out_first = n ? loops[0] : 0;
  *out_n_fused = n ? 1 : 0;
  if (n == 0) return KILN_OK;
  int64_t tasks = extents[0], want = (int64_t)w->n_threads * TASKS_PER_THREAD;
  kiln_symbol fused = loops[0];
  // a few tasks that divide evenly are as good as many
  while (*out_n_fused < n && tasks < want && tasks % w->n_threads != 0) {
    kiln_symbol name = free_name(w, *out_n_fused);
    KILN_TRY(kiln_fuse(&w->s, fused, loops[*out_n_fused], name));
    tasks *= extents[(*out_n_fused)++];
    fused = name;
  }
  *out_first = fused;
  return tasks > 1 && w->n_threads > 1 ? kiln_parallel(&w->s, fused) : KILN_OK;
}

static bool is_small(const kiln_lowering *w) { return kiln_stmt_domain(w->root) < SMALL_WORK; }

// A map that reads its operand transposed, or is to be |across|, runs the n outer loops in the
// operand's order: lines that one iteration reads then stay in cache for the next. The loop over
// vectors of the last dim, if it is among them, steps by |vector| elements.
static kiln_status follow_operand(kiln_lowering *w, int n, int64_t vector, bool across,
                                  kiln_symbol *loops, int64_t *extents) {
  const kiln_expr *load = kiln_stmt_largest_load(w->cx, w->p, w->root);
  int64_t strides[KILN_MAX_RANK];
  for (int k = 0; k < n && load; k++) {
    strides[k] = kiln_load_stride(w->cx, w->p, load, w->root->dims[k].name);
    if (k + 1 == w->root->n_space && strides[k] < INT64_MAX / vector) strides[k] *= vector;
    across |= strides[k] == 1 && extents[k] > 1;
  }
  bool moved = false;
  for (int k = 1; k < n; k++) {
    const kiln_symbol loop = loops[k];
    const int64_t extent = extents[k], stride = strides[k];
    int at = k;
    for (; across && at > 0 && strides[at - 1] < stride; at--) {
      strides[at] = strides[at - 1];
      loops[at] = loops[at - 1];
      extents[at] = extents[at - 1];
    }
    strides[at] = stride;
    loops[at] = loop;
    extents[at] = extent;
    moved |= at < k;
  }
  return moved ? kiln_reorder(&w->s, n, loops) : KILN_OK;
}

// Where a concatenation goes from one operand to the next, ascending.
typedef struct joints {
  kiln_symbol dim;
  int n; // beyond MAX_CUTS: too many
  int64_t at[MAX_CUTS];
} joints;

static void find_joint(const kiln_expr *e, void *argument) {
  joints *j = argument;
  int64_t at = 0;
  if (e->kind != KILN_EXPR_SELECT || j->n > MAX_CUTS) return;
  const kiln_expr *c = e->args[0];
  if (c->kind != KILN_EXPR_LT || c->args[0]->kind != KILN_EXPR_VAR || c->args[0]->u.sym != j->dim ||
      !kiln_expr_is_int(c->args[1], &at))
    return;
  int k = 0;
  while (k < j->n && j->at[k] < at) k++;
  if (k < j->n && j->at[k] == at) return;
  if (j->n++ == MAX_CUTS) return;
  for (int i = j->n - 1; i > k; i--) j->at[i] = j->at[i - 1];
  j->at[k] = at;
}

// Whether the outermost loop, in steps of |factor|, can be split where a concatenation goes from
// one operand to the next, so that each part reads one operand: parts are long enough for the
// threads.
static bool find_joints(const kiln_lowering *w, int64_t factor, joints *out) {
  enum { FEWEST = 2 };
  *out = (joints){.dim = w->root->dims[0].name};
  kiln_expr_visit(w->cx, w->root->body, find_joint, out);
  bool fits = out->n >= FEWEST && out->n <= MAX_CUTS;
  int64_t inner = 1, before = 0;
  for (int d = 1; d < w->root->n_space; d++) inner *= kiln_lowering_extent(w->root, d);
  for (int i = 0; i < out->n && fits; i++) {
    fits = out->at[i] % factor == 0 && (out->at[i] - before) * inner >= SMALL_WORK;
    before = out->at[i];
  }
  return fits;
}

// Splits |loop| at the joints, the last part first, and shares each part among the threads.
static kiln_status cut_joints(kiln_lowering *w, kiln_symbol loop, int64_t factor, const joints *j) {
  kiln_symbol part = loop;
  for (int i = j->n - 1; i >= 0; i--) {
    KILN_TRY(kiln_peel(&w->s, loop, j->at[i] / factor));
    part = kiln_symbol_printf(w->cx, "%s.b", kiln_symbol_text(w->cx, part));
    if (w->n_threads > 1) KILN_TRY(kiln_parallel(&w->s, part));
  }
  return w->n_threads > 1 ? kiln_parallel(&w->s, loop) : KILN_OK;
}

// Whether all loads are strided along the map's short rows, and nearly contiguous along one of the
// loops around: vectors along that loop are transposed (target/cpu/turn.c).
static bool is_turned(const kiln_lowering *w) {
  enum { MOST_VECTORS = 4, MAX_STEP = 4 };
  const int last = w->root->n_space - 1;
  const int64_t row = kiln_lowering_extent(w->root, last);
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, w->root);
  if (row < 2 || row > MOST_VECTORS * w->lanes || loads.n == 0) return false;
  for (int d = 0; d < last; d++) {
    bool fits = kiln_lowering_extent(w->root, d) >= 2 * w->lanes;
    for (int i = 0; i < loads.n && fits; i++) {
      const int64_t along = kiln_load_stride(w->cx, w->p, loads.data[i], w->root->dims[d].name),
                    across = kiln_load_stride(w->cx, w->p, loads.data[i], w->root->dims[last].name);
      fits = along >= 1 && along <= MAX_STEP && across > along && across < INT64_MAX;
    }
    if (fits) return true;
  }
  return false;
}

// Loops over the result in storage order, the contiguous one vectorized, the outer ones shared
// among the threads.
static kiln_status lower_map(kiln_lowering *w, const kiln_tiling *t) {
  (void)t;
  int n = w->root->n_space;
  if (n == 0) return KILN_OK;
  kiln_symbol loops[KILN_MAX_RANK + 1];
  int64_t extents[KILN_MAX_RANK + 1];
  for (int k = 0; k < n; k++) {
    loops[k] = kiln_lowering_loop(w, "y", "", w->root->dims[k].name);
    extents[k] = kiln_lowering_extent(w->root, k);
  }
  const bool across = is_turned(w);
  int64_t extent = extents[n - 1],
          factor = across ? extent
                          : kiln_lowering_vector(w, extent, w->root->body->dtype,
                                                 kiln_lowering_most_vectors(w, w->root));
  kiln_symbol last = loops[n - 1], outer = kiln_lowering_name(w, "o", last),
              inner = kiln_lowering_name(w, "i", last);
  if (factor < extent) {
    KILN_TRY(kiln_split(&w->s, last, factor, KILN_TAIL_SHIFT, outer, inner));
    loops[n - 1] = outer;
    extents[n - 1] = kiln_divide_up(extent, factor);
  } else {
    inner = last;
    n--;
  }
  if (factor > 1) KILN_TRY(kiln_vectorize(&w->s, inner));
  joints j;
  const int64_t steps = w->root->n_space == 1 ? factor : 1;
  if (n > 0 && find_joints(w, steps, &j)) return cut_joints(w, loops[0], steps, &j);
  KILN_TRY(follow_operand(w, n, factor, across, loops, extents));
  kiln_symbol first;
  int fused;
  if (across && n > 1) n--; // the loop that vectors run along stays
  return is_small(w) ? KILN_OK : kiln_lowering_parallel(w, n, loops, extents, &first, &fused);
}

kiln_status kiln_lowering_try(kiln_lowering *w,
                              kiln_status (*step)(kiln_lowering *w, void *argument),
                              void *argument) {
  kiln_aside aside;
  KILN_TRY(kiln_aside_begin(w->cx, &aside));
  const kiln_status st = step(w, argument);
  kiln_aside_end(&aside);
  return st == KILN_BAD_INPUT ? KILN_OK : st;
}

static kiln_status run_parallel(kiln_lowering *w, void *argument) {
  return kiln_parallel(&w->s, *(const kiln_symbol *)argument);
}

// The naive loops, in parallel where that is legal.
static kiln_status lower_plain(kiln_lowering *w, const kiln_tiling *t) {
  (void)t;
  if (w->root->n_space == 0 || is_small(w) || w->n_threads < 2) return KILN_OK;
  kiln_symbol loop = kiln_lowering_loop(w, "y", "", w->root->dims[0].name);
  return kiln_lowering_try(w, run_parallel, &loop);
}

static kiln_status propose_map(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_tile_candidate one = {0};
  kiln_lowering_price(w, &one.cost);
  KILN_VEC_PUSH(w->proposed, out, one);
  return KILN_OK;
}

static kiln_status propose_plain(kiln_lowering *w, kiln_tile_candidates *out) {
  KILN_VEC_PUSH(w->proposed, out, (kiln_tile_candidate){.cost.ns = INFINITY});
  return KILN_OK;
}

const kiln_template kiln_template_map = {.name = "map",
                                         .kinds = 1u << KILN_GROUP_MAP,
                                         .propose = propose_map,
                                         .lower = lower_map,
                                         .by_loops = true};
const kiln_template kiln_template_plain = {
    .name = "plain", .propose = propose_plain, .lower = lower_plain};

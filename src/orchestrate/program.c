// Rows and columns for the solver, and interpretation of its solution. The initial kernels are the
// solution until the solver finds a cheaper one; they are not passed as a MIP start, which confuses
// column names in CBC 2.10.
#include "orchestrate/program.h"

#include "orchestrate/solver.h"

#include <math.h>
#include <string.h>

enum { MAX_ROUNDS = 40 }; // solutions, each after cycles were cut off

static const double SLACK = 1e-7; // tolerance for equal costs

typedef struct entry {
  int row;
  double value;
} entry;
typedef KILN_VEC(entry) entries;

typedef struct cut { // sum of u over |inside| <= n_inside - 1 + sum of u over |others|
  int n_inside, n_others, *inside, *others;
} cut;

typedef struct choosing {
  kiln_ctx *cx;
  const kiln_choice *c;
  int n_rows;
  int n_columns;
  entries *columns; // u, then y; then memory variables if memory is limited
  KILN_VEC(double) low;
  KILN_VEC(double) high;
  KILN_VEC(cut) cuts;
} choosing;

// --- rows ---

static int add_row(choosing *w, double low, double high) {
  KILN_VEC_PUSH(&w->cx->scratch, &w->low, low);
  KILN_VEC_PUSH(&w->cx->scratch, &w->high, high);
  return w->n_rows++;
}

static void put(choosing *w, int column, int row, double value) {
  KILN_VEC_PUSH(&w->cx->scratch, &w->columns[column], (entry){row, value});
}

static int y_of(const choosing *w, int prim) { return w->c->n_kernels + prim; }

static void add_results(choosing *w) {
  const kiln_choice *c = w->c;
  for (int p = 0; p < c->n_prims; p++) {
    const int row = add_row(w, 0, INFINITY);
    put(w, y_of(w, p), row, -1);
    for (int k = 0; k < c->n_kernels; k++)
      if (kiln_bits_has(c->kernels[k].results, p)) put(w, k, row, 1);
    const int once = c->stores_once ? add_row(w, -INFINITY, 1) : -1;
    for (int k = 0; once >= 0 && k < c->n_kernels; k++)
      if (kiln_bits_has(c->kernels[k].results, p)) put(w, k, once, 1);
    if (kiln_bits_has(c->needed, p)) put(w, y_of(w, p), add_row(w, 1, 1), 1);
  }
}

static void add_cover(choosing *w) {
  const kiln_choice *c = w->c;
  for (int p = kiln_bits_next(c->live, 0); p >= 0; p = kiln_bits_next(c->live, p + 1)) {
    const int row = add_row(w, 1, INFINITY);
    for (int k = 0; k < c->n_kernels; k++)
      if (kiln_bits_has(c->kernels[k].prims, p)) put(w, k, row, 1);
  }
}

static int last_in(const kiln_bits *prims) {
  int last = -1;
  for (int i = kiln_bits_next(prims, 0); i >= 0; i = kiln_bits_next(prims, i + 1)) last = i;
  return last;
}

// A class of kernels of which at most one runs, as they store the same result: |k| itself if
// results may be stored twice.
static int rival_of(const kiln_choice *c, int k) {
  return c->stores_once ? last_in(c->kernels[k].results) : k;
}

// Kernels of one class share a row for each result that they take: thousands of kernels then need
// only as many rows as there are pairs of prims, and the relaxation is tighter.
static void add_takes(choosing *w) {
  const kiln_choice *c = w->c;
  const int n_rivals = c->stores_once ? c->n_prims : c->n_kernels;
  int *rows = KILN_NEW_ARRAY(&w->cx->scratch, int, n_rivals * c->n_prims); // 0: no row yet
  for (int k = 0; k < c->n_kernels; k++)
    for (int p = kiln_bits_next(c->kernels[k].takes, 0); p >= 0;
         p = kiln_bits_next(c->kernels[k].takes, p + 1)) {
      int *row = &rows[rival_of(c, k) * c->n_prims + p];
      if (*row == 0) {
        *row = add_row(w, 0, INFINITY);
        put(w, y_of(w, p), *row, 1);
      }
      put(w, k, *row, -1);
    }
}

// --- memory ---

static bool is_limited(const kiln_choice *c) { return c->memory && c->memory->limit > 0; }

static int last_of(const kiln_choice *c, int kernel) { // the prim at whose place it runs
  return last_in(c->kernels[kernel].prims);
}

// Memory variables: one for each result (before[] ones after those of prims) and each moment, the
// time at which the kernels with that last prim run.
static int later_of(const choosing *w, int result, int moment) { // read at that moment or later
  const kiln_choice *c = w->c;
  return c->n_kernels + c->n_prims + result * c->n_prims + moment;
}
static int here_of(const choosing *w, int result, int moment) { // in memory at that moment
  const kiln_choice *c = w->c;
  return later_of(w, c->n_prims + c->memory->n_before + result, moment);
}

static int count_columns(const kiln_choice *c) {
  const int n = c->n_kernels + c->n_prims;
  return is_limited(c) ? n + (2 * c->n_prims + c->memory->n_before) * c->n_prims : n;
}

static void add_at_least(choosing *w, int column, int kernel) { // column >= u
  const int row = add_row(w, 0, INFINITY);
  put(w, column, row, 1);
  put(w, kernel, row, -1);
}

static void add_uses(choosing *w, int kernel, int moment) {
  const kiln_choice *c = w->c;
  const kiln_choice_kernel *k = &c->kernels[kernel];
  for (int p = 0; p < c->n_prims; p++) {
    const bool is_stored = kiln_bits_has(k->results, p);
    if (is_stored) add_at_least(w, here_of(w, c->memory->home[p], moment), kernel);
    if (is_stored && kiln_bits_has(c->needed, p))
      add_at_least(w, later_of(w, c->memory->home[p], c->n_prims - 1), kernel);
    if (!kiln_bits_has(k->takes, p)) continue;
    add_at_least(w, later_of(w, c->memory->home[p], moment), kernel);
    const int row = add_row(w, 0, INFINITY); // an earlier kernel stores it
    put(w, kernel, row, -1);
    for (int j = 0; j < c->n_kernels; j++)
      if (kiln_bits_has(c->kernels[j].results, p) && last_of(c, j) < moment) put(w, j, row, 1);
  }
  for (int b = 0; b < c->memory->n_before; b++)
    if (kiln_bits_meet(k->prims, c->memory->before[b].readers))
      add_at_least(w, later_of(w, c->n_prims + b, moment), kernel);
}

static void add_memory(choosing *w) {
  const kiln_choice *c = w->c;
  const kiln_choice_memory *m = c->memory;
  for (int k = 0; k < c->n_kernels; k++) add_uses(w, k, last_of(c, k));
  for (int t = 0; t < c->n_prims; t++) {
    const int room = add_row(w, -INFINITY, 1 - m->passing / m->limit);
    for (int r = 0; r < c->n_prims + m->n_before; r++) {
      const bool is_before = r >= c->n_prims;
      const double bytes = is_before ? m->before[r - c->n_prims].bytes : m->bytes[r];
      put(w, is_before ? later_of(w, r, t) : here_of(w, r, t), room, bytes / m->limit);
      if (t == 0) continue;
      int row = add_row(w, 0, INFINITY); // read later than now implies read later than before
      put(w, later_of(w, r, t - 1), row, 1);
      put(w, later_of(w, r, t), row, -1);
      if (is_before) continue;
      row = add_row(w, -1, INFINITY); // in memory before and read later: still in memory
      put(w, here_of(w, r, t), row, 1);
      put(w, here_of(w, r, t - 1), row, -1);
      put(w, later_of(w, r, t), row, -1);
    }
  }
}

static void sort_by_last(const kiln_choice *c, int n, int *io) {
  for (int i = 1; i < n; i++)
    for (int k = i; k > 0 && last_of(c, io[k - 1]) > last_of(c, io[k]); k--) {
      const int kernel = io[k];
      io[k] = io[k - 1];
      io[k - 1] = kernel;
    }
}

static bool fits(kiln_ctx *cx, const kiln_choice *c, int n, const int *kernels) {
  return !is_limited(c) || kiln_choice_peak(cx, c, n, kernels) <= c->memory->limit * (1 + SLACK);
}

static void add_limits(choosing *w) {
  if (is_limited(w->c)) add_memory(w);
  for (int i = 0; i < w->cuts.n; i++) {
    const cut *x = &w->cuts.data[i];
    const int row = add_row(w, -INFINITY, x->n_inside - 1);
    for (int k = 0; k < x->n_inside; k++) put(w, x->inside[k], row, 1);
    for (int k = 0; k < x->n_others; k++) put(w, x->others[k], row, -1);
  }
}

// --- order ---

static bool may_run(const kiln_choice *c, int kernel, const kiln_bits *stored) {
  return kiln_bits_is_subset(c->kernels[kernel].takes, stored);
}

static int order(kiln_ctx *cx, const kiln_choice *c, int n, int *io, kiln_bits **out_stored) {
  kiln_bits *stored = kiln_bits_make(&cx->scratch, c->n_prims);
  int done = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = done; i < n; i++) {
      const int kernel = io[i];
      if (!may_run(c, kernel, stored)) continue;
      memmove(io + done + 1, io + done, sizeof(int) * (size_t)(i - done));
      io[done++] = kernel;
      kiln_bits_add(stored, c->kernels[kernel].results);
      moved = true;
    }
  }
  *out_stored = stored;
  return done;
}

int kiln_choice_order(kiln_ctx *cx, const kiln_choice *c, int n, int *io) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_bits *stored;
  const int done = order(cx, c, n, io, &stored);
  kiln_arena_rewind(&cx->scratch, mark);
  return done;
}

// Cuts off a cycle of kernels that wait for each other's results: follows from stuck[0] a missing
// operand to a stuck kernel that stores it, until a kernel repeats. |stored| are results of kernels
// that have run.
static void cut_off(choosing *w, int n_stuck, const int *stuck, const kiln_bits *stored) {
  const kiln_choice *c = w->c;
  kiln_arena *a = &w->cx->scratch;
  cut x = {0, 0, KILN_NEW_ARRAY(a, int, n_stuck), KILN_NEW_ARRAY(a, int, c->n_kernels)};
  kiln_bits *awaited = kiln_bits_make(a, c->n_prims);
  bool *inside = KILN_NEW_ARRAY(a, bool, c->n_kernels);
  for (int at = stuck[0]; !inside[at];) { // follows the first missing operand
    kiln_bits *missing = kiln_bits_copy(a, c->kernels[at].takes);
    kiln_bits_remove(missing, stored);
    const int prim = kiln_bits_next(missing, 0);
    inside[at] = true;
    x.inside[x.n_inside++] = at;
    kiln_bits_set(awaited, prim);
    for (int i = 0; i < n_stuck; i++)
      if (kiln_bits_has(c->kernels[stuck[i]].results, prim)) {
        at = stuck[i];
        break;
      }
  }
  for (int k = 0; k < c->n_kernels; k++)
    if (!inside[k] && kiln_bits_meet(c->kernels[k].results, awaited)) x.others[x.n_others++] = k;
  KILN_VEC_PUSH(a, &w->cuts, x);
}

// Excludes the combination kernels[0..n).
static void forbid(choosing *w, int n, const int *kernels) {
  cut x = {n, 0, KILN_NEW_ARRAY(&w->cx->scratch, int, n), NULL};
  memcpy(x.inside, kernels, sizeof(int) * (size_t)n);
  KILN_VEC_PUSH(&w->cx->scratch, &w->cuts, x);
}

// --- solving ---

static double cost_of(const kiln_choice *c, int n, const int *kernels) {
  double cost = 0;
  for (int i = 0; i < n; i++) cost += c->kernels[kernels[i]].cost;
  return cost;
}

// Removes kernels from io[0..n), in order of execution, whose results are not needed.
static int drop_spare(kiln_ctx *cx, const kiln_choice *c, int n, int *io) {
  for (int i = n - 1; i >= 0; i--) {
    kiln_bits *stored;
    int *rest = KILN_NEW_ARRAY(&cx->scratch, int, n), k = 0;
    for (int j = 0; j < n; j++)
      if (j != i) rest[k++] = io[j];
    if (order(cx, c, k, rest, &stored) < k || !kiln_bits_is_subset(c->needed, stored)) continue;
    memcpy(io, rest, sizeof(int) * (size_t)k);
    n = k;
  }
  return n;
}

static double *ones(kiln_arena *a, int n) {
  double *all = KILN_NEW_ARRAY(a, double, n);
  for (int i = 0; i < n; i++) all[i] = 1;
  return all;
}

static kiln_solved run(choosing *w, const kiln_choice_solution *known, double *out_x,
                       double *out_bound, double *out_work) {
  const kiln_choice *c = w->c;
  kiln_arena *a = &w->cx->scratch;
  const int n = w->n_columns;
  int total = 0, *begin = KILN_NEW_ARRAY(a, int, n + 1);
  w->n_rows = w->low.n = w->high.n = 0;
  w->columns = KILN_NEW_ARRAY(a, entries, n);
  add_results(w);
  add_cover(w);
  add_takes(w);
  add_limits(w);
  for (int j = 0; j < n; j++) total += w->columns[j].n;
  int *rows = KILN_NEW_ARRAY(a, int, total);
  double *values = KILN_NEW_ARRAY(a, double, total), *cost = KILN_NEW_ARRAY(a, double, n);
  bool *is_whole = KILN_NEW_ARRAY(a, bool, n);
  for (int j = 0, at = 0; j < n; j++) {
    for (int i = 0; i < w->columns[j].n; i++, at++) {
      rows[at] = w->columns[j].data[i].row;
      values[at] = w->columns[j].data[i].value;
    }
    begin[j + 1] = at;
    is_whole[j] = j < c->n_kernels;
    cost[j] = is_whole[j] ? c->kernels[j].cost : 0;
  }
  const kiln_integer_program p = {.n_columns = n,
                                  .n_rows = w->n_rows,
                                  .cost = cost,
                                  .low = w->low.data,
                                  .high = w->high.data,
                                  .is_whole = is_whole,
                                  .begin = begin,
                                  .rows = rows,
                                  .entries = values,
                                  .upper = ones(a, n),
                                  .cutoff = known->cost + SLACK * (1 + known->cost),
                                  .nodes = c->nodes,
                                  .seconds = c->seconds,
                                  .work = c->work > 0 ? c->work - known->work : 0};
  return kiln_solver_run(&p, out_x, out_bound, out_work);
}

static kiln_status check_first(kiln_ctx *cx, const kiln_choice *c) {
  int *kernels = KILN_NEW_ARRAY(&cx->scratch, int, c->n_first);
  kiln_bits *stored;
  memcpy(kernels, c->first, sizeof(int) * (size_t)c->n_first);
  const int n = order(cx, c, c->n_first, kernels, &stored);
  if (n == c->n_first && kiln_bits_is_subset(c->needed, stored)) return KILN_OK;
  return KILN_FAIL(
      cx->diag, KILN_BAD_INPUT, NULL,
      "orchestration: the first kernels must give all that is needed, got %d of %d that "
      "can run",
      n, c->n_first);
}

// Accepts the solver's kernels if they can be ordered and cost less; otherwise adds a cut that
// excludes them.
//
// gives: whether they can be executed
static bool take(choosing *w, const double *x, kiln_choice_solution *io) {
  const kiln_choice *c = w->c;
  int n = 0, *chosen = KILN_NEW_ARRAY(&w->cx->scratch, int, c->n_kernels);
  kiln_bits *stored;
  for (int k = 0; k < c->n_kernels; k++)
    if (x[k] > 0.5) chosen[n++] = k;
  sort_by_last(c, n, chosen); // this order keeps few results live
  const int done = order(w->cx, c, n, chosen, &stored);
  if (done < n) cut_off(w, n - done, chosen + done, stored);
  const bool does_fit = fits(w->cx, c, done, chosen);
  if (done == n && !does_fit) forbid(w, n, chosen);
  if (does_fit && kiln_bits_is_subset(c->needed, stored)) { // even without stuck kernels
    const int spared = drop_spare(w->cx, c, done, chosen);
    const double cost = cost_of(c, spared, chosen);
    if (cost < io->cost) {
      io->n = spared;
      io->kernels = KILN_NEW_ARRAY(&w->cx->perm, int, spared);
      memcpy(io->kernels, chosen, sizeof(int) * (size_t)spared);
      io->cost = cost;
      io->is_first = false;
    }
  }
  return done == n && does_fit;
}

static void begin(kiln_ctx *cx, const kiln_choice *c, kiln_choice_solution *out) {
  *out = (kiln_choice_solution){
      .n = c->n_first, .kernels = KILN_NEW_ARRAY(&cx->perm, int, c->n_first), .is_first = true};
  memcpy(out->kernels, c->first, sizeof(int) * (size_t)c->n_first);
  sort_by_last(c, out->n, out->kernels);
  kiln_choice_order(cx, c, out->n, out->kernels);
  out->cost = fits(cx, c, out->n, out->kernels) ? cost_of(c, out->n, out->kernels) : INFINITY;
}

kiln_status kiln_choice_solve(kiln_ctx *cx, const kiln_choice *c, kiln_choice_solution *out) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  choosing w = {.cx = cx, .c = c, .n_columns = count_columns(c)};
  double *x = KILN_NEW_ARRAY(&cx->scratch, double, w.n_columns);
  kiln_status st = check_first(cx, c);
  if (st == KILN_OK && !kiln_solver_is_there())
    st = KILN_FAIL(cx->diag, KILN_UNSUPPORTED, NULL,
                   "orchestration: libCbcSolver.so.3 must be installed, got none");
  if (st == KILN_OK) begin(cx, c, out);
  for (int round = 0; st == KILN_OK && round < MAX_ROUNDS; round++) {
    double bound = 0, work = 0;
    const kiln_solved how = run(&w, out, x, &bound, &work);
    out->work += work;
    out->n_cycles = w.cuts.n;
    out->is_limited = how == KILN_SOLVED_FOUND || how == KILN_SOLVED_NOTHING;
    if (how == KILN_SOLVED_IMPOSSIBLE) bound = out->cost; // no cheaper solution exists
    out->bound = fmax(out->bound, fmin(bound, out->cost));
    if (how == KILN_SOLVED_IMPOSSIBLE || how == KILN_SOLVED_NOTHING) break;
    if (take(&w, x, out)) break;
    if (c->work > 0 && out->work >= c->work) {
      out->is_limited = true;
      break;
    }
  }
  if (st == KILN_OK && !isfinite(out->cost))
    st = KILN_FAIL(cx->diag, KILN_BAD_INPUT, c->place,
                   "memory limit: kernels must keep at most %.0f bytes of results at once, got %s; "
                   "those that are "
                   "connected keep %.0f",
                   c->memory->limit,
                   out->is_limited ? "none that do before the solver's limit" : "none that can",
                   kiln_choice_peak(cx, c, out->n, out->kernels));
  if (st == KILN_OK) out->bound = fmin(out->bound, out->cost);
  kiln_arena_rewind(&cx->scratch, mark);
  return st;
}

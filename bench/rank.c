// How well predicted times order the candidates of a kernel: Spearman's rank correlation with
// measured times, of the tile graph's cost and of the traffic of the lowered loops
// (price/traffic.h).
//
// usage: rank_bench MODEL.onnx KERNEL...   the kernels whose names begin so
//        KILN_RANK_VERBOSE=1 prints every candidate, =2 its schedule and loops as well
//        KILN_RANK_TIMES=FILE keeps measured times: schedules that are in it are not run again
//
// All candidates of a kernel that lower, and the best one's schedule with other register tiles and
// with its two outer loops the other way around, at most 40, are compiled, then run in turns on one
// thread; times are lower quartiles, as what disturbs them only adds. Data are small numbers.
// Candidates without a cost, which are tried when all others are refused, are left out.
#include "driver/stages.h"
#include "price/traffic.h"
#include "template/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 40, FEWEST = 5, ROUNDS = 9, MOST_ROUNDS = 31, N_MODELS = 2 };

typedef struct runner {
  const kiln_tile_candidate *c;
  int n_nests, n_args;
  kiln_kernel_fn nests[16];
  int64_t extents[16];
  char **args;
  double ns[MOST_ROUNDS], time, predicted[N_MODELS];
  double halves[2]; // the time by every second round
} runner;

typedef struct bench {
  kiln_build build;
  const char *model;
  int n_names;
  char **names;
  int n;
  double sum[N_MODELS];
} bench;

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// --- Spearman ---

static double rank_of(const double *v, int n, int i) {
  double rank = 0;
  for (int k = 0; k < n; k++) rank += v[k] < v[i] ? 1 : v[k] == v[i] && k != i ? 0.5 : 0;
  return rank;
}

static double spearman(const double *a, const double *b, int n) {
  double mean = (n - 1) / 2.0, ab = 0, aa = 0, bb = 0;
  for (int i = 0; i < n; i++) {
    const double x = rank_of(a, n, i) - mean, y = rank_of(b, n, i) - mean;
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static int least(const double *v, int n) {
  int at = 0;
  for (int i = 1; i < n; i++)
    if (v[i] < v[at]) at = i;
  return at;
}

// --- running ---

static char *filled(const kiln_buffer *b) {
  const size_t bytes = (size_t)(kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype) + 127) / 64 * 64;
  char *data = aligned_alloc(64, bytes);
  if (!data) abort();
  memset(data, 0, bytes);
  for (size_t i = 0; b->dtype == KILN_F32 && i < bytes / 4; i++)
    ((float *)data)[i] = (float)(i * 2654435761u % 64) / 64;
  return data;
}

static void prepare(runner *r, kiln_jit *jit, int number) {
  const kiln_loops *l = r->c->loops;
  r->n_nests = kiln_kernel_nests(l);
  for (int j = 0; j < r->n_nests && j < 16; j++) {
    char symbol[64];
    snprintf(symbol, sizeof symbol, "c%d_%d", number, j);
    void *found = NULL;
    (void)!kiln_jit_find(jit, symbol, NULL, &found);
    memcpy(&r->nests[j], &found, sizeof found);
    r->extents[j] = kiln_nest_extent(l, j);
  }
  r->args = calloc((size_t)l->buffers.n + 1, sizeof *r->args);
  for (int i = 0; r->args && i < l->buffers.n; i++) {
    const kiln_scope s = l->buffers.data[i]->scope;
    if (s == KILN_SCOPE_PARAM || s == KILN_SCOPE_WORKSPACE)
      r->args[r->n_args++] = filled(l->buffers.data[i]);
  }
}

static double run_once(const runner *r) {
  const double begin = now_ns();
  for (int j = 0; j < r->n_nests; j++) r->nests[j](r->args, 0, r->extents[j]);
  return now_ns() - begin;
}

static double lower_quartile(const double *ns, int n_rounds, int first, int step) {
  double sorted[MOST_ROUNDS];
  int n = 0;
  for (int i = first; i < n_rounds; i += step) sorted[n++] = ns[i];
  qsort(sorted, (size_t)n, sizeof *sorted, by_value);
  return sorted[n / 4];
}

// Each turn is at least a millisecond of runs, after one that fills the caches. Kernels that take
// below ten have more turns.
static void measure(runner *r, int n) {
  const int rounds = run_once(&r[0]) < 1e7 ? MOST_ROUNDS : ROUNDS;
  for (int round = 0; round < rounds; round++)
    for (int i = 0; i < n; i++) {
      const double one = run_once(&r[i]);
      const int repeats = (int)fmin(1000, 1 + 1e6 / one);
      double sum = 0;
      for (int k = 0; k < repeats; k++) sum += run_once(&r[i]);
      r[i].ns[round] = sum / repeats;
    }
  for (int i = 0; i < n; i++) {
    r[i].halves[0] = lower_quartile(r[i].ns, rounds, 0, 2);
    r[i].halves[1] = lower_quartile(r[i].ns, rounds, 1, 2);
    r[i].time = lower_quartile(r[i].ns, rounds, 0, 1);
  }
}

// --- kept times ---

static uint64_t hash_of(const char *text) {
  uint64_t h = 14695981039346656037u;
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
  return h;
}

static const char *key_of(kiln_ctx *cx, const bench *b, const kiln_kernel *k, const runner *r) {
  const char *slash = strrchr(b->model, '/');
  return kiln_arena_printf(&cx->perm, "%s %s %016llx", slash ? slash + 1 : b->model,
                           kiln_symbol_text(cx, k->name),
                           (unsigned long long)hash_of(r->c->script));
}

// Whether all of |r| are in the file.
static bool recall(kiln_ctx *cx, const bench *b, const kiln_kernel *k, runner *r, int n) {
  const char *path = getenv("KILN_RANK_TIMES");
  FILE *f = path ? fopen(path, "r") : NULL;
  char line[512];
  int found = 0;
  if (!f) return false;
  while (fgets(line, sizeof line, f)) {
    char *last = strrchr(line, ' ');
    if (!last) continue;
    *last = '\0';
    for (int i = 0; i < n; i++)
      if (strcmp(line, key_of(cx, b, k, &r[i])) == 0) {
        found += r[i].time == 0;
        r[i].time = atof(last + 1);
      }
  }
  fclose(f);
  return found == n;
}

static void keep(kiln_ctx *cx, const bench *b, const kiln_kernel *k, const runner *r, int n) {
  const char *path = getenv("KILN_RANK_TIMES");
  FILE *f = path ? fopen(path, "a") : NULL;
  if (!f) return;
  for (int i = 0; i < n; i++) fprintf(f, "%s %.1f\n", key_of(cx, b, k, &r[i]), r[i].time);
  fclose(f);
}

// --- kernels ---

static int lowered(const kiln_tile_candidates *c, runner *out) {
  int n = 0;
  for (int i = 0; i < c->n && n < MOST; i++)
    if (c->data[i].loops && isfinite(c->data[i].cost.ns)) out[n++] = (runner){.c = &c->data[i]};
  return n;
}

// --- other tiles ---

// The two splits of a contraction's schedule that make its register tile; conditions that count in
// such tiles rule others out.
typedef struct tiling {
  int row, col; // dims of the result
  int64_t rows, cols;
  const char *script;
} tiling;

static bool find_tiling(const char *script, tiling *out) {
  *out = (tiling){.row = -1, .col = -1, .script = script};
  for (const char *line = script; line && *line; line = strchr(line, '\n')) {
    int dim;
    long factor;
    line += *line == '\n';
    if (sscanf(line, "split y.i%d %ld", &dim, &factor) != 2) continue;
    if (out->row < 0) out->row = dim, out->rows = factor;
    else if (out->col < 0) out->col = dim, out->cols = factor;
    else return false;
  }
  return out->col > out->row && strstr(script, "compute_at t0") && !strstr(script, "specialize");
}

static const char *replaced(kiln_ctx *cx, const char *text, const char *from, const char *to) {
  kiln_text out;
  kiln_text_init(&out, &cx->perm);
  for (const char *at; (at = strstr(text, from)); text = at + strlen(from))
    kiln_text_printf(&out, "%.*s%s", (int)(at - text), text, to);
  kiln_text_add(&out, text);
  return out.data;
}

static const char *with_number(kiln_ctx *cx, const char *text, const char *before, int64_t from,
                               const char *behind, int64_t to) {
  return replaced(cx, text, kiln_arena_printf(&cx->perm, "%s%d%s", before, (int)from, behind),
                  kiln_arena_printf(&cx->perm, "%s%d%s", before, (int)to, behind));
}

// The script with other factors; |is_turned|: the outer loops in the other order.
static const char *retiled(kiln_ctx *cx, const tiling *t, int64_t rows, int64_t cols,
                           bool is_turned) {
  const char *row = kiln_arena_printf(&cx->perm, "split y.i%d ", t->row),
             *col = kiln_arena_printf(&cx->perm, "split y.i%d ", t->col), *s = t->script;
  s = with_number(cx, s, row, t->rows, " ", rows);
  s = with_number(cx, s, col, t->cols, " ", cols);
  s = with_number(cx, s, "/", t->cols, " ", cols);
  s = with_number(cx, s, "%", t->cols, "\n", cols);
  s = replaced(cx, s, "parallel ", "# ");
  for (int k = 0; is_turned && k < 2; k++) {
    const int x = k ? t->col : t->row, z = k ? t->row : t->col;
    const char *before = kiln_arena_printf(&cx->perm, "reorder y.i%d.o y.i%d.o", x, z);
    const char *inner = kiln_arena_printf(&cx->perm, "compute_at t0 y.i%d.o", z);
    if (!strstr(s, before)) continue;
    s = replaced(cx, s, before, kiln_arena_printf(&cx->perm, "reorder y.i%d.o y.i%d.o", z, x));
    return replaced(cx, s, inner, kiln_arena_printf(&cx->perm, "compute_at t0 y.i%d.o", x));
  }
  return is_turned ? NULL : s;
}

typedef struct extents {
  int64_t rows, cols, depth;
} extents;

// Two FMAs and two loads a cycle; sums are kept twice, so that the four cycles of an FMA are two of
// a step.
static double cycles_of(extents e, int64_t rows, int64_t vectors, int64_t lanes) {
  const double fma = (double)(rows * vectors) / 2, load = (double)(rows + vectors) / 2;
  const double tiles =
      ceil((double)e.rows / (double)rows) * ceil((double)e.cols / (double)(vectors * lanes));
  return tiles * (fmax(fmax(fma, load), 2) * (double)e.depth + 4 * fma);
}

// What the best candidate costs with another register tile: its arithmetic as the tile's cycles
// say.
static kiln_tile_cost cost_of(const kiln_ctx *cx, const bench *b, const kiln_kernel *k,
                              const tiling *t, const kiln_tile_cost *best, int64_t rows,
                              int64_t cols) {
  const kiln_machine *m = &b->build.request.machine;
  const kiln_stmt *root = k->prog->stmts.data[k->prog->stmts.n - 1], *sum = k->prog->stmts.data[0];
  const int64_t lanes = m->vector_bytes / 4;
  double others = 1, most = 0;
  extents e = {.depth = 1};
  for (int d = 0; d < root->n_space; d++) {
    const int64_t extent = kiln_dim_extent(&root->dims[d]);
    const int number =
        atoi(kiln_symbol_text(cx, root->dims[d].name) + 1); // i0, i2: ones are left out
    if (number == t->row) e.rows = extent;
    else if (number == t->col) e.cols = extent;
    else others *= (double)extent;
  }
  for (int d = sum->n_space; d < sum->n_space + sum->n_reduce; d++)
    e.depth *= kiln_dim_extent(&sum->dims[d]);
  kiln_tile_cost out = *best;
  out.compute_ns = others * cycles_of(e, rows, (cols + lanes - 1) / lanes, lanes) * 4 *
                   (double)lanes / m->device->unit_flops_ns[KILN_PEAK_F32];
  for (int l = 0; l < KILN_MAX_LEVELS; l++) most = fmax(most, out.level_ns[l]);
  out.ns = out.launch_ns + out.tail * fmax(most, out.compute_ns);
  return out;
}

static bool replay(kiln_ctx *cx, const kiln_kernel *k, const char *script, kiln_tile_candidate *c) {
  kiln_schedule s;
  if (!script || kiln_schedule_begin(cx, k->prog, &s) != KILN_OK ||
      kiln_schedule_replay(&s, script) != KILN_OK) {
    kiln_diag_clear(cx->diag);
    return false;
  }
  c->loops = s.loops;
  c->script = script;
  return true;
}

// Other register tiles, as long as they fit the registers.
static int add_tiles(kiln_ctx *cx, const bench *b, const kiln_kernel *k,
                     const kiln_tile_candidate *best, runner *out, int n) {
  static const int64_t rows[] = {2, 4, 6, 8, 12, 14}, vectors[] = {1, 2, 3, 4};
  const int64_t lanes = b->build.request.machine.vector_bytes / 4;
  tiling t;
  if (!find_tiling(best->script, &t)) return n;
  for (size_t i = 0; i < KILN_LEN(rows) * KILN_LEN(vectors) * 2; i++) {
    const int64_t r = rows[i / 2 % KILN_LEN(rows)], v = vectors[i / 2 / KILN_LEN(rows)];
    kiln_tile_candidate *c = KILN_NEW(&cx->perm, kiln_tile_candidate);
    if (n == MOST || r * v + v + 1 > b->build.request.machine.n_vector_regs) continue;
    *c = (kiln_tile_candidate){.from = best->from,
                               .form = best->form,
                               .tiling = {.tile = {r, v * lanes}, .variant = (int)(i % 2)}};
    c->cost = cost_of(cx, b, k, &t, &best->cost, r, v * lanes);
    if (replay(cx, k, retiled(cx, &t, r, v * lanes, i % 2), c)) out[n++] = (runner){.c = c};
  }
  return n;
}

static kiln_status compile(kiln_ctx *cx, bench *b, runner *r, int n, kiln_jit **out) {
  kiln_loops *loops[MOST];
  const char *symbols[MOST];
  const kiln_cpu_options options = {.n_threads = 1};
  kiln_object object;
  int n_objects = 0;
  for (int i = 0; i < n; i++) {
    loops[i] = r[i].c->loops;
    symbols[i] = kiln_arena_printf(&cx->perm, "c%d", i);
  }
  KILN_TRY(kiln_cpu_compile(cx, &b->build.request.machine, n, loops, symbols, &options, &n_objects,
                            &object));
  const kiln_status st = kiln_jit_create(cx, &b->build.request.machine, n_objects, &object, out);
  kiln_object_deinit(&object);
  return st;
}

static kiln_status predict(kiln_ctx *cx, const bench *b, runner *r) {
  kiln_tile_cost cost = r->c->cost;
  r->predicted[0] = cost.ns;
  KILN_TRY(kiln_traffic_price(cx, &b->build.request.machine, 1, r->c->loops, &cost));
  r->predicted[1] = cost.ns;
  if (getenv("KILN_RANK_VERBOSE")) {
    printf("    %-12s tile %3d %3d %3d block %5d %5d variant %d: %10.0f ns, cost %10.0f, flows "
           "%10.0f: compute %.0f",
           r->c->from->name, (int)r->c->tiling.tile[0], (int)r->c->tiling.tile[1],
           (int)r->c->tiling.tile[2], (int)r->c->tiling.block[0], (int)r->c->tiling.block[1],
           r->c->tiling.variant, r->time, r->predicted[0], r->predicted[1], cost.compute_ns);
    for (int l = 0; l < 5; l++) printf(" %.0f", cost.level_ns[l]);
    printf("\n");
    if (atoi(getenv("KILN_RANK_VERBOSE")) > 1) {
      kiln_text loops;
      kiln_text_init(&loops, &cx->perm);
      kiln_loops_print(cx, r->c->loops, &loops);
      printf("%s%s\n", r->c->script, loops.data);
    }
  }
  return KILN_OK;
}

// How well one half of the measurements orders the candidates as the other half does: no prediction
// can do much better. 1 where times were kept.
static double repetition(const runner *r, int n) {
  double a[MOST], b[MOST];
  for (int i = 0; i < n; i++) a[i] = r[i].halves[0], b[i] = r[i].halves[1];
  return n > 0 && a[0] > 0 ? spearman(a, b, n) : 1;
}

static kiln_status rank_kernel(kiln_ctx *cx, bench *b, kiln_kernel *k) {
  static runner r[MOST];
  double times[MOST], predicted[MOST], rho[N_MODELS];
  kiln_jit *jit = NULL;
  const kiln_tile_search_options options = {
      .machine = &b->build.request.machine, .n_threads = 1, .n_lowered = MOST};
  KILN_TRY(kiln_tile_lower(cx, &options, &k->candidates));
  int n = lowered(&k->candidates, r);
  if (n > 0) n = add_tiles(cx, b, k, r[0].c, r, n);
  if (n < FEWEST) {
    printf("%-28s %2d candidates: too few\n", kiln_symbol_text(cx, k->name), n);
    return KILN_OK;
  }
  if (!recall(cx, b, k, r, n)) {
    KILN_TRY(compile(cx, b, r, n, &jit));
    for (int i = 0; i < n; i++) prepare(&r[i], jit, i);
    measure(r, n);
    keep(cx, b, k, r, n);
  }
  for (int i = 0; i < n; i++) KILN_TRY(predict(cx, b, &r[i]));
  for (int m = 0; m < N_MODELS; m++) {
    for (int i = 0; i < n; i++) {
      times[i] = r[i].time;
      predicted[i] = r[i].predicted[m];
    }
    b->sum[m] += rho[m] = spearman(times, predicted, n);
  }
  b->n++;
  const double repeated = repetition(r, n);
  const double chosen = times[least(predicted, n)];
  qsort(times, (size_t)n, sizeof *times, by_value);
  printf("%-28s %2d candidates, %8.1f to %8.1f us: rank correlation of the cost %5.2f, of the "
         "flows %5.2f; first is %.2f of the best, the flows' %.2f; measured twice %.2f\n",
         kiln_symbol_text(cx, k->name), n, times[0] / 1e3, times[n - 1] / 1e3, rho[0], rho[1],
         r[0].time / times[0], chosen / times[0], repeated);
  fflush(stdout);
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < r[i].n_args; j++) free(r[i].args[j]);
    free(r[i].args);
  }
  if (jit) kiln_jit_destroy(jit);
  return KILN_OK;
}

static kiln_status run(kiln_ctx *cx, void *argument) {
  bench *b = argument;
  KILN_TRY(kiln_build_kernels(cx, &b->build));
  const kiln_kernels *k = &b->build.choices.kernels;
  for (int i = 0; i < k->kernels.n; i++)
    for (int j = 0; j < b->n_names; j++)
      if (strncmp(b->names[j], kiln_symbol_text(cx, k->kernels.data[i]->name),
                  strlen(b->names[j])) == 0)
        KILN_TRY(rank_kernel(cx, b, k->kernels.data[i]));
  return KILN_OK;
}

int main(int n, char **args) {
  if (n < 3) {
    fprintf(stderr, "usage: rank_bench MODEL.onnx KERNEL...\n");
    return 2;
  }
  kiln_diag *diag = kiln_diag_create();
  const kiln_compile_options options = {.struct_size = sizeof options, .threads = 1};
  bench b = {.model = args[1], .n_names = n - 2, .names = args + 2};
  kiln_status st = kiln_model_load(args[1], &options, diag, &b.build.request.model);
  if (st == KILN_OK) st = kiln_model_enter(b.build.request.model, diag, run, &b);
  for (size_t i = 0; st != KILN_OK && i < kiln_diag_count(diag); i++)
    fprintf(stderr, "%s\n", kiln_diag_message(diag, i));
  if (b.n) printf("mean of %d: cost %.2f, flows %.2f\n", b.n, b.sum[0] / b.n, b.sum[1] / b.n);
  kiln_build_deinit(&b.build);
  kiln_model_destroy(b.build.request.model);
  kiln_diag_destroy(diag);
  return st == KILN_OK ? 0 : 1;
}

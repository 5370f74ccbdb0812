// Random programs that resemble models, through the whole scheduler, for several machines:
// products, convolutions, rows, maps and layout statements in chains, with results that are read
// twice or kept. The launches' results in the simulator equal the interpreter's.
//
// KILN_CASES and KILN_SEED in the environment set the number of cases, and the first one.
#include "driver/pipeline.h"
#include "orchestrate/orchestrate.h"
#include "unit/tile/launches.h"
#include "unit/share.h"

enum { ROOM = 8192, SPARE = 5, MAX_CASE_TENSORS = KERNEL_MAX_TENSORS - SPARE };

typedef struct shape {
  int rank, extent[4];
} shape;

typedef struct author {
  uint64_t seed;
  char declared[ROOM], stated[ROOM];
  size_t n_declared, n_stated;
  int n_tensors, n_made; // of all, and of those that are results: t0, t1, ...
  shape made[MAX_CASE_TENSORS];
  const char *type;
} author;

static int below(author *a, int n) { return (int)(kernel_random(&a->seed) % (uint32_t)n); }
static bool chance(author *a, int one_in) { return below(a, one_in) == 0; }

static void put(char *text, size_t *n, const char *format, va_list args) {
  *n += (size_t)vsnprintf(text + *n, ROOM - *n, format, args);
  assert_true(*n < ROOM);
}
static void declare(author *a, const char *format, ...) KILN_PRINTF(2, 3);
static void declare(author *a, const char *format, ...) {
  va_list args;
  va_start(args, format);
  put(a->declared, &a->n_declared, format, args);
  va_end(args);
}
static void state(author *a, const char *format, ...) KILN_PRINTF(2, 3);
static void state(author *a, const char *format, ...) {
  va_list args;
  va_start(args, format);
  put(a->stated, &a->n_stated, format, args);
  va_end(args);
}

static int an_extent(author *a) {
  static const int some[] = {1,  2,  3,  4,  5,  7,  8,  9,  12, 16,
                             17, 20, 24, 31, 32, 33, 40, 48, 64, 70};
  return some[below(a, (int)KILN_LEN(some))];
}

static int elems(shape s) {
  int n = 1;
  for (int k = 0; k < s.rank; k++) n *= s.extent[k];
  return n;
}

static void declare_shape(author *a, shape s) {
  for (int k = 0; k < s.rank; k++) declare(a, "%s%d", k ? ", " : "", s.extent[k]);
  declare(a, ") ");
}

// Declares a constant or an input of |s|: w3(...); gives its number.
static int given(author *a, shape s) {
  const bool is_const = !chance(a, 4);
  declare(a, "%s %s w%d(", is_const ? "const" : "in", a->type, a->n_tensors);
  for (int k = 0; k < s.rank; k++) declare(a, "%s%d", k ? ", " : "", s.extent[k]);
  declare(a, is_const ? ") = ... " : ") ");
  return a->n_tensors++;
}

// Begins a statement: its result is t<n>, its space dims i0, i1, ...; some results are kept.
static int begin(author *a, shape s, const char *reduction) {
  const int t = a->n_made++;
  a->made[t] = s;
  a->n_tensors++;
  declare(a, "%s %s t%d(", chance(a, 8) ? "out" : "temp", a->type, t);
  declare_shape(a, s);
  state(a, "t%d(", t);
  for (int k = 0; k < s.rank; k++) state(a, "%si%d:%d", k ? ", " : "", k, s.extent[k]);
  state(a, "%s) ", reduction);
  return t;
}

// i0, i1, ...: the first |n| dims, followed by |last|.
static void put_dims(author *a, int n, const char *last) {
  for (int k = 0; k < n; k++) state(a, "%si%d", k ? ", " : "", k);
  if (*last) state(a, "%s%s", n ? ", " : "", last);
}

static void put_load(author *a, int t, const char *last) {
  state(a, "t%d(", t);
  put_dims(a, a->made[t].rank - (*last ? 1 : 0), last);
  state(a, ")");
}

// An earlier result of the shape of |t|, or -1.
static int earlier(author *a, int t) {
  for (int tries = 0; tries < 4 && t > 0; tries++) {
    const int u = below(a, t);
    if (!memcmp(&a->made[u], &a->made[t], sizeof(shape))) return u;
  }
  return -1;
}

// --- what a model does with its newest result, |t|; each says whether it applied ---

static bool product(author *a, int t) {
  shape s = a->made[t];
  const int depth = s.extent[s.rank - 1], n = an_extent(a);
  if (elems(s) * n > 40000) return false;
  const bool turned = chance(a, 2);
  const int w = given(a, turned ? (shape){2, {n, depth}} : (shape){2, {depth, n}});
  char reduction[32];
  snprintf(reduction, sizeof reduction, " | r0:%d", depth);
  s.extent[s.rank - 1] = n;
  begin(a, s, reduction);
  state(a, "+=! ");
  put_load(a, t, "r0");
  state(a, turned ? " * w%d(i%d, r0) " : " * w%d(r0, i%d) ", w, s.rank - 1);
  return true;
}

// With an earlier result of as many rows: scores of attention.
static bool scores(author *a, int t) {
  shape s = a->made[t];
  const int u = earlier(a, t), other = u < 0 ? t : u, n = s.rank < 2 ? 0 : s.extent[s.rank - 2];
  if (n == 0 || elems(s) * n > 40000) return false;
  char reduction[32];
  snprintf(reduction, sizeof reduction, " | r0:%d", s.extent[s.rank - 1]);
  s.extent[s.rank - 1] = n;
  begin(a, s, reduction);
  state(a, "+=! ");
  put_load(a, t, "r0");
  state(a, " * t%d(", other);
  put_dims(a, s.rank - 2, "");
  state(a, "%si%d, r0) ", s.rank > 2 ? ", " : "", s.rank - 1);
  return true;
}

// A window of 3 or 1, of images channels first: (1, C, H, W).
static bool convolution(author *a, int t) {
  shape s = a->made[t];
  if (s.rank != 4) return false;
  const int window = chance(a, 3) ? 1 : 3, stride = chance(a, 3) ? 2 : 1, channels = s.extent[1];
  const bool is_depthwise = chance(a, 3);
  const int n = is_depthwise ? channels : an_extent(a);
  if (s.extent[2] < window || s.extent[3] < window) return false;
  s.extent[2] = (s.extent[2] - window) / stride + 1;
  s.extent[3] = (s.extent[3] - window) / stride + 1;
  s.extent[1] = n;
  if (elems(s) * window * window * (is_depthwise ? 1 : channels) > 200000) return false;
  const int w = given(a, (shape){4, {n, is_depthwise ? 1 : channels, window, window}});
  char reduction[64];
  if (is_depthwise) snprintf(reduction, sizeof reduction, " | r0:%d, r1:%d", window, window);
  else snprintf(reduction, sizeof reduction, " | r2:%d, r0:%d, r1:%d", channels, window, window);
  begin(a, s, reduction);
  state(a, "+=! t%d(i0, %s, i2 * %d + r0, i3 * %d + r1) * w%d(i1, %s, r0, r1) ", t,
        is_depthwise ? "i1" : "r2", stride, stride, w, is_depthwise ? "0" : "r2");
  return true;
}

static bool pad(author *a, int t) {
  shape s = a->made[t];
  if (s.rank != 4 || s.extent[2] < 3 || s.extent[3] < 3) return false;
  const int h = s.extent[2], w = s.extent[3];
  s.extent[2] += 2;
  s.extent[3] += 2;
  begin(a, s, "");
  if (chance(a, 4))
    state(a, "= t%d(i0, i1, min(max(i2 - 1, 0), %d), min(max(i3 - 1, 0), %d)) ", t, h - 1, w - 1);
  else
    state(a, "= i2 >= 1 && i2 < %d && i3 >= 1 && i3 < %d ? t%d(i0, i1, i2 - 1, i3 - 1) : 0%s ",
          h + 1, w + 1, t, a->type);
  return true;
}

static bool pool(author *a, int t) {
  shape s = a->made[t];
  if (s.rank != 4 || s.extent[2] < 2 || s.extent[3] < 2) return false;
  s.extent[2] /= 2;
  s.extent[3] /= 2;
  begin(a, s, " | r0:2, r1:2");
  state(a, "%s t%d(i0, i1, i2 * 2 + r0, i3 * 2 + r1) ", chance(a, 2) ? "max=!" : "+=!", t);
  return true;
}

static bool map(author *a, int t) {
  const shape s = a->made[t];
  const int other = earlier(a, t), how = below(a, other < 0 ? 5 : 7);
  const int w = how == 0 ? given(a, (shape){1, {s.extent[s.rank - 1]}}) : 0;
  begin(a, s, "");
  state(a, "= ");
  if (how == 2) state(a, "max(");
  if (how == 3) state(a, "1%s / (1%s + exp(0%s - ", a->type, a->type, a->type);
  put_load(a, t, "");
  if (how == 0) state(a, " + w%d(i%d) ", w, s.rank - 1);
  if (how == 1) state(a, " * 0.5%s ", a->type);
  if (how == 2) state(a, ", 0%s) ", a->type);
  if (how == 3) state(a, " * 0.0625%s)) ", a->type);
  if (how == 4) state(a, " - 1%s ", a->type);
  if (how < 5) return true;
  state(a, how == 5 ? " + " : " * 0.25%s * ", a->type);
  put_load(a, other, "");
  state(a, " ");
  return true;
}

// Rows: a reduction along the last dim, used along that dim again.
static bool rows(author *a, int t) {
  shape s = a->made[t], outer = s;
  const int depth = s.extent[s.rank - 1];
  if (s.rank < 2) return false;
  outer.rank--;
  outer.extent[s.rank - 1] = 0;
  char reduction[32];
  snprintf(reduction, sizeof reduction, " | r0:%d", depth);
  const int m = begin(a, outer, reduction);
  state(a, chance(a, 2) ? "max=! " : "+=! ");
  put_load(a, t, "r0");
  state(a, " ");
  const int e = begin(a, s, "");
  state(a, chance(a, 2) ? "= exp((" : "= ((");
  put_load(a, t, "");
  state(a, " - ");
  put_load(a, m, "");
  state(a, ") * 0.015625%s) ", a->type);
  if (chance(a, 2)) return true;
  const int sum = begin(a, outer, reduction);
  state(a, "+=! ");
  put_load(a, e, "r0");
  state(a, " * ");
  put_load(a, e, "r0");
  state(a, " ");
  begin(a, s, "");
  state(a, "= ");
  put_load(a, e, "");
  state(a, " / (");
  put_load(a, sum, "");
  state(a, " + 1%s) ", a->type);
  return true;
}

static bool reduce(author *a, int t) {
  shape s = a->made[t];
  if (s.rank < 2) return false;
  const int at = below(a, s.rank), depth = s.extent[at];
  for (int k = at; k + 1 < s.rank; k++) s.extent[k] = s.extent[k + 1];
  s.extent[--s.rank] = 0;
  char reduction[32];
  snprintf(reduction, sizeof reduction, " | r0:%d", depth);
  begin(a, s, reduction);
  state(a, "%s t%d(", chance(a, 2) ? "max=!" : "+=!", t);
  for (int k = 0, i = 0; k <= s.rank; k++) {
    if (k == at) state(a, "%sr0", k ? ", " : "");
    else state(a, "%si%d", k ? ", " : "", i++);
  }
  state(a, ") ");
  return true;
}

static bool transpose(author *a, int t) {
  shape s = a->made[t];
  if (s.rank < 2) return false;
  const int u = below(a, s.rank), v = below(a, s.rank), e = s.extent[u];
  s.extent[u] = s.extent[v];
  s.extent[v] = e;
  begin(a, s, "");
  state(a, "= t%d(", t);
  for (int k = 0; k < s.rank; k++) state(a, "%si%d", k ? ", " : "", k == u ? v : k == v ? u : k);
  state(a, ") ");
  return true;
}

// Splits the dim in two, or merges it with the next.
static bool reshape_at(author *a, int t, int at, int factor) {
  shape s = a->made[t];
  const bool splits = s.rank < 4 && s.extent[at] % factor == 0;
  if (!splits && at + 1 == s.rank) return false;
  const int inner = s.extent[at + 1];
  s.rank += splits ? 1 : -1;
  if (splits) {
    for (int k = s.rank - 1; k > at; k--) s.extent[k] = s.extent[k - 1];
    s.extent[at] /= factor;
    s.extent[at + 1] = factor;
  } else {
    s.extent[at] *= inner;
    for (int k = at + 1; k < s.rank; k++) s.extent[k] = s.extent[k + 1];
    s.extent[s.rank] = 0;
  }
  begin(a, s, "");
  state(a, "= t%d(", t);
  for (int k = 0; k < a->made[t].rank; k++) {
    state(a, k ? ", " : "");
    if (splits && k == at) state(a, "i%d * %d + i%d", at, factor, at + 1);
    else if (!splits && k == at) state(a, "i%d / %d", at, inner);
    else if (!splits && k == at + 1) state(a, "i%d %% %d", at, inner);
    else state(a, "i%d", k < at ? k : splits ? k + 1 : k - 1);
  }
  state(a, ") ");
  return true;
}

static bool reshape(author *a, int t) {
  const int at = below(a, a->made[t].rank);
  return reshape_at(a, t, at, 2 + below(a, 3));
}

// i0, i1, ...: |of| dims, |moved| more or less at |at|.
static void put_moved(author *a, int of, int at, int moved) {
  for (int k = 0; k < of; k++) {
    state(a, "%si%d", k ? ", " : "", k);
    if (k == at && moved) state(a, moved < 0 ? " - %d" : " + %d", abs(moved));
  }
}

// Concatenates the result with an earlier one or an input, along a dim.
static bool join_at(author *a, int t, int at) {
  shape s = a->made[t], rest = s;
  const int n = s.extent[at], other = earlier(a, t), before = below(a, 2);
  if (elems(s) > 20000) return false;
  rest.extent[at] = other >= 0 ? n : 1 + below(a, 5);
  const int w = other >= 0 ? 0 : given(a, rest), behind = rest.extent[at];
  s.extent[at] += behind;
  begin(a, s, "");
  state(a, "= i%d < %d ? %c%d(", at, before ? n : behind, before || other >= 0 ? 't' : 'w',
        before       ? t
        : other >= 0 ? other
                     : w);
  put_moved(a, s.rank, at, 0);
  state(a, ") : %c%d(", !before || other >= 0 ? 't' : 'w', !before ? t : other >= 0 ? other : w);
  put_moved(a, s.rank, at, before ? -n : -behind);
  state(a, ") ");
  return true;
}

static bool join(author *a, int t) { return join_at(a, t, below(a, a->made[t].rank)); }

// A part along some dim.
static bool cut(author *a, int t) {
  shape s = a->made[t];
  const int at = below(a, s.rank), n = s.extent[at];
  if (n < 3) return false;
  const int from = below(a, n / 2);
  s.extent[at] = n - from - below(a, n / 3);
  begin(a, s, "");
  state(a, "= t%d(", t);
  put_moved(a, s.rank, at, from);
  state(a, ") ");
  return true;
}

// |x| if it is a number, otherwise 0.
static bool gate(author *a, int t) {
  begin(a, a->made[t], "");
  state(a, "= ");
  put_load(a, t, "");
  state(a, " > %s%s ? ", chance(a, 2) ? "0.5" : "-0.25", a->type);
  put_load(a, t, "");
  state(a, " : 0%s ", a->type);
  return true;
}

typedef bool step_fn(author *a, int t);

static step_fn *const steps[] = {
    product, product, product, convolution, convolution, pad,     pool, map,  map, map, rows,
    rows,    scores,  reduce,  transpose,   reshape,     reshape, join, join, cut, gate};

// The program; its last result is an output.
static char *program_of(author *a) {
  char *text = malloc(2 * ROOM + 64), name[32];
  assert_non_null(text);
  snprintf(name, sizeof name, "temp %s t%d(", a->type, a->n_made - 1);
  char *last = strstr(a->declared, name);
  if (last) memcpy(last, " out", 4);
  snprintf(text, 2 * ROOM + 64, "p { %s%s}", a->declared, a->stated);
  return text;
}

static char *write_program(author *a) {
  static const char *const types[] = {"f32", "f32", "f32", "f32", "f64"};
  a->type = types[below(a, (int)KILN_LEN(types))];
  shape s = {.rank = 2 + below(a, 3)};
  if (s.rank == 4) s = (shape){4, {1, an_extent(a), 4 + below(a, 16), 4 + below(a, 16)}};
  else
    for (int k = 0; k < s.rank; k++)
      s.extent[k] = s.rank == 3 && k == 0 ? 1 + below(a, 4) : an_extent(a);
  const int x = given(a, s), n = 2 + below(a, 7);
  begin(a, s, ""); // the first result: a map of an input
  state(a, "= w%d(", x);
  put_dims(a, s.rank, "");
  state(a, ") + 1%s ", a->type);
  for (int i = 0; i < n && a->n_tensors + SPARE < MAX_CASE_TENSORS; i++) {
    const int t = a->n_made > 1 && chance(a, 6) ? below(a, a->n_made) : a->n_made - 1;
    steps[below(a, (int)KILN_LEN(steps))](a, t);
  }
  const int newest = a->n_made - 1;
  begin(a, a->made[newest], "");
  state(a, "= ");
  put_load(a, newest, "");
  state(a, " * 2%s ", a->type);
  return program_of(a);
}

// Sums may be in another order, and Winograd's cancel: an error is measured by the largest element.
static void compare_norm(test_kernel *k, const kiln_tensor *t, const void *got, const char *text) {
  int64_t strides[KILN_MAX_RANK];
  storage_bytes(t, strides);
  const void *want = kiln_interpreter_data(k->reference, t->id);
  double largest = 1;
  for (int64_t i = 0; i < kiln_tensor_elems(t); i++)
    largest = fmax(largest, fabs(kiln_element_get(t->dtype, want, i)));
  for (int64_t i = 0; i < kiln_tensor_elems(t); i++) {
    const double w = kiln_element_get(t->dtype, want, i), g = kiln_element_get(t->dtype, got, i);
    if (w != g && !(fabs(w - g) <= 1e-5 * largest) && !(isnan(w) && isnan(g)))
      fail_msg("element %lld must be %g, got %g in %s", (long long)i, w, g, text);
  }
}

// Kernels that orchestration chooses if the costs of those of cost-driven fusion are raised.
static kiln_status choose_others(kiln_ctx *cx, void *user, const kiln_program *p,
                                 const kiln_facts *facts, const kiln_tile_search_options *search,
                                 kiln_searches *known, kiln_fused_groups *io,
                                 kiln_edge_decisions *io_edges) {
  const kiln_orchestrate_options options = {.worth = -0.6};
  kiln_orchestration *out = KILN_NEW(&cx->perm, kiln_orchestration);
  (void)user;
  return kiln_orchestrate(cx, p, facts, search, known, &options, io, io_edges, out);
}

// Gives how many kernels have several results.
static int check_text(const char *text, uint64_t seed) {
  static const char *const machines[] = {"avx512vnni", "avx2", "neon"};
  test_kernel k;
  kernel_open(&k, text, seed);
  kiln_machine m;
  assert_int_equal(kiln_machine_named(&k.cx, machines[seed % KILN_LEN(machines)], &m), KILN_OK);
  const kiln_tile_options options = {.search.n_threads = 1 + (int)(seed / 3 % 2),
                                     .orchestrate = seed % 4 == 1 ? choose_others : NULL};
  kiln_kernels kernels;
  if (kiln_pipeline_tile(&k.cx, k.prog, &m, &options, NULL, &kernels) != KILN_OK)
    fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, kernel_message(&k), text);
  check_launches(&k, &kernels, compare_norm, text);
  int n_several = 0;
  for (int i = 0; i < kernels.kernels.n; i++)
    n_several += kernels.kernels.data[i]->prog->outputs.n > 1;
  kernel_close(&k);
  return n_several;
}

static int check_case(uint64_t seed) {
  author a = {.seed = seed * 7919 + 1};
  char *text = write_program(&a);
  const int n_several = check_text(text, seed);
  free(text);
  return n_several;
}

// A product's rows or columns viewed as two dims, mapped, with other elements before or after along
// one of them: as tokens after a class token.
static void check_view(uint64_t seed) {
  enum { DEPTH = 16 };
  author a = {.seed = seed * 7919 + 1, .type = "f32"};
  const int n[3] = {2 + below(&a, 4), 2 + below(&a, 7), 4 + 4 * below(&a, 6)};
  const int at = below(&a, 3), others = 1 + below(&a, 2);
  const bool splits_rows = chance(&a, 2), in_front = chance(&a, 2);
  const int rows = splits_rows ? n[0] * n[1] : n[0], columns = splits_rows ? n[2] : n[1] * n[2];
  shape rest = {3, {n[0], n[1], n[2]}}, all = rest;
  rest.extent[at] = others;
  all.extent[at] += others;
  const int x = given(&a, (shape){2, {rows, DEPTH}}), w = given(&a, (shape){2, {DEPTH, columns}}),
            z = given(&a, rest);
  begin(&a, (shape){2, {rows, columns}}, " | r0:16");
  state(&a, "+=! w%d(i0, r0) * w%d(r0, i1) ", x, w);
  begin(&a, (shape){3, {n[0], n[1], n[2]}}, "");
  if (splits_rows) state(&a, "= max(t0(i0 * %d + i1, i2), 0f32) ", n[1]);
  else state(&a, "= max(t0(i0, i1 * %d + i2), 0f32) ", n[2]);
  begin(&a, all, "");
  state(&a, "= i%d < %d ? %s%d(i0, i1, i2) : %s%d(", at, in_front ? others : n[at],
        in_front ? "w" : "t", in_front ? z : 1, in_front ? "t" : "w", in_front ? 1 : z);
  put_moved(&a, 3, at, in_front ? -others : -n[at]);
  state(&a, ") ");
  begin(&a, all, "");
  state(&a, "= t2(i0, i1, i2) * 2f32 ");
  char *text = program_of(&a);
  check_text(text, seed);
  free(text);
}

static void random_programs_compute_what_they_say(void **state_) {
  (void)state_;
  const uint64_t first = test_asked("KILN_SEED", 1), n = test_asked("KILN_CASES", 150);
  int n_several = 0;
  for (uint64_t seed = first; seed < first + n; seed++) {
    n_several += check_case(seed);
    if (getenv("KILN_CASES")) fprintf(stderr, "%llu\n", (unsigned long long)seed);
  }
  print_message("%d kernels with several results\n", n_several);
  assert_true(n_several > 0 || getenv("KILN_CASES"));
}

static void views_of_products_lie_inside_larger_tensors(void **state_) {
  (void)state_;
  const uint64_t first = test_asked("KILN_SEED", 1), n = test_asked("KILN_CASES", 60);
  for (uint64_t seed = first; seed < first + n; seed++) check_view(seed);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs_compute_what_they_say),
                                     cmocka_unit_test(views_of_products_lie_inside_larger_tensors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

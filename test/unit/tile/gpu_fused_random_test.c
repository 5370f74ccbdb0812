// Random products, maps and reductions of rows, as one fused tile: its loops, its device loops and,
// where this machine has an OpenCL device, its OpenCL C compute what the interpreter says.
#include "unit/tile/gpu_candidates.h"

#include "unit/gpu/device.h"
#include "verify/loops.h"

enum { CASES = 12 };

// --- programs ---

typedef struct writer {
  uint64_t state;
  kiln_text tensors, stmts;
  const char *in; // the type of operands
  int m, n, count;
  char tiles[32][8], rows[32][8]; // what may be read: elements of the current columns, and rows
  int n_tiles, n_rows;
} writer;

static int pick(writer *w, int n) {
  w->state = w->state * 6364136223846793005u + 1442695040888963407u;
  return (int)((w->state >> 33) % (uint64_t)n);
}

static const char *some(writer *w, char (*names)[8], int n) { return names[pick(w, n)]; }

// A product, of memory or of a tile, whose columns the next statements have.
static void write_product(writer *w, bool of_tile) {
  const int k = of_tile ? w->n : 1 + pick(w, 60), n = 5 + pick(w, 120), i = w->count++;
  const char *left = of_tile ? some(w, w->tiles, w->n_tiles) : "A";
  if (!of_tile) kiln_text_printf(&w->tensors, "in %s A(%d, %d) ", w->in, w->m, k);
  kiln_text_printf(&w->tensors, "in %s B%d(%d, %d) temp f32 T%d(%d, %d) ", of_tile ? "f32" : w->in,
                   i, k, n, i, w->m, n);
  kiln_text_printf(&w->stmts, "T%d(i0:%d, i1:%d | r0:%d) +=! f32(%s(i0, r0)) * f32(B%d(r0, i1)) ",
                   i, w->m, n, k, left, i);
  w->n = n;
  w->n_tiles = 0;
  snprintf(w->tiles[w->n_tiles++], 8, "T%d", i);
}

static void write_reduction(writer *w) {
  static const char *const combiners[] = {"+=!", "max=!", "min=!"};
  const int i = w->count++;
  const char *tile = some(w, w->tiles, w->n_tiles);
  kiln_text_printf(&w->tensors, "temp f32 R%d(%d) ", i, w->m);
  kiln_text_printf(&w->stmts, "R%d(i0:%d | r0:%d) %s ", i, w->m, w->n, combiners[pick(w, 3)]);
  kiln_text_printf(&w->stmts, "%s(i0, r0) / (1f32 + abs(%s(i0, r0)))", tile, tile);
  if (w->n_rows && pick(w, 2))
    kiln_text_printf(&w->stmts, " + %s(i0)", some(w, w->rows, w->n_rows));
  kiln_text_add(&w->stmts, " ");
  snprintf(w->rows[w->n_rows++], 8, "R%d", i);
}

static void write_map_of_rows(writer *w) {
  const int i = w->count++;
  const char *row = some(w, w->rows, w->n_rows);
  kiln_text_printf(&w->tensors, "temp f32 M%d(%d) ", i, w->m);
  kiln_text_printf(&w->stmts, "M%d(i0:%d) = 1f32 / (2f32 + abs(%s(i0))) ", i, w->m, row);
  snprintf(w->rows[w->n_rows++], 8, "M%d", i);
}

static void write_map(writer *w) {
  const int i = w->count++;
  const char *tile = some(w, w->tiles, w->n_tiles);
  kiln_text_printf(&w->tensors, "temp f32 E%d(%d, %d) ", i, w->m, w->n);
  kiln_text_printf(&w->stmts, "E%d(i0:%d, i1:%d) = %s(i0, i1) * 0.5f32", i, w->m, w->n, tile);
  if (w->n_rows && pick(w, 2))
    kiln_text_printf(&w->stmts, " - %s(i0)", some(w, w->rows, w->n_rows));
  if (pick(w, 3) == 0) {
    kiln_text_printf(&w->tensors, "in f32 G%d(%d) ", i, w->n);
    kiln_text_printf(&w->stmts, " + G%d(i1)", i);
  }
  kiln_text_add(&w->stmts, " ");
  snprintf(w->tiles[w->n_tiles++], 8, "E%d", i);
}

// The result reads all that is there, so that nothing is in vain.
static const char *write_program(kiln_arena *arena, uint64_t seed) {
  writer w = {.state = seed * 77 + 5};
  kiln_text_init(&w.tensors, arena);
  kiln_text_init(&w.stmts, arena);
  w.in = pick(&w, 3) ? "f32" : "f16";
  w.m = 16 + pick(&w, 90);
  write_product(&w, false);
  for (int i = 2 + pick(&w, 5); i > 0; i--) {
    const int what = pick(&w, 8);
    if (what == 0 && w.in[1] == '3') write_product(&w, true);
    else if (what < 4) write_reduction(&w);
    else if (what == 4 && w.n_rows) write_map_of_rows(&w);
    else write_map(&w);
  }
  if (w.n_rows == 0) write_reduction(&w);
  kiln_text_printf(&w.tensors, "out f32 Y(%d, %d) ", w.m, w.n);
  kiln_text_printf(&w.stmts, "Y(i0:%d, i1:%d) = 0.125f32", w.m, w.n);
  for (int i = 0; i < w.n_tiles; i++) kiln_text_printf(&w.stmts, " + %s(i0, i1)", w.tiles[i]);
  for (int i = 0; i < w.n_rows; i++) kiln_text_printf(&w.stmts, " + %s(i0)", w.rows[i]);
  return kiln_arena_printf(arena, "p { %s %s }", w.tensors.data, w.stmts.data);
}

// --- runs ---

typedef enum how { BY_LOOPS, BY_DEVICE_LOOPS, BY_OPENCL } how;

typedef struct arguments {
  void *data[MAX_TENSORS];
  size_t bytes[MAX_TENSORS];
  int tensors[MAX_TENSORS], n; // of the program; -1: a workspace
} arguments;

static void make_arguments(test_kernel *k, const kiln_launch *launch, const kiln_loops *l,
                           arguments *out) {
  int param = 0;
  *out = (arguments){0};
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (b->scope != KILN_SCOPE_PARAM && b->scope != KILN_SCOPE_WORKSPACE) continue;
    const int t = b->scope == KILN_SCOPE_PARAM ? launch->args[param++].tensor : -1;
    const kiln_tensor *x = t < 0 ? NULL : k->prog->tensors.data[t];
    const size_t bytes = (size_t)(kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype));
    out->bytes[out->n] = bytes;
    out->data[out->n] = calloc(1, bytes + 1);
    if (x && x->role == KILN_INPUT) memcpy(out->data[out->n], k->data[t], x->bytes);
    out->tensors[out->n++] = t;
  }
}

static void run_opencl(test_kernel *k, opencl *pocl, const kiln_machine *m, kiln_loops *l,
                       arguments *a) {
  kiln_text source;
  kiln_gpu_launch *launches;
  int n = 0;
  kiln_text_init(&source, &k->cx.perm);
  if (kiln_gpu_emit(&k->cx, m, l, "k", &source, &n, &launches) != KILN_OK)
    fail_msg("%s", kernel_message(k));
  opencl_run(pocl, source.data, "k", n, launches, a->n, a->data, a->bytes);
}

static void run(test_kernel *k, const kiln_launch *launch, const kiln_machine *m, kiln_loops *l,
                how by, opencl *pocl, const char *text) {
  arguments a;
  make_arguments(k, launch, l, &a);
  kiln_status st = KILN_OK;
  if (by == BY_LOOPS) st = kiln_sim_run(&k->cx, l, a.data);
  if (by == BY_DEVICE_LOOPS) st = kiln_loops_simulate(&k->cx, m, l, a.data, 0, NULL, NULL);
  if (by == BY_OPENCL) run_opencl(k, pocl, m, l, &a);
  if (st != KILN_OK) fail_msg("%s: %s", text, kernel_message(k));
  for (int i = 0; i < a.n; i++) {
    if (a.tensors[i] >= 0 && k->prog->tensors.data[a.tensors[i]]->role == KILN_OUTPUT)
      compare_halves(k, k->prog->tensors.data[a.tensors[i]], a.data[i], text);
    free(a.data[i]);
  }
}

// Runs the |n|-th of the fused tiles that are proposed for |text|; gives whether there are any.
static bool check(const kiln_machine *m, const char *text, uint64_t n, int n_ways, const how *ways,
                  opencl *pocl) {
  test_kernel k;
  kiln_kernels kernels;
  kiln_kernel *kernel = lowered(&k, m, text, 8, true, &kernels);
  const kiln_tile_candidate *found[8];
  int n_found = 0;
  for (int i = 0; i < kernel->candidates.n && n_found < 8; i++) {
    const kiln_tile_candidate *c = &kernel->candidates.data[i];
    if (strcmp(c->from->name, "fused_tile") != 0) continue;
    if (c->refused) fail_msg("%s: %s", text, c->refused);
    if (c->loops) found[n_found++] = c;
  }
  for (int i = 0; n_found > 0 && i < n_ways; i++)
    run(&k, &kernels.launches.data[0], m, found[n % (uint64_t)n_found]->loops, ways[i], pocl, text);
  kernel_close(&k);
  return n_found > 0;
}

static void random_tiles_compute_what_the_interpreter_says(void **state) {
  static const how simulated[] = {BY_LOOPS, BY_DEVICE_LOOPS}, compiled[] = {BY_OPENCL};
  const char *cases = getenv("KILN_TEST_CASES");
  const uint64_t n = cases ? strtoull(cases, NULL, 10) : CASES;
  opencl pocl;
  kiln_machine by_opencl;
  kiln_arena arena;
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  uint64_t n_tiles = 0;
  (void)state;
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  assert_int_equal(kiln_gpu_machine_named(&cx, "opencl", &by_opencl), KILN_OK);
  const bool has_device = opencl_open(&pocl);
  for (uint64_t i = 0; i < n; i++) {
    kiln_arena_init(&arena, NULL);
    const char *text = write_program(&arena, i);
    n_tiles += check(&machine, text, i, (int)KILN_LEN(simulated), simulated, NULL);
    if (has_device) (void)check(&by_opencl, text, i, (int)KILN_LEN(compiled), compiled, &pocl);
    kiln_arena_deinit(&arena);
  }
  if (has_device) opencl_close(&pocl);
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
  if (2 * n_tiles < n) fail_msg("half of the programs must be tiles, got %d", (int)n_tiles);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_tiles_compute_what_the_interpreter_says)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

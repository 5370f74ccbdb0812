// Modules for ranges of dimensions through CUDA's interface, played by fake_cuda.c: the module of
// module.h for 0 to ROWS rows, in two variants, whose grids are of the rows that a run has. Tensors
// of fewer rows than a variant's, of the host and of the device, are copied to and from its
// extents; graphs are kept for several numbers of rows.
#include "gpu/fake_cuda.h"
#include "gpu/module.h"
#include "runtime/gpu/gpu.h"

#include <dlfcn.h>
#include <stdio.h>

static const char *const sources[] = {"fake sm_90 add", "fake sm_90 scale"};
static fake_cuda *fake;

static int reset(void **state) {
  (void)state;
  assert_int_equal(fake->live, 0); // whatever a test did, nothing is left
  *fake = (fake_cuda){
      .n_devices = 1, .major = 9, .memory_bytes = 1 << 20, .fail_launch = -1, .version = 13000};
  return 0;
}

static void must(kiln_status st, kiln_diag *diag) {
  if (st != KILN_OK) fail_msg("%s", kiln_diag_count(diag) ? kiln_diag_message(diag, 0) : "?");
}

// --- the module ---

enum { SMALL = 8 }; // the most rows of the first variant

// A plan for |rows| rows, whose arena has |more| bytes, with one more input: the dimensions.
static void *make_plan(int64_t rows, uint64_t more, size_t *out_bytes) {
  const size_t bytes[2] = {strlen(sources[0]) + 1, strlen(sources[1]) + 1};
  kiln_plan_port inputs[2];
  gpu_plan g;
  void *blob = NULL;
  gpu_plan_make(&g, KILN_PLAN_CUDA, "sm_90a", bytes);
  inputs[0] = g.inputs[0];
  inputs[1] = (kiln_plan_port){"dims", kiln_type_find("i64"), 1, {1}, 8, 0};
  g.plan.inputs = inputs;
  g.plan.n_inputs = 2;
  g.plan.arena_bytes += more;
  inputs[0].shape[0] = g.outputs[0].shape[0] = g.outputs[1].shape[1] = g.outputs[2].shape[0] = rows;
  for (int i = 0; i < 5; i++)
    if (i != 1) g.args[i].bytes = (uint64_t)(4 * COLS * rows);
  for (int i = 0; i < 2; i++) g.copies[i].from.bytes = (uint64_t)(4 * COLS * rows);
  g.nests[0].grid[0] = g.nests[1].grid[0] = (uint32_t)((COLS * rows + BLOCK - 1) / BLOCK);
  g.nests[1].maps[0].rows[0] = g.nests[1].maps[1].rows[1] = (uint64_t)rows;
  g.nests[1].maps[1].pitches[2] = (uint64_t)(4 * COLS * rows);
  kiln_plan_write(&g.plan, &blob, out_bytes);
  assert_non_null(blob);
  return blob;
}

static kiln_module *make_module(void) {
  const kiln_type *f32 = kiln_type_find("f32");
  kiln_formula_step rows = {KILN_FORMULA_DIM, 0}, cols = {KILN_FORMULA_CONST, COLS};
  kiln_dim_range dim = {"rows", 0, ROWS, 1};
  kiln_dynamic_port input = {"x", f32, 2, {{1, &rows}, {1, &cols}}};
  kiln_dynamic_port outputs[] = {{"y", f32, 2, {{1, &rows}, {1, &cols}}},
                                 {"yt", f32, 2, {{1, &cols}, {1, &rows}}},
                                 {"xx", f32, 2, {{1, &rows}, {1, &cols}}}};
  kiln_variant variants[] = {{.least = {0}, .most = {SMALL}},
                             {.least = {SMALL + 1}, .most = {ROWS}}};
  kiln_formula_step blocks[] = {rows,
                                {KILN_FORMULA_CONST, COLS},
                                {KILN_FORMULA_MUL, 0},
                                {KILN_FORMULA_CONST, BLOCK - 1},
                                {KILN_FORMULA_ADD, 0},
                                {KILN_FORMULA_CONST, BLOCK},
                                {KILN_FORMULA_DIV, 0}};
  kiln_trim trims[] = {{0, 0, {7, blocks}}, {1, 0, {7, blocks}}};
  void *plans[2], *blob = NULL;
  kiln_module *m = NULL;
  kiln_diag *diag = kiln_diag_create();
  char *code = calloc(1, 128);
  assert_non_null(code);
  for (int i = 0; i < 2; i++) {
    size_t bytes = 0;
    variants[i].plan = plans[i] = make_plan(variants[i].most[0], 64 * (uint64_t)i, &bytes);
    variants[i].plan_bytes = bytes;
    variants[i].trims = trims;
    variants[i].n_trims = 2;
    strcpy(code + 64 * i, sources[i]);
  }
  const kiln_dynamic d = {1, 1, 3, 2, &dim, &input, outputs, variants, NULL};
  kiln_module_parts parts = {.weights = (const char *)module_weights,
                             .code = code,
                             .owner = code,
                             .release = gpu_code_release};
  for (int i = 0; i < COLS; i++) module_weights[i] = (float)i;
  kiln_dynamic_write(&d, &blob, &parts.plan_bytes);
  parts.plan = blob;
  must(kiln_module_create(&parts, diag, &m), diag);
  for (int i = 0; i < 2; i++) free(plans[i]);
  free(blob);
  kiln_diag_destroy(diag);
  return m;
}

// --- runs ---

typedef struct rig {
  kiln_module *module;
  kiln_session *session;
  kiln_diag *diag;
  bool is_device; // tensors are the device's
  float *memory[4];
} rig;

static rig begin(bool is_device) {
  rig r = {.module = make_module(), .diag = kiln_diag_create(), .is_device = is_device};
  const kiln_session_options o = {.struct_size = sizeof o, .is_async = is_device};
  must(kiln_session_create(r.module, &o, r.diag, &r.session), r.diag);
  for (int i = 0; i < 4; i++) r.memory[i] = aligned_alloc(64, 4 * N + 64);
  return r;
}

static void end(rig *r) {
  kiln_session_destroy(r->session);
  kiln_module_release(r->module);
  kiln_diag_destroy(r->diag);
  for (int i = 0; i < 4; i++) free(r->memory[i]);
}

static kiln_status run(rig *r, int64_t rows, float seed) {
  int64_t shape[] = {rows, COLS}, turned[] = {COLS, rows};
  DLTensor t[4], *out[] = {&t[1], &t[2], &t[3]};
  const DLTensor *in[] = {&t[0]};
  for (int i = 0; i < 4; i++) {
    t[i] = (DLTensor){.data = r->memory[i],
                      .device = {r->is_device ? kDLCUDA : kDLCPU, 0},
                      .ndim = 2,
                      .dtype = {kDLFloat, 32, 1},
                      .shape = i == 2 ? turned : shape};
    memset(r->memory[i], 0xff, 4 * N + 64);
  }
  for (int i = 0; i < rows * COLS; i++) r->memory[0][i] = seed + (float)i;
  return kiln_session_run(r->session, 1, in, 3, out, r->diag);
}

static void check(const rig *r, int64_t rows) {
  const float *x = r->memory[0], *y = r->memory[1], *yt = r->memory[2], *xx = r->memory[3];
  for (int64_t i = 0; i < rows * COLS; i++) {
    assert_true(y[i] == (x[i] + (float)(i % COLS)) * 3);
    assert_true(yt[i % COLS * rows + i / COLS] == y[i]);
    assert_true(xx[i] == x[i]);
  }
  for (int k = 1; k < 4; k++) // nothing behind the last element is written
    for (int64_t i = rows * COLS; i < N; i++) assert_true(r->memory[k][i] != r->memory[k][i]);
}

static void results_are_right_for_every_number_of_rows(void **state) {
  (void)state;
  for (int is_device = 0; is_device < 2; is_device++) {
    rig r = begin(is_device);
    for (int64_t rows = 0; rows <= ROWS; rows++) {
      const int64_t some = rows * 17 % (ROWS + 1);
      must(run(&r, some, (float)rows), r.diag);
      check(&r, some);
    }
    end(&r);
  }
}

static void graphs_are_kept_for_several_extents(void **state) {
  (void)state;
  for (int is_device = 0; is_device < 2; is_device++) {
    rig r = begin(is_device);
    fake->captures = fake->replays = 0;
    must(run(&r, ROWS - 1, 0), r.diag); // memory has its greatest size
    for (int round = 0; round < 4; round++)
      for (int64_t rows = 3; rows <= 24; rows += 7) {
        must(run(&r, rows, (float)round), r.diag);
        check(&r, rows);
      }
    assert_int_equal(fake->captures, 4); // in the second round
    assert_int_equal(fake->replays, 12);
    end(&r);
  }
}

// Of more extents than are kept, those used last are.
static void the_oldest_extents_give_way(void **state) {
  rig r = begin(false);
  (void)state;
  for (int round = 0; round < 2; round++)
    for (int64_t rows = SMALL + 1; rows <= SMALL + 17; rows++) {
      must(run(&r, rows, (float)round), r.diag);
      check(&r, rows);
    }
  assert_int_equal(fake->captures, 0);
  for (int round = 0; round < 2; round++) {
    must(run(&r, SMALL + 17, (float)round), r.diag);
    check(&r, SMALL + 17);
  }
  assert_int_equal(fake->captures, 1);
  end(&r);
}

// The first variant's greatest grid has two blocks, and a block has the elements of four rows.
static void grids_have_the_blocks_of_the_rows(void **state) {
  static const struct {
    int rows, launches, threads;
  } cases[] = {{0, 0, 0}, {1, 2, 2 * BLOCK}, {4, 2, 2 * BLOCK}, {5, 2, 4 * BLOCK}};
  rig r = begin(false);
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fake->launches = fake->threads = 0;
    must(run(&r, cases[i].rows, 1), r.diag);
    check(&r, cases[i].rows);
    assert_int_equal(fake->launches, cases[i].launches);
    assert_int_equal(fake->threads, cases[i].threads);
  }
  end(&r);
}

static void extents_outside_of_the_range_are_refused(void **state) {
  rig r = begin(false);
  (void)state;
  assert_int_equal(run(&r, ROWS, 0), KILN_OK);
  int64_t shape[] = {ROWS + 1, COLS};
  DLTensor x = {.data = r.memory[0], .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  const DLTensor *in[] = {&x};
  DLTensor *out[] = {&x, &x, &x};
  x.device = (DLDevice){kDLCPU, 0};
  assert_int_equal(kiln_session_run(r.session, 1, in, 3, out, r.diag), KILN_BAD_INPUT);
  assert_string_equal(kiln_diag_message(r.diag, 0),
                      "run: error: dimension rows: must be 0 to 61 in steps of 1, got 62");
  end(&r);
}

// Each call of the driver fails once: a status, nothing stays, and the next run is right.
static void what_the_driver_refuses_is_a_status(void **state) {
  int n = 0;
  (void)state;
  for (bool more = true; more;) {
    rig r = {.module = make_module(), .diag = kiln_diag_create()};
    const int64_t rows[] = {5, 30, 5, 30};
    for (int i = 0; i < 4; i++) r.memory[i] = aligned_alloc(64, 4 * N + 64);
    fake->fail_call = ++n;
    kiln_status st = kiln_session_create(r.module, NULL, r.diag, &r.session);
    for (int i = 0; i < 4 && st == KILN_OK; i++) {
      st = run(&r, rows[i], (float)i);
      if (st == KILN_OK) check(&r, rows[i]);
    }
    more = fake->fail_call <= 0;
    fake->fail_call = 0;
    assert_int_equal(st == KILN_OK, !more);
    assert_int_equal(st == KILN_OK, kiln_diag_count(r.diag) == 0);
    for (int i = 0; i < 4 && r.session; i++) {
      must(run(&r, rows[i], (float)i), r.diag);
      check(&r, rows[i]);
    }
    end(&r);
    assert_int_equal(fake->live, 0);
  }
  assert_true(n > 20);
}

// --- copies ---

static void strided_copies_go_both_ways(void **state) {
  static const struct {
    int rank;
    int64_t shape[3], strides[3];
  } rows[] = {
      {1, {5}, {2}}, {2, {3, 4}, {7, 1}}, {3, {2, 3, 4}, {30, 5, 1}}, {3, {2, 3, 2}, {24, 6, 3}}};
  kiln_diag *diag = kiln_diag_create();
  kiln_gpu_context *c = NULL;
  kiln_gpu_stream *s = NULL;
  float dense[64], spread[64], want[64];
  (void)state;
  must(kiln_cuda_api.open(0, diag, &c), diag);
  must(kiln_cuda_api.stream(c, diag, &s), diag);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    for (int k = 0; k < 64; k++) dense[k] = (float)k;
    must(kiln_cuda_api.clear(c, s, (char *)spread, sizeof spread, diag), diag);
    memset(want, 0, sizeof want);
    kiln_strided what = {(char *)spread, (const char *)dense, 4,
                         rows[i].rank,   rows[i].shape,       rows[i].strides};
    must(kiln_cuda_api.copy_strided(c, s, &what, true, diag), diag);
    what.to = (char *)want;
    kiln_strided_spread(&what);
    assert_memory_equal(spread, want, sizeof want);
  }
  kiln_cuda_api.end_stream(c, s);
  kiln_cuda_api.close(c);
  kiln_diag_destroy(diag);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(results_are_right_for_every_number_of_rows, reset),
      cmocka_unit_test_setup(graphs_are_kept_for_several_extents, reset),
      cmocka_unit_test_setup(the_oldest_extents_give_way, reset),
      cmocka_unit_test_setup(grids_have_the_blocks_of_the_rows, reset),
      cmocka_unit_test_setup(extents_outside_of_the_range_are_refused, reset),
      cmocka_unit_test_setup(what_the_driver_refuses_is_a_status, reset),
      cmocka_unit_test_setup(strided_copies_go_both_ways, reset),
  };
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  fake_cuda *(*find)(void) = NULL;
  void *symbol = library ? dlsym(library, "fake_cuda_state") : NULL;
  if (!symbol) {
    puts("skipped: libcuda.so.1 is not the stand-in: run it as ctest does");
    return 77;
  }
  memcpy(&find, &symbol, sizeof find);
  fake = find();
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Winograd convolutions through the whole scheduler, compared with the reference interpreter's
// plain sums: ragged sizes, paddings, channels; every blocking; and convolutions to which it is not
// applied.
#include "driver/pipeline.h"
#include "unit/tile/launches.h"
#include "unit/share.h"

#include "template/lower.h"
#include "tile/panels.h"
#include "transform/winograd.h"

// Of the whole, and of an element beside the largest: transforms of 4 x 4 outputs multiply by up to
// 8 * 8 before they cancel.
static const double NORM_TOLERANCE = 3e-6, ELEMENT_TOLERANCE = 2e-5;

static void compare_norm(test_kernel *k, const kiln_tensor *t, const void *got, const char *text) {
  const void *want = kiln_interpreter_data(k->reference, t->id);
  double error = 0, norm = 0, worst = 0, largest = 0;
  for (int64_t i = 0; i < kiln_tensor_elems(t); i++) {
    const double w = kiln_element_get(t->dtype, want, i), g = kiln_element_get(t->dtype, got, i);
    error += (w - g) * (w - g);
    norm += w * w;
    worst = fmax(worst, fabs(w - g));
    largest = fmax(largest, fabs(w));
  }
  if (!(sqrt(error / norm) <= NORM_TOLERANCE) || !(worst / largest <= ELEMENT_TOLERANCE))
    fail_msg("errors must be below %g and %g, got %g and %g in %s", NORM_TOLERANCE,
             ELEMENT_TOLERANCE, sqrt(error / norm), worst / largest, text);
}

static const kiln_machine machines[] = {
    {.target = &kiln_target_cpu,
     .vector_bytes = 64,
     .n_vector_regs = 32,
     .has_fma = true,
     .l1_bytes = 32 << 10,
     .l2_bytes = 1 << 20,
     .l3_bytes = 16 << 20,
     .clock_ghz = 3,
     .n_cores = 2},
    {.target = &kiln_target_cpu,
     .vector_bytes = 32,
     .n_vector_regs = 16,
     .has_fma = true,
     .l1_bytes = 16 << 10,
     .l2_bytes = 64 << 10,
     .clock_ghz = 3,
     .n_cores = 2},
};

typedef struct shape {
  int n, c, k, h, w;            // of the data
  int top, left, bottom, right; // padding
} shape;
static const shape shapes[] = {
    {1, 32, 32, 16, 16, 1, 1, 1, 1}, // whole tiles
    {1, 32, 48, 13, 18, 1, 1, 1, 1}, // ragged rows and columns
    {1, 40, 35, 14, 11, 0, 0, 0, 0}, // ragged channels, no padding
    {2, 32, 32, 10, 9, 1, 0, 0, 1},  // two images, asymmetric
    {1, 17, 64, 7, 7, 1, 1, 1, 1},   // fewer channels than two vectors
};

// A convolution with a kernel of |size| elements, bias and activation, behind a map that pads and
// before a pool: what it reads and writes is stored between kernels.
static void text_of(const shape *s, const char *dtype, int size, size_t room, char *out) {
  const int ph = s->h + s->top + s->bottom, pw = s->w + s->left + s->right, h = ph - size + 1,
            w = pw - size + 1;
  snprintf(out, room,
           "p { in %s X(%d, %d, %d, %d) const %s W(%d, %d, %d, %d) = ... const %s D(%d) = ... "
           "temp %s P(%d, %d, %d, %d) temp %s C(%d, %d, %d, %d) temp %s R(%d, %d, %d, %d) "
           "out %s Y(%d, %d, %d, %d) "
           "P(i0:%d, i1:%d, i2:%d, i3:%d) = i2 >= %d && i2 < %d && i3 >= %d && i3 < %d ? "
           "X(i0, i1, i2 - %d, i3 - %d) + 1%s : 0%s "
           "C(i0:%d, i1:%d, i2:%d, i3:%d | r0:%d, r1:%d, r2:%d) +=! P(i0, r0, i2 + r1, i3 + r2) * "
           "W(i1, r0, r1, r2) "
           "R(i0:%d, i1:%d, i2:%d, i3:%d) = max(C(i0, i1, i2, i3) + D(i1), 0%s) "
           "Y(i0:%d, i1:%d, i2:%d, i3:%d | r0:2, r1:2) max=! R(i0, i1, i2 + r0, i3 + r1) }",
           dtype, s->n, s->c, s->h, s->w, dtype, s->k, s->c, size, size, dtype, s->k, dtype, s->n,
           s->c, ph, pw, dtype, s->n, s->k, h, w, dtype, s->n, s->k, h, w, dtype, s->n, s->k, h - 1,
           w - 1, s->n, s->c, ph, pw, s->top, s->top + s->h, s->left, s->left + s->w, s->top,
           s->left, dtype, dtype, s->n, s->k, h, w, s->c, size, size, s->n, s->k, h, w, dtype, s->n,
           s->k, h - 1, w - 1);
}

typedef struct rig {
  test_kernel k;
  kiln_machine m;
  kiln_device device;
  const char *source;
  kiln_kernels kernels;
  kiln_kernel *winograd; // the kernel of that template; NULL: there is none
} rig;

// Arithmetic takes |slower| times as long as on the machine.
static void rig_open_text(rig *r, const char *text, int machine, int n_threads, double slower,
                          bool off) {
  *r = (rig){.m = machines[machine], .source = text};
  kernel_open(&r->k, r->source, 7);
  r->device = *kiln_device_make_nominal(&r->k.cx, &r->m);
  for (int i = 0; i < KILN_N_PEAKS; i++) {
    r->device.unit_flops_ns[i] /= slower;
    r->device.all_flops_ns[i] /= slower;
  }
  r->m.device = &r->device;
  const kiln_tile_options options = {.search.n_threads = n_threads};
  if (kiln_pipeline_tile(&r->k.cx, r->k.prog, &r->m, &options, off ? "winograd" : NULL,
                         &r->kernels) != KILN_OK)
    fail_msg("%s: %s", r->source, kernel_message(&r->k));
  for (int i = 0; i < r->kernels.kernels.n; i++) {
    kiln_kernel *one = r->kernels.kernels.data[i];
    if (strstr(one->script, ".sums") && one->prog->stmts.n >= 5) r->winograd = one;
  }
}

static void rig_close(rig *r) { kernel_close(&r->k); }

static void rig_open(rig *r, const shape *s, const char *dtype, int size, int machine,
                     int n_threads, double slower, bool off) {
  static char text[2048];
  text_of(s, dtype, size, sizeof text, text);
  rig_open_text(r, text, machine, n_threads, slower, off);
}

static void they_compute_the_convolution(void **state) {
  (void)state;
  for (size_t m = 0; m < KILN_LEN(machines); m++)
    for (size_t row = 0; row < KILN_LEN(shapes); row++) {
      if (!test_takes(m << 8 | row)) continue;
      rig r;
      rig_open(&r, &shapes[row], "f32", 3, (int)m, 1 + (int)(row % 2), 50, false);
      if (!r.winograd) fail_msg("machine %zu, row %zu must run as Winograd's", m, row);
      check_launches(&r.k, &r.kernels, compare_norm, r.source);
      rig_close(&r);
    }
}

enum { PADDED_ROWS = 17, PADDED_COLUMNS = 21, OUTLYING_CHANNELS = 48 };
static struct {
  int row, column, kh, kw; // in the padded data; the windows that run over that
  double value;
} outlier;

// The windows of rows (row - kh, row] and columns alike hold it, in the second image.
static bool is_reached(int64_t element) {
  const int rows = PADDED_ROWS - outlier.kh + 1, columns = PADDED_COLUMNS - outlier.kw + 1;
  const int64_t column = element % columns, row = element / columns % rows;
  return element >= OUTLYING_CHANNELS * rows * columns && row <= outlier.row &&
         row + outlier.kh > outlier.row && column <= outlier.column &&
         column + outlier.kw > outlier.column;
}

// Results that an outlier cannot reach are as accurate as without it, and results that it reaches
// equal plain sums.
static void compare_outside(test_kernel *k, const kiln_tensor *t, const void *got,
                            const char *text) {
  const void *want = kiln_interpreter_data(k->reference, t->id);
  double largest = 0;
  for (int64_t i = 0; i < kiln_tensor_elems(t); i++)
    if (!is_reached(i)) largest = fmax(largest, fabs(kiln_element_get(t->dtype, want, i)));
  for (int64_t i = 0; i < kiln_tensor_elems(t); i++) {
    const double w = kiln_element_get(t->dtype, want, i), g = kiln_element_get(t->dtype, got, i),
                 most = is_reached(i) ? 1e-5 * fabs(outlier.value) : ELEMENT_TOLERANCE * largest;
    if (isnan(w) ? !isnan(g) : isinf(w) ? g != w : !(fabs(g - w) <= most))
      fail_msg("element %lld must be %g, got %g in %s", (long long)i, w, g, text);
  }
}

// One element of the data, at a corner, an edge or within a tile. The weights lie as they are used,
// or backwards and apart.
static void write_outlying(int kh, int kw, bool backwards, const char *value, size_t room,
                           char *out) {
  const int rows = PADDED_ROWS - kh + 1, columns = PADDED_COLUMNS - kw + 1;
  char weights[64];
  if (backwards) snprintf(weights, sizeof weights, "W(r0, %d - 2*r1, i1, %d - r2)", 2 * kh - 1, kw);
  else snprintf(weights, sizeof weights, "W(i1, r0, r1, r2)");
  snprintf(out, room,
           "p { in f32 X(2, 32, 15, 19) const f32 W(%d, %d, %d, %d) = ... "
           "temp f32 P(2, 32, 17, 21) temp f32 C(2, 48, %d, %d) out f32 Y(2, 48, %d, %d) "
           "P(i0:2, i1:32, i2:17, i3:21) = i2 >= 1 && i2 < 16 && i3 >= 1 && i3 < 20 ? "
           "i0 == 1 && i1 == 5 && i2 == %d && i3 == %d ? %s : X(i0, i1, i2 - 1, i3 - 1) : 0f32 "
           "C(i0:2, i1:48, i2:%d, i3:%d | r0:32, r1:%d, r2:%d) +=! P(i0, r0, i2 + r1, i3 + r2) * "
           "%s Y(i0:2, i1:48, i2:%d, i3:%d) = C(i0, i1, i2, i3) + 1f32 }",
           backwards ? 32 : 48, backwards ? 2 * kh : 32, backwards ? 48 : kh,
           backwards ? kw + 1 : kw, rows, columns, rows, columns, outlier.row, outlier.column,
           value, rows, columns, kh, kw, weights, rows, columns);
}

static const char *const outliers[] = {"300f32",   "1e4f32", "-1e6f32", "-1e9f32", "1e20f32",
                                       "-1e33f32", "inff32", "-inff32", "nanf32"};
static const int places[][2] = {{1, 1}, {4, 5}, {5, 8}, {8, 4}, {7, 11}, {15, 19}, {6, 6}};

static void check_outlier(size_t v, const int *at, int kh, int kw, bool backwards) {
  char text[1024];
  rig r;
  outlier.row = at[0];
  outlier.column = at[1];
  outlier.kh = kh;
  outlier.kw = kw;
  outlier.value = strtod(outliers[v], NULL);
  write_outlying(kh, kw, backwards, outliers[v], sizeof text, text);
  rig_open_text(&r, text, (int)(v % 2), 1 + (int)(v / 2 % 2), 50, false);
  if (!r.winograd) fail_msg("must run as Winograd's: %s", text);
  check_launches(&r.k, &r.kernels, compare_outside, r.source);
  rig_close(&r);
}

static void outliers_reach_no_further_than_in_plain_sums(void **state) {
  (void)state;
  for (size_t v = 0; v < KILN_LEN(outliers); v++)
    check_outlier(v, places[3 * v % KILN_LEN(places)], 3, 3, false);
}

// Also where the transforms of a tile would meet it, but no window of that tile does.
static void outliers_reach_no_further_from_windows_of_two(void **state) {
  static const int windows[][2] = {{3, 2}, {2, 3}, {2, 2}},
                   behind[][2] = {{5, 9}, {9, 5}, {13, 13}};
  (void)state;
  for (size_t v = 0; v < KILN_LEN(outliers); v++)
    for (size_t i = 0; i < KILN_LEN(windows); i++) {
      if (!test_takes(v << 8 | i)) continue;
      const int *at = v % 2 ? places[(v + i) % KILN_LEN(places)] : behind[(v / 2 + i) % 3];
      check_outlier(v, at, windows[i][0], windows[i][1], (v + i) % 2 == 0);
    }
}

// A reflecting padding, which the convolution reads through.
static const char reflected[] =
    "p { in f32 X(1, 32, 12, 13) const f32 W(32, 32, 3, 3) = ... temp f32 A(1, 32, 12, 13) "
    "temp f32 P(1, 32, 14, 15) temp f32 C(1, 32, 12, 13) out f32 Y(1, 32, 11, 12) "
    "A(i0:1, i1:32, i2:12, i3:13) = X(i0, i1, i2, i3) + 1f32 "
    "P(i0:1, i1:32, i2:14, i3:15) = A(i0, i1, i2 < 1 ? 1 : i2 >= 13 ? 10 : i2 - 1, "
    "i3 < 1 ? 1 : i3 >= 14 ? 11 : i3 - 1) "
    "C(i0:1, i1:32, i2:12, i3:13 | r0:32, r1:3, r2:3) +=! P(i0, r0, i2 + r1, i3 + r2) * "
    "W(i1, r0, r1, r2) "
    "Y(i0:1, i1:32, i2:11, i3:12 | r0:2, r1:2) max=! C(i0, i1, i2 + r0, i3 + r1) }";

static void they_read_through_boundary_maps(void **state) {
  (void)state;
  for (size_t m = 0; m < KILN_LEN(machines); m++) {
    rig r;
    rig_open_text(&r, reflected, (int)m, 2, 50, false);
    assert_non_null(r.winograd);
    check_launches(&r.k, &r.kernels, compare_norm, r.source);
    rig_close(&r);
  }
}

// Blocks of tiles and of channels that do and don't divide what they are blocks of.
static const kiln_tiling tilings[] = {
    {.block = {1, 4, 48}, .tile = {0, 1, 4}},
    {.block = {3, 2, 16}, .tile = {0, 2, 2}},
    {.block = {4, 5, 48}, .tile = {0, 3, 2}},
    {.block = {4, 5, 16}, .tile = {0, 1, 5}, .variant = 1},
    {.block = {2, 3, 48}, .tile = {0, 2, 3}, .variant = 1},
};

static void every_blocking_computes_the_same(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(tilings); row++) {
    if (!test_takes(row)) continue;
    rig r;
    rig_open(&r, &shapes[1], "f32", 3, 0, 2, 50, false);
    assert_non_null(r.winograd);
    const kiln_program *p = r.winograd->prog;
    kiln_lowering w = {.cx = &r.k.cx,
                       .p = p,
                       .m = &r.m,
                       .n_threads = 2,
                       .root = p->stmts.data[p->stmts.n - 1],
                       .lanes = r.m.vector_bytes / 4};
    kiln_tiling t = tilings[row];
    t.tile[0] = kiln_lowering_extent(p->stmts.data[4], 0) - 2;
    assert_int_equal(kiln_schedule_begin(&r.k.cx, p, &w.s), KILN_OK);
    if (kiln_template_winograd.lower(&w, &t) != KILN_OK)
      fail_msg("row %zu: %s", row, kernel_message(&r.k));
    r.winograd->loops = w.s.loops;
    check_launches(&r.k, &r.kernels, compare_norm, r.source);
    rig_close(&r);
  }
}

static const struct {
  const char *why, *dtype;
  int size;
  double slower;
  bool off;
  shape s;
} direct[] = {
    {"one element does not overlap with itself",
     "f32",
     1,
     50,
     false,
     {1, 32, 32, 16, 16, 0, 0, 0, 0}},
    {"the dtype must be f32", "f64", 3, 50, false, {1, 32, 32, 16, 16, 1, 1, 1, 1}},
    {"it is switched off", "f32", 3, 50, true, {1, 32, 32, 16, 16, 1, 1, 1, 1}},
    {"the weights take longer than the products",
     "f32",
     3,
     0.01,
     false,
     {1, 32, 32, 8, 8, 1, 1, 1, 1}},
};

static void others_stay_as_they_are(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(direct); row++) {
    rig r;
    rig_open(&r, &direct[row].s, direct[row].dtype, direct[row].size, 0, 2, direct[row].slower,
             direct[row].off);
    if (r.winograd) fail_msg("must stay: %s", direct[row].why);
    check_launches(&r.k, &r.kernels, compare_elements, r.source);
    rig_close(&r);
  }
}

// A layer of many pixels and one of many weights; what they may take more, in megabytes, and the
// points of the forms that are chosen.
static const struct {
  double more_mb;
  int first, second;
} budgets[] = {{0, 0, 0}, {0.35, 6, 0}, {0.15, 4, 0}, {17.3, 6, 4}, {38.3, 6, 6}, {INFINITY, 6, 6}};

static void memory_goes_where_it_saves_most(void **state) {
  (void)state;
  kiln_ctx cx;
  assert_int_equal(kiln_ctx_init(&cx, NULL), KILN_OK);
  kiln_machine m = machines[0];
  m.device = kiln_device_make_nominal(&cx, &m);
  for (size_t i = 0; i < KILN_LEN(budgets); i++) {
    kiln_winograd_offer o[] = {{.shape = {1, 112, 112, 48, 48, 3, 3}},
                               {.shape = {1, 28, 28, 512, 512, 3, 3}}};
    kiln_winograd_choose(&cx, &m, 2, budgets[i].more_mb * 1e6, 2, o);
    const int got[] = {o[0].plan.form ? o[0].plan.form->points : 0,
                       o[1].plan.form ? o[1].plan.form->points : 0};
    if (got[0] != budgets[i].first || got[1] != budgets[i].second)
      fail_msg("row %zu: must be %d and %d, got %d and %d", i, budgets[i].first, budgets[i].second,
               got[0], got[1]);
  }
  kiln_ctx_deinit(&cx);
}

// Others are not: a form with which the convolution takes far longer.
static void weights_that_are_there_are_taken_where_they_are_little_slower(void **state) {
  (void)state;
  kiln_ctx cx;
  assert_int_equal(kiln_ctx_init(&cx, NULL), KILN_OK);
  kiln_machine m = machines[0];
  m.device = kiln_device_make_nominal(&cx, &m);
  kiln_winograd_offer alone = {.shape = {1, 56, 56, 128, 128, 3, 3}};
  kiln_winograd_choose(&cx, &m, 2, INFINITY, 1, &alone);
  assert_non_null(alone.plan.form);
  const int64_t lanes = m.vector_bytes / 4;
  for (int outputs = 2; outputs <= 4; outputs += 2)
    for (int64_t vectors = 1; vectors <= 4; vectors *= 2) {
      kiln_winograd_offer kept = alone;
      kiln_winograd_plan own;
      kept.panels = kiln_panels_bit(outputs, vectors);
      kiln_winograd_choose(&cx, &m, 2, INFINITY, 1, &kept);
      const bool is_there =
          kept.plan.form->outputs == outputs && kept.plan.panel == vectors * lanes;
      const bool pays = kiln_winograd_plan_make(&m, 2, &kept.shape, 0, kept.panels, &own) &&
                        own.ns <= (1 + KILN_NEW_TRANSFORMS) * alone.plan.ns;
      assert_int_equal(is_there, pays);
      if (!is_there) assert_true(kept.plan.ns == alone.plan.ns);
    }
  kiln_ctx_deinit(&cx);
}

static void a_plan_fits_the_machine(void **state) {
  (void)state;
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  kiln_machine m = machines[0];
  m.device = kiln_device_make_nominal(&cx, &m);
  kiln_winograd_plan p;
  // many tiles, few weights: blocks that stay in the L2, and both threads have some
  assert_true(
      kiln_winograd_plan_make(&m, 2, &(kiln_winograd_shape){1, 224, 224, 64, 64, 3, 3}, 0, 0, &p));
  const int64_t points = p.form->points * p.form->points;
  assert_true(points * p.block_h * p.block_w * (64 + p.block_k) * 4 <= m.l2_bytes);
  assert_true(p.block_h * p.block_w * 2 <= 56 * 56);
  assert_true(p.tile_h <= p.block_h && p.tile_w <= p.block_w);
  assert_int_equal(p.block_k % p.panel, 0);
  // few tiles, many weights: every weight is read once, for all tiles
  assert_true(
      kiln_winograd_plan_make(&m, 2, &(kiln_winograd_shape){1, 28, 28, 512, 512, 3, 3}, 0, 0, &p));
  assert_true(p.whole_input);
  assert_int_equal(p.block_h * p.block_w, 49);
  // an unknown device: no prediction, so no rewriting
  m.device = NULL;
  assert_false(
      kiln_winograd_plan_make(&m, 2, &(kiln_winograd_shape){1, 224, 224, 64, 64, 3, 3}, 0, 0, &p));
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(they_compute_the_convolution),
      cmocka_unit_test(outliers_reach_no_further_than_in_plain_sums),
      cmocka_unit_test(outliers_reach_no_further_from_windows_of_two),
      cmocka_unit_test(they_read_through_boundary_maps),
      cmocka_unit_test(every_blocking_computes_the_same),
      cmocka_unit_test(others_stay_as_they_are),
      cmocka_unit_test(memory_goes_where_it_saves_most),
      cmocka_unit_test(weights_that_are_there_are_taken_where_they_are_little_slower),
      cmocka_unit_test(a_plan_fits_the_machine)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Taps of windows that only read padding: which convolutions are cut into zones with fewer taps,
// and that results stay equal.
#include "driver/pipeline.h"
#include "unit/tile/launches.h"
#include "unit/share.h"

typedef struct conv {
  int n, in, out, size, taps, dilation,
      stride;                 // images, channels, rows and columns, those of the window
  const char *role, *padding; // of the weights; what surrounds the image
} conv;

enum { TEXT_ROOM = 4096 };

// Padded so that the results are as many as the image's pixels, by the stride.
static const char *conv_text(const conv *c, char *text) {
  const int pad = c->taps / 2 * c->dilation, wide = c->size + 2 * pad,
            results = (c->size - 1) / c->stride + 1;
  int used =
      snprintf(text, TEXT_ROOM,
               "p { in f32 X(%d, %d, %d, %d) %s f32 W(%d, %d, %d, %d)%s "
               "temp f32 P(%d, %d, %d, %d) temp f32 C(%d, %d, %d, %d) out f32 Y(%d, %d, %d, %d) ",
               c->n, c->in, c->size, c->size, c->role, c->out, c->in, c->taps, c->taps,
               strcmp(c->role, "const") == 0 ? " = ..." : "", c->n, c->in, wide, wide, c->n, c->out,
               results, results, c->n, c->out, results, results);
  used += snprintf(text + used, (size_t)(TEXT_ROOM - used),
                   "P(i0:%d, i1:%d, i2:%d, i3:%d) = i2 >= %d && i2 < %d && i3 >= %d && i3 < %d ? "
                   "X(i0, i1, i2 - %d, i3 - %d) : %s ",
                   c->n, c->in, wide, wide, pad, pad + c->size, pad, pad + c->size, pad, pad,
                   c->padding);
  used += snprintf(text + used, (size_t)(TEXT_ROOM - used),
                   "C(i0:%d, i1:%d, i2:%d, i3:%d | r0:%d, r1:%d, r2:%d) +=! "
                   "P(i0, r0, i2*%d + r1*%d, i3*%d + r2*%d) * W(i1, r0, r1, r2) "
                   "Y(i0:%d, i1:%d, i2:%d, i3:%d) = max(C(i0, i1, i2, i3), 0f32) }",
                   c->n, c->out, results, results, c->in, c->taps, c->taps, c->stride, c->dilation,
                   c->stride, c->dilation, c->n, c->out, results, results);
  assert_true(used < TEXT_ROOM);
  return text;
}

// Through the scheduler, and against the interpreter; gives how many convolutions were cut.
static int check(const conv *c, uint64_t seed, bool no_taps, int *out_launches) {
  static const char *const machines[] = {"avx2", "avx512vnni"};
  char text[TEXT_ROOM];
  test_kernel k;
  kernel_open(&k, conv_text(c, text), seed);
  kiln_build b = {.choices.prog = k.prog,
                  .choices.tile.search = {.machine = &b.request.machine,
                                          .n_threads = 1 + (int)(seed / 2 % 2),
                                          .n_lowered = 1}};
  assert_int_equal(
      kiln_machine_named(&k.cx, machines[seed % KILN_LEN(machines)], &b.request.machine), KILN_OK);
  kiln_build_omit(&b, "winograd");
  if (no_taps) kiln_build_omit(&b, "taps");
  if (kiln_pipeline_run(&k.cx, &b, KILN_PHASE_TILE, KILN_PHASE_CONNECT) != KILN_OK)
    fail_msg("%s: %s", text, kernel_message(&k));
  check_launches(&k, &b.choices.kernels, compare_elements, text);
  *out_launches = b.choices.kernels.launches.n;
  kernel_close(&k);
  return kiln_build_count(&b, "taps");
}

static const struct {
  const char *why;
  conv c;
  int n_cut;
} rows[] = {
    {"dilated as far as half of the image", {1, 32, 16, 8, 3, 4, 1, "const", "0f32"}, 1},
    {"dilated beyond it: the middle tap is left", {1, 32, 16, 8, 3, 9, 1, "const", "0f32"}, 1},
    {"five taps, of several images", {2, 16, 8, 12, 5, 4, 1, "const", "0f32"}, 1},
    {"every other result", {1, 32, 16, 16, 3, 8, 2, "const", "0f32"}, 1},
    {"neighbours: nearly all taps read the image", {1, 32, 16, 12, 3, 1, 1, "const", "0f32"}, 0},
    {"zones that are no tile wide", {1, 32, 16, 12, 3, 2, 1, "const", "0f32"}, 0},
    {"too little to gain", {1, 2, 2, 8, 3, 4, 1, "const", "0f32"}, 0},
    {"weights that may be infinite", {1, 32, 16, 8, 3, 4, 1, "in", "0f32"}, 0},
    {"padding that adds something", {1, 32, 16, 8, 3, 4, 1, "const", "1f32"}, 0},
};

static void taps_are_left_out_where_they_read_padding_alone(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    int launches = 0;
    const int n = check(&rows[i].c, i, false, &launches);
    if (n != rows[i].n_cut)
      fail_msg("%s: must be cut %d times, is %d", rows[i].why, rows[i].n_cut, n);
    assert_int_equal(check(&rows[i].c, i, true, &launches), 0);
  }
}

static void what_remains_of_one_tap_reads_no_padding(void **state) {
  (void)state;
  const conv c = {1, 32, 16, 8, 3, 9, 1, "const", "0f32"};
  int launches = 0, all = 0;
  assert_int_equal(check(&c, 0, false, &launches), 1);
  assert_int_equal(check(&c, 0, true, &all), 0);
  assert_true(launches <= 2); // what was planar is turned, as it was when it was padded
  assert_true(launches <= all);
}

static void random_convolutions_compute_what_they_did(void **state) {
  enum { CASES = 24, FEWEST = 8 };
  (void)state;
  uint64_t seed = test_asked("KILN_SEED", 11);
  int n_cut = 0, launches = 0;
  for (int i = 0; i < CASES; i++) {
    const conv c = {.n = kernel_between(&seed, 1, 2),
                    .in = 4 * kernel_between(&seed, 1, 6),
                    .out = 4 * kernel_between(&seed, 1, 5),
                    .size = kernel_between(&seed, 5, 13),
                    .taps = 3 + 2 * kernel_between(&seed, 0, 1),
                    .dilation = kernel_between(&seed, 2, 14),
                    .stride = kernel_between(&seed, 1, 2),
                    .role = "const",
                    .padding = "0f32"};
    n_cut += check(&c, seed, false, &launches);
  }
  assert_true(n_cut >= FEWEST);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(taps_are_left_out_where_they_read_padding_alone),
      cmocka_unit_test(what_remains_of_one_tap_reads_no_padding),
      cmocka_unit_test(random_convolutions_compute_what_they_did)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

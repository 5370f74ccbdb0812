// Paddings between products and depthwise convolutions: fused into the kernel that reads them, or
// written in place if none is, with equal results. And paddings of inputs: rows that are copied.
#include "driver/pipeline.h"
#include "unit/tile/launches.h"

#include "fuse/cached_schedule.h"

typedef struct layer {
  int n, size, in, mid, out; // images, rows and columns of each, channels
} layer;

// A separable layer: expanded, padded, convolved channel by channel, projected.
static const char *separable(const layer *l, char *text, size_t room) {
  const int n = l->n, s = l->size, p = s + 2, c = l->in, e = l->mid, o = l->out;
  int used = snprintf(text, room,
                      "p { in f32 X(%d, %d, %d, %d) const f32 A(%d, %d) = ... "
                      "const f32 B(%d, 3, 3) = ... const f32 C(%d, %d) = ... "
                      "temp f32 S(%d, %d, %d, %d) temp f32 E(%d, %d, %d, %d) "
                      "temp f32 P(%d, %d, %d, %d) temp f32 D(%d, %d, %d, %d) "
                      "temp f32 F(%d, %d, %d, %d) out f32 Y(%d, %d, %d, %d) ",
                      n, c, s, s, e, c, e, o, e, n, e, s, s, n, e, s, s, n, e, p, p, n, e, s, s, n,
                      e, s, s, n, o, s, s);
  used += snprintf(text + used, room - (size_t)used,
                   "S(i0:%d, i1:%d, i2:%d, i3:%d | r0:%d) +=! X(i0, r0, i2, i3) * A(i1, r0) "
                   "E(i0:%d, i1:%d, i2:%d, i3:%d) = max(S(i0, i1, i2, i3), 0f32) "
                   "P(i0:%d, i1:%d, i2:%d, i3:%d) = i2 >= 1 && i2 < %d && i3 >= 1 && i3 < %d ? "
                   "E(i0, i1, i2 - 1, i3 - 1) : 0f32 ",
                   n, e, s, s, c, n, e, s, s, n, e, p, p, p - 1, p - 1);
  used += snprintf(text + used, room - (size_t)used,
                   "D(i0:%d, i1:%d, i2:%d, i3:%d | r0:3, r1:3) +=! "
                   "P(i0, i1, i2 + r0, i3 + r1) * B(i1, r0, r1) "
                   "F(i0:%d, i1:%d, i2:%d, i3:%d) = max(D(i0, i1, i2, i3), 0f32) "
                   "Y(i0:%d, i1:%d, i2:%d, i3:%d | r0:%d) +=! F(i0, r0, i2, i3) * C(i1, r0) }",
                   n, e, s, s, n, e, s, s, n, o, s, s, e);
  assert_true((size_t)used < room);
  return text;
}

enum { TEXT_ROOM = 4096, PADDING = 6 }; // the tensor P

// A machine whose caches hold |l2_kib| and four times that.
static kiln_machine machine_of(kiln_ctx *cx, int l2_kib) {
  kiln_machine m = {.target = &kiln_target_cpu,
                    .vector_bytes = 64,
                    .n_vector_regs = 32,
                    .has_fma = true,
                    .n_cores = 2,
                    .l1_bytes = 32 << 10,
                    .l2_bytes = l2_kib << 10,
                    .l3_bytes = l2_kib << 12,
                    .clock_ghz = 3};
  m.device = kiln_device_make_nominal(cx, &m);
  return m;
}

static void schedule(test_kernel *k, const char *text, int l2_kib, bool no_connect,
                     kiln_kernels *out) {
  kernel_open(k, text, 7);
  const kiln_machine m = machine_of(&k->cx, l2_kib);
  const kiln_tile_options options = {.search.n_threads = 2, .search.no_connect = no_connect};
  if (kiln_pipeline_tile(&k->cx, k->prog, &m, &options, NULL, out) != KILN_OK)
    fail_msg("%s: %s", text, kernel_message(k));
}

static bool is_assembled(const kiln_kernels *k) {
  return kiln_fact_of(&k->facts, PADDING).assembled;
}

// How many statements run in the launch that computes the padding.
static int statements_beside(const test_kernel *k, const kiln_kernels *kernels) {
  for (int i = 0; i < kernels->launches.n; i++)
    for (int s = 0; s < kernels->launches.data[i].n_stmts; s++)
      if (kernels->launches.data[i].stmts[s] == k->prog->tensors.data[PADDING]->def)
        return kernels->launches.data[i].n_stmts;
  return 0;
}

static const layer some = {4, 6, 8, 32, 8};

static void a_block_of_one_image_computes_its_padding(void **state) {
  (void)state;
  char text[TEXT_ROOM];
  test_kernel k;
  kiln_kernels kernels;
  schedule(&k, separable(&some, text, sizeof text), 16, false, &kernels);
  assert_false(is_assembled(&kernels));
  assert_true(statements_beside(&k, &kernels) >= 3); // with the window and what follows it
  assert_int_equal(kernels.materialized.n, 0);
  kernel_close(&k);
}

static void a_padding_that_none_takes_in_is_assembled(void **state) {
  (void)state;
  char text[TEXT_ROOM];
  test_kernel k;
  kiln_kernels kernels;
  schedule(&k, separable(&some, text, sizeof text), 16, true, &kernels);
  assert_true(is_assembled(&kernels));
  assert_int_equal(statements_beside(&k, &kernels), 0);
  assert_int_equal(kernels.materialized.n, 1);
  kernel_close(&k);
}

static void both_give_the_same_results(void **state) {
  (void)state;
  char text[TEXT_ROOM];
  separable(&some, text, sizeof text);
  for (int no_connect = 0; no_connect <= 1; no_connect++) {
    test_kernel k;
    kiln_kernels kernels;
    schedule(&k, text, 16, no_connect, &kernels);
    assert_int_equal(is_assembled(&kernels), no_connect);
    check_launches(&k, &kernels, compare_elements, text);
    kernel_close(&k);
  }
}

static const char *recall(void *user, const char *question) {
  (void)question;
  return user;
}

static void an_answer_says_what_was_assembled(void **state) {
  (void)state;
  char text[TEXT_ROOM];
  separable(&some, text, sizeof text);
  for (int no_connect = 0; no_connect <= 1; no_connect++) {
    test_kernel k, again;
    kiln_kernels found, recalled;
    schedule(&k, text, 16, no_connect, &found);
    const kiln_machine answered = machine_of(&k.cx, 16);
    char *answer = (char *)kiln_cached_schedule_print(&k.cx, &answered, &found);
    assert_int_equal(!strncmp(answer, "materialized 1 ", 15), no_connect);
    kernel_open(&again, text, 7);
    const kiln_machine m = machine_of(&again.cx, 16);
    const kiln_tile_options options = {
        .search.n_threads = 2, .search.no_connect = no_connect, .look_up = recall, .user = answer};
    assert_int_equal(kiln_pipeline_tile(&again.cx, again.prog, &m, &options, NULL, &recalled),
                     KILN_OK);
    assert_int_equal(recalled.kernels.data[0]->candidates.n, 0); // it was not searched
    assert_int_equal(recalled.launches.n, found.launches.n);
    assert_int_equal(is_assembled(&recalled), no_connect);
    check_launches(&again, &recalled, compare_elements, text);
    kernel_close(&again);
    kernel_close(&k);
  }
}

static const char *loops_text(test_kernel *k, const kiln_kernels *kernels) {
  kiln_text t;
  kiln_text_init(&t, &k->cx.perm);
  for (int i = 0; i < kernels->kernels.n; i++)
    kiln_loops_print(&k->cx, kernels->kernels.data[i]->loops, &t);
  return t.data;
}

// A cached schedule's loops are parsed; if that fails, its script makes them.
static void an_answer_gives_the_loops_it_was_made_of(void **state) {
  static const char *const marks[] = {"", "\nkernel ", "\n  param f32 ", "for "};
  (void)state;
  char text[TEXT_ROOM];
  separable(&some, text, sizeof text);
  for (size_t row = 0; row < KILN_LEN(marks); row++) {
    test_kernel k, again;
    kiln_kernels found, recalled;
    schedule(&k, text, 16, 1, &found);
    const kiln_machine answered = machine_of(&k.cx, 16);
    char *answer = (char *)kiln_cached_schedule_print(&k.cx, &answered, &found);
    char *mark = strstr(answer, marks[row]);
    assert_non_null(mark);
    if (row > 0) memset(mark + strlen(marks[row]) - 2, '?', 1);
    kernel_open(&again, text, 7);
    const kiln_machine m = machine_of(&again.cx, 16);
    const kiln_tile_options options = {
        .search.n_threads = 2, .search.no_connect = 1, .look_up = recall, .user = answer};
    assert_int_equal(kiln_pipeline_tile(&again.cx, again.prog, &m, &options, NULL, &recalled),
                     KILN_OK);
    assert_int_equal(recalled.kernels.data[0]->candidates.n, 0);
    assert_string_equal(loops_text(&again, &recalled), loops_text(&k, &found));
    check_launches(&again, &recalled, compare_elements, text);
    kernel_close(&again);
    kernel_close(&k);
  }
}

// A grouped convolution of a padded input, of which at least half are elements: groups of 3
// channels, windows of 3 x 3.
static const char *conv_of_input(uint64_t *seed, char *text, size_t room) {
  int of[8]; // images, groups, rows, columns; zeros above, below, left, right
  for (int i = 0; i < 8; i++)
    of[i] = i < 2    ? 2 + (int)(kernel_random(seed) % 3)
            : i < 4  ? 5 + (int)(kernel_random(seed) % 7)
            : i == 4 ? 1
                     : (int)(kernel_random(seed) % 2);
  const int n = of[0], g = of[1], h = of[2], w = of[3], ph = h + of[4] + of[5],
            pw = w + of[6] + of[7], oh = ph - 2, ow = pw - 2;
  const int used = snprintf(
      text, room,
      "p { in f32 X(%d, %d, %d, %d) const f32 A(%d, 3, 3, 3, 3) = ... temp f32 P(%d, %d, %d, %d) "
      "out f32 Y(%d, %d, 3, %d, %d) P(i0:%d, i1:%d, i2:%d, i3:%d) = "
      "i2 >= %d && i2 < %d && i3 >= %d && i3 < %d ? X(i0, i1, i2 - %d, i3 - %d) : 0f32 "
      "Y(i0:%d, i1:%d, i2:3, i3:%d, i4:%d | r0:3, r1:3, r2:3) +=! "
      "P(i0, i1*3 + r0, i3 + r1, i4 + r2) * A(i1, i2, r0, r1, r2) }",
      n, 3 * g, h, w, g, n, 3 * g, ph, pw, n, g, oh, ow, n, 3 * g, ph, pw, of[4], of[4] + h, of[6],
      of[6] + w, of[4], of[6], n, g, oh, ow);
  assert_true((size_t)used < room);
  return text;
}

static bool selects(const kiln_kernels *kernels) {
  for (int i = 0; i < kernels->kernels.n; i++)
    for (int s = 0; s < kernels->kernels.data[i]->prog->stmts.n; s++)
      if (kernels->kernels.data[i]->prog->stmts.data[s]->body->kind == KILN_EXPR_SELECT)
        return true;
  return false;
}

static void rows_of_a_padded_input_are_copied(void **state) {
  enum { CASES = 24 };
  (void)state;
  uint64_t seed = 11;
  for (int i = 0; i < CASES; i++) {
    char text[TEXT_ROOM];
    test_kernel k, again;
    kiln_kernels found, recalled;
    conv_of_input(&seed, text, sizeof text);
    schedule(&k, text, 16, true, &found);
    if (selects(&found)) fail_msg("no kernel must choose between elements and zeros in %s", text);
    check_launches(&k, &found, compare_elements, text);
    const kiln_machine answered = machine_of(&k.cx, 16);
    char *answer = (char *)kiln_cached_schedule_print(&k.cx, &answered, &found);
    kernel_open(&again, text, 7);
    const kiln_machine m = machine_of(&again.cx, 16);
    const kiln_tile_options options = {
        .search.n_threads = 2, .search.no_connect = true, .look_up = recall, .user = answer};
    assert_int_equal(kiln_pipeline_tile(&again.cx, again.prog, &m, &options, NULL, &recalled),
                     KILN_OK);
    assert_int_equal(recalled.kernels.data[0]->candidates.n, 0);
    check_launches(&again, &recalled, compare_elements, text);
    kernel_close(&again);
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_block_of_one_image_computes_its_padding),
      cmocka_unit_test(a_padding_that_none_takes_in_is_assembled),
      cmocka_unit_test(both_give_the_same_results),
      cmocka_unit_test(an_answer_says_what_was_assembled),
      cmocka_unit_test(an_answer_gives_the_loops_it_was_made_of),
      cmocka_unit_test(rows_of_a_padded_input_are_copied),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

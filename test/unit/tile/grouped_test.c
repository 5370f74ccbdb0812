// Grouped convolutions with several channels a group, channels last: their kernel computes the map
// behind them, and vectors run along a group's channels, for any number of channels and images, or
// along pixels that are contiguous; large images are read in pieces, for all groups. And sums of
// channels-last data in storage order.
#include "driver/pipeline.h"
#include "unit/tile/launches.h"
#include "unit/share.h"

#include "tile/query.h"
#include "transform/transform.h"

typedef struct conv {
  int n, groups, in, out, size, stride; // images; channels of a group; rows and columns
  bool has_front;                       // a product makes its data
} conv;

enum { TEXT_ROOM = 4096 };

// Behind it a product reads the result, so that it is stored channels last.
static const char *conv_text(const conv *c, char *text) {
  const int in = c->groups * c->in, out = c->groups * c->out, wide = c->size + 2,
            results = (c->size - 1) / c->stride + 1;
  int used = snprintf(
      text, TEXT_ROOM,
      "p { in f32 X(%d, %d, %d, %d) const f32 A(%d, %d) = ... const f32 W(%d, %d, %d, 3, 3) = ... "
      "const f32 B(%d) = ... const f32 D(4, %d) = ... temp f32 F(%d, %d, %d, %d) "
      "temp f32 P(%d, %d, %d, %d) temp f32 T(%d, %d, %d, %d, %d) temp f32 Z(%d, %d, %d, %d) "
      "out f32 Y(%d, 4, %d, %d) ",
      c->n, in, c->size, c->size, in, in, c->groups, c->out, c->in, out, out, c->n, in, c->size,
      c->size, c->n, in, wide, wide, c->n, c->groups, c->out, results, results, c->n, out, results,
      results, c->n, results, results);
  used += snprintf(text + used, (size_t)(TEXT_ROOM - used),
                   c->has_front
                       ? "F(i0:%d, i1:%d, i2:%d, i3:%d | r0:%d) +=! X(i0, r0, i2, i3) * A(i1, r0) "
                       : "F(i0:%d, i1:%d, i2:%d, i3:%d) = X(i0, i1, i2, i3) ",
                   c->n, in, c->size, c->size, in);
  used +=
      snprintf(text + used, (size_t)(TEXT_ROOM - used),
               "P(i0:%d, i1:%d, i2:%d, i3:%d) = i2 >= 1 && i2 < %d && i3 >= 1 && i3 < %d ? "
               "F(i0, i1, i2 - 1, i3 - 1) : 0f32 "
               "T(i0:%d, i1:%d, i2:%d, i3:%d, i4:%d | r0:%d, r1:3, r2:3) +=! "
               "P(i0, i1*%d + r0, i3*%d + r1, i4*%d + r2) * W(i1, i2, r0, r1, r2) "
               "Z(i0:%d, i1:%d, i2:%d, i3:%d) = max(T(i0, i1/%d, i1 %% %d, i2, i3) + B(i1), 0f32) "
               "Y(i0:%d, i1:4, i2:%d, i3:%d | r0:%d) +=! Z(i0, r0, i2, i3) * D(i1, r0) }",
               c->n, in, wide, wide, c->size + 1, c->size + 1, c->n, c->groups, c->out, results,
               results, c->in, c->in, c->stride, c->stride, c->n, out, results, results, c->out,
               c->out, c->n, results, results, out);
  assert_true(used < TEXT_ROOM);
  return text;
}

// The kernel of the launch that computes |tensor|.
static const kiln_launch *launch_of(const test_kernel *k, const kiln_kernels *kernels,
                                    const char *tensor) {
  for (int i = 0; i < kernels->launches.n; i++)
    for (int j = 0; j < kernels->launches.data[i].n_stmts; j++) {
      const kiln_stmt *s = k->prog->stmts.data[kernels->launches.data[i].stmts[j]];
      if (!strcmp(kiln_symbol_text(&k->cx, k->prog->tensors.data[s->out]->name), tensor))
        return &kernels->launches.data[i];
    }
  fail_msg("no launch computes %s", tensor);
  return NULL;
}

// Whether the vectorized loops of the kernel run over whole groups, or over their channels in whole
// vectors.
static int widest_vector(const kiln_loop *l) {
  int widest = 0;
  for (; l; l = l->next) {
    int64_t extent = 0;
    if (l->kind == KILN_LOOP_FOR && l->how == KILN_VECTORIZED &&
        kiln_expr_is_int(l->extent, &extent) && extent > widest)
      widest = (int)extent;
    const int inside = widest_vector(l->body);
    if (inside > widest) widest = inside;
  }
  return widest;
}

// Whether vectors of |widest| elements run along a group's channels or, if data is in rows, along
// neighbours of a row, as the input does: all of them, or whole vectors; never along images.
static bool has_vectors(const conv *c, const kiln_kernel *k, const kiln_ctx *cx, int widest,
                        int lanes) {
  const kiln_stmt *root = k->prog->stmts.data[k->prog->stmts.n - 1];
  const bool is_image =
      c->n > 1 && !strcmp(kiln_symbol_text(cx, root->dims[root->n_space - 1].name), "i0");
  const int row = c->has_front || c->stride > 1 ? 0 : (c->size - 1) / c->stride + 1;
  return !is_image && (widest % (c->out < lanes ? c->out : lanes) == 0 ||
                       (row > 1 && widest % (row < lanes ? row : lanes) == 0));
}

static void check(const conv *c, uint64_t seed) {
  static const char *const machines[] = {"avx2", "avx512vnni"};
  char text[TEXT_ROOM];
  test_kernel k;
  kiln_machine m;
  kiln_kernels kernels;
  kernel_open(&k, conv_text(c, text), seed);
  assert_int_equal(kiln_machine_named(&k.cx, machines[seed % KILN_LEN(machines)], &m), KILN_OK);
  if (seed / 4 % 2) { // images that these do not hold are read piece by piece
    m.l1_bytes = 1 << 10;
    m.l2_bytes = 4 << 10;
  }
  const kiln_tile_options options = {.search.n_threads = 1 + (int)(seed / 2 % 2),
                                     .search.no_connect = true};
  if (kiln_pipeline_tile(&k.cx, k.prog, &m, &options, NULL, &kernels) != KILN_OK)
    fail_msg("%s: %s", text, kernel_message(&k));
  const kiln_launch *sums = launch_of(&k, &kernels, "T");
  if (sums != launch_of(&k, &kernels, "Z")) fail_msg("one kernel must compute T and Z in %s", text);
  const int widest = widest_vector(kernels.kernels.data[sums->kernel]->loops->body),
            lanes = m.vector_bytes / 4;
  if (!has_vectors(c, kernels.kernels.data[sums->kernel], &k.cx, widest, lanes))
    fail_msg("vectors must be channels of a group, or of a row, got %d in %s", widest, text);
  check_launches(&k, &kernels, compare_elements, text);
  kernel_close(&k);
}

static void random_groups_are_one_kernel_with_vectors_of_their_channels_or_rows(void **state) {
  enum { CASES = 30 };
  static const int channels[] = {2, 3, 4, 8, 12, 16, 24};
  (void)state;
  uint64_t seed = test_asked("KILN_SEED", 3);
  for (int i = 0; i < CASES; i++) {
    const int per = channels[i % (int)KILN_LEN(channels)];
    const conv c = {.n = kernel_between(&seed, 1, 3),
                    .groups = kernel_between(&seed, 2, 5),
                    .in = per,
                    .out = per * kernel_between(&seed, 1, 2),
                    .size = kernel_between(&seed, 3, 9),
                    .stride = kernel_between(&seed, 1, 2),
                    .has_front = kernel_between(&seed, 0, 1)};
    check(&c, seed);
  }
}

// Groups with one input channel and several output channels: if data and results are channels last,
// and vectors hold whole groups, vectors run along the channels of all groups.
static void groups_of_one_channel_have_vectors_of_all_channels(void **state) {
  enum { CASES = 24 };
  static const char *const machines[] = {"avx2", "avx512vnni"};
  static const int results[] = {2, 4, 3, 8, 2};
  (void)state;
  uint64_t seed = test_asked("KILN_SEED", 7);
  int n_joined = 0;
  for (int i = 0; i < CASES; i++) {
    const conv c = {.n = kernel_between(&seed, 1, 3),
                    .groups = 4 * kernel_between(&seed, 1, 8),
                    .in = 1,
                    .out = results[i % (int)KILN_LEN(results)],
                    .size = kernel_between(&seed, 3, 9),
                    .stride = kernel_between(&seed, 1, 2),
                    .has_front = true};
    char text[TEXT_ROOM];
    test_kernel k;
    kiln_machine m;
    kiln_kernels kernels;
    kernel_open(&k, conv_text(&c, text), seed);
    assert_int_equal(kiln_machine_named(&k.cx, machines[i % 2], &m), KILN_OK);
    const kiln_tile_options options = {.search.n_threads = 1 + i % 2,
                                       .search.no_connect = i % 3 != 0};
    if (kiln_pipeline_tile(&k.cx, k.prog, &m, &options, NULL, &kernels) != KILN_OK)
      fail_msg("%s: %s", text, kernel_message(&k));
    const int lanes = m.vector_bytes / 4, all = c.groups * c.out;
    const kiln_tensor *t =
        k.prog->tensors.data[k.prog->stmts.data[launch_of(&k, &kernels, "T")->stmts[0]]->out];
    const bool is_joined = options.search.no_connect && t->rank == 4,
               may_join = c.out < lanes && lanes % c.out == 0 && all % (2 * lanes) == 0;
    if (options.search.no_connect && is_joined != may_join)
      fail_msg("%d groups of %d must%s be joined", c.groups, c.out, may_join ? "" : " not");
    n_joined += is_joined;
    check_launches(&k, &kernels, compare_elements, text);
    kernel_close(&k);
  }
  assert_true(n_joined > 0);
}

static void axes_of_no_elements_are_no_groups(void **state) {
  (void)state;
  const char *text = "p { in f32 X(2, 3, 0) out f32 Y(2, 3, 0) "
                     "Y(i0:2, i1:3, i2:0) = X(i0, i1, i2) + 1f32 }";
  test_kernel k;
  kiln_machine m;
  kernel_open(&k, text, 5);
  assert_int_equal(kiln_machine_named(&k.cx, "avx2", &m), KILN_OK);
  kiln_tile_coalesce_groups(&k.cx, k.prog, &m);
  assert_int_equal(k.prog->stmts.data[0]->n_space, 3);
  kernel_close(&k);
}

static void what_lies_channels_last_is_summed_as_it_lies(void **state) {
  (void)state;
  const char *text =
      "p { in f32 X(2, 8, 6, 10) const f32 W(16, 8) = ... temp f32 C(2, 16, 6, 10) temp f32 S(2) "
      "out f32 Y(2) "
      "C(i0:2, i1:16, i2:6, i3:10 | r0:8) +=! X(i0, r0, i2, i3) * W(i1, r0) "
      "S(i0:2 | r0:960) +=! C(i0, r0/60, r0/10 % 6, r0 % 10) Y(i0:2) = S(i0)/960f32 }";
  test_kernel k;
  kiln_machine m;
  kiln_kernels kernels;
  kernel_open(&k, text, 5);
  assert_int_equal(kiln_machine_named(&k.cx, "avx2", &m), KILN_OK);
  const kiln_tile_options options = {.search.n_threads = 1};
  assert_int_equal(kiln_pipeline_tile(&k.cx, k.prog, &m, &options, NULL, &kernels), KILN_OK);
  const kiln_stmt *sum =
      kernels.kernels.data[launch_of(&k, &kernels, "S")->kernel]->prog->stmts.data[0];
  assert_int_equal(sum->n_reduce, 1);
  assert_int_equal(
      kiln_load_stride(&k.cx, kernels.kernels.data[launch_of(&k, &kernels, "S")->kernel]->prog,
                       sum->body, sum->dims[sum->n_space].name),
      1);
  check_launches(&k, &kernels, compare_elements, text);
  kernel_close(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_groups_are_one_kernel_with_vectors_of_their_channels_or_rows),
      cmocka_unit_test(groups_of_one_channel_have_vectors_of_all_channels),
      cmocka_unit_test(axes_of_no_elements_are_no_groups),
      cmocka_unit_test(what_lies_channels_last_is_summed_as_it_lies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

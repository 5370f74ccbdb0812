// Recurrences: statements on different slices of tensors share one kernel.
#include "driver/pipeline.h"
#include "unit/tile/launches.h"

typedef struct recurrence {
  const char *name;
  int steps, batch, width;
  bool batch_first; // of the tensor that joins the steps
} recurrence;

static const recurrence rows[] = {
    {"more steps than boxes that are no parts", 70, 1, 16, false},
    {"rows that begin anywhere", 9, 3, 19, false},
    {"rows that lie apart", 9, 3, 19, true},
};

enum { TEXT_ROOM = 1 << 16, GAP = 3 };

// A state's axes, "a, b, c", of a step, a row of the batch and a column.
static const char *axes(const recurrence *r, const char *step, const char *row, char *text) {
  snprintf(text, 64, "%s, %s", r->batch_first ? row : step, r->batch_first ? step : row);
  return text;
}

static int put_tensors(const recurrence *r, char *text, size_t room) {
  char at[64], row[16];
  snprintf(row, sizeof row, "%d", r->batch);
  int used = snprintf(text, room, "p { in f32 X(%d, %d, %d) const f32 W(%d, %d) = ... ", r->steps,
                      r->batch, 2 * r->width + 2 * GAP, r->width, r->width);
  for (int t = 0; t < r->steps; t++)
    used += snprintf(text + used, room - (size_t)used, "temp f32 s%d(%d, %d) temp f32 h%d(%s, %d) ",
                     t, r->batch, r->width, t, axes(r, "1", row, at), r->width);
  char steps[16];
  snprintf(steps, sizeof steps, "%d", r->steps);
  return used + snprintf(text + used, room - (size_t)used, "out f32 Y(%s, %d) ",
                         axes(r, steps, row, at), r->width);
}

// h(t) = h(t - 1) times W, from the second on, and the difference of two parts of X(t), cut off
// beyond 3.
static const char *text_of(const recurrence *r, char *text, size_t room) {
  const int b = r->batch, w = r->width;
  const char *row = r->batch_first ? "i0" : "i1";
  char at[64], extents[64];
  int used = put_tensors(r, text, room);
  snprintf(extents, sizeof extents, r->batch_first ? "i0:%d, i1:1" : "i0:1, i1:%d", b);
  for (int t = 0; t < r->steps; t++) {
    if (t == 0)
      used += snprintf(text + used, room - (size_t)used, "s0(i0:%d, i1:%d) = 0f32 ", b, w);
    else
      used += snprintf(text + used, room - (size_t)used,
                       "s%d(i0:%d, i1:%d | r0:%d) +=! h%d(%s, r0) * W(i1, r0) ", t, b, w, w, t - 1,
                       axes(r, "0", "i0", at));
    used += snprintf(text + used, room - (size_t)used,
                     "h%d(%s, i2:%d) = max(-3f32, min(3f32, s%d(%s, i2) + X(%d, %s, i2 + %d) - "
                     "X(%d, %s, i2 + %d))) ",
                     t, extents, w, t, row, t, row, GAP, t, row, w + 2 * GAP);
  }
  used += snprintf(text + used, room - (size_t)used,
                   "Y(i0:%d, i1:%d, i2:%d) = ", r->batch_first ? b : r->steps,
                   r->batch_first ? r->steps : b, w);
  for (int t = 0; t < r->steps; t++) {
    char step[32];
    snprintf(step, sizeof step, "%s - %d", r->batch_first ? "i1" : "i0", t);
    if (t + 1 < r->steps)
      used += snprintf(text + used, room - (size_t)used, "%s < %d ? ", r->batch_first ? "i1" : "i0",
                       t + 1);
    used += snprintf(text + used, room - (size_t)used, "h%d(%s, i2)%s", t, axes(r, step, row, at),
                     t + 1 < r->steps ? " : " : " }");
  }
  assert_true((size_t)used < room);
  return text;
}

static void steps_share_a_kernel(void **state) {
  static const kiln_machine machine = {.target = &kiln_target_cpu,
                                       .vector_bytes = 32,
                                       .n_vector_regs = 16,
                                       .l1_bytes = 32 << 10,
                                       .l2_bytes = 512 << 10,
                                       .n_cores = 2};
  static char text[TEXT_ROOM];
  (void)state;
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    test_kernel k;
    kiln_kernels kernels;
    const kiln_tile_options options = {.search.n_threads = 2};
    kernel_open(&k, text_of(&rows[row], text, sizeof text), 7);
    if (kiln_pipeline_tile(&k.cx, k.prog, &machine, &options, NULL, &kernels) != KILN_OK)
      fail_msg("%s: %s", rows[row].name, kernel_message(&k));
    const kiln_tensor *y = k.prog->tensors.data[k.prog->outputs.data[0]];
    assert_true(kiln_fact_of(&kernels.facts, y->id).assembled);
    assert_int_equal(kernels.launches.n, rows[row].steps);
    assert_int_equal(kernels.kernels.n, 2); // the first step multiplies nothing
    check_launches(&k, &kernels, compare_elements, text);
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps_share_a_kernel)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

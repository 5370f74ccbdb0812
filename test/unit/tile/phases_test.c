// Maps that select between reductions by remainders of their indices: the kernel of each reduction
// finishes its phase and stores it interleaved with the others; results are equal.
#include "driver/pipeline.h"
#include "unit/tile/launches.h"
#include "unit/share.h"

#include "tile/query.h"

typedef struct interleaving {
  int n, in, out, rows, columns; // images, channels, the result's rows and columns
  int steps[2], cut;    // phases along the rows and the columns; what is cut from the begin
  bool depthwise, pads; // a channel a group; a border of one around the result
} interleaving;

enum { TEXT_ROOM = 16384, MOST_PHASES = 9 };

typedef struct writer {
  char text[TEXT_ROOM];
  int n;
} writer;

__attribute__((format(printf, 2, 3))) static void write_text(writer *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  w->n += vsnprintf(w->text + w->n, (size_t)(TEXT_ROOM - w->n), format, args);
  va_end(args);
  assert_true(w->n < TEXT_ROOM);
}

static int divide_up(int a, int b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

// |depthwise|: one channel a group; |pads|: a border of one around the result
static int first_of(const interleaving *v, int axis, int remainder) {
  return divide_up(v->cut - remainder, v->steps[axis]);
}

static int extent_of(const interleaving *v, int axis, int remainder) {
  const int end = v->cut + (axis ? v->columns : v->rows) - remainder;
  return divide_up(end, v->steps[axis]) - first_of(v, axis, remainder);
}

// C<phase>: a convolution with taps of its own.
static void write_phase(const interleaving *v, int a, int b, bool declares, writer *w) {
  const int id = a * v->steps[1] + b, taps[2] = {1 + a % 2, 1 + (b + 1) % 2},
            rows = extent_of(v, 0, a), columns = extent_of(v, 1, b);
  if (declares) {
    write_text(w, "const f32 W%d(%d, %d, %d, %d) = ... temp f32 C%d(%d, %d, %d, %d) ", id, v->out,
               v->depthwise ? 1 : v->in, taps[0], taps[1], id, v->n, v->out, rows, columns);
    return;
  }
  write_text(w, "C%d(i0:%d, i1:%d, i2:%d, i3:%d | ", id, v->n, v->out, rows, columns);
  if (!v->depthwise) write_text(w, "r0:%d, ", v->in);
  write_text(w, "r1:%d, r2:%d) +=! X(i0, %s, i2 + r1, i3 + r2) * W%d(i1, %s, %d - r1, %d - r2) ",
             taps[0], taps[1], v->depthwise ? "i1" : "r0", id, v->depthwise ? "0" : "r0",
             taps[0] - 1, taps[1] - 1);
}

static void write_choice(const interleaving *v, writer *w) {
  const int n = v->steps[0] * v->steps[1];
  write_text(w, "Y(i0:%d, i1:%d, i2:%d, i3:%d) = max((", v->n, v->out, v->rows, v->columns);
  for (int i = 0; i < n; i++) {
    const int a = i / v->steps[1], b = i % v->steps[1];
    if (i + 1 < n)
      write_text(w, "(i2 + %d)%%%d == %d && (i3 + %d)%%%d == %d ? ", v->cut, v->steps[0], a, v->cut,
                 v->steps[1], b);
    write_text(w, "C%d(i0, i1, (i2 + %d)/%d - %d, (i3 + %d)/%d - %d)%s", i, v->cut, v->steps[0],
               first_of(v, 0, a), v->cut, v->steps[1], first_of(v, 1, b), i + 1 < n ? " : " : "");
  }
  write_text(w, ") + B(i1), 0f32) ");
}

static void write_program(const interleaving *v, writer *w) {
  w->n = 0;
  write_text(w, "p { in f32 X(%d, %d, %d, %d) const f32 B(%d) = ... %s f32 Y(%d, %d, %d, %d) ",
             v->n, v->in, v->rows + 2, v->columns + 2, v->out, v->pads ? "temp" : "out", v->n,
             v->out, v->rows, v->columns);
  if (v->pads)
    write_text(w, "out f32 P(%d, %d, %d, %d) ", v->n, v->out, v->rows + 2, v->columns + 2);
  for (int declares = 1; declares >= 0; declares--)
    for (int i = 0; i < v->steps[0] * v->steps[1]; i++)
      write_phase(v, i / v->steps[1], i % v->steps[1], declares, w);
  write_choice(v, w);
  if (v->pads)
    write_text(w,
               "P(i0:%d, i1:%d, i2:%d, i3:%d) = i2 >= 1 && i2 < %d && i3 >= 1 && i3 < %d ? "
               "Y(i0, i1, i2 - 1, i3 - 1) : 0f32 ",
               v->n, v->out, v->rows + 2, v->columns + 2, v->rows + 1, v->columns + 1);
  write_text(w, "}");
}

// Whether the map |s| multiplies what the program is given, rather than moves a phase: it is one,
// of a single term.
static bool is_phase(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, s->body);
  bool is = false;
  for (int i = 0; i < loads.n; i++)
    is |= p->tensors.data[loads.data[i]->u.tensor]->role == KILN_INPUT;
  return is;
}

// Launches that sum and finish.
static int count_finished(kiln_ctx *cx, const kiln_program *p, const kiln_kernels *kernels) {
  int n = 0;
  for (int i = 0; i < kernels->launches.n; i++) {
    const kiln_launch *l = &kernels->launches.data[i];
    const kiln_stmt *first = p->stmts.data[l->stmts[0]],
                    *last = p->stmts.data[l->stmts[l->n_stmts - 1]];
    n += last->n_reduce == 0 &&
         (l->n_stmts == 2 ? first->n_reduce > 0 : l->n_stmts == 1 && is_phase(cx, p, first));
  }
  return n;
}

// Schedules and compares with the interpreter; gives how many phases their reduction's kernel
// finishes.
static int check(const interleaving *v, uint64_t seed) {
  static const char *const machines[] = {"avx2", "avx512vnni"};
  writer w;
  test_kernel k;
  kiln_machine m;
  kiln_kernels kernels;
  write_program(v, &w);
  kernel_open(&k, w.text, seed);
  assert_int_equal(kiln_machine_named(&k.cx, machines[seed % KILN_LEN(machines)], &m), KILN_OK);
  const kiln_tile_options options = {.search.n_threads = 1 + (int)(seed / 2 % 2)};
  if (kiln_pipeline_tile(&k.cx, k.prog, &m, &options, "winograd", &kernels) != KILN_OK)
    fail_msg("%s: %s", w.text, kernel_message(&k));
  check_launches(&k, &kernels, compare_elements, w.text);
  const int n = count_finished(&k.cx, k.prog, &kernels);
  kernel_close(&k);
  return n;
}

static const struct {
  const char *why;
  interleaving v;
} rows[] = {
    {"every other row and column", {1, 16, 16, 12, 12, {2, 2}, 0, false, false}},
    {"some cut from the begin", {1, 16, 16, 11, 12, {2, 2}, 1, false, false}},
    {"one channel a group", {1, 8, 8, 12, 12, {2, 2}, 1, true, false}},
    {"rows alone", {2, 8, 16, 9, 8, {3, 1}, 1, false, false}},
    {"columns alone", {1, 8, 16, 9, 8, {1, 2}, 0, false, false}},
    {"thirds", {1, 8, 8, 13, 10, {3, 3}, 2, false, false}},
    {"inside a border", {1, 16, 16, 12, 12, {2, 2}, 1, false, true}},
};

static void phases_are_finished_where_they_are_summed(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    const interleaving *v = &rows[i].v;
    const int n = check(v, i), phases = v->steps[0] * v->steps[1];
    if (n != phases) fail_msg("%s: %d of %d phases are finished", rows[i].why, n, phases);
  }
}

// The axis along which a padding lies in a piece that two convolutions to |out| channels and |row|
// columns read.
static int axis_of_data(int out, int row) {
  writer w = {.n = 0};
  test_kernel k;
  kiln_machine m;
  kiln_kernels kernels;
  write_text(
      &w,
      "p { in f32 X(1, 20, 5, %d) const f32 V(%d, 20, 1, 2) = ... const f32 W(%d, 20, 2, 1) = "
      "... temp f32 P(1, 20, 6, %d) temp f32 C(1, %d, 5, %d) temp f32 D(1, %d, 5, %d) "
      "out f32 Y(1, %d, 5, %d) ",
      row, out, out, row + 1, out, row, out, row, out, 2 * row);
  write_text(
      &w,
      "P(i0:1, i1:20, i2:6, i3:%d) = i2 < 5 && i3 < %d ? X(i0, i1, i2, i3) : 0f32 "
      "C(i0:1, i1:%d, i2:5, i3:%d | r0:20, r1:2) +=! P(i0, r0, i2, i3 + r1)*V(i1, r0, 0, r1) "
      "D(i0:1, i1:%d, i2:5, i3:%d | r0:20, r1:2) +=! P(i0, r0, i2 + r1, i3)*W(i1, r0, r1, 0) "
      "Y(i0:1, i1:%d, i2:5, i3:%d) = i3 %% 2 == 0 ? C(i0, i1, i2, i3/2) : D(i0, i1, i2, i3/2) }",
      row + 1, row, out, row, out, row, out, 2 * row);
  kernel_open(&k, w.text, 3);
  assert_int_equal(kiln_machine_named(&k.cx, "avx2", &m), KILN_OK);
  const kiln_tile_options options = {.search.n_threads = 1};
  assert_int_equal(kiln_pipeline_tile(&k.cx, k.prog, &m, &options, "winograd", &kernels), KILN_OK);
  check_launches(&k, &kernels, compare_elements, w.text);
  int axis = -1;
  for (int t = 0; t < k.prog->tensors.n; t++) {
    const kiln_tensor *x = k.prog->tensors.data[t];
    if (!strcmp(kiln_symbol_text(&k.cx, x->name), "P")) axis = x->order[x->rank - 1];
  }
  kernel_close(&k);
  return axis;
}

static void data_of_phases_of_few_channels_lies_in_rows(void **state) {
  (void)state;
  static const struct {
    int out, row, axis;
  } of[] = {{1, 11, 3}, {2, 13, 3}, {4, 26, 3}, {1, 5, 1}, {4, 13, 1}, {8, 40, 1}};
  for (size_t i = 0; i < KILN_LEN(of); i++)
    assert_int_equal(axis_of_data(of[i].out, of[i].row), of[i].axis);
}

static void random_phases_are_what_they_are_apart(void **state) {
  enum { CASES = 40, FEWEST = 60 };
  (void)state;
  uint64_t seed = test_asked("KILN_SEED", 5);
  int n = 0;
  for (int i = 0; i < CASES; i++) {
    interleaving v = {.n = kernel_between(&seed, 1, 2),
                      .in = kernel_between(&seed, 1, 9),
                      .out = kernel_between(&seed, 1, 17),
                      .rows = kernel_between(&seed, 6, 13),
                      .columns = kernel_between(&seed, 6, 13),
                      .steps = {kernel_between(&seed, 1, 3), kernel_between(&seed, 1, 3)},
                      .cut = kernel_between(&seed, 0, 3),
                      .depthwise = kernel_between(&seed, 0, 2) == 0,
                      .pads = kernel_between(&seed, 0, 2) == 0};
    if (v.depthwise) v.in = v.out;
    n += check(&v, kernel_random(&seed));
  }
  assert_true(n >= FEWEST);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(data_of_phases_of_few_channels_lies_in_rows),
                                     cmocka_unit_test(phases_are_finished_where_they_are_summed),
                                     cmocka_unit_test(random_phases_are_what_they_are_apart)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

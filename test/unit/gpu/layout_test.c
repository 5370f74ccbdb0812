// Thread-value layouts: read off the instructions' rows, as PTX documents them; tiles of them; what
// reductions leave; conversions.
#include "template/gpu/layout.h"

#include "schedule/instr.h"
#include "target/gpu/gpu.h"

#include "unit/fixture.h"

static kiln_instr *named(fixture *f, const char *name) {
  kiln_machine m;
  int n = 0;
  assert_int_equal(kiln_gpu_machine_named(&f->cx, "cuda:sm_90a", &m), KILN_OK);
  kiln_instr *all = kiln_gpu_instrs(&f->cx, &m, &n);
  for (int i = 0; i < n; i++)
    if (strcmp(all[i].name, name) == 0) return &all[i];
  fail_msg("no instruction %s", name);
  return NULL;
}

static int64_t threads_of(const kiln_layout *l) {
  return kiln_layout_extent(l, KILN_HOLDER_WARP) * kiln_layout_extent(l, KILN_HOLDER_LANE);
}

// Each element has a place of its own, and all places have one.
static void check_bijective(fixture *f, const kiln_layout *l, const char *what) {
  const int64_t n_registers = kiln_layout_extent(l, KILN_HOLDER_REGISTER),
                n = threads_of(l) * n_registers;
  bool *taken = KILN_NEW_ARRAY(&f->cx.perm, bool, (int)n);
  memset(taken, 0, (size_t)n);
  if (l->extents[0] * l->extents[1] != n) fail_msg("%s: %d places", what, (int)n);
  for (int64_t i = 0; i < l->extents[0]; i++)
    for (int64_t j = 0; j < l->extents[1]; j++) {
      int64_t thread, at;
      kiln_layout_find(l, (int64_t[]){i, j}, &thread, &at);
      const int64_t place = thread * n_registers + at;
      if (place < 0 || place >= n || taken[place])
        fail_msg("%s: (%d, %d) is at %d", what, (int)i, (int)j, (int)place);
      taken[place] = true;
    }
}

// The row and column of register |r| of a lane, as PTX documents them: fragments of m16n8 whose
// operands lie |p| to a word of 32 bits.
static void find_of_sums(int p, int lane, int r, int *row, int *column) {
  (void)p;
  *row = lane / 4 + (r < 2 ? 0 : 8);
  *column = lane % 4 * 2 + (r & 1);
}
static void find_of_left(int p, int lane, int r, int *row, int *column) {
  *row = lane / 4 + (r / p % 2 ? 8 : 0);
  *column = lane % 4 * p + r % p + (r < 2 * p ? 0 : 4 * p);
}
static void find_of_right(int p, int lane, int r, int *row, int *column) {
  *row = lane % 4 * p + r % p + (r < p ? 0 : 4 * p);
  *column = lane / 4;
}

static const struct {
  const char *name;
  int operand, p, rows, columns;
  void (*find)(int p, int lane, int r, int *row, int *column);
} documented[] = {
    {"mma.m16n8k16.f16", 0, 2, 16, 8, find_of_sums},
    {"mma.m16n8k16.f16", 1, 2, 16, 16, find_of_left},
    {"mma.m16n8k16.bf16", 2, 2, 16, 8, find_of_right},
    {"mma.m16n8k8.f16", 0, 2, 16, 8, find_of_sums},
    {"mma.m16n8k8.f16", 1, 2, 16, 8, find_of_left},
    {"mma.m16n8k8.f16", 2, 2, 8, 8, find_of_right},
    {"mma.m16n8k8.tf32", 0, 1, 16, 8, find_of_sums},
    {"mma.m16n8k8.tf32", 1, 1, 16, 8, find_of_left},
    {"mma.m16n8k8.tf32", 2, 1, 8, 8, find_of_right},
    {"mma.m16n8k32.s8.u8", 0, 4, 16, 8, find_of_sums},
    {"mma.m16n8k32.s8.u8", 1, 4, 16, 32, find_of_left},
    {"mma.m16n8k32.u8.s8", 2, 4, 32, 8, find_of_right},
};

static void instructions_have_the_fragments_that_ptx_documents(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(documented); i++) {
    kiln_layout l;
    assert_true(
        kiln_layout_of_instr(&f->cx, named(f, documented[i].name), documented[i].operand, &l));
    assert_int_equal(l.extents[0], documented[i].rows);
    assert_int_equal(l.extents[1], documented[i].columns);
    const int n_registers = (int)kiln_layout_extent(&l, KILN_HOLDER_REGISTER);
    assert_int_equal(n_registers * 32, documented[i].rows * documented[i].columns);
    for (int lane = 0; lane < 32; lane++)
      for (int r = 0; r < n_registers; r++) {
        int row, column;
        int64_t thread, at;
        documented[i].find(documented[i].p, lane, r, &row, &column);
        kiln_layout_find(&l, (int64_t[]){row, column}, &thread, &at);
        if (thread != lane || at != r)
          fail_msg("%s, operand %d: (%d, %d)", documented[i].name, documented[i].operand, row,
                   column);
      }
  }
}

// The place that the row's text gives an element.
static int64_t value(fixture *f, const char *text, const kiln_buffer *tile, int64_t row,
                     int64_t column) {
  const kiln_expr_names none = {0};
  const kiln_expr *e = NULL, *values[KILN_MAX_TILE_RANK];
  kiln_symbol vars[KILN_MAX_TILE_RANK];
  int64_t at = -1;
  assert_int_equal(kiln_expr_parse(&f->cx, &text, &none, &e), KILN_OK);
  for (int k = KILN_MAX_TILE_RANK - 1; k >= 0; k--) {
    const bool is_column = k > 0 && k < tile->rank;
    vars[k] = kiln_tile_var(&f->cx, k);
    values[k] = kiln_int(&f->cx, k == 0 ? row : is_column ? column % tile->extents[k] : 0);
    if (is_column) column /= tile->extents[k];
  }
  e = kiln_simplify(&f->cx, kiln_expr_substitute(&f->cx, e, KILN_MAX_TILE_RANK, vars, values),
                    NULL);
  assert_true(kiln_expr_is_int(e, &at));
  return at;
}

static void layouts_are_what_the_rows_say_and_bijective(void **state) {
  fixture *f = *state;
  kiln_machine m;
  int n = 0, n_read = 0;
  assert_int_equal(kiln_gpu_machine_named(&f->cx, "cuda:sm_90a", &m), KILN_OK);
  kiln_instr *all = kiln_gpu_instrs(&f->cx, &m, &n);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < KILN_MAX_OPERANDS; k++) {
      kiln_layout l;
      if (!kiln_layout_of_instr(&f->cx, &all[i], k, &l)) continue;
      n_read++;
      check_bijective(f, &l, all[i].name);
      const kiln_buffer *tile = all[i].loops->buffers.data[k];
      for (int64_t row = 0; row < l.extents[0]; row++)
        for (int64_t column = 0; column < l.extents[1]; column += 3) {
          int64_t thread, at;
          kiln_layout_find(&l, (int64_t[]){row, column}, &thread, &at);
          assert_int_equal(thread, value(f, all[i].fragments[k].lane, tile, row, column));
          assert_int_equal(at, value(f, all[i].fragments[k].element, tile, row, column));
        }
    }
  assert_true(n_read > 100);
}

static void tiles_of_operands_are_bijective(void **state) {
  fixture *f = *state;
  static const struct {
    const char *name;
    int operand;
    int64_t extents[2], warp[2];
  } tiles[] = {
      {"mma.m16n8k16.f16", 0, {128, 256}, {64, 64}},
      {"mma.m16n8k16.f16", 1, {128, 48}, {32, 48}},
      {"mma.m16n8k16.f16", 2, {64, 96}, {64, 24}},
      {"mma.m16n8k8.tf32", 1, {64, 24}, {64, 24}},
      {"mma.m16n8k32.s8.s8", 0, {48, 40}, {16, 40}},
      {"wgmma.m64n192k16.f16.row.row", 0, {128, 192}, {64, 192}},
      {"wgmma.m64n256k16.bf16.lanes.row", 1, {256, 64}, {128, 64}},
  };
  for (size_t i = 0; i < KILN_LEN(tiles); i++) {
    kiln_layout l;
    assert_true(kiln_layout_of_operand(&f->cx, named(f, tiles[i].name), tiles[i].operand,
                                       tiles[i].extents, tiles[i].warp, &l));
    check_bijective(f, &l, tiles[i].name);
    assert_int_equal(kiln_layout_extent(&l, KILN_HOLDER_WARP),
                     tiles[i].extents[0] / tiles[i].warp[0] *
                         (tiles[i].extents[1] / tiles[i].warp[1]));
  }
  const int64_t ragged[] = {40, 64};
  kiln_layout l;
  assert_false(kiln_layout_of_operand(&f->cx, named(f, "mma.m16n8k16.f16"), 0, ragged, ragged, &l));
}

static void register_tiles_of_threads_are_bijective(void **state) {
  fixture *f = *state;
  static const kiln_simt_tile tiles[] = {
      {{128, 128}, {2, 2}, {4, 8}, {4, 4}, true},
      {{128, 64}, {4, 1}, {4, 8}, {1, 4}, true},
      {{48, 48}, {1, 3}, {8, 4}, {2, 1}, false},
      {{8, 256}, {8, 1}, {1, 32}, {1, 8}, false},
  };
  for (size_t i = 0; i < KILN_LEN(tiles); i++) {
    kiln_layout l;
    assert_true(kiln_layout_of_simt(&tiles[i], &l));
    check_bijective(f, &l, "simt");
    assert_int_equal(kiln_layout_extent(&l, KILN_HOLDER_LANE), 32);
  }
}

static kiln_layout of(fixture *f, const char *name, int operand, int64_t rows, int64_t columns,
                      int64_t warp_rows, int64_t warp_columns) {
  kiln_layout l;
  assert_true(kiln_layout_of_operand(&f->cx, named(f, name), operand, (int64_t[]){rows, columns},
                                     (int64_t[]){warp_rows, warp_columns}, &l));
  return l;
}

static void reductions_leave_a_copy_for_each_thread_of_a_row(void **state) {
  fixture *f = *state;
  const kiln_layout sums = of(f, "mma.m16n8k16.f16", 0, 64, 96, 32, 48),
                    groups = of(f, "wgmma.m64n64k16.f16.row.row", 0, 128, 64, 64, 64);
  kiln_layout rows;
  kiln_layout_reduced(&sums, 1, &rows);
  check_bijective(f, &rows, "rows");
  assert_int_equal(rows.extents[0], 64);
  assert_int_equal(rows.extents[1], 8); // 4 lanes of each of 2 warps
  assert_int_equal(kiln_layout_copies(&rows, 1, KILN_HOLDER_WARP), 2);
  assert_int_equal(kiln_layout_copies(&rows, 1, KILN_HOLDER_LANE), 4);
  for (int64_t row = 0; row < 64; row++)
    for (int64_t column = 0; column < 96; column++) { // the thread of an element has a copy
      int64_t thread, with_copy, at;
      kiln_layout_find(&sums, (int64_t[]){row, column}, &thread, &at);
      kiln_layout_find(&rows, (int64_t[]){row, column / 48 * 4 + column % 8 / 2}, &with_copy, &at);
      assert_int_equal(thread, with_copy);
    }
  const kiln_expr *copy = kiln_layout_copy(&f->cx, &sums, 1, kiln_int(&f->cx, 57));
  assert_int_equal(kiln_expr_int_or(copy, -1), 57 / 48 * 4 + 57 % 8 / 2);
  kiln_layout_reduced(&sums, 0, &rows); // of columns: by 8 lanes of each of 2 warps
  check_bijective(f, &rows, "columns");
  assert_int_equal(rows.extents[0], 16);
  kiln_layout_reduced(&groups, 1, &rows);
  check_bijective(f, &rows, "rows of groups");
  assert_int_equal(rows.extents[1], 4);
}

static void conversions_are_as_far_as_elements_go(void **state) {
  fixture *f = *state;
  const kiln_layout sums = of(f, "mma.m16n8k16.f16", 0, 64, 64, 16, 64),
                    left = of(f, "mma.m16n8k16.f16", 1, 64, 64, 16, 64),
                    bytes = of(f, "mma.m16n8k32.s8.s8", 1, 64, 64, 16, 64),
                    words = of(f, "mma.m16n8k8.tf32", 1, 64, 64, 16, 64),
                    by_columns = of(f, "mma.m16n8k16.f16", 0, 64, 64, 64, 16),
                    groups = of(f, "wgmma.m64n64k16.f16.row.row", 0, 64, 64, 64, 64),
                    lanes = of(f, "wgmma.m64n64k16.f16.lanes.row", 1, 64, 64, 64, 64);
  kiln_layout other;
  const kiln_layout one = of(f, "mma.m16n8k16.f16", 0, 16, 8, 16, 8);
  assert_true(kiln_layout_tiled(&one, (int64_t[]){64, 64}, (int64_t[]){32, 32}, 0, &other));
  kiln_layout same = of(f, "mma.m16n8k16.f16", 0, 64, 64, 32, 32);
  assert_int_equal(kiln_layout_conversion(&sums, &left), KILN_CONVERSION_NONE);
  assert_int_equal(kiln_layout_conversion(&groups, &lanes), KILN_CONVERSION_NONE);
  assert_int_equal(kiln_layout_conversion(&same, &other), KILN_CONVERSION_REGISTERS);
  assert_int_equal(kiln_layout_conversion(&sums, &bytes), KILN_CONVERSION_SHUFFLE);
  assert_int_equal(kiln_layout_conversion(&sums, &words), KILN_CONVERSION_SHUFFLE);
  assert_int_equal(kiln_layout_conversion(&sums, &by_columns), KILN_CONVERSION_SHARED);
  assert_int_equal(kiln_layout_conversion(&sums, &groups), KILN_CONVERSION_SHARED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(instructions_have_the_fragments_that_ptx_documents),
      FIXTURE_TEST(layouts_are_what_the_rows_say_and_bijective),
      FIXTURE_TEST(tiles_of_operands_are_bijective),
      FIXTURE_TEST(register_tiles_of_threads_are_bijective),
      FIXTURE_TEST(reductions_leave_a_copy_for_each_thread_of_a_row),
      FIXTURE_TEST(conversions_are_as_far_as_elements_go)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// The choice of register tiles.
#include "price/registers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const kiln_machine machine = {.target = &kiln_target_cpu,
                                     .vector_bytes = 64,
                                     .n_vector_regs = 32,
                                     .l1_bytes = 32768,
                                     .l2_bytes = 1048576};

// A 1x1 convolution of 14 x 14 pixels: 14 of them in a tile, but where more than eight would lie in
// one of the 64 sets of the L1.
static const struct {
  int64_t col_bytes, row_bytes;
  int64_t most; // elements of the tile in a set
} cases[] = {
    {1024, 14336, 0}, {1088, 15232, 0}, {2048, 28672, 0}, {4096, 57344, 8}, {8192, 114688, 8},
};

static void no_more_elements_meet_in_a_set_than_it_holds(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const kiln_tile_extents e = {
        256, 14, 14, 1024, cases[i].col_bytes, cases[i].row_bytes, 0, false, {0, 0, 0, 0}, 0};
    const kiln_register_tile tile = kiln_tile_registers(&machine, &e);
    if (cases[i].most) assert_in_range(tile.rows * tile.cols, 4, cases[i].most);
    else assert_int_equal(tile.rows * tile.cols, 14);
    assert_true(tile.efficiency > 0.75);
  }
}

static void elements_of_one_line_do_not_meet(void **state) {
  (void)state;
  const kiln_tile_extents e = {256, 14, 14, 1024, 4, 4096, 0, false, {0, 0, 0, 0}, 0};
  const kiln_register_tile tile = kiln_tile_registers(&machine, &e);
  assert_int_equal(tile.rows * tile.cols, 14);
}

// Products of an image whose channels lie in front, 14 or 56 pixels a row: each step has lines of
// its own, and each vector reads them again. Where they do not all stay in the L1, or in the few
// sets in which they lie, a tile's pixels are those of one row.
static void a_tile_touches_few_lines_where_each_step_has_its_own(void **state) {
  (void)state;
  static const struct {
    int64_t width, channels;
    bool in_a_row;
  } rows[] = {{14, 208, true}, {56, 128, true}, {14, 24, false}, {14, 104, false}};
  const kiln_machine small = {.target = &kiln_target_cpu,
                              .vector_bytes = 32,
                              .n_vector_regs = 16,
                              .l1_bytes = 32768,
                              .l2_bytes = 512 << 10};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const int64_t w = rows[i].width, c = rows[i].channels;
    const kiln_tile_extents e = {c, w, w, c, 4, 4 * w, 0, false, {0, 0, 0, 0}, 4 * w * w};
    const kiln_register_tile tile = kiln_tile_registers(&small, &e);
    if (rows[i].in_a_row) assert_int_equal(tile.rows, 1);
    else assert_in_range(tile.rows, 2, 14);
  }
}

// Twelve ways of 4 KiB: as many elements meet without missing as a set has lines.
// Eight vectors by two elements keep the multipliers busy for 8 cycles a step, in which the L2
// gives four of the vectors: fewer vectors and more elements are better wherever a panel of eight
// does not stay in the L1.
static void the_l2_gives_vectors_as_fast_as_a_tile_takes_them(void **state) {
  (void)state;
  const kiln_device device = {.n_levels = 1,
                              .levels = {{.name = "L2", .unit_bytes_ns = 96}}, // 32 bytes a cycle
                              .unit_flops_ns = {192}};
  kiln_machine m = machine;
  m.device = &device;
  for (int64_t depth = 64; depth <= 1024; depth *= 2)
    for (int64_t w = 7; w <= 112; w *= 2) {
      const kiln_tile_extents e = {128, w, w, depth, 4, 4 * w, 0, false, {0, 0, 0, 0}, 4 * w * w};
      const kiln_register_tile tile = kiln_tile_registers(&m, &e);
      const int64_t panel = depth * tile.vectors * m.vector_bytes,
                    busy = tile.rows * tile.cols * tile.vectors / 2;
      if (panel > 2 * m.l1_bytes) assert_true(tile.vectors * m.vector_bytes <= 32 * busy);
    }
}

static void a_set_holds_as_many_lines_as_the_machine_says(void **state) {
  (void)state;
  kiln_machine wide = machine;
  wide.l1_bytes = 48 << 10;
  wide.ways[0] = 12;
  const kiln_tile_extents e = {256, 14, 14, 1024, 4096, 57344, 0, false, {0, 0, 0, 0}, 0};
  const kiln_register_tile tile = {.rows = 1, .cols = 12, .vectors = 2};
  assert_true(kiln_tile_given(&wide, &e, &tile).efficiency > 0.75);
  assert_true(kiln_tile_given(&machine, &e, &tile).efficiency < 0.75);
}

// Five rows of four vectors are a little better than eight of two or four, but leave a block of few
// rows.
static void rows_of_whole_blocks_divide_them(void **state) {
  (void)state;
  kiln_machine wide = machine;
  wide.l1_bytes = 48 << 10;
  wide.ways[0] = 12;
  const kiln_tile_extents e = {1024, 64, 1, 1024, 4096, 0, 0, false, {0, 0, 0, 0}, 0};
  const kiln_register_tile tile = kiln_tile_registers_even(&wide, &e);
  assert_int_equal(64 % tile.cols, 0);
  assert_true(kiln_tile_registers(&wide, &e).cycles <= tile.cycles);
}

// One row is summed fastest six vectors at a time, or so many as may be; where none that may be
// fits, any are.
static void vectors_are_those_that_may_be(void **state) {
  (void)state;
  static const struct {
    int64_t cols;
    uint32_t may;
    int64_t vectors;
  } rows[] = {{768, 0, 6}, {768, 1 << 2, 2}, {768, 1 << 2 | 1 << 3, 3}, {16, 1 << 6, 2}};
  const kiln_machine narrow = {.target = &kiln_target_cpu,
                               .vector_bytes = 32,
                               .n_vector_regs = 16,
                               .l1_bytes = 32768,
                               .l2_bytes = 524288};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kiln_tile_extents e = {rows[i].cols, 1, 1, 768, 0, 0, rows[i].may, false,
                                 {0, 0, 0, 0}, 0};
    assert_int_equal(kiln_tile_registers(&narrow, &e).vectors, rows[i].vectors);
  }
}

// 28 pixels by two vectors are seven tiles of 4, whose 8 sums just hide what an FMA takes, or five
// of 6, the last of which computes two pixels again; that is faster. Of 8 pixels 6 would repeat 4.
static void eight_sums_give_way_to_more_that_repeat_little(void **state) {
  (void)state;
  static const struct {
    int64_t cols, channels, tile;
  } rows[] = {{28, 32, 6}, {20, 32, 5}, {16, 32, 6}, {8, 32, 4}, {4, 32, 4}, {7, 2, 7}};
  const kiln_machine narrow = {.target = &kiln_target_cpu,
                               .vector_bytes = 32,
                               .n_vector_regs = 16,
                               .l1_bytes = 32768,
                               .l2_bytes = 524288};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kiln_tile_extents e = {
        rows[i].channels, rows[i].cols, 1, 288, 256, 0, 0, false, {0, 0, 0, 0}, 4};
    const kiln_register_tile tile = kiln_tile_registers(&narrow, &e);
    assert_int_equal(tile.cols, rows[i].tile);
  }
}

// Where two instructions multiply for each vector, seven rows keep them busy with one vector, and
// no row is computed twice; where bytes are widened with each vector, more rows share it.
static void products_of_bytes_take_tiles_by_what_their_steps_do(void **state) {
  (void)state;
  static const struct {
    int64_t rows;
    kiln_step_work work;
    int64_t tile_rows, vectors;
  } rows[] = {{7, {2, 3, 0, 0}, 7, 1}, {3136, {1, 2, 1, 0}, 5, 2}};
  const kiln_machine narrow = {.target = &kiln_target_cpu,
                               .vector_bytes = 32,
                               .n_vector_regs = 14,
                               .l1_bytes = 32768,
                               .l2_bytes = 524288};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const kiln_tile_extents e = {32, rows[i].rows, 1, 1152, 512, 0, 0, false, rows[i].work, 0};
    const kiln_register_tile tile = kiln_tile_registers(&narrow, &e);
    assert_int_equal(tile.cols, rows[i].tile_rows);
    assert_int_equal(tile.vectors, rows[i].vectors);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_more_elements_meet_in_a_set_than_it_holds),
      cmocka_unit_test(elements_of_one_line_do_not_meet),
      cmocka_unit_test(a_tile_touches_few_lines_where_each_step_has_its_own),
      cmocka_unit_test(the_l2_gives_vectors_as_fast_as_a_tile_takes_them),
      cmocka_unit_test(a_set_holds_as_many_lines_as_the_machine_says),
      cmocka_unit_test(rows_of_whole_blocks_divide_them),
      cmocka_unit_test(vectors_are_those_that_may_be),
      cmocka_unit_test(eight_sums_give_way_to_more_that_repeat_little),
      cmocka_unit_test(products_of_bytes_take_tiles_by_what_their_steps_do),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

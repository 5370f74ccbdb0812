// The template of sums of blocks: both sums stay in registers; results equal the reference
// interpreter's.
#include "unit/tile/lowering.h"

static const kiln_machine machine = {.target = &kiln_target_cpu,
                                     .vector_bytes = 32,
                                     .n_vector_regs = 16,
                                     .l1_bytes = 32 << 10,
                                     .l2_bytes = 64 << 10,
                                     .n_cores = 2};

// Two panels of 16 columns, rows of 64 in 4 blocks: numbers of 4 bits, 8 in a word.
#define FOUR_BITS                                                                                  \
  "t0(i0:2, j0:4, i1:16 | r0:2, r1:8) +=! "                                                        \
  "X(j0*16 + r0*8 + r1)*f32(band(shr(W(i0, j0, r0, i1), i32(r1*4)), 15i32)) "

static const struct {
  const char *name, *text;
  const char *lines[3]; // of the script
} cases[] = {
    {"weights of four bits",
     "p { in f32 X(64) in i32 W(2, 4, 2, 16) in f32 F(2, 4, 16) in f32 S(4) temp f32 t0(2, 4, 16) "
     "temp f32 t1(2, 16) out f32 y(2, 16) " FOUR_BITS
     "t1(i0:2, i1:16 | r0:4) +=! F(i0, r0, i1)*(t0(i0, r0, i1) - 8f32*S(r0)) "
     "y(i0:2, i1:16) = t1(i0, i1) }",
     {"parallel y.i0\n", "unroll t0.r1\n", "vectorize t0.i1\n"}},
    {"a constant of more than the L2 holds is prefetched",
     "p { in f32 X(8192) const f32 W(2, 256, 32, 16) = ... temp f32 t0(2, 256, 16) "
     "temp f32 t1(2, 16) out f32 y(2, 16) "
     "t0(i0:2, j0:256, i1:16 | r0:32) +=! X(j0*32 + r0)*W(i0, j0, r0, i1) "
     "t1(i0:2, i1:16 | r0:256) +=! t0(i0, r0, i1)*0.5f32 y(i0:2, i1:16) = exp(t1(i0, i1)) }",
     {"prefetch W t1.r0 4\n", "vectorize t1.i1\n", "vectorize y.i1\n"}},
    {"columns that fill more than the registers take several tiles",
     "p { in f32 X(64) in f32 W(2, 4, 16, 64) temp f32 t0(2, 4, 64) temp f32 t1(2, 64) "
     "out f32 y(2, 64) t0(i0:2, j0:4, i1:64 | r0:16) +=! X(j0*16 + r0)*W(i0, j0, r0, i1) "
     "t1(i0:2, i1:64 | r0:4) +=! t0(i0, r0, i1)*2f32 y(i0:2, i1:64) = t1(i0, i1) }",
     {"split y.i1 32 shift y.i1.o y.i1.i\n", "vectorize y.i1.i\n", "vectorize t0.i1\n"}},
    {"rows share the weights that a tile decodes, and the last tile overlaps",
     "p { in f32 X(14, 64) in i32 W(2, 4, 2, 16) in f32 F(2, 4, 16) in f32 S(14, 4) "
     "temp f32 t0(2, 14, 4, 16) temp f32 t1(2, 14, 16) out f32 y(2, 14, 16) "
     "t0(i0:2, i1:14, j0:4, i2:16 | r0:2, r1:8) +=! "
     "X(i1, j0*16 + r0*8 + r1)*f32(band(shr(W(i0, j0, r0, i2), i32(r1*4)), 15i32)) "
     "t1(i0:2, i1:14, i2:16 | r0:4) +=! F(i0, r0, i2)*(t0(i0, i1, r0, i2) - 8f32*S(i1, r0)) "
     "y(i0:2, i1:14, i2:16) = t1(i0, i1, i2) }",
     {"split y.i1 5 shift y.i1.o y.i1.i\n", "unroll t0.i1\n", "vectorize t0.i2\n"}},
    {"rows of a batch",
     "p { in f32 X(2, 3, 64) in f32 W(2, 4, 16, 16) temp f32 t0(2, 2, 3, 4, 16) "
     "temp f32 t1(2, 2, 3, 16) out f32 y(2, 2, 3, 16) "
     "t0(i0:2, i1:2, i2:3, j0:4, i3:16 | r0:16) +=! X(i1, i2, j0*16 + r0)*W(i0, j0, r0, i3) "
     "t1(i0:2, i1:2, i2:3, i3:16 | r0:4) +=! t0(i0, i1, i2, r0, i3)*2f32 "
     "y(i0:2, i1:2, i2:3, i3:16) = t1(i0, i1, i2, i3) }",
     {"unroll t0.i2\n", "vectorize t0.i3\n", "unroll y.i2\n"}},
    {"a long block's few sums begin anew each 32 steps",
     "p { in f32 X(256) in i32 W(2, 2, 16, 16) in f32 F(2, 2, 16) temp f32 t0(2, 2, 16) "
     "temp f32 t1(2, 16) out f32 y(2, 16) t0(i0:2, j0:2, i1:16 | r0:16, r1:8) +=! "
     "X(j0*128 + r0*8 + r1)*f32(band(shr(W(i0, j0, r0, i1), i32(r1*4)), 15i32)) "
     "t1(i0:2, i1:16 | r0:2) +=! F(i0, r0, i1)*t0(i0, r0, i1) y(i0:2, i1:16) = t1(i0, i1) }",
     {"split t0.r0 4 exact t0.r0.o t0.r0.i\n", "rfactor t0.r0.o t0.part\n",
      "vectorize t0.part.2\n"}},
};

static void both_sums_stay_in_registers(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(cases); i++) {
    test_kernel k;
    kiln_lowering w = lowering_open(&k, &machine, cases[i].text);
    kiln_tile_candidates found = {0};
    lowering_expect_ok(&k, &w, kiln_template_block_sums.propose(&w, &found));
    assert_int_equal(found.n, 1);
    lowering_expect_ok(&k, &w, kiln_template_block_sums.lower(&w, &found.data[0].tiling));
    for (size_t l = 0; l < KILN_LEN(cases[i].lines); l++)
      if (!strstr(kiln_schedule_script(&w.s), cases[i].lines[l]))
        fail_msg("%s: \"%s\" must be in\n%s", cases[i].name, cases[i].lines[l],
                 kiln_schedule_script(&w.s));
    lowering_expect_right(&k, &w);
    kernel_close(&k);
  }
}

// A machine with products of bytes.
static const kiln_machine by_bytes = {.target = &kiln_target_cpu,
                                      .triple = "x86_64-unknown-linux-gnu",
                                      .features = "+avx2,+fma",
                                      .has_fma = true,
                                      .vector_bytes = 32,
                                      .n_vector_regs = 16,
                                      .l1_bytes = 32 << 10,
                                      .l2_bytes = 64 << 10,
                                      .n_cores = 2};

// Blocks of 8 |units| numbers of 4 bits, two in a byte, and codes of 8 bits.
#define BYTES(rows, units)                                                                         \
  "p { in i8 X(" #rows ", 4, " #units ", 2, 4) in u8 W(2, 4, " #units ", 16, 4) "                  \
  "in f32 F(2, 4, 16) in i32 S(" #rows ", 4) temp i32 t0(2, " #rows ", 4, 16) "                    \
  "temp f32 t1(2, " #rows ", 16) out f32 y(2, " #rows ", 16) "                                     \
  "t0(i0:2, i1:" #rows ", j0:4, i2:16 | r0:" #units ", r1:4) +=! "                                 \
  "i32(X(i1, j0, r0, 0, r1))*i32(band(W(i0, j0, r0, i2, r1), 15u8)) + "                            \
  "i32(X(i1, j0, r0, 1, r1))*i32(shr(W(i0, j0, r0, i2, r1), 4u8)) "                                \
  "t1(i0:2, i1:" #rows ", i2:16 | r0:4) +=! F(i0, r0, i2)*f32(t0(i0, i1, r0, i2) - S(i1, r0)) "    \
  "y(i0:2, i1:" #rows ", i2:16) = t1(i0, i1, i2) }"

static const struct {
  const char *text, *instr; // of the script
} byte_cases[] = {
    {BYTES(14, 4), "vpmaddubsw.u4x32.5x2"},
    {BYTES(14, 2), "vpmaddubsw.u4x16."},
    {BYTES(1, 16), "vpmaddubsw.u4x32.1x2"},
};

static void bytes_are_multiplied_by_instructions(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(byte_cases); i++) {
    test_kernel k;
    kiln_lowering w = lowering_open(&k, &by_bytes, byte_cases[i].text);
    kiln_tile_candidates found = {0};
    lowering_expect_ok(&k, &w, kiln_template_block_sums.propose(&w, &found));
    assert_int_equal(found.n, 1);
    lowering_expect_ok(&k, &w, kiln_template_block_sums.lower(&w, &found.data[0].tiling));
    if (!strstr(kiln_schedule_script(&w.s), byte_cases[i].instr))
      fail_msg("\"%s\" must be in\n%s", byte_cases[i].instr, kiln_schedule_script(&w.s));
    lowering_expect_right(&k, &w);
    kernel_close(&k);
  }
}

static const char *const others[] = {
    // columns that fill no whole vectors
    "p { in f32 X(64) in f32 W(2, 4, 16, 12) temp f32 t0(2, 4, 12) temp f32 t1(2, 12) "
    "out f32 y(2, 12) t0(i0:2, j0:4, i1:12 | r0:16) +=! X(j0*16 + r0)*W(i0, j0, r0, i1) "
    "t1(i0:2, i1:12 | r0:4) +=! t0(i0, r0, i1)*2f32 y(i0:2, i1:12) = t1(i0, i1) }",
    // integers, and no instruction for them
    BYTES(14, 4),
    // a sum that reads each block twice
    "p { in f32 X(64) in f32 W(2, 4, 16, 16) temp f32 t0(2, 4, 16) temp f32 t1(2, 16) "
    "out f32 y(2, 16) t0(i0:2, j0:4, i1:16 | r0:16) +=! X(j0*16 + r0)*W(i0, j0, r0, i1) "
    "t1(i0:2, i1:16 | r0:4) +=! t0(i0, r0, i1)*t0(i0, 3 - r0, i1) y(i0:2, i1:16) = t1(i0, i1) }",
};

static void other_sums_are_left_to_other_templates(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(others); i++) {
    test_kernel k;
    kiln_lowering w = lowering_open(&k, &machine, others[i]);
    kiln_tile_candidates found = {0};
    lowering_expect_ok(&k, &w, kiln_template_block_sums.propose(&w, &found));
    assert_int_equal(found.n, 0);
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(both_sums_stay_in_registers),
                                     cmocka_unit_test(bytes_are_multiplied_by_instructions),
                                     cmocka_unit_test(other_sums_are_left_to_other_templates)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Operand widening of byte products: which operands become 16 bits, and that results stay right.
#include "unit/schedule/kernel.h"

#include "tile/query.h"
#include "transform/transform.h"

// Quantised data, padded; weights of bytes.
#define PADDED                                                                                     \
  "p { in f32 X(9, 24) const i8 W(24, 16) = ... temp u8 Q(9, 24) temp u8 P(11, 24) "               \
  "temp i32 t0(11, 16) out f32 y(11, 16) Q(i0:9, i1:24) = u8(X(i0, i1)) "                          \
  "P(i0:11, i1:24) = i0 < 9 ? Q(i0, i1) : 7u8 "                                                    \
  "t0(i0:11, i1:16 | r0:24) +=! i32(P(i0, r0)) * i32(W(r0, i1)) "                                  \
  "y(i0:11, i1:16) = f32(t0(i0, i1)) + f32(P(i0, i1)) }"

// The same with the sums of the data, which the weights' zero points are multiplied by.
#define SUMMED                                                                                     \
  "p { in f32 X(9, 24) const i8 W(24, 16) = ... temp u8 Q(9, 24) temp u8 P(11, 24) "               \
  "temp i32 t0(11, 16) temp i32 s(11) out f32 y(11, 16) Q(i0:9, i1:24) = u8(X(i0, i1)) "           \
  "P(i0:11, i1:24) = i0 < 9 ? Q(i0, i1) : 7u8 "                                                    \
  "t0(i0:11, i1:16 | r0:24) +=! i32(P(i0, r0)) * i32(W(r0, i1)) "                                  \
  "s(i0:11 | r0:24) +=! i32(P(i0, r0)) "                                                           \
  "y(i0:11, i1:16) = f32(t0(i0, i1) - 3i32 * s(i0)) }"

static const struct {
  const char *machine, *text;
  bool is_small; // of the weights, whatever the test's data
  kiln_dtype data;
} rows[] = {
    {"avx2", PADDED, false, KILN_I16},      {"avx2", PADDED, true, KILN_U8}, // in pairs, exact
    {"avxvnni", PADDED, false, KILN_U8},                                     // four at once
    {"avx512vnni", PADDED, false, KILN_U8},                                  // the same
    {"avx2", SUMMED, false, KILN_I16},      {"avx2", SUMMED, true, KILN_U8},
    {"avx512vnni", SUMMED, false, KILN_U8},
};

static const kiln_tensor *find_tensor(const kiln_program *p, const kiln_ctx *cx, const char *name) {
  for (int i = 0; i < p->tensors.n; i++)
    if (strcmp(kiln_symbol_text(cx, p->tensors.data[i]->name), name) == 0)
      return p->tensors.data[i];
  fail_msg("no tensor %s", name);
  return NULL;
}

static void data_are_widened_where_that_is_faster(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    test_kernel k;
    kiln_machine m;
    kiln_facts facts = {0};
    kernel_open(&k, rows[i].text, 3);
    kiln_fact_at(&k.cx, &facts, find_tensor(k.prog, &k.cx, "W")->id)->is_small = rows[i].is_small;
    assert_int_equal(kiln_machine_named(&k.cx, rows[i].machine, &m), KILN_OK);
    assert_int_equal(kiln_tile_widen_operands(&k.cx, k.prog, &facts, &m), KILN_OK);
    assert_int_equal(kiln_program_verify(&k.cx, k.prog), KILN_OK);
    assert_int_equal(find_tensor(k.prog, &k.cx, "P")->dtype, rows[i].data);
    // a padding is written in place
    assert_int_equal(find_tensor(k.prog, &k.cx, "Q")->dtype, rows[i].data);
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(data_are_widened_where_that_is_faster)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

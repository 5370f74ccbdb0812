// Constant masks in a band along a diagonal become the band's condition, with bit-equal results;
// others stay.
#include "unit/schedule/kernel.h"

#include "transform/transform.h"

enum { ROWS = 8, COLUMNS = 10 };

typedef struct row {
  const char *name;
  int64_t upper, lower; // columns of the band: at most row + upper, at least row + lower
  kiln_dtype type;
  double inside, outside;
  bool spoilt;         // one element is not as the band says
  const char *becomes; // in place of the load; NULL: it stays
} row;

static const row rows[] = {
    {"causal", 0, -COLUMNS, KILN_BOOL, 1, 0, false, "i1 <= i0 ? X"},
    {"keys before the queries", 2, -COLUMNS, KILN_F32, 0, -1e9, false,
     "i1 < i0 + 3 ? 0f32 : -1e+09f32"},
    {"upper triangle, excluded", COLUMNS, 1, KILN_BOOL, 1, 0, false, "i0 < i1 ? X"},
    {"window", 1, -2, KILN_BOOL, 1, 0, false, "i1 < i0 + 2 &&"},
    {"window in halves", 0, -3, KILN_F16, 0, -INFINITY, false, "0f16 : -inff16"},
    {"one element else", 0, -COLUMNS, KILN_BOOL, 1, 0, true, NULL},
    {"one value", COLUMNS, -COLUMNS, KILN_BOOL, 1, 0, false, NULL},
};

static void fill(test_kernel *k, const row *r) {
  for (int64_t i = 0; i < ROWS; i++)
    for (int64_t j = 0; j < COLUMNS; j++) {
      const bool is = j <= i + r->upper && j >= i + r->lower;
      kiln_element_set(r->type, k->data[0], i * COLUMNS + j, is ? r->inside : r->outside);
    }
  if (r->spoilt) kiln_element_set(r->type, k->data[0], 3, r->inside);
}

static void run(test_kernel *k, float *out) {
  kiln_interpreter_destroy(k->reference);
  assert_int_equal(kiln_interpreter_create(&k->cx, k->prog, &k->reference), KILN_OK);
  kiln_interpreter_bind(k->reference, 1, k->data[1]);
  assert_int_equal(kiln_interpreter_run(k->reference), KILN_OK);
  memcpy(out, kiln_interpreter_data(k->reference, 2), ROWS * COLUMNS * sizeof *out);
}

static void bands_are_computed_and_others_read(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    const row *r = &rows[i];
    const bool is_bool = r->type == KILN_BOOL;
    test_kernel k;
    char text[512];
    float before[ROWS * COLUMNS], after[ROWS * COLUMNS];
    snprintf(text, sizeof text,
             "p { const %s T(1, %d, %d) = ... in f32 X(%d, %d) out f32 y(%d, %d) "
             "y(i0:%d, i1:%d) = %s }",
             kiln_dtype_text(r->type), ROWS, COLUMNS, ROWS, COLUMNS, ROWS, COLUMNS, ROWS, COLUMNS,
             is_bool ? "T(0, i0, i1) ? X(i0, i1) : -inff32" : "X(i0, i1) + f32(T(0, i0, i1))");
    kernel_open(&k, text, 7);
    fill(&k, r);
    run(&k, before);
    kiln_tile_compute_mask_tables(&k.cx, k.prog);
    assert_int_equal(kiln_program_verify(&k.cx, k.prog), KILN_OK);
    run(&k, after);
    assert_memory_equal(before, after, sizeof before);
    kiln_text all;
    kiln_text_init(&all, &k.cx.perm);
    kiln_program_print(&k.cx, k.prog, &all);
    const char *body = strstr(all.data, "y(i0:"), *want = r->becomes ? r->becomes : "T(0, i0, i1)";
    if (!strstr(body, want)) fail_msg("%s: must have %s, got %s", r->name, want, body);
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bands_are_computed_and_others_read)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Packing: every affine map and the general way against the definition, element by element.
#include "module/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MAX = 16384 };

static const struct {
  const char *what;
  kiln_dtype dtype;
  int rank;
  int64_t shape[4];
  int out_rank;
  int64_t extents[6];
  const char *map[4];
} cases[] = {
    {"copy", KILN_F32, 2, {7, 9}, 2, {7, 9}, {"o0", "o1"}},
    {"transpose", KILN_F32, 2, {37, 53}, 2, {53, 37}, {"o1", "o0"}},
    {"panels", KILN_F32, 2, {20, 70}, 3, {3, 20, 32}, {"o1", "o0*32 + o2"}},
    {"panels of the transpose", KILN_F32, 2, {70, 45}, 3, {3, 45, 32}, {"o0*32 + o2", "o1"}},
    {"blocked convolution",
     KILN_F32,
     4,
     {20, 10, 3, 3},
     6,
     {2, 2, 3, 3, 8, 16},
     {"o0*16 + o5", "o1*8 + o4", "o2", "o3"}},
    {"convolution weights",
     KILN_F32,
     4,
     {33, 5, 3, 3},
     5,
     {3, 5, 3, 3, 16},
     {"o0*16 + o4", "o1", "o2", "o3"}},
    {"halves", KILN_F16, 2, {17, 19}, 2, {19, 17}, {"o1", "o0"}},
    {"bytes in groups of four", KILN_I8, 2, {18, 21}, 3, {5, 21, 4}, {"o0*4 + o2", "o1"}},
    {"doubles", KILN_F64, 1, {33}, 2, {3, 16}, {"o0*16 + o1"}},
    {"backwards", KILN_F32, 1, {33}, 1, {40}, {"32 - o0"}},
    {"every third, backwards", KILN_F32, 1, {34}, 1, {20}, {"40 - o0*3"}},
    {"shifted in", KILN_F32, 2, {5, 6}, 2, {9, 9}, {"o0 - 2", "o1 - 1"}},
    {"diagonal", KILN_F32, 2, {12, 12}, 2, {12, 24}, {"o0", "o1 - o0"}},
    {"scalar", KILN_F32, 0, {0}, 0, {0}, {0}},
    {"one element, repeated", KILN_F32, 1, {1}, 1, {9}, {"0"}},
    {"not affine", KILN_F32, 2, {6, 8}, 2, {8, 8}, {"o0 / 2 + o1 % 3", "o1"}},
    {"windows of channels, numbered",
     KILN_F32,
     4,
     {6, 5, 3, 3},
     2,
     {45, 6},
     {"o1", "o0 % 5", "o0 / 15", "o0 / 5 % 3"}},
    {"digits of digits",
     KILN_F32,
     1,
     {96},
     2,
     {24, 4},
     {"o0 / 6 + o0 % 6 / 2 * 4 + o0 % 2 * 48 + o1 * 12"}},
    {"chosen", KILN_F32, 1, {9}, 1, {12}, {"o0 < 5 ? 4 - o0 : o0"}},
};

static int no_name(const void *program, const char *name, size_t n, kiln_dtype *t, int *rank) {
  (void)program, (void)name, (void)n, (void)t, (void)rank;
  return -1;
}

static const kiln_expr *parse(kiln_ctx *cx, const char *text) {
  const kiln_expr_names names = {.find = no_name, .bracket = '['};
  const kiln_expr *e = NULL;
  assert_int_equal(kiln_expr_parse(cx, &text, &names, &e), KILN_OK);
  return e;
}

// The index by substitution of numbers and constant folding: nothing shared with pack.c.
static int64_t index_at(kiln_ctx *cx, const kiln_expr *e, int n, const int64_t *at) {
  kiln_symbol vars[6];
  const kiln_expr *values[6];
  int64_t out = 0;
  for (int k = 0; k < n; k++) {
    vars[k] = kiln_symbol_printf(cx, "o%d", k);
    values[k] = kiln_int(cx, at[k]);
  }
  assert_true(kiln_expr_is_int(kiln_expr_substitute(cx, e, n, vars, values), &out));
  return out;
}

// All at once, or slice by slice from the last to the first.
static void pack_all(kiln_ctx *cx, const kiln_buffer *b, const kiln_pack *pack, const kiln_const *c,
                     bool sliced, unsigned char *to) {
  const kiln_packing *p = NULL;
  if (!sliced) {
    assert_int_equal(kiln_pack_fill(cx, b, pack, c, NULL, to), KILN_OK);
    return;
  }
  assert_int_equal(kiln_packing_make(cx, b, pack, c, NULL, &p), KILN_OK);
  const int64_t n = kiln_packing_slices(p);
  assert_int_equal(kiln_packing_offset(p, n), kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype));
  for (int64_t i = n - 1; i >= 0; i--)
    assert_true(kiln_packing_fill(p, i, i + 1, to + kiln_packing_offset(p, i)));
}

static void check_row(kiln_ctx *cx, size_t row, bool sliced) {
  static unsigned char source[MAX * 8 + 1], got[MAX * 8], want[MAX * 8];
  const int elem = kiln_dtype_bytes(cases[row].dtype);
  kiln_const c = {.dtype = cases[row].dtype, .rank = cases[row].rank, .data = source + 1};
  kiln_pack pack = {.rank = c.rank};
  const kiln_expr *map[4];
  int64_t n = 1, elems = 1;
  for (int r = 0; r < c.rank; r++) n *= c.shape[r] = cases[row].shape[r];
  for (int r = 0; r < c.rank; r++) map[r] = parse(cx, cases[row].map[r]);
  c.bytes = (size_t)n * (size_t)elem;
  pack.map = map;
  for (size_t i = 0; i < c.bytes; i++) source[i + 1] = (unsigned char)(i * 7 + i / 251 + 1);
  kiln_loops *l = kiln_loops_make(cx, "k");
  kiln_buffer *b = kiln_buffer_make(cx, l, "b", c.dtype, KILN_SCOPE_PARAM, cases[row].out_rank,
                                    cases[row].extents, NULL);
  elems = kiln_buffer_elems(b);
  assert_true(elems <= MAX && n <= MAX);
  memset(got, 0, sizeof got);
  memset(want, 0, sizeof want);
  for (int64_t p = 0; p < elems; p++) {
    int64_t at[6] = {0}, rest = p, from = 0;
    bool inside = true;
    for (int k = b->rank - 1; k >= 0; k--) {
      at[k] = rest % b->extents[k];
      rest /= b->extents[k];
    }
    for (int r = 0; r < c.rank; r++) {
      int64_t i = index_at(cx, map[r], b->rank, at);
      inside = inside && i >= 0 && i < c.shape[r];
      from = from * c.shape[r] + i;
    }
    if (inside) memcpy(want + p * elem, source + 1 + from * elem, (size_t)elem);
  }
  pack_all(cx, b, &pack, &c, sliced, got);
  if (memcmp(got, want, (size_t)(elems * elem)) != 0) fail_msg("%s", cases[row].what);
}

static kiln_status rows(kiln_ctx *cx, void *argument) {
  (void)argument;
  for (size_t row = 0; row < KILN_LEN(cases); row++) {
    check_row(cx, row, false);
    check_row(cx, row, true);
  }
  return KILN_OK;
}

static kiln_status mismatch(kiln_ctx *cx, void *argument) {
  const int64_t four = 4;
  float data[4] = {0};
  kiln_const c = {.dtype = KILN_F32, .rank = 1, .shape = {4}, .data = data, .bytes = sizeof data};
  kiln_pack pack = {.rank = 2};
  kiln_loops *l = kiln_loops_make(cx, "k");
  kiln_buffer *b = kiln_buffer_make(cx, l, "b", KILN_F32, KILN_SCOPE_PARAM, 1, &four, NULL);
  (void)argument;
  return kiln_pack_fill(cx, b, &pack, &c, NULL, data);
}

static void with_ctx(kiln_status (*body)(kiln_ctx *cx, void *argument), kiln_status want) {
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  assert_int_equal(kiln_ctx_enter(&cx, body, NULL), want);
  kiln_ctx_deinit(&cx);
  assert_int_equal(kiln_diag_count(diag), want == KILN_OK ? 0 : 1);
  kiln_diag_destroy(diag);
}

static void packing_follows_its_definition(void **state) {
  (void)state;
  with_ctx(rows, KILN_OK);
}

static void a_map_of_another_rank_is_refused(void **state) {
  (void)state;
  with_ctx(mismatch, KILN_INTERNAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(packing_follows_its_definition),
      cmocka_unit_test(a_map_of_another_rank_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

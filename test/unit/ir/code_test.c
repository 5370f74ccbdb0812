// Encodings: values by the formats' definitions; decoding and encoding as expressions, for all
// codes and numbers between neighbouring ones, against rounding by search.
#include "ir/encoding.h"
#include "unit/fixture.h"

#include <math.h>

#define FOR_CODES(t)                                                                               \
  for (kiln_dtype t = KILN_F64; t < KILN_N_DTYPES; t++)                                            \
    if (kiln_dtype_is_code(t))

static int count(kiln_dtype t) { return 1 << kiln_dtype_bits(t); }
static double value_of(kiln_dtype t, int code) { return kiln_encoding_value(t, (uint8_t)code); }
static bool is_same(double a, double b) {
  return (isnan(a) && isnan(b)) || (a == b && !signbit(a) == !signbit(b));
}

static const struct {
  kiln_dtype t;
  int code;
  double value;
} known[] = {
    {KILN_F8E4M3FN, 0x00, 0},
    {KILN_F8E4M3FN, 0x80, -0.0},
    {KILN_F8E4M3FN, 0x01, 0x1p-9},
    {KILN_F8E4M3FN, 0x38, 1},
    {KILN_F8E4M3FN, 0x7e, 448},
    {KILN_F8E4M3FN, 0xff, (double)NAN},
    {KILN_F8E4M3FNUZ, 0x80, (double)NAN},
    {KILN_F8E4M3FNUZ, 0x01, 0x1p-10},
    {KILN_F8E4M3FNUZ, 0xff, -240},
    {KILN_F8E5M2, 0x01, 0x1p-16},
    {KILN_F8E5M2, 0x7b, 57344},
    {KILN_F8E5M2, 0xfc, -(double)INFINITY},
    {KILN_F8E5M2, 0x7d, (double)NAN},
    {KILN_F8E5M2FNUZ, 0x01, 0x1p-17},
    {KILN_F8E5M2FNUZ, 0x7f, 57344},
    {KILN_F8E5M2FNUZ, 0x80, (double)NAN},
    {KILN_I4, 0xf, -1},
    {KILN_I4, 0x8, -8},
    {KILN_I4, 0x7, 7},
    {KILN_U4, 0xf, 15},
    {KILN_I2, 0x2, -2},
    {KILN_I2, 0x1, 1},
    {KILN_U2, 0x3, 3},
    {KILN_F4E2M1, 0x1, 0.5},
    {KILN_F4E2M1, 0x7, 6},
    {KILN_F4E2M1, 0xb, -1.5},
    {KILN_F8E8M0, 0x00, 0x1p-127},
    {KILN_F8E8M0, 0x7f, 1},
    {KILN_F8E8M0, 0xfe, 0x1p127},
    {KILN_F8E8M0, 0xff, (double)NAN},
};

static void codes_mean_what_their_formats_say(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(known); i++)
    assert_true(is_same(value_of(known[i].t, known[i].code), known[i].value));
  FOR_CODES(t)
  for (int code = 0; code < count(t); code++) {
    const double v = value_of(t, code);
    if (!isnan(v) && !isinf(v)) assert_int_equal(kiln_encoding_of(t, v), code);
    if (isnan(v)) assert_true(isnan(value_of(t, kiln_encoding_of(t, v))));
  }
}

static void decoding_is_exact(void **state) {
  kiln_ctx *cx = &((fixture *)*state)->cx;
  FOR_CODES(t)
  for (int code = 0; code < count(t); code++) {
    const kiln_expr *e = kiln_decode(cx, kiln_int_of(cx, t, code));
    const double v = value_of(t, code);
    if (kiln_dtype_is_int(e->dtype)) assert_true(kiln_expr_is_int(e, NULL) && (double)e->u.i == v);
    else if (isnan(v)) assert_true(e->kind == KILN_EXPR_BITCAST); // has no number that folds
    else if (e->kind != KILN_EXPR_FLOAT || !is_same(e->u.f, v))
      fail_msg("%s: code %d must be %g", kiln_dtype_text(t), code, v);
  }
}

static int encoded(kiln_ctx *cx, kiln_dtype t, kiln_dtype from, double x, kiln_encoding how) {
  const kiln_expr *e = kiln_encode(cx, t, kiln_number(cx, from, x), how);
  if (e->kind != KILN_EXPR_INT) fail_msg("%s of %a must fold", kiln_dtype_text(t), x);
  return (int)e->u.i;
}

static void expect(kiln_ctx *cx, kiln_dtype t, kiln_dtype from, double x) {
  const kiln_encoding how = {true, KILN_ROUND_NEAREST};
  if (from == KILN_F32) x = (double)(float)x;
  const int got = encoded(cx, t, from, x, how), want = kiln_encoding_of(t, x);
  if (got != want && !(got == 0 && want == 0))
    fail_msg("%s of %s %a must be code %d, got %d", kiln_dtype_text(t), kiln_dtype_text(from), x,
             want, got);
}

// Each number, the midpoint to the next one, and the midpoint's neighbours.
static void encoding_rounds_to_the_nearest_code(void **state) {
  static const kiln_dtype sources[] = {KILN_F32, KILN_F64};
  kiln_ctx *cx = &((fixture *)*state)->cx;
  FOR_CODES(t)
  for (size_t s = 0; s < KILN_LEN(sources); s++) {
    const kiln_encoding_format *f = kiln_encoding_format_of(t);
    if (f->kind == KILN_ENCODING_INT || f->kind == KILN_ENCODING_UINT) continue;
    for (int code = 0; code <= f->most; code++) {
      const double v = value_of(t, code), next = value_of(t, code + 1);
      const double middle = isfinite(next) && code < f->most ? (v + next) / 2 : v * 17 / 16;
      const double points[] = {v,
                               middle,
                               (double)nextafterf((float)middle, 0),
                               (double)nextafterf((float)middle, INFINITY),
                               nextafter(middle, 0),
                               nextafter(middle, (double)INFINITY)};
      for (size_t i = 0; i < KILN_LEN(points); i++) {
        expect(cx, t, sources[s], points[i]);
        if (f->kind == KILN_ENCODING_FLOAT) expect(cx, t, sources[s], -points[i]);
      }
    }
    expect(cx, t, sources[s], 0x1p-148);
    expect(cx, t, sources[s], 1e30);
  }
}

static const struct {
  kiln_dtype t;
  bool saturates;
  kiln_rounding rounding;
  double x;
  int code;
} rules[] = {
    {KILN_F8E4M3FN, true, KILN_ROUND_NEAREST, 1e6, 0x7e},
    {KILN_F8E4M3FN, true, KILN_ROUND_NEAREST, -(double)INFINITY, 0xfe},
    {KILN_F8E4M3FN, false, KILN_ROUND_NEAREST, 464, 0x7e}, // half way, to the even one
    {KILN_F8E4M3FN, false, KILN_ROUND_NEAREST, 465, 0x7f},
    {KILN_F8E4M3FN, false, KILN_ROUND_NEAREST, -(double)INFINITY, 0xff},
    {KILN_F8E4M3FN, true, KILN_ROUND_NEAREST, (double)NAN, 0x7f},
    {KILN_F8E4M3FNUZ, true, KILN_ROUND_NEAREST, 300, 0x7f},
    {KILN_F8E4M3FNUZ, false, KILN_ROUND_NEAREST, 300, 0x80},
    {KILN_F8E4M3FNUZ, true, KILN_ROUND_NEAREST, -0.0, 0},
    {KILN_F8E4M3FNUZ, true, KILN_ROUND_NEAREST, -1e-9, 0},
    {KILN_F8E5M2, true, KILN_ROUND_NEAREST, (double)INFINITY, 0x7b},
    {KILN_F8E5M2, false, KILN_ROUND_NEAREST, 1e6, 0x7c},
    {KILN_F8E5M2, false, KILN_ROUND_NEAREST, -(double)INFINITY, 0xfc},
    {KILN_F8E5M2FNUZ, false, KILN_ROUND_NEAREST, -1e6, 0x80},
    {KILN_F4E2M1, true, KILN_ROUND_NEAREST, 100, 0x7},
    {KILN_F4E2M1, false, KILN_ROUND_NEAREST, -(double)INFINITY, 0xf},
    {KILN_F4E2M1, true, KILN_ROUND_NEAREST, 0.25, 0},
    {KILN_F4E2M1, true, KILN_ROUND_NEAREST, 0.75, 2},
    {KILN_F4E2M1, true, KILN_ROUND_NEAREST, -0.0, 0x8},
    {KILN_I4, true, KILN_ROUND_NEAREST, -8.9, 0x8},
    {KILN_I4, true, KILN_ROUND_NEAREST, 9, 0x9}, // past the end the low bits stay
    {KILN_U4, true, KILN_ROUND_NEAREST, 17, 0x1},
    {KILN_I2, true, KILN_ROUND_NEAREST, -1, 0x3},
    {KILN_U2, true, KILN_ROUND_NEAREST, -3, 0x1},
    {KILN_F8E8M0, true, KILN_ROUND_UP, 0, 0},
    {KILN_F8E8M0, true, KILN_ROUND_UP, 0x1p-127, 0},
    {KILN_F8E8M0, true, KILN_ROUND_UP, 0x1.1p-127, 1},
    {KILN_F8E8M0, true, KILN_ROUND_DOWN, 0x1.fp-127, 0},
    {KILN_F8E8M0, true, KILN_ROUND_NEAREST, 0x1.8p-127, 1},
    {KILN_F8E8M0, true, KILN_ROUND_UP, 1.1, 128},
    {KILN_F8E8M0, true, KILN_ROUND_DOWN, 1.9, 127},
    {KILN_F8E8M0, true, KILN_ROUND_NEAREST, 1.5, 128},
    {KILN_F8E8M0, true, KILN_ROUND_NEAREST, 1.4, 127},
    {KILN_F8E8M0, true, KILN_ROUND_UP, 0x1.1p127, 254},
    {KILN_F8E8M0, false, KILN_ROUND_UP, 0x1.1p127, 255},
    {KILN_F8E8M0, true, KILN_ROUND_UP, (double)INFINITY, 254},
    {KILN_F8E8M0, false, KILN_ROUND_NEAREST, (double)INFINITY, 255},
    {KILN_F8E8M0, false, KILN_ROUND_NEAREST, 0, 255},
    {KILN_F8E8M0, false, KILN_ROUND_NEAREST, 0x1p-128, 255},
    {KILN_F8E8M0, true, KILN_ROUND_UP, (double)NAN, 255},
};

static void ends_and_ties_go_where_the_encoding_says(void **state) {
  kiln_ctx *cx = &((fixture *)*state)->cx;
  for (size_t i = 0; i < KILN_LEN(rules); i++) {
    const kiln_encoding how = {rules[i].saturates, rules[i].rounding};
    if (isnan(rules[i].x)) continue; // as numbers NaNs have no bits: the drivers' tests have them
    const int got = encoded(cx, rules[i].t, KILN_F32, rules[i].x, how);
    if (got != rules[i].code) fail_msg("row %zu: want %d, got %d", i, rules[i].code, got);
    assert_int_equal(encoded(cx, rules[i].t, KILN_F64, rules[i].x, how), rules[i].code);
  }
}

static void operators_leave_codes_alone(void **state) {
  kiln_ctx *cx = &((fixture *)*state)->cx;
  FOR_CODES(t)
  for (int k = KILN_EXPR_ADD; k < KILN_EXPR_SELECT; k++) {
    const kiln_expr_kind kind = (kiln_expr_kind)k;
    assert_false(kiln_expr_kind_takes(kind, t));
    const kiln_expr *x = kiln_load(cx, 0, t, 0, NULL), *one = kiln_number(cx, t, 1);
    if (kiln_expr_kind_args(kind) == 2) assert_int_equal(kiln_binary(cx, kind, x, one)->kind, kind);
    else assert_int_equal(kiln_unary(cx, kind, x)->kind, kind);
  }
}

static void bits_go_to_and_fro(void **state) {
  kiln_ctx *cx = &((fixture *)*state)->cx;
  const kiln_expr *f = kiln_load(cx, 0, KILN_F32, 0, NULL),
                  *i = kiln_load(cx, 1, KILN_I32, 0, NULL);
  assert_ptr_equal(kiln_bitcast(cx, KILN_F32, kiln_bitcast(cx, KILN_U32, f)), f);
  assert_ptr_equal(kiln_bitcast(cx, KILN_F32, kiln_bitcast(cx, KILN_I32, f))->args[0],
                   kiln_cast(cx, KILN_U32, kiln_bitcast(cx, KILN_I32, f)));
  assert_int_equal(kiln_bitcast(cx, KILN_U32, i)->kind, KILN_EXPR_CAST);
  assert_int_equal(kiln_bitcast(cx, KILN_I32, kiln_float(cx, KILN_F32, -2))->u.i, -0x40000000);
  assert_int_equal(kiln_bitcast(cx, KILN_U16, kiln_float(cx, KILN_F16, 1))->u.i, 0x3c00);
  assert_true(kiln_bitcast(cx, KILN_F64, kiln_int(cx, INT64_C(0x3ff8000000000000)))->u.f == 1.5);
}

static void packed_codes_are_low_first(void **state) {
  (void)state;
  static const uint8_t nibbles[] = {1, 15, 8, 2, 7}, pairs[] = {1, 3, 0, 2, 3};
  uint8_t packed[4] = {0xaa, 0xaa, 0xaa, 0xaa}, back[6] = {0};
  kiln_codes_pack(4, 5, nibbles, packed);
  assert_memory_equal(packed, ((uint8_t[]){0xf1, 0x28, 0x07, 0xaa}), 4);
  kiln_codes_unpack(4, 5, packed, back);
  assert_memory_equal(back, nibbles, 5);
  kiln_codes_pack(2, 5, pairs, packed);
  assert_memory_equal(packed, ((uint8_t[]){0x8d, 0x03}), 2);
  kiln_codes_unpack(2, 5, packed, back);
  assert_memory_equal(back, pairs, 5);
  assert_int_equal(kiln_codes_packed_bytes(4, 5), 3);
  assert_int_equal(kiln_codes_packed_bytes(2, 8), 2);
  assert_int_equal(kiln_codes_packed_bytes(2, 0), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(codes_mean_what_their_formats_say),
      FIXTURE_TEST(decoding_is_exact),
      FIXTURE_TEST(encoding_rounds_to_the_nearest_code),
      FIXTURE_TEST(ends_and_ties_go_where_the_encoding_says),
      FIXTURE_TEST(operators_leave_codes_alone),
      FIXTURE_TEST(bits_go_to_and_fro),
      cmocka_unit_test(packed_codes_are_low_first),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

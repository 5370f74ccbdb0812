// Error bounds: results of f32 and halves in any order satisfy them, planted faults do not.
#include "analysis/interpret.h"
#include "verify/check.h"
#include "verify/compare.h"
#include "schedule/schedule.h"
#include "transform/winograd.h"
#include "unit/fixture.h"

#include <math.h>

// --- programs and data ---

typedef struct bench {
  kiln_program *p;
  kiln_interpreter *in;
  float *data[2]; // inputs
  int64_t n[2];
} bench;

// Normal, of one sign, all equal, with one value far beyond the others.
typedef enum kind { NORMAL, POSITIVE, EQUAL, OUTLIER, N_KINDS } kind;

static double normal(uint64_t *state) {
  double sum = 0;
  for (int i = 0; i < 12; i++) sum += (double)(random_next(state) >> 11) * 0x1p-53;
  return sum - 6;
}

static float value_of(kind k, uint64_t *state, int64_t i) {
  const double x = normal(state);
  if (k == POSITIVE) return (float)fabs(x);
  if (k == EQUAL) return 0.1f;
  return (float)(k == OUTLIER && i % 97 == 5 ? 1e4 * x : x);
}

static bench bench_make(fixture *f, const char *text, kind k, uint64_t seed) {
  bench b = {.p = NULL};
  const kiln_status st = kiln_program_parse(&f->cx, text, &b.p);
  if (st != KILN_OK) fail_msg("%s", kiln_diag_message(f->diag, 0));
  assert_int_equal(kiln_interpreter_create(&f->cx, b.p, &b.in), KILN_OK);
  for (int i = 0; i < b.p->inputs.n; i++) {
    const kiln_tensor *t = b.p->tensors.data[b.p->inputs.data[i]];
    b.n[i] = kiln_tensor_elems(t);
    b.data[i] = KILN_NEW_ARRAY(&f->cx.perm, float, b.n[i]);
    for (int64_t e = 0; e < b.n[i]; e++) b.data[i][e] = value_of(k, &seed, e);
    kiln_interpreter_bind(b.in, t->id, b.data[i]);
  }
  kiln_interpreter_track(b.in, (kiln_freedoms){0});
  assert_int_equal(kiln_interpreter_run(b.in), KILN_OK);
  return b;
}

static const kiln_tensor *output(const bench *b) {
  return b->p->tensors.data[b->p->outputs.data[0]];
}

static kiln_difference judge(const bench *b, const float *got) {
  const kiln_tensor *t = output(b);
  int64_t strides[KILN_MAX_RANK];
  kiln_difference d;
  kiln_tensor_strides(t, strides);
  kiln_judge(b->in, t, got, strides, kiln_interpreter_data(b->in, t->id), &d);
  return d;
}

// --- sums of products ---

enum { ROWS = 24, COLUMNS = 20 };

// Summation orders of kernels: sequential, by lanes added at the end, pairwise.
typedef enum order { SERIAL, BACKWARDS, LANES, PAIRWISE, N_ORDERS } order;

static float pairwise(const float *t, int64_t n) {
  if (n == 1) return t[0];
  return pairwise(t, n / 2) + pairwise(t + n / 2, n - n / 2);
}

static float sum_of(order o, const float *t, int64_t n) {
  float lanes[16] = {0}, sum = 0;
  if (o == PAIRWISE) return pairwise(t, n);
  for (int64_t i = 0; i < n; i++)
    lanes[o == LANES ? i % 16 : 0] += t[o == BACKWARDS ? n - 1 - i : i];
  for (int i = 0; i < 16; i++) sum += lanes[i];
  return sum;
}

// |fault| units in the last place are added to each term.
static void multiply(const bench *b, int64_t depth, order o, double fault, float *out) {
  float *terms = malloc((size_t)depth * sizeof *terms);
  for (int m = 0; m < ROWS; m++)
    for (int n = 0; n < COLUMNS; n++) {
      for (int64_t k = 0; k < depth; k++) {
        const float t = b->data[0][m * depth + k] * b->data[1][k * COLUMNS + n];
        terms[k] = t + (float)fault * (nextafterf(fabsf(t), INFINITY) - fabsf(t));
      }
      out[m * COLUMNS + n] = sum_of(o, terms, depth);
    }
  free(terms);
}

static const char *product_text(fixture *f, int64_t depth) {
  return kiln_arena_printf(&f->cx.perm,
                           "p { in f32 A(%d, %" PRId64 ") in f32 B(%" PRId64
                           ", %d) out f32 C(%d, %d) C(m:%d, n:%d | k:%" PRId64
                           ") +=! A(m, k) * B(k, n) }",
                           ROWS, depth, depth, COLUMNS, ROWS, COLUMNS, ROWS, COLUMNS, depth);
}

// A kernel with products rounded in this way.
typedef struct multiplier {
  int64_t depth;
  double fault;
} multiplier;

static kiln_status run_multiplier(void *user, int n, const kiln_check_arg *args, bool *out_ran) {
  const multiplier *m = user;
  assert_int_equal(n, 3);
  const bench b = {.data = {(float *)args[0].data, (float *)args[1].data}};
  multiply(&b, m->depth, LANES, m->fault, (float *)args[2].data);
  *out_ran = true;
  return KILN_OK;
}

// The tolerance of tuning: less than two ULP for each term, but any summation order.
static void kernels_are_tuned_by_the_same_errors(void **state) {
  static const kiln_check_tolerance none = {0, 0, 0, false};
  fixture *f = *state;
  for (int64_t depth = 2; depth <= 4096; depth *= 8)
    for (double fault = 0; fault < 3; fault += 2) {
      kiln_program *p = NULL;
      kiln_schedule s;
      kiln_kernel_check c;
      bool is_right = false;
      assert_int_equal(kiln_program_parse(&f->cx, product_text(f, depth), &p), KILN_OK);
      assert_int_equal(kiln_schedule_begin(&f->cx, p, &s), KILN_OK);
      assert_int_equal(kiln_kernel_check_init(&c, &f->cx, p, 1, 1e9, (kiln_freedoms){0}), KILN_OK);
      multiplier m = {depth, fault};
      const kiln_check_runner runner = {run_multiplier, &m};
      assert_int_equal(kiln_kernel_check_by(&c, s.loops, &runner, &none, &is_right), KILN_OK);
      if (is_right != (fault == 0))
        fail_msg("depth %d, %g units a term: got %d", (int)depth, fault, is_right);
      kiln_kernel_check_deinit(&c);
    }
}

static const int64_t depths[] = {1, 2, 7, 64, 600, 4096};

static void products_in_any_order_are_right(void **state) {
  fixture *f = *state;
  float got[ROWS * COLUMNS];
  for (size_t d = 0; d < KILN_LEN(depths); d++)
    for (kind k = 0; k < N_KINDS; k++)
      for (order o = 0; o < N_ORDERS; o++) {
        bench b = bench_make(f, product_text(f, depths[d]), k, 7 * d + k);
        multiply(&b, depths[d], o, 0, got);
        const kiln_difference one = judge(&b, got);
        if (one.wrong || one.free)
          fail_msg(
              "depth %d, data %d, order %d: element %d must be within %g of %g, got %g; spread %g",
              (int)depths[d], (int)k, (int)o, (int)one.first_wrong, one.most, one.want, one.got,
              sqrt(one.spread_square / (double)one.n_spread));
        kiln_interpreter_destroy(b.in);
      }
}

static void two_units_a_term_are_wrong(void **state) {
  fixture *f = *state;
  float got[ROWS * COLUMNS];
  for (size_t d = 0; d < KILN_LEN(depths); d++)
    for (double fault = 2; fault < 1000; fault *= 3) {
      bench b = bench_make(f, product_text(f, depths[d]), NORMAL, d);
      multiply(&b, depths[d], LANES, fault, got);
      if (judge(&b, got).wrong == 0)
        fail_msg("depth %d: %g units a term must be wrong", (int)depths[d], fault);
      kiln_interpreter_destroy(b.in);
    }
}

// Faults of single elements: as many units of the result as it has terms, twice; a term left out,
// or taken twice.
static void single_elements_that_are_wrong_are_found(void **state) {
  fixture *f = *state;
  float got[ROWS * COLUMNS];
  for (size_t d = 0; d < KILN_LEN(depths); d++)
    for (int how = 0; how < 3; how++) {
      const int64_t n = depths[d];
      bench b = bench_make(f, product_text(f, n), NORMAL, d);
      multiply(&b, n, LANES, 0, got);
      const int at = 3 * COLUMNS + 11;
      const float term = b.data[0][3 * n + n / 2] * b.data[1][n / 2 * COLUMNS + 11];
      const float unit = nextafterf(fabsf(got[at]), INFINITY) - fabsf(got[at]);
      got[at] += how == 0 ? 2 * (float)n * unit : how == 1 ? -term : term;
      const kiln_difference one = judge(&b, got);
      if (one.wrong != 1 || one.first_wrong != at)
        fail_msg("depth %d, fault %d: must be found, the element may be off by %g", (int)n, how,
                 kiln_interpreter_tolerance(b.in, output(&b)->id, at).most);
      kiln_interpreter_destroy(b.in);
    }
}

// --- other statements ---

static const struct {
  const char *name, *text;
} programs[] = {
    {"add", "p { in f32 A(400) in f32 B(400) out f32 C(400) C(i:400) = A(i) + B(i) }"},
    {"divide",
     "p { in f32 A(400) in f32 B(400) out f32 C(400) C(i:400) = A(i) / (abs(B(i)) + 1f32) }"},
    {"exp", "p { in f32 A(400) out f32 C(400) C(i:400) = exp(A(i)) }"},
    {"relu of a difference",
     "p { in f32 A(400) in f32 B(400) out f32 C(400) C(i:400) = A(i) - B(i) > 0f32 ? A(i) - B(i) : "
     "0f32 }"},
    {"softmax",
     "p { in f32 A(20, 20) temp f32 M(20) temp f32 E(20, 20) temp f32 S(20) out f32 C(20, 20)"
     " M(i:20 | r:20) max=! A(i, r) E(i:20, j:20) = exp(A(i, j) - M(i)) S(i:20 | r:20) +=! E(i, r)"
     " C(i:20, j:20) = E(i, j) / S(i) }"},
    {"variance", "p { in f32 A(20, 20) temp f32 S(20) temp f32 V(20) out f32 C(20, 20) S(i:20 | "
                 "r:20) +=! A(i, r)"
                 " V(i:20 | r:20) +=! (A(i, r) - S(i) / 20f32) * (A(i, r) - S(i) / 20f32)"
                 " C(i:20, j:20) = (A(i, j) - S(i) / 20f32) / sqrt(V(i) / 20f32 + 0.001f32) }"},
};

// The reference's results and their neighbours are accepted; results two units beyond the bound are
// not.
static void statements_have_tolerances_of_their_operations(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(programs); i++) {
    bench b = bench_make(f, programs[i].text, NORMAL, i);
    const float *want = kiln_interpreter_data(b.in, output(&b)->id);
    float got[400];
    memcpy(got, want, sizeof got);
    assert_int_equal(judge(&b, got).wrong, 0);
    for (int e = 0; e < 400; e += 7) {
      const double most = kiln_interpreter_tolerance(b.in, output(&b)->id, e).most;
      if (!(most < 1e-4)) fail_msg("%s: an element may be off by %g", programs[i].name, most);
      got[e] = want[e] + (float)(0.9 * most);
      if (fabs((double)got[e] - (double)want[e]) <= most) assert_int_equal(judge(&b, got).wrong, 0);
      got[e] = want[e] + (float)(1.1 * most) +
               2 * (nextafterf(fabsf(want[e]), INFINITY) - fabsf(want[e]));
      if (judge(&b, got).wrong != 1) fail_msg("%s: element %d must be wrong", programs[i].name, e);
      got[e] = want[e];
    }
    kiln_interpreter_destroy(b.in);
  }
}

static void an_addition_is_right_to_its_last_place(void **state) {
  fixture *f = *state;
  bench b = bench_make(f, programs[0].text, NORMAL, 1);
  float got[400];
  for (int i = 0; i < 400; i++) got[i] = b.data[0][i] + b.data[1][i];
  assert_int_equal(judge(&b, got).wrong, 0);
  got[77] = nextafterf(nextafterf(got[77], INFINITY), INFINITY);
  assert_int_equal(judge(&b, got).wrong, 1);
  kiln_interpreter_destroy(b.in);
}

static void moved_data_are_equal(void **state) {
  fixture *f = *state;
  bench b = bench_make(f, "p { in f32 A(20, 20) out f32 C(20, 20) C(i:20, j:20) = A(j, 19 - i) }",
                       NORMAL, 1);
  float got[400];
  for (int i = 0; i < 400; i++) got[i] = b.data[0][i % 20 * 20 + 19 - i / 20];
  assert_int_equal(judge(&b, got).wrong, 0);
  got[3] = nextafterf(got[3], 0);
  assert_int_equal(judge(&b, got).wrong, 1);
  kiln_interpreter_destroy(b.in);
}

// A value at the border of two steps may become either, another only its own.
static void steps_go_either_way_at_their_borders(void **state) {
  fixture *f = *state;
  bench b = bench_make(f, "p { in f32 A(3) out f32 C(3) C(i:3) = round(A(i) * 0.1f32) }", EQUAL, 1);
  const float data[] = {4.9999998f * 10, 45, 12};
  kiln_interpreter_destroy(b.in);
  assert_int_equal(kiln_interpreter_create(&f->cx, b.p, &b.in), KILN_OK);
  kiln_interpreter_bind(b.in, b.p->inputs.data[0], data);
  kiln_interpreter_track(b.in, (kiln_freedoms){0});
  assert_int_equal(kiln_interpreter_run(b.in), KILN_OK);
  assert_int_equal(judge(&b, (const float[]){5, 4, 1}).wrong, 0);
  assert_int_equal(judge(&b, (const float[]){5, 5, 1}).wrong, 0);
  assert_int_equal(judge(&b, (const float[]){5, 4, 2}).wrong, 1);
  assert_int_equal(judge(&b, (const float[]){4, 4, 1}).wrong, 1);
  kiln_interpreter_destroy(b.in);
}

static void no_numbers_are_as_they_are(void **state) {
  fixture *f = *state;
  bench b = bench_make(f, "p { in f32 A(4) out f32 C(4) C(i:4) = A(i) / 0f32 }", POSITIVE, 3);
  assert_int_equal(judge(&b, (const float[]){INFINITY, INFINITY, INFINITY, INFINITY}).wrong, 0);
  assert_int_equal(judge(&b, (const float[]){INFINITY, -INFINITY, 3e38f, NAN}).wrong, 3);
  kiln_interpreter_destroy(b.in);
}

// Products of two tensors, C(m, n) of A(m, k) and B(k, n), m, n: 2 and k: 3.
static bench product_of(fixture *f, const char *text, const float *a, const float *b) {
  bench made = bench_make(f, text, POSITIVE, 3);
  kiln_interpreter_destroy(made.in);
  assert_int_equal(kiln_interpreter_create(&f->cx, made.p, &made.in), KILN_OK);
  kiln_interpreter_bind(made.in, made.p->inputs.data[0], a);
  kiln_interpreter_bind(made.in, made.p->inputs.data[1], b);
  kiln_interpreter_track(made.in, (kiln_freedoms){0});
  assert_int_equal(kiln_interpreter_run(made.in), KILN_OK);
  return made;
}

#define PRODUCT_OF_THREE                                                                           \
  "p { in f32 A(2, 3) in f32 B(3, 2) out f32 C(2, 2) "                                             \
  "C(m:2, n:2 | k:3) +=! A(m, k) * B(k, n) }"

// An infinite term is infinite in every order; overflowing sums only in some.
static void infinite_terms_are_certain_and_infinite_partial_sums_are_open(void **state) {
  fixture *f = *state;
  const float inf = INFINITY, a[] = {1, inf, 2, 1, 1, NAN}, ones[] = {1, 1, 1, -1, 1, 0};
  bench b = product_of(f, PRODUCT_OF_THREE, a, ones);
  assert_int_equal(judge(&b, (const float[]){inf, -inf, NAN, NAN}).wrong, 0);
  assert_int_equal(judge(&b, (const float[]){3e38f, inf, 1, NAN}).wrong, 3);
  assert_int_equal(judge(&b, (const float[]){inf, -inf, NAN, NAN}).free, 0);
  kiln_interpreter_destroy(b.in);
  const float large[] = {3e38f, 3e38f, -3e38f, 1, 2, 3};
  b = product_of(f, PRODUCT_OF_THREE, large, (const float[]){1, 0, 1, 0, 1, 1});
  assert_int_equal(judge(&b, (const float[]){inf, -3e38f, 6, 3}).wrong, 0);
  assert_int_equal(judge(&b, (const float[]){3e38f, -3e38f, 6, 3}).wrong, 0);
  assert_int_equal(judge(&b, (const float[]){inf, -inf, 6, 4}).wrong, 2);
  kiln_interpreter_destroy(b.in);
}

// A value without an error bound may be anything, also after multiplication by 0.
static void an_unknown_factor_leaves_the_product_open(void **state) {
  fixture *f = *state;
  const float a[] = {1, 2, 3, 1, 2, 3}, b[] = {0, 1, 0, 1, 1, 1};
  bench made = product_of(f,
                          "p { in f32 A(2, 3) in f32 B(3, 2) temp f32 T(2, 3) out f32 C(2, 2) "
                          "T(m:2, k:3) = A(m, k) * 0.3f32 % 0.1f32 "
                          "C(m:2, n:2 | k:3) +=! T(m, k) * B(k, n) }",
                          a, b);
  const kiln_difference d = judge(&made, (const float[]){7, 7, 7, 7});
  assert_int_equal(d.wrong, 0);
  assert_int_equal(d.free, 4);
  kiln_interpreter_destroy(made.in);
}

// NaN stays NaN under multiplication, also by rounded values or 0.
static void a_rounded_factor_of_no_number_is_none_for_certain(void **state) {
  fixture *f = *state;
  const float a[] = {1, 2, 3, 0, 2, 3}, b[] = {NAN, 1, 1, 1, 1, 1};
  bench made = product_of(f,
                          "p { in f32 A(2, 3) in f32 B(3, 2) temp f32 T(2, 3) out f32 C(2, 2) "
                          "T(m:2, k:3) = A(m, k) * 0.3f32 "
                          "C(m:2, n:2 | k:3) +=! T(m, k) * B(k, n) }",
                          a, b);
  const kiln_difference d = judge(&made, (const float[]){NAN, 1.8f, 1.5f, 1.5f});
  assert_int_equal(d.wrong, 1);
  assert_int_equal(d.first_wrong, 2);
  assert_int_equal(d.free, 0);
  kiln_interpreter_destroy(made.in);
}

// Convolutions of (1, 16, 14, 14), and whether they may be Winograd's: those of stride 1 by known
// weights of 2 or 3 elements.
static const struct {
  const char *text;
  bool is_known, transforms;
} convolutions[] = {
    {"p { in f32 X(1, 16, 14, 14) in f32 W(8, 16, 3, 3) out f32 Y(1, 8, 12, 12) Y(n:1, k:8, h:12, "
     "w:12 "
     "| c:16, i:3, j:3) +=! X(n, c, h + i, w + j) * W(k, c, i, j) }",
     true, true},
    {"p { in f32 X(1, 16, 14, 14) in f32 W(8, 16, 2, 3) out f32 Y(1, 8, 13, 12) Y(n:1, k:8, h:13, "
     "w:12 "
     "| c:16, i:2, j:3) +=! X(n, c, h + i, w + j) * W(k, c, i, j) }",
     true, true},
    {"p { in f32 X(1, 16, 14, 14) in f32 W(8, 16, 3, 3) out f32 Y(1, 8, 12, 12) Y(n:1, k:8, h:12, "
     "w:12 "
     "| c:16, i:3, j:3) +=! X(n, c, h + i, w + j) * W(k, c, i, j) }",
     false, false},
    {"p { in f32 X(1, 16, 14, 14) in f32 W(8, 16, 3, 3) out f32 Y(1, 8, 6, 6) Y(n:1, k:8, h:6, w:6 "
     "| c:16, i:3, j:3) +=! X(n, c, 2*h + i, 2*w + j) * W(k, c, i, j) }",
     true, false},
    {"p { in f32 X(1, 16, 14, 14) in f32 W(8, 16, 3, 3) out f32 Y(1, 8, 10, 10) Y(n:1, k:8, h:10, "
     "w:10 "
     "| c:16, i:3, j:3) +=! X(n, c, h + 2*i, w + 2*j) * W(k, c, i, j) }",
     true, false},
    {"p { in f32 X(1, 16, 14, 14) in f32 W(8, 16, 5, 3) out f32 Y(1, 8, 10, 12) Y(n:1, k:8, h:10, "
     "w:12 "
     "| c:16, i:5, j:3) +=! X(n, c, h + i, w + j) * W(k, c, i, j) }",
     true, false},
    {"p { in f32 X(1, 16, 14, 14) in f32 W(8, 16, 1, 3) out f32 Y(1, 8, 14, 12) Y(n:1, k:8, h:14, "
     "w:12 "
     "| c:16, j:3) +=! X(n, c, h, w + j) * W(k, c, 0, j) }",
     true, false},
};

static double typical_of(fixture *f, size_t row, kiln_freedoms may) {
  bench b = bench_make(f, convolutions[row].text, NORMAL, 3);
  if (convolutions[row].is_known) b.p->tensors.data[b.p->inputs.data[1]]->role = KILN_CONST;
  kiln_interpreter_destroy(b.in);
  assert_int_equal(kiln_interpreter_create(&f->cx, b.p, &b.in), KILN_OK);
  for (int i = 0; i < 2; i++) kiln_interpreter_bind(b.in, b.p->inputs.data[i], b.data[i]);
  kiln_interpreter_track(b.in, may);
  assert_int_equal(kiln_interpreter_run(b.in), KILN_OK);
  const double typical = kiln_interpreter_tolerance(b.in, output(&b)->id, 5).typical;
  kiln_interpreter_destroy(b.in);
  return typical;
}

static void only_what_may_be_transformed_may_be_off_by_more(void **state) {
  fixture *f = *state;
  const kiln_freedoms none = {0}, any = {.transforms = kiln_winograd_transforms()};
  const char *others[] = {"another", "one+more"};
  kiln_freedoms other = any;
  other.transforms.nodes = others;
  other.transforms.n_nodes = 2;
  for (size_t row = 0; row < KILN_LEN(convolutions); row++) {
    const double plain = typical_of(f, row, none), may = typical_of(f, row, any) / plain;
    if (may > 10 || (convolutions[row].transforms ? may < 2 : may != 1))
      fail_msg("row %zu: %g times the error of plain sums", row, may);
    if (typical_of(f, row, other) != plain) fail_msg("row %zu: it is not one of those nodes", row);
  }
}

// f16 that is rounded once more or less on its way is right; that of another type is not.
static void halves_are_off_by_their_own_units(void **state) {
  fixture *f = *state;
  bench b = bench_make(f, product_text(f, 64), NORMAL, 3);
  float got[ROWS * COLUMNS];
  multiply(&b, 64, LANES, 0, got);
  for (int i = 0; i < ROWS * COLUMNS; i++)
    got[i] = kiln_f16_to_f32(kiln_f16_of_f64((double)got[i]));
  assert_true(judge(&b, got).wrong > ROWS * COLUMNS / 2);
  kiln_interpreter_destroy(b.in);
  b = bench_make(f,
                 "p { in f32 A(24, 64) in f32 B(64, 20) temp f32 S(24, 20) temp f16 H(24, 20) out "
                 "f32 C(24, 20)"
                 " S(m:24, n:20 | k:64) +=! A(m, k) * B(k, n) H(m:24, n:20) = f16(S(m, n)) C(m:24, "
                 "n:20) = f32(H(m, n)) }",
                 NORMAL, 3);
  assert_int_equal(judge(&b, got).wrong, 0);
  multiply(&b, 64, LANES, 0, got); // not rounded at all
  assert_int_equal(judge(&b, got).wrong, 0);
  for (int i = 0; i < ROWS * COLUMNS; i++) got[i] *= 1 + 0x1p-8f;
  assert_true(judge(&b, got).wrong > 0);
  kiln_interpreter_destroy(b.in);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(products_in_any_order_are_right),
      FIXTURE_TEST(two_units_a_term_are_wrong),
      FIXTURE_TEST(kernels_are_tuned_by_the_same_errors),
      FIXTURE_TEST(single_elements_that_are_wrong_are_found),
      FIXTURE_TEST(statements_have_tolerances_of_their_operations),
      FIXTURE_TEST(an_addition_is_right_to_its_last_place),
      FIXTURE_TEST(moved_data_are_equal),
      FIXTURE_TEST(steps_go_either_way_at_their_borders),
      FIXTURE_TEST(no_numbers_are_as_they_are),
      FIXTURE_TEST(infinite_terms_are_certain_and_infinite_partial_sums_are_open),
      FIXTURE_TEST(an_unknown_factor_leaves_the_product_open),
      FIXTURE_TEST(a_rounded_factor_of_no_number_is_none_for_certain),
      FIXTURE_TEST(only_what_may_be_transformed_may_be_off_by_more),
      FIXTURE_TEST(halves_are_off_by_their_own_units),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

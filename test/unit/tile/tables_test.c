// Index tables that are a function of their index are replaced by it, with bit-equal results;
// others stay.
#include "unit/schedule/kernel.h"

#include "tile/query.h"
#include "transform/transform.h"

typedef struct row {
  const char *name;
  int64_t in, out; // extents
  bool corners;    // places go from corner to corner
  kiln_dtype weights;
  const char *first; // the place of the first neighbour, NULL: tables are read
  const char *share; // its weight; NULL: read
} row;

static const row rows[] = {
    {"twice as many", 56, 112, false, KILN_F32, "max((i0 + 1)/2 - 1, 0)",
     "(i0%2 == 0 ? 0.25f32 : 0.75f32)"},
    {"twice as many, weights of halves", 8, 16, false, KILN_F16, "max((i0 + 1)/2 - 1, 0)",
     "(i0%2 == 0 ? 0.25f32 : 0.75f32)"},
    {"eight times as many", 16, 128, false, KILN_F32, "max((i0 + 4)/8 - 1, 0)",
     "(f32((i0 + 4)%8)*-0.125f32 + 0.9375f32)"},
    {"half as many", 16, 8, false, KILN_F32, "i0*2", "0.5f32"},
    {"half as many again", 20, 30, false, KILN_F32, "max((i0*2 + 2)/3 - 1, 0)", "(i0%3 == 0 ? "},
    {"from corner to corner", 9, 33, true, KILN_F32, "i0/4", "(i0%4 == 0 ? 1f32 : "},
    {"the same, weights that do not repeat", 7, 20, true, KILN_F32, "max((i0 + 2)/3 - 1, 0)", NULL},
};

static double place_of(const row *r, int64_t i) {
  if (r->corners) return (double)i * (double)(r->in - 1) / (double)(r->out - 1);
  return ((double)i + 0.5) * (double)r->in / (double)r->out - 0.5;
}

static int64_t clamp(int64_t i, int64_t extent) { return i < 0 ? 0 : i < extent ? i : extent - 1; }

// Places and weights of the two neighbours of each element; |mixed|: the places of two of them are
// exchanged.
static void fill(test_kernel *k, const row *r, bool mixed) {
  int64_t *places = k->data[0];
  for (int64_t i = 0; i < r->out; i++) {
    const double x = place_of(r, i), rest = x - floor(x);
    for (int64_t n = 0; n < 2; n++) {
      places[2 * i + n] = clamp((int64_t)floor(x) + n, r->in);
      kiln_element_set(r->weights, k->data[1], 2 * i + n, n ? rest : 1 - rest);
    }
  }
  if (!mixed) return;
  for (int64_t n = 0; n < 2; n++) {
    const int64_t first = places[n];
    places[n] = places[2 * (r->out - 1) + n];
    places[2 * (r->out - 1) + n] = first;
  }
}

static void run(test_kernel *k, int64_t n, float *out) {
  kiln_interpreter_destroy(k->reference);
  assert_int_equal(kiln_interpreter_create(&k->cx, k->prog, &k->reference), KILN_OK);
  kiln_interpreter_bind(k->reference, 2, k->data[2]);
  assert_int_equal(kiln_interpreter_run(k->reference), KILN_OK);
  memcpy(out, kiln_interpreter_data(k->reference, 3), (size_t)n * sizeof *out);
}

// gives: the body behind the pass, which computes what it did
static const char *body_of(test_kernel *k, const row *r, bool mixed) {
  enum { MOST = 256 };
  char text[512];
  float before[MOST], after[MOST];
  snprintf(
      text, sizeof text,
      "p { const i64 Places(%d, 2) = ... const %s Weights(%d, 2) = ... in f32 X(%d) out f32 y(%d) "
      "y(i0:%d) = f32(Weights(i0, 0)) * X(Places(i0, 0)) + f32(Weights(i0, 1)) * X(Places(i0, 1)) "
      "}",
      (int)r->out, kiln_dtype_text(r->weights), (int)r->out, (int)r->in, (int)r->out, (int)r->out);
  kernel_open(k, text, 7);
  fill(k, r, mixed);
  run(k, r->out, before);
  kiln_tile_compute_index_tables(&k->cx, k->prog);
  assert_int_equal(kiln_program_verify(&k->cx, k->prog), KILN_OK);
  run(k, r->out, after);
  for (int64_t i = 0; i < r->out; i++)
    if (before[i] != after[i])
      fail_msg("%s: element %d must be %g, got %g", r->name, (int)i, (double)before[i],
               (double)after[i]);
  kiln_text all;
  kiln_text_init(&all, &k->cx.perm);
  kiln_program_print(&k->cx, k->prog, &all);
  return all.data;
}

static void tables_that_follow_from_their_index_are_computed(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    const row *r = &rows[i];
    test_kernel k;
    const char *text = strstr(body_of(&k, r, false), "y(i0:");
    char load[128];
    snprintf(load, sizeof load, "X(%s)", r->first);
    if (!strstr(text, load)) fail_msg("%s: must read %s, got %s", r->name, load, text);
    if (!strstr(text, r->share ? r->share : "Weights(i0, 0)"))
      fail_msg("%s: must have %s, got %s", r->name, r->share ? r->share : "its weights", text);
    kernel_close(&k);
  }
}

static void other_tables_are_read(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    test_kernel k;
    const char *text = strstr(body_of(&k, &rows[i], true), "y(i0:");
    if (!strstr(text, "X(Places(i0, 0))"))
      fail_msg("%s: must read places, got %s", rows[i].name, text);
    if (!strstr(text, "Weights(i0, 0)"))
      fail_msg("%s: must read weights, got %s", rows[i].name, text);
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tables_that_follow_from_their_index_are_computed),
      cmocka_unit_test(other_tables_are_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

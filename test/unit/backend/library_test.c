// Every CPU backend whose library is installed, on random calls in parts, compared with plain
// loops; and missing or unsuitable libraries for all backends.
#include "unit/backend/calls.h"

enum { ROUNDS = 1000 };

typedef struct tally {
  int calls, products, convolutions;
} tally;

static bool is_read_alone(const kiln_library_call *c, int arg) {
  return c->a.arg == arg || c->b.arg == arg;
}

// Weights that never change are given when the kernel is made.
static void run_and_compare(const kiln_library *l, const kiln_library_call *c, int threads,
                            bool is_constant) {
  arguments args = arguments_make(11);
  char *constants[N_ARGS] = {0};
  kiln_bound bound;
  for (int i = 0; i < N_ARGS; i++)
    if (is_constant && i == 1 && is_read_alone(c, i)) constants[i] = args.bytes[i];
  const kiln_status st = kiln_bound_create(l, c, threads, constants, NULL, &bound);
  if (st == KILN_OK) {
    for (int run = 0; run < 2; run++)
      for (int i = 0; i < bound.n; i++)
        assert_true(kiln_bound_run(&bound, i, args.bytes, NULL, NULL));
    char text[768];
    if (find_wrong(c, &args, text, sizeof text))
      fail_msg("%s, %d threads: %s", l->backend->name, threads, text);
    kiln_bound_deinit(&bound);
  } else assert_int_equal(st, KILN_UNSUPPORTED);
  arguments_free(&args);
}

static tally try_library(const kiln_library *l) {
  tally t = {0};
  uint64_t seed = 12;
  for (int i = 0; i < ROUNDS; i++) {
    const kiln_library_call c = random_call(&seed);
    const int threads = 1 + (int)below(&seed, 3);
    if (!l->backend->takes(&c)) continue;
    t.calls++;
    t.products += c.kind == KILN_CALL_PRODUCT;
    t.convolutions += c.kind == KILN_CALL_CONVOLUTION;
    run_and_compare(l, &c, threads, i % 2);
  }
  return t;
}

static void libraries_compute_what_calls_say(void **state) {
  (void)state;
  for (int i = 0; kiln_backends[i]; i++) {
    kiln_library l;
    char text[256] = "";
    if (kiln_backends[i]->place != KILN_BACKEND_CPU ||
        kiln_library_open(kiln_backends[i], NULL, &l) != KILN_OK)
      continue;
    assert_true(l.backend->version(l.opened, text, sizeof text) > 0);
    const tally t = try_library(&l);
    print_message("%s: %s: %d products, %d convolutions\n", l.backend->name, text, t.products,
                  t.convolutions);
    assert_true(t.products > ROUNDS / 10);
    kiln_library_close(&l);
  }
}

static void must_fail(const kiln_backend *b, const char *file, const char *what) {
  kiln_diag *diag = kiln_diag_create();
  kiln_library l;
  setenv(b->variable, file, 1);
  assert_int_equal(kiln_library_open(b, diag, &l), KILN_DEVICE_ERROR);
  assert_int_equal(kiln_diag_count(diag), 1);
  if (!strstr(kiln_diag_message(diag, 0), what) || !strstr(kiln_diag_message(diag, 0), file))
    fail_msg("must name %s and %s, got: %s", file, what, kiln_diag_message(diag, 0));
  kiln_library_close(&l);
  unsetenv(b->variable);
  kiln_diag_destroy(diag);
}

static void missing_libraries_and_functions_are_named(void **state) {
  (void)state;
  for (int i = 0; kiln_backends[i]; i++) {
    must_fail(kiln_backends[i], "/nowhere/libnothing.so", kiln_backends[i]->variable);
    must_fail(kiln_backends[i], "libm.so.6", "must have the function");
  }
}

static void a_call_that_is_not_taken_is_refused(void **state) {
  (void)state;
  const kiln_backend *b = kiln_backend_find("openblas");
  kiln_library l;
  uint64_t seed = 13;
  char *none[N_ARGS] = {0};
  if (kiln_library_open(b, NULL, &l) != KILN_OK) skip();
  for (int i = 0; i < 20; i++) {
    const kiln_library_call c = random_convolution(&seed);
    kiln_bound bound;
    assert_int_equal(kiln_bound_create(&l, &c, 2, none, NULL, &bound), KILN_UNSUPPORTED);
  }
  kiln_library_close(&l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(libraries_compute_what_calls_say),
      cmocka_unit_test(missing_libraries_and_functions_are_named),
      cmocka_unit_test(a_call_that_is_not_taken_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

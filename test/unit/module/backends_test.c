// Library kernels in compiled models. The libraries are test doubles: one is fast after its first
// run, the other fails on request. They replace the build's table of backends.
#include "unit/backend/calls.h"
#include "unit/driver/models.h"

enum { M = 96, K = 256, N = 128 };

// The double's behaviour; its version is part of the key of its times.
static struct {
  const char *version;
  bool is_missing, is_picky, is_wrong, fails;
  bool takes_all; // and computes it every time
  int n_live, n_runs;
} state_of_double;

typedef struct doubled {
  kiln_library_call call;
  float *kept; // the last result; NULL before the first run
} doubled;

static bool takes(const kiln_library_call *c) {
  return state_of_double.takes_all || (c->kind == KILN_CALL_PRODUCT && c->n_batch == 0);
}

static kiln_status open_double(const char *file, kiln_diag *diag, void **out) {
  *out = state_of_double.is_missing ? NULL : &state_of_double;
  if (*out) return KILN_OK;
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, file, "library: must be there");
}
static void close_double(void *opened) { assert_ptr_equal(opened, &state_of_double); }
static size_t version(void *opened, char *text, size_t room) {
  (void)opened;
  return (size_t)snprintf(text, room, "%s", state_of_double.version);
}

static kiln_status create(void *opened, const kiln_library_call *asked, char *const *constants,
                          kiln_diag *diag, void **out) {
  (void)opened, (void)constants;
  *out = NULL;
  if (state_of_double.is_picky)
    return kiln_diag_fail(diag, KILN_UNSUPPORTED, "double", "call: must be another");
  doubled *d = calloc(1, sizeof *d);
  d->call = *asked;
  *out = d;
  state_of_double.n_live++;
  return KILN_OK;
}

static void destroy(void *kernel) {
  doubled *d = kernel;
  if (!d) return;
  state_of_double.n_live--;
  free(d->kept);
  free(d);
}

// Results computed once are copied afterwards: inputs are the same throughout a measurement.
static bool run(void *kernel, char *const *args, void *stream, kiln_diag *diag) {
  (void)stream, (void)diag;
  doubled *d = kernel;
  const kiln_library_call *c = &d->call;
  arguments a = {0};
  float *to = (float *)(void *)args[c->c.arg] + c->c.offset;
  for (int i = 0; i <= c->c.arg; i++) a.bytes[i] = args[i];
  __atomic_fetch_add(&state_of_double.n_runs, 1, __ATOMIC_RELAXED);
  if (state_of_double.fails) return false;
  if (state_of_double.takes_all) {
    walk_call(c, &a, NULL);
    return true;
  }
  const size_t row = (size_t)c->n.extent * sizeof(float);
  const bool is_known = d->kept != NULL;
  if (!is_known) {
    walk_call(c, &a, NULL);
    d->kept = malloc((size_t)c->m.extent * row);
  }
  for (int64_t m = 0; m < c->m.extent; m++) {
    if (is_known) memcpy(to + m * c->m.c, d->kept + m * c->n.extent, row);
    else memcpy(d->kept + m * c->n.extent, to + m * c->m.c, row);
  }
  if (state_of_double.is_wrong) to[0] += 1;
  return true;
}

static const kiln_backend the_double = {.name = "double",
                                        .takes = takes,
                                        .open = open_double,
                                        .close = close_double,
                                        .version = version,
                                        .create = create,
                                        .destroy = destroy,
                                        .run = run,
                                        .files = {"libdouble.so"},
                                        .variable = "KILN_TEST_DOUBLE"};
const kiln_backend *const kiln_backends[] = {&the_double, NULL}; // in place of the build's

// --- a model: relu(x w + b), of which all are inputs but b ---

static folder begin(void) {
  folder f = folder_make();
  fixture t;
  fixture_init(&t);
  kiln_text g = message(&t);
  put_text(&g, 2, "layer");
  put_message(&g, 1, node(&t, "MatMul", "product", "x,w", "h0"));
  put_message(&g, 1, node(&t, "Add", "bias", "h0,b", "h1"));
  put_message(&g, 1, node(&t, "Relu", "act", "h1", "y"));
  put_weights(&t, &g, "b", 1, (int64_t[]){N});
  put_message(&g, 11, value_info(&t, "x", ONNX_F32, "96,256"));
  put_message(&g, 11, value_info(&t, "w", ONNX_F32, "256,128"));
  put_message(&g, 12, value_info(&t, "y", ONNX_F32, "96,128"));
  save(f.model, model(&t, 8, g));
  fixture_deinit(&t);
  memset(&state_of_double, 0, sizeof state_of_double);
  state_of_double.version = "1.0";
  return f;
}

static void end(const folder *f) {
  assert_int_equal(state_of_double.n_live, 0);
  folder_remove(f);
}

typedef struct outcome {
  kiln_status status;
  char message[512];
  kiln_tuning tuning;
  bool has_won;
} outcome;

static void on_dump(void *user, const char *level, const char *text) {
  outcome *o = user;
  if (strcmp(level, "plan") == 0) o->has_won = strstr(text, "of double: product") != NULL;
}

static outcome compile(const folder *f, int tune, const char *backends) {
  char tuned[96];
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  outcome out = {0};
  snprintf(tuned, sizeof tuned, "%s/tuned.sqlite", f->path);
  const kiln_compile_options o = {.struct_size = sizeof o,
                                  .threads = 1, // others would be waited for
                                  .tune = tune,
                                  .tuned = tuned,
                                  .backends = backends,
                                  .dump = "plan",
                                  .on_dump = on_dump,
                                  .dump_user = &out};
  out.status = kiln_model_load(f->model, &o, diag, &m);
  if (out.status == KILN_OK) out.status = kiln_model_compile_to(m, f->module, diag);
  if (m) out.tuning = kiln_model_tuning(m);
  out.tuning.won = NULL; // the model's
  if (kiln_diag_count(diag))
    snprintf(out.message, sizeof out.message, "%s", kiln_diag_message(diag, 0));
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  return out;
}

// Runs the module; gives its message, or NULL after comparing the results.
static const char *run_module(const folder *f, char *message, size_t room) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = NULL;
  kiln_session *s = NULL;
  kiln_status st = kiln_module_load(f->module, diag, &m);
  const kiln_session_options o = {.struct_size = sizeof o, .threads = 2};
  if (st == KILN_OK) st = kiln_session_create(m, &o, diag, &s);
  if (st == KILN_OK) {
    call c = call_of_module(m);
    st = kiln_session_run(s, c.n_in, c.inputs, c.n_out, c.outputs, diag);
    const float *x = c.in[0]->dl_tensor.data, *w = c.in[1]->dl_tensor.data,
                *y = c.out[0]->dl_tensor.data;
    for (int i = 0; st == KILN_OK && i < M; i++)
      for (int j = 0; j < N; j++) {
        double sum = (double)weight_at(j);
        for (int k = 0; k < K; k++) sum += (double)x[i * K + k] * (double)w[k * N + j];
        assert_true(fabs((double)y[i * N + j] - (sum > 0 ? sum : 0)) < 1e-3);
      }
    call_destroy(&c);
  }
  if (st != KILN_OK) snprintf(message, room, "%s", kiln_diag_message(diag, 0));
  kiln_session_destroy(s);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
  return st == KILN_OK ? NULL : message;
}

static void must_say(const char *message, const char *what) {
  if (!message || !strstr(message, what))
    fail_msg("must say \"%s\", got: %s", what, message ? message : "nothing");
}

// --- choice ---

static void what_is_faster_is_called_and_known_from_then_on(void **state) {
  (void)state;
  folder f = begin();
  char message[512];
  const outcome before = compile(&f, 0, "double");
  outcome first = compile(&f, 1, "double"); // which decides nothing while the machine is busy
  for (int tries = 0; tries < 100 && !first.has_won; tries++) first = compile(&f, 1, "double");
  const outcome again = compile(&f, 0, "double"), without = compile(&f, 0, "none");
  assert_false(before.has_won); // nothing was measured
  assert_int_equal(before.tuning.offered, 1);
  assert_true(first.has_won);
  assert_true(first.tuning.candidates > 0);
  assert_true(again.has_won);
  assert_int_equal(again.tuning.candidates, 0);
  assert_false(without.has_won);
  state_of_double.version = "1.1"; // of which nothing is known
  assert_false(compile(&f, 0, "double").has_won);
  state_of_double.version = "1.0";
  assert_true(compile(&f, 0, "all").has_won);
  state_of_double.n_runs = 0;
  assert_null(run_module(&f, message, sizeof message));
  assert_int_equal(state_of_double.n_runs, 2); // a part a thread
  end(&f);
}

static void what_is_wrong_is_not_called(void **state) {
  (void)state;
  folder f = begin();
  state_of_double.is_wrong = true;
  const outcome got = compile(&f, 1, "double");
  assert_int_equal(got.status, KILN_OK);
  assert_int_equal(got.tuning.wrong, 1);
  assert_false(got.has_won);
  end(&f);
}

static void what_the_library_refuses_is_not_offered(void **state) {
  (void)state;
  folder f = begin();
  state_of_double.is_picky = true;
  const outcome got = compile(&f, 1, "double");
  assert_int_equal(got.status, KILN_OK);
  assert_int_equal(got.tuning.offered, 0);
  assert_false(compile(&f, 0, "double,always").has_won);
  end(&f);
}

static void always_asks_for_no_measurement(void **state) {
  (void)state;
  folder f = begin();
  char message[512];
  assert_true(compile(&f, 0, "all,always").has_won);
  assert_null(run_module(&f, message, sizeof message));
  end(&f);
}

// --- matching ---

#define LAYER                                                                                      \
  "def d(float(M, K) A, float(K, N) B, float(N) D) -> (C) { T(m, n) +=! A(m, r_k) * B(r_k, n) "    \
  "C(m, n) = "

static const struct {
  const char *text, *call; // a definition; how its call begins, NULL: it has none
  const char *post;        // what it must have; NULL: that is of no interest
} definitions[] = {
    {"def d(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, r_k) * B(r_k, n) }", "product",
     NULL},
    {"def d(float(K, M) A, float(N, K) B) -> (C) { C(m, n) +=! B(n, r_k) * A(r_k, m) }", "product",
     NULL},
    {"def d(float(M, K) A, float(K, N) B, float(M) D) -> (C) {"
     "  T(m, n) +=! A(m, r_k) * B(r_k, n)"
     "  C(m, n) = min(max(2.0 * T(m, n) + D(m), 0.0), 6.0) }",
     "product", NULL},
    {"def d(float(P, M, K) A, float(P, K, N) B, float(P, M, N) D) -> (C) {"
     "  T(p, m, n) +=! A(p, m, r_k) * B(p, r_k, n)"
     "  C(p, m, n) = T(p, m, n) + D(p, m, n) }",
     "product", NULL},
    {"def d(float(M, P, K) A, float(K, N) B) -> (C) { C(p, m, n) +=! A(m, p, r_k) * B(r_k, n) }",
     "product", NULL},
    {"def d(float(P, K) A, float(P, K, N) B) -> (C) { C(p, n) +=! A(p, r_k) * B(p, r_k, n) }",
     "product", NULL},
    {"def d(float(P, K, M, N) X, float(Q, K, 3, 2) W) -> (Y) {"
     "  Y(p, q, h, w) +=! X(p, r_k, h + r_i, w + r_j) * W(q, r_k, r_i, r_j) }",
     "convolution", NULL},
    {"def d(float(P, M, N, K) X, float(Q, 3, 3, K) W, float(Q) B) -> (Y) {"
     "  T(p, h, w, q) +=! X(p, 2 * h + r_i, w + 2 * r_j, r_k) * W(q, r_i, r_j, r_k)"
     "  Y(p, h, w, q) = max(T(p, h, w, q) + B(q), 0.0) }",
     "convolution", NULL},
    {"def d(float(P, K, M, N) X, float(K, 3, 3) W) -> (Y) {"
     "  Y(p, k, h, w) +=! X(p, k, h + r_i, w + r_j) * W(k, r_i, r_j) }",
     "convolution", NULL},
    {"def d(float(P, Q, K, N) X, float(Q, M, K, 3) W) -> (Y) {"
     "  Y(p, q, m, w) +=! X(p, q, r_k, w + r_j) * W(q, m, r_k, r_j) }",
     "convolution", NULL},
    {"def d(float(P, K, M, N) X, float(Q, K, 3, 3) W) -> (Y) {"
     "  Y(p, q, h, w) +=! (h + r_i >= 1 && h + r_i <= M && 2 * w + r_j > 1 && 2 * w + r_j < N + 2"
     "    ? X(p, r_k, h + r_i - 1, 2 * w + r_j - 2) : 0.0) * W(q, r_k, r_i, r_j)"
     "  where h in 0:M, w in 0:4 }",
     "convolution", NULL}, // zeros around the image
    {"def d(float(P, K, M, N) X, float(Q, K, 3, 3) W) -> (Y) {"
     "  Y(p, q, h, w) +=! (2 * w + r_j < 5 ? X(p, r_k, h + r_i, 2 * w + r_j) : 0.0)"
     "    * W(q, r_k, r_i, r_j) where w in 0:3 }",
     "convolution", NULL}, // and in the place of its last columns
    {"def d(float(P, K, M, N) X, float(Q, K, 3, 3) W) -> (Y) {"
     "  Y(p, q, h, w) +=! (h + r_i >= 1 && h + r_i <= M && h > 1"
     "    ? X(p, r_k, h + r_i - 1, w + r_j) : 0.0) * W(q, r_k, r_i, r_j) where h in 0:M }",
     NULL, NULL}, // and in its first results
    {"def d(float(P, K, M, N) X, float(Q, K, 3, 3) W) -> (Y) {"
     "  Y(p, q, h, w) +=! (h + r_i >= 1 && h + r_i <= M ? X(p, r_k, h + r_i - 1, w + r_j) : 1.0)"
     "    * W(q, r_k, r_i, r_j) where h in 0:M }",
     NULL, NULL}, // ones
    {"def d(float(M, K) A, float(K, N) B) -> (C) { C(m, n) max=! A(m, r_k) * B(r_k, n) }", NULL,
     NULL},
    {"def d(float(M, K) A, float(K, N) B) -> (C) {"
     "  T(m, n) +=! A(m, r_k) * B(r_k, n)"
     "  C(m, n) = T(m, n) * T(m, n) }",
     NULL, NULL},
    {LAYER "T(m, n) * (1.0 / (1.0 + exp(-T(m, n)))) }", "product", "silu"},
    {LAYER "(T(m, n) + D(n)) / (1.0 + exp(0.0 - (T(m, n) + D(n)))) }", "product", "silu"},
    {LAYER "0.5 * (T(m, n) + D(n)) * (1.0 + erf((T(m, n) + D(n)) * 0.70710678)) }", "product",
     "gelu 0"},
    {LAYER "T(m, n) * (0.5 + 0.5 * tanh(0.7978845608 * (T(m, n) + 0.044715 * T(m, n) * T(m, n) * "
           "T(m, n)))) + D(n) }",
     "product", "gelu_tanh"},
    {LAYER "max(tanh(2.0 * T(m, n)), 0.0) }", "product", "tanh"},
    {LAYER "1.0 / (1.0 + exp(-(T(m, n) + D(n)))) }", "product", "sigmoid"},
    {LAYER "T(m, n) / (1.0 + exp(-1.702 * T(m, n))) }", NULL, NULL}, // near to gelu, and another
    {LAYER "T(m, n) / (1.0 + exp(-(T(m, n) + D(n)))) }", NULL, NULL},
    {LAYER "sin(T(m, n)) }", NULL, NULL},
};

enum { CALL_ROOM = 512 };

static void on_call(void *user, const char *level, const char *text) {
  const char *at = strstr(text, " of double: ");
  (void)level;
  snprintf(user, CALL_ROOM, "%s", at ? at + strlen(" of double: ") : "");
}

static void check_definition(const folder *f, size_t row, uint64_t *seed) {
  static const char *const names[] = {"M", "N", "K", "P", "Q"};
  kiln_dim_value dims[5];
  size_t n_dims = 0, failed = 0;
  char path[96], call_text[CALL_ROOM] = "";
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  snprintf(path, sizeof path, "%s/d.tc", f->path);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(definitions[row].text, file);
  fclose(file);
  for (int i = 0; i < 5; i++) { // those that the definition has
    char size[2][8];
    snprintf(size[0], sizeof size[0], "%s,", names[i]);
    snprintf(size[1], sizeof size[1], "%s)", names[i]);
    if (strstr(definitions[row].text, size[0]) || strstr(definitions[row].text, size[1]))
      dims[n_dims++] = (kiln_dim_value){names[i], 7 + below(seed, 9)};
  }
  const kiln_compile_options o = {.struct_size = sizeof o,
                                  .dims = dims,
                                  .n_dims = n_dims,
                                  .threads = 2,
                                  .backends = "double,always",
                                  .dump = "plan",
                                  .on_dump = on_call,
                                  .dump_user = call_text};
  if (kiln_model_load(path, &o, diag, &m) != KILN_OK ||
      kiln_model_verify(m, NULL, diag, &failed) != KILN_OK)
    fail_msg("row %zu: %s", row, kiln_diag_message(diag, 0));
  if (failed) fail_msg("row %zu is wrong", row);
  const char *want = definitions[row].call ? definitions[row].call : "";
  if (strncmp(call_text, want, strlen(want)) != 0 || !*call_text != !*want)
    fail_msg("row %zu: must be a %s, got \"%s\"", row, want, call_text);
  if (definitions[row].post && !strstr(call_text, definitions[row].post))
    fail_msg("row %zu: must have %s, got \"%s\"", row, definitions[row].post, call_text);
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
}

static void calls_compute_what_kernels_do(void **state) {
  (void)state;
  folder f = begin();
  uint64_t seed = 21;
  state_of_double.takes_all = true;
  for (size_t row = 0; row < sizeof definitions / sizeof definitions[0]; row++)
    check_definition(&f, row, &seed);
  end(&f);
}

// --- errors ---

static void a_library_that_is_missing_is_named(void **state) {
  (void)state;
  folder f = begin();
  char message[512];
  assert_true(compile(&f, 0, "double,always").has_won);
  state_of_double.is_missing = true;
  must_say(run_module(&f, message, sizeof message), "libdouble.so");
  const outcome named = compile(&f, 1, "double"), all = compile(&f, 1, "all");
  assert_int_equal(named.status, KILN_DEVICE_ERROR);
  must_say(named.message, "libdouble.so");
  assert_int_equal(all.status, KILN_OK); // what is installed
  assert_false(all.has_won);
  end(&f);
}

static void a_call_that_fails_ends_the_run(void **state) {
  (void)state;
  folder f = begin();
  char message[512];
  assert_true(compile(&f, 0, "double,always").has_won);
  state_of_double.fails = true;
  must_say(run_module(&f, message, sizeof message), "double must run \"product");
  state_of_double.fails = false;
  state_of_double.is_picky = true;
  must_say(run_module(&f, message, sizeof message), "call: must be another");
  end(&f);
}

static void unknown_backends_are_refused(void **state) {
  (void)state;
  folder f = begin();
  const outcome got = compile(&f, 0, "double,mkl");
  assert_int_equal(got.status, KILN_BAD_INPUT);
  must_say(got.message, "must be none, all, or of double, always, joined by ',', got \"mkl\"");
  assert_int_equal(compile(&f, 0, "").status, KILN_BAD_INPUT);
  end(&f);
}

static void verifying_checks_what_a_library_computes(void **state) {
  (void)state;
  folder f = begin();
  for (int wrong = 0; wrong < 2; wrong++) {
    kiln_diag *diag = kiln_diag_create();
    kiln_model *m = NULL;
    size_t failed = 0;
    const kiln_compile_options o = {
        .struct_size = sizeof o, .threads = 2, .backends = "double,always"};
    state_of_double.is_wrong = wrong;
    assert_int_equal(kiln_model_load(f.model, &o, diag, &m), KILN_OK);
    assert_int_equal(kiln_model_verify(m, NULL, diag, &failed), KILN_OK);
    assert_int_equal(failed, wrong);
    kiln_model_destroy(m);
    kiln_diag_destroy(diag);
  }
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_faster_is_called_and_known_from_then_on),
      cmocka_unit_test(what_is_wrong_is_not_called),
      cmocka_unit_test(what_the_library_refuses_is_not_offered),
      cmocka_unit_test(always_asks_for_no_measurement),
      cmocka_unit_test(calls_compute_what_kernels_do),
      cmocka_unit_test(a_library_that_is_missing_is_named),
      cmocka_unit_test(a_call_that_fails_ends_the_run),
      cmocka_unit_test(unknown_backends_are_refused),
      cmocka_unit_test(verifying_checks_what_a_library_computes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

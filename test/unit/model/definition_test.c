// Definitions through the public interface: loaded, compiled, verified, simulated, searched.
#include "unit/driver/models.h"

static const char matmul[] = "def twice(float(N) X) -> (Y) { Y(i) = 2 * X(i) }\n"
                             "def mm(float(M, K) A, float(K, N) B) -> (C) {\n"
                             "  C(m, n) +=! A(m, k) * B(k, n)\n}\n";
static const kiln_dim_value sizes[] = {{"M", 5}, {"K", 7}, {"N", 9}};
enum { M = 5, K = 7, N = 9 };

typedef struct scene {
  folder f;
  char path[96];
  kiln_diag *diag;
  kiln_compile_options o;
} scene;

static scene scene_make(const char *text) {
  scene s = {.f = folder_make(), .diag = kiln_diag_create()};
  snprintf(s.path, sizeof s.path, "%s/m.tc", s.f.path);
  FILE *f = fopen(s.path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
  s.o = (kiln_compile_options){
      .struct_size = sizeof s.o, .dims = sizes, .n_dims = KILN_LEN(sizes), .threads = 2};
  return s;
}

static void scene_end(scene *s) {
  kiln_diag_destroy(s->diag);
  folder_remove(&s->f);
}

static kiln_model *load(scene *s) {
  kiln_model *m = NULL;
  if (kiln_model_load(s->path, &s->o, s->diag, &m) != KILN_OK)
    fail_msg("%s", kiln_diag_message(s->diag, 0));
  return m;
}

// A(m, k) = m + k, B(k, n) = k - n, C of the shape of the result.
typedef struct operands {
  DLManagedTensorVersioned *a, *b, *c;
  const DLTensor *inputs[2];
  DLTensor *outputs[1];
} operands;

static operands operands_make(void) {
  operands o = {kiln_tensor_create("f32", 2, (const int64_t[]){M, K}, NULL),
                kiln_tensor_create("f32", 2, (const int64_t[]){K, N}, NULL),
                kiln_tensor_create("f32", 2, (const int64_t[]){M, N}, NULL),
                {NULL},
                {NULL}};
  for (int64_t i = 0; i < M * K; i++)
    kiln_tensor_set_element(&o.a->dl_tensor, i, (double)(i / K + i % K));
  for (int64_t i = 0; i < K * N; i++)
    kiln_tensor_set_element(&o.b->dl_tensor, i, (double)(i / N - i % N));
  o.inputs[0] = &o.a->dl_tensor;
  o.inputs[1] = &o.b->dl_tensor;
  o.outputs[0] = &o.c->dl_tensor;
  return o;
}

static void operands_check(operands *o) {
  for (int64_t i = 0; i < M * N; i++) {
    double want = 0;
    for (int64_t k = 0; k < K; k++) want += (double)((i / N + k) * (k - i % N));
    assert_float_equal(kiln_tensor_element(&o->c->dl_tensor, i), want, 0);
    kiln_tensor_set_element(&o->c->dl_tensor, i, 1e9);
  }
}

static void operands_end(operands *o) {
  kiln_tensor_destroy(o->a);
  kiln_tensor_destroy(o->b);
  kiln_tensor_destroy(o->c);
}

static void run_compiled(scene *s, operands *o) {
  kiln_model *m = load(s);
  kiln_module *module = NULL;
  kiln_session *session = NULL;
  const kiln_session_options so = {.struct_size = sizeof so, .threads = 2};
  if (kiln_model_compile(m, s->diag, &module) != KILN_OK)
    fail_msg("%s", kiln_diag_message(s->diag, 0));
  kiln_model_destroy(m);
  assert_int_equal(kiln_session_create(module, &so, s->diag, &session), KILN_OK);
  assert_int_equal(kiln_session_run(session, 2, o->inputs, 1, o->outputs, s->diag), KILN_OK);
  kiln_session_destroy(session);
  kiln_module_release(module);
  operands_check(o);
}

static void definitions_run_with_any_schedule(void **state) {
  static const char *const schedules[] = {
      NULL,
      "",
      "# nothing\n",
      "split C.m 2 guard C.mo C.mi\nreorder C.mo C.k C.mi C.n\nvectorize C.n\n",
      "kernel mm\nparallel C.m\n",
      "kernel k0_contract_mm\n"};
  scene s = scene_make(matmul);
  operands o = operands_make();
  (void)state;
  for (size_t i = 0; i < KILN_LEN(schedules); i++) {
    s.o.schedule = schedules[i];
    run_compiled(&s, &o);
  }
  operands_end(&o);
  scene_end(&s);
}

static void the_interface_is_the_definitions(void **state) {
  scene s = scene_make(matmul);
  (void)state;
  s.o.n_dims = 1;
  kiln_model *m = load(&s);
  assert_int_equal(kiln_model_input_count(m), 2);
  assert_string_equal(kiln_model_input(m, 1).name, "B");
  assert_int_equal(kiln_model_input(m, 0).shape[0], M);
  assert_int_equal(kiln_model_input(m, 0).shape[1], -1);
  assert_string_equal(kiln_model_input_dim_name(m, 0, 1), "K");
  assert_string_equal(kiln_model_output(m, 0).name, "C");
  assert_non_null(strstr(kiln_model_report(m, 0), "twice, line 1: sizes N; inputs X; outputs Y"));
  assert_non_null(strstr(kiln_model_report(m, 1), "\"entry\": \"mm\""));
  kiln_module *module = NULL;
  assert_int_equal(kiln_model_compile(m, s.diag, &module), KILN_UNSUPPORTED);
  assert_non_null(strstr(kiln_diag_message(s.diag, 0), "add --size K=64 --size N=64"));
  kiln_model_destroy(m);
  scene_end(&s);
}

static void reference_and_simulator_agree(void **state) {
  scene s = scene_make(matmul);
  operands o = operands_make();
  const char *report = NULL;
  (void)state;
  kiln_model *m = load(&s);
  assert_int_equal(kiln_model_reference(m, 2, o.inputs, 1, o.outputs, s.diag), KILN_OK);
  operands_check(&o);
  assert_int_equal(kiln_model_simulate(m, 2, o.inputs, 1, o.outputs, s.diag, &report), KILN_OK);
  operands_check(&o);
  assert_non_null(strstr(report, "kernel k0_contract_mm: 630 flops, 572 bytes at least\n"));
  assert_non_null(strstr(report, "L3 of memory"));
  assert_int_equal(kiln_model_simulate(m, 1, o.inputs, 1, o.outputs, s.diag, &report),
                   KILN_BAD_INPUT);
  assert_null(report);
  kiln_model_destroy(m);
  operands_end(&o);
  scene_end(&s);
}

// --- dumps ---

typedef struct dumps {
  int n;
  char text[1 << 14];
} dumps;

static void keep_dump(void *user, const char *level, const char *text) {
  dumps *d = user;
  d->n++;
  snprintf(d->text, sizeof d->text, "%s:%s", level, text);
}

// Whether code for "avx2" may run here.
static bool has_avx2(void) {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

static void code_for_other_machines_is_only_emitted(void **state) {
  static const struct {
    const char *target, *level, *want;
  } rows[] = {{NULL, "prim", "C(m:5, n:9 | k:7)"},
              {"c", "c", "#include"},
              {"avx2", "asm", "ymm"},
              {"neon", "llvm", "aarch64"},
              {"cpu", "loop", "for "}};
  static dumps d;
  scene s = scene_make(matmul);
  (void)state;
  s.o.on_dump = keep_dump;
  s.o.dump_user = &d;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    kiln_module *module = NULL;
    d.n = 0;
    s.o.target = rows[i].target;
    s.o.dump = rows[i].level;
    kiln_model *m = load(&s);
    assert_int_equal(kiln_model_emit(m, s.diag), KILN_OK);
    assert_int_equal(d.n, 1);
    if (!strstr(d.text, rows[i].want)) fail_msg("no '%s' in %s", rows[i].want, d.text);
    const bool is_here = !rows[i].target || strcmp(rows[i].target, "cpu") == 0 ||
                         (strcmp(rows[i].target, "avx2") == 0 && has_avx2());
    assert_int_equal(kiln_model_compile(m, s.diag, &module), is_here ? KILN_OK : KILN_UNSUPPORTED);
    kiln_module_release(module);
    kiln_model_destroy(m);
  }
  scene_end(&s);
}

// --- verification ---

static void count_result(void *user, const kiln_verify_result *r) {
  int *n = user;
  assert_true(r->passed);
  n[strncmp(r->nodes, "mm K=3 M=", 9) == 0]++;
}

static void all_definitions_are_verified_at_sizes_that_fit(void **state) {
  scene s = scene_make(matmul);
  int n[2] = {0};
  size_t failed = 7;
  const kiln_dim_value k = {"K", 3};
  const kiln_verify_options v = {.struct_size = sizeof v, .on_result = count_result, .user = n};
  (void)state;
  s.o.dims = &k;
  s.o.n_dims = 1;
  assert_int_equal(kiln_definitions_verify(s.path, &s.o, &v, s.diag, &failed), KILN_OK);
  assert_int_equal(failed, 0);
  assert_true(n[0] >= 6 && n[1] >= 6); // two kernels, or more, at three choices each
  scene_end(&s);
  s = scene_make(
      "def even(float(N) X) -> (Y) {\n  require N % 2 == 0, \"N must be even\"\n  Y(i) = X(i) }\n"
      "def none(float(N) X) -> (Y) {\n  require N > 1000000, \"N must be large\"\n"
      "  Y(i) = X(i) }\n");
  n[0] = 0;
  assert_int_equal(kiln_definitions_verify(s.path, NULL, &v, s.diag, &failed), KILN_BAD_INPUT);
  assert_true(n[0] >= 6); // of the even one
  assert_non_null(strstr(kiln_diag_message(s.diag, 0), "N must be large"));
  scene_end(&s);
}

// Sums of many halves that the kernel rounds and subtracts: in another order some differ by one
// ULP, more than the error bound of their differences.
static void halves_on_the_way_are_judged_beside_the_others(void **state) {
  static const kiln_dim_value large[] = {{"M", 200}, {"K", 256}, {"N", 64}};
  scene s =
      scene_make("def f(float16(M, K) A, float16(K, N) B, float16(M, N) C) -> (float16(M, N) Y) {\n"
                 "  T(m, n) +=! float(A(m, k)) * float(B(k, n))\n"
                 "  Y(m, n) = float16(float(float16(T(m, n))) - float(C(m, n)))\n}\n");
  (void)state;
  s.o.dims = large;
  kiln_model *m = load(&s);
  for (uint64_t seed = 0; seed < 8; seed++) {
    const kiln_verify_options o = {.struct_size = sizeof o, .seed = seed};
    size_t failed = 9;
    assert_int_equal(kiln_model_verify(m, &o, s.diag, &failed), KILN_OK);
    assert_int_equal(failed, 0);
  }
  kiln_model_destroy(m);
  scene_end(&s);
}

static void note_name(void *user, const kiln_verify_result *r) {
  char *seen = user;
  assert_true(r->passed);
  if (strlen(seen) < 900) snprintf(seen + strlen(seen), 64, "%.60s;", r->nodes);
}

// An error in one definition, syntactic or later, does not keep others from being checked.
static void definitions_beside_wrong_ones_are_verified(void **state) {
  scene s = scene_make("def cut(float(N) X) -> (Y) {\n  Y(i) = X(i) +\n}\n"
                       "def one(float(N) X) -> (Y) { Y(i) = X(i) + 1 }\n"
                       "def rank(float(N) X) -> (Y) {\n  Y(i) = X(i, i)\n}\n"
                       "def calls(float(N) X) -> (Y) { Y = rank(X) }\n"
                       "def two(float(P) X) -> (Y) { Y = one(X) }\n"
                       "def two(float(P, Q) X) -> (Y) { Y(i, j) = X(i, j) + 2 }\n");
  char seen[1024] = "";
  size_t failed = 7;
  const kiln_verify_options v = {.struct_size = sizeof v, .on_result = note_name, .user = seen};
  (void)state;
  assert_int_equal(kiln_definitions_verify(s.path, NULL, &v, s.diag, &failed), KILN_BAD_INPUT);
  assert_int_equal(failed, 0);
  assert_non_null(strstr(seen, "one N="));
  assert_non_null(strstr(seen, "two P="));
  assert_non_null(strstr(seen, " Q=")); // the second of the name as well
  assert_null(strstr(seen, "rank"));
  assert_non_null(strstr(kiln_diag_message(s.diag, 0), "m.tc:3:1: error: syntax: "));
  assert_non_null(strstr(kiln_diag_message(s.diag, 0), "\n  }\n  ^"));
  assert_non_null(strstr(kiln_diag_message(s.diag, 1), "m.tc:6:10: error: X: expected 1 dim"));
  assert_non_null(strstr(kiln_diag_message(s.diag, 2), "m.tc:8:"));
  assert_non_null(strstr(kiln_diag_message(s.diag, 2), "rank: the definition must be right"));
  s.o.n_dims = 0;
  s.o.entry = "one"; // what runs wants a file without mistakes
  kiln_model *m = NULL;
  assert_int_equal(kiln_model_load(s.path, &s.o, s.diag, &m), KILN_BAD_INPUT);
  scene_end(&s);
}

// A name means the same on the command line as in a call: the first definition.
static void an_entry_is_the_first_of_its_name(void **state) {
  scene s = scene_make("def f(float(N) X) -> (Y) { Y(i) = X(i) + 1 }\n"
                       "def f(float(M) U) -> (V) { V(i) = U(i) + 2 }\n");
  (void)state;
  s.o.n_dims = 0;
  s.o.entry = "f";
  kiln_model *m = load(&s);
  assert_string_equal(kiln_model_input(m, 0).name, "X");
  kiln_model_destroy(m);
  s.o.entry = NULL;
  m = load(&s);
  assert_string_equal(kiln_model_input(m, 0).name, "U");
  kiln_model_destroy(m);
  scene_end(&s);
}

// --- search ---

typedef struct found {
  int n_right, n_wrong, n_refused;
  double last_ms;
} found;

static void count_found(void *user, const kiln_search_result *r) {
  found *f = user;
  assert_true(f->n_refused == 0 || r->refused);
  if (r->refused) f->n_refused++;
  else if (r->right) f->n_right++;
  else f->n_wrong++;
  if (r->right) assert_true(r->median_ms >= f->last_ms);
  if (r->right) f->last_ms = r->median_ms;
}

static void a_search_tries_every_filling_of_a_small_space(void **state) {
  scene s = scene_make(matmul);
  found f = {0};
  const kiln_search_options o = {
      .struct_size = sizeof o, .n = 50, .on_result = count_found, .user = &f};
  (void)state;
  s.o.schedule = "split C.m ?{2,3,0} guard C.mo C.mi\n?how{parallel,unroll} C.mo\n";
  if (kiln_schedule_search(s.path, &s.o, &o, s.diag) != KILN_OK)
    fail_msg("%s", kiln_diag_message(s.diag, 0));
  assert_int_equal(f.n_right, 4 + 1); // and Kiln's own
  assert_int_equal(f.n_wrong, 0);
  assert_int_equal(f.n_refused, 2);
  s.o.schedule = "split C.m ?{2";
  assert_int_equal(kiln_schedule_search(s.path, &s.o, &o, s.diag), KILN_BAD_INPUT);
  scene_end(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(definitions_run_with_any_schedule),
      cmocka_unit_test(the_interface_is_the_definitions),
      cmocka_unit_test(reference_and_simulator_agree),
      cmocka_unit_test(code_for_other_machines_is_only_emitted),
      cmocka_unit_test(all_definitions_are_verified_at_sizes_that_fit),
      cmocka_unit_test(halves_on_the_way_are_judged_beside_the_others),
      cmocka_unit_test(definitions_beside_wrong_ones_are_verified),
      cmocka_unit_test(an_entry_is_the_first_of_its_name),
      cmocka_unit_test(a_search_tries_every_filling_of_a_small_space),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

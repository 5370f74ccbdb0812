// The whole compiler on small models: in memory and to a file, against plain loops and the
// reference.
#include "unit/driver/models.h"

#include "driver/pipeline.h"
#include "model/model.h"

#include <sched.h>

static kiln_model *load(const folder *f, int64_t batch, int32_t threads, const char *dump,
                        kiln_dump_fn on_dump, void *user) {
  kiln_model *m = NULL;
  kiln_diag *diag = kiln_diag_create();
  const kiln_dim_value dim = {"batch", batch};
  const kiln_compile_options o = {.struct_size = sizeof o,
                                  .dims = &dim,
                                  .n_dims = 1,
                                  .threads = threads,
                                  .dump = dump,
                                  .on_dump = on_dump,
                                  .dump_user = user};
  save_mlp(f->model, "batch");
  kiln_status st = kiln_model_load(f->model, &o, diag, &m);
  if (st != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
  kiln_diag_destroy(diag);
  return m;
}

static void run_module(kiln_module *module, int32_t threads) {
  const kiln_session_options o = {.struct_size = sizeof o, .threads = threads, .profile = 1};
  kiln_session *s = NULL;
  call c = call_of_module(module);
  assert_int_equal(kiln_session_create(module, &o, NULL, &s), KILN_OK);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(kiln_session_run(s, c.n_in, c.inputs, c.n_out, c.outputs, NULL), KILN_OK);
    check_mlp(&c);
  }
  kiln_session_destroy(s);
  call_destroy(&c);
}

static void compiled_code_gives_what_plain_loops_give(void **state) {
  static const int64_t batches[] = {1, 2, 7, 33, 64};
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  (void)state;
  for (size_t i = 0; i < KILN_LEN(batches); i++) {
    kiln_model *m = load(&f, batches[i], 2, NULL, NULL, NULL);
    kiln_module *module = NULL;
    if (kiln_model_compile(m, diag, &module) != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
    kiln_model_destroy(m); // the module holds on to what it borrows
    for (int32_t threads = 1; threads <= 3; threads++) run_module(module, threads);
    kiln_module_release(module);
  }
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void a_module_file_gives_the_same(void **state) {
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_module *module = NULL;
  kiln_model *m = load(&f, 9, 2, NULL, NULL, NULL);
  (void)state;
  if (kiln_model_compile_to(m, f.module, diag) != KILN_OK)
    fail_msg("%s", kiln_diag_message(diag, 0));
  kiln_model_destroy(m);
  assert_int_equal(folder_count(&f), 2); // nothing left behind
  assert_int_equal(remove(f.model), 0);  // nothing but the module is needed
  assert_int_equal(kiln_module_load(f.module, diag, &module), KILN_OK);
  run_module(module, 2);
  kiln_module_release(module);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void *read_all(const char *path, size_t *n) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  *n = (size_t)ftell(file);
  rewind(file);
  void *data = malloc(*n);
  assert_int_equal(fread(data, 1, *n, file), *n);
  fclose(file);
  return data;
}

static void the_same_model_gives_the_same_bytes(void **state) {
  folder f = folder_make();
  void *files[2];
  size_t n[2];
  (void)state;
  for (int i = 0; i < 2; i++) {
    kiln_model *m = load(&f, 9, 2, NULL, NULL, NULL);
    for (int again = 0; again <= i; again++) // a model can be compiled more than once
      assert_int_equal(kiln_model_compile_to(m, f.module, NULL), KILN_OK);
    kiln_model_destroy(m);
    files[i] = read_all(f.module, &n[i]);
  }
  assert_int_equal(n[0], n[1]);
  assert_memory_equal(files[0], files[1], n[0]);
  free(files[0]);
  free(files[1]);
  folder_remove(&f);
}

// Only the first of the CPUs in |all|.
static void stay_on_one(const cpu_set_t *all) {
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
    if (CPU_ISSET((size_t)cpu, all)) {
      CPU_ZERO(&one);
      CPU_SET((size_t)cpu, &one);
    }
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
}

// The machine is what it is, whatever part of it the compiler may use: |i| 1 compiles on one CPU.
static void the_cpus_of_the_compiler_change_nothing(void **state) {
  folder f = folder_make();
  cpu_set_t all;
  void *files[2];
  size_t n[2];
  (void)state;
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  for (int i = 0; i < 2; i++) {
    if (i == 1) stay_on_one(&all);
    kiln_model *m = load(&f, 33, 2, NULL, NULL, NULL);
    assert_int_equal(kiln_model_compile_to(m, f.module, NULL), KILN_OK);
    kiln_model_destroy(m);
    files[i] = read_all(f.module, &n[i]);
  }
  assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
  assert_int_equal(n[0], n[1]);
  assert_memory_equal(files[0], files[1], n[0]);
  free(files[0]);
  free(files[1]);
  folder_remove(&f);
}

typedef struct verified {
  size_t n, passed;
} verified;

static void on_result(void *user, const kiln_verify_result *r) {
  verified *v = user;
  v->n++;
  v->passed += r->passed != 0;
  assert_true(strlen(r->kernel) > 0 && strlen(r->nodes) > 0);
  assert_true(r->rel_l2 < 1e-4);
}

static void every_kernel_is_verified(void **state) {
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = load(&f, 9, 2, NULL, NULL, NULL);
  verified v = {0};
  size_t failed = 99;
  const kiln_verify_options o = {
      .struct_size = sizeof o, .seed = 3, .on_result = on_result, .user = &v};
  (void)state;
  if (kiln_model_verify(m, &o, diag, &failed) != KILN_OK)
    fail_msg("%s", kiln_diag_message(diag, 0));
  assert_int_equal(failed, 0);
  assert_true(v.n >= 2);
  assert_int_equal(v.passed, v.n);
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

// With a tolerance beyond f32, verification must fail and write its reproducer.
static void a_wrong_kernel_is_found_and_written_out(void **state) {
  folder f = folder_make();
  char out[96];
  kiln_model *m = load(&f, 9, 2, NULL, NULL, NULL);
  size_t failed = 0;
  kiln_verify_options o = {.struct_size = sizeof o, .seed = 3, .rtol = 1e-14, .atol = 1e-14};
  (void)state;
  snprintf(out, sizeof out, "%s/wrong", f.path);
  o.reproducer_dir = out;
  assert_int_equal(kiln_model_verify(m, &o, NULL, &failed), KILN_OK);
  assert_true(failed > 0);
  folder inside = {0};
  memcpy(inside.path, out, strlen(out) + 1);
  assert_true(folder_count(&inside) >= 6); // prim, loop, schedule, args, arguments, the wanted
  kiln_model_destroy(m);
  folder_remove(&f);
}

// Sums become differences.
static int subtract(kiln_ctx *cx, kiln_program *p) {
  int n = 0;
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    if (s->body->kind != KILN_EXPR_ADD) continue;
    s->body = kiln_sub(cx, s->body->args[0], s->body->args[1]);
    n++;
  }
  return n;
}

typedef struct blamed {
  char kernels[256];
  size_t n_wrong;
} blamed;

static void on_blamed(void *user, const kiln_verify_result *r) {
  blamed *b = user;
  if (r->passed) return;
  b->n_wrong++;
  strncat(b->kernels, r->kernel, 64);
}

static void a_wrong_rule_is_found_and_named(void **state) {
  kiln_rule rules[KILN_MAX_RULES + 1] = {{0}};
  folder f = folder_make();
  kiln_model *m = load(&f, 9, 2, NULL, NULL, NULL);
  blamed b = {{0}, 0};
  size_t failed = 0, n = 0;
  const kiln_verify_options o = {
      .struct_size = sizeof o, .seed = 3, .on_result = on_blamed, .user = &b};
  (void)state;
  for (; kiln_rules[n].name; n++) rules[n] = kiln_rules[n];
  rules[n] = (kiln_rule){"subtract", "sums become differences", .apply = subtract};
  m->rules = rules;
  assert_int_equal(kiln_model_verify(m, &o, NULL, &failed), KILN_OK);
  assert_int_equal(failed, 2);
  assert_string_equal(b.kernels, "(rewrites)(subtract, step 1)");
  kiln_model_destroy(m);
  folder_remove(&f);
}

// A pass that negates all that maps compute.
static kiln_status negate_maps(kiln_ctx *cx, kiln_build *b, int *io_n) {
  for (int i = 0; i < b->choices.prog->stmts.n; i++) {
    kiln_stmt *s = b->choices.prog->stmts.data[i];
    if (s->combiner == KILN_COMBINE_NONE)
      s->body = kiln_sub(cx, s->body, kiln_add(cx, s->body, s->body));
  }
  ++*io_n;
  return KILN_OK;
}

static void a_wrong_pass_is_found_and_named(void **state) {
  kiln_pass passes[KILN_MAX_PASSES] = {{0}};
  folder f = folder_make();
  kiln_model *m = load(&f, 9, 2, NULL, NULL, NULL);
  blamed b = {{0}, 0};
  size_t failed = 0;
  const kiln_verify_options o = {
      .struct_size = sizeof o, .seed = 3, .on_result = on_blamed, .user = &b};
  (void)state;
  for (int i = 0, n = 0; kiln_passes[i].name; i++) {
    passes[n++] = kiln_passes[i];
    if (strcmp(kiln_passes[i].name, "inline")) continue;
    passes[n++] = (kiln_pass){.name = "negate",
                              .phase = KILN_PHASE_TILE,
                              .run = negate_maps,
                              .is_optional = true,
                              .text = "maps are negated"};
  }
  m->passes = passes;
  assert_int_equal(kiln_model_verify(m, &o, NULL, &failed), KILN_OK);
  assert_int_equal(failed, 2);
  assert_non_null(strstr(b.kernels, "(rewrites)(negate, step "));
  kiln_model_destroy(m);
  folder_remove(&f);
}

static void dump_text(void *user, const char *level, const char *text) {
  char *seen = user;
  if (strlen(text) == 0) fail_msg("%s", level);
  strncat(seen, level, 16);
  strncat(seen, " ", 2);
}

static void all_levels_are_dumped_and_all_passes_timed(void **state) {
  folder f = folder_make();
  char seen[128] = "";
  const kiln_pass_time *times = NULL;
  kiln_module *module = NULL;
  kiln_model *m = load(&f, 4, 1, "graph,prim,loop,schedule,llvm,asm", dump_text, seen);
  (void)state;
  assert_int_equal(kiln_model_compile(m, NULL, &module), KILN_OK);
  assert_string_equal(seen, "graph prim loop schedule llvm asm ");
  const size_t n = kiln_model_pass_times(m, &times);
  int row = 0;
  for (size_t i = 0; i < n; i++, row++) { // in the order of the table, each once
    while (kiln_passes[row].name && strcmp(kiln_passes[row].name, times[i].name)) row++;
    assert_non_null(kiln_passes[row].name);
    assert_true(times[i].ms >= 0);
  }
  assert_string_equal(times[0].name, "read");
  assert_string_equal(times[n - 1].name, "weights");
  kiln_module_release(module);
  kiln_model_destroy(m);
  folder_remove(&f);
}

static void an_unwritable_output_leaves_nothing(void **state) {
  folder f = folder_make();
  char path[128];
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = load(&f, 4, 1, NULL, NULL, NULL);
  (void)state;
  snprintf(path, sizeof path, "%s/none/m.so", f.path);
  assert_int_equal(kiln_model_compile_to(m, path, diag), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "none/m.so: error: must be writable"));
  assert_int_equal(folder_count(&f), 1);
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void symbolic_dimensions_are_refused(void **state) {
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  kiln_module *module = NULL;
  (void)state;
  save_mlp(f.model, "batch");
  assert_int_equal(kiln_model_load(f.model, NULL, diag, &m), KILN_OK);
  assert_int_equal(kiln_model_compile(m, diag, &module), KILN_UNSUPPORTED);
  assert_null(module);
  assert_int_equal(kiln_model_compile_to(m, f.module, diag), KILN_UNSUPPORTED);
  assert_int_equal(kiln_diag_count(diag), 2);
  assert_non_null(strstr(kiln_diag_message(diag, 1), "bind it with --dim batch=N"));
  assert_int_equal(folder_count(&f), 1);
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

static void the_host_is_described(void **state) {
  (void)state;
  assert_non_null(strstr(kiln_host(), "cores"));
  assert_string_equal(kiln_version(), "0.1.0");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(compiled_code_gives_what_plain_loops_give),
      cmocka_unit_test(a_module_file_gives_the_same),
      cmocka_unit_test(the_same_model_gives_the_same_bytes),
      cmocka_unit_test(the_cpus_of_the_compiler_change_nothing),
      cmocka_unit_test(every_kernel_is_verified),
      cmocka_unit_test(a_wrong_kernel_is_found_and_written_out),
      cmocka_unit_test(a_wrong_rule_is_found_and_named),
      cmocka_unit_test(a_wrong_pass_is_found_and_named),
      cmocka_unit_test(all_levels_are_dumped_and_all_passes_timed),
      cmocka_unit_test(an_unwritable_output_leaves_nothing),
      cmocka_unit_test(symbolic_dimensions_are_refused),
      cmocka_unit_test(the_host_is_described),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Tuning on an OpenCL device (PoCL if there is no other): stored results, and failing candidates.
// An OpenCL library that fails on request (test/gpu/shaky_opencl.c) is given to the worker process
// only.
#include "unit/driver/models.h"

#include "tune/tuning.h"

#include "runtime/gpu/gpu.h"
#include "tune/results.h"

enum { TUNED = 4 };

typedef struct outcome {
  char *bytes; // of the module
  long n;
  kiln_tuning tuning;
} outcome;

typedef struct stopping {
  volatile int stop;
  size_t after; // candidates; 0: never
} stopping;

static const char *target = "opencl";

static bool has_opencl(void) {
  char arch[16];
  return kiln_gpu_arch(KILN_PLAN_OPENCL, 0, NULL, arch) == KILN_OK;
}

static folder begin(void) {
  folder f = folder_make();
  char text[160];
  snprintf(text, sizeof text, "%s/cache", f.path);
  setenv("KILN_CACHE_DIR", text, 1);
  snprintf(text, sizeof text, "%s/count", f.path);
  setenv("KILN_TEST_SHAKY_COUNT", text, 1);
  save_pair(f.model, "96");
  return f;
}

static void end(folder *f) {
  unsetenv("KILN_TEST_SHAKY");
  unsetenv("KILN_WORKER");
  unsetenv("LD_LIBRARY_PATH");
  folder_remove(f);
}

// From now on the measuring process has an OpenCL that fails so; it counts programs anew.
static void make_shaky(const char *how) {
  unlink(getenv("KILN_TEST_SHAKY_COUNT"));
  setenv("KILN_TEST_SHAKY", how, 1);
  setenv("LD_LIBRARY_PATH", SHAKY_OPENCL, 1);
}

static void on_progress(void *user, const char *phase, size_t done, size_t total) {
  stopping *s = user;
  (void)total;
  if (s->after > 0 && strcmp(phase, "tune") == 0 && done >= s->after) s->stop = 1;
}

static kiln_status compile(const folder *f, kiln_compile_options o, stopping *s, kiln_diag *diag,
                           outcome *out) {
  kiln_model *m = NULL;
  *out = (outcome){0};
  o.struct_size = sizeof o;
  o.target = target;
  o.cache = 1;
  if (s) {
    o.stop = &s->stop;
    o.on_progress = on_progress;
    o.progress_user = s;
  }
  kiln_status st = kiln_model_load(f->model, &o, diag, &m);
  if (st == KILN_OK) st = kiln_model_compile_to(m, f->module, diag);
  if (st == KILN_OK) out->tuning = kiln_model_tuning(m);
  kiln_model_destroy(m);
  if (st != KILN_OK) return st;
  FILE *file = fopen(f->module, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  out->n = ftell(file);
  rewind(file);
  out->bytes = malloc((size_t)out->n);
  assert_int_equal(fread(out->bytes, 1, (size_t)out->n, file), out->n);
  fclose(file);
  return KILN_OK;
}

static outcome tune(const folder *f, stopping *s) {
  kiln_diag *diag = kiln_diag_create();
  const kiln_compile_options o = {.tune = TUNED};
  outcome out;
  if (compile(f, o, s, diag, &out) != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
  kiln_diag_destroy(diag);
  return out;
}

static void must_equal(const outcome *a, const outcome *b) {
  assert_int_equal(a->n, b->n);
  assert_memory_equal(a->bytes, b->bytes, (size_t)a->n);
}

static void name_of_device(char *out, size_t room) {
  kiln_gpu_context *gpu = NULL;
  assert_int_equal(kiln_opencl_api.open(0, NULL, &gpu), KILN_OK);
  snprintf(out, room, "%s", gpu->name);
  kiln_opencl_api.close(gpu);
}

static void what_was_measured_is_known_with_and_without_the_device(void **state) {
  (void)state;
  if (!has_opencl()) skip();
  char device[128];
  folder f = begin();
  outcome first = tune(&f, NULL), again = tune(&f, NULL), without;
  assert_true(first.tuning.candidates > first.tuning.kernels);
  assert_int_equal(first.tuning.wrong + first.tuning.lost, 0);
  assert_int_equal(first.tuning.stopped, 0);
  assert_int_equal(again.tuning.candidates, 0);
  assert_int_equal(again.tuning.known, again.tuning.kernels);
  must_equal(&first, &again);
  name_of_device(device, sizeof device);
  setenv("KILN_WORKER", "/nowhere/kiln-worker", 1);
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(compile(&f, (kiln_compile_options){.tuned_for = device}, NULL, diag, &without),
                   KILN_OK);
  assert_int_equal(without.tuning.known, without.tuning.kernels);
  must_equal(&first, &without);
  free(without.bytes);
  assert_int_equal(
      compile(&f, (kiln_compile_options){.tuned_for = "Another"}, NULL, diag, &without),
      KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "got \"Another\""));
  assert_non_null(strstr(kiln_diag_message(diag, 0), device));
  kiln_diag_destroy(diag);
  free(first.bytes);
  free(again.bytes);
  end(&f);
}

// On a GPU a run overlaps 1.6 us of a launch, but nothing of a library's launch and the one after
// it.
static void a_library_must_win_what_a_run_hides_of_launches(void **state) {
  static const struct {
    const char *target;
    double own_us, us_of_library;
    bool is_library;
  } rows[] = {{"cuda:sm_90a", 15.2, 14.1, false}, {"cuda:sm_90a", 14.6, 11.2, false},
              {"cuda:sm_90a", 30.3, 20.7, true},  {"cuda:sm_90a", 100, 94, false},
              {"cuda:sm_90a", 100, 91, true},     {"cuda:sm_80", 14.6, 11.2, true},
              {"cuda:sm_80", 100, 96, false},     {"cuda:sm_80", 100, 94, true}};
  const kiln_library_candidate offer = {0};
  const kiln_tile_candidate own = {0}, library = {.by_library = &offer};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kiln_ctx cx;
    kiln_machine m;
    assert_int_equal(kiln_ctx_init(&cx, NULL), KILN_OK);
    assert_int_equal(kiln_gpu_machine_named(&cx, rows[i].target, &m), KILN_OK);
    kiln_tuning_candidate rivals[] = {
        {.candidate = &own, .result = {.us = rows[i].own_us}, .is_known = true},
        {.candidate = &library, .result = {.us = rows[i].us_of_library}, .is_known = true}};
    for (int k = 0; k < 2; k++) rivals[k].result.verdict = KILN_VERDICT_RIGHT;
    kiln_tuning_candidates r = {.n = 2, .at = rivals};
    assert_int_equal(kiln_tuning_candidates_best(&m, &r), rows[i].is_library);
    rivals[0].result.verdict = KILN_VERDICT_WRONG;
    assert_int_equal(kiln_tuning_candidates_best(&m, &r), 1);
    rivals[1].result.verdict = KILN_VERDICT_LOST;
    assert_int_equal(kiln_tuning_candidates_best(&m, &r), 0);
    kiln_ctx_deinit(&cx);
  }
}

static void candidates_that_crash_or_are_wrong_are_not_taken(void **state) {
  (void)state;
  if (!has_opencl()) skip();
  folder f = begin();
  make_shaky("crash:2,wrong:3");
  outcome first = tune(&f, NULL);
  assert_int_equal(first.tuning.lost, 1);
  assert_int_equal(first.tuning.wrong, 1);
  assert_int_equal(first.tuning.stopped, 0);
  make_shaky("");
  outcome again = tune(&f, NULL); // they are not tried again
  assert_int_equal(again.tuning.candidates, 0);
  must_equal(&first, &again);
  free(first.bytes);
  free(again.bytes);
  end(&f);
}

static void where_all_are_lost_the_first_stays(void **state) {
  (void)state;
  if (!has_opencl()) skip();
  folder f = begin();
  outcome plain, tuned;
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(compile(&f, (kiln_compile_options){0}, NULL, diag, &plain), KILN_OK);
  make_shaky("crash");
  tuned = tune(&f, NULL);
  assert_int_equal(tuned.tuning.lost, tuned.tuning.candidates);
  assert_true(tuned.tuning.lost > 0);
  assert_int_equal(tuned.tuning.changed, 0);
  must_equal(&plain, &tuned);
  kiln_diag_destroy(diag);
  free(plain.bytes);
  free(tuned.bytes);
  end(&f);
}

static void an_interrupt_keeps_what_was_measured(void **state) {
  (void)state;
  if (!has_opencl()) skip();
  folder f = begin();
  stopping s = {.after = 2};
  outcome first = tune(&f, &s), rest, all;
  assert_int_equal(first.tuning.stopped, 1);
  assert_true(first.tuning.candidates > 0 && first.tuning.candidates <= 3);
  rest = tune(&f, NULL);
  assert_int_equal(rest.tuning.stopped, 0);
  all = tune(&f, NULL);
  assert_int_equal(all.tuning.candidates, 0);
  kiln_diag *diag = kiln_diag_create();
  outcome timed;
  assert_int_equal(compile(&f, (kiln_compile_options){.tune = 2 * TUNED, .tune_seconds = 1e-6},
                           NULL, diag, &timed),
                   KILN_OK);
  assert_int_equal(timed.tuning.candidates, 0); // the time was over before one
  kiln_diag_destroy(diag);
  free(first.bytes);
  free(rest.bytes);
  free(all.bytes);
  free(timed.bytes);
  end(&f);
}

static void an_interrupt_on_a_cpu_keeps_what_was_measured(void **state) {
  folder f = begin();
  stopping s = {.after = 1};
  (void)state;
  target = "cpu";
  outcome none = tune(&f, &s), some, rest, again; // while the first variant was compiled
  assert_int_equal(none.tuning.stopped, 1);
  assert_int_equal(none.tuning.candidates, 0);
  s = (stopping){.after = 2};
  some = tune(&f, &s);
  assert_int_equal(some.tuning.stopped, 1);
  assert_true(some.tuning.candidates > 0);
  rest = tune(&f, NULL);
  assert_int_equal(rest.tuning.stopped, 0);
  assert_true(rest.tuning.candidates > 0);
  again = tune(&f, NULL);
  assert_int_equal(again.tuning.candidates, 0);
  must_equal(&rest, &again);
  target = "opencl";
  free(none.bytes);
  free(some.bytes);
  free(rest.bytes);
  free(again.bytes);
  end(&f);
}

static void another_driver_is_measured_anew(void **state) {
  (void)state;
  if (!has_opencl()) skip();
  folder f = begin();
  make_shaky("driver=1.0");
  outcome first = tune(&f, NULL);
  make_shaky("driver=1.1");
  outcome other = tune(&f, NULL), again = tune(&f, NULL);
  assert_int_equal(other.tuning.candidates, first.tuning.candidates);
  assert_int_equal(again.tuning.candidates, 0);
  free(first.bytes);
  free(other.bytes);
  free(again.bytes);
  end(&f);
}

static void a_database_that_is_none_is_an_error(void **state) {
  (void)state;
  folder f = begin();
  char path[160];
  outcome out;
  kiln_diag *diag = kiln_diag_create();
  snprintf(path, sizeof path, "%s/tuned", f.path);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  for (int i = 0; i < 400; i++) fputs("this is text, not a database\n", file);
  fclose(file);
  const kiln_compile_options o = {.tuned_for = "Card", .tuned = path};
  assert_int_equal(compile(&f, o, NULL, diag, &out), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "must be a database of version 1"));
  kiln_diag_clear(diag);
  assert_int_equal(
      compile(&f, (kiln_compile_options){.tune = 2, .tuned_for = "Card"}, NULL, diag, &out),
      KILN_BAD_INPUT);
  kiln_diag_destroy(diag);
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_library_must_win_what_a_run_hides_of_launches),

      cmocka_unit_test(what_was_measured_is_known_with_and_without_the_device),
      cmocka_unit_test(candidates_that_crash_or_are_wrong_are_not_taken),
      cmocka_unit_test(where_all_are_lost_the_first_stays),
      cmocka_unit_test(an_interrupt_keeps_what_was_measured),
      cmocka_unit_test(an_interrupt_on_a_cpu_keeps_what_was_measured),
      cmocka_unit_test(another_driver_is_measured_anew),
      cmocka_unit_test(a_database_that_is_none_is_an_error)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// The caller's locale, rounding mode, traps, umask, signals and streams: results do not depend on
// them, and they are restored.
#include "support/numbers.h"
#include "unit/driver/models.h"
#include "unit/locale.h"

#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <xmmintrin.h>

// --- environments ---

static locale_t of_thread;

static void set_nothing(void) {}
static void set_locale(void) { assert_non_null(setlocale(LC_ALL, COMMA_LOCALE)); }
static void set_thread_locale(void) {
  of_thread = newlocale(LC_ALL_MASK, COMMA_LOCALE, (locale_t)0);
  assert_true(of_thread != (locale_t)0);
  uselocale(of_thread);
}
static void set_upward(void) { fesetround(FE_UPWARD); }
static void set_downward(void) { fesetround(FE_DOWNWARD); }
static void set_to_zero(void) { fesetround(FE_TOWARDZERO); }
static void set_flushing(void) { _mm_setcsr(_mm_getcsr() | 0x8040); } // FTZ, DAZ
static void set_traps(void) { feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW); }
static void set_all(void) {
  set_locale();
  set_thread_locale();
  set_upward();
  set_flushing();
}

static const struct {
  const char *name;
  void (*set)(void);
} callers[] = {{"nothing", set_nothing},
               {"a locale", set_locale},
               {"a thread's locale", set_thread_locale},
               {"upward", set_upward},
               {"downward", set_downward},
               {"to zero", set_to_zero},
               {"flushing", set_flushing},
               {"traps", set_traps},
               {"all", set_all}};

static void unset(void) {
  uselocale(LC_GLOBAL_LOCALE);
  if (of_thread) freelocale(of_thread);
  of_thread = (locale_t)0;
  setlocale(LC_ALL, "C");
  fesetenv(FE_DFL_ENV);
}

// What is the caller's, as it is now.
typedef struct setting {
  char half[8];
  locale_t locale;
  int rounding, traps, flags[3];
  unsigned vectors; // their control bits
  mode_t mask, modes[3];
  uint64_t blocked, numbers[3], devices[3];
  void (*handlers[32])(int);
} setting;

static setting look(void) {
  setting s = {.locale = uselocale((locale_t)0),
               .rounding = fegetround(),
               .traps = fegetexcept(),
               .vectors = _mm_getcsr() & ~0x3fu};
  sigset_t blocked;
  shown_half(s.half);
  umask(s.mask = umask(0));
  pthread_sigmask(SIG_SETMASK, NULL, &blocked);
  for (int i = 1; i < 32; i++) {
    struct sigaction action;
    sigaction(i, NULL, &action);
    s.handlers[i] = action.sa_handler;
    s.blocked |= (uint64_t)sigismember(&blocked, i) << i;
  }
  for (int i = 0; i < 3; i++) {
    struct stat stream = {0};
    fstat(i, &stream);
    s.flags[i] = fcntl(i, F_GETFL);
    s.modes[i] = stream.st_mode;
    s.numbers[i] = stream.st_ino;
    s.devices[i] = stream.st_dev;
  }
  return s;
}

static void must_be_as(const setting *before) {
  const setting now = look();
  assert_string_equal(before->half, now.half);
  assert_true(before->locale == now.locale);
  assert_int_equal(before->rounding, now.rounding);
  assert_int_equal(before->traps, now.traps);
  assert_int_equal(before->vectors, now.vectors);
  assert_int_equal(before->mask, now.mask);
  assert_int_equal(before->blocked, now.blocked);
  for (int i = 1; i < 32; i++) assert_true(before->handlers[i] == now.handlers[i]);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(before->flags[i], now.flags[i]);
    assert_int_equal(before->modes[i], now.modes[i]);
    assert_int_equal(before->numbers[i], now.numbers[i]);
    assert_int_equal(before->devices[i], now.devices[i]);
  }
}

// --- results ---

// y of functions whose constants stand in Kiln's own texts, and of a constant that is computed when
// compiling
static void save_functions(const char *path) {
  static const char *const ops[] = {"Erf",  "HardSwish", "Elu",      "Softplus", "Sigmoid",
                                    "Selu", "LeakyRelu", "Softsign", "Tanh",     "HardSigmoid"};
  fixture t;
  fixture_init(&t);
  kiln_text g = message(&t);
  char from[16] = "x", to[16];
  put_text(&g, 2, "functions");
  put_message(&g, 1, node(&t, "Exp", "grown", "w", "w0"));
  put_message(&g, 1, node(&t, "Sqrt", "root", "w0", "w1"));
  for (size_t i = 0; i < KILN_LEN(ops); i++) {
    char inputs[40];
    snprintf(to, sizeof to, "h%zu", i);
    put_message(&g, 1, node(&t, ops[i], to, from, to));
    snprintf(inputs, sizeof inputs, "%s,w1", to);
    snprintf(from, sizeof from, "m%zu", i);
    put_message(&g, 1, node(&t, "Mul", from, inputs, from));
  }
  put_message(&g, 1, node(&t, "MatMul", "product", "m9,v", "p"));
  put_message(&g, 1, node(&t, "Softmax", "soft", "p", "y"));
  put_weights(&t, &g, "w", 1, (int64_t[]){IN});
  put_weights(&t, &g, "v", 2, (int64_t[]){IN, HIDDEN});
  put_message(&g, 11, value_info(&t, "x", ONNX_F32, "32,48"));
  put_message(&g, 12, value_info(&t, "y", ONNX_F32, "32,64"));
  save(path, model(&t, 8, g));
  fixture_deinit(&t);
}

static void save_definition(const char *path) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs("def waves(float(N) X) -> (Y) {\n"
        "  Y(n) = exp(X(n) * 0.125) * 1.7 + 2.5e-3 + tanh(X(n)) / 3.1\n}\n",
        f);
  fclose(f);
}

typedef struct made {
  kiln_text texts, module, outputs; // in |arena|
  kiln_arena arena;
} made;

static void add_dump(void *user, const char *level, const char *text) {
  made *m = user;
  kiln_text_printf(&m->texts, "--- %s\n%s\n", level, text);
}

static void add_file(kiln_text *out, const char *path) {
  char bytes[4096];
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, f)) > 0;) kiln_text_add_bytes(out, bytes, n);
  fclose(f);
}

static void add_outputs(kiln_text *out, const call *c) {
  for (size_t i = 0; i < c->n_out; i++)
    kiln_text_add_bytes(out, c->outputs[i]->data, kiln_tensor_bytes(c->outputs[i]));
}

static void run_on(kiln_module *module, int threads, kiln_text *out) {
  const kiln_session_options o = {.struct_size = sizeof o, .threads = threads};
  kiln_session *s = NULL;
  call c = call_of_module(module);
  for (int64_t i = 0; i < 64; i++) // elements as a caller sets them, some of them tiny
    kiln_tensor_set_element(&c.in[0]->dl_tensor, i, (double)(i - 30) * (i % 5 ? 0.1 : 1e-39));
  assert_int_equal(kiln_session_create(module, &o, NULL, &s), KILN_OK);
  assert_int_equal(kiln_session_run(s, c.n_in, c.inputs, c.n_out, c.outputs, NULL), KILN_OK);
  add_outputs(out, &c);
  kiln_session_destroy(s);
  call_destroy(&c);
}

static void compile(const folder *f, const char *path, const kiln_dim_value *dims, size_t n_dims,
                    made *out) {
  const kiln_compile_options o = {.struct_size = sizeof o,
                                  .dims = dims,
                                  .n_dims = n_dims,
                                  .threads = 2,
                                  .dump = "prim,loop,schedule,c,llvm,asm",
                                  .on_dump = add_dump,
                                  .dump_user = out};
  kiln_model *m = NULL;
  kiln_module *module = NULL;
  kiln_diag *diag = kiln_diag_create();
  kiln_status st = kiln_model_load(path, &o, diag, &m);
  if (st == KILN_OK) st = kiln_model_compile_to(m, f->module, diag);
  if (st == KILN_OK) st = kiln_module_load(f->module, diag, &module);
  if (st != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
  kiln_text_add(&out->texts, kiln_model_report(m, 1));
  add_file(&out->module, f->module);
  for (int threads = 1; threads <= 2; threads++) run_on(module, threads, &out->outputs);
  call c = call_of_model(m);
  assert_int_equal(kiln_model_reference(m, c.n_in, c.inputs, c.n_out, c.outputs, diag), KILN_OK);
  add_outputs(&out->outputs, &c);
  call_destroy(&c);
  kiln_module_release(module);
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
}

static void make(const folder *f, const char *definition, made *out) {
  const kiln_dim_value n = {"N", 1000};
  *out = (made){0};
  kiln_text_init(&out->texts, &out->arena);
  kiln_text_init(&out->module, &out->arena);
  kiln_text_init(&out->outputs, &out->arena);
  compile(f, f->model, NULL, 0, out);
  compile(f, definition, &n, 1, out);
}

static void must_be_same(const char *caller, const char *what, const kiln_text *a,
                         const kiln_text *b) {
  int at = 0;
  while (at < a->n && at < b->n && a->data[at] == b->data[at]) at++;
  if (a->n != b->n || at < a->n)
    fail_msg("%s: %s differs at byte %d: %.40s, %.40s", caller, what, at, a->data + at,
             b->data + at);
}

static void nothing_depends_on_what_the_caller_has_set_which_is_left_alone(void **state) {
  folder f = folder_make();
  char definition[96];
  made want;
  (void)state;
  snprintf(definition, sizeof definition, "%s/waves.tc", f.path);
  save_functions(f.model);
  save_definition(definition);
  make_comma_locale(f.path);
  make(&f, definition, &want);
  assert_true(want.outputs.n > 0 && want.texts.n > 1000);
  for (size_t i = 0; i < KILN_LEN(callers); i++) {
    made got;
    callers[i].set();
    const setting before = look();
    make(&f, definition, &got);
    must_be_as(&before);
    unset();
    must_be_same(callers[i].name, "text", &want.texts, &got.texts);
    must_be_same(callers[i].name, "module", &want.module, &got.module);
    must_be_same(callers[i].name, "output", &want.outputs, &got.outputs);
    kiln_arena_deinit(&got.arena);
  }
  kiln_arena_deinit(&want.arena);
  folder_remove(&f);
}

// --- a call that fails ---

static void an_error_leaves_them_alone_as_well(void **state) {
  (void)state;
  folder f = folder_make();
  make_comma_locale(f.path);
  for (size_t i = 0; i < KILN_LEN(callers); i++) {
    kiln_model *m = NULL;
    callers[i].set();
    const setting before = look();
    assert_int_equal(kiln_model_load("/nowhere/m.onnx", NULL, NULL, &m), KILN_BAD_INPUT);
    must_be_as(&before);
    unset();
  }
  folder_remove(&f);
}

// --- messages, and numbers as such ---

static void numbers_are_read_and_printed_with_a_point(void **state) {
  static const double numbers[] = {0.1, 1.5, -2.5e-3, 1e300, 4.9e-324, 0x1.fffffffffffffp1023, 3};
  (void)state;
  folder f = folder_make();
  make_comma_locale(f.path);
  for (size_t i = 0; i < KILN_LEN(callers); i++) {
    char text[64], *end;
    callers[i].set();
    kiln_diag *diag = kiln_diag_create();
    (void)kiln_diag_fail(diag, KILN_BAD_INPUT, "place", "must be %g", 0.5);
    assert_string_equal(kiln_diag_message(diag, 0), "place: error: must be 0.5");
    kiln_diag_destroy(diag);
    for (size_t k = 0; k < KILN_LEN(numbers); k++) {
      kiln_number_format(text, sizeof text, "%.17g;", numbers[k]);
      assert_null(strchr(text, ','));
      const double read = kiln_number_parse(text, &end);
      assert_memory_equal(&read, &numbers[k], sizeof read); // a comparison would flush
      assert_string_equal(end, ";");
    }
    assert_true(kiln_number_parse_f32("0.1") == 0.1f);
    unset();
  }
  folder_remove(&f);
}

// --- a signal runs on the caller's threads ---

static pthread_t main_thread;
static volatile sig_atomic_t n_here, n_elsewhere;

static void on_signal(int number) {
  (void)number;
  if (pthread_equal(pthread_self(), main_thread)) n_here++;
  else n_elsewhere++;
}

static void workers_take_no_signals(void **state) {
  const struct sigaction action = {.sa_handler = on_signal};
  struct sigaction before;
  sigset_t one, old;
  (void)state;
  folder f = folder_make();
  made m;
  save_functions(f.model);
  main_thread = pthread_self();
  m = (made){0};
  kiln_text_init(&m.texts, &m.arena);
  kiln_text_init(&m.module, &m.arena);
  kiln_text_init(&m.outputs, &m.arena);
  compile(&f, f.model, NULL, 0, &m);
  kiln_module *module = NULL;
  kiln_session *s = NULL;
  const kiln_session_options o = {.struct_size = sizeof o, .threads = 3};
  assert_int_equal(kiln_module_load(f.module, NULL, &module), KILN_OK);
  assert_int_equal(kiln_session_create(module, &o, NULL, &s), KILN_OK);
  sigaction(SIGUSR1, &action, &before);
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &one, &old); // only a worker could take it now
  kill(getpid(), SIGUSR1);
  call c = call_of_module(module);
  for (int i = 0; i < 50; i++)
    assert_int_equal(kiln_session_run(s, c.n_in, c.inputs, c.n_out, c.outputs, NULL), KILN_OK);
  assert_int_equal(n_here + n_elsewhere, 0);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  assert_int_equal(n_here, 1);
  assert_int_equal(n_elsewhere, 0);
  sigaction(SIGUSR1, &before, NULL);
  call_destroy(&c);
  kiln_session_destroy(s);
  kiln_module_release(module);
  kiln_arena_deinit(&m.arena);
  folder_remove(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_depends_on_what_the_caller_has_set_which_is_left_alone),
      cmocka_unit_test(an_error_leaves_them_alone_as_well),
      cmocka_unit_test(numbers_are_read_and_printed_with_a_point),
      cmocka_unit_test(workers_take_no_signals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

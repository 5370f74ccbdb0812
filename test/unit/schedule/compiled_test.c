// The random cases of property_test.c as compiled code: the CPU's, in this process, and emitted C
// by the C compiler. Results equal the reference interpreter's, also with vector lanes and with
// several threads on a parallel loop.
//
// KILN_TEST_SEED is the first case, KILN_TEST_CASES their number.
#include "unit/c/library.h"
#include "unit/cpu/rig.h"
#include "unit/schedule/cases.h"

#include "target/c/c.h"
#include "target/instr.h"

enum { JIT_CASES = 250, C_CASES = 200, BATCH = 50 };

static uint64_t first_case(void) {
  const char *seed = getenv("KILN_TEST_SEED");
  return seed ? strtoull(seed, NULL, 10) : 1;
}

static int n_cases(int usual) {
  const char *cases = getenv("KILN_TEST_CASES");
  return cases ? atoi(cases) : usual;
}

// A case after its steps.
typedef struct scheduled {
  test_case of;
  test_kernel k;
  kiln_schedule s;
  kiln_instr instr;
  kiln_loops *loops; // instructions are expanded
} scheduled;

static void schedule(scheduled *x, uint64_t number) {
  walker w = begin_case(number, &x->of, &x->k, &x->s, &x->instr);
  for (int i = 0; i < STEPS; i++) take_step(&w, &x->of);
  x->loops = kiln_instrs_expand(&x->k.cx, x->s.loops);
}

// Runs compiled |loops|, the case's in another context.
static void check(scheduled *x, const char *target, const kiln_loops *loops, nest_find find,
                  void *from) {
  kernel_args a = kernel_args_make(&x->k, x->loops);
  nests_run(loops, find, from, (char *const *)a.data);
  const char *wrong = kernel_args_wrong(&x->k, &a);
  kernel_args_free(&a);
  if (!wrong) return;
  fprintf(stderr, "%s\n", kernel_text(&x->k, x->loops)); // longer than a message of cmocka may be
  fail_msg("case %" PRIu64 ", %s: %s\nprogram: %s\nscript:\n%s", x->of.number, target, wrong,
           x->of.program, kiln_schedule_script(&x->s));
}

static nest_fn find_in_rig(void *from, int nest) { return rig_nest(from, nest); }

static void check_on_cpu(scheduled *x) {
  rig r;
  rig_init(&r, NULL);
  rig_compile(&r, kernel_text(&x->k, x->loops), true);
  check(x, "cpu", r.loops, find_in_rig, &r);
  rig_deinit(&r);
}

static void code_of_the_cpu_computes_the_meaning(void **state) {
  (void)state;
  const int n = n_cases(JIT_CASES);
  for (int i = 0; i < n; i++) {
    scheduled x;
    schedule(&x, first_case() + (uint64_t)i);
    check_on_cpu(&x);
    kernel_close(&x.k);
  }
}

// --- C ---

static void check_in_c(scheduled *cases, int n) {
  kiln_loops *kernels[BATCH];
  const char *symbols[BATCH];
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  kiln_text text;
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  for (int i = 0; i < n; i++) {
    const char *loops = kernel_text(&cases[i].k, cases[i].loops);
    if (kiln_loops_parse(&cx, loops, &kernels[i]) != KILN_OK)
      fail_msg("%s\n%s", kiln_diag_message(diag, 0), loops);
    symbols[i] = kiln_arena_printf(&cx.perm, "k%d", i);
  }
  kiln_text_init(&text, &cx.perm);
  kiln_c_emit(&cx, n, kernels, symbols, &text);
  library_kernel in = {.handle = library_load(&text)};
  for (in.kernel = 0; in.kernel < n; in.kernel++)
    check(&cases[in.kernel], "c", kernels[in.kernel], library_nest, &in);
  dlclose(in.handle);
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
}

static void emitted_c_computes_the_meaning(void **state) {
  (void)state;
  static scheduled cases[BATCH];
  const int n = n_cases(C_CASES);
  for (int from = 0; from < n; from += BATCH) {
    const int here = n - from < BATCH ? n - from : BATCH;
    for (int i = 0; i < here; i++) schedule(&cases[i], first_case() + (uint64_t)(from + i));
    check_in_c(cases, here);
    for (int i = 0; i < here; i++) kernel_close(&cases[i].k);
  }
}

// --- a window that slides and folds ---

// As examples/halide/blur.window.schedule: strips of rows, of which the first pass keeps four.
static void a_blur_with_a_folded_window(void **state) {
  (void)state;
  static const struct { int h, w; } sizes[] = {{16, 32}, {13, 37}, {9, 64}, {41, 71}};
  for (size_t i = 0; i < KILN_LEN(sizes); i++) {
    const int h = sizes[i].h, w = sizes[i].w;
    scheduled x = {.of = {.number = i, .seed = i + 1}};
    snprintf(x.of.program, sizeof x.of.program,
             "blur { in u16 In(%d, %d) temp u16 Bx(%d, %d) out u16 Out(%d, %d) "
             "Bx(y:%d, x:%d) = (In(y, x) + In(y, x + 1) + In(y, x + 2)) / 3u16 "
             "Out(y:%d, x:%d) = (Bx(y, x) + Bx(y + 1, x) + Bx(y + 2, x)) / 3u16 }",
             h + 2, w + 2, h + 2, w, h, w, h + 2, w, h, w);
    open_case(&x.of, &x.k, &x.s, &x.instr);
    if (kiln_schedule_replay(&x.s, "split Out.y 8 shift y yi\nparallel y\n"
                                   "compute_at Bx yi local\nstore_at Bx y fold\n"
                                   "split Out.x 32 shift xo xv\nvectorize xv\n"
                                   "split Bx.x 32 shift Bx.xo Bx.xv\nvectorize Bx.xv\n") != KILN_OK)
      fail_msg("%s", kernel_message(&x.k));
    x.loops = x.s.loops;
    kernel_check(&x.k, x.loops, kiln_schedule_script(&x.s));
    if (!strstr(kernel_text(&x.k, x.loops), "local u16 Bx[4, "))
      fail_msg("must keep four rows, got\n%s", kernel_text(&x.k, x.loops));
    check_on_cpu(&x);
    check_in_c(&x, 1);
    kernel_close(&x.k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(code_of_the_cpu_computes_the_meaning),
                                     cmocka_unit_test(emitted_c_computes_the_meaning),
                                     cmocka_unit_test(a_blur_with_a_folded_window)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

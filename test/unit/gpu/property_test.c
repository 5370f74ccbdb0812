// Random programs times random schedules with many binds, as GPU code: what the emitter takes
// computes on an OpenCL device what the simulator computes, and that is what the reference
// interpreter says; so do its device loops, whose barriers suffice. What it refuses is counted.
#include "verify/loops.h"

#include "unit/schedule/cases.h"

#include "unit/gpu/device.h"

enum { CASES = 60, SHORTEST = 40, BINDS = 12 };

typedef struct runner {
  opencl device;
  bool has_device;
  kiln_machine machine, cuda;
  int n_run, n_refused, n_unbound, n_threads, n_waits;
} runner;

static void try_line(walker *w, test_case *c, const char *format, ...) KILN_PRINTF(3, 4);
static void try_line(walker *w, test_case *c, const char *format, ...) {
  va_list args;
  va_start(args, format);
  kiln_text_init(&w->line, &w->k->cx.perm);
  kiln_text_add(&w->line, kiln_arena_vprintf(&w->k->cx.perm, format, args));
  va_end(args);
  if (c->n_lines + 1 < MAX_LINES) (void)run_lines(w, c);
  w->n_loops = 0;
  list_loops(w, w->s->loops->body);
}

static const char *last_loop(const walker *w) {
  const char *name = NULL;
  for (const kiln_loop *l = w->s->loops->body; l; l = l->next)
    if (l->kind == KILN_LOOP_FOR) name = text_of(w, l->var);
  return name;
}

// What the last nest reads is computed in its blocks, in shared memory; threads share the loops
// inside.
static void share_and_bind(walker *w, test_case *c) {
  static const char *const axes[] = {"thread.x", "thread.x", "thread.y", "block.y"};
  const kiln_program *p = w->k->prog;
  const char *block = last_loop(w);
  if (!block) return;
  if (pick(w, 2)) try_line(w, c, "stage %s %s shared %s\n", buffer_name(w), block, new_name(w));
  for (int i = p->stmts.n - 2; i >= 0; i--)
    try_line(w, c, "compute_at %s %s %s\n",
             text_of(w, p->tensors.data[p->stmts.data[i]->out]->name), block,
             pick(w, 8) ? "shared" : "local");
  try_line(w, c, "bind %s block.x\n", block);
  for (int i = 0; i < BINDS && w->n_loops; i++)
    try_line(w, c, "bind %s %s\n", some_loop(w), axes[pick(w, (int)KILN_LEN(axes))]);
}

static bool refuses(const char *message) {
  static const char *const known[] = {
      "must be distributed",
      "blocks must not use what other blocks",
      "threads would have to wait for each other",
      "around thread loops must not depend on memory of one thread",
  };
  for (size_t i = 0; i < KILN_LEN(known); i++)
    if (strstr(message, known[i])) return true;
  return false;
}

static void run_device(runner *r, test_kernel *k, const char *source, int n,
                       const kiln_gpu_launch *launches, const kiln_loops *l, const char *script) {
  size_t bytes[2 * KERNEL_MAX_TENSORS];
  kernel_args a = kernel_args_make(k, l);
  for (int i = 0; i < a.n; i++) bytes[i] = kernel_bytes(a.of[i]) + KERNEL_SLACK;
  opencl_run(&r->device, source, "k", n, launches, a.n, a.data, bytes);
  const char *wrong = kernel_args_wrong(k, &a);
  kernel_args_free(&a);
  if (!wrong) return;
  fprintf(stderr, "%s\n%s\n", kernel_text(k, l), source);
  fail_msg("%s\nscript:\n%s", wrong, script);
}

// Runs the device loops of all nests.
static void run_device_loops(runner *r, test_kernel *k, kiln_loops *l, const char *script) {
  kernel_args a = kernel_args_make(k, l);
  if (kiln_loops_simulate(&k->cx, &r->cuda, l, a.data, 0, NULL, NULL) != KILN_OK)
    fail_msg("%s\n%s\nscript:\n%s", kernel_message(k), kernel_text(k, l), script);
  const char *wrong = kernel_args_wrong(k, &a);
  kernel_args_free(&a);
  if (wrong) fail_msg("device loops: %s\nscript:\n%s", wrong, script);
}

// Otherwise one thread does it all: as on a CPU, where test/unit/schedule runs it.
static bool is_bound(const kiln_gpu_launch *l) {
  int64_t n = 1;
  for (int k = 0; k < 3; k++) n *= l->grid[k] * l->block[k];
  return n > 1;
}

static void run_case(runner *r, uint64_t number) {
  test_case c;
  test_kernel k;
  kiln_schedule s;
  kiln_instr instr;
  walker w = begin_case(number, &c, &k, &s, &instr);
  for (int i = 0; i < STEPS / 4; i++) (void)take_step(&w, &c);
  share_and_bind(&w, &c);
  const char *wrong = kernel_try(&k, s.loops);
  if (wrong) fail_msg("case %" PRIu64 ": %s\n%s", number, wrong, kiln_schedule_script(&s));
  kiln_text source;
  kiln_text_init(&source, &k.cx.perm);
  kiln_gpu_launch *launches = NULL;
  int n = 0;
  if (kiln_gpu_emit(&k.cx, &r->machine, s.loops, "k", &source, &n, &launches) != KILN_OK) {
    if (!refuses(kernel_message(&k))) fail_msg("case %" PRIu64 ": %s", number, kernel_message(&k));
    r->n_refused++;
  } else {
    bool has_bound = false;
    for (int i = 0; i < n; i++) has_bound |= is_bound(&launches[i]);
    r->n_unbound += !has_bound;
    for (int i = 0; i < n; i++)
      r->n_threads += launches[i].block[0] * launches[i].block[1] * launches[i].block[2] > 1;
    r->n_waits += strstr(source.data, "barrier(") != NULL;
    r->n_run += has_bound;
    if (has_bound) run_device_loops(r, &k, s.loops, kiln_schedule_script(&s));
    if (r->has_device && has_bound)
      run_device(r, &k, source.data, n, launches, s.loops, kiln_schedule_script(&s));
  }
  kernel_close(&k);
}

static void accepted_schedules_compute_the_same_on_a_device(void **state) {
  (void)state;
  const char *seed = getenv("KILN_TEST_SEED"), *cases = getenv("KILN_TEST_CASES");
  const int n = cases ? atoi(cases) : CASES;
  const uint64_t from = seed ? strtoull(seed, NULL, 10) : 1;
  runner r = {0};
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  assert_int_equal(kiln_gpu_machine_named(&cx, "opencl", &r.machine), KILN_OK);
  assert_int_equal(kiln_gpu_machine_named(&cx, "cuda:sm_80", &r.cuda), KILN_OK);
  r.has_device = opencl_open(&r.device);
  if (!r.has_device) print_message("no OpenCL device: nothing is run\n");
  for (int i = 0; i < n; i++) run_case(&r, from + (uint64_t)i);
  opencl_close(&r.device);
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
  print_message(
      "%d run, %d refused, %d not bound, %d nests with threads, %d kernels with barriers\n",
      r.n_run, r.n_refused, r.n_unbound, r.n_threads, r.n_waits);
  if (n >= SHORTEST) assert_true(r.n_run > n / 2 && r.n_threads > n / 4 && r.n_waits > 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(accepted_schedules_compute_the_same_on_a_device)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

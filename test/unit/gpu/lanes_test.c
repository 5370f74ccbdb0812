// Reductions across lanes: each instruction gives what its meaning says, in the simulator, as
// device loops, and on an OpenCL device, which has no shuffles.
#include "target/sim/device.h"
#include "target/gpu/instr.h"
#include "target/sim/sim.h"
#include "schedule/schedule.h"

#include "unit/loops.h"
#include "unit/gpu/device.h"
#include "unit/fixture.h"

#include <math.h>

enum { WARPS = 2, OWN = 3 }; // elements of a thread

// Whether all threads' elements are reduced by one instruction each; |n| lanes |apart|.
typedef struct lanes {
  const char *combine; // "+="
  double (*of)(double a, double b);
  int x, n, apart; // threads along x
} lanes;

static double sum_of(double a, double b) { return a + b; }
static double product_of(double a, double b) { return a * b; }
static double lesser_of(double a, double b) { return a < b ? a : b; }
static double larger_of(double a, double b) { return a > b ? a : b; }

// Y(warp, lane, i) = D with the terms X(warp, its lanes, i) combined into it.
static const char *kernel_of(kiln_ctx *cx, const lanes *r) {
  const int groups = r->x / (r->n * r->apart);
  const char *mine = kiln_arena_printf(&cx->perm, "t/%d, t/%d%%%d, t%%%d", r->n * r->apart,
                                       r->apart, r->n, r->apart);
  return kiln_arena_printf(
      &cx->perm,
      "kernel k { param f32 X[%d, %d, %d]:(%d, %d, 1) param f32 Y[%d, %d, %d]:(%d, %d, 1) "
      "local f32 A[%d, %d, %d, %d, %d]:(%d, %d, %d, %d, 1) local f32 D[%d, %d, %d, %d, "
      "%d]:(%d, %d, %d, %d, 1) for b:1 block.x { alloc A { alloc D { "
      "for w:%d thread.y { for t:%d thread.x { for e:%d { A[w, %s, e] = X[w, t, e] D[w, %s, e] = "
      "1f32 } } } "
      "for v:%d { for e1:%d { for i:%d { for j:%d { for l:%d { for k:%d { D[v, i, j, l, e1] %s "
      "A[v, i, k, l, e1] } } } } } } "
      "for w2:%d thread.y { for t2:%d thread.x { for e2:%d { Y[w2, t2, e2] = D[w2, t2/%d, "
      "t2/%d%%%d, t2%%%d, e2] } } } } } } }",
      WARPS, r->x, OWN, r->x * OWN, OWN, WARPS, r->x, OWN, r->x * OWN, OWN, WARPS, groups, r->n,
      r->apart, OWN, r->x * OWN, r->n * r->apart * OWN, r->apart * OWN, OWN, WARPS, groups, r->n,
      r->apart, OWN, r->x * OWN, r->n * r->apart * OWN, r->apart * OWN, OWN, WARPS, r->x, OWN, mine,
      mine, WARPS, OWN, groups, r->n, r->apart, r->n, r->combine, WARPS, r->x, OWN, r->n * r->apart,
      r->apart, r->n, r->apart);
}

static void check(const lanes *r, const float *x, const float *y, const char *how,
                  const char *name) {
  for (int w = 0; w < WARPS; w++)
    for (int t = 0; t < r->x; t++)
      for (int e = 0; e < OWN; e++) {
        double want = 1;
        const int first = t / (r->n * r->apart) * (r->n * r->apart) + t % r->apart;
        for (int k = 0; k < r->n; k++)
          want = r->of(want, x[(w * r->x + first + k * r->apart) * OWN + e]);
        const double got = y[(w * r->x + t) * OWN + e];
        if (fabs(got - want) > 1e-5 * fabs(want))
          fail_msg("%s, %s: lane %d has %g, must have %g", name, how, t, got, want);
      }
}

typedef struct machines {
  kiln_machine cuda, opencl_c;
  opencl device;
  bool has_device;
} machines;

static void run_everywhere(fixture *f, machines *m, const lanes *r, kiln_loops *l,
                           const char *name) {
  enum { MOST = WARPS * 128 * OWN };
  float x[MOST], y[MOST];
  void *args[] = {x, y};
  const size_t bytes[] = {sizeof x, sizeof y};
  for (int i = 0; i < MOST; i++) x[i] = 1 + (float)(i * 7 % 11 - 5) / 16;
  if (kiln_sim_run(&f->cx, l, args) != KILN_OK)
    fail_msg("%s: %s\n%s", name, kiln_diag_message(f->diag, 0), loops_text(&f->cx, l));
  check(r, x, y, "simulated", name);
  kiln_gpu_device d;
  if (kiln_gpu_lower(&f->cx, &m->cuda, l, 0, &d) != KILN_OK)
    fail_msg("%s: %s", name, kiln_diag_message(f->diag, 0));
  kiln_sim_launch launch = {.cluster = d.cluster, .warp = 32, .offsets = d.offsets};
  memcpy(launch.grid, d.grid, sizeof launch.grid);
  memcpy(launch.block, d.block, sizeof launch.block);
  memset(y, 0, sizeof y);
  if (kiln_sim_run_device(&f->cx, d.loops, &launch, args, NULL) != KILN_OK)
    fail_msg("%s: %s\n%s", name, kiln_diag_message(f->diag, 0), loops_text(&f->cx, d.loops));
  check(r, x, y, "as device loops", name);
  kiln_text source;
  kiln_gpu_launch *launches = NULL;
  int n = 0;
  kiln_text_init(&source, &f->cx.perm);
  if (kiln_gpu_emit(&f->cx, &m->opencl_c, l, "k", &source, &n, &launches) != KILN_OK)
    fail_msg("%s: %s\n%s", name, kiln_diag_message(f->diag, 0),
             loops_text(&f->cx, kiln_gpu_spell_lanes(&f->cx, l)));
  if (!m->has_device) return;
  memset(y, 0, sizeof y);
  opencl_run(&m->device, source.data, "k", n, launches, 2, args, bytes);
  check(r, x, y, "on an OpenCL device", name);
}

// The loops with the reduction by instruction |name|, in threads.
static kiln_loops *scheduled(fixture *f, const machines *m, const lanes *r, const char *name) {
  kiln_schedule s = {.cx = &f->cx, .prog = kiln_program_make(&f->cx, "k")};
  s.loops = loops_parse(&f->cx, kernel_of(&f->cx, r));
  s.instrs = kiln_gpu_instrs(&f->cx, &m->cuda, &s.n_instrs);
  kiln_text_init(&s.script, &f->cx.perm);
  const char *script =
      kiln_arena_printf(&f->cx.perm, "unroll e1\ntidy\ntensorize %s %s\nbind v thread.y\n",
                        r->x > r->n * r->apart ? "i" : "j", name);
  if (kiln_schedule_replay(&s, script) != KILN_OK)
    fail_msg("%s: %s", name, kiln_diag_message(f->diag, 0));
  return s.loops;
}

static void open_machines(fixture *f, machines *m) {
  assert_int_equal(kiln_gpu_machine_named(&f->cx, "cuda:sm_80", &m->cuda), KILN_OK);
  assert_int_equal(kiln_gpu_machine_named(&f->cx, "opencl", &m->opencl_c), KILN_OK);
  m->has_device = opencl_open(&m->device);
  if (!m->has_device) print_message("no OpenCL device: nothing is run\n");
}

static void lanes_combine_their_terms(void **state) {
  static const struct {
    const char *name, *combine;
    double (*of)(double a, double b);
  } combiners[] = {{"sum", "+=", sum_of},
                   {"prod", "*=", product_of},
                   {"max", "max=", larger_of},
                   {"min", "min=", lesser_of}};
  fixture *f = *state;
  machines m;
  int n_run = 0;
  open_machines(f, &m);
  for (int x = 32; x <= 128; x += 96)
    for (int n = 2; n <= 32; n *= 2)
      for (int apart = 1; n * apart <= 32; apart *= 2, n_run++) {
        const int c = n_run % (int)KILN_LEN(combiners);
        const lanes r = {combiners[c].combine, combiners[c].of, x, n, apart};
        const char *by = apart > 1 ? kiln_arena_printf(&f->cx.perm, "x%d", apart) : "",
                   *name = kiln_arena_printf(&f->cx.perm, "lanes.%s.%d%s.f32%s", combiners[c].name,
                                             n, by, x == 128 ? ".x128" : "");
        run_everywhere(f, &m, &r, scheduled(f, &m, &r, name), name);
      }
  opencl_close(&m.device);
  assert_int_equal(n_run, 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {FIXTURE_TEST(lanes_combine_their_terms)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// The price of lowered loops on a GPU: counts of asynchronous copies and matrix instructions, and
// that what wastes time costs it.
#include "price/gpu_price.h"

#include "target/gpu/gpu.h"
#include "template/search.h"

#include "unit/fixture.h"

static kiln_machine machine_of(fixture *f) {
  kiln_machine m;
  if (kiln_gpu_machine_named(&f->cx, "cuda:sm_90a", &m) != KILN_OK)
    fail_msg("%s", kiln_diag_message(f->diag, 0));
  return m;
}

static kiln_gpu_counts counts_of(fixture *f, const char *text) {
  const kiln_machine m = machine_of(f);
  kiln_loops *l = NULL;
  kiln_gpu_counts c;
  if (kiln_loops_parse(&f->cx, text, &l) != KILN_OK)
    fail_msg("%s: %s", text, kiln_diag_message(f->diag, 0));
  assert_true(kiln_gpu_count_loops(&f->cx, &m, l, &c));
  return c;
}

// --- loops ---

#define COPY "kernel k { param f32 X[33554432]:(1) param f32 y[33554432]:(1) for b:4096 block.x { "
#define NEIGHBOURS COPY "for t:256 thread.x { y[b*256 + t] = X[b*256 + t] } } }"
#define SUM                                                                                        \
  "kernel k { param f32 X[1048576]:(1) param f32 y[65536]:(1) local f32 s[1]:(1) for b:256 "       \
  "block.x { for t:256 thread.x { alloc s { s[0] = 0f32 "
#define END_SUM " y[b*256 + t] = s[0] } } } }"
#define STAGED                                                                                     \
  "kernel k { param f32 X[8650752]:(1) param f32 y[8388608]:(1) shared f32 s[1056]:(1) for "       \
  "b:8192 block.x { alloc s { for u:1024 thread.x { s[u + u / 32] = X[b*1024 + u] } for t:1024 "   \
  "thread.x { "
// A block's sums of 64 steps, each copied to one of three stages |ahead| steps before.
#define STAGES(first, ahead, rest)                                                                 \
  "kernel k { param f32 X[67108864]:(1) param f32 y[33792]:(1) shared f32 s[3, 4, 256]:(1024, "    \
  "256, 1) local f32 r[1]:(1) for b:132 block.x { alloc s { for f:" first                          \
  " { for t0:64 thread.x { for v0:4 vectorized { s[f, 0, 4*t0 + v0] = X[b*65536 + f*256 + 4*t0 + " \
  "v0] } } } for k:64 { if k < " rest " { for t:64 thread.x { for v:4 vectorized { s[(k + " ahead  \
  ") % 3, 0, 4*t + v] = X[b*65536 + (k + " ahead                                                   \
  ")*256 + 4*t + v] } } } for u:256 thread.x { y[b*256 + u] += s[k % 3, 0, 255 - u] } } } } }"

static const struct {
  const char *name, *dearer, *cheaper;
  double least; // how many times as dear, without what the cheapest kernel takes
} pairs[] = {
    {"neighbours read far from each other",
     COPY "for t:256 thread.x { y[b*256 + t] = X[b + t*4096] } } }", NEIGHBOURS, 1.5},
    {"one thread of a warp at work",
     COPY "for t:1 thread.x { for i:256 { y[b*256 + i] = X[b*256 + i] } } } }", NEIGHBOURS, 2},
    {"a sixteenth of the blocks",
     "kernel k { param f32 X[1048576]:(1) param f32 y[1048576]:(1) for b:16 block.x { for t:256 "
     "thread.x { for i:256 { y[b*65536 + i*256 + t] = X[b*65536 + i*256 + t] } } } }",
     "kernel k { param f32 X[1048576]:(1) param f32 y[1048576]:(1) for b:256 block.x { for t:256 "
     "thread.x { for i:16 { y[b*4096 + i*256 + t] = X[b*4096 + i*256 + t] } } } }",
     3},
    {"a long sum, and one of a sixteenth", SUM "for k:1024 { s[0] += X[b*1024 + k] }" END_SUM,
     SUM "for k:64 { s[0] += X[b*1024 + k] }" END_SUM, 4},
    {"one bank of shared memory", STAGED "y[b*1024 + t] = s[t % 32 * 32 + t / 32] } } } }",
     STAGED "y[b*1024 + t] = s[t % 32 * 33 + t / 32] } } } }", 1.2},
    {"another nest",
     COPY "for t:256 thread.x { y[b*256 + t] = X[b*256 + t] } } for c:4096 block.x { for u:256 "
          "thread.x { y[c*256 + u] = X[c*256 + u] } } }",
     NEIGHBOURS, 1.8},
    {"copies one step ahead, and two", STAGES("1", "1", "63"), STAGES("2", "2", "62"), 1.02},
};

static void waste_costs_time(void **state) {
  fixture *f = *state;
  const kiln_machine m = machine_of(f);
  const kiln_gpu_counts none = counts_of(
      f, "kernel k { param f32 y[1]:(1) for b:1 block.x { for t:1 thread.x { y[0] = 0f32 } } }");
  const double least = kiln_gpu_price_ns(&m, &none);
  for (size_t i = 0; i < KILN_LEN(pairs); i++) {
    const kiln_gpu_counts dearer = counts_of(f, pairs[i].dearer),
                          cheaper = counts_of(f, pairs[i].cheaper);
    const double a = kiln_gpu_price_ns(&m, &dearer) - least,
                 b = kiln_gpu_price_ns(&m, &cheaper) - least;
    if (!(b > 0) || !(a >= pairs[i].least * b))
      fail_msg("%s: must be %g times as much, got %g and %g ns", pairs[i].name, pairs[i].least, a,
               b);
  }
}

static void copies_ahead_are_not_waited_for(void **state) {
  fixture *f = *state;
  const kiln_machine m = machine_of(f);
  const double latency = m.device->gpu[KILN_GPU_CP_ASYNC_LATENCY];
  const kiln_gpu_nest_counts two = counts_of(f, STAGES("2", "2", "62")).nests[0];
  assert_true(two.blocks == 132 && two.threads == 256);
  assert_true(two.wait[KILN_GPU_WAIT_AHEAD] >= latency);
  assert_true(two.wait[KILN_GPU_WAIT_AHEAD] < 64 * latency);
}

// --- a product ---

// All candidates of a product of 512 x 512 x 256: their matrix instructions are those that it has.
static void matrix_instructions_are_counted(void **state) {
  static const char product[] =
      "p { temp f32 t0(512, 512) in f16 a0(512, 256) in f16 a1(256, 512) out f16 y(512, 512) "
      "t0(i0:512, i1:512 | r0:256) +=! f32(a0(i0, r0))*f32(a1(r0, i1)) "
      "y(i0:512, i1:512) = f16(t0(i0, i1)) }";
  const double fma = 512.0 * 512 * 256;
  fixture *f = *state;
  const kiln_machine m = machine_of(f);
  const double *g = m.device->gpu;
  const kiln_tile_search_options options = {.machine = &m, .n_threads = 1, .n_lowered = 64};
  kiln_tile_candidates found;
  kiln_program *p = NULL;
  int n_mma = 0, n_wgmma = 0;
  if (kiln_program_parse(&f->cx, product, &p) != KILN_OK ||
      kiln_tile_search(&f->cx, KILN_GROUP_CONTRACTION, p, NULL, &options, &found) != KILN_OK)
    fail_msg("%s", kiln_diag_message(f->diag, 0));
  for (int i = 0; i < found.n; i++) {
    kiln_gpu_counts c;
    double mma = 0, wgmma = 0;
    if (!found.data[i].loops || !kiln_gpu_count_loops(&f->cx, &m, found.data[i].loops, &c))
      continue;
    for (int k = 0; k < c.n; k++) {
      mma += c.nests[k].blocks * c.nests[k].unit[KILN_GPU_UNIT_MMA] / g[KILN_GPU_MMA_F16] *
             (16 * 8 * 16);
      wgmma += c.nests[k].blocks * c.nests[k].unit[KILN_GPU_UNIT_WGMMA] / g[KILN_GPU_WGMMA_64] *
               (64 * 64 * 16);
    }
    n_mma += mma > 0;
    n_wgmma += wgmma > 0;
    if (mma + wgmma > 0 && (mma + wgmma < 0.99 * fma || mma + wgmma > 1.4 * fma))
      fail_msg("%s %d: must have %g multiply-adds, got %g", found.data[i].from->name,
               found.data[i].tiling.variant, fma, mma + wgmma);
  }
  assert_true(n_mma > 0 && n_wgmma > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {FIXTURE_TEST(waste_costs_time),
                                     FIXTURE_TEST(copies_ahead_are_not_waited_for),
                                     FIXTURE_TEST(matrix_instructions_are_counted)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

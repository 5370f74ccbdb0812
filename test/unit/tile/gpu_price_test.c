// The price of lowered loops on a GPU: counts of asynchronous copies and matrix instructions, and
// that what wastes time costs it.
#include "price/gpu_price.h"

#include "template/search.h"

#include "unit/tile/gpu_waste.h"

static kiln_gpu_counts counts_of(fixture *f, const char *text) {
  const kiln_machine m = gpu_machine(f);
  kiln_gpu_counts c;
  assert_true(kiln_gpu_count_loops(&f->cx, &m, gpu_loops(f, text), &c));
  return c;
}

// --- loops ---

// A block's sums of 64 steps, each copied to one of three stages |ahead| steps before.
#define STAGES(first, ahead, rest)                                                                 \
  "kernel k { param f32 X[67108864]:(1) param f32 y[33792]:(1) shared f32 s[3, 4, 256]:(1024, "    \
  "256, 1) local f32 r[1]:(1) for b:132 block.x { alloc s { for f:" first                          \
  " { for t0:64 thread.x { for v0:4 vectorized { s[f, 0, 4*t0 + v0] = X[b*65536 + f*256 + 4*t0 + " \
  "v0] } } } for k:64 { if k < " rest " { for t:64 thread.x { for v:4 vectorized { s[(k + " ahead  \
  ") % 3, 0, 4*t + v] = X[b*65536 + (k + " ahead                                                   \
  ")*256 + 4*t + v] } } } for u:256 thread.x { y[b*256 + u] += s[k % 3, 0, 255 - u] } } } } }"

static const struct waste copies = {.name = "copies one step ahead, and two",
                                    .dearer = STAGES("1", "1", "63"),
                                    .cheaper = STAGES("2", "2", "62"),
                                    .price_least = 1.02};

static void check_waste(fixture *f, const struct waste *w) {
  const kiln_machine m = gpu_machine(f);
  const kiln_gpu_counts none = counts_of(f, NOTHING), dearer = counts_of(f, w->dearer),
                        cheaper = counts_of(f, w->cheaper);
  const double least = kiln_gpu_price_ns(&m, &none), a = kiln_gpu_price_ns(&m, &dearer) - least,
               b = kiln_gpu_price_ns(&m, &cheaper) - least;
  if (!(b > 0) || !(a >= w->price_least * b))
    fail_msg("%s: must be %g times as much, got %g and %g ns", w->name, w->price_least, a, b);
}

static void waste_costs_time(void **state) {
  for (size_t i = 0; i < KILN_LEN(wastes); i++) check_waste(*state, &wastes[i]);
  check_waste(*state, &copies);
}

static void copies_ahead_are_not_waited_for(void **state) {
  fixture *f = *state;
  const kiln_machine m = gpu_machine(f);
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
  const kiln_machine m = gpu_machine(f);
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

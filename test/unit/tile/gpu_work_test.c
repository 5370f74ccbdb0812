// The predicted time of loops on a GPU: each inefficiency has its cost, and predictions for
// measured kernels are close.
#include "price/gpu_work.h"

#include "fuse/searches.h"

#include "unit/tile/gpu_waste.h"

// --- loops ---

static bool work_of(fixture *f, const char *text, kiln_tile_cost *out) {
  const kiln_machine m = gpu_machine(f);
  *out = (kiln_tile_cost){.tail = 1};
  return kiln_gpu_work(&f->cx, &m, gpu_loops(f, text), out);
}

static const struct waste more[] = {
    {.name = "sums of one loop, and a row of each at once",
     .dearer = SUM "for k:64 { s[0] += X[k*8192 + b*16] }" END_SUM,
     .cheaper = SUM "for k:64 unrolled { s[0] += X[k*8192 + b*16] }" END_SUM,
     .work_least = 1.2,
     .work_most = 16},
    {.name = "copies that read their own, and copies that read the same",
     .dearer =
         COPY "for t:256 thread.x { for c:8 unrolled { y[b*2048 + t*8 + c] = X[b*16384 + t*64 + "
              "c*8] + X[b*16384 + t*64 + c*8 + 32] } } } }",
     .cheaper =
         COPY "for t:256 thread.x { for c:8 unrolled { y[b*2048 + t*8 + c] = X[b*16384 + t*64 + "
              "c/8*8] + X[b*16384 + t*64 + c/8*8 + 32] } } } }",
     .work_least = 1.8,
     .work_most = 16},
};

static double more_than(double ns, double least) { return ns > least ? ns - least : 0; }

static void check_waste(fixture *f, const struct waste *w) {
  kiln_tile_cost none, dearer, cheaper;
  assert_true(work_of(f, NOTHING, &none));
  assert_true(work_of(f, w->dearer, &dearer));
  assert_true(work_of(f, w->cheaper, &cheaper));
  const double a = more_than(dearer.ns, none.ns), b = more_than(cheaper.ns, none.ns);
  if (!(b > 0) || !(a >= w->work_least * b) || !(a <= w->work_most * b))
    fail_msg("%s: must be %g to %g times as much, got %g and %g ns", w->name, w->work_least,
             w->work_most, a, b);
}

static void waste_costs_what_it_does(void **state) {
  for (size_t i = 0; i < KILN_LEN(wastes); i++) check_waste(*state, &wastes[i]);
  for (size_t i = 0; i < KILN_LEN(more); i++) check_waste(*state, &more[i]);
}

// --- kernels ---

// The cost of |family|'s first candidate; NULL: of the cheapest.
static double price_of(fixture *f, kiln_group_kind kind, const char *family, const char *text) {
  const kiln_machine m = gpu_machine(f);
  const kiln_tile_search_options options = {
      .machine = &m, .n_threads = 1, .n_lowered = 1, .by_loops = true};
  kiln_tile_candidates found;
  kiln_program *p = NULL;
  if (kiln_program_parse(&f->cx, text, &p) != KILN_OK ||
      kiln_tile_propose(&f->cx, kind, p, NULL, &options, &found) != KILN_OK)
    fail_msg("%s: %s", text, kiln_diag_message(f->diag, 0));
  for (int i = 0; i < found.n && family; i++)
    if (strcmp(found.data[i].from->name, family) == 0)
      return kiln_tile_price_of(&found.data[i].cost) / 1e3;
  if (family) fail_msg("%s: must be proposed by %s, is not", text, family);
  return kiln_tile_price(&found) / 1e3;
}

static const struct {
  kiln_group_kind kind;
  const char *family;
  double us; // as measured on an H200 between events
  const char *text;
} measured[] = {
    {KILN_GROUP_CONTRACTION, "pointwise",
     12.66, // sums of 64 terms, a thread each: three blocks that read across rows
     "p { temp f32 t0(676) in f16 a0(43264) const f16 a1(64) = ... out f16 y(676) "
     "t0(i0:676 | r0:64) +=! f32(a0(i0*64 + r0))*f32(a1(r0)) "
     "y(i0:676) = f16(1f32/(1f32 + exp(neg(t0(i0) + 0.02277248f32)))) }"},
    {KILN_GROUP_MAP, "pointwise",
     7.43, // an image with the channels apart, read for one with the channels side by side
     "p { in f16 a0(519168) out f16 y(210, 210, 12) y(i0:210, i1:210, i2:12) = i0 >= 1 && i0 < 209 "
     "&& i1 >= 1 && "
     "i1 < 209 ? f16(i2 < 6 ? (i2 < 3 ? f32(a0(i2*173056 + i0*832 + i1*2 - 834)) : "
     "f32(a0(i2*173056 + i0*832 + "
     "i1*2 - 519586))) : i2 < 9 ? f32(a0(i2*173056 + i0*832 + i1*2 - 1039169)) : f32(a0(i2*173056 "
     "+ i0*832 + i1*2 - "
     "1557921))) : 0f16 }"},
    {KILN_GROUP_ROWS, "sliding_window", 4.45, // a depthwise convolution
     "p { temp f32 t0(13, 13, 64) in f16 a0(10816) const f16 a1(576) = ... const f32 a2(64) = ... "
     "out f16 y(13, 13, 64) t0(i0:13, i1:13, i2:64 | r0:3, r1:3) +=! "
     "f32(i0 + r0 >= 1 && i0 + r0 < 14 && i1 + r1 >= 1 && i1 + r1 < 14 "
     "? a0(i0*832 + r0*832 + i1*64 + r1*64 + i2 - 896) : 0f16)*f32(a1(i2*9 + r0*3 + r1)) "
     "y(i0:13, i1:13, i2:64) = f16((t0(i0, i1, i2) + a2(i2))*(1f32/(1f32 + exp(neg(t0(i0, i1, i2) "
     "+ a2(i2)))))) }"},
    {KILN_GROUP_ROWS, "row_reduce", 5.15, // rows of 32, across
     "p { temp f32 t0(256) temp f32 t1(256) temp f32 t2(256) temp f32 t3(256) in f16 a0(8192) "
     "const f32 a1(32) = ... "
     "const f32 a2(32) = ... out f16 y(32, 256) t0(i1:256 | r0:32) +=! f32(a0(r0*256 + i1)) "
     "t1(i1:256) = "
     "t0(i1)/32f32 t2(i1:256 | r0:32) +=! (f32(a0(r0*256 + i1)) - t1(i1))*(f32(a0(r0*256 + i1)) - "
     "t1(i1)) t3(i1:256) "
     "= 1f32/sqrt(t2(i1)/32f32 + 1e-05f32) y(i0:32, i1:256) = f16((f32(a0(i0*256 + i1)) - "
     "t1(i1))*t3(i1)*a1(i0) + "
     "a2(i0)) }"},
};

static void measured_kernels_come_out_near_their_times(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(measured); i++) {
    const double us = price_of(f, measured[i].kind, measured[i].family, measured[i].text);
    if (!(us >= measured[i].us / 1.3) || !(us <= measured[i].us * 1.3))
      fail_msg("%s: must be %g us within 1.3 times, got %g", measured[i].text, measured[i].us, us);
  }
}

// A block for each of 16 channels computes the product for the whole image, waits, and adds up
// windows.
static void products_in_front_of_windows_are_dear_where_channels_are_blocks(void **state) {
  fixture *f = *state;
  const double together = price_of(
      f, KILN_GROUP_FUSED_LAYERS, NULL,
      "p { temp f32 t0(104, 104, 16) temp f16 t1(104, 104, 16) in f16 a0(346112) const f16 a1(16, "
      "16) = ... const f16 "
      "a3(16, 3, 3) = ... temp f32 t2(104, 104, 16) out f16 y(104, 104, 16) "
      "t0(j0:104, j1:104, i2:16 | r0:16) +=! f32(a0(j0*3328 + j1*32 + r0))*f32(a1(i2, r0)) "
      "t1(j0:104, j1:104, i2:16) = f16(max(t0(j0, j1, i2), 0f32)) "
      "t2(i0:104, i1:104, i2:16 | r0:3, r1:3) +=! f32(i0 + r0 >= 1 && i0 + r0 < 105 && i1 + r1 >= "
      "1 && i1 + r1 < 105 ? "
      "t1(i0 + r0 - 1, i1 + r1 - 1, i2) : 0f16)*f32(a3(i2, r0, r1)) y(i0:104, i1:104, i2:16) = "
      "f16(t2(i0, i1, i2)) }");
  if (!(together >= 25)) fail_msg("must be at least 25 us, got %g", together);
}

static void loops_of_unknown_length_cost_what_their_template_says(void **state) {
  fixture *f = *state;
  kiln_tile_cost c;
  assert_false(work_of(
      f, "kernel k { param f32 y[64]:(1) for b:8 block.x { for i:b { y[i] = 0f32 } } }", &c));
  assert_true(c.ns == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(waste_costs_what_it_does),
      FIXTURE_TEST(measured_kernels_come_out_near_their_times),
      FIXTURE_TEST(products_in_front_of_windows_are_dear_where_channels_are_blocks),
      FIXTURE_TEST(loops_of_unknown_length_cost_what_their_template_says),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

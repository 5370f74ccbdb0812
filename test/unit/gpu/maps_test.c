// Tensor maps of a nest: those that are known before it is lowered are no more than it has.
#include "schedule/instr.h"
#include "target/gpu/gpu.h"

#include "unit/fixture.h"

// A product of a block's windows: 3 x 3 with stride 2 of an image (52, 52, 128), one row of taps.
// The first four copies, of the left and the middle tap, are issued ahead; the last two, of the
// right one, begin at another column.
#define WINDOW "b/4%11*4 + (b/4%11*12 + _0)/26*2 + b/44 - 1, (b/4%11*12 + _0)%26*2"
#define WHERE "where b/4%11*4 + (b/4%11*12 + _0)/26*2 + b/44 >= 1 && b/4%11*64 + _0 < 676"
static const char product[] =
    "kernel k { param f16 X[128, 52, 52]:(1, 6656, 128) param f16 W[384, 64]:(64, 1) "
    "param f32 Y[132, 64, 64]:(4096, 64, 1) local f32 T[4, 8, 4, 8, 2, 2]:(1024, 128, 32, 4, 2, 1) "
    "shared f16 A[6, 1, 64, 64]:(4096, 4096, 64, 1) swizzled "
    "shared f16 B[6, 1, 64, 64]:(4096, 4096, 64, 1) swizzled for b:132 block.x { alloc T { "
    "for t:128 thread.x { for r:2 unrolled { for c:8 unrolled { for e:2 vectorized { "
    "T[t/32, t/4%8, t%4, c, r, e] = 0f32 } } } } alloc B { for i:4 { instr tma.64x64.f16(B[i, 0, "
    "_0, _1], W[i*64 + _0, _1]) } "
    "alloc A { for f:4 { instr im2col.64x64.f16(A[f, 0, _0, _1], X[f%2*64 + _1, " WINDOW
    " + f/2 - 1]) " WHERE " && (b/4%11*12 + _0)%26*2 + f/2 >= 1 } for k:6 { if k < 2 { "
    "instr im2col.64x64.f16(A[(k + 4)%6, 0, _0, _1], X[k%2*64 + _1, " WINDOW " + k/2 + 1]) " WHERE
    " } if k < 2 { instr tma.64x64.f16(B[(k + 4)%6, 0, _0, _1], W[k*64 + _0 + 256, _1]) } "
    "for g:1 thread.y { for j:4 unrolled { instr wgmma.m64n64k16.f16.row.row(T[_0/16, _0%8, "
    "_2/2%4, "
    "_2/8, _0/8%2, _2%2], A[k, 0, _0, j*16 + _1], B[k, 0, j*16 + _1, _2]) } } } } } "
    "for u:128 thread.x { for q:2 unrolled { for d:8 unrolled { for v:2 vectorized { "
    "Y[b, u/32*16 + q*8 + u/4%8, d*8 + u%4*2 + v] = T[u/32, u/4%8, u%4, d, q, v] } } } } } } }";

static void windows_at_other_columns_have_a_map_of_their_own(void **state) {
  fixture *f = *state;
  kiln_machine m;
  kiln_instr_table known = {.cx = &f->cx};
  kiln_loops *l = NULL;
  kiln_gpu_device lowered;
  if (kiln_gpu_machine_named(&f->cx, "cuda:sm_90a", &m) != KILN_OK)
    fail_msg("%s", kiln_diag_message(f->diag, 0));
  known.instrs = m.target->instrs(&f->cx, &m, &known.n);
  if (kiln_loops_parse_with(&f->cx, product, kiln_instr_find_in, &known, &l) != KILN_OK)
    fail_msg("%s", kiln_diag_message(f->diag, 0));
  const kiln_gpu_demand d = kiln_gpu_demand_of(&f->cx, l, l->body);
  if (kiln_gpu_lower(&f->cx, &m, l, 0, &lowered) != KILN_OK)
    fail_msg("%s", kiln_diag_message(f->diag, 0));
  assert_true(d.has_windows);
  assert_int_equal(d.n_maps, 2);
  assert_int_equal(lowered.n_maps, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(windows_at_other_columns_have_a_map_of_their_own)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

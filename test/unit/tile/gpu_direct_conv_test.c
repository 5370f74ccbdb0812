// Direct convolutions of few channels on tensor cores: candidates give the reference interpreter's
// results in the simulator; and which convolutions have the form.
#include "unit/tile/lowering.h"

#include "target/gpu/gpu.h"
#include "template/gpu/grid.h"
#include "template/form/direct_conv.h"

#include <string.h>

static const struct {
  const char *name, *text;
  int64_t stride, channels, k; // |stride|: of the input tile; 0: it has not the form
} cases[] = {
    {"windows of 7 x 7, two apart, of planes, their padding guarded",
     "p { in f16 X(2, 3, 19, 40) const f16 W(32, 3, 7, 7) = ... const f32 B(32) = ... temp f32 "
     "t0(2, 10, 20, 32) out f16 y(2, 10, 20, 32) "
     "t0(i0:2, i1:10, i2:20, i3:32 | r0:3, r1:7, r2:7) +=! f32(i1 * 2 + r1 >= 3 && i1 * 2 + r1 < "
     "22 && i2 * 2 + r2 >= 3 && i2 * 2 + r2 < 43 ? X(i0, r0, i1 * 2 + r1 - 3, i2 * 2 + r2 - 3) : "
     "0f16) * f32(W(i3, r0, r1, r2)) "
     "y(i0:2, i1:10, i2:20, i3:32) = f16(max(f32(f16(t0(i0, i1, i2, i3))) + B(i3), 0f32)) }",
     2, 3, 160},
    {"windows of 3 x 3 side by side, an odd number of channels, stored last",
     "p { in bf16 X(6, 18, 3) const bf16 W(48, 3, 3, 3) = ... temp f32 t0(4, 16, 48) out f32 y(4, "
     "16, 48) "
     "t0(i0:4, i1:16, i2:48 | r0:3, r1:3, r2:3) +=! f32(X(i0 + r1, i1 + r2, r0)) * f32(W(i2, r0, "
     "r1, r2)) y(i0:4, i1:16, i2:48) = t0(i0, i1, i2) }",
     1, 4, 48},
    {"one channel, a residual",
     "p { in f16 X(9, 37) const f16 W(16, 5, 5) = ... in f16 R(5, 33, 16) temp f32 t0(5, 33, 16) "
     "out f16 y(5, 33, 16) "
     "t0(i0:5, i1:33, i2:16 | r0:5, r1:5) +=! f32(X(i0 + r0, i1 + r1)) * f32(W(i2, r0, r1)) "
     "y(i0:5, i1:33, i2:16) = f16(t0(i0, i1, i2)) + R(i0, i1, i2) }",
     1, 2, 64},
    {"windows four apart along rows and one along columns",
     "p { in f16 X(2, 20, 20) const f16 W(64, 2, 7, 3) = ... temp f32 t0(4, 18, 64) out f16 y(4, "
     "18, 64) "
     "t0(i0:4, i1:18, i2:64 | r0:2, r1:7, r2:3) +=! f32(X(r0, i0 * 4 + r1, i1 + r2)) * f32(W(i2, "
     "r0, r1, r2)) y(i0:4, i1:18, i2:64) = f16(t0(i0, i1, i2)) }",
     1, 2, 48},
    {"an image that is mirrored at its edges",
     "p { in f16 X(8, 32) const f16 W(16, 3, 3) = ... temp f32 t0(8, 32, 16) out f16 y(8, 32, 16) "
     "t0(i0:8, i1:32, i2:16 | r0:3, r1:3) +=! f32(X(i0 + r0 < 1 ? 1 - i0 - r0 : i0 + r0 >= 9 ? 15 "
     "- i0 - r0 : i0 + r0 - 1, i1 + r1 < 1 ? 1 - i1 - r1 : i1 + r1 >= 33 ? 63 - i1 - r1 : i1 + r1 "
     "- 1)) * f32(W(i2, r0, r1)) y(i0:8, i1:32, i2:16) = f16(t0(i0, i1, i2)) }",
     1, 2, 32},
    {"too many channels",
     "p { in f16 X(6, 18, 9) const f16 W(32, 9, 3, 3) = ... temp f32 t0(4, 16, 32) out f16 y(4, "
     "16, 32) "
     "t0(i0:4, i1:16, i2:32 | r0:9, r1:3, r2:3) +=! f32(X(i0 + r1, i1 + r2, r0)) * f32(W(i2, r0, "
     "r1, r2)) y(i0:4, i1:16, i2:32) = f16(t0(i0, i1, i2)) }",
     0, 0, 0},
    {"no windows",
     "p { in f16 X(6, 18, 8) const f16 W(32, 8) = ... temp f32 t0(6, 18, 32) out f16 y(6, 18, 32) "
     "t0(i0:6, i1:18, i2:32 | r0:8) +=! f32(X(i0, i1, r0)) * f32(W(i2, r0)) "
     "y(i0:6, i1:18, i2:32) = f16(t0(i0, i1, i2)) }",
     0, 0, 0},
    {"windows side by side",
     "p { in f16 X(16, 64, 3) const f16 W(32, 3, 4, 4) = ... temp f32 t0(4, 16, 32) out f16 y(4, "
     "16, 32) "
     "t0(i0:4, i1:16, i2:32 | r0:3, r1:4, r2:4) +=! f32(X(i0 * 4 + r1, i1 * 4 + r2, r0)) * "
     "f32(W(i2, r0, r1, r2)) y(i0:4, i1:16, i2:32) = f16(t0(i0, i1, i2)) }",
     0, 0, 0},
    {"windows of more terms than a block keeps",
     "p { in f16 X(15, 27, 8) const f16 W(32, 8, 12, 12) = ... temp f32 t0(4, 16, 32) out f16 "
     "y(4, 16, 32) "
     "t0(i0:4, i1:16, i2:32 | r0:8, r1:12, r2:12) +=! f32(X(i0 + r1, i1 + r2, r0)) * f32(W(i2, r0, "
     "r1, r2)) y(i0:4, i1:16, i2:32) = f16(t0(i0, i1, i2)) }",
     0, 0, 0},
    {"weights that are no constant",
     "p { in f16 X(6, 18, 3) in f16 W(32, 3, 3, 3) temp f32 t0(4, 16, 32) out f16 y(4, 16, 32) "
     "t0(i0:4, i1:16, i2:32 | r0:3, r1:3, r2:3) +=! f32(X(i0 + r1, i1 + r2, r0)) * f32(W(i2, r0, "
     "r1, r2)) y(i0:4, i1:16, i2:32) = f16(t0(i0, i1, i2)) }",
     0, 0, 0},
    {"channels stored first",
     "p { in f16 X(6, 18, 3) const f16 W(32, 3, 3, 3) = ... temp f32 t0(32, 4, 16) out f16 y(32, "
     "4, 16) "
     "t0(i0:32, i1:4, i2:16 | r0:3, r1:3, r2:3) +=! f32(X(i1 + r1, i2 + r2, r0)) * f32(W(i0, r0, "
     "r1, r2)) y(i0:32, i1:4, i2:16) = f16(t0(i0, i1, i2)) }",
     0, 0, 0},
};

static void run_candidates(test_kernel *k, kiln_lowering *w, const kiln_machine *m,
                           const char *name) {
  enum { STEP = 15 };
  kiln_tile_candidates found = {0};
  assert_int_equal(kiln_template_gpu_direct_conv.propose(w, &found), KILN_OK);
  if (found.n == 0) fail_msg("%s: must have candidates", name);
  for (int i = 0; i < found.n; i += STEP) {
    assert_int_equal(kiln_schedule_begin(&k->cx, k->prog, &w->s), KILN_OK);
    w->s.instrs = kiln_gpu_instrs(&k->cx, m, &w->s.n_instrs);
    lowering_expect_ok(k, w, kiln_template_gpu_direct_conv.lower(w, &found.data[i].tiling));
    kernel_check_replay(k, &w->s);
    lowering_expect_right(k, w);
    assert_int_equal(kiln_gpu_check(&k->cx, m, w->s.loops), KILN_OK);
  }
}

static void patches_compute_what_is_asked(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(cases); row++) {
    test_kernel k;
    kiln_machine m = {0};
    kiln_direct_conv f;
    kiln_lowering w = lowering_open(&k, &m, cases[row].text);
    assert_int_equal(kiln_gpu_machine_named(&k.cx, "cuda:sm_90a", &m), KILN_OK);
    kiln_direct_conv_make(&k.cx, &m, k.prog);
    assert_int_equal(kiln_program_verify(&k.cx, k.prog), KILN_OK);
    w.root = k.prog->stmts.data[k.prog->stmts.n - 1];
    if (kiln_direct_conv_is(&k.cx, k.prog, &f) != (cases[row].k > 0))
      fail_msg("%s: must %sbe of the form", cases[row].name, cases[row].k ? "" : "not ");
    if (cases[row].k) {
      assert_int_equal(f.stride[1], cases[row].stride);
      assert_int_equal(f.channels, cases[row].channels);
      assert_int_equal(f.of.k, cases[row].k);
      run_candidates(&k, &w, &m, cases[row].name);
    }
    kernel_close(&k);
  }
}

static void results_are_rounded_once(void **state) {
  (void)state;
  test_kernel k;
  kiln_machine m = {0};
  kiln_text before, after;
  (void)lowering_open(&k, &m, cases[0].text);
  assert_int_equal(kiln_gpu_machine_named(&k.cx, "cuda:sm_90a", &m), KILN_OK);
  kiln_text_init(&before, &k.cx.perm);
  kiln_text_init(&after, &k.cx.perm);
  kiln_program_print(&k.cx, k.prog, &before);
  assert_true(kiln_direct_conv_make(&k.cx, &m, k.prog));
  kiln_program_print(&k.cx, k.prog, &after);
  assert_non_null(strstr(before.data, "f32(f16("));
  assert_null(strstr(after.data, "f32(f16("));
  kernel_close(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(patches_compute_what_is_asked),
                                     cmocka_unit_test(results_are_rounded_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

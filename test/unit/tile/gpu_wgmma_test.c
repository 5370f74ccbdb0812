// Products by instructions of warp groups: what the family proposes computes, in the simulator, what the reference
// interpreter computes; and where its code waits.
#include "unit/tile/lowering.h"

#include "target/gpu/gpu.h"
#include "tile/gpu.h"
#include "tile/gpu_product.h"

#include <string.h>

static const struct {
  const char *name, *text;
  int n;           // candidates
  const char *has; // what else the code of each has; NULL: nothing
} cases[] = {
    {"tiles that reach beyond the last rows and columns",
     "p { in f16 X(72, 128) in f16 Z(128, 136) temp f32 t0(72, 136) out f16 y(72, 136) "
     "t0(i0:72, i1:136 | r0:128) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:72, i1:136) = f16(t0(i0, i1)) }",
     2, NULL},
    {"a batch, rows of another type",
     "p { in bf16 X(2, 64, 192) in bf16 Z(2, 192, 64) in f32 R(2, 64, 64) temp f32 t0(2, 64, 64) "
     "out f32 y(2, 64, 64) "
     "t0(i0:2, i1:64, i2:64 | r0:192) +=! f32(X(i0, i1, r0)) * f32(Z(i0, r0, i2)) "
     "y(i0:2, i1:64, i2:64) = t0(i0, i1, i2) + R(i0, i1, i2) }",
     1, NULL},
    {"both operands transposed",
     "p { in f16 X(128, 72) in f16 Z(64, 128) temp f32 t0(72, 64) out f16 y(72, 64) "
     "t0(i0:72, i1:64 | r0:128) +=! f32(X(r0, i0)) * f32(Z(i1, r0)) "
     "y(i0:72, i1:64) = f16(t0(i0, i1)) }",
     1, NULL},
    {"rows of two dims, columns of a slice",
     "p { in f16 X(2, 40, 128) in f16 Z(128, 192) temp f32 t0(2, 40, 64) out f16 y(2, 40, 64) "
     "t0(i0:2, i1:40, i2:64 | r0:128) +=! f32(X(i0, i1, r0)) * f32(Z(r0, i2)) "
     "y(i0:2, i1:40, i2:64) = f16(t0(i0, i1, i2)) }",
     1, NULL},
    {"a convolution by constants that guards its reads",
     "p { in f16 X(1, 8, 8, 64) const f16 W(64, 64, 3, 3) = ... temp f32 t0(1, 8, 8, 64) out f16 "
     "y(1, 8, 8, 64) "
     "t0(i0:1, i1:8, i2:8, i3:64 | r0:64, r1:3, r2:3) +=! f32(i1 + r1 >= 1 && i1 + r1 < 9 && i2 + "
     "r2 >= 1 && i2 + r2 < 9 ? X(i0, i1 + r1 - 1, i2 + r2 - 1, r0) : 0f16) * f32(W(i3, r0, r1, "
     "r2)) "
     "y(i0:1, i1:8, i2:8, i3:64) = f16(t0(i0, i1, i2, i3)) }",
     1, NULL},
    {"a reduction over flattened channels of what is stored channels last",
     "p { in f16 X(64, 2, 2, 32) const f16 W(64, 128) = ... temp f32 t0(64, 64) out f16 y(64, 64) "
     "t0(i0:64, i1:64 | r0:128) +=! f32(X(i0, r0 / 2 % 2, r0 % 2, r0 / 4)) * f32(W(i1, r0)) "
     "y(i0:64, i1:64) = f16(t0(i0, i1)) }",
     1, "kiln_box(&A["},
    {"rows computed from two slices",
     "p { in f16 X(64, 256) const f16 W(64, 128) = ... temp f32 t0(64, 64) out f16 y(64, 64) "
     "t0(i0:64, i1:64 | r0:128) +=! f32(max(X(i0, r0), 1f16) * X(i0, r0 + 128)) * f32(W(i1, r0)) "
     "y(i0:64, i1:64) = f16(t0(i0, i1)) }",
     1, "= *(const uint4 *)&X["},
    {"splits of the reduction: ragged rows, a residual",
     "p { in f16 X(40, 256) in f16 Z(256, 64) in f16 R(40, 64) temp f32 t0(40, 64) out f16 y(40, "
     "64) "
     "t0(i0:40, i1:64 | r0:256) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:40, i1:64) = f16(t0(i0, i1)) + R(i0, i1) }",
     1, NULL},
    {"splits of batches",
     "p { in f16 X(2, 64, 256) in f16 Z(2, 256, 72) temp f32 t0(2, 64, 72) out f16 y(2, 64, 72) "
     "t0(i0:2, i1:64, i2:72 | r0:256) +=! f32(X(i0, i1, r0)) * f32(Z(i0, r0, i2)) "
     "y(i0:2, i1:64, i2:72) = f16(t0(i0, i1, i2)) }",
     2, NULL},
};

// What the code of each candidate has, in this order.
static const char *const forms[] = {
    "kiln_matrix(const uint16_t *at",  "wgmma.mma_async.sync.aligned.m64n",
    "fence.proxy.async.shared::cta",   "__syncthreads()",
    "wgmma.fence.sync.aligned",        "wgmma.commit_group.sync.aligned",
    "wgmma.wait_group.sync.aligned 1", "wgmma.wait_group.sync.aligned 0",
};

// Launches before are waited for in front of all that is read, but for boxes of constants; results of one nest go
// through shared memory.
static void check_order(const char *code, int n, const kiln_gpu_launch *launches,
                        bool has_constants, const char *name) {
  const char *body = strstr(code, "__global__"), *wait = strstr(body, "kiln_wait()"),
             *box = strstr(body, "kiln_box(&"), *last = strstr(body, "wait_group.sync.aligned 0");
  for (int i = 0; i < n; i++) assert_true(launches[i].waits);
  if (!wait || !box || (box < wait) != has_constants)
    fail_msg("%s: must wait for launches %s the first box", name,
             has_constants ? "behind" : "in front of");
  if (n == 1 && !strstr(last, "__syncthreads()"))
    fail_msg("%s: threads must wait for results in shared memory", name);
}

static void check_code(test_kernel *k, const kiln_machine *m, kiln_loops *l, bool has_constants,
                       const char *name, const char *has) {
  kiln_text text;
  kiln_gpu_launch *launches = NULL;
  int n = 0;
  kiln_text_init(&text, &k->cx.perm);
  if (kiln_gpu_emit(&k->cx, m, l, "k", &text, &n, &launches) != KILN_OK)
    fail_msg("%s: %s", name, kernel_message(k));
  const char *at = text.data;
  for (size_t i = 0; i < KILN_LEN(forms); i++) {
    at = strstr(at, forms[i]);
    if (!at) fail_msg("%s: the code must have \"%s\" behind what is before it", name, forms[i]);
    at += strlen(forms[i]);
  }
  check_order(text.data, n, launches, has_constants, name);
  if (has && !strstr(text.data, has)) fail_msg("%s: the code must have \"%s\"", name, has);
}

static void products_of_warp_groups_compute_what_is_asked(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(cases); row++) {
    test_kernel k;
    kiln_machine m = {0};
    kiln_tile_candidates found = {0};
    kiln_lowering w = lowering_open(&k, &m, cases[row].text);
    assert_int_equal(kiln_gpu_machine_named(&k.cx, "cuda:sm_90a", &m), KILN_OK);
    kiln_product_make(&k.cx, k.prog);
    w.root = k.prog->stmts.data[k.prog->stmts.n - 1];
    assert_int_equal(kiln_family_gpu_wgmma.propose(&w, &found), KILN_OK);
    if (found.n < cases[row].n)
      fail_msg("%s: must have %d candidates, got %d", cases[row].name, cases[row].n, found.n);
    for (int i = 0; i < found.n; i++) {
      assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &w.s), KILN_OK);
      w.s.instrs = kiln_gpu_instrs(&k.cx, &m, &w.s.n_instrs);
      lowering_expect_ok(&k, &w, kiln_family_gpu_wgmma.lower(&w, &found.data[i].tiling));
      kernel_check_replay(&k, &w.s);
      lowering_expect_right(&k, &w);
      check_code(&k, &m, w.s.loops, strstr(cases[row].text, "const f16") != NULL, cases[row].name,
                 cases[row].has);
    }
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_of_warp_groups_compute_what_is_asked)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

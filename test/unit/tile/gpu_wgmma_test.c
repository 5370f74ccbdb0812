// Products by warp group instructions: candidates give the reference interpreter's results in the
// simulator; and where their code waits.
#include "unit/tile/gpu_lowering.h"
#include "unit/share.h"

#include "target/gpu/gpu.h"
#include "template/gpu/grid.h"
#include "template/form/product.h"

#include <math.h>
#include <string.h>

static const struct {
  const char *name, *text;
  int n;           // candidates
  const char *has; // text that each candidate's code contains; NULL: none
} cases[] = {
    {"tiles that reach beyond the last rows and columns",
     "p { in f16 X(72, 128) in f16 Z(128, 136) temp f32 t0(72, 136) out f16 y(72, 136) "
     "t0(i0:72, i1:136 | r0:128) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:72, i1:136) = f16(t0(i0, i1)) }",
     2, NULL},
    {"constants whose columns are no whole words",
     "p { in f16 X(72, 128) const f16 W(137, 128) = ... temp f32 t0(72, 137) out f16 y(72, 137) "
     "t0(i0:72, i1:137 | r0:128) +=! f32(X(i0, r0)) * f32(W(i1, r0)) "
     "y(i0:72, i1:137) = f16(t0(i0, i1)) }",
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
    {"columns of a slice that are no whole words: the last tile begins within one",
     "p { in f16 X(72, 128) in f16 Z(128, 144) temp f32 t0(72, 137) out f16 y(72, 137) "
     "t0(i0:72, i1:137 | r0:128) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:72, i1:137) = f16(t0(i0, i1)) }",
     2, NULL},
    {"a convolution by constants that guards its reads",
     "p { in f16 X(1, 8, 8, 64) const f16 W(64, 64, 3, 3) = ... temp f32 t0(1, 8, 8, 64) out f16 "
     "y(1, 8, 8, 64) "
     "t0(i0:1, i1:8, i2:8, i3:64 | r0:64, r1:3, r2:3) +=! f32(i1 + r1 >= 1 && i1 + r1 < 9 && i2 + "
     "r2 >= 1 && i2 + r2 < 9 ? X(i0, i1 + r1 - 1, i2 + r2 - 1, r0) : 0f16) * f32(W(i3, r0, r1, "
     "r2)) "
     "y(i0:1, i1:8, i2:8, i3:64) = f16(t0(i0, i1, i2, i3)) }",
     1, "kiln_im2col(&"},
    {"windows of channels that lie last, for results whose channels lie in front: neighbours along "
     "the reduction are those",
     "p { in f16 X(2, 16, 32, 64) const f16 W(64, 64, 2, 2) = ... temp f32 t0(2, 64, 8, 16) out "
     "f16 "
     "y(2, 64, 8, 16) "
     "t0(i0:2, i1:64, i2:8, i3:16 | r0:64, r1:2, r2:2) +=! f32(X(i0, i2*2 + r1, i3*2 + r2, r0)) * "
     "f32(W(i1, r0, r1, r2)) "
     "y(i0:2, i1:64, i2:8, i3:16) = f16(t0(i0, i1, i2, i3)) }",
     1, "k16_f16_row_col(&"},
    {"windows of images, two apart, ragged and without guards below and right",
     "p { in f16 X(2, 14, 10, 64) const f16 W(64, 64, 3, 3) = ... temp f32 t0(2, 7, 5, 64) out f16 "
     "y(2, 7, 5, 64) "
     "t0(i0:2, i1:7, i2:5, i3:64 | r0:64, r1:3, r2:3) +=! f32(i1*2 + r1 >= 1 && i2*2 + r2 >= 1 ? "
     "X(i0, i1*2 + r1 - 1, i2*2 + r2 - 1, r0) : 0f16) * f32(W(i3, r0, r1, r2)) "
     "y(i0:2, i1:7, i2:5, i3:64) = f16(t0(i0, i1, i2, i3)) }",
     2, "kiln_im2col(&"},
    {"windows with holes, of some channels of a tensor",
     "p { in bf16 X(1, 12, 9, 192) const bf16 W(72, 64, 3, 3) = ... temp f32 t0(1, 12, 9, 72) out "
     "bf16 y(1, 12, 9, 72) "
     "t0(i0:1, i1:12, i2:9, i3:72 | r0:64, r1:3, r2:3) +=! f32(i1 + r1*2 >= 2 && i1 + r1*2 < 14 && "
     "i2 + r2*2 >= 2 && i2 + r2*2 < 11 ? X(i0, i1 + r1*2 - 2, i2 + r2*2 - 2, r0 + 64) : 0bf16) * "
     "f32(W(i3, r0, r1, r2)) "
     "y(i0:1, i1:12, i2:9, i3:72) = bf16(t0(i0, i1, i2, i3)) }",
     1, "kiln_im2col(&"},
    {"windows of groups of channels, of a row, that lie inside",
     "p { in f16 X(70, 128) const f16 W(2, 64, 64, 5) = ... temp f32 t0(2, 66, 64) out f16 y(2, "
     "66, "
     "64) "
     "t0(i0:2, i1:66, i2:64 | r0:64, r1:5) +=! f32(X(i1 + r1, i0*64 + r0)) * f32(W(i0, i2, r0, "
     "r1)) "
     "y(i0:2, i1:66, i2:64) = f16(t0(i0, i1, i2)) }",
     1, "kiln_im2col(&"},
    {"windows that begin further inside than a map can say",
     "p { in f16 X(1, 200, 4, 64) const f16 W(64, 64, 3) = ... temp f32 t0(1, 40, 2, 64) out f16 "
     "y(1, 40, 2, 64) "
     "t0(i0:1, i1:40, i2:2, i3:64 | r0:64, r1:3) +=! f32(X(i0, i1 + 150, i2 + r1, r0)) * f32(W(i3, "
     "r0, r1)) "
     "y(i0:1, i1:40, i2:2, i3:64) = f16(t0(i0, i1, i2, i3)) }",
     1, "  kiln_copy_async(&"},
    {"windows of which one side alone is padded, by a constant",
     "p { in f16 X(1, 9, 9, 64) const f16 W(64, 64, 2, 2) = ... temp f32 t0(1, 9, 9, 64) out f16 "
     "y(1, 9, 9, 64) "
     "t0(i0:1, i1:9, i2:9, i3:64 | r0:64, r1:2, r2:2) +=! f32(i1 + r1 < 9 && i2 + r2 < 9 ? X(i0, "
     "i1 + r1, i2 + r2, r0) : 1f16) * f32(W(i3, r0, r1, r2)) "
     "y(i0:1, i1:9, i2:9, i3:64) = f16(t0(i0, i1, i2, i3)) }",
     1, NULL},
    {"a reduction over flattened channels of what is stored channels last",
     "p { in f16 X(64, 2, 2, 32) const f16 W(64, 128) = ... temp f32 t0(64, 64) out f16 y(64, 64) "
     "t0(i0:64, i1:64 | r0:128) +=! f32(X(i0, r0 / 2 % 2, r0 % 2, r0 / 4)) * f32(W(i1, r0)) "
     "y(i0:64, i1:64) = f16(t0(i0, i1)) }",
     1, ", &kiln_map_1, "}, // both by TMA
    {"rows computed from two slices",
     "p { in f16 X(64, 256) const f16 W(64, 128) = ... temp f32 t0(64, 64) out f16 y(64, 64) "
     "t0(i0:64, i1:64 | r0:128) +=! f32(max(X(i0, r0), 1f16) * X(i0, r0 + 128)) * f32(W(i1, r0)) "
     "y(i0:64, i1:64) = f16(t0(i0, i1)) }",
     1, "= *(const uint4 *)&X["},
    {"a last step of half a step: rows that end, and constants",
     "p { in f16 X(72, 96) const f16 W(136, 96) = ... temp f32 t0(72, 136) out f16 y(72, 136) "
     "t0(i0:72, i1:136 | r0:96) +=! f32(X(i0, r0)) * f32(W(i1, r0)) "
     "y(i0:72, i1:136) = f16(t0(i0, i1)) }",
     2, ", &kiln_map_1, "},
    {"a last step of a quarter, of a batch, where rows of the other operand do not end",
     "p { in bf16 X(2, 64, 144) in bf16 Z(2, 144, 64) temp f32 t0(2, 64, 64) out bf16 y(2, 64, 64) "
     "t0(i0:2, i1:64, i2:64 | r0:144) +=! f32(X(i0, i1, r0)) * f32(Z(i0, r0, i2)) "
     "y(i0:2, i1:64, i2:64) = bf16(t0(i0, i1, i2)) }",
     1, "kiln_tma(&"},
    {"a last step behind which there are no rows, of either operand",
     "p { in f16 X(96, 72) in f16 Z(96, 64) temp f32 t0(72, 64) out f16 y(72, 64) "
     "t0(i0:72, i1:64 | r0:96) +=! f32(X(r0, i0)) * f32(Z(r0, i1)) "
     "y(i0:72, i1:64) = f16(t0(i0, i1)) }",
     1, ", &kiln_map_1, "},
    {"a last step of some words, rows of a slice",
     "p { in f16 X(64, 200) const f16 W(64, 104) = ... temp f32 t0(64, 64) out f16 y(64, 64) "
     "t0(i0:64, i1:64 | r0:104) +=! f32(X(i0, r0 + 8)) * f32(W(i1, r0)) "
     "y(i0:64, i1:64) = f16(t0(i0, i1)) }",
     1, "kiln_tma(&"},
    {"windows of half a step's channels",
     "p { in f16 X(1, 8, 8, 32) const f16 W(64, 32, 3, 3) = ... temp f32 t0(1, 8, 8, 64) out f16 "
     "y(1, 8, 8, 64) "
     "t0(i0:1, i1:8, i2:8, i3:64 | r0:32, r1:3, r2:3) +=! f32(i1 + r1 >= 1 && i1 + r1 < 9 && i2 + "
     "r2 >= 1 && i2 + r2 < 9 ? X(i0, i1 + r1 - 1, i2 + r2 - 1, r0) : 0f16) * f32(W(i3, r0, r1, "
     "r2)) "
     "y(i0:1, i1:8, i2:8, i3:64) = f16(t0(i0, i1, i2, i3)) }",
     1, "kiln_tma(&"},
    {"splits of a reduction whose last step is ragged",
     "p { in f16 X(64, 224) in f16 Z(224, 64) temp f32 t0(64, 64) out f16 y(64, 64) "
     "t0(i0:64, i1:64 | r0:224) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:64, i1:64) = f16(t0(i0, i1)) }",
     2, ", &kiln_map_1, "},
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

// Text that the code of each candidate contains, in this order.
static const char *const forms[] = {
    "kiln_matrix(const uint16_t *at",  "wgmma.mma_async.sync.aligned.m64n",
    "fence.proxy.async.shared::cta",   "__syncthreads()",
    "wgmma.fence.sync.aligned",        "wgmma.commit_group.sync.aligned",
    "wgmma.wait_group.sync.aligned 1", "wgmma.wait_group.sync.aligned 0",
};

static bool has_note(kiln_ctx *cx, const kiln_loop *l, const char *key) {
  for (; l; l = l->next) {
    for (const kiln_note *note = l->notes; note; note = note->next)
      if (strcmp(kiln_symbol_text(cx, note->key), key) == 0) return true;
    if (has_note(cx, l->body, key)) return true;
  }
  return false;
}

static bool is_specialized(kiln_ctx *cx, const kiln_loop *l) {
  return has_note(cx, l, KILN_WARP_SPECIALIZE_NOTE);
}

// Its candidates have tests of their own.
static bool has_cluster(const kiln_tile_candidate *c) {
  return strstr(c->tiling.form, ", clusters of ") != NULL;
}

// Earlier launches are waited for before all loads except TMA copies of constants; results of a
// nest go through shared memory.
static void check_order(const char *code, int n, const kiln_gpu_launch *launches,
                        bool has_constants, const char *name) {
  const char *body = strstr(code, "__global__"), *producer = strstr(body, "empty_phases[0] ="),
             *from = producer ? producer : body, *wait = strstr(from, "kiln_wait()"),
             *copy = strstr(from, producer ? "kiln_tma_copy(&" : "kiln_tma(&"),
             *last = strstr(body, "wait_group.sync.aligned 0");
  for (int i = 0; i < n; i++) assert_true(launches[i].waits);
  if (!wait || !copy || (copy < wait) != has_constants)
    fail_msg("%s: must wait for launches %s the first copy", name,
             has_constants ? "behind" : "in front of");
  if (n == 1 && !strstr(last, producer ? "kiln_barrier_sync(consumer + 1, " : "__syncthreads()"))
    fail_msg("%s: threads must wait for results in shared memory", name);
}

static const char *code_of(test_kernel *k, const kiln_machine *m, kiln_loops *l, int *n,
                           kiln_gpu_launch **launches) {
  kiln_text text;
  kiln_text_init(&text, &k->cx.perm);
  if (kiln_gpu_emit(&k->cx, m, l, "k", &text, n, launches) != KILN_OK)
    fail_msg("%s", kernel_message(k));
  return text.data;
}

static void check_code(test_kernel *k, const kiln_machine *m, kiln_loops *l, bool has_constants,
                       const char *name, const char *has) {
  kiln_gpu_launch *launches = NULL;
  int n = 0;
  const char *code = code_of(k, m, l, &n, &launches), *at = code;
  for (size_t i = 0; i < KILN_LEN(forms); i++) {
    at = strstr(at, forms[i]);
    if (!at) fail_msg("%s: the code must have \"%s\" behind what is before it", name, forms[i]);
    at += strlen(forms[i]);
  }
  check_order(code, n, launches, has_constants, name);
  if (has && !strstr(code, has)) fail_msg("%s: the code must have \"%s\"", name, has);
}

static void products_of_warp_groups_compute_what_is_asked(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(cases); row++) {
    test_kernel k;
    kiln_machine m = {0};
    kiln_tile_candidates found = {0};
    kiln_lowering w = lowering_open(&k, &m, cases[row].text);
    assert_int_equal(kiln_gpu_machine_named(&k.cx, "cuda:sm_90a", &m), KILN_OK);
    kiln_product_make(&k.cx, &m, k.prog);
    w.root = k.prog->stmts.data[k.prog->stmts.n - 1];
    assert_int_equal(kiln_template_gpu_wgmma.propose(&w, &found), KILN_OK);
    if (found.n < cases[row].n)
      fail_msg("%s: must have %d candidates, got %d", cases[row].name, cases[row].n, found.n);
    for (int i = 0; i < found.n; i++) {
      if (has_cluster(&found.data[i]) || !test_takes(row << 8 | (unsigned)i)) continue;
      assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &w.s), KILN_OK);
      w.s.instrs = kiln_gpu_instrs(&k.cx, &m, &w.s.n_instrs);
      lowering_expect_ok(&k, &w, kiln_template_gpu_wgmma.lower(&w, &found.data[i].tiling));
      kernel_check_replay(&k, &w.s);
      lowering_expect_right(&k, &w);
      check_code(&k, &m, w.s.loops, strstr(cases[row].text, " const ") != NULL, cases[row].name,
                 cases[row].has);
    }
    kernel_close(&k);
  }
}

// --- clusters ---

static const struct {
  const char *name, *text;
  int64_t blocks;
  bool refills, is_whole; // candidates whose stages are refilled, and others
  const char *has;        // what the code of one has: who shares rows, and columns
} clusters[] = {
    {"rows of four, columns of two",
     "p { in f16 X(128, 128) in f16 Z(128, 256) temp f32 t0(128, 256) out f16 y(128, 256) "
     "t0(i0:128, i1:256 | r0:128) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:128, i1:256) = f16(t0(i0, i1)) }",
     8, false, true, "kiln_peers(UINT64_C(0xaa55aa55aa55aa55))"},
    {"four of ragged tiles",
     "p { in f16 X(200, 128) in f16 Z(128, 136) temp f32 t0(200, 136) out f16 y(200, 136) "
     "t0(i0:200, i1:136 | r0:128) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:200, i1:136) = f16(t0(i0, i1)) }",
     4, false, true, "kiln_peers(UINT64_C(0xf0f0f0f))"},
    {"two",
     "p { in f16 X(256, 320) in f16 Z(320, 256) temp f32 t0(256, 256) out f16 y(256, 256) "
     "t0(i0:256, i1:256 | r0:320) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:256, i1:256) = f16(t0(i0, i1)) }",
     2, true, true, "kiln_peers(UINT64_C(0x303))"},
    {"a convolution, whose constants alone come by TMA",
     "p { in f16 X(1, 8, 32, 64) const f16 W(64, 64, 3, 3) = ... temp f32 t0(1, 8, 32, 64) out f16 "
     "y(1, 8, 32, 64) "
     "t0(i0:1, i1:8, i2:32, i3:64 | r0:64, r1:3, r2:3) +=! f32(i1 + r1 >= 1 && i1 + r1 < 9 && i2 + "
     "r2 >= 1 && i2 + r2 < 33 ? X(i0, i1 + r1 - 1, i2 + r2 - 1, r0) : 1f16) * f32(W(i3, r0, r1, "
     "r2)) "
     "y(i0:1, i1:8, i2:32, i3:64) = f16(t0(i0, i1, i2, i3)) }",
     2, false, false, "kiln_tma(&"},
    {"two, the last step ragged",
     "p { in f16 X(256, 288) in f16 Z(288, 256) temp f32 t0(256, 256) out f16 y(256, 256) "
     "t0(i0:256, i1:256 | r0:288) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:256, i1:256) = f16(t0(i0, i1)) }",
     2, true, true, "kiln_peers(UINT64_C(0x303))"},
};

static const kiln_loop *blocks_in(const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->how == KILN_BLOCK_X) return l;
    const kiln_loop *inner = blocks_in(l->body);
    if (inner) return inner;
  }
  return NULL;
}

typedef struct clustered {
  int n, refilled,
      whole; // candidates; those whose blocks multicast to stages that are refilled, and others
  bool has;
  const char *sources[8], *names[8];
} clustered;

// The text of each candidate in clusters; the first one is also run in the simulator.
static void take_clusters(test_kernel *k, kiln_machine *m, kiln_lowering *w, size_t row,
                          clustered *out) {
  const int64_t blocks = clusters[row].blocks;
  const char *head = kiln_arena_printf(&k->cx.perm, "__cluster_dims__(%d, 1, 1)", (int)blocks);
  kiln_tile_candidates found = {0};
  assert_int_equal(kiln_template_gpu_wgmma.propose(w, &found), KILN_OK);
  for (int i = 0; i < found.n && out->n < (int)KILN_LEN(out->sources); i++) {
    int64_t extent = 0;
    if (has_cluster(&found.data[i])) continue;
    assert_int_equal(kiln_schedule_begin(&k->cx, k->prog, &w->s), KILN_OK);
    w->s.instrs = kiln_gpu_instrs(&k->cx, m, &w->s.n_instrs);
    lowering_expect_ok(k, w, kiln_template_gpu_wgmma.lower(w, &found.data[i].tiling));
    const kiln_loop *l = blocks_in(w->s.loops->body);
    if (is_specialized(&k->cx, l)) continue;
    if (!kiln_expr_is_int(l->extent, &extent) || extent % blocks) continue;
    lowering_expect_ok(k, w, kiln_cluster(&w->s, l->var, blocks));
    kernel_check_replay(k, &w->s);
    if (out->n == 0 && test_takes(row)) lowering_expect_right(k, w);
    kiln_gpu_launch *launches = NULL;
    int n = 0;
    const char *code = code_of(k, m, w->s.loops, &n, &launches),
               *parts = strstr(code, "kiln_tma_multicast(&");
    const bool refills = strstr(code, "  kiln_mbarrier_arrive_all(") != NULL;
    out->names[out->n] = "cluster";
    out->sources[out->n++] = code;
    out->refilled += refills;
    out->whole += parts && !refills;
    out->has |= strstr(code, clusters[row].has) != NULL;
    if (!strstr(code, head)) fail_msg("%s: the code must have \"%s\"", clusters[row].name, head);
    if (parts && !strstr(parts, "kiln_cluster_wait();"))
      fail_msg("%s: blocks must wait for each other before they end", clusters[row].name);
  }
}

// Compiles the first, and a share of the others, which are similar.
static void compile_some(test_kernel *k, const kiln_machine *m, size_t row, const clustered *c) {
  kiln_object out[KILN_LEN(c->sources)] = {0};
  const char *sources[KILN_LEN(c->sources)], *names[KILN_LEN(c->sources)];
  int n = 0;
  for (int i = 0; i < c->n; i++) {
    if (i > 0 && !test_takes(row << 8 | (unsigned)i)) continue;
    sources[n] = c->sources[i];
    names[n++] = c->names[i];
  }
  const kiln_status st = kiln_target_cuda.compiler->compile(&k->cx, m, n, sources, names, 2, out);
  if (st == KILN_DEVICE_ERROR) return; // there is no NVRTC
  if (st != KILN_OK) fail_msg("%s", kernel_message(k));
  for (int i = 0; i < n; i++) free(out[i].data);
}

static void blocks_of_clusters_share_what_they_read(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(clusters); row++) {
    test_kernel k;
    kiln_machine m = {0};
    clustered c = {0};
    kiln_lowering w = lowering_open(&k, &m, clusters[row].text);
    assert_int_equal(kiln_gpu_machine_named(&k.cx, "cuda:sm_90a", &m), KILN_OK);
    kiln_product_make(&k.cx, &m, k.prog);
    w.root = k.prog->stmts.data[k.prog->stmts.n - 1];
    take_clusters(&k, &m, &w, row, &c);
    if (!c.n || !c.has || (c.refilled > 0) != clusters[row].refills ||
        (c.whole > 0) != clusters[row].is_whole)
      fail_msg("%s: %d candidates, %d share what is filled again, %d what is not, %s who shares",
               clusters[row].name, c.n, c.refilled, c.whole, c.has ? "as expected" : "others");
    compile_some(&k, &m, row, &c);
    kernel_close(&k);
  }
}

// Candidates in clusters, each of which multicasts; the first is run in the simulator, too.
static void clusters_that_are_proposed_multicast(void **state) {
  (void)state;
  static const int proposed[] = {3, 3, 3, 0, 3}; // by row of |clusters|, at least
  for (size_t row = 0; row < KILN_LEN(clusters); row++) {
    test_kernel k;
    kiln_machine m = {0};
    kiln_tile_candidates found = {0};
    clustered c = {0};
    kiln_lowering w = lowering_open(&k, &m, clusters[row].text);
    assert_int_equal(kiln_gpu_machine_named(&k.cx, "cuda:sm_90a", &m), KILN_OK);
    kiln_product_make(&k.cx, &m, k.prog);
    w.root = k.prog->stmts.data[k.prog->stmts.n - 1];
    assert_int_equal(kiln_template_gpu_wgmma.propose(&w, &found), KILN_OK);
    for (int i = 0; i < found.n; i++) {
      kiln_gpu_launch *launches = NULL;
      int n = 0;
      if (!has_cluster(&found.data[i]) || c.n == (int)KILN_LEN(c.sources)) continue;
      assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &w.s), KILN_OK);
      w.s.instrs = kiln_gpu_instrs(&k.cx, &m, &w.s.n_instrs);
      lowering_expect_ok(&k, &w, kiln_template_gpu_wgmma.lower(&w, &found.data[i].tiling));
      kernel_check_replay(&k, &w.s);
      if (c.n == 0 && test_takes(row)) lowering_expect_right(&k, &w);
      c.names[c.n] = "cluster";
      c.sources[c.n] = code_of(&k, &m, w.s.loops, &n, &launches);
      if (!strstr(c.sources[c.n], "kiln_tma_multicast(&"))
        fail_msg("%s, %s: copies must be multicast", clusters[row].name, found.data[i].tiling.form);
      c.n++;
    }
    if (c.n < proposed[row] || (c.n > 0) != (proposed[row] > 0))
      fail_msg("%s: must have %d candidates, got %d", clusters[row].name, proposed[row], c.n);
    compile_some(&k, &m, row, &c);
    kernel_close(&k);
  }
}

// --- warp specialization ---

enum { FEW_UNITS = 2 }; // multiprocessors, so that blocks have several tiles

static const struct {
  const char *name, *text;
  int consumers, blocks;
  const char *has;
} specialized[] = {
    {"two consumers, whose steps the stages divide",
     "p { in f16 X(200, 192) in f16 Z(192, 136) temp f32 t0(200, 136) out f16 y(200, 136) "
     "t0(i0:200, i1:136 | r0:192) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:200, i1:136) = f16(t0(i0, i1)) }",
     2, FEW_UNITS, "full_phases[0] ^= (uint32_t)(7)"},
    {"stages that are used unevenly, a last wave of one block",
     "p { in f16 X(264, 320) in f16 Z(320, 128) in f16 R(264, 128) temp f32 t0(264, 128) out f16 "
     "y(264, 128) t0(i0:264, i1:128 | r0:320) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:264, i1:128) = f16(t0(i0, i1)) + R(i0, i1) }",
     2, FEW_UNITS, "full_phases[0] ^= (uint32_t)(14)"},
    {"two consumers, two steps, the last ragged",
     "p { in f16 X(200, 96) in f16 Z(96, 136) temp f32 t0(200, 136) out f16 y(200, 136) "
     "t0(i0:200, i1:136 | r0:96) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:200, i1:136) = f16(t0(i0, i1)) }",
     2, FEW_UNITS, "#pragma unroll 1\n"},
    {"one consumer, by constants",
     "p { in f16 X(64, 640) const f16 W(640, 64) = ... temp f32 t0(64, 64) out f16 y(64, 64) "
     "t0(i0:64, i1:64 | r0:640) +=! f32(X(i0, r0)) * f32(W(r0, i1)) "
     "y(i0:64, i1:64) = f16(t0(i0, i1)) }",
     1, 1, "kiln_mbarrier_arrive(empty + 3)"},
};

static void producers_and_consumers_compute_the_product(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(specialized); row++) {
    test_kernel k;
    kiln_machine m = {0};
    kiln_tile_candidates found = {0};
    kiln_device few;
    kiln_lowering w = lowering_propose(&k, &m, &few, FEW_UNITS, specialized[row].text,
                                       &kiln_template_gpu_wgmma, &found);
    clustered all = {0};
    for (int i = 0; i < found.n; i++) {
      assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &w.s), KILN_OK);
      w.s.instrs = kiln_gpu_instrs(&k.cx, &m, &w.s.n_instrs);
      lowering_expect_ok(&k, &w, kiln_template_gpu_wgmma.lower(&w, &found.data[i].tiling));
      if (!is_specialized(&k.cx, w.s.loops->body) ||
          strstr(found.data[i].tiling.form, " stream-K "))
        continue;
      kernel_check_replay(&k, &w.s);
      if (test_takes(row)) lowering_expect_right(&k, &w);
      kiln_gpu_launch *launches = NULL;
      int n = 0;
      const char *code = code_of(&k, &m, w.s.loops, &n, &launches);
      all.names[all.n] = "specialized";
      all.sources[all.n++] = code;
      assert_int_equal(launches[0].block[1], specialized[row].consumers + 1);
      assert_int_equal(launches[0].grid[0], specialized[row].blocks);
      if (!strstr(code, specialized[row].has))
        fail_msg("%s: the code must have \"%s\"", specialized[row].name, specialized[row].has);
    }
    if (all.n != 1)
      fail_msg("%s: must have one specialized candidate, got %d", specialized[row].name, all.n);
    compile_some(&k, &m, row, &all);
    kernel_close(&k);
  }
}

// --- stream-K ---

static const struct {
  const char *name, *text;
  int units, n, specialized; // multiprocessors, candidates, those with a producer warp
  const char *has;
} stream_k[] = {
    {"two steps, of two tiles of three",
     "p { in f16 X(64, 192) in f16 Z(192, 128) temp f32 t0(64, 128) out f16 y(64, 128) "
     "t0(i0:64, i1:128 | r0:192) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:64, i1:128) = f16(t0(i0, i1)) }",
     4, 1, 0, "for (;; step_k++) {"},
    {"stream-K shares that begin and end within tiles, a last step that is ragged, a residual",
     "p { in bf16 X(128, 288) in bf16 Z(128, 288) in f32 R(128, 128) temp f32 t0(128, 128) out f32 "
     "y(128, 128) t0(i0:128, i1:128 | r0:288) +=! f32(X(i0, r0)) * f32(Z(i1, r0)) "
     "y(i0:128, i1:128) = t0(i0, i1) + R(i0, i1) }",
     7, 3, 1, "for (;; step_k++) {"},
    {"stream-K shares of more than a tile",
     "p { in f16 X(192, 128) in f16 Z(128, 192) temp f32 t0(192, 192) out f16 y(192, 192) "
     "t0(i0:192, i1:192 | r0:128) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:192, i1:192) = f16(t0(i0, i1)) }",
     6, 1, 1, "for (;; step_k++) {"},
    {"a batch, of constants",
     "p { in f16 X(2, 64, 320) const f16 W(2, 320, 64) = ... temp f32 t0(2, 64, 64) out f16 y(2, "
     "64, 64) t0(i0:2, i1:64, i2:64 | r0:320) +=! f32(X(i0, i1, r0)) * f32(W(i0, r0, i2)) "
     "y(i0:2, i1:64, i2:64) = f16(t0(i0, i1, i2)) }",
     5, 1, 0, "for (;; step_k++) {"},
    {"ragged rows and columns, which threads copy",
     "p { in f16 X(72, 192) in f16 Z(192, 136) temp f32 t0(72, 136) out f16 y(72, 136) "
     "t0(i0:72, i1:136 | r0:192) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
     "y(i0:72, i1:136) = f16(t0(i0, i1)) }",
     9, 1, 0, "kiln_copy_async("},
};

static void stream_k_computes_the_product(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(stream_k); row++) {
    test_kernel k;
    kiln_machine m = {0};
    kiln_tile_candidates found = {0};
    kiln_device few;
    kiln_lowering w = lowering_propose(&k, &m, &few, stream_k[row].units, stream_k[row].text,
                                       &kiln_template_gpu_wgmma, &found);
    clustered all = {0};
    int n_found = 0, n_specialized = 0;
    for (int i = 0; i < found.n; i++) {
      kiln_gpu_launch *launches = NULL;
      int n = 0;
      if (!strstr(found.data[i].tiling.form, " stream-K ")) continue;
      assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &w.s), KILN_OK);
      w.s.instrs = kiln_gpu_instrs(&k.cx, &m, &w.s.n_instrs);
      lowering_expect_ok(&k, &w, kiln_template_gpu_wgmma.lower(&w, &found.data[i].tiling));
      kernel_check_replay(&k, &w.s);
      if (test_takes(row)) lowering_expect_right(&k, &w);
      const char *code = code_of(&k, &m, w.s.loops, &n, &launches);
      n_found++;
      n_specialized += is_specialized(&k.cx, w.s.loops->body);
      if (all.n < (int)KILN_LEN(all.sources))
        all.names[all.n] = "stream-K", all.sources[all.n++] = code;
      assert_int_equal(n, 2);
      assert_true(launches[0].grid[0] <= stream_k[row].units);
      if (is_specialized(&k.cx, w.s.loops->body)) assert_non_null(strstr(code, "step_k_begin"));
      if (!strstr(code, stream_k[row].has))
        fail_msg("%s: the code must have \"%s\"", stream_k[row].name, stream_k[row].has);
    }
    if (n_found < stream_k[row].n || n_specialized != stream_k[row].specialized)
      fail_msg("%s: must have %d candidates, %d with a producer warp, got %d and %d",
               stream_k[row].name, stream_k[row].n, stream_k[row].specialized, n_found,
               n_specialized);
    compile_some(&k, &m, row, &all);
    kernel_close(&k);
  }
}

// A loop whose tiles do not begin where others end is written as it is.
static void runs_are_found_where_tiles_follow_each_other(void **state) {
  (void)state;
  test_kernel k;
  kiln_machine m = {0};
  kiln_tile_candidates found = {0};
  kiln_device few;
  kiln_lowering w = lowering_propose(&k, &m, &few, stream_k[0].units, stream_k[0].text,
                                     &kiln_template_gpu_wgmma, &found);
  for (int i = 0; i < found.n; i++) {
    kiln_gpu_launch *launches = NULL;
    int n = 0;
    if (!strstr(found.data[i].tiling.form, " stream-K ")) continue;
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &w.s), KILN_OK);
    w.s.instrs = kiln_gpu_instrs(&k.cx, &m, &w.s.n_instrs);
    lowering_expect_ok(&k, &w, kiln_template_gpu_wgmma.lower(&w, &found.data[i].tiling));
    const kiln_loop *steps = kiln_loops_find(w.s.loops, kiln_symbol_of(&k.cx, "step.k"));
    kiln_loop *first = steps->body, *last = steps->body;
    while (last->next) last = last->next;
    while (first->next->kind == KILN_LOOP_IF) first = first->next;
    assert_non_null(strstr(code_of(&k, &m, w.s.loops, &n, &launches), "for (;; step_k++) {"));
    last->cond = first->cond;
    assert_null(strstr(code_of(&k, &m, w.s.loops, &n, &launches), "for (;; step_k++) {"));
  }
  kernel_close(&k);
}

static void expect_refused(test_kernel *k, const kiln_machine *m, kiln_loops *l, const char *why) {
  assert_int_equal(kiln_gpu_check(&k->cx, m, l), KILN_BAD_INPUT);
  if (!strstr(kernel_message(k), why)) fail_msg("must say \"%s\": %s", why, kernel_message(k));
}

// Nests whose copies a producer warp cannot issue.
static void warp_specialization_that_cannot_be_is_refused(void **state) {
  (void)state;
  static const char text[] =
      "p { in f16 X(264, 192) in f16 Z(192, 128) temp f32 t0(264, 128) out f16 y(264, 128) "
      "t0(i0:264, i1:128 | r0:192) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
      "y(i0:264, i1:128) = f16(t0(i0, i1)) }";
  test_kernel k;
  kiln_machine m = {0};
  kiln_tile_candidates found = {0};
  kiln_lowering w = lowering_open(&k, &m, text);
  assert_int_equal(kiln_gpu_machine_named(&k.cx, "cuda:sm_90a", &m), KILN_OK);
  kiln_product_make(&k.cx, &m, k.prog);
  w.root = k.prog->stmts.data[k.prog->stmts.n - 1];
  assert_int_equal(kiln_template_gpu_wgmma.propose(&w, &found), KILN_OK);
  int n_refused = 0;
  for (int i = 0; i < found.n; i++) {
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &w.s), KILN_OK);
    w.s.instrs = kiln_gpu_instrs(&k.cx, &m, &w.s.n_instrs);
    lowering_expect_ok(&k, &w, kiln_template_gpu_wgmma.lower(&w, &found.data[i].tiling));
    kiln_loop *l = (kiln_loop *)blocks_in(w.s.loops->body);
    int64_t extent = 0;
    if (!kiln_expr_is_int(l->extent, &extent) || extent % 2 || is_specialized(&k.cx, l)) continue;
    lowering_expect_ok(&k, &w, kiln_cluster(&w.s, l->var, 2));
    lowering_expect_ok(&k, &w, kiln_warp_specialize(&w.s, l->var, 1));
    expect_refused(&k, &m, w.s.loops, "and blocks without clusters");
    lowering_expect_ok(&k, &w,
                       kiln_annotate(&w.s, l->var, kiln_symbol_of(&k.cx, KILN_WARP_SPECIALIZE_NOTE),
                                     kiln_symbol_of(&k.cx, "2")));
    expect_refused(&k, &m, w.s.loops, "or 1 of blocks, got 2 of blocks");
    n_refused++;
    break;
  }
  assert_int_equal(n_refused, 1);
  kernel_close(&k);
}

// --- steps that exceed the end ---

static kiln_loop *bounded_copy_in(kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_INSTR && l->instr->is_tma && l->cond) return l;
    kiln_loop *inner = bounded_copy_in(l->body);
    if (inner) return inner;
  }
  return NULL;
}

static void tma_copies_zeros_where_tensors_end_alone(void **state) {
  (void)state;
  static const char text[] =
      "p { in f16 X(64, 96) in f16 Z(96, 64) temp f32 t0(64, 64) out f16 "
      "y(64, 64) t0(i0:64, i1:64 | r0:96) +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "
      "y(i0:64, i1:64) = f16(t0(i0, i1)) }";
  static const int64_t ends[] = {96, 88, 97}; // of rows, within them, behind them
  test_kernel k;
  kiln_machine m = {0};
  kiln_tile_candidates found = {0};
  kiln_lowering w = lowering_open(&k, &m, text);
  assert_int_equal(kiln_gpu_machine_named(&k.cx, "cuda:sm_90a", &m), KILN_OK);
  kiln_product_make(&k.cx, &m, k.prog);
  w.root = k.prog->stmts.data[k.prog->stmts.n - 1];
  assert_int_equal(kiln_template_gpu_wgmma.propose(&w, &found), KILN_OK);
  assert_true(found.n > 0);
  for (size_t i = 0; i < KILN_LEN(ends); i++) {
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &w.s), KILN_OK);
    w.s.instrs = kiln_gpu_instrs(&k.cx, &m, &w.s.n_instrs);
    lowering_expect_ok(&k, &w, kiln_template_gpu_wgmma.lower(&w, &found.data[0].tiling));
    kiln_loop *copy = bounded_copy_in(w.s.loops->body);
    const kiln_expr *from = copy->operands[1];
    const kiln_symbol x = kiln_symbol_of(&k.cx, "X");
    const int along = w.s.loops->buffers.data[from->u.tensor]->name == x ? 1 : 0;
    copy->cond = kiln_binary(&k.cx, KILN_EXPR_LT, from->args[along], kiln_int(&k.cx, ends[i]));
    if (i > 0) expect_refused(&k, &m, w.s.loops, "copies zeros beyond the end of a tensor's rows");
    else lowering_expect_ok(&k, &w, kiln_gpu_check(&k.cx, &m, w.s.loops));
  }
  kernel_close(&k);
}

// --- prices ---

#define ROWS_OF(m, k, n, finish)                                                                   \
  "p { in f16 X(" #m ", " #k ") const f16 W(" #k ", " #n ") = ... temp f32 t0(" #m ", " #n         \
  ") out f16 y(" #m ", " #n ") t0(i0:" #m ", i1:" #n " | r0:" #k                                   \
  ") +=! f32(X(i0, r0)) * f32(W(r0, i1)) y(i0:" #m ", i1:" #n ") = f16(" finish ") }"
#define SUM "t0(i0, i1)"
#define GELU SUM " * (erf(" SUM " / 1.4142135f32) + 1f32) * 0.5f32"

static const struct {
  const char *text;
  bool is_short; // cheaper than by warp groups
} priced[] = {
    {ROWS_OF(200704, 96, 384, GELU), true}, // both are bound by the epilogue
    {ROWS_OF(200704, 96, 96, SUM), true},   // and by memory
    {ROWS_OF(50176, 192, 768, GELU), false}, {ROWS_OF(65536, 96, 512, SUM), false},
    {ROWS_OF(16384, 160, 160, SUM), false},
};

#define PRODUCT(m, k, n, b)                                                                        \
  "p { in f16 X(" #m ", " #k ") " b " temp f32 t0(" #m ", " #n ") out f16 y(" #m ", " #n           \
  ") t0(i0:" #m ", i1:" #n " | r0:" #k ") +=! f32(X(i0, r0)) * f32(W(r0, i1)) y(i0:" #m ", i1:" #n \
  ") = f16(t0(i0, i1)) }"

// The cost of clusters of two relative to none, in the measured order, and percentages between
// which it must be. A candidate that runs all steps at once costs no more.
static const struct {
  const char *text;
  double least, most;
} handed_over[] = {
    {PRODUCT(128, 768, 3072, "in f16 W(768, 3072)"), 0, 0},
    {PRODUCT(4096, 4096, 4096, "in f16 W(4096, 4096)"), 1, 4},
    {PRODUCT(8192, 8192, 8192, "in f16 W(8192, 8192)"), 1, 4},
    {PRODUCT(8192, 3072, 768, "in f16 W(3072, 768)"), 4, 20},
    {PRODUCT(8192, 768, 3072, "in f16 W(768, 3072)"), 8, 20},
    {PRODUCT(128, 768, 3072, "const f16 W(768, 3072) = ..."), 20, 35},
};

// The cheapest in clusters of |blocks|.
static const kiln_tile_candidate *cheapest_cluster(const kiln_tile_candidates *found, int blocks) {
  const kiln_tile_candidate *best = NULL;
  for (int i = 0; i < found->n; i++) {
    const kiln_tile_candidate *c = &found->data[i];
    const char *at = strstr(c->tiling.form, ", clusters of ");
    if (at && strtol(at + strlen(", clusters of "), NULL, 10) == blocks &&
        (!best || c->cost.ns < best->cost.ns))
      best = c;
  }
  return best;
}

// The candidate that differs from |c| in that its blocks are in clusters of |blocks|, or (1) in
// none.
static const kiln_tile_candidate *twin(test_kernel *k, const kiln_tile_candidates *found,
                                       const kiln_tile_candidate *c, int blocks) {
  const int n = (int)(strstr(c->tiling.form, ", clusters of ") - c->tiling.form);
  const char *more = blocks > 1 ? kiln_arena_printf(&k->cx.perm, ", clusters of %d", blocks) : "",
             *form = kiln_arena_printf(&k->cx.perm, "%.*s%s", n, c->tiling.form, more);
  for (int i = 0; i < found->n; i++)
    if (strcmp(found->data[i].tiling.form, form) == 0 &&
        memcmp(found->data[i].tiling.block, c->tiling.block, sizeof c->tiling.block) == 0)
      return &found->data[i];
  return NULL;
}

static void clusters_cost_what_releasing_stages_does(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(handed_over); row++) {
    test_kernel k = {.diag = kiln_diag_create()};
    kiln_machine m = {0};
    kiln_tile_candidates found = {0};
    assert_int_equal(kiln_ctx_init(&k.cx, k.diag), KILN_OK);
    assert_int_equal(kiln_program_parse(&k.cx, handed_over[row].text, &k.prog), KILN_OK);
    assert_int_equal(kiln_gpu_machine_named(&k.cx, "cuda:sm_90a", &m), KILN_OK);
    kiln_product_make(&k.cx, &m, k.prog);
    kiln_lowering w = {.cx = &k.cx, .p = k.prog, .m = &m, .proposed = &k.cx.perm};
    w.root = k.prog->stmts.data[k.prog->stmts.n - 1];
    assert_int_equal(kiln_template_gpu_wgmma.propose(&w, &found), KILN_OK);
    const int l2 = kiln_device_level(m.device, "L2"),
              level = kiln_device_level(m.device, "cluster");
    const kiln_tile_candidate *two = cheapest_cluster(&found, 2), *none = twin(&k, &found, two, 1),
                              *four = twin(&k, &found, two, 4);
    const double more = 100 * (two->cost.ns / none->cost.ns - 1);
    if (more < handed_over[row].least || more > handed_over[row].most)
      fail_msg("row %zu: must cost %.0f to %.0f percent more, got %.1f", row,
               handed_over[row].least, handed_over[row].most, more);
    if (four && four->cost.ns < two->cost.ns) fail_msg("row %zu: four must not cost less", row);
    assert_true(two->cost.bytes[l2] < none->cost.bytes[l2]);
    assert_true(two->cost.bytes[level] == none->cost.bytes[l2]);
    kiln_ctx_deinit(&k.cx);
    kiln_diag_destroy(k.diag);
  }
}

static double cheapest(kiln_lowering *w, const kiln_template *family) {
  kiln_tile_candidates found = {0};
  double least = INFINITY;
  assert_int_equal(family->propose(w, &found), KILN_OK);
  for (int i = 0; i < found.n; i++) least = fmin(least, found.data[i].cost.ns);
  return least;
}

static void prices_know_padded_steps_and_what_follows(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(priced); row++) {
    test_kernel k = {.diag = kiln_diag_create()};
    kiln_machine m = {0};
    assert_int_equal(kiln_ctx_init(&k.cx, k.diag), KILN_OK);
    assert_int_equal(kiln_gpu_machine_named(&k.cx, "cuda:sm_90a", &m), KILN_OK);
    assert_int_equal(kiln_program_parse(&k.cx, priced[row].text, &k.prog), KILN_OK);
    kiln_product_make(&k.cx, &m, k.prog);
    kiln_lowering w = {.cx = &k.cx, .p = k.prog, .m = &m, .proposed = &k.cx.perm};
    const double few = cheapest(&w, &kiln_template_gpu_small_k),
                 groups = cheapest(&w, &kiln_template_gpu_wgmma);
    if (isinf(groups) || (few < groups) != priced[row].is_short)
      fail_msg("%s: short %.0f ns, wgmma %.0f ns", priced[row].text, few, groups);
    kiln_ctx_deinit(&k.cx);
    kiln_diag_destroy(k.diag);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_of_warp_groups_compute_what_is_asked),
      cmocka_unit_test(blocks_of_clusters_share_what_they_read),
      cmocka_unit_test(clusters_that_are_proposed_multicast),
      cmocka_unit_test(producers_and_consumers_compute_the_product),
      cmocka_unit_test(stream_k_computes_the_product),
      cmocka_unit_test(runs_are_found_where_tiles_follow_each_other),
      cmocka_unit_test(warp_specialization_that_cannot_be_is_refused),
      cmocka_unit_test(tma_copies_zeros_where_tensors_end_alone),
      cmocka_unit_test(prices_know_padded_steps_and_what_follows),
      cmocka_unit_test(clusters_cost_what_releasing_stages_does)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

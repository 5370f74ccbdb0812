// Polyhedral schedules on GPUs: blocks and threads of every nest, copies in shared memory, and
// results in the simulator, which finds races.
#include "target/gpu/gpu.h"
#include "unit/schedule/kernel.h"

#include "polyhedral/polyhedral.h"

#define BLUR                                                                                       \
  "p { in f32 X(302, 500) temp f32 B(302, 498) out f32 Y(300, 498) "                               \
  "B(i0:302, i1:498) = X(i0, i1) + X(i0, i1 + 1) + X(i0, i1 + 2) "                                 \
  "Y(i0:300, i1:498) = B(i0, i1) + B(i0 + 1, i1) + B(i0 + 2, i1) }"
#define SQUARES                                                                                    \
  "p { in f32 X(204, 304) temp f32 T(204, 304) temp f32 U(202, 302) out f32 Y(200, 300) "          \
  "T(i0:204, i1:304) = exp(X(i0, i1)) "                                                            \
  "U(i0:202, i1:302 | r0:3, r1:3) +=! T(i0 + r0, i1 + r1) "                                        \
  "Y(i0:200, i1:300 | r0:3, r1:3) max=! U(i0 + r0, i1 + r1) }"
#define PRODUCT                                                                                    \
  "p { in f32 X(250, 40) in f32 V(40, 300) out f32 Y(250, 300) "                                   \
  "Y(i0:250, i1:300 | r0:40) +=! X(i0, r0) * V(r0, i1) }"
#define DISTANCE                                                                                   \
  "p { in f32 X(250, 40) in f32 V(300, 40) out f32 Y(250, 300) "                                   \
  "Y(i0:250, i1:300 | r0:40) +=! abs(X(i0, r0) - V(i1, r0)) }"
#define SOFTMAX                                                                                    \
  "p { in f32 X(400, 120) temp f32 M(400) temp f32 E(400, 120) temp f32 S(400) out f32 Y(400, "    \
  "120) M(i0:400 | r0:120) max=! X(i0, r0) E(i0:400, i1:120) = exp(X(i0, i1) - M(i0)) "            \
  "S(i0:400 | r0:120) +=! E(i0, r0) Y(i0:400, i1:120) = E(i0, i1) / S(i0) }"
#define ROWS "p { in f32 X(60, 5000) out f32 Y(60) Y(i0:60 | r0:5000) +=! X(i0, r0) }"
#define COLUMNS "p { in f32 X(5000, 60) out f32 Y(60) Y(i0:60 | r0:5000) max=! X(r0, i0) }"
#define ALL "p { in f32 X(300, 500) out f32 Y(1) Y(i0:1 | r0:300, r1:500) +=! X(r0, r1) }"
#define TRANSPOSE                                                                                  \
  "p { in f32 X(300, 400) out f32 Y(400, 300) Y(i0:400, i1:300) = X(i1, i0) + X(i1, i0 + 0) }"
#define CROSS                                                                                      \
  "p { in f32 X(402, 302) out f32 Y(400, 300) Y(i0:400, i1:300) = X(i0 + 1, i1 + 1) * 4f32 - "     \
  "X(i0, i1 + 1) - X(i0 + 2, i1 + 1) - X(i0 + 1, i1) - X(i0 + 1, i1 + 2) }"
#define PIXELS                                                                                     \
  "p { in f32 X(300, 200, 3) temp f32 G(300, 200) out f32 Y(300, 200, 3) "                         \
  "G(i0:300, i1:200) = X(i0, i1, 0) + X(i0, i1, 1) + X(i0, i1, 2) "                                \
  "Y(i0:300, i1:200, i2:3) = X(i0, i1, i2) / G(i0, i1) }"
#define GATHER                                                                                     \
  "p { in f32 X(300, 90) in i64 I(200) temp f32 T(300, 90) out f32 Y(200, 90) T(i0:300, i1:90) = " \
  "X(i0, i1) * 2f32 Y(i0:200, i1:90) = T(I(i0), i1) }"
#define SHIFTED                                                                                    \
  "p { in f32 X(7000) out f32 B(6998) out f32 Y(6996) B(i0:6998) = X(i0) + X(i0 + 2) "             \
  "Y(i0:6996) = B(i0) + B(i0 + 2) }"
#define MOMENTS                                                                                    \
  "p { in f32 X(240, 350) out f32 M(240) out f32 V(240) M(i0:240 | r0:350) +=! X(i0, r0) "         \
  "V(i0:240 | r0:350) +=! (X(i0, r0) - M(i0)) * (X(i0, r0) - M(i0)) }"

static const struct {
  const char *text;
  kiln_fusion fusion;
  bool promote;
  const char *has, *lacks; // of the script
} cases[] = {
    // overlapped tiles: the producer in shared memory, with its halo
    {BLUR, KILN_FUSION_MAX, false, "compute_at B ", NULL},
    {BLUR, KILN_FUSION_MIN, false, NULL, "compute_at"},
    {SQUARES, KILN_FUSION_MAX, false, " shared\n", NULL},
    {SQUARES, KILN_FUSION_MAX, true, " shared\n", NULL},
    // sums in registers
    {PRODUCT, KILN_FUSION_MAX, false, "compute_at Y.sums Y.copy.1.p local\n", NULL},
    {PRODUCT, KILN_FUSION_MAX, true, "stage X ", NULL},
    {DISTANCE, KILN_FUSION_MAX, true, "stage V ", NULL},
    // rows of a block: several threads a sum
    {SOFTMAX, KILN_FUSION_MAX, false, "rfactor ", NULL},
    {SOFTMAX, KILN_FUSION_MIN, false, NULL, NULL},
    // few sums: their terms in several threads, or blocks
    {ROWS, KILN_FUSION_MAX, false, "rfactor ", NULL},
    {COLUMNS, KILN_FUSION_MAX, false, "rfactor ", NULL},
    {ALL, KILN_FUSION_MAX, false, "rfactor ", NULL},
    // what is read again, or across the rows
    {CROSS, KILN_FUSION_MAX, false, NULL, "stage"},
    {CROSS, KILN_FUSION_MAX, true, "stage X ", NULL},
    {TRANSPOSE, KILN_FUSION_MAX, false, "storage_align X.", NULL},
    {PIXELS, KILN_FUSION_MAX, false, NULL, NULL},
    {GATHER, KILN_FUSION_MAX, false, NULL, NULL},
    {SHIFTED, KILN_FUSION_MAX, false, "# B Y: not merged: ", NULL},
    {MOMENTS, KILN_FUSION_MAX, false, NULL, NULL},
};

typedef struct grid {
  int64_t blocks, threads;
} grid;

static void add_grid(const kiln_loop *l, grid around, grid *most) {
  for (; l; l = l->next) {
    grid g = around;
    int64_t extent = 1;
    if (l->kind == KILN_LOOP_FOR) (void)kiln_expr_is_int(l->extent, &extent);
    if (l->kind == KILN_LOOP_FOR && kiln_how_is_block(l->how)) g.blocks *= extent;
    if (l->kind == KILN_LOOP_FOR && kiln_how_is_thread(l->how)) g.threads *= extent;
    if (g.blocks > most->blocks) most->blocks = g.blocks;
    if (g.threads > most->threads) most->threads = g.threads;
    add_grid(l->body, g, most);
  }
}

// The operations of a nest: iterations of its statements.
static double work_of(const kiln_loop *l, double times) {
  double n = 0;
  for (; l; l = l->next) {
    int64_t extent = 1;
    if (l->kind == KILN_LOOP_FOR) (void)kiln_expr_is_int(l->extent, &extent);
    n += l->kind == KILN_LOOP_STORE ? times : work_of(l->body, times * (double)extent);
  }
  return n;
}

// 128 threads a block at least, and blocks for all multiprocessors, in each nest that has work for
// them.
static void check_grids(const kiln_machine *m, const kiln_loops *l, const char *script) {
  for (const kiln_loop *n = l->body; n; n = n->next) {
    grid g = {1, 1};
    kiln_loop alone = *n;
    alone.next = NULL;
    add_grid(&alone, g, &g);
    const double work = work_of(&alone, 1);
    if (g.threads > m->gpu.max_threads || (work >= 4096 && g.threads < 96) ||
        (work >= 60000 && g.blocks < m->n_cores / 2) ||
        (work >= 20000 && g.blocks * g.threads < 4096))
      fail_msg("%.0f operations in %lld blocks of %lld threads\n%s", work, (long long)g.blocks,
               (long long)g.threads, script);
  }
}

static void grids_fill_the_machine_and_results_are_right(void **state) {
  (void)state;
  static const char *const targets[] = {"cuda:sm_80", "cuda:sm_90a", "opencl"};
  for (size_t i = 0; i < KILN_LEN(cases); i++)
    for (size_t t = 0; t < KILN_LEN(targets); t++) {
      test_kernel k;
      kiln_machine m;
      kiln_loops *l = NULL;
      kiln_schedule again;
      const char *script = "";
      const kiln_polyhedral_options o = {.fusion = cases[i].fusion, .promote = cases[i].promote};
      kernel_open(&k, cases[i].text, i);
      assert_int_equal(kiln_gpu_machine_named(&k.cx, targets[t], &m), KILN_OK);
      if (kiln_polyhedral_schedule(&k.cx, k.prog, &m, 1, &o, &l, &script) != KILN_OK)
        fail_msg("row %zu: %s", i, kernel_message(&k));
      assert_int_equal(kiln_loops_verify(&k.cx, l), KILN_OK);
      if (cases[i].has && !strstr(script, cases[i].has))
        fail_msg("row %zu must have \"%s\", got\n%s", i, cases[i].has, script);
      if (cases[i].lacks && strstr(script, cases[i].lacks))
        fail_msg("row %zu must not have \"%s\", got\n%s", i, cases[i].lacks, script);
      if (strcmp(targets[t], "opencl") != 0) check_grids(&m, l, script);
      assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &again), KILN_OK);
      if (kiln_schedule_replay(&again, script) != KILN_OK)
        fail_msg("%s\n%s", kernel_message(&k), script);
      assert_string_equal(kernel_text(&k, again.loops), kernel_text(&k, l));
      if (t == 0) kernel_check(&k, l, script);
      kernel_close(&k);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(grids_fill_the_machine_and_results_are_right),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

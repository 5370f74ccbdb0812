// Prices of kernels: they depend on the work of the loops, not on how it is expressed.
#include "fuse/searches.h"

#include "unit/fixture.h"

// Megabytes of the last cache; transfers take as long as the arithmetic of a few operations.
static const kiln_device device = {
    .n_units = 2,
    .n_levels = 5,
    .launch_ns = 20,
    .fork_ns = 1000,
    .levels = {{"memory", INT64_MAX, 1, 64, 14, 28, 0, 0, 100, 2, false},
               {"L3", 256 << 20, 0.5, 64, 48, 96, 0, 0, 17, 2, false},
               {"L2", 2 << 20, 0.6, 64, 96, 192, 0, 0, 5, 1, false},
               {"L1", 48 << 10, 0.5, 64, 384, 768, 0, 0, 2, 1, false},
               {"registers", 2048, 1, 64, 1152, 2304, 0, 0, 0, 1, true}},
    .unit_flops_ns = {[KILN_PEAK_F32] = 192},
    .all_flops_ns = {[KILN_PEAK_F32] = 384}};
static const kiln_machine machine = {.target = &kiln_target_cpu,
                                     .vector_bytes = 64,
                                     .n_vector_regs = 32,
                                     .l1_bytes = 48 << 10,
                                     .l2_bytes = 2 << 20,
                                     .n_cores = 2,
                                     .device = &device};

static double price_of(fixture *f, kiln_group_kind kind, const char *text) {
  const kiln_tile_search_options options = {
      .machine = &machine, .n_threads = 2, .n_lowered = 1, .by_loops = true};
  kiln_tile_candidates found;
  kiln_program *p = NULL;
  if (kiln_program_parse(&f->cx, text, &p) != KILN_OK ||
      kiln_tile_propose(&f->cx, kind, p, NULL, &options, &found) != KILN_OK)
    fail_msg("%s: %s", text, kiln_diag_message(f->diag, 0));
  return kiln_tile_price(&found);
}

#define IN_OUT "p { in f32 X(512, 1024) out f32 y(512, 1024) "
#define NORM                                                                                       \
  "t0(i1:64 | r0:4096) +=! X(r0, i1) t1(i1:64) = t0(i1) / 4096f32 "                                \
  "t2(i1:64 | r0:4096) +=! (X(r0, i1) - t1(i1)) * (X(r0, i1) - t1(i1)) "

static const struct {
  const char *name;
  kiln_group_kind kind;
  const char *dearer, *cheaper;
  double least, most; // times as much
} cases[] = {
    {"element by element, across the rows", KILN_GROUP_MAP,
     "p { in f32 X(1024, 512) out f32 y(512, 1024) y(i0:512, i1:1024) = X(i1, i0) * 2f32 }",
     IN_OUT "y(i0:512, i1:1024) = X(i0, i1) * 2f32 }", 1.5, 8},
    {"functions", KILN_GROUP_MAP,
     IN_OUT
     "y(i0:512, i1:1024) = exp(X(i0, i1)) * tanh(X(i0, i1)) / (1f32 + exp(neg(X(i0, i1)))) }",
     IN_OUT "y(i0:512, i1:1024) = X(i0, i1) * 2f32 }", 1.1, 4},
    {"what a row gives is computed once a row", KILN_GROUP_MAP,
     "p { in f32 X(512, 1024) in f32 S(512) out f32 y(512, 1024) "
     "y(i0:512, i1:1024) = X(i0, i1) * exp(tanh(S(i0))) }",
     IN_OUT "y(i0:512, i1:1024) = X(i0, i1) * 2f32 }", 1, 1.1},
    {"two of the size", KILN_GROUP_MAP,
     "p { in f32 X(1024, 1024) out f32 y(1024, 1024) y(i0:1024, i1:1024) = X(i0, i1) * 2f32 }",
     IN_OUT "y(i0:512, i1:1024) = X(i0, i1) * 2f32 }", 1.7, 2.3},
    {"three passes over what no thread keeps, and one", KILN_GROUP_ROWS,
     "p { in f32 X(4096, 64) temp f32 t0(64) temp f32 t1(64) temp f32 t2(64) out f32 y(4096, "
     "64) " NORM "y(i0:4096, i1:64) = (X(i0, i1) - t1(i1)) * t2(i1) }",
     "p { in f32 X(4096, 64) in f32 t1(64) in f32 t2(64) temp f32 t3(4096, 64) out f32 y(4096, 64) "
     "t3(i0:4096, i1:64) = (X(i0, i1) - t1(i1)) y(i0:4096, i1:64) = t3(i0, i1) * t2(i1) }",
     1.3, 6},
};

static void loops_say_what_a_kernel_costs(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(cases); i++) {
    const double dearer = price_of(f, cases[i].kind, cases[i].dearer),
                 cheaper = price_of(f, cases[i].kind, cases[i].cheaper);
    if (!(dearer >= cases[i].least * cheaper) || !(dearer <= cases[i].most * cheaper))
      fail_msg("%s: must be %g to %g times as much, got %g and %g ns", cases[i].name,
               cases[i].least, cases[i].most, dearer, cheaper);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {FIXTURE_TEST(loops_say_what_a_kernel_costs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

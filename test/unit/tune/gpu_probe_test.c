// Micro-benchmarks of GPUs compile for each architecture that they are for.
#include "tune/gpu_probe.h"

#include "target/gpu/gpu.h"
#include "unit/fixture.h"

static void every_probe_compiles(void **state) {
  static const char *const archs[] = {"cuda:sm_80", "cuda:sm_90a"};
  fixture *f = *state;
  for (size_t a = 0; a < KILN_LEN(archs); a++) {
    kiln_machine m;
    assert_int_equal(kiln_gpu_machine_named(&f->cx, archs[a], &m), KILN_OK);
    const char *sources[64], *names[64];
    kiln_object out[64] = {0};
    int n = 0;
    for (int i = 0; i < kiln_n_gpu_probes; i++) {
      const kiln_gpu_probe *p = &kiln_gpu_probes[i];
      if (p->capability > m.gpu.capability || (p->needs_wgmma && !m.gpu.has_wgmma)) continue;
      sources[n++] = kiln_gpu_probe_source(&f->cx, p);
    }
    sources[n++] = kiln_gpu_spin_source(&f->cx, m.gpu.capability >= 90);
    for (int i = 0; i < n; i++) names[i] = "probe";
    const kiln_status s = m.target->compiler->compile(&f->cx, &m, n, sources, names, 2, out);
    if (s == KILN_DEVICE_ERROR) skip();
    if (s != KILN_OK) fail_msg("%s: %s", archs[a], kiln_diag_message(f->diag, 0));
    for (int i = 0; i < n; i++) kiln_object_deinit(&out[i]);
  }
}

static void each_figure_of_an_instruction_has_a_probe(void **state) {
  (void)state;
  for (int figure = 0; figure < KILN_GPU_LAUNCH_NS; figure++) {
    int n = 0;
    for (int i = 0; i < kiln_n_gpu_probes; i++)
      n += kiln_gpu_probes[i].figure == (kiln_gpu_figure)figure;
    if (n != 1) fail_msg("%s: %d", kiln_gpu_figure_names[figure], n);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {FIXTURE_TEST(every_probe_compiles),
                                     FIXTURE_TEST(each_figure_of_an_instruction_has_a_probe)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

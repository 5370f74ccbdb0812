// Candidates of one template for GPUs with tensor cores, on a small machine: the device loops of
// each are run by the simulator and compared with the reference.
#ifndef KILN_TEST_UNIT_TILE_GPU_CANDIDATES_H
#define KILN_TEST_UNIT_TILE_GPU_CANDIDATES_H

#include "driver/pipeline.h"
#include "unit/tile/launches.h"
#include "unit/share.h"

#include "target/gpu/gpu.h"

static const kiln_device device = {
    .name = "test",
    .n_units = 4,
    .n_levels = 4,
    .levels = {{"memory", INT64_MAX, 1, 32, 100, 1000, 100, 1000, 500, 4, false},
               {"L2", 1 << 22, 0.5, 32, 100, 4000, 100, 4000, 200, 4, false},
               {"shared", 160 << 10, 1, 4, 400, 1600, 400, 1600, 30, 1, true},
               {"registers", 256 << 10, 1, 4, 4000, 16000, 4000, 16000, 0, 1, true}},
    .unit_flops_ns = {400, 4000, 0},
    .all_flops_ns = {1600, 0, 0},
    .launch_ns = 2000};
#define MACHINE(name, version)                                                                     \
  {                                                                                                \
    .target = &kiln_target_cuda,                                                                   \
    .gpu = {.arch = name,                                                                          \
            .capability = version,                                                                 \
            .has_wgmma = version == 90,                                                            \
            .warp = 32,                                                                            \
            .max_threads = 1024,                                                                   \
            .shared_bytes = 160 << 10,                                                             \
            .registers = 65536,                                                                    \
            .max_resident = 2048},                                                                 \
    .vector_bytes = 16, .n_vector_regs = 255, .n_cores = 4, .device = &device                      \
  }
static const kiln_machine machine = MACHINE("sm_80", 80), hopper = MACHINE("sm_90a", 90);

static void compare_halves(test_kernel *k, const kiln_tensor *t, const void *got,
                           const char *text) {
  const void *want = kiln_interpreter_data(k->reference, t->id);
  double error = 0, norm = 0;
  for (int64_t i = 0; i < kiln_tensor_elems(t); i++) {
    const double w = kiln_element_get(t->dtype, want, i), g = kiln_element_get(t->dtype, got, i);
    error += (w - g) * (w - g);
    norm += w * w;
  }
  const double most = t->dtype == KILN_F16 ? 2e-3 : 1.6e-2;
  if (!(sqrt(error) <= most * sqrt(norm)))
    fail_msg("relative error must be %g at most, got %g in %s", most, sqrt(error / norm), text);
}

// Fuses all groups to one kernel at any cost: a kiln_tile_options' |orchestrate|.
static kiln_status unite_all(kiln_ctx *cx, void *user, const kiln_program *p,
                             const kiln_facts *facts, const kiln_tile_search_options *search,
                             kiln_searches *known, kiln_fused_groups *io,
                             kiln_edge_decisions *io_edges) {
  kiln_group all = {.kind = KILN_GROUP_FUSED_LAYERS,
                    .stmts = KILN_NEW_ARRAY(&cx->perm, int, p->stmts.n)};
  kiln_fused_group *one = KILN_NEW(&cx->perm, kiln_fused_group);
  kiln_searched found;
  bool is_new = false;
  (void)user, (void)io_edges;
  for (int i = 0; i < p->stmts.n; i++) {
    if (!p->stmts.data[i]) continue;
    const bool is_output = p->tensors.data[p->stmts.data[i]->out]->role == KILN_OUTPUT;
    if (is_output && i + 1 < p->stmts.n) all.stored |= (uint64_t)1 << all.n_stmts;
    all.stmts[all.n_stmts++] = i;
  }
  KILN_TRY(kiln_searches_find(cx, known, p, facts, &all, search, &found, &is_new));
  one->group = all;
  one->candidates = found.candidates;
  *io = (kiln_fused_groups){one, 1, 1};
  return kiln_tile_outline(cx, p, facts, &one->group, search->machine, &one->outline);
}

// Whether a template fuses what other rules group apart.
static bool unites(const char *family) {
  static const char *const others[] = {"flash_attention", "mma", "parallel_k"};
  for (size_t i = 0; i < KILN_LEN(others); i++)
    if (strcmp(family, others[i]) == 0) return false;
  return true;
}

// Opens |k| over |text| and gives its only kernel, with |n| candidates lowered; |together|: all
// groups are fused.
static kiln_kernel *lowered(test_kernel *k, const kiln_machine *m, const char *text, int n_lowered,
                            bool together, kiln_kernels *out) {
  const kiln_tile_options options = {.search.n_threads = 1,
                                     .search.n_lowered = n_lowered,
                                     .search.no_connect = together,
                                     .orchestrate = together ? unite_all : NULL};
  kernel_open(k, text, 7);
  if (kiln_pipeline_tile(&k->cx, k->prog, m, &options, NULL, out) != KILN_OK)
    fail_msg("%s: %s", text, kernel_message(k));
  if (out->launches.n != 1) fail_msg("must take 1 kernel, got %d: %s", out->launches.n, text);
  return out->kernels.data[0];
}

// Runs those of the |n| cheapest candidates for |text| that are |family|'s and whose scripts
// contain |form|; gives their number.
static inline int check_all(const kiln_machine *m, const char *family, const char *text,
                            const char *form, int n_lowered) {
  test_kernel k;
  kiln_kernels kernels;
  kiln_kernel *kernel = lowered(&k, m, text, n_lowered, unites(family), &kernels);
  int n = 0;
  for (int i = 0; i < kernel->candidates.n; i++) {
    const kiln_tile_candidate *c = &kernel->candidates.data[i];
    if (strcmp(c->from->name, family) != 0) continue;
    if (c->refused) fail_msg("%s: %s", text, c->refused);
    if (!c->loops) continue;
    if (!strstr(c->script, form)) continue;
    if (n++ > 0 && !test_takes((uint64_t)i)) continue;
    kernel->loops = c->loops;
    launches_on = m;
    check_launches(&k, &kernels, compare_halves, text);
  }
  kernel_close(&k);
  return n;
}

// The same for each of |texts|, which must have some.
static inline void check_each(const kiln_machine *m, const char *family, size_t n_texts,
                              const char *const *texts, const char *form, int n_lowered) {
  for (size_t i = 0; i < n_texts; i++)
    if (test_takes(i) && check_all(m, family, texts[i], form, n_lowered) == 0)
      fail_msg("%s must propose a kernel by %s: %s", family, form, texts[i]);
}

// Compiles |family|'s candidates for |text| whose scripts contain |form|; the code of one must
// contain |code|.
static inline void check_compiles(const kiln_machine *m, const char *family, const char *text,
                                  const char *form, const char *code) {
  enum { MOST = 3 };
  bool has_code = false;
  test_kernel k;
  kiln_kernels kernels;
  kiln_gpu_launch *launches;
  const char *sources[MOST], *names[MOST] = {"k", "k", "k"};
  kiln_object objects[MOST];
  int n = 0, n_nests = 0;
  const kiln_kernel *kernel = lowered(&k, m, text, 30, unites(family), &kernels);
  for (int i = 0; i < kernel->candidates.n && n < MOST; i++) {
    kiln_text source;
    const kiln_tile_candidate *c = &kernel->candidates.data[i];
    if (strcmp(c->from->name, family) != 0 || !c->loops || !strstr(c->script, form)) continue;
    kiln_text_init(&source, &k.cx.perm);
    if (kiln_gpu_emit(&k.cx, m, c->loops, "k", &source, &n_nests, &launches) != KILN_OK)
      fail_msg("%s", kernel_message(&k));
    assert_int_equal(n_nests, 1);
    has_code |= strstr(source.data, code) != NULL;
    sources[n++] = source.data;
  }
  if (!has_code) fail_msg("must have %s in the code of %s", code, text);
  const kiln_status s = kiln_target_cuda.compiler->compile(&k.cx, m, n, sources, names, 2, objects);
  if (s != KILN_OK && s != KILN_DEVICE_ERROR) fail_msg("%s", kernel_message(&k));
  for (int i = 0; i < n && s == KILN_OK; i++) kiln_object_deinit(&objects[i]);
  kernel_close(&k);
}

// None of |texts|, each fused to one kernel, has the form of |family|, whatever runs it instead.
static inline void check_has_no_form(size_t n, const char *const *texts,
                                     const kiln_template *family) {
  for (size_t row = 0; row < n; row++) {
    test_kernel k;
    kiln_kernels kernels;
    const kiln_form outlined = {.prog =
                                    lowered(&k, &machine, texts[row], 1, true, &kernels)->outlined};
    if (kiln_template_match(&k.cx, family, &machine, &outlined))
      fail_msg("must have no such form: %s", texts[row]);
    kernel_close(&k);
  }
}

#endif

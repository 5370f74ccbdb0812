// GPUs by name, with the figures of their architecture: costs are estimated by them for a GPU that
// is not here; one that is here is measured.
#include "target/gpu/spelling.h"

#include <stdio.h>
#include <string.h>

typedef struct kiln_gpu_figures row;

// Shared memory that the blocks of a cluster reach. source: Luo et al., "Benchmarking and
// Dissecting the Nvidia Hopper GPU Architecture", 2024, section on the network between
// multiprocessors.
enum { CLUSTER_CAPABILITY = 90 };
static const double CLUSTER_BYTES_CLOCK = 16, CLUSTER_CLOCKS = 180;

enum { REGISTERS = 65536 }; // of a multiprocessor
static const double L2_BYTES_CLOCK = 32, SHARED_BYTES_CLOCK = 128, REGISTER_BYTES_CLOCK = 1536;
static const double MEMORY_NS = 500, L2_NS = 200, SHARED_NS = 15, LAUNCH_NS = 2000, BLOCK_NS = 20;

static void add_level(kiln_device *d, const char *name, int64_t bytes, double usable,
                      int transaction, double unit_bytes_ns, double all_bytes_ns, double latency) {
  d->levels[d->n_levels++] = (kiln_mem_level){.name = name,
                                              .capacity_bytes = bytes,
                                              .usable = usable,
                                              .transaction_bytes = transaction,
                                              .unit_bytes_ns = unit_bytes_ns,
                                              .all_bytes_ns = all_bytes_ns,
                                              .copy_unit_bytes_ns = unit_bytes_ns,
                                              .copy_all_bytes_ns = all_bytes_ns,
                                              .latency_ns = latency,
                                              .n_sharing = 1};
}

static void add_cluster(kiln_device *d, const row *r) {
  const double bytes_ns = CLUSTER_BYTES_CLOCK * r->clock_ghz;
  if (r->capability < CLUSTER_CAPABILITY) return;
  add_level(d, "cluster", KILN_MAX_CLUSTER * r->shared_bytes, 1, 128, bytes_ns,
            bytes_ns * r->n_units, CLUSTER_CLOCKS / r->clock_ghz);
  d->levels[d->n_levels - 1].n_sharing = KILN_MAX_CLUSTER;
  d->levels[d->n_levels - 1].is_explicit = true;
}

// As probes (tune/gpu_probe.h) measured them on an H200: the rate of `mma`, bytes a clock of a
// multiprocessor from the L2, alone and beside all others.
static const double MMA_BESIDE_WGMMA = 0.57, L2_ALONE_CLOCK = 100, L2_ALL_CLOCK = 66;

// What vendors say of the rates, at the peaks of |r|; and latencies of the levels above.
static void find_nominal(const row *r, kiln_device *d) {
  enum { WARP = 32, SPECIAL = 16, WORD = 16 }; // |SPECIAL|: functions a clock
  const double clock = r->clock_ghz, lanes = r->f32 / 2, special = (double)WARP / SPECIAL,
               half = r->half > 0 ? r->half / 2 : 0, int8 = r->int8 / 2;
  static const int widths[] = {64, 128, 192, 256};
  double *g = d->gpu;
  d->clock_ghz = clock;
  g[KILN_GPU_FMA_F32] = g[KILN_GPU_FMA_F16] = WARP / lanes;
  g[KILN_GPU_EXP2] = g[KILN_GPU_RECIPROCAL] = g[KILN_GPU_SQRT] = g[KILN_GPU_CONVERT] = special;
  g[KILN_GPU_SHARED_LOAD] = g[KILN_GPU_LDMATRIX] = WARP * WORD / SHARED_BYTES_CLOCK;
  // a warp's instructions reach less where warp groups have theirs
  const double share = r->has_wgmma ? MMA_BESIDE_WGMMA : 1;
  if (half > 0) g[KILN_GPU_MMA_F16] = g[KILN_GPU_MMA_BF16] = 16 * 8 * 16 / (share * half);
  if (half > 0) g[KILN_GPU_MMA_TF32] = 16 * 8 * 8 / (share * half / 2);
  if (int8 > 0) g[KILN_GPU_MMA_INT8] = 16 * 8 * 32 / (share * int8);
  for (int i = 0; i < (int)KILN_LEN(widths) && r->has_wgmma; i++)
    g[KILN_GPU_WGMMA_64 + i] = 64 * 16 * widths[i] / half;
  g[KILN_GPU_BARRIER] = SHARED_NS * clock;
  g[KILN_GPU_SHARED_LATENCY] = SHARED_NS * clock;
  g[KILN_GPU_L2_LATENCY] = L2_NS * clock;
  g[KILN_GPU_MEMORY_LATENCY] = MEMORY_NS * clock;
  g[KILN_GPU_CP_ASYNC_LATENCY] = g[KILN_GPU_TMA_LATENCY] = 2 * L2_NS * clock;
  g[KILN_GPU_L2_UNIT] = L2_ALONE_CLOCK;
  g[KILN_GPU_L2_ALL] = L2_ALL_CLOCK;
  g[KILN_GPU_MEMORY_UNIT] = d->levels[0].unit_bytes_ns / clock;
  g[KILN_GPU_MEMORY_ALL] = g[KILN_GPU_COPY_ALL] = r->memory_bytes_ns / clock / r->n_units;
  g[KILN_GPU_LAUNCH_NS] = g[KILN_GPU_EARLY_NS] = g[KILN_GPU_BEGIN_END_NS] = LAUNCH_NS;
  g[KILN_GPU_BLOCK_NS] = BLOCK_NS;
}

static const kiln_device *device_of(kiln_ctx *cx, const row *r) {
  kiln_device *d = KILN_NEW(&cx->perm, kiln_device);
  const double n = r->n_units, clock = r->clock_ghz,
               few = 4; // multiprocessors fill the memory's lanes
  *d = (kiln_device){.name = r->arch, .n_units = r->n_units, .launch_ns = LAUNCH_NS};
  add_level(d, "memory", INT64_MAX, 1, 32, r->memory_bytes_ns * few / n, r->memory_bytes_ns,
            MEMORY_NS);
  add_level(d, "L2", r->l2_bytes, 0.5, 32, L2_BYTES_CLOCK * clock, L2_BYTES_CLOCK * clock * n,
            L2_NS);
  d->levels[0].n_sharing = d->levels[1].n_sharing = r->n_units;
  add_cluster(d, r);
  add_level(d, "shared", r->shared_bytes, 1, 128, SHARED_BYTES_CLOCK * clock,
            SHARED_BYTES_CLOCK * clock * n, SHARED_NS);
  add_level(d, "registers", (int64_t)REGISTERS * 4, 1, 4, REGISTER_BYTES_CLOCK * clock,
            REGISTER_BYTES_CLOCK * clock * n, 0);
  d->levels[d->n_levels - 2].is_explicit = d->levels[d->n_levels - 1].is_explicit = true;
  d->unit_flops_ns[KILN_PEAK_F32] = r->f32 * clock;
  d->unit_flops_ns[KILN_PEAK_BF16] = r->half * clock;
  d->unit_flops_ns[KILN_PEAK_INT8] = r->int8 * clock;
  for (int i = 0; i < KILN_N_PEAKS; i++) d->all_flops_ns[i] = n * d->unit_flops_ns[i];
  find_nominal(r, d);
  return d;
}

// Whether the target has a single GPU, named like the target.
static bool is_only_one(const kiln_target *t) {
  return t->n_figures == 1 && strcmp(t->figures->arch, t->name) == 0;
}

static kiln_machine machine_of(kiln_ctx *cx, const kiln_target *t, const row *r) {
  kiln_machine m = {.target = t,
                    .gpu = t->common,
                    .vector_bytes = 16,
                    .has_fma = true,
                    .has_f16 = r->half > 0,
                    .has_bf16 = r->capability >= 80,
                    .n_cores = r->n_units,
                    .l2_bytes = r->l2_bytes,
                    .clock_ghz = r->clock_ghz,
                    .features = kiln_arena_strdup(&cx->perm, "")};
  m.gpu.capability = r->capability;
  m.gpu.has_wgmma = r->has_wgmma;
  m.gpu.shared_bytes = r->shared_bytes;
  m.gpu.max_resident = (int)r->max_resident;
  if (!is_only_one(t)) memcpy(m.gpu.arch, r->arch, strlen(r->arch) + 1);
  memcpy(m.processor, r->arch, strlen(r->arch) + 1);
  memcpy(m.cpu, r->arch, strlen(r->arch) + 1);
  m.device = device_of(cx, r);
  return m;
}

// "cuda:sm_90a", "opencl"
static const char *full_name(kiln_ctx *cx, const kiln_target *t, const row *r) {
  return is_only_one(t) ? t->name : kiln_arena_printf(&cx->scratch, "%s:%s", t->name, r->arch);
}

// Appends the GPUs' names: of targets with a single one (is_only_one), or of all others.
static void put_names(kiln_ctx *cx, bool only_ones, kiln_text *out) {
  const int begin = out->n;
  for (int i = 0; kiln_targets[i]; i++) {
    const kiln_target *t = kiln_targets[i];
    for (int k = 0; k < t->n_figures && is_only_one(t) == only_ones; k++)
      kiln_text_printf(out, "%s%s", out->n > begin ? ", " : "", full_name(cx, t, &t->figures[k]));
  }
}

kiln_status kiln_gpu_machine_named(kiln_ctx *cx, const char *name, kiln_machine *out) {
  kiln_text all;
  memset(out, 0, sizeof *out);
  for (int i = 0; kiln_targets[i]; i++) {
    const kiln_target *t = kiln_targets[i];
    for (int k = 0; k < t->n_figures; k++) {
      if (strcmp(name, full_name(cx, t, &t->figures[k])) != 0) continue;
      *out = machine_of(cx, t, &t->figures[k]);
      return KILN_OK;
    }
  }
  kiln_text_init(&all, &cx->scratch);
  put_names(cx, true, &all);
  kiln_text_add(&all, " or one of ");
  put_names(cx, false, &all);
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "options", "target: a GPU must be %s, got %s",
                   all.data, name);
}

static bool same(int64_t a, int64_t b) { return a == b || b == 0; }

void kiln_gpu_machine_take_card(kiln_ctx *cx, const kiln_gpu_card *card, kiln_machine *io) {
  const kiln_target *t = io->target;
  for (int k = 0; k < t->n_figures; k++) {
    row r = t->figures[k];
    if (strcmp(r.arch, io->gpu.arch) != 0) continue;
    if (card->n_units) r.n_units = card->n_units;
    if (card->l2_bytes) r.l2_bytes = card->l2_bytes;
    if (card->shared_bytes) r.shared_bytes = card->shared_bytes;
    if (card->max_resident) r.max_resident = card->max_resident;
    const bool is_as_tabled =
        same(t->figures[k].n_units, card->n_units) && same(t->figures[k].l2_bytes, card->l2_bytes);
    // bandwidth of the table's card goes with its multiprocessors
    if (!is_as_tabled) r.memory_bytes_ns *= (double)r.n_units / t->figures[k].n_units;
    const kiln_gpu before = io->gpu;
    *io = machine_of(cx, t, &r);
    io->gpu.rounds_to_tf32 = before.rounds_to_tf32;
    snprintf(io->processor, sizeof io->processor, "%s", card->name);
    return;
  }
}

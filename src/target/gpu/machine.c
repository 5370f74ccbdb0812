// GPUs by name. The figures are those that the vendor gives for the largest card of the architecture for
// servers, so that code for a GPU that is not here is chosen by something; a GPU that is here is measured.
#include "target/gpu/gpu.h"

#include <string.h>

// Figures a clock are those of one multiprocessor.
typedef struct row {
  const char *name;
  kiln_machine_kind kind;
  int capability;
  int n_units; // multiprocessors
  double clock_ghz;
  int64_t shared_bytes, l2_bytes, max_resident;
  double memory_bytes_ns;
  double f32, half,
      int8; // operations a clock, a multiply-add is two; the half types' by tensor cores
} row;

enum { KIB = 1024, MIB = 1024 * 1024, REGISTERS = 65536 };

// clang-format off
static const row rows[] = {
  // name                                            clock  shared      L2       resident memory  f32  half  int8
  {"sm_75",   KILN_MACHINE_CUDA,  75,   40, 1.59,  64 * KIB,   4 * MIB, 1024,  320, 128,  1024,  2048},
  {"sm_80",   KILN_MACHINE_CUDA,  80,  108, 1.41, 163 * KIB,  40 * MIB, 2048, 1555, 128,  2048,  4096},
  {"sm_86",   KILN_MACHINE_CUDA,  86,   72, 1.69,  99 * KIB,   6 * MIB, 1536,  600, 256,  1024,  2048},
  {"sm_89",   KILN_MACHINE_CUDA,  89,  142, 2.52,  99 * KIB,  96 * MIB, 1536,  864, 256,  1024,  2048},
  {"sm_90",   KILN_MACHINE_CUDA,  90,  132, 1.75, 227 * KIB,  50 * MIB, 2048, 4800, 256,  4096,  8192},
  {"sm_90a",  KILN_MACHINE_CUDA,  90,  132, 1.75, 227 * KIB,  50 * MIB, 2048, 4800, 256,  4096,  8192},
  {"sm_100a", KILN_MACHINE_CUDA, 100,  148, 1.85, 227 * KIB, 126 * MIB, 2048, 8000, 256,  8192, 16384},
  {"gfx90a",  KILN_MACHINE_HIP,   0,   110, 1.70,  64 * KIB,   8 * MIB, 2048, 1638, 128,     0,     0},
  {"gfx942",  KILN_MACHINE_HIP,   0,   304, 2.10,  64 * KIB,   4 * MIB, 2048, 5300, 256,     0,     0},
};
// What every device of OpenCL has; nobody knows how fast it is.
static const row opencl =
  {"opencl", KILN_MACHINE_OPENCL, 0, 16, 1.00, 32 * KIB, 1 * MIB, 1024, 100, 128, 0, 0};
// clang-format on

// Shared memory that the blocks of a cluster reach. source: Luo et al., "Benchmarking and Dissecting the Nvidia Hopper
// GPU Architecture", 2024, section on the network between multiprocessors.
enum { CLUSTER_CAPABILITY = 90 };
static const double CLUSTER_BYTES_CLOCK = 16, CLUSTER_CLOCKS = 180;

enum { OTHER_THREADS = 256, CUDA_THREADS = 1024, WARP = 32 };
static const double L2_BYTES_CLOCK = 32, SHARED_BYTES_CLOCK = 128, REGISTER_BYTES_CLOCK = 1536;
static const double MEMORY_NS = 500, L2_NS = 200, SHARED_NS = 15, LAUNCH_NS = 2000;

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
  if (r->kind != KILN_MACHINE_CUDA || r->capability < CLUSTER_CAPABILITY) return;
  add_level(d, "cluster", KILN_MAX_CLUSTER * r->shared_bytes, 1, 128, bytes_ns,
            bytes_ns * r->n_units, CLUSTER_CLOCKS / r->clock_ghz);
  d->levels[d->n_levels - 1].n_sharing = KILN_MAX_CLUSTER;
  d->levels[d->n_levels - 1].is_explicit = true;
}

static const kiln_device *device_of(kiln_ctx *cx, const row *r) {
  kiln_device *d = KILN_NEW(&cx->perm, kiln_device);
  const double n = r->n_units, clock = r->clock_ghz,
               few = 4; // multiprocessors fill the memory's lanes
  *d = (kiln_device){.name = r->name, .n_units = r->n_units, .launch_ns = LAUNCH_NS};
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
  return d;
}

static kiln_machine machine_of(kiln_ctx *cx, const row *r) {
  const bool is_cuda = r->kind == KILN_MACHINE_CUDA;
  kiln_machine m = {.kind = r->kind,
                    .vector_bytes = 16,
                    .has_fma = true,
                    .has_f16 = is_cuda,
                    .has_bf16 = r->capability >= 80,
                    .n_cores = r->n_units,
                    .l2_bytes = r->l2_bytes,
                    .clock_ghz = r->clock_ghz,
                    .features = kiln_arena_strdup(&cx->perm, "")};
  m.gpu = (kiln_gpu){.capability = r->capability,
                     .warp = is_cuda ? WARP : 1,
                     .max_threads = is_cuda ? CUDA_THREADS : OTHER_THREADS,
                     .shared_bytes = r->shared_bytes,
                     .registers = is_cuda ? REGISTERS : 0,
                     .max_resident = (int)r->max_resident};
  if (r != &opencl) memcpy(m.gpu.arch, r->name, strlen(r->name) + 1);
  memcpy(m.processor, r->name, strlen(r->name) + 1);
  memcpy(m.cpu, r->name, strlen(r->name) + 1);
  m.device = device_of(cx, r);
  return m;
}

static const char *full_name(kiln_ctx *cx, const row *r) {
  const char *maker = r->kind == KILN_MACHINE_HIP ? "hip" : "cuda";
  return kiln_arena_printf(&cx->scratch, "%s:%s", maker, r->name);
}

kiln_status kiln_gpu_machine_named(kiln_ctx *cx, const char *name, kiln_machine *out) {
  kiln_text all;
  memset(out, 0, sizeof *out);
  if (strcmp(name, "opencl") == 0) {
    *out = machine_of(cx, &opencl);
    return KILN_OK;
  }
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    if (strcmp(name, full_name(cx, &rows[i])) == 0) {
      *out = machine_of(cx, &rows[i]);
      return KILN_OK;
    }
  }
  kiln_text_init(&all, &cx->scratch);
  for (size_t i = 0; i < KILN_LEN(rows); i++)
    kiln_text_printf(&all, "%s%s", i ? ", " : "", full_name(cx, &rows[i]));
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "target", "a GPU must be opencl or one of %s, got %s",
                   all.data, name);
}

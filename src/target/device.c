// Devices: levels by name, and nominal figures for machines that were not measured.
#include "target/target.h"

#include <string.h>

int kiln_device_level(const kiln_device *d, const char *name) {
  for (int i = 0; i < d->n_levels; i++)
    if (strcmp(d->levels[i].name, name) == 0) return i;
  return -1;
}

int kiln_machine_ways(const kiln_machine *m, int level) {
  static const int usual[] = {8, 8, 16};
  return m->ways[level - 1] > 0 ? m->ways[level - 1] : usual[level - 1];
}

// --- nominal figures ---

// Bytes per clock of a core, and latency in clocks; memory has its own clock, so its figures are in
// nanoseconds. A part of each cache is used by other data, the stack and the operating system, and
// caches of few ways evict before they are full: hence the usable shares.
static const struct {
  const char *name;
  double usable, vectors_clock, latency_clocks; // vectors of at most 32 bytes
} caches[] = {
    {"L3", 0.5, 0.5, 50},
    {"L2", 0.6, 1, 14},
};
static const double L1_USABLE = 0.5, L1_LATENCY = 5;
static const double MEMORY_BYTES_NS = 14, MEMORY_LATENCY_NS = 100;
static const double LAUNCH_NS = 20, FORK_NS = 1000;
enum { LINE = 64 };

// Processors that load and multiply two vectors of 64 bytes per clock; others with such vectors do
// one.
static const char *const wide[] = {"skylake-avx512", "cascadelake",    "cooperlake",
                                   "icelake-server", "sapphirerapids", "emeraldrapids",
                                   "graniterapids",  "znver5"};

static double products_bytes_clock(const kiln_machine *m) {
  for (size_t i = 0; i < KILN_LEN(wide); i++)
    if (strcmp(m->cpu, wide[i]) == 0) return 2 * m->vector_bytes;
  return m->vector_bytes == 64 ? 64 : 2 * m->vector_bytes;
}

static void add_level(kiln_device *d, const char *name, int64_t capacity, double usable,
                      double unit_bytes_ns, double n_serving, double latency_ns) {
  d->levels[d->n_levels++] = (kiln_mem_level){.name = name,
                                              .capacity_bytes = capacity,
                                              .usable = usable,
                                              .transaction_bytes = LINE,
                                              .unit_bytes_ns = unit_bytes_ns,
                                              .all_bytes_ns = unit_bytes_ns * n_serving,
                                              .copy_unit_bytes_ns = unit_bytes_ns,
                                              .copy_all_bytes_ns = unit_bytes_ns * n_serving,
                                              .latency_ns = latency_ns,
                                              .n_sharing = 1};
}

// Of a server, a third of the cores saturates memory; of a small machine, three.
static double memory_saturating(int n_units) {
  const double third = n_units / 3.0, few = n_units < 3 ? n_units : 3;
  return third > few ? third : few;
}

static void add_levels(const kiln_machine *m, kiln_device *d) {
  const double n = d->n_units, clock = m->clock_ghz;
  const double vector = m->vector_bytes < 32 ? m->vector_bytes : 32;
  const int64_t bytes[] = {m->l3_bytes, m->l2_bytes};
  add_level(d, "memory", INT64_MAX, 1, MEMORY_BYTES_NS, memory_saturating(d->n_units),
            MEMORY_LATENCY_NS);
  d->levels[0].n_sharing = d->n_units;
  for (size_t i = 0; i < KILN_LEN(caches); i++) {
    if (bytes[i] <= 0) continue;
    add_level(d, caches[i].name, bytes[i], caches[i].usable,
              caches[i].vectors_clock * vector * clock, n, caches[i].latency_clocks / clock);
    if (i == 0) d->levels[d->n_levels - 1].n_sharing = d->n_units;
  }
  add_level(d, "L1", m->l1_bytes, L1_USABLE, products_bytes_clock(m) * clock, n,
            L1_LATENCY / clock);
  // two instructions a clock, three operands each
  add_level(d, "registers", (int64_t)m->n_vector_regs * m->vector_bytes, 1,
            6 * m->vector_bytes * clock, n, 0);
  d->levels[d->n_levels - 1].transaction_bytes = m->vector_bytes;
  d->levels[d->n_levels - 1].is_explicit = true;
}

const kiln_device *kiln_device_make_nominal(kiln_ctx *cx, const kiln_machine *m) {
  kiln_device *d = KILN_NEW(&cx->perm, kiln_device);
  const double f32 = products_bytes_clock(m) / 4 * 2 * m->clock_ghz;
  d->name = kiln_arena_strdup(&cx->perm, m->processor);
  d->n_units = m->n_cores > 0 ? m->n_cores : 1;
  d->launch_ns = LAUNCH_NS;
  d->fork_ns = FORK_NS;
  d->unit_flops_ns[KILN_PEAK_F32] = m->has_fma ? f32 : f32 / 2;
  if (m->has_bf16) d->unit_flops_ns[KILN_PEAK_BF16] = 2 * f32;
  if (m->has_vnni) d->unit_flops_ns[KILN_PEAK_INT8] = 4 * f32;
  for (int i = 0; i < KILN_N_PEAKS; i++) d->all_flops_ns[i] = d->n_units * d->unit_flops_ns[i];
  add_levels(m, d);
  return d;
}

#include "tune/measure_gpu.h"

#include "runtime/gpu/gpu.h"
#include "runtime/pool.h"
#include "target/gpu/gpu.h"
#include "tune/gpu_probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  ROUNDS = 5,
  MAX_PROBES = 64,
  MAX_UNITS = 1024,
  SHARED = 72 << 10, // of a probe's block
  MEMORY_LOG2 = 30,
  LAUNCHES = 100, // of a graph
  SPIN_CLOCKS = 10000,
  SPIN_THREADS = 256,
  EMPTY_BLOCKS = 64, // of a multiprocessor
  EMPTY_THREADS = 128,
  WARP = 32,
  GROUP = 128
};

typedef struct code {
  kiln_object object;
  kiln_gpu_image *image;
  kiln_gpu_function *function;
} code;

typedef struct bench {
  kiln_ctx *cx;
  const kiln_machine *m;
  const kiln_gpu_api *api;
  kiln_gpu_context *gpu;
  kiln_gpu_stream *stream;
  kiln_gpu_event *from, *to;
  char *memory, *out; // of the GPU
  uint64_t memory_bytes;
  int n; // probes that the GPU has
  const kiln_gpu_probe *of[MAX_PROBES];
  code codes[MAX_PROBES + 2]; // the last two: kernels that spin, without and with early begin
  kiln_device *d;
} bench;

static void deinit(void *object) {
  bench *b = object;
  for (int i = 0; i < b->n + 2; i++) {
    code *c = &b->codes[i];
    if (c->function) b->api->forget(b->gpu, c->function);
    if (c->image) b->api->unload(b->gpu, c->image);
    kiln_object_deinit(&c->object);
    *c = (code){0};
  }
  if (!b->gpu) return;
  b->api->free(b->gpu, b->memory);
  b->api->free(b->gpu, b->out);
  if (b->from) b->api->end_event(b->gpu, b->from);
  if (b->to) b->api->end_event(b->gpu, b->to);
  if (b->stream) b->api->end_stream(b->gpu, b->stream);
  b->api->close(b->gpu);
  b->gpu = NULL;
}

// --- preparing ---

static kiln_status open_device(bench *b) {
  kiln_diag *diag = b->cx->diag;
  uint32_t random[1 << 14], state = 1;
  for (size_t i = 0; i < KILN_LEN(random); i++) random[i] = state = state * 1664525u + 1013904223u;
  KILN_TRY(b->api->open(0, diag, &b->gpu));
  KILN_TRY(b->api->stream(b->gpu, diag, &b->stream));
  KILN_TRY(b->api->event(b->gpu, diag, &b->from));
  KILN_TRY(b->api->event(b->gpu, diag, &b->to));
  b->memory_bytes = UINT64_C(1) << MEMORY_LOG2;
  KILN_TRY(b->api->allocate(b->gpu, b->memory_bytes, "memory to measure", diag, &b->memory));
  KILN_TRY(b->api->allocate(b->gpu, 2 * sizeof(uint32_t) * MAX_UNITS, "figures", diag, &b->out));
  KILN_TRY(b->api->copy(b->gpu, b->stream, b->memory, (const char *)random, sizeof random, diag));
  for (uint64_t done = sizeof random; done < b->memory_bytes; done *= 2)
    KILN_TRY(b->api->copy(b->gpu, b->stream, b->memory + done, b->memory, done, diag));
  return b->api->wait(b->gpu, b->stream, diag);
}

static bool has(const kiln_machine *m, const kiln_gpu_probe *p) {
  return m->gpu.capability >= p->capability && (!p->needs_wgmma || m->gpu.has_wgmma);
}

static kiln_status compile(bench *b) {
  const char *sources[MAX_PROBES + 2], *names[MAX_PROBES + 2];
  kiln_object objects[MAX_PROBES + 2] = {0};
  for (int i = 0; i < kiln_n_gpu_probes; i++)
    if (has(b->m, &kiln_gpu_probes[i])) b->of[b->n++] = &kiln_gpu_probes[i];
  for (int i = 0; i < b->n + 2; i++) {
    sources[i] = i < b->n ? kiln_gpu_probe_source(b->cx, b->of[i])
                          : kiln_gpu_spin_source(b->cx, i > b->n && b->m->gpu.capability >= 90);
    names[i] = "probe";
  }
  KILN_TRY(b->m->target->compiler->compile(b->cx, b->m, b->n + 2, sources, names, kiln_cpu_cores(),
                                           objects));
  for (int i = 0; i < b->n + 2; i++) b->codes[i].object = objects[i];
  for (int i = 0; i < b->n + 2; i++) {
    code *c = &b->codes[i];
    KILN_TRY(
        b->api->load(b->gpu, c->object.data, c->object.bytes, "probe", b->cx->diag, &c->image));
    KILN_TRY(b->api->find(b->gpu, c->image, "probe", SHARED, b->cx->diag, &c->function));
  }
  return KILN_OK;
}

// --- running ---

typedef struct size {
  uint32_t blocks, threads, shared_bytes;
} size;

static kiln_status launch(bench *b, const code *c, size s, bool is_early, uint64_t bytes,
                          uint64_t n) {
  char *args[] = {b->out, b->memory, (char *)(uintptr_t)bytes, (char *)(uintptr_t)n};
  const uint32_t grid[3] = {s.blocks, 1, 1}, block[3] = {s.threads, 1, 1};
  const kiln_gpu_call call = {.function = c->function,
                              .grid = grid,
                              .block = block,
                              .shared_bytes = s.shared_bytes,
                              .is_early = is_early,
                              .n_args = KILN_LEN(args),
                              .args = args};
  return b->api->launch(b->gpu, b->stream, &call, b->cx->diag);
}

static int by_value(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static uint32_t median(uint32_t n, const uint32_t *figures, int which) {
  uint32_t values[MAX_UNITS];
  for (uint32_t i = 0; i < n; i++) values[i] = figures[2 * i + (uint32_t)which];
  qsort(values, n, sizeof *values, by_value);
  return values[n / 2];
}

static double figure_of(const kiln_gpu_probe *p, double clocks) {
  const double all = (double)p->n * p->ops,
               warps = (double)p->threads / (p->needs_wgmma ? GROUP : WARP);
  switch (p->unit) {
  case KILN_GPU_PROBE_CLOCKS: return clocks / (all * warps);
  case KILN_GPU_PROBE_LATENCY: return clocks / all;
  case KILN_GPU_PROBE_BYTES: break;
  }
  return all / clocks;
}

// The best of some rounds, of which the first is not counted. What reads memory must not find it in
// the L2: a round of all of |memory| goes before.
static kiln_status run_probe(bench *b, int i) {
  const kiln_gpu_probe *p = b->of[i];
  const uint32_t blocks = p->on_all ? (uint32_t)b->m->device->n_units : 1;
  uint32_t figures[2 * MAX_UNITS], least = UINT32_MAX, ns = 1;
  const bool is_once = p->figure == KILN_GPU_MEMORY_LATENCY;
  for (int round = 0; round < (is_once ? 1 : 1 + ROUNDS); round++) {
    const size s = {blocks, (uint32_t)p->threads, SHARED};
    KILN_TRY(launch(b, &b->codes[i], s, false, p->bytes, (uint64_t)p->n));
    KILN_TRY(b->api->copy(b->gpu, b->stream, (char *)figures, b->out, 2 * sizeof *figures * blocks,
                          b->cx->diag));
    KILN_TRY(b->api->wait(b->gpu, b->stream, b->cx->diag));
    const uint32_t clocks = median(blocks, figures, 0);
    if ((round > 0 || is_once) && clocks < least) {
      least = clocks;
      ns = median(blocks, figures, 1);
    }
  }
  b->d->gpu[p->figure] = figure_of(p, least);
  if (p->figure == KILN_GPU_FMA_F32 && ns > 0) b->d->clock_ghz = (double)least / ns;
  return KILN_OK;
}

// --- launches ---

// Nanoseconds of a launch in a graph of launches that follow each other.
static kiln_status time_launches(bench *b, const code *c, size s, bool is_early, uint64_t n,
                                 double *out_ns) {
  kiln_gpu_graph *graph = NULL;
  kiln_diag *diag = b->cx->diag;
  kiln_status st = KILN_OK;
  double least = INFINITY;
  KILN_TRY(b->api->capture(b->gpu, b->stream, diag));
  for (int i = 0; i < LAUNCHES && st == KILN_OK; i++) st = launch(b, c, s, is_early, 0, n);
  KILN_TRY(b->api->end_capture(b->gpu, b->stream, st == KILN_OK, diag, &graph));
  for (int round = 0; round < ROUNDS && st == KILN_OK; round++) {
    uint64_t ns = 0;
    st = b->api->replay(b->gpu, b->stream, graph, diag);
    if (st == KILN_OK) st = b->api->record(b->gpu, b->stream, b->from, diag);
    if (st == KILN_OK) st = b->api->replay(b->gpu, b->stream, graph, diag);
    if (st == KILN_OK) st = b->api->record(b->gpu, b->stream, b->to, diag);
    if (st == KILN_OK) st = b->api->wait(b->gpu, b->stream, diag);
    if (st == KILN_OK) st = b->api->elapsed(b->gpu, b->from, b->to, diag, &ns);
    least = fmin(least, (double)ns / LAUNCHES);
  }
  b->api->end_graph(b->gpu, graph);
  *out_ns = least;
  return st;
}

static kiln_status measure_launches(bench *b) {
  const code *plain = &b->codes[b->n], *early = &b->codes[b->n + 1];
  const uint32_t units = (uint32_t)b->m->device->n_units;
  const size one = {1, WARP, 0}, each = {units, SPIN_THREADS, 0},
             many = {units * EMPTY_BLOCKS, EMPTY_THREADS, 0};
  double spin = 0, blocks = 0, *g = b->d->gpu;
  KILN_TRY(time_launches(b, plain, one, false, 0, &g[KILN_GPU_LAUNCH_NS]));
  KILN_TRY(time_launches(b, early, one, b->m->gpu.capability >= 90, 0, &g[KILN_GPU_EARLY_NS]));
  KILN_TRY(time_launches(b, plain, each, false, SPIN_CLOCKS, &spin));
  KILN_TRY(time_launches(b, plain, many, false, 0, &blocks));
  g[KILN_GPU_BEGIN_END_NS] = fmax(0, spin - SPIN_CLOCKS / b->d->clock_ghz);
  g[KILN_GPU_BLOCK_NS] = fmax(0, (blocks - g[KILN_GPU_LAUNCH_NS]) / EMPTY_BLOCKS);
  return KILN_OK;
}

static kiln_status measure(bench *b, const kiln_measure_options *o) {
  KILN_TRY(open_device(b));
  KILN_TRY(compile(b));
  for (int i = 0; i < b->n; i++) {
    if (o->on_round) o->on_round(o->user, i, b->n + 1);
    KILN_TRY(run_probe(b, i));
  }
  return measure_launches(b);
}

kiln_status kiln_gpu_measure(kiln_ctx *cx, const kiln_machine *m,
                             const kiln_measure_options *options, const kiln_device **out) {
  bench *b = KILN_NEW(&cx->perm, bench);
  const kiln_measure_options none = {0};
  *out = NULL;
  if (m->target->runtime != KILN_PLAN_CUDA || !m->target->compiler || !m->gpu.capability)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, "device",
                     "target: must be a CUDA GPU to be measured, got %s", m->processor);
  *b = (bench){.cx = cx, .m = m, .api = kiln_gpu_api_of(KILN_PLAN_CUDA)};
  b->d = KILN_NEW(&cx->perm, kiln_device);
  *b->d = *m->device;
  memset(b->d->gpu, 0, sizeof b->d->gpu);
  b->d->is_measured = true;
  kiln_cleanup_push(cx, deinit, b);
  const kiln_status st = measure(b, options ? options : &none);
  kiln_cleanup_pop(cx);
  deinit(b);
  if (st == KILN_OK) *out = b->d;
  return st;
}

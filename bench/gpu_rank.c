// How well predicted times order the candidates of a kernel on a GPU: lowers all of them, predicts,
// and measures them.
//
// usage: gpu_rank_bench [--target T] [--dtype D] [--most N] [--lock FILE] [--only FILE]
//                       [--measure|--compile] MODEL.onnx...
//
// Writes a line of JSON for each kernel: its candidates, of the templates of all forms, with the
// template, a hash of the schedule (which names the candidate), the proposal's cost, the counts of
// the lowered loops that the price is made of (price/gpu_work.h), and, with --measure, registers
// and the time; --compile gives the registers, without a GPU. --most (16): the cheapest half of so
// many by the proposal's cost are measured, the others are taken by their hashes. A time is the
// median of rounds, in turns, of replays of a CUDA graph of several launches, divided by their
// number. --only: candidates that the file names, in lines "KERNEL TEMPLATE VARIANT", are looked
// at alone. Processes that get the same --lock use the GPU one at a time, and compile side by
// side.
#include "driver/stages.h"
#include "price/gpu_price.h"
#include "price/gpu_work.h"
#include "runtime/gpu/gpu.h"
#include "target/gpu/gpu.h"
#include "template/search.h"

#include <elf.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 512, ROUNDS = 7, MOST_NESTS = 16, PATTERN = 1 << 20, WAIT_MS = 1000 };
#define GRAPH_US 300.0 // of launches in one graph
#define ROUND_US 600.0 // of replays in one round
#define HOPELESS 15.0  // times the best: measured once

typedef struct runner {
  const kiln_tile_candidate *c;
  uint64_t hash;
  bool is_taken;
  const char *source, *why; // |why|: there is no time
  int n_launches, registers;
  kiln_gpu_launch *launches;
  kiln_object code;
  kiln_gpu_image *image;
  kiln_gpu_function *functions[MOST_NESTS];
  kiln_gpu_graph *graph;
  int n_in_graph;
  char *args[MOST_NESTS * 16];
  int n_args;
  double us[ROUNDS], time;
} runner;

typedef struct bench {
  kiln_build build;
  const char *target, *dtype, *lock, *only;
  int most;
  bool compiles, measures;
  kiln_gpu_context *gpu;
  kiln_gpu_stream *stream;
  kiln_gpu_event *from, *to;
  char *patterns; // of the host, PATTERN bytes for each of f16, bf16, f32 and zeros
  const char *model;
  kiln_diag *diag;
} bench;

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static uint64_t hash_of(const char *text) {
  uint64_t h = 14695981039346656037u;
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
  return h;
}

// --- candidates ---

static int lowered(const kiln_tile_candidates *c, runner *out) {
  int n = 0;
  for (int i = 0; i < c->n && n < MOST; i++)
    if (c->data[i].loops) out[n++] = (runner){.c = &c->data[i], .hash = hash_of(c->data[i].script)};
  return n;
}

static int by_hash(const void *a, const void *b) {
  const runner *x = *(const runner *const *)a, *y = *(const runner *const *)b;
  return (x->hash > y->hash) - (x->hash < y->hash);
}

// The cheapest, then those of the least hashes.
static void choose(const bench *b, runner *r, int n) {
  runner *rest[MOST];
  int n_rest = 0, taken = 0;
  for (int i = 0; i < n; i++) {
    if (taken < b->most / 2 || n <= b->most) r[i].is_taken = true, taken++;
    else rest[n_rest++] = &r[i];
  }
  qsort(rest, (size_t)n_rest, sizeof *rest, by_hash);
  for (int i = 0; i < n_rest && taken < b->most; i++, taken++) rest[i]->is_taken = true;
}

static void emit(kiln_ctx *cx, const bench *b, const char *symbol, runner *r) {
  kiln_aside aside;
  kiln_text source;
  kiln_text_init(&source, &cx->perm);
  if (kiln_aside_begin(cx, &aside) != KILN_OK) return;
  kiln_loops *loops = kiln_loops_copy(&cx->perm, r->c->loops);
  if (kiln_gpu_emit(cx, &b->build.request.machine, loops, symbol, &source, &r->n_launches,
                    &r->launches) == KILN_OK &&
      r->n_launches <= MOST_NESTS)
    r->source = source.data;
  else r->why = "not emitted";
  kiln_aside_end(&aside);
}

// Registers of a thread, of the function that has most: an attribute of each in section .nv.info,
// of which an entry is a format, a number, and a value or the size of a value that follows.
static int registers_of(const kiln_object *code) {
  enum { INFO = 0x70000000, SIZED = 4, REGISTERS = 0x2f, ENTRY = 4, SYMBOL = 4 };
  const char *data = code->data;
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)data;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(data + head->e_shoff);
  uint32_t most = 0;
  for (int i = 0; i < head->e_shnum; i++) {
    const char *at = data + sections[i].sh_offset, *end = at + sections[i].sh_size;
    uint16_t size = 0;
    if (sections[i].sh_type != INFO) continue;
    for (; at + ENTRY <= end; at += ENTRY + (at[0] == SIZED ? size : 0)) {
      uint32_t n = 0;
      memcpy(&size, at + 2, sizeof size);
      if (at[0] == SIZED && at[1] == REGISTERS) memcpy(&n, at + ENTRY + SYMBOL, sizeof n);
      if (n > most) most = n;
    }
  }
  return (int)most;
}

static kiln_status compile(kiln_ctx *cx, const bench *b, const char *symbol, runner *r, int n) {
  const kiln_gpu_compiler *c = b->build.request.machine.target->compiler;
  const char *sources[MOST] = {0}, *names[MOST] = {0};
  runner *of[MOST];
  kiln_gpu_job *job = NULL;
  int n_jobs = 0;
  for (int i = 0; i < n; i++) {
    if (!r[i].is_taken) continue;
    emit(cx, b, symbol, &r[i]);
    if (!r[i].source) continue;
    sources[n_jobs] = r[i].source;
    names[n_jobs] = symbol;
    of[n_jobs++] = &r[i];
  }
  KILN_TRY(c->start(cx, &b->build.request.machine, n_jobs, sources, names, 1, &job));
  for (int i = 0; i < n_jobs; i++) {
    const char *log = NULL;
    while (!c->wait(job, i, WAIT_MS)) continue;
    if (c->take(job, i, &of[i]->code, &log)) of[i]->registers = registers_of(&of[i]->code);
    else of[i]->why = "not compiled";
  }
  c->end(job);
  return KILN_OK;
}

// --- running ---

static void make_patterns(bench *b) {
  b->patterns = calloc(4, PATTERN);
  if (!b->patterns) abort();
  uint32_t state = 1;
  uint16_t *f16 = (uint16_t *)(void *)b->patterns,
           *bf16 = (uint16_t *)(void *)(b->patterns + PATTERN);
  float *f32 = (float *)(void *)(b->patterns + 2 * (size_t)PATTERN);
  for (int i = 0; i < PATTERN / 2; i++) {
    state = state * 1664525u + 1013904223u;
    const uint16_t sign = (uint16_t)(state >> 31 << 15), mantissa = (uint16_t)(state >> 12 & 0x3ff);
    f16[i] = (uint16_t)(sign | (12 + (state >> 9 & 3)) << 10 | mantissa); // 0.125 to 2
    bf16[i] = (uint16_t)(sign | (124 + (state >> 9 & 3)) << 7 | mantissa >> 3);
    if (i < PATTERN / 4) f32[i] = (float)(state >> 8) / (1 << 23) - 1;
  }
}

static const char *pattern_of(const bench *b, kiln_dtype t) {
  const int at = t == KILN_F16 ? 0 : t == KILN_BF16 ? 1 : t == KILN_F32 ? 2 : 3;
  return b->patterns + (size_t)at * PATTERN;
}

static kiln_status fill(bench *b, runner *r) {
  const kiln_loops *l = r->c->loops;
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *buffer = l->buffers.data[i];
    if (!kiln_scope_is_argument(buffer->scope) || r->n_args >= (int)KILN_LEN(r->args)) continue;
    const uint64_t bytes =
        (uint64_t)(kiln_buffer_elems(buffer) * kiln_dtype_bytes(buffer->dtype) + 255) / 256 * 256;
    char *at = NULL;
    KILN_TRY(b->gpu->api->allocate(b->gpu, bytes + 256, "argument", b->diag, &at));
    r->args[r->n_args++] = at;
    for (uint64_t done = 0; done < bytes; done += PATTERN)
      KILN_TRY(b->gpu->api->copy(b->gpu, b->stream, at + done, pattern_of(b, buffer->dtype),
                                 bytes - done < PATTERN ? bytes - done : PATTERN, b->diag));
  }
  return b->gpu->api->wait(b->gpu, b->stream, b->diag);
}

static kiln_status launch(bench *b, const runner *r) {
  for (int k = 0; k < r->n_launches; k++) {
    const kiln_gpu_launch *l = &r->launches[k];
    char *args[MOST_NESTS * 16];
    kiln_plan_map maps[KILN_MAX_MAPS];
    uint32_t grid[3], block[3];
    for (int axis = 0; axis < 3; axis++) {
      grid[axis] = (uint32_t)l->grid[axis];
      block[axis] = (uint32_t)l->block[axis];
    }
    for (int i = 0; i < l->n_args; i++) args[i] = r->args[l->args[i]];
    for (int i = 0; i < l->n_maps; i++) maps[i] = kiln_gpu_plan_map(&l->maps[i]);
    const kiln_gpu_call call = {.function = r->functions[k],
                                .grid = grid,
                                .block = block,
                                .shared_bytes = (uint32_t)l->shared_bytes,
                                .is_early = l->waits,
                                .n_args = (uint32_t)l->n_args,
                                .args = args,
                                .n_maps = (uint32_t)l->n_maps,
                                .maps = maps};
    KILN_TRY(b->gpu->api->launch(b->gpu, b->stream, &call, b->diag));
  }
  return KILN_OK;
}

static kiln_status load(bench *b, const char *symbol, runner *r) {
  const kiln_gpu_api *api = b->gpu->api;
  char name[256];
  KILN_TRY(api->load(b->gpu, r->code.data, r->code.bytes, "kernel", b->diag, &r->image));
  for (int k = 0; k < r->n_launches; k++) {
    snprintf(name, sizeof name, "%s_%d", symbol, k);
    KILN_TRY(api->find(b->gpu, r->image, name, (uint32_t)r->launches[k].shared_bytes, b->diag,
                       &r->functions[k]));
  }
  return KILN_OK;
}

static kiln_status time_of_graph(bench *b, const runner *r, int replays, double *out_us) {
  const kiln_gpu_api *api = b->gpu->api;
  uint64_t ns = 0;
  KILN_TRY(api->record(b->gpu, b->stream, b->from, b->diag));
  for (int i = 0; i < replays; i++) KILN_TRY(api->replay(b->gpu, b->stream, r->graph, b->diag));
  KILN_TRY(api->record(b->gpu, b->stream, b->to, b->diag));
  KILN_TRY(api->wait(b->gpu, b->stream, b->diag));
  KILN_TRY(api->elapsed(b->gpu, b->from, b->to, b->diag, &ns));
  *out_us = (double)ns / 1e3 / replays / r->n_in_graph;
  return KILN_OK;
}

// Runs it once, and captures as many launches as take some time.
static kiln_status prepare(bench *b, runner *r, double best) {
  const kiln_gpu_api *api = b->gpu->api;
  uint64_t ns = 0;
  KILN_TRY(launch(b, r));
  KILN_TRY(api->wait(b->gpu, b->stream, b->diag));
  KILN_TRY(api->record(b->gpu, b->stream, b->from, b->diag));
  KILN_TRY(launch(b, r));
  KILN_TRY(api->record(b->gpu, b->stream, b->to, b->diag));
  KILN_TRY(api->wait(b->gpu, b->stream, b->diag));
  KILN_TRY(api->elapsed(b->gpu, b->from, b->to, b->diag, &ns));
  r->time = (double)ns / 1e3;
  if (r->time > HOPELESS * fmax(best, 10)) return KILN_OK;
  r->n_in_graph = (int)fmax(1, fmin(40, GRAPH_US / ((double)ns / 1e3)));
  KILN_TRY(api->capture(b->gpu, b->stream, b->diag));
  kiln_status st = KILN_OK;
  for (int i = 0; i < r->n_in_graph && st == KILN_OK; i++) st = launch(b, r);
  KILN_TRY(api->end_capture(b->gpu, b->stream, st == KILN_OK, b->diag, &r->graph));
  return st == KILN_OK ? time_of_graph(b, r, 1, &r->time) : st;
}

static kiln_status measure_all(bench *b, const char *symbol, runner *r, int n) {
  runner *of[MOST];
  double best = INFINITY;
  int n_of = 0;
  for (int i = 0; i < n; i++) {
    if (!r[i].is_taken || !r[i].code.bytes) continue;
    KILN_TRY(fill(b, &r[i])); // workspaces differ
    KILN_TRY(load(b, symbol, &r[i]));
    KILN_TRY(prepare(b, &r[i], best));
    best = fmin(best, r[i].time);
    of[n_of++] = &r[i];
  }
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < n_of; i++) {
      runner *x = of[i];
      if (!x->graph || x->time > HOPELESS * best) continue;
      const int replays = (int)fmax(1, ROUND_US / (x->time * x->n_in_graph));
      KILN_TRY(time_of_graph(b, x, replays, &x->us[round]));
    }
  for (int i = 0; i < n_of; i++) {
    if (of[i]->us[0] <= 0) continue;
    qsort(of[i]->us, ROUNDS, sizeof *of[i]->us, by_value);
    of[i]->time = of[i]->us[ROUNDS / 2];
  }
  return KILN_OK;
}

static void clean(bench *b, runner *r, int n) {
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < r[i].n_launches && b->gpu; k++)
      if (r[i].functions[k]) b->gpu->api->forget(b->gpu, r[i].functions[k]);
    if (r[i].graph) b->gpu->api->end_graph(b->gpu, r[i].graph);
    if (r[i].image) b->gpu->api->unload(b->gpu, r[i].image);
    for (int k = 0; k < r[i].n_args; k++) b->gpu->api->free(b->gpu, r[i].args[k]);
    kiln_object_deinit(&r[i].code);
  }
}

static kiln_status measure(bench *b, const char *symbol, runner *r, int n) {
  const int lock = b->lock ? open(b->lock, O_CREAT | O_RDWR | O_CLOEXEC, 0666) : -1;
  if (lock >= 0) (void)flock(lock, LOCK_EX);
  const kiln_status st = measure_all(b, symbol, r, n);
  clean(b, r, n);
  if (lock >= 0) close(lock);
  return st;
}

// --- kernels ---

static void put_launches(const runner *r) {
  printf(", \"registers\": %d, \"launches\": [", r->registers);
  for (int k = 0; k < r->n_launches; k++) {
    const kiln_gpu_launch *l = &r->launches[k];
    printf("%s[%lld, %lld, %lld]", k ? ", " : "", (long long)(l->grid[0] * l->grid[1] * l->grid[2]),
           (long long)(l->block[0] * l->block[1] * l->block[2]), (long long)l->shared_bytes);
  }
  printf("]");
}

static void put_list(const char *name, const double *values, int n) {
  printf(", \"%s\": [", name);
  for (int i = 0; i < n; i++) printf("%s%.6g", i ? ", " : "", values[i]);
  printf("]");
}

static void put_counts(kiln_ctx *cx, const bench *b, const runner *r) {
  kiln_gpu_counts c;
  if (!kiln_gpu_count_loops(cx, &b->build.request.machine, r->c->loops, &c)) return;
  printf(", \"price_us\": %.4g", kiln_gpu_price_ns(&b->build.request.machine, &c) / 1e3);
  printf(", \"nests\": [");
  for (int i = 0; i < c.n; i++) {
    const kiln_gpu_nest_counts *n = &c.nests[i];
    printf("%s{\"blocks\": %.0f, \"threads\": %.0f, \"held\": %.0f, \"resident\": %.0f, "
           "\"l2_bytes\": %.6g, "
           "\"memory_bytes\": %.6g, \"code\": %.6g, \"cluster\": %.0f, \"specialized\": %d",
           i ? ", " : "", n->blocks, n->threads, n->registers, n->resident, n->l2_bytes,
           n->memory_bytes, n->code, n->cluster, n->is_specialized);
    put_list("unit", n->unit, KILN_N_GPU_UNITS);
    put_list("wait", n->wait, KILN_N_GPU_WAITS);
    printf("}");
  }
  printf("]");
}

// To the standard error: $KILN_RANK_VERBOSE.
static void show_loops(kiln_ctx *cx, const runner *r) {
  kiln_text text;
  kiln_text_init(&text, &cx->perm);
  kiln_loops_print(cx, r->c->loops, &text);
  fprintf(stderr, "%s variant %d %016llx\n%s", r->c->from->name, r->c->tiling.variant,
          (unsigned long long)r->hash, text.data);
}

static void put_candidate(kiln_ctx *cx, const bench *b, const runner *r, bool is_first) {
  kiln_tile_cost cost = r->c->cost;
  const double proposed = cost.ns;
  if (getenv("KILN_RANK_VERBOSE")) show_loops(cx, r);
  const bool known =
      kiln_gpu_work(cx, &b->build.request.machine, r->c->loops, &cost) && isfinite(cost.ns);
  printf("%s{\"template\": \"%s\", \"hash\": \"%016llx\", \"form\": \"%s\", \"variant\": %d",
         is_first ? "" : ", ", r->c->from->name, (unsigned long long)r->hash,
         r->c->tiling.form ? r->c->tiling.form : "", r->c->tiling.variant);
  if (isfinite(proposed)) printf(", \"proposed_us\": %.3f", proposed / 1e3);
  if (known) printf(", \"loops_us\": %.3f", cost.ns / 1e3);
  put_counts(cx, b, r);
  if (r->n_launches) put_launches(r);
  if (r->why) printf(", \"why\": \"%s\"", r->why);
  if (r->time > 0) printf(", \"us\": %.3f", r->time);
  printf("}");
}

// Leaves out candidates that no line of the file |b->only| names.
static void keep_listed(const bench *b, const char *kernel, kiln_tile_candidates *io) {
  char line[512], wanted[512];
  int n = 0;
  for (int i = 0; i < io->n; i++) {
    const kiln_tile_candidate *c = &io->data[i];
    FILE *f = fopen(b->only, "r");
    bool found = false;
    snprintf(wanted, sizeof wanted, "%s %s %d\n", kernel, c->from->name, c->tiling.variant);
    while (f && !found && fgets(line, sizeof line, f)) found = strcmp(line, wanted) == 0;
    if (f) fclose(f);
    if (found) io->data[n++] = *c;
  }
  io->n = n;
}

static kiln_status rank_kernel(kiln_ctx *cx, bench *b, const kiln_kernel *k) {
  runner *r = calloc(MOST, sizeof *r);
  kiln_tile_candidates all;
  const kiln_tile_search_options options = {
      .machine = &b->build.request.machine, .n_threads = 1, .n_lowered = MOST, .all_forms = true};
  if (!r) abort();
  KILN_TRY(kiln_tile_propose(cx, k->kind, k->outlined, &k->facts, &options, &all));
  if (b->only) keep_listed(b, kiln_symbol_text(cx, k->name), &all);
  KILN_TRY(kiln_tile_lower(cx, &options, &all));
  const int n = lowered(&all, r);
  const char *symbol = kiln_symbol_text(cx, k->name);
  kiln_status st = KILN_OK;
  choose(b, r, n);
  if (b->compiles && n > 1) st = compile(cx, b, symbol, r, n);
  if (st == KILN_OK && b->measures && n > 1) st = measure(b, symbol, r, n);
  printf(
      "{\"model\": \"%s\", \"kernel\": \"%s\", \"flops\": %.0f, \"bytes\": %.0f, \"candidates\": [",
      b->model, symbol, k->flops, k->bytes);
  for (int i = 0; i < n; i++) put_candidate(cx, b, &r[i], i == 0);
  printf("]}\n");
  fflush(stdout);
  free(r);
  return st;
}

static kiln_status run(kiln_ctx *cx, void *argument) {
  bench *b = argument;
  KILN_TRY(kiln_build_kernels(cx, &b->build));
  const kiln_kernels *k = &b->build.choices.kernels;
  for (int i = 0; i < k->kernels.n; i++)
    if (k->kernels.data[i]->outlined && k->kernels.data[i]->from)
      KILN_TRY(rank_kernel(cx, b, k->kernels.data[i]));
  return KILN_OK;
}

static kiln_status rank_model(bench *b, const char *path) {
  const char *slash = strrchr(path, '/');
  const kiln_compile_options options = {
      .struct_size = sizeof options, .threads = 1, .target = b->target, .dtype = b->dtype};
  b->model = slash ? slash + 1 : path;
  b->build = (kiln_build){0};
  kiln_status st = kiln_model_load(path, &options, b->diag, &b->build.request.model);
  if (st == KILN_OK) st = kiln_model_enter(b->build.request.model, b->diag, run, b);
  kiln_build_deinit(&b->build);
  kiln_model_destroy(b->build.request.model);
  return st;
}

static kiln_status open_gpu(bench *b) {
  KILN_TRY(kiln_cuda_api.open(0, b->diag, &b->gpu));
  KILN_TRY(b->gpu->api->stream(b->gpu, b->diag, &b->stream));
  KILN_TRY(b->gpu->api->event(b->gpu, b->diag, &b->from));
  KILN_TRY(b->gpu->api->event(b->gpu, b->diag, &b->to));
  make_patterns(b);
  return KILN_OK;
}

int main(int n, char **args) {
  bench b = {.target = "cuda:sm_90a", .most = 16, .diag = kiln_diag_create()};
  kiln_status st = KILN_OK;
  int at = 1;
  for (; at < n && args[at][0] == '-'; at++) {
    if (strcmp(args[at], "--measure") == 0) b.measures = b.compiles = true;
    else if (strcmp(args[at], "--compile") == 0) b.compiles = true;
    else if (at + 1 >= n) break;
    else if (strcmp(args[at], "--target") == 0) b.target = args[++at];
    else if (strcmp(args[at], "--dtype") == 0) b.dtype = args[++at];
    else if (strcmp(args[at], "--only") == 0) b.only = args[++at];
    else if (strcmp(args[at], "--most") == 0) b.most = atoi(args[++at]);
    else if (strcmp(args[at], "--lock") == 0) b.lock = args[++at];
  }
  if (at >= n) {
    fprintf(stderr, "usage: gpu_rank_bench [--target T] [--dtype D] [--most N] [--lock FILE] "
                    "[--only FILE] [--measure|--compile] MODEL.onnx...\n");
    return 2;
  }
  if (b.measures) st = open_gpu(&b);
  for (; at < n && st == KILN_OK; at++) st = rank_model(&b, args[at]);
  for (size_t i = 0; st != KILN_OK && i < kiln_diag_count(b.diag); i++)
    fprintf(stderr, "%s\n", kiln_diag_message(b.diag, i));
  return st == KILN_OK ? 0 : 1;
}

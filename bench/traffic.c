// Bytes that kernels of a model move between the levels of the caches: predicted from their loops
// (analysis/reuse.h) beside counted (target/sim), and what each of the two takes.
//
// usage: traffic_bench MODEL.onnx [KERNEL]...   all kernels where none is named
//
//        KILN_TRAFFIC_BUFFERS=1 prints what is predicted for each buffer, too
//        KILN_TRAFFIC_PREDICT=1 prints predictions only
//
// A line for each kernel and level: predicted, counted, ratio. The last line is for scripts: how
// many ratios lie within 15 %, of how many.
#include "analysis/reuse.h"
#include "driver/stages.h"
#include "target/instr.h"
#include "target/sim/sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 2, REPEATS = 5 };

typedef struct bench {
  kiln_build build;
  int n_names;
  char **names;
  int n_within, n_all;
} bench;

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool is_asked(const bench *b, const char *name) {
  for (int i = 0; i < b->n_names; i++)
    if (strcmp(b->names[i], name) == 0) return true;
  return b->n_names == 0;
}

static void levels_of(const kiln_sim_level *caches, kiln_reuse_level *out) {
  for (int k = 0; k < KILN_SIM_CACHES; k++)
    out[k] = (kiln_reuse_level){(double)caches[k].capacity_bytes, (int)caches[k].line_bytes,
                                caches[k].stores_fetch, caches[k].ways};
}

static void print_level(bench *b, const char *kernel, const char *level, kiln_reuse_flow p,
                        kiln_sim_flow c, double predict_ms, double count_ms) {
  const double predicted = p.read_bytes + p.written_bytes,
               counted = (double)(c.read_bytes + c.written_bytes);
  const double ratio = counted > 0 ? predicted / counted : 1;
  const bool is_within = ratio >= 0.85 && ratio <= 1.15;
  b->n_all++;
  b->n_within += is_within;
  printf("%-32s %-3s %14.0f %14.0f  %6.3f %s  read %6.3f written %6.3f  %7.3f ms %9.0f ms\n",
         kernel, level, predicted, counted, ratio, is_within ? " " : "*",
         c.read_bytes ? p.read_bytes / (double)c.read_bytes : 1.0,
         c.written_bytes ? p.written_bytes / (double)c.written_bytes : 1.0, predict_ms, count_ms);
  fflush(stdout);
}

static void print_buffers(const kiln_loops *l, const kiln_reuse_flow *each) {
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (b->scope == KILN_SCOPE_REGISTER) continue;
    printf("    buffer %2d %12.0f bytes:", i,
           (double)(kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype)));
    for (int k = 0; k < KILN_SIM_CACHES; k++)
      printf("  %14.0f read %14.0f written", each[i * KILN_SIM_CACHES + k].read_bytes,
             each[i * KILN_SIM_CACHES + k].written_bytes);
    printf("\n");
  }
}

static kiln_status compare(kiln_ctx *cx, bench *b, const kiln_kernel *k) {
  kiln_sim_level caches[KILN_SIM_CACHES];
  kiln_reuse_level levels[KILN_SIM_CACHES];
  kiln_reuse_flow predicted[KILN_SIM_CACHES];
  kiln_sim_traffic counted;
  const char *name = kiln_symbol_text(cx, k->name);
  kiln_loops *l = kiln_instrs_expand(cx, k->loops);
  kiln_sim_caches(&b->build.request.machine, caches);
  levels_of(caches, levels);
  double predict_ms = INFINITY;
  for (int i = 0; i < REPEATS; i++) {
    const double begin = now_ms();
    KILN_TRY(kiln_reuse_predict(cx, l, KILN_SIM_CACHES, levels, predicted, NULL));
    predict_ms = fmin(predict_ms, now_ms() - begin);
  }
  if (getenv("KILN_TRAFFIC_BUFFERS")) {
    kiln_reuse_flow *each =
        KILN_NEW_ARRAY(&cx->perm, kiln_reuse_flow, l->buffers.n * KILN_SIM_CACHES + 1);
    KILN_TRY(kiln_reuse_predict(cx, l, KILN_SIM_CACHES, levels, predicted, each));
    print_buffers(l, each);
  }
  if (getenv("KILN_TRAFFIC_PREDICT")) {
    for (int i = 0; i < KILN_SIM_CACHES; i++)
      printf("%-32s %-3s %14.0f read %14.0f written  %7.3f ms\n", name, caches[i].name,
             predicted[i].read_bytes, predicted[i].written_bytes, predict_ms);
    return KILN_OK;
  }
  const double begin = now_ms();
  if (kiln_sim_trace(cx, l, NULL, KILN_SIM_CACHES, caches, &counted) != KILN_OK) {
    printf("%-32s cannot be counted without data\n", name);
    kiln_diag_clear(cx->diag);
    return KILN_OK;
  }
  const double count_ms = now_ms() - begin;
  for (int i = 0; i < KILN_SIM_CACHES; i++)
    print_level(b, name, caches[i].name, predicted[i], counted.levels[i], predict_ms, count_ms);
  return KILN_OK;
}

static kiln_status run(kiln_ctx *cx, void *argument) {
  bench *b = argument;
  KILN_TRY(kiln_build_kernels(cx, &b->build));
  const kiln_kernels *k = &b->build.choices.kernels;
  for (int i = 0; i < k->kernels.n; i++)
    if (is_asked(b, kiln_symbol_text(cx, k->kernels.data[i]->name)))
      KILN_TRY(compare(cx, b, k->kernels.data[i]));
  return KILN_OK;
}

int main(int n, char **args) {
  if (n < 2) {
    fprintf(stderr, "usage: traffic_bench MODEL.onnx [KERNEL]...\n");
    return 2;
  }
  kiln_diag *diag = kiln_diag_create();
  const kiln_compile_options options = {.struct_size = sizeof options, .threads = THREADS};
  bench b = {.n_names = n - 2, .names = args + 2};
  kiln_status st = kiln_model_load(args[1], &options, diag, &b.build.request.model);
  if (st == KILN_OK) st = kiln_model_enter(b.build.request.model, diag, run, &b);
  for (size_t i = 0; st != KILN_OK && i < kiln_diag_count(diag); i++)
    fprintf(stderr, "%s\n", kiln_diag_message(diag, i));
  printf("within 15 %%: %d of %d\n", b.n_within, b.n_all);
  kiln_build_deinit(&b.build);
  kiln_model_destroy(b.build.request.model);
  kiln_diag_destroy(diag);
  return st == KILN_OK ? 0 : 1;
}

// A module for a device by hand: y = (x + w) * 3, and copies of y, transposed, and of x.
#ifndef KILN_TEST_GPU_MODULE_H
#define KILN_TEST_GPU_MODULE_H

#include "runtime/module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 61, COLS = 16, N = ROWS * COLS, BLOCK = 64 };

static float module_weights[COLS] __attribute__((aligned(64)));

typedef struct gpu_plan {
  kiln_plan_port inputs[1], outputs[3];
  kiln_plan_launch launches[2];
  kiln_plan_arg args[5];
  kiln_plan_nest nests[2];
  kiln_plan_copy copies[2];
  kiln_plan_image images[2];
  uint32_t indices[5];
  const char *functions[2];
  kiln_plan plan;
} gpu_plan;

// Two images of |bytes| each, the second behind the first.
static inline void gpu_plan_make(gpu_plan *g, kiln_plan_kind kind, const char *arch,
                                 const size_t bytes[2]) {
  const kiln_type *f32 = kiln_type_find("f32");
  const uint64_t second = (bytes[0] + 63) / 64 * 64;
  memset(g, 0, sizeof *g);
  g->inputs[0] = (kiln_plan_port){"x", f32, 2, {ROWS, COLS}, 4 * N, 0};
  g->outputs[0] = (kiln_plan_port){"y", f32, 2, {ROWS, COLS}, 4 * N, 0};
  g->outputs[1] = (kiln_plan_port){"yt", f32, 2, {COLS, ROWS}, 4 * N, 0};
  g->outputs[2] = (kiln_plan_port){"xx", f32, 2, {ROWS, COLS}, 4 * N, 0};
  g->launches[0] = (kiln_plan_launch){"add", "n0", N, 3 * 4 * N, 0, 3, 0, 1, 0};
  g->launches[1] = (kiln_plan_launch){"scale", "n1", N, 2 * 4 * N, 3, 2, 1, 1, 0};
  g->args[0] = (kiln_plan_arg){KILN_PLACE_INPUT, 0, 0, 4 * N};
  g->args[1] = (kiln_plan_arg){KILN_PLACE_WEIGHTS, 0, 0, 4 * COLS};
  g->args[2] = (kiln_plan_arg){KILN_PLACE_ARENA, 0, 4, 4 * N};
  g->args[3] = (kiln_plan_arg){KILN_PLACE_ARENA, 0, 4, 4 * N};
  g->args[4] = (kiln_plan_arg){KILN_PLACE_OUTPUT, 0, 0, 4 * N};
  for (uint32_t i = 0; i < 2; i++)
    g->nests[i] = (kiln_plan_nest){.function = i,
                                   .threads = 1,
                                   .extent = 1,
                                   .image = i,
                                   .grid = {(N + BLOCK - 1) / BLOCK, 1, 1},
                                   .block = {BLOCK, 1, 1},
                                   .first_index = i ? 3 : 0,
                                   .n_indices = i ? 2 : 3};
  g->nests[1].shared_bytes = 4 * BLOCK;
  g->nests[0].waits = g->nests[1].waits = kind == KILN_PLAN_CUDA;
  g->nests[1].n_maps = kind == KILN_PLAN_CUDA ? 2 : 0; // of y as halves, behind the arguments
  g->nests[1].maps[0] = (kiln_plan_map){.index = 0,    // rows
                                        .n_axes = 1,
                                        .box_rows = 8,
                                        .box_columns = COLS,
                                        .columns = 2 * COLS,
                                        .rows = {ROWS},
                                        .pitches = {4 * COLS}};
  g->nests[1].maps[1] = (kiln_plan_map){.index = 0, // windows of 3 along a column, padded by one
                                        .n_axes = KILN_PLAN_MAP_AXES,
                                        .box_rows = 8,
                                        .box_columns = COLS,
                                        .columns = 2 * COLS,
                                        .rows = {1, ROWS, 1},
                                        .pitches = {4 * COLS, 4 * COLS, 4 * COLS * ROWS},
                                        .steps = {1, 1},
                                        .lower = {0, -1},
                                        .upper = {0, -1}};
  g->copies[0] = (kiln_plan_copy){{KILN_PLACE_OUTPUT, 0, 0, 4 * N}, 1, {1, COLS}};
  g->copies[1] = (kiln_plan_copy){{KILN_PLACE_INPUT, 0, 0, 4 * N}, 2, {COLS, 1}};
  g->images[0] = (kiln_plan_image){0, bytes[0]};
  g->images[1] = (kiln_plan_image){second, bytes[1]};
  const uint32_t indices[] = {2, 0, 1, 1, 0}; // not in order: t, x, w; y, t
  memcpy(g->indices, indices, sizeof indices);
  g->functions[0] = "add";
  g->functions[1] = "scale";
  g->plan = (kiln_plan){.kind = kind,
                        .arch = arch,
                        .code_bytes = second + bytes[1],
                        .arena_bytes = 64 + 4 * N,
                        .weights_bytes = sizeof module_weights,
                        .n_inputs = 1,
                        .n_outputs = 3,
                        .n_functions = 2,
                        .n_launches = 2,
                        .n_args = 5,
                        .n_nests = 2,
                        .n_copies = 2,
                        .n_images = 2,
                        .n_indices = 5,
                        .inputs = g->inputs,
                        .outputs = g->outputs,
                        .functions = g->functions,
                        .launches = g->launches,
                        .args = g->args,
                        .nests = g->nests,
                        .copies = g->copies,
                        .images = g->images,
                        .indices = g->indices};
}

typedef struct gpu_code {
  char *text;
} gpu_code;

static inline void gpu_code_release(void *object) { free(object); }

static inline kiln_module *gpu_module_make(kiln_plan_kind kind, const char *arch,
                                           const char *const sources[2]) {
  const size_t bytes[2] = {strlen(sources[0]) + 1, strlen(sources[1]) + 1};
  gpu_plan g;
  kiln_module *m = NULL;
  kiln_diag *diag = kiln_diag_create();
  kiln_module_parts parts = {.weights = (const char *)module_weights, .release = gpu_code_release};
  void *blob = NULL;
  for (int i = 0; i < COLS; i++) module_weights[i] = (float)i;
  gpu_plan_make(&g, kind, arch, bytes);
  char *code = calloc(1, g.plan.code_bytes);
  assert_non_null(code);
  for (int i = 0; i < 2; i++) memcpy(code + g.images[i].offset, sources[i], bytes[i]);
  if (kind == KILN_PLAN_OPENCL) // a source ends where its image does
    for (int i = 0; i < 2; i++) g.images[i].bytes--;
  kiln_plan_write(&g.plan, &blob, &parts.plan_bytes);
  parts.plan = blob;
  parts.code = parts.owner = code;
  if (kiln_module_create(&parts, diag, &m) != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
  free(blob);
  kiln_diag_destroy(diag);
  return m;
}

typedef struct gpu_tensors {
  DLManagedTensorVersioned *all[4]; // x, y, yt, xx
  const DLTensor *in[1];
  DLTensor *out[3];
} gpu_tensors;

static inline gpu_tensors gpu_tensors_make(void) {
  gpu_tensors t;
  const int64_t shape[] = {ROWS, COLS}, turned[] = {COLS, ROWS};
  for (int i = 0; i < 4; i++)
    t.all[i] = kiln_tensor_create("f32", 2, i == 2 ? turned : shape, NULL);
  t.in[0] = &t.all[0]->dl_tensor;
  for (int i = 0; i < 3; i++) t.out[i] = &t.all[i + 1]->dl_tensor;
  return t;
}

static inline void gpu_tensors_destroy(gpu_tensors *t) {
  for (int i = 0; i < 4; i++) kiln_tensor_destroy(t->all[i]);
}

static inline void gpu_tensors_fill(gpu_tensors *t, float seed) {
  float *x = t->all[0]->dl_tensor.data;
  for (int i = 0; i < N; i++) x[i] = seed + (float)i;
  for (int i = 0; i < 3; i++) memset(t->out[i]->data, 0xff, 4 * N);
}

static inline void gpu_tensors_check(const gpu_tensors *t) {
  const float *x = t->in[0]->data, *y = t->out[0]->data, *yt = t->out[1]->data,
              *xx = t->out[2]->data;
  for (int i = 0; i < N; i++) {
    assert_true(y[i] == (x[i] + (float)(i % COLS)) * 3);
    assert_true(yt[i % COLS * ROWS + i / COLS] == y[i]);
    assert_true(xx[i] == x[i]);
  }
}

#endif

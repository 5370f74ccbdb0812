// Models for the driver's tests: written as ONNX into a folder that each test has for itself.
#ifndef KILN_TEST_DRIVER_MODELS_H
#define KILN_TEST_DRIVER_MODELS_H

#include "kiln/compile.h"
#include "unit/onnx/model.h"

#include <stdlib.h>
#include <sys/stat.h>

enum { ONNX_F32 = 1, ONNX_I64 = 7 };

typedef struct folder {
  char path[64], model[96], module[96];
} folder;

static inline folder folder_make(void) {
  folder f;
  snprintf(f.path, sizeof f.path, "/tmp/kiln-driver-XXXXXX");
  assert_non_null(mkdtemp(f.path));
  snprintf(f.model, sizeof f.model, "%s/m.onnx", f.path);
  snprintf(f.module, sizeof f.module, "%s/m.so", f.path);
  return f;
}

static inline void folder_remove(const folder *f) {
  char command[96];
  snprintf(command, sizeof command, "rm -r %s", f->path);
  assert_int_equal(system(command), 0);
}

static inline int folder_count(const folder *f) {
  char command[96];
  int n = -1;
  snprintf(command, sizeof command, "ls -A %s | wc -l", f->path);
  FILE *p = popen(command, "r");
  assert_non_null(p);
  assert_int_equal(fscanf(p, "%d", &n), 1);
  pclose(p);
  return n;
}

static inline void save(const char *path, kiln_text m) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(m.data, 1, (size_t)m.n, f), m.n);
  fclose(f);
}

// Element i of every weight below.
static inline float weight_at(int64_t i) { return (float)(i % 13 - 6) / 8; }

static inline void put_weights(fixture *t, kiln_text *graph, const char *name, int rank,
                               const int64_t *shape) {
  kiln_text m = tensor(t, name, ONNX_F32, rank, shape);
  int64_t n = 1;
  for (int k = 0; k < rank; k++) n *= shape[k];
  float *data = malloc((size_t)n * 4);
  for (int64_t i = 0; i < n; i++) data[i] = weight_at(i);
  put_bytes(&m, 9, data, (size_t)n * 4);
  free(data);
  put_message(graph, 5, m);
}

enum { IN = 48, HIDDEN = 64, WORDS = 10 };

// y = relu(x w + b) + table[ids];  outputs y, ids itself, w
static inline void save_mlp(const char *path, const char *batch) {
  fixture t;
  char shape[64];
  fixture_init(&t);
  kiln_text g = message(&t);
  put_text(&g, 2, "mlp");
  put_message(&g, 1, node(&t, "MatMul", "mm", "x,w", "h0"));
  put_message(&g, 1, node(&t, "Add", "bias", "h0,b", "h1"));
  put_message(&g, 1, node(&t, "Relu", "act", "h1", "h2"));
  put_message(&g, 1, node(&t, "Gather", "look", "table,ids", "e"));
  put_message(&g, 1, node(&t, "Add", "sum", "h2,e", "y"));
  put_message(&g, 1, node(&t, "Identity", "same", "ids", "ids2"));
  put_message(&g, 1, node(&t, "Identity", "keep", "w", "w2"));
  put_weights(&t, &g, "w", 2, (int64_t[]){IN, HIDDEN});
  put_weights(&t, &g, "b", 1, (int64_t[]){HIDDEN});
  put_weights(&t, &g, "table", 2, (int64_t[]){WORDS, HIDDEN});
  snprintf(shape, sizeof shape, "%s,%d", batch, IN);
  put_message(&g, 11, value_info(&t, "x", ONNX_F32, shape));
  put_message(&g, 11, value_info(&t, "ids", ONNX_I64, batch));
  snprintf(shape, sizeof shape, "%s,%d", batch, HIDDEN);
  put_message(&g, 12, value_info(&t, "y", ONNX_F32, shape));
  put_message(&g, 12, value_info(&t, "ids2", ONNX_I64, batch));
  put_message(&g, 12, value_info(&t, "w2", ONNX_F32, "48,64"));
  save(path, model(&t, 8, g));
  fixture_deinit(&t);
}

// y = softmax(relu(x w + b) v), of x(rows, WIDE); |rows|: "96", the number that others take, or a
// name
enum { ROWS = 96, WIDE = 256, NARROW = 40 };
static inline void save_pair(const char *path, const char *rows) {
  fixture t;
  char shape[64];
  fixture_init(&t);
  kiln_text g = message(&t);
  put_text(&g, 2, "pair");
  put_message(&g, 1, node(&t, "MatMul", "first", "x,w", "h0"));
  put_message(&g, 1, node(&t, "Add", "bias", "h0,b", "h1"));
  put_message(&g, 1, node(&t, "Relu", "act", "h1", "h2"));
  put_message(&g, 1, node(&t, "MatMul", "second", "h2,v", "h3"));
  put_message(&g, 1, node(&t, "Softmax", "soft", "h3", "y"));
  put_weights(&t, &g, "w", 2, (int64_t[]){WIDE, WIDE});
  put_weights(&t, &g, "b", 1, (int64_t[]){WIDE});
  put_weights(&t, &g, "v", 2, (int64_t[]){WIDE, NARROW});
  snprintf(shape, sizeof shape, "%s,%d", rows, WIDE);
  put_message(&g, 11, value_info(&t, "x", ONNX_F32, shape));
  snprintf(shape, sizeof shape, "%s,%d", rows, NARROW);
  put_message(&g, 12, value_info(&t, "y", ONNX_F32, shape));
  save(path, model(&t, 8, g));
  fixture_deinit(&t);
}

// Tensors of a model or module whose ports are given.
typedef struct call {
  size_t n_in, n_out;
  DLManagedTensorVersioned *in[4], *out[4];
  const DLTensor *inputs[4];
  DLTensor *outputs[4];
} call;

static inline DLManagedTensorVersioned *port_tensor(kiln_port p) {
  DLManagedTensorVersioned *t = kiln_tensor_create(p.dtype, p.rank, p.shape, NULL);
  assert_non_null(t);
  return t;
}

static inline void call_fill(call *c) {
  for (size_t i = 0; i < c->n_in; i++) {
    DLTensor *t = &c->in[i]->dl_tensor;
    const bool is_float = t->dtype.code == kDLFloat;
    for (int64_t k = 0; t->dtype.bits >= 32 && k < kiln_tensor_count(t); k++)
      if (is_float) ((float *)t->data)[k] = (float)(k * 7 % 31 - 15) / 16;
      else ((int64_t *)t->data)[k] = k * 3 % WORDS;
    c->inputs[i] = t;
  }
  for (size_t i = 0; i < c->n_out; i++) c->outputs[i] = &c->out[i]->dl_tensor;
}

static inline call call_of_model(const kiln_model *m) {
  call c = {.n_in = kiln_model_input_count(m), .n_out = kiln_model_output_count(m)};
  for (size_t i = 0; i < c.n_in; i++) c.in[i] = port_tensor(kiln_model_input(m, i));
  for (size_t i = 0; i < c.n_out; i++) c.out[i] = port_tensor(kiln_model_output(m, i));
  call_fill(&c);
  return c;
}

static inline call call_of_module(const kiln_module *m) {
  call c = {.n_in = kiln_module_input_count(m), .n_out = kiln_module_output_count(m)};
  for (size_t i = 0; i < c.n_in; i++) c.in[i] = port_tensor(kiln_module_input(m, i));
  for (size_t i = 0; i < c.n_out; i++) c.out[i] = port_tensor(kiln_module_output(m, i));
  call_fill(&c);
  return c;
}

static inline void call_destroy(call *c) {
  for (size_t i = 0; i < c->n_in; i++) kiln_tensor_destroy(c->in[i]);
  for (size_t i = 0; i < c->n_out; i++) kiln_tensor_destroy(c->out[i]);
}

// The outputs of save_mlp's model, by plain loops.
static inline void check_mlp(const call *c) {
  const float *x = c->in[0]->dl_tensor.data, *y = c->out[0]->dl_tensor.data;
  const int64_t *ids = c->in[1]->dl_tensor.data, *ids2 = c->out[1]->dl_tensor.data;
  const float *w2 = c->out[2]->dl_tensor.data;
  const int64_t batch = c->in[0]->dl_tensor.shape[0];
  for (int64_t r = 0; r < batch; r++)
    for (int64_t h = 0; h < HIDDEN; h++) {
      double sum = weight_at(h);
      for (int64_t k = 0; k < IN; k++) sum += (double)x[r * IN + k] * weight_at(k * HIDDEN + h);
      const double want = (sum > 0 ? sum : 0) + weight_at(ids[r] * HIDDEN + h);
      if (!(y[r * HIDDEN + h] - want < 1e-5 && want - y[r * HIDDEN + h] < 1e-5))
        fail_msg("y[%d, %d] must be %g, got %g", (int)r, (int)h, want, y[r * HIDDEN + h]);
    }
  for (int64_t r = 0; r < batch; r++) assert_int_equal(ids[r], ids2[r]);
  for (int64_t i = 0; i < IN * HIDDEN; i++) assert_true(w2[i] == weight_at(i));
}

#endif

// A tiny wire writer and a place to read from: the tests of the reader build their models with it.
#ifndef KILN_TEST_ONNX_MODEL_H
#define KILN_TEST_ONNX_MODEL_H

#include "onnx/reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

// A context with its messages; the model lies in memory, in a file without a name.
typedef struct fixture {
  kiln_diag *diag;
  kiln_ctx cx;
  kiln_onnx_file *file;
  kiln_graph *g;
} fixture;

static inline void fixture_init(fixture *t) {
  *t = (fixture){.diag = kiln_diag_create()};
  assert_non_null(t->diag);
  assert_int_equal(kiln_ctx_init(&t->cx, t->diag), KILN_OK);
}
static inline void fixture_deinit(fixture *t) {
  kiln_onnx_close(t->file);
  kiln_ctx_deinit(&t->cx);
  kiln_diag_destroy(t->diag);
}

static inline kiln_status fixture_read(fixture *t, const void *data, size_t n,
                                       const kiln_onnx_options *options) {
  char path[64];
  const int fd = memfd_create("model.onnx", 0);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, data, n), (ssize_t)n);
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  const kiln_status status = kiln_onnx_read(&t->cx, path, options, &t->file, &t->g);
  close(fd);
  assert_int_equal(status == KILN_OK, t->g != NULL);
  assert_int_equal(status == KILN_OK, t->file != NULL);
  if (status != KILN_OK) assert_true(kiln_diag_count(t->diag) > 0);
  return status;
}

// Whether a message holds |part|.
static inline bool has_message(const fixture *t, const char *part) {
  for (size_t i = 0; i < kiln_diag_count(t->diag); i++)
    if (strstr(kiln_diag_message(t->diag, i), part) != NULL) return true;
  return false;
}

static inline void put_varint(kiln_text *m, uint64_t value) {
  for (; value >= 0x80; value >>= 7) kiln_text_add_bytes(m, (char[]){(char)(value | 0x80)}, 1);
  kiln_text_add_bytes(m, (char[]){(char)value}, 1);
}
static inline void put_int(kiln_text *m, int field, int64_t value) {
  put_varint(m, (uint64_t)field << 3);
  put_varint(m, (uint64_t)value);
}
static inline void put_bytes(kiln_text *m, int field, const void *data, size_t n) {
  put_varint(m, (uint64_t)field << 3 | 2);
  put_varint(m, n);
  kiln_text_add_bytes(m, data, n);
}
static inline void put_text(kiln_text *m, int field, const char *text) {
  put_bytes(m, field, text, strlen(text));
}
static inline void put_float(kiln_text *m, int field, float value) {
  put_varint(m, (uint64_t)field << 3 | 5);
  kiln_text_add_bytes(m, (const char *)&value, 4);
}
static inline void put_message(kiln_text *m, int field, kiln_text message) {
  put_bytes(m, field, message.n > 0 ? message.data : "", (size_t)message.n);
}
static inline kiln_text message(fixture *t) {
  kiln_text m;
  kiln_text_init(&m, &t->cx.perm);
  return m;
}

// ValueInfoProto: |shape| is "2,n,?" (a number, a name, unknown), NULL is of unknown rank.
static inline kiln_text value_info(fixture *t, const char *name, int64_t dtype, const char *shape) {
  kiln_text info = message(t), type = message(t), tensor = message(t), dims = message(t);
  char words[256];
  snprintf(words, sizeof(words), "%s", shape == NULL ? "" : shape);
  char *rest = words;
  for (char *word = strtok_r(words, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
    kiln_text dim = message(t);
    long long value = 0;
    if (sscanf(word, "%lld", &value) == 1) put_int(&dim, 1, value);
    else put_text(&dim, 2, *word == '?' ? "" : word);
    put_message(&dims, 1, dim);
  }
  put_int(&tensor, 1, dtype);
  if (shape != NULL) put_message(&tensor, 2, dims);
  put_message(&type, 1, tensor);
  put_text(&info, 1, name);
  put_message(&info, 2, type);
  return info;
}

// NodeProto: names are separated by ',', "-" is an omitted one.
static inline kiln_text node(fixture *t, const char *op, const char *name, const char *inputs,
                             const char *outputs) {
  kiln_text m = message(t);
  const char *const lists[] = {inputs, outputs};
  for (int k = 0; k < 2; k++) {
    char words[256], *rest;
    snprintf(words, sizeof(words), "%s", lists[k]);
    for (char *w = strtok_r(words, ",", &rest); w != NULL; w = strtok_r(NULL, ",", &rest))
      put_text(&m, k + 1, strcmp(w, "-") == 0 ? "" : w);
  }
  put_text(&m, 3, name);
  put_text(&m, 4, op);
  return m;
}

// TensorProto without data.
static inline kiln_text tensor(fixture *t, const char *name, int64_t dtype, int rank,
                               const int64_t *shape) {
  kiln_text m = message(t);
  for (int i = 0; i < rank; i++) put_int(&m, 1, shape[i]);
  put_int(&m, 2, dtype);
  put_text(&m, 8, name);
  return m;
}

static inline kiln_text opset(fixture *t, const char *domain, int64_t version) {
  kiln_text m = message(t);
  put_text(&m, 1, domain);
  put_int(&m, 2, version);
  return m;
}

// ModelProto with the default domain at opset 17.
static inline kiln_text model(fixture *t, int64_t ir_version, kiln_text graph) {
  kiln_text m = message(t);
  put_int(&m, 1, ir_version);
  put_text(&m, 2, "test");
  put_text(&m, 3, "1.0");
  put_message(&m, 7, graph);
  put_message(&m, 8, opset(t, "", 17));
  return m;
}

static inline const kiln_value *value_named(const fixture *t, const kiln_graph *g,
                                            const char *name) {
  for (int i = 0; i < g->n_values; i++)
    if (strcmp(kiln_symbol_text(&t->cx, g->values[i]->name), name) == 0) return g->values[i];
  return NULL;
}

#endif

// The table-driven protobuf writer: a message whose length precedes it is traversed twice, to count
// and to write.
#include "onnx/write.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

// The destination of bytes; if |data| is NULL they are only counted.
typedef struct sink {
  char *data;
  size_t n;
} sink;

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static void put(sink *s, const void *bytes, size_t n) {
  if (s->data && n) memcpy(s->data + s->n, bytes, n);
  s->n += n;
}

static void put_varint(sink *s, uint64_t value) {
  for (; value >= 0x80; value >>= 7) put(s, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
  put(s, &(uint8_t){(uint8_t)value}, 1);
}

static void put_tag(sink *s, int number, unsigned wire) {
  put_varint(s, (uint64_t)number << 3 | wire);
}

static void put_bytes(sink *s, int number, const void *data, size_t n) {
  put_tag(s, number, WIRE_BYTES);
  put_varint(s, n);
  put(s, data, n);
}

static void put_message(sink *s, const onnx_schema *schema, const void *message);

static void put_nested(sink *s, const onnx_field *f, const void *message) {
  sink count = {0};
  put_message(&count, f->message, message);
  put_tag(s, f->number, WIRE_BYTES);
  put_varint(s, count.n);
  put_message(s, f->message, message);
}

typedef ONNX_LIST(void) list;

static void put_ints(sink *s, int number, const int64_t *values, size_t n) {
  sink count = {0};
  for (size_t i = 0; i < n; i++) put_varint(&count, (uint64_t)values[i]);
  put_tag(s, number, WIRE_BYTES);
  put_varint(s, count.n);
  for (size_t i = 0; i < n; i++) put_varint(s, (uint64_t)values[i]);
}

// Writes a list, unless it is empty.
static void put_list(sink *s, const onnx_field *f, const list *l) {
  if (l->n == 0) return;
  switch (f->kind) {
  case ONNX_BYTESES:
    for (size_t i = 0; i < l->n; i++) {
      const onnx_bytes *b = (const onnx_bytes *)l->data + i;
      put_bytes(s, f->number, b->data, b->n);
    }
    return;
  case ONNX_MESSAGES:
    for (size_t i = 0; i < l->n; i++)
      put_nested(s, f, (const char *)l->data + i * f->message->bytes);
    return;
  case ONNX_INTS: put_ints(s, f->number, l->data, l->n); return;
  case ONNX_FLOATS: put_bytes(s, f->number, l->data, 4 * l->n); return;
  case ONNX_DOUBLES: put_bytes(s, f->number, l->data, 8 * l->n); return;
  case ONNX_INT:
  case ONNX_FLOAT:
  case ONNX_BYTES:
  case ONNX_MESSAGE: return; // not a list
  }
}

static void put_field(sink *s, const onnx_field *f, bool has, const void *at) {
  switch (f->kind) {
  case ONNX_INT: {
    const int64_t value = *(const int64_t *)at;
    if (!has && value == 0) return;
    put_tag(s, f->number, WIRE_VARINT);
    put_varint(s, (uint64_t)value);
    return;
  }
  case ONNX_FLOAT:
    if (!has) return;
    put_tag(s, f->number, WIRE_FIXED32);
    put(s, at, 4);
    return;
  case ONNX_BYTES: {
    const onnx_bytes *b = at;
    if (has || b->n) put_bytes(s, f->number, b->data, b->n);
    return;
  }
  case ONNX_MESSAGE: {
    const void *const *message = at;
    if (*message) put_nested(s, f, *message);
    return;
  }
  case ONNX_BYTESES:
  case ONNX_MESSAGES:
  case ONNX_INTS:
  case ONNX_FLOATS:
  case ONNX_DOUBLES: put_list(s, f, at); return;
  }
}

// Bounded recursion: messages nest no deeper than the reader allows.
static void put_message(sink *s, const onnx_schema *schema, const void *message) {
  const uint64_t has = *(const uint64_t *)message;
  for (int k = 0; k < schema->n_fields; k++) {
    const onnx_field *f = &schema->fields[k];
    put_field(s, f, has >> k & 1, (const char *)message + f->offset);
  }
}

onnx_bytes kiln_onnx_encode(kiln_arena *arena, const onnx_schema *schema, const void *message) {
  sink count = {0};
  put_message(&count, schema, message);
  sink s = {.data = kiln_arena_alloc(arena, count.n + 1)};
  put_message(&s, schema, message);
  return (onnx_bytes){s.data, s.n};
}

kiln_status kiln_onnx_write(kiln_ctx *cx, const char *path, const onnx_model *model) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const onnx_bytes bytes = kiln_onnx_encode(&cx->scratch, &kiln_onnx_model_schema, model);
  errno = 0;
  FILE *f = fopen(path, "wbe");
  bool right = f && fwrite(bytes.data, 1, bytes.n, f) == bytes.n;
  if (f && fclose(f)) right = false;
  kiln_arena_rewind(&cx->scratch, mark);
  if (right) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path, "model: must be writable, got: %s",
                   strerror(errno));
}

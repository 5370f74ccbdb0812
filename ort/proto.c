// SPDX-License-Identifier: Apache-2.0
// A field is a key (number and wire type) and a value; a message's value is its length and its
// bytes.
#include "proto.h"

#include <string.h>

enum { VARINT = 0, LENGTH = 2, FIXED_32 = 5 };

static void put_varint(ep_buffer *b, uint64_t value) {
  unsigned char bytes[10];
  size_t n = 0;
  for (; value >= 128; value >>= 7) bytes[n++] = (unsigned char)(value | 128);
  bytes[n++] = (unsigned char)value;
  ep_buffer_add(b, bytes, n);
}

static void put_key(ep_buffer *b, int field, int kind) {
  put_varint(b, (uint64_t)field << 3 | (uint64_t)kind);
}

void ep_put_int(ep_buffer *b, int field, int64_t value) {
  put_key(b, field, VARINT);
  put_varint(b, (uint64_t)value);
}

void ep_put_bytes(ep_buffer *b, int field, const void *data, size_t n) {
  put_key(b, field, LENGTH);
  put_varint(b, n);
  ep_buffer_add(b, data, n);
}

void ep_put_text(ep_buffer *b, int field, const char *text) {
  ep_put_bytes(b, field, text, strlen(text));
}

void ep_put_float(ep_buffer *b, int field, float value) {
  put_key(b, field, FIXED_32);
  ep_buffer_add(b, &value, sizeof value);
}

size_t ep_put_begin(ep_buffer *b, int field) {
  put_key(b, field, LENGTH);
  return b->n;
}

void ep_put_end(ep_buffer *b, size_t at) { // the length is inserted before the contents
  if (b->is_lost) return;
  const size_t body = b->n - at;
  put_varint(b, body);
  const size_t head = b->n - at - body;
  char length[10];
  if (b->is_lost) return;
  memcpy(length, b->data + at + body, head);
  memmove(b->data + at + head, b->data + at, body);
  memcpy(b->data + at, length, head);
}

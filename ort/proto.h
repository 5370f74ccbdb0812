// SPDX-License-Identifier: Apache-2.0
// Writing of Protocol Buffers' wire format: fields of a message, nested messages in place.
#ifndef KILN_ORT_PROTO_H
#define KILN_ORT_PROTO_H

#include "memory.h"

void ep_put_int(ep_buffer *b, int field, int64_t value);
void ep_put_bytes(ep_buffer *b, int field, const void *data, size_t n);
void ep_put_text(ep_buffer *b, int field, const char *text);
void ep_put_float(ep_buffer *b, int field, float value);

// Begins a nested message in field |field|; fields put until |end| belong to it.
// gives: the position for |end|
size_t ep_put_begin(ep_buffer *b, int field);
void ep_put_end(ep_buffer *b, size_t at);

#endif

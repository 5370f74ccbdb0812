// The table-driven decoder of the protobuf wire format: a schema has a row for each field with its
// offset in a struct.
//
// Bytes and packed floats are borrowed from the file, the rest is allocated in an arena. Messages
// are swept twice: the first sweep checks and counts, so that every list is allocated once with its
// exact size. Messages nest at most KILN_ONNX_MAX_NESTING deep. Unknown fields are skipped.
#ifndef KILN_ONNX_WIRE_H
#define KILN_ONNX_WIRE_H

#include "support/ctx.h"

enum { KILN_ONNX_MAX_NESTING = 100, KILN_ONNX_MAX_FIELDS = 24 };

typedef struct onnx_bytes {
  const char *data; // borrowed, not terminated
  size_t n;
} onnx_bytes;

// A list in a struct; all lists have this layout.
#define ONNX_LIST(T)                                                                               \
  struct {                                                                                         \
    T *data;                                                                                       \
    size_t n;                                                                                      \
  }

// Packed little-endian numbers, unaligned.
typedef struct onnx_packed {
  const char *data;
  size_t n; // elements
} onnx_packed;

typedef enum onnx_field_kind {
  ONNX_INT,      // int64_t: a varint
  ONNX_FLOAT,    // float
  ONNX_BYTES,    // onnx_bytes
  ONNX_MESSAGE,  // pointer to the sub-message's struct
  ONNX_BYTESES,  // ONNX_LIST(onnx_bytes)
  ONNX_MESSAGES, // ONNX_LIST(the sub-message's struct)
  ONNX_INTS,     // ONNX_LIST(int64_t)
  ONNX_FLOATS,   // onnx_packed, 4 bytes an element
  ONNX_DOUBLES,  // onnx_packed, 8 bytes an element
} onnx_field_kind;

typedef struct onnx_schema onnx_schema;
typedef struct onnx_field {
  int number;
  onnx_field_kind kind;
  size_t offset; // in the struct
  const char *name;
  const onnx_schema *message; // of MESSAGE and MESSAGES
} onnx_field;

// The first member of every struct is `uint64_t has`: bit k is set if the field of row k occurred.
struct onnx_schema {
  const char *name; // "NodeProto"
  size_t bytes;     // of the struct
  int n_fields;     // at most KILN_ONNX_MAX_FIELDS
  const onnx_field *fields;
};

// Decodes |bytes| of a file that starts at |file| into |out|, a struct of |schema|.
//
// gives: |out| with its lists in |arena|, its bytes borrowed
// errors: KILN_BAD_INPUT with |path|, the offset in the file and the field
kiln_status kiln_onnx_decode(kiln_ctx *cx, kiln_arena *arena, const char *path, const char *file,
                             onnx_bytes bytes, const onnx_schema *schema, void *out);

#endif

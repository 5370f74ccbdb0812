// The table-driven protobuf reader: one loop over the fields of a message, run twice, first to
// check and count, then to fill.
#include "onnx/wire.h"

#include <string.h>

typedef struct decoder {
  kiln_ctx *cx;
  kiln_arena *arena;
  const char *path, *file; // path and beginning of the file, for messages
} decoder;

typedef enum wire_type {
  WIRE_VARINT = 0,
  WIRE_FIXED64 = 1,
  WIRE_BYTES = 2,
  WIRE_FIXED32 = 5
} wire_type;

// One field of a message.
typedef struct token {
  const char *at; // of its tag
  uint64_t number;
  unsigned wire;
  uint64_t varint;  // for WIRE_VARINT
  onnx_bytes bytes; // for other wire types
} token;

// Counts of the first sweep for one row.
typedef struct tally {
  size_t n;      // elements
  size_t chunks; // occurrences of the field
} tally;

typedef struct list {
  void *data;
  size_t n;
} list;

static kiln_status decode(const decoder *d, const onnx_schema *schema, onnx_bytes bytes, int depth,
                          void *out);

static kiln_status damaged(const decoder *d, const onnx_schema *schema, const char *at,
                           const char *what) {
  const char *place = kiln_arena_printf(d->arena, "%s: byte %zu", d->path, (size_t)(at - d->file));
  return KILN_FAIL(d->cx->diag, KILN_BAD_INPUT, place, "%s: %s", schema->name, what);
}

static bool take_varint(const char **at, const char *end, uint64_t *out) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
    const uint8_t byte = (uint8_t) * (*at)++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) {
      *out = value;
      return true;
    }
  }
  return false;
}

static bool take_bytes(const char **at, const char *end, uint64_t n, onnx_bytes *out) {
  if (n > (uint64_t)(end - *at)) return false;
  *out = (onnx_bytes){*at, (size_t)n};
  *at += n;
  return true;
}

static kiln_status take_token(const decoder *d, const onnx_schema *schema, const char **at,
                              const char *end, token *out) {
  uint64_t tag = 0, n = 0;
  *out = (token){.at = *at};
  if (!take_varint(at, end, &tag)) return damaged(d, schema, out->at, "a field tag is cut off");
  out->number = tag >> 3;
  out->wire = (unsigned)(tag & 7);
  bool whole = false;
  switch (out->wire) {
  case WIRE_VARINT: whole = take_varint(at, end, &out->varint); break;
  case WIRE_FIXED64: whole = take_bytes(at, end, 8, &out->bytes); break;
  case WIRE_FIXED32: whole = take_bytes(at, end, 4, &out->bytes); break;
  case WIRE_BYTES: whole = take_varint(at, end, &n) && take_bytes(at, end, n, &out->bytes); break;
  default:
    return damaged(d, schema, out->at, "a wire type must be 0, 1, 2 or 5: this is no ONNX file");
  }
  if (!whole) {
    const char *what =
        kiln_arena_printf(d->arena, "field %" PRIu64 " must end within the %zu bytes that remain",
                          out->number, (size_t)(end - out->at));
    return damaged(d, schema, out->at, what);
  }
  return KILN_OK;
}

static int find_field(const onnx_schema *schema, uint64_t number) {
  for (int k = 0; k < schema->n_fields; k++)
    if ((uint64_t)schema->fields[k].number == number) return k;
  return -1;
}

// The size of an unpacked number; 0 for varints.
static size_t fixed_bytes(onnx_field_kind kind) {
  if (kind == ONNX_FLOATS || kind == ONNX_FLOAT) return 4;
  return kind == ONNX_DOUBLES ? 8 : 0;
}

static bool wire_fits(onnx_field_kind kind, unsigned wire) {
  switch (kind) {
  case ONNX_INT: return wire == WIRE_VARINT;
  case ONNX_FLOAT: return wire == WIRE_FIXED32;
  case ONNX_BYTES:
  case ONNX_MESSAGE:
  case ONNX_BYTESES:
  case ONNX_MESSAGES: return wire == WIRE_BYTES;
  case ONNX_INTS: return wire == WIRE_VARINT || wire == WIRE_BYTES;
  case ONNX_FLOATS: return wire == WIRE_FIXED32 || wire == WIRE_BYTES;
  case ONNX_DOUBLES: return wire == WIRE_FIXED64 || wire == WIRE_BYTES;
  }
  return false;
}

static size_t count_varints(onnx_bytes packed) {
  size_t n = 0;
  for (size_t i = 0; i < packed.n; i++) n += !(packed.data[i] & 0x80);
  return n;
}

// Checks the token against its row and counts its elements.
static kiln_status count_token(const decoder *d, const onnx_schema *schema, const onnx_field *field,
                               const token *t, tally *seen) {
  if (!wire_fits(field->kind, t->wire)) {
    const char *what = kiln_arena_printf(d->arena, "field %s must have another wire type, got %u",
                                         field->name, t->wire);
    return damaged(d, schema, t->at, what);
  }
  const size_t fixed = fixed_bytes(field->kind);
  seen->chunks++;
  if (t->wire != WIRE_BYTES || field->kind == ONNX_BYTESES || field->kind == ONNX_MESSAGES)
    seen->n++;
  else if (field->kind == ONNX_INTS) seen->n += count_varints(t->bytes);
  else if (fixed != 0) seen->n += t->bytes.n / fixed;
  const bool ragged = fixed != 0 && t->wire == WIRE_BYTES && t->bytes.n % fixed != 0;
  const bool cut = field->kind == ONNX_INTS && t->wire == WIRE_BYTES && t->bytes.n > 0 &&
                   (t->bytes.data[t->bytes.n - 1] & 0x80);
  if (ragged || cut)
    return damaged(d, schema, t->at,
                   kiln_arena_printf(d->arena, "the last number of %s is cut off", field->name));
  if (field->kind == ONNX_MESSAGE && seen->chunks > 1)
    return damaged(d, schema, t->at,
                   kiln_arena_printf(d->arena, "field %s must not occur twice", field->name));
  return KILN_OK;
}

static size_t elem_bytes(const onnx_field *field) {
  switch (field->kind) {
  case ONNX_BYTESES: return sizeof(onnx_bytes);
  case ONNX_MESSAGES: return field->message->bytes;
  case ONNX_INTS: return sizeof(int64_t);
  case ONNX_FLOATS: return 4;
  case ONNX_DOUBLES: return 8;
  case ONNX_INT:
  case ONNX_FLOAT:
  case ONNX_BYTES:
  case ONNX_MESSAGE: return 0;
  }
  return 0;
}

// Allocates the lists; a single packed run of floats is borrowed instead (see fill_token).
static void make_lists(const decoder *d, const onnx_schema *schema, const tally *tallies,
                       char *out) {
  for (int k = 0; k < schema->n_fields; k++) {
    const onnx_field *field = &schema->fields[k];
    const size_t bytes = elem_bytes(field);
    if (bytes == 0 || tallies[k].n == 0) continue;
    list l = {NULL, 0};
    if (fixed_bytes(field->kind) == 0 || tallies[k].chunks > 1)
      l.data = kiln_arena_zalloc(d->arena, bytes * tallies[k].n);
    memcpy(out + field->offset, &l, sizeof(l));
  }
}

static kiln_status fill_ints(const decoder *d, const onnx_schema *schema, const token *t, list *l) {
  int64_t *to = l->data;
  if (t->wire == WIRE_VARINT) {
    to[l->n++] = (int64_t)t->varint;
    return KILN_OK;
  }
  const char *at = t->bytes.data, *end = at + t->bytes.n;
  while (at < end) {
    uint64_t value = 0;
    if (!take_varint(&at, end, &value))
      return damaged(d, schema, at, "a number must have at most ten bytes");
    to[l->n++] = (int64_t)value;
  }
  return KILN_OK;
}

static void fill_fixed(const token *t, size_t bytes, list *l) {
  if (l->data == NULL) { // the only run
    *l = (list){(void *)(uintptr_t)t->bytes.data, t->bytes.n / bytes};
    return;
  }
  memcpy((char *)l->data + l->n * bytes, t->bytes.data, t->bytes.n);
  l->n += t->bytes.n / bytes;
}

static kiln_status fill_token(const decoder *d, const onnx_schema *schema, const onnx_field *field,
                              const token *t, int depth, char *at) {
  list l;
  switch (field->kind) {
  case ONNX_INT: memcpy(at, &t->varint, 8); return KILN_OK;
  case ONNX_FLOAT: memcpy(at, t->bytes.data, 4); return KILN_OK;
  case ONNX_BYTES: memcpy(at, &t->bytes, sizeof(t->bytes)); return KILN_OK;
  case ONNX_MESSAGE: {
    void *message = kiln_arena_zalloc(d->arena, field->message->bytes);
    memcpy(at, &message, sizeof(message));
    return decode(d, field->message, t->bytes, depth + 1, message);
  }
  case ONNX_BYTESES:
  case ONNX_MESSAGES:
  case ONNX_INTS:
  case ONNX_FLOATS:
  case ONNX_DOUBLES: break;
  }
  memcpy(&l, at, sizeof(l));
  kiln_status status = KILN_OK;
  if (field->kind == ONNX_INTS) status = fill_ints(d, schema, t, &l);
  else if (field->kind == ONNX_BYTESES) ((onnx_bytes *)l.data)[l.n++] = t->bytes;
  else if (field->kind == ONNX_MESSAGES)
    status = decode(d, field->message, t->bytes, depth + 1,
                    (char *)l.data + l.n++ * field->message->bytes);
  else if (t->bytes.n > 0) fill_fixed(t, fixed_bytes(field->kind), &l);
  memcpy(at, &l, sizeof(l));
  return status;
}

static kiln_status decode(const decoder *d, const onnx_schema *schema, onnx_bytes bytes, int depth,
                          void *out) {
  tally tallies[KILN_ONNX_MAX_FIELDS] = {0};
  const char *at = bytes.data, *end = bytes.data + bytes.n;
  uint64_t has = 0;
  token t;
  if (depth >= KILN_ONNX_MAX_NESTING)
    return damaged(d, schema, at, "messages must nest at most 100 deep");
  while (at < end) {
    KILN_TRY(take_token(d, schema, &at, end, &t));
    const int k = find_field(schema, t.number);
    if (k < 0) continue;
    has |= UINT64_C(1) << k;
    KILN_TRY(count_token(d, schema, &schema->fields[k], &t, &tallies[k]));
  }
  make_lists(d, schema, tallies, out);
  memcpy(out, &has, sizeof(has));
  for (at = bytes.data; at < end;) {
    KILN_TRY(take_token(d, schema, &at, end, &t));
    const int k = find_field(schema, t.number);
    if (k < 0) continue;
    const onnx_field *field = &schema->fields[k];
    KILN_TRY(fill_token(d, schema, field, &t, depth, (char *)out + field->offset));
  }
  return KILN_OK;
}

kiln_status kiln_onnx_decode(kiln_ctx *cx, kiln_arena *arena, const char *path, const char *file,
                             onnx_bytes bytes, const onnx_schema *schema, void *out) {
  const decoder d = {cx, arena, path, file};
  memset(out, 0, schema->bytes);
  return decode(&d, schema, bytes, 0, out);
}

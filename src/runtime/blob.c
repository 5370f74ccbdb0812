// Writing and reading of binary fields.
#include "runtime/blob.h"
#include "runtime/wire.h"
#include "support/printable.h"

#include <stdlib.h>

// --- writing ---

void kiln_put_bytes(kiln_writer *w, const void *bytes, size_t n) {
  if (w->n + n > w->cap && !w->failed) {
    size_t cap = (w->n + n) * 2 + 256;
    unsigned char *data = realloc(w->data, cap);
    if (data) {
      w->data = data;
      w->cap = cap;
    } else w->failed = true;
  }
  if (w->failed) return;
  if (n) memcpy(w->data + w->n, bytes, n);
  w->n += n;
}

void kiln_put(kiln_writer *w, uint64_t v, int n_bytes) {
  unsigned char bytes[8];
  kiln_wire_put(bytes, v, n_bytes);
  kiln_put_bytes(w, bytes, (size_t)n_bytes);
}

void kiln_put_u32(kiln_writer *w, uint32_t v) { kiln_put(w, v, 4); }
void kiln_put_i64(kiln_writer *w, int64_t v) { kiln_put(w, (uint64_t)v, 8); }

void kiln_put_f64(kiln_writer *w, double v) {
  uint64_t bits;
  memcpy(&bits, &v, 8);
  kiln_put(w, bits, 8);
}

void kiln_put_text(kiln_writer *w, const char *text) {
  size_t n = strlen(text);
  kiln_put_u32(w, (uint32_t)n);
  kiln_put_bytes(w, text, n + 1);
}

void kiln_writer_end(kiln_writer *w, void **out, size_t *out_bytes) {
  if (w->failed) free(w->data);
  *out = w->failed ? NULL : w->data;
  *out_bytes = w->failed ? 0 : w->n;
  *w = (kiln_writer){0};
}

// --- reading ---

void kiln_reader_fail(kiln_reader *r, const char *what) {
  if (!r->wrong) r->wrong = what;
}

uint64_t kiln_get(kiln_reader *r, int n_bytes) {
  if (r->wrong) return 0;
  if (r->n - r->at < (size_t)n_bytes) {
    kiln_reader_fail(r, "the plan must not end inside a field");
    return 0;
  }
  uint64_t v = kiln_wire_get(r->data + r->at, n_bytes);
  r->at += (size_t)n_bytes;
  return v;
}

uint32_t kiln_get_u32(kiln_reader *r) { return (uint32_t)kiln_get(r, 4); }

double kiln_get_f64(kiln_reader *r) {
  uint64_t bits = kiln_get(r, 8);
  double v;
  memcpy(&v, &bits, 8);
  return v >= 0 && v < 1e300 ? v : 0; // shown in reports only
}

const char *kiln_get_text(kiln_reader *r) {
  uint32_t n = kiln_get_u32(r);
  if (r->wrong) return "";
  if (r->n - r->at <= n) {
    kiln_reader_fail(r, "a string must end inside the plan");
    return "";
  }
  const char *text = (const char *)r->data + r->at;
  if (text[n] != 0 || memchr(text, 0, n))
    kiln_reader_fail(r, "a string must end with its only NUL");
  else if (!kiln_text_is_printable(text, n)) kiln_reader_fail(r, "a string must be printable");
  r->at += (size_t)n + 1;
  return r->wrong ? "" : text;
}

void *kiln_get_array(kiln_reader *r, uint32_t n, size_t min_bytes, size_t elem_bytes) {
  if (r->wrong) return NULL;
  if (n > (r->n - r->at) / min_bytes) {
    kiln_reader_fail(r, "a count must not exceed the rest of the plan");
    return NULL;
  }
  void *array = calloc(n ? n : 1, elem_bytes);
  if (!array) {
    r->no_memory = true;
    kiln_reader_fail(r, "memory");
  }
  return array;
}

kiln_status kiln_reader_end(const kiln_reader *r, const char *what, const char *place,
                            kiln_diag *diag) {
  if (!r->wrong) return KILN_OK;
  if (r->no_memory)
    return kiln_diag_fail(diag, KILN_NO_MEMORY, place, "the %s: no memory left", what);
  return kiln_diag_fail(diag, KILN_BAD_INPUT, place, "damaged %s: %s (byte %zu of %zu)", what,
                        r->wrong, r->at, r->n);
}

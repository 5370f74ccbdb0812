// The string builder: a character vector with a NUL after its end.
#include "support/text.h"

#include "support/numbers.h"
#include "support/vec.h"

#include <stdarg.h>
#include <string.h>

void kiln_text_init(kiln_text *t, kiln_arena *arena) {
  *t = (kiln_text){.arena = arena};
  kiln_text_add_bytes(t, "", 0);
}

// Makes room for n more characters and the NUL.
static void reserve(kiln_text *t, size_t n) {
  if (n < (size_t)(t->cap - t->n)) return;
  const int extra = n < (INT32_MAX >> 1) ? (int)n + 1 : INT32_MAX;
  t->data = kiln_vec_grow(t->arena, t->data, t->n, &t->cap, extra < 64 ? 64 : extra, 1);
}

void kiln_text_add_bytes(kiln_text *t, const char *bytes, size_t n) {
  reserve(t, n);
  if (n > 0) memcpy(t->data + t->n, bytes, n);
  t->n += (int)n;
  t->data[t->n] = 0;
}

void kiln_text_add(kiln_text *t, const char *text) { kiln_text_add_bytes(t, text, strlen(text)); }

void kiln_text_add_int(kiln_text *t, int64_t value) {
  char digits[20];
  size_t at = sizeof digits;
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do digits[--at] = (char)('0' + rest % 10);
  while (rest /= 10);
  if (value < 0) digits[--at] = '-';
  kiln_text_add_bytes(t, digits + at, sizeof digits - at);
}

void kiln_text_printf(kiln_text *t, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  reserve(t, 64);
  const int n = kiln_number_vformat(t->data + t->n, (size_t)(t->cap - t->n), format, args);
  va_end(args);
  if (n >= t->cap - t->n) {
    reserve(t, (size_t)n);
    kiln_number_vformat(t->data + t->n, (size_t)(t->cap - t->n), format, again);
  }
  va_end(again);
  if (n > 0) t->n += n;
  t->data[t->n] = 0;
}

void kiln_text_add_json(kiln_text *t, const char *text) {
  kiln_text_add(t, text ? "\"" : "null");
  for (const char *c = text; c && *c; c++) {
    if (*c == '"' || *c == '\\') kiln_text_printf(t, "\\%c", *c);
    else if ((unsigned char)*c < 0x20) kiln_text_printf(t, "\\u%04x", (unsigned)*c);
    else kiln_text_add_bytes(t, c, 1);
  }
  if (text) kiln_text_add(t, "\"");
}

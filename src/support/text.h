// A string builder in an arena; |data| is always NUL-terminated after the first append.
#ifndef KILN_SUPPORT_TEXT_H
#define KILN_SUPPORT_TEXT_H

#include "support/arena.h"

typedef struct kiln_text {
  kiln_arena *arena;
  char *data;
  int n, cap;
} kiln_text;

void kiln_text_init(kiln_text *t, kiln_arena *arena); // an empty string
void kiln_text_add(kiln_text *t, const char *text);
void kiln_text_add_bytes(kiln_text *t, const char *bytes, size_t n);
void kiln_text_add_int(kiln_text *t, int64_t value);     // in decimal
void kiln_text_add_json(kiln_text *t, const char *text); // as a string of JSON; NULL: null
void kiln_text_printf(kiln_text *t, const char *format, ...) KILN_PRINTF(2, 3);

#endif

// The C library's functions, run in the locale and rounding mode of support/surroundings.h.
#include "support/numbers.h"
#include "support/surroundings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

double kiln_number_parse(const char *text, char **out_end) {
  const kiln_surroundings before = kiln_surroundings_begin();
  const double value = strtod(text, out_end);
  kiln_surroundings_end(before);
  return value;
}

float kiln_number_parse_f32(const char *text) {
  const kiln_surroundings before = kiln_surroundings_begin();
  const float value = strtof(text, NULL);
  kiln_surroundings_end(before);
  return value;
}

int kiln_number_vformat(char *out, size_t room, const char *format, va_list args) {
  const int error = errno;
  const kiln_surroundings before = kiln_surroundings_begin();
  const int n = vsnprintf(out, room, format, args);
  kiln_surroundings_end(before);
  errno = error;
  return n;
}

int kiln_number_format(char *out, size_t room, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const int n = kiln_number_vformat(out, room, format, args);
  va_end(args);
  return n;
}

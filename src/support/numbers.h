// Conversion between numbers and text, independent of the calling thread's locale and rounding
// mode: a decimal point, no digit grouping, round to nearest. All other code must use these
// functions (tools/check_numbers.py).
#ifndef KILN_SUPPORT_NUMBERS_H
#define KILN_SUPPORT_NUMBERS_H

#include "kiln/status.h"

#include <stdarg.h>

// As strtod and strtof. |out_end| may be NULL.
double kiln_number_parse(const char *text, char **out_end);
float kiln_number_parse_f32(const char *text);
// As snprintf and vsnprintf; errno is preserved.
int kiln_number_format(char *out, size_t room, const char *format, ...) KILN_PRINTF(3, 4);
int kiln_number_vformat(char *out, size_t room, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

#endif

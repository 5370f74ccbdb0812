// Escaping of untrusted text for output, as names in a model, or a path. Bytes that are not
// printable UTF-8 become "\x1b" and the like, so that a name can neither control a terminal nor
// fake a line of output.
#ifndef KILN_SUPPORT_PRINTABLE_H
#define KILN_SUPPORT_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

bool kiln_text_is_printable(const char *bytes, size_t n);
// Escapes a name injectively: "\x1b" in a name becomes "\x5cx1b". |out| has room for
// KILN_PRINTABLE_GROWTH times |n| bytes and a NUL.
enum { KILN_PRINTABLE_GROWTH = 4 };
void kiln_name_printable(const char *bytes, size_t n, char *out);
bool kiln_name_is_shown_as_is(const char *bytes, size_t n);
// Escapes a whole message, in which newlines and tabs are kept.
void kiln_message_printable(const char *bytes, size_t n, char *out);

#endif

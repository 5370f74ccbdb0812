// Text of others that is shown: names in a model, a path. Bytes that are no printable UTF-8 become
// "\x1b" and the like, so that a name can neither steer a terminal nor look like a line of its own.
#ifndef KILN_SUPPORT_PRINTABLE_H
#define KILN_SUPPORT_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

bool kiln_text_is_printable(const char *bytes, size_t n);
// The name as it is shown; different names are shown differently, so "\x1b" in one is "\x5cx1b".
// |out| has room for KILN_PRINTABLE_GROWTH times |n| bytes and a NUL.
enum { KILN_PRINTABLE_GROWTH = 4 };
void kiln_name_printable(const char *bytes, size_t n, char *out);
bool kiln_name_is_shown_as_is(const char *bytes, size_t n);
// The same of a whole message, in which lines may end and tabs may be.
void kiln_message_printable(const char *bytes, size_t n, char *out);

#endif

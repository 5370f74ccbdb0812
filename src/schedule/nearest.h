// The nearest of the names offered to a word that is none of them, for messages.
#ifndef KILN_SCHEDULE_NEAREST_H
#define KILN_SCHEDULE_NEAREST_H

#include "support/ctx.h"

typedef struct kiln_nearest {
  const char *word;
  const char *name; // NULL: none is near
  int distance;
} kiln_nearest;
void kiln_nearest_offer(kiln_nearest *n, const char *name);
const char *kiln_nearest_text(kiln_ctx *cx, const kiln_nearest *n); // ": did you mean ...?", or ""

#endif

// Spelling suggestions: the nearest of the known names to an unknown one.
#ifndef KILN_SCHEDULE_NEAREST_H
#define KILN_SCHEDULE_NEAREST_H

#include "support/ctx.h"

typedef struct kiln_nearest {
  const char *word;
  const char *name; // NULL: no name is near
  int distance;
} kiln_nearest;
void kiln_nearest_offer(kiln_nearest *n, const char *name);
const char *kiln_nearest_text(kiln_ctx *cx, const kiln_nearest *n); // ": did you mean ...?", or ""

#endif

// Loop programs as text, for the tests that compare them. Include before cmocka.h.
#ifndef KILN_TEST_UNIT_LOOPS_H
#define KILN_TEST_UNIT_LOOPS_H

#include "ir/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static inline const char *loops_text(kiln_ctx *cx, const kiln_loops *l) {
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  kiln_loops_print(cx, l, &t);
  return t.data;
}

static inline kiln_loops *loops_parse(kiln_ctx *cx, const char *text) {
  kiln_loops *l = NULL;
  if (kiln_loops_parse(cx, text, &l) != KILN_OK)
    fail_msg("%s\n%s", kiln_diag_message(cx->diag, 0), text);
  return l;
}

#endif

// A definition given as text, bound to sizes given as "N=3 M=4", and run by the interpreter.
#ifndef KILN_TEST_TC_DEFINITION_H
#define KILN_TEST_TC_DEFINITION_H

#include "analysis/interpret.h"
#include "support/ctx.h"
#include "tc/definition.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct definition {
  kiln_diag *diag;
  kiln_ctx cx;
  kiln_program *prog;
} definition;

static inline void definition_begin(definition *d) {
  memset(d, 0, sizeof *d);
  d->diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&d->cx, d->diag), KILN_OK);
}

static inline void definition_end(definition *d) {
  kiln_ctx_deinit(&d->cx);
  kiln_diag_destroy(d->diag);
}

static inline kiln_status definition_bind(definition *d, const char *text, const char *entry,
                                          const char *sizes) {
  kiln_tc_binding list[16];
  int n = 0;
  char *words = kiln_arena_printf(&d->cx.perm, "%s", sizes), *save = NULL;
  for (char *w = strtok_r(words, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
    char *value = strchr(w, '=');
    assert_non_null(value);
    *value++ = '\0';
    list[n++] = (kiln_tc_binding){w, atoll(value)};
  }
  return kiln_tc_program(&d->cx, "t.tc", text, entry, n, list, &d->prog);
}

static inline const char *definition_text(definition *d) {
  kiln_text t;
  kiln_text_init(&t, &d->cx.perm);
  kiln_program_print(&d->cx, d->prog, &t);
  return t.data;
}

static inline const char *definition_messages(definition *d) {
  kiln_text t;
  kiln_text_init(&t, &d->cx.perm);
  for (size_t i = 0; i < kiln_diag_count(d->diag); i++)
    kiln_text_printf(&t, "%s\n", kiln_diag_message(d->diag, i));
  return t.data;
}

#endif

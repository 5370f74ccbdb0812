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

// The elements of all outputs, ';' between outputs, after binding the inputs to the numbers of
// |data| (';' between inputs): a run of small numbers as text.
static inline const char *definition_run(definition *d, const char *data) {
  kiln_interpreter *in = NULL;
  kiln_text t;
  kiln_text_init(&t, &d->cx.perm);
  if (kiln_interpreter_create(&d->cx, d->prog, &in) != KILN_OK) return definition_messages(d);
  for (int i = 0; i < d->prog->inputs.n; i++) {
    const kiln_tensor *x = d->prog->tensors.data[d->prog->inputs.data[i]];
    int64_t n = kiln_tensor_elems(x);
    void *values = kiln_arena_zalloc(&d->cx.perm, (size_t)((n > 0 ? n : 1) * 8));
    for (int64_t k = 0; k < n; k++) {
      char *end = NULL;
      kiln_element_set(x->dtype, values, k, strtod(data, &end));
      if (end == data) return "too few numbers";
      data = end;
    }
    data += strspn(data, " ;");
    kiln_interpreter_bind(in, x->id, values);
  }
  for (int o = 0; o < kiln_program_n_results(d->prog); o++) {
    const kiln_tensor *y = d->prog->tensors.data[d->prog->outputs.data[o]];
    const void *values = NULL;
    if (kiln_interpreter_compute(in, y->id, &values) != KILN_OK) return definition_messages(d);
    if (o > 0) kiln_text_add(&t, "; ");
    for (int64_t k = 0; k < kiln_tensor_elems(y); k++)
      kiln_text_printf(&t, k > 0 ? " %.6g" : "%.6g", kiln_element_get(y->dtype, values, k));
  }
  kiln_interpreter_destroy(in);
  return t.data != NULL ? t.data : "";
}

#endif

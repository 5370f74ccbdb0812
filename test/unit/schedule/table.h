// Test support: rows of loop programs before and after a script, or the message of its refusal.
#ifndef KILN_TEST_SCHEDULE_TABLE_H
#define KILN_TEST_SCHEDULE_TABLE_H

#include "unit/schedule/kernel.h"

typedef struct table_row {
  const char *before, *script; // loops; primitives, one a line
  const char *after;           // loops; NULL: refused
  const char *error;           // the message of the primitive, when it is refused
} table_row;

static inline const char *table_text(kiln_ctx *cx, const kiln_loops *l) {
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  kiln_loops_print(cx, l, &t);
  return t.data;
}

static inline kiln_loops *table_parse(kiln_ctx *cx, const char *text) {
  kiln_loops *l = NULL;
  if (kiln_loops_parse(cx, text, &l) != KILN_OK)
    fail_msg("%s\n%s", kiln_diag_message(cx->diag, 0), text);
  return l;
}

static inline void table_run(const table_row *row) {
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  kiln_schedule s = {
      .cx = &cx, .prog = kiln_program_make(&cx, "k"), .loops = table_parse(&cx, row->before)};
  kiln_text_init(&s.script, &cx.perm);
  const char *before = table_text(&cx, s.loops);
  const kiln_status st = kiln_schedule_replay(&s, row->script);
  if (row->error) {
    assert_int_equal(st, KILN_BAD_INPUT);
    assert_string_equal(kiln_diag_message(diag, 0), row->error);
    assert_string_equal(kiln_schedule_script(&s), "");
    assert_string_equal(table_text(&cx, s.loops), before);
  } else {
    if (st != KILN_OK) fail_msg("%s\n%s", kiln_diag_message(diag, 0), row->script);
    assert_string_equal(table_text(&cx, s.loops), table_text(&cx, table_parse(&cx, row->after)));
    assert_int_equal(kiln_loops_verify(&cx, s.loops), KILN_OK);
  }
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
}

#endif

// Test support: rows of loop programs before and after a script, or with the message of its
// refusal.
#ifndef KILN_TEST_SCHEDULE_TABLE_H
#define KILN_TEST_SCHEDULE_TABLE_H

#include "unit/loops.h"
#include "unit/schedule/kernel.h"

typedef struct table_row {
  const char *before, *script; // loops; primitives, one a line
  const char *after;           // loops; NULL: refused
  const char *error;           // the message of the primitive, when it is refused
} table_row;

static inline void table_run(const table_row *row) {
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  kiln_schedule s = {
      .cx = &cx, .prog = kiln_program_make(&cx, "k"), .loops = loops_parse(&cx, row->before)};
  kiln_text_init(&s.script, &cx.perm);
  const char *before = loops_text(&cx, s.loops);
  const kiln_status st = kiln_schedule_replay(&s, row->script);
  if (row->error) {
    assert_int_equal(st, KILN_BAD_INPUT);
    assert_string_equal(kiln_diag_message(diag, 0), row->error);
    assert_string_equal(kiln_schedule_script(&s), "");
    assert_string_equal(loops_text(&cx, s.loops), before);
  } else {
    if (st != KILN_OK) fail_msg("%s\n%s", kiln_diag_message(diag, 0), row->script);
    assert_string_equal(loops_text(&cx, s.loops), loops_text(&cx, loops_parse(&cx, row->after)));
    assert_int_equal(kiln_loops_verify(&cx, s.loops), KILN_OK);
  }
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
}

#endif

// Parsing of the IR's text forms: a cursor over the text, its tokens and messages. For ir/ and the
// scripts of schedule/; printers are in the same files as parsers.
#ifndef KILN_IR_CURSOR_H
#define KILN_IR_CURSOR_H

#include "ir/expr.h"

typedef struct kiln_cursor {
  kiln_ctx *cx;
  const char *what; // "program", "kernel", "expression": the first part of a message's place
  const char *start, *at;
  int depth; // of nested expressions and loops, bounded since parsing recurses
} kiln_cursor;

// All skip white space and comments (# to the end of the line) first.
void kiln_cursor_skip(kiln_cursor *c);
bool kiln_cursor_at(kiln_cursor *c, const char *token);         // whether |token| comes next
bool kiln_cursor_accept(kiln_cursor *c, const char *token);     // punctuation; moves past it
bool kiln_cursor_accept_word(kiln_cursor *c, const char *word); // a bare word, whole
kiln_status kiln_cursor_expect(kiln_cursor *c, const char *token);
// A bare or quoted name; |what| describes in messages what was expected.
kiln_status kiln_cursor_name(kiln_cursor *c, const char *what, kiln_symbol *out, bool *out_quoted);
kiln_status kiln_cursor_int(kiln_cursor *c, const char *what, int64_t *out); // may be negative
kiln_status kiln_cursor_dtype(kiln_cursor *c, kiln_dtype *out);
int kiln_hex_digit(char c);                  // its value, also of capitals; -1: none
kiln_status kiln_cursor_end(kiln_cursor *c); // fails unless at the end of the text
// "WHAT:LINE:COLUMN: error: expected EXPECTED, got 'TOKEN'"; KILN_BAD_INPUT
kiln_status kiln_cursor_fail(kiln_cursor *c, const char *format, ...) KILN_PRINTF(2, 3);
kiln_status kiln_cursor_enter(kiln_cursor *c); // one level deeper; BAD_INPUT when too deep
kiln_status kiln_cursor_expr(kiln_cursor *c, const kiln_expr_names *names, const kiln_expr **out);
// An expression that must have dtype |t|.
kiln_status kiln_cursor_expr_of(kiln_cursor *c, const kiln_expr_names *names, kiln_dtype t,
                                const kiln_expr **out);
// `(e, e, ...)` with n i64 expressions between |open| and |close|.
kiln_status kiln_cursor_exprs(kiln_cursor *c, const kiln_expr_names *names, const char *open,
                              const char *close, int max, int *out_n, const kiln_expr **out);

// Prints a name bare when it reads back as one, quoted otherwise.
void kiln_name_print(kiln_text *out, const char *name);
void kiln_exprs_print(const kiln_ctx *cx, int n, const kiln_expr *const *e,
                      const kiln_expr_names *names, const char *open, const char *close,
                      kiln_text *out);

#endif

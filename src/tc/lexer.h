// Tokens of the notation, and messages that point into its text.
#ifndef KILN_TC_LEXER_H
#define KILN_TC_LEXER_H

#include "tc/ast.h"

typedef enum kiln_tc_token_kind {
  KILN_TC_TOKEN_END,
  KILN_TC_TOKEN_NAME,
  KILN_TC_TOKEN_INT,
  KILN_TC_TOKEN_FLOAT,
  KILN_TC_TOKEN_STRING,
  KILN_TC_TOKEN_MARK, // punctuation, operators, assignments
  KILN_TC_TOKEN_BAD
} kiln_tc_token_kind;

typedef struct kiln_tc_token {
  kiln_tc_token_kind kind;
  const char *at;
  int n;
  int64_t i;
  double f;
} kiln_tc_token;

// The token at or after |at|; blanks and comments are skipped. BAD at a byte that begins none.
kiln_tc_token kiln_tc_lex(const char *at);
bool kiln_tc_token_is(const kiln_tc_token *t, const char *text);

const char *kiln_tc_place(const kiln_tc_source *s, const char *at); // "FILE:LINE:COLUMN"
// "FILE:LINE:COLUMN: error: MESSAGE", the line, and a caret under |at|; then |more| where not NULL.
// Yields the source's status.
kiln_status kiln_tc_fail(const kiln_tc_source *s, const char *at, const char *more,
                         const char *format, ...) KILN_PRINTF(4, 5);
// The same as a warning.
void kiln_tc_warn(const kiln_tc_source *s, const char *at, const char *format, ...)
    KILN_PRINTF(3, 4);

#endif

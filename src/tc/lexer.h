// Tokens of the notation, and messages with places in its text.
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

// The token at or after |at|; skips blanks and comments. BAD for a byte that begins no token.
kiln_tc_token kiln_tc_lex(const char *at);
bool kiln_tc_token_is(const kiln_tc_token *t, const char *text);

const char *kiln_tc_place(const kiln_tc_source *s, const char *at); // "FILE:LINE:COLUMN"
// "FILE:LINE:COLUMN: error: MESSAGE", the line, a caret under |at|; then |more| if not NULL. Gives
// the source's status.
kiln_status kiln_tc_fail(const kiln_tc_source *s, const char *at, const char *more,
                         const char *format, ...) KILN_PRINTF(4, 5);
// The same as a warning.
void kiln_tc_warn(const kiln_tc_source *s, const char *at, const char *format, ...)
    KILN_PRINTF(3, 4);

#endif

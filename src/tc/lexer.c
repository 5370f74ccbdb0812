// The lexer of the notation, without state besides the position; and the format of messages.
#include "tc/lexer.h"
#include "support/numbers.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// Longest first: the first match is taken.
static const char *const marks[] = {
    "min=!", "<=>", "max=!", "and=!", "min=", "max=", "and=", "or=!", "...", "+=!", "*=!",
    "or=",   "+=",  "*=",    "==",    "!=",   "<=",   ">=",   "&&",   "||",  "->",  "..",
    "(",     ")",   "{",     "[",     "]",    "}",    "<",    ">",    ",",   ":",   "?",
    "=",     "+",   "-",     "*",     "/",    "%",    "!",    ".",
};

static bool is_letter(char c) { return isalpha((unsigned char)c) || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static const char *skip_blanks(const char *at) {
  for (;; at++) {
    if (*at == '#') at += strcspn(at, "\n");
    if (*at == '\0' || !isspace((unsigned char)*at)) return at;
  }
}

// NULL if |at| is not punctuation.
static const char *find_mark(const char *at) {
  for (size_t i = 0; i < KILN_LEN(marks); i++) {
    size_t n = strlen(marks[i]);
    if (strncmp(at, marks[i], n) != 0) continue;
    // `a max= b` is an assignment, `max == b` and `or==` are not
    if (is_letter(*at) && marks[i][n - 1] == '=' && at[n] == '=') continue;
    return marks[i];
  }
  return NULL;
}

// 12, 1.5, 1e-5, .5; but the dots of 1..12 and N... are not part of a number.
static kiln_tc_token number(const char *at) {
  kiln_tc_token t = {KILN_TC_TOKEN_INT, at, 0, 0, 0.0};
  const char *p = at;
  while (is_digit(*p)) p++;
  if (*p == '.' && p[1] != '.') {
    t.kind = KILN_TC_TOKEN_FLOAT;
    for (p++; is_digit(*p); p++) {}
  }
  bool exponent = (*p == 'e' || *p == 'E') &&
                  (is_digit(p[1]) || ((p[1] == '-' || p[1] == '+') && is_digit(p[2])));
  if (exponent) {
    t.kind = KILN_TC_TOKEN_FLOAT;
    for (p += 2; is_digit(*p); p++) {}
  }
  t.n = (int)(p - at);
  errno = 0;
  if (t.kind == KILN_TC_TOKEN_INT) t.i = strtoll(at, NULL, 10);
  if (errno == ERANGE || is_letter(*p)) t.kind = KILN_TC_TOKEN_BAD;
  if (t.kind == KILN_TC_TOKEN_FLOAT) t.f = kiln_number_parse(at, NULL);
  return t;
}

kiln_tc_token kiln_tc_lex(const char *at) {
  at = skip_blanks(at);
  kiln_tc_token t = {KILN_TC_TOKEN_BAD, at, 1, 0, 0.0};
  if (*at == '\0') {
    t.kind = KILN_TC_TOKEN_END;
    t.n = 0;
    return t;
  }
  if (is_digit(*at) || (*at == '.' && is_digit(at[1]))) return number(at);
  if (*at == '"') {
    size_t n = strcspn(at + 1, "\"\n");
    if (at[1 + n] != '"') return t;
    t.kind = KILN_TC_TOKEN_STRING;
    t.n = (int)n + 2;
    return t;
  }
  const char *mark = find_mark(at);
  if (mark != NULL) {
    t.kind = KILN_TC_TOKEN_MARK;
    t.n = (int)strlen(mark);
    return t;
  }
  if (is_letter(*at)) {
    t.kind = KILN_TC_TOKEN_NAME;
    while (is_letter(at[t.n]) || is_digit(at[t.n])) t.n++;
  }
  return t;
}

bool kiln_tc_token_is(const kiln_tc_token *t, const char *text) {
  bool word = t->kind == KILN_TC_TOKEN_MARK || t->kind == KILN_TC_TOKEN_NAME;
  return word && (size_t)t->n == strlen(text) && memcmp(t->at, text, (size_t)t->n) == 0;
}

// The beginning and number of the line of |at|.
static const char *line_of(const kiln_tc_source *s, const char *at, int *out_line) {
  const char *start = s->text;
  *out_line = 1;
  for (const char *p = s->text; p < at; p++) {
    if (*p != '\n') continue;
    ++*out_line;
    start = p + 1;
  }
  return start;
}

const char *kiln_tc_place(const kiln_tc_source *s, const char *at) {
  int line = 0;
  const char *start = line_of(s, at, &line);
  return kiln_arena_printf(&s->cx->perm, "%s:%d:%d", s->file, line, (int)(at - start) + 1);
}

// The place of |at|, and the message with the line and a caret under it.
static const char *pointed(const kiln_tc_source *s, const char *at, const char *more,
                           const char *format, va_list list, const char **out_place) {
  int line = 0;
  const char *start = line_of(s, at, &line);
  kiln_arena *arena = &s->cx->perm;
  int n = (int)strcspn(start, "\r\n"), column = (int)(at - start);
  kiln_text caret;
  kiln_text_init(&caret, arena);
  for (int i = 0; i < column; i++) kiln_text_add(&caret, start[i] == '\t' ? "\t" : " ");
  *out_place = kiln_tc_place(s, at);
  const char *message = kiln_arena_vprintf(arena, format, list);
  return kiln_arena_printf(arena, "%s\n  %.*s\n  %s^%s%s", message, n, start, caret.data,
                           more != NULL ? "\n  " : "", more != NULL ? more : "");
}

kiln_status kiln_tc_fail(const kiln_tc_source *s, const char *at, const char *more,
                         const char *format, ...) {
  const char *place;
  va_list list;
  if (s->quiet) return s->status;
  va_start(list, format);
  const char *text = pointed(s, at, more, format, list, &place);
  va_end(list);
  return KILN_FAIL(s->cx->diag, s->status, place, "%s", text);
}

void kiln_tc_warn(const kiln_tc_source *s, const char *at, const char *format, ...) {
  const char *place;
  va_list list;
  va_start(list, format);
  const char *text = pointed(s, at, NULL, format, list, &place);
  va_end(list);
  kiln_diag_warn(s->cx->diag, place, "%s", text);
}

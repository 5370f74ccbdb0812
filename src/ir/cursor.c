// The cursor: white space, punctuation, names, and places of messages in the text.
#include "ir/cursor.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 1500 };

// Reserved words besides dtypes and functions; names equal to one of these are quoted.
static const char *const words[] = {
    "true",    "false",    "in",         "const",    "temp",      "out",      "inputs",
    "outputs", "order",    "strides",    "values",   "at",        "if",       "init",
    "from",    "kernel",   "param",      "local",    "workspace", "for",      "alloc",
    "instr",   "register", "pack",       "tensor",   "serial",    "parallel", "max",
    "min",     "and",      "vectorized", "unrolled", "or",        "program",
};

static bool is_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_part(char c) { return is_start(c) || (c >= '0' && c <= '9') || c == '.'; }

// The first two characters of reserved words: a quick test, because most generated names, as a0,
// have others.
static bool begins[128][128];
static pthread_once_t begins_once = PTHREAD_ONCE_INIT;

static void note_beginning(const char *word) {
  begins[(unsigned char)word[0]][(unsigned char)word[1]] = true;
}

static void note_beginnings(void) {
  static const char *const prefixes[] = {"inf", "nan", "bitcast_", "stored_"};
  for (size_t i = 0; i < KILN_LEN(prefixes); i++) note_beginning(prefixes[i]);
  for (size_t i = 0; i < KILN_LEN(words); i++) note_beginning(words[i]);
  for (int t = 0; t < KILN_N_DTYPES; t++) note_beginning(kiln_dtype_text((kiln_dtype)t));
  for (int k = 0; k < KILN_N_EXPRS; k++)
    if (kiln_expr_kind_is_call((kiln_expr_kind)k)) note_beginning(kiln_expr_kind_text(k));
}

// Whether |name|, of ASCII letters, digits, _ and dots, begins like a reserved word.
static bool may_be_reserved(const char *name) {
  pthread_once(&begins_once, note_beginnings);
  return begins[(unsigned char)name[0]][(unsigned char)name[1]];
}

static bool is_reserved(const char *name) {
  kiln_dtype t;
  if (!may_be_reserved(name)) return false;
  if (kiln_dtype_parse(name, strlen(name), &t)) return true;
  const bool special = strncmp(name, "inf", 3) == 0 || strncmp(name, "nan", 3) == 0;
  if (special && kiln_dtype_parse(name + 3, strlen(name + 3), &t)) return true;
  const char *type = strncmp(name, "bitcast_", 8) == 0 ? name + 8 : name + 7;
  if ((type == name + 8 || strncmp(name, "stored_", 7) == 0) &&
      kiln_dtype_parse(type, strlen(type), &t))
    return true;
  for (size_t i = 0; i < KILN_LEN(words); i++) {
    if (words[i][0] == name[0] && strcmp(words[i], name) == 0) return true;
  }
  return kiln_expr_is_call_name(name);
}

static bool is_bare(const char *name) {
  if (!is_start(name[0])) return false;
  for (const char *p = name; *p; p++) {
    if (!is_part(*p)) return false;
  }
  return !is_reserved(name);
}

void kiln_name_print(kiln_text *out, const char *name) {
  if (is_bare(name)) {
    kiln_text_add(out, name);
    return;
  }
  kiln_text_add(out, "\"");
  for (const char *p = name; *p; p++) {
    const unsigned char c = (unsigned char)*p;
    if (c == '"' || c == '\\') kiln_text_printf(out, "\\%c", c);
    else if (c < 32 || c == 127) kiln_text_printf(out, "\\x%02x", c);
    else kiln_text_add_bytes(out, p, 1);
  }
  kiln_text_add(out, "\"");
}

void kiln_cursor_skip(kiln_cursor *c) {
  for (;;) {
    while (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r') c->at++;
    if (*c->at != '#') return;
    while (*c->at && *c->at != '\n') c->at++;
  }
}

bool kiln_cursor_at(kiln_cursor *c, const char *token) {
  kiln_cursor_skip(c);
  return strncmp(c->at, token, strlen(token)) == 0;
}

bool kiln_cursor_accept(kiln_cursor *c, const char *token) {
  if (!kiln_cursor_at(c, token)) return false;
  c->at += strlen(token);
  return true;
}

bool kiln_cursor_accept_word(kiln_cursor *c, const char *word) {
  if (!kiln_cursor_at(c, word) || is_part(c->at[strlen(word)])) return false;
  c->at += strlen(word);
  return true;
}

kiln_status kiln_cursor_fail(kiln_cursor *c, const char *format, ...) {
  char expected[256], found[40], place[64];
  va_list args;
  va_start(args, format);
  vsnprintf(expected, sizeof expected, format, args);
  va_end(args);
  kiln_cursor_skip(c);
  int line = 1, column = 1, n = 0;
  for (const char *p = c->start; p < c->at; p++) {
    column = *p == '\n' ? 1 : column + 1;
    line += *p == '\n';
  }
  for (; n < 32 && (n == 0 ? c->at[n] : is_part(c->at[n])); n++) {
    found[n] = c->at[n] >= 32 && c->at[n] < 127 ? c->at[n] : '?';
    if (!is_part(c->at[n])) {
      n++;
      break;
    }
  }
  found[n] = 0;
  snprintf(place, sizeof place, "%s:%d:%d", c->what, line, column);
  return KILN_FAIL(c->cx->diag, KILN_BAD_INPUT, place, "expected %s, got %s%s%s", expected,
                   n ? "'" : "the end", found, n ? "'" : "");
}

kiln_status kiln_cursor_expect(kiln_cursor *c, const char *token) {
  return kiln_cursor_accept(c, token) ? KILN_OK : kiln_cursor_fail(c, "'%s'", token);
}

static bool at_name(kiln_cursor *c) {
  kiln_cursor_skip(c);
  return is_start(*c->at) || *c->at == '"';
}

int kiln_hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static kiln_status quoted_name(kiln_cursor *c, kiln_symbol *out) {
  kiln_text text;
  const kiln_mark mark = kiln_arena_mark(&c->cx->scratch);
  kiln_text_init(&text, &c->cx->scratch);
  const char *p = c->at + 1;
  while (*p && *p != '"' && *p != '\n') {
    char byte = *p++;
    if (byte == '\\' && *p == 'x' && kiln_hex_digit(p[1]) >= 0 && kiln_hex_digit(p[2]) >= 0) {
      byte = (char)(kiln_hex_digit(p[1]) * 16 + kiln_hex_digit(p[2]));
      p += 3;
    } else if (byte == '\\' && *p && *p != '\n') {
      byte = *p++;
    }
    kiln_text_add_bytes(&text, &byte, 1);
  }
  const bool closed = *p == '"';
  if (closed) {
    *out = kiln_symbol_of_bytes(c->cx, text.data, (size_t)text.n);
    c->at = p + 1;
  }
  kiln_arena_rewind(&c->cx->scratch, mark);
  return closed ? KILN_OK : kiln_cursor_fail(c, "a name closed by '\"' on its line");
}

kiln_status kiln_cursor_name(kiln_cursor *c, const char *what, kiln_symbol *out, bool *out_quoted) {
  if (!at_name(c)) return kiln_cursor_fail(c, "%s", what);
  if (out_quoted) *out_quoted = *c->at == '"';
  if (*c->at == '"') return quoted_name(c, out);
  const char *begin = c->at;
  while (is_part(*c->at)) c->at++;
  *out = kiln_symbol_of_bytes(c->cx, begin, (size_t)(c->at - begin));
  return KILN_OK;
}

kiln_status kiln_cursor_int(kiln_cursor *c, const char *what, int64_t *out) {
  kiln_cursor_skip(c);
  const char *p = c->at;
  const bool negative = *p == '-';
  if (negative) p++;
  if (*p < '0' || *p > '9') return kiln_cursor_fail(c, "%s", what);
  int64_t value = 0;
  for (; *p >= '0' && *p <= '9'; p++) {
    const int digit = negative ? '0' - *p : *p - '0';
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value))
      return kiln_cursor_fail(c, "%s that 64 bits hold", what);
  }
  c->at = p;
  *out = value;
  return KILN_OK;
}

kiln_status kiln_cursor_dtype(kiln_cursor *c, kiln_dtype *out) {
  kiln_cursor_skip(c);
  size_t n = 0;
  while (is_part(c->at[n])) n++;
  if (!kiln_dtype_parse(c->at, n, out)) return kiln_cursor_fail(c, "a type such as f32");
  c->at += n;
  return KILN_OK;
}

kiln_status kiln_cursor_end(kiln_cursor *c) {
  kiln_cursor_skip(c);
  return *c->at ? kiln_cursor_fail(c, "the end") : KILN_OK;
}

kiln_status kiln_cursor_enter(kiln_cursor *c) {
  if (c->depth++ < MAX_DEPTH) return KILN_OK;
  return kiln_cursor_fail(c, "at most %d levels of nesting", MAX_DEPTH);
}

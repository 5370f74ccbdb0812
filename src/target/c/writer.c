// Identifiers and lines of emitted C.
#include "target/c/writer.h"

#include <ctype.h>
#include <string.h>

// Identifiers that variables and buffers must not have: keywords, and names of the headers and of
// the prelude.
static const char *const reserved[] = {
    "args",     "auto",    "begin",  "bool",     "break",    "case",     "char",    "const",
    "continue", "default", "do",     "double",   "else",     "end",      "enum",    "extern",
    "false",    "float",   "for",    "goto",     "if",       "inline",   "int",     "isinf",
    "isnan",    "long",    "main",   "memcpy",   "register", "restrict", "return",  "short",
    "signed",   "sizeof",  "static", "struct",   "switch",   "true",     "typedef", "union",
    "unsigned", "void",    "while",  "volatile", "NAN",      "INFINITY", "signbit", "asm",
    "typeof",   "atan2",   "atan2f", "frexp",    "ldexp",    "rint",     "fabs",    "fabsf",
    "rintf",    "fmodf",   "pow",    "powf",     "unix",     "linux"};

static bool is_reserved(const kiln_c_dialect *dialect, const char *name) {
  const size_t n = strlen(name);
  for (int i = 0; i < dialect->n_reserved; i++)
    if (strcmp(dialect->reserved[i], name) == 0) return true;
  for (size_t i = 0; i < KILN_LEN(reserved); i++)
    if (strcmp(reserved[i], name) == 0) return true;
  for (int k = 0; k < KILN_N_EXPRS; k++) { // functions of math.h, for double and float
    const char *f = kiln_expr_kind_text((kiln_expr_kind)k);
    const size_t length = strlen(f);
    if (strncmp(f, name, length) == 0 && (n == length || strcmp(name + length, "f") == 0))
      return true;
  }
  return strncmp(name, "kiln_", 5) == 0 || strncmp(name, "__", 2) == 0;
}

kiln_symbol kiln_c_identifier(kiln_c_writer *w, const char *name) {
  char *text = kiln_arena_strdup(&w->cx->scratch, name);
  for (char *c = text; *c; c++)
    if (!isalnum((unsigned char)*c)) *c = '_';
  if (isdigit((unsigned char)text[0]) || !text[0] || is_reserved(w->dialect, text))
    text = kiln_arena_printf(&w->cx->scratch, "v_%s", text);
  const size_t length = strlen(text);
  const bool counts = strcmp(name, "t") == 0; // names of constants: t0, t1, ...
  kiln_symbol s = kiln_symbol_of(w->cx, text);
  for (int k = 0; counts || kiln_map_find(&w->taken, s); k++) {
    const bool digit = isdigit((unsigned char)text[length - 1]) != 0;
    s = kiln_symbol_printf(w->cx, "%s%s%d", text, digit ? "_" : "", k);
    if (!kiln_map_find(&w->taken, s)) break;
  }
  kiln_map_put(&w->taken, s, 1);
  return s;
}

void kiln_c_line(kiln_c_writer *w) {
  for (int i = 0; i < w->depth; i++) kiln_text_add(w->out, "  ");
}

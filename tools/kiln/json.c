// The tables as JSON, for tests and generators of pages.
#include "kiln.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *words_of(const char *words, char separator) {
  json_t *list = json_array();
  while (words && *words) {
    const char *end = strchr(words, separator);
    const size_t n = end ? (size_t)(end - words) : strlen(words);
    json_array_append_new(list, json_stringn(words, n));
    words += n + (end != NULL);
  }
  return list;
}

static json_t *number_of(double x) {
  if (x >= 0x1p62) return json_null();
  return x == floor(x) ? json_integer((json_int_t)x) : json_real(x);
}

static const char *name_of(option_form form) {
  switch (form) {
  case FORM_ANY: return "any";
  case FORM_WORD: return "word";
  case FORM_WORDS: return "words";
  case FORM_HINT: return "hint";
  case FORM_HINTS: return "hints";
  case FORM_NUMBER: return "number";
  case FORM_READ: return "read";
  case FORM_WRITTEN: return "written";
  case FORM_NAMED_FILE: return "named file";
  case FORM_FOLDER: return "folder";
  }
  return "";
}

static const char *name_of_kind(option_kind kind) {
  switch (kind) {
  case OPTION_GROUP: return "group";
  case OPTION_TEXT: return "text";
  case OPTION_TEXTS: return "texts";
  case OPTION_PAIR: return "pair";
  case OPTION_INT: return "int";
  case OPTION_REAL: return "real";
  case OPTION_FLAG: return "flag";
  }
  return "";
}

static json_t *option_of(const option_row *r) {
  char *help = option_help(r);
  json_t *o = json_pack("{s:s, s:s, s:s?, s:s, s:o, s:s, s:o, s:s?}", "kind", name_of_kind(r->kind),
                        "name", r->name, "argument", r->argument, "form", name_of(r->values.form),
                        "words", words_of(r->values.words, '|'), "help", help, "commands",
                        words_of(r->commands, ' '), "otherwise", r->otherwise);
  free(help);
  if (r->values.form == FORM_NUMBER) {
    json_object_set_new(o, "least", number_of(r->values.least));
    json_object_set_new(o, "most", number_of(r->values.most));
  }
  return o;
}

void print_json(FILE *to) {
  json_t *all = json_object(), *names = json_array(), *rows = json_array();
  json_object_set_new(all, "commands", names);
  json_object_set_new(all, "options", rows);
  for (const command *c = commands; c->name; c++)
    json_array_append_new(names, json_pack("{s:s, s:s, s:s, s:s, s:o}", "group", c->group, "name",
                                           c->name, "synopsis", c->synopsis, "help", c->help,
                                           "files", words_of(c->files, '|')));
  for (int i = 0; i < N_OPTION_ROWS; i++)
    if (option_rows[i].kind != OPTION_GROUP)
      json_array_append_new(rows, option_of(&option_rows[i]));
  json_dumpf(all, to, JSON_INDENT(1));
  fputc('\n', to);
  json_decref(all);
}

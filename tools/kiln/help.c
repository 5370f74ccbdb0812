// kiln help, and --help: prints the tables.
#include "kiln.h"

#include <stdlib.h>
#include <string.h>

void print_words(const char *words, char separator, const char *last, FILE *to) {
  for (const char *at = words; *at;) {
    const char *end = strchr(at, separator);
    const size_t n = end ? (size_t)(end - at) : strlen(at);
    const bool is_last = !end, is_first = at == words;
    if (is_last && !is_first) fprintf(to, " %s ", last);
    else if (!is_first) fputs(", ", to);
    fprintf(to, "%.*s", (int)n, at);
    at += n + !is_last;
  }
}

char *option_help(const option_row *r) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *to = open_memstream(&text, &bytes);
  if (to) fputs(r->help, to);
  if (to && (r->values.form == FORM_WORD || r->values.form == FORM_WORDS)) {
    fputs(": ", to);
    print_words(r->values.words, '|', "or", to);
  }
  if (to && r->values.form == FORM_NUMBER && r->values.most < INT32_MAX)
    fprintf(to, "; %.0f to %.0f", r->values.least, r->values.most);
  if (to && r->otherwise) fprintf(to, " (%s)", r->otherwise);
  if (to && fclose(to) == 0 && text) return text;
  fprintf(stderr, "kiln help: error: %s: no memory left\n", r->name);
  exit(EXIT_WRONG);
}

void print_usage(FILE *to) {
  const char *group = "";
  fprintf(to, "usage: kiln COMMAND ...\n");
  for (const command *c = commands; c->name; c++) {
    if (strcmp(c->group, group)) fprintf(to, "\n%s\n", c->group);
    group = c->group;
    fprintf(to, "  kiln %-11s %-27s %s\n", c->name, c->synopsis, c->help);
  }
  fprintf(to, "\n`kiln COMMAND --help` lists a command's options.\n");
}

static void print_option(const option_row *r, FILE *to) {
  char left[64], *help = option_help(r);
  snprintf(left, sizeof left, "%s %s", r->name, r->argument ? r->argument : "");
  fprintf(to, "  %-28s %s\n", left, help);
  free(help);
}

void print_command_help(const command *c, FILE *to) {
  const option_row *title = NULL;
  fprintf(to, "usage: kiln %s%s%s [OPTION]...\n%s\n", c->name, *c->synopsis ? " " : "", c->synopsis,
          c->help);
  for (int i = 0; i < N_OPTION_ROWS; i++) {
    const option_row *r = &option_rows[i];
    if (r->kind == OPTION_GROUP) title = r;
    if (!option_is_of(r, c)) continue;
    if (title) fprintf(to, "\n%s\n", title->help);
    title = NULL;
    print_option(r, to);
  }
}

typedef struct format {
  const char *name; // the value of --format
  void (*print)(FILE *to);
} format;

static const format formats[] = {
    {"text", print_usage}, {"man", print_manual}, {"markdown", print_markdown},
    {"bash", print_bash},  {"zsh", print_zsh},    {"fish", print_fish},
    {"json", print_json},
};

static int help_of(const char *name) {
  const command *c = command_find(name);
  if (!c) return fprintf(stderr, "kiln: no command '%s'\n", name), EXIT_USAGE;
  print_command_help(c, stdout);
  return EXIT_RIGHT;
}

int command_help(const options *o) {
  if (o->args.n) return help_of(o->args.at[0]);
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (!strcmp(formats[i].name, o->format)) formats[i].print(stdout);
  return EXIT_RIGHT;
}

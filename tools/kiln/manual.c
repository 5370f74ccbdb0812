// Pages from the tables: kiln(1) for man, docs/guide/cli.md.
#include "kiln.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const about =
    "Kiln compiles a deep-learning model (ONNX), or an operator in tensor-comprehension notation, "
    "to a module with its own kernels, for this machine, another processor or a GPU; and runs, "
    "times, checks and explains it. Results go to stdout, messages and (on a terminal) progress to "
    "stderr. A message reads: place, error, subject, what must hold, what was found.";
static const char *const usage_of_options =
    "An option's value is the next argument, or stands behind '=': --fill zeros, --fill=zeros. "
    "Options and other arguments may come in any order.";

typedef struct entry {
  const char *name, *help;
} entry;

static const entry exits[] = {
    {"0", "right"},
    {"1", "a mismatch, something unsupported, or a bad input or output"},
    {"2",
     "usage: the command line is wrong in itself, or asks for a target, a type, a rule or a value "
     "that there is not"},
    {0}};
static const entry variables[] = {
    {"KILN_CACHE_DIR", "the folder of what is kept: compilations, measurements, the machine's "
                       "figures ($XDG_CACHE_HOME/kiln, else ~/.cache/kiln); empty: none"},
    {"KILN_WORKER", "the process that --tune runs kernels in (kiln-worker, beside the library)"},
    {"KILN_OPENBLAS, KILN_ONEDNN, KILN_CUBLASLT, KILN_CUDNN",
     "the file of a library that --backends names"},
    {0}};
static const entry examples[] = {
    {"kiln compile model.onnx -o model.so --dim batch=8", "a module for this machine"},
    {"kiln run model.so --fill random", "run it once"},
    {"kiln bench model.so --profile", "time it, and each of its kernels"},
    {"kiln run model.onnx --reference", "compare with the reference interpreter"},
    {"kiln compile model.onnx --target=cuda:sm_90a -o model.kmod", "a module for a GPU"},
    {"kiln explain model.onnx --why conv1 relu1", "why two nodes share a kernel, or not"},
    {0}};

static bool takes_options(const command *c) {
  for (int i = 0; i < N_OPTION_ROWS; i++)
    if (option_is_of(&option_rows[i], c)) return true;
  return false;
}

// Prints the names of the commands that take the option: "a, b and c".
static void print_commands(const option_row *r, FILE *to) {
  const char *module = strstr(r->commands, " module");
  char names[256];
  const size_t n = module ? (size_t)(module - r->commands) : strlen(r->commands);
  snprintf(names, sizeof names, "%.*s", (int)n, r->commands);
  print_words(names, ' ', "and", to);
}

// Prints |text| with a capital first letter.
static void print_capital(const char *text, void (*print)(const char *text, FILE *to), FILE *to) {
  const char first[] = {(char)toupper((unsigned char)*text), 0};
  print(first, to);
  print(text + 1, to);
}

// --- man ---

// Escapes roff's special characters.
static void print_roff(const char *text, FILE *to) {
  bool begins = true;
  for (; *text; begins = *text++ == '\n') {
    if (begins && strchr(".'", *text)) fputs("\\&", to);
    if (*text == '\\') fputs("\\e", to);
    else if (*text == '-') fputs("\\-", to);
    else fputc(*text, to);
  }
}

static void print_section(const char *title, const char *text, FILE *to) {
  fprintf(to, ".SH %s\n", title);
  if (!text) return;
  print_roff(text, to);
  fputc('\n', to);
}

// Prints a term and its description.
static void print_term(const char *term, const char *argument, FILE *to) {
  fputs(".TP\n\\fB", to);
  print_roff(term, to);
  fputs("\\fR", to);
  if (argument && *argument) {
    fputs(" \\fI", to);
    print_roff(argument, to);
    fputs("\\fR", to);
  }
  fputc('\n', to);
}

static void print_entries(const entry *e, FILE *to) {
  for (; e->name; e++) {
    print_term(e->name, NULL, to);
    print_roff(e->help, to);
    fputc('\n', to);
  }
}

static void print_roff_commands(FILE *to) {
  const char *group = "";
  for (const command *c = commands; c->name; c++) {
    if (strcmp(c->group, group)) fprintf(to, ".SS %s\n", c->group);
    group = c->group;
    print_term(c->name, c->synopsis, to);
    print_capital(c->help, print_roff, to);
    fputs(takes_options(c) ? ".\n.br\nOptions:" : ".", to);
    for (int i = 0; i < N_OPTION_ROWS; i++) {
      if (!option_is_of(&option_rows[i], c)) continue;
      fputc(' ', to);
      print_roff(option_rows[i].name, to);
    }
    fputc('\n', to);
  }
}

static void print_roff_options(FILE *to) {
  for (int i = 0; i < N_OPTION_ROWS; i++) {
    const option_row *r = &option_rows[i];
    if (r->kind == OPTION_GROUP) {
      fprintf(to, ".SS %s\n", r->help);
      continue;
    }
    char *help = option_help(r);
    print_term(r->name, r->argument, to);
    print_roff(help, to);
    fputs(".\n.br\nTaken by ", to);
    print_commands(r, to);
    fputs(".\n", to);
    free(help);
  }
}

void print_manual(FILE *to) {
  fprintf(to, ".TH KILN 1 \"\" \"Kiln %s\" \"User Commands\"\n.nh\n.ad l\n", KILN_VERSION);
  print_section("NAME", "kiln - an end-to-end deep-learning compiler", to);
  fputs(".SH SYNOPSIS\n\\fBkiln\\fR \\fICOMMAND\\fR [\\fIARGUMENT\\fR]... [\\fIOPTION\\fR]...\n",
        to);
  print_section("DESCRIPTION", about, to);
  print_section("COMMANDS", NULL, to);
  print_roff_commands(to);
  print_section("OPTIONS", usage_of_options, to);
  print_roff_options(to);
  print_section("EXIT STATUS", NULL, to);
  print_entries(exits, to);
  print_section("ENVIRONMENT", NULL, to);
  print_entries(variables, to);
  print_section("EXAMPLES", NULL, to);
  print_entries(examples, to);
}

// --- Markdown ---

// Escapes Markdown's special characters, except in `code`.
static void print_marked(const char *text, FILE *to) {
  bool is_code = false;
  for (; *text; text++) {
    if (*text == '`') is_code = !is_code;
    else if (!is_code && strchr("\\*_<>|[]~", *text)) fputc('\\', to);
    fputc(*text, to);
  }
}

static void print_marked_commands(FILE *to) {
  const char *group = "";
  for (const command *c = commands; c->name; c++) {
    bool is_first = true;
    if (strcmp(c->group, group)) fprintf(to, "\n### %s\n", c->group);
    group = c->group;
    fprintf(to, "\n#### kiln %s\n\n`kiln %s%s%s%s`\n\n", c->name, c->name, *c->synopsis ? " " : "",
            c->synopsis, takes_options(c) ? " [OPTION]..." : "");
    print_capital(c->help, print_marked, to);
    fputs(".\n", to);
    for (int i = 0; i < N_OPTION_ROWS; i++) {
      if (!option_is_of(&option_rows[i], c)) continue;
      fprintf(to, "%s`%s`", is_first ? "\nOptions: " : ", ", option_rows[i].name);
      is_first = false;
    }
    if (!is_first) fputs(".\n", to);
  }
}

static void print_marked_options(FILE *to) {
  for (int i = 0; i < N_OPTION_ROWS; i++) {
    const option_row *r = &option_rows[i];
    if (r->kind == OPTION_GROUP) {
      fprintf(to, "\n### %s\n\n", r->help);
      continue;
    }
    char *help = option_help(r);
    fprintf(to, "- `%s%s%s` (", r->name, r->argument ? " " : "", r->argument ? r->argument : "");
    print_commands(r, to);
    fputs("): ", to);
    print_marked(help, to);
    fputs(".\n", to);
    free(help);
  }
}

static void print_marked_entries(const char *title, const entry *e, FILE *to) {
  fprintf(to, "\n## %s\n\n", title);
  for (; e->name; e++) {
    fprintf(to, "- `%s`: ", e->name);
    print_marked(e->help, to);
    fputs(".\n", to);
  }
}

void print_markdown(FILE *to) {
  fputs("# The command line\n\n"
        "<!-- Written by `kiln help --format=markdown` of tools/kiln/options.def and commands.c; "
        "a test compares. -->\n\n",
        to);
  print_marked(about, to);
  fputs("\n\n`kiln help` lists the commands, `kiln COMMAND --help` a command's options, "
        "`man kiln` all of them;\nbash, zsh and fish complete them where Kiln is installed.\n\n"
        "## Commands\n",
        to);
  print_marked_commands(to);
  fputs("\n## Options\n\n", to);
  print_marked(usage_of_options, to);
  fputc('\n', to);
  print_marked_options(to);
  print_marked_entries("Exit codes", exits, to);
  print_marked_entries("Environment", variables, to);
  print_marked_entries("Examples", examples, to);
}

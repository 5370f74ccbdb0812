// Parsing of the command line: `--flag value`, `--flag=value`, positional arguments anywhere.
#include "kiln.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- values ---

bool options_complain(const command *c, const char *subject, const char *must, const char *got) {
  fprintf(stderr, "kiln %s: error: %s: %s, got '%s'\n", c->name, subject, must, got);
  return false;
}

// The same with a requirement printed from the row.
static bool refuse(const command *c, const option_row *r, const char *got,
                   void (*print_must)(const option_row *r, FILE *to)) {
  fprintf(stderr, "kiln %s: error: %s: must be ", c->name, r->name);
  print_must(r, stderr);
  fprintf(stderr, ", got '%s'\n", got);
  return false;
}

static void print_number(const option_row *r, FILE *to) {
  fprintf(to, "%s, %.0f or more", r->kind == OPTION_INT ? "a whole number" : "a number",
          r->values.least);
}

static void print_range(const option_row *r, FILE *to) {
  fprintf(to, "%.0f to %.0f", r->values.least, r->values.most);
}

static void print_choice(const option_row *r, FILE *to) {
  print_words(r->values.words, '|', "or", to);
}

static bool set_number(const command *c, const option_row *r, const char *value, options *o) {
  void *at = (char *)o + r->offset;
  char *end = NULL;
  double x;
  errno = 0;
  if (r->kind == OPTION_INT) x = (double)(*(int64_t *)at = strtoll(value, &end, 10));
  else x = *(double *)at = strtod(value, &end);
  if (errno || end == value || *end || !(x >= r->values.least)) // also false for NaN
    return refuse(c, r, value, print_number);
  return x <= r->values.most || refuse(c, r, value, print_range);
}

// Checks every word of |value|, separated by commas.
static bool check_words(const command *c, const option_row *r, const char *value) {
  for (const char *at = value; at; at = strchr(at, ',')) {
    at += at != value; // skips the comma
    if (!has_word(r->values.words, '|', at, strcspn(at, ",")))
      return refuse(c, r, at, print_choice);
  }
  return true;
}

static bool check_text(const command *c, const option_row *r, const char *value) {
  const option_form form = r->values.form;
  if (form == FORM_WORD && !has_word(r->values.words, '|', value, strlen(value)))
    return refuse(c, r, value, print_choice);
  if (form == FORM_NAMED_FILE && !name_length(value))
    return options_complain(c, r->name, "must be NAME=FILE", value);
  return form != FORM_WORDS || check_words(c, r, value);
}

static bool add_text(const command *c, const option_row *r, const char *value, values *v) {
  if (r->kind == OPTION_PAIR) v->n %= 2; // the last two count
  if (v->n == MAX_VALUES)
    return options_complain(c, r->name, "must be given 256 times at most", value);
  v->at[v->n++] = value;
  return true;
}

static bool set_value(const command *c, const option_row *r, const char *value, options *o) {
  void *at = (char *)o + r->offset;
  switch (r->kind) {
  case OPTION_INT:
  case OPTION_REAL: return set_number(c, r, value, o);
  case OPTION_FLAG: return *(bool *)at = true;
  case OPTION_TEXT: return *(const char **)at = value, check_text(c, r, value);
  case OPTION_TEXTS:
  case OPTION_PAIR: return check_text(c, r, value) && add_text(c, r, value, at);
  case OPTION_GROUP: break;
  }
  return false;
}

const char *option_text(const options *o, const option_row *r, int i) {
  const void *at = (const char *)o + r->offset;
  if (r->kind == OPTION_TEXT) return i == 0 ? *(const char *const *)at : NULL;
  if (r->kind != OPTION_TEXTS && r->kind != OPTION_PAIR) return NULL;
  return i < ((const values *)at)->n ? ((const values *)at)->at[i] : NULL;
}

bool option_is_given(const options *o, size_t offset) {
  for (int i = 0; i < N_OPTION_ROWS; i++)
    if (o->given[i] && option_rows[i].offset == offset) return true;
  return false;
}

size_t name_length(const char *text) {
  const char *equals = strrchr(text, '=');
  return equals && equals[1] ? (size_t)(equals - text) : 0;
}

const char *values_find(const values *v, const char *name) {
  for (int i = 0; i < v->n; i++) {
    size_t n = name_length(v->at[i]);
    if (n && n == strlen(name) && !strncmp(v->at[i], name, n)) return v->at[i] + n + 1;
  }
  return NULL;
}

// --- the command line ---

static const option_row *find_row(const command *c, const char *arg, size_t *out_name_length) {
  const char *equals = arg[0] == '-' && arg[1] == '-' ? strchr(arg, '=') : NULL;
  const size_t n = *out_name_length = equals ? (size_t)(equals - arg) : strlen(arg);
  for (int i = 0; i < N_OPTION_ROWS; i++) {
    const option_row *r = &option_rows[i];
    if (option_is_of(r, c) && strlen(r->name) == n && !strncmp(r->name, arg, n)) return r;
  }
  return NULL;
}

static bool refuse_option(const command *c, const char *arg) {
  char must[64];
  snprintf(must, sizeof must, "must be one of `kiln %s --help`", c->name);
  return options_complain(c, "options", must, arg);
}

// Reads the option at argv[*at]; *at moves to its last value.
static bool read_option(const command *c, int argc, char **argv, int *at, options *o) {
  const char *arg = argv[*at];
  size_t n;
  const option_row *r = find_row(c, arg, &n);
  if (!r) return refuse_option(c, arg);
  const char *value = arg[n] == '=' ? arg + n + 1 : NULL;
  o->given[r - option_rows] = true;
  if (r->kind == OPTION_FLAG)
    return value ? options_complain(c, r->name, "takes no value", value) : set_value(c, r, "", o);
  if (!value && *at + 1 == argc) return options_complain(c, r->name, "needs a value", "nothing");
  if (!value) value = argv[++*at];
  if (!set_value(c, r, value, o)) return false;
  if (r->kind != OPTION_PAIR) return true;
  if (*at + 1 == argc) return options_complain(c, r->name, "needs two values", value);
  return set_value(c, r, argv[++*at], o);
}

static bool set_otherwise(const command *c, options *o) {
  for (int i = 0; i < N_OPTION_ROWS; i++) {
    const option_row *r = &option_rows[i];
    if (r->otherwise && option_is_of(r, c) && !set_value(c, r, r->otherwise, o)) return false;
  }
  return true;
}

bool options_read(const command *c, int argc, char **argv, options *o) {
  *o = (options){0};
  if (!set_otherwise(c, o)) return false;
  for (int i = 0; i < argc; i++) {
    if (c->takes_rest && !strcmp(argv[i], "--")) {
      o->rest = argv + i + 1;
      break;
    }
    if (argv[i][0] == '-' && argv[i][1]) {
      if (!read_option(c, argc, argv, &i, o)) return false;
      continue;
    }
    if (o->args.n == c->max_args) return options_complain(c, "arguments", "too many", argv[i]);
    o->args.at[o->args.n++] = argv[i];
  }
  return true;
}

// --- combinations of options ---

// Options on where text is printed need one that prints; a single file takes a single text.
static bool check_emit(const command *c, const options *o) {
  const bool prints = o->emit || o->dump || o->dump_after || prints_code(o);
  if (!strcmp(c->name, "tc") && o->out && !prints && !o->search)
    return options_complain(c, "-o", "must be given with --emit, --search or the --target of code",
                            o->out);
  if (o->dump_dir && !prints)
    return options_complain(c, "--dump-dir", "must be given with the levels to print", o->dump_dir);
  if (o->emit && o->out && !o->dump_dir && strchr(o->emit, ','))
    return options_complain(c, "-o", "must be left out for several levels: use --dump-dir", o->out);
  return true;
}

// Checks for numbers from 0 to 100, separated by commas.
static bool check_percentiles(const command *c, const options *o) {
  for (const char *at = o->percentiles; at;) {
    char *end = NULL;
    const double p = strtod(at, &end);
    if (end == at || !(p >= 0 && p <= 100) || (*end && *end != ','))
      return options_complain(c, "--percentiles", "must be numbers from 0 to 100, as in 50,95,99.9",
                              o->percentiles);
    at = *end ? end + 1 : NULL;
  }
  return true;
}

// Checks combinations that are wrong for any model.
static bool check_together(const command *c, const options *o) {
  const bool solves = o->orchestrate || !strcmp(c->name, "orchestrate");
  if (!strcmp(c->name, "orchestrate") && o->out && o->json)
    return options_complain(c, "--json", "must be left out with -o", o->json);
  if ((o->memory_limit || o->solver_nodes) && (!solves || o->orchestration))
    return options_complain(c, o->memory_limit ? "--memory-limit" : "--solver-nodes",
                            "must be given with --orchestrate", "it alone");
  if (o->tuned_for && (o->tune > 0 || o->tune_seconds > 0))
    return options_complain(c, "--tuned-for", "must be left out with --tune", o->tuned_for);
  if (!check_emit(c, o) || !check_percentiles(c, o)) return false;
  compile_storage *storage = calloc(1, sizeof *storage);
  kiln_compile_options compile;
  bool right = storage && compile_options_make(o, storage, &compile);
  compile_storage_free(storage);
  return right;
}

bool options_parse(const command *c, int argc, char **argv, options *o) {
  if (!options_read(c, argc, argv, o)) return false;
  o->verbose |= o->very_verbose;
  if (o->quiet && o->verbose)
    return options_complain(c, "--quiet", "must be left out with --verbose", "both");
  messages_quiet(o->quiet);
  if (o->args.n < c->min_args || (c->takes_rest && (!o->rest || !o->rest[0]))) {
    print_command_help(c, stderr);
    return false;
  }
  return check_together(c, o) && module_options_check(c, o);
}

// The command line: `--flag value`, `--flag=value`, positional arguments anywhere.
#include "kiln.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TUNED = 256 }; // candidates of a kernel

static const option_row *find_row(const command *c, const char *arg, size_t *out_name_length) {
  const char *equals = arg[0] == '-' && arg[1] == '-' ? strchr(arg, '=') : NULL;
  *out_name_length = equals ? (size_t)(equals - arg) : strlen(arg);
  for (const option_row *r = c->options; r->name; r++)
    if (strlen(r->name) == *out_name_length && !strncmp(r->name, arg, *out_name_length)) return r;
  return NULL;
}

static bool complain(const command *c, const char *subject, const char *must, const char *got) {
  fprintf(stderr, "kiln %s: error: %s: %s, got '%s'\n", c->name, subject, must, got);
  return false;
}

static bool set_value(const command *c, const option_row *r, const char *value, options *o) {
  void *at = (char *)o + r->offset;
  char *end = NULL;
  errno = 0;
  switch (r->kind) {
  case OPTION_TEXT: *(const char **)at = value; return true;
  case OPTION_TEXTS: {
    values *v = at;
    if (v->n == MAX_VALUES)
      return complain(c, r->name, "may be given 256 times at most, more", value);
    v->at[v->n++] = value;
    return true;
  }
  case OPTION_PAIR: ((values *)at)->at[((values *)at)->n++ % 2] = value; return true;
  case OPTION_INT:
    *(int64_t *)at = strtoll(value, &end, 10);
    if (errno || end == value || *end || *(int64_t *)at < 0)
      return complain(c, r->name, "must be a whole number, 0 or more", value);
    return true;
  case OPTION_REAL:
    *(double *)at = strtod(value, &end);
    if (errno || end == value || *end || !(*(double *)at >= 0))
      return complain(c, r->name, "must be a number, 0 or more", value);
    return true;
  case OPTION_FLAG: *(bool *)at = true; return true;
  }
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

static bool is_one_of(const char *text, size_t n, const char *const *words) {
  for (; *words; words++)
    if (strlen(*words) == n && !strncmp(*words, text, n)) return true;
  return false;
}

static bool check_files(const command *c, const char *option, const values *v) {
  for (int i = 0; i < v->n; i++)
    if (!name_length(v->at[i])) return complain(c, option, "must be NAME=FILE", v->at[i]);
  return true;
}

static bool check_levels(const command *c, const char *option, const char *levels) {
  static const char *const known[] = {"graph",  "prim",          "loop", "schedule", "plan",
                                      "c",      "llvm",          "asm",  "cuda",     "hip",
                                      "opencl", "orchestration", NULL};
  for (const char *at = levels; at; at = strchr(at, ',')) {
    at += at != levels; // the comma
    if (!is_one_of(at, strcspn(at, ","), known))
      return complain(
          c, option, "must be graph, prim, loop, schedule, plan, c, llvm, asm, cuda, hip or opencl",
          at);
  }
  return true;
}

// What says where printed text goes needs one that is printed; and one file takes one text.
static bool check_emit(const command *c, const options *o) {
  const bool prints = o->emit || o->dump || prints_code(o);
  if (!strcmp(c->name, "tc") && o->out && !prints && !o->search)
    return complain(c, "-o", "must be given with --emit, --search or the --target of code", o->out);
  if (o->dump_dir && !prints)
    return complain(c, "--dump-dir", "must be given with the levels to print", o->dump_dir);
  if (o->emit && o->out && !o->dump_dir && strchr(o->emit, ','))
    return complain(c, "-o", "must be left out for several levels: use --dump-dir", o->out);
  return check_levels(c, "--emit", o->emit);
}

// What is wrong in itself, whatever the model: usage.
static bool check_values(const command *c, const options *o) {
  static const char *const fills[] = {"random", "zeros", "ones", "arange", NULL};
  char number[32];
  snprintf(number, sizeof number, "%lld", (long long)o->threads);
  if (o->threads > 1024) return complain(c, "--threads", "must be 0 to 1024", number);
  snprintf(number, sizeof number, "%lld", (long long)o->tune);
  if (o->tune > MAX_TUNED) return complain(c, "--tune", "must be 0 to 256", number);
  snprintf(number, sizeof number, "%lld", (long long)o->solver_nodes);
  if (o->solver_nodes > INT32_MAX)
    return complain(c, "--solver-nodes", "must be 0 to 2147483647", number);
  if (!strcmp(c->name, "orchestrate") && o->out && o->json)
    return complain(c, "--json", "must be left out with -o", o->json);
  const bool solves = o->orchestrate || !strcmp(c->name, "orchestrate");
  if ((o->memory_limit || o->solver_nodes) && (!solves || o->orchestration))
    return complain(c, o->memory_limit ? "--memory-limit" : "--solver-nodes",
                    "must be given with --orchestrate", "it alone");
  if (o->tuned_for && (o->tune > 0 || o->tune_seconds > 0))
    return complain(c, "--tuned-for", "must be left out with --tune", o->tuned_for);
  if (!is_one_of(o->fill, strlen(o->fill), fills))
    return complain(c, "--fill", "must be random, zeros, ones or arange", o->fill);
  if (!check_files(c, "--input", &o->inputs) || !check_files(c, "--expect", &o->expects) ||
      !check_levels(c, "--dump", o->dump) || !check_emit(c, o))
    return false;
  compile_storage *storage = calloc(1, sizeof *storage);
  kiln_compile_options compile;
  bool right = storage && compile_options_make(o, storage, &compile);
  compile_storage_free(storage);
  return right;
}

bool options_parse(const command *c, int argc, char **argv, options *o) {
  for (int i = 0; i < argc; i++) {
    size_t n;
    if (c->takes_rest && !strcmp(argv[i], "--")) {
      o->rest = argv + i + 1;
      break;
    }
    if (argv[i][0] != '-' || !argv[i][1]) {
      if (o->args.n == c->max_args) return complain(c, "arguments", "too many", argv[i]);
      o->args.at[o->args.n++] = argv[i];
      continue;
    }
    const option_row *r = find_row(c, argv[i], &n);
    if (!r) return complain(c, "options", "must be one of `kiln COMMAND --help`", argv[i]);
    const char *value = argv[i][n] == '=' ? argv[i] + n + 1 : NULL;
    if (r->kind == OPTION_FLAG && value) return complain(c, r->name, "takes no value", value);
    if (r->kind != OPTION_FLAG && !value) {
      if (i + 1 == argc) return complain(c, r->name, "needs a value", "nothing");
      value = argv[++i];
    }
    if (!set_value(c, r, value, o)) return false;
    if (o->n_given < (int)(sizeof o->given / sizeof *o->given)) o->given[o->n_given++] = r->name;
    if (r->kind == OPTION_PAIR && i + 1 == argc)
      return complain(c, r->name, "needs two values", value);
    if (r->kind == OPTION_PAIR && !set_value(c, r, argv[++i], o)) return false;
  }
  if (o->args.n < c->min_args || (c->takes_rest && (!o->rest || !o->rest[0]))) {
    command_help(c, stderr);
    return false;
  }
  return check_values(c, o) && module_options_check(c, o);
}

void command_help(const command *c, FILE *to) {
  fprintf(to, "usage: kiln %s %s [OPTION]...\n%s\n\n", c->name, c->synopsis, c->help);
  for (const option_row *r = c->options; r->name; r++) {
    char left[64];
    snprintf(left, sizeof left, "%s %s", r->name, r->value ? r->value : "");
    fprintf(to, "  %-28s %s\n", left, r->help);
  }
}

// kiln reduce: finds the smallest model with which a command fails as with the whole one.
#include "kiln.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct reducing {
  const options *o;
  const char *trial;
  int ended; // wait status of the command on the whole model; -1: not run yet
  size_t nodes;
  bool broken; // the command cannot be run
} reducing;

// |text| with each {} replaced by |path|; malloc'ed.
static char *fill_in(const char *text, const char *path) {
  size_t n = 1, n_path = strlen(path);
  for (const char *at = text; *at; at++) n += at[0] == '{' && at[1] == '}' ? n_path : 1;
  char *out = malloc(n), *to = out;
  for (const char *at = text; out && *at; at++) {
    if (at[0] != '{' || at[1] != '}') {
      *to++ = *at;
      continue;
    }
    memcpy(to, path, n_path);
    to += n_path;
    at++;
  }
  if (out) *to = 0;
  return out;
}

// In the child: runs the command on |path| with its output in |to|.
static void execute(char *const *words, const char *path, FILE *to) {
  size_t n = 0;
  while (words[n]) n++;
  char **arguments = calloc(n + 1, sizeof *arguments);
  for (size_t i = 0; arguments && i < n; i++) arguments[i] = fill_in(words[i], path);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, 0);
  dup2(fileno(to), 1);
  dup2(fileno(to), 2);
  if (arguments) execvp(arguments[0], arguments);
  _exit(127);
}

static bool contains(FILE *f, const char *text) {
  const size_t n = strlen(text);
  size_t matched = 0;
  rewind(f);
  for (int c; matched < n && (c = fgetc(f)) != EOF;) { // restarts after the first byte that matched
    if (c == text[matched]) matched++;
    else if (matched && !fseek(f, -(long)matched, SEEK_CUR)) matched = 0;
  }
  return matched == n;
}

// The command's wait status on the trial model; -1 if it cannot be run, or its output lacks the
// text that it must contain.
static int run_command(reducing *r) {
  FILE *output = tmpfile();
  int ended = -1;
  fflush(NULL);
  const pid_t child = output ? fork() : -1;
  if (child == 0) execute(r->o->rest, r->trial, output);
  if (child > 0 && waitpid(child, &ended, 0) != child) ended = -1;
  if (child < 0 || (WIFEXITED(ended) && WEXITSTATUS(ended) == 127)) r->broken = true;
  if (ended != -1 && r->o->match && !contains(output, r->o->match)) ended = -1;
  if (output) fclose(output);
  return ended;
}

static int32_t fails(void *user) {
  reducing *r = user;
  if (r->broken) return 0;
  const int ended = run_command(r);
  if (r->ended == -1 && ended > 0) r->ended = ended; // the whole model: the failure to keep
  return ended > 0 && ended == r->ended;
}

static void on_progress(void *user, size_t tries, size_t nodes) {
  reducing *r = user;
  if (nodes == r->nodes) return;
  r->nodes = nodes;
  if (r->o->quiet) return;
  fprintf(stderr, "reduce: %zu nodes after %zu runs\n", nodes, tries);
}

// --- types of values, found in a child process: the model may crash its reader

typedef struct known {
  size_t n;
  kiln_port *at; // malloc'ed, as are the names, types and shapes
} known;

static void put_text(FILE *f, const char *text) {
  const size_t n = strlen(text);
  fwrite(&n, sizeof n, 1, f);
  fwrite(text, 1, n, f);
}

static void tell_ports(const options *o, const char *trial, FILE *to) {
  kiln_diag *diag = kiln_diag_create();
  kiln_model *model = NULL;
  const kiln_compile_options co = {.struct_size = sizeof co};
  if (!diag || kiln_model_expose(o->args.at[0], trial, diag) != KILN_OK ||
      kiln_model_load(trial, &co, diag, &model) != KILN_OK)
    return;
  for (size_t i = 0; i < kiln_model_output_count(model); i++) {
    const kiln_port p = kiln_model_output(model, i);
    put_text(to, p.name);
    put_text(to, p.dtype);
    fwrite(&p.rank, sizeof p.rank, 1, to);
    fwrite(p.shape, sizeof *p.shape, (size_t)p.rank, to);
  }
  fflush(to);
}

static char *take_text(FILE *f) {
  size_t n;
  if (fread(&n, sizeof n, 1, f) != 1 || n > 1 << 20) return NULL;
  char *text = calloc(n + 1, 1);
  if (text && fread(text, 1, n, f) != n) text[0] = 0;
  return text;
}

static void take_ports(FILE *f, known *out) {
  char *name;
  rewind(f);
  while ((name = take_text(f)) != NULL) {
    kiln_port p = {.name = name, .dtype = take_text(f)};
    int64_t *shape = calloc(KILN_MAX_PORT_RANK, sizeof *shape);
    kiln_port *more = realloc(out->at, (out->n + 1) * sizeof *more);
    if (more) out->at = more;
    if (!more || !shape || !p.dtype || fread(&p.rank, sizeof p.rank, 1, f) != 1 || p.rank < 0 ||
        p.rank > KILN_MAX_PORT_RANK ||
        fread(shape, sizeof *shape, (size_t)p.rank, f) != (size_t)p.rank) {
      free(name);
      free((void *)(uintptr_t)p.dtype);
      free(shape);
      return;
    }
    p.shape = shape;
    out->at[out->n++] = p;
  }
}

static known find_types(const options *o, const char *trial) {
  known found = {0};
  int ended;
  FILE *f = tmpfile();
  fflush(NULL);
  const pid_t child = f ? fork() : -1;
  if (child == 0) {
    tell_ports(o, trial, f);
    _exit(0);
  }
  if (child > 0 && waitpid(child, &ended, 0) == child && ended == 0) take_ports(f, &found);
  if (f) fclose(f);
  return found;
}

static void known_free(known *k) {
  for (size_t i = 0; i < k->n; i++) {
    free((void *)(uintptr_t)k->at[i].name);
    free((void *)(uintptr_t)k->at[i].dtype);
    free((void *)(uintptr_t)k->at[i].shape);
  }
  free(k->at);
}

int command_reduce(const options *o) {
  const char *out = o->out;
  char trial[4096];
  if ((size_t)snprintf(trial, sizeof trial, "%s.trial.onnx", out) >= sizeof trial) {
    fprintf(stderr, "kiln reduce: error: -o: must be a shorter path\n");
    return EXIT_USAGE;
  }
  kiln_diag *diag = kiln_diag_create();
  known types = find_types(o, trial);
  reducing r = {.o = o, .trial = trial, .ended = -1};
  const kiln_reduce_options how = {.struct_size = sizeof how,
                                   .trial = trial,
                                   .fails = fails,
                                   .on_progress = on_progress,
                                   .user = &r,
                                   .known = types.at,
                                   .n_known = types.n};
  kiln_reduced reduced;
  const kiln_status st =
      diag ? kiln_model_reduce(o->args.at[0], out, &how, diag, &reduced) : KILN_NO_MEMORY;
  unlink(trial);
  if (r.broken)
    fprintf(stderr, "kiln reduce: error: command: must be one that can be run, got '%s'\n",
            o->rest[0]);
  else if (diag) print_messages(diag);
  if (st == KILN_OK)
    printf("%s: %zu nodes of %zu, after %zu runs\n", out, reduced.nodes, reduced.nodes_before,
           reduced.tries);
  known_free(&types);
  kiln_diag_destroy(diag);
  return st == KILN_OK ? EXIT_RIGHT : EXIT_WRONG;
}

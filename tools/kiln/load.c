// Loading for the commands: reading, compiling or loading of models, with progress and messages on
// stderr.
#include "kiln.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

// Copies NAME of NAME=REST and gives REST; NULL if there is no '='.
static const char *split_value(const char *text, char name[256]) {
  size_t n = name_length(text);
  if (n == 0 || n > 255) return NULL;
  memcpy(name, text, n);
  name[n] = 0;
  return text + n + 1;
}

// Parses "1x3xHxW" or "batch,3,max" into extents, or names of them, which go to |room|. If the text
// has a comma, 'x' is an ordinary letter.
static bool parse_shape(const char *text, shape_storage *s, int32_t *rank) {
  const char *separators = strchr(text, ',') ? "," : "x";
  size_t used = 0;
  *rank = 0;
  text += strspn(text, "[ ");
  for (bool more = *text && *text != ']'; more;) {
    const size_t n = strcspn(text, *separators == 'x' ? "x] " : ",] ");
    char *end = NULL;
    if (*rank == MAX_RANK || n == 0 || used + n >= sizeof s->room) return false;
    char *name = memcpy(s->room + used, text, n);
    name[n] = 0;
    used += n + 1;
    s->names[*rank] = isalpha((unsigned char)*name) || *name == '_' ? name : NULL;
    s->extents[*rank] = strtoll(name, &end, 10);
    if (!s->names[*rank] && *end) return false;
    ++*rank;
    text += n + strspn(text + n, " ");
    more = *text == *separators; // an extent must follow the separator
    if (more) text += 1 + strspn(text + 1, " ");
  }
  text += strspn(text, "] ");
  return !*text;
}

// Dumps to files are kept until the model's files are known, so that none of them is overwritten.
static bool keep_dump(compile_storage *s, const char *level, const char *text) {
  dump *const more = realloc(s->dumps, ((size_t)s->n_dumps + 1) * sizeof *more);
  if (more) s->dumps = more;
  char *const path =
      more ? malloc(strlen(level) + strlen(s->o->dump_dir ? s->o->dump_dir : "") + 8) : NULL;
  char *const copy = path ? strdup(text) : NULL;
  if (!copy) {
    free(path);
    return fprintf(stderr, "%s: error: dump: no memory left\n", level), false;
  }
  if (s->o->dump_dir) sprintf(path, "%s/%s.txt", s->o->dump_dir, level);
  s->dumps[s->n_dumps++] = (dump){path, copy};
  return true;
}

static void on_dump(void *user, const char *level, const char *text) {
  compile_storage *s = user;
  const bool is_file = s->o->dump_dir || (s->o->emit && s->o->out);
  s->dump_failed |= !(is_file ? keep_dump(s, level, text) : write_text(NULL, "dump", text));
}

bool dumps_write(compile_storage *s, const kiln_model *model) {
  for (int i = 0; i < s->n_dumps; i++) {
    const char *path = s->o->dump_dir ? s->dumps[i].path : s->o->out;
    s->dump_failed |= !may_write(s->o, model, path) || !write_text(path, "dump", s->dumps[i].text);
  }
  return !s->dump_failed;
}

enum { TUNED = 16 }; // default number of candidates if only a time is given
static volatile int stop_tuning;

static void on_interrupt(int number) {
  (void)number;
  stop_tuning = 1;
}

// The first interrupt ends tuning, the second the command.
static void catch_interrupt(void) {
  struct sigaction action = {.sa_handler = on_interrupt,
                             .sa_flags = (int)SA_RESETHAND | SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
}

static void on_progress(void *user, const char *phase, size_t done, size_t total) {
  (void)user;
  print_progress(phase, done, total);
}

bool simulates(const options *o) {
  return o->target && !strncmp(o->target, "sim", 3) && (!o->target[3] || o->target[3] == ':');
}

bool prints_code(const options *o) {
  static const char *const printed[] = {"c", "avx2", "avxvnni", "avx512", "avx512vnni", "neon"};
  if (!o->target) return false;
  for (size_t i = 0; i < sizeof printed / sizeof *printed; i++)
    if (!strcmp(o->target, printed[i])) return true;
  return !strncmp(o->target, "hip:", 4);
}

const char *target_of(const options *o) {
  if (!simulates(o)) return o->target;
  return o->target[3] ? o->target + 4 : NULL;
}

// Parses "8", "1..64" or "64..512/16"; step 0: a single value.
static bool parse_range(const char *text, kiln_dim_range *out) {
  char *end = NULL;
  out->least = out->most = strtoll(text, &end, 10);
  out->step = 0;
  if (end == text) return false;
  if (!*end) return true;
  if (strncmp(end, "..", 2)) return false;
  text = end + 2;
  out->most = strtoll(text, &end, 10);
  out->step = 1;
  if (end == text || (*end && *end != '/')) return false;
  if (!*end) return true;
  text = end + 1;
  out->step = strtoll(text, &end, 10);
  return end != text && !*end && out->step > 0;
}

static bool has_letter(const char *text) {
  for (; *text; text++)
    if (isalpha((unsigned char)*text) || *text == '_') return true;
  return false;
}

// Parses --dim and --size: values, ranges and sums.
static bool take_dims(const options *o, compile_storage *s, kiln_compile_options *out) {
  out->dims = s->dims;
  out->ranges = s->ranges;
  out->sums = s->sums;
  for (int i = 0; i < o->dims.n; i++) {
    const char *value = split_value(o->dims.at[i], s->names[i]);
    kiln_dim_range range = {.name = s->names[i]};
    if (value && strpbrk(value, "+-*") && has_letter(value)) {
      s->sums[out->n_sums++] = (kiln_dim_sum){s->names[i], value};
      continue;
    }
    if (!value || !parse_range(value, &range))
      return fprintf(stderr, "kiln: error: %s, got '%s'\n",
                     o->args.n && is_definition(o->args.at[0])
                         ? "--size: must be NAME=N"
                         : "--dim: must be NAME=N, NAME=LEAST..MOST, NAME=LEAST..MOST/STEP or "
                           "NAME=P+Q",
                     o->dims.at[i]),
             false;
    if (range.step) s->ranges[out->n_ranges++] = range;
    else s->dims[out->n_dims++] = (kiln_dim_value){range.name, range.least};
  }
  return true;
}

static bool take_shapes(const options *o, compile_storage *s, kiln_compile_options *out) {
  out->shapes = s->shapes;
  out->n_shapes = (size_t)o->shapes.n;
  for (int i = 0; i < o->shapes.n; i++) {
    char *name = s->names[MAX_VALUES + i];
    const char *value = split_value(o->shapes.at[i], name);
    shape_storage *room = &s->shape_rooms[i];
    s->shapes[i] = (kiln_shape_value){name, 0, room->extents, room->names};
    if (!value || !parse_shape(value, room, &s->shapes[i].rank))
      return fprintf(stderr,
                     "kiln: error: --shape: must be INPUT=1x3x224x224, or with names, as "
                     "INPUT=Nx3x224x224 or "
                     "INPUT=max,3, "
                     "got '%s'\n",
                     o->shapes.at[i]),
             false;
  }
  return true;
}

bool compile_options_make(const options *o, compile_storage *s, kiln_compile_options *out) {
  const int32_t tune = o->tune == 0 && o->tune_seconds > 0 ? TUNED : (int32_t)o->tune;
  if (tune) catch_interrupt();
  *out = (kiln_compile_options){.struct_size = sizeof *out,
                                .threads = (int32_t)o->threads,
                                .target = target_of(o),
                                .scheduler = o->scheduler,
                                .dtype = o->dtype,
                                .cache = !o->no_cache,
                                .tune = tune,
                                .tune_seconds = o->tune_seconds,
                                .tuned_for = o->tuned_for,
                                .tuned = o->tuned,
                                .no_winograd = o->no_winograd,
                                .weight_growth = o->weight_growth,
                                .stop = &stop_tuning,
                                .no_connect = o->no_connect,
                                .no_beside = o->no_horizontal_fusion,
                                .clamp_indices = o->clamp_indices,
                                .most_extent = o->most_extent,
                                .orchestrate = o->orchestrate,
                                .orchestration = o->orchestration,
                                .memory_limit = (uint64_t)o->memory_limit,
                                .solver_nodes = (int32_t)o->solver_nodes,
                                .backends = o->backends,
                                .dump = o->emit ? o->emit : o->dump,
                                .on_dump = on_dump,
                                .dump_user = s};
  s->o = o;
  out->read_only = o->read_only;
  out->entry = o->entry;
  out->op_files = o->op_files.at;
  out->n_op_files = (size_t)o->op_files.n;
  out->without = o->without.at;
  out->n_without = (size_t)o->without.n;
  out->dump_after = o->dump_after;
  out->stop_after = o->stop_after;
  out->with_rules = o->with_rules.at;
  out->n_with_rules = (size_t)o->with_rules.n;
  out->overridable = o->overridable.at;
  out->n_overridable = (size_t)o->overridable.n;
  out->marks = o->marks.at;
  out->n_marks = (size_t)o->marks.n;
  out->states = o->states.at;
  out->n_states = (size_t)o->states.n;
  if (shows_progress()) out->on_progress = on_progress;
  return take_dims(o, s, out) && take_shapes(o, s, out);
}

bool schedule_read(compile_storage *s, kiln_compile_options *out) {
  const options *o = s->o;
  size_t n = 0, room = 1 << 16;
  if (!o->schedule) return true;
  FILE *f = fopen(o->schedule, "rb");
  s->schedule = f ? malloc(room + 1) : NULL;
  while (s->schedule && (n += fread(s->schedule + n, 1, room - n, f)) == room) {
    char *more = realloc(s->schedule, (room *= 2) + 1);
    if (!more) free(s->schedule);
    s->schedule = more;
  }
  bool right = s->schedule && !ferror(f) && !memchr(s->schedule, 0, n);
  if (f) fclose(f);
  if (!right)
    return fprintf(stderr, "%s: error: schedule: must be a readable text file\n", o->schedule),
           false;
  s->schedule[n] = 0;
  out->schedule = s->schedule;
  return true;
}

void compile_storage_free(compile_storage *storage) {
  if (storage) free(storage->schedule);
  for (int i = 0; storage && i < storage->n_dumps; i++) {
    free(storage->dumps[i].path);
    free(storage->dumps[i].text);
  }
  if (storage) free(storage->dumps);
  free(storage);
}

bool is_definition(const char *path) {
  const size_t n = strlen(path);
  return n > 3 && !strcmp(path + n - 3, ".tc");
}

bool refuse_module(const char *path, const char *what) {
  if (!kiln_module_is_file(path)) return false;
  fprintf(stderr, "%s: error: %s: must be a model, got a module\n", path, what);
  return true;
}

static void print_libraries(const options *o, const kiln_tuning *t) {
  if (!o->backends || !strcmp(o->backends, "none")) return;
  size_t n = 0;
  if (o->quiet) return;
  for (const char *at = t->won; at && *at; at++) n += *at == '\n';
  fprintf(stderr, "libraries: %zu of %zu kernels, %zu that they have kernels for\n%s", n,
          t->kernels, t->offered, t->won ? t->won : "");
}

void print_tuning(const options *o, const kiln_model *model) {
  const kiln_tuning t = kiln_model_tuning(model);
  print_libraries(o, &t);
  if (!o->tune && !(o->tune_seconds > 0) && !o->tuned_for) return;
  signal(SIGINT, SIG_DFL);
  if (o->quiet) return;
  if (o->tuned_for) {
    fprintf(stderr, "tuned for %s: %zu kernels, %zu known, %zu changed\n", o->tuned_for, t.kernels,
            t.known, t.changed);
    return;
  }
  fprintf(stderr, "%stuning: %zu kernels, %zu known, %zu candidates measured",
          t.stopped ? "interrupted " : "", t.kernels, t.known, t.candidates);
  if (t.wrong) fprintf(stderr, ", %zu WRONG", t.wrong);
  if (t.lost) fprintf(stderr, ", %zu LOST", t.lost);
  if (t.before_ms > 0)
    fprintf(stderr, "; %zu kernels changed: %.3f ms a run before, %.3f ms now, %.2fx", t.changed,
            t.before_ms, t.after_ms, t.after_ms > 0 ? t.before_ms / t.after_ms : 1);
  fprintf(stderr, "\n");
}

// Finds replaceable initializers of the model for which files are given; their data is compiled in.
static kiln_status find_constants(const options *o, const char *path,
                                  const kiln_compile_options *how, kiln_diag *diag, loaded *out) {
  kiln_compile_options reading = *how;
  kiln_model *model = NULL;
  if ((!o->inputs.n && !o->inputs_npz) || is_definition(path)) return KILN_OK;
  reading.read_only = 1;
  reading.dump = NULL;
  kiln_status st = kiln_model_load(path, &reading, diag, &model);
  if (st == KILN_OK) kiln_diag_clear(diag); // warnings, which the next load repeats
  if (st == KILN_OK && !constants_find(o, model, out)) st = KILN_BAD_INPUT;
  kiln_model_destroy(model);
  return st;
}

// Loads with the constants that were found; options point to them during the call only.
static kiln_status load_with(const char *path, kiln_compile_options *co, kiln_diag *diag,
                             loaded *out) {
  const DLTensor **given = calloc(out->n_constants + 1, sizeof *given);
  if (!given) return KILN_NO_MEMORY;
  for (size_t i = 0; i < out->n_constants; i++) given[i] = &out->constants[i]->dl_tensor;
  co->n_constants = out->n_constants;
  co->constant_names = (const char *const *)out->constant_names;
  co->constant_values = given;
  const kiln_status st = kiln_model_load(path, co, diag, &out->model);
  free(given);
  return st;
}

bool load_model(const options *o, const char *path, bool compile, loaded *out) {
  *out = (loaded){0};
  kiln_diag *diag = kiln_diag_create();
  compile_storage *storage = calloc(1, sizeof *storage);
  kiln_compile_options co;
  kiln_status st = KILN_BAD_INPUT;
  if (!diag || !storage || !compile_options_make(o, storage, &co) || !schedule_read(storage, &co))
    goto done;
  double start = now_ms();
  if (kiln_module_is_file(path)) {
    st = kiln_module_load(path, diag, &out->module);
    out->load_ms = now_ms() - start;
    goto done;
  }
  st = compile ? find_constants(o, path, &co, diag, out) : KILN_OK;
  if (st == KILN_OK) st = load_with(path, &co, diag, out);
  if (st == KILN_OK && compile) st = kiln_model_compile(out->model, diag, &out->module);
  out->compile_ms = now_ms() - start;
  if (st == KILN_OK && compile) print_tuning(o, out->model);
done:
  if (diag) print_messages(diag);
  const int code = st == KILN_OK ? EXIT_RIGHT : exit_code_of(diag);
  kiln_diag_destroy(diag);
  compile_storage_free(storage);
  if (st != KILN_OK) loaded_free(out);
  else print_details(o, out->model, out->module);
  out->code = code;
  return st == KILN_OK;
}

int emit_model(const options *o, const char *path) {
  kiln_diag *diag = kiln_diag_create();
  compile_storage *storage = calloc(1, sizeof *storage);
  kiln_compile_options co;
  kiln_model *model = NULL;
  kiln_status st = KILN_BAD_INPUT;
  if (o->dump_dir) mkdir(o->dump_dir, 0777);
  if (diag && storage && compile_options_make(o, storage, &co) && schedule_read(storage, &co))
    st = kiln_model_load(path, &co, diag, &model);
  if (st == KILN_OK) st = kiln_model_emit(model, diag);
  if (diag) print_messages(diag);
  int code = st == KILN_OK ? EXIT_RIGHT : exit_code_of(diag);
  if (code == EXIT_RIGHT && !dumps_write(storage, model)) code = EXIT_WRONG;
  kiln_model_destroy(model);
  kiln_diag_destroy(diag);
  compile_storage_free(storage);
  return code;
}

void loaded_free(loaded *l) {
  kiln_module_release(l->module);
  kiln_model_destroy(l->model);
  for (size_t i = 0; i < l->n_constants; i++) {
    free(l->constant_names[i]);
    kiln_tensor_destroy(l->constants[i]);
  }
  free(l->constant_names);
  free(l->constants);
  *l = (loaded){0};
}

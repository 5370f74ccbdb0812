// Loading a model: checks options, runs the pipeline's load phase, and prints requested dumps.
#include "module/cache.h"
#include "module/library_candidate.h"
#include "driver/pipeline.h"
#include "driver/stages.h"
#include "dynamic/append_in_place.h"
#include "dynamic/update_in_place.h"
#include "model/parts.h"
#include "model/states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Dump levels; those of code depend on the target.
static const char *const levels[] = {"graph",         "prim", "loop", "schedule",
                                     "orchestration", "plan", "c"};

// --- loading ---

typedef struct loading {
  kiln_model *model;
  const char *path;
  const kiln_compile_options *options;
} loading;

enum { MAX_LEVELS = 32 };

static bool is_level(int n, const char *const *names, const char *at, size_t length) {
  bool known = false;
  for (int i = 0; i < n; i++)
    known |= strlen(names[i]) == length && strncmp(names[i], at, length) == 0;
  return known;
}

static int all_levels(const char *out[MAX_LEVELS]) {
  int n = 0;
  for (size_t i = 0; i < KILN_LEN(levels); i++) out[n++] = levels[i];
  for (int t = 0; kiln_targets[t]; t++)
    for (const char *const *l = kiln_targets[t]->code_levels; *l && n < MAX_LEVELS; l++)
      if (!is_level(n, out, *l, strlen(*l))) out[n++] = *l;
  return n;
}

// "graph, prim or loop"
static void list_levels(int n, const char *const *names, char *out, size_t room) {
  size_t used = 0;
  for (int i = 0; i < n && used < room; i++)
    used += (size_t)snprintf(out + used, room - used, "%s%s",
                             i == 0       ? ""
                             : i == n - 1 ? " or "
                                          : ", ",
                             names[i]);
}

static kiln_status check_dump(const kiln_compile_options *o, kiln_diag *diag) {
  const char *names[MAX_LEVELS];
  const int n_levels = all_levels(names);
  for (const char *at = o->dump; at && *at; at += *at == ',') {
    const size_t n = strcspn(at, ",");
    if (!is_level(n_levels, names, at, n)) {
      char list[256];
      list_levels(n_levels, names, list, sizeof list);
      return KILN_FAIL(diag, KILN_BAD_INPUT, "options", "dump: level must be %s, got '%.*s'", list,
                       (int)n, at);
    }
    at += n;
  }
  return KILN_OK;
}

// Prints the program, or those of the parts.
static kiln_status print_programs(kiln_ctx *cx, kiln_model *m, kiln_text *out) {
  const int n = m->parted ? (int)m->parted->flow.n_parts : 0;
  const kiln_program *p = NULL;
  if (!m->parted) {
    KILN_TRY(kiln_model_meaning(cx, m, &p));
    kiln_program_print(cx, p, out);
  }
  for (int i = 0; i < n; i++) {
    kiln_model part = kiln_parts_model(cx, m, i);
    KILN_TRY(kiln_model_meaning(cx, &part, &p));
    kiln_text_printf(out, "# part %d\n", i);
    kiln_program_print(cx, p, out);
  }
  return KILN_OK;
}

static kiln_status dump_front(kiln_ctx *cx, kiln_model *m) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  if (m->graph && kiln_model_dumps(m, "graph")) {
    kiln_graph_print(cx, m->graph, &text);
    kiln_model_dump(m, "graph", &text);
  }
  kiln_text_init(&text, &cx->scratch);
  if (m->prog && kiln_model_dumps(m, "prim")) {
    KILN_TRY(print_programs(cx, m, &text));
    kiln_model_dump(m, "prim", &text);
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

// Whether |target| is this machine, which is examined only when needed.
static bool is_this_machine(const char *target) {
  static const char *const names[] = {"cpu", "native", "cuda"};
  bool is = target == NULL;
  for (size_t i = 0; !is && i < KILN_LEN(names); i++) is = strcmp(target, names[i]) == 0;
  return is;
}

// Checks names of a machine and a dtype before the model is read.
static kiln_status check_names(kiln_ctx *cx, const kiln_compile_options *o) {
  kiln_machine machine;
  kiln_dtype t = KILN_F32;
  if (!o->read_only && !is_this_machine(o->target))
    KILN_TRY(kiln_target_machine(cx, o->target, &machine));
  if (o->dtype && strcmp(o->dtype, "tf32") != 0 &&
      (!kiln_dtype_parse(o->dtype, strlen(o->dtype), &t) || !kiln_dtype_is_half(t)))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "options",
                     "dtype: must be f16, bf16 or tf32, got %s", o->dtype);
  return KILN_OK;
}

// Options that do not apply to the kind of file |path| must not be given.
static kiln_status check_kind(kiln_ctx *cx, const char *path, const kiln_compile_options *o) {
  const bool is_definition = kiln_path_is_definition(path);
  if (!is_definition && o->entry)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                     "entry: must be given with a .tc file, got %s with a model", o->entry);
  if (!is_definition) return KILN_OK;
  if (o->n_ranges > 0)
    return KILN_FAIL(
        cx->diag, KILN_BAD_INPUT, path,
        "range: must be given with an ONNX model; a definition takes sizes, got one of %s",
        o->ranges[0].name);
  if (o->dtype && strcmp(o->dtype, "tf32") != 0)
    return KILN_FAIL(
        cx->diag, KILN_BAD_INPUT, path,
        "dtype: must be given with an ONNX model; a definition names its types, got %s", o->dtype);
  if (o->n_op_files > 0)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                     "operators: must be given with an ONNX model; a definition calls those before "
                     "it in its file, got %s",
                     o->op_files[0]);
  if (o->n_shapes > 0)
    return KILN_FAIL(
        cx->diag, KILN_BAD_INPUT, path,
        "shape: must be given with an ONNX model; a definition takes sizes, got one of "
        "%s",
        o->shapes[0].name);
  if (o->n_overridable > 0)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                     "overridable: must be given with an ONNX model; a definition has no "
                     "initializers, got %s",
                     o->overridable[0]);
  if (o->n_marks > 0)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                     "mark: must be given with an ONNX model; a definition names its outputs "
                     "itself, got %s",
                     o->marks[0]);
  if (o->n_states > 0)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                     "state: must be given with an ONNX model, got %s", o->states[0]);
  if (o->n_constants > 0)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                     "constant: must be given with an ONNX model, got %s", o->constant_names[0]);
  return KILN_OK;
}

static kiln_status load(kiln_ctx *cx, void *argument) {
  loading *l = argument;
  kiln_model *m = l->model;
  const kiln_compile_options *o = l->options;
  m->path = kiln_arena_strdup(&cx->perm, l->path);
  m->options.dump = m->options.dump ? kiln_arena_strdup(&cx->perm, m->options.dump) : NULL;
  m->options.dump_after = o->dump_after ? kiln_arena_strdup(&cx->perm, o->dump_after) : NULL;
  m->options.dtype = o->dtype ? kiln_arena_strdup(&cx->perm, o->dtype) : NULL;
  m->options.target = o->target ? kiln_arena_strdup(&cx->perm, o->target) : NULL;
  m->options.orchestration =
      o->orchestration ? kiln_arena_strdup(&cx->perm, o->orchestration) : NULL;
  m->options.tuned = o->tuned ? kiln_arena_strdup(&cx->perm, o->tuned) : NULL;
  m->options.tuned_for = o->tuned_for ? kiln_arena_strdup(&cx->perm, o->tuned_for) : NULL;
  m->options.backends = o->backends ? kiln_arena_strdup(&cx->perm, o->backends) : NULL;
  m->options.scheduler = o->scheduler ? kiln_arena_strdup(&cx->perm, o->scheduler) : NULL;
  KILN_TRY(check_dump(&m->options, cx->diag));
  KILN_TRY(check_names(cx, &m->options));
  for (size_t i = 0; i < o->n_without; i++)
    KILN_TRY(kiln_passes_find(cx, kiln_rules, o->without[i], &m->without_rules, &m->without));
  if (o->no_winograd) KILN_TRY(kiln_passes_find(cx, kiln_rules, "winograd", NULL, &m->without));
  if (o->no_beside)
    KILN_TRY(kiln_passes_find(cx, kiln_rules, "horizontal-fusion", NULL, &m->without));
  KILN_TRY(kiln_passes_check(cx, m->options.dump_after));
  KILN_TRY(kiln_stop_parse(cx, o->stop_after, &m->stop));
  for (size_t i = 0; i < o->n_with_rules; i++)
    KILN_TRY(kiln_rules_ask(cx, kiln_rules, o->with_rules[i], &m->with_rules));
  KILN_TRY(kiln_backends_check(m->options.backends, cx->diag));
  KILN_TRY(check_kind(cx, m->path, o));
  m->has_schedule = o->schedule != NULL;
  if (o->cache) kiln_cache_warn(cx->diag);
  if (o->schedule) KILN_TRY(kiln_sections_parse(cx, o->schedule, NULL, &m->schedule));
  kiln_build b = {.request.model = m, .request.asked = o};
  KILN_TRY(kiln_pipeline_run(cx, &b, KILN_PHASE_LOAD, KILN_PHASE_LOAD));
  if (!o->read_only) KILN_TRY(kiln_defaults_make(cx, m));
  if (!o->read_only) KILN_TRY(kiln_states_find(cx, m, o->n_states, o->states));
  kiln_states_append_in_place(cx, m);
  kiln_states_update_in_place(cx, m);
  m->n_load_times = m->times.n;
  return dump_front(cx, m);
}

static kiln_status create(kiln_diag *diag, kiln_model **out) {
  kiln_model *m = calloc(1, sizeof *m);
  kiln_core *core = calloc(1, sizeof *core);
  *out = NULL;
  if (!m || !core || kiln_ctx_init(&core->cx, diag) != KILN_OK) {
    free(m);
    free(core);
    return KILN_FAIL(diag, KILN_NO_MEMORY, "model", "no memory left");
  }
  atomic_init(&core->refs, 1);
  m->core = core;
  m->half = KILN_F32;
  *out = m;
  return KILN_OK;
}

kiln_status kiln_model_load(const char *path, const kiln_compile_options *options, kiln_diag *diag,
                            kiln_model **out_model) {
  return kiln_model_load_nth(path, options, -1, diag, out_model);
}

kiln_status kiln_model_load_nth(const char *path, const kiln_compile_options *options, int nth,
                                kiln_diag *diag, kiln_model **out_model) {
  kiln_compile_options o = {0};
  kiln_model *m = NULL;
  KILN_TRY(kiln_argument_check(diag, "kiln_model_load", "out_model", out_model));
  *out_model = NULL;
  KILN_TRY(kiln_argument_check(diag, "kiln_model_load", "path", path));
  if (options)
    memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  KILN_TRY(kiln_options_check(&o, diag));
  if (o.threads < 0 || o.threads > 1024)
    return KILN_FAIL(diag, KILN_BAD_INPUT, "options", "threads: must be 0 to 1024, got %d",
                     o.threads);
  if (!(o.weight_growth == 0 || o.weight_growth >= 1))
    return KILN_FAIL(diag, KILN_BAD_INPUT, "options",
                     "weight growth: must be 0 or at least 1, got %g", o.weight_growth);
  if (o.tuned_for && o.tune > 1)
    return KILN_FAIL(diag, KILN_BAD_INPUT, "options",
                     "tuned for: must be left out where candidates are measured, got \"%s\"",
                     o.tuned_for);
  kiln_status st = create(diag, &m);
  if (st != KILN_OK) return st;
  loading l = {m, path, &o};
  m->options = o;
  m->rules = kiln_rules;
  m->passes = kiln_passes;
  m->compiler = &kiln_compiler_here;
  m->nth = nth;
  if (o.threads == 0) m->options.threads = kiln_cpu_cores();
  st = kiln_model_enter(m, diag, load, &l);
  m->options.dims = NULL; // borrowed during the call
  m->options.ranges = NULL;
  m->options.sums = NULL;
  m->options.shapes = NULL;
  m->options.constant_names = NULL;
  m->options.constant_values = NULL;
  m->options.entry = NULL;
  m->options.schedule = NULL;
  m->options.without = NULL;
  m->options.n_without = 0;
  m->options.stop_after = NULL;
  m->options.with_rules = NULL;
  m->options.n_with_rules = 0;
  m->options.op_files = NULL;
  m->options.overridable = NULL;
  m->options.marks = NULL;
  m->options.states = NULL;
  m->options.files = NULL;
  if (st != KILN_OK) kiln_model_destroy(m);
  else *out_model = m;
  return st;
}

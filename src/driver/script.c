// User-provided schedules: passes that read scripts, choose a scheduler, set search options, and
// replace Kiln's schedules by the user's.
#include "driver/stages.h"
#include "tune/measurement_cache.h"
#include "module/schedule_lookup.h"
#include "schedule/nearest.h"
#include "polyhedral/polyhedral.h"

#include <string.h>

// Replays the section on the unscheduled loops of |k->prog|; messages have line numbers of the
// file.
static kiln_status replay(kiln_ctx *cx, const kiln_machine *m, const kiln_section *section,
                          kiln_kernel *k) {
  kiln_text script;
  kiln_text_init(&script, &cx->perm);
  for (int line = 1; section && line < section->first_line; line++) kiln_text_add(&script, "\n");
  if (section) kiln_text_add(&script, section->text);
  return kiln_kernel_replay(cx, m, script.data ? script.data : "", k);
}

// --- a definition as one kernel ---

// The section that schedules the whole definition; |*out_whole| tells whether the definition is one
// kernel: an empty file requests unscheduled loops.
static const kiln_section *find_whole(const kiln_model *m, bool *out_whole) {
  const kiln_section *s = NULL;
  *out_whole = m->has_schedule && m->definition && m->schedule.n == 0;
  if (!m->definition) return NULL;
  s = kiln_section_find(&m->schedule, 0);
  if (!s) s = kiln_section_find(&m->schedule, m->prog->name);
  *out_whole |= s != NULL;
  return s;
}

static double params_bytes(const kiln_program *p) {
  double bytes = 0;
  for (int i = 0; i < p->tensors.n; i++)
    if (p->tensors.data[i]->role != KILN_TEMP)
      bytes += (double)kiln_tensor_elems(p->tensors.data[i]) *
               kiln_dtype_bytes(p->tensors.data[i]->dtype);
  return bytes;
}

// A kernel for the whole program. Outputs are marked, which makes them PARAMs.
static kiln_kernel *whole_kernel(kiln_ctx *cx, kiln_build *b) {
  kiln_kernel *k = KILN_NEW(&cx->perm, kiln_kernel);
  kiln_outputs_mark(b->choices.prog);
  *k = (kiln_kernel){.name = b->choices.prog->name, .prog = b->choices.prog};
  k->flops = kiln_program_flops(cx, b->choices.prog);
  k->bytes = params_bytes(b->choices.prog);
  return k;
}

// Makes the launch of a kernel that computes the whole definition.
static kiln_status launch_whole(kiln_ctx *cx, kiln_build *b, kiln_kernel *k) {
  const kiln_program *p = b->choices.prog;
  kiln_launch l = {.origin = p->name};
  l.args = KILN_NEW_ARRAY(&cx->perm, kiln_argument, p->tensors.n);
  l.stmts = KILN_NEW_ARRAY(&cx->perm, int, p->stmts.n);
  for (int i = 0; i < k->loops->buffers.n; i++) {
    const kiln_buffer *buffer = k->loops->buffers.data[i];
    if (buffer && buffer->scope == KILN_SCOPE_PARAM) l.args[l.n_args++].tensor = buffer->tensor;
  }
  for (int i = 0; i < p->stmts.n; i++) l.stmts[l.n_stmts++] = i;
  KILN_VEC_PUSH(&cx->perm, &b->choices.kernels.kernels, k);
  KILN_VEC_PUSH(&cx->perm, &b->choices.kernels.launches, l);
  return KILN_OK;
}

// --- the requested scheduler ---

static const char *const schedulers[] = {
    [KILN_FUSION_MAX] = "max", [KILN_FUSION_MIN] = "min", [KILN_FUSION_PRESERVE3] = "preserve3"};

static const char promote_suffix[] = "+promote";

// The length without the suffix that requests promotion.
static size_t fusion_length(const char *asked) {
  const size_t n = strlen(asked), suffix = sizeof promote_suffix - 1;
  return n > suffix && strcmp(asked + n - suffix, promote_suffix) == 0 ? n - suffix : n;
}

// *out_fusion is -1 for the default, rules and templates.
static kiln_status find_scheduler(kiln_ctx *cx, const kiln_model *m, int *out_fusion,
                                  bool *out_promote) {
  const char *asked = m->options.scheduler;
  *out_fusion = -1;
  *out_promote = false;
  if (!asked || strcmp(asked, "rules") == 0) return KILN_OK;
  if (m->has_schedule)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, m->path,
                     "scheduler: must be left out where a schedule is given, got \"%s\"", asked);
  const size_t n = fusion_length(asked);
  *out_promote = asked[n] != 0;
  for (size_t i = 0; i < KILN_LEN(schedulers); i++)
    if (strlen(schedulers[i]) == n && memcmp(asked, schedulers[i], n) == 0) *out_fusion = (int)i;
  if (*out_fusion < 0)
    return KILN_FAIL(
        cx->diag, KILN_BAD_INPUT, m->path,
        "scheduler: must be rules, max, min or preserve3, the last three with +promote "
        "or without, got \"%s\"",
        asked);
  if (m->definition) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, m->path,
                   "scheduler: must be rules for an ONNX model, got \"%s\"", asked);
}

// --- kernel by kernel ---

static kiln_status unknown(kiln_ctx *cx, const kiln_kernels *k, const kiln_section *s) {
  kiln_nearest nearest = {.word = kiln_symbol_text(cx, s->kernel)};
  for (int i = 0; i < k->kernels.n; i++)
    kiln_nearest_offer(&nearest, kiln_symbol_text(cx, k->kernels.data[i]->name));
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT,
                   kiln_arena_printf(&cx->perm, "schedule: line %d", s->first_line - 1),
                   "kernel: must be one of the model's, as --dump=schedule prints them, got "
                   "\"%s\"%s",
                   nearest.word, kiln_nearest_text(cx, &nearest));
}

static kiln_status replace(kiln_ctx *cx, kiln_build *b, const kiln_section *s) {
  if (!s->kernel)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "schedule: line 1",
                     "section: must begin with a line `kernel NAME`, got none");
  for (int i = 0; i < b->choices.kernels.kernels.n; i++)
    if (b->choices.kernels.kernels.data[i]->name == s->kernel) {
      kiln_kernel *k = b->choices.kernels.kernels.data[i];
      k->key = NULL; // from the user
      k->candidates.n = 0;
      return replay(cx, &b->request.machine, s, k);
    }
  return unknown(cx, &b->choices.kernels, s);
}

kiln_status kiln_build_replace_kernels(kiln_ctx *cx, kiln_build *b, int *io_n) {
  const kiln_sections *sections = &b->request.model->schedule;
  for (int i = 0; i < sections->n && !b->choices.is_whole; i++, ++*io_n)
    KILN_TRY(replace(cx, b, &sections->data[i]));
  return KILN_OK;
}

// --- passes ---

static kiln_status schedule_whole(kiln_ctx *cx, kiln_build *b, const kiln_section *whole) {
  const kiln_sections *sections = &b->request.model->schedule;
  if (sections->n > 1)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "schedule",
                     "file: the script of a whole definition must be its only one, got %d",
                     sections->n);
  kiln_kernel *k = whole_kernel(cx, b);
  KILN_TRY(replay(cx, &b->request.machine, whole, k));
  b->choices.is_scheduled = true;
  return launch_whole(cx, b, k);
}

kiln_status kiln_build_take_given(kiln_ctx *cx, kiln_build *b, int *io_n) {
  const kiln_section *whole = find_whole(b->request.model, &b->choices.is_whole);
  (void)io_n;
  b->choices.rewriting = (kiln_rewriting){.rules = b->request.model->rules,
                                          .without = b->request.model->without_rules,
                                          .on_gpu = b->request.machine.target->has_grids};
  if (!b->request.is_trial) b->choices.with_rules = b->request.model->with_rules;
  KILN_TRY(kiln_build_find_orchestration(cx, b));
  if (!b->request.given_orchestration && !b->request.is_trial)
    KILN_TRY(kiln_measurement_cache_open(cx, b));
  KILN_TRY(find_scheduler(cx, b->request.model, &b->choices.fusion, &b->choices.promotes));
  return b->choices.is_whole ? schedule_whole(cx, b, whole) : KILN_OK;
}

kiln_status kiln_build_rewrite(kiln_ctx *cx, kiln_build *b, int *io_n) {
  const kiln_compile_options *asked = &b->request.model->options;
  kiln_rewriting *r = &b->choices.rewriting;
  // The solver chooses places in addition to other rules.
  const bool is_chosen = asked->orchestrate && !asked->orchestration;
  r->with = b->choices.with_rules;
  if (b->request.stop.is_set) r->n_steps = b->request.stop.n_steps;
  if (!b->request.stop.is_set || r->n_steps > 0) KILN_TRY(kiln_rewrite(cx, b->choices.prog, r));
  b->n_steps += r->n_run;
  b->last = r->last ? r->last->name : NULL;
  b->last_text = r->last ? r->last->text : NULL;
  for (int i = 0; r->rules[i].name; i++) *io_n += r->counts[i];
  return b->request.is_trial || is_chosen ? KILN_OK : kiln_rewriting_check_places(cx, r);
}

kiln_status kiln_build_schedule_polyhedral(kiln_ctx *cx, kiln_build *b, int *io_n) {
  const kiln_polyhedral_options options = {.fusion = (kiln_fusion)b->choices.fusion,
                                           .promote = b->choices.promotes};
  if (b->choices.fusion < 0 || !kiln_polyhedral_suits(b->choices.prog)) return KILN_OK;
  kiln_kernel *k = whole_kernel(cx, b);
  ++*io_n;
  KILN_TRY(kiln_polyhedral_schedule(cx, b->choices.prog, &b->request.machine,
                                    b->request.model->options.threads, &options, &k->loops,
                                    &k->script));
  k->loops->name = k->name;
  b->choices.is_scheduled = true;
  return launch_whole(cx, b, k);
}

kiln_status kiln_build_set_search(kiln_ctx *cx, kiln_build *b, int *io_n) {
  const kiln_compile_options *asked = &b->request.model->options;
  const bool orchestrates =
      (asked->orchestrate || asked->orchestration) && !b->request.is_connected;
  const bool looks_up =
      asked->cache && !kiln_build_omits(b, "skip-masked") && asked->tune < 2 &&
      !kiln_model_asks_backends(b->request.model) && !b->request.wants_candidates &&
      !asked->no_connect && !b->request.is_trial &&
      !kiln_model_dumps(b->request.model, "orchestration"); // dumps are not in the cache
  (void)io_n;
  b->choices.past = KILN_NEW(&cx->perm, kiln_schedule_lookup);
  *b->choices.past = (kiln_schedule_lookup){
      .cx = cx,
      .machine = &b->request.machine,
      .n_threads = asked->threads,
      .orchestration = orchestrates && (!b->request.given_orchestration || b->choices.is_solved)
                           ? kiln_build_asks_to_solve(cx, b)
                           : b->request.given_orchestration};
  b->choices.tile =
      (kiln_tile_options){.search = {.machine = &b->request.machine,
                                     .n_threads = asked->threads,
                                     .n_lowered = asked->tune > 1 ? asked->tune : 1,
                                     .no_connect = asked->no_connect,
                                     .by_loops = orchestrates,
                                     .strict_masks = kiln_build_omits(b, "skip-masked")},
                          .weight_growth = asked->weight_growth,
                          .late_weights = b->request.may_be_late,
                          .orchestrate = orchestrates ? kiln_build_orchestrate : NULL,
                          .orchestrator = b,
                          .proposed = b->choices.proposed,
                          .look_up = looks_up ? kiln_schedule_lookup_find : NULL,
                          .user = b->choices.past};
  if (asked->weight_growth > 0) kiln_build_omit(b, "taps");
  return KILN_OK;
}

static void explain_rules(kiln_ctx *cx, kiln_kernels *k) {
  for (int i = 0; i < k->kernels.n; i++)
    k->kernels.data[i]->script = kiln_arena_printf(
        &cx->perm,
        "# by the rules: the definition has a contraction, which they tile for registers\n%s",
        k->kernels.data[i]->script);
}

kiln_status kiln_build_keep_search(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  if (!b->choices.past) return KILN_OK; // no search
  kiln_schedule_lookup_store(b->choices.past, b->request.model->path, &b->choices.kernels);
  if (b->choices.fusion >= 0) explain_rules(cx, &b->choices.kernels);
  return KILN_OK;
}

// The pass manager: runs the rows of the pass table, and verifies, times and prints the program
// after each.
#include "driver/pipeline.h"

#include <stdlib.h>
#include <string.h>

// --- names ---

static bool is_word(const char *word, const char *text, size_t n) {
  return word && strlen(word) == n && memcmp(word, text, n) == 0;
}

// The row of a pass by its present or earlier name text[0..n); -1: none.
static int find_pass(const char *text, size_t n) {
  for (int i = 0; kiln_passes[i].name; i++)
    if (is_word(kiln_passes[i].name, text, n) || is_word(kiln_passes[i].was, text, n)) return i;
  return -1;
}

static const char *names_of(kiln_ctx *cx, const kiln_rule *rules, bool only_optional) {
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  for (int i = 0; rules && rules[i].name; i++)
    kiln_text_printf(&text, "%s%s", text.n ? ", " : "", rules[i].name);
  for (int i = 0; kiln_passes[i].name; i++)
    if (kiln_passes[i].is_optional || !only_optional)
      kiln_text_printf(&text, "%s%s", text.n ? ", " : "", kiln_passes[i].name);
  return text.data;
}

kiln_status kiln_passes_find(kiln_ctx *cx, const kiln_rule *rules, const char *list,
                             uint32_t *io_rules, uint64_t *io_passes) {
  for (const char *at = list; at; at = *at == ',' ? at + 1 : NULL) {
    const size_t n = strcspn(at, ",");
    const int rule = kiln_rules_row(rules, at, n), pass = find_pass(at, n);
    if (rule >= 0) *io_rules |= 1U << rule;
    else if (pass >= 0 && kiln_passes[pass].is_optional) *io_passes |= UINT64_C(1) << pass;
    else
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "options",
                       "without: must be a rule or a pass that can be left out (%s), got '%.*s'",
                       names_of(cx, rules, true), (int)n, at);
    at += n;
  }
  return KILN_OK;
}

kiln_status kiln_passes_check(kiln_ctx *cx, const char *list) {
  for (const char *at = list; at && *at; at += *at == ',') {
    const size_t n = strcspn(at, ",");
    if (find_pass(at, n) < 0)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "options",
                       "dump after: must be a pass (%s), got '%.*s'", names_of(cx, NULL, false),
                       (int)n, at);
    at += n;
  }
  return KILN_OK;
}

kiln_status kiln_stop_parse(kiln_ctx *cx, const char *text, kiln_stop *out) {
  enum { MOST = 1 << 20 };
  char *end = NULL;
  *out = (kiln_stop){0};
  if (!text) return KILN_OK;
  const long n = strtol(text, &end, 10);
  const int pass = find_pass(text, strlen(text));
  const bool is_number = end != text && *end == 0 && n >= 0 && n <= MOST;
  if (!is_number && (pass < 0 || !kiln_passes[pass].is_optional))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "options",
                     "stop after: must be a number of steps, 0 to %d, or a pass that can be left "
                     "out (%s), got '%s'",
                     MOST, names_of(cx, NULL, true), text);
  *out = (kiln_stop){.is_set = true, .n_steps = is_number ? (int)n : MOST, .pass = -1};
  if (!is_number) out->pass = pass;
  return KILN_OK;
}

bool kiln_build_omits(const kiln_build *b, const char *pass) {
  return b->request.without >> find_pass(pass, strlen(pass)) & 1;
}

void kiln_build_omit(kiln_build *b, const char *pass) {
  b->request.without |= UINT64_C(1) << find_pass(pass, strlen(pass));
}

int kiln_build_count(const kiln_build *b, const char *pass) {
  return b->counts[find_pass(pass, strlen(pass))];
}

const kiln_pass_count *kiln_pipeline_counts(kiln_ctx *cx, const kiln_build *b) {
  KILN_VEC(kiln_pass_count) all = {0};
  const kiln_rewriting *r = &b->choices.rewriting;
  for (int i = 0; r->rules[i].name; i++) {
    const kiln_pass_count one = {r->rules[i].name, r->counts[i], true};
    KILN_VEC_PUSH(&cx->perm, &all, one);
  }
  for (int i = 0; kiln_passes[i].name; i++) {
    const kiln_pass_count one = {kiln_passes[i].name, b->counts[i], kiln_passes[i].is_optional};
    KILN_VEC_PUSH(&cx->perm, &all, one);
  }
  const kiln_pass_count end = {0};
  KILN_VEC_PUSH(&cx->perm, &all, end);
  return all.data;
}

// --- verification ---

static bool is_of_statements(const kiln_build *b, const kiln_pass *pass) {
  return pass->phase <= KILN_PHASE_CONNECT && b->choices.prog;
}

// The statements before a pass, to check that their ids do not change.
typedef struct numbering {
  int n;
  kiln_stmt **stmts;
} numbering;

static numbering number(kiln_ctx *cx, const kiln_build *b, const kiln_pass *pass) {
  numbering out = {0};
  if (!is_of_statements(b, pass) || pass->renumbers) return out;
  out.n = b->choices.prog->stmts.n;
  out.stmts = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, out.n);
  for (int i = 0; i < out.n; i++) out.stmts[i] = b->choices.prog->stmts.data[i];
  return out;
}

static bool keeps_numbers(const kiln_build *b, const numbering *before) {
  for (int i = 0; i < before->n; i++) {
    const kiln_stmt *s = i < b->choices.prog->stmts.n ? b->choices.prog->stmts.data[i] : NULL;
    if (s && s != before->stmts[i]) return false;
  }
  return before->n == 0 || before->n == b->choices.prog->stmts.n;
}

// Constants of Winograd weights may have no data yet.
static kiln_status verify_program(kiln_ctx *cx, const kiln_build *b) {
  kiln_bits *late = kiln_bits_make(&cx->scratch, b->choices.prog->tensors.n);
  for (int i = 0; i < b->choices.kernels.late.n; i++)
    kiln_bits_set(late, b->choices.kernels.late.data[i].tensor->id);
  return kiln_program_verify_without(cx, b->choices.prog, late);
}

static kiln_status verify(kiln_ctx *cx, const kiln_build *b, const kiln_pass *pass,
                          const numbering *before) {
  if (is_of_statements(b, pass)) {
    if (verify_program(cx, b) != KILN_OK)
      return KILN_FAIL(cx->diag, KILN_INTERNAL, pass->name,
                       "pass: must leave a program that is right");
    if (!keeps_numbers(b, before))
      return KILN_FAIL(cx->diag, KILN_INTERNAL, pass->name,
                       "pass: must leave statements their numbers");
  }
  if (pass->phase < KILN_PHASE_KERNELS ? !b->choices.is_scheduled
                                       : pass->phase > KILN_PHASE_LAUNCHES)
    return KILN_OK;
  for (int i = 0; i < b->choices.kernels.kernels.n; i++)
    KILN_TRY(kiln_loops_verify(cx, b->choices.kernels.kernels.data[i]->loops));
  return KILN_OK;
}

// --- dumps ---

static void print_kernels(kiln_ctx *cx, const kiln_build *b, kiln_text *out) {
  for (int i = 0; i < b->choices.kernels.kernels.n; i++) {
    kiln_loops_print(cx, b->choices.kernels.kernels.data[i]->loops, out);
    kiln_text_add(out, "\n");
  }
}

static void dump(kiln_ctx *cx, const kiln_build *b, const kiln_pass *pass) {
  const kiln_model *m = b->request.model;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_text text;
  if (!m->options.on_dump || !kiln_list_has(m->options.dump_after, pass->name)) return;
  kiln_text_init(&text, &cx->scratch);
  if (pass->phase == KILN_PHASE_PLAN || pass->phase == KILN_PHASE_MODULE)
    kiln_plan_print(&b->product.plan, &text);
  else if (pass->phase == KILN_PHASE_DEVICE) kiln_text_add(&text, b->product.device_loops.data);
  else if (b->choices.is_scheduled) print_kernels(cx, b, &text);
  else if (b->choices.prog) kiln_program_print(cx, b->choices.prog, &text);
  else if (m->prog) kiln_program_print(cx, m->prog, &text);
  else if (m->graph) kiln_graph_print(cx, m->graph, &text);
  kiln_model_dump(m, kiln_arena_printf(&cx->scratch, "after-%s", pass->name), &text);
  kiln_arena_rewind(&cx->scratch, mark);
}

// --- running ---

// Whether the number of steps of --stop-after is reached.
static bool is_over(const kiln_build *b) {
  return b->request.stop.is_set && (b->is_stopped || b->n_steps >= b->request.stop.n_steps);
}

static const kiln_pass *passes_of(const kiln_build *b) {
  return b->request.model ? b->request.model->passes : kiln_passes;
}

static bool does_run(const kiln_build *b, int row) {
  const kiln_pass *pass = &passes_of(b)[row];
  if (b->choices.is_scheduled && pass->phase <= KILN_PHASE_CONNECT) return false;
  if (pass->is_optional && (is_over(b) || b->request.without >> row & 1)) return false;
  return !pass->when || pass->when(b);
}

static kiln_status run_row(kiln_ctx *cx, kiln_build *b, int row) {
  const kiln_pass *pass = &passes_of(b)[row];
  const double start = kiln_now_ms();
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const numbering before = number(cx, b, pass);
  KILN_TRY(pass->run(cx, b, &b->counts[row]));
  KILN_TRY(verify(cx, b, pass, &before));
  kiln_arena_rewind(&cx->scratch, mark);
  if (pass->is_optional) {
    b->n_steps++;
    b->last = pass->name;
    b->last_text = pass->text;
    b->is_stopped |= b->request.stop.is_set && row == b->request.stop.pass;
  }
  if (!b->request.model || b->request.is_trial) return KILN_OK;
  kiln_model_time(b->request.model, pass->name, start);
  dump(cx, b, pass);
  return KILN_OK;
}

kiln_status kiln_pipeline_run(kiln_ctx *cx, kiln_build *b, kiln_phase first, kiln_phase last) {
  const kiln_pass *passes = passes_of(b);
  for (int i = 0; passes[i].name; i++)
    if (passes[i].phase >= first && passes[i].phase <= last && does_run(b, i))
      KILN_TRY(run_row(cx, b, i));
  return KILN_OK;
}

kiln_status kiln_pipeline_tile(kiln_ctx *cx, kiln_program *p, const kiln_machine *m,
                               const kiln_tile_options *options, const char *without,
                               kiln_kernels *out) {
  static const kiln_rule none[] = {{0}};
  kiln_build *b = KILN_NEW(&cx->perm, kiln_build);
  uint32_t rules = 0;
  *b = (kiln_build){.choices.prog = p, .request.machine = *m, .choices.tile = *options};
  b->choices.tile.search.machine = &b->request.machine;
  b->choices.tile.search.by_loops = options->orchestrate != NULL;
  if (b->choices.tile.search.n_lowered < 1) b->choices.tile.search.n_lowered = 1;
  if (without) KILN_TRY(kiln_passes_find(cx, none, without, &rules, &b->request.without));
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_TILE, KILN_PHASE_CONNECT));
  *out = b->choices.kernels;
  return KILN_OK;
}

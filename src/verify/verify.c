// Verification: every launch is run alone, on correct inputs, and compared with the reference
// interpreter.
//
// The interpreter computes all tensors of the scheduled program once, from random model inputs. So
// a launch gets correct inputs regardless of the launches before it (gather indices are in range,
// masks are masks), and a wrong result has one culprit. Small models are also interpreted as they
// were before scheduling, which checks the rewriting of statements.
#include "analysis/interpret.h"
#include "verify/reference.h"
#include "verify/compare.h"
#include "module/library_candidate.h"
#include "model/parts.h"
#include "module/compiler.h"
#include "verify/random.h"
#include "verify/reproduce.h"
#include "verify/loops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_FLOPS 2e10 // smaller models are interpreted before and after rewriting

typedef struct verifying {
  kiln_build build;
  kiln_verify_options options;
  kiln_kernel_fn *functions;
  kiln_module *module; // of a GPU, instead of functions
  kiln_interpreter *reference, *pristine, *rewritten;
  void **inputs; // [n_inputs] random data, malloc'ed
  int n_inputs;
  void **memory; // arguments of the current launch, malloc'ed
  uint64_t *memory_bytes;
  int n_memory;
  uint64_t random;
  bool *reproduced; // [kernels]
  int *last_use;    // [tensors] index of the last launch that needs it; outputs are kept
  size_t failed;
  kiln_model part; // of a model in parts: the current one
  int nth;         // its number; -1: there is one program
} verifying;

static void free_memory(verifying *v) {
  for (int i = 0; i < v->n_memory; i++) free(v->memory[i]);
  free(v->memory);
  free(v->memory_bytes);
  v->memory = NULL;
  v->memory_bytes = NULL;
  v->n_memory = 0;
}

static void deinit(verifying *v) {
  free_memory(v);
  kiln_interpreter_destroy(v->reference);
  kiln_interpreter_destroy(v->pristine);
  kiln_interpreter_destroy(v->rewritten);
  for (int i = 0; i < v->n_inputs; i++) free(v->inputs[i]);
  free(v->inputs);
  kiln_module_release(v->module);
  kiln_build_deinit(&v->build);
  v->reference = v->pristine = v->rewritten = NULL;
  v->inputs = NULL;
  v->n_inputs = 0;
  v->module = NULL;
}

static kiln_status no_memory(kiln_ctx *cx) {
  return KILN_FAIL(cx->diag, KILN_NO_MEMORY, "verify", "no memory left");
}

// --- random inputs ---

static kiln_status fill_inputs(kiln_ctx *cx, verifying *v) {
  const kiln_program *p = v->build.choices.prog;
  v->inputs = calloc((size_t)p->inputs.n + 1, sizeof *v->inputs);
  if (!v->inputs) return no_memory(cx);
  for (int i = 0; i < p->inputs.n; i++) {
    const kiln_tensor *t = p->tensors.data[p->inputs.data[i]];
    const int64_t n = kiln_tensor_elems(t);
    void *data =
        aligned_alloc(64, ((size_t)n * (size_t)kiln_dtype_bytes(t->dtype) + 127) / 64 * 64);
    if (!data) return no_memory(cx);
    v->inputs[v->n_inputs++] = data;
    kiln_random_fill(cx, p, t->id, &v->random, data);
  }
  return KILN_OK;
}

static kiln_status start(kiln_ctx *cx, verifying *v, const kiln_program *p,
                         kiln_interpreter **out) {
  KILN_TRY(kiln_interpreter_create(cx, p, out));
  for (int i = 0; i < p->inputs.n; i++)
    kiln_interpreter_bind(*out, p->inputs.data[i], v->inputs[i]);
  return KILN_OK;
}

// --- one launch ---

static bool writes(const kiln_launch *l, const kiln_tensor *t) {
  for (int i = 0; i < l->n_stmts; i++)
    if (l->stmts[i] == t->def) return true;
  return false;
}

// Allocates memory for an argument. Outputs are filled with ones before: NaN, or integers that are
// large.
static kiln_status add_memory(kiln_ctx *cx, verifying *v, uint64_t bytes, int fill, char **out) {
  void *data = aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (!data) return no_memory(cx);
  memset(data, fill, bytes);
  v->memory_bytes[v->n_memory] = bytes;
  v->memory[v->n_memory++] = data;
  *out = data;
  return KILN_OK;
}

static kiln_status tensor_memory(kiln_ctx *cx, verifying *v, const kiln_launch *l,
                                 const kiln_tensor *t, char **out) {
  int64_t strides[KILN_MAX_RANK];
  const void *data = NULL;
  kiln_tensor_strides(t, strides);
  KILN_TRY(add_memory(cx, v, kiln_storage_bytes(t), 0xff, out));
  if (writes(l, t)) return KILN_OK;
  KILN_TRY(kiln_interpreter_compute(v->reference, t->id, &data));
  kiln_strided_put(t, data, strides, *out);
  return KILN_OK;
}

static kiln_status argument_memory(kiln_ctx *cx, verifying *v, const kiln_launch *l,
                                   const kiln_tensor *t, const kiln_buffer *b, char **out) {
  const kiln_kernel *k = v->build.choices.kernels.kernels.data[l->kernel];
  const uint64_t bytes = (uint64_t)kiln_buffer_elems(b) * (uint64_t)kiln_dtype_bytes(b->dtype);
  if (!t) return add_memory(cx, v, bytes, 0xff, out);
  if (t->role != KILN_CONST) return tensor_memory(cx, v, l, t, out);
  kiln_weight w = {.tensor = t, .buffer = b, .pack = b->pack, .bytes = bytes};
  if (!w.pack && !kiln_weight_is_rounded(&w)) w.bytes = t->bytes;
  if (w.pack) w.view = k->prog->tensors.data[b->pack->source];
  KILN_TRY(add_memory(cx, v, w.bytes, 0, out));
  return kiln_weight_fill(cx, &w, *out);
}

static kiln_status make_args(kiln_ctx *cx, verifying *v, const kiln_launch *l, char **args) {
  const kiln_loops *loops = v->build.choices.kernels.kernels.data[l->kernel]->loops;
  int n = 0, param = 0;
  v->memory = calloc((size_t)loops->buffers.n + 1, sizeof *v->memory);
  v->memory_bytes = calloc((size_t)loops->buffers.n + 1, sizeof *v->memory_bytes);
  if (!v->memory || !v->memory_bytes) return no_memory(cx);
  for (int i = 0; i < loops->buffers.n; i++) {
    const kiln_buffer *b = loops->buffers.data[i];
    if (!b || !kiln_scope_is_argument(b->scope)) continue;
    const kiln_argument *a = b->scope == KILN_SCOPE_PARAM ? &l->args[param++] : NULL;
    const kiln_tensor *t = a ? v->build.choices.prog->tensors.data[a->tensor] : NULL;
    KILN_TRY(argument_memory(cx, v, l, t, b, &args[n]));
    if (a) args[n] += a->offset * kiln_dtype_bytes(t->dtype);
    n++;
  }
  return KILN_OK;
}

// Whether results are judged by error bounds.
static bool judges(const verifying *v) { return v->options.rtol == 0 && v->options.atol == 0; }

// The launch's operands count as exact; results that alternatives could compute differently get
// error bounds.
static void begin_errors(verifying *v, const kiln_launch *l) {
  kiln_interpreter_assume_exact(v->reference);
  for (int i = 0; i < l->n_stmts; i++)
    kiln_interpreter_bind(v->reference, v->build.choices.prog->stmts.data[l->stmts[i]]->out, NULL);
}

// Runs parallel loops in two parts, as two threads would.
static kiln_status run_nests(kiln_ctx *cx, verifying *v, const kiln_launch *l, char *const *args) {
  if (v->module) { // on a device
    const uint32_t launch = (uint32_t)(l - v->build.choices.kernels.launches.data);
    return kiln_gpu_try_launch(v->module, launch, v->memory_bytes, args, cx->diag);
  }
  const kiln_kernel *k = v->build.choices.kernels.kernels.data[l->kernel];
  const kiln_loops *loops = k->loops;
  const int n = kiln_kernel_nests(loops);
  if (v->options.simulate)
    return kiln_loops_simulate(cx, &v->build.request.machine, k->loops, (void *const *)args, 0,
                               NULL, NULL);
  if (k->by_library) return kiln_library_candidate_run(cx, k->by_library, k->prog, args);
  for (int j = 0; j < n; j++) {
    const kiln_kernel_fn run = v->functions[v->build.product.first_function[l->kernel] + j];
    const int64_t extent = kiln_nest_extent(loops, j);
    if (extent > 1) run(args, 0, extent / 2);
    run(args, extent > 1 ? extent / 2 : 0, extent);
  }
  return KILN_OK;
}

static bool reads_floats(const verifying *v, const kiln_launch *l) {
  for (int i = 0; i < l->n_args; i++) {
    const kiln_tensor *t = v->build.choices.prog->tensors.data[l->args[i].tensor];
    if (!writes(l, t) && kiln_dtype_is_float(t->dtype)) return true;
  }
  return false;
}

static void report(verifying *v, const char *kernel, const char *nodes, const kiln_difference *d) {
  char named[512];
  if (v->nth >= 0) snprintf(named, sizeof named, "part %d: %s", v->nth, kernel);
  const kiln_verify_result result = {.kernel = v->nth >= 0 ? named : kernel,
                                     .nodes = nodes,
                                     .rel_l2 = d->want_square > 0 ? sqrt(d->square / d->want_square)
                                                                  : sqrt(d->square),
                                     .max_abs = d->max_abs,
                                     .passed = d->wrong == 0};
  v->failed += d->wrong != 0;
  if (v->options.on_result) v->options.on_result(v->options.user, &result);
}

// --- halves ---

static double half_step(kiln_dtype t) {
  return t == KILN_F16 ? 1.0 / 2048 : t == KILN_BF16 ? 1.0 / 256 : 0;
}

// Intermediate roundings to halves may be removed by rewriting: such results may differ in every
// element, and are judged by their l2 norm.
static void judge_halves(const kiln_tensor *t, kiln_difference *d) {
  const double most = 4 * half_step(t->dtype);
  if (d->not_finite == 0 && sqrt(d->square) <= most * sqrt(d->want_square)) d->wrong = 0;
}

typedef struct reading {
  const kiln_program *p;
  const kiln_launch *l;
  bool rounds;
} reading;

static void read_half(const kiln_expr *e, void *argument) {
  reading *r = argument;
  if (kiln_dtype_is_half(e->dtype))
    r->rounds |= e->kind == KILN_EXPR_CAST ||
                 (e->kind == KILN_EXPR_LOAD && writes(r->l, r->p->tensors.data[e->u.tensor]));
}

// Whether the launch reads halves that it computes itself: these may differ from the reference by
// one ULP if sums are ordered differently.
static bool rounds_on_its_way(kiln_ctx *cx, const verifying *v, const kiln_launch *l) {
  reading r = {v->build.choices.prog, l, false};
  for (int i = 0; i < l->n_stmts; i++) {
    const kiln_expr *body = r.p->stmts.data[l->stmts[i]]->body;
    for (int k = 0; k < body->n_args; k++) kiln_expr_visit(cx, body->args[k], read_half, &r);
  }
  return r.rounds;
}

// Judges results of such a launch: by the l2 norm, and no element may be off by much more than that
// relative to typical elements.
static void judge_rounded(const kiln_tensor *t, kiln_difference *d) {
  const double most = 16 * half_step(t->dtype), n = (double)kiln_tensor_elems(t);
  if (d->max_abs * sqrt(n) <= most * sqrt(d->want_square)) judge_halves(t, d);
}

static void add_difference(kiln_difference *sum, const kiln_difference *d) {
  sum->square += d->square;
  sum->want_square += d->want_square;
  sum->wrong += d->wrong;
  sum->max_abs = fmax(sum->max_abs, d->max_abs);
}

// --- its results ---

static kiln_status compare_launch(kiln_ctx *cx, verifying *v, const kiln_launch *l,
                                  char *const *args) {
  const kiln_kernel *k = v->build.choices.kernels.kernels.data[l->kernel];
  const bool rounded = reads_floats(v, l), on_its_way = rounds_on_its_way(cx, v, l);
  kiln_difference d = {0};
  int param = 0, n = 0;
  for (int i = 0; i < k->loops->buffers.n; i++) {
    const kiln_buffer *b = k->loops->buffers.data[i];
    if (!b || !kiln_scope_is_argument(b->scope)) continue;
    const char *got = args[n++];
    if (b->scope != KILN_SCOPE_PARAM) continue;
    const kiln_tensor *t = v->build.choices.prog->tensors.data[l->args[param++].tensor];
    int64_t strides[KILN_MAX_RANK];
    const void *want = NULL;
    if (t->role == KILN_CONST || !writes(l, t)) continue;
    kiln_tensor_strides(t, strides);
    KILN_TRY(kiln_interpreter_compute(v->reference, t->id, &want));
    kiln_difference one = {0};
    if (judges(v)) kiln_judge(v->reference, t, got, strides, want, &one);
    else kiln_compare(t, got, strides, want, v->options.rtol, v->options.atol, rounded, &one);
    if (one.wrong && on_its_way && !judges(v)) judge_rounded(t, &one);
    add_difference(&d, &one);
  }
  report(v, kiln_symbol_text(cx, k->name), kiln_symbol_text(cx, l->origin), &d);
  if (d.wrong == 0 || !v->options.reproducer_dir || v->reproduced[l->kernel]) return KILN_OK;
  v->reproduced[l->kernel] = true;
  const kiln_reproducer r = {
      v->options.reproducer_dir, v->build.choices.prog, k, l, args, v->reference};
  return kiln_reproducer_write(cx, &r);
}

static kiln_status verify_launch(kiln_ctx *cx, verifying *v, const kiln_launch *l) {
  const kiln_loops *loops = v->build.choices.kernels.kernels.data[l->kernel]->loops;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  char **args = KILN_NEW_ARRAY(&cx->scratch, char *, loops->buffers.n);
  KILN_TRY(make_args(cx, v, l, args));
  KILN_TRY(run_nests(cx, v, l, args));
  if (judges(v)) begin_errors(v, l);
  KILN_TRY(compare_launch(cx, v, l, args));
  free_memory(v);
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

// --- the whole ---

typedef struct using_loads {
  int *last_use, launch;
} using_loads;

static void use_load(const kiln_expr *e, void *argument) {
  const using_loads *u = argument;
  if (e->kind == KILN_EXPR_LOAD) u->last_use[e->u.tensor] = u->launch;
}

static void find_last_uses(kiln_ctx *cx, verifying *v) {
  const kiln_program *p = v->build.choices.prog;
  const kiln_kernels *k = &v->build.choices.kernels;
  v->last_use = KILN_NEW_ARRAY(&cx->perm, int, p->tensors.n);
  for (int i = 0; i < k->launches.n; i++) {
    const kiln_launch *l = &k->launches.data[i];
    using_loads u = {v->last_use, i};
    for (int a = 0; a < l->n_args; a++) v->last_use[l->args[a].tensor] = i;
    for (int j = 0; j < l->n_stmts; j++) {
      const kiln_stmt *s = p->stmts.data[l->stmts[j]];
      v->last_use[s->out] = i;
      kiln_expr_visit(cx, s->body, use_load, &u);
    }
  }
  for (int i = 0; i < p->outputs.n; i++) v->last_use[p->outputs.data[i]] = k->launches.n;
}

// Frees tensors that no later launch needs; they would be recomputed on demand.
static void drop_tensors(verifying *v, int launch) {
  const kiln_program *p = v->build.choices.prog;
  for (int t = 0; t < p->tensors.n; t++)
    if (v->last_use[t] == launch && p->tensors.data[t]->def >= 0)
      kiln_interpreter_bind(v->reference, t, NULL);
}

// Compares the outputs of |after|, computed by |in|, with those of the original program.
static kiln_status compare_outputs(kiln_ctx *cx, verifying *v, const kiln_program *after,
                                   kiln_interpreter *in, kiln_difference *out) {
  const kiln_program *before = NULL;
  *out = (kiln_difference){0};
  KILN_TRY(kiln_model_meaning(cx, v->build.request.model, &before));
  for (int i = 0; i < before->outputs.n; i++) {
    const kiln_tensor *t = before->tensors.data[before->outputs.data[i]];
    const kiln_tensor *dense = kiln_tensor_make(cx, kiln_program_make(cx, "dense"), "t", t->dtype,
                                                KILN_TEMP, t->rank, t->shape);
    int64_t strides[KILN_MAX_RANK];
    const void *want = NULL, *got = NULL;
    kiln_tensor_strides(dense, strides);
    KILN_TRY(kiln_interpreter_compute(v->pristine, t->id, &want));
    KILN_TRY(kiln_interpreter_compute(in, after->outputs.data[i], &got));
    kiln_difference one = {0};
    if (judges(v)) {
      kiln_judge(v->pristine, t, got, strides, want, &one);
    } else {
      kiln_compare(t, got, strides, want, v->options.rtol, v->options.atol, true, &one);
      judge_halves(t, &one);
    }
    add_difference(out, &one);
  }
  return KILN_OK;
}

// Computes the program after the first |n| steps of rules and optional passes.
static kiln_status try_steps(kiln_ctx *cx, verifying *v, int n, kiln_build *t,
                             kiln_difference *out) {
  const kiln_build *b = &v->build;
  *t = (kiln_build){.request.model = b->request.model,
                    .request.machine = b->request.machine,
                    .choices.prog = kiln_program_copy(cx, b->request.model->prog),
                    .choices.with_rules = b->choices.with_rules,
                    .choices.rewriting = {.rules = b->choices.rewriting.rules,
                                          .without = b->choices.rewriting.without,
                                          .on_gpu = b->choices.rewriting.on_gpu},
                    .request.without = b->request.without,
                    .request.stop = {.is_set = true, .n_steps = n, .pass = -1},
                    .request.is_trial = true,
                    .choices.fusion = -1};
  KILN_TRY(t->request.model->compiler->rewrite(cx, t));
  KILN_TRY(start(cx, v, t->choices.prog, &v->rewritten));
  KILN_TRY(kiln_interpreter_run(v->rewritten));
  return compare_outputs(cx, v, t->choices.prog, v->rewritten, out);
}

// Finds and reports the first step that changes the results.
static kiln_status find_wrong_step(kiln_ctx *cx, verifying *v) {
  for (int n = 1; n <= v->build.n_steps; n++) {
    kiln_build t;
    kiln_difference d;
    const kiln_status st = try_steps(cx, v, n, &t, &d);
    kiln_interpreter_destroy(v->rewritten);
    v->rewritten = NULL;
    KILN_TRY(st);
    if (d.wrong == 0) continue;
    report(v, kiln_arena_printf(&cx->perm, "(%s, step %d)", t.last, n), t.last_text, &d);
    return KILN_OK;
  }
  return KILN_OK;
}

static kiln_status verify_rewrites(kiln_ctx *cx, verifying *v) {
  const kiln_program *before = NULL;
  kiln_difference d;
  KILN_TRY(kiln_model_meaning(cx, v->build.request.model, &before));
  KILN_TRY(start(cx, v, before, &v->pristine));
  if (judges(v)) kiln_interpreter_track(v->pristine, kiln_launch_freedoms(v->build.request.model));
  KILN_TRY(kiln_interpreter_run(v->pristine));
  KILN_TRY(compare_outputs(cx, v, v->build.choices.prog, v->reference, &d));
  report(v, "(rewrites)", "the program after scheduling against the one before", &d);
  return d.wrong ? find_wrong_step(cx, v) : KILN_OK;
}

static kiln_status build(kiln_ctx *cx, verifying *v) {
  kiln_build *b = &v->build;
  // Loops from the schedule cache have only names of instructions.
  b->request.wants_candidates = v->options.simulate;
  if (v->options.simulate) return b->request.model->compiler->kernels(cx, b);
  KILN_TRY(b->request.model->compiler->run(cx, b));
  KILN_TRY(kiln_build_jit(cx, b, &v->functions));
  return b->request.machine.target->has_images ? kiln_build_module(cx, b, NULL, &v->module)
                                               : KILN_OK;
}

static kiln_status verify(kiln_ctx *cx, void *argument) {
  verifying *v = argument;
  kiln_build *b = &v->build;
  double flops = 0;
  KILN_TRY(build(cx, v));
  v->reproduced = KILN_NEW_ARRAY(&cx->perm, bool, b->choices.kernels.kernels.n);
  KILN_TRY(fill_inputs(cx, v));
  KILN_TRY(start(cx, v, b->choices.prog, &v->reference));
  if (judges(v)) kiln_interpreter_track(v->reference, kiln_launch_freedoms(b->request.model));
  find_last_uses(cx, v);
  const size_t n = (size_t)b->choices.kernels.launches.n;
  for (size_t i = 0; i < n; i++) {
    const kiln_launch *l = &b->choices.kernels.launches.data[i];
    flops += b->choices.kernels.kernels.data[l->kernel]->flops;
    kiln_model_progress(b->request.model, "verify", i, n);
    KILN_TRY(verify_launch(cx, v, l));
    drop_tensors(v, (int)i);
  }
  kiln_model_progress(b->request.model, "verify", n, n);
  return flops <= WHOLE_FLOPS ? verify_rewrites(cx, v) : KILN_OK;
}

// Verifies each part of a model with loops that are kept, on inputs of its own, so that branches
// and iterations are reached that a run need not reach.
static kiln_status verify_parts(kiln_ctx *cx, void *argument) {
  verifying *v = argument;
  kiln_model *m = v->build.request.model;
  const int n = m->parted ? (int)m->parted->flow.n_parts : 0;
  if (!m->parted) return verify(cx, v);
  for (v->nth = 0; v->nth < n; v->nth++) {
    deinit(v);
    v->part = kiln_parts_model(cx, m, v->nth);
    v->build = (kiln_build){.request.model = &v->part};
    KILN_TRY(verify(cx, v));
  }
  return KILN_OK;
}

kiln_status kiln_model_verify(kiln_model *model, const kiln_verify_options *options,
                              kiln_diag *diag, size_t *out_failed) {
  verifying v = {.build = {.request.model = model}, .nth = -1};
  KILN_TRY(kiln_argument_check(diag, __func__, "out_failed", out_failed));
  *out_failed = 0;
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  if (options) {
    const size_t known = sizeof v.options;
    memcpy(&v.options, options, options->struct_size < known ? options->struct_size : known);
  }
  v.options.rtol = fmax(v.options.rtol, 0);
  v.options.atol = fmax(v.options.atol, 0);
  v.random = v.options.seed;
  kiln_status st = kiln_model_enter(model, diag, verify_parts, &v);
  *out_failed = v.failed;
  deinit(&v);
  return st;
}

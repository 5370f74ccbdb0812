// The command `kiln explain`: the compiler's decisions, from kernels, candidates and fusion
// decisions.
#include "explain/explain.h"
#include "explain/detail.h"
#include "model/flow_text.h"
#include "model/parts.h"
#include "module/compiler.h"
#include "tune/kernel_times.h"

#include "orchestrate/orchestrate.h"
#include "analysis/reuse.h"
#include "target/instr.h"
#include "target/sim/sim.h"
#include "price/traffic.h"

#include <limits.h>
#include <math.h>
#include <string.h>

typedef struct explaining {
  kiln_ctx *cx;
  kiln_build *b;
  const int *launch_of;      // [stmts]
  const int *beside;         // [launches] index of the horizontally fused launch
  const double *measured_us; // [kernels] of a launch; NULL: not measured
  int n_rivals;              // alternatives reported for each kernel
  bool counts;               // measure traffic in the simulator
} explaining;

// The memory traffic of a kernel's loops, by analysis.
typedef struct flows {
  bool is_known; // false: the loops cannot be analyzed, or do not run in order
  kiln_sim_level caches[KILN_SIM_CACHES];
  kiln_reuse_flow all[KILN_SIM_CACHES], *by_buffer; // [buffers][KILN_SIM_CACHES]
} flows;

static const char *name_of(const explaining *x, const kiln_program *p, int tensor) {
  return kiln_symbol_text(x->cx, p->tensors.data[tensor]->name);
}

static const char *dims_text(kiln_ctx *cx, int rank, const int64_t *extents) {
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  kiln_text_add(&t, "(");
  for (int k = 0; k < rank; k++) kiln_text_printf(&t, "%s%" PRId64, k ? ", " : "", extents[k]);
  kiln_text_add(&t, ")");
  return t.data;
}

static const char *shape_text(kiln_ctx *cx, const kiln_tensor *t) {
  int64_t shape[KILN_MAX_RANK];
  return kiln_tensor_static_shape(t, shape) ? dims_text(cx, t->rank, shape) : "(?)";
}

// --- edges ---

// Whether iterations run sequentially on a core, so that the cache analysis of the loops applies.
static bool runs_in_order(const explaining *x) { return !x->b->request.machine.target->has_grids; }

static const char *readers_text(const explaining *x, const kiln_program *p, int tensor) {
  kiln_text t;
  kiln_text_init(&t, &x->cx->perm);
  const kiln_users users = kiln_users_make(x->cx, &x->cx->scratch, p);
  for (int u = users.first[tensor]; u < users.first[tensor + 1]; u++)
    kiln_text_printf(&t, "%s%s", t.n ? ", " : "",
                     name_of(x, p, p->stmts.data[users.users[u]]->out));
  return t.data ? t.data : "memory";
}

// The tile of a tensor that a block reads, from the tile graph; all of it if it is read whole.
static const char *read_box(const explaining *x, const kiln_tile_graph *g, int tensor) {
  for (int i = 0; i < g->n_edges; i++) {
    const kiln_tile_edge *e = &g->edges[i];
    int64_t extents[KILN_MAX_RANK];
    if (e->tensor != tensor) continue;
    const int rank = g->p->tensors.data[tensor]->rank;
    for (int k = 0; k < rank; k++) extents[k] = e->box[KILN_TILE_WHOLE][k].extent;
    return dims_text(x->cx, rank, extents);
  }
  return NULL;
}

static const char *buffer_box(const explaining *x, const kiln_kernel *k, int tensor) {
  const kiln_buffer *at = kiln_explain_buffer(k, tensor);
  if (!at && k->by_library) return NULL;
  return at ? dims_text(x->cx, at->rank, at->extents) : "one element, where it is read";
}

static const int64_t *largest_tile(const kiln_tiling *t, int rank) {
  for (int k = 0; k < rank; k++)
    if (t->block[k] > 0) return t->block;
  return t->tile;
}

static const kiln_tile_candidate *taken_candidate(const kiln_kernel *k) {
  for (int i = 0; i < k->candidates.n; i++)
    if (k->candidates.data[i].loops == k->loops) return &k->candidates.data[i];
  return NULL;
}

static kiln_tile_graph *make_graph(const explaining *x, const kiln_kernel *k) {
  const kiln_tile_candidate *c = taken_candidate(k);
  kiln_tile_graph *g = kiln_tile_graph_make(x->cx, k->prog);
  const int64_t whole[KILN_MAX_RANK] = {0};
  kiln_tile_connect_all(g, 1);
  kiln_tile_propagate(g, c ? largest_tile(&c->tiling, KILN_MAX_RANK) : whole, NULL, NULL);
  return g;
}

// The destination of a result: memory, and the level at which it is reused.
static const char *result_text(const explaining *x, const kiln_program *p, int tensor) {
  const char *readers = readers_text(x, p, tensor);
  if (!*readers) return "memory";
  return kiln_arena_printf(&x->cx->perm, "%s, memory: reused and stored", readers);
}

// The level behind boundary |i|, counted from the fastest cache.
static const char *behind(const flows *f, int i) {
  return i + 1 < KILN_SIM_CACHES ? f->caches[i + 1].name : "memory";
}

static void add_moved(const explaining *x, const kiln_kernel *k, const flows *f, int tensor,
                      kiln_explained_edge *out) {
  const kiln_buffer *b = f->is_known ? kiln_explain_buffer(k, tensor) : NULL;
  for (int i = KILN_SIM_CACHES - 1; b && i >= 0; i--) {
    const kiln_reuse_flow *one = &f->by_buffer[b->id * KILN_SIM_CACHES + i];
    if (one->read_bytes + one->written_bytes <= 0) continue;
    KILN_VEC_PUSH(&x->cx->perm, &out->moved,
                  (kiln_explained_traffic){behind(f, i), one->read_bytes, one->written_bytes});
  }
}

static double bytes_of(const kiln_tensor *t) {
  const int64_t n = kiln_tensor_elems(t);
  return n < 0 ? 0 : (double)n * kiln_dtype_bytes(t->dtype);
}

static void add_edges(const explaining *x, const kiln_kernel *k, const kiln_launch *l,
                      const flows *f, kiln_explained_kernel *out) {
  const kiln_program *p = k->prog;
  const kiln_tile_graph *g = make_graph(x, k);
  int param = 0;
  for (int i = 0; i < p->tensors.n; i++) {
    const kiln_tensor *t = p->tensors.data[i], *main = t;
    const bool is_inside = t->role == KILN_TEMP;
    if (!is_inside && param < l->n_args)
      main = x->b->choices.prog->tensors.data[l->args[param++].tensor];
    kiln_explained_edge e = {.tensor = kiln_symbol_text(x->cx, main->name),
                             .dtype = kiln_dtype_text(main->dtype),
                             .shape = shape_text(x->cx, main),
                             .bytes = bytes_of(main),
                             .level = kiln_explain_level(x->b, k, i)};
    e.from = t->def >= 0 ? name_of(x, p, i) : main->role == KILN_CONST ? "constant" : "memory";
    e.to = t->def >= 0 && !is_inside ? result_text(x, p, i) : readers_text(x, p, i);
    e.box = is_inside ? buffer_box(x, k, i) : t->def >= 0 ? NULL : read_box(x, g, i);
    add_moved(x, k, f, i, &e);
    KILN_VEC_PUSH(&x->cx->perm, &out->edges, e);
  }
}

// --- candidates ---

static void print_extents(const explaining *x, const kiln_stmt *root, const char *what,
                          const int64_t *extents, kiln_text *t) {
  bool any = false;
  for (int k = 0; k < root->n_space; k++) {
    if (extents[k] <= 0) continue;
    if (!any) kiln_text_printf(t, "%s%s", t->n ? "; " : "", what);
    kiln_text_printf(t, " %s:%" PRId64, kiln_symbol_text(x->cx, root->dims[k].name), extents[k]);
    any = true;
  }
}

static const char *tiles_text(const explaining *x, const kiln_program *p, const kiln_tiling *t) {
  const kiln_stmt *root = p->stmts.data[p->stmts.n - 1];
  kiln_text text;
  bool any = false;
  kiln_text_init(&text, &x->cx->perm);
  print_extents(x, root, "block", t->block, &text);
  print_extents(x, root, "registers", t->tile, &text);
  for (int i = 0; i < p->stmts.n && i < KILN_MAX_MEMBERS; i++) {
    if (t->step[i] <= 0) continue;
    if (!any) kiln_text_printf(&text, "%ssteps", text.n ? "; " : "");
    kiln_text_printf(&text, " %s:%" PRId64, name_of(x, p, p->stmts.data[i]->out), t->step[i]);
    any = true;
  }
  if (t->form) kiln_text_printf(&text, "%s%s", text.n ? "; " : "", t->form);
  return text.n ? text.data : "whole";
}

static kiln_explained_candidate explain_candidate(const explaining *x, const kiln_program *p,
                                                  const kiln_tile_candidate *c) {
  return (kiln_explained_candidate){
      c->from->name, c->by_library ? c->by_library->call : tiles_text(x, p, &c->tiling),
      isfinite(c->cost.ns) ? c->cost.ns / 1e3 : 0, c->refused};
}

static void find_bound(const kiln_tile_cost *c, kiln_explained_kernel *out) {
  double most = c->compute_ns;
  out->bound = "compute";
  for (int i = 0; i < out->costed.n; i++)
    if (out->costed.data[i].us * 1e3 > most) {
      most = out->costed.data[i].us * 1e3;
      out->bound = out->costed.data[i].level;
    }
  if (c->launch_ns > most) out->bound = "launch";
}

static void add_cost(const explaining *x, const kiln_tile_cost *c, kiln_explained_kernel *out) {
  const kiln_device *d = x->b->request.machine.device;
  out->compute_us = c->compute_ns / 1e3;
  out->launch_us = c->launch_ns / 1e3;
  out->tail = c->tail;
  out->tiles = c->tiles;
  for (int l = 0; d && l + 1 < d->n_levels; l++) {
    const kiln_explained_level one = {d->levels[l].name, c->bytes[l], c->level_ns[l] / 1e3};
    if (c->bytes[l] > 0 && c->level_ns[l] > 0) KILN_VEC_PUSH(&x->cx->perm, &out->costed, one);
  }
  // A template may give only the total.
  const bool has_parts = c->compute_ns > 0 || out->costed.n > 0;
  if (c->ns > 0 && isfinite(c->ns) && has_parts) find_bound(c, out);
}

// Whether |l| has a data-dependent branch, whose frequency is unknown: for example the direct
// convolution after Winograd's, for tiles that violate the error bound.
static bool branches_on_data(const kiln_loop *l) {
  for (; l; l = l->next)
    if ((l->kind == KILN_LOOP_IF && kiln_expr_has_load(l->cond)) || branches_on_data(l->body))
      return true;
  return false;
}

// The cost of the lowered loops; the template's cost if the loops do not tell it, and on a GPU,
// whose blocks do not run sequentially.
static kiln_tile_cost loops_cost(const explaining *x, const kiln_kernel *k,
                                 const kiln_tile_candidate *taken) {
  kiln_tile_cost by_loops = taken->cost;
  kiln_diag *outer = x->cx->diag;
  x->cx->diag = NULL;
  const kiln_status st =
      x->b->request.machine.device && runs_in_order(x) && !branches_on_data(k->loops->body)
          ? kiln_traffic_price(x->cx, &x->b->request.machine, x->b->request.model->options.threads,
                               k->loops, &by_loops)
          : KILN_BAD_INPUT;
  x->cx->diag = outer;
  return st == KILN_OK ? by_loops : taken->cost;
}

static void add_candidates(const explaining *x, const kiln_kernel *k, kiln_explained_kernel *out) {
  const kiln_tile_candidate *taken = taken_candidate(k);
  if (!taken) return;
  out->taken = explain_candidate(x, k->prog, taken);
  out->n_candidates = k->candidates.n;
  const kiln_tile_cost cost = loops_cost(x, k, taken);
  if (!k->by_library) add_cost(x, &cost, out);
  out->predicted_us = isfinite(cost.ns) && !k->by_library ? cost.ns / 1e3 : 0;
  for (int i = 0; i < k->candidates.n && out->rivals.n < x->n_rivals; i++) {
    const kiln_tile_candidate *c = &k->candidates.data[i];
    if (c != taken) KILN_VEC_PUSH(&x->cx->perm, &out->rivals, explain_candidate(x, k->prog, c));
  }
}

// --- traffic ---

// The minimal traffic of a kernel: everything it reads and stores, once.
static void add_least_traffic(const explaining *x, const kiln_kernel *k,
                              kiln_explained_kernel *out) {
  kiln_explained_traffic least = {.level = "memory, at least"};
  for (int i = 0; i < k->loops->buffers.n; i++) {
    const kiln_buffer *b = k->loops->buffers.data[i];
    if (b->scope != KILN_SCOPE_PARAM) continue;
    const bool is_stored = b->tensor >= 0 && k->prog->tensors.data[b->tensor]->def >= 0;
    *(is_stored ? &least.written_bytes : &least.read_bytes) +=
        (double)kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype);
  }
  KILN_VEC_PUSH(&x->cx->perm, &out->traffic, least);
}

// Bytes that blocks read from each level, if a template gives these without times.
static void add_read_of_levels(const explaining *x, const kiln_kernel *k,
                               kiln_explained_kernel *out) {
  const kiln_tile_candidate *taken = taken_candidate(k);
  const kiln_device *d = x->b->request.machine.device;
  for (int l = 1; taken && d && l < d->n_levels; l++) {
    const kiln_explained_traffic one = {d->levels[l].name, taken->cost.bytes[l], 0};
    if (one.read_bytes > 0 && !(taken->cost.level_ns[l] > 0))
      KILN_VEC_PUSH(&x->cx->perm, &out->traffic, one);
  }
}

static void find_flows(const explaining *x, const kiln_kernel *k, flows *out) {
  kiln_reuse_level levels[KILN_SIM_CACHES];
  kiln_diag *outer = x->cx->diag;
  *out = (flows){0};
  if (k->by_library || !runs_in_order(x)) return;
  kiln_sim_caches(&x->b->request.machine, out->caches);
  for (int i = 0; i < KILN_SIM_CACHES; i++) {
    const kiln_sim_level *c = &out->caches[i];
    levels[i] =
        (kiln_reuse_level){(double)c->capacity_bytes, (int)c->line_bytes, c->stores_fetch, c->ways};
  }
  const kiln_loops *l = kiln_instrs_expand(x->cx, k->loops);
  out->by_buffer =
      KILN_NEW_ARRAY(&x->cx->perm, kiln_reuse_flow, l->buffers.n * KILN_SIM_CACHES + 1);
  x->cx->diag = NULL;
  out->is_known =
      kiln_reuse_predict(x->cx, l, KILN_SIM_CACHES, levels, out->all, out->by_buffer) == KILN_OK;
  x->cx->diag = outer;
}

// Loops that cannot be analyzed have no traffic.
static void add_traffic(const explaining *x, const kiln_kernel *k, const flows *f,
                        kiln_explained_kernel *out) {
  if (k->by_library) return; // unknown for libraries
  if (!runs_in_order(x)) {
    add_least_traffic(x, k, out);
    add_read_of_levels(x, k, out);
    return;
  }
  for (int i = KILN_SIM_CACHES - 1; i >= 0 && f->is_known; i--)
    KILN_VEC_PUSH(
        &x->cx->perm, &out->traffic,
        (kiln_explained_traffic){behind(f, i), f->all[i].read_bytes, f->all[i].written_bytes});
}

// Memory for arguments that determine indices; the simulator needs no others.
static void **make_integers(const explaining *x, const kiln_loops *l) {
  enum { ALIGN = 64 };
  void **args = KILN_NEW_ARRAY(&x->cx->scratch, void *, l->buffers.n);
  int n = 0;
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (!kiln_scope_is_argument(b->scope)) continue;
    const size_t bytes = (size_t)kiln_buffer_elems(b) * (size_t)kiln_dtype_bytes(b->dtype);
    if (!kiln_dtype_is_float(b->dtype)) {
      char *at = kiln_arena_zalloc(&x->cx->scratch, bytes + ALIGN);
      args[n] = at + (-(uintptr_t)at & (ALIGN - 1));
    }
    n++;
  }
  return args;
}

static void add_counted(const explaining *x, const kiln_kernel *k, kiln_explained_kernel *out) {
  kiln_sim_level caches[KILN_SIM_CACHES];
  kiln_sim_traffic counted;
  kiln_diag *outer = x->cx->diag;
  if (!x->counts || k->by_library || !runs_in_order(x)) return;
  kiln_sim_caches(&x->b->request.machine, caches);
  kiln_loops *l = kiln_instrs_expand(x->cx, k->loops);
  x->cx->diag = NULL;
  const kiln_status st =
      kiln_sim_trace(x->cx, l, make_integers(x, l), KILN_SIM_CACHES, caches, &counted);
  x->cx->diag = outer;
  for (int i = KILN_SIM_CACHES - 1; i >= 0 && st == KILN_OK; i--) {
    const kiln_sim_flow *one = &counted.levels[i];
    const char *level = i + 1 < KILN_SIM_CACHES ? caches[i + 1].name : "memory";
    KILN_VEC_PUSH(
        &x->cx->perm, &out->counted,
        (kiln_explained_traffic){level, (double)one->read_bytes, (double)one->written_bytes});
  }
}

// --- neighbours ---

static void add_neighbours(const explaining *x, int launch, kiln_explained_kernel *out) {
  const kiln_kernels *all = &x->b->choices.kernels;
  for (int i = 0; i < all->edges.n; i++) {
    const kiln_edge_decision *d = &all->edges.data[i];
    const int from = x->launch_of[d->producer], to = x->launch_of[d->consumer];
    if (from == to || (from != launch && to != launch)) continue;
    const int other = from == launch ? to : from;
    kiln_explained_neighbour n = {.is_before = to == launch,
                                  .tensor = name_of(x, x->b->choices.prog, d->tensor),
                                  .reason = d->reason ? d->reason : "not tried"};
    if (other >= 0) {
      const kiln_launch *l = &all->launches.data[other];
      n.nodes = kiln_symbol_text(x->cx, l->origin);
      n.kernel = kiln_symbol_text(x->cx, all->kernels.data[l->kernel]->name);
    }
    KILN_VEC_PUSH(&x->cx->perm, &out->neighbours, n);
  }
}

// --- kernels ---

static const char *stmt_text(const explaining *x, const kiln_program *p, const kiln_stmt *s) {
  kiln_text t;
  kiln_text_init(&t, &x->cx->perm);
  kiln_stmt_print(x->cx, p, s, &t);
  while (t.n > 0 && (t.data[t.n - 1] == '\n' || t.data[t.n - 1] == ' ')) t.data[--t.n] = 0;
  return t.data + strspn(t.data, " ");
}

static const char *others_of(const explaining *x, int launch) {
  const kiln_kernels *all = &x->b->choices.kernels;
  const char *text = "";
  for (int i = 0; i < all->launches.n; i++)
    if (i != launch && x->beside[i] == x->beside[launch])
      text = kiln_arena_printf(
          &x->cx->perm, "%s%s%s", text, *text ? ", " : "",
          kiln_symbol_text(x->cx, all->kernels.data[all->launches.data[i].kernel]->name));
  return text;
}

// A kernel is explained by its first launch; later launches, of equal layers, have other tensors of
// the same shapes.
static kiln_explained_kernel explain_kernel(const explaining *x, const kiln_kernel *k) {
  const kiln_kernels *all = &x->b->choices.kernels;
  kiln_explained_kernel e = {
      .name = kiln_symbol_text(x->cx, k->name), .beside = "", .flops = k->flops, .bytes = k->bytes};
  flows f;
  int first = -1;
  for (int i = all->launches.n - 1; i >= 0; i--)
    if (all->launches.data[i].kernel == k->id) {
      first = i;
      e.n_launches++;
    }
  for (int i = 0; i < k->prog->stmts.n; i++)
    if (k->prog->stmts.data[i])
      KILN_VEC_PUSH(&x->cx->perm, &e.stmts, stmt_text(x, k->prog, k->prog->stmts.data[i]));
  if (x->measured_us) e.measured_us = x->measured_us[k->id];
  find_flows(x, k, &f);
  add_candidates(x, k, &e);
  add_traffic(x, k, &f, &e);
  add_counted(x, k, &e);
  if (first < 0) return e;
  e.nodes = kiln_symbol_text(x->cx, all->launches.data[first].origin);
  e.beside = others_of(x, first);
  add_edges(x, k, &all->launches.data[first], &f, &e);
  add_neighbours(x, first, &e);
  return e;
}

static kiln_status unknown_kernel(kiln_ctx *cx, const kiln_build *b, const char *asked) {
  const kiln_kernels *all = &b->choices.kernels;
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, b->request.model->path,
                   "kernel: must be one of the model's %d, such as %s, got \"%s\"", all->kernels.n,
                   all->kernels.n ? kiln_symbol_text(cx, all->kernels.data[0]->name) : "none",
                   asked);
}

static kiln_status explain_all(const explaining *x, const char *only, kiln_explained *out) {
  const kiln_device *d = x->b->request.machine.device;
  *out = (kiln_explained){.model = x->b->request.model->path,
                          .device = d ? d->name : "unknown",
                          .is_measured_device = d && d->is_measured,
                          .threads = x->b->request.model->options.threads,
                          .n_launches = x->b->choices.kernels.launches.n,
                          .build = x->b};
  for (int i = 0; i < x->b->choices.kernels.kernels.n; i++) {
    const kiln_kernel *k = x->b->choices.kernels.kernels.data[i];
    const kiln_mark mark = kiln_arena_mark(&x->cx->scratch);
    if (x->counts)
      kiln_model_progress(x->b->request.model, "count", (size_t)i,
                          (size_t)x->b->choices.kernels.kernels.n);
    const kiln_explained_kernel e = explain_kernel(x, k);
    kiln_arena_rewind(&x->cx->scratch, mark);
    out->predicted_us += e.n_launches * e.predicted_us;
    out->measured_us += e.n_launches * e.measured_us;
    if (!only || strcmp(only, e.name) == 0) KILN_VEC_PUSH(&x->cx->perm, &out->kernels, e);
  }
  if (only && out->kernels.n == 0) return unknown_kernel(x->cx, x->b, only);
  return KILN_OK;
}

// --- the call ---

static void print_rules(kiln_ctx *cx, const kiln_build *b, kiln_text *out) {
  kiln_text_add(out, "rules       ");
  kiln_explain_passes(cx, b, out);
  kiln_text_add(out, "\n");
  if (b->choices.alternatives) kiln_text_printf(out, "tried       %s\n", b->choices.alternatives);
}

typedef struct call {
  kiln_build build;
  kiln_explain_options options;
  const char *text;
} call;

// The kernels of the build, with the alternatives.
static kiln_status explain_kernels(kiln_ctx *cx, const call *c, kiln_build *b, const char *only,
                                   kiln_text *out) {
  kiln_text detail;
  kiln_explained e;
  explaining x = {.cx = cx,
                  .b = b,
                  .n_rivals = c->options.detail ? INT_MAX : KILN_EXPLAINED_RIVALS,
                  .counts = c->options.count,
                  .launch_of = kiln_explain_launches(cx, b),
                  .beside = kiln_build_horizontally_fused(cx, b)};
  kiln_text_init(&detail, &cx->perm);
  if (c->options.measure) KILN_TRY(kiln_build_measure(cx, b, &x.measured_us));
  KILN_TRY(explain_all(&x, only, &e));
  if (c->options.detail) KILN_TRY(kiln_explain_detail(cx, b, only, &detail));
  if (c->options.json) kiln_explained_json(cx, &e, c->options.detail ? detail.data : NULL, out);
  else kiln_explained_text(cx, &e, out);
  if (!b->choices.orchestration || c->options.json || only) return KILN_OK;
  kiln_text_add(out, "\n");
  kiln_orchestration_report(cx, b->choices.prog, b->choices.orchestration, out);
  return KILN_OK;
}

static kiln_status explain_program(kiln_ctx *cx, const call *c, kiln_build *b, kiln_text *out) {
  KILN_TRY(kiln_model_want_program(b->request.model, cx->diag));
  b->request.model->times.n = b->request.model->n_load_times;
  KILN_TRY(b->request.model->compiler->kernels(cx, b));
  if (c->options.orchestration && !c->options.json) print_rules(cx, b, out);
  if (c->options.orchestration && b->choices.orchestration && c->options.json)
    kiln_orchestration_json(cx, b->choices.prog, b->choices.orchestration, out);
  else if (c->options.orchestration && b->choices.orchestration)
    kiln_orchestration_report(cx, b->choices.prog, b->choices.orchestration, out);
  else if (c->options.orchestration)
    kiln_text_add(out, c->options.json ? "{\"connected\": true}\n"
                                       : "kernels     as they are connected: of the choices that "
                                         "were measured none is faster\n");
  else if (c->options.why[0] && c->options.why[1])
    return kiln_explain_why(cx, b, kiln_name_shown(cx, c->options.why[0]),
                            kiln_name_shown(cx, c->options.why[1]), out);
  else return explain_kernels(cx, c, b, c->options.kernel, out);
  return KILN_OK;
}

// Explains part |i|; *io_found: whether it has the kernel that was asked for.
static kiln_status explain_part(kiln_ctx *cx, const call *c, int i, bool *io_found,
                                kiln_text *out) {
  kiln_model part = kiln_parts_model(cx, c->build.request.model, i);
  kiln_build b = {.request = {.model = &part,
                              .is_part = true,
                              .part = i,
                              .wants_candidates = c->build.request.wants_candidates}};
  const char *only = c->options.kernel;
  bool has = !only;
  part.times.n = part.n_load_times;
  kiln_status st = part.compiler->kernels(cx, &b);
  for (int k = 0; st == KILN_OK && k < b.choices.kernels.kernels.n; k++)
    has |= only && strcmp(kiln_symbol_text(cx, b.choices.kernels.kernels.data[k]->name), only) == 0;
  if (st == KILN_OK && has) {
    if (!c->options.json) kiln_text_printf(out, "%spart %d\n", *io_found ? "\n" : "", i);
    else kiln_text_add(out, *io_found ? ",\n" : "");
    *io_found = true;
    st = explain_kernels(cx, c, &b, only, out);
  }
  kiln_build_deinit(&b);
  return st;
}

// Explains what a module in parts has: its steps, and the kernels of each part.
static kiln_status explain_parts(kiln_ctx *cx, const call *c, kiln_text *out) {
  const kiln_model *m = c->build.request.model;
  bool found = false;
  if (c->options.json) kiln_text_add(out, "{\"parts\": [\n");
  else if (!c->options.kernel) {
    kiln_flow_print(&m->parted->flow, out);
    kiln_text_add(out, "\n");
  }
  for (int i = 0; i < (int)m->parted->flow.n_parts; i++)
    KILN_TRY(explain_part(cx, c, i, &found, out));
  if (c->options.json) kiln_text_add(out, "]}\n");
  if (found || !c->options.kernel) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, m->path,
                   "kernel: must be one of a part, got none of the name %s", c->options.kernel);
}

// A model in parts is unrolled for what is asked of one program.
static kiln_status explain(kiln_ctx *cx, void *argument) {
  call *c = argument;
  kiln_build *b = &c->build;
  kiln_text text;
  const bool in_parts = b->request.model->parted && !c->options.detail &&
                        !c->options.orchestration && !c->options.why[0];
  kiln_text_init(&text, &cx->perm);
  if (!in_parts)
    KILN_TRY(b->request.model->compiler->unroll(cx, b->request.model, &b->request.model));
  KILN_TRY(in_parts ? explain_parts(cx, c, &text) : explain_program(cx, c, b, &text));
  c->text = text.data ? text.data : "";
  return KILN_OK;
}

kiln_status kiln_model_explain(kiln_model *model, const kiln_explain_options *options,
                               kiln_diag *diag, const char **out_text) {
  call c = {.build = {.request.model = model, .request.wants_candidates = true}};
  KILN_TRY(kiln_argument_check(diag, __func__, "out_text", out_text));
  *out_text = NULL;
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  if (options)
    memcpy(&c.options, options,
           options->struct_size < sizeof c.options ? options->struct_size : sizeof c.options);
  const kiln_status st = kiln_model_enter(model, diag, explain, &c);
  kiln_build_deinit(&c.build);
  if (st == KILN_OK) *out_text = c.text;
  return st;
}

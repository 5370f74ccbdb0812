// Traffic between launches: tensors passed through memory, with producer, consumer and bytes, and
// the reason why these were not fused.
#include "explain/explain.h"
#include "explain/detail.h"

#include <string.h>

enum { FROM_INPUT = -1, FROM_CONSTANT = -2, TO_OUTPUT = -1 }; // instead of launch numbers

typedef struct flowing {
  kiln_ctx *cx;
  const kiln_build *b;
  const int *launch_of; // [stmts]
  bool *seen;           // [tensors] whose producers were found for the current argument
  kiln_text *out;
  int n; // number of flows written
} flowing;

static const char *text_of(const flowing *f, kiln_symbol s) { return kiln_symbol_text(f->cx, s); }

static const kiln_tensor *tensor_at(const flowing *f, int id) {
  return f->b->choices.prog->tensors.data[id];
}

static void put_text(kiln_text *out, const char *key, const char *value) {
  kiln_text_printf(out, ", \"%s\": ", key);
  kiln_text_add_json(out, value);
}

static void put_shape(const kiln_tensor *t, kiln_text *out) {
  int64_t shape[KILN_MAX_RANK];
  kiln_text_add(out, ", \"shape\": [");
  if (kiln_tensor_static_shape(t, shape))
    for (int k = 0; k < t->rank; k++) kiln_text_printf(out, "%s%" PRId64, k ? ", " : "", shape[k]);
  kiln_text_add(out, "]");
}

static double bytes_of(const kiln_tensor *t) {
  const int64_t n = kiln_tensor_elems(t);
  return n < 0 ? 0 : (double)n * kiln_dtype_bytes(t->dtype);
}

static bool touches(const kiln_launch *l, int stmt) {
  for (int i = 0; i < l->n_stmts; i++)
    if (l->stmts[i] == stmt) return true;
  return false;
}

// Why the producer |from| is not inlined into launch |to|, which reads its result itself or as a
// piece of |whole|; NULL: grouping had no choice.
static const char *reason_of(const flowing *f, int from, int to, int tensor, int whole) {
  const kiln_kernels *all = &f->b->choices.kernels;
  const char *reason = NULL;
  for (int i = 0; i < all->edges.n && from >= 0 && to >= 0; i++) {
    const kiln_edge_decision *d = &all->edges.data[i];
    const bool is_whole = d->tensor == whole && whole != tensor;
    if (!touches(&all->launches.data[to], d->consumer) ||
        (!is_whole && !touches(&all->launches.data[from], d->producer)))
      continue;
    if (!reason || d->tensor == tensor) reason = d->reason ? d->reason : "not tried";
  }
  return reason;
}

static void put_flow(flowing *f, const kiln_tensor *t, int from, int to, int whole) {
  kiln_text_printf(f->out, "%s\n  {\"from\": %d, \"to\": %d, \"bytes\": %.0f", f->n++ ? "," : "",
                   from, to, bytes_of(t));
  put_text(f->out, "tensor", text_of(f, t->name));
  put_text(f->out, "dtype", kiln_dtype_text(t->dtype));
  put_shape(t, f->out);
  put_text(f->out, "reason", reason_of(f, from, to, t->id, whole));
  kiln_text_add(f->out, "}");
}

// --- producers of a launch's operands ---

typedef struct reading {
  flowing *f;
  int to, whole; // the launch and its operand
} reading;

static void find_makers(const reading *r, int tensor);

static void find_of_load(const kiln_expr *e, void *argument) {
  if (e->kind == KILN_EXPR_LOAD) find_makers(argument, e->u.tensor);
}

// Finds the pieces of a tensor that no launch writes as a whole: their producers write them in
// place.
static void find_pieces(const reading *r, const kiln_tensor *t) {
  const kiln_program *p = r->f->b->choices.prog;
  reading also = *r;
  for (int i = 0; i < p->tensors.n; i++)
    if (p->tensors.data[i] && p->tensors.data[i]->inside == t) find_makers(r, i);
  if (t->def >= 0 && p->stmts.data[t->def])
    kiln_expr_visit(r->f->cx, p->stmts.data[t->def]->body, find_of_load, &also);
}

static void find_makers(const reading *r, int tensor) {
  flowing *f = r->f;
  const kiln_tensor *t = tensor_at(f, tensor);
  if (!t || f->seen[tensor]) return;
  f->seen[tensor] = true;
  const int by = t->def >= 0 ? f->launch_of[t->def] : -1;
  if (t->role == KILN_CONST) put_flow(f, t, FROM_CONSTANT, r->to, r->whole);
  else if (t->def < 0 && t->role == KILN_INPUT) put_flow(f, t, FROM_INPUT, r->to, r->whole);
  else if (by < 0) find_pieces(r, t);
  else if (by != r->to) put_flow(f, t, by, r->to, r->whole);
}

static void forget(flowing *f) {
  memset(f->seen, 0, sizeof *f->seen * (size_t)f->b->choices.prog->tensors.n);
}

static void put_reads(flowing *f, int launch) {
  const kiln_launch *l = &f->b->choices.kernels.launches.data[launch];
  forget(f);
  for (int i = 0; i < l->n_args; i++) {
    const kiln_tensor *t = tensor_at(f, l->args[i].tensor);
    const bool is_made_here = t->def >= 0 && f->launch_of[t->def] == launch;
    const reading r = {f, launch, t->id};
    if (!is_made_here) find_makers(&r, t->id);
  }
}

static void put_outputs(flowing *f) {
  const kiln_program *p = f->b->choices.prog;
  for (int i = 0; i < p->outputs.n; i++) {
    const reading r = {f, TO_OUTPUT, p->outputs.data[i]};
    forget(f);
    find_makers(&r, p->outputs.data[i]);
  }
}

static void put_launches(flowing *f) {
  const kiln_kernels *all = &f->b->choices.kernels;
  const int *beside = kiln_build_horizontally_fused(f->cx, f->b);
  kiln_text_add(f->out, "\"launch_list\": [");
  for (int i = 0; i < all->launches.n; i++) {
    const kiln_launch *l = &all->launches.data[i];
    kiln_text_printf(f->out, "%s\n  {\"beside\": %d", i ? "," : "", beside[i]);
    put_text(f->out, "kernel", text_of(f, all->kernels.data[l->kernel]->name));
    put_text(f->out, "nodes", text_of(f, l->origin));
    kiln_text_add(f->out, "}");
  }
  kiln_text_add(f->out, "]");
}

void kiln_explain_traffic(kiln_ctx *cx, const kiln_build *b, kiln_text *out) {
  flowing f = {.cx = cx, .b = b, .launch_of = kiln_explain_launches(cx, b), .out = out};
  f.seen = KILN_NEW_ARRAY(&cx->perm, bool, b->choices.prog->tensors.n);
  put_launches(&f);
  kiln_text_add(out, ",\n\"flows\": [");
  for (int i = 0; i < b->choices.kernels.launches.n; i++) put_reads(&f, i);
  put_outputs(&f);
  kiln_text_add(out, "]");
}

// `kiln explain --why`: why two nodes of the graph were fused, or not.
#include "explain/explain.h"

#include <stdlib.h>
#include <string.h>

typedef struct asking {
  kiln_ctx *cx;
  const kiln_build *b;
  const int *launch_of;
  const char *names[2];
  bool *of[2]; // [stmts] of the scheduled program: whether it belongs to the node
  bool was[2]; // whether the node had statements before scheduling
  kiln_text *out;
  int n_said;
} asking;

static bool same_node(const char *one, size_t n, const char *asked) {
  const size_t want = strlen(asked);
  if (n == want && memcmp(one, asked, n) == 0) return true;
  return n > want && one[n - want - 1] == '/' && memcmp(one + n - want, asked, want) == 0;
}

// Whether |origin|, names of nodes joined by '+', contains the node, by its full name or the part
// after a '/'.
static bool has_node(const char *origin, const char *asked) {
  for (const char *at = origin; *at; at += *at == '+') {
    const size_t n = strcspn(at, "+");
    if (same_node(at, n, asked)) return true;
    at += n;
  }
  return false;
}

static void find_stmts(asking *q, int side) {
  const kiln_program *p = q->b->choices.prog, *before = q->b->request.model->prog;
  const char *asked = q->names[side];
  q->of[side] = KILN_NEW_ARRAY(&q->cx->scratch, bool, p->stmts.n);
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    if (!s) continue;
    q->of[side][i] = asked[0] == '#' ? strtol(asked + 1, NULL, 10) == i
                                     : has_node(kiln_symbol_text(q->cx, s->origin), asked);
    q->was[side] |= q->of[side][i];
  }
  for (int i = 0; i < before->stmts.n && !q->was[side]; i++)
    q->was[side] = before->stmts.data[i] &&
                   has_node(kiln_symbol_text(q->cx, before->stmts.data[i]->origin), asked);
}

static kiln_status unknown(const asking *q, const char *asked) {
  return KILN_FAIL(q->cx->diag, KILN_BAD_INPUT, q->b->request.model->path,
                   "why: must name graph nodes (kiln inspect lists them) or #STATEMENT, got \"%s\"",
                   asked);
}

static const kiln_kernel *kernel_of(const asking *q, int stmt) {
  const int l = q->launch_of[stmt];
  return l < 0 ? NULL
               : q->b->choices.kernels.kernels.data[q->b->choices.kernels.launches.data[l].kernel];
}

// The tensor in the kernel's program of a statement of the main program; their order is the same.
static int tensor_in_kernel(const asking *q, int stmt) {
  const kiln_launch *l = &q->b->choices.kernels.launches.data[q->launch_of[stmt]];
  const kiln_kernel *k = kernel_of(q, stmt);
  for (int i = 0; i < l->n_stmts && i < k->prog->stmts.n; i++)
    if (l->stmts[i] == stmt) return k->prog->stmts.data[i]->out;
  return -1;
}

static const char *text_of(const asking *q, kiln_symbol s) { return kiln_symbol_text(q->cx, s); }

static void say_edge(asking *q, const kiln_edge_decision *d) {
  const kiln_kernel *from = kernel_of(q, d->producer), *to = kernel_of(q, d->consumer);
  const char *tensor = text_of(q, q->b->choices.prog->tensors.data[d->tensor]->name);
  q->n_said++;
  if (from && q->launch_of[d->producer] == q->launch_of[d->consumer]) {
    const int t = tensor_in_kernel(q, d->producer);
    kiln_text_printf(q->out, "%s: both ends are in kernel %s; it passes through %s\n", tensor,
                     text_of(q, from->name), t < 0 ? "it" : kiln_explain_level(q->b, from, t));
    return;
  }
  kiln_text_printf(q->out, "%s: not fused: %s; it passes through memory, from %s to %s\n", tensor,
                   d->reason ? d->reason : "not tried",
                   from ? text_of(q, from->name) : "its pieces",
                   to ? text_of(q, to->name) : "nothing");
}

static void say_shared(asking *q) {
  for (int i = 0; i < q->b->choices.prog->stmts.n; i++) {
    const kiln_kernel *k = q->of[0][i] && q->of[1][i] ? kernel_of(q, i) : NULL;
    if (!k) continue;
    q->n_said++;
    kiln_text_printf(q->out,
                     "%s and %s are one statement, #%d, of kernel %s: the intermediate is "
                     "computed where it is read, in registers\n",
                     q->names[0], q->names[1], i, text_of(q, k->name));
  }
}

static bool has_any(const asking *q, int side) {
  for (int i = 0; i < q->b->choices.prog->stmts.n; i++)
    if (q->of[side][i]) return true;
  return false;
}

kiln_status kiln_explain_why(kiln_ctx *cx, const kiln_build *b, const char *from, const char *to,
                             kiln_text *out) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  asking q = {.cx = cx, .b = b, .names = {from, to}, .out = out};
  const kiln_edge_decisions *edges = &b->choices.kernels.edges;
  q.launch_of = kiln_explain_launches(cx, b);
  for (int side = 0; side < 2; side++) {
    find_stmts(&q, side);
    if (!q.was[side]) return unknown(&q, q.names[side]);
  }
  say_shared(&q);
  for (int i = 0; i < edges->n; i++) {
    const kiln_edge_decision *d = &edges->data[i];
    if ((q.of[0][d->producer] && q.of[1][d->consumer]) ||
        (q.of[1][d->producer] && q.of[0][d->consumer]))
      say_edge(&q, d);
  }
  for (int side = 0; side < 2 && q.n_said == 0; side++)
    if (!has_any(&q, side)) {
      q.n_said++;
      kiln_text_printf(out,
                       "%s has no statement left: its result is a constant or nothing reads it\n",
                       q.names[side]);
    }
  if (q.n_said == 0)
    kiln_text_printf(out, "no tensor passes between %s and %s\n", q.names[0], q.names[1]);
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

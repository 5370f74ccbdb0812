// Forwards data movement: slices of concatenations and paddings read the operand; concatenations of
// slices, transposed and reshaped tensors read the sources, if fewer selections remain.
//
// A view is substituted into a reader if the range of the reader's index decides which branch it
// takes. Other views are left to inlining, which weighs traffic (transform/inline.c).
#include "analysis/simplify.h"
#include "rewrite/dce.h"
#include "rewrite/product.h"
#include "rewrite/rules.h"

typedef struct moving {
  kiln_ctx *cx;
  const kiln_program *p;
  int tensor;   // the tensor to substitute; -1: all that move the elements of one tensor
  int n_found;  // loads substituted
  int n_select; // result of count_selects
} moving;

// The map that only moves elements into |tensor|; NULL: it is computed.
static const kiln_stmt *mover_of(const moving *m, int tensor) {
  const kiln_tensor *t = m->p->tensors.data[tensor];
  const kiln_stmt *s = t->def < 0 ? NULL : m->p->stmts.data[t->def];
  return s && s->n_reduce == 0 && s->combiner == KILN_COMBINE_NONE && !s->guard &&
                 kiln_stmt_is_plain(m->cx, s) && kiln_only_moves(m->cx, s->body)
             ? s
             : NULL;
}

static const kiln_expr *expand(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  moving *m = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  kiln_symbol vars[KILN_MAX_RANK];
  if (!kiln_expr_has_load(e)) return e;
  if (e->kind != KILN_EXPR_LOAD || (m->tensor >= 0 && e->u.tensor != m->tensor)) return NULL;
  const kiln_stmt *s = mover_of(m, e->u.tensor);
  if (!s || (m->tensor < 0 && s->body->kind != KILN_EXPR_LOAD)) return NULL;
  for (int k = 0; k < e->n_args; k++) {
    index[k] = kiln_expr_replace(cx, e->args[k], expand, m);
    vars[k] = s->dims[k].name;
  }
  m->n_found++;
  return kiln_expr_substitute(cx, s->body, e->n_args, vars, index);
}

static void count_select(const kiln_expr *e, void *argument) {
  ((moving *)argument)->n_select += e->kind == KILN_EXPR_SELECT;
}

static int count_selects(moving *m, const kiln_expr *e) {
  m->n_select = 0;
  kiln_expr_visit(m->cx, e, count_select, m);
  return m->n_select;
}

// Substitutes |tensor| in the body of |s| if at most |most| SELECTs remain.
static bool substitute(moving *m, kiln_stmt *s, int tensor, int most) {
  const kiln_mark mark = kiln_arena_mark(&m->cx->scratch);
  const kiln_ranges ranges = kiln_stmt_ranges(&m->cx->scratch, s);
  m->tensor = tensor;
  m->n_found = 0;
  const kiln_expr *body = kiln_expr_replace(m->cx, s->body, expand, m);
  if (m->n_found > 0) body = kiln_simplify(m->cx, body, &ranges);
  kiln_arena_rewind(&m->cx->scratch, mark);
  if (m->n_found == 0 || count_selects(m, body) > most) return false;
  s->body = body;
  return true;
}

typedef struct reads {
  int n, tensors[KILN_MAX_RANK];
} reads;

static void note_load(const kiln_expr *e, void *argument) {
  reads *r = argument;
  if (e->kind != KILN_EXPR_LOAD || r->n == KILN_MAX_RANK) return;
  for (int i = 0; i < r->n; i++)
    if (r->tensors[i] == e->u.tensor) return;
  r->tensors[r->n++] = e->u.tensor;
}

static int move_in(moving *m, kiln_stmt *s) {
  reads r = {0};
  int n = 0;
  kiln_expr_visit(m->cx, s->body, note_load, &r);
  for (int i = 0; i < r.n; i++) {
    const kiln_stmt *mover = mover_of(m, r.tensors[i]);
    if (mover && mover->body->kind == KILN_EXPR_SELECT)
      n += substitute(m, s, r.tensors[i], count_selects(m, s->body));
  }
  if (s->body->kind == KILN_EXPR_SELECT && mover_of(m, s->out))
    n += substitute(m, s, -1, count_selects(m, s->body) - 1);
  return n;
}

int kiln_rule_moves(kiln_ctx *cx, kiln_program *p) {
  moving m = {.cx = cx, .p = p};
  int n = 0;
  for (int i = 0; i < p->stmts.n; i++) n += move_in(&m, p->stmts.data[i]);
  if (n > 0) kiln_program_dce(cx, p);
  return n;
}

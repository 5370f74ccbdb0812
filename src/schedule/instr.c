// The meanings of instructions as loops.
//
// A meaning `D(i, j) = C(i, j)  D(i, j) += X` is parsed as a program of one statement, D = C + X,
// or of two if X is a reduction: S(i, j) +=! x and D = C + S. Its loops accumulate X, or x, into D;
// likewise for `max=`. The loops of a copy `D(i, j) = A(i, j)` store it.
#include "schedule/instr.h"

#include "tc/definition.h"

#include <string.h>

typedef struct reader {
  kiln_ctx *cx;
  const kiln_instr *instr;
  const kiln_program *p;
  kiln_loops *l;
  int *operands; // [tensors]: the operand's number; -1: none
  int n_dims;
  kiln_symbol dims[KILN_MAX_RANK + KILN_MAX_TILE_RANK];
  const kiln_expr *loops[KILN_MAX_RANK + KILN_MAX_TILE_RANK];
} reader;

static kiln_status refuse(const reader *r, const char *what) {
  const char *place = kiln_arena_printf(&r->cx->perm, "instruction %s", r->instr->name);
  return KILN_FAIL(r->cx->diag, KILN_INTERNAL, place, "meaning: %s", what);
}

static kiln_status add_operand(reader *r, int tensor) {
  const kiln_tensor *t = r->p->tensors.data[tensor];
  int64_t shape[KILN_MAX_RANK];
  if (!kiln_tensor_static_shape(t, shape)) return refuse(r, "operands must have constant sizes");
  if (t->rank > KILN_MAX_TILE_RANK || r->l->buffers.n == KILN_MAX_OPERANDS)
    return refuse(r, "there must be at most 4 operands of at most 4 axes");
  r->operands[tensor] = r->l->buffers.n;
  (void)kiln_buffer_make(r->cx, r->l, kiln_symbol_text(r->cx, t->name), t->dtype, KILN_SCOPE_PARAM,
                         t->rank, shape, NULL);
  return KILN_OK;
}

static bool loads_of(const kiln_expr *e, int tensor) {
  return e->kind == KILN_EXPR_LOAD && e->u.tensor == tensor;
}

// If |s| combines its result's initial value with a value: that value, and how; NULL otherwise.
static const kiln_expr *combined(const reader *r, const kiln_stmt *s, kiln_combiner *out_how) {
  static const struct {
    kiln_expr_kind kind;
    kiln_combiner how;
  } combiners[] = {{KILN_EXPR_ADD, KILN_COMBINE_SUM},
                   {KILN_EXPR_MUL, KILN_COMBINE_PROD},
                   {KILN_EXPR_MAX, KILN_COMBINE_MAX},
                   {KILN_EXPR_MIN, KILN_COMBINE_MIN}};
  const int first = r->p->inputs.data[r->p->inputs.n - 1];
  *out_how = KILN_COMBINE_NONE;
  for (size_t i = 0; i < KILN_LEN(combiners); i++)
    if (s->body->kind == combiners[i].kind) *out_how = combiners[i].how;
  if (s->combiner != KILN_COMBINE_NONE || *out_how == KILN_COMBINE_NONE) return NULL;
  if (loads_of(s->body->args[0], first)) return s->body->args[1];
  return loads_of(s->body->args[1], first) ? s->body->args[0] : NULL;
}

static const kiln_expr *of_operands(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const reader *r = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  if (e->kind == KILN_EXPR_VAR) return kiln_expr_substitute(cx, e, r->n_dims, r->dims, r->loops);
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_substitute(cx, e->args[k], r->n_dims, r->dims, r->loops);
  return kiln_load(cx, r->operands[e->u.tensor], e->dtype, e->n_args, index);
}

static kiln_status make_nest(reader *r, const kiln_stmt *s, kiln_combiner combiner,
                             const kiln_expr *value) {
  kiln_ctx *cx = r->cx;
  r->n_dims = s->n_space + s->n_reduce;
  if (r->n_dims > (int)KILN_LEN(r->dims)) return refuse(r, "there must be fewer loops");
  for (int k = 0; k < r->n_dims; k++) {
    const char *dim = kiln_symbol_text(cx, s->dims[k].name);
    r->dims[k] = s->dims[k].name;
    r->loops[k] = kiln_var(cx, kiln_symbol_printf(cx, "%s.%s", r->instr->name, dim));
  }
  const kiln_expr *index[KILN_MAX_RANK];
  const kiln_buffer *result = r->l->buffers.data[0];
  for (int k = 0; k < result->rank; k++)
    index[k] = kiln_expr_substitute(cx, s->index[k], r->n_dims, r->dims, r->loops);
  value = kiln_expr_replace(cx, value, of_operands, r);
  if (r->instr->passes_nan && combiner == KILN_COMBINE_MAX) {
    const kiln_expr *before = kiln_load(cx, 0, result->dtype, result->rank, index);
    value = kiln_select(cx, kiln_binary(cx, KILN_EXPR_GT, value, before), value, before);
    combiner = KILN_COMBINE_NONE;
  }
  kiln_loop *nest = kiln_store_make(cx, result, index, combiner, value);
  for (int k = r->n_dims - 1; k >= 0; k--)
    nest = kiln_for_make(cx, r->loops[k]->u.sym, s->dims[k].extent, nest);
  r->l->body = nest;
  return KILN_OK;
}

static kiln_status add_operands(reader *r, int n_inputs) {
  for (int i = 0; i < r->p->tensors.n; i++) r->operands[i] = -1;
  KILN_TRY(add_operand(r, r->p->outputs.data[0]));
  for (int i = 0; i < n_inputs; i++) KILN_TRY(add_operand(r, r->p->inputs.data[i]));
  return KILN_OK;
}

// The load of the only parameter if the program's only statement is that load; NULL otherwise.
// Results of definitions are never halves, so a widening from halves is not part of the meaning.
static const kiln_expr *copied(const kiln_program *p) {
  const kiln_stmt *s = p->stmts.n == 1 ? p->stmts.data[0] : NULL;
  if (!s || p->outputs.n != 1 || p->inputs.n != 1 || s->combiner != KILN_COMBINE_NONE || s->guard ||
      s->init)
    return NULL;
  const kiln_expr *e = s->body->kind == KILN_EXPR_CAST ? s->body->args[0] : s->body;
  return e->kind == KILN_EXPR_LOAD ? e : NULL;
}

// A copy without a cast parses as its parameter, without a statement: makes the statement.
static void spell_out_copy(kiln_ctx *cx, kiln_program *p) {
  if (p->stmts.n != 0 || p->outputs.n != 1 || p->inputs.n != 1) return;
  const kiln_tensor *t = p->tensors.data[p->inputs.data[0]];
  const kiln_expr *index[KILN_MAX_RANK];
  kiln_stmt *s = kiln_stmt_make(cx, p, "D", t->dtype, t->rank, 0, t->shape);
  for (int k = 0; k < t->rank; k++) index[k] = kiln_stmt_var(cx, s, k);
  s->body = kiln_tensor_load(cx, t, index);
  p->outputs.data[0] = s->out;
}

static kiln_status read_meaning(reader *r) {
  const kiln_program *p = r->p;
  const kiln_expr *load = copied(p);
  if (load) {
    p->tensors.data[p->outputs.data[0]]->dtype = load->dtype;
    KILN_TRY(add_operands(r, 1));
    return make_nest(r, p->stmts.data[0], KILN_COMBINE_NONE, load);
  }
  if (p->outputs.n != 1 || p->inputs.n < 2 || p->stmts.n < 1 || p->stmts.n > 2)
    return refuse(r, "must be one statement that accumulates into its result");
  const kiln_stmt *s = p->stmts.data[p->stmts.n - 1];
  kiln_combiner how;
  const kiln_expr *value = combined(r, s, &how);
  if (!value || s->guard || s->init) return refuse(r, "must add to its result's first value");
  if (p->stmts.n == 2) {
    s = p->stmts.data[0];
    if (!loads_of(value, s->out) || s->combiner != how || s->guard)
      return refuse(r, "must add to its result's first value");
    value = s->body;
  }
  KILN_TRY(add_operands(r, p->inputs.n - 1));
  return make_nest(r, s, how, value);
}

kiln_status kiln_instr_make_loops(kiln_ctx *cx, kiln_instr *instr) {
  kiln_program *p = NULL;
  if (instr->loops) return KILN_OK;
  KILN_TRY(kiln_tc_program(cx, instr->name, instr->meaning, NULL, 0, NULL, &p));
  spell_out_copy(cx, p);
  reader r = {.cx = cx, .instr = instr, .p = p, .l = kiln_loops_make(cx, instr->name)};
  r.operands = KILN_NEW_ARRAY(&cx->perm, int, p->tensors.n);
  KILN_TRY(read_meaning(&r));
  instr->loops = r.l;
  return KILN_OK;
}

bool kiln_instr_is_named(const kiln_instr *instr, const char *name) {
  return strcmp(instr->name, name) == 0 || (instr->was && strcmp(instr->was, name) == 0);
}

const struct kiln_instr *kiln_instr_find_in(const void *table, const char *name) {
  const kiln_instr_table *t = table;
  for (int i = 0; i < t->n; i++)
    if (kiln_instr_is_named(&t->instrs[i], name))
      return kiln_instr_make_loops(t->cx, &t->instrs[i]) == KILN_OK ? &t->instrs[i] : NULL;
  return NULL;
}

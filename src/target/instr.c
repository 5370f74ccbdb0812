// Instructions: expansion to their meaning, and strides of their operands.
#include "target/instr.h"

typedef struct expansion {
  const kiln_loop *instr;
  const kiln_loops *meaning;
} expansion;

// Element |index| of the operand's tile.
static const kiln_expr *element(kiln_ctx *cx, const expansion *x, int operand, int rank,
                                const kiln_expr *const *index) {
  kiln_symbol vars[KILN_MAX_TILE_RANK];
  for (int k = 0; k < rank; k++) vars[k] = kiln_tile_var(cx, k);
  return kiln_expr_substitute(cx, x->instr->operands[operand], rank, vars, index);
}

static const kiln_expr *of_program(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const expansion *x = argument;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  return element(cx, x, e->u.tensor, e->n_args, e->args);
}

const kiln_expr *kiln_instr_copied(kiln_ctx *cx, const kiln_expr *value,
                                   const kiln_expr **out_where) {
  *out_where = NULL;
  for (; value->kind == KILN_EXPR_SELECT && kiln_expr_is_zero(value->args[2]);
       value = value->args[1])
    *out_where =
        *out_where ? kiln_binary(cx, KILN_EXPR_AND, *out_where, value->args[0]) : value->args[0];
  return value;
}

// The stored value |value| of a copy if the INSTR's condition holds for its element, otherwise
// zero.
static const kiln_expr *guarded(kiln_ctx *cx, const expansion *x, const kiln_loop *store,
                                const kiln_expr *value) {
  const int rank = x->meaning->buffers.data[store->buffer]->rank;
  kiln_symbol vars[KILN_MAX_TILE_RANK];
  for (int k = 0; k < rank; k++) vars[k] = kiln_tile_var(cx, k);
  const kiln_expr *holds = kiln_expr_substitute(cx, x->instr->cond, rank, vars, store->index);
  return kiln_select(cx, holds, value, kiln_number(cx, value->dtype, 0));
}

static kiln_loop *expand_store(kiln_ctx *cx, const expansion *x, const kiln_loop *from) {
  const int rank = x->meaning->buffers.data[from->buffer]->rank;
  const kiln_expr *to = element(cx, x, from->buffer, rank, from->index);
  kiln_loop *l = KILN_NEW(&cx->perm, kiln_loop);
  *l = (kiln_loop){.kind = KILN_LOOP_STORE, .buffer = to->u.tensor, .combiner = from->combiner};
  l->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, to->n_args);
  for (int k = 0; k < to->n_args; k++) l->index[k] = to->args[k];
  l->value = kiln_expr_replace(cx, from->value, of_program, (void *)(uintptr_t)x);
  if (x->instr->cond) l->value = guarded(cx, x, from, l->value);
  return l;
}

// Copies a meaning: loops around stores.
static kiln_loop *expand_list(kiln_ctx *cx, const expansion *x, const kiln_loop *from) {
  kiln_loop *first = NULL, **link = &first;
  for (; from; from = from->next, link = &(*link)->next)
    *link = from->kind == KILN_LOOP_STORE
                ? expand_store(cx, x, from)
                : kiln_for_make(cx, from->var, from->extent, expand_list(cx, x, from->body));
  return first;
}

bool kiln_instr_is_warps(const kiln_loop *l) {
  return l->kind == KILN_LOOP_INSTR && l->instr->fragments[0].lane != NULL;
}

static bool expands(const kiln_loop *l, bool keeps_warps) {
  return l->kind == KILN_LOOP_INSTR &&
         !(keeps_warps && (kiln_instr_is_warps(l) || l->instr->is_tma));
}

static bool has_instr(const kiln_loop *l, bool keeps_warps) {
  for (; l; l = l->next)
    if (expands(l, keeps_warps) || has_instr(l->body, keeps_warps)) return true;
  return false;
}

// Marks the loops that replace a warp's instruction, which access elements of several threads.
static void mark_warp(kiln_ctx *cx, const kiln_loop *instr, kiln_loop *loop) {
  if (!kiln_instr_is_warps(instr)) return;
  kiln_note *note = KILN_NEW(&cx->perm, kiln_note);
  *note =
      (kiln_note){kiln_symbol_of(cx, KILN_WARP_NOTE), kiln_symbol_of(cx, instr->instr->name), NULL};
  loop->notes = note;
}

static void say_line(kiln_loop *l, int line) {
  for (; l; l = l->next) {
    l->line = line;
    say_line(l->body, line);
  }
}

static void expand_all(kiln_ctx *cx, kiln_loop **slot, bool keeps_warps) {
  for (; *slot; slot = &(*slot)->next) {
    kiln_loop *l = *slot;
    expand_all(cx, &l->body, keeps_warps);
    if (!expands(l, keeps_warps)) continue;
    KILN_ASSERT(l->instr->loops != NULL);
    const expansion x = {l, l->instr->loops};
    *slot = expand_list(cx, &x, l->instr->loops->body);
    mark_warp(cx, l, *slot);
    say_line(*slot, l->line);
    while ((*slot)->next) slot = &(*slot)->next;
    (*slot)->next = l->next;
  }
}

static kiln_loops *expand_some(kiln_ctx *cx, kiln_loops *l, bool keeps_warps) {
  if (!has_instr(l->body, keeps_warps)) return l;
  kiln_loops *copy = kiln_loops_copy(&cx->perm, l);
  expand_all(cx, &copy->body, keeps_warps);
  return copy;
}

kiln_loops *kiln_instrs_expand(kiln_ctx *cx, kiln_loops *l) { return expand_some(cx, l, false); }

kiln_loops *kiln_instrs_expand_threads(kiln_ctx *cx, kiln_loops *l) {
  return expand_some(cx, l, true);
}

// Finds the change of |e| per step of |var|; false if it is not constant.
static bool slope(const kiln_expr *e, kiln_symbol var, int64_t *out) {
  int64_t a = 0, b = 0, factor = 0;
  *out = e->kind == KILN_EXPR_VAR && e->u.sym == var;
  if (*out || !kiln_expr_uses(e, var)) return true;
  if (e->n_args != 2) return false;
  if (!slope(e->args[0], var, &a) || !slope(e->args[1], var, &b)) return false;
  const bool is_scaled = e->kind == KILN_EXPR_MUL && (kiln_expr_is_int(e->args[0], &factor) ||
                                                      kiln_expr_is_int(e->args[1], &factor));
  if (e->kind == KILN_EXPR_ADD) *out = a + b;
  else if (e->kind == KILN_EXPR_SUB) *out = a - b;
  else if (is_scaled) *out = (a + b) * factor; // one of them is 0
  else return false;
  return true;
}

static int64_t distance(const kiln_loops *l, const kiln_expr *operand, kiln_symbol var) {
  const kiln_buffer *b = l->buffers.data[operand->u.tensor];
  int64_t sum = 0;
  for (int d = 0; d < b->rank; d++) {
    int64_t step = 0;
    if (!slope(operand->args[d], var, &step)) return 0;
    sum += step * b->strides[d];
  }
  return sum;
}

int64_t kiln_instr_distance(kiln_ctx *cx, const kiln_loops *l, const kiln_expr *operand, int axis) {
  return distance(l, operand, kiln_tile_var(cx, axis));
}

bool kiln_instr_find_misfit(kiln_ctx *cx, const kiln_loops *l, const kiln_loop *instr,
                            kiln_misfit *out) {
  for (int i = 0; i < instr->n_operands; i++)
    for (int k = 0; k < KILN_MAX_TILE_RANK; k++) {
      const kiln_symbol var = kiln_tile_var(cx, k);
      const int64_t want = instr->instr->strides[i][k];
      if (want == 0 || !kiln_expr_uses(instr->operands[i], var)) continue;
      *out = (kiln_misfit){i, k, want, distance(l, instr->operands[i], var)};
      if (out->got != want) return true;
    }
  return false;
}

// --- weights of few bits ---

kiln_instr *kiln_bit_instr_find(kiln_ctx *cx, const kiln_machine *m, int64_t rows, int64_t vectors,
                                int64_t group) {
  int n = 0;
  kiln_instr *all = m->target->has_vectors && m->features ? m->target->instrs(cx, m, &n) : NULL;
  for (int i = 0; i < n; i++) {
    const kiln_instr *in = &all[i];
    if (in->decodes_bits && in->is_there && in->rows == rows && in->vectors == vectors &&
        in->group == group && in->lanes * kiln_dtype_bytes(KILN_I32) == m->vector_bytes)
      return &all[i];
  }
  return NULL;
}

bool kiln_machine_multiplies_bits(kiln_ctx *cx, const kiln_machine *m) {
  enum { LEAST_GROUP = 8 };
  return kiln_bit_instr_find(cx, m, 1, 1, LEAST_GROUP) != NULL;
}

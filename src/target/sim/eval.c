// Scalar expressions of the simulator, and the elements that indices select.
#include "target/sim/eval.h"

#include "support/integer.h"

#include <string.h>

enum { SIM_VALUES = 4096 };

static kiln_constant wide(kiln_constant v) {
  if (kiln_dtype_is_half(v.dtype)) v.dtype = KILN_F32;
  return v;
}

kiln_constant kiln_sim_convert(kiln_dtype t, kiln_constant a) {
  kiln_constant out = {.dtype = t};
  if (kiln_dtype_is_half(t) && kiln_dtype_is_float(a.dtype))
    return (kiln_constant){.dtype = KILN_F32, .f = kiln_float_round(t, a.f)};
  if (kiln_dtype_is_half(t)) {
    const double f = a.dtype == KILN_U64 ? (double)(uint64_t)a.i : (double)a.i;
    return (kiln_constant){.dtype = KILN_F32, .f = kiln_float_round(t, f)};
  }
  (void)kiln_fold_cast(t, a, &out);
  return out;
}

kiln_constant kiln_sim_bits(const kiln_expr *e, kiln_constant a) {
  kiln_constant out;
  a.dtype = e->args[0]->dtype; // a half is computed as f32
  (void)kiln_fold_bitcast(e->dtype, a, &out);
  return wide(out);
}

static kiln_constant eval_load(sim *m, const kiln_expr *e) {
  if (m->load) return m->load(m, e);
  sim_cell *c = &m->cells[e->u.tensor];
  return kiln_sim_read(m, c, kiln_sim_element(m, c, e->args));
}

static kiln_constant eval_var(sim *m, const kiln_expr *e) {
  kiln_constant v = {.dtype = KILN_I64};
  if (e->u.sym < m->n_vars) v.i = m->vars[e->u.sym];
  else kiln_sim_fail(m, "variable %s must be bound", kiln_symbol_text(m->cx, e->u.sym));
  return v;
}

static kiln_constant eval(sim *m, const kiln_expr *e) {
  kiln_constant out = {.dtype = e->dtype};
  if (m->status != KILN_OK) return out;
  if (kiln_constant_of(e, &out)) return wide(out);
  if (e->kind == KILN_EXPR_LOAD) return eval_load(m, e);
  if (e->kind == KILN_EXPR_SELECT)
    return kiln_sim_eval(m, e->args[kiln_sim_eval_index(m, e->args[0]) ? 1 : 2]);
  const kiln_constant a = kiln_sim_eval(m, e->args[0]);
  if (e->kind == KILN_EXPR_CAST) return kiln_sim_convert(e->dtype, a);
  if (e->kind == KILN_EXPR_BITCAST) return kiln_sim_bits(e, a);
  if (e->n_args == 2) return kiln_sim_binary(m, e->kind, a, kiln_sim_eval(m, e->args[1]));
  out = (kiln_constant){.dtype = wide(out).dtype};
  return kiln_fold_unary(e->kind, a, &out) ? out : kiln_sim_no_value(m, e->kind, out.dtype);
}

static bool is_plain(kiln_dtype t) { return t == KILN_I64 || t == KILN_BOOL; }

// Operators of index arithmetic, without the cost of kiln_constant; false for other operators.
static bool eval_plain(kiln_expr_kind k, int64_t a, int64_t b, int64_t *out) {
  const uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
  const bool is_floor = b > 0 && a % b < 0;
  switch ((int)k) {
  case KILN_EXPR_ADD: *out = (int64_t)(ua + ub); return true;
  case KILN_EXPR_SUB: *out = (int64_t)(ua - ub); return true;
  case KILN_EXPR_MUL: *out = (int64_t)(ua * ub); return true;
  case KILN_EXPR_DIV: *out = b > 0 ? a / b - is_floor : 0; return b > 0;
  case KILN_EXPR_MOD: *out = b > 0 ? a % b + (is_floor ? b : 0) : 0; return b > 0;
  case KILN_EXPR_AND: *out = a && b; return true;
  case KILN_EXPR_OR: *out = a || b; return true;
  case KILN_EXPR_MIN: *out = a < b ? a : b; return true;
  case KILN_EXPR_MAX: *out = a > b ? a : b; return true;
  case KILN_EXPR_LT: *out = a < b; return true;
  case KILN_EXPR_LE: *out = a <= b; return true;
  case KILN_EXPR_GT: *out = a > b; return true;
  case KILN_EXPR_GE: *out = a >= b; return true;
  case KILN_EXPR_EQ: *out = a == b; return true;
  case KILN_EXPR_NE: *out = a != b; return true;
  default: return false; // kiln_fold_binary computes the rest
  }
}

static int64_t compute_index(sim *m, const kiln_expr *e) {
  if (e->kind == KILN_EXPR_SELECT)
    return kiln_sim_eval_index(m, e->args[kiln_sim_eval_index(m, e->args[0]) ? 1 : 2]);
  if (e->kind == KILN_EXPR_LOAD || e->n_args != 2 || !is_plain(e->args[0]->dtype))
    return eval(m, e).i;
  const kiln_dtype t = e->args[0]->dtype;
  const int64_t a = kiln_sim_eval_index(m, e->args[0]), b = kiln_sim_eval_index(m, e->args[1]);
  int64_t value;
  if (eval_plain(e->kind, a, b, &value)) return value;
  const kiln_constant x = {.dtype = t, .i = a}, y = {.dtype = t, .i = b};
  return kiln_sim_binary(m, e->kind, x, y).i;
}

// The number of loops around the innermost loop on which |e| depends, including that one.
static int level_of(const sim *m, const kiln_expr *e) {
  int level = 0;
  for (int i = 0; i < e->vars->n; i++)
    if (m->levels[e->vars->vars[i]] > level) level = m->levels[e->vars->vars[i]];
  return level;
}

// The value of an index, cached: indices, bounds and conditions are most of the work. Lanes change
// their variable within an iteration.
static int64_t index_of(sim *m, const kiln_expr *e) {
  if (e->kind == KILN_EXPR_INT) return e->u.i;
  if (e->kind == KILN_EXPR_VAR) return eval_var(m, e).i;
  if (!m->values || e->has_load || m->lanes->n > 1) return compute_index(m, e);
  sim_value *v = &m->values[e->id % SIM_VALUES];
  if (v->e == e && v->turn == m->turns[v->level]) return v->value;
  const int64_t value = compute_index(m, e);
  if (m->status != KILN_OK) return value; // a variable may be undefined
  const int level = v->e == e ? v->level : level_of(m, e);
  *v = (sim_value){e, level, m->turns[level], value};
  return value;
}

static kiln_constant value_of(sim *m, const kiln_expr *e) {
  if (!is_plain(e->dtype)) return eval(m, e);
  return (kiln_constant){.dtype = e->dtype, .i = index_of(m, e)};
}

// Whether |e| is part of an expression whose tree is large; each of its nodes is then computed
// once.
static bool is_shared(const sim *m, const kiln_expr *e) {
  return (m->known && e->n_args > 0) || e->n_tree > KILN_LONG_TREE;
}

static void drop(void *arena) { kiln_arena_deinit(arena); }

// Values lie in an arena of their own: loads keep what they note of elements in the scratch arena.
static kiln_constant eval_once(sim *m, const kiln_expr *e) {
  kiln_arena own;
  kiln_map known;
  const bool is_first = !m->known;
  if (is_first) {
    kiln_arena_init(&own, m->cx->perm.on_oom);
    kiln_cleanup_push(m->cx, drop, &own);
    kiln_map_init(&known, &own);
    m->known = &known;
    m->values_of = &own;
  }
  const uint64_t *found = kiln_map_find(m->known, e->id);
  kiln_constant *value = found ? (kiln_constant *)(uintptr_t)*found : NULL;
  if (!value) {
    value = KILN_NEW(m->values_of, kiln_constant);
    *value = value_of(m, e);
    kiln_map_put(m->known, e->id, (uint64_t)(uintptr_t)value);
  }
  const kiln_constant result = *value;
  if (is_first) {
    m->known = NULL;
    kiln_cleanup_pop(m->cx);
    drop(&own);
  }
  return result;
}

int64_t kiln_sim_eval_index(sim *m, const kiln_expr *e) {
  return is_shared(m, e) ? eval_once(m, e).i : index_of(m, e);
}

kiln_constant kiln_sim_eval(sim *m, const kiln_expr *e) {
  return is_shared(m, e) ? eval_once(m, e) : value_of(m, e);
}

// --- elements ---

// The number of the element at |index|, checked against the extents.
static int64_t computed(sim *m, const sim_cell *c, const kiln_expr *const *index) {
  const kiln_buffer *b = c->buffer;
  int64_t element = kiln_sim_own_copy(m, c);
  for (int k = 0; k < b->rank && m->status == KILN_OK; k++) {
    const int64_t i = kiln_sim_eval_index(m, index[k]);
    if (i < 0 || i >= b->extents[k])
      kiln_sim_fail(m, "buffer %s: index %d must lie in [0, %" PRId64 "), got %" PRId64,
                    kiln_symbol_text(m->cx, b->name), k, b->extents[k], i);
    else element += i * b->strides[k];
  }
  return element;
}

// --- elements along a loop ---

bool kiln_sim_step_of(const kiln_expr *e, kiln_symbol var, int64_t *out) {
  int64_t a = 0, b = 0, factor = 0;
  *out = 0;
  if (e->has_load || e->dtype != KILN_I64 || e->n_tree > KILN_LONG_TREE) return false;
  if (!kiln_expr_uses(e, var)) return true;
  if (e->kind == KILN_EXPR_VAR) return *out = 1, true;
  if (e->kind != KILN_EXPR_ADD && e->kind != KILN_EXPR_SUB && e->kind != KILN_EXPR_MUL)
    return false;
  const kiln_expr *x = e->args[0], *y = e->args[1];
  if (e->kind == KILN_EXPR_MUL) {
    const bool is_left = kiln_expr_is_int(x, &factor);
    if (!is_left && !kiln_expr_is_int(y, &factor)) return false;
    if (!kiln_sim_step_of(is_left ? y : x, var, &a)) return false;
    return !__builtin_mul_overflow(a, factor, out);
  }
  if (!kiln_sim_step_of(x, var, &a) || !kiln_sim_step_of(y, var, &b)) return false;
  return e->kind == KILN_EXPR_ADD ? !__builtin_add_overflow(a, b, out)
                                  : !__builtin_sub_overflow(a, b, out);
}

static sim_walk walk_of(sim *m, const sim_cell *c, const kiln_expr *const *index) {
  const kiln_buffer *b = c->buffer;
  const kiln_symbol var = m->inner[m->level];
  const int64_t last = m->extents[m->level] - 1, at = m->vars[var];
  sim_walk w = {index, c, var, m->level, m->turns[m->level - 1], false, 0, 0};
  for (int k = 0; k < b->rank; k++) {
    int64_t step = 0;
    if (!kiln_sim_step_of(index[k], var, &step)) return w;
    const int64_t i = kiln_sim_eval_index(m, index[k]),
                  from = kiln_sub_sat(i, kiln_mul_sat(step, at)),
                  to = kiln_add_sat(from, kiln_mul_sat(step, last));
    if (kiln_min_i64(from, to) < 0 || from >= b->extents[k] || to >= b->extents[k]) return w;
    w.first += from * b->strides[k];
    w.step += step * b->strides[k];
  }
  w.is_even = m->status == KILN_OK;
  return w;
}

static int64_t walked(sim *m, const sim_cell *c, const kiln_expr *const *index) {
  const uintptr_t hash = (uintptr_t)index / sizeof *index;
  sim_walk *w = &m->walks[(hash ^ hash >> 10) % SIM_WALKS];
  const kiln_symbol var = m->inner[m->level];
  if (w->index != index || w->cell != c || w->var != var || w->level != m->level ||
      w->turn != m->turns[m->level - 1])
    *w = walk_of(m, c, index);
  return w->is_even ? w->first + w->step * m->vars[var] : computed(m, c, index);
}

int64_t kiln_sim_element(sim *m, const sim_cell *c, const kiln_expr *const *index) {
  enum { SHORT = 3 }; // fewer iterations, for which a walk does not pay
  kiln_sim_check_place(m, c);
  if (!c->alive)
    kiln_sim_fail(m, "buffer %s must be used inside of its alloc",
                  kiln_symbol_text(m->cx, c->buffer->name));
  const bool walks = m->walks && m->lanes->n == 1 && m->level > 0 && m->extents[m->level] > SHORT;
  const int64_t element = walks ? walked(m, c, index) : computed(m, c, index);
  if (c->is_spread && m->status == KILN_OK) kiln_sim_check_owner(m, c, element);
  return m->status == KILN_OK ? element : -1;
}

// --- values that are kept ---

static uint32_t max_var(const kiln_loop *first, uint32_t max) {
  for (; first; first = first->next) {
    if (first->kind == KILN_LOOP_FOR && first->var > max) max = first->var;
    max = max_var(first->body, max);
  }
  return max;
}

// --- values that are kept ---

void kiln_sim_keep_values(sim *m, int n_levels) {
  kiln_arena *a = &m->cx->scratch;
  m->values = KILN_NEW_ARRAY(a, sim_value, SIM_VALUES);
  m->levels = KILN_NEW_ARRAY(a, int, m->n_vars);
  m->turns = KILN_NEW_ARRAY(a, int64_t, n_levels + 1);
  m->inner = KILN_NEW_ARRAY(a, kiln_symbol, n_levels + 1);
  m->extents = KILN_NEW_ARRAY(a, int64_t, n_levels + 1);
  m->walks = KILN_NEW_ARRAY(a, sim_walk, SIM_WALKS);
  m->turns[0] = ++m->n_turns;
}

// Indices with |var| stay cached as long as its loop has the same depth.
void kiln_sim_begin_loop(sim *m, kiln_symbol var, int64_t extent) {
  m->level++;
  m->inner[m->level] = var;
  m->extents[m->level] = extent;
  if (m->levels[var] != m->level) memset(m->values, 0, SIM_VALUES * sizeof *m->values);
  m->levels[var] = m->level;
}

void kiln_sim_turn(sim *m, kiln_symbol var, int64_t i) {
  m->vars[var] = i;
  m->turns[m->level] = ++m->n_turns;
}

void kiln_sim_end_loop(sim *m) { m->level--; }

uint32_t kiln_sim_n_vars(const kiln_loops *l) { return max_var(l->body, 0) + 1; }

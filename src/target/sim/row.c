// Rows: one store at all iterations of the loop around it, or in all lanes, at once.
//
// Most of what the simulator runs are the innermost loops of products. Where each access of a store
// moves evenly along the loop, what must hold of all its elements is checked first; nothing being
// wrong, they are read, the value is computed operator by operator, and results are written. Where
// something is wrong nothing is done, and the points run one by one, which says where.
#include "target/sim/eval.h"

// --- the list of operators ---

typedef struct maker {
  sim *m;
  sim_row *r;
} maker;

// How the indices of an access of |buffer| move; false: unevenly.
static bool add_access(const maker *k, sim_row_load *out, int buffer, int rank,
                       const kiln_expr *const *index) {
  *out = (sim_row_load){.buffer = buffer, .rank = rank, .index = index};
  for (int i = 0; i < rank; i++)
    if (!kiln_sim_step_of(index[i], k->r->var, &out->steps[i])) return false;
  return true;
}

static int add_node(const maker *k, sim_row_node x) {
  sim_row *r = k->r;
  if (r->n_nodes == SIM_ROW_NODES) return -1;
  r->nodes[r->n_nodes] = x;
  return r->n_nodes++;
}

static int add_load(const maker *k, const kiln_expr *e) {
  sim_row *r = k->r;
  const int n = r->n_loads;
  if (n == SIM_ROW_LOADS || e->u.tensor == r->store->buffer) return -1;
  if (!add_access(k, &r->loads[n], e->u.tensor, e->n_args, e->args)) return -1;
  r->n_loads++;
  return add_node(k, (sim_row_node){.e = e, .load = n});
}

// The number of |e|'s node; -1: it has none.
static int add_value(const maker *k, const kiln_expr *e) {
  if (e->kind == KILN_EXPR_LOAD) return add_load(k, e);
  if (!e->has_load && !kiln_expr_uses(e, k->r->var))
    return add_node(k, (sim_row_node){.e = e, .load = -1, .is_even = true});
  if (e->kind == KILN_EXPR_SELECT || e->kind == KILN_EXPR_VAR || e->n_args > 2) return -1;
  sim_row_node x = {.e = e, .load = -1};
  x.a = add_value(k, e->args[0]);
  x.b = e->n_args > 1 ? add_value(k, e->args[1]) : 0;
  return x.a < 0 || x.b < 0 ? -1 : add_node(k, x);
}

static sim_row *make(sim *m, const kiln_loop *store, const kiln_expr *value, kiln_symbol var,
                     int rank) {
  sim_row r = {.store = store, .value = value, .var = var};
  const maker k = {m, &r};
  if (value->n_tree > KILN_LONG_TREE || add_value(&k, value) < 0) return NULL;
  if (!add_access(&k, &r.to, store->buffer, rank, store->index)) return NULL;
  sim_row *kept = KILN_NEW(&m->cx->perm, sim_row);
  *kept = r;
  return kept;
}

const sim_row *kiln_sim_row_find(sim *m, const kiln_loop *store, const kiln_expr *value, int rank,
                                 kiln_symbol var) {
  const uint64_t key = (uint64_t)(uintptr_t)store ^ (uint64_t)value->id << 48 ^ (uint64_t)var << 56;
  const uint64_t *found = kiln_map_find(&m->rows, key);
  sim_row *r = found ? (sim_row *)(uintptr_t)*found : NULL;
  if (found && (!r || (r->store == store && r->value == value && r->var == var))) return r;
  r = make(m, store, value, var, rank);
  kiln_map_put(&m->rows, key, (uint64_t)(uintptr_t)r);
  return r;
}

// --- values ---

static bool is_f32(const kiln_constant *a, const kiln_constant *b) {
  return a->dtype == KILN_F32 && b->dtype == KILN_F32;
}

static void binary(sim *m, kiln_expr_kind kind, int n, const kiln_constant *a,
                   const kiln_constant *b, kiln_constant *out) {
  const bool is_plain = is_f32(a, b); // of all points
  if (is_plain && kind == KILN_EXPR_MUL)
    for (int k = 0; k < n; k++)
      out[k] = (kiln_constant){.dtype = KILN_F32, .f = (double)(float)(a[k].f * b[k].f)};
  else if (is_plain && kind == KILN_EXPR_ADD)
    for (int k = 0; k < n; k++)
      out[k] = (kiln_constant){.dtype = KILN_F32, .f = (double)(float)(a[k].f + b[k].f)};
  else
    for (int k = 0; k < n; k++) out[k] = kiln_sim_binary(m, kind, a[k], b[k]);
}

static void convert(kiln_dtype t, int n, const kiln_constant *a, kiln_constant *out) {
  const bool is_same = t == KILN_F32 && a->dtype == KILN_F32; // of a half, computed as one
  for (int k = 0; k < n; k++) out[k] = is_same ? a[k] : kiln_sim_convert(t, a[k]);
}

static void unary(sim *m, const kiln_expr *e, int n, const kiln_constant *a, kiln_constant *out) {
  const kiln_dtype t = kiln_dtype_is_half(e->dtype) ? KILN_F32 : e->dtype;
  for (int k = 0; k < n; k++) {
    out[k] = (kiln_constant){.dtype = t};
    if (!kiln_fold_unary(e->kind, a[k], &out[k])) out[k] = kiln_sim_no_value(m, e->kind, t);
  }
}

void kiln_sim_row_values(sim *m, const sim_row *r, int n, kiln_constant (*loaded)[SIM_ROW_POINTS],
                         kiln_constant *out) {
  kiln_constant computed[SIM_ROW_NODES][SIM_ROW_POINTS];
  const kiln_constant *values[SIM_ROW_NODES];
  for (int i = 0; i < r->n_nodes; i++) {
    const sim_row_node *x = &r->nodes[i];
    kiln_constant *to = i + 1 == r->n_nodes ? out : computed[i];
    values[i] = to;
    if (x->load >= 0) {
      values[i] = loaded[x->load];
      for (int k = 0; k < n && to == out; k++) out[k] = loaded[x->load][k];
    } else if (x->is_even) {
      to[0] = kiln_sim_eval(m, x->e);
      for (int k = 1; k < n; k++) to[k] = to[0];
    } else if (x->e->kind == KILN_EXPR_CAST) {
      convert(x->e->dtype, n, values[x->a], to);
    } else if (x->e->kind == KILN_EXPR_BITCAST) {
      for (int k = 0; k < n; k++) to[k] = kiln_sim_bits(x->e, values[x->a][k]);
    } else if (x->e->n_args == 2) {
      binary(m, x->e->kind, n, values[x->a], values[x->b], to);
    } else {
      unary(m, x->e, n, values[x->a], to);
    }
  }
}

// --- running ---

// The elements of an access, whose variable is 0; false: some lie outside.
static bool place(sim *m, const sim_row_load *x, int64_t n, sim_run *out) {
  const sim_cell *c = &m->cells[x->buffer];
  const kiln_buffer *b = c->buffer;
  *out = (sim_run){.first = kiln_sim_own_copy(m, c), .n = n};
  for (int k = 0; k < x->rank; k++) {
    const int64_t i = kiln_sim_eval_index(m, x->index[k]), last = i + x->steps[k] * (n - 1);
    if (i < 0 || last < 0 || i >= b->extents[k] || last >= b->extents[k]) return false;
    out->first += i * b->strides[k];
    out->step += x->steps[k] * b->strides[k];
  }
  if (m->lanes->n > 1 && c->lanes == m->lanes) out->step += c->elems; // each has its own
  return m->status == KILN_OK;
}

static sim_run part_of(const sim_run *r, int64_t from, int64_t n) {
  return (sim_run){r->first + from * r->step, r->step, n};
}

// Whether a sum of |n| iterations may be kept until they are over: it is rounded as its memory is.
static bool keeps_sum(const sim_row *r, const sim_run *to, kiln_dtype t) {
  return r->store->combiner != KILN_COMBINE_NONE && to->step == 0 &&
         (t == KILN_F32 || t == KILN_F64);
}

void kiln_sim_row_combine(sim *m, kiln_combiner how, int64_t n, const kiln_constant *v,
                          kiln_constant *sum) {
  const bool is_plain = how == KILN_COMBINE_SUM && sum->dtype == KILN_F32;
  for (int64_t k = 0; k < n; k++)
    if (is_plain && v[k].dtype == KILN_F32) sum->f = (double)(float)(sum->f + v[k].f);
    else *sum = kiln_sim_combine(m, how, *sum, v[k]);
}

// Makes the lane or iteration the one that accesses memory.
static void become(sim *m, const sim_row *r, int64_t k) {
  m->vars[r->var] = k;
  if (m->lanes->n > 1) m->lanes->at = k;
}

static void write_all(sim *m, const sim_row *r, const sim_run *to, int64_t from, int64_t n,
                      const kiln_constant *v) {
  sim_cell *c = &m->cells[r->to.buffer];
  const kiln_combiner how = r->store->combiner;
  for (int64_t k = 0; k < n; k++) {
    const int64_t element = to->first + (from + k) * to->step;
    become(m, r, from + k);
    if (how == KILN_COMBINE_NONE) kiln_sim_write(m, c, element, v[k]);
    else
      kiln_sim_write(m, c, element, kiln_sim_combine(m, how, kiln_sim_read(m, c, element), v[k]));
  }
}

static void run_points(sim *m, const sim_row *r, const sim_run *loads, const sim_run *to,
                       int64_t n) {
  kiln_constant loaded[SIM_ROW_LOADS][SIM_ROW_POINTS], v[SIM_ROW_POINTS], sum = {0};
  sim_cell *c = &m->cells[r->to.buffer];
  const bool keeps = keeps_sum(r, to, c->buffer->dtype);
  become(m, r, 0);
  if (keeps) sum = kiln_sim_read(m, c, to->first);
  for (int64_t from = 0; from < n && m->status == KILN_OK; from += SIM_ROW_POINTS) {
    const int64_t here = n - from < SIM_ROW_POINTS ? n - from : SIM_ROW_POINTS;
    for (int i = 0; i < r->n_loads; i++)
      kiln_sim_read_run(m, &m->cells[r->loads[i].buffer], part_of(&loads[i], from, here),
                        loaded[i]);
    become(m, r, 0);
    kiln_sim_row_values(m, r, (int)here, loaded, v);
    if (keeps) kiln_sim_row_combine(m, r->store->combiner, here, v, &sum);
    else write_all(m, r, to, from, here, v);
  }
  if (keeps) kiln_sim_write(m, c, to->first, sum);
}

static const kiln_expr *chosen(sim *m, const kiln_expr *x, kiln_symbol var) {
  while (x->kind == KILN_EXPR_SELECT && !x->args[0]->has_load && !kiln_expr_uses(x->args[0], var))
    x = x->args[kiln_sim_eval_index(m, x->args[0]) ? 1 : 2];
  return x;
}

bool kiln_sim_run_row(sim *m, const kiln_loop *store, kiln_symbol var, int64_t n) {
  sim_run loads[SIM_ROW_LOADS], to;
  const bool is_lanes = m->lanes->n > 1, combines = store->combiner != KILN_COMBINE_NONE;
  if (m->meter || m->status != KILN_OK || (is_lanes && n > SIM_ROW_POINTS)) return false;
  for (int64_t k = 0; is_lanes && k < n; k++)
    if (!m->lanes->on[k]) return false;
  m->vars[var] = 0;
  if (is_lanes) m->lanes->at = 0;
  const kiln_expr *value = chosen(m, store->value, var);
  const sim_row *r = kiln_sim_row_find(m, store, value, m->cells[store->buffer].buffer->rank, var);
  if (!r) return false;
  for (int i = 0; i < r->n_loads; i++)
    if (!place(m, &r->loads[i], n, &loads[i]) ||
        !kiln_sim_may_touch(m, &m->cells[r->loads[i].buffer], loads[i], true))
      return false;
  if (!place(m, &r->to, n, &to) || (is_lanes && to.step == 0)) return false;
  if (!kiln_sim_may_touch(m, &m->cells[r->to.buffer], to, combines)) return false;
  run_points(m, r, loads, &to, n);
  return true;
}

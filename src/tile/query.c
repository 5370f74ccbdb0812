// Properties of statements that several passes of the scheduler need.
#include "tile/query.h"

typedef struct load_visit {
  kiln_arena *arena;
  kiln_loads *loads;
} load_visit;

static void collect_load(const kiln_expr *e, void *argument) {
  load_visit *v = argument;
  KILN_VEC_PUSH(v->arena, v->loads, e);
}

kiln_loads kiln_loads_of(kiln_ctx *cx, kiln_arena *arena, const kiln_expr *e) {
  kiln_loads loads = {0};
  load_visit v = {arena, &loads};
  kiln_expr_visit_loads(cx, e, collect_load, &v);
  return loads;
}

static void append_loads(kiln_ctx *cx, kiln_arena *arena, const kiln_expr *e, kiln_loads *to) {
  kiln_loads more = kiln_loads_of(cx, arena, e);
  for (int i = 0; i < more.n; i++) {
    bool known = false;
    for (int j = 0; j < to->n && !known; j++) known = to->data[j] == more.data[i];
    if (!known) KILN_VEC_PUSH(arena, to, more.data[i]);
  }
}

kiln_loads kiln_stmt_loads(kiln_ctx *cx, kiln_arena *arena, const kiln_program *p,
                           const kiln_stmt *s) {
  kiln_loads loads = kiln_loads_of(cx, arena, s->body);
  append_loads(cx, arena, s->guard, &loads);
  append_loads(cx, arena, s->init, &loads);
  for (int k = 0; k < p->tensors.data[s->out]->rank; k++)
    append_loads(cx, arena, s->index[k], &loads);
  int n = 0;
  for (int k = 0; k < loads.n; k++)
    if (loads.data[k]->u.tensor != s->out) loads.data[n++] = loads.data[k];
  loads.n = n;
  return loads;
}

kiln_users kiln_users_make(kiln_ctx *cx, kiln_arena *arena, const kiln_program *p) {
  kiln_users u = {KILN_NEW_ARRAY(arena, int, p->tensors.n + 1), NULL};
  KILN_VEC(kiln_map_entry) pairs = {0}; // (tensor, statement), by statement
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    if (!s) continue;
    kiln_loads loads = kiln_stmt_loads(cx, arena, p, s);
    for (int j = 0; j < loads.n; j++) {
      int t = loads.data[j]->u.tensor;
      bool seen = false;
      for (int k = pairs.n - 1; k >= 0 && !seen && pairs.data[k].value == (uint64_t)i; k--)
        seen = pairs.data[k].key == (uint64_t)t;
      if (!seen) KILN_VEC_PUSH(arena, &pairs, (kiln_map_entry){(uint64_t)t, (uint64_t)i});
    }
  }
  for (int k = 0; k < pairs.n; k++) u.first[pairs.data[k].key + 1]++;
  for (int t = 0; t < p->tensors.n; t++) u.first[t + 1] += u.first[t];
  u.users = KILN_NEW_ARRAY(arena, int, pairs.n);
  int *at = KILN_NEW_ARRAY(arena, int, p->tensors.n);
  for (int k = 0; k < pairs.n; k++) {
    int t = (int)pairs.data[k].key;
    u.users[u.first[t] + at[t]++] = (int)pairs.data[k].value;
  }
  return u;
}

bool kiln_stmt_is_map(const kiln_ctx *cx, const kiln_stmt *s) {
  return s->n_reduce == 0 && !s->guard && s->combiner == KILN_COMBINE_NONE &&
         kiln_stmt_is_plain(cx, s);
}

bool kiln_stmt_is_layout(const kiln_ctx *cx, const kiln_stmt *s) {
  if (!kiln_stmt_is_map(cx, s) || s->body->kind != KILN_EXPR_LOAD) return false;
  for (int k = 0; k < s->body->n_args; k++)
    if (kiln_expr_has_load(s->body->args[k])) return false;
  return true;
}

// The operand under casts, and shifts and masks by constants.
static const kiln_expr *under_decoding(const kiln_expr *e) {
  for (;;) {
    const bool is_unary = e->kind == KILN_EXPR_CAST || e->kind == KILN_EXPR_BITCAST,
               is_binary = e->kind == KILN_EXPR_SHL || e->kind == KILN_EXPR_BAND;
    if (!is_unary && !(is_binary && e->args[1]->kind == KILN_EXPR_INT)) return e;
    e = e->args[0];
  }
}

bool kiln_stmt_is_contraction(const kiln_stmt *s, const kiln_expr **out_a,
                              const kiln_expr **out_b) {
  if (s->combiner != KILN_COMBINE_SUM || s->n_reduce == 0 || s->guard || s->init ||
      s->body->kind != KILN_EXPR_MUL)
    return false;
  const kiln_expr *a = under_decoding(s->body->args[0]), *b = under_decoding(s->body->args[1]);
  if (a->kind != KILN_EXPR_LOAD || b->kind != KILN_EXPR_LOAD || a == b)
    return false; // x*x is a sum of squares, a reduction
  for (int k = 0; k < a->n_args; k++)
    if (kiln_expr_has_load(a->args[k])) return false;
  for (int k = 0; k < b->n_args; k++)
    if (kiln_expr_has_load(b->args[k])) return false;
  *out_a = a;
  *out_b = b;
  return true;
}

// |e| without casts that lose nothing: a factor has the type that it has in memory.
static const kiln_expr *through_widening(const kiln_expr *e) {
  while (e->kind == KILN_EXPR_CAST &&
         kiln_dtype_bytes(e->args[0]->dtype) < kiln_dtype_bytes(e->dtype))
    e = e->args[0];
  return e;
}

static bool moves_alone(const kiln_stmt *s, const kiln_expr *e, const kiln_expr *other) {
  for (int d = 0; d < s->n_space; d++)
    if (kiln_expr_uses(e, s->dims[d].name) && !kiln_expr_uses(other, s->dims[d].name)) return true;
  return false;
}

bool kiln_stmt_is_product(const kiln_stmt *s, const kiln_expr **out_a, const kiln_expr **out_b) {
  if (kiln_stmt_is_contraction(s, out_a, out_b)) return true;
  if (s->combiner != KILN_COMBINE_SUM || s->n_reduce == 0 || s->guard || s->init ||
      s->body->kind != KILN_EXPR_MUL)
    return false;
  const kiln_expr *a = through_widening(s->body->args[0]), *b = through_widening(s->body->args[1]);
  if (!kiln_expr_has_load(a) || !kiln_expr_has_load(b)) return false;
  if (!moves_alone(s, a, b) || !moves_alone(s, b, a)) return false;
  *out_a = a;
  *out_b = b;
  return true;
}

int64_t kiln_stmt_domain(const kiln_stmt *s) {
  int64_t n = 1;
  for (int k = 0; k < s->n_space + s->n_reduce; k++) n *= kiln_dim_extent(&s->dims[k]);
  return n;
}

static int op_cost(const kiln_expr *e) {
  if (e->kind <= KILN_EXPR_LOAD || e->dtype == KILN_BOOL) return 0;
  if (e->kind == KILN_EXPR_SELECT || e->kind == KILN_EXPR_CAST) return 1;
  if (e->kind == KILN_EXPR_DIV || e->kind == KILN_EXPR_SQRT)
    return kiln_dtype_is_float(e->dtype) ? 6 : 1;
  if (e->kind == KILN_EXPR_POW || e->kind == KILN_EXPR_ATAN2 || e->kind >= KILN_EXPR_EXP) return 20;
  return 1;
}

static void add_cost(const kiln_expr *e, void *argument) {
  int *cost = argument;
  if (kiln_dtype_is_float(e->dtype)) *cost += op_cost(e);
}

int kiln_expr_cost(kiln_ctx *cx, const kiln_expr *e) {
  int cost = 0;
  kiln_expr_visit(cx, e, add_cost, &cost);
  return cost;
}

double kiln_program_flops(kiln_ctx *cx, const kiln_program *p) {
  double flops = 0;
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    const int per = kiln_expr_cost(cx, s->body) + (s->combiner != KILN_COMBINE_NONE);
    flops += per * (double)kiln_stmt_domain(s);
  }
  return flops;
}

const kiln_expr *kiln_stmt_largest_load(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, s);
  const kiln_expr *best = NULL;
  for (int i = 0; i < loads.n; i++)
    if (!best || kiln_tensor_elems(p->tensors.data[loads.data[i]->u.tensor]) >
                     kiln_tensor_elems(p->tensors.data[best->u.tensor]))
      best = loads.data[i];
  return best;
}

static void find_bend(const kiln_expr *e, void *argument) {
  if (e->kind == KILN_EXPR_SELECT || e->kind == KILN_EXPR_MIN || e->kind == KILN_EXPR_MAX ||
      e->kind == KILN_EXPR_MOD)
    *(bool *)argument = true;
}

bool kiln_load_bends(kiln_ctx *cx, const kiln_expr *load, kiln_symbol var) {
  bool bends = false;
  for (int k = 0; k < load->n_args; k++)
    if (kiln_expr_uses(load->args[k], var)) kiln_expr_visit(cx, load->args[k], find_bend, &bends);
  return bends;
}

// The difference of |index| between two neighbouring points along |var|, if it is constant.
static int64_t step_of(kiln_ctx *cx, const kiln_expr *index, kiln_symbol var,
                       const kiln_ranges *r) {
  const kiln_expr *x = kiln_var(cx, var), *next = kiln_add(cx, x, kiln_int(cx, 1));
  const kiln_expr *step = kiln_sub(cx, kiln_expr_substitute(cx, index, 1, &var, &next), index);
  int64_t constant;
  return kiln_expr_affine(kiln_simplify(cx, step, r), 0, NULL, NULL, &constant) ? constant
                                                                                : INT64_MAX;
}

int64_t kiln_load_stride(kiln_ctx *cx, const kiln_program *p, const kiln_expr *load,
                         kiln_symbol var) {
  int64_t strides[KILN_MAX_RANK], total = 0;
  kiln_ranges none;
  kiln_ranges_init(&none, &cx->scratch);
  kiln_tensor_strides(p->tensors.data[load->u.tensor], strides);
  for (int k = 0; k < load->n_args; k++) {
    if (!kiln_expr_uses(load->args[k], var)) continue;
    const int64_t step = step_of(cx, load->args[k], var, &none);
    if (step == INT64_MAX) return INT64_MAX;
    total += step * strides[k];
  }
  return total;
}

int64_t kiln_stmt_load_stride(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                              const kiln_expr *load, kiln_symbol var) {
  const int64_t by_axis = kiln_load_stride(cx, p, load, var);
  if (by_axis != INT64_MAX) return by_axis;
  const kiln_ranges r = kiln_stmt_ranges(&cx->scratch, s);
  int64_t strides[KILN_MAX_RANK];
  const kiln_expr *sum = kiln_int(cx, 0);
  kiln_tensor_strides(p->tensors.data[load->u.tensor], strides);
  for (int k = 0; k < load->n_args; k++)
    sum = kiln_add(cx, sum, kiln_mul(cx, load->args[k], kiln_int(cx, strides[k])));
  return step_of(cx, kiln_simplify(cx, sum, &r), var, &r);
}

typedef enum lie { LIE_APART, LIE_IN_WORDS, LIE_AT_ONE } lie;

// How |vector| neighbours along dim |x| of |s|, an aligned group, are stored in |load|'s tensor:
// contiguous and aligned, one element, or otherwise.
static lie lie_of(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, const kiln_expr *load,
                  const kiln_dim *x, int64_t vector) {
  const kiln_expr *offset = kiln_int(cx, 0);
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(p->tensors.data[load->u.tensor], strides);
  for (int k = 0; k < load->n_args; k++)
    offset = kiln_add(cx, offset, kiln_mul(cx, load->args[k], kiln_int(cx, strides[k])));
  kiln_ranges r = kiln_stmt_ranges(&cx->scratch, s);
  const kiln_symbol lane = kiln_symbol_of(cx, "word.lane"), word = kiln_symbol_of(cx, "word");
  kiln_ranges_push(&r, lane, 0, vector - 1);
  kiln_ranges_push(&r, word, 0, kiln_dim_extent(x) / vector - 1);
  const kiln_expr *first = kiln_mul(cx, kiln_var(cx, word), kiln_int(cx, vector)),
                  *at = kiln_add(cx, first, kiln_var(cx, lane));
  const kiln_expr *base = kiln_expr_substitute(cx, offset, 1, &x->name, &first),
                  *there = kiln_expr_substitute(cx, offset, 1, &x->name, &at);
  const kiln_expr *apart = kiln_simplify(
      cx, kiln_sub(cx, kiln_simplify(cx, there, &r), kiln_simplify(cx, base, &r)), &r);
  if (kiln_expr_is_zero(apart)) return LIE_AT_ONE;
  return apart == kiln_var(cx, lane) &&
                 kiln_expr_is_zero(kiln_simplify(cx, kiln_mod(cx, base, kiln_int(cx, vector)), &r))
             ? LIE_IN_WORDS
             : LIE_APART;
}

bool kiln_stmt_reads_words(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, int d,
                           int64_t vector) {
  const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, s);
  int n_words = 0;
  if (kiln_dim_extent(&s->dims[d]) % vector) return false;
  for (int i = 0; i < loads.n; i++) {
    const lie how = lie_of(cx, p, s, loads.data[i], &s->dims[d], vector);
    if (how == LIE_APART) return false;
    n_words += how == LIE_IN_WORDS;
  }
  return n_words > 0;
}

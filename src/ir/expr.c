// Expressions: the intern table, constructors with constant folding, and traversals. A traversal
// visits each distinct node once, since an inlined expression is a DAG whose tree may be
// exponential.
#include "ir/expr.h"

#include "ir/encoding.h"
#include "ir/fold.h"
#include "ir/stored.h"

#include <math.h>
#include <string.h>

// --- interning ---

struct kiln_expr_table {
  const kiln_expr **slots; // [n_slots], a power of two; NULL is empty
  uint64_t *hashes;        // [n_slots]
  size_t n_slots, n;
  const kiln_expr_vars *no_vars;
};

static void table_put(struct kiln_expr_table *t, const kiln_expr *e, uint64_t hash) {
  size_t i = hash & (t->n_slots - 1);
  while (t->slots[i]) i = (i + 1) & (t->n_slots - 1);
  t->slots[i] = e;
  t->hashes[i] = hash;
}

static void table_grow(kiln_ctx *cx, struct kiln_expr_table *t) {
  const struct kiln_expr_table old = *t;
  const size_t n_slots = old.n_slots ? old.n_slots * 2 : 1024;
  const kiln_expr **slots = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n_slots);
  t->hashes = KILN_NEW_ARRAY(&cx->perm, uint64_t, n_slots);
  t->slots = slots;
  t->n_slots = n_slots;
  for (size_t i = 0; i < old.n_slots; i++) {
    if (old.slots[i]) table_put(t, old.slots[i], old.hashes[i]);
  }
}

static struct kiln_expr_table *table_of(kiln_ctx *cx) {
  if (!cx->exprs) {
    struct kiln_expr_table *t = KILN_NEW(&cx->perm, struct kiln_expr_table);
    t->no_vars = KILN_NEW(&cx->perm, kiln_expr_vars);
    cx->exprs = t;
  }
  if (cx->exprs->n * 2 >= cx->exprs->n_slots) table_grow(cx, cx->exprs);
  return cx->exprs;
}

// The payload as bits, so that -0.0 and 0.0 differ and a NaN equals itself.
static uint64_t payload(const kiln_expr *e) {
  uint64_t bits = 0;
  if (e->kind == KILN_EXPR_INT) bits = (uint64_t)e->u.i;
  if (e->kind == KILN_EXPR_FLOAT) memcpy(&bits, &e->u.f, sizeof bits);
  if (e->kind == KILN_EXPR_VAR) bits = e->u.sym;
  if (e->kind == KILN_EXPR_LOAD) bits = (uint64_t)(int64_t)e->u.tensor;
  if (e->kind == KILN_EXPR_CAST) bits = (uint64_t)e->u.i;
  return bits;
}

static const kiln_expr_vars *vars_union(kiln_ctx *cx, const kiln_expr_vars *a,
                                        const kiln_expr_vars *b) {
  if (a == b || b->n == 0) return a;
  if (a->n == 0) return b;
  kiln_expr_vars *u =
      kiln_arena_alloc(&cx->walk, sizeof(*u) + (size_t)(a->n + b->n) * sizeof(kiln_symbol));
  u->n = 0;
  for (int i = 0, j = 0; i < a->n || j < b->n;) {
    const bool take_a = j == b->n || (i < a->n && a->vars[i] <= b->vars[j]);
    const kiln_symbol v = take_a ? a->vars[i] : b->vars[j];
    i += i < a->n && a->vars[i] == v;
    j += j < b->n && b->vars[j] == v;
    u->vars[u->n++] = v;
  }
  if (u->n == a->n) return a;
  if (u->n == b->n) return b;
  const size_t bytes = sizeof(*u) + (size_t)u->n * sizeof(kiln_symbol);
  return memcpy(kiln_arena_alloc(&cx->perm, bytes), u, bytes);
}

static const kiln_expr_vars *vars_of(kiln_ctx *cx, const kiln_expr *e) {
  if (e->kind == KILN_EXPR_VAR) {
    kiln_expr_vars *one = kiln_arena_alloc(&cx->perm, sizeof(*one) + sizeof(kiln_symbol));
    one->n = 1;
    one->vars[0] = e->u.sym;
    return one;
  }
  const kiln_mark mark = kiln_arena_mark(&cx->walk);
  const kiln_expr_vars *vars = cx->exprs->no_vars;
  for (int i = 0; i < e->n_args; i++) vars = vars_union(cx, vars, e->args[i]->vars);
  kiln_arena_rewind(&cx->walk, mark);
  return vars;
}

static bool same(const kiln_expr *e, const kiln_expr *head, const kiln_expr *const *args) {
  if (e->kind != head->kind || e->dtype != head->dtype || e->n_args != head->n_args ||
      payload(e) != payload(head))
    return false;
  for (int i = 0; i < e->n_args; i++) {
    if (e->args[i] != args[i]) return false;
  }
  return true;
}

static uint64_t hash_word(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 29;
}

// The unique node equal to |head| with |args|.
static const kiln_expr *intern(kiln_ctx *cx, const kiln_expr *head, const kiln_expr *const *args) {
  struct kiln_expr_table *t = table_of(cx);
  const int n = head->n_args;
  uint64_t hash = (uint64_t)head->kind << 16 | (uint64_t)head->dtype << 8 | (uint64_t)n;
  hash = hash_word(hash_word(0, hash), payload(head));
  for (int i = 0; i < n; i++) hash = hash_word(hash, args[i]->id);
  for (size_t i = hash & (t->n_slots - 1); t->slots[i]; i = (i + 1) & (t->n_slots - 1)) {
    if (t->hashes[i] == hash && same(t->slots[i], head, args)) return t->slots[i];
  }
  kiln_expr *e = kiln_arena_alloc(&cx->perm, sizeof(*e) + (size_t)n * sizeof(e->args[0]));
  *e = *head;
  e->has_load = head->kind == KILN_EXPR_LOAD;
  e->loaded = e->has_load ? (uint64_t)1 << (head->u.tensor & 63) : 0;
  e->n_tree = 1;
  for (int i = 0; i < n; i++) {
    e->args[i] = args[i];
    e->has_load |= args[i]->has_load;
    e->loaded |= args[i]->loaded;
    if (__builtin_add_overflow(e->n_tree, args[i]->n_tree, &e->n_tree)) e->n_tree = UINT32_MAX;
  }
  e->vars = vars_of(cx, e);
  e->id = (uint32_t)t->n++;
  table_put(t, e, hash);
  return e;
}

// --- constructors ---

const kiln_expr *kiln_int_of(kiln_ctx *cx, kiln_dtype t, int64_t value) {
  KILN_ASSERT(!kiln_dtype_is_float(t));
  const kiln_expr head = {.kind = KILN_EXPR_INT, .dtype = t, .u.i = kiln_int_wrap(t, value)};
  return intern(cx, &head, NULL);
}

const kiln_expr *kiln_int(kiln_ctx *cx, int64_t value) { return kiln_int_of(cx, KILN_I64, value); }

static const kiln_expr *boolean(kiln_ctx *cx, bool value) {
  return kiln_int_of(cx, KILN_BOOL, value);
}

const kiln_expr *kiln_float(kiln_ctx *cx, kiln_dtype t, double value) {
  KILN_ASSERT(kiln_dtype_is_float(t));
  kiln_expr head = {.kind = KILN_EXPR_FLOAT, .dtype = t};
  // A single NaN, so that interning works.
  head.u.f = isnan(value) ? (double)NAN : kiln_float_round(t, value);
  return intern(cx, &head, NULL);
}

const kiln_expr *kiln_number(kiln_ctx *cx, kiln_dtype t, double value) {
  if (kiln_dtype_is_float(t)) return kiln_float(cx, t, value);
  if (kiln_dtype_is_code(t)) return kiln_int_of(cx, t, kiln_encoding_of(t, value));
  return kiln_int_of(cx, t, kiln_int_saturate(t, value));
}

static const kiln_expr *constant(kiln_ctx *cx, kiln_constant c) {
  return kiln_dtype_is_float(c.dtype) ? kiln_float(cx, c.dtype, c.f)
                                      : kiln_int_of(cx, c.dtype, c.i);
}

const kiln_expr *kiln_var(kiln_ctx *cx, kiln_symbol name) {
  const kiln_expr head = {.kind = KILN_EXPR_VAR, .dtype = KILN_I64, .u.sym = name};
  return intern(cx, &head, NULL);
}

const kiln_expr *kiln_load(kiln_ctx *cx, int tensor, kiln_dtype t, int n,
                           const kiln_expr *const *index) {
  const kiln_expr head = {.kind = KILN_EXPR_LOAD, .dtype = t, .n_args = n, .u.tensor = tensor};
  return intern(cx, &head, index);
}

static bool is_int_value(const kiln_expr *e, int64_t value) {
  return e->kind == KILN_EXPR_INT && e->u.i == value;
}

static bool is_float_value(const kiln_expr *e, double value) {
  return e->kind == KILN_EXPR_FLOAT && e->u.f == value && signbit(e->u.f) == signbit(value);
}

// The comparison that is the negation of |k|, for ordered values.
static kiln_expr_kind negated(kiln_expr_kind k) {
  if (k == KILN_EXPR_LT) return KILN_EXPR_GE;
  if (k == KILN_EXPR_LE) return KILN_EXPR_GT;
  if (k == KILN_EXPR_GT) return KILN_EXPR_LE;
  if (k == KILN_EXPR_GE) return KILN_EXPR_LT;
  return k == KILN_EXPR_EQ ? KILN_EXPR_NE : KILN_EXPR_EQ;
}

static const kiln_expr *fold_not(kiln_ctx *cx, const kiln_expr *a) {
  if (a->kind == KILN_EXPR_NOT) return a->args[0];
  if (!kiln_expr_kind_is_cmp(a->kind)) return NULL;
  const bool ordered = !kiln_dtype_is_float(a->args[0]->dtype); // with NaN both < and >= are false
  if (!ordered && a->kind != KILN_EXPR_EQ && a->kind != KILN_EXPR_NE) return NULL;
  return kiln_binary(cx, negated(a->kind), a->args[0], a->args[1]);
}

static const kiln_expr *unary_identity(kiln_ctx *cx, kiln_expr_kind k, const kiln_expr *a) {
  if (kiln_dtype_is_code(a->dtype)) return NULL;
  const bool is_float = kiln_dtype_is_float(a->dtype);
  if (k == KILN_EXPR_NOT) return fold_not(cx, a);
  if (k == KILN_EXPR_NEG && a->kind == k) return a->args[0];
  if (k == KILN_EXPR_BNOT && a->kind == k) return a->args[0];
  if (k == KILN_EXPR_ABS && (a->kind == k || kiln_dtype_kind(a->dtype) == KILN_KIND_UINT)) return a;
  const bool rounds =
      k == KILN_EXPR_FLOOR || k == KILN_EXPR_CEIL || k == KILN_EXPR_ROUND || k == KILN_EXPR_TRUNC;
  if (rounds && (!is_float || a->kind == k)) return a;
  if ((k == KILN_EXPR_ISNAN || k == KILN_EXPR_ISINF) && !is_float) return boolean(cx, false);
  return NULL;
}

const kiln_expr *kiln_unary(kiln_ctx *cx, kiln_expr_kind k, const kiln_expr *a) {
  KILN_ASSERT(kiln_expr_kind_args(k) == 1 && k != KILN_EXPR_CAST && k != KILN_EXPR_BITCAST);
  kiln_constant x, result;
  if (kiln_constant_of(a, &x) && kiln_fold_unary(k, x, &result)) return constant(cx, result);
  const kiln_expr *same_as = unary_identity(cx, k, a);
  if (same_as) return same_as;
  const bool is_bool = k == KILN_EXPR_NOT || k == KILN_EXPR_ISNAN || k == KILN_EXPR_ISINF;
  const kiln_expr head = {.kind = k, .dtype = is_bool ? KILN_BOOL : a->dtype, .n_args = 1};
  return intern(cx, &head, &a);
}

static const kiln_expr *float_identity(kiln_expr_kind k, const kiln_expr *a, const kiln_expr *b) {
  if (k == KILN_EXPR_MUL) return is_float_value(b, 1) ? a : is_float_value(a, 1) ? b : NULL;
  if (k == KILN_EXPR_ADD) return is_float_value(b, -0.0) ? a : is_float_value(a, -0.0) ? b : NULL;
  if (k == KILN_EXPR_DIV || k == KILN_EXPR_POW) return is_float_value(b, 1) ? a : NULL;
  if (k == KILN_EXPR_SUB) return is_float_value(b, 0) ? a : NULL;
  return NULL;
}

static const kiln_expr *divide_identity(kiln_ctx *cx, kiln_expr_kind k, const kiln_expr *a,
                                        const kiln_expr *b) {
  const bool quotient = k == KILN_EXPR_DIV || k == KILN_EXPR_TDIV;
  if (is_int_value(b, 0) || is_int_value(a, 0)) return kiln_int_of(cx, a->dtype, 0);
  if (quotient) return is_int_value(b, 1) ? a : NULL;
  return is_int_value(b, 1) || a == b ? kiln_int_of(cx, a->dtype, 0) : NULL;
}

static const kiln_expr *int_identity(kiln_ctx *cx, kiln_expr_kind k, const kiln_expr *a,
                                     const kiln_expr *b) {
  const bool a0 = is_int_value(a, 0), b0 = is_int_value(b, 0);
  if (k == KILN_EXPR_ADD || k == KILN_EXPR_BOR || k == KILN_EXPR_BXOR)
    return a0 ? b : b0 ? a : k == KILN_EXPR_BOR && a == b ? a : NULL;
  if (k == KILN_EXPR_SUB) return b0 ? a : a == b ? kiln_int_of(cx, a->dtype, 0) : NULL;
  if (k == KILN_EXPR_MUL) return a0 || is_int_value(b, 1) ? a : b0 || is_int_value(a, 1) ? b : NULL;
  if (k == KILN_EXPR_DIV || k == KILN_EXPR_MOD || k == KILN_EXPR_TDIV || k == KILN_EXPR_FMOD)
    return divide_identity(cx, k, a, b);
  if (k == KILN_EXPR_BAND) return a0 || a == b ? a : b0 ? b : NULL;
  if (k == KILN_EXPR_SHL || k == KILN_EXPR_SHR) return b0 ? a : NULL;
  return NULL;
}

static const kiln_expr *bool_identity(kiln_ctx *cx, kiln_expr_kind k, const kiln_expr *a,
                                      const kiln_expr *b) {
  const kiln_expr *number = a->kind == KILN_EXPR_INT ? a : b->kind == KILN_EXPR_INT ? b : NULL;
  if (k == KILN_EXPR_AND || k == KILN_EXPR_OR) {
    if (a == b) return a;
    if (!number) return NULL;
    const bool absorbs = (number->u.i != 0) == (k == KILN_EXPR_OR);
    return absorbs ? number : number == a ? b : a;
  }
  if ((k == KILN_EXPR_EQ || k == KILN_EXPR_NE) && number) {
    const kiln_expr *other = number == a ? b : a;
    const bool keeps = (number->u.i != 0) == (k == KILN_EXPR_EQ);
    return keeps ? other : kiln_unary(cx, KILN_EXPR_NOT, other);
  }
  return NULL;
}

static const kiln_expr *binary_identity(kiln_ctx *cx, kiln_expr_kind k, const kiln_expr *a,
                                        const kiln_expr *b) {
  if (kiln_dtype_is_code(a->dtype)) return NULL;
  if ((k == KILN_EXPR_MIN || k == KILN_EXPR_MAX) && a == b) return a;
  if (kiln_dtype_is_float(a->dtype)) return float_identity(k, a, b);
  if (kiln_expr_kind_is_cmp(k) && a == b)
    return boolean(cx, k == KILN_EXPR_LE || k == KILN_EXPR_GE || k == KILN_EXPR_EQ);
  if (a->dtype == KILN_BOOL) return bool_identity(cx, k, a, b);
  return int_identity(cx, k, a, b);
}

const kiln_expr *kiln_binary(kiln_ctx *cx, kiln_expr_kind k, const kiln_expr *a,
                             const kiln_expr *b) {
  KILN_ASSERT(kiln_expr_kind_args(k) == 2);
  KILN_ASSERT(a->dtype == b->dtype);
  kiln_constant x, y, result;
  if (kiln_constant_of(a, &x) && kiln_constant_of(b, &y) && kiln_fold_binary(k, x, y, &result))
    return constant(cx, result);
  const kiln_expr *same_as = binary_identity(cx, k, a, b);
  if (same_as) return same_as;
  const kiln_dtype t = kiln_expr_kind_is_cmp(k) ? KILN_BOOL : a->dtype;
  const kiln_expr head = {.kind = k, .dtype = t, .n_args = 2};
  return intern(cx, &head, (const kiln_expr *[]){a, b});
}

// pow(x, 0.5) as sqrt, corrected for -0 and -inf.
static const kiln_expr *root_power(kiln_ctx *cx, const kiln_expr *x) {
  const kiln_expr *root = kiln_unary(cx, KILN_EXPR_SQRT, x),
                  *low = kiln_float(cx, x->dtype, -(double)INFINITY);
  return kiln_select(cx, kiln_binary(cx, KILN_EXPR_EQ, x, low),
                     kiln_float(cx, x->dtype, (double)INFINITY),
                     kiln_add(cx, root, kiln_float(cx, x->dtype, 0)));
}

const kiln_expr *kiln_power(kiln_ctx *cx, const kiln_expr *x, const kiln_expr *y) {
  if (is_float_value(y, 0)) return kiln_float(cx, x->dtype, 1); // also for NaN
  if (is_float_value(y, 1)) return x;
  if (is_float_value(y, 2)) return kiln_mul(cx, x, x);
  if (is_float_value(y, 3)) return kiln_mul(cx, kiln_mul(cx, x, x), x);
  if (is_float_value(y, -1)) return kiln_div(cx, kiln_float(cx, x->dtype, 1), x);
  return is_float_value(y, 0.5) ? root_power(cx, x) : kiln_binary(cx, KILN_EXPR_POW, x, y);
}

const kiln_expr *kiln_both(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  if (!a) return b;
  if (!b) return a;
  return kiln_binary(cx, KILN_EXPR_AND, a, b);
}

const kiln_expr *kiln_select(kiln_ctx *cx, const kiln_expr *c, const kiln_expr *a,
                             const kiln_expr *b) {
  KILN_ASSERT(c->dtype == KILN_BOOL && a->dtype == b->dtype);
  if (c->kind == KILN_EXPR_INT) return c->u.i ? a : b;
  if (a == b) return a;
  if (c->kind == KILN_EXPR_NOT) return kiln_select(cx, c->args[0], b, a);
  if (a->dtype == KILN_BOOL && a->kind == KILN_EXPR_INT && b->kind == KILN_EXPR_INT)
    return a->u.i ? c : kiln_unary(cx, KILN_EXPR_NOT, c);
  const kiln_expr head = {.kind = KILN_EXPR_SELECT, .dtype = a->dtype, .n_args = 3};
  return intern(cx, &head, (const kiln_expr *[]){c, a, b});
}

// Whether |a| is a value of |t| cast to a type that represents all of |t|'s values.
static bool is_widened(kiln_dtype t, const kiln_expr *a) {
  return a->kind == KILN_EXPR_CAST && a->args[0]->dtype == t && kiln_dtype_is_float(t) &&
         kiln_dtype_is_float(a->dtype) && kiln_dtype_bytes(a->dtype) > kiln_dtype_bytes(t);
}

// |is_stored| marks a storage rounding (ir/stored.h) and is kept in u.i.
static const kiln_expr *cast(kiln_ctx *cx, kiln_dtype t, const kiln_expr *a, bool is_stored) {
  if (a->dtype == t) return a;
  if (kiln_dtype_is_code(a->dtype)) return cast(cx, t, kiln_decode(cx, a), is_stored);
  if (kiln_dtype_is_code(t)) return kiln_encode(cx, t, a, (kiln_encoding){true, KILN_ROUND_UP});
  kiln_constant x, result;
  if (kiln_constant_of(a, &x) && kiln_fold_cast(t, x, &result)) return constant(cx, result);
  if (is_widened(t, a)) return a->args[0];
  if (a->kind == KILN_EXPR_SELECT && (is_widened(t, a->args[1]) || is_widened(t, a->args[2]))) {
    const kiln_expr *one = cast(cx, t, a->args[1], is_stored),
                    *other = cast(cx, t, a->args[2], is_stored);
    if (one->kind != KILN_EXPR_CAST && other->kind != KILN_EXPR_CAST)
      return kiln_select(cx, a->args[0], one, other);
  }
  const kiln_expr head = {.kind = KILN_EXPR_CAST, .dtype = t, .n_args = 1, .u.i = is_stored};
  return intern(cx, &head, &a);
}

const kiln_expr *kiln_cast(kiln_ctx *cx, kiln_dtype t, const kiln_expr *a) {
  return cast(cx, t, a, false);
}

const kiln_expr *kiln_cast_stored(kiln_ctx *cx, kiln_dtype t, const kiln_expr *a) {
  return cast(cx, t, a, true);
}

bool kiln_expr_is_stored(const kiln_expr *e) { return e->kind == KILN_EXPR_CAST && e->u.i != 0; }

kiln_dtype kiln_bits_type(kiln_dtype t) {
  static const kiln_dtype by_bytes[] = {
      [1] = KILN_U8, [2] = KILN_U16, [4] = KILN_U32, [8] = KILN_U64};
  return by_bytes[kiln_dtype_bytes(t)];
}

static const kiln_expr *make_bitcast(kiln_ctx *cx, kiln_dtype t, const kiln_expr *a) {
  kiln_constant x, result;
  if (a->kind == KILN_EXPR_BITCAST && a->args[0]->dtype == t) return a->args[0];
  if (kiln_constant_of(a, &x) && kiln_fold_bitcast(t, x, &result)) return constant(cx, result);
  const kiln_expr head = {.kind = KILN_EXPR_BITCAST, .dtype = t, .n_args = 1};
  return intern(cx, &head, &a);
}

static bool has_bits(kiln_dtype t) { return kiln_dtype_is_float(t) || kiln_dtype_is_code(t); }

static const kiln_expr *low_bits(kiln_ctx *cx, int bits, const kiln_expr *a) {
  const int64_t mask = (INT64_C(1) << bits) - 1;
  int64_t by = 0;
  if (a->kind == KILN_EXPR_BAND && kiln_expr_is_int(a->args[1], &by) && (by & ~mask) == 0) return a;
  return kiln_binary(cx, KILN_EXPR_BAND, a, kiln_int_of(cx, a->dtype, mask));
}

const kiln_expr *kiln_bitcast(kiln_ctx *cx, kiln_dtype t, const kiln_expr *a) {
  const kiln_dtype bits = kiln_bits_type(t);
  KILN_ASSERT(kiln_dtype_bytes(t) == kiln_dtype_bytes(a->dtype));
  if (a->dtype == t) return a;
  a = has_bits(a->dtype) ? make_bitcast(cx, bits, a) : kiln_cast(cx, bits, a);
  if (!has_bits(t)) return kiln_cast(cx, t, a);
  if (kiln_dtype_bits(t) < 8) a = low_bits(cx, kiln_dtype_bits(t), a);
  return make_bitcast(cx, t, a);
}

const kiln_expr *kiln_expr_with_args(kiln_ctx *cx, const kiln_expr *e,
                                     const kiln_expr *const *args) {
  if (e->kind == KILN_EXPR_LOAD) return kiln_load(cx, e->u.tensor, e->dtype, e->n_args, args);
  if (e->kind == KILN_EXPR_SELECT) return kiln_select(cx, args[0], args[1], args[2]);
  if (e->kind == KILN_EXPR_CAST) return cast(cx, e->dtype, args[0], e->u.i != 0);
  if (e->kind == KILN_EXPR_BITCAST) return kiln_bitcast(cx, e->dtype, args[0]);
  if (e->n_args == 2) return kiln_binary(cx, e->kind, args[0], args[1]);
  return e->n_args == 1 ? kiln_unary(cx, e->kind, args[0]) : e;
}

// --- queries ---

bool kiln_expr_is_int(const kiln_expr *e, int64_t *out_value) {
  if (e->kind != KILN_EXPR_INT) return false;
  if (out_value) *out_value = e->u.i;
  return true;
}

int64_t kiln_expr_int_or(const kiln_expr *e, int64_t otherwise) {
  return e->kind == KILN_EXPR_INT ? e->u.i : otherwise;
}

const kiln_expr *kiln_expr_uncast(const kiln_expr *e) {
  while (e->kind == KILN_EXPR_CAST) e = e->args[0];
  return e;
}

bool kiln_expr_is_zero(const kiln_expr *e) { return is_int_value(e, 0) || is_float_value(e, 0); }

bool kiln_expr_uses(const kiln_expr *e, kiln_symbol var) {
  int low = 0, high = e->vars->n;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (e->vars->vars[middle] < var) low = middle + 1;
    else high = middle;
  }
  return low < e->vars->n && e->vars->vars[low] == var;
}

bool kiln_expr_has_load(const kiln_expr *e) { return e->has_load; }

typedef struct affine_sum {
  int n;
  const kiln_symbol *vars;
  int64_t *coef, *constant;
  int steps; // steps left: shared subexpressions are visited repeatedly, so the walk is bounded
} affine_sum;

static bool add_scaled(int64_t *to, int64_t a, int64_t b) {
  int64_t product;
  return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(*to, product, to);
}

static bool affine_add(affine_sum *s, const kiln_expr *e, int64_t scale) {
  if (s->steps-- <= 0 || e->dtype != KILN_I64) return false;
  if (e->kind == KILN_EXPR_INT) return add_scaled(s->constant, e->u.i, scale);
  if (e->kind == KILN_EXPR_VAR) {
    for (int k = 0; k < s->n; k++) {
      if (s->vars[k] == e->u.sym) return add_scaled(&s->coef[k], 1, scale);
    }
    return false;
  }
  int64_t minus;
  if (e->kind == KILN_EXPR_ADD)
    return affine_add(s, e->args[0], scale) && affine_add(s, e->args[1], scale);
  if (e->kind == KILN_EXPR_SUB)
    return !__builtin_sub_overflow(0, scale, &minus) && affine_add(s, e->args[0], scale) &&
           affine_add(s, e->args[1], minus);
  if (e->kind == KILN_EXPR_NEG)
    return !__builtin_sub_overflow(0, scale, &minus) && affine_add(s, e->args[0], minus);
  if (e->kind != KILN_EXPR_MUL) return false;
  const int factor = e->args[0]->kind == KILN_EXPR_INT ? 0 : 1;
  int64_t scaled;
  if (e->args[factor]->kind != KILN_EXPR_INT ||
      __builtin_mul_overflow(scale, e->args[factor]->u.i, &scaled))
    return false;
  return affine_add(s, e->args[1 - factor], scaled);
}

bool kiln_expr_affine(const kiln_expr *e, int n, const kiln_symbol *vars, int64_t *coef,
                      int64_t *constant) {
  for (int k = 0; k < n; k++) coef[k] = 0;
  *constant = 0;
  affine_sum sum = {n, vars, coef, constant, 10000};
  return affine_add(&sum, e, 1);
}

// --- walks ---

typedef struct kiln_replacer {
  kiln_ctx *cx;
  kiln_expr_map map;
  void *argument;
  kiln_map done; // expression id -> replacement
} replacer;

// Begins a traversal or ends one: |r| is the current replacer, or NULL for a nested independent
// traversal; gives the previous one.
static struct kiln_replacer *begin_walk(kiln_ctx *cx, struct kiln_replacer *r) {
  struct kiln_replacer *outer = cx->replacing;
  cx->replacing = r;
  return outer;
}

static const kiln_expr *replace(replacer *r, const kiln_expr *e) {
  const uint64_t *known = kiln_map_find(&r->done, e->id);
  if (known) return (const kiln_expr *)(uintptr_t)*known;
  const kiln_expr *result = r->map(r->cx, e, r->argument);
  if (!result) {
    result = e;
    const kiln_expr **args = NULL;
    for (int i = 0; i < e->n_args; i++) {
      const kiln_expr *a = replace(r, e->args[i]);
      if (!args && a == e->args[i]) continue;
      if (!args) {
        args = KILN_NEW_ARRAY(&r->cx->walk, const kiln_expr *, e->n_args);
        for (int j = 0; j < i; j++) args[j] = e->args[j];
      }
      args[i] = a;
    }
    if (args) result = kiln_expr_with_args(r->cx, e, args);
  }
  kiln_map_put(&r->done, e->id, (uint64_t)(uintptr_t)result);
  return result;
}

const kiln_expr *kiln_expr_replace(kiln_ctx *cx, const kiln_expr *e, kiln_expr_map map,
                                   void *argument) {
  struct kiln_replacer *outer = cx->replacing;
  if (outer && outer->map == map && outer->argument == argument) return replace(outer, e);
  const kiln_mark mark = kiln_arena_mark(&cx->walk);
  replacer r = {.cx = cx, .map = map, .argument = argument};
  kiln_map_init(&r.done, &cx->walk);
  begin_walk(cx, &r);
  const kiln_expr *result = replace(&r, e);
  begin_walk(cx, outer);
  kiln_arena_rewind(&cx->walk, mark);
  return result;
}

typedef struct replacement {
  const kiln_expr *from, *to;
} replacement;

static const kiln_expr *replace_node(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  (void)cx;
  const replacement *r = argument;
  return e == r->from ? r->to : NULL;
}

const kiln_expr *kiln_expr_replace_one(kiln_ctx *cx, const kiln_expr *e, const kiln_expr *from,
                                       const kiln_expr *to) {
  replacement r = {from, to};
  return kiln_expr_replace(cx, e, replace_node, &r);
}

typedef struct substitution {
  int n;
  const kiln_symbol *vars;
  const kiln_expr *const *values;
} substitution;

static const kiln_expr *substitute(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  (void)cx;
  const substitution *s = argument;
  bool uses = false;
  for (int i = 0; i < s->n && !uses; i++) {
    if (e->kind == KILN_EXPR_VAR && e->u.sym == s->vars[i]) return s->values[i];
    uses = kiln_expr_uses(e, s->vars[i]);
  }
  return uses ? NULL : e;
}

const kiln_expr *kiln_expr_substitute(kiln_ctx *cx, const kiln_expr *e, int n,
                                      const kiln_symbol *vars, const kiln_expr *const *values) {
  substitution s = {n, vars, values};
  return kiln_expr_replace(cx, e, substitute, &s);
}

typedef struct visitor {
  void (*visit)(const kiln_expr *e, void *argument);
  void *argument;
  kiln_map done;
} visitor;

static void visit(visitor *v, const kiln_expr *e) {
  if (kiln_map_find(&v->done, e->id)) return;
  for (int i = 0; i < e->n_args; i++) visit(v, e->args[i]);
  kiln_map_put(&v->done, e->id, 1);
  v->visit(e, v->argument);
}

void kiln_expr_visit(kiln_ctx *cx, const kiln_expr *e,
                     void (*visit_one)(const kiln_expr *e, void *argument), void *argument) {
  const kiln_mark mark = kiln_arena_mark(&cx->walk);
  visitor v = {.visit = visit_one, .argument = argument};
  kiln_map_init(&v.done, &cx->walk);
  struct kiln_replacer *outer = begin_walk(cx, NULL);
  visit(&v, e);
  begin_walk(cx, outer);
  kiln_arena_rewind(&cx->walk, mark);
}

static void visit_loads(visitor *v, const kiln_expr *e) {
  if (!e->has_load || kiln_map_find(&v->done, e->id)) return;
  for (int i = 0; i < e->n_args; i++) visit_loads(v, e->args[i]);
  kiln_map_put(&v->done, e->id, 1);
  if (e->kind == KILN_EXPR_LOAD) v->visit(e, v->argument);
}

enum { SHORT_TREE = 64 };

// The distinct loads of a small tree.
typedef struct few_loads {
  int n;
  const kiln_expr *data[SHORT_TREE];
} few_loads;

static void find_loads(const kiln_expr *e, few_loads *out) {
  if (!e->has_load) return;
  for (int i = 0; i < e->n_args; i++) find_loads(e->args[i], out);
  if (e->kind != KILN_EXPR_LOAD) return;
  for (int i = 0; i < out->n; i++)
    if (out->data[i] == e) return;
  out->data[out->n++] = e;
}

void kiln_expr_visit_loads(kiln_ctx *cx, const kiln_expr *e,
                           void (*visit_one)(const kiln_expr *load, void *argument),
                           void *argument) {
  if (!e || !e->has_load) return;
  struct kiln_replacer *outer = begin_walk(cx, NULL);
  if (e->n_tree <= SHORT_TREE) {
    few_loads few;
    few.n = 0;
    find_loads(e, &few);
    for (int i = 0; i < few.n; i++) visit_one(few.data[i], argument);
  } else {
    const kiln_mark mark = kiln_arena_mark(&cx->walk);
    visitor v = {.visit = visit_one, .argument = argument};
    kiln_map_init(&v.done, &cx->walk);
    visit_loads(&v, e);
    kiln_arena_rewind(&cx->walk, mark);
  }
  begin_walk(cx, outer);
}

typedef struct searcher {
  kiln_search (*enter)(const kiln_expr *e, void *argument);
  void *argument;
  kiln_map done;
} searcher;

static const kiln_expr *search(searcher *s, const kiln_expr *e) {
  const kiln_expr *found = NULL;
  if (e->n_args > 0) {
    if (kiln_map_find(&s->done, e->id)) return NULL;
    kiln_map_put(&s->done, e->id, 1);
  }
  const kiln_search how = s->enter(e, s->argument);
  if (how == KILN_SEARCH_ENDS) return e;
  if (how == KILN_SEARCH_PAST) return NULL;
  for (int i = how == KILN_SEARCH_REST; i < e->n_args && !found; i++) found = search(s, e->args[i]);
  return found;
}

const kiln_expr *kiln_expr_search(kiln_ctx *cx, const kiln_expr *e,
                                  kiln_search (*enter)(const kiln_expr *e, void *argument),
                                  void *argument) {
  if (!e) return NULL;
  const kiln_mark mark = kiln_arena_mark(&cx->walk);
  searcher s = {.enter = enter, .argument = argument};
  kiln_map_init(&s.done, &cx->walk);
  struct kiln_replacer *outer = begin_walk(cx, NULL);
  const kiln_expr *found = search(&s, e);
  begin_walk(cx, outer);
  kiln_arena_rewind(&cx->walk, mark);
  return found;
}

static kiln_search is_load_of(const kiln_expr *e, void *argument) {
  const int *tensor = argument;
  if (!(e->loaded >> (*tensor & 63) & 1)) return KILN_SEARCH_PAST;
  return e->kind == KILN_EXPR_LOAD && e->u.tensor == *tensor ? KILN_SEARCH_ENDS : KILN_SEARCH_INTO;
}

bool kiln_expr_loads_from(kiln_ctx *cx, const kiln_expr *e, int tensor) {
  return e && (e->loaded >> (tensor & 63) & 1) && kiln_expr_search(cx, e, is_load_of, &tensor);
}

static kiln_search find_tensor(const kiln_expr *e, void *argument) {
  if (e->kind == KILN_EXPR_LOAD && e->u.tensor == *(const int *)argument) return KILN_SEARCH_ENDS;
  return e->has_load ? KILN_SEARCH_INTO : KILN_SEARCH_PAST;
}

bool kiln_expr_loads(kiln_ctx *cx, const kiln_expr *e, int tensor) {
  return e && e->has_load && kiln_expr_search(cx, e, find_tensor, &tensor) != NULL;
}

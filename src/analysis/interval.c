// Interval arithmetic on expressions. INT64_MIN and INT64_MAX stand for the infinities. Index
// arithmetic is taken not to overflow; arithmetic on loaded data may wrap, so there an end that is
// infinite makes the whole interval unknown.
#include "analysis/interval.h"

__extension__ typedef __int128 wide;

void kiln_ranges_init(kiln_ranges *r, kiln_arena *arena) { *r = (kiln_ranges){.arena = arena}; }

void kiln_ranges_push(kiln_ranges *r, kiln_symbol var, int64_t lo, int64_t hi) {
  KILN_VEC_RESERVE(r->arena, &r->entries, 1);
  r->entries.data[r->entries.n].var = var;
  r->entries.data[r->entries.n++].range = (kiln_interval){lo, hi};
}

void kiln_ranges_pop(kiln_ranges *r, int n) {
  KILN_ASSERT(n >= 0 && n <= r->entries.n);
  r->entries.n -= n;
}

kiln_ranges kiln_stmt_ranges(kiln_arena *arena, const kiln_stmt *s) {
  kiln_ranges r;
  kiln_ranges_init(&r, arena);
  for (int k = 0; k < s->n_space + s->n_reduce; k++) {
    const int64_t e = kiln_expr_int_or(s->dims[k].extent, INT64_MAX);
    kiln_ranges_push(&r, s->dims[k].name, 0, e == INT64_MAX ? e : e - 1);
  }
  return r;
}

kiln_interval kiln_interval_all(void) { return (kiln_interval){INT64_MIN, INT64_MAX}; }

static bool is_all(kiln_interval i) { return i.lo == INT64_MIN && i.hi == INT64_MAX; }

static wide infinity(void) { return (wide)1 << 90; }

static wide low(kiln_interval i) { return i.lo == INT64_MIN ? -infinity() : i.lo; }
static wide high(kiln_interval i) { return i.hi == INT64_MAX ? infinity() : i.hi; }
static wide least(wide a, wide b) { return a < b ? a : b; }
static wide most(wide a, wide b) { return a > b ? a : b; }

// A finite bound outside of i64 means that the arithmetic overflows for certain.
static kiln_interval narrow(wide lo, wide hi) {
  if (lo > INT64_MAX || hi < INT64_MIN) return kiln_interval_all();
  return (kiln_interval){lo < INT64_MIN ? INT64_MIN : (int64_t)lo,
                         hi > INT64_MAX ? INT64_MAX : (int64_t)hi};
}

static wide times(wide a, wide b) {
  if (a == 0 || b == 0) return 0;
  const wide inf = infinity();
  if (a <= -inf || a >= inf || b <= -inf || b >= inf) return (a < 0) == (b < 0) ? inf : -inf;
  return a * b;
}

static wide floor_quotient(wide a, wide b) {
  const wide inf = infinity();
  if (a <= -inf || a >= inf) return (a < 0) == (b < 0) ? inf : -inf;
  if (b <= -inf || b >= inf) return a == 0 || (a < 0) == (b < 0) ? 0 : -1;
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

kiln_interval kiln_interval_add(kiln_interval a, kiln_interval b) {
  return narrow(low(a) + low(b), high(a) + high(b));
}

static kiln_interval negate(kiln_interval a) { return narrow(-high(a), -low(a)); }

// The hull of |f| over the four corners.
static kiln_interval corners(wide (*f)(wide, wide), kiln_interval a, kiln_interval b) {
  const wide p = f(low(a), low(b)), q = f(low(a), high(b)), r = f(high(a), low(b)),
             s = f(high(a), high(b));
  return narrow(least(least(p, q), least(r, s)), most(most(p, q), most(r, s)));
}

kiln_interval kiln_interval_scale(kiln_interval a, int64_t factor) {
  const wide p = times(low(a), factor), q = times(high(a), factor);
  return narrow(least(p, q), most(p, q));
}

// All values with at most the magnitude of |a|.
static kiln_interval within_magnitude(kiln_interval a) {
  const wide m = most(most(-low(a), high(a)), 0);
  return narrow(-m, m);
}

static kiln_interval divide(kiln_interval a, kiln_interval b) {
  if (b.lo == b.hi && b.lo > 0 && a.lo >= 0 && a.hi < INT64_MAX) // the common case, without `wide`
    return (kiln_interval){a.lo / b.lo, a.hi / b.lo};
  if (b.lo > 0 || b.hi < 0) return corners(floor_quotient, a, b);
  return within_magnitude(a); // includes 0, the quotient by 0
}

// x % y takes the sign of y; x % 0 is 0.
static kiln_interval modulo(kiln_interval a, kiln_interval b) {
  if (a.lo >= 0 && b.lo > 0 && a.hi < b.lo) return a;
  if (b.lo == b.hi && b.lo > 0 && a.lo >= 0 && a.lo / b.lo == a.hi / b.lo) // within one period
    return (kiln_interval){a.lo % b.lo, a.hi % b.lo};
  wide lo = least(low(b) + 1, 0), hi = most(high(b) - 1, 0);
  if (a.lo >= 0 && b.lo >= 0) hi = least(hi, high(a));
  return narrow(lo, hi);
}

// fmod(x, y) takes the sign of x and is smaller than both.
static kiln_interval remainder_of(kiln_interval a, kiln_interval b) {
  const wide limit = most(most(-low(b), high(b)) - 1, 0);
  return narrow(least(most(low(a), -limit), 0), most(least(high(a), limit), 0));
}

static kiln_interval absolute(kiln_interval a) {
  if (a.lo >= 0) return a;
  if (a.hi <= 0) return negate(a);
  return narrow(0, most(-low(a), high(a)));
}

static kiln_interval hull(kiln_interval a, kiln_interval b) {
  return (kiln_interval){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}

static kiln_interval truth(bool certain, bool impossible) {
  return (kiln_interval){certain, !impossible};
}

static kiln_interval range_of_dtype(kiln_dtype t) {
  const int bits = 8 * kiln_dtype_bytes(t);
  if (t == KILN_BOOL) return (kiln_interval){0, 1};
  if (bits == 64 || kiln_dtype_is_float(t) || kiln_dtype_is_code(t)) return kiln_interval_all();
  if (kiln_dtype_kind(t) == KILN_KIND_UINT) return (kiln_interval){0, (INT64_C(1) << bits) - 1};
  return (kiln_interval){-(INT64_C(1) << (bits - 1)), (INT64_C(1) << (bits - 1)) - 1};
}

static kiln_interval compare(kiln_expr_kind k, kiln_interval a, kiln_interval b) {
  const bool less = a.hi<b.lo, not_more = a.hi <= b.lo, more = a.lo> b.hi, not_less = a.lo >= b.hi;
  // Infinite bounds are also values: x may be INT64_MAX, so `x <= INT64_MAX` is true.
  if (k == KILN_EXPR_LT) return truth(less, not_less);
  if (k == KILN_EXPR_LE) return truth(not_more, more);
  if (k == KILN_EXPR_GT) return truth(more, not_more);
  if (k == KILN_EXPR_GE) return truth(not_less, less);
  const bool equal = a.lo == a.hi && b.lo == b.hi && a.lo == b.lo, differ = less || more;
  return k == KILN_EXPR_EQ ? truth(equal, differ) : truth(differ, equal);
}

static kiln_interval bits_of(kiln_expr_kind k, kiln_dtype t, kiln_interval a, kiln_interval b) {
  if (k == KILN_EXPR_BAND && a.lo >= 0 && b.lo >= 0)
    return (kiln_interval){0, a.hi < b.hi ? a.hi : b.hi};
  if (k == KILN_EXPR_BAND || a.lo < 0 || b.lo < 0) return range_of_dtype(t);
  uint64_t mask = (uint64_t)(a.hi > b.hi ? a.hi : b.hi);
  for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
  return (kiln_interval){0, (int64_t)mask};
}

static kiln_interval of_binary(const kiln_expr *e, kiln_interval a, kiln_interval b) {
  const kiln_expr_kind k = e->kind;
  if (kiln_expr_kind_is_cmp(k)) return compare(k, a, b);
  if (k == KILN_EXPR_ADD) return kiln_interval_add(a, b);
  if (k == KILN_EXPR_SUB) return kiln_interval_add(a, negate(b));
  if (k == KILN_EXPR_MUL) return corners(times, a, b);
  if (k == KILN_EXPR_DIV || (k == KILN_EXPR_TDIV && a.lo >= 0 && b.lo > 0)) return divide(a, b);
  if (k == KILN_EXPR_TDIV) return within_magnitude(a);
  if (k == KILN_EXPR_MOD) return modulo(a, b);
  if (k == KILN_EXPR_FMOD) return remainder_of(a, b);
  if (k == KILN_EXPR_MIN)
    return (kiln_interval){a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
  if (k == KILN_EXPR_MAX)
    return (kiln_interval){a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
  if (k == KILN_EXPR_AND) return truth(a.lo && b.lo, !a.hi || !b.hi);
  if (k == KILN_EXPR_OR) return truth(a.lo || b.lo, !a.hi && !b.hi);
  if (k == KILN_EXPR_BAND || k == KILN_EXPR_BOR || k == KILN_EXPR_BXOR)
    return bits_of(k, e->dtype, a, b);
  return kiln_interval_all();
}

static kiln_interval of_unary(const kiln_expr *e, kiln_interval a) {
  if (e->kind == KILN_EXPR_NOT) return truth(!a.hi, a.lo);
  if (e->kind == KILN_EXPR_NEG) return negate(a);
  if (e->kind == KILN_EXPR_ABS) return absolute(a);
  if (e->kind == KILN_EXPR_SIGN)
    return (kiln_interval){a.lo > 0 ? 1 : a.lo == 0 ? 0 : -1, a.hi < 0 ? -1 : a.hi == 0 ? 0 : 1};
  if (e->kind == KILN_EXPR_CAST && !kiln_dtype_is_float(e->args[0]->dtype)) {
    if (e->dtype == KILN_BOOL) return truth(a.lo > 0 || a.hi < 0, a.lo == 0 && a.hi == 0);
    return a;
  }
  return kiln_interval_all();
}

// Keeps the result only if the arithmetic cannot wrap: for a narrow type if it is in the type's
// range, on loaded data if both bounds are finite.
static kiln_interval checked(const kiln_expr *e, kiln_interval i) {
  const kiln_interval range = range_of_dtype(e->dtype);
  if (!is_all(range)) return i.lo < range.lo || i.hi > range.hi ? range : i;
  const bool may_wrap = e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB ||
                        e->kind == KILN_EXPR_MUL || e->kind == KILN_EXPR_NEG ||
                        e->kind == KILN_EXPR_ABS || e->kind == KILN_EXPR_DIV ||
                        e->kind == KILN_EXPR_TDIV || e->kind == KILN_EXPR_CAST;
  const bool infinite = i.lo == INT64_MIN || i.hi == INT64_MAX;
  if (infinite && may_wrap && e->has_load) return kiln_interval_all();
  return i;
}

static bool has_unsigned_64(const kiln_expr *e) {
  for (int i = 0; i < e->n_args; i++) {
    if (e->args[i]->dtype == KILN_U64) return true;
  }
  return e->dtype == KILN_U64;
}

kiln_interval kiln_bounds_of_var(const kiln_bounds *b, kiln_symbol var) {
  for (const kiln_assumption *a = b->assumed; a; a = a->outer) {
    if (a->var == var) return a->range;
  }
  for (int i = b->ranges ? b->ranges->entries.n - 1 : -1; i >= 0; i--) {
    if (b->ranges->entries.data[i].var == var) return b->ranges->entries.data[i].range;
  }
  return kiln_interval_all();
}

// Whether nothing but its type is known of the value.
static bool is_opaque(const kiln_expr *e) {
  return e->n_args == 0 || e->kind == KILN_EXPR_LOAD || has_unsigned_64(e) ||
         (e->dtype != KILN_BOOL && !kiln_dtype_is_int(e->dtype)) ||
         (kiln_expr_kind_is_cmp(e->kind) && kiln_dtype_is_float(e->args[0]->dtype));
}

kiln_interval kiln_interval_of_node(const kiln_expr *e, const kiln_interval *args) {
  // u64 constants of 2^63 and more would read as negative, so they are unknown.
  if (e->kind == KILN_EXPR_INT && (e->dtype != KILN_U64 || e->u.i >= 0))
    return (kiln_interval){e->u.i, e->u.i};
  if (is_opaque(e)) return range_of_dtype(e->dtype);
  if (e->kind == KILN_EXPR_SELECT)
    return args[0].lo == args[0].hi ? args[args[0].lo ? 1 : 2] : hull(args[1], args[2]);
  return checked(e, e->n_args == 1 ? of_unary(e, args[0]) : of_binary(e, args[0], args[1]));
}

static kiln_interval of_node(kiln_bounds *b, const kiln_expr *e) {
  kiln_interval args[3] = {{0}};
  if (e->kind == KILN_EXPR_VAR) return kiln_bounds_of_var(b, e->u.sym);
  const int n = e->kind == KILN_EXPR_INT || is_opaque(e) ? 0 : e->n_args;
  for (int i = 0; i < n && i < (int)KILN_LEN(args); i++) {
    const bool is_decided = e->kind == KILN_EXPR_SELECT && i > 0 && args[0].lo == args[0].hi;
    if (!is_decided || i == (args[0].lo ? 1 : 2)) args[i] = kiln_bounds_of(b, e->args[i]);
  }
  return kiln_interval_of_node(e, args);
}

kiln_interval kiln_bounds_of(kiln_bounds *b, const kiln_expr *e) {
  const uint64_t *known = e->n_args > 0 ? kiln_map_find(&b->known, e->id) : NULL;
  if (known) return b->intervals.data[*known];
  const kiln_interval i = of_node(b, e);
  if (e->n_args > 0) {
    kiln_map_put(&b->known, e->id, (uint64_t)b->intervals.n);
    KILN_VEC_PUSH(&b->cx->scratch, &b->intervals, i);
  }
  return i;
}

void kiln_bounds_init(kiln_bounds *b, kiln_ctx *cx, const kiln_ranges *ranges,
                      const kiln_assumption *assumed) {
  *b = (kiln_bounds){.cx = cx, .ranges = ranges, .assumed = assumed};
  kiln_map_init(&b->known, &cx->scratch);
}

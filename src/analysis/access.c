#include "analysis/access.h"

#include "analysis/simplify.h"
#include "support/integer.h"

#include <math.h>

typedef struct collector {
  kiln_ctx *cx;
  const kiln_loops *l;
  int64_t *bases; // [buffers]
  KILN_VEC(access_loop *) around;
  KILN_VEC(kiln_stride) ranges; // of |around|
  int hole_depth;               // hole_depth of accesses under the conditions around; 0: no hole
  const kiln_stride *hole;
  bool is_exact; // the ranges say exactly where all conditions assumed so far hold
  kiln_ranges known;
  access_list *out;
  kiln_status status;
} collector;

enum { PAGE = 4096, STACK = 64, MAX_VALUES = 16 };

// --- values of index expressions ---

typedef struct values { // strides of an expression's values, less the first, while some loops run
  int n;
  kiln_stride s[MAX_VALUES];
} values;

static int depth_of(const access_summary *a, kiln_symbol var) {
  for (int d = 0; d < a->depth; d++)
    if (a->path[d]->var == var) return d;
  return -1;
}

static void push_value(values *v, int64_t step, double n) {
  if (n <= 1 || step == 0) return;
  if (step < 0) step = -step;
  int at = v->n;
  if (v->n == MAX_VALUES) return;
  v->n++;
  for (; at > 0 && v->s[at - 1].step > step; at--) v->s[at] = v->s[at - 1];
  v->s[at] = (kiln_stride){step, n};
}

typedef struct range {
  double lo, hi;
} range;

// The values of |e| over all iterations of the loops; infinite bounds where unknown.
static range range_of(const access_summary *a, const kiln_expr *e) {
  int64_t c;
  range x, y;
  if (kiln_expr_is_int(e, &c)) return (range){(double)c, (double)c};
  if (e->kind == KILN_EXPR_VAR) {
    const int d = depth_of(a, e->u.sym);
    if (d < 0) return (range){0, 0};
    return (range){(double)a->ranges[d].step, (double)a->ranges[d].step + a->ranges[d].n - 1};
  }
  if (e->n_args != 2) return (range){-INFINITY, INFINITY};
  x = range_of(a, e->args[0]);
  y = range_of(a, e->args[1]);
  if (e->kind == KILN_EXPR_ADD) return (range){x.lo + y.lo, x.hi + y.hi};
  if (e->kind == KILN_EXPR_SUB) return (range){x.lo - y.hi, x.hi - y.lo};
  if (e->kind == KILN_EXPR_MIN) return (range){fmin(x.lo, y.lo), fmin(x.hi, y.hi)};
  if (e->kind == KILN_EXPR_MAX) return (range){fmax(x.lo, y.lo), fmax(x.hi, y.hi)};
  if (!kiln_expr_is_int(e->args[1], &c) || c <= 0) return (range){-INFINITY, INFINITY};
  if (e->kind == KILN_EXPR_MUL) return (range){x.lo * (double)c, x.hi * (double)c};
  if (e->kind == KILN_EXPR_DIV) return (range){floor(x.lo / (double)c), floor(x.hi / (double)c)};
  if (e->kind == KILN_EXPR_MOD) return (range){0, (double)(c - 1)};
  return (range){-INFINITY, INFINITY};
}

// Greatest common divisor of the constants in the tree of |e|.
static int64_t constants_in(const kiln_expr *e) {
  int64_t c, divisor = 0;
  if (kiln_expr_is_int(e, &c)) return c < 0 ? -c : c;
  if (e->kind == KILN_EXPR_MUL) return 0;
  for (int i = 0; i < e->n_args; i++) divisor = kiln_gcd(divisor, constants_in(e->args[i]));
  return divisor;
}

// The greatest common divisor of the terms of |e| in loops outside of |depth|; 0: there is none.
static int64_t outer_grain(const access_summary *a, const kiln_expr *e, int depth) {
  int64_t c;
  if (e->kind == KILN_EXPR_VAR) {
    const int d = depth_of(a, e->u.sym);
    return d >= 0 && d < depth ? 1 : 0;
  }
  if (e->n_args == 0) return 0;
  if (e->kind == KILN_EXPR_MUL && kiln_expr_is_int(e->args[1], &c))
    return outer_grain(a, e->args[0], depth) * c;
  int64_t grain = 0;
  for (int i = 0; i < e->n_args; i++) grain = kiln_gcd(grain, outer_grain(a, e->args[i], depth));
  const bool is_sum = e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB;
  const bool is_end = e->kind == KILN_EXPR_MIN || e->kind == KILN_EXPR_MAX;
  if (is_end && grain) return kiln_gcd(grain, constants_in(e));
  return is_sum || grain == 0 ? grain : 1;
}

static void add_values(const access_summary *a, const kiln_expr *e, int64_t factor, int depth,
                       values *out);

// Number of distinct quotients x / |by| for x in [start, start + |span|], averaged over all starts
// that are multiples of |grain|.
static double quotients(double span, int64_t by, int64_t grain) {
  enum { PLACES = 256 };
  const int64_t g = kiln_gcd(grain, by);
  double sum = 0;
  if (by / g > PLACES) return 1 + span / (double)by;
  for (int64_t at = 0; at < by; at += g) sum += floor((span + (double)at) / (double)by + 1e-9);
  return 1 + sum / (double)(by / g);
}

static void divide(const access_summary *a, const kiln_expr *e, int64_t by, int64_t factor,
                   int depth, values *out) {
  values x = {0};
  add_values(a, e->args[0], 1, depth, &x);
  x.n = kiln_strides_merge(x.n, x.s);
  const int64_t grain = outer_grain(a, e->args[0], depth);
  for (int i = 0; i < x.n; i++) {
    const kiln_stride s = x.s[i];
    if (s.step >= by) push_value(out, factor * (s.step / by), s.n);
    else push_value(out, factor, quotients((double)s.step * (s.n - 1), by, grain));
  }
}

static void take_rest(const access_summary *a, const kiln_expr *e, int64_t by, int64_t factor,
                      int depth, values *out) {
  values x = {0};
  add_values(a, e->args[0], 1, depth, &x);
  x.n = kiln_strides_merge(x.n, x.s);
  for (int i = 0; i < x.n; i++) {
    const kiln_stride s = x.s[i];
    if (s.step % by == 0) continue;
    const int64_t step = kiln_gcd(s.step, by);
    if ((double)s.step * (s.n - 1) < (double)by) push_value(out, factor * s.step, s.n);
    else push_value(out, factor * step, (double)(by / step));
  }
}

// min and max: the iterations that are clamped are taken off the largest stride.
static void clamp(const access_summary *a, const kiln_expr *e, int64_t factor, int depth,
                  values *out) {
  const range x = range_of(a, e->args[0]), y = range_of(a, e->args[1]), all = range_of(a, e);
  const bool is_first = e->args[1]->kind == KILN_EXPR_INT || x.hi - x.lo >= y.hi - y.lo;
  const range whole = is_first ? x : y;
  values v = {0};
  add_values(a, e->args[is_first ? 0 : 1], 1, depth, &v);
  double cut = (whole.hi - whole.lo) - (all.hi - all.lo);
  for (int i = v.n - 1; i >= 0; i--) {
    kiln_stride *s = &v.s[i];
    if (cut > 0 && isfinite(cut)) {
      const double most = (s->n - 1) * (double)s->step, off = cut < most ? cut : most;
      s->n -= off / (double)s->step;
      cut -= off;
    }
    push_value(out, factor * s->step, s->n);
  }
}

// An irregular function of the loop variables, as a table lookup: every iteration has a new value.
static void scatter(const access_summary *a, const kiln_expr *e, int64_t factor, int depth,
                    values *out) {
  double n = 1;
  for (int d = depth; d < a->depth; d++)
    if (kiln_expr_uses(e, a->path[d]->var)) n *= a->ranges[d].n;
  push_value(out, factor, n);
}

// A SELECT counts as the branch with more values.
static void choose(const access_summary *a, const kiln_expr *e, int64_t factor, int depth,
                   values *out) {
  double most = 0;
  values best = {0};
  for (int i = 1; i < 3; i++) {
    values v = {0};
    double n = 1;
    add_values(a, e->args[i], 1, depth, &v);
    for (int k = 0; k < v.n; k++) n *= v.s[k].n;
    if (n <= most) continue;
    most = n;
    best = v;
  }
  for (int k = 0; k < best.n; k++) push_value(out, factor * best.s[k].step, best.s[k].n);
}

static void add_values(const access_summary *a, const kiln_expr *e, int64_t factor, int depth,
                       values *out) {
  int64_t c = 0;
  const bool is_by = e->n_args == 2 && kiln_expr_is_int(e->args[1], &c) && c > 0;
  if (e->kind == KILN_EXPR_INT) return;
  if (e->kind == KILN_EXPR_VAR) {
    const int d = depth_of(a, e->u.sym);
    if (d >= depth) push_value(out, factor, a->ranges[d].n);
  } else if (e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB) {
    add_values(a, e->args[0], factor, depth, out);
    add_values(a, e->args[1], factor, depth, out);
  } else if (e->kind == KILN_EXPR_MUL && is_by) add_values(a, e->args[0], factor * c, depth, out);
  else if (e->kind == KILN_EXPR_DIV && is_by) divide(a, e, c, factor, depth, out);
  else if (e->kind == KILN_EXPR_MOD && is_by) take_rest(a, e, c, factor, depth, out);
  else if (e->kind == KILN_EXPR_MIN || e->kind == KILN_EXPR_MAX) clamp(a, e, factor, depth, out);
  else if (e->kind == KILN_EXPR_CAST) add_values(a, e->args[0], factor, depth, out);
  else if (e->kind == KILN_EXPR_SELECT) choose(a, e, factor, depth, out);
  else scatter(a, e, factor, depth, out);
}

// --- footprints ---

// The two digits of x, `a*(x / c) + b*(x % c)`: x % c sweeps a contiguous run for each quotient x /
// c. False if the address has no such pair, or x is more than one stride or a stride of c and more.
static bool add_digits(const access_summary *a, const access_atom *rest, int depth, values *out) {
  int64_t c;
  if (rest->e->kind != KILN_EXPR_MOD || !kiln_expr_is_int(rest->e->args[1], &c)) return false;
  for (int i = 0; i < a->n_atoms; i++) {
    const access_atom *q = &a->atoms[i];
    values x = {0}, pieces = {0};
    if (q->e->kind != KILN_EXPR_DIV || q->e->args[0] != rest->e->args[0] ||
        q->e->args[1] != rest->e->args[1])
      continue;
    add_values(a, rest->e->args[0], 1, depth, &x);
    x.n = kiln_strides_merge(x.n, x.s);
    divide(a, q->e, c, 1, depth, &pieces);
    if (x.n != 1 || pieces.n > 1 || x.s[0].step >= c) return false;
    push_value(out, rest->step * x.s[0].step, pieces.n ? x.s[0].n / pieces.s[0].n : x.s[0].n);
    return true;
  }
  return false;
}

kiln_footprint kiln_access_footprint(const access_summary *a, int depth, int64_t line_bytes) {
  kiln_footprint r = kiln_footprint_at(a->offset, kiln_dtype_bytes(a->buffer->dtype));
  values v = {0};
  for (int i = 0; i < a->n_terms; i++) {
    const access_term *t = &a->terms[i];
    if (t->depth >= depth) {
      r.offset += t->step * a->ranges[t->depth].step;
      kiln_footprint_repeat(&r, t->step, a->ranges[t->depth].n);
    } else kiln_footprint_move(&r, t->step, a->ranges[t->depth].n, line_bytes);
  }
  for (int i = 0; i < a->n_atoms; i++) {
    if (!add_digits(a, &a->atoms[i], depth, &v))
      add_values(a, a->atoms[i].e, a->atoms[i].step, depth, &v);
    const int64_t grain = outer_grain(a, a->atoms[i].e, depth);
    if (grain) kiln_footprint_move(&r, a->atoms[i].step * grain, (double)line_bytes, line_bytes);
  }
  for (int i = 0; i < v.n; i++) kiln_footprint_repeat(&r, v.s[i].step, v.s[i].n);
  kiln_footprint_normalize(&r, line_bytes);
  return r;
}

kiln_footprint kiln_access_footprint_over(const access_summary *a, int depth, double n,
                                          int64_t line_bytes) {
  kiln_stride *r = &a->ranges[depth - 1];
  const double all = r->n;
  r->n = n < all ? n : all;
  const kiln_footprint out = kiln_access_footprint(a, depth - 1, line_bytes);
  r->n = all;
  return out;
}

bool kiln_access_moves(const access_summary *a, int depth) {
  for (int i = 0; i < a->n_terms; i++)
    if (a->terms[i].depth == depth && a->terms[i].step != 0) return true;
  if (depth >= a->depth) return false; // this access is outside of that loop
  for (int i = 0; i < a->n_atoms; i++)
    if (kiln_expr_uses(a->atoms[i].e, a->path[depth]->var)) return true;
  return false;
}

static const access_atom *next_outer(const access_summary *a, int depth, int *at) {
  while (*at < a->n_atoms) {
    const access_atom *x = &a->atoms[(*at)++];
    for (int d = 0; d < depth && d < a->depth; d++)
      if (kiln_expr_uses(x->e, a->path[d]->var)) return x;
  }
  return NULL;
}

static const access_term *next_term(const access_summary *a, int depth, int64_t size, int *at) {
  while (*at < a->n_terms && a->terms[*at].depth < depth) {
    const access_term *x = &a->terms[(*at)++];
    if (x->step % size != 0) return x;
  }
  return NULL;
}

bool kiln_access_is_parallel(const access_summary *a, const access_summary *b, int depth,
                             int64_t size) {
  for (int i = 0, k = 0;;) {
    const access_term *x = next_term(a, depth, size, &i), *y = next_term(b, depth, size, &k);
    if (!x && !y) break;
    if (!x || !y || x->depth != y->depth || (x->step - y->step) % size != 0) return false;
  }
  for (int i = 0, k = 0;;) {
    const access_atom *x = next_outer(a, depth, &i), *y = next_outer(b, depth, &k);
    if (!x && !y) return true;
    if (!x || !y || x->e != y->e || (x->step - y->step) % size != 0) return false;
  }
}

bool kiln_access_is_alike(const access_summary *a, const access_summary *b, int depth) {
  return a->buffer == b->buffer && kiln_access_is_parallel(a, b, depth, INT64_MAX);
}

// Size of the intersection of boxes in iterations; box i bounds the outermost depths[i] loops.
static double volume_of(int depth, int n, const kiln_stride *const *boxes, const int *depths) {
  double volume = 1;
  for (int d = 0; d < depth; d++) {
    double begin = 0, end = INFINITY;
    for (int i = 0; i < n; i++) {
      if (d >= depths[i]) continue;
      begin = fmax(begin, (double)boxes[i][d].step);
      end = fmin(end, (double)boxes[i][d].step + boxes[i][d].n);
    }
    volume *= fmax(end - begin, 0);
  }
  return volume;
}

double kiln_access_common_iterations(const access_summary *a, const access_summary *b, int depth) {
  const kiln_stride *boxes[4] = {a->ranges, b->ranges};
  int depths[4] = {depth, depth};
  double n = volume_of(depth, 2, boxes, depths);
  const access_summary *with_hole[2] = {a, a->hole == b->hole ? NULL : b};
  for (int i = 0; i < 2; i++) {
    const access_summary *x = with_hole[i];
    if (!x || !x->hole || x->hole_depth > depth) continue;
    boxes[2] = x->hole;
    depths[2] = x->hole_depth;
    n -= volume_of(depth, 3, boxes, depths);
  }
  if (!a->hole || !b->hole || a->hole == b->hole || a->hole_depth > depth || b->hole_depth > depth)
    return n;
  boxes[3] = a->hole;
  depths[3] = a->hole_depth;
  return n + volume_of(depth, 4, boxes, depths);
}

bool kiln_access_is_same(const access_summary *a, const access_summary *b) {
  if (a->buffer != b->buffer || a->is_write != b->is_write || a->depth != b->depth ||
      a->offset != b->offset || a->n_terms != b->n_terms || a->n_atoms != b->n_atoms ||
      a->hole != b->hole)
    return false;
  for (int d = 0; d < a->depth; d++)
    if (a->path[d] != b->path[d]) return false;
  for (int i = 0; i < a->n_terms; i++)
    if (a->terms[i].depth != b->terms[i].depth || a->terms[i].step != b->terms[i].step)
      return false;
  for (int i = 0; i < a->n_atoms; i++)
    if (a->atoms[i].e != b->atoms[i].e || a->atoms[i].step != b->atoms[i].step) return false;
  return true;
}

const access_summary *kiln_access_merge(kiln_arena *arena, const access_summary *a,
                                        const access_summary *b) {
  int other = -1;
  if (!kiln_access_is_same(a, b)) return NULL;
  for (int d = 0; d < a->depth; d++) {
    const kiln_stride *x = &a->ranges[d], *y = &b->ranges[d];
    if (x->step == y->step && x->n == y->n) continue;
    if (other >= 0) return NULL;
    other = d;
  }
  if (other < 0) return a;
  const kiln_stride *x = &a->ranges[other], *y = &b->ranges[other];
  const double begin = fmin((double)x->step, (double)y->step),
               end = fmax((double)x->step + x->n, (double)y->step + y->n);
  if (end - begin > x->n + y->n) return NULL; // the ranges leave a gap between them
  access_summary *out = KILN_NEW(arena, access_summary);
  *out = *a;
  out->ranges = KILN_NEW_ARRAY(arena, kiln_stride, a->depth);
  for (int d = 0; d < a->depth; d++) out->ranges[d] = a->ranges[d];
  out->ranges[other] = (kiln_stride){(int64_t)begin, end - begin};
  return out;
}

// --- addresses ---

typedef struct address {
  int64_t offset;
  KILN_VEC(access_term) terms;
  KILN_VEC(access_atom) atoms;
} address;

static void add_term(collector *c, kiln_symbol var, int64_t step, address *out) {
  int depth = -1, at = out->terms.n;
  for (int d = 0; d < c->around.n; d++)
    if (c->around.data[d]->var == var) depth = d;
  if (depth < 0 || step == 0) return;
  for (int i = 0; i < out->terms.n; i++)
    if (out->terms.data[i].depth == depth) {
      out->terms.data[i].step += step;
      return;
    }
  KILN_VEC_PUSH(&c->cx->scratch, &out->terms, (access_term){depth, step});
  for (; at > 0 && out->terms.data[at - 1].depth > depth; at--)
    out->terms.data[at] = out->terms.data[at - 1];
  out->terms.data[at] = (access_term){depth, step};
}

static void add_index(collector *c, const kiln_expr *e, int64_t step, address *out) {
  int64_t k;
  if (kiln_expr_is_int(e, &k)) out->offset += step * k;
  else if (e->kind == KILN_EXPR_VAR) add_term(c, e->u.sym, step, out);
  else if (e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB) {
    add_index(c, e->args[0], step, out);
    add_index(c, e->args[1], e->kind == KILN_EXPR_ADD ? step : -step, out);
  } else if (e->kind == KILN_EXPR_MUL && kiln_expr_is_int(e->args[1], &k))
    add_index(c, e->args[0], step * k, out);
  else if (e->kind == KILN_EXPR_MUL && kiln_expr_is_int(e->args[0], &k))
    add_index(c, e->args[1], step * k, out);
  else KILN_VEC_PUSH(&c->cx->scratch, &out->atoms, (access_atom){e, step});
}

static void *copy(collector *c, const void *from, size_t bytes) {
  char *to = kiln_arena_alloc(&c->cx->scratch, bytes + 1);
  for (size_t i = 0; i < bytes; i++) to[i] = ((const char *)from)[i];
  return to;
}

static void push_unit(collector *c, access_unit ***at, access_unit u) {
  access_unit *x = KILN_NEW(&c->cx->scratch, access_unit);
  *x = u;
  **at = x;
  *at = &x->next;
}

static void add_access(collector *c, int buffer, const kiln_expr *const *index, bool is_write,
                       access_unit ***at) {
  const kiln_buffer *b = c->l->buffers.data[buffer];
  address x = {.offset = c->bases[b->id]};
  if (b->scope == KILN_SCOPE_REGISTER) return;
  for (int k = 0; k < b->rank; k++)
    add_index(c, index[k], b->strides[k] * kiln_dtype_bytes(b->dtype), &x);
  const size_t depth = (size_t)c->around.n;
  access_summary *a = KILN_NEW(&c->cx->scratch, access_summary);
  *a = (access_summary){.id = c->out->n_accesses++,
                        .buffer = b,
                        .is_write = is_write,
                        .depth = c->around.n,
                        .path = copy(c, c->around.data, depth * sizeof(access_loop *)),
                        .ranges = copy(c, c->ranges.data, depth * sizeof(kiln_stride)),
                        .hole_depth = c->hole_depth,
                        .hole = c->hole,
                        .offset = x.offset,
                        .n_terms = x.terms.n,
                        .n_atoms = x.atoms.n,
                        .terms = x.terms.data,
                        .atoms = x.atoms.data};
  push_unit(c, at, (access_unit){.access = a});
}

// --- conditions ---

// Tightens the range of the loop variable with the greatest coefficient so that |x| <= |bound| can
// hold; false if it never holds.
static bool narrow(collector *c, const address *x, int64_t bound) {
  double least = (double)x->offset, most = least, weight = 0;
  const access_term *main = NULL;
  for (int i = 0; i < x->terms.n; i++) {
    const access_term *t = &x->terms.data[i];
    const kiln_stride *r = &c->ranges.data[t->depth];
    const double first = (double)(t->step * r->step), last = first + (double)t->step * (r->n - 1);
    const double steps = fabs((double)t->step) * 1e6 + r->n;
    most += first > last ? first : last;
    least += first > last ? last : first;
    if (r->n > 1 && steps > weight) {
      weight = steps;
      main = t;
    }
  }
  if (least > (double)bound) return false;
  if (!main || most <= (double)bound) return true;
  kiln_stride *r = &c->ranges.data[main->depth];
  double off = (most - (double)bound) / fabs((double)main->step);
  if (x->terms.n == 1) off = ceil(off);
  else c->is_exact = false;
  if (off > r->n - 1) off = r->n - 1;
  if (main->step < 0) r->step += (int64_t)off;
  r->n -= off;
  return true;
}

// Tightens ranges by |sign| * (a - b) <= |bound|.
static bool narrow_difference(collector *c, const kiln_expr *a, const kiln_expr *b, int64_t sign,
                              int64_t bound) {
  address x = {0};
  add_index(c, a, sign, &x);
  add_index(c, b, -sign, &x);
  if (x.atoms.n == 0) return narrow(c, &x, bound);
  c->is_exact = false;
  return true;
}

// The collector's state before a condition was assumed, restored after its body.
typedef struct before {
  const kiln_stride *ranges, *hole;
  int hole_depth;
} before;
static before saved(collector *c) {
  return (before){copy(c, c->ranges.data, (size_t)c->ranges.n * sizeof(kiln_stride)), c->hole,
                  c->hole_depth};
}
static void restore(collector *c, const before *b) {
  for (int i = 0; i < c->ranges.n; i++) c->ranges.data[i] = b->ranges[i];
  c->hole = b->hole;
  c->hole_depth = b->hole_depth;
}

static bool assume(collector *c, const kiln_expr *e, bool holds);

// A disjunction of comparisons: true everywhere except in the box where all are false, the hole. If
// conditions are nested, the outermost hole counts.
static bool leave_hole(collector *c, const kiln_expr *e, bool holds) {
  const before was = saved(c);
  c->is_exact = true;
  const bool has_hole = assume(c, e, !holds) && c->is_exact && !was.hole;
  const before hole = saved(c);
  restore(c, &was);
  c->is_exact = false;
  if (!has_hole) return true;
  for (int d = 0; d < c->ranges.n; d++)
    if (hole.ranges[d].n < was.ranges[d].n) c->hole_depth = d + 1;
  c->hole = c->hole_depth ? hole.ranges : NULL;
  return c->hole_depth > 0; // without a hole the condition counts as always true
}

// Tightens ranges to the iterations in which |e| is |holds|; false if there are none.
static bool assume(collector *c, const kiln_expr *e, bool holds) {
  const kiln_expr_kind k = e->kind;
  if (k == KILN_EXPR_NOT) return assume(c, e->args[0], !holds);
  if (k == (holds ? KILN_EXPR_AND : KILN_EXPR_OR))
    return assume(c, e->args[0], holds) && assume(c, e->args[1], holds);
  if (k == (holds ? KILN_EXPR_OR : KILN_EXPR_AND)) return leave_hole(c, e, holds);
  const bool is_equal = k == (holds ? KILN_EXPR_EQ : KILN_EXPR_NE);
  const bool is_less = k == (holds ? KILN_EXPR_LT : KILN_EXPR_GE),
             is_most = k == (holds ? KILN_EXPR_LE : KILN_EXPR_GT),
             is_more = k == (holds ? KILN_EXPR_GT : KILN_EXPR_LE),
             is_least = k == (holds ? KILN_EXPR_GE : KILN_EXPR_LT);
  if (e->n_args != 2 || e->args[0]->dtype != KILN_I64 || e->has_load ||
      !(is_equal || is_less || is_most || is_more || is_least)) {
    c->is_exact = false;
    return true;
  }
  const kiln_expr *a = e->args[0], *b = e->args[1];
  if ((is_equal || is_most || is_less) && !narrow_difference(c, a, b, 1, is_less ? -1 : 0))
    return false;
  return !(is_equal || is_least || is_more) || narrow_difference(c, a, b, -1, is_more ? -1 : 0);
}

// --- the program ---

// Collects the loads of an expression in evaluation order. A shared subexpression is visited once
// for each use, under that use's conditions, up to a number of nodes; beyond that once, and its
// conditions are ignored.
typedef struct reading {
  collector *c;
  access_unit ***at;
  int n_left;
  kiln_map seen; // nodes visited since that limit was reached
} reading;

static void read_expr(reading *r, const kiln_expr *e) {
  collector *c = r->c;
  if (!e->has_load) return;
  if (r->n_left-- <= 0) {
    if (kiln_map_find(&r->seen, e->id)) return;
    kiln_map_put(&r->seen, e->id, 1);
  }
  if (e->kind == KILN_EXPR_SELECT && r->n_left > 0) {
    const before was = saved(c);
    read_expr(r, e->args[0]);
    for (int i = 1; i < 3; i++) {
      if (assume(c, e->args[0], i == 1)) read_expr(r, e->args[i]);
      restore(c, &was);
    }
    return;
  }
  for (int i = 0; i < e->n_args; i++) read_expr(r, e->args[i]);
  if (e->kind == KILN_EXPR_LOAD) add_access(c, e->u.tensor, e->args, false, r->at);
}

static void add_reads(collector *c, const kiln_expr *e, access_unit ***at) {
  enum { MAX_NODES = 4096 };
  reading r = {.c = c, .at = at, .n_left = MAX_NODES};
  kiln_map_init(&r.seen, &c->cx->scratch);
  read_expr(&r, e);
}

static void add_store(collector *c, const kiln_loop *n, access_unit ***at) {
  add_reads(c, n->value, at);
  for (int k = 0; k < c->l->buffers.data[n->buffer]->rank; k++) add_reads(c, n->index[k], at);
  if (n->combiner != KILN_COMBINE_NONE) add_access(c, n->buffer, n->index, false, at);
  add_access(c, n->buffer, n->index, true, at);
}

static double iterations(collector *c, const kiln_loop *n) {
  const kiln_interval r = kiln_expr_interval(c->cx, n->extent, &c->known);
  if (r.hi > INT64_MAX / 2 || r.lo < INT64_MIN / 2) {
    c->status = KILN_FAIL(c->cx->diag, KILN_INTERNAL, "reuse",
                          "loop %s: the extent must have a bound", kiln_symbol_text(c->cx, n->var));
    return 1;
  }
  return ((double)r.hi + (double)(r.lo < 0 ? 0 : r.lo)) / 2;
}

static void add_all(collector *c, const kiln_loop *first, access_unit ***at);

static void add_loop(collector *c, const kiln_loop *n, access_unit ***at) {
  access_loop *x = KILN_NEW(&c->cx->scratch, access_loop);
  *x = (access_loop){n->var, c->out->n_loops++, c->around.n, iterations(c, n), NULL};
  if (x->n <= 0) return;
  if (x->n == 1) { // the loop runs once: its variable is 0
    add_all(c, n->body, at);
    return;
  }
  access_unit **body = &x->body;
  KILN_VEC_PUSH(&c->cx->scratch, &c->around, x);
  KILN_VEC_PUSH(&c->cx->scratch, &c->ranges, (kiln_stride){0, x->n});
  kiln_ranges_push(&c->known, n->var, 0, (int64_t)x->n - 1);
  add_all(c, n->body, &body);
  kiln_ranges_pop(&c->known, 1);
  c->ranges.n--;
  c->around.n--;
  if (x->body) push_unit(c, at, (access_unit){.loop = x});
}

static void add_branch(collector *c, const kiln_loop *n, access_unit ***at) {
  const before was = saved(c);
  add_reads(c, n->cond, at);
  if (assume(c, n->cond, true)) add_all(c, n->body, at);
  restore(c, &was);
}

static void add_all(collector *c, const kiln_loop *first, access_unit ***at) {
  for (const kiln_loop *n = first; n && c->status == KILN_OK; n = n->next) switch (n->kind) {
    case KILN_LOOP_FOR: add_loop(c, n, at); break;
    case KILN_LOOP_IF: add_branch(c, n, at); break;
    case KILN_LOOP_STORE: add_store(c, n, at); break;
    case KILN_LOOP_ALLOC: add_all(c, n->body, at); break;
    case KILN_LOOP_INSTR:
      c->status = KILN_FAIL(c->cx->diag, KILN_INTERNAL, "reuse", "instructions must be expanded");
      break;
    case KILN_LOOP_DEVICE: // not in loops
    case KILN_LOOP_PREFETCH: break;
    }
}

// Assigns addresses: arguments and workspace first, then the stack (LOCAL and SHARED).
static void place(collector *c) {
  int64_t at = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < c->l->buffers.n; i++) {
      const kiln_buffer *b = c->l->buffers.data[i];
      const bool is_stack = b->scope == KILN_SCOPE_LOCAL || b->scope == KILN_SCOPE_SHARED;
      if (b->scope == KILN_SCOPE_REGISTER || is_stack != (pass == 1)) continue;
      c->bases[i] = at;
      at += kiln_round_up(kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype), pass ? STACK : PAGE);
    }
}

kiln_status kiln_accesses_make(kiln_ctx *cx, const kiln_loops *l, access_list *out) {
  collector c = {.cx = cx, .l = l, .out = out};
  *out = (access_list){0};
  c.bases = KILN_NEW_ARRAY(&cx->scratch, int64_t, l->buffers.n);
  kiln_ranges_init(&c.known, &cx->scratch);
  access_unit **at = &out->body;
  place(&c);
  add_all(&c, l->body, &at);
  return c.status;
}

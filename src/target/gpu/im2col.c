// Proves that an im2col-mode TMA copy reads the same elements as the loops. The indices' terms give
// the first window and the element within it; isl then decides whether the hardware's walk from
// there reads the elements that the loops read.
#include "target/gpu/im2col.h"

#include "analysis/dependence.h"
#include "analysis/point.h"
#include "analysis/terms.h"
#include "support/integer.h"

enum {
  WORD = 8, // elements, 16 bytes
  MAX_OFFSET = 255,
  MAX_CORNER = 127,
  MAX_STEP = 8,
  MAX_CLAIMS = 16,
  MAX_VARS = 64
};

typedef struct finder {
  kiln_ctx *cx;
  const kiln_im2col_read *r;
  kiln_ranges ranges;
  const kiln_expr *index[KILN_IM2COL_AXES];  // of columns, rows, images
  const kiln_expr *places[KILN_IM2COL_AXES]; // the part of it that is the window's origin
  const kiln_expr *within[2];                // and the offset within the window
} finder;

static const kiln_expr *simple(finder *f, const kiln_expr *e) {
  return kiln_simplify(f->cx, e, &f->ranges);
}

static const kiln_expr *number(finder *f, int64_t i) { return kiln_int(f->cx, i); }

static const kiln_expr *scaled(finder *f, const kiln_expr *e, int64_t by) {
  return kiln_mul(f->cx, e, number(f, by));
}

static const kiln_expr *compare(finder *f, kiln_expr_kind kind, const kiln_expr *a,
                                const kiln_expr *b) {
  return kiln_binary(f->cx, kind, a, b);
}

static const kiln_expr *not_of(finder *f, const kiln_expr *e) {
  return kiln_unary(f->cx, KILN_EXPR_NOT, e);
}

// --- the tensor's axes ---

// Channels are contiguous, those that are read begin at a whole word; at most three other axes have
// more than one element.
static bool find_axes(finder *f, kiln_im2col *out) {
  const kiln_im2col_read *r = f->r;
  int n = 0;
  out->channel = NULL;
  for (int k = 0; k < r->rank; k++) {
    if (kiln_expr_uses(r->index[k], r->channel)) {
      const kiln_expr *first = simple(f, kiln_sub(f->cx, r->index[k], kiln_var(f->cx, r->channel)));
      if (out->channel || r->strides[k] != 1 || kiln_expr_uses(first, r->channel) ||
          kiln_expr_uses(first, r->row) ||
          !kiln_expr_is_zero(simple(f, kiln_mod(f->cx, first, number(f, WORD)))))
        return false;
      out->channel = first;
      out->channels = r->sizes[k];
      continue;
    }
    if (r->sizes[k] == 1) continue;
    if (n == KILN_IM2COL_AXES || r->strides[k] <= 0 || r->strides[k] % WORD) return false;
    int at = n++;
    for (; at > 0 && out->strides[at - 1] > r->strides[k]; at--) {
      out->strides[at] = out->strides[at - 1];
      out->sizes[at] = out->sizes[at - 1];
      f->index[at] = f->index[at - 1];
    }
    out->strides[at] = r->strides[k];
    out->sizes[at] = r->sizes[k];
    f->index[at] = r->index[k];
  }
  for (int k = n; k < KILN_IM2COL_AXES && n > 0; k++) {
    out->strides[k] = out->strides[k - 1] * out->sizes[k - 1];
    out->sizes[k] = 1;
    f->index[k] = number(f, 0);
  }
  return n > 0 && out->channel;
}

// --- windows' origins, and offsets within them ---

static bool uses_steps(const finder *f, const kiln_expr *e) {
  for (int i = 0; i < f->r->n_vars; i++)
    if (f->r->steps[i] && kiln_expr_uses(e, f->r->vars[i])) return true;
  return false;
}

// How to assign terms that vary neither with rows nor with steps, as block indices do.
typedef enum choice { AS_KIN, AS_PLACES, AS_WITHIN, N_CHOICES } choice;

static kiln_search find_atom(const kiln_expr *e, void *argument) {
  return e == argument ? KILN_SEARCH_ENDS : KILN_SEARCH_INTO;
}

// Whether |atom| is part of a term that varies with the rows.
static bool is_kin(finder *f, const kiln_expr *atom) {
  for (int a = 0; a < KILN_IM2COL_AXES; a++) {
    const kiln_terms t = kiln_terms_of(f->cx, f->index[a]);
    for (int i = 0; i < t.n; i++)
      if (kiln_expr_uses(t.data[i].atom, f->r->row) &&
          kiln_expr_search(f->cx, t.data[i].atom, find_atom, (void *)(uintptr_t)atom))
        return true;
  }
  return false;
}

// Whether is_kin holds of a term that does not vary with the rows itself.
static bool has_kin(finder *f) {
  for (int a = 0; a < KILN_IM2COL_AXES; a++) {
    const kiln_terms t = kiln_terms_of(f->cx, f->index[a]);
    for (int i = 0; i < t.n; i++)
      if (!kiln_expr_uses(t.data[i].atom, f->r->row) && is_kin(f, t.data[i].atom)) return true;
  }
  return false;
}

// Terms that vary with the rows are the window's origin, those that vary with steps its offset.
static void take_apart(finder *f, choice how) {
  for (int a = 0; a < KILN_IM2COL_AXES; a++) {
    const kiln_terms t = kiln_terms_of(f->cx, f->index[a]);
    const bool is_image = a == KILN_IM2COL_AXES - 1;
    const kiln_expr *within = number(f, t.constant);
    f->places[a] = number(f, 0);
    for (int i = 0; i < t.n; i++) {
      const kiln_expr *atom = t.data[i].atom, *term = scaled(f, atom, t.data[i].coef);
      const bool moves =
          is_image || kiln_expr_uses(atom, f->r->row) ||
          (!uses_steps(f, atom) && (how == AS_KIN ? is_kin(f, atom) : how == AS_PLACES));
      const kiln_expr **to = moves ? &f->places[a] : &within;
      *to = kiln_add(f->cx, *to, term);
    }
    if (is_image) f->places[a] = kiln_add(f->cx, f->places[a], within);
    else f->within[a] = within;
  }
}

// The stride of windows along axis |a|, by which their origins are divided.
static int64_t step_of(finder *f, int a) {
  const kiln_terms t = kiln_terms_of(f->cx, simple(f, f->places[a]));
  int64_t step = t.constant;
  for (int i = 0; i < t.n; i++) step = kiln_gcd(step, t.data[i].coef);
  if (step == 0) step = 1;
  const kiln_expr *sum = number(f, t.constant / step);
  for (int i = 0; i < t.n; i++)
    sum = kiln_add(f->cx, sum, scaled(f, t.data[i].atom, t.data[i].coef / step));
  f->places[a] = sum;
  return step;
}

// Corners and offsets, if within the hardware's limits. The upper corner is how far behind the
// tensor's last element the last window begins.
static bool find_corners(finder *f, kiln_im2col *w) {
  for (int a = 0; a < 2; a++) {
    const kiln_interval within = kiln_expr_interval(f->cx, simple(f, f->within[a]), &f->ranges),
                        places = kiln_expr_interval(f->cx, simple(f, f->places[a]), &f->ranges);
    if (within.lo < -MAX_CORNER || within.lo > MAX_CORNER || within.hi > MAX_OFFSET ||
        within.hi - within.lo > MAX_OFFSET || places.lo < 0 || places.hi > INT32_MAX ||
        w->steps[a] > MAX_STEP)
      return false;
    w->lower[a] = within.lo;
    w->counts[a] = places.hi + 1;
    w->offsets[a] = simple(f, kiln_sub(f->cx, f->within[a], number(f, within.lo)));
  }
  return true;
}

// --- isl ---

// Whether |conds| hold at one of some sampled points: isl is slow on sets that are not empty.
static bool is_seen(const finder *f, int n, const kiln_expr *const *conds) {
  enum { POINTS = 512 };
  const kiln_im2col_read *r = f->r;
  int64_t at[MAX_VARS];
  uint64_t seed = 1;
  for (int p = 0; p < POINTS; p++) {
    for (int i = 0; i < r->n_vars; i++) {
      seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      at[i] = (int64_t)((seed >> 33) % (uint64_t)r->extents[i]);
    }
    int k = 0;
    while (k < n && kiln_expr_at(conds[k], r->n_vars, r->vars, at)) k++;
    if (k == n) return true;
  }
  return false;
}

// Whether |conds| never hold together.
static bool never(finder *f, int n, const kiln_expr *const *conds) {
  enum { MAX_CONDS = 64 };
  const kiln_im2col_read *r = f->r;
  const kiln_expr *all[MAX_CONDS];
  int n_all = 0;
  if (n + r->n_conds > MAX_CONDS) return false;
  for (int i = 0; i < r->n_conds; i++) all[n_all++] = r->conds[i];
  for (int i = 0; i < n; i++)
    if (conds[i]) all[n_all++] = conds[i];
  if (is_seen(f, n_all, all)) return false;
  if (r->is_draft) return true;
  return kiln_conditions_never_hold(f->cx, r->n_vars, r->vars, r->extents, n_all, all);
}

// How many rows of windows read anything, by bisection with isl, where intervals are too weak.
static int64_t count_rows(finder *f, int64_t most) {
  int64_t least = 0, half = most - 1; // |most| are enough, so many are not
  for (; most - least > 1; half = least + (most - least) / 2) {
    const kiln_expr *conds[] = {f->r->where,
                                compare(f, KILN_EXPR_GE, simple(f, f->places[1]), number(f, half))};
    if (never(f, 2, conds)) most = half;
    else least = half;
  }
  return most;
}

static const kiln_expr *at_first(finder *f, const kiln_expr *e) {
  const kiln_expr *zero = number(f, 0);
  return simple(f, kiln_expr_substitute(f->cx, e, 1, &f->r->row, &zero));
}

// The origin of window |i| along each axis.
static void places_of(finder *f, const kiln_im2col *w, const kiln_expr *i, const kiln_expr **out) {
  kiln_ctx *cx = f->cx;
  const kiln_expr *columns = number(f, w->counts[0]), *rows = number(f, w->counts[1]);
  out[0] = scaled(f, kiln_mod(cx, i, columns), w->steps[0]);
  out[1] = scaled(f, kiln_mod(cx, kiln_div(cx, i, columns), rows), w->steps[1]);
  out[2] = kiln_div(cx, i, number(f, w->counts[0] * w->counts[1]));
}

// A conjunction of conditions.
typedef struct claims {
  const kiln_expr *list[MAX_CLAIMS];
  int n;
} claims;

static bool has(const claims *c, const kiln_expr *e) {
  for (int i = 0; i < c->n; i++)
    if (c->list[i] == e) return true;
  return false;
}

// Adds conditions that do not follow from others; false: too many.
static bool claim(finder *f, claims *c, const kiln_expr *e) {
  e = simple(f, e);
  if (e->kind == KILN_EXPR_AND) return claim(f, c, e->args[0]) && claim(f, c, e->args[1]);
  if (kiln_proves(f->cx, e, &f->ranges) || has(c, e)) return true;
  if (c->n == MAX_CLAIMS) return false;
  c->list[c->n++] = e;
  return true;
}

// Whether all of |b| holds where all of |a| does.
static bool implies(finder *f, const claims *a, const claims *b) {
  const kiln_expr *conds[MAX_CLAIMS + 1];
  for (int i = 0; i < a->n; i++) conds[i] = a->list[i];
  for (int i = 0; i < b->n; i++) {
    conds[a->n] = not_of(f, b->list[i]);
    if (!has(a, b->list[i]) && !never(f, a->n + 1, conds)) return false;
  }
  return true;
}

// Whether the hardware's walk reads the elements that the loops read.
static bool reads_same(finder *f, kiln_im2col *w) {
  kiln_ctx *cx = f->cx;
  const kiln_expr *columns = number(f, w->counts[0]), *rows = number(f, w->counts[1]);
  const kiln_expr *first = at_first(
      f,
      kiln_add(cx,
               kiln_mul(cx, kiln_add(cx, kiln_mul(cx, f->places[2], rows), f->places[1]), columns),
               f->places[0]));
  const kiln_expr *at[KILN_IM2COL_AXES];
  claims where = {0}, inside = {0}, same = {0};
  bool fit = !f->r->where || claim(f, &where, f->r->where);
  places_of(f, w, first, w->first);
  places_of(f, w, kiln_add(cx, first, kiln_var(cx, f->r->row)), at);
  for (int a = 0; a < KILN_IM2COL_AXES; a++) {
    if (a < 2) at[a] = kiln_add(cx, at[a], f->within[a]);
    at[a] = simple(f, at[a]);
    if (kiln_expr_is_zero(simple(f, kiln_sub(cx, at[a], f->index[a])))) at[a] = f->index[a];
    fit = fit && claim(f, &same, compare(f, KILN_EXPR_EQ, at[a], f->index[a])) &&
          claim(f, &inside, compare(f, KILN_EXPR_GE, at[a], number(f, 0))) &&
          claim(f, &inside, compare(f, KILN_EXPR_LT, at[a], number(f, w->sizes[a])));
  }
  return fit && implies(f, &where, &same) && implies(f, &where, &inside) &&
         implies(f, &inside, &where);
}

static bool has_corners(kiln_im2col *w) {
  for (int a = 0; a < 2; a++) {
    w->upper[a] = (w->counts[a] - 1) * w->steps[a] + 1 - w->sizes[a] + w->lower[a];
    if (w->upper[a] < -MAX_CORNER || w->upper[a] > MAX_CORNER) return false;
  }
  return true;
}

static bool is_im2col(finder *f, choice how, kiln_im2col *w) {
  take_apart(f, how);
  for (int a = 0; a < 2; a++) w->steps[a] = step_of(f, a);
  if (!find_corners(f, w)) return false;
  if (has_corners(w) && reads_same(f, w)) return true;
  const int64_t all = w->counts[1];
  w->counts[1] = count_rows(f, all);
  return w->counts[1] < all && has_corners(w) && reads_same(f, w);
}

bool kiln_im2col_find(kiln_ctx *cx, const kiln_im2col_read *r, kiln_im2col *out) {
  finder f = {.cx = cx, .r = r};
  *out = (kiln_im2col){0};
  kiln_ranges_init(&f.ranges, &cx->scratch);
  for (int i = 0; i < r->n_vars; i++) kiln_ranges_push(&f.ranges, r->vars[i], 0, r->extents[i] - 1);
  if (r->n_vars > MAX_VARS || !find_axes(&f, out)) return false;
  for (int a = 0; a < KILN_IM2COL_AXES; a++) f.index[a] = simple(&f, f.index[a]);
  bool is = false;
  for (choice how = has_kin(&f) ? AS_KIN : AS_PLACES; how < N_CHOICES && !is; how++)
    is = is_im2col(&f, how, out);
  for (int a = 0; a < KILN_IM2COL_AXES && is; a++) {
    if (a < 2) out->first[a] = kiln_add(cx, out->first[a], number(&f, out->lower[a]));
    out->first[a] = simple(&f, out->first[a]);
  }
  return is;
}

// The equivalence check of shape buckets: evaluates both programs in lock step, statement by
// statement, at sample points of the smaller one.
#include "dynamic/equivalence.h"

#include "support/integer.h"

#include <string.h>

enum { N_CORNERS = 64, N_POINTS = 512, N_EDGES = 4, MAX_INNER = 16, MAX_DIMS = 2 * KILN_MAX_RANK };

typedef struct equivalence_check {
  kiln_ctx *cx;
  const kiln_program *all, *some;
  const int64_t *values; // contents of the last tensor of |all|
  bool both_read;        // |some| has that tensor, too
  const kiln_bits *merged;
  kiln_axis_map (*axes)[KILN_MAX_RANK];
  bool *is_table; // by tensor: constants with different elements in the two programs
  int n_inner;    // extents of inner axes that merged axes may have: those that differ between the
                  // programs
  kiln_axis_map inner[MAX_INNER];
} equivalence_check;

// Memoized results at a point: values of nodes on both sides, and pairs of nodes found equal.
typedef struct found {
  kiln_map all, some, same; // |all|, |some|: node -> value, 0: not constant
} found;

// A point of a statement in both programs.
typedef struct point {
  const equivalence_check *m;
  const kiln_stmt *all, *some;
  int64_t at_all[MAX_DIMS], at_some[MAX_DIMS];
  found *known; // NULL if all trees are small
} point;

static int64_t place(kiln_axis_map e, int64_t i) {
  return e.inner ? i / e.inner * e.most + i % e.inner : i;
}

// --- integers known at compile time ---
// One side of a point.

// One side of a point.
typedef struct side {
  const kiln_program *p;
  const kiln_stmt *s;
  const int64_t *at;
  const int64_t *values; // of the dimensions; NULL: this side does not load them
  kiln_map *known;       // NULL: no memoization
} side;

static bool evaluate(const side *d, const kiln_expr *e, int64_t *out);

static bool read_element(const kiln_tensor *t, int64_t i, int64_t *out) {
  const char *at = (const char *)t->data + (size_t)i * (size_t)kiln_dtype_bytes(t->dtype);
  int32_t narrow = 0;
  switch ((int)t->dtype) {
  case KILN_I64: memcpy(out, at, sizeof *out); return true;
  case KILN_I32:
    memcpy(&narrow, at, sizeof narrow);
    *out = narrow;
    return true;
  case KILN_BOOL: *out = *at != 0; return true;
  default: return false;
  }
}

static bool evaluate_load(const side *d, const kiln_expr *e, int64_t *out) {
  const kiln_tensor *t = d->p->tensors.data[e->u.tensor];
  int64_t shape[KILN_MAX_RANK], linear = 0, i = 0;
  if (d->values && t->id == d->p->tensors.n - 1) {
    if (!evaluate(d, e->args[0], &i)) return false;
    *out = d->values[i];
    return true;
  }
  if (t->role != KILN_CONST || !t->data || !kiln_tensor_static_shape(t, shape)) return false;
  for (int k = 0; k < e->n_args; k++) {
    if (!evaluate(d, e->args[k], &i) || i < 0 || i >= shape[k]) return false;
    linear = linear * shape[k] + i;
  }
  return read_element(t, linear, out);
}

static bool apply(kiln_expr_kind k, int64_t a, int64_t b, int64_t *out) {
  switch ((int)k) {
  case KILN_EXPR_ADD: *out = a + b; return true;
  case KILN_EXPR_SUB: *out = a - b; return true;
  case KILN_EXPR_MUL: *out = a * b; return true;
  case KILN_EXPR_DIV: *out = kiln_floor_div(a, b); return true;
  case KILN_EXPR_MOD: *out = kiln_floor_mod(a, b); return true;
  case KILN_EXPR_MIN: *out = a < b ? a : b; return true;
  case KILN_EXPR_MAX: *out = a > b ? a : b; return true;
  case KILN_EXPR_LT: *out = a < b; return true;
  case KILN_EXPR_LE: *out = a <= b; return true;
  case KILN_EXPR_GT: *out = a > b; return true;
  case KILN_EXPR_GE: *out = a >= b; return true;
  case KILN_EXPR_EQ: *out = a == b; return true;
  case KILN_EXPR_NE: *out = a != b; return true;
  case KILN_EXPR_AND: *out = a && b; return true;
  case KILN_EXPR_OR: *out = a || b; return true;
  default: return false;
  }
}

static bool is_whole(kiln_dtype t) { return t == KILN_I64 || t == KILN_I32 || t == KILN_BOOL; }

static bool compute(const side *d, const kiln_expr *e, int64_t *out) {
  int64_t a = 0, b = 0;
  switch ((int)e->kind) {
  case KILN_EXPR_INT: *out = e->u.i; return true;
  case KILN_EXPR_VAR:
    for (int k = 0; k < d->s->n_space + d->s->n_reduce; k++)
      if (d->s->dims[k].name == e->u.sym) {
        *out = d->at[k];
        return true;
      }
    return false;
  case KILN_EXPR_LOAD: return evaluate_load(d, e, out);
  case KILN_EXPR_SELECT: return evaluate(d, e->args[0], &a) && evaluate(d, e->args[a ? 1 : 2], out);
  case KILN_EXPR_CAST:
    if (!evaluate(d, e->args[0], &a)) return false;
    *out = e->dtype == KILN_BOOL ? a != 0 : a;
    return e->dtype != KILN_I32 || (a >= INT32_MIN && a <= INT32_MAX);
  case KILN_EXPR_NOT:
    if (!evaluate(d, e->args[0], &a)) return false;
    *out = !a;
    return true;
  default:
    return e->n_args == 2 && evaluate(d, e->args[0], &a) && evaluate(d, e->args[1], &b) &&
           apply(e->kind, a, b, out);
  }
}

static bool evaluate(const side *d, const kiln_expr *e, int64_t *out) {
  if (!is_whole(e->dtype)) return false;
  if (!d->known || e->n_args == 0) return compute(d, e, out);
  const uint64_t *known = kiln_map_find(d->known, e->id);
  if (!known) {
    int64_t *value = KILN_NEW(d->known->arena, int64_t);
    const bool has = compute(d, e, value);
    known = kiln_map_put(d->known, e->id, has ? (uint64_t)(uintptr_t)value : 0);
  }
  if (*known) *out = *(const int64_t *)(uintptr_t)*known;
  return *known != 0;
}

// --- lock-step comparison ---

static bool both(const point *p, const kiln_expr *a, const kiln_expr *b, int64_t *out_all,
                 int64_t *out_some) {
  const side all = {p->m->all, p->all, p->at_all, p->m->values, p->known ? &p->known->all : NULL},
             some = {p->m->some, p->some, p->at_some, p->m->both_read ? p->m->values : NULL,
                     p->known ? &p->known->some : NULL};
  return evaluate(&all, a, out_all) && evaluate(&some, b, out_some);
}

static bool same(const point *p, const kiln_expr *a, const kiln_expr *b);

static bool same_index(const point *p, kiln_axis_map e, const kiln_expr *a, const kiln_expr *b) {
  int64_t all = 0, some = 0;
  if (both(p, a, b, &all, &some)) return all == place(e, some);
  return !e.inner && same(p, a, b);
}

static bool same_load(const point *p, const kiln_expr *a, const kiln_expr *b) {
  if (a->u.tensor != b->u.tensor || p->m->is_table[a->u.tensor]) return false;
  for (int k = 0; k < a->n_args; k++)
    if (!same_index(p, p->m->axes[a->u.tensor][k], a->args[k], b->args[k])) return false;
  return true;
}

// Evaluates a float that depends on the dimensions only.
static bool evaluate_float(const side *d, const kiln_expr *e, double *out) {
  double a = 0, b = 0;
  int64_t i = 0;
  switch ((int)e->kind) {
  case KILN_EXPR_FLOAT: *out = e->u.f; return true;
  case KILN_EXPR_CAST:
    if (!evaluate(d, e->args[0], &i)) return false;
    *out = (double)i;
    return true;
  case KILN_EXPR_DIV:
    if (!evaluate_float(d, e->args[0], &a) || !evaluate_float(d, e->args[1], &b)) return false;
    *out = e->dtype == KILN_F32 ? (double)(float)(a / b) : a / b;
    return true;
  default: return false;
  }
}

static bool same_number(const point *p, const kiln_expr *a, const kiln_expr *b) {
  const side all = {p->m->all, p->all, p->at_all, p->m->values, p->known ? &p->known->all : NULL};
  double x = 0;
  return b->kind == KILN_EXPR_FLOAT && a->dtype == b->dtype && evaluate_float(&all, a, &x) &&
         x == b->u.f;
}

static bool compare(const point *p, const kiln_expr *a, const kiln_expr *b) {
  int64_t x = 0, y = 0;
  if (both(p, a, b, &x, &y)) return x == y;
  if (same_number(p, a, b)) return true;
  if (a->kind != b->kind || a->dtype != b->dtype || a->n_args != b->n_args) return false;
  switch ((int)a->kind) {
  case KILN_EXPR_LOAD: return same_load(p, a, b);
  case KILN_EXPR_SELECT:
    if (!both(p, a->args[0], b->args[0], &x, &y)) break;
    return x == y && same(p, a->args[x ? 1 : 2], b->args[x ? 1 : 2]);
  case KILN_EXPR_INT:
  case KILN_EXPR_FLOAT:
  case KILN_EXPR_VAR: return a == b;
  default: break;
  }
  for (int i = 0; i < a->n_args; i++)
    if (!same(p, a->args[i], b->args[i])) return false;
  return true;
}

static bool same(const point *p, const kiln_expr *a, const kiln_expr *b) {
  if (!p->known || a->n_args == 0) return compare(p, a, b);
  const uint64_t key = (uint64_t)a->id << 32 | b->id, *known = kiln_map_find(&p->known->same, key);
  return (known ? *known : *kiln_map_put(&p->known->same, key, compare(p, a, b))) != 0;
}

static bool same_or_none(const point *p, const kiln_expr *a, const kiln_expr *b) {
  return !a || !b ? a == b : same(p, a, b);
}

// --- points ---

static uint64_t next_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *state >> 33;
}

// Corners first; then points with half of their indices at or next to an edge.
static int64_t choose(int64_t extent, int k, int d, uint64_t *state) {
  const int64_t edges[N_EDGES] = {0, 1, extent - 1, extent - 2};
  if (k < N_CORNERS) return (k >> (d % 6) & 1) * (extent - 1);
  const uint64_t how = next_random(state) % (2 * N_EDGES);
  const int64_t inside = (int64_t)(next_random(state) % (uint64_t)extent);
  return how < N_EDGES && edges[how] >= 0 && edges[how] < extent ? edges[how] : inside;
}

static void set_point(point *p, int n, const kiln_axis_map *dims, int k, uint64_t *state) {
  for (int d = 0; d < n; d++) {
    int64_t extent = 1;
    kiln_expr_is_int(p->some->dims[d].extent, &extent);
    p->at_some[d] = choose(extent, k, d, state);
    p->at_all[d] = place(dims[d], p->at_some[d]);
  }
}

static bool is_long(const equivalence_check *m, const kiln_stmt *s) {
  bool is = s->body->n_tree > KILN_LONG_TREE || (s->guard && s->guard->n_tree > KILN_LONG_TREE);
  for (int k = 0; k < m->all->tensors.data[s->out]->rank; k++)
    is |= s->index[k]->n_tree > KILN_LONG_TREE;
  return is;
}

static bool holds_at(const point *p) {
  const kiln_stmt *a = p->all, *b = p->some;
  if (!same(p, a->body, b->body) || !same_or_none(p, a->guard, b->guard)) return false;
  for (int i = 0; i < p->m->all->tensors.data[a->out]->rank; i++) { // in terms of the dims
    const bool is_dim = i < a->n_space && a->index[i]->kind == KILN_EXPR_VAR &&
                        a->index[i]->u.sym == a->dims[i].name && a->index[i] == b->index[i];
    if (!is_dim && !same(p, a->index[i], b->index[i])) return false;
  }
  return true;
}

static bool holds_at_long(point *p) {
  kiln_arena *arena = &p->m->cx->scratch;
  const kiln_mark mark = kiln_arena_mark(arena);
  found known;
  kiln_map_init(&known.all, arena);
  kiln_map_init(&known.some, arena);
  kiln_map_init(&known.same, arena);
  p->known = &known;
  const bool does = holds_at(p);
  p->known = NULL;
  kiln_arena_rewind(arena, mark);
  return does;
}

static bool holds(const equivalence_check *m, const kiln_stmt *a, const kiln_stmt *b,
                  const kiln_axis_map *dims) {
  const int n = a->n_space + a->n_reduce;
  const bool is_long_tree = is_long(m, a) || is_long(m, b);
  point p = {.m = m, .all = a, .some = b};
  uint64_t state = (uint64_t)a->id;
  for (int d = 0; d < n; d++) {
    int64_t all = 0, some = 0;
    if (!kiln_expr_is_int(a->dims[d].extent, &all) || !kiln_expr_is_int(b->dims[d].extent, &some))
      return false;
    if (some == 0) return true; // an empty domain
    if (place(dims[d], some - 1) >= all) return false;
  }
  for (int k = 0; k < N_POINTS; k++) {
    set_point(&p, n, dims, k, &state);
    if (!(is_long_tree ? holds_at_long(&p) : holds_at(&p))) return false;
  }
  return a->init == b->init;
}

// --- statements ---

static bool differ(const kiln_dim *a, const kiln_dim *b) { return a->extent != b->extent; }

static void visit_load(const kiln_expr *e, void *argument) {
  const equivalence_check *m = ((void **)argument)[0];
  bool *plain = ((void **)argument)[1];
  if (e->kind != KILN_EXPR_LOAD) return;
  *plain &= !m->is_table[e->u.tensor];
  for (int k = 0; k < e->n_args; k++) *plain &= !m->axes[e->u.tensor][k].inner;
}

// Whether the (interned) expressions are identical and all operands correspond index by index.
static bool is_same_text(const equivalence_check *m, const kiln_stmt *a, const kiln_stmt *b) {
  bool plain = a->body == b->body && a->guard == b->guard && a->init == b->init;
  void *argument[] = {(void *)(uintptr_t)m, &plain};
  for (int k = 0; k < m->all->tensors.data[a->out]->rank; k++) plain &= a->index[k] == b->index[k];
  const kiln_expr *const parts[] = {a->body, a->guard, a->init};
  for (size_t i = 0; i < KILN_LEN(parts) && plain; i++)
    if (parts[i]) kiln_expr_visit(m->cx, parts[i], visit_load, argument);
  return plain;
}

static bool find_dims(const equivalence_check *m, const kiln_stmt *a, const kiln_stmt *b,
                      kiln_axis_map *dims) {
  memset(dims, 0, MAX_DIMS * sizeof *dims);
  if (is_same_text(m, a, b) || holds(m, a, b, dims)) return true;
  if (!kiln_bits_has(m->merged, a->id)) return false;
  // Only reduced axes may be shorter, so operands must correspond along space dims.
  for (int d = 0; d < a->n_space; d++)
    for (int i = 0; differ(&a->dims[d], &b->dims[d]) && i < m->n_inner; i++) {
      dims[d] = m->inner[i];
      if (holds(m, a, b, dims)) return true;
      dims[d] = (kiln_axis_map){0};
    }
  return false;
}

static const char *check_stmt(equivalence_check *m, const kiln_stmt *a, const kiln_stmt *b) {
  kiln_axis_map dims[MAX_DIMS];
  if (a->out != b->out || a->n_space != b->n_space || a->n_reduce != b->n_reduce ||
      a->combiner != b->combiner || a->n_space + a->n_reduce > MAX_DIMS)
    return "the form";
  for (int d = 0; d < a->n_space + a->n_reduce; d++)
    if (a->dims[d].name != b->dims[d].name) return "the form";
  if (!find_dims(m, a, b, dims)) return "the computation";
  for (int k = 0; k < m->all->tensors.data[a->out]->rank && k < a->n_space; k++)
    m->axes[a->out][k] = dims[k];
  return NULL;
}

// --- tensors ---

static void note_inner(equivalence_check *m, const kiln_tensor *a, const kiln_tensor *b) {
  for (int k = 0; k < a->rank; k++) {
    kiln_axis_map e = {0};
    bool known = a->shape[k] == b->shape[k] || !kiln_expr_is_int(a->shape[k], &e.most) ||
                 !kiln_expr_is_int(b->shape[k], &e.inner);
    for (int i = 0; i < m->n_inner; i++)
      known |= m->inner[i].inner == e.inner && m->inner[i].most == e.most;
    if (!known && m->n_inner < MAX_INNER) m->inner[m->n_inner++] = e;
  }
}

// Whether |b| is the leading part of |a|.
static bool is_corner(const kiln_tensor *a, const kiln_tensor *b) {
  int64_t outer[KILN_MAX_RANK], inner[KILN_MAX_RANK], at[KILN_MAX_RANK] = {0};
  const size_t elem = (size_t)kiln_dtype_bytes(a->dtype);
  const char *from = a->data, *part = b->data;
  if (a->data == b->data && a->bytes == b->bytes) return true;
  if (!from || !part || !kiln_tensor_static_shape(a, outer) || !kiln_tensor_static_shape(b, inner))
    return false;
  for (int k = 0; k < a->rank; k++)
    if (inner[k] > outer[k]) return false;
  for (int64_t n = kiln_tensor_elems(b), i = 0; i < n; i++, part += elem) {
    int64_t offset = 0;
    for (int k = 0; k < a->rank; k++) offset = offset * outer[k] + at[k];
    if (memcmp(from + (size_t)offset * elem, part, elem) != 0) return false;
    for (int k = a->rank - 1; k >= 0 && ++at[k] == inner[k]; k--) at[k] = 0;
  }
  return true;
}

static const char *see_tensor(equivalence_check *m, int i) {
  const kiln_tensor *a = m->all->tensors.data[i], *b = m->some->tensors.data[i];
  if (a->role != b->role || a->dtype != b->dtype || a->rank != b->rank) return "the type";
  note_inner(m, a, b);
  m->is_table[i] = a->role == KILN_CONST && !is_corner(a, b);
  return m->is_table[i] && !is_whole(a->dtype) ? "the elements" : NULL;
}

kiln_equivalence kiln_check_equivalence(kiln_ctx *cx, const kiln_program *all,
                                        const kiln_program *some, const int64_t *values,
                                        const kiln_bits *merged) {
  equivalence_check m = {.cx = cx, .all = all, .some = some, .values = values, .merged = merged};
  m.both_read = some->tensors.n == all->tensors.n;
  const int n = all->tensors.n - 1;
  kiln_equivalence out = {.what = "the number of statements", .name = "the model", .stmt = -1};
  if ((!m.both_read && n != some->tensors.n) || all->stmts.n != some->stmts.n) return out;
  m.axes = kiln_arena_zalloc(&cx->perm, (size_t)(n + 1) * sizeof *m.axes);
  m.is_table = KILN_NEW_ARRAY(&cx->perm, bool, n + 1);
  out = (kiln_equivalence){.axes = m.axes, .stmt = -1};
  for (int i = 0; i < n && !out.what; i++) {
    out.what = see_tensor(&m, i);
    out.name = kiln_symbol_text(cx, all->tensors.data[i]->name);
  }
  for (int i = 0; i < all->stmts.n && !out.what; i++) {
    out.what = check_stmt(&m, all->stmts.data[i], some->stmts.data[i]);
    if (out.what) out.stmt = i;
    out.name = kiln_symbol_text(cx, all->tensors.data[all->stmts.data[i]->out]->name);
  }
  return out;
}

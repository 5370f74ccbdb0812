#include "rewrite/half.h"

#include "ir/stored.h"
#include "support/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum {
  SMALL_SHARE = 32, // reductions of at least this many elements to one stay f32
  PIECE = 1 << 20,
  MOST_THREADS = 15 // in addition to the calling one
};

typedef struct halving {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_dtype half;
  bool *narrow;     // by tensor id: stored as |half|
  bool *is_operand; // by tensor id: an operand of products
  bool *is_guarded; // by tensor id: an epsilon is added to it, or to a map of it
  kiln_program out; // the rewritten statements
} halving;

// --- constants ---

// A range of a constant's elements; threads take ranges in turn.
typedef struct piece {
  const char *from;
  char *to;
  int64_t n;
} piece;
typedef struct conversion {
  kiln_dtype half;
  KILN_VEC(piece) pieces;
  atomic_int next;
} conversion;

static void *convert_pieces(void *argument) {
  conversion *c = argument;
  for (int i; (i = atomic_fetch_add(&c->next, 1)) < c->pieces.n;)
    kiln_halves_of_floats(c->half, c->pieces.data[i].n, c->pieces.data[i].from,
                          c->pieces.data[i].to);
  return NULL;
}

static void add_constant(halving *h, conversion *c, kiln_tensor *t) {
  const int64_t n = kiln_tensor_elems(t), bytes = kiln_dtype_bytes(h->half);
  char *data = kiln_arena_alloc(&h->cx->perm, (size_t)(n * bytes) + 1);
  for (int64_t i = 0; i < n; i += PIECE)
    KILN_VEC_PUSH(
        &h->cx->scratch, &c->pieces,
        (piece){(const char *)t->data + 4 * i, data + bytes * i, n - i < PIECE ? n - i : PIECE});
  t->data = data;
  t->bytes = (uint64_t)(n * bytes);
}

static void convert_constants(conversion *c) {
  pthread_t threads[MOST_THREADS];
  const long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
  int n = 0;
  while (n < MOST_THREADS && n + 1 < n_cores && n + 1 < c->pieces.n &&
         kiln_thread_start(&threads[n], NULL, convert_pieces, c))
    n++;
  convert_pieces(c);
  for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

// --- statements ---

// A sum of squares does not count as a product of two operands.
static bool is_sum_of_products(const kiln_stmt *s) {
  return s->combiner == KILN_COMBINE_SUM && s->body->kind == KILN_EXPR_MUL &&
         s->body->args[0] != s->body->args[1];
}

static bool is_small_sum(const kiln_stmt *s) {
  int64_t n = 1;
  for (int d = s->n_space; d < s->n_space + s->n_reduce; d++) n *= kiln_dim_extent(&s->dims[d]);
  return s->n_reduce > 0 && !is_sum_of_products(s) && n >= SMALL_SHARE;
}

// The operands of a statement that are statistics: reductions kept in f32, and maps of these alone.
typedef struct reading {
  const halving *h;
  bool any, only;
  int64_t elems; // elements of the largest statistic
} reading;

static void note_load(const kiln_expr *e, void *argument) {
  reading *r = argument;
  if (e->kind != KILN_EXPR_LOAD) return;
  const kiln_tensor *t = r->h->p->tensors.data[e->u.tensor];
  const bool is_wide = t->dtype == KILN_F32 && t->role == KILN_TEMP && !r->h->narrow[t->id];
  const int64_t elems = kiln_tensor_elems(t);
  r->any |= is_wide;
  r->only &= is_wide || (t->role == KILN_CONST && !r->h->narrow[t->id]);
  if (is_wide && elems > r->elems) r->elems = elems;
}

// Whether |s| is a map of statistics alone, without more elements than these.
static bool follows_from_sums(const halving *h, const kiln_stmt *s) {
  reading r = {.h = h, .only = true};
  if (s->n_reduce || s->guard || s->init) return false;
  kiln_expr_visit(h->cx, s->body, note_load, &r);
  return r.any && r.only && kiln_tensor_elems(h->p->tensors.data[s->out]) <= r.elems;
}

// --- statistics with an epsilon ---

// A constant that is subnormal or 0 in the half type: it protects a division from a zero divisor.
static bool is_epsilon(const halving *h, const kiln_expr *e) {
  const double least_normal = h->half == KILN_F16 ? 0x1p-14 : 0x1p-126;
  return e->kind == KILN_EXPR_FLOAT && e->u.f > 0 && e->u.f < least_normal;
}

typedef struct guard_search {
  const halving *h;
  bool *is_statistic;
  bool found;
} guard_search;

static void note_epsilon(const kiln_expr *e, void *argument) {
  guard_search *g = argument;
  if (e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_MAX)
    g->found |= is_epsilon(g->h, e->args[0]) || is_epsilon(g->h, e->args[1]);
}

static void note_guarded(const kiln_expr *e, void *argument) {
  const guard_search *g = argument;
  if (e->kind == KILN_EXPR_LOAD && g->is_statistic[e->u.tensor])
    g->h->is_guarded[e->u.tensor] = true;
}

// Notes a load of anything else than a statistic or constant.
static void note_other(const kiln_expr *e, void *argument) {
  guard_search *g = argument;
  if (e->kind == KILN_EXPR_LOAD && g->h->p->tensors.data[e->u.tensor]->role != KILN_CONST)
    g->found |= !g->is_statistic[e->u.tensor];
}

// Marks statistics: reductions other than products, and maps of these alone.
static bool *find_statistics(const halving *h) {
  bool *found = KILN_NEW_ARRAY(&h->cx->scratch, bool, h->p->tensors.n);
  for (int i = 0; i < h->p->stmts.n; i++) {
    const kiln_stmt *s = h->p->stmts.data[i];
    guard_search g = {h, found, false};
    if (s->n_reduce == 0) kiln_expr_visit(h->cx, s->body, note_other, &g);
    found[s->out] = s->body->has_load && !is_sum_of_products(s) && !g.found;
  }
  return found;
}

// Marks statistics to which an epsilon is added, and the statistics that these are computed from:
// in the half type the epsilon would be 0, and so would squares of small deviations.
static void find_guarded(halving *h) {
  guard_search g = {.h = h, .is_statistic = find_statistics(h)};
  h->is_guarded = KILN_NEW_ARRAY(&h->cx->scratch, bool, h->p->tensors.n);
  for (int i = h->p->stmts.n - 1; i >= 0; i--) {
    const kiln_stmt *s = h->p->stmts.data[i];
    if (s->n_reduce || !g.is_statistic[s->out]) continue;
    g.found = h->is_guarded[s->out];
    kiln_expr_visit(h->cx, s->body, note_epsilon, &g);
    h->is_guarded[s->out] = g.found;
    if (g.found) kiln_expr_visit(h->cx, s->body, note_guarded, &g);
  }
}

static bool becomes_half(const halving *h, const kiln_tensor *t) {
  if (t->dtype != KILN_F32) return false;
  if (kiln_tensor_is_output(h->p, t->id) || t->role == KILN_INPUT) return true;
  if (t->role == KILN_CONST) return t->rank > 1 && t->data;
  if (t->def < 0) return true;
  const kiln_stmt *s = h->p->stmts.data[t->def];
  return !is_small_sum(s) &&
         (h->is_operand[t->id] || !(h->is_guarded[t->id] || follows_from_sums(h, s)));
}

typedef struct operands {
  const halving *h;
  int64_t elems; // elements of a map's result; 0: the reader is a product
} operands;

static void note_operand(const kiln_expr *e, void *argument) {
  const operands *o = argument;
  if (e->kind != KILN_EXPR_LOAD) return;
  const kiln_tensor *t = o->h->p->tensors.data[e->u.tensor];
  if (!o->elems || kiln_tensor_elems(t) == o->elems) o->h->is_operand[t->id] = true;
}

// Marks operands of products, also through maps that keep the number of elements.
static void find_operands(halving *h) {
  h->is_operand = KILN_NEW_ARRAY(&h->cx->scratch, bool, h->p->tensors.n);
  for (int i = h->p->stmts.n - 1; i >= 0; i--) {
    const kiln_stmt *s = h->p->stmts.data[i];
    operands o = {h, is_sum_of_products(s) ? 0 : kiln_tensor_elems(h->p->tensors.data[s->out])};
    if (is_sum_of_products(s) || (s->n_reduce == 0 && h->is_operand[s->out]))
      kiln_expr_visit(h->cx, s->body, note_operand, &o);
  }
}

// In program order: operands are decided before results.
static void find_narrow(halving *h) {
  h->narrow = KILN_NEW_ARRAY(&h->cx->scratch, bool, h->p->tensors.n);
  for (int i = 0; i < h->p->tensors.n; i++) {
    const kiln_tensor *t = h->p->tensors.data[i];
    if (t->def < 0) h->narrow[i] = becomes_half(h, t);
  }
  for (int i = 0; i < h->p->stmts.n; i++) {
    const kiln_tensor *t = h->p->tensors.data[h->p->stmts.data[i]->out];
    h->narrow[t->id] = becomes_half(h, t);
  }
}

static const kiln_expr *widened(halving *h, const kiln_expr *e);

// Equality is tested after rounding to the half type: one side may be recomputed in f32 while the
// other was stored as half (the maximum of a row, compared with the row's elements).
static const kiln_expr *compare_halves(halving *h, const kiln_expr *e) {
  kiln_ctx *cx = h->cx;
  const kiln_expr *a = kiln_cast(cx, h->half, widened(h, e->args[0])),
                  *b = kiln_cast(cx, h->half, widened(h, e->args[1]));
  return kiln_binary(cx, e->kind, a, b);
}

static const kiln_expr *widen(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  halving *h = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  if ((e->kind == KILN_EXPR_EQ || e->kind == KILN_EXPR_NE) && e->args[0]->dtype == KILN_F32)
    return compare_halves(h, e);
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int k = 0; k < e->n_args; k++) index[k] = kiln_expr_replace(cx, e->args[k], widen, argument);
  const kiln_expr *load = kiln_tensor_load(cx, h->p->tensors.data[e->u.tensor], index);
  return load->dtype == e->dtype ? load : kiln_cast(cx, e->dtype, load);
}

static const kiln_expr *widened(halving *h, const kiln_expr *e) {
  return e ? kiln_expr_replace(h->cx, e, widen, h) : NULL;
}

static void append(halving *h, kiln_stmt *s) {
  s->id = h->out.stmts.n;
  h->p->tensors.data[s->out]->def = s->id;
  KILN_VEC_PUSH(&h->cx->perm, &h->out.stmts, s);
}

// A reduction sums in f32; a map that follows it rounds.
static void round_behind(halving *h, kiln_stmt *sum) {
  kiln_tensor *t = h->p->tensors.data[sum->out];
  const kiln_expr *index[KILN_MAX_RANK];
  kiln_stmt *map = KILN_NEW(&h->cx->perm, kiln_stmt);
  kiln_tensor *wide = kiln_tensor_make(
      h->cx, h->p, kiln_arena_printf(&h->cx->scratch, "%s.sum", kiln_symbol_text(h->cx, t->name)),
      KILN_F32, KILN_TEMP, t->rank, t->shape);
  *map = *sum;
  map->dims = KILN_NEW_ARRAY(&h->cx->perm, kiln_dim, t->rank);
  map->index = KILN_NEW_ARRAY(&h->cx->perm, const kiln_expr *, t->rank);
  for (int k = 0; k < t->rank; k++) {
    map->dims[k] = (kiln_dim){kiln_symbol_printf(h->cx, "i%d", k), t->shape[k]};
    index[k] = map->index[k] = kiln_var(h->cx, map->dims[k].name);
  }
  map->n_space = t->rank;
  map->n_reduce = 0;
  map->combiner = KILN_COMBINE_NONE;
  map->guard = map->init = NULL;
  map->body = kiln_cast_stored(h->cx, h->half, kiln_tensor_load(h->cx, wide, index));
  sum->out = wide->id;
  append(h, sum);
  append(h, map);
}

static void convert_stmt(halving *h, kiln_stmt *s) {
  s->body = widened(h, s->body);
  s->guard = widened(h, s->guard);
  s->init = widened(h, s->init);
  for (int k = 0; k < h->p->tensors.data[s->out]->rank; k++) s->index[k] = widened(h, s->index[k]);
  if (!h->narrow[s->out]) {
    append(h, s);
  } else if (s->combiner != KILN_COMBINE_NONE && kiln_stmt_is_plain(h->cx, s)) {
    round_behind(h, s);
  } else {
    s->body = kiln_cast_stored(h->cx, h->half, s->body);
    if (s->init) s->init = kiln_cast_stored(h->cx, h->half, s->init);
    append(h, s);
  }
}

void kiln_program_to_half(kiln_ctx *cx, kiln_program *p, kiln_dtype half) {
  halving h = {.cx = cx, .p = p, .half = half};
  const int n = p->tensors.n;
  find_operands(&h);
  find_guarded(&h);
  find_narrow(&h);
  conversion constants = {.half = half};
  for (int i = 0; i < n; i++) {
    kiln_tensor *t = p->tensors.data[i];
    if (!h.narrow[i]) continue;
    if (t->role == KILN_CONST) add_constant(&h, &constants, t);
    t->dtype = half;
  }
  convert_constants(&constants);
  for (int i = 0; i < p->stmts.n; i++) convert_stmt(&h, p->stmts.data[i]);
  p->stmts.data = h.out.stmts.data;
  p->stmts.n = h.out.stmts.n;
  p->stmts.cap = h.out.stmts.cap;
}

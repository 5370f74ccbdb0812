// stream_k: cuts the iterations of a reduction loop and of the tile loops around it into equal
// portions of consecutive iterations, which may begin and end within a tile. A new nest combines
// the portions' partial sums. (Osama et al., PPoPP 2023.)
//
// With tiles t of n iterations of the reduction loop each, iteration f = t*n + i is in portion f /
// q:
//     for OUTER { alloc KEPT { for INNER { f = OUTER*q + INNER
//       if first of its portion or tile { KEPT = identity }
//       the loop's body, combining into KEPT
//       if last of its portion or tile { NAME[OUTER, t - first tile of the portion, ..] = KEPT }
//       } } }
//     for all elements, for p { if p < parts of the tile { combine that of portion t*n / q + p } }
// The parts of tile t come from portions t*n / q to ((t + 1)*n - 1) / q, in this order. New loops:
// KEPT.init.0, ..., KEPT.copy.0, ..., and NAME.0, ..., the last one over parts.
#include "schedule/index.h"
#include "schedule/legality.h"

enum { MAX_DIGITS = 32, MAX_RUNS = 1 << 20 }; // the latter for tiles, and for portions

// An index as a mixed-radix number, whose digits are loops: each weight is the product of the
// extents of lower digits.
typedef struct digit {
  const kiln_loop *loop;
  int axis;
  int64_t weight, extent;
} digit;

typedef struct stream_k {
  kiln_edit e;
  kiln_loop *loop, *store;
  kiln_loop *path[KILN_MAX_DEPTH]; // from the outermost tile loop to |loop|
  int n_tiles;                     // loops before |loop| in the path
  const kiln_buffer *to;
  kiln_buffer *parts, *kept;
  digit digits[MAX_DIGITS];
  int n_digits;
  int64_t box[KILN_MAX_AXES]; // extents of |to| that the loops inside of |loop| cover
  int64_t tiles, steps, each; // iterations of the tile loops, of |loop|, of a portion
  int64_t portions;
  int64_t most, reached; // the most parts of a tile, and the most tiles of a portion
  kiln_symbol outer, inner;
} stream_k;

// --- requirements ---

static bool is_tile_loop(const stream_k *p, const kiln_loop *l) {
  for (int i = 0; i < p->n_tiles; i++)
    if (p->path[i] == l) return true;
  return false;
}

// Finds the loops around |loop|, which must be perfectly nested and top-level.
static kiln_status find_tiles(stream_k *p) {
  kiln_edit *e = &p->e;
  p->n_tiles = kiln_nest_path(e->l, p->loop, p->path) - 1;
  p->tiles = 1;
  for (int i = 0; i < p->n_tiles; i++) {
    kiln_loop *l = p->path[i];
    int64_t extent = 0;
    if (l->kind != KILN_LOOP_FOR || l->body != p->path[i + 1] || p->path[i + 1]->next)
      return kiln_refuse(e, "the loops around must hold nothing but it");
    KILN_TRY(kiln_edit_serial(e, l));
    KILN_TRY(kiln_edit_extent(e, l, &extent));
    if (extent < 1 || __builtin_mul_overflow(p->tiles, extent, &p->tiles))
      return kiln_refuse(e, "the loops around must run once or more, and not too often");
  }
  return KILN_OK;
}

static kiln_status find_store(stream_k *p) {
  kiln_edit *e = &p->e;
  KILN_TRY(kiln_nest_reduction(e, p->loop, false, &p->store));
  p->to = e->l->buffers.data[p->store->buffer];
  if (kiln_nest_uses(e->cx, e->l, p->loop, p->to->id, false))
    return kiln_refuse(e, "buffer %s must not be read in the loop", kiln_edit_text(e, p->to->name));
  if (!kiln_scope_is_argument(p->to->scope))
    return kiln_refuse(e, "buffer %s must be a parameter or a workspace",
                       kiln_edit_text(e, p->to->name));
  return p->to->rank + 2 > KILN_MAX_AXES ? kiln_refuse(e, "buffer has too many axes") : KILN_OK;
}

// Conditions may exclude summands, but the same ones of all elements.
static kiln_status check_inside(stream_k *p) {
  kiln_edit *e = &p->e;
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(e->l, p->store, path);
  for (int i = p->n_tiles; i < depth; i++) {
    if (path[i]->kind == KILN_LOOP_FOR) KILN_TRY(kiln_edit_serial(e, path[i]));
    if (path[i]->kind != KILN_LOOP_IF) continue;
    bool asks = path[i]->cond->has_load;
    for (int k = 0; k < p->n_digits; k++)
      asks |= kiln_expr_uses(path[i]->cond, p->digits[k].loop->var);
    if (asks)
      return kiln_refuse(e, "conditions in the loop must be the same for all elements of buffer %s",
                         kiln_edit_text(e, p->to->name));
  }
  return KILN_OK;
}

// --- digits ---

static kiln_status refuse_axis(const stream_k *p, int axis) {
  return kiln_refuse(&p->e,
                     "axis %d of buffer %s must be reached element by element, by loops within the "
                     "loop and those around it: tile its loops exactly",
                     axis, kiln_edit_text(&p->e, p->to->name));
}

static bool is_used(const stream_k *p, const kiln_loop *l) {
  for (int i = 0; i < p->n_digits; i++)
    if (p->digits[i].loop == l) return true;
  return false;
}

// The term of |t| with coefficient |weight|; NULL if there is none.
static const kiln_term *find_term(const kiln_terms *t, int64_t weight) {
  for (int i = 0; i < t->n; i++)
    if (t->data[i].coef == weight) return &t->data[i];
  return NULL;
}

// Finds the digits of axis |k|, lowest first; those of loops inside of |loop| come before those of
// tile loops.
static kiln_status find_digits(stream_k *p, int k) {
  kiln_edit *e = &p->e;
  const kiln_terms t = kiln_terms_of(e->cx, kiln_edit_simplify(e, p->store->index[k]));
  int64_t weight = 1;
  bool is_outside = false;
  p->box[k] = 1;
  for (int i = 0; i < t.n; i++) {
    const kiln_term *term = find_term(&t, weight);
    kiln_loop *l =
        term && term->atom->kind == KILN_EXPR_VAR ? kiln_loops_find(e->l, term->atom->u.sym) : NULL;
    int64_t extent = 0;
    if (!l || l == p->loop || p->n_digits == MAX_DIGITS || is_used(p, l) ||
        !kiln_expr_is_int(l->extent, &extent) || (is_outside && !is_tile_loop(p, l)))
      return refuse_axis(p, k);
    is_outside |= is_tile_loop(p, l);
    p->digits[p->n_digits++] = (digit){l, k, weight, extent};
    weight *= extent;
    if (!is_outside) p->box[k] *= extent;
  }
  return t.constant || weight != p->to->extents[k] ? refuse_axis(p, k) : KILN_OK;
}

static kiln_status find_all_digits(stream_k *p) {
  for (int k = 0; k < p->to->rank; k++) KILN_TRY(find_digits(p, k));
  for (int i = 0; i < p->n_tiles; i++)
    if (!kiln_loop_is_unit(p->path[i]) && !is_used(p, p->path[i]))
      return kiln_refuse(&p->e, "the loops around must index buffer %s, got loop %s",
                         kiln_edit_text(&p->e, p->to->name),
                         kiln_edit_text(&p->e, p->path[i]->var));
  return KILN_OK;
}

// --- portions ---

// How many runs of |other| iterations one of |n| runs of |each| iterations overlaps at most.
static int64_t most_met(int64_t n, int64_t each, int64_t other) {
  int64_t most = 0;
  for (int64_t i = 0; i < n; i++) {
    const int64_t met = ((i + 1) * each - 1) / other - i * each / other + 1;
    if (met > most) most = met;
  }
  return most;
}

static kiln_status cut(stream_k *p) {
  kiln_edit *e = &p->e;
  int64_t all = 0;
  KILN_TRY(kiln_edit_extent(e, p->loop, &p->steps));
  if (p->steps < 1 || __builtin_mul_overflow(p->tiles, p->steps, &all))
    return kiln_refuse(e, "the loop must run once or more, and not too often");
  if (p->portions < 1 || all % p->portions)
    return kiln_refuse(e, "portions must divide the %" PRId64 " iterations, got %" PRId64, all,
                       p->portions);
  if (p->tiles > MAX_RUNS || p->portions > MAX_RUNS)
    return kiln_refuse(e, "tiles and portions must be at most %d, got %" PRId64 " and %" PRId64,
                       MAX_RUNS, p->tiles, p->portions);
  p->each = all / p->portions;
  p->most = most_met(p->tiles, p->steps, p->each);
  p->reached = most_met(p->portions, p->each, p->steps);
  return KILN_OK;
}

static const kiln_expr *flat(const stream_k *p) {
  kiln_ctx *cx = p->e.cx;
  return kiln_add(cx, kiln_mul(cx, kiln_var(cx, p->outer), kiln_int(cx, p->each)),
                  kiln_var(cx, p->inner));
}

static const kiln_expr *step_of(const stream_k *p) {
  return kiln_mod(p->e.cx, flat(p), kiln_int(p->e.cx, p->steps));
}

// The portion in which |tile| begins.
static const kiln_expr *first_of(const stream_k *p, const kiln_expr *tile) {
  kiln_ctx *cx = p->e.cx;
  return kiln_div(cx, kiln_mul(cx, tile, kiln_int(cx, p->steps)), kiln_int(cx, p->each));
}

// The tile in which |portion| begins.
static const kiln_expr *begin_of(const stream_k *p, const kiln_expr *portion) {
  kiln_ctx *cx = p->e.cx;
  return kiln_div(cx, kiln_mul(cx, portion, kiln_int(cx, p->each)), kiln_int(cx, p->steps));
}

// The value of tile loop |i| in the current iteration.
static const kiln_expr *tile_digit(const stream_k *p, int i) {
  kiln_ctx *cx = p->e.cx;
  int64_t weight = p->steps, extent = 0;
  for (int k = i + 1; k < p->n_tiles; k++) {
    (void)kiln_expr_is_int(p->path[k]->extent, &extent);
    weight *= extent;
  }
  (void)kiln_expr_is_int(p->path[i]->extent, &extent);
  return kiln_mod(cx, kiln_div(cx, flat(p), kiln_int(cx, weight)), kiln_int(cx, extent));
}

// The number of the tile that contains the element |at|.
static const kiln_expr *tile_of(const stream_k *p, const kiln_expr *const *at) {
  kiln_ctx *cx = p->e.cx;
  const kiln_expr *tile = kiln_int(cx, 0);
  for (int i = 0; i < p->n_tiles; i++) {
    tile = kiln_mul(cx, tile, p->path[i]->extent);
    for (int k = 0; k < p->n_digits; k++) {
      const digit *d = &p->digits[k];
      if (d->loop != p->path[i]) continue;
      const kiln_expr *value = kiln_div(cx, at[d->axis], kiln_int(cx, d->weight));
      tile = kiln_add(cx, tile, kiln_mod(cx, value, kiln_int(cx, d->extent)));
    }
  }
  return tile;
}

// --- the change ---

// The index within a tile on axis |k|.
static const kiln_expr *place_of(const stream_k *p, int k) {
  kiln_ctx *cx = p->e.cx;
  const kiln_expr *sum = kiln_int(cx, 0);
  for (int i = 0; i < p->n_digits; i++) {
    const digit *d = &p->digits[i];
    if (d->axis != k || is_tile_loop(p, d->loop)) continue;
    sum = kiln_add(cx, sum, kiln_mul(cx, kiln_var(cx, d->loop->var), kiln_int(cx, d->weight)));
  }
  return sum;
}

static kiln_status new_loops(stream_k *p, kiln_symbol buffer, int n, const char *part,
                             kiln_symbol *out) {
  kiln_edit *e = &p->e;
  for (int k = 0; k < n; k++) {
    out[k] = kiln_symbol_printf(e->cx, "%s.%s%d", kiln_edit_text(e, buffer), part, k);
    KILN_TRY(kiln_edit_new_loop(e, out[k]));
  }
  return KILN_OK;
}

static void vars_of(kiln_ctx *cx, int n, const kiln_symbol *vars, const kiln_expr **out) {
  for (int k = 0; k < n; k++) out[k] = kiln_var(cx, vars[k]);
}

static const kiln_expr *either(kiln_ctx *cx, kiln_symbol v, int64_t at, const kiln_expr *step,
                               int64_t step_at) {
  return kiln_binary(cx, KILN_EXPR_OR,
                     kiln_binary(cx, KILN_EXPR_EQ, kiln_var(cx, v), kiln_int(cx, at)),
                     kiln_binary(cx, KILN_EXPR_EQ, step, kiln_int(cx, step_at)));
}

static kiln_status make_init(stream_k *p, kiln_loop **out) {
  kiln_ctx *cx = p->e.cx;
  kiln_symbol vars[KILN_MAX_AXES];
  const kiln_expr *at[KILN_MAX_AXES];
  KILN_TRY(new_loops(p, p->kept->name, p->kept->rank, "init.", vars));
  vars_of(cx, p->kept->rank, vars, at);
  const kiln_expr *zero = kiln_combiner_identity(cx, p->store->combiner, p->to->dtype);
  kiln_loop *store = kiln_store_make(cx, p->kept, at, KILN_COMBINE_NONE, zero);
  *out = kiln_if_make(cx, either(cx, p->inner, 0, step_of(p), 0),
                      kiln_nest_around(cx, p->kept->rank, vars, p->kept->extents, store));
  return KILN_OK;
}

static kiln_status make_copy(stream_k *p, kiln_loop **out) {
  kiln_ctx *cx = p->e.cx;
  kiln_symbol vars[KILN_MAX_AXES];
  const kiln_expr *to[KILN_MAX_AXES], **at = &to[2];
  KILN_TRY(new_loops(p, p->kept->name, p->kept->rank, "copy.", vars));
  vars_of(cx, p->kept->rank, vars, at);
  to[0] = kiln_var(cx, p->outer);
  to[1] = kiln_sub(cx, kiln_div(cx, flat(p), kiln_int(cx, p->steps)), begin_of(p, to[0]));
  const kiln_expr *value = kiln_load(cx, p->kept->id, p->kept->dtype, p->kept->rank, at);
  kiln_loop *store = kiln_store_make(cx, p->parts, to, KILN_COMBINE_NONE, value);
  *out = kiln_if_make(cx, either(cx, p->inner, p->each - 1, step_of(p), p->steps - 1),
                      kiln_nest_around(cx, p->kept->rank, vars, p->kept->extents, store));
  return KILN_OK;
}

// The load of element |at|'s partial sum of |tile| by |portion|.
static const kiln_expr *load_part(const stream_k *p, const kiln_expr *portion,
                                  const kiln_expr *tile, const kiln_expr *const *at) {
  kiln_ctx *cx = p->e.cx;
  const kiln_expr *from[KILN_MAX_AXES] = {portion, kiln_sub(cx, tile, begin_of(p, portion))};
  for (int k = 0; k < p->to->rank; k++) from[2 + k] = kiln_mod(cx, at[k], kiln_int(cx, p->box[k]));
  return kiln_load(cx, p->parts->id, p->parts->dtype, p->parts->rank, from);
}

static kiln_status make_combination(stream_k *p, kiln_loop **out) {
  kiln_ctx *cx = p->e.cx;
  const int rank = p->to->rank;
  kiln_symbol vars[KILN_MAX_AXES];
  const kiln_expr *at[KILN_MAX_AXES];
  int64_t extents[KILN_MAX_AXES];
  KILN_TRY(new_loops(p, p->parts->name, rank + 1, "", vars));
  vars_of(cx, rank + 1, vars, at);
  for (int k = 0; k < rank; k++) extents[k] = p->to->extents[k];
  extents[rank] = p->most;
  const kiln_expr *tile = tile_of(p, at), *portion = kiln_add(cx, first_of(p, tile), at[rank]),
                  *end = kiln_mul(cx, kiln_add(cx, tile, kiln_int(cx, 1)), kiln_int(cx, p->steps)),
                  *last = kiln_div(cx, kiln_sub(cx, end, kiln_int(cx, 1)), kiln_int(cx, p->each)),
                  *has = kiln_binary(cx, KILN_EXPR_LE, at[rank],
                                     kiln_sub(cx, last, first_of(p, tile)));
  kiln_loop *store =
      kiln_store_make(cx, p->to, at, p->store->combiner, load_part(p, portion, tile, at));
  *out = kiln_nest_around(cx, rank + 1, vars, extents, kiln_if_make(cx, has, store));
  return KILN_OK;
}

static kiln_status make_buffers(stream_k *p, kiln_symbol name, kiln_symbol kept) {
  kiln_edit *e = &p->e;
  int64_t extents[KILN_MAX_AXES];
  const int rank = p->to->rank;
  extents[0] = p->portions, extents[1] = p->reached;
  for (int k = 0; k < rank; k++) extents[2 + k] = p->box[k];
  KILN_TRY(kiln_edit_extents(e, name, rank + 2, extents));
  p->parts = kiln_buffer_make(e->cx, e->l, kiln_edit_text(e, name), p->to->dtype,
                              KILN_SCOPE_WORKSPACE, rank + 2, extents, NULL);
  p->kept = kiln_buffer_make(e->cx, e->l, kiln_edit_text(e, kept), p->to->dtype, KILN_SCOPE_LOCAL,
                             rank, p->box, NULL);
  return kiln_edit_size(e, p->kept);
}

// Makes the loops |outer| and |inner| that replace |loop| and those around it, with |init| and
// |copy|.
static kiln_loop *make_loops(stream_k *p, kiln_loop *init, kiln_loop *copy) {
  kiln_ctx *cx = p->e.cx;
  kiln_loop *body = p->loop->body;
  init->next = body;
  *kiln_nest_end(&body) = copy;
  kiln_loop *inner = kiln_for_make(cx, p->inner, kiln_int(cx, p->each), init);
  for (int i = 0; i < p->n_tiles; i++) {
    const kiln_expr *value = tile_digit(p, i);
    kiln_nest_substitute(cx, p->e.l, init, 1, &p->path[i]->var, &value);
  }
  const kiln_expr *step = step_of(p);
  kiln_nest_substitute(cx, p->e.l, init, 1, &p->loop->var, &step);
  return kiln_for_make(cx, p->outer, kiln_int(cx, p->portions),
                       kiln_alloc_make(cx, p->kept, inner));
}

static kiln_status build(stream_k *p) {
  kiln_edit *e = &p->e;
  kiln_loop *init = NULL, *copy = NULL, *combination = NULL;
  KILN_TRY(make_init(p, &init));
  KILN_TRY(make_copy(p, &copy));
  KILN_TRY(make_combination(p, &combination));
  const kiln_expr **index = KILN_NEW_ARRAY(&e->cx->perm, const kiln_expr *, p->kept->rank);
  for (int k = 0; k < p->kept->rank; k++) index[k] = place_of(p, k);
  p->store->index = index;
  p->store->buffer = p->kept->id;
  kiln_loop **slot = kiln_nest_slot(e->l, p->path[0]), *after = (*slot)->next;
  *slot = make_loops(p, init, copy);
  (*slot)->next = combination;
  combination->next = after;
  kiln_edit_measure(e);
  return KILN_OK;
}

kiln_status kiln_stream_k(kiln_schedule *s, kiln_symbol loop, int64_t portions, kiln_symbol name,
                          kiln_symbol kept, kiln_symbol outer, kiln_symbol inner) {
  stream_k p = {.e = kiln_edit_begin(s, "stream_k", loop),
                .portions = portions,
                .outer = outer,
                .inner = inner};
  kiln_edit *e = &p.e;
  KILN_TRY(kiln_edit_loop(e, loop, &p.loop));
  KILN_TRY(kiln_edit_new_buffer(e, name));
  KILN_TRY(kiln_edit_new_buffer(e, kept));
  KILN_TRY(kiln_edit_new_loop(e, outer));
  KILN_TRY(kiln_edit_new_loop(e, inner));
  if (name == kept || outer == inner)
    return kiln_refuse(e, "new buffers, and new loops, must have two names");
  KILN_TRY(find_tiles(&p));
  KILN_TRY(find_store(&p));
  KILN_TRY(find_all_digits(&p));
  KILN_TRY(check_inside(&p));
  KILN_TRY(cut(&p));
  KILN_TRY(make_buffers(&p, name, kept));
  KILN_TRY(build(&p));
  return kiln_edit_commit(e, "stream_k %s %" PRId64 " %s %s %s %s", kiln_edit_word(e, loop),
                          portions, kiln_edit_word(e, name), kiln_edit_word(e, kept),
                          kiln_edit_word(e, outer), kiln_edit_word(e, inner));
}

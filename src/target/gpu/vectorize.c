// Vectorized loops: copies of whole words between memory and a thread's registers, and unrolled
// arithmetic on these. Where unrolled loops stand around one whose copies may read the same words,
// each word is read once, in front of all.
#include "target/gpu/nest.h"

enum { MAX_MOVES = 32, MAX_COPIES = 8, WORD = 16 };

typedef struct packer {
  kiln_gpu_nest *n;
  kiln_ranges ranges;
  int n_names;
  // Of the store being lowered: its vector loop, and the loads that become word moves.
  const kiln_loop *loop;
  int64_t lanes;
  int n_moves;
  const kiln_expr *from[MAX_MOVES], *to[MAX_MOVES]; // loads, or choices of one (is_choice)
} packer;

static kiln_symbol new_name(packer *p, const char *hint) {
  kiln_symbol s;
  do s = kiln_symbol_printf(p->n->cx, "%s%d", hint, p->n_names++);
  while (kiln_loops_find(p->n->l, s));
  return s;
}

// Elements of |t| that one move of |lanes| takes; 0: there is none.
static int64_t move_lanes(kiln_dtype t, int64_t lanes) {
  const int64_t size = kiln_dtype_bytes(t), bytes = lanes * size;
  if (bytes == 4 || bytes == 8) return lanes > 1 ? lanes : 0;
  return bytes >= WORD && bytes % WORD == 0 && size < WORD ? WORD / size : 0;
}

static const kiln_expr *offset_of(packer *p, const kiln_buffer *b, const kiln_expr *const *index) {
  kiln_ctx *cx = p->n->cx;
  const kiln_expr *sum = kiln_int(cx, 0);
  for (int k = 0; k < b->rank; k++)
    sum = kiln_add(cx, sum, kiln_mul(cx, index[k], kiln_int(cx, b->strides[k])));
  return kiln_simplify(cx, sum, &p->ranges);
}

// A load that is the same in all lanes becomes an unknown variable.
static const kiln_expr *as_unknown(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const packer *p = argument;
  if (!e->has_load) return e;
  if (e->dtype != KILN_I64 || (e->kind != KILN_EXPR_LOAD && e->kind != KILN_EXPR_CAST) ||
      kiln_expr_uses(e, p->loop->var))
    return NULL;
  return kiln_var(cx, kiln_symbol_printf(cx, "read.%u", e->id));
}

// Whether the loop's lanes are contiguous and aligned in memory that threads share.
static bool is_move(packer *p, int buffer, const kiln_expr *const *index) {
  kiln_ctx *cx = p->n->cx;
  const kiln_buffer *b = p->n->l->buffers.data[buffer];
  const int64_t chunk = move_lanes(b->dtype, p->lanes);
  if (!chunk || kiln_scope_is_private(b->scope)) return false;
  const kiln_expr *zero = kiln_int(cx, 0), *lane = kiln_var(cx, p->loop->var);
  const kiln_expr *at = kiln_expr_replace(cx, offset_of(p, b, index), as_unknown, p);
  if (at->has_load) return false;
  const kiln_expr *first = kiln_expr_substitute(cx, at, 1, &p->loop->var, &zero);
  const kiln_expr *apart = kiln_sub(cx, kiln_sub(cx, at, first), lane);
  const kiln_expr *rest = kiln_mod(cx, first, kiln_int(cx, chunk));
  return kiln_expr_is_zero(kiln_simplify(cx, apart, &p->ranges)) &&
         kiln_expr_is_zero(kiln_simplify(cx, rest, &p->ranges));
}

// --- the new loops ---

static const kiln_expr *at_lane(packer *p, const kiln_expr *e, const kiln_expr *lane) {
  return kiln_expr_substitute(p->n->cx, e, 1, &p->loop->var, &lane);
}

static kiln_loop *loop_of(packer *p, kiln_symbol var, int64_t n, kiln_how how, kiln_loop *body) {
  kiln_loop *l = kiln_for_make(p->n->cx, var, kiln_int(p->n->cx, n), body);
  l->how = how;
  return l;
}

// for chunk unrolled { for lane vectorized { to = from } }, both loads over the loop's lanes.
static kiln_loop *move_of(packer *p, const kiln_expr *to, const kiln_expr *from) {
  kiln_ctx *cx = p->n->cx;
  const kiln_buffer *b = p->n->l->buffers.data[to->u.tensor];
  const int64_t chunk = move_lanes(b->dtype, p->lanes), n = p->lanes / chunk;
  const kiln_symbol outer = new_name(p, "c"), inner = new_name(p, "v");
  const kiln_expr *lane = kiln_var(cx, inner);
  if (n > 1) lane = kiln_add(cx, kiln_mul(cx, kiln_var(cx, outer), kiln_int(cx, chunk)), lane);
  const kiln_expr *target = at_lane(p, to, lane);
  kiln_loop *s = kiln_store_make(cx, b, target->args, KILN_COMBINE_NONE, at_lane(p, from, lane));
  kiln_loop *move = loop_of(p, inner, chunk, KILN_VECTORIZED, s);
  return n > 1 ? loop_of(p, outer, n, KILN_UNROLLED, move) : move;
}

static const kiln_expr *new_register(packer *p, kiln_dtype t) {
  kiln_ctx *cx = p->n->cx;
  const char *name = kiln_symbol_text(cx, new_name(p, "r"));
  const kiln_buffer *b =
      kiln_buffer_make(cx, p->n->l, name, t, KILN_SCOPE_REGISTER, 1, &p->lanes, NULL);
  const kiln_expr *lane = kiln_var(cx, p->loop->var);
  return kiln_load(cx, b->id, t, 1, &lane);
}

static bool agrees(packer *p, const kiln_expr *cond);

// Whether |e| selects a word load or one value, by a condition that is uniform over the lanes.
static bool is_choice(packer *p, const kiln_expr *e) {
  return e->kind == KILN_EXPR_SELECT && e->args[1]->kind == KILN_EXPR_LOAD &&
         !e->args[2]->has_load && !kiln_expr_uses(e->args[2], p->loop->var) &&
         is_move(p, e->args[1]->u.tensor, e->args[1]->args) && agrees(p, e->args[0]);
}

// Finds word loads: unconditional ones, and those of a uniform choice (is_choice).
static void find_moves(packer *p, const kiln_expr *e);

static kiln_search find_move(const kiln_expr *e, void *argument) {
  packer *p = argument;
  if (!e->has_load) return KILN_SEARCH_PAST;
  if (e->kind == KILN_EXPR_LOAD || is_choice(p, e)) {
    for (int i = 0; i < p->n_moves; i++)
      if (p->from[i] == e) return KILN_SEARCH_PAST;
    if (p->n_moves < MAX_MOVES && (e->kind != KILN_EXPR_LOAD || is_move(p, e->u.tensor, e->args)))
      p->from[p->n_moves++] = e;
    return KILN_SEARCH_PAST;
  }
  if (e->kind != KILN_EXPR_SELECT) return KILN_SEARCH_INTO;
  find_moves(p, e->args[0]);
  return KILN_SEARCH_PAST;
}

static void find_moves(packer *p, const kiln_expr *e) {
  (void)kiln_expr_search(p->n->cx, e, find_move, p);
}

static const kiln_expr *moved(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  (void)cx;
  const packer *p = argument;
  for (int i = 0; i < p->n_moves; i++)
    if (p->from[i] == e) return p->to[i];
  return NULL;
}

static kiln_loop *unrolled(packer *p, const kiln_buffer *b, const kiln_expr *const *index,
                           kiln_combiner how, const kiln_expr *value) {
  const kiln_symbol var = new_name(p, "u");
  const kiln_expr *lane = kiln_var(p->n->cx, var), *at[KILN_MAX_RANK + 4];
  for (int k = 0; k < b->rank; k++) at[k] = at_lane(p, index[k], lane);
  kiln_loop *s = kiln_store_make(p->n->cx, b, at, how, at_lane(p, value, lane));
  return loop_of(p, var, p->lanes, KILN_UNROLLED, s);
}

static kiln_loop *append(kiln_loop *list, kiln_loop *more) {
  kiln_loop **end = &list;
  while (*end) end = &(*end)->next;
  *end = more;
  return list;
}

static kiln_loop *under_alloc(packer *p, const kiln_expr *held, kiln_loop *body) {
  return kiln_alloc_make(p->n->cx, p->n->l->buffers.data[held->u.tensor], body);
}

// Whether |cond| is uniform over the lanes.
static bool agrees(packer *p, const kiln_expr *cond) {
  kiln_ctx *cx = p->n->cx;
  const kiln_expr *zero = kiln_int(cx, 0), *lane = kiln_var(cx, p->loop->var);
  cond = kiln_simplify(cx, cond, &p->ranges);
  if (!kiln_expr_uses(cond, p->loop->var)) return !cond->has_load;
  if (cond->kind == KILN_EXPR_AND) return agrees(p, cond->args[0]) && agrees(p, cond->args[1]);
  if (cond->kind != KILN_EXPR_LT || cond->has_load) return false;
  const kiln_expr *x = cond->args[0], *first = at_lane(p, x, zero), // all multiples of the lanes
                                          *apart = kiln_sub(cx, kiln_sub(cx, x, first), lane);
  const kiln_expr *rest = kiln_mod(cx, kiln_sub(cx, cond->args[1], first), kiln_int(cx, p->lanes));
  return !kiln_expr_uses(cond->args[1], p->loop->var) &&
         kiln_expr_is_zero(kiln_simplify(cx, apart, &p->ranges)) &&
         kiln_expr_is_zero(kiln_simplify(cx, rest, &p->ranges));
}

// The load that |value| copies in whole words, or with zeros in its place by a uniform condition;
// NULL: |value| is no copy.
static const kiln_expr *copied(packer *p, const kiln_expr *value) {
  const bool chooses = value->kind == KILN_EXPR_SELECT && kiln_expr_is_zero(value->args[2]);
  const kiln_expr *load = chooses ? value->args[1] : value;
  if (load->kind != KILN_EXPR_LOAD || !is_move(p, load->u.tensor, load->args)) return NULL;
  return !chooses || agrees(p, value->args[0]) ? load : NULL;
}

// Loads |from|, a word load or a choice, into registers.
static kiln_loop *fill_of(packer *p, const kiln_expr *to, const kiln_expr *from) {
  kiln_ctx *cx = p->n->cx;
  const kiln_buffer *b = p->n->l->buffers.data[to->u.tensor];
  if (from->kind == KILN_EXPR_LOAD || kiln_expr_is_zero(from->args[2])) return move_of(p, to, from);
  const kiln_expr *cond = kiln_simplify(cx, at_lane(p, from->args[0], kiln_int(cx, 0)), &p->ranges);
  kiln_loop *chosen = kiln_if_make(cx, cond, move_of(p, to, from->args[1]));
  return append(unrolled(p, b, to->args, KILN_COMBINE_NONE, from->args[2]), chosen);
}

// A value of which each of several conditions leaves zero, as one choice: its word is then copied
// under all of them, asynchronously where its buffer has stages.
static const kiln_expr *one_choice(kiln_ctx *cx, const kiln_expr *value) {
  while (value->kind == KILN_EXPR_SELECT && kiln_expr_is_zero(value->args[2])) {
    const kiln_expr *inner = value->args[1];
    if (inner->kind != KILN_EXPR_SELECT || inner->args[0]->has_load ||
        inner->args[2] != value->args[2])
      break;
    value = kiln_select(cx, kiln_binary(cx, KILN_EXPR_AND, value->args[0], inner->args[0]),
                        inner->args[1], inner->args[2]);
  }
  return value;
}

static kiln_loop *pack_store(packer *p, const kiln_loop *s);

// Whether |s| stores a value that is computed under a uniform condition.
static bool is_chosen(packer *p, const kiln_loop *s) {
  return s->combiner == KILN_COMBINE_NONE && s->value->kind == KILN_EXPR_SELECT &&
         !s->value->args[2]->has_load && !is_choice(p, s->value) && agrees(p, s->value->args[0]);
}

static bool is_own(packer *p, int buffer) {
  const kiln_scope scope = p->n->l->buffers.data[buffer]->scope;
  return kiln_scope_is_private(scope);
}

// Stores the other value in all lanes, then the computed one under the condition.
static kiln_loop *pack_chosen(packer *p, const kiln_loop *s) {
  kiln_ctx *cx = p->n->cx;
  const kiln_buffer *b = p->n->l->buffers.data[s->buffer];
  const kiln_expr *const *choice = s->value->args;
  kiln_loop computed = *s;
  computed.value = choice[1];
  const kiln_expr *cond = kiln_simplify(cx, at_lane(p, choice[0], kiln_int(cx, 0)), &p->ranges);
  return append(unrolled(p, b, s->index, KILN_COMBINE_NONE, choice[2]),
                kiln_if_make(cx, cond, pack_store(p, &computed)));
}

typedef struct same {
  const kiln_loops *l;
  int n;
  int buffers[MAX_MOVES];
  bool found; // two loads of one buffer that threads share
} same;

static void see_load(const kiln_expr *load, void *argument) {
  same *s = argument;
  if (kiln_scope_is_private(s->l->buffers.data[load->u.tensor]->scope)) return;
  for (int i = 0; i < s->n; i++) s->found |= s->buffers[i] == load->u.tensor;
  if (s->n < MAX_MOVES) s->buffers[s->n++] = load->u.tensor;
}

// Whether copies of |s| may read the same elements: it reads several of one buffer, and none that
// it writes.
static bool may_share(packer *p, const kiln_loop *s) {
  same found = {.l = p->n->l};
  kiln_expr_visit_loads(p->n->cx, s->value, see_load, &found);
  for (int i = 0; i < found.n; i++)
    if (found.buffers[i] == s->buffer) return false;
  return found.found;
}

typedef struct gathering {
  const kiln_loops *l;
  kiln_symbol lane;
  bool found;
} gathering;

static void see_gather(const kiln_expr *load, void *argument) {
  gathering *g = argument;
  g->found |= kiln_expr_uses(load, g->lane) &&
              !kiln_scope_is_private(g->l->buffers.data[load->u.tensor]->scope);
}

// Whether lanes of |value| gather: read neither contiguous elements nor all the same one.
static bool gathers(packer *p, const kiln_expr *value) {
  gathering g = {p->n->l, p->loop->var, false};
  kiln_expr_visit_loads(p->n->cx, value, see_gather, &g);
  return g.found;
}

// Fills register |held| lane by lane, so that equal loads of different lanes are seen as equal.
static kiln_loop *lane_by_lane(packer *p, const kiln_expr *held, const kiln_expr *value) {
  kiln_ctx *cx = p->n->cx;
  kiln_loop *list = NULL;
  for (int64_t i = 0; i < p->lanes; i++) {
    const kiln_expr *lane = kiln_int(cx, i),
                    *x = kiln_simplify(cx, at_lane(p, value, lane), &p->ranges);
    list = append(list, kiln_store_make(cx, p->n->l->buffers.data[held->u.tensor], &lane,
                                        KILN_COMBINE_NONE, x));
  }
  return list;
}

// The loop around one store.
static kiln_loop *pack_store(packer *p, const kiln_loop *given) {
  kiln_ctx *cx = p->n->cx;
  kiln_loop chosen_once = *given;
  chosen_once.value = one_choice(cx, given->value);
  const kiln_loop *s = &chosen_once;
  const kiln_buffer *b = p->n->l->buffers.data[s->buffer];
  const bool stores = is_move(p, s->buffer, s->index);
  const kiln_expr *target = kiln_load(cx, b->id, b->dtype, b->rank, s->index);
  if (stores && s->combiner == KILN_COMBINE_NONE && s->value->dtype == b->dtype &&
      copied(p, s->value))
    return move_of(p, target, s->value);
  if (is_own(p, s->buffer) && is_chosen(p, s)) return pack_chosen(p, s);
  if (stores && is_chosen(p, s)) {
    const kiln_expr *held = new_register(p, b->dtype);
    const kiln_loop *chosen = kiln_store_make(cx, p->n->l->buffers.data[held->u.tensor], held->args,
                                              s->combiner, s->value);
    return under_alloc(p, held, append(pack_chosen(p, chosen), move_of(p, target, held)));
  }
  p->n_moves = 0;
  find_moves(p, s->value);
  kiln_loop *list = NULL;
  for (int i = 0; i < p->n_moves; i++) {
    p->to[i] = new_register(p, p->from[i]->dtype);
    list = append(list, fill_of(p, p->to[i], p->from[i]));
  }
  const kiln_expr *value = kiln_expr_replace(cx, s->value, moved, p);
  if (!stores) {
    list = append(list, unrolled(p, b, s->index, s->combiner, value));
  } else {
    const kiln_expr *held = new_register(p, b->dtype);
    const kiln_buffer *r = p->n->l->buffers.data[held->u.tensor];
    if (s->combiner != KILN_COMBINE_NONE) list = append(list, move_of(p, held, target));
    if (s->combiner == KILN_COMBINE_NONE && may_share(p, s) && gathers(p, value))
      list = append(list, lane_by_lane(p, held, value));
    else list = append(list, unrolled(p, r, held->args, s->combiner, value));
    list = under_alloc(p, held, append(list, move_of(p, target, held)));
  }
  for (int i = 0; i < p->n_moves; i++) list = under_alloc(p, p->to[i], list);
  return list;
}

// --- copies ---

// The store of unrolled loops around a vectorized one, perfectly nested.
typedef struct copies {
  kiln_loop *loop; // the vectorized one
  const kiln_loop *store;
  int n, n_loops;
  kiln_symbol vars[KILN_MAX_RANK];
  int64_t extents[KILN_MAX_RANK], lanes;
} copies;

static bool find_copies(packer *p, kiln_loop *l, copies *out) {
  *out = (copies){.n = 1};
  for (; l && !l->next && l->kind == KILN_LOOP_FOR && l->how == KILN_UNROLLED; l = l->body) {
    int64_t extent = 0;
    if (out->n_loops == KILN_MAX_RANK || !kiln_expr_is_int(l->extent, &extent) || extent < 1 ||
        extent * out->n > MAX_COPIES)
      return false;
    out->vars[out->n_loops] = l->var;
    out->extents[out->n_loops++] = extent;
    out->n *= (int)extent;
  }
  if (out->n == 1 || !l || l->next || l->kind != KILN_LOOP_FOR || l->how != KILN_VECTORIZED ||
      !kiln_expr_is_int(l->extent, &out->lanes) || out->lanes < 2 || out->lanes > 16)
    return false;
  out->loop = l;
  out->store = l->body;
  return out->store && !out->store->next && out->store->kind == KILN_LOOP_STORE &&
         out->store->combiner == KILN_COMBINE_NONE && out->store->value->kind != KILN_EXPR_SELECT &&
         may_share(p, out->store);
}

static const kiln_expr *in_copy(packer *p, const copies *c, int copy, const kiln_expr *e) {
  kiln_ctx *cx = p->n->cx;
  const kiln_expr *values[KILN_MAX_RANK];
  for (int k = c->n_loops - 1; k >= 0; k--) {
    values[k] = kiln_int(cx, copy % c->extents[k]);
    copy /= (int)c->extents[k];
  }
  return kiln_simplify(cx, kiln_expr_substitute(cx, e, c->n_loops, c->vars, values), &p->ranges);
}

// All copies at once: the words that they read, each once, a loop over the lanes with a store a
// copy, the words that they write.
//
// gives: NULL where the result does not lie in words
static kiln_loop *pack_copies(packer *p, const copies *c) {
  kiln_ctx *cx = p->n->cx;
  const kiln_loop *s = c->store;
  const kiln_buffer *b = p->n->l->buffers.data[s->buffer];
  const kiln_expr *value[MAX_COPIES], *to[MAX_COPIES], *held[MAX_COPIES];
  kiln_loop *list = NULL, *lanes = NULL, *apart = NULL, *out = NULL;
  p->n_moves = 0;
  for (int i = 0; i < c->n; i++) {
    const kiln_expr *index[KILN_MAX_RANK + 4];
    for (int k = 0; k < b->rank; k++) index[k] = in_copy(p, c, i, s->index[k]);
    if (!is_move(p, s->buffer, index)) return NULL;
    to[i] = kiln_load(cx, b->id, b->dtype, b->rank, index);
    value[i] = in_copy(p, c, i, s->value);
    find_moves(p, value[i]);
  }
  for (int i = 0; i < p->n_moves; i++) {
    p->to[i] = new_register(p, p->from[i]->dtype);
    list = append(list, fill_of(p, p->to[i], p->from[i]));
  }
  const kiln_symbol var = new_name(p, "u");
  const kiln_expr *lane = kiln_var(cx, var);
  for (int i = 0; i < c->n; i++) {
    held[i] = new_register(p, b->dtype);
    const kiln_expr *x = kiln_expr_replace(cx, value[i], moved, p);
    if (gathers(p, x)) apart = append(apart, lane_by_lane(p, held[i], x));
    else
      lanes = append(lanes, kiln_store_make(cx, p->n->l->buffers.data[held[i]->u.tensor], &lane,
                                            KILN_COMBINE_NONE, at_lane(p, x, lane)));
    out = append(out, move_of(p, to[i], held[i]));
  }
  if (lanes) list = append(list, loop_of(p, var, p->lanes, KILN_UNROLLED, lanes));
  list = append(append(list, apart), out);
  for (int i = 0; i < c->n; i++) list = under_alloc(p, held[i], list);
  for (int i = 0; i < p->n_moves; i++) list = under_alloc(p, p->to[i], list);
  return list;
}

// gives: false where *slot is not unrolled loops around a vectorized one
static bool pack_shared(packer *p, kiln_loop **slot) {
  kiln_loop *next = (*slot)->next, alone = **slot;
  copies c;
  alone.next = NULL;
  if (!find_copies(p, &alone, &c)) return false;
  p->loop = c.loop;
  p->lanes = c.lanes;
  kiln_ranges_push(&p->ranges, c.loop->var, 0, p->lanes - 1);
  kiln_loop *list = pack_copies(p, &c);
  kiln_ranges_pop(&p->ranges, 1);
  if (list) *slot = append(list, next);
  return list != NULL;
}

// --- all of them ---

static bool are_stores(const kiln_loop *first) {
  for (const kiln_loop *s = first; s; s = s->next)
    if (s->kind != KILN_LOOP_STORE) return false;
  return first != NULL;
}

static void unroll_all(kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR && l->how == KILN_VECTORIZED) l->how = KILN_UNROLLED;
    unroll_all(l->body);
  }
}

// The condition around all of |l|'s statements, if it is uniform over the lanes; else NULL.
static const kiln_loop *guard_of(packer *p, const kiln_loop *l) {
  const kiln_loop *g = l->body;
  return g && !g->next && g->kind == KILN_LOOP_IF && agrees(p, g->cond) ? g : NULL;
}

// Lanes run statement by statement, so each statement may have a loop of its own, and a condition
// that is the same for all lanes stands around all.
static void pack_loop(packer *p, kiln_loop **slot) {
  kiln_ctx *cx = p->n->cx;
  kiln_loop *l = *slot, *list = NULL, *next = l->next;
  if (!kiln_expr_is_int(l->extent, &p->lanes)) p->lanes = 0;
  p->loop = l;
  kiln_ranges_push(&p->ranges, l->var, 0, p->lanes > 0 ? p->lanes - 1 : 0);
  const kiln_loop *guard = p->lanes > 1 ? guard_of(p, l) : NULL,
                  *stores = guard ? guard->body : l->body;
  const bool packs = p->lanes > 1 && p->lanes <= 16 && are_stores(stores);
  for (const kiln_loop *s = stores; packs && s; s = s->next) list = append(list, pack_store(p, s));
  if (packs && guard)
    list = kiln_if_make(cx, kiln_simplify(cx, at_lane(p, guard->cond, kiln_int(cx, 0)), &p->ranges),
                        list);
  kiln_ranges_pop(&p->ranges, 1);
  if (packs) {
    *slot = append(list, next);
    return;
  }
  l->how = KILN_UNROLLED;
  unroll_all(l->body);
}

static void pack_list(packer *p, kiln_loop **slot) {
  while (*slot) {
    kiln_loop *l = *slot, *next = l->next;
    int64_t n = 0;
    if (l->kind == KILN_LOOP_FOR && l->how == KILN_VECTORIZED) {
      pack_loop(p, slot);
    } else if (l->kind == KILN_LOOP_FOR && l->how == KILN_UNROLLED && pack_shared(p, slot)) {
      // done
    } else if (l->kind == KILN_LOOP_FOR) {
      if (!kiln_expr_is_int(l->extent, &n)) n = INT64_MAX;
      kiln_ranges_push(&p->ranges, l->var, 0, n > 0 ? n - 1 : 0);
      pack_list(p, &l->body);
      kiln_ranges_pop(&p->ranges, 1);
    } else {
      pack_list(p, &l->body);
    }
    while (*slot && *slot != next) slot = &(*slot)->next;
  }
}

void kiln_gpu_nest_vectorize(kiln_gpu_nest *n) {
  packer p = {.n = n};
  kiln_ranges_init(&p.ranges, &n->cx->perm);
  pack_list(&p, &n->l->body);
}

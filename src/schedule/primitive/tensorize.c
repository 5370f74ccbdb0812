// tensorize: replaces a nest by an instruction of the same meaning.
//
// Both are perfect nests around one STORE, which accumulates or copies. The operands of the meaning
// are indexed by its loops, one each (A(i, k)); the accesses of the nest are affine in its loops.
// Loops of the two are matched one to one, with equal extents, such that each operand depends on
// the same loops. The order of loops does not matter, as it does not change the sums. The part of
// an operand's index that does not move along its tile becomes the index of the INSTR's operand;
// its strides along the tile must be ones that the instruction supports. A TMA copy
// (target/gpu/tma.c) may select between its load and zero, and an im2col copy (target/gpu/im2col.h)
// may have any indices: the emitter decides whether the hardware can address them.
#include "schedule/instr.h"

#include "schedule/index.h"
#include "target/instr.h"

enum { MAX_LOOPS = 6 };

typedef struct nest {
  int n;
  kiln_symbol vars[MAX_LOOPS]; // without loops of extent 1
  int64_t extents[MAX_LOOPS];
  const kiln_loop *store;
} nest;

typedef struct matcher {
  kiln_edit e;
  const kiln_instr *instr;
  kiln_loops *meaning;
  nest meant, found;
  int place[MAX_LOOPS];                       // the nest's loop for each loop of the meaning
  const kiln_expr *loads[KILN_MAX_OPERANDS];  // of the nest, by operand
  const kiln_expr *result[KILN_MAX_OPERANDS]; // the operands of the INSTR
  const kiln_expr *chosen;                    // the condition of a TMA copy; NULL: it has none
  const kiln_expr *where;                     // the same in terms of the tile's axes
  const char *why;                            // the last mismatch
} matcher;

static const char *operand_name(const matcher *m, int id) {
  return kiln_edit_text(&m->e, m->meaning->buffers.data[id]->name);
}

static bool differs(matcher *m, const char *why) {
  m->why = why;
  return false;
}

// --- reading the nests ---

static kiln_status read_nest(matcher *m, const kiln_loop *l, nest *out) {
  const char *name = m->instr->name;
  for (; l->kind == KILN_LOOP_FOR; l = l->body) {
    const char *var = kiln_edit_text(&m->e, l->var);
    int64_t extent = 0;
    if (!kiln_expr_is_int(l->extent, &extent))
      return kiln_refuse(&m->e, "%s: loop %s must have a constant extent", name, var);
    if (!l->body || l->body->next)
      return kiln_refuse(&m->e, "%s: loop %s must hold one statement, got %s", name, var,
                         l->body ? "several" : "none");
    if (extent == 1) continue;
    if (out->n == MAX_LOOPS)
      return kiln_refuse(&m->e, "%s: the nest must have at most %d loops", name, MAX_LOOPS);
    out->vars[out->n] = l->var;
    out->extents[out->n++] = extent;
  }
  if (l->kind == KILN_LOOP_IF)
    return kiln_refuse(&m->e,
                       "%s: the nest must have no guard: split by factors that divide the extents, "
                       "pad or peel",
                       name);
  if (l->kind != KILN_LOOP_STORE)
    return kiln_refuse(&m->e, "%s: the nest must be loops around one store", name);
  out->store = l;
  return KILN_OK;
}

static void list_loops(matcher *m, const nest *n, kiln_text *out) {
  for (int i = 0; i < n->n; i++)
    kiln_text_printf(out, "%s%s:%" PRId64, i ? ", " : "", kiln_edit_text(&m->e, n->vars[i]),
                     n->extents[i]);
}

static int count_extent(const nest *n, int64_t extent) {
  int count = 0;
  for (int i = 0; i < n->n; i++) count += n->extents[i] == extent;
  return count;
}

static kiln_status check_extents(matcher *m) {
  bool same = m->meant.n == m->found.n;
  for (int i = 0; same && i < m->meant.n; i++)
    same = count_extent(&m->meant, m->meant.extents[i]) ==
           count_extent(&m->found, m->meant.extents[i]);
  if (same) return KILN_OK;
  kiln_text want, got;
  kiln_text_init(&want, &m->e.cx->perm);
  kiln_text_init(&got, &m->e.cx->perm);
  list_loops(m, &m->meant, &want);
  list_loops(m, &m->found, &got);
  return kiln_refuse(&m->e, "the loops must have the extents of %s, got (%s)", want.data,
                     got.data ? got.data : "");
}

// --- expressions ---

static bool commutes(const kiln_expr *e) {
  return e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_MUL;
}

static int count_commuting(const kiln_expr *e) {
  int n = commutes(e);
  for (int i = 0; i < e->n_args; i++) n += count_commuting(e->args[i]);
  return n;
}

// Whether |e| is |meant| with loads for operands. Bit k of |*swaps| says that the k-th sum or
// product in this walk has its arguments swapped.
static bool match_expr(matcher *m, const kiln_expr *meant, const kiln_expr *e, unsigned *swaps) {
  if (meant->kind != e->kind || meant->dtype != e->dtype) return false;
  if (e->kind == KILN_EXPR_LOAD) {
    const kiln_expr **load = &m->loads[meant->u.tensor];
    if (*load && *load != e) return false;
    *load = e;
    return true;
  }
  if (e->n_args == 0) return meant == e;
  const bool swapped = commutes(e) && (*swaps & 1);
  if (commutes(e)) *swaps >>= 1;
  for (int i = 0; i < e->n_args; i++)
    if (!match_expr(m, meant->args[i], e->args[swapped ? 1 - i : i], swaps)) return false;
  return true;
}

// The store as text, as loop programs print it.
static const char *store_text(const matcher *m, kiln_loops *l, const kiln_loop *store) {
  const kiln_edit e = {.cx = m->e.cx, .l = l};
  const kiln_expr_names names = kiln_edit_names(&e);
  const kiln_buffer *b = l->buffers.data[store->buffer];
  const bool sums = store->combiner == KILN_COMBINE_SUM;
  kiln_text text;
  kiln_text_init(&text, &m->e.cx->perm);
  const kiln_expr *to = kiln_load(m->e.cx, b->id, b->dtype, b->rank, store->index);
  kiln_expr_print(m->e.cx, to, &names, &text);
  kiln_text_printf(&text, " %s ", sums ? "+=" : kiln_combiner_text(store->combiner));
  kiln_expr_print(m->e.cx, store->value, &names, &text);
  return text.data;
}

// --- operands ---

// The nest's loop for an operand's axis; -1 if the meaning has none there (extent 1).
static int loop_of_axis(const matcher *m, const kiln_expr *meant) {
  for (int i = 0; i < m->meant.n; i++)
    if (meant->kind == KILN_EXPR_VAR && meant->u.sym == m->meant.vars[i]) return m->place[i];
  return -1;
}

typedef struct operand {
  int id;
  const kiln_expr *const *meant;        // the meaning's index, [rank of the tile]
  const kiln_buffer *tile, *b;          // buffers of the meaning and of the nest
  int64_t distance[KILN_MAX_TILE_RANK]; // stride in memory along each axis of the tile
} operand;

static bool operand_differs(matcher *m, const operand *o, const char *what) {
  return differs(m, kiln_arena_printf(&m->e.cx->perm, "operand %s (buffer %s) must %s",
                                      operand_name(m, o->id), kiln_edit_text(&m->e, o->b->name),
                                      what));
}

static const char *loop_name(const matcher *m, int loop) {
  return kiln_edit_text(&m->e, m->found.vars[loop]);
}

// Matches a term of an index on axis |d| of the buffer. A loop of the nest in |*atom| is replaced
// by the tile's variable.
static bool match_term(matcher *m, operand *o, int d, int64_t coef, const kiln_expr **atom) {
  kiln_ctx *cx = m->e.cx;
  for (int i = 0; i < m->found.n; i++) {
    if (!kiln_expr_uses(*atom, m->found.vars[i])) continue;
    int axis = 0;
    while (axis < o->tile->rank && loop_of_axis(m, o->meant[axis]) != i) axis++;
    if (axis == o->tile->rank)
      return operand_differs(
          m, o, kiln_arena_printf(&cx->perm, "not move with loop %s", loop_name(m, i)));
    if ((*atom)->kind != KILN_EXPR_VAR)
      return operand_differs(
          m, o, kiln_arena_printf(&cx->perm, "move by a constant with loop %s", loop_name(m, i)));
    o->distance[axis] += coef * o->b->strides[d];
    *atom = kiln_var(cx, kiln_tile_var(cx, axis));
    return true;
  }
  return true;
}

static bool check_distances(matcher *m, const operand *o) {
  kiln_arena *a = &m->e.cx->perm;
  for (int k = 0; k < o->tile->rank; k++) {
    const int loop = loop_of_axis(m, o->meant[k]);
    const int64_t want = m->instr->strides[o->id][k], got = o->distance[k];
    if (loop < 0 || (want == 0 ? got != 0 : got == want)) continue;
    if (got == 0)
      return operand_differs(m, o, kiln_arena_printf(a, "move with loop %s", loop_name(m, loop)));
    return operand_differs(m, o,
                           kiln_arena_printf(a,
                                             "have neighbours along loop %s %" PRId64
                                             " elements apart, got %" PRId64
                                             ": stage it with that axis innermost",
                                             loop_name(m, loop), want, got));
  }
  return true;
}

// --- fragments ---

static int no_tensor(const void *program, const char *name, size_t n, kiln_dtype *t, int *rank) {
  (void)program, (void)name, (void)n, (void)t, (void)rank;
  return -1;
}

static kiln_status parse_part(matcher *m, const char *text, const kiln_expr **out) {
  const kiln_expr_names names = {.find = no_tensor, .bracket = '['};
  return kiln_expr_parse(m->e.cx, &text, &names, out);
}

// The value of |e| at index |at| on axis |axis| of a tile, and 0 on the others.
static int64_t value_at(matcher *m, const kiln_expr *e, int axis, int64_t at) {
  kiln_symbol vars[KILN_MAX_TILE_RANK];
  const kiln_expr *values[KILN_MAX_TILE_RANK];
  int64_t value = -1;
  for (int k = 0; k < KILN_MAX_TILE_RANK; k++) {
    vars[k] = kiln_tile_var(m->e.cx, k);
    values[k] = kiln_int(m->e.cx, k == axis ? at : 0);
  }
  const kiln_expr *x = kiln_expr_substitute(m->e.cx, e, KILN_MAX_TILE_RANK, vars, values);
  return kiln_expr_is_int(kiln_edit_simplify(&m->e, x), &value) ? value : -1;
}

// The distance in memory from lane 0's first element to lane 1's.
static int64_t lane_distance(matcher *m, const operand *o, const kiln_expr *offset,
                             const kiln_expr *lane, const kiln_expr *element) {
  for (int k = 0; k < o->tile->rank; k++)
    for (int64_t i = 1; i < o->tile->extents[k]; i++) {
      if (value_at(m, lane, k, i) != 1 || value_at(m, element, k, i) != 0) continue;
      const kiln_expr *zeros[KILN_MAX_TILE_RANK], *there[KILN_MAX_TILE_RANK];
      kiln_symbol vars[KILN_MAX_TILE_RANK];
      for (int d = 0; d < KILN_MAX_TILE_RANK; d++) {
        vars[d] = kiln_tile_var(m->e.cx, d);
        zeros[d] = kiln_int(m->e.cx, 0);
        there[d] = kiln_int(m->e.cx, d == k ? i : 0);
      }
      int64_t apart = 0;
      const kiln_expr *far = kiln_expr_substitute(m->e.cx, offset, KILN_MAX_TILE_RANK, vars, there),
                      *near =
                          kiln_expr_substitute(m->e.cx, offset, KILN_MAX_TILE_RANK, vars, zeros);
      return kiln_expr_is_int(kiln_edit_simplify(&m->e, kiln_sub(m->e.cx, far, near)), &apart)
                 ? apart
                 : 0;
    }
  return 0;
}

static bool uses_tile(matcher *m, const kiln_expr *e) {
  for (int k = 0; k < KILN_MAX_TILE_RANK; k++)
    if (kiln_expr_uses(e, kiln_tile_var(m->e.cx, k))) return true;
  return false;
}

// Requires that every element is at the place that its lane and its number in the lane determine.
static bool check_fragment(matcher *m, const operand *o, const kiln_expr *const *index) {
  kiln_ctx *cx = m->e.cx;
  const kiln_expr *lane = NULL, *element = NULL, *offset = kiln_int(cx, 0);
  const kiln_fragment *f = &m->instr->fragments[o->id];
  if (parse_part(m, f->lane, &lane) != KILN_OK || parse_part(m, f->element, &element) != KILN_OK)
    return operand_differs(m, o, "have a fragment that can be read");
  for (int d = 0; d < o->b->rank; d++)
    offset = kiln_add(cx, offset, kiln_mul(cx, index[d], kiln_int(cx, o->b->strides[d])));
  for (int k = 0; k < o->tile->rank; k++)
    kiln_ranges_push(&m->e.ranges, kiln_tile_var(cx, k), 0, o->tile->extents[k] - 1);
  const int64_t apart = lane_distance(m, o, offset, lane, element);
  const kiln_expr *place = kiln_add(cx, kiln_mul(cx, lane, kiln_int(cx, apart)), element);
  const kiln_expr *rest = kiln_edit_simplify(&m->e, kiln_sub(cx, offset, place));
  kiln_ranges_pop(&m->e.ranges, o->tile->rank);
  if (apart > 0 && !uses_tile(m, rest)) return true;
  return operand_differs(m, o,
                         kiln_arena_printf(&cx->perm,
                                           "hold element (_0, _1) in lane %s, as its element %s: "
                                           "transform its layout",
                                           f->lane, f->element));
}

// The tile's axes as expressions for the nest's loops; 0 for loops without one.
static void axes_of(const matcher *m, const operand *o, const kiln_expr **out) {
  kiln_ctx *cx = m->e.cx;
  for (int i = 0; i < m->found.n; i++) {
    int axis = 0;
    while (axis < o->tile->rank && loop_of_axis(m, o->meant[axis]) != i) axis++;
    out[i] = axis < o->tile->rank ? kiln_var(cx, kiln_tile_var(cx, axis)) : kiln_int(cx, 0);
  }
}

// The indices of |load| with loops replaced by the tile's axes, in any form.
static bool match_indices(matcher *m, operand *o, const kiln_expr *load, const kiln_expr **out) {
  kiln_ctx *cx = m->e.cx;
  const kiln_expr *axes[MAX_LOOPS];
  axes_of(m, o, axes);
  for (int i = 0; i < m->found.n; i++) {
    bool moves = false;
    for (int d = 0; d < o->b->rank; d++) moves |= kiln_expr_uses(load->args[d], m->found.vars[i]);
    if (moves && axes[i]->kind != KILN_EXPR_VAR)
      return operand_differs(
          m, o, kiln_arena_printf(&cx->perm, "not move with loop %s", loop_name(m, i)));
  }
  for (int d = 0; d < o->b->rank; d++)
    out[d] = kiln_expr_substitute(cx, load->args[d], m->found.n, m->found.vars, axes);
  return true;
}

static bool match_fragment(matcher *m, operand *o, const kiln_expr *load) {
  kiln_ctx *cx = m->e.cx;
  const kiln_expr *index[KILN_MAX_AXES];
  if (!match_indices(m, o, load, index)) return false;
  if (o->b->scope != KILN_SCOPE_LOCAL) return operand_differs(m, o, "lie in local memory");
  if (!check_fragment(m, o, index)) return false;
  m->result[o->id] = kiln_load(cx, o->b->id, o->b->dtype, o->b->rank, index);
  return true;
}

// Matches the load of an im2col copy.
static bool match_window(matcher *m, operand *o, const kiln_expr *load) {
  const kiln_expr *index[KILN_MAX_AXES];
  if (!match_indices(m, o, load, index)) return false;
  m->result[o->id] = kiln_load(m->e.cx, o->b->id, o->b->dtype, o->b->rank, index);
  return true;
}

// Matches an operand: each index of its load with loops replaced by the tile's axes.
static bool match_operand(matcher *m, int id, const kiln_expr *const *meant,
                          const kiln_expr *load) {
  kiln_ctx *cx = m->e.cx;
  operand o = {.id = id, .meant = meant, .tile = m->meaning->buffers.data[id]};
  o.b = m->e.l->buffers.data[load->u.tensor];
  if (m->instr->fragments[id].lane) return match_fragment(m, &o, load);
  const bool swizzled = m->instr->swizzled >> id & 1;
  if (o.b->is_swizzled != swizzled)
    return operand_differs(m, &o, swizzled ? "be shared and swizzled" : "not be swizzled");
  if (id > 0 && m->instr->is_im2col) return match_window(m, &o, load);
  const kiln_expr *index[KILN_MAX_AXES];
  for (int d = 0; d < o.b->rank; d++) {
    const kiln_terms terms = kiln_terms_of(cx, load->args[d]);
    index[d] = kiln_int(cx, terms.constant);
    for (int t = 0; t < terms.n; t++) {
      const kiln_expr *atom = terms.data[t].atom;
      if (!match_term(m, &o, d, terms.data[t].coef, &atom)) return false;
      const kiln_expr *coef = kiln_int(cx, terms.data[t].coef);
      index[d] = kiln_add(cx, index[d], kiln_mul(cx, atom, coef));
    }
  }
  if (!check_distances(m, &o)) return false;
  // rows of registers are emitted as whole vectors
  if (id > 0 && o.tile->rank > 1 && o.b->scope == KILN_SCOPE_REGISTER)
    return operand_differs(m, &o, "not lie in registers: use local");
  m->result[id] = kiln_load(cx, o.b->id, o.b->dtype, o.b->rank, index);
  return true;
}

static const kiln_expr *const *meant_index(const matcher *m, const kiln_expr *e, int id) {
  if (e->kind == KILN_EXPR_LOAD) return e->u.tensor == id ? e->args : NULL;
  for (int i = 0; i < e->n_args; i++) {
    const kiln_expr *const *found = meant_index(m, e->args[i], id);
    if (found) return found;
  }
  return NULL;
}

static bool match_operands(matcher *m) {
  const kiln_loop *meant = m->meant.store;
  const operand result = {.meant = meant->index, .tile = m->meaning->buffers.data[0]};
  const kiln_expr *axes[MAX_LOOPS];
  if (!match_operand(m, 0, meant->index, m->loads[0])) return false;
  axes_of(m, &result, axes);
  if (m->chosen)
    m->where = kiln_expr_substitute(m->e.cx, m->chosen, m->found.n, m->found.vars, axes);
  for (int i = 1; i < m->meaning->buffers.n; i++)
    if (!match_operand(m, i, meant_index(m, meant->value, i), m->loads[i])) return false;
  return true;
}

// Tries all matchings of loops of equal extent.
static bool match_loops(matcher *m, int i, unsigned taken) {
  if (i == m->meant.n) return match_operands(m);
  for (int k = 0; k < m->found.n; k++) {
    if (taken >> k & 1 || m->found.extents[k] != m->meant.extents[i]) continue;
    m->place[i] = k;
    if (match_loops(m, i + 1, taken | 1u << k)) return true;
  }
  return false;
}

// --- the primitive ---

static kiln_status check_apart(matcher *m) {
  for (int i = 1; i < m->meaning->buffers.n; i++)
    if (m->loads[i]->u.tensor == m->loads[0]->u.tensor)
      return kiln_refuse(&m->e, "operand %s must be another buffer than the result's, got %s",
                         operand_name(m, i),
                         kiln_edit_text(&m->e, m->e.l->buffers.data[m->loads[0]->u.tensor]->name));
  return KILN_OK;
}

// Tries all orders of the arguments of sums and products, and all matchings of loops. The first
// mismatch of operands is reported.
static kiln_status match_store(matcher *m) {
  const kiln_loop *meant = m->meant.store, *found = m->found.store;
  const kiln_expr *value =
      m->instr->is_tma ? kiln_instr_copied(m->e.cx, found->value, &m->chosen) : found->value;
  const kiln_buffer *d = m->meaning->buffers.data[0], *b = m->e.l->buffers.data[found->buffer];
  const char *why = NULL;
  const bool accumulates = meant->combiner == found->combiner && d->dtype == b->dtype;
  for (unsigned order = 0; accumulates && order < 1u << count_commuting(meant->value); order++) {
    unsigned swaps = order;
    for (int i = 0; i < KILN_MAX_OPERANDS; i++) m->loads[i] = NULL;
    m->loads[0] = kiln_load(m->e.cx, b->id, b->dtype, b->rank, found->index);
    if (!match_expr(m, meant->value, value, &swaps)) continue;
    KILN_TRY(check_apart(m));
    if (match_loops(m, 0, 0)) return KILN_OK;
    if (!why) why = m->why;
  }
  if (why) return kiln_refuse(&m->e, "%s: %s", m->instr->name, why);
  return kiln_refuse(&m->e, "the nest must compute `%s` as %s does, got `%s`",
                     store_text(m, m->meaning, meant), m->instr->name,
                     store_text(m, m->e.l, found));
}

static kiln_status match(matcher *m, const kiln_loop *l) {
  KILN_TRY(read_nest(m, m->meaning->body, &m->meant));
  KILN_TRY(read_nest(m, l, &m->found));
  KILN_TRY(check_extents(m));
  return match_store(m);
}

kiln_status kiln_tensorize(kiln_schedule *s, kiln_symbol loop, kiln_instr *instr) {
  matcher m = {.e = kiln_edit_begin(s, "tensorize", loop), .instr = instr};
  kiln_loop *l = NULL;
  KILN_TRY(kiln_edit_loop(&m.e, loop, &l));
  if (!instr->is_there)
    return kiln_refuse(&m.e, "%s: the machine must have %s", instr->name, instr->feature);
  KILN_TRY(kiln_instr_make_loops(m.e.cx, instr));
  if (l->how == KILN_PARALLEL) return kiln_edit_serial(&m.e, l);
  m.meaning = kiln_loops_copy(&m.e.cx->perm, instr->loops);
  KILN_TRY(match(&m, l));
  const int n = m.meaning->buffers.n;
  kiln_loop *after = l->next;
  *l = (kiln_loop){.kind = KILN_LOOP_INSTR, .next = after, .buffer = -1, .instr = instr};
  l->n_operands = n;
  l->operands = KILN_NEW_ARRAY(&m.e.cx->perm, const kiln_expr *, n);
  for (int i = 0; i < n; i++) l->operands[i] = m.result[i];
  l->cond = m.where;
  return kiln_edit_commit(&m.e, "tensorize %s %s", kiln_edit_word(&m.e, loop), instr->name);
}

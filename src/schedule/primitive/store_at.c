// store_at: stores a buffer, which is computed at a loop, at a loop further out; each iteration
// computes only the elements that earlier ones have not.
//
// The value of an element must depend on its absolute position only. To show this, the nests are
// rewritten to absolute coordinates: the loops between then no longer occur in them.
#include "schedule/index.h"
#include "schedule/legality.h"

typedef struct storing {
  kiln_edit e;
  kiln_buffer *b;
  kiln_loop *alloc, *at;              // |at| NULL: the whole kernel
  kiln_loop *path[KILN_MAX_DEPTH];    // to the ALLOC
  int depth, first;                   // the path's length; position of the node after |at|
  kiln_vars between;                  // the loops from |at|, exclusive, to the ALLOC
  kiln_loop *slide;                   // the innermost of them with extent > 1; may be NULL
  bool guarded;                       // whether a condition may skip an iteration of |slide|
  const kiln_expr *lo[KILN_MAX_AXES]; // origin of one iteration's box
  kiln_box box;                       // the box of one iteration of |at|
  int axis;                           // the sliding axis; -1: none
  bool same;                          // every iteration of |slide| needs the same box
  int64_t fold;                       // rows that are kept; 0: all
  kiln_loop *nests[16];
  int n_nests;
} storing;

static const char *slide_name(const storing *t) {
  return t->slide ? kiln_edit_text(&t->e, t->slide->var) : "between";
}

static const char *place_name(const storing *t) {
  kiln_ctx *cx = t->e.cx;
  if (!t->at) return "the kernel";
  return kiln_arena_printf(&cx->perm, "loop %s", kiln_edit_text(&t->e, t->at->var));
}

// --- positions ---

static kiln_status find_place(storing *t) {
  kiln_edit *e = &t->e;
  t->alloc = kiln_nest_find_alloc(e->l->body, t->b->id);
  if (!t->alloc) return kiln_refuse(e, "buffer must be computed at a loop: compute_at before");
  t->depth = kiln_nest_path(e->l, t->alloc, t->path);
  while (t->at && t->first < t->depth && t->path[t->first] != t->at) t->first++;
  t->first += t->at != NULL;
  for (int i = t->first; i < t->depth; i++) {
    kiln_loop *l = t->path[i];
    int64_t extent = 0;
    if (l->kind == KILN_LOOP_IF && t->slide && kiln_expr_uses(l->cond, t->slide->var))
      t->guarded = true;
    if (l->kind != KILN_LOOP_FOR) continue;
    KILN_TRY(kiln_edit_extent(e, l, &extent));
    if (l->how != KILN_UNROLLED) KILN_TRY(kiln_edit_serial(e, l));
    KILN_VEC_PUSH(&e->cx->perm, &t->between, l->var);
    if (extent == 1) continue;
    t->slide = l;
    t->guarded = false;
  }
  if (t->between.n == 0 && !t->at)
    return kiln_refuse(e, "buffer must be computed at a loop, got it kept for the whole kernel");
  if (t->between.n == 0)
    return kiln_refuse(e, "buffer must be computed at a loop inside of %s, got one that is not",
                       place_name(t));
  if (t->alloc->n_operands != t->b->rank)
    return kiln_refuse(e, "the origin of the buffer's part must be known: store_at after "
                          "compute_at, before its layout changes");
  for (int k = 0; k < t->b->rank; k++) t->lo[k] = kiln_edit_simplify(e, t->alloc->operands[k]);
  return KILN_OK;
}

// Finds the nests that compute the buffer; producers that were computed in it may be inside.
static kiln_status find_nests(storing *t, kiln_loop *first) {
  kiln_edit *e = &t->e;
  for (kiln_loop *n = first; n; n = n->next) {
    if (!kiln_nest_uses(e->cx, e->l, n, t->b->id, true)) continue;
    if (kiln_nest_uses(e->cx, e->l, n, t->b->id, false)) {
      if (n->kind != KILN_LOOP_ALLOC)
        return kiln_refuse(e, "buffer must be computed in nests of its own, which do not read it");
      KILN_TRY(find_nests(t, n->body));
      continue;
    }
    if (t->n_nests == (int)KILN_LEN(t->nests))
      return kiln_refuse(e, "buffer must have at most %d nests", (int)KILN_LEN(t->nests));
    KILN_TRY(kiln_check_cut(e, n));
    t->nests[t->n_nests++] = n;
  }
  return KILN_OK;
}

// The loop of |nest| whose variable is the index of axis |k| in all stores; NULL if there is none.
static kiln_loop *row_loop(storing *t, kiln_loop *nest, int k) {
  const kiln_accesses a = kiln_accesses_of(t->e.cx, t->e.l, nest, false, t->b->id);
  kiln_symbol v = 0;
  for (int i = 0; i < a.n; i++) {
    const kiln_expr *x = a.data[i].index[k];
    if (a.data[i].opaque || x->kind != KILN_EXPR_VAR || (v && v != x->u.sym)) return NULL;
    v = x->u.sym;
  }
  const kiln_vars own = kiln_vars_of(t->e.cx, nest);
  return v && kiln_vars_has(&own, v) ? kiln_loops_find(t->e.l, v) : NULL;
}

// --- independence of the loops between ---

typedef struct absolute {
  int n;
  kiln_symbol vars[KILN_MAX_AXES];
  const kiln_expr *values[KILN_MAX_AXES];
} absolute;

static bool is_constant(storing *t, const absolute *a, const kiln_expr *x) {
  if (!x) return true;
  x = kiln_expr_substitute(t->e.cx, x, a->n, a->vars, a->values);
  return !kiln_vars_in(&t->between, kiln_edit_simplify(&t->e, x));
}

static bool nest_is_constant(storing *t, const absolute *a, const kiln_loop *l) {
  if (l->kind == KILN_LOOP_INSTR) return false;
  if (!is_constant(t, a, l->extent) || !is_constant(t, a, l->cond) || !is_constant(t, a, l->value))
    return false;
  const int rank = l->kind == KILN_LOOP_STORE ? t->e.l->buffers.data[l->buffer]->rank : 0;
  for (int k = 0; k < rank; k++) {
    const bool moves = l->buffer == t->b->id && kiln_vars_in(&t->between, t->lo[k]);
    if (!moves && !is_constant(t, a, l->index[k])) return false;
  }
  for (const kiln_loop *b = l->body; b; b = b->next)
    if (!nest_is_constant(t, a, b)) return false;
  return true;
}

// Buffers that the nests read must not change while the loops between run; those stored around
// these loops do not.
static kiln_status check_reads(storing *t, kiln_loop *nest) {
  kiln_edit *e = &t->e;
  const kiln_accesses a = kiln_accesses_of(e->cx, e->l, nest, false, -1);
  kiln_loop *outer = kiln_loops_find(e->l, t->between.data[0]);
  for (int i = 0; i < a.n; i++) {
    const kiln_buffer *b = e->l->buffers.data[a.data[i].buffer];
    if (b == t->b || a.data[i].write || kiln_nest_allocates(nest->body, b->id)) continue;
    if (!kiln_nest_uses(e->cx, e->l, outer, b->id, true)) continue;
    const kiln_loop *alloc = kiln_nest_find_alloc(e->l->body, b->id);
    if (alloc && alloc->n_operands == b->rank && !kiln_nest_find_alloc(outer->body, b->id))
      continue;
    return kiln_refuse(
        e,
        "the nests of the buffer must read buffers that live outside of loop %s, got buffer %s: "
        "store_at that before",
        slide_name(t), kiln_edit_text(e, b->name));
  }
  return KILN_OK;
}

static kiln_status check_nest(storing *t, kiln_loop *nest) {
  kiln_edit *e = &t->e;
  absolute a = {0};
  KILN_TRY(check_reads(t, nest));
  for (int k = 0; k < t->b->rank; k++) {
    if (!kiln_vars_in(&t->between, t->lo[k])) continue;
    kiln_loop *row = row_loop(t, nest, k);
    if (!row)
      return kiln_refuse(e,
                         "axis %d of the buffer must be written by one loop in each nest: store_at "
                         "before splitting its loops",
                         k);
    a.vars[a.n] = row->var;
    a.values[a.n++] = kiln_sub(e->cx, kiln_var(e->cx, row->var), t->lo[k]);
    const kiln_interval lo = kiln_expr_interval(e->cx, t->lo[k], &e->ranges);
    kiln_ranges_push(&e->ranges, row->var, lo.lo, lo.hi + t->b->extents[k] - 1);
  }
  const bool constant = nest_is_constant(t, &a, nest);
  kiln_ranges_pop(&e->ranges, a.n);
  if (!constant)
    return kiln_refuse(e, "the values of the buffer must not depend on loop %s but by their place",
                       slide_name(t));
  return KILN_OK;
}

// --- the box, and its new elements ---

static kiln_status find_box(storing *t) {
  kiln_edit *e = &t->e;
  t->box.rank = t->b->rank;
  for (int k = 0; k < t->b->rank; k++) {
    int64_t width = 0;
    if (!kiln_box_bound(e, t->lo[k], &t->between, &t->box.lo[k], &width) ||
        __builtin_add_overflow(width, t->b->extents[k], &t->box.extent[k]))
      return kiln_refuse(e, "axis %d of the part that %s needs must be bounded", k, place_name(t));
  }
  return KILN_OK;
}

// The origin of axis |k| in the iteration before.
static const kiln_expr *begin_before(storing *t, int k) {
  kiln_ctx *cx = t->e.cx;
  const kiln_symbol v = t->slide->var;
  const kiln_expr *before = kiln_sub(cx, kiln_var(cx, v), kiln_int(cx, 1));
  return kiln_expr_substitute(cx, t->lo[k], 1, &v, &before);
}

// Finds the axis along which one iteration's box slides, forwards and with overlap.
static void find_axis(storing *t) {
  kiln_edit *e = &t->e;
  int n = 0;
  t->axis = -1;
  if (!t->slide || t->guarded) return;
  for (int k = 0; k < t->b->rank; k++) {
    if (!kiln_expr_uses(t->lo[k], t->slide->var)) continue;
    t->axis = k;
    n++;
  }
  t->same = n == 0;
  if (n != 1) {
    t->axis = -1;
    return;
  }
  int64_t extent = 0;
  (void)kiln_expr_is_int(t->slide->extent, &extent);
  kiln_ranges_push(&e->ranges, t->slide->var, 1, extent - 1);
  const kiln_expr *before = kiln_edit_simplify(e, begin_before(t, t->axis));
  const int64_t least = kiln_box_distance(e, before, t->lo[t->axis]).lo;
  kiln_ranges_pop(&e->ranges, 1);
  if (least < 0 || least >= t->b->extents[t->axis]) t->axis = -1;
}

static kiln_status find_fold(storing *t) {
  if (t->axis < 0)
    return kiln_refuse(&t->e,
                       "the part that an iteration of loop %s needs must slide along one "
                       "axis to be folded: leave out fold",
                       slide_name(t));
  int64_t rows = 1;
  while (rows < t->b->extents[t->axis]) rows *= 2;
  if (rows < t->box.extent[t->axis]) t->fold = rows;
  return KILN_OK;
}

// --- the change ---

static void move_element(kiln_ctx *cx, const void *argument, const kiln_expr *const *index,
                         const kiln_expr **out) {
  const storing *t = argument;
  for (int k = 0; k < t->b->rank; k++) {
    const kiln_expr *whole = kiln_add(cx, index[k], t->lo[k]);
    out[k] = t->fold && k == t->axis ? kiln_mod(cx, whole, kiln_int(cx, t->fold))
                                     : kiln_sub(cx, whole, t->box.lo[k]);
  }
}

// Makes a nest compute new elements only; in the first iteration these are all.
static void guard_nest(storing *t, kiln_loop *nest, kiln_loop *row) {
  kiln_ctx *cx = t->e.cx;
  const kiln_expr *begin =
      kiln_binary(cx, KILN_EXPR_EQ, kiln_var(cx, t->slide->var), kiln_int(cx, 0));
  if (t->same) {
    kiln_loop **slot = kiln_nest_slot(t->e.l, nest), *next = nest->next;
    nest->next = NULL;
    *slot = kiln_if_make(cx, begin, nest);
    (*slot)->next = next;
    return;
  }
  const kiln_expr *step = kiln_sub(cx, t->lo[t->axis], begin_before(t, t->axis));
  const kiln_expr *old = kiln_sub(cx, kiln_int(cx, t->b->extents[t->axis]), step);
  const kiln_expr *is_new = kiln_binary(cx, KILN_EXPR_GE, kiln_var(cx, row->var), old);
  row->body = kiln_if_make(cx, kiln_binary(cx, KILN_EXPR_OR, begin, is_new), row->body);
}

static kiln_status move_alloc(storing *t) {
  kiln_edit *e = &t->e;
  kiln_loop *rows[KILN_LEN(t->nests)];
  for (int i = 0; i < t->n_nests; i++) // before the indices of the stores change
    rows[i] = t->axis >= 0 ? row_loop(t, t->nests[i], t->axis) : NULL;
  kiln_reindexing r = {t->b->id, t->b->id, t->b->rank, move_element, t};
  kiln_nest_reindex(e->cx, e->l, t->alloc->body, &r);
  for (int i = 0; (t->axis >= 0 || t->same) && i < t->n_nests; i++)
    guard_nest(t, t->nests[i], rows[i]);
  kiln_loop **slot = kiln_nest_slot(e->l, t->alloc);
  *kiln_nest_end(&t->alloc->body) = t->alloc->next;
  *slot = t->alloc->body;
  kiln_loop *top = t->path[t->first];
  slot = kiln_nest_slot(e->l, top);
  t->alloc->next = top->next;
  t->alloc->body = top;
  top->next = NULL;
  *slot = t->alloc;
  int64_t extents[KILN_MAX_AXES];
  for (int k = 0; k < t->b->rank; k++) {
    extents[k] = t->fold && k == t->axis ? t->fold : t->box.extent[k];
    t->alloc->operands[k] = t->box.lo[k];
  }
  KILN_TRY(kiln_edit_reshape(e, t->b, t->b->rank, extents));
  kiln_edit_measure(e);
  return t->b->scope == KILN_SCOPE_REGISTER ? kiln_check_register(e, t->alloc) : KILN_OK;
}

kiln_status kiln_store_at(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, bool fold) {
  storing t = {.e = kiln_edit_begin(s, "store_at", buffer), .axis = -1};
  KILN_TRY(kiln_edit_buffer(&t.e, buffer, &t.b));
  if (loop) KILN_TRY(kiln_edit_loop(&t.e, loop, &t.at));
  KILN_TRY(find_place(&t));
  KILN_TRY(find_nests(&t, t.alloc->body));
  for (int i = 0; i < t.n_nests; i++) KILN_TRY(check_nest(&t, t.nests[i]));
  KILN_TRY(find_box(&t));
  find_axis(&t);
  if (fold) KILN_TRY(find_fold(&t));
  KILN_TRY(move_alloc(&t));
  return kiln_edit_commit(&t.e, "store_at %s %s%s", kiln_edit_word(&t.e, buffer),
                          loop ? kiln_edit_word(&t.e, loop) : "0", fold ? " fold" : "");
}

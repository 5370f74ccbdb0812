// pad: rounds a loop's extent up to a multiple of a factor; the added iterations have no effect.
#include "schedule/legality.h"
#include "schedule/nest.h"

enum { MAX_FACTOR = 1 << 16 };

// How a store behaves in the added iterations.
typedef enum fate {
  // it writes to padding by which the buffer grows along an axis, and which nobody reads
  INTO_PADDING,
  IDENTITY, // it combines the identity
  ZERO,     // it adds zero unchanged, because it reads padding that contains zero
  PRIVATE,  // it writes memory that is private to the iteration
  GUARDED   // it is guarded
} fate;

typedef struct decision {
  kiln_loop *store;
  fate fate;
  int axis; // of INTO_PADDING, with the extent that contains the added stores
  int64_t extent;
} decision;

typedef struct padding {
  kiln_edit *e;
  kiln_loop *loop;
  int64_t extent, padded;
  const kiln_expr *inside; // loop < extent
  KILN_VEC(decision) stores;
  kiln_accesses all; // of the program, in order
  int before;        // the number of accesses before the current store
  bool *empty;       // [buffers]: private, and the added iterations store nothing into it
} padding;

// The interval of |x| for values of the loop in [from, to).
static kiln_interval interval_in(padding *p, const kiln_expr *x, int64_t from, int64_t to) {
  kiln_ranges_push(&p->e->ranges, p->loop->var, from, to - 1);
  const kiln_interval i = kiln_expr_interval(p->e->cx, kiln_edit_simplify(p->e, x), &p->e->ranges);
  kiln_ranges_pop(&p->e->ranges, 1);
  return i;
}

// --- other accesses ---

// Whether the store assigns every element of |b|: each index is a loop over the whole extent.
static bool assigns_all(padding *p, const kiln_buffer *b, const kiln_access *a) {
  kiln_loop *path[KILN_MAX_DEPTH];
  if (a->opaque || a->combiner != KILN_COMBINE_NONE) return false;
  for (int i = kiln_nest_path(p->e->l, a->node, path) - 1; i >= 0; i--)
    if (path[i]->kind == KILN_LOOP_IF) return false;
  for (int k = 0; k < b->rank; k++) {
    int64_t extent = 0;
    if (kiln_expr_is_int(a->index[k], &extent) && b->extents[k] == 1) continue;
    if (a->index[k]->kind != KILN_EXPR_VAR) return false;
    for (int j = 0; j < k; j++)
      if (a->index[j] == a->index[k]) return false;
    const kiln_loop *l = kiln_loops_find(p->e->l, a->index[k]->u.sym);
    if (!l || !kiln_expr_is_int(l->extent, &extent)) return false;
    if ((l == p->loop ? p->padded : extent) < b->extents[k]) return false;
  }
  return true;
}

// Whether all of |b| was assigned by earlier statements, or is a parameter with data.
static bool is_written(padding *p, const kiln_buffer *b) {
  bool written = false;
  for (int i = 0; i < p->all.n; i++) {
    const kiln_access *a = &p->all.data[i];
    if (a->buffer != b->id || !a->write) continue;
    written = true;
    if (i < p->before && assigns_all(p, b, a)) return true;
  }
  return !written && b->scope == KILN_SCOPE_PARAM;
}

// Whether no element of |b| with index >= |lo| on axis |k| is read.
static bool is_unread(padding *p, const kiln_buffer *b, int k, int64_t lo) {
  for (int i = 0; i < p->all.n; i++) {
    const kiln_access *a = &p->all.data[i];
    if (a->buffer != b->id || (a->write && !a->opaque)) continue;
    if (a->opaque || interval_in(p, a->index[k], 0, p->extent).hi >= lo) return false;
  }
  return true;
}

// Whether the indices that depend on the loop stay in |b|, except on axis |besides|.
static bool in_range(padding *p, const kiln_buffer *b, const kiln_expr *const *index, int besides) {
  for (int k = 0; k < b->rank; k++) {
    if (kiln_expr_has_load(index[k])) return false;
    if (k == besides || !kiln_expr_uses(index[k], p->loop->var)) continue;
    const kiln_interval i = interval_in(p, index[k], 0, p->padded);
    if (i.lo < 0 || i.hi >= b->extents[k]) return false;
  }
  return true;
}

static bool moves(const padding *p, int n, const kiln_expr *const *index) {
  for (int k = 0; k < n; k++)
    if (kiln_expr_uses(index[k], p->loop->var) || kiln_expr_has_load(index[k])) return true;
  return false;
}

// --- decisions ---

// Finds an axis along which the added iterations store only elements that nobody reads.
static bool find_padding(padding *p, decision *d) {
  const kiln_buffer *b = p->e->l->buffers.data[d->store->buffer];
  const kiln_expr *const *index = (const kiln_expr *const *)d->store->index;
  if (b->scope == KILN_SCOPE_PARAM) return false;
  for (d->axis = 0; d->axis < b->rank; d->axis++) {
    const kiln_expr *x = index[d->axis];
    if (!kiln_expr_uses(x, p->loop->var) || kiln_expr_has_load(x)) continue;
    const kiln_interval added = interval_in(p, x, p->extent, p->padded);
    const kiln_interval all = interval_in(p, x, 0, p->padded);
    if (all.lo < 0 || all.hi == INT64_MAX || !is_unread(p, b, d->axis, added.lo)) continue;
    const bool fresh = all.hi >= b->extents[d->axis] || !is_written(p, b);
    if (d->store->combiner != KILN_COMBINE_NONE && fresh) continue;
    d->extent = all.hi + 1;
    if (in_range(p, b, index, d->axis)) return true;
  }
  return false;
}

// |x| for an added iteration.
static const kiln_expr *added(padding *p, const kiln_expr *x) {
  kiln_ranges_push(&p->e->ranges, p->loop->var, p->extent, p->padded - 1);
  const kiln_expr *there = kiln_edit_simplify(p->e, x);
  kiln_ranges_pop(&p->e->ranges, 1);
  return there;
}

// Replaces a load by zero if all elements that the added iterations load with it are padding in
// which the buffer's only writer stored zero.
static const kiln_expr *take_zero(kiln_ctx *cx, const kiln_expr *x, void *argument) {
  padding *p = argument;
  const kiln_access *writer = NULL;
  int axis = -1;
  if (x->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_buffer *b = p->e->l->buffers.data[x->u.tensor];
  for (int i = 0; i < p->all.n; i++) {
    const kiln_access *a = &p->all.data[i];
    if (a->buffer != b->id || !a->write) continue;
    if (writer || i >= p->before || !assigns_all(p, b, a)) return x;
    writer = a;
  }
  for (int k = 0; k < b->rank; k++)
    if (kiln_expr_uses(x->args[k], p->loop->var)) axis = axis < 0 ? k : b->rank;
  if (!writer || axis < 0 || axis == b->rank || writer->index[axis]->kind != KILN_EXPR_VAR ||
      !in_range(p, b, x->args, -1))
    return x;
  const kiln_interval at = interval_in(p, x->args[axis], p->extent, p->padded);
  kiln_ranges_push(&p->e->ranges, writer->index[axis]->u.sym, at.lo, at.hi);
  const kiln_expr *stored = kiln_edit_simplify(p->e, writer->node->value);
  kiln_ranges_pop(&p->e->ranges, 1);
  return kiln_expr_is_zero(stored) ? kiln_number(cx, x->dtype, 0) : x;
}

static bool adds_zero(padding *p, const kiln_loop *store) {
  return store->combiner == KILN_COMBINE_SUM &&
         kiln_expr_is_zero(added(p, kiln_expr_replace(p->e->cx, store->value, take_zero, p)));
}

// Sets |before| to the number of accesses before |store|.
static void seek(padding *p, const kiln_loop *store) {
  for (p->before = 0; p->before < p->all.n; p->before++)
    if (p->all.data[p->before].node == store) return;
}

static bool has_data_condition(const kiln_loop *l) {
  for (; l; l = l->next)
    if ((l->kind == KILN_LOOP_IF && kiln_expr_has_load(l->cond)) || has_data_condition(l->body))
      return true;
  return false;
}

// Added iterations fill their private memory as well if their loads stay in range and no condition
// is data; otherwise they do not.
static void settle_private(padding *p) {
  kiln_loops *l = p->e->l;
  const bool looks = has_data_condition(p->loop->body);
  p->empty = KILN_NEW_ARRAY(&p->e->cx->perm, bool, l->buffers.n);
  for (int i = 0; i < p->stores.n; i++) {
    const decision *d = &p->stores.data[i];
    const kiln_expr *const *index = (const kiln_expr *const *)d->store->index;
    const kiln_buffer *b = l->buffers.data[d->store->buffer];
    if (d->fate == PRIVATE && (looks || !in_range(p, b, index, -1))) p->empty[b->id] = true;
  }
  for (int i = 0; i < p->stores.n; i++)
    if (p->empty[p->stores.data[i].store->buffer]) p->stores.data[i].fate = GUARDED;
}

static void decide(padding *p, kiln_loop *store) {
  decision d = {.store = store, .fate = GUARDED};
  const int rank = p->e->l->buffers.data[store->buffer]->rank;
  const kiln_expr *const *index = (const kiln_expr *const *)store->index;
  seek(p, store);
  if (kiln_nest_allocates(p->loop->body, store->buffer)) d.fate = PRIVATE;
  else if (find_padding(p, &d)) d.fate = INTO_PADDING;
  else if (store->combiner != KILN_COMBINE_NONE && !moves(p, rank, index))
    d.fate = adds_zero(p, store) ? ZERO : IDENTITY;
  KILN_VEC_PUSH(&p->e->cx->perm, &p->stores, d);
}

static kiln_status decide_all(padding *p, kiln_loop *first) {
  for (kiln_loop *l = first; l; l = l->next) {
    if (l->kind == KILN_LOOP_INSTR)
      return kiln_refuse(p->e, "loop must hold no instruction: pad before tensorize");
    if (l->kind == KILN_LOOP_FOR && kiln_expr_uses(l->extent, p->loop->var))
      return kiln_refuse(p->e, "loop %s must have an extent of its own, got one that uses %s",
                         kiln_edit_text(p->e, l->var), kiln_edit_text(p->e, p->loop->var));
    if (l->kind == KILN_LOOP_STORE) decide(p, l);
    KILN_TRY(decide_all(p, l->body));
  }
  return KILN_OK;
}

// --- the change ---

static bool is_dense(const kiln_buffer *b) {
  int64_t stride = 1;
  for (int k = b->rank - 1; k >= 0; k--) {
    if (b->strides[k] != stride) return false;
    stride *= b->extents[k] > 0 ? b->extents[k] : 1;
  }
  return true;
}

static kiln_status grow(padding *p, kiln_buffer *b, int axis, int64_t extent) {
  int64_t extents[KILN_MAX_AXES];
  if (b->extents[axis] >= extent) return KILN_OK; // large enough, or another store has grown it
  if (!is_dense(b))
    return kiln_refuse(p->e, "buffer %s must be stored densely: pad before storage_align",
                       kiln_edit_text(p->e, b->name));
  for (int k = 0; k < b->rank; k++) extents[k] = k == axis ? extent : b->extents[k];
  return kiln_edit_reshape(p->e, b, b->rank, extents);
}

// Guards loads that the added iterations would make out of range, or whose index is data.
static const kiln_expr *protect(kiln_ctx *cx, const kiln_expr *x, void *argument) {
  padding *p = argument;
  if (x->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_buffer *b = p->e->l->buffers.data[x->u.tensor];
  const bool same =
      !moves(p, x->n_args, x->args) || (in_range(p, b, x->args, -1) && is_written(p, b));
  if (same && !p->empty[b->id]) return x;
  return kiln_select(cx, p->inside, x, kiln_number(cx, x->dtype, 0));
}

static void change_store(padding *p, const decision *d) {
  kiln_ctx *cx = p->e->cx;
  kiln_loop *l = d->store;
  const kiln_dtype t = p->e->l->buffers.data[l->buffer]->dtype;
  if (d->fate == ZERO) return;
  if (d->fate == INTO_PADDING || d->fate == PRIVATE) {
    if (!kiln_expr_has_load(added(p, l->value))) return;
    seek(p, l);
    l->value = kiln_expr_replace(cx, l->value, protect, p);
  } else if (d->fate == IDENTITY) {
    l->value = kiln_select(cx, p->inside, l->value, kiln_combiner_identity(cx, l->combiner, t));
  } else {
    kiln_loop **slot = kiln_nest_slot(p->e->l, l), *next = l->next;
    *slot = kiln_if_make(cx, p->inside, l);
    (*slot)->next = next;
    l->next = NULL;
  }
}

// Keeps conditions that read data from being evaluated in the added iterations.
static void change_conditions(padding *p, kiln_loop *l) {
  for (; l; l = l->next) {
    const bool is_if = l->kind == KILN_LOOP_IF && l->cond != p->inside;
    if (is_if && kiln_expr_has_load(l->cond))
      l->cond = kiln_select(p->e->cx, p->inside, l->cond, kiln_int_of(p->e->cx, KILN_BOOL, 0));
    change_conditions(p, l->body);
  }
}

// The loops' parallelism was checked before stores went into padding: checks it again.
static kiln_status check_again(kiln_edit *e, kiln_loop *l) {
  for (; l; l = l->next) {
    const bool is_for = l->kind == KILN_LOOP_FOR;
    if (is_for && (l->how == KILN_PARALLEL || l->how >= KILN_BLOCK_X))
      KILN_TRY(kiln_check_parallel(e, l));
    if (is_for && l->how == KILN_VECTORIZED) KILN_TRY(kiln_check_vectorize(e, l));
    KILN_TRY(check_again(e, l->body));
  }
  return KILN_OK;
}

static kiln_status change(padding *p) {
  kiln_edit *e = p->e;
  bool all_guarded = true, grown = false;
  for (int i = 0; i < p->stores.n; i++) {
    const decision *d = &p->stores.data[i];
    all_guarded &= d->fate == GUARDED;
    grown |= d->fate == INTO_PADDING;
    if (d->fate == INTO_PADDING)
      KILN_TRY(grow(p, e->l->buffers.data[d->store->buffer], d->axis, d->extent));
  }
  if (all_guarded && p->loop->body) {
    p->loop->body = kiln_if_make(e->cx, p->inside, p->loop->body);
  } else {
    for (int i = 0; i < p->stores.n; i++) change_store(p, &p->stores.data[i]);
    change_conditions(p, p->loop->body);
  }
  p->loop->extent = kiln_int(e->cx, p->padded);
  kiln_edit_measure(e);
  return grown ? check_again(e, e->l->body) : KILN_OK;
}

kiln_status kiln_pad_loop(kiln_edit *e, kiln_loop *loop, int64_t factor) {
  padding p = {.e = e, .loop = loop};
  if (factor <= 0 || factor > MAX_FACTOR)
    return kiln_refuse(e, "factor must be in [1, %d], got %" PRId64, MAX_FACTOR, factor);
  KILN_TRY(kiln_edit_serial(e, loop));
  KILN_TRY(kiln_edit_extent(e, loop, &p.extent));
  if (p.extent <= 0 || p.extent % factor == 0) return KILN_OK;
  if (__builtin_add_overflow(p.extent, factor - p.extent % factor, &p.padded))
    return kiln_refuse(e, "the padded extent must fit 64 bits");
  p.inside =
      kiln_binary(e->cx, KILN_EXPR_LT, kiln_var(e->cx, loop->var), kiln_int(e->cx, p.extent));
  p.all = kiln_accesses_of(e->cx, e->l, e->l->body, true, -1);
  KILN_TRY(decide_all(&p, loop->body));
  settle_private(&p);
  return change(&p);
}

kiln_status kiln_pad(kiln_schedule *s, kiln_symbol loop, int64_t factor) {
  kiln_edit e = kiln_edit_begin(s, "pad", loop);
  kiln_loop *l = NULL;
  KILN_TRY(kiln_edit_loop(&e, loop, &l));
  KILN_TRY(kiln_pad_loop(&e, l, factor));
  return kiln_edit_commit(&e, "pad %s %" PRId64, kiln_edit_word(&e, loop), factor);
}

// rfactor: each iteration of a reduction loop gets a partial result of its own, and a new nest
// combines them.
//
// The nest from its outermost reduction loop inwards is replaced by
//     alloc NAME { NAME = identity; the same loops, combining into NAME[..., loop]; combine NAME }
// where NAME has the axes of the result, shrunk to the box that these loops write, and |loop|'s
// axis. New loops: NAME.init.0, ... and NAME.0, ..., numbered like NAME's axes.
#include "schedule/index.h"
#include "schedule/legality.h"

typedef struct factoring {
  kiln_edit e;
  kiln_loop *loop, *store;
  kiln_loop *top; // the outermost reduction loop around the store
  const kiln_buffer *to;
  kiln_buffer *partial;
  kiln_box box;
  int64_t lanes;
} factoring;

static bool index_uses(const kiln_loop *store, int rank, kiln_symbol v) {
  for (int k = 0; k < rank; k++)
    if (kiln_expr_uses(store->index[k], v)) return true;
  return false;
}

static kiln_status find_store(factoring *f) {
  kiln_edit *e = &f->e;
  KILN_TRY(kiln_nest_reduction(e, f->loop->body, true, &f->store));
  f->to = e->l->buffers.data[f->store->buffer];
  if (index_uses(f->store, f->to->rank, f->loop->var))
    return kiln_refuse(e, "loop must be a reduction loop, got one that indexes buffer %s",
                       kiln_edit_text(e, f->to->name));
  for (int k = 0; k < f->to->rank; k++)
    if (kiln_expr_has_load(f->store->index[k]))
      return kiln_refuse(e, "buffer %s must not be indexed by data",
                         kiln_edit_text(e, f->to->name));
  if (f->to->rank + 1 > KILN_MAX_AXES) return kiln_refuse(e, "buffer has too many axes");
  return KILN_OK;
}

static kiln_status find_top(factoring *f) {
  kiln_edit *e = &f->e;
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(e->l, f->store, path);
  for (int i = 0; i < depth && !f->top; i++)
    if (path[i]->kind == KILN_LOOP_FOR && (path[i] == f->loop || !kiln_loop_is_unit(path[i])) &&
        !index_uses(f->store, f->to->rank, path[i]->var)) {
      // a loop around further statements repeats the whole; the reduction begins inside of it
      const kiln_accesses writes = kiln_accesses_of(e->cx, e->l, path[i], false, f->to->id);
      const kiln_accesses all = kiln_accesses_of(e->cx, e->l, path[i], false, -1);
      int n_writes = 0;
      for (int k = 0; k < all.n; k++) n_writes += all.data[k].write;
      if (n_writes == 1 && writes.n == 1) f->top = path[i];
    }
  if (!f->top) return kiln_refuse(e, "loop must be a reduction loop");
  for (int i = 0; i < depth; i++) {
    const kiln_loop *l = path[i];
    if (l->kind == KILN_LOOP_FOR &&
        (l->how == KILN_VECTORIZED || (l == f->loop && l->how != KILN_SERIAL)))
      return kiln_edit_serial(e, l);
    if (l == f->top && l->how == KILN_PARALLEL) return kiln_edit_serial(e, l);
  }
  return KILN_OK;
}

// Whether the loops inside of |top| write at least as many elements as the box has. Elements of the
// box that they do not write may be undefined, or another iteration's.
static bool fills_box(const factoring *f) {
  int64_t instances = 1, elems = 1;
  const kiln_vars inner = kiln_vars_under(f->e.cx, f->top->body);
  for (int i = 0; i < inner.n; i++) {
    const kiln_loop *l = kiln_loops_find(f->e.l, inner.data[i]);
    int64_t extent = 0;
    if (!index_uses(f->store, f->to->rank, inner.data[i])) continue;
    if (!kiln_expr_is_int(l->extent, &extent)) return false;
    if (__builtin_mul_overflow(instances, extent, &instances)) return true;
  }
  for (int k = 0; k < f->to->rank; k++)
    if (__builtin_mul_overflow(elems, f->box.extent[k], &elems)) return false;
  return elems <= instances;
}

// Whether |cond| holds in the first iteration of the reduction loops inside of |top|, for all
// values of the loops around.
static bool holds_first(factoring *f, kiln_loop *const *path, int depth, const kiln_expr *cond) {
  kiln_ctx *cx = f->e.cx;
  kiln_symbol vars[KILN_MAX_DEPTH];
  const kiln_expr *zeros[KILN_MAX_DEPTH];
  int64_t holds = 0;
  int n = 0;
  for (int i = depth - 1; i >= 0 && (i + 1 == depth || path[i + 1] != f->top); i--) {
    if (path[i]->kind != KILN_LOOP_FOR || index_uses(f->store, f->to->rank, path[i]->var)) continue;
    vars[n] = path[i]->var;
    zeros[n++] = kiln_int(cx, 0);
  }
  const kiln_expr *first = kiln_expr_substitute(cx, cond, n, vars, zeros);
  return kiln_expr_is_int(kiln_edit_simplify(&f->e, first), &holds) && holds;
}

// Whether |cond|, inside of |top|, may exclude elements of the box. A condition on reduction loops
// alone excludes the same summands of all elements, and one that holds in the first iteration
// leaves each element a summand.
static bool keeps_from_elements(factoring *f, kiln_loop *const *path, int depth,
                                const kiln_expr *cond) {
  bool is_inside = false;
  if (holds_first(f, path, depth, cond)) return false;
  for (int i = 0; i < depth; i++) {
    is_inside |= path[i] == f->top;
    if (path[i]->kind == KILN_LOOP_FOR && kiln_expr_uses(cond, path[i]->var) &&
        (!is_inside || index_uses(f->store, f->to->rank, path[i]->var)))
      return true;
  }
  return cond->has_load;
}

// Whether the buffer may have padding beyond its tensor's elements, which no nest sets.
static bool is_padded(const factoring *f) {
  const kiln_program *p = f->e.s->prog;
  int64_t elems = 1;
  for (int k = 0; k < f->to->rank; k++) elems *= f->to->extents[k];
  for (int t = 0; t < p->tensors.n; t++)
    if (p->tensors.data[t]->name == f->to->name)
      return elems > kiln_tensor_elems(p->tensors.data[t]);
  return true;
}

// The combination writes the whole box, including elements that a condition excludes in the nest.
// These must have been initialised by earlier nests; elements initialised in the loops around, and
// padding, may not be yet.
static kiln_status check_begun(factoring *f) {
  kiln_edit *e = &f->e;
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(e->l, f->store, path);
  const kiln_accesses all = kiln_accesses_of(e->cx, e->l, path[0], false, f->to->id);
  int n_writes = 0;
  bool is_guarded = false;
  for (int i = 0; i < all.n; i++) n_writes += all.data[i].write;
  for (int i = depth - 1; i >= 0 && path[i] != f->top; i--)
    is_guarded |=
        path[i]->kind == KILN_LOOP_IF && keeps_from_elements(f, path, depth, path[i]->cond);
  if (is_guarded && is_padded(f))
    return kiln_refuse(e,
                       "a nest with conditions must not reach padding, which buffer %s may have: "
                       "rfactor before its layout is changed, or before split with guard",
                       kiln_edit_text(e, f->to->name));
  if (n_writes < 2 || !is_guarded) return KILN_OK;
  return kiln_refuse(e,
                     "a nest with conditions must begin with all of buffer %s set, got another "
                     "store to it around loop %s: rfactor before merge or decompose_reduction",
                     kiln_edit_text(e, f->to->name), kiln_edit_text(e, f->top->var));
}

static kiln_status make_partial(factoring *f, kiln_symbol name) {
  kiln_edit *e = &f->e;
  kiln_accesses one = kiln_accesses_of(e->cx, e->l, f->top, false, f->to->id);
  const kiln_vars inner = kiln_vars_of(e->cx, f->top);
  kiln_box_of(e, f->to, &one, &inner, &f->box);
  for (int k = 0; k < f->to->rank; k++)
    if (kiln_box_below(e, &f->box, k)) kiln_box_shift_low(e, &f->box, k);
  if (!fills_box(f))
    return kiln_refuse(e,
                       "the nest must reach every element of a box of buffer %s: rfactor before "
                       "its layout is changed",
                       kiln_edit_text(e, f->to->name));
  int64_t extents[KILN_MAX_AXES];
  for (int k = 0; k < f->to->rank; k++) extents[k] = f->box.extent[k];
  extents[f->to->rank] = f->lanes;
  kiln_loop *path[KILN_MAX_DEPTH];
  const kiln_scope scope = kiln_nest_path(e->l, f->top, path) == 1 ? KILN_SCOPE_WORKSPACE
                           : f->to->scope > KILN_SCOPE_WORKSPACE   ? f->to->scope
                                                                   : KILN_SCOPE_LOCAL;
  f->partial = kiln_buffer_make(e->cx, e->l, kiln_edit_text(e, name), f->to->dtype, scope,
                                f->to->rank + 1, extents, NULL);
  return KILN_OK;
}

// Makes a nest of loops NAME.PART0, ... over the partial results.
static kiln_status make_nest(factoring *f, const char *part, bool combines, kiln_loop **out) {
  kiln_edit *e = &f->e;
  kiln_ctx *cx = e->cx;
  const int rank = f->partial->rank;
  kiln_symbol vars[KILN_MAX_AXES];
  const kiln_expr *at[KILN_MAX_AXES], *to[KILN_MAX_AXES], *valid = NULL;
  for (int k = 0; k < rank; k++) {
    vars[k] = kiln_symbol_printf(cx, "%s.%s%d", kiln_edit_text(e, f->partial->name), part, k);
    KILN_TRY(kiln_edit_new_loop(e, vars[k]));
    at[k] = kiln_var(cx, vars[k]);
    if (k + 1 < rank) to[k] = kiln_add(cx, f->box.lo[k], at[k]);
  }
  const kiln_expr *zero = kiln_combiner_identity(cx, f->store->combiner, f->to->dtype);
  kiln_loop *store =
      combines ? kiln_store_make(cx, f->to, to, f->store->combiner,
                                 kiln_load(cx, f->partial->id, f->partial->dtype, rank, at))
               : kiln_store_make(cx, f->partial, at, KILN_COMBINE_NONE, zero);
  // a ragged box is combined within the buffer only
  for (int k = 0; combines && k + 1 < rank; k++) {
    if (!kiln_box_above(e, &f->box, k, f->to->extents[k])) continue;
    const kiln_expr *in = kiln_binary(cx, KILN_EXPR_LT, to[k], kiln_int(cx, f->to->extents[k]));
    valid = valid ? kiln_binary(cx, KILN_EXPR_AND, valid, in) : in;
  }
  if (valid) store = kiln_if_make(cx, valid, store);
  *out = kiln_nest_around(cx, rank, vars, f->partial->extents, store);
  return KILN_OK;
}

kiln_status kiln_rfactor(kiln_schedule *s, kiln_symbol loop, kiln_symbol name) {
  factoring f = {.e = kiln_edit_begin(s, "rfactor", loop)};
  kiln_edit *e = &f.e;
  kiln_ctx *cx = e->cx;
  KILN_TRY(kiln_edit_loop(e, loop, &f.loop));
  KILN_TRY(kiln_edit_extent(e, f.loop, &f.lanes));
  KILN_TRY(kiln_edit_new_buffer(e, name));
  KILN_TRY(find_store(&f));
  KILN_TRY(find_top(&f));
  KILN_TRY(check_begun(&f));
  KILN_TRY(make_partial(&f, name));
  kiln_loop *init = NULL, *combine = NULL;
  KILN_TRY(make_nest(&f, "init.", false, &init));
  KILN_TRY(make_nest(&f, "", true, &combine));
  const kiln_expr **index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, f.partial->rank);
  for (int k = 0; k < f.to->rank; k++) index[k] = kiln_sub(cx, f.store->index[k], f.box.lo[k]);
  index[f.to->rank] = kiln_var(cx, loop);
  f.store->index = index;
  f.store->buffer = f.partial->id;
  kiln_loop **slot = kiln_nest_slot(e->l, f.top), *after = f.top->next;
  init->next = f.top;
  f.top->next = combine;
  if (f.partial->scope == KILN_SCOPE_WORKSPACE) {
    combine->next = after;
    *slot = init;
  } else {
    *slot = kiln_alloc_make(cx, f.partial, init);
    (*slot)->next = after;
    kiln_edit_measure(e);
    if (f.partial->scope == KILN_SCOPE_REGISTER) KILN_TRY(kiln_check_register(e, *slot));
  }
  // the combination may write more than the nest did: its whole box
  kiln_edit_measure(e);
  KILN_TRY(kiln_check_around(e, combine));
  return kiln_edit_commit(e, "rfactor %s %s", kiln_edit_word(e, loop), kiln_edit_word(e, name));
}

// replicate: copies of a buffer's elements along a new axis, all equal, for threads that each keep
// one. use_copy: which of them a nest reads.
//
//     for m { S[m] += X[m] }       replicate S 4      for m { for S.c:4 { S[m, S.c] += X[m] } }
//     for i { for j { Y[i, j] = S[i] } }              .. Y[i, j] = S[i, 0], or
//                                                     .. Y[i, j] = S[i, j%4] by use_copy i S j%4
#include "schedule/nest.h"

#include <string.h>

enum { MAX_COPIES = 1024, MAX_CHAIN = 16 };

// --- replicate ---

// Appends an index, 0, to those of an access.
static void append_zero(kiln_ctx *cx, const void *argument, const kiln_expr *const *index,
                        const kiln_expr **out) {
  const kiln_reindexing *r = argument;
  for (int k = 0; k + 1 < r->rank; k++) out[k] = index[k];
  out[r->rank - 1] = kiln_int(cx, 0);
}

typedef struct copied {
  kiln_edit *e;
  const kiln_buffer *b;
  const kiln_expr *copy; // the number of the copy that loads are to read
  int n;                 // stores
} copied;

static const kiln_expr *read_copy(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const copied *c = argument;
  const kiln_expr *index[KILN_MAX_AXES];
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], read_copy, argument);
  if (e->u.tensor == c->b->id && kiln_expr_is_zero(index[e->n_args - 1]))
    index[e->n_args - 1] = c->copy;
  return kiln_load(cx, e->u.tensor, e->dtype, e->n_args, index);
}

// Puts each store to the buffer into a loop over its copies.
static kiln_status copy_stores(copied *c, kiln_loop **slot) {
  kiln_ctx *cx = c->e->cx;
  for (; *slot; slot = &(*slot)->next) {
    kiln_loop *l = *slot;
    KILN_TRY(copy_stores(c, &l->body));
    if (l->kind != KILN_LOOP_STORE || l->buffer != c->b->id) continue;
    const char *name = kiln_edit_text(c->e, c->b->name);
    const kiln_symbol var = c->n++ ? kiln_symbol_printf(cx, "%s.c%d", name, c->n - 1)
                                   : kiln_symbol_printf(cx, "%s.c", name);
    KILN_TRY(kiln_edit_new_loop(c->e, var));
    KILN_TRY(kiln_edit_scalar(c->e, l));
    c->copy = kiln_var(cx, var);
    l->index[c->b->rank - 1] = c->copy;
    l->value = kiln_expr_replace(cx, l->value, read_copy, c);
    kiln_loop *loop = kiln_for_make(cx, var, kiln_int(cx, c->b->extents[c->b->rank - 1]), NULL);
    loop->next = l->next;
    l->next = NULL;
    loop->body = l;
    *slot = loop;
  }
  return KILN_OK;
}

kiln_status kiln_replicate(kiln_schedule *s, kiln_symbol buffer, int64_t copies) {
  kiln_edit e = kiln_edit_begin(s, "replicate", buffer);
  kiln_buffer *b = NULL;
  int64_t extents[KILN_MAX_AXES];
  KILN_TRY(kiln_edit_buffer(&e, buffer, &b));
  if (b->scope == KILN_SCOPE_PARAM)
    return kiln_refuse(&e, "buffer must not be a parameter, whose elements are the caller's");
  if (copies < 2 || copies > MAX_COPIES)
    return kiln_refuse(&e, "copies must be 2 to %d, got %" PRId64, MAX_COPIES, copies);
  if (b->rank + 1 > KILN_MAX_AXES - 1)
    return kiln_refuse(&e, "axes must be at most %d", KILN_MAX_AXES - 1);
  const kiln_accesses all = kiln_accesses_of(e.cx, e.l, e.l->body, true, b->id);
  for (int i = 0; i < all.n; i++)
    if (all.data[i].opaque)
      return kiln_refuse(&e, "buffer must not be used by an instruction: do this before tensorize");
  kiln_reindexing r = {b->id, b->id, b->rank + 1, append_zero, &r};
  kiln_nest_drop_hints(&e.l->body, b->id);
  kiln_nest_reindex(e.cx, e.l, e.l->body, &r);
  memcpy(extents, b->extents, sizeof *extents * (size_t)b->rank);
  extents[b->rank] = copies;
  KILN_TRY(kiln_edit_reshape(&e, b, b->rank + 1, extents));
  kiln_loop *alloc = kiln_nest_find_alloc(e.l->body, b->id);
  if (alloc) alloc->n_operands = 0; // its origin had fewer axes
  copied c = {.e = &e, .b = b};
  KILN_TRY(copy_stores(&c, &e.l->body));
  return kiln_edit_commit(&e, "replicate %s %" PRId64, kiln_edit_word(&e, buffer), copies);
}

// --- use_copy ---

// Buffers whose elements along the last axis are being proved equal.
typedef struct chain {
  kiln_edit *e;
  int buffers[MAX_CHAIN], n;
} chain;

static bool are_equal(chain *c, int buffer);

// Whether |x| is the same for all values of |copy|, given that buffers' copies are equal.
static bool is_same(chain *c, const kiln_expr *x, kiln_symbol copy) {
  if (!kiln_expr_uses(x, copy)) return true;
  if (x->kind == KILN_EXPR_VAR || x->n_tree > KILN_LONG_TREE) return false;
  const bool is_copy = x->kind == KILN_EXPR_LOAD && x->n_args > 0 &&
                       x->args[x->n_args - 1]->kind == KILN_EXPR_VAR &&
                       x->args[x->n_args - 1]->u.sym == copy;
  for (int k = 0; k + is_copy < x->n_args; k++)
    if (!is_same(c, x->args[k], copy)) return false;
  return !is_copy || are_equal(c, x->u.tensor);
}

// Whether |x| loads the buffer at another copy than |copy|.
static bool reads_other(const kiln_expr *x, const kiln_buffer *b, kiln_symbol copy) {
  if (!x->has_load) return false;
  if (x->n_tree > KILN_LONG_TREE) return true;
  const kiln_expr *last = x->n_args > 0 ? x->args[x->n_args - 1] : NULL;
  if (x->kind == KILN_EXPR_LOAD && x->u.tensor == b->id &&
      (last->kind != KILN_EXPR_VAR || last->u.sym != copy))
    return true;
  for (int k = 0; k < x->n_args; k++)
    if (reads_other(x->args[k], b, copy)) return true;
  return false;
}

// Whether |loop| runs over all copies of the buffer and holds nothing but a store that does the
// same for each.
static bool stores_all(chain *c, const kiln_loop *loop, const kiln_buffer *b) {
  const kiln_loop *l = loop->body;
  int64_t extent = 0;
  if (l->next || !kiln_expr_is_int(loop->extent, &extent) || extent != b->extents[b->rank - 1])
    return false;
  const kiln_expr *last = l->index[b->rank - 1];
  if (last->kind != KILN_EXPR_VAR || last->u.sym != loop->var) return false;
  for (int k = 0; k + 1 < b->rank; k++)
    if (kiln_expr_uses(l->index[k], loop->var)) return false;
  return !reads_other(l->value, b, loop->var) && is_same(c, l->value, loop->var);
}

static bool stores_are_equal(chain *c, const kiln_loop *first, const kiln_loop *around,
                             const kiln_buffer *b) {
  for (const kiln_loop *l = first; l; l = l->next) {
    if (l->kind == KILN_LOOP_INSTR && l->operands[0]->u.tensor == b->id) return false;
    if (l->kind == KILN_LOOP_STORE && l->buffer == b->id &&
        !(around && around->kind == KILN_LOOP_FOR && stores_all(c, around, b)))
      return false;
    if (!stores_are_equal(c, l->body, l, b)) return false;
  }
  return true;
}

static bool are_equal(chain *c, int buffer) {
  const kiln_buffer *b = c->e->l->buffers.data[buffer];
  for (int i = 0; i < c->n; i++)
    if (c->buffers[i] == buffer) return true; // it is being proved: by induction over time
  if (c->n == MAX_CHAIN || b->rank < 1 || b->scope == KILN_SCOPE_PARAM) return false;
  c->buffers[c->n++] = buffer;
  return stores_are_equal(c, c->e->l->body, NULL, b);
}

// Requires that each load of the first copy be in all loops that |copy| uses.
static kiln_status check_loops(kiln_edit *e, kiln_loop *loop, const kiln_buffer *b,
                               const kiln_expr *copy) {
  const kiln_accesses all = kiln_accesses_of(e->cx, e->l, loop, false, b->id);
  int n = 0;
  for (int i = 0; i < all.n; i++) {
    const kiln_access *a = &all.data[i];
    kiln_loop *path[KILN_MAX_DEPTH];
    if (a->opaque)
      return kiln_refuse(e, "buffer %s must not be used by an instruction: do this before",
                         kiln_edit_text(e, b->name));
    if (a->write || !kiln_expr_is_zero(a->index[b->rank - 1])) continue;
    const int depth = kiln_nest_path(e->l, a->node, path);
    for (int v = 0; v < copy->vars->n; v++) {
      bool is_inside = false;
      for (int d = 0; d < depth && !is_inside; d++)
        is_inside = path[d]->kind == KILN_LOOP_FOR && path[d]->var == copy->vars->vars[v];
      if (!is_inside)
        return kiln_refuse(e, "each load of buffer %s must be in loop %s",
                           kiln_edit_text(e, b->name), kiln_edit_text(e, copy->vars->vars[v]));
    }
    n++;
  }
  return n > 0 ? KILN_OK
               : kiln_refuse(e, "the nest must read the first copy of buffer %s",
                             kiln_edit_text(e, b->name));
}

static kiln_status parse_copy(kiln_edit *e, const kiln_buffer *b, const char *text,
                              const kiln_expr **out) {
  const kiln_expr_names names = kiln_edit_names(e);
  const char *at = text;
  if (kiln_expr_parse(e->cx, &at, &names, out) != KILN_OK || at[strspn(at, " \t\r")] ||
      (*out)->dtype != KILN_I64 || kiln_expr_has_load(*out))
    return kiln_refuse(e, "the copy must be a number, got \"%.200s\"", text);
  const kiln_interval r = kiln_expr_interval(e->cx, kiln_edit_simplify(e, *out), &e->ranges);
  if (r.lo >= 0 && r.hi < b->extents[b->rank - 1]) return KILN_OK;
  return kiln_refuse(e, "the copy must be one of %" PRId64 ", got \"%.200s\"",
                     b->extents[b->rank - 1], text);
}

kiln_status kiln_use_copy(kiln_schedule *s, kiln_symbol loop, kiln_symbol buffer,
                          const char *copy) {
  kiln_edit e = kiln_edit_begin(s, "use_copy", loop);
  kiln_loop *l = NULL;
  kiln_buffer *b = NULL;
  copied c = {.e = &e};
  KILN_TRY(kiln_edit_loop(&e, loop, &l));
  KILN_TRY(kiln_edit_buffer(&e, buffer, &b));
  chain all = {.e = &e};
  if (!are_equal(&all, b->id))
    return kiln_refuse(&e, "buffer %s must have equal copies along its last axis: replicate it",
                       kiln_edit_text(&e, buffer));
  KILN_TRY(parse_copy(&e, b, copy, &c.copy));
  KILN_TRY(check_loops(&e, l, b, c.copy));
  c.b = b;
  kiln_loop *after = l->next;
  l->next = NULL;
  kiln_nest_map(e.cx, e.l, l, read_copy, &c);
  l->next = after;
  return kiln_edit_commit(&e, "use_copy %s %s %s", kiln_edit_word(&e, loop),
                          kiln_edit_word(&e, buffer), copy);
}

// Moves maps before views: a map of a view is computed before it, and the view is taken of the
// result:
//     V(v) = T(i(v)), Y(v) = f(V(v))   becomes   Z(t) = f(T(t)), Y(v) = Z(i(v))
// so that f becomes the epilogue of the kernel that computes T, instead of a prologue of Y's
// readers. Example: the GELU between a transformer's depthwise convolution and matrix product,
// where tokens are reshaped to an image and back.
//
// f is one or several maps that read V, each other and scalar constants, elementwise; only one of
// them has other readers, and V has none. Applied if T is computed (f will be its epilogue) and of
// floats (f may be applied to elements that V omits), V is its only reader, and T has no more
// elements than V.
#include "rewrite/product.h"
#include "rewrite/readers.h"
#include "rewrite/rules.h"

#include <string.h>

enum { MAX_MAPS = 32 };

typedef struct views {
  kiln_ctx *cx;
  kiln_program *p;
  const int *n_readers;
  const kiln_stmt *members[1 + MAX_MAPS]; // V and the maps of f in program order
  int n;
  const kiln_tensor *over[1 + MAX_MAPS]; // T, and the maps' new tensors with T's shape
  const kiln_stmt *s;                    // the current statement
  uint64_t reads, exits; // bit masks of members: read by |s|; read by others than members
  bool is_map;           // |s| reads only members, at its own element, and constants
} views;

static int member_of(const views *v, int tensor) {
  for (int i = 0; i < v->n; i++)
    if (v->members[i]->out == tensor) return i;
  return -1;
}

// Whether |load|, of a member, has the index of the element that |s| computes; dims of extent 1 may
// be 0.
static bool is_own(const views *v, const kiln_expr *load) {
  if (v->s->n_space != v->members[0]->n_space) return false;
  for (int k = 0; k < load->n_args; k++) {
    const kiln_expr *extent = v->s->dims[k].extent;
    const bool is_only = kiln_expr_is_zero(load->args[k]) && kiln_expr_int_or(extent, -1) == 1;
    if (extent != v->members[0]->dims[k].extent) return false;
    if (!is_only && load->args[k] != kiln_stmt_var(v->cx, v->s, k)) return false;
  }
  return true;
}

static void see_load(const kiln_expr *load, void *argument) {
  views *v = argument;
  const int member = member_of(v, load->u.tensor);
  if (member < 0) {
    v->is_map &= v->p->tensors.data[load->u.tensor]->role == KILN_CONST;
    return;
  }
  v->reads |= UINT64_C(1) << member;
  v->is_map &= is_own(v, load);
}

// Replaces loads of members' own elements by loads at index 0.
static const kiln_expr *without_dims(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const views *v = argument;
  const kiln_expr *zeros[KILN_MAX_RANK];
  if (e->kind != KILN_EXPR_LOAD || member_of(v, e->u.tensor) < 0) return NULL;
  for (int k = 0; k < e->n_args; k++) zeros[k] = kiln_int(cx, 0);
  return kiln_tensor_load(cx, v->p->tensors.data[e->u.tensor], zeros);
}

// Whether the map |s| does not depend on the position of its element.
static bool is_uniform(views *v, const kiln_stmt *s) {
  const kiln_expr *body = kiln_expr_replace(v->cx, s->body, without_dims, v);
  for (int k = 0; k < s->n_space; k++)
    if (kiln_expr_uses(body, s->dims[k].name)) return false;
  return true;
}

// Visits the reader |s|: it becomes a member, or the members that it reads become exits. Gives how
// many it reads.
static int see_reader(views *v, const kiln_stmt *s) {
  v->s = s;
  v->reads = 0;
  v->is_map = kiln_map_of(v->cx, v->p, s->out) == s && v->n <= MAX_MAPS;
  kiln_stmt_visit_loads(v->cx, v->p, s, see_load, v);
  if (!v->reads) return 0;
  if (v->is_map && is_uniform(v, s)) v->members[v->n++] = s;
  else v->exits |= v->reads;
  return __builtin_popcountll(v->reads);
}

// Whether |t| is computed, as opposed to an input, constant, view or concatenation.
static bool is_computed(const views *v, const kiln_tensor *t) {
  for (;;) {
    const kiln_stmt *s = kiln_map_of(v->cx, v->p, t->id);
    if (!s || !kiln_only_moves(v->cx, s->body)) return t->role == KILN_TEMP;
    if (s->body->kind != KILN_EXPR_LOAD) return false;
    t = v->p->tensors.data[s->body->u.tensor];
  }
}

// Sets V and f if |s| is a view to which the rule applies.
static bool find_maps(views *v, const kiln_stmt *s) {
  if (kiln_map_of(v->cx, v->p, s->out) != s || s->body->kind != KILN_EXPR_LOAD ||
      !kiln_only_moves(v->cx, s->body))
    return false;
  const kiln_tensor *t = v->p->tensors.data[s->body->u.tensor], *moved = v->p->tensors.data[s->out];
  const int64_t n_elems = kiln_tensor_elems(t);
  if (v->n_readers[t->id] != 1 || kiln_tensor_is_output(v->p, t->id) ||
      !kiln_dtype_is_float(t->dtype) || !is_computed(v, t) || n_elems < 0 ||
      n_elems > kiln_tensor_elems(moved))
    return false;
  v->members[0] = s;
  v->n = 1;
  v->over[0] = t;
  v->exits = 0;
  int n_unseen = v->n_readers[s->out];
  for (int i = s->id + 1; i < v->p->stmts.n && n_unseen > 0; i++) {
    const int n = v->n;
    n_unseen -= see_reader(v, v->p->stmts.data[i]);
    if (v->n > n) n_unseen += v->n_readers[v->members[n]->out];
  }
  for (int i = 0; i < v->n; i++)
    if (kiln_tensor_is_output(v->p, v->members[i]->out)) v->exits |= UINT64_C(1) << i;
  return v->exits > 1 && (v->exits & (v->exits - 1)) == 0;
}

// Replaces a load of a member's element by one of its tensor over T's elements.
static const kiln_expr *load_over(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const views *v = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  const int member = e->kind == KILN_EXPR_LOAD ? member_of(v, e->u.tensor) : -1;
  if (member < 0) return NULL;
  for (int k = 0; k < v->s->n_space; k++) index[k] = kiln_stmt_var(cx, v->s, k);
  return kiln_tensor_load(cx, v->over[member], index);
}

// Moves the last |n| statements before statement |at|.
static void move_last(kiln_program *p, int n, int at) {
  kiln_stmt *last[MAX_MAPS];
  const size_t behind = (size_t)(p->stmts.n - n - at);
  memcpy(last, p->stmts.data + p->stmts.n - n, (size_t)n * sizeof *last);
  memmove(p->stmts.data + at + n, p->stmts.data + at, behind * sizeof *last);
  memcpy(p->stmts.data + at, last, (size_t)n * sizeof *last);
}

static void rewrite(views *v) {
  const kiln_tensor *t = v->over[0];
  const kiln_stmt *view = v->members[0];
  const int n_maps = v->n - 1, exit = __builtin_ctzll(v->exits);
  for (int i = 1; i < v->n; i++) {
    const kiln_stmt *map = v->members[i];
    const kiln_tensor *y = v->p->tensors.data[map->out];
    kiln_stmt *s = kiln_stmt_make(v->cx, v->p, kiln_symbol_text(v->cx, y->name), y->dtype, t->rank,
                                  0, t->shape);
    v->s = s;
    s->body = kiln_expr_replace(v->cx, map->body, load_over, v);
    s->origin = map->origin;
    v->over[i] = v->p->tensors.data[s->out];
  }
  kiln_stmt *s = v->p->stmts.data[v->members[exit]->id];
  kiln_symbol vars[KILN_MAX_RANK];
  const kiln_expr *values[KILN_MAX_RANK];
  for (int k = 0; k < s->n_space; k++) {
    vars[k] = view->dims[k].name;
    values[k] = kiln_stmt_var(v->cx, s, k);
  }
  const kiln_expr *at = kiln_expr_substitute(v->cx, view->body, s->n_space, vars, values);
  s->body = kiln_tensor_load(v->cx, v->over[exit], at->args);
  s->origin = view->origin;
  move_last(v->p, n_maps, s->id);
}

static bool rewrite_one(kiln_ctx *cx, kiln_program *p, kiln_site *site) {
  (void)site;
  views v = {.cx = cx, .p = p, .n_readers = kiln_readers_count(cx, p)};
  for (int i = 0; i < p->stmts.n; i++)
    if (find_maps(&v, p->stmts.data[i])) {
      rewrite(&v);
      return true;
    }
  return false;
}

int kiln_rule_views(kiln_ctx *cx, kiln_program *p) {
  return kiln_rewrite_all(cx, p, NULL, rewrite_one);
}

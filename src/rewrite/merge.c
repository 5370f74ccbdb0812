// Merges contractions of one operand with different constants into one, concatenating the
// constants:
//     Q = X W_q,  K = X W_k   becomes   T = X [W_q W_k],  Q = T(.., n),  K = T(.., n + N_q)
// Maps that follow each of them (a bias, an activation) are merged too, so that they remain the
// contraction's epilogue. Readers of a result read a slice of the merged one.
//
// source: Korch, ASPLOS'24, section 4 (transformations of the primitive graph)
#include "rewrite/dce.h"
#include "rewrite/readers.h"
#include "rewrite/rules.h"

#include <string.h>

enum { MAX_MEMBERS = 8, MAX_MERGED_SETS = 16, MAX_CONSTANTS = 16 };

// Corresponding tensors of the members, which one merged tensor concatenates.
typedef struct merged_set {
  int of[MAX_MEMBERS];
  const kiln_tensor *merged;
} merged_set;

typedef struct merge {
  kiln_ctx *cx;
  kiln_program *p;
  int n_tensors; // before this pass
  int n_old, at; // statements before this pass; index of the first member
  kiln_stmt **old;
  const int *n_readers; // [n_tensors]
  bool *taken;          // [n_old] already merged
  int axis;             // of the results: the axis of concatenation
  kiln_symbol var;      // the dim of that axis
  int n_members;
  kiln_stmt *members[MAX_MEMBERS];
  int64_t offsets[MAX_MEMBERS + 1]; // of the members' slices
  int n_merged_sets, n_constants;
  merged_set merged_sets[MAX_MERGED_SETS], constants[MAX_CONSTANTS];
  // Members being merged: members[use[0..n_used)]. |makes| is false in a dry run, which
  // concatenates no constants.
  int n_used, use[MAX_MEMBERS];
  bool makes;
} merge;

// --- concatenation of constants ---

// Concatenates |n| constants along |axis|.
static const kiln_tensor *concatenate(merge *m, const int *of, int n, int axis) {
  const kiln_tensor *first = m->p->tensors.data[of[0]];
  const size_t elem = (size_t)kiln_dtype_bytes(first->dtype);
  kiln_const c = {.dtype = first->dtype, .rank = first->rank};
  size_t outer = 1, inner = elem, at = 0;
  for (int k = 0; k < first->rank; k++) {
    c.shape[k] = kiln_expr_int_or(first->shape[k], -1);
    if (k != axis) *(k < axis ? &outer : &inner) *= (size_t)c.shape[k];
  }
  c.shape[axis] = 0;
  for (int j = 0; j < n; j++) {
    c.shape[axis] += kiln_expr_int_or(m->p->tensors.data[of[j]]->shape[axis], -1);
    c.bytes += m->p->tensors.data[of[j]]->bytes;
  }
  char *data = kiln_arena_alloc(&m->cx->perm, c.bytes + 1);
  for (size_t o = 0; o < outer; o++)
    for (int j = 0; j < n; j++) {
      const kiln_tensor *t = m->p->tensors.data[of[j]];
      const size_t bytes = (size_t)kiln_expr_int_or(t->shape[axis], -1) * inner;
      memcpy(data + at, (const char *)t->data + o * bytes, bytes);
      at += bytes;
    }
  c.data = data;
  return kiln_tensor_make_const(m->cx, m->p, kiln_symbol_text(m->cx, first->name), &c);
}

static const kiln_tensor *find_merged(const merge *m, const merged_set *in, int n,
                                      const kiln_expr *const *e) {
  for (int f = 0; f < n; f++) {
    bool all = true;
    for (int u = 0; u < m->n_used; u++) all &= in[f].of[m->use[u]] == e[u]->u.tensor;
    if (all) return in[f].merged;
  }
  return NULL;
}

static const kiln_tensor *merged_constant(merge *m, const kiln_expr *const *e, int axis) {
  const kiln_tensor *known = find_merged(m, m->constants, m->n_constants, e);
  if (known || m->n_constants == MAX_CONSTANTS) return known;
  merged_set *f = &m->constants[m->n_constants++];
  for (int j = 0; j < m->n_members; j++) f->of[j] = e[j]->u.tensor;
  f->merged = concatenate(m, f->of, m->n_members, axis);
  return f->merged;
}

// Constants whose axis |k| is indexed by the merged dim.
static const kiln_expr *join_constants(merge *m, const kiln_expr *const *e, int k) {
  const kiln_tensor *first = m->p->tensors.data[e[0]->u.tensor];
  for (int u = 0; u < m->n_used; u++) {
    const kiln_tensor *t = m->p->tensors.data[e[u]->u.tensor];
    const int j = m->use[u];
    if (t->role != KILN_CONST || !t->data || t->dtype != first->dtype || t->rank != first->rank ||
        t->id >= m->n_tensors || m->n_readers[t->id] != 1)
      return NULL;
    for (int i = 0; i < t->rank; i++)
      if (i == k ? kiln_expr_int_or(t->shape[i], -1) != m->offsets[j + 1] - m->offsets[j]
                 : t->shape[i] != first->shape[i])
        return NULL;
  }
  if (!m->makes) return e[0];
  const kiln_tensor *t = merged_constant(m, e, k);
  return t ? kiln_tensor_load(m->cx, t, e[0]->args) : NULL;
}

// --- merged expressions ---

// The axis at which all loads use the merged dim; -1: none does; -2: the loads differ otherwise.
static int find_axis(const merge *m, const kiln_expr *const *e) {
  int found = -1;
  for (int k = 0; k < e[0]->n_args; k++) {
    const kiln_expr *at = e[0]->args[k];
    for (int u = 1; u < m->n_used; u++)
      if (e[u]->args[k] != at) return -2;
    if (!kiln_expr_uses(at, m->var)) continue;
    if (at->kind != KILN_EXPR_VAR || found >= 0) return -2;
    found = k;
  }
  return found;
}

// Whether |t| is computed before the first member, so that the merged statement may read it.
static bool is_before(const merge *m, const kiln_tensor *t) {
  if (t->role == KILN_INPUT || t->role == KILN_CONST) return true;
  for (int i = 0; i < m->at; i++)
    if (m->old[i]->out == t->id) return true;
  return t->id >= m->n_tensors;
}

static const kiln_expr *join_loads(merge *m, const kiln_expr *const *e) {
  for (int u = 1; u < m->n_used; u++)
    if (e[u]->n_args != e[0]->n_args) return NULL;
  const int axis = find_axis(m, e);
  const kiln_tensor *merged = find_merged(m, m->merged_sets, m->n_merged_sets, e);
  if (axis == -2) return NULL;
  if (merged) return axis == m->axis ? kiln_tensor_load(m->cx, merged, e[0]->args) : NULL;
  if (axis >= 0) return join_constants(m, e, axis);
  for (int u = 1; u < m->n_used; u++)
    if (e[u] != e[0]) return NULL;
  return is_before(m, m->p->tensors.data[e[0]->u.tensor]) ? e[0] : NULL;
}

// The members' expressions as one; NULL if they differ in more than their constants and members'
// tensors.
static const kiln_expr *join(merge *m, const kiln_expr *const *e) {
  const kiln_expr *args[KILN_MAX_RANK], *parts[MAX_MEMBERS];
  for (int u = 1; u < m->n_used; u++)
    if (e[u]->kind != e[0]->kind || e[u]->dtype != e[0]->dtype || e[u]->n_args != e[0]->n_args)
      return NULL;
  if (e[0]->kind == KILN_EXPR_LOAD) return join_loads(m, e);
  for (int u = 1; u < m->n_used && e[0]->n_args == 0; u++)
    if (e[u] != e[0]) return NULL;
  if (e[0]->n_args == 0) return kiln_expr_uses(e[0], m->var) ? NULL : e[0];
  for (int k = 0; k < e[0]->n_args; k++) {
    for (int u = 0; u < m->n_used; u++) parts[u] = e[u]->args[k];
    args[k] = join(m, parts);
    if (!args[k]) return NULL;
  }
  return kiln_expr_with_args(m->cx, e[0], args);
}

// --- statements ---

// Whether |a| and |b| have the same dims, except for the merged one, which has the extent of member
// |j|.
static bool has_same_dims(const merge *m, const kiln_stmt *a, const kiln_stmt *b, int j) {
  if (a->n_space != b->n_space || a->n_reduce != b->n_reduce || a->combiner != b->combiner ||
      b->guard || !kiln_stmt_is_plain(m->cx, b) || a->n_space <= m->axis ||
      a->dims[m->axis].name != m->var)
    return false;
  for (int d = 0; d < a->n_space + a->n_reduce; d++)
    if (a->dims[d].name != b->dims[d].name ||
        (d == m->axis ? kiln_expr_int_or(b->dims[d].extent, -1) != m->offsets[j + 1] - m->offsets[j]
                      : a->dims[d].extent != b->dims[d].extent))
      return false;
  return !kiln_tensor_is_output(m->p, b->out);
}

// The merged statement of |s[0..n_members)|.
static bool make(merge *m, kiln_stmt *const *s) {
  const kiln_expr *extents[2 * KILN_MAX_RANK], *bodies[MAX_MEMBERS], *vars[2 * KILN_MAX_RANK];
  kiln_symbol names[2 * KILN_MAX_RANK];
  const int n_dims = s[0]->n_space + s[0]->n_reduce;
  kiln_symbol origin = s[0]->origin;
  m->n_used = m->n_members;
  m->makes = true;
  for (int j = 0; j < m->n_members; j++) {
    m->use[j] = j;
    bodies[j] = s[j]->body;
    if (j > 0 && origin && s[j]->origin)
      origin = kiln_symbol_printf(m->cx, "%s+%s", kiln_symbol_text(m->cx, origin),
                                  kiln_symbol_text(m->cx, s[j]->origin));
  }
  const kiln_expr *body = join(m, bodies);
  if (!body) return false;
  for (int d = 0; d < n_dims; d++)
    extents[d] = d == m->axis ? kiln_int(m->cx, m->offsets[m->n_members]) : s[0]->dims[d].extent;
  const char *name = kiln_symbol_text(m->cx, m->p->tensors.data[s[0]->out]->name);
  kiln_stmt *one = kiln_stmt_make(m->cx, m->p, name, m->p->tensors.data[s[0]->out]->dtype,
                                  s[0]->n_space, s[0]->n_reduce, extents);
  for (int d = 0; d < n_dims; d++) {
    names[d] = s[0]->dims[d].name;
    vars[d] = kiln_stmt_var(m->cx, one, d);
  }
  one->body = kiln_expr_substitute(m->cx, body, n_dims, names, vars);
  one->combiner = s[0]->combiner;
  one->origin = origin;
  merged_set *f = &m->merged_sets[m->n_merged_sets++];
  f->merged = m->p->tensors.data[one->out];
  for (int j = 0; j < m->n_members; j++) f->of[j] = s[j]->out;
  return true;
}

// Whether |b|, of member |j|, corresponds to |a| of the first member.
static bool can_join(merge *m, const kiln_stmt *a, const kiln_stmt *b, int j) {
  const kiln_expr *const bodies[] = {a->body, b->body};
  if (m->p->tensors.data[a->out]->dtype != m->p->tensors.data[b->out]->dtype ||
      a->body->n_tree > KILN_LONG_TREE || !has_same_dims(m, a, b, j))
    return false;
  m->n_used = 2;
  m->use[0] = 0;
  m->use[1] = j;
  m->makes = false;
  return join(m, bodies) != NULL;
}

static void find_family_load(const kiln_expr *e, void *argument) {
  merge *m = argument;
  if (e->kind != KILN_EXPR_LOAD) return;
  for (int f = 0; f < m->n_merged_sets; f++)
    if (m->merged_sets[f].of[m->use[0]] == e->u.tensor) m->makes = true;
}

static bool reads_member(merge *m, const kiln_stmt *s, int j) {
  m->use[0] = j;
  m->makes = false;
  kiln_expr_visit(m->cx, s->body, find_family_load, m);
  return m->makes;
}

// The map of member |j| that corresponds to |first|; -1: none.
static int find_alike(merge *m, const kiln_stmt *first, int j) {
  for (int i = m->at; i < m->n_old; i++)
    if (!m->taken[i] && m->old[i] != first && m->old[i]->n_reduce == 0 &&
        reads_member(m, m->old[i], j) && can_join(m, first, m->old[i], j))
      return i;
  return -1;
}

static void merge_map(merge *m, int i) {
  kiln_stmt *s[MAX_MEMBERS] = {m->old[i]};
  int found[MAX_MEMBERS] = {i};
  if (m->n_merged_sets == MAX_MERGED_SETS || !has_same_dims(m, s[0], s[0], 0)) return;
  for (int j = 1; j < m->n_members; j++) {
    found[j] = find_alike(m, s[0], j);
    if (found[j] < 0) return;
    s[j] = m->old[found[j]];
  }
  if (!make(m, s)) return;
  for (int j = 0; j < m->n_members; j++) m->taken[found[j]] = true;
}

// --- contractions ---

// Whether |s| is a contraction of a tensor with a constant, which alone determines one dim of the
// result.
static bool is_candidate(merge *m, const kiln_stmt *s, int *out_axis) {
  *out_axis = -1;
  if (s->combiner != KILN_COMBINE_SUM || s->guard || s->n_reduce == 0 ||
      !kiln_stmt_is_plain(m->cx, s) || s->n_space + s->n_reduce > 2 * KILN_MAX_RANK ||
      s->body->kind != KILN_EXPR_MUL || kiln_tensor_is_output(m->p, s->out))
    return false;
  const kiln_expr *const factors[] = {kiln_expr_uncast(s->body->args[0]),
                                      kiln_expr_uncast(s->body->args[1])};
  if (factors[0]->kind != KILN_EXPR_LOAD || factors[1]->kind != KILN_EXPR_LOAD) return false;
  const bool first = m->p->tensors.data[factors[0]->u.tensor]->role == KILN_CONST;
  const kiln_expr *w = factors[!first], *x = factors[first];
  if (m->p->tensors.data[w->u.tensor]->role != KILN_CONST ||
      m->p->tensors.data[x->u.tensor]->role == KILN_CONST)
    return false;
  for (int d = 0; d < s->n_space; d++) {
    if (!kiln_expr_uses(w, s->dims[d].name)) continue;
    if (*out_axis >= 0 || kiln_expr_uses(x, s->dims[d].name)) return false;
    *out_axis = d;
  }
  return *out_axis >= 0;
}

static void find_members(merge *m, int at) {
  kiln_stmt *s = m->old[at];
  int axis = -1;
  m->at = at;
  m->n_members = m->n_merged_sets = m->n_constants = 0;
  if (!is_candidate(m, s, &m->axis)) return;
  m->var = s->dims[m->axis].name;
  m->members[m->n_members++] = s;
  m->offsets[0] = 0;
  m->offsets[1] = kiln_expr_int_or(s->dims[m->axis].extent, -1);
  for (int i = at + 1; i < m->n_old && m->n_members < MAX_MEMBERS; i++) {
    const int j = m->n_members;
    if (m->taken[i] || !is_candidate(m, m->old[i], &axis) || axis != m->axis) continue;
    m->offsets[j + 1] = m->offsets[j] + kiln_expr_int_or(m->old[i]->dims[axis].extent, -1);
    if (!can_join(m, s, m->old[i], j)) continue;
    m->members[m->n_members++] = m->old[i];
  }
}

// --- readers ---

static const kiln_expr *read_part(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const merge *m = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  const kiln_tensor *t = NULL;
  int64_t offset = 0;
  if (!kiln_expr_has_load(e)) return e;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int f = 0; f < m->n_merged_sets; f++)
    for (int j = 0; j < m->n_members; j++)
      if (m->merged_sets[f].of[j] == e->u.tensor) {
        t = m->merged_sets[f].merged;
        offset = m->offsets[j];
      }
  for (int k = 0; k < e->n_args; k++) {
    index[k] = kiln_expr_replace(cx, e->args[k], read_part, argument);
    if (t && k == m->axis) index[k] = kiln_add(cx, index[k], kiln_int(cx, offset));
  }
  return t ? kiln_tensor_load(cx, t, index)
           : kiln_load(cx, e->u.tensor, e->dtype, e->n_args, index);
}

static const kiln_expr *redirected(merge *m, const kiln_expr *e) {
  return e ? kiln_expr_replace(m->cx, e, read_part, m) : NULL;
}

static void redirect(merge *m) {
  for (int i = m->at; i < m->n_old; i++) {
    kiln_stmt *s = m->old[i];
    if (m->taken[i]) continue;
    s->body = redirected(m, s->body);
    s->guard = redirected(m, s->guard);
    s->init = redirected(m, s->init);
    for (int k = 0; k < m->p->tensors.data[s->out]->rank; k++)
      s->index[k] = redirected(m, s->index[k]);
  }
}

static bool merge_group(merge *m) {
  if (!make(m, m->members)) return false;
  for (int i = m->at; i < m->n_old; i++)
    for (int j = 0; j < m->n_members; j++) m->taken[i] |= m->old[i] == m->members[j];
  for (int i = m->at; i < m->n_old; i++)
    if (!m->taken[i] && m->old[i]->n_reduce == 0 && reads_member(m, m->old[i], 0)) merge_map(m, i);
  redirect(m);
  return true;
}

int kiln_rule_merge(kiln_ctx *cx, kiln_program *p, kiln_site *site) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const int n = p->stmts.n;
  merge m = {.cx = cx,
             .p = p,
             .n_tensors = p->tensors.n,
             .n_old = n,
             .old = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, n),
             .n_readers = kiln_readers_count(cx, p),
             .taken = KILN_NEW_ARRAY(&cx->scratch, bool, n)};
  int n_merged = 0;
  for (int i = 0; i < n; i++) m.old[i] = p->stmts.data[i];
  p->stmts.n = 0;
  for (int i = 0; i < n; i++) {
    if (!m.taken[i]) find_members(&m, i);
    if (!m.taken[i] && m.n_members > 1 && kiln_site_enter(cx, site, p, m.old[i]) && merge_group(&m))
      n_merged += m.n_members - 1;
    if (!m.taken[i]) KILN_VEC_PUSH(&cx->perm, &p->stmts, m.old[i]);
  }
  kiln_stmts_renumber(p);
  kiln_arena_rewind(&cx->scratch, mark);
  if (n_merged > 0) kiln_program_dce(cx, p);
  return n_merged;
}

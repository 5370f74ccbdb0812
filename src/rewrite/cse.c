// Common subexpression elimination: duplicate statements, copies, and constants with equal elements
// are replaced by the first.
//
// Statements are equal if they differ in names of dims only, after their operands were unified. An
// output stays, because it has storage of its own.
// cost: a hash of every statement; of a constant, that is compared with those of its shape, a few
//       elements
#include "rewrite/dce.h"
#include "rewrite/rules.h"

#include <string.h>

typedef struct sharing {
  kiln_ctx *cx;
  kiln_program *p;
  int *first;    // [n_tensors] the tensor that replaces it
  kiln_map seen; // hash -> last tensor with it
  int *next;     // [n_tensors] previous tensor with the same hash; -1: none
  int n;
} sharing;

static const kiln_expr *read_first(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  sharing *s = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  if (!kiln_expr_has_load(e)) return e;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int k = 0; k < e->n_args; k++) index[k] = kiln_expr_replace(cx, e->args[k], read_first, s);
  return kiln_load(cx, s->first[e->u.tensor], e->dtype, e->n_args, index);
}

static const kiln_expr *redirected(sharing *s, const kiln_expr *e) {
  return e && kiln_expr_has_load(e) ? kiln_expr_replace(s->cx, e, read_first, s) : e;
}

static void redirect(sharing *s, kiln_stmt *st) {
  st->body = redirected(s, st->body);
  st->guard = redirected(s, st->guard);
  st->init = redirected(s, st->init);
  for (int k = 0; k < s->p->tensors.data[st->out]->rank; k++)
    st->index[k] = redirected(s, st->index[k]);
}

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 29;
}

static uint64_t hash_type(const kiln_tensor *t) {
  uint64_t hash = mix((uint64_t)t->dtype, (uint64_t)t->rank);
  for (int k = 0; k < t->rank; k++) hash = mix(hash, t->shape[k]->id);
  return hash;
}

static bool is_same_type(const kiln_tensor *a, const kiln_tensor *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (int k = 0; k < a->rank; k++)
    if (a->shape[k] != b->shape[k]) return false;
  return true;
}

// The first tensor with this hash that |is_same| as |t|; otherwise adds |t|.
static int find_first(sharing *s, const kiln_tensor *t, uint64_t hash,
                      bool (*is_same)(sharing *s, const kiln_tensor *a, const kiln_tensor *b)) {
  const uint64_t *found = kiln_map_find(&s->seen, hash);
  for (int other = found ? (int)*found : -1; other >= 0; other = s->next[other])
    if (is_same(s, s->p->tensors.data[other], t)) return other;
  s->next[t->id] = found ? (int)*found : -1;
  kiln_map_put(&s->seen, hash, (uint64_t)t->id);
  return t->id;
}

// --- constants ---

static uint64_t hash_constant(const kiln_tensor *t) {
  uint64_t hash = mix(hash_type(t), t->bytes), word = 0;
  enum { N_WORDS = 4 };
  for (size_t i = 0; t->bytes >= sizeof word && i < N_WORDS; i++) {
    memcpy(&word, (const char *)t->data + (t->bytes - sizeof word) * i / (N_WORDS - 1),
           sizeof word);
    hash = mix(hash, word);
  }
  return hash;
}

static bool is_same_constant(sharing *s, const kiln_tensor *a, const kiln_tensor *b) {
  (void)s;
  return a->role == KILN_CONST && is_same_type(a, b) && a->bytes == b->bytes &&
         (a->data == b->data || memcmp(a->data, b->data, a->bytes) == 0);
}

static void share_constants(sharing *s) {
  for (int t = 0; t < s->p->tensors.n; t++) {
    const kiln_tensor *x = s->p->tensors.data[t];
    s->first[t] = t;
    if (x->role == KILN_CONST && x->data && !kiln_tensor_is_output(s->p, t))
      s->first[t] = find_first(s, x, hash_constant(x), is_same_constant);
    s->n += s->first[t] != t;
  }
}

// --- statements ---

// |e| of statement |of| with its dims renamed to those of |as|.
static const kiln_expr *renamed(sharing *s, const kiln_stmt *of, const kiln_stmt *as,
                                const kiln_expr *e) {
  const int n = of->n_space + of->n_reduce;
  kiln_symbol names[2 * KILN_MAX_RANK];
  const kiln_expr *vars[2 * KILN_MAX_RANK];
  bool differ = false;
  for (int d = 0; d < n; d++) {
    names[d] = of->dims[d].name;
    vars[d] = kiln_stmt_var(s->cx, as, d);
    differ |= names[d] != as->dims[d].name;
  }
  return e && differ ? kiln_expr_substitute(s->cx, e, n, names, vars) : e;
}

static bool is_same_stmt(sharing *s, const kiln_tensor *a, const kiln_tensor *b) {
  if (a->def < 0 || !is_same_type(a, b)) return false;
  const kiln_stmt *x = s->p->stmts.data[a->def], *y = s->p->stmts.data[b->def];
  if (x->n_space != y->n_space || x->n_reduce != y->n_reduce || x->combiner != y->combiner ||
      x->n_space + x->n_reduce > 2 * KILN_MAX_RANK)
    return false;
  for (int d = 0; d < x->n_space + x->n_reduce; d++)
    if (x->dims[d].extent != y->dims[d].extent) return false;
  for (int k = 0; k < a->rank; k++)
    if (x->index[k] != renamed(s, y, x, y->index[k])) return false;
  return x->body == renamed(s, y, x, y->body) && x->guard == renamed(s, y, x, y->guard) &&
         x->init == y->init; // over the tensor's axes instead of dims
}

static void hash_node(const kiln_expr *e, void *argument) {
  uint64_t *hash = argument;
  if (e->kind == KILN_EXPR_VAR) return; // names of dims do not count
  *hash += mix((uint64_t)e->kind, e->kind == KILN_EXPR_LOAD ? (uint64_t)e->u.tensor
                                  : e->n_args == 0          ? e->id
                                                            : 0);
}

static uint64_t hash_stmt(sharing *s, const kiln_stmt *st) {
  uint64_t nodes = 0;
  kiln_expr_visit(s->cx, st->body, hash_node, &nodes);
  return mix(mix(hash_type(s->p->tensors.data[st->out]), (uint64_t)st->combiner), nodes);
}

// The tensor of which |st| is a copy; -1: not a copy.
static int copied_by(const sharing *s, const kiln_stmt *st) {
  const kiln_tensor *t = s->p->tensors.data[st->out];
  const kiln_expr *load = st->body;
  if (load->kind != KILN_EXPR_LOAD || st->n_reduce > 0 || st->combiner != KILN_COMBINE_NONE ||
      st->guard || !kiln_stmt_is_plain(s->cx, st) ||
      !is_same_type(t, s->p->tensors.data[load->u.tensor]))
    return -1;
  for (int k = 0; k < load->n_args; k++) {
    int64_t extent = 0;
    const bool is_one = kiln_expr_is_int(st->dims[k].extent, &extent) && extent == 1;
    if (load->args[k] != kiln_stmt_var(s->cx, st, k) &&
        !(is_one && kiln_expr_is_zero(load->args[k])))
      return -1;
  }
  return load->u.tensor;
}

static void share_statements(sharing *s) {
  for (int i = 0; i < s->p->stmts.n; i++) {
    kiln_stmt *st = s->p->stmts.data[i];
    const kiln_tensor *t = s->p->tensors.data[st->out];
    redirect(s, st);
    const int copied = copied_by(s, st);
    const int first = copied >= 0 ? copied : find_first(s, t, hash_stmt(s, st), is_same_stmt);
    if (kiln_tensor_is_output(s->p, t->id)) continue;
    s->first[t->id] = first;
    s->n += s->first[t->id] != t->id;
  }
}

int kiln_rule_cse(kiln_ctx *cx, kiln_program *p) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  sharing s = {.cx = cx,
               .p = p,
               .first = KILN_NEW_ARRAY(&cx->scratch, int, p->tensors.n),
               .next = KILN_NEW_ARRAY(&cx->scratch, int, p->tensors.n)};
  kiln_map_init(&s.seen, &cx->scratch);
  share_constants(&s);
  share_statements(&s);
  kiln_arena_rewind(&cx->scratch, mark);
  if (s.n > 0) kiln_program_dce(cx, p);
  return s.n;
}

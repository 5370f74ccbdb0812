// Moves contractions over channels before upsampling: both are linear, one over channels, the other
// over space, so they commute, and the contraction gets fewer elements. If the upsampled tensor is
// a part of a concatenation of channels, the contraction is first split into one for each part:
//     C = W [up(X); Y]  becomes  C = up(W_x X) + W_y Y
// Sums are reordered, so results differ by rounding. Applied if at most half of the elements remain
// and the skipped tensors have no other readers.
//
// source: Korch, ASPLOS'24, section 4 (transformations of the primitive graph)
#include "rewrite/dce.h"
#include "rewrite/product.h"
#include "rewrite/readers.h"
#include "rewrite/rules.h"

enum { CHANNELS = 1, MAX_PARTS = 8, MAX_WHOLE = 2, MAX_CHAIN = 4 };

// Channels [lo, hi) of the contraction's operand are those of |tensor|.
typedef struct part {
  const kiln_tensor *tensor;
  int64_t lo, hi;
  int n_chain; // resampling statements after |source|, the last one first
  const kiln_stmt *chain[MAX_CHAIN];
  const kiln_tensor *source;
} part;

typedef struct commute {
  kiln_ctx *cx;
  kiln_program *p;
  int n_tensors;  // before this pass
  int *n_readers; // [n_tensors] statements that load each
  kiln_stmt *s;   // the contraction
  const kiln_expr *x, *w;
  kiln_symbol channel; // its reduction dim
  int n_parts, n_resampled;
  part parts[MAX_PARTS];
} commute;

static bool is_map(const kiln_ctx *cx, const kiln_stmt *s) {
  return s->n_reduce == 0 && s->combiner == KILN_COMBINE_NONE && !s->guard &&
         kiln_stmt_is_plain(cx, s);
}

// The statement that computes |t| if a single statement reads it; otherwise NULL.
static const kiln_stmt *sole_producer(const commute *c, const kiln_tensor *t) {
  if (t->role != KILN_TEMP || t->id >= c->n_tensors || c->n_readers[t->id] != 1) return NULL;
  if (kiln_tensor_is_output(c->p, t->id)) return NULL;
  for (int i = 0; i < c->p->stmts.n; i++) // |def| refers to statements before this pass
    if (c->p->stmts.data[i]->out == t->id)
      return is_map(c->cx, c->p->stmts.data[i]) ? c->p->stmts.data[i] : NULL;
  return NULL;
}

// --- linearity ---

typedef struct linear {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_stmt *s;
  int source; // the resampled tensor; -1 before its first load
} linear;

static bool uses_channel(const linear *l, const kiln_expr *e) {
  return kiln_expr_uses(e, l->s->dims[CHANNELS].name);
}

// Whether |e| is constant and independent of the channel.
static bool is_factor(const linear *l, const kiln_expr *e) {
  return kiln_reads_constants(l->cx, l->p, e) && !uses_channel(l, e);
}

static bool takes_source(linear *l, const kiln_expr *e) {
  if (e->n_args != l->s->n_space || (l->source >= 0 && l->source != e->u.tensor)) return false;
  for (int k = 0; k < e->n_args; k++) {
    const bool is_own =
        e->args[k]->kind == KILN_EXPR_VAR && e->args[k]->u.sym == l->s->dims[k].name;
    const bool is_first =
        k == 0 && kiln_expr_is_zero(e->args[k]) && kiln_expr_int_or(l->s->dims[0].extent, -1) == 1;
    if (k <= CHANNELS ? !is_own && !is_first : !is_factor(l, e->args[k])) return false;
  }
  l->source = e->u.tensor;
  return true;
}

// Whether |e| is a linear combination of loads of one tensor at the result's channel, with factors
// independent of the channel.
static bool is_linear(linear *l, const kiln_expr *e) {
  if (e->n_tree > KILN_LONG_TREE) return false;
  if (e->kind == KILN_EXPR_LOAD) return uses_channel(l, e) && takes_source(l, e);
  if (e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB)
    return is_linear(l, e->args[0]) && is_linear(l, e->args[1]);
  if (e->kind != KILN_EXPR_MUL) return false;
  const bool is_left = uses_channel(l, e->args[0]);
  return is_factor(l, e->args[is_left]) && is_linear(l, e->args[!is_left]);
}

// Follows the part through resampling statements to its source.
static void find_chain(const commute *c, part *m) {
  m->source = m->tensor;
  while (m->n_chain < MAX_CHAIN) {
    const kiln_stmt *s = sole_producer(c, m->source);
    linear l = {c->cx, c->p, s, -1};
    if (!s || s->n_space != m->tensor->rank || !is_linear(&l, s->body)) return;
    m->chain[m->n_chain++] = s;
    m->source = c->p->tensors.data[l.source];
  }
}

// --- the contraction and its parts ---

// Whether |load| is indexed by the dims of |s|, with |channel| + |offset| for the channel; axes of
// extent 1 are indexed by 0.
static bool is_pointwise(const kiln_stmt *s, const kiln_expr *load, kiln_symbol channel,
                         int64_t *out_offset) {
  if (load->n_args != s->n_space) return false;
  for (int k = 0; k < load->n_args; k++) {
    int64_t one = 0;
    const kiln_symbol own = k == CHANNELS ? channel : s->dims[k].name;
    if (k != CHANNELS && kiln_expr_is_zero(load->args[k]) &&
        kiln_expr_int_or(s->dims[k].extent, -1) == 1)
      continue;
    if (k == CHANNELS ? !kiln_expr_affine(load->args[k], 1, &own, &one, out_offset) || one != 1
                      : load->args[k]->kind != KILN_EXPR_VAR || load->args[k]->u.sym != own)
      return false;
  }
  return true;
}

// Splits the concatenation |e|, for channels [lo, hi), into parts; false if it is not one.
static bool find_parts(commute *c, const kiln_stmt *s, const kiln_expr *e, int64_t lo, int64_t hi) {
  int64_t at = 0;
  const kiln_symbol channel = s->dims[CHANNELS].name;
  if (e->kind == KILN_EXPR_SELECT) {
    const kiln_expr *cut = e->args[0];
    if (cut->kind != KILN_EXPR_LT || cut->args[0] != kiln_var(c->cx, channel) ||
        !kiln_expr_is_int(cut->args[1], &at) || at <= lo || at >= hi)
      return false;
    return find_parts(c, s, e->args[1], lo, at) && find_parts(c, s, e->args[2], at, hi);
  }
  if (e->kind != KILN_EXPR_LOAD || c->n_parts == MAX_PARTS) return false;
  const kiln_tensor *t = c->p->tensors.data[e->u.tensor];
  int64_t channels = 0;
  if (!is_pointwise(s, e, channel, &at) || at != -lo || t->rank != s->n_space ||
      !kiln_expr_is_int(t->shape[CHANNELS], &channels) || channels != hi - lo)
    return false;
  c->parts[c->n_parts++] = (part){.tensor = t, .lo = lo, .hi = hi};
  return true;
}

static const kiln_expr *without_units(kiln_ctx *cx, const kiln_stmt *s, const kiln_expr *e) {
  for (int d = s->n_space; d < s->n_space + s->n_reduce; d++) {
    const kiln_expr *zero = kiln_int(cx, 0);
    if (kiln_expr_int_or(s->dims[d].extent, -1) == 1)
      e = kiln_expr_substitute(cx, e, 1, &s->dims[d].name, &zero);
  }
  return e;
}

// Whether |s| is a contraction of data with constant weights over channels alone (a 1x1
// convolution).
static bool is_contraction(commute *c, kiln_stmt *s) {
  int64_t offset = 0;
  c->channel = 0;
  if (s->combiner != KILN_COMBINE_SUM || s->guard || s->n_space < 3 ||
      !kiln_stmt_is_plain(c->cx, s))
    return false;
  for (int d = s->n_space; d < s->n_space + s->n_reduce; d++) {
    if (kiln_expr_int_or(s->dims[d].extent, -1) == 1) continue;
    if (c->channel) return false;
    c->channel = s->dims[d].name;
  }
  const kiln_expr *body = without_units(c->cx, s, s->body);
  if (!c->channel || body->kind != KILN_EXPR_MUL || body->args[0]->kind != KILN_EXPR_LOAD ||
      body->args[1]->kind != KILN_EXPR_LOAD)
    return false;
  const bool first = c->p->tensors.data[body->args[0]->u.tensor]->role == KILN_CONST;
  c->s = s;
  c->w = body->args[!first];
  c->x = body->args[first];
  if (c->p->tensors.data[c->w->u.tensor]->role != KILN_CONST) return false;
  for (int k = 0; k < s->n_space; k++)
    if (k != CHANNELS && kiln_expr_uses(c->w, s->dims[k].name)) return false;
  return is_pointwise(s, c->x, c->channel, &offset) && offset == 0;
}

// Fills the parts; gives whether moving the contraction pays.
static bool find_gain(commute *c) {
  const kiln_tensor *x = c->p->tensors.data[c->x->u.tensor];
  const kiln_stmt *s = sole_producer(c, x);
  int64_t channels = 0;
  if (!s || !kiln_expr_is_int(x->shape[CHANNELS], &channels)) return false;
  c->n_parts = c->n_resampled = 0;
  if (s->body->kind != KILN_EXPR_SELECT || !find_parts(c, s, s->body, 0, channels)) {
    c->n_parts = 1;
    c->parts[0] = (part){.tensor = x, .hi = channels};
  }
  for (int i = 0; i < c->n_parts; i++) {
    part *m = &c->parts[i];
    find_chain(c, m);
    if (kiln_tensor_elems(m->source) > kiln_tensor_elems(m->tensor) / 2) m->n_chain = 0;
    c->n_resampled += m->n_chain > 0;
  }
  return c->n_resampled > 0 && c->n_parts - c->n_resampled <= MAX_WHOLE;
}

// --- the new statements ---

static const char *name_of(const commute *c, int tensor) {
  return kiln_symbol_text(c->cx, c->p->tensors.data[tensor]->name);
}

// The contraction over the channels of one part, applied to |from|.
static const kiln_tensor *contract(commute *c, const part *m, const kiln_tensor *from) {
  const kiln_expr *extents[KILN_MAX_RANK], *index[KILN_MAX_RANK];
  for (int k = 0; k < from->rank; k++)
    extents[k] = k == CHANNELS ? c->s->dims[k].extent : from->shape[k];
  extents[from->rank] = kiln_int(c->cx, m->hi - m->lo);
  kiln_stmt *s =
      kiln_stmt_make(c->cx, c->p, name_of(c, c->s->out), c->x->dtype, from->rank, 1, extents);
  const kiln_expr *channel = kiln_stmt_var(c->cx, s, from->rank);
  for (int k = 0; k < from->rank; k++)
    index[k] = k == CHANNELS ? channel : kiln_stmt_var(c->cx, s, k);
  const kiln_symbol vars[] = {c->channel, c->s->dims[CHANNELS].name};
  const kiln_expr *const values[] = {kiln_add(c->cx, channel, kiln_int(c->cx, m->lo)),
                                     kiln_stmt_var(c->cx, s, CHANNELS)};
  s->combiner = KILN_COMBINE_SUM;
  s->body = kiln_binary(c->cx, KILN_EXPR_MUL, kiln_tensor_load(c->cx, from, index),
                        kiln_expr_substitute(c->cx, c->w, 2, vars, values));
  s->origin = c->s->origin;
  return c->p->tensors.data[s->out];
}

typedef struct redirect {
  int from;
  const kiln_tensor *to;
} redirect;

static const kiln_expr *load_other(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const redirect *r = argument;
  return e->kind == KILN_EXPR_LOAD && e->u.tensor == r->from ? kiln_tensor_load(cx, r->to, e->args)
                                                             : NULL;
}

// The resampling statement |of| applied to |from| instead of |source|, with the new channels.
static const kiln_tensor *resample(commute *c, const kiln_stmt *of, int source,
                                   const kiln_tensor *from) {
  const kiln_expr *extents[KILN_MAX_RANK], *values[KILN_MAX_RANK];
  kiln_symbol vars[KILN_MAX_RANK];
  for (int k = 0; k < of->n_space; k++)
    extents[k] = k == CHANNELS ? from->shape[k] : of->dims[k].extent;
  kiln_stmt *s =
      kiln_stmt_make(c->cx, c->p, name_of(c, of->out), from->dtype, of->n_space, 0, extents);
  for (int k = 0; k < of->n_space; k++) {
    vars[k] = of->dims[k].name;
    values[k] = kiln_stmt_var(c->cx, s, k);
  }
  redirect r = {source, from};
  s->body = kiln_expr_substitute(c->cx, kiln_expr_replace(c->cx, of->body, load_other, &r),
                                 of->n_space, vars, values);
  s->origin = of->origin;
  return c->p->tensors.data[s->out];
}

// The part's term of the result.
static const kiln_tensor *make_bucket(commute *c, const part *m) {
  const kiln_tensor *t = contract(c, m, m->n_chain ? m->source : m->tensor);
  int source = m->source->id;
  for (int i = m->n_chain - 1; i >= 0; i--) {
    t = resample(c, m->chain[i], source, t);
    source = m->chain[i]->out;
  }
  return t;
}

// The contraction becomes the sum of the terms.
static void rewrite(commute *c) {
  kiln_stmt *s = c->s;
  const kiln_expr *index[KILN_MAX_RANK], *sum = NULL;
  for (int k = 0; k < s->n_space; k++) index[k] = kiln_stmt_var(c->cx, s, k);
  for (int i = 0; i < c->n_parts; i++) {
    const kiln_expr *one = kiln_tensor_load(c->cx, make_bucket(c, &c->parts[i]), index);
    sum = sum ? kiln_add(c->cx, sum, one) : one;
  }
  s->n_reduce = 0;
  s->combiner = KILN_COMBINE_NONE;
  s->body = sum;
}

int kiln_rule_resample(kiln_ctx *cx, kiln_program *p) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const int n = p->stmts.n;
  kiln_stmt **old = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, n);
  commute c = {.cx = cx, .p = p, .n_tensors = p->tensors.n, .n_readers = kiln_readers_count(cx, p)};
  int n_moved = 0;
  for (int i = 0; i < n; i++) old[i] = p->stmts.data[i];
  p->stmts.n = 0;
  for (int i = 0; i < n; i++) {
    if (is_contraction(&c, old[i]) && find_gain(&c)) {
      rewrite(&c);
      n_moved++;
    }
    KILN_VEC_PUSH(&cx->perm, &p->stmts, old[i]);
  }
  kiln_stmts_renumber(p);
  kiln_arena_rewind(&cx->scratch, mark);
  if (n_moved > 0) kiln_program_dce(cx, p);
  return n_moved;
}

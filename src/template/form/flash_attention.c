// Brings flash attention into its canonical form.
#include "template/form/flash_attention.h"

#include "support/integer.h"

#include <float.h>
#include <math.h>

enum {
  TILE = 16,        // rows, keys, depth and values are padded to multiples of it
  LONG = 64,        // rows or keys of more than this are padded to multiples of it
  LEAST_SPAN = 256, // keys of a split
  MAX_SPLITS = 32,
  RESIDENT = 3,     // blocks of few rows that a multiprocessor runs at the same time
  MAX_DEPTH = 128,  // of Q and K: a warp holds it in registers
  MAX_VALUES = 128, //
  CAPABILITY = 80
};

// A program while it is brought into the form.
typedef struct making {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_attention_form f;
  const kiln_stmt *y;
  kiln_symbol row, value; // the dims m and v of y; row 0: it has none
  // Grouped queries, of one query a head: |group| heads, dim |heads| of y, share keys and values,
  // and are the rows. 0: they are not.
  kiln_symbol heads;
  int64_t group;
  kiln_symbol m, n, k, v, q;
  // Split keys: the dim |split|, the last batch dim but of y, of |splits| ranges of |keys| keys.
  kiln_symbol split;
  int64_t splits;
  int64_t rows, keys, depth, values; // padded
  kiln_dtype half;
  int n_batch;
  kiln_dim batch[KILN_MAX_RANK]; // y's other dims
  const kiln_stmt *scores;       // X
  double scale;               // the scores' factor that Z leaves out: it is in the exponent's base
  const kiln_expr *const *at; // the index at which the weights read the old scores
} making;

static int64_t padded(int64_t extent) {
  const int64_t unit = extent > LONG ? LONG : TILE;
  return kiln_round_up(extent, unit);
}

// --- substitution ---

// |e|, an expression of the map or reduction |s|, at the element |at| of its result and at
// |reduced| of its reduction dim.
static const kiln_expr *at_element(making *w, const kiln_stmt *s, const kiln_expr *e,
                                   const kiln_expr *const *at, kiln_symbol reduced) {
  kiln_symbol vars[KILN_MAX_RANK + 1];
  const kiln_expr *values[KILN_MAX_RANK + 1];
  int n = 0;
  for (; n < s->n_space; n++) {
    vars[n] = s->dims[n].name;
    values[n] = at[n];
  }
  if (s->n_reduce) {
    vars[n] = s->dims[n].name;
    values[n++] = kiln_var(w->cx, reduced);
  }
  return kiln_expr_substitute(w->cx, e, n, vars, values);
}

// The only load of |s|'s result in |e|; NULL if there are none or several.
static const kiln_expr *load_of(making *w, const kiln_expr *e, const kiln_stmt *s) {
  const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, e);
  const kiln_expr *found = NULL;
  for (int i = 0; i < loads.n; i++) {
    if (loads.data[i]->u.tensor != s->out) continue;
    if (found) return NULL;
    found = loads.data[i];
  }
  return found;
}

static const kiln_expr *load_new(making *w, const kiln_stmt *s) {
  const kiln_expr *index[KILN_MAX_RANK];
  for (int d = 0; d < s->n_space; d++) index[d] = kiln_var(w->cx, s->dims[d].name);
  return kiln_tensor_load(w->cx, w->p->tensors.data[s->out], index);
}

typedef struct expansion {
  making *w;
  bool failed;
} expansion;

static bool is_between(const making *w, const kiln_stmt *s) {
  bool is = s == w->f.mapped;
  for (int i = 0; i < w->f.n_copies; i++) is |= s == w->f.copies[i];
  return is;
}

static const kiln_expr *widened(making *w, const kiln_expr *e);

static const kiln_expr *expand(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  expansion *x = argument;
  making *w = x->w;
  if (e->kind == KILN_EXPR_SELECT && kiln_dtype_is_half(e->dtype)) // both become f32
    return kiln_select(cx, kiln_expr_replace(cx, e->args[0], expand, argument),
                       widened(w, kiln_expr_replace(cx, e->args[1], expand, argument)),
                       widened(w, kiln_expr_replace(cx, e->args[2], expand, argument)));
  if (e->kind == KILN_EXPR_CAST && e->dtype == KILN_F32 &&
      kiln_attention_bare(e)->dtype == KILN_F32)
    return kiln_expr_replace(cx, kiln_attention_bare(e), expand,
                             argument); // the original rounded it
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_tensor *t = w->p->tensors.data[e->u.tensor];
  const kiln_stmt *s = t->def >= 0 ? w->p->stmts.data[t->def] : NULL;
  if (s && s == w->f.scores) {
    for (int d = 0; w->at && d < e->n_args; d++) x->failed |= w->at[d] != e->args[d];
    w->at = e->args;
    if (!w->scores) return e;
    const kiln_expr *now = load_new(w, w->scores);
    return w->scale == 1 ? now : kiln_mul(cx, now, kiln_float(cx, KILN_F32, w->scale));
  }
  if (!s || !is_between(w, s)) return NULL;
  const kiln_expr *body = kiln_attention_bare(at_element(w, s, s->body, e->args, 0));
  return kiln_expr_replace(cx, body, expand, argument);
}

// --- dims ---

static kiln_symbol dim_at(const making *w, const kiln_expr *load, kiln_symbol mix_dim) {
  for (int d = 0; d < w->f.mix->n_space; d++)
    if (w->f.mix->dims[d].name == mix_dim && load->args[d]->kind == KILN_EXPR_VAR)
      return load->args[d]->u.sym;
  return 0;
}

static bool find_dims(making *w, const kiln_expr *load) {
  w->row = w->f.mix_row ? dim_at(w, load, w->f.mix_row) : 0;
  w->value = dim_at(w, load, w->f.mix_value);
  w->n_batch = 0;
  for (int d = 0; d < w->y->n_space; d++)
    if (w->y->dims[d].name != w->row && w->y->dims[d].name != w->value)
      w->batch[w->n_batch++] = w->y->dims[d];
  w->m = kiln_symbol_of(w->cx, "m");
  w->n = kiln_symbol_of(w->cx, "n");
  w->k = kiln_symbol_of(w->cx, "k");
  w->v = kiln_symbol_of(w->cx, "v");
  w->q = kiln_symbol_of(w->cx, "q");
  w->rows = padded(w->f.n_rows);
  w->keys = padded(w->f.n_keys);
  w->depth = kiln_round_up(w->f.depth, TILE);
  w->values = kiln_round_up(w->f.n_values, TILE);
  return (w->row || !w->f.mix_row) && w->value && w->n_batch + 2 < KILN_MAX_RANK;
}

// Replaces y's dims in |e| by the new ones.
static const kiln_expr *renamed(making *w, const kiln_expr *e) {
  kiln_symbol from[3];
  const kiln_expr *to[3];
  int n = 0;
  from[n] = w->value;
  to[n++] = kiln_var(w->cx, w->v);
  if (w->row) {
    from[n] = w->row;
    to[n++] = kiln_var(w->cx, w->m);
  }
  if (w->heads) {
    from[n] = w->heads;
    to[n++] = kiln_add(w->cx, kiln_mul(w->cx, kiln_var(w->cx, w->heads), kiln_int(w->cx, w->group)),
                       kiln_var(w->cx, w->m));
  }
  return kiln_expr_substitute(w->cx, e, n, from, to);
}

// --- the new statements ---

// A statement over the batch dims that |like| uses (NULL: all), then n_space + n_reduce more dims.
static kiln_stmt *make_stmt(making *w, const char *name, kiln_dtype t, const kiln_expr *like,
                            int n_space, int n_reduce, const kiln_symbol *names,
                            const int64_t *extents) {
  kiln_ctx *cx = w->cx;
  kiln_stmt *s = KILN_NEW(&cx->perm, kiln_stmt);
  *s = (kiln_stmt){.origin = w->y->origin, .n_reduce = n_reduce};
  s->dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, w->n_batch + n_space + n_reduce);
  s->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, KILN_MAX_RANK);
  const kiln_expr *shape[KILN_MAX_RANK];
  for (int d = 0; d < w->n_batch; d++)
    if (!like || kiln_expr_uses(like, w->batch[d].name)) s->dims[s->n_space++] = w->batch[d];
  for (int i = 0; i < n_space + n_reduce; i++) {
    if (i == n_space) break;
    s->dims[s->n_space++] = (kiln_dim){names[i], kiln_int(cx, extents[i])};
  }
  for (int i = 0; i < n_reduce; i++)
    s->dims[s->n_space + i] = (kiln_dim){names[n_space + i], kiln_int(cx, extents[n_space + i])};
  for (int d = 0; d < s->n_space; d++) {
    shape[d] = s->dims[d].extent;
    s->index[d] = kiln_var(cx, s->dims[d].name);
  }
  if (name) s->out = kiln_tensor_make(cx, w->p, name, t, KILN_TEMP, s->n_space, shape)->id;
  return s;
}

static void finish_stmt(making *w, kiln_stmt *s, kiln_combiner combiner, const kiln_expr *body) {
  s->combiner = combiner;
  s->body = kiln_stmt_simplify(w->cx, s, body);
}

static const kiln_expr *below(making *w, kiln_symbol v, int64_t extent) {
  return kiln_binary(w->cx, KILN_EXPR_LT, kiln_var(w->cx, v), kiln_int(w->cx, extent));
}

// The number of a key among those of all splits.
static const kiln_expr *key_number(making *w) {
  const kiln_expr *n = kiln_var(w->cx, w->n);
  if (w->splits == 1) return n;
  const kiln_expr *first = kiln_mul(w->cx, kiln_var(w->cx, w->split), kiln_int(w->cx, w->keys));
  return kiln_add(w->cx, first, n);
}

// |e|, an expression of all keys, at those of a split.
static const kiln_expr *of_split(making *w, const kiln_expr *e) {
  const kiln_expr *at = key_number(w);
  return kiln_expr_substitute(w->cx, e, 1, &w->n, &at);
}

// The condition that both dims are within the unpadded extents |known|; NULL if it always holds.
static const kiln_expr *is_known(making *w, const kiln_symbol *names, const int64_t *extents,
                                 const int64_t *known) {
  const kiln_expr *all = NULL;
  for (int i = 0; i < 2; i++) {
    const bool is_keys = names[i] == w->n;
    if (extents[i] * (is_keys ? w->splits : 1) == known[i]) continue;
    const kiln_expr *one =
        is_keys ? kiln_binary(w->cx, KILN_EXPR_LT, key_number(w), kiln_int(w->cx, known[i]))
                : below(w, names[i], known[i]);
    all = all ? kiln_binary(w->cx, KILN_EXPR_AND, all, one) : one;
  }
  return all;
}

// The operand |factor| over (.., first, second), zero in the padding.
static kiln_stmt *make_operand(making *w, const char *name, const kiln_expr *factor,
                               const kiln_symbol *names, const int64_t *extents,
                               const int64_t *known) {
  kiln_stmt *s = make_stmt(w, name, w->half, factor, 2, 0, names, extents);
  const kiln_expr *body = factor, *inside = is_known(w, names, extents, known);
  if (inside) body = kiln_select(w->cx, inside, body, kiln_number(w->cx, w->half, 0));
  finish_stmt(w, s, KILN_COMBINE_NONE, body);
  return s;
}

static const kiln_expr *wide(making *w, const kiln_expr *e) {
  return kiln_cast(w->cx, KILN_F32, e);
}

// M or S of copy |copy|.
static const kiln_expr *load_copy(making *w, const kiln_stmt *s, const kiln_expr *copy) {
  const kiln_expr *index[KILN_MAX_RANK];
  for (int d = 0; d + 1 < s->n_space; d++) index[d] = kiln_var(w->cx, s->dims[d].name);
  index[s->n_space - 1] = copy;
  return kiln_tensor_load(w->cx, w->p->tensors.data[s->out], index);
}

// The weight 2^(Z - M), rounded, with M of copy |copy|. Masks of bf16 may reach the largest finite
// f32, which log2(e) would make infinite: there it is exp(Z - M).
static const kiln_expr *weight(making *w, const kiln_stmt *z, const kiln_stmt *top,
                               const kiln_expr *copy) {
  const kiln_expr *m = load_copy(w, top, copy);
  const kiln_expr *x = kiln_sub(w->cx, load_new(w, z), m), *two = kiln_float(w->cx, KILN_F32, 2);
  const kiln_expr *e = w->half == KILN_F16 ? kiln_binary(w->cx, KILN_EXPR_POW, two, x)
                                           : kiln_unary(w->cx, KILN_EXPR_EXP, x);
  return wide(w, kiln_cast(w->cx, w->half, e));
}

// |e| times |factor|, folded with constant factors of |e|.
static const kiln_expr *times(making *w, const kiln_expr *e, double factor) {
  kiln_ctx *cx = w->cx;
  const kiln_expr *a = e->n_args > 0 ? e->args[0] : NULL, *b = e->n_args > 1 ? e->args[1] : NULL;
  if (e->kind == KILN_EXPR_FLOAT) { // a finite constant stays finite
    const double most = isinf(e->u.f) ? INFINITY : (double)FLT_MAX;
    return kiln_float(cx, KILN_F32, fmax(-most, fmin(most, e->u.f * factor)));
  }
  if (e->n_tree > KILN_LONG_TREE) return kiln_mul(cx, e, kiln_float(cx, KILN_F32, factor));
  if (e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB)
    return kiln_binary(cx, e->kind, times(w, a, factor), times(w, b, factor));
  if (e->kind == KILN_EXPR_SELECT)
    return kiln_select(cx, a, times(w, b, factor), times(w, e->args[2], factor));
  if (e->kind == KILN_EXPR_MUL && b->kind == KILN_EXPR_FLOAT) return times(w, a, b->u.f * factor);
  if (e->kind == KILN_EXPR_MUL && a->kind == KILN_EXPR_FLOAT) return times(w, b, a->u.f * factor);
  if (e->kind == KILN_EXPR_DIV && b->kind == KILN_EXPR_FLOAT) return times(w, a, factor / b->u.f);
  return kiln_mul(cx, e, kiln_float(cx, KILN_F32, factor));
}

// The finish over the new dims, and over its own dims where it has others; its tensor becomes a
// view with the new axes.
static kiln_stmt *make_finish(making *w, const kiln_expr *load, const kiln_expr *result) {
  kiln_ctx *cx = w->cx;
  const kiln_symbol names[] = {w->m, w->v};
  const bool is_whole = w->splits > 1; // no instruction computes it
  const int64_t extents[] = {is_whole ? w->f.n_rows : w->rows,
                             is_whole ? w->f.n_values : w->values};
  kiln_tensor *y = w->p->tensors.data[w->y->out];
  kiln_stmt *s = make_stmt(w, NULL, y->dtype, NULL, 2, 0, names, extents);
  int64_t strides[KILN_MAX_RANK], *moved = KILN_NEW_ARRAY(&cx->perm, int64_t, s->n_space);
  const kiln_expr **shape = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, s->n_space);
  int n = 0;
  kiln_tensor_strides(y, strides);
  for (int pass = 0; pass < 3; pass++)
    for (int d = 0; d < w->y->n_space; d++) {
      const kiln_symbol v = w->y->dims[d].name;
      const int64_t extent = kiln_dim_extent(&w->y->dims[d]);
      if (w->heads && v == w->heads && pass < 2) {
        moved[n] = pass ? strides[d] : w->group * strides[d];
        shape[n++] = kiln_int(cx, pass ? w->group : extent / w->group);
      } else if (!w->row && !w->heads && pass == 1 && v == w->value) { // one row
        moved[n] = extent * strides[d];
        shape[n++] = kiln_int(cx, 1);
      }
      if ((w->heads && v == w->heads) || (v == w->row ? 1 : v == w->value ? 2 : 0) != pass)
        continue;
      moved[n] = strides[d];
      shape[n++] = w->y->dims[d].extent;
    }
  y->rank = n;
  y->shape = shape;
  y->strides = moved;
  for (int d = 0; d < n; d++) y->order[d] = (int8_t)d;
  s->out = y->id;
  s->guard = is_known(w, names, extents, (const int64_t[]){w->f.n_rows, w->f.n_values});
  finish_stmt(w, s, KILN_COMBINE_NONE,
              kiln_expr_replace_one(cx, renamed(w, w->y->body), renamed(w, load), result));
  return s;
}

// --- all of it ---

// Operands and scores of the form as expressions over the new dims.
typedef struct parts {
  const kiln_expr *load;                    // of T by y
  const kiln_expr *queries, *keys, *values; // half, over (.., m, k), (.., n, k) and (.., n, v)
  const kiln_expr *scores; // the argument of the exponential, in terms of the old scores
} parts;

// An operand that is a tensor of halves times a constant: the tensor itself, which is copied as it
// is stored; the scores get the constant.
static const kiln_expr *without_factor(making *w, const kiln_expr *e) {
  const kiln_expr *x = e->kind == KILN_EXPR_CAST ? e->args[0] : e;
  if (x->kind != KILN_EXPR_MUL || x->dtype != KILN_F32) return e;
  const int at = x->args[0]->kind == KILN_EXPR_FLOAT;
  const kiln_expr *value = x->args[at], *number = x->args[1 - at];
  if (number->kind != KILN_EXPR_FLOAT || !isfinite(number->u.f) || value->kind != KILN_EXPR_CAST ||
      value->args[0]->dtype != e->dtype)
    return e;
  w->scale *= number->u.f;
  return value->args[0];
}

// |e| without roundings to halves.
static const kiln_expr *widened(making *w, const kiln_expr *e) {
  if (kiln_attention_bare(e)->dtype == KILN_F32) return kiln_attention_bare(e);
  if (e->kind != KILN_EXPR_SELECT || e->n_tree > KILN_LONG_TREE) return wide(w, e);
  return kiln_select(w->cx, e->args[0], widened(w, e->args[1]), widened(w, e->args[2]));
}

// |e| simplified for rows of a group and the new batch dims.
static const kiln_expr *of_group(making *w, const kiln_expr *e) {
  kiln_ranges r;
  kiln_ranges_init(&r, &w->cx->scratch);
  for (int d = 0; d < w->n_batch; d++)
    kiln_ranges_push(&r, w->batch[d].name, 0, kiln_dim_extent(&w->batch[d]) - 1);
  kiln_ranges_push(&r, w->m, 0, w->group - 1);
  return kiln_simplify(w->cx, e, &r);
}

static bool find_factors(making *w, parts *out) {
  const kiln_expr *a = NULL, *b = NULL, *at[KILN_MAX_RANK];
  const kiln_stmt *mix = w->f.mix, *x = w->f.scores, *weight = w->f.weight, *top = w->f.top;
  for (int d = 0; d < mix->n_space; d++) at[d] = renamed(w, out->load->args[d]);
  const kiln_expr *product = at_element(w, mix, mix->body, at, w->n),
                  *ratio = load_of(w, product, w->f.ratio);
  if (!ratio || !kiln_stmt_is_product(mix, &a, &b)) return false;
  out->values = at_element(w, mix, load_of(w, a, w->f.ratio) ? b : a, at, w->n);
  const kiln_expr *above = at_element(w, w->f.ratio, w->f.ratio->body, ratio->args, 0),
                  *read = load_of(w, above, weight);
  if (!read) return false;
  const kiln_expr *e = kiln_attention_bare(at_element(w, weight, weight->body, read->args, 0)),
                  *max = kiln_attention_bare(e->args[0]->args[1]);
  expansion all = {w, false};
  out->scores =
      widened(w, kiln_expr_replace(w->cx, kiln_attention_bare(e->args[0]->args[0]), expand, &all));
  const kiln_expr *under = at_element(w, top, top->body, max->args, w->n),
                  *of_top = widened(
                      w, kiln_expr_replace(w->cx, kiln_attention_bare(under), expand, &all));
  if (of_top != out->scores || all.failed || !w->at || !kiln_stmt_is_product(x, &a, &b))
    return false;
  a = without_factor(w, at_element(w, x, a, w->at, w->k));
  b = without_factor(w, at_element(w, x, b, w->at, w->k));
  if (w->heads) {
    a = of_group(w, a);
    b = of_group(w, b);
    out->values = of_group(w, out->values);
  }
  out->keys = kiln_expr_uses(a, w->n) ? a : b;
  out->queries = out->keys == a ? b : a;
  w->half = out->values->dtype;
  return kiln_dtype_is_half(w->half) && out->keys->dtype == w->half &&
         out->queries->dtype == w->half && !kiln_expr_uses(out->queries, w->n) &&
         !kiln_expr_uses(out->keys, w->m) && !kiln_expr_uses(out->values, w->m);
}

static kiln_stmt *make_products(making *w, const kiln_stmt *a, const kiln_stmt *b) {
  kiln_stmt *x = make_stmt(w, "X", KILN_F32, NULL, 2, 1, (const kiln_symbol[]){w->m, w->n, w->k},
                           (const int64_t[]){w->rows, w->keys, w->depth});
  finish_stmt(w, x, KILN_COMBINE_SUM,
              kiln_mul(w->cx, wide(w, load_new(w, a)), wide(w, load_new(w, b))));
  return x;
}

// Loads of masks read the last row for those of the padding: a choice by row would say that the
// products of these are not needed, whereas an instruction computes whole tiles.
static const kiln_expr *clamp_rows(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  making *w = argument;
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor == w->scores->out) return NULL;
  const kiln_expr *row =
      kiln_binary(cx, KILN_EXPR_MIN, kiln_var(cx, w->m), kiln_int(cx, w->f.n_rows - 1));
  return kiln_expr_substitute(cx, e, 1, &w->m, &row);
}

static bool is_number(const kiln_expr *e, double x) {
  return e->kind == KILN_EXPR_FLOAT && e->u.f == x;
}

// s + (c ? 0 : -inf) becomes c ? s : -inf: a masked score is -inf, whatever it was.
static const kiln_expr *choose_scores(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const double lowest = -(double)INFINITY;
  if (e->kind != KILN_EXPR_ADD || e->dtype != KILN_F32) return NULL;
  for (int i = 0; i < 2; i++) {
    const kiln_expr *mask = e->args[i];
    if (mask->kind != KILN_EXPR_SELECT) continue;
    const kiln_expr *s = kiln_expr_replace(cx, e->args[1 - i], choose_scores, argument);
    if (is_number(mask->args[1], 0) && is_number(mask->args[2], lowest))
      return kiln_select(cx, mask->args[0], s, mask->args[2]);
    if (is_number(mask->args[1], lowest) && is_number(mask->args[2], 0))
      return kiln_select(cx, mask->args[0], mask->args[1], s);
  }
  return NULL;
}

// Z, the exponent of the weights, as a map of the products |x|.
static kiln_stmt *make_scores(making *w, const kiln_expr *old, const kiln_stmt *x) {
  kiln_ctx *cx = w->cx;
  kiln_stmt *z = make_stmt(w, "Z", KILN_F32, NULL, 2, 0, (const kiln_symbol[]){w->m, w->n},
                           (const int64_t[]){w->rows, w->keys});
  expansion all = {w, false};
  w->scores = x;
  w->at = NULL;
  const kiln_expr *scores = kiln_expr_replace(cx, old, expand, &all);
  if (w->half == KILN_F16) scores = times(w, scores, 1.4426950408889634); // log2(e)
  scores = kiln_expr_replace(cx, scores, choose_scores, NULL);
  if (w->f.n_rows < TILE) scores = kiln_expr_replace(cx, scores, clamp_rows, w);
  else if (w->f.n_rows != w->rows)
    scores = kiln_select(cx, below(w, w->m, w->f.n_rows), scores,
                         kiln_float(cx, KILN_F32, -(double)INFINITY));
  const kiln_expr *inside =
      is_known(w, (const kiln_symbol[]){w->n, w->k}, (const int64_t[]){w->keys, w->depth},
               (const int64_t[]){w->f.n_keys, w->depth});
  if (inside) scores = kiln_select(cx, inside, scores, kiln_float(cx, KILN_F32, -(double)INFINITY));
  finish_stmt(w, z, KILN_COMBINE_NONE, scores);
  return z;
}

// A reduction over the keys, for each row and |other|.
static kiln_stmt *make_over_keys(making *w, const char *name, kiln_symbol other, int64_t extent,
                                 kiln_combiner combiner, const kiln_expr *body) {
  kiln_stmt *s = make_stmt(w, name, KILN_F32, NULL, 2, 1, (const kiln_symbol[]){w->m, other, w->n},
                           (const int64_t[]){w->rows, extent, w->keys});
  finish_stmt(w, s, combiner, body);
  return s;
}

// Splits the keys of few rows into ranges, blocks of their own, until they fill the machine.
static void split_keys(making *w, const kiln_machine *m, parts *io) {
  int64_t blocks = w->rows / TILE;
  for (int d = 0; d < w->n_batch; d++) blocks *= kiln_dim_extent(&w->batch[d]);
  int64_t n = RESIDENT * (int64_t)m->n_cores / (blocks > 0 ? blocks : 1);
  if (n > w->f.n_keys / LEAST_SPAN) n = w->f.n_keys / LEAST_SPAN;
  if (n > MAX_SPLITS) n = MAX_SPLITS;
  if (w->rows > TILE || n < 2 || w->n_batch + 3 >= KILN_MAX_RANK) return;
  w->keys = kiln_round_up(kiln_divide_up(w->f.n_keys, n), LONG);
  w->splits = kiln_divide_up(w->f.n_keys, w->keys);
  w->split = kiln_symbol_of(w->cx, "split");
  io->keys = of_split(w, io->keys);
  io->values = of_split(w, io->values);
  io->scores = of_split(w, io->scores);
  w->batch[w->n_batch++] = (kiln_dim){w->split, kiln_int(w->cx, w->splits)};
}

// A reduction over the splits, for each row and |n_more| dims.
static kiln_stmt *make_over_splits(making *w, const char *name, int n_more, kiln_combiner combiner,
                                   const kiln_expr *body) {
  const kiln_symbol two[] = {w->m, w->split}, three[] = {w->m, w->v, w->split};
  const int64_t of_two[] = {w->f.n_rows, w->splits},
                of_three[] = {w->f.n_rows, w->f.n_values, w->splits};
  kiln_stmt *s = make_stmt(w, name, KILN_F32, NULL, 1 + n_more, 1, n_more ? three : two,
                           n_more ? of_three : of_two);
  finish_stmt(w, s, combiner, body);
  return s;
}

// The statements of split keys: P and L of each split, and what puts them together: G, D, N. y is
// the last.
static void make_splits(making *w, const parts *of, const kiln_stmt *top, const kiln_stmt *sum,
                        const kiln_expr *copy, const kiln_expr *ratio, kiln_stmt **out) {
  kiln_ctx *cx = w->cx;
  const bool by_two = w->half == KILN_F16;
  const kiln_expr *lowest = kiln_float(cx, KILN_F32, -(double)INFINITY), *own = kiln_var(cx, w->q),
                  *zero = kiln_int(cx, 0);
  kiln_stmt *part = make_stmt(w, "P", KILN_F32, NULL, 2, 0, (const kiln_symbol[]){w->m, w->v},
                              (const int64_t[]){w->rows, w->values}),
            *mark = make_stmt(w, "L", KILN_F32, NULL, 2, 0, (const kiln_symbol[]){w->m, w->q},
                              (const int64_t[]){w->rows, KILN_QUAD});
  const kiln_expr *is_empty = kiln_binary(cx, KILN_EXPR_EQ, load_copy(w, top, copy), lowest);
  finish_stmt(w, part, KILN_COMBINE_NONE,
              kiln_select(cx, is_empty, kiln_float(cx, KILN_F32, 0), ratio));
  const kiln_expr *log = kiln_unary(cx, KILN_EXPR_LOG, load_copy(w, sum, own)),
                  *m = load_copy(w, top, own);
  if (by_two) log = kiln_mul(cx, log, kiln_float(cx, KILN_F32, 1.4426950408889634));
  finish_stmt(
      w, mark, KILN_COMBINE_NONE,
      kiln_select(cx, kiln_binary(cx, KILN_EXPR_EQ, m, lowest), lowest, kiln_add(cx, m, log)));
  const kiln_expr *level = load_copy(w, mark, zero), *value = load_new(w, part);
  w->n_batch--;
  kiln_stmt *most = make_over_splits(w, "G", 0, KILN_COMBINE_MAX, level);
  const kiln_expr *x = kiln_sub(cx, level, load_new(w, most)),
                  *share = by_two ? kiln_binary(cx, KILN_EXPR_POW, kiln_float(cx, KILN_F32, 2), x)
                                  : kiln_unary(cx, KILN_EXPR_EXP, x);
  kiln_stmt *under = make_over_splits(w, "D", 0, KILN_COMBINE_SUM, share),
            *above = make_over_splits(w, "N", 1, KILN_COMBINE_SUM, kiln_mul(cx, share, value));
  kiln_stmt *const list[] = {
      part,
      mark,
      most,
      under,
      above,
      make_finish(w, of->load,
                  kiln_binary(cx, KILN_EXPR_DIV, load_new(w, above), load_new(w, under)))};
  for (size_t i = 0; i < KILN_LEN(list); i++) out[i] = list[i];
}

static void make_all(making *w, const parts *of) {
  kiln_ctx *cx = w->cx;
  const int64_t rows = w->f.n_rows, keys = w->f.n_keys, depth = w->f.depth, n_v = w->f.n_values;
  kiln_stmt *a = make_operand(w, "A", of->queries, (const kiln_symbol[]){w->m, w->k},
                              (const int64_t[]){w->rows, w->depth}, (const int64_t[]){rows, depth}),
            *b = make_operand(w, "B", of->keys, (const kiln_symbol[]){w->n, w->k},
                              (const int64_t[]){w->keys, w->depth}, (const int64_t[]){keys, depth}),
            *v = make_operand(w, "V", of->values, (const kiln_symbol[]){w->n, w->v},
                              (const int64_t[]){w->keys, w->values}, (const int64_t[]){keys, n_v});
  kiln_stmt *x = make_products(w, a, b), *z = make_scores(w, of->scores, x);
  const kiln_expr *own = kiln_var(cx, w->q), // the lane's copy
      *of_value = kiln_div(cx, kiln_mod(cx, kiln_var(cx, w->v), kiln_int(cx, 8)), kiln_int(cx, 2));
  kiln_stmt *top = make_over_keys(w, "M", w->q, KILN_QUAD, KILN_COMBINE_MAX, load_new(w, z)),
            *sum =
                make_over_keys(w, "S", w->q, KILN_QUAD, KILN_COMBINE_SUM, weight(w, z, top, own)),
            *mix =
                make_over_keys(w, "T", w->v, w->values, KILN_COMBINE_SUM,
                               kiln_mul(cx, weight(w, z, top, of_value), wide(w, load_new(w, v))));
  const kiln_expr *share = kiln_binary(cx, KILN_EXPR_DIV, kiln_float(cx, KILN_F32, 1),
                                       load_copy(w, sum, of_value)),
                  *ratio = kiln_mul(cx, load_new(w, mix), share); // one division a row
  kiln_stmt *list[14] = {a, b, v, x, z, top, sum, mix};
  const int n = w->splits > 1 ? 14 : 9;
  if (n == 9) list[8] = make_finish(w, of->load, ratio);
  else make_splits(w, of, top, sum, of_value, ratio, &list[8]);
  w->p->stmts.n = 0;
  for (int i = 0; i < n; i++) kiln_stmt_append(w->cx, w->p, list[i]);
  kiln_program_drop_unwritten(w->cx, w->p);
}

// A quotient v / c in an expression.
typedef struct quotient {
  kiln_symbol v;
  int64_t c;
} quotient;

static void find_quotient(const kiln_expr *e, void *argument) {
  quotient *q = argument;
  int64_t c = 0;
  if (!q->v && e->kind == KILN_EXPR_DIV && e->args[0]->kind == KILN_EXPR_VAR &&
      kiln_expr_is_int(e->args[1], &c) && c > 1 && c <= TILE)
    *q = (quotient){e->args[0]->u.sym, c};
}

// Makes the heads that share values the rows; false if none do.
static bool group_heads(making *w, const parts *of) {
  quotient q = {0};
  kiln_expr_visit(w->cx, of->values, find_quotient, &q);
  for (int d = 0; d < w->n_batch && q.v; d++) {
    const int64_t extent = kiln_dim_extent(&w->batch[d]);
    if (w->batch[d].name != q.v || extent % q.c || w->n_batch + 3 >= KILN_MAX_RANK) continue;
    w->heads = q.v;
    w->f.n_rows = w->group = q.c;
    w->rows = padded(q.c);
    w->batch[d].extent = kiln_int(w->cx, extent / q.c);
    return true;
  }
  return false;
}

// Finds the operands of |w|'s form; false if its program cannot have it.
static bool find_parts(making *w, parts *out) {
  w->scale = 1;
  w->splits = 1;
  if (w->y->n_reduce || w->y->guard) return false;
  out->load = load_of(w, w->y->body, w->f.mix);
  if (!out->load || !find_dims(w, out->load) || !find_factors(w, out)) return false;
  const making before = *w;
  if (w->row || !group_heads(w, out)) return true;
  parts grouped = {.load = out->load};
  w->scale = 1;
  w->at = NULL;
  if (find_factors(w, &grouped)) *out = grouped;
  else *w = before;
  return true;
}

bool kiln_flash_attention_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p) {
  making w = {.cx = cx, .p = p, .y = p->stmts.data[p->stmts.n - 1]};
  parts of = {0};
  bool found = false;
  for (int i = 0; i + 1 < p->stmts.n && !found; i++)
    found = kiln_attention_find(cx, p, p->stmts.data[i], &w.f);
  if (!found || !find_parts(&w, &of)) return false;
  split_keys(&w, m, &of);
  make_all(&w, &of);
  return true;
}

// --- what is one ---

bool kiln_flash_attention_suits(kiln_ctx *cx, kiln_program *p, const kiln_attention_form *f,
                                const kiln_stmt *finish, const kiln_machine *m) {
  making w = {.cx = cx, .p = p, .f = *f, .y = finish};
  parts of = {0};
  return m->gpu.capability >= CAPABILITY && f->n_keys >= TILE && f->n_values <= MAX_VALUES &&
         f->depth <= MAX_DEPTH && find_parts(&w, &of);
}

bool kiln_flash_attention_is(const kiln_program *p, kiln_flash_attention *out) {
  if (p->stmts.n != 9 && p->stmts.n != 14) return false;
  kiln_stmt *const *s = p->stmts.data;
  const kiln_stmt *top = s[5], *mix = s[7];
  if (top->combiner != KILN_COMBINE_MAX || s[6]->combiner != KILN_COMBINE_SUM ||
      mix->combiner != KILN_COMBINE_SUM || s[3]->combiner != KILN_COMBINE_SUM ||
      s[3]->n_reduce != 1 || mix->n_reduce != 1 || top->n_space < 2 ||
      kiln_dim_extent(&top->dims[top->n_space - 1]) != KILN_QUAD || s[8]->n_space != top->n_space ||
      s[8]->n_reduce)
    return false;
  const int n = top->n_space - 2;
  *out = (kiln_flash_attention){.a = s[0],
                                .b = s[1],
                                .v = s[2],
                                .x = s[3],
                                .z = s[4],
                                .top = top,
                                .sum = s[6],
                                .mix = mix,
                                .y = s[8],
                                .mark = p->stmts.n > 9 ? s[9] : NULL,
                                .n_batch = n,
                                .batch = 1};
  for (int d = 0; d < n; d++) out->batch *= kiln_dim_extent(&top->dims[d]);
  out->rows = kiln_dim_extent(&s[3]->dims[n]);
  out->keys = kiln_dim_extent(&s[3]->dims[n + 1]);
  out->depth = kiln_dim_extent(&s[3]->dims[n + 2]);
  out->values = kiln_dim_extent(&mix->dims[n + 1]);
  return true;
}

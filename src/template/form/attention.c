// Recognition of attention by its algebra.
#include "template/form/attention.h"

#include "support/integer.h"

enum { MAX_VALUES = 256, MAX_DEPTH_OF_KEYS = 512, WHOLE_CHUNK = 320 };

const kiln_expr *kiln_attention_bare(const kiln_expr *e) {
  while (e->kind == KILN_EXPR_CAST && kiln_dtype_is_float(e->args[0]->dtype)) e = e->args[0];
  return e;
}

static const kiln_stmt *def_of(const kiln_program *p, const kiln_expr *load) {
  load = kiln_attention_bare(load);
  if (load->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_tensor *t = p->tensors.data[load->u.tensor];
  return t->role == KILN_TEMP && t->def >= 0 && kiln_dtype_is_float(t->dtype)
             ? p->stmts.data[t->def]
             : NULL;
}

static bool is_contraction(const kiln_stmt *s) {
  const kiln_expr *a = NULL, *b = NULL;
  return s && kiln_stmt_is_product(s, &a, &b);
}

static bool is_map(const kiln_ctx *cx, const kiln_stmt *s) { return s && kiln_stmt_is_map(cx, s); }

static bool is_reduction(const kiln_ctx *cx, const kiln_stmt *s, kiln_combiner c) {
  return s && s->combiner == c && s->n_reduce == 1 && !s->guard && !s->init &&
         kiln_stmt_is_plain(cx, s);
}

// The axis of |load| whose index is the variable |v|; -1 if there is none.
static int axis_of(const kiln_expr *load, kiln_symbol v) {
  load = kiln_attention_bare(load);
  if (load->kind != KILN_EXPR_LOAD) return -1;
  for (int k = 0; k < load->n_args; k++)
    if (load->args[k]->kind == KILN_EXPR_VAR && load->args[k]->u.sym == v) return k;
  return -1;
}

// The dim of the statement behind |load| that corresponds to |v|; 0 if there is none.
static kiln_symbol dim_behind(const kiln_stmt *s, const kiln_expr *load, kiln_symbol v) {
  const int k = axis_of(load, v);
  return k >= 0 && k < s->n_space ? s->dims[k].name : 0;
}

static int64_t extent_of(const kiln_stmt *s, kiln_symbol dim) {
  const int d = kiln_stmt_dim(s, dim);
  return d < 0 ? 0 : kiln_dim_extent(&s->dims[d]);
}

// The only load in |e| of the result of |from|; NULL if there are none or several.
static const kiln_expr *load_from(kiln_ctx *cx, const kiln_program *p, const kiln_expr *e,
                                  const kiln_stmt *from) {
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, e);
  const kiln_expr *found = NULL;
  for (int i = 0; i < loads.n; i++) {
    const kiln_stmt *s = def_of(p, loads.data[i]);
    if (from ? s != from : !is_contraction(s)) continue;
    if (found) return NULL;
    found = loads.data[i];
  }
  return found;
}

// The expression of which |x| is the reciprocal; NULL if it is none.
static const kiln_expr *inverse_of(const kiln_expr *x) {
  x = kiln_attention_bare(x);
  const bool is_inverse = x->kind == KILN_EXPR_DIV && x->args[0]->kind == KILN_EXPR_FLOAT;
  return is_inverse && x->args[0]->u.f == 1 ? x->args[1] : NULL;
}

// Matches P = E / S, or E times the reciprocal of S.
static bool find_ratio(kiln_attention_form *f) {
  const kiln_expr *b = kiln_attention_bare(f->ratio->body);
  if (b->kind != KILN_EXPR_DIV && b->kind != KILN_EXPR_MUL) return false;
  const int swap = b->kind == KILN_EXPR_MUL && inverse_of(b->args[0]);
  const kiln_expr *sums = b->kind == KILN_EXPR_DIV ? b->args[1] : inverse_of(b->args[1 - swap]);
  f->weights = kiln_attention_bare(b->args[swap]);
  f->sums = sums ? kiln_attention_bare(sums) : NULL;
  return f->sums != NULL;
}

// Matches P = E / S, E = exp(u - M), S = sum of E, M = max of ..
static bool find_softmax(kiln_ctx *cx, const kiln_program *p, kiln_attention_form *f) {
  if (!find_ratio(f)) return false;
  f->weight = def_of(p, f->weights);
  f->sum = def_of(p, f->sums);
  if (!is_map(cx, f->weight) || !is_reduction(cx, f->sum, KILN_COMBINE_SUM)) return false;
  const kiln_expr *e = kiln_attention_bare(f->weight->body);
  if (def_of(p, f->sum->body) != f->weight || e->kind != KILN_EXPR_EXP ||
      e->args[0]->kind != KILN_EXPR_SUB)
    return false;
  f->top = def_of(p, e->args[0]->args[1]);
  return is_reduction(cx, f->top, KILN_COMBINE_MAX);
}

// The argument of the exponential, before M is subtracted.
static const kiln_expr *argument_of(const kiln_attention_form *f) {
  return kiln_attention_bare(kiln_attention_bare(f->weight->body)->args[0]->args[0]);
}

// The only map of a contraction that |e| loads, itself or under a mask; NULL.
static const kiln_stmt *map_in(kiln_ctx *cx, const kiln_program *p, const kiln_expr *e) {
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, e);
  const kiln_stmt *found = NULL;
  for (int i = 0; i < loads.n; i++) {
    const kiln_stmt *s = def_of(p, loads.data[i]);
    if (!is_map(cx, s) || !load_from(cx, p, s->body, NULL)) continue;
    if (found) return NULL;
    found = s;
  }
  return found;
}

// The load in the exponential's argument of what is between it and X.
static const kiln_expr *read_of(kiln_ctx *cx, const kiln_program *p, const kiln_attention_form *f) {
  const kiln_expr *u = argument_of(f);
  return u->kind == KILN_EXPR_LOAD || !f->mapped ? u : load_from(cx, p, u, f->mapped);
}

// The only load of Z, or else of X, in |e|; NULL.
static const kiln_expr *score_in(kiln_ctx *cx, const kiln_program *p, const kiln_attention_form *f,
                                 const kiln_expr *e) {
  const kiln_expr *z = f->mapped ? load_from(cx, p, e, f->mapped) : NULL;
  return z ? z : load_from(cx, p, e, f->scores);
}

// Finds X and the maps between it and the weights, and between it and M.
static bool find_scores(kiln_ctx *cx, const kiln_program *p, kiln_attention_form *f) {
  const kiln_expr *u = argument_of(f);
  const kiln_stmt *s = def_of(p, u);
  if (is_map(cx, s)) f->mapped = s;
  else if (!load_from(cx, p, u, NULL)) f->mapped = map_in(cx, p, u);
  if (f->mapped && !read_of(cx, p, f)) return false;
  const kiln_expr *load = load_from(cx, p, f->mapped ? f->mapped->body : u, NULL);
  if (!load) return false;
  f->scores = def_of(p, load);
  const kiln_expr *at = kiln_attention_bare(f->top->body);
  if (at->kind != KILN_EXPR_LOAD) at = score_in(cx, p, f, at); // M computes Z itself
  for (s = at ? def_of(p, at) : NULL; s && s != f->scores && s != f->mapped; s = def_of(p, at)) {
    if (!is_map(cx, s) || f->n_copies == KILN_MAX_ATTENTION_COPIES) return false;
    f->copies[f->n_copies++] = s;
    at = score_in(cx, p, f, s->body);
    if (!at) return false;
  }
  return s != NULL;
}

// The dim of the scores that corresponds to dim |v| of the weights.
static kiln_symbol score_dim(kiln_ctx *cx, const kiln_program *p, const kiln_attention_form *f,
                             kiln_symbol v) {
  const kiln_expr *u = read_of(cx, p, f);
  if (f->mapped) {
    v = dim_behind(f->mapped, u, v);
    u = f->mapped->body;
  }
  const kiln_expr *load = load_from(cx, p, u, f->scores);
  return v && load ? dim_behind(f->scores, load, v) : 0;
}

// Finds the dims of weights, scores and Y that are rows, keys and values, by the operands that
// depend on them.
static bool find_dims(kiln_ctx *cx, const kiln_program *p, kiln_attention_form *f) {
  const kiln_expr *a = NULL, *b = NULL;
  const kiln_stmt *e = f->weight;
  f->key = dim_behind(e, f->sum->body, f->sum->dims[f->sum->n_space].name);
  f->score_key = f->key ? score_dim(cx, p, f, f->key) : 0;
  if (!f->score_key || !kiln_stmt_is_product(f->scores, &a, &b)) return false;
  const bool is_b = kiln_expr_uses(b, f->score_key);
  if (is_b == kiln_expr_uses(a, f->score_key) || f->scores->n_reduce != 1) return false;
  f->keys = is_b ? b : a;
  f->queries = is_b ? a : b;
  f->n_batch = 1;
  for (int d = 0; d < e->n_space; d++) {
    const kiln_symbol v = e->dims[d].name;
    const int64_t extent = kiln_dim_extent(&e->dims[d]);
    if (v == f->key || extent == 1) continue;
    const kiln_symbol s = score_dim(cx, p, f, v);
    if (!s) return false;
    f->n_batch *= extent;
    if (kiln_expr_uses(f->keys, s)) continue;
    f->row = v;
    f->score_row = s;
  }
  const kiln_expr *u = read_of(cx, p, f);
  f->tile_key = f->mapped ? dim_behind(f->mapped, u, f->key) : f->score_key;
  f->n_rows = f->row ? extent_of(e, f->row) : 1;
  if (f->row) {
    f->top_row = dim_behind(f->top, kiln_attention_bare(e->body)->args[0]->args[1], f->row);
    f->tile_row = f->mapped ? dim_behind(f->mapped, u, f->row) : f->score_row;
  }
  if (!f->tile_key || (f->row && (!f->top_row || !f->tile_row))) return false;
  f->n_keys = extent_of(e, f->key);
  f->n_batch /= f->n_rows;
  f->depth = kiln_dim_extent(&f->scores->dims[f->scores->n_space]);
  return true;
}

// The dim of the weights that corresponds to dim |v| of Y, which loads P with |ratio|.
static kiln_symbol weight_dim(const kiln_attention_form *f, const kiln_expr *ratio, kiln_symbol v) {
  const kiln_symbol own = dim_behind(f->ratio, ratio, v);
  return own ? dim_behind(f->weight, f->weights, own) : 0;
}

// Matches Y = sum of P*V.
static bool find_mix(kiln_attention_form *f, const kiln_expr *ratio) {
  const kiln_stmt *y = f->mix;
  if (y->n_reduce != 1) return false;
  f->mix_key = y->dims[y->n_space].name;
  if (weight_dim(f, ratio, f->mix_key) != f->key) return false;
  for (int d = 0; d < y->n_space; d++) {
    const kiln_symbol v = y->dims[d].name;
    if (kiln_dim_extent(&y->dims[d]) == 1) continue;
    if (kiln_expr_uses(ratio, v)) {
      const kiln_symbol own = dim_behind(f->ratio, ratio, v);
      if (f->row && weight_dim(f, ratio, v) == f->row) {
        f->mix_row = v;
        f->sum_row = own ? dim_behind(f->sum, f->sums, own) : 0;
      }
      continue;
    }
    if (f->mix_value) return false;
    f->mix_value = v;
    f->n_values = kiln_dim_extent(&y->dims[d]);
  }
  if (!f->row) return f->mix_value != 0;
  return f->sum_row && f->mix_value && !kiln_expr_uses(f->values, f->mix_row);
}

bool kiln_attention_find(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *mix,
                         kiln_attention_form *out) {
  const kiln_expr *a = NULL, *b = NULL;
  if (!is_contraction(mix) || !kiln_stmt_is_product(mix, &a, &b)) return false;
  for (int swap = 0; swap < 2; swap++) {
    const kiln_expr *ratio = swap ? b : a;
    *out = (kiln_attention_form){.mix = mix, .ratio = def_of(p, ratio), .values = swap ? a : b};
    if (is_map(cx, out->ratio) && find_softmax(cx, p, out) && find_scores(cx, p, out) &&
        find_dims(cx, p, out) && find_mix(out, ratio))
      return true;
  }
  return false;
}

// Whether the CPU template supports it: all is f32, and queries, keys, values, exponents and what M
// is of are loads.
static bool is_single(const kiln_program *p, const kiln_attention_form *f) {
  const kiln_stmt *const inner[] = {f->scores, f->mapped, f->top, f->weight,
                                    f->sum,    f->ratio,  f->mix};
  const kiln_expr *const loads[] = {f->queries, f->keys, f->values};
  bool is = (!f->mapped || argument_of(f)->kind == KILN_EXPR_LOAD) &&
            kiln_attention_bare(f->top->body)->kind == KILN_EXPR_LOAD;
  for (size_t i = 0; i < KILN_LEN(inner); i++)
    is &= !inner[i] || p->tensors.data[inner[i]->out]->dtype == KILN_F32;
  for (int i = 0; i < f->n_copies; i++) is &= p->tensors.data[f->copies[i]->out]->dtype == KILN_F32;
  for (size_t i = 0; i < KILN_LEN(loads); i++)
    is &= loads[i]->kind == KILN_EXPR_LOAD && loads[i]->dtype == KILN_F32;
  return is && axis_of(f->queries, f->score_row) >= 0;
}

bool kiln_attention_is(kiln_ctx *cx, const kiln_program *p, kiln_attention_form *out) {
  for (int i = p->stmts.n - 1; i >= 0; i--)
    if (kiln_attention_find(cx, p, p->stmts.data[i], out) && is_single(p, out)) return true;
  return false;
}

int kiln_attention_chunks(int64_t n_keys, int64_t *out) {
  static const int64_t wanted[] = {128, 64, 256};
  int n = 0;
  if (n_keys <= WHOLE_CHUNK) out[n++] = n_keys;
  for (size_t i = 0; i < KILN_LEN(wanted); i++) {
    int64_t chunk = wanted[i];
    while (2 * chunk > wanted[i] && n_keys % chunk) chunk--;
    if (chunk < n_keys && 2 * chunk > wanted[i]) out[n++] = chunk;
  }
  if (n > 0) return n;
  // as even as possible; the last one may be shorter
  for (size_t i = 0; i < KILN_LEN(wanted); i++) {
    const int64_t n_chunks = kiln_divide_up(n_keys, wanted[i]);
    out[n++] = kiln_divide_up(n_keys, n_chunks);
  }
  return n;
}

// --- the pass ---

typedef struct statements {
  int n;
  const kiln_stmt *data[KILN_MAX_ATTENTION_COPIES + 7];
} statements;

static statements inner_statements(const kiln_attention_form *f) {
  statements s = {0};
  s.data[s.n++] = f->scores;
  if (f->mapped) s.data[s.n++] = f->mapped;
  for (int i = 0; i < f->n_copies; i++) s.data[s.n++] = f->copies[i];
  s.data[s.n++] = f->top;
  s.data[s.n++] = f->weight;
  s.data[s.n++] = f->sum;
  s.data[s.n++] = f->ratio;
  return s;
}

// Whether only the statements of the form read its temporaries.
static bool is_alone(const kiln_users *u, const kiln_attention_form *f) {
  const statements s = inner_statements(f);
  for (int i = 0; i < s.n; i++)
    for (int r = u->first[s.data[i]->out]; r < u->first[s.data[i]->out + 1]; r++) {
      bool inside = u->users[r] == f->mix->id;
      for (int k = 0; k < s.n; k++) inside |= s.data[k]->id == u->users[r];
      if (!inside) return false;
    }
  return true;
}

static bool is_in_no_kernel(const kiln_facts *facts, const kiln_stmt *s) {
  const kiln_fact fact = kiln_fact_of(facts, s->out);
  return fact.kernel == 0 && !fact.assembled;
}

static bool is_free(const kiln_facts *facts, const kiln_attention_form *f) {
  const statements s = inner_statements(f);
  bool is_free = kiln_fact_of(facts, f->mix->out).kernel == 0;
  for (int i = 0; i < s.n; i++) is_free &= is_in_no_kernel(facts, s.data[i]);
  return is_free;
}

// The map that alone reads Y, element by element, and may be computed after it; NULL if there is
// none.
static kiln_stmt *epilogue_of(kiln_ctx *cx, kiln_program *p, const kiln_facts *facts,
                              const kiln_users *u, const kiln_attention_form *f) {
  const int y = f->mix->out;
  if (u->first[y + 1] - u->first[y] != 1 || p->tensors.data[y]->role != KILN_TEMP) return NULL;
  kiln_stmt *s = p->stmts.data[u->users[u->first[y]]];
  const kiln_expr *load = is_map(cx, s) ? load_from(cx, p, s->body, f->mix) : NULL;
  if (!load || !is_in_no_kernel(facts, s) ||
      kiln_stmt_domain(s) != kiln_tensor_elems(p->tensors.data[y]))
    return NULL;
  for (int d = 0; d < s->n_space; d++)
    if (kiln_dim_extent(&s->dims[d]) != 1 && axis_of(load, s->dims[d].name) < 0) return NULL;
  return s;
}

// Whether vectorizing over rows pays: with few rows most lanes would be idle.
static bool pays_in_lanes(const kiln_program *p, const kiln_machine *m,
                          const kiln_attention_form *f) {
  if (!is_single(p, f)) return false;
  const int64_t lanes = m->vector_bytes / 4;
  return f->n_rows >= lanes && f->n_keys >= lanes && f->n_values <= MAX_VALUES &&
         f->depth <= MAX_DEPTH_OF_KEYS;
}

kiln_status kiln_tile_attention(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                                const kiln_machine *m, kiln_attention_suits *suits) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_users users = kiln_users_make(cx, &cx->scratch, p);
  int n_kernels = 0;
  for (int i = 0; i < facts->n; i++)
    if (facts->data[i].kernel > n_kernels) n_kernels = facts->data[i].kernel;
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_attention_form f;
    kiln_stmt *mix = p->stmts.data[i];
    if (!mix || !kiln_attention_find(cx, p, mix, &f) || !is_free(facts, &f) ||
        !is_alone(&users, &f))
      continue;
    const statements s = inner_statements(&f);
    kiln_stmt *epilogue = epilogue_of(cx, p, facts, &users, &f);
    if (m->target->has_vectors ? !pays_in_lanes(p, m, &f)
                               : !epilogue || !suits(cx, p, &f, epilogue, m))
      continue;
    kiln_fact_at(cx, facts, mix->out)->kernel = ++n_kernels;
    if (epilogue) kiln_fact_at(cx, facts, epilogue->out)->kernel = n_kernels;
    for (int k = 0; k < s.n; k++) kiln_fact_at(cx, facts, s.data[k]->out)->kernel = n_kernels;
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

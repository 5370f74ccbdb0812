#include "template/form/window.h"

enum { MAX_STRIDE = 8 };

// // A program while it is brought into the form.
typedef struct making {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_stmt *t;
  const kiln_expr *value,
      // the expression of the element that windows share, a guarded or plain load, and the load in
      // it
      *load;
  const kiln_expr *element; // |value|, before it is widened
  int n;
  kiln_window_dim dims[KILN_WINDOW_DIMS];
} making;

static int64_t extent_of(const kiln_stmt *s, int d) { return kiln_dim_extent(&s->dims[d]); }

// Whether |s| is a map over the result's dims of the sum |t|.
static bool finishes(const kiln_stmt *s, const kiln_stmt *t) {
  if (s->n_reduce || s->guard || s->init || s->n_space != t->n_space) return false;
  for (int d = 0; d < s->n_space; d++)
    if (s->dims[d].name != t->dims[d].name) return false;
  return true;
}

bool kiln_window_sum(const kiln_program *p, kiln_stmt **out) {
  kiln_stmt *t = p->stmts.data[0];
  if (p->stmts.n < 2 || t->n_reduce == 0 || t->guard || t->init || t->n_space == 0) return false;
  for (int i = 1; i < p->stmts.n; i++)
    if (!finishes(p->stmts.data[i], t)) return false;
  *out = t;
  return true;
}

// Whether |e| depends on a reduction dim of the window.
static bool moves(making *w, const kiln_expr *e) {
  const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, e);
  for (int i = 0; i < loads.n; i++)
    if (w->p->tensors.data[loads.data[i]->u.tensor]->role != KILN_CONST &&
        kiln_stmt_reduces_along(w->t, loads.data[i]))
      return true;
  return false;
}

// The expression of the window's element in |e|: everything computed from loads that move along the
// window, with the guard around it.
static const kiln_expr *value_in(making *w, const kiln_expr *e) {
  while (e->kind != KILN_EXPR_LOAD && e->kind != KILN_EXPR_SELECT) {
    const kiln_expr *only = NULL;
    for (int i = 0; i < e->n_args; i++) {
      if (!moves(w, e->args[i])) continue;
      if (only) return e;
      only = e->args[i];
    }
    if (!only) return NULL;
    e = only;
  }
  return e->kind == KILN_EXPR_LOAD || (!e->args[0]->has_load && !e->args[2]->has_load) ? e : NULL;
}

// The first load in |value|; NULL if a load does not move along the window, or is no tensor's.
static const kiln_expr *load_in(making *w, const kiln_expr *value) {
  const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, value);
  for (int i = 0; i < loads.n; i++)
    if (!moves(w, loads.data[i])) return NULL;
  return loads.n ? loads.data[0] : NULL;
}

// The expression that |e| widens, if it is a load, or a load and a constant of its type; otherwise
// |e| itself.
static const kiln_expr *before_widening(kiln_ctx *cx, const kiln_expr *e) {
  const kiln_expr *cast = e->kind == KILN_EXPR_SELECT ? e->args[1] : e;
  if (cast->kind != KILN_EXPR_CAST) return e;
  const kiln_dtype narrow = cast->args[0]->dtype;
  if (!kiln_dtype_is_float(narrow) || kiln_dtype_bytes(narrow) >= kiln_dtype_bytes(e->dtype))
    return e;
  if (cast == e) return cast->args[0];
  const kiln_expr *other = kiln_cast(cx, narrow, e->args[2]);
  if (e->args[2]->kind != KILN_EXPR_FLOAT || kiln_cast(cx, e->dtype, other) != e->args[2]) return e;
  return kiln_select(cx, e->args[0], cast->args[0], other);
}

static bool is_paired(const making *w, int dim) {
  for (int i = 0; i < w->n; i++)
    if (w->dims[i].dim == dim) return true;
  return false;
}

// Finds the dim of the result that indexes the same axis as reduction dim |r|.
static bool pair(making *w, int r) {
  const kiln_symbol name = w->t->dims[r].name;
  const int64_t step = kiln_stmt_load_stride(w->cx, w->p, w->t, w->load, name);
  kiln_window_dim best = {-1, r, INT64_MAX, 0};
  if (!kiln_expr_uses(w->value, name)) return true;
  if (step <= 0 || step == INT64_MAX || w->n == KILN_WINDOW_DIMS) return false;
  for (int d = 0; d < w->t->n_space; d++) {
    const int64_t stride = kiln_stmt_load_stride(w->cx, w->p, w->t, w->load, w->t->dims[d].name);
    if (stride <= 0 || stride == INT64_MAX || stride % step || is_paired(w, d)) continue;
    if (stride / step < best.stride) best.dim = d, best.stride = stride / step;
  }
  if (best.dim < 0 || best.stride > MAX_STRIDE) return false;
  best.extent = best.stride * (extent_of(w->t, best.dim) - 1) + extent_of(w->t, r);
  w->dims[w->n++] = best;
  return true;
}

kiln_stmt *kiln_window_stmt(kiln_ctx *cx, kiln_program *p, kiln_symbol origin, const char *name,
                            kiln_dtype t, int n, const kiln_dim *dims) {
  const kiln_expr *extents[KILN_MAX_RANK] = {0};
  for (int d = 0; d < n; d++) extents[d] = dims[d].extent;
  kiln_tensor *out = kiln_tensor_make(cx, p, name, t, KILN_TEMP, n, extents);
  kiln_stmt *s = KILN_NEW(&cx->perm, kiln_stmt);
  *s = (kiln_stmt){.origin = origin, .n_space = n, .out = out->id};
  s->dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, n);
  s->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n);
  for (int d = 0; d < n; d++) {
    s->dims[d] = dims[d];
    s->index[d] = kiln_var(cx, dims[d].name);
  }
  return s;
}

static int pair_of(const making *w, int dim) {
  for (int i = 0; i < w->n; i++)
    if (w->dims[i].dim == dim) return i;
  return -1;
}

// Makes P, whose body is the window's element; NULL if that depends on more than P's dims. |index|
// is the index at which T reads it.
static kiln_stmt *make_elements(making *w, const kiln_expr **index) {
  kiln_ctx *cx = w->cx;
  kiln_dim dims[KILN_MAX_RANK];
  kiln_symbol from[KILN_WINDOW_DIMS];
  const kiln_expr *to[KILN_WINDOW_DIMS];
  int n = 0;
  for (int d = 0; d < w->t->n_space; d++) {
    const int k = pair_of(w, d);
    const kiln_expr *at = kiln_stmt_var(cx, w->t, d);
    if (k < 0 && !kiln_expr_uses(w->value, w->t->dims[d].name)) continue;
    dims[n] = w->t->dims[d];
    if (k >= 0) {
      const kiln_window_dim *x = &w->dims[k];
      const kiln_symbol name = kiln_symbol_printf(cx, "h%d", d);
      const kiln_expr *begin = kiln_mul(cx, at, kiln_int(cx, x->stride));
      dims[n] = (kiln_dim){name, kiln_int(cx, x->extent)};
      from[k] = w->t->dims[x->reduction].name;
      to[k] = kiln_sub(cx, kiln_var(cx, name), begin);
      at = kiln_add(cx, begin, kiln_var(cx, from[k]));
    }
    index[n++] = at;
  }
  kiln_stmt *s = kiln_window_stmt(w->cx, w->p, w->t->origin, "P", w->element->dtype, n, dims);
  s->body = kiln_expr_substitute(cx, w->element, w->n, from, to);
  kiln_ranges r = kiln_stmt_ranges(&cx->scratch, s);
  for (int k = 0; k < w->n; k++)
    kiln_ranges_push(&r, w->t->dims[w->dims[k].dim].name, 0, extent_of(w->t, w->dims[k].dim) - 1);
  s->body = kiln_simplify(cx, s->body, &r);
  for (int k = 0; k < w->n; k++)
    if (kiln_expr_uses(s->body, w->t->dims[w->dims[k].dim].name)) return NULL;
  return s;
}

// Makes a transposed copy of a constant operand that is not contiguous along the result's last dim;
// its axes are the dims that index it, the last innermost.
static kiln_stmt *make_constant(making *w, const kiln_expr **out_load, const kiln_expr **index) {
  const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, w->t->body);
  const int last = w->t->n_space - 1, n_dims = w->t->n_space + w->t->n_reduce;
  for (int i = 0; i < loads.n; i++) {
    const kiln_expr *load = loads.data[i];
    const kiln_tensor *from = w->p->tensors.data[load->u.tensor];
    const int64_t stride = kiln_stmt_load_stride(w->cx, w->p, w->t, load, w->t->dims[last].name);
    kiln_dim dims[KILN_MAX_RANK];
    int n = 0;
    if (from->role != KILN_CONST || stride <= 1 || stride == INT64_MAX) continue;
    for (int d = w->t->n_space; d < n_dims; d++)
      if (kiln_expr_uses(load, w->t->dims[d].name)) dims[n++] = w->t->dims[d];
    for (int d = 0; d <= last; d++)
      if (kiln_expr_uses(load, w->t->dims[d].name)) dims[n++] = w->t->dims[d];
    for (int d = 0; d < n; d++) index[d] = kiln_var(w->cx, dims[d].name);
    kiln_stmt *s = kiln_window_stmt(w->cx, w->p, w->t->origin, "K", load->dtype, n, dims);
    s->body = kiln_stmt_simplify(w->cx, s, load);
    *out_load = load;
    return s;
  }
  return NULL;
}

typedef struct reading {
  const kiln_expr *from[2], *to[2];
} reading;

static const kiln_expr *read_new(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const reading *r = argument;
  (void)cx;
  for (int i = 0; i < 2; i++)
    if (r->from[i] == e) return r->to[i];
  return NULL;
}

// Whether operands and result are contiguous along the result's last dim.
static bool runs_along_last(making *w) {
  const int last = w->t->n_space - 1;
  const kiln_tensor *y = w->p->tensors.data[w->p->stmts.data[w->p->stmts.n - 1]->out];
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(y, strides);
  return strides[last] == 1 && !is_paired(w, last) &&
         kiln_stmt_load_stride(w->cx, w->p, w->t, w->load, w->t->dims[last].name) == 1;
}

static bool overlaps(const making *w) {
  for (int i = 0; i < w->n; i++)
    if (extent_of(w->t, w->dims[i].reduction) > w->dims[i].stride) return true;
  return w->value != w->load; // one guard an element
}

static bool find_windows(making *w) {
  if (!kiln_window_sum(w->p, &w->t)) return false;
  w->value = value_in(w, w->t->body);
  w->load = w->value ? load_in(w, w->value) : NULL;
  if (!w->load) return false;
  w->element = before_widening(w->cx, w->value);
  for (int r = w->t->n_space; r < w->t->n_space + w->t->n_reduce; r++)
    if (!pair(w, r)) return false;
  return w->n > 0 && overlaps(w) && runs_along_last(w);
}

bool kiln_window_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p) {
  (void)m;
  making w = {.cx = cx, .p = p};
  const kiln_expr *at_p[KILN_MAX_RANK], *at_k[KILN_MAX_RANK];
  reading r = {0};
  if (!find_windows(&w)) return false;
  kiln_stmt *elements = make_elements(&w, at_p);
  if (!elements) return false;
  kiln_stmt *constant = make_constant(&w, &r.from[1], at_k);
  const int n = p->stmts.n;
  kiln_stmt **old = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, n);
  for (int i = 0; i < n; i++) old[i] = p->stmts.data[i];
  r.from[0] = w.value;
  r.to[0] =
      kiln_cast(cx, w.value->dtype, kiln_tensor_load(cx, p->tensors.data[elements->out], at_p));
  if (constant) r.to[1] = kiln_tensor_load(cx, p->tensors.data[constant->out], at_k);
  w.t->body = kiln_expr_replace(cx, w.t->body, read_new, &r);
  p->stmts.n = 0;
  kiln_stmt_append(w.cx, w.p, elements);
  if (constant) kiln_stmt_append(w.cx, w.p, constant);
  for (int i = 0; i < n; i++) kiln_stmt_append(w.cx, w.p, old[i]);
  return true;
}

// The statement before |t| whose result |load| reads; NULL if there is none.
static const kiln_stmt *written_before(const kiln_program *p, const kiln_expr *load, int t) {
  for (int i = 0; i < t; i++)
    if (p->stmts.data[i]->out == load->u.tensor) return p->stmts.data[i];
  return NULL;
}

// Reads along axis |k| of P: index[k] must be a dim times a stride, plus a reduction dim.
static bool read_dim(kiln_ctx *cx, const kiln_stmt *t, const kiln_expr *at, kiln_window_dim *out) {
  out->dim = out->reduction = -1;
  for (int d = 0; d < t->n_space + t->n_reduce; d++) {
    if (!kiln_expr_uses(at, t->dims[d].name)) continue;
    if (d < t->n_space) out->dim = d;
    else out->reduction = d;
  }
  if (out->dim < 0 || out->reduction < 0) return false;
  kiln_symbol vars[] = {t->dims[out->dim].name, t->dims[out->reduction].name};
  const kiln_expr *one[] = {kiln_int(cx, 1), kiln_int(cx, 0)};
  return kiln_expr_is_int(kiln_stmt_simplify(cx, t, kiln_expr_substitute(cx, at, 2, vars, one)),
                          &out->stride);
}

bool kiln_window_is(kiln_ctx *cx, const kiln_program *p, kiln_window *out) {
  *out = (kiln_window){.y = p->stmts.data[p->stmts.n - 1]};
  int t = 0;
  while (t < p->stmts.n && p->stmts.data[t]->n_reduce == 0) t++;
  if (t == 0 || t > 2 || t + 1 >= p->stmts.n) return false;
  out->t = p->stmts.data[t];
  for (int i = t + 1; i < p->stmts.n; i++)
    if (!finishes(p->stmts.data[i], out->t)) return false;
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, out->t->body);
  for (int i = 0; i < loads.n; i++) {
    const kiln_stmt *s = written_before(p, loads.data[i], t);
    if (!s) continue;
    kiln_window_dim dims[KILN_WINDOW_DIMS + 1];
    int n = 0;
    for (int k = 0; k < loads.data[i]->n_args && n < KILN_WINDOW_DIMS; k++)
      if (read_dim(cx, out->t, loads.data[i]->args[k], &dims[n])) {
        const kiln_dim *of = &s->dims[k];
        dims[n++].extent = kiln_dim_extent(of);
      }
    if (n == 0) {
      out->k = s;
      continue;
    }
    out->p = s;
    out->n = n;
    for (int k = 0; k < n; k++) out->dims[k] = dims[k];
  }
  return out->p && (t == 1 || out->k);
}

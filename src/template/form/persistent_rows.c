#include "template/form/persistent_rows.h"

enum { MAX_HELD = 6 };

// Whether all statements have the dim.
static bool is_shared(const kiln_program *p, kiln_symbol name) {
  for (int i = 0; i < p->stmts.n; i++)
    if (kiln_stmt_space_dim(p->stmts.data[i], name) < 0) return false;
  return true;
}

// The dim that |s| has beside the shared ones, which must be its last; -1 if it has none, -2 if it
// has several or not as the last.
static int own_dim(const kiln_program *p, const kiln_stmt *s) {
  int own = -1;
  for (int d = 0; d < s->n_space + s->n_reduce; d++) {
    if (d < s->n_space && is_shared(p, s->dims[d].name)) continue;
    if (own >= 0) return -2;
    own = d;
  }
  return own >= 0 && own != s->n_space + s->n_reduce - 1 ? -2 : own;
}

int64_t kiln_persistent_row_length(const kiln_program *p) {
  int64_t row = 0;
  bool sums = false;
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    const int own = own_dim(p, s);
    if (own == -2 || s->guard || s->init) return 0;
    if (own < 0) continue;
    const int64_t extent = kiln_dim_extent(&s->dims[own]);
    if (row && extent != row) return 0;
    row = extent;
    sums |= s->n_reduce > 0;
  }
  return sums && p->stmts.data[p->stmts.n - 1]->n_space > 0 ? row : 0;
}

// |load| of |s| at the row's dim |name|. NULL if it does not read along the row element by element,
// or is guarded, as a padding's load, which has no element there.
static const kiln_expr *along_row(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                                  const kiln_expr *load, kiln_symbol name) {
  const int own = own_dim(p, s);
  const kiln_expr *to = kiln_var(cx, name);
  if (own < 0 || p->tensors.data[load->u.tensor]->role == KILN_TEMP) return NULL;
  for (int k = 0; k < load->n_args; k++)
    if (load->args[k]->has_load) return NULL;
  bool of_row = false; // otherwise it is small, and the same for all rows
  for (int d = 0; d < s->n_space; d++) of_row |= d != own && kiln_expr_uses(load, s->dims[d].name);
  if (!of_row || kiln_stmt_load_stride(cx, p, s, load, s->dims[own].name) != 1) return NULL;
  const kiln_ranges ranges = kiln_stmt_ranges(&cx->scratch, s);
  if (!kiln_load_is_inside(cx, p, load, &ranges)) return NULL;
  return kiln_expr_substitute(cx, load, 1, &s->dims[own].name, &to);
}

typedef struct held {
  const kiln_program *p;
  const kiln_stmt *s; // the statement that is rewritten
  kiln_symbol name;
  int n, n_users[MAX_HELD];
  const kiln_expr *loads[MAX_HELD];
  kiln_stmt *made[MAX_HELD];
} held;

static void count_loads(kiln_ctx *cx, held *h) {
  for (int i = 0; i < h->p->stmts.n; i++) {
    const kiln_stmt *s = h->p->stmts.data[i];
    const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, s->body);
    for (int k = 0; k < loads.n; k++) {
      const kiln_expr *load = along_row(cx, h->p, s, loads.data[k], h->name);
      int at = 0;
      while (load && at < h->n && h->loads[at] != load) at++;
      if (!load || at == MAX_HELD) continue;
      h->loads[at] = load;
      h->n_users[at]++;
      if (at == h->n) h->n++;
    }
  }
}

static kiln_stmt *make_copy(kiln_ctx *cx, kiln_program *p, const kiln_expr *load, kiln_symbol name,
                            int64_t row) {
  const kiln_stmt *root = p->stmts.data[p->stmts.n - 1];
  const kiln_expr *extents[KILN_MAX_RANK] = {0};
  kiln_stmt *s = KILN_NEW(&cx->perm, kiln_stmt);
  *s = (kiln_stmt){.origin = root->origin, .body = load};
  s->dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, root->n_space + 1);
  s->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, root->n_space + 1);
  for (int d = 0; d < root->n_space; d++)
    if (is_shared(p, root->dims[d].name)) s->dims[s->n_space++] = root->dims[d];
  s->dims[s->n_space++] = (kiln_dim){name, kiln_int(cx, row)};
  for (int d = 0; d < s->n_space; d++) {
    extents[d] = s->dims[d].extent;
    s->index[d] = kiln_var(cx, s->dims[d].name);
  }
  s->out = kiln_tensor_make(cx, p, "X", load->dtype, KILN_TEMP, s->n_space, extents)->id;
  return s;
}

static const kiln_expr *read_copy(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const held *h = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_expr *load = along_row(cx, h->p, h->s, e, h->name);
  for (int i = 0; load && i < h->n; i++) {
    const kiln_stmt *from = h->made[i];
    if (h->loads[i] != load || !from) continue;
    const kiln_stmt *s = h->s;
    for (int d = 0; d + 1 < from->n_space; d++) index[d] = kiln_var(cx, from->dims[d].name);
    index[from->n_space - 1] = kiln_stmt_var(cx, s, own_dim(h->p, s));
    return kiln_tensor_load(cx, h->p->tensors.data[from->out], index);
  }
  return NULL;
}

bool kiln_persistent_rows_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p) {
  (void)m;
  held h = {.p = p, .name = kiln_symbol_of(cx, "x")};
  const int64_t row = kiln_persistent_row_length(p);
  const int n = p->stmts.n;
  if (!row) return true;
  count_loads(cx, &h);
  for (int i = 0; i < h.n; i++)
    if (h.n_users[i] > 1) h.made[i] = make_copy(cx, p, h.loads[i], h.name, row);
  const kiln_expr **bodies = KILN_NEW_ARRAY(&cx->scratch, const kiln_expr *, n);
  kiln_stmt **old = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, n);
  for (int i = 0; i < n; i++) {
    h.s = old[i] = p->stmts.data[i];
    bodies[i] = kiln_expr_replace(cx, h.s->body, read_copy, &h);
  }
  p->stmts.n = 0;
  for (int i = 0; i < h.n; i++)
    if (h.made[i]) kiln_stmt_append(cx, p, h.made[i]);
  for (int i = 0; i < n; i++) {
    old[i]->body = bodies[i];
    kiln_stmt_append(cx, p, old[i]);
  }
  return true;
}

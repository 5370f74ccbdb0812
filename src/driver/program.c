// Programs as the driver handles them: copies, halves, and the dimensions that nobody has bound.
#include "driver/ranges.h"
#include "rewrite/constants.h"
#include "rewrite/half.h"

#include <string.h>

static void *copy_array(kiln_ctx *cx, const void *from, int n, size_t elem_bytes) {
  if (!from) return NULL;
  void *to = kiln_arena_zalloc(&cx->perm, (size_t)(n > 0 ? n : 1) * elem_bytes);
  if (n > 0) memcpy(to, from, (size_t)n * elem_bytes);
  return to;
}

static kiln_tensor *copy_tensor(kiln_ctx *cx, const kiln_tensor *t) {
  kiln_tensor *copy = copy_array(cx, t, 1, sizeof *t);
  copy->shape = copy_array(cx, t->shape, t->rank, sizeof *t->shape);
  return copy;
}

static kiln_stmt *copy_stmt(kiln_ctx *cx, const kiln_stmt *s, int rank) {
  kiln_stmt *copy = copy_array(cx, s, 1, sizeof *s);
  copy->dims = copy_array(cx, s->dims, s->n_space + s->n_reduce, sizeof *s->dims);
  copy->index = copy_array(cx, s->index, rank, sizeof *s->index);
  return copy;
}

static kiln_map copy_map(kiln_ctx *cx, const kiln_map *m) {
  kiln_map copy;
  kiln_map_init(&copy, &cx->perm);
  for (int i = 0; i < m->n; i++) kiln_map_put(&copy, m->entries[i].key, m->entries[i].value);
  return copy;
}

kiln_program *kiln_program_copy(kiln_ctx *cx, const kiln_program *p) {
  kiln_program *copy = copy_array(cx, p, 1, sizeof *p);
  copy->tensors.data = copy_array(cx, p->tensors.data, p->tensors.n, sizeof *p->tensors.data);
  copy->stmts.data = copy_array(cx, p->stmts.data, p->stmts.n, sizeof *p->stmts.data);
  copy->inputs.data = copy_array(cx, p->inputs.data, p->inputs.n, sizeof *p->inputs.data);
  copy->outputs.data = copy_array(cx, p->outputs.data, p->outputs.n, sizeof *p->outputs.data);
  copy->shape_of.data = copy_array(cx, p->shape_of.data, p->shape_of.n, sizeof *p->shape_of.data);
  copy->checks.data = copy_array(cx, p->checks.data, p->checks.n, sizeof *p->checks.data);
  if (p->names.arena) copy->names = copy_map(cx, &p->names);
  copy->tensors.cap = p->tensors.n;
  copy->stmts.cap = p->stmts.n;
  copy->inputs.cap = p->inputs.n;
  copy->outputs.cap = p->outputs.n;
  copy->shape_of.cap = p->shape_of.n;
  copy->checks.cap = p->checks.n;
  for (int i = 0; i < copy->tensors.n; i++)
    if (p->tensors.data[i]) copy->tensors.data[i] = copy_tensor(cx, p->tensors.data[i]);
  for (int i = 0; i < copy->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    if (s) copy->stmts.data[i] = copy_stmt(cx, s, p->tensors.data[s->out]->rank);
  }
  return copy;
}

// --- halves ---

kiln_status kiln_model_halve(kiln_ctx *cx, const kiln_model *m, kiln_program *p) {
  int n_folded = 0;
  if (m->half == KILN_F32) return KILN_OK;
  KILN_TRY(kiln_program_fold_constants(cx, p, &n_folded));
  kiln_program_to_half(cx, p, m->half);
  return KILN_OK;
}

kiln_status kiln_model_meaning(kiln_ctx *cx, kiln_model *m, const kiln_program **out) {
  if (m->half != KILN_F32 && !m->halved) {
    kiln_program *p = kiln_program_copy(cx, m->prog);
    KILN_TRY(kiln_model_halve(cx, m, p));
    m->halved = p;
  }
  *out = m->halved ? m->halved : m->prog;
  return KILN_OK;
}

// --- unbound dimensions ---

typedef struct names {
  kiln_ctx *cx;
  kiln_map seen;
  kiln_text text, options; // 'M', 'N'; and --size M=64 --size N=64
} names;

static void add_name(const kiln_expr *e, void *argument) {
  names *n = argument;
  if (e->kind != KILN_EXPR_VAR || kiln_map_find(&n->seen, e->u.sym)) return;
  kiln_map_put(&n->seen, e->u.sym, 1);
  const char *name = kiln_symbol_text(n->cx, e->u.sym);
  kiln_text_printf(&n->text, "%s'%s'", n->text.n ? ", " : "", name);
  kiln_text_printf(&n->options, " --size %s=64", name);
}

static void find_names(const kiln_program *p, names *n) {
  // Inputs first: their names are those that a user knows.
  for (int i = 0; i < p->inputs.n; i++) {
    const kiln_tensor *t = p->tensors.data[p->inputs.data[i]];
    for (int k = 0; k < t->rank; k++) kiln_expr_visit(n->cx, t->shape[k], add_name, n);
  }
  for (int i = 0; i < p->tensors.n && n->seen.n == 0; i++) {
    const kiln_tensor *t = p->tensors.data[i];
    for (int k = 0; t && k < t->rank; k++) kiln_expr_visit(n->cx, t->shape[k], add_name, n);
  }
}

static kiln_status unbound(const kiln_model *m, const names *n, kiln_diag *diag) {
  if (m->definition)
    return KILN_FAIL(diag, KILN_UNSUPPORTED, m->path,
                     "definition %s: every size must be given, got none for %s: add%s",
                     m->definition->name, n->text.data, n->options.data);
  const char *first = kiln_symbol_text(n->cx, (kiln_symbol)n->seen.entries[0].key);
  return KILN_FAIL(diag, KILN_UNSUPPORTED, m->path,
                   n->seen.n == 1
                       ? "dimension %s is symbolic: bind it with --dim %s=N"
                       : "dimensions %s are symbolic: bind each with --dim, as --dim %s=N",
                   n->text.data, first);
}

kiln_status kiln_model_want_program(const kiln_model *m, kiln_diag *diag) {
  if (!m->prog)
    return KILN_FAIL(diag, KILN_BAD_INPUT, m->path,
                     "model: must be loaded for compilation, got one loaded with read_only");
  if (m->ranges)
    return KILN_FAIL(
        diag, KILN_UNSUPPORTED, m->path,
        "dimension %s: must have one value here, got a range: only modules for CPUs that are "
        "written to a file take ranges",
        m->ranges->dims[0].name);
  kiln_ctx *cx = &m->core->cx;
  names n = {.cx = cx};
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_map_init(&n.seen, &cx->scratch);
  kiln_text_init(&n.text, &cx->scratch);
  kiln_text_init(&n.options, &cx->scratch);
  find_names(m->prog, &n);
  const kiln_status st = n.seen.n > 0 ? unbound(m, &n, diag) : KILN_OK;
  kiln_arena_rewind(&cx->scratch, mark);
  return st;
}

uint64_t kiln_storage_bytes(const kiln_tensor *t) {
  int64_t shape[KILN_MAX_RANK], strides[KILN_MAX_RANK], elems = 1;
  kiln_tensor_static_shape(t, shape);
  kiln_tensor_strides(t, strides);
  for (int k = 0; k < t->rank; k++) {
    if (shape[k] == 0) return 0;
    elems += (shape[k] - 1) * strides[k];
  }
  return (uint64_t)elems * (uint64_t)kiln_dtype_bytes(t->dtype);
}

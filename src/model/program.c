// Programs of a model: conversion to half types, and unbound dimensions.
#include "model/model.h"
#include "rewrite/constants.h"
#include "rewrite/half.h"

#include <string.h>

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
  // Inputs first: users know their names.
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
  if (m->parted)
    return KILN_FAIL(diag, KILN_UNSUPPORTED, m->path,
                     "loops: must be unrolled here, got one that cannot be: only modules for CPUs, "
                     "without schedules, keep loops");
  if (m->ranges)
    return KILN_FAIL(
        diag, KILN_UNSUPPORTED, m->path,
        "dimension %s: must have one value here, got a range: only modules that are written "
        "to a file take ranges",
        m->ranged);
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

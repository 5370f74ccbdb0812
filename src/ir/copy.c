// Copies of programs.
#include "ir/prim.h"

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

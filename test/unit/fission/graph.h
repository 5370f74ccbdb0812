// Graphs made by hand, for the tests of fission.
#ifndef KILN_TEST_FISSION_GRAPH_H
#define KILN_TEST_FISSION_GRAPH_H

#include "analysis/interpret.h"
#include "fission/lower.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_VALUES = 32, MAX_NODES = 16, MAX_ENDS = 8, MAX_ATTRS = 4 };

typedef struct fixture {
  kiln_diag *diag;
  kiln_ctx own, *cx; // |cx| is |own|, or that of the enclosing graph's fixture
  kiln_graph g;
  kiln_program *p;
  kiln_value *values[MAX_VALUES];
  kiln_node *nodes[MAX_NODES];
  int inputs[MAX_ENDS], outputs[MAX_ENDS];
} fixture;

static inline void fixture_init(fixture *f, kiln_ctx *cx) {
  f->cx = cx;
  f->g = (kiln_graph){.name = kiln_symbol_of(cx, "test"),
                      .values = f->values,
                      .nodes = f->nodes,
                      .inputs = f->inputs,
                      .outputs = f->outputs};
}

static inline int setup(void **state) {
  fixture *f = calloc(1, sizeof(*f));
  if (!f) return 1;
  f->diag = kiln_diag_create();
  *state = f;
  if (kiln_ctx_init(&f->own, f->diag) != KILN_OK) return 1;
  fixture_init(f, &f->own);
  return 0;
}

static inline int teardown(void **state) {
  fixture *f = *state;
  kiln_ctx_deinit(&f->own);
  kiln_diag_destroy(f->diag);
  free(f);
  return 0;
}

static inline int add_value(fixture *f, const char *name) {
  kiln_value *v = KILN_NEW(&f->cx->perm, kiln_value);
  assert_true(f->g.n_values < MAX_VALUES);
  *v = (kiln_value){.id = f->g.n_values, .name = kiln_symbol_of(f->cx, name), .producer = -1};
  f->values[f->g.n_values++] = v;
  return v->id;
}

// An extent below 0 is the named dimension "a", "b", ... for -1, -2, ...
static inline int add_input(fixture *f, const char *name, kiln_dtype t, int rank,
                            const int64_t *shape) {
  kiln_value *v = f->values[add_value(f, name)];
  v->has_type = v->has_shape = true;
  v->dtype = t;
  v->rank = rank;
  v->shape = KILN_NEW_ARRAY(&f->cx->perm, const kiln_expr *, rank);
  for (int a = 0; a < rank; a++)
    v->shape[a] =
        shape[a] >= 0
            ? kiln_int(f->cx, shape[a])
            : kiln_var(f->cx, kiln_symbol_printf(f->cx, "%c", (char)('a' - 1 - shape[a])));
  f->inputs[f->g.n_inputs++] = v->id;
  return v->id;
}

// Elements are given as doubles. Rank -1 is a scalar.
static inline int add_const(fixture *f, const char *name, kiln_dtype t, int n,
                            const double *elements) {
  kiln_value *v = f->values[add_value(f, name)];
  kiln_const *c = KILN_NEW(&f->cx->perm, kiln_const);
  *c = (kiln_const){.dtype = t, .rank = n < 0 ? 0 : 1, .shape = {n}};
  const int count = n < 0 ? 1 : n;
  void *data = kiln_arena_zalloc(&f->cx->perm, 8 * (size_t)count + 8);
  for (int i = 0; i < count; i++) kiln_element_set(t, data, i, elements[i]);
  c->data = data;
  c->bytes = (size_t)count * (size_t)kiln_dtype_bytes(t);
  v->constant = c;
  v->has_type = v->has_shape = true;
  v->dtype = t;
  return v->id;
}

static inline kiln_node *add_node(fixture *f, const char *op, int64_t opset, int n_inputs,
                                  const int *inputs, int output) {
  kiln_node *n = KILN_NEW(&f->cx->perm, kiln_node);
  assert_true(f->g.n_nodes < MAX_NODES);
  *n = (kiln_node){.id = f->g.n_nodes,
                   .name = kiln_symbol_printf(f->cx, "n%d", f->g.n_nodes),
                   .op = kiln_symbol_of(f->cx, op),
                   .opset = opset,
                   .n_inputs = n_inputs,
                   .n_outputs = 1};
  n->inputs = KILN_NEW_ARRAY(&f->cx->perm, int, n_inputs);
  for (int i = 0; i < n_inputs; i++) n->inputs[i] = inputs[i];
  n->outputs = KILN_NEW_ARRAY(&f->cx->perm, int, 1);
  n->outputs[0] = output;
  n->attrs = KILN_NEW_ARRAY(&f->cx->perm, kiln_attr, MAX_ATTRS);
  f->values[output]->producer = n->id;
  f->nodes[f->g.n_nodes++] = n;
  return n;
}

// A node and the value it makes.
static inline int node(fixture *f, const char *op, int64_t opset, int n_inputs, const int *inputs) {
  char name[16];
  snprintf(name, sizeof(name), "v%d", f->g.n_values);
  const int output = add_value(f, name);
  add_node(f, op, opset, n_inputs, inputs, output);
  return output;
}

static inline kiln_attr *add_attr(fixture *f, const char *name, kiln_attr_kind kind) {
  kiln_node *n = f->nodes[f->g.n_nodes - 1];
  assert_true(n->n_attrs < MAX_ATTRS);
  kiln_attr *a = &n->attrs[n->n_attrs++];
  *a = (kiln_attr){.name = kiln_symbol_of(f->cx, name), .kind = kind};
  return a;
}

static inline void add_int(fixture *f, const char *name, int64_t value) {
  add_attr(f, name, KILN_ATTR_INT)->u.i = value;
}

static inline void add_output(fixture *f, int value) { f->outputs[f->g.n_outputs++] = value; }

static inline kiln_status lower(fixture *f) { return kiln_fission(f->cx, &f->g, &f->p); }

static inline void must_lower(fixture *f) {
  const kiln_status status = lower(f);
  for (size_t i = 0; i < kiln_diag_count(f->diag); i++)
    print_message("  %s\n", kiln_diag_message(f->diag, i));
  assert_int_equal(status, KILN_OK);
}

static inline const kiln_tensor *output(const fixture *f, int i) {
  return f->p->tensors.data[f->p->outputs.data[i]];
}

static inline bool has_message(const fixture *f, const char *part) {
  for (size_t i = 0; i < kiln_diag_count(f->diag); i++)
    if (strstr(kiln_diag_message(f->diag, i), part)) return true;
  return false;
}

#endif

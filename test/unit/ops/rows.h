// Rows of text that test one operator each: a node with its inputs, and what comes out of the
// interpreter, as text. Inputs and outputs are "f32 2x3: 1 2 3 4 5 6"; a leading "const " makes an
// initializer, "-" an omitted input, an extent that is a letter a named dimension (then only shapes
// are compared: "f32 Nx3"). Attributes are "axis=1 alpha=0.5 mode="linear" pads=[1, 1]".
#ifndef KILN_TEST_OPS_ROWS_H
#define KILN_TEST_OPS_ROWS_H

#include "analysis/interpret.h"
#include "fission/lower.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROW_ENDS = 10, ROW_ATTRS = 12, ROW_ELEMS = 2048 };

typedef struct row {
  const char *claim;
  const char *op; // "Conv", or "DOMAIN:NAME"
  int opset;
  const char *attrs, *inputs;
  const char *outputs; // separated by ';'
  const char *error;   // a part of the message; NULL: it must lower
} row;

// One row at work.
typedef struct bench {
  kiln_ctx cx;
  kiln_diag *diag;
  kiln_graph g;
  kiln_node node, *nodes[1];
  kiln_value values[2 * ROW_ENDS], *value_list[2 * ROW_ENDS];
  kiln_attr attrs[ROW_ATTRS];
  int ins[ROW_ENDS], outs[ROW_ENDS], graph_ins[ROW_ENDS];
  const void *data[2 * ROW_ENDS]; // by value
  kiln_program *p;
} bench;

static inline int row_value(bench *b, const char *prefix) {
  const int id = b->g.n_values++;
  b->values[id] = (kiln_value){.id = id, .producer = -1};
  b->values[id].name = kiln_symbol_printf(&b->cx, "%s%d", prefix, id);
  b->value_list[id] = &b->values[id];
  return id;
}

// "2xN" into a shape; the rank. Nothing is rank 0.
static inline int row_shape(bench *b, const char *text, const kiln_expr **out) {
  int rank = 0;
  while (*text) {
    char *end = NULL;
    const long long n = strtoll(text, &end, 10);
    if (end == text) {
      out[rank++] = kiln_var(&b->cx, kiln_symbol_of_bytes(&b->cx, text, 1));
      end = (char *)text + 1;
    } else {
      out[rank++] = kiln_int(&b->cx, n);
    }
    text = *end == 'x' ? end + 1 : end;
  }
  return rank;
}

static inline void *row_elements(bench *b, kiln_dtype t, const char *text, size_t *out_bytes) {
  void *data = kiln_arena_zalloc(&b->cx.perm, 8 * ROW_ELEMS);
  int n = 0;
  for (char *end = NULL;; text = end) {
    const double v = strtod(text, &end);
    if (end == text) break;
    assert_true(n < ROW_ELEMS);
    kiln_element_set(t, data, n++, v);
  }
  *out_bytes = (size_t)n * (size_t)kiln_dtype_bytes(t);
  return data;
}

static inline void row_input(bench *b, const char *text) {
  char type[16], shape[64] = "";
  const bool is_const = strncmp(text, "const ", 6) == 0;
  if (is_const) text += 6;
  if (*text == '-') {
    b->ins[b->node.n_inputs++] = -1;
    return;
  }
  const int id = row_value(b, "x");
  kiln_value *v = &b->values[id];
  assert_true(sscanf(text, "%15[a-z0-9] %63[A-Z0-9x]", type, shape) >= 1);
  assert_true(kiln_dtype_parse(type, strlen(type), &v->dtype));
  const kiln_expr **extents = KILN_NEW_ARRAY(&b->cx.perm, const kiln_expr *, KILN_MAX_RANK);
  v->rank = row_shape(b, shape, extents);
  v->shape = extents;
  v->has_type = v->has_shape = true;
  const char *elements = strchr(text, ':');
  size_t bytes = 0;
  if (elements) b->data[id] = row_elements(b, v->dtype, elements + 1, &bytes);
  if (is_const) {
    kiln_const *c = KILN_NEW(&b->cx.perm, kiln_const);
    *c = (kiln_const){.dtype = v->dtype, .rank = v->rank, .data = b->data[id], .bytes = bytes};
    for (int i = 0; i < v->rank; i++) assert_true(kiln_expr_is_int(extents[i], &c->shape[i]));
    v->constant = c;
  } else {
    b->graph_ins[b->g.n_inputs++] = id;
  }
  b->ins[b->node.n_inputs++] = id;
}

// Calls |each| for every piece of |text| between ';'.
static inline void row_pieces(bench *b, const char *text, void (*each)(bench *, const char *)) {
  char list[1 << 14], *save = NULL;
  snprintf(list, sizeof list, "%s", text);
  for (char *w = strtok_r(list, ";", &save); w; w = strtok_r(NULL, ";", &save))
    each(b, w + strspn(w, " "));
}

static inline const char *row_names(bench *b, kiln_attr *a, const char *text) {
  kiln_symbol *names = KILN_NEW_ARRAY(&b->cx.perm, kiln_symbol, ROW_ELEMS);
  for (; *text == '"'; text += strspn(text, ", ")) {
    const size_t n = strcspn(text + 1, "\"");
    names[a->n++] = kiln_symbol_of_bytes(&b->cx, text + 1, n);
    text += n + 2;
  }
  a->kind = KILN_ATTR_STRINGS;
  a->u.strings = names;
  return text + 1;
}

static inline const char *row_list(bench *b, kiln_attr *a, const char *text) {
  if (*text == '"') return row_names(b, a, text);
  int64_t *ints = KILN_NEW_ARRAY(&b->cx.perm, int64_t, ROW_ELEMS);
  float *floats = KILN_NEW_ARRAY(&b->cx.perm, float, ROW_ELEMS);
  const bool is_float = memchr(text, '.', strcspn(text, "]")) != NULL;
  while (*text != ']') {
    char *end = NULL;
    floats[a->n] = strtof(text, &end);
    ints[a->n++] = (int64_t)strtoll(text, NULL, 10);
    text = end + strspn(end, ", ");
  }
  a->kind = is_float ? KILN_ATTR_FLOATS : KILN_ATTR_INTS;
  if (is_float) a->u.floats = floats;
  else a->u.ints = ints;
  return text + 1;
}

static inline void row_attrs(bench *b, const char *text) {
  while (*(text += strspn(text, " "))) {
    kiln_attr *a = &b->attrs[b->node.n_attrs++];
    const size_t n = strcspn(text, "=");
    *a = (kiln_attr){.name = kiln_symbol_of_bytes(&b->cx, text, n)};
    text += n + 1;
    char *end = NULL;
    if (*text == '"') {
      const size_t m = strcspn(text + 1, "\"");
      a->kind = KILN_ATTR_STRING;
      a->u.s = kiln_symbol_of_bytes(&b->cx, text + 1, m);
      text += m + 2;
    } else if (*text == '[') {
      text = row_list(b, a, text + 1);
    } else {
      const double v = strtod(text, &end);
      a->kind = memchr(text, '.', (size_t)(end - text)) ? KILN_ATTR_FLOAT : KILN_ATTR_INT;
      if (a->kind == KILN_ATTR_FLOAT) a->u.f = (float)v;
      else a->u.i = (int64_t)v;
      text = end;
    }
  }
}

static inline void row_output(bench *b, const char *text) {
  (void)text;
  const int id = row_value(b, "y");
  b->values[id].producer = 0;
  b->outs[b->node.n_outputs++] = id;
}

static inline void row_begin(bench *b, const row *r) {
  memset(b, 0, sizeof *b);
  b->diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&b->cx, b->diag), KILN_OK);
  b->g = (kiln_graph){.name = kiln_symbol_of(&b->cx, "test"), .values = b->value_list};
  b->g.nodes = b->nodes;
  b->g.n_nodes = 1;
  b->g.inputs = b->graph_ins;
  b->g.outputs = b->node.outputs = b->outs;
  b->nodes[0] = &b->node;
  b->node.inputs = b->ins;
  b->node.attrs = b->attrs;
  const char *op = strchr(r->op, ':');
  if (op) b->node.domain = kiln_symbol_of_bytes(&b->cx, r->op, (size_t)(op - r->op));
  b->node.op = kiln_symbol_of(&b->cx, op ? op + 1 : r->op);
  b->node.opset = r->opset;
  row_attrs(b, r->attrs);
  row_pieces(b, r->inputs, row_input);
  row_pieces(b, r->outputs ? r->outputs : "y", row_output);
  b->g.n_outputs = b->node.n_outputs;
}

static inline void row_end(bench *b) {
  kiln_ctx_deinit(&b->cx);
  kiln_diag_destroy(b->diag);
}

// "f32 2x3" and, when |data| is there, ": 1 2 3 4 5 6".
static inline void row_print(bench *b, const kiln_tensor *t, const void *data, kiln_text *out) {
  kiln_text_printf(out, "%s%s", out->n ? "; " : "", kiln_dtype_text(t->dtype));
  for (int i = 0; i < t->rank; i++) {
    kiln_text_add(out, i ? "x" : " ");
    kiln_expr_print(&b->cx, t->shape[i], NULL, out);
  }
  if (!data) return;
  kiln_text_add(out, ":");
  const int64_t n = kiln_tensor_elems(t);
  for (int64_t i = 0; i < n; i++)
    kiln_text_printf(out, " %.5g", kiln_element_get(t->dtype, data, i));
}

// Runs the program on the row's data; prints the outputs.
static inline const char *row_run(bench *b) {
  kiln_interpreter *in = NULL;
  kiln_text text;
  kiln_text_init(&text, &b->cx.perm);
  kiln_text_add(&text, "");
  bool named = false;
  for (int i = 0; i < kiln_program_n_results(b->p); i++)
    named = named || kiln_tensor_elems(b->p->tensors.data[b->p->outputs.data[i]]) < 0;
  if (!named) assert_int_equal(kiln_interpreter_create(&b->cx, b->p, &in), KILN_OK);
  for (int i = 0; in && i < b->p->inputs.n; i++)
    kiln_interpreter_bind(in, b->p->inputs.data[i], b->data[b->graph_ins[i]]);
  for (int i = 0; i < kiln_program_n_results(b->p); i++) {
    const void *data = NULL;
    const int id = b->p->outputs.data[i];
    if (in) assert_int_equal(kiln_interpreter_compute(in, id, &data), KILN_OK);
    row_print(b, b->p->tensors.data[id], data, &text);
  }
  kiln_interpreter_destroy(in);
  return text.data;
}

static inline const char *row_messages(bench *b) {
  kiln_text t;
  kiln_text_init(&t, &b->cx.perm);
  kiln_text_add(&t, "");
  for (size_t i = 0; i < kiln_diag_count(b->diag); i++)
    kiln_text_printf(&t, "%s\n", kiln_diag_message(b->diag, i));
  return t.data;
}

// Whether the row is as it says; prints what is not.
static inline bool row_holds(const row *r) {
  bench b;
  row_begin(&b, r);
  bool holds = false;
  const kiln_status status = kiln_fission(&b.cx, &b.g, &b.p);
  if (r->error) {
    holds = status != KILN_OK && strstr(row_messages(&b), r->error);
    if (!holds)
      print_message("%s: want the message %s\n got: %s\n", r->claim, r->error, row_messages(&b));
  } else if (status != KILN_OK) {
    print_message("%s: %s\n", r->claim, row_messages(&b));
  } else {
    const char *got = row_run(&b);
    holds = strcmp(got, r->outputs) == 0;
    if (!holds) print_message("%s:\n want %s\n got  %s\n", r->claim, r->outputs, got);
  }
  row_end(&b);
  return holds;
}

static inline void rows_hold(const row *rows, size_t n) {
  int wrong = 0;
  for (size_t i = 0; i < n; i++) wrong += !row_holds(&rows[i]);
  assert_int_equal(wrong, 0);
}

// The statements of a row's program as text: the form that the scheduler recognises.
static inline void row_prints(const row *r, const char *want) {
  bench b;
  row_begin(&b, r);
  assert_int_equal(kiln_fission(&b.cx, &b.g, &b.p), KILN_OK);
  kiln_text t;
  kiln_text_init(&t, &b.cx.perm);
  kiln_program_print(&b.cx, b.p, &t);
  if (!strstr(t.data, want)) print_message("%s:\n want %s\n got %s\n", r->claim, want, t.data);
  assert_non_null(strstr(t.data, want));
  row_end(&b);
}

#endif

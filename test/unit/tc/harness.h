// A node with made-up inputs, lowered by a definition given as text.
#ifndef KILN_TEST_TC_HARNESS_H
#define KILN_TEST_TC_HARNESS_H

#include "support/ctx.h"
#include "fission/notation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct harness {
  kiln_diag *diag;
  kiln_ctx cx;
  kiln_node node;
  kiln_lower lw;
  kiln_tensor *inputs[8], *outputs[4];
  kiln_attr attrs[8];
} harness;

static inline void harness_begin(harness *h) {
  memset(h, 0, sizeof *h);
  h->diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&h->cx, h->diag), KILN_OK);
  h->node.name = h->node.op = kiln_symbol_of(&h->cx, "node");
  h->node.opset = 20;
  h->node.attrs = h->attrs;
  h->lw = (kiln_lower){.cx = &h->cx, .node = &h->node, .place = "model: node"};
  h->lw.prog = kiln_program_make(&h->cx, "test");
  h->lw.inputs = h->inputs;
  h->lw.outputs = h->outputs;
}

static inline void harness_end(harness *h) {
  kiln_ctx_deinit(&h->cx);
  kiln_diag_destroy(h->diag);
}

// "f32 X(4, N)"; extents are numbers or names. "-" is an omitted input.
static inline kiln_tensor *harness_input(harness *h, const char *text) {
  if (strcmp(text, "-") == 0) {
    h->lw.n_inputs++;
    return NULL;
  }
  char type[16], name[64];
  int n = 0, rank = 0;
  assert_int_equal(sscanf(text, "%15s %63[^(]%n", type, name, &n), 2);
  const kiln_expr *shape[KILN_MAX_RANK];
  char list[256], *save = NULL;
  snprintf(list, sizeof list, "%s", text + n);
  for (char *w = strtok_r(list, "(, )", &save); w != NULL; w = strtok_r(NULL, "(, )", &save))
    shape[rank++] = *w >= '0' && *w <= '9' ? kiln_int(&h->cx, atoll(w))
                                           : kiln_var(&h->cx, kiln_symbol_of(&h->cx, w));
  kiln_dtype t;
  assert_true(kiln_dtype_parse(type, strlen(type), &t));
  kiln_tensor *x = kiln_tensor_make(&h->cx, h->lw.prog, name, t, KILN_INPUT, rank, shape);
  KILN_VEC_PUSH(&h->cx.perm, &h->lw.prog->inputs, x->id);
  h->inputs[h->lw.n_inputs++] = x;
  return x;
}

// Inputs separated by ';'.
static inline void harness_inputs(harness *h, const char *text) {
  char list[512], *save = NULL;
  snprintf(list, sizeof list, "%s", text);
  for (char *w = strtok_r(list, ";", &save); w != NULL; w = strtok_r(NULL, ";", &save))
    harness_input(h, w + strspn(w, " "));
}

static inline kiln_attr *harness_attr(harness *h, const char *name, kiln_attr_kind kind) {
  kiln_attr *a = &h->attrs[h->node.n_attrs++];
  a->name = kiln_symbol_of(&h->cx, name);
  a->kind = kind;
  return a;
}

// Lowers; on success makes the outputs the program's and verifies it.
static inline kiln_status harness_lower(harness *h, const char *op_name, const char *file,
                                        const char *text, int n_outputs) {
  kiln_op op = {.domain = "", .name = op_name, .since = 1, .tc = text, .file = file};
  h->lw.n_outputs = n_outputs;
  KILN_TRY(kiln_tc_lower(&h->lw, &op));
  for (int i = 0; i < n_outputs; i++) {
    if (h->outputs[i]->role == KILN_TEMP) h->outputs[i]->role = KILN_OUTPUT;
    KILN_VEC_PUSH(&h->cx.perm, &h->lw.prog->outputs, h->outputs[i]->id);
  }
  return kiln_program_verify(&h->cx, h->lw.prog);
}

static inline char *harness_read(const char *path) {
  char full[512];
  snprintf(full, sizeof full, "%s/%s", KILN_SOURCE_DIR, path);
  FILE *f = fopen(full, "rb");
  assert_non_null(f);
  char *text = calloc(1, 1 << 16);
  assert_non_null(text);
  text[fread(text, 1, (1 << 16) - 1, f)] = '\0';
  fclose(f);
  return text;
}

// All messages, one a line.
static inline const char *harness_messages(harness *h) {
  kiln_text t;
  kiln_text_init(&t, &h->cx.perm);
  for (size_t i = 0; i < kiln_diag_count(h->diag); i++)
    kiln_text_printf(&t, "%s\n", kiln_diag_message(h->diag, i));
  return t.data;
}

#endif

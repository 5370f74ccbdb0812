// Nearly valid nodes: models of the ONNX node tests with attributes, constants, shapes and opsets
// changed at random. Fission must give a status, and the interpreter must run everything it lowers.
// The seeds are fixed; meant for sanitizers.
#include "analysis/interpret.h"
#include "fission/lower.h"
#include "onnx/reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MUTANTS_EACH = 24, MAX_NAME = 512, MAX_RUN_ELEMS = 1 << 14, MAX_RUN_STEPS = 1 << 18 };

typedef struct mutant {
  const char *path;
  uint64_t seed;
  bool lowered;
} mutant;

static uint64_t draw(uint64_t *seed) { // xorshift64
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  *seed ^= *seed << 17;
  return *seed;
}

static int64_t odd_number(uint64_t *seed) {
  static const int64_t numbers[] = {-1,        0,         1,         2,         3,         -2,
                                    4,         5,         7,         -7,        64,        1 << 20,
                                    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, INT64_MAX, 16};
  return numbers[draw(seed) % KILN_LEN(numbers)];
}

static void mutate_attr(kiln_ctx *cx, kiln_attr *a, uint64_t *seed) {
  if (a->kind == KILN_ATTR_INT) a->u.i = odd_number(seed);
  if (a->kind == KILN_ATTR_FLOAT) a->u.f = (float)odd_number(seed);
  if (a->kind != KILN_ATTR_INTS) return;
  const bool cut = draw(seed) % 4 == 0 && a->n > 0;
  int64_t *list = KILN_NEW_ARRAY(&cx->perm, int64_t, a->n);
  for (int i = 0; i < a->n; i++) list[i] = a->u.ints[i];
  if (cut) a->n--;
  else if (a->n > 0) list[draw(seed) % (uint64_t)a->n] = odd_number(seed);
  a->u.ints = list;
}

// Gives an input other extents or another rank, and sometimes makes it a constant of odd numbers.
static void mutate_input(kiln_ctx *cx, kiln_value *v, uint64_t *seed) {
  const kiln_expr **shape = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, KILN_MAX_RANK);
  for (int i = 0; i < v->rank; i++) shape[i] = v->shape[i];
  const uint64_t choice = draw(seed) % 4;
  if (choice == 0 && v->rank > 0) v->rank--;
  else if (choice == 1 && v->rank < KILN_MAX_RANK) shape[v->rank++] = kiln_int(cx, 2);
  else if (v->rank > 0)
    shape[draw(seed) % (uint64_t)v->rank] = kiln_int(cx, (int64_t)(draw(seed) % 6));
  v->shape = shape;
}

// An input as an initializer of odd numbers.
static void make_constant(kiln_ctx *cx, kiln_graph *g, int input, uint64_t *seed) {
  kiln_value *v = g->values[g->inputs[input]];
  kiln_const *c = KILN_NEW(&cx->perm, kiln_const);
  *c = (kiln_const){.dtype = v->dtype, .rank = v->rank};
  int64_t n = 1;
  for (int i = 0; i < v->rank; i++) {
    if (!kiln_expr_is_int(v->shape[i], &c->shape[i])) return;
    n *= c->shape[i];
  }
  if (n > MAX_RUN_ELEMS) return;
  c->bytes = (size_t)n * (size_t)kiln_dtype_bytes(v->dtype);
  void *data = kiln_arena_zalloc(&cx->perm, c->bytes + 8);
  for (int64_t i = 0; i < n; i++) {
    const int64_t number = draw(seed) % 3 ? (int64_t)(draw(seed) % 4) : odd_number(seed);
    if (kiln_dtype_is_float(v->dtype)) kiln_element_set(v->dtype, data, i, (double)number);
    else kiln_element_set_int(v->dtype, data, i, v->dtype == KILN_BOOL ? number & 1 : number);
  }
  c->data = data;
  v->constant = c;
  for (int i = input; i + 1 < g->n_inputs; i++) g->inputs[i] = g->inputs[i + 1];
  g->n_inputs--;
}

static void mutate(kiln_ctx *cx, kiln_graph *g, uint64_t *seed) {
  kiln_node *n = g->nodes[draw(seed) % (uint64_t)g->n_nodes];
  for (uint64_t k = draw(seed) % 3; k > 0 && n->n_attrs > 0; k--)
    mutate_attr(cx, &n->attrs[draw(seed) % (uint64_t)n->n_attrs], seed);
  for (uint64_t k = draw(seed) % 3; k > 0 && g->n_inputs > 0; k--)
    mutate_input(cx, g->values[g->inputs[draw(seed) % (uint64_t)g->n_inputs]], seed);
  for (uint64_t k = draw(seed) % 4; k > 0 && g->n_inputs > 0; k--)
    make_constant(cx, g, (int)(draw(seed) % (uint64_t)g->n_inputs), seed);
  if (draw(seed) % 4 == 0) n->opset = (int64_t)(draw(seed) % 28) + 1;
  if (draw(seed) % 8 == 0 && n->n_inputs > 0) n->n_inputs--;
}

static bool is_small(const kiln_program *p) {
  for (int i = 0; i < p->tensors.n; i++) {
    const int64_t n = kiln_tensor_elems(p->tensors.data[i]);
    if (n < 0 || n > MAX_RUN_ELEMS) return false;
  }
  for (int i = 0; i < p->stmts.n; i++) {
    int64_t steps = 1;
    for (int d = 0; d < p->stmts.data[i]->n_space + p->stmts.data[i]->n_reduce; d++) {
      int64_t extent = 0;
      if (!kiln_expr_is_int(p->stmts.data[i]->dims[d].extent, &extent)) return false;
      if (__builtin_mul_overflow(steps, extent, &steps) || steps > MAX_RUN_STEPS) return false;
    }
  }
  return true;
}

static void run(kiln_ctx *cx, const kiln_program *p, uint64_t *seed) {
  kiln_interpreter *in = NULL;
  if (!is_small(p) || kiln_interpreter_create(cx, p, &in) != KILN_OK) return;
  for (int i = 0; i < p->inputs.n; i++) {
    const kiln_tensor *t = p->tensors.data[p->inputs.data[i]];
    const int64_t n = kiln_tensor_elems(t);
    char *data = kiln_arena_zalloc(&cx->perm, (size_t)n * 8 + 8);
    for (int64_t k = 0; k < n; k++)
      kiln_element_set_int(t->dtype, data, k, (int64_t)(draw(seed) % 9) - 4);
    kiln_interpreter_bind(in, t->id, data);
  }
  (void)kiln_interpreter_run(in);
  kiln_interpreter_destroy(in);
}

static kiln_status try_mutant(kiln_ctx *cx, void *argument) {
  mutant *m = argument;
  const kiln_onnx_options none = {0};
  kiln_onnx_file *file = NULL;
  kiln_graph *g = NULL;
  kiln_program *p = NULL;
  KILN_TRY(kiln_onnx_read(cx, m->path, &none, &file, &g));
  kiln_status status = KILN_OK;
  if (g->n_nodes > 0) {
    mutate(cx, g, &m->seed);
    status = kiln_fission(cx, g, &p);
    m->lowered = status == KILN_OK;
    if (m->lowered) run(cx, p, &m->seed);
  }
  kiln_onnx_close(file);
  return status;
}

static int is_test(const struct dirent *e) { return strncmp(e->d_name, "test_", 5) == 0; }

// The verifier's INTERNAL would mean that an operator made a wrong program.
static bool behaves(const char *path, uint64_t seed, int *lowered) {
  kiln_diag *diag = kiln_diag_create();
  kiln_ctx cx;
  mutant m = {.path = path, .seed = seed};
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  const kiln_status status = kiln_ctx_enter(&cx, try_mutant, &m);
  *lowered += m.lowered;
  const bool fine = status != KILN_INTERNAL && (status == KILN_OK || kiln_diag_count(diag) > 0);
  for (size_t i = 0; !fine && i < kiln_diag_count(diag); i++)
    print_message("%s seed %llu: %s\n", path, (unsigned long long)seed, kiln_diag_message(diag, i));
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
  return fine;
}

static void mutants_get_an_answer(void **state) {
  (void)state;
  const char *root = "/usr/share/libonnx-testdata/data/node", *only = getenv("KILN_MUTANT");
  struct dirent **names = NULL;
  int wrong = 0, lowered = 0;
  const int n = scandir(root, &names, is_test, alphasort);
  for (int i = 0; i < n; i++) {
    char path[MAX_NAME];
    snprintf(path, sizeof path, "%s/%s/model.onnx", root, names[i]->d_name);
    for (int k = 0; k < MUTANTS_EACH && (!only || strstr(path, only)); k++) {
      if (getenv("KILN_MUTANT_TRACE")) fprintf(stderr, "%s %d\n", path, k);
      wrong += !behaves(path, (uint64_t)(i + 1) * 0x9E3779B97F4A7C15U + (uint64_t)k, &lowered);
    }
    free(names[i]);
  }
  free(names);
  if (n <= 0) skip(); // the data is not installed
  print_message("%d mutants, %d lowered, %d misbehave\n", n * MUTANTS_EACH, lowered, wrong);
  assert_int_equal(wrong, 0);
  if (!only) assert_true(lowered > n);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mutants_get_an_answer)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Random evaluation of rewriting rules: the interpreter's results before and after.
#ifndef KILN_TEST_REWRITE_RULES_H
#define KILN_TEST_REWRITE_RULES_H

#include "unit/fixture.h"

#include "analysis/interpret.h"
#include "rewrite/rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A case of a rule: how often it applies to |text| (0: it must not), and the remaining statements.
typedef struct rule_case {
  const char *text;
  int n_applied, n_stmts;
} rule_case;

enum { RULE_ROUNDS = 4 }; // rounds with new random data

// In [-1, 1), never 0, as it may be a divisor.
static inline double random_value(uint64_t *state) {
  return ((double)(random_next(state) >> 11) + 0.5) * 0x1p-52 - 1;
}

static inline void *random_data(kiln_ctx *cx, const kiln_tensor *t, uint64_t *state) {
  const int64_t n = kiln_tensor_elems(t);
  void *data = kiln_arena_zalloc(&cx->perm, (size_t)(n + 1) * 8);
  for (int64_t i = 0; i < n; i++)
    if (kiln_dtype_is_float(t->dtype)) kiln_element_set(t->dtype, data, i, random_value(state));
    else kiln_element_set_int(t->dtype, data, i, random_value(state) > 0);
  return data;
}

// Constants without data in the text get random elements.
static inline kiln_program *random_program(fixture *f, const char *text, uint64_t seed) {
  kiln_program *p = NULL;
  assert_int_equal(kiln_program_parse(&f->cx, text, &p), KILN_OK);
  for (int t = 0; t < p->tensors.n; t++) {
    kiln_tensor *x = p->tensors.data[t];
    bool is_zero = true;
    if (x->role != KILN_CONST) continue;
    for (size_t i = 0; i < x->bytes; i++) is_zero &= ((const char *)x->data)[i] == 0;
    if (is_zero) x->data = random_data(&f->cx, x, &seed);
  }
  return p;
}

// out[i]: the elements of output i, in the arena.
static inline void compute_outputs(fixture *f, const kiln_program *p, uint64_t seed, double **out) {
  kiln_interpreter *in = NULL;
  assert_int_equal(kiln_interpreter_create(&f->cx, p, &in), KILN_OK);
  for (int i = 0; i < p->inputs.n; i++)
    kiln_interpreter_bind(in, p->inputs.data[i],
                          random_data(&f->cx, p->tensors.data[p->inputs.data[i]], &seed));
  for (int i = 0; i < p->outputs.n; i++) {
    const kiln_tensor *t = p->tensors.data[p->outputs.data[i]];
    const int64_t n = kiln_tensor_elems(t);
    const void *data = t->data;
    if (!data) assert_int_equal(kiln_interpreter_compute(in, t->id, &data), KILN_OK);
    out[i] = KILN_NEW_ARRAY(&f->cx.perm, double, n);
    for (int64_t k = 0; k < n; k++) out[i][k] = kiln_element_get(t->dtype, data, k);
  }
  kiln_interpreter_destroy(in);
}

static inline int count_rows(const kiln_rule *rules) {
  int n = 0;
  while (rules[n].name) n++;
  return n;
}

static inline bool is_for_cpus(const char *name) {
  return strcmp(name, "blocks") == 0 || strcmp(name, "narrow") == 0;
}

// Runs the rule |name| alone to its fixed point; gives the number of applications.
static inline int run_rule(fixture *f, kiln_program *p, const char *name) {
  kiln_rewriting r = {.rules = kiln_rules, .on_gpu = !is_for_cpus(name)};
  const int row = kiln_rules_row(kiln_rules, name, strlen(name));
  assert_true(row >= 0);
  r.without = ~(1U << row);
  r.with.rows = 1U << row;
  assert_int_equal(kiln_rewrite(&f->cx, p, &r), KILN_OK);
  return r.counts[row];
}

// Results may differ by |tolerance| times the largest of their tensor.
static inline void check_outputs(const kiln_program *p, double *const *want, double *const *got,
                                 double tolerance) {
  for (int i = 0; i < p->outputs.n; i++) {
    const int64_t elems = kiln_tensor_elems(p->tensors.data[p->outputs.data[i]]);
    double largest = 0;
    for (int64_t k = 0; k < elems; k++) largest = fmax(largest, fabs(want[i][k]));
    for (int64_t k = 0; k < elems; k++)
      if (!(fabs(got[i][k] - want[i][k]) <= tolerance * largest))
        fail_msg("output %d, element %d: must be %.9g, got %.9g", i, (int)k, want[i][k], got[i][k]);
  }
}

static inline void check_rule(fixture *f, const char *name, const rule_case *c, double tolerance) {
  for (uint64_t seed = 1; seed <= RULE_ROUNDS; seed++) {
    kiln_program *p = random_program(f, c->text, seed);
    double **want = KILN_NEW_ARRAY(&f->cx.perm, double *, p->outputs.n),
           **got = KILN_NEW_ARRAY(&f->cx.perm, double *, p->outputs.n);
    compute_outputs(f, p, seed, want);
    const int n = run_rule(f, p, name);
    if (n != c->n_applied || p->stmts.n != c->n_stmts) {
      kiln_text text;
      kiln_text_init(&text, &f->cx.scratch);
      kiln_program_print(&f->cx, p, &text);
      fail_msg("%s must be applied %d times and leave %d statements, got %d and %d:\n%s", name,
               c->n_applied, c->n_stmts, n, p->stmts.n, text.data);
    }
    compute_outputs(f, p, seed, got);
    check_outputs(p, want, got, tolerance);
  }
}

#endif

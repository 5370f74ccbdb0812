// Test support: a small program with data and reference results, whose schedules are run in the
// simulator.
#ifndef KILN_TEST_SCHEDULE_KERNEL_H
#define KILN_TEST_SCHEDULE_KERNEL_H

#include "analysis/interpret.h"
#include "schedule/schedule.h"
#include "target/sim/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KERNEL_MAX_TENSORS = 64 }; // of one kernel, and what passes add to a program

typedef struct test_kernel {
  kiln_ctx cx;
  kiln_diag *diag;
  kiln_program *prog;
  kiln_interpreter *reference;
  void **data; // [n_data], of inputs and constants, row-major; NULL of others
  int n_data;
} test_kernel;

static inline uint32_t kernel_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 33);
}

static inline int kernel_between(uint64_t *state, int lo, int hi) {
  return lo + (int)(kernel_random(state) % (uint32_t)(hi - lo + 1));
}

static inline const char *kernel_message(const test_kernel *k) {
  const size_t n = kiln_diag_count(k->diag);
  return n ? kiln_diag_message(k->diag, n - 1) : "";
}

// Small integers, so that sums are exact in any order; indices lie in 0..2.
static inline void kernel_fill(test_kernel *k, uint64_t seed) {
  k->n_data = k->prog->tensors.n + KERNEL_MAX_TENSORS;
  k->data = calloc((size_t)k->n_data, sizeof *k->data);
  assert_non_null(k->data);
  for (int t = 0; t < k->prog->tensors.n; t++) {
    kiln_tensor *x = k->prog->tensors.data[t];
    if (x->role != KILN_INPUT && x->role != KILN_CONST) continue;
    const int64_t n = kiln_tensor_elems(x);
    x->bytes = (size_t)n * (size_t)kiln_dtype_bytes(x->dtype);
    k->data[t] = malloc(x->bytes + 1);
    assert_non_null(k->data[t]);
    for (int64_t i = 0; i < n; i++) {
      const int64_t v = kernel_random(&seed) % 7;
      if (kiln_dtype_is_float(x->dtype)) kiln_element_set(x->dtype, k->data[t], i, (double)v - 3);
      else kiln_element_set_int(x->dtype, k->data[t], i, v % 3);
    }
    if (x->role == KILN_CONST) x->data = k->data[t];
  }
}

static inline void kernel_open(test_kernel *k, const char *text, uint64_t seed) {
  *k = (test_kernel){.diag = kiln_diag_create()};
  assert_int_equal(kiln_ctx_init(&k->cx, k->diag), KILN_OK);
  kiln_status st = kiln_program_parse(&k->cx, text, &k->prog);
  if (st != KILN_OK) fail_msg("%s", kernel_message(k));
  st = kiln_program_verify(&k->cx, k->prog);
  if (st != KILN_OK) fail_msg("%s", kernel_message(k));
  kernel_fill(k, seed);
  assert_int_equal(kiln_interpreter_create(&k->cx, k->prog, &k->reference), KILN_OK);
  for (int t = 0; t < k->prog->tensors.n; t++)
    if (k->prog->tensors.data[t]->role == KILN_INPUT)
      kiln_interpreter_bind(k->reference, t, k->data[t]);
  st = kiln_interpreter_run(k->reference);
  if (st != KILN_OK) fail_msg("%s", kernel_message(k));
}

static inline void kernel_close(test_kernel *k) {
  kiln_interpreter_destroy(k->reference);
  for (int t = 0; t < k->n_data; t++) free(k->data[t]);
  free(k->data);
  kiln_ctx_deinit(&k->cx);
  kiln_diag_destroy(k->diag);
}

static inline const char *kernel_text(test_kernel *k, const kiln_loops *l) {
  kiln_text t;
  kiln_text_init(&t, &k->cx.perm);
  kiln_loops_print(&k->cx, l, &t);
  return t.data ? t.data : "";
}

// The first element of an output that differs from the reference; -1 when all agree.
static inline int64_t kernel_difference(test_kernel *k, const kiln_buffer *b, const void *got) {
  const void *want = kiln_interpreter_data(k->reference, b->tensor);
  for (int64_t i = 0; i < kiln_buffer_elems(b); i++) {
    const double w = kiln_element_get(b->dtype, want, i), g = kiln_element_get(b->dtype, got, i);
    if (w != g && !(fabs(w - g) <= 1e-5 * (1 + fabs(w))) && !(isnan(w) && isnan(g))) return i;
  }
  return -1;
}

enum { KERNEL_SLACK = 64 }; // bytes after each argument that must not change

// Memory for the arguments of loops.
typedef struct kernel_args {
  int n;
  void *data[2 * KERNEL_MAX_TENSORS];
  const kiln_buffer *of[2 * KERNEL_MAX_TENSORS];
} kernel_args;

static inline size_t kernel_bytes(const kiln_buffer *b) {
  return (size_t)kiln_buffer_elems(b) * (size_t)kiln_dtype_bytes(b->dtype);
}

static inline kernel_args kernel_args_make(test_kernel *k, const kiln_loops *l) {
  kernel_args a = {0};
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (b->scope != KILN_SCOPE_PARAM && b->scope != KILN_SCOPE_WORKSPACE) continue;
    const size_t bytes = kernel_bytes(b);
    assert_true(a.n < 2 * KERNEL_MAX_TENSORS);
    void *data = malloc(bytes + KERNEL_SLACK);
    assert_non_null(data);
    memset(data, 0x5a, bytes + KERNEL_SLACK);
    if (b->pack) {
      assert_int_equal(kiln_sim_pack(&k->cx, k->prog, b, k->data[b->pack->source], data), KILN_OK);
    } else if (b->tensor >= 0 && k->data[b->tensor]) {
      memcpy(data, k->data[b->tensor], bytes);
    }
    a.data[a.n] = data;
    a.of[a.n++] = b;
  }
  return a;
}

static inline void kernel_args_free(kernel_args *a) {
  for (int i = 0; i < a->n; i++) free(a->data[i]);
}

// The first wrong output, as text; NULL if all are right.
static inline const char *kernel_args_wrong(test_kernel *k, const kernel_args *a) {
  for (int i = 0; i < a->n; i++) {
    const kiln_buffer *b = a->of[i];
    const char *name = kiln_symbol_text(&k->cx, b->name);
    const char *end = (const char *)a->data[i] + kernel_bytes(b);
    for (int s = 0; s < KERNEL_SLACK; s++)
      if (end[s] != 0x5a) return kiln_arena_printf(&k->cx.perm, "%s is written past its end", name);
    if (b->tensor < 0 || k->prog->tensors.data[b->tensor]->role != KILN_OUTPUT) continue;
    const int64_t wrong = kernel_difference(k, b, a->data[i]);
    if (wrong >= 0)
      return kiln_arena_printf(&k->cx.perm, "%s differs at element %lld", name, (long long)wrong);
  }
  return NULL;
}

static inline const char *kernel_run(test_kernel *k, kiln_loops *l) {
  kernel_args a = kernel_args_make(k, l);
  const kiln_status st = kiln_sim_run(&k->cx, l, a.data);
  const char *wrong = st == KILN_OK ? kernel_args_wrong(k, &a) : kernel_message(k);
  kernel_args_free(&a);
  return wrong;
}

static inline void kernel_unbind_threads(kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR && kiln_how_is_thread(l->how)) l->how = KILN_SERIAL;
    kernel_unbind_threads(l->body);
  }
}

// Runs the loops in the simulator on fresh memory and compares all outputs; gives the first error,
// or NULL. Before the last loop is bound, memory outside of thread loops may be undistributed: then
// the loops must be right without threads.
static inline const char *kernel_try(test_kernel *k, kiln_loops *l) {
  const char *wrong = kernel_run(k, l);
  if (!wrong || !strstr(wrong, "as it is allocated outside of thread loops")) return wrong;
  kiln_loops *copy = kiln_loops_copy(&k->cx.perm, l);
  kernel_unbind_threads(copy->body);
  return kernel_run(k, copy);
}

static inline void kernel_check(test_kernel *k, kiln_loops *l, const char *script) {
  const char *wrong = kernel_try(k, l);
  if (wrong) fail_msg("%s\nscript:\n%s\n%s", wrong, script, kernel_text(k, l));
}

// The script must replay to the identical text.
static inline void kernel_check_replay(test_kernel *k, const kiln_schedule *s) {
  kiln_schedule again;
  assert_int_equal(kiln_schedule_begin(&k->cx, k->prog, &again), KILN_OK);
  again.instrs = s->instrs;
  again.n_instrs = s->n_instrs;
  if (kiln_schedule_replay(&again, kiln_schedule_script(s)) != KILN_OK)
    fail_msg("%s\nscript:\n%s", kernel_message(k), kiln_schedule_script(s));
  assert_string_equal(kernel_text(k, again.loops), kernel_text(k, s->loops));
  assert_string_equal(kiln_schedule_script(&again), kiln_schedule_script(s));
}

#endif

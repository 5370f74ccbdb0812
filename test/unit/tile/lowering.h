// A lowering over a kernel given as text, run in the simulator and compared with the reference
// interpreter.
#ifndef KILN_TEST_UNIT_TILE_LOWERING_H
#define KILN_TEST_UNIT_TILE_LOWERING_H

#include "unit/schedule/kernel.h"

#include "verify/loops.h"
#include "template/lower.h"

// Opens |k| over |text|, with the naive loops.
static kiln_lowering lowering_open(test_kernel *k, const kiln_machine *m, const char *text) {
  kernel_open(k, text, 11);
  kiln_lowering w = {.cx = &k->cx,
                     .p = k->prog,
                     .m = m,
                     .n_threads = 2,
                     .root = k->prog->stmts.data[k->prog->stmts.n - 1],
                     .lanes = m->vector_bytes / 4,
                     .proposed = &k->cx.perm};
  assert_int_equal(kiln_schedule_begin(&k->cx, k->prog, &w.s), KILN_OK);
  return w;
}

static void lowering_expect_ok(test_kernel *k, const kiln_lowering *w, kiln_status st) {
  if (st == KILN_OK) return;
  kiln_text text;
  kiln_text_init(&text, &k->cx.perm);
  kiln_loops_print(&k->cx, w->s.loops, &text);
  fail_msg("%s\n%s\n%s", kernel_message(k), kiln_schedule_script(&w->s), text.data);
}

// |b| as it lies, against row-major elements.
static void lowering_expect_same(const kiln_buffer *b, const void *got, const void *want) {
  const int64_t elems = kiln_buffer_elems(b);
  const size_t bytes = (size_t)kiln_dtype_bytes(b->dtype);
  for (int64_t i = 0; i < elems; i++) {
    int64_t at = 0, rest = i;
    for (int d = b->rank - 1; d >= 0; d--) {
      at += rest % b->extents[d] * b->strides[d];
      rest /= b->extents[d];
    }
    assert_memory_equal((const char *)got + (size_t)at * bytes,
                        (const char *)want + (size_t)i * bytes, bytes);
  }
}

// Runs the device loops of a GPU's kernel: their barriers, waits and asynchronous copies suffice.
static kiln_status lowering_run_device(test_kernel *k, const kiln_machine *m, kiln_loops *l,
                                       void *const *args) {
  return kiln_loops_simulate(&k->cx, m, l, args, 0, NULL, NULL);
}

// Runs the schedule in the simulator, on GPUs its device loops too, and compares every output,
// exactly: the data are small integers.
static inline void lowering_expect_right_in(test_kernel *k, const kiln_lowering *w,
                                            bool is_device) {
  void *args[2 * KERNEL_MAX_TENSORS] = {0};
  kiln_loops *l = w->s.loops;
  int n = 0;
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (b->scope != KILN_SCOPE_PARAM && b->scope != KILN_SCOPE_WORKSPACE) continue;
    const size_t bytes = (size_t)kiln_buffer_elems(b) * (size_t)kiln_dtype_bytes(b->dtype);
    args[n] = calloc(1, bytes + 1);
    if (b->pack)
      assert_int_equal(kiln_sim_pack(&k->cx, k->prog, b, k->data[b->pack->source], args[n]),
                       KILN_OK);
    else if (b->tensor >= 0 && k->data[b->tensor]) memcpy(args[n], k->data[b->tensor], bytes);
    n++;
  }
  const kiln_status st =
      is_device ? lowering_run_device(k, w->m, l, args) : kiln_sim_run(&k->cx, l, args);
  if (st != KILN_OK) fail_msg("%s", kernel_message(k));
  n = 0;
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (b->scope != KILN_SCOPE_PARAM && b->scope != KILN_SCOPE_WORKSPACE) continue;
    const void *got = args[n++];
    if (b->tensor < 0 || k->prog->tensors.data[b->tensor]->role != KILN_OUTPUT) continue;
    lowering_expect_same(b, got, kiln_interpreter_data(k->reference, b->tensor));
  }
  for (int i = 0; i < n; i++) free(args[i]);
}

static inline void lowering_expect_right(test_kernel *k, const kiln_lowering *w) {
  lowering_expect_right_in(k, w, false);
  if (w->m->target->has_grids) lowering_expect_right_in(k, w, true);
}

#endif

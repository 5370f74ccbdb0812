// A program through the whole scheduler: its launches, run in order in the simulator, compared with
// the reference interpreter.
#ifndef KILN_TEST_UNIT_TILE_LAUNCHES_H
#define KILN_TEST_UNIT_TILE_LAUNCHES_H

#include "driver/pipeline.h"
#include "unit/schedule/kernel.h"

#include "fuse/kernel.h"
#include "verify/loops.h"

enum { MAX_TENSORS = 192 };

// The memory of tensor |t| for kernels: its elements in storage order.
static size_t storage_bytes(const kiln_tensor *t, int64_t *strides) {
  int64_t shape[KILN_MAX_RANK], span = 1;
  assert_true(kiln_tensor_static_shape(t, shape));
  kiln_tensor_strides(t, strides);
  for (int k = 0; k < t->rank; k++) span += (shape[k] - 1) * strides[k];
  return (size_t)span * (size_t)kiln_dtype_bytes(t->dtype);
}

// Whose device loops are run in the place of loops; NULL: none are.
static const kiln_machine *launches_on;

static void run_launch(test_kernel *k, const kiln_kernels *kernels, const kiln_launch *launch,
                       void *const *memory) {
  const kiln_kernel *kernel = kernels->kernels.data[launch->kernel];
  void *args[2 * MAX_TENSORS] = {0}, *owned[2 * MAX_TENSORS] = {0};
  int n = 0, param = 0;
  for (int i = 0; i < kernel->loops->buffers.n; i++) {
    const kiln_buffer *b = kernel->loops->buffers.data[i];
    if (b->scope != KILN_SCOPE_PARAM && b->scope != KILN_SCOPE_WORKSPACE) continue;
    const kiln_argument a =
        b->scope == KILN_SCOPE_PARAM ? launch->args[param++] : (kiln_argument){-1, 0};
    const int tensor = a.tensor;
    if (b->scope == KILN_SCOPE_WORKSPACE || b->pack)
      owned[n] = calloc(1, (size_t)kiln_buffer_elems(b) * (size_t)kiln_dtype_bytes(b->dtype) + 1);
    if (b->pack)
      assert_int_equal(
          kiln_sim_pack(&k->cx, kernel->prog, b, k->prog->tensors.data[tensor]->data, owned[n]),
          KILN_OK);
    args[n] = owned[n] ? owned[n] : (char *)memory[tensor] + a.offset * kiln_dtype_bytes(b->dtype);
    n++;
  }
  const kiln_status st =
      launches_on ? kiln_loops_simulate(&k->cx, launches_on, kernel->loops, args, 0, NULL, NULL)
                  : kiln_sim_run(&k->cx, kernel->loops, args);
  if (st != KILN_OK)
    fail_msg("%s\n%s\n%s", kernel_message(k), kernel->script, kernel_text(k, kernel->loops));
  for (int i = 0; i < n; i++) free(owned[i]);
}

// Compares an output, whose elements are at |got|, with the reference's; fails with |text|.
typedef void compare_fn(test_kernel *k, const kiln_tensor *t, const void *got, const char *text);

static inline void compare_elements(test_kernel *k, const kiln_tensor *t, const void *got,
                                    const char *text) {
  int64_t strides[KILN_MAX_RANK];
  storage_bytes(t, strides); // outputs are row-major: element i lies at i
  const void *want = kiln_interpreter_data(k->reference, t->id);
  for (int64_t i = 0; i < kiln_tensor_elems(t); i++) {
    const double w = kiln_element_get(t->dtype, want, i), g = kiln_element_get(t->dtype, got, i);
    if (!(fabs(w - g) <= 1e-5 * (1 + fabs(w))) && !(isnan(w) && isnan(g)))
      fail_msg("element %lld must be %g, got %g in %s", (long long)i, w, g, text);
  }
}

// Runs the kernels of |k|'s program, which kiln_pipeline_tile has made of |text|, and compares its
// outputs.
static void check_launches(test_kernel *k, const kiln_kernels *kernels, compare_fn *compare,
                           const char *text) {
  void *memory[MAX_TENSORS] = {0}, *owned[MAX_TENSORS] = {0};
  int64_t strides[KILN_MAX_RANK];
  assert_true(k->prog->tensors.n <= MAX_TENSORS);
  for (int t = 0; t < k->prog->tensors.n; t++) {
    const kiln_tensor *x = k->prog->tensors.data[t];
    if (x->inside) continue;
    owned[t] = memory[t] = calloc(1, storage_bytes(x, strides) + 1);
    if (x->role == KILN_INPUT) memcpy(memory[t], k->data[t], x->bytes);
    if (x->role == KILN_CONST) memcpy(memory[t], x->data, x->bytes);
  }
  for (int t = 0; t < k->prog->tensors.n; t++) {
    const kiln_tensor *x = k->prog->tensors.data[t];
    int64_t offset = 0;
    for (; x->inside; x = x->inside) offset += x->offset;
    memory[t] = (char *)owned[x->id] + offset * kiln_dtype_bytes(x->dtype);
  }
  for (int i = 0; i < kernels->launches.n; i++)
    run_launch(k, kernels, &kernels->launches.data[i], memory);
  for (int i = 0; i < k->prog->outputs.n; i++)
    compare(k, k->prog->tensors.data[k->prog->outputs.data[i]], memory[k->prog->outputs.data[i]],
            text);
  for (int t = 0; t < MAX_TENSORS; t++) free(owned[t]);
}

#endif

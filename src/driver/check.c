// Kernels checked one by one: the extract's tensors as strided memory, constants packed as the loops
// want them.
#include "driver/check.h"
#include "analysis/interpret.h"
#include "driver/compare.h"
#include "driver/pack.h"
#include "driver/random.h"

#include <stdlib.h>
#include <string.h>

#define INTERPRETED_FLOPS 2e8 // up to here the interpreter says what is right

static bool is_index_type(kiln_dtype t) {
  return !kiln_dtype_is_float(t) && kiln_dtype_bytes(t) >= 4;
}

bool kiln_kernel_check_suits(const kiln_program *p) {
  for (int i = 0; i < p->tensors.n; i++)
    if (p->tensors.data[i]->def < 0 && is_index_type(p->tensors.data[i]->dtype)) return false;
  return true;
}

static kiln_status no_memory(kiln_ctx *cx) {
  return KILN_FAIL(cx->diag, KILN_NO_MEMORY, "check", "no memory left");
}

static void *allocate(uint64_t bytes) { return aligned_alloc(64, (bytes + 127) / 64 * 64); }

static uint64_t dense_bytes(const kiln_tensor *t) {
  return (uint64_t)kiln_tensor_elems(t) * (uint64_t)kiln_dtype_bytes(t->dtype);
}

// --- what is wanted ---

static kiln_status interpret(kiln_kernel_check *c, kiln_interpreter *in) {
  for (int i = 0; i < c->p->tensors.n; i++)
    if (c->data[i]) kiln_interpreter_bind(in, i, c->data[i]);
  for (int i = 0; i < c->p->tensors.n; i++) {
    const kiln_tensor *t = c->p->tensors.data[i];
    const void *data = NULL;
    if (t->def < 0 || t->role == KILN_TEMP) continue;
    KILN_TRY(kiln_interpreter_compute(in, i, &data));
    if (!(c->data[i] = allocate(dense_bytes(t)))) return no_memory(c->cx);
    memcpy(c->data[i], data, dense_bytes(t));
  }
  c->has_wanted = true;
  return KILN_OK;
}

static void destroy_interpreter(void *in) { kiln_interpreter_destroy(in); }

kiln_status kiln_kernel_check_init(kiln_kernel_check *c, kiln_ctx *cx, const kiln_program *p,
                                   uint64_t seed) {
  *c = (kiln_kernel_check){.cx = cx, .p = p};
  c->data = KILN_NEW_ARRAY(&cx->perm, void *, p->tensors.n);
  for (int i = 0; i < p->tensors.n; i++) {
    if (p->tensors.data[i]->def >= 0) continue;
    if (!(c->data[i] = allocate(dense_bytes(p->tensors.data[i])))) return no_memory(cx);
    kiln_random_fill(cx, p, i, &seed, c->data[i]);
  }
  if (kiln_program_flops(cx, p) > INTERPRETED_FLOPS) return KILN_OK;
  kiln_interpreter *in = NULL;
  KILN_TRY(kiln_interpreter_create(cx, p, &in));
  kiln_cleanup_push(cx, destroy_interpreter, in);
  const kiln_status st = interpret(c, in);
  kiln_cleanup_pop(cx);
  kiln_interpreter_destroy(in);
  return st;
}

// --- runs ---

static void free_memory(kiln_kernel_check *c) {
  for (int i = 0; i < c->n_memory; i++) free(c->memory[i]);
  free(c->memory);
  c->memory = NULL;
  c->n_memory = 0;
}

void kiln_kernel_check_deinit(kiln_kernel_check *c) {
  free_memory(c);
  for (int i = 0; c->data && i < c->p->tensors.n; i++) free(c->data[i]);
  c->data = NULL;
}

// What is written is all ones before: NaN, and no small integer.
static kiln_status add_memory(kiln_kernel_check *c, uint64_t bytes, int fill, char **out) {
  void *data = allocate(bytes);
  if (!data) return no_memory(c->cx);
  memset(data, fill, bytes);
  c->memory[c->n_memory++] = data;
  *out = data;
  return KILN_OK;
}

static kiln_status store_tensor(kiln_kernel_check *c, int tensor, char **out) {
  const kiln_tensor *t = c->p->tensors.data[tensor];
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(t, strides);
  KILN_TRY(add_memory(c, kiln_storage_bytes(t), 0xff, out));
  if (t->def < 0) kiln_strided_put(t, c->data[tensor], strides, *out);
  return KILN_OK;
}

static kiln_status pack_tensor(kiln_kernel_check *c, const kiln_buffer *b, char **out) {
  const kiln_tensor *view = c->p->tensors.data[b->pack->source];
  kiln_const source = {.dtype = view->dtype, .rank = view->rank, .bytes = kiln_storage_bytes(view)};
  int64_t strides[KILN_MAX_RANK];
  char *plain = NULL;
  KILN_TRY(store_tensor(c, b->pack->source, &plain));
  source.data = plain;
  kiln_tensor_static_shape(view, source.shape);
  kiln_tensor_strides(view, strides);
  KILN_TRY(
      add_memory(c, (uint64_t)kiln_buffer_elems(b) * (uint64_t)kiln_dtype_bytes(b->dtype), 0, out));
  return kiln_pack_fill(c->cx, b, b->pack, &source, strides, *out);
}

static kiln_status make_args(kiln_kernel_check *c, const kiln_loops *l, char **args) {
  int n = 0;
  c->memory = calloc(2 * (size_t)l->buffers.n + 1, sizeof *c->memory);
  if (!c->memory) return no_memory(c->cx);
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (!b || (b->scope != KILN_SCOPE_PARAM && b->scope != KILN_SCOPE_WORKSPACE)) continue;
    char **arg = &args[n++];
    if (b->scope == KILN_SCOPE_WORKSPACE)
      KILN_TRY(add_memory(c, (uint64_t)kiln_buffer_elems(b) * (uint64_t)kiln_dtype_bytes(b->dtype),
                          0xff, arg));
    else if (b->pack) KILN_TRY(pack_tensor(c, b, arg));
    else KILN_TRY(store_tensor(c, b->tensor, arg));
  }
  return KILN_OK;
}

static void run_nests(const kiln_loops *l, const kiln_kernel_fn *nests, char *const *args) {
  const int n = kiln_kernel_nests(l);
  for (int j = 0; j < n; j++) {
    const int64_t extent = kiln_nest_extent(l, j);
    if (extent > 1) nests[j](args, 0, extent / 2);
    nests[j](args, extent > 1 ? extent / 2 : 0, extent);
  }
}

static kiln_status take_or_compare(kiln_kernel_check *c, int tensor, const char *got, double rtol,
                                   double atol, kiln_difference *d) {
  const kiln_tensor *t = c->p->tensors.data[tensor];
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(t, strides);
  if (c->has_wanted) {
    kiln_compare(t, got, strides, c->data[tensor], rtol, atol, true, d);
    return KILN_OK;
  }
  if (!(c->data[tensor] = allocate(dense_bytes(t)))) return no_memory(c->cx);
  kiln_strided_take(t, got, strides, c->data[tensor]);
  return KILN_OK;
}

kiln_status kiln_kernel_check_run(kiln_kernel_check *c, const kiln_loops *l,
                                  const kiln_kernel_fn *nests, double rtol, double atol,
                                  bool *out_is_right) {
  const kiln_mark mark = kiln_arena_mark(&c->cx->scratch);
  char **args = KILN_NEW_ARRAY(&c->cx->scratch, char *, l->buffers.n);
  kiln_difference d = {0};
  *out_is_right = false;
  KILN_TRY(make_args(c, l, args));
  run_nests(l, nests, args);
  for (int i = 0, n = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (!b || (b->scope != KILN_SCOPE_PARAM && b->scope != KILN_SCOPE_WORKSPACE)) continue;
    const char *got = args[n++];
    if (b->scope == KILN_SCOPE_PARAM && !b->pack && c->p->tensors.data[b->tensor]->def >= 0)
      KILN_TRY(take_or_compare(c, b->tensor, got, rtol, atol, &d));
  }
  c->has_wanted = true;
  free_memory(c);
  kiln_arena_rewind(&c->cx->scratch, mark);
  *out_is_right = d.wrong == 0;
  return KILN_OK;
}

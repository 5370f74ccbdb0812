// Checks of single kernels: tensors of the outlined program as strided memory, constants packed in
// the layout that the loops read.
#include "verify/check.h"
#include "verify/compare.h"
#include "module/pack.h"
#include "verify/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

// --- expected results ---

static kiln_status interpret(kiln_kernel_check *c, kiln_freedoms may) {
  KILN_TRY(kiln_interpreter_create(c->cx, c->p, &c->judge));
  kiln_interpreter_track(c->judge, may);
  for (int i = 0; i < c->p->tensors.n; i++)
    if (c->data[i]) kiln_interpreter_bind(c->judge, i, c->data[i]);
  for (int i = 0; i < c->p->tensors.n; i++) {
    const kiln_tensor *t = c->p->tensors.data[i];
    const void *data = NULL;
    if (t->def < 0 || t->role == KILN_TEMP) continue;
    KILN_TRY(kiln_interpreter_compute(c->judge, i, &data));
    if (!(c->data[i] = allocate(dense_bytes(t)))) return no_memory(c->cx);
    memcpy(c->data[i], data, dense_bytes(t));
  }
  c->has_wanted = true;
  return KILN_OK;
}

kiln_status kiln_kernel_check_init(kiln_kernel_check *c, kiln_ctx *cx, const kiln_program *p,
                                   uint64_t seed, double interpreted_flops, kiln_freedoms may) {
  *c = (kiln_kernel_check){.cx = cx, .p = p};
  c->data = KILN_NEW_ARRAY(&cx->perm, void *, p->tensors.n);
  for (int i = 0; i < p->tensors.n; i++) {
    if (p->tensors.data[i]->def >= 0) continue;
    if (!(c->data[i] = allocate(dense_bytes(p->tensors.data[i])))) return no_memory(cx);
    kiln_random_fill(cx, p, i, &seed, c->data[i]);
  }
  return kiln_program_flops(cx, p) > interpreted_flops ? KILN_OK : interpret(c, may);
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
  kiln_interpreter_destroy(c->judge);
  c->judge = NULL;
  for (int i = 0; c->data && i < c->p->tensors.n; i++) free(c->data[i]);
  c->data = NULL;
}

// Outputs are filled with ones before: NaN, or integers that are large.
static kiln_status add_memory(kiln_kernel_check *c, uint64_t bytes, int fill, kiln_check_arg *out) {
  void *data = allocate(bytes);
  if (!data) return no_memory(c->cx);
  memset(data, fill, bytes);
  c->memory[c->n_memory++] = data;
  *out = (kiln_check_arg){.data = data, .bytes = bytes};
  return KILN_OK;
}

static kiln_status store_tensor(kiln_kernel_check *c, int tensor, kiln_check_arg *out) {
  const kiln_tensor *t = c->p->tensors.data[tensor];
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(t, strides);
  KILN_TRY(add_memory(c, kiln_storage_bytes(t), 0xff, out));
  if (t->def < 0) kiln_strided_put(t, c->data[tensor], strides, out->data);
  out->is_result = t->def >= 0;
  return KILN_OK;
}

static kiln_status pack_tensor(kiln_kernel_check *c, const kiln_buffer *b, kiln_check_arg *out) {
  const kiln_tensor *view = c->p->tensors.data[b->pack->source];
  kiln_const source = {.dtype = view->dtype, .rank = view->rank, .bytes = kiln_storage_bytes(view)};
  int64_t strides[KILN_MAX_RANK];
  kiln_check_arg plain = {0};
  KILN_TRY(store_tensor(c, b->pack->source, &plain));
  source.data = plain.data;
  kiln_tensor_static_shape(view, source.shape);
  kiln_tensor_strides(view, strides);
  KILN_TRY(
      add_memory(c, (uint64_t)kiln_buffer_elems(b) * (uint64_t)kiln_dtype_bytes(b->dtype), 0, out));
  return kiln_pack_fill(c->cx, b, b->pack, &source, strides, out->data);
}

// A constant rounded from f32 to a half type, as a library expects it.
static kiln_status round_tensor(kiln_kernel_check *c, const kiln_buffer *b, kiln_check_arg *out) {
  const int64_t n = kiln_buffer_elems(b);
  kiln_check_arg plain = {0};
  KILN_TRY(store_tensor(c, b->tensor, &plain));
  KILN_TRY(add_memory(c, (uint64_t)n * (uint64_t)kiln_dtype_bytes(b->dtype), 0, out));
  kiln_halves_of_floats(b->dtype, n, plain.data, out->data);
  return KILN_OK;
}

static kiln_status make_args(kiln_kernel_check *c, const kiln_loops *l, kiln_check_arg *args,
                             int *out_n) {
  int n = 0;
  c->memory = calloc(2 * (size_t)l->buffers.n + 1, sizeof *c->memory);
  if (!c->memory) return no_memory(c->cx);
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (!b || !kiln_scope_is_argument(b->scope)) continue;
    kiln_check_arg *arg = &args[n++];
    if (b->scope == KILN_SCOPE_WORKSPACE)
      KILN_TRY(add_memory(c, (uint64_t)kiln_buffer_elems(b) * (uint64_t)kiln_dtype_bytes(b->dtype),
                          0xff, arg));
    else if (b->pack) KILN_TRY(pack_tensor(c, b, arg));
    else if (b->dtype != c->p->tensors.data[b->tensor]->dtype) KILN_TRY(round_tensor(c, b, arg));
    else KILN_TRY(store_tensor(c, b->tensor, arg));
  }
  *out_n = n;
  return KILN_OK;
}

static kiln_status take_or_compare(kiln_kernel_check *c, int tensor, const char *got,
                                   const kiln_check_tolerance *by, kiln_difference *d) {
  const kiln_tensor *t = c->p->tensors.data[tensor];
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(t, strides);
  if (c->judge && !by->is_wanted) {
    kiln_difference one = {0};
    kiln_judge(c->judge, t, got, strides, c->data[tensor], &one);
    d->wrong += one.wrong;
    return KILN_OK;
  }
  if (c->has_wanted) {
    kiln_compare(t, got, strides, c->data[tensor], by->rtol, by->atol, true, d);
    return KILN_OK;
  }
  if (!(c->data[tensor] = allocate(dense_bytes(t)))) return no_memory(c->cx);
  kiln_strided_take(t, got, strides, c->data[tensor]);
  return KILN_OK;
}

static kiln_status compare(kiln_kernel_check *c, const kiln_loops *l, const kiln_check_arg *args,
                           const kiln_check_tolerance *tolerance, bool *out_is_right) {
  kiln_difference d = {0};
  for (int i = 0, n = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (!b || !kiln_scope_is_argument(b->scope)) continue;
    const kiln_check_arg *a = &args[n++];
    if (a->is_result) KILN_TRY(take_or_compare(c, b->tensor, a->data, tolerance, &d));
  }
  c->has_wanted = true;
  const double l2 = d.want_square > 0 ? sqrt(d.square / d.want_square) : sqrt(d.square);
  *out_is_right = d.wrong == 0 && (tolerance->l2 == 0 || l2 <= tolerance->l2);
  return KILN_OK;
}

kiln_status kiln_kernel_check_by(kiln_kernel_check *c, const kiln_loops *l,
                                 const kiln_check_runner *runner,
                                 const kiln_check_tolerance *tolerance, bool *out_is_right) {
  const kiln_mark mark = kiln_arena_mark(&c->cx->scratch);
  kiln_check_arg *args = KILN_NEW_ARRAY(&c->cx->scratch, kiln_check_arg, l->buffers.n);
  int n = 0;
  bool ran = false;
  *out_is_right = false;
  KILN_TRY(make_args(c, l, args, &n));
  KILN_TRY(runner->run(runner->user, n, args, &ran));
  if (ran) KILN_TRY(compare(c, l, args, tolerance, out_is_right));
  free_memory(c);
  kiln_arena_rewind(&c->cx->scratch, mark);
  return KILN_OK;
}

// --- on this processor ---

typedef struct nests {
  kiln_ctx *cx;
  const kiln_loops *loops;
  const kiln_kernel_fn *functions;
} nests;

static kiln_status run_nests(void *user, int n_args, const kiln_check_arg *args, bool *out_ran) {
  const nests *k = user;
  char **data = KILN_NEW_ARRAY(&k->cx->scratch, char *, n_args);
  const int n = kiln_kernel_nests(k->loops);
  for (int i = 0; i < n_args; i++) data[i] = args[i].data;
  for (int j = 0; j < n; j++) {
    const int64_t extent = kiln_nest_extent(k->loops, j);
    if (extent > 1) k->functions[j](data, 0, extent / 2);
    k->functions[j](data, extent > 1 ? extent / 2 : 0, extent);
  }
  *out_ran = true;
  return KILN_OK;
}

kiln_status kiln_kernel_check_run(kiln_kernel_check *c, const kiln_loops *l,
                                  const kiln_kernel_fn *functions,
                                  const kiln_check_tolerance *tolerance, bool *out_is_right) {
  nests k = {c->cx, l, functions};
  const kiln_check_runner runner = {run_nests, &k};
  return kiln_kernel_check_by(c, l, &runner, tolerance, out_is_right);
}

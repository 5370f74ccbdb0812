// SPDX-License-Identifier: Apache-2.0
// Runs: reads shapes, finds or compiles a module, takes a session and points its tensors at ONNX
// Runtime's memory.
#include "kernel.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// A session with its tensors, for one run at a time.
typedef struct ep_slot ep_slot;
struct ep_slot {
  ep_pending pending; // first member; its owner is the variant
  ep_kernel *kernel;
  ep_slot *next;
  kiln_session *session;
  kiln_diag *diag;
  ep_arena arena;
  DLTensor *tensors; // [inputs, then outputs]
  const DLTensor **inputs;
  DLTensor **outputs;
  int64_t *shapes; // [tensors][KILN_MAX_PORT_RANK]
  // [outputs] memory for an output of data-dependent shape; NULL: ONNX Runtime's memory
  DLManagedTensorVersioned **found;
};

struct ep_variant {
  ep_variant *next;
  kiln_module *module;
  int n_extents;
  int64_t *extents; // of the inputs, concatenated; NULL: the module's shapes
  int n_running;
  ep_slot *idle;
};

// --- sessions ---

static void destroy_slot(ep_slot *s, int n_outputs) {
  if (!s) return;
  for (int i = 0; s->found && i < n_outputs; i++) kiln_tensor_destroy(s->found[i]);
  kiln_session_destroy(s->session);
  kiln_diag_destroy(s->diag);
  ep_arena_deinit(&s->arena);
  free(s);
}

static bool set_tensor(ep_slot *s, int i, kiln_port port) {
  DLTensor *t = &s->tensors[i];
  DLManagedTensorVersioned *scalar = kiln_tensor_create(port.dtype, 0, NULL, s->diag);
  if (!scalar) return false;
  t->dtype = scalar->dl_tensor.dtype;
  kiln_tensor_destroy(scalar);
  t->device = (DLDevice){kDLCPU, 0};
  t->ndim = port.rank;
  t->shape = s->shapes + (size_t)i * KILN_MAX_PORT_RANK;
  if (port.rank > 0) memcpy(t->shape, port.shape, (size_t)port.rank * sizeof(int64_t));
  return true;
}

static bool find_counted(const ep_kernel *k, const kiln_module *module, ep_slot *s) {
  for (int i = 0; i < k->n_outputs; i++) {
    const kiln_port port = kiln_module_output(module, (size_t)i);
    if (kiln_module_dim_count(module) > 0) continue;
    if (kiln_session_output_shape(s->session, (size_t)i) == port.shape) continue;
    s->found[i] = kiln_tensor_create(port.dtype, port.rank, port.shape, s->diag);
    if (!s->found[i]) return false;
  }
  return true;
}

static bool make_tensors(const ep_kernel *k, const kiln_module *module, ep_slot *s) {
  const int n = k->n_inputs + k->n_outputs;
  s->tensors = ep_alloc(&s->arena, (size_t)n, sizeof *s->tensors);
  s->shapes = ep_alloc(&s->arena, (size_t)n * KILN_MAX_PORT_RANK, sizeof *s->shapes);
  s->inputs = ep_alloc(&s->arena, (size_t)k->n_inputs, sizeof *s->inputs);
  s->outputs = ep_alloc(&s->arena, (size_t)k->n_outputs, sizeof *s->outputs);
  s->found = ep_alloc(&s->arena, (size_t)k->n_outputs, sizeof *s->found);
  if (!s->tensors || !s->shapes || !s->inputs || !s->outputs || !s->found) return false;
  for (int i = 0; i < n; i++) {
    const bool is_input = i < k->n_inputs;
    const int at = is_input ? i : i - k->n_inputs;
    if (is_input) s->inputs[at] = &s->tensors[i];
    else s->outputs[at] = &s->tensors[i];
    if (!set_tensor(s, i,
                    is_input ? kiln_module_input(module, (size_t)at)
                             : kiln_module_output(module, (size_t)at)))
      return false;
  }
  return true;
}

static ort_status *create_slot(ep_kernel *k, kiln_module *module, ep_slot **out) {
  const ep_options *o = &k->p->options;
  const kiln_session_options options = {.struct_size = sizeof options,
                                        .threads = o->threads,
                                        .spin_us = o->spin_us,
                                        .device = o->device,
                                        .is_async = k->p->gpu != NULL};
  ep_slot *s = calloc(1, sizeof *s);
  *out = NULL;
  if (s) s->diag = kiln_diag_create();
  if (!s || !s->diag) {
    free(s);
    return ep_no_memory(&k->p->host);
  }
  const kiln_status made = kiln_session_create(module, &options, s->diag, &s->session);
  s->kernel = k;
  if (made == KILN_OK && make_tensors(k, module, s) && find_counted(k, module, s)) {
    *out = s;
    return NULL;
  }
  ort_status *status = made != KILN_OK ? ep_fail_with(&k->p->host, made, k->name, s->diag)
                                       : ep_no_memory(&k->p->host);
  destroy_slot(s, k->n_outputs);
  return status;
}

// --- modules ---

static void destroy_variant(ep_variant *v, int n_outputs) {
  for (ep_slot *s = v->idle, *next; s; s = next) {
    next = s->next;
    destroy_slot(s, n_outputs);
  }
  kiln_module_release(v->module);
  free(v->extents);
  free(v);
}

// Evicts the least recently used idle variant if there are more than the option allows. The first
// is the newest.
static void trim(ep_kernel *k) {
  ep_variant **victim = NULL;
  for (ep_variant **v = &k->variants->next; *v; v = &(*v)->next)
    if ((*v)->n_running == 0) victim = v;
  if (k->n_variants <= k->p->options.shapes || !victim) return;
  ep_variant *gone = *victim;
  *victim = gone->next;
  k->n_variants--;
  destroy_variant(gone, k->n_outputs);
}

ort_status *ep_kernel_add(ep_kernel *k, kiln_module *module, const int64_t *extents,
                          int n_extents) {
  const ep_host *h = &k->p->host;
  ep_variant *v = calloc(1, sizeof *v);
  int64_t *copy = extents ? malloc((size_t)n_extents * sizeof *copy + 1) : NULL;
  const bool fits = (int)kiln_module_input_count(module) == k->n_inputs &&
                    (int)kiln_module_output_count(module) == k->n_outputs;
  if (!v || (extents && !copy) || !fits) {
    free(v);
    free(copy);
    kiln_module_release(module);
    if (fits) return ep_no_memory(h);
    return ep_fail(h, ORT_EP_FAIL,
                   "Kiln: %s: the module must have the node's %d inputs and %d outputs", k->name,
                   k->n_inputs, k->n_outputs);
  }
  if (copy && n_extents > 0) memcpy(copy, extents, (size_t)n_extents * sizeof *copy);
  *v = (ep_variant){.module = module, .n_extents = n_extents, .extents = copy};
  pthread_mutex_lock(&k->lock);
  v->next = k->variants;
  k->variants = v;
  k->n_variants++;
  trim(k);
  pthread_mutex_unlock(&k->lock);
  return NULL;
}

// --- a run ---

typedef struct run {
  ep_kernel *k;
  ort_kernel_context *context;
  void *handle;             // of the GPU's stream; NULL: none
  ep_stream *stream;        // which it is; NULL: another library's
  const ort_value **values; // [n_inputs]
  int64_t *extents;         // of late kernels
  int *ranks;
  int n_extents;
  ep_variant *variant;
  ep_slot *slot;
} run;

static bool is_for(const ep_variant *v, const run *r) {
  return !v->extents ||
         (v->n_extents == r->n_extents &&
          memcmp(v->extents, r->extents, (size_t)r->n_extents * sizeof(int64_t)) == 0);
}

// A session of the variant: one whose last run is in front of this one in the stream, or an idle
// one. Under the lock.
static void take_slot(run *r, ep_variant *v) {
  r->slot = r->stream ? (ep_slot *)ep_stream_take(r->stream, v) : NULL;
  if (r->slot) return; // the variant counts it as running already
  v->n_running++;
  r->slot = v->idle;
  if (v->idle) v->idle = v->idle->next;
}

// Takes an existing variant for the run, and makes it the most recently used.
static bool take_variant(run *r) {
  ep_kernel *k = r->k;
  pthread_mutex_lock(&k->lock);
  ep_variant **at = &k->variants;
  while (*at && !is_for(*at, r)) at = &(*at)->next;
  ep_variant *v = *at;
  if (v) {
    *at = v->next;
    v->next = k->variants;
    k->variants = v;
    r->variant = v;
    take_slot(r, v);
  }
  pthread_mutex_unlock(&k->lock);
  return v != NULL;
}

static void give_back(ep_kernel *k, ep_variant *v, ep_slot *s) {
  if (!v) return;
  pthread_mutex_lock(&k->lock);
  v->n_running--;
  if (s) {
    s->next = v->idle;
    v->idle = s;
  }
  pthread_mutex_unlock(&k->lock);
}

static ort_status *wait_for(ep_kernel *k, ep_slot *s) {
  const kiln_status st = kiln_session_wait(s->session, s->diag);
  return st == KILN_OK ? NULL : ep_fail_with(&k->p->host, st, k->name, s->diag);
}

// Of a session whose runs are in a stream (ep_pending.finish).
static ort_status *finish(ep_pending *pending) {
  ep_slot *s = (ep_slot *)pending;
  kiln_diag_clear(s->diag);
  ort_status *status = wait_for(s->kernel, s);
  give_back(s->kernel, (ep_variant *)(uintptr_t)pending->owner, s);
  return status;
}

// The run is over, or work in a stream, which keeps the session.
static ort_status *leave(run *r, ort_status *status) {
  ep_kernel *k = r->k;
  if (!status && r->stream) {
    r->slot->pending.owner = r->variant;
    r->slot->pending.finish = finish;
    ep_stream_keep(r->stream, &r->slot->pending);
    return NULL;
  }
  if (r->slot && k->p->gpu) {
    ort_status *last = wait_for(k, r->slot);
    if (last && status) k->p->host.api->release_status(last);
    else if (last) status = last;
  }
  give_back(k, r->variant, r->slot);
  return status;
}

static ort_status *read_shape(const ep_host *h, const ort_value *value, int64_t *out, int *out_n) {
  ort_tensor_type *type = NULL;
  size_t rank = 0;
  EP_TRY(h->api->value_type(value, &type));
  ort_status *status = h->api->tensor_rank(type, &rank);
  if (!status && rank > KILN_MAX_PORT_RANK)
    status = ep_fail(h, ORT_INVALID_ARGUMENT, "Kiln: a tensor must have at most %d axes, got %zu",
                     KILN_MAX_PORT_RANK, rank);
  if (!status) status = h->api->tensor_dims(type, out, rank);
  h->api->release_tensor_type(type);
  *out_n = (int)rank;
  return status;
}

static ort_status *read_shapes(run *r) {
  for (int i = 0; i < r->k->n_inputs; i++) {
    EP_TRY(read_shape(&r->k->p->host, r->values[i], r->extents + r->n_extents, &r->ranks[i]));
    r->n_extents += r->ranks[i];
  }
  return NULL;
}

// Weights stay where the session has them.
static ort_status *find_weights(run *r) {
  ep_kernel *k = r->k;
  const ort_api *api = k->p->host.api;
  for (int i = 1; k->weight_at && i < k->source.n_files; i++) {
    const ort_value *value = NULL;
    EP_TRY(api->kernel_input(r->context, (size_t)k->weight_at[i], &value));
    EP_TRY(api->value_data(value, &k->source.files[i].data));
  }
  return NULL;
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static ort_status *compile_late(run *r) {
  ep_kernel *k = r->k;
  const ep_options *o = &k->p->options;
  ep_arena arena = {0};
  kiln_model *model = NULL;
  kiln_module *module = NULL;
  const double start = now_ms();
  EP_TRY(find_weights(r));
  kiln_shape_value *shapes = ep_alloc(&arena, (size_t)k->n_inputs, sizeof *shapes);
  kiln_diag *diag = kiln_diag_create();
  if (!shapes || !diag) {
    ep_arena_deinit(&arena);
    return ep_no_memory(&k->p->host);
  }
  const int64_t *at = r->extents;
  for (int i = 0; i < k->n_inputs; at += r->ranks[i++])
    shapes[i] = (kiln_shape_value){.name = k->input_names[i], .rank = r->ranks[i], .shape = at};
  const kiln_compile_options options = {.struct_size = sizeof options,
                                        .shapes = shapes,
                                        .n_shapes = (size_t)k->n_inputs,
                                        .threads = o->threads,
                                        .target = o->target,
                                        .cache = o->cache,
                                        .files = k->source.files,
                                        .n_files = (size_t)k->source.n_files};
  kiln_status made = kiln_model_load(EP_MODEL_NAME, &options, diag, &model);
  if (made == KILN_OK) made = kiln_model_compile(model, diag, &module);
  ort_status *status = made == KILN_OK ? NULL : ep_fail_with(&k->p->host, made, k->name, diag);
  kiln_model_destroy(model);
  kiln_diag_destroy(diag);
  ep_arena_deinit(&arena);
  if (!status) status = ep_kernel_add(k, module, r->extents, r->n_extents);
  if (!status)
    ep_log(&k->p->host, k->p->logger, ORT_INFO, "%s: compiled for the shapes of a run in %.0f ms",
           k->name, now_ms() - start);
  return status;
}

static ort_status *find_variant(run *r) {
  ep_kernel *k = r->k;
  ort_status *status = NULL;
  if (take_variant(r)) return NULL;
  pthread_mutex_lock(&k->compiling);
  if (!take_variant(r)) {
    status = compile_late(r);
    if (!status) take_variant(r);
  }
  pthread_mutex_unlock(&k->compiling);
  return status;
}

static ort_status *check_input(const run *r, int i, const DLTensor *t) {
  const ep_host *h = &r->k->p->host;
  size_t got = 0;
  EP_TRY(h->api->value_bytes(r->values[i], &got));
  if (got == kiln_tensor_bytes(t)) return NULL;
  return ep_fail(h, ORT_INVALID_ARGUMENT,
                 "Kiln: %s: input %d must have the %zu bytes of its declared shape, got %zu",
                 r->k->name, i, kiln_tensor_bytes(t), got);
}

// For a module of ranges, takes the inputs' shapes and computes those of the outputs.
static ort_status *set_extents(run *r) {
  const kiln_module *m = r->variant->module;
  const ep_host *h = &r->k->p->host;
  int64_t values[KILN_MAX_DIMS];
  int rank = 0;
  for (int i = 0; i < r->k->n_inputs; i++) {
    DLTensor *t = &r->slot->tensors[i];
    EP_TRY(read_shape(h, r->values[i], t->shape, &rank));
    if (rank != t->ndim)
      return ep_fail(h, ORT_INVALID_ARGUMENT, "Kiln: %s: input %d must have %d axes, got %d",
                     r->k->name, i, t->ndim, rank);
  }
  kiln_diag *diag = r->slot->diag;
  kiln_status found =
      kiln_module_find_dims(m, (size_t)r->k->n_inputs, r->slot->inputs, diag, values);
  for (int i = 0; found == KILN_OK && i < r->k->n_outputs; i++)
    found = kiln_module_output_shape(m, (size_t)i, values, diag, r->slot->outputs[i]->shape);
  return found == KILN_OK ? NULL : ep_fail_with(h, found, r->k->name, diag);
}

// Points a tensor at its memory, of the host or of the provider's GPU.
static ort_status *place(const run *r, const ort_value *value, const void *data, DLTensor *out) {
  const ep_gpu *gpu = r->k->p->gpu;
  const bool is_on_gpu = gpu && ep_gpu_has(gpu, value);
  out->data = (void *)(uintptr_t)data;
  out->device = is_on_gpu ? (DLDevice){kDLCUDA, gpu->index} : (DLDevice){kDLCPU, 0};
  if (data || kiln_tensor_bytes(out) == 0) return NULL;
  return ep_fail(&r->k->p->host, ORT_EP_FAIL, "Kiln: %s: a tensor of %zu bytes: no memory left",
                 r->k->name, kiln_tensor_bytes(out));
}

static ort_status *set_pointers(run *r) {
  const ort_api *api = r->k->p->host.api;
  ep_slot *s = r->slot;
  for (int i = 0; i < r->k->n_inputs; i++) {
    const void *data = NULL;
    EP_TRY(check_input(r, i, &s->tensors[i]));
    EP_TRY(api->value_data(r->values[i], &data));
    EP_TRY(place(r, r->values[i], data, &s->tensors[i]));
  }
  for (int i = 0; i < r->k->n_outputs; i++) {
    ort_value *value = NULL;
    DLTensor *t = s->outputs[i];
    if (s->found[i]) {
      t->data = s->found[i]->dl_tensor.data;
      continue;
    }
    EP_TRY(api->kernel_output(r->context, (size_t)i, t->shape, (size_t)t->ndim, &value));
    void *data = NULL;
    EP_TRY(api->tensor_data(value, &data));
    EP_TRY(place(r, value, data, t));
  }
  return NULL;
}

// Copies the leading elements of each axis of |t|, row by row.
static void copy_front(const DLTensor *t, const int64_t *shape, char *to) {
  const int last = t->ndim - 1;
  const size_t bytes = t->dtype.bits / 8;
  const size_t row = (last < 0 ? 1 : (size_t)shape[last]) * bytes;
  int64_t n_rows = 1;
  for (int a = 0; a < last; a++) n_rows *= shape[a];
  for (int64_t i = 0; i < n_rows; i++, to += row) {
    int64_t from = 0, rest = i, stride = last < 0 ? 1 : t->shape[last];
    for (int a = last - 1; a >= 0; a--) {
      from += rest % shape[a] * stride;
      rest /= shape[a];
      stride *= t->shape[a];
    }
    if (row > 0) memcpy(to, (const char *)t->data + (size_t)from * bytes, row);
  }
}

// The leading elements of |t| as the output's memory, which may be the GPU's.
static ort_status *give_front(run *r, const DLTensor *t, const int64_t *shape,
                              const ort_value *value, void *data) {
  const ep_host *h = &r->k->p->host;
  size_t bytes = 0;
  if (!r->k->p->gpu || !ep_gpu_has(r->k->p->gpu, value)) {
    copy_front(t, shape, data);
    return NULL;
  }
  EP_TRY(h->api->value_bytes(value, &bytes));
  char *front = malloc(bytes + 1);
  if (!front) return ep_no_memory(h);
  copy_front(t, shape, front);
  ort_status *status = ep_gpu_copy(r->k->p->gpu, r->stream, data, front, bytes);
  free(front);
  return status;
}

static ort_status *give_found(run *r) {
  const ep_host *h = &r->k->p->host;
  for (int i = 0; i < r->k->n_outputs; i++) {
    ort_value *value = NULL;
    void *data = NULL;
    const DLTensor *t = r->slot->outputs[i];
    const int64_t *shape = kiln_session_output_shape(r->slot->session, (size_t)i);
    if (!r->slot->found[i] && memcmp(shape, t->shape, (size_t)t->ndim * sizeof *shape) != 0)
      return ep_fail(h, ORT_EP_FAIL, "Kiln: %s: output %d has other extents than it should",
                     r->k->name, i);
    if (!r->slot->found[i]) continue;
    EP_TRY(h->api->kernel_output(r->context, (size_t)i, shape, (size_t)t->ndim, &value));
    EP_TRY(h->api->tensor_data(value, &data));
    EP_TRY(give_front(r, t, shape, value, data));
  }
  return NULL;
}

static ort_status *set_stream(run *r) {
  const kiln_status st = kiln_session_set_stream(r->slot->session, r->handle, r->slot->diag);
  return st == KILN_OK ? NULL : ep_fail_with(&r->k->p->host, st, r->k->name, r->slot->diag);
}

static ort_status *run_slot(run *r) {
  ep_kernel *k = r->k;
  ep_slot *s = r->slot;
  kiln_diag_clear(s->diag);
  if (kiln_module_dim_count(r->variant->module) > 0) EP_TRY(set_extents(r));
  EP_TRY(set_pointers(r));
  if (k->p->gpu) EP_TRY(set_stream(r));
  const kiln_status ran = kiln_session_run(s->session, (size_t)k->n_inputs, s->inputs,
                                           (size_t)k->n_outputs, s->outputs, s->diag);
  return ran == KILN_OK ? give_found(r) : ep_fail_with(&k->p->host, ran, k->name, s->diag);
}

static ort_status *run_with(run *r) {
  ep_kernel *k = r->k;
  const ort_api *api = k->p->host.api;
  for (int i = 0; i < k->n_inputs; i++)
    EP_TRY(api->kernel_input(r->context, (size_t)k->input_at[i], &r->values[i]));
  if (k->is_late) EP_TRY(read_shapes(r));
  if (k->p->gpu) EP_TRY(api->kernel_stream(r->context, &r->handle));
  if (r->handle) r->stream = ep_stream_find(k->p->gpu, r->handle);
  EP_TRY(find_variant(r));
  ort_status *status = r->slot ? NULL : create_slot(k, r->variant->module, &r->slot);
  if (!status) status = run_slot(r);
  return leave(r, status);
}

static ort_status *compute(ort_compute *base, void *state, ort_kernel_context *context) {
  ep_kernel *k = (ep_kernel *)base;
  (void)state;
  run r = {.k = k, .context = context};
  enum { FEW = 16 };
  const ort_value *values[FEW];
  int64_t extents[FEW * KILN_MAX_PORT_RANK];
  int ranks[FEW];
  if (k->n_inputs <= FEW) {
    r.values = values;
    r.extents = extents;
    r.ranks = ranks;
    return run_with(&r);
  }
  ep_arena arena = {0};
  r.values = ep_alloc(&arena, (size_t)k->n_inputs, sizeof(void *));
  r.extents = ep_alloc(&arena, (size_t)k->n_inputs * KILN_MAX_PORT_RANK, sizeof(int64_t));
  r.ranks = ep_alloc(&arena, (size_t)k->n_inputs, sizeof(int));
  ort_status *status = r.values && r.extents && r.ranks ? run_with(&r) : ep_no_memory(&k->p->host);
  ep_arena_deinit(&arena);
  return status;
}

static ort_status *create_state(ort_compute *base, ort_compute_context *context, void **out) {
  (void)context;
  *out = base;
  return NULL;
}

static void release_state(ort_compute *base, void *state) { (void)base, (void)state; }

// --- kernels ---

ort_status *ep_kernel_create(const ep_provider *p, const ort_node *fused, ep_kernel **out) {
  const char *name = NULL;
  *out = NULL;
  EP_TRY(p->host.api->node_name(fused, &name));
  ep_kernel *k = calloc(1, sizeof *k);
  if (!k) return ep_no_memory(&p->host);
  k->base = (ort_compute){p->host.version, create_state, compute, release_state};
  k->p = p;
  k->name = ep_text(&k->arena, "%s", name);
  pthread_mutex_init(&k->lock, NULL);
  pthread_mutex_init(&k->compiling, NULL);
  *out = k;
  if (k->name) return NULL;
  ep_kernel_destroy(k);
  *out = NULL;
  return ep_no_memory(&p->host);
}

void ep_kernel_destroy(ep_kernel *k) {
  if (!k) return;
  for (ep_variant *v = k->variants, *next; v; v = next) {
    next = v->next;
    if (k->p->gpu) ep_gpu_finish(k->p->gpu, v);
    destroy_variant(v, k->n_outputs);
  }
  ep_source_deinit(&k->source);
  pthread_mutex_destroy(&k->lock);
  pthread_mutex_destroy(&k->compiling);
  ep_arena_deinit(&k->arena);
  free(k);
}

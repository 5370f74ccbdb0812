// Runs on a device: addresses of tensors, staging copies, enqueueing, and capture of graphs.
#include "runtime/gpu/gpu_session.h"
#include "runtime/check.h"
#include "runtime/extents.h"
#include "runtime/gpu/resident.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// An input or output in a run.
typedef struct port {
  uint64_t bytes;
  char *staging, *device; // of a host tensor: page-locked copy, and memory on the device
  char *at;               // device address in the current run
  bool is_host;
} port;

struct kiln_gpu_session {
  kiln_module *module;
  kiln_resident *resident;
  kiln_gpu_context *gpu;
  const kiln_gpu_api *api;
  // the session's stream, and the one that runs use: that or the caller's
  kiln_gpu_stream *own, *stream;
  bool is_async, is_pending;
  pid_t owner; // the process that owns the context
  char *arena;
  char **args, **call_args; // [n_args]; and [n_indices], of one launch
  uint32_t n_ports;
  port *ports;    // inputs, then outputs
  char **last_at; // [n_ports]: in the previous run
  bool *last_host;
  bool has_last;
  kiln_gpu_graph *graph;   // of runs with those addresses; NULL: not captured
  kiln_gpu_event **events; // [n_launches + 1] when profiling
  kiln_bound *calls;       // [n_launches]; of library calls
  // Results of index checks of runs that were not waited for: [MAX_UNCHECKED][n_checks],
  // page-locked.
  char *checked;
  uint32_t n_unchecked;
};

enum { MAX_UNCHECKED = 64 };

static kiln_status no_memory(kiln_diag *diag) {
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "session", "arguments: no memory left");
}

// --- making ---

static char *fixed_address(const kiln_gpu_session *s, const kiln_plan_arg *a) {
  switch (a->where) {
  case KILN_PLACE_ARENA: return s->arena + a->offset;
  case KILN_PLACE_WEIGHTS: return s->resident->weights + a->offset;
  case KILN_PLACE_INPUT: return s->ports[a->index].at + a->offset;
  case KILN_PLACE_OUTPUT: return s->ports[s->module->plan.n_inputs + a->index].at + a->offset;
  case KILN_PLACE_EXTERN:
  case KILN_N_PLACES: break;
  }
  return NULL;
}

static kiln_status make_lists(kiln_gpu_session *s, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  s->n_ports = p->n_inputs + p->n_outputs;
  s->args = calloc((size_t)p->n_args + 1, sizeof *s->args);
  s->call_args = calloc((size_t)p->n_indices + 1, sizeof *s->call_args);
  s->ports = calloc((size_t)s->n_ports + 1, sizeof *s->ports);
  s->last_at = calloc((size_t)s->n_ports + 1, sizeof *s->last_at);
  s->last_host = calloc((size_t)s->n_ports + 1, sizeof *s->last_host);
  if (!s->args || !s->call_args || !s->ports || !s->last_at || !s->last_host)
    return no_memory(diag);
  for (uint32_t i = 0; i < p->n_inputs; i++) s->ports[i].bytes = p->inputs[i].bytes;
  for (uint32_t i = 0; i < p->n_outputs; i++) s->ports[p->n_inputs + i].bytes = p->outputs[i].bytes;
  return KILN_OK;
}

static kiln_status make_events(kiln_gpu_session *s, kiln_diag *diag) {
  const uint32_t n = s->module->plan.n_launches + 1;
  s->events = calloc(n, sizeof(void *));
  kiln_status st = s->events ? KILN_OK : no_memory(diag);
  for (uint32_t i = 0; i < n && st == KILN_OK; i++) st = s->api->event(s->gpu, diag, &s->events[i]);
  return st;
}

// Addresses in the arena and the weights are final; inputs and outputs have none yet.
static kiln_status bind_calls(kiln_gpu_session *s, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  if (p->n_calls == 0) return KILN_OK;
  s->calls = calloc((size_t)p->n_launches + 1, sizeof *s->calls);
  if (!s->calls) return no_memory(diag);
  for (uint32_t i = 0; i < p->n_args; i++) s->args[i] = fixed_address(s, &p->args[i]);
  kiln_status st = kiln_gpu_enter(s->gpu, diag);
  if (st != KILN_OK) return st;
  for (uint32_t i = 0; i < p->n_launches && st == KILN_OK; i++) {
    const kiln_plan_launch *l = &p->launches[i];
    if (l->call)
      st = kiln_libraries_bind(&s->resident->libraries, p, l, 1, s->args + l->first_arg, diag,
                               &s->calls[i]);
  }
  s->api->leave(s->gpu);
  return st;
}

static uint64_t check_bytes(const kiln_gpu_session *s) {
  return s->module->plan.n_checks * sizeof(int64_t);
}

// Whether port |i| is the last one and holds results of index checks: it stays on the device, and
// is copied to |checked|.
static bool is_checked(const kiln_gpu_session *s, uint32_t i) {
  return s->module->plan.n_checks > 0 && i + 1 == s->n_ports;
}

static kiln_status check_stream(const kiln_gpu_session *s, const void *stream, kiln_diag *diag) {
  if (!stream || s->api->capture) return KILN_OK;
  return kiln_diag_fail(diag, KILN_BAD_INPUT, "session",
                        "stream: must be NULL with %s, whose queues belong to the session",
                        s->api->name);
}

static kiln_status fill(kiln_gpu_session *s, const kiln_session_options *o, kiln_diag *diag) {
  const uint64_t bytes = s->module->plan.arena_bytes;
  kiln_status st = kiln_resident_find(s->module, o->device, diag, &s->resident);
  if (st != KILN_OK) return st;
  s->gpu = s->resident->gpu;
  s->api = s->gpu->api;
  s->is_async = o->is_async != 0;
  st = check_stream(s, o->stream, diag);
  if (st == KILN_OK) st = make_lists(s, diag);
  if (st == KILN_OK && s->module->plan.n_checks > 0)
    st = s->api->allocate_host(s->gpu, MAX_UNCHECKED * check_bytes(s), "checks of indices", diag,
                               &s->checked);
  if (st == KILN_OK) st = s->api->stream(s->gpu, diag, &s->own);
  s->stream = o->stream ? (kiln_gpu_stream *)o->stream : s->own;
  if (st == KILN_OK && bytes > 0) st = s->api->allocate(s->gpu, bytes, "arena", diag, &s->arena);
  if (st == KILN_OK) st = bind_calls(s, diag);
  if (st == KILN_OK && o->profile) st = make_events(s, diag);
  return st;
}

kiln_status kiln_gpu_session_create(kiln_module *m, const kiln_session_options *options,
                                    kiln_diag *diag, kiln_gpu_session **out) {
  kiln_gpu_session *s = calloc(1, sizeof *s);
  *out = NULL;
  if (!s) return no_memory(diag);
  s->module = m;
  s->owner = getpid();
  const kiln_status st = fill(s, options, diag);
  if (st == KILN_OK) *out = s;
  else kiln_gpu_session_destroy(s);
  return st;
}

static void free_device(kiln_gpu_session *s) {
  const kiln_status last = s->stream ? kiln_gpu_session_wait(s, NULL) : KILN_OK;
  (void)last; // there is no one to report to
  if (s->graph) s->api->end_graph(s->gpu, s->graph);
  for (uint32_t i = 0; s->calls && i < s->module->plan.n_launches; i++)
    kiln_gpu_bound_deinit(s->gpu, &s->calls[i]);
  for (uint32_t i = 0; s->events && i <= s->module->plan.n_launches; i++)
    s->api->end_event(s->gpu, s->events[i]);
  for (uint32_t i = 0; s->ports && i < s->n_ports; i++) {
    s->api->free_host(s->gpu, s->ports[i].staging);
    s->api->free(s->gpu, s->ports[i].device);
  }
  s->api->free_host(s->gpu, s->checked);
  s->api->free(s->gpu, s->arena);
  s->api->end_stream(s->gpu, s->own);
}

void kiln_gpu_session_destroy(kiln_gpu_session *s) {
  if (!s) return;
  if (s->gpu && s->owner == getpid()) free_device(s);
  free(s->events);
  free(s->calls);
  free(s->args);
  free(s->call_args);
  free(s->ports);
  free(s->last_at);
  free(s->last_host);
  free(s);
}

// --- tensors ---

// Memory for host tensors is allocated when the first one comes.
static kiln_status take_tensor(kiln_gpu_session *s, port *p, const DLTensor *t, kiln_diag *diag) {
  kiln_status st = KILN_OK;
  p->is_host = kiln_tensor_is_on_host(t);
  if (p->is_host && !p->device)
    st = s->api->allocate(s->gpu, p->bytes, "input or output", diag, &p->device);
  if (st == KILN_OK && p->is_host && !p->staging)
    st = s->api->allocate_host(s->gpu, p->bytes, "input or output", diag, &p->staging);
  p->at = p->is_host ? p->device : kiln_tensor_begin(t);
  return st;
}

static kiln_status take_tensors(kiln_gpu_session *s, const DLTensor *const *inputs,
                                DLTensor *const *outputs, bool *out_any_host, kiln_diag *diag) {
  const uint32_t n_inputs = s->module->plan.n_inputs;
  *out_any_host = false;
  for (uint32_t i = 0; i < s->n_ports; i++) {
    const DLTensor *t = i < n_inputs ? inputs[i] : outputs[i - n_inputs];
    const kiln_status st = take_tensor(s, &s->ports[i], t, diag);
    if (st != KILN_OK) return st;
    *out_any_host |= s->ports[i].is_host && !is_checked(s, i);
  }
  for (uint32_t i = 0; i < s->module->plan.n_args; i++)
    s->args[i] = fixed_address(s, &s->module->plan.args[i]);
  return KILN_OK;
}

static void stage_inputs(kiln_gpu_session *s, const DLTensor *const *inputs) {
  for (uint32_t i = 0; i < s->module->plan.n_inputs; i++) {
    const port *p = &s->ports[i];
    if (p->is_host && p->bytes) memcpy(p->staging, kiln_tensor_begin(inputs[i]), p->bytes);
  }
}

static void take_results(kiln_gpu_session *s, DLTensor *const *outputs) {
  const uint32_t n_inputs = s->module->plan.n_inputs;
  for (uint32_t i = n_inputs; i < s->n_ports; i++) {
    const port *p = &s->ports[i];
    if (p->is_host && p->bytes && !is_checked(s, i))
      memcpy(kiln_tensor_begin(outputs[i - n_inputs]), p->staging, p->bytes);
  }
}

// --- what a run puts into a stream ---

static bool is_empty(const kiln_plan_nest *n) {
  return n->grid[0] == 0 || n->grid[1] == 0 || n->grid[2] == 0;
}

// |is_behind|: the previous work in the stream is a launch as well.
static kiln_status put_nest(kiln_gpu_session *s, kiln_gpu_stream *to, uint32_t nest,
                            char *const *args, bool is_behind, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  const kiln_plan_nest *n = &p->nests[nest];
  for (uint32_t i = 0; i < n->n_indices; i++)
    s->call_args[i] = args[p->indices[n->first_index + i]];
  const kiln_gpu_call call = {.function = s->resident->functions[nest],
                              .grid = n->grid,
                              .block = n->block,
                              .shared_bytes = n->shared_bytes,
                              .is_early = n->waits && is_behind,
                              .n_args = n->n_indices,
                              .args = s->call_args,
                              .n_maps = n->n_maps,
                              .maps = n->maps};
  return s->api->launch(s->gpu, to, &call, diag);
}

static kiln_status put_call(kiln_gpu_session *s, kiln_gpu_stream *to, uint32_t launch,
                            kiln_diag *diag) {
  const kiln_plan_launch *l = &s->module->plan.launches[launch];
  const kiln_status st =
      kiln_gpu_put_bound(s->gpu, to, &s->calls[launch], s->args + l->first_arg, diag);
  return st == KILN_OK ? KILN_OK : kiln_library_call_failed(&s->module->plan, l, diag);
}

// A library may enqueue anything, so the launch after it must not start early.
static kiln_status put_launches(kiln_gpu_session *s, kiln_gpu_stream *to, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  kiln_status st = KILN_OK;
  bool is_behind = false;
  if (s->events) st = s->api->record(s->gpu, to, s->events[0], diag);
  for (uint32_t i = 0; i < p->n_launches && st == KILN_OK; i++) {
    const kiln_plan_launch *l = &p->launches[i];
    if (l->call) {
      st = put_call(s, to, i, diag);
      is_behind = false;
    }
    for (uint32_t k = 0; k < l->n_nests && st == KILN_OK; k++) {
      if (is_empty(&p->nests[l->first_nest + k])) continue;
      st = put_nest(s, to, l->first_nest + k, s->args + l->first_arg, is_behind, diag);
      is_behind = true;
    }
    if (st != KILN_OK || !s->events) continue;
    st = s->api->record(s->gpu, to, s->events[i + 1], diag);
    is_behind = false;
  }
  return st;
}

static kiln_status put_copies(kiln_gpu_session *s, kiln_gpu_stream *to, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  kiln_status st = KILN_OK;
  for (uint32_t i = 0; i < p->n_copies && st == KILN_OK; i++) {
    const kiln_plan_copy *c = &p->copies[i];
    const kiln_plan_port *face = &p->outputs[c->output];
    const kiln_strided what = {.to = s->ports[p->n_inputs + c->output].at,
                               .from = fixed_address(s, &c->from),
                               .elem_bytes = kiln_type_bytes(face->type),
                               .rank = face->rank,
                               .shape = face->shape,
                               .strides = c->strides};
    if (face->bytes == 0) continue;
    st = kiln_strided_is_dense(&what)
             ? s->api->copy(s->gpu, to, what.to, what.from, face->bytes, diag)
             : s->api->copy_strided(s->gpu, to, &what, diag);
  }
  return st;
}

static kiln_status put_run(kiln_gpu_session *s, kiln_gpu_stream *to, kiln_diag *diag) {
  const uint32_t n_inputs = s->module->plan.n_inputs;
  kiln_status st = KILN_OK;
  for (uint32_t i = 0; i < n_inputs && st == KILN_OK; i++) {
    const port *p = &s->ports[i];
    if (p->is_host) st = s->api->copy(s->gpu, to, p->device, p->staging, p->bytes, diag);
  }
  if (st == KILN_OK) st = put_launches(s, to, diag);
  if (st == KILN_OK) st = put_copies(s, to, diag);
  for (uint32_t i = n_inputs; i < s->n_ports && st == KILN_OK; i++) {
    const port *p = &s->ports[i];
    if (p->is_host && !is_checked(s, i))
      st = s->api->copy(s->gpu, to, p->staging, p->device, p->bytes, diag);
  }
  return st;
}

// --- graphs ---

// Whether all addresses are those of the previous run; stores them for the next comparison.
static bool is_as_before(kiln_gpu_session *s) {
  bool same = s->has_last;
  for (uint32_t i = 0; i < s->n_ports; i++) {
    same &= s->last_at[i] == s->ports[i].at && s->last_host[i] == s->ports[i].is_host;
    s->last_at[i] = s->ports[i].at;
    s->last_host[i] = s->ports[i].is_host;
  }
  s->has_last = true;
  return same;
}

// Captures from the session's own stream, since the caller's may not allow capture.
static kiln_status make_graph(kiln_gpu_session *s, kiln_diag *diag) {
  kiln_status st = s->api->capture(s->gpu, s->own, diag);
  if (st != KILN_OK) return st;
  st = put_run(s, s->own, diag);
  const kiln_status end = s->api->end_capture(s->gpu, s->own, st == KILN_OK, diag, &s->graph);
  return st == KILN_OK ? end : st;
}

// The graph of the old addresses may still be running: waits before destroying it.
static kiln_status drop_graph(kiln_gpu_session *s, kiln_diag *diag) {
  if (!s->graph) return KILN_OK;
  const kiln_status st = kiln_gpu_session_wait(s, diag);
  s->api->end_graph(s->gpu, s->graph);
  s->graph = NULL;
  return st;
}

// Copies the results of checks after each run, outside of graphs: runs that are not waited for have
// a slot each.
static kiln_status put_checks(kiln_gpu_session *s, kiln_diag *diag) {
  if (!s->checked) return KILN_OK;
  char *to = s->checked + s->n_unchecked++ * check_bytes(s);
  return s->api->copy(s->gpu, s->stream, to, s->ports[s->n_ports - 1].device, check_bytes(s), diag);
}

static kiln_status put_or_replay(kiln_gpu_session *s, kiln_diag *diag) {
  const bool same = is_as_before(s);
  kiln_status st = KILN_OK;
  if (!same) st = drop_graph(s, diag);
  if (st == KILN_OK && s->n_unchecked == MAX_UNCHECKED) st = kiln_gpu_session_wait(s, diag);
  if (st != KILN_OK) return st;
  s->is_pending = true;
  if (!same || s->events || !s->api->capture) return put_run(s, s->stream, diag);
  if (!s->graph) st = make_graph(s, diag);
  return st == KILN_OK ? s->api->replay(s->gpu, s->stream, s->graph, diag) : st;
}

static kiln_status start(kiln_gpu_session *s, kiln_diag *diag) {
  const kiln_status st = put_or_replay(s, diag);
  return st == KILN_OK ? put_checks(s, diag) : st;
}

// --- running ---

static kiln_status take_times(kiln_gpu_session *s, uint64_t *start_ns, uint64_t *ns,
                              kiln_diag *diag) {
  kiln_status st = KILN_OK;
  for (uint32_t i = 0; i < s->module->plan.n_launches && st == KILN_OK; i++) {
    st = s->api->elapsed(s->gpu, s->events[0], s->events[i], diag, &start_ns[i]);
    if (st == KILN_OK) st = s->api->elapsed(s->gpu, s->events[i], s->events[i + 1], diag, &ns[i]);
  }
  return st;
}

kiln_status kiln_gpu_session_wait(kiln_gpu_session *s, kiln_diag *diag) {
  if (!s->is_pending) return KILN_OK;
  const uint32_t n = s->n_unchecked;
  s->is_pending = false;
  s->n_unchecked = 0;
  kiln_status st = s->api->wait(s->gpu, s->stream, diag);
  for (uint32_t i = 0; i < n && st == KILN_OK; i++)
    st = kiln_plan_checked(&s->module->plan,
                           (const int64_t *)(const void *)(s->checked + i * check_bytes(s)), diag);
  return st;
}

kiln_status kiln_gpu_session_set_stream(kiln_gpu_session *s, void *stream, kiln_diag *diag) {
  kiln_gpu_stream *to = stream ? (kiln_gpu_stream *)stream : s->own;
  const kiln_status st = check_stream(s, stream, diag);
  if (st != KILN_OK || s->stream == to) return st;
  const kiln_status last = kiln_gpu_session_wait(s, diag);
  s->stream = to;
  return last;
}

kiln_status kiln_gpu_session_run(kiln_gpu_session *s, const DLTensor *const *inputs,
                                 DLTensor *const *outputs, uint64_t *start_ns, uint64_t *ns,
                                 kiln_diag *diag) {
  bool any_host = false;
  if (s->owner != getpid())
    return kiln_diag_fail(diag, KILN_DEVICE_ERROR, "session",
                          "process: must be that which made the session, got a fork of it: a "
                          "GPU's context is of one process");
  kiln_status st = take_tensors(s, inputs, outputs, &any_host, diag);
  if (st != KILN_OK) return st;
  stage_inputs(s, inputs); // runs that use staging memory are waited for, so it is free
  st = start(s, diag);
  if (st == KILN_OK && s->is_async && !any_host && !s->events) return KILN_OK;
  const kiln_status end = kiln_gpu_session_wait(s, diag);
  if (st == KILN_OK) st = end;
  if (st != KILN_OK) return st;
  take_results(s, outputs);
  return s->events && ns ? take_times(s, start_ns, ns, diag) : KILN_OK;
}

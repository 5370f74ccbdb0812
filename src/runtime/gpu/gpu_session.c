// Runs on a device: addresses of tensors, staging copies, enqueueing, and capture of graphs.
#include "runtime/gpu/gpu_session.h"
#include "runtime/check.h"
#include "runtime/extents.h"
#include "runtime/gpu/resident.h"
#include "support/status.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// An input or output in a run.
typedef struct port {
  uint64_t bytes;         // in the plan's extents
  const DLTensor *tensor; // of the current run, as the following
  char *at;               // device address
  char *outer;            // of a host tensor: its page-locked copy; otherwise the tensor's address
  bool is_host;
  bool is_part; // has smaller extents than the plan: the leading elements of a copy that has the
                // plan's
} port;

// Memory for an input or output whose tensor cannot be used in place.
typedef struct room {
  uint64_t bytes;         // of each that is there
  char *staging, *device; // page-locked, and the device's
} room;

// What is kept for later runs of the same extents; a plan for one shape has one of these.
typedef struct kept {
  int64_t values[KILN_MAX_DIMS]; // of the dimensions
  uint64_t used;                 // the last run: its number in the session; 0: none
  char *dims;                    // |values| on the device
  uint32_t (*grids)[3];          // [n_nests]: the launches' grids; NULL: the plan's
  port *last;                    // [n_ports]: in the previous run
  bool has_last;
  kiln_gpu_graph *graph; // of runs with those addresses; NULL: not captured
} kept;

struct kiln_gpu_session {
  kiln_module *module;
  kiln_resident *resident;
  kiln_gpu_context *gpu;
  const kiln_gpu_api *api;
  // Of a variant: the session of the module for ranges, whose streams and memory it uses.
  kiln_gpu_session *whole;
  kiln_gpu_session *parts, *next; // those of variants, a list in |parts| of the whole
  // the session's stream, and the one that runs use: that or the caller's
  kiln_gpu_stream *own, *stream;
  bool is_async, is_pending;
  pid_t owner; // the process that owns the context
  char *arena; // of the whole: that of the largest variant so far
  uint64_t arena_bytes;
  char **args, **call_args; // [n_args]; and [n_indices], of one launch
  uint32_t n_ports, n_rooms;
  port *ports;             // inputs, then outputs
  room *rooms;             // [n_rooms] by port; of a variant, the whole's
  kept *kept, *now;        // [MAX_KEPT] or one; and that of the current run
  char *values, *dims;     // of |kept|, KILN_PLAN_ALIGN bytes each: page-locked, on the device
  uint64_t n_runs;         // so far
  kiln_gpu_event **events; // [n_launches + 1] when profiling
  kiln_bound *calls;       // [n_launches]; of library calls
  // Results of index checks of runs that were not waited for: [MAX_UNCHECKED][n_checks],
  // page-locked.
  char *checked;
  uint32_t n_unchecked;
};

enum { MAX_UNCHECKED = 64, MAX_KEPT = 16 };

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
  s->kept = calloc(MAX_KEPT, sizeof *s->kept);
  if (!s->args || !s->call_args || !s->ports || !s->kept) return no_memory(diag);
  for (uint32_t i = 0; i < p->n_inputs; i++) s->ports[i].bytes = p->inputs[i].bytes;
  for (uint32_t i = 0; i < p->n_outputs; i++) s->ports[p->n_inputs + i].bytes = p->outputs[i].bytes;
  s->now = s->kept;
  return KILN_OK;
}

// For as many ports as the plan with the most has: tensors that are no results are the last.
static kiln_status make_rooms(kiln_gpu_session *s, kiln_diag *diag) {
  s->n_rooms = s->n_ports;
  for (uint32_t i = 0; i < s->module->n_variants; i++) {
    const kiln_plan *p = &s->module->variants[i]->plan;
    if (p->n_inputs + p->n_outputs > s->n_rooms) s->n_rooms = p->n_inputs + p->n_outputs;
  }
  s->rooms = calloc((size_t)s->n_rooms + 1, sizeof *s->rooms);
  return s->rooms ? KILN_OK : no_memory(diag);
}

static kiln_status make_events(kiln_gpu_session *s, kiln_diag *diag) {
  const uint32_t n = s->module->plan.n_launches + 1;
  s->events = calloc(n, sizeof(void *));
  kiln_status st = s->events ? KILN_OK : no_memory(diag);
  for (uint32_t i = 0; i < n && st == KILN_OK; i++) st = s->api->event(s->gpu, diag, &s->events[i]);
  return st;
}

static void unbind_calls(kiln_gpu_session *s) {
  for (uint32_t i = 0; s->calls && i < s->module->plan.n_launches; i++)
    kiln_gpu_bound_deinit(s->gpu, &s->calls[i]);
  free(s->calls);
  s->calls = NULL;
}

// Addresses in the arena and the weights are known; inputs and outputs have none yet.
static kiln_status bind_calls(kiln_gpu_session *s, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  unbind_calls(s);
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

static kiln_status make_streams(kiln_gpu_session *s, const kiln_session_options *o,
                                kiln_diag *diag) {
  kiln_status st = check_stream(s, o->stream, diag);
  if (st == KILN_OK) st = s->api->stream(s->gpu, diag, &s->own);
  s->stream = o->stream ? (kiln_gpu_stream *)o->stream : s->own;
  return st;
}

static kiln_status make_arena(kiln_gpu_session *s, uint64_t bytes, kiln_diag *diag) {
  if (bytes > 0) KILN_TRY(s->api->allocate(s->gpu, bytes, "arena", diag, &s->arena));
  s->arena_bytes = bytes;
  return KILN_OK;
}

// The arena of a module for ranges is made when a variant is run.
static kiln_status fill(kiln_gpu_session *s, const kiln_session_options *o, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  kiln_status st = kiln_resident_find(s->module, o->device, diag, &s->resident);
  if (st != KILN_OK) return st;
  s->gpu = s->resident->gpu;
  s->api = s->gpu->api;
  s->is_async = o->is_async != 0;
  st = make_lists(s, diag);
  if (st == KILN_OK && p->n_checks > 0)
    st = s->api->allocate_host(s->gpu, MAX_UNCHECKED * check_bytes(s), "checks of indices", diag,
                               &s->checked);
  if (st == KILN_OK && !s->whole) st = make_rooms(s, diag);
  if (st == KILN_OK && !s->whole) st = make_streams(s, o, diag);
  if (st == KILN_OK && !s->whole && !s->module->dynamic) {
    st = make_arena(s, p->arena_bytes, diag);
    if (st == KILN_OK) st = bind_calls(s, diag);
  }
  if (st == KILN_OK && o->profile && !s->module->dynamic) st = make_events(s, diag);
  return st;
}

// Memory for the dimensions of the runs that are kept.
static kiln_status make_values(kiln_gpu_session *s, kiln_diag *diag) {
  const uint64_t bytes = MAX_KEPT * KILN_PLAN_ALIGN;
  _Static_assert(KILN_MAX_DIMS * sizeof(int64_t) <= KILN_PLAN_ALIGN, "dimensions fit in a slot");
  kiln_status st = s->api->allocate_host(s->gpu, bytes, "dimensions", diag, &s->values);
  return st == KILN_OK ? s->api->allocate(s->gpu, bytes, "dimensions", diag, &s->dims) : st;
}

static kiln_status create(kiln_module *m, const kiln_session_options *options,
                          kiln_gpu_session *whole, kiln_diag *diag, kiln_gpu_session **out) {
  kiln_gpu_session *s = calloc(1, sizeof *s);
  *out = NULL;
  if (!s) return no_memory(diag);
  s->module = m;
  s->owner = getpid();
  s->whole = whole;
  kiln_status st = fill(s, options, diag);
  if (st == KILN_OK && whole) {
    s->own = whole->own;
    s->stream = whole->stream;
    s->rooms = whole->rooms;
    s->n_rooms = whole->n_rooms;
    st = make_values(s, diag);
  }
  if (st == KILN_OK && whole) {
    s->next = whole->parts;
    whole->parts = s;
  }
  if (st == KILN_OK) *out = s;
  else kiln_gpu_session_destroy(s);
  return st;
}

kiln_status kiln_gpu_session_create(kiln_module *m, const kiln_session_options *options,
                                    kiln_diag *diag, kiln_gpu_session **out) {
  return create(m, options, NULL, diag, out);
}

kiln_status kiln_gpu_session_create_part(kiln_gpu_session *whole, uint32_t variant,
                                         const kiln_session_options *options, kiln_diag *diag,
                                         kiln_gpu_session **out) {
  return create(whole->module->variants[variant], options, whole, diag, out);
}

static void free_kept(kiln_gpu_session *s) {
  for (int i = 0; s->kept && i < MAX_KEPT; i++) {
    if (s->kept[i].graph) s->api->end_graph(s->gpu, s->kept[i].graph);
    s->kept[i].graph = NULL;
  }
}

// Memory and streams, which the parts of a module for ranges share.
static void free_shared(kiln_gpu_session *s) {
  for (uint32_t i = 0; s->rooms && i < s->n_rooms; i++) {
    s->api->free_host(s->gpu, s->rooms[i].staging);
    s->api->free(s->gpu, s->rooms[i].device);
  }
  s->api->free(s->gpu, s->arena);
  s->api->end_stream(s->gpu, s->own);
}

static void free_device(kiln_gpu_session *s) {
  const kiln_status last = s->stream ? kiln_gpu_session_wait(s, NULL) : KILN_OK;
  (void)last; // there is no one to report to
  free_kept(s);
  unbind_calls(s);
  for (uint32_t i = 0; s->events && i <= s->module->plan.n_launches; i++)
    s->api->end_event(s->gpu, s->events[i]);
  s->api->free_host(s->gpu, s->checked);
  s->api->free_host(s->gpu, s->values);
  s->api->free(s->gpu, s->dims);
  if (!s->whole) free_shared(s);
}

static void leave_whole(kiln_gpu_session *s) {
  kiln_gpu_session **at = s->whole ? &s->whole->parts : NULL;
  while (at && *at && *at != s) at = &(*at)->next;
  if (at && *at) *at = s->next;
}

void kiln_gpu_session_destroy(kiln_gpu_session *s) {
  if (!s) return;
  while (s->parts) kiln_gpu_session_destroy(s->parts);
  leave_whole(s);
  if (s->gpu && s->owner == getpid()) free_device(s);
  for (int i = 0; s->kept && i < MAX_KEPT; i++) {
    free(s->kept[i].grids);
    free(s->kept[i].last);
  }
  free(s->kept);
  free(s->events);
  free(s->calls);
  free(s->args);
  free(s->call_args);
  free(s->ports);
  if (!s->whole) free(s->rooms);
  free(s);
}

// --- the runs that are kept ---

// The graph may still be running: waits before destroying it.
static kiln_status drop_graph(kiln_gpu_session *s, kept *k, kiln_diag *diag) {
  if (!k->graph) return KILN_OK;
  const kiln_status st = kiln_gpu_session_wait(s, diag);
  s->api->end_graph(s->gpu, k->graph);
  k->graph = NULL;
  return st;
}

// Makes the arena of all variants as large as this one's plan says. What was captured has the
// addresses of the old one.
static kiln_status want_arena(kiln_gpu_session *s, kiln_diag *diag) {
  kiln_gpu_session *w = s->whole;
  const uint64_t bytes = s->module->plan.arena_bytes;
  if (w->arena_bytes < bytes) {
    KILN_TRY(kiln_gpu_session_wait(w, diag));
    w->api->free(w->gpu, w->arena);
    w->arena = NULL;
    w->arena_bytes = 0;
    KILN_TRY(make_arena(w, bytes, diag));
  }
  if (s->arena == w->arena && (s->calls || s->module->plan.n_calls == 0)) return KILN_OK;
  for (int i = 0; i < MAX_KEPT; i++) KILN_TRY(drop_graph(s, &s->kept[i], diag));
  s->arena = w->arena;
  return bind_calls(s, diag);
}

static kept *find_kept(kiln_gpu_session *s, uint32_t n, const int64_t *values) {
  kept *oldest = s->kept;
  for (int i = 0; i < MAX_KEPT; i++) {
    kept *k = &s->kept[i];
    if (k->used && memcmp(k->values, values, n * sizeof *values) == 0) return k;
    if (k->used < oldest->used) oldest = k;
  }
  return oldest;
}

// Puts the dimensions onto the device. Runs that read the old ones must be over.
static kiln_status put_values(kiln_gpu_session *s, kept *k, uint32_t n, const int64_t *values,
                              kiln_diag *diag) {
  char *staging = s->values + (size_t)(k - s->kept) * KILN_PLAN_ALIGN;
  if (k->used) KILN_TRY(kiln_gpu_session_wait(s, diag));
  KILN_TRY(drop_graph(s, k, diag));
  k->used = 0; // until all is done
  k->has_last = false;
  k->dims = s->dims + (k - s->kept) * KILN_PLAN_ALIGN;
  memcpy(k->values, values, n * sizeof *values);
  memcpy(staging, values, n * sizeof *values);
  KILN_TRY(s->api->copy(s->gpu, s->stream, k->dims, staging, n * sizeof *values, diag));
  s->is_pending = true;
  return KILN_OK;
}

// The grids have the blocks that the run needs.
static kiln_status set_grids(kiln_gpu_session *s, kept *k, const kiln_variant *v,
                             const int64_t *values, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  if (!k->grids) k->grids = calloc((size_t)p->n_nests + 1, sizeof *k->grids);
  if (!k->grids) return no_memory(diag);
  for (uint32_t i = 0; i < p->n_nests; i++) memcpy(k->grids[i], p->nests[i].grid, sizeof *k->grids);
  for (uint32_t i = 0; i < v->n_trims; i++) {
    const kiln_trim *t = &v->trims[i];
    const int64_t blocks = kiln_formula_value(&t->extent, values);
    uint32_t *size = &k->grids[t->nest][t->axis];
    if (blocks < *size) *size = blocks > 0 ? (uint32_t)blocks : 0;
  }
  return KILN_OK;
}

kiln_status kiln_gpu_session_choose(kiln_gpu_session *s, const kiln_variant *v, uint32_t n,
                                    const int64_t *values, kiln_diag *diag) {
  kept *k = find_kept(s, n, values);
  KILN_TRY(want_arena(s, diag));
  if (!k->used || memcmp(k->values, values, n * sizeof *values) != 0) {
    KILN_TRY(put_values(s, k, n, values, diag));
    KILN_TRY(set_grids(s, k, v, values, diag));
  }
  k->used = ++s->n_runs;
  s->now = k;
  return KILN_OK;
}

// --- tensors ---

static const kiln_plan_port *face_of(const kiln_gpu_session *s, uint32_t i) {
  const kiln_plan *p = &s->module->plan;
  return i < p->n_inputs ? &p->inputs[i] : &p->outputs[i - p->n_inputs];
}

// Whether port |i| has the values of the dimensions, which are on the device.
static bool is_dims(const kiln_gpu_session *s, uint32_t i) {
  return s->whole && i + 1 == s->module->plan.n_inputs;
}

// Memory is allocated when the first tensor that needs it comes, and again for a larger variant.
static kiln_status want_room(kiln_gpu_session *s, uint32_t i, kiln_diag *diag) {
  room *r = &s->rooms[i];
  port *p = &s->ports[i];
  kiln_status st = KILN_OK;
  if (r->bytes < p->bytes && (r->device || r->staging)) {
    st = kiln_gpu_session_wait(s->whole ? s->whole : s, diag);
    s->api->free(s->gpu, r->device);
    s->api->free_host(s->gpu, r->staging);
    *r = (room){0};
  }
  if (!r->device && !r->staging) r->bytes = p->bytes;
  if (st == KILN_OK && !r->device)
    st = s->api->allocate(s->gpu, r->bytes, "input or output", diag, &r->device);
  if (st == KILN_OK && p->is_host && !r->staging)
    st = s->api->allocate_host(s->gpu, r->bytes, "input or output", diag, &r->staging);
  return st;
}

static kiln_status take_tensor(kiln_gpu_session *s, uint32_t i, const DLTensor *t,
                               kiln_diag *diag) {
  port *p = &s->ports[i];
  const kiln_plan_port *face = face_of(s, i);
  *p = (port){.bytes = p->bytes, .tensor = t};
  if (is_dims(s, i)) {
    p->at = p->outer = s->now->dims;
    return KILN_OK;
  }
  p->is_host = kiln_tensor_is_on_host(t);
  p->is_part = memcmp(t->shape, face->shape, (size_t)face->rank * sizeof *t->shape) != 0;
  const bool in_place = !p->is_host && !p->is_part;
  const kiln_status st = in_place ? KILN_OK : want_room(s, i, diag);
  p->at = in_place ? kiln_tensor_begin(t) : s->rooms[i].device;
  p->outer = p->is_host ? s->rooms[i].staging : kiln_tensor_begin(t);
  return st;
}

static kiln_status take_tensors(kiln_gpu_session *s, const DLTensor *const *inputs,
                                DLTensor *const *outputs, bool *out_any_host, kiln_diag *diag) {
  const uint32_t n_inputs = s->module->plan.n_inputs;
  *out_any_host = false;
  for (uint32_t i = 0; i < s->n_ports; i++) {
    const DLTensor *t = i >= n_inputs ? outputs[i - n_inputs] : is_dims(s, i) ? NULL : inputs[i];
    const kiln_status st = take_tensor(s, i, t, diag);
    if (st != KILN_OK) return st;
    *out_any_host |= s->ports[i].is_host && !is_checked(s, i);
  }
  for (uint32_t i = 0; i < s->module->plan.n_args; i++)
    s->args[i] = fixed_address(s, &s->module->plan.args[i]);
  return KILN_OK;
}

// Integers beyond an input's extents are zeroed, because they may be used as indices.
static bool is_zeroed(const port *p) {
  return p->is_part && p->tensor->dtype.code != kDLFloat && p->tensor->dtype.code != kDLBfloat;
}

// Between a tensor at |outer| and its copy in the plan's extents, whose |strides| are filled in.
static kiln_strided part_of(const kiln_gpu_session *s, uint32_t i, char *to, const char *from,
                            int64_t *strides) {
  const kiln_plan_port *face = face_of(s, i);
  int64_t stride = 1;
  for (int32_t k = face->rank - 1; k >= 0; k--) {
    strides[k] = stride;
    stride *= face->shape[k];
  }
  return (kiln_strided){.to = to,
                        .from = from,
                        .elem_bytes = kiln_type_bytes(face->type),
                        .rank = face->rank,
                        .shape = s->ports[i].tensor->shape,
                        .strides = strides};
}

// The bytes that a host tensor's copy has, up to its last element.
static uint64_t copied_bytes(const kiln_gpu_session *s, uint32_t i, bool is_input) {
  const port *p = &s->ports[i];
  int64_t strides[KILN_PORT_MAX_RANK];
  if (!p->is_part || (is_input && is_zeroed(p))) return p->bytes;
  if (kiln_tensor_count(p->tensor) == 0) return 0;
  const kiln_strided what = part_of(s, i, NULL, NULL, strides);
  return kiln_strided_span(&what);
}

static void stage_inputs(kiln_gpu_session *s) {
  int64_t strides[KILN_PORT_MAX_RANK];
  for (uint32_t i = 0; i < s->module->plan.n_inputs; i++) {
    const port *p = &s->ports[i];
    if (!p->is_host || p->bytes == 0) continue;
    const char *from = kiln_tensor_begin(p->tensor);
    if (!p->is_part) memcpy(p->outer, from, p->bytes);
    if (is_zeroed(p)) memset(p->outer, 0, p->bytes);
    if (!p->is_part || kiln_tensor_count(p->tensor) == 0) continue;
    const kiln_strided what = part_of(s, i, p->outer, from, strides);
    kiln_strided_spread(&what);
  }
}

static void take_results(kiln_gpu_session *s) {
  int64_t strides[KILN_PORT_MAX_RANK];
  for (uint32_t i = s->module->plan.n_inputs; i < s->n_ports; i++) {
    const port *p = &s->ports[i];
    if (!p->is_host || p->bytes == 0 || is_checked(s, i)) continue;
    if (!p->is_part) memcpy(kiln_tensor_begin(p->tensor), p->outer, p->bytes);
    if (!p->is_part || kiln_tensor_count(p->tensor) == 0) continue;
    const kiln_strided what = part_of(s, i, kiln_tensor_begin(p->tensor), p->outer, strides);
    kiln_strided_copy(&what);
  }
}

// --- what a run puts into a stream ---

static const uint32_t *grid_of(const kiln_gpu_session *s, uint32_t nest) {
  return s->now->grids ? s->now->grids[nest] : s->module->plan.nests[nest].grid;
}

static bool is_empty(const uint32_t *grid) { return grid[0] == 0 || grid[1] == 0 || grid[2] == 0; }

// |is_behind|: the previous work in the stream is a launch as well.
static kiln_status put_nest(kiln_gpu_session *s, kiln_gpu_stream *to, uint32_t nest,
                            char *const *args, bool is_behind, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  const kiln_plan_nest *n = &p->nests[nest];
  for (uint32_t i = 0; i < n->n_indices; i++)
    s->call_args[i] = args[p->indices[n->first_index + i]];
  const kiln_gpu_call call = {.function = s->resident->functions[nest],
                              .grid = grid_of(s, nest),
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
      if (is_empty(grid_of(s, l->first_nest + k))) continue;
      st = put_nest(s, to, l->first_nest + k, s->args + l->first_arg, is_behind, diag);
      is_behind = true;
    }
    if (st != KILN_OK || !s->events) continue;
    st = s->api->record(s->gpu, to, s->events[i + 1], diag);
    is_behind = false;
  }
  return st;
}

static kiln_status put_strided(kiln_gpu_session *s, kiln_gpu_stream *to, const kiln_strided *what,
                               bool spreads, kiln_diag *diag) {
  return kiln_strided_is_dense(what)
             ? s->api->copy(s->gpu, to, what->to, what->from, kiln_strided_bytes(what), diag)
             : s->api->copy_strided(s->gpu, to, what, spreads, diag);
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
    st = put_strided(s, to, &what, false, diag);
  }
  return st;
}

// Copies an input that is not used in place.
static kiln_status put_input(kiln_gpu_session *s, kiln_gpu_stream *to, uint32_t i,
                             kiln_diag *diag) {
  const port *p = &s->ports[i];
  int64_t strides[KILN_PORT_MAX_RANK];
  if (p->is_host) return s->api->copy(s->gpu, to, p->at, p->outer, copied_bytes(s, i, true), diag);
  if (!p->is_part) return KILN_OK;
  if (is_zeroed(p)) KILN_TRY(s->api->clear(s->gpu, to, p->at, p->bytes, diag));
  if (kiln_tensor_count(p->tensor) == 0) return KILN_OK;
  const kiln_strided what = part_of(s, i, p->at, p->outer, strides);
  return put_strided(s, to, &what, true, diag);
}

static kiln_status put_output(kiln_gpu_session *s, kiln_gpu_stream *to, uint32_t i,
                              kiln_diag *diag) {
  const port *p = &s->ports[i];
  int64_t strides[KILN_PORT_MAX_RANK];
  if (is_checked(s, i)) return KILN_OK;
  if (p->is_host) return s->api->copy(s->gpu, to, p->outer, p->at, copied_bytes(s, i, false), diag);
  if (!p->is_part || kiln_tensor_count(p->tensor) == 0) return KILN_OK;
  const kiln_strided what = part_of(s, i, p->outer, p->at, strides);
  return put_strided(s, to, &what, false, diag);
}

static kiln_status put_run(kiln_gpu_session *s, kiln_gpu_stream *to, kiln_diag *diag) {
  const uint32_t n_inputs = s->module->plan.n_inputs;
  kiln_status st = KILN_OK;
  for (uint32_t i = 0; i < n_inputs && st == KILN_OK; i++) st = put_input(s, to, i, diag);
  if (st == KILN_OK) st = put_launches(s, to, diag);
  if (st == KILN_OK) st = put_copies(s, to, diag);
  for (uint32_t i = n_inputs; i < s->n_ports && st == KILN_OK; i++) st = put_output(s, to, i, diag);
  return st;
}

// --- graphs ---

// Whether all addresses are those of the previous run of these extents; stores them for the next
// comparison.
static kiln_status compare(kiln_gpu_session *s, kiln_diag *diag, bool *out_same) {
  kept *k = s->now;
  if (!k->last) k->last = calloc((size_t)s->n_ports + 1, sizeof *k->last);
  if (!k->last) return no_memory(diag);
  *out_same = k->has_last;
  for (uint32_t i = 0; i < s->n_ports; i++) {
    const port *a = &k->last[i], *b = &s->ports[i];
    *out_same &= a->at == b->at && a->outer == b->outer && a->is_host == b->is_host;
    k->last[i] = *b;
  }
  k->has_last = true;
  return KILN_OK;
}

// Captures from the session's own stream, since the caller's may not allow capture.
static kiln_status make_graph(kiln_gpu_session *s, kiln_diag *diag) {
  kiln_status st = s->api->capture(s->gpu, s->own, diag);
  if (st != KILN_OK) return st;
  st = put_run(s, s->own, diag);
  const kiln_status end = s->api->end_capture(s->gpu, s->own, st == KILN_OK, diag, &s->now->graph);
  return st == KILN_OK ? end : st;
}

// Copies the results of checks after each run, outside of graphs: runs that are not waited for have
// a slot each.
static kiln_status put_checks(kiln_gpu_session *s, kiln_diag *diag) {
  if (!s->checked) return KILN_OK;
  char *to = s->checked + s->n_unchecked++ * check_bytes(s);
  return s->api->copy(s->gpu, s->stream, to, s->ports[s->n_ports - 1].at, check_bytes(s), diag);
}

static kiln_status put_or_replay(kiln_gpu_session *s, kiln_diag *diag) {
  bool same = false;
  KILN_TRY(compare(s, diag, &same));
  if (!same) KILN_TRY(drop_graph(s, s->now, diag));
  if (s->n_unchecked == MAX_UNCHECKED) KILN_TRY(kiln_gpu_session_wait(s, diag));
  s->is_pending = true;
  if (!same || s->events || !s->api->capture) return put_run(s, s->stream, diag);
  if (!s->now->graph) KILN_TRY(make_graph(s, diag));
  return s->api->replay(s->gpu, s->stream, s->now->graph, diag);
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
  kiln_status of_parts = KILN_OK;
  for (kiln_gpu_session *part = s->parts; part; part = part->next) {
    const kiln_status one = kiln_gpu_session_wait(part, diag);
    if (of_parts == KILN_OK) of_parts = one;
  }
  if (!s->is_pending) return of_parts;
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
  for (kiln_gpu_session *part = s->parts; part; part = part->next) part->stream = to;
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
  stage_inputs(s); // runs that use staging memory are waited for, so it is free
  st = start(s, diag);
  if (st == KILN_OK && s->is_async && !any_host && !s->events) return KILN_OK;
  const kiln_status end = kiln_gpu_session_wait(s, diag);
  if (st == KILN_OK) st = end;
  if (st != KILN_OK) return st;
  take_results(s);
  return s->events && ns ? take_times(s, start_ns, ns, diag) : KILN_OK;
}

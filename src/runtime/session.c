// Sessions: an arena, a thread pool, and the plan's arguments as addresses. A run patches the
// addresses of inputs and outputs and calls the functions of the launches in order.
//
// A session of a module for ranges of dimensions has a part for each variant that it has run: a
// session without an arena and pool of its own.
#include "runtime/check.h"
#include "runtime/extents.h"
#include "runtime/flow/run.h"
#include "runtime/gpu/gpu_session.h"
#include "runtime/module.h"
#include "runtime/packed.h"
#include "runtime/pool.h"
#include "runtime/state.h"
#include "runtime/strided.h"
#include "support/status.h"
#include "support/surroundings.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct kiln_session {
  kiln_module *module;   // one reference
  kiln_gpu_session *gpu; // runs the plan of a device, in place of the fields below up to the times
  kiln_packed *packed;   // NULL: no input or output is packed
  kiln_extents *extents; // NULL: all shapes are static
  kiln_session_states *states; // NULL: the module has none
  // [n_inputs] of a run, if the plan stores an output over an input; NULL: it does not
  const DLTensor **stored_over;
  kiln_session_options options;
  kiln_pool *pool;
  int threads;
  int32_t device;
  bool has_slots;
  char *arena;        // 2 MiB aligned if it is as large
  size_t arena_bytes; // from |arena| on
  void *arena_map;
  size_t arena_map_bytes;
  char **args;          // [n_args]; addresses in inputs and outputs change with each run
  kiln_bound *calls;    // [n_launches]; of library calls
  uint64_t *start, *ns; // [n_launches] when profiling; NULL otherwise
  kiln_span *spans;     // of the last run, if threads are profiled; otherwise NULL
  size_t n_spans;
  uint32_t launch;       // the current one
  uint32_t first_launch; // of a part: its number in the module
  // [n_nests], of a part: iterations of parallel loops in the current run; NULL: the plan's
  int64_t *iterations;
  // For ranges of dimensions, and for the parts of a flow:
  kiln_session **parts; // [n_variants], NULL until first run; NULL: there is one plan
  int64_t (*shapes)[KILN_PORT_MAX_RANK]; // [n_outputs] in the last run
  const char *address;                   // of a part: the arena in which its arguments are
  const kiln_session *last;              // the part that ran last
  int32_t profiles;
  kiln_flow_run flow;  // its state; of a flow, as the following
  DLTensor *tensors;   // [flow's n_args]
  DLTensor **pointers; // [flow's n_args] to |tensors|
};

enum { HUGE_PAGE = 2 << 20, MAX_THREADS = 1024, MAX_SLOTS = 1 << 20 };

static kiln_status no_memory(kiln_diag *diag, const char *what, uint64_t bytes) {
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "session", "%s: %" PRIu64 " bytes: no memory left",
                        what, bytes);
}

static kiln_status make_arena(kiln_session *s, size_t bytes, kiln_diag *diag) {
  const size_t slack = bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
  if (bytes == 0) return KILN_OK;
  void *map = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return no_memory(diag, "arena", bytes);
  s->arena_map = map;
  s->arena_map_bytes = bytes + slack;
  s->arena_bytes = bytes;
  s->arena = (char *)map + (slack ? (-(uintptr_t)map & (HUGE_PAGE - 1)) : 0);
  // Whole huge pages only: the rest of the last one would be unused.
  if (slack) (void)madvise(s->arena, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
  return KILN_OK;
}

// The begin of the memory that an argument is in, if that is the same in all runs.
static char *address(const kiln_session *s, const kiln_plan_arg *a) {
  switch (a->where) {
  case KILN_PLACE_ARENA: return s->arena + a->offset;
  case KILN_PLACE_WEIGHTS: return (char *)s->module->weights + a->offset;
  case KILN_PLACE_EXTERN: return (char *)s->module->externs[a->index];
  case KILN_PLACE_INPUT:
  case KILN_PLACE_OUTPUT:
  case KILN_N_PLACES: break;
  }
  return NULL;
}

// A span for each thread of each nest and call.
static kiln_status make_spans(kiln_session *s, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  const size_t n = ((size_t)p->n_nests + p->n_launches) * (size_t)s->threads;
  s->spans = calloc(n + 1, sizeof *s->spans);
  return s->spans ? KILN_OK : no_memory(diag, "spans", n * sizeof *s->spans);
}

static kiln_status make_times(kiln_session *s, int32_t profiles, kiln_diag *diag) {
  const uint32_t n = s->module->plan.n_launches;
  if (!profiles) return KILN_OK;
  s->start = calloc((size_t)n + 1, sizeof *s->start);
  s->ns = calloc((size_t)n + 1, sizeof *s->ns);
  if (!s->start || !s->ns) return no_memory(diag, "profile", n);
  return profiles > 1 && s->module->plan.kind == KILN_PLAN_CPU ? make_spans(s, diag) : KILN_OK;
}

static void set_args(kiln_session *s) {
  const kiln_plan *p = &s->module->plan;
  for (uint32_t i = 0; i < p->n_args; i++) s->args[i] = address(s, &p->args[i]);
}

static kiln_status make_args(kiln_session *s, kiln_diag *diag) {
  const uint32_t n = s->module->plan.n_args;
  s->args = calloc((size_t)n + 1, sizeof *s->args);
  if (!s->args) return no_memory(diag, "arguments", n);
  set_args(s);
  return KILN_OK;
}

static kiln_status bind_call(kiln_session *s, const kiln_plan_launch *l, kiln_bound *out,
                             kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  const uint32_t worth = p->calls[l->call - 1].threads;
  const int most = (uint64_t)s->threads < worth ? s->threads : (int)worth;
  return kiln_libraries_bind(&s->module->libraries, p, l, most, s->args + l->first_arg, diag, out);
}

static kiln_status bind_calls(kiln_session *s, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  kiln_status st = KILN_OK;
  if (p->n_calls == 0) return KILN_OK;
  s->calls = calloc((size_t)p->n_launches + 1, sizeof *s->calls);
  if (!s->calls) return no_memory(diag, "calls", p->n_launches);
  for (uint32_t i = 0; i < p->n_launches && st == KILN_OK; i++)
    if (p->launches[i].call) st = bind_call(s, &p->launches[i], &s->calls[i], diag);
  return st;
}

// Live sessions of one module use different CPUs for their workers.
static int take_slots(kiln_session *s) {
  atomic_fetch_add(&s->module->sessions, 1);
  s->has_slots = true;
  return atomic_fetch_add(&s->module->slots, s->threads) & (MAX_SLOTS - 1);
}

static void give_slots(kiln_session *s) {
  if (s->has_slots && atomic_fetch_sub(&s->module->sessions, 1) == 1)
    atomic_store(&s->module->slots, 0);
}

static kiln_status make_pool(kiln_session *s, const kiln_session_options *options,
                             kiln_diag *diag) {
  const int64_t spin_ns = options->spin_us ? options->spin_us * INT64_C(1000) : KILN_POOL_SPIN_NS;
  return kiln_pool_create(s->threads, take_slots(s), spin_ns, diag, &s->pool);
}

static kiln_status make_stored_over(kiln_session *s, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  bool has_any = false;
  for (uint32_t i = 0; i < p->n_states; i++) has_any |= kiln_plan_state_stays(p, i);
  if (!has_any) return KILN_OK;
  s->stored_over = calloc(p->n_inputs, sizeof *s->stored_over);
  return s->stored_over ? KILN_OK : no_memory(diag, "inputs", p->n_inputs * sizeof(DLTensor *));
}

static kiln_status fill(kiln_session *s, const kiln_session_options *options, kiln_diag *diag) {
  kiln_status st = make_times(s, options->profile, diag);
  if (st == KILN_OK) st = kiln_packed_create(&s->module->plan, diag, &s->packed);
  if (st == KILN_OK) st = kiln_extents_create(&s->module->plan, diag, &s->extents);
  if (st != KILN_OK) return st;
  if (s->module->plan.kind != KILN_PLAN_CPU)
    return kiln_gpu_session_create(s->module, options, diag, &s->gpu);
  st = make_arena(s, s->module->plan.arena_bytes, diag);
  if (st == KILN_OK) st = make_args(s, diag);
  if (st == KILN_OK) st = bind_calls(s, diag);
  if (st == KILN_OK) st = make_stored_over(s, diag);
  return st == KILN_OK ? make_pool(s, options, diag) : st;
}

static kiln_status fill_dynamic(kiln_session *s, const kiln_session_options *options,
                                kiln_diag *diag) {
  const uint32_t n = s->module->dynamic->n_variants;
  s->profiles = options->profile;
  s->parts = calloc(n, sizeof *s->parts);
  s->shapes = calloc((size_t)s->module->dynamic->n_outputs + 1, sizeof *s->shapes);
  if (!s->parts || !s->shapes) return no_memory(diag, "variants", n);
  KILN_TRY(kiln_packed_create(&s->module->plan, diag, &s->packed));
  if (s->module->plan.kind != KILN_PLAN_CPU)
    return kiln_gpu_session_create(s->module, options, diag, &s->gpu);
  return make_pool(s, options, diag);
}

static kiln_status make_bucket(kiln_session *s, uint32_t variant, kiln_diag *diag);

static void make_tensors(kiln_session *s) {
  const kiln_flow *f = s->module->flow;
  for (uint32_t i = 0; i < f->n_args; i++) {
    const kiln_flow_arg *a = &f->args[i];
    kiln_flow_value *v = &f->values[a->value];
    s->tensors[i] = (DLTensor){.device = {kDLCPU, 0},
                               .ndim = v->rank - (a->row ? 1 : 0),
                               .dtype = {v->type->code, v->type->bits, 1},
                               .shape = v->shape + (a->row ? 1 : 0)};
    s->pointers[i] = &s->tensors[i];
  }
}

static kiln_status fill_flow(kiln_session *s, const kiln_session_options *options,
                             kiln_diag *diag) {
  const kiln_flow *f = s->module->flow;
  s->profiles = options->profile;
  s->parts = calloc(f->n_parts, sizeof *s->parts);
  s->shapes = calloc((size_t)f->n_outputs + 1, sizeof *s->shapes);
  s->tensors = calloc((size_t)f->n_args + 1, sizeof *s->tensors);
  s->pointers = calloc((size_t)f->n_args + 1, sizeof *s->pointers);
  if (!s->parts || !s->shapes || !s->tensors || !s->pointers)
    return no_memory(diag, "parts", f->n_parts);
  make_tensors(s);
  kiln_status st = kiln_flow_run_init(f, diag, &s->flow);
  if (st == KILN_OK) st = make_arena(s, f->arena_bytes, diag);
  if (st == KILN_OK) st = make_pool(s, options, diag);
  for (uint32_t i = 0; i < f->n_parts && st == KILN_OK; i++) st = make_bucket(s, i, diag);
  return st;
}

kiln_status kiln_session_create(kiln_module *module, const kiln_session_options *options,
                                kiln_diag *diag, kiln_session **out_session) {
  kiln_session_options o = {0};
  KILN_TRY(kiln_argument_check(diag, __func__, "out_session", out_session));
  *out_session = NULL;
  KILN_TRY(kiln_argument_check(diag, __func__, "module", module));
  if (options)
    memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  if (o.threads < 0 || o.threads > MAX_THREADS)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, "session", "threads: must be 0 to %d, got %d",
                          MAX_THREADS, o.threads);
  if (o.spin_us < -1)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, "session",
                          "spin_us: must be -1 or more, got %" PRId32, o.spin_us);
  if (module->is_description)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, "session",
                          "module: must be loaded to be run, got one that was described");
  kiln_session *s = calloc(1, sizeof *s);
  if (!s) return no_memory(diag, "session", sizeof *s);
  s->module = kiln_module_retain(module);
  s->device = o.device;
  s->threads = o.threads ? o.threads : kiln_cpu_cores();
  s->options = o;
  kiln_status st = module->dynamic ? fill_dynamic(s, &o, diag)
                   : module->flow  ? fill_flow(s, &o, diag)
                                   : fill(s, &o, diag);
  if (st == KILN_OK) st = kiln_states_create(module, diag, &s->states);
  if (st != KILN_OK) kiln_session_destroy(s);
  else *out_session = s;
  return st;
}

// Frees everything that was made for the plan.
static void deinit_plan(kiln_session *s) {
  for (uint32_t i = 0; s->calls && i < s->module->plan.n_launches; i++)
    kiln_bound_deinit(&s->calls[i]);
  free(s->calls);
  free(s->args);
  free(s->start);
  free(s->ns);
  free(s->spans);
  free(s->iterations);
}

// Frees a part; its arena and pool are the session's, its module is owned by the module.
static void destroy_part(kiln_session *s) {
  if (!s) return;
  kiln_gpu_session_destroy(s->gpu);
  kiln_extents_destroy(s->extents);
  deinit_plan(s);
  free(s);
}

void kiln_session_destroy(kiln_session *s) {
  if (!s) return;
  for (uint32_t i = 0; s->parts && i < s->module->n_variants; i++) destroy_part(s->parts[i]);
  kiln_flow_run_deinit(&s->flow);
  free(s->tensors);
  free(s->pointers);
  free(s->parts);
  free(s->shapes);
  give_slots(s);
  kiln_pool_destroy(s->pool);
  kiln_gpu_session_destroy(s->gpu);
  kiln_packed_destroy(s->packed);
  kiln_extents_destroy(s->extents);
  kiln_states_destroy(s->states);
  free(s->stored_over);
  if (s->arena_map) munmap(s->arena_map, s->arena_map_bytes);
  deinit_plan(s);
  kiln_module_release(s->module);
  free(s);
}

// --- running ---

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

typedef struct nest_job {
  kiln_kernel_fn function;
  char *const *args;
  int64_t extent;
  int64_t n;        // number of parts
  kiln_span *spans; // [n]; NULL: not wanted
} nest_job;

static void run_part(void *argument, size_t i) {
  const nest_job *job = argument;
  int64_t part = job->extent / job->n, rest = job->extent % job->n, k = (int64_t)i;
  int64_t begin = k * part + (k < rest ? k : rest);
  if (job->spans) job->spans[i].start_ns = now_ns();
  job->function(job->args, begin, begin + part + (k < rest));
  if (job->spans) job->spans[i].ns = now_ns() - job->spans[i].start_ns;
}

// Spans for |n| threads to fill in; NULL: not wanted.
static kiln_span *take_spans(kiln_session *s, int32_t nest, int64_t n) {
  if (!s->spans) return NULL;
  kiln_span *first = &s->spans[s->n_spans];
  for (int64_t i = 0; i < n; i++)
    s->spans[s->n_spans++] =
        (kiln_span){.launch = s->first_launch + s->launch, .nest = nest, .thread = (int32_t)i};
  return first;
}

static void run_nest(kiln_session *s, uint32_t i, char *const *args) {
  const kiln_plan_nest *nest = &s->module->plan.nests[i];
  const int64_t extent = s->iterations ? s->iterations[i] : nest->extent;
  nest_job job = {s->module->functions[nest->function], args, extent, s->threads, NULL};
  if (job.n > nest->threads) job.n = nest->threads;
  if (job.n > extent) job.n = extent;
  if (job.n < 1) job.n = 1;
  job.spans = take_spans(s, (int32_t)(i - s->module->plan.launches[s->launch].first_nest), job.n);
  if (job.n == 1) run_part(&job, 0);
  else kiln_pool_run(s->pool, run_part, &job, (size_t)job.n);
}

typedef struct call_job {
  const kiln_bound *call;
  char *const *args;
  kiln_span *spans; // as in nest_job
  atomic_bool failed;
} call_job;

static void run_call_part(void *argument, size_t i) {
  call_job *job = argument;
  if (job->spans) job->spans[i].start_ns = now_ns();
  if (!kiln_bound_run(job->call, (int)i, job->args, NULL, NULL)) atomic_store(&job->failed, true);
  if (job->spans) job->spans[i].ns = now_ns() - job->spans[i].start_ns;
}

static bool run_call(kiln_session *s, const kiln_bound *call, char *const *args) {
  call_job job = {.call = call, .args = args, .spans = take_spans(s, 0, call->n)};
  atomic_init(&job.failed, false);
  if (call->n == 1) run_call_part(&job, 0);
  else kiln_pool_run(s->pool, run_call_part, &job, (size_t)call->n);
  return !atomic_load(&job.failed);
}

static kiln_status run_launches(kiln_session *s, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  s->n_spans = 0;
  for (uint32_t i = 0; i < p->n_launches; i++) {
    const kiln_plan_launch *l = &p->launches[i];
    s->launch = i;
    uint64_t start = s->ns ? now_ns() : 0;
    if (l->call && !run_call(s, &s->calls[i], s->args + l->first_arg))
      return kiln_library_call_failed(p, l, diag);
    for (uint32_t k = 0; k < l->n_nests; k++)
      run_nest(s, l->first_nest + k, s->args + l->first_arg);
    if (!s->ns) continue;
    s->start[i] = start;
    s->ns[i] = now_ns() - start;
  }
  return KILN_OK;
}

static char *at_run(const kiln_session *s, const kiln_plan_arg *a, const DLTensor *const *inputs,
                    DLTensor *const *outputs) {
  if (a->where == KILN_PLACE_INPUT) return kiln_tensor_begin(inputs[a->index]) + a->offset;
  if (a->where == KILN_PLACE_OUTPUT) return kiln_tensor_begin(outputs[a->index]) + a->offset;
  return address(s, a);
}

static void run_copies(const kiln_session *s, const DLTensor *const *inputs,
                       DLTensor *const *outputs) {
  const kiln_plan *p = &s->module->plan;
  for (uint32_t i = 0; i < p->n_copies; i++) {
    const kiln_plan_copy *c = &p->copies[i];
    const kiln_plan_port *port = &p->outputs[c->output];
    const char *from = at_run(s, &c->from, inputs, outputs);
    char *to = kiln_tensor_begin(outputs[c->output]);
    const kiln_strided what = {to,         from,        kiln_type_bytes(port->type),
                               port->rank, port->shape, c->strides};
    if (port->bytes == 0 || to == from) continue; // a state that stays
    if (kiln_strided_is_dense(&what)) memcpy(to, from, port->bytes);
    else kiln_strided_copy(&what);
  }
}

// OpenCL's memory objects are no addresses: only CUDA tensors are accepted.
static DLDevice device_of(const kiln_session *s) {
  const bool is_cuda = s->module->plan.kind == KILN_PLAN_CUDA;
  return is_cuda ? (DLDevice){kDLCUDA, s->device} : (DLDevice){0};
}

// The ports for |values| of the dimensions.
typedef struct ports_at {
  const kiln_module *module;
  const int64_t *values;
  int64_t *shape; // [KILN_PORT_MAX_RANK] of the port that was looked up last
} ports_at;

static kiln_port port_at(const ports_at *p, kiln_port port, const kiln_dynamic_port *ports,
                         size_t i) {
  if (!p->module->dynamic) return port;
  kiln_dynamic_shape(&ports[i], p->values, p->shape);
  port.shape = p->shape;
  return port;
}

static kiln_port input_port(const void *ports, size_t i) {
  const ports_at *p = ports;
  const kiln_dynamic *d = p->module->dynamic;
  return port_at(p, kiln_module_input(p->module, i), d ? d->inputs : NULL, i);
}

static kiln_port output_port(const void *ports, size_t i) {
  const ports_at *p = ports;
  const kiln_dynamic *d = p->module->dynamic;
  return port_at(p, kiln_module_output(p->module, i), d ? d->outputs : NULL, i);
}

// Whether the plan stores the output over the input.
static bool is_stored(const void *object, size_t input, size_t output) {
  const kiln_plan *p = object;
  bool is = false;
  for (uint32_t i = 0; i < p->n_states; i++)
    is |=
        p->states[i].input == input && p->states[i].output == output && kiln_plan_state_stays(p, i);
  return is;
}

static kiln_status check_run(const kiln_session *s, const int64_t *values, size_t n_inputs,
                             const DLTensor *const *inputs, size_t n_outputs,
                             DLTensor *const *outputs, kiln_diag *diag) {
  const kiln_module *m = s->module;
  const DLDevice device = device_of(s);
  int64_t shape[KILN_PORT_MAX_RANK];
  const ports_at at = {m, values, shape};
  const kiln_ports in = {"input", m->plan.n_inputs, input_port, &at, device, KILN_GPU_ALIGN};
  const kiln_ports out = {"output",      kiln_module_output_count(m), output_port, &at, device,
                          KILN_GPU_ALIGN};
  const DLTensor *const *given = (const DLTensor *const *)outputs;
  kiln_status first = kiln_check_tensors(&in, n_inputs, inputs, diag);
  kiln_status second = kiln_check_tensors(&out, n_outputs, given, diag);
  if (first != KILN_OK || second != KILN_OK) return first != KILN_OK ? first : second;
  return kiln_check_overlap(n_inputs, inputs, n_outputs, given, s->stored_over ? is_stored : NULL,
                            &m->plan, diag);
}

static kiln_status run(kiln_session *session, const DLTensor *const *inputs,
                       DLTensor *const *outputs, kiln_diag *diag) {
  const kiln_plan *p = &session->module->plan;
  if (session->gpu)
    return kiln_gpu_session_run(session->gpu, inputs, outputs, session->start, session->ns, diag);
  for (uint32_t i = 0; i < p->n_args; i++)
    if (p->args[i].where == KILN_PLACE_INPUT || p->args[i].where == KILN_PLACE_OUTPUT)
      session->args[i] = at_run(session, &p->args[i], inputs, outputs);
  KILN_TRY(kiln_pool_revive(session->pool, diag));
  kiln_pool_begin(session->pool);
  const kiln_status st = run_launches(session, diag);
  if (st == KILN_OK) run_copies(session, inputs, outputs);
  return st;
}

// Checks the run's indices after status |st|; a device's session checks them itself when it waits.
static kiln_status checked(const kiln_session *s, kiln_status st, kiln_diag *diag) {
  if (st != KILN_OK || !s->extents || s->gpu) return st;
  return kiln_plan_checked(s->extents->plan, s->extents->checked, diag);
}

// --- for ranges of dimensions ---

// A tensor in a variant's extents: the caller's if it has these, otherwise a copy in the arena.
typedef struct staged {
  DLTensor tensor;
  int64_t strides[KILN_PORT_MAX_RANK];
  uint64_t offset; // in the arena
  bool is_own;
  bool is_state;  // in the memory of a state that stays
  bool is_stored; // an input that the plan stores a state over: never in the caller's memory
} staged;

typedef struct staging {
  kiln_session *session, *part;
  uint64_t bytes; // of the arena
  staged *ports;  // inputs, dimensions, outputs
  const DLTensor **inputs;
  DLTensor **outputs;
  int64_t values[KILN_MAX_DIMS], n_values;
} staging;

static kiln_status make_bucket(kiln_session *s, uint32_t variant, kiln_diag *diag) {
  kiln_session *part = calloc(1, sizeof *part);
  if (!part) return no_memory(diag, "variant", sizeof *part);
  part->module = s->module->variants[variant];
  part->threads = s->threads;
  part->pool = s->pool;
  part->arena = s->arena;
  for (uint32_t v = 0; v < variant; v++)
    part->first_launch += s->module->variants[v]->plan.n_launches;
  if (s->module->dynamic)
    part->iterations = calloc((size_t)part->module->plan.n_nests + 1, sizeof *part->iterations);
  kiln_status st = make_times(part, s->profiles, diag);
  if (st == KILN_OK && s->gpu)
    st = kiln_gpu_session_create_part(s->gpu, variant, &s->options, diag, &part->gpu);
  if (st == KILN_OK && !s->gpu) st = make_args(part, diag);
  if (st == KILN_OK && !s->gpu) st = bind_calls(part, diag);
  if (st == KILN_OK) st = kiln_extents_create(&part->module->plan, diag, &part->extents);
  if (st == KILN_OK && s->module->dynamic && !part->iterations)
    st = no_memory(diag, "iterations", part->module->plan.n_nests);
  if (st != KILN_OK) destroy_part(part);
  else s->parts[variant] = part;
  return st;
}

static void set_iterations(kiln_session *part, const kiln_variant *v, const int64_t *values) {
  const kiln_plan *p = &part->module->plan;
  for (uint32_t i = 0; i < p->n_nests; i++) part->iterations[i] = p->nests[i].extent;
  for (uint32_t i = 0; i < v->n_trims; i++) {
    int64_t *extent = &part->iterations[v->trims[i].nest];
    const int64_t n = kiln_formula_value(&v->trims[i].extent, values);
    if (n < *extent) *extent = n > 0 ? n : 0;
  }
}

// Reserves room in the arena for port |t| if the caller's tensor |from| is smaller than the
// variant's.
static void stage(staging *g, const kiln_plan_port *port, const DLTensor *from, staged *t) {
  int64_t stride = 1;
  if (t->is_state) return;
  t->tensor = *from;
  t->tensor.strides = NULL;
  t->is_own = t->is_stored ||
              memcmp(from->shape, port->shape, (size_t)port->rank * sizeof *port->shape) != 0;
  for (int32_t k = port->rank - 1; k >= 0; k--) {
    t->strides[k] = stride;
    stride *= port->shape[k];
  }
  if (!t->is_own) return;
  t->offset = (g->bytes + KILN_PLAN_ALIGN - 1) / KILN_PLAN_ALIGN * KILN_PLAN_ALIGN;
  g->bytes = t->offset + port->bytes;
}

static kiln_strided part_of(const staged *t, const DLTensor *of, char *to, const char *from) {
  return (kiln_strided){to,       from,      kiln_type_bytes(kiln_type_of(of->dtype)),
                        of->ndim, of->shape, t->strides};
}

// Grows the arena that all parts share.
static kiln_status want_arena(kiln_session *s, kiln_session *part, uint64_t bytes,
                              kiln_diag *diag) {
  kiln_status st = KILN_OK;
  if (bytes > s->arena_bytes || !s->arena) {
    if (s->arena_map) munmap(s->arena_map, s->arena_map_bytes);
    s->arena_map = s->arena = NULL;
    s->arena_map_bytes = s->arena_bytes = 0;
    st = make_arena(s, bytes, diag);
  }
  if (st != KILN_OK) return st;
  part->arena = s->arena;
  if (part->address != part->arena) set_args(part);
  part->address = part->arena;
  return KILN_OK;
}

// Copies an input. Integers beyond its extents are zeroed, because they may be used as indices.
static void copy_in(staging *g, const kiln_plan_port *port, const DLTensor *from, staged *t) {
  if (!t->is_own) return;
  t->tensor.data = g->part->arena + t->offset;
  t->tensor.byte_offset = 0;
  const kiln_strided what = part_of(t, from, t->tensor.data, kiln_tensor_begin(from));
  if (t->is_stored || (from->dtype.code != kDLFloat && from->dtype.code != kDLBfloat))
    memset(t->tensor.data, 0, port->bytes);
  if (kiln_tensor_count(from) > 0) kiln_strided_spread(&what);
}

static void copy_out(const staged *t, DLTensor *to) {
  if (!t->is_own || kiln_tensor_count(to) == 0) return;
  const kiln_strided what = part_of(t, to, kiln_tensor_begin(to), t->tensor.data);
  kiln_strided_copy(&what);
}

// A table whose formulas exceed the plan's extents is damaged.
static kiln_status want_room(uint32_t n, const kiln_plan_port *ports,
                             const DLTensor *const *tensors, kiln_diag *diag) {
  for (uint32_t i = 0; i < n; i++)
    for (int32_t k = 0; k < ports[i].rank; k++)
      if (tensors[i]->shape[k] > ports[i].shape[k])
        return kiln_diag_fail(diag, KILN_BAD_INPUT, ports[i].name,
                              "damaged table of variants: axis %" PRId32
                              " must have at most %" PRId64 " elements, got %" PRId64,
                              k, ports[i].shape[k], tensors[i]->shape[k]);
  return KILN_OK;
}

// Gives the ports of states that stay the states' memory.
static void place_states(staging *g, const DLTensor *const *inputs, DLTensor *const *outputs) {
  const kiln_plan *p = &g->part->module->plan;
  kiln_session_states *states = g->session->states;
  for (uint32_t i = 0; i < p->n_states; i++) {
    const kiln_plan_state *s = &p->states[i];
    staged *in = &g->ports[s->input], *out = &g->ports[p->n_inputs + s->output];
    in->is_state = out->is_state = states && states->values[i].stays;
    in->is_stored = kiln_plan_state_stays(p, i);
    if (!in->is_state) continue;
    in->tensor = *inputs[s->input];
    out->tensor = *outputs[s->output];
    in->tensor.data = out->tensor.data = kiln_states_place(states, p, i);
    in->tensor.byte_offset = out->tensor.byte_offset = 0;
  }
}

static kiln_status run_staged(staging *g, const DLTensor *const *inputs, DLTensor *const *outputs,
                              kiln_diag *diag) {
  const kiln_plan *p = &g->part->module->plan;
  const uint32_t n_in = p->n_inputs - 1;
  kiln_status st = want_room(n_in, p->inputs, inputs, diag);
  if (st == KILN_OK)
    st = want_room(kiln_plan_n_results(p), p->outputs, (const DLTensor *const *)outputs, diag);
  if (st != KILN_OK) return st;
  if (g->part->extents) outputs = kiln_extents_begin(g->part->extents, outputs);
  place_states(g, inputs, outputs);
  for (uint32_t i = 0; i < n_in; i++) stage(g, &p->inputs[i], inputs[i], &g->ports[i]);
  for (uint32_t i = 0; i < p->n_outputs; i++)
    stage(g, &p->outputs[i], outputs[i], &g->ports[p->n_inputs + i]);
  st = want_arena(g->session, g->part, g->bytes, diag);
  if (st != KILN_OK) return st;
  for (uint32_t i = 0; i < n_in; i++) copy_in(g, &p->inputs[i], inputs[i], &g->ports[i]);
  g->ports[n_in].tensor = (DLTensor){.data = g->values,
                                     .device = {kDLCPU, 0},
                                     .ndim = 1,
                                     .dtype = {kDLInt, 64, 1},
                                     .shape = &g->n_values};
  for (uint32_t i = 0; i < p->n_inputs; i++) g->inputs[i] = &g->ports[i].tensor;
  for (uint32_t i = 0; i < p->n_outputs; i++) {
    staged *t = &g->ports[p->n_inputs + i];
    g->outputs[i] = &t->tensor;
    if (!t->is_own) continue;
    t->tensor.data = g->part->arena + t->offset;
    t->tensor.byte_offset = 0;
  }
  st = run(g->part, g->inputs, g->outputs, diag);
  for (uint32_t i = 0; i < p->n_outputs && st == KILN_OK; i++)
    copy_out(&g->ports[p->n_inputs + i], outputs[i]);
  return checked(g->part, st, diag);
}

// On a device, whose session copies the ports.
static kiln_status run_on_device(kiln_session *s, int variant, const int64_t *values,
                                 const DLTensor *const *inputs, DLTensor *const *outputs,
                                 kiln_diag *diag) {
  kiln_session *part = s->parts[variant];
  const kiln_dynamic *d = s->module->dynamic;
  const kiln_plan *p = &part->module->plan;
  const DLTensor *const *given = (const DLTensor *const *)outputs;
  KILN_TRY(want_room(p->n_inputs - 1, p->inputs, inputs, diag));
  KILN_TRY(want_room(kiln_plan_n_results(p), p->outputs, given, diag));
  KILN_TRY(kiln_gpu_session_choose(part->gpu, &d->variants[variant], d->n_dims, values, diag));
  if (part->extents) outputs = kiln_extents_begin(part->extents, outputs);
  return run(part, inputs, outputs, diag);
}

static void set_shapes(kiln_session *s, const int64_t *values) {
  const kiln_dynamic *d = s->module->dynamic;
  for (uint32_t i = 0; i < d->n_outputs; i++)
    kiln_dynamic_shape(&d->outputs[i], values, s->shapes[i]);
}

static kiln_status run_dynamic(kiln_session *s, const int64_t *values,
                               const DLTensor *const *inputs, DLTensor *const *outputs,
                               kiln_diag *diag) {
  const kiln_dynamic *d = s->module->dynamic;
  const int variant = kiln_dynamic_choose(d, values);
  if (variant < 0)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, "run",
                          "damaged module: a variant must take every value of its ranges");
  kiln_status st = s->parts[variant] ? KILN_OK : make_bucket(s, (uint32_t)variant, diag);
  if (st != KILN_OK) return st;
  set_shapes(s, values);
  s->last = s->parts[variant];
  if (s->gpu) return run_on_device(s, variant, values, inputs, outputs, diag);
  staging g = {.session = s, .part = s->parts[variant], .n_values = d->n_dims};
  const kiln_plan *p = &g.part->module->plan;
  const size_t n_ports = (size_t)p->n_inputs + p->n_outputs;
  g.bytes = p->arena_bytes;
  memcpy(g.values, values, d->n_dims * sizeof *values);
  set_iterations(g.part, &d->variants[variant], values);
  g.ports = calloc(n_ports, sizeof *g.ports);
  g.inputs = calloc(p->n_inputs, sizeof *g.inputs);
  g.outputs = calloc((size_t)p->n_outputs + 1, sizeof *g.outputs);
  st = g.ports && g.inputs && g.outputs ? run_staged(&g, inputs, outputs, diag)
                                        : no_memory(diag, "ports", n_ports);
  free(g.ports);
  free(g.inputs);
  free(g.outputs);
  return st;
}

// --- a flow ---

static kiln_status run_flow_part(void *user, const kiln_flow_step *step, char *const *args,
                                 kiln_diag *diag) {
  kiln_session *s = user, *part = s->parts[step->part];
  DLTensor **inputs = s->pointers + step->first_arg;
  DLTensor *const *outputs = inputs + part->module->plan.n_inputs;
  for (uint32_t k = 0; k < step->n_args; k++) s->tensors[step->first_arg + k].data = args[k];
  if (part->extents) outputs = kiln_extents_begin(part->extents, outputs);
  s->last = part;
  return checked(part, run(part, (const DLTensor *const *)inputs, outputs, diag), diag);
}

static kiln_status run_flow(kiln_session *s, const DLTensor *const *inputs,
                            DLTensor *const *outputs, kiln_diag *diag) {
  const kiln_flow *f = s->module->flow;
  for (uint32_t i = 0; i < f->n_inputs; i++) s->flow.at[i] = kiln_tensor_begin(inputs[i]);
  for (uint32_t i = 0; i < f->n_outputs; i++)
    s->flow.at[f->n_inputs + i] = kiln_tensor_begin(outputs[i]);
  const kiln_status st = kiln_flow_run_steps(&s->flow, s->arena, run_flow_part, s, diag);
  for (uint32_t i = 0; i < f->n_outputs; i++) {
    const kiln_flow_shape *x = &f->shapes[i];
    const kiln_session *part = x->part ? s->parts[x->part - 1] : NULL;
    const int64_t *found =
        part && part->extents ? kiln_extents_find(part->extents, x->output) : NULL;
    memcpy(s->shapes[i], found ? found : f->values[f->n_inputs + i].shape, sizeof s->shapes[i]);
  }
  return st;
}

// A run that stores outputs over inputs: those of the caller are copied into their outputs first.
static kiln_status run_over(kiln_session *s, const DLTensor *const *inputs,
                            DLTensor *const *outputs, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  for (uint32_t i = 0; i < p->n_inputs; i++) s->stored_over[i] = inputs[i];
  for (uint32_t i = 0; i < p->n_states; i++) {
    const kiln_plan_state *state = &p->states[i];
    if (!kiln_plan_state_stays(p, i)) continue;
    const char *from = kiln_tensor_begin(inputs[state->input]);
    char *to = kiln_tensor_begin(outputs[state->output]);
    if (to != from && p->inputs[state->input].bytes > 0)
      memmove(to, from, p->inputs[state->input].bytes);
    s->stored_over[state->input] = outputs[state->output];
  }
  return run(s, s->stored_over, outputs, diag);
}

// A run whose tensors have a byte or more for each element.
static kiln_status run_unpacked(kiln_session *session, const int64_t *values,
                                const DLTensor *const *inputs, DLTensor *const *outputs,
                                kiln_diag *diag) {
  if (session->parts) return run_dynamic(session, values, inputs, outputs, diag);
  if (session->stored_over) return checked(session, run_over(session, inputs, outputs, diag), diag);
  return checked(session, run(session, inputs, outputs, diag), diag);
}

static kiln_status check_and_run(kiln_session *session, size_t n_inputs,
                                 const DLTensor *const *inputs, size_t n_outputs,
                                 DLTensor *const *outputs, kiln_diag *diag) {
  kiln_packed *packed = session->packed;
  int64_t values[KILN_MAX_DIMS] = {0};
  kiln_status st = kiln_module_find_dims(session->module, n_inputs, inputs, diag, values);
  if (st == KILN_OK) st = check_run(session, values, n_inputs, inputs, n_outputs, outputs, diag);
  if (st != KILN_OK) return st;
  if (session->flow.flow) return run_flow(session, inputs, outputs, diag);
  if (session->extents) outputs = kiln_extents_begin(session->extents, outputs);
  if (!packed) return run_unpacked(session, values, inputs, outputs, diag);
  st = kiln_packed_begin(packed, inputs, outputs, diag);
  if (st == KILN_OK) st = run_unpacked(session, values, packed->inputs, packed->outputs, diag);
  if (st == KILN_OK) kiln_packed_end(packed, outputs);
  return st;
}

// Runs with the session's states for inputs and outputs that are not given.
static kiln_status run_with_states(kiln_session *session, size_t n_inputs,
                                   const DLTensor *const *inputs, size_t n_outputs,
                                   DLTensor *const *outputs, kiln_diag *diag) {
  kiln_session_states *states = session->states;
  if (!states || !inputs || !outputs || n_inputs != session->module->plan.n_inputs ||
      n_outputs != kiln_module_output_count(session->module))
    return check_and_run(session, n_inputs, inputs, n_outputs, outputs, diag);
  KILN_TRY(kiln_states_begin(states, inputs, outputs, diag));
  const kiln_status st =
      check_and_run(session, n_inputs, states->inputs, n_outputs, states->outputs, diag);
  if (st == KILN_OK) kiln_states_end(states, outputs);
  else kiln_states_undo(states);
  return st;
}

// Runs with defaults for inputs that are not given.
static kiln_status fill_in_and_run(kiln_session *session, size_t n_inputs,
                                   const DLTensor *const *inputs, size_t n_outputs,
                                   DLTensor *const *outputs, kiln_diag *diag) {
  if (!session->module->defaults || !inputs)
    return run_with_states(session, n_inputs, inputs, n_outputs, outputs, diag);
  const DLTensor **given = kiln_module_fill_in(session->module, n_inputs, inputs);
  if (!given) return no_memory(diag, "inputs", n_inputs * sizeof *given);
  const kiln_status st = run_with_states(session, n_inputs, given, n_outputs, outputs, diag);
  free(given);
  return st;
}

// All threads use the floating-point environment for which kernels were compiled.
kiln_status kiln_session_run(kiln_session *session, size_t n_inputs, const DLTensor *const *inputs,
                             size_t n_outputs, DLTensor *const *outputs, kiln_diag *diag) {
  KILN_TRY(kiln_argument_check(diag, __func__, "session", session));
  const kiln_floating before = kiln_floating_begin();
  const kiln_status st = fill_in_and_run(session, n_inputs, inputs, n_outputs, outputs, diag);
  kiln_floating_end(before);
  return st;
}

// --- state ---

// The states of a session that must have some.
static kiln_status want_states(const kiln_session *s, const char *function, kiln_diag *diag,
                               kiln_session_states **out) {
  KILN_TRY(kiln_argument_check(diag, function, "session", s));
  *out = s->states;
  if (s->states) return KILN_OK;
  return kiln_diag_fail(diag, KILN_BAD_INPUT, "session",
                        "state: the module must have been compiled with states, it has none");
}

kiln_status kiln_session_find_dims(kiln_session *session, size_t n_inputs,
                                   const DLTensor *const *inputs, kiln_diag *diag,
                                   int64_t *out_values) {
  KILN_TRY(kiln_argument_check(diag, __func__, "session", session));
  const kiln_module *m = session->module;
  if (!session->states || !inputs || n_inputs != m->plan.n_inputs)
    return kiln_module_find_dims(m, n_inputs, inputs, diag, out_values);
  if (m->dynamic) KILN_TRY(kiln_argument_check(diag, __func__, "out_values", out_values));
  return kiln_states_find_dims(session->states, inputs, diag, out_values);
}

const DLTensor *kiln_session_state(const kiln_session *session, size_t i) {
  if (!session || !session->states || i >= session->states->n) return NULL;
  return kiln_states_value(session->states, (uint32_t)i);
}

kiln_status kiln_session_state_reset(kiln_session *session, kiln_diag *diag) {
  kiln_session_states *states = NULL;
  KILN_TRY(want_states(session, __func__, diag, &states));
  kiln_states_reset(states);
  return KILN_OK;
}

kiln_status kiln_session_state_truncate(kiln_session *session, int64_t length, kiln_diag *diag) {
  kiln_session_states *states = NULL;
  KILN_TRY(want_states(session, __func__, diag, &states));
  return kiln_states_truncate(states, length, diag);
}

kiln_status kiln_session_fork(const kiln_session *session, kiln_diag *diag,
                              kiln_session **out_session) {
  kiln_session_states *states = NULL;
  KILN_TRY(kiln_argument_check(diag, __func__, "out_session", out_session));
  *out_session = NULL;
  KILN_TRY(want_states(session, __func__, diag, &states));
  KILN_TRY(kiln_session_create(session->module, &session->options, diag, out_session));
  kiln_states_copy(states, (*out_session)->states);
  return KILN_OK;
}

kiln_status kiln_session_state_save(const kiln_session *session, const char *path,
                                    kiln_diag *diag) {
  kiln_session_states *states = NULL;
  KILN_TRY(want_states(session, __func__, diag, &states));
  KILN_TRY(kiln_argument_check(diag, __func__, "path", path));
  return kiln_states_save(states, path, diag);
}

kiln_status kiln_session_state_load(kiln_session *session, const char *path, kiln_diag *diag) {
  kiln_session_states *states = NULL;
  KILN_TRY(want_states(session, __func__, diag, &states));
  KILN_TRY(kiln_argument_check(diag, __func__, "path", path));
  return kiln_states_load(states, path, diag);
}

const int64_t *kiln_session_output_shape(const kiln_session *session, size_t i) {
  if (!session) return NULL;
  if (session->shapes && i < session->module->plan.n_outputs) return session->shapes[i];
  const int64_t *found = session->extents ? kiln_extents_find(session->extents, i) : NULL;
  return found ? found : kiln_module_output(session->module, i).shape;
}

kiln_status kiln_session_wait(kiln_session *session, kiln_diag *diag) {
  KILN_TRY(kiln_argument_check(diag, __func__, "session", session));
  return session->gpu ? kiln_gpu_session_wait(session->gpu, diag) : KILN_OK;
}

kiln_status kiln_session_set_stream(kiln_session *session, void *stream, kiln_diag *diag) {
  KILN_TRY(kiln_argument_check(diag, __func__, "session", session));
  if (!session->gpu)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, "session",
                          "stream: the module must be for a GPU, it is for a CPU");
  return kiln_gpu_session_set_stream(session->gpu, stream, diag);
}

// The part that runs the module's launch |*io|, and its number there; NULL if it has not been made.
static const kiln_session *part_at(const kiln_session *s, size_t *io) {
  for (uint32_t v = 0; s->parts && v < s->module->n_variants; v++) {
    const uint32_t n = s->module->variants[v]->plan.n_launches;
    if (*io < n) return s->parts[v];
    *io -= n;
  }
  return s;
}

uint64_t kiln_session_launch_start_ns(const kiln_session *session, size_t i) {
  const kiln_session *s = session ? part_at(session, &i) : NULL;
  return s && s->start && i < s->module->plan.n_launches ? s->start[i] : 0;
}

uint64_t kiln_session_launch_ns(const kiln_session *session, size_t i) {
  const kiln_session *s = session ? part_at(session, &i) : NULL;
  return s && s->ns && i < s->module->plan.n_launches ? s->ns[i] : 0;
}

size_t kiln_session_spans(const kiln_session *session, const kiln_span **out_spans) {
  const kiln_session *s = session && session->parts ? session->last : session;
  if (out_spans) *out_spans = s ? s->spans : NULL;
  return s && s->spans ? s->n_spans : 0;
}

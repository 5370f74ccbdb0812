// Sessions: an arena, a pool, and the plan's arguments as addresses. A run patches the addresses of
// inputs and outputs and then calls the functions of the launches one after the other.
#include "runtime/check.h"
#include "runtime/extents.h"
#include "runtime/gpu_session.h"
#include "runtime/module.h"
#include "runtime/packed.h"
#include "runtime/pool.h"
#include "runtime/strided.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct kiln_session {
  kiln_module *module;   // one reference
  kiln_gpu_session *gpu; // runs the plan of a device, in place of all that follows up to the times
  kiln_packed *packed;   // NULL: no input or output is
  kiln_extents *extents; // NULL: all shapes are known
  kiln_pool *pool;
  int threads;
  int32_t device;
  bool has_slots;
  char *arena; // 2 MiB aligned where it is as large
  void *arena_map;
  size_t arena_map_bytes;
  char **args;          // [n_args]; those in inputs and outputs change from run to run
  kiln_bound *calls;    // [n_launches], those of launches that call a library
  uint64_t *start, *ns; // [n_launches] when profiling; NULL otherwise
};

enum { HUGE_PAGE = 2 << 20, MAX_THREADS = 1024, MAX_SLOTS = 1 << 20 };

static kiln_status no_memory(kiln_diag *diag, const char *what, uint64_t bytes) {
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "session", "%s: %" PRIu64 " bytes: no memory left",
                        what, bytes);
}

static kiln_status make_arena(kiln_session *s, kiln_diag *diag) {
  const size_t bytes = s->module->plan.arena_bytes;
  const size_t slack = bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
  if (bytes == 0) return KILN_OK;
  void *map = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return no_memory(diag, "arena", bytes);
  s->arena_map = map;
  s->arena_map_bytes = bytes + slack;
  s->arena = (char *)map + (slack ? (-(uintptr_t)map & (HUGE_PAGE - 1)) : 0);
  // Whole huge pages only: the rest of the last one would be memory that nobody uses.
  if (slack) (void)madvise(s->arena, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
  return KILN_OK;
}

// The begin of the memory an argument lies in, for what does not change between runs.
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

static kiln_status make_times(kiln_session *s, kiln_diag *diag) {
  const uint32_t n = s->module->plan.n_launches;
  s->start = calloc((size_t)n + 1, sizeof *s->start);
  s->ns = calloc((size_t)n + 1, sizeof *s->ns);
  return s->start && s->ns ? KILN_OK : no_memory(diag, "profile", n);
}

static kiln_status make_args(kiln_session *s, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  s->args = calloc((size_t)p->n_args + 1, sizeof *s->args);
  if (!s->args) return no_memory(diag, "arguments", p->n_args);
  for (uint32_t i = 0; i < p->n_args; i++) s->args[i] = address(s, &p->args[i]);
  return KILN_OK;
}

static kiln_status bind_call(kiln_session *s, const kiln_plan_launch *l, kiln_bound *out,
                             kiln_diag *diag) {
  const kiln_plan_call *plan = &s->module->plan.calls[l->call - 1];
  const int most = (uint64_t)s->threads < plan->threads ? s->threads : (int)plan->threads;
  char **constants = calloc((size_t)l->n_args + 1, sizeof *constants);
  kiln_call call;
  if (!constants) return no_memory(diag, "constants", l->n_args);
  for (uint32_t i = 0; i < l->n_args; i++) {
    const kiln_place where = s->module->plan.args[l->first_arg + i].where;
    if (where == KILN_PLACE_WEIGHTS || where == KILN_PLACE_EXTERN)
      constants[i] = s->args[l->first_arg + i];
  }
  (void)kiln_call_parse(plan->text, &call); // which the plan's reader has done before
  kiln_status st =
      kiln_bound_create(&s->module->libraries[l->call - 1], &call, most, constants, diag, out);
  free(constants);
  return st;
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

// Sessions of one module that live at once get different CPUs for their workers.
static int take_slots(kiln_session *s) {
  atomic_fetch_add(&s->module->sessions, 1);
  s->has_slots = true;
  return atomic_fetch_add(&s->module->slots, s->threads) & (MAX_SLOTS - 1);
}

static void give_slots(kiln_session *s) {
  if (s->has_slots && atomic_fetch_sub(&s->module->sessions, 1) == 1)
    atomic_store(&s->module->slots, 0);
}

static kiln_status fill(kiln_session *s, const kiln_session_options *options, kiln_diag *diag) {
  kiln_status st = options->profile ? make_times(s, diag) : KILN_OK;
  if (st == KILN_OK) st = kiln_packed_create(&s->module->plan, diag, &s->packed);
  if (st == KILN_OK) st = kiln_extents_create(&s->module->plan, diag, &s->extents);
  if (st != KILN_OK) return st;
  if (s->module->plan.kind != KILN_PLAN_CPU)
    return kiln_gpu_session_create(s->module, options, diag, &s->gpu);
  st = make_arena(s, diag);
  if (st == KILN_OK) st = make_args(s, diag);
  if (st == KILN_OK) st = bind_calls(s, diag);
  const int64_t spin_ns = options->spin_us ? options->spin_us * INT64_C(1000) : KILN_POOL_SPIN_NS;
  if (st == KILN_OK) st = kiln_pool_create(s->threads, take_slots(s), spin_ns, diag, &s->pool);
  return st;
}

kiln_status kiln_session_create(kiln_module *module, const kiln_session_options *options,
                                kiln_diag *diag, kiln_session **out_session) {
  kiln_session_options o = {0};
  *out_session = NULL;
  if (options)
    memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  if (o.threads < 0 || o.threads > MAX_THREADS)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, "session", "threads: must be 0 to %d, got %d",
                          MAX_THREADS, o.threads);
  if (o.spin_us < -1)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, "session",
                          "spin_us: must be -1 or more, got %" PRId32, o.spin_us);
  kiln_session *s = calloc(1, sizeof *s);
  if (!s) return no_memory(diag, "session", sizeof *s);
  s->module = kiln_module_retain(module);
  s->device = o.device;
  s->threads = o.threads ? o.threads : kiln_cpu_cores();
  kiln_status st = fill(s, &o, diag);
  if (st != KILN_OK) kiln_session_destroy(s);
  else *out_session = s;
  return st;
}

void kiln_session_destroy(kiln_session *s) {
  if (!s) return;
  give_slots(s);
  kiln_pool_destroy(s->pool);
  kiln_gpu_session_destroy(s->gpu);
  kiln_packed_destroy(s->packed);
  kiln_extents_destroy(s->extents);
  if (s->arena_map) munmap(s->arena_map, s->arena_map_bytes);
  for (uint32_t i = 0; s->calls && i < s->module->plan.n_launches; i++)
    kiln_bound_deinit(&s->calls[i]);
  free(s->calls);
  free(s->args);
  free(s->start);
  free(s->ns);
  kiln_module_release(s->module);
  free(s);
}

// --- running ---

typedef struct nest_job {
  kiln_kernel_fn function;
  char *const *args;
  int64_t extent;
  int64_t n; // parts
} nest_job;

static void run_part(void *argument, size_t i) {
  const nest_job *job = argument;
  int64_t part = job->extent / job->n, rest = job->extent % job->n, k = (int64_t)i;
  int64_t begin = k * part + (k < rest ? k : rest);
  job->function(job->args, begin, begin + part + (k < rest));
}

static void run_nest(kiln_session *s, const kiln_plan_nest *nest, char *const *args) {
  nest_job job = {s->module->functions[nest->function], args, nest->extent, s->threads};
  if (job.n > nest->threads) job.n = nest->threads;
  if (job.n > nest->extent) job.n = nest->extent;
  if (job.n <= 1) job.function(args, 0, nest->extent);
  else kiln_pool_run(s->pool, run_part, &job, (size_t)job.n);
}

typedef struct call_job {
  const kiln_bound *call;
  char *const *args;
  atomic_bool failed;
} call_job;

static void run_call_part(void *argument, size_t i) {
  call_job *job = argument;
  if (!kiln_bound_run(job->call, (int)i, job->args)) atomic_store(&job->failed, true);
}

static bool run_call(kiln_session *s, const kiln_bound *call, char *const *args) {
  call_job job = {.call = call, .args = args};
  atomic_init(&job.failed, false);
  if (call->n == 1) run_call_part(&job, 0);
  else kiln_pool_run(s->pool, run_call_part, &job, (size_t)call->n);
  return !atomic_load(&job.failed);
}

static kiln_status call_failed(const kiln_plan *p, const kiln_plan_launch *l, kiln_diag *diag) {
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, l->kernel, "library: %s must run \"%s\"",
                        p->calls[l->call - 1].backend, p->calls[l->call - 1].text);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static kiln_status run_launches(kiln_session *s, kiln_diag *diag) {
  const kiln_plan *p = &s->module->plan;
  for (uint32_t i = 0; i < p->n_launches; i++) {
    const kiln_plan_launch *l = &p->launches[i];
    uint64_t start = s->ns ? now_ns() : 0;
    if (l->call && !run_call(s, &s->calls[i], s->args + l->first_arg))
      return call_failed(p, l, diag);
    for (uint32_t k = 0; k < l->n_nests; k++)
      run_nest(s, &p->nests[l->first_nest + k], s->args + l->first_arg);
    if (!s->ns) continue;
    s->start[i] = start;
    s->ns[i] = now_ns() - start;
  }
  return KILN_OK;
}

static char *at_run(const kiln_session *s, const kiln_plan_arg *a, const DLTensor *const *inputs,
                    DLTensor *const *outputs) {
  if (a->where == KILN_PLACE_INPUT) return kiln_tensor_begin(inputs[a->index]);
  if (a->where == KILN_PLACE_OUTPUT) return kiln_tensor_begin(outputs[a->index]);
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
    if (port->bytes == 0) continue;
    if (kiln_strided_is_dense(&what)) memcpy(to, from, port->bytes);
    else kiln_strided_copy(&what);
  }
}

static kiln_port input_port(const void *module, size_t i) { return kiln_module_input(module, i); }
static kiln_port output_port(const void *module, size_t i) { return kiln_module_output(module, i); }

// OpenCL's memory objects are no addresses: only CUDA's tensors are taken.
static DLDevice device_of(const kiln_session *s) {
  const bool is_cuda = s->module->plan.kind == KILN_PLAN_CUDA;
  return is_cuda ? (DLDevice){kDLCUDA, s->device} : (DLDevice){0};
}

static kiln_status check_run(const kiln_session *s, size_t n_inputs, const DLTensor *const *inputs,
                             size_t n_outputs, DLTensor *const *outputs, kiln_diag *diag) {
  const kiln_module *m = s->module;
  const DLDevice device = device_of(s);
  const kiln_ports in = {"input", m->plan.n_inputs, input_port, m, device, KILN_GPU_ALIGN};
  const kiln_ports out = {"output",      kiln_module_output_count(m), output_port, m, device,
                          KILN_GPU_ALIGN};
  const DLTensor *const *given = (const DLTensor *const *)outputs;
  kiln_status first = kiln_check_tensors(&in, n_inputs, inputs, diag);
  kiln_status second = kiln_check_tensors(&out, n_outputs, given, diag);
  if (first != KILN_OK || second != KILN_OK) return first != KILN_OK ? first : second;
  return kiln_check_overlap(n_inputs, inputs, n_outputs, given, diag);
}

static kiln_status run(kiln_session *session, const DLTensor *const *inputs,
                       DLTensor *const *outputs, kiln_diag *diag) {
  const kiln_plan *p = &session->module->plan;
  if (session->gpu)
    return kiln_gpu_session_run(session->gpu, inputs, outputs, session->start, session->ns, diag);
  for (uint32_t i = 0; i < p->n_args; i++)
    if (p->args[i].where == KILN_PLACE_INPUT || p->args[i].where == KILN_PLACE_OUTPUT)
      session->args[i] = at_run(session, &p->args[i], inputs, outputs);
  kiln_pool_begin(session->pool);
  const kiln_status st = run_launches(session, diag);
  if (st == KILN_OK) run_copies(session, inputs, outputs);
  return st;
}

kiln_status kiln_session_run(kiln_session *session, size_t n_inputs, const DLTensor *const *inputs,
                             size_t n_outputs, DLTensor *const *outputs, kiln_diag *diag) {
  kiln_packed *packed = session->packed;
  kiln_status st = check_run(session, n_inputs, inputs, n_outputs, outputs, diag);
  if (st != KILN_OK) return st;
  if (session->extents) outputs = kiln_extents_begin(session->extents, outputs);
  if (!packed) return run(session, inputs, outputs, diag);
  kiln_packed_begin(packed, inputs, outputs);
  st = run(session, packed->inputs, packed->outputs, diag);
  if (st == KILN_OK) kiln_packed_end(packed, outputs);
  return st;
}

const int64_t *kiln_session_output_shape(const kiln_session *session, size_t i) {
  const int64_t *found = session->extents ? kiln_extents_find(session->extents, i) : NULL;
  return found ? found : kiln_module_output(session->module, i).shape;
}

kiln_status kiln_session_wait(kiln_session *session, kiln_diag *diag) {
  return session->gpu ? kiln_gpu_session_wait(session->gpu, diag) : KILN_OK;
}

uint64_t kiln_session_launch_start_ns(const kiln_session *session, size_t i) {
  return session->start && i < session->module->plan.n_launches ? session->start[i] : 0;
}

uint64_t kiln_session_launch_ns(const kiln_session *session, size_t i) {
  return session->ns && i < session->module->plan.n_launches ? session->ns[i] : 0;
}

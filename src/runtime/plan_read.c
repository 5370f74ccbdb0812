// Reads a plan from unchecked data: a cursor that stops at the first wrong byte, then one sweep
// over references between fields.
#include "runtime/plan.h"
#include "backend/library_call.h"
#include "runtime/blob.h"
#include "runtime/wire.h"

#include <stdlib.h>

enum { MAX_SHARED = 1 << 20 };

static const char **get_texts(kiln_reader *r, uint32_t n) {
  const char **texts = kiln_get_array(r, n, 5, sizeof *texts);
  for (uint32_t i = 0; i < n && !r->wrong; i++) texts[i] = kiln_get_text(r);
  return texts;
}

static void get_port(kiln_reader *r, kiln_plan_port *port) {
  port->name = kiln_get_text(r);
  port->type = kiln_type_find(kiln_get_text(r));
  uint32_t rank = kiln_get_u32(r);
  if (!r->wrong && !port->type) kiln_reader_fail(r, "a dtype must be one of Kiln's");
  if (!r->wrong && rank > KILN_PORT_MAX_RANK) kiln_reader_fail(r, "a rank must be at most 8");
  if (r->wrong) return;
  port->rank = (int32_t)rank;
  for (uint32_t k = 0; k < rank; k++) port->shape[k] = (int64_t)kiln_get(r, 8);
  port->initial = kiln_get(r, 8);
  if (!r->wrong &&
      !kiln_shape_bytes(port->rank, port->shape, kiln_type_bytes(port->type), &port->bytes))
    kiln_reader_fail(r, "the extents of a shape must be at least 0 and its bytes below 2^62");
}

static kiln_plan_port *get_ports(kiln_reader *r, uint32_t n) {
  kiln_plan_port *ports = kiln_get_array(r, n, 22, sizeof *ports);
  for (uint32_t i = 0; i < n && !r->wrong; i++) get_port(r, &ports[i]);
  return ports;
}

static bool is_inside(uint64_t offset, uint64_t bytes, uint64_t limit) {
  return offset <= limit && bytes <= limit - offset;
}

// Defaults of inputs must be in the weights, in the layout of tensors.
static void check_initials(kiln_reader *r, const kiln_plan *p) {
  for (uint32_t i = 0; i < p->n_inputs && !r->wrong; i++) {
    const kiln_plan_port *port = &p->inputs[i];
    const uint64_t elems = port->bytes / kiln_type_bytes(port->type), at = port->initial - 1;
    if (port->initial &&
        (at % KILN_PLAN_ALIGN != 0 ||
         !is_inside(at, kiln_type_tensor_bytes(port->type, elems), p->weights_bytes)))
      kiln_reader_fail(r, "the value of an input that need not be given must lie in the weights");
  }
}

static void check_arg(kiln_reader *r, const kiln_plan *p, uint32_t where, const kiln_plan_arg *a) {
  bool ok = false;
  if (where >= KILN_N_PLACES) {
    kiln_reader_fail(r, "an argument must lie in an input, an output, the arena or the weights");
    return;
  }
  switch ((kiln_place)where) {
  case KILN_PLACE_INPUT:
    ok = a->index < p->n_inputs && is_inside(a->offset, a->bytes, p->inputs[a->index].bytes);
    break;
  case KILN_PLACE_OUTPUT:
    ok = a->index < p->n_outputs && is_inside(a->offset, a->bytes, p->outputs[a->index].bytes);
    break;
  case KILN_PLACE_ARENA: ok = is_inside(a->offset, a->bytes, p->arena_bytes); break;
  case KILN_PLACE_WEIGHTS: ok = is_inside(a->offset, a->bytes, p->weights_bytes); break;
  case KILN_PLACE_EXTERN: ok = a->index < p->n_externs && a->offset == 0; break;
  case KILN_N_PLACES: break;
  }
  const uint64_t align = where == KILN_PLACE_WEIGHTS ? KILN_PLAN_ALIGN : 1;
  if (!ok || a->offset % align != 0)
    kiln_reader_fail(r,
                     "an argument must lie inside its memory, in the weights aligned to 64 bytes");
}

static kiln_plan_arg get_arg(kiln_reader *r, const kiln_plan *p) {
  uint32_t where = kiln_get_u32(r);
  kiln_plan_arg a = {.index = kiln_get_u32(r)};
  a.offset = kiln_get(r, 8);
  a.bytes = kiln_get(r, 8);
  if (!r->wrong) check_arg(r, p, where, &a);
  if (!r->wrong) a.where = (kiln_place)where;
  return a;
}

static void get_launches(kiln_reader *r, kiln_plan *p) {
  p->launches = kiln_get_array(r, p->n_launches, 46, sizeof *p->launches);
  for (uint32_t i = 0; i < p->n_launches && !r->wrong; i++) {
    kiln_plan_launch *l = &p->launches[i];
    l->kernel = kiln_get_text(r);
    l->nodes = kiln_get_text(r);
    l->flops = kiln_get_f64(r);
    l->bytes = kiln_get_f64(r);
    l->first_arg = kiln_get_u32(r);
    l->n_args = kiln_get_u32(r);
    l->first_nest = kiln_get_u32(r);
    l->n_nests = kiln_get_u32(r);
    l->call = kiln_get_u32(r);
    if (!r->wrong && (l->call > p->n_calls || (l->call && l->n_nests)))
      kiln_reader_fail(r, "a launch must have nests, or a call of this plan");
    if (!r->wrong && (!is_inside(l->first_arg, l->n_args, p->n_args) ||
                      !is_inside(l->first_nest, l->n_nests, p->n_nests)))
      kiln_reader_fail(r, "a launch must have arguments and nests of this plan");
  }
}

static void get_windows(kiln_reader *r, kiln_plan_map *m) {
  enum { MAX_STEP = 8, CORNERS = 256 };
  bool fits = true;
  for (int a = 0; a < 2; a++) {
    m->steps[a] = kiln_get_u32(r);
    m->lower[a] = (int32_t)kiln_get_u32(r);
    m->upper[a] = (int32_t)kiln_get_u32(r);
    fits = fits && m->steps[a] >= 1 && m->steps[a] <= MAX_STEP && m->lower[a] >= -CORNERS / 2 &&
           m->lower[a] < CORNERS / 2 && m->upper[a] >= -CORNERS / 2 && m->upper[a] < CORNERS / 2;
  }
  if (!r->wrong && !fits)
    kiln_reader_fail(
        r, "windows of a map must be 1 to 8 elements apart, with corners from -128 to 127");
}

// Checks the driver's requirements on a tensor map; its bounds are checked when arguments are
// known.
static void get_map(kiln_reader *r, const kiln_plan_nest *n, kiln_plan_map *m) {
  enum { MAX_BOX = 256, WORD = 16 };
  m->index = kiln_get_u32(r);
  m->n_axes = kiln_get_u32(r);
  m->box_rows = kiln_get_u32(r);
  m->box_columns = kiln_get_u32(r);
  m->columns = kiln_get(r, 8);
  if (!r->wrong && m->n_axes != 1 && m->n_axes != KILN_PLAN_MAP_AXES)
    kiln_reader_fail(r, "a map must have an axis of rows, or three");
  for (uint32_t a = 0; !r->wrong && a < m->n_axes; a++) {
    m->rows[a] = kiln_get(r, 8);
    m->pitches[a] = kiln_get(r, 8);
  }
  if (m->n_axes > 1) get_windows(r, m);
  if (r->wrong) return;
  bool fits = m->index < n->n_indices && m->box_rows >= 1 && m->box_rows <= MAX_BOX &&
              m->box_columns >= 1 && m->box_columns <= MAX_BOX && m->columns >= 1 &&
              m->columns <= UINT32_MAX && m->pitches[0] >= 2 * m->columns;
  for (uint32_t a = 0; a < m->n_axes; a++)
    fits = fits && m->rows[a] >= 1 && m->rows[a] <= UINT32_MAX && m->pitches[a] % WORD == 0 &&
           m->pitches[a] >> 40 == 0;
  if (!fits)
    kiln_reader_fail(
        r, "a map must be of an argument of its nest, with boxes of 1 to 256 rows and columns and "
           "rows that are multiples of 16 bytes apart");
}

static void get_maps(kiln_reader *r, kiln_plan_nest *n) {
  n->n_maps = kiln_get_u32(r);
  if (!r->wrong && n->n_maps > KILN_PLAN_MAX_MAPS)
    kiln_reader_fail(r, "a nest must take at most 4 maps");
  for (uint32_t i = 0; i < n->n_maps && !r->wrong; i++) get_map(r, n, &n->maps[i]);
}

// Grids and blocks within the limits of every device interface; a device may allow less.
static void get_grid(kiln_reader *r, const kiln_plan *p, kiln_plan_nest *n) {
  n->image = kiln_get_u32(r);
  for (int k = 0; k < 3; k++) n->grid[k] = kiln_get_u32(r);
  for (int k = 0; k < 3; k++) n->block[k] = kiln_get_u32(r);
  n->shared_bytes = kiln_get_u32(r);
  n->first_index = kiln_get_u32(r);
  n->n_indices = kiln_get_u32(r);
  n->waits = kiln_get_u32(r) != 0;
  get_maps(r, n);
  if (r->wrong) return;
  if (n->image >= p->n_images || !is_inside(n->first_index, n->n_indices, p->n_indices))
    kiln_reader_fail(r, "a nest must have an image and arguments of this plan");
  if (n->grid[0] > INT32_MAX || n->grid[1] > UINT16_MAX || n->grid[2] > UINT16_MAX)
    kiln_reader_fail(r, "a grid must be at most 2147483647 x 65535 x 65535 blocks");
  uint64_t threads = 1;
  for (int k = 0; k < 3; k++) threads *= n->block[k] <= KILN_PLAN_MAX_BLOCK ? n->block[k] : 0;
  if (threads < 1 || threads > KILN_PLAN_MAX_BLOCK)
    kiln_reader_fail(r, "a block must be of 1 to 4096 threads");
  if (n->shared_bytes > MAX_SHARED) kiln_reader_fail(r, "shared memory must be at most 1 MiB");
}

static void get_nests(kiln_reader *r, kiln_plan *p) {
  p->nests = kiln_get_array(r, p->n_nests, p->kind == KILN_PLAN_CPU ? 16 : 64, sizeof *p->nests);
  for (uint32_t i = 0; i < p->n_nests && !r->wrong; i++) {
    kiln_plan_nest *n = &p->nests[i];
    n->function = kiln_get_u32(r);
    n->threads = kiln_get_u32(r);
    n->extent = (int64_t)kiln_get(r, 8);
    if (!r->wrong && (n->function >= p->n_functions || n->threads < 1 || n->extent < 0))
      kiln_reader_fail(
          r, "a nest must have a function of this plan, at least 1 thread and an extent of at "
             "least 0");
    if (p->kind != KILN_PLAN_CPU) get_grid(r, p, n);
  }
}

// The last element that a copy reads must be inside of |from|.
static void check_copy(kiln_reader *r, const kiln_plan *p, const kiln_plan_copy *c) {
  const kiln_plan_port *port = &p->outputs[c->output];
  uint64_t last = 0;
  bool ok = true;
  for (int32_t k = 0; k < port->rank; k++) {
    uint64_t far = 0;
    if (c->strides[k] < 0) ok = false;
    else if (port->shape[k] > 1)
      ok = ok &&
           !__builtin_mul_overflow((uint64_t)port->shape[k] - 1, (uint64_t)c->strides[k], &far) &&
           !__builtin_add_overflow(last, far, &last);
  }
  uint64_t elems = c->from.bytes / kiln_type_bytes(port->type);
  if (!ok || (port->bytes > 0 && last >= elems))
    kiln_reader_fail(r, "a copy must read inside its source");
}

static void get_copies(kiln_reader *r, kiln_plan *p) {
  p->copies = kiln_get_array(r, p->n_copies, 28, sizeof *p->copies);
  for (uint32_t i = 0; i < p->n_copies && !r->wrong; i++) {
    kiln_plan_copy *c = &p->copies[i];
    c->from = get_arg(r, p);
    c->output = kiln_get_u32(r);
    if (!r->wrong && c->output >= p->n_outputs)
      kiln_reader_fail(r, "a copy must go to an output of this plan");
    if (r->wrong) return;
    for (int32_t k = 0; k < p->outputs[c->output].rank; k++)
      c->strides[k] = (int64_t)kiln_get(r, 8);
    if (!r->wrong) check_copy(r, p, c);
  }
}

static void get_images(kiln_reader *r, kiln_plan *p) {
  p->images = kiln_get_array(r, p->n_images, 16, sizeof *p->images);
  for (uint32_t i = 0; i < p->n_images && !r->wrong; i++) {
    kiln_plan_image *image = &p->images[i];
    image->offset = kiln_get(r, 8);
    image->bytes = kiln_get(r, 8);
    if (!r->wrong && (image->offset % KILN_PLAN_ALIGN != 0 || image->bytes == 0 ||
                      !is_inside(image->offset, image->bytes, p->code_bytes)))
      kiln_reader_fail(r, "an image must lie inside the code, aligned to 64 bytes");
  }
}

static void get_indices(kiln_reader *r, kiln_plan *p) {
  p->indices = kiln_get_array(r, p->n_indices, 4, sizeof *p->indices);
  for (uint32_t i = 0; i < p->n_indices && !r->wrong; i++) p->indices[i] = kiln_get_u32(r);
}

static void get_calls(kiln_reader *r, kiln_plan *p) {
  p->calls = kiln_get_array(r, p->n_calls, 14, sizeof *p->calls);
  for (uint32_t i = 0; i < p->n_calls && !r->wrong; i++) {
    kiln_plan_call *c = &p->calls[i];
    c->backend = kiln_get_text(r);
    c->text = kiln_get_text(r);
    c->threads = kiln_get_u32(r);
    if (!r->wrong && c->threads < 1) kiln_reader_fail(r, "a call must have at least 1 thread");
  }
}

// A call's accesses must be inside of the launch's arguments.
static void check_call(kiln_reader *r, const kiln_plan *p, const kiln_plan_launch *l) {
  kiln_library_call call;
  bool fits = kiln_library_call_parse(p->calls[l->call - 1].text, &call);
  uint64_t *bytes = kiln_get_array(r, 0, 1, (l->n_args + 1) * sizeof *bytes);
  if (!bytes) return;
  for (uint32_t i = 0; i < l->n_args; i++) bytes[i] = p->args[l->first_arg + i].bytes;
  fits = fits && kiln_library_call_fits(&call, l->n_args, bytes);
  free(bytes);
  if (!fits)
    kiln_reader_fail(r, "a call must be of a known form, with all its elements in its arguments");
}

static void check_map(kiln_reader *r, const kiln_plan *p, const kiln_plan_launch *l,
                      const kiln_plan_nest *n, const kiln_plan_map *m) {
  const uint32_t arg = l->first_arg + p->indices[n->first_index + m->index];
  uint64_t bytes = 2 * m->columns, more = 0;
  bool fits = true;
  for (uint32_t a = 0; a < m->n_axes; a++)
    fits = fits && !__builtin_mul_overflow(m->rows[a] - 1, m->pitches[a], &more) &&
           !__builtin_add_overflow(bytes, more, &bytes);
  if (!fits || bytes > p->args[arg].bytes)
    kiln_reader_fail(r, "a map must lie inside its argument");
}

// A function's arguments must be among its launch's. Nests and indices are in the order of
// launches, each once, so one sweep sees all.
static void check_indices(kiln_reader *r, const kiln_plan *p) {
  uint32_t nest = 0, index = 0;
  for (uint32_t i = 0; i < p->n_launches && !r->wrong; i++) {
    const kiln_plan_launch *l = &p->launches[i];
    if (l->first_nest != nest)
      kiln_reader_fail(r, "the nests of a device must be in the order of launches");
    for (uint32_t end = nest + l->n_nests; nest < end && !r->wrong; nest++) {
      const kiln_plan_nest *n = &p->nests[nest];
      if (n->first_index != index)
        kiln_reader_fail(r, "the arguments of nests must be in the order of nests");
      for (uint32_t last = index + n->n_indices; index < last && !r->wrong; index++)
        if (p->indices[index] >= l->n_args)
          kiln_reader_fail(r, "a nest must take arguments of its launch");
      for (uint32_t k = 0; k < n->n_maps && !r->wrong; k++) check_map(r, p, l, n, &n->maps[k]);
    }
  }
}

static void get_target(kiln_reader *r, kiln_plan *p) {
  const uint32_t kind = kiln_get_u32(r);
  if (!r->wrong && kind >= KILN_N_PLAN_KINDS)
    kiln_reader_fail(r, "the plan's target must be one of Kiln's");
  if (!r->wrong) p->kind = (kiln_plan_kind)kind;
  p->arch = kiln_get_text(r);
  p->compiler = kiln_get_text(r);
  p->processor = kiln_get_text(r);
  p->threads = kiln_get_u32(r);
  p->code_bytes = kiln_get(r, 8);
}

// A CPU's code is in the shared object, not in images; a device cannot read borrowed constants.
static void check_target(kiln_reader *r, const kiln_plan *p) {
  const bool is_cpu = p->kind == KILN_PLAN_CPU;
  if (r->wrong) return;
  if (p->kind == KILN_PLAN_OPENCL && p->n_calls)
    kiln_reader_fail(r, "a plan for OpenCL must have no calls");
  if (is_cpu && (p->n_images || p->n_indices || p->code_bytes))
    kiln_reader_fail(r, "a plan for a CPU must have no images");
  if (!is_cpu && p->n_externs)
    kiln_reader_fail(r, "a plan for a device must have all constants in its weights");
}

static void get_header(kiln_reader *r, kiln_plan *p) {
  if (kiln_get_u32(r) != KILN_WIRE_PLAN_MAGIC) kiln_reader_fail(r, "a plan must begin with KPLN");
  if (kiln_get_u32(r) != KILN_WIRE_ENDIAN_MARK) kiln_reader_fail(r, "a plan must be little-endian");
  if (kiln_get_u32(r) != KILN_PLAN_VERSION) kiln_reader_fail(r, "the plan's version must be 11");
  get_target(r, p);
  p->arena_bytes = kiln_get(r, 8);
  p->arena_bound_bytes = kiln_get(r, 8);
  p->weights_bytes = kiln_get(r, 8);
  if (!r->wrong && (p->arena_bytes >> 46 || p->weights_bytes >> 46 || p->code_bytes >> 46))
    kiln_reader_fail(r, "arena, weights and code must be below 2^46 bytes");
  if (!r->wrong && p->arena_bound_bytes > p->arena_bytes)
    kiln_reader_fail(r, "the arena must not be below its lower bound");
  uint32_t *const counts[] = {&p->n_externs,   &p->n_features, &p->n_inputs,  &p->n_outputs,
                              &p->n_functions, &p->n_launches, &p->n_args,    &p->n_nests,
                              &p->n_copies,    &p->n_images,   &p->n_indices, &p->n_calls,
                              &p->n_shapes,    &p->n_checks,   &p->n_states};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) *counts[i] = kiln_get_u32(r);
  check_target(r, p);
}

// Each hidden output of a shape must hold the extents of an earlier output.
static void get_shapes(kiln_reader *r, kiln_plan *p) {
  p->shape_of = kiln_get_array(r, p->n_shapes, 4, sizeof *p->shape_of);
  for (uint32_t i = 0; i < p->n_shapes && !r->wrong; i++) {
    const uint32_t of = p->shape_of[i] = kiln_get_u32(r);
    if (!r->wrong && (kiln_plan_n_hidden(p) > p->n_outputs || of >= kiln_plan_n_results(p)))
      kiln_reader_fail(r, "a shape must be of an output before the shapes");
    if (r->wrong) return;
    const kiln_plan_port *port = &p->outputs[kiln_plan_n_results(p) + i];
    if (port->rank != 1 || port->shape[0] != p->outputs[of].rank ||
        strcmp(port->type->text, "i64") != 0)
      kiln_reader_fail(r, "a shape must be an i64 for every axis of its output");
  }
}

// The last output must hold the results of checks.
static void get_checks(kiln_reader *r, kiln_plan *p) {
  p->checks = kiln_get_array(r, p->n_checks, 30, sizeof *p->checks);
  for (uint32_t i = 0; i < p->n_checks && !r->wrong; i++) {
    kiln_plan_check *c = &p->checks[i];
    c->place = kiln_get_text(r);
    c->index = kiln_get_text(r);
    c->axis = (int32_t)kiln_get_u32(r);
    c->least = (int64_t)kiln_get(r, 8);
    c->end = (int64_t)kiln_get(r, 8);
  }
  if (r->wrong || p->n_checks == 0) return;
  const kiln_plan_port *port = p->n_outputs > 0 ? &p->outputs[p->n_outputs - 1] : NULL;
  if (!port || port->rank != 1 || port->shape[0] != p->n_checks ||
      strcmp(port->type->text, "i64") != 0)
    kiln_reader_fail(r, "the last output must be an i64 for every check");
}

// A state's output must be what its input takes.
static void get_states(kiln_reader *r, kiln_plan *p) {
  p->states = kiln_get_array(r, p->n_states, 8, sizeof *p->states);
  for (uint32_t i = 0; i < p->n_states && !r->wrong; i++) {
    const kiln_plan_state s = {kiln_get_u32(r), kiln_get_u32(r)};
    bool fits = s.input < p->n_inputs && s.output < kiln_plan_n_results(p) &&
                p->inputs[s.input].type == p->outputs[s.output].type &&
                p->inputs[s.input].rank == p->outputs[s.output].rank;
    for (uint32_t k = 0; k < i; k++)
      fits &= p->states[k].input != s.input && p->states[k].output != s.output;
    p->states[i] = s;
    if (!r->wrong && !fits)
      kiln_reader_fail(r, "a state must be an input and an output of one type and rank, each once");
  }
}

static void get_plan(kiln_reader *r, kiln_plan *p) {
  get_header(r, p);
  p->features = get_texts(r, p->n_features);
  p->inputs = get_ports(r, p->n_inputs);
  p->outputs = get_ports(r, p->n_outputs);
  check_initials(r, p);
  get_shapes(r, p);
  get_checks(r, p);
  get_states(r, p);
  p->functions = get_texts(r, p->n_functions);
  get_launches(r, p);
  p->args = kiln_get_array(r, p->n_args, 24, sizeof *p->args);
  for (uint32_t i = 0; i < p->n_args && !r->wrong; i++) p->args[i] = get_arg(r, p);
  get_nests(r, p);
  get_copies(r, p);
  get_images(r, p);
  get_indices(r, p);
  get_calls(r, p);
  for (uint32_t i = 0; i < p->n_launches && !r->wrong; i++)
    if (p->launches[i].call) check_call(r, p, &p->launches[i]);
  if (p->kind != KILN_PLAN_CPU) check_indices(r, p);
  if (!r->wrong && r->at != r->n) kiln_reader_fail(r, "nothing must follow the plan");
}

kiln_status kiln_plan_read(const void *blob, size_t bytes, const char *place, kiln_diag *diag,
                           kiln_plan *out) {
  memset(out, 0, sizeof *out);
  unsigned char *text = malloc(bytes ? bytes : 1);
  if (!text) return kiln_diag_fail(diag, KILN_NO_MEMORY, place, "the plan: no memory left");
  if (bytes) memcpy(text, blob, bytes);
  out->text = text;
  kiln_reader r = {.data = text, .n = bytes};
  get_plan(&r, out);
  if (r.wrong) kiln_plan_deinit(out);
  return kiln_reader_end(&r, "plan", place, diag);
}

void kiln_plan_deinit(kiln_plan *plan) {
  free(plan->features);
  free(plan->inputs);
  free(plan->outputs);
  free(plan->functions);
  free(plan->launches);
  free(plan->args);
  free(plan->nests);
  free(plan->copies);
  free(plan->images);
  free(plan->indices);
  free(plan->calls);
  free(plan->shape_of);
  free(plan->checks);
  free(plan->states);
  free(plan->text);
  memset(plan, 0, sizeof *plan);
}

// Reads a plan from a blob that nobody has checked: a cursor that stops at the first wrong byte,
// then one sweep over what the fields refer to.
#include "runtime/plan.h"
#include "backend/call.h"
#include "runtime/wire.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MAX_SHARED = 1 << 20 };

typedef struct reader {
  const unsigned char *data;
  size_t at, n;
  const char *wrong; // what must have held at |at|; NULL: all is well
  bool no_memory;
} reader;

static void fail(reader *r, const char *what) {
  if (!r->wrong) r->wrong = what;
}

static uint64_t get(reader *r, int n_bytes) {
  if (r->wrong) return 0;
  if (r->n - r->at < (size_t)n_bytes) {
    fail(r, "the plan must not end inside a field");
    return 0;
  }
  uint64_t v = kiln_wire_get(r->data + r->at, n_bytes);
  r->at += (size_t)n_bytes;
  return v;
}

static uint32_t get_u32(reader *r) { return (uint32_t)get(r, 4); }

static double get_f64(reader *r) {
  uint64_t bits = get(r, 8);
  double v;
  memcpy(&v, &bits, 8);
  return v >= 0 && v < 1e300 ? v : 0; // only shown in reports
}

static const char *get_text(reader *r) {
  uint32_t n = get_u32(r);
  if (r->wrong) return "";
  if (r->n - r->at <= n) {
    fail(r, "a string must end inside the plan");
    return "";
  }
  const char *text = (const char *)r->data + r->at;
  if (text[n] != 0 || memchr(text, 0, n)) fail(r, "a string must end with its only NUL");
  r->at += (size_t)n + 1;
  return r->wrong ? "" : text;
}

// An array of |n| elements, each of which takes at least |min_bytes| of the rest of the blob: so a
// wrong count cannot ask for more memory than a multiple of the file.
static void *get_array(reader *r, uint32_t n, size_t min_bytes, size_t elem_bytes) {
  if (r->wrong) return NULL;
  if (n > (r->n - r->at) / min_bytes) {
    fail(r, "a count must not exceed what the plan holds");
    return NULL;
  }
  void *array = calloc(n ? n : 1, elem_bytes);
  if (!array) {
    r->no_memory = true;
    fail(r, "memory");
  }
  return array;
}

static const char **get_texts(reader *r, uint32_t n) {
  const char **texts = get_array(r, n, 5, sizeof *texts);
  for (uint32_t i = 0; i < n && !r->wrong; i++) texts[i] = get_text(r);
  return texts;
}

static void get_port(reader *r, kiln_plan_port *port) {
  port->name = get_text(r);
  port->type = kiln_type_find(get_text(r));
  uint32_t rank = get_u32(r);
  if (!r->wrong && !port->type) fail(r, "a dtype must be one of Kiln's");
  if (!r->wrong && rank > KILN_PORT_MAX_RANK) fail(r, "a rank must be at most 8");
  if (r->wrong) return;
  port->rank = (int32_t)rank;
  for (uint32_t k = 0; k < rank; k++) port->shape[k] = (int64_t)get(r, 8);
  if (!r->wrong &&
      !kiln_shape_bytes(port->rank, port->shape, kiln_type_bytes(port->type), &port->bytes))
    fail(r, "the extents of a shape must be at least 0 and its bytes below 2^62");
}

static kiln_plan_port *get_ports(reader *r, uint32_t n) {
  kiln_plan_port *ports = get_array(r, n, 14, sizeof *ports);
  for (uint32_t i = 0; i < n && !r->wrong; i++) get_port(r, &ports[i]);
  return ports;
}

static bool is_inside(uint64_t offset, uint64_t bytes, uint64_t limit) {
  return offset <= limit && bytes <= limit - offset;
}

static void check_arg(reader *r, const kiln_plan *p, uint32_t where, const kiln_plan_arg *a) {
  bool ok = false;
  bool indexed = false;
  if (where >= KILN_N_PLACES) {
    fail(r, "an argument must lie in an input, an output, the arena or the weights");
    return;
  }
  switch ((kiln_place)where) {
  case KILN_PLACE_INPUT:
    indexed = true;
    ok = a->index < p->n_inputs && is_inside(a->offset, a->bytes, p->inputs[a->index].bytes);
    break;
  case KILN_PLACE_OUTPUT:
    indexed = true;
    ok = a->index < p->n_outputs && is_inside(a->offset, a->bytes, p->outputs[a->index].bytes);
    break;
  case KILN_PLACE_ARENA: ok = is_inside(a->offset, a->bytes, p->arena_bytes); break;
  case KILN_PLACE_WEIGHTS: ok = is_inside(a->offset, a->bytes, p->weights_bytes); break;
  case KILN_PLACE_EXTERN:
    indexed = true;
    ok = a->index < p->n_externs && a->offset == 0;
    break;
  case KILN_N_PLACES: break;
  }
  const uint64_t align = where == KILN_PLACE_WEIGHTS ? KILN_PLAN_ALIGN : 1;
  if (!ok || (indexed ? a->offset != 0 : a->offset % align != 0))
    fail(r, "an argument must lie inside its memory, in the weights aligned to 64 bytes");
}

static kiln_plan_arg get_arg(reader *r, const kiln_plan *p) {
  uint32_t where = get_u32(r);
  kiln_plan_arg a = {.index = get_u32(r)};
  a.offset = get(r, 8);
  a.bytes = get(r, 8);
  if (!r->wrong) check_arg(r, p, where, &a);
  if (!r->wrong) a.where = (kiln_place)where;
  return a;
}

static void get_launches(reader *r, kiln_plan *p) {
  p->launches = get_array(r, p->n_launches, 46, sizeof *p->launches);
  for (uint32_t i = 0; i < p->n_launches && !r->wrong; i++) {
    kiln_plan_launch *l = &p->launches[i];
    l->kernel = get_text(r);
    l->nodes = get_text(r);
    l->flops = get_f64(r);
    l->bytes = get_f64(r);
    l->first_arg = get_u32(r);
    l->n_args = get_u32(r);
    l->first_nest = get_u32(r);
    l->n_nests = get_u32(r);
    l->call = get_u32(r);
    if (!r->wrong && (l->call > p->n_calls || (l->call && l->n_nests)))
      fail(r, "a launch must have nests, or a call of this plan");
    if (!r->wrong && (!is_inside(l->first_arg, l->n_args, p->n_args) ||
                      !is_inside(l->first_nest, l->n_nests, p->n_nests)))
      fail(r, "a launch must have arguments and nests of this plan");
  }
}

// What the driver wants of a map; that it lies inside its argument is seen to when these are known.
static void get_map(reader *r, const kiln_plan_nest *n, kiln_plan_map *m) {
  enum { MAX_BOX = 256, WORD = 16 };
  m->index = get_u32(r);
  m->box_rows = get_u32(r);
  m->box_columns = get_u32(r);
  m->rows = get(r, 8);
  m->columns = get(r, 8);
  m->pitch = get(r, 8);
  if (r->wrong) return;
  if (m->index >= n->n_indices || m->box_rows < 1 || m->box_rows > MAX_BOX || m->box_columns < 1 ||
      m->box_columns > MAX_BOX || m->rows < 1 || m->rows > UINT32_MAX || m->columns < 1 ||
      m->columns > UINT32_MAX || m->pitch % WORD || m->pitch >> 40 || m->pitch < 2 * m->columns)
    fail(r, "a map must be of an argument of its nest, with boxes of 1 to 256 rows and columns and "
            "rows that are multiples of 16 bytes apart");
}

static void get_maps(reader *r, kiln_plan_nest *n) {
  n->n_maps = get_u32(r);
  if (!r->wrong && n->n_maps > KILN_PLAN_MAX_MAPS) fail(r, "a nest must take at most 4 maps");
  for (uint32_t i = 0; i < n->n_maps && !r->wrong; i++) get_map(r, n, &n->maps[i]);
}

// Grids and blocks within what every device's interface can say; the device may allow less.
static void get_grid(reader *r, const kiln_plan *p, kiln_plan_nest *n) {
  n->image = get_u32(r);
  for (int k = 0; k < 3; k++) n->grid[k] = get_u32(r);
  for (int k = 0; k < 3; k++) n->block[k] = get_u32(r);
  n->shared_bytes = get_u32(r);
  n->first_index = get_u32(r);
  n->n_indices = get_u32(r);
  n->waits = get_u32(r) != 0;
  get_maps(r, n);
  if (r->wrong) return;
  if (n->image >= p->n_images || !is_inside(n->first_index, n->n_indices, p->n_indices))
    fail(r, "a nest must have an image and arguments of this plan");
  if (n->grid[0] > INT32_MAX || n->grid[1] > UINT16_MAX || n->grid[2] > UINT16_MAX)
    fail(r, "a grid must be at most 2147483647 x 65535 x 65535 blocks");
  uint64_t threads = 1;
  for (int k = 0; k < 3; k++) threads *= n->block[k] <= KILN_PLAN_MAX_BLOCK ? n->block[k] : 0;
  if (threads < 1 || threads > KILN_PLAN_MAX_BLOCK) fail(r, "a block must be of 1 to 4096 threads");
  if (n->shared_bytes > MAX_SHARED) fail(r, "shared memory must be at most 1 MiB");
}

static void get_nests(reader *r, kiln_plan *p) {
  p->nests = get_array(r, p->n_nests, p->kind == KILN_PLAN_CPU ? 16 : 64, sizeof *p->nests);
  for (uint32_t i = 0; i < p->n_nests && !r->wrong; i++) {
    kiln_plan_nest *n = &p->nests[i];
    n->function = get_u32(r);
    n->threads = get_u32(r);
    n->extent = (int64_t)get(r, 8);
    if (!r->wrong && (n->function >= p->n_functions || n->threads < 1 || n->extent < 0))
      fail(r, "a nest must have a function of this plan, at least 1 thread and an extent of at "
              "least 0");
    if (p->kind != KILN_PLAN_CPU) get_grid(r, p, n);
  }
}

// The last element that a copy reads must be inside |from|.
static void check_copy(reader *r, const kiln_plan *p, const kiln_plan_copy *c) {
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
  if (!ok || (port->bytes > 0 && last >= elems)) fail(r, "a copy must read inside its source");
}

static void get_copies(reader *r, kiln_plan *p) {
  p->copies = get_array(r, p->n_copies, 28, sizeof *p->copies);
  for (uint32_t i = 0; i < p->n_copies && !r->wrong; i++) {
    kiln_plan_copy *c = &p->copies[i];
    c->from = get_arg(r, p);
    c->output = get_u32(r);
    if (!r->wrong && c->output >= p->n_outputs) fail(r, "a copy must go to an output of this plan");
    if (r->wrong) return;
    for (int32_t k = 0; k < p->outputs[c->output].rank; k++) c->strides[k] = (int64_t)get(r, 8);
    if (!r->wrong) check_copy(r, p, c);
  }
}

static void get_images(reader *r, kiln_plan *p) {
  p->images = get_array(r, p->n_images, 16, sizeof *p->images);
  for (uint32_t i = 0; i < p->n_images && !r->wrong; i++) {
    kiln_plan_image *image = &p->images[i];
    image->offset = get(r, 8);
    image->bytes = get(r, 8);
    if (!r->wrong && (image->offset % KILN_PLAN_ALIGN != 0 || image->bytes == 0 ||
                      !is_inside(image->offset, image->bytes, p->code_bytes)))
      fail(r, "an image must lie inside the code, aligned to 64 bytes");
  }
}

static void get_indices(reader *r, kiln_plan *p) {
  p->indices = get_array(r, p->n_indices, 4, sizeof *p->indices);
  for (uint32_t i = 0; i < p->n_indices && !r->wrong; i++) p->indices[i] = get_u32(r);
}

static void get_calls(reader *r, kiln_plan *p) {
  p->calls = get_array(r, p->n_calls, 14, sizeof *p->calls);
  for (uint32_t i = 0; i < p->n_calls && !r->wrong; i++) {
    kiln_plan_call *c = &p->calls[i];
    c->backend = get_text(r);
    c->text = get_text(r);
    c->threads = get_u32(r);
    if (!r->wrong && c->threads < 1) fail(r, "a call must have at least 1 thread");
  }
}

// What a launch's call reads and writes must lie inside the launch's arguments.
static void check_call(reader *r, const kiln_plan *p, const kiln_plan_launch *l) {
  kiln_call call;
  bool fits = kiln_call_parse(p->calls[l->call - 1].text, &call);
  uint64_t *bytes = get_array(r, 0, 1, (l->n_args + 1) * sizeof *bytes);
  if (!bytes) return;
  for (uint32_t i = 0; i < l->n_args; i++) bytes[i] = p->args[l->first_arg + i].bytes;
  fits = fits && kiln_call_fits(&call, l->n_args, bytes);
  free(bytes);
  if (!fits) fail(r, "a call must be of a known form, with all its elements in its arguments");
}

static void check_map(reader *r, const kiln_plan *p, const kiln_plan_launch *l,
                      const kiln_plan_nest *n, const kiln_plan_map *m) {
  const uint32_t arg = l->first_arg + p->indices[n->first_index + m->index];
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(m->rows - 1, m->pitch, &bytes) ||
      __builtin_add_overflow(bytes, 2 * m->columns, &bytes) || bytes > p->args[arg].bytes)
    fail(r, "a map must lie inside its argument");
}

// What the functions of a launch take must be among its arguments. Nests and indices come in the
// order of their launches, each once, so that one sweep sees all.
static void check_indices(reader *r, const kiln_plan *p) {
  uint32_t nest = 0, index = 0;
  for (uint32_t i = 0; i < p->n_launches && !r->wrong; i++) {
    const kiln_plan_launch *l = &p->launches[i];
    if (l->first_nest != nest) fail(r, "the nests of a device must be in the order of launches");
    for (uint32_t end = nest + l->n_nests; nest < end && !r->wrong; nest++) {
      const kiln_plan_nest *n = &p->nests[nest];
      if (n->first_index != index) fail(r, "the arguments of nests must be in the order of nests");
      for (uint32_t last = index + n->n_indices; index < last && !r->wrong; index++)
        if (p->indices[index] >= l->n_args) fail(r, "a nest must take arguments of its launch");
      for (uint32_t k = 0; k < n->n_maps && !r->wrong; k++) check_map(r, p, l, n, &n->maps[k]);
    }
  }
}

static void get_target(reader *r, kiln_plan *p) {
  const uint32_t kind = get_u32(r);
  if (!r->wrong && kind >= KILN_N_PLAN_KINDS) fail(r, "the plan's target must be one of Kiln's");
  if (!r->wrong) p->kind = (kiln_plan_kind)kind;
  p->arch = get_text(r);
  p->code_bytes = get(r, 8);
}

// The images of a CPU are its shared object's; a device cannot read what a module borrows.
static void check_target(reader *r, const kiln_plan *p) {
  const bool is_cpu = p->kind == KILN_PLAN_CPU;
  if (r->wrong) return;
  if (!is_cpu && p->n_calls) fail(r, "a plan for a device must have no calls");
  if (is_cpu && (p->n_images || p->n_indices || p->code_bytes))
    fail(r, "a plan for a CPU must have no images");
  if (!is_cpu && p->n_externs)
    fail(r, "a plan for a device must have all constants in its weights");
}

static void get_header(reader *r, kiln_plan *p) {
  if (get_u32(r) != KILN_WIRE_PLAN_MAGIC) fail(r, "a plan must begin with KPLN");
  if (get_u32(r) != KILN_WIRE_ENDIAN_MARK) fail(r, "a plan must be little-endian");
  if (get_u32(r) != KILN_PLAN_VERSION) fail(r, "the plan's version must be 7");
  get_target(r, p);
  p->arena_bytes = get(r, 8);
  p->arena_bound_bytes = get(r, 8);
  p->weights_bytes = get(r, 8);
  if (!r->wrong && (p->arena_bytes >> 46 || p->weights_bytes >> 46 || p->code_bytes >> 46))
    fail(r, "arena, weights and code must be below 2^46 bytes");
  if (!r->wrong && p->arena_bound_bytes > p->arena_bytes)
    fail(r, "the arena must not be below its lower bound");
  uint32_t *const counts[] = {&p->n_externs,   &p->n_features, &p->n_inputs,  &p->n_outputs,
                              &p->n_functions, &p->n_launches, &p->n_args,    &p->n_nests,
                              &p->n_copies,    &p->n_images,   &p->n_indices, &p->n_calls,
                              &p->n_shapes};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) *counts[i] = get_u32(r);
  check_target(r, p);
}

// Each of the last outputs must hold the extents of one before them.
static void get_shapes(reader *r, kiln_plan *p) {
  p->shape_of = get_array(r, p->n_shapes, 4, sizeof *p->shape_of);
  for (uint32_t i = 0; i < p->n_shapes && !r->wrong; i++) {
    const uint32_t of = p->shape_of[i] = get_u32(r);
    if (!r->wrong && (p->n_shapes > p->n_outputs || of >= p->n_outputs - p->n_shapes))
      fail(r, "a shape must be of an output before the shapes");
    if (r->wrong) return;
    const kiln_plan_port *port = &p->outputs[p->n_outputs - p->n_shapes + i];
    if (port->rank != 1 || port->shape[0] != p->outputs[of].rank ||
        strcmp(port->type->text, "i64") != 0)
      fail(r, "a shape must be an i64 for every axis of its output");
  }
}

static void get_plan(reader *r, kiln_plan *p) {
  get_header(r, p);
  p->features = get_texts(r, p->n_features);
  p->inputs = get_ports(r, p->n_inputs);
  p->outputs = get_ports(r, p->n_outputs);
  get_shapes(r, p);
  p->functions = get_texts(r, p->n_functions);
  get_launches(r, p);
  p->args = get_array(r, p->n_args, 24, sizeof *p->args);
  for (uint32_t i = 0; i < p->n_args && !r->wrong; i++) p->args[i] = get_arg(r, p);
  get_nests(r, p);
  get_copies(r, p);
  get_images(r, p);
  get_indices(r, p);
  get_calls(r, p);
  for (uint32_t i = 0; i < p->n_launches && !r->wrong; i++)
    if (p->launches[i].call) check_call(r, p, &p->launches[i]);
  if (p->kind != KILN_PLAN_CPU) check_indices(r, p);
  if (!r->wrong && r->at != r->n) fail(r, "nothing must follow the plan");
}

kiln_status kiln_plan_read(const void *blob, size_t bytes, const char *place, kiln_diag *diag,
                           kiln_plan *out) {
  memset(out, 0, sizeof *out);
  unsigned char *text = malloc(bytes ? bytes : 1);
  if (!text) return kiln_diag_fail(diag, KILN_NO_MEMORY, place, "the plan: no memory left");
  if (bytes) memcpy(text, blob, bytes);
  out->text = text;
  reader r = {.data = text, .n = bytes};
  get_plan(&r, out);
  if (!r.wrong) return KILN_OK;
  kiln_plan_deinit(out);
  if (r.no_memory) return kiln_diag_fail(diag, KILN_NO_MEMORY, place, "the plan: no memory left");
  return kiln_diag_fail(diag, KILN_BAD_INPUT, place, "damaged plan: %s (byte %zu of %zu)", r.wrong,
                        r.at, bytes);
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
  free(plan->text);
  memset(plan, 0, sizeof *plan);
}

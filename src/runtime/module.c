// Modules: loading from a file, making in memory, reference counting, description.
#include "runtime/module.h"
#include "runtime/container.h"
#include "runtime/features.h"
#include "runtime/gpu/resident.h"
#include "runtime/sums.h"
#include "runtime/wire.h"
#include "support/status.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void destroy(kiln_module *m) {
  for (uint32_t i = 0; m->variants && i < m->n_variants; i++) kiln_module_release(m->variants[i]);
  free(m->variants);
  if (m->dynamic) kiln_dynamic_deinit(m->dynamic);
  free(m->dynamic);
  if (m->flow) kiln_flow_deinit(m->flow);
  free(m->flow);
  kiln_residents_destroy(m);
  pthread_mutex_destroy(&m->lock);
  free(m->functions);
  free(m->externs);
  free(m->defaults);
  free((void *)m->features);
  kiln_libraries_close(&m->libraries);
  kiln_plan_deinit(&m->plan);
  if (m->library) dlclose(m->library);
  if (m->map) munmap(m->map, m->map_bytes);
  if (m->code_map) munmap(m->code_map, m->code_map_bytes);
  if (m->release) m->release(m->owner);
  free(m);
}

static kiln_status no_memory(kiln_diag *diag, const char *place) {
  return kiln_diag_fail(diag, KILN_NO_MEMORY, place, "module: no memory left");
}

// --- for ranges of dimensions ---

// The ports of the interface; extents that depend on a dimension are -1.
static kiln_plan_port *make_ports(uint32_t n, const kiln_dynamic_port *from) {
  kiln_plan_port *ports = calloc((size_t)n + 1, sizeof *ports);
  for (uint32_t i = 0; ports && i < n; i++) {
    ports[i] = (kiln_plan_port){.name = from[i].name, .type = from[i].type, .rank = from[i].rank};
    for (int32_t k = 0; k < from[i].rank; k++) {
      const kiln_formula *f = &from[i].shape[k];
      const bool is_fixed = f->n == 1 && f->steps[0].op == KILN_FORMULA_CONST;
      ports[i].shape[k] = is_fixed ? f->steps[0].value : -1;
    }
  }
  return ports;
}

// Whether a plan's ports have the extents at the variant's largest values, or greater ones: the
// extent of an output may be greatest at other values.
static bool has_ports(const kiln_variant *v, uint32_t n, const kiln_dynamic_port *want,
                      const kiln_plan_port *got) {
  bool has = true;
  for (uint32_t i = 0; i < n; i++) {
    int64_t shape[KILN_PORT_MAX_RANK];
    has &= want[i].type == got[i].type && want[i].rank == got[i].rank;
    if (!has) return false;
    kiln_dynamic_shape(&want[i], v->most, shape);
    for (int32_t k = 0; k < got[i].rank; k++) has &= shape[k] <= got[i].shape[k];
  }
  return has;
}

static bool suits(const kiln_dynamic *d, const kiln_variant *v, const kiln_plan *first,
                  const kiln_plan *p) {
  const kiln_plan_port *last = p->n_inputs ? &p->inputs[p->n_inputs - 1] : NULL;
  bool does = p->kind == first->kind && strcmp(p->arch, first->arch) == 0 &&
              p->n_inputs == d->n_inputs + 1 && kiln_plan_n_results(p) == d->n_outputs &&
              last->type == kiln_type_find("i64") && last->rank == 1 &&
              last->shape[0] == (int64_t)d->n_dims &&
              has_ports(v, d->n_inputs, d->inputs, p->inputs) &&
              has_ports(v, d->n_outputs, d->outputs, p->outputs);
  for (uint32_t i = 0; i < v->n_trims; i++) does &= v->trims[i].nest < p->n_nests;
  return does;
}

static bool same_states(const kiln_plan *a, const kiln_plan *b) {
  bool same = a->n_states == b->n_states;
  for (uint32_t i = 0; same && i < a->n_states; i++)
    same = a->states[i].input == b->states[i].input && a->states[i].output == b->states[i].output &&
           a->states[i].input + 1 < a->n_inputs; // the last one has the dimensions
  return same;
}

static kiln_status create_empty(const void *plan, size_t plan_bytes, const char *place,
                                kiln_diag *diag, kiln_module **out);

static kiln_status fill_dynamic(kiln_module *m, const void *blob, size_t bytes, const char *place,
                                kiln_diag *diag) {
  m->dynamic = calloc(1, sizeof *m->dynamic);
  if (!m->dynamic) return no_memory(diag, place);
  kiln_status st = kiln_dynamic_read(blob, bytes, place, diag, m->dynamic);
  if (st != KILN_OK) return st;
  const kiln_dynamic *d = m->dynamic;
  m->plan.n_inputs = d->n_inputs;
  m->plan.n_outputs = d->n_outputs;
  m->plan.inputs = make_ports(d->n_inputs, d->inputs);
  m->plan.outputs = make_ports(d->n_outputs, d->outputs);
  m->n_variants = d->n_variants;
  m->variants = calloc(d->n_variants, sizeof *m->variants);
  if (!m->variants || !m->plan.inputs || !m->plan.outputs) return no_memory(diag, place);
  for (uint32_t i = 0; i < d->n_variants; i++) {
    const kiln_variant *v = &d->variants[i];
    const bool nests = kiln_dynamic_is(v->plan, (size_t)v->plan_bytes);
    if (!nests) st = create_empty(v->plan, (size_t)v->plan_bytes, place, diag, &m->variants[i]);
    if (st != KILN_OK) return st;
    const kiln_plan *p = nests ? NULL : &m->variants[i]->plan, *first = &m->variants[0]->plan;
    if (nests || !suits(d, v, first, p) || !same_states(first, p))
      return kiln_diag_fail(diag, KILN_BAD_INPUT, place,
                            "damaged table of variants: variant %" PRIu32
                            " must have the ports and nests that the table says",
                            i);
    m->variants[i]->whole = m;
    if (p->code_bytes > m->plan.code_bytes) m->plan.code_bytes = p->code_bytes;
    if (p->arena_bytes > m->plan.arena_bytes) m->plan.arena_bytes = p->arena_bytes;
    if (p->arena_bound_bytes > m->plan.arena_bound_bytes)
      m->plan.arena_bound_bytes = p->arena_bound_bytes;
    if (p->weights_bytes > m->plan.weights_bytes) m->plan.weights_bytes = p->weights_bytes;
  }
  m->plan.kind = m->variants[0]->plan.kind;
  m->plan.arch = m->variants[0]->plan.arch;
  return KILN_OK;
}

// --- with steps ---

// The ports of the interface.
static kiln_plan_port *make_flow_ports(uint32_t n, const kiln_flow_value *from) {
  kiln_plan_port *ports = calloc((size_t)n + 1, sizeof *ports);
  for (uint32_t i = 0; ports && i < n; i++) {
    ports[i] = (kiln_plan_port){
        .name = from[i].name, .type = from[i].type, .rank = from[i].rank, .bytes = from[i].bytes};
    memcpy(ports[i].shape, from[i].shape, sizeof ports[i].shape);
  }
  return ports;
}

static kiln_status check_parts(const kiln_module *m, const char *place, kiln_diag *diag) {
  const kiln_plan **plans = calloc(m->n_variants, sizeof *plans);
  if (!plans) return no_memory(diag, place);
  for (uint32_t i = 0; i < m->n_variants; i++) plans[i] = &m->variants[i]->plan;
  const bool fits = kiln_flow_suits(m->flow, plans);
  free(plans);
  if (fits) return KILN_OK;
  return kiln_diag_fail(diag, KILN_BAD_INPUT, place,
                        "damaged flow: parts must have the ports that the steps give them");
}

// Takes the parts in |given|, or makes them of their plans if it is NULL.
static kiln_status fill_flow(kiln_module *m, const void *blob, size_t bytes, kiln_module **given,
                             const char *place, kiln_diag *diag) {
  m->flow = calloc(1, sizeof *m->flow);
  if (!m->flow) return no_memory(diag, place);
  kiln_status st = kiln_flow_read(blob, bytes, place, diag, m->flow);
  if (st != KILN_OK) return st;
  const kiln_flow *f = m->flow;
  m->plan.n_inputs = f->n_inputs;
  m->plan.n_outputs = f->n_outputs;
  m->plan.inputs = make_flow_ports(f->n_inputs, f->values);
  m->plan.outputs = make_flow_ports(f->n_outputs, f->values + f->n_inputs);
  m->plan.arena_bytes = m->plan.arena_bound_bytes = f->arena_bytes;
  m->variants = calloc(f->n_parts, sizeof *m->variants);
  if (!m->variants || !m->plan.inputs || !m->plan.outputs) return no_memory(diag, place);
  m->n_variants = f->n_parts;
  for (uint32_t i = 0; i < f->n_parts; i++) {
    const kiln_flow_part *p = &f->parts[i];
    const size_t n = (size_t)p->plan_bytes;
    if (given) m->variants[i] = kiln_module_retain(given[i]);
    else if (kiln_flow_is(p->plan, n) || kiln_dynamic_is(p->plan, n))
      return kiln_diag_fail(diag, KILN_BAD_INPUT, place, "damaged flow: its parts must be plans");
    else st = create_empty(p->plan, n, place, diag, &m->variants[i]);
    if (st != KILN_OK) return st;
    if (m->variants[i]->plan.weights_bytes > m->plan.weights_bytes)
      m->plan.weights_bytes = m->variants[i]->plan.weights_bytes;
  }
  return check_parts(m, place, diag);
}

static kiln_status fill_static(kiln_module *m, const void *plan, size_t plan_bytes,
                               const char *place, kiln_diag *diag) {
  kiln_status st = kiln_plan_read(plan, plan_bytes, place, diag, &m->plan);
  if (st != KILN_OK) return st;
  m->functions = calloc(m->plan.n_functions + 1, sizeof *m->functions);
  m->externs = calloc(m->plan.n_externs + 1, sizeof *m->externs);
  if (!m->functions || !m->externs) return no_memory(diag, place);
  return m->plan.kind == KILN_PLAN_CPU ? kiln_libraries_open(&m->plan, place, diag, &m->libraries)
                                       : KILN_OK;
}

const kiln_plan *kiln_module_first_plan(const kiln_module *m) {
  return m->n_variants ? &m->variants[0]->plan : &m->plan;
}

const kiln_plan *kiln_module_port_plan(const kiln_module *m) {
  return m->flow ? &m->plan : kiln_module_first_plan(m);
}

static void add_features(kiln_module *m, const kiln_plan *p) {
  for (uint32_t i = 1; i < p->n_features; i++) { // after the architecture
    size_t k = 0;
    while (k < m->n_features && strcmp(m->features[k], p->features[i]) != 0) k++;
    if (k == m->n_features) m->features[m->n_features++] = p->features[i];
  }
}

// Collects the CPU features of all variants, each once, and the target's name.
static kiln_status describe_target(kiln_module *m, const char *place, kiln_diag *diag) {
  const kiln_plan *first = kiln_module_first_plan(m);
  const uint32_t n_variants = m->n_variants;
  size_t most = first->n_features;
  for (uint32_t v = 1; v < n_variants; v++) most += m->variants[v]->plan.n_features;
  m->features = calloc(most + 1, sizeof *m->features);
  if (!m->features) return no_memory(diag, place);
  add_features(m, first);
  for (uint32_t v = 1; v < n_variants; v++) add_features(m, &m->variants[v]->plan);
  switch (first->kind) {
  case KILN_PLAN_CPU:
    snprintf(m->target, sizeof m->target, "%s", first->n_features ? first->features[0] : "cpu");
    break;
  case KILN_PLAN_CUDA: snprintf(m->target, sizeof m->target, "cuda:%s", first->arch); break;
  case KILN_PLAN_OPENCL: snprintf(m->target, sizeof m->target, "opencl"); break;
  case KILN_N_PLAN_KINDS: break;
  }
  return KILN_OK;
}

static kiln_module *allocate(void) {
  kiln_module *m = calloc(1, sizeof *m);
  if (m && pthread_mutex_init(&m->lock, NULL) != 0) {
    free(m);
    m = NULL;
  }
  if (m) atomic_init(&m->refs, 1);
  return m;
}

static kiln_status create_empty(const void *plan, size_t plan_bytes, const char *place,
                                kiln_diag *diag, kiln_module **out) {
  kiln_module *m = allocate();
  *out = NULL;
  if (!m) return no_memory(diag, place);
  kiln_status st =
      kiln_dynamic_is(plan, plan_bytes) ? fill_dynamic(m, plan, plan_bytes, place, diag)
      : kiln_flow_is(plan, plan_bytes)  ? fill_flow(m, plan, plan_bytes, NULL, place, diag)
                                        : fill_static(m, plan, plan_bytes, place, diag);
  if (st == KILN_OK) st = describe_target(m, place, diag);
  if (st != KILN_OK) destroy(m);
  else *out = m;
  return st;
}

// Makes tensors of the inputs' defaults; none if no input has one.
static kiln_status make_defaults(kiln_module *m, const char *place, kiln_diag *diag) {
  const kiln_plan *p = kiln_module_port_plan(m);
  bool has_any = false;
  for (uint32_t i = 0; i < m->plan.n_inputs; i++) has_any |= p->inputs[i].initial != 0;
  if (!has_any) return KILN_OK;
  m->defaults = calloc(m->plan.n_inputs, sizeof *m->defaults);
  if (!m->defaults) return no_memory(diag, place);
  for (uint32_t i = 0; i < m->plan.n_inputs; i++) {
    kiln_plan_port *port = &p->inputs[i];
    if (!port->initial || !m->weights) continue;
    m->defaults[i] = (DLTensor){.data = (char *)(uintptr_t)m->weights + port->initial - 1,
                                .device = {kDLCPU, 0},
                                .ndim = port->rank,
                                .dtype = {port->type->code, port->type->bits, 1},
                                .shape = port->shape};
  }
  return KILN_OK;
}

kiln_status kiln_module_create(const kiln_module_parts *parts, kiln_diag *diag, kiln_module **out) {
  kiln_status st = create_empty(parts->plan, parts->plan_bytes, "module", diag, out);
  if (st != KILN_OK) return st;
  kiln_module *m = *out;
  const bool is_cpu = m->plan.kind == KILN_PLAN_CPU;
  if ((is_cpu && m->plan.n_functions != parts->n_functions) ||
      m->plan.n_externs != parts->n_externs) {
    destroy(m);
    *out = NULL;
    return kiln_diag_fail(diag, KILN_INTERNAL, "module",
                          "functions and constants must be those of the plan");
  }
  for (uint32_t i = 0; is_cpu && i < parts->n_functions; i++) m->functions[i] = parts->functions[i];
  for (uint32_t i = 0; i < parts->n_externs; i++) m->externs[i] = parts->externs[i];
  m->weights = parts->weights;
  m->code = parts->code;
  for (uint32_t i = 0; i < m->n_variants; i++) {
    m->variants[i]->weights = m->weights;
    m->variants[i]->code = m->code;
  }
  m->borrowed_bytes = parts->borrowed_bytes;
  const kiln_status made = make_defaults(m, "module", diag);
  if (made != KILN_OK) {
    destroy(m);
    *out = NULL;
    return made;
  }
  m->owner = parts->owner;
  m->release = parts->release;
  return KILN_OK;
}

kiln_status kiln_module_create_flow(const kiln_flow *flow, kiln_module **parts, kiln_diag *diag,
                                    kiln_module **out) {
  kiln_module *m = allocate();
  void *blob = NULL;
  size_t bytes = 0;
  *out = NULL;
  kiln_flow_write(flow, &blob, &bytes);
  kiln_status st =
      m && blob ? fill_flow(m, blob, bytes, parts, "module", diag) : no_memory(diag, "module");
  if (st == KILN_OK) st = describe_target(m, "module", diag);
  free(blob);
  if (st == KILN_OK) *out = m;
  else if (m) destroy(m);
  return st;
}

// Variants may need different features: checks each.
static kiln_status check_features(const kiln_module *m, const char *place, kiln_diag *diag) {
  kiln_status st = kiln_cpu_check(m->plan.n_features, m->plan.features, place, diag);
  for (uint32_t i = 0; i < m->n_variants && st == KILN_OK; i++) {
    const kiln_plan *p = &m->variants[i]->plan;
    st = kiln_cpu_check(p->n_features, p->features, place, diag);
  }
  return st;
}

// --- files ---

typedef struct loading {
  const char *path;
  kiln_diag *diag;
  int fd;
  uint64_t file_bytes;
  kiln_container parts;
  bool describes; // only the module's description is wanted
} loading;

static kiln_status open_file(loading *l) {
  struct stat info;
  unsigned char trailer[KILN_TRAILER_BYTES];
  l->fd = open(l->path, O_RDONLY | O_CLOEXEC);
  if (l->fd < 0 || fstat(l->fd, &info) != 0)
    return kiln_diag_fail(l->diag, kiln_status_of_error(errno), l->path, "must be readable: %s",
                          strerror(errno));
  if (!S_ISREG(info.st_mode) || info.st_size < KILN_TRAILER_BYTES)
    return kiln_diag_fail(l->diag, KILN_BAD_INPUT, l->path,
                          "must be a module made by kiln compile: it is no file of at least %d "
                          "bytes",
                          KILN_TRAILER_BYTES);
  l->file_bytes = (uint64_t)info.st_size;
  if (pread(l->fd, trailer, sizeof trailer, info.st_size - KILN_TRAILER_BYTES) != sizeof trailer)
    return kiln_diag_fail(l->diag, KILN_BAD_INPUT, l->path, "must be readable to its end: %s",
                          strerror(errno));
  return kiln_trailer_read(trailer, l->file_bytes, l->path, l->diag, &l->parts);
}

// Reads |bytes| at |offset| into malloc'ed memory and compares the checksum.
static kiln_status read_part(loading *l, const char *what, uint64_t offset, uint64_t bytes,
                             uint64_t sum, void **out) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), lead = offset % page;
  *out = NULL;
  if (bytes + lead == 0) return (*out = malloc(1)) ? KILN_OK : no_memory(l->diag, l->path);
  void *map = mmap(NULL, bytes + lead, PROT_READ, MAP_PRIVATE, l->fd, (off_t)(offset - lead));
  if (map == MAP_FAILED)
    return kiln_diag_fail(l->diag, KILN_NO_MEMORY, l->path, "%s must be mappable: %s", what,
                          strerror(errno));
  kiln_status st = KILN_OK;
  if (kiln_wire_sum((char *)map + lead, bytes) != sum)
    st = kiln_diag_fail(l->diag, KILN_BAD_INPUT, l->path,
                        "damaged module: the checksum of its %s must match", what);
  if (st == KILN_OK && !(*out = malloc(bytes + 1))) st = no_memory(l->diag, l->path);
  if (st == KILN_OK) memcpy(*out, (char *)map + lead, bytes);
  munmap(map, bytes + lead);
  return st;
}

// The code of a device stays mapped.
static kiln_status check_code(loading *l, kiln_module *m) {
  const size_t bytes = l->parts.code_bytes;
  void *map = bytes ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, l->fd, 0) : NULL;
  if (map == MAP_FAILED)
    return kiln_diag_fail(l->diag, KILN_NO_MEMORY, l->path, "code must be mappable: %s",
                          strerror(errno));
  const bool same = kiln_wire_sum(map, bytes) == l->parts.code_sum;
  if (m->plan.kind != KILN_PLAN_CPU) {
    m->code = m->code_map = map;
    m->code_map_bytes = bytes;
    for (uint32_t i = 0; i < m->n_variants; i++) m->variants[i]->code = map;
  } else if (map) munmap(map, bytes);
  if (same && m->plan.code_bytes <= bytes) return KILN_OK;
  return kiln_diag_fail(l->diag, KILN_BAD_INPUT, l->path,
                        "damaged module: the checksum of its code must match");
}

static kiln_status check_weights(loading *l, const kiln_module *m) {
  void *table = NULL;
  uint64_t offset = 0;
  KILN_TRY(read_part(l, "table of checksums", l->parts.sums_offset, l->parts.sums_bytes,
                     l->parts.sums_sum, &table));
  const bool same =
      kiln_sums_match(table, l->parts.sums_bytes / KILN_SUM_BYTES, m->map, m->map_bytes, &offset);
  free(table);
  if (same) return KILN_OK;
  return kiln_diag_fail(l->diag, KILN_BAD_INPUT, l->path,
                        "damaged module: the checksum of its weights must match, that of a piece "
                        "from byte %" PRIu64 " on does not",
                        l->parts.weights_offset + offset);
}

static kiln_status map_weights(loading *l, kiln_module *m) {
  if (m->plan.weights_bytes > l->parts.weights_bytes || m->plan.n_externs)
    return kiln_diag_fail(l->diag, KILN_BAD_INPUT, l->path,
                          "damaged module: its weights must be as large as the plan says");
  if (l->parts.weights_bytes == 0) return KILN_OK;
  m->map_bytes = l->parts.weights_bytes;
  m->map = mmap(NULL, m->map_bytes, PROT_READ, MAP_PRIVATE, l->fd, (off_t)l->parts.weights_offset);
  if (m->map == MAP_FAILED) {
    m->map = NULL;
    return kiln_diag_fail(l->diag, KILN_NO_MEMORY, l->path, "weights must be mappable: %s",
                          strerror(errno));
  }
  (void)madvise(m->map, m->map_bytes, MADV_WILLNEED);
  KILN_TRY(check_weights(l, m));
  m->weights = m->map;
  for (uint32_t i = 0; i < m->n_variants; i++) m->variants[i]->weights = m->map;
  return KILN_OK;
}

static kiln_status find_functions(loading *l, void *library, kiln_module *m) {
  for (uint32_t i = 0; i < m->plan.n_functions; i++) {
    void *symbol = dlsym(library, m->plan.functions[i]);
    if (!symbol)
      return kiln_diag_fail(l->diag, KILN_BAD_INPUT, l->path,
                            "damaged module: its code must have the function %s",
                            m->plan.functions[i]);
    memcpy(&m->functions[i], &symbol, sizeof symbol); // ISO C has no cast between the two
  }
  return KILN_OK;
}

// dlopen searches the library path for names without a slash, so it gets the absolute path.
static kiln_status open_library(loading *l, kiln_module *m) {
  char *path = realpath(l->path, NULL);
  if (!path)
    return kiln_diag_fail(l->diag, kiln_status_of_error(errno), l->path, "must be readable: %s",
                          strerror(errno));
  m->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  free(path);
  if (!m->library) {
    const char *why = dlerror();
    const bool is_memory = why && (strstr(why, strerror(ENOMEM)) || strstr(why, "out of memory"));
    return kiln_diag_fail(l->diag, is_memory ? KILN_NO_MEMORY : KILN_BAD_INPUT, l->path,
                          "must load as a shared object: %s", why ? why : "unknown reason");
  }
  kiln_status st = find_functions(l, m->library, m);
  for (uint32_t i = 0; i < m->n_variants && st == KILN_OK; i++)
    st = find_functions(l, m->library, m->variants[i]);
  return st;
}

static kiln_status load(loading *l, kiln_module **out) {
  void *plan = NULL;
  kiln_status st = open_file(l);
  if (st == KILN_OK)
    st = read_part(l, "plan", l->parts.plan_offset, l->parts.plan_bytes, l->parts.plan_sum, &plan);
  if (st == KILN_OK) st = create_empty(plan, l->parts.plan_bytes, l->path, l->diag, out);
  if (st == KILN_OK && l->describes) {
    (*out)->is_description = true;
    free(plan);
    st = map_weights(l, *out);
    return st == KILN_OK ? make_defaults(*out, l->path, l->diag) : st;
  }
  if (st == KILN_OK) st = check_features(*out, l->path, l->diag);
  if (st == KILN_OK) st = check_code(l, *out);
  if (st == KILN_OK) st = map_weights(l, *out);
  if (st == KILN_OK) st = make_defaults(*out, l->path, l->diag);
  if (st == KILN_OK && (*out)->plan.kind == KILN_PLAN_CPU) st = open_library(l, *out);
  free(plan);
  return st;
}

static kiln_status load_file(const char *path, bool describes, const char *function,
                             kiln_diag *diag, kiln_module **out_module) {
  loading l = {.path = path, .diag = diag, .fd = -1, .describes = describes};
  KILN_TRY(kiln_argument_check(diag, function, "out_module", out_module));
  *out_module = NULL;
  KILN_TRY(kiln_argument_check(diag, function, "path", path));
  kiln_status st = load(&l, out_module);
  if (l.fd >= 0) close(l.fd);
  if (st != KILN_OK && *out_module) {
    destroy(*out_module);
    *out_module = NULL;
  }
  return st;
}

kiln_status kiln_module_load(const char *path, kiln_diag *diag, kiln_module **out_module) {
  return load_file(path, false, __func__, diag, out_module);
}

kiln_status kiln_module_describe(const char *path, kiln_diag *diag, kiln_module **out_module) {
  return load_file(path, true, __func__, diag, out_module);
}

int32_t kiln_module_is_file(const char *path) {
  unsigned char head[SELFMAG], trailer[KILN_TRAILER_BYTES];
  struct stat info;
  const int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  bool is = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
            pread(fd, head, sizeof head, 0) == sizeof head;
  if (is && memcmp(head, ELFMAG, SELFMAG) != 0)
    is = info.st_size >= KILN_TRAILER_BYTES &&
         pread(fd, trailer, sizeof trailer, info.st_size - KILN_TRAILER_BYTES) == sizeof trailer &&
         kiln_trailer_is(trailer);
  if (fd >= 0) close(fd);
  return is;
}

// --- counting and describing ---

kiln_module *kiln_module_retain(kiln_module *module) {
  if (module) atomic_fetch_add(&module->refs, 1);
  return module;
}

void kiln_module_release(kiln_module *module) {
  if (module && atomic_fetch_sub(&module->refs, 1) == 1) destroy(module);
}

static kiln_port port_of(const kiln_plan_port *ports, uint32_t n, size_t i) {
  if (i >= n) return (kiln_port){0};
  return (kiln_port){ports[i].name, ports[i].type->text, ports[i].rank, ports[i].shape};
}

size_t kiln_module_input_count(const kiln_module *module) {
  return module ? module->plan.n_inputs : 0;
}
size_t kiln_module_output_count(const kiln_module *module) {
  return module ? kiln_plan_n_results(&module->plan) : 0;
}

kiln_port kiln_module_input(const kiln_module *module, size_t i) {
  return module ? port_of(module->plan.inputs, module->plan.n_inputs, i) : (kiln_port){0};
}

kiln_port kiln_module_output(const kiln_module *module, size_t i) {
  if (!module) return (kiln_port){0};
  return port_of(module->plan.outputs, kiln_plan_n_results(&module->plan), i);
}

size_t kiln_module_arena_bytes(const kiln_module *module) {
  return module ? module->plan.arena_bytes : 0;
}

size_t kiln_module_arena_lower_bound_bytes(const kiln_module *module) {
  return module ? module->plan.arena_bound_bytes : 0;
}
size_t kiln_module_weight_bytes(const kiln_module *module) {
  return module ? module->plan.weights_bytes + module->borrowed_bytes : 0;
}

size_t kiln_module_state_count(const kiln_module *module) {
  return module ? kiln_module_port_plan(module)->n_states : 0;
}

kiln_state_info kiln_module_state(const kiln_module *module, size_t i) {
  if (i >= kiln_module_state_count(module)) return (kiln_state_info){0};
  const kiln_plan_state *s = &kiln_module_port_plan(module)->states[i];
  return (kiln_state_info){module->plan.inputs[s->input].name, s->input, s->output};
}

const DLTensor *kiln_module_input_default(const kiln_module *module, size_t i) {
  if (!module || !module->defaults || i >= module->plan.n_inputs || !module->defaults[i].data)
    return NULL;
  return &module->defaults[i];
}

int32_t kiln_module_input_is_optional(const kiln_module *module, size_t i) {
  return module && i < module->plan.n_inputs &&
         kiln_module_port_plan(module)->inputs[i].initial != 0;
}

kiln_module_info kiln_module_about(const kiln_module *module) {
  if (!module) return (kiln_module_info){0};
  const kiln_plan *p = kiln_module_first_plan(module);
  return (kiln_module_info){.target = module->target,
                            .processor = p->processor,
                            .threads = (int32_t)p->threads,
                            .n_features = module->n_features,
                            .features = module->features,
                            .compiler = p->compiler,
                            .file_version = KILN_CONTAINER_VERSION,
                            .plan_version = KILN_PLAN_VERSION,
                            .n_variants = module->dynamic ? module->n_variants : 1};
}

// --- dimensions ---

size_t kiln_module_dim_count(const kiln_module *module) {
  return module && module->dynamic ? module->dynamic->n_dims : 0;
}

kiln_dim_range kiln_module_dim(const kiln_module *module, size_t i) {
  return i < kiln_module_dim_count(module) ? module->dynamic->dims[i] : (kiln_dim_range){0};
}

const DLTensor **kiln_module_fill_in(const kiln_module *m, size_t n,
                                     const DLTensor *const *inputs) {
  const DLTensor **given = calloc(n + 1, sizeof *given);
  for (size_t i = 0; given && i < n; i++)
    given[i] = inputs[i] ? inputs[i] : kiln_module_input_default(m, i);
  return given;
}

kiln_status kiln_module_find_dims(const kiln_module *module, size_t n_inputs,
                                  const DLTensor *const *inputs, kiln_diag *diag,
                                  int64_t *out_values) {
  KILN_TRY(kiln_argument_check(diag, __func__, "module", module));
  if (!module->dynamic) return KILN_OK;
  KILN_TRY(kiln_argument_check(diag, __func__, "out_values", out_values));
  if (n_inputs > 0) KILN_TRY(kiln_argument_check(diag, __func__, "inputs", inputs));
  const DLTensor **given = kiln_module_fill_in(module, n_inputs, inputs);
  if (!given) return no_memory(diag, "module");
  const kiln_status st = kiln_dynamic_find_dims(module->dynamic, n_inputs, given, diag, out_values);
  free(given);
  return st;
}

static kiln_status shape_of(const kiln_module *m, bool is_input, size_t i, const int64_t *values,
                            kiln_diag *diag, int64_t *out) {
  const uint32_t n = is_input ? m->plan.n_inputs : m->plan.n_outputs;
  const kiln_plan_port *ports = is_input ? m->plan.inputs : m->plan.outputs;
  if (i >= n)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, "shape", "%s: must be below %" PRIu32 ", got %zu",
                          is_input ? "input" : "output", n, i);
  if (!m->dynamic) {
    memcpy(out, ports[i].shape, (size_t)ports[i].rank * sizeof *out);
    return KILN_OK;
  }
  KILN_TRY(kiln_argument_check(diag, "shape", "values", values));
  KILN_TRY(kiln_dynamic_check(m->dynamic, values, diag));
  kiln_dynamic_shape(is_input ? &m->dynamic->inputs[i] : &m->dynamic->outputs[i], values, out);
  return KILN_OK;
}

kiln_status kiln_module_input_shape(const kiln_module *module, size_t i, const int64_t *values,
                                    kiln_diag *diag, int64_t *out_shape) {
  KILN_TRY(kiln_argument_check(diag, __func__, "module", module));
  KILN_TRY(kiln_argument_check(diag, __func__, "out_shape", out_shape));
  return shape_of(module, true, i, values, diag, out_shape);
}

kiln_status kiln_module_output_shape(const kiln_module *module, size_t i, const int64_t *values,
                                     kiln_diag *diag, int64_t *out_shape) {
  KILN_TRY(kiln_argument_check(diag, __func__, "module", module));
  KILN_TRY(kiln_argument_check(diag, __func__, "out_shape", out_shape));
  return shape_of(module, false, i, values, diag, out_shape);
}

// --- launches of all variants, in order ---

size_t kiln_module_launch_count(const kiln_module *module) {
  size_t n = module ? module->plan.n_launches : 0;
  for (uint32_t i = 0; module && i < module->n_variants; i++)
    n += module->variants[i]->plan.n_launches;
  return n;
}

kiln_launch_info kiln_module_launch(const kiln_module *module, size_t i) {
  if (!module) return (kiln_launch_info){0};
  for (uint32_t v = 0; v < module->n_variants; v++) {
    const kiln_plan *p = &module->variants[v]->plan;
    if (i < p->n_launches) return kiln_module_launch(module->variants[v], i);
    i -= p->n_launches;
  }
  if (i >= module->plan.n_launches) return (kiln_launch_info){0};
  const kiln_plan_launch *l = &module->plan.launches[i];
  return (kiln_launch_info){l->kernel, l->nodes, l->flops, l->bytes};
}

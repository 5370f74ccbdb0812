// Loading of modules into devices.
#include "runtime/gpu/resident.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Splits "sm_103f" into 103 and 'f'; gives 0 for any other form.
static int number_of(const char *arch, char *out_suffix) {
  int number = 0, n = 0;
  *out_suffix = 0;
  if (sscanf(arch, "sm_%d%n", &number, &n) != 1 || number < 0) return 0;
  *out_suffix = arch[n];
  return number;
}

bool kiln_arch_fits(const char *code, const char *device) {
  char code_suffix, device_suffix;
  const int c = number_of(code, &code_suffix), d = number_of(device, &device_suffix);
  if (c == 0 || d == 0) return strcmp(code, device) == 0;
  if (code_suffix == 'a') return c == d;
  return c / 10 == d / 10 && c <= d;
}

static kiln_status check_arch(const kiln_plan *p, const kiln_resident *r, kiln_diag *diag) {
  if (!p->arch[0] || kiln_arch_fits(p->arch, r->gpu->arch)) return KILN_OK;
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, r->gpu->api->name,
                        "device: must have the architecture that the module was compiled for, %s, "
                        "got %s (%s): compile "
                        "with --target=%s:%s",
                        p->arch, r->gpu->arch, r->gpu->name, r->gpu->api->name, r->gpu->arch);
}

static kiln_status no_memory(kiln_diag *diag) {
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "session", "images: no memory left");
}

static void close_libraries(kiln_resident *r) {
  const bool is_inside = r->libraries.n > 0 && kiln_gpu_enter(r->gpu, NULL) == KILN_OK;
  kiln_libraries_close(&r->libraries);
  if (is_inside) r->gpu->api->leave(r->gpu);
}

static void destroy(kiln_resident *r) {
  close_libraries(r);
  if (r->gpu) {
    const kiln_gpu_api *api = r->gpu->api;
    for (uint32_t i = 0; i < r->n_nests; i++) api->forget(r->gpu, r->functions[i]);
    for (uint32_t i = 0; i < r->n_images; i++) api->unload(r->gpu, r->images[i]);
    if (!r->base) {
      api->free(r->gpu, r->weights);
      api->close(r->gpu);
    }
  }
  free(r->images);
  free(r->functions);
  free(r);
}

static kiln_status load_images(const kiln_module *m, kiln_resident *r, kiln_diag *diag) {
  const kiln_plan *p = &m->plan;
  r->images = calloc((size_t)p->n_images + 1, sizeof(void *));
  r->functions = calloc((size_t)p->n_nests + 1, sizeof(void *));
  if (!r->images || !r->functions) return no_memory(diag);
  for (uint32_t i = 0; i < p->n_images; i++) {
    char what[32];
    snprintf(what, sizeof what, "image %u", (unsigned)i);
    const kiln_status st = r->gpu->api->load(r->gpu, m->code + p->images[i].offset,
                                             p->images[i].bytes, what, diag, &r->images[i]);
    if (st != KILN_OK) return st;
    r->n_images = i + 1;
  }
  for (uint32_t i = 0; i < p->n_nests; i++) {
    const kiln_plan_nest *n = &p->nests[i];
    const kiln_status st = r->gpu->api->find(r->gpu, r->images[n->image], p->functions[n->function],
                                             n->shared_bytes, diag, &r->functions[i]);
    if (st != KILN_OK) return st;
    r->n_nests = i + 1;
  }
  return KILN_OK;
}

static kiln_status upload(const kiln_module *m, kiln_resident *r, kiln_diag *diag) {
  const kiln_gpu_api *api = r->gpu->api;
  const uint64_t bytes = m->plan.weights_bytes;
  kiln_gpu_stream *stream = NULL;
  if (bytes == 0) return KILN_OK;
  kiln_status st = api->allocate(r->gpu, bytes, "weights", diag, &r->weights);
  if (st == KILN_OK) st = api->stream(r->gpu, diag, &stream);
  if (st == KILN_OK) st = api->copy(r->gpu, stream, r->weights, m->weights, bytes, diag);
  if (st == KILN_OK) st = api->wait(r->gpu, stream, diag);
  api->end_stream(r->gpu, stream);
  return st;
}

// Opens the device and copies the weights to it; variants of a module for ranges share both.
static kiln_status begin(const kiln_module *m, kiln_resident *r, kiln_diag *diag) {
  if (m->whole) {
    const kiln_status st = kiln_resident_find(m->whole, r->device, diag, &r->base);
    if (st != KILN_OK) return st;
    r->gpu = r->base->gpu;
    r->weights = r->base->weights;
    return KILN_OK;
  }
  kiln_status st = kiln_gpu_api_of(m->plan.kind)->open(r->device, diag, &r->gpu);
  if (st == KILN_OK) st = check_arch(&m->plan, r, diag);
  return st == KILN_OK ? upload(m, r, diag) : st;
}

static kiln_status make(const kiln_module *m, int32_t device, kiln_diag *diag,
                        kiln_resident **out) {
  kiln_resident *r = calloc(1, sizeof *r);
  *out = NULL;
  if (!r) return no_memory(diag);
  r->device = device;
  kiln_status st = begin(m, r, diag);
  if (st == KILN_OK) st = load_images(m, r, diag);
  if (st == KILN_OK) st = kiln_libraries_open(&m->plan, "session", diag, &r->libraries);
  if (st == KILN_OK) *out = r;
  else destroy(r);
  return st;
}

kiln_status kiln_resident_find(kiln_module *m, int32_t device, kiln_diag *diag,
                               kiln_resident **out) {
  kiln_status st = KILN_OK;
  pthread_mutex_lock(&m->lock);
  kiln_resident *r = m->residents;
  while (r && r->device != device) r = r->next;
  if (!r) {
    st = make(m, device, diag, &r);
    if (r) {
      r->next = m->residents;
      m->residents = r;
    }
  }
  pthread_mutex_unlock(&m->lock);
  *out = r;
  return st;
}

void kiln_residents_destroy(kiln_module *m) {
  for (kiln_resident *r = m->residents, *next; r; r = next) {
    next = r->next;
    destroy(r);
  }
  m->residents = NULL;
}

// Opening of libraries, and creation of the kernels of calls.
#include "backend/backend.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

const kiln_backend *kiln_backend_find(const char *name) {
  for (int i = 0; kiln_backends[i]; i++)
    if (strcmp(kiln_backends[i]->name, name) == 0) return kiln_backends[i];
  return NULL;
}

kiln_status kiln_library_open(const kiln_backend *b, kiln_diag *diag, kiln_library *out) {
  const char *asked = getenv(b->variable);
  *out = (kiln_library){.backend = b};
  if (asked && *asked) return b->open(asked, diag, &out->opened);
  for (int i = 0; b->files[i]; i++)
    if (b->open(b->files[i], NULL, &out->opened) == KILN_OK) return KILN_OK;
  return b->open(b->files[0], diag, &out->opened); // reports why the preferred file failed
}

void kiln_library_close(kiln_library *l) {
  if (l->opened) l->backend->close(l->opened);
  *l = (kiln_library){0};
}

static kiln_status open_for_good(const char *file, const char *variable, kiln_diag *diag,
                                 void **out) {
  *out = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (*out) return KILN_OK;
  const char *why = dlerror();
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, file,
                        "library: must be installed, or %s name its file: %s", variable,
                        why ? why : "unknown reason");
}

static kiln_status find_functions(void *handle, const char *file, const kiln_library_entry *entries,
                                  char *to, kiln_diag *diag) {
  for (const kiln_library_entry *e = entries; e->name; e++) {
    void *symbol = dlsym(handle, e->name);
    memcpy(to + e->at, &symbol, sizeof symbol); // ISO C has no cast between the two
    if (!symbol)
      return kiln_diag_fail(diag, KILN_DEVICE_ERROR, file, "library: must have the function %s",
                            e->name);
  }
  return KILN_OK;
}

kiln_status kiln_library_create(const char *file, const char *variable,
                                const kiln_library_entry *entries, size_t bytes, kiln_diag *diag,
                                void **out) {
  char *l = calloc(1, bytes);
  void *handle = NULL;
  *out = NULL;
  if (!l) return kiln_diag_fail(diag, KILN_NO_MEMORY, file, "library: no memory left");
  kiln_status st = open_for_good(file, variable, diag, &handle);
  if (st == KILN_OK) st = find_functions(handle, file, entries, l, diag);
  if (st == KILN_OK) *out = l;
  else free(l);
  return st;
}

int64_t kiln_backend_workspace_room(const kiln_library_call *c) {
  const int64_t room = c->workspace.bytes - KILN_BACKEND_WORKSPACE_ALIGN;
  return room > 0 ? room : 0;
}

char *kiln_backend_workspace(const kiln_library_call *c, char *const *args) {
  if (!kiln_backend_workspace_room(c)) return NULL;
  char *begin = args[c->workspace.arg];
  return begin + -(uintptr_t)begin % KILN_BACKEND_WORKSPACE_ALIGN;
}

kiln_status kiln_bound_create(const kiln_library *l, const kiln_library_call *call, int most,
                              char *const *constants, kiln_diag *diag, kiln_bound *out) {
  *out = (kiln_bound){.backend = l->backend};
  const int n = kiln_library_call_parts(call, most);
  kiln_status st = KILN_OK;
  out->kernels = calloc((size_t)n, sizeof *out->kernels);
  if (!out->kernels)
    return kiln_diag_fail(diag, KILN_NO_MEMORY, l->backend->name, "no memory left");
  for (out->n = 0; out->n < n && st == KILN_OK; out->n++) {
    const kiln_library_call part = kiln_library_call_part(call, n, out->n);
    st = l->backend->create(l->opened, &part, constants, diag, &out->kernels[out->n]);
  }
  if (st != KILN_OK) kiln_bound_deinit(out);
  return st;
}

void kiln_bound_deinit(kiln_bound *b) {
  for (int i = 0; i < b->n; i++) b->backend->destroy(b->kernels[i]);
  free(b->kernels);
  *b = (kiln_bound){0};
}

bool kiln_bound_run(const kiln_bound *b, int part, char *const *args, void *stream,
                    kiln_diag *diag) {
  return b->backend->run(b->kernels[part], args, stream, diag);
}

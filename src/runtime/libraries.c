// Opens the libraries of a plan, and creates the kernels of its calls.
#include "runtime/libraries.h"

#include <stdlib.h>
#include <string.h>

static const kiln_library *find(const kiln_libraries *l, const char *name) {
  for (uint32_t i = 0; i < l->n; i++)
    if (strcmp(l->data[i].backend->name, name) == 0) return &l->data[i];
  return NULL;
}

static kiln_status open_one(const kiln_plan *p, const char *name, const char *place,
                            kiln_diag *diag, kiln_library *out) {
  const kiln_backend *b = kiln_backend_find(name);
  if (!b)
    return kiln_diag_fail(diag, KILN_UNSUPPORTED, place,
                          "backend: must be one of this runtime's, got \"%s\"", name);
  if ((b->place == KILN_BACKEND_CPU) != (p->kind == KILN_PLAN_CPU))
    return kiln_diag_fail(diag, KILN_UNSUPPORTED, place,
                          "backend: must be for the target of the module, got \"%s\"", name);
  const kiln_status st = kiln_library_open(b, diag, out);
  if (st != KILN_OK)
    (void)kiln_diag_fail(diag, st, place, "module: kernels of %s must be there to be called", name);
  return st;
}

kiln_status kiln_libraries_open(const kiln_plan *p, const char *place, kiln_diag *diag,
                                kiln_libraries *out) {
  kiln_status st = KILN_OK;
  *out = (kiln_libraries){.data = calloc((size_t)p->n_calls + 1, sizeof *out->data)};
  if (!out->data) return kiln_diag_fail(diag, KILN_NO_MEMORY, place, "module: no memory left");
  for (uint32_t i = 0; i < p->n_calls && st == KILN_OK; i++) {
    if (find(out, p->calls[i].backend)) continue;
    st = open_one(p, p->calls[i].backend, place, diag, &out->data[out->n]);
    out->n += st == KILN_OK;
  }
  return st;
}

void kiln_libraries_close(kiln_libraries *l) {
  for (uint32_t i = 0; i < l->n; i++) kiln_library_close(&l->data[i]);
  free(l->data);
  *l = (kiln_libraries){0};
}

kiln_status kiln_libraries_bind(const kiln_libraries *libraries, const kiln_plan *p,
                                const kiln_plan_launch *l, int most, char *const *args,
                                kiln_diag *diag, kiln_bound *out) {
  const kiln_plan_call *plan = &p->calls[l->call - 1];
  char **constants = calloc((size_t)l->n_args + 1, sizeof *constants);
  kiln_library_call call;
  *out = (kiln_bound){0};
  if (!constants)
    return kiln_diag_fail(diag, KILN_NO_MEMORY, "session", "constants: no memory left");
  for (uint32_t i = 0; i < l->n_args; i++) {
    const kiln_place where = p->args[l->first_arg + i].where;
    if (where == KILN_PLACE_WEIGHTS || where == KILN_PLACE_EXTERN) constants[i] = args[i];
  }
  (void)kiln_library_call_parse(plan->text, &call); // the plan's reader has parsed it before
  const kiln_status st =
      kiln_bound_create(find(libraries, plan->backend), &call, most, constants, diag, out);
  free(constants);
  return st;
}

kiln_status kiln_library_call_failed(const kiln_plan *p, const kiln_plan_launch *l,
                                     kiln_diag *diag) {
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, l->kernel, "library: %s must run \"%s\"",
                        p->calls[l->call - 1].backend, p->calls[l->call - 1].text);
}

// The resources of a compilation, and the passes of the module phase.
#include "module/build.h"
#include "runtime/features.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20 };

void kiln_build_deinit(kiln_build *b) {
  for (int i = 0; i < b->product.n_objects; i++) kiln_object_deinit(&b->product.objects[i]);
  free(b->product.objects);
  if (b->product.jit) kiln_jit_destroy(b->product.jit);
  if (b->product.memory) munmap(b->product.memory, b->product.memory_bytes);
  if (b->choices.tuning.run) b->choices.tuning.run(b->choices.tuning.object);
  b->choices.tuning = (kiln_cleanup){0};
  free(b->product.plan_blob);
  free(b->product.code);
  b->product.plan_blob = NULL;
  b->product.code = NULL;
  kiln_pool_destroy(b->product.pool);
  b->product.pool = NULL;
  b->product.n_objects = 0;
  b->product.objects = NULL;
  b->product.jit = NULL;
  b->product.memory = NULL;
}

// --- passes ---

kiln_status kiln_build_name_kernels(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  const char *prefix = b->request.prefix ? b->request.prefix : "kiln";
  b->product.symbols = KILN_NEW_ARRAY(&cx->perm, const char *, b->choices.kernels.kernels.n);
  for (int i = 0; i < b->choices.kernels.kernels.n;
       i++) { // a kernel called exp must not shadow libm's
    const char *name = kiln_symbol_text(cx, b->choices.kernels.kernels.data[i]->name);
    b->product.symbols[i] =
        b->request.ranges || b->request.is_part
            ? kiln_arena_printf(&cx->perm, "kiln_k_%s_part%d", name, b->request.part)
            : kiln_arena_printf(&cx->perm, "%s_k_%s", prefix, name);
  }
  return KILN_OK;
}

kiln_status kiln_build_find_machine(kiln_ctx *cx, const char *path, const char *target,
                                    const char *dtype, kiln_machine *out) {
  enum { CAPABILITY = 80 };
  KILN_TRY(kiln_target_machine(cx, target, out));
  if (!dtype || strcmp(dtype, "tf32") != 0) return KILN_OK;
  if (out->gpu.capability < CAPABILITY)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                     "dtype: tf32 is for cuda:sm_%d and later, got %s", CAPABILITY, out->processor);
  out->gpu.rounds_to_tf32 = true;
  return KILN_OK;
}

// Code for a processor given by name may need features that this machine lacks.
static kiln_status check_runs_here(kiln_ctx *cx, const kiln_build *b) {
  int n = 0;
  if (b->request.machine.is_here) return KILN_OK;
  const char *const *needs =
      kiln_cpu_needs(cx, &b->request.machine, b->product.n_objects, b->product.objects, &n);
  return kiln_cpu_check((uint32_t)n, needs, b->request.model->path, cx->diag);
}

kiln_status kiln_build_jit(kiln_ctx *cx, kiln_build *b, kiln_kernel_fn **out_functions) {
  *out_functions = NULL;
  if (b->request.machine.target->has_images) return KILN_OK;
  KILN_TRY(check_runs_here(cx, b));
  KILN_TRY(kiln_jit_create(cx, &b->request.machine, b->product.n_objects, b->product.objects,
                           &b->product.jit));
  *out_functions = KILN_NEW_ARRAY(&cx->perm, kiln_kernel_fn, b->product.plan.n_functions);
  for (uint32_t i = 0; i < b->product.plan.n_functions; i++) {
    void *function = NULL;
    KILN_TRY(kiln_jit_find(b->product.jit, b->product.plan.functions[i], cx->diag, &function));
    memcpy(&(*out_functions)[i], &function, sizeof function);
  }
  return KILN_OK;
}

// --- modules in memory ---

// Resources owned by an in-memory module.
typedef struct resident {
  kiln_jit *jit;
  char *memory;
  size_t memory_bytes;
  kiln_core *core; // the model's, if constants are borrowed
  char *code;      // a GPU's
} resident;

static void release_resident(void *object) {
  resident *r = object;
  if (r->jit) kiln_jit_destroy(r->jit);
  free(r->code);
  if (r->memory) munmap(r->memory, r->memory_bytes);
  kiln_core_release(r->core);
  free(r);
}

// Anonymous memory; huge pages if it is large, because every run reads all packed weights.
static kiln_status make_memory(kiln_ctx *cx, kiln_build *b) {
  if (b->product.plan.weights_bytes == 0) return KILN_OK;
  void *map = mmap(NULL, b->product.plan.weights_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED)
    return KILN_FAIL(cx->diag, KILN_NO_MEMORY, b->request.model->path,
                     "weights: %" PRIu64 " bytes: no memory left", b->product.plan.weights_bytes);
  b->product.memory = map;
  b->product.memory_bytes = b->product.plan.weights_bytes;
  if (b->product.memory_bytes >= 2 * HUGE_PAGE)
    (void)madvise(map, b->product.memory_bytes, MADV_HUGEPAGE);
  return kiln_weights_fill(cx, b, b->product.memory, NULL);
}

kiln_status kiln_build_write_plan(kiln_ctx *cx, kiln_build *b) {
  kiln_plan_write(&b->product.plan, &b->product.plan_blob, &b->product.plan_bytes);
  if (b->product.plan_blob) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_NO_MEMORY, b->request.model->path, "plan: no memory left");
}

static kiln_status make_module(kiln_ctx *cx, kiln_build *b, const kiln_kernel_fn *functions,
                               kiln_module **out) {
  resident *r = calloc(1, sizeof *r);
  if (!r)
    return KILN_FAIL(cx->diag, KILN_NO_MEMORY, b->request.model->path, "module: no memory left");
  *r =
      (resident){b->product.jit, b->product.memory, b->product.memory_bytes, NULL, b->product.code};
  kiln_module_parts parts = {.plan = b->product.plan_blob,
                             .plan_bytes = b->product.plan_bytes,
                             .n_functions = b->product.plan.n_functions,
                             .functions = functions,
                             .weights = b->product.memory,
                             .code = b->product.code,
                             .n_externs = b->product.plan.n_externs,
                             .externs = b->product.externs.data,
                             .owner = r,
                             .release = release_resident};
  for (int i = 0; i < b->product.weights.n; i++)
    if (b->product.weights.data[i].borrowed >= 0)
      parts.borrowed_bytes += b->product.weights.data[i].bytes;
  kiln_status st = kiln_module_create(&parts, cx->diag, out);
  if (st != KILN_OK) {
    free(r);
    return st;
  }
  b->product.jit = NULL; // owned by the module now
  b->product.memory = NULL;
  b->product.code = NULL;
  if (b->product.plan.n_externs > 0) {
    r->core = b->request.model->core;
    atomic_fetch_add(&r->core->refs, 1);
  }
  return KILN_OK;
}

kiln_status kiln_build_module(kiln_ctx *cx, kiln_build *b, const kiln_kernel_fn *functions,
                              kiln_module **out) {
  KILN_TRY(make_memory(cx, b));
  KILN_TRY(kiln_build_write_plan(cx, b));
  return make_module(cx, b, functions, out);
}

kiln_status kiln_build_link(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  if (!b->request.out) return kiln_build_jit(cx, b, &b->product.functions);
  return b->request.machine.target->has_images
             ? kiln_output_code(b->request.out, b->product.code, b->product.plan.code_bytes,
                                cx->diag)
             : kiln_output_link(b->request.out, b->product.n_objects, b->product.objects, cx->diag);
}

kiln_status kiln_build_pack_weights(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  if (!b->request.out) return kiln_build_module(cx, b, b->product.functions, &b->product.module);
  KILN_TRY(kiln_output_weights(b->request.out, b->product.plan.weights_bytes, cx->diag));
  KILN_TRY(kiln_weights_fill(cx, b, NULL, b->request.out));
  KILN_TRY(kiln_build_write_plan(cx, b));
  return kiln_output_finish(b->request.out, b->product.plan_blob, b->product.plan_bytes, cx->diag);
}

// Entry points on files instead of models: compiling with the module cache, verifying definitions,
// searching a space of schedules.
#include "driver/stages.h"
#include "module/module_cache.h"
#include "tune/search.h"
#include "verify/ragged.h"

#include <string.h>

// --- compiling ---

typedef struct filing {
  const char *path, *out_path;
  const kiln_compile_options *options;
  kiln_compiled *out;
} filing;

static kiln_status compile(kiln_ctx *cx, void *argument) {
  filing *f = argument;
  const double start = kiln_now_ms();
  kiln_diag *const diag = cx->diag;
  kiln_module_cache k;
  kiln_module_cache_begin(cx, f->path, f->options, &k);
  f->out->recalled = kiln_module_cache_find(&k, f->out_path, &f->out->memory);
  f->out->recall_ms = kiln_now_ms() - start;
  if (f->out->recalled) return KILN_OK;
  KILN_TRY(kiln_model_load(f->path, f->options, diag, &f->out->model));
  KILN_TRY(kiln_model_compile_to(f->out->model, f->out_path, diag));
  f->out->memory = kiln_model_memory(f->out->model);
  if (kiln_diag_count(diag) == 0) // cached modules would not repeat warnings
    kiln_module_cache_put(&k, f->out->model, f->out_path);
  return KILN_OK;
}

kiln_status kiln_compile_file(const char *path, const kiln_compile_options *options,
                              const char *out_path, kiln_diag *diag, kiln_compiled *out) {
  kiln_compile_options o = {0};
  kiln_ctx cx;
  filing f = {path, out_path, &o, out};
  KILN_TRY(kiln_argument_check(diag, __func__, "out", out));
  *out = (kiln_compiled){0};
  KILN_TRY(kiln_argument_check(diag, __func__, "path", path));
  KILN_TRY(kiln_argument_check(diag, __func__, "out_path", out_path));
  if (options)
    memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  o.struct_size = sizeof o;
  KILN_TRY(kiln_options_check(&o, diag));
  kiln_diag *own = kiln_diag_create();
  if (!own) return KILN_FAIL(diag, KILN_NO_MEMORY, path, "no memory left");
  kiln_status st = kiln_ctx_init(&cx, own);
  if (st == KILN_OK) {
    st = kiln_ctx_enter(&cx, compile, &f);
    kiln_ctx_deinit(&cx);
  }
  kiln_diag_append(diag, own);
  kiln_diag_destroy(own);
  if (st != KILN_OK) {
    kiln_model_destroy(out->model);
    *out = (kiln_compiled){0};
  }
  return st;
}

// --- through the compiler interface ---

kiln_status kiln_definitions_verify(const char *path, const kiln_compile_options *options,
                                    const kiln_verify_options *verify, kiln_diag *diag,
                                    size_t *out_failed) {
  KILN_TRY(kiln_argument_check(diag, __func__, "out_failed", out_failed));
  *out_failed = 0;
  KILN_TRY(kiln_argument_check(diag, __func__, "path", path));
  return kiln_ragged_verify(&kiln_compiler_here, path, options, verify, diag, out_failed);
}

kiln_status kiln_schedule_search(const char *path, const kiln_compile_options *options,
                                 const kiln_search_options *how, kiln_diag *diag) {
  KILN_TRY(kiln_argument_check(diag, __func__, "path", path));
  return kiln_space_search(&kiln_compiler_here, path, options, how, diag);
}

// Compilation to a static library: the kernels' objects, the plan as a C function, and the weights,
// in an archive or as a separate file; and a C header.
#include "module/archive.h"
#include "module/c_header.h"
#include "module/copy.h"
#include "driver/load.h"
#include "driver/pipeline.h"
#include "runtime/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// Code reaches linked data within 2 GiB only: larger weights are a separate file.
#define MOST_INSIDE (UINT64_C(1) << 30)

typedef struct writing {
  kiln_build build;
  kiln_archive_options options;
  kiln_output archive, header, weights; // |weights| if they are a separate file
  const char *path, *header_path;
  const char *entry, *weights_symbol;
  uint64_t weights_id;
} writing;

static const char *with_ending(kiln_ctx *cx, const char *path, const char *ending) {
  const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
  const int n = dot && (!slash || dot > slash) ? (int)(dot - path) : (int)strlen(path);
  return kiln_arena_printf(&cx->perm, "%.*s%s", n, path, ending);
}

static kiln_status open_output(kiln_ctx *cx, const writing *w, const char *path, kiln_output *out) {
  KILN_TRY(kiln_model_may_write(w->build.request.model, path, cx->diag));
  return kiln_output_open(out, path, cx->diag);
}

static kiln_status open_all(kiln_ctx *cx, writing *w) {
  const char *const paths[] = {w->path, w->header_path, w->options.weights};
  for (size_t i = 0; i < KILN_LEN(paths); i++)
    for (size_t k = 0; k < i; k++)
      if (paths[i] && strcmp(paths[i], paths[k]) == 0)
        return KILN_FAIL(cx->diag, KILN_BAD_INPUT, paths[i],
                         "static library: its files must have different names");
  KILN_TRY(open_output(cx, w, w->path, &w->archive));
  KILN_TRY(open_output(cx, w, w->header_path, &w->header));
  return w->options.weights ? open_output(cx, w, w->options.weights, &w->weights) : KILN_OK;
}

static kiln_status check_plan(kiln_ctx *cx, const writing *w) {
  const kiln_plan *p = &w->build.product.plan;
  if (p->n_calls > 0)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, w->path,
                     "backends: a static library must have Kiln's kernels alone, got one of %s",
                     p->calls[0].backend);
  if (!w->options.weights && p->weights_bytes > MOST_INSIDE)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, w->path,
                     "weights: must be at most 1 GiB inside of a static library, got %" PRIu64
                     " bytes: put them into a file of their own",
                     p->weights_bytes);
  return KILN_OK;
}

static kiln_status cannot_write(kiln_ctx *cx, const kiln_output *out) {
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, out->path, "must be writable: %s", strerror(errno));
}

// Writes the file of weights; its header comes last, because it has their checksum.
static kiln_status write_weights_file(kiln_ctx *cx, writing *w) {
  unsigned char head[KILN_WEIGHTS_HEAD_BYTES] = {0};
  w->weights.parts.weights_offset = KILN_WEIGHTS_HEAD_BYTES;
  KILN_TRY(kiln_output_weights(&w->weights, w->build.product.plan.weights_bytes, cx->diag));
  KILN_TRY(kiln_weights_fill(cx, &w->build, NULL, &w->weights));
  w->weights_id = kiln_output_weights_sum(&w->weights);
  kiln_wire_put(head, KILN_WEIGHTS_MAGIC, 8);
  kiln_wire_put(head + 8, w->weights_id, 8);
  kiln_wire_put(head + 16, w->build.product.plan.weights_bytes, 8);
  return kiln_write_all(w->weights.file.fd, head, sizeof head, 0) ? KILN_OK
                                                                  : cannot_write(cx, &w->weights);
}

// Compiles the entry function and appends its object to the kernels'.
static kiln_status add_entry(kiln_ctx *cx, writing *w) {
  kiln_build *b = &w->build;
  const kiln_cpu_entry entry = {w->entry, w->options.weights ? NULL : w->weights_symbol,
                                w->weights_id, &b->product.plan, w->options.parallel_for != 0};
  kiln_object *more =
      realloc(b->product.objects, ((size_t)b->product.n_objects + 1) * sizeof *more);
  if (!more)
    return KILN_FAIL(cx->diag, KILN_NO_MEMORY, b->request.model->path, "objects: no memory left");
  b->product.objects = more;
  b->product.objects[b->product.n_objects] = (kiln_object){0};
  return kiln_cpu_compile_entry(cx, &b->request.machine, &entry,
                                &b->product.objects[b->product.n_objects++]);
}

static kiln_status write_archive(kiln_ctx *cx, writing *w) {
  kiln_build *b = &w->build;
  const bool has_weights = !w->options.weights && b->product.plan.weights_bytes > 0;
  const kiln_archive archive = {.n_objects = b->product.n_objects,
                                .objects = b->product.objects,
                                .visible = w->entry,
                                .weights = has_weights ? w->weights_symbol : NULL,
                                .weights_bytes = b->product.plan.weights_bytes,
                                .is_arm = strncmp(b->request.machine.triple, "aarch64", 7) == 0};
  KILN_TRY(kiln_archive_write(cx, &archive, &w->archive));
  if (!has_weights) return KILN_OK;
  KILN_TRY(kiln_output_weights(&w->archive, b->product.plan.weights_bytes, cx->diag));
  return kiln_weights_fill(cx, b, NULL, &w->archive);
}

static const char *file_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static kiln_status write_header(kiln_ctx *cx, writing *w) {
  const kiln_build *b = &w->build;
  kiln_c_header h = {.prefix = b->request.prefix,
                     .model = file_name(b->request.model->path),
                     .machine = &b->request.machine,
                     .plan = &b->product.plan,
                     .has_weights_file = w->options.weights != NULL,
                     .has_parallel_for = w->options.parallel_for != 0};
  int n_needs = 0;
  const char **needs = kiln_archive_needs(cx, b->product.n_objects, b->product.objects, &n_needs);
  h.features = kiln_cpu_needs(cx, &b->request.machine, b->product.n_objects, b->product.objects,
                              &h.n_features);
  h.needs = needs;
  for (int i = 0; i < n_needs; i++) // the weights are in the archive
    if (strcmp(needs[i], w->weights_symbol) != 0) needs[h.n_needs++] = needs[i];
  kiln_text text;
  kiln_text_init(&text, &cx->perm);
  kiln_c_header_print(&cx->perm, &h, &text);
  return kiln_write_all(w->header.file.fd, text.data, (size_t)text.n, 0)
             ? KILN_OK
             : cannot_write(cx, &w->header);
}

static kiln_status take_names(kiln_ctx *cx, writing *w) {
  kiln_output *const outs[] = {&w->weights, &w->header, &w->archive};
  for (size_t i = 0; i < KILN_LEN(outs); i++)
    if (outs[i]->path && !kiln_output_take_name(outs[i])) return cannot_write(cx, outs[i]);
  return KILN_OK;
}

static kiln_status make_library(kiln_ctx *cx, void *argument) {
  writing *w = argument;
  kiln_build *b = &w->build;
  b->request.may_be_late = true;
  b->request.prefix = w->options.prefix ? w->options.prefix : kiln_c_name(&cx->perm, w->path);
  w->header_path = w->options.header ? w->options.header : with_ending(cx, w->path, ".h");
  w->entry = kiln_arena_printf(&cx->perm, "%s_run", b->request.prefix);
  w->weights_symbol = kiln_arena_printf(&cx->perm, "%s_weights", b->request.prefix);
  KILN_TRY(kiln_load_unrolled(cx, b->request.model, &b->request.model));
  KILN_TRY(kiln_model_want_program(b->request.model, cx->diag));
  KILN_TRY(open_all(cx, w));
  KILN_TRY(kiln_build_run(cx, b));
  KILN_TRY(check_plan(cx, w));
  if (w->options.weights) KILN_TRY(write_weights_file(cx, w));
  KILN_TRY(add_entry(cx, w));
  KILN_TRY(write_archive(cx, w));
  KILN_TRY(write_header(cx, w));
  KILN_TRY(take_names(cx, w));
  kiln_model_progress(b->request.model, "library", KILN_COMPILE_STEPS, KILN_COMPILE_STEPS);
  return KILN_OK;
}

static kiln_status check_prefix(const char *prefix, kiln_diag *diag) {
  bool right = !prefix || (*prefix >= 'a' && *prefix <= 'z') || (*prefix >= 'A' && *prefix <= 'Z');
  for (const char *c = prefix; right && c && *c; c++)
    right = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
            *c == '_';
  if (right) return KILN_OK;
  return KILN_FAIL(diag, KILN_BAD_INPUT, "static library",
                   "prefix: must be a name of C that begins with a letter, got \"%s\"", prefix);
}

kiln_status kiln_model_compile_to_archive(kiln_model *model, const char *out_path,
                                          const kiln_archive_options *options, kiln_diag *diag) {
  writing w = {.path = out_path};
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  KILN_TRY(kiln_argument_check(diag, __func__, "out_path", out_path));
  if (options)
    memcpy(&w.options, options,
           options->struct_size < sizeof w.options ? options->struct_size : sizeof w.options);
  KILN_TRY(check_prefix(w.options.prefix, diag));
  if (model->ranges)
    return KILN_FAIL(diag, KILN_UNSUPPORTED, model->path,
                     "dimension %s: must have one value in a static library, got a range",
                     model->ranged);
  w.build.request.model = model;
  w.archive.file.fd = w.header.file.fd = w.weights.file.fd = -1;
  const kiln_status st = kiln_model_enter(model, diag, make_library, &w);
  kiln_output_discard(&w.archive);
  kiln_output_discard(&w.header);
  kiln_output_discard(&w.weights);
  kiln_build_deinit(&w.build);
  return st;
}

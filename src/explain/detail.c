// Machines and code as JSON, for pages that show them.
#include "explain/detail.h"

#include "ir/lines.h"
#include "target/gpu/gpu.h"

#include <string.h>

static void put_text(kiln_text *out, const char *key, const char *value) {
  kiln_text_printf(out, "\"%s\": ", key);
  kiln_text_add_json(out, value);
}

// --- the machine ---

static void put_level(const kiln_mem_level *l, bool is_memory, kiln_text *out) {
  kiln_text_add(out, "{");
  put_text(out, "name", l->name);
  kiln_text_printf(out,
                   ", \"capacity_bytes\": %.0f, \"usable\": %.6g, \"unit_bytes_ns\": %.6g, "
                   "\"all_bytes_ns\": %.6g, \"sharing\": %d, \"explicit\": %s}",
                   is_memory ? 0 : (double)l->capacity_bytes, l->usable, l->unit_bytes_ns,
                   l->all_bytes_ns, l->n_sharing, l->is_explicit ? "true" : "false");
}

static void put_machine(const kiln_machine *m, kiln_text *out) {
  static const char *const peaks[KILN_N_PEAKS] = {"f32", "bf16", "int8"};
  const kiln_device *d = m->device;
  kiln_text_add(out, "\"machine\": {");
  put_text(out, "target", m->target->name);
  kiln_text_add(out, ", ");
  put_text(out, "processor", m->processor);
  kiln_text_printf(out, ", \"units\": %d, \"launch_ns\": %.6g, \"levels\": [",
                   d ? d->n_units : m->n_cores, d ? d->launch_ns : 0);
  for (int i = 0; d && i < d->n_levels; i++) {
    kiln_text_add(out, i ? ", " : "");
    put_level(&d->levels[i], i == 0, out);
  }
  kiln_text_add(out, "], \"peaks\": {");
  for (int i = 0; d && i < KILN_N_PEAKS; i++)
    kiln_text_printf(out, "%s\"%s\": {\"unit_flops_ns\": %.6g, \"all_flops_ns\": %.6g}",
                     i ? ", " : "", peaks[i], d->unit_flops_ns[i], d->all_flops_ns[i]);
  kiln_text_add(out, "}}");
}

// --- code ---

// [n, line, n, line, ...]: run lengths with line numbers.
static void put_lines(const kiln_lined *l, kiln_text *out) {
  kiln_text_add(out, ", \"lines\": [");
  for (int i = 0, n; i < l->lines.n; i += n) {
    for (n = 1; i + n < l->lines.n && l->lines.data[i + n] == l->lines.data[i]; n++) continue;
    kiln_text_printf(out, "%s%d, %d", i ? ", " : "", n, l->lines.data[i]);
  }
  kiln_text_add(out, "]");
}

static void put_lined(const char *name, const kiln_lined *l, kiln_text *out) {
  kiln_text_add(out, ", {");
  put_text(out, "name", name);
  kiln_text_add(out, ", ");
  put_text(out, "text", l->text.data ? l->text.data : "");
  put_lines(l, out);
  kiln_text_add(out, "}");
}

// Writes the error message of code that cannot be shown.
static void put_refused(kiln_ctx *cx, const char *name, const kiln_diag *diag, kiln_text *out) {
  kiln_lined l;
  kiln_lined_init(&l, &cx->perm);
  const char *why = kiln_diag_count(diag) > 0 ? kiln_diag_message(diag, 0) : "no message";
  kiln_lined_add(&l, kiln_arena_printf(&cx->perm, "not shown: %s\n", why), 0);
  put_lined(name, &l, out);
}

static kiln_status put_gpu_code(kiln_ctx *cx, const kiln_build *b, kiln_loops *l,
                                const char *symbol, kiln_text *out) {
  const kiln_gpu_compiler *compiler = b->request.machine.target->compiler;
  kiln_lined device, source, assembly;
  kiln_lined_init(&device, &cx->perm);
  kiln_lined_init(&source, &cx->perm);
  kiln_lined_init(&assembly, &cx->perm);
  KILN_TRY(kiln_gpu_show(cx, &b->request.machine, l, symbol, &device, &source));
  put_lined("device loops", &device, out);
  put_lined(b->request.machine.target->code_levels[0], &source, out);
  if (!compiler || !compiler->show) return KILN_OK;
  kiln_diag *outer = cx->diag;
  kiln_diag *own = kiln_diag_create();
  cx->diag = own;
  const kiln_status st = compiler->show(cx, &b->request.machine, &source, symbol, &assembly);
  cx->diag = outer;
  if (st == KILN_OK) put_lined("ptx", &assembly, out);
  else put_refused(cx, "ptx", own, out);
  kiln_diag_destroy(own);
  return KILN_OK;
}

static kiln_status put_cpu_code(kiln_ctx *cx, const kiln_build *b, kiln_loops *l,
                                const char *symbol, kiln_text *out) {
  kiln_lined llvm, assembly;
  kiln_lined_init(&llvm, &cx->perm);
  kiln_lined_init(&assembly, &cx->perm);
  KILN_TRY(kiln_cpu_show(cx, &b->request.machine, l, symbol, &llvm, &assembly));
  put_lined("llvm", &llvm, out);
  put_lined("asm", &assembly, out);
  return KILN_OK;
}

static kiln_status put_kernel(kiln_ctx *cx, const kiln_build *b, const kiln_kernel *k,
                              kiln_text *out) {
  kiln_lined loops;
  kiln_loops *l = kiln_loops_copy(&cx->perm, k->loops);
  const char *symbol = b->product.symbols[k->id];
  kiln_lined_init(&loops, &cx->perm);
  kiln_loops_number(l);
  kiln_loops_print_lined(cx, l, &loops);
  kiln_text_add(out, "{");
  put_text(out, "kernel", kiln_symbol_text(cx, k->name));
  kiln_text_add(out, ", \"texts\": [{\"name\": \"script\", ");
  put_text(out, "text", k->by_library ? k->by_library->call : k->script ? k->script : "");
  kiln_text_add(out, ", \"lines\": []}");
  if (k->by_library) { // library kernels have no code
    kiln_text_add(out, "]}");
    return KILN_OK;
  }
  put_lined("loops", &loops, out);
  KILN_TRY(b->request.machine.target->has_images ? put_gpu_code(cx, b, l, symbol, out)
                                                 : put_cpu_code(cx, b, l, symbol, out));
  kiln_text_add(out, "]}");
  return KILN_OK;
}

kiln_status kiln_explain_detail(kiln_ctx *cx, kiln_build *b, const char *only, kiln_text *out) {
  const kiln_kernels *all = &b->choices.kernels;
  bool any = false;
  put_machine(&b->request.machine, out);
  kiln_text_add(out, ",\n");
  kiln_explain_traffic(cx, b, out);
  kiln_text_add(out, ",\n\"code\": [");
  for (int i = 0; i < all->kernels.n; i++) {
    const kiln_kernel *k = all->kernels.data[i];
    if (only && strcmp(only, kiln_symbol_text(cx, k->name)) != 0) continue;
    kiln_model_progress(b->request.model, "show", (size_t)i, (size_t)all->kernels.n);
    kiln_text_add(out, any ? ",\n " : "\n ");
    any = true;
    KILN_TRY(put_kernel(cx, b, k, out));
  }
  kiln_model_progress(b->request.model, "show", (size_t)all->kernels.n, (size_t)all->kernels.n);
  kiln_text_add(out, "]");
  return KILN_OK;
}

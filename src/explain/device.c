// The command `kiln device`: finds the machine, measures it if asked, and prints its figures.
#include "model/model.h"
#include "tune/measure.h"
#include "tune/measure_gpu.h"

#include <string.h>

typedef struct reporting {
  kiln_ctx *cx;
  const kiln_device_options *options;
  kiln_machine m;
  kiln_topology topology;
  const char *path; // NULL: there is no cache directory
  const kiln_device *d;
} reporting;

static const char *counted(kiln_ctx *cx, int64_t n, const char *what) {
  return kiln_arena_printf(&cx->scratch, "%" PRId64 " %s%s", n, what, n == 1 ? "" : "s");
}

static void print_source(const reporting *r, kiln_text *out) {
  if (r->d->is_measured) kiln_text_printf(out, "measured: %s\n", r->path ? r->path : "not kept");
  else if (r->m.target->has_grids)
    kiln_text_add(out, "the architecture's figures: not measured (kiln device --target=cuda "
                       "--measure)\n");
  else
    kiln_text_printf(out,
                     "derived from caches, registers and a clock of %.2f GHz: not measured "
                     "(kiln device --measure)\n",
                     r->m.clock_ghz);
}

static void print_machine(const reporting *r, kiln_text *out) {
  const kiln_topology *t = &r->topology;
  kiln_text_printf(out, "%s (%s): %s, %s, %s, %s of memory, %.1f GiB\n", r->m.processor, r->m.cpu,
                   counted(r->cx, t->n_packages, "package"), counted(r->cx, t->n_cores, "core"),
                   counted(r->cx, t->n_threads, "thread"), counted(r->cx, t->n_nodes, "node"),
                   (double)t->memory_bytes / (1 << 30));
  print_source(r, out);
}

static const char *size_text(kiln_ctx *cx, int64_t bytes) {
  if (bytes == INT64_MAX) return "";
  if (bytes < 1 << 20)
    return kiln_arena_printf(&cx->scratch, "%.4g KiB", (double)bytes / (1 << 10));
  return kiln_arena_printf(&cx->scratch, "%.4g MiB", (double)bytes / (1 << 20));
}

static void print_levels(const reporting *r, kiln_text *out) {
  kiln_text_printf(out, "\n%-10s %10s %7s %5s %7s %20s %20s %10s\n", "", "", "", "", "",
                   "read GB/s", "copy GB/s", "latency");
  kiln_text_printf(out, "%-10s %10s %7s %5s %7s %10s %9s %10s %9s %10s\n", "level", "capacity",
                   "usable", "line", "sharing", "a core", "all", "a core", "all", "ns");
  for (int i = 0; i < r->d->n_levels; i++) {
    const kiln_mem_level *l = &r->d->levels[i];
    kiln_text_printf(out, "%-10s %10s %6.0f%% %5d %7d %10.1f %9.1f %10.1f %9.1f %10.1f\n", l->name,
                     size_text(r->cx, l->capacity_bytes), 100 * l->usable, l->transaction_bytes,
                     l->n_sharing, l->unit_bytes_ns, l->all_bytes_ns, l->copy_unit_bytes_ns,
                     l->copy_all_bytes_ns, l->latency_ns);
  }
}

static void print_peaks(const reporting *r, kiln_text *out) {
  static const char *const names[KILN_N_PEAKS] = {"f32", "bf16", "int8"};
  kiln_text_printf(out, "\n%-10s %10s %9s   Gop/s, multiply and add count as two\n", "peak",
                   "a core", "all");
  for (int i = 0; i < KILN_N_PEAKS; i++) {
    if (r->d->unit_flops_ns[i] > 0)
      kiln_text_printf(out, "%-10s %10.1f %9.1f\n", names[i], r->d->unit_flops_ns[i],
                       r->d->all_flops_ns[i]);
    else kiln_text_printf(out, "%-10s %10s %9s\n", names[i], "none", "none");
  }
  kiln_text_printf(out, "\na kernel's launch: %.3f us; on all cores: %.3f us\n",
                   r->d->launch_ns / 1e3, r->d->fork_ns / 1e3);
}

static void print_gpu(const reporting *r, kiln_text *out) {
  kiln_text_printf(out,
                   "%s (%s): %d multiprocessors, %.2f GHz, %s of L2, %s of shared memory a block\n",
                   r->m.processor, r->m.cpu, r->d->n_units, r->d->clock_ghz,
                   size_text(r->cx, r->m.l2_bytes), size_text(r->cx, r->m.gpu.shared_bytes));
  print_source(r, out);
  kiln_text_add(out, "\n");
  for (int i = 0; i < KILN_N_GPU_FIGURES; i++)
    kiln_text_printf(out, "%-34s %10.3f\n", kiln_gpu_figure_names[i], r->d->gpu[i]);
}

static void on_round(void *user, int done, int all) {
  const kiln_device_options *o = user;
  if (o->on_progress) o->on_progress(o->progress_user, "measure", (size_t)done, (size_t)all);
}

static kiln_status measure(reporting *r) {
  kiln_ctx *cx = r->cx;
  const kiln_measure_options how = {.on_round = on_round, .user = (void *)(uintptr_t)r->options};
  KILN_TRY(r->m.target->has_grids ? kiln_gpu_measure(cx, &r->m, &how, &r->d)
                                  : kiln_device_measure(cx, &r->m, &r->topology, &how, &r->d));
  if (r->path) return kiln_device_write(cx, &r->m, r->d, r->path);
  kiln_diag_warn(cx->diag, "device",
                 "the figures are not kept: $KILN_CACHE_DIR or $HOME must name a directory");
  return KILN_OK;
}

static kiln_status report(kiln_ctx *cx, void *argument) {
  reporting *r = argument;
  const kiln_device_action action = r->options->action;
  kiln_text text;
  r->cx = cx;
  KILN_TRY(kiln_target_machine(cx, r->options->target, &r->m));
  const bool is_gpu = r->m.target->has_grids;
  if (!is_gpu && !r->m.is_here && action != KILN_DEVICE_SHOW)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "device",
                     "target: must be this machine or its GPU to be measured, got %s",
                     r->m.processor);
  if (!is_gpu) KILN_TRY(kiln_topology_find(cx, &r->topology));
  r->d = r->m.device;
  r->path = kiln_device_path(cx, &r->m);
  if (action == KILN_DEVICE_MEASURE || (action == KILN_DEVICE_MEASURE_ONCE && !r->d->is_measured))
    KILN_TRY(measure(r));
  kiln_text_init(&text, &cx->perm);
  if (is_gpu) print_gpu(r, &text);
  else {
    print_machine(r, &text);
    print_levels(r, &text);
    print_peaks(r, &text);
  }
  if (r->options->on_report)
    r->options->on_report(r->options->user, text.data, kiln_device_print(cx, &r->m, r->d));
  return KILN_OK;
}

kiln_status kiln_device_report(const kiln_device_options *options, kiln_diag *diag) {
  kiln_device_options o = {0};
  kiln_ctx cx;
  if (options)
    memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  reporting r = {.options = &o};
  kiln_status st = kiln_ctx_init(&cx, diag);
  if (st != KILN_OK) return st;
  st = kiln_ctx_enter(&cx, report, &r);
  kiln_ctx_deinit(&cx);
  return st;
}

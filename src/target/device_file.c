// The file of a measured machine: JSON, one object.
#include "support/directory.h"
#include "support/temporary.h"
#include "target/target.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 1 };

// A number in the file: its least value, and whether that is included.
typedef struct field {
  const char *name;
  size_t offset;
  double least, most;
  bool is_least_allowed;
} field;

#define LEVEL(name, least, most, allowed)                                                          \
  { #name, offsetof(kiln_mem_level, name), least, most, allowed }
static const field level_fields[] = {
    LEVEL(usable, 0, 1, false),
    LEVEL(unit_bytes_ns, 0, 1e9, false),
    LEVEL(all_bytes_ns, 0, 1e9, false),
    LEVEL(copy_unit_bytes_ns, 0, 1e9, false),
    LEVEL(copy_all_bytes_ns, 0, 1e9, false),
    LEVEL(latency_ns, 0, 1e9, true),
};
#define DEVICE(name)                                                                               \
  { #name, offsetof(kiln_device, name), 0, 1e9, false }
static const field device_fields[] = {DEVICE(launch_ns), DEVICE(fork_ns)};
static const char *const peak_names[KILN_N_PEAKS] = {"f32", "bf16", "int8"};

const char *const kiln_gpu_figure_names[KILN_N_GPU_FIGURES] = {
    [KILN_GPU_FMA_F32] = "fma_f32_clocks",
    [KILN_GPU_FMA_F16] = "fma_f16_pair_clocks",
    [KILN_GPU_EXP2] = "exp2_clocks",
    [KILN_GPU_RECIPROCAL] = "reciprocal_clocks",
    [KILN_GPU_SQRT] = "sqrt_clocks",
    [KILN_GPU_CONVERT] = "convert_f32_f16_clocks",
    [KILN_GPU_SHARED_LOAD] = "shared_load_16_clocks",
    [KILN_GPU_LDMATRIX] = "ldmatrix_x4_clocks",
    [KILN_GPU_MMA_F16] = "mma_m16n8k16_f16_clocks",
    [KILN_GPU_MMA_BF16] = "mma_m16n8k16_bf16_clocks",
    [KILN_GPU_MMA_TF32] = "mma_m16n8k8_tf32_clocks",
    [KILN_GPU_MMA_INT8] = "mma_m16n8k32_s8_clocks",
    [KILN_GPU_WGMMA_64] = "wgmma_m64n64k16_f16_clocks",
    [KILN_GPU_WGMMA_128] = "wgmma_m64n128k16_f16_clocks",
    [KILN_GPU_WGMMA_192] = "wgmma_m64n192k16_f16_clocks",
    [KILN_GPU_WGMMA_256] = "wgmma_m64n256k16_f16_clocks",
    [KILN_GPU_BARRIER] = "barrier_256_latency_clocks",
    [KILN_GPU_SHARED_LATENCY] = "shared_latency_clocks",
    [KILN_GPU_L2_LATENCY] = "l2_latency_clocks",
    [KILN_GPU_MEMORY_LATENCY] = "memory_latency_clocks",
    [KILN_GPU_CP_ASYNC_LATENCY] = "cp_async_latency_clocks",
    [KILN_GPU_TMA_LATENCY] = "tma_8k_latency_clocks",
    [KILN_GPU_L2_UNIT] = "l2_alone_bytes_clock",
    [KILN_GPU_L2_ALL] = "l2_each_of_all_bytes_clock",
    [KILN_GPU_MEMORY_UNIT] = "memory_alone_bytes_clock",
    [KILN_GPU_MEMORY_ALL] = "memory_each_of_all_bytes_clock",
    [KILN_GPU_COPY_ALL] = "copy_each_of_all_bytes_clock",
    [KILN_GPU_LAUNCH_NS] = "launch_ns",
    [KILN_GPU_EARLY_NS] = "early_launch_ns",
    [KILN_GPU_BEGIN_END_NS] = "begin_end_ns",
    [KILN_GPU_BLOCK_NS] = "block_ns",
};

// Properties of the machine that a file must match.
typedef struct identity {
  const char *name, *text; // NULL text: a number
  int64_t number;
} identity;
enum { N_IDENTITIES = 8 };

static void identify(const kiln_machine *m, identity out[N_IDENTITIES]) {
  const identity all[N_IDENTITIES] = {
      {"format", NULL, FORMAT},
      {"processor", m->processor, 0},
      {"cpu", m->cpu, 0},
      {"vector_bytes", NULL, m->vector_bytes},
      {"cores", NULL, m->n_cores},
      {"l1_bytes", NULL, m->l1_bytes},
      {"l2_bytes", NULL, m->l2_bytes},
      {"l3_bytes", NULL, m->l3_bytes},
  };
  memcpy(out, all, sizeof all);
}

// --- paths ---

// The files' names have "-CPU-" behind the processor's.
bool kiln_device_was_measured(const kiln_machine *m) {
  char folder[PATH_MAX], part[sizeof m->cpu + 2];
  bool found = false;
  snprintf(part, sizeof part, "-%s-", m->cpu);
  DIR *d = kiln_directory_find_cache(folder, sizeof folder) ? opendir(folder) : NULL;
  if (!d) return false;
  for (const struct dirent *e = readdir(d); e && !found; e = readdir(d))
    found = strncmp(e->d_name, "device-", strlen("device-")) == 0 && strstr(e->d_name, part);
  closedir(d);
  return found;
}

const char *kiln_device_path(kiln_ctx *cx, const kiln_machine *m) {
  char folder[PATH_MAX], slug[sizeof m->processor];
  size_t n = 0;
  if (!kiln_directory_find_cache(folder, sizeof folder)) return NULL;
  for (const char *at = m->processor; *at; at++) {
    const bool is_word = isalnum((unsigned char)*at);
    if (is_word || (n > 0 && slug[n - 1] != '-'))
      slug[n++] = is_word ? (char)tolower((unsigned char)*at) : '-';
  }
  while (n > 0 && slug[n - 1] == '-') n--;
  slug[n] = 0;
  return kiln_arena_printf(&cx->perm, "%s/device-%s-%s-%dc-%dk-%dk-%dk-v%d.json", folder, slug,
                           m->cpu, m->n_cores, (int)(m->l1_bytes >> 10), (int)(m->l2_bytes >> 10),
                           (int)(m->l3_bytes >> 10), FORMAT);
}

// --- writing ---

static double real_at(const void *object, const field *f) {
  double v = 0;
  memcpy(&v, (const char *)object + f->offset, sizeof v);
  return v;
}

static void put_reals(json_t *to, const void *object, size_t n, const field *fields) {
  for (size_t i = 0; i < n; i++)
    json_object_set_new(to, fields[i].name, json_real(real_at(object, &fields[i])));
}

static json_t *json_of_level(const kiln_mem_level *l) {
  json_t *o = json_object();
  json_object_set_new(o, "name", json_string(l->name));
  json_object_set_new(o, "capacity_bytes", // null for memory
                      l->capacity_bytes == INT64_MAX ? json_null()
                                                     : json_integer(l->capacity_bytes));
  put_reals(o, l, KILN_LEN(level_fields), level_fields);
  json_object_set_new(o, "transaction_bytes", json_integer(l->transaction_bytes));
  json_object_set_new(o, "sharing", json_integer(l->n_sharing));
  json_object_set_new(o, "explicit", json_boolean(l->is_explicit));
  return o;
}

static json_t *json_of_gpu(const kiln_machine *m, const kiln_device *d) {
  json_t *o = json_pack("{s:f, s:I, s:i}", "clock_ghz", d->clock_ghz, "shared_bytes",
                        (json_int_t)m->gpu.shared_bytes, "resident_threads", m->gpu.max_resident);
  for (int i = 0; i < KILN_N_GPU_FIGURES; i++)
    json_object_set_new(o, kiln_gpu_figure_names[i], json_real(d->gpu[i]));
  return o;
}

static json_t *json_of_device(const kiln_machine *m, const kiln_device *d) {
  identity ids[N_IDENTITIES];
  json_t *o = json_object(), *levels = json_array(), *peaks = json_object();
  identify(m, ids);
  for (int i = 0; i < N_IDENTITIES; i++)
    json_object_set_new(o, ids[i].name,
                        ids[i].text ? json_string(ids[i].text) : json_integer(ids[i].number));
  json_object_set_new(o, "measured", json_boolean(d->is_measured));
  for (int i = 0; i < d->n_levels; i++) json_array_append_new(levels, json_of_level(&d->levels[i]));
  json_object_set_new(o, "levels", levels);
  for (int i = 0; i < KILN_N_PEAKS; i++)
    json_object_set_new(peaks, peak_names[i],
                        json_pack("{s:f, s:f}", "unit_flops_ns", d->unit_flops_ns[i],
                                  "all_flops_ns", d->all_flops_ns[i]));
  json_object_set_new(o, "peaks", peaks);
  put_reals(o, d, KILN_LEN(device_fields), device_fields);
  if (m->target->has_grids) json_object_set_new(o, "gpu", json_of_gpu(m, d));
  return o;
}

const char *kiln_device_print(kiln_ctx *cx, const kiln_machine *m, const kiln_device *d) {
  json_t *o = json_of_device(m, d);
  char *made = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(5));
  const char *text = kiln_arena_printf(&cx->perm, "%s\n", made ? made : "{}");
  free(made);
  json_decref(o);
  return text;
}

static bool write_text(const char *path, const char *text) {
  kiln_temporary file;
  const size_t n = strlen(text);
  const bool written = kiln_temporary_open(&file, path, 0666) &&
                       write(file.fd, text, n) == (ssize_t)n && kiln_temporary_take_name(&file);
  const int why = errno;
  kiln_temporary_discard(&file);
  errno = why;
  return written;
}

kiln_status kiln_device_write(kiln_ctx *cx, const kiln_machine *m, const kiln_device *d,
                              const char *path) {
  char folder[PATH_MAX];
  const char *slash = strrchr(path, '/');
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
  if (kiln_directory_make(folder) && write_text(path, kiln_device_print(cx, m, d))) return KILN_OK;
  const int why = errno;
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                   "device: the file must be writable, got: %s; $KILN_CACHE_DIR names another "
                   "directory",
                   strerror(why));
}

// --- reading ---

typedef struct reader {
  kiln_ctx *cx;
  const char *path;
} reader;

static bool KILN_PRINTF(2, 3) wrong(const reader *r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *what = kiln_arena_vprintf(&r->cx->scratch, format, args);
  va_end(args);
  kiln_diag_warn(r->cx->diag, r->path,
                 "device: %s; the file is not used: `kiln device --measure` makes a new one", what);
  return false;
}

static const char *shown(const reader *r, const json_t *value) {
  char *made = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
  const char *text = kiln_arena_printf(&r->cx->scratch, "%.60s", made ? made : "nothing");
  free(made);
  return text;
}

static bool check_identity(const reader *r, const kiln_machine *m, const json_t *o) {
  identity ids[N_IDENTITIES];
  identify(m, ids);
  for (int i = 0; i < N_IDENTITIES; i++) {
    json_t *got = json_object_get(o, ids[i].name);
    json_t *want = ids[i].text ? json_string(ids[i].text) : json_integer(ids[i].number);
    const bool same = got && json_equal(got, want);
    if (!same)
      (void)wrong(r, "%s must be this machine's %s, got %s", ids[i].name, shown(r, want),
                  shown(r, got));
    json_decref(want);
    if (!same) return false;
  }
  return true;
}

static bool read_real(const reader *r, const json_t *o, const char *where, const field *f,
                      void *object) {
  const json_t *got = json_object_get(o, f->name);
  const double v = json_number_value(got);
  if (!json_is_number(got) || !isfinite(v) || v > f->most || v < f->least ||
      (v <= f->least && !f->is_least_allowed))
    return wrong(r, "%s%s must be a number %s %g and at most %g, got %s", where, f->name,
                 f->is_least_allowed ? "of at least" : "above", f->least, f->most, shown(r, got));
  memcpy((char *)object + f->offset, &v, sizeof v);
  return true;
}

static bool read_count(const reader *r, const json_t *o, const char *where, const char *name,
                       int most, int *out) {
  const json_t *got = json_object_get(o, name);
  const json_int_t v = json_integer_value(got);
  if (!json_is_integer(got) || v < 1 || v > most)
    return wrong(r, "%s%s must be 1 to %d, got %s", where, name, most, shown(r, got));
  *out = (int)v;
  return true;
}

// Reads the capacity, which must be below that of |slower|, the level before; for memory |slower|
// is NULL and the capacity null.
static bool read_capacity(const reader *r, const json_t *o, const char *where,
                          const kiln_mem_level *slower, kiln_mem_level *l) {
  const json_t *got = json_object_get(o, "capacity_bytes");
  l->capacity_bytes = slower ? (int64_t)json_integer_value(got) : INT64_MAX;
  if (slower ? l->capacity_bytes > 0 && l->capacity_bytes < slower->capacity_bytes
             : json_is_null(got))
    return true;
  return wrong(r, "%scapacity_bytes must be %s, got %s", where,
               slower ? "above 0 and below that of the level before" : "null", shown(r, got));
}

static bool read_bool(const reader *r, const json_t *o, const char *where, const char *name,
                      bool *out) {
  const json_t *got = json_object_get(o, name);
  if (!json_is_boolean(got))
    return wrong(r, "%s%s must be true or false, got %s", where, name, shown(r, got));
  *out = json_is_true(got);
  return true;
}

static bool read_level(const reader *r, const json_t *o, int i, const char *name, kiln_device *d) {
  kiln_mem_level *l = &d->levels[i];
  const char *where = kiln_arena_printf(&r->cx->scratch, "levels[%d].", i);
  const json_t *got = json_object_get(o, "name");
  if (!json_is_string(got) || strcmp(json_string_value(got), name) != 0)
    return wrong(r, "%sname must be \"%s\", got %s", where, name, shown(r, got));
  l->name = kiln_arena_strdup(&r->cx->perm, name);
  if (!read_bool(r, o, where, "explicit", &l->is_explicit)) return false;
  for (size_t k = 0; k < KILN_LEN(level_fields); k++)
    if (!read_real(r, o, where, &level_fields[k], l)) return false;
  return read_capacity(r, o, where, i ? &d->levels[i - 1] : NULL, l) &&
         read_count(r, o, where, "transaction_bytes", 1 << 20, &l->transaction_bytes) &&
         read_count(r, o, where, "sharing", 1 << 20, &l->n_sharing);
}

// The machine determines the levels, the file their speeds.
static bool read_levels(const reader *r, const kiln_machine *m, const json_t *o, kiln_device *d) {
  const kiln_device *nominal = kiln_device_make_nominal(r->cx, m);
  const json_t *levels = json_object_get(o, "levels");
  const size_t n = (size_t)nominal->n_levels;
  if (!json_is_array(levels))
    return wrong(r, "levels must be a list of %zu, got %s", n, shown(r, levels));
  d->n_levels = nominal->n_levels;
  for (int i = 0; i < d->n_levels; i++)
    if (!read_level(r, json_array_get(levels, (size_t)i), i, nominal->levels[i].name, d))
      return false;
  if (json_array_size(levels) == n) return true;
  return wrong(r, "levels must be %zu, got %zu", n, json_array_size(levels));
}

static bool read_peaks(const reader *r, const json_t *o, kiln_device *d) {
  const json_t *peaks = json_object_get(o, "peaks");
  for (int i = 0; i < KILN_N_PEAKS; i++) {
    const char *where = kiln_arena_printf(&r->cx->scratch, "peaks.%s.", peak_names[i]);
    const bool may_lack = i != KILN_PEAK_F32;
    const size_t at = (size_t)i * sizeof(double);
    const field unit = {"unit_flops_ns", offsetof(kiln_device, unit_flops_ns) + at, 0, 1e9,
                        may_lack};
    const field all = {"all_flops_ns", offsetof(kiln_device, all_flops_ns) + at, 0, 1e9, may_lack};
    const json_t *peak = json_object_get(peaks, peak_names[i]);
    if (!read_real(r, peak, where, &unit, d) || !read_real(r, peak, where, &all, d)) return false;
  }
  return true;
}

// Of a GPU: its levels are the nominal ones of |m|.
static bool read_gpu(const reader *r, const kiln_machine *m, const json_t *o, kiln_device *d) {
  const json_t *figures = json_object_get(o, "gpu");
  const field clock = {"clock_ghz", offsetof(kiln_device, clock_ghz), 0, 100, false};
  *d = *m->device;
  if (!read_real(r, figures, "gpu.", &clock, d)) return false;
  for (int i = 0; i < KILN_N_GPU_FIGURES; i++) {
    const field f = {kiln_gpu_figure_names[i],
                     offsetof(kiln_device, gpu) + (size_t)i * sizeof(double), 0, 1e9, true};
    if (!read_real(r, figures, "gpu.", &f, d)) return false;
  }
  return read_bool(r, o, "", "measured", &d->is_measured);
}

static bool read_device(const reader *r, const kiln_machine *m, const json_t *o, kiln_device *d) {
  if (!check_identity(r, m, o)) return false;
  if (m->target->has_grids) return read_gpu(r, m, o, d);
  if (!read_levels(r, m, o, d) || !read_peaks(r, o, d)) return false;
  for (size_t i = 0; i < KILN_LEN(device_fields); i++)
    if (!read_real(r, o, "", &device_fields[i], d)) return false;
  d->name = kiln_arena_strdup(&r->cx->perm, m->processor);
  d->n_units = m->n_cores;
  return read_bool(r, o, "", "measured", &d->is_measured);
}

// Parses the file; NULL if there is none, or after a warning.
static json_t *load(const reader *r) {
  json_error_t error;
  FILE *f = fopen(r->path, "re");
  if (!f && errno != ENOENT && errno != ENOTDIR)
    (void)wrong(r, "the file must be readable, got: %s", strerror(errno));
  if (!f) return NULL;
  json_t *o = json_loadf(f, JSON_REJECT_DUPLICATES, &error);
  fclose(f);
  if (!o) (void)wrong(r, "line %d: must be JSON, got: %s", error.line, error.text);
  return o;
}

static void drop_json(void *o) { json_decref(o); }

const kiln_device *kiln_device_read(kiln_ctx *cx, const kiln_machine *m, const char *path) {
  const reader r = {cx, path};
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_device *d = KILN_NEW(&cx->perm, kiln_device);
  json_t *o = load(&r);
  kiln_cleanup_push(cx, drop_json, o);
  const bool right = o && read_device(&r, m, o, d);
  kiln_cleanup_pop(cx);
  json_decref(o);
  kiln_arena_rewind(&cx->scratch, mark);
  return right ? d : NULL;
}

static kiln_status read_card(const reader *r, const json_t *o, kiln_gpu_card *out, char arch[16]) {
  const json_t *figures = json_object_get(o, "gpu");
  const char *name = json_string_value(json_object_get(o, "processor")),
             *cpu = json_string_value(json_object_get(o, "cpu"));
  if (!name || !cpu || !json_is_object(figures))
    return KILN_FAIL(r->cx->diag, KILN_BAD_INPUT, r->path,
                     "device: must be the figures of a GPU, as `kiln device --target=cuda --json` "
                     "writes them");
  snprintf(arch, 16, "%s", cpu);
  snprintf(out->name, sizeof out->name, "%s", name);
  out->n_units = (int)json_integer_value(json_object_get(o, "cores"));
  out->l2_bytes = json_integer_value(json_object_get(o, "l2_bytes"));
  out->shared_bytes = json_integer_value(json_object_get(figures, "shared_bytes"));
  out->max_resident = json_integer_value(json_object_get(figures, "resident_threads"));
  return KILN_OK;
}

kiln_status kiln_device_read_card(kiln_ctx *cx, const char *path, kiln_gpu_card *out,
                                  char arch[16]) {
  const reader r = {cx, path};
  json_t *o = load(&r);
  kiln_cleanup_push(cx, drop_json, o);
  const kiln_status st = read_card(&r, o, out, arch);
  kiln_cleanup_pop(cx);
  json_decref(o);
  return st;
}

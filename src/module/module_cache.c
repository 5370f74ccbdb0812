// A cached module is a file next to the cache's database. Its entry has digests of the module and
// of the model's external data files.
#include "module/module_cache.h"
#include "module/build.h"
#include "module/copy.h"
#include "module/schedule_lookup.h"
#include "support/numbers.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// --- inputs of a module ---

// Only modules determined by the model, the machine and the options' texts and numbers are cached:
// compilations that read other files, measure or print are not.
static bool may_be_kept(const char *path, const kiln_compile_options *o) {
  const bool has_files = o->n_op_files > 0 || o->tuned || o->tuned_for || o->orchestration;
  const bool measures = o->tune || o->tune_seconds > 0 || o->orchestrate ||
                        (o->backends && strcmp(o->backends, "none") != 0);
  return o->cache && !o->read_only && !o->dump && !o->dump_after && !o->schedule && !has_files &&
         !measures && o->n_constants == 0 && o->n_ranges == 0 && o->n_sums == 0 &&
         o->n_files == 0 && !kiln_path_is_definition(path) && kiln_target_makes_modules(o->target);
}

static void add_real(kiln_digest *d, double value) {
  char text[32];
  kiln_number_format(text, sizeof text, "%.17g", value);
  kiln_digest_add_text(d, text);
}

static void add_texts(kiln_digest *d, size_t n, const char *const *texts) {
  kiln_digest_add_int(d, (int64_t)n);
  for (size_t i = 0; i < n; i++) kiln_digest_add_text(d, texts[i]);
}

static void add_options(kiln_digest *d, const kiln_compile_options *o) {
  kiln_digest_add_int(d, (int64_t)o->n_dims);
  for (size_t i = 0; i < o->n_dims; i++) {
    kiln_digest_add_text(d, o->dims[i].name);
    kiln_digest_add_int(d, o->dims[i].value);
  }
  kiln_digest_add_int(d, (int64_t)o->n_shapes);
  for (size_t i = 0; i < o->n_shapes; i++) {
    kiln_digest_add_text(d, o->shapes[i].name);
    kiln_digest_add_int(d, o->shapes[i].rank);
    for (int k = 0; k < o->shapes[i].rank; k++) {
      const char *const *names = o->shapes[i].dim_names;
      kiln_digest_add_text(d, names ? names[k] : NULL);
      kiln_digest_add_int(d, names && names[k] ? 0 : o->shapes[i].shape[k]);
    }
  }
  kiln_digest_add_text(d, o->entry);
  kiln_digest_add_text(d, o->target);
  kiln_digest_add_text(d, o->scheduler);
  kiln_digest_add_text(d, o->dtype);
  kiln_digest_add_int(d, o->no_winograd);
  kiln_digest_add_int(d, o->no_connect);
  kiln_digest_add_int(d, o->no_beside);
  kiln_digest_add_int(d, o->clamp_indices);
  kiln_digest_add_int(d, o->most_extent);
  add_real(d, o->weight_growth);
  add_texts(d, o->n_without, o->without);
  kiln_digest_add_text(d, o->stop_after);
  add_texts(d, o->n_with_rules, o->with_rules);
  add_texts(d, o->n_overridable, o->overridable);
  add_texts(d, o->n_marks, o->marks);
  add_texts(d, o->n_states, o->states);
}

// Errors are ignored here and reported by the compilation; nothing is cached then.
static bool add_machine(kiln_ctx *cx, const kiln_module_cache *k, kiln_digest *d) {
  kiln_machine machine;
  kiln_diag *const diag = cx->diag;
  int version = 0;
  cx->diag = NULL;
  bool found = kiln_build_find_machine(cx, k->path, k->options->target, k->options->dtype,
                                       &machine) == KILN_OK;
  if (found && machine.target->compiler)
    found = machine.target->compiler->version(cx, &version) == KILN_OK;
  cx->diag = diag;
  if (!found) return false;
  kiln_schedule_key_add_machine(d, &machine);
  kiln_digest_add_text(d, machine.target->name);
  kiln_digest_add_text(d, machine.gpu.arch);
  kiln_digest_add_int(d, version);
  return true;
}

static bool is_before(struct timespec a, struct timespec b) {
  return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

typedef struct content {
  uint64_t bytes;
  unsigned char digest[KILN_DIGEST_BYTES];
} content;

// Reads the digest of a file, unless it is too large for the cache or was changed since |k| began.
static bool read_content(const kiln_module_cache *k, const char *path, content *out) {
  struct stat info;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  bool right = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
               info.st_size <= KILN_MODULE_CACHE_MOST_BYTES && is_before(info.st_mtim, k->start);
  if (right) {
    out->bytes = (uint64_t)info.st_size;
    right = kiln_file_digest(fd, out->bytes, k->threads, out->digest);
  }
  if (fd >= 0) close(fd);
  return right;
}

void kiln_module_cache_begin(kiln_ctx *cx, const char *path, const kiln_compile_options *options,
                             kiln_module_cache *out) {
  content model;
  kiln_digest d;
  *out =
      (kiln_module_cache){.cx = cx, .path = path, .options = options, .threads = options->threads};
  if (out->threads == 0) out->threads = kiln_cpu_cores();
  clock_gettime(CLOCK_REALTIME_COARSE, &out->start); // the clock of file times
  if (!may_be_kept(path, options) || !read_content(out, path, &model)) return;
  kiln_cache_key_begin(&d);
  kiln_digest_add_text(&d, "module");
  kiln_digest_add(&d, model.digest, sizeof model.digest);
  kiln_digest_add_int(&d, out->threads);
  add_options(&d, options);
  out->has_key = add_machine(cx, out, &d);
  kiln_digest_end(&d, out->key.bytes);
}

// --- entries ---

// Followed by the external files: digest and location of each.
typedef struct entry_head {
  uint64_t module_bytes;
  unsigned char module_digest[KILN_DIGEST_BYTES];
  kiln_memory memory;
  uint32_t n_files;
} entry_head;

static bool take(const char **at, size_t *left, void *out, size_t bytes) {
  if (*left < bytes) return false;
  memcpy(out, *at, bytes);
  *at += bytes;
  *left -= bytes;
  return true;
}

static const char *beside(const kiln_module_cache *k, const char *location) {
  const char *slash = strrchr(k->path, '/');
  return kiln_arena_printf(&k->cx->scratch, "%.*s%s", slash ? (int)(slash - k->path) + 1 : 0,
                           k->path, location);
}

static bool is_same(const content *a, const content *b) {
  return a->bytes == b->bytes && memcmp(a->digest, b->digest, sizeof a->digest) == 0;
}

// Compiling a model onto itself is an error, which the compilation reports.
static bool is_same_file(const char *a, const char *b) {
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool has_same_files(const kiln_module_cache *k, const char *out_path, uint32_t n,
                           const char *at, size_t left) {
  if (is_same_file(k->path, out_path)) return false;
  for (uint32_t i = 0; i < n; i++) {
    content then, now;
    if (!take(&at, &left, &then, sizeof then)) return false;
    const char *end = memchr(at, 0, left);
    if (!end || is_same_file(beside(k, at), out_path) || !read_content(k, beside(k, at), &now) ||
        !is_same(&then, &now))
      return false;
    left -= (size_t)(end + 1 - at);
    at = end + 1;
  }
  return true;
}

static bool copy(int from, const entry_head *head, const char *path, int threads) {
  unsigned char digest[KILN_DIGEST_BYTES];
  kiln_output out;
  const bool copied = kiln_output_open(&out, path, NULL) == KILN_OK &&
                      kiln_output_copy(&out, from, head->module_bytes, threads, digest) &&
                      kiln_mac_is_same(digest, head->module_digest) && kiln_output_take_name(&out);
  kiln_output_discard(&out);
  return copied;
}

bool kiln_module_cache_find(const kiln_module_cache *k, const char *out_path,
                            kiln_memory *out_memory) {
  char path[KILN_CACHE_PATH_ROOM];
  entry_head head;
  size_t left = 0;
  if (!k->has_key) return false;
  const kiln_mark mark = kiln_arena_mark(&k->cx->scratch);
  kiln_cache *c = kiln_cache_open(NULL, KILN_CACHE_LIMIT_BYTES);
  char *entry = kiln_cache_find(c, KILN_CACHE_MODULE, &k->key, &left);
  const char *at = entry;
  const int fd = entry && kiln_cache_file(c, &k->key, path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  const bool found = fd >= 0 && take(&at, &left, &head, sizeof head) &&
                     has_same_files(k, out_path, head.n_files, at, left) &&
                     copy(fd, &head, out_path, k->threads);
  if (found) *out_memory = head.memory;
  if (fd >= 0) close(fd);
  free(entry);
  kiln_cache_close(c);
  kiln_arena_rewind(&k->cx->scratch, mark);
  return found;
}

// --- storing ---

// Completes |head| with the digests of the module's external files.
static bool describe(const kiln_module_cache *k, const kiln_model *m, const entry_head *head,
                     kiln_text *out) {
  kiln_text_add_bytes(out, (const char *)head, sizeof *head);
  for (uint32_t i = 0; i < head->n_files; i++) {
    const char *location = kiln_onnx_file_location(m->core->file, (int)i);
    content file;
    if (!read_content(k, beside(k, location), &file)) return false;
    kiln_text_add_bytes(out, (const char *)&file, sizeof file);
    kiln_text_add_bytes(out, location, strlen(location) + 1);
  }
  return true;
}

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

void kiln_module_cache_put(const kiln_module_cache *k, const kiln_model *model,
                           const char *out_path) {
  char path[KILN_CACHE_PATH_ROOM];
  struct stat info;
  entry_head head;
  kiln_text entry;
  if (!k->has_key || !model->core->file) return;
  const kiln_mark mark = kiln_arena_mark(&k->cx->scratch);
  kiln_cache *c = kiln_cache_open(NULL, KILN_CACHE_LIMIT_BYTES);
  const int fd = c && kiln_cache_file(c, &k->key, path) ? open(out_path, O_RDONLY | O_CLOEXEC) : -1;
  kiln_output out = {.file.fd = -1};
  kiln_text_init(&entry, &k->cx->scratch);
  memset(&head, 0, sizeof head); // includes padding bytes
  head.memory = kiln_model_memory(model);
  while (kiln_onnx_file_location(model->core->file, (int)head.n_files)) head.n_files++;
  if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size <= KILN_MODULE_CACHE_MOST_BYTES) {
    head.module_bytes = (uint64_t)info.st_size;
    if (kiln_output_open(&out, path, NULL) == KILN_OK &&
        kiln_output_copy(&out, fd, head.module_bytes, k->threads, head.module_digest) &&
        describe(k, model, &head, &entry) && kiln_output_take_name(&out))
      kiln_cache_put_module(c, &k->key, name_of(k->path), entry.data, (size_t)entry.n,
                            info.st_size);
  }
  kiln_output_discard(&out);
  if (fd >= 0) close(fd);
  kiln_cache_close(c);
  kiln_arena_rewind(&k->cx->scratch, mark);
}

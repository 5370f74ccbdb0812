// CUDA C to cubins by NVRTC, opened when it is first needed. It needs no GPU, and several threads
// may compile at once.
#include "target/gpu/cuda/nvrtc.h"
#include "support/thread.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// As the library's manual declares them.
typedef struct program *program;
typedef struct nvrtc {
  void *library;
  int (*create)(program *, const char *source, const char *name, int n_headers,
                const char *const *headers, const char *const *names);
  int (*destroy)(program *);
  int (*compile)(program, int n_options, const char *const *options);
  int (*log_size)(program, size_t *);
  int (*log)(program, char *);
  int (*cubin_size)(program, size_t *);
  int (*cubin)(program, char *);
  int (*ptx_size)(program, size_t *);
  int (*ptx)(program, char *);
  int (*version)(int *major, int *minor);
} nvrtc;

static const char *const libraries[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

static bool find(const nvrtc *v, const char *name, void *out, size_t bytes) {
  void *p = dlsym(v->library, name);
  memcpy(out, &p, bytes);
  return p != NULL;
}

static kiln_status open_nvrtc(kiln_ctx *cx, nvrtc *v) {
  *v = (nvrtc){0};
  for (size_t i = 0; i < KILN_LEN(libraries) && !v->library; i++)
    v->library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
  if (!v->library)
    return KILN_FAIL(cx->diag, KILN_DEVICE_ERROR, "cuda",
                     "the library NVRTC must be found, got none of libnvrtc.so.13, libnvrtc.so.12: "
                     "install it, or name its folder in LD_LIBRARY_PATH");
#define FIND(field, name) find(v, name, &v->field, sizeof v->field)
  const bool all = FIND(create, "nvrtcCreateProgram") && FIND(destroy, "nvrtcDestroyProgram") &&
                   FIND(compile, "nvrtcCompileProgram") &&
                   FIND(log_size, "nvrtcGetProgramLogSize") && FIND(log, "nvrtcGetProgramLog") &&
                   FIND(cubin_size, "nvrtcGetCUBINSize") && FIND(cubin, "nvrtcGetCUBIN") &&
                   FIND(ptx_size, "nvrtcGetPTXSize") && FIND(ptx, "nvrtcGetPTX") &&
                   FIND(version, "nvrtcVersion");
#undef FIND
  if (all) return KILN_OK;
  dlclose(v->library);
  return KILN_FAIL(cx->diag, KILN_DEVICE_ERROR, "cuda", "NVRTC must be of CUDA 11 or later");
}

// --- one source ---

static char *log_of(const nvrtc *v, program p) {
  size_t n = 0;
  if (v->log_size(p, &n) || n == 0) return NULL;
  char *text = calloc(n + 1, 1);
  if (text && v->log(p, text)) text[0] = 0;
  return text;
}

static bool take_cubin(const nvrtc *v, program p, kiln_object *out) {
  size_t n = 0;
  if (v->cubin_size(p, &n) || n == 0) return false;
  out->data = malloc(n);
  out->bytes = n;
  return out->data && !v->cubin(p, out->data);
}

// The log when it fails, malloc'ed.
static bool compile_one(const nvrtc *v, const char *arch, const char *source, const char *name,
                        kiln_object *out, char **out_log) {
  char option[64] = "--gpu-architecture=";
  strncat(option, arch, sizeof option - strlen(option) - 1);
  // fused multiply-adds are explicit in the source
  const char *const options[] = {option, "--std=c++17", "--fmad=false"};
  program p = NULL;
  *out_log = NULL;
  if (v->create(&p, source, name, 0, NULL, NULL)) return false;
  const bool is_made = !v->compile(p, (int)KILN_LEN(options), options) && take_cubin(v, p, out);
  if (!is_made) *out_log = log_of(v, p);
  v->destroy(&p);
  return is_made;
}

// --- many of them ---

enum { MOST_THREADS = 64 };

typedef struct kiln_gpu_job job;
struct kiln_gpu_job {
  nvrtc v;
  char arch[16];
  int n;
  const char *const *sources, *const *names;
  kiln_object *out; // [n]
  char **logs;      // [n] of those that failed
  bool *is_made;
  bool *is_done; // under |lock|
  int next;
  bool is_ended; // nothing further is begun
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t threads[MOST_THREADS];
  int n_threads;
};

// The next source to compile; -1: there is none.
static int take_next(job *j) {
  pthread_mutex_lock(&j->lock);
  const int i = j->is_ended || j->next == j->n ? -1 : j->next++;
  pthread_mutex_unlock(&j->lock);
  return i;
}

static void *work(void *argument) {
  job *j = argument;
  for (int i; (i = take_next(j)) >= 0;) {
    j->is_made[i] =
        compile_one(&j->v, j->arch, j->sources[i], j->names[i], &j->out[i], &j->logs[i]);
    pthread_mutex_lock(&j->lock);
    j->is_done[i] = true;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
  }
  return NULL;
}

static void end_job(job *j) {
  if (!j) return;
  pthread_mutex_lock(&j->lock);
  j->is_ended = true;
  pthread_mutex_unlock(&j->lock);
  for (int i = 0; i < j->n_threads; i++) pthread_join(j->threads[i], NULL);
  for (int i = 0; i < j->n; i++) {
    free(j->out[i].data);
    free(j->logs[i]);
  }
  pthread_cond_destroy(&j->changed);
  pthread_mutex_destroy(&j->lock);
  free(j->out);
  free(j->logs);
  free(j->is_made);
  free(j->is_done);
  free(j);
}

static job *make_job(int n) {
  job *j = calloc(1, sizeof *j);
  if (!j) return NULL;
  pthread_condattr_t how;
  pthread_condattr_init(&how);
  pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
  pthread_mutex_init(&j->lock, NULL);
  pthread_cond_init(&j->changed, &how);
  pthread_condattr_destroy(&how);
  const size_t room = (size_t)n + 1;
  j->out = calloc(room, sizeof *j->out);
  j->logs = calloc(room, sizeof *j->logs);
  j->is_made = calloc(room, sizeof *j->is_made);
  j->is_done = calloc(room, sizeof *j->is_done);
  if (j->out && j->logs && j->is_made && j->is_done) j->n = n;
  if (j->n == n) return j;
  end_job(j);
  return NULL;
}

static kiln_status start_job(kiln_ctx *cx, const kiln_machine *m, int n, const char *const *sources,
                             const char *const *names, int n_threads, job **out) {
  nvrtc v;
  *out = NULL;
  KILN_TRY(open_nvrtc(cx, &v));
  job *j = make_job(n);
  if (!j) return KILN_FAIL(cx->diag, KILN_NO_MEMORY, "cuda", "NVRTC: no memory left");
  j->v = v; // the library stays: it is not made to be closed
  memcpy(j->arch, m->gpu.arch, sizeof j->arch);
  j->sources = sources;
  j->names = names;
  while (j->n_threads < MOST_THREADS && j->n_threads < n_threads && j->n_threads < n &&
         kiln_thread_start(&j->threads[j->n_threads], NULL, work, j))
    j->n_threads++;
  if (j->n_threads == 0) work(j);
  *out = j;
  return KILN_OK;
}

static bool wait_job(job *j, int i, int ms) {
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += ms / 1000;
  end.tv_nsec += ms % 1000 * 1000000L;
  if (end.tv_nsec >= 1000000000L) {
    end.tv_sec++;
    end.tv_nsec -= 1000000000L;
  }
  pthread_mutex_lock(&j->lock);
  int late = 0;
  while (!j->is_done[i] && !late) late = pthread_cond_timedwait(&j->changed, &j->lock, &end);
  const bool done = j->is_done[i];
  pthread_mutex_unlock(&j->lock);
  return done;
}

static bool take_job(job *j, int i, kiln_object *out, const char **out_log) {
  *out = j->out[i];
  j->out[i] = (kiln_object){0};
  *out_log = j->logs[i] ? j->logs[i] : "no memory";
  return j->is_made[i];
}

// The first source that failed decides, whatever thread had it.
static kiln_status take_all(kiln_ctx *cx, job *j, kiln_object *out) {
  kiln_status st = KILN_OK;
  for (int i = 0; i < j->n; i++) {
    const char *log;
    while (!wait_job(j, i, 1000)) continue;
    if (!take_job(j, i, &out[i], &log) && st == KILN_OK)
      st = KILN_FAIL(cx->diag, KILN_INTERNAL, j->names[i], "NVRTC must take it for %s, got: %s",
                     j->arch, log);
  }
  for (int i = 0; i < j->n && st != KILN_OK; i++) {
    free(out[i].data);
    out[i] = (kiln_object){0};
  }
  return st;
}

static kiln_status compile(kiln_ctx *cx, const kiln_machine *m, int n, const char *const *sources,
                           const char *const *names, int n_threads, kiln_object *out) {
  job *j = NULL;
  for (int i = 0; i < n; i++) out[i] = (kiln_object){0};
  KILN_TRY(start_job(cx, m, n, sources, names, n_threads, &j));
  const kiln_status st = take_all(cx, j, out);
  end_job(j);
  return st;
}

static kiln_status version(kiln_ctx *cx, int *out) {
  nvrtc v;
  int major = 0, minor = 0;
  *out = 0;
  KILN_TRY(open_nvrtc(cx, &v));
  if (v.version(&major, &minor))
    return KILN_FAIL(cx->diag, KILN_DEVICE_ERROR, "cuda", "NVRTC must say its version");
  *out = major * 1000 + minor * 10;
  return KILN_OK;
}

// --- for people ---

static size_t line_bytes(const char *text) {
  const size_t n = strcspn(text, "\n");
  return n + (text[n] == '\n');
}

// The source line of "\t.loc\t1 45 3", or the line of the call in "..., inlined_at 1 90 7"; other
// lines: -1.
static int source_line(const char *at, size_t n) {
  static const char loc[] = "\t.loc\t", inlined[] = "inlined_at ";
  const char *from = strncmp(at, loc, sizeof loc - 1) ? NULL : at + sizeof loc - 1;
  char *end = NULL;
  if (!from) return -1;
  for (size_t i = 0; i + sizeof inlined < n; i++)
    if (strncmp(at + i, inlined, sizeof inlined - 1) == 0) from = at + i + sizeof inlined - 1;
  (void)strtol(from, &end, 10);
  return (int)strtol(end, NULL, 10);
}

static bool is_shown(const char *at) {
  static const char *const hidden[] = {"\t.loc", "\t.file", "$L__tmp", "$L__func", "\n", "//"};
  for (size_t i = 0; i < KILN_LEN(hidden); i++)
    if (strncmp(at, hidden[i], strlen(hidden[i])) == 0) return false;
  return true;
}

static void read_ptx(kiln_ctx *cx, const char *at, const kiln_lined *source, kiln_lined *out) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  int line = 0;
  for (size_t n; (n = line_bytes(at)) > 0 && strncmp(at, "\t.section", 9) != 0; at += n) {
    const int said = source_line(at, n);
    if (said > 0) line = said <= source->lines.n ? source->lines.data[said - 1] : 0;
    if (is_shown(at))
      kiln_lined_add(out, kiln_arena_printf(&cx->scratch, "%.*s", (int)n, at), line);
    kiln_arena_rewind(&cx->scratch, mark);
  }
}

static kiln_status show_ptx(kiln_ctx *cx, const nvrtc *v, program p, const kiln_lined *source,
                            kiln_lined *out) {
  size_t n = 0;
  if (v->ptx_size(p, &n) || n == 0)
    return KILN_FAIL(cx->diag, KILN_INTERNAL, "cuda", "NVRTC must give PTX");
  char *text = kiln_arena_zalloc(&cx->perm, n + 1);
  if (v->ptx(p, text)) return KILN_FAIL(cx->diag, KILN_INTERNAL, "cuda", "NVRTC must give PTX");
  read_ptx(cx, text, source, out);
  return KILN_OK;
}

// PTX is of a virtual architecture: "sm_90a" is made of "compute_90a".
static kiln_status show(kiln_ctx *cx, const kiln_machine *m, const kiln_lined *source,
                        const char *name, kiln_lined *out) {
  nvrtc v;
  program p = NULL;
  KILN_TRY(open_nvrtc(cx, &v));
  const char *number = strchr(m->gpu.arch, '_');
  const char *const options[] = {
      kiln_arena_printf(&cx->perm, "--gpu-architecture=compute%s", number ? number : ""),
      "--std=c++17", "--fmad=false", "-lineinfo"};
  if (v.create(&p, source->text.data, name, 0, NULL, NULL))
    return KILN_FAIL(cx->diag, KILN_INTERNAL, name, "NVRTC must take it");
  const kiln_status st = v.compile(p, (int)KILN_LEN(options), options)
                             ? KILN_FAIL(cx->diag, KILN_INTERNAL, name, "NVRTC must take it")
                             : show_ptx(cx, &v, p, source, out);
  v.destroy(&p);
  return st;
}

const kiln_gpu_compiler kiln_nvrtc = {.name = "nvrtc",
                                      .version = version,
                                      .compile = compile,
                                      .show = show,
                                      .start = start_job,
                                      .wait = wait_job,
                                      .take = take_job,
                                      .end = end_job};

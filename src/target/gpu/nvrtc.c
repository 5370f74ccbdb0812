// CUDA C to cubins by NVRTC, opened when it is first needed. It needs no GPU, and several threads may compile at
// once.
#include "target/gpu/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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
  const char *const options[] = {option, "--std=c++17"};
  program p = NULL;
  *out_log = NULL;
  if (v->create(&p, source, name, 0, NULL, NULL)) return false;
  const bool is_made = !v->compile(p, 2, options) && take_cubin(v, p, out);
  if (!is_made) *out_log = log_of(v, p);
  v->destroy(&p);
  return is_made;
}

// --- all of them ---

typedef struct job {
  const nvrtc *v;
  const char *arch;
  int n;
  const char *const *sources, *const *names;
  kiln_object *out;
  char **logs;
  bool *is_made;
  atomic_int next;
} job;

static void *work(void *argument) {
  job *j = argument;
  for (int i; (i = atomic_fetch_add(&j->next, 1)) < j->n;)
    j->is_made[i] = compile_one(j->v, j->arch, j->sources[i], j->names[i], &j->out[i], &j->logs[i]);
  return NULL;
}

static void run_all(job *j, int n_threads) {
  enum { MOST = 64 };
  pthread_t threads[MOST];
  int n = 0;
  while (n < MOST && n + 1 < n_threads && n + 1 < j->n &&
         pthread_create(&threads[n], NULL, work, j) == 0)
    n++;
  work(j);
  for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

// The first source that failed decides, whatever thread had it.
static kiln_status check(kiln_ctx *cx, job *j) {
  int failed = -1;
  for (int i = 0; i < j->n && failed < 0; i++)
    if (!j->is_made[i]) failed = i;
  kiln_status s = KILN_OK;
  if (failed >= 0)
    s = KILN_FAIL(cx->diag, KILN_INTERNAL, j->names[failed], "NVRTC must take it for %s, got: %s",
                  j->arch, j->logs[failed] ? j->logs[failed] : "no memory");
  for (int i = 0; i < j->n; i++) {
    free(j->logs[i]);
    if (failed < 0) continue;
    free(j->out[i].data);
    j->out[i] = (kiln_object){0};
  }
  return s;
}

kiln_status kiln_cuda_compile(kiln_ctx *cx, const kiln_machine *m, int n,
                              const char *const *sources, const char *const *names, int n_threads,
                              kiln_object *out) {
  nvrtc v;
  for (int i = 0; i < n; i++) out[i] = (kiln_object){0};
  KILN_TRY(open_nvrtc(cx, &v));
  job j = {.v = &v,
           .arch = m->gpu.arch,
           .n = n,
           .sources = sources,
           .names = names,
           .out = out,
           .logs = KILN_NEW_ARRAY(&cx->perm, char *, n),
           .is_made = KILN_NEW_ARRAY(&cx->perm, bool, n)};
  atomic_init(&j.next, 0);
  run_all(&j, n_threads);
  return check(cx, &j); // the library stays: it is not made to be closed
}

kiln_status kiln_cuda_version(kiln_ctx *cx, int *out) {
  nvrtc v;
  int major = 0, minor = 0;
  *out = 0;
  KILN_TRY(open_nvrtc(cx, &v));
  if (v.version(&major, &minor))
    return KILN_FAIL(cx->diag, KILN_DEVICE_ERROR, "cuda", "NVRTC must say its version");
  *out = major * 1000 + minor * 10;
  return KILN_OK;
}

// OpenCL as it is installed, but for what $KILN_TEST_SHAKY asks for: words separated by ',', each
// WHAT:N, about the N-th program that is built, counted in the file $KILN_TEST_SHAKY_COUNT over all
// processes:
//   crash:N   its launches end the process by a signal
//   wrong:N   its launches do nothing
// or crash alone, about all programs, or driver=TEXT: the version that the device says. Every
// function is forwarded; their arguments are all integers and pointers. For a test in the same
// process it counts what was created and is not released, and fails the N-th creation.
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_OF_RESOURCES = -5, DRIVER_VERSION = 0x102D };

static void *find(const char *name) {
  static void *library;
  static const char *const places[] = {"/usr/lib/x86_64-linux-gnu/libOpenCL.so.1",
                                       "/usr/lib/aarch64-linux-gnu/libOpenCL.so.1",
                                       "/usr/lib64/libOpenCL.so.1", "/usr/lib/libOpenCL.so.1"};
  for (size_t i = 0; !library && i < sizeof places / sizeof *places; i++)
    library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
  return library ? dlsym(library, name) : NULL;
}

#define FORWARD(name)                                                                              \
  intptr_t name(intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e, intptr_t f,            \
                intptr_t g, intptr_t h, intptr_t i);                                               \
  intptr_t name(intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e, intptr_t f,            \
                intptr_t g, intptr_t h, intptr_t i) {                                              \
    intptr_t (*real)(intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t,         \
                     intptr_t, intptr_t);                                                          \
    void *symbol = find(#name);                                                                    \
    memcpy(&real, &symbol, sizeof real);                                                           \
    return before_##name(a, b, c, d) ? real(a, b, c, d, e, f, g, h, i) : 0;                        \
  }
#define PLAIN(name)                                                                                \
  static int before_##name(intptr_t a, intptr_t b, intptr_t c, intptr_t d) {                       \
    return (void)a, (void)b, (void)c, (void)d, 1;                                                  \
  }                                                                                                \
  FORWARD(name)

// --- what goes wrong ---

typedef enum fault { NONE, CRASH, WRONG } fault;
static fault of_program; // the last one that was built: a worker has one at a time

// One more program, of all that processes with this file have built.
static int count_program(void) {
  const char *path = getenv("KILN_TEST_SHAKY_COUNT");
  int n = 0;
  FILE *f = path ? fopen(path, "r") : NULL;
  if (f && fscanf(f, "%d", &n) != 1) n = 0;
  if (f) fclose(f);
  f = path ? fopen(path, "w") : NULL;
  if (f) {
    fprintf(f, "%d", n + 1);
    fclose(f);
  }
  return n + 1;
}

static fault find_fault(int program) {
  char word[32];
  const char *asked = getenv("KILN_TEST_SHAKY");
  if (asked && strcmp(asked, "crash") == 0) return CRASH;
  for (const char *at = asked; at && *at; at += strcspn(at, ","), at += *at == ',') {
    const int n = (int)strcspn(at, ",");
    snprintf(word, sizeof word, "crash:%d", program);
    if ((int)strlen(word) == n && !strncmp(at, word, (size_t)n)) return CRASH;
    snprintf(word, sizeof word, "wrong:%d", program);
    if ((int)strlen(word) == n && !strncmp(at, word, (size_t)n)) return WRONG;
  }
  return NONE;
}

static int before_clBuildProgram(intptr_t a, intptr_t b, intptr_t c, intptr_t d) {
  if (!strstr((const char *)d, "-cl-std=CL1.2")) abort(); // a driver of OpenCL 3.0 may know no 2.0
  if (!strstr((const char *)d, "-cl-fp32-correctly-rounded-divide-sqrt")) abort(); // PoCL can
  of_program = find_fault(count_program());
  return (void)a, (void)b, (void)c, 1;
}

static int before_clEnqueueNDRangeKernel(intptr_t a, intptr_t b, intptr_t c, intptr_t d) {
  if (of_program == CRASH) {
    signal(SIGSEGV, SIG_DFL); // PoCL's handler may return, as if nothing had been
    raise(SIGSEGV);
  }
  return (void)a, (void)b, (void)c, (void)d, of_program != WRONG;
}

static int before_clGetDeviceInfo(intptr_t device, intptr_t what, intptr_t bytes, intptr_t out) {
  const char *asked = getenv("KILN_TEST_SHAKY"), *version = asked ? strstr(asked, "driver=") : NULL;
  if ((uint32_t)what != DRIVER_VERSION || !version) return (void)device, 1;
  snprintf((char *)out, (size_t)bytes, "%s", version + strlen("driver="));
  return 0;
}

// --- what is created and released ---

static _Atomic int n_live; // contexts, queues, programs, kernels, memory and events
static int n_to_fail;      // creations up to the one that fails; 0: none does

int shaky_opencl_live(void);
int shaky_opencl_live(void) { return n_live; }
void shaky_opencl_fail(int n);
void shaky_opencl_fail(int n) { n_to_fail = n; }

static int is_failing(void) { return n_to_fail > 0 && --n_to_fail == 0; }

// |error|: the argument that points to the result, 0 where there is none
#define CREATE(name, error)                                                                        \
  intptr_t name(intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e, intptr_t f);           \
  intptr_t name(intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e, intptr_t f) {          \
    intptr_t (*real)(intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t);                  \
    void *symbol = find(#name);                                                                    \
    memcpy(&real, &symbol, sizeof real);                                                           \
    const int fails = is_failing();                                                                \
    if (fails && (error)) *(int32_t *)(error) = OUT_OF_RESOURCES;                                  \
    const intptr_t made = fails ? 0 : real(a, b, c, d, e, f);                                      \
    n_live += made != 0;                                                                           \
    return made;                                                                                   \
  }
#define RELEASE(name, object)                                                                      \
  static int before_##name(intptr_t a, intptr_t b, intptr_t c, intptr_t d) {                       \
    n_live -= (object) != 0;                                                                       \
    return (void)a, (void)b, (void)c, (void)d, 1;                                                  \
  }                                                                                                \
  FORWARD(name)

intptr_t clEnqueueMarkerWithWaitList(intptr_t queue, intptr_t n, intptr_t events, intptr_t out);
intptr_t clEnqueueMarkerWithWaitList(intptr_t queue, intptr_t n, intptr_t events, intptr_t out) {
  intptr_t (*real)(intptr_t, intptr_t, intptr_t, intptr_t);
  void *symbol = find("clEnqueueMarkerWithWaitList");
  memcpy(&real, &symbol, sizeof real);
  if (is_failing()) return OUT_OF_RESOURCES;
  const intptr_t result = real(queue, n, events, out);
  n_live += (int32_t)result == 0;
  return result;
}

CREATE(clCreateContext, f)
CREATE(clCreateCommandQueueWithProperties, d)
CREATE(clCreateProgramWithSource, e)
CREATE(clCreateKernel, c)
CREATE(clSVMAlloc, 0)
RELEASE(clReleaseContext, a)
RELEASE(clReleaseCommandQueue, a)
RELEASE(clReleaseProgram, a)
RELEASE(clReleaseKernel, a)
RELEASE(clSVMFree, b)
RELEASE(clReleaseEvent, a)

FORWARD(clBuildProgram)
FORWARD(clEnqueueNDRangeKernel)
FORWARD(clGetDeviceInfo)
PLAIN(clGetPlatformIDs)
PLAIN(clGetDeviceIDs)
PLAIN(clFinish)
PLAIN(clEnqueueSVMMemcpy)
PLAIN(clEnqueueSVMMap)
PLAIN(clEnqueueSVMUnmap)
PLAIN(clGetProgramBuildInfo)
PLAIN(clSetKernelArg)
PLAIN(clSetKernelArgSVMPointer)
PLAIN(clGetEventProfilingInfo)

// OpenCL as it is installed, but for what $KILN_TEST_SHAKY asks for: words separated by ',', each WHAT:N, about
// the N-th program that is built, counted in the file $KILN_TEST_SHAKY_COUNT over all processes:
//   crash:N   its launches end the process by a signal
//   wrong:N   its launches do nothing
// or crash alone, about all programs, or driver=TEXT: the version that the device says. Every function is forwarded; their arguments are all
// integers and pointers.
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRIVER_VERSION = 0x102D, MAX_FAULTS = 16 };

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

FORWARD(clBuildProgram)
FORWARD(clEnqueueNDRangeKernel)
FORWARD(clGetDeviceInfo)
PLAIN(clGetPlatformIDs)
PLAIN(clGetDeviceIDs)
PLAIN(clCreateContext)
PLAIN(clReleaseContext)
PLAIN(clCreateCommandQueueWithProperties)
PLAIN(clReleaseCommandQueue)
PLAIN(clFinish)
PLAIN(clSVMAlloc)
PLAIN(clSVMFree)
PLAIN(clEnqueueSVMMemcpy)
PLAIN(clEnqueueSVMMap)
PLAIN(clEnqueueSVMUnmap)
PLAIN(clCreateProgramWithSource)
PLAIN(clGetProgramBuildInfo)
PLAIN(clReleaseProgram)
PLAIN(clCreateKernel)
PLAIN(clReleaseKernel)
PLAIN(clSetKernelArg)
PLAIN(clSetKernelArgSVMPointer)
PLAIN(clEnqueueMarkerWithWaitList)
PLAIN(clGetEventProfilingInfo)
PLAIN(clReleaseEvent)

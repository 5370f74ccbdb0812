// Test support: emitted OpenCL C run on an OpenCL device of this machine (PoCL in CI), and emitted
// CUDA C compiled by NVRTC where there is one. Include before cmocka.h.
#ifndef KILN_TEST_UNIT_GPU_DEVICE_H
#define KILN_TEST_UNIT_GPU_DEVICE_H

#include "analysis/interpret.h"
#include "target/gpu/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The part of OpenCL 1.2 that is used here, as the standard declares it.
typedef struct cl_object *cl_object;
typedef struct opencl {
  void *library;
  cl_object device, context, queue;
  int32_t (*platforms)(uint32_t, cl_object *, uint32_t *);
  int32_t (*devices)(cl_object, uint64_t, uint32_t, cl_object *, uint32_t *);
  cl_object (*context_of)(const intptr_t *, uint32_t, const cl_object *, void *, void *, int32_t *);
  cl_object (*queue_of)(cl_object, cl_object, uint64_t, int32_t *);
  cl_object (*program_of)(cl_object, uint32_t, const char **, const size_t *, int32_t *);
  int32_t (*build)(cl_object, uint32_t, const cl_object *, const char *, void *, void *);
  int32_t (*build_info)(cl_object, cl_object, uint32_t, size_t, void *, size_t *);
  cl_object (*kernel_of)(cl_object, const char *, int32_t *);
  int32_t (*argument)(cl_object, uint32_t, size_t, const void *);
  cl_object (*buffer_of)(cl_object, uint64_t, size_t, void *, int32_t *);
  int32_t (*run)(cl_object, cl_object, uint32_t, const size_t *, const size_t *, const size_t *,
                 uint32_t, const void *, void *);
  int32_t (*read)(cl_object, cl_object, uint32_t, size_t, size_t, void *, uint32_t, const void *,
                  void *);
  int32_t (*finish)(cl_object);
  int32_t (*release_buffer)(cl_object), (*release_kernel)(cl_object), (*release_program)(cl_object),
      (*release_queue)(cl_object), (*release_context)(cl_object);
} opencl;

enum { CL_READ_WRITE = 1, CL_COPY_HOST = 1 << 5, CL_BUILD_LOG = 0x1183 };

static inline bool opencl_find(opencl *o, const char *name, void *out) {
  void *p = dlsym(o->library, name);
  memcpy(out, &p, sizeof p);
  return p != NULL;
}

// False when this machine has no OpenCL device.
static inline bool opencl_open(opencl *o) {
  static const uint64_t all = UINT64_C(0xffffffff);
  cl_object platform = NULL;
  uint32_t n = 0;
  int32_t error = 0;
  memset(o, 0, sizeof *o);
  o->library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!o->library) return false;
  const struct {
    const char *name;
    void *field;
  } names[] = {{"clGetPlatformIDs", &o->platforms},
               {"clGetDeviceIDs", &o->devices},
               {"clCreateContext", &o->context_of},
               {"clCreateCommandQueue", &o->queue_of},
               {"clCreateProgramWithSource", &o->program_of},
               {"clBuildProgram", &o->build},
               {"clGetProgramBuildInfo", &o->build_info},
               {"clCreateKernel", &o->kernel_of},
               {"clSetKernelArg", &o->argument},
               {"clCreateBuffer", &o->buffer_of},
               {"clEnqueueNDRangeKernel", &o->run},
               {"clEnqueueReadBuffer", &o->read},
               {"clFinish", &o->finish},
               {"clReleaseMemObject", &o->release_buffer},
               {"clReleaseKernel", &o->release_kernel},
               {"clReleaseProgram", &o->release_program},
               {"clReleaseCommandQueue", &o->release_queue},
               {"clReleaseContext", &o->release_context}};
  for (size_t i = 0; i < KILN_LEN(names); i++)
    assert_true(opencl_find(o, names[i].name, names[i].field));
  if (o->platforms(1, &platform, &n) || n == 0) return false;
  if (o->devices(platform, all, 1, &o->device, &n) || n == 0) return false;
  o->context = o->context_of(NULL, 1, &o->device, NULL, NULL, &error);
  assert_int_equal(error, 0);
  o->queue = o->queue_of(o->context, o->device, 0, &error);
  assert_int_equal(error, 0);
  return true;
}

static inline void opencl_close(opencl *o) {
  if (o->queue) o->release_queue(o->queue);
  if (o->context) o->release_context(o->context);
}

static inline cl_object opencl_compile(opencl *o, const char *source) {
  int32_t error = 0;
  cl_object p = o->program_of(o->context, 1, &source, NULL, &error);
  assert_int_equal(error, 0);
  if (o->build(p, 1, &o->device, "-cl-std=CL1.2", NULL, NULL)) {
    static char log[20000];
    o->build_info(p, o->device, CL_BUILD_LOG, sizeof log, log, NULL);
    fprintf(stderr, "%s\n%s\n", source, log);
    fail_msg("must compile");
  }
  return p;
}

// Runs the nests of one kernel on copies of |args| of |bytes| each, and brings these back.
static inline void opencl_run(opencl *o, const char *source, const char *symbol, int n_launches,
                              const kiln_gpu_launch *launches, int n_args, void *const *args,
                              const size_t *bytes) {
  enum { MOST = 96 };
  cl_object buffers[MOST], program = opencl_compile(o, source);
  int32_t error = 0;
  assert_true(n_args <= MOST);
  for (int i = 0; i < n_args; i++) {
    buffers[i] = o->buffer_of(o->context, CL_READ_WRITE | CL_COPY_HOST, bytes[i], args[i], &error);
    assert_int_equal(error, 0);
  }
  for (int k = 0; k < n_launches; k++) {
    const kiln_gpu_launch *l = &launches[k];
    char name[64];
    size_t global[3], local[3];
    snprintf(name, sizeof name, "%s_%d", symbol, k);
    cl_object kernel = o->kernel_of(program, name, &error);
    assert_int_equal(error, 0);
    for (int i = 0; i < l->n_args; i++)
      assert_int_equal(o->argument(kernel, (uint32_t)i, sizeof(cl_object), &buffers[l->args[i]]),
                       0);
    for (int d = 0; d < 3; d++) {
      local[d] = (size_t)l->block[d];
      global[d] = (size_t)(l->grid[d] * l->block[d]);
    }
    assert_int_equal(o->run(o->queue, kernel, 3, NULL, global, local, 0, NULL, NULL), 0);
    assert_int_equal(o->finish(o->queue), 0);
    o->release_kernel(kernel);
  }
  for (int i = 0; i < n_args; i++) {
    assert_int_equal(o->read(o->queue, buffers[i], 1, 0, bytes[i], args[i], 0, NULL, NULL), 0);
    o->release_buffer(buffers[i]);
  }
  o->release_program(program);
}

#endif

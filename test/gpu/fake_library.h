// What the stand-ins for NVIDIA's libraries do and count; each has these of its own
// (fake_library.c).
//
// Another process is told by FAKE_LIBRARY_FAILS which function fails, and by FAKE_LIBRARY_LOADS how
// many milliseconds its first kernel takes besides.
#ifndef KILN_TEST_GPU_FAKE_LIBRARY_H
#define KILN_TEST_GPU_FAKE_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

typedef struct fake_library {
  size_t version;
  const char *fails; // the function that does; NULL: none
  int has_no_kernel; // for anything
  int live;          // handles, descriptors
  int runs;          // of kernels
  int kernels;       // that were asked for
  int rounded;       // runs that round f32 to TF32, where the library says so of a kernel
} fake_library;

fake_library *fake_library_state(void);

// For the stand-ins themselves.

int fake_library_fails(const char *function);
int fake_library_has_context(void);
// Puts run(data) into a stream, as fake_cuda_put.
int fake_library_put(void *stream, void (*run)(void *data), void *data);
// Elements of f32 (0), f16 (2) or bf16 (any other number), as both libraries number the first two.
double fake_library_get(int type, const char *base, int64_t i);
void fake_library_set(int type, char *base, int64_t i, double x); // to the nearest

#endif

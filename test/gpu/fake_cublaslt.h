// What the stand-in for cuBLASLt does, and counts.
#ifndef KILN_TEST_GPU_FAKE_CUBLASLT_H
#define KILN_TEST_GPU_FAKE_CUBLASLT_H

#include <stddef.h>

typedef struct fake_cublaslt {
  size_t version;    // 130100
  const char *fails; // the function that does, with CUBLAS_STATUS_EXECUTION_FAILED; NULL: none
  int has_no_kernel; // for anything
  int live;          // handles, descriptions, layouts, preferences
  int products;      // calls of cublasLtMatmul
  int kernels;       // algorithms that were asked for
} fake_cublaslt;

fake_cublaslt *fake_cublaslt_state(void);

#endif

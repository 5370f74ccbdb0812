// NVRTC, the compiler of CUDA C.
#ifndef KILN_TARGET_GPU_CUDA_NVRTC_H
#define KILN_TARGET_GPU_CUDA_NVRTC_H

#include "target/gpu/gpu.h"

extern const kiln_gpu_compiler kiln_nvrtc;

#endif

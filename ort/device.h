// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime's objects for a GPU's memory: allocators, transfers, streams, and the kernels of the
// nodes that it puts between a provider's nodes and others.
#ifndef KILN_ORT_DEVICE_H
#define KILN_ORT_DEVICE_H

#include "gpu.h"

// The GPU, of |n|, that |device| is memory of; NULL: of none.
ep_gpu *ep_gpu_of(ep_gpu *gpus, int n, const ort_memory_device *device);
ort_status *ep_allocator_create(ep_gpu *gpu, ep_memory_kind kind, ort_allocator **out);
void ep_allocator_destroy(ort_allocator *allocator); // NULL is allowed
// |gpus| outlive it.
ort_status *ep_transfer_create(const ep_host *host, ep_gpu *gpus, int n, ort_transfer **out);
ort_status *ep_sync_stream_create(ep_gpu *gpu, ort_stream **out);
// Kernels of MemcpyFromHost and MemcpyToHost for the provider |name|.
//
// needs: ep_host.has_kernels
ort_status *ep_copy_kernels_create(ep_gpu *gpu, const char *name, ort_registry **out);

#endif

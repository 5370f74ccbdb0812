// SPDX-License-Identifier: Apache-2.0
// A GPU as ONNX Runtime sees it: memory, which is kept for later allocations, and streams.
//
// The driver is opened when memory or a stream is first wanted. Work in a stream is over when the
// stream has been waited for (ep_stream_finish), which ONNX Runtime asks for at the end of a run.
// Until then, memory that is freed goes only to later work of the same stream, which runs behind.
//
// threads: any; a stream is used by one run at a time
#ifndef KILN_ORT_GPU_H
#define KILN_ORT_GPU_H

#include "host.h"
#include "kiln/gpu.h"

#include <pthread.h>

enum { EP_NVIDIA = 0x10de, EP_MAX_GPUS = 8, EP_MAX_STREAMS = 64 };

// Device memory, and page-locked memory of the host.
typedef enum ep_memory_kind { EP_ON_DEVICE, EP_ON_HOST, EP_N_MEMORIES } ep_memory_kind;

// A session whose runs in a stream have not been waited for.
typedef struct ep_pending ep_pending;
struct ep_pending {
  ep_pending *next;
  const void *owner;
  ort_status *(*finish)(ep_pending *); // waits, and gives the session back
};

typedef struct ep_stream ep_stream;
typedef struct ep_piece ep_piece; // of memory
typedef struct ep_pool {
  ep_piece *pieces; // malloc'ed
  int n, cap;
} ep_pool;

typedef struct ep_gpu {
  const ep_host *host;
  int index;
  ort_memory_info *memory[EP_N_MEMORIES];
  pthread_mutex_t lock;    // of the fields below
  kiln_gpu_handle *device; // NULL: not opened yet
  void *copies;            // the stream of copies outside of runs
  ep_pool pools[EP_N_MEMORIES];
  ep_stream *streams;
} ep_gpu;

// needs: |gpu| zeroed; ep_gpu_deinit also after a failure
ort_status *ep_gpu_init(ep_gpu *gpu, const ep_host *host, int index);
void ep_gpu_deinit(ep_gpu *gpu);

// NULL, and a warning in the log, if memory ran out. |stream|: whose work uses it; NULL: unknown.
void *ep_gpu_allocate(ep_gpu *gpu, ep_memory_kind kind, size_t bytes, const ep_stream *stream);
void ep_gpu_free(ep_gpu *gpu, ep_memory_kind kind, void *memory);
// Copies to or from memory of the GPU; without a |stream|, waits for it.
ort_status *ep_gpu_copy(ep_gpu *gpu, ep_stream *stream, void *to, const void *from, size_t bytes);

// Whether the value is in its memory, which the host cannot read.
bool ep_gpu_has(const ep_gpu *gpu, const ort_value *value);

ort_status *ep_stream_create(ep_gpu *gpu, const void *object, ep_stream **out);
void ep_stream_destroy(ep_stream *s); // waits
void *ep_stream_handle(const ep_stream *s);
ep_gpu *ep_stream_gpu(const ep_stream *s);
ep_stream *ep_stream_find(ep_gpu *gpu, const void *handle); // NULL: not one of ours
// The stream that was created for |object|, which may be any pointer.
ep_stream *ep_stream_of(ep_gpu *gpu, const void *object);
// Waits for its work, and finishes its sessions.
//
// gives: the first error of these
ort_status *ep_stream_finish(ep_stream *s);
// The session's runs are over when the stream has been waited for.
void ep_stream_keep(ep_stream *s, ep_pending *session);
// A session that |owner| has in the stream, taken from it: its next run comes behind. NULL: none.
ep_pending *ep_stream_take(ep_stream *s, const void *owner);
// Finishes what |owner| has in any stream.
void ep_gpu_finish(ep_gpu *gpu, const void *owner);

#endif

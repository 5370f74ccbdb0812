// What the stand-in for CUDA's driver does, and counts.
#ifndef KILN_TEST_GPU_FAKE_CUDA_H
#define KILN_TEST_GPU_FAKE_CUDA_H

#include <stddef.h>

// test/ort/memory.py has the same fields.
typedef struct fake_cuda {
  int n_devices, major, minor; // what there is: 1, 9, 0
  size_t memory_bytes;         // of the device: 1 MiB
  int fail_launch;             // the launches after so many fail; -1: none does
  int launches, captures, replays, waits, maps, window_maps; // calls; tensor maps that were made
  int threads;                                               // of the launches
  int early;            // launches that may begin before the one in front of them is over
  int version;          // of the driver: 13000
  int live;             // allocations, streams, events, modules, graphs, contexts
  unsigned most_shared; // that a function was allowed
  // Copies that are not of a captured graph: all, and those with memory of the host on a side.
  int copies, host_copies;
  int fail_call; // the call of this number from now on fails, of those that may; 0: none does
} fake_cuda;

fake_cuda *fake_cuda_state(void);
// For stand-ins of libraries: whether this thread has a context.
int fake_cuda_is_entered(void);
// Puts run(data) into a stream, which owns the malloc'ed |data|; not 0: there is no context.
int fake_cuda_put(void *stream, void (*run)(void *data), void *data);
// So much time passes, for events.
void fake_cuda_pass(int ms);

#endif

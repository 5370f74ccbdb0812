// Measures the GPU of this computer: rates of instructions, latencies, bandwidths, and what
// launches cost (tune/gpu_probe.h). Takes some seconds, most of them to compile, and 1 GiB of its
// memory.
#ifndef KILN_TUNE_MEASURE_GPU_H
#define KILN_TUNE_MEASURE_GPU_H

#include "tune/measure.h"

// needs:  |m|, a CUDA GPU, to be the one that is there
// gives:  *out in cx->perm, is_measured: the levels are |m|'s
// errors: KILN_UNSUPPORTED: no CUDA GPU; KILN_DEVICE_ERROR, KILN_NO_MEMORY, KILN_INTERNAL: the
//         probes do not compile
KILN_MUST_USE kiln_status kiln_gpu_measure(kiln_ctx *cx, const kiln_machine *m,
                                           const kiln_measure_options *options,
                                           const kiln_device **out);

#endif

// Makes device loops of a nest (device.h).
#ifndef KILN_TARGET_GPU_DEVICE_LOWER_H
#define KILN_TARGET_GPU_DEVICE_LOWER_H

#include "target/gpu/device/device.h"
#include "target/gpu/nest.h"

// Puts the statements into the nest's program that its analyses found to be needed.
//
// needs: barriers and asynchronous parts (kiln_gpu_nest_sync, kiln_gpu_nest_pipeline)
void kiln_device_lower(kiln_gpu_nest *n);

#endif

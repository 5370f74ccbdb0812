// How the instructions of kiln_gpu_instrs are written: a device function each.
#ifndef KILN_TARGET_GPU_INSTR_H
#define KILN_TARGET_GPU_INSTR_H

#include "target/gpu/gpu.h"

const char *kiln_gpu_instr_function(const kiln_instr *instr); // its name
// Its definition in CUDA C. The arguments are the addresses of the calling lane's part of each fragment; of an operand
// that is none, the address of its first element and the distance of its rows.
const char *kiln_gpu_instr_text(const kiln_instr *instr);

#endif

// How the instructions of kiln_gpu_instrs are written: a device function each.
#ifndef KILN_TARGET_GPU_INSTR_H
#define KILN_TARGET_GPU_INSTR_H

#include "target/gpu/gpu.h"

const char *kiln_gpu_instr_function(kiln_ctx *cx, const kiln_instr *instr); // its name
// Its definition in CUDA C. The arguments are the addresses of the calling lane's part of each
// fragment; of an operand that is none, the address of its first element and the distance of its
// rows.
const char *kiln_gpu_instr_text(kiln_ctx *cx, const kiln_instr *instr);
// Whether a warp group (four warps, 128 threads along x) carries it out asynchronously (wgmma.c);
// else a warp does.
bool kiln_gpu_instr_is_group(const kiln_instr *instr);

// reduce.c
int kiln_lanes_instrs(kiln_instr *out); // of all machines, as kiln_wgmma_instrs
bool kiln_gpu_instr_is_lanes(const kiln_instr *instr);
const char *kiln_lanes_function(const kiln_instr *instr);
const char *kiln_lanes_text(const kiln_instr *instr);

// lanes.c
// The same loops with the instructions of reduce.c as loops over shared memory; |l| itself where
// there is none.
kiln_loops *kiln_gpu_spell_lanes(kiln_ctx *cx, kiln_loops *l);

// tma.c
int kiln_tma_instrs(const kiln_machine *m, kiln_instr *out); // as kiln_wgmma_instrs
const char *kiln_tma_text(void);                             // copies and waits on mbarriers
const char *kiln_cluster_text(void);                         // multicast
const char *kiln_specialized_text(void); // named barriers of warp specialization

// wgmma.c
// Writes the instructions of warp groups to |out| and gives their number; |out| NULL: the number
// alone.
int kiln_wgmma_instrs(const kiln_machine *m, kiln_instr *out);
const char *kiln_wgmma_function(kiln_ctx *cx, const kiln_instr *instr);
const char *kiln_wgmma_helpers(void); // called by all of them
const char *kiln_wgmma_text(kiln_ctx *cx, const kiln_instr *instr);

#endif

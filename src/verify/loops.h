// Runs a kernel's loops in the simulator, as its target would run them.
#ifndef KILN_VERIFY_LOOPS_H
#define KILN_VERIFY_LOOPS_H

#include "target/sim/sim.h"

// Runs |l| on |args|, the base addresses of its PARAM and WORKSPACE buffers in id order: on GPUs
// the device loops of each nest, with the barriers, waits and asynchronous copies of compiled code;
// elsewhere the loops themselves.
//
// needs:  |l| with the meanings of its instructions
// gives:  *out_traffic, in |cx|, by buffer and scope, and by |levels| where there are no device
//         loops; NULL: nothing is counted
// errors: KILN_INTERNAL: a breach that the simulators find (target/sim/sim.h, device.h);
//         KILN_BAD_INPUT: |m| cannot run them
kiln_status kiln_loops_simulate(kiln_ctx *cx, const kiln_machine *m, kiln_loops *l,
                                void *const *args, int n_levels, const kiln_sim_level *levels,
                                kiln_sim_traffic *out_traffic);

#endif

// Device loops of GPUs' kernels in the simulator, nest by nest.
#include "verify/loops.h"

#include "target/gpu/gpu.h"
#include "target/sim/device.h"

#include <string.h>

static kiln_status run_nest(kiln_ctx *cx, const kiln_machine *m, kiln_loops *l, int number,
                            void *const *args, kiln_sim_traffic *io_traffic) {
  kiln_gpu_device d;
  KILN_TRY(kiln_gpu_lower(cx, m, l, number, &d));
  kiln_sim_launch launch = {.cluster = d.cluster,
                            .warp = m->gpu.warp > 1 ? m->gpu.warp : 1,
                            .offsets = d.offsets,
                            .registers = m->gpu.registers,
                            .n_maps = d.n_maps,
                            .maps = d.maps};
  memcpy(launch.grid, d.grid, sizeof launch.grid);
  memcpy(launch.block, d.block, sizeof launch.block);
  return kiln_sim_run_device(cx, d.loops, &launch, args, io_traffic);
}

kiln_status kiln_loops_simulate(kiln_ctx *cx, const kiln_machine *m, kiln_loops *l,
                                void *const *args, int n_levels, const kiln_sim_level *levels,
                                kiln_sim_traffic *out_traffic) {
  if (!m->target->has_grids && out_traffic)
    return kiln_sim_measure(cx, l, args, n_levels, levels, out_traffic);
  if (!m->target->has_grids) return kiln_sim_run(cx, l, args);
  int number = 0;
  if (out_traffic) kiln_sim_traffic_init(cx, l, 0, out_traffic);
  for (const kiln_loop *nest = l->body; nest; nest = nest->next)
    KILN_TRY(run_nest(cx, m, l, number++, args, out_traffic));
  return KILN_OK;
}

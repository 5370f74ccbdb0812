// The statements of device loops, as rows.
#include "target/gpu/device/device.h"

#include <string.h>

// clang-format off
static const kiln_device_op ops[] = {
  // name             kind                        arguments
  {"barrier.block",   KILN_DEVICE_BARRIER_BLOCK,   "",    false},
  {"barrier.warp",    KILN_DEVICE_BARRIER_WARP,    "",    false},
  {"barrier.sync",    KILN_DEVICE_BARRIER_SYNC,    "ii",  false},
  {"barrier.arrive",  KILN_DEVICE_BARRIER_ARRIVE,  "ii",  false},
  {"cluster.sync",    KILN_DEVICE_CLUSTER_SYNC,    "",    false},
  {"fence.async",     KILN_DEVICE_FENCE_ASYNC,     "",    false},
  {"fence.cluster",   KILN_DEVICE_FENCE_CLUSTER,   "",    false},
  {"launch.wait",     KILN_DEVICE_LAUNCH_WAIT,     "",    false},
  {"copy.async",      KILN_DEVICE_COPY_ASYNC,      "sg",  false},
  {"copy.commit",     KILN_DEVICE_COPY_COMMIT,     "",    false},
  {"copy.wait",       KILN_DEVICE_COPY_WAIT,       "i",   false},
  {"mbarrier.init",   KILN_DEVICE_MBARRIER_INIT,   "mii", false},
  {"mbarrier.arrive", KILN_DEVICE_MBARRIER_ARRIVE, "m",   false},
  {"mbarrier.expect", KILN_DEVICE_MBARRIER_EXPECT, "mi",  false},
  {"mbarrier.wait",   KILN_DEVICE_MBARRIER_WAIT,   "mp",  false},
  {"mbarrier.await",  KILN_DEVICE_MBARRIER_AWAIT,  "mi",  false},
  {"wgmma.fence",     KILN_DEVICE_WGMMA_FENCE,     "",    false},
  {"wgmma.commit",    KILN_DEVICE_WGMMA_COMMIT,    "",    false},
  {"wgmma.wait",      KILN_DEVICE_WGMMA_WAIT,      "i",   false},
  {"registers.set",   KILN_DEVICE_REGISTERS_SET,   "i",   false},
  {"role.consumers",  KILN_DEVICE_ROLE_CONSUMERS,  "iii", true},
  {"role.producer",   KILN_DEVICE_ROLE_PRODUCER,   "i",   true},
  {"role.first",      KILN_DEVICE_ROLE_FIRST,      "",    true},
  {"role.leaders",    KILN_DEVICE_ROLE_LEADERS,    "",    true},
  {"role.warp",       KILN_DEVICE_ROLE_WARP,       "i",   true},
  {"maps.fetch",      KILN_DEVICE_MAPS_FETCH,      "",    false},
  {"mbarrier.phases", KILN_DEVICE_MBARRIER_PHASES, "pi",  false},
  {"mbarrier.flip",   KILN_DEVICE_MBARRIER_FLIP,   "pi",  false},
  {"mbarrier.init.cluster",   KILN_DEVICE_MBARRIER_INIT_CLUSTER,   "miii", false},
  {"mbarrier.arrive.cluster", KILN_DEVICE_MBARRIER_ARRIVE_CLUSTER, "mi",   false},
  {"wgmma.settle",    KILN_DEVICE_WGMMA_SETTLE,    "r",   false},
  {"wgmma.take",      KILN_DEVICE_WGMMA_TAKE,      "rr",  false},
  {"tiles",           KILN_DEVICE_TILES,           "iii", true},
  {"tile.steps",      KILN_DEVICE_TILE_STEPS,      "",    true},
};
// clang-format on

const kiln_device_op *kiln_device_op_of(kiln_device_kind k) { return &ops[k]; }

const kiln_device_op *kiln_device_op_named(const char *name) {
  for (size_t i = 0; i < KILN_LEN(ops); i++)
    if (strcmp(ops[i].name, name) == 0) return &ops[i];
  return NULL;
}

kiln_loop *kiln_device_make(kiln_ctx *cx, kiln_device_kind k, int n,
                            const kiln_expr *const *arguments) {
  kiln_loop *l = KILN_NEW(&cx->perm, kiln_loop);
  *l = (kiln_loop){.kind = KILN_LOOP_DEVICE, .buffer = -1, .op = &ops[k], .n_operands = n};
  l->operands = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n);
  for (int i = 0; i < n; i++) l->operands[i] = arguments[i];
  return l;
}

kiln_loop *kiln_device_make_int(kiln_ctx *cx, kiln_device_kind k, int64_t argument) {
  const kiln_expr *e = kiln_int(cx, argument);
  return kiln_device_make(cx, k, 1, &e);
}

kiln_status kiln_device_parse(kiln_ctx *cx, const char *text, kiln_instr_find find,
                              const void *argument, kiln_loops **out) {
  return kiln_loops_parse_device(cx, text, find, argument, kiln_device_op_named, out);
}

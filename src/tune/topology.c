// The machine's topology, by hwloc.
#include "tune/topology.h"

#include <hwloc.h>

static int count(hwloc_topology_t t, hwloc_obj_type_t type) {
  const int n = hwloc_get_nbobjs_by_type(t, type);
  return n > 0 ? n : 0;
}

static int cores_within(hwloc_topology_t t, hwloc_obj_t cache) {
  const int n = hwloc_get_nbobjs_inside_cpuset_by_type(t, cache->cpuset, HWLOC_OBJ_CORE);
  return n > 0 ? n : 1;
}

// Walks up from the first core through its caches, the fastest first.
static void find_caches(hwloc_topology_t t, kiln_topology *out) {
  hwloc_obj_t at = hwloc_get_obj_by_type(t, HWLOC_OBJ_PU, 0);
  for (; at && out->n_caches < KILN_MAX_CACHES; at = at->parent) {
    if (!hwloc_obj_type_is_dcache(at->type) || at->attr->cache.size == 0) continue;
    const struct hwloc_cache_attr_s *c = &at->attr->cache;
    out->caches[out->n_caches++] =
        (kiln_hardware_cache){.level = (int)c->depth,
                              .bytes = (int64_t)c->size,
                              .line_bytes = c->linesize ? (int)c->linesize : 64,
                              .n_sharing = cores_within(t, at),
                              .n_ways = c->associativity};
  }
}

kiln_status kiln_topology_find(kiln_ctx *cx, kiln_topology *out) {
  hwloc_topology_t t;
  *out = (kiln_topology){0};
  if (hwloc_topology_init(&t) != 0)
    return KILN_FAIL(cx->diag, KILN_NO_MEMORY, "topology", "hwloc: no memory left");
  const unsigned long flags =
      HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM | HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED;
  const bool right = hwloc_topology_set_flags(t, flags) == 0 && hwloc_topology_load(t) == 0;
  if (right) {
    out->n_packages = count(t, HWLOC_OBJ_PACKAGE);
    out->n_nodes = count(t, HWLOC_OBJ_NUMANODE);
    out->n_cores = count(t, HWLOC_OBJ_CORE);
    out->n_threads = count(t, HWLOC_OBJ_PU);
    out->memory_bytes = (int64_t)hwloc_get_root_obj(t)->total_memory;
    find_caches(t, out);
  }
  hwloc_topology_destroy(t);
  if (!right)
    return KILN_FAIL(cx->diag, KILN_DEVICE_ERROR, "topology",
                     "hwloc must find the processors, but the operating system does not tell");
  if (out->n_cores == 0) out->n_cores = out->n_threads > 0 ? out->n_threads : 1;
  return KILN_OK;
}

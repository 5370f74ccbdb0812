// The topology of a machine by hwloc: packages, cores, caches, and the cores that share a cache.
#ifndef KILN_TUNE_TOPOLOGY_H
#define KILN_TUNE_TOPOLOGY_H

#include "support/ctx.h"

enum { KILN_MAX_CACHES = 4 };

typedef struct kiln_hardware_cache {
  int level; // 1 is the fastest
  int64_t bytes;
  int line_bytes;
  int n_sharing; // cores that share it
  int n_ways;    // 0: unknown; -1: fully associative
} kiln_hardware_cache;

typedef struct kiln_topology {
  int n_packages, n_nodes, n_cores, n_threads; // nodes of memory; hardware threads
  int64_t memory_bytes;
  int n_caches; // data caches of a core, the fastest first
  kiln_hardware_cache caches[KILN_MAX_CACHES];
} kiln_topology;

// Covers the whole machine, even if this process may run on part of it only.
//
// errors: KILN_DEVICE_ERROR: the operating system does not tell
KILN_MUST_USE kiln_status kiln_topology_find(kiln_ctx *cx, kiln_topology *out);

#endif

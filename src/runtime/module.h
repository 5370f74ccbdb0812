// A loaded module: the plan, its functions, and the memory of its constants.
#ifndef KILN_RUNTIME_MODULE_H
#define KILN_RUNTIME_MODULE_H

#include "kiln/module.h"
#include "runtime/dynamic.h"
#include "runtime/flow/flow.h"
#include "runtime/libraries.h"

#include <pthread.h>
#include <stdatomic.h>

// Runs iterations [begin, end) of a nest's parallel loop; args in the launch's order.
typedef void (*kiln_kernel_fn)(char *const *args, int64_t begin, int64_t end);

struct kiln_resident;

struct kiln_module {
  atomic_int refs;
  kiln_plan plan;            // of a module for ranges: only ports, without launches
  kiln_dynamic *dynamic;     // the ranges; NULL: all shapes are static
  kiln_flow *flow;           // the steps; NULL: there is one plan, or a variant for each range
  uint32_t n_variants;       // variants of ranges, or parts of a flow
  kiln_module **variants;    // [n_variants], which use this module's functions and weights
  struct kiln_module *whole; // of a variant: the module that it is of; otherwise NULL
  kiln_kernel_fn *functions; // [n_functions]
  kiln_libraries libraries;  // of a CPU; a device's are in its resident
  const char *weights;       // [weights_bytes]
  const void **externs;      // [n_externs]
  uint64_t borrowed_bytes;   // behind |externs|
  void *library;             // from dlopen; NULL in memory
  void *map;                 // mapping of the file's weights; NULL in memory
  size_t map_bytes;
  const char *code; // [plan.code_bytes] images of a device; NULL for a CPU
  void *code_map;   // mapping of the file's code; NULL in memory
  size_t code_map_bytes;
  pthread_mutex_t lock;            // of |residents|
  struct kiln_resident *residents; // copies of this module in devices, shared by all sessions
  void *owner; // of the memory that an in-memory module borrows; release(owner) is called last
  void (*release)(void *owner);
  // [n_inputs], without data if the input has no default; NULL: no input has one
  DLTensor *defaults;
  char target[32];       // "x86_64", "cuda:sm_90a"
  const char **features; // [n_features] of all variants, without the architecture
  size_t n_features;
  bool is_description;        // loaded for its description only; cannot run
  atomic_int sessions, slots; // live sessions, and the CPUs assigned to them
};

// The plan, or the first variant's. All variants' plans have equal targets, input defaults and
// states.
const kiln_plan *kiln_module_first_plan(const kiln_module *m);
// The plan with the module's ports, their defaults and its states; a flow has none of the latter.
const kiln_plan *kiln_module_port_plan(const kiln_module *m);
// The inputs of a run, with defaults for those that are not given; malloc'ed, NULL if memory ran
// out.
const DLTensor **kiln_module_fill_in(const kiln_module *m, size_t n, const DLTensor *const *inputs);

// An in-memory module, as the compiler makes it. The plan's blob and the arrays |functions| and
// |externs| are copied; their targets and |weights| (64-byte aligned) belong to |owner|.
typedef struct kiln_module_parts {
  const void *plan;
  size_t plan_bytes;
  uint32_t n_functions;
  const kiln_kernel_fn *functions;
  const char *weights;
  const char *code; // as |weights|
  uint32_t n_externs;
  const void *const *externs;
  uint64_t borrowed_bytes; // behind |externs|, for reports
  void *owner;
  void (*release)(void *owner);
} kiln_module_parts;

// On failure |owner| remains the caller's.
KILN_MUST_USE kiln_status kiln_module_create(const kiln_module_parts *parts, kiln_diag *diag,
                                             KILN_GIVE kiln_module **out);

// The same of a flow, whose parts are modules in memory; |parts| become the module's.
KILN_MUST_USE kiln_status kiln_module_create_flow(const kiln_flow *flow, kiln_module **parts,
                                                  kiln_diag *diag, KILN_GIVE kiln_module **out);

#endif

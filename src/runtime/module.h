// A module inside the runtime: the plan, the functions it calls and the memory of its constants.
#ifndef KILN_RUNTIME_MODULE_H
#define KILN_RUNTIME_MODULE_H

#include "kiln/module.h"
#include "runtime/dynamic.h"
#include "runtime/libraries.h"

#include <pthread.h>
#include <stdatomic.h>

// Runs iterations [begin, end) of a nest's parallel loop; args in the launch's order.
typedef void (*kiln_kernel_fn)(char *const *args, int64_t begin, int64_t end);

struct kiln_resident;

struct kiln_module {
  atomic_int refs;
  kiln_plan plan;            // of a module for ranges of dimensions: its ports, and no launches
  kiln_dynamic *dynamic;     // the ranges; NULL: all shapes are fixed
  kiln_module **variants;    // [n_variants] whose functions and weights are this one's
  kiln_kernel_fn *functions; // [n_functions]
  kiln_libraries libraries;  // of a CPU; a device's are its resident's
  const char *weights;       // [weights_bytes]
  const void **externs;      // [n_externs]
  uint64_t borrowed_bytes;   // behind externs
  void *library;             // of dlopen; NULL in memory
  void *map;                 // of the file's weights; NULL in memory
  size_t map_bytes;
  const char *code; // [plan.code_bytes] a device's images; NULL for a CPU
  void *code_map;   // of the file's; NULL in memory
  size_t code_map_bytes;
  pthread_mutex_t lock;            // of what follows
  struct kiln_resident *residents; // what devices hold of this module, for all its sessions
  void *owner; // of what an in-memory module borrows: release(owner) is called last
  void (*release)(void *owner);
  DLTensor *defaults;    // [n_inputs], without data where there is none; NULL: no input has one
  char target[32];       // "x86_64", "cuda:sm_90a"
  const char **features; // [n_features] of all variants, without the architecture
  size_t n_features;
  bool is_description;        // nothing of it was loaded that runs
  atomic_int sessions, slots; // live sessions, and how many CPUs they were given
};

// The inputs of a run, the module's own where it gives none; malloc'ed, NULL when memory is out.
const DLTensor **kiln_module_fill_in(const kiln_module *m, size_t n, const DLTensor *const *inputs);

// How the compiler makes a module in this process. The plan's blob is copied, the pointers in
// |functions| and |externs| are too; what they point to and |weights| (64-byte aligned) belong to
// |owner|.
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

// On failure |owner| still belongs to the caller.
KILN_MUST_USE kiln_status kiln_module_create(const kiln_module_parts *parts, kiln_diag *diag,
                                             KILN_GIVE kiln_module **out);

#endif

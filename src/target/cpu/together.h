// Which kernels an LLVM module of a CPU's has.
//
// Few kernels have a module and an object each. Of more than KILN_CPU_MANY_KERNELS, so many
// neighbours as are named next have one together: kiln_cpu_compile gives the object for the first
// of them, and an empty one for the others. Short kernels, which take a few microseconds at most,
// are translated without optimisation where there are so many of them, or so many operations in
// them: LLVM's takes milliseconds for each of those, and a fifth of a millisecond for each of
// these. Nests of several such kernels that are the same code are compiled once.
#ifndef KILN_TARGET_CPU_TOGETHER_H
#define KILN_TARGET_CPU_TOGETHER_H

#include "ir/loop.h"

enum { KILN_CPU_MANY_KERNELS = 256, KILN_CPU_MANY_OPERATIONS = 4096, KILN_CPU_TOGETHER = 32 };

typedef struct kiln_cpu_modules {
  int n;
  int *kernels;   // as numbered by the caller, those of a module next to each other
  int *first;     // [n + 1] in |kernels|
  bool *is_quick; // [n] not optimised
} kiln_cpu_modules;

// gives: arrays in cx->scratch
kiln_cpu_modules kiln_cpu_modules_of(kiln_ctx *cx, int n, kiln_loops *const *kernels);
// Whether each has a module of its own, and is optimised: its object depends on no other.
bool kiln_cpu_are_alone(kiln_ctx *cx, int n, kiln_loops *const *kernels);

// Where a nest lies: the kernel, and which of its nests.
typedef struct kiln_cpu_nest {
  int kernel, nest;
} kiln_cpu_nest;

// The nests of all kernels, one kernel after the other: of each the first that is the same code,
// which may be the nest itself.
typedef struct kiln_cpu_nests {
  int *first;          // [kernels] in |same|
  kiln_cpu_nest *same; // [nests]
} kiln_cpu_nests;

// gives: arrays in cx->perm; NULL where kernels are alone, and each has code of its own
const kiln_cpu_nests *kiln_cpu_nests_of(kiln_ctx *cx, int n, kiln_loops *const *kernels);

#endif

// How kernels are distributed over LLVM modules.
//
// Usually each kernel has a module and an object of its own. If there are more than
// KILN_CPU_MANY_KERNELS, so many neighbouring kernels as are stated next share a module:
// kiln_cpu_compile gives the object for the first of them, and an empty one for the others. If
// there are many short kernels, which run a few microseconds, or many operations in them, these are
// compiled without optimisation, which takes LLVM a fifth of a millisecond each in place of
// milliseconds. Equal nests of such kernels are compiled once.
#ifndef KILN_TARGET_CPU_TOGETHER_H
#define KILN_TARGET_CPU_TOGETHER_H

#include "ir/loop.h"

enum { KILN_CPU_MANY_KERNELS = 256, KILN_CPU_MANY_OPERATIONS = 4096, KILN_CPU_TOGETHER = 32 };

typedef struct kiln_cpu_modules {
  int n;
  int *kernels;   // the caller's kernel numbers, by module
  int *first;     // [n + 1] in |kernels|
  bool *is_quick; // [n] not optimised
} kiln_cpu_modules;

// gives: arrays in cx->scratch
kiln_cpu_modules kiln_cpu_modules_of(kiln_ctx *cx, int n, kiln_loops *const *kernels);
// Whether each kernel has a module of its own and is optimised, so that its object depends on no
// other kernel.
bool kiln_cpu_are_alone(kiln_ctx *cx, int n, kiln_loops *const *kernels);

// A nest: its kernel, and its number in that.
typedef struct kiln_cpu_nest {
  int kernel, nest;
} kiln_cpu_nest;

// For each nest of all kernels, in order, the first nest with equal code, which may be itself.
typedef struct kiln_cpu_nests {
  int *first;          // [kernels] in |same|
  kiln_cpu_nest *same; // [nests]
} kiln_cpu_nests;

// gives: arrays in cx->perm; NULL if every nest is compiled
const kiln_cpu_nests *kiln_cpu_nests_of(kiln_ctx *cx, int n, kiln_loops *const *kernels);

#endif

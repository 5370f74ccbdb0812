// How many kernels an LLVM module of a CPU's has.
#ifndef KILN_TARGET_CPU_TOGETHER_H
#define KILN_TARGET_CPU_TOGETHER_H

// Up to so many kernels have a module and an object each. Of more, as many neighbours as are named next have one
// together: kiln_cpu_compile gives the object for the first of them, and an empty one for the
// others. If each of them takes a few microseconds at most they are translated without
// optimisation: LLVM's takes milliseconds for each.
enum { KILN_CPU_MANY_KERNELS = 256, KILN_CPU_TOGETHER = 32 };

#endif

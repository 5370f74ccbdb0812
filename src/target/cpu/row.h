// The common fields of all targets that run kernels on a processor's cores.
#ifndef KILN_TARGET_CPU_ROW_H
#define KILN_TARGET_CPU_ROW_H

#include "target/target.h"

#define KILN_PROCESSOR_TARGET                                                                      \
  .has_vectors = true, .has_ranges = true, .max_params = KILN_PROCESSOR_MAX_PARAMS,                \
  .param_align_bytes = 1, .instrs = kiln_cpu_instrs, .code_levels = {"llvm", "asm"},               \
  .has_runtime = true, .runtime = KILN_PLAN_CPU, .place_bytes = KILN_PLAN_ALIGN
enum { KILN_PROCESSOR_MAX_PARAMS = 1 << 16 };

#endif

// Shared by the targets whose sources one emitter writes. Each is a folder beside this file, with a
// table of its spellings (target/c/writer.h), the figures of its architectures and its row.
#ifndef KILN_TARGET_GPU_SPELLING_H
#define KILN_TARGET_GPU_SPELLING_H

#include "target/c/writer.h"
#include "target/gpu/gpu.h"

// clang-format off
// Half types as 16 bits, in C that all dialects accept.
#define KILN_TO_BF16_BITS(as_uint) \
    "  const uint32_t bits = " as_uint "(x);\n" \
    "  if (x != x) return (uint16_t)(bits >> 16 | 0x40);\n" \
    "  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);\n"
// Rounds to odd (towards zero, last bit set if inexact), so that a second rounding gives the result
// of a single one.
#define KILN_TO_WIDE(name, narrow, as_uint, as_float) \
    "$S uint16_t kiln_to_wide_" name "(double x) {\n" \
    "  const float f = " narrow "(x);\n" \
    "  return kiln_to_" name "((double)f == x ? f : " as_float "(" as_uint "(f) | 1));\n" \
    "}\n"
#define KILN_LIMITS \
    "#define INT8_MAX 127\n#define INT16_MAX 32767\n#define INT32_MAX 2147483647\n" \
    "#define INT64_MAX INT64_C(9223372036854775807)\n#define INT64_MIN (-INT64_MAX - 1)\n" \
    "#define UINT8_MAX 255\n#define UINT16_MAX 65535\n#define UINT32_MAX 4294967295u\n" \
    "#define UINT64_MAX UINT64_C(18446744073709551615)\n"

// Keywords of C++ and CUDA that C17 lacks.
#define KILN_CPP_WORDS \
  "alignas", "alignof", "and", "bitand", "bitor", "catch", "class", "compl", "concept", "consteval", "constexpr", \
  "constinit", "const_cast", "decltype", "delete", "dynamic_cast", "explicit", "export", "friend", "mutable", \
  "namespace", "new", "noexcept", "not", "nullptr", "operator", "or", "private", "protected", "public", \
  "reinterpret_cast", "requires", "static_assert", "static_cast", "template", "this", "thread_local", "throw", \
  "try", "typeid", "typename", "using", "virtual", "wchar_t", "xor", "char8_t", "char16_t", "char32_t", "asm", \
  "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "uint4", "uint2", "fma", "fmaf", "NULL"
// clang-format on

// The members that all GPU targets share, at the head of a row.
#define KILN_GPU_TARGET                                                                            \
  .has_grids = true, .has_explicit_scopes = true, .max_params = KILN_GPU_MAX_PARAMS,               \
  .param_align_bytes = KILN_GPU_PARAM_ALIGN, .instrs = kiln_gpu_instrs, .check = kiln_gpu_check,   \
  .has_images = true, .launches = kiln_gpu_launches, .has_own_memory = true,                       \
  .place_bytes = KILN_GPU_PLACE_BYTES
enum {
  KILN_GPU_MAX_PARAMS = 500, // CUDA's kernels take 4 KiB of arguments
  KILN_GPU_PARAM_ALIGN = 16, // bytes that code moves at once
  // Two lines of the L2: TMA copies rows of 128 bytes, which else lie in two lines each.
  KILN_GPU_PLACE_BYTES = 256,
  KILN_KIB = 1024,
  KILN_MIB = 1024 * 1024
};

// Peak rates of an architecture, as the vendor gives them for its largest server card. Rates per
// clock are of one multiprocessor.
struct kiln_gpu_figures {
  const char *arch; // "sm_90a"; the target's own name where it has but one
  int capability;   // CUDA's; else 0
  int n_units;      // multiprocessors
  double clock_ghz;
  int64_t shared_bytes, l2_bytes, max_resident;
  double memory_bytes_ns;
  // Operations a clock, a multiply-add being two; of half types by tensor cores, 0: it has none.
  double f32, half, int8;
  bool has_wgmma; // as kiln_gpu's
};

#endif

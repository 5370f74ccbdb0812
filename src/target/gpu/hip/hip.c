// HIP: sources are generated, but not run, as Kiln has no HIP runtime.
#include "target/gpu/spelling.h"

#include <inttypes.h>
#include <string.h>

static void put_kernel(kiln_text *out, const int64_t block[3], int64_t neighbours,
                       int64_t cluster) {
  const int64_t threads = block[0] * block[1] * block[2];
  (void)neighbours, (void)cluster; // HIP has no spelling for them
  kiln_text_printf(out,
                   "extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(%" PRId64
                   ", %" PRId64 "))) void",
                   threads, threads);
}

static const char *const words[] = {KILN_CPP_WORDS};

// clang-format off

// HIP by Clang's builtins, without headers; math by the device library.
static const kiln_c_dialect dialect = {
  .head =
    "#pragma clang fp contract(off)\n"
    "typedef __INT8_TYPE__ int8_t;\ntypedef __UINT8_TYPE__ uint8_t;\ntypedef __INT16_TYPE__ int16_t;\n"
    "typedef __UINT16_TYPE__ uint16_t;\ntypedef __INT32_TYPE__ int32_t;\ntypedef __UINT32_TYPE__ uint32_t;\n"
    "typedef __INT64_TYPE__ int64_t;\ntypedef __UINT64_TYPE__ uint64_t;\n"
    "typedef uint32_t kiln_uint2 __attribute__((ext_vector_type(2)));\n"
    "typedef uint32_t kiln_uint4 __attribute__((ext_vector_type(4)));\n"
    "#define INT64_C(x) x##ll\n#define UINT64_C(x) x##ull\n" KILN_LIMITS
    "#define INFINITY __builtin_inff()\n#define NAN __builtin_nanf(\"\")\n"
    "#define isnan(x) __builtin_isnan(x)\n#define isinf(x) __builtin_isinf(x)\n"
    "#define KILN_MATH_OF(f, type, name, ...) extern \"C\" __attribute__((device, const)) type "
    "__ocml_##f##_##name(__VA_ARGS__);\n"
    "#define KILN_MATH(f) KILN_MATH_OF(f, float, f32, float) KILN_MATH_OF(f, double, f64, double)\n"
    "#define KILN_MATH2(f) KILN_MATH_OF(f, float, f32, float, float) KILN_MATH_OF(f, double, f64, double, double)\n"
    "#define KILN_BITS(x) __builtin_bit_cast(uint32_t, x)\n#define KILN_FLOAT(x) __builtin_bit_cast(float, x)\n"
    "KILN_MATH(floor) KILN_MATH(ceil) KILN_MATH(trunc) KILN_MATH(rint) KILN_MATH(fabs) KILN_MATH(sqrt)\n"
    "KILN_MATH(exp) KILN_MATH(exp2) KILN_MATH(expm1) KILN_MATH(log) KILN_MATH(log1p) KILN_MATH(erf)\n"
    "KILN_MATH(sin) KILN_MATH(cos) KILN_MATH(tan) KILN_MATH(asin) KILN_MATH(acos) KILN_MATH(atan)\n"
    "KILN_MATH(sinh) KILN_MATH(cosh) KILN_MATH(tanh) KILN_MATH(asinh) KILN_MATH(acosh) KILN_MATH(atanh)\n"
    "KILN_MATH2(pow) KILN_MATH2(fmod) KILN_MATH2(atan2)\n"
    "static inline __attribute__((device, always_inline)) float kiln_towards_zero(double x) {\n"
    "  const float f = (float)x;\n"
    "  return __builtin_fabs((double)f) > __builtin_fabs(x) ? KILN_FLOAT(KILN_BITS(f) - 1) : f;\n"
    "}\n"
    "#define kiln_barrier() (__builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\"), \\\n"
    "  __builtin_amdgcn_s_barrier(), __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\"))\n",
  .function = "static inline __attribute__((device, always_inline))", .math_prefix = "__ocml_", .float_suffix = "_f32",
  .wide_suffix = "_f64", .aligned = "__attribute__((aligned(16)))",
  .restricted = "__restrict__", .unroll = "#pragma unroll", .is_narrow = true, .avoids_f64 = true,
  .multiply_add = {"__builtin_fmaf", "__builtin_fma"},
  .of_half = {
    "$S float kiln_of_f16(uint16_t h) { return (float)__builtin_bit_cast(_Float16, h); }\n",
    "$S float kiln_of_bf16(uint16_t h) { return __builtin_bit_cast(float, (uint32_t)h << 16); }\n"},
  .to_half = {
    "$S uint16_t kiln_to_f16(float x) { return __builtin_bit_cast(uint16_t, (_Float16)x); }\n",
    "$S uint16_t kiln_to_bf16(float x) {\n" KILN_TO_BF16_BITS("KILN_BITS") "}\n"},
  .to_half_f64 = {
    "$S uint16_t kiln_to_wide_f16(double x) { return __builtin_bit_cast(uint16_t, (_Float16)x); }\n",
    KILN_TO_WIDE("bf16", "kiln_towards_zero", "KILN_BITS", "KILN_FLOAT")},
  .n_reserved = KILN_LEN(words), .reserved = words,
  .block = {"__builtin_amdgcn_workgroup_id_x()", "__builtin_amdgcn_workgroup_id_y()",
  "__builtin_amdgcn_workgroup_id_z()"},
  .thread = {"__builtin_amdgcn_workitem_id_x()", "__builtin_amdgcn_workitem_id_y()",
  "__builtin_amdgcn_workitem_id_z()"}, .global = "", .shared = "",
  .barrier = "kiln_barrier();", .words = {"uint32_t", "kiln_uint2", "kiln_uint4"},
  .put_kernel = put_kernel, .zeros = {"(uint32_t)(0)", "(kiln_uint2)(0)", "(kiln_uint4)(0)"},
  .arena = {"__attribute__((shared)) uint8_t kiln_shared[", "] __attribute__((aligned(128)));"},
  .shares_launches = true,
};

static const struct kiln_gpu_figures figures[] = {
  // arch             clock  shared         L2            resident memory  f32 half int8
  {"gfx90a", 0, 110, 1.70, 64 * KILN_KIB, 8 * KILN_MIB, 2048, 1638, 128, 0, 0, false},
  {"gfx942", 0, 304, 2.10, 64 * KILN_KIB, 4 * KILN_MIB, 2048, 5300, 256, 0, 0, false},
};
// clang-format on

static bool takes(const char *name) { return name && strncmp(name, "hip:", 4) == 0; }

const kiln_target kiln_target_hip = {
    KILN_GPU_TARGET,
    .name = "hip",
    .title = "HIP",
    .takes = takes,
    .find = kiln_gpu_machine_named,
    .code_levels = {"hip"},
    .dialect = &dialect,
    .common = {.warp = 1, .max_threads = 256},
    .figures = figures,
    .n_figures = KILN_LEN(figures),
};

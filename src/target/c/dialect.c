// What the dialects spell differently. CUDA C, HIP and OpenCL C include nothing: their heads define the names of
// C17's standard types.
#include "target/c/writer.h"

// clang-format off

// Half types as 16 bits: what is of no dialect's own.
#define TO_BF16_BITS(as_uint) \
    "  const uint32_t bits = " as_uint "(x);\n" \
    "  if (x != x) return (uint16_t)(bits >> 16 | 0x40);\n" \
    "  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);\n"
// Rounds towards zero and marks what is not exact in the last bit, so that the next rounding is the only one.
#define TO_WIDE(name, narrow, as_uint, as_float) \
    "$S uint16_t kiln_to_wide_" name "(double x) {\n" \
    "  const float f = " narrow "(x);\n" \
    "  return kiln_to_" name "((double)f == x ? f : " as_float "(" as_uint "(f) | 1));\n" \
    "}\n"
#define LIMITS \
    "#define INT8_MAX 127\n#define INT16_MAX 32767\n#define INT32_MAX 2147483647\n" \
    "#define INT64_MAX INT64_C(9223372036854775807)\n#define INT64_MIN (-INT64_MAX - 1)\n" \
    "#define UINT8_MAX 255\n#define UINT16_MAX 65535\n#define UINT32_MAX 4294967295u\n" \
    "#define UINT64_MAX UINT64_C(18446744073709551615)\n"

// --- C17 ---

const kiln_c_dialect kiln_c17 = {
  // Conditions that the loops' ranges decide are no mistake of the writer's, nor are arrays that are
  // written before they are read in an order that only Kiln can see.
  .head =
    "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n"
    "#include <string.h>\n\n"
    "// Written by a program: what its ranges decide is no mistake.\n"
    "#pragma GCC diagnostic ignored \"-Wtype-limits\"\n"
    "#pragma GCC diagnostic ignored \"-Wtautological-compare\"\n"
    "#pragma GCC diagnostic ignored \"-Wbool-compare\"\n"
    "#pragma GCC diagnostic ignored \"-Wmaybe-uninitialized\"\n"
    "#pragma GCC diagnostic ignored \"-Wunused-but-set-variable\"\n"
    "#ifdef __clang__\n#pragma STDC FP_CONTRACT OFF\n#endif\n",
  .function = "static inline", .math_prefix = "", .float_suffix = "f", .wide_suffix = "", .aligned = "_Alignas(64)", .restricted = "restrict",
  .of_half = {
    "$S float kiln_of_f16(uint16_t h) {\n"
    "  const uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, fraction = h & 1023;\n"
    "  const float tiny = (float)fraction * 0x1p-24f;\n"
    "  if (exponent == 0) return sign ? -tiny : tiny;\n"
    "  const uint32_t bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;\n"
    "  float f;\n"
    "  memcpy(&f, &bits, sizeof f);\n"
    "  return f;\n"
    "}\n",
    "$S float kiln_of_bf16(uint16_t h) {\n"
    "  const uint32_t bits = (uint32_t)h << 16;\n"
    "  float f;\n"
    "  memcpy(&f, &bits, sizeof f);\n"
    "  return f;\n"
    "}\n"},
  .to_half = {
    "$S uint16_t kiln_to_$N(double x) { return kiln_small_float(x, $H); }\n",
    "$S uint16_t kiln_to_$N(double x) { return kiln_small_float(x, $H); }\n"},
};

// --- CUDA C ---

// source: PTX ISA, "max": .NaN since sm_80
#define EXTREME(name, sign)                                                                                            \
  "// NaN if either is.\n"                                                                                              \
  "$S float kiln_" name "_f32(float a, float b) {\n"                                                                    \
  "#if __CUDA_ARCH__ >= 800\n"                                                                                          \
  "  float x;\n"                                                                                                        \
  "  asm(\"" name ".NaN.f32 %0, %1, %2;\" : \"=f\"(x) : \"f\"(a), \"f\"(b));\n"                                        \
  "  return x;\n"                                                                                                       \
  "#else\n"                                                                                                             \
  "  return a " sign " b || a != a ? a : b;\n"                                                                          \
  "#endif\n"                                                                                                            \
  "}\n"

static const char *const cuda_words[] = {
  "alignas", "alignof", "and", "bitand", "bitor", "catch", "class", "compl", "concept", "consteval", "constexpr",
  "constinit", "const_cast", "decltype", "delete", "dynamic_cast", "explicit", "export", "friend", "mutable",
  "namespace", "new", "noexcept", "not", "nullptr", "operator", "or", "private", "protected", "public",
  "reinterpret_cast", "requires", "static_assert", "static_cast", "template", "this", "thread_local", "throw",
  "try", "typeid", "typename", "using", "virtual", "wchar_t", "xor", "char8_t", "char16_t", "char32_t", "asm",
  "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "uint4", "uint2", "fma", "fmaf", "NULL"};

// 1 - 2^P(|x|), below 2^-6 the first term of the series: 2^-13 of erf x, and 2^-12 of 1 - |erf x| down to 2^-23.
#define COARSE_ERF                                                                                                      \
  "static __device__ __forceinline__ float kiln_erf(float x) {\n"                                                      \
  "  const float t = fabsf(x);\n"                                                                                      \
  "  const float q = fmaf(fmaf(-0x1.35d608p-9f, t, 0x1.bb2ae4p-6f), t, -0x1.29787ap-3f);\n"                            \
  "  const float p = fmaf(q, t, -0x1.d6fd72p-1f) * t;\n"                                                               \
  "  const float y = copysignf(1.0f - kiln_exp2((p - 0x1.a0b918p+0f) * t), x);\n"                                      \
  "  return t < 0x1p-6f ? 0x1.20dd76p+0f * x : y;\n}\n"

const kiln_c_dialect kiln_c_cuda = {
  .head =
    "typedef signed char int8_t;\ntypedef unsigned char uint8_t;\ntypedef short int16_t;\n"
    "typedef unsigned short uint16_t;\ntypedef int int32_t;\ntypedef unsigned int uint32_t;\n"
    "typedef long long int64_t;\ntypedef unsigned long long uint64_t;\n"
    "#define INT64_C(x) x##ll\n#define UINT64_C(x) x##ull\n" LIMITS
    "#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fc00000)\n"
    "static __device__ __forceinline__ float kiln_exp2(float x) {\n"
    "  float y;\n  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n  return y;\n}\n"
    "static __device__ __forceinline__ float kiln_reciprocal(float x) {\n"
    "  float y;\n  asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n  return y;\n}\n"
    "static __device__ __forceinline__ float kiln_divide(float x, float y) {\n"
    "  float z;\n  asm(\"div.full.f32 %0, %1, %2;\" : \"=f\"(z) : \"f\"(x), \"f\"(y));\n  return z;\n}\n"
    COARSE_ERF,
  .function = "static __device__ __forceinline__", .math_prefix = "", .float_suffix = "f", .wide_suffix = "", .aligned = "__align__(16)",
  .restricted = "__restrict__", .unroll = "#pragma unroll", .is_narrow = true, .avoids_f64 = true,
  .coarse_exp2 = "kiln_exp2", .coarse_reciprocal = "kiln_reciprocal", .coarse_divide = "kiln_divide", .coarse_erf = "kiln_erf", .multiply_add = {"fmaf", "fma"},
  .extremes = {EXTREME("min", "<"), EXTREME("max", ">")},
  .of_half = {
    "$S float kiln_of_f16(uint16_t h) {\n"
    "  float f;\n"
    "  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(h));\n"
    "  return f;\n"
    "}\n",
    "$S float kiln_of_bf16(uint16_t h) { return __uint_as_float((uint32_t)h << 16); }\n"},
  .to_half = {
    "$S uint16_t kiln_to_f16(float x) {\n"
    "  uint16_t h;\n"
    "  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n"
    "  return h;\n"
    "}\n",
    "$S uint16_t kiln_to_bf16(float x) {\n"
    "#if __CUDA_ARCH__ >= 800\n"
    "  uint16_t h;\n"
    "  asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n"
    "  return h;\n"
    "#else\n"
    TO_BF16_BITS("__float_as_uint")
    "#endif\n"
    "}\n"},
  .to_half_f64 = {
    "$S uint16_t kiln_to_wide_f16(double x) {\n"
    "  uint16_t h;\n"
    "  asm(\"cvt.rn.f16.f64 %0, %1;\" : \"=h\"(h) : \"d\"(x));\n"
    "  return h;\n"
    "}\n",
    TO_WIDE("bf16", "__double2float_rz", "__float_as_uint", "__uint_as_float")},
  .n_reserved = KILN_LEN(cuda_words), .reserved = cuda_words,
  .block = {"blockIdx.x", "blockIdx.y", "blockIdx.z"}, .thread = {"threadIdx.x", "threadIdx.y", "threadIdx.z"}, .global = "", .shared = "", .barrier = "__syncthreads();",
  .warp_barrier = "__syncwarp();", .words = {"uint32_t", "uint2", "uint4"},
};

// --- HIP ---

// Clang's HIP without headers, by what the compiler has built in; mathematics are the device library's.
const kiln_c_dialect kiln_c_hip = {
  .head =
    "#pragma clang fp contract(off)\n"
    "typedef __INT8_TYPE__ int8_t;\ntypedef __UINT8_TYPE__ uint8_t;\ntypedef __INT16_TYPE__ int16_t;\n"
    "typedef __UINT16_TYPE__ uint16_t;\ntypedef __INT32_TYPE__ int32_t;\ntypedef __UINT32_TYPE__ uint32_t;\n"
    "typedef __INT64_TYPE__ int64_t;\ntypedef __UINT64_TYPE__ uint64_t;\n"
    "typedef uint32_t kiln_uint2 __attribute__((ext_vector_type(2)));\n"
    "typedef uint32_t kiln_uint4 __attribute__((ext_vector_type(4)));\n"
    "#define INT64_C(x) x##ll\n#define UINT64_C(x) x##ull\n" LIMITS
    "#define INFINITY __builtin_inff()\n#define NAN __builtin_nanf(\"\")\n"
    "#define isnan(x) __builtin_isnan(x)\n#define isinf(x) __builtin_isinf(x)\n"
    "#define KILN_MATH_OF(f, type, name, ...) extern \"C\" __attribute__((device, const)) type __ocml_##f##_##name(__VA_ARGS__);\n"
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
  .function = "static inline __attribute__((device, always_inline))", .math_prefix = "__ocml_", .float_suffix = "_f32", .wide_suffix = "_f64", .aligned = "__attribute__((aligned(16)))",
  .restricted = "__restrict__", .unroll = "#pragma unroll", .is_narrow = true, .avoids_f64 = true, .multiply_add = {"__builtin_fmaf", "__builtin_fma"},
  .of_half = {
    "$S float kiln_of_f16(uint16_t h) { return (float)__builtin_bit_cast(_Float16, h); }\n",
    "$S float kiln_of_bf16(uint16_t h) { return __builtin_bit_cast(float, (uint32_t)h << 16); }\n"},
  .to_half = {
    "$S uint16_t kiln_to_f16(float x) { return __builtin_bit_cast(uint16_t, (_Float16)x); }\n",
    "$S uint16_t kiln_to_bf16(float x) {\n" TO_BF16_BITS("KILN_BITS") "}\n"},
  .to_half_f64 = {
    "$S uint16_t kiln_to_wide_f16(double x) { return __builtin_bit_cast(uint16_t, (_Float16)x); }\n",
    TO_WIDE("bf16", "kiln_towards_zero", "KILN_BITS", "KILN_FLOAT")},
  .n_reserved = KILN_LEN(cuda_words), .reserved = cuda_words,
  .block = {"__builtin_amdgcn_workgroup_id_x()", "__builtin_amdgcn_workgroup_id_y()", "__builtin_amdgcn_workgroup_id_z()"},
  .thread = {"__builtin_amdgcn_workitem_id_x()", "__builtin_amdgcn_workitem_id_y()", "__builtin_amdgcn_workitem_id_z()"}, .global = "", .shared = "",
  .barrier = "kiln_barrier();", .words = {"uint32_t", "kiln_uint2", "kiln_uint4"},
};

// --- OpenCL C ---

static const char *const opencl_words[] = {
  "kernel", "global", "local", "constant", "private", "half", "uint", "uchar", "ushort", "ulong", "size_t", "event_t",
  "sampler_t", "image1d_t", "image2d_t", "image3d_t", "vec_step", "as_float", "as_uint", "vload_half", "vstore_half_rte",
  "barrier", "get_group_id", "get_local_id", "read_only", "write_only", "read_write", "generic", "pipe", "complex",
  "imaginary", "quad", "convert_float_rtz", "select", "mad", "NULL",
#define VECTORS(t) t "2", t "3", t "4", t "8", t "16"
  VECTORS("char"), VECTORS("uchar"), VECTORS("short"), VECTORS("ushort"), VECTORS("int"), VECTORS("uint"),
  VECTORS("long"), VECTORS("ulong"), VECTORS("float"), VECTORS("double"), VECTORS("half"), VECTORS("bool")};

const kiln_c_dialect kiln_c_opencl = {
  .head =
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "typedef char int8_t;\ntypedef uchar uint8_t;\ntypedef short int16_t;\ntypedef ushort uint16_t;\n"
    "typedef int int32_t;\ntypedef uint uint32_t;\ntypedef long int64_t;\ntypedef ulong uint64_t;\n"
    "#define INT64_C(x) x##l\n#define UINT64_C(x) x##ul\n" LIMITS,
  .function = "static", .math_prefix = "", .float_suffix = "", .wide_suffix = "", .aligned = "__attribute__((aligned(16)))", .restricted = "restrict",
  .unroll = "#pragma unroll", .is_narrow = true, .avoids_f64 = true, .multiply_add = {"mad", "mad"},
  .of_half = {
    "$S float kiln_of_f16(uint16_t h) { return vload_half(0, (const __private half *)&h); }\n",
    "$S float kiln_of_bf16(uint16_t h) { return as_float((uint32_t)h << 16); }\n"},
  .to_half = {
    "$S uint16_t kiln_to_f16(float x) {\n"
    "  uint16_t h;\n"
    "  vstore_half_rte(x, 0, (__private half *)&h);\n"
    "  return h;\n"
    "}\n",
    "$S uint16_t kiln_to_bf16(float x) {\n" TO_BF16_BITS("as_uint") "}\n"},
  .to_half_f64 = {
    TO_WIDE("f16", "convert_float_rtz", "as_uint", "as_float"),
    TO_WIDE("bf16", "convert_float_rtz", "as_uint", "as_float")},
  .n_reserved = KILN_LEN(opencl_words), .reserved = opencl_words,
  .block = {"get_group_id(0)", "get_group_id(1)", "get_group_id(2)"},
  .thread = {"get_local_id(0)", "get_local_id(1)", "get_local_id(2)"}, .global = "__global ", .shared = "__local ",
  .barrier = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);", .words = {"uint", "uint2", "uint4"},
};

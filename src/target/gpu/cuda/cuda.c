// CUDA C with inline PTX, which NVRTC compiles (nvrtc.c) and the CUDA driver runs.
#include "target/gpu/cuda/nvrtc.h"
#include "target/gpu/spelling.h"

#include "backend/backend.h"
#include "runtime/gpu/gpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_kernel(kiln_text *out, const int64_t block[3], int64_t neighbours,
                       int64_t cluster) {
  kiln_text_printf(out, "extern \"C\" __global__ void __launch_bounds__(%" PRId64,
                   block[0] * block[1] * block[2]);
  if (neighbours > 1) kiln_text_printf(out, ", %" PRId64, neighbours);
  kiln_text_add(out, ")");
  if (cluster > 1) kiln_text_printf(out, " __cluster_dims__(%" PRId64 ", 1, 1)", cluster);
}

// clang-format off

// source: PTX ISA, "max": .NaN since sm_80
#define EXTREME(name, sign)                                                                                            \
  "// NaN if either is.\n"                                                                                             \
  "$S float kiln_" name "_f32(float a, float b) {\n"                                                                   \
  "#if __CUDA_ARCH__ >= 800\n"                                                                                         \
  "  float x;\n"                                                                                                       \
  "  asm(\"" name ".NaN.f32 %0, %1, %2;\" : \"=f\"(x) : \"f\"(a), \"f\"(b));\n"                                        \
  "  return x;\n"                                                                                                      \
  "#else\n"                                                                                                            \
  "  return a " sign " b || a != a ? a : b;\n"                                                                         \
  "#endif\n"                                                                                                           \
  "}\n"

static const char *const words[] = {KILN_CPP_WORDS};

// 1 - 2^P(|x|), below 2^-6 the first term of the series: 2^-13 of erf x, and 2^-12 of 1 - |erf x|
// down to 2^-23.
#define COARSE_ERF                                                                                                     \
  "static __device__ __forceinline__ float kiln_erf(float x) {\n"                                                      \
  "  const float t = fabsf(x);\n"                                                                                      \
  "  const float q = fmaf(fmaf(-0x1.35d608p-9f, t, 0x1.bb2ae4p-6f), t, -0x1.29787ap-3f);\n"                            \
  "  const float p = fmaf(q, t, -0x1.d6fd72p-1f) * t;\n"                                                               \
  "  const float y = copysignf(1.0f - kiln_exp2((p - 0x1.a0b918p+0f) * t), x);\n"                                      \
  "  return t < 0x1p-6f ? 0x1.20dd76p+0f * x : y;\n}\n"

static const kiln_c_dialect dialect = {
  .head =
    "typedef signed char int8_t;\ntypedef unsigned char uint8_t;\ntypedef short int16_t;\n"
    "typedef unsigned short uint16_t;\ntypedef int int32_t;\ntypedef unsigned int uint32_t;\n"
    "typedef long long int64_t;\ntypedef unsigned long long uint64_t;\n"
    "#define INT64_C(x) x##ll\n#define UINT64_C(x) x##ull\n" KILN_LIMITS
    "#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fc00000)\n"
    "static __device__ __forceinline__ float kiln_exp2(float x) {\n"
    "  float y;\n  asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n  return y;\n}\n"
    "static __device__ __forceinline__ float kiln_reciprocal(float x) {\n"
    "  float y;\n  asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n  return y;\n}\n"
    "static __device__ __forceinline__ float kiln_divide(float x, float y) {\n"
    "  float z;\n  asm(\"div.full.f32 %0, %1, %2;\" : \"=f\"(z) : \"f\"(x), \"f\"(y));\n  return z;\n}\n"
    COARSE_ERF,
  .function = "static __device__ __forceinline__", .math_prefix = "", .float_suffix = "f", .wide_suffix = "",
  .aligned = "__align__(16)",
  .restricted = "__restrict__", .unroll = "#pragma unroll", .is_narrow = true, .avoids_f64 = true,
  .coarse_exp2 = "kiln_exp2", .coarse_reciprocal = "kiln_reciprocal", .coarse_divide = "kiln_divide",
  .coarse_erf = "kiln_erf", .multiply_add = {"fmaf", "fma"},
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
    KILN_TO_BF16_BITS("__float_as_uint")
    "#endif\n"
    "}\n"},
  .to_half_f64 = {
    "$S uint16_t kiln_to_wide_f16(double x) {\n"
    "  uint16_t h;\n"
    "  asm(\"cvt.rn.f16.f64 %0, %1;\" : \"=h\"(h) : \"d\"(x));\n"
    "  return h;\n"
    "}\n",
    KILN_TO_WIDE("bf16", "__double2float_rz", "__float_as_uint", "__uint_as_float")},
  .n_reserved = KILN_LEN(words), .reserved = words,
  .block = {"blockIdx.x", "blockIdx.y", "blockIdx.z"}, .thread = {"threadIdx.x", "threadIdx.y", "threadIdx.z"},
  .global = "", .shared = "", .barrier = "__syncthreads();",
  .warp_barrier = "__syncwarp();", .words = {"uint32_t", "uint2", "uint4"},
  .put_kernel = put_kernel, .zeros = {"uint32_t{}", "uint2{}", "uint4{}"},
  .arena = {"extern __shared__ __align__(1024) uint8_t kiln_shared[];", NULL},
  .has_instructions = true, .shares_launches = true,
};

static const struct kiln_gpu_figures figures[] = {
  // arch              clock  shared           L2              resident memory  f32  half  int8
  // wgmma
  {"sm_75",   75,   40, 1.59,  64 * KILN_KIB,   4 * KILN_MIB, 1024,  320, 128,  1024,  2048, false},
  {"sm_80",   80,  108, 1.41, 163 * KILN_KIB,  40 * KILN_MIB, 2048, 1555, 128,  2048,  4096, false},
  {"sm_86",   86,   72, 1.69,  99 * KILN_KIB,   6 * KILN_MIB, 1536,  600, 256,  1024,  2048, false},
  {"sm_89",   89,  142, 2.52,  99 * KILN_KIB,  96 * KILN_MIB, 1536,  864, 256,  1024,  2048, false},
  {"sm_90",   90,  132, 1.75, 227 * KILN_KIB,  50 * KILN_MIB, 2048, 4800, 256,  4096,  8192, false},
  {"sm_90a",  90,  132, 1.75, 227 * KILN_KIB,  50 * KILN_MIB, 2048, 4800, 256,  4096,  8192, true},
  {"sm_100a", 100, 148, 1.85, 227 * KILN_KIB, 126 * KILN_MIB, 2048, 8000, 256,  8192, 16384, false},
};
// clang-format on

static bool takes(const char *name) {
  return name && (strcmp(name, "cuda") == 0 || strncmp(name, "cuda:", 5) == 0);
}

// No error message if the name is unknown.
static bool is_named(kiln_ctx *cx, const char *name, kiln_machine *out) {
  kiln_diag *diag = cx->diag;
  cx->diag = NULL;
  const bool found = kiln_gpu_machine_named(cx, name, out) == KILN_OK;
  cx->diag = diag;
  return found;
}

// The figures of the card that is there: those that were measured, else the architecture's.
static void take_card(kiln_ctx *cx, const kiln_gpu_context *c, kiln_machine *io) {
  kiln_gpu_card card = {.n_units = c->n_units,
                        .l2_bytes = c->l2_bytes,
                        .shared_bytes = c->shared_bytes,
                        .max_resident = c->resident_threads};
  snprintf(card.name, sizeof card.name, "%.63s", c->name);
  kiln_gpu_machine_take_card(cx, &card, io);
  const char *path = kiln_device_path(cx, io);
  const kiln_device *measured = path ? kiln_device_read(cx, io, path) : NULL;
  if (measured) io->device = measured;
}

// The GPU of this machine: its architecture with all that it has, or the newest older one of its
// generation that there is.
static kiln_status find_own(kiln_ctx *cx, kiln_machine *out) {
  kiln_gpu_context card;
  KILN_TRY(kiln_gpu_describe(KILN_PLAN_CUDA, 0, cx->diag, &card));
  const int own = atoi(card.arch + strlen("sm_"));
  bool found = false;
  for (int number = own; number >= own / 10 * 10 && !found; number--) {
    const char *name = kiln_arena_printf(&cx->scratch, "cuda:sm_%d", number);
    found = (number == own && is_named(cx, kiln_arena_printf(&cx->scratch, "%sa", name), out)) ||
            is_named(cx, name, out);
  }
  if (!found)
    return kiln_gpu_machine_named(cx, kiln_arena_printf(&cx->scratch, "cuda:%s", card.arch), out);
  take_card(cx, &card, out);
  return KILN_OK;
}

// Takes the figures of the card that is there where it is of |io|'s architecture and was measured:
// only then the driver is asked.
static void find_measured(kiln_ctx *cx, kiln_machine *io) {
  kiln_gpu_context card;
  if (!kiln_device_was_measured(io) ||
      kiln_gpu_describe(KILN_PLAN_CUDA, 0, NULL, &card) != KILN_OK ||
      atoi(card.arch + strlen("sm_")) != io->gpu.capability)
    return;
  kiln_machine there = *io;
  take_card(cx, &card, &there);
  if (there.device->is_measured) *io = there;
}

// "cuda:FILE.json": the card whose figures `kiln device --json` wrote there.
static kiln_status find_in_file(kiln_ctx *cx, const char *path, kiln_machine *out) {
  kiln_gpu_card card = {0};
  char arch[16];
  KILN_TRY(kiln_device_read_card(cx, path, &card, arch));
  KILN_TRY(kiln_gpu_machine_named(cx, kiln_arena_printf(&cx->scratch, "cuda:%s", arch), out));
  kiln_gpu_machine_take_card(cx, &card, out);
  out->device = kiln_device_read(cx, out, path);
  return out->device ? KILN_OK
                     : KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                                 "target: the file must have a card's figures, as "
                                 "`kiln device --target=cuda --json` writes them");
}

static kiln_status find(kiln_ctx *cx, const char *name, kiln_machine *out) {
  static const char FILE_END[] = ".json";
  const size_t n = strlen(name), end = strlen(FILE_END);
  if (strcmp(name, "cuda") == 0) return find_own(cx, out);
  if (n > end && strcmp(name + n - end, FILE_END) == 0)
    return find_in_file(cx, name + strlen("cuda:"), out);
  KILN_TRY(kiln_gpu_machine_named(cx, name, out));
  find_measured(cx, out);
  return KILN_OK;
}

const kiln_target kiln_target_cuda = {
    KILN_GPU_TARGET,
    .name = "cuda",
    .title = "CUDA",
    .takes = takes,
    .find = find,
    .code_levels = {"cuda"},
    .compiler = &kiln_nvrtc,
    .has_runtime = true,
    .has_ranges = true,
    .runtime = KILN_PLAN_CUDA,
    .makes_modules = takes,
    .libraries = 1u << KILN_BACKEND_CUDA,
    .dialect = &dialect,
    .common = {.warp = 32, .max_threads = 1024, .registers = 65536},
    .figures = figures,
    .n_figures = KILN_LEN(figures),
};

// OpenCL C, compiled by the device's driver; with PoCL the device is a CPU.
#include "target/gpu/spelling.h"

#include <inttypes.h>
#include <string.h>

static void put_kernel(kiln_text *out, const int64_t block[3], int64_t neighbours,
                       int64_t cluster) {
  (void)neighbours, (void)cluster; // OpenCL C has no spelling for them
  kiln_text_printf(out,
                   "__kernel __attribute__((reqd_work_group_size(%" PRId64 ", %" PRId64 ", %" PRId64
                   "))) void",
                   block[0], block[1], block[2]);
}

// clang-format off

static const char *const words[] = {
  "kernel", "global", "local", "constant", "private", "half", "uint", "uchar", "ushort", "ulong", "size_t", "event_t",
  "sampler_t", "image1d_t", "image2d_t", "image3d_t", "vec_step", "as_float", "as_uint", "vload_half",
  "vstore_half_rte",
  "barrier", "get_group_id", "get_local_id", "read_only", "write_only", "read_write", "generic", "pipe", "complex",
  "imaginary", "quad", "convert_float_rtz", "select", "mad", "NULL",
#define VECTORS(t) t "2", t "3", t "4", t "8", t "16"
  VECTORS("char"), VECTORS("uchar"), VECTORS("short"), VECTORS("ushort"), VECTORS("int"), VECTORS("uint"),
  VECTORS("long"), VECTORS("ulong"), VECTORS("float"), VECTORS("double"), VECTORS("half"), VECTORS("bool")};

static const kiln_c_dialect dialect = {
  .head =
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "typedef char int8_t;\ntypedef uchar uint8_t;\ntypedef short int16_t;\ntypedef ushort uint16_t;\n"
    "typedef int int32_t;\ntypedef uint uint32_t;\ntypedef long int64_t;\ntypedef ulong uint64_t;\n"
    "#define INT64_C(x) x##l\n#define UINT64_C(x) x##ul\n" KILN_LIMITS,
  .function = "static", .math_prefix = "", .float_suffix = "", .wide_suffix = "",
  .aligned = "__attribute__((aligned(16)))", .restricted = "restrict",
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
    "$S uint16_t kiln_to_bf16(float x) {\n" KILN_TO_BF16_BITS("as_uint") "}\n"},
  .to_half_f64 = {
    KILN_TO_WIDE("f16", "convert_float_rtz", "as_uint", "as_float"),
    KILN_TO_WIDE("bf16", "convert_float_rtz", "as_uint", "as_float")},
  .n_reserved = KILN_LEN(words), .reserved = words,
  .block = {"get_group_id(0)", "get_group_id(1)", "get_group_id(2)"},
  .thread = {"get_local_id(0)", "get_local_id(1)", "get_local_id(2)"}, .global = "__global ", .shared = "__local ",
  .barrier = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);", .words = {"uint", "uint2", "uint4"},
  .put_kernel = put_kernel, .zeros = {"(uint)(0)", "(uint2)(0)", "(uint4)(0)"},
  .arena = {"__local uint8_t kiln_shared[", "] __attribute__((aligned(128)));"},
  .waits_before_conditions = true,
};

// Limits that every device meets; its rates are unknown.
static const struct kiln_gpu_figures figures[] = {
  {"opencl", 0, 16, 1.00, 32 * KILN_KIB, 1 * KILN_MIB, 1024, 100, 128, 0, 0, false},
};
// clang-format on

static bool takes(const char *name) { return name && strcmp(name, "opencl") == 0; }

const kiln_target kiln_target_opencl = {
    KILN_GPU_TARGET,
    .name = "opencl",
    .title = "OpenCL",
    .takes = takes,
    .find = kiln_gpu_machine_named,
    .code_levels = {"opencl"},
    .has_runtime = true,
    .has_ranges = true,
    .runtime = KILN_PLAN_OPENCL,
    .makes_modules = takes,
    .dialect = &dialect,
    .common = {.warp = 1, .max_threads = 256},
    .figures = figures,
    .n_figures = KILN_LEN(figures),
};

#include "tune/gpu_probe.h"

#include <string.h>

// --- pieces of the sources ---

// Eight independent chains of an instruction from a register to itself.
#define CHAINS(text, constraint)                                                                   \
  "#pragma unroll\n    for (int j = 0; j < 8; j++) asm volatile(\"" text "\" : \"+" constraint     \
  "\"(x[j]) : \"" constraint "\"(y));"
#define FLOATS                                                                                     \
  "float x[8], y = (float)n;\n"                                                                    \
  "  for (int j = 0; j < 8; j++) x[j] = 1.0f + (float)(threadIdx.x + j);"
#define PAIRS                                                                                      \
  "uint32_t x[8], y = (uint32_t)n;\n"                                                              \
  "  for (int j = 0; j < 8; j++) x[j] = threadIdx.x + j;"
#define ONE_OPERAND(text)                                                                          \
  "#pragma unroll\n    for (int j = 0; j < 8; j++) asm volatile(\"" text "\" : \"+f\"(x[j]));"
#define FRAGMENTS(sum, zero)                                                                       \
  "uint32_t a[4] = {(uint32_t)n, 1, 2, 3}, b[2] = {4, (uint32_t)n};\n  " sum                       \
  " x[4][4];\n  for (int j = 0; j < 16; j++) x[j / 4][j % 4] = " zero ";"
#define MMA(types, constraint)                                                                     \
  "#pragma unroll\n    for (int j = 0; j < 4; j++)\n"                                              \
  "      asm volatile(\"mma.sync.aligned." types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
  "{%0, %1, %2, %3};\" : \"+" constraint "\"(x[j][0]), \"+" constraint                             \
  "\"(x[j][1]), \"+" constraint "\"(x[j][2]), \"+" constraint                                      \
  "\"(x[j][3]) : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), "                                          \
  "\"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));"
// Lane l's 16 bytes of its warp's 512.
#define SHARED_PLACE                                                                               \
  "uint32_t at = (uint32_t)__cvta_generic_to_shared(shared) + threadIdx.x * 16, x[8] = {0};"
// Eight loads of 16 bytes by a lane, all of which are used.
#define LOADS(instruction)                                                                         \
  "uint32_t v[8][4];\n#pragma unroll\n    for (int j = 0; j < 8; j++) asm volatile(\"" instruction \
  " {%0, %1, %2, %3}, [%4];\" : \"=r\"(v[j][0]), \"=r\"(v[j][1]), \"=r\"(v[j][2]), "               \
  "\"=r\"(v[j][3]) : \"r\"(at + ((uint32_t)(i + j) & 7) * 4096) : \"memory\");\n#pragma unroll\n"  \
  "    for (int j = 0; j < 8; j++) x[j] ^= v[j][0] ^ v[j][1] ^ v[j][2] ^ v[j][3];"
// The address of 16 bytes, of the j-th of 8 rows of a block's threads in iteration i.
#define READ_WORDS(first, block_step)                                                              \
  "#pragma unroll\n    for (int j = 0; j < 8; j++) {\n"                                            \
  "      const uint64_t place = (" first " + ((uint64_t)i * 8 + j) * " block_step                  \
  " + threadIdx.x * 16) & (bytes - 1);\n"                                                          \
  "      uint32_t v[4];\n"                                                                         \
  "      asm volatile(\"ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4];\" : \"=r\"(v[0]), "            \
  "\"=r\"(v[1]), \"=r\"(v[2]), \"=r\"(v[3]) : \"l\"(in + place));\n"                               \
  "      x[j] += v[0] + v[1] + v[2] + v[3];\n    }"
#define WORDS "uint32_t x[8] = {0};"
// All blocks read all of it, each from a place of its own; or each a part of its own.
#define READ_ALL READ_WORDS("(uint64_t)blockIdx.x * 65536", "16384")
#define READ_PARTS READ_WORDS("(uint64_t)blockIdx.x * 16384", "gridDim.x * (uint64_t)16384")
#define COPY_PARTS                                                                                 \
  READ_PARTS "\n#pragma unroll\n    for (int j = 0; j < 8; j++) {\n"                               \
             "      const uint64_t place = ((uint64_t)blockIdx.x * 16384 + ((uint64_t)i * 8 + j) " \
             "* gridDim.x * (uint64_t)16384 + threadIdx.x * 16 + bytes / 2) & (bytes - 1);\n"      \
             "      asm volatile(\"st.global.v4.b32 [%0], {%1, %1, %1, %1};\" :: \"l\"(in + "      \
             "place), \"r\"(x[j]) : \"memory\");\n    }"
// A chain of loads, |step| bytes apart: |nought| is 0, but not to the compiler.
#define CHAIN(step)                                                                                \
  "asm volatile(\"ld.global.cg.u64 %0, [%1];\" : \"=l\"(v) : \"l\"(in + (((uint64_t)i * " step     \
  " + v) & (bytes - 1))));\n    v &= nought;"
#define NOUGHT "uint64_t v = 0;\n  const uint64_t nought = count >> 32;"

enum { MANY = 512, ALL = 1024 };
#define WGMMA(which, wide, chains)                                                                 \
  {                                                                                                \
    which, KILN_GPU_PROBE_CLOCKS, 90, true, false, 256, 500, 8, 4096,                              \
        "float x[" #chains "];\n  for (int j = 0; j < " #chains "; j++) x[j] = (float)n;\n"        \
        "  const uint64_t a = matrix(shared), b = matrix(shared + 32768);",                        \
        "asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"                            \
        "#pragma unroll\n    for (int j = 0; j < 8; j++) group_" #wide "(x, a + 2 * (j & 3), b + " \
        "2 * (j & 3));\n    asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n"  \
        "    asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");"                   \
  }

// clang-format off
const kiln_gpu_probe kiln_gpu_probes[] = {
  // figure, unit, capability, wgmma, all, threads, n, ops, bytes, declared, body
  {KILN_GPU_FMA_F32, KILN_GPU_PROBE_CLOCKS, 0, false, false, ALL, 8000, 8, 4096, FLOATS,
   CHAINS("fma.rn.f32 %0, %0, %1, %1;", "f")},
  {KILN_GPU_FMA_F16, KILN_GPU_PROBE_CLOCKS, 0, false, false, ALL, 1000, 8, 4096, PAIRS,
   CHAINS("fma.rn.f16x2 %0, %0, %1, %1;", "r")},
  {KILN_GPU_EXP2, KILN_GPU_PROBE_CLOCKS, 0, false, false, ALL, 500, 8, 4096, FLOATS,
   ONE_OPERAND("ex2.approx.ftz.f32 %0, %0;")},
  {KILN_GPU_RECIPROCAL, KILN_GPU_PROBE_CLOCKS, 0, false, false, ALL, 500, 8, 4096, FLOATS,
   ONE_OPERAND("rcp.approx.ftz.f32 %0, %0;")},
  {KILN_GPU_SQRT, KILN_GPU_PROBE_CLOCKS, 0, false, false, ALL, 500, 8, 4096, FLOATS,
   ONE_OPERAND("sqrt.approx.ftz.f32 %0, %0;")},
  {KILN_GPU_CONVERT, KILN_GPU_PROBE_CLOCKS, 0, false, false, ALL, 500, 16, 4096, FLOATS "\n  uint16_t h[8];",
   // there and back
   "#pragma unroll\n    for (int j = 0; j < 8; j++) asm volatile(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h[j]) : "
   "\"f\"(x[j]));\n"
   "#pragma unroll\n    for (int j = 0; j < 8; j++) asm volatile(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x[j]) : "
   "\"h\"(h[j]));"},
  {KILN_GPU_SHARED_LOAD, KILN_GPU_PROBE_CLOCKS, 0, false, false, ALL, 500, 8, 4096, SHARED_PLACE,
   LOADS("ld.shared.v4.b32")},
  {KILN_GPU_LDMATRIX, KILN_GPU_PROBE_CLOCKS, 75, false, false, ALL, 500, 8, 4096, SHARED_PLACE,
   LOADS("ldmatrix.sync.aligned.m8n8.x4.shared.b16")},
  {KILN_GPU_MMA_F16, KILN_GPU_PROBE_CLOCKS, 80, false, false, MANY, 500, 4, 4096, FRAGMENTS("float", "0.0f"),
   MMA("m16n8k16.row.col.f32.f16.f16.f32", "f")},
  {KILN_GPU_MMA_BF16, KILN_GPU_PROBE_CLOCKS, 80, false, false, MANY, 500, 4, 4096, FRAGMENTS("float", "0.0f"),
   MMA("m16n8k16.row.col.f32.bf16.bf16.f32", "f")},
  {KILN_GPU_MMA_TF32, KILN_GPU_PROBE_CLOCKS, 80, false, false, MANY, 500, 4, 4096, FRAGMENTS("float", "0.0f"),
   MMA("m16n8k8.row.col.f32.tf32.tf32.f32", "f")},
  {KILN_GPU_MMA_INT8, KILN_GPU_PROBE_CLOCKS, 80, false, false, MANY, 500, 4, 4096, FRAGMENTS("int", "0"),
   MMA("m16n8k32.row.col.s32.s8.s8.s32", "r")},
  WGMMA(KILN_GPU_WGMMA_64, 64, 32), WGMMA(KILN_GPU_WGMMA_128, 128, 64), WGMMA(KILN_GPU_WGMMA_192, 192, 96),
  WGMMA(KILN_GPU_WGMMA_256, 256, 128),
  {KILN_GPU_BARRIER, KILN_GPU_PROBE_LATENCY, 0, false, false, 256, 500, 4, 4096, "",
   "__syncthreads(); __syncthreads(); __syncthreads(); __syncthreads();"},
  {KILN_GPU_SHARED_LATENCY, KILN_GPU_PROBE_LATENCY, 0, false, false, 32, 1000, 4, 4096,
   "uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);\n  ((uint32_t *)shared)[threadIdx.x] = at;\n  "
   "__syncwarp();",
   "#pragma unroll\n    for (int j = 0; j < 4; j++) asm volatile(\"ld.shared.b32 %0, [%0];\" : \"+r\"(at));"},
  {KILN_GPU_L2_LATENCY, KILN_GPU_PROBE_LATENCY, 0, false, false, 32, 4096, 1, 4 << 20, NOUGHT, CHAIN("4352")},
  {KILN_GPU_L2_UNIT, KILN_GPU_PROBE_BYTES, 0, false, false, ALL, 256, 8 * 16 * ALL, 8 << 20, WORDS, READ_ALL},
  {KILN_GPU_L2_ALL, KILN_GPU_PROBE_BYTES, 0, false, true, ALL, 512, 8 * 16 * ALL, 8 << 20, WORDS, READ_ALL},
  {KILN_GPU_MEMORY_UNIT, KILN_GPU_PROBE_BYTES, 0, false, false, ALL, 1024, 8 * 16 * ALL, UINT64_C(1) << 30, WORDS,
   READ_PARTS},
  {KILN_GPU_MEMORY_ALL, KILN_GPU_PROBE_BYTES, 0, false, true, ALL, 56, 8 * 16 * ALL, UINT64_C(1) << 30, WORDS,
   READ_PARTS},
  {KILN_GPU_COPY_ALL, KILN_GPU_PROBE_BYTES, 0, false, true, ALL, 28, 2 * 8 * 16 * ALL, UINT64_C(1) << 30, WORDS,
   COPY_PARTS},
  // behind reads of all of |in|, which leave none of these lines in the L2
  {KILN_GPU_MEMORY_LATENCY, KILN_GPU_PROBE_LATENCY, 0, false, false, 32, 2000, 1, UINT64_C(1) << 30, NOUGHT,
   CHAIN("524416")},
  {KILN_GPU_CP_ASYNC_LATENCY, KILN_GPU_PROBE_LATENCY, 80, false, false, 128, 1000, 1, 4 << 20,
   "const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared) + threadIdx.x * 16;",
   "asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16;\" :: \"r\"(at), \"l\"(in + (((uint64_t)i * 2048 + "
   "threadIdx.x * 16) & (bytes - 1))) : \"memory\");\n"
   "    asm volatile(\"cp.async.commit_group; cp.async.wait_group 0;\" ::: \"memory\");\n    __syncthreads();"},
  {KILN_GPU_TMA_LATENCY, KILN_GPU_PROBE_LATENCY, 90, false, false, 128, 1000, 1, 4 << 20,
   "const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared + 1024), bar = "
   "(uint32_t)__cvta_generic_to_shared(shared);\n"
   "  if (threadIdx.x == 0) asm volatile(\"mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;\" "
   ":: \"r\"(bar) : \"memory\");",
   "if (threadIdx.x == 0) {\n"
   "      asm volatile(\"mbarrier.arrive.expect_tx.shared.b64 _, [%0], 8192;\" :: \"r\"(bar) : \"memory\");\n"
   "      asm volatile(\"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 8192, [%2];\" "
   ":: \"r\"(at), \"l\"(in + (((uint64_t)i * 8192) & (bytes - 1))), \"r\"(bar) : \"memory\");\n"
   "    }\n"
   "    asm volatile(\"{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1; @!done bra "
   "again; }\" :: \"r\"(bar), \"r\"(i & 1) : \"memory\");\n"
   "    __syncthreads();"},
};
// clang-format on
const int kiln_n_gpu_probes = KILN_LEN(kiln_gpu_probes);

static const char HEAD[] =
    "typedef unsigned short uint16_t;\ntypedef unsigned int uint32_t;\n"
    "typedef unsigned long long uint64_t;\n"
    "static __device__ __forceinline__ uint64_t nanoseconds() {\n"
    "  uint64_t t;\n  asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(t));\n  return t;\n}\n"
    // descriptor of 8 rows of 128 bytes after another, swizzled
    "static __device__ __forceinline__ uint64_t matrix(const char *at) {\n"
    "  return (uint64_t)((uint32_t)__cvta_generic_to_shared(at) >> 4 & 0x3fff) | 64ull << 16 |\n"
    "         64ull << 32 | 1ull << 62;\n}\n";

// The function of a wgmma instruction, of n / 2 sums of a thread.
static void put_group(kiln_text *t, int n) {
  kiln_text_printf(t,
                   "static __device__ __forceinline__ void group_%d(float *d, uint64_t x, uint64_t "
                   "y) {\n  asm volatile(\"wgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {",
                   n, n);
  for (int i = 0; i < n / 2; i++) kiln_text_printf(t, "%s%%%d", i ? ", " : "", i);
  kiln_text_printf(t, "}, %%%d, %%%d, 1, 1, 1, 0, 0;\" : ", n / 2, n / 2 + 1);
  for (int i = 0; i < n / 2; i++) kiln_text_printf(t, "%s\"+f\"(d[%d])", i ? ", " : "", i);
  kiln_text_add(t, " : \"l\"(x), \"l\"(y));\n}\n");
}

// Sinks that the compiler cannot remove: |n| is never negative.
static const char *sink_of(const kiln_gpu_probe *p) {
  if (strstr(p->declared, " x[4][4]"))
    return "for (int j = 0; j < 16; j++) out[j] = (uint32_t)x[j / 4][j % 4];";
  if (strstr(p->declared, " x[8]")) return "for (int j = 0; j < 8; j++) out[j] = (uint32_t)x[j];";
  if (strstr(p->declared, "float x[")) return "out[0] = (uint32_t)(x[0] + x[31]);";
  if (strstr(p->declared, "uint64_t v")) return "out[0] = (uint32_t)v;";
  return strstr(p->declared, "at = ") && !strstr(p->declared, "const uint32_t at") ? "out[0] = at;"
                                                                                   : "";
}

const char *kiln_gpu_probe_source(kiln_ctx *cx, const kiln_gpu_probe *p) {
  static const int widths[] = {64, 128, 192, 256};
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  kiln_text_add(&t, HEAD);
  for (size_t i = 0; i < KILN_LEN(widths) && p->needs_wgmma; i++)
    if ((int)p->figure == KILN_GPU_WGMMA_64 + (int)i) put_group(&t, widths[i]);
  kiln_text_printf(
      &t,
      "extern \"C\" __global__ void __launch_bounds__(%d) probe(uint32_t *out, char *in, "
      "uint64_t bytes, uint64_t count) {\n  const int n = (int)count;\n"
      "  extern __shared__ __align__(1024) char shared[];\n  %s\n"
      "  __syncthreads();\n"
      "  const uint64_t began = nanoseconds();\n  const long long begin = clock64();\n"
      "#pragma unroll 1\n  for (int i = 0; i < n; i++) {\n    %s\n  }\n"
      "  __syncthreads();\n"
      "  const long long end = clock64();\n  const uint64_t ended = nanoseconds();\n"
      "  if (n < 0) {\n    %s\n  }\n"
      "  if (threadIdx.x == 0) {\n"
      "    out[2 * blockIdx.x] = (uint32_t)(end - begin);\n"
      "    out[2 * blockIdx.x + 1] = (uint32_t)(ended - began);\n  }\n}\n",
      p->threads, p->declared, p->body, sink_of(p));
  return t.data;
}

const char *kiln_gpu_spin_source(kiln_ctx *cx, bool early) {
  return kiln_arena_printf(
      &cx->perm,
      "extern \"C\" __global__ void probe(unsigned *out, char *in, unsigned long long bytes, "
      "unsigned "
      "long long count) {\n  const int n = (int)count;\n%s"
      "  const long long begin = clock64();\n"
      "  while (clock64() - begin < n) continue;\n"
      "  if (n < 0) out[0] = (unsigned)bytes;\n}\n",
      early ? "  asm volatile(\"griddepcontrol.launch_dependents; griddepcontrol.wait;\" ::: "
              "\"memory\");\n"
            : "");
}

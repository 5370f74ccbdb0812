// TMA: bulk tensor copies to shared memory by the tensor memory accelerator (sm_90a). A copy takes
// a tile of R rows of 64 elements, 128 bytes, from a tensor, or in im2col mode from its windows
// (im2col.h), to contiguous swizzled rows. One thread issues it and goes on; its bytes are counted
// by an mbarrier in shared memory, on which the readers wait (pipeline.c, emit.c).
// source: PTX ISA, "cp.async.bulk.tensor", "mbarrier"
#include "target/gpu/instr.h"

#include <string.h>

#define TILE(n, type, word)                                                                        \
  {                                                                                                \
    .name = "tma." #n "x64." type, .was = "box." #n "x64." type,                                   \
    .meaning = "def tile(" word "(" #n ", 64) A) -> (D) {\n  D(i, j) = A(i, j)\n}\n",              \
    .spelling = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes",     \
    .feature = "sm_90a", .strides = {{64, 1}, {0, 1}}, .swizzled = 1, .is_tma = true               \
  }
#define IM2COL(n, type, word)                                                                      \
  {                                                                                                \
    .name = "im2col." #n "x64." type, .was = "window." #n "x64." type,                             \
    .meaning = "def tile(" word "(" #n ", 64) A) -> (D) {\n  D(i, j) = A(i, j)\n}\n",              \
    .spelling =                                                                                    \
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes",      \
    .feature = "sm_90a", .strides = {{64, 1}}, .swizzled = 1, .is_tma = true, .is_im2col = true    \
  }
#define BOTH(n)                                                                                    \
  TILE(n, "f16", "float16"), TILE(n, "bf16", "bfloat16"), IM2COL(n, "f16", "float16"),             \
      IM2COL(n, "bf16", "bfloat16")

static const kiln_instr table[] = {BOTH(64), BOTH(128), BOTH(192), BOTH(256)};

int kiln_tma_instrs(const kiln_machine *m, kiln_instr *out) {
  for (size_t i = 0; out && i < KILN_LEN(table); i++) {
    out[i] = table[i];
    out[i].is_there = m->gpu.has_wgmma;
  }
  return (int)KILN_LEN(table);
}

static const char TEXT[] =
    "typedef struct __align__(64) kiln_map {\n"
    "  uint64_t words[16];\n"
    "} kiln_map;\n"
    "static __device__ __forceinline__ uint32_t kiln_place(const void *p) {\n"
    "  return (uint32_t)__cvta_generic_to_shared(p);\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_mbarrier_init(uint64_t *full, int stages, int "
    "copies) "
    "{\n"
    "  for (int i = 0; i < stages; i++)\n"
    "    asm volatile(\"mbarrier.init.shared::cta.b64 [%0], %1;\" :: \"r\"(kiln_place(full + i)), "
    "\"r\"(copies) : \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_map_fetch(const kiln_map *map) {\n"
    "  asm volatile(\"prefetch.tensormap [%0];\" :: \"l\"(map) : \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_mbarrier_expect(uint64_t *full, int bytes) {\n"
    "  asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\"\n"
    "      :: \"r\"(kiln_place(full)), \"r\"(bytes) : \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_tma_copy(uint16_t *to, const kiln_map *from, int "
    "column, "
    "int row,\n    uint64_t *full) {\n"
    "  asm volatile(\"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
    "\"\n"
    "      \"[%0], [%1, {%3, %4}], [%2];\" :: \"r\"(kiln_place(to)), \"l\"(from), "
    "\"r\"(kiln_place(full)),\n"
    "      \"r\"(column), \"r\"(row) : \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_tma(uint16_t *to, const kiln_map *from, int "
    "column, "
    "int row,\n    uint64_t *full, int bytes) {\n"
    "  kiln_mbarrier_expect(full, bytes);\n"
    "  kiln_tma_copy(to, from, column, row, full);\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_im2col_copy(uint16_t *to, const kiln_map *from, "
    "int "
    "channel,\n    int column, int row, int image, int right, int down, uint64_t *full) {\n"
    "  asm volatile(\"cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::"
    "bytes \"\n"
    "      \"[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};\" :: \"r\"(kiln_place(to)), "
    "\"l\"(from),\n"
    "      \"r\"(kiln_place(full)), \"r\"(channel), \"r\"(column), \"r\"(row), \"r\"(image),\n"
    "      \"h\"((uint16_t)right), \"h\"((uint16_t)down) : \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_im2col(uint16_t *to, const kiln_map *from, int "
    "channel,\n    int column, int row, int image, int right, int down, uint64_t *full, int bytes) "
    "{\n"
    "  kiln_mbarrier_expect(full, bytes);\n"
    "  kiln_im2col_copy(to, from, channel, column, row, image, right, down, full);\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_mbarrier_wait(uint64_t *full, uint32_t *phases, "
    "int "
    "stage) {\n"
    "  asm volatile(\"{\\n.reg .pred p;\\nWAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], "
    "%1;\\n\"\n"
    "      \"@!p bra WAIT;\\n}\" :: \"r\"(kiln_place(full + stage)), \"r\"(*phases >> stage & 1) : "
    "\"memory\");\n"
    "  *phases ^= 1u << stage;\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_mbarrier_arrive(uint64_t *empty) {\n"
    "  if (threadIdx.x % 32 == 0)\n"
    "    asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0];\" :: \"r\"(kiln_place(empty)) : "
    "\"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_mbarrier_await(uint64_t *empty, int parity) {\n"
    "  uint32_t phase = (uint32_t)parity;\n"
    "  if (threadIdx.x + threadIdx.y + threadIdx.z == 0) kiln_mbarrier_wait(empty, &phase, 0);\n"
    "}\n";
const char *kiln_tma_text(void) { return TEXT; }

// Multicast: a block copies the rows of a tile that belong to its number among |peers| to all of
// them; each waits for |bytes|, the whole tile's. And empty barriers in other blocks' shared
// memory.
// source: PTX ISA, "cp.async.bulk.tensor" (.multicast::cluster), "mapa", "barrier.cluster"
static const char SHARED[] =
    "static __device__ __forceinline__ uint32_t kiln_number(void) {\n"
    "  uint32_t number;\n"
    "  asm(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(number));\n"
    "  return number;\n"
    "}\n"
    "static __device__ __forceinline__ uint32_t kiln_peers(uint64_t of) {\n"
    "  return (uint32_t)(of >> 8 * kiln_number()) & 255;\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_cluster_wait(void) {\n"
    "  asm "
    "volatile(\"barrier.cluster.arrive.relaxed.aligned;\\nbarrier.cluster.wait.acquire.aligned;\" "
    "::: \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_tma_multicast(uint16_t *to, const kiln_map *from, "
    "int "
    "column,\n    int row, uint64_t *full, int bytes, int rows, uint32_t peers) {\n"
    "  const int first = __popc(peers & ((1u << kiln_number()) - 1)) * rows;\n"
    "  kiln_mbarrier_expect(full, bytes);\n"
    "  asm volatile(\"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    ".multicast::cluster \"\n"
    "      \"[%0], [%1, {%3, %4}], [%2], %5;\" :: \"r\"(kiln_place(to + first * 64)), "
    "\"l\"(from),\n"
    "      \"r\"(kiln_place(full)), \"r\"(column), \"r\"(row + first), "
    "\"h\"((uint16_t)peers) : \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_mbarrier_arrive_all(uint64_t *empty, uint32_t "
    "peers) {\n"
    "  if (peers >> threadIdx.x % 32 & 1)\n"
    "    asm volatile(\"{\\n.reg .b32 there;\\nmapa.shared::cluster.u32 there, %0, %1;\\n\"\n"
    "        \"mbarrier.arrive.shared::cluster.b64 _, [there];\\n}\"\n"
    "        :: \"r\"(kiln_place(empty)), \"r\"(threadIdx.x % 32) : \"memory\");\n"
    "}\n";
const char *kiln_cluster_text(void) { return SHARED; }

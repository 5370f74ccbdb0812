// CPU features as a table of CPUID bits (x86) or auxiliary-vector bits (aarch64), by LLVM's names.
#include "runtime/features.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

const char *kiln_cpu_architecture(void) { return "x86_64"; }

enum { EAX, EBX, ECX, EDX };
// The register state that the operating system must save for a feature to be usable.
typedef enum state { STATE_ANY, STATE_AVX, STATE_AVX512, STATE_AMX } state;

static const struct {
  const char *name;
  uint32_t leaf, sub;
  int reg, bit;
  state os;
} features[] = {
    {"sse3", 1, 0, ECX, 0, STATE_ANY},
    {"pclmul", 1, 0, ECX, 1, STATE_ANY},
    {"ssse3", 1, 0, ECX, 9, STATE_ANY},
    {"fma", 1, 0, ECX, 12, STATE_AVX},
    {"cx16", 1, 0, ECX, 13, STATE_ANY},
    {"sse4.1", 1, 0, ECX, 19, STATE_ANY},
    {"sse4.2", 1, 0, ECX, 20, STATE_ANY},
    {"movbe", 1, 0, ECX, 22, STATE_ANY},
    {"popcnt", 1, 0, ECX, 23, STATE_ANY},
    {"aes", 1, 0, ECX, 25, STATE_ANY},
    {"avx", 1, 0, ECX, 28, STATE_AVX},
    {"f16c", 1, 0, ECX, 29, STATE_AVX},
    {"bmi", 7, 0, EBX, 3, STATE_ANY},
    {"avx2", 7, 0, EBX, 5, STATE_AVX},
    {"bmi2", 7, 0, EBX, 8, STATE_ANY},
    {"avx512f", 7, 0, EBX, 16, STATE_AVX512},
    {"avx512dq", 7, 0, EBX, 17, STATE_AVX512},
    {"adx", 7, 0, EBX, 19, STATE_ANY},
    {"avx512ifma", 7, 0, EBX, 21, STATE_AVX512},
    {"avx512cd", 7, 0, EBX, 28, STATE_AVX512},
    {"sha", 7, 0, EBX, 29, STATE_ANY},
    {"avx512bw", 7, 0, EBX, 30, STATE_AVX512},
    {"avx512vl", 7, 0, EBX, 31, STATE_AVX512},
    {"avx512vbmi", 7, 0, ECX, 1, STATE_AVX512},
    {"avx512vbmi2", 7, 0, ECX, 6, STATE_AVX512},
    {"gfni", 7, 0, ECX, 8, STATE_ANY},
    {"vaes", 7, 0, ECX, 9, STATE_AVX},
    {"vpclmulqdq", 7, 0, ECX, 10, STATE_AVX},
    {"avx512vnni", 7, 0, ECX, 11, STATE_AVX512},
    {"avx512bitalg", 7, 0, ECX, 12, STATE_AVX512},
    {"avx512vpopcntdq", 7, 0, ECX, 14, STATE_AVX512},
    {"movdiri", 7, 0, ECX, 27, STATE_ANY},
    {"movdir64b", 7, 0, ECX, 28, STATE_ANY},
    {"avx512vp2intersect", 7, 0, EDX, 8, STATE_AVX512},
    {"amx-bf16", 7, 0, EDX, 22, STATE_AMX},
    {"avx512fp16", 7, 0, EDX, 23, STATE_AVX512},
    {"amx-tile", 7, 0, EDX, 24, STATE_AMX},
    {"amx-int8", 7, 0, EDX, 25, STATE_AMX},
    {"avxvnni", 7, 1, EAX, 4, STATE_AVX},
    {"avx512bf16", 7, 1, EAX, 5, STATE_AVX512},
    {"avxifma", 7, 1, EAX, 23, STATE_AVX},
    {"avxvnniint8", 7, 1, EDX, 4, STATE_AVX},
    {"avxneconvert", 7, 1, EDX, 5, STATE_AVX},
    {"avxvnniint16", 7, 1, EDX, 10, STATE_AVX},
    {"lzcnt", 0x80000001u, 0, ECX, 5, STATE_ANY},
    {"sse4a", 0x80000001u, 0, ECX, 6, STATE_ANY},
    {"fma4", 0x80000001u, 0, ECX, 16, STATE_AVX},
    {"xop", 0x80000001u, 0, ECX, 11, STATE_AVX},
};

static bool cpuid(uint32_t leaf, uint32_t sub, uint32_t *regs) {
  return __get_cpuid_count(leaf, sub, &regs[EAX], &regs[EBX], &regs[ECX], &regs[EDX]);
}

static bool os_saves(state want) {
  uint32_t regs[4], low, high;
  if (want == STATE_ANY) return true;
  if (!cpuid(1, 0, regs) || !(regs[ECX] >> 27 & 1)) return false;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  uint32_t mask = 0x6;
  if (want == STATE_AVX512) mask = 0xe6;
  if (want == STATE_AMX) mask = 0x60000;
  return (low & mask) == mask;
}

static bool has(size_t i) {
  uint32_t regs[4];
  return cpuid(features[i].leaf, features[i].sub, regs) &&
         regs[features[i].reg] >> features[i].bit & 1 && os_saves(features[i].os);
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

const char *kiln_cpu_architecture(void) { return "aarch64"; }

// Bits of AT_HWCAP and AT_HWCAP2, by the Linux ABI.
static const struct {
  const char *name;
  unsigned long kind;
  int bit;
} features[] = {
    {"fp-armv8", AT_HWCAP, 0}, {"neon", AT_HWCAP, 1},  {"aes", AT_HWCAP, 3},
    {"sha2", AT_HWCAP, 6},     {"crc", AT_HWCAP, 7},   {"lse", AT_HWCAP, 8},
    {"fullfp16", AT_HWCAP, 9}, {"rdm", AT_HWCAP, 12},  {"dotprod", AT_HWCAP, 20},
    {"sve", AT_HWCAP, 22},     {"sve2", AT_HWCAP2, 1}, {"i8mm", AT_HWCAP2, 13},
    {"bf16", AT_HWCAP2, 14},
};

static bool has(size_t i) { return getauxval(features[i].kind) >> features[i].bit & 1; }

#else
const char *kiln_cpu_architecture(void) { return "unknown"; }
static const struct { const char *name; } features[] = {{"none"}};
static bool has(size_t i) {
  (void)i;
  return false;
}
#endif

static int find(const char *name) {
  for (size_t i = 0; i < sizeof features / sizeof features[0]; i++)
    if (strcmp(features[i].name, name) == 0) return (int)i;
  return -1;
}

bool kiln_cpu_knows(const char *name) {
  return strcmp(name, kiln_cpu_architecture()) == 0 || find(name) >= 0;
}

bool kiln_cpu_has(const char *name) {
  if (strcmp(name, kiln_cpu_architecture()) == 0) return true;
  int i = find(name);
  return i >= 0 && has((size_t)i);
}

kiln_status kiln_cpu_check(uint32_t n, const char *const *needs, const char *place,
                           kiln_diag *diag) {
  char missing[1024] = "";
  size_t at = 0;
  for (uint32_t i = 0; i < n; i++) {
    const size_t bytes = strlen(needs[i]);
    if (kiln_cpu_has(needs[i]) || at + bytes + 2 >= sizeof missing) continue;
    if (at) missing[at++] = ' ';
    memcpy(missing + at, needs[i], bytes + 1);
    at += bytes;
  }
  if (at == 0) return KILN_OK;
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, place,
                        "CPU: the module needs features that this machine must have, missing: %s",
                        missing);
}

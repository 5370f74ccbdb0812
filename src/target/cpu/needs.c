// The extensions that an object's code needs of an x86-64 processor, by its encodings. A table says
// which opcodes belong to which extension. Code is decoded linearly, since LLVM puts no data
// between instructions. An unknown instruction needs all features that the code was compiled for.
// source: Intel SDM 2, chapter 2 and appendix A; AMD APM 3 and 4
#include "target/cpu/cpu.h"

#include <elf.h>
#include <string.h>

// --- tables ---

// An encoding's opcode map.
typedef enum space {
  LEGACY_1,
  LEGACY_0F,
  LEGACY_0F38,
  LEGACY_0F3A,
  VEX_0F,
  VEX_0F38,
  VEX_0F3A,
  EVEX_0F,
  EVEX_0F38,
  EVEX_0F3A,
  EVEX_5,
  EVEX_6,
} space;
enum { N_SPACES = EVEX_6 + 1 };

enum { ANY = 0xff, P0 = 1, P66 = 2, PF3 = 4, PF2 = 8 }; // prefixes as bits
enum {
  W0 = 1,
  W1 = 2,
  L128 = 4,
  L256 = 8,
  L512 = 16,
  REGISTER = 32,
  MEMORY = 64
};                              // what else must hold
#define REG(n) (1 << (8 + (n))) // the three bits of ModRM that extend the opcode
#define LONG (L256 | L512)

typedef struct row {
  space space;
  unsigned char first, last; // opcodes
  unsigned prefixes;         // a bit set: one of these
  unsigned when;             // a bit set: one condition of each kind that has a bit
  // "": the x86-64 baseline; otherwise LLVM's names
  const char *needs;
} row;

// clang-format off
// The last matching row counts.
static const row rows[] = {
    {LEGACY_1,    0x00, 0xff, ANY,       0,        ""},
    {LEGACY_0F,   0x0d, 0x0d, ANY,       0,        ""}, // prefetchw; a no-op without its extension
    {LEGACY_0F,   0x10, 0x1f, ANY,       0,        ""},
    {LEGACY_0F,   0x12, 0x12, PF3 | PF2, 0,        "sse3"},
    {LEGACY_0F,   0x16, 0x16, PF3,       0,        "sse3"},
    {LEGACY_0F,   0x28, 0x2f, ANY,       0,        ""},
    {LEGACY_0F,   0x2b, 0x2b, PF3 | PF2, 0,        "sse4a"},
    {LEGACY_0F,   0x40, 0x77, ANY,       0,        ""},
    {LEGACY_0F,   0x78, 0x79, P66 | PF2, 0,        "sse4a"},
    {LEGACY_0F,   0x7c, 0x7d, P66 | PF2, 0,        "sse3"},
    {LEGACY_0F,   0x7e, 0xa5, ANY,       0,        ""},
    {LEGACY_0F,   0xab, 0xad, ANY,       0,        ""},
    {LEGACY_0F,   0xae, 0xae, P0,        MEMORY | REG(0) | REG(1) | REG(2) | REG(3) | REG(7), ""},
    {LEGACY_0F,   0xae, 0xae, P0,        REGISTER | REG(5) | REG(6) | REG(7), ""},
    {LEGACY_0F,   0xaf, 0xb7, ANY,       0,        ""},
    {LEGACY_0F,   0xb8, 0xb8, PF3,       0,        "popcnt"},
    {LEGACY_0F,   0xba, 0xc6, ANY,       0,        ""},
    {LEGACY_0F,   0xbc, 0xbc, PF3,       0,        "bmi"}, // decodes as rep bsf without bmi
    {LEGACY_0F,   0xbd, 0xbd, PF3,       0,        "lzcnt"},
    {LEGACY_0F,   0xc7, 0xc7, P0,        MEMORY | W0 | REG(1), ""},
    {LEGACY_0F,   0xc7, 0xc7, P0,        MEMORY | W1 | REG(1), "cx16"},
    {LEGACY_0F,   0xc8, 0xfe, ANY,       0,        ""},
    {LEGACY_0F,   0xd0, 0xd0, P66 | PF2, 0,        "sse3"},
    {LEGACY_0F,   0xf0, 0xf0, PF2,       0,        "sse3"},
    {LEGACY_0F,   0x0b, 0x0b, ANY,       0,        ""},
    {LEGACY_0F38, 0x00, 0x0b, ANY,       0,        "ssse3"},
    {LEGACY_0F38, 0x10, 0x17, P66,       0,        "sse4.1"},
    {LEGACY_0F38, 0x1c, 0x1e, ANY,       0,        "ssse3"},
    {LEGACY_0F38, 0x20, 0x41, P66,       0,        "sse4.1"},
    {LEGACY_0F38, 0x37, 0x37, P66,       0,        "sse4.2"},
    {LEGACY_0F38, 0xc8, 0xcd, P0,        0,        "sha"},
    {LEGACY_0F38, 0xcf, 0xcf, P66,       0,        "gfni"},
    {LEGACY_0F38, 0xdb, 0xdf, P66,       0,        "aes"},
    {LEGACY_0F38, 0xf0, 0xf1, P0 | P66,  MEMORY,   "movbe"},
    {LEGACY_0F38, 0xf0, 0xf1, PF2,       0,        "sse4.2"},
    {LEGACY_0F38, 0xf6, 0xf6, P66 | PF3, 0,        "adx"},
    {LEGACY_0F38, 0xf8, 0xf8, P66,       MEMORY,   "movdir64b"},
    {LEGACY_0F38, 0xf9, 0xf9, P0,        MEMORY,   "movdiri"},
    {LEGACY_0F3A, 0x08, 0x22, P66,       0,        "sse4.1"},
    {LEGACY_0F3A, 0x0f, 0x0f, ANY,       0,        "ssse3"},
    {LEGACY_0F3A, 0x40, 0x42, P66,       0,        "sse4.1"},
    {LEGACY_0F3A, 0x44, 0x44, P66,       0,        "pclmul"},
    {LEGACY_0F3A, 0x60, 0x63, P66,       0,        "sse4.2"},
    {LEGACY_0F3A, 0xcc, 0xcc, P0,        0,        "sha"},
    {LEGACY_0F3A, 0xce, 0xcf, P66,       0,        "gfni"},
    {LEGACY_0F3A, 0xdf, 0xdf, P66,       0,        "aes"},

    {VEX_0F,      0x10, 0x17, ANY,       0,        "avx"},
    {VEX_0F,      0x28, 0x2f, ANY,       0,        "avx"},
    // mask instructions on q, d and, among those, the following
    {VEX_0F,      0x41, 0x4b, P0 | P66,  LONG,     "avx512bw"},
    {VEX_0F,      0x44, 0x44, P0 | P66,  L128,     "avx512bw"},
    {VEX_0F,      0x44, 0x44, P66,       L128 | W0, "avx512dq"},
    {VEX_0F,      0x44, 0x44, P0,        L128 | W0, "avx512f"},
    {VEX_0F,      0x41, 0x47, P0,        LONG | W0, "avx512f"},
    {VEX_0F,      0x41, 0x4b, P66,       LONG | W0, "avx512dq"},
    {VEX_0F,      0x4a, 0x4a, P0,        LONG | W0, "avx512dq"},
    {VEX_0F,      0x4b, 0x4b, P66,       LONG | W0, "avx512f"},
    {VEX_0F,      0x50, 0x5f, ANY,       0,        "avx"},
    {VEX_0F,      0x60, 0x6d, P66,       0,        "avx"},
    {VEX_0F,      0x60, 0x6d, P66,       LONG,     "avx2"},
    {VEX_0F,      0x6e, 0x6f, ANY,       0,        "avx"},
    {VEX_0F,      0x70, 0x76, ANY,       0,        "avx"},
    {VEX_0F,      0x70, 0x76, ANY,       LONG,     "avx2"},
    {VEX_0F,      0x77, 0x7f, ANY,       0,        "avx"},
    {VEX_0F,      0x90, 0x93, ANY,       0,        "avx512bw"},
    {VEX_0F,      0x90, 0x93, P0,        W0,       "avx512f"},
    {VEX_0F,      0x90, 0x93, P66,       W0,       "avx512dq"},
    {VEX_0F,      0x98, 0x99, P0 | P66,  0,        "avx512bw"},
    {VEX_0F,      0x98, 0x99, P66,       W0,       "avx512dq"},
    {VEX_0F,      0x98, 0x98, P0,        W0,       "avx512f"},
    {VEX_0F,      0x99, 0x99, P0,        W0,       "avx512dq"},
    {VEX_0F,      0xae, 0xae, P0,        MEMORY | REG(2) | REG(3), "avx"},
    {VEX_0F,      0xc2, 0xc6, ANY,       0,        "avx"},
    {VEX_0F,      0xd0, 0xd0, ANY,       0,        "avx"},
    {VEX_0F,      0xd1, 0xfe, ANY,       0,        "avx"},
    {VEX_0F,      0xd1, 0xfe, P66,       LONG,     "avx2"},
    {VEX_0F,      0xe6, 0xe7, ANY,       0,        "avx"},
    {VEX_0F38,    0x00, 0x0b, P66,       0,        "avx"},
    {VEX_0F38,    0x00, 0x0b, P66,       LONG,     "avx2"},
    {VEX_0F38,    0x0c, 0x0f, P66,       0,        "avx"},
    {VEX_0F38,    0x13, 0x13, P66,       0,        "f16c"},
    {VEX_0F38,    0x16, 0x16, P66,       0,        "avx2"},
    {VEX_0F38,    0x17, 0x1a, P66,       0,        "avx"},
    {VEX_0F38,    0x18, 0x19, P66,       REGISTER, "avx2"},
    {VEX_0F38,    0x1c, 0x41, P66,       0,        "avx"},
    {VEX_0F38,    0x1c, 0x41, P66,       LONG,     "avx2"},
    {VEX_0F38,    0x2c, 0x2f, P66,       0,        "avx"},
    {VEX_0F38,    0x36, 0x36, P66,       0,        "avx2"},
    {VEX_0F38,    0x45, 0x47, P66,       0,        "avx2"},
    {VEX_0F38,    0x50, 0x51, ANY,       W0,       "avxvnniint8"},
    {VEX_0F38,    0x50, 0x53, P66,       W0,       "avxvnni"},
    {VEX_0F38,    0x58, 0x5a, P66,       0,        "avx2"},
    {VEX_0F38,    0x72, 0x72, PF3,       0,        "avxneconvert"},
    {VEX_0F38,    0x78, 0x79, P66,       0,        "avx2"},
    {VEX_0F38,    0x8c, 0x8e, P66,       0,        "avx2"},
    {VEX_0F38,    0x90, 0x93, P66,       0,        "avx2"},
    {VEX_0F38,    0x96, 0xbf, P66,       0,        "fma"},
    {VEX_0F38,    0xb0, 0xb1, ANY,       0,        "avxneconvert"},
    {VEX_0F38,    0xb4, 0xb5, P66,       0,        "avxifma"},
    {VEX_0F38,    0xcf, 0xcf, P66,       0,        "avx gfni"},
    {VEX_0F38,    0xd2, 0xd3, ANY,       W0,       "avxvnniint16"},
    {VEX_0F38,    0xdb, 0xdf, P66,       0,        "avx aes"},
    {VEX_0F38,    0xdc, 0xdf, P66,       LONG,     "avx vaes"},
    {VEX_0F38,    0xf2, 0xf3, P0,        0,        "bmi"},
    {VEX_0F38,    0xf5, 0xf7, ANY,       0,        "bmi2"},
    {VEX_0F38,    0xf7, 0xf7, P0,        0,        "bmi"},
    {VEX_0F3A,    0x00, 0x02, P66,       0,        "avx2"},
    {VEX_0F3A,    0x04, 0x0f, P66,       0,        "avx"},
    {VEX_0F3A,    0x0e, 0x0f, P66,       LONG,     "avx2"},
    {VEX_0F3A,    0x14, 0x22, P66,       0,        "avx"},
    {VEX_0F3A,    0x1d, 0x1d, P66,       0,        "f16c"},
    {VEX_0F3A,    0x30, 0x33, P66,       0,        "avx512bw"},
    {VEX_0F3A,    0x30, 0x30, P66,       W0,       "avx512dq"},
    {VEX_0F3A,    0x30, 0x30, P66,       W1,       "avx512f"},
    {VEX_0F3A,    0x32, 0x32, P66,       W0,       "avx512dq"},
    {VEX_0F3A,    0x32, 0x32, P66,       W1,       "avx512f"},
    {VEX_0F3A,    0x38, 0x39, P66,       0,        "avx2"},
    {VEX_0F3A,    0x40, 0x42, P66,       0,        "avx"},
    {VEX_0F3A,    0x42, 0x42, P66,       LONG,     "avx2"},
    {VEX_0F3A,    0x44, 0x44, P66,       0,        "avx pclmul"},
    {VEX_0F3A,    0x44, 0x44, P66,       LONG,     "avx vpclmulqdq"},
    {VEX_0F3A,    0x46, 0x46, P66,       0,        "avx2"},
    {VEX_0F3A,    0x4a, 0x4c, P66,       0,        "avx"},
    {VEX_0F3A,    0x4c, 0x4c, P66,       LONG,     "avx2"},
    {VEX_0F3A,    0x5c, 0x5f, P66,       0,        "fma4"},
    {VEX_0F3A,    0x60, 0x63, P66,       0,        "avx"},
    {VEX_0F3A,    0x68, 0x6f, P66,       0,        "fma4"},
    {VEX_0F3A,    0x78, 0x7f, P66,       0,        "fma4"},
    {VEX_0F3A,    0xce, 0xcf, P66,       0,        "avx gfni"},
    {VEX_0F3A,    0xdf, 0xdf, P66,       0,        "avx aes"},
    {VEX_0F3A,    0xf0, 0xf0, PF2,       0,        "bmi2"},

    {EVEX_0F,     0x10, 0x17, ANY,       0,        "avx512f"},
    {EVEX_0F,     0x28, 0x2f, ANY,       0,        "avx512f"},
    {EVEX_0F,     0x51, 0x5f, ANY,       0,        "avx512f"},
    {EVEX_0F,     0x54, 0x57, ANY,       0,        "avx512dq"},
    {EVEX_0F,     0x5b, 0x5b, P0,        W1,       "avx512dq"},
    {EVEX_0F,     0x60, 0x6b, P66,       0,        "avx512bw"},
    {EVEX_0F,     0x62, 0x62, P66,       0,        "avx512f"},
    {EVEX_0F,     0x66, 0x66, P66,       0,        "avx512f"},
    {EVEX_0F,     0x6a, 0x6a, P66,       0,        "avx512f"},
    {EVEX_0F,     0x6c, 0x70, ANY,       0,        "avx512f"},
    {EVEX_0F,     0x6f, 0x70, PF2,       0,        "avx512bw"},
    {EVEX_0F,     0x70, 0x70, PF3,       0,        "avx512bw"},
    {EVEX_0F,     0x71, 0x71, P66,       0,        "avx512bw"},
    {EVEX_0F,     0x72, 0x73, P66,       0,        "avx512f"},
    {EVEX_0F,     0x73, 0x73, P66,       REG(3) | REG(7), "avx512bw"},
    {EVEX_0F,     0x74, 0x75, P66,       0,        "avx512bw"},
    {EVEX_0F,     0x76, 0x7f, ANY,       0,        "avx512f"},
    {EVEX_0F,     0x78, 0x7b, P66,       0,        "avx512dq"},
    {EVEX_0F,     0x7a, 0x7a, PF3 | PF2, W1,       "avx512dq"},
    {EVEX_0F,     0x7f, 0x7f, PF2,       0,        "avx512bw"},
    {EVEX_0F,     0xc2, 0xc6, ANY,       0,        "avx512f"},
    {EVEX_0F,     0xc4, 0xc5, ANY,       0,        "avx512bw"},
    {EVEX_0F,     0xd1, 0xfe, P66,       0,        "avx512bw"},
    {EVEX_0F,     0xd2, 0xd4, P66,       0,        "avx512f"},
    {EVEX_0F,     0xd6, 0xd6, P66,       0,        "avx512f"},
    {EVEX_0F,     0xdb, 0xdb, P66,       0,        "avx512f"},
    {EVEX_0F,     0xdf, 0xdf, P66,       0,        "avx512f"},
    {EVEX_0F,     0xe2, 0xe2, P66,       0,        "avx512f"},
    {EVEX_0F,     0xe6, 0xe7, ANY,       0,        "avx512f"},
    {EVEX_0F,     0xe6, 0xe6, PF3,       W1,       "avx512dq"},
    {EVEX_0F,     0xeb, 0xeb, P66,       0,        "avx512f"},
    {EVEX_0F,     0xef, 0xef, P66,       0,        "avx512f"},
    {EVEX_0F,     0xf2, 0xf4, P66,       0,        "avx512f"},
    {EVEX_0F,     0xfa, 0xfb, P66,       0,        "avx512f"},
    {EVEX_0F,     0xfe, 0xfe, P66,       0,        "avx512f"},
    {EVEX_0F38,   0x00, 0x0b, P66,       0,        "avx512bw"},
    {EVEX_0F38,   0x0c, 0x3f, P66 | PF3, 0,        "avx512f"},
    {EVEX_0F38,   0x10, 0x10, PF3,       0,        "avx512bw"},
    {EVEX_0F38,   0x10, 0x12, P66,       0,        "avx512bw"},
    {EVEX_0F38,   0x19, 0x19, P66,       W0,       "avx512dq"},
    {EVEX_0F38,   0x1a, 0x1a, P66,       W1,       "avx512dq"},
    {EVEX_0F38,   0x1b, 0x1b, P66,       W0,       "avx512dq"},
    {EVEX_0F38,   0x1c, 0x1d, P66,       0,        "avx512bw"},
    {EVEX_0F38,   0x20, 0x20, P66 | PF3, 0,        "avx512bw"},
    {EVEX_0F38,   0x26, 0x26, P66 | PF3, 0,        "avx512bw"},
    {EVEX_0F38,   0x28, 0x29, PF3,       0,        "avx512bw"},
    {EVEX_0F38,   0x2a, 0x2a, PF3,       0,        "avx512cd"},
    {EVEX_0F38,   0x2b, 0x2b, P66,       0,        "avx512bw"},
    {EVEX_0F38,   0x30, 0x30, P66 | PF3, 0,        "avx512bw"},
    {EVEX_0F38,   0x38, 0x38, P66,       0,        "avx512bw"},
    {EVEX_0F38,   0x38, 0x39, PF3,       0,        "avx512dq"},
    {EVEX_0F38,   0x3a, 0x3a, P66,       0,        "avx512bw"},
    {EVEX_0F38,   0x3a, 0x3a, PF3,       0,        "avx512cd"},
    {EVEX_0F38,   0x3c, 0x3c, P66,       0,        "avx512bw"},
    {EVEX_0F38,   0x3e, 0x3e, P66,       0,        "avx512bw"},
    {EVEX_0F38,   0x40, 0x4f, P66,       0,        "avx512f"},
    {EVEX_0F38,   0x40, 0x40, P66,       W1,       "avx512dq"},
    {EVEX_0F38,   0x44, 0x44, P66,       0,        "avx512cd"},
    {EVEX_0F38,   0x50, 0x53, P66,       0,        "avx512vnni"},
    {EVEX_0F38,   0x52, 0x52, PF3,       0,        "avx512bf16"},
    {EVEX_0F38,   0x54, 0x54, P66,       0,        "avx512bitalg"},
    {EVEX_0F38,   0x55, 0x55, P66,       0,        "avx512vpopcntdq"},
    {EVEX_0F38,   0x58, 0x5b, P66,       0,        "avx512f"},
    {EVEX_0F38,   0x59, 0x59, P66,       W0,       "avx512dq"},
    {EVEX_0F38,   0x5a, 0x5a, P66,       W1,       "avx512dq"},
    {EVEX_0F38,   0x5b, 0x5b, P66,       W0,       "avx512dq"},
    {EVEX_0F38,   0x62, 0x63, P66,       0,        "avx512vbmi2"},
    {EVEX_0F38,   0x64, 0x65, P66,       0,        "avx512f"},
    {EVEX_0F38,   0x66, 0x66, P66,       0,        "avx512bw"},
    {EVEX_0F38,   0x68, 0x68, PF2,       0,        "avx512vp2intersect"},
    {EVEX_0F38,   0x70, 0x73, P66,       0,        "avx512vbmi2"},
    {EVEX_0F38,   0x72, 0x72, PF3 | PF2, 0,        "avx512bf16"},
    {EVEX_0F38,   0x75, 0x7f, P66,       0,        "avx512f"},
    {EVEX_0F38,   0x75, 0x75, P66,       W0,       "avx512vbmi"},
    {EVEX_0F38,   0x75, 0x75, P66,       W1,       "avx512bw"},
    {EVEX_0F38,   0x78, 0x7b, P66,       0,        "avx512bw"},
    {EVEX_0F38,   0x7d, 0x7d, P66,       W0,       "avx512vbmi"},
    {EVEX_0F38,   0x7d, 0x7d, P66,       W1,       "avx512bw"},
    {EVEX_0F38,   0x83, 0x83, P66,       0,        "avx512vbmi"},
    {EVEX_0F38,   0x88, 0x8b, P66,       0,        "avx512f"},
    {EVEX_0F38,   0x8d, 0x8d, P66,       W0,       "avx512vbmi"},
    {EVEX_0F38,   0x8d, 0x8d, P66,       W1,       "avx512bw"},
    {EVEX_0F38,   0x8f, 0x8f, P66,       0,        "avx512bitalg"},
    {EVEX_0F38,   0x90, 0xbf, P66,       0,        "avx512f"},
    {EVEX_0F38,   0xb4, 0xb5, P66,       0,        "avx512ifma"},
    {EVEX_0F38,   0xc4, 0xc4, P66,       0,        "avx512cd"},
    {EVEX_0F38,   0xcf, 0xcf, P66,       0,        "avx512f gfni"},
    {EVEX_0F38,   0xdc, 0xdf, P66,       0,        "avx512f vaes"},
    {EVEX_0F3A,   0x00, 0x0b, P66,       0,        "avx512f"},
    {EVEX_0F3A,   0x08, 0x08, P0,        0,        "avx512fp16"},
    {EVEX_0F3A,   0x0a, 0x0a, P0,        0,        "avx512fp16"},
    {EVEX_0F3A,   0x0f, 0x0f, P66,       0,        "avx512bw"},
    {EVEX_0F3A,   0x14, 0x15, P66,       0,        "avx512bw"},
    {EVEX_0F3A,   0x16, 0x16, P66,       0,        "avx512dq"},
    {EVEX_0F3A,   0x17, 0x1f, P66,       0,        "avx512f"},
    {EVEX_0F3A,   0x18, 0x19, P66,       W1,       "avx512dq"},
    {EVEX_0F3A,   0x1a, 0x1b, P66,       W0,       "avx512dq"},
    {EVEX_0F3A,   0x20, 0x20, P66,       0,        "avx512bw"},
    {EVEX_0F3A,   0x21, 0x27, P66,       0,        "avx512f"},
    {EVEX_0F3A,   0x22, 0x22, P66,       0,        "avx512dq"},
    {EVEX_0F3A,   0x26, 0x27, P0,        0,        "avx512fp16"},
    {EVEX_0F3A,   0x38, 0x3b, P66,       0,        "avx512f"},
    {EVEX_0F3A,   0x38, 0x39, P66,       W1,       "avx512dq"},
    {EVEX_0F3A,   0x3a, 0x3b, P66,       W0,       "avx512dq"},
    {EVEX_0F3A,   0x3e, 0x42, P66,       0,        "avx512bw"},
    {EVEX_0F3A,   0x43, 0x43, P66,       0,        "avx512f"},
    {EVEX_0F3A,   0x44, 0x44, P66,       0,        "avx512f vpclmulqdq"},
    {EVEX_0F3A,   0x50, 0x51, P66,       0,        "avx512dq"},
    {EVEX_0F3A,   0x54, 0x55, P66,       0,        "avx512f"},
    {EVEX_0F3A,   0x56, 0x57, P66,       0,        "avx512dq"},
    {EVEX_0F3A,   0x56, 0x57, P0,        0,        "avx512fp16"},
    {EVEX_0F3A,   0x66, 0x67, P66,       0,        "avx512dq"},
    {EVEX_0F3A,   0x66, 0x67, P0,        0,        "avx512fp16"},
    {EVEX_0F3A,   0x70, 0x73, P66,       0,        "avx512vbmi2"},
    {EVEX_0F3A,   0xc2, 0xc2, P0 | PF3,  0,        "avx512fp16"},
    {EVEX_0F3A,   0xce, 0xcf, P66,       0,        "avx512f gfni"},
    {EVEX_5,      0x00, 0xff, ANY,       0,        "avx512fp16"},
    {EVEX_6,      0x00, 0xff, ANY,       0,        "avx512fp16"},
};

// EVEX instructions on one element, or on 128 bits only, which do not need avx512vl.
static const row single[] = {
    {EVEX_0F,     0x10, 0x11, PF3 | PF2, 0, ""},
    {EVEX_0F,     0x12, 0x13, P0 | P66,  0, ""},
    {EVEX_0F,     0x16, 0x17, P0 | P66,  0, ""},
    {EVEX_0F,     0x2a, 0x2a, PF3 | PF2, 0, ""},
    {EVEX_0F,     0x2c, 0x2d, PF3 | PF2, 0, ""},
    {EVEX_0F,     0x2e, 0x2f, ANY,       0, ""},
    {EVEX_0F,     0x51, 0x5a, PF3 | PF2, 0, ""},
    {EVEX_0F,     0x5c, 0x5f, PF3 | PF2, 0, ""},
    {EVEX_0F,     0x6e, 0x6e, P66,       0, ""},
    {EVEX_0F,     0x78, 0x79, PF3 | PF2, 0, ""},
    {EVEX_0F,     0x7b, 0x7b, PF3 | PF2, 0, ""},
    {EVEX_0F,     0x7e, 0x7e, ANY,       0, ""},
    {EVEX_0F,     0xc2, 0xc2, PF3 | PF2, 0, ""},
    {EVEX_0F,     0xc4, 0xc5, ANY,       0, ""},
    {EVEX_0F,     0xd6, 0xd6, ANY,       0, ""},
    {EVEX_0F38,   0x2d, 0x2d, P66,       0, ""},
    {EVEX_0F38,   0x43, 0x43, P66,       0, ""},
    {EVEX_0F38,   0x4d, 0x4d, P66,       0, ""},
    {EVEX_0F38,   0x4f, 0x4f, P66,       0, ""},
    {EVEX_0F38,   0x99, 0x99, P66,       0, ""},
    {EVEX_0F38,   0x9b, 0x9b, P66,       0, ""},
    {EVEX_0F38,   0x9d, 0x9d, P66,       0, ""},
    {EVEX_0F38,   0x9f, 0x9f, P66,       0, ""},
    {EVEX_0F38,   0xa9, 0xa9, P66,       0, ""},
    {EVEX_0F38,   0xab, 0xab, P66,       0, ""},
    {EVEX_0F38,   0xad, 0xad, P66,       0, ""},
    {EVEX_0F38,   0xaf, 0xaf, P66,       0, ""},
    {EVEX_0F38,   0xb9, 0xb9, P66,       0, ""},
    {EVEX_0F38,   0xbb, 0xbb, P66,       0, ""},
    {EVEX_0F38,   0xbd, 0xbd, P66,       0, ""},
    {EVEX_0F38,   0xbf, 0xbf, P66,       0, ""},
    {EVEX_0F3A,   0x0a, 0x0b, P66,       0, ""},
    {EVEX_0F3A,   0x14, 0x17, P66,       0, ""},
    {EVEX_0F3A,   0x20, 0x22, P66,       0, ""},
    {EVEX_0F3A,   0x27, 0x27, P66,       0, ""},
    {EVEX_0F3A,   0x51, 0x51, P66,       0, ""},
    {EVEX_0F3A,   0x55, 0x55, P66,       0, ""},
    {EVEX_0F3A,   0x57, 0x57, P66,       0, ""},
    {EVEX_0F3A,   0x67, 0x67, P66,       0, ""},
};

// Opcodes with an immediate operand. Opcodes of LEGACY_1 without one are in |plain|.
typedef enum immediate { NONE, BYTE, WORD, FULL, MOVE, TEST_8, TEST } immediate;
typedef struct shape_row {
  unsigned char first, last;
  bool has_modrm;
  immediate bytes;
} shape_row;
static const shape_row shapes_1[] = {
    {0x50, 0x61, false, NONE}, {0x63, 0x63, true, NONE},  {0x68, 0x68, false, FULL}, {0x69, 0x69, true, FULL},
    {0x6a, 0x6a, false, BYTE}, {0x6b, 0x6b, true, BYTE},  {0x70, 0x7f, false, BYTE}, {0x80, 0x80, true, BYTE},
    {0x81, 0x81, true, FULL},  {0x83, 0x83, true, BYTE},  {0x84, 0x8f, true, NONE},  {0x90, 0x9f, false, NONE},
    {0xa4, 0xa7, false, NONE}, {0xa8, 0xa8, false, BYTE}, {0xa9, 0xa9, false, FULL}, {0xaa, 0xaf, false, NONE},
    {0xb0, 0xb7, false, BYTE}, {0xb8, 0xbf, false, MOVE}, {0xc0, 0xc1, true, BYTE},  {0xc2, 0xc2, false, WORD},
    {0xc3, 0xc3, false, NONE}, {0xc6, 0xc6, true, BYTE},  {0xc7, 0xc7, true, FULL},  {0xc9, 0xc9, false, NONE},
    {0xcc, 0xcc, false, NONE}, {0xd0, 0xd3, true, NONE},  {0xd8, 0xdf, true, NONE},  {0xe8, 0xe9, false, FULL},
    {0xeb, 0xeb, false, BYTE}, {0xf5, 0xf5, false, NONE}, {0xf6, 0xf6, true, TEST_8}, {0xf7, 0xf7, true, TEST},
    {0xf8, 0xfd, false, NONE}, {0xfe, 0xff, true, NONE},
};
// of all maps that begin with 0F; opcodes that are not listed have a ModRM and no immediate
static const shape_row shapes_0f[] = {
    {0x0b, 0x0b, false, NONE}, {0x70, 0x73, true, BYTE},  {0x77, 0x77, false, NONE}, {0x80, 0x8f, false, FULL},
    {0xa2, 0xa2, false, NONE}, {0xa4, 0xa4, true, BYTE},  {0xac, 0xac, true, BYTE},  {0xba, 0xba, true, BYTE},
    {0xc2, 0xc2, true, BYTE},  {0xc4, 0xc6, true, BYTE},  {0xc8, 0xcf, false, NONE},
};
// clang-format on

// --- instructions ---

typedef struct instruction {
  space space;
  unsigned char opcode, modrm;
  unsigned prefix; // one of P0 to PF2
  bool has_66, has_67, is_wide, is_masked;
  int vector; // L128 to L512, of VEX and EVEX
} instruction;

typedef struct reader {
  const unsigned char *at, *end;
  bool wrong;
} reader;

static unsigned char take(reader *r) {
  if (r->at < r->end) return *r->at++;
  r->wrong = true;
  return 0;
}

static void skip(reader *r, int n) {
  if (r->end - r->at < n) r->wrong = true;
  else r->at += n;
}

static const int lengths[] = {L128, L256, L512, L512};
static const unsigned prefixes[] = {P0, P66, PF3, PF2};

static void read_vex2(reader *r, instruction *in) {
  const unsigned char b = take(r);
  in->space = VEX_0F;
  in->vector = lengths[b >> 2 & 1];
  in->prefix = prefixes[b & 3];
}

static void read_vex3(reader *r, instruction *in) {
  const unsigned char map = take(r), b = take(r);
  if ((map & 31) < 1 || (map & 31) > 3) r->wrong = true;
  else in->space = (space)(VEX_0F + (map & 31) - 1);
  in->is_wide = b >> 7;
  in->vector = lengths[b >> 2 & 1];
  in->prefix = prefixes[b & 3];
}

static void read_evex(reader *r, instruction *in) {
  static const space maps[] = {LEGACY_1, EVEX_0F, EVEX_0F38, EVEX_0F3A,
                               LEGACY_1, EVEX_5,  EVEX_6,    LEGACY_1};
  const unsigned char map = take(r), b = take(r), c = take(r);
  in->space = maps[map & 7];
  if (in->space == LEGACY_1 || map & 8 || !(b & 4)) r->wrong = true;
  in->is_wide = b >> 7;
  in->prefix = prefixes[b & 3];
  in->vector = lengths[c >> 5 & 3];
  // If the length bits encode the rounding mode, the length is 512 bits.
  if (c & 16 && r->end - r->at >= 2 && r->at[1] >= 0xc0) in->vector = L512;
}

static void read_escape(reader *r, instruction *in) {
  in->space = LEGACY_0F;
  in->opcode = take(r);
  if (in->opcode == 0x38) in->space = LEGACY_0F38, in->opcode = take(r);
  else if (in->opcode == 0x3a) in->space = LEGACY_0F3A, in->opcode = take(r);
}

// Reads prefixes and opcode.
static void read_opcode(reader *r, instruction *in) {
  unsigned char b = take(r);
  bool f2 = false, f3 = false;
  for (;; b = take(r)) {
    if (b == 0x66) in->has_66 = true;
    else if (b == 0x67) in->has_67 = true;
    else if (b == 0xf2) f2 = true, f3 = false;
    else if (b == 0xf3) f3 = true, f2 = false;
    else if (b != 0x2e && b != 0x36 && b != 0x3e && b != 0x26 && b != 0x64 && b != 0x65 &&
             b != 0xf0)
      break;
    if (r->wrong) return;
  }
  in->prefix = f2 ? PF2 : f3 ? PF3 : in->has_66 ? P66 : P0;
  if ((b & 0xf0) == 0x40) in->is_wide = b >> 3 & 1, b = take(r);
  in->opcode = b;
  if (b == 0x0f) {
    read_escape(r, in);
    return;
  }
  if (b != 0xc4 && b != 0xc5 && b != 0x62) return;
  if (b == 0xc5) read_vex2(r, in);
  else if (b == 0xc4) read_vex3(r, in);
  else read_evex(r, in);
  in->opcode = take(r);
}

static const shape_row *find_shape(const shape_row *shapes, size_t n, unsigned char opcode) {
  for (size_t i = 0; i < n; i++)
    if (shapes[i].first <= opcode && opcode <= shapes[i].last) return &shapes[i];
  return NULL;
}

// Opcodes below 0x40 are in groups of eight, of which the last two have another form.
static bool find_arithmetic(unsigned char opcode, shape_row *out) {
  if (opcode >= 0x40 || (opcode & 7) > 5) return false;
  *out = (shape_row){opcode, opcode, (opcode & 7) < 4,
                     (opcode & 7) == 4   ? BYTE
                     : (opcode & 7) == 5 ? FULL
                                         : NONE};
  return true;
}

static bool find_operands(const instruction *in, shape_row *out) {
  const shape_row *found = NULL;
  *out = (shape_row){0, 0, true, NONE};
  switch (in->space) {
  case LEGACY_1:
    if (find_arithmetic(in->opcode, out)) return true;
    found = find_shape(shapes_1, KILN_LEN(shapes_1), in->opcode);
    if (found) *out = *found;
    return found != NULL;
  case LEGACY_0F:
    found = find_shape(shapes_0f, KILN_LEN(shapes_0f), in->opcode);
    if (found) *out = *found;
    return true;
  case VEX_0F:
  case EVEX_0F: // in EVEX, 0x80 is no jump and 0xc8 no swap
    found = in->opcode < 0x80 || (in->opcode >= 0xc2 && in->opcode <= 0xc6)
                ? find_shape(shapes_0f, KILN_LEN(shapes_0f), in->opcode)
                : NULL;
    if (found) *out = *found;
    return true;
  case LEGACY_0F3A:
  case VEX_0F3A:
  case EVEX_0F3A: out->bytes = BYTE; return true;
  case LEGACY_0F38:
  case VEX_0F38:
  case EVEX_0F38:
  case EVEX_5:
  case EVEX_6: return true;
  }
  return false;
}

static int immediate_bytes(const instruction *in, immediate kind) {
  const int full = in->has_66 && !in->is_wide ? 2 : 4;
  const bool is_test = (in->modrm >> 3 & 7) < 2;
  switch (kind) {
  case NONE: return 0;
  case BYTE: return 1;
  case WORD: return 2;
  case FULL: return in->opcode == 0xe8 || in->opcode == 0xe9 ? 4 : full;
  case MOVE: return in->is_wide ? 8 : full;
  case TEST_8: return is_test ? 1 : 0;
  case TEST: return is_test ? full : 0;
  }
  return 0;
}

static void read_modrm(reader *r, instruction *in) {
  in->modrm = take(r);
  const int mod = in->modrm >> 6, rm = in->modrm & 7;
  if (mod == 3) return;
  const unsigned char sib = rm == 4 ? take(r) : 0;
  const bool has_base = rm == 4 ? (sib & 7) != 5 : rm != 5;
  skip(r, mod == 1 ? 1 : mod == 2 || !has_base ? 4 : 0);
}

// gives: false if the instruction is unknown; the reader's position is then undefined
static bool read_instruction(reader *r, instruction *in) {
  shape_row operands;
  *in = (instruction){0};
  read_opcode(r, in);
  if (r->wrong || !find_operands(in, &operands)) return false;
  if (operands.has_modrm) read_modrm(r, in);
  if (in->space == LEGACY_1 && in->opcode == 0x8f && in->modrm & 0x38) return false; // AMD's XOP
  skip(r, immediate_bytes(in, operands.bytes));
  return !r->wrong;
}

// --- needs ---

static bool fits(const row *w, const instruction *in) {
  const unsigned lengths_of = w->when & (L128 | L256 | L512), wide_of = w->when & (W0 | W1);
  const unsigned form = w->when & (REGISTER | MEMORY), fields = w->when >> 8;
  return w->space == in->space && w->first <= in->opcode && in->opcode <= w->last &&
         w->prefixes & in->prefix && (!lengths_of || lengths_of & (unsigned)in->vector) &&
         (!wide_of || wide_of & (in->is_wide ? W1 : W0)) &&
         (!form || form & (in->modrm >= 0xc0 ? REGISTER : MEMORY)) &&
         (!fields || fields >> (in->modrm >> 3 & 7) & 1);
}

static bool is_single(const instruction *in) {
  for (size_t i = 0; i < KILN_LEN(single); i++)
    if (fits(&single[i], in)) return true;
  return false;
}

// The instructions found: rows of the table, whether one needs avx512vl, and whether one is
// unknown.
typedef struct met {
  bool rows[KILN_LEN(rows)];
  bool has_vl, has_unknown;
  int first[N_SPACES], end[N_SPACES]; // range of the table's rows, by opcode map
} met;

static void find_spaces(met *m) {
  for (int i = (int)KILN_LEN(rows) - 1; i >= 0; i--) {
    const space s = rows[i].space;
    m->first[s] = i;
    if (m->end[s] == 0) m->end[s] = i + 1;
  }
}

static void meet(met *m, const instruction *in) {
  int found = m->end[in->space] - 1;
  while (found >= m->first[in->space] && !fits(&rows[found], in)) found--;
  if (found < m->first[in->space]) {
    m->has_unknown = true;
    return;
  }
  m->rows[found] = true;
  m->has_vl |= in->space >= EVEX_0F && in->vector != L512 && !is_single(in);
}

static void read_code(met *m, const unsigned char *code, size_t bytes) {
  reader r = {code, code + bytes, false};
  while (r.at < r.end && !m->has_unknown) {
    instruction in;
    if (read_instruction(&r, &in)) meet(m, &in);
    else m->has_unknown = true;
  }
}

// Reads an ELF object of this machine's LLVM; any other object counts as unknown instructions.
static void read_object(met *m, const kiln_object *o) {
  Elf64_Ehdr head;
  if (o->bytes < sizeof head) {
    m->has_unknown = true;
    return;
  }
  memcpy(&head, o->data, sizeof head);
  for (unsigned i = 0; i < head.e_shnum; i++) {
    Elf64_Shdr s;
    const size_t at = head.e_shoff + (size_t)i * sizeof s;
    if (at > o->bytes - sizeof s) {
      m->has_unknown = true;
      return;
    }
    memcpy(&s, (const char *)o->data + at, sizeof s);
    if (s.sh_type != SHT_PROGBITS || !(s.sh_flags & SHF_EXECINSTR)) continue;
    if (s.sh_offset > o->bytes || s.sh_size > o->bytes - s.sh_offset) m->has_unknown = true;
    else read_code(m, (const unsigned char *)o->data + s.sh_offset, s.sh_size);
  }
}

typedef KILN_VEC(const char *) name_list;

static void add_name(kiln_ctx *cx, name_list *names, const char *name, size_t n) {
  for (int i = 0; i < names->n; i++)
    if (strlen(names->data[i]) == n && !strncmp(names->data[i], name, n)) return;
  KILN_VEC_PUSH(&cx->perm, names, kiln_arena_strndup(&cx->perm, name, n));
}

static void add_names(kiln_ctx *cx, name_list *names, const char *words) {
  for (const char *at = words; *at; at += *at == ' ') {
    const size_t n = strcspn(at, " ");
    add_name(cx, names, at, n);
    at += n;
  }
}

// Features that code has only by intrinsics or atomic operations, which the emitter never uses.
static bool is_never_met(const char *name, size_t n) {
  static const char *const names[] = {"aes", "sha2", "crc", "lse"};
  for (size_t i = 0; i < KILN_LEN(names); i++)
    if (strlen(names[i]) == n && !strncmp(names[i], name, n)) return true;
  return false;
}

// Adds all features of the machine that code may use.
static void add_features(kiln_ctx *cx, name_list *names, const kiln_machine *m) {
  for (const char *at = m->features; at && *at; at += *at == ',') {
    const size_t n = strcspn(at, ",");
    if (*at == '+' && !is_never_met(at + 1, n - 1)) add_name(cx, names, at + 1, n - 1);
    at += n;
  }
}

static void add_met(kiln_ctx *cx, name_list *names, const kiln_machine *m, const met *what) {
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    // Without bmi, code may have the encoding of tzcnt where bsf suffices, as which it runs.
    const bool is_bsf = !strcmp(rows[i].needs, "bmi") && !kiln_machine_has(m, "bmi");
    if (what->rows[i] && !is_bsf) add_names(cx, names, rows[i].needs);
  }
  if (what->has_vl) add_names(cx, names, "avx512vl");
}

const char *const *kiln_cpu_needs(kiln_ctx *cx, const kiln_machine *m, int n,
                                  const kiln_object *objects, int *out_n) {
  name_list names = {0};
  met what = {.has_unknown = strncmp(m->triple, "x86_64", 6) != 0};
  find_spaces(&what);
  for (int i = 0; i < n && !what.has_unknown; i++) read_object(&what, &objects[i]);
  if (what.has_unknown) add_features(cx, &names, m);
  else add_met(cx, &names, m, &what);
  *out_n = names.n;
  return names.data;
}

// Machines by name: levels of x86-64 and processors as LLVM names them, and AArch64 for tests of
// its code. In a file of its own so that programs without AArch64 do not link LLVM's target.
#include "target/cpu/cpu.h"

#include <llvm-c/Target.h>

#include <stdio.h>
#include <string.h>

// Features in addition to the parent's, as far as code may use them, and cache sizes of a core (the
// last one: shared) in KB; 0: the parent's; -1: none. Features are LLVM's, and a test compares
// them; caches are those of common models.
typedef struct row {
  const char *name, *parent, *more;
  int l1, l2, l3;
} row;

// clang-format off
static const row rows[] = {
    {"x86-64",           NULL,               "",                                                    32, 256, 8192},
    {"x86-64-v2",        "x86-64",           "+cx16,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2",          0, 0, 0},
    {"x86-64-v3",        "x86-64-v2",        "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe",      32, 512, 16384},
    {"x86-64-v4",        "x86-64-v3",        "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl",    0, 0, 0},

    {"nocona",           "x86-64",           "+cx16,+sse3",                                         16, 1024, -1},
    {"core2",            "nocona",           "+ssse3",                                              32, 4096, -1},
    {"penryn",           "core2",            "+sse4.1",                                             32, 6144, -1},
    {"bonnell",          "core2",            "+movbe",                                              24, 512, -1},
    {"atom",             "bonnell",          "",                                                    0, 0, 0},
    {"silvermont",       "x86-64-v2",        "+movbe,+pclmul",                                      24, 1024, -1},
    {"slm",              "silvermont",       "",                                                    0, 0, 0},
    {"goldmont",         "silvermont",       "+aes,+sha",                                           24, 1024, -1},
    {"goldmont-plus",    "goldmont",         "",                                                    24, 4096, -1},
    {"tremont",          "goldmont-plus",    "+gfni",                                               32, 1536, 4096},
    {"nehalem",          "x86-64-v2",        "",                                                    32, 256, 8192},
    {"corei7",           "nehalem",          "",                                                    0, 0, 0},
    {"westmere",         "nehalem",          "+pclmul",                                             0, 0, 0},
    {"sandybridge",      "westmere",         "+avx",                                                0, 0, 0},
    {"corei7-avx",       "sandybridge",      "",                                                    0, 0, 0},
    {"ivybridge",        "sandybridge",      "+f16c",                                               0, 0, 0},
    {"core-avx-i",       "ivybridge",        "",                                                    0, 0, 0},
    {"haswell",          "ivybridge",        "+avx2,+bmi,+bmi2,+fma,+lzcnt,+movbe",                 0, 0, 0},
    {"core-avx2",        "haswell",          "",                                                    0, 0, 0},
    {"broadwell",        "haswell",          "+adx",                                                0, 0, 0},
    {"skylake",          "broadwell",        "+aes",                                                0, 0, 0},
    {"skylake-avx512",   "skylake",          "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl",    32, 1024, 16384},
    {"skx",              "skylake-avx512",   "",                                                    0, 0, 0},
    {"cascadelake",      "skylake-avx512",   "+avx512vnni",                                         0, 0, 0},
    {"cooperlake",       "cascadelake",      "+avx512bf16",                                         0, 0, 0},
    {"cannonlake",       "skylake-avx512",   "+avx512ifma,+avx512vbmi,+sha",                        32, 256, 8192},
    {"icelake-client",   "cannonlake",
     "+avx512bitalg,+avx512vbmi2,+avx512vnni,+avx512vpopcntdq,+gfni,+vaes,+vpclmulqdq", 48, 512, 8192},
    {"icelake-server",   "icelake-client",   "",                                                    48, 1280, 24576},
    {"rocketlake",       "icelake-client",   "",                                                    48, 512, 16384},
    {"tigerlake",        "icelake-client",   "+avx512vp2intersect,+movdir64b,+movdiri",             48, 1280, 12288},
    {"sapphirerapids",   "icelake-server",   "+avx512bf16,+avx512fp16,+avxvnni,+movdir64b,+movdiri", 48, 2048, 32768},
    {"emeraldrapids",    "sapphirerapids",   "",                                                    0, 0, 0},
    {"graniterapids",    "sapphirerapids",   "",                                                    0, 0, 0},
    {"graniterapids-d",  "graniterapids",    "",                                                    0, 0, 0},
    {"alderlake",        "skylake",          "+sha,+gfni,+vaes,+vpclmulqdq,+avxvnni,+movdir64b,+movdiri", 32, 1280,
     16384},
    {"raptorlake",       "alderlake",        "",                                                    0, 0, 0},
    {"meteorlake",       "alderlake",        "",                                                    0, 0, 0},
    {"gracemont",        "alderlake",        "",                                                    0, 0, 0},
    {"arrowlake",        "alderlake",        "+avxvnniint8,+avxifma,+avxneconvert",                 0, 0, 0},
    {"sierraforest",     "arrowlake",        "",                                                    0, 0, 0},
    {"grandridge",       "arrowlake",        "",                                                    0, 0, 0},
    {"arrowlake-s",      "arrowlake",        "+avxvnniint16",                                       0, 0, 0},
    {"lunarlake",        "arrowlake-s",      "",                                                    0, 0, 0},
    {"pantherlake",      "lunarlake",        "",                                                    0, 0, 0},
    {"clearwaterforest", "arrowlake-s",      "",                                                    0, 0, 0},
    {"knl",              "broadwell",        "+aes,+avx512f,+avx512cd",                             32, 512, -1},
    {"knm",              "knl",              "+avx512vpopcntdq",                                    0, 0, 0},

    {"k8",               "x86-64",           "",                                                    64, 512, -1},
    {"opteron",          "k8",               "",                                                    0, 0, 0},
    {"athlon64",         "k8",               "",                                                    0, 0, 0},
    {"athlon-fx",        "k8",               "",                                                    0, 0, 0},
    {"k8-sse3",          "k8",               "+cx16,+sse3",                                         0, 0, 0},
    {"opteron-sse3",     "k8-sse3",          "",                                                    0, 0, 0},
    {"athlon64-sse3",    "k8-sse3",          "",                                                    0, 0, 0},
    {"amdfam10",         "k8-sse3",          "+lzcnt,+popcnt,+sse4a",                               64, 512, 6144},
    {"barcelona",        "amdfam10",         "",                                                    0, 0, 0},
    {"btver1",           "amdfam10",         "+ssse3",                                              32, 512, -1},
    {"btver2",           "btver1",           "+sse4.1,+sse4.2,+aes,+pclmul,+avx,+bmi,+f16c,+movbe", 32, 2048, -1},
    {"bdver1",           "x86-64-v2",        "+aes,+pclmul,+avx,+lzcnt,+sse4a,+fma4,+xop",          16, 2048, 8192},
    {"bdver2",           "bdver1",           "+bmi,+f16c,+fma",                                     0, 0, 0},
    {"bdver3",           "bdver2",           "",                                                    0, 0, 0},
    {"bdver4",           "bdver3",           "+avx2,+bmi2,+movbe",                                  0, 0, 0},
    {"znver1",           "x86-64-v3",        "+adx,+aes,+pclmul,+sha,+sse4a",                       32, 512, 8192},
    {"znver2",           "znver1",           "",                                                    32, 512, 16384},
    {"znver3",           "znver2",           "+vaes,+vpclmulqdq",                                   32, 512, 32768},
    {"znver4",           "znver3",
     "+avx512f,+avx512bf16,+avx512bitalg,+avx512bw,+avx512cd,+avx512dq,+avx512ifma,+avx512vbmi,+avx512vbmi2,+avx512vl,"
     "+avx512vnni,+avx512vpopcntdq,+gfni", 32, 1024, 32768},
    {"znver5",           "znver4",           "+avx512vp2intersect,+avxvnni,+movdir64b,+movdiri",    48, 1024, 32768},
};

// Short names of instruction set levels; |cpu| is the name of a row above.
static const struct { const char *name, *cpu, *more; } levels[] = {
    {"avx2",       "x86-64-v3", ""},
    {"avxvnni",    "x86-64-v3", "+avxvnni"},
    {"avx512",     "x86-64-v4", ""},
    {"avx512vnni", "x86-64-v4", "+avx512vnni,+avx512bf16"},
};
// clang-format on

static const row *find_row(const char *name) {
  for (size_t i = 0; i < KILN_LEN(rows); i++)
    if (!strcmp(rows[i].name, name)) return &rows[i];
  return NULL;
}

// Adds the features of |name| and its parents, oldest parent first, and sets its caches.
static void add_row(const char *name, kiln_text *features, kiln_machine *out) {
  const row *chain[KILN_LEN(rows)];
  int n = 0;
  for (const row *r = find_row(name); r; r = r->parent ? find_row(r->parent) : NULL) chain[n++] = r;
  while (n-- > 0) {
    const row *r = chain[n];
    if (*r->more) kiln_text_printf(features, "%s%s", features->n ? "," : "", r->more);
    if (r->l1) out->l1_bytes = r->l1 * INT64_C(1024);
    if (r->l2) out->l2_bytes = r->l2 * INT64_C(1024);
    if (r->l3) out->l3_bytes = r->l3 > 0 ? r->l3 * INT64_C(1024) : 0;
  }
}

static kiln_status make_x86(kiln_ctx *cx, const char *cpu, const char *more, kiln_machine *out) {
  kiln_text features;
  kiln_text_init(&features, &cx->perm);
  kiln_text_add(&features, "");
  add_row(cpu, &features, out);
  if (*more) kiln_text_printf(&features, "%s%s", features.n ? "," : "", more);
  out->features = features.data;
  snprintf(out->triple, sizeof out->triple, "x86_64-pc-linux-gnu");
  snprintf(out->cpu, sizeof out->cpu, "%s", cpu);
  return kiln_cpu_llvm_init(cx->diag);
}

static kiln_status make_neon(kiln_ctx *cx, kiln_machine *out) {
  snprintf(out->triple, sizeof out->triple, "aarch64-unknown-linux-gnu");
  snprintf(out->cpu, sizeof out->cpu, "neoverse-n1");
  out->features = kiln_arena_strdup(&cx->perm, "+dotprod,+fullfp16");
  out->l1_bytes = 32 << 10;
  out->l2_bytes = 512 << 10;
  out->l3_bytes = 16 << 20;
  return kiln_cpu_llvm_init_arm(cx->diag);
}

static const char *cpu_of(const char *name, const char **out_more) {
  *out_more = "";
  for (size_t i = 0; i < KILN_LEN(levels); i++) {
    if (strcmp(levels[i].name, name)) continue;
    *out_more = levels[i].more;
    return levels[i].cpu;
  }
  return find_row(name) ? name : NULL;
}

const char *kiln_machine_name(size_t i) {
  if (i < KILN_LEN(rows)) return rows[i].name;
  i -= KILN_LEN(rows);
  return i < KILN_LEN(levels) ? levels[i].name : NULL;
}

bool kiln_machine_is_x86(const char *name) {
  const char *more = NULL;
  return cpu_of(name, &more) != NULL;
}

kiln_status kiln_machine_named(kiln_ctx *cx, const char *name, kiln_machine *out) {
  const char *more = NULL, *cpu = cpu_of(name, &more);
  *out = (kiln_machine){.target = &kiln_target_processor};
  if (!cpu && strcmp(name, "neon") != 0)
    return KILN_FAIL(
        cx->diag, KILN_BAD_INPUT, "options",
        "target: name must be x86-64-v2, x86-64-v3, x86-64-v4, a processor of x86-64 by LLVM's "
        "name (haswell, znver4), avx2, avxvnni, avx512, avx512vnni or neon, got %s",
        name);
  KILN_TRY(cpu ? make_x86(cx, cpu, more, out) : make_neon(cx, out));
  out->n_cores = 2;
  out->clock_ghz = 3;
  kiln_machine_describe(out);
  snprintf(out->processor, sizeof out->processor, "%s", out->cpu);
  out->device = kiln_device_make_nominal(cx, out);
  return KILN_OK;
}

// The machine this process runs on: the instruction set by LLVM's host detection, caches and cores
// by the operating system.
#include "target/cpu/cpu.h"
#include "support/numbers.h"
#include "support/reserve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Reads a small file of sysfs; false if that fails.
static bool read_text(const char *path, char *out, size_t out_bytes) {
  FILE *f = fopen(path, "re");
  if (!f) return false;
  const bool ok = fgets(out, (int)out_bytes, f) != NULL;
  fclose(f);
  if (ok) out[strcspn(out, "\n")] = 0;
  return ok;
}

// A property of a data cache; 0 if it cannot be read. Sizes have a unit.
static int64_t cache_number(int cpu, int level, const char *what) {
  for (int index = 0; index < 8; index++) {
    char path[128], text[64];
    const char *dir = "/sys/devices/system/cpu/cpu%d/cache/index%d/%s";
    long long value = 0;
    char unit = 0;
    snprintf(path, sizeof path, dir, cpu, index, "level");
    if (!read_text(path, text, sizeof text)) break;
    if (sscanf(text, "%lld", &value) != 1 || value != level) continue;
    snprintf(path, sizeof path, dir, cpu, index, "type");
    if (!read_text(path, text, sizeof text) || !strcmp(text, "Instruction")) continue;
    snprintf(path, sizeof path, dir, cpu, index, what);
    if (!read_text(path, text, sizeof text) || sscanf(text, "%lld%c", &value, &unit) < 1) continue;
    return value * (unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1);
  }
  return 0;
}

static int64_t first_positive(int64_t a, long b, int64_t c) { return a > 0 ? a : b > 0 ? b : c; }

static void find_caches(int cpu, kiln_machine *m) {
  m->l1_bytes =
      first_positive(cache_number(cpu, 1, "size"), sysconf(_SC_LEVEL1_DCACHE_SIZE), 32 << 10);
  m->l2_bytes =
      first_positive(cache_number(cpu, 2, "size"), sysconf(_SC_LEVEL2_CACHE_SIZE), 512 << 10);
  m->l3_bytes =
      first_positive(cache_number(cpu, 3, "size"), sysconf(_SC_LEVEL3_CACHE_SIZE), 8 << 20);
  static const int names[] = {_SC_LEVEL1_DCACHE_ASSOC, _SC_LEVEL2_CACHE_ASSOC,
                              _SC_LEVEL3_CACHE_ASSOC};
  for (int i = 0; i < 3; i++)
    m->ways[i] = (int)first_positive(cache_number(cpu, i + 1, "ways_of_associativity"),
                                     sysconf(names[i]), 0);
}

// "PACKAGE:CORE" of a logical processor as one number; -1 if unknown.
static int64_t core_of(int cpu) {
  char path[128], text[64];
  long long core = 0, package = 0;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
  if (!read_text(path, text, sizeof text) || sscanf(text, "%lld", &core) != 1) return -1;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
  if (!read_text(path, text, sizeof text) || sscanf(text, "%lld", &package) != 1) return -1;
  return package * (INT64_C(1) << 32) + (core & 0xffffffff);
}

// The declared clock. The current clock varies, and would make code depend on the moment.
static double declared_ghz(int cpu) {
  static const char *const files[] = {"base_frequency", "cpuinfo_max_freq"};
  for (size_t i = 0; i < KILN_LEN(files); i++) {
    char path[128], text[64];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/%s", cpu, files[i]);
    const double khz = read_text(path, text, sizeof text) ? kiln_number_parse(text, NULL) : 0;
    if (khz > 0) return khz / 1e6;
  }
  return 3;
}

static void name_processor(kiln_machine *m) {
  char line[256];
  FILE *f = fopen("/proc/cpuinfo", "re");
  snprintf(m->processor, sizeof m->processor, "%s", m->cpu);
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "model name : %63[^\n]", m->processor) == 1) break;
  if (f) fclose(f);
}

// The number of physical cores that are online; *out_first is the first of their logical
// processors. The process's CPU affinity is ignored: code must not depend on it.
static int count_cores(kiln_ctx *cx, int *out_first) {
  char list[1024];
  kiln_map seen;
  kiln_map_init(&seen, &cx->scratch);
  *out_first = 0;
  if (!read_text("/sys/devices/system/cpu/online", list, sizeof list)) {
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
  }
  int n = 0;
  for (char *at = list; *at >= '0' && *at <= '9'; at += *at == ',') { // "0-3,8,10-11"
    const long from = strtol(at, &at, 10), to = *at == '-' ? strtol(at + 1, &at, 10) : from;
    if (n == 0) *out_first = (int)from;
    for (long cpu = from; cpu <= to; cpu++) {
      const int64_t core = core_of((int)cpu);
      if (core >= 0 && kiln_map_find(&seen, (uint64_t)core)) continue;
      if (core >= 0) kiln_map_put(&seen, (uint64_t)core, 1);
      n++;
    }
  }
  return n > 0 ? n : 1;
}

static bool has_feature(const char *features, const char *name) {
  const size_t n = strlen(name);
  for (const char *at = features; (at = strstr(at, name)); at += n) {
    if (at > features && at[-1] == '+' && (at[n] == ',' || at[n] == 0)) return true;
  }
  return false;
}

bool kiln_machine_has(const kiln_machine *m, const char *feature) {
  return has_feature(m->features, feature);
}

static void describe_x86(kiln_machine *m) {
  const char *f = m->features;
  const bool avx512 = has_feature(f, "avx512f") && has_feature(f, "avx512vl") &&
                      has_feature(f, "avx512bw") && has_feature(f, "avx512dq");
  m->vector_bytes = avx512 ? 64 : has_feature(f, "avx2") ? 32 : 16;
  m->n_vector_regs = avx512 ? 32 : 16;
  m->has_fma = has_feature(f, "fma");
  m->has_f16 = has_feature(f, "avx512fp16");
  m->has_bf16 = avx512 && has_feature(f, "avx512bf16");
  m->has_vnni = avx512 ? has_feature(f, "avx512vnni") : has_feature(f, "avxvnni");
}

void kiln_machine_describe(kiln_machine *m) {
  if (strncmp(m->triple, "x86_64", 6) == 0) {
    describe_x86(m);
    return;
  }
  m->vector_bytes = 16;
  m->n_vector_regs = 32;
  m->has_fma = true;
  m->has_f16 = has_feature(m->features, "fullfp16");
  m->has_bf16 = has_feature(m->features, "bf16");
  m->has_vnni = has_feature(m->features, "dotprod");
}

// LLVM's description of this machine; each string is malloc'ed by LLVM.
typedef struct host {
  char *triple, *cpu, *features;
} host;

static void drop_host(void *object) {
  host *h = object;
  LLVMDisposeMessage(h->triple);
  LLVMDisposeMessage(h->cpu);
  LLVMDisposeMessage(h->features);
}

static kiln_status ask_host(kiln_diag *diag, host *out) {
  KILN_TRY(kiln_cpu_llvm_init(diag));
  KILN_TRY(kiln_reserve_begin(diag));
  *out = (host){LLVMGetDefaultTargetTriple(), LLVMGetHostCPUName(), LLVMGetHostCPUFeatures()};
  const kiln_status st = kiln_reserve_end(diag, KILN_OK);
  if (st == KILN_OK && out->triple && out->cpu && out->features) return KILN_OK;
  drop_host(out);
  return st != KILN_OK ? st : KILN_FAIL(diag, KILN_NO_MEMORY, "machine", "no memory left");
}

static kiln_status name_host(kiln_ctx *cx, kiln_machine *out) {
  host h;
  KILN_TRY(ask_host(cx->diag, &h));
  snprintf(out->triple, sizeof out->triple, "%s", h.triple);
  snprintf(out->cpu, sizeof out->cpu, "%s", h.cpu);
  kiln_cleanup_push(cx, drop_host, &h);
  out->features = kiln_arena_strdup(&cx->perm, h.features);
  kiln_cleanup_pop(cx);
  drop_host(&h);
  return KILN_OK;
}

kiln_status kiln_machine_host(kiln_ctx *cx, kiln_machine *out) {
  *out = (kiln_machine){.target = &kiln_target_cpu, .is_here = true};
  KILN_TRY(name_host(cx, out));
  kiln_machine_describe(out);
  int first = 0;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  out->n_cores = count_cores(cx, &first);
  kiln_arena_rewind(&cx->scratch, mark);
  find_caches(first, out);
  name_processor(out);
  out->clock_ghz = declared_ghz(first);
  const char *path = kiln_device_path(cx, out);
  out->device = path ? kiln_device_read(cx, out, path) : NULL;
  if (!out->device) out->device = kiln_device_make_nominal(cx, out);
  return KILN_OK;
}

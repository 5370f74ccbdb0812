// Machines by name, so that tests can generate code for others than the one they run on. A file of
// its own: who does not ask for AArch64 does not link it.
#include "target/cpu/cpu.h"

#include <llvm-c/Target.h>

#include <stdio.h>
#include <string.h>

static const struct {
  const char *name, *features;
  kiln_machine machine;
} rows[] = {
    {"avx2",
     "+avx2",
     {.triple = "x86_64-pc-linux-gnu",
      .cpu = "x86-64-v3",
      .vector_bytes = 32,
      .n_vector_regs = 16,
      .has_fma = true}},
    {"avx512",
     "",
     {.triple = "x86_64-pc-linux-gnu",
      .cpu = "x86-64-v4",
      .vector_bytes = 64,
      .n_vector_regs = 32,
      .has_fma = true}},
    {"avxvnni",
     "+avx2,+avxvnni",
     {.triple = "x86_64-pc-linux-gnu",
      .cpu = "x86-64-v3",
      .vector_bytes = 32,
      .n_vector_regs = 16,
      .has_fma = true,
      .has_vnni = true}},
    {"avx512vnni",
     "+avx512vnni,+avx512bf16",
     {.triple = "x86_64-pc-linux-gnu",
      .cpu = "x86-64-v4",
      .vector_bytes = 64,
      .n_vector_regs = 32,
      .has_fma = true,
      .has_bf16 = true,
      .has_vnni = true}},
    {"neon",
     "+dotprod",
     {.triple = "aarch64-unknown-linux-gnu",
      .cpu = "neoverse-n1",
      .vector_bytes = 16,
      .n_vector_regs = 32,
      .has_fma = true,
      .has_f16 = true}},
};

kiln_status kiln_machine_named(kiln_ctx *cx, const char *name, kiln_machine *out) {
  memset(out, 0, sizeof *out);
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    if (strcmp(rows[i].name, name)) continue;
    *out = rows[i].machine;
    out->features = kiln_arena_strdup(&cx->perm, rows[i].features);
    out->n_cores = 2;
    out->l1_bytes = 32 << 10;
    out->l2_bytes = 512 << 10;
    out->l3_bytes = 16 << 20;
    out->clock_ghz = 3;
    snprintf(out->processor, sizeof out->processor, "%s", out->cpu);
    out->device = kiln_device_make_nominal(cx, out);
    if (!strncmp(out->triple, "aarch64", 7)) {
      LLVMInitializeAArch64TargetInfo();
      LLVMInitializeAArch64Target();
      LLVMInitializeAArch64TargetMC();
      LLVMInitializeAArch64AsmPrinter();
    } else {
      LLVMInitializeNativeTarget();
      LLVMInitializeNativeAsmPrinter();
    }
    return KILN_OK;
  }
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "machine",
                   "name must be avx2, avxvnni, avx512, avx512vnni or neon, got %s", name);
}

// Test support for cpu/: compiles the text of a loop program into this process and runs its nests.
#ifndef KILN_TEST_CPU_RIG_H
#define KILN_TEST_CPU_RIG_H

#include "target/target.h"
#include "unit/nests.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rig {
  kiln_diag *diag;
  kiln_ctx cx;
  kiln_machine machine;
  kiln_jit *jit;
  kiln_loops *loops;
  bool is_quick; // short kernels are not optimised
  kiln_text llvm, assembly;
} rig;

static inline void rig_fail(rig *r, const char *text) {
  for (size_t i = 0; i < kiln_diag_count(r->diag); i++)
    print_message("%s\n", kiln_diag_message(r->diag, i));
  fail_msg("%s", text);
}

// |machine| NULL: the host.
static inline void rig_init(rig *r, const char *machine) {
  memset(r, 0, sizeof *r);
  r->diag = kiln_diag_create();
  if (kiln_ctx_init(&r->cx, r->diag) != KILN_OK) fail();
  const kiln_status s = machine ? kiln_machine_named(&r->cx, machine, &r->machine)
                                : kiln_machine_host(&r->cx, &r->machine);
  if (s != KILN_OK) rig_fail(r, "machine");
}

static inline void rig_deinit(rig *r) {
  kiln_jit_destroy(r->jit);
  kiln_ctx_deinit(&r->cx);
  kiln_diag_destroy(r->diag);
}

// Whether this computer runs code for |machine|.
static inline bool rig_runs(const char *machine) {
  if (!machine) return true;
#if defined(__x86_64__)
  if (!strcmp(machine, "avxvnni")) { // by CPUID: not every compiler has a name for it
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
  }
  if (!strcmp(machine, "avx512vnni"))
    return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  if (!strcmp(machine, "avx2"))
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (!strcmp(machine, "avx512"))
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
#endif
  return false;
}

// A kernel of so many operations, in a loop without iterations, that short kernels beside it are
// not optimised.
static inline kiln_loops *rig_crowd(rig *r) {
  kiln_text text;
  kiln_loops *loops = NULL;
  kiln_text_init(&text, &r->cx.scratch);
  kiln_text_add(&text,
                "kernel crowd { param f32 x[2000]:(1) param f32 y[1]:(1) for i:0 { y[0] = x[0]");
  for (int i = 1; i < 2000; i++) kiln_text_printf(&text, " + x[%d]", i);
  kiln_text_add(&text, " } }");
  if (kiln_loops_parse(&r->cx, text.data, &loops) != KILN_OK) rig_fail(r, "parse");
  return loops;
}

static inline void rig_compile_loops(rig *r, kiln_loops *loops, bool link) {
  r->loops = loops;
  kiln_jit_destroy(r->jit);
  r->jit = NULL;
  kiln_text_init(&r->llvm, &r->cx.perm);
  kiln_text_init(&r->assembly, &r->cx.perm);
  const char *const symbols[] = {"k", "crowd"};
  kiln_loops *const kernels[] = {loops, r->is_quick ? rig_crowd(r) : NULL};
  kiln_object objects[2] = {{0}};
  int n = 0;
  const kiln_cpu_options options = {
      .n_threads = 1, .dump_llvm = &r->llvm, .dump_asm = &r->assembly};
  if (kiln_cpu_compile(&r->cx, &r->machine, r->is_quick ? 2 : 1, kernels, symbols, &options, &n,
                       objects) != KILN_OK)
    rig_fail(r, "compile");
  n = 0; // a module of both has the first object
  for (int i = 0; i < 2; i++)
    if (objects[i].data) objects[n++] = objects[i];
  if (link && kiln_jit_create(&r->cx, &r->machine, n, objects, &r->jit) != KILN_OK)
    rig_fail(r, "link");
  while (n > 0) kiln_object_deinit(&objects[--n]);
}

static inline void rig_compile(rig *r, const char *text, bool link) {
  kiln_loops *loops = NULL;
  if (kiln_loops_parse(&r->cx, text, &loops) != KILN_OK) rig_fail(r, "parse");
  if (kiln_loops_verify(&r->cx, loops) != KILN_OK) rig_fail(r, "verify");
  rig_compile_loops(r, loops, link);
}

static inline nest_fn rig_nest(rig *r, int nest) {
  char symbol[32];
  snprintf(symbol, sizeof symbol, "k_%d", nest);
  void *p = NULL;
  (void)!kiln_jit_find(r->jit, symbol, NULL, &p);
  nest_fn f = NULL;
  memcpy(&f, &p, sizeof f);
  return f;
}

// Runs all nests in order; |parallel| is the extent of those that are parallel.
static inline void rig_run(rig *r, char *const *args, int64_t parallel) {
  for (int i = 0; rig_nest(r, i); i++) rig_nest(r, i)(args, 0, parallel);
}

#endif

// What Kiln's table of processors says that they have, against LLVM, which knows them by the same
// names: a function that needs an extension is inlined into one that is for a processor if, and
//        only if, that has it.
#include "target/target.h"

#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include <stdio.h>
#include <string.h>

// What code may use; cx16 is no condition of inlining.
static const char *const features[] = {"sse3",
                                       "ssse3",
                                       "sse4.1",
                                       "sse4.2",
                                       "popcnt",
                                       "movbe",
                                       "aes",
                                       "pclmul",
                                       "avx",
                                       "f16c",
                                       "fma",
                                       "avx2",
                                       "bmi",
                                       "bmi2",
                                       "lzcnt",
                                       "adx",
                                       "sha",
                                       "gfni",
                                       "vaes",
                                       "vpclmulqdq",
                                       "avx512f",
                                       "avx512cd",
                                       "avx512bw",
                                       "avx512dq",
                                       "avx512vl",
                                       "avx512ifma",
                                       "avx512vbmi",
                                       "avx512vbmi2",
                                       "avx512vnni",
                                       "avx512bitalg",
                                       "avx512bf16",
                                       "avx512fp16",
                                       "avxvnni",
                                       "avxvnniint8",
                                       "avxvnniint16",
                                       "avxifma",
                                       "sse4a",
                                       "fma4",
                                       "xop",
                                       "movdiri",
                                       "movdir64b",
                                       "avxneconvert",
                                       "avx512vpopcntdq",
                                       "avx512vp2intersect"};
enum { N_FEATURES = KILN_LEN(features), MAX_NAMES = 256 };

typedef struct probe {
  LLVMContextRef c;
  LLVMModuleRef m;
  LLVMBuilderRef b;
  LLVMTypeRef type; // of a function of an i32
  LLVMValueRef callees[N_FEATURES];
} probe;

static LLVMValueRef begin(probe *p, const char *name, const char *kind, const char *what) {
  LLVMValueRef f = LLVMAddFunction(p->m, name, p->type);
  LLVMAddTargetDependentFunctionAttr(f, kind, what);
  LLVMPositionBuilderAtEnd(p->b, LLVMAppendBasicBlockInContext(p->c, f, ""));
  return f;
}

static void add_callee(probe *p, int i) {
  char name[32], feature[64];
  snprintf(name, sizeof name, "callee%d", i);
  snprintf(feature, sizeof feature, "+%s", features[i]);
  p->callees[i] = begin(p, name, "target-features", feature);
  LLVMValueRef x = LLVMGetParam(p->callees[i], 0);
  LLVMBuildRet(p->b, LLVMBuildMul(p->b, x, x, ""));
}

static LLVMValueRef add_caller(probe *p, const char *cpu) {
  LLVMValueRef f = begin(p, cpu, "target-cpu", cpu), x = LLVMGetParam(f, 0);
  for (int i = 0; i < N_FEATURES; i++) x = LLVMBuildCall2(p->b, p->type, p->callees[i], &x, 1, "");
  LLVMBuildRet(p->b, x);
  return f;
}

static LLVMTargetMachineRef make_machine(void) {
  static const char triple[] = "x86_64-pc-linux-gnu";
  LLVMTargetRef target = NULL;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) return NULL;
  return LLVMCreateTargetMachine(target, triple, "", "", LLVMCodeGenLevelDefault, LLVMRelocPIC,
                                 LLVMCodeModelDefault);
}

// Those whose calls are left are what the processor has not.
static int compare(kiln_ctx *cx, const probe *p, const char *name, LLVMValueRef caller) {
  bool is_left[N_FEATURES] = {false};
  kiln_machine m;
  int wrong = 0;
  if (kiln_machine_named(cx, name, &m) != KILN_OK) return 1;
  LLVMBasicBlockRef block = LLVMGetEntryBasicBlock(caller);
  for (LLVMValueRef i = LLVMGetFirstInstruction(block); i; i = LLVMGetNextInstruction(i))
    for (int k = 0; LLVMIsACallInst(i) && k < N_FEATURES; k++)
      is_left[k] |= LLVMGetCalledValue(i) == p->callees[k];
  for (int k = 0; k < N_FEATURES; k++) {
    if (kiln_machine_has(&m, features[k]) == !is_left[k]) continue;
    printf("%s: %s must %sbe in the table\n", name, features[k], is_left[k] ? "not " : "");
    wrong++;
  }
  return wrong;
}

static kiln_status check(kiln_ctx *cx, void *argument) {
  int *wrong = argument;
  LLVMValueRef callers[MAX_NAMES];
  LLVMInitializeNativeTarget();
  LLVMTargetMachineRef tm = make_machine();
  probe p = {.c = LLVMContextCreate()};
  p.m = LLVMModuleCreateWithNameInContext("names", p.c);
  p.b = LLVMCreateBuilderInContext(p.c);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(p.c);
  p.type = LLVMFunctionType(i32, &i32, 1, false);
  LLVMSetTarget(p.m, "x86_64-pc-linux-gnu");
  for (int i = 0; i < N_FEATURES; i++) add_callee(&p, i);
  size_t n = 0;
  for (const char *name; (name = kiln_machine_name(n)) && n < MAX_NAMES; n++) {
    kiln_machine m;
    if (kiln_machine_named(cx, name, &m) != KILN_OK || strcmp(m.cpu, name) != 0) break;
    callers[n] = add_caller(&p, name);
  }
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = tm ? LLVMRunPasses(p.m, "inline", tm, options) : NULL;
  *wrong = !tm || error || n < 60;
  for (size_t i = 0; i < n; i++) *wrong += compare(cx, &p, kiln_machine_name(i), callers[i]);
  printf("%zu processors, %d wrong\n", n, *wrong);
  LLVMDisposePassBuilderOptions(options);
  LLVMDisposeBuilder(p.b);
  LLVMDisposeModule(p.m);
  LLVMContextDispose(p.c);
  if (tm) LLVMDisposeTargetMachine(tm);
  return KILN_OK;
}

int main(void) {
  kiln_ctx cx;
  int wrong = 1;
  if (kiln_ctx_init(&cx, NULL) != KILN_OK) return 1;
  const kiln_status st = kiln_ctx_enter(&cx, check, &wrong);
  kiln_ctx_deinit(&cx);
  return st != KILN_OK || wrong != 0;
}

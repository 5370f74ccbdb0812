// Objects linked into this process by LLVM's ORC.
#include "target/cpu/cpu.h"

#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>

#include <stdlib.h>
#include <string.h>

struct kiln_jit {
  LLVMOrcLLJITRef lljit;
};

static kiln_status fail(kiln_ctx *cx, LLVMErrorRef error) {
  char *text = LLVMGetErrorMessage(error);
  const kiln_status s = KILN_FAIL(cx->diag, KILN_INTERNAL, "link",
                                  "objects must link into the process, got %s", text);
  LLVMDisposeErrorMessage(text);
  return s;
}

// The C library's functions that code may call, by their addresses here: the process may be linked
// statically, or hide them.
static LLVMErrorRef define_library(LLVMOrcLLJITRef lljit) {
  int n = 0;
  const kiln_libm_row *rows = kiln_cpu_libm_rows(&n);
  LLVMOrcCSymbolMapPair pairs[128];
  size_t k = 0;
  const struct {
    const char *name;
    kiln_function f;
  } memory[] = {{"memcpy", (kiln_function)memcpy},
                {"memmove", (kiln_function)memmove},
                {"memset", (kiln_function)memset}};
  const LLVMJITSymbolFlags flags = {
      LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0};
  for (size_t i = 0; i < KILN_LEN(memory); i++)
    pairs[k++] = (LLVMOrcCSymbolMapPair){LLVMOrcLLJITMangleAndIntern(lljit, memory[i].name),
                                         {(uintptr_t)memory[i].f, flags}};
  for (int i = 0; i < n; i++) {
    pairs[k++] = (LLVMOrcCSymbolMapPair){LLVMOrcLLJITMangleAndIntern(lljit, rows[i].name_f32),
                                         {(uintptr_t)rows[i].f32, flags}};
    pairs[k++] = (LLVMOrcCSymbolMapPair){LLVMOrcLLJITMangleAndIntern(lljit, rows[i].name_f64),
                                         {(uintptr_t)rows[i].f64, flags}};
  }
  return LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(lljit),
                               LLVMOrcAbsoluteSymbols(pairs, k));
}

static LLVMErrorRef add_objects(LLVMOrcLLJITRef lljit, int n, const kiln_object *objects) {
  LLVMErrorRef error = define_library(lljit);
  for (int i = 0; i < n && !error; i++) {
    LLVMMemoryBufferRef copy =
        LLVMCreateMemoryBufferWithMemoryRangeCopy(objects[i].data, objects[i].bytes, "kiln.o");
    error = LLVMOrcLLJITAddObjectFile(lljit, LLVMOrcLLJITGetMainJITDylib(lljit), copy);
  }
  return error;
}

kiln_status kiln_jit_create(kiln_ctx *cx, const kiln_machine *m, int n, const kiln_object *objects,
                            kiln_jit **out) {
  (void)m; // objects are of this machine, or they would not link
  *out = NULL;
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  LLVMOrcLLJITRef lljit = NULL;
  LLVMErrorRef error = LLVMOrcCreateLLJIT(&lljit, NULL);
  if (!error) error = add_objects(lljit, n, objects);
  kiln_jit *jit = error ? NULL : calloc(1, sizeof *jit);
  if (jit) {
    jit->lljit = lljit;
    *out = jit;
    return KILN_OK;
  }
  if (lljit) {
    LLVMErrorRef end = LLVMOrcDisposeLLJIT(lljit);
    if (end) LLVMConsumeError(end);
  }
  return error ? fail(cx, error) : KILN_FAIL(cx->diag, KILN_NO_MEMORY, "link", "no memory left");
}

void *kiln_jit_find(kiln_jit *jit, const char *symbol) {
  LLVMOrcExecutorAddress address = 0;
  LLVMErrorRef error = LLVMOrcLLJITLookup(jit->lljit, &address, symbol);
  if (!error) return (void *)(uintptr_t)address;
  LLVMConsumeError(error);
  return NULL;
}

void kiln_jit_destroy(kiln_jit *jit) {
  if (!jit) return;
  LLVMErrorRef error = LLVMOrcDisposeLLJIT(jit->lljit);
  if (error) LLVMConsumeError(error);
  free(jit);
}

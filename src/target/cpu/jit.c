// Objects linked into this process by LLVM's ORC.
#include "target/cpu/cpu.h"
#include "support/reserve.h"

#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct kiln_jit {
  LLVMOrcLLJITRef lljit;
};

// LLVM reports a failed allocation only by the system's message.
static kiln_status fail(kiln_diag *diag, LLVMErrorRef error) {
  char *text = LLVMGetErrorMessage(error);
  const bool is_memory = strstr(text, strerror(ENOMEM)) != NULL;
  const kiln_status s = KILN_FAIL(diag, is_memory ? KILN_NO_MEMORY : KILN_INTERNAL, "link",
                                  "objects must link into the process, got %s", text);
  LLVMDisposeErrorMessage(text);
  return s;
}

// Defines the C library's functions by their addresses here, because the process may be linked
// statically or hide them.
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

static void dispose(LLVMOrcLLJITRef lljit) {
  LLVMErrorRef error = lljit ? LLVMOrcDisposeLLJIT(lljit) : NULL;
  if (error) LLVMConsumeError(error);
}

static kiln_status create(kiln_diag *diag, int n, const kiln_object *objects, kiln_jit *jit) {
  LLVMErrorRef error = LLVMOrcCreateLLJIT(&jit->lljit, NULL);
  if (!error) error = add_objects(jit->lljit, n, objects);
  return error ? fail(diag, error) : KILN_OK;
}

kiln_status kiln_jit_create(kiln_ctx *cx, const kiln_machine *m, int n, const kiln_object *objects,
                            kiln_jit **out) {
  (void)m; // objects of another machine do not link
  *out = NULL;
  KILN_TRY(kiln_cpu_llvm_init(cx->diag));
  kiln_jit *jit = calloc(1, sizeof *jit);
  if (!jit) return KILN_FAIL(cx->diag, KILN_NO_MEMORY, "link", "no memory left");
  kiln_status st = kiln_reserve_begin(cx->diag);
  if (st == KILN_OK) st = kiln_reserve_end(cx->diag, create(cx->diag, n, objects, jit));
  if (st == KILN_OK) *out = jit;
  else kiln_jit_destroy(jit);
  return st;
}

static kiln_status find(kiln_jit *jit, const char *symbol, kiln_diag *diag, void **out) {
  LLVMOrcExecutorAddress address = 0;
  LLVMErrorRef error = LLVMOrcLLJITLookup(jit->lljit, &address, symbol);
  if (error) return fail(diag, error);
  *out = (void *)(uintptr_t)address;
  return KILN_OK;
}

kiln_status kiln_jit_find(kiln_jit *jit, const char *symbol, kiln_diag *diag, void **out) {
  *out = NULL;
  KILN_TRY(kiln_reserve_begin(diag));
  return kiln_reserve_end(diag, find(jit, symbol, diag, out));
}

void kiln_jit_destroy(kiln_jit *jit) {
  if (!jit) return;
  const bool has_reserve = kiln_reserve_begin(NULL) == KILN_OK;
  dispose(jit->lljit);
  if (has_reserve) kiln_reserve_end(NULL, KILN_OK);
  free(jit);
}

// Initialisation of LLVM's targets: LLVM fills tables of the process without a lock.
#include "target/cpu/cpu.h"

#include "support/reserve.h"

#include <llvm-c/Target.h>

#include <pthread.h>

static void init_host(void) {
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
}

static void init_arm(void) {
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
}

static kiln_status init(kiln_diag *diag, void (*body)(void)) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  KILN_TRY(kiln_reserve_begin(diag));
  pthread_mutex_lock(&lock);
  body();
  pthread_mutex_unlock(&lock);
  return kiln_reserve_end(diag, KILN_OK);
}

kiln_status kiln_cpu_llvm_init(kiln_diag *diag) { return init(diag, init_host); }
kiln_status kiln_cpu_llvm_init_arm(kiln_diag *diag) { return init(diag, init_arm); }

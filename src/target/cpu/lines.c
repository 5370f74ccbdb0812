// Debug information: the kernel's line for each instruction.
#include "target/cpu/cpu.h"

#include <string.h>

static void set_flag(kiln_cpu_module *m, const char *name, unsigned value) {
  LLVMMetadataRef v = LLVMValueAsMetadata(LLVMConstInt(m->i32, value, 0));
  LLVMAddModuleFlag(m->module, LLVMModuleFlagBehaviorWarning, name, strlen(name), v);
}

void kiln_cpu_lines_init(kiln_cpu_module *m) {
  static const char name[] = "kernel", by[] = "kiln";
  m->lines = LLVMCreateDIBuilder(m->module);
  m->file = LLVMDIBuilderCreateFile(m->lines, name, sizeof name - 1, ".", 1);
  (void)LLVMDIBuilderCreateCompileUnit(m->lines, LLVMDWARFSourceLanguageC99, m->file, by,
                                       sizeof by - 1, 1, "", 0, 0, "", 0,
                                       LLVMDWARFEmissionLineTablesOnly, 0, 0, 0, "", 0, "", 0);
  set_flag(m, "Debug Info Version", LLVMDebugMetadataVersion());
}

void kiln_cpu_lines_deinit(kiln_cpu_module *m) {
  if (m->lines) LLVMDisposeDIBuilder(m->lines);
  m->lines = NULL;
}

void kiln_cpu_say_line(kiln_emit *e) {
  if (!e->scope) return;
  LLVMSetCurrentDebugLocation2(
      e->b, LLVMDIBuilderCreateDebugLocation(e->m->llvm, (unsigned)e->line, 0, e->scope, NULL));
}

void kiln_cpu_lines_begin(kiln_emit *e, const char *symbol, int line) {
  LLVMDIBuilderRef d = e->m->lines;
  if (!d) return;
  LLVMMetadataRef type = LLVMDIBuilderCreateSubroutineType(d, e->m->file, NULL, 0, LLVMDIFlagZero);
  e->scope =
      LLVMDIBuilderCreateFunction(d, e->m->file, symbol, strlen(symbol), "", 0, e->m->file,
                                  (unsigned)line, type, 0, 1, (unsigned)line, LLVMDIFlagZero, 1);
  LLVMSetSubprogram(e->fn, e->scope);
  e->line = line;
  kiln_cpu_say_line(e);
}

void kiln_cpu_lines_end(kiln_emit *e) {
  if (!e->scope) return;
  LLVMSetCurrentDebugLocation2(e->b, NULL);
  LLVMDIBuilderFinalizeSubprogram(e->m->lines, e->scope);
}

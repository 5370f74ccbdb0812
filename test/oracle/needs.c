// What kiln_cpu_needs says of single instructions: a line of hexadecimal bytes each, in; the names
// of what they need, out. An instruction that is not known needs "unknown".
#include "target/target.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// An object of one section of code.
static kiln_object object_of(const unsigned char *code, size_t n) {
  static struct {
    Elf64_Ehdr head;
    Elf64_Shdr section;
    unsigned char code[16];
  } file;
  memset(&file, 0, sizeof file);
  file.head.e_shnum = 1;
  file.head.e_shoff = (Elf64_Off)((char *)&file.section - (char *)&file);
  file.section.sh_type = SHT_PROGBITS;
  file.section.sh_flags = SHF_EXECINSTR;
  file.section.sh_offset = (Elf64_Off)((char *)file.code - (char *)&file);
  file.section.sh_size = n;
  memcpy(file.code, code, n);
  return (kiln_object){&file, sizeof file};
}

static size_t read_hex(const char *line, unsigned char out[16]) {
  size_t n = 0;
  for (; n < 16 && line[2 * n] > ' '; n++) {
    const char digits[] = {line[2 * n], line[2 * n + 1], 0};
    out[n] = (unsigned char)strtoul(digits, NULL, 16);
  }
  return n;
}

static kiln_status answer(kiln_ctx *cx, void *argument) {
  char line[64];
  kiln_machine m = {.triple = "x86_64-pc-linux-gnu"};
  (void)argument;
  m.features = kiln_arena_strdup(&cx->perm, "+unknown,+bmi");
  while (fgets(line, sizeof line, stdin)) {
    unsigned char code[16];
    int n = 0;
    const size_t bytes = read_hex(line, code);
    const kiln_object o = object_of(code, bytes);
    const char *const *names = kiln_cpu_needs(cx, &m, 1, &o, &n);
    for (int i = 0; i < n; i++) printf("%s%s", i ? " " : "", names[i]);
    printf("\n");
  }
  return KILN_OK;
}

int main(void) {
  kiln_ctx cx;
  if (kiln_ctx_init(&cx, NULL) != KILN_OK) return 1;
  const kiln_status st = kiln_ctx_enter(&cx, answer, NULL);
  kiln_ctx_deinit(&cx);
  return st != KILN_OK;
}

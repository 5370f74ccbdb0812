// Annotated code: LLVM's text and the assembly, with the kernel's line for each instruction.
#include "ir/lines.h"
#include "target/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

static bool begins(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

static size_t line_bytes(const char *text) {
  const size_t n = strcspn(text, "\n");
  return n + (text[n] == '\n');
}

// The line in a directive "\t.loc\t1 45 0"; -1 for other lines.
static int line_of_loc(const char *at) {
  if (!begins(at, "\t.loc\t")) return -1;
  char *end = NULL;
  (void)strtol(at + 6, &end, 10);
  return (int)strtol(end, NULL, 10);
}

// An assembler directive, or a label of debug information.
static bool is_said_to_assembler(const char *at) {
  static const char *const marks[] = {"\t.", ".Ltmp", ".Lfunc_", ".Lsec_", "\t#DEBUG"};
  for (size_t i = 0; i < KILN_LEN(marks); i++)
    if (begins(at, marks[i])) return true;
  return *at == '\n';
}

static bool names_section(const char *at, bool *io_is_code) {
  const bool is_text = begins(at, "\t.text"), is_other = begins(at, "\t.section\t");
  if (is_text || is_other) *io_is_code = is_text || begins(at, "\t.section\t.text");
  return is_text || is_other;
}

static void add(kiln_ctx *cx, kiln_lined *out, const char *at, size_t n, int line) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_lined_add(out, kiln_arena_printf(&cx->scratch, "%.*s", (int)n, at), line);
  kiln_arena_rewind(&cx->scratch, mark);
}

static void read_assembly(kiln_ctx *cx, const char *at, kiln_lined *out) {
  bool is_code = true;
  int line = 0;
  for (size_t n; (n = line_bytes(at)) > 0; at += n) {
    const int said = line_of_loc(at);
    if (said >= 0) line = said;
    if (names_section(at, &is_code) || !is_code || is_said_to_assembler(at)) continue;
    add(cx, out, at, n, line);
  }
}

// Maps the number of a metadata node to its location's line.
static void find_locations(const char *at, kiln_map *out) {
  static const char location[] = " = !DILocation(line: ";
  for (size_t n; (n = line_bytes(at)) > 0; at += n) {
    char *end = NULL;
    if (*at != '!' || at[1] < '0' || at[1] > '9') continue;
    const unsigned long node = strtoul(at + 1, &end, 10);
    if (begins(end, location))
      kiln_map_put(out, node, strtoul(end + sizeof location - 1, NULL, 10));
  }
}

// The length of an instruction before its attachments ", !NAME !N".
static size_t instruction_bytes(const char *at, size_t n) {
  for (size_t i = 0; i + 3 < n; i++)
    if (begins(at + i, ", !")) return i;
  return n > 0 && at[n - 1] == '\n' ? n - 1 : n;
}

static int location_of(const char *at, size_t n, const kiln_map *locations) {
  static const char mark[] = "!dbg !";
  for (size_t i = 0; i + sizeof mark <= n; i++) {
    const uint64_t *line =
        begins(at + i, mark) ? kiln_map_find(locations, strtoul(at + i + sizeof mark - 1, NULL, 10))
                             : NULL;
    if (line) return (int)*line;
  }
  return 0;
}

// The text to show: of a function's first line without attributes, or of an instruction.
static const char *shown(kiln_ctx *cx, const char *at, size_t n) {
  const char *attributes = begins(at, "define") ? memmem(at, n, ") #", 3) : NULL;
  return attributes ? kiln_arena_printf(&cx->scratch, "%.*s {\n", (int)(attributes + 1 - at), at)
                    : kiln_arena_printf(&cx->scratch, "%.*s\n", (int)instruction_bytes(at, n), at);
}

// Reads the functions of LLVM's text, without metadata.
static void read_llvm(kiln_ctx *cx, const char *text, kiln_lined *out) {
  bool is_inside = false;
  kiln_map locations;
  kiln_map_init(&locations, &cx->perm);
  find_locations(text, &locations);
  for (size_t n; (n = line_bytes(text)) > 0; text += n) {
    is_inside |= begins(text, "define");
    if (!is_inside) continue;
    kiln_lined_add(out, shown(cx, text, n), location_of(text, n, &locations));
    is_inside = *text != '}';
  }
}

kiln_status kiln_cpu_show(kiln_ctx *cx, const kiln_machine *m, kiln_loops *loops,
                          const char *symbol, kiln_lined *out_llvm, kiln_lined *out_asm) {
  kiln_text llvm, assembly;
  kiln_object object = {0};
  int n = 0;
  kiln_text_init(&llvm, &cx->perm);
  kiln_text_init(&assembly, &cx->perm);
  const kiln_cpu_options options = {.dump_llvm = &llvm, .dump_asm = &assembly, .has_lines = true};
  KILN_TRY(kiln_cpu_compile(cx, m, 1, &loops, &symbol, &options, &n, &object));
  kiln_object_deinit(&object);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  if (llvm.data) read_llvm(cx, llvm.data, out_llvm);
  kiln_arena_rewind(&cx->scratch, mark);
  if (assembly.data) read_assembly(cx, assembly.data, out_asm);
  return KILN_OK;
}

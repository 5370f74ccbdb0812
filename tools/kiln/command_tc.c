// kiln tc: compiles a definition in TC notation, and runs, times or searches it, or prints its
// code.
#include "kiln.h"

#include <string.h>

// For another target, the code is printed.
static const char *levels_of(const options *o) {
  if (o->emit || !prints_code(o)) return o->emit;
  if (!strncmp(o->target, "hip:", 4)) return "hip";
  return strcmp(o->target, "c") ? "asm" : "c";
}

int command_tc(const options *o) {
  const char *path = o->args.at[0];
  if (!is_definition(path)) {
    fprintf(stderr, "%s: error: tc: must be a file that ends in .tc\n", path);
    return EXIT_WRONG;
  }
  if (o->search > 0) return command_search(o);
  options emitting = *o;
  emitting.emit = levels_of(o);
  if (emitting.emit) return emit_model(&emitting, path);
  return o->bench ? command_bench(o) : command_run(o);
}

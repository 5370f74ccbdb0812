// kiln tc: a definition in TC notation, compiled and run.
#include "kiln.h"

int command_tc(const options *o) {
  if (!is_definition(o->args.at[0])) {
    fprintf(stderr, "%s: error: tc: must be a file that ends in .tc\n", o->args.at[0]);
    return EXIT_WRONG;
  }
  return command_run(o);
}

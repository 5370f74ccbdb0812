// The `kiln` command: finds the command's row, parses its options and runs it.
#include "kiln.h"

#include <string.h>

static bool is_help(const char *arg) { return !strcmp(arg, "--help") || !strcmp(arg, "-h"); }

static int run_command(const command *c, int argc, char **argv) {
  options o;
  for (int i = 0; i < argc && (!c->takes_rest || strcmp(argv[i], "--")); i++)
    if (is_help(argv[i])) return print_command_help(c, stdout), EXIT_RIGHT;
  if (!options_parse(c, argc, argv, &o)) return EXIT_USAGE;
  return outputs_spare_inputs(c, &o) ? c->run(&o) : EXIT_WRONG;
}

static int run(int argc, char **argv) {
  if (argc < 2) return print_usage(stderr), EXIT_USAGE;
  if (is_help(argv[1])) return print_usage(stdout), EXIT_RIGHT;
  const command *c = command_find(!strcmp(argv[1], "--version") ? "version" : argv[1]);
  if (c) return run_command(c, argc - 2, argv + 2);
  fprintf(stderr, "kiln: no command '%s'\n", argv[1]);
  return print_usage(stderr), EXIT_USAGE;
}

int main(int argc, char **argv) { return end_output(run(argc, argv)); }

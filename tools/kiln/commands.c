// The tables of commands and options (options.def).
#include "kiln.h"

#include <math.h>
#include <string.h>

// clang-format off
#define USE "Compile, run and time"
#define CHECK "Check"
#define LOOK "Look inside"
#define MACHINE "This machine"
#define ABOUT "About Kiln"
const command commands[] = {
    {USE, "compile", "MODEL(.onnx|.tc) -o OUT", "compile a model to a module that libkiln_rt loads",
     ".onnx|.tc", 1, 1, command_compile, false},
    {USE, "run", "MODEL(.onnx|.tc) or MODULE", "run a model once",
     ".onnx|.tc|.so|.kmod", 1, 1, command_run, false},
    {USE, "bench", "MODEL(.onnx|.tc) or MODULE", "time a model",
     ".onnx|.tc|.so|.kmod", 1, 1, command_bench, false},
    {USE, "tc", "FILE.tc", "compile a definition and run it once",
     ".tc", 1, 1, command_tc, false},
    {CHECK, "check", "MODEL(.onnx|.tc)", "list every node that cannot be compiled",
     ".onnx|.tc", 1, 1, command_check, false},
    {CHECK, "verify", "MODEL(.onnx|.tc)",
     "check every kernel against the reference interpreter; of a .tc file every definition",
     ".onnx|.tc", 1, 1, command_verify, false},
    {CHECK, "compare", "A B (each MODEL, MODULE or onnxruntime[:MODEL.onnx])",
     "compare results and times of two models, modules or ONNX Runtime",
     ".onnx|.tc|.so|.kmod", 2, 2, command_compare, false},
    {CHECK, "test", "DIR...", "run tests in the ONNX backend-test layout",
     "/", 1, MAX_VALUES, command_test, false},
    {CHECK, "reduce", "MODEL.onnx -- COMMAND...",
     "find the smallest model for which COMMAND, with {} for its path, fails as for MODEL",
     ".onnx", 1, 1, command_reduce, true},
    {LOOK, "inspect", "MODEL(.onnx|.tc) or MODULE", "describe a model or a module",
     ".onnx|.tc|.so|.kmod", 1, 1, command_inspect, false},
    {LOOK, "explain", "MODEL(.onnx|.tc)", "print how a model's kernels are scheduled, and why",
     ".onnx|.tc", 1, 1, command_explain, false},
    {LOOK, "report", "MODEL(.onnx|.tc) -o OUT.html",
     "write a page that shows a model's kernels, the traffic between them, and their code",
     ".onnx|.tc", 1, 1, command_report, false},
    {LOOK, "orchestrate", "MODEL(.onnx|.tc)",
     "choose a model's kernels by a binary linear program, and print them",
     ".onnx|.tc", 1, 1, command_orchestrate, false},
    {MACHINE, "device", "", "measure this machine for the scheduler, or show its figures",
     NULL, 0, 0, command_device, false},
    {MACHINE, "cache", "", "list the caches of compiling and tuning, or clear them",
     NULL, 0, 0, command_cache, false},
    {ABOUT, "operators", "", "list the operators: domain, name, opsets, file",
     NULL, 0, 0, command_operators, false},
    {ABOUT, "version", "", "print the version, the ONNX versions understood and the host",
     NULL, 0, 0, command_version, false},
    {ABOUT, "help", "[COMMAND]", "list the commands, or the options of one",
     NULL, 0, 1, command_help, false},
    {0}};
#define ANY                 {FORM_ANY, NULL, 0, 0}
#define ONE_OF(words)       {FORM_WORD, words, 0, 0}
#define SOME_OF(words)      {FORM_WORDS, words, 0, 0}
#define SUCH_AS(words)      {FORM_HINT, words, 0, 0}
#define SOME_SUCH_AS(words) {FORM_HINTS, words, 0, 0}
#define FROM(least, most)   {FORM_NUMBER, NULL, least, most}
#define READS(ends)         {FORM_READ, ends, 0, 0}
#define WRITES(ends)        {FORM_WRITTEN, ends, 0, 0}
#define NAMED_FILE(ends)    {FORM_NAMED_FILE, ends, 0, 0}
#define FOLDER              {FORM_FOLDER, NULL, 0, 0}

const option_row option_rows[N_OPTION_ROWS] = {
#define GROUP(title) {.kind = OPTION_GROUP, .commands = "", .help = title},
#define AGAIN(kind, field, ...) {kind, offsetof(options, field), __VA_ARGS__},
#define TEXT(...) AGAIN(OPTION_TEXT, __VA_ARGS__)
#define TEXTS(...) AGAIN(OPTION_TEXTS, __VA_ARGS__)
#define PAIR(...) AGAIN(OPTION_PAIR, __VA_ARGS__)
#define INT(...) AGAIN(OPTION_INT, __VA_ARGS__)
#define REAL(...) AGAIN(OPTION_REAL, __VA_ARGS__)
#define FLAG(...) AGAIN(OPTION_FLAG, __VA_ARGS__)
#include "options.def"
};
// clang-format on

const command *command_find(const char *name) {
  for (const command *c = commands; c->name; c++)
    if (!strcmp(c->name, name)) return c;
  return NULL;
}

bool has_word(const char *list, char separator, const char *word, size_t length) {
  while (*list) {
    const char *end = strchr(list, separator);
    const size_t n = end ? (size_t)(end - list) : strlen(list);
    if (n == length && !strncmp(list, word, n)) return true;
    list += n + (end != NULL);
  }
  return false;
}

bool option_is_of(const option_row *r, const command *c) {
  return has_word(r->commands, ' ', c->name, strlen(c->name));
}

// The `kiln` command: a table of commands.
#include "kiln.h"

#include <stddef.h>
#include <string.h>

#define ROW(name, kind, field, value, help)                                                        \
  { name, kind, offsetof(options, field), value, help }
#define MODEL_ROWS                                                                                 \
  ROW("--dim", OPTION_TEXTS, dims, "NAME=N",                                                       \
      "bind a named dimension, or =A..B, =A..B/STEP, =P+Q; how many tensors a sequence is"),       \
      ROW("--size", OPTION_TEXTS, dims, "NAME=N", "the same, for a size of a definition"),         \
      ROW("--entry", OPTION_TEXT, entry, "NAME",                                                   \
          "the definition of a .tc file (its last; verify: all)"),                                 \
      ROW("--schedule", OPTION_TEXT, schedule, "FILE",                                             \
          "scripts in place of Kiln's own (see --dump=schedule)"),                                 \
      ROW("--ops", OPTION_TEXTS, op_files, "FILE.tc", "operators of your own for an ONNX model"),  \
      ROW("--shape", OPTION_TEXTS, shapes, "INPUT=1x3x224x224",                                    \
          "replace the shape of an input; a name in it names a dimension"),                        \
      ROW("--overridable", OPTION_TEXTS, overridable, "INPUT",                                     \
          "keep an initializer that is an input one, which a run may give; '*': all such"),        \
      ROW("--dtype", OPTION_TEXT, dtype, "T",                                                      \
          "store f32 tensors as f16 or bf16; tf32: multiply so"),                                  \
      ROW("--threads", OPTION_INT, threads, "N", "threads to compile for and run on (all cores)")
#define TARGET_ROW                                                                                 \
  ROW("--target", OPTION_TEXT, target, "T",                                                        \
      "cpu (default) or native; x86-64-v2, -v3, -v4, haswell, znver4 ...: such a processor; "      \
      "cuda: the GPU of this machine; cuda:sm_90a and the like; opencl; run and test: sim, "       \
      "sim:cuda:sm_90a: the simulator"),                                                           \
      ROW("--device", OPTION_INT, device, "N", "the GPU to run on (0)")
#define RULE_ROW                                                                                   \
  ROW("--without-rule", OPTION_TEXTS, without_rules, "RULE,...",                                   \
      "leave out rules by which programs are rewritten (docs/orchestration.md)"),                  \
      ROW("--with-rule", OPTION_TEXTS, with_rules, "RULE,...",                                     \
          "apply such as do not always pay, of which --orchestrate chooses; RULE@PLACE: there "    \
          "alone")
#define KERNEL_ROWS                                                                                \
  RULE_ROW,                                                                                        \
      ROW("--weight-growth", OPTION_REAL, weight_growth, "R",                                      \
          "the module's weights take at most R times the model's, at the price of time (no "       \
          "limit)"),                                                                               \
      ROW("--no-winograd", OPTION_FLAG, no_winograd, NULL,                                         \
          "compute 3x3 convolutions as they are"),                                                 \
      ROW("--no-connect", OPTION_FLAG, no_connect, NULL,                                           \
          "keep kernels as rules group them: none takes in its neighbours"),                       \
      ROW("--no-beside", OPTION_FLAG, no_beside, NULL,                                             \
          "on GPUs, launch each kernel by itself: none runs beside others"),                       \
      ROW("--clamp-indices", OPTION_FLAG, clamp_indices, NULL,                                     \
          "hold an index out of range in range, and say nothing of it"),                           \
      ROW("--orchestrate", OPTION_FLAG, orchestrate, NULL,                                         \
          "choose kernels by solving a program over all that may pay: takes seconds"),             \
      ROW("--orchestration", OPTION_TEXT, orchestration, "FILE",                                   \
          "the kernels of FILE, as kiln orchestrate -o writes it"),                                \
      ROW("--memory-limit", OPTION_INT, memory_limit, "BYTES",                                     \
          "choose kernels that keep at most so much of results in memory at once"),                \
      ROW("--solver-nodes", OPTION_INT, solver_nodes, "N",                                         \
          "end the solver there, with the best choice until then and a gap (4000 a part)")
#define CACHE_ROWS                                                                                 \
  KERNEL_ROWS,                                                                                     \
      ROW("--no-cache", OPTION_FLAG, no_cache, NULL, "neither look in the cache nor add to it"),   \
      ROW("--tune", OPTION_INT, tune, "N",                                                         \
          "measure N candidates of every kernel, take the fastest, and keep what was measured"),   \
      ROW("--tune-seconds", OPTION_REAL, tune_seconds, "S",                                        \
          "measure for so long at most (N: 16)"),                                                  \
      ROW("--backends", OPTION_TEXT, backends, "LIST",                                             \
          "call openblas, onednn, cublaslt, cudnn, all, or none (default) of these, where "        \
          "--tune has found them faster"),                                                         \
      ROW("--tuned-for", OPTION_TEXT, tuned_for, "DEVICE",                                         \
          "take what was measured on DEVICE, as in \"NVIDIA H200\"; measure nothing"),             \
      ROW("--tuned", OPTION_TEXT, tuned, "FILE",                                                   \
          "where measurements are kept (tuned.sqlite in the cache directory)")
#define INPUT_ROWS                                                                                 \
  ROW("--input", OPTION_TEXTS, inputs, "NAME=FILE", "an input from a .npy or .pb file"),           \
      ROW("--inputs", OPTION_TEXT, inputs_npz, "FILE.npz", "inputs by name"),                      \
      ROW("--fill", OPTION_TEXT, fill, "KIND",                                                     \
          "other inputs: random (default), zeros, ones, arange"),                                  \
      ROW("--seed", OPTION_INT, seed, "S", "of random inputs (0)")
#define TOLERANCE_ROWS                                                                             \
  ROW("--rtol", OPTION_REAL, rtol, "R",                                                            \
      "|got - want| <= atol + rtol * |want| (the errors that right results may have; of others' "  \
      "1e-3)"),                                                                                    \
      ROW("--atol", OPTION_REAL, atol, "A", "(1e-5)")
#define RESULT_ROWS                                                                                \
  ROW("--output-dir", OPTION_TEXT, output_dir, "DIR", "write every output to DIR/NAME.npy"),       \
      ROW("--outputs", OPTION_TEXT, outputs_npz, "FILE.npz", "write all outputs to one file"),     \
      ROW("--expect", OPTION_TEXTS, expects, "NAME=FILE",                                          \
          "compare an output with a .npy or .pb file"),                                            \
      ROW("--reference", OPTION_FLAG, reference, NULL,                                             \
          "compare all outputs with the reference interpreter"),                                   \
      TOLERANCE_ROWS
#define BENCH_ROWS                                                                                 \
  ROW("--iterations", OPTION_INT, iterations, "N", "timed runs (100)"),                            \
      ROW("--warmup", OPTION_INT, warmup, "N", "runs before (10)"),                                \
      ROW("--json", OPTION_TEXT, json, "FILE", "write the figures as JSON"),                       \
      ROW("--spin", OPTION_INT, spin, "US",                                                        \
          "how long a thread spins before it sleeps, in microseconds (2000)"),                     \
      ROW("--no-spin", OPTION_FLAG, no_spin, NULL, "threads without work sleep at once"),          \
      ROW("--profile", OPTION_FLAG, profile, NULL, "print a table of kernels"),                    \
      ROW("--trace", OPTION_TEXT, trace, "FILE", "write a Chrome trace of one run")

static const option_row compile_rows[] = {
    ROW("-o", OPTION_TEXT, out, "OUT", "the module to write: OUT.so, OUT.kmod for a GPU"),
    MODEL_ROWS,
    TARGET_ROW,
    CACHE_ROWS,
    ROW("--dump", OPTION_TEXT, dump, "LEVEL,...",
        "print graph, prim, loop, schedule, plan, c, llvm or asm; cuda, hip or opencl"),
    ROW("--dump-dir", OPTION_TEXT, dump_dir, "DIR", "write the dumps to DIR/LEVEL.txt instead"),
    ROW("--time-passes", OPTION_FLAG, time_passes, NULL, "print the time of every pass"),
    {0}};
static const option_row run_rows[] = {MODEL_ROWS, TARGET_ROW,  CACHE_ROWS,
                                      INPUT_ROWS, RESULT_ROWS, {0}};
static const option_row tc_rows[] = {
    ROW("--entry", OPTION_TEXT, entry, "NAME", "the definition (the file's last)"),
    ROW("--size", OPTION_TEXTS, dims, "NAME=N", "a size"),
    ROW("--schedule", OPTION_TEXT, schedule, "FILE",
        "a script for the whole definition, or sections `kernel NAME`, in place of Kiln's own"),
    ROW("--scheduler", OPTION_TEXT, scheduler, "S",
        "rules (default), or polyhedral with fusion max, min or preserve3, as in max or "
        "max+promote"),
    ROW("--threads", OPTION_INT, threads, "N", "threads to compile for and run on (all cores)"),
    INPUT_ROWS,
    RESULT_ROWS,
    ROW("--bench", OPTION_FLAG, bench, NULL, "time it instead"),
    BENCH_ROWS,
    RULE_ROW,
    ROW("--search", OPTION_INT, search, "N",
        "try N fillings of the schedule's holes, as in split C.m ?{16,32}; -o takes the best"),
    ROW("--verbose", OPTION_FLAG, verbose, NULL, "print refused fillings, too"),
    ROW("--emit", OPTION_TEXT, emit, "LEVEL,...",
        "print prim, loop, schedule, plan, c, llvm or asm instead"),
    ROW("--target", OPTION_TEXT, target, "T",
        "a processor: x86-64-v3, haswell ...; a GPU: cuda, cuda:sm_90a, opencl; print the code for "
        "c, "
        "avx2, avx512, neon or hip:gfx90a; "
        "or sim, sim:cuda:sm_90a: run it in the simulator and count bytes"),
    ROW("-o", OPTION_TEXT, out, "FILE", "where what is printed goes (stdout)"),
    ROW("--dump-dir", OPTION_TEXT, dump_dir, "DIR", "write DIR/LEVEL.txt instead"),
    {0}};
static const option_row bench_rows[] = {MODEL_ROWS, TARGET_ROW, CACHE_ROWS,
                                        INPUT_ROWS, BENCH_ROWS, {0}};
static const option_row verify_rows[] = {
    MODEL_ROWS,
    TARGET_ROW,
    CACHE_ROWS,
    ROW("--seed", OPTION_INT, seed, "S", "of the random data (0)"),
    TOLERANCE_ROWS,
    ROW("--verbose", OPTION_FLAG, verbose, NULL, "print right kernels too"),
    ROW("--reproducer", OPTION_TEXT, reproducer, "DIR",
        "where a failing kernel is written (kiln-reproducer)"),
    {0}};
static const option_row model_rows[] = {MODEL_ROWS, TARGET_ROW, {0}};
static const option_row inspect_rows[] = {
    MODEL_ROWS, ROW("--json", OPTION_TEXT, json, "FILE", "write the report as JSON"), {0}};
static const option_row explain_rows[] = {
    MODEL_ROWS,
    TARGET_ROW,
    CACHE_ROWS,
    ROW("--kernel", OPTION_TEXT, kernel, "NAME", "only this kernel"),
    ROW("--why", OPTION_PAIR, why, "A B",
        "only what became of the edge between two graph nodes, by name or by #STATEMENT"),
    ROW("--measure", OPTION_FLAG, measure, NULL, "compile and time the kernels, too"),
    ROW("--json", OPTION_TEXT, json, "FILE", "write the report as JSON"),
    {0}};
static const option_row orchestrate_rows[] = {
    MODEL_ROWS,
    TARGET_ROW,
    CACHE_ROWS,
    ROW("-o", OPTION_TEXT, out, "FILE", "write the kernels to FILE, to be edited and given back"),
    ROW("--json", OPTION_TEXT, json, "FILE", "write the report as JSON"),
    {0}};
static const option_row reduce_rows[] = {
    ROW("-o", OPTION_TEXT, out, "FILE", "where the reduced model is written (reduced.onnx)"),
    ROW("--match", OPTION_TEXT, match, "TEXT", "what the command prints must have this, too"),
    {0}};
static const option_row cache_rows[] = {
    ROW("--list", OPTION_FLAG, list, NULL, "print what is in it, the last used first"),
    ROW("--clear", OPTION_FLAG, clear, NULL, "empty it"),
    {0}};
static const option_row test_rows[] = {
    ROW("-k", OPTION_TEXT, glob, "GLOB", "only tests whose name matches"),
    ROW("--json", OPTION_TEXT, json, "FILE", "write the results as JSON"),
    ROW("--threads", OPTION_INT, threads, "N", "threads of every test (1)"),
    ROW("--dtype", OPTION_TEXT, dtype, "T",
        "store f32 tensors as f16 or bf16, those of the data too"),
    TARGET_ROW,
    ROW("--jobs", OPTION_INT, jobs, "N", "tests at the same time (all cores)"),
    ROW("--in-process", OPTION_FLAG, in_process, NULL,
        "one after the other in this process, for tools that watch it"),
    ROW("--rtol", OPTION_REAL, rtol, "R",
        "|got - want| <= atol + rtol * |want| alone; else what right results may be off by, and "
        "(1e-3)"),
    ROW("--atol", OPTION_REAL, atol, "A", "(1e-7; 1e-5 for the tests that --by-category lists)"),
    ROW("--by-category", OPTION_FLAG, by_category, NULL,
        "print how many tests of each kind of operator pass, and which need a wider tolerance"),
    ROW("--verbose", OPTION_FLAG, verbose, NULL, "print passed tests too"),
    {0}};
static const option_row device_rows[] = {
    ROW("--measure", OPTION_FLAG, measure, NULL, "measure, also where that has been done"),
    ROW("--show", OPTION_FLAG, show, NULL, "measure nothing: what a compilation goes by"),
    ROW("--json", OPTION_TEXT, json, "FILE", "write the figures as JSON"),
    {0}};
static const option_row no_rows[] = {{0}};

static const command commands[] = {
    {"compile", "MODEL(.onnx|.tc) -o OUT", "compile a model to a module that libkiln_rt loads",
     compile_rows, 1, 1, command_compile, false},
    {"run", "MODEL(.onnx|.tc) or MODULE", "run a model once", run_rows, 1, 1, command_run, false},
    {"tc", "FILE.tc", "compile a definition and run it once", tc_rows, 1, 1, command_tc, false},
    {"bench", "MODEL(.onnx|.tc) or MODULE", "time a model", bench_rows, 1, 1, command_bench, false},
    {"verify", "MODEL(.onnx|.tc)",
     "check every kernel against the reference interpreter; of a .tc file every definition",
     verify_rows, 1, 1, command_verify, false},
    {"check", "MODEL(.onnx|.tc)", "list every node that cannot be compiled", model_rows, 1, 1,
     command_check, false},
    {"inspect", "MODEL(.onnx|.tc) or MODULE", "print what a model or a module is", inspect_rows, 1,
     1, command_inspect, false},
    {"explain", "MODEL(.onnx|.tc)", "print how a model's kernels are scheduled, and why",
     explain_rows, 1, 1, command_explain, false},
    {"orchestrate", "MODEL(.onnx|.tc)",
     "choose a model's kernels by a binary program, and print them", orchestrate_rows, 1, 1,
     command_orchestrate, false},
    {"reduce", "MODEL.onnx -- COMMAND...",
     "find the smallest model for which COMMAND, with {} for its path, fails as for MODEL",
     reduce_rows, 1, 1, command_reduce, true},
    {"cache", "", "what compiling and tuning keep on disk", cache_rows, 0, 0, command_cache, false},
    {"test", "DIR...", "run tests in the ONNX backend-test layout", test_rows, 1, MAX_VALUES,
     command_test, false},
    {"device", "", "measure this machine for the scheduler, or show its figures", device_rows, 0, 0,
     command_device, false},
    {"operators", "", "list the operators: domain, name, opsets, file", no_rows, 0, 0,
     command_operators, false},
    {"version", "", "print the version, the ONNX versions understood and the host", no_rows, 0, 0,
     command_version, false},
};

static int usage(FILE *to, int code) {
  fprintf(to, "usage: kiln COMMAND ...\n\n");
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    fprintf(to, "  kiln %-9s %-27s %s\n", commands[i].name, commands[i].synopsis, commands[i].help);
  fprintf(to, "\n`kiln COMMAND --help` lists a command's options.\n");
  return code;
}

static int run(int argc, char **argv) {
  if (argc < 2) return usage(stderr, EXIT_USAGE);
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
    return usage(stdout, EXIT_RIGHT);
  const char *name = !strcmp(argv[1], "--version") ? "version" : argv[1];
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    const command *c = &commands[i];
    if (strcmp(name, c->name)) continue;
    for (int k = 2; k < argc && (!c->takes_rest || strcmp(argv[k], "--")); k++)
      if (!strcmp(argv[k], "--help") || !strcmp(argv[k], "-h"))
        return command_help(c, stdout), EXIT_RIGHT;
    options o = {.iterations = 100, .warmup = 10, .fill = "random"};
    if (c->run == command_test) o.rtol = -1; // that none is given
    if (!options_parse(c, argc - 2, argv + 2, &o)) return EXIT_USAGE;
    return outputs_spare_inputs(&o) ? c->run(&o) : EXIT_WRONG;
  }
  fprintf(stderr, "kiln: no command '%s'\n", name);
  return usage(stderr, EXIT_USAGE);
}

int main(int argc, char **argv) { return end_output(run(argc, argv)); }

// The commands compile, verify, check, version and operators.
#include "kiln.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void print_pass_time(const char *name, double ms) { printf("%-12s %9.2f ms\n", name, ms); }

static void print_pass_times(const kiln_compiled *c) {
  const kiln_pass_time *t;
  double total = c->recall_ms;
  if (c->recall_ms > 0) print_pass_time("cache", c->recall_ms);
  for (size_t i = 0, n = c->model ? kiln_model_pass_times(c->model, &t) : 0; i < n; i++) {
    print_pass_time(t[i].name, t[i].ms);
    total += t[i].ms;
  }
  print_pass_time("sum", total);
}

static void print_memory(kiln_memory m) {
  printf("weights %.2f MB (in the model %.2f MB), arena %.2f MB (lower bound %.2f MB)\n",
         (double)m.weight_bytes / 1e6, (double)m.model_weight_bytes / 1e6,
         (double)m.arena_bytes / 1e6, (double)m.arena_lower_bound_bytes / 1e6);
}

static bool has_ending(const char *path, const char *ending) {
  const size_t n = strlen(path), m = strlen(ending);
  return n > m && strcmp(path + n - m, ending) == 0;
}

static bool is_archive(const options *o) { return o->out && has_ending(o->out, ".a"); }

static bool check_archive(const options *o) {
  const command *c = command_find("compile");
  if (o->weights && !is_archive(o))
    return options_complain(c, "--weights", "must come with -o OUT.a", o->out ? o->out : "nothing");
  return true;
}

// A static library runs on one thread, whatever machine it is for, unless several are asked for.
static kiln_status compile_archive(const options *o, const kiln_compile_options *how,
                                   kiln_diag *diag, kiln_compiled *out) {
  const kiln_archive_options archive = {
      .struct_size = sizeof archive, .weights = o->weights, .parallel_for = o->threads > 1};
  kiln_compile_options asked = *how;
  if (asked.threads == 0) asked.threads = 1;
  kiln_status st = kiln_model_load(o->args.at[0], &asked, diag, &out->model);
  if (st == KILN_OK) st = kiln_model_compile_to_archive(out->model, o->out, &archive, diag);
  if (st == KILN_OK) out->memory = kiln_model_memory(out->model);
  return st;
}

// Prints the module's path, target, size and compile time.
static void print_made(const options *o, const kiln_compiled *c, double ms) {
  kiln_module *module = NULL;
  struct stat info = {.st_size = 0};
  (void)stat(o->out, &info);
  const double mb = (double)info.st_size / 1e6;
  if (!is_archive(o) && kiln_module_describe(o->out, NULL, &module) != KILN_OK) module = NULL;
  if (!o->quiet) {
    if (module) print_module_summary(o->out, module);
    else printf("%s: static library", o->out);
    printf(", %.2f MB, %s in %.2f s\n", mb, c->recalled ? "from the cache" : "made", ms / 1e3);
    print_memory(c->memory);
  }
  print_details(o, c->model, module);
  kiln_module_release(module);
}

int command_compile(const options *o) {
  if (!o->out && (o->dump || o->dump_after)) return emit_model(o, o->args.at[0]);
  if (!o->out)
    return fprintf(stderr, "kiln compile: error: -o: must name the module to write, got nothing\n"),
           EXIT_USAGE;
  if (!check_archive(o)) return EXIT_USAGE;
  kiln_diag *diag = kiln_diag_create();
  compile_storage *storage = calloc(1, sizeof *storage);
  kiln_compile_options co;
  kiln_compiled compiled = {0};
  kiln_status st = KILN_BAD_INPUT;
  const double start = now_ms();
  bool right = diag && storage && !refuse_module(o->args.at[0], "compile");
  right = right && compile_options_make(o, storage, &co);
  if (right && o->dump_dir) mkdir(o->dump_dir, 0777);
  if (right && schedule_read(storage, &co))
    st = is_archive(o) ? compile_archive(o, &co, diag, &compiled)
                       : kiln_compile_file(o->args.at[0], &co, o->out, diag, &compiled);
  if (compiled.model) print_tuning(o, compiled.model);
  if (st == KILN_OK) print_made(o, &compiled, now_ms() - start);
  if (st == KILN_OK && o->time_passes) print_pass_times(&compiled);
  int code = st == KILN_OK ? EXIT_RIGHT : exit_code_of(diag);
  if (storage && !dumps_write(storage, compiled.model)) code = EXIT_WRONG;
  if (diag) print_messages(diag);
  kiln_model_destroy(compiled.model);
  kiln_diag_destroy(diag);
  compile_storage_free(storage);
  return code;
}

typedef struct verify_state {
  const options *o;
  size_t n, total;
  char sizes[256]; // of the current definition
} verify_state;

static void on_result(void *user, const kiln_verify_result *r) {
  verify_state *v = user;
  v->n++;
  if (v->total) print_progress("verify", v->n, v->total);
  else if (strncmp(v->sizes, r->nodes, sizeof v->sizes - 1)) {
    snprintf(v->sizes, sizeof v->sizes, "%s", r->nodes);
    printf("%s\n", v->sizes);
  }
  if (r->passed && !v->o->verbose) return;
  printf("%s %-40.40s relative L2 error %.3g, largest difference %.3g  %.80s\n",
         r->passed ? "ok    " : "WRONG ", r->kernel, r->rel_l2, r->max_abs, r->nodes);
}

static kiln_verify_options verify_options_make(const options *o, verify_state *state) {
  return (kiln_verify_options){.struct_size = sizeof(kiln_verify_options),
                               .seed = (uint64_t)o->seed,
                               .rtol = o->rtol,
                               .atol = o->atol,
                               .reproducer_dir = o->reproducer,
                               .on_result = on_result,
                               .user = state,
                               .simulate = simulates(o)};
}

static int verify_definitions(const options *o) {
  kiln_diag *diag = kiln_diag_create();
  compile_storage *storage = calloc(1, sizeof *storage);
  kiln_compile_options co;
  verify_state state = {.o = o};
  const kiln_verify_options vo = verify_options_make(o, &state);
  size_t failed = 0;
  kiln_status st = KILN_BAD_INPUT;
  if (diag && storage && compile_options_make(o, storage, &co) && schedule_read(storage, &co)) {
    co.on_progress = NULL;
    st = kiln_definitions_verify(o->args.at[0], &co, &vo, diag, &failed);
  }
  if (diag) print_messages(diag);
  printf("%zu kernels checked, %zu wrong\n", state.n, failed);
  kiln_diag_destroy(diag);
  compile_storage_free(storage);
  return st == KILN_OK && failed == 0 ? EXIT_RIGHT : EXIT_WRONG;
}

int command_verify(const options *o) {
  loaded l;
  if (is_definition(o->args.at[0])) return verify_definitions(o);
  if (refuse_module(o->args.at[0], "verify")) return EXIT_WRONG;
  if (!load_model(o, o->args.at[0], !simulates(o), &l)) return l.code;
  kiln_diag *diag = kiln_diag_create();
  verify_state state = {.o = o, .total = l.module ? kiln_module_launch_count(l.module) : 0};
  const kiln_verify_options vo = verify_options_make(o, &state);
  size_t failed = 0;
  kiln_status st = diag ? kiln_model_verify(l.model, &vo, diag, &failed) : KILN_NO_MEMORY;
  if (diag) print_messages(diag);
  if (st == KILN_OK) printf("%zu kernels checked, %zu wrong\n", state.n, failed);
  kiln_diag_destroy(diag);
  loaded_free(&l);
  return st == KILN_OK && failed == 0 ? EXIT_RIGHT : EXIT_WRONG;
}

int command_check(const options *o) {
  loaded l;
  if (refuse_module(o->args.at[0], "check")) return EXIT_WRONG;
  if (!load_model(o, o->args.at[0], false, &l)) return l.code;
  printf("%s: every node can be compiled\n", o->args.at[0]);
  loaded_free(&l);
  return EXIT_RIGHT;
}

int command_version(const options *o) {
  int32_t ir, opset;
  (void)o;
  kiln_onnx_versions(&ir, &opset);
  printf("kiln %s\nONNX: IR version up to %d, opsets 7 to %d\nhost: %s\n", kiln_version(), ir,
         opset, kiln_host());
  return EXIT_RIGHT;
}

// Prints every operator's row, tab-separated, for docs/ref/operators.md.
int command_operators(const options *o) {
  (void)o;
  kiln_operator_info info;
  for (size_t i = 0; (info = kiln_operator(i)).name; i++)
    printf("%s\t%s\t%d\t%d\t%s\n", info.domain, info.name, info.since, info.until, info.file);
  return EXIT_RIGHT;
}

// Loads the compiler, libkiln beside the executable, when a command first needs it.
//
// The command is linked with the runtime only, so that running a module takes no memory for the
// compiler. Every function of kiln/compile.h that is not in the runtime is forwarded here. The
// library has its own copy of the runtime, with which it makes modules that the command's copy
// runs. This is sound because the runtime has no writable globals (a test checks it), both copies
// are built from the same sources, a library of another version is refused, and a module is
// released by a function that it carries.
#include "kiln.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Relative to the executable: in a build; installed; in a relocated installation.
static const char *const places[] = {KILN_SONAME, (KILN_LIBRARY_FROM_HERE "/" KILN_SONAME),
                                     ("../lib/" KILN_SONAME)};

static void *open_beside(const char *place) {
  char path[PATH_MAX + 32];
  ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
  while (n > 0 && path[n - 1] != '/') n--;
  if (n <= 0) return NULL;
  strcpy(path + n, place);
  return access(path, R_OK) ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

typedef void (*any_function)(void);

static any_function find(void *library, const char *name) {
  any_function function = NULL;
  void *symbol = dlsym(library, name);
  memcpy(&function, &symbol, sizeof function); // ISO C has no cast between the two
  return function;
}

static void stop(const char *must, const char *got) {
  fprintf(stderr, "kiln: error: compiler: %s, got: %s\n", must, got);
  exit(EXIT_WRONG);
}

static void *open_compiler(void) {
  void *library = NULL;
  (void)dlerror();
  for (size_t i = 0; !library && i < sizeof places / sizeof *places; i++)
    library = open_beside(places[i]);
  if (!library) {
    const char *why = dlerror();
    stop(KILN_SONAME " must be beside the command", why ? why : "no such file");
  }
  __typeof__(&kiln_version) version = (__typeof__(&kiln_version))find(library, "kiln_version");
  const char *got = version ? version() : "none";
  if (strcmp(got, KILN_VERSION)) stop("libkiln.so must be version " KILN_VERSION, got);
  return library;
}

// The library stays open: its objects may outlive any command's frame.
static any_function compiler(const char *name) {
  static void *library;
  if (!library) library = open_compiler();
  any_function function = find(library, name);
  if (!function) stop("libkiln.so must have every function of kiln/compile.h", name);
  return function;
}

#define COMPILER(name) ((__typeof__(&name))compiler(#name))

void compiler_load(void) { (void)COMPILER(kiln_version); }

kiln_status kiln_model_load(const char *path, const kiln_compile_options *how, kiln_diag *diag,
                            kiln_model **out_model) {
  return COMPILER(kiln_model_load)(path, how, diag, out_model);
}

void kiln_model_destroy(kiln_model *model) {
  if (model) COMPILER(kiln_model_destroy)(model); // NULL needs no library
}

kiln_status kiln_model_reduce(const char *path, const char *out_path,
                              const kiln_reduce_options *how, kiln_diag *diag, kiln_reduced *out) {
  return COMPILER(kiln_model_reduce)(path, out_path, how, diag, out);
}

kiln_status kiln_model_expose(const char *path, const char *out_path, kiln_diag *diag) {
  return COMPILER(kiln_model_expose)(path, out_path, diag);
}

kiln_status kiln_model_compile(kiln_model *model, kiln_diag *diag, kiln_module **out_module) {
  return COMPILER(kiln_model_compile)(model, diag, out_module);
}

kiln_status kiln_model_compile_to_archive(kiln_model *model, const char *out_path,
                                          const kiln_archive_options *how, kiln_diag *diag) {
  return COMPILER(kiln_model_compile_to_archive)(model, out_path, how, diag);
}

kiln_status kiln_compile_file(const char *path, const kiln_compile_options *how,
                              const char *out_path, kiln_diag *diag, kiln_compiled *out) {
  return COMPILER(kiln_compile_file)(path, how, out_path, diag, out);
}

kiln_status kiln_model_emit(kiln_model *model, kiln_diag *diag) {
  return COMPILER(kiln_model_emit)(model, diag);
}

size_t kiln_model_pass_times(const kiln_model *model, const kiln_pass_time **out) {
  return COMPILER(kiln_model_pass_times)(model, out);
}

kiln_tuning kiln_model_tuning(const kiln_model *model) {
  return COMPILER(kiln_model_tuning)(model);
}

kiln_memory kiln_model_memory(const kiln_model *model) {
  return COMPILER(kiln_model_memory)(model);
}

kiln_status kiln_model_explain(kiln_model *model, const kiln_explain_options *how, kiln_diag *diag,
                               const char **out_text) {
  return COMPILER(kiln_model_explain)(model, how, diag, out_text);
}

kiln_status kiln_cache_list(kiln_diag *diag,
                            void (*on_entry)(void *user, const kiln_cache_entry *entry),
                            void *user) {
  return COMPILER(kiln_cache_list)(diag, on_entry, user);
}

kiln_status kiln_cache_clear(kiln_diag *diag) { return COMPILER(kiln_cache_clear)(diag); }

int32_t kiln_cache_folder(char *out, size_t room) { return COMPILER(kiln_cache_folder)(out, room); }

size_t kiln_model_input_count(const kiln_model *model) {
  return COMPILER(kiln_model_input_count)(model);
}

size_t kiln_model_output_count(const kiln_model *model) {
  return COMPILER(kiln_model_output_count)(model);
}

kiln_port kiln_model_input(const kiln_model *model, size_t i) {
  return COMPILER(kiln_model_input)(model, i);
}

kiln_port kiln_model_output(const kiln_model *model, size_t i) {
  return COMPILER(kiln_model_output)(model, i);
}

int32_t kiln_model_input_is_optional(const kiln_model *model, size_t i) {
  return COMPILER(kiln_model_input_is_optional)(model, i);
}

const char *kiln_model_input_dim_name(const kiln_model *model, size_t i, int32_t axis) {
  return COMPILER(kiln_model_input_dim_name)(model, i, axis);
}

int32_t kiln_model_reads(const kiln_model *model, const char *path) {
  return COMPILER(kiln_model_reads)(model, path);
}

const char *kiln_model_report(const kiln_model *model, int json) {
  return COMPILER(kiln_model_report)(model, json);
}

kiln_status kiln_model_reference(kiln_model *model, size_t n_inputs, const DLTensor *const *inputs,
                                 size_t n_outputs, DLTensor *const *outputs, kiln_diag *diag) {
  return COMPILER(kiln_model_reference)(model, n_inputs, inputs, n_outputs, outputs, diag);
}

kiln_status kiln_model_judge(kiln_model *model, size_t n_inputs, const DLTensor *const *inputs,
                             size_t n_outputs, const DLTensor *const *got, kiln_diag *diag,
                             kiln_judgement *out) {
  return COMPILER(kiln_model_judge)(model, n_inputs, inputs, n_outputs, got, diag, out);
}

const int64_t *kiln_model_output_shape(const kiln_model *model, size_t i) {
  return COMPILER(kiln_model_output_shape)(model, i);
}

kiln_status kiln_model_simulate(kiln_model *model, size_t n_inputs, const DLTensor *const *inputs,
                                size_t n_outputs, DLTensor *const *outputs, kiln_diag *diag,
                                const char **out_report) {
  return COMPILER(kiln_model_simulate)(model, n_inputs, inputs, n_outputs, outputs, diag,
                                       out_report);
}

kiln_status kiln_model_verify(kiln_model *model, const kiln_verify_options *how, kiln_diag *diag,
                              size_t *out_failed) {
  return COMPILER(kiln_model_verify)(model, how, diag, out_failed);
}

kiln_status kiln_definitions_verify(const char *path, const kiln_compile_options *how,
                                    const kiln_verify_options *verify, kiln_diag *diag,
                                    size_t *out_failed) {
  return COMPILER(kiln_definitions_verify)(path, how, verify, diag, out_failed);
}

kiln_status kiln_schedule_search(const char *path, const kiln_compile_options *how,
                                 const kiln_search_options *search, kiln_diag *diag) {
  return COMPILER(kiln_schedule_search)(path, how, search, diag);
}

kiln_status kiln_device_report(const kiln_device_options *how, kiln_diag *diag) {
  return COMPILER(kiln_device_report)(how, diag);
}

kiln_operator_info kiln_operator(size_t i) { return COMPILER(kiln_operator)(i); }

kiln_status kiln_model_read_operators(const char *path, kiln_operator_fn on_operator, void *user,
                                      kiln_diag *diag) {
  return COMPILER(kiln_model_read_operators)(path, on_operator, user, diag);
}

kiln_status kiln_value_read_pb(const char *path, const char *type, int32_t max, kiln_diag *diag,
                               int32_t *out_n, DLManagedTensorVersioned **out_tensors) {
  return COMPILER(kiln_value_read_pb)(path, type, max, diag, out_n, out_tensors);
}

kiln_status kiln_tensor_read_pb(const char *path, kiln_diag *diag,
                                DLManagedTensorVersioned **out_tensor) {
  return COMPILER(kiln_tensor_read_pb)(path, diag, out_tensor);
}

const char *kiln_version(void) { return COMPILER(kiln_version)(); }

const char *kiln_host(void) { return COMPILER(kiln_host)(); }

void kiln_onnx_versions(int32_t *out_ir, int32_t *out_opset) {
  COMPILER(kiln_onnx_versions)(out_ir, out_opset);
}

// kiln inspect: describes a model or a module. Also checks options that do not apply to modules.
#include "kiln.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- options ---

// Whether the option of a row applies to modules; others apply to compilation only.
static bool is_for_modules(const option_row *r) {
  return has_word(r->commands, ' ', "module", strlen("module"));
}

static bool complain(const command *c, const char *option, const char *must, const char *got) {
  fprintf(stderr, "kiln %s: error: %s: %s, got %s\n", c->name, option, must, got);
  return false;
}

static bool has_dim(const kiln_module *m, const char *text) {
  const size_t n = name_length(text);
  char *end = NULL;
  (void)strtoll(text + n + 1, &end, 10);
  for (size_t i = 0; n && !*end && end != text + n + 1 && i < kiln_module_dim_count(m); i++) {
    const char *name = kiln_module_dim(m, i).name;
    if (strlen(name) == n && !strncmp(name, text, n)) return true;
  }
  return false;
}

static bool check_dims(const command *c, const options *o) {
  kiln_module *m = NULL;
  bool right = true;
  if (kiln_module_describe(o->args.at[0], NULL, &m) != KILN_OK) return true; // loading reports it
  for (int i = 0; right && i < o->dims.n; i++)
    if (!has_dim(m, o->dims.at[i]))
      right = complain(c, "--dim",
                       kiln_module_dim_count(m)
                           ? "must be NAME=N of a dimension that the module has as a range"
                           : "must be left out: the module's shapes are fixed",
                       o->dims.at[i]);
  kiln_module_release(m);
  return right;
}

bool module_options_check(const command *c, const options *o) {
  const bool runs =
      !strcmp(c->name, "run") || !strcmp(c->name, "bench") || !strcmp(c->name, "inspect");
  const bool compares = !strcmp(c->name, "compare") && o->args.n == 2 &&
                        // otherwise the option applies to the model
                        kiln_module_is_file(o->args.at[1]);
  if (!(runs || compares) || !o->args.n || !kiln_module_is_file(o->args.at[0])) return true;
  for (int i = 0; i < N_OPTION_ROWS; i++)
    if (o->given[i] && !is_for_modules(&option_rows[i]))
      return complain(c, option_rows[i].name, "must be given with a model", "a module");
  if (!strcmp(c->name, "inspect") && o->dims.n)
    return complain(c, "--dim", "must be given with a model", "a module");
  return !o->dims.n || check_dims(c, o);
}

// --- a module ---

enum { N_SHOWN = 4 }; // elements of a default to print

static void print_shape(kiln_port p) {
  printf("%s %s [", p.name, p.dtype);
  for (int32_t k = 0; k < p.rank; k++) {
    printf("%s", k ? ", " : "");
    if (p.shape[k] < 0) printf("?");
    else printf("%lld", (long long)p.shape[k]);
  }
  printf("]");
}

static void print_default(const DLTensor *t) {
  const int64_t n = kiln_tensor_count(t);
  printf(" optional, default");
  for (int64_t i = 0; i < n && i < N_SHOWN; i++) printf(" %.6g", kiln_tensor_element(t, i));
  if (n > N_SHOWN) printf(" ...");
}

static void print_ports(const kiln_module *m) {
  for (size_t i = 0; i < kiln_module_input_count(m); i++) {
    printf("%-12s", i ? "" : "inputs");
    print_shape(kiln_module_input(m, i));
    if (kiln_module_input_default(m, i)) print_default(kiln_module_input_default(m, i));
    printf("\n");
  }
  for (size_t i = 0; i < kiln_module_output_count(m); i++) {
    printf("%-12s", i ? "" : "outputs");
    print_shape(kiln_module_output(m, i));
    printf("\n");
  }
  for (size_t i = 0; i < kiln_module_dim_count(m); i++) {
    const kiln_dim_range d = kiln_module_dim(m, i);
    printf("%-12s%s %lld..%lld", i ? "" : "dimensions", d.name, (long long)d.least,
           (long long)d.most);
    if (d.step > 1) printf("/%lld", (long long)d.step);
    printf("\n");
  }
  if (!kiln_module_dim_count(m)) printf("%-12sall constant\n", "dimensions");
  for (size_t i = 0; i < kiln_module_state_count(m); i++) {
    const kiln_state_info s = kiln_module_state(m, i);
    printf("%-12s%s = %s\n", i ? "" : "states", s.name, kiln_module_output(m, s.output).name);
  }
}

// A kernel and its number of launches.
typedef struct kernel_row {
  kiln_launch_info info;
  size_t n, first;
} kernel_row;

static int by_name(const void *a, const void *b) {
  const kernel_row *x = a, *y = b;
  const int order = strcmp(x->info.kernel, y->info.kernel);
  return order ? order : (x->first > y->first) - (x->first < y->first);
}

static int by_first(const void *a, const void *b) {
  const kernel_row *x = a, *y = b;
  return (x->first > y->first) - (x->first < y->first);
}

// The kernels, ordered by first launch; malloc'ed, NULL if memory ran out.
static kernel_row *find_kernels(const kiln_module *m, size_t *out_n) {
  const size_t n = kiln_module_launch_count(m);
  kernel_row *rows = calloc(n + 1, sizeof *rows);
  *out_n = 0;
  if (!rows) return NULL;
  for (size_t i = 0; i < n; i++) rows[i] = (kernel_row){kiln_module_launch(m, i), 1, i};
  qsort(rows, n, sizeof *rows, by_name);
  for (size_t i = 0; i < n; i++) {
    const bool is_new =
        *out_n == 0 || strcmp(rows[*out_n - 1].info.kernel, rows[i].info.kernel) != 0;
    if (is_new) rows[(*out_n)++] = rows[i];
    else rows[*out_n - 1].n++;
  }
  qsort(rows, *out_n, sizeof *rows, by_first);
  return rows;
}

static bool print_module(const kiln_module *m) {
  const kiln_module_info a = kiln_module_about(m);
  size_t n = 0;
  kernel_row *rows = find_kernels(m, &n);
  if (!rows) return false;
  printf("%-12s%s\n%-12s%s\n%-12s", "target", a.target, "processor", a.processor, "features");
  for (size_t i = 0; i < a.n_features; i++) printf("%s%s", i ? " " : "", a.features[i]);
  printf("%s\n", a.n_features ? "" : "none beyond the target's first");
  printf("%-12s%d\n%-12skiln %s, file format %d, plan format %d\n", "threads", a.threads, "made by",
         a.compiler, a.file_version, a.plan_version);
  print_ports(m);
  printf("%-12s%zu\n%-12s%.2f MB\n%-12s%.2f MB, lower bound %.2f MB\n", "variants", a.n_variants,
         "weights", (double)kiln_module_weight_bytes(m) / 1e6, "arena",
         (double)kiln_module_arena_bytes(m) / 1e6,
         (double)kiln_module_arena_lower_bound_bytes(m) / 1e6);
  printf("%-12s%zu\n%-12s%zu\n", "launches", kiln_module_launch_count(m), "kernels", n);
  for (size_t i = 0; i < n; i++)
    printf("%10zu  %s  %s\n", rows[i].n, rows[i].info.kernel, rows[i].info.nodes);
  free(rows);
  return true;
}

// --- as JSON ---

static json_t *text_of(const char *text) {
  json_t *string = json_string(text); // checks UTF-8
  return string ? string : json_string("?");
}

static json_t *port_of(kiln_port p, const DLTensor *initial) {
  json_t *port = json_object(), *shape = json_array();
  json_object_set_new(port, "name", text_of(p.name));
  json_object_set_new(port, "dtype", json_string(p.dtype));
  json_object_set_new(port, "shape", shape);
  for (int32_t k = 0; k < p.rank; k++)
    json_array_append_new(shape, p.shape[k] < 0 ? json_null() : json_integer(p.shape[k]));
  if (!initial) return port;
  json_t *shown = json_array(); // the first elements
  json_object_set_new(port, "optional", json_true());
  json_object_set_new(port, "default", shown);
  for (int64_t i = 0; i < kiln_tensor_count(initial) && i < N_SHOWN; i++) {
    const double x = kiln_tensor_element(initial, i);
    json_array_append_new(shown, isfinite(x) ? json_real(x) : json_null());
  }
  return port;
}

static json_t *ports_of(const kiln_module *m, bool inputs) {
  json_t *ports = json_array();
  const size_t n = inputs ? kiln_module_input_count(m) : kiln_module_output_count(m);
  for (size_t i = 0; i < n; i++)
    json_array_append_new(ports,
                          inputs ? port_of(kiln_module_input(m, i), kiln_module_input_default(m, i))
                                 : port_of(kiln_module_output(m, i), NULL));
  return ports;
}

static json_t *dims_of(const kiln_module *m) {
  json_t *dims = json_array();
  for (size_t i = 0; i < kiln_module_dim_count(m); i++) {
    const kiln_dim_range d = kiln_module_dim(m, i);
    json_array_append_new(dims, json_pack("{s:o, s:I, s:I, s:I}", "name", text_of(d.name), "least",
                                          (json_int_t)d.least, "most", (json_int_t)d.most, "step",
                                          (json_int_t)d.step));
  }
  return dims;
}

static json_t *states_of(const kiln_module *m) {
  json_t *states = json_array();
  for (size_t i = 0; i < kiln_module_state_count(m); i++) {
    const kiln_state_info s = kiln_module_state(m, i);
    json_array_append_new(states, json_pack("{s:o, s:o}", "input", text_of(s.name), "output",
                                            text_of(kiln_module_output(m, s.output).name)));
  }
  return states;
}

static json_t *kernels_of(const kernel_row *rows, size_t n) {
  json_t *kernels = json_array();
  for (size_t i = 0; i < n; i++)
    json_array_append_new(
        kernels, json_pack("{s:o, s:o, s:I}", "kernel", text_of(rows[i].info.kernel), "nodes",
                           text_of(rows[i].info.nodes), "launches", (json_int_t)rows[i].n));
  return kernels;
}

static bool write_module(const kiln_module *m, const char *path) {
  const kiln_module_info a = kiln_module_about(m);
  size_t n = 0;
  kernel_row *rows = find_kernels(m, &n);
  if (!rows) return false;
  json_t *features = json_array();
  for (size_t i = 0; i < a.n_features; i++) json_array_append_new(features, text_of(a.features[i]));
  json_t *root =
      json_pack("{s:s, s:o, s:o, s:i, s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:o}",
                "target", a.target, "processor", text_of(a.processor), "features", features,
                "threads", a.threads, "compiler", a.compiler, "file_version", a.file_version,
                "plan_version", a.plan_version, "inputs", ports_of(m, true), "outputs",
                ports_of(m, false), "dimensions", dims_of(m), "states", states_of(m), "variants",
                (json_int_t)a.n_variants, "weight_bytes", (json_int_t)kiln_module_weight_bytes(m),
                "arena_bytes", (json_int_t)kiln_module_arena_bytes(m), "launches",
                (json_int_t)kiln_module_launch_count(m), "kernels", kernels_of(rows, n));
  char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
  const bool right = text && write_text(path, "output", text);
  if (!text) fprintf(stderr, "kiln: error: report: no memory left\n");
  free(text);
  json_decref(root);
  free(rows);
  return right;
}

static int inspect_module(const options *o) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = NULL;
  bool right = diag && kiln_module_describe(o->args.at[0], diag, &m) == KILN_OK;
  right = right && (o->json ? write_module(m, o->json) : print_module(m));
  if (diag) print_messages(diag);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
  return right ? EXIT_RIGHT : EXIT_WRONG;
}

int command_inspect(const options *o) {
  loaded l;
  options reading = *o;
  reading.read_only = true; // a model that cannot be compiled can still be inspected
  if (kiln_module_is_file(o->args.at[0])) return inspect_module(o);
  if (!load_model(&reading, o->args.at[0], false, &l)) return l.code;
  const bool right = may_write(o, l.model, o->json) &&
                     write_text(o->json, "output", kiln_model_report(l.model, o->json != NULL));
  loaded_free(&l);
  return right ? EXIT_RIGHT : EXIT_WRONG;
}

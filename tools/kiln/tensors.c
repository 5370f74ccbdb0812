// Tensors of the commands: inputs from files or filled, outputs, and comparison.
#include "kiln.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void tensors_free(tensors *t) {
  for (size_t i = 0; i < t->n; i++) kiln_tensor_destroy(t->at[i]);
  free(t->at);
  free(t->views);
  *t = (tensors){0};
}

bool tensors_alloc(tensors *t, size_t room) {
  *t =
      (tensors){.at = calloc(room + 1, sizeof *t->at), .views = calloc(room + 1, sizeof *t->views)};
  if (t->at && t->views) return true;
  fprintf(stderr, "kiln: error: tensors: no memory left\n");
  tensors_free(t);
  return false;
}

void tensors_add(tensors *t, tensor *added) {
  t->views[t->n] = added ? &added->dl_tensor : NULL;
  t->at[t->n++] = added;
}

static bool has_suffix(const char *path, const char *suffix) {
  size_t n = strlen(path), k = strlen(suffix);
  return n >= k && !strcmp(path + n - k, suffix);
}

tensor *tensor_read(const char *path) {
  if (!has_suffix(path, ".pb")) return npy_read(path);
  kiln_diag *diag = kiln_diag_create();
  tensor *t = NULL;
  if (diag && kiln_tensor_read_pb(path, diag, &t) != KILN_OK) t = NULL;
  if (diag) print_messages(diag);
  kiln_diag_destroy(diag);
  return t;
}

static bool is_bits(const DLDataType *bits, const DLDataType *of) {
  const bool is_code = of->code > kDLBool || of->bits < 8;
  return bits->code == kDLUInt &&
         (is_code ? bits->bits == 8 : of->code == kDLBfloat && bits->bits == 16);
}

void tensor_name_bits(tensor **t, const char *dtype) {
  DLTensor *bits = &(*t)->dl_tensor;
  tensor *named = kiln_tensor_create(dtype, bits->ndim, bits->shape, NULL);
  if (!named) return;
  const bool same = !is_bits(&bits->dtype, &named->dl_tensor.dtype);
  if (!same) kiln_tensor_pack(&named->dl_tensor, (const char *)bits->data + bits->byte_offset);
  kiln_tensor_destroy(same ? named : *t);
  if (!same) *t = named;
}

static double uniform(uint64_t *state) { // splitmix64
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

// Random floats are uniform in [-1, 1), random integers and bools 0 or 1, which are valid indices.
void tensor_fill(DLTensor *t, const char *how, uint64_t *state) {
  bool real = t->dtype.code == kDLFloat || t->dtype.code == kDLBfloat || t->dtype.code > kDLBool;
  int64_t n = kiln_tensor_count(t);
  for (int64_t i = 0; i < n; i++) {
    double v = 0;
    if (!strcmp(how, "ones")) v = 1;
    else if (!strcmp(how, "arange")) v = (double)i;
    else if (!strcmp(how, "random"))
      v = real ? 2 * uniform(state) - 1 : (double)(uniform(state) < 0.5);
    kiln_tensor_set_element(t, i, v);
  }
}

static tensor *make(const kiln_port *p) {
  kiln_diag *diag = kiln_diag_create();
  tensor *t = diag ? kiln_tensor_create(p->dtype, p->rank, p->shape, diag) : NULL;
  if (diag) print_messages(diag);
  kiln_diag_destroy(diag);
  return t;
}

static void print_names(const kiln_module *m) {
  for (size_t k = 0; k < kiln_module_input_count(m); k++)
    fprintf(stderr, "%s%s", k ? ", " : "", kiln_module_input(m, k).name);
}

static bool is_input(const kiln_module *m, const char *name, size_t n) {
  for (size_t k = 0; k < kiln_module_input_count(m); k++) {
    const char *input = kiln_module_input(m, k).name;
    if (strlen(input) == n && !strncmp(input, name, n)) return true;
  }
  return false;
}

// Whether the value was compiled in, replacing an initializer.
static bool is_constant(const loaded *l, const char *name, size_t n) {
  for (size_t k = 0; k < l->n_constants; k++)
    if (strlen(l->constant_names[k]) == n && !strncmp(l->constant_names[k], name, n)) return true;
  return false;
}

static bool names_known(const values *v, const loaded *l) {
  const kiln_module *m = l->module;
  for (int i = 0; i < v->n; i++) {
    const size_t n = name_length(v->at[i]);
    if (is_input(m, v->at[i], n) || is_constant(l, v->at[i], n)) continue;
    fprintf(stderr, "kiln: error: --input: must be NAME=FILE with the name of an input (");
    print_names(m);
    fprintf(stderr, "), got '%.*s'\n", (int)name_length(v->at[i]), v->at[i]);
    return false;
  }
  return true;
}

// Reports an entry that is no input. Its name is untrusted; a diagnostic escapes it.
static void refuse_entry(const char *path, const kiln_module *m, char *name) {
  kiln_diag *diag = kiln_diag_create();
  char *list = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&list, &bytes);
  for (size_t k = 0; out && k < kiln_module_input_count(m); k++)
    fprintf(out, "%s%s", k ? ", " : "", kiln_module_input(m, k).name);
  if (out) fclose(out);
  for (char *c = name; c && *c; c++) // a message may have several lines, a name may not
    if (*c == '\n') *c = '?';
  (void)kiln_diag_fail(diag, KILN_BAD_INPUT, path, "npz: must hold inputs only (%s), got '%s'",
                       list ? list : "", name ? name : "an entry without a name");
  free(list);
  print_messages(diag);
  kiln_diag_destroy(diag);
}

static bool npz_known(npz *z, const char *path, const loaded *l) {
  bool known = true;
  for (size_t i = 0, n = npz_count(z); known && i < n; i++) {
    char *name = npz_name(z, i);
    known = name && (is_input(l->module, name, strlen(name)) || is_constant(l, name, strlen(name)));
    if (!known) refuse_entry(path, l->module, name);
    free(name);
  }
  return known;
}

// The size in the largest shape with elements of eight bytes, so that a wrong type is reported as
// such.
static uint64_t most_bytes(const kiln_module *m, size_t i) {
  int64_t most[KILN_MAX_DIMS], shape[KILN_MAX_PORT_RANK];
  uint64_t bytes = 8;
  for (size_t k = 0; k < kiln_module_dim_count(m); k++) most[k] = kiln_module_dim(m, k).most;
  if (kiln_module_input_shape(m, i, most, NULL, shape) != KILN_OK) return 0;
  for (int32_t k = 0; k < kiln_module_input(m, i).rank; k++)
    if (__builtin_mul_overflow(bytes, (uint64_t)shape[k], &bytes)) return UINT64_MAX;
  return bytes;
}

// The values of --dim for the module's ranges.
static bool given_dims(const options *o, const kiln_module *m, int64_t *out) {
  for (size_t i = 0; i < kiln_module_dim_count(m); i++) {
    const kiln_dim_range d = kiln_module_dim(m, i);
    const char *value = values_find(&o->dims, d.name);
    char *end = NULL;
    out[i] = value ? strtoll(value, &end, 10) : 0;
    if (value && end != value && !*end) continue;
    fprintf(stderr,
            "kiln: error: dimension %s: must be given, as --dim %s=N with N from %lld to %lld, or "
            "all inputs as files, got %s\n",
            d.name, d.name, (long long)d.least, (long long)d.most, value ? value : "nothing");
    return false;
  }
  return true;
}

// A filled tensor of the shape that --dim gives.
static tensor *filled_tensor(const options *o, const kiln_module *m, size_t i, uint64_t *state) {
  int64_t dims[KILN_MAX_DIMS], shape[KILN_MAX_PORT_RANK];
  kiln_port p = kiln_module_input(m, i);
  kiln_diag *diag = kiln_diag_create();
  bool right =
      diag && given_dims(o, m, dims) && kiln_module_input_shape(m, i, dims, diag, shape) == KILN_OK;
  if (diag) print_messages(diag);
  kiln_diag_destroy(diag);
  p.shape = shape;
  tensor *t = right ? make(&p) : NULL;
  if (t) tensor_fill(&t->dl_tensor, o->fill, state);
  return t;
}

// One input: from its file, from the archive, or filled; NULL without *out_failed if it keeps its
// default.
static tensor *input_tensor(const options *o, npz *z, const kiln_module *m, size_t i,
                            uint64_t *state, bool *out_failed) {
  const kiln_port p = kiln_module_input(m, i);
  const char *file = values_find(&o->inputs, p.name);
  *out_failed = false;
  tensor *t = file ? tensor_read(file)
              : z  ? npz_find(z, p.name, most_bytes(m, i), out_failed)
                   : NULL;
  *out_failed |= file && !t;
  if (t) tensor_name_bits(&t, p.dtype);
  if (t || *out_failed || kiln_module_input_is_optional(m, i)) return t;
  t = filled_tensor(o, m, i, state);
  *out_failed = !t;
  return t;
}

bool tensors_for_inputs(const options *o, const loaded *l, tensors *out) {
  const kiln_module *m = l->module;
  *out = (tensors){0};
  if (!names_known(&o->inputs, l)) return false;
  npz *z = o->inputs_npz ? npz_open(o->inputs_npz) : NULL;
  uint64_t state = (uint64_t)o->seed;
  size_t n = kiln_module_input_count(m);
  bool right = (z ? npz_known(z, o->inputs_npz, l) : !o->inputs_npz) && tensors_alloc(out, n);
  for (size_t i = 0; right && i < n; i++) {
    bool failed = false;
    tensor *t = input_tensor(o, z, m, i, &state, &failed);
    right = !failed;
    if (right) tensors_add(out, t);
  }
  npz_close(z);
  if (!right) tensors_free(out);
  return right;
}

// The tensor of --input or --inputs for a model's input; NULL if none is given, or after a message.
// Its type and shape are checked when the model is loaded with it.
static tensor *given_tensor(const options *o, npz *z, kiln_port p, bool *out_failed) {
  const char *name = p.name;
  uint64_t most = 1 << 20; // the least limit, for elements of eight bytes
  uint64_t bytes = 8;
  for (int32_t k = 0; k < p.rank; k++) bytes *= p.shape[k] > 0 ? (uint64_t)p.shape[k] : 1;
  if (bytes > most) most = bytes;
  const char *file = values_find(&o->inputs, name);
  *out_failed = false;
  tensor *t = file ? tensor_read(file) : z ? npz_find(z, name, most, out_failed) : NULL;
  *out_failed |= file && !t;
  return t;
}

bool constants_find(const options *o, const kiln_model *m, loaded *out) {
  npz *z = o->inputs_npz ? npz_open(o->inputs_npz) : NULL;
  const size_t n = kiln_model_input_count(m);
  bool right = (z || !o->inputs_npz);
  out->constant_names = calloc(n + 1, sizeof *out->constant_names);
  out->constants = calloc(n + 1, sizeof *out->constants);
  right = right && out->constant_names && out->constants;
  for (size_t i = 0; right && i < n; i++) {
    const kiln_port p = kiln_model_input(m, i);
    bool failed = false;
    tensor *t = kiln_model_input_is_optional(m, i) ? given_tensor(o, z, p, &failed) : NULL;
    right = !failed;
    if (!t) continue;
    tensor_name_bits(&t, p.dtype);
    out->constants[out->n_constants] = t;
    out->constant_names[out->n_constants++] = strdup(p.name);
    right = out->constant_names[out->n_constants - 1] != NULL;
  }
  npz_close(z);
  return right;
}

static bool add_made(tensors *out, kiln_port p) {
  tensor *t = make(&p);
  if (t) tensors_add(out, t);
  else tensors_free(out);
  return t != NULL;
}

// Adds the outputs, whose shapes follow from those of the inputs.
static bool add_outputs(const kiln_module *m, const tensors *inputs, kiln_diag *diag,
                        tensors *out) {
  int64_t dims[KILN_MAX_DIMS], shape[KILN_MAX_PORT_RANK];
  if (kiln_module_find_dims(m, inputs->n, (const DLTensor *const *)inputs->views, diag, dims) !=
      KILN_OK)
    return false;
  for (size_t i = 0; i < kiln_module_output_count(m); i++) {
    kiln_port p = kiln_module_output(m, i);
    if (kiln_module_output_shape(m, i, dims, diag, shape) != KILN_OK) return false;
    p.shape = shape;
    if (!add_made(out, p)) return false;
  }
  return true;
}

bool tensors_for_outputs(const kiln_module *m, const tensors *inputs, tensors *out) {
  kiln_diag *diag = kiln_diag_create();
  if (!diag || !tensors_alloc(out, kiln_module_output_count(m))) {
    kiln_diag_destroy(diag);
    return false;
  }
  const bool right = add_outputs(m, inputs, diag, out);
  print_messages(diag);
  kiln_diag_destroy(diag);
  if (!right) tensors_free(out);
  return right;
}

bool tensors_for_results(const kiln_model *m, tensors *out) {
  const size_t n = kiln_model_output_count(m);
  if (!tensors_alloc(out, n)) return false;
  for (size_t i = 0; i < n; i++)
    if (!add_made(out, kiln_model_output(m, i))) return false;
  return true;
}

// Copies the leading elements of each axis, of whole bytes, to a dense array.
static void copy_front(const DLTensor *from, const DLTensor *to, const char *elements,
                       char *front) {
  const size_t bytes = from->dtype.bits < 8 ? 1 : from->dtype.bits / 8u;
  int64_t at[16] = {0};
  for (int64_t i = 0, n = kiln_tensor_count(to); i < n; i++) {
    int64_t linear = 0;
    for (int32_t k = 0; k < to->ndim; k++) linear = linear * from->shape[k] + at[k];
    memcpy(front + (size_t)i * bytes, elements + (size_t)linear * bytes, bytes);
    for (int32_t k = to->ndim - 1; k >= 0 && ++at[k] == to->shape[k]; k--) at[k] = 0;
  }
}

bool tensors_crop(tensors *t, size_t i, const int64_t *shape) {
  const DLTensor *from = t->views[i];
  bool whole = true;
  for (int32_t k = 0; k < from->ndim; k++) whole &= shape[k] == from->shape[k];
  if (whole) return true;
  tensor *made = make(&(kiln_port){"", kiln_tensor_dtype(from), from->ndim, shape});
  const size_t most = (size_t)kiln_tensor_count(from) * 8 + 1;
  char *elements = malloc(most), *front = malloc(most);
  const bool right = made && elements && front;
  if (right) {
    kiln_tensor_unpack(from, elements);
    copy_front(from, &made->dl_tensor, elements, front);
    kiln_tensor_pack(&made->dl_tensor, front);
    kiln_tensor_destroy(t->at[i]);
    t->at[i] = made;
    t->views[i] = &made->dl_tensor;
  } else {
    fprintf(stderr, "kiln: error: output: no memory left\n");
    kiln_tensor_destroy(made);
  }
  free(elements);
  free(front);
  return right;
}

static void shape_text(const DLTensor *t, char text[96]) {
  int n = snprintf(text, 96, "%s[", kiln_tensor_dtype(t) ? kiln_tensor_dtype(t) : "?");
  for (int32_t k = 0; k < t->ndim && n < 80; k++)
    n += snprintf(text + n, 96 - (size_t)n, "%s%lld", k ? "x" : "", (long long)t->shape[k]);
  snprintf(text + n, 96 - (size_t)n, "]");
}

static bool same_type(const DLTensor *a, const DLTensor *b) {
  bool same =
      a->ndim == b->ndim && a->dtype.code == b->dtype.code && a->dtype.bits == b->dtype.bits;
  for (int32_t k = 0; same && k < a->ndim; k++) same = a->shape[k] == b->shape[k];
  return same;
}

bool tensor_compare(const DLTensor *got, const DLTensor *want, double rtol, double atol,
                    difference *out, char why[256]) {
  *out = (difference){.first_wrong = -1};
  if (!same_type(got, want)) {
    char g[96], w[96];
    shape_text(got, g);
    shape_text(want, w);
    snprintf(why, 256, "type must be %s, got %s", w, g);
    return false;
  }
  double norm = 0, error = 0;
  for (int64_t i = 0, n = kiln_tensor_count(got); i < n; i++) {
    double a = kiln_tensor_element(got, i), b = kiln_tensor_element(want, i), d = fabs(a - b);
    const bool equal = (isnan(a) && isnan(b)) || a == b; // infinity is near to itself only
    if (equal) d = 0;
    if (isfinite(b)) norm += b * b;
    error += d * d;
    if (d > out->max_abs || isnan(d)) out->max_abs = d;
    if (b != 0 && d / fabs(b) > out->max_rel) out->max_rel = d / fabs(b);
    if (equal || (isfinite(b) && d <= atol + rtol * fabs(b))) continue;
    if (out->n_wrong++ == 0) {
      out->first_wrong = i;
      snprintf(why, 256, "element %lld must be %.9g, got %.9g", (long long)i, b, a);
    }
  }
  out->rel_l2 = norm > 0 ? sqrt(error / norm) : sqrt(error);
  return out->n_wrong == 0;
}

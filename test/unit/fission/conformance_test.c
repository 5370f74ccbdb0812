// ONNX's own node tests (Debian's libonnx-testdata), lowered and interpreted: the operators against
// the standard's numbers. All inputs but the first are constants, as exporters have them.
#include "analysis/interpret.h"
#include "fission/lower.h"
#include "onnx/reader.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char root[] = "/usr/share/libonnx-testdata/data/node";

// Reads as "this node test stores bf16 as bits of another type": the data is odd, not the operator.
static const char *const odd[] = {"test_cast_FLOAT_to_BFLOAT16", "test_castlike_FLOAT_to_BFLOAT16",
                                  "test_castlike_FLOAT_to_BFLOAT16_expanded"};

enum { MAX_ENDS = 32, AT_LEAST = 700, MAX_FILES = 2 * MAX_ENDS + 2 };

typedef enum verdict { PASSED, SKIPPED, UNSUPPORTED, WRONG } verdict;

typedef struct job {
  const char *name;
  verdict verdict;
  kiln_onnx_file *files[MAX_FILES];
  int n_files;
  kiln_interpreter *in;
} job;

static bool keep(job *j, kiln_onnx_file *file) {
  if (file) j->files[j->n_files++] = file;
  return file != NULL;
}

static bool read_tensor(kiln_ctx *cx, job *j, const char *what, int i, kiln_const *out) {
  char path[512];
  kiln_onnx_file *file = NULL;
  snprintf(path, sizeof(path), "%s/%s/test_data_set_0/%s_%d.pb", root, j->name, what, i);
  return kiln_onnx_read_tensor(cx, path, &file, out) == KILN_OK && keep(j, file);
}

static bool read_model(kiln_ctx *cx, job *j, const kiln_onnx_options *options, kiln_graph **out) {
  char path[512];
  kiln_onnx_file *file = NULL;
  snprintf(path, sizeof(path), "%s/%s/model.onnx", root, j->name);
  return kiln_onnx_read(cx, path, options, &file, out) == KILN_OK && keep(j, file);
}

static bool is_close(kiln_dtype t, double got, double want) {
  const double rtol = t == KILN_BF16 ? 1e-2 : 1e-3;
  return got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= 1e-5 + rtol * fabs(want);
}

static bool same(const kiln_tensor *t, const void *got, const kiln_const *want) {
  int64_t shape[KILN_MAX_RANK];
  if (t->dtype != want->dtype || t->rank != want->rank || !kiln_tensor_static_shape(t, shape))
    return false;
  for (int a = 0; a < t->rank; a++)
    if (shape[a] != want->shape[a]) return false;
  for (int64_t i = 0; i < kiln_tensor_elems(t); i++) {
    if (!kiln_dtype_is_float(t->dtype)) {
      if (kiln_element_get_int(t->dtype, got, i) != kiln_element_get_int(t->dtype, want->data, i))
        return false;
    } else if (!is_close(t->dtype, kiln_element_get(t->dtype, got, i),
                         kiln_element_get(t->dtype, want->data, i))) {
      return false;
    }
  }
  return true;
}

static kiln_status run(kiln_ctx *cx, void *argument) {
  job *j = argument;
  const kiln_onnx_options plain = {0};
  kiln_graph *g = NULL;
  kiln_program *p = NULL;
  kiln_const in[MAX_ENDS], want;
  kiln_onnx_constant constants[MAX_ENDS];
  j->verdict = SKIPPED;
  if (!read_model(cx, j, &plain, &g) || g->n_inputs > MAX_ENDS - 2) return KILN_OK;
  const int n = g->n_inputs;
  for (int i = 0; i < n; i++) {
    if (!read_tensor(cx, j, "input", i, &in[i])) return KILN_OK;
    constants[i] = (kiln_onnx_constant){kiln_symbol_text(cx, g->values[g->inputs[i]]->name), in[i]};
  }
  const kiln_onnx_options options = {.n_constants = n > 1 ? n - 1 : 0, .constants = constants + 1};
  if (!read_model(cx, j, &options, &g)) return KILN_OK;
  j->verdict = UNSUPPORTED;
  const kiln_status lowered = kiln_fission(cx, g, &p);
  if (lowered == KILN_UNSUPPORTED) return KILN_OK;
  j->verdict = WRONG;
  if (lowered != KILN_OK) return lowered;
  KILN_TRY(kiln_interpreter_create(cx, p, &j->in));
  for (int i = 0; i < p->inputs.n; i++) kiln_interpreter_bind(j->in, p->inputs.data[i], in[i].data);
  KILN_TRY(kiln_interpreter_run(j->in));
  for (int i = 0; i < p->outputs.n; i++) {
    const int out = p->outputs.data[i];
    if (!read_tensor(cx, j, "output", i, &want)) return KILN_OK;
    if (!same(p->tensors.data[out], kiln_interpreter_data(j->in, out), &want)) return KILN_OK;
  }
  j->verdict = PASSED;
  return KILN_OK;
}

static bool is_odd(const char *name) {
  for (size_t i = 0; i < KILN_LEN(odd); i++)
    if (strcmp(odd[i], name) == 0) return true;
  return false;
}

static verdict run_one(const char *name) {
  job j = {.name = name, .verdict = WRONG};
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  const kiln_status status = kiln_ctx_enter(&cx, run, &j);
  if (j.verdict == WRONG && !is_odd(name)) {
    print_message("%s: %s\n", name, kiln_status_name(status));
    for (size_t i = 0; i < kiln_diag_count(diag); i++)
      print_message("  %s\n", kiln_diag_message(diag, i));
  }
  kiln_interpreter_destroy(j.in);
  for (int i = 0; i < j.n_files; i++) kiln_onnx_close(j.files[i]);
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
  return j.verdict == WRONG && is_odd(name) ? SKIPPED : j.verdict;
}

static void onnx_node_tests_give_onnx_numbers(void **state) {
  (void)state;
  int counts[4] = {0};
  DIR *d = opendir(root);
  if (!d) skip();
  for (const struct dirent *e = readdir(d); e; e = readdir(d))
    if (e->d_name[0] != '.') counts[run_one(e->d_name)]++;
  closedir(d);
  print_message("%d passed, %d wrong, %d unsupported, %d skipped\n", counts[PASSED], counts[WRONG],
                counts[UNSUPPORTED], counts[SKIPPED]);
  assert_int_equal(counts[WRONG], 0);
  assert_true(counts[PASSED] >= AT_LEAST);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(onnx_node_tests_give_onnx_numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

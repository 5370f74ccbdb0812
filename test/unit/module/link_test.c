// Module files: linked from an object of the system's C compiler, loaded, run; damaged in many
// ways.
#include "module/link.h"
#include "runtime/features.h"
#include "runtime/module.h"
#include "runtime/sums.h"
#include "runtime/wire.h"
#include "support/checksum.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static const char source[] =
    "#include <stdint.h>\n#include <math.h>\n"
    "void scale(char *const *args, int64_t begin, int64_t end) {\n"
    "  const float *x = (const float *)args[0], *w = (const float *)args[1];\n"
    "  for (int64_t i = begin; i < end; i++) ((float *)args[2])[i] = fmodf(x[i], 8) * w[i];\n}\n";

enum { N = 100 };
static char folder[64], object_path[96], module_path[96];

static void *read_file(const char *path, size_t *out_bytes) {
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  fseek(f, 0, SEEK_END);
  *out_bytes = (size_t)ftell(f);
  rewind(f);
  void *data = malloc(*out_bytes + 1);
  assert_int_equal(fread(data, 1, *out_bytes, f), *out_bytes);
  fclose(f);
  return data;
}

static void write_file(const char *path, const void *data, size_t bytes) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, bytes, f), bytes);
  fclose(f);
}

static void compile_source(void) {
  char c[96], command[400];
  snprintf(c, sizeof c, "%s/k.c", folder);
  write_file(c, source, sizeof source - 1);
  snprintf(command, sizeof command, "cc -O1 -fPIC -fno-builtin -c %s -o %s", c, object_path);
  assert_int_equal(system(command), 0);
}

static void *plan_blob(const char *symbol, const char *feature, size_t *out_bytes) {
  const kiln_type *f32 = kiln_type_find("f32");
  const char *features[] = {kiln_cpu_architecture(), feature}, *functions[] = {symbol};
  kiln_plan_port inputs[] = {{"x", f32, 1, {N}, 0, 0}}, outputs[] = {{"y", f32, 1, {N}, 0, 0}};
  kiln_plan_launch launches[] = {{"scale_k", "n0", N, N, 0, 3, 0, 1, 0}};
  kiln_plan_arg args[] = {{KILN_PLACE_INPUT, 0, 0, 4 * N},
                          {KILN_PLACE_WEIGHTS, 0, 64, 4 * N},
                          {KILN_PLACE_OUTPUT, 0, 0, 4 * N}};
  kiln_plan_nest nests[] = {{.function = 0, .threads = 2, .extent = N}};
  const kiln_plan plan = {.weights_bytes = 64 + 4 * N,
                          .n_features = feature ? 2 : 1,
                          .n_inputs = 1,
                          .n_outputs = 1,
                          .n_functions = 1,
                          .n_launches = 1,
                          .n_args = 3,
                          .n_nests = 1,
                          .features = features,
                          .inputs = inputs,
                          .outputs = outputs,
                          .functions = functions,
                          .launches = launches,
                          .args = args,
                          .nests = nests};
  void *blob = NULL;
  kiln_plan_write(&plan, &blob, out_bytes);
  return blob;
}

static kiln_status write_module(const char *path, const char *symbol, const char *feature,
                                kiln_diag *diag) {
  size_t plan_bytes = 0;
  kiln_output out;
  kiln_object object;
  float weights[N];
  object.data = read_file(object_path, &object.bytes);
  void *plan = plan_blob(symbol, feature, &plan_bytes);
  for (int i = 0; i < N; i++) weights[i] = (float)(i + 1);
  kiln_status st = kiln_output_open(&out, path, diag);
  if (st == KILN_OK) st = kiln_output_link(&out, 1, &object, diag);
  if (st == KILN_OK) st = kiln_output_weights(&out, 64 + sizeof weights, diag);
  if (st == KILN_OK) assert_true(kiln_output_write(&out, 64, weights, sizeof weights));
  if (st == KILN_OK) st = kiln_output_finish(&out, plan, plan_bytes, diag);
  kiln_output_discard(&out);
  free(plan);
  free(object.data);
  return st;
}

static int count_files(void) {
  char command[128];
  int n = -1;
  snprintf(command, sizeof command, "ls %s | wc -l", folder);
  FILE *p = popen(command, "r");
  assert_int_equal(fscanf(p, "%d", &n), 1);
  pclose(p);
  return n;
}

static void a_module_file_loads_and_runs(void **state) {
  (void)state;
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = NULL;
  kiln_session *s = NULL;
  const int64_t shape = N;
  assert_int_equal(write_module(module_path, "scale", NULL, diag), KILN_OK);
  assert_int_equal(count_files(), 3); // source, object, module: nothing left behind
  assert_int_equal(kiln_module_load(module_path, diag, &m), KILN_OK);
  assert_int_equal(kiln_module_weight_bytes(m), 64 + 4 * N);
  assert_int_equal(kiln_session_create(m, NULL, diag, &s), KILN_OK);
  DLManagedTensorVersioned *x = kiln_tensor_create("f32", 1, &shape, diag);
  DLManagedTensorVersioned *y = kiln_tensor_create("f32", 1, &shape, diag);
  const DLTensor *in[] = {&x->dl_tensor};
  DLTensor *out[] = {&y->dl_tensor};
  for (int i = 0; i < N; i++) ((float *)x->dl_tensor.data)[i] = (float)(i + 2);
  assert_int_equal(kiln_session_run(s, 1, in, 1, out, diag), KILN_OK);
  for (int i = 0; i < N; i++)
    assert_true(((float *)y->dl_tensor.data)[i] == (float)((i + 2) % 8 * (i + 1)));
  kiln_session_destroy(s);
  kiln_module_release(m);
  kiln_tensor_destroy(x);
  kiln_tensor_destroy(y);
  assert_int_equal(kiln_diag_count(diag), 0);
  kiln_diag_destroy(diag);
}

static void a_module_file_is_an_ordinary_shared_object(void **state) {
  (void)state;
  assert_int_equal(write_module(module_path, "scale", NULL, NULL), KILN_OK);
  void *library = dlopen(module_path, RTLD_NOW);
  assert_non_null(library);
  assert_non_null(dlsym(library, "scale"));
  dlclose(library);
}

static void the_same_input_gives_the_same_bytes(void **state) {
  (void)state;
  size_t n1 = 0, n2 = 0;
  assert_int_equal(write_module(module_path, "scale", NULL, NULL), KILN_OK);
  void *first = read_file(module_path, &n1);
  assert_int_equal(write_module(module_path, "scale", NULL, NULL), KILN_OK);
  void *second = read_file(module_path, &n2);
  assert_int_equal(n1, n2);
  assert_memory_equal(first, second, n1);
  free(first);
  free(second);
}

static void expect_load(const char *path, kiln_status want, const char *message) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = NULL;
  kiln_status st = kiln_module_load(path, diag, &m);
  kiln_module_release(m);
  assert_int_equal(kiln_diag_count(diag), st == KILN_OK ? 0 : 1);
  if (st != want || (message && !strstr(kiln_diag_message(diag, 0), message)))
    fail_msg("%s: got %s, %s", message, kiln_status_name(st), kiln_diag_message(diag, 0));
  kiln_diag_destroy(diag);
}

static void what_is_no_module_has_a_message(void **state) {
  (void)state;
  char path[96];
  expect_load("/nowhere/m.so", KILN_BAD_INPUT, "/nowhere/m.so: error: must be readable: No such");
  expect_load(folder, KILN_BAD_INPUT, "must be a module made by kiln compile");
  expect_load(object_path, KILN_BAD_INPUT, "it has no trailer");
  snprintf(path, sizeof path, "%s/wrong.so", folder);
  assert_int_equal(write_module(path, "absent", NULL, NULL), KILN_OK);
  expect_load(path, KILN_BAD_INPUT, "its code must have the function absent");
  assert_int_equal(write_module(path, "scale", "avx9000", NULL), KILN_OK);
  expect_load(path, KILN_DEVICE_ERROR, "missing: avx9000");
  unlink(path);
}

// Every byte outside of weights and padding is guarded by a checksum or a check.
static void damaged_modules_never_crash(void **state) {
  (void)state;
  size_t bytes = 0;
  char path[96];
  assert_int_equal(write_module(module_path, "scale", NULL, NULL), KILN_OK);
  unsigned char *good = read_file(module_path, &bytes);
  snprintf(path, sizeof path, "%s/bad.so", folder);
  srand(5);
  for (int round = 0; round < 300; round++) {
    const size_t tail = KILN_TRAILER_BYTES + 300;
    const size_t at = round % 2 ? bytes - 1 - (size_t)rand() % tail : (size_t)rand() % 4000;
    unsigned char was = good[at];
    good[at] ^= (unsigned char)(1 << rand() % 8);
    write_file(path, good, bytes);
    good[at] = was;
    kiln_module *m = NULL;
    kiln_diag *diag = kiln_diag_create();
    kiln_status st = kiln_module_load(path, diag, &m);
    assert_int_equal(st == KILN_OK, m != NULL);
    assert_int_equal(st == KILN_OK, kiln_diag_count(diag) == 0);
    if (round % 2 == 0) assert_int_equal(st, KILN_BAD_INPUT); // the code
    kiln_module_release(m);
    kiln_diag_destroy(diag);
  }
  for (size_t cut = 1; cut < bytes; cut += 977) {
    write_file(path, good, bytes - cut);
    expect_load(path, KILN_BAD_INPUT, NULL);
  }
  write_file(path, good, bytes);
  expect_load(path, KILN_OK, NULL);
  unlink(path);
  free(good);
}

// Each byte of the weights, in turn and in runs, as damage and as zeros.
static void damaged_weights_are_found(void **state) {
  (void)state;
  size_t bytes = 0;
  char path[96];
  kiln_container parts;
  assert_int_equal(write_module(module_path, "scale", NULL, NULL), KILN_OK);
  unsigned char *good = read_file(module_path, &bytes);
  snprintf(path, sizeof path, "%s/bad.so", folder);
  assert_int_equal(kiln_trailer_read(good + bytes - KILN_TRAILER_BYTES, bytes, "m", NULL, &parts),
                   KILN_OK);
  assert_int_equal(parts.sums_bytes % KILN_SUM_BYTES, 0);
  const kiln_piece_sum row = kiln_sum_read(good + parts.sums_offset);
  assert_true(row.bytes > 0);
  for (uint64_t i = 0; i < row.bytes; i++) {
    unsigned char *at = good + parts.weights_offset + row.offset + i, was = *at;
    *at ^= (unsigned char)(1 << i % 8);
    write_file(path, good, bytes);
    *at = was;
    expect_load(path, KILN_BAD_INPUT, "damaged module: the checksum of its weights must match");
  }
  unsigned char kept[4096];
  assert_true(row.bytes <= sizeof kept);
  memcpy(kept, good + parts.weights_offset + row.offset, row.bytes);
  memset(good + parts.weights_offset + row.offset, 0, row.bytes);
  write_file(path, good, bytes);
  expect_load(path, KILN_BAD_INPUT, "damaged module: the checksum of its weights must match");
  memcpy(good + parts.weights_offset + row.offset, kept, row.bytes);
  good[parts.sums_offset] ^= 1;
  write_file(path, good, bytes);
  expect_load(path, KILN_BAD_INPUT, "the checksum of its table of checksums must match");
  unlink(path);
  free(good);
}

// Tables that no compiler wrote, over weights of pages without an end that could be read.
static void wrong_tables_of_checksums_are_refused(void **state) {
  enum { BYTES = 40 << 20, ROW = 1 << 20, PIECES = BYTES / ROW };
  static unsigned char table[(PIECES + 1) * KILN_SUM_BYTES];
  char *weights = calloc(BYTES, 1);
  uint64_t offset = 0;
  (void)state;
  for (uint64_t i = 0; i < BYTES; i += 4099) weights[i] = (char)i;
  for (uint64_t i = 0; i < PIECES; i++) {
    const kiln_piece_sum s = {i * ROW, ROW, kiln_checksum(weights + i * ROW, ROW)};
    kiln_sum_write(&s, table + i * KILN_SUM_BYTES);
  }
  assert_true(kiln_sums_match(table, PIECES, weights, BYTES, &offset));
  assert_true(kiln_sums_match(table, 0, weights, 0, &offset));
  weights[7 * ROW + 5] ^= 1; // two pieces, of which the first is told
  weights[33 * ROW] ^= 1;
  assert_false(kiln_sums_match(table, PIECES, weights, BYTES, &offset));
  assert_int_equal(offset, 7 * ROW);
  weights[7 * ROW + 5] ^= 1;
  weights[33 * ROW] ^= 1;
  static const kiln_piece_sum beyond[] = {
      {BYTES - 1, 2, 0}, {BYTES + 1, 0, 0}, {UINT64_MAX, 2, 0}, {8, UINT64_MAX, 0}};
  for (size_t i = 0; i < KILN_LEN(beyond); i++) {
    kiln_sum_write(&beyond[i], table + PIECES * KILN_SUM_BYTES);
    assert_false(kiln_sums_match(table, PIECES + 1, weights, BYTES, &offset));
  }
  free(weights);
}

static void an_unwritable_output_leaves_nothing(void **state) {
  (void)state;
  kiln_diag *diag = kiln_diag_create();
  char missing[96];
  const int before = count_files();
  snprintf(missing, sizeof missing, "%s/none/m.so", folder);
  assert_int_equal(write_module(missing, "scale", NULL, diag), KILN_BAD_INPUT);
  assert_non_null(
      strstr(kiln_diag_message(diag, 0), "none/m.so: error: must be writable: No such"));
  assert_int_equal(write_module(folder, "scale", NULL, diag), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(diag, 1), "it is there and no file"));
  assert_int_equal(count_files(), before);
  kiln_diag_destroy(diag);
}

static void what_ld_says_is_in_the_message(void **state) {
  (void)state;
  kiln_diag *diag = kiln_diag_create();
  kiln_output out;
  const int before = count_files();
  const kiln_object object = {(void *)(uintptr_t) "no object at all", 16};
  assert_int_equal(kiln_output_open(&out, module_path, diag), KILN_OK);
  assert_int_equal(kiln_output_link(&out, 1, &object, diag), KILN_DEVICE_ERROR);
  kiln_output_discard(&out);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "ld must succeed, it says:"));
  assert_int_equal(count_files(), before);
  kiln_diag_destroy(diag);
}

static int make_folder(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/kiln-link-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(object_path, sizeof object_path, "%s/k.o", folder);
  snprintf(module_path, sizeof module_path, "%s/m.so", folder);
  compile_source();
  return 0;
}

static int remove_folder(void **state) {
  char command[96];
  (void)state;
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_module_file_loads_and_runs),
      cmocka_unit_test(a_module_file_is_an_ordinary_shared_object),
      cmocka_unit_test(the_same_input_gives_the_same_bytes),
      cmocka_unit_test(what_is_no_module_has_a_message),
      cmocka_unit_test(damaged_modules_never_crash),
      cmocka_unit_test(damaged_weights_are_found),
      cmocka_unit_test(wrong_tables_of_checksums_are_refused),
      cmocka_unit_test(an_unwritable_output_leaves_nothing),
      cmocka_unit_test(what_ld_says_is_in_the_message),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

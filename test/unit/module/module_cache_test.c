// The module cache: when a module is copied, that it equals the compiled one, and when it must not
// be copied.
#include "module/cache.h"
#include "unit/driver/models.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

typedef struct bytes {
  char *data;
  long n;
} bytes;

static bytes read_file(const char *path) {
  bytes b = {0};
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  b.n = ftell(file);
  rewind(file);
  b.data = malloc((size_t)b.n);
  assert_int_equal(fread(b.data, 1, (size_t)b.n, file), b.n);
  fclose(file);
  return b;
}

static void must_be_same(bytes a, bytes b) {
  assert_int_equal(a.n, b.n);
  assert_memory_equal(a.data, b.data, (size_t)a.n);
  free(a.data);
  free(b.data);
}

// A file changed within one clock tick of the beginning of a compilation counts as changed.
static void wait_a_tick(void) {
  const struct timespec tick = {.tv_nsec = 20000000};
  nanosleep(&tick, NULL);
}

static folder folder_with_cache(void) {
  folder f = folder_make();
  char path[96];
  snprintf(path, sizeof path, "%s/cache", f.path);
  setenv("KILN_CACHE_DIR", path, 1);
  save_mlp(f.model, "batch");
  wait_a_tick();
  return f;
}

static kiln_compile_options options_of(const kiln_dim_value *batch, int32_t cache) {
  return (kiln_compile_options){.struct_size = sizeof(kiln_compile_options),
                                .dims = batch,
                                .n_dims = 1,
                                .threads = 2,
                                .cache = cache};
}

// gives: whether it was recalled
static int compile(const folder *f, const kiln_compile_options *o, kiln_memory *out_memory) {
  kiln_compiled c;
  assert_int_equal(kiln_compile_file(f->model, o, f->module, NULL, &c), KILN_OK);
  assert_int_equal(c.model == NULL, c.recalled != 0);
  assert_true(c.memory.weight_bytes > 0);
  if (out_memory) *out_memory = c.memory;
  kiln_model_destroy(c.model);
  return c.recalled;
}

static int compile_batch(const folder *f, int64_t batch) {
  const kiln_dim_value dim = {"batch", batch};
  const kiln_compile_options o = options_of(&dim, 1);
  return compile(f, &o, NULL);
}

// The module that compiling without a cache makes is that at f->module.
static void must_be_right(const folder *f, int64_t batch) {
  const kiln_dim_value dim = {"batch", batch};
  const kiln_compile_options o = options_of(&dim, 0);
  const bytes kept = read_file(f->module);
  assert_int_equal(compile(f, &o, NULL), 0);
  must_be_same(read_file(f->module), kept);
}

static int count_files(void) {
  char command[128];
  int n = -1;
  snprintf(command, sizeof command, "ls %s | grep -c kmod", getenv("KILN_CACHE_DIR"));
  FILE *p = popen(command, "r");
  assert_non_null(p);
  assert_int_equal(fscanf(p, "%d", &n), 1);
  pclose(p);
  return n;
}

static void an_equal_compilation_is_copied(void **state) {
  folder f = folder_with_cache();
  const kiln_dim_value dim = {"batch", 5};
  const kiln_compile_options o = options_of(&dim, 1);
  kiln_memory memory[2];
  struct stat info[2];
  (void)state;
  assert_int_equal(compile(&f, &o, &memory[0]), 0);
  assert_int_equal(stat(f.module, &info[0]), 0);
  assert_int_equal(compile(&f, &o, &memory[1]), 1);
  assert_int_equal(stat(f.module, &info[1]), 0);
  assert_memory_equal(&memory[0], &memory[1], sizeof memory[0]);
  assert_int_equal(info[0].st_mode, info[1].st_mode);
  must_be_right(&f, 5);
  assert_int_equal(count_files(), 1);
  assert_int_equal(kiln_cache_clear(NULL), KILN_OK);
  assert_int_equal(count_files(), 0);
  assert_int_equal(compile(&f, &o, NULL), 0);
  folder_remove(&f);
}

static void an_equal_model_elsewhere_is_copied(void **state) {
  folder f = folder_with_cache();
  (void)state;
  assert_int_equal(compile_batch(&f, 5), 0);
  snprintf(f.model, sizeof f.model, "%s/other.onnx", f.path);
  save_mlp(f.model, "batch");
  wait_a_tick();
  assert_int_equal(compile_batch(&f, 5), 1);
  folder_remove(&f);
}

static void other_options_are_other_modules(void **state) {
  folder f = folder_with_cache();
  const kiln_dim_value dim = {"batch", 5};
  static const char *const rules[] = {"cse"};
  static const int64_t shape[] = {5, IN};
  const kiln_shape_value shapes[] = {{"x", 2, shape, NULL}};
  kiln_compile_options others[8];
  (void)state;
  assert_int_equal(compile_batch(&f, 5), 0);
  assert_int_equal(compile_batch(&f, 6), 0);
  for (int i = 0; i < 8; i++) others[i] = options_of(&dim, 1);
  others[0].threads = 1;
  others[1].no_connect = 1;
  others[2].no_winograd = 1;
  others[3].dtype = "f16";
  others[4].weight_growth = 3;
  others[5].without = rules;
  others[5].n_without = 1;
  others[6].shapes = shapes;
  others[6].n_shapes = 1;
  others[7].no_beside = 1;
  for (int i = 0; i < 8; i++) assert_int_equal(compile(&f, &others[i], NULL), 0);
  for (int i = 0; i < 8; i++) assert_int_equal(compile(&f, &others[i], NULL), 1);
  assert_int_equal(compile_batch(&f, 5), 1);
  assert_int_equal(compile_batch(&f, 6), 1);
  must_be_right(&f, 6);
  folder_remove(&f);
}

static void what_measures_or_prints_is_not_copied(void **state) {
  folder f = folder_with_cache();
  const kiln_dim_value dim = {"batch", 5};
  kiln_compile_options others[3];
  (void)state;
  for (int i = 0; i < 3; i++) others[i] = options_of(&dim, 1);
  others[0].tune = 2;
  others[1].orchestrate = 1;
  others[2].schedule = "";
  for (int i = 0; i < 6; i++) assert_int_equal(compile(&f, &others[i % 3], NULL), 0);
  assert_int_equal(count_files(), 0);
  folder_remove(&f);
}

// Writes |value| over the first float of |path| that is |old|.
static void change_float(const char *path, float old, float value) {
  bytes b = read_file(path);
  long at = 0;
  while (at + 4 <= b.n && memcmp(b.data + at, &old, 4)) at++;
  assert_true(at + 4 <= b.n);
  memcpy(b.data + at, &value, 4);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(b.data, 1, (size_t)b.n, file), b.n);
  fclose(file);
  free(b.data);
}

static void changed_weights_are_compiled(void **state) {
  folder f = folder_with_cache();
  (void)state;
  assert_int_equal(compile_batch(&f, 5), 0);
  change_float(f.model, weight_at(100), 3.5F);
  wait_a_tick();
  assert_int_equal(compile_batch(&f, 5), 0);
  must_be_right(&f, 5);
  assert_int_equal(compile_batch(&f, 5), 1);
  must_be_right(&f, 5);
  folder_remove(&f);
}

static void put_entry(fixture *t, kiln_text *tensor, const char *key, const char *value) {
  kiln_text e = message(t);
  put_text(&e, 1, key);
  put_text(&e, 2, value);
  put_message(tensor, 13, e);
}

// y = x + w, w in a file beside the model
static void save_external(const folder *f, const char *location) {
  fixture t;
  char path[128];
  float data[64];
  fixture_init(&t);
  kiln_text g = message(&t), w = tensor(&t, "w", ONNX_F32, 1, (int64_t[]){64});
  put_text(&g, 2, "g");
  put_message(&g, 1, node(&t, "Add", "add", "x,w", "y"));
  put_entry(&t, &w, "location", location);
  put_int(&w, 14, 1);
  put_message(&g, 5, w);
  put_message(&g, 11, value_info(&t, "x", ONNX_F32, "batch,64"));
  put_message(&g, 12, value_info(&t, "y", ONNX_F32, "batch,64"));
  save(f->model, model(&t, 8, g));
  fixture_deinit(&t);
  for (int i = 0; i < 64; i++) data[i] = weight_at(i);
  snprintf(path, sizeof path, "%s/%s", f->path, location);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, sizeof data, file), sizeof data);
  fclose(file);
  wait_a_tick();
}

static void changed_external_data_are_compiled(void **state) {
  folder f = folder_with_cache();
  char path[128], moved[128];
  (void)state;
  save_external(&f, "w.bin");
  snprintf(path, sizeof path, "%s/w.bin", f.path);
  snprintf(moved, sizeof moved, "%s/v.bin", f.path);
  assert_int_equal(compile_batch(&f, 5), 0);
  assert_int_equal(compile_batch(&f, 5), 1);
  change_float(path, weight_at(3), 2.5F);
  wait_a_tick();
  assert_int_equal(compile_batch(&f, 5), 0);
  must_be_right(&f, 5);
  assert_int_equal(compile_batch(&f, 5), 1);
  assert_int_equal(rename(path, moved), 0);
  const kiln_dim_value dim = {"batch", 5};
  const kiln_compile_options o = options_of(&dim, 1);
  kiln_compiled c;
  assert_int_equal(kiln_compile_file(f.model, &o, f.module, NULL, &c), KILN_BAD_INPUT);
  assert_null(c.model);
  folder_remove(&f);
}

// A file written during compilation may have been read before or after.
static void a_file_that_changes_meanwhile_is_not_kept(void **state) {
  folder f = folder_with_cache();
  struct timespec later[2];
  (void)state;
  clock_gettime(CLOCK_REALTIME, &later[0]);
  later[0].tv_sec += 100;
  later[1] = later[0];
  assert_int_equal(utimensat(AT_FDCWD, f.model, later, 0), 0);
  for (int i = 0; i < 2; i++) assert_int_equal(compile_batch(&f, 5), 0);
  assert_int_equal(count_files(), 0);
  folder_remove(&f);
}

static void damaged_modules_are_compiled(void **state) {
  static const char *const damage[] = {
      "printf x | dd of=$f bs=1 seek=5000 conv=notrunc status=none", "truncate -s 6000 $f",
      "truncate -s 0 $f", "rm $f"};
  (void)state;
  for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
    folder f = folder_with_cache();
    char command[256];
    assert_int_equal(compile_batch(&f, 5), 0);
    snprintf(command, sizeof command, "f=$(ls %s/cache/*.kmod) && %s", f.path, damage[i]);
    assert_int_equal(system(command), 0);
    assert_int_equal(compile_batch(&f, 5), 0);
    must_be_right(&f, 5);
    assert_int_equal(compile_batch(&f, 5), 1);
    must_be_right(&f, 5);
    folder_remove(&f);
  }
}

// Files of modules have a limit of their own, and go with their entries.
static void modules_beyond_the_limit_are_dropped(void **state) {
  enum { N = 6, LIMIT = 3000, FILE_BYTES = 1900, FITTING = KILN_CACHE_FILES_SHARE * LIMIT / 2000 };
  folder f = folder_make();
  (void)state;
  for (int i = 0; i < N; i++) {
    kiln_cache *c = kiln_cache_open(f.path, LIMIT);
    kiln_cache_key key = {{(unsigned char)i}}, object = {{(unsigned char)i, 1}};
    char path[KILN_CACHE_PATH_ROOM], data[50] = {0};
    assert_non_null(c);
    assert_true(kiln_cache_file(c, &key, path));
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fclose(file);
    kiln_cache_put_module(c, &key, "m", data, sizeof data, FILE_BYTES);
    kiln_cache_put(c, KILN_CACHE_OBJECT, &object, "o", data, sizeof data);
    kiln_cache_close(c);
  }
  kiln_cache *c = kiln_cache_open(f.path, LIMIT);
  for (int i = 0; i < N; i++) {
    const kiln_cache_key key = {{(unsigned char)i}}, object = {{(unsigned char)i, 1}};
    char path[KILN_CACHE_PATH_ROOM];
    size_t n = 0;
    void *module = kiln_cache_find(c, KILN_CACHE_MODULE, &key, &n);
    void *kept = kiln_cache_find(c, KILN_CACHE_OBJECT, &object, &n);
    assert_true(kiln_cache_file(c, &key, path));
    assert_int_equal(module != NULL, i >= N - FITTING);
    assert_int_equal(access(path, R_OK) == 0, i >= N - FITTING);
    assert_non_null(kept);
    free(module);
    free(kept);
  }
  kiln_cache_close(c);
  folder_remove(&f);
}

static void warnings_and_errors_are_the_compilers(void **state) {
  folder f = folder_with_cache();
  const kiln_dim_value dim = {"batch", 5};
  kiln_compile_options o = options_of(&dim, 1);
  kiln_diag *diag = kiln_diag_create();
  kiln_compiled c;
  (void)state;
  o.dtype = "f17";
  assert_int_equal(kiln_compile_file(f.model, &o, f.module, diag, &c), KILN_BAD_INPUT);
  assert_int_equal(kiln_diag_count(diag), 1);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "must be f16, bf16 or tf32, got f17"));
  kiln_diag_clear(diag);
  o = options_of(&dim, 1);
  assert_int_equal(compile(&f, &o, NULL), 0);
  assert_int_equal(kiln_compile_file(f.model, &o, "/proc/nothing/m.so", diag, &c), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "must be writable"));
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_equal_compilation_is_copied),
                                     cmocka_unit_test(an_equal_model_elsewhere_is_copied),
                                     cmocka_unit_test(other_options_are_other_modules),
                                     cmocka_unit_test(what_measures_or_prints_is_not_copied),
                                     cmocka_unit_test(changed_weights_are_compiled),
                                     cmocka_unit_test(changed_external_data_are_compiled),
                                     cmocka_unit_test(a_file_that_changes_meanwhile_is_not_kept),
                                     cmocka_unit_test(damaged_modules_are_compiled),
                                     cmocka_unit_test(modules_beyond_the_limit_are_dropped),
                                     cmocka_unit_test(warnings_and_errors_are_the_compilers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// The cache on disk: storing and evicting, damage, and compiling with it.
#include "module/cache.h"
#include "unit/driver/models.h"

#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENTRY = 1000 };

static kiln_cache_key key_of(int i) {
  kiln_cache_key key;
  kiln_digest d;
  kiln_cache_key_begin(&d);
  kiln_digest_add_int(&d, i);
  kiln_digest_end(&d, key.bytes);
  return key;
}

static void put(kiln_cache *c, int i) {
  const kiln_cache_key key = key_of(i);
  char data[ENTRY];
  memset(data, i, sizeof data);
  kiln_cache_put(c, KILN_CACHE_OBJECT, &key, "test", data, sizeof data);
}

static bool has(kiln_cache *c, int i) {
  const kiln_cache_key key = key_of(i);
  size_t n = 0;
  char *data = kiln_cache_find(c, KILN_CACHE_OBJECT, &key, &n);
  if (data) assert_int_equal(n, ENTRY);
  for (size_t k = 0; k < n; k++) assert_int_equal(data[k], (char)i);
  free(data);
  return data != NULL;
}

static kiln_cache *open_at(const folder *f, int64_t limit) {
  kiln_cache *c = kiln_cache_open(f->path, limit);
  assert_non_null(c);
  return c;
}

static void what_was_put_is_found_by_its_key_and_kind(void **state) {
  folder f = folder_make();
  const kiln_cache_key key = key_of(1);
  size_t n = 7;
  (void)state;
  kiln_cache *c = open_at(&f, 1 << 20);
  assert_false(has(c, 1));
  put(c, 1);
  assert_true(has(c, 1));
  kiln_cache_close(c);
  c = open_at(&f, 1 << 20);
  assert_true(has(c, 1));
  assert_false(has(c, 2));
  assert_null(kiln_cache_find(c, KILN_CACHE_SCHEDULE, &key, &n));
  assert_int_equal(n, 0);
  kiln_cache_close(c);
  assert_null(kiln_cache_find(NULL, KILN_CACHE_OBJECT, &key, &n));
  kiln_cache_put(NULL, KILN_CACHE_OBJECT, &key, "", "", 0);
  kiln_cache_close(NULL);
  folder_remove(&f);
}

static void what_was_not_used_for_longest_is_dropped(void **state) {
  folder f = folder_make();
  (void)state;
  for (int i = 0; i < 4; i++) {
    kiln_cache *c = open_at(&f, 4 * ENTRY);
    put(c, i);
    kiln_cache_close(c);
  }
  kiln_cache *c = open_at(&f, 4 * ENTRY);
  assert_true(has(c, 0)); // used again
  kiln_cache_close(c);
  c = open_at(&f, 4 * ENTRY);
  put(c, 4);
  put(c, 5);
  kiln_cache_close(c);
  c = open_at(&f, 4 * ENTRY);
  for (int i = 0; i < 6; i++) assert_int_equal(has(c, i), i == 0 || i > 2);
  kiln_cache_close(c);
  folder_remove(&f);
}

static void change(const folder *f, const char *sql) {
  char path[96];
  sqlite3 *db = NULL;
  snprintf(path, sizeof path, "%s/kiln.sqlite", f->path);
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
}

static void torn_entries_are_not_there_and_are_replaced(void **state) {
  static const char *const tears[] = {
      "UPDATE entries SET data = zeroblob(1000)", "UPDATE entries SET data = substr(data, 1, 10)",
      "UPDATE entries SET data = NULL", "UPDATE entries SET digest = x'00'",
      "UPDATE entries SET data = 'text', digest = 5"};
  (void)state;
  for (size_t i = 0; i < sizeof tears / sizeof *tears; i++) {
    folder f = folder_make();
    kiln_cache *c = open_at(&f, 1 << 20);
    put(c, 9);
    kiln_cache_close(c);
    change(&f, tears[i]);
    c = open_at(&f, 1 << 20);
    assert_false(has(c, 9));
    put(c, 9);
    kiln_cache_close(c);
    c = open_at(&f, 1 << 20);
    assert_true(has(c, 9));
    kiln_cache_close(c);
    folder_remove(&f);
  }
}

static void a_file_that_is_no_database_gives_way(void **state) {
  static const char *const foreign[] = {"this is no database at all, however long it may be",
                                        "SQLite format 3\0 and then nothing of the kind"};
  (void)state;
  for (size_t i = 0; i < 2; i++) {
    folder f = folder_make();
    char path[96], bytes[8192] = "";
    snprintf(path, sizeof path, "%s/kiln.sqlite", f.path);
    memcpy(bytes, foreign[i], 46);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, sizeof bytes, file), sizeof bytes);
    fclose(file);
    kiln_cache *c = open_at(&f, 1 << 20);
    put(c, 3);
    kiln_cache_close(c);
    c = open_at(&f, 1 << 20);
    assert_true(has(c, 3));
    kiln_cache_close(c);
    folder_remove(&f);
  }
}

// Pages overwritten in the middle: all entries found are correct, and finally new entries are
// stored.
static void damaged_pages_give_nothing_wrong(void **state) {
  folder f = folder_make();
  char path[96];
  (void)state;
  kiln_cache *c = open_at(&f, 1 << 20);
  for (int i = 0; i < 60; i++) put(c, i);
  kiln_cache_close(c);
  snprintf(path, sizeof path, "%s/kiln.sqlite", f.path);
  FILE *file = fopen(path, "r+b");
  assert_non_null(file);
  for (int page = 1; page < 16; page += 2) {
    char junk[4096];
    memset(junk, 0xa5, sizeof junk);
    fseek(file, 4096L * page, SEEK_SET);
    fwrite(junk, 1, sizeof junk, file);
  }
  fclose(file);
  for (int round = 0; round < 3; round++) {
    c = kiln_cache_open(f.path, 1 << 20);
    for (int i = 0; c && i < 60; i++) (void)has(c, i);
    for (int i = 0; c && i < 60; i++) put(c, i);
    kiln_cache_close(c);
  }
  c = open_at(&f, 1 << 20);
  for (int i = 0; i < 60; i++) assert_true(has(c, i));
  kiln_cache_close(c);
  folder_remove(&f);
}

static void without_a_place_there_is_no_cache(void **state) {
  folder f = folder_make();
  char path[128];
  (void)state;
  snprintf(path, sizeof path, "%s/file", f.path);
  fclose(fopen(path, "w"));
  snprintf(path, sizeof path, "%s/file/below", f.path);
  assert_null(kiln_cache_open(path, 1 << 20));
  setenv("KILN_CACHE_DIR", "", 1);
  assert_null(kiln_cache_open(NULL, 1 << 20));
  assert_int_equal(kiln_cache_clear(NULL), KILN_BAD_INPUT);
  assert_int_equal(kiln_cache_folder(path, sizeof path), 0);
  setenv("KILN_CACHE_DIR", f.path, 1);
  assert_int_equal(kiln_cache_folder(path, strlen(f.path)), 0); // no room for the end
  assert_int_equal(kiln_cache_folder(path, sizeof path), 1);
  assert_string_equal(path, f.path);
  setenv("KILN_CACHE_DIR", "", 1);
  folder_remove(&f);
}

static void processes_share_one_directory(void **state) {
  enum { CHILDS = 4, EACH = 40 };
  folder f = folder_make();
  pid_t childs[CHILDS];
  (void)state;
  for (int k = 0; k < CHILDS; k++) {
    childs[k] = fork();
    if (childs[k] != 0) continue;
    for (int i = 0; i < EACH; i += 4) {
      kiln_cache *c = kiln_cache_open(f.path, 1 << 24);
      for (int j = i; c && j < i + 4; j++) put(c, k * 100 + j);
      for (int j = 0; c && j < i; j++)
        if (!has(c, k * 100 + j)) _exit(1);
      kiln_cache_close(c);
      if (!c) _exit(2);
    }
    _exit(0);
  }
  for (int k = 0; k < CHILDS; k++) {
    int status = -1;
    assert_int_equal(waitpid(childs[k], &status, 0), childs[k]);
    assert_int_equal(status, 0);
  }
  kiln_cache *c = open_at(&f, 1 << 24);
  for (int i = 0; i < CHILDS * EACH; i++) assert_true(has(c, i / EACH * 100 + i % EACH));
  kiln_cache_close(c);
  folder_remove(&f);
}

// --- ownership ---

// Entries written by others, without the key, are not found.
static void entries_are_authenticated_with_the_key_of_their_owner(void **state) {
  static const char *const changes[] = {
      "dd if=/dev/zero of=%s bs=32 count=1 2>/dev/null", // another key
      "chmod 644 %s",
      "rm %s",
      "truncate -s 5 %s",
      "ln %s %s.link",
      "mv %s %s.away && ln -s key.away %s"};
  folder f = folder_make();
  char key[96];
  struct stat info;
  (void)state;
  snprintf(key, sizeof key, "%s/key", f.path);
  for (size_t i = 0; i < KILN_LEN(changes); i++) {
    char command[512];
    kiln_cache *c = open_at(&f, 1 << 20);
    put(c, 2);
    kiln_cache_close(c);
    c = open_at(&f, 1 << 20);
    assert_true(has(c, 2));
    kiln_cache_close(c);
    if (i == 0) snprintf(command, sizeof command, changes[0], key);
    else snprintf(command, sizeof command, changes[i], key, key, key);
    assert_int_equal(system(command), 0);
    c = open_at(&f, 1 << 20);
    assert_false(has(c, 2));
    kiln_cache_close(c);
    assert_int_equal(lstat(key, &info), 0);
    assert_true(S_ISREG(info.st_mode));
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(info.st_size, KILN_MAC_KEY_BYTES);
    snprintf(command, sizeof command, "rm -f %s.*", key);
    assert_int_equal(system(command), 0);
  }
  folder_remove(&f);
}

// Nor is a folder used that others may write to; root may make one of another user's.
static void a_folder_of_others_is_refused_with_the_reason(void **state) {
  static const mode_t modes[] = {0777, 0770, 0720, 0702, 01777};
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  (void)state;
  setenv("KILN_CACHE_DIR", f.path, 1);
  for (size_t i = 0; i < KILN_LEN(modes); i++) {
    assert_int_equal(chmod(f.path, modes[i]), 0);
    assert_null(kiln_cache_open(f.path, 1 << 20));
    assert_int_equal(kiln_cache_clear(diag), KILN_BAD_INPUT);
    assert_non_null(strstr(kiln_diag_message(diag, 0), "one that others may write to (mode 7"));
    kiln_diag_clear(diag);
    kiln_cache_warn(diag);
    assert_non_null(strstr(kiln_diag_message(diag, 0), "warning: cache: must be a folder of this"));
    kiln_diag_clear(diag);
  }
  assert_int_equal(chmod(f.path, 0755), 0);
  if (geteuid() == 0) {
    assert_int_equal(chown(f.path, 12345, 12345), 0);
    assert_null(kiln_cache_open(f.path, 1 << 20));
    assert_int_equal(kiln_cache_clear(diag), KILN_BAD_INPUT);
    assert_non_null(strstr(kiln_diag_message(diag, 0), "one of user 12345, who is not user 0"));
    assert_int_equal(chown(f.path, 0, 0), 0);
  }
  kiln_diag_destroy(diag);
  kiln_cache_close(open_at(&f, 1 << 20));
  folder_remove(&f);
}

typedef struct seen {
  char text[4096];
} seen;

static void add_entry(void *user, const kiln_cache_entry *e) {
  seen *s = user;
  const size_t n = strlen(s->text);
  snprintf(s->text + n, sizeof s->text - n, "%s %.40s;", e->kind, e->label);
}

#define DIGITS "0123456789abcdef"
static void all_of_the_folder_is_shown_and_cleared(void **state) {
  static const struct {
    const char *name, *shown;
  } files[] = {{".kiln-" DIGITS ".tmp", "temporary .kiln-" DIGITS ".tmp;"},
               {"device-some-cpu-v1.json", "device device-some-cpu-v1.json;"},
               {"device-some-cpu-v1.json.4711", "temporary device-some-cpu-v1.json.4711;"},
               {"tuned.sqlite", "tuned tuned.sqlite;"},
               {"tuned.sqlite-journal", "tuned tuned.sqlite-journal;"},
               {DIGITS DIGITS DIGITS DIGITS ".kmod", "module " DIGITS},
               {DIGITS DIGITS DIGITS DIGITS ".kmod.99.tmp", "temporary " DIGITS},
               {"letter.txt", "other letter.txt;"}};
  folder f = folder_make();
  seen s = {""};
  (void)state;
  setenv("KILN_CACHE_DIR", f.path, 1);
  kiln_cache *c = open_at(&f, 1 << 20);
  put(c, 1);
  kiln_cache_close(c);
  for (size_t i = 0; i < KILN_LEN(files); i++) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", f.path, files[i].name);
    fclose(fopen(path, "w"));
  }
  assert_int_equal(kiln_cache_list(NULL, add_entry, &s), KILN_OK);
  for (size_t i = 0; i < KILN_LEN(files); i++)
    if (!strstr(s.text, files[i].shown)) fail_msg("%s is not in %s", files[i].shown, s.text);
  assert_non_null(strstr(s.text, "object test;"));
  assert_non_null(strstr(s.text, "key key;"));
  assert_int_equal(kiln_cache_clear(NULL), KILN_OK);
  s.text[0] = 0;
  assert_int_equal(kiln_cache_list(NULL, add_entry, &s), KILN_OK);
  assert_string_equal(s.text, "other letter.txt;"); // is not ours to remove
  folder_remove(&f);
}

// --- compiling with it ---

static kiln_model *load(const folder *f, int64_t batch, int32_t cache, int32_t tune) {
  kiln_model *m = NULL;
  const kiln_dim_value dim = {"batch", batch};
  const kiln_compile_options o = {.struct_size = sizeof o,
                                  .dims = &dim,
                                  .n_dims = batch > 0,
                                  .threads = 2,
                                  .cache = cache,
                                  .tune = tune};
  assert_int_equal(kiln_model_load(f->model, &o, NULL, &m), KILN_OK);
  return m;
}

static char *module_bytes(const folder *f, int64_t batch, int32_t cache, int32_t tune, long *out_n,
                          kiln_tuning *out_tuning) {
  kiln_model *m = load(f, batch, cache, tune);
  assert_int_equal(kiln_model_compile_to(m, f->module, NULL), KILN_OK);
  if (out_tuning) *out_tuning = kiln_model_tuning(m);
  kiln_model_destroy(m);
  FILE *file = fopen(f->module, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  *out_n = ftell(file);
  rewind(file);
  char *data = malloc((size_t)*out_n);
  assert_int_equal(fread(data, 1, (size_t)*out_n, file), *out_n);
  fclose(file);
  return data;
}

static void count_entry(void *user, const kiln_cache_entry *e) {
  (void)e;
  ++*(int *)user;
}

static int count_entries(void) {
  int n = 0;
  assert_int_equal(kiln_cache_list(NULL, count_entry, &n), KILN_OK);
  return n;
}

static folder folder_with_cache(void) {
  folder f = folder_make();
  char path[96];
  snprintf(path, sizeof path, "%s/cache", f.path);
  setenv("KILN_CACHE_DIR", path, 1);
  save_mlp(f.model, "batch");
  return f;
}

static void a_cached_module_is_the_one_that_was_compiled(void **state) {
  folder f = folder_with_cache();
  (void)state;
  for (int64_t batch = 1; batch < 40; batch += 19) {
    long n[4];
    char *bytes[4];
    for (int i = 0; i < 4; i++)
      bytes[i] =
          module_bytes(&f, batch, i == 1 || i == 2, 0, &n[i], NULL); // none, cold, warm, none
    for (int i = 1; i < 4; i++) {
      assert_int_equal(n[i], n[0]);
      assert_memory_equal(bytes[i], bytes[0], (size_t)n[0]);
    }
    for (int i = 0; i < 4; i++) free(bytes[i]);
  }
  assert_true(count_entries() > 2);
  assert_int_equal(kiln_cache_clear(NULL), KILN_OK);
  assert_int_equal(count_entries(), 0);
  folder_remove(&f);
}

static void what_is_cached_is_not_cached_again(void **state) {
  folder f = folder_with_cache();
  long n;
  (void)state;
  free(module_bytes(&f, 5, 1, 0, &n, NULL));
  const int entries = count_entries();
  assert_true(entries > 1);
  free(module_bytes(&f, 5, 1, 0, &n, NULL));
  assert_int_equal(count_entries(), entries);
  free(module_bytes(&f, 5, 0, 0, &n, NULL));
  assert_int_equal(count_entries(), entries);
  folder_remove(&f);
}

// Bytes of the weights in the file are changed: the module must not be the old one.
static void changed_weights_are_never_stale(void **state) {
  folder f = folder_with_cache();
  long n[3];
  char *bytes[3];
  (void)state;
  bytes[0] = module_bytes(&f, 6, 1, 0, &n[0], NULL);
  FILE *file = fopen(f.model, "r+b");
  assert_non_null(file);
  char text[65536];
  const size_t size = fread(text, 1, sizeof text, file);
  const float old = weight_at(100), changed[1] = {3.5f};
  size_t at = 0;
  while (at + 4 <= size && memcmp(text + at, &old, 4)) at++;
  assert_true(at + 4 <= size);
  fseek(file, (long)at, SEEK_SET);
  fwrite(changed, 1, 4, file);
  fclose(file);
  bytes[1] = module_bytes(&f, 6, 1, 0, &n[1], NULL);
  bytes[2] = module_bytes(&f, 6, 0, 0, &n[2], NULL);
  assert_int_equal(n[1], n[2]);
  assert_memory_equal(bytes[1], bytes[2], (size_t)n[1]);
  assert_true(n[0] != n[1] || memcmp(bytes[0], bytes[1], (size_t)n[0]) != 0);
  for (int i = 0; i < 3; i++) free(bytes[i]);
  folder_remove(&f);
}

static void tuning_measures_once_and_then_knows(void **state) {
  folder f = folder_with_cache();
  long n[2];
  kiln_tuning tuning[2];
  char *bytes[2];
  (void)state;
  save_pair(f.model, "96");
  for (int i = 0; i < 2; i++) bytes[i] = module_bytes(&f, 0, 1, 4, &n[i], &tuning[i]);
  assert_int_equal(n[1], n[0]);
  assert_memory_equal(bytes[1], bytes[0], (size_t)n[0]);
  assert_true(tuning[0].kernels > 0);
  assert_true(tuning[0].candidates > 0);
  assert_int_equal(tuning[0].wrong, 0);
  assert_int_equal(tuning[1].kernels, tuning[0].kernels);
  assert_int_equal(tuning[1].known, tuning[0].kernels);
  assert_int_equal(tuning[1].candidates, 0);
  assert_int_equal(tuning[1].changed, tuning[0].changed);
  free(bytes[0]);
  free(bytes[1]);
  folder_remove(&f);
}

static void compiling_needs_no_place_for_a_cache(void **state) {
  folder f = folder_with_cache();
  long n;
  (void)state;
  setenv("KILN_CACHE_DIR", "/proc/nothing/here", 1);
  free(module_bytes(&f, 4, 1, 2, &n, NULL));
  assert_true(n > 0);
  folder_remove(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(entries_are_authenticated_with_the_key_of_their_owner),
      cmocka_unit_test(a_folder_of_others_is_refused_with_the_reason),
      cmocka_unit_test(all_of_the_folder_is_shown_and_cleared),
      cmocka_unit_test(what_was_put_is_found_by_its_key_and_kind),
      cmocka_unit_test(what_was_not_used_for_longest_is_dropped),
      cmocka_unit_test(torn_entries_are_not_there_and_are_replaced),
      cmocka_unit_test(a_file_that_is_no_database_gives_way),
      cmocka_unit_test(damaged_pages_give_nothing_wrong),
      cmocka_unit_test(without_a_place_there_is_no_cache),
      cmocka_unit_test(processes_share_one_directory),
      cmocka_unit_test(a_cached_module_is_the_one_that_was_compiled),
      cmocka_unit_test(what_is_cached_is_not_cached_again),
      cmocka_unit_test(changed_weights_are_never_stale),
      cmocka_unit_test(tuning_measures_once_and_then_knows),
      cmocka_unit_test(compiling_needs_no_place_for_a_cache)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// The tuning database: storing, finding, choosing the best; invalid files.
#include "tune/results.h"
#include "unit/fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[64];

static int make_path(void **state) {
  snprintf(path, sizeof path, "/tmp/kiln-results-%d.sqlite", (int)getpid());
  unlink(path);
  return fixture_setup(state);
}

static int remove_path(void **state) {
  char journal[96];
  unlink(path);
  snprintf(journal, sizeof journal, "%s-journal", path);
  unlink(journal);
  return fixture_teardown(state);
}

static kiln_results *open_it(fixture *f) {
  kiln_results *r = NULL;
  if (kiln_results_open(path, f->diag, &r) != KILN_OK)
    fail_msg("%s", kiln_diag_message(f->diag, 0));
  assert_non_null(r);
  return r;
}

static kiln_results_key key_of(int program, const char *driver) {
  kiln_results_key k = {.device = "Card", .driver = driver, .compiler = "1"};
  k.program[0] = (unsigned char)program;
  return k;
}

static void put(fixture *f, kiln_results *r, const kiln_results_key *key, const char *script,
                bool is_first, kiln_verdict verdict, double us) {
  const kiln_result one = {script, is_first, verdict, us, 7};
  assert_int_equal(kiln_results_put(r, key, "k", &one, f->diag), KILN_OK);
}

static void rows_are_found_by_all_of_the_key(void **state) {
  fixture *f = *state;
  const kiln_results_key key = key_of(1, "13.0");
  kiln_results *r = open_it(f);
  put(f, r, &key, "a", true, KILN_VERDICT_RIGHT, 5);
  put(f, r, &key, "b", false, KILN_VERDICT_LOST, 0);
  kiln_results_close(r);
  r = open_it(f);
  kiln_result one = {.script = "a"};
  assert_true(kiln_results_find(r, &key, &one));
  assert_int_equal(one.verdict, KILN_VERDICT_RIGHT);
  assert_true(one.us == 5 && one.predicted_us == 7);
  one.script = "b";
  assert_true(kiln_results_find(r, &key, &one));
  assert_int_equal(one.verdict, KILN_VERDICT_LOST);
  one.script = "c";
  assert_false(kiln_results_find(r, &key, &one));
  one.script = "a";
  for (int i = 0; i < 4; i++) {
    kiln_results_key other = i == 0 ? key_of(2, "13.0") : key;
    if (i == 1) other.device = "Cart";
    if (i == 2) other.driver = "13.1";
    if (i == 3) other.compiler = "2";
    assert_false(kiln_results_find(r, &other, &one));
  }
  kiln_results_close(r);
}

static void the_best_is_right_and_clearly_faster_than_the_first(void **state) {
  fixture *f = *state;
  const kiln_results_key key = key_of(1, "13.0"), any = key_of(1, NULL);
  kiln_results *r = open_it(f);
  assert_null(kiln_results_best(&f->cx, r, &key));
  put(f, r, &key, "first", true, KILN_VERDICT_RIGHT, 100);
  put(f, r, &key, "wrong", false, KILN_VERDICT_WRONG, 1);
  put(f, r, &key, "hardly", false, KILN_VERDICT_RIGHT, 98);
  assert_string_equal(kiln_results_best(&f->cx, r, &key), "first");
  put(f, r, &key, "faster", false, KILN_VERDICT_RIGHT, 90);
  assert_string_equal(kiln_results_best(&f->cx, r, &key), "faster");
  put(f, r, &key, "faster", false, KILN_VERDICT_RIGHT, 99); // in place of the older one
  assert_string_equal(kiln_results_best(&f->cx, r, &key), "first");
  const kiln_results_key later = key_of(1, "13.1");
  put(f, r, &later, "later", true, KILN_VERDICT_RIGHT, 300);
  assert_string_equal(kiln_results_best(&f->cx, r, &any), "later"); // the driver that was last
  assert_string_equal(kiln_results_best(&f->cx, r, &key), "first");
  assert_string_equal(kiln_results_devices(&f->cx, r), "Card");
  kiln_results_close(r);
}

static void the_first_of_a_program_is_known_and_new_rows_show(void **state) {
  fixture *f = *state;
  const kiln_results_key key = key_of(1, "13.0"), other = key_of(2, "13.0"),
                         all = key_of(0, "13.0"), elsewhere = key_of(1, "13.1");
  kiln_results *r = open_it(f);
  assert_true(kiln_results_stamp(r, &all) == 0 && kiln_results_first_us(r, &key) == 0);
  put(f, r, &key, "b", false, KILN_VERDICT_RIGHT, 3);
  assert_true(kiln_results_stamp(r, &all) == 0 && kiln_results_first_us(r, &key) == 0);
  put(f, r, &key, "a", true, KILN_VERDICT_RIGHT, 5);
  const int64_t before = kiln_results_stamp(r, &all);
  assert_true(before > 0 && kiln_results_first_us(r, &key) == 5);
  assert_true(kiln_results_first_us(r, &other) == 0 && kiln_results_first_us(r, &elsewhere) == 0);
  put(f, r, &other, "a", true, KILN_VERDICT_RIGHT, 7);
  assert_true(kiln_results_stamp(r, &all) > before);
  assert_true(kiln_results_stamp(r, &elsewhere) == 0);
  assert_true(kiln_results_stamp(NULL, &all) == 0 && kiln_results_first_us(NULL, &key) == 0);
  kiln_results_close(r);
}

static void processes_write_at_once(void **state) {
  enum { CHILDS = 6, EACH = 20 };
  fixture *f = *state;
  pid_t childs[CHILDS];
  for (int k = 0; k < CHILDS; k++) {
    childs[k] = fork();
    if (childs[k] > 0) continue;
    kiln_results *r = NULL;
    bool right = kiln_results_open(path, NULL, &r) == KILN_OK;
    for (int i = 0; i < EACH && right; i++) {
      char script[16];
      snprintf(script, sizeof script, "%d", i);
      const kiln_results_key key = key_of(k, "13.0");
      const kiln_result one = {script, false, KILN_VERDICT_RIGHT, i, 0};
      right = kiln_results_put(r, &key, "k", &one, NULL) == KILN_OK;
    }
    kiln_results_close(r);
    _exit(right ? 0 : 1);
  }
  int statuses[CHILDS];
  for (int k = 0; k < CHILDS; k++) assert_int_equal(waitpid(childs[k], &statuses[k], 0), childs[k]);
  for (int k = 0; k < CHILDS; k++) assert_int_equal(statuses[k], 0);
  kiln_results *r = open_it(f);
  for (int k = 0; k < CHILDS; k++)
    for (int i = 0; i < EACH; i++) {
      char script[16];
      snprintf(script, sizeof script, "%d", i);
      const kiln_results_key key = key_of(k, "13.0");
      kiln_result one = {.script = script};
      assert_true(kiln_results_find(r, &key, &one));
    }
  kiln_results_close(r);
}

static void must_refuse(fixture *f, const char *why) {
  kiln_results *r = NULL;
  kiln_diag_clear(f->diag);
  assert_int_equal(kiln_results_open(path, f->diag, &r), KILN_BAD_INPUT);
  assert_null(r);
  const char *message = kiln_diag_message(f->diag, 0);
  if (!strstr(message, path) || !strstr(message, why)) fail_msg("%s", message);
}

static void sql(const char *text) {
  char command[256];
  snprintf(command, sizeof command, "sqlite3 %s '%s'", path, text);
  if (system(command) != 0) skip(); // the command is not there
}

static void other_files_are_refused_and_stay(void **state) {
  fixture *f = *state;
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  for (int i = 0; i < 400; i++) fputs("this is text, not a database\n", file);
  fclose(file);
  must_refuse(f, "not a database");
  unlink(path);
  assert_int_equal(mkdir(path, 0700), 0);
  must_refuse(f, "unable to open");
  rmdir(path);
  snprintf(path, sizeof path, "/nowhere/kiln.sqlite");
  must_refuse(f, "unable to open");
}

static void other_databases_are_refused_and_stay(void **state) {
  fixture *f = *state;
  sql("create table t (x)");
  must_refuse(f, "another program");
  unlink(path);
  kiln_results_close(open_it(f));
  sql("pragma user_version = 2");
  must_refuse(f, "one of version 2");
}

static void without_a_directory_nothing_is_kept(void **state) {
  fixture *f = *state;
  kiln_results *r = NULL;
  const kiln_results_key key = key_of(1, "13.0");
  kiln_result one = {.script = "a"};
  setenv("KILN_CACHE_DIR", "", 1);
  assert_int_equal(kiln_results_open(NULL, f->diag, &r), KILN_OK);
  assert_null(r);
  assert_int_equal(kiln_results_put(r, &key, "k", &one, f->diag), KILN_OK);
  assert_false(kiln_results_find(r, &key, &one));
  assert_null(kiln_results_best(&f->cx, r, &key));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_path, remove_path)
int main(void) {
  const struct CMUnitTest tests[] = {TEST(rows_are_found_by_all_of_the_key),
                                     TEST(the_best_is_right_and_clearly_faster_than_the_first),
                                     TEST(the_first_of_a_program_is_known_and_new_rows_show),
                                     TEST(processes_write_at_once),
                                     TEST(other_files_are_refused_and_stay),
                                     TEST(other_databases_are_refused_and_stay),
                                     TEST(without_a_directory_nothing_is_kept)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

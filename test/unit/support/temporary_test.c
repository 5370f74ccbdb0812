// Files that appear when complete: the contents of a folder before, after, and after a killed
// process.
#include "support/temporary.h"
#include "unit/fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef bool opening(kiln_temporary *t, const char *path, mode_t mode);
static opening *const openings[] = {kiln_temporary_open, kiln_temporary_open_named};

typedef struct place {
  char folder[64], path[96];
} place;

static place make_place(void) {
  place p;
  snprintf(p.folder, sizeof p.folder, "/tmp/kiln-temporary-XXXXXX");
  assert_non_null(mkdtemp(p.folder));
  snprintf(p.path, sizeof p.path, "%s/out", p.folder);
  return p;
}

static void remove_place(const place *p) {
  char command[96];
  snprintf(command, sizeof command, "rm -r %s", p->folder);
  assert_int_equal(system(command), 0);
}

static int count(const place *p) {
  DIR *d = opendir(p->folder);
  int n = 0;
  assert_non_null(d);
  for (const struct dirent *e; (e = readdir(d));)
    n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
  closedir(d);
  return n;
}

static void must_hold(const place *p, const char *text) {
  char got[64] = "";
  FILE *f = fopen(p->path, "rb");
  assert_non_null(f);
  got[fread(got, 1, sizeof got - 1, f)] = 0;
  fclose(f);
  assert_string_equal(got, text);
}

static void write_all(opening *open_it, const place *p, const char *text) {
  kiln_temporary t;
  assert_true(open_it(&t, p->path, 0666));
  assert_int_equal(write(t.fd, text, strlen(text)), (ssize_t)strlen(text));
  assert_true(kiln_temporary_take_name(&t));
  kiln_temporary_discard(&t);
}

static void a_file_gets_its_name_when_it_is_whole(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(openings); i++) {
    const place p = make_place();
    kiln_temporary t;
    assert_true(openings[i](&t, p.path, 0666));
    assert_int_equal(access(p.path, F_OK), -1);
    kiln_temporary_discard(&t);
    assert_int_equal(count(&p), 0);
    write_all(openings[i], &p, "one");
    must_hold(&p, "one");
    write_all(openings[i], &p, "another");
    must_hold(&p, "another");
    assert_int_equal(count(&p), 1);
    remove_place(&p);
  }
}

static void the_mode_is_the_callers_umask_s(void **state) {
  (void)state;
  static const mode_t masks[] = {0, 022, 077, 027};
  const mode_t own = umask(0);
  for (size_t i = 0; i < KILN_LEN(openings) * KILN_LEN(masks); i++) {
    const place p = make_place();
    struct stat info;
    umask(masks[i / 2]);
    write_all(openings[i % 2], &p, "one");
    assert_int_equal(stat(p.path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0666 & ~masks[i / 2]);
    assert_int_equal(umask(masks[i / 2]), masks[i / 2]);
    remove_place(&p);
  }
  umask(own);
}

// The target of a link is not touched; the link is replaced.
static void links_are_replaced_and_not_followed(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(openings); i++) {
    const place p = make_place();
    char target[96];
    snprintf(target, sizeof target, "%s/target", p.folder);
    FILE *f = fopen(target, "wb");
    assert_non_null(f);
    fputs("precious", f);
    fclose(f);
    assert_int_equal(symlink("target", p.path), 0);
    write_all(openings[i], &p, "new");
    must_hold(&p, "new");
    struct stat info;
    assert_int_equal(lstat(p.path, &info), 0);
    assert_true(S_ISREG(info.st_mode));
    f = fopen(target, "rb");
    char text[16] = "";
    assert_non_null(f);
    assert_int_equal(fread(text, 1, 15, f), 8);
    fclose(f);
    assert_string_equal(text, "precious");
    remove_place(&p);
  }
}

// A process writes and is killed in the middle, by any signal.
static void kill_a_writer(opening *open_it, const place *p, int number) {
  int pipes[2];
  char byte;
  assert_int_equal(pipe(pipes), 0);
  const pid_t child = fork();
  if (child == 0) {
    signal(number, SIG_DFL); // a job in the background is started with some of them ignored
    kiln_temporary t;
    const bool made = open_it(&t, p->path, 0666) && write(t.fd, "half", 4) == 4;
    if (write(pipes[1], made ? "y" : "n", 1) == 1) pause();
    _exit(1);
  }
  assert_int_equal(read(pipes[0], &byte, 1), 1);
  assert_int_equal(byte, 'y');
  kill(child, number);
  assert_int_equal(waitpid(child, NULL, 0), child);
  close(pipes[0]);
  close(pipes[1]);
}

static void who_is_killed_leaves_nothing_behind_the_next_start(void **state) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGKILL, SIGHUP};
  (void)state;
  for (size_t i = 0; i < KILN_LEN(openings) * KILN_LEN(numbers); i++) {
    const place p = make_place();
    kill_a_writer(openings[i % 2], &p, numbers[i / 2]);
    assert_int_equal(count(&p), openings[i % 2] == kiln_temporary_open_named); // else at once
    write_all(openings[(i + i / 2) % 2], &p, "next");
    assert_int_equal(count(&p), 1);
    must_hold(&p, "next");
    remove_place(&p);
  }
}

static void what_is_being_written_or_no_temporary_is_left(void **state) {
  static const char *const others[] = {"kiln-0123456789abcdef.tmp", ".kiln-0123456789abcde.tmp",
                                       ".kiln-0123456789abcdeg.tmp", ".kiln-0123456789abcdef.tmpx",
                                       "m.so.123.tmp"};
  const place p = make_place();
  kiln_temporary first, second;
  char path[128];
  (void)state;
  for (size_t i = 0; i < KILN_LEN(others); i++) {
    snprintf(path, sizeof path, "%s/%s", p.folder, others[i]);
    assert_false(kiln_temporary_is_name(others[i]));
    close(open(path, O_CREAT | O_WRONLY, 0600));
  }
  snprintf(path, sizeof path, "%s/.kiln-0123456789abcdef.tmp", p.folder);
  assert_int_equal(mkdir(path, 0700), 0); // a folder of that name
  const int n = count(&p);
  assert_true(kiln_temporary_open_named(&first, p.path, 0666));
  assert_true(kiln_temporary_open_named(&second, p.path, 0666));
  assert_int_equal(count(&p), n + 2);
  assert_true(kiln_temporary_take_name(&first));
  assert_true(kiln_temporary_take_name(&second));
  kiln_temporary_discard(&first);
  kiln_temporary_discard(&second);
  assert_int_equal(count(&p), n + 1);
  remove_place(&p);
}

static void a_folder_that_cannot_be_written_is_told(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(openings); i++) {
    kiln_temporary t;
    assert_false(openings[i](&t, "/nowhere/out", 0666));
    assert_int_equal(errno, ENOENT);
    kiln_temporary_discard(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_gets_its_name_when_it_is_whole),
      cmocka_unit_test(the_mode_is_the_callers_umask_s),
      cmocka_unit_test(links_are_replaced_and_not_followed),
      cmocka_unit_test(who_is_killed_leaves_nothing_behind_the_next_start),
      cmocka_unit_test(what_is_being_written_or_no_temporary_is_left),
      cmocka_unit_test(a_folder_that_cannot_be_written_is_told)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

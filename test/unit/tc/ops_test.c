// Every operator file of the folder parses, checks, and binds to inputs made up for it.
#include "support/ctx.h"
#include "fission/notation.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  if (f == NULL) return NULL;
  char *text = calloc(1, 1 << 20);
  size_t n = text != NULL ? fread(text, 1, (1 << 20) - 1, f) : 0;
  fclose(f);
  if (text != NULL) text[n] = '\0';
  return text;
}

static int check_file(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/ops/%s", KILN_SOURCE_DIR, name);
  char *text = read_file(path);
  assert_non_null(text);
  kiln_diag *diag = kiln_diag_create();
  kiln_ctx cx;
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  kiln_status st = kiln_tc_check(&cx, name, text);
  for (size_t i = 0; i < kiln_diag_count(diag); i++)
    fprintf(stderr, "%s\n", kiln_diag_message(diag, i));
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
  free(text);
  return st == KILN_OK ? 0 : 1;
}

static void every_operator_file_checks(void **state) {
  (void)state;
  DIR *dir = opendir(KILN_SOURCE_DIR "/ops");
  assert_non_null(dir);
  int n = 0, wrong = 0;
  for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
    const char *dot = strrchr(e->d_name, '.');
    if (dot == NULL || strcmp(dot, ".tc") != 0) continue;
    n++;
    wrong += check_file(e->d_name);
  }
  closedir(dir);
  assert_int_equal(wrong, 0);
  assert_true(n > 50);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_operator_file_checks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// A locale with a decimal comma, made on the spot: of the sources below, by localedef, which is a
// part of the C library's essential package; none needs to be installed.
#ifndef KILN_TEST_UNIT_LOCALE_H
#define KILN_TEST_UNIT_LOCALE_H

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COMMA_LOCALE "comma"

static inline void write_source(const char *where, const char *name, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", where, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  if (strcmp(name, "ascii") == 0) {
    for (int i = 0; i < 128; i++) fprintf(f, "<U%04X> /x%02x\n", i, i);
    fputs("END CHARMAP\n", f);
  }
  assert_int_equal(fclose(f), 0);
}

// Makes COMMA_LOCALE in |where| and lets the process find it there.
static inline void make_comma_locale(const char *where) {
  char command[512];
  write_source(where, "ascii",
               "<code_set_name> ANSI_X3.4-1968\n<comment_char> %\n<escape_char> /\n"
               "<mb_cur_min> 1\n<mb_cur_max> 1\nCHARMAP\n");
  write_source(where, "source",
               "comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \",\"\n"
               "thousands_sep \".\"\ngrouping 3\nEND LC_NUMERIC\n");
  snprintf(command, sizeof command,
           "localedef -c --no-archive -f %s/ascii -i %s/source %s/" COMMA_LOCALE " >%s/log 2>&1",
           where, where, where, where);
  (void)!system(command); // it complains of what the source leaves out
  setenv("LOCPATH", where, 1);
  const locale_t made = newlocale(LC_ALL_MASK, COMMA_LOCALE, (locale_t)0);
  assert_true(made != (locale_t)0);
  freelocale(made);
}

// What the thread prints 1.5 as says what its locale is.
static inline const char *shown_half(char text[8]) {
  snprintf(text, 8, "%.1f", 1.5);
  return text;
}

#endif

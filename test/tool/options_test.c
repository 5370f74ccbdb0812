// The tables of options and commands: every row is read, checked and printed.
#include "../../tools/kiln/kiln.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROOM = 64 };

static bool reads(const command *c, char *a, char *b, char *d, options *o) {
  char *argv[] = {a, b, d};
  return options_read(c, (b != NULL) + (d != NULL) + 1, argv, o);
}

// A value that the row takes, and the next one of a list of such; false behind the last.
static bool right_value(const option_row *r, int i, char out[ROOM]) {
  const char *words = r->values.words;
  for (int k = 0; k < i && words; k++) words = strchr(words, '|') ? strchr(words, '|') + 1 : NULL;
  switch (r->values.form) {
  case FORM_WORD:
  case FORM_WORDS:
    if (words) snprintf(out, ROOM, "%.*s", (int)strcspn(words, "|"), words);
    return words != NULL;
  case FORM_NUMBER:
    if (i == 0) snprintf(out, ROOM, "%.0f", r->values.least);
    else if (r->values.most < 0x1p62) snprintf(out, ROOM, "%.0f", r->values.most);
    else snprintf(out, ROOM, r->kind == OPTION_INT ? "9223372036854775807" : "1e300");
    return i < 2;
  case FORM_NAMED_FILE: snprintf(out, ROOM, "a=b=c"); return i == 0;
  case FORM_ANY:
  case FORM_HINT:
  case FORM_HINTS:
  case FORM_READ:
  case FORM_WRITTEN:
  case FORM_FOLDER: break;
  }
  snprintf(out, ROOM, "%s", r->argument);
  return i == 0;
}

// Values that it does not take.
static bool wrong_value(const option_row *r, int i, char out[ROOM]) {
  static const char *const numbers[] = {"", "x", "1x", "-1", "nan", "99999999999999999999x"},
                           *const names[] = {"", "file", "name=", "="},
                           *const words[] = {"", "soup", "random,soup"};
  const bool has_words = r->values.form == FORM_WORD || r->values.form == FORM_WORDS;
  const size_t k = (size_t)i;
  const char *text = NULL;
  if (r->values.form == FORM_NUMBER && k < sizeof numbers / sizeof *numbers) text = numbers[k];
  if (r->values.form == FORM_NAMED_FILE && k < sizeof names / sizeof *names) text = names[k];
  if (has_words && k < sizeof words / sizeof *words) text = words[k];
  if (text) snprintf(out, ROOM, "%s", text);
  else if (r->values.form == FORM_NUMBER && k == sizeof numbers / sizeof *numbers) {
    if (r->values.most < 0x1p62) snprintf(out, ROOM, "%.0f", r->values.most + 1);
    else snprintf(out, ROOM, r->kind == OPTION_INT ? "9223372036854775808" : "-1e-3");
  } else if (has_words && k == sizeof words / sizeof *words)
    snprintf(out, ROOM, "%.*s,", (int)strcspn(r->values.words, "|"), r->values.words);
  else return false;
  return true;
}

static void expect_field(const options *o, const option_row *r, const char *value) {
  const void *at = (const char *)o + r->offset;
  switch (r->kind) {
  case OPTION_TEXT: assert_string_equal(*(const char *const *)at, value); break;
  case OPTION_TEXTS: assert_string_equal(((const values *)at)->at[0], value); break;
  case OPTION_PAIR: assert_string_equal(((const values *)at)->at[1], value); break;
  case OPTION_INT: assert_int_equal(*(const int64_t *)at, strtoll(value, NULL, 10)); break;
  case OPTION_REAL: assert_memory_equal(at, &(double){strtod(value, NULL)}, sizeof(double)); break;
  case OPTION_FLAG: assert_true(*(const bool *)at); break;
  case OPTION_GROUP: fail();
  }
}

// As --name=value, and as two arguments.
static void expect_read(const command *c, const option_row *r, char *value) {
  options o;
  char name[ROOM], both[2 * ROOM];
  snprintf(name, sizeof name, "%s", r->name);
  snprintf(both, sizeof both, "%s=%s", r->name, value);
  char *const second = r->kind == OPTION_PAIR ? value : NULL;
  assert_true(reads(c, name, value, second, &o));
  expect_field(&o, r, value);
  assert_true(option_is_given(&o, r->offset));
  if (name[1] != '-') return;
  assert_true(second ? reads(c, both, value, NULL, &o) : reads(c, both, NULL, NULL, &o));
  expect_field(&o, r, value);
}

static void expect_refused(const command *c, const option_row *r) {
  options o;
  char name[ROOM], value[ROOM];
  snprintf(name, sizeof name, "%s", r->name);
  assert_false(reads(c, name, NULL, NULL, &o)); // without a value
  for (int i = 0; wrong_value(r, i, value); i++)
    if (reads(c, name, value, NULL, &o)) fail_msg("kiln %s %s '%s'", c->name, name, value);
}

static void expect_flag(const command *c, const option_row *r) {
  options o;
  char name[ROOM], both[2 * ROOM];
  snprintf(name, sizeof name, "%s", r->name);
  snprintf(both, sizeof both, "%s=1", r->name);
  assert_true(reads(c, name, NULL, NULL, &o));
  expect_field(&o, r, "");
  assert_true(option_is_given(&o, r->offset));
  assert_false(reads(c, both, NULL, NULL, &o));
}

static void every_option_is_read_and_its_values_checked(void **state) {
  char value[ROOM];
  (void)state;
  for (const command *c = commands; c->name; c++)
    for (int i = 0; i < N_OPTION_ROWS; i++) {
      const option_row *r = &option_rows[i];
      if (!option_is_of(r, c)) continue;
      if (r->kind == OPTION_FLAG) expect_flag(c, r);
      for (int k = 0; r->argument && right_value(r, k, value); k++) expect_read(c, r, value);
      if (r->argument) expect_refused(c, r);
    }
}

static void options_of_other_commands_are_refused(void **state) {
  options o;
  char name[ROOM];
  (void)state;
  for (const command *c = commands; c->name; c++)
    for (int i = 0; i < N_OPTION_ROWS; i++) {
      bool is_taken = option_rows[i].kind == OPTION_GROUP;
      for (int k = 0; k < N_OPTION_ROWS && !is_taken; k++)
        is_taken =
            option_is_of(&option_rows[k], c) && !strcmp(option_rows[k].name, option_rows[i].name);
      if (is_taken) continue;
      snprintf(name, sizeof name, "%s", option_rows[i].name);
      assert_false(reads(c, name, "1", NULL, &o));
    }
}

// What a command line does not give has the row's value.
static void fields_hold_what_rows_say_otherwise(void **state) {
  options o;
  (void)state;
  for (const command *c = commands; c->name; c++) {
    assert_true(options_read(c, 0, NULL, &o));
    for (int i = 0; i < N_OPTION_ROWS; i++) {
      const option_row *r = &option_rows[i];
      assert_false(o.given[i]);
      if (option_is_of(r, c) && r->otherwise) expect_field(&o, r, r->otherwise);
    }
  }
}

static void expect_commands(const option_row *r) {
  for (const char *at = r->commands; *at; at += strspn(at, " ")) {
    char name[ROOM];
    const size_t n = strcspn(at, " ");
    snprintf(name, sizeof name, "%.*s", (int)n, at);
    if (!command_find(name) && strcmp(name, "module")) fail_msg("%s: no command %s", r->name, name);
    at += n;
  }
}

static void rows_are_well_formed(void **state) {
  (void)state;
  for (int i = 0; i < N_OPTION_ROWS; i++) {
    const option_row *r = &option_rows[i];
    assert_true(r->help && *r->help);
    if (r->kind == OPTION_GROUP) continue;
    expect_commands(r);
    assert_true(r->name[0] == '-' && *r->commands);
    assert_int_equal(r->argument == NULL, r->kind == OPTION_FLAG);
    if (r->kind == OPTION_INT || r->kind == OPTION_REAL)
      assert_int_equal(r->values.form, FORM_NUMBER);
    for (int k = 0; k < i; k++) { // one row for a name of a command, one kind for a field
      const option_row *other = &option_rows[k];
      if (other->kind == OPTION_GROUP) continue;
      if (other->offset == r->offset) assert_int_equal(other->kind, r->kind);
      for (const command *c = commands; c->name && !strcmp(other->name, r->name); c++)
        assert_false(option_is_of(other, c) && option_is_of(r, c));
    }
  }
}

static void repeated_options_keep_their_values_up_to_a_limit(void **state) {
  options o;
  char *argv[2 * (MAX_VALUES + 1)];
  (void)state;
  for (int i = 0; i < 2 * (MAX_VALUES + 1); i++) argv[i] = i % 2 ? "a=1" : "--dim";
  const command *c = command_find("run");
  assert_true(options_read(c, 2 * MAX_VALUES, argv, &o));
  assert_int_equal(o.dims.n, MAX_VALUES);
  assert_false(options_read(c, 2 * MAX_VALUES + 2, argv, &o));
}

// However many options stand before it.
static void every_given_option_is_known_as_given(void **state) {
  options o;
  char *argv[2 * 100 + 1];
  (void)state;
  for (int i = 0; i < 200; i++) argv[i] = i % 2 ? "a=1" : "--dim";
  argv[200] = "--no-cache";
  assert_true(options_read(command_find("run"), 201, argv, &o));
  assert_true(option_is_given(&o, offsetof(options, no_cache)));
  assert_false(option_is_given(&o, offsetof(options, shapes)));
}

static void options_together_and_arguments_are_checked(void **state) {
  static const struct {
    const char *command;
    char *argv[6];
    bool right;
  } cases[] = {
      {"run", {"m"}, true},
      {"test", {"m", "n"}, true},
      {"bench", {"--profile", "m"}, true},
      {"tc", {"m", "-o", "out", "--seed=3", "--emit=c"}, true},
      {"tc", {"m", "-o", "out"}, false},
      {"tc", {"m", "--emit=c,asm", "-o", "out"}, false},
      {"tc", {"m", "--emit=c,asm", "--dump-dir=d"}, true},
      {"tc", {"m", "--dump-dir=d"}, false},
      {"verify", {"m", "--seed", "3", "--rtol=1e-3"}, true},
      {"run", {"m", "--dim", "a=1", "--dim", "b=2"}, true},
      {"run", {"m", "--shape", "x=1x3", "--shape=y=[2,4]"}, true},
      {"run", {"m", "--input", "a=b=c.npy"}, true}, // the name holds a '='
      {"compile", {"m", "--dump=graph,asm"}, true},
      {"run", {"-", "--threads", "1024"}, true},
      {"run", {"m", "--orchestrate", "--memory-limit", "5000000000"}, true},
      {"run", {"m", "--orchestrate", "--solver-nodes=1"}, true},
      {"orchestrate", {"m", "--solver-nodes=1"}, true},
      {"orchestrate", {"m", "--json=a", "-o", "b"}, false},
      {"run", {"m", "--memory-limit", "5000000000"}, false}, // of what is chosen
      {"run", {"m", "--solver-nodes=1"}, false},
      {"run", {"m", "--orchestrate", "--orchestration=f", "--memory-limit=1"}, false},
      {"run", {"m", "--tuned-for=x", "--tune=1"}, false},
      {"run", {0}, false},
      {"run", {"m", "n"}, false},
      {"run", {"m", "--absent"}, false},
      {"run", {"m", "--dim", "a"}, false},
      {"run", {"m", "--dim", "a=1b"}, false},
      {"run", {"m", "--dim", "=1"}, false},
      {"run", {"m", "--shape", "x=1xx2"}, false},
      {"run", {"m", "--shape", "x=1x2x"}, false},
      {"explain", {"m", "--why", "a"}, false},
      {"explain", {"m", "--why", "a", "b"}, true},
      {"reduce", {"m", "--", "true"}, true},
      {"reduce", {"m", "--"}, false},
      {"reduce", {"m"}, false},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    options o;
    char *argv[7] = {0};
    int n = 0;
    for (; n < 6 && cases[i].argv[n]; n++) argv[n] = cases[i].argv[n];
    if (options_parse(command_find(cases[i].command), n, argv, &o) != cases[i].right)
      fail_msg("row %zu", i);
  }
}

// A command may write none of the files that it reads, whichever option names them.
static void no_option_writes_what_another_one_reads(void **state) {
  char path[] = "/tmp/kiln_options_XXXXXX", named[ROOM];
  options o;
  (void)state;
  close(mkstemp(path));
  snprintf(named, sizeof named, "x=%s", path);
  for (const command *c = commands; c->name; c++)
    for (int i = 0; i < N_OPTION_ROWS; i++)
      for (int k = 0; k < N_OPTION_ROWS; k++) {
        const option_row *w = &option_rows[i], *r = &option_rows[k];
        const bool is_named = r->values.form == FORM_NAMED_FILE;
        if (!option_is_of(w, c) || !option_is_of(r, c) || w->values.form != FORM_WRITTEN) continue;
        if (!is_named && r->values.form != FORM_READ) continue;
        char *argv[] = {(char *)(uintptr_t)w->name, path, (char *)(uintptr_t)r->name,
                        is_named ? named : path};
        assert_true(options_read(c, 4, argv, &o));
        assert_false(outputs_spare_inputs(c, &o));
        assert_true(options_read(c, 2, argv, &o));
        assert_true(outputs_spare_inputs(c, &o));
      }
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_well_formed),
      cmocka_unit_test(every_option_is_read_and_its_values_checked),
      cmocka_unit_test(options_of_other_commands_are_refused),
      cmocka_unit_test(fields_hold_what_rows_say_otherwise),
      cmocka_unit_test(repeated_options_keep_their_values_up_to_a_limit),
      cmocka_unit_test(every_given_option_is_known_as_given),
      cmocka_unit_test(options_together_and_arguments_are_checked),
      cmocka_unit_test(no_option_writes_what_another_one_reads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

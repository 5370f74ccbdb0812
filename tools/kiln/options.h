// The command line: options and commands are rows (options.def, commands.c), all else is made of
// these.
#ifndef KILN_TOOL_OPTIONS_H
#define KILN_TOOL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { MAX_VALUES = 256 };

// Values of a repeated option; pointers into argv.
typedef struct values {
  int n;
  const char *at[MAX_VALUES];
} values;

enum {
  N_OPTION_ROWS = 0
#define GROUP(...) +1
#define AGAIN(...) +1
#define TEXT(...) +1
#define TEXTS(...) +1
#define PAIR(...) +1
#define INT(...) +1
#define REAL(...) +1
#define FLAG(...) +1
#include "options.def"
};

// What the command line says: a field for each option, and those of all commands.
typedef struct options {
#define GROUP(...)
#define AGAIN(...)
#define TEXT(field, ...) const char *field;
#define TEXTS(field, ...) values field;
#define PAIR(field, ...) values field;
#define INT(field, ...) int64_t field;
#define REAL(field, ...) double field;
#define FLAG(field, ...) bool field;
#include "options.def"
  values args;               // positional
  char *const *rest;         // what stands behind "--", NULL behind the last; NULL: nothing
  bool given[N_OPTION_ROWS]; // by the command line
  bool read_only;            // kiln inspect: what cannot be compiled can be looked at
} options;

typedef enum option_kind {
  OPTION_GROUP, // no option but the title, in |help|, of those that follow
  OPTION_TEXT,
  OPTION_TEXTS,
  OPTION_PAIR, // two values, into a values
  OPTION_INT,
  OPTION_REAL,
  OPTION_FLAG
} option_kind;

typedef enum option_form {
  FORM_ANY,
  FORM_WORD,       // one of |words|
  FORM_WORDS,      // some of them, with commas
  FORM_HINT,       // the compiler checks it; such as |words|
  FORM_HINTS,      // the same, with commas
  FORM_NUMBER,     // from |least| to |most|
  FORM_READ,       // a file that is read; |words| are the ends of its name, "" any
  FORM_WRITTEN,    // a file that is written, likewise
  FORM_NAMED_FILE, // NAME=FILE, likewise, which is read
  FORM_FOLDER
} option_form;

typedef struct option_row {
  option_kind kind;
  size_t offset;        // in struct options
  const char *name;     // "--threads"
  const char *argument; // "N"; NULL for flags
  const char *commands; // names, with blanks; "module": a compiled module takes it, too
  struct {
    option_form form;
    const char *words; // with '|'
    double least, most;
  } values;
  const char *otherwise; // the value where none is given; NULL: none
  const char *help;
} option_row;
extern const option_row option_rows[N_OPTION_ROWS];

typedef struct command {
  const char *group; // whose title stands in front of its first command
  const char *name, *synopsis, *help;
  const char *files;      // the ends of names that its arguments have, with '|'; "/": folders
  int min_args, max_args; // positional
  int (*run)(const options *o);
  bool takes_rest; // "-- COMMAND..."
} command;
extern const command commands[];               // a row without a name is behind the last
const command *command_find(const char *name); // may be NULL

// Whether |word| is one of the words of |list|, which are separated by |separator|.
bool has_word(const char *list, char separator, const char *word, size_t length);
bool option_is_of(const option_row *r, const command *c);

// Parses and checks argv; prints what is wrong and returns false.
bool options_parse(const command *c, int argc, char **argv, options *out);
// The same by the table alone: not what options say together, nor whether a model takes them.
bool options_read(const command *c, int argc, char **argv, options *out);
// Whether the command line gives the option of a field, as in offsetof(options, rtol).
bool option_is_given(const options *o, size_t offset);
// The value |i| of the row's option; NULL behind the last, and for those that are no text.
const char *option_text(const options *o, const option_row *r, int i);
// Prints the message, and returns false.
bool options_complain(const command *c, const char *subject, const char *must, const char *got);

// The length of NAME in NAME=VALUE (the last '=' counts); 0 when |text| is none.
size_t name_length(const char *text);
// NAME=VALUE of |v| with this name: VALUE, or NULL.
const char *values_find(const values *v, const char *name);

// --- what is printed of the rows (help.c, manual.c, completion.c, json.c)

void print_usage(FILE *to);
void print_command_help(const command *c, FILE *to);
// "a, b or c" of "a|b|c", which |separator| separates; |last| is "or".
void print_words(const char *words, char separator, const char *last, FILE *to);
// The help of a row with its words, its bounds and what holds otherwise; malloc'ed.
char *option_help(const option_row *r);
void print_manual(FILE *to);   // the page of man
void print_markdown(FILE *to); // docs/guide/cli.md
void print_bash(FILE *to);
void print_zsh(FILE *to);
void print_fish(FILE *to);
void print_json(FILE *to);

#endif

// The command line. Options and commands are rows (options.def, commands.c), from which parsing,
// help and pages are derived.
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

// The options of a command line: a field for each option of any command.
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
  char *const *rest;         // the arguments after "--", ended by NULL; NULL: none
  bool given[N_OPTION_ROWS]; // on the command line
  bool read_only;            // kiln inspect: a model that cannot be compiled is read nevertheless
} options;

typedef enum option_kind {
  OPTION_GROUP, // no option: |help| is the title of those that follow
  OPTION_TEXT,
  OPTION_TEXTS,
  OPTION_PAIR, // two values, stored in |values|
  OPTION_INT,
  OPTION_REAL,
  OPTION_FLAG
} option_kind;

typedef enum option_form {
  FORM_ANY,
  FORM_WORD,       // one of |words|
  FORM_WORDS,      // a list of some of them, separated by commas
  FORM_HINT,       // checked by the compiler; |words| are examples
  FORM_HINTS,      // a list of these, separated by commas
  FORM_NUMBER,     // from |least| to |most|
  FORM_READ,       // an input file; |words| are suffixes of its name, "" any
  FORM_WRITTEN,    // an output file, with |words| likewise
  FORM_NAMED_FILE, // NAME=FILE, an input file, with |words| likewise
  FORM_FOLDER
} option_form;

typedef struct option_row {
  option_kind kind;
  size_t offset;        // of the field in struct options
  const char *name;     // "--threads"
  const char *argument; // "N"; NULL for flags
  // names, separated by blanks; "module": also if the model is a compiled module
  const char *commands;
  struct {
    option_form form;
    const char *words; // separated by '|'
    double least, most;
  } values;
  const char *otherwise; // the default value; NULL: none
  const char *help;
} option_row;
extern const option_row option_rows[N_OPTION_ROWS];

typedef struct command {
  const char *group; // the title before the group's first command
  const char *name, *synopsis, *help;
  const char *files;      // suffixes of its arguments' names, separated by '|'; "/": folders
  int min_args, max_args; // positional
  int (*run)(const options *o);
  bool takes_rest; // "-- COMMAND..."
} command;
extern const command commands[];               // ended by a row without a name
const command *command_find(const char *name); // may be NULL

// Whether |word| is in |list|, whose words are separated by |separator|.
bool has_word(const char *list, char separator, const char *word, size_t length);
bool option_is_of(const option_row *r, const command *c);

// Parses and checks argv; false after a message.
bool options_parse(const command *c, int argc, char **argv, options *out);
// The same by the table alone, without combinations of options and their use with modules.
bool options_read(const command *c, int argc, char **argv, options *out);
// Whether the command line has the option of a field, given by offsetof(options, FIELD).
bool option_is_given(const options *o, size_t offset);
// Value |i| of the row's option; NULL after the last, and for options without text.
const char *option_text(const options *o, const option_row *r, int i);
// Prints the message and gives false.
bool options_complain(const command *c, const char *subject, const char *must, const char *got);

// The length of NAME in NAME=VALUE (the last '=' counts); 0 if there is no '='.
size_t name_length(const char *text);
// VALUE of NAME=VALUE in |v| for that name; NULL if there is none.
const char *values_find(const values *v, const char *name);

// --- output of the rows (help.c, manual.c, completion.c, json.c)

void print_usage(FILE *to);
void print_command_help(const command *c, FILE *to);
// Prints "a, b or c" for "a|b|c" with separator '|' and |last| "or".
void print_words(const char *words, char separator, const char *last, FILE *to);
// A row's help with its words, bounds and default; malloc'ed.
char *option_help(const option_row *r);
void print_manual(FILE *to);   // a man page
void print_markdown(FILE *to); // docs/guide/cli.md
void print_bash(FILE *to);
void print_zsh(FILE *to);
void print_fish(FILE *to);
void print_json(FILE *to);

#endif

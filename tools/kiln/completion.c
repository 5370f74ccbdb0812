// Completion scripts for bash, zsh and fish, from the tables.
#include "kiln.h"

#include <stdlib.h>
#include <string.h>

// Prints |text| with |before| inserted before each character of |marks|.
static void print_escaped(const char *text, const char *marks, const char *before, FILE *to) {
  for (; *text; text++) {
    if (strchr(marks, *text)) fputs(before, to);
    fputc(*text, to);
  }
}

// Prints text inside of a shell's '...', which a ' would end.
static void print_quoted(const char *text, FILE *to) { print_escaped(text, "'", "'\\'", to); }

// Prints the words of "a|b", separated by |separator|.
static void print_list(const char *words, const char *separator, FILE *to) {
  for (; words && *words; words++)
    if (*words == '|') fputs(separator, to);
    else fputc(*words, to);
}

static bool has_ends(const char *ends) { return ends && *ends && strcmp(ends, "/") != 0; }

// Prints the options of a command, each after a blank.
static void print_options_of(const command *c, FILE *to) {
  for (int i = 0; i < N_OPTION_ROWS; i++)
    if (option_is_of(&option_rows[i], c)) fprintf(to, " %s", option_rows[i].name);
}

// --- bash ---

static const char *const bash_head =
    "# Completes command lines of kiln in bash. Written by `kiln help --format=bash`.\n"
    "\n"
    "_kiln_words() { COMPREPLY=($(compgen -W \"$1\" -- \"$value\")); }\n"
    "\n"
    "_kiln_list() { # words with commas between them\n"
    "  local before=\n"
    "  [[ $value == *,* ]] && before=${value%,*},\n"
    "  COMPREPLY=($(compgen -P \"$before\" -W \"$1\" -- \"${value##*,}\"))\n"
    "}\n"
    "\n"
    "_kiln_folders() {\n"
    "  local IFS=$'\\n'\n"
    "  COMPREPLY=($(compgen -d -- \"$value\"))\n"
    "  compopt -o filenames 2>/dev/null\n"
    "}\n"
    "\n"
    "_kiln_files() { # whose names end so, and folders\n"
    "  local IFS=$'\\n' end\n"
    "  _kiln_folders\n"
    "  for end in \"$@\"; do COMPREPLY+=($(compgen -f -X \"!*$end\" -- \"$value\")); done\n"
    "}\n"
    "\n"
    "_kiln_named_files() { # NAME=FILE\n"
    "  [[ $value == *=* ]] || return\n"
    "  value=${value##*=}\n"
    "  _kiln_files \"$@\"\n"
    "}\n"
    "\n"
    "_kiln_command() { # the values of its options and its arguments\n"
    "  case \"$command $option\" in\n";

static const char *const bash_tail =
    "  esac\n"
    "}\n"
    "\n"
    "_kiln() {\n"
    "  local IFS=$' \\t\\n' current= value= option= command= breaks=${COMP_WORDBREAKS//[^=:]/} i\n"
    "  local -a before=()\n"
    "  COMPREPLY=()\n"
    "  for ((i = 1; i <= COMP_CWORD; i++)); do # readline splits words at '=' and ':'\n"
    "    if ((i > 1)) && [[ ${COMP_WORDS[i]} == [=:]* || ${COMP_WORDS[i - 1]} == *[=:] ]]; then\n"
    "      current+=${COMP_WORDS[i]}\n"
    "    else\n"
    "      ((i > 1)) && before+=(\"$current\")\n"
    "      current=${COMP_WORDS[i]}\n"
    "    fi\n"
    "  done\n"
    "  value=$current\n"
    "  if ((${#before[@]})); then\n"
    "    command=${before[0]}\n"
    "    case $current in\n"
    "    --*=*) option=${current%%=*} value=${current#*=} ;;\n"
    "    *) option=${before[${#before[@]} - 1]} ;;\n"
    "    esac\n"
    "  fi\n"
    "  _kiln_command\n"
    "  local head=${current%\"$value\"}\n"
    "  COMPREPLY=(\"${COMPREPLY[@]/#/$head}\")\n"
    "  [[ $breaks ]] && head=${current%\"${current##*[$breaks]}\"} || head=\n"
    "  COMPREPLY=(\"${COMPREPLY[@]#\"$head\"}\")\n"
    "}\n"
    "\n"
    "complete -F _kiln kiln\n";

// Prints "'compile --dump' | 'tc --dump')": the pattern for completing the row's value.
static void print_bash_case(const option_row *r, FILE *to) {
  bool is_first = true;
  fputs("  ", to);
  for (const command *c = commands; c->name; c++) {
    if (!option_is_of(r, c)) continue;
    fprintf(to, "%s'%s %s'", is_first ? "" : " | ", c->name, r->name);
    is_first = false;
  }
  fputs(") ", to);
}

static void print_bash_files(const char *ends, FILE *to) {
  if (ends && !strcmp(ends, "/")) {
    fputs("_kiln_folders", to);
    return;
  }
  fputs("_kiln_files '", to);
  print_list(ends, "' '", to);
  fputc('\'', to);
}

static void print_bash_words(const char *function, const char *words, FILE *to) {
  fprintf(to, "%s '", function);
  print_list(words, " ", to);
  fputc('\'', to);
}

static void print_bash_value(const option_row *r, FILE *to) {
  switch (r->values.form) {
  case FORM_WORD:
  case FORM_HINT: print_bash_words("_kiln_words", r->values.words, to); break;
  case FORM_WORDS:
  case FORM_HINTS: print_bash_words("_kiln_list", r->values.words, to); break;
  case FORM_READ:
  case FORM_WRITTEN: print_bash_files(r->values.words, to); break;
  case FORM_NAMED_FILE:
    fputs("_kiln_named_files '", to);
    print_list(r->values.words, "' '", to);
    fputc('\'', to);
    break;
  case FORM_FOLDER: fputs("_kiln_folders", to); break;
  case FORM_ANY:
  case FORM_NUMBER: fputc(':', to); break;
  }
  fputs(" ;;\n", to);
}

// Completes options and arguments of a command.
static void print_bash_command(const command *c, FILE *to) {
  fprintf(to, "  '%s '*)\n    [[ $value == -* ]] && _kiln_words '", c->name);
  print_options_of(c, to);
  fputs(" --help'", to);
  if (c->files) {
    fputs(" || ", to);
    print_bash_files(c->files, to);
  }
  fputs(" ;;\n", to);
}

void print_bash(FILE *to) {
  fputs(bash_head, to);
  for (int i = 0; i < N_OPTION_ROWS; i++) {
    const option_row *r = &option_rows[i];
    if (r->kind == OPTION_GROUP || r->kind == OPTION_FLAG) continue;
    print_bash_case(r, to);
    print_bash_value(r, to);
  }
  fputs("  *' --'*) [[ $current == --*=* ]] && return ;;&\n", to);
  fputs("  'help '*) _kiln_words '--format --help", to);
  for (const command *c = commands; c->name; c++) fprintf(to, " %s", c->name);
  fputs("' ;;\n", to);
  for (const command *c = commands; c->name; c++) print_bash_command(c, to);
  fputs("  ' ') _kiln_words '--help --version", to);
  for (const command *c = commands; c->name; c++) fprintf(to, " %s", c->name);
  fputs("' ;;\n", to);
  fputs(bash_tail, to);
}

// --- zsh ---

// Prints the text in an option's [...], where a backslash escapes the next character.
static void print_zsh_text(const char *text, FILE *to) {
  for (; *text; text++) {
    if (strchr("[]\\:", *text)) fputc('\\', to);
    fputs(*text == '\'' ? "'\\''" : (char[]){*text, 0}, to);
  }
}

static void print_zsh_words(const char *words, FILE *to) {
  for (; *words; words++) {
    if (*words == ':') fputc('\\', to);
    fputc(*words == '|' ? ' ' : *words, to);
  }
}

static void print_zsh_files(const char *ends, FILE *to) {
  fputs("_files", to);
  if (ends && !strcmp(ends, "/")) fputs(" -/", to);
  if (!has_ends(ends)) return;
  fputs(" -g \"*(", to);
  print_list(ends, "|", to);
  fputs(")(-.)\"", to);
}

static void print_zsh_value(const option_row *r, FILE *to) {
  const char *words = r->values.words;
  switch (r->values.form) {
  case FORM_WORD:
  case FORM_HINT:
    fputc('(', to);
    print_zsh_words(words, to);
    fputc(')', to);
    break;
  case FORM_WORDS:
  case FORM_HINTS:
    fprintf(to, "_values -s , %s ", r->argument);
    print_zsh_words(words, to);
    break;
  case FORM_READ:
  case FORM_WRITTEN: print_zsh_files(words, to); break;
  case FORM_NAMED_FILE: fputs("{compset -P \"*=\" && _files}", to); break;
  case FORM_FOLDER: print_zsh_files("/", to); break;
  case FORM_ANY:
  case FORM_NUMBER: fputc(' ', to); break;
  }
}

static void print_zsh_option(const option_row *r, FILE *to) {
  char *help = option_help(r);
  const bool is_long = r->name[1] == '-';
  fprintf(to, " \\\n      '%s%s%s[", r->kind == OPTION_TEXTS ? "*" : "", r->name,
          is_long && r->argument && r->kind != OPTION_PAIR ? "=" : "");
  print_zsh_text(help, to);
  fputc(']', to);
  for (int i = 0; r->argument && i < (r->kind == OPTION_PAIR ? 2 : 1); i++) {
    fputc(':', to);
    print_zsh_text(r->argument, to);
    fputc(':', to);
    print_zsh_value(r, to);
  }
  fputc('\'', to);
  free(help);
}

static void print_zsh_command(const command *c, FILE *to) {
  fprintf(to, "  %s)\n    _arguments '--help[list the options]'", c->name);
  for (int i = 0; i < N_OPTION_ROWS; i++)
    if (option_is_of(&option_rows[i], c)) print_zsh_option(&option_rows[i], to);
  if (c->run == command_help) fputs(" \\\n      '1:command:_kiln_commands'", to);
  if (c->files) {
    fputs(" \\\n      '*:argument:", to);
    print_zsh_files(c->files, to);
    fputc('\'', to);
  }
  fputs(" ;;\n", to);
}

void print_zsh(FILE *to) {
  fputs("#compdef kiln\n# Completes command lines of kiln in zsh. Written by `kiln help "
        "--format=zsh`.\n\n_kiln_commands() {\n  local -a commands=(\n",
        to);
  for (const command *c = commands; c->name; c++) {
    fprintf(to, "    '%s:", c->name);
    print_quoted(c->help, to);
    fputs("'\n", to);
  }
  fputs("  )\n  _describe command commands\n}\n\n_kiln() {\n"
        "  if ((CURRENT == 2)); then\n    _kiln_commands\n    return\n  fi\n"
        "  shift words\n  ((CURRENT--))\n  case $words[1] in\n",
        to);
  for (const command *c = commands; c->name; c++) print_zsh_command(c, to);
  fputs("  esac\n}\n\n_kiln \"$@\"\n", to);
}

// --- fish ---

static void print_fish_value(const option_row *r, FILE *to) {
  const char *words = r->values.words;
  switch (r->values.form) {
  case FORM_WORD:
  case FORM_HINT:
    fputs(" -x -a '", to);
    print_list(words, " ", to);
    fputc('\'', to);
    break;
  case FORM_WORDS:
  case FORM_HINTS:
    fputs(" -x -a '(__fish_append , ", to);
    print_list(words, " ", to);
    fputs(")'", to);
    break;
  case FORM_READ:
  case FORM_WRITTEN:
  case FORM_NAMED_FILE: fputs(" -r -F", to); break;
  case FORM_FOLDER: fputs(" -x -a '(__fish_complete_directories)'", to); break;
  case FORM_ANY:
  case FORM_NUMBER: fputs(" -x", to); break;
  }
}

static void print_fish_text(const char *text, FILE *to) {
  fputs(" -d '", to);
  print_escaped(text, "'\\", "\\", to);
  fputs("'\n", to);
}

static void print_fish_option(const option_row *r, FILE *to) {
  const bool is_long = r->name[1] == '-';
  char *help = option_help(r);
  fputs("complete -c kiln -n '__fish_seen_subcommand_from", to);
  for (const command *c = commands; c->name; c++)
    if (option_is_of(r, c)) fprintf(to, " %s", c->name);
  fprintf(to, "' %s %s", is_long ? "-l" : "-s", r->name + 1 + is_long);
  if (r->argument) print_fish_value(r, to);
  print_fish_text(help, to);
  free(help);
}

static void print_fish_command(const command *c, FILE *to) {
  fprintf(to, "complete -c kiln -n __fish_use_subcommand -a %s", c->name);
  print_fish_text(c->help, to);
  if (!c->files) return;
  fprintf(to, "complete -c kiln -n '__fish_seen_subcommand_from %s' %s\n", c->name,
          strcmp(c->files, "/") ? "-F" : "-a '(__fish_complete_directories)'");
}

void print_fish(FILE *to) {
  fputs("# Completes command lines of kiln in fish. Written by `kiln help --format=fish`.\n\n"
        "complete -c kiln -f\ncomplete -c kiln -l help -d 'list commands or options'\n",
        to);
  for (const command *c = commands; c->name; c++) print_fish_command(c, to);
  fputs("complete -c kiln -n '__fish_seen_subcommand_from help' -a '", to);
  for (const command *c = commands; c->name; c++) fprintf(to, "%s ", c->name);
  fputs("'\n", to);
  for (int i = 0; i < N_OPTION_ROWS; i++)
    if (option_rows[i].kind != OPTION_GROUP) print_fish_option(&option_rows[i], to);
}

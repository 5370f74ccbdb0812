// The rules by which prim programs are rewritten before they are scheduled: a table, a row for each.
//
// A row has a name, which --without-rule takes and reports print, and a function, which applies the rule
// wherever it fits and pays. Rows run in the order of the table, again and again until a round changes
// nothing; so a rule must find less to do in what it made, and leave a program that kiln_program_verify
// accepts. Rows without a function are carried out by the scheduler, behind all others, for they ask which
// machine it is: the table gives them their names, switches and counters.
#ifndef KILN_REWRITE_RULES_H
#define KILN_REWRITE_RULES_H

#include "ir/prim.h"

enum { KILN_MAX_RULES = 32 };

typedef struct kiln_rule {
  const char *name, *text;
  // needs: |p| verified, shapes static, statements numbered as they stand
  // gives: how often it was applied; then the same of |p|, dead statements removed
  int (*apply)(kiln_ctx *cx, kiln_program *p);
  kiln_status (*try_apply)(kiln_ctx *cx, kiln_program *p, int *out_n); // of rules that can fail
  bool is_alternative; // neither side always wins: applied where it is asked for
} kiln_rule;

extern const kiln_rule kiln_rules[]; // ended by a row without a name

typedef struct kiln_rewriting {
  const kiln_rule *rules; // the table
  uint32_t without;       // bit of a row: it is left out
  uint32_t with;          // bit of an alternative: it is asked for
  int n_steps; // ends after so many runs of a row that changed something; 0: at the fixpoint
  int counts[KILN_MAX_RULES]; // of a row: how often it was applied
  int n_run;                  // runs of a row that changed something
  const kiln_rule *last;      // what changed the program last; NULL: nothing did
} kiln_rewriting;

// errors: KILN_INTERNAL: a rule left a program that is none; and what a rule fails with
kiln_status kiln_rewrite(kiln_ctx *cx, kiln_program *p, kiln_rewriting *io);

// The rows that run, as bits.
uint32_t kiln_rewriting_rows(const kiln_rewriting *r);
// Adds to |io_rows| those that |list| names, separated by ','.
//
// errors: KILN_BAD_INPUT: a name that no row has
kiln_status kiln_rules_find(kiln_ctx *cx, const kiln_rule *rules, const char *list,
                            uint32_t *io_rows);
bool kiln_rewriting_omits(const kiln_rewriting *r, const char *name);
void kiln_rewriting_count(kiln_rewriting *r, const char *name,
                          int n); // of a row that the scheduler runs
// "cse 12, merge 3" of what was applied; "none".
void kiln_rewriting_print(const kiln_rewriting *r, kiln_text *out);

// --- rows, each in a file of its name

int kiln_rule_cse(kiln_ctx *cx, kiln_program *p);
int kiln_rule_merge(kiln_ctx *cx, kiln_program *p);
int kiln_rule_moves(kiln_ctx *cx, kiln_program *p);
int kiln_rule_repeat(kiln_ctx *cx, kiln_program *p);
int kiln_rule_resample(kiln_ctx *cx, kiln_program *p);
int kiln_rule_reassociate(kiln_ctx *cx, kiln_program *p);
int kiln_rule_defer(kiln_ctx *cx, kiln_program *p);
int kiln_rule_scale(kiln_ctx *cx, kiln_program *p);

#endif

// The rules by which prim programs are rewritten before they are scheduled: a table, a row for
// each.
//
// A row has a name, which --without takes and reports print, and a function, which applies the rule
// wherever it fits and pays. Rows run in the order of the table, again and again until a round
// changes nothing; so a rule must find less to do in what it made, and leave a program that
// kiln_program_verify accepts. What asks which machine it is for is a pass behind them
// (driver/pipeline.c).
#ifndef KILN_REWRITE_RULES_H
#define KILN_REWRITE_RULES_H

#include "ir/prim.h"

enum { KILN_MAX_RULES = 32 };

// Where an alternative is applied: at the tensor that the statement makes with which it begins.
typedef struct kiln_rule_place {
  int row;
  kiln_symbol
      name; // as it is printed and asked for: letters, digits and "/._:+-", with '_' for all else
  kiln_symbol tensor; // its own name; 0: not known
} kiln_rule_place;
typedef KILN_VEC(kiln_rule_place) kiln_rule_places;

// Alternatives that are asked for: a row with places among these at them alone, others wherever
// they fit.
typedef struct kiln_asked {
  uint32_t rows;
  kiln_rule_places places;
} kiln_asked;

// What an alternative is told: where it may be applied.
typedef struct kiln_site {
  int row;
  const kiln_asked *asked;
  kiln_rule_places *taken;
} kiln_site;
// Whether the rule may be applied at |s|, which it then must be, if it has not been before.
bool kiln_site_enter(kiln_ctx *cx, kiln_site *site, const kiln_program *p, const kiln_stmt *s);

// Applies a rule by |one|, which says whether it did anything, until nothing is left to do;
// statements are renumbered behind each, and dead ones removed. Its scratch memory is given back.
//
// gives: how often it was done
int kiln_rewrite_all(kiln_ctx *cx, kiln_program *p, kiln_site *site,
                     bool (*one)(kiln_ctx *cx, kiln_program *p, kiln_site *site));

typedef struct kiln_rule {
  const char *name, *text;
  // needs: |p| verified, shapes static, statements numbered as they stand
  // gives: how often it was applied; then the same of |p|, dead statements removed
  int (*apply)(kiln_ctx *cx, kiln_program *p);
  kiln_status (*try_apply)(kiln_ctx *cx, kiln_program *p, int *out_n); // of rules that can fail
  // Of an alternative, where neither side always wins: applied where it is asked for
  int (*apply_at)(kiln_ctx *cx, kiln_program *p, kiln_site *site);
  bool on_gpus; // and nowhere else: on CPUs it does not pay
  bool on_cpus; // not on GPUs
} kiln_rule;

extern const kiln_rule kiln_rules[]; // ended by a row without a name

typedef struct kiln_rewriting {
  const kiln_rule *rules; // the table
  uint32_t without;       // bit of a row: it is left out
  kiln_asked with;        // alternatives
  bool on_gpu;            // what the program is for
  int n_steps; // ends after so many runs of a row that changed something; 0: at the fixpoint
  int counts[KILN_MAX_RULES]; // of a row: how often it was applied
  int n_run;                  // runs of a row that changed something
  kiln_rule_places taken;     // where alternatives were applied, each place once
  const kiln_rule *last;      // what changed the program last; NULL: nothing did
} kiln_rewriting;

// errors: KILN_INTERNAL: a rule left a program that is none; and what a rule fails with
kiln_status kiln_rewrite(kiln_ctx *cx, kiln_program *p, kiln_rewriting *io);

// The row whose name is the |n| bytes at |name|; -1: none.
int kiln_rules_row(const kiln_rule *rules, const char *name, size_t n);
// Adds to |io| the alternatives that |list| asks for: NAME, or NAME@PLACE for each place.
//
// errors: KILN_BAD_INPUT: a name that no row has
kiln_status kiln_rules_ask(kiln_ctx *cx, const kiln_rule *rules, const char *list, kiln_asked *io);
// The same as text; "" of none.
const char *kiln_asked_text(kiln_ctx *cx, const kiln_rule *rules, const kiln_asked *asked);
// errors: KILN_BAD_INPUT: a place that was asked for, where its rule was not applied
kiln_status kiln_rewriting_check_places(kiln_ctx *cx, const kiln_rewriting *r);
// "cse 12, merge 3" of what was applied.
//
// gives: whether anything was
bool kiln_rewriting_print(const kiln_rewriting *r, kiln_text *out);

// --- rows, each in a file of its name

int kiln_rule_cse(kiln_ctx *cx, kiln_program *p);
int kiln_rule_moves(kiln_ctx *cx, kiln_program *p);
int kiln_rule_views(kiln_ctx *cx, kiln_program *p);
int kiln_rule_repeat(kiln_ctx *cx, kiln_program *p);
int kiln_rule_resample(kiln_ctx *cx, kiln_program *p);
int kiln_rule_reassociate(kiln_ctx *cx, kiln_program *p);
int kiln_rule_blocks(kiln_ctx *cx, kiln_program *p);
int kiln_rule_dots(kiln_ctx *cx, kiln_program *p);
int kiln_rule_ones(kiln_ctx *cx, kiln_program *p, kiln_site *site);
int kiln_rule_merge(kiln_ctx *cx, kiln_program *p, kiln_site *site);
int kiln_rule_scale(kiln_ctx *cx, kiln_program *p, kiln_site *site);
int kiln_rule_defer(kiln_ctx *cx, kiln_program *p, kiln_site *site);

#endif

// Rewriting rules for programs before scheduling: a table with one row for each rule.
//
// A row has a name, for --without and reports, and a function that applies the rule wherever it
// matches and pays. Rows run in the order of the table, repeatedly, until none changes the program;
// so a rule must make progress by some measure, and its result must pass kiln_program_verify.
// Machine-dependent transformations are passes that follow (driver/pipeline.c).
#ifndef KILN_REWRITE_RULES_H
#define KILN_REWRITE_RULES_H

#include "ir/prim.h"

enum { KILN_MAX_RULES = 32 };

// The place where an alternative is applied: the tensor of its first statement.
typedef struct kiln_rule_place {
  int row;
  kiln_symbol
      name; // as printed and given: letters, digits and "/._:+-"; other characters become '_'
  kiln_symbol tensor; // its name; 0: unknown
} kiln_rule_place;
typedef KILN_VEC(kiln_rule_place) kiln_rule_places;

// Requested alternatives: a row with places is applied only there, a row without places wherever it
// matches.
typedef struct kiln_asked {
  uint32_t rows;
  kiln_rule_places places;
} kiln_asked;

// Restricts where an alternative is applied.
typedef struct kiln_site {
  int row;
  const kiln_asked *asked;
  kiln_rule_places *taken;
} kiln_site;
// Whether the rule may be applied at |s|; if so it must be, unless it has been before.
bool kiln_site_enter(kiln_ctx *cx, kiln_site *site, const kiln_program *p, const kiln_stmt *s);

// Applies |one|, which tells whether it changed the program, until nothing changes; after each step
// statements are renumbered and dead ones removed. Rewinds its scratch memory.
//
// gives: number of applications
int kiln_rewrite_all(kiln_ctx *cx, kiln_program *p, kiln_site *site,
                     bool (*one)(kiln_ctx *cx, kiln_program *p, kiln_site *site));

typedef struct kiln_rule {
  const char *name, *text;
  // needs: |p| verified, shapes static, statements numbered as they stand
  // gives: number of applications; |p| is equivalent, without dead statements
  int (*apply)(kiln_ctx *cx, kiln_program *p);
  kiln_status (*try_apply)(kiln_ctx *cx, kiln_program *p, int *out_n); // for rules that can fail
  // For alternatives, which do not always pay: applied only on request.
  int (*apply_at)(kiln_ctx *cx, kiln_program *p, kiln_site *site);
  bool on_gpus; // only on GPUs: it does not pay on CPUs
  bool on_cpus; // only on CPUs
} kiln_rule;

extern const kiln_rule kiln_rules[]; // ended by a row without a name

typedef struct kiln_rewriting {
  const kiln_rule *rules; // the table
  uint32_t without;       // bit mask of rows to skip
  kiln_asked with;        // requested alternatives
  bool on_gpu;            // the target
  int n_steps;            // ends after this many runs that changed something; 0: at the fixed point
  int counts[KILN_MAX_RULES]; // [rows] applications
  int n_run;                  // runs of a row that changed the program
  kiln_rule_places taken;     // places of applied alternatives, each once
  const kiln_rule *last;      // the last row that changed the program; NULL: none
} kiln_rewriting;

// errors: KILN_INTERNAL: a rule left an invalid program; otherwise the rule's own
kiln_status kiln_rewrite(kiln_ctx *cx, kiln_program *p, kiln_rewriting *io);

// The index of the row whose name is the |n| bytes at |name|; -1: none.
int kiln_rules_row(const kiln_rule *rules, const char *name, size_t n);
// Parses |list|, alternatives as NAME or NAME@PLACE, and adds them to |io|.
//
// errors: KILN_BAD_INPUT: an unknown rule
kiln_status kiln_rules_ask(kiln_ctx *cx, const kiln_rule *rules, const char *list, kiln_asked *io);
// Prints |asked| as such a list; "" if it is empty.
const char *kiln_asked_text(kiln_ctx *cx, const kiln_rule *rules, const kiln_asked *asked);
// errors: KILN_BAD_INPUT: a requested place where the rule was not applied
kiln_status kiln_rewriting_check_places(kiln_ctx *cx, const kiln_rewriting *r);
// Prints the applied rules with counts: "cse 12, merge 3".
//
// gives: whether any was applied
bool kiln_rewriting_print(const kiln_rewriting *r, kiln_text *out);

// --- the rules, each in the file of its name ---

int kiln_rule_narrow(kiln_ctx *cx, kiln_program *p);
int kiln_rule_cse(kiln_ctx *cx, kiln_program *p);
int kiln_rule_moves(kiln_ctx *cx, kiln_program *p);
int kiln_rule_concats(kiln_ctx *cx, kiln_program *p);
int kiln_rule_gathers(kiln_ctx *cx, kiln_program *p);
kiln_status kiln_rule_scatters(kiln_ctx *cx, kiln_program *p, int *out_n);
int kiln_rule_safe_softmax(kiln_ctx *cx, kiln_program *p);
int kiln_rule_unflatten(kiln_ctx *cx, kiln_program *p);
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

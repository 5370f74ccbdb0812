#include "rewrite/rules.h"

#include "rewrite/constants.h"

#include <string.h>

enum { MAX_ROUNDS = 8 };

// clang-format off
const kiln_rule kiln_rules[] = {
    {"constants", "what reads constants alone is computed now", .try_apply = kiln_program_fold_constants},
    {"cse", "what is computed twice is computed once, and equal constants are one", .apply = kiln_rule_cse},
    {"moves", "slices of concatenations, and concatenations of slices, read what was put there", .apply = kiln_rule_moves},
    {"repeat", "contractions over what stands several times side by side read it once", .apply = kiln_rule_repeat},
    {"resample", "contractions over channels move in front of what enlarges", .apply = kiln_rule_resample},
    {"merge", "contractions of one operand with several constants are one", .apply = kiln_rule_merge, .is_alternative = true},
    {"reassociate", "products of products in the order with the fewest multiplications", .apply = kiln_rule_reassociate},
    {"scale", "constant factors around a contraction with constants are folded into these", .apply = kiln_rule_scale, .is_alternative = true},
    {"defer", "what scales an operand along with the result is applied to that", .apply = kiln_rule_defer, .is_alternative = true},
    {"absorb", "what moves elements, and cheap maps, are computed by their readers", .apply = NULL},
    {"winograd", "3x3 convolutions by Winograd's algorithm", .apply = NULL},
    {0}};
// clang-format on

static kiln_status check(kiln_ctx *cx, const kiln_program *p, const kiln_rule *rule) {
  if (kiln_program_verify(cx, p) == KILN_OK) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_INTERNAL, rule->name, "rule: must leave a program that is right");
}

static kiln_status run_row(kiln_ctx *cx, kiln_program *p, const kiln_rule *rule, int *out_n) {
  *out_n = 0;
  if (rule->try_apply) KILN_TRY(rule->try_apply(cx, p, out_n));
  else if (rule->apply) *out_n = rule->apply(cx, p);
  return *out_n > 0 ? check(cx, p, rule) : KILN_OK;
}

uint32_t kiln_rewriting_rows(const kiln_rewriting *r) {
  uint32_t rows = 0;
  for (int i = 0; r->rules[i].name; i++)
    if (!r->rules[i].is_alternative || r->with >> i & 1) rows |= 1U << i;
  return rows & ~r->without;
}

kiln_status kiln_rewrite(kiln_ctx *cx, kiln_program *p, kiln_rewriting *io) {
  const uint32_t rows = kiln_rewriting_rows(io);
  bool changed = true;
  for (int round = 0; round < MAX_ROUNDS && changed; round++) {
    changed = false;
    for (int i = 0; io->rules[i].name; i++) {
      int n = 0;
      if (!(rows >> i & 1)) continue;
      KILN_TRY(run_row(cx, p, &io->rules[i], &n));
      if (n == 0) continue;
      io->counts[i] += n;
      io->last = &io->rules[i];
      changed = true;
      if (++io->n_run == io->n_steps) return KILN_OK;
    }
  }
  return KILN_OK;
}

// The row whose name is the |n| bytes at |name|; -1: none.
static int find_row(const kiln_rule *rules, const char *name, size_t n) {
  for (int i = 0; rules[i].name; i++)
    if (strlen(rules[i].name) == n && memcmp(rules[i].name, name, n) == 0) return i;
  return -1;
}

static const char *names_of(kiln_ctx *cx, const kiln_rule *rules) {
  kiln_text text;
  kiln_text_init(&text, &cx->perm);
  for (int i = 0; rules[i].name; i++)
    kiln_text_printf(&text, "%s%s", i == 0 ? "" : rules[i + 1].name ? ", " : " or ", rules[i].name);
  return text.data;
}

kiln_status kiln_rules_find(kiln_ctx *cx, const kiln_rule *rules, const char *list,
                            uint32_t *io_rows) {
  for (const char *at = list; at; at = *at == ',' ? at + 1 : NULL) {
    const size_t n = strcspn(at, ",");
    const int row = find_row(rules, at, n);
    if (row < 0)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "options", "rule: must be %s, got '%.*s'",
                       names_of(cx, rules), (int)n, at);
    *io_rows |= 1U << row;
    at += n;
  }
  return KILN_OK;
}

bool kiln_rewriting_omits(const kiln_rewriting *r, const char *name) {
  return r->without >> find_row(r->rules, name, strlen(name)) & 1;
}

void kiln_rewriting_count(kiln_rewriting *r, const char *name, int n) {
  r->counts[find_row(r->rules, name, strlen(name))] += n;
}

void kiln_rewriting_print(const kiln_rewriting *r, kiln_text *out) {
  bool any = false;
  for (int i = 0; r->rules[i].name; i++) {
    if (r->counts[i] == 0) continue;
    kiln_text_printf(out, "%s%s %d", any ? ", " : "", r->rules[i].name, r->counts[i]);
    any = true;
  }
  if (!any) kiln_text_add(out, "none");
}

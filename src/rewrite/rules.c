#include "rewrite/rules.h"

#include "rewrite/constants.h"
#include "rewrite/dce.h"

#include <string.h>

enum { MAX_ROUNDS = 8 };

// clang-format off
const kiln_rule kiln_rules[] = {
    {"narrow", "constants that are widened for products of few rows stay as they are stored", .apply = kiln_rule_narrow,
     .on_cpus = true},
    {"constants", "statements that read only constants are evaluated at compile time",
     .try_apply = kiln_program_fold_constants},
    {"cse", "common subexpressions are computed once, and equal constants are merged", .apply = kiln_rule_cse},
    {"moves", "slices of concatenations, and concatenations of slices, read the original tensors",
     .apply = kiln_rule_moves},
    {"concats", "concatenations that repeat the operands of an earlier one read its result",
     .apply = kiln_rule_concats},
    {"gathers", "positions in constant tables are computed if they are a function of their index",
     .apply = kiln_rule_gathers},
    {"scatters", "scatters to known positions become maps of what is written there",
     .try_apply = kiln_rule_scatters},
    {"safe-softmax", "rows of weights that no key has become 0 behind the product instead of in front",
     .apply = kiln_rule_safe_softmax},
    {"unflatten", "rows that are flattened before a product and split after it keep their axes",
     .apply = kiln_rule_unflatten},
    {"views", "maps of views are computed before the views, in their producer's kernel", .apply = kiln_rule_views,
     .on_gpus = true},
    {"repeat", "contractions over an axis in which a tensor is repeated read it once", .apply = kiln_rule_repeat},
    {"resample", "contractions over channels move before upsampling", .apply = kiln_rule_resample},
    {"ones", "sums over a contraction's operand become one more column of it", .apply_at = kiln_rule_ones},
    {"merge", "contractions of one operand with several constants are merged", .apply_at = kiln_rule_merge},
    {"reassociate", "products of products in the order with the fewest multiplications",
     .apply = kiln_rule_reassociate},
    {"scale", "constant factors around a contraction are folded into its constants", .apply_at = kiln_rule_scale},
    {"defer", "factors invariant in a sum are applied to its result instead of its operand",
     .apply_at = kiln_rule_defer},
    {"blocks", "very long sums are computed in blocks", .apply = kiln_rule_blocks, .on_cpus = true},
    {"dots", "very long products with few results are computed in blocks", .apply = kiln_rule_dots, .on_gpus = true},
    {0}};
// clang-format on

static kiln_status check(kiln_ctx *cx, const kiln_program *p, const kiln_rule *rule) {
  if (kiln_program_verify(cx, p) == KILN_OK) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_INTERNAL, rule->name, "rule: must leave a program that is right");
}

static kiln_status run_row(kiln_ctx *cx, kiln_program *p, kiln_rewriting *io, int row, int *out_n) {
  const kiln_rule *rule = &io->rules[row];
  kiln_site site = {row, &io->with, &io->taken};
  *out_n = 0;
  if (rule->try_apply) KILN_TRY(rule->try_apply(cx, p, out_n));
  else if (rule->apply) *out_n = rule->apply(cx, p);
  else if (rule->apply_at) *out_n = rule->apply_at(cx, p, &site);
  return *out_n > 0 ? check(cx, p, rule) : KILN_OK;
}

// The enabled rows, as a bit mask.
static uint32_t rows_of(const kiln_rewriting *r) {
  uint32_t rows = 0;
  for (int i = 0; r->rules[i].name; i++)
    if ((!r->rules[i].apply_at || r->with.rows >> i & 1) &&
        (r->on_gpu ? !r->rules[i].on_cpus : !r->rules[i].on_gpus))
      rows |= 1U << i;
  return rows & ~r->without;
}

kiln_status kiln_rewrite(kiln_ctx *cx, kiln_program *p, kiln_rewriting *io) {
  const uint32_t rows = rows_of(io);
  bool changed = true;
  for (int round = 0; round < MAX_ROUNDS && changed; round++) {
    changed = false;
    for (int i = 0; io->rules[i].name; i++) {
      int n = 0;
      if (!(rows >> i & 1)) continue;
      KILN_TRY(run_row(cx, p, io, i, &n));
      if (n == 0) continue;
      io->counts[i] += n;
      io->last = &io->rules[i];
      changed = true;
      if (++io->n_run == io->n_steps) return KILN_OK;
    }
  }
  return KILN_OK;
}

int kiln_rules_row(const kiln_rule *rules, const char *name, size_t n) {
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

// Parses a row's name, the |n| bytes at |name|.
static kiln_status read_row(kiln_ctx *cx, const kiln_rule *rules, const char *name, size_t n,
                            int *out) {
  *out = kiln_rules_row(rules, name, n);
  if (*out >= 0) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "options", "rule: must be %s, got '%.*s'",
                   names_of(cx, rules), (int)n, name);
}

// --- places ---

static kiln_symbol place_name(kiln_ctx *cx, kiln_symbol tensor) {
  char *name = kiln_arena_strdup(&cx->scratch, kiln_symbol_text(cx, tensor));
  for (char *at = name; *at; at++) {
    const char c = *at;
    const bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!is_word && !strchr("/._:+-", c)) *at = '_';
  }
  return kiln_symbol_of(cx, name);
}

static bool has_place(const kiln_rule_places *places, int row, kiln_symbol name) {
  for (int i = 0; i < places->n; i++)
    if (places->data[i].row == row && places->data[i].name == name) return true;
  return false;
}

static bool has_row(const kiln_rule_places *places, int row) {
  for (int i = 0; i < places->n; i++)
    if (places->data[i].row == row) return true;
  return false;
}

bool kiln_site_enter(kiln_ctx *cx, kiln_site *site, const kiln_program *p, const kiln_stmt *s) {
  const kiln_symbol tensor = p->tensors.data[s->out]->name, name = place_name(cx, tensor);
  const kiln_rule_places *only = &site->asked->places;
  if (has_row(only, site->row) && !has_place(only, site->row, name)) return false;
  if (!has_place(site->taken, site->row, name))
    KILN_VEC_PUSH(&cx->perm, site->taken, (kiln_rule_place){site->row, name, tensor});
  return true;
}

int kiln_rewrite_all(kiln_ctx *cx, kiln_program *p, kiln_site *site,
                     bool (*one)(kiln_ctx *cx, kiln_program *p, kiln_site *site)) {
  int n = 0;
  for (bool found = true; found; n += found) {
    const kiln_mark mark = kiln_arena_mark(&cx->scratch);
    found = one(cx, p, site);
    if (found) {
      kiln_stmts_renumber(p);
      kiln_program_dce(cx, p);
    }
    kiln_arena_rewind(&cx->scratch, mark);
  }
  return n;
}

kiln_status kiln_rules_ask(kiln_ctx *cx, const kiln_rule *rules, const char *list, kiln_asked *io) {
  for (const char *at = list; at; at = *at == ',' ? at + 1 : NULL) {
    const size_t n = strcspn(at, ","), n_name = strcspn(at, "@,");
    int row = -1;
    KILN_TRY(read_row(cx, rules, at, n_name, &row));
    io->rows |= 1U << row;
    if (n > n_name) {
      const char *place = kiln_arena_strndup(&cx->scratch, at + n_name + 1, n - n_name - 1);
      KILN_VEC_PUSH(&cx->perm, &io->places, (kiln_rule_place){row, kiln_symbol_of(cx, place), 0});
    }
    at += n;
  }
  return KILN_OK;
}

const char *kiln_asked_text(kiln_ctx *cx, const kiln_rule *rules, const kiln_asked *asked) {
  kiln_text text;
  kiln_text_init(&text, &cx->perm);
  for (int i = 0; rules[i].name; i++) {
    if (!(asked->rows >> i & 1)) continue;
    if (!has_row(&asked->places, i))
      kiln_text_printf(&text, "%s%s", text.n ? "," : "", rules[i].name);
    for (int k = 0; k < asked->places.n; k++)
      if (asked->places.data[k].row == i)
        kiln_text_printf(&text, "%s%s@%s", text.n ? "," : "", rules[i].name,
                         kiln_symbol_text(cx, asked->places.data[k].name));
  }
  return text.n ? text.data : "";
}

kiln_status kiln_rewriting_check_places(kiln_ctx *cx, const kiln_rewriting *r) {
  for (int i = 0; i < r->with.places.n; i++) {
    const kiln_rule_place *one = &r->with.places.data[i];
    if (r->without >> one->row & 1 || has_place(&r->taken, one->row, one->name)) continue;
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "options",
                     "rule %s: must apply at the places that are asked for, does not at '%s'",
                     r->rules[one->row].name, kiln_symbol_text(cx, one->name));
  }
  return KILN_OK;
}

bool kiln_rewriting_print(const kiln_rewriting *r, kiln_text *out) {
  bool any = false;
  for (int i = 0; r->rules[i].name; i++) {
    if (r->counts[i] == 0) continue;
    kiln_text_printf(out, "%s%s %d", any ? ", " : "", r->rules[i].name, r->counts[i]);
    any = true;
  }
  return any;
}

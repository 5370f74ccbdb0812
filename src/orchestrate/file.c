// Orchestrations as text.
#include "orchestrate/orchestrate.h"

#include <stdlib.h>
#include <string.h>

static void print_names(kiln_ctx *cx, const kiln_program *p, const kiln_group *g, kiln_text *out) {
  for (int i = 0; i < g->n_stmts; i++)
    kiln_text_printf(out, " %s",
                     kiln_symbol_text(cx, p->tensors.data[p->stmts.data[g->stmts[i]]->out]->name));
}

void kiln_orchestration_print(kiln_ctx *cx, const kiln_program *p, const kiln_orchestration *o,
                              kiln_text *out) {
  kiln_text_add(out, "# a kernel a line: its statements; * after those whose results are stored "
                     "in addition to the last one's\n");
  for (int i = 0; i < o->kernels.n; i++) {
    const kiln_orchestrated_kernel *k = &o->kernels.data[i];
    for (int s = 0; s < k->group.n_stmts; s++)
      kiln_text_printf(out, "%s%d%s", s ? " " : "", k->group.stmts[s],
                       k->group.stored >> s & 1 ? "*" : "");
    kiln_text_add(out, "  #");
    if (k->ns > 0) kiln_text_printf(out, " %s%.2f us:", k->is_known ? "" : "about ", k->ns * 1e-3);
    print_names(cx, p, &k->group, out);
    kiln_text_add(out, "\n");
  }
}

// --- reading ---

enum { MAX_QUOTED = 32 }; // characters

typedef struct reading {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_prims *prims;
  const kiln_machine *m;
  int line;
  kiln_bits *stored; // prims
} reading;

static kiln_status wrong(const reading *r, const char *what) {
  return KILN_FAIL(r->cx->diag, KILN_BAD_INPUT,
                   kiln_arena_printf(&r->cx->perm, "orchestration: line %d", r->line), "%s", what);
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Parses the statement number at *io, before |end|.
//
// gives: *out, *io after it
static kiln_status read_stmt(reading *r, const char **io, const char *end, int *out) {
  const char *at = *io;
  const bool is_number = *at >= '0' && *at <= '9';
  char *behind = NULL;
  const long n = is_number ? strtol(at, &behind, 10) : -1;
  const char *rest = behind && *behind == '*' ? behind + 1 : behind;
  const bool is_whole = rest && (rest >= end || is_space(*rest) || *rest == '#');
  if (!is_whole || n >= r->p->stmts.n || !r->p->stmts.data[n]) {
    int width = 0;
    while (at + width < end && width < MAX_QUOTED && !is_space(at[width]) && at[width] != '#')
      width++;
    return wrong(r, kiln_arena_printf(&r->cx->perm,
                                      "statement: must be the number of one, got \"%.*s\"", width,
                                      at));
  }
  *out = (int)n;
  *io = behind;
  return KILN_OK;
}

// The statements of a line, in ascending order without repetition.
static kiln_status read_stmts(reading *r, const char *at, const char *end, kiln_group *out) {
  const int most = KILN_MAX_MEMBERS - 1; // statements plus additional results
  int n_stored = 0;
  out->stmts = KILN_NEW_ARRAY(&r->cx->perm, int, KILN_MAX_MEMBERS);
  for (;;) {
    int n = 0;
    while (at < end && is_space(*at)) at++;
    if (at >= end || *at == '#') break;
    KILN_TRY(read_stmt(r, &at, end, &n));
    if (out->n_stmts && n <= out->stmts[out->n_stmts - 1])
      return wrong(r, kiln_arena_printf(&r->cx->perm, "statements: must ascend, got %d after %d", n,
                                        out->stmts[out->n_stmts - 1]));
    if (*at == '*') out->stored |= (uint64_t)1 << out->n_stmts, at++, n_stored++;
    if (out->n_stmts + 1 + n_stored > most)
      return wrong(r,
                   kiln_arena_printf(&r->cx->perm,
                                     "kernel: must have at most %d statements and results besides "
                                     "the last, got more",
                                     most));
    out->stmts[out->n_stmts++] = n;
  }
  if (out->n_stmts) out->stored &= ~((uint64_t)1 << (out->n_stmts - 1)); // always stored
  return KILN_OK;
}

static bool has_stmt(const kiln_group *g, int stmt) {
  for (int i = 0; i < g->n_stmts; i++)
    if (g->stmts[i] == stmt) return true;
  return false;
}

// Whether |g| has all statements of prim |i|.
static kiln_status check_prim(const reading *r, const kiln_group *g, int i) {
  const kiln_prim *one = &r->prims->prims[i];
  for (int k = 0; k < one->n; k++)
    if (!has_stmt(g, one->stmts[k]))
      return wrong(r, kiln_arena_printf(&r->cx->perm,
                                        "statement %d: must be with %d, with which it is one prim",
                                        one->stmts[one->n - 1], one->stmts[k]));
  if (one->is_alone && g->n_stmts > one->n)
    return wrong(r, kiln_arena_printf(&r->cx->perm, "statement %d: must be in a kernel of its own",
                                      one->stmts[one->n - 1]));
  return KILN_OK;
}

// The kernel may read results stored by earlier kernels only; all it computes must contribute to
// its last result.
static kiln_status check_group(reading *r, const kiln_group *g) {
  kiln_bits *prims = kiln_bits_make(&r->cx->scratch, r->prims->n),
            *takes = kiln_bits_make(&r->cx->scratch, r->prims->n);
  int last = -1;
  for (int i = 0; i < g->n_stmts; i++) {
    const int prim = r->prims->prim_of[g->stmts[i]];
    KILN_TRY(check_prim(r, g, prim));
    kiln_bits_set(prims, prim);
    kiln_bits_add(takes, r->prims->graph->reads[prim]);
    last = prim;
  }
  kiln_bits_remove(takes, prims);
  for (int i = 0; i < r->prims->n; i++)
    if (r->prims->prims[i].is_free && kiln_bits_is_subset(r->prims->prims[i].pieces, r->stored))
      kiln_bits_set(r->stored, i);
  kiln_bits_remove(takes, r->stored);
  const int missing = kiln_bits_next(takes, 0);
  if (missing >= 0)
    return wrong(
        r, kiln_arena_printf(&r->cx->perm,
                             "kernel: its operands must be stored before, got no result of %d",
                             r->prims->prims[missing].stmts[r->prims->prims[missing].n - 1]));
  for (int i = kiln_bits_next(prims, 0); i >= 0; i = kiln_bits_next(prims, i + 1)) {
    const kiln_prim *one = &r->prims->prims[i];
    const int root = one->stmts[one->n - 1];
    bool stores = i == last;
    for (int k = 0; k < g->n_stmts; k++) stores |= g->stmts[k] == root && (g->stored >> k & 1);
    if (i != last && !kiln_bits_meet(r->prims->graph->readers[i], prims))
      return wrong(r,
                   kiln_arena_printf(&r->cx->perm,
                                     "statement %d: must be read by another of the kernel", root));
    if (i == last && one->is_free)
      return wrong(r, kiln_arena_printf(
                          &r->cx->perm,
                          "statement %d: must not be the last, as its pieces are stored in place",
                          root));
    if (i != last && stores && (one->is_pinned || one->is_free))
      return wrong(r, kiln_arena_printf(&r->cx->perm,
                                        "statement %d: must be the last, as a part of a tensor",
                                        root));
    if (!stores) continue;
    if (kiln_bits_has(r->stored, i))
      return wrong(r, kiln_arena_printf(&r->cx->perm,
                                        "statement %d: must be stored by one kernel, got another",
                                        root));
    kiln_bits_set(r->stored, i);
  }
  return KILN_OK;
}

static kiln_status check_needed(reading *r) {
  for (int i = 0; i < r->prims->n; i++)
    if (r->prims->prims[i].is_needed && !r->prims->prims[i].is_free && !kiln_bits_has(r->stored, i))
      return wrong(
          r, kiln_arena_printf(&r->cx->perm,
                               "result of statement %d: must be stored, got no kernel that does",
                               r->prims->prims[i].stmts[r->prims->prims[i].n - 1]));
  return KILN_OK;
}

kiln_status kiln_orchestration_read(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                    const kiln_prims *prims, const kiln_machine *m,
                                    const char *text, kiln_orchestration *out) {
  reading r = {
      .cx = cx, .p = p, .prims = prims, .m = m, .stored = kiln_bits_make(&cx->scratch, prims->n)};
  for (const char *at = text; *at;) {
    const char *end = at + strcspn(at, "\n");
    kiln_orchestrated_kernel one = {0};
    r.line++;
    KILN_TRY(read_stmts(&r, at, end, &one.group));
    if (one.group.n_stmts) {
      KILN_TRY(check_group(&r, &one.group));
      one.group.kind =
          kiln_tile_kind_of(cx, p, facts, m, one.group.n_stmts, one.group.stmts, one.group.stored);
      KILN_VEC_PUSH(&cx->perm, &out->kernels, one);
    }
    at = *end ? end + 1 : end;
  }
  return check_needed(&r);
}

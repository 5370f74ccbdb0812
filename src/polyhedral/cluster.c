// A cluster being scheduled: its statements, the order of its band, attempts at primitives.
#include "polyhedral/cluster.h"

// --- attempts: a refused primitive is a result, without a message ---

kiln_poly_snapshot kiln_poly_take(const kiln_poly_maker *k) {
  return (kiln_poly_snapshot){*k->w.s.loops, k->w.s.script.n, k->n_fused};
}

void kiln_poly_restore(kiln_poly_maker *k, const kiln_poly_snapshot *at) {
  *k->w.s.loops = at->loops;
  k->n_fused = at->n_fused;
  k->w.s.script.n = at->script;
  if (k->w.s.script.data) k->w.s.script.data[at->script] = 0;
}

kiln_status kiln_poly_attempt(kiln_poly_maker *k,
                              kiln_status (*step)(kiln_poly_maker *k, void *argument),
                              void *argument, const char **out_why) {
  kiln_ctx *cx = k->w.cx;
  const kiln_poly_snapshot before = kiln_poly_take(k);
  kiln_aside aside;
  KILN_TRY(kiln_aside_begin(cx, &aside));
  const kiln_status st = step(k, argument);
  const char *why = kiln_diag_count(aside.mine) ? kiln_diag_message(aside.mine, 0) : "failed";
  *out_why = st == KILN_OK ? NULL : kiln_arena_strdup(&cx->perm, why);
  if (st != KILN_OK && st != KILN_BAD_INPUT) kiln_diag_fail(aside.outer, st, "schedule", "%s", why);
  kiln_aside_end(&aside);
  if (st != KILN_OK) kiln_poly_restore(k, &before);
  return st == KILN_BAD_INPUT ? KILN_OK : st;
}

// --- the cluster ---

bool kiln_poly_has_stmt(const kiln_poly_maker *k, const kiln_poly_cluster *c, int stmt) {
  for (int i = 0; i < c->n; i++)
    if (k->plan.nests[c->members[i]].stmt == stmt) return true;
  return false;
}

bool kiln_poly_is_inside(const kiln_poly_maker *k, const kiln_poly_cluster *c,
                         const kiln_tensor *t) {
  const int begin = k->users.first[t->id], end = k->users.first[t->id + 1];
  bool inside = begin < end && !kiln_tensor_is_param(k->w.p, t->id);
  for (int i = begin; i < end; i++) inside &= kiln_poly_has_stmt(k, c, k->users.users[i]);
  return inside;
}

static bool is_one_stmt(const kiln_poly_job *j) {
  for (int i = 1; i < j->n_kept; i++)
    if (j->kept[i]->stmt != j->kept[0]->stmt) return false;
  return j->n_kept > 0;
}

bool kiln_poly_is_shifted(const kiln_poly_job *j) {
  for (int i = 1; i < j->n_kept; i++)
    for (int b = 0; b < j->c->n_band; b++)
      if (j->kept[i]->shift[b] != j->kept[0]->shift[b]) return true;
  return false;
}

// Orders the permutable band: parallel loops first, then the order of the last nest, which is that
// of memory. If all statements but one are computed at the tile, that statement's space loops are
// parallel.
static void order_band(const kiln_poly_maker *k, kiln_poly_job *j) {
  const kiln_poly_nest *last = j->kept[j->n_kept - 1];
  const int n_space = k->w.p->stmts.data[last->stmt]->n_space;
  int key[KILN_MAX_BAND];
  for (int b = 0; b < j->c->n_band; b++) {
    const int dim = last->order[b];
    const bool is_free =
        is_one_stmt(j) ? dim < n_space : j->c->coincident[b] || kiln_poly_is_shifted(j);
    int at = b;
    for (; at > 0 && key[at - 1] > dim + (is_free ? 0 : KILN_MAX_BAND); at--) {
      key[at] = key[at - 1];
      j->band[at] = j->band[at - 1];
      j->free[at] = j->free[at - 1];
    }
    key[at] = dim + (is_free ? 0 : KILN_MAX_BAND);
    j->band[at] = b;
    j->free[at] = is_free;
  }
}

kiln_poly_job kiln_poly_job_of(const kiln_poly_maker *k, const kiln_poly_cluster *c) {
  kiln_poly_job j = {.c = c};
  for (int i = 0; i < c->n; i++) {
    const kiln_poly_nest *n = &k->plan.nests[c->members[i]];
    const kiln_tensor *t = k->w.p->tensors.data[k->w.p->stmts.data[n->stmt]->out];
    // a temporary after a result that stays in memory would prevent merging, so it stays in memory,
    // too
    if (!kiln_poly_is_inside(k, c, t) || j.n_kept > 0) j.kept[j.n_kept++] = n;
    else if (j.n_temps == 0 || j.temps[j.n_temps - 1] != t->id) j.temps[j.n_temps++] = t->id;
  }
  if (j.n_kept > 0) order_band(k, &j);
  return j;
}

void kiln_poly_comment(kiln_poly_maker *k, const kiln_poly_job *j, const char *what,
                       const char *why) {
  kiln_text_add(k->comments, "#");
  for (int i = 0; i < j->c->n; i++) {
    const kiln_poly_nest *n = &k->plan.nests[j->c->members[i]];
    if (n->is_init) continue;
    const kiln_tensor *t = k->w.p->tensors.data[k->w.p->stmts.data[n->stmt]->out];
    kiln_text_printf(k->comments, " %s", kiln_symbol_text(k->w.cx, t->name));
  }
  kiln_text_printf(k->comments, ": %s%s\n", what, why ? why : "");
}

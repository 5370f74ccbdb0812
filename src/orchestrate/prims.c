// From statements to prims; cutting the graph where it is narrow.
#include "orchestrate/prims.h"

static void add_prim(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts, kiln_prims *out,
                     int last) {
  const kiln_stmt *root = p->stmts.data[last];
  const kiln_tensor *t = p->tensors.data[root->out];
  const kiln_fact fact = kiln_fact_of(facts, t->id);
  kiln_prim *one = &out->prims[out->n];
  one->stmts = KILN_NEW_ARRAY(&cx->scratch, int, fact.kernel ? last + 1 : 1);
  for (int i = fact.kernel ? 0 : last; i <= last; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    if (!s || (fact.kernel && kiln_fact_of(facts, s->out).kernel != fact.kernel)) continue;
    one->stmts[one->n++] = i;
    out->prim_of[i] = out->n;
  }
  one->is_free = fact.assembled;
  one->is_alone =
      fact.assembled || fact.kernel || root->init || root->guard || !kiln_stmt_is_plain(cx, root);
  one->is_pinned = t->inside != NULL;
  one->is_needed = t->role != KILN_TEMP;
  out->n++;
}

static bool is_last_of_kernel(const kiln_program *p, const kiln_facts *facts, int i) {
  const int kernel = kiln_fact_of(facts, p->stmts.data[i]->out).kernel;
  for (int k = i + 1; kernel && k < p->stmts.n; k++)
    if (p->stmts.data[k] && kiln_fact_of(facts, p->stmts.data[k]->out).kernel == kernel)
      return false;
  return true;
}

static void add_pieces(kiln_ctx *cx, const kiln_program *p, kiln_prims *io) {
  for (int i = 0; i < io->n; i++) {
    const int container = p->stmts.data[io->prims[i].stmts[io->prims[i].n - 1]]->out;
    kiln_bits *pieces = kiln_bits_make(&cx->scratch, io->n);
    for (int t = 0; t < p->tensors.n; t++) {
      const kiln_tensor *x = p->tensors.data[t];
      if (x->inside && x->inside->id == container && x->def >= 0)
        kiln_bits_set(pieces, io->prim_of[x->def]);
    }
    io->prims[i].pieces = pieces;
  }
}

kiln_prims kiln_prims_of(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts) {
  kiln_prims out = {.prims = KILN_NEW_ARRAY(&cx->scratch, kiln_prim, p->stmts.n),
                    .prim_of = KILN_NEW_ARRAY(&cx->scratch, int, p->stmts.n)};
  for (int i = 0; i < p->stmts.n; i++) out.prim_of[i] = -1;
  for (int i = 0; i < p->stmts.n; i++)
    if (p->stmts.data[i] && is_last_of_kernel(p, facts, i)) add_prim(cx, p, facts, &out, i);
  out.graph = kiln_prim_graph_make(&cx->scratch, out.n);
  for (int i = 0; i < p->stmts.n; i++) {
    if (!p->stmts.data[i]) continue;
    const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, p->stmts.data[i]);
    for (int k = 0; k < loads.n; k++) {
      const int def = p->tensors.data[loads.data[k]->u.tensor]->def;
      if (def >= 0 && out.prim_of[def] != out.prim_of[i])
        kiln_prim_graph_edge(out.graph, out.prim_of[def], out.prim_of[i]);
    }
  }
  add_pieces(cx, p, &out);
  for (int i = 0; i < out.n; i++)
    if (out.prims[i].is_needed) kiln_bits_set(out.graph->needed, i);
  return out;
}

kiln_prim_graph *kiln_prims_part(kiln_ctx *cx, const kiln_prims *prims, int begin, int end) {
  kiln_prim_graph *g = kiln_prim_graph_make(&cx->scratch, end - begin);
  for (int i = begin; i < end; i++) {
    const kiln_bits *readers = prims->graph->readers[i];
    if (prims->prims[i].is_needed) kiln_bits_set(g->needed, i - begin);
    for (int r = kiln_bits_next(readers, 0); r >= 0; r = kiln_bits_next(readers, r + 1))
      if (r < end) kiln_prim_graph_edge(g, i - begin, r - begin);
      else kiln_bits_set(g->needed, i - begin);
  }
  for (int i = end; i < prims->n; i++) { // pieces of later containers
    const kiln_bits *pieces = prims->prims[i].pieces;
    for (int k = kiln_bits_next(pieces, begin); k >= 0 && k < end;
         k = kiln_bits_next(pieces, k + 1))
      kiln_bits_set(g->needed, k - begin);
  }
  return g;
}

// --- cuts ---

// width[c]: number of results before cut |c| with readers after it.
static int *widths_of(kiln_ctx *cx, const kiln_prims *prims) {
  int *width = KILN_NEW_ARRAY(&cx->scratch, int, prims->n + 1);
  for (int i = 0; i < prims->n; i++) {
    const kiln_bits *readers = prims->graph->readers[i];
    int last = i;
    for (int r = kiln_bits_next(readers, 0); r >= 0; r = kiln_bits_next(readers, r + 1)) last = r;
    for (int c = i + 1; c <= last; c++) width[c]++;
  }
  return width;
}

static bool *kept_places(kiln_ctx *cx, int n, int n_kept, const kiln_bits *const *kept) {
  bool *inside = KILN_NEW_ARRAY(&cx->scratch, bool, n + 1);
  for (int k = 0; k < n_kept; k++) {
    const int first = kiln_bits_next(kept[k], 0);
    for (int i = first, before = first; i >= 0; before = i, i = kiln_bits_next(kept[k], i + 1))
      for (int c = before + 1; c <= i; c++) inside[c] = true;
  }
  return inside;
}

kiln_cuts kiln_prims_cut(kiln_ctx *cx, const kiln_prims *prims, const uint64_t *key, int n_kept,
                         const kiln_bits *const *kept, int least, int most) {
  kiln_cuts out = {0, KILN_NEW_ARRAY(&cx->scratch, int, prims->n + 2)};
  const int *width = widths_of(cx, prims);
  const bool *inside = kept_places(cx, prims->n, n_kept, kept);
  for (int at = 0; at < prims->n;) {
    int best = -1;
    for (int c = at + least; c < prims->n && (c <= at + most || best < 0); c++)
      if (!inside[c] &&
          (best < 0 || width[c] < width[best] || (width[c] == width[best] && key[c] < key[best])))
        best = c;
    at = best < 0 || prims->n - at <= most ? prims->n : best;
    out.cuts[++out.n] = at;
  }
  return out;
}

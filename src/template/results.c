// Multi-output kernels: values that are reused inside and stored as well are computed in their
// place in memory, block by block, in the loops of the last result.
#include "template/lower.h"

bool kiln_lowering_stores(const kiln_lowering *w, const kiln_stmt *s) {
  return s != w->root && w->p->tensors.data[s->out]->role == KILN_OUTPUT;
}

bool kiln_lowering_stores_several(const kiln_lowering *w) {
  for (int i = 0; i < w->p->stmts.n; i++)
    if (kiln_lowering_stores(w, w->p->stmts.data[i])) return true;
  return false;
}

bool kiln_lowering_stores_along(const kiln_lowering *w, int d) {
  for (int i = 0; i < w->p->stmts.n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    if (!kiln_lowering_stores(w, s)) continue;
    const int own = kiln_stmt_space_dim(s, w->root->dims[d].name);
    if (own < 0 || kiln_lowering_extent(s, own) != kiln_lowering_extent(w->root, d)) return false;
  }
  return true;
}

// Puts the loops over the dims of |b| around the others of the nest that stores |s|, which are
// inner[dim of s].
static kiln_status cut(kiln_lowering *w, const kiln_stmt *s, const kiln_blocks *b,
                       kiln_symbol *outer, kiln_symbol *inner) {
  const char *z = kiln_symbol_text(w->cx, w->p->tensors.data[s->out]->name);
  kiln_symbol path[2 * KILN_MAX_RANK];
  int n = b->n;
  for (int d = 0; d < s->n_space; d++) inner[d] = kiln_lowering_loop(w, z, "", s->dims[d].name);
  for (int k = 0; k < b->n; k++) {
    const int d = kiln_stmt_space_dim(s, w->root->dims[b->dims[k]].name);
    const kiln_symbol loop = inner[d];
    path[k] = outer[k] = b->sizes[k] ? kiln_lowering_name(w, "b", loop) : loop;
    inner[d] = b->sizes[k] ? kiln_lowering_name(w, "t", loop) : 0;
    if (b->sizes[k])
      KILN_TRY(kiln_split(&w->s, loop, b->sizes[k], KILN_TAIL_GUARD, outer[k], inner[d]));
  }
  for (int d = 0; d < s->n_space; d++)
    if (inner[d]) path[n++] = inner[d];
  return n > 1 ? kiln_reorder(&w->s, n, path) : KILN_OK;
}

kiln_status kiln_lowering_join_result(kiln_lowering *w, const kiln_stmt *s, const kiln_blocks *b,
                                      kiln_symbol *out_inner) {
  kiln_symbol outer[KILN_MAX_RANK];
  KILN_TRY(cut(w, s, b, outer, out_inner));
  for (int k = 0; k < b->n; k++) KILN_TRY(kiln_merge_into(&w->s, outer[k], b->loops[k], 0));
  return KILN_OK;
}

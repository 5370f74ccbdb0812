// parallel, vectorize, unroll: how a loop runs. tidy: removal of loops of extent 1.
#include "schedule/legality.h"
#include "schedule/nest.h"

static kiln_status begin(kiln_schedule *s, const char *primitive, kiln_symbol loop, kiln_edit *e,
                         kiln_loop **out) {
  int64_t extent = 0;
  *e = kiln_edit_begin(s, primitive, loop);
  KILN_TRY(kiln_edit_loop(e, loop, out));
  KILN_TRY(kiln_edit_serial(e, *out));
  return kiln_edit_extent(e, *out, &extent);
}

kiln_status kiln_parallel(kiln_schedule *s, kiln_symbol loop) {
  kiln_edit e;
  kiln_loop *l = NULL, *path[KILN_MAX_DEPTH];
  KILN_TRY(begin(s, "parallel", loop, &e, &l));
  const int depth = kiln_nest_path(e.l, l, path);
  // loops of extent 1 around it are harmless if they contain nothing else
  for (int i = 0; i + 1 < depth; i++) {
    if (!kiln_loop_is_unit(path[i]) || path[i]->body->next)
      return kiln_refuse(
          &e, "loop must be the outermost of its nest, got %s around it: reorder or fuse",
          path[i]->kind == KILN_LOOP_FOR ? kiln_edit_text(&e, path[i]->var) : "a statement");
    kiln_loop **slot = kiln_nest_slot(e.l, path[i]);
    path[i]->body->next = path[i]->next;
    *slot = path[i]->body;
  }
  KILN_TRY(kiln_check_parallel(&e, l));
  l->how = KILN_PARALLEL;
  return kiln_edit_commit(&e, "parallel %s", kiln_edit_word(&e, loop));
}

// A vector loop may contain statements and conditions only; loops of extent 1 in it are removed.
static kiln_status flatten(kiln_edit *e, kiln_loop **slot) {
  while (*slot) {
    kiln_loop *l = *slot;
    if (kiln_loop_is_unit(l)) {
      *kiln_nest_end(&l->body) = l->next;
      *slot = l->body;
      continue;
    }
    if (l->kind == KILN_LOOP_FOR)
      return kiln_refuse(e, "loop must be innermost, got loop %s in it: reorder",
                         kiln_edit_text(e, l->var));
    if (l->kind == KILN_LOOP_ALLOC)
      return kiln_refuse(e, "loop must hold no buffer, got %s in it",
                         kiln_edit_text(e, e->l->buffers.data[l->buffer]->name));
    KILN_TRY(flatten(e, &l->body));
    slot = &l->next;
  }
  return KILN_OK;
}

kiln_status kiln_vectorize(kiln_schedule *s, kiln_symbol loop) {
  kiln_edit e;
  kiln_loop *l = NULL;
  KILN_TRY(begin(s, "vectorize", loop, &e, &l));
  KILN_TRY(flatten(&e, &l->body));
  KILN_TRY(kiln_check_vectorize(&e, l));
  l->how = KILN_VECTORIZED;
  return kiln_edit_commit(&e, "vectorize %s", kiln_edit_word(&e, loop));
}

kiln_status kiln_unroll(kiln_schedule *s, kiln_symbol loop) {
  kiln_edit e;
  kiln_loop *l = NULL;
  KILN_TRY(begin(s, "unroll", loop, &e, &l));
  l->how = KILN_UNROLLED;
  return kiln_edit_commit(&e, "unroll %s", kiln_edit_word(&e, loop));
}

static void drop_units(kiln_loop **slot) {
  while (*slot) {
    kiln_loop *l = *slot;
    if (kiln_loop_is_unit(l) && l->how != KILN_PARALLEL) {
      *kiln_nest_end(&l->body) = l->next;
      *slot = l->body;
      continue;
    }
    drop_units(&l->body);
    slot = &l->next;
  }
}

kiln_status kiln_tidy(kiln_schedule *s) {
  kiln_edit e = kiln_edit_begin(s, "tidy", 0);
  kiln_nest_tidy(&e); // variables of loops that run once become 0
  drop_units(&e.l->body);
  return kiln_edit_commit(&e, "tidy");
}

// bind: maps a loop to blocks or threads. cluster: thread block clusters. fuse_horizontally:
// horizontal fusion. warp_specialize: producer and consumer warps. annotate: notes, which change
// nothing unless they are one of these three's, which the emitter checks again.
#include "analysis/uses.h"
#include "schedule/legality.h"
#include "schedule/nest.h"

kiln_status kiln_bind(kiln_schedule *s, kiln_symbol loop, kiln_how axis) {
  kiln_edit e = kiln_edit_begin(s, "bind", loop);
  kiln_loop *l = NULL;
  int64_t extent = 0;
  KILN_TRY(kiln_edit_loop(&e, loop, &l));
  KILN_TRY(kiln_edit_serial(&e, l));
  KILN_TRY(kiln_edit_extent(&e, l, &extent));
  if (axis < KILN_BLOCK_X || axis > KILN_THREAD_Z)
    return kiln_refuse(&e, "axis must be block.x to thread.z, got %s", kiln_how_text(axis));
  KILN_TRY(kiln_check_parallel(&e, l));
  l->how = axis;
  return kiln_edit_commit(&e, "bind %s %s", kiln_edit_word(&e, loop), kiln_how_text(axis));
}

kiln_status kiln_annotate(kiln_schedule *s, kiln_symbol loop, kiln_symbol key, kiln_symbol value) {
  kiln_edit e = kiln_edit_begin(s, "annotate", loop);
  kiln_loop *l = NULL;
  KILN_TRY(kiln_edit_loop(&e, loop, &l));
  if (!key) return kiln_refuse(&e, "key must be a name, got an empty one");
  kiln_loop_annotate(e.cx, l, kiln_edit_text(&e, key), kiln_edit_text(&e, value));
  return kiln_edit_commit(&e, "annotate %s %s %s", kiln_edit_word(&e, loop),
                          kiln_edit_word(&e, key), kiln_edit_word(&e, value));
}

kiln_status kiln_cluster(kiln_schedule *s, kiln_symbol loop, int64_t blocks) {
  kiln_edit e = kiln_edit_begin(s, "cluster", loop);
  kiln_loop *l = NULL;
  int64_t extent = 0;
  KILN_TRY(kiln_edit_loop(&e, loop, &l));
  KILN_TRY(kiln_edit_extent(&e, l, &extent));
  if (l->how != KILN_BLOCK_X)
    return kiln_refuse(&e, "loop must be bound to block.x, got a %s one", kiln_how_text(l->how));
  if (blocks < 2 || !kiln_cluster_is(blocks))
    return kiln_refuse(&e, "blocks must be 2, 4 or 8, got %" PRId64, blocks);
  if (extent % blocks)
    return kiln_refuse(&e, "blocks must divide the loop's extent %" PRId64 ", got %" PRId64, extent,
                       blocks);
  kiln_loop_annotate(e.cx, l, KILN_CLUSTER_NOTE,
                     kiln_arena_printf(&e.cx->scratch, "%" PRId64, blocks));
  return kiln_edit_commit(&e, "cluster %s %" PRId64, kiln_edit_word(&e, loop), blocks);
}

kiln_status kiln_warp_specialize(kiln_schedule *s, kiln_symbol loop, int64_t consumers) {
  kiln_edit e = kiln_edit_begin(s, "warp_specialize", loop);
  kiln_loop *l = NULL;
  KILN_TRY(kiln_edit_loop(&e, loop, &l));
  if (l->how != KILN_SERIAL && l->how != KILN_BLOCK_X)
    return kiln_refuse(&e, "loop must be serial or bound to block.x, got one that is %s",
                       kiln_how_text(l->how));
  const int64_t most = l->how == KILN_SERIAL ? KILN_MAX_CONSUMERS : 1;
  if (consumers < 1 || consumers > most)
    return kiln_refuse(&e, "consumers must be in [1, %" PRId64 "] of a %s loop, got %" PRId64, most,
                       kiln_how_text(l->how), consumers);
  if (l->how == KILN_SERIAL) KILN_TRY(kiln_check_parallel(&e, l));
  kiln_loop_annotate(e.cx, l, KILN_WARP_SPECIALIZE_NOTE,
                     kiln_arena_printf(&e.cx->scratch, "%" PRId64, consumers));
  return kiln_edit_commit(&e, "warp_specialize %s %" PRId64, kiln_edit_word(&e, loop), consumers);
}

// The nest before |nest|; NULL if it is the first.
static const kiln_loop *before(const kiln_loops *p, const kiln_loop *nest) {
  const kiln_loop *l = p->body;
  while (l && l->next != nest) l = l->next;
  return l;
}

kiln_status kiln_fuse_horizontally(kiln_schedule *s, kiln_symbol loop) {
  kiln_edit e = kiln_edit_begin(s, "fuse_horizontally", loop);
  kiln_loop *l = NULL;
  KILN_TRY(kiln_edit_loop(&e, loop, &l));
  const kiln_loop *first = before(e.l, l);
  if (!first) return kiln_refuse(&e, "loop must be the outermost of a nest behind another one");
  const kiln_buffer *met = kiln_nests_conflict(e.cx, e.l, first, l);
  if (met)
    return kiln_refuse(&e,
                       "nests must need nothing of each other, got buffer %s, which both touch and "
                       "one writes",
                       kiln_edit_text(&e, met->name));
  kiln_loop_annotate(e.cx, l, KILN_HORIZONTAL_FUSION_NOTE, "1");
  return kiln_edit_commit(&e, "fuse_horizontally %s", kiln_edit_word(&e, loop));
}

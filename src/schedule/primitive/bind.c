// bind: a loop's iterations become blocks or threads. cluster: blocks that run together.
// fuse_horizontally: nests that do. warp_specialize: a producer warp and consumers. annotate:
// notes, which change nothing but for those three's, that the emitter checks again.
#include "analysis/uses.h"
#include "schedule/legality.h"
#include "schedule/nest.h"

// --- what bound loops need of the loops and buffers around them ---

enum { IN_BLOCK = 1, IN_THREAD = 2 }; // bound loops between an ALLOC and a use

static kiln_status check_axis(const kiln_edit *e, const kiln_loop *l, unsigned hows) {
  if (hows >> l->how & 1)
    return kiln_refuse(e, "an axis must be bound once in a nest, got %s again at loop %s",
                       kiln_how_text(l->how), kiln_edit_text(e, l->var));
  if (kiln_how_is_block(l->how) && hows >> KILN_THREAD_X)
    return kiln_refuse(e, "a block loop must lie outside of thread loops, got %s inside one",
                       kiln_edit_text(e, l->var));
  return KILN_OK;
}

static kiln_status check_uses(kiln_edit *e, kiln_loop *l, const uint8_t *inside) {
  const kiln_accesses all = kiln_accesses_of(e->cx, e->l, l, false, -1);
  for (int i = 0; i < all.n; i++) {
    const kiln_buffer *b = e->l->buffers.data[all.data[i].buffer];
    const uint8_t bound = inside[b->id];
    const char *name = kiln_edit_text(e, b->name);
    if (b->scope == KILN_SCOPE_SHARED && (bound & IN_BLOCK))
      return kiln_refuse(e,
                         "memory that a block shares must lie inside of the block loops, got "
                         "buffer %s outside of one: compute it further inside",
                         name);
    if (kiln_scope_is_private(b->scope) && (bound & IN_BLOCK))
      return kiln_refuse(e,
                         "memory of one thread must lie inside of the block loops, got buffer %s "
                         "outside of one: compute it further inside",
                         name);
  }
  return KILN_OK;
}

static kiln_status check_alloc(const kiln_edit *e, int buffer, unsigned hows) {
  const kiln_buffer *b = e->l->buffers.data[buffer];
  if (b->scope != KILN_SCOPE_SHARED || hows >> KILN_THREAD_X == 0) return KILN_OK;
  return kiln_refuse(
      e,
      "memory that threads share must lie outside of the thread loops, got buffer %s "
      "inside one: keep it local",
      kiln_edit_text(e, b->name));
}

static kiln_status check_list(kiln_edit *e, kiln_loop *first, unsigned hows, uint8_t *inside) {
  for (kiln_loop *l = first; l; l = l->next) {
    unsigned under = hows;
    uint8_t *known = inside;
    if (l->kind == KILN_LOOP_FOR && l->how >= KILN_BLOCK_X) {
      KILN_TRY(check_axis(e, l, hows));
      under |= 1u << l->how;
      known = KILN_NEW_ARRAY(&e->cx->perm, uint8_t, e->l->buffers.n);
      for (int b = 0; b < e->l->buffers.n; b++)
        known[b] = inside[b] | (kiln_how_is_block(l->how) ? IN_BLOCK : IN_THREAD);
    }
    if (l->kind == KILN_LOOP_ALLOC) KILN_TRY(check_alloc(e, l->buffer, hows));
    if (l->kind == KILN_LOOP_ALLOC) known[l->buffer] = 0;
    if (l->body) KILN_TRY(check_list(e, l->body, under, known));
    else if (hows) KILN_TRY(check_uses(e, l, known));
  }
  return KILN_OK;
}

static bool has_bound(const kiln_loop *l) {
  for (; l; l = l->next)
    if ((l->kind == KILN_LOOP_FOR && l->how >= KILN_BLOCK_X) || has_bound(l->body)) return true;
  return false;
}

kiln_status kiln_check_bound(kiln_edit *e) {
  if (!has_bound(e->l->body)) return KILN_OK;
  uint8_t *inside = KILN_NEW_ARRAY(&e->cx->perm, uint8_t, e->l->buffers.n);
  return check_list(e, e->l->body, 0, inside);
}

// --- the primitives ---

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

// The nest in front of |nest|; NULL: there is none.
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
  const kiln_buffer *met = kiln_nests_meet(e.cx, e.l, first, l);
  if (met)
    return kiln_refuse(&e,
                       "nests must need nothing of each other, got buffer %s, which both touch and "
                       "one writes",
                       kiln_edit_text(&e, met->name));
  kiln_loop_annotate(e.cx, l, KILN_HORIZONTAL_FUSION_NOTE, "1");
  return kiln_edit_commit(&e, "fuse_horizontally %s", kiln_edit_word(&e, loop));
}

// Warp specialization (sm_90a): a producer warp of a block issues all TMA copies, the consumer warp
// groups compute.
//
//     producer                          consumers
//       for tiles, steps:                 for tiles, steps:
//         wait empty[s]                     wait full[s]
//         copy the step to stage s          multiply stage s
//                                           arrive empty[s]
//                                         store the tile
//
// The producer runs the same loops, ahead by as many steps as there are stages, also into the
// block's next tile: that arrives while results are stored. Consumers wait for each other only
// where they share other memory.
//
// Ping-pong: two consumers take the iterations of the tile loop in turns, so that one stores while
// the other multiplies. Copies come in the order of the tiles, so a consumer starts a tile when the
// other one has started the last step of its own: before that, a full stage might be the other's.
// The parity of a stage's barrier follows from how often it was used, the other's tiles included.
//
// The producer warp is the first of a row of threads behind the consumers'.
#include "target/gpu/nest.h"

#include <string.h>

static int64_t consumers_of(const kiln_gpu_nest *n, const kiln_loop *l) {
  const char *consumers = kiln_loop_note(n->cx, l, KILN_WARP_SPECIALIZE_NOTE);
  return consumers ? strtoll(consumers, NULL, 10) : 0;
}

static void find(kiln_gpu_nest *n, const kiln_loop *l) {
  for (; l && !n->specialized.consumers; l = l->next) {
    const int64_t consumers = l->kind == KILN_LOOP_FOR ? consumers_of(n, l) : 0;
    if (consumers) n->specialized.consumers = consumers;
    if (consumers && kiln_gpu_block_axis(l) < 0) n->specialized.tile_loop = l;
    find(n, l->body);
  }
}

kiln_status kiln_gpu_nest_specialize(kiln_gpu_nest *n) {
  enum { FIRST_CAPABILITY = 90 };
  kiln_warp_specialization *c = &n->specialized;
  *c = (kiln_warp_specialization){0};
  if (n->m->gpu.capability < FIRST_CAPABILITY) return KILN_OK;
  find(n, n->l->body);
  const int64_t most = c->tile_loop ? KILN_MAX_CONSUMERS : 1;
  const bool has_pingpong = !c->tile_loop || (c->tile_loop->how == KILN_SERIAL &&
                                              kiln_expr_is_int(c->tile_loop->extent, NULL));
  if (!c->consumers || (c->consumers > 0 && c->consumers <= most && has_pingpong)) return KILN_OK;
  return kiln_gpu_refuse(n,
                         "warp specialization must have 1 to %d consumers of a serial loop of "
                         "constant extent, or 1 of "
                         "blocks, got %" PRId64 " of %s",
                         KILN_MAX_CONSUMERS, c->consumers,
                         c->tile_loop ? kiln_symbol_text(n->cx, c->tile_loop->var) : "blocks");
}

void kiln_specialized_block(const kiln_gpu_nest *n, int64_t *out_block) {
  memcpy(out_block, n->block, sizeof n->block);
  if (n->specialized.consumers) out_block[1] = n->block[1] * n->specialized.consumers + 1;
}

bool kiln_gpu_has_tma(const kiln_loop *l) {
  if (l->kind == KILN_LOOP_INSTR) return l->instr->is_tma;
  for (l = l->body; l; l = l->next)
    if (kiln_gpu_has_tma(l)) return true;
  return false;
}

uint32_t kiln_specialized_parity(const kiln_gpu_nest *n) {
  uint32_t flips = 0;
  for (int64_t i = 0; i < n->specialized.steps; i++)
    flips ^= UINT32_C(1) << i % n->specialized.stages;
  return flips;
}

// --- checks ---

bool kiln_gpu_is_in(const kiln_loop *list, const kiln_loop *node) {
  for (; list; list = list->next)
    if (list == node || kiln_gpu_is_in(list->body, node)) return true;
  return false;
}

static bool has_stored(const kiln_dependence_access *t) {
  return t->write && !(t->node->kind == KILN_LOOP_STORE && t->node->combiner != KILN_COMBINE_NONE);
}

// A tensor that is written in the nest and read, or added to, which would have to wait for an
// earlier tile; NULL: none is.
static const kiln_buffer *find_carried(const kiln_gpu_nest *n) {
  const kiln_dependence_accesses all = kiln_gpu_touches(n, -1);
  for (int i = 0; i < all.n; i++)
    for (int k = 0; k < all.n; k++) {
      const kiln_buffer *b = n->l->buffers.data[all.data[i].buffer];
      if (all.data[k].buffer == b->id && all.data[i].write && !has_stored(&all.data[k]) &&
          kiln_scope_is_argument(b->scope))
        return b;
    }
  return NULL;
}

// A buffer that lives from one tile to the next; NULL: there is none.
static const kiln_buffer *find_kept(const kiln_gpu_nest *n, const kiln_loop *list) {
  for (const kiln_loop *l = list; l && l != n->specialized.tile_loop; l = l->next) {
    if (l->kind == KILN_LOOP_ALLOC && kiln_gpu_is_in(l->body, n->specialized.tile_loop))
      return n->l->buffers.data[l->buffer];
    const kiln_buffer *inner = find_kept(n, l->body);
    if (inner) return inner;
  }
  return NULL;
}

// Whether the condition around the tile loop's body, if there is one, holds for its first
// iterations alone.
static bool ends_once(const kiln_gpu_nest *n) {
  kiln_ctx *cx = n->cx;
  const kiln_loop *l = n->specialized.tile_loop->body;
  const kiln_symbol v = n->specialized.tile_loop->var;
  while (l && l->kind == KILN_LOOP_ALLOC && !l->next) l = l->body;
  if (!l || l->kind != KILN_LOOP_IF || !kiln_expr_uses(l->cond, v)) return true;
  if (l->cond->kind != KILN_EXPR_LT || kiln_expr_uses(l->cond->args[1], v)) return false;
  const kiln_expr *next = kiln_add(cx, kiln_var(cx, v), kiln_int(cx, 1)),
                  *at = kiln_expr_substitute(cx, l->cond->args[0], 1, &v, &next);
  int64_t more = -1;
  kiln_ranges none;
  kiln_ranges_init(&none, &cx->scratch);
  return kiln_expr_is_int(kiln_simplify(cx, kiln_sub(cx, at, l->cond->args[0]), &none), &more) &&
         more >= 0;
}

// Whether the loop over the steps runs once in |list|.
static bool runs_once_in(const kiln_gpu_nest *n, const kiln_loop *list) {
  int64_t extent = 1;
  for (const kiln_loop *l = list; l; l = l->next) {
    if (l == n->specialized.loop) return true;
    if (!kiln_gpu_is_in(l->body, n->specialized.loop)) continue;
    const bool is_once =
        l->kind != KILN_LOOP_FOR || (kiln_expr_is_int(l->extent, &extent) && extent == 1);
    return is_once && runs_once_in(n, l->body);
  }
  return false;
}

static kiln_status check_tile_loop(const kiln_gpu_nest *n) {
  const kiln_buffer *kept = find_kept(n, n->l->body);
  const char *loop = kiln_symbol_text(n->cx, n->specialized.tile_loop->var);
  if (!runs_once_in(n, n->specialized.tile_loop->body))
    return kiln_gpu_refuse(n, "tile loop %s must run the loop that uses TMA copies once", loop);
  if (kept)
    return kiln_gpu_refuse(n, "iterations of tile loop %s must not share buffer %s", loop,
                           kiln_symbol_text(n->cx, kept->name));
  return ends_once(n) ? KILN_OK
                      : kiln_gpu_refuse(n,
                                        "a condition in tile loop %s must leave out its last "
                                        "iterations and no others",
                                        loop);
}

kiln_status kiln_specialized_check(const kiln_gpu_nest *n, bool has_one_phase) {
  const kiln_warp_specialization *c = &n->specialized;
  int64_t block[3];
  kiln_specialized_block(n, block);
  if (!c->consumers) return KILN_OK;
  const bool fills = c->loop && c->stages > 0 && c->fills_together && n->cluster == 1 &&
                     n->block[2] == 1 && n->block[0] % n->m->gpu.warp == 0;
  if (!fills)
    return kiln_gpu_refuse(n, "a producer warp must have one loop, whose TMA copies fill as many "
                              "stages, as far ahead, for each buffer, and blocks without clusters");
  const kiln_buffer *carried = find_carried(n);
  if (carried)
    return kiln_gpu_refuse(
        n, "a nest with a producer warp must not read and write the same buffer, got %s",
        kiln_symbol_text(n->cx, carried->name));
  if (!c->phase || !has_one_phase)
    return kiln_gpu_refuse(n,
                           "the consumers' loop must hold one loop of warp groups' instructions, "
                           "of all threads, and 3 "
                           "stages at least, got loop %s",
                           kiln_symbol_text(n->cx, c->loop->var));
  if (block[0] * block[1] > n->m->gpu.max_threads)
    return kiln_gpu_refuse(
        n, "threads of a block must be %d at most, got %" PRId64 "x%" PRId64 " with the producer's",
        n->m->gpu.max_threads, block[0], block[1]);
  return c->tile_loop ? check_tile_loop(n) : KILN_OK;
}

// --- text ---

// Named barriers: of a consumer's threads, and ordered (ping-pong) ones around its steps, at each
// of which one arrives and the other waits.
// source: PTX ISA, "bar"
static const char TEXT[] =
    "static __device__ __forceinline__ void kiln_barrier_sync(int barrier, int threads) {\n"
    "  asm volatile(\"bar.sync %0, %1;\" :: \"r\"(barrier), \"r\"(threads) : \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_barrier_arrive(int barrier, int threads) {\n"
    "  asm volatile(\"bar.arrive %0, %1;\" :: \"r\"(barrier), \"r\"(threads) : \"memory\");\n"
    "}\n";
const char *kiln_specialized_text(void) { return TEXT; }

// Warp specialization: a producer warp of a block does nothing but issue TMA copies, the consumer
// warp groups compute (sm_90a). It goes through the same loops as the others, waits in front of
// each box until its slot was used, and so is ahead of them by as many steps as there are slots,
// also into the block's next tile: that arrives while results are stored. The others wait for
// boxes, and say of each slot when they have used it (ahead.c); they wait for each other only
// where they share other memory.
//
// Where there are two teams, they take the iterations of the loop over tiles in turns: one stores
// while the other multiplies. The boxes come in the order of the tiles, so a team begins with its
// tile's when the other one has begun with its last step: until then what it waits for might be the
// other's. What a slot's barrier counts is known from how often it was used, the other team's tiles
// included.
//
// The asking warp is the first of a row of threads behind those of the teams.
#include "target/gpu/nest.h"

#include <string.h>

static int64_t teams_of(const kiln_gpu_nest *n, const kiln_loop *l) {
  const char *teams = kiln_loop_note(n->cx, l, KILN_CREW_NOTE);
  return teams ? strtoll(teams, NULL, 10) : 0;
}

static void find(kiln_gpu_nest *n, const kiln_loop *l) {
  for (; l && !n->crew.teams; l = l->next) {
    const int64_t teams = l->kind == KILN_LOOP_FOR ? teams_of(n, l) : 0;
    if (teams) n->crew.teams = teams;
    if (teams && kiln_gpu_block_axis(l) < 0) n->crew.turns = l;
    find(n, l->body);
  }
}

kiln_status kiln_gpu_nest_crew(kiln_gpu_nest *n) {
  enum { FIRST_CAPABILITY = 90 };
  kiln_crew *c = &n->crew;
  *c = (kiln_crew){0};
  if (n->m->gpu.capability < FIRST_CAPABILITY) return KILN_OK;
  find(n, n->l->body);
  const int64_t most = c->turns ? KILN_MAX_TEAMS : 1;
  const bool has_turns =
      !c->turns || (c->turns->how == KILN_SERIAL && kiln_expr_is_int(c->turns->extent, NULL));
  if (!c->teams || (c->teams > 0 && c->teams <= most && has_turns)) return KILN_OK;
  return kiln_gpu_refuse(
      n,
      "a crew must have 1 to %d teams of a serial loop of constant extent, or 1 of "
      "blocks, got %" PRId64 " of %s",
      KILN_MAX_TEAMS, c->teams, c->turns ? kiln_symbol_text(n->cx, c->turns->var) : "blocks");
}

void kiln_crew_block(const kiln_gpu_nest *n, int64_t *out_block) {
  memcpy(out_block, n->block, sizeof n->block);
  if (n->crew.teams) out_block[1] = n->block[1] * n->crew.teams + 1;
}

bool kiln_gpu_has_boxes(const kiln_loop *l) {
  if (l->kind == KILN_LOOP_INSTR) return l->instr->is_box;
  for (l = l->body; l; l = l->next)
    if (kiln_gpu_has_boxes(l)) return true;
  return false;
}

uint32_t kiln_crew_flips(const kiln_gpu_nest *n) {
  uint32_t flips = 0;
  for (int64_t i = 0; i < n->crew.steps; i++) flips ^= UINT32_C(1) << i % n->crew.slots;
  return flips;
}

// --- what a crew needs ---

bool kiln_gpu_is_in(const kiln_loop *list, const kiln_loop *node) {
  for (; list; list = list->next)
    if (list == node || kiln_gpu_is_in(list->body, node)) return true;
  return false;
}

static bool has_stored(const kiln_touch *t) {
  return t->write && !(t->node->kind == KILN_LOOP_STORE && t->node->combiner != KILN_COMBINE_NONE);
}

// A tensor that is written in the nest and read, or added to, which would have to wait for an
// earlier tile; NULL: none is.
static const kiln_buffer *find_carried(const kiln_gpu_nest *n) {
  const kiln_touches all = kiln_gpu_touches(n, -1);
  for (int i = 0; i < all.n; i++)
    for (int k = 0; k < all.n; k++) {
      const kiln_buffer *b = n->l->buffers.data[all.data[i].buffer];
      if (all.data[k].buffer == b->id && all.data[i].write && !has_stored(&all.data[k]) &&
          kiln_scope_is_argument(b->scope))
        return b;
    }
  return NULL;
}

// What a block keeps from one tile to the next; NULL: nothing.
static const kiln_buffer *find_kept(const kiln_gpu_nest *n, const kiln_loop *list) {
  for (const kiln_loop *l = list; l && l != n->crew.turns; l = l->next) {
    if (l->kind == KILN_LOOP_ALLOC && kiln_gpu_is_in(l->body, n->crew.turns))
      return n->l->buffers.data[l->buffer];
    const kiln_buffer *inner = find_kept(n, l->body);
    if (inner) return inner;
  }
  return NULL;
}

// Whether the condition around what the loop |turns| runs, if there is one, holds of its first
// iterations alone.
static bool ends_once(const kiln_gpu_nest *n) {
  kiln_ctx *cx = n->cx;
  const kiln_loop *l = n->crew.turns->body;
  const kiln_symbol v = n->crew.turns->var;
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

// Whether the loop that uses boxes runs once in what |list| runs.
static bool runs_once_in(const kiln_gpu_nest *n, const kiln_loop *list) {
  int64_t extent = 1;
  for (const kiln_loop *l = list; l; l = l->next) {
    if (l == n->crew.loop) return true;
    if (!kiln_gpu_is_in(l->body, n->crew.loop)) continue;
    const bool is_once =
        l->kind != KILN_LOOP_FOR || (kiln_expr_is_int(l->extent, &extent) && extent == 1);
    return is_once && runs_once_in(n, l->body);
  }
  return false;
}

static kiln_status check_turns(const kiln_gpu_nest *n) {
  const kiln_buffer *kept = find_kept(n, n->l->body);
  const char *loop = kiln_symbol_text(n->cx, n->crew.turns->var);
  if (!runs_once_in(n, n->crew.turns->body))
    return kiln_gpu_refuse(n, "loop %s of the crew must run the loop that uses boxes once", loop);
  if (kept)
    return kiln_gpu_refuse(n, "iterations of loop %s must not share buffer %s for a crew", loop,
                           kiln_symbol_text(n->cx, kept->name));
  return ends_once(n) ? KILN_OK
                      : kiln_gpu_refuse(n,
                                        "a condition in loop %s of a crew must leave out its last "
                                        "iterations and no others",
                                        loop);
}

// Whether each buffer's boxes are asked for as many steps ahead as the others'.
static bool are_together(const kiln_crew *c) {
  for (int i = 0; i < c->fills.n; i++)
    for (int k = 0; k < i; k++)
      if (kiln_gpu_is_in(c->loop->body, c->fills.data[i].node) &&
          kiln_gpu_is_in(c->loop->body, c->fills.data[k].node) &&
          c->fills.data[i].slot != c->fills.data[k].slot)
        return false;
  return true;
}

kiln_status kiln_crew_check(const kiln_gpu_nest *n) {
  const kiln_crew *c = &n->crew;
  int64_t block[3];
  kiln_crew_block(n, block);
  if (!c->teams) return KILN_OK;
  bool fills = c->loop && c->slots > 0 && are_together(c) && n->cluster == 1 && n->block[2] == 1 &&
               n->block[0] % n->m->gpu.warp == 0;
  for (int i = 0; i < n->boxes.n; i++) {
    bool has = false;
    for (int k = 0; k < c->fills.n; k++) has |= c->fills.data[k].buffer == n->boxes.data[i].buffer;
    fills &= has;
  }
  if (!fills)
    return kiln_gpu_refuse(n,
                           "a crew must have one loop whose boxes are filled as far ahead, to as "
                           "many slots, for each buffer, and blocks without clusters");
  const kiln_buffer *carried = find_carried(n);
  if (carried)
    return kiln_gpu_refuse(n, "a nest with a crew must not read and write the same buffer, got %s",
                           kiln_symbol_text(n->cx, carried->name));
  if (!c->phase || n->drains.n != 1 || n->groups.n)
    return kiln_gpu_refuse(
        n,
        "the loop of a crew that uses boxes must hold one loop of warp "
        "groups' instructions, of all threads, and 3 slots at least, got loop %s",
        kiln_symbol_text(n->cx, c->loop->var));
  if (block[0] * block[1] > n->m->gpu.max_threads)
    return kiln_gpu_refuse(n,
                           "threads of a block must be %d at most, got %" PRId64 "x%" PRId64
                           " with those of a crew",
                           n->m->gpu.max_threads, block[0], block[1]);
  return c->turns ? check_turns(n) : KILN_OK;
}

// --- text ---

// The begin and the end of a team's steps: the named barriers behind those of the teams are passed
// by one and waited at by the other, in turns.
// source: PTX ISA, "bar", "mbarrier"
static const char TEXT[] =
    "static __device__ __forceinline__ void kiln_used(uint64_t *free, int i, int slots) {\n"
    "  if (i >= 0 && threadIdx.x % 32 == 0)\n"
    "    asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0];\" :: \"r\"(kiln_place(free + i % "
    "slots)) : \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_team_wait(int team, int threads) {\n"
    "  asm volatile(\"bar.sync %0, %1;\" :: \"r\"(1 + team), \"r\"(threads) : \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_turn_wait(int team, int threads) {\n"
    "  asm volatile(\"bar.sync %0, %1;\" :: \"r\"(3 + team), \"r\"(2 * threads) : \"memory\");\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_turn_pass(int team, int threads) {\n"
    "  asm volatile(\"bar.arrive %0, %1;\" :: \"r\"(4 - team), \"r\"(2 * threads) : \"memory\");\n"
    "}\n";
const char *kiln_crew_text(void) { return TEXT; }

// Horizontal fusion: independent nests share a kernel, each with thread blocks of its own, where
// one alone would leave multiprocessors idle. Blocks of one nest cannot wait for those of another,
// so dependent nests are launched apart.
//
// source: Li et al. (HFuse), CGO 2022; Ma et al. (Rammer), OSDI 2020
#include "target/gpu/nest.h"

#include "analysis/uses.h"
#include "support/integer.h"
#include "target/instr.h"

#include <stdlib.h>

// --- resources ---

typedef struct extents {
  int64_t block[3], thread[3];
  bool is_fixed;
} extents;

// A parallel loop is outermost, and becomes one of blocks where there is none.
static void see_loops(const kiln_loop *l, bool is_outer, extents *io) {
  for (; l; l = l->next, is_outer = false) {
    const bool becomes_blocks = is_outer && l->kind == KILN_LOOP_FOR && l->how == KILN_PARALLEL &&
                                !kiln_gpu_has_blocks(l->body);
    const int block = becomes_blocks ? 0 : kiln_gpu_block_axis(l), thread = kiln_gpu_thread_axis(l);
    if (block >= 0 || thread >= 0) {
      int64_t extent = 0, *size = block >= 0 ? &io->block[block] : &io->thread[thread];
      io->is_fixed &= kiln_expr_is_int(l->extent, &extent) && extent > 0;
      if (extent > *size) *size = extent;
    }
    see_loops(l->body, false, io);
  }
}

// Bytes that are live at once: of shared buffers, or else of a thread's part of buffers that are
// distributed over |threads|.
static int64_t alive(const kiln_loops *p, const kiln_loop *l, bool shared, int64_t threads) {
  int64_t most = 0;
  for (; l; l = l->next) {
    const int64_t extent = kiln_gpu_thread_axis(l) >= 0 ? kiln_expr_int_or(l->extent, 1) : 1,
                  each = extent > 0 ? threads / extent : threads;
    int64_t bytes = alive(p, l->body, shared, each > 0 ? each : 1);
    if (l->kind == KILN_LOOP_ALLOC) {
      const kiln_buffer *b = p->buffers.data[l->buffer];
      const int64_t all = kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype);
      if ((b->scope == KILN_SCOPE_SHARED) == shared) bytes += shared ? all : all / threads;
    }
    if (bytes > most) most = bytes;
  }
  return most;
}

// The number of tensor maps, one for each tensor and size of its tiles; at least one for its
// windows.
static int count_maps(kiln_ctx *cx, const kiln_loop *l, kiln_map *io_seen) {
  int n = 0;
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_INSTR && l->instr->is_tma) {
      const uint64_t instr = kiln_symbol_of(cx, l->instr->name),
                     key = (uint64_t)l->operands[1]->u.tensor << 32 | instr;
      n += !kiln_map_find(io_seen, key);
      kiln_map_put(io_seen, key, 1);
    }
    n += count_maps(cx, l->body, io_seen);
  }
  return n;
}

static bool has_windows(const kiln_loop *l) {
  for (; l; l = l->next)
    if ((l->kind == KILN_LOOP_INSTR && l->instr->is_im2col) || has_windows(l->body)) return true;
  return false;
}

static const char *find_note(kiln_ctx *cx, const kiln_loop *l, const char *key) {
  const char *value = NULL;
  for (; l && !value; l = l->next) {
    value = kiln_loop_note(cx, l, key);
    if (!value) value = find_note(cx, l->body, key);
  }
  return value;
}

kiln_gpu_demand kiln_gpu_demand_of(kiln_ctx *cx, const kiln_loops *l, const kiln_loop *nest) {
  enum { REGISTERS = 48, WORD = 4 }; // of a thread besides its buffers, estimated; bytes of one
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  extents x = {.block = {1, 1, 1}, .thread = {1, 1, 1}, .is_fixed = true};
  kiln_loop one = *nest;
  kiln_map seen;
  one.next = NULL;
  kiln_map_init(&seen, &cx->scratch);
  see_loops(&one, true, &x);
  const char *consumers = find_note(cx, &one, KILN_WARP_SPECIALIZE_NOTE);
  const bool staggers = find_note(cx, &one, KILN_STAGGER_NOTE) != NULL;
  const int64_t threads = x.thread[0] * x.thread[1] * x.thread[2],
                asks = consumers ? x.thread[0] : 0; // the producer warp's row of threads
  const kiln_gpu_demand out = {.can_share = nest->kind == KILN_LOOP_FOR && x.is_fixed &&
                                            !staggers && !find_note(cx, &one, KILN_CLUSTER_NOTE),
                               .blocks = x.block[0] * x.block[1] * x.block[2],
                               .threads =
                                   threads * (consumers ? strtoll(consumers, NULL, 10) : 1) + asks,
                               .shared_bytes = alive(l, &one, true, threads),
                               .registers = REGISTERS + alive(l, &one, false, threads) / WORD,
                               .n_maps = count_maps(cx, &one, &seen),
                               .has_windows = has_windows(&one)};
  kiln_arena_rewind(&cx->scratch, mark);
  return out;
}

void kiln_gpu_demand_add(const kiln_gpu_demand *d, kiln_gpu_demand *io) {
  io->can_share &= d->can_share;
  io->blocks += d->blocks;
  io->n_maps += d->n_maps;
  if (d->threads > io->threads) io->threads = d->threads;
  if (d->shared_bytes > io->shared_bytes) io->shared_bytes = d->shared_bytes;
  if (d->registers > io->registers) io->registers = d->registers;
}

int64_t kiln_gpu_room(const kiln_machine *m, const kiln_gpu_demand *d) {
  enum { MOST = 16 }; // resident blocks of any GPU
  const kiln_gpu_block one = {d->threads, d->registers, d->shared_bytes};
  return m->device->n_units * kiln_min_i64(MOST, kiln_gpu_resident(&m->gpu, &one));
}

// --- which share a launch ---

// Whether |nest| may share the launch of those from |first| on, whose demand is |io_all|.
static bool joins(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *kernel,
                  const kiln_loop *first, const kiln_loop *nest, kiln_gpu_demand *io_all) {
  if (!m->target->dialect->shares_launches || nest->kind != KILN_LOOP_FOR ||
      !kiln_loop_note(cx, nest, KILN_HORIZONTAL_FUSION_NOTE))
    return false;
  const kiln_gpu_demand d = kiln_gpu_demand_of(cx, kernel, nest);
  kiln_gpu_demand_add(&d, io_all);
  bool may = io_all->can_share && io_all->blocks <= INT32_MAX && io_all->n_maps <= KILN_MAX_MAPS;
  for (const kiln_loop *l = first; may && l != nest; l = l->next)
    may = !kiln_nests_conflict(cx, kernel, l, nest);
  return may;
}

int kiln_gpu_fused_nests(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *kernel,
                         const kiln_loop *nest) {
  int n = 1;
  if (!nest->next) return n;
  kiln_gpu_demand all = kiln_gpu_demand_of(cx, kernel, nest);
  for (const kiln_loop *l = nest->next; l && joins(cx, m, kernel, nest, l, &all); l = l->next) n++;
  return n;
}

int kiln_gpu_launches(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *kernel) {
  int n = 0;
  for (const kiln_loop *l = kernel->body; l; n++)
    for (int k = kiln_gpu_fused_nests(cx, m, kernel, l); k > 0; k--) l = l->next;
  return n;
}

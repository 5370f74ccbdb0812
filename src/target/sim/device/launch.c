// Launches: memory, the blocks of a cluster at once, one cluster after the other.
#include "target/sim/device/state.h"

#include "support/integer.h"

#include <string.h>

static bool is_written(const kiln_loop *l, int buffer) {
  for (; l; l = l->next)
    if ((l->kind == KILN_LOOP_STORE && l->buffer == buffer) || is_written(l->body, buffer))
      return true;
  return false;
}

// To what buffers are aligned, as they are allocated (target/gpu/shared_memory.c).
static int64_t alignment_of(const kiln_buffer *b) {
  enum { ALIGNMENT = 128 };
  if (b->dtype == KILN_U64) return sizeof(uint64_t);
  return b->is_swizzled ? SIM_SWIZZLE_PERIOD : ALIGNMENT;
}

// Buffers that are allocated in a role of |n| groups: each group has its own, contiguously.
static void find_own(sim_device *d, const kiln_loop *l, int64_t n) {
  for (; l; l = l->next) {
    int64_t groups = n;
    if (kiln_device_is(l, KILN_DEVICE_ROLE_CONSUMERS))
      (void)kiln_expr_is_int(l->operands[2], &groups);
    sim_memory *c = l->kind == KILN_LOOP_ALLOC ? &d->cells[l->buffer] : NULL;
    if (c && n > 1 && c->b->scope == KILN_SCOPE_SHARED) {
      c->own_bytes = kiln_round_up(c->elems * kiln_dtype_bytes(c->b->dtype), alignment_of(c->b));
      if (c->offset + n * c->own_bytes > d->arena_bytes)
        d->arena_bytes = c->offset + n * c->own_bytes;
    }
    find_own(d, l->body, groups);
  }
}

static void make_cells(sim_device *d, void *const *args) {
  kiln_arena *a = &d->m.cx->scratch;
  int next = 0;
  d->cells = KILN_NEW_ARRAY(a, sim_memory, d->l->buffers.n);
  d->mbarrier_at = KILN_NEW_ARRAY(a, int, d->l->buffers.n);
  for (int i = 0; i < d->l->buffers.n; i++) {
    sim_memory *c = &d->cells[i];
    c->b = d->l->buffers.data[i];
    c->elems = kiln_buffer_elems(c->b);
    const int64_t bytes = c->elems * kiln_dtype_bytes(c->b->dtype);
    if (kiln_scope_is_argument(c->b->scope)) c->data = args[next++];
    if (c->b->scope == KILN_SCOPE_SHARED) {
      const bool is_mbarrier = c->b->dtype == KILN_U64;
      c->offset = d->launch->offsets && !is_mbarrier
                      ? d->launch->offsets[i]
                      : kiln_round_up(d->arena_bytes, alignment_of(c->b));
      if (c->offset < 0) c->offset = 0;
      if (c->offset + bytes > d->arena_bytes) d->arena_bytes = c->offset + bytes;
      d->mbarrier_at[i] = d->max_mbarriers;
      if (is_mbarrier) d->max_mbarriers += (int)c->elems;
    }
  }
}

static bool has_copies(const kiln_loop *l) {
  for (; l; l = l->next)
    if (kiln_device_is(l, KILN_DEVICE_COPY_ASYNC) || has_copies(l->body)) return true;
  return false;
}

// Bytes of the least element in the arena.
static int unit_of(const sim_device *d) {
  enum { WIDEST = 8 };
  int unit = WIDEST;
  for (int i = 0; i < d->l->buffers.n; i++) {
    const kiln_buffer *b = d->l->buffers.data[i];
    const int bytes = kiln_dtype_bytes(b->dtype);
    if (b->scope == KILN_SCOPE_SHARED && bytes < unit) unit = bytes;
  }
  return unit;
}

static void make_clocks(sim_device *d) {
  const int n = d->n_threads, groups = (n + SIM_MAX_GROUP - 1) / SIM_MAX_GROUP;
  d->has_copies = has_copies(d->l->body);
  d->first_group = d->has_copies ? 2 * n : n;
  d->first_mbarrier = d->first_group + groups;
  sim_clocks_make(d->m.cx, &d->clocks, n, d->first_mbarrier - n + d->n_blocks * d->max_mbarriers);
}

// Memory of threads and blocks, and the access history of places: of a cluster after the other.
static void make_memory(sim_device *d) {
  kiln_arena *a = &d->m.cx->scratch;
  const int n = d->n_threads, blocks = d->n_blocks;
  for (int i = 0; i < d->l->buffers.n; i++) {
    sim_memory *c = &d->cells[i];
    if (sim_is_private(c)) {
      c->data = kiln_arena_zalloc(a, (size_t)(n * c->elems * kiln_dtype_bytes(c->b->dtype)) + 8);
      c->own = KILN_NEW_ARRAY(a, sim_own, n * c->elems);
    } else if (kiln_scope_is_argument(c->b->scope) && is_written(d->l->body, i))
      c->places = KILN_NEW_ARRAY(a, sim_place, c->elems);
  }
  d->unit = unit_of(d);
  d->arena_bytes = (d->arena_bytes + d->unit - 1) / d->unit * d->unit;
  d->arena = KILN_NEW_ARRAY(a, sim_place, blocks * d->arena_bytes / d->unit);
  d->shared = kiln_arena_zalloc(a, (size_t)(blocks * d->arena_bytes) + 8);
  d->vars = KILN_NEW_ARRAY(a, int64_t, (int64_t)n * d->m.n_vars);
}

// The begin of a cluster.
static void reset(sim_device *d) {
  kiln_arena *a = &d->m.cx->scratch;
  const int n = d->n_threads, blocks = d->n_blocks;
  d->run++;
  d->group = KILN_NEW_ARRAY(a, uint8_t, n);
  d->on = KILN_NEW_ARRAY(a, uint8_t, n);
  memset(d->on, 1, (size_t)n);
  d->commits = KILN_NEW_ARRAY(a, int32_t, n);
  d->fences = KILN_NEW_ARRAY(a, int32_t, n);
  d->group_commits = KILN_NEW_ARRAY(a, int32_t, n);
  d->group_fences = KILN_NEW_ARRAY(a, int32_t, n);
  sim_clocks_reset(&d->clocks);
  d->mbarriers = KILN_NEW_ARRAY(a, sim_mbarrier, blocks * d->max_mbarriers + 1);
  for (int i = 0; i < blocks * d->max_mbarriers; i++) {
    d->mbarriers[i].sofar = KILN_NEW_ARRAY(a, int32_t, d->clocks.n);
    d->mbarriers[i].known = KILN_NEW_ARRAY(a, int32_t, d->clocks.n);
  }
  d->named = KILN_NEW_ARRAY(a, sim_named_barrier, blocks * SIM_MAX_NAMED);
  for (int i = 0; i < blocks * SIM_MAX_NAMED; i++)
    d->named[i].known = KILN_NEW_ARRAY(a, int32_t, d->clocks.n);
  d->flights.n = d->flights.cap = 0;
  d->flights.data = NULL;
}

static void make_warps(sim_device *d) {
  const int warp_size = d->launch->warp;
  const int per_block = (d->n_block_threads + warp_size - 1) / warp_size;
  d->n_warps = per_block * d->n_blocks;
  d->warps = KILN_NEW_ARRAY(&d->m.cx->scratch, sim_warp, d->n_warps);
  for (int i = 0; i < d->n_warps; i++) {
    sim_warp *w = &d->warps[i];
    const int at = i % per_block * warp_size, rest = d->n_block_threads - at;
    w->block = i / per_block;
    w->first = w->block * d->n_block_threads + at;
    w->n = rest < warp_size ? rest : warp_size;
    w->frames[w->depth++] = (sim_frame){.next = d->l->body, .extent = 1};
  }
}

static void run_blocks(sim_device *d) {
  const int64_t *g = d->launch->grid;
  for (int64_t z = 0; z < g[2]; z++)
    for (int64_t y = 0; y < g[1]; y++)
      for (int64_t x = 0; x < g[0] && d->m.status == KILN_OK; x += d->n_blocks) {
        const kiln_mark mark = kiln_arena_mark(&d->m.cx->scratch);
        d->block0[0] = x, d->block0[1] = y, d->block0[2] = z;
        reset(d);
        make_warps(d);
        sim_run_cluster(d);
        kiln_arena_rewind(&d->m.cx->scratch, mark);
      }
}

static uint32_t n_vars(const kiln_loop *l, uint32_t most) {
  for (; l; l = l->next) {
    if (l->var >= most) most = l->var + 1;
    if (l->kind == KILN_LOOP_INSTR) most = n_vars(l->instr->loops->body, most);
    most = n_vars(l->body, most);
  }
  return most;
}

kiln_status kiln_sim_run_device(kiln_ctx *cx, const kiln_loops *l, const kiln_sim_launch *launch,
                                void *const *args, kiln_sim_traffic *io_traffic) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  sim_device d = {
      .m = {.cx = cx, .l = l, .load = sim_load}, .l = l, .launch = launch, .traffic = io_traffic};
  d.m.place =
      kiln_arena_printf(&cx->scratch, "sim: device loops of %s", kiln_symbol_text(cx, l->name));
  d.m.n_vars = n_vars(l->body, 0);
  for (int k = 0; k < KILN_MAX_TILE_RANK; k++) {
    d.tile_vars[k] = kiln_tile_var(cx, k);
    if (d.tile_vars[k] >= d.m.n_vars) d.m.n_vars = d.tile_vars[k] + 1;
  }
  d.n_blocks = launch->cluster > 1 ? (int)launch->cluster : 1;
  d.n_block_threads = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
  d.n_threads = d.n_block_threads * d.n_blocks;
  kiln_map_init(&d.fragments, &cx->perm);
  kiln_map_init(&d.m.rows, &cx->perm);
  kiln_map_init(&d.sizes, &cx->perm);
  make_cells(&d, args);
  find_own(&d, l->body, 1);
  make_memory(&d);
  sim_make_tiles(&d, l->body);
  make_clocks(&d);
  d.map_is_right = KILN_NEW_ARRAY(&cx->scratch, bool, launch->n_maps);
  sim_check_registers(&d);
  run_blocks(&d);
  kiln_arena_rewind(&cx->scratch, mark);
  return d.m.status;
}

// The simulator's meter: bytes by buffer and scope, and set-associative caches with exact LRU.
#include "support/integer.h"
#include "target/sim/eval.h"

#include <stdio.h>
#include <string.h>

// A line in a cache; the lines of a set are a list, most recently used first.
typedef struct node {
  int64_t line; // its address / line_bytes
  int32_t next, previous;
  bool dirty;
} node;

typedef struct cache {
  const kiln_sim_level *level;
  kiln_sim_flow *flow;
  int64_t n_sets, set_mask; // the mask is -1 where the number is no power of two
  int32_t ways;
  node *nodes;                  // [n_sets * ways]
  int32_t *first, *last, *used; // [n_sets]
  int32_t *where;               // by line: its node; -1: not cached
} cache;

struct sim_meter {
  kiln_sim_traffic *out;
  int n;
  cache *caches;
  int64_t *bases; // [buffers]
};

enum { NOWHERE = -1, PAGE = 4096, STACK = 64 };

static bool is_cached(const kiln_buffer *b) { return b->scope != KILN_SCOPE_REGISTER; }
static bool is_on_stack(const kiln_buffer *b) {
  return b->scope == KILN_SCOPE_SHARED || b->scope == KILN_SCOPE_LOCAL;
}

static void cache_init(kiln_arena *a, const kiln_sim_level *level, int64_t memory_bytes,
                       kiln_sim_flow *flow, cache *c) {
  int64_t lines = level->capacity_bytes / level->line_bytes;
  const int64_t in_memory = memory_bytes / level->line_bytes + 1;
  const bool is_full = level->ways == 0;
  if (is_full && lines > in_memory) lines = in_memory; // no more can be cached
  if (lines < 1) lines = 1;
  c->level = level;
  c->flow = flow;
  c->ways = (int32_t)(is_full ? lines : level->ways);
  c->n_sets = is_full || lines < c->ways ? 1 : lines / c->ways;
  c->set_mask = (c->n_sets & (c->n_sets - 1)) == 0 ? c->n_sets - 1 : -1;
  c->nodes = KILN_NEW_ARRAY(a, node, c->n_sets * c->ways);
  c->first = KILN_NEW_ARRAY(a, int32_t, c->n_sets);
  c->last = KILN_NEW_ARRAY(a, int32_t, c->n_sets);
  c->used = KILN_NEW_ARRAY(a, int32_t, c->n_sets);
  c->where = KILN_NEW_ARRAY(a, int32_t, in_memory);
  memset(c->first, 0xff, (size_t)c->n_sets * sizeof *c->first); // NOWHERE
  memset(c->last, 0xff, (size_t)c->n_sets * sizeof *c->last);
  memset(c->where, 0xff, (size_t)in_memory * sizeof *c->where);
}

static void unlink_node(cache *c, int64_t set, int32_t n) {
  const node *x = &c->nodes[n];
  if (x->previous == NOWHERE) c->first[set] = x->next;
  else c->nodes[x->previous].next = x->next;
  if (x->next == NOWHERE) c->last[set] = x->previous;
  else c->nodes[x->next].previous = x->previous;
}

static void push_front(cache *c, int64_t set, int32_t n) {
  node *x = &c->nodes[n];
  x->previous = NOWHERE;
  x->next = c->first[set];
  if (x->next == NOWHERE) c->last[set] = n;
  else c->nodes[x->next].previous = n;
  c->first[set] = n;
}

static void touch(sim_meter *t, int level, int64_t address, int64_t bytes, bool is_write);

static void write_back(sim_meter *t, int level, node *x) {
  cache *c = &t->caches[level];
  if (!x->dirty) return;
  x->dirty = false;
  c->flow->written_bytes += c->level->line_bytes;
  touch(t, level + 1, x->line * c->level->line_bytes, c->level->line_bytes, true);
}

// A node for a new line of |set|: a free one, or the least recently used, which is evicted.
static int32_t take_node(sim_meter *t, int level, int64_t set) {
  cache *c = &t->caches[level];
  if (c->used[set] < c->ways) return (int32_t)(set * c->ways + c->used[set]++);
  const int32_t n = c->last[set];
  write_back(t, level, &c->nodes[n]);
  c->where[c->nodes[n].line] = NOWHERE;
  unlink_node(c, set, n);
  return n;
}

static void touch_line(sim_meter *t, int level, int64_t line, bool is_write) {
  cache *c = &t->caches[level];
  const int64_t set = c->set_mask >= 0 ? line & c->set_mask : line % c->n_sets;
  int32_t n = c->where[line];
  if (n != NOWHERE && n == c->first[set]) {
    c->nodes[n].dirty |= is_write;
    return;
  }
  if (n != NOWHERE) {
    unlink_node(c, set, n);
  } else {
    n = take_node(t, level, set);
    c->nodes[n] = (node){.line = line};
    c->where[line] = n;
    if (!is_write || c->level->stores_fetch) {
      c->flow->read_bytes += c->level->line_bytes;
      touch(t, level + 1, line * c->level->line_bytes, c->level->line_bytes, false);
    }
  }
  c->nodes[n].dirty |= is_write;
  push_front(c, set, n);
}

// A miss in the last level goes to memory.
static void touch(sim_meter *t, int level, int64_t address, int64_t bytes, bool is_write) {
  if (level == t->n) return;
  const int64_t line = t->caches[level].level->line_bytes;
  for (int64_t i = address / line; i <= (address + bytes - 1) / line; i++)
    touch_line(t, level, i, is_write);
}

// Each lane of a vector loop that allocates |b| has a copy.
static int64_t find_copies(const kiln_loop *first, const kiln_buffer *b, int64_t lanes) {
  for (const kiln_loop *n = first; n; n = n->next) {
    int64_t extent, inside = lanes;
    if (n->kind == KILN_LOOP_ALLOC && n->buffer == b->id) return lanes;
    if (n->kind == KILN_LOOP_FOR && n->how == KILN_VECTORIZED && lanes == 1 &&
        kiln_expr_is_int(n->extent, &extent))
      inside = extent;
    const int64_t copies = find_copies(n->body, b, inside);
    if (copies) return copies;
  }
  return 0;
}

// The stack comes after all other buffers.
static int64_t place(const kiln_loops *l, int64_t *bases) {
  int64_t at = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < l->buffers.n; i++) {
      const kiln_buffer *b = l->buffers.data[i];
      if (!is_cached(b) || is_on_stack(b) != (pass == 1)) continue;
      const int64_t bytes = kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype);
      bases[i] = at;
      at += pass ? kiln_round_up(bytes * find_copies(l->body, b, 1), STACK)
                 : kiln_round_up(bytes, PAGE);
    }
  return at;
}

void kiln_sim_traffic_init(kiln_ctx *cx, const kiln_loops *l, int n_levels, kiln_sim_traffic *out) {
  *out = (kiln_sim_traffic){.n_buffers = l->buffers.n, .n_levels = n_levels};
  out->buffers = KILN_NEW_ARRAY(&cx->perm, kiln_sim_flow, l->buffers.n);
  out->levels = KILN_NEW_ARRAY(&cx->perm, kiln_sim_flow, n_levels);
}

sim_meter *kiln_sim_meter_make(kiln_ctx *cx, const kiln_loops *l, int n_levels,
                               const kiln_sim_level *levels, kiln_sim_traffic *out) {
  kiln_arena *a = &cx->scratch;
  sim_meter *t = KILN_NEW(a, sim_meter);
  kiln_sim_traffic_init(cx, l, n_levels, out);
  *t = (sim_meter){.out = out, .n = n_levels};
  t->caches = KILN_NEW_ARRAY(a, cache, n_levels);
  t->bases = KILN_NEW_ARRAY(a, int64_t, l->buffers.n);
  const int64_t bytes = kiln_round_up(place(l, t->bases), PAGE);
  for (int k = 0; k < n_levels; k++)
    cache_init(a, &levels[k], bytes, &out->levels[k], &t->caches[k]);
  return t;
}

int64_t kiln_sim_meter_base(const sim_meter *t, const kiln_buffer *b) { return t->bases[b->id]; }

void kiln_sim_meter_touch(sim_meter *t, int64_t address, int64_t bytes, bool is_write) {
  touch(t, 0, address, bytes, is_write);
}

void kiln_sim_meter_add(sim_meter *t, const kiln_buffer *b, int64_t bytes, bool is_write) {
  kiln_sim_flow *flows[] = {&t->out->buffers[b->id], &t->out->scopes[b->scope]};
  for (int i = 0; i < 2; i++)
    *(is_write ? &flows[i]->written_bytes : &flows[i]->read_bytes) += bytes;
}

void kiln_sim_meter_count(sim_meter *t, const kiln_buffer *b, int64_t element, bool is_write) {
  const int64_t bytes = kiln_dtype_bytes(b->dtype);
  kiln_sim_meter_add(t, b, bytes, is_write);
  if (is_cached(b)) touch(t, 0, t->bases[b->id] + element * bytes, bytes, is_write);
}

void kiln_sim_meter_flush(sim_meter *t) {
  for (int k = 0; k < t->n; k++) {
    cache *c = &t->caches[k];
    for (int64_t set = 0; set < c->n_sets; set++)
      for (int32_t n = c->last[set]; n != NOWHERE; n = c->nodes[n].previous)
        write_back(t, k, &c->nodes[n]);
  }
}

// --- reports ---

void kiln_sim_caches(const kiln_machine *m, kiln_sim_level out[KILN_SIM_CACHES]) {
  static const char *const names[] = {"L1", "L2", "L3"};
  const int64_t bytes[] = {m->l1_bytes, m->l2_bytes, m->l3_bytes};
  enum { LINE = 64 };
  for (int k = 0; k < KILN_SIM_CACHES; k++) {
    const int ways = kiln_machine_ways(m, k + 1);
    const int64_t set = (int64_t)LINE * ways;
    out[k] = (kiln_sim_level){names[k], bytes[k] / set * set, LINE, ways, true};
  }
}

static void print_flow(kiln_text *out, const char *what, const char *name, const kiln_sim_flow *f) {
  if (f->read_bytes == 0 && f->written_bytes == 0) return;
  kiln_text_printf(out, "%-9s %-16s %14" PRId64 " %14" PRId64 "\n", what, name, f->read_bytes,
                   f->written_bytes);
}

void kiln_sim_traffic_print(const kiln_ctx *cx, const kiln_loops *l, const kiln_sim_level *levels,
                            const kiln_sim_traffic *t, kiln_text *out) {
  kiln_text_printf(out, "%-26s %14s %14s\n", "", "bytes read", "bytes written");
  for (int i = 0; i < t->n_buffers; i++)
    print_flow(out, "buffer", kiln_symbol_text(cx, l->buffers.data[i]->name), &t->buffers[i]);
  for (int s = 0; s <= KILN_SCOPE_REGISTER; s++)
    print_flow(out, "scope", kiln_scope_text((kiln_scope)s), &t->scopes[s]);
  for (int k = 0; k < t->n_levels; k++) {
    const char *next = k + 1 < t->n_levels ? levels[k + 1].name : "memory";
    char name[64];
    snprintf(name, sizeof name, "%s of %s", levels[k].name, next);
    print_flow(out, "level", name, &t->levels[k]);
  }
}

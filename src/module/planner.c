// The memory planner: best fit in several orders, and a backtracking search by birth if none
// reaches the lower bound.
#include "module/planner.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, MAX_MENDINGS = 64, MAX_TRIALS = 10000 };

static uint64_t rounded(uint64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

// --- the lower bound ---

typedef struct event {
  int64_t at; // twice the launch, plus 1 for the end of a lifetime
  uint64_t bytes;
} event;

static int compare_events(const void *a, const void *b) {
  const event *x = a, *y = b;
  return (x->at > y->at) - (x->at < y->at);
}

uint64_t kiln_blocks_bound(kiln_arena *scratch, int n, const kiln_block *blocks) {
  const kiln_mark m = kiln_arena_mark(scratch);
  event *events = KILN_NEW_ARRAY(scratch, event, 2 * n);
  uint64_t alive = 0, most = 0;
  for (int i = 0; i < n; i++) {
    events[2 * i] = (event){2 * (int64_t)blocks[i].first, rounded(blocks[i].bytes)};
    events[2 * i + 1] = (event){2 * (int64_t)blocks[i].last + 1, rounded(blocks[i].bytes)};
  }
  if (n) qsort(events, 2 * (size_t)n, sizeof *events, compare_events);
  for (int i = 0; i < 2 * n; i++) {
    if (events[i].at % 2) alive -= events[i].bytes;
    else alive += events[i].bytes;
    if (alive > most) most = alive;
  }
  kiln_arena_rewind(scratch, m);
  return most;
}

// --- orders ---

// Ties are broken by birth, then by index, so that every order is total.
static int by_birth(const kiln_block *x, const kiln_block *y) {
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return x < y ? -1 : x > y;
}

static int descending(double x, double y, const kiln_block *a, const kiln_block *b) {
  return x != y ? (x < y ? 1 : -1) : by_birth(a, b);
}

static double size(const kiln_block *b) { return (double)b->bytes; }
static double life(const kiln_block *b) { return (double)b->last - b->first + 1; }

static int compare_size(const void *a, const void *b) {
  const kiln_block *x = *(kiln_block *const *)a, *y = *(kiln_block *const *)b;
  return descending(size(x), size(y), x, y);
}

static int compare_area(const void *a, const void *b) {
  const kiln_block *x = *(kiln_block *const *)a, *y = *(kiln_block *const *)b;
  return descending(size(x) * life(x), size(y) * life(y), x, y);
}

static int compare_life(const void *a, const void *b) {
  const kiln_block *x = *(kiln_block *const *)a, *y = *(kiln_block *const *)b;
  return descending(life(x), life(y), x, y);
}

static int compare_birth(const void *a, const void *b) {
  return by_birth(*(kiln_block *const *)a, *(kiln_block *const *)b);
}

static int (*const orders[])(const void *, const void *) = {compare_size, compare_area,
                                                            compare_life, compare_birth};

// --- placement ---

typedef struct planner {
  int n;
  kiln_block *blocks;
  kiln_block **order, **placed; // |placed| is sorted by offset
  kiln_block **best_order;
  uint64_t *best_offsets; // [blocks]
  uint64_t best_bytes, bound;
} planner;

static bool alive_together(const kiln_block *a, const kiln_block *b) {
  return a->first <= b->last && b->first <= a->last;
}

// The smallest gap that fits between the blocks of |placed|, sorted by offset; if none fits, the
// end of the last.
static uint64_t best_gap(const kiln_block *b, int n, kiln_block *const *placed) {
  uint64_t need = rounded(b->bytes), end = 0, best = 0, best_gap_bytes = UINT64_MAX;
  for (int i = 0; i < n; i++) {
    const kiln_block *p = placed[i];
    if (!alive_together(b, p)) continue;
    if (p->offset >= end + need && p->offset - end < best_gap_bytes) {
      best = end;
      best_gap_bytes = p->offset - end;
    }
    if (p->offset + rounded(p->bytes) > end) end = p->offset + rounded(p->bytes);
  }
  return best_gap_bytes == UINT64_MAX ? end : best;
}

static void insert(kiln_block *b, int n, kiln_block **placed) {
  int at = n;
  for (; at > 0 && placed[at - 1]->offset > b->offset; at--) placed[at] = placed[at - 1];
  placed[at] = b;
}

// Places all blocks in the current order; keeps the result if it is the best so far.
//
// gives: whether the bound is reached; *out_top, the position in the order of the block with the
// highest end
static bool place(planner *p, int *out_top) {
  uint64_t bytes = 0;
  *out_top = 0;
  for (int i = 0; i < p->n; i++) {
    kiln_block *b = p->order[i];
    b->offset = best_gap(b, i, p->placed);
    insert(b, i, p->placed);
    if (b->offset + rounded(b->bytes) <= bytes) continue;
    bytes = b->offset + rounded(b->bytes);
    *out_top = i;
  }
  if (bytes < p->best_bytes) {
    p->best_bytes = bytes;
    memcpy(p->best_order, p->order, (size_t)p->n * sizeof *p->order);
    for (int i = 0; i < p->n; i++) p->best_offsets[i] = p->blocks[i].offset;
  }
  return bytes <= p->bound;
}

static bool place_in_orders(planner *p) {
  int top;
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    for (int k = 0; k < p->n; k++) p->order[k] = &p->blocks[k];
    qsort(p->order, (size_t)p->n, sizeof *p->order, orders[i]);
    if (place(p, &top)) return true;
  }
  return false;
}

static void mend(planner *p) {
  int top;
  memcpy(p->order, p->best_order, (size_t)p->n * sizeof *p->order);
  for (int i = 0; i < MAX_MENDINGS && !place(p, &top) && top > 0; i++) {
    kiln_block *b = p->order[top];
    const int to = top / 2;
    memmove(&p->order[to + 1], &p->order[to], (size_t)(top - to) * sizeof *p->order);
    p->order[to] = b;
  }
}

// --- backtracking ---

static void take_out(const kiln_block *b, int n, kiln_block **placed) {
  int at = 0;
  while (placed[at] != b) at++;
  for (; at + 1 < n; at++) placed[at] = placed[at + 1];
}

// Candidate |choice| for |b| below |limit|: first the low end of each gap, then the high ends.
static bool find_place(const kiln_block *b, int n, kiln_block *const *placed, uint64_t limit,
                       int choice, uint64_t *out) {
  const uint64_t need = rounded(b->bytes);
  for (int high = 0; high < 2; high++) {
    uint64_t end = 0;
    for (int i = 0; i <= n; i++) {
      if (i < n && !alive_together(b, placed[i])) continue;
      const uint64_t begin = i < n ? placed[i]->offset : limit;
      if (begin >= end + need && (!high || begin > end + need) && choice-- == 0) {
        *out = high ? begin - need : end;
        return true;
      }
      if (i < n && begin + rounded(placed[i]->bytes) > end) end = begin + rounded(placed[i]->bytes);
    }
  }
  return false;
}

// Places all blocks below the bound in order of birth, backtracking when a block does not fit:
// short lifetimes recover after few steps.
static void search(planner *p, kiln_arena *scratch) {
  int *choice = KILN_NEW_ARRAY(scratch, int, p->n + 1), at = 0;
  for (int k = 0; k < p->n; k++) p->order[k] = &p->blocks[k];
  qsort(p->order, (size_t)p->n, sizeof *p->order, compare_birth);
  for (int trial = 0; trial < MAX_TRIALS && at >= 0 && at < p->n; trial++) {
    kiln_block *b = p->order[at];
    if (find_place(b, at, p->placed, p->bound, choice[at]++, &b->offset)) {
      insert(b, at++, p->placed);
      choice[at] = 0;
    } else if (--at >= 0) take_out(p->order[at], at + 1, p->placed);
  }
  if (at < p->n) return;
  p->best_bytes = p->bound;
  for (int i = 0; i < p->n; i++) p->best_offsets[i] = p->blocks[i].offset;
}

void kiln_blocks_place(kiln_arena *scratch, int n, kiln_block *blocks, uint64_t *out_bytes) {
  const kiln_mark m = kiln_arena_mark(scratch);
  planner p = {.n = n, .blocks = blocks, .best_bytes = UINT64_MAX};
  *out_bytes = 0;
  if (n == 0) return;
  p.order = KILN_NEW_ARRAY(scratch, kiln_block *, n);
  p.placed = KILN_NEW_ARRAY(scratch, kiln_block *, n);
  p.best_order = KILN_NEW_ARRAY(scratch, kiln_block *, n);
  p.best_offsets = KILN_NEW_ARRAY(scratch, uint64_t, n);
  p.bound = kiln_blocks_bound(scratch, n, blocks);
  if (!place_in_orders(&p)) mend(&p);
  if (p.best_bytes > p.bound) search(&p, scratch);
  for (int i = 0; i < n; i++) blocks[i].offset = p.best_offsets[i];
  *out_bytes = p.best_bytes;
  kiln_arena_rewind(scratch, m);
}

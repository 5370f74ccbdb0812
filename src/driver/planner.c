// The memory planner: best fit over lifetimes, the largest block first.
#include "driver/planner.h"

#include <stdlib.h>

enum { ALIGN = 64 };

static uint64_t rounded(uint64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

// Size descending; ties by birth and then by address in the list, so that the order is total.
static int compare_size(const void *a, const void *b) {
  const kiln_block *x = *(kiln_block *const *)a, *y = *(kiln_block *const *)b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return x < y ? -1 : x > y;
}

static bool alive_together(const kiln_block *a, const kiln_block *b) {
  return a->first <= b->last && b->first <= a->last;
}

// |placed| is sorted by offset. The end of the last neighbour is a gap without end: taken when no
// other fits.
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

void kiln_blocks_place(kiln_arena *scratch, int n, kiln_block *blocks, uint64_t *out_bytes) {
  kiln_mark m = kiln_arena_mark(scratch);
  kiln_block **order = KILN_NEW_ARRAY(scratch, kiln_block *, n);
  kiln_block **placed = KILN_NEW_ARRAY(scratch, kiln_block *, n);
  *out_bytes = 0;
  for (int i = 0; i < n; i++) order[i] = &blocks[i];
  if (n) qsort(order, (size_t)n, sizeof *order, compare_size);
  for (int i = 0; i < n; i++) {
    kiln_block *b = order[i];
    b->offset = best_gap(b, i, placed);
    insert(b, i, placed);
    if (b->offset + rounded(b->bytes) > *out_bytes) *out_bytes = b->offset + rounded(b->bytes);
  }
  kiln_arena_rewind(scratch, m);
}

// Allocates a block's shared memory: buffers that are live at once get disjoint ranges of an arena.
// A buffer is live from its first use to its last; one that is used in a loop within its ALLOC, a
// thread loop too, is live for all of that loop.
#include "support/integer.h"
#include "target/gpu/nest.h"

// Alignment that TMA copies need, and the period of the swizzle.
enum { ALIGNMENT = 128, SWIZZLED = 1024 };
// Blocks of at most so many bytes let no buffers overlap: occupancy stays the same, and overlapping
// buffers need more barriers.
enum { LITTLE = 4096 };

typedef struct span {
  int buffer, first, last;
  int64_t bytes, alignment;
} span;

typedef struct allocator {
  kiln_gpu_nest *n;
  kiln_map first, last; // by node: the first and last number in its subtree
  int n_nodes;
  int *depth;  // [buffers] loops around the ALLOC
  span *spans; // [n_spans]
  int n_spans;
  bool shares; // buffers that are not live at once may overlap
} allocator;

static uint64_t key_of(const kiln_loop *l) { return (uint64_t)(uintptr_t)l; }

static void number(allocator *p, const kiln_loop *l, int depth) {
  for (; l; l = l->next) {
    kiln_map_put(&p->first, key_of(l), (uint64_t)p->n_nodes++);
    if (l->kind == KILN_LOOP_ALLOC) p->depth[l->buffer] = depth;
    number(p, l->body, depth + (l->kind == KILN_LOOP_FOR));
    kiln_map_put(&p->last, key_of(l), (uint64_t)p->n_nodes - 1);
  }
}

// The loop or statement within the ALLOC that the touch belongs to.
static void extend(allocator *p, span *s, const kiln_dependence_access *t) {
  const int depth = p->depth[t->buffer];
  const kiln_loop *node = depth < t->n_loops ? t->loops[depth] : t->node;
  const int first = (int)*kiln_map_find(&p->first, key_of(node)),
            last = (int)*kiln_map_find(&p->last, key_of(node));
  if (first < s->first) s->first = first;
  if (last > s->last) s->last = last;
}

static int64_t alignment_of(const kiln_buffer *b) { return b->is_swizzled ? SWIZZLED : ALIGNMENT; }

int64_t kiln_gpu_shared_bytes(const kiln_buffer *b) {
  return kiln_round_up(kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype), alignment_of(b));
}

// How many copies of a buffer there are: one for each consumer, or one where TMA fills it.
static int64_t copies_of(const kiln_gpu_nest *n, const kiln_dependence_accesses *all) {
  for (int i = 0; i < all->n; i++)
    if (kiln_gpu_has_tma(all->data[i].node)) return 1;
  return n->specialized.consumers > 1 ? n->specialized.consumers : 1;
}

static void find_spans(allocator *p) {
  kiln_ctx *cx = p->n->cx;
  const kiln_loops *l = p->n->l;
  p->spans = KILN_NEW_ARRAY(&cx->scratch, span, l->buffers.n);
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (b->scope != KILN_SCOPE_SHARED) continue;
    span s = {.buffer = i, .first = INT32_MAX, .last = -1};
    const kiln_dependence_accesses all = kiln_gpu_touches(p->n, i);
    for (int k = 0; k < all.n; k++) extend(p, &s, &all.data[k]);
    if (all.too_deep) s.first = 0, s.last = INT32_MAX;
    s.alignment = alignment_of(b);
    s.bytes = kiln_gpu_shared_bytes(b) * copies_of(p->n, &all);
    if (s.last >= 0) p->spans[p->n_spans++] = s;
  }
}

// The largest first; there are few.
static void sort_spans(allocator *p) {
  for (int i = 1; i < p->n_spans; i++) {
    const span s = p->spans[i];
    int at = i;
    for (; at > 0 && p->spans[at - 1].bytes < s.bytes; at--) p->spans[at] = p->spans[at - 1];
    p->spans[at] = s;
  }
}

static bool collides(const allocator *p, int placed, const span *s, int64_t at, int64_t *out_end) {
  for (int i = 0; i < placed; i++) {
    const span *o = &p->spans[i];
    const int64_t from = p->n->offsets[o->buffer], to = from + o->bytes;
    const bool together = !p->shares || (o->last >= s->first && s->last >= o->first);
    if (!together || at >= to || from >= at + s->bytes) continue;
    *out_end = to;
    return true;
  }
  return false;
}

kiln_status kiln_gpu_nest_allocate_shared(kiln_gpu_nest *n) {
  allocator p = {.n = n, .depth = KILN_NEW_ARRAY(&n->cx->scratch, int, n->l->buffers.n)};
  kiln_map_init(&p.first, &n->cx->scratch);
  kiln_map_init(&p.last, &n->cx->scratch);
  n->offsets = KILN_NEW_ARRAY(&n->cx->scratch, int64_t, n->l->buffers.n);
  for (int i = 0; i < n->l->buffers.n; i++) n->offsets[i] = -1;
  number(&p, n->l->body, 0);
  find_spans(&p);
  sort_spans(&p);
  int64_t bytes = 0;
  for (int i = 0; i < p.n_spans; i++) bytes += p.spans[i].bytes;
  p.shares = bytes > LITTLE &&
             !n->specialized.consumers; // whose producer fills one while others are in use
  for (int i = 0; i < p.n_spans; i++) {
    const span *s = &p.spans[i];
    int64_t at = 0, end = 0;
    while (collides(&p, i, s, at, &end)) at = kiln_round_up(end, s->alignment);
    n->offsets[s->buffer] = at;
    if (at + s->bytes > n->shared_bytes) n->shared_bytes = at + s->bytes;
  }
  if (n->shared_bytes > n->m->gpu.shared_bytes)
    return kiln_gpu_refuse(n,
                           "shared memory of a block must be %" PRId64
                           " bytes at most, got %" PRId64 ": stage smaller tiles",
                           n->m->gpu.shared_bytes, n->shared_bytes);
  return KILN_OK;
}

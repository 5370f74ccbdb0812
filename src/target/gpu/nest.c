// The grid and block of a nest's launch, and buffers that are distributed over its threads
// (fragments).
#include "target/gpu/nest.h"

#include "target/gpu/instr.h"
#include "target/instr.h"

#include <stdarg.h>
#include <stdio.h>

kiln_status kiln_gpu_refuse(const kiln_gpu_nest *n, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return KILN_FAIL(n->cx->diag, KILN_BAD_INPUT, n->place, "%s", text);
}

static int count_nodes(const kiln_loop *l) {
  int n = 0;
  for (; l; l = l->next) n += 1 + count_nodes(l->body);
  return n;
}

// Numbers |l| and its siblings, from *io_n + 1 on.
static void enumerate(kiln_loop *l, const kiln_gpu_nest *n, kiln_gpu_found *found, int *io_n) {
  for (; l; l = l->next) {
    const int before = l->id;
    l->id = ++*io_n;
    if (n->found && before < n->n_nodes) found[l->id] = n->found[before];
    enumerate(l->body, n, found, io_n);
  }
}

void kiln_gpu_nest_enumerate(kiln_gpu_nest *n) {
  int last = 0;
  const int n_nodes = 1 + count_nodes(n->l->body);
  kiln_gpu_found *found = KILN_NEW_ARRAY(&n->cx->scratch, kiln_gpu_found, n_nodes);
  enumerate(n->l->body, n, found, &last);
  n->found = found;
  n->n_nodes = n_nodes;
}

int kiln_gpu_block_axis(const kiln_loop *l) {
  if (l->kind != KILN_LOOP_FOR) return -1;
  return kiln_how_is_block(l->how) ? (int)l->how - KILN_BLOCK_X : -1;
}

static void push_all(kiln_ctx *cx, const kiln_loop *l, kiln_ranges *io) {
  for (; l; l = l->next) {
    const bool is_for = l->kind == KILN_LOOP_FOR;
    const kiln_interval r =
        is_for ? kiln_expr_interval(cx, l->extent, io) : (kiln_interval){0, INT64_MAX};
    if (is_for && r.hi < INT64_MAX) kiln_ranges_push(io, l->var, 0, r.hi > 0 ? r.hi - 1 : 0);
    push_all(cx, l->body, io);
  }
}

int64_t kiln_gpu_most(const kiln_gpu_nest *n, const kiln_loop *l) {
  int64_t extent = 0;
  if (kiln_expr_is_int(l->extent, &extent)) return extent;
  const kiln_mark mark = kiln_arena_mark(&n->cx->scratch);
  kiln_ranges r;
  kiln_ranges_init(&r, &n->cx->scratch);
  push_all(n->cx, n->l->body, &r);
  extent = kiln_expr_interval(n->cx, l->extent, &r).hi;
  kiln_arena_rewind(&n->cx->scratch, mark);
  return extent;
}

int kiln_gpu_thread_axis(const kiln_loop *l) {
  return l->kind == KILN_LOOP_FOR && kiln_how_is_thread(l->how) ? (int)l->how - KILN_THREAD_X : -1;
}

bool kiln_gpu_has_threads(const kiln_loop *l) {
  for (; l; l = l->next)
    if (kiln_gpu_thread_axis(l) >= 0 || kiln_gpu_has_threads(l->body)) return true;
  return false;
}

bool kiln_gpu_is_product(const kiln_loop *l) {
  if (l->kind == KILN_LOOP_INSTR) return kiln_gpu_instr_is_group(l->instr);
  for (l = l->body; l; l = l->next)
    if (kiln_gpu_is_product(l)) return true;
  return false;
}

bool kiln_gpu_has_blocks(const kiln_loop *l) {
  for (; l; l = l->next)
    if (kiln_gpu_block_axis(l) >= 0 || kiln_gpu_has_blocks(l->body)) return true;
  return false;
}

const kiln_expr *kiln_gpu_thread_number(const kiln_gpu_nest *n, int n_loops,
                                        const kiln_loop *const *loops) {
  const int64_t step[3] = {1, n->block[0], n->block[0] * n->block[1]};
  const kiln_expr *number = kiln_int(n->cx, 0);
  for (int i = 0; i < n_loops; i++) {
    const int axis = kiln_gpu_thread_axis(loops[i]);
    if (axis < 0) continue;
    number = kiln_add(n->cx, number,
                      kiln_mul(n->cx, kiln_var(n->cx, loops[i]->var), kiln_int(n->cx, step[axis])));
  }
  return number;
}

typedef struct private_loads {
  const kiln_loops *l;
  bool any;
} private_loads;

static void see_private(const kiln_expr *e, void *argument) {
  private_loads *p = argument;
  if (e->kind != KILN_EXPR_LOAD) return;
  const kiln_scope s = p->l->buffers.data[e->u.tensor]->scope;
  p->any |= kiln_scope_is_private(s);
}

bool kiln_gpu_loads_private(const kiln_gpu_nest *n, const kiln_expr *e) {
  private_loads p = {n->l, false};
  if (e->has_load) kiln_expr_visit(n->cx, e, see_private, &p);
  return p.any;
}

bool kiln_gpu_is_uniform(const kiln_gpu_nest *n, const kiln_expr *e, int n_loops,
                         const kiln_loop *const *loops) {
  if (n->n_threads == 1) return true;
  for (int i = 0; i < n_loops; i++)
    if (kiln_gpu_thread_axis(loops[i]) >= 0 && kiln_expr_uses(e, loops[i]->var)) return false;
  return !kiln_gpu_loads_private(n, e);
}

// --- grid and block ---

static const char axes[] = "xyz";

static kiln_status take_extent(kiln_gpu_nest *n, const kiln_loop *l, int64_t *size) {
  int64_t extent = 0;
  if (!kiln_expr_is_int(l->extent, &extent))
    return kiln_gpu_refuse(n, "extent of loop %s, which is bound, must be constant",
                           kiln_symbol_text(n->cx, l->var));
  if (extent > *size) *size = extent;
  return KILN_OK;
}

// |is_open|: nothing but block loops, allocations and conditions lie around.
static kiln_status measure(kiln_gpu_nest *n, const kiln_loop *list, unsigned blocks, bool is_open,
                           unsigned *out_all) {
  for (const kiln_loop *l = list; l; l = l->next) {
    unsigned under = blocks;
    const int block = kiln_gpu_block_axis(l), thread = kiln_gpu_thread_axis(l);
    if (block >= 0) {
      KILN_TRY(take_extent(n, l, &n->grid[block]));
      n->is_spine &= is_open && !l->next && l == list;
      under |= 1u << block;
      *out_all |= under;
    }
    if (thread >= 0) KILN_TRY(take_extent(n, l, &n->block[thread]));
    const bool open =
        is_open && (block >= 0 || l->kind == KILN_LOOP_ALLOC) && !l->next && l == list;
    KILN_TRY(measure(n, l->body, under, open, out_all));
  }
  return KILN_OK;
}

// Whether each statement lies in all of the block loops.
static bool is_in_all(const kiln_loop *l, unsigned blocks, unsigned all) {
  for (; l; l = l->next) {
    const int axis = kiln_gpu_block_axis(l);
    const unsigned under = axis >= 0 ? blocks | 1u << axis : blocks;
    if (!l->body && under != all && l->kind != KILN_LOOP_FOR) return false;
    if (!is_in_all(l->body, under, all)) return false;
  }
  return true;
}

// The one PARALLEL loop there may be is the outermost.
static void bind_parallel(kiln_gpu_nest *n) {
  kiln_loop *l = n->l->body;
  while (l && l->kind == KILN_LOOP_ALLOC) l = l->body;
  if (l && l->kind == KILN_LOOP_FOR && l->how == KILN_PARALLEL)
    l->how = kiln_gpu_has_blocks(l->body) || !kiln_expr_is_int(l->extent, NULL) ? KILN_SERIAL
                                                                                : KILN_BLOCK_X;
}

kiln_status kiln_gpu_nest_measure(kiln_gpu_nest *n) {
  unsigned all = 0;
  bind_parallel(n);
  for (int k = 0; k < 3; k++) n->grid[k] = n->block[k] = 1;
  n->is_spine = true;
  KILN_TRY(measure(n, n->l->body, 0, true, &all));
  n->is_spine = n->is_spine && is_in_all(n->l->body, 0, all);
  n->n_threads = n->block[0] * n->block[1] * n->block[2];
  if (n->n_threads > n->m->gpu.max_threads || n->block[2] > 64)
    return kiln_gpu_refuse(n,
                           "threads of a block must be %d at most, and 64 along z, got %" PRId64
                           "x%" PRId64 "x%" PRId64 ": bind shorter loops",
                           n->m->gpu.max_threads, n->block[0], n->block[1], n->block[2]);
  for (int k = 0; k < 3; k++)
    if (n->grid[k] > (k == 0 ? INT32_MAX : 65535))
      return kiln_gpu_refuse(n, "blocks along %c must be %d at most, got %" PRId64, axes[k],
                             k == 0 ? INT32_MAX : 65535, n->grid[k]);
  return KILN_OK;
}

// --- distributed buffers ---

// --- accesses ---

typedef struct toucher {
  const kiln_gpu_nest *n;
  int buffer;
  kiln_dependence_accesses *out;
  const kiln_loop *loops[64];
  int n_loops;
} toucher;

// Accesses of a warp's instruction to memory, in loops over its lanes and the operand's tile; a TMA
// copy is one thread's.
static void touch_operand(toucher *t, const kiln_loop *instr, int operand) {
  const int lanes = !instr->instr->is_tma;
  kiln_ctx *cx = t->n->cx;
  const kiln_expr *e = instr->operands[operand];
  const kiln_buffer *tile = instr->instr->loops->buffers.data[operand];
  const int n = t->n_loops + lanes + tile->rank;
  const kiln_loop **loops = KILN_NEW_ARRAY(&cx->perm, const kiln_loop *, n);
  for (int i = 0; i < t->n_loops; i++) loops[i] = t->loops[i];
  for (int k = -lanes; k < tile->rank; k++) {
    const kiln_symbol var = k < 0 ? kiln_symbol_of(cx, "warp.lane") : kiln_tile_var(cx, k);
    const int64_t extent = k < 0 ? t->n->block[0] : tile->extents[k];
    kiln_loop *l = kiln_for_make(cx, var, kiln_int(cx, extent), NULL);
    if (k < 0) l->how = KILN_THREAD_X;
    loops[t->n_loops + lanes + k] = l;
  }
  const kiln_dependence_access touch = {.node = instr,
                                        .write = operand == 0,
                                        .buffer = e->u.tensor,
                                        .rank = e->n_args,
                                        .index = e->args,
                                        .n_loops = n,
                                        .loops = loops};
  KILN_VEC_PUSH(&cx->perm, t->out, touch);
}

static void touch_instrs(toucher *t, const kiln_loop *l) {
  for (; l; l = l->next) {
    for (int i = 0; l->kind == KILN_LOOP_INSTR && i < l->n_operands; i++)
      if (!l->instr->fragments[i].lane && (t->buffer < 0 || l->operands[i]->u.tensor == t->buffer))
        touch_operand(t, l, i);
    const bool is_for = l->kind == KILN_LOOP_FOR;
    if (is_for && t->n_loops == (int)KILN_LEN(t->loops)) t->out->too_deep = true;
    else if (is_for) t->loops[t->n_loops++] = l;
    touch_instrs(t, l->body);
    t->n_loops -= is_for && t->n_loops > 0 && t->loops[t->n_loops - 1] == l;
  }
}

kiln_dependence_accesses kiln_gpu_touches(const kiln_gpu_nest *n, int buffer) {
  kiln_dependence_accesses all = kiln_dependence_accesses_of(n->cx, n->l, buffer);
  toucher t = {.n = n, .buffer = buffer, .out = &all};
  touch_instrs(&t, n->l->body);
  return all;
}

// --- distributed buffers ---

typedef struct distributor {
  kiln_gpu_nest *n;
  uint8_t *is_distributed; // [buffers]
  int *depth;              // [buffers] loops around the ALLOC
  int64_t *part;           // [buffers] elements of a thread's part
  const kiln_loop *loops[64];
  int n_loops;
  kiln_ranges ranges;
  kiln_status status;
} distributor;

// Marks a buffer that is used in a thread loop within its ALLOC.
static void mark_use(const kiln_expr *e, void *argument) {
  distributor *d = argument;
  if (e->kind != KILN_EXPR_LOAD ||
      !kiln_scope_is_private(d->n->l->buffers.data[e->u.tensor]->scope))
    return;
  for (int i = d->depth[e->u.tensor]; i < d->n_loops; i++)
    if (kiln_gpu_thread_axis(d->loops[i]) >= 0) d->is_distributed[e->u.tensor] = 1;
}

static void mark_expr(distributor *d, const kiln_expr *e) {
  if (e && e->has_load) kiln_expr_visit(d->n->cx, e, mark_use, d);
}

static void mark_list(distributor *d, const kiln_loop *l) {
  for (; l; l = l->next) {
    mark_expr(d, l->extent);
    mark_expr(d, l->cond);
    mark_expr(d, l->value);
    if (l->kind == KILN_LOOP_ALLOC) d->depth[l->buffer] = d->n_loops;
    for (int i = 0; l->kind == KILN_LOOP_INSTR && i < l->n_operands; i++)
      if (l->instr->fragments[i].lane) d->is_distributed[l->operands[i]->u.tensor] = 1;
    if (l->kind == KILN_LOOP_STORE) {
      const kiln_buffer *b = d->n->l->buffers.data[l->buffer];
      mark_expr(d, kiln_load(d->n->cx, b->id, b->dtype, b->rank, l->index));
    }
    const bool is_for = l->kind == KILN_LOOP_FOR && d->n_loops < (int)KILN_LEN(d->loops);
    if (is_for) d->loops[d->n_loops++] = l;
    mark_list(d, l->body);
    d->n_loops -= is_for;
  }
}

// Whether a loop around the buffer's ALLOC is bound to the axis: its threads have buffers of their
// own.
static bool is_outside(const distributor *d, const kiln_buffer *b, int axis) {
  for (int i = 0; i < d->depth[b->id] && i < d->n_loops; i++)
    if (kiln_gpu_thread_axis(d->loops[i]) == axis) return true;
  return false;
}

// The number of threads over which the buffer is distributed, and the number of this one.
static int64_t distributed_over(distributor *d, const kiln_buffer *b,
                                const kiln_expr **out_thread) {
  kiln_ctx *cx = d->n->cx;
  int64_t n = 1;
  *out_thread = kiln_int(cx, 0);
  for (int axis = 0; axis < 3; axis++) {
    if (is_outside(d, b, axis)) continue;
    for (int i = 0; i < d->n_loops; i++)
      if (kiln_gpu_thread_axis(d->loops[i]) == axis)
        *out_thread = kiln_add(cx, *out_thread,
                               kiln_mul(cx, kiln_var(cx, d->loops[i]->var), kiln_int(cx, n)));
    n *= d->n->block[axis];
  }
  return n;
}

// The element's number within the part of the thread that the loops around it make.
static const kiln_expr *owned(distributor *d, const kiln_buffer *b, const kiln_expr *const *index) {
  kiln_ctx *cx = d->n->cx;
  const kiln_expr *thread = NULL;
  const int64_t n = distributed_over(d, b, &thread), elems = kiln_buffer_elems(b),
                part = elems % n == 0 ? elems / n : 0; // 0: there are none
  const kiln_expr *first = kiln_mul(cx, thread, kiln_int(cx, part)), *at = kiln_int(cx, 0);
  if (!d->part[b->id]) d->n->held_bytes += part * kiln_dtype_bytes(b->dtype);
  d->part[b->id] = part;
  for (int k = 0; k < b->rank; k++)
    at = kiln_add(cx, at, kiln_mul(cx, index[k], kiln_int(cx, b->strides[k])));
  at = kiln_simplify(cx, kiln_sub(cx, at, first), &d->ranges);
  const kiln_interval i = kiln_expr_interval(cx, at, &d->ranges);
  if (d->status == KILN_OK && (part == 0 || i.lo < 0 || i.hi >= part))
    d->status = kiln_gpu_refuse(
        d->n,
        "buffer %s, which is allocated outside of thread loops, must be distributed: each of the "
        "%" PRId64 " threads must touch its own of %" PRId64 " elements in a row, got one among "
        "[%" PRId64 ", %" PRId64 "] of its own",
        kiln_symbol_text(cx, b->name), n, part, i.lo, i.hi);
  return at;
}

static const kiln_expr *take_part(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  distributor *d = argument;
  const kiln_expr *index[KILN_MAX_RANK + 4];
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const bool distributed = d->is_distributed[e->u.tensor];
  if (distributed) index[0] = owned(d, d->n->l->buffers.data[e->u.tensor], e->args);
  for (int k = 0; k < e->n_args && !distributed; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], take_part, d);
  return kiln_load(cx, e->u.tensor, e->dtype, distributed ? 1 : e->n_args, index);
}

static const kiln_expr *rewritten(distributor *d, const kiln_expr *e) {
  return e && e->has_load ? kiln_expr_replace(d->n->cx, e, take_part, d) : e;
}

static void rewrite_store(distributor *d, kiln_loop *l) {
  const kiln_buffer *b = d->n->l->buffers.data[l->buffer];
  const bool distributed = d->is_distributed[l->buffer];
  const kiln_expr **index = KILN_NEW_ARRAY(&d->n->cx->perm, const kiln_expr *, b->rank + 1);
  if (distributed) index[0] = owned(d, b, l->index);
  for (int k = 0; k < b->rank && !distributed; k++) index[k] = rewritten(d, l->index[k]);
  l->index = index;
  l->value = rewritten(d, l->value);
}

// The swizzle's period and one of its rows, in elements of 16 bits.
enum { SWIZZLED = 512, ROW = 64 };

// A warp group's swizzled operand must begin in the first row of a period.
static void check_swizzled(distributor *d, const kiln_loop *instr, const kiln_expr *at) {
  at = kiln_simplify(d->n->cx, kiln_mod(d->n->cx, at, kiln_int(d->n->cx, SWIZZLED)), &d->ranges);
  const kiln_interval i = kiln_expr_interval(d->n->cx, at, &d->ranges);
  if (d->status == KILN_OK && (i.lo < 0 || i.hi >= ROW))
    d->status = kiln_gpu_refuse(d->n,
                                "%s reads shared memory from multiples of %d elements on, got an "
                                "operand that begins at one plus [%" PRId64 ", %" PRId64 "]",
                                instr->instr->name, SWIZZLED, i.lo, i.hi);
}

enum { MATRIX_ROW = 16 }; // bytes that the hardware reads at once, aligned

// Rows of an operand in memory must be aligned to as many bytes.
static void check_rows(distributor *d, const kiln_loop *instr, const kiln_expr *operand,
                       const kiln_expr *first) {
  kiln_ctx *cx = d->n->cx;
  const kiln_buffer *b = d->n->l->buffers.data[operand->u.tensor];
  const kiln_expr *at = kiln_gpu_element_offset(d->n, first);
  if (b->is_swizzled) {
    check_swizzled(d, instr, at);
    return;
  }
  const int unit = MATRIX_ROW / kiln_dtype_bytes(b->dtype);
  at = kiln_simplify(cx, kiln_mod(cx, at, kiln_int(cx, unit)), &d->ranges);
  const int64_t row = kiln_instr_distance(cx, d->n->l, operand, 0);
  if (d->status == KILN_OK &&
      (row <= 0 || row % unit || !kiln_expr_is_zero(at) || b->scope != KILN_SCOPE_SHARED))
    d->status = kiln_gpu_refuse(
        d->n,
        "%s reads shared memory in rows that begin at multiples of %d elements, got "
        "buffer %s: align its storage",
        instr->instr->name, unit, kiln_symbol_text(cx, b->name));
}

bool kiln_gpu_is_matrix(const kiln_gpu_nest *n, const kiln_expr *from) {
  const kiln_buffer *b = n->l->buffers.data[from->u.tensor];
  const int64_t row = kiln_instr_distance(n->cx, n->l, from, 0);
  const kiln_symbol along = kiln_tile_var(n->cx, 0), across = kiln_tile_var(n->cx, 1);
  bool is = row > 0;
  for (int k = 0; k < b->rank && is; k++)
    is = kiln_expr_uses(from->args[k], across)
             ? !kiln_expr_uses(from->args[k], along) // not as in a flat array
             : b->extents[k] == 1 || b->strides[k] % row == 0;
  return is;
}

const kiln_expr *kiln_gpu_element_offset(const kiln_gpu_nest *n, const kiln_expr *element) {
  const kiln_buffer *b = n->l->buffers.data[element->u.tensor];
  const kiln_expr *at = kiln_int(n->cx, 0);
  for (int k = 0; k < b->rank; k++)
    at = kiln_add(n->cx, at, kiln_mul(n->cx, element->args[k], kiln_int(n->cx, b->strides[k])));
  return at;
}

// Whether the tile whose first element is |first|, of C columns, lies within aligned lines of C
// elements, its rows |row| elements apart, a multiple of C.
static bool lies_in_lines(distributor *d, const kiln_loop *instr, const kiln_expr *first,
                          int64_t row) {
  kiln_ctx *cx = d->n->cx;
  const int64_t line = instr->instr->loops->buffers.data[1]->extents[1];
  const kiln_expr *at = kiln_mod(cx, kiln_gpu_element_offset(d->n, first), kiln_int(cx, line));
  return row > 0 && row % line == 0 && kiln_expr_is_zero(kiln_simplify(cx, at, &d->ranges));
}

// Whether the end of the source's axis |k| is an end of the tensor map: of each row, or of the last
// one.
static bool ends_at(distributor *d, const kiln_expr *from, int k) {
  const kiln_buffer *b = d->n->l->buffers.data[from->u.tensor];
  const kiln_symbol across = kiln_tile_var(d->n->cx, 1);
  if (kiln_expr_uses(from->args[k], across)) return true;
  for (int i = 0; i < b->rank; i++)
    if (i != k && b->extents[i] > 1 && !kiln_expr_uses(from->args[i], across)) return false;
  return kiln_expr_uses(from->args[k], kiln_tile_var(d->n->cx, 0));
}

// Whether |cond| is a bounds check that TMA does itself: outside of the tensor map it gives zeros.
static bool is_bound(distributor *d, const kiln_expr *from, const kiln_expr *cond) {
  kiln_ctx *cx = d->n->cx;
  const kiln_buffer *b = d->n->l->buffers.data[from->u.tensor];
  if (cond->kind == KILN_EXPR_AND)
    return is_bound(d, from, cond->args[0]) && is_bound(d, from, cond->args[1]);
  bool is = kiln_proves(cx, cond, &d->ranges);
  for (int k = 0; k < b->rank && !is; k++) {
    const kiln_expr *inside =
        kiln_binary(cx, KILN_EXPR_LT, from->args[k], kiln_int(cx, b->extents[k]));
    is = ends_at(d, from, k) && kiln_simplify(cx, inside, &d->ranges) == cond;
  }
  return is;
}

static void check_bound(distributor *d, const kiln_loop *instr, const kiln_expr *from) {
  kiln_ctx *cx = d->n->cx;
  const kiln_buffer *tile = instr->instr->loops->buffers.data[1];
  if (!instr->cond || d->status != KILN_OK) return;
  for (int k = 0; k < tile->rank; k++)
    kiln_ranges_push(&d->ranges, kiln_tile_var(cx, k), 0, tile->extents[k] - 1);
  const bool is = kiln_gpu_is_matrix(d->n, from) &&
                  is_bound(d, from, kiln_simplify(cx, instr->cond, &d->ranges));
  kiln_ranges_pop(&d->ranges, tile->rank);
  if (!is)
    d->status = kiln_gpu_refuse(
        d->n, "%s copies zeros beyond the end of a tensor's rows, and nowhere else, got buffer %s",
        instr->instr->name, kiln_symbol_text(cx, d->n->l->buffers.data[from->u.tensor]->name));
}

// Whether the tile whose first element is |first| begins at a multiple of |word| elements, 16
// bytes, as its rows do. On a card another one is an illegal instruction (triton-lang/triton, issue
// 7385).
static bool begins_at_word(distributor *d, const kiln_expr *first, int64_t word) {
  kiln_ctx *cx = d->n->cx;
  const kiln_expr *at = kiln_mod(cx, kiln_gpu_element_offset(d->n, first), kiln_int(cx, word));
  return kiln_expr_is_zero(kiln_simplify(cx, at, &d->ranges));
}

// The source of a TMA copy must be a matrix: rows at a constant distance, of which all other axes
// step over whole ones; or it must lie in aligned lines of its rows (lies_in_lines).
static void check_tma(distributor *d, const kiln_loop *instr, const kiln_expr *from,
                      const kiln_expr *first) {
  enum { WORD = 8 }; // elements, 16 bytes
  const kiln_buffer *b = d->n->l->buffers.data[from->u.tensor];
  const int64_t row = kiln_instr_distance(d->n->cx, d->n->l, from, 0);
  const bool can = row > 0 && row % WORD == 0 && kiln_scope_is_argument(b->scope) &&
                   (kiln_gpu_is_matrix(d->n, from) || lies_in_lines(d, instr, first, row));
  if (d->status == KILN_OK && !can)
    d->status = kiln_gpu_refuse(
        d->n, "%s copies rows that lie a multiple of %d elements apart, got buffer %s",
        instr->instr->name, WORD, kiln_symbol_text(d->n->cx, b->name));
  if (d->status == KILN_OK && !begins_at_word(d, first, WORD))
    d->status = kiln_gpu_refuse(
        d->n, "%s copies tiles that begin at multiples of %d elements, got buffer %s",
        instr->instr->name, WORD, kiln_symbol_text(d->n->cx, b->name));
  check_bound(d, instr, from);
}

// The fragments of a warp's instruction become the first element that the lane has of each.
static void rewrite_instr(distributor *d, kiln_loop *l) {
  kiln_ctx *cx = d->n->cx;
  enum { GROUP = 128 };
  if (kiln_gpu_instr_is_group(l->instr) && d->n->block[0] != GROUP && d->status == KILN_OK)
    d->status = kiln_gpu_refuse(d->n, "%s must be carried out by %d threads along x, got %" PRId64,
                                l->instr->name, GROUP, d->n->block[0]);
  kiln_symbol vars[KILN_MAX_TILE_RANK];
  const kiln_expr *zeros[KILN_MAX_TILE_RANK],
      **operands = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, l->n_operands);
  for (int k = 0; k < KILN_MAX_TILE_RANK; k++) {
    vars[k] = kiln_tile_var(cx, k);
    zeros[k] = kiln_int(cx, 0);
  }
  for (int i = 0; i < l->n_operands; i++) {
    const kiln_expr *e = l->operands[i],
                    *first = kiln_expr_substitute(cx, e, KILN_MAX_TILE_RANK, vars, zeros);
    operands[i] = l->instr->fragments[i].lane ? rewritten(d, first) : e;
    if (l->instr->is_im2col && i > 0) continue; // below
    if (l->instr->is_tma && i > 0) check_tma(d, l, e, first);
    else if (!l->instr->fragments[i].lane) check_rows(d, l, e, first);
  }
  l->operands = operands;
}

static void rewrite_list(distributor *d, kiln_loop *l) {
  for (; l && d->status == KILN_OK; l = l->next) {
    if (l->kind == KILN_LOOP_INSTR) rewrite_instr(d, l);
    l->extent = rewritten(d, l->extent);
    l->cond = rewritten(d, l->cond);
    if (l->kind == KILN_LOOP_STORE) rewrite_store(d, l);
    int64_t extent = 0;
    const bool is_for = l->kind == KILN_LOOP_FOR && d->n_loops < (int)KILN_LEN(d->loops);
    if (is_for) {
      if (!kiln_expr_is_int(l->extent, &extent))
        extent = kiln_expr_interval(d->n->cx, l->extent, &d->ranges).hi;
      kiln_ranges_push(&d->ranges, l->var, 0, extent > 0 ? extent - 1 : 0);
      d->loops[d->n_loops++] = l;
    }
    rewrite_list(d, l->body);
    if (is_for) kiln_ranges_pop(&d->ranges, 1);
    d->n_loops -= is_for;
  }
}

kiln_status kiln_gpu_nest_distribute(kiln_gpu_nest *n) {
  distributor d = {.n = n,
                   .is_distributed = KILN_NEW_ARRAY(&n->cx->scratch, uint8_t, n->l->buffers.n),
                   .depth = KILN_NEW_ARRAY(&n->cx->scratch, int, n->l->buffers.n),
                   .part = KILN_NEW_ARRAY(&n->cx->scratch, int64_t, n->l->buffers.n)};
  bool any = false;
  kiln_ranges_init(&d.ranges, &n->cx->scratch);
  mark_list(&d, n->l->body);
  for (int i = 0; i < n->l->buffers.n; i++) any |= d.is_distributed[i] != 0;
  if (!any) return KILN_OK;
  rewrite_list(&d, n->l->body);
  KILN_TRY(d.status);
  for (int i = 0; i < n->l->buffers.n; i++) {
    kiln_buffer *b = n->l->buffers.data[i];
    if (!d.is_distributed[i]) continue;
    b->extents[0] = d.part[i];
    b->strides[0] = b->rank = 1;
  }
  return KILN_OK;
}

// --- im2col mode ---

enum { MAX_AROUND = 48 };

typedef struct im2col_finder {
  kiln_gpu_nest *n;
  kiln_symbol vars[MAX_AROUND];
  int64_t extents[MAX_AROUND];
  bool steps[MAX_AROUND];
  int n_vars;
  const kiln_expr *conds[MAX_AROUND];
  int n_conds;
} im2col_finder;

static kiln_status find_im2col(im2col_finder *f, const kiln_loop *l, bool is_known) {
  kiln_gpu_nest *n = f->n;
  const kiln_expr *from = l->operands[1];
  const kiln_buffer *b = n->l->buffers.data[from->u.tensor],
                    *tile = l->instr->loops->buffers.data[1];
  const int n_loops = f->n_vars;
  for (int k = 0; k < tile->rank; k++) {
    f->vars[f->n_vars] = kiln_tile_var(n->cx, k);
    f->steps[f->n_vars] = false;
    f->extents[f->n_vars++] = tile->extents[k];
  }
  const kiln_im2col_read r = {.n_vars = f->n_vars,
                              .vars = f->vars,
                              .extents = f->extents,
                              .steps = f->steps,
                              .n_conds = f->n_conds,
                              .conds = f->conds,
                              .row = f->vars[n_loops],
                              .channel = f->vars[n_loops + 1],
                              .rank = b->rank,
                              .sizes = b->extents,
                              .strides = b->strides,
                              .index = from->args,
                              .where = l->cond};
  f->n_vars = n_loops;
  kiln_im2col *im2col = KILN_NEW(&n->cx->perm, kiln_im2col);
  if (!is_known || !kiln_scope_is_argument(b->scope) || !kiln_im2col_find(n->cx, &r, im2col))
    return kiln_gpu_refuse(n, "%s copies windows along columns, rows and images, got buffer %s",
                           l->instr->name, kiln_symbol_text(n->cx, b->name));
  kiln_gpu_found_of(n, l)->im2col = im2col;
  return KILN_OK;
}

// |is_known|: all loops and conditions around |l| are listed.
static kiln_status find_im2cols(im2col_finder *f, const kiln_loop *l, bool is_known) {
  enum { TILE_AXES = 2 };
  for (; l; l = l->next) {
    const int n_vars = f->n_vars, n_conds = f->n_conds;
    const bool is_for = l->kind == KILN_LOOP_FOR;
    bool known = is_known && n_vars + TILE_AXES < MAX_AROUND && n_conds < MAX_AROUND;
    if (known && l->kind == KILN_LOOP_IF) f->conds[f->n_conds++] = l->cond;
    if (known && is_for) {
      known = kiln_expr_is_int(l->extent, &f->extents[n_vars]) && f->extents[n_vars] > 0;
      f->steps[n_vars] = kiln_gpu_block_axis(l) < 0;
      f->vars[f->n_vars++] = l->var;
    }
    if (l->kind == KILN_LOOP_INSTR && l->instr->is_im2col) KILN_TRY(find_im2col(f, l, known));
    KILN_TRY(find_im2cols(f, l->body, known));
    f->n_vars = n_vars;
    f->n_conds = n_conds;
  }
  return KILN_OK;
}

kiln_status kiln_gpu_nest_im2col(kiln_gpu_nest *n) {
  im2col_finder f = {.n = n};
  return find_im2cols(&f, n->l->body, true);
}

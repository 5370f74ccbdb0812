// Assembly in place: a tensor that concatenates or pads others is never copied together. Where a
// part is a whole temporary, that temporary is given storage inside the tensor, so that its
// producer writes it there; what remains (the frame of a padding, a part that cannot move) becomes
// small statements of its own, stored inside as well. The statement itself stays in the program as
// its meaning, marked as assembled.
//
// From the outputs to the inputs, so that a concatenation of concatenations nests.
//
// In place, a padded tensor lies in memory: no kernel can hold it beside what reads it. What pads for
// a depthwise convolution alone therefore waits until the kernels are known, and is settled then.
#include "tile/tile.h"

#include <string.h>

enum {
  MAX_BOXES = 64,
  GPU_ALIGN = 16 // bytes that GPUs' code moves at once (target/gpu/gpu.h)
};

typedef struct box {
  int64_t lo[KILN_MAX_RANK], hi[KILN_MAX_RANK]; // [lo, hi) by axis
} box;

typedef struct assembly {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_stmt *s;
  kiln_tensor *t; // what |s| writes
  int64_t shape[KILN_MAX_RANK], strides[KILN_MAX_RANK];
  int n_boxes;
  box boxes[MAX_BOXES]; // still to be computed
  int n_placed;
  kiln_tensor *placed[MAX_BOXES];
  box where[MAX_BOXES];
} assembly;

static kiln_ranges ranges_in(const assembly *a, const box *b) {
  kiln_ranges r;
  kiln_ranges_init(&r, &a->cx->scratch);
  for (int k = 0; k < a->t->rank; k++)
    kiln_ranges_push(&r, a->s->dims[k].name, b->lo[k], b->hi[k] - 1);
  return r;
}

static int64_t box_elems(const box *b, int rank) {
  int64_t n = 1;
  for (int k = 0; k < rank; k++) n *= b->hi[k] - b->lo[k];
  return n;
}

// The index of axis k in the middle of the tensor, where a boundary map does not bend it.
static const kiln_expr *straight(const assembly *a, const kiln_expr *index, int k) {
  box middle;
  for (int i = 0; i < a->t->rank; i++) middle.lo[i] = 0, middle.hi[i] = a->shape[i];
  if (a->shape[k] > 2) middle.lo[k] = a->shape[k] / 2 - 1, middle.hi[k] = a->shape[k] / 2 + 1;
  const kiln_ranges r = ranges_in(a, &middle);
  return kiln_simplify(a->cx, index, &r);
}

// Where |load|'s tensor would lie: it moves by a constant along every axis, fits, and is all that
// the statement stores there.
static bool find_box(const assembly *a, const kiln_expr *load, box *out) {
  const kiln_tensor *x = a->p->tensors.data[load->u.tensor];
  int64_t shape[KILN_MAX_RANK], coef, constant;
  const kiln_expr *index[KILN_MAX_RANK];
  if (x->rank != a->t->rank || x->dtype != a->t->dtype || !kiln_tensor_static_shape(x, shape))
    return false;
  for (int k = 0; k < x->rank; k++) {
    const kiln_symbol var = a->s->dims[k].name;
    index[k] = straight(a, load->args[k], k);
    if (!kiln_expr_affine(index[k], 1, &var, &coef, &constant)) return false;
    if (coef != 1 && !(coef == 0 && a->shape[k] == 1)) return false;
    out->lo[k] = -constant;
    out->hi[k] = shape[k] - constant;
    if (out->lo[k] < 0 || out->hi[k] > a->shape[k]) return false;
  }
  const kiln_ranges r = ranges_in(a, out);
  const kiln_expr *moved = kiln_expr_with_args(a->cx, load, index);
  return kiln_simplify(a->cx, a->s->body, &r) == kiln_simplify(a->cx, moved, &r);
}

static void add_box(assembly *a, const box *b) {
  if (a->n_boxes < MAX_BOXES) a->boxes[a->n_boxes++] = *b;
  else a->n_boxes = MAX_BOXES + 1; // too ragged
}

static bool overlap(const box *a, const box *b, int rank) {
  for (int k = 0; k < rank; k++)
    if (a->hi[k] <= b->lo[k] || b->hi[k] <= a->lo[k]) return false;
  return true;
}

// Takes |b| out of the boxes that are still to be computed.
static void subtract(assembly *a, const box *b) {
  const int n = a->n_boxes;
  box before[MAX_BOXES];
  memcpy(before, a->boxes, (size_t)n * sizeof(box));
  a->n_boxes = 0;
  for (int i = 0; i < n; i++) {
    box r = before[i];
    if (!overlap(&r, b, a->t->rank)) {
      add_box(a, &r);
      continue;
    }
    for (int k = 0; k < a->t->rank; k++) {
      box side = r;
      side.hi[k] = b->lo[k];
      if (r.lo[k] < b->lo[k]) add_box(a, &side), r.lo[k] = b->lo[k];
      side = r;
      side.lo[k] = b->hi[k];
      if (r.hi[k] > b->hi[k]) add_box(a, &side), r.hi[k] = b->hi[k];
    }
  }
}

// Whether |b| continues |a| along one axis and is as wide along all others; then |a| takes it in.
static bool join(box *a, const box *b, int rank) {
  int along = -1;
  for (int k = 0; k < rank; k++) {
    if (a->lo[k] == b->lo[k] && a->hi[k] == b->hi[k]) continue;
    if (along >= 0 || (a->hi[k] != b->lo[k] && b->hi[k] != a->lo[k])) return false;
    along = k;
  }
  if (along < 0) return false;
  if (b->lo[along] < a->lo[along]) a->lo[along] = b->lo[along];
  else a->hi[along] = b->hi[along];
  return true;
}

static void join_boxes(assembly *a) {
  for (int i = 0; i < a->n_boxes; i++)
    for (int j = 0; j < a->n_boxes; j++) {
      if (i == j || !join(&a->boxes[i], &a->boxes[j], a->t->rank)) continue;
      a->boxes[j] = a->boxes[--a->n_boxes];
      i = -1; // a wider box may join others
      break;
    }
}

static bool can_move(const assembly *a, const kiln_tensor *x) {
  return x->role == KILN_TEMP && x->def >= 0 && !x->inside && x != a->t &&
         !a->p->stmts.data[x->def]->assembled && !memcmp(x->order, a->t->order, sizeof x->order);
}

// Finds the parts that can be stored in place; false when it would not pay.
static bool find_parts(assembly *a) {
  const kiln_loads loads = kiln_loads_of(a->cx, &a->cx->scratch, a->s->body);
  int64_t elems = 0;
  box all, part;
  for (int k = 0; k < a->t->rank; k++) all.lo[k] = 0, all.hi[k] = a->shape[k];
  add_box(a, &all);
  for (int i = 0; i < loads.n && a->n_boxes <= MAX_BOXES; i++) {
    kiln_tensor *x = a->p->tensors.data[loads.data[i]->u.tensor];
    bool again = false;
    for (int j = 0; j < loads.n; j++) again |= j != i && loads.data[j]->u.tensor == x->id;
    if (again || !can_move(a, x) || a->n_placed == MAX_BOXES || !find_box(a, loads.data[i], &part))
      continue;
    a->placed[a->n_placed] = x;
    a->where[a->n_placed++] = part;
    elems += box_elems(&part, a->t->rank);
    subtract(a, &part);
  }
  if (a->n_boxes <= MAX_BOXES) join_boxes(a);
  for (int i = 0; i < loads.n && a->n_boxes <= MAX_BOXES;
       i++) { // parts that stay where they are: a copy each
    bool moved = false;
    for (int j = 0; j < a->n_placed; j++) moved |= a->placed[j]->id == loads.data[i]->u.tensor;
    const int n = a->n_boxes;
    if (moved || !find_box(a, loads.data[i], &part)) continue;
    subtract(a, &part);
    if (a->n_boxes <= n + 2 * a->t->rank) add_box(a, &part);
  }
  return a->n_boxes <= MAX_BOXES && 2 * elems >= kiln_tensor_elems(a->t);
}

static int64_t offset_of(const assembly *a, const box *b) {
  int64_t offset = 0;
  for (int k = 0; k < a->t->rank; k++) offset += b->lo[k] * a->strides[k];
  return offset;
}

static void put_inside(const assembly *a, kiln_tensor *x, const box *b) {
  int64_t *strides = KILN_NEW_ARRAY(&a->cx->perm, int64_t, a->t->rank);
  memcpy(strides, a->strides, (size_t)a->t->rank * sizeof *strides);
  memcpy(x->order, a->t->order, sizeof x->order);
  x->strides = strides;
  x->inside = a->t;
  x->offset = offset_of(a, b);
}

// The statement that computes |b|'s part of the tensor, over a tensor of its own.
static kiln_stmt *make_piece(const assembly *a, const box *b) {
  const int rank = a->t->rank;
  const kiln_expr *extents[KILN_MAX_RANK] = {0}, *moved[KILN_MAX_RANK];
  kiln_symbol vars[KILN_MAX_RANK];
  for (int k = 0; k < rank; k++) extents[k] = kiln_int(a->cx, b->hi[k] - b->lo[k]);
  kiln_tensor *x = kiln_tensor_make(a->cx, a->p, kiln_symbol_text(a->cx, a->t->name), a->t->dtype,
                                    KILN_TEMP, rank, extents);
  put_inside(a, x, b);
  kiln_stmt *s = KILN_NEW(&a->cx->perm, kiln_stmt);
  *s = *a->s;
  s->out = x->id;
  s->dims = KILN_NEW_ARRAY(&a->cx->perm, kiln_dim, rank);
  for (int k = 0; k < rank; k++) {
    vars[k] = a->s->dims[k].name;
    s->dims[k] = (kiln_dim){vars[k], extents[k]};
    moved[k] = kiln_add(a->cx, kiln_var(a->cx, vars[k]), kiln_int(a->cx, b->lo[k]));
  }
  const kiln_ranges r = kiln_stmt_ranges(&a->cx->scratch, s);
  s->body = kiln_simplify(a->cx, kiln_expr_substitute(a->cx, a->s->body, rank, vars, moved), &r);
  return s;
}

typedef struct pieces {
  kiln_stmt **data;
  int n, cap;
} pieces;

// A map that only moves elements has no frame, unless it repeats or reflects them at the edges.
static bool has_frame(kiln_ctx *cx, const kiln_stmt *s) {
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, s->body);
  if (!kiln_stmt_is_layout(cx, s)) return true;
  for (int k = 0; k < s->n_space; k++)
    if (kiln_load_bends(cx, loads.data[0], s->dims[k].name)) return true;
  return false;
}

// Whether all parts begin at multiples of |align| bytes.
static bool are_aligned(const assembly *a, int64_t align) {
  const int64_t bytes = kiln_dtype_bytes(a->t->dtype);
  for (int i = 0; i < a->n_placed; i++)
    if (offset_of(a, &a->where[i]) * bytes % align != 0) return false;
  for (int i = 0; i < a->n_boxes; i++)
    if (offset_of(a, &a->boxes[i]) * bytes % align != 0) return false;
  return true;
}

static void assemble(kiln_ctx *cx, kiln_program *p, kiln_stmt *s, int64_t align, pieces *out) {
  assembly a = {.cx = cx, .p = p, .s = s, .t = p->tensors.data[s->out]};
  if (a.t->role != KILN_TEMP || a.t->rank == 0 || !kiln_stmt_is_map(cx, s)) return;
  if (!kiln_tensor_static_shape(a.t, a.shape) || !has_frame(cx, s) || !find_parts(&a)) return;
  kiln_tensor_strides(a.t, a.strides);
  if (!are_aligned(&a, align)) return;
  for (int i = 0; i < a.n_placed; i++) put_inside(&a, a.placed[i], &a.where[i]);
  for (int i = 0; i < a.n_boxes; i++) KILN_VEC_PUSH(&cx->scratch, out, make_piece(&a, &a.boxes[i]));
  s->assembled = true;
}

// The statements with each assembled one's pieces in front of it, renumbered; dead ones are
// dropped.
static void insert_pieces(kiln_ctx *cx, kiln_program *p, const pieces *of) {
  const int n = p->stmts.n;
  kiln_stmt **old = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, n);
  if (n > 0) memcpy(old, p->stmts.data, (size_t)n * sizeof *old);
  p->stmts.n = 0;
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < of[i].n; k++) KILN_VEC_PUSH(&cx->perm, &p->stmts, of[i].data[k]);
    if (old[i]) KILN_VEC_PUSH(&cx->perm, &p->stmts, old[i]);
  }
  for (int t = 0; t < p->tensors.n; t++)
    if (p->tensors.data[t]) p->tensors.data[t]->def = -1;
  for (int i = 0; i < p->stmts.n; i++) {
    p->stmts.data[i]->id = i;
    p->tensors.data[p->stmts.data[i]->out]->def = i;
  }
}

// Whether |x| is what a contraction computes, or a map makes as many elements of that.
static bool is_contracted(kiln_ctx *cx, const kiln_program *p, const kiln_tensor *x) {
  const kiln_expr *a = NULL, *b = NULL;
  const kiln_stmt *s = x->def < 0 ? NULL : p->stmts.data[x->def];
  if (!s || s->kernel) return false;
  if (kiln_stmt_is_contraction(s, &a, &b)) return true;
  if (!kiln_stmt_is_map(cx, s)) return false;
  const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, s);
  for (int i = 0; i < loads.n; i++) {
    const kiln_tensor *t = p->tensors.data[loads.data[i]->u.tensor];
    if (t->def >= 0 && kiln_stmt_is_contraction(p->stmts.data[t->def], &a, &b) &&
        kiln_tensor_elems(t) == kiln_tensor_elems(x))
      return true;
  }
  return false;
}

// Whether |s| is a product channel by channel, the channels of |x| being contiguous.
static bool is_depthwise(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, int x) {
  const kiln_expr *a = NULL, *b = NULL;
  if (!kiln_stmt_is_contraction(s, &a, &b)) return false;
  const kiln_expr *data = a->u.tensor == x ? a : b, *weights = a->u.tensor == x ? b : a;
  for (int d = 0; d < s->n_space; d++)
    if (kiln_load_stride(cx, p, data, s->dims[d].name) == 1 && kiln_dim_extent(&s->dims[d]) > 1)
      return kiln_expr_uses(weights, s->dims[d].name);
  return false;
}

// Whether |s| pads the result of a contraction, and a depthwise convolution alone reads it.
static bool may_wait(kiln_ctx *cx, const kiln_program *p, const kiln_users *users,
                     const kiln_stmt *s) {
  const int first = users->first[s->out];
  if (!kiln_stmt_is_map(cx, s) || users->first[s->out + 1] - first != 1) return false;
  if (!is_depthwise(cx, p, p->stmts.data[users->users[first]], s->out)) return false;
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, s->body);
  return loads.n == 1 && is_contracted(cx, p, p->tensors.data[loads.data[0]->u.tensor]);
}

// needs: kiln_tile_layout has run
// gives: statements renumbered
kiln_status kiln_tile_assemble(kiln_ctx *cx, kiln_program *p, const kiln_machine *m) {
  const bool is_cpu = m->kind == KILN_MACHINE_CPU;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_users users = kiln_users_make(cx, &cx->scratch, p);
  pieces *of = KILN_NEW_ARRAY(&cx->scratch, pieces, p->stmts.n);
  for (int i = p->stmts.n - 1; i >= 0; i--) {
    kiln_stmt *s = p->stmts.data[i];
    if (!s) continue;
    s->waits = is_cpu && may_wait(cx, p, &users, s);
    if (!s->waits) assemble(cx, p, s, is_cpu ? 1 : GPU_ALIGN, &of[i]);
  }
  insert_pieces(cx, p, of);
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

kiln_status kiln_tile_settle(kiln_ctx *cx, kiln_program *p, int n, const int *stmts) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  pieces *of = KILN_NEW_ARRAY(&cx->scratch, pieces, p->stmts.n);
  for (int i = n - 1; i >= 0; i--) {
    kiln_stmt *s = p->stmts.data[stmts[i]];
    s->waits = false;
    assemble(cx, p, s, 1, &of[stmts[i]]); // for CPUs: elsewhere none waits
  }
  insert_pieces(cx, p, of);
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

// Assembly in place: a tensor that concatenates or pads others is never copied together. Where a
// part is a whole temporary, that temporary is given storage inside the tensor, so that its
// producer writes it there; what remains (the frame of a padding, a part that cannot move) becomes
// small statements of its own, stored inside as well. The statement itself stays in the program as
// its meaning, marked as assembled.
//
// From the outputs to the inputs, so that a concatenation of concatenations nests.
//
// In place, a padded tensor lies in memory: no kernel can hold it beside what reads it. What pads for
// a depthwise convolution alone, or an input for a contraction, therefore waits until the kernels are known, and is settled
// then: of an input a copy of its rows remains, and the frame.
#include "tile/tile.h"

#include <stdlib.h>
#include <string.h>

enum {
  MAX_BOXES = 64, // that are no parts
  GPU_ALIGN = 16  // bytes that GPUs' code moves at once (target/gpu/gpu.h)
};

typedef struct box {
  int64_t lo[KILN_MAX_RANK], hi[KILN_MAX_RANK]; // [lo, hi) by axis
} box;

// A part that is stored in place.
typedef struct placed {
  kiln_tensor *tensor;
  box where;
} placed;

typedef struct assembly {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_stmt *s;
  kiln_tensor *t; // what |s| writes
  int64_t shape[KILN_MAX_RANK], strides[KILN_MAX_RANK];
  int n_boxes;
  box boxes[MAX_BOXES]; // still to be computed
  KILN_VEC(placed) parts;
  kiln_map
      region_of; // of a load, by its expression's id: the number of its region; of others: that they are known
  KILN_VEC(box) regions;
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

// Cuts |b| to where the condition |c| may have the value |holds|.
static void cut_box(const assembly *a, const kiln_expr *c, bool holds, box *b) {
  int64_t bound = 0;
  if (c->kind != KILN_EXPR_LT || !kiln_expr_is_int(c->args[1], &bound)) return;
  for (int k = 0; k < a->t->rank; k++) {
    if (c->args[0] != kiln_var(a->cx, a->s->dims[k].name)) continue;
    if (holds && bound < b->hi[k]) b->hi[k] = bound;
    if (!holds && bound > b->lo[k]) b->lo[k] = bound;
  }
}

// Finds the regions that the conditions around the loads in |e| leave them.
static void find_regions(assembly *a, const kiln_expr *e, const box *region) {
  if (!e->has_load || kiln_map_find(&a->region_of, e->id))
    return; // the way there first taken counts
  kiln_map_put(&a->region_of, e->id, (uint64_t)a->regions.n);
  if (e->kind == KILN_EXPR_LOAD) KILN_VEC_PUSH(&a->cx->scratch, &a->regions, *region);
  for (int i = 0; i < e->n_args; i++) {
    box inner = *region;
    if (e->kind == KILN_EXPR_SELECT && i > 0) cut_box(a, e->args[0], i == 1, &inner);
    find_regions(a, e->args[i], &inner);
  }
}

// Where |load|'s tensor would lie: it moves by a constant along every axis, or has one element there where the load has one,
// fits, and is all that the statement stores there.
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
    const box *region = &a->regions.data[*kiln_map_find(&a->region_of, load->id)];
    const bool is_one = coef == 0 && shape[k] == 1 && region->hi[k] - region->lo[k] == 1;
    if (coef != 1 && !is_one) return false;
    out->lo[k] = is_one ? region->lo[k] : -constant;
    out->hi[k] = out->lo[k] + shape[k];
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

// The first axis of |order| from |at| on along which |x| has more than one element; its rank: there is none.
static int next_axis(const kiln_tensor *x, const int8_t *order, int at) {
  int64_t extent = 1;
  for (; at < x->rank; at++)
    if (!kiln_expr_is_int(x->shape[order[at]], &extent) || extent != 1) break;
  return at;
}

// Whether both are stored in one order, as far as |x| has more than one element along an axis.
static bool has_order(const kiln_tensor *x, const kiln_tensor *t) {
  int i = next_axis(x, x->order, 0), j = next_axis(x, t->order, 0);
  while (i < x->rank && j < x->rank && x->order[i] == t->order[j]) {
    i = next_axis(x, x->order, i + 1);
    j = next_axis(x, t->order, j + 1);
  }
  return i == x->rank && j == x->rank;
}

static bool can_move(const assembly *a, const kiln_tensor *x) {
  return x->role == KILN_TEMP && x->def >= 0 && !x->inside && x != a->t && x->rank == a->t->rank &&
         !a->p->stmts.data[x->def]->assembled && has_order(x, a->t);
}

static int compare_parts(const void *a, const void *b) {
  const box *x = &((const placed *)a)->where, *y = &((const placed *)b)->where;
  for (int k = 0; k < KILN_MAX_RANK; k++)
    if (x->lo[k] != y->lo[k]) return x->lo[k] < y->lo[k] ? -1 : 1;
  return 0;
}

// Finds the parts that can be stored in place; false when it would not pay. |copies|: one that stays where it is and is
// copied counts as well.
static bool find_parts(assembly *a, bool copies) {
  const kiln_loads loads = kiln_loads_of(a->cx, &a->cx->scratch, a->s->body);
  int64_t elems = 0;
  box all = {0}, part = {0};
  for (int k = 0; k < a->t->rank; k++) all.lo[k] = 0, all.hi[k] = a->shape[k];
  add_box(a, &all);
  kiln_map_init(&a->region_of, &a->cx->scratch);
  find_regions(a, a->s->body, &all);
  for (int i = 0; i < loads.n; i++) {
    kiln_tensor *x = a->p->tensors.data[loads.data[i]->u.tensor];
    bool again = false;
    for (int j = 0; j < loads.n; j++) again |= j != i && loads.data[j]->u.tensor == x->id;
    if (again || !can_move(a, x) || !find_box(a, loads.data[i], &part)) continue;
    KILN_VEC_PUSH(&a->cx->scratch, &a->parts, (placed){x, part});
    elems += box_elems(&part, a->t->rank);
  }
  if (a->parts.n > 0) // neighbours one after the other leave few boxes
    qsort(a->parts.data, (size_t)a->parts.n, sizeof *a->parts.data, compare_parts);
  for (int i = 0; i < a->parts.n && a->n_boxes <= MAX_BOXES; i++)
    subtract(a, &a->parts.data[i].where);
  if (a->n_boxes <= MAX_BOXES) join_boxes(a);
  for (int i = 0; i < loads.n && a->n_boxes <= MAX_BOXES;
       i++) { // parts that stay where they are: a copy each
    bool moved = false;
    for (int j = 0; j < a->parts.n; j++)
      moved |= a->parts.data[j].tensor->id == loads.data[i]->u.tensor;
    const int n = a->n_boxes;
    if (moved || !find_box(a, loads.data[i], &part)) continue;
    subtract(a, &part);
    if (a->n_boxes > n + 2 * a->t->rank) continue;
    add_box(a, &part);
    if (copies) elems += box_elems(&part, a->t->rank);
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
  s->body =
      kiln_stmt_simplify(a->cx, s, kiln_expr_substitute(a->cx, a->s->body, rank, vars, moved));
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
  for (int i = 0; i < a->parts.n; i++)
    if (offset_of(a, &a->parts.data[i].where) * bytes % align != 0) return false;
  for (int i = 0; i < a->n_boxes; i++)
    if (offset_of(a, &a->boxes[i]) * bytes % align != 0) return false;
  return true;
}

// Of outputs on CPUs only.
static void assemble(kiln_ctx *cx, kiln_program *p, kiln_stmt *s, bool is_cpu, bool copies,
                     pieces *out) {
  assembly a = {.cx = cx, .p = p, .s = s, .t = p->tensors.data[s->out]};
  if (a.t->role != KILN_TEMP && !is_cpu) return;
  if (a.t->rank == 0 || !kiln_stmt_is_map(cx, s)) return;
  if (!kiln_tensor_static_shape(a.t, a.shape) || !has_frame(cx, s) || !find_parts(&a, copies))
    return;
  kiln_tensor_strides(a.t, a.strides);
  if (!are_aligned(&a, is_cpu ? 1 : GPU_ALIGN)) return;
  for (int i = 0; i < a.parts.n; i++)
    put_inside(&a, a.parts.data[i].tensor, &a.parts.data[i].where);
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
  kiln_stmts_renumber(p);
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

// Whether |s| pads an input of the program, in the order in which that lies: rows are copied, where they would be selected
// element by element.
static bool pads_input(const kiln_program *p, const kiln_stmt *s, const kiln_expr *load) {
  const kiln_tensor *x = p->tensors.data[load->u.tensor], *t = p->tensors.data[s->out];
  return x->role == KILN_INPUT && t->role == KILN_TEMP && x->rank == t->rank && has_order(x, t) &&
         s->body->kind == KILN_EXPR_SELECT;
}

// Whether |s| pads the result of a contraction, and a depthwise convolution alone reads it; or an input, which a contraction
// reads.
static bool may_wait(kiln_ctx *cx, const kiln_program *p, const kiln_users *users,
                     const kiln_stmt *s) {
  const int first = users->first[s->out];
  if (!kiln_stmt_is_map(cx, s) || users->first[s->out + 1] - first != 1) return false;
  const kiln_expr *a = NULL, *b = NULL;
  const kiln_stmt *reader = p->stmts.data[users->users[first]];
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, s->body);
  if (loads.n != 1) return false;
  if (pads_input(p, s, loads.data[0])) return kiln_stmt_is_contraction(reader, &a, &b);
  return is_depthwise(cx, p, reader, s->out) &&
         is_contracted(cx, p, p->tensors.data[loads.data[0]->u.tensor]);
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
    if (!s->waits) assemble(cx, p, s, is_cpu, false, &of[i]);
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
    assemble(cx, p, s, true, true, &of[stmts[i]]); // elsewhere than on CPUs none waits
  }
  insert_pieces(cx, p, of);
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

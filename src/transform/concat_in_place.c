// In-place concatenation (buffer aliasing): the operands of a concatenation or padding are stored
// inside its result, so that nothing is copied.
//     C = [A | B]:   A and B are views of C's storage, and their producers write into it
// An operand that is a whole temporary is stored inside the result. The rest, the border of a
// padding or an operand that cannot move, is computed by small statements ("pieces") that write
// into the result, too. The original statement stays in the program as a specification, marked as
// assembled.
//
// Runs from the outputs to the inputs, so that concatenations of concatenations nest.
//
// A map that selects its operand by index remainders, as one that interleaves the phases of a
// transposed convolution, is split into a statement for each phase: the kernel that computes a
// phase stores its elements in place, strided by the number of phases.
//
// A tensor that is padded in place is stored in memory, so it cannot be fused with its consumer.
// The decision is therefore deferred until after fusion for a padding whose only consumer is a
// depthwise convolution, or of a model input for a contraction; it is materialized then, as the
// border, and for an input also as a copy of its rows.
#include "support/integer.h"
#include "transform/transform.h"
#include "transform/winograd.h"

#include <stdlib.h>
#include <string.h>

enum {
  MAX_BOXES = 64, // regions outside of the parts
  MAX_PHASES = 64,
  MANY_PARTS =
      16 // with more parts, every lane of a result vector would test all of them: copied instead
};

typedef struct box {
  int64_t lo[KILN_MAX_RANK], hi[KILN_MAX_RANK]; // [lo, hi) by axis
} box;

// A part stored in place.
typedef struct placed {
  kiln_tensor *tensor;
  box where;
} placed;

typedef struct assembly {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_facts *facts;
  kiln_stmt *s;
  kiln_tensor *t; // the result of |s|
  int64_t shape[KILN_MAX_RANK], strides[KILN_MAX_RANK];
  int n_boxes;
  box boxes[MAX_BOXES]; // regions not yet covered by parts
  KILN_VEC(placed) parts;
  kiln_map
      region_of; // expression id -> for a load, index of its region; for others, that they were
                 // visited
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

// Index |k| of a load in the tensor's interior, without its boundary clamp or reflection.
static const kiln_expr *straight(const assembly *a, const kiln_expr *index, int k) {
  box middle;
  for (int i = 0; i < a->t->rank; i++) middle.lo[i] = 0, middle.hi[i] = a->shape[i];
  if (a->shape[k] > 2) middle.lo[k] = a->shape[k] / 2 - 1, middle.hi[k] = a->shape[k] / 2 + 1;
  const kiln_ranges r = ranges_in(a, &middle);
  return kiln_simplify(a->cx, index, &r);
}

// Restricts |b| to var * coef + constant < 0, if |difference| has this form for a single variable.
static void cut_below(const assembly *a, const kiln_expr *difference, box *b) {
  int64_t coef = 0, constant = 0;
  for (int k = 0; k < a->t->rank; k++) {
    const kiln_symbol var = a->s->dims[k].name;
    if (!kiln_expr_affine(difference, 1, &var, &coef, &constant)) continue;
    if (coef == 1 && -constant < b->hi[k]) b->hi[k] = -constant;
    if (coef == -1 && constant + 1 > b->lo[k]) b->lo[k] = constant + 1;
  }
}

// Restricts |b| to indices at which condition |c| may be |holds|.
static void cut_box(const assembly *a, const kiln_expr *c, bool holds, box *b) {
  if (c->kind == (holds ? KILN_EXPR_AND : KILN_EXPR_OR)) {
    cut_box(a, c->args[0], holds, b);
    cut_box(a, c->args[1], holds, b);
    return;
  }
  if (c->kind == KILN_EXPR_NOT) cut_box(a, c->args[0], !holds, b);
  const bool is_less = c->kind == KILN_EXPR_LT || c->kind == KILN_EXPR_LE,
             is_more = c->kind == KILN_EXPR_GT || c->kind == KILN_EXPR_GE;
  if ((!is_less && !is_more) || c->args[0]->dtype != KILN_I64) return;
  const bool with_equal = (c->kind == KILN_EXPR_LE || c->kind == KILN_EXPR_GE) == holds;
  const kiln_expr *less = c->args[is_less == holds ? 0 : 1],
                  *more = c->args[is_less == holds ? 1 : 0];
  const kiln_expr *difference = kiln_sub(a->cx, less, more);
  cut_below(a, with_equal ? kiln_sub(a->cx, difference, kiln_int(a->cx, 1)) : difference, b);
}

// Finds the region in which each load of |e| is used, by the conditions around it.
static void find_regions(assembly *a, const kiln_expr *e, const box *region) {
  if (!e->has_load || kiln_map_find(&a->region_of, e->id))
    return; // the first path to a shared node counts
  kiln_map_put(&a->region_of, e->id, (uint64_t)a->regions.n);
  if (e->kind == KILN_EXPR_LOAD) KILN_VEC_PUSH(&a->cx->scratch, &a->regions, *region);
  for (int i = 0; i < e->n_args; i++) {
    box inner = *region;
    if (e->kind == KILN_EXPR_SELECT && i > 0) cut_box(a, e->args[0], i == 1, &inner);
    find_regions(a, e->args[i], &inner);
  }
}

// The box of the result that |load|'s tensor would be: each index is the dim plus a constant (or an
// axis has extent 1), the tensor fits, and the statement stores nothing else there.
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
  else a->n_boxes = MAX_BOXES + 1; // too many regions
}

static bool overlap(const box *a, const box *b, int rank) {
  for (int k = 0; k < rank; k++)
    if (a->hi[k] <= b->lo[k] || b->hi[k] <= a->lo[k]) return false;
  return true;
}

// Subtracts |b| from the regions not yet covered.
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

// Extends |a| by |b| if they are adjacent along one axis and equal along all others.
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
      i = -1; // the wider box may merge with others
      break;
    }
}

// The first axis in |order|, from position |at|, along which |x| has more than one element; the
// rank if there is none.
static int next_axis(const kiln_tensor *x, const int8_t *order, int at) {
  int64_t extent = 1;
  for (; at < x->rank; at++)
    if (!kiln_expr_is_int(x->shape[order[at]], &extent) || extent != 1) break;
  return at;
}

// Whether both have the same storage order, ignoring axes of |x| with extent 1.
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
         !kiln_fact_of(a->facts, x->id).assembled && has_order(x, a->t);
}

static int compare_parts(const void *a, const void *b) {
  const box *x = &((const placed *)a)->where, *y = &((const placed *)b)->where;
  for (int k = 0; k < KILN_MAX_RANK; k++)
    if (x->lo[k] != y->lo[k]) return x->lo[k] < y->lo[k] ? -1 : 1;
  return 0;
}

// Finds the parts that can be stored in place; false if it does not pay. |copies|: parts that stay
// where they are and are copied count as well.
static bool find_parts(assembly *a, bool copies) {
  a->n_boxes = a->regions.n = 0;
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
  if (a->parts.n > 0) // merging adjacent parts leaves fewer boxes
    qsort(a->parts.data, (size_t)a->parts.n, sizeof *a->parts.data, compare_parts);
  for (int i = 0; i < a->parts.n && a->n_boxes <= MAX_BOXES; i++)
    subtract(a, &a->parts.data[i].where);
  if (a->n_boxes <= MAX_BOXES) join_boxes(a);
  for (int i = 0; i < loads.n && a->n_boxes <= MAX_BOXES; i++) { // each part that stays is copied
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

static void put_inside(const assembly *a, kiln_tensor *x, const box *b, const int64_t *step) {
  int64_t *strides = KILN_NEW_ARRAY(&a->cx->perm, int64_t, a->t->rank);
  for (int k = 0; k < a->t->rank; k++) strides[k] = a->strides[k] * (step ? step[k] : 1);
  memcpy(x->order, a->t->order, sizeof x->order);
  x->strides = strides;
  x->inside = a->t;
  x->offset = offset_of(a, b);
}

typedef struct pieces {
  kiln_stmt **data;
  int n, cap;
} pieces;

static const kiln_expr *step_to(kiln_ctx *cx, const kiln_expr *var, int64_t step, int64_t first) {
  return kiln_add(cx, kiln_mul(cx, var, kiln_int(cx, step)), kiln_int(cx, first));
}

// The producer of |x| belongs to the kernel of |a|'s statement, if that is in one.
static void keep_kernel(const assembly *a, const kiln_tensor *x) {
  const int kernel = kiln_fact_of(a->facts, a->t->id).kernel;
  if (kernel) kiln_fact_at(a->cx, a->facts, x->id)->kernel = kernel;
}

// The piece that computes region |b| of the result, or its elements |step| apart, into a tensor of
// its own.
static kiln_stmt *make_piece(const assembly *a, const box *b, const int64_t *step) {
  const int rank = a->t->rank;
  const kiln_expr *extents[KILN_MAX_RANK] = {0}, *moved[KILN_MAX_RANK];
  kiln_symbol vars[KILN_MAX_RANK];
  for (int k = 0; k < rank; k++) {
    const int64_t extent = b->hi[k] - b->lo[k];
    extents[k] = kiln_int(a->cx, step ? kiln_divide_up(extent, step[k]) : extent);
  }
  kiln_tensor *x = kiln_tensor_make(a->cx, a->p, kiln_symbol_text(a->cx, a->t->name), a->t->dtype,
                                    KILN_TEMP, rank, extents);
  put_inside(a, x, b, step);
  keep_kernel(a, x);
  kiln_stmt *s = KILN_NEW(&a->cx->perm, kiln_stmt);
  *s = *a->s;
  s->out = x->id;
  s->dims = KILN_NEW_ARRAY(&a->cx->perm, kiln_dim, rank);
  for (int k = 0; k < rank; k++) {
    vars[k] = a->s->dims[k].name;
    s->dims[k] = (kiln_dim){vars[k], extents[k]};
    moved[k] = step_to(a->cx, kiln_var(a->cx, vars[k]), step ? step[k] : 1, b->lo[k]);
  }
  s->body =
      kiln_stmt_simplify(a->cx, s, kiln_expr_substitute(a->cx, a->s->body, rank, vars, moved));
  return s;
}

// Only maps with several operands or borders qualify, that is, all except views; views that repeat
// or reflect elements at edges have borders.
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

// --- phases ---

// A map that selects by remainders: phase p has the elements lo + p, lo + p + period, ... of |all|
// along each axis.
typedef struct phases {
  box all;
  int64_t period[KILN_MAX_RANK];
  int n; // number of phases
} phases;

// Extends the periods by those of the conditions by which |e| selects.
static void find_periods(const assembly *a, const kiln_expr *e, bool is_condition, kiln_map *seen,
                         phases *out) {
  const uint64_t key = 2 * (uint64_t)e->id + is_condition;
  if (kiln_map_find(seen, key)) return;
  kiln_map_put(seen, key, 1);
  int64_t period = 0, coef = 0, constant = 0;
  if (is_condition && e->kind == KILN_EXPR_MOD && kiln_expr_is_int(e->args[1], &period) &&
      period > 1 && period <= MAX_PHASES)
    for (int k = 0; k < a->t->rank; k++) {
      const kiln_symbol var = a->s->dims[k].name;
      if (!kiln_expr_affine(e->args[0], 1, &var, &coef, &constant) || coef == 0) continue;
      out->period[k] *= period / kiln_gcd(out->period[k], period);
      if (out->period[k] > MAX_PHASES) out->period[k] = MAX_PHASES + 1;
    }
  for (int i = 0; i < e->n_args; i++)
    find_periods(a, e->args[i], is_condition || (e->kind == KILN_EXPR_SELECT && i == 0), seen, out);
}

// The smallest box around the regions of all loads of temporaries.
static bool find_common_region(const assembly *a, const kiln_loads *loads, box *out) {
  bool any = false;
  for (int i = 0; i < loads->n; i++) {
    if (a->p->tensors.data[loads->data[i]->u.tensor]->role != KILN_TEMP) continue;
    const box *region = &a->regions.data[*kiln_map_find(&a->region_of, loads->data[i]->id)];
    for (int k = 0; k < a->t->rank; k++)
      if (any && (region->lo[k] != out->lo[k] || region->hi[k] != out->hi[k])) return false;
    *out = *region;
    any = true;
  }
  return any;
}

static bool find_phases(assembly *a, phases *out) {
  const kiln_loads loads = kiln_loads_of(a->cx, &a->cx->scratch, a->s->body);
  box all = {0};
  kiln_map seen;
  for (int k = 0; k < a->t->rank; k++) all.hi[k] = a->shape[k], out->period[k] = 1;
  kiln_map_init(&seen, &a->cx->scratch);
  find_periods(a, a->s->body, false, &seen, out);
  out->n = 1;
  for (int k = 0; k < a->t->rank; k++) {
    if (out->period[k] > MAX_PHASES / out->n) return false;
    out->n *= (int)out->period[k];
  }
  if (out->n == 1) return false;
  kiln_map_init(&a->region_of, &a->cx->scratch);
  a->regions.n = 0;
  find_regions(a, a->s->body, &all);
  if (!find_common_region(a, &loads, &out->all)) return false;
  for (int k = 0; k < a->t->rank; k++)
    if (out->all.hi[k] - out->all.lo[k] < out->period[k]) return false;
  a->n_boxes = 0;
  add_box(a, &all);
  subtract(a, &out->all);
  return a->n_boxes <= MAX_BOXES;
}

// The box of a phase's elements; lo is the first one.
static box phase_box(const assembly *a, const phases *f, int phase) {
  box b = f->all;
  for (int k = a->t->rank - 1; k >= 0; phase /= (int)f->period[k--])
    b.lo[k] += phase % f->period[k];
  return b;
}

// Whether |x| is the result of a reduction or of Winograd's algorithm.
static bool is_summed(const assembly *a, const kiln_tensor *x) {
  if (x->role != KILN_TEMP || x->def < 0) return false;
  const kiln_stmt *made = a->p->stmts.data[x->def];
  return made->n_reduce > 0 || kiln_winograd_is_result(a->p, a->facts, made);
}

// Whether |load| reads its tensor at the index that |s| writes.
static bool is_in_step(const assembly *a, const kiln_stmt *s, const kiln_expr *load) {
  for (int k = 0; k < load->n_args; k++)
    if (load->args[k] != kiln_stmt_var(a->cx, s, k) && kiln_dim_extent(&s->dims[k]) != 1)
      return false;
  return true;
}

// Adds the reductions that phase |s| reads to |io_taken|. False unless there is at most one, which
// no other phase reads and which has as many elements as the phase. The phase joins the kernel of a
// Winograd convolution.
static bool take_reduction(const assembly *a, kiln_stmt *s, kiln_map *io_taken) {
  const kiln_loads loads = kiln_loads_of(a->cx, &a->cx->scratch, s->body);
  int n = 0;
  for (int i = 0; i < loads.n; i++) {
    const kiln_tensor *x = a->p->tensors.data[loads.data[i]->u.tensor];
    if (!is_summed(a, x)) continue;
    if (++n > 1 || kiln_map_find(io_taken, (uint64_t)x->id) ||
        kiln_tensor_elems(x) != kiln_stmt_domain(s))
      return false;
    const kiln_stmt *made = a->p->stmts.data[x->def];
    if (kiln_winograd_is_result(a->p, a->facts, made) && is_in_step(a, s, loads.data[i]))
      kiln_fact_at(a->cx, a->facts, s->out)->kernel = kiln_fact_of(a->facts, x->id).kernel;
    kiln_map_put(io_taken, (uint64_t)x->id, 1);
  }
  return true;
}

static const kiln_expr *both(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return a ? kiln_binary(cx, KILN_EXPR_AND, a, b) : b;
}

// A load of the element of |piece|, whose origin is at |b|.lo.
static const kiln_expr *load_piece(const assembly *a, const kiln_stmt *piece, const box *b,
                                   const int64_t *step) {
  const kiln_expr *at[KILN_MAX_RANK];
  for (int k = 0; k < a->t->rank; k++) {
    const kiln_expr *behind =
        kiln_sub(a->cx, kiln_stmt_var(a->cx, a->s, k), kiln_int(a->cx, b->lo[k]));
    at[k] = kiln_div(a->cx, behind, kiln_int(a->cx, step ? step[k] : 1));
  }
  return kiln_tensor_load(a->cx, a->p->tensors.data[piece->out], at);
}

static const kiln_expr *is_in_phase(const assembly *a, const phases *f, const box *b) {
  const kiln_expr *is = NULL;
  for (int k = 0; k < a->t->rank; k++) {
    if (f->period[k] == 1) continue;
    const kiln_expr *behind =
        kiln_sub(a->cx, kiln_stmt_var(a->cx, a->s, k), kiln_int(a->cx, f->all.lo[k]));
    is = both(a->cx, is,
              kiln_binary(a->cx, KILN_EXPR_EQ,
                          kiln_mod(a->cx, behind, kiln_int(a->cx, f->period[k])),
                          kiln_int(a->cx, b->lo[k] - f->all.lo[k])));
  }
  return is;
}

static const kiln_expr *is_in_box(const assembly *a, const box *b) {
  const kiln_expr *is = NULL;
  for (int k = 0; k < a->t->rank; k++) {
    const kiln_expr *var = kiln_stmt_var(a->cx, a->s, k);
    is = both(a->cx, is, kiln_binary(a->cx, KILN_EXPR_GE, var, kiln_int(a->cx, b->lo[k])));
    is = both(a->cx, is, kiln_binary(a->cx, KILN_EXPR_LT, var, kiln_int(a->cx, b->hi[k])));
  }
  return is;
}

// Replaces the statement's body by loads of the phases and boxes around them.
static void store_phases(assembly *a, const phases *f, kiln_stmt *const *made, pieces *out) {
  const kiln_expr *body = NULL;
  for (int i = 0; i < f->n; i++) {
    const box b = phase_box(a, f, i);
    const kiln_expr *one = load_piece(a, made[i], &b, f->period);
    body = body ? kiln_select(a->cx, is_in_phase(a, f, &b), one, body) : one;
    KILN_VEC_PUSH(&a->cx->scratch, out, made[i]);
  }
  for (int i = 0; i < a->n_boxes; i++) {
    kiln_stmt *piece = make_piece(a, &a->boxes[i], NULL);
    body = kiln_select(a->cx, is_in_box(a, &a->boxes[i]), load_piece(a, piece, &a->boxes[i], NULL),
                       body);
    KILN_VEC_PUSH(&a->cx->scratch, out, piece);
  }
  a->s->body = body;
  kiln_fact_at(a->cx, a->facts, a->t->id)->assembled = true;
}

// The innermost axis in the storage order of |x|.
static int contiguous_axis(const kiln_tensor *x) {
  int k = x->rank - 1;
  while (k > 0 && kiln_expr_int_or(x->shape[x->order[k]], 0) == 1) k--;
  return x->order[k];
}

// A reduction result that |a|'s statement reads and that is contiguous along another axis than the
// result; NULL: none.
static const kiln_tensor *find_turned(const assembly *a) {
  const kiln_loads loads = kiln_loads_of(a->cx, &a->cx->scratch, a->s->body);
  for (int i = 0; i < loads.n; i++) {
    const kiln_tensor *x = a->p->tensors.data[loads.data[i]->u.tensor];
    if (is_summed(a, x) && x->rank == a->t->rank && contiguous_axis(x) != contiguous_axis(a->t))
      return x;
  }
  return NULL;
}

// Makes a statement with a result in |like|'s storage order, which the original statement then
// copies: otherwise elements of a vector would be stored one by one with a large stride.
static assembly set_apart(const assembly *a, const kiln_tensor *like) {
  assembly b = *a;
  b.t = kiln_tensor_make(a->cx, a->p, kiln_symbol_text(a->cx, a->t->name), a->t->dtype, KILN_TEMP,
                         a->t->rank, a->t->shape);
  memcpy(b.t->order, like->order, sizeof b.t->order);
  kiln_tensor_strides(b.t, b.strides);
  b.s = KILN_NEW(&a->cx->perm, kiln_stmt);
  *b.s = *a->s;
  b.s->out = b.t->id;
  keep_kernel(a, b.t);
  return b;
}

// The phases' statements if each completes a reduction of its own; NULL otherwise.
static kiln_stmt **make_phases(const assembly *a, const phases *f) {
  kiln_stmt **made = KILN_NEW_ARRAY(&a->cx->scratch, kiln_stmt *, f->n);
  kiln_map taken;
  kiln_map_init(&taken, &a->cx->scratch);
  for (int i = 0; i < f->n; i++) {
    const box b = phase_box(a, f, i);
    made[i] = make_piece(a, &b, f->period);
    if (!take_reduction(a, made[i], &taken)) return NULL;
  }
  return taken.n >= 2 ? made : NULL;
}

// Splits the statement into phases if that pays.
static bool cut_phases(assembly *a, pieces *out) {
  phases f;
  const int n_tensors = a->p->tensors.n;
  if (!find_phases(a, &f)) return false;
  const kiln_tensor *turned = find_turned(a);
  assembly apart = turned ? set_apart(a, turned) : *a;
  kiln_stmt **made = make_phases(&apart, &f);
  if (!made) {
    a->p->tensors.n = n_tensors;
    kiln_facts_cut(a->facts, n_tensors);
    return false;
  }
  store_phases(&apart, &f, made, out);
  if (turned) {
    KILN_VEC_PUSH(&a->cx->scratch, out, apart.s);
    a->s->body = load_piece(a, apart.s, &(box){0}, NULL);
  }
  return true;
}

// Which tensors may be concatenated in place.
typedef struct placing {
  bool outputs;    // also outputs of the model, else temporaries only
  bool phases;     // maps that select by remainders
  int align_bytes; // alignment of parts
} placing;

static void concat_in_place(kiln_ctx *cx, kiln_program *p, kiln_facts *facts, kiln_stmt *s,
                            const placing *may, bool copies, pieces *out) {
  assembly a = {.cx = cx, .p = p, .facts = facts, .s = s, .t = p->tensors.data[s->out]};
  if (a.t->role != KILN_TEMP && !may->outputs) return;
  if (a.t->rank == 0 || !kiln_stmt_is_map(cx, s)) return;
  if (!kiln_tensor_static_shape(a.t, a.shape) || !has_frame(cx, s)) return;
  kiln_tensor_strides(a.t, a.strides);
  if ((may->phases && cut_phases(&a, out)) || !find_parts(&a, copies)) return;
  if (!are_aligned(&a, may->align_bytes)) return;
  for (int i = 0; i < a.parts.n; i++)
    put_inside(&a, a.parts.data[i].tensor, &a.parts.data[i].where, NULL);
  for (int i = 0; i < a.n_boxes; i++)
    KILN_VEC_PUSH(&cx->scratch, out, make_piece(&a, &a.boxes[i], NULL));
  kiln_fact_at(cx, facts, s->out)->assembled = true;
}

// Inserts the pieces before their assembled statements and renumbers; dead statements are dropped.
static void insert_pieces(kiln_ctx *cx, kiln_program *p, const pieces *of) {
  const int n = p->stmts.n;
  kiln_stmt **old = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, n);
  if (n > 0) memcpy(old, p->stmts.data, (size_t)n * sizeof *old);
  p->stmts.n = 0;
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < of[i].n; k++) KILN_VEC_PUSH(&cx->perm, &p->stmts, of[i].data[k]);
    if (old[i]) KILN_VEC_PUSH(&cx->perm, &p->stmts, old[i]);
  }
  kiln_stmts_compact(p);
}

// Whether |x| is the result of a contraction, or of a map with as many elements of one.
static bool is_contracted(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                          const kiln_tensor *x) {
  const kiln_expr *a = NULL, *b = NULL;
  const kiln_stmt *s = x->def < 0 ? NULL : p->stmts.data[x->def];
  if (!s || kiln_fact_of(facts, x->id).kernel) return false;
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

// Whether |s| is a depthwise product of |x| with contiguous channels.
static bool is_depthwise(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, int x) {
  const kiln_expr *a = NULL, *b = NULL;
  if (!kiln_stmt_is_contraction(s, &a, &b)) return false;
  const kiln_expr *data = a->u.tensor == x ? a : b, *weights = a->u.tensor == x ? b : a;
  for (int d = 0; d < s->n_space; d++)
    if (kiln_load_stride(cx, p, data, s->dims[d].name) == 1 && kiln_dim_extent(&s->dims[d]) > 1)
      return kiln_expr_uses(weights, s->dims[d].name);
  return false;
}

// Whether |s| pads a program input without changing its storage order: then rows are copied, which
// otherwise would be selected element by element.
static bool pads_input(const kiln_program *p, const kiln_stmt *s, const kiln_expr *load) {
  const kiln_tensor *x = p->tensors.data[load->u.tensor], *t = p->tensors.data[s->out];
  return x->role == KILN_INPUT && t->role == KILN_TEMP && x->rank == t->rank && has_order(x, t) &&
         s->body->kind == KILN_EXPR_SELECT;
}

// Whether the decision may be deferred: |s| pads the result of a contraction and its only reader is
// a depthwise convolution; or an input that a contraction reads.
static bool may_wait(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                     const kiln_users *users, const kiln_stmt *s) {
  const int first = users->first[s->out];
  if (!kiln_stmt_is_map(cx, s) || users->first[s->out + 1] - first != 1) return false;
  const kiln_expr *a = NULL, *b = NULL;
  const kiln_stmt *reader = p->stmts.data[users->users[first]];
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, s->body);
  if (loads.n != 1) return false;
  if (pads_input(p, s, loads.data[0])) return kiln_stmt_is_contraction(reader, &a, &b);
  return is_depthwise(cx, p, reader, s->out) &&
         is_contracted(cx, p, facts, p->tensors.data[loads.data[0]->u.tensor]);
}

static bool reads_many(kiln_ctx *cx, const kiln_stmt *s) {
  return s->body->kind == KILN_EXPR_SELECT &&
         kiln_loads_of(cx, &cx->scratch, s->body).n > MANY_PARTS;
}

// needs: kiln_tile_layout has run
// gives: statements renumbered
kiln_status kiln_tile_concat_in_place(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                                      const kiln_machine *m) {
  const kiln_target *t = m->target;
  const placing may = {!t->has_grids, t->has_vectors, t->param_align_bytes};
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_users users = kiln_users_make(cx, &cx->scratch, p);
  pieces *of = KILN_NEW_ARRAY(&cx->scratch, pieces, p->stmts.n);
  for (int i = p->stmts.n - 1; i >= 0; i--) {
    kiln_stmt *s = p->stmts.data[i];
    if (!s) continue;
    if (!t->has_grids && may_wait(cx, p, facts, &users, s))
      kiln_fact_at(cx, facts, s->out)->waits = true;
    else concat_in_place(cx, p, facts, s, &may, t->has_vectors && reads_many(cx, s), &of[i]);
  }
  insert_pieces(cx, p, of);
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

kiln_status kiln_tile_materialize(kiln_ctx *cx, kiln_program *p, kiln_facts *facts, int n,
                                  const int *stmts) {
  const placing all = {true, true, 1};
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  pieces *of = KILN_NEW_ARRAY(&cx->scratch, pieces, p->stmts.n);
  for (int i = n - 1; i >= 0; i--) {
    kiln_stmt *s = p->stmts.data[stmts[i]];
    kiln_fact_at(cx, facts, s->out)->waits = false;
    concat_in_place(cx, p, facts, s, &all, true, &of[stmts[i]]); // on GPUs none is deferred
  }
  insert_pieces(cx, p, of);
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

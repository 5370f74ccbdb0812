// A scatter whose positions are known at compile time becomes a map: each element finds the
// iteration that writes it. Exporters write assignments to slices so.
//     table = 2 3 4;  Y(i0:3) at (table(i0)) = U(i0) init (X(o0))
//                     becomes  Y(i0:8) = i0 >= 2 && i0 < 5 ? U(i0 - 2) : X(i0)
//     table = 5 0 5;  Y(i0) = last(i0) >= 0 ? U(last(i0)) : X(i0),  last = 1 -1 -1 -1 -1 2 -1 -1
// A scatter runs in order along the axes that its indices move along; a map runs in parallel and is
// fused.
//
// Dims that are an axis' index and nothing else keep their axis. The positions along the other axes
// are computed for all iterations of the other dims: lines are inverted, other positions get a
// table of the last iteration that writes there.
#include "analysis/interpret.h"
#include "analysis/simplify.h"
#include "rewrite/constants.h"
#include "rewrite/product.h"
#include "rewrite/rules.h"

#include <string.h>

typedef struct scatter {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_stmt *s;
  kiln_stmt was; // |s| as a scatter
  const kiln_tensor *out;
  int axis_of[KILN_MAX_RANK];       // [dims] the axis that a dim is the index of; -1: it is moved
  bool is_moved[KILN_MAX_RANK];     // [axes] positions are computed
  int64_t extents[KILN_MAX_RANK];   // [dims] of moved dims
  int64_t shape[KILN_MAX_RANK];     // [axes] of moved axes
  int64_t n, n_places;              // iterations of the moved dims, places along the moved axes
  const int64_t *at[KILN_MAX_RANK]; // [axes][n] positions, of moved axes
  const uint8_t *runs;              // [n] whether the guard holds; NULL: there is none
} scatter;

static bool has_constant_positions(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s) {
  bool has = !s->guard || kiln_reads_constants(cx, p, s->guard);
  for (int k = 0; k < p->tensors.data[s->out]->rank; k++)
    has &= kiln_reads_constants(cx, p, s->index[k]);
  return has;
}

// --- moved dims and axes ---

// The axis whose index is dim |d|, if nothing else depends on it; -1: there is none.
static int own_axis(const scatter *c, int d) {
  const kiln_symbol name = c->s->dims[d].name;
  int axis = -1;
  if (c->s->guard && kiln_expr_uses(c->s->guard, name)) return -1;
  for (int k = 0; k < c->out->rank; k++) {
    if (!kiln_expr_uses(c->s->index[k], name)) continue;
    if (axis >= 0 || c->s->index[k]->kind != KILN_EXPR_VAR) return -1;
    axis = k;
  }
  return axis >= 0 && c->s->dims[d].extent == c->out->shape[axis] ? axis : -1;
}

// The product of the n extents of |counted|; -1: one is symbolic, or there are more than |most|.
static int64_t product_of(int n, const kiln_expr *const *extents, const bool *counted, int64_t most,
                          int64_t *out_extents) {
  int64_t product = 1;
  for (int i = 0; i < n; i++) {
    out_extents[i] = 1;
    if (!counted[i]) continue;
    if (!kiln_expr_is_int(extents[i], &out_extents[i]) || out_extents[i] < 1) return -1;
    if (__builtin_mul_overflow(product, out_extents[i], &product) || product > most) return -1;
  }
  return product;
}

static bool find_moved(scatter *c) {
  const kiln_expr *extents[KILN_MAX_RANK];
  bool moved[KILN_MAX_RANK];
  for (int k = 0; k < c->out->rank; k++) c->is_moved[k] = true;
  for (int d = 0; d < c->s->n_space; d++) {
    c->axis_of[d] = own_axis(c, d);
    if (c->axis_of[d] >= 0) c->is_moved[c->axis_of[d]] = false;
    moved[d] = c->axis_of[d] < 0;
    extents[d] = c->s->dims[d].extent;
  }
  c->n = product_of(c->s->n_space, extents, moved, KILN_MAX_MOVED_STEPS, c->extents);
  c->n_places =
      product_of(c->out->rank, c->out->shape, c->is_moved, KILN_MAX_MOVED_STEPS, c->shape);
  return c->n > 0 && c->n_places > 0;
}

// --- positions ---

// Adds a statement to |p| whose tensor holds |value| for all iterations of the moved dims.
static int tabulate(const scatter *c, kiln_program *p, const kiln_expr *value) {
  const kiln_expr *extents[KILN_MAX_RANK] = {0}, *vars[KILN_MAX_RANK] = {0};
  kiln_symbol names[KILN_MAX_RANK] = {0};
  int n = 0;
  for (int d = 0; d < c->s->n_space; d++) {
    if (c->axis_of[d] >= 0) continue;
    names[n] = c->s->dims[d].name;
    extents[n++] = c->s->dims[d].extent;
  }
  kiln_stmt *s = kiln_stmt_make(c->cx, p, "positions", value->dtype, n, 0, extents);
  for (int d = 0; d < n; d++) vars[d] = kiln_stmt_var(c->cx, s, d);
  s->body = kiln_expr_substitute(c->cx, value, n, names, vars);
  return s->out;
}

static kiln_status compute(scatter *c, kiln_interpreter *in, const int *tensors, int guard) {
  const void *data = NULL;
  for (int k = 0; k < c->out->rank; k++) {
    if (!c->is_moved[k]) continue;
    KILN_TRY(kiln_interpreter_compute(in, tensors[k], &data));
    int64_t *at = KILN_NEW_ARRAY(&c->cx->scratch, int64_t, c->n);
    memcpy(at, data, sizeof(*at) * (size_t)c->n);
    c->at[k] = at;
  }
  if (guard < 0) return KILN_OK;
  KILN_TRY(kiln_interpreter_compute(in, guard, &data));
  uint8_t *runs = KILN_NEW_ARRAY(&c->cx->scratch, uint8_t, c->n);
  memcpy(runs, data, (size_t)c->n);
  c->runs = runs;
  return KILN_OK;
}

static void destroy(void *interpreter) { kiln_interpreter_destroy(interpreter); }

static kiln_status find_positions(scatter *c) {
  kiln_program *p = kiln_program_copy(c->cx, c->p);
  kiln_interpreter *in = NULL;
  int tensors[KILN_MAX_RANK] = {0};
  for (int k = 0; k < c->out->rank; k++)
    if (c->is_moved[k]) tensors[k] = tabulate(c, p, c->s->index[k]);
  const int guard = c->s->guard ? tabulate(c, p, c->s->guard) : -1;
  kiln_stmts_renumber(p);
  KILN_TRY(kiln_interpreter_create(c->cx, p, &in));
  kiln_cleanup_push(c->cx, destroy, in);
  const kiln_status status = compute(c, in, tensors, guard);
  kiln_cleanup_pop(c->cx);
  kiln_interpreter_destroy(in);
  return status;
}

// --- the inverse ---

// What a place's element is computed from.
typedef struct inverse {
  const kiln_expr *covered;               // an iteration writes the place; NULL: always
  const kiln_expr *values[KILN_MAX_RANK]; // [dims] of that iteration
} inverse;

// Moves |io| to the next iteration of the moved dims.
static void step(const scatter *c, int64_t *io) {
  for (int d = c->s->n_space - 1; d >= 0 && ++io[d] >= c->extents[d]; d--) io[d] = 0;
}

// Position = first + step * dim.
typedef struct line {
  int dim; // -1: the position is always |first|
  int64_t first, step;
} line;

static bool fits(const scatter *c, const line *lines) {
  int64_t at[KILN_MAX_RANK] = {0};
  for (int64_t i = 0; i < c->n; i++, step(c, at)) {
    if (c->runs && !c->runs[i]) return false;
    for (int k = 0; k < c->out->rank; k++)
      if (c->is_moved[k] &&
          c->at[k][i] != lines[k].first + (lines[k].dim < 0 ? 0 : lines[k].step * at[lines[k].dim]))
        return false;
  }
  return true;
}

// Positions along each axis that are a line of one dim, and each dim that of one axis.
static bool find_lines(const scatter *c, line *out) {
  int64_t stride = 1;
  for (int k = 0; k < c->out->rank; k++)
    out[k] = (line){.dim = -1, .first = c->is_moved[k] ? c->at[k][0] : 0};
  for (int d = c->s->n_space - 1; d >= 0; stride *= c->extents[d--]) {
    int n = 0;
    for (int k = 0; k < c->out->rank && c->extents[d] > 1; k++) {
      if (!c->is_moved[k] || c->at[k][stride] == out[k].first) continue;
      if (out[k].dim >= 0) return false;
      out[k] = (line){d, out[k].first, c->at[k][stride] - out[k].first};
      n++;
    }
    if (c->extents[d] > 1 && n != 1) return false;
  }
  return fits(c, out);
}

static const kiln_expr *within(kiln_ctx *cx, const kiln_expr *e, int64_t most) {
  return kiln_both(cx, kiln_binary(cx, KILN_EXPR_GE, e, kiln_int(cx, 0)),
                   kiln_binary(cx, KILN_EXPR_LE, e, kiln_int(cx, most)));
}

static void invert_line(const scatter *c, const line *l, const kiln_expr *place, inverse *io) {
  kiln_ctx *cx = c->cx;
  const kiln_expr *first = kiln_int(cx, l->first);
  if (l->dim < 0) {
    io->covered = kiln_both(cx, io->covered, kiln_binary(cx, KILN_EXPR_EQ, place, first));
    return;
  }
  const int64_t size = l->step < 0 ? -l->step : l->step;
  const kiln_expr *d = l->step < 0 ? kiln_sub(cx, first, place) : kiln_sub(cx, place, first);
  io->covered = kiln_both(cx, io->covered, within(cx, d, size * (c->extents[l->dim] - 1)));
  if (size > 1)
    io->covered = kiln_both(
        cx, io->covered,
        kiln_binary(cx, KILN_EXPR_EQ, kiln_mod(cx, d, kiln_int(cx, size)), kiln_int(cx, 0)));
  io->values[l->dim] = kiln_div(cx, d, kiln_int(cx, size));
}

// The last iteration that writes each place, -1 for none; false if several write one place and it
// is not the last that counts.
static bool find_last(const scatter *c, int32_t *out) {
  memset(out, -1, sizeof(*out) * (size_t)c->n_places);
  for (int64_t i = 0; i < c->n; i++) {
    int64_t place = 0;
    if (c->runs && !c->runs[i]) continue;
    for (int k = 0; k < c->out->rank; k++) {
      if (!c->is_moved[k]) continue;
      if (c->at[k][i] < 0 || c->at[k][i] >= c->shape[k]) return false;
      place = place * c->shape[k] + c->at[k][i];
    }
    if (out[place] >= 0 && c->s->combiner != KILN_COMBINE_NONE) return false;
    out[place] = (int32_t)i;
  }
  return true;
}

static bool invert_table(const scatter *c, const kiln_expr *const *places, inverse *out) {
  kiln_ctx *cx = c->cx;
  kiln_const table = {.dtype = KILN_I32, .bytes = sizeof(int32_t) * (size_t)c->n_places};
  int32_t *last = kiln_arena_alloc(&cx->perm, table.bytes);
  const kiln_expr *index[KILN_MAX_RANK] = {0};
  if (!find_last(c, last)) return false;
  for (int k = 0; k < c->out->rank; k++) {
    if (!c->is_moved[k]) continue;
    index[table.rank] = places[k];
    table.shape[table.rank++] = c->shape[k];
  }
  table.data = last;
  const kiln_tensor *t = kiln_tensor_make_const(cx, c->p, "last", &table);
  const kiln_expr *from = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, t, index));
  out->covered = kiln_binary(cx, KILN_EXPR_GE, from, kiln_int(cx, 0));
  int64_t stride = 1;
  for (int d = c->s->n_space - 1; d >= 0; stride *= c->extents[d--]) {
    if (c->axis_of[d] >= 0) continue;
    const kiln_expr *e = kiln_div(cx, from, kiln_int(cx, stride));
    out->values[d] =
        stride * c->extents[d] < c->n ? kiln_mod(cx, e, kiln_int(cx, c->extents[d])) : e;
  }
  return true;
}

static bool invert(const scatter *c, const kiln_expr *const *places, inverse *out) {
  line lines[KILN_MAX_RANK];
  *out = (inverse){0};
  for (int d = 0; d < c->s->n_space; d++)
    out->values[d] = c->axis_of[d] < 0 ? kiln_int(c->cx, 0) : places[c->axis_of[d]];
  if (!find_lines(c, lines)) return invert_table(c, places, out);
  for (int k = 0; k < c->out->rank; k++)
    if (c->is_moved[k]) invert_line(c, &lines[k], places[k], out);
  return true;
}

// --- the map ---

static void make_map(const scatter *c, const kiln_symbol *names, const kiln_expr *const *places,
                     const inverse *from) {
  kiln_ctx *cx = c->cx;
  kiln_stmt *s = c->s;
  kiln_symbol dims[KILN_MAX_RANK], axes[KILN_MAX_RANK];
  for (int d = 0; d < s->n_space; d++) dims[d] = s->dims[d].name;
  for (int k = 0; k < c->out->rank; k++) axes[k] = kiln_symbol_printf(cx, "o%d", k);
  const kiln_expr *init = s->init ? kiln_expr_substitute(cx, s->init, c->out->rank, axes, places)
                                  : kiln_combiner_identity(cx, s->combiner, c->out->dtype);
  const kiln_expr *body = kiln_expr_substitute(cx, s->body, s->n_space, dims, from->values);
  if (s->combiner != KILN_COMBINE_NONE) body = kiln_combine(cx, s->combiner, init, body);
  s->body = from->covered ? kiln_select(cx, from->covered, body, init) : body;
  s->n_space = c->out->rank;
  s->dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, c->out->rank);
  s->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, c->out->rank);
  for (int k = 0; k < c->out->rank; k++) {
    s->dims[k] = (kiln_dim){names[k], c->out->shape[k]};
    s->index[k] = places[k];
  }
  s->combiner = KILN_COMBINE_NONE;
  s->guard = s->init = NULL;
  s->body = kiln_stmt_simplify(cx, s, s->body);
}

// Whether |c| has the positions of |known|, as the scatters of a model's equal layers have.
static bool has_positions_of(const scatter *c, const scatter *known) {
  const kiln_stmt *s = &c->was, *k = &known->was;
  if (known->n == 0 || s->n_space != k->n_space || s->guard != k->guard ||
      c->out->rank != known->out->rank)
    return false;
  for (int d = 0; d < s->n_space; d++)
    if (s->dims[d].name != k->dims[d].name || s->dims[d].extent != k->dims[d].extent ||
        c->axis_of[d] != known->axis_of[d])
      return false;
  for (int a = 0; a < c->out->rank; a++)
    if (s->index[a] != k->index[a]) return false;
  return true;
}

// Memory above |mark| holds the positions of |io_last|.
static kiln_status apply(kiln_ctx *cx, kiln_program *p, kiln_stmt *s, kiln_mark mark,
                         scatter *io_last, int *io_n) {
  scatter c = {.cx = cx, .p = p, .s = s, .was = *s, .out = p->tensors.data[s->out]};
  kiln_symbol names[KILN_MAX_RANK] = {0};
  const kiln_expr *places[KILN_MAX_RANK] = {0};
  inverse from;
  if (!kiln_stmt_is_scatter(p, s) || s->n_reduce > 0 || kiln_stmt_reads_itself(cx, p, s) ||
      !has_constant_positions(cx, p, s) || !find_moved(&c))
    return KILN_OK;
  if (has_positions_of(&c, io_last)) {
    memcpy(c.at, io_last->at, sizeof c.at);
    c.runs = io_last->runs;
  } else {
    kiln_arena_rewind(&cx->scratch, mark);
    KILN_TRY(find_positions(&c));
  }
  *io_last = c;
  for (int k = 0; k < c.out->rank; k++) {
    names[k] = kiln_symbol_printf(cx, "i%d", k);
    places[k] = kiln_var(cx, names[k]);
  }
  if (!invert(&c, places, &from)) return KILN_OK;
  make_map(&c, names, places, &from);
  ++*io_n;
  return KILN_OK;
}

kiln_status kiln_rule_scatters(kiln_ctx *cx, kiln_program *p, int *out_n) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_status status = KILN_OK;
  scatter last = {.n = 0};
  *out_n = 0;
  for (int i = 0; i < p->stmts.n && status == KILN_OK; i++)
    status = apply(cx, p, p->stmts.data[i], mark, &last, out_n);
  kiln_arena_rewind(&cx->scratch, mark);
  return status;
}

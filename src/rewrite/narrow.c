// Constants that are stored in few bits and widened for a product stay as they are stored:
//     Y(s) = sum_r A(s, r) f(n) (w(r, n) - z(n))
// becomes
//     P(s) = sum_r A(s, r) w(r, n)
//     Y(s) = f(n) (P(s) - z(n) sum_r A(s, r))
// for w in 16 or 8 bits, if there are so few rows that a run is bound by reading w. A cast, a
// dequantization with one scale for each column, and a product by hand are such factors. The bits
// of a float in 8 bits are those of one in 16, shifted:
//     e5m2  s eeeee mm    = f16  s eeeee mm00000000
//     e4m3  s eeee mmm    = f16  s 0eeee mmm0000000 * 2^8
//
// Where f and z belong to blocks b of the sum, of weights that are unpacked from words, the sums of
// blocks are scaled:
//     P(s, b) = sum_k A(s, b, k) w(b, k, n)
//     Y(s) = sum_b f(b, n) (P(s, b) - z(b, n) sum_k A(s, b, k))
#include "ir/encoding.h"
#include "rewrite/dce.h"
#include "rewrite/product.h"
#include "rewrite/rules.h"

enum {
  MOST_ROWS = 31,       // more are bound by multiplications: weights are widened once
  LEAST_ELEMS = 1 << 18 // a smaller constant stays in a core's caches as f32
};

typedef struct narrowing {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_bilinear product;
  kiln_ranges ranges;
  const kiln_expr *other;                   // A
  const kiln_expr *weights, *factor, *zero; // w widened; f, z: NULL where there is none
  unsigned blocks;                          // reduction dims of the blocks, a bit mask
} narrowing;

// --- matching ---

// Loads of maps of constants replaced by the maps' bodies.
static const kiln_expr *opened(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const narrowing *w = argument;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_stmt *s = kiln_map_of(cx, w->p, e->u.tensor);
  if (!s) return e;
  kiln_symbol vars[KILN_MAX_RANK];
  for (int k = 0; k < s->n_space; k++) vars[k] = s->dims[k].name;
  const kiln_expr *body = kiln_expr_substitute(cx, s->body, s->n_space, vars, e->args);
  return kiln_expr_replace(cx, body, opened, argument);
}

static bool moves_in_sum(const narrowing *w, const kiln_expr *e) {
  return kiln_stmt_reduces_along(w->product.s, e);
}

static const kiln_expr *times(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return a ? kiln_mul(cx, a, b) : b;
}

// Takes factors that do not move in the sum, and then a zero point, off |e|.
static const kiln_expr *peeled(narrowing *w, const kiln_expr *e) {
  while (e->kind == KILN_EXPR_MUL) {
    const int i = moves_in_sum(w, e->args[0]) ? 1 : 0;
    if (moves_in_sum(w, e->args[i])) return e;
    w->factor = times(w->cx, w->factor, e->args[i]);
    e = e->args[!i];
  }
  if (e->kind != KILN_EXPR_SUB || moves_in_sum(w, e->args[1])) return e;
  w->zero = e->args[1];
  return e->args[0];
}

// The constant under casts that keep its values; NULL if |e| is anything else.
static const kiln_expr *stored_in(const kiln_program *p, const kiln_expr *e) {
  const kiln_dtype t = e->dtype;
  while (e->kind == KILN_EXPR_CAST && (kiln_dtype_is_int(e->dtype) || e->dtype == t))
    e = e->args[0];
  if (e->kind != KILN_EXPR_LOAD || p->tensors.data[e->u.tensor]->role != KILN_CONST) return NULL;
  const kiln_dtype from = e->dtype;
  return from == KILN_F16 || from == KILN_BF16 || from == KILN_I8 || from == KILN_U8 ? e : NULL;
}

// Whether an element of |t|, of type e4m3, is no number; its bits are not those of one in f16.
static bool has_nan(const kiln_tensor *t) {
  const uint8_t *at = t->data;
  for (size_t i = 0; i < t->bytes; i++)
    if ((at[i] & 0x7f) == 0x7f) return true;
  return false;
}

static void find_code(const kiln_expr *e, void *argument) {
  const kiln_expr **out = argument;
  if (e->kind == KILN_EXPR_LOAD && kiln_dtype_is_code(e->dtype)) *out = e;
}

// If |w->weights| are decoded from 8 bits: the load, and |w| with the weights decoded by way of
// f16; NULL otherwise.
static const kiln_expr *decoded_from(narrowing *w) {
  kiln_ctx *cx = w->cx;
  const kiln_expr *load = NULL;
  kiln_expr_visit(cx, w->weights, find_code, &load);
  if (!load || (load->dtype != KILN_F8E4M3FN && load->dtype != KILN_F8E5M2) ||
      w->weights != kiln_decode(cx, load))
    return NULL;
  const kiln_tensor *t = w->p->tensors.data[load->u.tensor];
  const bool is_e4m3 = load->dtype == KILN_F8E4M3FN;
  if (t->role != KILN_CONST || !t->data || (is_e4m3 && has_nan(t))) return NULL;
  const kiln_expr *bits = kiln_cast(cx, KILN_I16, kiln_bitcast(cx, KILN_I8, load));
  bits = kiln_binary(cx, KILN_EXPR_SHL, bits, kiln_int_of(cx, KILN_I16, is_e4m3 ? 7 : 8));
  if (is_e4m3) {
    bits = kiln_binary(cx, KILN_EXPR_BAND, bits, kiln_int_of(cx, KILN_I16, (int16_t)0xbf80));
    w->factor = times(cx, w->factor, kiln_float(cx, KILN_F32, 0x1p8));
  }
  w->weights = kiln_cast(cx, KILN_F32, kiln_bitcast(cx, KILN_F16, bits));
  return load;
}

// The rows that share a weight.
static int64_t rows_of(const narrowing *w) {
  const kiln_stmt *s = w->product.s;
  int64_t rows = 1;
  for (int d = 0; d < s->n_space; d++)
    if (!kiln_expr_uses(w->weights, s->dims[d].name)) rows *= kiln_dims_elems(1, &s->dims[d]);
  return rows;
}

static bool has_loads_as_indices(const kiln_expr *load) {
  for (int k = 0; k < load->n_args; k++)
    if (load->args[k]->has_load) return true;
  return false;
}

// Matches operand |i| with f (w - z), w being smaller as it is stored.
static bool match(narrowing *w, int i) {
  const kiln_expr *load = w->product.args[i];
  if (load->kind != KILN_EXPR_LOAD || !kiln_map_of(w->cx, w->p, load->u.tensor) ||
      kiln_tensor_elems(w->p->tensors.data[load->u.tensor]) < LEAST_ELEMS)
    return false;
  const kiln_expr *e = kiln_simplify(w->cx, kiln_expr_replace(w->cx, load, opened, w), &w->ranges);
  if (!kiln_reads_constants(w->cx, w->p, e)) return false;
  w->factor = w->zero = NULL;
  w->weights = peeled(w, e);
  w->other = w->product.args[!i];
  const kiln_expr *stored = stored_in(w->p, w->weights);
  if (!stored) stored = decoded_from(w);
  return stored && !has_loads_as_indices(stored) && rows_of(w) <= MOST_ROWS &&
         !kiln_reads_constants(w->cx, w->p, w->other);
}

// --- matching blocks ---

// The reduction dims that |e| uses.
static unsigned reductions_in(const kiln_stmt *s, const kiln_expr *e) {
  unsigned used = 0;
  for (int r = 0; r < s->n_reduce; r++)
    if (kiln_expr_uses(e, s->dims[s->n_space + r].name)) used |= 1u << r;
  return used;
}

// Sorts the factors of the product |e| into A, w - z and f; false: there is more than one w.
static bool sort_factors(narrowing *w, const kiln_expr *e) {
  if (e->kind == KILN_EXPR_MUL) return sort_factors(w, e->args[0]) && sort_factors(w, e->args[1]);
  if (!kiln_reads_constants(w->cx, w->p, e)) {
    w->other = times(w->cx, w->other, e);
  } else if (kiln_expr_decodes(w->cx, e)) {
    if (w->weights) return false;
    w->weights = e;
  } else {
    w->factor = times(w->cx, w->factor, e);
  }
  return true;
}

// Matches a sum of A f (w - z) in which f or z move in some of the reduction dims only.
static bool match_blocks(narrowing *w, kiln_stmt *y) {
  if (y->combiner != KILN_COMBINE_SUM || y->n_reduce < 2 || y->guard || y->init ||
      y->body->kind != KILN_EXPR_MUL || !kiln_dtype_is_float(y->body->dtype) ||
      !kiln_stmt_is_plain(w->cx, y))
    return false;
  w->product.s = y;
  w->other = w->weights = w->factor = w->zero = NULL;
  if (!sort_factors(w, y->body) || !w->other || !w->weights) return false;
  const kiln_expr *e = w->weights;
  if (e->kind == KILN_EXPR_SUB && !kiln_expr_decodes(w->cx, e->args[1])) {
    w->weights = e->args[0];
    w->zero = e->args[1];
  }
  if (w->factor) w->blocks = reductions_in(y, w->factor);
  if (w->zero) w->blocks |= reductions_in(y, w->zero);
  return w->blocks && w->blocks != (1u << y->n_reduce) - 1 && rows_of(w) <= MOST_ROWS;
}

// --- rewriting ---

// A sum of |body| over the dims of the product that it uses, but for those of blocks, and a load of
// it at these. Blocks are in front of the last dim, which stays contiguous.
static const kiln_expr *sum_of(narrowing *w, const kiln_expr *body) {
  const kiln_stmt *y = w->product.s;
  const kiln_expr *extents[2 * KILN_MAX_RANK], *values[2 * KILN_MAX_RANK], *index[KILN_MAX_RANK];
  kiln_symbol vars[2 * KILN_MAX_RANK];
  int order[2 * KILN_MAX_RANK], n = 0, n_dims = 0, n_space = 0;
  for (int d = 0; d + 1 < y->n_space; d++) order[n_dims++] = d;
  for (int r = 0; r < y->n_reduce; r++)
    if (w->blocks >> r & 1) order[n_dims++] = y->n_space + r;
  if (y->n_space > 0) order[n_dims++] = y->n_space - 1;
  for (int r = 0; r < y->n_reduce; r++)
    if (!(w->blocks >> r & 1)) order[n_dims++] = y->n_space + r;
  for (int i = 0; i < n_dims; i++) {
    const int d = order[i];
    const bool is_block = d >= y->n_space && (w->blocks >> (d - y->n_space) & 1);
    if (d < y->n_space && !kiln_expr_uses(body, y->dims[d].name)) continue;
    vars[n] = y->dims[d].name;
    if (d < y->n_space || is_block) index[n_space++] = kiln_stmt_var(w->cx, y, d);
    extents[n++] = y->dims[d].extent;
  }
  kiln_stmt *s =
      kiln_stmt_make(w->cx, w->p, kiln_symbol_text(w->cx, w->p->tensors.data[y->out]->name),
                     y->body->dtype, n_space, n - n_space, extents);
  for (int d = 0; d < n; d++) values[d] = kiln_stmt_var(w->cx, s, d);
  s->combiner = KILN_COMBINE_SUM;
  s->body = kiln_expr_substitute(w->cx, body, n, vars, values);
  s->origin = y->origin;
  return kiln_tensor_load(w->cx, w->p->tensors.data[s->out], index);
}

// Leaves the reduction dims of blocks to |y|.
static void reduce_blocks(const narrowing *w, kiln_stmt *y) {
  const int n_reduce = y->n_reduce;
  y->n_reduce = 0;
  for (int r = 0; r < n_reduce; r++)
    if (w->blocks >> r & 1) y->dims[y->n_space + y->n_reduce++] = y->dims[y->n_space + r];
  if (y->n_reduce == 0) y->combiner = KILN_COMBINE_NONE;
}

// The sums precede the original statement, which becomes a map or a sum of them.
static void rewrite(narrowing *w) {
  kiln_ctx *cx = w->cx;
  kiln_stmt *y = w->product.s;
  const kiln_expr *product = kiln_mul(cx, w->other, w->weights);
  if (!w->factor && !w->zero) {
    y->body = product;
    return;
  }
  const kiln_expr *e = sum_of(w, product);
  if (w->zero) e = kiln_sub(cx, e, kiln_mul(cx, w->zero, sum_of(w, w->other)));
  reduce_blocks(w, y);
  y->body = times(cx, w->factor, e);
}

static bool narrow(narrowing *w, kiln_stmt *y) {
  w->blocks = 0;
  if (match_blocks(w, y)) {
    rewrite(w);
    return true;
  }
  w->blocks = 0;
  if (!kiln_bilinear_of(w->cx, y, &w->product)) return false;
  w->ranges = kiln_stmt_bounds(w->cx, y);
  for (int i = 0; i < 2; i++)
    if (match(w, i)) {
      rewrite(w);
      return true;
    }
  return false;
}

int kiln_rule_narrow(kiln_ctx *cx, kiln_program *p) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const int n = p->stmts.n;
  narrowing w = {.cx = cx, .p = p};
  kiln_stmt **order = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, 3 * n + 1);
  int n_all = 0, n_applied = 0, seen = n;
  for (int i = 0; i < n; i++) { // statements are appended, so visit the first n
    kiln_stmt *s = p->stmts.data[i];
    n_applied += narrow(&w, s);
    while (seen < p->stmts.n) order[n_all++] = p->stmts.data[seen++];
    order[n_all++] = s;
  }
  p->stmts.n = 0;
  for (int i = 0; i < n_all; i++) KILN_VEC_PUSH(&cx->perm, &p->stmts, order[i]);
  kiln_stmts_renumber(p);
  kiln_arena_rewind(&cx->scratch, mark);
  if (n_applied > 0) kiln_program_dce(cx, p);
  return n_applied;
}

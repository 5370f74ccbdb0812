#include "template/form/product.h"

#include "support/integer.h"

#include <string.h>

enum {
  MIN_SIDE = 16,    // the least extent of m: below, a tile would be mostly empty
  MIN_COLUMNS = 5,  // the least extent of n: gemv.c has fewer
  MANY_ROWS = 1024, // from so many rows on, fewer than MIN_SIDE columns are worth a padded tile
  PACKED_WORD = 4,  // floats of 16 bytes
  NARROW = 64 // up to so many, columns are padded to a multiple of MIN_SIDE; above, tiles overlap
};

// The operands that depend on a dim of the contraction.
typedef enum side { SIDE_NONE, SIDE_A, SIDE_B, SIDE_BOTH } side;

// A program while it is brought into the form.
typedef struct making {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_stmt *t;                      // the contraction
  const kiln_expr *a, *b;            // its operands: b has the result's contiguous dim
  int n;                             // number of the result's dims
  int rows, n_rows;                  // m numbers dims [rows, rows + n_rows),
  int columns;                       // n the dims from |columns| on;
  int n_batch, batch[KILN_MAX_RANK]; // the others are batch dims
  int64_t strides[KILN_MAX_RANK];
  bool pads_rows; // few rows are padded, too
  int64_t m_extent, m_padded, n_extent, n_padded, k_extent, k_padded;
  kiln_symbol m, nn, k;                       // names of the new dims
  kiln_symbol vars[2 * KILN_MAX_RANK];        // the old dims, by position in |t|,
  const kiln_expr *values[2 * KILN_MAX_RANK]; // and their values in terms of the new ones
} making;

static side side_of(const making *w, kiln_symbol v) {
  return (kiln_expr_uses(w->a, v) ? SIDE_A : SIDE_NONE) |
         (kiln_expr_uses(w->b, v) ? SIDE_B : SIDE_NONE);
}

static int64_t extent_of(const making *w, int d) { return kiln_dim_extent(&w->t->dims[d]); }

bool kiln_product_finishes(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *t,
                           const kiln_stmt *y) {
  const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, y);
  int n = 0;
  if (y->n_reduce || y->guard || y->init || y->n_space != t->n_space) return false;
  for (int i = 0; i < loads.n; i++) {
    if (loads.data[i]->u.tensor != t->out) continue;
    n++;
    for (int k = 0; k < loads.data[i]->n_args; k++)
      if (loads.data[i]->args[k] != kiln_var(cx, y->dims[k].name)) return false;
  }
  for (int d = 0; d < y->n_space; d++)
    if (y->dims[d].name != t->dims[d].name) return false;
  return n == 1;
}

static const kiln_expr *drop_rounding(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_expr *half = e->kind == KILN_EXPR_CAST ? e->args[0] : e;
  if (e->dtype != KILN_F32 || half->kind != KILN_EXPR_CAST || !kiln_dtype_is_half(half->dtype) ||
      half->args[0]->dtype != KILN_F32)
    return NULL;
  return kiln_expr_replace(cx, half->args[0], drop_rounding, argument);
}

const kiln_expr *kiln_product_unrounded(kiln_ctx *cx, const kiln_expr *e) {
  return kiln_expr_replace(cx, e, drop_rounding, NULL);
}

// The first of the longest range of dims that ends with |end| and depends on side |s| alone.
static int run_of(const making *w, int end, side s) {
  int first = end;
  while (first > 0 && side_of(w, w->t->dims[first - 1].name) == s &&
         (first == end || w->strides[first - 1] == w->strides[first] * extent_of(w, first)))
    first--;
  return first;
}

// Finds the operands: |b| depends on the result's contiguous dim.
static bool find_factors(making *w) {
  w->n = w->t->n_space;
  if (w->n < (w->pads_rows ? 1 : 2) || !kiln_stmt_is_product(w->t, &w->a, &w->b)) return false;
  const side last = side_of(w, w->t->dims[w->n - 1].name);
  if (last == SIDE_A) {
    const kiln_expr *other = w->a;
    w->a = w->b;
    w->b = other;
  }
  return last == SIDE_A || last == SIDE_B;
}

static bool is_constant(const making *w, const kiln_expr *factor) {
  const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, factor);
  return loads.n == 1 && w->p->tensors.data[loads.data[0]->u.tensor]->role == KILN_CONST;
}

// Columns to whose multiple rows of packed weights are padded: whole words of 16 bytes, which costs
// little memory. Halves are not: the last tile of columns would begin within a word, where TMA
// cannot copy.
static int64_t packed_unit(const making *w) {
  return is_constant(w, w->b) && w->b->dtype == KILN_F32 ? PACKED_WORD : 1;
}

// Whether tensor cores multiply the rows, padded to those of an instruction: the time of such a
// product is that of reading the columns once.
static bool are_few(const making *w) {
  enum { MIN_FEW_COLUMNS = 32, MIN_FEW_TERMS = 64, WORD_HALVES = 8 };
  return w->pads_rows && w->m_extent < MIN_SIDE && kiln_dtype_is_half(w->a->dtype) &&
         w->a->dtype == w->b->dtype && w->p->tensors.data[w->t->out]->dtype == KILN_F32 &&
         w->n_extent >= MIN_FEW_COLUMNS && w->k_extent >= MIN_FEW_TERMS &&
         w->n_padded % WORD_HALVES == 0;
}

// |k| terms of packed weights padded to whole long steps, where few are added: a block of few rows
// has little to do in a short one.
static int64_t long_steps(int64_t k) {
  enum { LONG_STEP = 128, MOST_ADDED = 16 }; // a 16th
  int64_t step = LONG_STEP;
  while (kiln_round_up(k, step) - k > k / MOST_ADDED) step /= 2;
  return kiln_round_up(k, step);
}

static bool find_dims(making *w) {
  if (!find_factors(w)) return false;
  w->columns = run_of(w, w->n, SIDE_B);
  // the end of the rows; groups of channels may lie between them and the columns
  int end = w->columns;
  while (end > 0 && side_of(w, w->t->dims[end - 1].name) == SIDE_BOTH) end--;
  w->rows = run_of(w, end, SIDE_A);
  w->n_rows = end - w->rows;
  if (w->n_rows == 0 && !w->pads_rows) return false;
  for (int d = 0; d < w->columns; d++)
    if (d < w->rows || d >= end) w->batch[w->n_batch++] = d;
  w->m_extent = w->n_extent = w->k_extent = 1;
  for (int d = w->rows; d < end; d++) w->m_extent *= extent_of(w, d);
  for (int d = w->columns; d < w->n; d++) w->n_extent *= extent_of(w, d);
  for (int d = w->n; d < w->n + w->t->n_reduce; d++) w->k_extent *= extent_of(w, d);
  w->k_padded = kiln_round_up(w->k_extent, KILN_PRODUCT_STEP);
  w->n_padded = w->n_extent < NARROW ? kiln_round_up(w->n_extent, MIN_SIDE)
                                     : kiln_round_up(w->n_extent, packed_unit(w));
  w->m_padded = w->m_extent;
  if (are_few(w)) {
    w->m_padded = MIN_SIDE;
    if (is_constant(w, w->b)) w->k_padded = long_steps(w->k_padded);
    return true;
  }
  return w->n_rows > 0 && w->m_extent >= MIN_SIDE &&
         w->n_extent >= (w->m_extent < MANY_ROWS ? MIN_SIDE : MIN_COLUMNS);
}

// --- reductions over reshaped tensors ---

// The step of |v| at which |e|, a digit or quotient of |v|, changes by one; 0 if it is neither.
static int64_t unit_of(const kiln_expr *e, kiln_symbol v) {
  int64_t unit = 1, divisor = 1;
  for (; e->kind == KILN_EXPR_DIV || e->kind == KILN_EXPR_MOD; e = e->args[0]) {
    if (!kiln_expr_is_int(e->args[1], &divisor) || divisor < 1) return 0;
    if (e->kind == KILN_EXPR_DIV) unit *= divisor;
  }
  return e->kind == KILN_EXPR_VAR && e->u.sym == v ? unit : 0;
}

// The weights of the digits into which indices split the number |v|, ascending. For example v / 7
// and v % 7 have the weights 7 and 1.
typedef struct digits {
  kiln_symbol v;
  int64_t weights[KILN_MAX_RANK];
  int n;
} digits;

static void find_digit(const kiln_expr *e, void *argument) {
  digits *d = argument;
  int64_t divisor = 0;
  if (e->kind != KILN_EXPR_DIV && e->kind != KILN_EXPR_MOD) return;
  const int64_t unit = unit_of(e->args[0], d->v);
  if (!unit || !kiln_expr_is_int(e->args[1], &divisor) || d->n == KILN_MAX_RANK) return;
  int at = d->n;
  while (at > 0 && d->weights[at - 1] > unit * divisor) at--;
  if (at > 0 && d->weights[at - 1] == unit * divisor) return;
  for (int i = d->n++; i > at; i--) d->weights[i] = d->weights[i - 1];
  d->weights[at] = unit * divisor;
}

// The digits into which operands that are no constants split reduction dim |d|; n == 0: none do.
static digits digits_of(const making *w, int d) {
  digits all = {.v = w->t->dims[d].name};
  const int64_t extent = extent_of(w, d);
  if (!is_constant(w, w->a)) kiln_expr_visit(w->cx, w->a, find_digit, &all);
  if (!is_constant(w, w->b)) kiln_expr_visit(w->cx, w->b, find_digit, &all);
  while (all.n > 0 && all.weights[all.n - 1] >= extent) all.n--;
  for (int i = 0; i < all.n; i++)
    if ((i + 1 < all.n ? all.weights[i + 1] : extent) % all.weights[i]) all.n = 0;
  return all;
}

// Splits a reduction dim that runs over several axes of an operand into one dim an axis, so that
// they can be numbered in another order. For example, flattened channels and positions of a tensor
// that is stored channels last.
static void take_apart(making *w, int d, const digits *of) {
  kiln_ctx *cx = w->cx;
  const int n = w->t->n_space + w->t->n_reduce;
  const kiln_symbol v = of->v;
  const kiln_expr *number = kiln_int(cx, 0);
  kiln_dim *dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, n + of->n);
  int64_t end = extent_of(w, d);
  memcpy(dims, w->t->dims, (size_t)d * sizeof *dims);
  for (int i = of->n; i >= 0; i--) { // from the highest digit to the lowest
    const int64_t weight = i ? of->weights[i - 1] : 1;
    kiln_dim *digit = &dims[d + of->n - i];
    *digit = (kiln_dim){kiln_symbol_printf(cx, "%s.%d", kiln_symbol_text(cx, v), of->n - i),
                        kiln_int(cx, end / weight)};
    number = kiln_add(cx, number, kiln_mul(cx, kiln_var(cx, digit->name), kiln_int(cx, weight)));
    end = weight;
  }
  memcpy(dims + d + of->n + 1, w->t->dims + d + 1, (size_t)(n - d - 1) * sizeof *dims);
  w->t->dims = dims;
  w->t->n_reduce += of->n;
  w->t->body = kiln_stmt_simplify(cx, w->t, kiln_expr_substitute(cx, w->t->body, 1, &v, &number));
}

static bool take_all_apart(making *w) {
  for (int d = w->t->n_space + w->t->n_reduce - 1; d >= w->t->n_space; d--) {
    const digits of = digits_of(w, d);
    if (!of.n || w->t->n_reduce + of.n > KILN_MAX_RANK) continue;
    take_apart(w, d, &of);
    if (!find_factors(w)) return false;
  }
  return true;
}

// --- numbering ---

// Defines the dims order[0..count) as digits of |number|, the last one lowest.
static void number_dims(making *w, kiln_symbol number, int64_t extent, int count,
                        const int *order) {
  const kiln_expr *v = kiln_var(w->cx, number);
  int64_t weight = 1;
  for (int i = count - 1; i >= 0; i--) {
    const int d = order[i];
    const kiln_expr *digit = kiln_div(w->cx, v, kiln_int(w->cx, weight));
    weight *= extent_of(w, d);
    if (weight < extent || i > 0) digit = kiln_mod(w->cx, digit, kiln_int(w->cx, extent_of(w, d)));
    w->values[d] = digit;
  }
}

// Orders the reduction dims by decreasing stride in |a|, so that neighbours along k are contiguous;
// by |b| if |a| is constant, and therefore packed in any order.
static void order_reduction(const making *w, int *order) {
  int64_t strides[KILN_MAX_RANK];
  const kiln_loads a = kiln_loads_of(w->cx, &w->cx->scratch, w->a),
                   b = kiln_loads_of(w->cx, &w->cx->scratch, w->b);
  const kiln_expr *load = is_constant(w, w->a) && b.n > 0 ? b.data[0] : a.data[0];
  for (int r = 0; r < w->t->n_reduce; r++) {
    int64_t stride = kiln_load_stride(w->cx, w->p, load, w->t->dims[w->n + r].name);
    int at = r;
    if (stride < 0) stride = -stride;
    for (; at > 0 && strides[at - 1] < stride; at--) {
      strides[at] = strides[at - 1];
      order[at] = order[at - 1];
    }
    strides[at] = stride;
    order[at] = w->n + r;
  }
}

static void number_all(making *w) {
  int order[KILN_MAX_RANK];
  w->m = kiln_symbol_of(w->cx, "m");
  w->nn = kiln_symbol_of(w->cx, "n");
  w->k = kiln_symbol_of(w->cx, "k");
  for (int d = 0; d < w->n + w->t->n_reduce; d++) {
    w->vars[d] = w->t->dims[d].name;
    w->values[d] = kiln_var(w->cx, w->vars[d]);
  }
  for (int i = 0; i < w->n_rows; i++) order[i] = w->rows + i;
  number_dims(w, w->m, w->m_extent, w->n_rows, order);
  for (int i = w->columns; i < w->n; i++) order[i - w->columns] = i;
  number_dims(w, w->nn, w->n_extent, w->n - w->columns, order);
  order_reduction(w, order);
  number_dims(w, w->k, w->k_extent, w->t->n_reduce, order);
}

// --- the new statements ---

static void write_plainly(kiln_ctx *cx, kiln_stmt *s, kiln_tensor *t) {
  t->rank = s->n_space;
  t->shape = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, s->n_space);
  for (int d = 0; d < s->n_space; d++) {
    t->shape[d] = s->dims[d].extent;
    t->order[d] = (int8_t)d;
    s->index[d] = kiln_var(cx, s->dims[d].name);
  }
  s->out = t->id;
}

// A statement over the batch dims that |like| uses (NULL: all), then the given dims.
static kiln_stmt *make_over(const kiln_product_numbers *f, const kiln_expr *like, int n_more,
                            const kiln_symbol *names, const int64_t *extents, int n_reduce,
                            kiln_tensor *out) {
  kiln_ctx *cx = f->cx;
  kiln_stmt *s = KILN_NEW(&cx->perm, kiln_stmt);
  int n = 0;
  *s = (kiln_stmt){.origin = f->old->origin, .n_reduce = n_reduce};
  s->dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, f->n_batch + n_more);
  s->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, KILN_MAX_RANK);
  for (int d = 0; d < f->n_batch; d++)
    if (!like || kiln_expr_uses(like, f->batch[d].name)) s->dims[n++] = f->batch[d];
  for (int i = 0; i < n_more; i++) s->dims[n++] = (kiln_dim){names[i], kiln_int(cx, extents[i])};
  s->n_space = n - n_reduce;
  write_plainly(cx, s, out);
  return s;
}

kiln_stmt *kiln_product_over(const kiln_product_numbers *f, int n_more, const kiln_symbol *names,
                             const int64_t *extents, int n_reduce, kiln_tensor *out) {
  return make_over(f, NULL, n_more, names, extents, n_reduce, out);
}

const kiln_expr *kiln_product_renumber(const kiln_product_numbers *f, const kiln_expr *e) {
  return kiln_expr_substitute(f->cx, e, f->n_vars, f->vars, f->values);
}

// |inside| and |name| < |extent|, if |padded| is greater; |inside| NULL: always true.
static const kiln_expr *narrowed(kiln_ctx *cx, const kiln_expr *inside, kiln_symbol name,
                                 int64_t extent, int64_t padded) {
  if (padded == extent) return inside;
  const kiln_expr *more = kiln_binary(cx, KILN_EXPR_LT, kiln_var(cx, name), kiln_int(cx, extent));
  return inside ? kiln_binary(cx, KILN_EXPR_AND, inside, more) : more;
}

// The operand |factor| over (.., first, second); zero in the padding of k and n.
static kiln_stmt *make_operand(const kiln_product_numbers *f, const char *name,
                               const kiln_expr *factor, kiln_symbol first, int64_t first_extent,
                               kiln_symbol second, int64_t second_extent) {
  kiln_ctx *cx = f->cx;
  const kiln_symbol names[] = {first, second};
  const int64_t extents[] = {first_extent, second_extent};
  kiln_tensor *t = kiln_tensor_make(cx, f->p, name, factor->dtype, KILN_TEMP, 0, NULL);
  kiln_stmt *s = make_over(f, factor, 2, names, extents, 0, t);
  s->body = kiln_stmt_simplify(cx, s, kiln_product_renumber(f, factor));
  const kiln_expr *inside = narrowed(cx, NULL, f->k, f->k_extent, f->k_padded);
  if (first == f->m) inside = narrowed(cx, inside, f->m, f->m_extent, f->m_padded);
  if (second == f->n) inside = narrowed(cx, inside, f->n, f->n_extent, f->n_padded);
  if (inside) s->body = kiln_select(cx, inside, s->body, kiln_number(cx, factor->dtype, 0));
  return s;
}

static const kiln_expr *read_operand(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_product_numbers *f = argument;
  const kiln_stmt *s = e == f->left ? f->a : e == f->right ? f->b : NULL;
  const kiln_expr *index[KILN_MAX_RANK];
  if (!s) return NULL;
  for (int d = 0; d < s->n_space; d++) index[d] = kiln_var(cx, s->dims[d].name);
  return kiln_tensor_load(cx, f->p->tensors.data[s->out], index);
}

static kiln_stmt *make_sum(kiln_product_numbers *f) {
  const kiln_symbol names[] = {f->m, f->n, f->k};
  const int64_t extents[] = {f->m_padded, f->n_padded, f->k_padded};
  kiln_stmt *s = make_over(f, NULL, 3, names, extents, 1, f->p->tensors.data[f->old->out]);
  s->combiner = f->old->combiner;
  s->body = kiln_expr_replace(f->cx, f->old->body, read_operand, f);
  return s;
}

// --- epilogue ---

const kiln_expr *kiln_product_read(const kiln_product_numbers *f, const kiln_stmt *s, int n_more,
                                   const kiln_expr *const *more) {
  const kiln_expr *index[KILN_MAX_RANK];
  for (int d = 0; d < f->n_batch; d++) index[d] = kiln_var(f->cx, f->batch[d].name);
  for (int i = 0; i < n_more; i++) index[f->n_batch + i] = more[i];
  return kiln_tensor_load(f->cx, f->p->tensors.data[s->out], index);
}

kiln_stmt *kiln_product_store(const kiln_product_numbers *f, kiln_tensor *y) {
  kiln_stmt *s = kiln_product_over(f, 2, (const kiln_symbol[]){f->m, f->n},
                                   (const int64_t[]){f->m_padded, f->n_extent}, 0, y);
  s->guard = narrowed(f->cx, NULL, f->m, f->m_extent, f->m_padded);
  y->shape[f->n_batch] = kiln_int(f->cx, f->m_extent);
  int64_t *strides = KILN_NEW_ARRAY(&f->cx->perm, int64_t, s->n_space);
  memcpy(strides, f->strides, (size_t)s->n_space * sizeof *strides);
  y->strides = strides;
  return s;
}

static const kiln_expr *read_sum(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_product_numbers *f = argument;
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != f->old->out) return NULL;
  return kiln_product_read(f, f->t, 2,
                           (const kiln_expr *[]){kiln_var(cx, f->m), kiln_var(cx, f->n)});
}

// --- operands that are views ---

bool kiln_product_reads_from(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *operand,
                             int *out_tensor, int64_t *out, int64_t *out_first) {
  const kiln_expr *load = operand->body, *offset = kiln_int(cx, 0);
  kiln_symbol vars[KILN_MAX_RANK];
  const kiln_expr *at[KILN_MAX_RANK], *none[KILN_MAX_RANK];
  int64_t strides[KILN_MAX_RANK];
  if (load->kind != KILN_EXPR_LOAD || operand->n_reduce || operand->guard || operand->init)
    return false;
  *out_tensor = load->u.tensor;
  kiln_tensor_strides(p->tensors.data[load->u.tensor], strides);
  for (int k = 0; k < load->n_args; k++)
    offset = kiln_add(cx, offset, kiln_mul(cx, load->args[k], kiln_int(cx, strides[k])));
  const kiln_ranges r = kiln_stmt_ranges(&cx->scratch, operand);
  for (int d = 0; d < operand->n_space; d++) {
    vars[d] = operand->dims[d].name;
    none[d] = kiln_int(cx, 0);
  }
  const kiln_expr *rest = offset;
  for (int d = 0; d < operand->n_space; d++) {
    for (int k = 0; k < operand->n_space; k++)
      at[k] = kiln_int(cx, k == d && kiln_dim_extent(&operand->dims[d]) > 1);
    const kiln_expr *step =
        kiln_sub(cx, kiln_expr_substitute(cx, offset, operand->n_space, vars, at),
                 kiln_expr_substitute(cx, offset, operand->n_space, vars, none));
    if (!kiln_expr_is_int(kiln_simplify(cx, step, &r), &out[d]) || out[d] < 0) return false;
    rest = kiln_sub(cx, rest, kiln_mul(cx, kiln_var(cx, vars[d]), kiln_int(cx, out[d])));
  }
  return kiln_expr_is_int(kiln_simplify(cx, rest, &r), out_first);
}

bool kiln_product_reads(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *operand,
                        int *out_tensor, int64_t *out) {
  int64_t first = 0;
  return kiln_product_reads_from(cx, p, operand, out_tensor, out, &first) && first == 0;
}

static bool is_read_besides(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *operand,
                            int tensor) {
  for (int i = 0; i < p->stmts.n; i++)
    if (p->stmts.data[i] != operand && kiln_expr_loads(cx, p->stmts.data[i]->body, tensor))
      return true;
  return false;
}

void kiln_product_view(kiln_ctx *cx, kiln_program *p, kiln_stmt *s) {
  int64_t *strides = KILN_NEW_ARRAY(&cx->perm, int64_t, s->n_space);
  int tensor = 0;
  if (!kiln_product_reads(cx, p, s, &tensor, strides)) return;
  kiln_tensor *x = p->tensors.data[tensor];
  if (x->role != KILN_INPUT || is_read_besides(cx, p, s, tensor)) return;
  const kiln_expr *index[KILN_MAX_RANK];
  x->rank = s->n_space;
  x->shape = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, s->n_space);
  x->strides = strides;
  for (int d = 0; d < s->n_space; d++) {
    int at = d;
    x->shape[d] = s->dims[d].extent;
    index[d] = kiln_var(cx, s->dims[d].name);
    for (; at > 0 && strides[x->order[at - 1]] < strides[d]; at--) x->order[at] = x->order[at - 1];
    x->order[at] = (int8_t)d;
  }
  s->body = kiln_tensor_load(cx, x, index);
}

static void tell_numbers(const making *w, kiln_product_numbers *out) {
  *out = (kiln_product_numbers){.cx = w->cx,
                                .p = w->p,
                                .old = w->t,
                                .left = w->a,
                                .right = w->b,
                                .n_batch = w->n_batch,
                                .m = w->m,
                                .n = w->nn,
                                .k = w->k,
                                .m_extent = w->m_extent,
                                .m_padded = w->m_padded,
                                .n_extent = w->n_extent,
                                .n_padded = w->n_padded,
                                .k_extent = w->k_extent,
                                .k_padded = w->k_padded,
                                .n_columns = w->n - w->columns,
                                .n_vars = w->n + w->t->n_reduce};
  for (int d = 0; d < w->n_batch; d++) {
    out->batch[d] = w->t->dims[w->batch[d]];
    out->strides[d] = w->strides[w->batch[d]];
  }
  out->strides[w->n_batch] =
      w->n_rows ? w->strides[w->rows + w->n_rows - 1] : w->n_extent; // of one row
  out->strides[w->n_batch + 1] = w->strides[w->n - 1];
  memcpy(out->vars, w->vars, sizeof out->vars);
  memcpy(out->values, w->values, sizeof out->values);
}

static bool number_product(kiln_ctx *cx, kiln_program *p, kiln_stmt *t, const int64_t *strides,
                           bool pads_rows, kiln_product_numbers *out) {
  making w = {.cx = cx, .p = p, .t = t, .pads_rows = pads_rows};
  memcpy(w.strides, strides, (size_t)t->n_space * sizeof *strides);
  if (!find_dims(&w) || !take_all_apart(&w)) return false;
  number_all(&w);
  tell_numbers(&w, out);
  return true;
}

bool kiln_product_number(kiln_ctx *cx, kiln_program *p, kiln_stmt *t, const int64_t *strides,
                         kiln_product_numbers *out) {
  return number_product(cx, p, t, strides, false, out);
}

void kiln_product_factors(kiln_product_numbers *io) {
  io->a = make_operand(io, "A", io->left, io->m, io->m_padded, io->k, io->k_padded);
  io->b = make_operand(io, "B", io->right, io->k, io->k_padded, io->n, io->n_padded);
  io->t = make_sum(io);
}

void kiln_product_list(const kiln_product_numbers *f, int n_front, kiln_stmt *const *front,
                       int n_behind, kiln_stmt *const *behind) {
  kiln_stmt *const first[] = {f->a, f->b, f->t};
  f->p->stmts.n = 0;
  for (int i = 0; i < n_front; i++) kiln_stmt_append(f->cx, f->p, front[i]);
  for (size_t i = 0; i < KILN_LEN(first); i++) kiln_stmt_append(f->cx, f->p, first[i]);
  for (int i = 0; i < n_behind; i++) kiln_stmt_append(f->cx, f->p, behind[i]);
  kiln_product_view(f->cx, f->p, f->a);
  kiln_product_view(f->cx, f->p, f->b);
}

kiln_stmt *kiln_product_finish(kiln_product_numbers *f, const kiln_stmt *y) {
  kiln_stmt *s = kiln_product_store(f, f->p->tensors.data[y->out]);
  s->combiner = y->combiner;
  s->body = kiln_expr_replace(f->cx, y->body, read_sum, f); // before its dims are renumbered
  s->body = kiln_stmt_simplify(f->cx, s, kiln_product_renumber(f, s->body));
  return s;
}

bool kiln_product_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p) {
  kiln_product_numbers f;
  int64_t strides[KILN_MAX_RANK];
  if (p->stmts.n != 2) return false;
  kiln_stmt *t = p->stmts.data[0], *y = p->stmts.data[1];
  if (!kiln_product_finishes(cx, p, t, y)) return false;
  kiln_tensor_strides(p->tensors.data[y->out], strides);
  const bool pads_rows = m->gpu.capability >= KILN_PRODUCT_CAPABILITY;
  if (!number_product(cx, p, t, strides, pads_rows, &f)) return false;
  kiln_product_factors(&f);
  y = kiln_product_finish(&f, y);
  kiln_product_list(&f, 0, NULL, 1, &y);
  return true;
}

// Whether |load| reads an operand at its own dims. A window (window.h) reads it at others.
static bool is_plain_load(const kiln_expr *load) {
  for (int k = 0; k < load->n_args; k++)
    if (load->args[k]->kind != KILN_EXPR_VAR) return false;
  return true;
}

bool kiln_product_is_of(kiln_stmt *const *s, const kiln_stmt *y, kiln_product *out) {
  const kiln_expr *a = NULL, *b = NULL;
  if (!kiln_stmt_is_contraction(s[2], &a, &b) || !is_plain_load(a) || !is_plain_load(b) ||
      a->u.tensor + b->u.tensor != s[0]->out + s[1]->out ||
      (a->u.tensor != s[0]->out && a->u.tensor != s[1]->out) || s[2]->n_reduce != 1 ||
      y->n_space != s[2]->n_space)
    return false;
  const int rank = s[2]->n_space;
  *out = (kiln_product){.a = s[0], .b = s[1], .t = s[2], .y = y, .n_batch = rank - 2, .batch = 1};
  out->m = kiln_dim_extent(&s[2]->dims[rank - 2]);
  out->n = kiln_dim_extent(&s[2]->dims[rank - 1]);
  out->k = kiln_dim_extent(&s[2]->dims[rank]);
  for (int d = 0; d + 2 < rank; d++) out->batch *= kiln_dim_extent(&s[2]->dims[d]);
  return true;
}

bool kiln_product_is(const kiln_program *p, kiln_product *out) {
  return p->stmts.n == 4 && kiln_product_is_of(p->stmts.data, p->stmts.data[3], out);
}

// Measured on an H100, 262144 x 256 sums of 32 terms with six loads: suitable tiles of small_k take
// 162 to 205 us, mma 178, parallel_k 118 to 125, or 241 to 245 where a multiprocessor has one
// block.
double kiln_product_more_loads_ns(const kiln_lowering *w, const kiln_stmt *y, const kiln_stmt *t,
                                  double elems, bool by_words) {
  static const double PAIRS_NS = 0.045, WORDS_NS = 0.007;
  const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, y->body);
  const kiln_symbol row = y->dims[y->n_space - 2].name, column = y->dims[y->n_space - 1].name;
  int n = 0;
  for (int i = 0; i < loads.n; i++)
    n += loads.data[i]->u.tensor != t->out && kiln_expr_uses(loads.data[i], row) &&
         kiln_expr_uses(loads.data[i], column);
  return n > 1 ? (n - 1) * elems * (by_words ? WORDS_NS : PAIRS_NS) : 0;
}

#include "template/form/moment.h"

enum {
  WORD = 16,        // bytes of a vector load
  THREADS = 256,    // the most threads of a block,
  FEW_THREADS = 64, // and the least
  MAX_ROWS = 32,    // the most rows of a block: one thread adds up their sums
  MAX_STEPS = 16,   // the most steps of a thread, whose terms stay in registers,
  FEW_STEPS = 4,    // and how many hide the latency of loads
  MAX_WORDS = 32,   // the most words of a block's row
  LONG_SUM = 256,
  PARTS = 2 // blocks that a multiprocessor should have
};

typedef struct sum {
  kiln_stmt *s;
  const kiln_expr *u;      // the term, or the one that is squared around |around|
  const kiln_expr *around; // the centre of the squares; NULL: a plain sum
  int which, square;       // axis of W for the sum of u, and for the sum of its squares
} sum;

// A program while it is brought into the form.
typedef struct making {
  kiln_ctx *cx;
  kiln_program *p;
  int n;
  sum sums[KILN_MOMENT_SUMS];
  int n_which;                              // extent of W's axis |which|
  const kiln_expr *u[2 * KILN_MOMENT_SUMS]; // by |which|: the term;
  // -1 of a sum, of squares the |which| of the sum around whose mean they are
  int of[2 * KILN_MOMENT_SUMS];
  kiln_moment form;
  kiln_symbol part, row, step, channel;
  KILN_VEC(const kiln_expr *) loads; // the loads in terms,
  KILN_VEC(const kiln_expr *) held;  // and the loads of X that replace them
} making;

// --- recognition ---

// |e| without roundings to types below f32.
static const kiln_expr *unrounded(const kiln_expr *e) {
  while (e->kind == KILN_EXPR_CAST && e->dtype == KILN_F32 && e->args[0]->kind == KILN_EXPR_CAST &&
         e->args[0]->args[0]->dtype == KILN_F32)
    e = e->args[0]->args[0];
  return e;
}

static bool reads_temps(making *w, const kiln_expr *e) {
  const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, e);
  for (int i = 0; i < loads.n; i++)
    if (w->p->tensors.data[loads.data[i]->u.tensor]->role == KILN_TEMP) return true;
  return false;
}

static bool find_terms(making *w, kiln_stmt *s, sum *out) {
  const kiln_symbol r = s->dims[s->n_space].name;
  const kiln_expr *e = unrounded(s->body);
  *out = (sum){.s = s, .u = s->body};
  if (!reads_temps(w, s->body)) return true;
  if (e->kind != KILN_EXPR_MUL || e->args[0] != e->args[1]) return false;
  e = unrounded(e->args[0]);
  if (e->kind != KILN_EXPR_SUB || e->dtype != KILN_F32) return false;
  const bool first = kiln_expr_uses(e->args[0], r);
  out->u = e->args[first ? 0 : 1];
  out->around = e->args[first ? 1 : 0];
  return !reads_temps(w, out->u) && !kiln_expr_uses(out->around, r);
}

// Whether |s| sums contiguous elements along its last dim.
static bool is_sum(making *w, const kiln_stmt *s) {
  const kiln_expr *load = kiln_stmt_largest_load(w->cx, w->p, s);
  return s->n_reduce == 1 && s->n_space > 0 && s->combiner == KILN_COMBINE_SUM && load &&
         s->body->dtype == KILN_F32 &&
         kiln_stmt_load_stride(w->cx, w->p, s, load, s->dims[s->n_space - 1].name) == 1;
}

// Whether |s| has the dims of the first sum, and |more| before the last one.
static bool has_dims(const making *w, const kiln_stmt *s, bool more) {
  const kiln_stmt *first = w->sums[0].s;
  for (int d = 0; d < first->n_space; d++)
    if (kiln_stmt_space_dim(s, first->dims[d].name) < 0) return false;
  return (more || s->n_space == first->n_space) &&
         s->dims[s->n_space - 1].name == first->dims[first->n_space - 1].name;
}

// Whether |u|, a term of |s|, is defined for each index of the sum, so that no guard may be lost.
static bool reads_inside(making *w, const kiln_stmt *s, const kiln_expr *u) {
  const kiln_ranges ranges = kiln_stmt_ranges(&w->cx->scratch, s);
  const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, u);
  for (int i = 0; i < loads.n; i++)
    if (!kiln_load_is_inside(w->cx, w->p, loads.data[i], &ranges)) return false;
  return true;
}

static bool find_sums(making *w) {
  const kiln_stmt *root = w->p->stmts.data[w->p->stmts.n - 1];
  for (int i = 0; i < w->p->stmts.n; i++) {
    kiln_stmt *s = w->p->stmts.data[i];
    if (s->guard || s->init || (s != root && w->p->tensors.data[s->out]->role != KILN_TEMP))
      return false;
    if (s->n_reduce == 0) continue;
    if (w->n == KILN_MOMENT_SUMS || !is_sum(w, s) || !find_terms(w, s, &w->sums[w->n]) ||
        !reads_inside(w, s, w->sums[w->n].u))
      return false;
    w->n++;
  }
  if (w->n == 0 || root->n_reduce) return false;
  const kiln_stmt *first = w->sums[0].s;
  const int64_t terms = kiln_dim_extent(&first->dims[first->n_space]);
  for (int i = 0; i < w->p->stmts.n; i++) {
    const kiln_stmt *s = w->p->stmts.data[i];
    if (!has_dims(w, s, s == root) ||
        (s->n_reduce && kiln_dim_extent(&s->dims[s->n_space]) != terms))
      return false;
  }
  return terms >= LONG_SUM;
}

// --- extents of part, row and step ---

// Bytes of the narrowest element that the sums read along |r|.
static int64_t size_of(making *w) {
  int64_t size = 4;
  for (int i = 0; i < w->n; i++) {
    const kiln_stmt *s = w->sums[i].s;
    const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, w->sums[i].u);
    for (int k = 0; k < loads.n; k++) {
      const int64_t bytes = kiln_dtype_bytes(loads.data[k]->dtype);
      if (bytes < size && kiln_expr_uses(loads.data[k], s->dims[s->n_space].name)) size = bytes;
    }
  }
  return size;
}

// Chooses the channels of a thread, a word of elements of |size| bytes, and of a block.
static void set_width(kiln_moment *f, int64_t channels, int64_t size) {
  f->word = WORD / size;
  while (channels % f->word) f->word /= 2;
  for (int64_t k = 1; k <= MAX_WORDS; k++)
    if (channels / f->word % k == 0) f->width = k * f->word;
}

// Cuts a sum of |terms| terms into parts; a single part would give |blocks| blocks. Prefers enough
// blocks of enough threads, then the most steps.
static bool choose_sizes(making *w, const kiln_machine *m, int64_t terms, double blocks) {
  kiln_moment *f = &w->form;
  const int64_t words = f->width / f->word;
  const double enough = (double)m->n_cores;
  double best = 0;
  for (int64_t rows = 1; rows <= MAX_ROWS && rows * words <= THREADS; rows++) {
    if (terms % rows || rows * words < FEW_THREADS) continue;
    for (int64_t steps = 1; steps <= MAX_STEPS; steps++) {
      if (terms / rows % steps) continue;
      const int64_t parts = terms / rows / steps;
      const double n = blocks * (double)parts,
                   // share of the multiprocessors that have a block
          busy = n < enough ? n / enough : 1, spare = n > PARTS * enough ? PARTS * enough / n : 1,
                   score = busy * spare * (double)(rows * words) *
                           (double)(steps < FEW_STEPS ? 1 + steps : 1 + FEW_STEPS);
      if (score < best) continue;
      best = score;
      f->parts = parts, f->rows = rows, f->steps = steps;
    }
  }
  return best > 0 && f->parts > 1;
}

static bool choose(making *w, const kiln_machine *m) {
  const kiln_stmt *s = w->sums[0].s;
  const int64_t channels = kiln_dim_extent(&s->dims[s->n_space - 1]);
  kiln_moment *f = &w->form;
  double blocks = 1;
  f->n_dims = s->n_space;
  set_width(f, channels, size_of(w));
  for (int d = 0; d + 1 < s->n_space; d++) blocks *= (double)kiln_dim_extent(&s->dims[d]);
  blocks *= (double)(channels / f->width);
  if (blocks > PARTS * m->n_cores) return false; // one block a sum keeps the GPU busy
  return f->word > 1 && choose_sizes(w, m, kiln_dim_extent(&s->dims[s->n_space]), blocks);
}

// --- the statements ---

// A statement over |n| dims of those names and the sums' last dim behind them; |reduction| is the
// dim that it reduces, 0 for a map.
static kiln_stmt *make_stmt(making *w, const char *name, kiln_dtype t, int n,
                            const kiln_symbol *names, const int64_t *extents, kiln_symbol reduction,
                            int64_t terms) {
  const kiln_stmt *of = w->sums[0].s;
  const kiln_expr *shape[KILN_MAX_RANK] = {0};
  const int rank = of->n_space + n;
  kiln_stmt *s = KILN_NEW(&w->cx->perm, kiln_stmt);
  *s = (kiln_stmt){.origin = of->origin, .n_space = rank, .n_reduce = reduction != 0};
  s->combiner = reduction ? KILN_COMBINE_SUM : KILN_COMBINE_NONE;
  s->dims = KILN_NEW_ARRAY(&w->cx->perm, kiln_dim, rank + 1);
  s->index = KILN_NEW_ARRAY(&w->cx->perm, const kiln_expr *, rank);
  for (int d = 0; d < rank; d++) {
    const int k = d - (of->n_space - 1);
    if (k < 0) s->dims[d] = of->dims[d];
    else if (k < n) s->dims[d] = (kiln_dim){names[k], kiln_int(w->cx, extents[k])};
    else s->dims[d] = of->dims[of->n_space - 1];
    shape[d] = s->dims[d].extent;
    s->index[d] = kiln_var(w->cx, s->dims[d].name);
  }
  if (reduction) s->dims[rank] = (kiln_dim){reduction, kiln_int(w->cx, terms)};
  s->out = kiln_tensor_make(w->cx, w->p, name, t, KILN_TEMP, rank, shape)->id;
  return s;
}

// The element of |s| at its own dims, with |which| for the dim of that name.
static const kiln_expr *read_at(making *w, const kiln_stmt *s, int which) {
  const kiln_expr *index[KILN_MAX_RANK];
  for (int d = 0; d < s->n_space; d++)
    index[d] = s->dims[d].name == kiln_symbol_of(w->cx, "which") ? kiln_int(w->cx, which)
                                                                 : kiln_stmt_var(w->cx, s, d);
  return kiln_tensor_load(w->cx, w->p->tensors.data[s->out], index);
}

// n * (total/n - m)^2: the difference between the squares of n terms around |m| and around their
// mean.
static const kiln_expr *moved(making *w, const kiln_expr *total, int64_t n, const kiln_expr *m) {
  const kiln_expr *count = kiln_number(w->cx, KILN_F32, (double)n),
                  *apart = kiln_sub(w->cx, kiln_div(w->cx, total, count), m);
  return kiln_mul(w->cx, kiln_mul(w->cx, apart, apart), count);
}

// Replaces the loads in a term by loads of X.
static const kiln_expr *read_held(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const making *w = argument;
  (void)cx;
  for (int i = 0; i < w->loads.n; i++)
    if (w->loads.data[i] == e) return w->held.data[i];
  return NULL;
}

// The number r of the term at (part, step, row): steps are outermost, rows neighbours.
static const kiln_expr *term_of(making *w) {
  kiln_ctx *cx = w->cx;
  const kiln_moment *f = &w->form;
  const kiln_expr *step = kiln_add(cx, kiln_mul(cx, kiln_var(cx, w->part), kiln_int(cx, f->steps)),
                                   kiln_var(cx, w->step));
  return kiln_add(cx, kiln_mul(cx, step, kiln_int(cx, f->rows)), kiln_var(cx, w->row));
}

// Makes X for each load in |e| that has none yet.
static void hold(making *w, const kiln_stmt *of, const kiln_expr *e) {
  kiln_ctx *cx = w->cx;
  const kiln_moment *f = &w->form;
  const kiln_symbol names[] = {w->part, w->row, w->step}, r = of->dims[of->n_space].name;
  const int64_t extents[] = {f->parts, f->rows, f->steps};
  const kiln_expr *at = term_of(w);
  const kiln_loads loads = kiln_loads_of(cx, &cx->scratch, e);
  for (int i = 0; i < loads.n; i++) {
    if (!kiln_expr_uses(loads.data[i], r) || read_held(cx, loads.data[i], w)) continue;
    kiln_stmt *x = make_stmt(w, "X", loads.data[i]->dtype, 3, names, extents, 0, 0);
    x->body = kiln_stmt_simplify(cx, x, kiln_expr_substitute(cx, loads.data[i], 1, &r, &at));
    kiln_stmt_append(w->cx, w->p, x);
    KILN_VEC_PUSH(&cx->scratch, &w->loads, loads.data[i]);
    KILN_VEC_PUSH(&cx->scratch, &w->held, read_at(w, x, 0));
  }
}

static int add_which(making *w, const kiln_expr *u, int of) {
  int k = 0;
  while (k < w->n_which && (w->u[k] != u || w->of[k] != of)) k++;
  w->u[k] = u;
  w->of[k] = of;
  if (k == w->n_which) w->n_which++;
  return k;
}

// Numbers the sums by |which|. Two terms are the same if they are the same expression of X and of
// the term's number, on which a guard may depend.
static void number_sums(making *w) {
  for (int i = 0; i < w->n; i++) {
    sum *z = &w->sums[i];
    hold(w, z->s, z->u);
    const kiln_expr *at = term_of(w), *held = kiln_expr_replace(w->cx, z->u, read_held, w),
                    *u = kiln_expr_substitute(w->cx, held, 1, &z->s->dims[z->s->n_space].name, &at);
    z->which = add_which(w, u, -1);
    if (z->around) z->square = add_which(w, u, z->which);
  }
}

// Stacks the results of made[0..n_which) into one tensor with the axis |which|.
static kiln_stmt *gather(making *w, const char *name, kiln_stmt *const *made, int n,
                         const kiln_symbol *names, const int64_t *extents) {
  kiln_stmt *s = make_stmt(w, name, KILN_F32, n, names, extents, 0, 0);
  const kiln_expr *which = kiln_var(w->cx, names[n - 1]);
  for (int k = w->n_which - 1; k >= 0; k--) {
    const kiln_expr *one = read_at(w, made[k], 0),
                    *is = kiln_binary(w->cx, KILN_EXPR_EQ, which, kiln_int(w->cx, k));
    s->body = s->body ? kiln_select(w->cx, is, one, s->body) : one;
  }
  kiln_stmt_append(w->cx, w->p, s);
  return s;
}

// The sums of a thread: S, V and W.
static kiln_stmt *make_threads(making *w) {
  const kiln_moment *f = &w->form;
  const kiln_symbol names[] = {w->part, w->row, kiln_symbol_of(w->cx, "which")};
  const int64_t extents[] = {f->parts, f->rows, w->n_which};
  kiln_stmt *made[2 * KILN_MOMENT_SUMS];
  for (int k = 0; k < w->n_which; k++) {
    const kiln_expr *u = w->u[k];
    made[k] =
        make_stmt(w, w->of[k] < 0 ? "S" : "V", KILN_F32, 2, names, extents, w->step, f->steps);
    if (w->of[k] >= 0) {
      const kiln_expr *n = kiln_number(w->cx, KILN_F32, (double)f->steps);
      u = kiln_sub(w->cx, u, kiln_div(w->cx, read_at(w, made[w->of[k]], 0), n));
      u = kiln_mul(w->cx, u, u);
    }
    made[k]->body = u;
    kiln_stmt_append(w->cx, w->p, made[k]);
  }
  return gather(w, "W", made, 3, names, extents);
}

// The sums of a block, from those of its threads: S', V' and P.
static kiln_stmt *make_blocks(making *w, const kiln_stmt *threads) {
  const kiln_moment *f = &w->form;
  const kiln_symbol names[] = {w->part, kiln_symbol_of(w->cx, "which")};
  const int64_t extents[] = {f->parts, w->n_which};
  kiln_stmt *made[2 * KILN_MOMENT_SUMS];
  for (int k = 0; k < w->n_which; k++) {
    const int of = w->of[k];
    made[k] = make_stmt(w, of < 0 ? "S" : "V", KILN_F32, 1, names, extents, w->row, f->rows);
    made[k]->body = read_at(w, threads, k);
    if (of >= 0) {
      const kiln_expr *n = kiln_number(w->cx, KILN_F32, (double)(f->rows * f->steps)),
                      *mean = kiln_div(w->cx, read_at(w, made[of], 0), n);
      made[k]->body =
          kiln_add(w->cx, made[k]->body, moved(w, read_at(w, threads, of), f->steps, mean));
    }
    kiln_stmt_append(w->cx, w->p, made[k]);
  }
  return gather(w, "P", made, 2, names, extents);
}

// Rewrites a sum of the program to combine P of all blocks.
static void rewrite_sum(making *w, const sum *z, const kiln_stmt *blocks) {
  const kiln_moment *f = &w->form;
  const kiln_expr *total = read_at(w, blocks, z->which);
  z->s->dims[z->s->n_space] = (kiln_dim){w->part, kiln_int(w->cx, f->parts)};
  z->s->body = z->around ? kiln_add(w->cx, read_at(w, blocks, z->square),
                                    moved(w, total, f->rows * f->steps, z->around))
                         : total;
}

bool kiln_moment_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p) {
  making w = {.cx = cx, .p = p};
  if (!find_sums(&w) || !choose(&w, m)) return false;
  w.part = kiln_symbol_of(cx, "part");
  w.row = kiln_symbol_of(cx, "row");
  w.step = kiln_symbol_of(cx, "step");
  const int n = p->stmts.n;
  kiln_stmt **old = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, n);
  for (int i = 0; i < n; i++) old[i] = p->stmts.data[i];
  p->stmts.n = 0;
  number_sums(&w);
  const kiln_stmt *blocks = make_blocks(&w, make_threads(&w));
  for (int i = 0; i < w.n; i++) rewrite_sum(&w, &w.sums[i], blocks);
  for (int i = 0; i < n; i++) kiln_stmt_append(w.cx, w.p, old[i]);
  return true;
}

// --- reading the form back ---

// The last statement whose dims before the last one are these two; NULL if there is none.
static const kiln_stmt *with_dims(kiln_ctx *cx, const kiln_program *p, const char *a,
                                  const char *b) {
  for (int i = p->stmts.n - 1; i >= 0; i--) {
    const kiln_stmt *s = p->stmts.data[i];
    if (s->n_space > 2 && s->dims[s->n_space - 3].name == kiln_symbol_of(cx, a) &&
        s->dims[s->n_space - 2].name == kiln_symbol_of(cx, b))
      return s;
  }
  return NULL;
}

bool kiln_moment_is(kiln_ctx *cx, const kiln_program *p, kiln_moment *out) {
  const kiln_stmt *x = with_dims(cx, p, "row", "step");
  int64_t size = 4;
  *out =
      (kiln_moment){.w = with_dims(cx, p, "row", "which"), .p = with_dims(cx, p, "part", "which")};
  if (!x || !out->w || !out->p) return false;
  out->n_dims = x->n_space - 3;
  out->parts = kiln_dim_extent(&x->dims[out->n_dims - 1]);
  out->rows = kiln_dim_extent(&x->dims[out->n_dims]);
  out->steps = kiln_dim_extent(&x->dims[out->n_dims + 1]);
  for (int i = 0; i < out->w->id; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    const int64_t bytes = kiln_dtype_bytes(p->tensors.data[s->out]->dtype);
    if (s->n_reduce == 0 && bytes < size) size = bytes;
  }
  set_width(out, kiln_dim_extent(&x->dims[x->n_space - 1]), size);
  return true;
}

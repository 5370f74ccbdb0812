// Growing concatenations: one that repeats the operands of an earlier one reads its result.
//     D = [A | B];  E = [A | B | C]    becomes  D = [A | B];  E = [D | C]
// Dense connections (DenseNet, feature pyramids) concatenate all results so far in every layer. As
// a chain they share one buffer, in which each operand is stored once, and D is a slice of E
// (transform/concat_in_place.c).
#include "analysis/simplify.h"
#include "rewrite/product.h"
#include "rewrite/rules.h"

enum { MAX_SEGMENTS = 64 };

// The elements [lo, hi) along the axis, all of one load.
typedef struct segment {
  int64_t lo, hi;
  const kiln_expr *load; // by canonical names of the dims, and from |lo| on
  bool is_whole;         // it is all of a tensor that a statement computes
} segment;

typedef struct concat {
  kiln_stmt *s;
  int axis, n;
  segment *segments;
} concat;

typedef struct finding {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_stmt *s;
  int axis;
  int n;
  segment found[MAX_SEGMENTS];
} finding;

// The dim of |s| that condition |c| tests against a constant.
//
// gives: *out_at, where it changes; *out_below, its value before that
static bool find_cut(const finding *f, const kiln_expr *c, int *out_dim, int64_t *out_at,
                     bool *out_below) {
  const bool is_less = c->kind == KILN_EXPR_LT || c->kind == KILN_EXPR_LE,
             is_more = c->kind == KILN_EXPR_GT || c->kind == KILN_EXPR_GE;
  if ((!is_less && !is_more) || c->args[0]->dtype != KILN_I64) return false;
  const kiln_expr *apart = kiln_sub(f->cx, c->args[0], c->args[1]);
  const bool ends_after = c->kind == KILN_EXPR_LE || c->kind == KILN_EXPR_GT;
  for (int d = 0; d < f->s->n_space; d++) {
    int64_t coef = 0, constant = 0;
    if (!kiln_expr_affine(apart, 1, &f->s->dims[d].name, &coef, &constant) || coef != 1) continue;
    *out_dim = d;
    *out_at = ends_after - constant;
    *out_below = is_less;
    return true;
  }
  return false;
}

static const kiln_expr *canonical_var(kiln_ctx *cx, int d) {
  return kiln_var(cx, kiln_symbol_printf(cx, "concat.%d", d));
}

// |load| at elements [lo, hi) of the axis, as a function of canonical dims.
static const kiln_expr *from_begin(const finding *f, const kiln_expr *load, int64_t lo,
                                   int64_t hi) {
  kiln_symbol names[KILN_MAX_RANK];
  const kiln_expr *values[KILN_MAX_RANK];
  kiln_ranges r;
  kiln_ranges_init(&r, &f->cx->scratch);
  for (int d = 0; d < f->s->n_space; d++) {
    const bool is_axis = d == f->axis;
    names[d] = f->s->dims[d].name;
    values[d] = canonical_var(f->cx, d);
    kiln_ranges_push(&r, values[d]->u.sym, 0,
                     (is_axis ? hi - lo : kiln_dim_extent(&f->s->dims[d])) - 1);
    if (is_axis) values[d] = kiln_add(f->cx, values[d], kiln_int(f->cx, lo));
  }
  return kiln_simplify(f->cx, kiln_expr_substitute(f->cx, load, f->s->n_space, names, values), &r);
}

static bool is_whole(const finding *f, const kiln_expr *load, int64_t elems) {
  const kiln_tensor *t = f->p->tensors.data[load->u.tensor];
  bool same = t->role == KILN_TEMP && t->def >= 0 && load->n_args == f->s->n_space;
  for (int k = 0; k < load->n_args && same; k++) {
    int64_t extent = 0;
    const int64_t of_dim = k == f->axis ? elems : kiln_dim_extent(&f->s->dims[k]);
    same = kiln_expr_is_int(t->shape[k], &extent) && extent == of_dim &&
           (load->args[k] == canonical_var(f->cx, k) || extent == 1);
  }
  return same;
}

// Finds the segments of |e| in [lo, hi); false if it is none of concatenated loads.
static bool find_segments(finding *f, const kiln_expr *e, int64_t lo, int64_t hi) {
  int dim = -1;
  int64_t at = 0;
  bool below = false;
  if (e->kind == KILN_EXPR_LOAD) {
    if (f->n == MAX_SEGMENTS || f->axis < 0) return false;
    const kiln_expr *load = from_begin(f, e, lo, hi);
    if (load->kind != KILN_EXPR_LOAD) return false;
    f->found[f->n++] = (segment){lo, hi, load, is_whole(f, load, hi - lo)};
    return true;
  }
  if (e->kind != KILN_EXPR_SELECT || !find_cut(f, e->args[0], &dim, &at, &below)) return false;
  if (f->axis < 0) {
    f->axis = dim;
    hi = kiln_dim_extent(&f->s->dims[dim]);
  }
  const kiln_expr *first = e->args[below ? 1 : 2], *second = e->args[below ? 2 : 1];
  if (dim != f->axis) return false;
  return (at <= lo || find_segments(f, first, lo, at < hi ? at : hi)) &&
         (at >= hi || find_segments(f, second, at > lo ? at : lo, hi));
}

static bool read_concat(kiln_ctx *cx, const kiln_program *p, kiln_stmt *s, concat *out) {
  if (s->body->kind != KILN_EXPR_SELECT || !kiln_map_of(cx, p, s->out)) return false;
  finding f = {.cx = cx, .p = p, .s = s, .axis = -1};
  if (!find_segments(&f, s->body, 0, 0) || f.n < 2) return false;
  *out = (concat){s, f.axis, f.n, KILN_NEW_ARRAY(&cx->scratch, segment, f.n)};
  for (int i = 0; i < f.n; i++) out->segments[i] = f.found[i];
  return true;
}

static int64_t length_of(const segment *s) { return s->hi - s->lo; }

// The segment of |whole| from which on it has those of |part|; -1: it has them nowhere.
static int find_run(const concat *whole, const concat *part) {
  if (part->axis != whole->axis || part->s->n_space != whole->s->n_space) return -1;
  for (int first = 0; first + part->n <= whole->n; first++) {
    int n = 0;
    while (n < part->n && part->segments[n].load == whole->segments[first + n].load &&
           length_of(&part->segments[n]) == length_of(&whole->segments[first + n]))
      n++;
    if (n == part->n) return first;
  }
  return -1;
}

// Whether both have the same extents but along the axis.
static bool has_same_rows(const concat *a, const concat *b) {
  for (int d = 0; d < a->s->n_space; d++)
    if (d != a->axis && kiln_dim_extent(&a->s->dims[d]) != kiln_dim_extent(&b->s->dims[d]))
      return false;
  return true;
}

// Whether most elements are of results that can be stored in the concatenation itself; else it
// would copy them once more.
static bool holds_results(const concat *c) {
  int64_t whole = 0, all = 0;
  for (int i = 0; i < c->n; i++) {
    all += length_of(&c->segments[i]);
    if (c->segments[i].is_whole) whole += length_of(&c->segments[i]);
  }
  return 2 * whole >= all;
}

// |segment|'s load by the dims of |s|.
static const kiln_expr *load_of(kiln_ctx *cx, const kiln_stmt *s, int axis, const segment *of) {
  kiln_symbol names[KILN_MAX_RANK];
  const kiln_expr *values[KILN_MAX_RANK];
  for (int d = 0; d < s->n_space; d++) {
    names[d] = canonical_var(cx, d)->u.sym;
    values[d] = kiln_stmt_var(cx, s, d);
    if (d == axis) values[d] = kiln_sub(cx, values[d], kiln_int(cx, of->lo));
  }
  return kiln_expr_substitute(cx, of->load, s->n_space, names, values);
}

// |c| reads the result of |part| in place of its segments from |first| on.
static void read_part(kiln_ctx *cx, const kiln_program *p, concat *c, const concat *part,
                      int first) {
  const kiln_expr *index[KILN_MAX_RANK];
  segment *all = c->segments;
  for (int d = 0; d < c->s->n_space; d++) index[d] = canonical_var(cx, d);
  all[first] =
      (segment){all[first].lo, all[first + part->n - 1].hi,
                kiln_tensor_load(cx, p->tensors.data[part->s->out], index), .is_whole = true};
  for (int i = first + part->n; i < c->n; i++) all[i - part->n + 1] = all[i];
  c->n -= part->n - 1;
  const kiln_expr *at = kiln_stmt_var(cx, c->s, c->axis),
                  *body = load_of(cx, c->s, c->axis, &all[c->n - 1]);
  for (int i = c->n - 2; i >= 0; i--)
    body = kiln_select(cx, kiln_binary(cx, KILN_EXPR_LT, at, kiln_int(cx, all[i].hi)),
                       load_of(cx, c->s, c->axis, &all[i]), body);
  c->s->body = kiln_stmt_simplify(cx, c->s, body);
}

// Lets |io| read the longest of all[0..n) that it repeats; false if it repeats none.
static bool shorten(kiln_ctx *cx, const kiln_program *p, const concat *all, int n, concat *io) {
  int best = -1, from = -1;
  for (int i = 0; i < n; i++) {
    if (all[i].n >= io->n || (best >= 0 && all[i].n <= all[best].n) ||
        all[i].s->body->dtype != io->s->body->dtype)
      continue;
    const int first = find_run(io, &all[i]);
    if (first < 0 || !has_same_rows(io, &all[i]) || !holds_results(&all[i])) continue;
    best = i;
    from = first;
  }
  if (best >= 0) read_part(cx, p, io, &all[best], from);
  return best >= 0;
}

// cost: each concatenation is compared with all before it, by their first operands
int kiln_rule_concats(kiln_ctx *cx, kiln_program *p) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  concat *all = KILN_NEW_ARRAY(&cx->scratch, concat, p->stmts.n);
  int n = 0, n_applied = 0;
  for (int i = 0; i < p->stmts.n; i++) n += read_concat(cx, p, p->stmts.data[i], &all[n]);
  for (int i = n - 1; i > 0; i--) // from the last on, since those before must stay as they are read
    while (shorten(cx, p, all, i, &all[i])) n_applied++;
  kiln_arena_rewind(&cx->scratch, mark);
  return n_applied;
}

// Recognising products and convolutions by the strides of what a contraction reads and writes.
//
// Every dim of the contraction walks through each of its tensors by a stride. What walks through an operand and the
// result is a row or a column, what walks through both operands is summed over, what walks through all three is a
// batch; dims that walk on where others end become one. Of a convolution two dims walk through the same elements of
// an operand: a window.
#include "driver/call.h"
#include "analysis/simplify.h"
#include "tile/tile.h"

#include <math.h>

enum { MAX_AXES = 2 * KILN_MAX_RANK };

typedef struct axis {
  int64_t extent, a, b, c, post[KILN_CALL_POSTS];
} axis;

// Axes of one sort.
typedef struct axes {
  int n;
  axis at[MAX_AXES];
} axes;

typedef struct finding {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_stmt *product,
      *root; // the contraction, and the map that reads it; the same where there is none
  const kiln_expr *a, *b;
  axes rows, columns, sums, batch; // of a and c, of b and c, of a and b, of all
  int n_windows;
  struct window {
    axis space, sum;
  } windows[2];
  kiln_call *call;
} finding;

static bool is_param(const kiln_program *p, int tensor) {
  bool is = p->tensors.data[tensor]->role != KILN_TEMP;
  for (int i = 0; i < p->outputs.n; i++) is |= p->outputs.data[i] == tensor;
  return is;
}

static int64_t arg_of(const kiln_program *p, int tensor) {
  int64_t n = 0;
  for (int i = 0; i < tensor; i++) n += is_param(p, i);
  return n;
}

// --- where tensors are read ---

static bool find_stride(const finding *f, const kiln_expr *load, kiln_symbol var, int64_t *out) {
  *out = kiln_load_stride(f->cx, f->p, load, var);
  return *out != INT64_MAX && *out >= 0;
}

// Where |load| reads with all dims of |s| at 0.
static bool find_begin(const finding *f, const kiln_stmt *s, const kiln_expr *load,
                       kiln_call_tensor *out) {
  kiln_ctx *cx = f->cx;
  const int n = s->n_space + s->n_reduce;
  kiln_symbol *vars = KILN_NEW_ARRAY(&cx->scratch, kiln_symbol, n);
  const kiln_expr **zeros = KILN_NEW_ARRAY(&cx->scratch, const kiln_expr *, n);
  int64_t strides[KILN_MAX_RANK], index = 0;
  kiln_tensor_strides(f->p->tensors.data[load->u.tensor], strides);
  *out = (kiln_call_tensor){.arg = arg_of(f->p, load->u.tensor)};
  for (int i = 0; i < n; i++) {
    vars[i] = s->dims[i].name;
    zeros[i] = kiln_int(cx, 0);
  }
  for (int k = 0; k < load->n_args; k++) {
    const kiln_expr *e = kiln_expr_substitute(cx, load->args[k], n, vars, zeros);
    if (!kiln_expr_is_int(e, &index)) return false;
    out->offset += index * strides[k];
  }
  return out->offset >= 0 && is_param(f->p, load->u.tensor);
}

// --- the map behind the contraction ---

static bool is_result(const finding *f, const kiln_expr *e) {
  return e->kind == KILN_EXPR_LOAD && e->u.tensor == f->product->out;
}

static bool add_post(finding *f, kiln_call_post post) {
  if (f->call->n_posts == KILN_CALL_POSTS) return false;
  f->call->posts[f->call->n_posts++] = post;
  return true;
}

static bool add_clip(finding *f, float low, float high) {
  kiln_call_post *last = &f->call->posts[f->call->n_posts - 1];
  if (f->call->n_posts == 0 || last->kind != KILN_POST_CLIP || low > last->high || high < last->low)
    return add_post(f, (kiln_call_post){.kind = KILN_POST_CLIP, .low = low, .high = high});
  last->low = fmaxf(last->low, low);
  last->high = fminf(last->high, high);
  return true;
}

static bool add_operation(finding *f, kiln_expr_kind kind, const kiln_expr *other) {
  const bool is_number = other->kind == KILN_EXPR_FLOAT;
  const float x = is_number ? (float)other->u.f : 0;
  kiln_call_post add = {.kind = KILN_POST_ADD};
  if (is_number && kind == KILN_EXPR_MAX) return add_clip(f, x, INFINITY);
  if (is_number && kind == KILN_EXPR_MIN) return add_clip(f, -INFINITY, x);
  if (is_number && kind == KILN_EXPR_MUL)
    return add_post(f, (kiln_call_post){.kind = KILN_POST_SCALE, .low = x});
  return kind == KILN_EXPR_ADD && other->kind == KILN_EXPR_LOAD && !is_result(f, other) &&
         find_begin(f, f->root, other, &add.tensor) && add_post(f, add);
}

// Operations on the way from the result to |e|, the innermost first. loads[i] is what post |i| adds.
static bool find_posts(finding *f, const kiln_expr *e, const kiln_expr **loads) {
  enum { DEEP = 2 * KILN_CALL_POSTS };
  const kiln_expr *way[DEEP];
  int n = 0;
  for (; !is_result(f, e); n++) {
    if (n == DEEP || e->n_args != 2 || e->dtype != KILN_F32) return false;
    way[n] = e;
    const bool left = kiln_expr_has_load(e->args[0]) &&
                      (is_result(f, e->args[0]) || e->args[0]->kind != KILN_EXPR_LOAD);
    e = e->args[!left];
  }
  for (const kiln_expr *inner = e; n-- > 0; inner = way[n]) {
    const kiln_expr *other = way[n]->args[way[n]->args[0] == inner];
    if (!add_operation(f, way[n]->kind, other)) return false;
    loads[f->call->n_posts - 1] = other;
  }
  return true;
}

// --- the axes ---

// The variable of the root that walks along axis |k| of the contraction's result; 0: none.
static kiln_symbol root_var(const finding *f, const kiln_expr *load, int k) {
  if (f->root == f->product) return f->root->dims[k].name;
  return load->args[k]->kind == KILN_EXPR_VAR ? load->args[k]->u.sym : 0;
}

static bool find_result_strides(const finding *f, const kiln_expr *load,
                                const kiln_expr *const *posts, int k, axis *io) {
  int64_t strides[KILN_MAX_RANK];
  const kiln_symbol var = root_var(f, load, k);
  int at = -1;
  kiln_tensor_strides(f->p->tensors.data[f->root->out], strides);
  for (int d = 0; d < f->root->n_space; d++)
    if (f->root->dims[d].name == var) at = d;
  if (at < 0) return false;
  io->c = strides[at];
  for (int i = 0; i < f->call->n_posts; i++)
    if (f->call->posts[i].kind == KILN_POST_ADD && !find_stride(f, posts[i], var, &io->post[i]))
      return false;
  return true;
}

static bool sort_axis(finding *f, const axis *x, bool is_sum) {
  axes *to = is_sum ? &f->sums : x->a && x->b ? &f->batch : x->a ? &f->rows : &f->columns;
  if (is_sum ? !x->a || !x->b : !x->c || (!x->a && !x->b)) return false;
  to->at[to->n++] = *x;
  return true;
}

static bool find_axes(finding *f, const kiln_expr *load, const kiln_expr *const *posts) {
  const kiln_stmt *s = f->product;
  for (int d = 0; d < s->n_space + s->n_reduce; d++) {
    axis x = {.extent = kiln_dim_extent(&s->dims[d])};
    if (x.extent < 1) return false;
    if (x.extent == 1) continue;
    if (!find_stride(f, f->a, s->dims[d].name, &x.a) ||
        !find_stride(f, f->b, s->dims[d].name, &x.b))
      return false;
    if (d < s->n_space && !find_result_strides(f, load, posts, d, &x)) return false;
    if (!sort_axis(f, &x, d >= s->n_space)) return false;
  }
  return true;
}

static bool walks_on(const axis *outer, const axis *inner) {
  bool on = outer->a == inner->a * inner->extent && outer->b == inner->b * inner->extent &&
            outer->c == inner->c * inner->extent;
  for (int i = 0; i < KILN_CALL_POSTS; i++)
    on = on && outer->post[i] == inner->post[i] * inner->extent;
  return on;
}

static void drop(axes *x, int i) { x->at[i] = x->at[--x->n]; }

static bool merge_two(axes *x) {
  for (int i = 0; i < x->n; i++)
    for (int j = 0; j < x->n; j++) {
      if (i == j || !walks_on(&x->at[i], &x->at[j])) continue;
      x->at[j].extent *= x->at[i].extent;
      drop(x, i);
      return true;
    }
  return false;
}

static void merge(axes *x) {
  while (merge_two(x)) {}
}

// --- windows ---

// Whether |sum| and |space| walk through the same elements of a, as rows of a window and of what it slides over do.
static bool overlap(const axis *space, const axis *sum) {
  return sum->a < space->extent * space->a && space->a <= (sum->extent - 1) * sum->a;
}

static bool find_windows(finding *f) {
  for (int s = 0; s < f->sums.n; s++) {
    int partner = -1;
    for (int r = 0; r < f->rows.n; r++) {
      if (!overlap(&f->rows.at[r], &f->sums.at[s])) continue;
      if (partner >= 0) return false;
      partner = r;
    }
    if (partner < 0) continue;
    if (f->n_windows == 2) return false;
    f->windows[f->n_windows++] = (struct window){f->rows.at[partner], f->sums.at[s]};
    drop(&f->rows, partner);
    drop(&f->sums, s--);
  }
  return true;
}

// --- the call ---

static kiln_call_axis call_axis(const finding *f, const axis *x, int place) {
  for (int i = 0; i < f->call->n_posts; i++) f->call->posts[i].strides[place] = x->post[i];
  return (kiln_call_axis){x->extent, x->a, x->b, x->c};
}

static void swap_operands(finding *f) {
  const axes rows = f->rows;
  const kiln_call_tensor a = f->call->a;
  axes *const all[] = {&f->rows, &f->columns, &f->sums, &f->batch};
  f->rows = f->columns;
  f->columns = rows;
  f->call->a = f->call->b;
  f->call->b = a;
  for (size_t i = 0; i < KILN_LEN(all); i++)
    for (int k = 0; k < all[i]->n; k++) {
      const int64_t stride = all[i]->at[k].a;
      all[i]->at[k].a = all[i]->at[k].b;
      all[i]->at[k].b = stride;
    }
}

// The axis of |x| with neighbours in c, or else the longest; -1: there is none.
static int main_axis(const axes *x) {
  int best = -1;
  for (int i = 0; i < x->n; i++)
    if (best < 0 || x->at[i].c == 1 || (x->at[best].c != 1 && x->at[i].extent > x->at[best].extent))
      best = i;
  return best;
}

static bool has_neighbours(const axes *x) {
  const int i = main_axis(x);
  return i >= 0 && x->at[i].c == 1;
}

static bool take_main(finding *f, axes *from, int place, kiln_call_axis *out) {
  const int i = main_axis(from);
  *out = (kiln_call_axis){.extent = 1};
  if (i >= 0) {
    *out = call_axis(f, &from->at[i], place);
    drop(from, i);
  }
  for (int k = 0; k < from->n; k++) { // the others are products of their own
    if (f->batch.n == MAX_AXES) return false;
    f->batch.at[f->batch.n++] = from->at[k];
  }
  return true;
}

static bool make_product(finding *f) {
  kiln_call *c = f->call;
  c->kind = KILN_CALL_PRODUCT;
  merge(&f->rows);
  merge(&f->columns);
  merge(&f->sums);
  if (!has_neighbours(&f->columns)) swap_operands(f);
  if (f->sums.n != 1 || !has_neighbours(&f->columns) ||
      !take_main(f, &f->rows, KILN_CALL_M, &c->m) || !take_main(f, &f->columns, KILN_CALL_N, &c->n))
    return false;
  c->k = (kiln_call_axis){f->sums.at[0].extent, f->sums.at[0].a, f->sums.at[0].b, 0};
  merge(&f->batch);
  if (f->batch.n > KILN_CALL_BATCH) return false;
  for (int i = 0; i < f->batch.n; i++) c->batch[c->n_batch++] = call_axis(f, &f->batch.at[i], i);
  return true;
}

static int64_t divisor(int64_t a, int64_t b) {
  while (b) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static kiln_call_window call_window(const finding *f, const struct window *w, int place) {
  const int64_t step = divisor(w->space.a, w->sum.a);
  const int64_t stride = w->space.a / step, dilation = w->sum.a / step;
  const int64_t in = (w->space.extent - 1) * stride + (w->sum.extent - 1) * dilation + 1;
  const kiln_call_axis to = call_axis(f, &w->space, place);
  return (kiln_call_window){.out = to.extent,
                            .in = in,
                            .kernel = w->sum.extent,
                            .stride = stride,
                            .dilation = dilation,
                            .a = step,
                            .b = w->sum.b,
                            .c = to.c};
}

static bool take_only(finding *f, axes *from, int place, kiln_call_axis *out) {
  merge(from);
  *out = (kiln_call_axis){.extent = 1};
  if (from->n == 1) *out = call_axis(f, &from->at[0], place);
  return from->n <= 1;
}

static bool make_convolution(finding *f) {
  kiln_call *c = f->call;
  const bool first = f->n_windows == 1 || f->windows[0].space.a > f->windows[1].space.a;
  c->kind = KILN_CALL_CONVOLUTION;
  c->m.extent = 1;
  c->n_batch = 2;
  c->window[0] = call_window(f, &f->windows[!first], KILN_CALL_M);
  c->window[1] = (kiln_call_window){.out = 1, .in = 1, .kernel = 1, .stride = 1, .dilation = 1};
  if (f->n_windows == 2) c->window[1] = call_window(f, &f->windows[first], KILN_CALL_W);
  merge(&f->sums);
  c->k = (kiln_call_axis){.extent = 1};
  if (f->sums.n == 1)
    c->k = (kiln_call_axis){f->sums.at[0].extent, f->sums.at[0].a, f->sums.at[0].b, 0};
  return f->sums.n <= 1 && take_only(f, &f->rows, 0, &c->batch[0]) &&
         take_only(f, &f->batch, 1, &c->batch[1]) && take_only(f, &f->columns, KILN_CALL_N, &c->n);
}

// --- the program ---

static bool is_f32(const kiln_program *p) {
  for (int i = 0; i < p->tensors.n; i++)
    if (p->tensors.data[i]->dtype != KILN_F32) return false;
  return true;
}

// The only load of the contraction's result in the map, which reads it element by element.
static const kiln_expr *result_load(const finding *f) {
  const kiln_loads loads = kiln_stmt_loads(f->cx, &f->cx->scratch, f->p, f->root);
  const kiln_expr *found = NULL;
  for (int i = 0; i < loads.n; i++) {
    if (!is_result(f, loads.data[i])) continue;
    if (found) return NULL;
    found = loads.data[i];
  }
  return found;
}

static bool find_operands(finding *f) {
  kiln_call *c = f->call;
  const kiln_stmt *s = f->product;
  c->c = (kiln_call_tensor){.arg = arg_of(f->p, f->root->out)};
  return kiln_stmt_is_contraction(s, &f->a, &f->b) && kiln_stmt_is_plain(f->cx, s) &&
         s->body->args[0] == f->a && s->body->args[1] == f->b && find_begin(f, s, f->a, &c->a) &&
         find_begin(f, s, f->b, &c->b);
}

static bool find(finding *f) {
  const kiln_program *p = f->p;
  const kiln_expr *posts[KILN_CALL_POSTS] = {0}, *load = NULL;
  if (p->stmts.n < 1 || p->stmts.n > 2 || !is_f32(p)) return false;
  f->product = p->stmts.data[0];
  f->root = p->stmts.data[p->stmts.n - 1];
  if (!find_operands(f)) return false;
  if (f->root != f->product) {
    if (!kiln_stmt_is_map(f->cx, f->root) || is_param(p, f->product->out) ||
        f->root->n_space != f->product->n_space || !(load = result_load(f)) ||
        !find_posts(f, f->root->body, posts))
      return false;
  }
  if (!find_axes(f, load, posts) || !find_windows(f)) return false;
  if (f->n_windows == 0) {
    swap_operands(f);
    if (!find_windows(f)) return false;
  }
  return f->n_windows ? make_convolution(f) : make_product(f);
}

bool kiln_call_find(kiln_ctx *cx, const kiln_program *p, kiln_call *out) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  finding *f = KILN_NEW(&cx->scratch, finding);
  *out = (kiln_call){.kind = KILN_CALL_PRODUCT};
  *f = (finding){.cx = cx, .p = p, .call = out};
  const bool found = find(f);
  kiln_arena_rewind(&cx->scratch, mark);
  return found;
}

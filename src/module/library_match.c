// Pattern matching of products and convolutions by the strides of a contraction's accesses.
//
// Each dim has a stride in each of the two operands and the result, which classifies it:
//     dim      a  b  result
//     m        x      x          rows
//     n           x   x          columns
//     k        x  x              reduction
//     batch    x  x   x
// Adjacent dims whose strides continue each other are merged. Two dims with strides in the same
// axis of an operand are the window of a convolution; its padding is a select between zero and the
// operand, with two bounds on the window's index.
#include "module/library_match.h"
#include "module/build.h"
#include "support/integer.h"
#include "template/form/product.h"
#include "tile/query.h"

#include <math.h>

enum { MAX_AXES = 2 * KILN_MAX_RANK, MAX_BOUNDS = 8 };

typedef struct axis {
  kiln_symbol var; // the contraction's variable, until axes are merged
  int64_t extent, a, b, c, post[KILN_CALL_POSTS];
} axis;

// The axes of one class.
typedef struct axes {
  int n;
  axis at[MAX_AXES];
} axes;

// A sliding window: result |i| reads elements stride * i + dilation * r for tap r, |step| apart in
// memory; elements before |low| and from |end| on are padding.
typedef struct window {
  axis space, sum;
  int64_t step, stride, dilation, low, end;
} window;

typedef struct finding {
  kiln_ctx *cx;
  const kiln_machine *m;
  const kiln_program *p;
  const kiln_stmt *product,
      *root; // the contraction, and the map that reads its result; the same if there is no map
  const kiln_expr *a, *b; // factors of the contraction, loads of parameters
  int n_bounds;           // conditions bounds[i] >= 0, outside of which a product is zero
  const kiln_expr *bounds[MAX_BOUNDS];
  axes rows, columns, sums, batch; // axes of a and c; of b and c; of a and b; of all three
  int n_windows;
  window windows[2];
  kiln_library_call *call;
} finding;

static int64_t arg_of(const kiln_program *p, int tensor) {
  int64_t n = 0;
  for (int i = 0; i < tensor; i++) n += kiln_tensor_is_param(p, i);
  return n;
}

// --- types ---

// The operand of a widening to f32, or |e| itself.
static const kiln_expr *narrow(const kiln_expr *e) {
  const bool is_widened =
      e->kind == KILN_EXPR_CAST && e->dtype == KILN_F32 && kiln_dtype_is_half(e->args[0]->dtype);
  return is_widened ? e->args[0] : e;
}

static bool find_type(kiln_dtype t, kiln_library_call_type *out) {
  *out = t == KILN_F16 ? KILN_CALL_F16 : t == KILN_BF16 ? KILN_CALL_BF16 : KILN_CALL_F32;
  return t == KILN_F32 || kiln_dtype_is_half(t);
}

static bool find_factor_type(const finding *f, kiln_dtype t, kiln_library_call_type *out) {
  const bool found = find_type(t, out);
  if (t == KILN_F32 && f->m->gpu.rounds_to_tf32) *out = KILN_CALL_TF32;
  return found;
}

// --- operands ---

static bool find_stride(const finding *f, const kiln_stmt *s, const kiln_expr *load,
                        kiln_symbol var, int64_t *out) {
  *out = kiln_stmt_load_stride(f->cx, f->p, s, load, var);
  return *out != INT64_MAX && *out >= 0;
}

// The offset at which |load| reads with all dims of |s| at 0; negative if it is padded.
static bool find_begin(const finding *f, const kiln_stmt *s, const kiln_expr *load,
                       kiln_library_call_tensor *out) {
  kiln_ctx *cx = f->cx;
  const int n = s->n_space + s->n_reduce;
  kiln_symbol *vars = KILN_NEW_ARRAY(&cx->scratch, kiln_symbol, n);
  const kiln_expr **zeros = KILN_NEW_ARRAY(&cx->scratch, const kiln_expr *, n);
  int64_t strides[KILN_MAX_RANK], index = 0;
  kiln_tensor_strides(f->p->tensors.data[load->u.tensor], strides);
  *out = (kiln_library_call_tensor){.arg = arg_of(f->p, load->u.tensor)};
  if (!find_type(load->dtype, &out->type)) return false;
  for (int i = 0; i < n; i++) {
    vars[i] = s->dims[i].name;
    zeros[i] = kiln_int(cx, 0);
  }
  for (int k = 0; k < load->n_args; k++) {
    const kiln_expr *e = kiln_expr_substitute(cx, load->args[k], n, vars, zeros);
    if (!kiln_expr_is_int(e, &index)) return false;
    out->offset += index * strides[k];
  }
  return kiln_tensor_is_param(f->p, load->u.tensor);
}

// --- the epilogue: the map of the contraction's result ---

static bool is_result(const finding *f, const kiln_expr *e) {
  return narrow(e)->kind == KILN_EXPR_LOAD && narrow(e)->u.tensor == f->product->out;
}

static bool add_post(finding *f, kiln_library_call_post post) {
  if (f->call->n_posts == KILN_CALL_POSTS) return false;
  f->call->posts[f->call->n_posts++] = post;
  return true;
}

static bool add_clip(finding *f, float low, float high) {
  kiln_library_call_post *last = &f->call->posts[f->call->n_posts - 1];
  if (f->call->n_posts == 0 || last->kind != KILN_POST_CLIP || low > last->high || high < last->low)
    return add_post(f, (kiln_library_call_post){.kind = KILN_POST_CLIP, .low = low, .high = high});
  last->low = fmaxf(last->low, low);
  last->high = fminf(last->high, high);
  return true;
}

static bool add_operation(finding *f, kiln_expr_kind kind, const kiln_expr *other) {
  const float x = other->kind == KILN_EXPR_FLOAT ? (float)other->u.f : 0;
  kiln_library_call_post add = {.kind = KILN_POST_ADD};
  if (kind == KILN_EXPR_MAX) return add_clip(f, x, INFINITY);
  if (kind == KILN_EXPR_MIN) return add_clip(f, -INFINITY, x);
  if (kind == KILN_EXPR_MUL)
    return add_post(f, (kiln_library_call_post){.kind = KILN_POST_SCALE, .low = x});
  return find_begin(f, f->root, narrow(other), &add.tensor) && add.tensor.offset >= 0 &&
         add_post(f, add);
}

// Reference values of activations; NaN for operations with further operands.
static double activated(kiln_library_call_post_kind k, double x) {
  const double cube = x + 0.044715 * x * x * x;
  switch (k) {
  case KILN_POST_SILU: return x / (1 + exp(-x));
  case KILN_POST_GELU: return x / 2 * (1 + erf(x / sqrt(2)));
  case KILN_POST_SIGMOID: return 1 / (1 + exp(-x));
  case KILN_POST_TANH: return tanh(x);
  case KILN_POST_GELU_TANH: return x / 2 * (1 + tanh(sqrt(2 / M_PI) * cube));
  case KILN_POST_SCALE:
  case KILN_POST_ADD:
  case KILN_POST_CLIP:
  case KILN_N_POSTS: break;
  }
  return (double)NAN;
}

// A substitution of |by| for |x| in |in|.
typedef struct standing {
  const kiln_expr *in, *x, *by;
} standing;

static const kiln_expr *stand_in(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const standing *s = argument;
  (void)cx;
  return e == s->x ? s->by : NULL;
}

// Recognizes activations by value rather than by spelling: |e| as a function of |x| is evaluated at
// 64 points.
static bool is_activation(const finding *f, const kiln_expr *e, const kiln_expr *x,
                          kiln_library_call_post_kind k) {
  enum { POINTS = 64 };
  for (int i = 0; i < POINTS; i++) {
    const double at = i == 0 ? -60 : i == 1 ? 60 : 0.27 * (i - POINTS / 2);
    standing s = {e, x, kiln_number(f->cx, KILN_F32, at)};
    const kiln_expr *got = kiln_expr_replace(f->cx, e, stand_in, &s);
    const double want = activated(k, at);
    if (got->kind != KILN_EXPR_FLOAT || !(fabs(got->u.f - want) <= 1e-5 * (1 + fabs(want))))
      return false;
  }
  return true;
}

// Subexpressions that contain all loads of an expression, which so is a function of each of them
// alone.
typedef struct arguments {
  const finding *f;
  const kiln_expr *e;
  int n;
  const kiln_expr *at[2 * KILN_MAX_RANK];
} arguments;

// Called on subexpressions first.
static void note_argument(const kiln_expr *x, void *argument) {
  arguments *a = argument;
  standing s = {a->e, x, kiln_number(a->f->cx, KILN_F32, 0.5)};
  if (x == a->e || x->dtype != KILN_F32 || !kiln_expr_has_load(x) || a->n == KILN_LEN(a->at))
    return;
  if (!kiln_expr_has_load(kiln_expr_replace(a->f->cx, a->e, stand_in, &s))) a->at[a->n++] = x;
}

// An operation of the epilogue.
typedef struct operation {
  const kiln_expr *e, *inner; // the operation and its operand towards the contraction
  const kiln_expr *other;     // a constant, or the load that is added; NULL: an activation
  kiln_library_call_post_kind activation; // if |other| is NULL
} operation;

static bool find_operation(const finding *f, const kiln_expr *e, operation *out) {
  if (e->n_args != 2) return false;
  const bool left = kiln_expr_has_load(e->args[0]) &&
                    (is_result(f, e->args[0]) || narrow(e->args[0])->kind != KILN_EXPR_LOAD);
  *out = (operation){.e = e, .inner = e->args[!left], .other = e->args[left]};
  if (out->other->kind == KILN_EXPR_FLOAT)
    return e->kind == KILN_EXPR_MAX || e->kind == KILN_EXPR_MIN || e->kind == KILN_EXPR_MUL;
  return e->kind == KILN_EXPR_ADD && narrow(out->other)->kind == KILN_EXPR_LOAD &&
         !is_result(f, out->other);
}

static bool find_activation(const finding *f, const kiln_expr *e, operation *out) {
  arguments a = {.f = f, .e = e};
  kiln_expr_visit(f->cx, e, note_argument, &a);
  while (a.n-- > 0)
    for (int k = 0; k < KILN_N_POSTS; k++) {
      *out = (operation){.e = e, .inner = a.at[a.n], .activation = (kiln_library_call_post_kind)k};
      if (is_activation(f, e, out->inner, out->activation)) return true;
    }
  return false;
}

static bool add_step(finding *f, const operation *s) {
  return s->other ? add_operation(f, s->e->kind, s->other)
                  : add_post(f, (kiln_library_call_post){.kind = s->activation});
}

// The operations from the contraction's result to |e|, innermost first; loads[i] is the addend of
// post |i|.
static bool find_posts(finding *f, const kiln_expr *e, const kiln_expr **loads) {
  enum { DEEP = 2 * KILN_CALL_POSTS };
  operation way[DEEP];
  int n = 0;
  for (; !is_result(f, e); e = way[n++].inner)
    if (n == DEEP || e->dtype != KILN_F32 ||
        (!find_operation(f, e, &way[n]) && !find_activation(f, e, &way[n])))
      return false;
  while (n-- > 0) {
    if (!add_step(f, &way[n])) return false;
    loads[f->call->n_posts - 1] = way[n].other ? narrow(way[n].other) : NULL;
  }
  return true;
}

// --- the axes ---

// The root's variable that indexes axis |k| of the contraction's result; 0: none.
static kiln_symbol root_var(const finding *f, const kiln_expr *load, int k) {
  if (f->root == f->product) return f->root->dims[k].name;
  return load->args[k]->kind == KILN_EXPR_VAR ? load->args[k]->u.sym : 0;
}

// gives: false if the root does not cover the whole axis
static bool find_result_strides(const finding *f, const kiln_expr *load,
                                const kiln_expr *const *posts, int k, axis *io) {
  int64_t strides[KILN_MAX_RANK];
  const kiln_symbol var = root_var(f, load, k);
  const int at = kiln_stmt_space_dim(f->root, var);
  kiln_tensor_strides(f->p->tensors.data[f->root->out], strides);
  if (at < 0 || kiln_dim_extent(&f->root->dims[at]) != io->extent) return false;
  io->c = strides[at];
  for (int i = 0; i < f->call->n_posts; i++)
    if (f->call->posts[i].kind == KILN_POST_ADD &&
        !find_stride(f, f->root, posts[i], var, &io->post[i]))
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
    axis x = {.var = s->dims[d].name, .extent = kiln_dim_extent(&s->dims[d])};
    if (x.extent < 1) return false;
    if (x.extent == 1) continue;
    if (!find_stride(f, s, f->a, s->dims[d].name, &x.a) ||
        !find_stride(f, s, f->b, s->dims[d].name, &x.b))
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

// Whether |sum| and |space| address overlapping elements of a, as the taps and positions of a
// sliding window do.
static bool overlap(const axis *space, const axis *sum) {
  return sum->a < space->extent * space->a && space->a <= (sum->extent - 1) * sum->a;
}

static int64_t divisor(int64_t a, int64_t b) {
  while (b) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static window make_window(const axis *space, const axis *sum) {
  const int64_t step = divisor(space->a, sum->a);
  window w = {*space, *sum, step, space->a / step, sum->a / step, 0, 0};
  w.end = (space->extent - 1) * w.stride + (sum->extent - 1) * w.dilation + 1;
  return w;
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
    f->windows[f->n_windows++] = make_window(&f->rows.at[partner], &f->sums.at[s]);
    drop(&f->rows, partner);
    drop(&f->sums, s--);
  }
  return true;
}

// The factor by which the element index of |w| occurs in a linear form of the dims; 0 if the form
// is not a multiple of it.
static int64_t times_element(const finding *f, const window *w, const int64_t *coef) {
  const kiln_stmt *s = f->product;
  int64_t times = 0;
  for (int d = 0; d < s->n_space + s->n_reduce; d++)
    if (s->dims[d].name == w->space.var) times = coef[d] / w->stride;
  for (int d = 0; d < s->n_space + s->n_reduce; d++) {
    const int64_t part = s->dims[d].name == w->space.var ? w->stride
                         : s->dims[d].name == w->sum.var ? w->dilation
                                                         : 0;
    if (coef[d] != times * part && kiln_dim_extent(&s->dims[d]) > 1) return 0;
  }
  return times;
}

// Tightens the window's [low, end) by: elements are read where |times| * index + |constant| >= 0.
static void take_bound(window *w, int64_t times, int64_t constant) {
  if (times < 0) {
    const int64_t end = constant < 0 ? 0 : constant / -times + 1;
    if (end < w->end) w->end = end;
  } else if (-constant > w->low * times) w->low = kiln_divide_up(-constant, times);
}

// Interprets the bounds as padding of the windows.
static bool find_padding(finding *f) {
  const kiln_stmt *s = f->product;
  const int n = s->n_space + s->n_reduce;
  kiln_symbol vars[2 * KILN_MAX_RANK];
  int64_t coef[2 * KILN_MAX_RANK], constant = 0;
  for (int d = 0; d < n; d++) vars[d] = s->dims[d].name;
  for (int i = 0; i < f->n_bounds; i++) {
    bool found = false;
    if (!kiln_expr_affine(f->bounds[i], n, vars, coef, &constant)) return false;
    for (int k = 0; k < f->n_windows && !found; k++) {
      const int64_t times = times_element(f, &f->windows[k], coef);
      if ((found = times != 0)) take_bound(&f->windows[k], times, constant);
    }
    if (!found) return false;
  }
  return true;
}

// --- the call ---

static kiln_library_call_axis call_axis(const finding *f, const axis *x, int place) {
  for (int i = 0; i < f->call->n_posts; i++) f->call->posts[i].strides[place] = x->post[i];
  return (kiln_library_call_axis){x->extent, x->a, x->b, x->c};
}

static void swap_operands(finding *f) {
  const axes rows = f->rows;
  const kiln_library_call_tensor a = f->call->a;
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

// The axis of |x| that is contiguous in c, or else the longest; -1: none.
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

static bool take_main(finding *f, axes *from, int place, kiln_library_call_axis *out) {
  const int i = main_axis(from);
  *out = (kiln_library_call_axis){.extent = 1};
  if (i >= 0) {
    *out = call_axis(f, &from->at[i], place);
    drop(from, i);
  }
  for (int k = 0; k < from->n; k++) { // other axes become batch axes
    if (f->batch.n == MAX_AXES) return false;
    f->batch.at[f->batch.n++] = from->at[k];
  }
  return true;
}

static bool make_product(finding *f) {
  kiln_library_call *c = f->call;
  c->kind = KILN_CALL_PRODUCT;
  merge(&f->rows);
  merge(&f->columns);
  merge(&f->sums);
  if (!has_neighbours(&f->columns)) swap_operands(f);
  if (f->sums.n != 1 || !has_neighbours(&f->columns) ||
      !take_main(f, &f->rows, KILN_CALL_M, &c->m) || !take_main(f, &f->columns, KILN_CALL_N, &c->n))
    return false;
  c->k = (kiln_library_call_axis){f->sums.at[0].extent, f->sums.at[0].a, f->sums.at[0].b, 0};
  merge(&f->batch);
  if (f->batch.n > KILN_CALL_BATCH) return false;
  for (int i = 0; i < f->batch.n; i++) c->batch[c->n_batch++] = call_axis(f, &f->batch.at[i], i);
  return true;
}

// Converts a window for the call; false if some window is entirely padding, which calls do not
// support.
static bool call_window(const finding *f, const window *w, int place,
                        kiln_library_call_window *out) {
  const kiln_library_call_axis to = call_axis(f, &w->space, place);
  *out = (kiln_library_call_window){.out = to.extent,
                                    .in = w->end - w->low,
                                    .kernel = w->sum.extent,
                                    .stride = w->stride,
                                    .dilation = w->dilation,
                                    .pad = w->low,
                                    .a = w->step,
                                    .b = w->sum.b,
                                    .c = to.c};
  f->call->a.offset += w->low * w->step;
  return (to.extent - 1) * w->stride < w->end && w->low <= (w->sum.extent - 1) * w->dilation;
}

static int64_t last_of_image(const kiln_library_call *c) {
  const kiln_library_call_axis *outer[] = {&c->batch[0], &c->batch[1], &c->k};
  int64_t last = c->a.offset;
  for (int i = 0; i < 3; i++) last += (outer[i]->extent - 1) * outer[i]->a;
  for (int i = 0; i < 2; i++) last += (c->window[i].in - 1) * c->window[i].a;
  return last;
}

// Windows may leave the last elements of a row, or the last rows, unread: the call still gets the
// whole image, whose rows are |apart| elements apart.
static void widen(const finding *f, kiln_library_call_window *w, int64_t apart) {
  const kiln_library_call *c = f->call;
  const int64_t in = w->in,
                read = (w->out - 1) * w->stride + (w->kernel - 1) * w->dilation + 1 - w->pad;
  const kiln_expr *load = arg_of(f->p, f->a->u.tensor) == c->a.arg ? f->a : f->b;
  const kiln_tensor *t = f->p->tensors.data[load->u.tensor];
  if (read > in || w->a == 0 || apart % w->a != 0 || apart / w->a <= in) return;
  w->in = apart / w->a;
  if (last_of_image(c) >= (int64_t)kiln_storage_bytes(t) / kiln_dtype_bytes(t->dtype)) w->in = in;
}

static void widen_all(const finding *f) {
  kiln_library_call *c = f->call;
  const kiln_library_call_axis *outer[] = {&c->batch[0], &c->batch[1], &c->k};
  int64_t apart = INT64_MAX; // distance of images, or of channels if that is smaller
  for (int i = 0; i < 3; i++)
    if (outer[i]->extent > 1 && outer[i]->a > c->window[0].a && outer[i]->a < apart)
      apart = outer[i]->a;
  widen(f, &c->window[1], c->window[0].a);
  if (apart != INT64_MAX) widen(f, &c->window[0], apart);
}

static bool take_only(finding *f, axes *from, int place, kiln_library_call_axis *out) {
  merge(from);
  *out = (kiln_library_call_axis){.extent = 1};
  if (from->n == 1) *out = call_axis(f, &from->at[0], place);
  return from->n <= 1;
}

static bool make_convolution(finding *f) {
  kiln_library_call *c = f->call;
  const bool first = f->n_windows == 1 || f->windows[0].space.a > f->windows[1].space.a;
  c->kind = KILN_CALL_CONVOLUTION;
  c->m.extent = 1;
  c->n_batch = 2;
  c->window[1] =
      (kiln_library_call_window){.out = 1, .in = 1, .kernel = 1, .stride = 1, .dilation = 1};
  if (!call_window(f, &f->windows[!first], KILN_CALL_M, &c->window[0]) ||
      (f->n_windows == 2 && !call_window(f, &f->windows[first], KILN_CALL_W, &c->window[1])))
    return false;
  merge(&f->sums);
  c->k = (kiln_library_call_axis){.extent = 1};
  if (f->sums.n == 1)
    c->k = (kiln_library_call_axis){f->sums.at[0].extent, f->sums.at[0].a, f->sums.at[0].b, 0};
  if (f->sums.n > 1 || !take_only(f, &f->rows, 0, &c->batch[0]) ||
      !take_only(f, &f->batch, 1, &c->batch[1]) || !take_only(f, &f->columns, KILN_CALL_N, &c->n))
    return false;
  widen_all(f);
  return true;
}

// --- the program ---

// Adds the conditions >= 0 that together are |inside|.
static bool add_bounds(finding *f, const kiln_expr *inside) {
  if (inside->n_args != 2) return false;
  const kiln_expr *x = inside->args[0], *y = inside->args[1];
  const bool is_more = inside->kind == KILN_EXPR_GT || inside->kind == KILN_EXPR_GE,
             is_strict = inside->kind == KILN_EXPR_LT || inside->kind == KILN_EXPR_GT;
  if (inside->kind == KILN_EXPR_AND) return add_bounds(f, x) && add_bounds(f, y);
  if ((!is_more && !is_strict && inside->kind != KILN_EXPR_LE) || f->n_bounds == MAX_BOUNDS)
    return false;
  const kiln_expr *over = is_more ? kiln_sub(f->cx, x, y) : kiln_sub(f->cx, y, x);
  f->bounds[f->n_bounds++] = kiln_sub(f->cx, over, kiln_int(f->cx, is_strict));
  return true;
}

// The load of a parameter that |e| is where it is not zero; NULL: |e| has another form.
static const kiln_expr *factor_of(finding *f, const kiln_expr *e) {
  for (e = narrow(e); e->kind == KILN_EXPR_SELECT; e = narrow(e->args[1]))
    if (e->args[2] != kiln_number(f->cx, e->dtype, 0) || !add_bounds(f, e->args[0])) return NULL;
  return e->kind == KILN_EXPR_LOAD && kiln_tensor_is_param(f->p, e->u.tensor) ? e : NULL;
}

static bool is_sum_of_products(const kiln_stmt *s) {
  return s->combiner == KILN_COMBINE_SUM && s->n_reduce > 0 && !s->guard && !s->init &&
         s->body->kind == KILN_EXPR_MUL;
}

static bool find_operands(finding *f) {
  kiln_library_call *c = f->call;
  const kiln_stmt *s = f->product;
  const kiln_dtype stored = f->p->tensors.data[f->root->out]->dtype;
  c->c = (kiln_library_call_tensor){.arg = arg_of(f->p, f->root->out)};
  return is_sum_of_products(s) && kiln_stmt_is_plain(f->cx, s) && s->body->dtype == KILN_F32 &&
         (f->a = factor_of(f, s->body->args[0])) != NULL &&
         (f->b = factor_of(f, s->body->args[1])) != NULL && find_begin(f, s, f->a, &c->a) &&
         find_begin(f, s, f->b, &c->b) && find_factor_type(f, f->a->dtype, &c->a.type) &&
         find_factor_type(f, f->b->dtype, &c->b.type) && find_type(stored, &c->c.type);
}

// The single load of the contraction's result in the map, which must read it elementwise.
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

// The value that the root stores, before rounding.
static const kiln_expr *root_body(const finding *f) {
  const kiln_expr *e = f->root->body;
  const bool is_rounded =
      e->kind == KILN_EXPR_CAST && kiln_dtype_is_half(e->dtype) && e->args[0]->dtype == KILN_F32;
  return kiln_product_unrounded(f->cx, is_rounded ? e->args[0] : e);
}

static int count_uses(const kiln_library_call *c, int64_t arg) {
  int n = (c->a.arg == arg) + (c->b.arg == arg) + (c->c.arg == arg);
  for (int i = 0; i < c->n_posts; i++)
    n += c->posts[i].kind == KILN_POST_ADD && c->posts[i].tensor.arg == arg;
  return n;
}

// Constant addends are rounded to the result's type.
static void round_constants(const finding *f, const kiln_expr *const *posts) {
  kiln_library_call *c = f->call;
  for (int i = 0; i < c->n_posts; i++) {
    if (c->posts[i].kind != KILN_POST_ADD || c->c.type == KILN_CALL_F32) continue;
    const kiln_tensor *t = f->p->tensors.data[posts[i]->u.tensor];
    if (t->role == KILN_CONST && t->dtype == KILN_F32 && count_uses(c, c->posts[i].tensor.arg) == 1)
      c->posts[i].tensor.type = c->c.type;
  }
}

static bool find(finding *f) {
  const kiln_program *p = f->p;
  const kiln_expr *posts[KILN_CALL_POSTS] = {0}, *load = NULL;
  if (p->stmts.n < 1) return false;
  f->root = p->stmts.data[p->stmts.n - 1];
  f->product = p->stmts.data[p->stmts.n > 1 ? p->stmts.n - 2 : 0];
  if (!find_operands(f) || p->stmts.n != 1 + (f->root != f->product)) return false;
  if (f->root != f->product) {
    if (!kiln_stmt_is_map(f->cx, f->root) || kiln_tensor_is_param(p, f->product->out) ||
        f->root->n_space != f->product->n_space || !(load = result_load(f)) ||
        !find_posts(f, root_body(f), posts))
      return false;
  }
  if (!find_axes(f, load, posts) || !find_windows(f)) return false;
  if (f->n_windows == 0) {
    swap_operands(f);
    if (!find_windows(f)) return false;
  }
  if (!find_padding(f)) return false;
  round_constants(f, posts);
  return (f->n_windows ? make_convolution(f) : make_product(f)) && f->call->a.offset >= 0 &&
         f->call->b.offset >= 0;
}

bool kiln_library_match(kiln_ctx *cx, const kiln_machine *m, const kiln_program *p,
                        kiln_library_call *out) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  finding *f = KILN_NEW(&cx->scratch, finding);
  *out = (kiln_library_call){.kind = KILN_CALL_PRODUCT};
  *f = (finding){.cx = cx, .m = m, .p = p, .call = out};
  const bool found = find(f);
  kiln_arena_rewind(&cx->scratch, mark);
  return found;
}

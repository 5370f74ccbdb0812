// Cache footprint and traffic of a grouped convolution, in lines, by the place of the loop over
// groups.
#include "template/cpu/interleaved.h"

#include "support/integer.h"

#include <math.h>

// Granularity of reads from beyond the L2: shorter runs are read a line at a time, at full latency
// each.
enum { LINE = 64, RUN_BYTES = 256, MAX_STEPS = 2 * KILN_MAX_RANK };

static const double L2_USABLE = 0.6, L1_USABLE = 0.5;
// Share of the weights' transfer into the L1 that is not hidden: they are read sequentially.
static const double STREAMED = 0.2;
// Slowdown of short runs that are not prefetched (template/cpu/rows_ahead.h), as where the loop
// over groups is outermost.
static const double UNASKED = 4;

// |extent| elements, |stride| bytes apart.
typedef struct step {
  int64_t stride, extent;
} step;

// Access pattern of an operand, by ascending stride.
typedef struct steps {
  int n;
  step data[MAX_STEPS];
} steps;

static void add_step(steps *s, int64_t stride, int64_t extent) {
  if (stride <= 0 || stride == INT64_MAX || extent <= 1) return;
  int at = 0;
  while (at < s->n && s->data[at].stride < stride) at++;
  if (at < s->n && s->data[at].stride == stride) {
    s->data[at].extent += extent - 1; // a window's taps slide along the pixels
    return;
  }
  for (int i = s->n++; i > at; i--) s->data[i] = s->data[i - 1];
  s->data[at] = (step){stride, extent};
}

// Bytes that |s| touches, in multiples of |unit|.
static double touched(const steps *s, int element_bytes, double unit) {
  double pieces = 1,
         reach = element_bytes; // |pieces| as long as |reach| each, until there is a gap
  bool has_gaps = false;
  for (int i = 0; i < s->n; i++) {
    const double stride = (double)s->data[i].stride,
                 more = (double)(s->data[i].extent - 1) * stride;
    if (!has_gaps && stride > fmax(reach, unit)) {
      has_gaps = true;
      pieces = fmax(reach, unit);
    }
    if (has_gaps) pieces *= stride > reach ? (double)s->data[i].extent : 1 + more / reach;
    reach += more;
  }
  return has_gaps ? pieces : fmax(reach, unit);
}

// Extent of the result's dim |d| in an iteration of the first |place| loops over rows, for all
// groups or for one.
static int64_t extent_inside(const kiln_contraction *k, int d, int place, bool all_groups) {
  int row = 0;
  for (int i = 0; i < d; i++) row += !kiln_contraction_is_batch(k, i);
  if (kiln_contraction_is_batch(k, d)) return all_groups ? k->dims[d].extent : 1;
  return row < place ? k->dims[d].tile : k->dims[d].extent;
}

// Stride of |load| along |var| in bytes; INT64_MAX: unknown, or too large.
static int64_t bytes_apart(const kiln_contraction *k, const kiln_expr *load, kiln_symbol var,
                           int bytes) {
  const int64_t stride = kiln_load_stride(k->w->cx, k->w->p, load, var);
  return stride > INT64_MAX / bytes ? INT64_MAX : stride * bytes;
}

static double operand_bytes(const kiln_contraction *k, const kiln_expr *load, int place,
                            bool all_groups, double unit) {
  const kiln_program *p = k->w->p;
  const int bytes = kiln_dtype_bytes(p->tensors.data[load->u.tensor]->dtype);
  steps s = {0};
  for (int d = 0; d < k->n_dims; d++)
    add_step(&s, bytes_apart(k, load, k->dims[d].dim, bytes),
             extent_inside(k, d, place, all_groups));
  for (int r = k->c->n_space; r < k->c->n_space + k->c->n_reduce; r++)
    add_step(&s, bytes_apart(k, load, k->c->dims[r].name, bytes), kiln_lowering_extent(k->c, r));
  return touched(&s, bytes, unit);
}

static double result_bytes(const kiln_contraction *k, int place, bool all_groups, double unit) {
  const kiln_stmt *f = k->node->finish ? k->node->finish : k->c;
  const kiln_tensor *t = k->w->p->tensors.data[f->out];
  const int bytes = kiln_dtype_bytes(t->dtype);
  int64_t strides[KILN_MAX_RANK];
  steps s = {0};
  kiln_tensor_strides(t, strides);
  for (int d = 0; d < k->n_dims; d++)
    add_step(&s, strides[d] * bytes, extent_inside(k, d, place, all_groups));
  add_step(&s, strides[k->n_dims] * bytes, k->v.extent);
  return touched(&s, bytes, unit);
}

static double groups_of(const kiln_contraction *k) {
  double groups = 1;
  for (int d = 0; d < k->n_dims; d++)
    if (kiln_contraction_is_batch(k, d)) groups *= (double)k->dims[d].extent;
  return groups;
}

// Bytes that one group reads of a pixel.
static int64_t group_row_bytes(const kiln_contraction *k) {
  const kiln_tensor *t = k->w->p->tensors.data[k->a->u.tensor];
  int64_t elems = 1;
  for (int r = k->c->n_space; r < k->c->n_space + k->c->n_reduce; r++)
    if (kiln_load_stride(k->w->cx, k->w->p, k->a, k->c->dims[r].name) == 1)
      elems = kiln_lowering_extent(k->c, r);
  return elems * kiln_dtype_bytes(t->dtype);
}

// Iterations of the first |place| loops over rows.
static double iterations(const kiln_contraction *k, int place) {
  double n = 1;
  for (int d = 0, row = 0; d < k->n_dims && row < place; d++) {
    if (kiln_contraction_is_batch(k, d)) continue;
    n *= (double)kiln_divide_up(k->dims[d].extent, k->dims[d].tile);
    row++;
  }
  return n;
}

// Bytes of the image, of the result and of the weights: in a piece, for all groups and for one, and
// as a whole.
typedef struct amounts {
  double pieces, groups, image, one_image, result, one_result, weights, whole;
} amounts;

// |unit|: granularity of one group's bytes.
static amounts count(const kiln_contraction *k, int place, double unit) {
  amounts a = {.pieces = iterations(k, place), .groups = groups_of(k)};
  a.image = operand_bytes(k, k->a, place, true, LINE);
  a.one_image = operand_bytes(k, k->a, place, false, unit);
  a.result = result_bytes(k, place, true, LINE);
  a.one_result = result_bytes(k, place, false, unit);
  a.weights = k->b_bytes * a.groups;
  a.whole = operand_bytes(k, k->a, 0, true, LINE) + result_bytes(k, 0, true, LINE);
  return a;
}

// The image is read once where a piece of it stays in the L2 for all groups, else once for each.
static double into_l2(const kiln_contraction *k, int place) {
  const double room = (double)k->w->m->l2_bytes * L2_USABLE;
  const amounts a = count(k, place, RUN_BYTES);
  return (a.image + a.result <= room ? a.whole
                                     : a.pieces * a.groups * (a.one_image + a.one_result)) +
         a.weights * (a.weights <= room ? 1 : a.pieces);
}

// Bytes of the L1 that lines at the pixels' stride occupy, set conflicts included.
static double taken(const kiln_contraction *k, double bytes) {
  const kiln_machine *m = k->w->m;
  const kiln_tensor *t = k->w->p->tensors.data[k->a->u.tensor];
  const int inner = k->col >= 0 ? k->col : k->row;
  const int64_t apart =
      inner < 0 ? 0 : kiln_load_stride(k->w->cx, k->w->p, k->a, k->dims[inner].dim);
  if (apart <= 0 || apart == INT64_MAX) return bytes;
  const int64_t common = kiln_gcd(apart * kiln_dtype_bytes(t->dtype),
                                  m->l1_bytes / kiln_machine_ways(m, 1)),
                line = kiln_round_up(group_row_bytes(k), LINE);
  return common > line ? bytes * (double)common / (double)line : bytes;
}

// Groups that share lines run one after the other, so that a line is loaded once if one group's
// lines stay; weights are streamed.
static void into_l1(const kiln_contraction *k, int place, double *out_images, double *out_weights) {
  const double l1 = (double)k->w->m->l1_bytes;
  const amounts a = count(k, place, LINE);
  const double stays = fmin(1, l1 / taken(k, a.one_image));
  *out_images = a.pieces * (stays * a.image + (1 - stays) * a.groups * a.one_image);
  *out_weights = a.weights * (a.weights <= l1 * L1_USABLE ? 1 : a.pieces);
}

// Whether a group's runs are shorter than the granularity of reads, and the image comes from behind
// the L2.
static bool waits(const kiln_contraction *k, bool is_far) {
  enum { SOME = 4 }; // more than a quarter of the bytes read belong to another group
  const amounts a = count(k, 0, RUN_BYTES);
  return is_far && SOME * a.groups * a.one_image > (SOME + 1) * a.image;
}

bool kiln_interleaved_is(const kiln_contraction *k) {
  const kiln_tensor *b = k->w->p->tensors.data[k->b->u.tensor];
  return b->role == KILN_CONST && k->keeps_b && !k->packs_rows && !k->node->step &&
         !k->node->decoded && groups_of(k) > 1;
}

kiln_interleaved kiln_interleaved_place(const kiln_contraction *k) {
  const kiln_machine *m = k->w->m;
  const kiln_device *d = m->device;
  const int l3 = d ? kiln_device_level(d, "L3") : -1, l2 = d ? kiln_device_level(d, "L2") : -1;
  const double far = l3 >= 0 ? d->levels[l3].unit_bytes_ns : 1,
               near = l2 >= 0 ? d->levels[l2].unit_bytes_ns : 2 * far;
  const bool is_far = count(k, 0, LINE).whole > (double)m->l2_bytes * L2_USABLE;
  kiln_interleaved best = {0};
  double least = INFINITY;
  int rows = 0;
  for (int i = 0; i < k->n_dims; i++) rows += !kiln_contraction_is_batch(k, i);
  for (int place = 0; place <= rows; place++) {
    double images, weights;
    into_l1(k, place, &images, &weights);
    const double from_afar = into_l2(k, place),
                 waiting = place == 0 && waits(k, is_far) ? UNASKED : 1,
                 ns = waiting * from_afar / far + (images + STREAMED * weights) / near;
    if (ns >= least) continue;
    least = ns;
    best = (kiln_interleaved){.n_around = place, .l2 = from_afar, .l1 = images + weights};
  }
  best.is_far = is_far;
  return best;
}

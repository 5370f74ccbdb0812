// Counts lines: what a piece of an image takes up in a cache, and how often it is read, by the
// place of the groups' loop.
#include "template/cpu/interleaved.h"

#include "support/integer.h"

#include <math.h>

// Bytes that come at once from behind the L2: shorter runs are read from afar a line at a time,
// each waited for.
enum { LINE = 64, RUN_BYTES = 256, MAX_STEPS = 2 * KILN_MAX_RANK };

static const double L2_USABLE = 0.6, L1_USABLE = 0.5;
// Of the time that weights take into the L1, what is not hidden: they lie as they are read.
static const double STREAMED = 0.2;
// How much longer short runs take that are not asked for (template/cpu/rows_ahead.h), as where the
// groups' loop runs around everything.
static const double UNASKED = 4;

// So many elements, each |stride| bytes on.
typedef struct step {
  int64_t stride, extent;
} step;

// What an operand is read along, by ascending stride.
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

// Bytes in pieces of |unit| that are touched along |s|.
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

// Extents of an iteration of the first |place| loops over rows, for all groups or for one; of the
// result's dims.
static int64_t extent_inside(const kiln_contraction *k, int d, int place, bool all_groups) {
  int row = 0;
  for (int i = 0; i < d; i++) row += !kiln_contraction_is_batch(k, i);
  if (kiln_contraction_is_batch(k, d)) return all_groups ? k->dims[d].extent : 1;
  return row < place ? k->dims[d].tile : k->dims[d].extent;
}

// Bytes from an element of |load| to the next along |var|; INT64_MAX: not known, or too many.
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

// Bytes of the image, of the result and of the weights: of a piece, for all groups and for one, and
// of the whole.
typedef struct amounts {
  double pieces, groups, image, one_image, result, one_result, weights, whole;
} amounts;

// |unit|: bytes in which what one group touches is counted.
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

// An image comes once where a piece of it stays for all groups, else for each of them.
static double into_l2(const kiln_contraction *k, int place) {
  const double room = (double)k->w->m->l2_bytes * L2_USABLE;
  const amounts a = count(k, place, RUN_BYTES);
  return (a.image + a.result <= room ? a.whole
                                     : a.pieces * a.groups * (a.one_image + a.one_result)) +
         a.weights * (a.weights <= room ? 1 : a.pieces);
}

// What lines at pixels' distance take up of the L1, in whose sets they meet.
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

// Groups that share lines follow each other, so that a line comes once if those of one group stay;
// weights come in streams.
static void into_l1(const kiln_contraction *k, int place, double *out_images, double *out_weights) {
  const double l1 = (double)k->w->m->l1_bytes;
  const amounts a = count(k, place, LINE);
  const double stays = fmin(1, l1 / taken(k, a.one_image));
  *out_images = a.pieces * (stays * a.image + (1 - stays) * a.groups * a.one_image);
  *out_weights = a.weights * (a.weights <= l1 * L1_USABLE ? 1 : a.pieces);
}

// Whether a group's runs are shorter than what comes at once, and the image comes from behind the
// L2.
static bool waits(const kiln_contraction *k, bool is_far) {
  enum { SOME = 4 }; // more than a quarter of what comes is another group's
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

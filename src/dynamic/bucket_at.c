// Runs at given extents without a module (bucket_at.h).
#include "dynamic/bucket_at.h"
#include "analysis/simplify.h"
#include "dynamic/ranges.h"
#include "runtime/check.h"
#include "target/gpu/nest.h"

static int64_t value_of(kiln_ctx *cx, const kiln_model_ranges *r, const kiln_expr *e,
                        const int64_t *values) {
  const kiln_expr *numbers[KILN_MAX_DIMS];
  for (int d = 0; d < r->n_dims; d++) numbers[d] = kiln_int(cx, values[d]);
  e = kiln_expr_substitute(cx, e, r->n_dims, r->symbols, numbers);
  return kiln_expr_int_or(kiln_simplify(cx, e, NULL), -1);
}

// --- the tensors of a run ---

typedef struct ports_at {
  kiln_ctx *cx;
  const kiln_model *m;
  const int64_t *values;
  int64_t *shape; // [KILN_MAX_RANK] of the port that was asked for last
} ports_at;

static kiln_port port_at(const ports_at *p, const kiln_interface *face, const kiln_expr ***shapes,
                         size_t i) {
  kiln_port port = face->ports[i];
  for (int k = 0; k < port.rank; k++)
    p->shape[k] = value_of(p->cx, p->m->ranges, shapes[i][k], p->values);
  port.shape = p->shape;
  return port;
}

static kiln_port input_port(const void *object, size_t i) {
  const ports_at *p = object;
  return port_at(p, &p->m->inputs, p->m->ranges->in_shapes, i);
}

static kiln_port output_port(const void *object, size_t i) {
  const ports_at *p = object;
  return port_at(p, &p->m->outputs, p->m->ranges->out_shapes, i);
}

// The extent of the first axis that is just dimension |d|; -1: no input has one.
static int64_t find_value(const kiln_model *m, const kiln_bucket_run *run, int d) {
  const kiln_model_ranges *r = m->ranges;
  for (size_t i = 0; run->inputs && i < run->n_inputs && i < (size_t)m->inputs.n; i++)
    for (int k = 0; run->inputs[i] && k < m->inputs.ports[i].rank; k++) {
      const kiln_expr *e = r->in_shapes[i][k];
      if (e->kind == KILN_EXPR_VAR && e->u.sym == r->symbols[d] && k < run->inputs[i]->ndim)
        return run->inputs[i]->shape[k];
    }
  return -1;
}

static kiln_status find_values(kiln_ctx *cx, const kiln_model *m, kiln_bucket_run *io) {
  for (int d = 0; d < m->ranges->n_dims; d++) {
    const kiln_dim_range *x = &m->ranges->dims[d];
    const int64_t value = io->values[d] = find_value(m, io, d);
    if (value < x->least || value > x->most || (value - x->least) % x->step != 0)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, "run",
                       "dimension %s: must be %" PRId64 " to %" PRId64 " in steps of %" PRId64
                       ", got %" PRId64,
                       x->name, x->least, x->most, x->step, value);
  }
  return KILN_OK;
}

static bool takes(const kiln_bucket *b, int n_dims, const int64_t *values) {
  bool does = true;
  for (int d = 0; d < n_dims; d++) does &= b->least[d] <= values[d] && values[d] <= b->most[d];
  return does;
}

kiln_status kiln_bucket_of(kiln_ctx *cx, const kiln_model *m, kiln_bucket_run *io) {
  const kiln_model_ranges *r = m->ranges;
  int64_t shape[KILN_MAX_RANK];
  const ports_at at = {cx, m, io->values, shape};
  const kiln_ports in = {
      .what = "input", .n = (size_t)m->inputs.n, .port = input_port, .object = &at};
  const kiln_ports out = {
      .what = "output", .n = (size_t)m->outputs.n, .port = output_port, .object = &at};
  KILN_TRY(find_values(cx, m, io));
  KILN_TRY(kiln_check_tensors(&in, io->n_inputs, io->inputs, cx->diag));
  KILN_TRY(kiln_check_tensors(&out, io->n_outputs, (const DLTensor *const *)io->outputs, cx->diag));
  for (int i = 0; i < r->n_buckets; i++) {
    io->bucket = i;
    if (takes(&r->buckets[i], r->n_dims, io->values)) return KILN_OK;
  }
  return KILN_FAIL(cx->diag, KILN_INTERNAL, m->path, "ranges: a bucket must take every value");
}

// --- its loops ---

static kiln_loop *find_loop(kiln_loop *list, int axis) {
  for (kiln_loop *l = list; l; l = l->next) {
    kiln_loop *within = kiln_gpu_block_axis(l) == axis ? l : find_loop(l->body, axis);
    if (within) return within;
  }
  return NULL;
}

void kiln_bucket_trim(kiln_ctx *cx, kiln_build *b, const int64_t *values) {
  for (int i = 0; i < b->choices.tightened.n; i++) {
    const kiln_tightened_bound *t = &b->choices.tightened.data[i];
    kiln_loop *nest = b->choices.kernels.kernels.data[t->kernel]->loops->body;
    for (int k = 0; k < t->nest; k++) nest = nest->next;
    kiln_loop *next = nest->next;
    nest->next = NULL;
    kiln_loop *within = b->request.machine.target->has_grids ? find_loop(nest, t->axis) : NULL;
    nest->next = next;
    kiln_loop *l = within ? within : nest;
    const int64_t n = value_of(cx, b->request.ranges, t->extent, values);
    if (n < kiln_expr_int_or(l->extent, n)) l->extent = kiln_int(cx, n > 1 ? n : 1);
  }
}

// Updates in place: a state's output that has the elements of its input but for those that its
// statement stores is a view of the input's memory.
#include "transform/transform.h"

#include <string.h>

// Whether |s| begins with a copy of |in|. Of a state that grows it is only asked what is read: rows
// behind those of |in| are 0, and so is its memory there.
static bool begins_as(kiln_ctx *cx, const kiln_stmt *s, const kiln_tensor *in, bool grows) {
  const kiln_expr *index[KILN_MAX_RANK];
  for (int k = 0; k < in->rank; k++) index[k] = kiln_var(cx, kiln_symbol_printf(cx, "o%d", k));
  const kiln_expr *copy = kiln_tensor_load(cx, in, index);
  return s->init && (s->init == copy || (grows && kiln_expr_loads(cx, s->init, in->id)));
}

static bool same_storage(const kiln_tensor *a, const kiln_tensor *b) {
  int64_t shape[2][KILN_MAX_RANK], strides[2][KILN_MAX_RANK];
  if (a->rank != b->rank || a->dtype != b->dtype || !kiln_tensor_static_shape(a, shape[0]) ||
      !kiln_tensor_static_shape(b, shape[1]))
    return false;
  kiln_tensor_strides(a, strides[0]);
  kiln_tensor_strides(b, strides[1]);
  const size_t bytes = (size_t)a->rank * sizeof(int64_t);
  return memcmp(shape[0], shape[1], bytes) == 0 && memcmp(strides[0], strides[1], bytes) == 0;
}

typedef struct reading {
  int tensor, n;
} reading;

static void count_load(const kiln_expr *load, void *argument) {
  reading *r = argument;
  r->n += load->u.tensor == r->tensor;
}

// Whether only |s| reads |tensor|, and it only to begin with.
static bool is_read_by(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, int tensor) {
  reading r = {tensor, 0};
  for (int i = 0; i < p->stmts.n; i++)
    if (p->stmts.data[i]) kiln_stmt_visit_loads(cx, p, p->stmts.data[i], count_load, &r);
  kiln_expr_visit_loads(cx, s->body, count_load, &r);
  return r.n == 1;
}

bool kiln_tile_state_in_place(kiln_ctx *cx, kiln_program *p, int input, int output, bool grows) {
  kiln_tensor *in = p->tensors.data[p->inputs.data[input]],
              *out = p->tensors.data[p->outputs.data[output]];
  kiln_stmt *s = out->def >= 0 ? p->stmts.data[out->def] : NULL;
  if (!s || in->role != KILN_INPUT || out->role != KILN_OUTPUT || out->inside || in->inside ||
      s->combiner != KILN_COMBINE_NONE || s->n_reduce || !begins_as(cx, s, in, grows) ||
      !same_storage(in, out) || kiln_stmt_reads_itself(cx, p, s) ||
      (!grows && !is_read_by(cx, p, s, in->id)))
    return false;
  s->init = NULL;
  out->inside = in;
  out->offset = 0;
  return true;
}

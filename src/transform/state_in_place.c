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

// How many distinct loads of |s| read |tensor|.
static int reads_of(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, int tensor) {
  reading r = {tensor, 0};
  kiln_stmt_visit_loads(cx, p, s, count_load, &r);
  return r.n;
}

// Whether |tensor| is read by statements other than |s|, or is itself a result of |p|, whose copy
// is made when all statements have run.
typedef struct readers {
  bool are_others, is_result;
} readers;

static readers readers_of(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, int tensor) {
  readers found = {0};
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *other = p->stmts.data[i];
    if (other && other != s && reads_of(cx, p, other, tensor) > 0) found.are_others = true;
  }
  for (int i = 0; i < p->outputs.n; i++) found.is_result |= p->outputs.data[i] == tensor;
  return found;
}

// Makes |s| the last statement: nobody reads what it stores. All that read what it stores over run
// before.
static void move_last(kiln_program *p, kiln_stmt *s) {
  const int last = p->stmts.n - 1;
  for (int i = s->id; i < last; i++) p->stmts.data[i] = p->stmts.data[i + 1];
  p->stmts.data[last] = s;
  kiln_stmts_renumber(p);
}

bool kiln_tile_state_in_place(kiln_ctx *cx, kiln_program *p, int input, int output, bool grows) {
  kiln_tensor *in = p->tensors.data[p->inputs.data[input]],
              *out = p->tensors.data[p->outputs.data[output]];
  kiln_stmt *s = out->def >= 0 ? p->stmts.data[out->def] : NULL;
  if (!s || in->role != KILN_INPUT || out->role != KILN_OUTPUT || out->inside || in->inside ||
      s->combiner != KILN_COMBINE_NONE || s->n_reduce || !begins_as(cx, s, in, grows) ||
      !same_storage(in, out) || kiln_stmt_reads_itself(cx, p, s))
    return false;
  const readers old = readers_of(cx, p, s, in->id), new = readers_of(cx, p, s, out->id);
  if (!grows) {
    const bool reads_more = reads_of(cx, p, s, in->id) != 1;
    if (old.is_result || reads_more || (old.are_others && new.are_others)) return false;
    if (old.are_others) move_last(p, s);
  }
  s->init = NULL;
  out->inside = in;
  out->offset = 0;
  return true;
}

// Valid random inputs of a program.
#include "verify/random.h"
#include "analysis/interpret.h"
#include "tile/query.h"

// Finds the bound of an input's integers such that all indices computed from them are in range.
typedef struct bounding {
  kiln_ctx *cx;
  const kiln_program *p;
  int tensor;
  kiln_ranges ranges; // of the current statement
  int64_t value;      // substituted for its loads
  bool found;         // in the current index
  bool is_indirect;   // whether any index of the program is data-dependent
  int64_t bound;
} bounding;

static const kiln_expr *put_value(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  bounding *b = argument;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  b->is_indirect = true;
  if (e->u.tensor != b->tensor) return NULL;
  b->found = true;
  return kiln_cast(cx, e->dtype, kiln_int(cx, b->value));
}

// The largest value of |index| if the tensor's elements are |value|.
static int64_t highest(bounding *b, const kiln_expr *index, int64_t value) {
  b->value = value;
  return kiln_expr_interval(b->cx, kiln_expr_replace(b->cx, index, put_value, b), &b->ranges).hi;
}

static void bound_load(const kiln_expr *e, void *argument) {
  bounding *b = argument;
  if (e->kind != KILN_EXPR_LOAD) return;
  const kiln_tensor *t = b->p->tensors.data[e->u.tensor];
  for (int k = 0; k < e->n_args; k++) {
    int64_t extent = 0, room;
    b->found = false;
    const int64_t zero = highest(b, e->args[k], 0), one = highest(b, e->args[k], 1);
    if (!b->found || !kiln_expr_is_int(t->shape[k], &extent)) continue;
    room =
        zero >= 0 && zero < extent && one > zero ? (extent - 1 - zero) / (one - zero) + 1 : extent;
    if (room < b->bound) b->bound = room;
  }
}

// Integers used as indices are below the indexed extent. Others are 0 or 1 if the program has
// data-dependent indices, because they may become indices, masks or types on the way; otherwise any
// 8-bit values.
static int64_t bound_of(kiln_ctx *cx, const kiln_program *p, int tensor) {
  bounding b = {.cx = cx, .p = p, .tensor = tensor, .bound = INT64_MAX};
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    if (!s) continue;
    b.ranges = kiln_stmt_ranges(&cx->scratch, s);
    if (s->body) kiln_expr_visit(cx, s->body, bound_load, &b);
    if (s->guard) kiln_expr_visit(cx, s->guard, bound_load, &b);
    b.is_indirect |= s->init != NULL; // a scatter
  }
  kiln_arena_rewind(&cx->scratch, mark);
  if (b.bound == INT64_MAX) return b.is_indirect ? 2 : 128;
  return b.bound < 1 ? 2 : b.bound; // an empty tensor
}

static uint64_t next_random(uint64_t *state) { // splitmix64
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

void kiln_random_fill(kiln_ctx *cx, const kiln_program *p, int tensor, uint64_t *state,
                      void *data) {
  const kiln_tensor *t = p->tensors.data[tensor];
  const int64_t n = kiln_tensor_elems(t),
                bound = t->dtype == KILN_BOOL ? 2 : bound_of(cx, p, tensor);
  for (int64_t k = 0; k < n; k++) {
    const uint64_t r = next_random(state);
    if (kiln_dtype_is_float(t->dtype) || kiln_dtype_is_code(t->dtype))
      kiln_element_set(t->dtype, data, k, (double)(r >> 11) * 0x1p-52 - 1);
    else kiln_element_set_int(t->dtype, data, k, (int64_t)(r >> 1) % bound);
  }
}

// Reshapes: maps that read the element of the same row-major number as the one that they write.
#include "tile/query.h"

// A range [begin, end) of a tensor's row-major numbers of even stride: multiples of |begin| are
// |stride| elements apart in the storage.
typedef struct even_run {
  int64_t begin, end, stride;
} even_run;

// Finds the ranges of |t|, innermost first; gives how many.
static int find_runs(const kiln_tensor *t, even_run *out) {
  int64_t shape[KILN_MAX_RANK], strides[KILN_MAX_RANK], number = 1;
  int n = 0;
  (void)kiln_tensor_static_shape(t, shape);
  kiln_tensor_strides(t, strides);
  for (int k = t->rank - 1; k >= 0; number *= shape[k--]) {
    even_run *last = n ? &out[n - 1] : NULL;
    if (shape[k] == 1) continue;
    if (last && strides[k] == last->end / last->begin * last->stride) last->end *= shape[k];
    else out[n++] = (even_run){number, number * shape[k], strides[k]};
  }
  return n;
}

bool kiln_tile_strides_along(const kiln_tensor *t, const kiln_tensor *out, int64_t *out_strides) {
  int64_t shape[KILN_MAX_RANK], number = 1;
  even_run runs[KILN_MAX_RANK];
  const int n = kiln_tensor_elems(out) > 0 ? find_runs(out, runs) : 0;
  (void)kiln_tensor_static_shape(t, shape);
  for (int k = t->rank - 1, i = 0; k >= 0; number *= shape[k--]) {
    out_strides[k] = number;
    if (n == 0 || shape[k] == 1) continue;
    while (i + 1 < n && runs[i].end <= number) i++;
    if (number * shape[k] > runs[i].end) return false;
    out_strides[k] = number / runs[i].begin * runs[i].stride;
  }
  return true;
}

bool kiln_tile_renumbers(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                         const kiln_expr *load) {
  const kiln_tensor *t = p->tensors.data[load->u.tensor], *out = p->tensors.data[s->out];
  if (kiln_tensor_elems(t) != kiln_tensor_elems(out) || !kiln_stmt_is_map(cx, s)) return false;
  int64_t shape[KILN_MAX_RANK], stride = 1;
  const kiln_expr *from = kiln_int(cx, 0), *to = kiln_int(cx, 0);
  if (!kiln_tensor_static_shape(t, shape)) return false;
  for (int k = t->rank - 1; k >= 0; stride *= shape[k--])
    from = kiln_add(cx, from, kiln_mul(cx, load->args[k], kiln_int(cx, stride)));
  if (!kiln_tensor_static_shape(out, shape)) return false;
  stride = 1;
  for (int k = out->rank - 1; k >= 0; stride *= shape[k--])
    to = kiln_add(cx, to, kiln_mul(cx, kiln_stmt_var(cx, s, k), kiln_int(cx, stride)));
  kiln_ranges r = kiln_stmt_ranges(&cx->scratch, s);
  int64_t strides[KILN_MAX_RANK];
  return kiln_expr_is_zero(kiln_simplify(cx, kiln_sub(cx, from, to), &r)) &&
         kiln_tile_strides_along(t, out, strides);
}

static bool is_row_major(const kiln_tensor *t) {
  for (int k = 0; k < t->rank; k++)
    if (t->order[k] != k) return false;
  return true;
}

bool kiln_tile_same_elements(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                             const kiln_expr *load) {
  return is_row_major(p->tensors.data[s->out]) && kiln_tile_renumbers(cx, p, s, load);
}

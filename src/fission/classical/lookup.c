// Binary search without branches, unrolled: see lookup.h.
#include "fission/classical/lookup.h"

#include "analysis/interpret.h"
#include "fission/terms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
  int64_t i;
  double f;
  int source;
} entry;

static int compare_values(const entry *a, const entry *b) {
  if (a->f != b->f) return a->f < b->f ? -1 : 1;
  return a->i < b->i ? -1 : a->i > b->i;
}

static int compare_entries(const void *a, const void *b) {
  const entry *x = a, *y = b;
  const int order = compare_values(x, y);
  return order ? order : x->source < y->source ? -1 : x->source > y->source;
}

// The keys but NaN, sorted, the first of equal ones; their number.
static int sort_keys(kiln_dtype t, int n, const void *data, entry *at, int *nan) {
  int n_numbers = 0, n_distinct = 0;
  *nan = -1;
  for (int i = 0; i < n; i++) {
    entry e = {.source = i};
    if (kiln_dtype_is_float(t)) e.f = kiln_element_get(t, data, i);
    else e.i = kiln_element_get_int(t, data, i);
    if (isnan(e.f) && *nan < 0) *nan = i;
    if (!isnan(e.f)) at[n_numbers++] = e;
  }
  qsort(at, (size_t)n_numbers, sizeof(*at), compare_entries);
  for (int i = 0; i < n_numbers; i++)
    if (i == 0 || compare_values(&at[i], &at[n_distinct - 1]) != 0) at[n_distinct++] = at[i];
  return n_distinct;
}

void kiln_lower_keys(kiln_lower *lw, kiln_dtype t, int n, const void *data, kiln_keys *out) {
  kiln_ctx *cx = lw->cx;
  entry *at = KILN_NEW_ARRAY(&cx->scratch, entry, n + 1);
  *out = (kiln_keys){.dtype = t};
  out->n = sort_keys(t, n, data, at, &out->nan);
  out->source = KILN_NEW_ARRAY(&cx->perm, int, out->n + 1);
  for (int i = 0; i < out->n; i++) out->source[i] = at[i].source;
  if (out->n == 0) return;
  out->least = at[0].i;
  out->greatest = at[out->n - 1].i;
  int64_t room = 1;
  while (room < out->n) room *= 2;
  const size_t bytes = (size_t)kiln_dtype_bytes(t);
  char *sorted = kiln_arena_alloc(&cx->scratch, bytes * (size_t)room);
  for (int64_t i = 0; i < room; i++)
    memcpy(sorted + (size_t)i * bytes,
           (const char *)data + (size_t)at[i < out->n ? i : out->n - 1].source * bytes, bytes);
  out->sorted = kiln_lower_make_const(lw, "keys", t, 1, &room, sorted);
}

const kiln_expr *kiln_lower_find(kiln_lower *lw, const kiln_keys *keys, const kiln_expr *x) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *none = kiln_int(cx, keys->n), *place = kiln_int(cx, 0);
  if (keys->n == 0) return none;
  int64_t room = 1;
  kiln_expr_is_int(keys->sorted->shape[0], &room);
  for (int64_t step = room / 2; step > 0; step /= 2) { // the last of the keys that are not above x
    const kiln_expr *next = kiln_add(cx, place, kiln_int(cx, step));
    const kiln_expr *is_below =
        kiln_compare(cx, KILN_EXPR_LE, kiln_tensor_load(cx, keys->sorted, &next), x);
    place = kiln_select(cx, is_below, next, place);
  }
  place = kiln_least(cx, place, kiln_int(cx, keys->n - 1));
  const kiln_expr *is_same =
      kiln_compare(cx, KILN_EXPR_EQ, kiln_tensor_load(cx, keys->sorted, &place), x);
  return kiln_select(cx, is_same, place, none);
}

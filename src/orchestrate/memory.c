// Live ranges of results over a part of the program.
#include "orchestrate/memory.h"

#include <math.h>

// --- of a part ---

typedef struct measuring {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_prims *prims;
  int begin, end;
  int *home; // [all prims]
} measuring;

static double bytes_of(const measuring *m, int prim) {
  const kiln_prim *one = &m->prims->prims[prim];
  const kiln_tensor *t = m->p->tensors.data[m->p->stmts.data[one->stmts[one->n - 1]]->out];
  if (t->role != KILN_TEMP) return 0; // allocated by the caller
  return (double)kiln_tensor_elems(t) * kiln_dtype_bytes(t->dtype);
}

// For each result, the prim in whose result it is contained; itself if in none.
static void find_homes(measuring *m) {
  const int n = m->prims->n;
  m->home = KILN_NEW_ARRAY(&m->cx->scratch, int, n);
  for (int i = n - 1; i >= 0; i--) m->home[i] = i;
  for (int i = n - 1; i >= 0; i--) { // a container comes after its pieces
    const kiln_bits *pieces = m->prims->prims[i].pieces;
    for (int k = kiln_bits_next(pieces, 0); k >= 0; k = kiln_bits_next(pieces, k + 1))
      m->home[k] = m->home[i];
  }
}

// The last reader of the storage of |home|; the number of prims if the program needs it.
static int last_reader(const measuring *m, int home) {
  int last = -1;
  for (int i = 0; i <= home; i++) {
    if (m->home[i] != home) continue;
    const kiln_bits *readers = m->prims->graph->readers[i];
    for (int r = kiln_bits_next(readers, 0); r >= 0; r = kiln_bits_next(readers, r + 1))
      if (r > last) last = r;
  }
  return last > home ? last : home;
}

static kiln_bits *readers_of(const measuring *m, int home) {
  kiln_bits *out = kiln_bits_make(&m->cx->scratch, m->end - m->begin);
  for (int i = 0; i <= home; i++) {
    const kiln_bits *readers = m->prims->graph->readers[i];
    if (m->home[i] != home) continue;
    for (int r = kiln_bits_next(readers, m->begin); r >= 0 && r < m->end;
         r = kiln_bits_next(readers, r + 1))
      kiln_bits_set(out, r - m->begin);
  }
  return out;
}

kiln_choice_memory kiln_prims_memory(kiln_ctx *cx, const kiln_program *p, const kiln_prims *prims,
                                     int begin, int end, double limit) {
  measuring m = {cx, p, prims, begin, end, NULL};
  const int n = end - begin;
  double *bytes = KILN_NEW_ARRAY(&cx->scratch, double, n);
  int *home = KILN_NEW_ARRAY(&cx->scratch, int, n);
  struct kiln_choice_before *before =
      KILN_NEW_ARRAY(&cx->scratch, struct kiln_choice_before, prims->n);
  int *first = KILN_NEW_ARRAY(&cx->scratch, int, prims->n); // the earliest prim stored there
  kiln_choice_memory out = {.limit = limit, .bytes = bytes, .home = home, .before = before};
  find_homes(&m);
  for (int i = prims->n - 1; i >= 0; i--) first[m.home[i]] = i;
  for (int i = 0; i < n; i++) home[i] = i;
  for (int h = 0; h < prims->n; h++) {
    const int last = m.home[h] == h ? last_reader(&m, h) : -1;
    if (last < begin || first[h] >= end) continue;
    const bool is_here = h < end && first[h] >= begin;
    if (is_here) bytes[h - begin] = bytes_of(&m, h);
    else if (first[h] >= begin)
      bytes[first[h] - begin] = bytes_of(&m, h); // contained in a later result
    else if (h < begin && last < end)
      before[out.n_before++] = (struct kiln_choice_before){bytes_of(&m, h), readers_of(&m, h)};
    else out.passing += bytes_of(&m, h);
    for (int i = begin; i < end; i++)
      if (is_here && m.home[i] == h) home[i - begin] = h - begin;
  }
  return out;
}

// --- for an order of kernels ---

double kiln_choice_peak(kiln_ctx *cx, const kiln_choice *c, int n, const int *kernels) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_choice_memory *m = c->memory;
  int *begins = KILN_NEW_ARRAY(&cx->scratch, int, c->n_prims),
      *ends = KILN_NEW_ARRAY(&cx->scratch, int, c->n_prims);
  double peak = 0;
  for (int i = 0; i < c->n_prims; i++) begins[i] = n, ends[i] = -1;
  for (int at = n - 1; at >= 0; at--) {
    const kiln_choice_kernel *k = &c->kernels[kernels[at]];
    for (int i = 0; i < c->n_prims; i++) {
      const bool is_stored = kiln_bits_has(k->results, i), is_taken = kiln_bits_has(k->takes, i);
      const int home = m->home[i], end = is_stored && kiln_bits_has(c->needed, i) ? n - 1 : at;
      if (is_stored) begins[home] = at;
      if ((is_stored || is_taken) && end > ends[home]) ends[home] = end;
    }
  }
  for (int at = 0; at < n; at++) {
    double now = m->passing;
    for (int i = 0; i < c->n_prims; i++)
      if (begins[i] <= at && at <= ends[i]) now += m->bytes[i];
    for (int b = 0; b < m->n_before; b++) {
      bool is_read = false;
      for (int i = at; i < n; i++)
        is_read |= kiln_bits_meet(c->kernels[kernels[i]].prims, m->before[b].readers);
      if (is_read) now += m->before[b].bytes;
    }
    peak = fmax(peak, now);
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return peak;
}

#include "analysis/footprint.h"

#include <math.h>
#include <string.h>

kiln_footprint kiln_footprint_at(int64_t offset, int64_t bytes) {
  return (kiln_footprint){.offset = offset, .places = 1, .run = (double)bytes};
}

enum { PLACES = 64 };

static uint64_t rotated(uint64_t x, int64_t by) {
  by &= PLACES - 1;
  return by ? x << by | x >> (PLACES - by) : x;
}

// The bit set |places| shifted by 0, 1, ... |n| - 1 times |step|, modulo a line.
static uint64_t moved(uint64_t places, int64_t step, double n, int64_t line_bytes) {
  const int64_t unit = line_bytes < PLACES ? 1 : line_bytes / PLACES;
  uint64_t out = places;
  for (int64_t i = 1; i < PLACES && (double)i < n; i++) {
    const int64_t by = i * step / unit;
    if ((by & (PLACES - 1)) == 0) break; // from here on shifts repeat
    out |= rotated(places, by);
  }
  return out;
}

void kiln_footprint_move(kiln_footprint *r, int64_t step, double n, int64_t line_bytes) {
  r->places = moved(r->places, step, n, line_bytes);
}

static void insert(int *n, kiln_stride *s, kiln_stride x) {
  int at = (*n)++;
  for (; at > 0 && s[at - 1].step > x.step; at--) s[at] = s[at - 1];
  s[at] = x;
}

void kiln_footprint_repeat(kiln_footprint *r, int64_t step, double n) {
  if (n <= 1 || step == 0) return;
  if (step < 0) {
    r->offset += (int64_t)((double)step * (n - 1));
    step = -step;
  }
  for (int i = 0; i < r->n; i++)
    if (r->at[i].step == step) {
      r->at[i].n += n - 1;
      return;
    }
  if (r->n < KILN_MAX_STRIDES) insert(&r->n, r->at, (kiln_stride){step, n});
  else r->at[r->n - 1].n *= n;
}

int kiln_strides_merge(int n, kiln_stride *s) {
  int out = 0;
  for (int i = 0; i < n; i++) {
    kiln_stride *before = out ? &s[out - 1] : NULL;
    if (before && s[i].step % before->step == 0 &&
        (double)(s[i].step / before->step) <= before->n + 1e-6)
      before->n += (double)(s[i].step / before->step) * (s[i].n - 1);
    else s[out++] = s[i];
  }
  return out;
}

void kiln_footprint_normalize(kiln_footprint *r, int64_t line_bytes) {
  int first = 0;
  r->n = kiln_strides_merge(r->n, r->at);
  for (; first < r->n && (double)r->at[first].step - r->run < (double)line_bytes; first++)
    r->run += (double)r->at[first].step * (r->at[first].n - 1);
  r->n -= first;
  memmove(r->at, r->at + first, (size_t)r->n * sizeof *r->at);
}

// --- lines ---

static double lines_at(int64_t offset, double run, int64_t line_bytes) {
  const double begin = (double)(offset & (line_bytes - 1)), line = (double)line_bytes;
  const double low = floor(run), part = run - low;
  const double lines = floor((begin + low - 1) / line) + 1;
  return part == 0 ? lines : lines + part * (floor((begin + low) / line) + 1 - lines);
}

// Average number of lines of one run over its possible positions in a line.
static double run_lines(const kiln_footprint *r, int64_t line_bytes) {
  const int64_t unit = line_bytes < PLACES ? 1 : line_bytes / PLACES;
  uint64_t places = r->places;
  for (int i = 0; i < r->n; i++) places = moved(places, r->at[i].step, r->at[i].n, line_bytes);
  double sum = 0;
  int n = 0;
  for (int k = 0; k < PLACES; k++) {
    if (!(places >> k & 1)) continue;
    sum += lines_at(r->offset + k * unit, r->run, line_bytes);
    n++;
  }
  return sum / n;
}

double kiln_footprint_lines(const kiln_footprint *r, int64_t line_bytes) {
  double lines = run_lines(r, line_bytes);
  for (int i = 0; i < r->n; i++) lines *= r->at[i].n;
  return lines;
}

// --- unions ---

static double count_of(const kiln_footprint *r, int64_t step) {
  for (int i = 0; i < r->n; i++)
    if (r->at[i].step == step) return r->at[i].n;
  return 1;
}

// The strides of both, descending.
static int steps_of(const kiln_footprint *a, const kiln_footprint *b, int64_t *out) {
  int n = 0, i = a->n - 1, k = b->n - 1;
  while (i >= 0 || k >= 0) {
    const int64_t x = i >= 0 ? a->at[i].step : 0, y = k >= 0 ? b->at[k].step : 0;
    out[n++] = x > y ? x : y;
    i -= x == out[n - 1];
    k -= y == out[n - 1];
  }
  return n;
}

bool kiln_footprint_unite(kiln_footprint *a, const kiln_footprint *b, int64_t line_bytes) {
  int64_t steps[2 * KILN_MAX_STRIDES], apart = b->offset - a->offset;
  const int n = steps_of(a, b, steps);
  kiln_footprint hull = {.offset = a->offset, .places = a->places | b->places};
  if (n > KILN_MAX_STRIDES) return false;
  hull.n = n;
  for (int i = 0; i < n; i++) {
    const int64_t q = (int64_t)floor((double)apart / (double)steps[i] + 0.5);
    const double low = q < 0 ? (double)q : 0, of_a = count_of(a, steps[i]),
                 of_b = (double)q + count_of(b, steps[i]);
    hull.at[n - 1 - i] = (kiln_stride){steps[i], (of_a > of_b ? of_a : of_b) - low};
    hull.offset += (int64_t)low * steps[i];
    apart -= q * steps[i];
  }
  const double end = (double)apart + b->run;
  hull.run = (a->run > end ? a->run : end) - (apart < 0 ? (double)apart : 0);
  if (apart < 0) hull.offset += apart;
  kiln_footprint_normalize(&hull, line_bytes);
  if (kiln_footprint_lines(&hull, line_bytes) >
      (kiln_footprint_lines(a, line_bytes) + kiln_footprint_lines(b, line_bytes)) * (1 + 1e-6))
    return false;
  *a = hull;
  return true;
}

// --- sets ---

typedef struct spreading {
  const kiln_footprint *r;
  int64_t line_bytes, n_sets;
  double *each, lines; // lines in each set; lines of a run
  int runs;            // runs still to be placed
} spreading;

static void spread_run(spreading *x, int64_t offset) {
  const double turns = floor(x->lines / (double)x->n_sets);
  double rest = x->lines - turns * (double)x->n_sets;
  int64_t set = offset / x->line_bytes % x->n_sets;
  if (turns > 0)
    for (int64_t i = 0; i < x->n_sets; i++) x->each[i] += turns;
  for (; rest > 0; rest--) {
    x->each[set] += rest < 1 ? rest : 1;
    if (++set == x->n_sets) set = 0;
  }
}

static void spread(spreading *x, int dim, int64_t offset) {
  if (dim < 0) {
    spread_run(x, offset);
    return;
  }
  const int64_t n = (int64_t)(x->r->at[dim].n + 0.5);
  for (int64_t i = 0; i < n; i++) spread(x, dim - 1, offset + i * x->r->at[dim].step);
}

void kiln_footprint_count_sets(const kiln_footprint *r, int64_t line_bytes, int64_t n_sets,
                               double *each) {
  const double lines = kiln_footprint_lines(r, line_bytes);
  double runs = 1;
  for (int i = 0; i < r->n; i++) runs *= floor(r->at[i].n + 0.5);
  spreading x = {.r = r, .line_bytes = line_bytes, .n_sets = n_sets, .each = each};
  x.lines = lines / (runs > 0 ? runs : 1);
  enum { ENOUGH = 8 }; // lines a set: with as many the exact position no longer matters
  if (lines > ENOUGH * 4 * (double)n_sets || runs > 1e5)
    for (int64_t i = 0; i < n_sets; i++) each[i] += lines / (double)n_sets;
  else spread(&x, r->n - 1, r->offset < 0 ? 0 : r->offset);
}

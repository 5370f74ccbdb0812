// The figures of a device as a table of offsets, so that merging and comparing devices are loops.
#include "tune/figures.h"

#include <stddef.h>
#include <string.h>

// Tolerated ratios of two measurements of a figure: memory is shared with other processes, and
// thread starts depend on the operating system.
static const double NEAR = 1.1, FAR = 1.3, LOOSE = 2;

typedef struct figure {
  const char *level, *name;
  size_t at; // offset in kiln_device
  bool is_time;
  double tolerance;
} figure;

enum { LEVEL_FIGURES = 5, MAX_FIGURES = KILN_MAX_LEVELS * LEVEL_FIGURES + 2 * KILN_N_PEAKS + 2 };

#define IN_LEVEL(name) offsetof(kiln_mem_level, name)
static const struct {
  const char *name;
  size_t at;
  bool is_time;
} of_level[LEVEL_FIGURES] = {
    {"reading by a core", IN_LEVEL(unit_bytes_ns), false},
    {"reading by all cores", IN_LEVEL(all_bytes_ns), false},
    {"copying by a core", IN_LEVEL(copy_unit_bytes_ns), false},
    {"copying by all cores", IN_LEVEL(copy_all_bytes_ns), false},
    {"latency", IN_LEVEL(latency_ns), true},
};

static int list_level(const kiln_device *d, int level, figure *out) {
  const kiln_mem_level *l = &d->levels[level];
  const bool is_shared = l->n_sharing > 1;
  for (int i = 0; i < LEVEL_FIGURES; i++)
    out[i] = (figure){l->name, of_level[i].name,
                      offsetof(kiln_device, levels) + (size_t)level * sizeof *l + of_level[i].at,
                      of_level[i].is_time, level == 0 || is_shared ? FAR : NEAR};
  return LEVEL_FIGURES;
}

// Lists all figures except the registers', which are not measured.
static int list(const kiln_device *d, figure *out) {
  static const char *const peaks[KILN_N_PEAKS] = {"f32", "bf16", "int8"};
  int n = 0;
  for (int i = 0; i + 1 < d->n_levels; i++) n += list_level(d, i, out + n);
  for (size_t i = 0; i < KILN_N_PEAKS; i++) {
    const size_t at = i * sizeof(double);
    out[n++] = (figure){peaks[i], "peak of a core", offsetof(kiln_device, unit_flops_ns) + at,
                        false, NEAR};
    out[n++] = (figure){peaks[i], "peak of all cores", offsetof(kiln_device, all_flops_ns) + at,
                        false, NEAR};
  }
  out[n++] = (figure){"launch", "on one thread", offsetof(kiln_device, launch_ns), true, LOOSE};
  out[n++] = (figure){"launch", "on all cores", offsetof(kiln_device, fork_ns), true, LOOSE};
  return n;
}

static double value(const kiln_device *d, const figure *f) {
  double v = 0;
  memcpy(&v, (const char *)d + f->at, sizeof v);
  return v;
}

static void set(kiln_device *d, const figure *f, double v) {
  memcpy((char *)d + f->at, &v, sizeof v);
}

static bool is_better(const figure *f, double a, double b) { return f->is_time ? a < b : a > b; }

// Ratio of the next best to the best measurement, at least 1; 1 for a single measurement.
static double apart(const figure *f, double best, double next) {
  if (best <= 0 || next <= 0) return 1; // the machine lacks these instructions
  return f->is_time ? next / best : best / next;
}

static void take(int n, const kiln_device *measured, const figure *f, kiln_device *out,
                 kiln_doubt *doubt) {
  double best = value(&measured[0], f), next = n > 1 ? value(&measured[1], f) : best;
  if (is_better(f, next, best)) {
    const double other = best;
    best = next;
    next = other;
  }
  for (int i = 2; i < n; i++) {
    const double v = value(&measured[i], f);
    if (is_better(f, v, best)) {
      next = best;
      best = v;
    } else if (is_better(f, v, next)) next = v;
  }
  set(out, f, best);
  const double excess = apart(f, best, next) / f->tolerance;
  if (excess > 1 && excess > doubt->excess)
    *doubt = (kiln_doubt){f->level, f->name, best, next, f->tolerance, excess};
}

void kiln_device_take_best(int n, const kiln_device *measured, kiln_device *out,
                           kiln_doubt *out_doubt) {
  figure figures[MAX_FIGURES];
  *out = measured[0];
  *out_doubt = (kiln_doubt){0};
  const int n_figures = list(out, figures);
  for (int k = 0; k < n_figures; k++) take(n, measured, &figures[k], out, out_doubt);
  for (int i = 1; i < n; i++)
    for (int k = 0; k < out->n_levels; k++)
      if (measured[i].levels[k].usable > out->levels[k].usable)
        out->levels[k].usable = measured[i].levels[k].usable;
}

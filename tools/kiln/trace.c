// A run as a Chrome trace, for chrome://tracing and Perfetto: a track of launches (the stream of a
// GPU), a track for each thread, and counters.
#include "kiln.h"

#include <jansson.h>
#include <stdlib.h>

enum { LAUNCHES = 0, FIRST_THREAD = 1 }; // numbers of tracks

typedef struct trace {
  const kiln_module *m;
  const kiln_session *s;
  const kiln_span *spans;
  size_t n_launches, n_spans;
  uint64_t zero; // the run's start
  json_t *events;
} trace;

static double us_at(const trace *t, uint64_t ns) { return (double)(ns - t->zero) / 1e3; }

static void name_track(const trace *t, int track, const char *name) {
  json_array_append_new(t->events,
                        json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "thread_name", "ph", "M",
                                  "pid", 1, "tid", track, "args", "name", name));
  json_array_append_new(t->events,
                        json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "name", "thread_sort_index",
                                  "ph", "M", "pid", 1, "tid", track, "args", "sort_index", track));
}

static void name_tracks(const trace *t) {
  int last = -1;
  name_track(t, LAUNCHES, t->n_spans ? "launches" : "stream"); // a GPU has no host threads
  for (size_t i = 0; i < t->n_spans; i++)
    for (; last < t->spans[i].thread; last++) {
      char name[48];
      snprintf(name, sizeof name, "thread %d%s", last + 1, last < 0 ? ", the caller's" : "");
      name_track(t, FIRST_THREAD + last + 1, name);
    }
}

static void count(const trace *t, const char *name, double us, double value) {
  json_array_append_new(t->events, json_pack("{s:s, s:s, s:i, s:f, s:{s:f}}", "name", name, "ph",
                                             "C", "pid", 1, "ts", us, "args", "value", value));
}

static void add_launch(const trace *t, size_t i) {
  const kiln_launch_info info = kiln_module_launch(t->m, i);
  const double at = us_at(t, kiln_session_launch_start_ns(t->s, i)),
               us = (double)kiln_session_launch_ns(t->s, i) / 1e3;
  const double flops = us > 0 ? info.flops / us * 1e-3 : 0,
               bytes = us > 0 ? info.bytes / us * 1e-3 : 0;
  if (us <= 0) return; // of a variant that was not run
  json_array_append_new(t->events,
                        json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:s, s:f, s:f}}", "name",
                                  info.kernel, "cat", "kernel", "ph", "X", "pid", 1, "tid",
                                  LAUNCHES, "ts", at, "dur", us, "args", "nodes", info.nodes,
                                  "gflop_per_s", flops, "gb_per_s", bytes));
  count(t, "GFLOP/s", at, flops);
  count(t, "GB/s at least", at, bytes);
  count(t, "GFLOP/s", at + us, 0);
  count(t, "GB/s at least", at + us, 0);
}

static void add_span(const trace *t, const kiln_span *s) {
  const kiln_launch_info info = kiln_module_launch(t->m, s->launch);
  json_array_append_new(t->events, json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:s, s:i}}",
                                             "name", info.kernel, "cat", "nest", "ph", "X", "pid",
                                             1, "tid", FIRST_THREAD + (int)s->thread, "ts",
                                             us_at(t, s->start_ns), "dur", (double)s->ns / 1e3,
                                             "args", "nodes", info.nodes, "nest", (int)s->nest));
}

// A thread starts (1) or stops (-1) working.
typedef struct change {
  uint64_t ns;
  int by;
} change;

static int by_time(const void *a, const void *b) {
  const change *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
  return x->by - y->by;
}

static void count_busy(const trace *t) {
  change *changes = calloc(2 * t->n_spans + 1, sizeof *changes);
  int busy = 0;
  for (size_t i = 0; changes && i < t->n_spans; i++) {
    changes[2 * i] = (change){t->spans[i].start_ns, 1};
    changes[2 * i + 1] = (change){t->spans[i].start_ns + t->spans[i].ns, -1};
  }
  if (changes) qsort(changes, 2 * t->n_spans, sizeof *changes, by_time);
  for (size_t i = 0; changes && i < 2 * t->n_spans; i++)
    count(t, "threads at work", us_at(t, changes[i].ns), busy += changes[i].by);
  free(changes);
}

char *trace_text(const kiln_module *m, const kiln_session *s) {
  trace t = {.m = m, .s = s, .n_launches = kiln_module_launch_count(m), .events = json_array()};
  t.n_spans = kiln_session_spans(s, &t.spans);
  for (size_t i = 0; i < t.n_launches && !t.zero; i++) t.zero = kiln_session_launch_start_ns(s, i);
  name_tracks(&t);
  for (size_t i = 0; i < t.n_launches; i++) add_launch(&t, i);
  for (size_t i = 0; i < t.n_spans; i++) add_span(&t, &t.spans[i]);
  count_busy(&t);
  json_t *root = json_pack("{s:o, s:s}", "traceEvents", t.events, "displayTimeUnit", "ms");
  char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
  json_decref(root);
  return text;
}

// Timed runs of a module, by one session or several concurrent ones.
#ifndef KILN_TOOL_TIMING_H
#define KILN_TOOL_TIMING_H

#include "kiln.h"

typedef struct timing timing;

typedef struct timing_options {
  kiln_module *module;
  const tensors *inputs;        // of every run; only read
  kiln_session_options session; // options of each session
  size_t sessions;              // concurrent, at least 1
  int64_t warmup;               // untimed runs of each session
  size_t iterations;            // the least number of timed runs of a session
  double duration_ms;           // the least time that a session runs
} timing_options;

typedef struct timed_run {
  size_t session;
  double start_ms, ms; // since the common start
} timed_run;

typedef struct timed {
  size_t n;
  timed_run *runs;          // ordered by start; malloc'ed
  double wall_ms;           // the end of the last run
  double open_ms, first_ms; // of the first session alone: creation, and first run
} timed;

// False after a message.
bool time_runs(const timing_options *how, timed *out);
void timed_free(timed *t);

#endif

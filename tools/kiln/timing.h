// Timed runs of a module, by one session or several at the same time.
#ifndef KILN_TOOL_TIMING_H
#define KILN_TOOL_TIMING_H

#include "kiln.h"

typedef struct timing timing;

typedef struct timing_options {
  kiln_module *module;
  const tensors *inputs;        // of every run; only read
  kiln_session_options session; // each is opened so
  size_t sessions;              // at the same time, 1 or more
  int64_t warmup;               // runs of each before
  size_t iterations;            // a session's timed runs are so many at least,
  double duration_ms;           // and go on for so long at least
} timing_options;

typedef struct timed_run {
  size_t session;
  double start_ms, ms; // since all sessions began
} timed_run;

typedef struct timed {
  size_t n;
  timed_run *runs;          // by their starts; malloc'ed
  double wall_ms;           // when the last run ended
  double open_ms, first_ms; // of the first session, alone: making it, and its first run
} timed;

// False after a message.
bool time_runs(const timing_options *how, timed *out);
void timed_free(timed *t);

#endif

// The steps of a flow (run.h).
#include "runtime/flow/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct running {
  kiln_flow_run *r;
  kiln_flow_part_fn run;
  void *user;
  kiln_diag *diag;
  uint32_t open[KILN_FLOW_DEPTH], depth; // the loops around the current step
  int64_t limits[KILN_FLOW_DEPTH];       // their numbers of iterations
} running;

kiln_status kiln_flow_run_init(const kiln_flow *flow, kiln_diag *diag, kiln_flow_run *out) {
  *out = (kiln_flow_run){.flow = flow,
                         .at = calloc((size_t)flow->n_values + 1, sizeof *out->at),
                         .args = calloc((size_t)flow->n_args + 1, sizeof *out->args),
                         .iterations = calloc((size_t)flow->n_steps + 1, sizeof *out->iterations)};
  if (out->at && out->args && out->iterations) return KILN_OK;
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "session", "values: no memory left");
}

void kiln_flow_run_deinit(kiln_flow_run *r) {
  free(r->at);
  free(r->args);
  free(r->iterations);
}

static int64_t read_i64(const char *from) {
  int64_t v = 0;
  memcpy(&v, from, sizeof v);
  return v;
}

static uint64_t arg_bytes(const kiln_flow *f, const kiln_flow_arg *a) {
  const kiln_flow_value *v = &f->values[a->value];
  return a->row && v->shape[0] ? v->bytes / (uint64_t)v->shape[0] : v->bytes;
}

static char *address(const kiln_flow_run *r, const kiln_flow_arg *a) {
  char *at = r->at[a->value];
  if (!a->row) return at;
  const int64_t i = r->iterations[a->row - 1];
  const int64_t row = a->backwards ? r->flow->steps[a->row - 1].most - 1 - i : i;
  return at + arg_bytes(r->flow, a) * (uint64_t)row;
}

static char **find_args(const running *x, const kiln_flow_step *s) {
  const kiln_flow *f = x->r->flow;
  char **args = x->r->args + s->first_arg;
  for (uint32_t k = 0; k < s->n_args; k++) args[k] = address(x->r, &f->args[s->first_arg + k]);
  return args;
}

static void copy(const running *x, const kiln_flow_step *s) {
  char **args = find_args(x, s);
  memcpy(args[1], args[0], arg_bytes(x->r->flow, &x->r->flow->args[s->first_arg]));
}

static kiln_status too_many(const running *x, const kiln_flow_step *s) {
  return kiln_diag_fail(x->diag, KILN_BAD_INPUT, s->place,
                        "iterations: must be at most %" PRId64
                        ", for which there is room, got more: compile with --most-extent",
                        s->most);
}

static kiln_status begin(running *x, uint32_t i) {
  const kiln_flow_step *s = &x->r->flow->steps[i];
  int64_t n = s->most;
  if (s->count) {
    const int64_t count = read_i64(x->r->at[s->count - 1]);
    if (count > n && s->is_limit && !s->condition) return too_many(x, s);
    if (count < n) n = count;
  }
  x->limits[x->depth] = n;
  x->open[x->depth++] = i;
  x->r->iterations[i] = 0;
  return KILN_OK;
}

// Whether the innermost loop goes on.
static kiln_status goes_on(running *x, bool *out) {
  kiln_flow_run *r = x->r;
  const uint32_t i = x->open[x->depth - 1];
  const kiln_flow_step *s = &r->flow->steps[i];
  const int64_t limit = x->limits[x->depth - 1];
  const bool wants = !s->condition || *r->at[s->condition - 1] != 0;
  *out = wants && r->iterations[i] < limit;
  if (!*out && wants && s->is_limit && limit == s->most &&
      (!s->count || read_i64(r->at[s->count - 1]) > s->most))
    return too_many(x, s);
  if (*out && s->iteration) memcpy(r->at[s->iteration - 1], &r->iterations[i], sizeof(int64_t));
  if (!*out && s->made) memcpy(r->at[s->made - 1], &r->iterations[i], sizeof(int64_t));
  return KILN_OK;
}

// Ends an iteration: what the state will be is the state.
static void end_iteration(running *x) {
  kiln_flow_run *r = x->r;
  const uint32_t i = x->open[x->depth - 1];
  const kiln_flow_step *s = &r->flow->steps[i];
  for (uint32_t k = 0; k < s->n_args; k += 2) {
    const uint32_t a = r->flow->args[s->first_arg + k].value,
                   b = r->flow->args[s->first_arg + k + 1].value;
    char *now = r->at[a];
    r->at[a] = r->at[b];
    r->at[b] = now;
  }
  r->iterations[i]++;
}

static uint32_t behind(const kiln_flow *f, uint32_t loop) {
  uint32_t depth = 0, i = loop;
  do {
    depth += f->steps[i].op == KILN_FLOW_LOOP;
    depth -= f->steps[i].op == KILN_FLOW_END;
    i++;
  } while (depth > 0);
  return i;
}

// The step behind the ELSE, or the ENDIF, that belongs to |at|.
static uint32_t behind_branch(const kiln_flow *f, uint32_t at) {
  const bool is_if = f->steps[at].op == KILN_FLOW_IF;
  uint32_t depth = 1, i = at + 1;
  for (; depth > 0; i++) {
    depth += f->steps[i].op == KILN_FLOW_IF;
    depth -= f->steps[i].op == KILN_FLOW_ENDIF;
    if (is_if && depth == 1 && f->steps[i].op == KILN_FLOW_ELSE) depth = 0;
  }
  return i;
}

// Enters an iteration of the innermost loop, or leaves it; *io is the next step.
static kiln_status turn(running *x, uint32_t *io) {
  const uint32_t loop = x->open[x->depth - 1];
  bool more = false;
  const kiln_status st = goes_on(x, &more);
  if (st != KILN_OK) return st;
  *io = more ? loop + 1 : behind(x->r->flow, loop);
  if (!more) x->depth--;
  return KILN_OK;
}

kiln_status kiln_flow_run_steps(kiln_flow_run *r, char *arena, kiln_flow_part_fn run, void *user,
                                kiln_diag *diag) {
  running x = {.r = r, .run = run, .user = user, .diag = diag};
  const kiln_flow *f = r->flow;
  kiln_status st = KILN_OK;
  for (uint32_t i = f->n_inputs + f->n_outputs; i < f->n_values; i++)
    r->at[i] = arena + f->values[i].offset;
  for (uint32_t i = 0; i < f->n_steps && st == KILN_OK;) {
    const kiln_flow_step *s = &f->steps[i];
    switch (s->op) {
    case KILN_FLOW_RUN: st = run(user, s, find_args(&x, s), diag), i++; break;
    case KILN_FLOW_COPY: copy(&x, s), i++; break;
    case KILN_FLOW_LOOP:
      st = begin(&x, i);
      if (st == KILN_OK) st = turn(&x, &i);
      break;
    case KILN_FLOW_END:
      end_iteration(&x);
      st = turn(&x, &i);
      break;
    case KILN_FLOW_IF: i = *r->at[s->condition - 1] ? i + 1 : behind_branch(f, i); break;
    case KILN_FLOW_ELSE: i = behind_branch(f, i); break;
    case KILN_FLOW_ENDIF: i++; break;
    case KILN_N_FLOW_OPS: break;
    }
  }
  return st;
}

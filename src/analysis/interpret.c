// The reference interpreter: tensor storage, the selection of statements to run, and the loops
// around their bytecode.
#include "analysis/interpret.h"

#include "analysis/known_errors.h"
#include "analysis/contract.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct kiln_interpreter {
  kiln_ctx *cx;
  const kiln_program *p;
  int n_tensors;
  void **data;      // [n_tensors], NULL if not available; constants are found when first read
  uint8_t *owned;   // [n_tensors]
  int first_owned;  // all that are owned have this index or a later one
  int *last_reader; // [n_tensors], the last statement of this run that reads it
  bool tracks;
  kiln_freedoms may;
  kiln_errors *errors; // [n_tensors], allocated by malloc
};

static void forget_errors(kiln_interpreter *in, int tensor) {
  free(in->errors[tensor].worst);
  free(in->errors[tensor].typical);
  in->errors[tensor] = (kiln_errors){NULL, NULL};
}

void kiln_interpreter_track(kiln_interpreter *in, kiln_freedoms may) {
  in->tracks = true;
  in->may = may;
}

void kiln_interpreter_assume_exact(kiln_interpreter *in) {
  for (int i = 0; i < in->n_tensors; i++) forget_errors(in, i);
}

kiln_tolerance kiln_interpreter_tolerance(const kiln_interpreter *in, int tensor, int64_t i) {
  const kiln_errors *e = &in->errors[tensor];
  if (!e->worst) return (kiln_tolerance){0, 0};
  const kiln_error own = {(double)e->worst[i], (double)e->typical[i]};
  return (kiln_tolerance){kiln_error_tolerance(own), own.typical};
}

kiln_errors kiln_interpreter_errors(const kiln_interpreter *in, int tensor) {
  return in->errors[tensor];
}

kiln_status kiln_interpreter_give_errors(kiln_interpreter *in, int tensor, int64_t n,
                                         kiln_errors errors) {
  const size_t bytes = (size_t)(n > 0 ? n : 1) * sizeof(float);
  kiln_errors *e = &in->errors[tensor];
  forget_errors(in, tensor);
  if (!errors.worst) return KILN_OK;
  *e = (kiln_errors){malloc(bytes), malloc(bytes)};
  if (!e->worst || !e->typical) {
    forget_errors(in, tensor);
    return KILN_FAIL(in->cx->diag, KILN_NO_MEMORY, NULL, "interpreter: no memory left");
  }
  memcpy(e->worst, errors.worst, (size_t)n * sizeof(float));
  memcpy(e->typical, errors.typical, (size_t)n * sizeof(float));
  return KILN_OK;
}

void kiln_interpreter_destroy(kiln_interpreter *in) {
  if (!in) return;
  for (int i = in->first_owned; i < in->n_tensors; i++)
    if (in->owned && in->data && in->owned[i]) free(in->data[i]);
  if (in->errors) kiln_interpreter_assume_exact(in);
  free(in->errors);
  free(in->data);
  free(in->owned);
  free(in->last_reader);
  free(in);
}

kiln_status kiln_interpreter_create(kiln_ctx *cx, const kiln_program *p, kiln_interpreter **out) {
  *out = NULL;
  const size_t n = p->tensors.n > 0 ? (size_t)p->tensors.n : 1;
  kiln_interpreter *in = calloc(1, sizeof(*in));
  if (in) {
    *in = (kiln_interpreter){
        .cx = cx, .p = p, .n_tensors = p->tensors.n, .first_owned = p->tensors.n};
    in->data = calloc(n, sizeof(*in->data));
    in->owned = calloc(n, sizeof(*in->owned));
    in->last_reader = calloc(n, sizeof(*in->last_reader));
    in->errors = calloc(n, sizeof(*in->errors));
  }
  if (!in || !in->data || !in->owned || !in->last_reader || !in->errors) {
    kiln_interpreter_destroy(in);
    return KILN_FAIL(cx->diag, KILN_NO_MEMORY, NULL, "interpreter: no memory left");
  }
  *out = in;
  return KILN_OK;
}

void kiln_interpreter_bind(kiln_interpreter *in, int tensor, const void *data) {
  union {
    const void *borrowed;
    void *data;
  } u = {.borrowed = data};
  if (in->owned[tensor]) free(in->data[tensor]);
  in->owned[tensor] = 0;
  in->data[tensor] = u.data;
  forget_errors(in, tensor);
}

const void *kiln_interpreter_data(const kiln_interpreter *in, int tensor) {
  return in->data[tensor] ? in->data[tensor] : in->p->tensors.data[tensor]->data;
}

// The elements of |tensor|, or NULL. Constants are looked up at their first read: a run for a few
// tensors touches only theirs.
static const void *find_data(kiln_interpreter *in, int tensor) {
  const void *constant = in->p->tensors.data[tensor]->data;
  if (!in->data[tensor] && constant) kiln_interpreter_bind(in, tensor, constant);
  return in->data[tensor];
}

// --- one statement ---

typedef struct frame {
  kiln_interpreter *in;
  const kiln_stmt *s;
  const kiln_tensor *out;
  kiln_bytecode code;
  int n_dims;
  int64_t *extents, *at; // [n_dims]
  int guard, guard_end;  // register (-1: none) and the end of the guard's instructions
  int body, body_end;
  int address; // register of the output element, -1 for plain statements
  kiln_cell identity;
  kiln_errors errors; // of the output; both NULL if errors are not tracked
  kiln_error_tracker bound;
} frame;

static const char *place_of(const frame *f) {
  return kiln_symbol_text(f->in->cx, f->s->origin ? f->s->origin : f->out->name);
}

static kiln_status static_shape(kiln_interpreter *in, const kiln_tensor *t) {
  int64_t shape[KILN_MAX_RANK];
  if (kiln_tensor_static_shape(t, shape)) return KILN_OK;
  return KILN_FAIL(in->cx->diag, KILN_INTERNAL, kiln_symbol_text(in->cx, t->name),
                   "interpreter: shapes must be fixed, got named dimensions");
}

static void check_load(const kiln_expr *e, void *argument) {
  frame *f = argument;
  if (f->code.status != KILN_OK) return;
  const kiln_tensor *t = f->in->p->tensors.data[e->u.tensor];
  if (t == f->out) return; // a scatter reads what it wrote
  f->code.status = static_shape(f->in, t);
  if (f->code.status == KILN_OK && !find_data(f->in, t->id) && kiln_tensor_elems(t) > 0)
    f->code.status = KILN_FAIL(f->in->cx->diag, KILN_INTERNAL, kiln_symbol_text(f->in->cx, t->name),
                               "interpreter: must be bound or computed before %s",
                               kiln_symbol_text(f->in->cx, f->out->name));
}

static kiln_cell number(const kiln_expr *e) {
  return e->kind == KILN_EXPR_FLOAT ? (kiln_cell){.f = e->u.f} : (kiln_cell){.i = e->u.i};
}

static kiln_cell identity_of(kiln_ctx *cx, const kiln_stmt *s, kiln_dtype t) {
  if (s->combiner == KILN_COMBINE_NONE)
    return kiln_dtype_is_float(t) ? (kiln_cell){.f = 0} : (kiln_cell){.i = 0};
  return number(kiln_combiner_identity(cx, s->combiner, t));
}

static void check_loads(frame *f) {
  kiln_stmt_visit_loads(f->in->cx, f->in->p, f->s, check_load, f);
}

// Everything except the bytecode; in the context's scratch arena.
static kiln_status frame_init(frame *f, kiln_interpreter *in, const kiln_stmt *s) {
  kiln_ctx *cx = in->cx;
  *f = (frame){.in = in, .s = s, .out = in->p->tensors.data[s->out]};
  f->n_dims = s->n_space + s->n_reduce;
  f->extents = KILN_NEW_ARRAY(&cx->scratch, int64_t, f->n_dims);
  f->at = KILN_NEW_ARRAY(&cx->scratch, int64_t, f->n_dims);
  kiln_symbol *vars = KILN_NEW_ARRAY(&cx->scratch, kiln_symbol, f->n_dims);
  KILN_TRY(static_shape(in, f->out));
  for (int d = 0; d < f->n_dims; d++) {
    vars[d] = s->dims[d].name;
    if (!kiln_expr_is_int(s->dims[d].extent, &f->extents[d]))
      return KILN_FAIL(cx->diag, KILN_INTERNAL, place_of(f),
                       "interpreter: extents must be fixed, got a named one in %s",
                       kiln_symbol_text(cx, f->out->name));
  }
  kiln_bytecode_init(&f->code, cx, in->p, in->data, f->n_dims, vars, f->extents, place_of(f));
  f->identity = identity_of(cx, s, f->out->dtype);
  check_loads(f);
  return f->code.status;
}

// The guard comes first: body and index are evaluated only if it holds.
static kiln_status frame_compile(frame *f, bool plain) {
  kiln_bytecode *c = &f->code;
  f->guard = f->s->guard ? kiln_bytecode_add(c, f->s->guard) : -1;
  f->guard_end = c->insns.n;
  f->body = kiln_bytecode_add(c, f->s->body);
  f->address = plain ? -1 : kiln_bytecode_add_address(c, f->s->out, f->s->index);
  f->body_end = c->insns.n;
  return c->status;
}

static double combine_float(kiln_combiner k, double a, double b) {
  switch (k) {
  case KILN_COMBINE_NONE: return b;
  case KILN_COMBINE_SUM: return a + b;
  case KILN_COMBINE_PROD: return a * b;
  case KILN_COMBINE_MAX: return a != a ? a : b != b ? b : a > b ? a : b;
  case KILN_COMBINE_MIN: return a != a ? a : b != b ? b : a < b ? a : b;
  case KILN_COMBINE_AND: return a != 0 && b != 0;
  case KILN_COMBINE_OR: return a != 0 || b != 0;
  }
  return b;
}

static int64_t combine_int(kiln_combiner k, kiln_dtype t, int64_t a, int64_t b) {
  const bool less = t == KILN_U64 ? (uint64_t)a < (uint64_t)b : a < b;
  switch (k) {
  case KILN_COMBINE_NONE: return b;
  case KILN_COMBINE_SUM: return kiln_bytecode_wrap(t, (int64_t)((uint64_t)a + (uint64_t)b));
  case KILN_COMBINE_PROD: return kiln_bytecode_wrap(t, (int64_t)((uint64_t)a * (uint64_t)b));
  case KILN_COMBINE_MAX: return less ? b : a;
  case KILN_COMBINE_MIN: return less ? a : b;
  case KILN_COMBINE_AND: return a & b;
  case KILN_COMBINE_OR: return a | b;
  }
  return b;
}

static kiln_cell combine(kiln_combiner k, kiln_dtype t, kiln_cell a, kiln_cell b) {
  return kiln_dtype_is_float(t) ? (kiln_cell){.f = combine_float(k, a.f, b.f)}
                                : (kiln_cell){.i = combine_int(k, t, a.i, b.i)};
}

static void store(kiln_dtype t, void *data, int64_t i, kiln_cell v) {
  if (t == KILN_F32) memcpy((char *)data + i * 4, &(float){(float)v.f}, 4);
  else if (kiln_dtype_is_float(t)) kiln_element_set(t, data, i, v.f);
  else kiln_element_set_int(t, data, i, v.i);
}

static kiln_cell fetch(kiln_dtype t, const void *data, int64_t i) {
  return kiln_dtype_is_float(t) ? (kiln_cell){.f = kiln_element_get(t, data, i)}
                                : (kiln_cell){.i = kiln_element_get_int(t, data, i)};
}

// Steps to the next point of dims [first, end) and moves the streams; false, back at the first
// point, after the last.
static inline bool next_point(frame *f, int first, int end) {
  for (int d = end - 1; d >= first; d--) {
    if (++f->at[d] < f->extents[d]) {
      kiln_bytecode_step(&f->code, d, 1);
      return true;
    }
    f->at[d] = 0;
    kiln_bytecode_step(&f->code, d, 1 - f->extents[d]);
  }
  return false;
}

// Evaluates guard and body at the current point; *out_ran is false if the guard does not hold.
static inline bool run_here(frame *f, bool *out_ran) {
  kiln_bytecode *c = &f->code;
  *out_ran = false;
  if (f->guard >= 0) {
    if (!kiln_bytecode_run(c, 0, f->guard_end)) return false;
    if (!c->regs.data[f->guard].i) return true;
  }
  *out_ran = true;
  return kiln_bytecode_run(c, f->guard_end, f->body_end);
}

static bool is_empty(const frame *f, int first, int end) {
  for (int d = first; d < end; d++)
    if (f->extents[d] <= 0) return true;
  return false;
}

// --- errors ---

static void has_errors(const kiln_expr *e, void *argument) {
  frame *f = argument;
  if (f->in->errors[e->u.tensor].worst) f->errors.worst = f->errors.typical = (float *)f->in;
}

typedef struct rounding {
  bool rounds;
} rounding;

static void ask_rounding(const kiln_expr *e, void *argument) {
  rounding *r = argument;
  const bool computes = e->n_args > 0 && e->kind != KILN_EXPR_LOAD && e->kind != KILN_EXPR_SELECT &&
                        e->kind != KILN_EXPR_CAST && e->kind != KILN_EXPR_BITCAST;
  r->rounds |= computes && kiln_dtype_is_float(e->dtype);
}

// Whether another computation of the element may differ from this one.
static bool may_err(frame *f) {
  const kiln_stmt *s = f->s;
  rounding r = {kiln_dtype_is_float(f->out->dtype) &&
                (s->combiner == KILN_COMBINE_SUM || s->combiner == KILN_COMBINE_PROD)};
  kiln_expr_visit(f->in->cx, s->body, ask_rounding, &r);
  if (s->guard) kiln_expr_visit(f->in->cx, s->guard, ask_rounding, &r);
  if (s->init) kiln_expr_visit(f->in->cx, s->init, ask_rounding, &r);
  kiln_stmt_visit_loads(f->in->cx, f->in->p, s, has_errors, f);
  const bool reads = f->errors.worst != NULL;
  f->errors = (kiln_errors){NULL, NULL};
  return r.rounds || reads;
}

static kiln_status make_errors(frame *f, int64_t n) {
  kiln_errors *e = &f->in->errors[f->out->id];
  if (!f->in->tracks || !may_err(f)) return KILN_OK;
  e->worst = calloc((size_t)n + 1, sizeof(float));
  e->typical = calloc((size_t)n + 1, sizeof(float));
  f->errors = *e;
  if (e->worst && e->typical) return KILN_OK;
  forget_errors(f->in, f->out->id);
  return KILN_FAIL(f->in->cx->diag, KILN_NO_MEMORY, place_of(f), "interpreter: no memory left");
}

// A body that is a cast to the tensor's type is already rounded.
static void put_error(const frame *f, int64_t i, kiln_cell value, kiln_error e) {
  const bool is_cast = f->s->combiner == KILN_COMBINE_NONE && f->s->body->kind == KILN_EXPR_CAST;
  if (!is_cast && kiln_dtype_is_float(f->out->dtype))
    e = kiln_error_stored(f->out->dtype, value.f, e);
  f->errors.worst[i] = (float)e.worst;
  f->errors.typical[i] = (float)e.typical;
}

// After run_here: errors of the same instructions. If the guard could go either way, the error is
// unknown.
static kiln_error error_here(frame *f, bool ran) {
  static const kiln_error unknown = {INFINITY, INFINITY};
  if (f->guard >= 0) {
    kiln_error_tracker_run(&f->bound, 0, f->guard_end);
    if (f->bound.errors[f->guard].worst > 0) return unknown;
  }
  if (!ran) return (kiln_error){0, 0};
  kiln_error_tracker_run(&f->bound, f->guard_end, f->body_end);
  return f->bound.errors[f->body];
}

// element, with its error.
static bool element_judged(frame *f, kiln_cell *out, kiln_error *out_error) {
  const kiln_combiner k = f->s->combiner;
  const kiln_dtype t = f->out->dtype;
  kiln_sum_error sum = {.combiner = k, .dtype = t};
  bool ran = false;
  *out = f->identity;
  if (k == KILN_COMBINE_NONE && f->n_dims == f->s->n_space && f->guard < 0) {
    if (!run_here(f, &ran)) return false;
    *out = f->code.regs.data[f->body];
    *out_error = error_here(f, true);
    return true;
  }
  do {
    if (!run_here(f, &ran)) return false;
    const kiln_error e = error_here(f, ran);
    if (ran) *out = combine(k, t, *out, f->code.regs.data[f->body]);
    if (ran || e.worst > 0) kiln_sum_error_add(&sum, f->code.regs.data[f->body], e);
  } while (f->n_dims > f->s->n_space && next_point(f, f->s->n_space, f->n_dims));
  *out_error = kiln_sum_error_end(&sum, *out);
  return true;
}

static kiln_status run_plain_judged(frame *f, void *data, int64_t n) {
  kiln_error_tracker_init(&f->bound, &f->code, f->in->errors);
  for (int64_t i = 0; i < n; i++) {
    kiln_cell value;
    kiln_error e;
    if (!element_judged(f, &value, &e)) return kiln_bytecode_fault(&f->code);
    store(f->out->dtype, data, i, value);
    put_error(f, i, value, e);
    next_point(f, 0, f->s->n_space);
  }
  return KILN_OK;
}

// One element of a plain statement: the reduction dims run over all their points.
static bool element(frame *f, kiln_cell *out) {
  const kiln_combiner k = f->s->combiner;
  const kiln_dtype t = f->out->dtype;
  bool ran = false;
  *out = f->identity;
  do {
    if (!run_here(f, &ran)) return false;
    if (ran) *out = combine(k, t, *out, f->code.regs.data[f->body]);
  } while (f->n_dims > f->s->n_space && next_point(f, f->s->n_space, f->n_dims));
  return true;
}

static kiln_status run_plain(frame *f, void *data) {
  const kiln_stmt *s = f->s;
  const int64_t n = kiln_tensor_elems(f->out);
  if (is_empty(f, s->n_space, f->n_dims)) {
    for (int64_t i = 0; i < n; i++) store(f->out->dtype, data, i, f->identity);
    return KILN_OK;
  }
  const bool judges = f->errors.worst != NULL;
  if (n == 0 ||
      kiln_contract(&f->code, s, data, f->in->errors, judges ? &f->errors : NULL, &f->in->may))
    return KILN_OK;
  KILN_TRY(frame_compile(f, true));
  kiln_bytecode_seek(&f->code, f->at);
  if (judges) return run_plain_judged(f, data, n);
  for (int64_t i = 0; i < n; i++) {
    kiln_cell value;
    if (!element(f, &value)) return kiln_bytecode_fault(&f->code);
    store(f->out->dtype, data, i, value);
    next_point(f, 0, s->n_space);
  }
  return KILN_OK;
}

// T(o) = init(o) for all o.
static kiln_status run_init(const frame *f, void *data) {
  kiln_interpreter *in = f->in;
  kiln_ctx *cx = in->cx;
  const kiln_tensor *t = f->out;
  const int64_t n = kiln_tensor_elems(t);
  if (!f->s->init) {
    for (int64_t i = 0; i < n; i++) store(t->dtype, data, i, f->identity);
    return KILN_OK;
  }
  int64_t shape[KILN_MAX_RANK], at[KILN_MAX_RANK] = {0};
  kiln_symbol vars[KILN_MAX_RANK];
  kiln_tensor_static_shape(t, shape);
  for (int a = 0; a < t->rank; a++) vars[a] = kiln_symbol_printf(cx, "o%d", a);
  frame g = {.in = in, .s = f->s, .out = t, .n_dims = t->rank, .extents = shape, .at = at};
  kiln_bytecode_init(&g.code, cx, in->p, in->data, t->rank, vars, shape, place_of(f));
  const int reg = kiln_bytecode_add(&g.code, f->s->init);
  if (g.code.status != KILN_OK) return g.code.status;
  kiln_bytecode_seek(&g.code, at);
  kiln_error_tracker_init(&g.bound, &g.code, in->errors);
  for (int64_t i = 0; i < n; i++) {
    if (!kiln_bytecode_run(&g.code, 0, g.code.insns.n)) return kiln_bytecode_fault(&g.code);
    store(t->dtype, data, i, g.code.regs.data[reg]);
    if (f->errors.worst) {
      kiln_error_tracker_run(&g.bound, 0, g.code.insns.n);
      put_error(f, i, g.code.regs.data[reg], g.bound.errors[reg]);
    }
    next_point(&g, 0, t->rank);
  }
  return KILN_OK;
}

// Number of outer dims that the guard depends on: it is invariant in those that follow.
static int guarded_dims(const frame *f) {
  int n = f->n_dims;
  while (n > 0 && f->s->guard && !kiln_expr_uses(f->s->guard, f->s->dims[n - 1].name)) n--;
  return n;
}

// Goes to the last point of the dims from |first| on: a guard that does not depend on them and does
// not hold here holds at none of their points. None of these points writes, so the guard's operands
// cannot change either.
static void skip_dims(frame *f, int first) {
  for (int d = first; d < f->n_dims; d++) {
    kiln_bytecode_step(&f->code, d, f->extents[d] - 1 - f->at[d]);
    f->at[d] = f->extents[d] - 1;
  }
}

// Adds the error of a scattered value to element |at|. If it is uncertain which element is written,
// all are unknown from now on.
static void scatter_error(frame *f, const void *data, int64_t at, kiln_cell value) {
  const kiln_dtype t = f->out->dtype;
  const kiln_error e = error_here(f, true);
  if (f->bound.errors[f->address].worst > 0) {
    for (int64_t i = 0, n = kiln_tensor_elems(f->out); i < n; i++)
      f->errors.worst[i] = f->errors.typical[i] = INFINITY;
    return;
  }
  kiln_sum_error sum = {.combiner = f->s->combiner, .dtype = t};
  const kiln_error before = {(double)f->errors.worst[at], (double)f->errors.typical[at]};
  if (sum.combiner != KILN_COMBINE_NONE) kiln_sum_error_add(&sum, fetch(t, data, at), before);
  kiln_sum_error_add(&sum, value, e);
  const kiln_cell all = combine(sum.combiner, t, fetch(t, data, at), value);
  put_error(f, at, all, kiln_sum_error_end(&sum, all));
}

static kiln_status run_scatter(frame *f, void *data) {
  KILN_TRY(run_init(f, data));
  if (is_empty(f, 0, f->n_dims)) return KILN_OK;
  KILN_TRY(frame_compile(f, false));
  kiln_bytecode_seek(&f->code, f->at);
  const kiln_dtype t = f->out->dtype;
  const int n_guarded = guarded_dims(f);
  kiln_error_tracker_init(&f->bound, &f->code, f->in->errors);
  do {
    bool ran = false;
    if (!run_here(f, &ran)) return kiln_bytecode_fault(&f->code);
    if (!ran) {
      skip_dims(f, n_guarded);
      continue;
    }
    const int64_t at = f->code.regs.data[f->address].i;
    const kiln_cell value = f->code.regs.data[f->body];
    if (f->errors.worst) scatter_error(f, data, at, value);
    store(t, data, at, combine(f->s->combiner, t, fetch(t, data, at), value));
  } while (next_point(f, 0, f->n_dims));
  return KILN_OK;
}

static void drop(kiln_interpreter *in, int tensor) {
  free(in->data[tensor]);
  in->data[tensor] = NULL;
  in->owned[tensor] = 0;
  forget_errors(in, tensor);
}

static kiln_status run_stmt(kiln_interpreter *in, const kiln_stmt *s) {
  kiln_ctx *cx = in->cx;
  const kiln_mark m = kiln_arena_mark(&cx->scratch);
  frame f;
  kiln_status status = frame_init(&f, in, s);
  if (status == KILN_OK) {
    const int64_t n = kiln_tensor_elems(f.out);
    const size_t bytes = (size_t)(n > 0 ? n : 1) * (size_t)kiln_dtype_bytes(f.out->dtype);
    void *data = malloc(bytes);
    in->data[s->out] = data; // at once: destroy frees it if an allocation fails
    in->owned[s->out] = data != NULL;
    if (s->out < in->first_owned) in->first_owned = s->out;
    if (!data)
      status = KILN_FAIL(cx->diag, KILN_NO_MEMORY, place_of(&f),
                         "interpreter: no memory left for %zu bytes of %s", bytes,
                         kiln_symbol_text(cx, f.out->name));
    if (status == KILN_OK) status = make_errors(&f, n);
    if (status == KILN_OK)
      status = kiln_stmt_is_plain(cx, s) ? run_plain(&f, data) : run_scatter(&f, data);
    if (status != KILN_OK) drop(in, s->out);
  }
  kiln_arena_rewind(&cx->scratch, m);
  return status;
}

// --- which statements to run ---

typedef struct need {
  kiln_interpreter *in;
  uint8_t *wanted; // [n_stmts]
  int reader;      // the statement whose expressions are being visited
} need;

static void want_load(const kiln_expr *e, void *argument) {
  need *n = argument;
  const int t = e->u.tensor, def = n->in->p->tensors.data[t]->def;
  if (n->in->last_reader[t] < n->reader) n->in->last_reader[t] = n->reader;
  if (def >= 0 && !find_data(n->in, t)) n->wanted[def] = 1;
}

static void want_reads(need *n, const kiln_stmt *s) {
  kiln_stmt_visit_loads(n->in->cx, n->in->p, s, want_load, n);
}

// Frees the intermediates that statement |i| reads last.
static void drop_read(kiln_interpreter *in, const uint8_t *keep, int i) {
  for (int t = 0; t < in->n_tensors; t++)
    if (in->owned[t] && !keep[t] && in->last_reader[t] == i) drop(in, t);
}

// Computes |n| tensors. |keep| marks the intermediates to keep; NULL keeps all.
static kiln_status compute(kiln_interpreter *in, int n, const int *tensors, const uint8_t *keep) {
  kiln_ctx *cx = in->cx;
  const kiln_program *p = in->p;
  const kiln_mark m = kiln_arena_mark(&cx->scratch);
  need want = {.in = in, .wanted = KILN_NEW_ARRAY(&cx->scratch, uint8_t, p->stmts.n)};
  int top = -1;
  memset(in->last_reader, -1, sizeof(int) * (size_t)in->n_tensors);
  kiln_status status = KILN_OK;
  for (int i = 0; i < n; i++) {
    const kiln_tensor *t = p->tensors.data[tensors[i]];
    if (find_data(in, t->id)) continue;
    if (t->def >= 0) want.wanted[t->def] = 1;
    if (t->def > top) top = t->def;
    if (t->def < 0 && kiln_tensor_elems(t) != 0)
      status = KILN_FAIL(cx->diag, KILN_INTERNAL, kiln_symbol_text(cx, t->name),
                         "interpreter: must be bound to data");
  }
  for (int i = top; i >= 0; i--) {
    want.reader = i;
    if (want.wanted[i]) want_reads(&want, p->stmts.data[i]);
  }
  for (int i = 0; i <= top && status == KILN_OK; i++) {
    if (!want.wanted[i]) continue;
    status = run_stmt(in, p->stmts.data[i]);
    if (keep) drop_read(in, keep, i);
  }
  kiln_arena_rewind(&cx->scratch, m);
  return status;
}

kiln_status kiln_interpreter_compute(kiln_interpreter *in, int tensor, const void **out_data) {
  *out_data = NULL;
  KILN_TRY(compute(in, 1, &tensor, NULL));
  *out_data = in->data[tensor];
  return KILN_OK;
}

kiln_status kiln_interpreter_run(kiln_interpreter *in) {
  kiln_ctx *cx = in->cx;
  const kiln_mark m = kiln_arena_mark(&cx->scratch);
  uint8_t *keep = KILN_NEW_ARRAY(&cx->scratch, uint8_t, in->n_tensors);
  for (int i = 0; i < in->p->outputs.n; i++) keep[in->p->outputs.data[i]] = 1;
  const kiln_status status = compute(in, in->p->outputs.n, in->p->outputs.data, keep);
  kiln_arena_rewind(&cx->scratch, m);
  return status;
}

// --- samples ---

static void seek_element(frame *f, int64_t linear) {
  for (int d = f->n_dims - 1; d >= 0; d--) {
    f->at[d] = 0;
    if (d >= f->s->n_space) continue;
    f->at[d] = linear % f->extents[d];
    linear /= f->extents[d];
  }
  kiln_bytecode_seek(&f->code, f->at);
}

static kiln_status sample(frame *f, int n, const int64_t *linear, double *out) {
  const kiln_dtype t = f->out->dtype;
  const int64_t elems = kiln_tensor_elems(f->out);
  const bool empty = is_empty(f, f->s->n_space, f->n_dims);
  if (!empty) KILN_TRY(frame_compile(f, true));
  for (int i = 0; i < n; i++) {
    kiln_cell value = f->identity;
    uint64_t stored = 0;
    if (linear[i] < 0 || linear[i] >= elems)
      return KILN_FAIL(f->in->cx->diag, KILN_INTERNAL, place_of(f),
                       "interpreter: samples must lie in [0, %" PRId64 "), got %" PRId64, elems,
                       linear[i]);
    seek_element(f, linear[i]);
    if (!empty && !element(f, &value)) return kiln_bytecode_fault(&f->code);
    store(t, &stored, 0, value);
    out[i] = kiln_element_get(t, &stored, 0);
  }
  return KILN_OK;
}

kiln_status kiln_interpreter_sample(kiln_interpreter *in, int tensor, int n, const int64_t *linear,
                                    double *out) {
  kiln_ctx *cx = in->cx;
  const kiln_tensor *t = in->p->tensors.data[tensor];
  if (find_data(in, tensor)) {
    for (int i = 0; i < n; i++) out[i] = kiln_element_get(t->dtype, in->data[tensor], linear[i]);
    return KILN_OK;
  }
  if (t->def < 0 || !kiln_stmt_is_plain(cx, in->p->stmts.data[t->def]))
    return KILN_FAIL(cx->diag, KILN_INTERNAL, kiln_symbol_text(cx, t->name),
                     "interpreter: must be computed by a plain statement, got another to sample");
  const kiln_mark m = kiln_arena_mark(&cx->scratch);
  frame f;
  kiln_status status = frame_init(&f, in, in->p->stmts.data[t->def]);
  if (status == KILN_OK) status = sample(&f, n, linear, out);
  kiln_arena_rewind(&cx->scratch, m);
  return status;
}

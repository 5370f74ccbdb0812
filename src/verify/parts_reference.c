// The steps of a model in parts, run by the interpreter (parts_reference.h).
#include "verify/parts_reference.h"

#include "analysis/known_errors.h"
#include "model/parts.h"
#include "module/checked.h"
#include "runtime/flow/run.h"

#include <stdlib.h>
#include <string.h>

// An element of a value, with its errors: so are rows, copies and exchanges of values.
typedef struct cell {
  char bytes[8]; // the element
  float worst, typical;
} cell;

typedef struct referring {
  kiln_ctx *cx;
  kiln_model *model;
  const kiln_freedoms *may;
  kiln_flow flow; // the model's, of cells
  const kiln_program **programs;
  const int64_t ***found; // [parts][their outputs] shapes in the last run; NULL: static
} referring;

static int64_t elements(const kiln_flow_value *v) {
  int64_t n = 1;
  for (int32_t a = 0; a < v->rank; a++) n *= v->shape[a];
  return n;
}

static void put_cells(cell *to, int64_t n, size_t bytes, const void *data, kiln_errors errors) {
  for (int64_t i = 0; i < n; i++) {
    to[i] = (cell){.worst = errors.worst ? errors.worst[i] : 0,
                   .typical = errors.typical ? errors.typical[i] : 0};
    memcpy(to[i].bytes, (const char *)data + (size_t)i * bytes, bytes);
  }
}

// Binds |t| to the elements of |from|, which are copied to scratch.
static kiln_status bind_cells(const referring *r, kiln_interpreter *in, const kiln_tensor *t,
                              const cell *from) {
  kiln_arena *scratch = &r->cx->scratch;
  const int64_t n = kiln_tensor_elems(t);
  const size_t bytes = (size_t)kiln_dtype_bytes(t->dtype);
  char *data = kiln_arena_alloc(scratch, (size_t)n * bytes + 1);
  kiln_errors errors = {KILN_NEW_ARRAY(scratch, float, n), KILN_NEW_ARRAY(scratch, float, n)};
  for (int64_t i = 0; i < n; i++) {
    memcpy(data + (size_t)i * bytes, from[i].bytes, bytes);
    errors.worst[i] = from[i].worst;
    errors.typical[i] = from[i].typical;
  }
  kiln_interpreter_bind(in, t->id, data);
  return r->may ? kiln_interpreter_give_errors(in, t->id, n, errors) : KILN_OK;
}

static kiln_status compute_part(referring *r, kiln_interpreter *in, const kiln_flow_step *step,
                                char *const *args) {
  const kiln_program *p = r->programs[step->part];
  const int n_outputs = (int)step->n_args - p->inputs.n;
  if (r->may) kiln_interpreter_track(in, *r->may);
  for (int i = 0; i < p->inputs.n; i++)
    KILN_TRY(bind_cells(r, in, p->tensors.data[p->inputs.data[i]], (const cell *)args[i]));
  KILN_TRY(kiln_interpreter_run(in));
  for (int i = 0; i < n_outputs; i++) {
    const kiln_tensor *t = p->tensors.data[p->outputs.data[i]];
    put_cells((cell *)args[p->inputs.n + i], kiln_tensor_elems(t),
              (size_t)kiln_dtype_bytes(t->dtype), kiln_interpreter_data(in, t->id),
              kiln_interpreter_errors(in, t->id));
  }
  for (int k = 0; k < p->shape_of.n; k++) {
    const int of = p->shape_of.data[k];
    int64_t *shape = KILN_NEW_ARRAY(&r->cx->perm, int64_t, KILN_MAX_RANK);
    memcpy(shape, kiln_interpreter_data(in, p->outputs.data[n_outputs + k]),
           sizeof *shape * (size_t)p->tensors.data[p->outputs.data[of]]->rank);
    r->found[step->part][of] = shape;
  }
  if (p->checks.n == 0) return KILN_OK;
  return kiln_program_checked(r->cx, p,
                              kiln_interpreter_data(in, p->outputs.data[p->outputs.n - 1]));
}

static void destroy(void *interpreter) { kiln_interpreter_destroy(interpreter); }

static kiln_status run_part(void *user, const kiln_flow_step *step, char *const *args,
                            kiln_diag *diag) {
  referring *r = user;
  kiln_interpreter *in = NULL;
  const kiln_mark mark = kiln_arena_mark(&r->cx->scratch);
  (void)diag;
  KILN_TRY(kiln_interpreter_create(r->cx, r->programs[step->part], &in));
  kiln_cleanup_push(r->cx, destroy, in);
  const kiln_status st = compute_part(r, in, step, args);
  kiln_cleanup_pop(r->cx);
  kiln_interpreter_destroy(in);
  kiln_arena_rewind(&r->cx->scratch, mark);
  return st;
}

// The flow of |m| with a cell for each element; gives the bytes of its buffers.
static size_t flow_of_cells(kiln_ctx *cx, const kiln_flow *from, kiln_flow *out) {
  size_t at = 0;
  *out = *from;
  out->values = KILN_NEW_ARRAY(&cx->perm, kiln_flow_value, from->n_values);
  for (uint32_t i = 0; i < from->n_values; i++) {
    kiln_flow_value *v = &out->values[i];
    *v = from->values[i];
    v->bytes = (uint64_t)elements(v) * sizeof(cell);
    v->offset = at;
    if (i >= from->n_inputs + from->n_outputs) at += v->bytes;
  }
  return at;
}

static kiln_status prepare(referring *r) {
  kiln_ctx *cx = r->cx;
  const int n = (int)r->flow.n_parts;
  r->programs = KILN_NEW_ARRAY(&cx->perm, const kiln_program *, n);
  r->found = KILN_NEW_ARRAY(&cx->perm, const int64_t **, n);
  for (int i = 0; i < n; i++) {
    kiln_model *one = KILN_NEW(&cx->perm, kiln_model);
    *one = kiln_parts_model(cx, r->model, i);
    KILN_TRY(kiln_model_meaning(cx, one, &r->programs[i]));
    r->found[i] = KILN_NEW_ARRAY(&cx->perm, const int64_t *, r->programs[i]->outputs.n + 1);
  }
  return KILN_OK;
}

static void take_shapes(const referring *r) {
  for (uint32_t i = 0; i < r->flow.n_outputs; i++) {
    const kiln_flow_shape *x = &r->flow.shapes[i];
    const int64_t *found = x->part ? r->found[x->part - 1][x->output] : NULL;
    if (r->model->found[i] && found)
      memcpy(r->model->found[i], found,
             sizeof *found * (size_t)r->flow.values[r->flow.n_inputs + i].rank);
  }
}

// Runs the steps in |arena|, with ports in memory of their own.
static kiln_status walk(referring *r, const void *const *inputs, char *arena, kiln_flow_run *run,
                        const kiln_program *ports, kiln_interpreter *io) {
  const kiln_flow *f = &r->flow;
  for (uint32_t i = 0; i < f->n_inputs + f->n_outputs; i++)
    run->at[i] = kiln_arena_alloc(&r->cx->perm, f->values[i].bytes + 1);
  for (uint32_t i = 0; i < f->n_inputs; i++) {
    const kiln_tensor *t = ports->tensors.data[ports->inputs.data[i]];
    put_cells((cell *)run->at[i], elements(&f->values[i]), (size_t)kiln_dtype_bytes(t->dtype),
              inputs[i], (kiln_errors){NULL, NULL});
  }
  KILN_TRY(kiln_flow_run_steps(run, arena, run_part, r, r->cx->diag));
  for (uint32_t i = 0; i < f->n_outputs; i++)
    KILN_TRY(bind_cells(r, io, ports->tensors.data[ports->outputs.data[i]],
                        (const cell *)run->at[f->n_inputs + i]));
  take_shapes(r);
  return KILN_OK;
}

static void deinit(void *run) { kiln_flow_run_deinit(run); }

kiln_status kiln_parts_refer(kiln_ctx *cx, kiln_model *m, const void *const *inputs,
                             const kiln_freedoms *may, const kiln_program *ports,
                             kiln_interpreter *io) {
  referring r = {.cx = cx, .model = m, .may = may};
  kiln_flow_run run;
  char *arena = kiln_arena_alloc(&cx->perm, flow_of_cells(cx, &m->parted->flow, &r.flow) + 1);
  KILN_TRY(prepare(&r));
  kiln_status st = kiln_flow_run_init(&r.flow, cx->diag, &run);
  kiln_cleanup_push(cx, deinit, &run);
  if (st == KILN_OK) st = walk(&r, inputs, arena, &run, ports, io);
  kiln_cleanup_pop(cx);
  kiln_flow_run_deinit(&run);
  return st;
}

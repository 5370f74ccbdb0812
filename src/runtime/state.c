// State of a session (state.h), and its file: "KSTA", an endianness mark, the version, the number
// of states; for each its name, type, rank, extents and whether it is set, then its bytes; then a
// checksum of all before.
#include "runtime/state.h"
#include "runtime/blob.h"
#include "runtime/inset.h"
#include "runtime/check.h"
#include "runtime/strided.h"
#include "runtime/wire.h"
#include "support/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STATE_VERSION = 1, SUM_BYTES = 8 };
#define STATE_MAGIC UINT32_C(0x4154534b) // "KSTA"

static const kiln_plan_state *state_of(const kiln_session_states *s, uint32_t i) {
  return &kiln_module_port_plan(s->module)->states[i];
}

static const char *name_of(const kiln_session_states *s, uint32_t i) {
  return s->module->plan.inputs[state_of(s, i)->input].name;
}

static uint64_t bytes_of(const kiln_type *t, int32_t rank, const int64_t *shape) {
  uint64_t elems = 0;
  if (!kiln_shape_bytes(rank, shape, 1, &elems)) return UINT64_MAX;
  return kiln_type_tensor_bytes(t, elems);
}

// --- creation ---

// The most bytes that port |i| has at the ends of the dimensions' ranges.
static uint64_t port_capacity(const kiln_module *m, bool is_input, uint32_t i) {
  const kiln_plan_port *port = is_input ? &m->plan.inputs[i] : &m->plan.outputs[i];
  const kiln_dynamic *d = m->dynamic;
  uint64_t most = 0;
  if (!d) return bytes_of(port->type, port->rank, port->shape);
  for (uint32_t corner = 0; corner < 1u << d->n_dims; corner++) {
    int64_t values[KILN_MAX_DIMS], shape[KILN_PORT_MAX_RANK];
    for (uint32_t x = 0; x < d->n_dims; x++)
      values[x] = corner >> x & 1 ? d->dims[x].most : d->dims[x].least;
    kiln_dynamic_shape(is_input ? &d->inputs[i] : &d->outputs[i], values, shape);
    const uint64_t bytes = bytes_of(port->type, port->rank, shape);
    if (bytes != UINT64_MAX && bytes > most) most = bytes;
  }
  return most;
}

static bool same_formula(const kiln_formula *a, const kiln_formula *b) {
  bool same = a->n == b->n;
  for (uint32_t i = 0; same && i < a->n; i++)
    same = a->steps[i].op == b->steps[i].op && a->steps[i].value == b->steps[i].value;
  return same;
}

// The axis along which the output is longer than the input.
static int growing_axis(const kiln_module *m, const kiln_plan_state *state) {
  const kiln_dynamic *d = m->dynamic;
  for (int32_t k = 0; d && k < d->inputs[state->input].rank; k++)
    if (!same_formula(&d->inputs[state->input].shape[k], &d->outputs[state->output].shape[k]))
      return k;
  return -1;
}

static kiln_status no_memory(kiln_diag *diag, const char *place, uint64_t bytes) {
  return kiln_diag_fail(diag, KILN_NO_MEMORY, place, "state: %" PRIu64 " bytes: no memory left",
                        bytes);
}

// Address space for the capacity, zeroed; pages take memory when they are written.
static void *reserve(uint64_t bytes) {
  void *at = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

bool kiln_plan_state_stays(const kiln_plan *p, uint32_t i) {
  const kiln_plan_state *state = &p->states[i];
  const kiln_plan_port *in = &p->inputs[state->input], *out = &p->outputs[state->output];
  const size_t bytes = (size_t)in->rank * sizeof *in->shape;
  if (in->rank != out->rank || memcmp(in->shape, out->shape, bytes) != 0) return false;
  for (uint32_t k = 0; k < p->n_copies; k++) {
    const kiln_plan_arg *from = &p->copies[k].from;
    if (p->copies[k].output == state->output)
      return from->where == KILN_PLACE_INPUT && from->index == state->input && from->offset == 0;
  }
  return false;
}

// Whether a state stays in the plan, or in all variants; *io_capacity becomes that of their ports.
static bool stays(const kiln_session_states *s, uint32_t i, uint64_t *io_capacity) {
  if (s->module->flow) return false;
  if (!s->module->dynamic) return kiln_plan_state_stays(&s->module->plan, i);
  bool does = true;
  for (uint32_t v = 0; does && v < s->module->n_variants; v++) {
    const kiln_plan *p = &s->module->variants[v]->plan;
    const uint64_t bytes = p->inputs[state_of(s, i)->input].bytes;
    does = kiln_plan_state_stays(p, i);
    if (bytes > *io_capacity) *io_capacity = bytes;
  }
  return does;
}

static kiln_status make_value(kiln_session_states *s, uint32_t i, kiln_diag *diag) {
  const kiln_plan_state *state = state_of(s, i);
  const kiln_plan_port *port = &s->module->plan.inputs[state->input];
  kiln_state_value *v = &s->values[i];
  const uint64_t in = port_capacity(s->module, true, state->input),
                 out = port_capacity(s->module, false, state->output);
  v->capacity = in > out ? in : out;
  v->axis = growing_axis(s->module, state);
  v->stays = stays(s, i, &v->capacity);
  v->is_clean[0] = v->is_clean[1] = true;
  for (int k = 0; k < 2; k++) {
    memcpy(v->layout[k], port->shape, (size_t)port->rank * sizeof *port->shape);
    v->tensors[k] = (DLTensor){.data = reserve(v->capacity),
                               .device = {kDLCPU, 0},
                               .ndim = port->rank,
                               .dtype = {port->type->code, port->type->bits, 1},
                               .shape = v->shapes[k]};
    if (!v->tensors[k].data) return no_memory(diag, name_of(s, i), v->capacity);
  }
  return KILN_OK;
}

kiln_status kiln_states_create(const kiln_module *m, kiln_diag *diag, kiln_session_states **out) {
  const uint32_t n = kiln_module_port_plan(m)->n_states;
  *out = NULL;
  if (n == 0) return KILN_OK;
  kiln_session_states *s = calloc(1, sizeof *s);
  if (!s) return no_memory(diag, "session", sizeof *s);
  *s = (kiln_session_states){.module = m,
                             .values = calloc(n, sizeof *s->values),
                             .inputs = calloc((size_t)m->plan.n_inputs + 1, sizeof *s->inputs),
                             .outputs = calloc((size_t)m->plan.n_outputs + 1, sizeof *s->outputs)};
  kiln_status st = s->values && s->inputs && s->outputs
                       ? KILN_OK
                       : no_memory(diag, "session", n * sizeof *s->values);
  for (; s->n < n && st == KILN_OK; s->n++) st = make_value(s, s->n, diag);
  if (st != KILN_OK) kiln_states_destroy(s);
  else *out = s;
  return st;
}

void kiln_states_destroy(kiln_session_states *s) {
  if (!s) return;
  for (uint32_t i = 0; s->values && i < s->n; i++)
    for (int k = 0; k < 2; k++) {
      const kiln_state_value *v = &s->values[i];
      if (v->tensors[k].data) munmap(v->tensors[k].data, v->capacity ? v->capacity : 1);
    }
  free(s->values);
  free(s->inputs);
  free(s->outputs);
  free(s);
}

// --- memory of states that stay ---

static kiln_inset inset_of(const kiln_state_value *v, int k, const int64_t *shape) {
  const DLTensor *t = &v->tensors[k];
  return (kiln_inset){t->data, kiln_type_bytes(kiln_type_of(t->dtype)), t->ndim, shape,
                      v->layout[k]};
}

// The inset of a tensor of its own strides.
static kiln_inset inset_of_tensor(const DLTensor *t) {
  return (kiln_inset){kiln_tensor_begin(t), kiln_type_bytes(kiln_type_of(t->dtype)), t->ndim,
                      t->shape, t->shape};
}

// Zeroes tensor |k| for elements of |layout|.
static void clear(kiln_state_value *v, int k, const int64_t *layout) {
  const size_t bytes = (size_t)v->tensors[k].ndim * sizeof *layout;
  if (!v->is_clean[k] && memcmp(v->layout[k], layout, bytes) == 0) {
    const kiln_inset all = inset_of(v, k, v->written[k]);
    kiln_inset_clear(&all, 0, 0);
  } else if (!v->is_clean[k]) (void)madvise(v->tensors[k].data, v->capacity, MADV_DONTNEED);
  v->is_clean[k] = true;
  memcpy(v->layout[k], layout, bytes);
}

// Notes that tensor |k| has elements of |shape|.
static void note_written(kiln_state_value *v, int k, const int64_t *shape) {
  for (int32_t a = 0; a < v->tensors[k].ndim; a++)
    if (v->is_clean[k] || v->written[k][a] < shape[a]) v->written[k][a] = shape[a];
  v->is_clean[k] = false;
}

// Makes |from|, of any layout, the content of tensor |k|.
static void fill(kiln_state_value *v, int k, const int64_t *layout, const kiln_inset *from) {
  clear(v, k, layout);
  note_written(v, k, from->shape);
  const kiln_inset to = inset_of(v, k, from->shape);
  kiln_inset_copy(&to, from);
}

// Gives the memory of one tensor to the other.
static void swap_memory(kiln_state_value *v) {
  int64_t rows[KILN_PORT_MAX_RANK];
  void *const data = v->tensors[0].data;
  const bool is_clean = v->is_clean[0];
  v->tensors[0].data = v->tensors[1].data;
  v->tensors[1].data = data;
  v->is_clean[0] = v->is_clean[1];
  v->is_clean[1] = is_clean;
  int64_t(*const both[])[KILN_PORT_MAX_RANK] = {v->layout, v->written};
  for (int k = 0; k < 2; k++) {
    memcpy(rows, both[k][0], sizeof rows);
    memcpy(both[k][0], both[k][1], sizeof rows);
    memcpy(both[k][1], rows, sizeof rows);
  }
}

// Brings the value into another layout.
static void lay_out(kiln_state_value *v, const int64_t *layout) {
  const DLTensor *t = &v->tensors[v->now];
  if (memcmp(v->layout[v->now], layout, (size_t)t->ndim * sizeof *layout) == 0) return;
  if (v->is_clean[v->now]) {
    clear(v, v->now, layout);
    return;
  }
  const kiln_inset from = inset_of(v, v->now, t->shape);
  fill(v, 1 - v->now, layout, &from);
  swap_memory(v);
}

// Whether the current run reads the session's value.
static bool reads_value(const kiln_session_states *s, uint32_t i) {
  return s->inputs[state_of(s, i)->input] == &s->values[i].tensors[s->values[i].now];
}

char *kiln_states_place(kiln_session_states *s, const kiln_plan *p, uint32_t i) {
  kiln_state_value *v = &s->values[i];
  const int64_t *layout = p->inputs[state_of(s, i)->input].shape;
  const int k = reads_value(s, i) ? v->now : 1 - v->now;
  const kiln_inset given = inset_of_tensor(s->inputs[state_of(s, i)->input]);
  if (k == v->now) lay_out(v, layout);
  else fill(v, k, layout, &given);
  note_written(v, k, s->outputs[state_of(s, i)->output]->shape);
  v->is_placed = true;
  return v->tensors[k].data;
}

// Zeroes what a run stored behind the value.
static void take_back(kiln_state_value *v) {
  const kiln_inset all = inset_of(v, v->now, v->written[v->now]);
  if (v->axis >= 0) kiln_inset_clear(&all, v->axis, v->tensors[v->now].shape[v->axis]);
}

void kiln_states_undo(kiln_session_states *s) {
  for (uint32_t i = 0; i < s->n; i++) {
    if (s->values[i].is_placed && reads_value(s, i)) take_back(&s->values[i]);
    s->values[i].is_placed = false;
  }
}

// Ends a run of a state that stays: its result is in the memory of the value, or in the other.
static void end_in_place(kiln_session_states *s, uint32_t i, DLTensor *given) {
  kiln_state_value *v = &s->values[i];
  const bool is_own = reads_value(s, i);
  const int k = is_own ? v->now : 1 - v->now;
  const DLTensor *out = s->outputs[state_of(s, i)->output];
  if (given && !v->is_placed) return; // the run stored into it
  if (!v->is_placed) note_written(v, k, out->shape);
  v->is_placed = false;
  if (given) {
    const kiln_inset to = inset_of_tensor(given), from = inset_of(v, k, given->shape);
    kiln_inset_copy(&to, &from);
    if (is_own) take_back(v);
    return;
  }
  memcpy(v->tensors[k].shape, out->shape, (size_t)out->ndim * sizeof *out->shape);
  v->now = k;
  v->is_set = true;
}

const DLTensor *kiln_states_value(kiln_session_states *s, uint32_t i) {
  kiln_state_value *v = &s->values[i];
  const DLTensor *t = &v->tensors[v->now];
  DLTensor *compact = &v->tensors[1 - v->now];
  if (!v->is_set) return NULL;
  const kiln_inset from = inset_of(v, v->now, t->shape);
  if (!v->stays || kiln_inset_is_dense(&from)) return t;
  memcpy(compact->shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
  fill(v, 1 - v->now, t->shape, &from);
  return compact;
}

// --- runs ---

// The values of the dimensions that inputs tell, for others the least.
static void known_values(const kiln_session_states *s, int64_t *out) {
  const kiln_dynamic *d = s->module->dynamic;
  for (uint32_t x = 0; x < d->n_dims; x++) {
    out[x] = d->dims[x].least;
    for (uint32_t i = 0; i < d->n_inputs; i++) {
      const DLTensor *t = s->inputs[i];
      const int32_t rank = t && t->shape && t->ndim == d->inputs[i].rank ? t->ndim : 0;
      for (int32_t k = 0; k < rank; k++)
        if (kiln_formula_is_dim(&d->inputs[i].shape[k], x)) out[x] = t->shape[k];
    }
  }
}

static kiln_status set_shape(const kiln_session_states *s, uint32_t i, DLTensor *t, bool is_input,
                             const int64_t *values, kiln_diag *diag) {
  const kiln_plan_state *state = state_of(s, i);
  const kiln_dynamic *d = s->module->dynamic;
  const uint32_t at = is_input ? state->input : state->output;
  const kiln_plan_port *port =
      is_input ? &s->module->plan.inputs[at] : &s->module->plan.outputs[at];
  if (d) kiln_dynamic_shape(is_input ? &d->inputs[at] : &d->outputs[at], values, t->shape);
  else memcpy(t->shape, port->shape, (size_t)port->rank * sizeof *port->shape);
  const uint64_t bytes = bytes_of(port->type, port->rank, t->shape);
  if (bytes <= s->values[i].capacity) return KILN_OK;
  return kiln_diag_fail(diag, KILN_BAD_INPUT, name_of(s, i),
                        "state: must be at most %" PRIu64 " bytes, got %" PRIu64,
                        s->values[i].capacity, bytes);
}

// Zeros, of the extents that the run's other inputs tell.
static kiln_status begin_anew(kiln_session_states *s, uint32_t i, const int64_t *values,
                              kiln_diag *diag) {
  kiln_state_value *v = &s->values[i];
  DLTensor *t = &v->tensors[v->now];
  KILN_TRY(set_shape(s, i, t, true, values, diag));
  if (v->stays) clear(v, v->now, v->layout[v->now]);
  else memset(t->data, 0, kiln_tensor_bytes(t));
  return KILN_OK;
}

static kiln_status fill_inputs(kiln_session_states *s, kiln_diag *diag) {
  int64_t values[KILN_MAX_DIMS] = {0};
  for (uint32_t i = 0; i < s->n; i++) {
    const DLTensor **in = &s->inputs[state_of(s, i)->input], *own = s->values[i].tensors;
    const bool is_own = !*in || *in == &own[0] || *in == &own[1];
    if (is_own) *in = s->values[i].is_set ? &own[s->values[i].now] : NULL;
  }
  if (s->module->dynamic) known_values(s, values);
  for (uint32_t i = 0; i < s->n; i++) {
    const DLTensor **in = &s->inputs[state_of(s, i)->input];
    if (*in) continue;
    KILN_TRY(begin_anew(s, i, values, diag));
    *in = &s->values[i].tensors[s->values[i].now];
  }
  return KILN_OK;
}

static void fill_in(kiln_session_states *s, const DLTensor *const *inputs,
                    DLTensor *const *outputs) {
  for (uint32_t i = 0; i < s->module->plan.n_inputs; i++) s->inputs[i] = inputs[i];
  for (size_t i = 0; outputs && i < kiln_module_output_count(s->module); i++)
    s->outputs[i] = outputs[i];
}

kiln_status kiln_states_find_dims(kiln_session_states *s, const DLTensor *const *inputs,
                                  kiln_diag *diag, int64_t *out_values) {
  fill_in(s, inputs, NULL);
  KILN_TRY(fill_inputs(s, diag));
  return kiln_module_find_dims(s->module, s->module->plan.n_inputs, s->inputs, diag, out_values);
}

kiln_status kiln_states_begin(kiln_session_states *s, const DLTensor *const *inputs,
                              DLTensor *const *outputs, kiln_diag *diag) {
  int64_t values[KILN_MAX_DIMS] = {0};
  KILN_TRY(kiln_states_find_dims(s, inputs, diag, values));
  fill_in(s, s->inputs, outputs);
  for (uint32_t i = 0; i < s->n; i++) {
    DLTensor **out = &s->outputs[state_of(s, i)->output];
    if (*out) continue;
    const bool is_same = s->values[i].stays && !s->module->dynamic && reads_value(s, i);
    *out = &s->values[i].tensors[is_same ? s->values[i].now : 1 - s->values[i].now];
    KILN_TRY(set_shape(s, i, *out, false, values, diag));
  }
  return KILN_OK;
}

void kiln_states_end(kiln_session_states *s, DLTensor *const *outputs) {
  for (uint32_t i = 0; i < s->n; i++) {
    DLTensor *given = outputs[state_of(s, i)->output];
    if (s->values[i].stays) end_in_place(s, i, given);
    if (given || s->values[i].stays) continue;
    s->values[i].now = 1 - s->values[i].now;
    s->values[i].is_set = true;
  }
}

// --- changes between runs ---

void kiln_states_reset(kiln_session_states *s) {
  for (uint32_t i = 0; i < s->n; i++) s->values[i].is_set = false;
}

static int64_t length_of(const kiln_state_value *v) {
  return v->is_set ? v->tensors[v->now].shape[v->axis] : 0;
}

static void truncate_value(kiln_state_value *v, int64_t length) {
  if (v->stays) {
    v->tensors[v->now].shape[v->axis] = length;
    take_back(v);
    return;
  }
  const DLTensor *from = &v->tensors[v->now];
  DLTensor *to = &v->tensors[1 - v->now];
  int64_t strides[KILN_PORT_MAX_RANK], stride = 1;
  for (int32_t k = from->ndim - 1; k >= 0; k--) {
    strides[k] = stride;
    stride *= from->shape[k];
    to->shape[k] = k == v->axis ? length : from->shape[k];
  }
  const kiln_strided what = {to->data, from->data, kiln_type_bytes(kiln_type_of(to->dtype)),
                             to->ndim, to->shape,  strides};
  if (kiln_tensor_count(to) > 0) kiln_strided_copy(&what);
  v->now = 1 - v->now;
}

kiln_status kiln_states_truncate(kiln_session_states *s, int64_t length, kiln_diag *diag) {
  uint32_t n_growing = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    if (s->values[i].axis < 0) continue;
    n_growing++;
    if (length < 0 || length > length_of(&s->values[i]))
      return kiln_diag_fail(diag, KILN_BAD_INPUT, name_of(s, i),
                            "length: must be 0 to %" PRId64 ", the state's, got %" PRId64,
                            length_of(&s->values[i]), length);
  }
  if (n_growing == 0)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, "session",
                          "length: a state must have an axis along which runs append, got none");
  for (uint32_t i = 0; i < s->n; i++)
    if (s->values[i].axis >= 0 && s->values[i].is_set && length < length_of(&s->values[i]))
      truncate_value(&s->values[i], length);
  return KILN_OK;
}

// Makes a row-major tensor of |shape| the value.
static void set_value(kiln_state_value *v, const int64_t *shape, const void *data) {
  DLTensor *t = &v->tensors[v->now];
  memcpy(t->shape, shape, (size_t)t->ndim * sizeof *shape);
  v->is_set = true;
  if (v->stays) clear(v, v->now, shape);
  memcpy(t->data, data, kiln_tensor_bytes(t));
  if (v->stays) note_written(v, v->now, shape);
}

void kiln_states_copy(const kiln_session_states *from, kiln_session_states *to) {
  for (uint32_t i = 0; i < from->n; i++) {
    const kiln_state_value *f = &from->values[i];
    kiln_state_value *t = &to->values[i];
    t->is_set = false;
    if (!f->is_set) continue;
    const DLTensor *value = &f->tensors[f->now];
    if (f->stays) {
      const kiln_inset source = inset_of(f, f->now, value->shape);
      fill(t, t->now, f->layout[f->now], &source);
      memcpy(t->tensors[t->now].shape, value->shape, (size_t)value->ndim * sizeof *value->shape);
      t->is_set = true;
    } else set_value(t, value->shape, value->data);
  }
}

// --- files ---

static void put_value(kiln_writer *w, kiln_session_states *s, uint32_t i) {
  const kiln_state_value *v = &s->values[i];
  const DLTensor *t = v->is_set ? kiln_states_value(s, i) : &v->tensors[v->now];
  kiln_put_text(w, name_of(s, i));
  kiln_put_text(w, kiln_type_of(t->dtype)->text);
  kiln_put_u32(w, v->is_set);
  kiln_put_u32(w, (uint32_t)t->ndim);
  if (!v->is_set) return;
  for (int32_t k = 0; k < t->ndim; k++) kiln_put_i64(w, t->shape[k]);
  kiln_put_bytes(w, t->data, kiln_tensor_bytes(t));
}

static bool write_file(const char *path, const void *data, size_t bytes) {
  FILE *f = fopen(path, "wb");
  bool wrote = f && fwrite(data, 1, bytes, f) == bytes;
  if (f && fclose(f) != 0) wrote = false;
  if (f && !wrote) (void)unlink(path);
  return wrote;
}

kiln_status kiln_states_save(kiln_session_states *s, const char *path, kiln_diag *diag) {
  kiln_writer w = {0};
  void *data = NULL;
  size_t bytes = 0;
  kiln_put_u32(&w, STATE_MAGIC);
  kiln_put_u32(&w, KILN_WIRE_ENDIAN_MARK);
  kiln_put_u32(&w, STATE_VERSION);
  kiln_put_u32(&w, s->n);
  for (uint32_t i = 0; i < s->n; i++) put_value(&w, s, i);
  if (!w.failed) kiln_put(&w, kiln_wire_sum(w.data, w.n), SUM_BYTES);
  kiln_writer_end(&w, &data, &bytes);
  if (!data) return no_memory(diag, path, 0);
  const bool wrote = write_file(path, data, bytes);
  const int error = errno;
  free(data);
  if (wrote) return KILN_OK;
  return kiln_diag_fail(diag, kiln_status_of_error(error), path, "must be writable: %s",
                        strerror(error));
}

// Reads the whole of a file; malloc'ed.
static kiln_status read_file(const char *path, kiln_diag *diag, unsigned char **out,
                             size_t *out_bytes) {
  FILE *f = fopen(path, "rb");
  unsigned char *data = NULL;
  long end = -1;
  if (f && fseek(f, 0, SEEK_END) == 0 && (end = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0)
    data = malloc((size_t)end + 1);
  const bool has = data && fread(data, 1, (size_t)end, f) == (size_t)end;
  const int error = errno;
  if (f) fclose(f);
  *out = has ? data : NULL;
  *out_bytes = has ? (size_t)end : 0;
  if (has) return KILN_OK;
  free(data);
  if (end >= 0 && !data) return no_memory(diag, path, (uint64_t)end);
  return kiln_diag_fail(diag, kiln_status_of_error(error), path, "must be readable: %s",
                        strerror(error));
}

// A value in a file.
typedef struct stored {
  bool is_set;
  int64_t shape[KILN_PORT_MAX_RANK];
  const unsigned char *data;
  uint64_t bytes;
} stored;

static void get_value(kiln_reader *r, const kiln_session_states *s, uint32_t i, stored *out) {
  const kiln_state_value *v = &s->values[i];
  const kiln_type *type = kiln_type_of(v->tensors[0].dtype);
  const char *name = kiln_get_text(r), *dtype = kiln_get_text(r);
  out->is_set = kiln_get_u32(r) != 0;
  const uint32_t rank = kiln_get_u32(r);
  if (r->wrong) return;
  if (strcmp(name, name_of(s, i)) != 0 || strcmp(dtype, type->text) != 0 ||
      rank != (uint32_t)v->tensors[0].ndim) {
    kiln_reader_fail(r, "its states must be those of the module, by name, type and rank");
    return;
  }
  for (uint32_t k = 0; out->is_set && k < rank; k++) out->shape[k] = (int64_t)kiln_get(r, 8);
  if (!out->is_set || r->wrong) return;
  out->bytes = bytes_of(type, (int32_t)rank, out->shape);
  out->data = r->data + r->at;
  if (out->bytes > v->capacity || out->bytes > r->n - r->at)
    kiln_reader_fail(r, "a state must fit its capacity and end inside the file");
  else r->at += (size_t)out->bytes;
}

static void get_all(kiln_reader *r, const kiln_session_states *s, stored *found) {
  if (r->n < SUM_BYTES || kiln_wire_get(r->data + r->n - SUM_BYTES, SUM_BYTES) !=
                              kiln_wire_sum(r->data, r->n - SUM_BYTES)) {
    kiln_reader_fail(r, "its checksum must match");
    return;
  }
  r->n -= SUM_BYTES;
  if (kiln_get_u32(r) != STATE_MAGIC) kiln_reader_fail(r, "it must begin with KSTA");
  if (kiln_get_u32(r) != KILN_WIRE_ENDIAN_MARK) kiln_reader_fail(r, "it must be little-endian");
  if (kiln_get_u32(r) != STATE_VERSION) kiln_reader_fail(r, "its version must be 1");
  if (kiln_get_u32(r) != s->n) kiln_reader_fail(r, "it must have the module's number of states");
  for (uint32_t i = 0; i < s->n && !r->wrong; i++) get_value(r, s, i, &found[i]);
  if (!r->wrong && r->at != r->n) kiln_reader_fail(r, "nothing must follow the states");
}

kiln_status kiln_states_load(kiln_session_states *s, const char *path, kiln_diag *diag) {
  unsigned char *data = NULL;
  size_t bytes = 0;
  KILN_TRY(read_file(path, diag, &data, &bytes));
  kiln_reader r = {.data = data, .n = bytes};
  stored *found = calloc(s->n, sizeof *found);
  if (!found) {
    free(data);
    return no_memory(diag, path, s->n * sizeof *found);
  }
  get_all(&r, s, found);
  for (uint32_t i = 0; i < s->n && !r.wrong; i++) {
    kiln_state_value *v = &s->values[i];
    v->is_set = false;
    if (!found[i].is_set) continue;
    set_value(v, found[i].shape, found[i].data);
  }
  free(found);
  free(data);
  return kiln_reader_end(&r, "file of states", path, diag);
}

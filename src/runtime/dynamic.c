// Ranges of dimensions: blobs, and lookups for a run.
#include "runtime/dynamic.h"
#include "runtime/blob.h"
#include "runtime/check.h"
#include "runtime/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- formulas ---

static int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return (int64_t)(0 - (uint64_t)a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t apply(kiln_formula_op op, int64_t a, int64_t b) {
  const uint64_t x = (uint64_t)a, y = (uint64_t)b;
  switch (op) {
  case KILN_FORMULA_ADD: return (int64_t)(x + y);
  case KILN_FORMULA_SUB: return (int64_t)(x - y);
  case KILN_FORMULA_MUL: return (int64_t)(x * y);
  case KILN_FORMULA_DIV: return floor_div(a, b);
  case KILN_FORMULA_MOD: return b ? (int64_t)(x - (uint64_t)floor_div(a, b) * y) : 0;
  case KILN_FORMULA_MIN: return a < b ? a : b;
  case KILN_FORMULA_MAX_OF: return a > b ? a : b;
  case KILN_FORMULA_CONST:
  case KILN_FORMULA_DIM:
  case KILN_N_FORMULA_OPS: break;
  }
  return 0;
}

int64_t kiln_formula_value(const kiln_formula *f, const int64_t *dims) {
  int64_t stack[KILN_FORMULA_DEPTH];
  int n = 0;
  for (uint32_t i = 0; i < f->n; i++) {
    const kiln_formula_step *s = &f->steps[i];
    if (s->op == KILN_FORMULA_CONST) stack[n++] = s->value;
    else if (s->op == KILN_FORMULA_DIM) stack[n++] = dims[s->value];
    else {
      n--;
      stack[n - 1] = apply(s->op, stack[n - 1], stack[n]);
    }
  }
  return stack[0];
}

bool kiln_formula_is_dim(const kiln_formula *f, uint32_t dim) {
  return f->n == 1 && f->steps[0].op == KILN_FORMULA_DIM && f->steps[0].value == (int64_t)dim;
}

// --- writing ---

bool kiln_dynamic_is(const void *blob, size_t bytes) {
  return bytes >= 4 && kiln_wire_get(blob, 4) == KILN_WIRE_DYNAMIC_MAGIC;
}

static void put_formula(kiln_writer *w, const kiln_formula *f) {
  kiln_put_u32(w, f->n);
  for (uint32_t i = 0; i < f->n; i++) {
    kiln_put_u32(w, (uint32_t)f->steps[i].op);
    kiln_put_i64(w, f->steps[i].value);
  }
}

static void put_ports(kiln_writer *w, uint32_t n, const kiln_dynamic_port *ports) {
  for (uint32_t i = 0; i < n; i++) {
    kiln_put_text(w, ports[i].name);
    kiln_put_text(w, ports[i].type->text);
    kiln_put_u32(w, (uint32_t)ports[i].rank);
    for (int32_t k = 0; k < ports[i].rank; k++) put_formula(w, &ports[i].shape[k]);
  }
}

static void put_variant(kiln_writer *w, uint32_t n_dims, const kiln_variant *v) {
  for (uint32_t d = 0; d < n_dims; d++) {
    kiln_put_i64(w, v->least[d]);
    kiln_put_i64(w, v->most[d]);
  }
  kiln_put_u32(w, v->n_trims);
  for (uint32_t i = 0; i < v->n_trims; i++) {
    kiln_put_u32(w, v->trims[i].nest);
    kiln_put_u32(w, v->trims[i].axis);
    put_formula(w, &v->trims[i].extent);
  }
  kiln_put(w, v->plan_bytes, 8);
  kiln_put_bytes(w, v->plan, (size_t)v->plan_bytes);
}

void kiln_dynamic_write(const kiln_dynamic *d, void **out, size_t *out_bytes) {
  kiln_writer w = {0};
  const uint32_t head[] = {KILN_WIRE_DYNAMIC_MAGIC,
                           KILN_WIRE_ENDIAN_MARK,
                           KILN_DYNAMIC_VERSION,
                           d->n_dims,
                           d->n_inputs,
                           d->n_outputs,
                           d->n_variants};
  for (size_t i = 0; i < sizeof head / sizeof *head; i++) kiln_put_u32(&w, head[i]);
  for (uint32_t i = 0; i < d->n_dims; i++) {
    kiln_put_text(&w, d->dims[i].name);
    kiln_put_i64(&w, d->dims[i].least);
    kiln_put_i64(&w, d->dims[i].most);
    kiln_put_i64(&w, d->dims[i].step);
  }
  put_ports(&w, d->n_inputs, d->inputs);
  put_ports(&w, d->n_outputs, d->outputs);
  for (uint32_t i = 0; i < d->n_variants; i++) put_variant(&w, d->n_dims, &d->variants[i]);
  kiln_writer_end(&w, out, out_bytes);
}

// --- reading ---

static void get_formula(kiln_reader *r, uint32_t n_dims, kiln_formula *f) {
  int depth = 0;
  f->n = kiln_get_u32(r);
  if (!r->wrong && (f->n == 0 || f->n > KILN_FORMULA_MAX))
    kiln_reader_fail(r, "a formula must have 1 to 256 steps");
  f->steps = kiln_get_array(r, r->wrong ? 0 : f->n, 12, sizeof *f->steps);
  for (uint32_t i = 0; i < f->n && !r->wrong; i++) {
    kiln_formula_step *s = &f->steps[i];
    s->op = (kiln_formula_op)kiln_get_u32(r);
    s->value = (int64_t)kiln_get(r, 8);
    if (s->op >= KILN_N_FORMULA_OPS ||
        (s->op == KILN_FORMULA_DIM && (s->value < 0 || s->value >= (int64_t)n_dims)))
      kiln_reader_fail(r, "a formula must be of the dimensions");
    depth += s->op == KILN_FORMULA_CONST || s->op == KILN_FORMULA_DIM ? 1 : -1;
    if (depth < 1 || depth > KILN_FORMULA_DEPTH)
      kiln_reader_fail(r, "a formula must not pop from an empty stack");
  }
  if (depth != 1) kiln_reader_fail(r, "a formula must leave one value");
}

static kiln_dynamic_port *get_ports(kiln_reader *r, uint32_t n, uint32_t n_dims) {
  kiln_dynamic_port *ports = kiln_get_array(r, n, 14, sizeof *ports);
  for (uint32_t i = 0; i < n && !r->wrong; i++) {
    kiln_dynamic_port *p = &ports[i];
    p->name = kiln_get_text(r);
    p->type = kiln_type_find(kiln_get_text(r));
    const uint32_t rank = kiln_get_u32(r);
    if (!r->wrong && !p->type) kiln_reader_fail(r, "a dtype must be one of Kiln's");
    if (!r->wrong && rank > KILN_PORT_MAX_RANK) kiln_reader_fail(r, "a rank must be at most 8");
    for (uint32_t k = 0; k < rank && !r->wrong; k++) {
      p->rank = (int32_t)k + 1;
      get_formula(r, n_dims, &p->shape[k]);
    }
  }
  return ports;
}

static void get_variant(kiln_reader *r, uint32_t n_dims, kiln_variant *v) {
  for (uint32_t d = 0; d < n_dims; d++) {
    v->least[d] = (int64_t)kiln_get(r, 8);
    v->most[d] = (int64_t)kiln_get(r, 8);
  }
  const uint32_t n = kiln_get_u32(r);
  v->trims = kiln_get_array(r, n, 12, sizeof *v->trims);
  for (uint32_t i = 0; i < n && !r->wrong; i++) {
    v->n_trims = i + 1;
    v->trims[i].nest = kiln_get_u32(r);
    v->trims[i].axis = kiln_get_u32(r);
    if (!r->wrong && v->trims[i].axis > 2) kiln_reader_fail(r, "an axis of a grid must be 0 to 2");
    get_formula(r, n_dims, &v->trims[i].extent);
  }
  v->plan_bytes = kiln_get(r, 8);
  if (!r->wrong && v->plan_bytes > r->n - r->at)
    kiln_reader_fail(r, "a variant must end inside the table");
  if (r->wrong) return;
  v->plan = r->data + r->at;
  r->at += (size_t)v->plan_bytes;
}

static void get_dims(kiln_reader *r, kiln_dynamic *d) {
  d->dims = kiln_get_array(r, d->n_dims, 29, sizeof *d->dims);
  for (uint32_t i = 0; i < d->n_dims && !r->wrong; i++) {
    kiln_dim_range *x = &d->dims[i];
    x->name = kiln_get_text(r);
    x->least = (int64_t)kiln_get(r, 8);
    x->most = (int64_t)kiln_get(r, 8);
    x->step = (int64_t)kiln_get(r, 8);
    if (!r->wrong && (x->least < 0 || x->most < x->least || x->step < 1))
      kiln_reader_fail(r, "a range must not be empty");
  }
}

static void get_all(kiln_reader *r, kiln_dynamic *d) {
  if (kiln_get_u32(r) != KILN_WIRE_DYNAMIC_MAGIC) kiln_reader_fail(r, "it must begin with KDYN");
  if (kiln_get_u32(r) != KILN_WIRE_ENDIAN_MARK) kiln_reader_fail(r, "it must be little-endian");
  if (kiln_get_u32(r) != KILN_DYNAMIC_VERSION) kiln_reader_fail(r, "its version must be 2");
  d->n_dims = kiln_get_u32(r);
  d->n_inputs = kiln_get_u32(r);
  d->n_outputs = kiln_get_u32(r);
  d->n_variants = kiln_get_u32(r);
  if (!r->wrong && (d->n_dims == 0 || d->n_dims > KILN_MAX_DIMS || d->n_variants == 0))
    kiln_reader_fail(r, "there must be 1 to 8 dimensions and a variant");
  get_dims(r, d);
  d->inputs = get_ports(r, d->n_inputs, d->n_dims);
  d->outputs = get_ports(r, d->n_outputs, d->n_dims);
  d->variants = kiln_get_array(r, d->n_variants, 28, sizeof *d->variants);
  for (uint32_t i = 0; i < d->n_variants && !r->wrong; i++)
    get_variant(r, d->n_dims, &d->variants[i]);
  if (!r->wrong && r->at != r->n) kiln_reader_fail(r, "nothing must follow the variants");
}

kiln_status kiln_dynamic_read(const void *blob, size_t bytes, const char *place, kiln_diag *diag,
                              kiln_dynamic *out) {
  *out = (kiln_dynamic){.text = malloc(bytes ? bytes : 1)};
  if (!out->text) return kiln_diag_fail(diag, KILN_NO_MEMORY, place, "the plan: no memory left");
  memcpy(out->text, blob, bytes);
  kiln_reader r = {.data = out->text, .n = bytes};
  get_all(&r, out);
  if (r.wrong) kiln_dynamic_deinit(out);
  return kiln_reader_end(&r, "table of variants", place, diag);
}

static void free_ports(uint32_t n, kiln_dynamic_port *ports) {
  for (uint32_t i = 0; ports && i < n; i++)
    for (int32_t k = 0; k < ports[i].rank; k++) free(ports[i].shape[k].steps);
  free(ports);
}

void kiln_dynamic_deinit(kiln_dynamic *d) {
  free_ports(d->n_inputs, d->inputs);
  free_ports(d->n_outputs, d->outputs);
  for (uint32_t i = 0; d->variants && i < d->n_variants; i++) {
    for (uint32_t k = 0; k < d->variants[i].n_trims; k++)
      free(d->variants[i].trims[k].extent.steps);
    free(d->variants[i].trims);
  }
  free(d->variants);
  free(d->dims);
  free(d->text);
  *d = (kiln_dynamic){0};
}

// --- lookups ---

kiln_status kiln_dynamic_check(const kiln_dynamic *d, const int64_t *values, kiln_diag *diag) {
  kiln_status st = KILN_OK;
  for (uint32_t i = 0; i < d->n_dims; i++) {
    const kiln_dim_range *x = &d->dims[i];
    if (values[i] >= x->least && values[i] <= x->most && (values[i] - x->least) % x->step == 0)
      continue;
    st = kiln_diag_fail(diag, KILN_BAD_INPUT, "run",
                        "dimension %s: must be %" PRId64 " to %" PRId64 " in steps of %" PRId64
                        ", got %" PRId64,
                        x->name, x->least, x->most, x->step, values[i]);
  }
  return st;
}

void kiln_dynamic_shape(const kiln_dynamic_port *port, const int64_t *values, int64_t *out_shape) {
  for (int32_t k = 0; k < port->rank; k++)
    out_shape[k] = kiln_formula_value(&port->shape[k], values);
}

// Takes the value of each dimension from the first axis whose extent is just that dimension.
static kiln_status take_values(const kiln_dynamic *d, const DLTensor *const *inputs,
                               kiln_diag *diag, int64_t *out) {
  for (uint32_t x = 0; x < d->n_dims; x++) {
    bool known = false;
    for (uint32_t i = 0; i < d->n_inputs && !known; i++)
      for (int32_t k = 0; k < d->inputs[i].rank && !known; k++) {
        known = kiln_formula_is_dim(&d->inputs[i].shape[k], x);
        if (known) out[x] = inputs[i]->shape[k];
      }
    if (!known)
      return kiln_diag_fail(diag, KILN_BAD_INPUT, "run",
                            "dimension %s: must be the extent of an axis of an input",
                            d->dims[x].name);
  }
  return KILN_OK;
}

kiln_status kiln_dynamic_find_dims(const kiln_dynamic *d, size_t n_inputs,
                                   const DLTensor *const *inputs, kiln_diag *diag,
                                   int64_t *out_values) {
  if (n_inputs != d->n_inputs || (n_inputs && !inputs))
    return kiln_diag_fail(diag, KILN_BAD_INPUT, "run", "inputs: must be %" PRIu32 ", got %zu",
                          d->n_inputs, inputs ? n_inputs : 0);
  for (uint32_t i = 0; i < d->n_inputs; i++) {
    char place[320];
    const kiln_dynamic_port *p = &d->inputs[i];
    snprintf(place, sizeof place, "input %" PRIu32 " \"%s\"", i, p->name);
    if (!inputs[i])
      return kiln_diag_fail(diag, KILN_BAD_INPUT, place, "must be a tensor, got NULL");
    if (inputs[i]->ndim != p->rank || (p->rank > 0 && !inputs[i]->shape))
      return kiln_diag_fail(diag, KILN_BAD_INPUT, place, "shape: must have %d extents, got %d",
                            p->rank, inputs[i]->ndim);
  }
  kiln_status st = take_values(d, inputs, diag, out_values);
  return st == KILN_OK ? kiln_dynamic_check(d, out_values, diag) : st;
}

int kiln_dynamic_choose(const kiln_dynamic *d, const int64_t *values) {
  for (uint32_t i = 0; i < d->n_variants; i++) {
    bool takes = true;
    for (uint32_t x = 0; x < d->n_dims; x++)
      takes &= d->variants[i].least[x] <= values[x] && values[x] <= d->variants[i].most[x];
    if (takes) return (int)i;
  }
  return -1;
}

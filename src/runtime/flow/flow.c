// Flow: blobs and their checks (flow.h).
#include "runtime/flow/flow.h"
#include "runtime/blob.h"
#include "runtime/wire.h"

#include <stdlib.h>
#include <string.h>

// --- writing ---

bool kiln_flow_is(const void *blob, size_t bytes) {
  return bytes >= 4 && kiln_wire_get(blob, 4) == KILN_WIRE_FLOW_MAGIC;
}

static void put_value(kiln_writer *w, const kiln_flow_value *v) {
  kiln_put_text(w, v->name);
  kiln_put_text(w, v->type->text);
  kiln_put_u32(w, (uint32_t)v->rank);
  for (int32_t k = 0; k < v->rank; k++) kiln_put_i64(w, v->shape[k]);
  kiln_put(w, v->offset, 8);
}

static void put_step(kiln_writer *w, const kiln_flow_step *s) {
  const uint32_t words[] = {(uint32_t)s->op, s->part,      s->first_arg, s->n_args,  s->count,
                            s->condition,    s->iteration, s->made,      s->is_limit};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) kiln_put_u32(w, words[i]);
  kiln_put_i64(w, s->most);
  kiln_put_text(w, s->place ? s->place : "");
}

void kiln_flow_write(const kiln_flow *f, void **out, size_t *out_bytes) {
  kiln_writer w = {0};
  const uint32_t words[] = {KILN_WIRE_FLOW_MAGIC,
                            KILN_WIRE_ENDIAN_MARK,
                            KILN_FLOW_VERSION,
                            f->n_inputs,
                            f->n_outputs,
                            f->n_values,
                            f->n_parts,
                            f->n_steps,
                            f->n_args};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) kiln_put_u32(&w, words[i]);
  kiln_put(&w, f->arena_bytes, 8);
  for (uint32_t i = 0; i < f->n_values; i++) put_value(&w, &f->values[i]);
  for (uint32_t i = 0; i < f->n_outputs; i++) {
    kiln_put_u32(&w, f->shapes[i].part);
    kiln_put_u32(&w, f->shapes[i].output);
  }
  for (uint32_t i = 0; i < f->n_args; i++) {
    kiln_put_u32(&w, f->args[i].value);
    kiln_put_u32(&w, f->args[i].row);
    kiln_put_u32(&w, f->args[i].backwards);
  }
  for (uint32_t i = 0; i < f->n_steps; i++) put_step(&w, &f->steps[i]);
  for (uint32_t i = 0; i < f->n_parts; i++) {
    kiln_put(&w, f->parts[i].plan_bytes, 8);
    kiln_put_bytes(&w, f->parts[i].plan, (size_t)f->parts[i].plan_bytes);
  }
  kiln_writer_end(&w, out, out_bytes);
}

// --- reading ---

static void get_value(kiln_reader *r, const kiln_flow *f, kiln_flow_value *v, bool is_buffer) {
  v->name = kiln_get_text(r);
  v->type = kiln_type_find(kiln_get_text(r));
  const uint32_t rank = kiln_get_u32(r);
  if (!r->wrong && !v->type) kiln_reader_fail(r, "a dtype must be one of Kiln's");
  if (!r->wrong && rank > KILN_PORT_MAX_RANK) kiln_reader_fail(r, "a rank must be at most 8");
  if (r->wrong) return;
  v->rank = (int32_t)rank;
  for (uint32_t k = 0; k < rank; k++) v->shape[k] = (int64_t)kiln_get(r, 8);
  v->offset = kiln_get(r, 8);
  if (!r->wrong && !kiln_shape_bytes(v->rank, v->shape, kiln_type_bytes(v->type), &v->bytes))
    kiln_reader_fail(r, "the extents of a shape must be at least 0 and its bytes below 2^62");
  if (!r->wrong && is_buffer &&
      (v->offset % KILN_PLAN_ALIGN || v->offset > f->arena_bytes ||
       v->bytes > f->arena_bytes - v->offset))
    kiln_reader_fail(r, "a buffer must lie in the arena, aligned to 64 bytes");
}

static void get_args(kiln_reader *r, kiln_flow *f) {
  f->args = kiln_get_array(r, f->n_args, 12, sizeof *f->args);
  for (uint32_t i = 0; i < f->n_args && !r->wrong; i++) {
    f->args[i].value = kiln_get_u32(r);
    f->args[i].row = kiln_get_u32(r);
    f->args[i].backwards = kiln_get_u32(r);
    if (!r->wrong && (f->args[i].value >= f->n_values || f->args[i].row > f->n_steps))
      kiln_reader_fail(r, "an argument must be a value, or a row of one by a step");
  }
}

static void get_step(kiln_reader *r, const kiln_flow *f, kiln_flow_step *s) {
  const uint32_t op = kiln_get_u32(r);
  uint32_t *const words[] = {&s->part,      &s->first_arg, &s->n_args, &s->count,
                             &s->condition, &s->iteration, &s->made,   &s->is_limit};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) *words[i] = kiln_get_u32(r);
  s->most = (int64_t)kiln_get(r, 8);
  s->place = kiln_get_text(r);
  if (!r->wrong && (op >= KILN_N_FLOW_OPS || s->part > f->n_parts || s->first_arg > f->n_args ||
                    s->n_args > f->n_args - s->first_arg || s->most < 0))
    kiln_reader_fail(r, "a step must be of a known kind, with a part and arguments of this flow");
  if (!r->wrong) s->op = (kiln_flow_op)op;
}

static bool is_scalar(const kiln_flow *f, uint32_t value, const char *type) {
  return value == 0 ||
         (value <= f->n_values && strcmp(f->values[value - 1].type->text, type) == 0 &&
          f->values[value - 1].bytes == kiln_type_bytes(f->values[value - 1].type));
}

static bool is_written(const kiln_flow *f, uint32_t value) { return value >= f->n_inputs; }

// The states must be buffers of one size, so that their memory can be exchanged.
static bool loop_fits(const kiln_flow *f, const kiln_flow_step *s) {
  bool fits = s->n_args % 2 == 0 && is_scalar(f, s->count, "i64") &&
              is_scalar(f, s->condition, "bool") && is_scalar(f, s->iteration, "i64") &&
              is_scalar(f, s->made, "i64") && (!s->made || is_written(f, s->made - 1)) &&
              (!s->iteration || is_written(f, s->iteration - 1));
  for (uint32_t i = 0; i < s->n_args; i++) {
    const kiln_flow_arg *a = &f->args[s->first_arg + i];
    const kiln_flow_arg *b = &f->args[s->first_arg + (i ^ 1)];
    fits = fits && a->row == 0 && a->value >= f->n_inputs + f->n_outputs &&
           f->values[a->value].bytes == f->values[b->value].bytes;
  }
  return fits;
}

// Bytes of an argument inside of the open loops; false: its row is of another loop, or lies behind
// its value.
static bool bytes_of(const kiln_flow *f, const kiln_flow_arg *a, const uint32_t *open,
                     uint32_t depth, uint64_t *out) {
  const kiln_flow_value *v = &f->values[a->value];
  bool is_open = false;
  *out = v->bytes;
  if (a->row == 0) return true;
  for (uint32_t d = 0; d < depth; d++) is_open |= open[d] == a->row - 1;
  if (!is_open || v->rank < 1 || f->steps[a->row - 1].most > v->shape[0]) return false;
  *out = v->shape[0] ? v->bytes / (uint64_t)v->shape[0] : 0;
  return true;
}

// The steps around the current one: LOOP, IF, or ELSE.
typedef struct nesting {
  kiln_flow_op kinds[2 * KILN_FLOW_DEPTH];
  uint32_t depth;
} nesting;

// Whether |op| may follow.
static bool nest(nesting *n, kiln_flow_op op) {
  const kiln_flow_op top = n->depth ? n->kinds[n->depth - 1] : KILN_N_FLOW_OPS;
  switch (op) {
  case KILN_FLOW_LOOP:
  case KILN_FLOW_IF:
    if (n->depth == 2 * KILN_FLOW_DEPTH) return false;
    n->kinds[n->depth++] = op;
    return true;
  case KILN_FLOW_ELSE:
    if (top != KILN_FLOW_IF) return false;
    n->kinds[n->depth - 1] = op;
    return true;
  case KILN_FLOW_END: return top == KILN_FLOW_LOOP && n->depth-- > 0;
  case KILN_FLOW_ENDIF: return top == KILN_FLOW_ELSE && n->depth-- > 0;
  case KILN_FLOW_RUN:
  case KILN_FLOW_COPY:
  case KILN_N_FLOW_OPS: break;
  }
  return true;
}

// Walks over the steps once: loops must nest, and arguments of copies must be alike.
static void check_steps(kiln_reader *r, const kiln_flow *f) {
  uint32_t open[KILN_FLOW_DEPTH], depth = 0;
  nesting around = {0};
  bool fits = true;
  for (uint32_t i = 0; i < f->n_steps && fits; i++) {
    const kiln_flow_step *s = &f->steps[i];
    uint64_t bytes = 0, first = 0;
    for (uint32_t k = 0; k < s->n_args && fits && s->op != KILN_FLOW_LOOP; k++) {
      fits = bytes_of(f, &f->args[s->first_arg + k], open, depth, &bytes);
      if (k == 0) first = bytes;
    }
    if (s->op == KILN_FLOW_RUN) fits = fits && s->part < f->n_parts;
    if (s->op == KILN_FLOW_COPY)
      fits = fits && s->n_args == 2 && first == bytes &&
             is_written(f, f->args[s->first_arg + 1].value);
    if (s->op == KILN_FLOW_LOOP) {
      fits = fits && depth < KILN_FLOW_DEPTH && loop_fits(f, s);
      if (fits) open[depth++] = i;
    }
    fits = fits && nest(&around, s->op);
    if (s->op == KILN_FLOW_END) fits = fits && depth-- > 0;
    if (s->op == KILN_FLOW_IF) fits = fits && s->condition && is_scalar(f, s->condition, "bool");
  }
  if (!fits || around.depth != 0)
    kiln_reader_fail(r, "steps must nest, with arguments that fit one another");
}

static void get_parts(kiln_reader *r, kiln_flow *f) {
  f->parts = kiln_get_array(r, f->n_parts, 8, sizeof *f->parts);
  for (uint32_t i = 0; i < f->n_parts && !r->wrong; i++) {
    f->parts[i].plan_bytes = kiln_get(r, 8);
    if (!r->wrong && f->parts[i].plan_bytes > r->n - r->at)
      kiln_reader_fail(r, "a part must end inside the flow");
    if (r->wrong) return;
    f->parts[i].plan = r->data + r->at;
    r->at += (size_t)f->parts[i].plan_bytes;
  }
}

static void get_flow(kiln_reader *r, kiln_flow *f) {
  if (kiln_get_u32(r) != KILN_WIRE_FLOW_MAGIC) kiln_reader_fail(r, "it must begin with KFLO");
  if (kiln_get_u32(r) != KILN_WIRE_ENDIAN_MARK) kiln_reader_fail(r, "it must be little-endian");
  if (kiln_get_u32(r) != KILN_FLOW_VERSION) kiln_reader_fail(r, "its version must be 1");
  uint32_t *const counts[] = {&f->n_inputs, &f->n_outputs, &f->n_values,
                              &f->n_parts,  &f->n_steps,   &f->n_args};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) *counts[i] = kiln_get_u32(r);
  f->arena_bytes = kiln_get(r, 8);
  if (!r->wrong && (f->arena_bytes >> 46 || f->n_parts == 0 || f->n_inputs > f->n_values ||
                    f->n_outputs > f->n_values - f->n_inputs))
    kiln_reader_fail(r,
                     "there must be a part, all ports among the values, and an arena below 2^46");
  f->values = kiln_get_array(r, f->n_values, 18, sizeof *f->values);
  for (uint32_t i = 0; i < f->n_values && !r->wrong; i++)
    get_value(r, f, &f->values[i], i >= f->n_inputs + f->n_outputs);
  f->shapes = kiln_get_array(r, f->n_outputs, 8, sizeof *f->shapes);
  for (uint32_t i = 0; i < f->n_outputs && !r->wrong; i++) {
    f->shapes[i].part = kiln_get_u32(r);
    f->shapes[i].output = kiln_get_u32(r);
    if (!r->wrong && f->shapes[i].part > f->n_parts)
      kiln_reader_fail(r, "a shape must be of a part");
  }
  get_args(r, f);
  f->steps = kiln_get_array(r, f->n_steps, 49, sizeof *f->steps);
  for (uint32_t i = 0; i < f->n_steps && !r->wrong; i++) get_step(r, f, &f->steps[i]);
  if (!r->wrong) check_steps(r, f);
  get_parts(r, f);
  if (!r->wrong && r->at != r->n) kiln_reader_fail(r, "nothing must follow the parts");
}

kiln_status kiln_flow_read(const void *blob, size_t bytes, const char *place, kiln_diag *diag,
                           kiln_flow *out) {
  *out = (kiln_flow){.text = malloc(bytes ? bytes : 1)};
  if (!out->text) return kiln_diag_fail(diag, KILN_NO_MEMORY, place, "the plan: no memory left");
  if (bytes) memcpy(out->text, blob, bytes);
  kiln_reader r = {.data = out->text, .n = bytes};
  get_flow(&r, out);
  if (r.wrong) kiln_flow_deinit(out);
  return kiln_reader_end(&r, "flow", place, diag);
}

void kiln_flow_deinit(kiln_flow *f) {
  free(f->values);
  free(f->shapes);
  free(f->parts);
  free(f->steps);
  free(f->args);
  free(f->text);
  *f = (kiln_flow){0};
}

// --- parts ---

static bool port_fits(const kiln_flow *f, const kiln_flow_arg *a, const kiln_plan_port *port) {
  const kiln_flow_value *v = &f->values[a->value];
  const int32_t first = a->row ? 1 : 0;
  if (v->type != port->type || v->rank != port->rank + first || kiln_type_is_packed(v->type))
    return false;
  return memcmp(v->shape + first, port->shape, (size_t)port->rank * sizeof *port->shape) == 0;
}

bool kiln_flow_suits(const kiln_flow *f, const kiln_plan *const *plans) {
  bool fits = true;
  for (uint32_t i = 0; i < f->n_steps && fits; i++) {
    const kiln_flow_step *s = &f->steps[i];
    if (s->op != KILN_FLOW_RUN) continue;
    const kiln_plan *p = plans[s->part];
    const uint32_t n = kiln_plan_n_results(p);
    fits = p->kind == KILN_PLAN_CPU && s->n_args == p->n_inputs + n;
    for (uint32_t k = 0; k < s->n_args && fits; k++) {
      const kiln_flow_arg *a = &f->args[s->first_arg + k];
      fits = port_fits(f, a, k < p->n_inputs ? &p->inputs[k] : &p->outputs[k - p->n_inputs]) &&
             (k < p->n_inputs || is_written(f, a->value));
    }
  }
  for (uint32_t i = 0; i < f->n_parts && fits; i++)
    fits = plans[i]->arena_bytes <= f->arena_bytes && plans[i]->n_states == 0;
  for (uint32_t i = 0; i < f->n_outputs && fits; i++) {
    const kiln_flow_shape *x = &f->shapes[i];
    if (!x->part) continue;
    const kiln_plan *p = plans[x->part - 1];
    fits = x->output < kiln_plan_n_results(p) &&
           p->outputs[x->output].rank == f->values[f->n_inputs + i].rank;
  }
  return fits;
}

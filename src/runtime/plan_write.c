// Writes a plan as a blob (runtime/blob.h).
#include "runtime/plan.h"
#include "runtime/blob.h"
#include "runtime/wire.h"

#include <string.h>

static void put_ports(kiln_writer *w, uint32_t n, const kiln_plan_port *ports) {
  for (uint32_t i = 0; i < n; i++) {
    kiln_put_text(w, ports[i].name);
    kiln_put_text(w, ports[i].type->text);
    kiln_put_u32(w, (uint32_t)ports[i].rank);
    for (int32_t k = 0; k < ports[i].rank; k++) kiln_put_i64(w, ports[i].shape[k]);
    kiln_put(w, ports[i].initial, 8);
  }
}

static void put_arg(kiln_writer *w, const kiln_plan_arg *a) {
  kiln_put_u32(w, (uint32_t)a->where);
  kiln_put_u32(w, a->index);
  kiln_put(w, a->offset, 8);
  kiln_put(w, a->bytes, 8);
}

static void put_launch(kiln_writer *w, const kiln_plan_launch *l) {
  kiln_put_text(w, l->kernel);
  kiln_put_text(w, l->nodes);
  kiln_put_f64(w, l->flops);
  kiln_put_f64(w, l->bytes);
  kiln_put_u32(w, l->first_arg);
  kiln_put_u32(w, l->n_args);
  kiln_put_u32(w, l->first_nest);
  kiln_put_u32(w, l->n_nests);
  kiln_put_u32(w, l->call);
}

static void put_header(kiln_writer *w, const kiln_plan *p) {
  const uint32_t counts[] = {p->n_externs,   p->n_features, p->n_inputs,  p->n_outputs,
                             p->n_functions, p->n_launches, p->n_args,    p->n_nests,
                             p->n_copies,    p->n_images,   p->n_indices, p->n_calls,
                             p->n_shapes,    p->n_checks,   p->n_states};
  kiln_put_u32(w, KILN_WIRE_PLAN_MAGIC);
  kiln_put_u32(w, KILN_WIRE_ENDIAN_MARK);
  kiln_put_u32(w, KILN_PLAN_VERSION);
  kiln_put_u32(w, (uint32_t)p->kind);
  kiln_put_text(w, p->arch ? p->arch : "");
  kiln_put_text(w, p->compiler ? p->compiler : "");
  kiln_put_text(w, p->processor ? p->processor : "");
  kiln_put_u32(w, p->threads);
  kiln_put(w, p->code_bytes, 8);
  kiln_put(w, p->arena_bytes, 8);
  kiln_put(w, p->arena_bound_bytes, 8);
  kiln_put(w, p->weights_bytes, 8);
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) kiln_put_u32(w, counts[i]);
}

static void put_copies(kiln_writer *w, const kiln_plan *p) {
  for (uint32_t i = 0; i < p->n_copies; i++) {
    const kiln_plan_copy *c = &p->copies[i];
    put_arg(w, &c->from);
    kiln_put_u32(w, c->output);
    for (int32_t k = 0; k < p->outputs[c->output].rank; k++) kiln_put_i64(w, c->strides[k]);
  }
}

static void put_map(kiln_writer *w, const kiln_plan_map *m) {
  kiln_put_u32(w, m->index);
  kiln_put_u32(w, m->n_axes);
  kiln_put_u32(w, m->box_rows);
  kiln_put_u32(w, m->box_columns);
  kiln_put(w, m->columns, 8);
  for (uint32_t a = 0; a < m->n_axes; a++) {
    kiln_put(w, m->rows[a], 8);
    kiln_put(w, m->pitches[a], 8);
  }
  for (int a = 0; a < 2 && m->n_axes > 1; a++) {
    kiln_put_u32(w, m->steps[a]);
    kiln_put_u32(w, (uint32_t)m->lower[a]);
    kiln_put_u32(w, (uint32_t)m->upper[a]);
  }
}

static void put_nest(kiln_writer *w, const kiln_plan_nest *n, kiln_plan_kind kind) {
  kiln_put_u32(w, n->function);
  kiln_put_u32(w, n->threads);
  kiln_put_i64(w, n->extent);
  if (kind == KILN_PLAN_CPU) return;
  kiln_put_u32(w, n->image);
  for (int k = 0; k < 3; k++) kiln_put_u32(w, n->grid[k]);
  for (int k = 0; k < 3; k++) kiln_put_u32(w, n->block[k]);
  kiln_put_u32(w, n->shared_bytes);
  kiln_put_u32(w, n->first_index);
  kiln_put_u32(w, n->n_indices);
  kiln_put_u32(w, n->waits);
  kiln_put_u32(w, n->n_maps);
  for (uint32_t i = 0; i < n->n_maps; i++) { put_map(w, &n->maps[i]); }
}

static void put_checks(kiln_writer *w, const kiln_plan *p) {
  for (uint32_t i = 0; i < p->n_checks; i++) {
    const kiln_plan_check *c = &p->checks[i];
    kiln_put_text(w, c->place);
    kiln_put_text(w, c->index);
    kiln_put_u32(w, (uint32_t)c->axis);
    kiln_put_i64(w, c->least);
    kiln_put_i64(w, c->end);
  }
}

void kiln_plan_write(const kiln_plan *plan, void **out, size_t *out_bytes) {
  kiln_writer w = {0};
  put_header(&w, plan);
  for (uint32_t i = 0; i < plan->n_features; i++) kiln_put_text(&w, plan->features[i]);
  put_ports(&w, plan->n_inputs, plan->inputs);
  put_ports(&w, plan->n_outputs, plan->outputs);
  for (uint32_t i = 0; i < plan->n_shapes; i++) kiln_put_u32(&w, plan->shape_of[i]);
  put_checks(&w, plan);
  for (uint32_t i = 0; i < plan->n_states; i++) {
    kiln_put_u32(&w, plan->states[i].input);
    kiln_put_u32(&w, plan->states[i].output);
  }
  for (uint32_t i = 0; i < plan->n_functions; i++) kiln_put_text(&w, plan->functions[i]);
  for (uint32_t i = 0; i < plan->n_launches; i++) put_launch(&w, &plan->launches[i]);
  for (uint32_t i = 0; i < plan->n_args; i++) put_arg(&w, &plan->args[i]);
  for (uint32_t i = 0; i < plan->n_nests; i++) put_nest(&w, &plan->nests[i], plan->kind);
  put_copies(&w, plan);
  for (uint32_t i = 0; i < plan->n_images; i++) {
    kiln_put(&w, plan->images[i].offset, 8);
    kiln_put(&w, plan->images[i].bytes, 8);
  }
  for (uint32_t i = 0; i < plan->n_indices; i++) kiln_put_u32(&w, plan->indices[i]);
  for (uint32_t i = 0; i < plan->n_calls; i++) {
    kiln_put_text(&w, plan->calls[i].backend);
    kiln_put_text(&w, plan->calls[i].text);
    kiln_put_u32(&w, plan->calls[i].threads);
  }
  kiln_writer_end(&w, out, out_bytes);
}

// Writes a plan as a blob: fields one after the other, little-endian, strings as length, bytes,
// NUL.
#include "runtime/plan.h"
#include "runtime/wire.h"

#include <stdlib.h>
#include <string.h>

typedef struct writer {
  unsigned char *data;
  size_t n, cap;
  bool failed;
} writer;

static void put_bytes(writer *w, const void *bytes, size_t n) {
  if (w->n + n > w->cap && !w->failed) {
    size_t cap = (w->n + n) * 2 + 256;
    unsigned char *data = realloc(w->data, cap);
    if (data) {
      w->data = data;
      w->cap = cap;
    } else w->failed = true;
  }
  if (w->failed) return;
  if (n) memcpy(w->data + w->n, bytes, n);
  w->n += n;
}

static void put_u64(writer *w, uint64_t v, int n_bytes) {
  unsigned char bytes[8];
  kiln_wire_put(bytes, v, n_bytes);
  put_bytes(w, bytes, (size_t)n_bytes);
}

static void put_u32(writer *w, uint32_t v) { put_u64(w, v, 4); }
static void put_i64(writer *w, int64_t v) { put_u64(w, (uint64_t)v, 8); }

static void put_f64(writer *w, double v) {
  uint64_t bits;
  memcpy(&bits, &v, 8);
  put_u64(w, bits, 8);
}

static void put_text(writer *w, const char *text) {
  size_t n = strlen(text);
  put_u32(w, (uint32_t)n);
  put_bytes(w, text, n + 1);
}

static void put_ports(writer *w, uint32_t n, const kiln_plan_port *ports) {
  for (uint32_t i = 0; i < n; i++) {
    put_text(w, ports[i].name);
    put_text(w, ports[i].type->text);
    put_u32(w, (uint32_t)ports[i].rank);
    for (int32_t k = 0; k < ports[i].rank; k++) put_i64(w, ports[i].shape[k]);
  }
}

static void put_arg(writer *w, const kiln_plan_arg *a) {
  put_u32(w, (uint32_t)a->where);
  put_u32(w, a->index);
  put_u64(w, a->offset, 8);
  put_u64(w, a->bytes, 8);
}

static void put_launch(writer *w, const kiln_plan_launch *l) {
  put_text(w, l->kernel);
  put_text(w, l->nodes);
  put_f64(w, l->flops);
  put_f64(w, l->bytes);
  put_u32(w, l->first_arg);
  put_u32(w, l->n_args);
  put_u32(w, l->first_nest);
  put_u32(w, l->n_nests);
  put_u32(w, l->call);
}

static void put_header(writer *w, const kiln_plan *p) {
  const uint32_t counts[] = {p->n_externs,   p->n_features, p->n_inputs,  p->n_outputs,
                             p->n_functions, p->n_launches, p->n_args,    p->n_nests,
                             p->n_copies,    p->n_images,   p->n_indices, p->n_calls,
                             p->n_shapes};
  put_u32(w, KILN_WIRE_PLAN_MAGIC);
  put_u32(w, KILN_WIRE_ENDIAN_MARK);
  put_u32(w, KILN_PLAN_VERSION);
  put_u32(w, (uint32_t)p->kind);
  put_text(w, p->arch ? p->arch : "");
  put_u64(w, p->code_bytes, 8);
  put_u64(w, p->arena_bytes, 8);
  put_u64(w, p->arena_bound_bytes, 8);
  put_u64(w, p->weights_bytes, 8);
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) put_u32(w, counts[i]);
}

static void put_copies(writer *w, const kiln_plan *p) {
  for (uint32_t i = 0; i < p->n_copies; i++) {
    const kiln_plan_copy *c = &p->copies[i];
    put_arg(w, &c->from);
    put_u32(w, c->output);
    for (int32_t k = 0; k < p->outputs[c->output].rank; k++) put_i64(w, c->strides[k]);
  }
}

static void put_nest(writer *w, const kiln_plan_nest *n, kiln_plan_kind kind) {
  put_u32(w, n->function);
  put_u32(w, n->threads);
  put_i64(w, n->extent);
  if (kind == KILN_PLAN_CPU) return;
  put_u32(w, n->image);
  for (int k = 0; k < 3; k++) put_u32(w, n->grid[k]);
  for (int k = 0; k < 3; k++) put_u32(w, n->block[k]);
  put_u32(w, n->shared_bytes);
  put_u32(w, n->first_index);
  put_u32(w, n->n_indices);
  put_u32(w, n->waits);
  put_u32(w, n->n_maps);
  for (uint32_t i = 0; i < n->n_maps; i++) {
    put_u32(w, n->maps[i].index);
    put_u32(w, n->maps[i].box_rows);
    put_u32(w, n->maps[i].box_columns);
    put_u64(w, n->maps[i].rows, 8);
    put_u64(w, n->maps[i].columns, 8);
    put_u64(w, n->maps[i].pitch, 8);
  }
}

void kiln_plan_write(const kiln_plan *plan, void **out, size_t *out_bytes) {
  writer w = {0};
  put_header(&w, plan);
  for (uint32_t i = 0; i < plan->n_features; i++) put_text(&w, plan->features[i]);
  put_ports(&w, plan->n_inputs, plan->inputs);
  put_ports(&w, plan->n_outputs, plan->outputs);
  for (uint32_t i = 0; i < plan->n_shapes; i++) put_u32(&w, plan->shape_of[i]);
  for (uint32_t i = 0; i < plan->n_functions; i++) put_text(&w, plan->functions[i]);
  for (uint32_t i = 0; i < plan->n_launches; i++) put_launch(&w, &plan->launches[i]);
  for (uint32_t i = 0; i < plan->n_args; i++) put_arg(&w, &plan->args[i]);
  for (uint32_t i = 0; i < plan->n_nests; i++) put_nest(&w, &plan->nests[i], plan->kind);
  put_copies(&w, plan);
  for (uint32_t i = 0; i < plan->n_images; i++) {
    put_u64(&w, plan->images[i].offset, 8);
    put_u64(&w, plan->images[i].bytes, 8);
  }
  for (uint32_t i = 0; i < plan->n_indices; i++) put_u32(&w, plan->indices[i]);
  for (uint32_t i = 0; i < plan->n_calls; i++) {
    put_text(&w, plan->calls[i].backend);
    put_text(&w, plan->calls[i].text);
    put_u32(&w, plan->calls[i].threads);
  }
  if (w.failed) {
    free(w.data);
    w = (writer){0};
  }
  *out = w.data;
  *out_bytes = w.n;
}

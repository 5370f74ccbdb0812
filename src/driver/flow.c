// Compiling a model in parts (flow.h): all share the code file and, in a file, the weights.
#include "driver/flow.h"
#include "driver/pipeline.h"
#include "model/flow_text.h"
#include "model/parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct compiling {
  kiln_model *model;
  kiln_flow flow;
  kiln_build *builds;    // [n_parts]
  kiln_model *models;    // of the builds
  kiln_module **modules; // in memory
  const char *out_path;  // NULL: in memory
  kiln_output out;
  void *blob;
  size_t blob_bytes;
} compiling;

// Weights of earlier parts are there for the later ones.
static void share_weights(kiln_build *b, const kiln_build *before) {
  memcpy(&b->product.weights, &before->product.weights, sizeof b->product.weights);
  b->product.weights.cap = b->product.weights.n; // appending must reallocate
  b->product.n_shared_weights = b->product.weights.n;
  b->product.plan.weights_bytes = before->product.plan.weights_bytes;
}

static kiln_status build_part(kiln_ctx *cx, compiling *c, int i) {
  kiln_build *b = &c->builds[i];
  kiln_model *m = &c->models[i];
  *m = kiln_parts_model(cx, c->model, i);
  *b = (kiln_build){.request.model = m,
                    .request.may_be_late = true,
                    .request.may_borrow = !c->out_path,
                    .request.is_part = true,
                    .request.part = i};
  if (c->out_path && i > 0) share_weights(b, &c->builds[i - 1]);
  kiln_model_progress(c->model, "part", (size_t)i, c->flow.n_parts);
  KILN_TRY(m->compiler->run(cx, b));
  memcpy(&c->model->times, &m->times, sizeof m->times);
  c->model->memory.weight_bytes += m->memory.weight_bytes;
  c->model->memory.model_weight_bytes += m->memory.model_weight_bytes;
  if (c->out_path) return kiln_build_write_plan(cx, b);
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_MODULE, KILN_PHASE_MODULE));
  c->modules[i] = b->product.module;
  return KILN_OK;
}

// Puts the buffers behind the memory that the parts share.
static void place_buffers(compiling *c) {
  kiln_flow *f = &c->flow;
  uint64_t first = 0, end = 0;
  for (uint32_t i = 0; i < f->n_parts; i++)
    if (c->builds[i].product.plan.arena_bytes > first)
      first = c->builds[i].product.plan.arena_bytes;
  first = (first + KILN_PLAN_ALIGN - 1) / KILN_PLAN_ALIGN * KILN_PLAN_ALIGN;
  end = first;
  for (uint32_t i = f->n_inputs + f->n_outputs; i < f->n_values; i++) {
    f->values[i].offset += first;
    if (f->values[i].offset + f->values[i].bytes > end)
      end = f->values[i].offset + f->values[i].bytes;
  }
  f->arena_bytes = end;
  c->model->memory.arena_bytes = c->model->memory.arena_lower_bound_bytes = end;
}

static void copy_flow(kiln_ctx *cx, compiling *c) {
  c->flow = c->model->parted->flow;
  c->flow.values = KILN_NEW_ARRAY(&cx->perm, kiln_flow_value, c->flow.n_values);
  memcpy(c->flow.values, c->model->parted->flow.values, c->flow.n_values * sizeof *c->flow.values);
}

static void dump_steps(kiln_ctx *cx, const compiling *c) {
  kiln_text text;
  if (!kiln_model_dumps(c->model, "plan")) return;
  kiln_text_init(&text, &cx->scratch);
  kiln_flow_print(&c->flow, &text);
  kiln_model_dump(c->model, "plan", &text);
}

static kiln_status build_parts(kiln_ctx *cx, compiling *c) {
  copy_flow(cx, c);
  c->model->times.n = c->model->n_load_times;
  c->model->memory = (kiln_memory){0};
  for (uint32_t i = 0; i < c->flow.n_parts; i++) KILN_TRY(build_part(cx, c, (int)i));
  place_buffers(c);
  dump_steps(cx, c);
  return KILN_OK;
}

kiln_status kiln_flow_each(kiln_ctx *cx, kiln_model *m,
                           kiln_status (*make)(kiln_ctx *cx, kiln_build *b)) {
  compiling c = {.model = m};
  copy_flow(cx, &c);
  c.builds = KILN_NEW_ARRAY(&cx->perm, kiln_build, (int)c.flow.n_parts);
  kiln_status st = KILN_OK;
  for (uint32_t i = 0; i < c.flow.n_parts && st == KILN_OK; i++) {
    kiln_model *part = KILN_NEW(&cx->perm, kiln_model);
    *part = kiln_parts_model(cx, m, (int)i);
    c.builds[i].request = (kiln_build_request){.model = part, .is_part = true, .part = (int)i};
    st = make(cx, &c.builds[i]);
    memcpy(&m->times, &part->times, sizeof m->times);
  }
  if (st == KILN_OK) {
    place_buffers(&c);
    dump_steps(cx, &c);
  }
  for (uint32_t i = 0; i < c.flow.n_parts; i++) kiln_build_deinit(&c.builds[i]);
  return st;
}

static kiln_status link_all(kiln_ctx *cx, compiling *c) {
  KILN_VEC(kiln_object) objects = {0};
  for (uint32_t i = 0; i < c->flow.n_parts; i++)
    for (int k = 0; k < c->builds[i].product.n_objects; k++)
      KILN_VEC_PUSH(&cx->perm, &objects, c->builds[i].product.objects[k]);
  return kiln_output_link(&c->out, objects.n, objects.data, cx->diag);
}

static kiln_status make_file(kiln_ctx *cx, void *argument) {
  compiling *c = argument;
  KILN_TRY(kiln_model_may_write(c->model, c->out_path, cx->diag));
  KILN_TRY(kiln_output_open(&c->out, c->out_path, cx->diag));
  KILN_TRY(build_parts(cx, c));
  KILN_TRY(link_all(cx, c));
  kiln_build *last = &c->builds[c->flow.n_parts - 1];
  KILN_TRY(kiln_output_weights(&c->out, last->product.plan.weights_bytes, cx->diag));
  KILN_TRY(kiln_weights_fill(cx, last, NULL, &c->out));
  for (uint32_t i = 0; i < c->flow.n_parts; i++) {
    c->flow.parts[i].plan = c->builds[i].product.plan_blob;
    c->flow.parts[i].plan_bytes = c->builds[i].product.plan_bytes;
  }
  kiln_flow_write(&c->flow, &c->blob, &c->blob_bytes);
  if (!c->blob) return KILN_FAIL(cx->diag, KILN_NO_MEMORY, c->model->path, "parts: no memory left");
  return kiln_output_finish(&c->out, c->blob, c->blob_bytes, cx->diag);
}

static kiln_status make_here(kiln_ctx *cx, void *argument) { return build_parts(cx, argument); }

static kiln_status compile(compiling *c, kiln_diag *diag, kiln_module **out_module) {
  const uint32_t n = c->model->parted->flow.n_parts;
  c->builds = calloc(n, sizeof *c->builds);
  c->models = calloc(n, sizeof *c->models);
  c->modules = calloc(n, sizeof *c->modules);
  kiln_status st = c->builds && c->models && c->modules
                       ? kiln_model_enter(c->model, diag, out_module ? make_here : make_file, c)
                       : KILN_FAIL(diag, KILN_NO_MEMORY, c->model->path, "parts: no memory left");
  if (st == KILN_OK && out_module)
    st = kiln_module_create_flow(&c->flow, c->modules, diag, out_module);
  kiln_output_discard(&c->out);
  for (uint32_t i = 0; c->builds && i < n; i++) kiln_build_deinit(&c->builds[i]);
  for (uint32_t i = 0; c->modules && i < n; i++) kiln_module_release(c->modules[i]);
  free(c->builds);
  free(c->models);
  free(c->modules);
  free(c->blob);
  return st;
}

kiln_status kiln_flow_compile_to(kiln_model *m, const char *out_path, kiln_diag *diag) {
  compiling c = {.model = m, .out_path = out_path, .out = {.file.fd = -1}};
  return compile(&c, diag, NULL);
}

kiln_status kiln_flow_compile(kiln_model *m, kiln_diag *diag, kiln_module **out_module) {
  compiling c = {.model = m, .out = {.file.fd = -1}};
  return compile(&c, diag, out_module);
}

// Shape buckets (optimization profiles) of a module for ranges of dimensions: every bucket is
// compiled as a model of its own; all share the code file and the weights.
#include "dynamic/buckets.h"
#include "dynamic/bucket_at.h"
#include "dynamic/ranges.h"
#include "module/compiler.h"

#include <stdlib.h>
#include <string.h>

typedef struct compiling {
  kiln_model *model;
  kiln_build *builds; // [n_buckets]
  kiln_model *models; // of the builds
  kiln_build *latest; // the last build done, which has the weights of all; NULL: none yet
  int n_done;
  uint64_t code_bytes; // of a device's images so far
  const char *out_path;
  kiln_output out;
  void *blob; // serialized table of variants
  size_t blob_bytes;
} compiling;

// The images of a device's buckets lie one behind the other in the module's code.
static void place_images(compiling *c, kiln_build *b) {
  kiln_plan *p = &b->product.plan;
  for (uint32_t i = 0; i < p->n_images; i++) p->images[i].offset += c->code_bytes;
  p->code_bytes += c->code_bytes;
  c->code_bytes = p->code_bytes;
}

void kiln_bucket_begin(const kiln_model *whole, int bucket, kiln_model *out_model, kiln_build *b) {
  const kiln_bucket *part = &whole->ranges->buckets[bucket];
  *out_model = *whole;
  out_model->ranges = NULL;
  out_model->prog = part->prog;
  out_model->halved = NULL;
  out_model->inputs = part->inputs;
  out_model->outputs = part->outputs;
  b->request.model = out_model;
  b->request.ranges = whole->ranges;
  b->request.part = bucket;
}

static kiln_status build_part(kiln_ctx *cx, compiling *c, int i) {
  kiln_build *b = &c->builds[i];
  kiln_model *m = &c->models[i];
  *b = (kiln_build){.request.may_be_late = true};
  kiln_bucket_begin(c->model, i, m, b);
  if (c->latest) {
    memcpy(&b->product.weights, &c->latest->product.weights, sizeof b->product.weights);
    // Appending must reallocate: the last build owns the array.
    b->product.weights.cap = b->product.weights.n;
    b->product.n_shared_weights = b->product.weights.n;
    b->product.plan.weights_bytes = c->latest->product.plan.weights_bytes;
  }
  c->latest = b;
  kiln_model_progress(c->model, "part", (size_t)c->n_done++, (size_t)c->model->ranges->n_buckets);
  const kiln_status st = m->compiler->run(cx, b);
  memcpy(&c->model->times, &m->times, sizeof m->times);
  if (st != KILN_OK) return st;
  place_images(c, b);
  c->model->memory.weight_bytes += m->memory.weight_bytes;
  c->model->memory.model_weight_bytes += m->memory.model_weight_bytes;
  if (m->memory.arena_bytes > c->model->memory.arena_bytes) {
    c->model->memory.arena_bytes = m->memory.arena_bytes;
    c->model->memory.arena_lower_bound_bytes = m->memory.arena_lower_bound_bytes;
  }
  return kiln_build_write_plan(cx, b);
}

// Order of building: the first bucket chooses layouts of weights freely, later ones reuse them if
// that costs little (tile/panels.h); so a bucket in the middle, the most typical one, is first.
// Then from the largest extents down: a constant for smaller extents is a prefix of that for larger
// ones.
static kiln_status build_parts(kiln_ctx *cx, compiling *c) {
  const int n = c->model->ranges->n_buckets, middle = n / 2;
  KILN_TRY(build_part(cx, c, middle));
  for (int i = n - 1; i >= 0; i--)
    if (i != middle) KILN_TRY(build_part(cx, c, i));
  kiln_model_progress(c->model, "part", (size_t)n, (size_t)n);
  return KILN_OK;
}

// --- the table ---

static kiln_formula_op op_of(kiln_expr_kind k) {
  static const struct {
    kiln_expr_kind kind;
    kiln_formula_op op;
  } ops[] = {{KILN_EXPR_ADD, KILN_FORMULA_ADD},   {KILN_EXPR_SUB, KILN_FORMULA_SUB},
             {KILN_EXPR_MUL, KILN_FORMULA_MUL},   {KILN_EXPR_DIV, KILN_FORMULA_DIV},
             {KILN_EXPR_MOD, KILN_FORMULA_MOD},   {KILN_EXPR_MIN, KILN_FORMULA_MIN},
             {KILN_EXPR_MAX, KILN_FORMULA_MAX_OF}};
  for (size_t i = 0; i < KILN_LEN(ops); i++)
    if (ops[i].kind == k) return ops[i].op;
  return KILN_N_FORMULA_OPS;
}

typedef struct steps {
  kiln_ctx *cx;
  const kiln_model_ranges *ranges;
  KILN_VEC(kiln_formula_step) list;
  bool wrong;
} steps;

static void add_steps(steps *s, const kiln_expr *e) {
  kiln_formula_step step = {.op = op_of(e->kind)};
  if (kiln_expr_is_int(e, &step.value)) step.op = KILN_FORMULA_CONST;
  for (int d = 0; e->kind == KILN_EXPR_VAR && d < s->ranges->n_dims; d++)
    if (s->ranges->symbols[d] == e->u.sym) step = (kiln_formula_step){KILN_FORMULA_DIM, d};
  s->wrong |= step.op == KILN_N_FORMULA_OPS || s->list.n >= KILN_FORMULA_MAX;
  if (s->wrong) return;
  for (int i = 0; i < e->n_args; i++) add_steps(s, e->args[i]);
  KILN_VEC_PUSH(&s->cx->perm, &s->list, step);
}

static kiln_status make_formula(kiln_ctx *cx, const kiln_model_ranges *r, const kiln_expr *e,
                                kiln_formula *out) {
  steps s = {.cx = cx, .ranges = r};
  add_steps(&s, e);
  if (s.wrong)
    return KILN_FAIL(cx->diag, KILN_INTERNAL, "ranges",
                     "formula: must be integer arithmetic of the dimensions");
  *out = (kiln_formula){(uint32_t)s.list.n, s.list.data};
  return KILN_OK;
}

static kiln_status make_ports(kiln_ctx *cx, const kiln_model_ranges *r, const kiln_interface *face,
                              const kiln_expr ***shapes, kiln_dynamic_port **out) {
  *out = KILN_NEW_ARRAY(&cx->perm, kiln_dynamic_port, face->n);
  for (int i = 0; i < face->n; i++) {
    const kiln_port *p = &face->ports[i];
    (*out)[i] =
        (kiln_dynamic_port){.name = p->name, .type = kiln_type_find(p->dtype), .rank = p->rank};
    for (int k = 0; k < p->rank; k++)
      KILN_TRY(make_formula(cx, r, shapes[i][k], &(*out)[i].shape[k]));
  }
  return KILN_OK;
}

// Adds the tightened bounds of every launch of a kernel.
static kiln_status make_trims(kiln_ctx *cx, const kiln_build *b, kiln_variant *v) {
  KILN_VEC(kiln_trim) trims = {0};
  for (int i = 0; i < b->choices.tightened.n; i++) {
    const kiln_tightened_bound *t = &b->choices.tightened.data[i];
    kiln_trim trim = {.axis = (uint32_t)t->axis};
    KILN_TRY(make_formula(cx, b->request.ranges, t->extent, &trim.extent));
    for (int l = 0; l < b->choices.kernels.launches.n; l++) {
      if (b->choices.kernels.launches.data[l].kernel != t->kernel) continue;
      trim.nest = b->product.plan.launches[l].first_nest + (uint32_t)t->nest;
      KILN_VEC_PUSH(&cx->perm, &trims, trim);
    }
  }
  v->n_trims = (uint32_t)trims.n;
  v->trims = trims.data;
  return KILN_OK;
}

static kiln_status write_table(kiln_ctx *cx, compiling *c) {
  const kiln_model_ranges *r = c->model->ranges;
  kiln_dynamic d = {.n_dims = (uint32_t)r->n_dims,
                    .n_inputs = (uint32_t)c->model->inputs.n,
                    .n_outputs = (uint32_t)c->model->outputs.n,
                    .n_variants = (uint32_t)r->n_buckets,
                    .dims = c->model->ranges->dims};
  KILN_TRY(make_ports(cx, r, &c->model->inputs, r->in_shapes, &d.inputs));
  KILN_TRY(make_ports(cx, r, &c->model->outputs, r->out_shapes, &d.outputs));
  d.variants = KILN_NEW_ARRAY(&cx->perm, kiln_variant, r->n_buckets);
  for (int i = 0; i < r->n_buckets; i++) {
    kiln_variant *v = &d.variants[i];
    memcpy(v->least, r->buckets[i].least, sizeof v->least);
    memcpy(v->most, r->buckets[i].most, sizeof v->most);
    v->plan = c->builds[i].product.plan_blob;
    v->plan_bytes = c->builds[i].product.plan_bytes;
    KILN_TRY(make_trims(cx, &c->builds[i], v));
  }
  kiln_dynamic_write(&d, &c->blob, &c->blob_bytes);
  if (c->blob) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_NO_MEMORY, c->model->path, "variants: no memory left");
}

// --- the module ---

// Writes the images in the order in which their buckets were built.
static kiln_status write_images(kiln_ctx *cx, compiling *c) {
  char *code = kiln_arena_zalloc(&cx->perm, c->code_bytes + 1);
  for (int i = 0; i < c->model->ranges->n_buckets; i++) {
    const kiln_build_product *of = &c->builds[i].product;
    const uint64_t first = of->plan.n_images ? of->plan.images[0].offset : 0;
    memcpy(code + first, of->code, of->plan.n_images ? of->plan.code_bytes - first : 0);
  }
  return kiln_output_code(&c->out, code, c->code_bytes, cx->diag);
}

static kiln_status link_all(kiln_ctx *cx, compiling *c) {
  KILN_VEC(kiln_object) objects = {0};
  const double start = kiln_now_ms();
  if (c->builds[0].request.machine.target->has_images) return write_images(cx, c);
  for (int i = 0; i < c->model->ranges->n_buckets; i++)
    for (int k = 0; k < c->builds[i].product.n_objects; k++)
      KILN_VEC_PUSH(&cx->perm, &objects, c->builds[i].product.objects[k]);
  KILN_TRY(kiln_output_link(&c->out, objects.n, objects.data, cx->diag));
  kiln_model_time(c->model, "link", start);
  return KILN_OK;
}

static kiln_status compile_parts(kiln_ctx *cx, void *argument) {
  compiling *c = argument;
  const kiln_target *target = kiln_target_find(c->model->options.target);
  if (!target->has_ranges)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, c->model->path,
                     "dimension %s: must have one value for %s, got a range",
                     c->model->ranges->dims[0].name, target->title);
  if (c->model->has_schedule || c->model->options.orchestration)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, c->model->path,
                     "dimension %s: must have one value where a schedule or an orchestration is "
                     "given, got a range",
                     c->model->ranges->dims[0].name);
  KILN_TRY(kiln_model_may_write(c->model, c->out_path, cx->diag));
  KILN_TRY(kiln_output_open(&c->out, c->out_path, cx->diag));
  c->model->times.n = c->model->n_load_times;
  c->model->memory = (kiln_memory){0};
  KILN_TRY(build_parts(cx, c));
  KILN_TRY(link_all(cx, c));
  const double start = kiln_now_ms();
  KILN_TRY(kiln_output_weights(&c->out, c->latest->product.plan.weights_bytes, cx->diag));
  KILN_TRY(kiln_weights_fill(cx, c->latest, NULL, &c->out));
  KILN_TRY(write_table(cx, c));
  KILN_TRY(kiln_output_finish(&c->out, c->blob, c->blob_bytes, cx->diag));
  kiln_model_time(c->model, "weights", start);
  return KILN_OK;
}

kiln_status kiln_buckets_compile_to(kiln_model *m, const char *out_path, kiln_diag *diag) {
  const int n = m->ranges->n_buckets;
  compiling c = {.model = m, .out_path = out_path, .out = {.file.fd = -1}};
  c.builds = calloc((size_t)n, sizeof *c.builds);
  c.models = calloc((size_t)n, sizeof *c.models);
  kiln_status st = c.builds && c.models
                       ? kiln_model_enter(m, diag, compile_parts, &c)
                       : KILN_FAIL(diag, KILN_NO_MEMORY, m->path, "parts: no memory left");
  kiln_output_discard(&c.out);
  for (int i = 0; c.builds && i < n; i++) kiln_build_deinit(&c.builds[i]);
  free(c.builds);
  free(c.models);
  free(c.blob);
  return st;
}

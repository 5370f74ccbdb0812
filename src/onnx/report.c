// The report of a model: facts are gathered once, then written as text or as JSON.
#include "onnx/report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct count {
  kiln_symbol domain, op;
  int64_t n;
} count;

typedef struct facts {
  int64_t n_nodes, n_tensors, n_elems, n_bytes;
  KILN_VEC(count) counts;     // most frequent first
  KILN_VEC(kiln_symbol) dims; // symbolic extents of inputs, then of outputs
} facts;

static int more_frequent(const void *a, const void *b) {
  const count *x = a, *y = b;
  if (x->n != y->n) return x->n < y->n ? 1 : -1;
  return (x->op > y->op) - (x->op < y->op); // ties in order of first use
}

typedef struct dim_visit {
  kiln_ctx *cx;
  facts *facts;
  kiln_map seen;
} dim_visit;

static void add_dim(const kiln_expr *e, void *argument) {
  dim_visit *visit = argument;
  if (e->kind != KILN_EXPR_VAR || kiln_map_find(&visit->seen, e->u.sym) != NULL) return;
  kiln_map_put(&visit->seen, e->u.sym, 1);
  KILN_VEC_PUSH(&visit->cx->scratch, &visit->facts->dims, e->u.sym);
}

static void gather_dims(kiln_ctx *cx, const kiln_graph *g, facts *out) {
  dim_visit visit = {.cx = cx, .facts = out};
  kiln_map_init(&visit.seen, &cx->scratch);
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < (k == 0 ? g->n_inputs : g->n_outputs); i++) {
      const kiln_value *v = g->values[k == 0 ? g->inputs[i] : g->outputs[i]];
      for (int axis = 0; v->has_shape && axis < v->rank; axis++)
        kiln_expr_visit(cx, v->shape[axis], add_dim, &visit);
    }
}

static void count_constants(const kiln_graph *g, kiln_map *seen, facts *out) {
  for (int i = 0; i < g->n_values; i++) {
    const kiln_value *v = g->values[i];
    const kiln_const *c =
        v->constant ? v->constant : v->initial; // a captured value's is the outer graph's
    if (c == NULL || kiln_map_find(seen, (uintptr_t)c) != NULL) continue;
    kiln_map_put(seen, (uintptr_t)c, 1);
    out->n_tensors++;
    out->n_bytes += (int64_t)c->bytes;
    out->n_elems += (int64_t)c->bytes / kiln_dtype_bytes(c->dtype);
  }
}

static void count_nodes(kiln_ctx *cx, const kiln_graph *g, kiln_map *rows, facts *out) {
  out->n_nodes += g->n_nodes;
  for (int i = 0; i < g->n_nodes; i++) {
    const kiln_node *n = g->nodes[i];
    const uint64_t key = (uint64_t)n->domain << 32 | n->op;
    const uint64_t *row = kiln_map_find(rows, key);
    if (row != NULL) {
      out->counts.data[*row].n++;
      continue;
    }
    kiln_map_put(rows, key, (uint64_t)out->counts.n);
    KILN_VEC_PUSH(&cx->scratch, &out->counts, (count){n->domain, n->op, 1});
  }
}

static facts gather(kiln_ctx *cx, const kiln_graph *g) {
  facts out = {0};
  kiln_map constants, rows;
  KILN_VEC(const kiln_graph *) graphs = {0};
  kiln_map_init(&constants, &cx->scratch);
  kiln_map_init(&rows, &cx->scratch);
  KILN_VEC_PUSH(&cx->scratch, &graphs, g);
  for (int k = 0; k < graphs.n; k++) { // sub-graphs are appended while iterating
    const kiln_graph *each = graphs.data[k];
    count_constants(each, &constants, &out);
    count_nodes(cx, each, &rows, &out);
    for (int i = 0; i < each->n_nodes; i++)
      for (int a = 0; a < each->nodes[i]->n_attrs; a++)
        if (each->nodes[i]->attrs[a].kind == KILN_ATTR_GRAPH)
          KILN_VEC_PUSH(&cx->scratch, &graphs, each->nodes[i]->attrs[a].u.graph);
  }
  if (out.counts.n > 1) qsort(out.counts.data, (size_t)out.counts.n, sizeof(count), more_frequent);
  gather_dims(cx, g, &out);
  return out;
}

static const char *domain_text(const kiln_ctx *cx, kiln_symbol domain) {
  return domain == 0 ? "ai.onnx" : kiln_symbol_text(cx, domain);
}

static const char *type_text(const kiln_value *v) { // NULL: not declared
  return v->list ? v->list : v->has_type ? kiln_dtype_text(v->dtype) : NULL;
}

enum { N_SHOWN = 4 }; // elements of a default value

static double integer_at(const unsigned char *at, int bytes, bool is_signed) {
  uint64_t bits = 0;
  memcpy(&bits, at, (size_t)bytes); // little-endian host
  const int rest = 64 - 8 * bytes;
  return is_signed ? (double)((int64_t)(bits << rest) >> rest) : (double)bits;
}

static double element_at(const kiln_const *c, int64_t i) {
  const int bytes = kiln_dtype_bytes(c->dtype);
  const unsigned char *at = (const unsigned char *)c->data + i * bytes;
  float single = 0;
  double wide = 0;
  uint16_t half = 0;
  if (kiln_encoding_format_of(c->dtype)) return kiln_encoding_value(c->dtype, *at);
  if (c->dtype == KILN_F32) return memcpy(&single, at, sizeof single), single;
  if (c->dtype == KILN_F64) return memcpy(&wide, at, sizeof wide), wide;
  if (!kiln_dtype_is_half(c->dtype))
    return integer_at(at, bytes, kiln_dtype_kind(c->dtype) == KILN_KIND_INT);
  memcpy(&half, at, sizeof half);
  return c->dtype == KILN_F16 ? kiln_f16_to_f32(half) : kiln_bf16_to_f32(half);
}

// The default of an optional input.
static void write_default(const kiln_const *c, kiln_text *out) {
  const int64_t n = (int64_t)(c->bytes / (size_t)kiln_dtype_bytes(c->dtype));
  kiln_text_add(out, " optional, default");
  for (int64_t i = 0; i < n && i < N_SHOWN; i++) kiln_text_printf(out, " %.6g", element_at(c, i));
  if (n > N_SHOWN) kiln_text_add(out, " ...");
}

static void write_ports(kiln_ctx *cx, const kiln_graph *g, const char *title, int n, const int *ids,
                        kiln_text *out) {
  for (int i = 0; i < n; i++) {
    const kiln_value *v = g->values[ids[i]];
    kiln_text_printf(out, "%-12s%s %s ", i == 0 ? title : "", kiln_symbol_text(cx, v->name),
                     type_text(v) ? type_text(v) : "?");
    kiln_text_add(out, v->has_shape ? "[" : "of unknown rank");
    for (int axis = 0; v->has_shape && axis < v->rank; axis++)
      kiln_text_printf(out, "%s%s", axis == 0 ? "" : ", ", kiln_expr_text(cx, v->shape[axis]));
    if (v->has_shape) kiln_text_add(out, "]");
    if (v->initial) write_default(v->initial, out);
    kiln_text_add(out, "\n");
  }
}

static const char *write_text(kiln_ctx *cx, const kiln_graph *g, const facts *f) {
  kiln_text out;
  kiln_text_init(&out, &cx->perm);
  kiln_text_printf(&out, "%-12s%s\n%-12s%" PRId64 "\n%-12s%s\n", "model",
                   kiln_symbol_text(cx, g->name), "IR version", g->ir_version, "producer",
                   g->producer == 0 ? "unknown" : kiln_symbol_text(cx, g->producer));
  for (int i = 0; i < g->n_opsets; i++)
    kiln_text_printf(&out, "%-12s%s %" PRId64 "\n", i == 0 ? "opsets" : "",
                     domain_text(cx, g->opsets[i].domain), g->opsets[i].version);
  write_ports(cx, g, "inputs", g->n_inputs, g->inputs, &out);
  write_ports(cx, g, "outputs", g->n_outputs, g->outputs, &out);
  kiln_text_printf(&out, "%-12s", "dimensions");
  for (int i = 0; i < f->dims.n; i++)
    kiln_text_printf(&out, "%s%s", i == 0 ? "" : ", ", kiln_symbol_text(cx, f->dims.data[i]));
  kiln_text_printf(&out, "%s\n", f->dims.n == 0 ? "all constant" : "");
  kiln_text_printf(&out, "%-12s%" PRId64 " in %" PRId64 " tensors, %.1f MB\n", "parameters",
                   f->n_elems, f->n_tensors, (double)f->n_bytes / 1e6);
  kiln_text_printf(&out, "%-12s%" PRId64 "\n%s\n", "nodes", f->n_nodes, "operators");
  for (int i = 0; i < f->counts.n; i++) {
    const count *c = &f->counts.data[i];
    kiln_text_printf(&out, "%10" PRId64 "  %s%s%s\n", c->n, kiln_symbol_text(cx, c->domain),
                     c->domain == 0 ? "" : ".", kiln_symbol_text(cx, c->op));
  }
  return out.data;
}

// A JSON string; invalid UTF-8 becomes '?'.
static json_t *string_of(kiln_ctx *cx, const char *text) {
  json_t *string = json_string(text); // checks UTF-8
  if (string != NULL) return string;
  char *ascii = kiln_arena_strdup(&cx->scratch, text);
  for (char *at = ascii; *at != 0; at++)
    if (*at & 0x80) *at = '?';
  return json_string(ascii);
}

static void json_default(const kiln_const *c, json_t *port) {
  const int64_t n = (int64_t)(c->bytes / (size_t)kiln_dtype_bytes(c->dtype));
  json_t *values = json_array(); // its first elements
  json_object_set_new(port, "optional", json_true());
  json_object_set_new(port, "default", values);
  for (int64_t i = 0; i < n && i < N_SHOWN; i++) {
    const double x = element_at(c, i);
    json_array_append_new(values, isfinite(x) ? json_real(x) : json_null());
  }
}

static void json_ports(kiln_ctx *cx, const kiln_graph *g, int n, const int *ids, json_t *ports) {
  for (int i = 0; i < n; i++) {
    const kiln_value *v = g->values[ids[i]];
    json_t *port = json_object(), *shape = v->has_shape ? json_array() : json_null();
    json_array_append_new(ports, port);
    json_object_set_new(port, "shape", shape);
    for (int axis = 0; v->has_shape && axis < v->rank; axis++) {
      int64_t extent = 0;
      json_array_append_new(shape, kiln_expr_is_int(v->shape[axis], &extent)
                                       ? json_integer(extent)
                                       : string_of(cx, kiln_expr_text(cx, v->shape[axis])));
    }
    json_object_set_new(port, "name", string_of(cx, kiln_symbol_text(cx, v->name)));
    if (v->initial) json_default(v->initial, port);
    json_object_set_new(port, "dtype", type_text(v) ? json_string(type_text(v)) : json_null());
  }
}

// Attaches the array to |root| before it is filled, so that running out of memory leaks nothing.
static json_t *add_array(json_t *root, const char *key) {
  json_t *array = json_array();
  json_object_set_new(root, key, array);
  return array;
}

static void json_lists(kiln_ctx *cx, const kiln_graph *g, const facts *f, json_t *root) {
  json_t *opsets = add_array(root, "opsets"), *dims = add_array(root, "dimensions"),
         *operators = add_array(root, "operators");
  for (int i = 0; i < g->n_opsets; i++) {
    json_t *row = json_object();
    json_object_set_new(row, "domain", string_of(cx, domain_text(cx, g->opsets[i].domain)));
    json_object_set_new(row, "version", json_integer(g->opsets[i].version));
    json_array_append_new(opsets, row);
  }
  for (int i = 0; i < f->dims.n; i++)
    json_array_append_new(dims, string_of(cx, kiln_symbol_text(cx, f->dims.data[i])));
  for (int i = 0; i < f->counts.n; i++) {
    json_t *row = json_object();
    json_object_set_new(row, "domain", string_of(cx, domain_text(cx, f->counts.data[i].domain)));
    json_object_set_new(row, "op", string_of(cx, kiln_symbol_text(cx, f->counts.data[i].op)));
    json_object_set_new(row, "count", json_integer(f->counts.data[i].n));
    json_array_append_new(operators, row);
  }
}

static void release_json(void *object) { json_decref(object); }

static kiln_status write_json(kiln_ctx *cx, const kiln_graph *g, const facts *f,
                              const char **out_text) {
  json_t *root = json_object();
  kiln_cleanup_push(cx, release_json, root);
  json_lists(cx, g, f, root);
  json_object_set_new(root, "model", string_of(cx, kiln_symbol_text(cx, g->name)));
  json_object_set_new(root, "ir_version", json_integer(g->ir_version));
  json_object_set_new(root, "producer", string_of(cx, kiln_symbol_text(cx, g->producer)));
  json_ports(cx, g, g->n_inputs, g->inputs, add_array(root, "inputs"));
  json_ports(cx, g, g->n_outputs, g->outputs, add_array(root, "outputs"));
  json_object_set_new(root, "nodes", json_integer(f->n_nodes));
  json_object_set_new(root, "parameters", json_integer(f->n_elems));
  json_object_set_new(root, "parameter_tensors", json_integer(f->n_tensors));
  json_object_set_new(root, "parameter_bytes", json_integer(f->n_bytes));
  char *text = json_dumps(root, JSON_INDENT(2));
  kiln_cleanup_pop(cx);
  json_decref(root);
  if (text == NULL) return KILN_FAIL(cx->diag, KILN_NO_MEMORY, "report", "no memory left");
  kiln_cleanup_push(cx, free, text);
  *out_text = kiln_arena_strdup(&cx->perm, text);
  kiln_cleanup_pop(cx);
  free(text);
  return KILN_OK;
}

kiln_status kiln_onnx_report(kiln_ctx *cx, const kiln_graph *g, bool json, const char **out_text) {
  *out_text = NULL;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const facts f = gather(cx, g);
  kiln_status status = KILN_OK;
  if (json) status = write_json(cx, g, &f, out_text);
  else *out_text = write_text(cx, g, &f);
  kiln_arena_rewind(&cx->scratch, mark);
  return status;
}

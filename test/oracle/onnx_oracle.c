// The ONNX reader against protobuf-c: every field of every message, then every node, attribute,
// name and initializer byte of the graph.
//
//   onnx_oracle FOLDER...    reads every .onnx file below the folders; exit 1 when any differs
//
// Fields are compared by protobuf-c's descriptors, so that a field that Kiln's tables lack is
// found, too. External weights that are not there are replaced by sparse files.
#include "onnx.pb-c.h"
#include "onnx/proto.h"
#include "onnx/reader.h"

#include <fts.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct oracle {
  const char *path;
  int n_wrong, n_fields, n_nodes, n_tensors;
} oracle;

static void differ(oracle *o, const char *format, ...) KILN_PRINTF(2, 3);
static void differ(oracle *o, const char *format, ...) {
  va_list arguments;
  if (++o->n_wrong > 5) return;
  printf("%s: ", o->path);
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  printf("\n");
}

// ---- every field, by descriptor

// What Kiln leaves out on purpose (see onnx/proto.h).
static const char *const left_out[] = {
    "ModelProto.training_info",           "ModelProto.configuration",
    "GraphProto.quantization_annotation", "FunctionProto.value_info",
    "FunctionProto.metadata_props",       "NodeProto.device_configurations",
    "AttributeProto.sparse_tensors",      "AttributeProto.type_protos"};

typedef struct list {
  const char *data;
  size_t n;
} list;

static list list_at(const char *at) {
  list l;
  memcpy(&l, at, sizeof(l));
  return l;
}

static void *pointer_at(const char *at) {
  void *p;
  memcpy(&p, at, sizeof(p));
  return p;
}

static int64_t integer_at(ProtobufCType type, const char *at) {
  int32_t small;
  int64_t large;
  if (type == PROTOBUF_C_TYPE_INT32 || type == PROTOBUF_C_TYPE_ENUM) {
    memcpy(&small, at, 4);
    return small;
  }
  memcpy(&large, at, 8);
  return large;
}

static size_t integer_bytes(ProtobufCType type) {
  return type == PROTOBUF_C_TYPE_INT32 || type == PROTOBUF_C_TYPE_ENUM ? 4 : 8;
}

static list bytes_at(ProtobufCType type, const char *at) {
  ProtobufCBinaryData binary;
  if (type == PROTOBUF_C_TYPE_STRING) {
    const char *text = pointer_at(at);
    return (list){text, text == NULL ? 0 : strlen(text)};
  }
  memcpy(&binary, at, sizeof(binary));
  return (list){(const char *)binary.data, binary.len};
}

static bool same_bytes(list a, list b) {
  return a.n == b.n && (a.n == 0 || memcmp(a.data, b.data, a.n) == 0);
}

static bool is_present(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f) {
  const char *base = (const char *)m;
  int oneof;
  protobuf_c_boolean has;
  if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
    memcpy(&oneof, base + f->quantifier_offset, sizeof(oneof));
    return (uint32_t)oneof == f->id;
  }
  if (f->type == PROTOBUF_C_TYPE_MESSAGE || f->type == PROTOBUF_C_TYPE_STRING) {
    const void *p = pointer_at(base + f->offset);
    return p != NULL && p != f->default_value;
  }
  memcpy(&has, base + f->quantifier_offset, sizeof(has));
  return has;
}

static void compare(oracle *o, const onnx_schema *schema, const char *ours,
                    const ProtobufCMessage *theirs);

static void compare_one(oracle *o, const onnx_schema *schema, int row, const char *ours,
                        const ProtobufCMessage *theirs, const ProtobufCFieldDescriptor *f) {
  const onnx_field *field = &schema->fields[row];
  const char *at = (const char *)theirs + f->offset;
  uint64_t has;
  memcpy(&has, ours, sizeof(has));
  const bool here = has >> row & 1, there = is_present(theirs, f);
  bool same = here == there;
  if (same && here && f->type == PROTOBUF_C_TYPE_MESSAGE) {
    if (field->kind == ONNX_MESSAGE)
      compare(o, field->message, pointer_at(ours + field->offset), pointer_at(at));
  } else if (same && here && field->kind == ONNX_INT) {
    same = integer_at(PROTOBUF_C_TYPE_INT64, ours + field->offset) == integer_at(f->type, at);
  } else if (same && here && field->kind == ONNX_FLOAT) {
    same = memcmp(ours + field->offset, at, 4) == 0;
  } else if (same && here) {
    same = field->kind == ONNX_BYTES &&
           same_bytes(list_at(ours + field->offset), bytes_at(f->type, at));
  }
  if (!same) differ(o, "%s.%s differs", schema->name, field->name);
}

static void compare_list(oracle *o, const onnx_schema *schema, const onnx_field *field,
                         const char *ours, const ProtobufCMessage *theirs,
                         const ProtobufCFieldDescriptor *f) {
  const list l = list_at(ours + field->offset);
  const char *data = pointer_at((const char *)theirs + f->offset);
  size_t n;
  memcpy(&n, (const char *)theirs + f->quantifier_offset, sizeof(n));
  bool same = n == l.n;
  for (size_t i = 0; same && i < n; i++) {
    const size_t width = integer_bytes(f->type);
    if (field->kind == ONNX_MESSAGES)
      compare(o, field->message, l.data + i * field->message->bytes,
              pointer_at(data + i * sizeof(void *)));
    else if (field->kind == ONNX_INTS)
      same = integer_at(PROTOBUF_C_TYPE_INT64, l.data + 8 * i) ==
             integer_at(f->type, data + width * i);
    else if (field->kind == ONNX_FLOATS || field->kind == ONNX_DOUBLES)
      same = memcmp(l.data, data, (field->kind == ONNX_FLOATS ? 4 : 8) * n) == 0;
    else
      same = same_bytes(list_at(l.data + i * sizeof(list)),
                        bytes_at(f->type, data + i * (f->type == PROTOBUF_C_TYPE_STRING
                                                          ? sizeof(char *)
                                                          : sizeof(ProtobufCBinaryData))));
    if (field->kind == ONNX_FLOATS || field->kind == ONNX_DOUBLES) break; // all at once
  }
  if (!same) differ(o, "%s.%s differs (%zu elements, not %zu)", schema->name, field->name, l.n, n);
}

static void compare(oracle *o, const onnx_schema *schema, const char *ours,
                    const ProtobufCMessage *theirs) {
  const ProtobufCMessageDescriptor *d = theirs->descriptor;
  for (unsigned k = 0; k < d->n_fields; k++) {
    const ProtobufCFieldDescriptor *f = &d->fields[k];
    char name[128];
    int row = 0;
    bool known = false;
    while (row < schema->n_fields && schema->fields[row].number != (int)f->id) row++;
    snprintf(name, sizeof(name), "%s.%s", schema->name, f->name);
    for (size_t i = 0; i < KILN_LEN(left_out); i++) known |= strcmp(left_out[i], name) == 0;
    if (row == schema->n_fields) {
      if (!known) differ(o, "%s is not in the table", name);
      continue;
    }
    if (strcmp(schema->fields[row].name, f->name) != 0)
      differ(o, "%s is called %s in the table", name, schema->fields[row].name);
    o->n_fields++;
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
      compare_list(o, schema, &schema->fields[row], ours, theirs, f);
    else compare_one(o, schema, row, ours, theirs, f);
  }
}

// ---- the graph

static bool is_called(const kiln_ctx *cx, kiln_symbol symbol, const char *name) {
  return strcmp(kiln_symbol_text(cx, symbol), name == NULL ? "" : name) == 0;
}

static bool is_text(const kiln_ctx *cx, kiln_symbol symbol, ProtobufCBinaryData data) {
  const char *text = kiln_symbol_text(cx, symbol);
  const size_t n = strnlen((const char *)data.data ? (const char *)data.data : "", data.len);
  return strlen(text) == n && (n == 0 || memcmp(text, data.data, n) == 0);
}

// Element |i| of a typed field, as the bits it must have in a tensor; |size| is set.
static uint64_t typed_bits(const Onnx__TensorProto *t, size_t i, size_t size) {
  uint64_t bits = 0;
  if (t->n_float_data > 0) memcpy(&bits, &t->float_data[i], 4);
  else if (t->n_double_data > 0) memcpy(&bits, &t->double_data[i], 8);
  else if (t->n_int64_data > 0) memcpy(&bits, &t->int64_data[i], 8);
  else if (t->n_uint64_data > 0) bits = t->uint64_data[i];
  else bits = (uint64_t)(int64_t)t->int32_data[i];
  return size == 8 ? bits : bits & ((UINT64_C(1) << 8 * size) - 1);
}

static void compare_tensor(oracle *o, const char *name, const kiln_const *ours,
                           const Onnx__TensorProto *t) {
  const size_t size = (size_t)kiln_dtype_bytes(ours->dtype), n = ours->bytes / size;
  bool same = kiln_dtype_onnx(ours->dtype) == t->data_type && ours->rank == (int)t->n_dims;
  o->n_tensors++;
  for (int axis = 0; same && axis < ours->rank; axis++) same = ours->shape[axis] == t->dims[axis];
  if (t->data_location == 1) return; // the bytes are those of a sparse file
  if (same && t->raw_data.len > 0)
    same = t->raw_data.len == ours->bytes && memcmp(t->raw_data.data, ours->data, ours->bytes) == 0;
  else
    for (size_t i = 0; same && i < n; i++) {
      uint64_t bits = 0;
      memcpy(&bits, (const char *)ours->data + i * size, size);
      same = bits == typed_bits(t, i, size);
    }
  if (!same) differ(o, "tensor \"%s\" differs", name);
}

static void compare_graph(oracle *o, const kiln_ctx *cx, const kiln_graph *g,
                          const Onnx__GraphProto *theirs);

static bool same_attr(oracle *o, const kiln_ctx *cx, const kiln_attr *a,
                      const Onnx__AttributeProto *t) {
  bool same = true;
  switch (a->kind) {
  case KILN_ATTR_INT: return t->n_ints == 0 && a->u.i == t->i;
  case KILN_ATTR_FLOAT: return memcmp(&a->u.f, &t->f, 4) == 0;
  case KILN_ATTR_STRING: return is_text(cx, a->u.s, t->s);
  case KILN_ATTR_TENSOR: compare_tensor(o, t->name, a->u.tensor, t->t); return true;
  case KILN_ATTR_INTS:
    return a->n == (int)t->n_ints && (a->n == 0 || !memcmp(a->u.ints, t->ints, 8 * t->n_ints));
  case KILN_ATTR_FLOATS:
    return a->n == (int)t->n_floats &&
           (a->n == 0 || !memcmp(a->u.floats, t->floats, 4 * t->n_floats));
  case KILN_ATTR_STRINGS:
    same = a->n == (int)t->n_strings;
    for (int i = 0; same && i < a->n; i++) same = is_text(cx, a->u.strings[i], t->strings[i]);
    return same;
  case KILN_ATTR_GRAPH: compare_graph(o, cx, a->u.graph, t->g); return true;
  }
  return false;
}

static bool same_names(const kiln_ctx *cx, const kiln_graph *g, int n, const int *ids,
                       size_t n_names, char **names) {
  bool same = n == (int)n_names;
  for (int i = 0; same && i < n; i++)
    same = is_called(cx, ids[i] < 0 ? 0 : g->values[ids[i]]->name, names[i]);
  return same;
}

static void compare_node(oracle *o, const kiln_ctx *cx, const kiln_graph *g, const kiln_node *n,
                         const Onnx__NodeProto *t) {
  o->n_nodes++;
  bool same = is_called(cx, n->name, t->name) && is_called(cx, n->op, t->op_type);
  same &= is_called(cx, n->domain, t->domain) || (n->domain == 0 && !strcmp(t->domain, "ai.onnx"));
  same &= same_names(cx, g, n->n_inputs, n->inputs, t->n_input, t->input);
  same &= same_names(cx, g, n->n_outputs, n->outputs, t->n_output, t->output);
  int n_read = 0; // types are not: what they say, elements say, too
  for (size_t i = 0; same && i < t->n_attribute; i++) {
    const Onnx__AttributeProto *a = t->attribute[i];
    if (a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO) continue;
    const kiln_attr *ours = &n->attrs[n_read++];
    same = n_read <= n->n_attrs && is_called(cx, ours->name, a->name) && same_attr(o, cx, ours, a);
  }
  same &= n_read == n->n_attrs;
  if (!same) differ(o, "node \"%s\" (%s) differs", t->name, t->op_type);
}

static const kiln_value *find_value(const kiln_ctx *cx, const kiln_graph *g, const char *name) {
  for (int i = 0; i < g->n_values; i++)
    if (is_called(cx, g->values[i]->name, name)) return g->values[i];
  return NULL;
}

static const char *named_output(const Onnx__NodeProto *t) {
  for (size_t i = 0; i < t->n_output; i++)
    if (t->output[i][0] != 0) return t->output[i];
  return "";
}

static void compare_graph(oracle *o, const kiln_ctx *cx, const kiln_graph *g,
                          const Onnx__GraphProto *theirs) {
  int n_constants = 0;
  for (size_t i = 0; i < theirs->n_node; i++) {
    const Onnx__NodeProto *t = theirs->node[i];
    const kiln_value *v = find_value(cx, g, named_output(t));
    if (v != NULL && v->producer >= 0) compare_node(o, cx, g, g->nodes[v->producer], t);
    else if (v != NULL && v->constant != NULL && strcmp(t->op_type, "Constant") == 0) n_constants++;
    else differ(o, "node \"%s\" (%s) is missing", t->name, t->op_type);
    if (v != NULL && v->constant != NULL && t->attribute[0]->t != NULL)
      compare_tensor(o, t->output[0], v->constant, t->attribute[0]->t);
  }
  if (g->n_nodes + n_constants != (int)theirs->n_node) differ(o, "nodes are too many or too few");
  for (size_t i = 0; i < theirs->n_initializer; i++) {
    const kiln_value *v = find_value(cx, g, theirs->initializer[i]->name);
    if (v == NULL || v->constant == NULL)
      differ(o, "initializer \"%s\" is missing", theirs->initializer[i]->name);
    else compare_tensor(o, theirs->initializer[i]->name, v->constant, theirs->initializer[i]);
  }
  for (int i = 0; i < g->n_nodes; i++)
    for (int k = 0; k < g->nodes[i]->n_inputs; k++) {
      const int id = g->nodes[i]->inputs[k];
      if (id >= 0 && g->values[id]->producer >= i) differ(o, "node %d is not in order", i);
    }
}

// ---- files

// Makes a folder with a link to the model and sparse files in place of its external data.
static void make_stage(const char *path, const Onnx__GraphProto *g, char *folder, char *out_link) {
  char weights[512];
  char *absolute = realpath(path, NULL);
  if (mkdtemp(folder) == NULL || absolute == NULL) exit(2);
  snprintf(out_link, 512, "%s/model.onnx", folder);
  if (symlink(absolute, out_link) != 0) exit(2);
  free(absolute);
  for (size_t i = 0; i < g->n_initializer; i++) {
    long long offset = 0, length = 0;
    const char *location = NULL;
    for (size_t k = 0; k < g->initializer[i]->n_external_data; k++) {
      const Onnx__StringStringEntryProto *e = g->initializer[i]->external_data[k];
      if (strcmp(e->key, "location") == 0) location = e->value;
      if (strcmp(e->key, "offset") == 0) offset = atoll(e->value);
      if (strcmp(e->key, "length") == 0) length = atoll(e->value);
    }
    if (location == NULL) continue;
    snprintf(weights, sizeof(weights), "%s/%s", folder, location);
    FILE *f = fopen(weights, "a");
    if (f == NULL) exit(2);
    fseek(f, 0, SEEK_END);
    if (ftell(f) < offset + length && ftruncate(fileno(f), offset + length) != 0) exit(2);
    fclose(f);
  }
}

static void remove_folder(char *folder) {
  char *const roots[] = {folder, NULL};
  FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
  if (walk == NULL) exit(2);
  for (FTSENT *e = fts_read(walk); e != NULL; e = fts_read(walk))
    if (e->fts_info != FTS_D) remove(e->fts_path);
  fts_close(walk);
}

static char *read_file(const char *path, size_t *out_n) {
  FILE *f = fopen(path, "rb");
  if (f == NULL || fseek(f, 0, SEEK_END) != 0) exit(2);
  *out_n = (size_t)ftell(f);
  rewind(f);
  char *data = malloc(*out_n + 1);
  if (data == NULL || fread(data, 1, *out_n, f) != *out_n) exit(2);
  fclose(f);
  return data;
}

// Compares the graph; false when the model has a type that Kiln does not have.
static bool compare_read(oracle *o, kiln_ctx *cx, const Onnx__ModelProto *theirs) {
  char folder[] = "/tmp/kiln_oracle_XXXXXX", link[512];
  kiln_onnx_file *file = NULL;
  kiln_graph *g = NULL;
  make_stage(o->path, theirs->graph, folder, link);
  const kiln_onnx_options options = {.keeps_lists = true};
  const kiln_status status = kiln_onnx_read(cx, link, &options, &file, &g);
  if (status == KILN_OK) compare_graph(o, cx, g, theirs->graph);
  else if (status != KILN_UNSUPPORTED || strstr(kiln_diag_message(cx->diag, 0), "type") == NULL)
    differ(o, "is not read: %s", kiln_diag_message(cx->diag, 0));
  kiln_onnx_close(file);
  remove_folder(folder);
  return status == KILN_OK;
}

typedef struct totals {
  int n_files, n_read, n_wrong;
  long n_fields, n_nodes, n_tensors;
} totals;

static void compare_file(totals *sum, const char *path) {
  oracle o = {.path = path};
  size_t n = 0;
  char *data = read_file(path, &n);
  kiln_diag *diag = kiln_diag_create();
  kiln_ctx cx;
  onnx_model model;
  if (diag == NULL || kiln_ctx_init(&cx, diag) != KILN_OK) exit(2);
  Onnx__ModelProto *theirs = onnx__model_proto__unpack(NULL, n, (const uint8_t *)data);
  const kiln_status status = kiln_onnx_decode(&cx, &cx.scratch, path, data, (onnx_bytes){data, n},
                                              &kiln_onnx_model_schema, &model);
  if (theirs == NULL || status != KILN_OK) {
    differ(&o, "is not decoded by %s", theirs == NULL ? "protobuf-c" : "Kiln");
  } else {
    compare(&o, &kiln_onnx_model_schema, (const char *)&model, &theirs->base);
    sum->n_read += compare_read(&o, &cx, theirs);
  }
  if (theirs != NULL) onnx__model_proto__free_unpacked(theirs, NULL);
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
  free(data);
  sum->n_files++;
  sum->n_wrong += o.n_wrong > 0;
  sum->n_fields += o.n_fields;
  sum->n_nodes += o.n_nodes;
  sum->n_tensors += o.n_tensors;
}

static void compare_folder(totals *sum, char *folder) {
  char *const roots[] = {folder, NULL};
  FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
  if (walk == NULL) exit(2);
  for (FTSENT *e = fts_read(walk); e != NULL; e = fts_read(walk))
    if (e->fts_info == FTS_F && e->fts_namelen > 5 &&
        strcmp(e->fts_name + e->fts_namelen - 5, ".onnx") == 0)
      compare_file(sum, e->fts_path);
  fts_close(walk);
}

int main(int argc, char **argv) {
  totals sum = {0};
  for (int i = 1; i < argc; i++) compare_folder(&sum, argv[i]);
  printf("%d files, %d supported, %d differ: %ld fields, %ld nodes, %ld tensors compared\n",
         sum.n_files, sum.n_read, sum.n_wrong, sum.n_fields, sum.n_nodes, sum.n_tensors);
  return sum.n_wrong > 0 || sum.n_files == 0;
}

// The reader on valid models: values, order, constants, extents, sub-graphs, functions.
#include "unit/onnx/model.h"

#include "onnx/report.h"
#include "support/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

enum {
  F32 = 1,
  U8 = 2,
  I8 = 3,
  U16 = 4,
  I32 = 6,
  I64 = 7,
  BOOL = 9,
  F16 = 10,
  F64 = 11,
  U32 = 12,
  U64 = 13,
  BF16 = 16,
  E4M3FN = 17,
  U4 = 21,
  I4 = 22,
  E2M1 = 23,
  U2 = 25
};

// A graph x -> Relu -> y, to which the tests add.
static kiln_text relu_graph(fixture *t, const char *shape) {
  kiln_text g = message(t);
  put_text(&g, 2, "g");
  put_message(&g, 1, node(t, "Relu", "r", "x", "y"));
  put_message(&g, 11, value_info(t, "x", F32, shape));
  put_message(&g, 12, value_info(t, "y", F32, shape));
  return g;
}

static kiln_status read_model(fixture *t, kiln_text m, const kiln_onnx_options *options) {
  return fixture_read(t, m.data, (size_t)m.n, options);
}

static void typed_fields_are_converted(void **state) {
  static const struct {
    int64_t dtype;
    int field;
    int64_t value;
    size_t bytes;
    uint64_t bits;
  } rows[] = {{I8, 5, -1, 1, 0xff},
              {U8, 5, 200, 1, 200},
              {U16, 5, 65535, 2, 65535},
              {I32, 5, -2, 4, 0xfffffffe},
              {BOOL, 5, 7, 1, 1},
              {F16, 5, 0x3c00, 2, 0x3c00},
              {BF16, 5, 0x3f80, 2, 0x3f80},
              {E4M3FN, 5, 0xfe, 1, 0xfe},
              {I64, 7, -3, 8, (uint64_t)-3},
              {U32, 11, 4000000000, 4, 4000000000},
              {U64, 11, -1, 8, UINT64_MAX}};
  (void)state;
  for (size_t row = 0; row < KILN_LEN(rows); row++)
    for (int packed = 0; packed < 2; packed++) {
      fixture t;
      fixture_init(&t);
      kiln_text g = relu_graph(&t, "2"), w = tensor(&t, "w", rows[row].dtype, 1, (int64_t[]){2});
      kiln_text run = message(&t);
      for (int i = 0; i < 2; i++)
        if (packed) put_varint(&run, (uint64_t)rows[row].value);
        else put_int(&w, rows[row].field, rows[row].value);
      if (packed) put_message(&w, rows[row].field, run);
      put_message(&g, 5, w);
      assert_int_equal(read_model(&t, model(&t, 8, g), NULL), KILN_OK);
      const kiln_const *c = value_named(&t, t.g, "w")->constant;
      assert_int_equal(c->bytes, 2 * rows[row].bytes);
      for (int i = 0; i < 2; i++)
        assert_memory_equal((const char *)c->data + i * rows[row].bytes, &rows[row].bits,
                            rows[row].bytes);
      fixture_deinit(&t);
    }
}

// 5 elements, in the typed field (a number for each byte), as raw data, or none of these right.
static void packed_elements_are_unpacked(void **state) {
  static const struct {
    int64_t dtype;
    int n;
    unsigned char bytes[3], codes[5];
  } rows[] = {{U4, 3, {0x21, 0x43, 0xf5}, {1, 2, 3, 4, 5}},
              {I4, 3, {0xf8, 0x07, 0x09}, {8, 15, 7, 0, 9}},
              {E2M1, 3, {0x0f, 0x10, 0x02}, {15, 0, 0, 1, 2}},
              {U2, 2, {0xe4, 0x03}, {0, 1, 2, 3, 3}}};
  (void)state;
  for (size_t row = 0; row < KILN_LEN(rows); row++)
    for (int form = 0; form < 4; form++) { // typed, raw, and both with a byte too many
      fixture t;
      fixture_init(&t);
      kiln_text g = relu_graph(&t, "5"), w = tensor(&t, "w", rows[row].dtype, 1, (int64_t[]){5});
      const int n = rows[row].n + (form >= 2);
      const unsigned char bytes[4] = {rows[row].bytes[0], rows[row].bytes[1], rows[row].bytes[2]};
      for (int i = 0; i < n && form % 2 == 0; i++) put_int(&w, 5, bytes[i]);
      if (form % 2) put_bytes(&w, 9, bytes, (size_t)n);
      put_message(&g, 5, w);
      const kiln_status status = read_model(&t, model(&t, 8, g), NULL);
      assert_int_equal(status, form < 2 ? KILN_OK : KILN_BAD_INPUT);
      if (form < 2) {
        const kiln_const *c = value_named(&t, t.g, "w")->constant;
        assert_int_equal(c->bytes, 5);
        assert_memory_equal(c->data, rows[row].codes, 5);
      } else {
        assert_true(has_message(&t, form == 2 ? "int32_data must hold the" : "raw_data must hold"));
      }
      fixture_deinit(&t);
    }
}

static void floats_are_read_packed_and_not(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  const float values[] = {1.5f, -2.0f, 3.25f};
  const double wide[] = {1e300, -1e-300, 0.5};
  kiln_text g = relu_graph(&t, "3");
  kiln_text a = tensor(&t, "a", F32, 1, (int64_t[]){3}),
            b = tensor(&t, "b", F32, 1, (int64_t[]){3});
  kiln_text c = tensor(&t, "c", F64, 1, (int64_t[]){3}),
            d = tensor(&t, "d", F32, 1, (int64_t[]){3});
  put_bytes(&a, 4, values, sizeof(values));
  for (int i = 0; i < 3; i++) put_float(&b, 4, values[i]);
  put_bytes(&c, 10, wide, sizeof(wide));
  put_bytes(&d, 4, values, 8); // a run, then one alone
  put_float(&d, 4, values[2]);
  put_message(&g, 5, a);
  put_message(&g, 5, b);
  put_message(&g, 5, c);
  put_message(&g, 5, d);
  assert_int_equal(read_model(&t, model(&t, 8, g), NULL), KILN_OK);
  assert_memory_equal(value_named(&t, t.g, "a")->constant->data, values, sizeof(values));
  assert_memory_equal(value_named(&t, t.g, "b")->constant->data, values, sizeof(values));
  assert_memory_equal(value_named(&t, t.g, "c")->constant->data, wide, sizeof(wide));
  assert_memory_equal(value_named(&t, t.g, "d")->constant->data, values, sizeof(values));
  fixture_deinit(&t);
}

static kiln_text attr(fixture *t, const char *name, int64_t type) {
  kiln_text a = message(t);
  put_text(&a, 1, name);
  put_int(&a, 20, type);
  return a;
}

static void constant_nodes_become_constants(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  kiln_text g = relu_graph(&t, "3");
  kiln_text f = attr(&t, "value_float", 1), i = attr(&t, "value_ints", 7), v = attr(&t, "value", 4);
  kiln_text n1 = node(&t, "Constant", "", "", "f"), n2 = node(&t, "Constant", "", "", "i"),
            n3 = node(&t, "Constant", "", "", "v"), w = tensor(&t, "", I64, 0, NULL);
  put_float(&f, 2, 2.5f);
  put_int(&i, 8, 4);
  put_int(&i, 8, -5);
  put_int(&w, 7, 9);
  put_message(&v, 5, w);
  put_message(&n1, 5, f);
  put_message(&n2, 5, i);
  put_message(&n3, 5, v);
  put_message(&g, 1, n1);
  put_message(&g, 1, n2);
  put_message(&g, 1, n3);
  assert_int_equal(read_model(&t, model(&t, 8, g), NULL), KILN_OK);
  assert_int_equal(t.g->n_nodes, 1);
  const kiln_const *cf = value_named(&t, t.g, "f")->constant,
                   *ci = value_named(&t, t.g, "i")->constant,
                   *cv = value_named(&t, t.g, "v")->constant;
  assert_true(cf->rank == 0 && cf->dtype == KILN_F32 && ci->rank == 1 && ci->shape[0] == 2);
  assert_memory_equal(cf->data, (float[]){2.5f}, 4);
  assert_memory_equal(ci->data, ((int64_t[]){4, -5}), 16);
  assert_memory_equal(cv->data, (int64_t[]){9}, 8);
  fixture_deinit(&t);
}

static void nodes_are_sorted_and_order_is_kept(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  kiln_text g = message(&t);
  put_message(&g, 1, node(&t, "Add", "last", "b,c", "y"));
  put_message(&g, 1, node(&t, "Neg", "first", "x", "a"));
  put_message(&g, 1, node(&t, "Relu", "second", "a", "b"));
  put_message(&g, 1, node(&t, "Exp", "third", "a", "c"));
  put_message(&g, 11, value_info(&t, "x", F32, "2"));
  put_message(&g, 12, value_info(&t, "y", F32, NULL));
  assert_int_equal(read_model(&t, model(&t, 8, g), NULL), KILN_OK);
  static const char *const order[] = {"first", "second", "third", "last"};
  for (int i = 0; i < 4; i++) {
    assert_string_equal(kiln_symbol_text(&t.cx, t.g->nodes[i]->name), order[i]);
    assert_int_equal(t.g->nodes[i]->id, i);
    assert_int_equal(t.g->values[t.g->nodes[i]->outputs[0]]->producer, i);
  }
  assert_false(t.g->values[t.g->outputs[0]]->has_shape);
  fixture_deinit(&t);
}

static void initializers_among_the_inputs_are_no_inputs(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  kiln_text g = relu_graph(&t, "3"), w = tensor(&t, "w", F32, 1, (int64_t[]){1});
  put_float(&w, 4, 1.0f);
  put_message(&g, 11, value_info(&t, "w", F32, "1"));
  put_message(&g, 5, w);
  assert_int_equal(read_model(&t, model(&t, 3, g), NULL), KILN_OK);
  assert_int_equal(t.g->n_inputs, 1);
  assert_non_null(value_named(&t, t.g, "w")->constant);
  fixture_deinit(&t);
}

static int64_t extent_of(const fixture *t, const char *name, int axis) {
  int64_t value = -1;
  kiln_expr_is_int(value_named(t, t->g, name)->shape[axis], &value);
  return value;
}

static void extents_are_named_and_bound(void **state) {
  (void)state;
  const kiln_onnx_dim dims[] = {{"n", 4}, {"x_dim_2", 9}};
  const kiln_onnx_shape shape = {"x", 3, (int64_t[]){8, 5, 7}, NULL};
  static const struct {
    kiln_onnx_options options;
    int64_t x[3], y[3];
  } rows[] = {{{0}, {-1, 3, -1}, {-1, 3, -1}},
              {{.n_dims = 2}, {4, 3, 9}, {4, 3, -1}},
              {{.n_shapes = 1}, {8, 5, 7}, {-2, -2, -2}}};
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    fixture t;
    fixture_init(&t);
    kiln_onnx_options options = rows[row].options;
    options.dims = dims;
    options.shapes = &shape;
    assert_int_equal(read_model(&t, model(&t, 8, relu_graph(&t, "n,3,?")), &options), KILN_OK);
    for (int axis = 0; axis < 3; axis++) {
      assert_int_equal(extent_of(&t, "x", axis), rows[row].x[axis]);
      // a replaced constant extent makes the declared shapes behind it void
      if (rows[row].y[0] == -2) assert_false(value_named(&t, t.g, "y")->has_shape);
      else assert_int_equal(extent_of(&t, "y", axis), rows[row].y[axis]);
    }
    if (row == 0) {
      const kiln_value *x = value_named(&t, t.g, "x");
      assert_ptr_equal(x->shape[0], kiln_var(&t.cx, kiln_symbol_of(&t.cx, "n")));
      assert_ptr_equal(x->shape[2], kiln_var(&t.cx, kiln_symbol_of(&t.cx, "x_dim_2")));
    }
    fixture_deinit(&t);
  }
  (void)state;
}

static void a_replaced_shape_binds_the_named_extents_everywhere(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  const kiln_onnx_shape shape = {"x", 2, (int64_t[]){8, 3}, NULL};
  assert_int_equal(read_model(&t, model(&t, 8, relu_graph(&t, "n,3")),
                              &(kiln_onnx_options){.n_shapes = 1, .shapes = &shape}),
                   KILN_OK);
  assert_int_equal(extent_of(&t, "y", 0), 8);
  fixture_deinit(&t);
}

static void inputs_can_be_bound_as_constants(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  const float data[] = {1, 2};
  const kiln_onnx_constant c = {"x", {KILN_F32, 1, {2}, data, sizeof(data)}};
  assert_int_equal(read_model(&t, model(&t, 8, relu_graph(&t, "n")),
                              &(kiln_onnx_options){.n_constants = 1, .constants = &c}),
                   KILN_OK);
  assert_int_equal(t.g->n_inputs, 0);
  assert_ptr_equal(value_named(&t, t.g, "x")->constant->data, data);
  assert_int_equal(extent_of(&t, "y", 0), 2);
  fixture_deinit(&t);
}

static void sub_graphs_capture_values_from_around(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  kiln_text g = message(&t), branch = message(&t), a = attr(&t, "then_branch", 5),
            choose = node(&t, "If", "choice", "c", "y");
  put_message(&branch, 1, node(&t, "Neg", "inner", "h", "z"));
  put_message(&branch, 12, value_info(&t, "z", F32, NULL));
  put_message(&a, 6, branch);
  put_message(&choose, 5, a);
  put_message(&g, 1, choose); // before what its branch captures
  put_message(&g, 1, node(&t, "Exp", "before", "x", "h"));
  put_message(&g, 11, value_info(&t, "x", F32, "2"));
  put_message(&g, 11, value_info(&t, "c", BOOL, ""));
  put_message(&g, 12, value_info(&t, "y", F32, NULL));
  put_message(&g, 13, value_info(&t, "h", F32, "2"));
  assert_int_equal(read_model(&t, model(&t, 8, g), NULL), KILN_OK);
  assert_string_equal(kiln_symbol_text(&t.cx, t.g->nodes[1]->op), "If");
  const kiln_attr *found = kiln_node_attr(t.g->nodes[1], kiln_symbol_of(&t.cx, "then_branch"));
  const kiln_value *h = value_named(&t, found->u.graph, "h");
  assert_true(h->producer == -1 && h->constant == NULL && h->has_shape && h->rank == 1);
  assert_int_equal(found->u.graph->n_inputs, 0);
  assert_int_equal(found->u.graph->n_nodes, 1);
  fixture_deinit(&t);
}

static void functions_are_inlined(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  kiln_text g = message(&t), f = message(&t), call = node(&t, "Twice", "call", "x", "y"),
            body = node(&t, "LeakyRelu", "l", "in", "mid"), ref = attr(&t, "alpha", 1),
            given = attr(&t, "slope", 1);
  put_text(&ref, 21, "slope");
  put_message(&body, 5, ref);
  put_text(&f, 1, "Twice");
  put_text(&f, 4, "in");
  put_text(&f, 5, "out");
  put_text(&f, 6, "slope");
  put_message(&f, 7, body);
  put_message(&f, 7, node(&t, "Relu", "r", "mid", "out"));
  put_message(&f, 9, opset(&t, "", 16));
  put_text(&f, 10, "local");
  put_float(&given, 2, 0.25f);
  put_message(&call, 5, given);
  put_text(&call, 7, "local");
  put_message(&g, 1, call);
  put_message(&g, 11, value_info(&t, "x", F32, "2"));
  put_message(&g, 12, value_info(&t, "y", F32, "2"));
  kiln_text m = model(&t, 8, g);
  put_message(&m, 8, opset(&t, "local", 1));
  put_message(&m, 25, f);
  assert_int_equal(read_model(&t, m, NULL), KILN_OK);
  assert_int_equal(t.g->n_nodes, 2);
  const kiln_node *n = t.g->nodes[0];
  assert_string_equal(kiln_symbol_text(&t.cx, n->op), "LeakyRelu");
  assert_int_equal(n->opset, 16);
  assert_int_equal(n->attrs[0].kind, KILN_ATTR_FLOAT);
  assert_true(n->attrs[0].u.f == 0.25f);
  assert_int_equal(t.g->nodes[1]->inputs[0], n->outputs[0]);
  assert_int_equal(t.g->nodes[1]->outputs[0], t.g->outputs[0]);
  fixture_deinit(&t);
}

static void put_entry(fixture *t, kiln_text *m, const char *key, const char *value) {
  kiln_text e = message(t);
  put_text(&e, 1, key);
  put_text(&e, 2, value);
  put_message(m, 13, e);
}

// Writes |data| to folder/name.
static void write_file(const char *folder, const char *name, const void *data, size_t n) {
  char path[256];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, n, f), n);
  fclose(f);
}

static void remove_file(const char *folder, const char *name) {
  char path[256];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  remove(path);
}

static void external_data_is_mapped_and_checked(void **state) {
  static const struct {
    const char *location, *offset, *length, *message;
  } rows[] = {
      {"w.bin", "4", "8", NULL},
      {"./w.bin", "8", NULL, NULL},
      {"w.bin", "12", "8", "must end within the 16 bytes of \"w.bin\", got offset 12 and length 8"},
      {"w.bin", "99999999999999999999", "8", "offset must be a number from 0 to 2^62"},
      {"w.bin", "4611686018427387904", "8", "must end within"},
      {"w.bin", "-4", "8", "offset must be a number"},
      {"w.bin", "0", "4", "length must be 8, got 4"},
      {"../w.bin", "0", "8", "must be a relative path without \"..\", got \"../w.bin\""},
      {"a/../w.bin", "0", "8", "must be a relative path"},
      {"/etc/passwd", "0", "8", "must be a relative path"},
      {"missing.bin", "0", "8", "must be readable, got: No such file"},
      {".", "0", "8", "must be readable, got: a directory"},
      {"", "0", "8", "location must name a file"}};
  char folder[] = "/tmp/kiln_onnx_XXXXXX", path[64];
  const float weights[] = {1, 2, 3, 4};
  (void)state;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof(path), "%s/m.onnx", folder);
  write_file(folder, "w.bin", weights, sizeof(weights));
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    fixture t;
    fixture_init(&t);
    kiln_text g = relu_graph(&t, "2"), w = tensor(&t, "w", F32, 1, (int64_t[]){2});
    put_entry(&t, &w, "location", rows[row].location);
    put_entry(&t, &w, "offset", rows[row].offset);
    if (rows[row].length != NULL) put_entry(&t, &w, "length", rows[row].length);
    put_int(&w, 14, 1);
    put_message(&g, 5, w);
    const kiln_text m = model(&t, 8, g);
    write_file(folder, "m.onnx", m.data, (size_t)m.n);
    const kiln_status status = kiln_onnx_read(&t.cx, path, NULL, &t.file, &t.g);
    if (rows[row].message == NULL) {
      assert_int_equal(status, KILN_OK);
      assert_memory_equal(value_named(&t, t.g, "w")->constant->data, &weights[row + 1], 8);
    } else {
      assert_int_equal(status, KILN_BAD_INPUT);
      if (!has_message(&t, rows[row].message)) fail_msg("%s", kiln_diag_message(t.diag, 0));
    }
    fixture_deinit(&t);
  }
  remove_file(folder, "m.onnx");
  remove_file(folder, "w.bin");
  rmdir(folder);
}

// Contents of a model's folder, and files that can be opened through it.
static void external_data_never_leaves_the_folder_of_the_model(void **state) {
  static const struct {
    const char *location, *message;
  } rows[] = {{"w.bin", NULL},
              {"sub/w.bin", NULL},
              {"inside", NULL},       // -> sub/w.bin
              {"sub/up", NULL},       // -> ../w.bin, which is in the folder
              {"folder/w.bin", NULL}, // folder -> sub
              {"sibling", "a link that leads out of the model's folder"},
              {"absolute", "a link that leads out of the model's folder"},
              {"chain", "a link that leads out of the model's folder"},
              {"out/w.bin", "a link that leads out of the model's folder"},
              {"proc", "a link that leads out of the model's folder"},
              {"loop", "must be readable"},
              {"hard", "a file that has other names (hard links)"},
              {"sub/hard", "a file that has other names (hard links)"},
              {"pipe", "no regular file"},
              {"../outside/w.bin", "must be a relative path"}};
  static const char setup[] =
      "cd %s && mkdir model outside model/sub && cd model && cp ../w ../outside/w.bin && cp ../w "
      "w.bin && "
      "cp ../w sub/w.bin && ln -s sub/w.bin inside && ln -s ../w.bin sub/up && ln -s sub folder && "
      "ln -s ../outside/w.bin sibling && ln -s $PWD/../outside/w.bin absolute && ln -s sibling "
      "chain && "
      "ln -s ../outside out && ln -s /proc/self/exe proc && ln -s loop loop && "
      "ln ../w hard && ln ../w sub/hard && mkfifo pipe";
  char folder[] = "/tmp/kiln_onnx_XXXXXX", path[64], command[1024];
  const float weights[] = {1, 2, 3, 4};
  (void)state;
  assert_non_null(mkdtemp(folder));
  write_file(folder, "w", weights, sizeof weights);
  snprintf(command, sizeof command, setup, folder);
  assert_int_equal(system(command), 0);
  snprintf(path, sizeof(path), "%s/model/m.onnx", folder);
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    fixture t;
    fixture_init(&t);
    kiln_text g = relu_graph(&t, "2"), w = tensor(&t, "w", F32, 1, (int64_t[]){2});
    put_entry(&t, &w, "location", rows[row].location);
    put_int(&w, 14, 1);
    put_message(&g, 5, w);
    const kiln_text m = model(&t, 8, g);
    write_file(folder, "model/m.onnx", m.data, (size_t)m.n);
    const kiln_status status = kiln_onnx_read(&t.cx, path, NULL, &t.file, &t.g);
    assert_int_equal(status, rows[row].message ? KILN_BAD_INPUT : KILN_OK);
    if (rows[row].message && !has_message(&t, rows[row].message))
      fail_msg("%s: %s", rows[row].location, kiln_diag_message(t.diag, 0));
    if (!rows[row].message)
      assert_memory_equal(value_named(&t, t.g, "w")->constant->data, weights, 8);
    fixture_deinit(&t);
  }
  // With openat2, and with the fallback.
  snprintf(path, sizeof path, "%s/model", folder);
  const int within = open(path, O_PATH | O_DIRECTORY);
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    const bool leads_out = rows[row].message && strstr(rows[row].message, "leads out");
    int (*const ways[])(int, const char *) = {kiln_open_beneath, kiln_open_beneath_by_path};
    for (size_t i = 0; i < KILN_LEN(ways); i++) {
      const int fd = ways[i](within, rows[row].location);
      const int why = errno;
      assert_true(rows[row].message ? !leads_out || (fd < 0 && why == EXDEV) : fd >= 0);
      if (strncmp(rows[row].location, "..", 2) == 0) assert_true(fd < 0 && why == EXDEV);
      if (fd >= 0) close(fd);
    }
  }
  close(within);
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
}

// A file with holes: 3 GiB of which a page is written.
static void external_data_may_lie_beyond_two_gibibytes(void **state) {
  const int64_t offset = (INT64_C(3) << 30) + 4;
  const float weights[] = {5, 6};
  char folder[] = "/tmp/kiln_onnx_XXXXXX", path[64], number[32];
  (void)state;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof(path), "%s/w.bin", folder);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fseeko(f, offset, SEEK_SET), 0);
  assert_int_equal(fwrite(weights, 1, sizeof weights, f), sizeof weights);
  fclose(f);
  fixture t;
  fixture_init(&t);
  kiln_text g = relu_graph(&t, "2"), w = tensor(&t, "w", F32, 1, (int64_t[]){2});
  snprintf(number, sizeof(number), "%lld", (long long)offset);
  put_entry(&t, &w, "location", "w.bin");
  put_entry(&t, &w, "offset", number);
  put_int(&w, 14, 1);
  put_message(&g, 5, w);
  const kiln_text m = model(&t, 8, g);
  write_file(folder, "m.onnx", m.data, (size_t)m.n);
  snprintf(path, sizeof(path), "%s/m.onnx", folder);
  assert_int_equal(kiln_onnx_read(&t.cx, path, NULL, &t.file, &t.g), KILN_OK);
  assert_memory_equal(value_named(&t, t.g, "w")->constant->data, weights, sizeof weights);
  fixture_deinit(&t);
  remove_file(folder, "m.onnx");
  remove_file(folder, "w.bin");
  rmdir(folder);
}

// Names may have any bytes; inside and in output, those unsafe for terminals are escaped.
static void names_are_any_bytes(void **state) {
  static const struct {
    const char *name, *shown, *json;
  } rows[] = {
      {"a b/\"\xff\xfe\n", "a b/\"\\xff\\xfe\\x0a", "a b/\\\"\\\\xff\\\\xfe\\\\x0a"},
      {"\x1b[31mred\x07", "\\x1b[31mred\\x07", "\\\\x1b[31mred\\\\x07"},
      {"\\x1b[31mred", "\\x5cx1b[31mred", "\\\\x5cx1b[31mred"}, // is not the one above
      {"line\r\n\terror: none", "line\\x0d\\x0a\\x09error: none", "line\\\\x0d"},
      {"\xc2\x9b"
       "2J",
       "\\xc2\\x9b2J", "\\\\xc2"},                                      // CSI of C1
      {"\xe2\x80\xaex", "\\xe2\\x80\\xaex", "\\\\xe2"},                 // turns the text around
      {"\xc0\xaf\xed\xa0\x80", "\\xc0\\xaf\\xed\\xa0\\x80", "\\\\xc0"}, // overlong, surrogate
      {"gr\xc3\xbc\xc3\x9f/\xe5\xb1\x82:0 \\x", "gr\xc3\xbc\xc3\x9f/\xe5\xb1\x82:0 \\x",
       "\xe5\xb1\x82:0"}};
  (void)state;
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    fixture t;
    fixture_init(&t);
    kiln_text g = relu_graph(&t, "2");
    put_message(&g, 1, node(&t, "Neg", rows[row].name, "y", rows[row].name));
    put_message(&g, 12, value_info(&t, rows[row].name, F32, "2"));
    assert_int_equal(read_model(&t, model(&t, 8, g), NULL), KILN_OK);
    assert_int_equal(t.g->n_outputs, 2);
    assert_string_equal(kiln_symbol_text(&t.cx, t.g->values[t.g->outputs[1]]->name),
                        rows[row].shown);
    const char *text = NULL;
    assert_int_equal(kiln_onnx_report(&t.cx, t.g, true, &text), KILN_OK);
    assert_non_null(strstr(text, rows[row].json));
    fixture_deinit(&t);
  }
}

static void raw_data_is_not_copied(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  enum { N = 1 << 20 };
  float *data = calloc(N, sizeof(float));
  kiln_text g = relu_graph(&t, "2"), w = tensor(&t, "w", F32, 1, (int64_t[]){N});
  put_bytes(&w, 9, data, N * sizeof(float));
  put_message(&g, 5, w);
  const kiln_text m = model(&t, 8, g);
  const size_t before = t.cx.perm.used_bytes;
  assert_int_equal(read_model(&t, m, NULL), KILN_OK);
  assert_true(t.cx.perm.used_bytes - before < 64 << 10);
  assert_int_equal(value_named(&t, t.g, "w")->constant->bytes, N * sizeof(float));
  free(data);
  fixture_deinit(&t);
}

static void tensors_are_read_alone(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  char folder[] = "/tmp/kiln_onnx_XXXXXX", path[64];
  kiln_const c;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof(path), "%s/t.pb", folder);
  kiln_text w = tensor(&t, "w", I64, 2, (int64_t[]){1, 2});
  put_bytes(&w, 9, (int64_t[]){5, 6}, 16);
  write_file(folder, "t.pb", w.data, (size_t)w.n);
  assert_int_equal(kiln_onnx_read_tensor(&t.cx, path, &t.file, &c), KILN_OK);
  assert_true(c.dtype == KILN_I64 && c.rank == 2 && c.shape[1] == 2);
  assert_memory_equal(c.data, ((int64_t[]){5, 6}), 16);
  kiln_onnx_close(t.file);
  write_file(folder, "t.pb", w.data, (size_t)w.n - 1);
  assert_int_equal(kiln_onnx_read_tensor(&t.cx, path, &t.file, &c), KILN_BAD_INPUT);
  assert_null(t.file);
  remove_file(folder, "t.pb");
  rmdir(folder);
  fixture_deinit(&t);
}

static void reports_name_what_the_model_holds(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  const char *text = NULL;
  kiln_text g = relu_graph(&t, "n,3"), w = tensor(&t, "w", F32, 1, (int64_t[]){3});
  put_bytes(&w, 9, (float[]){1, 2, 3}, 12);
  put_message(&g, 5, w);
  put_message(&g, 1, node(&t, "Relu", "", "y", "z"));
  put_message(&g, 1, node(&t, "Add", "", "z,w", "q"));
  assert_int_equal(read_model(&t, model(&t, 8, g), NULL), KILN_OK);
  assert_int_equal(kiln_onnx_report(&t.cx, t.g, false, &text), KILN_OK);
  assert_non_null(strstr(text, "producer    test 1.0\n"));
  assert_non_null(strstr(text, "opsets      ai.onnx 17\n"));
  assert_non_null(strstr(text, "inputs      x f32 [n, 3]\n"));
  assert_non_null(strstr(text, "dimensions  n\n"));
  assert_non_null(strstr(text, "parameters  3 in 1 tensors"));
  assert_true(strstr(text, "2  Relu\n") < strstr(text, "1  Add\n"));
  assert_int_equal(kiln_onnx_report(&t.cx, t.g, true, &text), KILN_OK);
  assert_non_null(strstr(text, "\"ir_version\": 8"));
  assert_non_null(strstr(text, "\"parameter_bytes\": 12"));
  assert_non_null(strstr(text, "\"n\""));
  fixture_deinit(&t);
}

// A graph over "s", a sequence of f32 (inside an optional value where |optional|) with that shape.
static kiln_text list_graph(fixture *t, const char *shape, bool optional) {
  kiln_text g = relu_graph(t, "2"), tensor = message(t), dims = message(t);
  put_int(&tensor, 1, F32);
  kiln_text dim = message(t);
  if (shape) put_text(&dim, 2, shape);
  if (shape) put_message(&dims, 1, dim);
  if (shape) put_message(&tensor, 2, dims);
  kiln_text elem = message(t), inner = message(t), type = message(t), info = message(t);
  put_message(&elem, 1, tensor);
  put_message(&inner, 1, elem);
  put_message(&type, 4, inner);
  if (optional) {
    kiln_text outer = message(t), whole = message(t);
    put_message(&outer, 1, type);
    put_message(&whole, 9, outer);
    type = whole;
  }
  put_text(&info, 1, "s");
  put_message(&info, 2, type);
  put_message(&g, 11, info);
  return model(t, 8, g);
}

static void lists_are_as_many_inputs_as_the_caller_says(void **state) {
  static const struct {
    int64_t length;
    bool optional;
    int n_inputs; // besides the tensor x
    const char *op;
  } rows[] = {{2, false, 2, "SequenceConstruct"},
              {0, false, 0, "SequenceEmpty"},
              {3, true, 3, "SequenceConstruct"},
              {-1, true, 0, "Optional"}};
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    fixture t;
    fixture_init(&t);
    const kiln_onnx_dim dim = {"s", rows[i].length};
    const kiln_onnx_shape shape = {"s[1]", 1, (const int64_t[]){5}, NULL};
    const kiln_onnx_options o = {
        .n_dims = 1, .dims = &dim, .n_shapes = rows[i].n_inputs > 1, .shapes = &shape};
    assert_int_equal(read_model(&t, list_graph(&t, "n", rows[i].optional), &o), KILN_OK);
    assert_int_equal(t.g->n_inputs, 1 + rows[i].n_inputs);
    assert_string_equal(kiln_symbol_text(&t.cx, t.g->nodes[0]->op), rows[i].op);
    assert_int_equal(t.g->nodes[0]->n_inputs, rows[i].n_inputs);
    if (rows[i].n_inputs > 1) { // extents of one name are not one extent
      int64_t value = 0;
      const kiln_value *first = t.g->values[t.g->inputs[1]], *second = t.g->values[t.g->inputs[2]];
      assert_string_equal(kiln_symbol_text(&t.cx, second->name), "s[1]");
      assert_false(kiln_expr_is_int(first->shape[0], &value));
      assert_true(kiln_expr_is_int(second->shape[0], &value));
      assert_int_equal(value, 5);
    }
    fixture_deinit(&t);
  }
}

static void lists_are_told_of_and_refused_without_a_length(void **state) {
  fixture t;
  (void)state;
  fixture_init(&t);
  const kiln_onnx_options told = {.keeps_lists = true};
  assert_int_equal(read_model(&t, list_graph(&t, NULL, true), &told), KILN_OK);
  assert_string_equal(t.g->values[t.g->inputs[1]]->list, "optional(sequence(f32))");
  fixture_deinit(&t);
  fixture_init(&t);
  assert_int_equal(read_model(&t, list_graph(&t, NULL, false), NULL), KILN_UNSUPPORTED);
  assert_non_null(strstr(kiln_diag_message(t.diag, 0), "say of how many tensors"));
  fixture_deinit(&t);
  fixture_init(&t);
  const kiln_onnx_dim dim = {"s", -1};
  const kiln_onnx_options o = {.n_dims = 1, .dims = &dim};
  assert_int_equal(read_model(&t, list_graph(&t, NULL, false), &o), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(t.diag, 0), "must lie in [0, 65536]"));
  fixture_deinit(&t);
}

// A 2 x 3 sparse initializer with values {5, 7} at |indices| of that shape.
static kiln_text sparse_graph(fixture *t, int rank, const int64_t *shape, const int64_t *indices) {
  kiln_text g = message(t), sparse = message(t);
  kiln_text values = tensor(t, "w", F32, 1, (int64_t[]){2}), at = tensor(t, "", I64, rank, shape);
  put_float(&values, 4, 5);
  put_float(&values, 4, 7);
  for (int64_t i = 0; i < shape[0] * (rank > 1 ? shape[1] : 1); i++) put_int(&at, 7, indices[i]);
  put_message(&sparse, 1, values);
  put_message(&sparse, 2, at);
  put_int(&sparse, 3, 2);
  put_int(&sparse, 3, 3);
  put_text(&g, 2, "g");
  put_message(&g, 1, node(t, "Relu", "r", "w", "y"));
  put_message(&g, 12, value_info(t, "y", F32, "2,3"));
  put_message(&g, 15, sparse);
  return model(t, 8, g);
}

static void sparse_initializers_are_filled_with_zeros(void **state) {
  static const struct {
    int rank;
    int64_t shape[2], indices[4];
    const char *message; // NULL: it is right
  } rows[] = {{1, {2}, {1, 5}, NULL},
              {2, {2, 2}, {0, 1, 1, 2}, NULL},
              {1, {2}, {1, 6}, "indices must lie in the tensor"},
              {2, {2, 2}, {0, 1, -1, 2}, "indices must lie in the tensor"},
              {1, {1}, {1}, "for each value"}};
  const float want[] = {0, 5, 0, 0, 0, 7};
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    fixture t;
    fixture_init(&t);
    const kiln_text m = sparse_graph(&t, rows[i].rank, rows[i].shape, rows[i].indices);
    assert_int_equal(read_model(&t, m, NULL), rows[i].message ? KILN_BAD_INPUT : KILN_OK);
    if (rows[i].message) assert_non_null(strstr(kiln_diag_message(t.diag, 0), rows[i].message));
    else assert_memory_equal(value_named(&t, t.g, "w")->constant->data, want, sizeof want);
    fixture_deinit(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(external_data_may_lie_beyond_two_gibibytes),
      cmocka_unit_test(names_are_any_bytes),
      cmocka_unit_test(sparse_initializers_are_filled_with_zeros),
      cmocka_unit_test(lists_are_as_many_inputs_as_the_caller_says),
      cmocka_unit_test(lists_are_told_of_and_refused_without_a_length),
      cmocka_unit_test(typed_fields_are_converted),
      cmocka_unit_test(packed_elements_are_unpacked),
      cmocka_unit_test(floats_are_read_packed_and_not),
      cmocka_unit_test(constant_nodes_become_constants),
      cmocka_unit_test(nodes_are_sorted_and_order_is_kept),
      cmocka_unit_test(initializers_among_the_inputs_are_no_inputs),
      cmocka_unit_test(extents_are_named_and_bound),
      cmocka_unit_test(a_replaced_shape_binds_the_named_extents_everywhere),
      cmocka_unit_test(inputs_can_be_bound_as_constants),
      cmocka_unit_test(sub_graphs_capture_values_from_around),
      cmocka_unit_test(functions_are_inlined),
      cmocka_unit_test(external_data_is_mapped_and_checked),
      cmocka_unit_test(external_data_never_leaves_the_folder_of_the_model),
      cmocka_unit_test(raw_data_is_not_copied),
      cmocka_unit_test(tensors_are_read_alone),
      cmocka_unit_test(reports_name_what_the_model_holds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

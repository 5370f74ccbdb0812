// Modules for ranges of dimensions: what their variants share, and that runs of few rows read
// nothing out of bounds.
//
// KILN_CASES and KILN_SEED in the environment run more random models, or others.
#include "analysis/interpret.h"
#include "dynamic/ranges.h"
#include "unit/driver/models.h"
#include "unit/share.h"

// One row, a few and many are tiled otherwise, but all read the weights in one layout.
static void variants_hold_the_weights_once(void **state) {
  (void)state;
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  const kiln_dim_range rows = {"rows", 1, 256, 1};
  const kiln_compile_options o = {
      .struct_size = sizeof o, .ranges = &rows, .n_ranges = 1, .threads = 1};
  save_pair(f.model, "rows");
  if (kiln_model_load(f.model, &o, diag, &m) != KILN_OK ||
      kiln_model_compile_to(m, f.module, diag) != KILN_OK)
    fail_msg("%s", kiln_diag_message(diag, 0));
  const kiln_memory memory = kiln_model_memory(m);
  assert_int_equal(memory.model_weight_bytes, 4 * (WIDE * WIDE + WIDE + WIDE * NARROW));
  if (10 * memory.weight_bytes > 12 * memory.model_weight_bytes)
    fail_msg("weights: must be at most 1.2 times the model's %zu bytes, got %zu",
             (size_t)memory.model_weight_bytes, (size_t)memory.weight_bytes);
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

// --- random models over rows, of which there are LEAST to MOST ---

enum { LEAST = 9, MOST = 23, COLUMNS = 4, MOST_STEPS = 6, LONGEST = 4096 };

typedef struct author {
  fixture t;
  kiln_text g;
  uint64_t seed;
  int n, axis,
      more; // results h0 to hn, whose rows lie along |axis|; how many more than x has the newest
} author;

static int below(author *a, int n) {
  a->seed = a->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((a->seed >> 33) % (uint64_t)n);
}

// Integers for the next step, under a name that ends with its number.
static void give(author *a, const char *name, int n, const int64_t *values) {
  char full[32];
  snprintf(full, sizeof full, "%s%d", name, a->n);
  kiln_text m = tensor(&a->t, full, ONNX_I64, 1, (int64_t[]){n});
  put_bytes(&m, 9, values, (size_t)n * sizeof *values);
  put_message(&a->g, 5, m);
}

static kiln_text attribute(author *a, const char *name, int64_t type) {
  kiln_text m = message(&a->t);
  put_text(&m, 1, name);
  put_int(&m, 20, type);
  return m;
}

static kiln_text along_rows(author *a) {
  kiln_text axis = attribute(a, "axis", 2);
  put_int(&axis, 3, a->axis);
  return axis;
}

// Makes the next result by |op| of what |inputs| says, in which '#' is the step's number; |more|:
// an attribute, or empty.
static void add(author *a, const char *op, const char *inputs, kiln_text more) {
  char names[96], output[16];
  size_t n = 0;
  for (const char *c = inputs; *c; c++)
    n += (size_t)(*c == '#' ? snprintf(names + n, sizeof names - n, "%d", a->n)
                            : snprintf(names + n, sizeof names - n, "%c", *c));
  snprintf(output, sizeof output, "h%d", ++a->n);
  kiln_text made = node(&a->t, op, output, names, output);
  if (more.n > 0) put_message(&made, 5, more);
  put_message(&a->g, 1, made);
}

static kiln_text none(author *a) { return message(&a->t); }

static void slice(author *a, int64_t begin, int64_t end, int64_t stride) {
  give(a, "b", 1, &begin);
  give(a, "e", 1, &end);
  give(a, "a", 1, (int64_t[]){a->axis});
  give(a, "s", 1, &stride);
  add(a, "Slice", "h#,b#,e#,a#,s#", none(a));
}

static void reverse(author *a) {
  const int cut = below(a, 3);
  slice(a, -1 - cut, -LONGEST, -1);
  a->more -= cut;
}

static void cut(author *a) {
  const int front = below(a, 3), back = below(a, 3);
  slice(a, front, back ? -back : LONGEST, 1);
  a->more -= front + back;
}

static void pad(author *a) {
  static const char *const modes[] = {"reflect", "edge", "constant"};
  int64_t pads[6] = {0};
  const int rank = a->axis + 2, before = below(a, 3), behind = below(a, 3);
  pads[a->axis] = before;
  pads[rank + a->axis] = behind;
  give(a, "p", 2 * rank, pads);
  kiln_text mode = attribute(a, "mode", 3);
  put_text(&mode, 4, modes[below(a, 3)]);
  add(a, "Pad", "h#,p#", mode);
  a->more += before + behind;
}

// The newest and rows of a constant, in either order.
static void concat(author *a) {
  enum { BESIDE = 3 };
  char name[16];
  const int64_t shape[] = {a->axis ? 2 : BESIDE, a->axis ? BESIDE : COLUMNS, COLUMNS};
  snprintf(name, sizeof name, "c%d", a->n);
  put_weights(&a->t, &a->g, name, a->axis + 2, shape);
  add(a, "Concat", below(a, 2) ? "h#,c#" : "c#,h#", along_rows(a));
  a->more += BESIDE;
}

// One of the last rows, added to all.
static void add_last(author *a) {
  const int64_t last[] = {-1 - below(a, 4)};
  char inputs[32];
  snprintf(inputs, sizeof inputs, "h%d,h#", a->n);
  give(a, "i", 1, last);
  add(a, "Gather", "h#,i#", along_rows(a));
  add(a, "Add", inputs, none(a));
}

static void product(author *a) {
  char name[16];
  snprintf(name, sizeof name, "w%d", a->n);
  put_weights(&a->t, &a->g, name, 2, (int64_t[]){COLUMNS, COLUMNS});
  add(a, "MatMul", "h#,w#", none(a));
}

static void soften(author *a) { add(a, "Softmax", "h#", along_rows(a)); }
static void clip(author *a) { add(a, "Relu", "h#", none(a)); }

static void write_model(author *a, const char *path) {
  static void (*const steps[])(author *) = {reverse, reverse,  cut,     pad,    pad,
                                            concat,  add_last, product, soften, clip};
  char rows[32];
  fixture_init(&a->t);
  a->g = message(&a->t);
  a->axis = below(a, 2);
  put_text(&a->g, 2, "rows");
  add(a, "Identity", "x", none(a));
  for (int k = 2 + below(a, MOST_STEPS - 1); k > 0; k--)
    if (a->more > 3 - LEAST) steps[below(a, (int)KILN_LEN(steps))](a);
  snprintf(rows, sizeof rows, "%sr,%d", a->axis ? "2," : "", COLUMNS);
  put_message(&a->g, 11, value_info(&a->t, "x", ONNX_F32, rows));
  snprintf(rows, sizeof rows, "h%d", a->n);
  put_message(&a->g, 12, value_info(&a->t, rows, ONNX_F32, NULL));
  save(path, model(&a->t, 8, a->g));
  fixture_deinit(&a->t);
}

// Runs |part| as its kernels do, to the ends of its largest values, for |rows| rows: the
// interpreter detects indices out of bounds.
static void check_part(kiln_model *m, const kiln_bucket *part, int64_t rows, uint64_t seed) {
  kiln_ctx *cx = &m->core->cx;
  const kiln_program *p = part->prog;
  const kiln_tensor *x = p->tensors.data[p->inputs.data[0]];
  kiln_interpreter *in = NULL;
  float *data = calloc((size_t)kiln_tensor_elems(x), sizeof *data);
  assert_non_null(data);
  assert_int_equal(kiln_interpreter_create(cx, p, &in), KILN_OK);
  kiln_interpreter_bind(in, x->id, data);
  kiln_interpreter_bind(in, p->inputs.data[p->inputs.n - 1], &rows);
  cx->diag = kiln_diag_create();
  if (kiln_interpreter_run(in) != KILN_OK)
    fail_msg("seed %llu, %d rows: %s", (unsigned long long)seed, (int)rows,
             kiln_diag_message(cx->diag, 0));
  kiln_diag_destroy(cx->diag);
  cx->diag = NULL;
  kiln_interpreter_destroy(in);
  free(data);
}

// Gives whether the model may have a range.
static bool check_model(const char *path, uint64_t seed) {
  kiln_model *m = NULL;
  const kiln_dim_range range = {"r", LEAST, MOST, 1};
  const kiln_compile_options o = {.struct_size = sizeof o, .ranges = &range, .n_ranges = 1};
  kiln_diag *diag = kiln_diag_create();
  const kiln_status st = kiln_model_load(path, &o, diag, &m);
  if (st != KILN_OK && st != KILN_UNSUPPORTED)
    fail_msg("seed %llu: %s", (unsigned long long)seed, kiln_diag_message(diag, 0));
  for (int i = 0; st == KILN_OK && i < m->ranges->n_buckets; i++) {
    const kiln_bucket *part = &m->ranges->buckets[i];
    for (int64_t rows = part->least[0]; rows <= part->most[0]; rows++)
      check_part(m, part, rows, seed);
  }
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  return st == KILN_OK;
}

static void what_no_run_needs_is_made_of_elements_that_are_there(void **state) {
  (void)state;
  const uint64_t first = test_asked("KILN_SEED", 1), n = test_asked("KILN_CASES", 100);
  folder f = folder_make();
  uint64_t taken = 0;
  for (uint64_t seed = first; seed < first + n; seed++) {
    author a = {.seed = seed * 7919 + 1};
    write_model(&a, f.model);
    taken += check_model(f.model, seed);
  }
  folder_remove(&f);
  if (4 * taken < 3 * n)
    fail_msg("of %d models most must have a range, got %d", (int)n, (int)taken);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(variants_hold_the_weights_once),
      cmocka_unit_test(what_no_run_needs_is_made_of_elements_that_are_there)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Every dtype through scheduled and compiled kernels at ragged extents, on every machine whose code
// runs here, against the reference interpreter.
#include "driver/pipeline.h"
#include "unit/cpu/rig.h"
#include "unit/share.h"

#include "analysis/interpret.h"
#include "module/build.h"
#include "verify/compare.h"

enum { MAX_TENSORS = 32, MAX_ARGS = 64, TEXT_BYTES = 4096 };

static const kiln_dtype floats[] = {KILN_F16, KILN_BF16, KILN_F32, KILN_F64};
static const kiln_dtype integers[] = {KILN_I8, KILN_I16, KILN_I32, KILN_I64,
                                      KILN_U8, KILN_U16, KILN_U32, KILN_U64};

static const int64_t extents[][2] = {{1, 1}, {3, 1}, {1, 19}, {7, 37}, {33, 130}};

// In the rows, $ is the dtype, @ the dtype of sums ($ but for halves), A and B the extents, L the
// lowest value.
typedef struct row {
  const char *name, *text;
} row;

static const row any_rows[] = {
    {"chain", "p { in $ X(A, B) in $ V(B) temp $ T(A, B) temp $ U(A, B) out $ Y(A, B)"
              " T(i0:A, i1:B) = X(i0, i1) * V(i1) U(i0:A, i1:B) = max(T(i0, i1), 1$) - X(i0, i1)"
              " Y(i0:A, i1:B) = U(i0, i1) < X(i0, i1) ? U(i0, i1) + T(i0, i1) : V(i1) }"},
    {"matmul", "p { in $ X(A, 21) in $ W(21, B) in $ V(B) temp @ C(A, B) out $ Y(A, B)"
               " C(i0:A, i1:B | r0:21) +=! @(X(i0, r0)) * @(W(r0, i1))"
               " Y(i0:A, i1:B) = $(C(i0, i1) + @(V(i1))) }"},
    {"linear", "p { in $ X(A, 21) const $ W(B, 21) = ... temp @ C(A, B) out $ Y(A, B)"
               " C(i0:A, i1:B | r0:21) +=! @(X(i0, r0)) * @(W(i1, r0))"
               " Y(i0:A, i1:B) = $(max(C(i0, i1), 0@)) }"},
    {"convolution", "p { in $ X(1, 3, A, B) const $ W(20, 3, 3, 3) = ... temp $ P(1, 3, A+2, B+2)"
                    " temp @ C(1, 20, A, B) out $ Y(1, 20, A, B)"
                    " P(i0:1, i1:3, i2:A+2, i3:B+2) = i2 >= 1 && i2 < A+1 && i3 >= 1 && i3 < B+1"
                    " ? X(i0, i1, i2 - 1, i3 - 1) : 0$"
                    " C(i0:1, i1:20, i2:A, i3:B | r0:3, r1:3, r2:3) +=!"
                    " @(P(i0, r0, i2 + r1, i3 + r2)) * @(W(i1, r0, r1, r2))"
                    " Y(i0:1, i1:20, i2:A, i3:B) = $(C(i0, i1, i2, i3)) }"},
    {"sums", "p { in $ X(A, B) temp @ S(A) temp @ T(B) out $ Y(A) out $ Z(B)"
             " S(i0:A | r0:B) +=! @(X(i0, r0)) T(i0:B | r0:A) +=! @(X(r0, i0))"
             " Y(i0:A) = $(S(i0)) Z(i0:B) = $(T(i0)) }"},
    {"extremes", "p { in $ X(A, B) out $ Y(A) out $ Z(B) out $ W()"
                 " Y(i0:A | r0:B) max=! X(i0, r0) Z(i0:B | r0:A) min=! X(r0, i0)"
                 " W( | r0:A, r1:B) max=! X(r0, r1) }"},
    {"normalisation", "p { in $ X(A, B) temp $ M(A) temp $ E(A, B) temp @ S(A) out $ Y(A, B)"
                      " M(i0:A | r0:B) max=! X(i0, r0) E(i0:A, i1:B) = X(i0, i1) - M(i0)"
                      " S(i0:A | r0:B) +=! @(E(i0, r0)) Y(i0:A, i1:B) = $(@(E(i0, i1)) - S(i0)) }"},
    {"pool", "p { in $ X(2, A, B) temp $ P(2, A+1, B+1) out $ Y(2, (A+1)/2, (B+1)/2)"
             " P(i0:2, i1:A+1, i2:B+1) = i1 < A && i2 < B ? X(i0, i1, i2) : L"
             " Y(i0:2, i1:(A+1)/2, i2:(B+1)/2 | r0:2, r1:2) max=! P(i0, 2*i1 + r0, 2*i2 + r1) }"},
    {"transpose", "p { in $ X(5, A, B) out $ Y(B, 5, A) Y(i0:B, i1:5, i2:A) = X(i1, i2, i0) }"},
    {"gather", "p { in $ X(7, B) in i64 I(A) in i32 J(A) out $ Y(A, B) out $ Z(A)"
               " Y(i0:A, i1:B) = X(I(i0), i1) Z(i0:A) = X(i64(J(i0)), B - 1) }"},
    {"reverse", "p { in $ X(A, B) in $ V(2, B) out $ Y(A+2, B)"
                " Y(i0:A+2, i1:B) = i0 < A ? X(A - 1 - i0, B - 1 - i1) : V(i0 - A, i1) }"},
};

static const row float_rows[] = {
    {"functions", "p { in $ X(A, B) out $ Y(A, B) out $ Z(A, B)"
                  " Y(i0:A, i1:B) = exp(X(i0, i1)) * tanh(X(i0, i1)) + sqrt(abs(X(i0, i1)))"
                  " Z(i0:A, i1:B) = floor(X(i0, i1) * 4$) / 4$ + erf(X(i0, i1)) }"},
    {"softmax", "p { in $ X(A, B) temp $ M(A) temp @ E(A, B) temp @ S(A) out $ Y(A, B)"
                " M(i0:A | r0:B) max=! X(i0, r0)"
                " E(i0:A, i1:B) = exp(@(X(i0, i1)) - @(M(i0))) S(i0:A | r0:B) +=! E(i0, r0)"
                " Y(i0:A, i1:B) = $(E(i0, i1) / S(i0)) }"},
};

static const row integer_rows[] = {
    {"divisions", "p { in $ X(A, B) in $ V(B) out $ Y(A, B) out $ Z(A, B)"
                  " Y(i0:A, i1:B) = X(i0, i1) / V(i1) + X(i0, i1) % 7$"
                  " Z(i0:A, i1:B) = X(i0, i1) % V(i1) - X(i0, i1) / 5$ }"},
};

static const row bool_rows[] = {
    {"logic", "p { in bool X(A, B) in bool V(B) out bool Y(A, B) out bool Z(A) out bool W(B)"
              " Y(i0:A, i1:B) = X(i0, i1) && V(i1) || !X(i0, i1)"
              " Z(i0:A | r0:B) and=! X(i0, r0) W(i0:B | r0:A) or=! X(r0, i0) }"},
    {"moves", "p { in bool X(5, A, B) in i64 I(A) out bool Y(B, 5, A) out bool Z(A, B)"
              " Y(i0:B, i1:5, i2:A) = X(i1, i2, i0) Z(i0:A, i1:B) = X(I(i0) % 5, 0, i1) }"},
    {"choices", "p { in bool X(A, B) in f32 V(A, B) out f32 Y(A, B) out bool Z(A, B)"
                " Y(i0:A, i1:B) = X(i0, i1) ? V(i0, i1) : 2f32"
                " Z(i0:A, i1:B) = V(i0, i1) > 0f32 && X(i0, i1) }"},
};

static const row code_rows[] = {
    {"moves", "p { in $ X(5, A, B) in i64 I(A) out $ Y(B, 5, A) out $ Z(A+2, B)"
              " Y(i0:B, i1:5, i2:A) = X(i1, i2, i0)"
              " Z(i0:A+2, i1:B) = i0 < A ? X(I(i0) % 5, A - 1 - i0, B - 1 - i1) : 1$ }"},
    // all codes, and all that is rounded to them, as f32 and f64 have it
    {"weights", "p { in f32 X(A, 21) const $ W(21, B) = ... temp f32 C(A, B) out f32 Y(A, B)"
                " C(i0:A, i1:B | r0:21) +=! X(i0, r0) * f32(W(r0, i1))"
                " Y(i0:A, i1:B) = f32(C(i0, i1)) }"},
    {"bits",
     "p { in u32 X(A, B) in u64 V(A, B) in $ Z(A, B) out $ Y(A, B) out $ W(A, B) out u8 U(A, B)"
     " out f64 T(A, B)"
     " Y(i0:A, i1:B) = $(bitcast_f32(X(i0, i1))) W(i0:A, i1:B) = $(bitcast_f64(V(i0, i1)))"
     " U(i0:A, i1:B) = bitcast_u8(Z(i0, i1)) T(i0:A, i1:B) = f64(Z(i0, i1)) }"},
    {"halves",
     "p { in u16 X(A, B) out f16 Y(A, B) out u16 Z(A, B) out $ W(A, B) Y(i0:A, i1:B) = f16($(X(i0, "
     "i1)))"
     " Z(i0:A, i1:B) = bitcast_u16(bf16(f32(X(i0, i1)))) W(i0:A, i1:B) = $(i64(X(i0, i1)) - 99) }"},
};

// --- one program ---

typedef struct run {
  rig r;
  const char *text;
  kiln_program *prog;
  kiln_kernels kernels;
  void *owned[MAX_TENSORS], *want[MAX_TENSORS]; // data of inputs and constants, results; malloc'ed
  char *memory[MAX_TENSORS];
  uint64_t random;
} run;

static uint64_t next_random(run *u) {
  u->random = u->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return u->random ^ u->random >> 29;
}

static size_t bytes_of(const kiln_tensor *t) {
  return (size_t)kiln_tensor_elems(t) * (size_t)kiln_dtype_bytes(t->dtype);
}

// Floats in [-1, 1), bools, and integers of all bits but for indices.
static void *make_data(run *u, const kiln_tensor *t) {
  const char name = kiln_symbol_text(&u->r.cx, t->name)[0];
  const bool is_index = name == 'I' || name == 'J';
  void *data = malloc(bytes_of(t) + 1);
  assert_non_null(data);
  for (int64_t i = 0; i < kiln_tensor_elems(t); i++) {
    const uint64_t x = next_random(u);
    if (kiln_dtype_is_float(t->dtype))
      kiln_element_set(t->dtype, data, i, (double)(int64_t)(x % 2000) / 1000 - 1);
    else if (is_index) kiln_element_set_int(t->dtype, data, i, (int64_t)(x % 7));
    else kiln_element_set_int(t->dtype, data, i, (int64_t)(t->dtype == KILN_BOOL ? x & 1 : x));
  }
  return data;
}

static void refer(run *u, void **inputs) {
  kiln_interpreter *in = NULL;
  assert_int_equal(kiln_interpreter_create(&u->r.cx, u->prog, &in), KILN_OK);
  for (int t = 0; t < u->prog->tensors.n; t++) {
    kiln_tensor *x = u->prog->tensors.data[t];
    if (x->role == KILN_INPUT) kiln_interpreter_bind(in, t, inputs[t]);
  }
  if (kiln_interpreter_run(in) != KILN_OK) rig_fail(&u->r, u->text);
  for (int i = 0; i < u->prog->outputs.n; i++) {
    const int t = u->prog->outputs.data[i];
    const size_t bytes = bytes_of(u->prog->tensors.data[t]);
    u->want[i] = malloc(bytes + 1);
    assert_non_null(u->want[i]);
    memcpy(u->want[i], kiln_interpreter_data(in, t), bytes);
  }
  kiln_interpreter_destroy(in);
}

// Parses, fills and refers; then schedules, and puts the data where the kernels want it.
static void prepare(run *u, const char *text) {
  void *inputs[MAX_TENSORS] = {0};
  const kiln_tile_options options = {.search.n_threads = 2};
  u->text = text;
  if (kiln_program_parse(&u->r.cx, text, &u->prog) != KILN_OK ||
      kiln_program_verify(&u->r.cx, u->prog) != KILN_OK)
    rig_fail(&u->r, text);
  assert_true(u->prog->tensors.n <= MAX_TENSORS);
  for (int t = 0; t < u->prog->tensors.n; t++) {
    kiln_tensor *x = u->prog->tensors.data[t];
    if (x->role != KILN_INPUT && x->role != KILN_CONST) continue;
    inputs[t] = make_data(u, x);
    x->data = inputs[t];
    x->bytes = bytes_of(x);
  }
  refer(u, inputs);
  if (kiln_pipeline_tile(&u->r.cx, u->prog, &u->r.machine, &options, NULL, &u->kernels) != KILN_OK)
    rig_fail(&u->r, text);
  assert_true(u->prog->tensors.n <= MAX_TENSORS);
  for (int t = 0; t < u->prog->tensors.n; t++) {
    const kiln_tensor *x = u->prog->tensors.data[t];
    if (x->inside) continue;
    if (x->data) u->owned[t] = (void *)(uintptr_t)x->data;
    else u->owned[t] = malloc(kiln_storage_bytes(x) + 1);
    assert_non_null(u->owned[t]);
    if (!x->data) memset(u->owned[t], 0xff, kiln_storage_bytes(x));
  }
  for (int t = 0; t < u->prog->tensors.n; t++) {
    const kiln_tensor *x = u->prog->tensors.data[t];
    int64_t offset = 0;
    for (; x->inside; x = x->inside) offset += x->offset;
    u->memory[t] = (char *)u->owned[x->id] + offset * kiln_dtype_bytes(x->dtype);
  }
}

static void compile(run *u, const char **symbols) {
  const int n = u->kernels.kernels.n;
  kiln_loops *loops[MAX_ARGS];
  kiln_object objects[MAX_ARGS] = {0};
  int n_objects = 0;
  const kiln_cpu_options options = {.n_threads = 1};
  assert_true(n <= MAX_ARGS);
  for (int i = 0; i < n; i++) {
    loops[i] = u->kernels.kernels.data[i]->loops;
    symbols[i] = kiln_symbol_text(&u->r.cx, u->kernels.kernels.data[i]->name);
  }
  if (kiln_cpu_compile(&u->r.cx, &u->r.machine, n, loops, symbols, &options, &n_objects, objects) !=
          KILN_OK ||
      kiln_jit_create(&u->r.cx, &u->r.machine, n_objects, objects, &u->r.jit) != KILN_OK)
    rig_fail(&u->r, u->text);
  for (int i = 0; i < n_objects; i++) kiln_object_deinit(&objects[i]);
}

static void run_nests(run *u, const kiln_loops *loops, const char *symbol, char *const *args) {
  for (int j = 0; j < kiln_kernel_nests(loops); j++) {
    char name[128];
    nest_fn f = NULL;
    snprintf(name, sizeof name, "%s_%d", symbol, j);
    void *p = NULL;
    (void)!kiln_jit_find(u->r.jit, name, NULL, &p);
    assert_non_null(p);
    memcpy(&f, &p, sizeof f);
    const int64_t extent = kiln_nest_extent(loops, j);
    if (extent > 1) f(args, 0, extent / 2); // as two threads would
    f(args, extent > 1 ? extent / 2 : 0, extent);
  }
}

static void run_launch(run *u, const kiln_launch *l, const char *symbol) {
  const kiln_kernel *k = u->kernels.kernels.data[l->kernel];
  char *args[MAX_ARGS] = {0}, *owned[MAX_ARGS] = {0};
  int n = 0, param = 0;
  for (int i = 0; i < k->loops->buffers.n; i++) {
    const kiln_buffer *b = k->loops->buffers.data[i];
    if (!b || (b->scope != KILN_SCOPE_PARAM && b->scope != KILN_SCOPE_WORKSPACE)) continue;
    const size_t bytes = (size_t)kiln_buffer_elems(b) * (size_t)kiln_dtype_bytes(b->dtype);
    const kiln_argument a =
        b->scope == KILN_SCOPE_PARAM ? l->args[param++] : (kiln_argument){-1, 0};
    const int t = a.tensor;
    if (t < 0 || b->pack) {
      owned[n] = aligned_alloc(64, (bytes + 64) / 64 * 64);
      assert_non_null(owned[n]);
      memset(owned[n], t < 0 ? 0xff : 0, bytes);
    }
    if (b->pack) {
      const kiln_weight w = {.tensor = u->prog->tensors.data[t],
                             .buffer = b,
                             .pack = b->pack,
                             .view = k->prog->tensors.data[b->pack->source]};
      assert_int_equal(kiln_weight_fill(&u->r.cx, &w, owned[n]), KILN_OK);
    }
    args[n] = owned[n] ? owned[n] : u->memory[t] + a.offset * kiln_dtype_bytes(b->dtype);
    n++;
  }
  run_nests(u, k->loops, symbol, args);
  for (int i = 0; i < n; i++) free(owned[i]);
}

// Between statements the reference rounds halves, which a kernel does not inside of it.
static double tolerance(kiln_dtype t) {
  return t == KILN_F64 ? 1e-12 : t == KILN_F16 ? 4e-3 : t == KILN_BF16 ? 3e-2 : 1e-5;
}

static void check_output(run *u, int output) {
  const kiln_tensor *t = u->prog->tensors.data[u->prog->outputs.data[output]];
  int64_t strides[KILN_MAX_RANK];
  kiln_difference d = {0};
  kiln_tensor_strides(t, strides); // outputs are row-major
  const double r = tolerance(t->dtype);
  kiln_compare(t, u->memory[t->id], strides, u->want[output], r, r, false, &d);
  if (!kiln_dtype_is_float(t->dtype))
    d.wrong += memcmp(u->memory[t->id], u->want[output], bytes_of(t)) != 0;
  if (d.wrong)
    fail_msg("output %d: %lld of %lld elements are wrong, by up to %g, in %s", output,
             (long long)d.wrong, (long long)kiln_tensor_elems(t), d.max_abs, u->text);
}

static void check_text(const char *machine, const char *text) {
  run *u = calloc(1, sizeof *u);
  const char *symbols[MAX_ARGS];
  assert_non_null(u);
  rig_init(&u->r, machine);
  u->random = 11;
  prepare(u, text);
  compile(u, symbols);
  for (int i = 0; i < u->kernels.launches.n; i++) {
    const kiln_launch *l = &u->kernels.launches.data[i];
    run_launch(u, l, symbols[l->kernel]);
  }
  for (int i = 0; i < u->prog->outputs.n; i++) check_output(u, i);
  for (int t = 0; t < MAX_TENSORS; t++) free(u->owned[t]), free(u->want[t]);
  rig_deinit(&u->r);
  free(u);
}

// --- all of them ---

static int64_t lowest(kiln_dtype t) {
  const int bits = 8 * kiln_dtype_bytes(t);
  const bool is_signed = t == KILN_I8 || t == KILN_I16 || t == KILN_I32 || t == KILN_I64;
  return is_signed ? INT64_MIN >> (64 - bits) : 0;
}

// The row's text with dtypes and extents in it. An extent may have +1 or +2 behind it, or stand in
// (A+1)/2.
static void spell(const row *w, kiln_dtype t, int64_t a, int64_t b, char *out) {
  const char *dtype = kiln_dtype_text(t);
  const char *sum = t == KILN_F16 || t == KILN_BF16 ? "f32" : dtype;
  size_t n = 0;
  for (const char *c = w->text; *c;) {
    const bool half = !strncmp(c, "(A+1)/2", 7) || !strncmp(c, "(B+1)/2", 7);
    const bool letter = c[0] == 'A' || c[0] == 'B';
    char *to = out + n;
    const size_t room = TEXT_BYTES - n;
    if (half) {
      n += (size_t)snprintf(to, room, "%lld", (long long)((c[1] == 'A' ? a : b) + 1) / 2);
      c += 7;
    } else if (letter) {
      const bool more = c[1] == '+';
      const int64_t extent = (c[0] == 'A' ? a : b) + (more ? c[2] - '0' : 0);
      n += (size_t)snprintf(to, room, "%lld", (long long)extent);
      c += more ? 3 : 1;
    } else if (*c == '$' || *c == '@') {
      const bool suffix = t == KILN_I64 && n > 0 && to[-1] >= '0' && to[-1] <= '9';
      if (!suffix) n += (size_t)snprintf(to, room, "%s", *c == '$' ? dtype : sum);
      c++; // numbers of i64 have none
    } else if (*c == 'L') {
      n += kiln_dtype_is_float(t) ? (size_t)snprintf(to, room, "-inf%s", dtype)
                                  : (size_t)snprintf(to, room, "%lld%s", (long long)lowest(t),
                                                     t == KILN_I64 ? "" : dtype);
      c++;
    } else {
      *to = *c++;
      n++;
    }
    assert_true(n + 1 < TEXT_BYTES);
  }
  out[n] = 0;
}

static void check_rows(int n_rows, const row *rows, int n_dtypes, const kiln_dtype *dtypes) {
  static const char *const machines[] = {NULL, "avx2"};
  char text[TEXT_BYTES];
  uint64_t n = 0;
  for (size_t m = 0; m < KILN_LEN(machines); m++)
    for (int t = 0; t < n_dtypes && rig_runs(machines[m]); t++)
      for (int i = 0; i < n_rows; i++)
        for (size_t e = 0; e < KILN_LEN(extents); e++) {
          if (!test_takes(n++)) continue;
          spell(&rows[i], dtypes[t], extents[e][0], extents[e][1], text);
          check_text(machines[m], text);
        }
}

static void floats_of_every_width(void **state) {
  (void)state;
  check_rows(KILN_LEN(any_rows), any_rows, KILN_LEN(floats), floats);
  check_rows(KILN_LEN(float_rows), float_rows, KILN_LEN(floats), floats);
}

static void integers_of_every_width(void **state) {
  (void)state;
  check_rows(KILN_LEN(any_rows), any_rows, KILN_LEN(integers), integers);
  check_rows(KILN_LEN(integer_rows), integer_rows, KILN_LEN(integers), integers);
}

static void bools(void **state) {
  static const kiln_dtype dtype = KILN_BOOL;
  (void)state;
  check_rows(KILN_LEN(bool_rows), bool_rows, 1, &dtype);
}

// Floats lie in [-1, 1): doubled and made positive they fit every integer.
static void check_cast(kiln_dtype from, kiln_dtype to) {
  char text[TEXT_BYTES];
  const char *f = kiln_dtype_text(from), *t = kiln_dtype_text(to);
  const bool shrinks = kiln_dtype_is_float(from) && kiln_dtype_is_int(to);
  if (shrinks)
    snprintf(text, sizeof text,
             "p { in %s X(5, 67) out %s Y(5, 67) Y(i0:5, i1:67) = %s(abs(X(i0, i1)) * 3%s) }", f, t,
             t, f);
  else
    snprintf(text, sizeof text,
             "p { in %s X(5, 67) out %s Y(5, 67) Y(i0:5, i1:67) = %s(X(i0, i1)) }", f, t, t);
  check_text(NULL, text);
}

static int all_codes(kiln_dtype *out) {
  int n = 0;
  for (int t = 0; t < KILN_N_DTYPES; t++)
    if (kiln_dtype_is_code((kiln_dtype)t)) out[n++] = (kiln_dtype)t;
  return n;
}

static void codes(void **state) {
  kiln_dtype types[KILN_N_DTYPES];
  (void)state;
  check_rows(KILN_LEN(code_rows), code_rows, all_codes(types), types);
}

static void casts_between_all(void **state) {
  static const kiln_dtype all[] = {KILN_F16, KILN_BF16, KILN_F32, KILN_F64, KILN_I8,
                                   KILN_I16, KILN_I32,  KILN_I64, KILN_U8,  KILN_U16,
                                   KILN_U32, KILN_U64,  KILN_BOOL};
  (void)state;
  kiln_dtype types[KILN_N_DTYPES];
  const int n = all_codes(types);
  for (size_t i = 0; i < KILN_LEN(all); i++) {
    for (size_t j = 0; j < KILN_LEN(all); j++)
      if (i != j && test_takes(i << 8 | j)) check_cast(all[i], all[j]);
    for (int j = 0; j < n; j++) {
      if (!test_takes(i << 8 | 128 | (unsigned)j)) continue;
      check_cast(all[i], types[j]);
      check_cast(types[j], all[i]);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(floats_of_every_width), cmocka_unit_test(integers_of_every_width),
      cmocka_unit_test(bools), cmocka_unit_test(codes), cmocka_unit_test(casts_between_all)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

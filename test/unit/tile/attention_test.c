// Attention: recognition; each candidate's results equal the reference's; and memory of a task does
// not grow with the number of keys.
#include "driver/pipeline.h"
#include "unit/schedule/kernel.h"

#include "fuse/kernel.h"
#include "polyhedral/polyhedral.h"
#include "template/search.h"
#include "template/form/attention.h"
#include "unit/share.h"
#include "unit/tile/launches.h"

static const kiln_machine machines[] = {
    {.target = &kiln_target_cpu,
     .vector_bytes = 64,
     .n_vector_regs = 32,
     .l1_bytes = 32 << 10,
     .l2_bytes = 1 << 20,
     .n_cores = 2},
    {.target = &kiln_target_cpu,
     .vector_bytes = 32,
     .n_vector_regs = 16,
     .l1_bytes = 32 << 10,
     .l2_bytes = 1 << 18,
     .n_cores = 2},
    {.target = &kiln_target_cpu,
     .vector_bytes = 16,
     .n_vector_regs = 32,
     .l1_bytes = 32 << 10,
     .l2_bytes = 1 << 18,
     .n_cores = 2},
};

enum { CANDIDATES = 6, SOME_CANDIDATES = 2 };

// with what the weights are divided by, or multiplied by its reciprocal: P being |p|
#define SOFTMAX_BY(h, m, n, d, z, w, p)                                                            \
  "M(i0:" #h ", i1:" #m " | r0:" #n ") max=! " z " E(i0:" #h ", i1:" #m ", i2:" #n ") = exp(" w    \
  " - M(i0, i1)) "                                                                                 \
  "S(i0:" #h ", i1:" #m " | r0:" #n ") +=! E(i0, i1, r0) "                                         \
  "P(i0:" #h ", i1:" #m ", i2:" #n ") = " p " O(i0:" #h ", i1:" #m ", i2:" #d " | r0:" #n          \
  ") +=! P(i0, i1, r0) * V(i0, r0, i2) "
#define SOFTMAX(h, m, n, d, z, w) SOFTMAX_BY(h, m, n, d, z, w, "E(i0, i1, i2) / S(i0, i1)")
#define TEMPS(h, m, n, d)                                                                          \
  "temp f32 X(" #h ", " #m ", " #n ") temp f32 Z(" #h ", " #m ", " #n ") temp f32 M(" #h ", " #m   \
  ") temp f32 E(" #h ", " #m ", " #n ") temp f32 S(" #h ", " #m ") temp f32 P(" #h ", " #m ", " #n \
  ") temp f32 O(" #h ", " #m ", " #d ") "
#define PRODUCTS(h, m, n, r)                                                                       \
  "X(i0:" #h ", i1:" #m ", i2:" #n " | r0:" #r ") +=! Q(i0, i1, r0) * K(i0, i2, r0) "
#define IN(h, m, n, r, d)                                                                          \
  "p { in f32 Q(" #h ", " #m ", " #r ") in f32 K(" #h ", " #n ", " #r ") in f32 V(" #h ", " #n     \
  ", " #d ") in f32 B(" #n ") in f32 G(" #m ", " #n ") in f32 F(800) out f32 Y(" #m ", " #h        \
  ", " #d ") "
#define OUT(h, m, d) "Y(i0:" #m ", i1:" #h ", i2:" #d ") = O(i1, i0, i2) }"
// with a scale and a mask by key and by row and key; Z being the map
#define MAPPED_BY(h, m, n, r, d, map, p)                                                           \
  IN(h, m, n, r, d)                                                                                \
  TEMPS(h, m, n, d)                                                                                \
  PRODUCTS(h, m, n, r)                                                                             \
  "Z(i0:" #h ", i1:" #m ", i2:" #n ") = " map                                                      \
  " " SOFTMAX_BY(h, m, n, d, "Z(i0, i1, r0)", "Z(i0, i1, i2)", p) OUT(h, m, d)
#define MAPPED(h, m, n, r, d, map) MAPPED_BY(h, m, n, r, d, map, "E(i0, i1, i2) / S(i0, i1)")

static const char *const attentions[] = {
    MAPPED(2, 20, 40, 8, 32, "X(i0, i1, i2) * 0.35f32 + B(i2)"),
    // masks by row and key: a matrix, and the same in a row
    MAPPED(2, 20, 40, 8, 32, "X(i0, i1, i2) * 0.35f32 + G(i1, i2)"),
    MAPPED(3, 20, 40, 8, 16, "X(i0, i1, i2) + F(i1 * 40 + i2)"),
    MAPPED(2, 17, 384, 8, 16, "i2 < 130 ? -inff32 : X(i0, i1, i2) + G(i1, i2)"),
    // causal, rows that do not divide, a head that is narrower than a vector
    MAPPED(2, 37, 37, 5, 6, "i2 > i1 ? -inff32 : X(i0, i1, i2)"),
    // several chunks; the first is masked, and every fifth row
    MAPPED(1, 17, 384, 8, 16, "i2 < 140 || i1 % 5 == 0 ? -inff32 : X(i0, i1, i2)"),
    // scores of thousands
    MAPPED(1, 16, 640, 4, 20, "X(i0, i1, i2) * 10000f32"),
    // more keys than a chunk, a prime number of them
    MAPPED(2, 20, 347, 4, 6, "i2 > 342 ? X(i0, i1, i2) * 3f32 : -inff32"),
    MAPPED(1, 16, 331, 4, 16, "X(i0, i1, i2) + B(i2)"),
    // by the reciprocal of the sum, on either side
    MAPPED_BY(1, 16, 331, 4, 16, "X(i0, i1, i2) + B(i2)", "E(i0, i1, i2) * (1f32 / S(i0, i1))"),
    MAPPED_BY(2, 17, 384, 8, 16, "i2 < 130 ? -inff32 : X(i0, i1, i2)",
              "1f32 / S(i0, i1) * E(i0, i1, i2)"),
};

// Whether vectors along |v| of the store, and of loads from the kernel's own memory, are whole
// vectors, without access lane by lane. This is impossible for a store to a result with neither
// rows nor values innermost (|is_apart|).
static bool is_whole(test_kernel *k, const kiln_loops *l, const kiln_loop *store, kiln_symbol v,
                     bool is_apart) {
  const kiln_buffer *to = l->buffers.data[store->buffer];
  const kiln_loads loads = kiln_loads_of(&k->cx, &k->cx.scratch, store->value);
  if (to->scope == KILN_SCOPE_PARAM)
    return is_apart || kiln_poly_stride(&k->cx, to, store->index, v) == 1;
  bool is = kiln_poly_stride(&k->cx, to, store->index, v) == 1;
  for (int i = 0; i < loads.n; i++) {
    const kiln_buffer *from = l->buffers.data[loads.data[i]->u.tensor];
    const int64_t stride = kiln_poly_stride(&k->cx, from, loads.data[i]->args, v);
    is &= from->scope == KILN_SCOPE_PARAM || stride == 0 || stride == 1;
  }
  return is;
}

static void check_vectors(test_kernel *k, const kiln_loops *l, const kiln_loop *at, kiln_symbol v,
                          bool is_apart) {
  for (; at; at = at->next) {
    if (at->kind == KILN_LOOP_STORE && v && !is_whole(k, l, at, v, is_apart))
      fail_msg("along %s lanes are apart:\n%s", kiln_symbol_text(&k->cx, v), kernel_text(k, l));
    const bool is_vector = at->kind == KILN_LOOP_FOR && at->how == KILN_VECTORIZED;
    check_vectors(k, l, at->body, is_vector ? at->var : v, is_apart);
  }
}

// The loops of all candidates that are lowered, in the simulator.
static void check(const char *text, const kiln_machine *m, int n_candidates, bool is_apart) {
  test_kernel k;
  kiln_tile_candidates c;
  const kiln_tile_search_options options = {
      .machine = m, .n_threads = 2, .n_lowered = n_candidates};
  kiln_attention_form form;
  kernel_open(&k, text, 5);
  assert_true(kiln_attention_is(&k.cx, k.prog, &form));
  if (kiln_tile_search(&k.cx, KILN_GROUP_ATTENTION, k.prog, NULL, &options, &c) != KILN_OK)
    fail_msg("%s", kernel_message(&k));
  int n = 0;
  for (int i = 0; i < c.n; i++) {
    if (c.data[i].from != &kiln_template_flash_attention) continue;
    if (c.data[i].refused) fail_msg("%s\n%s", c.data[i].refused, text);
    if (!c.data[i].loops) continue;
    kernel_check(&k, c.data[i].loops, c.data[i].script);
    check_vectors(&k, c.data[i].loops, c.data[i].loops->body, 0, is_apart);
    n++;
  }
  if (n == 0) fail_msg("no candidate was lowered: %s", text);
  kernel_close(&k);
}

static void streamed_attention_gives_what_the_reference_gives(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(attentions); i++)
    for (size_t m = 0; m < KILN_LEN(machines); m++)
      check(attentions[i], &machines[m], CANDIDATES, false);
}

// --- random sizes, forms and storage orders ---

enum { ROOM = 2048 };

typedef struct author {
  uint64_t seed;
  int extent[128]; // by dim: heads h, rows m, keys n, depth r, values d
  char text[ROOM];
  size_t n;
} author;

static void put(author *a, const char *format, ...) KILN_PRINTF(2, 3);
static void put(author *a, const char *format, ...) {
  va_list args;
  va_start(args, format);
  a->n += (size_t)vsnprintf(a->text + a->n, ROOM - a->n, format, args);
  va_end(args);
  assert_true(a->n < ROOM);
}

// NAME(2, 20, 32)
static void declare(author *a, const char *role, const char *name, const char *dims) {
  put(a, "%s f32 %s", role, name);
  for (int i = 0; dims[i]; i++) put(a, "%s%d", i ? ", " : "(", a->extent[(int)dims[i]]);
  put(a, role[0] == 'c' ? ") = ... " : ") ");
}

// NAME(h:2, m:20 | n:40)
static void define(author *a, const char *name, const char *dims, char over) {
  put(a, "%s", name);
  for (int i = 0; dims[i]; i++) put(a, "%s%c:%d", i ? ", " : "(", dims[i], a->extent[(int)dims[i]]);
  if (over) put(a, " | %c:%d", over, a->extent[(int)over]);
  put(a, ") ");
}

// NAME(h, m, n)
static void load(author *a, const char *name, const char *dims) {
  put(a, "%s", name);
  for (int i = 0; dims[i]; i++) put(a, "%s%c", i ? ", " : "(", dims[i]);
  put(a, ")");
}

// The dims |set| in some order.
static const char *some_order(author *a, const char *set, char *out) {
  strcpy(out, set);
  for (int i = (int)strlen(out) - 1; i > 0; i--) {
    const int j = kernel_between(&a->seed, 0, i);
    const char swapped = out[i];
    out[i] = out[j];
    out[j] = swapped;
  }
  return out;
}

static void put_scores(author *a, const char *x, const char *bias) {
  const int form = kernel_between(&a->seed, 0, 5);
  if (form == 5) put(a, "n > m ? -inff32 : ");
  load(a, "X", x);
  if (form == 1) put(a, " * 0.35f32 + B(n) ");
  if (form == 2) put(a, " + G(m, n) ");
  if (form < 3) return;
  put(a, " * 0.25f32 + ");
  load(a, "C", bias);
}

// Attention with the dims of its tensors, and of scores and result, in any order.
//
// gives: the innermost dim of the result
static char write_attention(author *a) {
  static const int values[] = {2, 3, 5, 8, 12, 16, 17, 20, 32, 48, 64};
  char q[4], k[4], v[4], x[4], o[4], y[4], bias[4];
  a->extent['h'] = kernel_between(&a->seed, 2, 3);
  a->extent['m'] = kernel_between(&a->seed, 16, 52);
  a->extent['n'] = kernel_between(&a->seed, 0, 3) ? kernel_between(&a->seed, 16, 60)
                                                  : kernel_between(&a->seed, 321, 390);
  a->extent['r'] = kernel_between(&a->seed, 2, 12);
  a->extent['d'] = values[kernel_between(&a->seed, 0, (int)KILN_LEN(values) - 1)];
  put(a, "p { ");
  declare(a, "in", "Q", some_order(a, "hmr", q));
  declare(a, "in", "K", some_order(a, "hnr", k));
  declare(a, "in", "V", some_order(a, "hnd", v));
  declare(a, "in", "B", "n");
  declare(a, "in", "G", "mn");
  declare(a, kernel_between(&a->seed, 0, 1) ? "in" : "const", "C", some_order(a, "hmn", bias));
  declare(a, "out", "Y", some_order(a, "hmd", y));
  declare(a, "temp", "X", some_order(a, "hmn", x));
  declare(a, "temp", "Z", "hmn");
  declare(a, "temp", "M", "hm");
  declare(a, "temp", "E", "hmn");
  declare(a, "temp", "S", "hm");
  declare(a, "temp", "P", "hmn");
  declare(a, "temp", "O", some_order(a, "hmd", o));
  define(a, "X", x, 'r');
  put(a, "+=! ");
  load(a, "Q", q);
  put(a, " * ");
  load(a, "K", k);
  define(a, " Z", "hmn", 0);
  put(a, "= ");
  put_scores(a, x, bias);
  define(a, " M", "hm", 'n');
  put(a, "max=! Z(h, m, n) ");
  define(a, "E", "hmn", 0);
  put(a, "= exp(Z(h, m, n) - M(h, m)) ");
  define(a, "S", "hm", 'n');
  put(a, "+=! E(h, m, n) ");
  define(a, "P", "hmn", 0);
  put(a, "= E(h, m, n) / S(h, m) ");
  define(a, "O", o, 'n');
  put(a, "+=! P(h, m, n) * ");
  load(a, "V", v);
  define(a, " Y", y, 0);
  put(a, "= ");
  load(a, "O", o);
  put(a, kernel_between(&a->seed, 0, 1) ? " }" : " * 2f32 }");
  return y[2];
}

static void random_attention_in_any_storage_order_is_right_and_of_whole_vectors(void **state) {
  (void)state;
  const uint64_t seed = test_asked("KILN_SEED", 1);
  const int n = (int)test_asked("KILN_CASES", (uint64_t)test_some(24));
  for (int i = 0; i < n; i++) {
    author a = {.seed = seed * 1000003 + (uint64_t)i};
    const bool is_apart = write_attention(&a) == 'h';
    for (size_t m = 0; m < KILN_LEN(machines); m++)
      check(a.text, &machines[m], SOME_CANDIDATES, is_apart);
  }
}

// Programs that are almost attention.
static const char *const others[] = {
    // weights of other values than the maximum's
    IN(2, 20, 40, 8, 32) TEMPS(2, 20, 40, 32) PRODUCTS(
        2, 20, 40, 8) "Z(i0:2, i1:20, i2:40) = X(i0, i1, i2) * 2f32 + B(i2) "
                      "M(i0:2, i1:20 | r0:40) +=! Z(i0, i1, r0) E(i0:2, i1:20, i2:40) = exp(Z(i0, "
                      "i1, i2) - M(i0, i1)) "
                      "S(i0:2, i1:20 | r0:40) +=! E(i0, i1, r0) P(i0:2, i1:20, i2:40) = E(i0, i1, "
                      "i2) / S(i0, i1) "
                      "O(i0:2, i1:20, i2:32 | r0:40) +=! P(i0, i1, r0) * V(i0, r0, i2) " OUT(2, 20,
                                                                                             32),
    // over the rows instead of the keys
    IN(2, 20, 20, 8, 32) TEMPS(2, 20, 20, 32) PRODUCTS(
        2, 20, 20, 8) "Z(i0:2, i1:20, i2:20) = X(i0, i1, i2) * 2f32 + B(i2) "
                      "M(i0:2, i1:20 | r0:20) max=! Z(i0, i1, r0) E(i0:2, i1:20, i2:20) = "
                      "exp(Z(i0, i1, i2) - M(i0, i1)) "
                      "S(i0:2, i1:20 | r0:20) +=! E(i0, r0, i1) P(i0:2, i1:20, i2:20) = E(i0, i1, "
                      "i2) / S(i0, i1) "
                      "O(i0:2, i1:20, i2:32 | r0:20) +=! P(i0, r0, i1) * V(i0, r0, i2) " OUT(2, 20,
                                                                                             32),
};

static void what_is_nearly_attention_is_not_taken_for_it(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(others); i++) {
    test_kernel k;
    kiln_attention_form form;
    kernel_open(&k, others[i], 5);
    if (kiln_attention_is(&k.cx, k.prog, &form)) fail_msg("%s", others[i]);
    kernel_close(&k);
  }
}

static int64_t local_bytes(const kiln_loops *l) {
  int64_t bytes = 0;
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    assert_int_not_equal(b->scope, KILN_SCOPE_WORKSPACE);
    if (b->scope == KILN_SCOPE_LOCAL) bytes += kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype);
  }
  return bytes;
}

// The whole scheduler makes it one kernel, without memory that grows with the keys.
static void a_task_holds_as_much_for_many_keys_as_for_few(void **state) {
  (void)state;
  static const char *const texts[] = {MAPPED(1, 64, 512, 4, 16, "X(i0, i1, i2) + B(i2)"),
                                      MAPPED(1, 64, 4096, 4, 16, "X(i0, i1, i2) + B(i2)")};
  int64_t bytes[2] = {0};
  for (int i = 0; i < 2; i++) {
    test_kernel k;
    kiln_kernels kernels;
    const kiln_tile_options options = {.search.n_threads = 2};
    kernel_open(&k, texts[i], 5);
    assert_int_equal(kiln_pipeline_tile(&k.cx, k.prog, &machines[0], &options, NULL, &kernels),
                     KILN_OK);
    for (int j = 0; j < kernels.kernels.n; j++)
      if (strstr(kernels.kernels.data[j]->script, "online_softmax w "))
        bytes[i] = local_bytes(kernels.kernels.data[j]->loops);
    kernel_close(&k);
  }
  assert_true(bytes[0] > 0);
  assert_int_equal(bytes[0], bytes[1]);
}

// Windows of several images are viewed as images and windows (and heads) only where each window's
// mask is added to the scores, or where they are scaled, too.
static void write_windows(author *a, int images, int windows, int heads, bool scales) {
  const int b = images * windows;
  put(a,
      "p { in f32 Q(%d, %d, 18, 8) in f32 K(%d, %d, 18, 8) in f32 V(%d, %d, 18, 12) in f32 W(%d, "
      "18, 18) ",
      b, heads, b, heads, b, heads, windows);
  put(a,
      "out f32 Y(%d, %d, 18, 12) temp f32 X(%d, %d, 18, 18) temp f32 C(%d, %d, %d, 18, 18) temp "
      "f32 "
      "Z(%d, %d, %d, 18, 18) temp f32 R(%d, %d, 18, 18) temp f32 M(%d, %d, 18) temp f32 E(%d, %d, "
      "18, "
      "18) temp f32 S(%d, %d, 18) temp f32 P(%d, %d, 18, 18) ",
      b, heads, b, heads, images, windows, heads, images, windows, heads, b, heads, b, heads, b,
      heads, b, heads, b, heads);
  put(a, "X(b:%d, h:%d, m:18, n:18 | r:8) +=! Q(b, h, m, r) * K(b, h, n, r) ", b, heads);
  put(a, "C(i:%d, w:%d, h:%d, m:18, n:18) = X(i * %d + w, h, m, n) * %s ", images, windows, heads,
      windows, scales ? "0.35f32" : "1f32");
  put(a, "Z(i:%d, w:%d, h:%d, m:18, n:18) = C(i, w, h, m, n) + W(w, m, n) ", images, windows,
      heads);
  put(a, "R(b:%d, h:%d, m:18, n:18) = Z(b / %d, b %% %d, h, m, n) ", b, heads, windows, windows);
  put(a, "M(b:%d, h:%d, m:18 | n:18) max=! R(b, h, m, n) ", b, heads);
  put(a, "E(b:%d, h:%d, m:18, n:18) = exp(R(b, h, m, n) - M(b, h, m)) ", b, heads);
  put(a, "S(b:%d, h:%d, m:18 | n:18) +=! E(b, h, m, n) ", b, heads);
  put(a, "P(b:%d, h:%d, m:18, n:18) = E(b, h, m, n) / S(b, h, m) ", b, heads);
  put(a, "Y(b:%d, h:%d, m:18, d:12 | n:18) +=! P(b, h, m, n) * V(b, h, n, d) }", b, heads);
}

static void masks_between_two_reshapes_are_streamed_whatever_the_batch(void **state) {
  (void)state;
  for (int at = 0; at < 24; at++) {
    const int images = 1 + at % 3, windows = 2 + at / 3 % 2, heads = 1 + at / 6 % 2;
    author a = {0};
    test_kernel k;
    kiln_kernels kernels;
    const kiln_tile_options options = {.search.n_threads = 2};
    write_windows(&a, images, windows, heads, at >= 12);
    kernel_open(&k, a.text, 5);
    assert_int_equal(kiln_pipeline_tile(&k.cx, k.prog, &machines[at % 2], &options, NULL, &kernels),
                     KILN_OK);
    assert_int_equal(kernels.kernels.n, 1);
    assert_non_null(strstr(kernels.kernels.data[0]->script, "online_softmax w "));
    check_launches(&k, &kernels, compare_elements, a.text);
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(masks_between_two_reshapes_are_streamed_whatever_the_batch),
      cmocka_unit_test(streamed_attention_gives_what_the_reference_gives),
      cmocka_unit_test(random_attention_in_any_storage_order_is_right_and_of_whole_vectors),
      cmocka_unit_test(what_is_nearly_attention_is_not_taken_for_it),
      cmocka_unit_test(a_task_holds_as_much_for_many_keys_as_for_few),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

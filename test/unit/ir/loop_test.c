// Loop programs: making, text and verification.
#include "ir/loop.h"
#include "unit/fixture.h"
#include "unit/loops.h"

enum { N_RANDOM = 300, N_FUZZ = 6000 };

static const char *const kernels[] = {
    "kernel mm {\n"
    "  param f32 A[4, 8]:(8, 1) tensor 0\n"
    "  param f32 C[4]:(1) tensor 2\n"
    "  for i:4 parallel {\n"
    "    C[i] = 0f32\n"
    "    for k:8 {\n"
    "      C[i] += A[i, k]\n"
    "    }\n"
    "  }\n"
    "}\n",
    "kernel \"k 3\" {\n"
    "  param f32 W[2, 3, 16]:(48, 16, 1) pack 5 (o0*16 + o2, o1)\n"
    "  workspace f16 \"/a/T\"[7, 10]:(1, 7)\n"
    "  register f32 acc[2, 16]:(16, 1)\n"
    "  local i32 n[]:()\n"
    "  for Y.i0.o:2 {\n"
    "    alloc acc {\n"
    "      for j:2 unrolled {\n"
    "        for v:16 vectorized {\n"
    "          acc[j, v] = -inff32\n"
    "          if j*16 + v < 10 && Y.i0.o >= 1 {\n"
    "            acc[j, v] max= W[Y.i0.o, j, v]*f32(\"/a/T\"[j, v])\n"
    "          }\n"
    "        }\n"
    "      }\n"
    "      alloc n {\n"
    "        n[] = 3i32\n"
    "        n[] *= n[]\n"
    "      }\n"
    "    }\n"
    "  }\n"
    "  for z:7 - 3*x parallel {\n"
    "  }\n"
    "}\n",
    "kernel nothing {\n}\n",
    "kernel gpu {\n"
    "  param f32 A[64, 8]:(8, 1)\n"
    "  param f32 C[64]:(1)\n"
    "  shared f32 s[8]:(1)\n"
    "  for b:8 block.x @stage=two {\n"
    "    alloc s {\n"
    "      for t:8 thread.x @lanes=\"8\" @\"a b\"=\"\" {\n"
    "        s[t] = A[b*8 + t, 0]\n"
    "        prefetch A[b*8 + t + 8, 0]\n"
    "        C[b*8 + t] = s[t]\n"
    "      }\n"
    "    }\n"
    "  }\n"
    "}\n",
};

static void the_text_of_a_kernel_reads_back_the_same(void **state) {
  fixture *f = *state;
  for (size_t row = 0; row < KILN_LEN(kernels); row++) {
    const kiln_loops *l = loops_parse(&f->cx, kernels[row]);
    assert_string_equal(loops_text(&f->cx, l), kernels[row]);
  }
}

static void one_line_reads_as_many(void **state) {
  fixture *f = *state;
  const kiln_loops *l = loops_parse(
      &f->cx, "kernel mm { param f32 A[4, 8]:(8, 1) tensor 0 param f32 C[4] tensor 2 # row-major\n"
              "for i:4 parallel { C[i] = 0f32 for k:8 { C[i] +=! A[i, k] } } }");
  assert_string_equal(loops_text(&f->cx, l), kernels[0]);
  assert_int_equal(kiln_loops_verify(&f->cx, l), KILN_OK);
}

static void a_copy_shares_nothing_that_changes(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const kiln_loops *l = loops_parse(cx, kernels[1]);
  const char *before = loops_text(cx, l);
  kiln_loops *copy = kiln_loops_copy(&cx->perm, l);
  assert_string_equal(loops_text(cx, copy), before);
  kiln_loop *inner = kiln_loops_find(copy, kiln_symbol_of(cx, "v"));
  assert_non_null(inner);
  assert_null(kiln_loops_find(copy, kiln_symbol_of(cx, "w")));
  inner->how = KILN_SERIAL;
  inner->body->index[0] = kiln_int(cx, 0);
  inner->body->next = NULL;
  copy->buffers.data[1]->extents[0] = 99;
  assert_string_not_equal(loops_text(cx, copy), before);
  assert_string_equal(loops_text(cx, l), before);
}

// Appended nests get buffers and loops of their own; the variables of an instruction's tile keep
// their names.
static void appended_nests_have_names_of_their_own(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const char *text =
      "kernel k { param f32 X[4]:(1) local f32 T[4]:(1) for i:4 @note=\"1\" { alloc T { "
      "for j:i { T[j] += X[i - j] } if T[i] < 0f32 { X[i] = T[0] } } } }";
  kiln_loops *to = kiln_loops_copy(&cx->perm, loops_parse(cx, text));
  const kiln_loops *from = loops_parse(cx, text);
  to->body->next = kiln_loops_append(cx, to, from, ".b");
  assert_int_equal(to->buffers.n, 4);
  assert_int_equal(to->buffers.data[3]->id, 3);
  const char *got = loops_text(cx, to);
  assert_non_null(strstr(got, "X.b[i.b - j.b]"));
  assert_non_null(strstr(got, "for j.b:i.b"));
  assert_non_null(strstr(got, "if T.b[i.b] < 0f32"));
  assert_non_null(strstr(got, "X[i - j]")); // as it was
  assert_null(strstr(loops_text(cx, from), ".b"));
}

static void a_buffer_spans_its_strides(void **state) {
  fixture *f = *state;
  kiln_loops *l = kiln_loops_make(&f->cx, "k");
  const int64_t extents[] = {4, 5}, strides[] = {1, 8}, none[] = {4, 0};
  const kiln_buffer *b =
      kiln_buffer_make(&f->cx, l, "b", KILN_F32, KILN_SCOPE_PARAM, 2, extents, NULL);
  assert_true(b->strides[0] == 5 && b->strides[1] == 1);
  assert_int_equal(kiln_buffer_elems(b), 20);
  b = kiln_buffer_make(&f->cx, l, "c", KILN_F32, KILN_SCOPE_PARAM, 2, extents, strides);
  assert_int_equal(kiln_buffer_elems(b), 36);
  b = kiln_buffer_make(&f->cx, l, "d", KILN_F32, KILN_SCOPE_PARAM, 2, none, NULL);
  assert_int_equal(kiln_buffer_elems(b), 0);
}

static const struct {
  const char *text, *message;
} breaches[] = {
    {"kernel k { param f32 A[4] A[i] = 0f32 }",
     "kernel k: error: the index of a store: its variables must be bound, got 'i'"},
    {"kernel k { param f32 A[4] for i:4 { A[i] = 0f32 } A[i] = 0f32 }",
     "kernel k: error: the index of a store: its variables must be bound, got 'i'"},
    {"kernel k { param f32 A[4] for i:4 { } for i:4 { } }",
     "kernel k: error: the variables of loops must differ, got 'i' twice or none"},
    {"kernel k { for i:4 { for j:4 parallel { } } }",
     "kernel k: error: only the outermost loop may be parallel, got j inside another"},
    {"kernel k { local f32 A[4] A[0] = 0f32 }",
     "kernel k: error: buffer A must be used inside its alloc"},
    {"kernel k { param f32 B[4] local f32 A[4] alloc A { } B[0] = A[0] }",
     "kernel k: error: buffer A must be used inside its alloc"},
    {"kernel k { local f32 A[4] alloc A { } alloc A { } }",
     "kernel k: error: a buffer must be allocated once, got A again"},
    {"kernel k { param f32 A[4] alloc A { } }",
     "kernel k: error: an alloc must be of a shared, local or register buffer, got A"},
    {"kernel k { param f32 A[4] pack 0 (o1) }",
     "kernel k: buffer A: error: the map of its pack: its variables must be bound, got 'o1'"},
    {"kernel k { param f32 A[4] pack 0 (o0) A[0] = 0f32 }",
     "kernel k: error: a packed constant must not be written, got A"},
    {"kernel k { for i:2 thread.x { for j:2 thread.x { } } }",
     "kernel k: error: an axis must be bound once in a nest, got it again at j"},
    {"kernel k { for i:2 thread.x { for j:2 block.y { } } }",
     "kernel k: error: a block loop must lie outside of thread loops, got j inside one"},
};

static void breaches_are_named(void **state) {
  fixture *f = *state;
  for (size_t row = 0; row < KILN_LEN(breaches); row++) {
    const kiln_loops *l = loops_parse(&f->cx, breaches[row].text);
    kiln_diag_clear(f->diag);
    assert_int_equal(kiln_loops_verify(&f->cx, l), KILN_INTERNAL);
    assert_string_equal(kiln_diag_message(f->diag, 0), breaches[row].message);
  }
}

static void broken_structures_are_found(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  kiln_loops *l = loops_parse(cx, kernels[0]);
  l->body->body->value = kiln_int(cx, 1);
  assert_int_equal(kiln_loops_verify(cx, l), KILN_INTERNAL);
  l = loops_parse(cx, kernels[0]);
  l->body->body->buffer = 2;
  assert_int_equal(kiln_loops_verify(cx, l), KILN_INTERNAL);
  l = loops_parse(cx, kernels[0]);
  l->body->body->value = kiln_load(cx, 0, KILN_F32, 0, NULL);
  assert_int_equal(kiln_loops_verify(cx, l), KILN_INTERNAL);
  l = loops_parse(cx, kernels[0]);
  l->buffers.data[1]->name = l->buffers.data[0]->name;
  assert_int_equal(kiln_loops_verify(cx, l), KILN_INTERNAL);
}

static const struct {
  const char *text, *message;
} errors[] = {
    {"", "kernel:1:1: error: expected 'kernel', got the end"},
    {"kernel k {\n  param f32 A[4]:(1, 2)\n}",
     "kernel:3:1: error: expected 1 strides before this place, not 2, got '}'"},
    {"kernel k { for i 4 { } }", "kernel:1:18: error: expected ':', got '4'"},
    {"kernel k { for i:4f32 { } }",
     "kernel:1:23: error: expected an expression of type i64 before this place, not f32, got '{'"},
    {"kernel k { A[0] = 1 }",
     "kernel:1:13: error: expected a declared buffer before this place, not 'A', got '['"},
    {"kernel k { param f32 A[4] A[0, 1] = 1f32 }",
     "kernel:1:35: error: expected 1 indices before this place, not 2, got '='"},
    {"kernel k { for i:4 {", "kernel:1:21: error: expected a buffer's name, got the end"},
    {"kernel k { instr x(A[0]) }",
     "kernel:1:19: error: expected a known instruction before this place, not 'x', got '('"},
};

static void errors_say_where_and_what(void **state) {
  fixture *f = *state;
  for (size_t row = 0; row < KILN_LEN(errors); row++) {
    kiln_loops *l = NULL;
    kiln_diag_clear(f->diag);
    assert_int_equal(kiln_loops_parse(&f->cx, errors[row].text, &l), KILN_BAD_INPUT);
    assert_null(l);
    assert_string_equal(kiln_diag_message(f->diag, 0), errors[row].message);
  }
}

typedef struct maker {
  kiln_ctx *cx;
  uint64_t r;
  kiln_loops *l;
  kiln_symbol vars[64]; // of the loops around
  int n_vars, n_made;
} maker;

static const kiln_expr *random_index(maker *m) {
  if (m->n_vars == 0) return kiln_int(m->cx, random_below(&m->r, 4));
  const kiln_expr *e = kiln_var(m->cx, m->vars[random_below(&m->r, m->n_vars)]);
  return random_below(&m->r, 2) ? e : kiln_mod(m->cx, e, kiln_int(m->cx, 3));
}

static kiln_loop *random_store(maker *m) {
  const kiln_buffer *b = m->l->buffers.data[random_below(&m->r, 2)];
  const kiln_expr *index[2], *from[2];
  for (int i = 0; i < 2; i++) {
    index[i] = random_index(m);
    from[i] = random_index(m);
  }
  const kiln_expr *value = kiln_load(m->cx, 0, m->l->buffers.data[0]->dtype, 2, from);
  return kiln_store_make(m->cx, b, index, (kiln_combiner)random_below(&m->r, 5),
                         kiln_cast(m->cx, b->dtype, value));
}

static kiln_loop *random_nest(maker *m, int depth) {
  kiln_loop *l = NULL;
  const int kind = depth == 0 ? 0 : random_below(&m->r, 4);
  if (kind == 0) {
    l = random_store(m);
  } else if (kind == 1) {
    const kiln_expr *c = kiln_binary(m->cx, KILN_EXPR_LT, random_index(m), kiln_int(m->cx, 2));
    l = kiln_if_make(m->cx, c, random_nest(m, depth - 1));
  } else if (kind == 2) {
    char name[16];
    const int64_t extents[] = {2};
    snprintf(name, sizeof name, "b%d", m->n_made++);
    const kiln_buffer *b = kiln_buffer_make(
        m->cx, m->l, name, KILN_U8, random_below(&m->r, 2) ? KILN_SCOPE_LOCAL : KILN_SCOPE_REGISTER,
        1, extents, NULL);
    l = kiln_alloc_make(m->cx, b, random_nest(m, depth - 1));
  } else {
    const kiln_symbol var = kiln_symbol_printf(m->cx, "%s%d", depth % 2 ? "i." : "a/", m->n_made++);
    m->vars[m->n_vars++] = var;
    l = kiln_for_make(m->cx, var, kiln_int(m->cx, 1 + random_below(&m->r, 5)),
                      random_nest(m, depth - 1));
    m->n_vars--;
    l->how = random_below(&m->r, 2) ? KILN_SERIAL : KILN_VECTORIZED;
  }
  if (depth > 0 && random_below(&m->r, 2)) l->next = random_nest(m, depth - 1);
  return l;
}

static void random_kernels_verify_and_read_back_the_same(void **state) {
  fixture *f = *state;
  maker m = {.cx = &f->cx, .r = 11};
  for (int i = 0; i < N_RANDOM; i++) {
    const int64_t extents[] = {8, 8}, strides[] = {1, 8};
    m.l = kiln_loops_make(m.cx, "random");
    kiln_buffer_make(m.cx, m.l, "A", KILN_F32, KILN_SCOPE_PARAM, 2, extents, NULL);
    kiln_buffer_make(m.cx, m.l, "/x/B", KILN_I8, KILN_SCOPE_WORKSPACE, 2, extents, strides);
    m.l->body = random_nest(&m, 6);
    const char *once = loops_text(m.cx, m.l);
    if (kiln_loops_verify(m.cx, m.l) != KILN_OK)
      fail_msg("%s\n%s", kiln_diag_message(f->diag, 0), once);
    assert_string_equal(loops_text(m.cx, loops_parse(m.cx, once)), once);
    assert_string_equal(loops_text(m.cx, kiln_loops_copy(&m.cx->perm, m.l)), once);
  }
}

static void the_parser_and_the_verifier_survive_anything(void **state) {
  fixture *f = *state;
  uint64_t r = 5;
  char text[1024];
  int good = 0;
  for (int i = 0; i < N_FUZZ; i++) {
    random_mutation(&r, kernels[random_below(&r, 2)], text, sizeof text);
    kiln_loops *l = NULL;
    if (kiln_loops_parse(&f->cx, text, &l) == KILN_OK) {
      good += kiln_loops_verify(&f->cx, l) == KILN_OK;
      loops_text(&f->cx, kiln_loops_copy(&f->cx.perm, l));
    }
    kiln_diag_clear(f->diag);
  }
  assert_in_range(good, 1, N_FUZZ - 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(the_text_of_a_kernel_reads_back_the_same),
      FIXTURE_TEST(one_line_reads_as_many),
      FIXTURE_TEST(a_copy_shares_nothing_that_changes),
      FIXTURE_TEST(appended_nests_have_names_of_their_own),
      FIXTURE_TEST(a_buffer_spans_its_strides),
      FIXTURE_TEST(breaches_are_named),
      FIXTURE_TEST(broken_structures_are_found),
      FIXTURE_TEST(errors_say_where_and_what),
      FIXTURE_TEST(random_kernels_verify_and_read_back_the_same),
      FIXTURE_TEST(the_parser_and_the_verifier_survive_anything),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

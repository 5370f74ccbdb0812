// Prim programs: construction, text, verification, and out of memory at every allocation.
#include "ir/prim.h"
#include "analysis/simplify.h"
#include "ir/loop.h"
#include "unit/fixture.h"

enum { N_RANDOM = 300, N_FUZZ = 6000 };

static const char *shown(kiln_ctx *cx, const kiln_program *p) {
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  kiln_program_print(cx, p, &t);
  return t.data;
}

static kiln_program *parsed(kiln_ctx *cx, const char *text) {
  kiln_program *p = NULL;
  if (kiln_program_parse(cx, text, &p) != KILN_OK)
    fail_msg("%s\n%s", kiln_diag_message(cx->diag, 0), text);
  return p;
}

static const char *const programs[] = {
    "softmax {\n"
    "  in f32 X(n, 8)\n"
    "  temp f32 M(n)\n"
    "  temp f32 E(n, 8)\n"
    "  temp f32 S(n)\n"
    "  out f32 Y(n, 8)\n"
    "  M(i0:n | r0:8) max=! X(i0, r0) from \"/softmax\"\n"
    "  E(i0:n, i1:8) = exp(X(i0, i1) - M(i0)) from \"/softmax\"\n"
    "  S(i0:n | r0:8) +=! E(i0, r0) from \"/softmax\"\n"
    "  Y(i0:n, i1:8) = E(i0, i1)/S(i0) from \"/softmax\"\n"
    "}\n",
    "conv {\n"
    "  in f32 X(1, 3, h, 8)\n"
    "  const f32 W(4, 3, 3, 3) = ...\n"
    "  const i8 b(3) = 0x01ff80\n"
    "  out f32 Y(1, 4, h, 8) order (0, 2, 3, 1)\n"
    "  Y(i0:1, i1:4, i2:h, i3:8 | r0:3, r1:3, r2:3) +=! (i2 + r1 >= 1 && i2 + r1 < h + 1 ? X(i0, "
    "r0, "
    "i2 + r1 - 1, i3) : 0f32)*W(i1, r0, r1, r2)\n"
    "}\n",
    "scatter {\n"
    "  in f32 D(16)\n"
    "  in i64 I(4)\n"
    "  in f32 U(4)\n"
    "  temp i64 s(2)\n"
    "  temp f32 Y(16) strides (2)\n"
    "  const f32 c() = 0x0000803f\n"
    "  inputs (U, I, D)\n"
    "  outputs (Y, D, c, Y)\n"
    "  Y(i0:4) at (I(i0)) = U(i0) if I(i0) >= 0 && I(i0) < 16 init (D(o0))\n"
    "}\n",
    "empty {\n"
    "}\n",
    "\"main graph\" {\n"
    "  in bool \"/a/b:0\"()\n"
    "  out bool Y()\n"
    "  Y(| r0:4) and=! \"/a/b:0\"()\n"
    "}\n",
};

static void the_text_of_a_program_reads_back_the_same(void **state) {
  fixture *f = *state;
  for (size_t row = 0; row < KILN_LEN(programs); row++) {
    kiln_program *p = parsed(&f->cx, programs[row]);
    assert_string_equal(shown(&f->cx, p), programs[row]);
  }
}

static void good_programs_verify(void **state) {
  fixture *f = *state;
  for (size_t row = 0; row < KILN_LEN(programs); row++) {
    if (row == 2) continue; // n is no named dimension there
    if (kiln_program_verify(&f->cx, parsed(&f->cx, programs[row])) != KILN_OK)
      fail_msg("%s", kiln_diag_message(f->diag, 0));
  }
}

static void names_are_made_unique(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  kiln_program *p = kiln_program_make(cx, "p");
  const char *want[] = {"x", "x_1", "x_1_1", "x_2", "y"}, *name[] = {"x", "x", "x_1", "x", "y"};
  for (size_t i = 0; i < KILN_LEN(want); i++) {
    const kiln_tensor *t = kiln_tensor_make(cx, p, name[i], KILN_F32, KILN_INPUT, 0, NULL);
    assert_string_equal(kiln_symbol_text(cx, t->name), want[i]);
  }
  for (int i = 0; i < 50000; i++) kiln_tensor_make(cx, p, "x", KILN_F32, KILN_INPUT, 0, NULL);
  assert_int_equal(kiln_program_verify(cx, p), KILN_OK);
}

static void a_made_statement_is_plain_and_writes_a_new_tensor(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  kiln_program *p = kiln_program_make(cx, "p");
  const kiln_expr *extents[] = {kiln_int(cx, 4), kiln_int(cx, 5), kiln_int(cx, 6)};
  const kiln_tensor *x = kiln_tensor_make(cx, p, "X", KILN_F32, KILN_INPUT, 3, extents);
  KILN_VEC_PUSH(&cx->perm, &p->inputs, x->id);
  kiln_stmt *s = kiln_stmt_make(cx, p, "Y", KILN_F32, 2, 1, extents);
  const kiln_expr *index[] = {kiln_stmt_var(cx, s, 0), kiln_stmt_var(cx, s, 1),
                              kiln_stmt_var(cx, s, 2)};
  s->combiner = KILN_COMBINE_SUM;
  assert_int_equal(kiln_program_verify(cx, p), KILN_INTERNAL); // no body yet
  s->body = kiln_tensor_load(cx, x, index);
  p->tensors.data[s->out]->role = KILN_OUTPUT;
  KILN_VEC_PUSH(&cx->perm, &p->outputs, s->out);
  assert_int_equal(kiln_program_verify(cx, p), KILN_OK);
  assert_true(kiln_stmt_is_plain(cx, s));
  assert_string_equal(shown(cx, p), "p {\n  in f32 X(4, 5, 6)\n  out f32 Y(4, 5)\n  Y(i0:4, i1:5 | "
                                    "r0:6) +=! X(i0, i1, r0)\n}\n");
  int64_t strides[3];
  kiln_tensor *y = p->tensors.data[s->out];
  kiln_tensor_strides(y, strides);
  assert_true(strides[0] == 5 && strides[1] == 1);
  y->order[0] = 1;
  y->order[1] = 0;
  kiln_tensor_strides(y, strides);
  assert_true(strides[0] == 1 && strides[1] == 4);
  assert_int_equal(kiln_tensor_elems(y), 20);
}

static void identities_leave_every_value_as_it_is(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  for (int c = KILN_COMBINE_SUM; c <= KILN_COMBINE_OR; c++) {
    for (int t = 0; t < KILN_N_DTYPES; t++) {
      const kiln_combiner combiner = (kiln_combiner)c;
      const kiln_dtype dtype = (kiln_dtype)t;
      if (kiln_dtype_is_code(dtype)) continue; // are not combined
      const bool logical = c == KILN_COMBINE_AND || c == KILN_COMBINE_OR;
      if (logical ? kiln_dtype_is_float(dtype) : dtype == KILN_BOOL && c <= KILN_COMBINE_PROD)
        continue;
      for (int v = -3; v < 4; v++) {
        const kiln_expr *x = kiln_number(cx, dtype, v);
        assert_ptr_equal(kiln_combine(cx, combiner, kiln_combiner_identity(cx, combiner, dtype), x),
                         x);
      }
    }
  }
}

// Programs that parse, with the verifier's messages.
static const struct {
  const char *text, *message;
} breaches[] = {
    {"p { in f32 X(4) out f32 Y(4) Y(i0:4) = X(i1) }",
     "program p: statement 0: error: its body: its variables must be bound, got 'i1'"},
    {"p { in f32 X(4) out f32 Y(4) Y(i0:i0) = X(0) }",
     "program p: statement 0: error: the extent of a dim: its variables must be bound, got 'i0'"},
    {"p { out f32 Y(4) temp f32 Z(4) Y(i0:4) = Z(i0) from conv Z(i0:4) = 0f32 }",
     "program p: statement 0 (conv): error: a load of Z must come after the statement that writes "
     "it"},
    {"p { out f32 Y(4) Y(i0:4) = Y(i0) }",
     "program p: statement 0: error: a load of Y must come after the statement that writes it"},
    {"p { out f32 Y(4) Y(i0:4) = 1f32 init (Y(o0)) }",
     "program p: statement 0: error: a load of Y must come after the statement that writes it"},
    {"p { out f32 Y(4) }",
     "program p: tensor Y: error: an output must be written by a statement, got none"},
    {"p { in f32 X(4) out f32 Y() Y(| r0:4) = X(r0) }",
     "program p: statement 0: error: a reduction must have a combiner, got none"},
    {"p { in f32 X(4) out f32 Y(4, 4) Y(i0:4, i0:4) = X(i0) }",
     "program p: statement 0: error: the names of its dims must differ, got 'i0' twice or none"},
    {"p { in f32 X(4) out f32 Y(4) Y(i0:4) at (i0) = X(i0) init (X(i0)) }",
     "program p: statement 0: error: its init: its variables must be bound, got 'i0'"},
    {"p { in f32 X(-4) }", "program p: tensor X: error: its extents must not be negative, got -4"},
    {"p { temp f32 X(4) outputs (X) }",
     "program p: error: output 0 must be a tensor that is given or written, got tensor 0"},
};

static void breaches_are_named(void **state) {
  fixture *f = *state;
  for (size_t row = 0; row < KILN_LEN(breaches); row++) {
    const kiln_program *p = parsed(&f->cx, breaches[row].text);
    kiln_diag_clear(f->diag);
    assert_int_equal(kiln_program_verify(&f->cx, p), KILN_INTERNAL);
    assert_string_equal(kiln_diag_message(f->diag, 0), breaches[row].message);
  }
}

// Invalid programs that have no text.
static void broken_structures_are_found(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const char *text = programs[0];
  kiln_program *p = parsed(cx, text);
  p->tensors.data[1]->id = 7;
  assert_int_equal(kiln_program_verify(cx, p), KILN_INTERNAL);
  p = parsed(cx, text);
  p->stmts.data[1]->body = kiln_int(cx, 3);
  assert_int_equal(kiln_program_verify(cx, p), KILN_INTERNAL);
  p = parsed(cx, text);
  p->stmts.data[1]->body = kiln_load(cx, 99, KILN_F32, 0, NULL);
  assert_int_equal(kiln_program_verify(cx, p), KILN_INTERNAL);
  p = parsed(cx, text);
  const kiln_expr *zero = kiln_int(cx, 0);
  p->stmts.data[1]->body = kiln_load(cx, 0, KILN_F32, 1, &zero);
  assert_int_equal(kiln_program_verify(cx, p), KILN_INTERNAL);
  p = parsed(cx, text);
  p->tensors.data[2]->name = p->tensors.data[1]->name;
  assert_int_equal(kiln_program_verify(cx, p), KILN_INTERNAL);
  p = parsed(cx, text);
  p->tensors.data[0]->order[0] = 1;
  assert_int_equal(kiln_program_verify(cx, p), KILN_INTERNAL);
  p = parsed(cx, programs[1]);
  p->tensors.data[1]->bytes--;
  assert_int_equal(kiln_program_verify(cx, p), KILN_INTERNAL);
}

static void constants_lack_data_where_it_is_said(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  kiln_program *p = parsed(cx, programs[1]);
  kiln_bits *late = kiln_bits_make(&cx->perm, p->tensors.n);
  p->tensors.data[1]->data = NULL;
  assert_int_equal(kiln_program_verify(cx, p), KILN_INTERNAL);
  assert_int_equal(kiln_program_verify_without(cx, p, late), KILN_INTERNAL);
  kiln_bits_set(late, 1);
  assert_int_equal(kiln_program_verify_without(cx, p, late), KILN_OK);
  p->tensors.data[1]->bytes--;
  assert_int_equal(kiln_program_verify_without(cx, p, late), KILN_INTERNAL);
}

static const struct {
  const char *text, *message;
} errors[] = {
    {"", "program:1:1: error: expected the program's name, got the end"},
    {"p {\n  in f31 X(4)\n}", "program:2:6: error: expected a type such as f32, got 'f31'"},
    {"p { in f32 X(4) in f32 X(4) }",
     "program:1:25: error: expected a new name before this place, not 'X', got '('"},
    {"p { in f32 X(4) X(i0:4) = 0f32 }",
     "program:1:18: error: expected a tensor that nothing else writes before this place, not 'X', "
     "got '('"},
    {"p { out f32 X(4) X(i0:4) = 0 }",
     "program:1:30: error: expected an expression of type f32 before this place, not i64, got '}'"},
    {"p { out f32 X(4) X(i0:4) 0f32 }",
     "program:1:26: error: expected '=', '+=!', 'max=!' or another combiner, got '0f32'"},
    {"p { const f32 X(2) = 0x00 }",
     "program:1:27: error: expected 7 more bytes in hexadecimal, got '}'"},
    {"p { const f32 X(99999999999) = ... }",
     "program:1:30: error: expected a constant of at most 268435456 bytes, got '='"},
    {"p { in f32 X(2, 2) order (0, 0) }",
     "program:1:33: error: expected a permutation of the axes before this place, got '}'"},
    {"p { Z(i0:4) = 0f32 }",
     "program:1:6: error: expected a declared tensor before this place, not 'Z', got '('"},
    {"p { } q", "program:1:7: error: expected the end, got 'q'"},
};

static void errors_say_where_and_what(void **state) {
  fixture *f = *state;
  for (size_t row = 0; row < KILN_LEN(errors); row++) {
    kiln_program *p = NULL;
    kiln_diag_clear(f->diag);
    assert_int_equal(kiln_program_parse(&f->cx, errors[row].text, &p), KILN_BAD_INPUT);
    assert_null(p);
    assert_string_equal(kiln_diag_message(f->diag, 0), errors[row].message);
  }
}

static const kiln_expr *random_index(kiln_ctx *cx, uint64_t *r, const kiln_stmt *s) {
  const int n = s->n_space + s->n_reduce;
  if (n == 0) return kiln_int(cx, random_below(r, 3));
  const kiln_expr *e = kiln_stmt_var(cx, s, random_below(r, n));
  static const kiln_expr_kind kinds[] = {KILN_EXPR_ADD, KILN_EXPR_MUL, KILN_EXPR_DIV,
                                         KILN_EXPR_MOD};
  for (int k = random_below(r, 3); k > 0; k--)
    e = kiln_binary(cx, kinds[random_below(r, 4)], e, kiln_int(cx, 1 + random_below(r, 5)));
  return e;
}

// A body of |t| over what stands before the statement.
static const kiln_expr *random_body(kiln_ctx *cx, uint64_t *r, const kiln_program *p,
                                    const kiln_stmt *s) {
  const kiln_dtype t = p->tensors.data[s->out]->dtype;
  const kiln_expr *e = kiln_number(cx, t, random_below(r, 9) - 4);
  if (kiln_dtype_is_code(t)) return e;
  for (int k = random_below(r, 4); k >= 0; k--) {
    const kiln_tensor *x = p->tensors.data[random_below(r, s->out)];
    const kiln_expr *index[KILN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) index[i] = random_index(cx, r, s);
    const kiln_expr *load = kiln_cast(cx, t, kiln_tensor_load(cx, x, index));
    e = kiln_binary(cx, t == KILN_BOOL ? KILN_EXPR_OR : KILN_EXPR_ADD, e, load);
  }
  return e;
}

static kiln_program *random_program(kiln_ctx *cx, uint64_t *r) {
  kiln_program *p = kiln_program_make(cx, "random");
  const kiln_expr *extents[4] = {kiln_int(cx, 4), kiln_var(cx, kiln_symbol_of(cx, "n")),
                                 kiln_int(cx, 1), kiln_int(cx, 6)};
  const kiln_tensor *x = kiln_tensor_make(cx, p, "X", KILN_F16, KILN_INPUT, 4, extents);
  KILN_VEC_PUSH(&cx->perm, &p->inputs, x->id);
  for (int k = 1 + random_below(r, 8); k > 0; k--) {
    const kiln_dtype t = (kiln_dtype)random_below(r, KILN_N_DTYPES);
    const int n_space = random_below(r, 3), n_reduce = random_below(r, 3);
    kiln_stmt *s =
        kiln_stmt_make(cx, p, random_below(r, 2) ? "/a/T" : "T", t, n_space, n_reduce, extents);
    if (kiln_dtype_is_code(t)) s->n_reduce = 0;
    if (s->n_reduce > 0) s->combiner = t == KILN_BOOL ? KILN_COMBINE_OR : KILN_COMBINE_MAX;
    s->body = random_body(cx, r, p, s);
    if (random_below(r, 4) == 0)
      s->guard = kiln_binary(cx, KILN_EXPR_LT, random_index(cx, r, s), kiln_int(cx, 3));
    if (random_below(r, 3) == 0) s->origin = kiln_symbol_of(cx, "node \"7\"");
    if (random_below(r, 3) > 0) continue;
    p->tensors.data[s->out]->role = KILN_OUTPUT;
    KILN_VEC_PUSH(&cx->perm, &p->outputs, s->out);
  }
  return p;
}

static void random_programs_verify_and_read_back_the_same(void **state) {
  fixture *f = *state;
  uint64_t r = 3;
  for (int i = 0; i < N_RANDOM; i++) {
    kiln_program *p = random_program(&f->cx, &r);
    const char *once = shown(&f->cx, p);
    if (kiln_program_verify(&f->cx, p) != KILN_OK)
      fail_msg("%s\n%s", kiln_diag_message(f->diag, 0), once);
    kiln_program *back = parsed(&f->cx, once);
    assert_string_equal(shown(&f->cx, back), once);
    assert_int_equal(kiln_program_verify(&f->cx, back), KILN_OK);
  }
}

static void the_parser_and_the_verifier_survive_anything(void **state) {
  fixture *f = *state;
  uint64_t r = 5;
  char text[1024];
  int good = 0;
  for (int i = 0; i < N_FUZZ; i++) {
    random_mutation(&r, programs[random_below(&r, KILN_LEN(programs))], text, sizeof text);
    kiln_program *p = NULL;
    if (kiln_program_parse(&f->cx, text, &p) == KILN_OK) {
      good += kiln_program_verify(&f->cx, p) == KILN_OK;
      shown(&f->cx, p);
    }
    kiln_diag_clear(f->diag);
  }
  assert_in_range(good, 1, N_FUZZ - 1);
}

// --- memory ---

static void count_run(void *object) { ++*(int *)object; }

typedef struct work {
  int cleaned;
} work;

static kiln_status everything(kiln_ctx *cx, void *argument) {
  work *w = argument;
  kiln_program *p = NULL;
  kiln_loops *l = NULL;
  kiln_text text;
  kiln_cleanup_push(cx, count_run, &w->cleaned);
  KILN_TRY(kiln_program_parse(cx, programs[1], &p));
  KILN_TRY(kiln_program_verify(cx, p));
  const kiln_stmt *s = p->stmts.data[0];
  kiln_simplify(cx, s->body, NULL);
  const kiln_expr *four = kiln_int(cx, 4);
  kiln_expr_substitute(cx, s->body, 1, &s->dims[2].name, &four);
  kiln_text_init(&text, &cx->scratch);
  kiln_program_print(cx, p, &text);
  KILN_TRY(kiln_loops_parse(
      cx,
      "kernel k { param f32 A[4]:(1) local f32 b[] for i:4 { alloc b { b[] = A[i]*2f32 A[i] = "
      "b[] } } }",
      &l));
  KILN_TRY(kiln_loops_verify(cx, l));
  kiln_loops_print(cx, kiln_loops_copy(&cx->perm, l), &text);
  kiln_cleanup_pop(cx);
  return KILN_OK;
}

// Fails the n-th allocation of one arena, for every n until all of the work is done.
static int fail_each(int which) {
  for (int64_t n = 1;; n++) {
    kiln_diag *diag = kiln_diag_create();
    kiln_ctx cx;
    work w = {0};
    assert_non_null(diag);
    assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
    kiln_arena *arena = which == 0 ? &cx.perm : which == 1 ? &cx.scratch : &cx.walk;
    arena->fail_in = n;
    const kiln_status status = kiln_ctx_enter(&cx, everything, &w);
    const bool done = status == KILN_OK;
    if (!done) {
      assert_int_equal(status, KILN_NO_MEMORY);
      assert_string_equal(kiln_diag_message(diag, 0), "error: no memory left");
      arena->fail_in = 0; // what stands is whole: the work can be done in the same context
      assert_int_equal(kiln_ctx_enter(&cx, everything, &w), KILN_OK);
    }
    assert_int_equal(w.cleaned, !done);
    kiln_ctx_deinit(&cx);
    kiln_diag_destroy(diag);
    if (done) return (int)n;
  }
}

static void every_failing_allocation_is_no_memory_and_no_leak(void **state) {
  (void)state;
  assert_true(fail_each(0) > 100);
  assert_true(fail_each(1) > 20);
  assert_true(fail_each(2) > 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(the_text_of_a_program_reads_back_the_same),
      FIXTURE_TEST(good_programs_verify),
      FIXTURE_TEST(names_are_made_unique),
      FIXTURE_TEST(a_made_statement_is_plain_and_writes_a_new_tensor),
      FIXTURE_TEST(identities_leave_every_value_as_it_is),
      FIXTURE_TEST(breaches_are_named),
      FIXTURE_TEST(constants_lack_data_where_it_is_said),
      FIXTURE_TEST(broken_structures_are_found),
      FIXTURE_TEST(errors_say_where_and_what),
      FIXTURE_TEST(random_programs_verify_and_read_back_the_same),
      FIXTURE_TEST(the_parser_and_the_verifier_survive_anything),
      cmocka_unit_test(every_failing_allocation_is_no_memory_and_no_leak),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

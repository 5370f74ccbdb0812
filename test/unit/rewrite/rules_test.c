// The table of rewriting rules: its runner, its names, and each rule by random evaluation.
#include "unit/rewrite/algebra.h"
#include "unit/rewrite/axes.h"

static int n_runs;

// Decrements a positive constant of one statement, until all are 0.
static int count_down(kiln_ctx *cx, kiln_program *p) {
  kiln_stmt *s = p->stmts.data[0];
  n_runs++;
  if (s->body->u.f <= 0) return 0;
  s->body = kiln_float(cx, KILN_F32, s->body->u.f - 1);
  return 2;
}

static int never(kiln_ctx *cx, kiln_program *p) {
  (void)cx;
  (void)p;
  return 0;
}

static int break_it(kiln_ctx *cx, kiln_program *p) {
  p->stmts.data[0]->body = kiln_int(cx, 0); // of another type than the tensor
  return 1;
}

// The same as an alternative, whose place is the statement's tensor.
static int count_down_at(kiln_ctx *cx, kiln_program *p, kiln_site *site) {
  return kiln_site_enter(cx, site, p, p->stmts.data[0]) ? count_down(cx, p) : 0;
}

static const kiln_rule down[] = {{"down", "", .apply = count_down},
                                 {"never", "", .apply = never},
                                 {"other", "", .apply_at = count_down_at},
                                 {0}};
static const kiln_rule broken[] = {{"broken", "", .apply = break_it}, {0}};

static kiln_program *parse(fixture *f, const char *text) {
  kiln_program *p = NULL;
  assert_int_equal(kiln_program_parse(&f->cx, text, &p), KILN_OK);
  return p;
}

static void rules_run_until_nothing_changes(void **state) {
  fixture *f = *state;
  kiln_program *p = parse(f, "p { out f32 Y(2) Y(i0:2) = 3f32 }");
  kiln_rewriting r = {.rules = down};
  n_runs = 0;
  assert_int_equal(kiln_rewrite(&f->cx, p, &r), KILN_OK);
  assert_int_equal(n_runs, 4);
  assert_int_equal(r.counts[0], 6);
  assert_int_equal(r.counts[1], 0);
  assert_ptr_equal(r.last, &down[0]);
  kiln_text text;
  kiln_text_init(&text, &f->cx.perm);
  kiln_rewriting_print(&r, &text);
  assert_string_equal(text.data, "down 6");
}

static void rules_stop_after_so_many_steps_and_rounds(void **state) {
  fixture *f = *state;
  kiln_program *p = parse(f, "p { out f32 Y(2) Y(i0:2) = 1000f32 }");
  kiln_rewriting one = {.rules = down, .n_steps = 1}, all = {.rules = down};
  assert_int_equal(kiln_rewrite(&f->cx, p, &one), KILN_OK);
  assert_int_equal(one.counts[0], 2);
  assert_int_equal(kiln_rewrite(&f->cx, p, &all), KILN_OK);
  assert_int_equal(all.counts[0], 16);
}

static void a_rule_that_is_left_out_does_not_run(void **state) {
  fixture *f = *state;
  kiln_program *p = parse(f, "p { out f32 Y(2) Y(i0:2) = 3f32 }");
  kiln_rewriting r = {.rules = down, .without = 1};
  assert_int_equal(kiln_rewrite(&f->cx, p, &r), KILN_OK);
  assert_int_equal(r.counts[0], 0);
  assert_null(r.last);
}

static void an_alternative_runs_where_it_is_asked_for(void **state) {
  fixture *f = *state;
  kiln_program *p = parse(f, "p { out f32 Y(2) Y(i0:2) = 3f32 }");
  kiln_rewriting with = {.rules = down, .without = 1, .with = {.rows = 4}},
                 none = {.rules = down, .without = 5, .with = {.rows = 4}};
  assert_int_equal(kiln_rewrite(&f->cx, p, &none), KILN_OK);
  assert_null(none.last);
  assert_int_equal(kiln_rewrite(&f->cx, p, &with), KILN_OK);
  assert_int_equal(with.counts[2], 6);
}

static void an_alternative_runs_at_the_places_that_are_asked_for(void **state) {
  fixture *f = *state;
  kiln_program *p = parse(f, "p { out f32 \"/a b.0\"(2) \"/a b.0\"(i0:2) = 3f32 }");
  kiln_rewriting here = {.rules = down, .without = 1}, elsewhere = here;
  assert_int_equal(kiln_rules_ask(&f->cx, down, "other@/a_b.1,other@/a_b", &elsewhere.with),
                   KILN_OK);
  assert_int_equal(kiln_rewrite(&f->cx, p, &elsewhere), KILN_OK);
  assert_null(elsewhere.last);
  assert_int_equal(kiln_rewriting_check_places(&f->cx, &elsewhere), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(f->diag, kiln_diag_count(f->diag) - 1), "'/a_b.1'"));
  assert_int_equal(kiln_rules_ask(&f->cx, down, "other@/a_b.0", &here.with), KILN_OK);
  assert_int_equal(kiln_rewrite(&f->cx, p, &here), KILN_OK);
  assert_int_equal(here.counts[2], 6);
  assert_int_equal(here.taken.n, 1);
  assert_int_equal(kiln_rewriting_check_places(&f->cx, &here), KILN_OK);
}

static void what_is_asked_for_is_read_as_it_prints(void **state) {
  fixture *f = *state;
  static const char *const texts[] = {"", "down", "down,other", "down@a/b,down@c,other"};
  for (size_t i = 0; i < KILN_LEN(texts); i++) {
    kiln_asked asked = {0};
    if (i > 0) assert_int_equal(kiln_rules_ask(&f->cx, down, texts[i], &asked), KILN_OK);
    assert_string_equal(kiln_asked_text(&f->cx, down, &asked), texts[i]);
  }
  kiln_asked asked = {0};
  assert_int_equal(kiln_rules_ask(&f->cx, down, "up@a", &asked), KILN_BAD_INPUT);
}

static void names_come_as_lists_and_unknown_ones_are_refused(void **state) {
  fixture *f = *state;
  kiln_asked asked = {0};
  assert_int_equal(kiln_rules_ask(&f->cx, down, "down,never", &asked), KILN_OK);
  assert_int_equal(asked.rows, 3);
  assert_int_equal(kiln_rules_ask(&f->cx, down, "down,up", &asked), KILN_BAD_INPUT);
  assert_string_equal(kiln_diag_message(f->diag, kiln_diag_count(f->diag) - 1),
                      "options: error: rule: must be down, never or other, got 'up'");
}

static void a_rule_that_leaves_no_program_is_named(void **state) {
  fixture *f = *state;
  kiln_program *p = parse(f, "p { out f32 Y(2) Y(i0:2) = 3f32 }");
  kiln_rewriting r = {.rules = broken};
  assert_int_equal(kiln_rewrite(&f->cx, p, &r), KILN_INTERNAL);
  assert_non_null(
      strstr(kiln_diag_message(f->diag, kiln_diag_count(f->diag) - 1), "broken: error: rule"));
}

static void every_row_has_a_name_of_its_own_and_a_text(void **state) {
  const int n = count_rows(kiln_rules);
  (void)state;
  assert_true(n <= KILN_MAX_RULES);
  for (int i = 0; i < n; i++) {
    assert_true(kiln_rules[i].text[0] != 0);
    assert_int_equal(kiln_rules_row(kiln_rules, kiln_rules[i].name, strlen(kiln_rules[i].name)), i);
  }
}

// --- each rule: programs to which it applies, and programs to which it must not ---

// Weights are stored in fewer bits than they are multiplied in.
static const rule_case narrow[] = {
    // a cast
    {"p { in f32 X(3, 512) const f16 W(512, 520) = ... temp f32 V(512, 520) out f32 Y(3, 520)\n"
     "V(i0:512, i1:520) = f32(W(i0, i1))\n"
     "Y(i0:3, i1:520 | r0:512) +=! X(i0, r0)*V(r0, i1) }",
     1, 1},
    // a scale for each column, transposed after it
    {"p { in f32 X(3, 512) const i8 W(520, 512) = ... const f32 F(520) = ... "
     "temp f32 V(520, 512) temp f32 U(512, 520) out f32 Y(3, 520)\n"
     "V(i0:520, i1:512) = f32(i32(W(i0, i1)))*F(i0)\n"
     "U(i0:512, i1:520) = V(i1, i0)\n"
     "Y(i0:3, i1:520 | r0:512) +=! X(i0, r0)*U(r0, i1) }",
     1, 2},
    // a zero point, too, and one row: its sum is another statement
    {"p { in f32 X(1, 512) const u8 W(512, 520) = ... const f32 F(520) = ... const u8 Z(520) = ... "
     "temp f32 V(512, 520) out f32 Y(1, 520)\n"
     "V(i0:512, i1:520) = F(i1)*(f32(i32(W(i0, i1))) - f32(i32(Z(i1))))\n"
     "Y(i0:1, i1:520 | r0:512) +=! V(r0, i1)*X(i0, r0) }",
     1, 3},
    // 8 bits of a float, in each of the encodings
    {"p { in f32 X(3, 512) const f8e5m2 W(512, 520) = ... temp f32 V(512, 520) out f32 Y(3, 520)\n"
     "V(i0:512, i1:520) = f32(W(i0, i1))\n"
     "Y(i0:3, i1:520 | r0:512) +=! X(i0, r0)*V(r0, i1) }",
     1, 1},
    {"p { in f32 X(3, 512) const f8e4m3fn W(512, 520) = ... temp f32 V(512, 520) "
     "out f32 Y(3, 520)\n"
     "V(i0:512, i1:520) = f32(W(i0, i1))\n"
     "Y(i0:3, i1:520 | r0:512) +=! X(i0, r0)*V(r0, i1) }",
     1, 2},
    // scales along the sum
    {"p { in f32 X(3, 512) const i8 W(512, 520) = ... const f32 F(512) = ... "
     "temp f32 V(512, 520) out f32 Y(3, 520)\n"
     "V(i0:512, i1:520) = f32(i32(W(i0, i1)))*F(i0)\n"
     "Y(i0:3, i1:520 | r0:512) +=! X(i0, r0)*V(r0, i1) }",
     0, 2},
    // scales and zero points of blocks, of words of 4 bits: those stand behind the sums of blocks
    {"p { in f32 X(3, 64) const i32 W(2, 4, 2, 8) = ... const f32 F(2, 4, 8) = ... "
     "const u8 Z(2, 4, 8) = ... out f32 Y(2, 3, 8)\n"
     "Y(i0:2, i1:3, i2:8 | r0:4, r1:2, r2:8) +=! X(i1, r0*16 + r1*8 + r2)*"
     "((f32(band(shr(W(i0, r0, r1, i2), i32(r2*4)), 15i32)) - f32(i32(Z(i0, r0, i2))))*"
     "F(i0, r0, i2)) }",
     1, 3},
    // scales of blocks alone, factors in another order
    {"p { in f32 X(3, 64) const i32 W(2, 4, 2, 8) = ... const f32 F(2, 4, 8) = ... "
     "out f32 Y(2, 3, 8)\n"
     "Y(i0:2, i1:3, i2:8 | r0:2, r1:4, r2:8) +=! F(i0, r1, i2)*X(i1, r1*16 + r0*8 + r2)*"
     "f32(band(shr(W(i0, r1, r0, i2), i32(r2*4)), 15i32)) }",
     1, 2},
    // a scale that moves in all dims of the sum, one for each column, many rows
    {"p { in f32 X(3, 64) const i32 W(8, 8) = ... const f32 F(8, 8) = ... out f32 Y(3, 8)\n"
     "Y(i0:3, i1:8 | r0:8, r1:8) +=! X(i0, r0*8 + r1)*"
     "(f32(band(shr(W(r0, i1), i32(r1*4)), 15i32))*F(r0, r1)) }",
     0, 1},
    {"p { in f32 X(32, 64) const i32 W(8, 8) = ... const f32 F(4, 8) = ... out f32 Y(32, 8)\n"
     "Y(i0:32, i1:8 | r0:4, r1:2, r2:8) +=! X(i0, r0*16 + r1*8 + r2)*"
     "(f32(band(shr(W(r0*2 + r1, i1), i32(r2*4)), 15i32))*F(r0, i1)) }",
     0, 1},
    // many rows
    {"p { in f32 X(32, 512) const f16 W(512, 520) = ... temp f32 V(512, 520) out f32 Y(32, 520)\n"
     "V(i0:512, i1:520) = f32(W(i0, i1))\n"
     "Y(i0:32, i1:520 | r0:512) +=! X(i0, r0)*V(r0, i1) }",
     0, 2},
    // few weights
    {"p { in f32 X(3, 12) const f16 W(12, 8) = ... temp f32 V(12, 8) out f32 Y(3, 8)\n"
     "V(i0:12, i1:8) = f32(W(i0, i1))\n"
     "Y(i0:3, i1:8 | r0:12) +=! X(i0, r0)*V(r0, i1) }",
     0, 2},
};

static const rule_case constants[] = {
    {"p { in f32 X(3) const f32 V(3) = ... const f32 W(3) = ... temp f32 E(3) temp f32 D(3) out "
     "f32 Y(3)\n"
     "E(i0:3) = V(i0) + W(i0) D(i0:3) = exp(E(i0)) Y(i0:3) = X(i0)*D(i0) }",
     2, 1},
    {"p { in f32 X(3) const f32 V(3) = ... temp f32 E(3) out f32 Y(3)\n"
     "E(i0:3) = V(2 - i0) Y(i0:3) = X(i0)*E(i0) }",
     0, 2},
    // a mask that is filled and assigned twice: the scatters fold, what fills is dead then
    {"p { in f32 X(4) const i64 K(2) = 0x01000000000000000300000000000000 temp f32 F(4) temp f32 "
     "A(4) temp f32 V(2) temp f32 B(4) out f32 Y(4)\n"
     "F(i0:4) = 0f32 A(i0:2) at (K(i0)) = 1f32 init (F(o0)) V(i0:2) = A(i0 + 1)\n"
     "B(i0:2) at (K(i0) - 1) = V(i0) init (A(o0)) Y(i0:4) = X(i0)*B(i0) }",
     2, 1},
    // what is scattered is an input
    {"p { in f32 X(2) const i64 K(2) = 0x01000000000000000300000000000000 out f32 Y(4)\n"
     "Y(i0:2) at (K(i0)) = X(i0) init (0f32) }",
     0, 1},
};

static const rule_case scatters[] = {
    // lines, downwards, with a step, along two axes, one of them constant; combined with the values
    {"p { in f32 X(6, 5) in f32 U(3, 5) const i64 K(3) = "
     "0x020000000000000003000000000000000400000000000000 out f32 Y(6, 5)\n"
     "Y(i0:3, i1:5) at (K(i0), i1) = U(i0, i1) init (X(o0, o1)) }",
     1, 1},
    {"p { in f32 X(6, 5) in f32 U(3, 5) const i64 K(3) = "
     "0x050000000000000003000000000000000100000000000000 out f32 Y(6, 5)\n"
     "Y(i0:3, i1:5) at (K(i0), i1) +=! U(i0, i1) init (X(o0, o1)) }",
     1, 1},
    {"p { in f32 X(4, 5) in f32 U(2, 2) const i64 K(2) = 0x01000000000000000300000000000000\n"
     "const i64 L(1) = 0x0300000000000000 const i64 M(1) = 0x0200000000000000 out f32 Y(4, 5, 3)\n"
     "Y(i0:2, i1:2) at (K(i1), K(i0) + L(0) - 3, M(0)) = U(i0, i1) init (X(o0, o1)) }",
     1, 1},
    // others: a table; the last of equal positions counts, the guard leaves some out
    {"p { in f32 X(6) in f32 U(3) const i64 K(3) = "
     "0x050000000000000000000000000000000500000000000000 out f32 Y(6)\n"
     "Y(i0:3) at (K(i0)) = U(i0) init (X(o0)) }",
     1, 1},
    {"p { in f32 X(6) in f32 U(3, 2) const i64 K(3) = "
     "0x050000000000000000000000000000000900000000000000 out f32 Y(6, 2)\n"
     "Y(i0:3, i1:2) at (K(i0), i1) = U(i0, i1) if K(i0) < 6 init (X(o0)) }",
     1, 1},
    // sums of equal positions, positions that are data, and values of earlier iterations stay
    {"p { in f32 X(6) in f32 U(3) const i64 K(3) = "
     "0x050000000000000000000000000000000500000000000000 out f32 Y(6)\n"
     "Y(i0:3) at (K(i0)) +=! U(i0) init (X(o0)) }",
     0, 1},
    {"p { in f32 X(6) in f32 U(3) in i64 K(3) out f32 Y(6)\n"
     "Y(i0:3) at (K(i0)) = U(i0) init (X(o0)) }",
     0, 1},
    {"p { in f32 X(6) const i64 K(3) = 0x020000000000000003000000000000000400000000000000 out f32 "
     "Y(6)\n"
     "Y(i0:3) at (K(i0)) = Y(i0) + 1f32 init (X(o0)) }",
     0, 1},
};

static const rule_case cse[] = {
    // statements over equal constants, and their readers; names of dims differ
    {"p { in f32 X(3, 4) const f32 V(4) = 0x0000803f000000400000404000008040\n"
     "const f32 W(4) = 0x0000803f000000400000404000008040 temp f32 A(3, 4) temp f32 B(3, 4) temp "
     "f32 SA(3)\n"
     "temp f32 SB(3) out f32 Y(3)\n"
     "A(i:3, j:4) = X(i, j)*V(j) B(i0:3, i1:4) = X(i0, i1)*W(i1) SA(i:3 | r:4) +=! A(i, r)\n"
     "SB(i1:3 | i0:4) +=! B(i1, i0) Y(i:3) = SA(i)/(1f32 + SB(i)*SB(i)) }",
     3, 3},
    // a result replaces an equal tensor; a result that equals another is kept
    {"p { in f32 X(3) out f32 Y(3) temp f32 A(3) out f32 Z(3) out f32 V(3)\n"
     "Y(i:3) = exp(X(i)) A(i:3) = exp(X(i)) Z(i:3) = A(i) + 1f32 V(i:3) = exp(X(i)) }",
     1, 3},
    // scatters, with an init
    {"p { in f32 X(3) in i64 K(3) temp f32 A(2) temp f32 B(2) temp f32 C(2) out f32 Y(2)\n"
     "A(i:3) at (K(i)) +=! X(i) init (f32(o0)) B(j:3) at (K(j)) +=! X(j) init (f32(o0))\n"
     "C(j:3) at (K(j)) +=! X(j) Y(i:2) = A(i) + 2f32*B(i) + 3f32*C(i) }",
     1, 3},
    // copies, of a result, of an input, along an axis of one element; results and transposed
    // tensors are kept
    {"p { in f32 X(1, 3) temp f32 A(1, 3) temp f32 B(1, 3) temp f32 C(1, 3) temp f32 D(1, 3) out "
     "f32 Y(1, 3) out f32 Z(1, 3)\n"
     "A(i:1, j:3) = X(0, j) B(i:1, j:3) = exp(A(i, j)) C(i:1, j:3) = B(i, j) D(i:1, j:3) = C(i, 2 "
     "- j)\n"
     "Y(i:1, j:3) = C(i, j) + D(i, j) Z(i:1, j:3) = Y(i, j) }",
     2, 4},
    // other elements, other shape, another guard, another axis, other order of subtraction
    {"p { in f32 X(3, 3) const f32 V(3) = 0x0000803f0000004000004040 const f32 W(3) = "
     "0x0000803f0000004000004041\n"
     "const f32 U(1, 3) = 0x0000803f0000004000004040 temp f32 A(3, 3) temp f32 B(3, 3) temp f32 "
     "C(3, 3)\n"
     "temp f32 D(3) temp f32 E(3) temp f32 F(3) temp f32 G(3, 3) out f32 Y(3, 3)\n"
     "A(i:3, j:3) = X(i, j) - V(j) B(i:3, j:3) = X(i, j) - W(j) C(i:3, j:3) = X(i, j) - U(0, j)\n"
     "G(i:3, j:3) = V(j) - X(i, j) D(i:3 | r:3) +=! X(i, r) E(i:3 | r:3) +=! X(r, i)\n"
     "F(i:3 | r:3) +=! X(i, r) if r < 2\n"
     "Y(i:3, j:3) = A(i, j) + 2f32*B(i, j) + 3f32*C(i, j) + 4f32*D(i) + 5f32*E(i) + 6f32*F(i) + "
     "7f32*G(i, j) }",
     0, 8},
};

static const rule_case resample[] = {
    {"p { in f32 X(1, 5, 2, 2) const f32 W(2, 5) = ... temp f32 U(1, 5, 4, 4) out f32 Y(1, 2, 4, "
     "4)\n"
     "U(i0:1, i1:5, i2:4, i3:4) = X(0, i1, i2/2, i3/2)\n"
     "Y(i0:1, i1:2, i2:4, i3:4 | r0:5) +=! W(i1, r0)*U(i0, r0, i2, i3) }",
     1, 3},
    {"p { in f32 X(1, 5, 2, 2) const f32 W(2, 5) = ... temp f32 U(1, 5, 4, 4) out f32 Y(1, 2, 4, "
     "4)\n"
     "U(i0:1, i1:5, i2:4, i3:4) = exp(X(0, i1, i2/2, i3/2))\n"
     "Y(i0:1, i1:2, i2:4, i3:4 | r0:5) +=! W(i1, r0)*U(i0, r0, i2, i3) }",
     0, 2},
};

static const rule_case concats[] = {
    // the operands of an earlier one in front, of one that reads another one, in the middle
    {"p { in f32 X(3, 4) temp f32 A(3, 4) temp f32 B(3, 2) temp f32 C(3, 5) temp f32 D(3, 6) temp "
     "f32 E(3, 11) temp f32 F(3, 14) out f32 Y(3, 6) out f32 Z(3, 11) out f32 W(3, 14)\n"
     "A(i0:3, i1:4) = exp(X(i0, i1)) B(i0:3, i1:2) = A(i0, i1) + A(i0, i1 + 2)\n"
     "D(i0:3, i1:6) = i1 < 4 ? A(i0, i1) : B(i0, i1 - 4)\n"
     "C(i0:3, i1:5) = exp(D(i0, i1)) Y(i0:3, i1:6) = exp(D(i0, i1))\n"
     "E(i0:3, i1:11) = i1 < 6 ? (i1 < 4 ? A(i0, i1) : B(i0, i1 - 4)) : C(i0, i1 - 6)\n"
     "F(i0:3, i1:14) = i1 < 9 ? (i1 < 4 ? (i1 < 3 ? X(i0, i1) : X(i0, 0)) : C(i0, i1 - 4)) : i1 < "
     "12 ? A(i0, i1 - 9) : B(i0, i1 - 12)\n"
     "Z(i0:3, i1:11) = exp(E(i0, i1)) W(i0:3, i1:14) = exp(F(i0, i1)) }",
     1, 9},
    // along the first axis, two steps of a chain
    {"p { in f32 X(2, 3) temp f32 A(2, 3) temp f32 B(2, 3) temp f32 C(2, 3) temp f32 D(4, 3) temp "
     "f32 E(6, 3) temp f32 F(8, 3) out f32 Y(4, 3) out f32 Z(6, 3) out f32 W(8, 3)\n"
     "A(i0:2, i1:3) = exp(X(i0, i1)) D(j:4, k:3) = j < 2 ? X(j, k) : A(j - 2, k) Y(i0:4, i1:3) = "
     "exp(D(i0, i1)) B(i0:2, i1:3) = Y(i0 + 1, i1)\n"
     "E(i0:6, i1:3) = i0 >= 4 ? B(i0 - 4, i1) : i0 < 2 ? X(i0, i1) : A(i0 - 2, i1) Z(i0:6, i1:3) = "
     "exp(E(i0, i1)) C(i0:2, i1:3) = Z(i0 + 2, i1)*2f32\n"
     "F(i0:8, i1:3) = i0 < 4 ? (i0 <= 1 ? X(i0, i1) : A(i0 - 2, i1)) : i0 > 5 ? C(i0 - 6, i1) : "
     "B(i0 - 4, i1)\n"
     "W(i0:8, i1:3) = exp(F(i0, i1)) }",
     2, 9},
    // other extents, other parts, parts that are inputs, the same number of parts
    {"p { in f32 X(3, 4) in f32 V(3, 4) temp f32 A(3, 4) temp f32 B(3, 4) temp f32 D(3, 8) temp "
     "f32 E(3, 7) temp f32 F(3, 12) temp f32 G(3, 8) temp f32 H(3, 12) out f32 Y(3, 12)\n"
     "A(i0:3, i1:4) = exp(X(i0, i1)) B(i0:3, i1:4) = exp(V(i0, i1))\n"
     "D(i0:3, i1:8) = i1 < 4 ? A(i0, i1) : B(i0, i1 - 4) E(i0:3, i1:7) = i1 < 4 ? A(i0, i1) : "
     "B(i0, i1 - 3)\n"
     "F(i0:3, i1:12) = i1 < 4 ? B(i0, i1) : i1 < 8 ? A(i0, i1 - 4) : A(i0, i1 - 8)\n"
     "G(i0:3, i1:8) = i1 < 4 ? X(i0, i1) : V(i0, i1 - 4)\n"
     "H(i0:3, i1:12) = i1 < 4 ? X(i0, i1) : i1 < 8 ? V(i0, i1 - 4) : A(i0, i1 - 8)\n"
     "Y(i0:3, i1:12) = F(i0, i1) + H(i0, i1) + (i1 < 7 ? D(i0, i1) + E(i0, i1) + G(i0, i1) : 0f32) "
     "}",
     0, 8},
};

#define SAFE(scores, weights, finish)                                                              \
  "p { in f32 A(4, 8) in f32 B(6, 8) in f32 V(6, 3) in f32 M(4, 6) temp f32 T(4, 6) temp f32 "     \
  "Z(4, 6) temp f32 X(4) temp f32 E(4, 6) temp f32 S(4) temp f32 P(4, 6) temp f32 Q(4, 6) out "    \
  "f32 O(4, 3) T(i0:4, i1:6 | r0:8) +=! A(i0, r0)*B(i1, r0) Z(i0:4, i1:6) = " scores               \
  " X(i0:4 | r0:6) max=! Z(i0, r0) E(i0:4, i1:6) = exp(Z(i0, i1) - X(i0)) S(i0:4 | r0:6) +=! "     \
  "E(i0, r0) P(i0:4, i1:6) = " weights                                                             \
  " Q(i0:4, i1:6) = isnan(P(i0, i1)) ? 0f32 : P(i0, i1) " finish " }"
#define WEIGHTED "O(i0:4, i1:3 | r0:6) +=! Q(i0, r0)*V(r0, i1)"
static const rule_case safe_softmax[] = {
    // without masks, with masks that are added or chosen by, of some rows or of all keys
    {SAFE("T(i0, i1)*0.5f32", "E(i0, i1)/S(i0)", WEIGHTED), 1, 7},
    {SAFE("M(i0, i1) > 0f32 ? T(i0, i1) : -inff32", "E(i0, i1)*(1f32/S(i0))", WEIGHTED), 1, 9},
    {SAFE("T(i0, i1) + (i0 == 2 ? -inff32 : M(0, i1))", "(1f32/S(i0))*E(i0, i1)", WEIGHTED), 1, 9},
    {SAFE("i1 <= i0 - 1 ? T(i0, i1) : -inff32", "E(i0, i1)/S(i0)", WEIGHTED), 1, 9},
    // weights that are a result's elements, or no softmax's
    {SAFE("T(i0, i1)", "E(i0, i1)/S(i0)", "O(i0:4, i1:3) = Q(i0, i1)*V(0, i1)"), 0, 8},
    {SAFE("T(i0, i1)", "Z(i0, i1)/S(i0)", WEIGHTED), 0, 8},
};

static const rule_case moves[] = {
    // slices of a concatenation and of a padding
    {"p { in f32 X(3, 4) in f32 Z(3, 4) temp f32 C(3, 8) temp f32 P(5, 4) temp f32 S(3, 4) temp "
     "f32 T(3, 4) temp f32 U(3, 4)\n"
     "out f32 Y(3, 4)\n"
     "C(i0:3, i1:8) = i1 < 4 ? X(i0, i1) : Z(i0, i1 - 4)\n"
     "P(i0:5, i1:4) = i0 >= 1 && i0 < 4 ? X(i0 - 1, i1) : 0f32\n"
     "S(i0:3, i1:4) = exp(C(i0, i1)) T(i0:3, i1:4) = C(i0, i1 + 4) U(i0:3, i1:4) = P(i0 + 1, i1)\n"
     "Y(i0:3, i1:4) = S(i0, i1) + 2f32*T(i0, i1) + 3f32*U(i0, i1) }",
     3, 4},
    // a concatenation of slices in order, and of the rows of a transposed tensor
    {"p { in f32 X(3, 8) temp f32 S(3, 4) temp f32 T(3, 4) temp f32 C(3, 8) temp f32 A(8, 1) temp "
     "f32 B(8, 2) temp f32 D(8, 3)\n"
     "out f32 Y(3, 8) out f32 Z(8, 3)\n"
     "S(i0:3, i1:4) = X(i0, i1) T(i0:3, i1:4) = X(i0, i1 + 4) C(i0:3, i1:8) = i1 < 4 ? S(i0, i1) : "
     "T(i0, i1 - 4)\n"
     "A(i0:8, i1:1) = X(0, i0) B(i0:8, i1:2) = X(i1 + 1, i0) D(i0:8, i1:3) = i1 < 1 ? A(i0, i1) : "
     "B(i0, i1 - 1)\n"
     "Y(i0:3, i1:8) = exp(C(i0, i1)) Z(i0:8, i1:3) = exp(D(i0, i1)) }",
     1, 6},
    // slices that reach into both parts, a window of a padding, slices in another order, a computed
    // part
    {"p { in f32 X(3, 4) in f32 Z(3, 4) temp f32 C(3, 8) temp f32 P(5, 4) temp f32 E(3, 8) temp "
     "f32 S(3, 4) temp f32 T(3, 4) temp f32 V(3, 4)\n"
     "temp f32 W(3, 4) out f32 Y(3, 4) out f32 Q(3, 8)\n"
     "C(i0:3, i1:8) = i1 < 4 ? X(i0, i1) : Z(i0, i1 - 4) P(i0:5, i1:4) = i0 >= 1 && i0 < 4 ? X(i0 "
     "- 1, i1) : 0f32\n"
     "E(i0:3, i1:8) = i1 < 4 ? X(i0, i1) : exp(Z(i0, i1 - 4))\n"
     "S(i0:3, i1:4) = C(i0, i1 + 2) T(i0:3, i1:4) = P(i0, i1) V(i0:3, i1:4) = E(i0, i1) W(i0:3, "
     "i1:4) = X(i0, 3 - i1)\n"
     "Q(i0:3, i1:8) = i1 < 4 ? V(i0, i1) : W(i0, i1 - 4)\n"
     "Y(i0:3, i1:4) = S(i0, i1) + 2f32*T(i0, i1) + 3f32*V(i0, i1) }",
     0, 9},
};

static const rule_case views[] = {
    // a transposed product, behind it four maps, one of which is read; and one along a dim of
    // extent 1
    {"p { in f32 X(2, 3) in f32 W(3, 4) const f32 F() = ... temp f32 S(2, 4) temp f32 V(1, 4, 2) "
     "temp f32 D(1, 4, 2) temp f32 E(1, 4, 2)\n"
     "temp f32 G(1, 4, 2) temp f32 H(1, 4, 2) out f32 Y(4, 2)\n"
     "S(i0:2, i1:4 | r0:3) +=! X(i0, r0)*W(r0, i1) V(i0:1, i1:4, i2:2) = S(i2, i1) D(i0:1, i1:4, "
     "i2:2) = V(i0, i1, i2)/1.5f32\n"
     "E(i0:1, i1:4, i2:2) = exp(D(0, i1, i2)) G(i0:1, i1:4, i2:2) = V(i0, i1, i2)*E(i0, i1, i2) "
     "H(i0:1, i1:4, i2:2) = G(i0, i1, i2) + F()\n"
     "Y(i0:4, i1:2) = H(0, i0, 1 - i1) }",
     1, 7},
    // through two views, the first of which repeats rows
    {"p { in f32 X(2, 3) temp f32 S(2, 3) temp f32 U(4, 3) temp f32 V(12) temp f32 E(12) out f32 "
     "Y(6, 2)\n"
     "S(i0:2, i1:3) = X(i0, i1)*2f32 U(i0:4, i1:3) = S(i0/2, i1) V(i0:12) = U(i0/3, i0%3) E(i0:12) "
     "= exp(V(i0))\n"
     "Y(i0:6, i1:2) = E(2*i0 + i1) }",
     2, 5},
    // other readers of the moved tensor, of two maps, of the view; a factor for each column; a map
    // of the neighbour; a slice; an input or a concatenation
    {"p { in f32 X(2, 4) in f32 Z(2, 4) const f32 F(4) = ... temp f32 S(2, 4) temp f32 A(4, 2) "
     "temp f32 B(4, 2) temp f32 C(4, 2) temp f32 D(4, 2)\n"
     "temp f32 S1(2, 4) temp f32 A1(4, 2) temp f32 B1(4, 2) temp f32 C1(4, 2) temp f32 S2(2, 4) "
     "temp f32 A2(4, 2) temp f32 B2(4, 2) temp f32 S3(2, 4)\n"
     "temp f32 A3(4, 2) temp f32 B3(4, 2) temp f32 S4(2, 4) temp f32 A4(4, 2) temp f32 B4(4, 2) "
     "temp f32 S5(2, 4) temp f32 A5(2, 2) temp f32 B5(2, 2)\n"
     "temp f32 A6(4, 2) temp f32 B6(4, 2) temp f32 S7(2, 8) temp f32 A7(8, 2) temp f32 B7(8, 2) "
     "out f32 Y(4, 2) out f32 T(8, 2)\n"
     "S(i:2, j:4) = exp(X(i, j)) A(i:4, j:2) = S(j, i) B(i:4, j:2) = A(i, j) + 1f32 C(i:4, j:2) = "
     "A(3 - i, j)\n"
     "S1(i:2, j:4) = sin(X(i, j)) A1(i:4, j:2) = S1(j, i) B1(i:4, j:2) = A1(i, j) + 1f32 C1(i:4, "
     "j:2) = A1(i, j) + 2f32\n"
     "S2(i:2, j:4) = cos(X(i, j)) A2(i:4, j:2) = S2(j, i) B2(i:4, j:2) = A2(i, j)*3f32\n"
     "S3(i:2, j:4) = tanh(X(i, j)) A3(i:4, j:2) = S3(j, i) B3(i:4, j:2) = A3(i, j)*F(i)\n"
     "S4(i:2, j:4) = X(i, j)*3f32 A4(i:4, j:2) = S4(j, i) B4(i:4, j:2) = A4(i, j) + A4(i, 1 - j)\n"
     "S5(i:2, j:4) = X(i, j)*4f32 A5(i:2, j:2) = S5(j, i + 1) B5(i:2, j:2) = exp(A5(i, j))\n"
     "A6(i:4, j:2) = Z(j, i) B6(i:4, j:2) = exp(A6(i, j))\n"
     "S7(i:2, j:8) = j < 4 ? X(i, j) : Z(i, j - 4) A7(i:8, j:2) = S7(j, i) B7(i:8, j:2) = "
     "exp(A7(i, j))\n"
     "Y(i:4, j:2) = B(i, j) + C(i, j) + B1(i, 1 - j) + C1(i, j) + B2(3 - i, j) + S2(j, i) + B3(3 - "
     "i, j) + B4(3 - i, j) + B5(i%2, j) + B6(3 - i, j)\n"
     "T(i:8, j:2) = B7(7 - i, j) }",
     0, 27},
    // integers
    {"p { in f32 X(2, 3) temp i32 S(2, 3) temp i32 V(3, 2) temp i32 E(3, 2) out i32 Y(3, 2)\n"
     "S(i:2, j:3) = i32(X(i, j)*9f32) V(i:3, j:2) = S(j, i) E(i:3, j:2) = V(i, j) + 2i32 Y(i:3, "
     "j:2) = E(2 - i, j) }",
     0, 4},
};

static const rule_case repeat[] = {
    // four times, three channels; the weights along the first axis
    {"p { in f32 X(1, 3, 5) const f32 W(2, 12) = ... temp f32 C(1, 12, 5) out f32 Y(1, 2, 5)\n"
     "C(i0:1, i1:12, i2:5) = i1 < 6 ? i1 < 3 ? X(0, i1, i2) : X(0, i1 - 3, i2) : i1 < 9 ? X(0, i1 "
     "- 6, i2) : X(0, i1 - 9, i2)\n"
     "Y(i0:1, i1:2, i2:5 | r0:12) +=! C(0, r0, i2)*W(i1, r0) }",
     1, 1},
    {"p { in f32 X(4, 3) const f32 W(6, 5) = ... temp f32 C(4, 6) out f32 Y(4, 5) out f32 Z(4, 6)\n"
     "C(i0:4, i1:6) = i1 < 3 ? X(i0, i1) : X(i0, i1 - 3) Z(i0:4, i1:6) = C(i0, i1) + 1f32\n"
     "Y(i0:4, i1:5 | r0:6) +=! W(r0, i1)*C(i0, r0) }",
     1, 3},
    // two tensors, other elements of one, weights that are computed, along another axis than the
    // sum
    {"p { in f32 X(4, 3) in f32 Z(4, 3) in f32 V(6, 5) const f32 W(6, 5) = ... const f32 U(4) = "
     "... temp f32 C(4, 6) temp f32 D(4, 6)\n"
     "temp f32 E(4, 6) out f32 Y(4, 5) out f32 Q(4, 5) out f32 R(4, 5) out f32 T(6)\n"
     "C(i0:4, i1:6) = i1 < 3 ? X(i0, i1) : Z(i0, i1 - 3) D(i0:4, i1:6) = i1 < 3 ? X(i0, i1) : "
     "X(i0, 5 - i1)\n"
     "E(i0:4, i1:6) = i1 < 3 ? X(i0, i1) : X(i0, i1 - 3) Y(i0:4, i1:5 | r0:6) +=! W(r0, i1)*C(i0, "
     "r0)\n"
     "Q(i0:4, i1:5 | r0:6) +=! D(i0, r0)*W(r0, i1) R(i0:4, i1:5 | r0:6) +=! E(i0, r0)*V(r0, i1) "
     "T(i0:6 | r0:4) +=! E(r0, i0)*U(r0) }",
     0, 7},
};

static const rule_case merge[] = {
    // three products with parts of different widths, two with equal bias and epilogue
    {"p { in f32 X(4, 6) const f32 A(6, 5) = ... const f32 B(3, 6) = ... const f32 C(6, 7) = ... "
     "const f32 a(5) = ...\n"
     "const f32 b(3) = ... const f32 c(7) = ... temp f32 P(4, 5) temp f32 Q(4, 5) temp f32 U(4, 7) "
     "temp f32 V(4, 7)\n"
     "temp f32 W(4, 3) temp f32 T(4, 5) temp f32 S(4, 7) out f32 Y(4, 5) out f32 Z(4, 7) out f32 "
     "R(4, 3)\n"
     "P(i0:4, i1:5 | r0:6) +=! X(i0, r0)*A(r0, i1) U(i0:4, i1:7 | r0:6) +=! X(i0, r0)*C(r0, i1)\n"
     "Q(i0:4, i1:5) = P(i0, i1) + a(i1) V(i0:4, i1:7) = U(i0, i1) + c(i1) T(i0:4, i1:5) = Q(i0, "
     "i1)*exp(Q(i0, i1))\n"
     "S(i0:4, i1:7) = V(i0, i1)*exp(V(i0, i1)) W(i0:4, i1:3 | r0:6) +=! X(i0, r0)*B(i1, r0)\n"
     "Y(i0:4, i1:5) = 2f32*T(i0, i1) Z(i0:4, i1:7) = S(i0, 6 - i1) R(i0:4, i1:3) = W(i0, i1) + "
     "b(i1) }",
     1, 7},
    // halves, widened where they are read
    {"p { in f16 X(4, 6) const f16 A(6, 5) = ... const f16 B(6, 2) = ... temp f32 P(4, 5) temp f32 "
     "Q(4, 2) temp f16 R(4, 5)\n"
     "temp f16 S(4, 2) out f16 Y(4, 5) out f16 Z(4, 2)\n"
     "P(i0:4, i1:5 | r0:6) +=! f32(X(i0, r0))*f32(A(r0, i1)) Q(i0:4, i1:2 | r0:6) +=! f32(X(i0, "
     "r0))*f32(B(r0, i1))\n"
     "R(i0:4, i1:5) = f16(P(i0, i1)) S(i0:4, i1:2) = f16(Q(i0, i1))\n"
     "Y(i0:4, i1:5) = f16(f32(R(i0, i1)) + 1f32) Z(i0:4, i1:2) = f16(f32(S(i0, i1))*2f32) }",
     1, 4},
    // windows
    {"p { in f32 X(1, 2, 5) const f32 A(3, 2, 3) = ... const f32 B(4, 2, 3) = ... temp f32 P(1, 3, "
     "3) temp f32 Q(1, 4, 3)\n"
     "out f32 Y(1, 7, 3)\n"
     "P(i0:1, i1:3, i2:3 | r0:2, r1:3) +=! X(i0, r0, i2 + r1)*A(i1, r0, r1)\n"
     "Q(i0:1, i1:4, i2:3 | r0:2, r1:3) +=! X(i0, r0, i2 + r1)*B(i1, r0, r1)\n"
     "Y(i0:1, i1:7, i2:3) = i1 < 4 ? Q(i0, i1, i2) : P(i0, i1 - 4, i2) }",
     1, 2},
    // another operand, other extents, an output, a constant with another reader, both operands
    // along one axis
    {"p { in f32 X(4, 6) in f32 V(4, 6) in f32 U(4, 5) const f32 A(6, 5) = ... const f32 B(6, 5) = "
     "... const f32 C(5, 5) = ...\n"
     "const f32 D(6, 5) = ... const f32 E(6, 5) = ... const f32 F(4, 6) = ... temp f32 P(4, 5) "
     "temp f32 Q(4, 5)\n"
     "temp f32 R(4, 5) out f32 S(4, 5) temp f32 T(4, 5) temp f32 G(4) out f32 Y(4, 5)\n"
     "P(i0:4, i1:5 | r0:6) +=! X(i0, r0)*A(r0, i1) Q(i0:4, i1:5 | r0:6) +=! V(i0, r0)*B(r0, i1)\n"
     "R(i0:4, i1:5 | r0:5) +=! U(i0, r0)*C(r0, i1) S(i0:4, i1:5 | r0:6) +=! X(i0, r0)*D(r0, i1)\n"
     "T(i0:4, i1:5 | r0:6) +=! X(i0, r0)*E(r0, i1) G(i0:4 | r0:6) +=! X(i0, r0)*F(i0, r0)\n"
     "Y(i0:4, i1:5) = P(i0, i1) + 2f32*Q(i0, i1) + 3f32*R(i0, i1) + T(i0, i1)*E(i0, i1) + G(i0) }",
     0, 7},
};

static const rule_case blocks[] = {
    // a row, whole dims of which several make a block, a dim that no block divides, two readers
    {"p { in f32 X(2, 70000) out f32 Y(2) Y(i0:2 | r0:70000) +=! exp(X(i0, r0)) }", 1, 2},
    {"p { in f32 X(3, 60, 60, 20) out f32 Y(3) Y(i0:3 | r0:60, r1:60, r2:20) +=! X(i0, r0, r1, "
     "r2)*X(i0, r0, r1, r2) }",
     1, 2},
    {"p { in f32 X(65537) out f32 Y(1) Y(i0:1 | r0:65537) +=! X(r0 + i0) }", 1, 2},
    {"p { in f32 X(16411, 3) temp f32 S(3) out f32 Y(3) out f32 Z(3) S(i0:3 | r0:16411) +=! "
     "X(r0, i0) Y(i0:3) = S(i0) + 1f32 Z(i0:3) = S(2 - i0) }",
     1, 4},
    {"p { in f64 X(2, 70000) out f64 Y(2) Y(i0:2 | r0:70000) +=! X(i0, r0) }", 1, 2},
    // products: with a result, of a vector by a matrix
    {"p { in f32 X(65536) in f32 V(65536) out f32 Y(1) Y(i0:1 | r0:65536) +=! X(r0)*V(r0 + i0) }",
     1, 2},
    {"p { in f32 X(65537) in f32 V(65537, 256) out f32 Y(256) Y(i0:256 | r0:65537) +=! X(r0)*V(r0, "
     "i0) }",
     1, 2},
    {"p { in f32 X(5, 65536) in f32 V(65536, 4) out f32 Y(5, 4) Y(i0:5, i1:4 | r0:65536) +=! X(i0, "
     "r0)*V(r0, i1) }",
     0, 1},
    // axes behind reshapes, summed as they are: all of an image, groups of channels, through two of
    // them
    {"p { in f32 X(2, 24, 56, 56) temp f32 V(2, 1, 75264) out f32 Y(2, 1) V(i0:2, i1:1, i2:75264) "
     "= "
     "X(i0, i2/3136, i2/56%56, i2%56) Y(i0:2, i1:1 | r0:75264) +=! V(i0, i1, r0) }",
     1, 3},
    {"p { in f32 X(2, 10, 128, 120) temp f32 V(2, 2, 76800) in f32 M(2, 2) out f32 Y(2, 2) "
     "V(i0:2, i1:2, i2:76800) = X(i0, i1*5 + i2/15360, i2/120%128, i2%120) Y(i0:2, i1:2 | "
     "r0:76800) "
     "+=! (V(i0, i1, r0) - M(i0, i1))*(V(i0, i1, r0) - M(i0, i1)) }",
     1, 3},
    {"p { in f32 X(30, 50, 70) temp f32 V(30, 3500) temp f32 U(105000) out f32 Y(1) V(i0:30, "
     "i1:3500) "
     "= X(i0, i1/70, i1%70) U(i0:105000) = V(i0/3500, i0%3500) Y(i0:1 | r0:105000) +=! U(r0 + i0) "
     "}",
     1, 4},
    // a reshape that joins parts of axes
    {"p { in f32 X(300, 500) temp f32 V(2, 75000) out f32 Y(2) V(i0:2, i1:75000) = X((i0*75000 + "
     "i1)/500, i1%500) Y(i0:2 | r0:75000) +=! V(i0, r0) }",
     1, 3},
    // the greatest, few terms, products, integers
    {"p { in f32 X(2, 20000) in f32 V(2, 20000) in i32 U(20000) out f32 Y(2) out f32 Z(2) out f32 "
     "W(2) out i32 T(1)\n"
     "Y(i0:2 | r0:20000) max=! X(i0, r0) Z(i0:2 | r0:20000) +=! X(i0, r0) W(i0:2 | r0:20000) +=! "
     "X(i0, r0)*V(1 - i0, r0)\n"
     "T(i0:1 | r0:20000) +=! U(r0 + i0) }",
     0, 4},
};

static const rule_case dots[] = {
    {"p { in f32 X(65536) in f32 V(65536) out f32 Y(1) Y(i0:1 | r0:65536) +=! X(r0)*V(r0 + i0) }",
     1, 2},
    {"p { in f32 X(2, 70000) out f32 Y(2) Y(i0:2 | r0:70000) +=! exp(X(i0, r0)) }", 0, 1},
};

typedef struct rule_cases {
  const char *name;
  size_t n;
  const rule_case *cases;
  double tolerance; // of the largest element
} rule_cases;

static const rule_cases all[] = {{"constants", KILN_LEN(constants), constants, 0},
                                 {"cse", KILN_LEN(cse), cse, 0},
                                 {"ones", KILN_LEN(ones), ones, 1e-5},
                                 {"merge", KILN_LEN(merge), merge, 1e-6},
                                 {"defer", KILN_LEN(defer), defer, 1e-5},
                                 {"reassociate", KILN_LEN(reassociate), reassociate, 1e-5},
                                 {"concats", KILN_LEN(concats), concats, 0},
                                 {"safe-softmax", KILN_LEN(safe_softmax), safe_softmax, 1e-6},
                                 {"narrow", KILN_LEN(narrow), narrow, 1e-5},
                                 {"moves", KILN_LEN(moves), moves, 0},
                                 {"views", KILN_LEN(views), views, 1e-6},
                                 {"gathers", KILN_LEN(gathers), gathers, 0},
                                 {"scatters", KILN_LEN(scatters), scatters, 0},
                                 {"unflatten", KILN_LEN(unflatten), unflatten, 0},
                                 {"repeat", KILN_LEN(repeat), repeat, 1e-6},
                                 {"resample", KILN_LEN(resample), resample, 1e-6},
                                 {"scale", KILN_LEN(scale), scale, 1e-5},
                                 {"blocks", KILN_LEN(blocks), blocks, 1e-5},
                                 {"dots", KILN_LEN(dots), dots, 1e-5}};

static void each_rule_keeps_what_is_computed(void **state) {
  for (size_t i = 0; i < KILN_LEN(all); i++)
    for (size_t k = 0; k < all[i].n; k++)
      check_rule(*state, all[i].name, &all[i].cases[k], all[i].tolerance);
}

static void see_division(const kiln_expr *e, void *argument) {
  if (e->kind == KILN_EXPR_DIV || e->kind == KILN_EXPR_MOD) *(int *)argument += 1;
}

static int divisions_of_sums(fixture *f, const kiln_program *p) {
  int n = 0;
  for (int i = 0; i < p->stmts.n; i++)
    if (p->stmts.data[i]->n_reduce)
      kiln_expr_visit(&f->cx, p->stmts.data[i]->body, see_division, &n);
  return n;
}

// Groups of random numbers of channels of random images, in one axis.
static void blocks_of_reshaped_images_divide_no_index(void **state) {
  fixture *f = *state;
  uint64_t seed = 77;
  for (int i = 0; i < 32; i++) {
    const int g = 1 + (int)(random_next(&seed) % 4), h = 24 + (int)(random_next(&seed) % 90),
              w = 24 + (int)(random_next(&seed) % 90), c = (1 << 16) / (h * w) + 2, n = c * h * w;
    char text[512];
    snprintf(
        text, sizeof text,
        "p { in f32 X(2, %d, %d, %d) temp f32 V(2, %d, %d) out f32 Y(2, %d) V(i0:2, i1:%d, "
        "i2:%d) = X(i0, i1*%d + i2/%d, i2/%d%%%d, i2%%%d) Y(i0:2, i1:%d | r0:%d) +=! V(i0, i1, "
        "r0) }",
        g * c, h, w, g, n, g, g, n, c, h * w, w, h, w, g, n);
    kiln_program *p = parse(f, text);
    kiln_rewriting r = {.rules = kiln_rules};
    assert_int_equal(kiln_rewrite(&f->cx, p, &r), KILN_OK);
    assert_int_equal(p->stmts.n, 3);
    assert_int_equal(divisions_of_sums(f, p), 0);
  }
}

static int divisions(fixture *f, const kiln_program *p) {
  int n = 0;
  for (int i = 0; i < p->stmts.n; i++)
    kiln_expr_visit(&f->cx, p->stmts.data[i]->body, see_division, &n);
  return n;
}

// Random axes, flattened for a product of matrices and taken apart again in two or three parts.
static void products_between_reshapes_divide_no_row(void **state) {
  fixture *f = *state;
  uint64_t seed = 5;
  for (int i = 0; i < 32; i++) {
    const int a = 2 + (int)(random_next(&seed) % 9), b = 2 + (int)(random_next(&seed) % 9),
              c = 2 + (int)(random_next(&seed) % 9), n = a * b * c;
    const bool three = random_next(&seed) % 2;
    char text[768], behind[128];
    snprintf(behind, sizeof behind,
             three ? "Y(i0:%d, i1:%d, i2:%d, i3:5) = T(i0*%d + i1*%d + i2, i3)"
                   : "Y(i0:%d, i1:%d, i2:%d, i3:5) = exp(T((i0*%d + i1*%d) + i2, i3))",
             a, b, c, b * c, c);
    snprintf(text, sizeof text,
             "p { in f32 X(%d, %d, %d, 7) const f32 W(7, 5) = ... temp f32 R(%d, 7) temp f32 "
             "T(%d, 5) out f32 Y(%d, %d, %d, 5) R(i0:%d, i1:7) = X(i0/%d, i0/%d%%%d, i0%%%d, i1) "
             "T(i0:%d, i1:5 | r0:7) +=! R(i0, r0)*W(r0, i1) %s }",
             a, b, c, n, n, a, b, c, n, b * c, c, b, c, n, behind);
    kiln_program *p = parse(f, text);
    kiln_rewriting r = {.rules = kiln_rules};
    assert_int_equal(kiln_rewrite(&f->cx, p, &r), KILN_OK);
    assert_int_equal(divisions(f, p), 0);
  }
}

static void every_rule_has_cases(void **state) {
  (void)state;
  for (int i = 0; kiln_rules[i].name; i++) {
    bool found = false;
    for (size_t k = 0; k < KILN_LEN(all); k++)
      found |= strcmp(all[k].name, kiln_rules[i].name) == 0;
    if (!found) fail_msg("rule %s must have cases", kiln_rules[i].name);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(rules_run_until_nothing_changes),
      FIXTURE_TEST(rules_stop_after_so_many_steps_and_rounds),
      FIXTURE_TEST(a_rule_that_is_left_out_does_not_run),
      FIXTURE_TEST(an_alternative_runs_where_it_is_asked_for),
      FIXTURE_TEST(an_alternative_runs_at_the_places_that_are_asked_for),
      FIXTURE_TEST(what_is_asked_for_is_read_as_it_prints),
      FIXTURE_TEST(names_come_as_lists_and_unknown_ones_are_refused),
      FIXTURE_TEST(a_rule_that_leaves_no_program_is_named),
      FIXTURE_TEST(every_row_has_a_name_of_its_own_and_a_text),
      FIXTURE_TEST(each_rule_keeps_what_is_computed),
      FIXTURE_TEST(blocks_of_reshaped_images_divide_no_index),
      FIXTURE_TEST(products_between_reshapes_divide_no_row),
      FIXTURE_TEST(every_rule_has_cases)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Scripts: names that need quotes, messages for bad lines, and replay of files.
#include "unit/schedule/kernel.h"

// Names with blanks, quotes, marks of comments and holes, and words of the notation.
static const char *const odd =
    "odd { in f32 \"x y\"(6, 4) temp f32 \"a\\\"#?{\"(6, 4) out f32 \"/out\"(6, 4) "
    "\"a\\\"#?{\"(\"i 0\":6, \"max\":4) = \"x y\"(\"i 0\", \"max\") + 1f32 "
    "\"/out\"(i0:6, i1:4) = \"a\\\"#?{\"(i0, 3 - i1) * 2f32 }";

static kiln_symbol of(test_kernel *k, const char *name) { return kiln_symbol_of(&k->cx, name); }

static void odd_names_print_and_replay(void **state) {
  (void)state;
  test_kernel k;
  kiln_schedule s;
  kernel_open(&k, odd, 1);
  assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
  const kiln_symbol i = of(&k, "/out.i0"), o = of(&k, "o o"), n = of(&k, "n\n1");
  assert_int_equal(kiln_split(&s, i, 2, KILN_TAIL_GUARD, o, n), KILN_OK);
  assert_int_equal(kiln_reorder(&s, 2, (kiln_symbol[]){n, o}), KILN_OK);
  assert_int_equal(kiln_compute_at(&s, of(&k, "a\"#?{"), n, KILN_SCOPE_LOCAL), KILN_OK);
  const kiln_stage_axis axes[] = {{.axis = 1}, {.axis = 0, .block = 2, .pad = true}};
  assert_int_equal(kiln_stage(&s, of(&k, "x y"), n, KILN_SCOPE_LOCAL, 2, axes, of(&k, "local")),
                   KILN_OK);
  assert_int_equal(kiln_annotate(&s, n, of(&k, "for"), of(&k, "#1")), KILN_OK);
  assert_int_equal(kiln_specialize(&s, n, "\"n\\x0a1\" < 1"), KILN_OK);
  assert_int_equal(kiln_unroll(&s, of(&k, "/out.i1")), KILN_OK);
  assert_string_equal(kiln_schedule_script(&s), "split \"/out.i0\" 2 guard \"o o\" \"n\\x0a1\"\n"
                                                "reorder \"n\\x0a1\" \"o o\"\n"
                                                "compute_at \"a\\\"#?{\" \"n\\x0a1\" local\n"
                                                "stage \"x y\" \"n\\x0a1\" local \"local\" 1 0^2\n"
                                                "annotate \"n\\x0a1\" \"for\" \"#1\"\n"
                                                "specialize \"n\\x0a1\" \"n\\x0a1\" < 1\n"
                                                "unroll \"/out.i1\"\n");
  kernel_check(&k, s.loops, kiln_schedule_script(&s));
  kernel_check_replay(&k, &s);
  kernel_close(&k);
}

static const char *const mm =
    "mm { in f32 A(7, 5) in f32 B(5, 9) temp f32 C(7, 9) out f32 Y(7, 9) "
    "C(i0:7, i1:9 | r0:5) +=! A(i0, r0) * B(r0, i1) Y(i0:7, i1:9) = max(C(i0, i1), 0f32) }";

// Every primitive prints a line that makes the same loops.
static void every_primitive_replays(void **state) {
  (void)state;
  static const char *const scripts[] = {
      "split C.i0 4 guard a b\nsplit Y.i1 4 shift c d\nsplit C.r0 2 peel e f\nsplit Y.i0 4 round g "
      "h\n",
      "split C.init.i1 9 exact c d\ntile Y.i0 Y.i1 2 3 peel a b e f\n",
      "split Y.i0 4 round a b\nsplit Y.i1 3 exact c d\nfuse a b f\nreorder c f\nbind f thread.x\n",
      "split Y.i1 8 round a b\nreorder b Y.i0 a\nbind b block.x\ncluster b 4\n",
      "split Y.i1 3 exact a b\nbind b block.x\nwarp_specialize b 1\nwarp_specialize Y.i0 2\n",
      "parallel Y.i0\nvectorize Y.i1\npeel C.i0 3\nrfactor C.r0 R\nunroll C.r0\ntidy\n",
      "compute_at C Y.i0 shared\ncompute_root Y\n",
      "view A 1 5\nview Y 0 7\nstage A C.i0 local Q 0 1 2\n",
      "stage B 0 workspace P 1/4 0 1%4\nstage A C.i0 local Q 1 0^4\ncache_write Y W 1 0\n",
      "pad C.init.i1 4\npad C.i1 4\ntransform_layout C 1/2 0 1%2\nstorage_align C 1 16 3\n",
      "stage A C.r0 shared Q 0 1\npipeline Q C.r0 4 2\nswizzle Q\n",
      "stage A C.r0 shared Q 0 1\npipeline Q C.r0 2\nprefetch B C.r0 2\n"
      "specialize C.i0 C.i0 < 4 && C.i0 != 1\nannotate C.i0 \"k k\" \"\"\n",
  };
  for (size_t i = 0; i < KILN_LEN(scripts); i++) {
    test_kernel k;
    kiln_schedule s;
    kernel_open(&k, mm, i);
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
    if (kiln_schedule_replay_file(&s, scripts[i], "x", 1) != KILN_OK)
      fail_msg("%s", kernel_message(&k));
    assert_string_equal(kiln_schedule_script(&s), scripts[i]);
    kernel_check(&k, s.loops, scripts[i]);
    kernel_check_replay(&k, &s);
    kernel_close(&k);
  }
}

// Each message has the position, the requirement and the found text.
static void bad_lines_say_what_must_hold(void **state) {
  (void)state;
  static const struct {
    const char *script, *error;
  } rows[] = {
      {"paralel Y.i0", "x.sched:3: error: a line must begin with a primitive, got \"paralel\": did "
                       "you mean \"parallel\"?"},
      {"frobnicate Y.i0",
       "x.sched:3: error: a line must begin with a primitive, got \"frobnicate\""},
      {"# a comment\n\nparallel Y.i2", "x.sched:5: parallel Y.i2: error: loop must be one of the "
                                       "kernel's, got \"Y.i2\": did you mean \"Y.i0\"?"},
      {"compute_at CC Y.i0 local", "x.sched:3: compute_at CC: error: buffer must be one of the "
                                   "kernel's, got \"CC\""},
      {"compute_at C Y.i0 heap",
       "x.sched:3: error: compute_at: must be workspace, shared, local or "
       "register, got \"heap\""},
      {"pad Y.i0 four", "x.sched:3: error: pad: must be a number, got \"four\""},
      {"pad Y.i0 99999999999999999999",
       "x.sched:3: error: pad: must be a number, got \"99999999999999999999\""},
      {"fuse Y.i0 Y.i1", "x.sched:3: error: fuse: must be \"fuse OUTER INNER FUSED\", got 3 words"},
      {"stage A C.i0 local Q 0 1%0",
       "x.sched:3: error: stage: must have blocks of one or more, got \"1%0\""},
      {"bind Y.i0 thread.w", "x.sched:3: error: bind: must be block.x, block.y, block.z, thread.x, "
                             "thread.y or thread.z, got \"thread.w\""},
      {"parallel \"Y.i0", "x.sched:3:1:1: error: expected a name closed by '\"' on its line, got "
                          "'\"'"},
      {"tensorize Y.i1 fma", "x.sched:3: error: tensorize: must name an instruction of the target "
                             "(it has none), got \"fma\""},
  };
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    test_kernel k;
    kiln_schedule s;
    kernel_open(&k, mm, 1);
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
    assert_int_equal(kiln_schedule_replay_file(&s, rows[i].script, "x.sched", 3), KILN_BAD_INPUT);
    assert_int_equal(kiln_diag_count(k.diag), 1);
    assert_string_equal(kernel_message(&k), rows[i].error);
    kernel_close(&k);
  }
}

static void steps_before_a_bad_line_stay(void **state) {
  (void)state;
  test_kernel k;
  kiln_schedule s;
  kernel_open(&k, mm, 1);
  assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
  assert_int_equal(kiln_schedule_replay(&s, "parallel Y.i0\r\n\tunroll  Y.i1 # all\nunroll Y.i9"),
                   KILN_BAD_INPUT);
  assert_string_equal(kiln_schedule_script(&s), "parallel Y.i0\nunroll Y.i1\n");
  assert_string_equal(kernel_message(&k),
                      "schedule: line 3: error: unroll: must be legal, got a refusal");
  kernel_close(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(odd_names_print_and_replay),
      cmocka_unit_test(every_primitive_replays),
      cmocka_unit_test(bad_lines_say_what_must_hold),
      cmocka_unit_test(steps_before_a_bad_line_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

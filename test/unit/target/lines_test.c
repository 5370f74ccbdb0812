// Lines of a kernel's loops, and of the source and code made from them.
#include "ir/lines.h"
#include "target/gpu/gpu.h"
#include "unit/fixture.h"
#include "unit/loops.h"

#include <string.h>

static const char text[] = "kernel k {\n"                  // 1
                           "  param f32 A[64, 8]:(8, 1)\n" // 2
                           "  param f32 C[64]:(1)\n"       // 3
                           "  for i:64 parallel {\n"       // 4
                           "    C[i] = 0f32\n"             // 5
                           "    for k:8 {\n"               // 6
                           "      if i >= 1 {\n"           // 7
                           "        C[i] += A[i, k]\n"     // 8
                           "      }\n"                     // 9
                           "    }\n"                       // 10
                           "  }\n"                         // 11
                           "  for j:64 {\n"                // 12
                           "    C[j] = min(C[j], 2f32)\n"  // 13
                           "  }\n"
                           "}\n";

static kiln_loops *numbered(fixture *f) {
  kiln_loops *l = NULL;
  assert_int_equal(kiln_loops_parse(&f->cx, text, &l), KILN_OK);
  kiln_loops_number(l);
  return l;
}

static void nodes_have_the_lines_of_the_text(void **state) {
  fixture *f = *state;
  kiln_loops *l = kiln_loops_copy(&f->cx.perm, numbered(f)); // copies keep them
  kiln_lined out;
  kiln_lined_init(&out, &f->cx.perm);
  kiln_loops_print_lined(&f->cx, l, &out);
  static const int lines[] = {0, 0, 0, 4, 5, 6, 7, 8, 7, 6, 4, 12, 13, 12, 0};
  assert_string_equal(out.text.data, text);
  assert_int_equal(out.lines.n, KILN_LEN(lines));
  for (int i = 0; i < out.lines.n; i++) assert_int_equal(out.lines.data[i], lines[i]);
}

static void marks_hold_until_the_next_one(void **state) {
  fixture *f = *state;
  kiln_line_mark at[] = {{2, 7}, {6, 9}, {6, 8}};
  const kiln_line_marks marks = {at, 3, 3};
  kiln_lined out;
  kiln_lined_init(&out, &f->cx.perm);
  kiln_lined_add(&out, "head\n", 1);
  kiln_lined_add_marked(&out, "a\nbb\n\nccc\nlast", &marks);
  static const int lines[] = {1, 0, 7, 7, 8, 8};
  assert_string_equal(out.text.data, "head\na\nbb\n\nccc\nlast");
  assert_int_equal(out.lines.n, KILN_LEN(lines));
  for (int i = 0; i < out.lines.n; i++) assert_int_equal(out.lines.data[i], lines[i]);
}

// How many lines of |l| that have |word| are of |line|; every such line must be.
static int count(const kiln_lined *l, const char *word, int line) {
  int n = 0, i = 0;
  for (const char *at = l->text.data; *at; i++) {
    const size_t length = strcspn(at, "\n");
    const char *found = strstr(at, word);
    if (found && found < at + length) {
      assert_int_equal(l->lines.data[i], line);
      n++;
    }
    at += length + (at[length] == '\n');
  }
  assert_int_equal(i, l->lines.n);
  return n;
}

static void code_says_the_lines_that_it_is_of(void **state) {
  fixture *f = *state;
  kiln_machine m;
  kiln_lined llvm, assembly;
  kiln_lined_init(&llvm, &f->cx.perm);
  kiln_lined_init(&assembly, &f->cx.perm);
  assert_int_equal(kiln_machine_named(&f->cx, "x86-64-v3", &m), KILN_OK);
  assert_int_equal(kiln_cpu_show(&f->cx, &m, numbered(f), "k", &llvm, &assembly), KILN_OK);
  assert_int_equal(count(&llvm, "fadd float", 8), 1);
  assert_int_equal(count(&llvm, "@llvm.minimum", 13), 1);
  assert_int_equal(count(&assembly, "vaddss", 8), 1);
  assert_null(strstr(llvm.text.data, "!dbg !"));
  assert_null(strstr(assembly.text.data, ".loc"));
}

static void sources_of_gpus_say_the_lines_that_they_are_of(void **state) {
  fixture *f = *state;
  kiln_machine m;
  kiln_lined device, source;
  kiln_lined_init(&device, &f->cx.perm);
  kiln_lined_init(&source, &f->cx.perm);
  assert_int_equal(kiln_gpu_machine_named(&f->cx, "opencl", &m), KILN_OK);
  assert_int_equal(kiln_gpu_show(&f->cx, &m, numbered(f), "k", &device, &source), KILN_OK);
  assert_int_equal(count(&device, "C[i] += A[i, k]", 8), 1);
  assert_int_equal(count(&source, "C[i] += ", 8), 1);
  assert_int_equal(count(&source, "C[i] = ", 5), 1);
  kiln_text plain;
  kiln_text_init(&plain, &f->cx.perm);
  int n = 0;
  kiln_gpu_launch *launches = NULL;
  assert_int_equal(kiln_gpu_emit(&f->cx, &m, numbered(f), "k", &plain, &n, &launches), KILN_OK);
  const char *body = strchr(plain.data, '\n') + 1; // behind the line with the name
  assert_string_equal(source.text.data, body);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(nodes_have_the_lines_of_the_text),
      FIXTURE_TEST(marks_hold_until_the_next_one),
      FIXTURE_TEST(code_says_the_lines_that_it_is_of),
      FIXTURE_TEST(sources_of_gpus_say_the_lines_that_they_are_of),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

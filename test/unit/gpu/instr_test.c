// Instructions of warps: what each means can be read, and what it is spelled as compiles.
#include "schedule/instr.h"
#include "target/c/writer.h"
#include "target/gpu/instr.h"

#include "unit/fixture.h"

static kiln_instr *instrs_of(fixture *f, kiln_machine *m, int *n) {
  assert_int_equal(kiln_gpu_machine_named(&f->cx, "cuda:sm_90a", m), KILN_OK);
  kiln_instr *all = kiln_gpu_instrs(&f->cx, m, n);
  assert_true(*n > 0);
  return all;
}

static void every_instruction_means_loops_around_one_store(void **state) {
  fixture *f = *state;
  kiln_machine m;
  int n = 0;
  kiln_instr *all = instrs_of(f, &m, &n);
  for (int i = 0; i < n; i++) {
    if (kiln_instr_make_loops(&f->cx, &all[i]) != KILN_OK)
      fail_msg("%s: %s", all[i].name, kiln_diag_message(f->diag, 0));
    const kiln_loop *l = all[i].loops->body;
    while (l->kind == KILN_LOOP_FOR) l = l->body;
    assert_int_equal(l->kind, KILN_LOOP_STORE);
    const bool reduces = strstr(all[i].meaning, "max=") != NULL;
    if (all[i].passes_nan) assert_int_equal(l->value->kind, KILN_EXPR_SELECT);
    else if (reduces) assert_int_equal(l->combiner, KILN_COMBINE_MAX);
  }
}

static void scripts_may_name_copies_by_their_older_names(void **state) {
  fixture *f = *state;
  kiln_machine m;
  kiln_instr_table all = {.cx = &f->cx};
  all.instrs = instrs_of(f, &m, &all.n);
  const kiln_instr *tile = kiln_instr_find_in(&all, "box.64x64.f16"),
                   *im2col = kiln_instr_find_in(&all, "window.128x64.bf16");
  assert_string_equal(tile->name, "tma.64x64.f16");
  assert_string_equal(im2col->name, "im2col.128x64.bf16");
  assert_ptr_equal(kiln_instr_find_in(&all, "tma.64x64.f16"), tile);
}

static void every_spelling_compiles(void **state) {
  fixture *f = *state;
  kiln_machine m;
  int n = 0;
  kiln_instr *all = instrs_of(f, &m, &n);
  const char **sources = KILN_NEW_ARRAY(&f->cx.perm, const char *, n),
             **names = KILN_NEW_ARRAY(&f->cx.perm, const char *, n);
  kiln_object *out = KILN_NEW_ARRAY(&f->cx.perm, kiln_object, n);
  for (int i = 0; i < n; i++) {
    names[i] = all[i].name;
    sources[i] = kiln_arena_printf( // what nobody calls would not be compiled
        &f->cx.perm, "%s\n%s\n%s\nextern \"C\" __global__ void k(void **p) { *p = (void *)%s; }\n",
        kiln_target_cuda.dialect->head, kiln_wgmma_helpers(), kiln_gpu_instr_text(&f->cx, &all[i]),
        kiln_gpu_instr_function(&f->cx, &all[i]));
  }
  const kiln_status s = kiln_target_cuda.compiler->compile(&f->cx, &m, n, sources, names, 2, out);
  if (s == KILN_DEVICE_ERROR) skip();
  if (s != KILN_OK) fail_msg("%s", kiln_diag_message(f->diag, 0));
  for (int i = 0; i < n; i++) kiln_object_deinit(&out[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {FIXTURE_TEST(every_instruction_means_loops_around_one_store),
                                     FIXTURE_TEST(scripts_may_name_copies_by_their_older_names),
                                     FIXTURE_TEST(every_spelling_compiles)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

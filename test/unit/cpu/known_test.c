// What a block has loaded or stored is not loaded again, unless something may have written it.
#include "target/cpu/cpu.h"
#include "unit/cpu/rig.h"

static int count(const char *text, const char *word) {
  int n = 0;
  for (text = strstr(text, word); text; text = strstr(text + 1, word)) n++;
  return n;
}

// The code of the first nest of |l|, as it is emitted, before LLVM's passes.
static char *emitted(rig *r, const kiln_loops *l) {
  kiln_cpu_module m = {0};
  LLVMTargetMachineRef tm = NULL;
  assert_int_equal(kiln_cpu_llvm_init(r->diag), KILN_OK);
  assert_int_equal(kiln_cpu_target_machine(r->diag, &r->machine, false, &tm), KILN_OK);
  kiln_cpu_module_init(&r->cx, &r->machine, tm, &m);
  kiln_loops *copy = kiln_cpu_copy(&r->cx, &r->cx, l, 0);
  assert_int_equal(kiln_cpu_emit_nest(&m, copy, copy->body, "k_0"), KILN_OK);
  char *text = LLVMPrintModuleToString(m.module),
       *kept = kiln_arena_strdup(&r->cx.perm, strstr(text, "@k_0"));
  *strstr(kept, "\n}") = 0; // what comes then are functions that it calls
  LLVMDisposeMessage(text);
  kiln_cpu_module_deinit(&m);
  LLVMDisposeTargetMachine(tm);
  return kept;
}

// z(k) = the sum of all before it, of vectors of 16: a load of each tensor would be n*(n + 1)/2.
static void each_tensor_is_loaded_once(void **state) {
  (void)state;
  for (int n = 4; n <= 32; n *= 2) {
    rig r;
    kiln_text t;
    kiln_loops *l = NULL;
    rig_init(&r, "avx512");
    kiln_text_init(&t, &r.cx.perm);
    kiln_text_add(&t, "kernel k { param f32 z0[64]:(1) ");
    for (int k = 1; k <= n; k++) kiln_text_printf(&t, "param f32 z%d[64]:(1) ", k);
    kiln_text_add(&t, "for i:4 { ");
    for (int k = 1; k <= n; k++) {
      kiln_text_printf(&t, "for v%d:16 vectorized { z%d[i*16 + v%d] = ", k, k, k);
      for (int j = 0; j < k; j++) kiln_text_printf(&t, "%sz%d[i*16 + v%d]", j ? " + " : "", j, k);
      kiln_text_add(&t, " } ");
    }
    kiln_text_add(&t, "} }");
    assert_int_equal(kiln_loops_parse(&r.cx, t.data, &l), KILN_OK);
    assert_int_equal(count(emitted(&r, l), "load <16 x float>"), 1);
    rig_deinit(&r);
  }
}

// Statements over x[40] that write what others have read, elsewhere, in part, or by a call between.
static void what_is_written_is_loaded_again(void **state) {
  (void)state;
  static const struct {
    const char *body;
    int loads; // of vectors, for AVX-512
  } rows[] = {
      {"for v:16 vectorized { y[v] = x[v] } for w:16 vectorized { y[w] = y[w] + x[w] }", 1},
      {"for v:16 vectorized { y[v] = x[v] } for w:16 vectorized { x[w + 1] = y[w] }"
       " for a:16 vectorized { y[a] = y[a] + x[a] }",
       2},
      {"for v:16 vectorized { x[v] = x[v] + 1f32 } for w:16 vectorized { x[w + 16] = x[w] }"
       " for a:16 vectorized { y[a] = x[a + 16] - x[a] }",
       2},
      {"for v:16 vectorized { y[v] = x[v] } for w:16 vectorized { if w < 5 { x[w] = 3f32 } }"
       " for a:16 vectorized { y[a] = y[a] + x[a] }",
       2},
      {"for v:16 vectorized { y[v] = x[v] } for w:16 vectorized { x[2*w] = 3f32 }"
       " for a:16 vectorized { y[a] = y[a] + x[a] }",
       2},
      {"for v:16 vectorized { y[v] = x[v] } for u:2 { x[u] = 7f32 }"
       " for w:16 vectorized { y[w] = y[w] + x[w] }",
       3}, // of both: another block
      {"for v:16 vectorized { y[v] = x[v] } for w:16 vectorized { y[w] = y[w] + asinh(x[w]) }"
       " for a:16 vectorized { y[a] = y[a] + x[a] }",
       2},
  };
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    rig r;
    kiln_loops *l = NULL;
    float x[2][40], y[2][16] = {{0}};
    char text[2][600];
    for (int i = 0; i < 40; i++) x[0][i] = x[1][i] = (float)(i * i % 17) - 5;
    for (int is_serial = 0; is_serial < 2; is_serial++) {
      snprintf(text[is_serial], sizeof text[0],
               "kernel k { param f32 x[40]:(1) param f32 y[16]:(1) for o:2 { %s } }",
               rows[row].body);
      for (char *at; is_serial && (at = strstr(text[1], "vectorized"));) memset(at, ' ', 10);
      rig_init(&r, NULL);
      rig_compile(&r, text[is_serial], true);
      rig_run(&r, (char *[]){(char *)x[is_serial], (char *)y[is_serial]}, 1);
      rig_deinit(&r);
    }
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    rig_init(&r, "avx512");
    assert_int_equal(kiln_loops_parse(&r.cx, text[0], &l), KILN_OK);
    const int loads = count(emitted(&r, l), "load <16 x float>");
    if (loads != rows[row].loads) fail_msg("row %zu: %d loads", row, loads);
    rig_deinit(&r);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_tensor_is_loaded_once),
      cmocka_unit_test(what_is_written_is_loaded_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

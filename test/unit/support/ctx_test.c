// Arenas, the out-of-memory handler, cleanups, symbols and diagnostics.
#include "unit/fixture.h"

static void an_arena_gives_aligned_memory_and_rewinds(void **state) {
  fixture *f = *state;
  kiln_arena *a = &f->cx.scratch;
  const size_t before = a->used_bytes;
  const kiln_mark mark = kiln_arena_mark(a);
  for (size_t n = 0; n < 3000; n++) {
    unsigned char *p = kiln_arena_alloc(a, n);
    assert_int_equal((uintptr_t)p % 16, 0);
    memset(p, 0xab, n);
    const unsigned char *z = kiln_arena_zalloc(a, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(z[i], 0);
  }
  memset(kiln_arena_alloc(a, 100 << 20), 1, 100 << 20);
  assert_true(a->used_bytes > before + (100 << 20));
  kiln_arena_rewind(a, mark);
  assert_int_equal(a->used_bytes, before);
  assert_string_equal(kiln_arena_printf(a, "%s-%d", "x", 7), "x-7");
  char *wide = kiln_arena_printf(a, "%0500d", 3);
  assert_int_equal(strlen(wide), 500);
  assert_string_equal(kiln_arena_strndup(a, "abcdef", 3), "abc");
}

static int cleanups_run;
static void count_cleanup(void *object) { cleanups_run = cleanups_run * 10 + *(int *)object; }

static int one = 1, two = 2, three = 3;

static kiln_status asks_for_too_much(kiln_ctx *cx, void *argument) {
  kiln_cleanup_push(cx, count_cleanup, &one);
  kiln_cleanup_push(cx, count_cleanup, &two);
  kiln_cleanup_push(cx, count_cleanup, &three);
  kiln_cleanup_pop(cx);
  kiln_arena_alloc(&cx->perm, *(size_t *)argument);
  kiln_cleanup_pop(cx);
  kiln_cleanup_pop(cx);
  return KILN_OK;
}

static void the_door_returns_no_memory_after_the_cleanups(void **state) {
  fixture *f = *state;
  size_t bytes = SIZE_MAX;
  cleanups_run = 0;
  assert_int_equal(kiln_ctx_enter(&f->cx, asks_for_too_much, &bytes), KILN_NO_MEMORY);
  assert_int_equal(cleanups_run, 21);
  assert_string_equal(kiln_diag_message(f->diag, 0), "error: no memory left");
  bytes = 100;
  f->cx.perm.fail_in = 1;
  assert_int_equal(kiln_ctx_enter(&f->cx, asks_for_too_much, &bytes), KILN_NO_MEMORY);
  assert_int_equal(kiln_ctx_enter(&f->cx, asks_for_too_much, &bytes), KILN_OK);
  assert_int_equal(cleanups_run, 2121);
}

static kiln_status enters_again(kiln_ctx *cx, void *argument) {
  size_t bytes = SIZE_MAX;
  (void)argument;
  assert_int_equal(kiln_ctx_enter(cx, asks_for_too_much, &bytes), KILN_NO_MEMORY);
  kiln_arena_alloc(&cx->scratch, SIZE_MAX); // the outer handler must still be set
  return KILN_OK;
}

static void doors_nest(void **state) {
  fixture *f = *state;
  assert_int_equal(kiln_ctx_enter(&f->cx, enters_again, NULL), KILN_NO_MEMORY);
  assert_int_equal(kiln_diag_count(f->diag), 2);
}

static void symbols_are_equal_when_their_text_is(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  char name[200];
  assert_int_equal(kiln_symbol_of(cx, ""), 0);
  kiln_symbol first = 0;
  for (int i = 0; i < 20000; i++) {
    snprintf(name, sizeof name, "layer.%d", i);
    const kiln_symbol s = kiln_symbol_of(cx, name);
    if (i == 0) first = s;
    assert_int_equal(s, first + (kiln_symbol)i);
  }
  for (int i = 0; i < 20000; i++) {
    const kiln_symbol s = kiln_symbol_printf(cx, "layer.%d", i);
    assert_int_equal(s, first + (kiln_symbol)i);
    snprintf(name, sizeof name, "layer.%d", i);
    assert_string_equal(kiln_symbol_text(cx, s), name);
  }
  const kiln_symbol wide = kiln_symbol_printf(cx, "%0180d", 5);
  memset(name, '0', 179);
  strcpy(name + 179, "5");
  assert_int_equal(kiln_symbol_of(cx, name), wide);
  assert_int_equal(kiln_symbol_of_bytes(cx, name, 3), kiln_symbol_of(cx, "000"));
}

static void messages_name_the_place(void **state) {
  fixture *f = *state;
  assert_int_equal(KILN_FAIL(f->diag, KILN_BAD_INPUT, "a.onnx: node 3", "axis must be %d", 1),
                   KILN_BAD_INPUT);
  kiln_diag_warn(f->diag, NULL, "%s", "slow");
  for (int i = 0; i < 20; i++) kiln_diag_warn(f->diag, "x", "%d", i);
  assert_int_equal(kiln_diag_count(f->diag), 22);
  assert_string_equal(kiln_diag_message(f->diag, 0), "a.onnx: node 3: error: axis must be 1");
  assert_string_equal(kiln_diag_message(f->diag, 1), "warning: slow");
  assert_string_equal(kiln_diag_message(f->diag, 21), "x: warning: 19");
  assert_null(kiln_diag_message(f->diag, 22));
  kiln_diag_clear(f->diag);
  assert_int_equal(kiln_diag_count(f->diag), 0);
  assert_string_equal(kiln_status_name(KILN_NO_BUDGET), "NO_BUDGET");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(an_arena_gives_aligned_memory_and_rewinds),
      FIXTURE_TEST(the_door_returns_no_memory_after_the_cleanups),
      FIXTURE_TEST(doors_nest),
      FIXTURE_TEST(symbols_are_equal_when_their_text_is),
      FIXTURE_TEST(messages_name_the_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Device loops as text: they read back as they print, and what they must not say is refused by
// name.
#include "ir/lines.h"
#include "target/gpu/device/device.h"

#include "unit/loops.h"

#include "unit/fixture.h"

#define HEAD                                                                                       \
  "kernel k { param f16 X[64, 64]:(64, 1) param f32 Y[64]:(1) shared f16 S[4, 64]:(64, 1) "        \
  "shared u64 full[4]:(1) shared u64 empty[4]:(1) local u32 p[1]:(1) local f32 a[1]:(1) "
#define KERNEL(body) HEAD body " }"
#define SHARED(body) KERNEL("alloc S { alloc full { alloc empty { alloc p { " body " } } } }")

static const char *const texts[] = {
    KERNEL(
        "for b:8 block.x { alloc S { for t:64 thread.x { S[0, t] = X[b, t] } barrier.block() for "
        "u:64 thread.x { Y[u] = f32(S[0, 63 - u]) } barrier.warp() fence.async() } }"),
    KERNEL("alloc S { for k:4 { for t:8 thread.x { copy.async(S[k, 8*t], X[k, 8*t]) where k < 3 } "
           "copy.commit() } for k2:4 { copy.wait(3) barrier.block() for u:64 thread.x { Y[u] += "
           "f32(S[k2, 63 - u]) } } }"),
    SHARED("mbarrier.init(full[0], 4, 1) mbarrier.init(empty[0], 4, 4) fence.cluster() "
           "cluster.sync() launch.wait() role.consumers g(0, 1, 2) { registers.set(232) for k:8 { "
           "mbarrier.wait(full[k % 4], p[0]) wgmma.fence() wgmma.commit() wgmma.wait(1) "
           "mbarrier.arrive(empty[k % 4]) barrier.sync(g + 1, 128) barrier.arrive(4 - g, 256) } } "
           "role.producer(2) { registers.set(40) for j:8 { mbarrier.wait(empty[j % 4], p[0]) "
           "mbarrier.expect(full[j % 4], 128) mbarrier.await(empty[j % 4], j / 4 % 2) } }"),
    SHARED(
        "alloc a { role.first() { maps.fetch() mbarrier.init.cluster(empty[0], 4, 4, 771) "
        "mbarrier.init(full[0], 4, 1) } cluster.sync() mbarrier.phases(p[0], 0) tiles v(0, 8, 1) "
        "{ tile.steps v.begin() where v % 4 == 3 { role.leaders() { role.warp(v % 2) { "
        "mbarrier.expect(full[v % 4], 64) } } if v >= v.begin + 1 { "
        "mbarrier.arrive.cluster(empty[v % 4], 771) } } wgmma.settle(a[0]) wgmma.take(a[0], a[0]) "
        "mbarrier.flip(p[0], 3) } }"),
};

static void they_read_back_as_they_print(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(texts); i++) {
    kiln_loops *l = NULL, *again = NULL;
    if (kiln_device_parse(&f->cx, texts[i], NULL, NULL, &l) != KILN_OK ||
        kiln_device_verify(&f->cx, l) != KILN_OK)
      fail_msg("row %d: %s", (int)i, kiln_diag_message(f->diag, kiln_diag_count(f->diag) - 1));
    const char *text = loops_text(&f->cx, l);
    assert_int_equal(kiln_device_parse(&f->cx, text, NULL, NULL, &again), KILN_OK);
    assert_string_equal(loops_text(&f->cx, again), text);
    assert_string_equal(loops_text(&f->cx, kiln_loops_copy(&f->cx.perm, l)), text);
  }
}

// A line says the statement that it is of; a closing brace the one that it closes.
static void lines_are_of_their_statements(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(texts); i++) {
    kiln_loops *l = NULL;
    kiln_lined out;
    assert_int_equal(kiln_device_parse(&f->cx, texts[i], NULL, NULL, &l), KILN_OK);
    kiln_loops_number(l);
    kiln_lined_init(&out, &f->cx.perm);
    kiln_loops_print_lined(&f->cx, l, &out);
    assert_string_equal(out.text.data, loops_text(&f->cx, l));
    int line = 0;
    for (const char *at = out.text.data; *at; at = strchr(at, '\n') + 1, line++) {
      const bool closes = at[strspn(at, " ")] == '}';
      if (out.lines.data[line] && !closes) assert_int_equal(out.lines.data[line], line + 1);
    }
    assert_int_equal(out.lines.n, line);
  }
}

static void every_statement_has_a_row_of_its_own(void **state) {
  (void)state;
  for (int k = 0; k < KILN_N_DEVICE_KINDS; k++) {
    const kiln_device_op *op = kiln_device_op_of((kiln_device_kind)k);
    assert_int_equal(op->kind, k);
    assert_ptr_equal(kiln_device_op_named(op->name), op);
  }
  assert_null(kiln_device_op_named("barrier"));
}

static const struct {
  const char *text, *message;
} breaches[] = {
    {KERNEL("alloc S { copy.wait(full) }"), "its variables must be bound"},
    {KERNEL("alloc S { barrier.sync(1) }"),
     "barrier.sync(1) must have as many arguments as its row says"},
    {KERNEL("alloc S { barrier.sync(1, 0) }"), "must have a constant above zero"},
    {KERNEL("alloc S { mbarrier.arrive(S[0, 0]) }"),
     "must name an mbarrier, a u64 of shared memory"},
    {KERNEL("alloc full { mbarrier.arrive(full[0]) }"),
     "mbarrier.arrive(full[0]) must come behind the mbarrier's initialisation"},
    {KERNEL("alloc full { mbarrier.init(full[0], 5, 1) }"),
     "must initialise no more mbarriers than there are"},
    {KERNEL(
         "alloc full { alloc p { mbarrier.init(full[0], 4, 1) mbarrier.wait(full[0], full[1]) } }"),
     "must keep phases in a u32 of the thread"},
    {KERNEL("alloc S { copy.async(S[0, 0], X[0, 0]) copy.wait(0) }"),
     "copy.wait(0) must follow a commit of the copies before it"},
    {KERNEL("alloc S { copy.async(X[0, 0], S[0, 0]) }"),
     "must copy to an element of shared memory"},
    {KERNEL("alloc S { copy.async(S[0, 0], S[1, 0]) }"),
     "must copy from an element of the caller's memory"},
    {KERNEL("alloc S { barrier.block() { } }"), NULL},
    {KERNEL("role.consumers g(0, 2, 1) { barrier.warp() } role.producer(1) { fence.async() }"),
     "role.producer(1) must have rows of threads behind those of other roles"},
    {KERNEL("for t:4 thread.x { role.producer(0) { fence.async() } }"),
     "must lie in no thread loop and no other role"},
    {KERNEL("role.producer(0) { barrier.block() }"),
     "barrier.block() must not stand in a role, which has some of the threads alone"},
    {KERNEL("role.consumers g(0, 2, 0) { barrier.warp() }"), "must have a constant above zero"},
    {KERNEL("role.consumers g(0, 1, 2) { for g:2 { barrier.warp() } }"),
     "the variables of loops must differ"},
    {KERNEL("alloc S { barrier.block() where 0 < 1 }"), "must have no condition"},
    {KERNEL("role.consumers g(0, 1, 1) { registers.set(41) }"),
     "registers.set(41) must have a multiple of 8 from 24 to 256"},
    {KERNEL("role.consumers g(0, 1, 1) { barrier.warp() registers.set(40) }"),
     "registers.set(40) must stand at the begin of a role"},
    {KERNEL("alloc S { barrier.none() }"), "expected"},
    {KERNEL("copy.commit() Y[0] = f32(S[0, 0])"), "buffer S must be used inside its alloc"},
};

static void what_they_must_not_say_is_refused_by_name(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(breaches); i++) {
    kiln_loops *l = NULL;
    kiln_status st = kiln_device_parse(&f->cx, breaches[i].text, NULL, NULL, &l);
    if (st == KILN_OK) st = kiln_device_verify(&f->cx, l);
    if (!breaches[i].message && st == KILN_OK) continue;
    if (st == KILN_OK || !breaches[i].message) fail_msg("row %d: status %d", (int)i, (int)st);
    const char *message = kiln_diag_message(f->diag, kiln_diag_count(f->diag) - 1);
    if (!strstr(message, breaches[i].message)) fail_msg("row %d: got %s", (int)i, message);
  }
}

static void loops_have_no_statements_of_devices(void **state) {
  fixture *f = *state;
  kiln_loops *l = NULL;
  assert_int_not_equal(kiln_loops_parse(&f->cx, texts[0], &l), KILN_OK);
}

static void a_changed_text_is_read_or_refused(void **state) {
  fixture *f = *state;
  uint64_t seed = 1;
  char changed[2048];
  for (int i = 0; i < 20000; i++) {
    kiln_loops *l = NULL;
    random_mutation(&seed, texts[random_below(&seed, (int)KILN_LEN(texts))], changed,
                    sizeof changed);
    if (kiln_device_parse(&f->cx, changed, NULL, NULL, &l) == KILN_OK)
      (void)kiln_device_verify(&f->cx, l);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(they_read_back_as_they_print),
      FIXTURE_TEST(lines_are_of_their_statements),
      FIXTURE_TEST(every_statement_has_a_row_of_its_own),
      FIXTURE_TEST(what_they_must_not_say_is_refused_by_name),
      FIXTURE_TEST(loops_have_no_statements_of_devices),
      FIXTURE_TEST(a_changed_text_is_read_or_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

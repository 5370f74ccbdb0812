// Random stencil chains, tiled, computed at random loops, stored at random loops around them: all
// equal the interpreter's results.
#include "unit/schedule/kernel.h"

enum { CASES = 1000 };

typedef struct author {
  uint64_t seed;
  char text[4096];
  int n;
} author;

static int pick(author *a, int n) { return (int)(kernel_random(&a->seed) % (uint32_t)n); }

static void add(author *a, const char *format, ...) {
  va_list args;
  va_start(args, format);
  a->n += vsnprintf(a->text + a->n, sizeof a->text - (size_t)a->n, format, args);
  va_end(args);
  assert_true(a->n < (int)sizeof a->text);
}

// An index over |v| that stays in [0, to) while v is in [0, from).
static void add_index(author *a, char v, int from, int to) {
  const int offset = pick(a, 4) - 1;
  switch (pick(a, 6)) {
  case 0: add(a, "max(min(%c + %d, %d), 0)", v, offset, to - 1); break;
  case 1: add(a, "min(%c / 2 + %d, %d)", v, offset > 0 ? offset : 0, to - 1); break;
  case 2: add(a, "min((%c + 1) / 2, %d)", v, to - 1); break;
  case 3: add(a, "min(2 * %c + %d, %d)", v, offset > 0 ? offset : 0, to - 1); break;
  default: {
    const int room = to > from ? to - from : 0;
    if (from > to) add(a, "min(%c, %d)", v, to - 1);
    else add(a, "%c + %d", v, pick(a, (room < 2 ? room : 2) + 1));
  }
  }
}

static void add_tap(author *a, const char *of, const int *from, const int *to) {
  add(a, "%s(", of);
  add_index(a, 'i', from[0], to[0]);
  add(a, ", ");
  add_index(a, 'j', from[1], to[1]);
  add(a, ")");
}

static void add_stencil(author *a, const char *name, const char *of, const int *from,
                        const int *to) {
  const int taps = 1 + pick(a, 3);
  const bool reduces = !pick(a, 4);
  add(a, "%s(i:%d, j:%d%s) %s ", name, from[0], from[1], reduces ? " | r:3" : "",
      reduces ? "+=!" : "=");
  if (reduces) add(a, "f32(r) * ");
  add(a, "(");
  for (int t = 0; t < taps; t++) {
    if (t) add(a, " + ");
    add_tap(a, of, from, to);
  }
  add(a, ") ");
}

static const char *write_program(author *a) {
  int size[4][2];
  for (int s = 0; s < 4; s++)
    for (int d = 0; d < 2; d++) size[s][d] = 3 + pick(a, 14);
  a->n = 0;
  add(a, "chain { in f32 X(%d, %d) ", size[0][0], size[0][1]);
  add(a, "temp f32 A(%d, %d) temp f32 B(%d, %d) ", size[1][0], size[1][1], size[2][0], size[2][1]);
  add(a, "out f32 Y(%d, %d) ", size[3][0], size[3][1]);
  add_stencil(a, "A", "X", size[1], size[0]);
  add_stencil(a, "B", "A", size[2], size[1]);
  add_stencil(a, "Y", "B", size[3], size[2]);
  add(a, "}");
  return a->text;
}

// --- schedules ---

typedef struct player {
  author a;
  test_kernel *k;
  kiln_schedule s;
  int n_folded, n_stored, n_placed;
} player;

static bool play(player *p, const char *format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  const kiln_status st = kiln_schedule_replay(&p->s, line);
  assert_true(st == KILN_OK || st == KILN_BAD_INPUT);
  if (st == KILN_OK) {
    if (kiln_loops_verify(&p->k->cx, p->s.loops) != KILN_OK)
      fail_msg("%s\n%s%s", kernel_message(p->k), kiln_schedule_script(&p->s),
               kernel_text(p->k, p->s.loops));
    kernel_check(p->k, p->s.loops, kiln_schedule_script(&p->s));
  }
  return st == KILN_OK;
}

static const char *some(player *p, int n, const char *const *of) { return of[pick(&p->a, n)]; }

static void play_case(player *p) {
  static const char *const tails[] = {"guard", "shift", "round"};
  static const char *const loops[] = {"io", "jo", "ii", "ii", "ji", "Y.i"};
  static const char *const rows[] = {"io", "io", "jo", "ii", "B.i"};
  author *a = &p->a;
  if (pick(a, 3))
    play(p, "tile Y.i Y.j %d %d %s io jo ii ji", 1 + pick(a, 8), 1 + pick(a, 8), some(p, 3, tails));
  else play(p, "split Y.i %d %s io ii", 1 + pick(a, 8), some(p, 3, tails));
  if (!pick(a, 3)) play(p, "parallel io");
  p->n_placed += play(p, "compute_at B %s local", some(p, 6, loops));
  if (pick(a, 2)) {
    const bool fold = pick(a, 2);
    const bool stored = play(p, "store_at B %s%s", some(p, 5, rows), fold ? " fold" : "");
    p->n_stored += stored;
    p->n_folded += stored && fold;
  }
  p->n_placed += play(p, "compute_at A %s local", pick(a, 2) ? some(p, 6, loops) : "B.i");
  for (int i = 0; i < 2; i++) {
    const char *buffer = pick(a, 2) ? "A" : "B";
    const bool fold = pick(a, 2);
    const bool stored = play(p, "store_at %s %s%s", buffer, some(p, 5, rows), fold ? " fold" : "");
    p->n_stored += stored;
    p->n_folded += stored && fold;
  }
  if (pick(a, 2)) play(p, "vectorize %s", pick(a, 2) ? "ji" : "B.j");
  if (pick(a, 2)) play(p, "unroll %s", pick(a, 2) ? "A.i" : "ii");
  if (pick(a, 2)) play(p, "reorder %s %s", some(p, 6, loops), some(p, 6, loops));
  if (pick(a, 2))
    play(p, "split %s %d %s x y", some(p, 6, loops), 1 + pick(a, 4), some(p, 3, tails));
  if (pick(a, 2)) play(p, "peel %s %d", some(p, 6, loops), 1 + pick(a, 3));
}

static void windows_keep_the_meaning(void **state) {
  (void)state;
  const char *seed = getenv("KILN_TEST_SEED"), *cases = getenv("KILN_TEST_CASES");
  const int n = cases ? atoi(cases) : CASES;
  int n_placed = 0, n_stored = 0, n_folded = 0;
  for (int i = 0; i < n; i++) {
    player p = {.a = {.seed = ((seed ? strtoull(seed, NULL, 10) : 1) + (uint64_t)i) *
                              UINT64_C(0x9e3779b97f4a7c15)}};
    test_kernel k;
    kernel_open(&k, write_program(&p.a), p.a.seed);
    p.k = &k;
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &p.s), KILN_OK);
    play_case(&p);
    kernel_check_replay(&k, &p.s);
    n_placed += p.n_placed;
    n_stored += p.n_stored;
    n_folded += p.n_folded;
    kernel_close(&k);
  }
  print_message("%d placed, %d stored, %d folded\n", n_placed, n_stored, n_folded);
  if (n >= CASES) assert_true(n_placed > CASES && n_stored > CASES / 8 && n_folded > CASES / 50);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(windows_keep_the_meaning)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Random programs times random legal schedules: every schedule that the primitives accept computes
// what the reference interpreter does, verifies, and replays to the identical text.
#include "unit/schedule/kernel.h"

enum { ROUNDS = 40, STEPS = 24 };

// %1 .. %4 are random extents.
static const char *const programs[] = {
    "chain { in f32 X(%1, %2) in f32 B(%2) temp f32 T(%1, %2) temp f32 U(%1, %2) out f32 Y(%1, %2) "
    "T(i0:%1, i1:%2) = X(i0, i1) * 2f32 + 1f32 "
    "U(i0:%1, i1:%2) = max(T(i0, i1), B(i1)) "
    "Y(i0:%1, i1:%2) = U(i0, i1) + T(i0, i1) }",
    "mm { in f32 A(%1, %3) const f32 B(%3, %2) = ... in f32 D(%2) temp f32 C(%1, %2) out f32 Y(%1, "
    "%2) "
    "C(i0:%1, i1:%2 | r0:%3) +=! A(i0, r0) * B(r0, i1) "
    "Y(i0:%1, i1:%2) = max(C(i0, i1) + D(i1), 0f32) }",
    "bmm { in f32 A(%4, %1, %3) in f32 B(%4, %2, %3) temp f32 C(%4, %1, %2) out f32 Y(%4, %1, %2) "
    "C(i0:%4, i1:%1, i2:%2 | r0:%3) +=! A(i0, i1, r0) * B(i0, i2, r0) "
    "Y(i0:%4, i1:%1, i2:%2) = C(i0, i1, i2) * 2f32 }",
    "conv { in f32 P(%4, %1 * 2 + 2, %2 * 2 + 2) const f32 W(%3, %4, 3, 3) = ... temp f32 C(%1, "
    "%2, %3) "
    "out f32 Y(%1, %2, %3) "
    "C(i0:%1, i1:%2, i2:%3 | r0:%4, r1:3, r2:3) +=! P(r0, i0 * 2 + r1, i1 * 2 + r2) * W(i2, r0, "
    "r1, r2) "
    "Y(i0:%1, i1:%2, i2:%3) = max(C(i0, i1, i2), 0f32) }",
    "padded { in f32 P(%1, %2) temp f32 C(%1, %2) out f32 Y(%1, %2) "
    "C(i0:%1, i1:%2 | r0:3, r1:3) +=! i0 + r0 - 1 < 0 || i0 + r0 - 1 >= %1 || i1 + r1 - 1 < 0 || "
    "i1 + r1 - 1 >= %2 "
    "? 0f32 : P(i0 + r0 - 1, i1 + r1 - 1) "
    "Y(i0:%1, i1:%2) = C(i0, i1) * 0.5f32 }",
    "blur { in f32 X(%1 + 2, %2 + 2) temp f32 H(%1 + 2, %2) out f32 Y(%1, %2) "
    "H(i0:%1 + 2, i1:%2 | r0:3) +=! X(i0, i1 + r0) "
    "Y(i0:%1, i1:%2 | r0:3) +=! H(i0 + r0, i1) }",
    "pool { in f32 X(%1 * 2 + 1, %2 * 2 + 1, %3) out f32 Y(%1, %2, %3) "
    "Y(i0:%1, i1:%2, i2:%3 | r0:3, r1:3) max=! X(i0 * 2 + r0, i1 * 2 + r1, i2) }",
    "softmax { in f32 X(%1, %2) temp f32 M(%1) temp f32 E(%1, %2) temp f32 S(%1) out f32 Y(%1, %2) "
    "M(i0:%1 | r0:%2) max=! X(i0, r0) "
    "E(i0:%1, i1:%2) = exp(X(i0, i1) - M(i0)) "
    "S(i0:%1 | r0:%2) +=! E(i0, r0) "
    "Y(i0:%1, i1:%2) = E(i0, i1) / S(i0) }",
    "sums { in f32 X(%1, %2, %3) out f32 Y(%1) Y(i0:%1 | r0:%2, r1:%3) +=! X(i0, r0, r1) }",
    "total { in f32 X(%1, %2) temp f32 T() out f32 Y(%1) T( | r0:%1, r1:%2) +=! X(r0, r1) "
    "Y(i0:%1) = X(i0, 0) + T() }",
    "twice { in f32 P(%1 + 4, %2) temp f32 C(%1 + 2, %3) temp f32 R(%1 + 2, %3) temp f32 D(%1, %2) "
    "in f32 V(%3, 3) "
    "in f32 W(%2, 3) out f32 Y(%1, %2) "
    "C(i0:%1 + 2, i1:%3 | r0:%2, r1:3) +=! P(i0 + r1, r0) * V(i1, r1) "
    "R(i0:%1 + 2, i1:%3) = max(C(i0, i1), 0f32) "
    "D(i0:%1, i1:%2 | r0:%3, r1:3) +=! R(i0 + r1, r0) * W(i1, r1) "
    "Y(i0:%1, i1:%2) = D(i0, i1) - 1f32 }",
    "norm { in f32 X(%4, %1, %2) temp f32 S(%4, %1) temp f32 D(%4, %1, %2) temp f32 V(%4, %1) out "
    "f32 Y(%4, %1, %2) "
    "S(i0:%4, i1:%1 | r0:%2) +=! X(i0, i1, r0) "
    "D(i0:%4, i1:%1, i2:%2) = X(i0, i1, i2) - S(i0, i1) "
    "V(i0:%4, i1:%1 | r0:%2) +=! D(i0, i1, r0) * D(i0, i1, r0) "
    "Y(i0:%4, i1:%1, i2:%2) = D(i0, i1, i2) / (V(i0, i1) + 1f32) }",
    "shuffle { in f32 X(%1 * 2, %2) temp f32 T(%1, %2 * 2) out f32 Y(%1, %2 * 2) "
    "T(i0:%1, i1:%2 * 2) = X(i0 * 2 + i1 % 2, i1 / 2) + 1f32 "
    "Y(i0:%1, i1:%2 * 2) = T(i0, i1) * T(i0, %2 * 2 - 1 - i1) }",
    "put { in f32 X(%1, %2) in i64 I(%1) in f32 Z(3, %2) out f32 Y(3, %2) "
    "Y(i0:%1, i1:%2) at (I(i0), i1) = X(i0, i1) init (Z(o0, o1)) }",
    "add { in f32 X(%1, %2) in i64 I(%1, %2) out f32 Y(%1, 3) "
    "Y(i0:%1, i1:%2) at (i0, I(i0, i1)) +=! X(i0, i1) }",
    "odd { in f32 X(%1, %2) temp f32 T(%1 * 2 + 1, %2) out f32 Y(%1 * 2, %2) "
    "T(i0:%1, i1:%2) at (i0 * 2 + 1, i1) = X(i0, i1) init (f32(o1)) "
    "Y(i0:%1 * 2, i1:%2) = T(i0, i1) + T(i0 + 1, i1) }",
    "last { in f32 X(%1, %2) out f32 Y((%1 + 1) / 2, %2) "
    "Y(i0:%1, i1:%2) at (i0 / 2, i1) = X(i0, i1) init (0f32) }",
    "tri { in f32 A(%1, %3) in f32 B(%3, %2) temp f32 C(%1, %2) out f32 Y(%1, %2) "
    "C(i0:%1, i1:%2 | r0:%3) +=! A(i0, r0) * B(r0, i1) if r0 <= i0 "
    "Y(i0:%1, i1:%2) = C(i0, i1) + 1f32 }",
    "turn { in f32 X(%1, %2, %3) out f32 Y(%3, %1, %2) Y(i0:%3, i1:%1, i2:%2) = X(i1, i2, i0) }",
    "gather { in f32 X(3, %2) in i64 I(%1) out f32 Y(%1, %2) Y(i0:%1, i1:%2) = X(I(i0), i1) }",
};

static void instantiate(const char *from, const int64_t *extents, char *to, size_t room) {
  size_t n = 0;
  for (; *from && n + 24 < room; from++) {
    if (from[0] == '%' && from[1] >= '1' && from[1] <= '4') {
      n += (size_t)snprintf(to + n, room - n, "%lld", (long long)extents[from[1] - '1']);
      from++;
    } else {
      to[n++] = *from;
    }
  }
  to[n] = 0;
}

// --- random steps ---

typedef struct walker {
  test_kernel *k;
  kiln_schedule *s;
  uint64_t seed;
  kiln_symbol loops[64];
  int n_loops, n_names;
} walker;

static int pick(walker *w, int n) {
  return (int)(kernel_random(&w->seed) % (uint32_t)(n > 0 ? n : 1));
}

static void list_loops(walker *w, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR && w->n_loops < 64) w->loops[w->n_loops++] = l->var;
    list_loops(w, l->body);
  }
}

static kiln_symbol some_loop(walker *w) { return w->n_loops ? w->loops[pick(w, w->n_loops)] : 0; }

static kiln_symbol some_buffer(walker *w) {
  return w->s->loops->buffers.data[pick(w, w->s->loops->buffers.n)]->name;
}

static kiln_symbol new_name(walker *w) {
  return kiln_symbol_printf(&w->k->cx, "n%d", w->n_names++);
}

static kiln_status random_reorder(walker *w) {
  // neighbours in the listing are often on one path
  kiln_symbol some[4];
  const int n = 2 + pick(w, 3), from = pick(w, w->n_loops);
  if (from + n > w->n_loops) return KILN_BAD_INPUT;
  for (int i = 0; i < n; i++) some[i] = w->loops[from + i];
  for (int i = n - 1; i > 0; i--) {
    const int j = pick(w, i + 1);
    const kiln_symbol t = some[i];
    some[i] = some[j];
    some[j] = t;
  }
  return kiln_reorder(w->s, n, some);
}

static kiln_status random_fuse(walker *w) {
  const int from = pick(w, w->n_loops - 1);
  if (w->n_loops < 2) return KILN_BAD_INPUT;
  return kiln_fuse(w->s, w->loops[from], w->loops[from + 1], new_name(w));
}

static kiln_status random_stage(walker *w) {
  kiln_stage_axis axes[2 * KILN_MAX_RANK];
  const kiln_buffer *b = w->s->loops->buffers.data[pick(w, w->s->loops->buffers.n)];
  if (b->rank > KILN_MAX_RANK || b->rank == 0) return KILN_BAD_INPUT;
  int n = 0;
  const int blocked = pick(w, 2 * b->rank);
  for (int a = 0; a < b->rank; a++) axes[n++] = (kiln_stage_axis){a, 0, true};
  if (blocked < b->rank) {
    const int64_t block = 2 + pick(w, 4);
    axes[blocked] = (kiln_stage_axis){blocked, block, true};
    axes[n++] = (kiln_stage_axis){blocked, block, false};
  }
  for (int i = n - 1; i > 0; i--) {
    const int j = pick(w, i + 1);
    const kiln_stage_axis t = axes[i];
    axes[i] = axes[j];
    axes[j] = t;
  }
  const kiln_symbol loop = pick(w, 3) ? some_loop(w) : 0;
  const kiln_scope scope = !loop || pick(w, 2) ? KILN_SCOPE_WORKSPACE : KILN_SCOPE_LOCAL;
  return kiln_stage(w->s, b->name, loop, scope, n, axes, new_name(w));
}

static kiln_status random_step(walker *w) {
  w->n_loops = 0;
  list_loops(w, w->s->loops->body);
  if (w->n_loops == 0) return KILN_BAD_INPUT;
  switch (pick(w, 14)) {
  case 0:
  case 1:
    return kiln_split(w->s, some_loop(w), 1 + pick(w, 6), KILN_TAIL_GUARD, new_name(w),
                      new_name(w));
  case 2:
  case 3:
    return kiln_split(w->s, some_loop(w), 1 + pick(w, 6), KILN_TAIL_SHIFT, new_name(w),
                      new_name(w));
  case 4: return random_fuse(w);
  case 5:
  case 6: return random_reorder(w);
  case 7: return pick(w, 3) ? KILN_BAD_INPUT : kiln_parallel(w->s, some_loop(w));
  case 8: return pick(w, 3) ? KILN_BAD_INPUT : kiln_vectorize(w->s, some_loop(w));
  case 9: return pick(w, 3) ? KILN_BAD_INPUT : kiln_unroll(w->s, some_loop(w));
  case 10: return pick(w, 3) ? KILN_BAD_INPUT : kiln_peel(w->s, some_loop(w), 1 + pick(w, 4));
  case 11:
    return kiln_compute_at(w->s, some_buffer(w), some_loop(w),
                           pick(w, 3) ? KILN_SCOPE_LOCAL : KILN_SCOPE_REGISTER);
  case 12: return pick(w, 2) ? random_stage(w) : kiln_inline(w->s, some_buffer(w));
  default: return kiln_rfactor(w->s, some_loop(w), new_name(w));
  }
}

// Splits and reorders the last nest and places the temporaries in it: what random steps alone
// seldom reach.
static void random_start(walker *w) {
  const kiln_program *p = w->k->prog;
  const kiln_loop *last = w->s->loops->body;
  while (last->next) last = last->next;
  kiln_symbol path[8];
  int n = 0;
  for (; last && last->kind == KILN_LOOP_FOR && n < 8; last = last->body) path[n++] = last->var;
  const int n_loops = n;
  for (int i = 0; i < n_loops; i++) {
    if (!pick(w, 2)) continue;
    const kiln_symbol outer = new_name(w), inner = new_name(w);
    if (kiln_split(w->s, path[i], 1 + pick(w, 6), pick(w, 2) ? KILN_TAIL_SHIFT : KILN_TAIL_GUARD,
                   outer, inner) != KILN_OK)
      continue;
    path[i] = outer;
    if (n < 8) path[n++] = inner;
  }
  if (n > 1) (void)!kiln_reorder(w->s, n, path);
  if (pick(w, 2)) (void)!kiln_parallel(w->s, path[0]);
  for (int i = p->tensors.n - 1; i >= 0; i--) {
    if (p->tensors.data[i]->role != KILN_TEMP || !pick(w, 4)) continue;
    const kiln_symbol at = path[pick(w, n)], name = p->tensors.data[i]->name;
    if (!pick(w, 3) && kiln_compute_at(w->s, name, at, KILN_SCOPE_REGISTER) == KILN_OK) continue;
    (void)!kiln_compute_at(w->s, name, at, KILN_SCOPE_LOCAL);
  }
}

// A script means the same in a context that has seen nothing else.
static void check_elsewhere(test_kernel *k, const kiln_schedule *s, const char *program) {
  test_kernel fresh;
  kernel_open(&fresh, program, 1);
  kiln_schedule again;
  assert_int_equal(kiln_schedule_begin(&fresh.cx, fresh.prog, &again), KILN_OK);
  assert_int_equal(kiln_schedule_replay(&again, kiln_schedule_script(s)), KILN_OK);
  assert_string_equal(kernel_text(&fresh, again.loops), kernel_text(k, s->loops));
  kernel_close(&fresh);
}

static uint64_t mixed(uint64_t x) { // neighbouring rounds must not look alike
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static void run_round(const char *program, uint64_t seed) {
  char text[2048];
  int64_t extents[4];
  for (int i = 0; i < 4; i++) extents[i] = 1 + kernel_random(&seed) % 9;
  instantiate(program, extents, text, sizeof text);
  test_kernel k;
  kernel_open(&k, text, seed);
  kiln_schedule s;
  assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
  kernel_check(&k, s.loops, "");
  walker w = {.k = &k, .s = &s, .seed = seed};
  if (pick(&w, 3)) random_start(&w);
  kernel_check(&k, s.loops, kiln_schedule_script(&s));
  for (int i = 0; i < STEPS; i++) {
    const char *before = kernel_text(&k, s.loops);
    const kiln_status st = random_step(&w);
    assert_true(st == KILN_OK || st == KILN_BAD_INPUT);
    if (st == KILN_BAD_INPUT) assert_string_equal(kernel_text(&k, s.loops), before);
    if (st != KILN_OK) continue;
    if (kiln_loops_verify(&k.cx, s.loops) != KILN_OK)
      fail_msg("%s\nscript:\n%s\n%s", kernel_message(&k), kiln_schedule_script(&s),
               kernel_text(&k, s.loops));
    kernel_check(&k, s.loops, kiln_schedule_script(&s));
  }
  kernel_check_replay(&k, &s);
  check_elsewhere(&k, &s, text);
  kernel_close(&k);
}

static void random_schedules_keep_the_meaning(void **state) {
  (void)state;
  const char *seed = getenv("KILN_TEST_SEED"), *rounds = getenv("KILN_TEST_ROUNDS");
  const int n = rounds ? atoi(rounds) : ROUNDS;
  uint64_t from = seed ? strtoull(seed, NULL, 10) : 1;
  for (int round = 0; round < n; round++)
    for (size_t p = 0; p < KILN_LEN(programs); p++) run_round(programs[p], mixed(from++));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_schedules_keep_the_meaning)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

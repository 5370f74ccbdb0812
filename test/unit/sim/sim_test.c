// The simulator: results, and each error that it reports.
#include "target/sim/sim.h"

#include "unit/share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

typedef struct bench {
  kiln_ctx cx;
  kiln_diag *diag;
} bench;

static kiln_status run(bench *b, const char *text, void *const *args) {
  b->diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&b->cx, b->diag), KILN_OK);
  kiln_loops *l = NULL;
  if (kiln_loops_parse(&b->cx, text, &l) != KILN_OK) fail_msg("%s", kiln_diag_message(b->diag, 0));
  return kiln_sim_run(&b->cx, l, args);
}

static void close(bench *b) {
  kiln_ctx_deinit(&b->cx);
  kiln_diag_destroy(b->diag);
}

static void loops_compute(void **state) {
  (void)state;
  bench b;
  float x[6] = {1, 2, 3, 4, 5, 6}, y[2] = {0};
  void *args[] = {x, y};
  assert_int_equal(run(&b,
                       "kernel k { param f32 X[2, 3]:(3, 1) param f32 Y[2]:(1) local f32 T[3]:(1) "
                       "for i:2 parallel { alloc T { for j:3 vectorized { T[j] = X[i, j] * 2f32 } "
                       "Y[i] = 0f32 for j2:3 { if j2 != 1 { Y[i] += T[j2] } } } } }",
                       args),
                   KILN_OK);
  assert_true(y[0] == 8 && y[1] == 20);
  close(&b);
}

// The same indices in loops that lie otherwise: the other one around, one more around, lanes, and
// one lane.
static void indices_follow_their_loops_however_these_lie(void **state) {
  enum { N = 12 };
  static const char *const nests[] = {
      "for i:3 { for j:4 { Y[i*4 + j] = X[j*3 + i] } }",
      "for j:4 { for i:3 { Y[i*4 + j] = X[j*3 + i] } }",
      "for a:1 { for j:4 { for i:3 { Y[i*4 + j] = X[j*3 + i] } } }",
      "for i:3 { for j:4 vectorized { Y[i*4 + j] = X[j*3 + i] } }",
      "for j:4 { for a:1 vectorized { for i:3 { Y[i*4 + j] = X[j*3 + i + a] } } }",
      ("for i:3 { for j:4 { if (i*4 + j) % 2 == 0 { Y[i*4 + j] = X[j*3 + i] } } "
       "for j:4 { if (i*4 + j) % 2 == 1 { Y[i*4 + j] = X[j*3 + i] } } }")};
  (void)state;
  for (size_t first = 0; first < sizeof nests / sizeof *nests; first++)
    for (size_t second = 0; second < sizeof nests / sizeof *nests; second++) {
      bench b;
      char text[1024];
      float x[N], t[N] = {0}, y[N] = {0};
      void *args[] = {x, t, y};
      for (int i = 0; i < N; i++) x[i] = (float)i;
      snprintf(text, sizeof text,
               "kernel k { param f32 X[12]:(1) param f32 Y[12]:(1) param f32 Z[12]:(1) %s "
               "for i:12 { Z[i] = Y[i] Y[i] = 0f32 } %s }",
               nests[first], nests[second]);
      assert_int_equal(run(&b, text, args), KILN_OK);
      for (int i = 0; i < N; i++) {
        const float want = (float)(i % 4 * 3 + i / 4);
        if (t[i] != want || y[i] != want) fail_msg("element %d of %s", i, text);
      }
      close(&b);
    }
}

// Y[t0*i + t1*j + c] = X[..] for i, j: all elements are copied, or the first one out of range is
// reported.
typedef struct walked {
  int64_t extents[2], steps[2], more, elems;
} walked;

static int64_t random_of(uint64_t *seed, int64_t from, int64_t to) {
  *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return from + (int64_t)((*seed >> 33) % (uint64_t)(to - from + 1));
}

// Subscripts that lie inside, but for one in three, which leaves its buffer at the begin or the
// end.
static walked random_walk(uint64_t *seed) {
  walked w = {0};
  int64_t least = 0, most = 0;
  for (int k = 0; k < 2; k++) {
    w.extents[k] = random_of(seed, 1, 9);
    w.steps[k] = random_of(seed, -4, 4);
    const int64_t way = w.steps[k] * (w.extents[k] - 1);
    if (way < 0) least += way;
    else most += way;
  }
  const int64_t past = random_of(seed, 0, 2);
  w.more = -least - (past == 1);
  w.elems = most + w.more + (past != 2);
  if (w.elems < 1) w.elems = 1;
  return w;
}

static void affine_subscripts_touch_what_they_name(void **state) {
  enum { RUNS = 2000, MOST = 80 };
  uint64_t seed = 5;
  (void)state;
  for (int n = 0; n < RUNS; n++) {
    const walked w = random_walk(&seed);
    float x[MOST], y[MOST] = {0}, want[MOST] = {0};
    char text[1024], message[128] = "";
    bench b;
    void *args[] = {x, y};
    for (int i = 0; i < MOST; i++) x[i] = (float)(i + 1);
    for (int64_t i = 0; i < w.extents[0]; i++)
      for (int64_t j = 0; j < w.extents[1] && !message[0]; j++) {
        const int64_t at = w.steps[0] * i + w.steps[1] * j + w.more;
        if (at >= 0 && at < w.elems) want[at] = x[at];
        else
          snprintf(message, sizeof message,
                   "sim: kernel k: error: buffer X: index 0 must lie in [0, %d), got %d",
                   (int)w.elems, (int)at);
      }
    snprintf(text, sizeof text,
             "kernel k { param f32 X[%d]:(1) param f32 Y[%d]:(1) for i:%d { for j:%d { "
             "Y[i*%d + j*%d + %d] = X[%d + j*%d + i*%d] } } }",
             (int)w.elems, (int)w.elems, (int)w.extents[0], (int)w.extents[1], (int)w.steps[0],
             (int)w.steps[1], (int)w.more, (int)w.more, (int)w.steps[1], (int)w.steps[0]);
    const kiln_status st = run(&b, text, args);
    if (message[0]) {
      assert_int_equal(st, KILN_INTERNAL);
      assert_string_equal(kiln_diag_message(b.diag, 0), message);
    } else {
      assert_int_equal(st, KILN_OK);
    }
    assert_memory_equal(y, want, sizeof y);
    close(&b);
  }
}

// --- rows ---

// One index of a row: as it moves, and mostly inside.
static void random_index(uint64_t *seed, char *out, size_t room) {
  snprintf(out, room, "%d*i + %d*o + %d", (int)random_of(seed, -1, 2), (int)random_of(seed, 0, 3),
           (int)random_of(seed, 0, 12));
}

// A nest whose innermost loop is around one store: serial or lanes, in a loop that may be
// concurrent, from memory that may be unwritten.
static void random_row(uint64_t *seed, char *out, size_t room) {
  static const char *const outer[] = {"", " parallel", " block.x"};
  static const char *const inner[] = {"", "", " vectorized", " parallel"};
  static const char *const stores[] = {"=", "+=", "max=", "*="};
  static const char *const values[] = {
      "%s(T[%s])",     "%s(T[%s]) * X[%s]", "%s(T[%s]) + 2f32",
      "X[%s] - T[%s]", "T[%s] * T[%s]",     "o < 2 ? T[%s] : X[%s]",
      "-T[%s]",        "Y[%s] + X[%s]",     "f32(f16(T[%s] * 0.3f32))",
      "1f32"};
  char a[32], b[32], to[32], value[160];
  random_index(seed, a, sizeof a);
  random_index(seed, b, sizeof b);
  random_index(seed, to, sizeof to);
  const int which = (int)random_of(seed, 0, 9);
  if (which < 3) snprintf(value, sizeof value, values[which], "abs", a, b);
  else snprintf(value, sizeof value, values[which], a, b);
  const int n = (int)random_of(seed, 1, 9), written = (int)random_of(seed, 20, 48);
  snprintf(out, room,
           "kernel k { param f32 X[48]:(1) param f32 Y[48]:(1) local f32 T[48]:(1) for o:%d%s { "
           "alloc T { for w:%d { T[w] = X[w] * 0.7f32 } for i:%d%s { Y[%s] %s %s } } } }",
           (int)random_of(seed, 1, 4), outer[random_of(seed, 0, 2)], written, n,
           inner[random_of(seed, 0, 3)], random_of(seed, 0, 3) ? to : "o",
           stores[random_of(seed, 0, 3)], value);
}

typedef struct outcome {
  kiln_status status;
  char message[256];
  float y[48];
} outcome;

// What counts its traffic runs point by point.
static outcome outcome_of(const char *text, bool by_points) {
  enum { N = 48 };
  outcome o = {0};
  float x[N];
  void *args[] = {x, o.y};
  bench b = {.diag = kiln_diag_create()};
  kiln_loops *l = NULL;
  kiln_sim_traffic t;
  for (int i = 0; i < N; i++) x[i] = (float)(i * 7 % 11) / 8 - 0.5f, o.y[i] = (float)(i % 5);
  assert_int_equal(kiln_ctx_init(&b.cx, b.diag), KILN_OK);
  if (kiln_loops_parse(&b.cx, text, &l) != KILN_OK) fail_msg("%s", kiln_diag_message(b.diag, 0));
  o.status =
      by_points ? kiln_sim_measure(&b.cx, l, args, 0, NULL, &t) : kiln_sim_run(&b.cx, l, args);
  if (o.status != KILN_OK)
    snprintf(o.message, sizeof o.message, "%s", kiln_diag_message(b.diag, 0));
  close(&b);
  return o;
}

static void rows_are_their_points(void **state) {
  enum { RUNS = 6000 };
  uint64_t seed = test_asked("KILN_SEED", (uint64_t)time(NULL));
  const uint64_t first = seed;
  int right = 0;
  (void)state;
  for (int k = 0; k < RUNS; k++) {
    char text[1024];
    random_row(&seed, text, sizeof text);
    const outcome row = outcome_of(text, false), points = outcome_of(text, true);
    right += row.status == KILN_OK;
    if (row.status != points.status || strcmp(row.message, points.message) != 0)
      fail_msg("KILN_SEED=%llu: %s: %s\n%s", (unsigned long long)first, text, row.message,
               points.message);
    if (row.status == KILN_OK && memcmp(row.y, points.y, sizeof row.y) != 0)
      fail_msg("KILN_SEED=%llu: %s: other values", (unsigned long long)first, text);
  }
  assert_true(right > RUNS / 10 && right < RUNS * 9 / 10); // both kinds occur
}

static void types_wrap_and_saturate(void **state) {
  (void)state;
  bench b;
  uint8_t x[3] = {200, 100, 255}, y[3] = {0};
  int8_t z[3] = {0};
  uint16_t h[3] = {0};
  void *args[] = {x, y, z, h};
  assert_int_equal(
      run(&b,
          "kernel k { param u8 X[3]:(1) param u8 Y[3]:(1) param i8 Z[3]:(1) param f16 H[3]:(1) "
          "for i:3 { Y[i] = X[i] + X[i] Z[i] = i8(f32(X[i])) H[i] = f16(X[i]) * 16f16 } }",
          args),
      KILN_OK);
  assert_true(y[0] == 144 && y[1] == 200 && y[2] == 254);
  assert_true(z[0] == 127 && z[1] == 100 && z[2] == 127);
  assert_true(h[0] == kiln_f16_of_f64(3200) && h[2] == kiln_f16_of_f64(4080));
  close(&b);
}

static const struct {
  const char *loops, *error;
} breaches[] = {
    {"kernel k { param f32 X[4]:(1) for i:5 { X[i] = 0f32 } }",
     "sim: kernel k: error: buffer X: index 0 must lie in [0, 4), got 4"},
    {"kernel k { param f32 X[4]:(1) param f32 Y[2, 2]:(2, 1) for i:4 { X[i] = Y[0, i] } }",
     "sim: kernel k: error: buffer Y: index 1 must lie in [0, 2), got 2"},
    {"kernel k { param f32 X[4]:(1) local f32 T[4]:(1) alloc T { for i:3 { T[i] = 0f32 } for j:4 { "
     "X[j] = T[j] } } }",
     "sim: kernel k: error: buffer T: element 3 must be written before it is read"},
    {"kernel k { param f32 X[4]:(1) local f32 T[1]:(1) for i:2 { alloc T { if i < 1 { T[0] = 0f32 "
     "} X[i] = T[0] } } }",
     "sim: kernel k: error: buffer T: element 0 must be written before it is read"},
    {"kernel k { param f32 X[4]:(1) workspace f32 T[4]:(1) for j:4 { X[j] = T[j] } }",
     "sim: kernel k: error: buffer T: element 0 must be written before it is read"},
    {"kernel k { param f32 X[4]:(1) for i:4 parallel { X[0] = f32(i) } }",
     "sim: kernel k: error: buffer X: race: iterations 0 and 1 of loop i write element 0 with "
     "different values"},
    {"kernel k { param f32 X[4]:(1) for i:3 parallel { X[i + 1] = X[i] } }",
     "sim: kernel k: error: buffer X: race: iteration 1 of loop i reads element 1, "
     "which iteration 0 writes"},
    {"kernel k { param f32 X[4]:(1) for i:3 parallel { X[i] = X[i + 1] } }",
     "sim: kernel k: error: buffer X: race: iteration 1 of loop i writes element 1, "
     "which another one reads"},
    // loops bound to axes, nested
    {"kernel k { param f32 X[4]:(1) for b:2 block.x { for t:2 thread.x { X[t] = f32(b) } } }",
     "sim: kernel k: error: buffer X: race: iterations 0 and 1 of loop b write element 0 with "
     "different values"},
    {"kernel k { param f32 X[4]:(1) for b:1 block.x { for t:3 thread.x { X[t] = X[t + 1] } } }",
     "sim: kernel k: error: buffer X: race: iteration 1 of loop t writes element 1, which another "
     "one reads"},
    {"kernel k { param f32 X[4]:(1) shared f32 T[4]:(1) for b:1 block.x { alloc T { "
     "for t:4 thread.x { T[t] = X[t] X[t] = T[0] } } } }",
     "sim: kernel k: error: buffer T: race: iteration 1 of loop t reads element 0, which iteration "
     "0 writes"},
    {"kernel k { param f32 X[4]:(1) shared f32 T[4]:(1) for t:4 thread.x { alloc T { T[t] = 0f32 } "
     "} "
     "}",
     "sim: kernel k: error: buffer T: shared memory must be allocated outside of thread loop t"},
    {"kernel k { param f32 X[4]:(1) shared f32 T[4]:(1) for b:1 block.x { alloc T { "
     "for t:3 thread.x { T[t] = X[t] } for u:4 thread.x { X[u] = T[u] } } } }",
     "sim: kernel k: error: buffer T: element 3 must be written before it is read"},
    // memory of one thread, and of one block
    {"kernel k { param f32 X[4]:(1) local f32 T[4]:(1) alloc T { for t:4 thread.x { T[t] = X[t] } "
     "for u:4 thread.x { X[u] = T[3 - u] } } }",
     "sim: kernel k: error: buffer T: thread 0 must touch its own part only, got element 3 of "
     "thread "
     "3, as it is allocated outside of thread loops"},
    {"kernel k { param f32 X[4]:(1) local f32 T[4]:(1) alloc T { for t:4 thread.x { T[t] = X[t] } "
     "X[0] = T[2] } }",
     "sim: kernel k: error: buffer T: thread 0 must touch its own part only, got element 2 of "
     "thread "
     "2, as it is allocated outside of thread loops"},
    {"kernel k { param f32 X[8]:(1) local f32 T[2, 4]:(4, 1) alloc T { for r:2 thread.y { for t:4 "
     "thread.x { T[r, t] = X[r*4 + t] } } for u:4 thread.x { X[u] = T[1, u] } } }",
     "sim: kernel k: error: buffer T: thread 0 must touch its own part only, got element 4 of "
     "thread "
     "4, as it is allocated outside of thread loops"},
    {"kernel k { param f32 X[4]:(1) local f32 T[3]:(1) alloc T { for t:2 thread.x { T[t] = X[t] } "
     "} }",
     "sim: kernel k: error: buffer T: 3 elements must be distributed to the 2 threads of a block "
     "in "
     "equal parts, as it is allocated outside of thread loops"},
    {"kernel k { param f32 X[4]:(1) register f32 T[1]:(1) alloc T { T[0] = 0f32 for b:4 block.x { "
     "X[b] = T[0] } } }",
     "sim: kernel k: error: buffer T: register memory must be allocated inside of block.x loop b, "
     "which uses it"},
    {"kernel k { param f32 X[4]:(1) shared f32 T[4]:(1) alloc T { for b:4 block.x { T[b] = X[b] } "
     "} }",
     "sim: kernel k: error: buffer T: shared memory must be allocated inside of block.x loop b, "
     "which uses it"},
    // a copy of what nobody wrote is a read and a write as others are
    {"kernel k { param f32 X[4]:(1) workspace f32 S[2]:(1) workspace f32 T[2]:(1) "
     "for i:2 parallel { if i < 1 { T[0] = 1f32 } if i > 0 { T[0] = S[1] } } }",
     "sim: kernel k: error: buffer T: race: iterations 0 and 1 of loop i write element 0 with "
     "different values"},
    {"kernel k { param f32 X[4]:(1) workspace f32 S[2]:(1) workspace f32 T[2]:(1) "
     "for i:2 parallel { if i < 1 { T[0] = S[1] } if i > 0 { T[0] = 1f32 } } }",
     "sim: kernel k: error: buffer T: race: iterations 0 and 1 of loop i write element 0 with "
     "different values"},
    {"kernel k { param f32 X[4]:(1) workspace f32 S[2]:(1) workspace f32 T[2]:(1) "
     "for i:2 parallel { if i < 1 { T[0] = S[1] } if i > 0 { S[1] = 1f32 } } }",
     "sim: kernel k: error: buffer S: race: iteration 1 of loop i writes element 1, which another "
     "one reads"},
};

static void breaches_are_named(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(breaches); i++) {
    bench b;
    float x[8] = {1, 2, 3, 4}, y[4] = {0}, z[4] = {0};
    void *args[] = {x, y, z};
    assert_int_equal(run(&b, breaches[i].loops, args), KILN_INTERNAL);
    assert_string_equal(kiln_diag_message(b.diag, 0), breaches[i].error);
    close(&b);
  }
}

#define XY "kernel k { param f32 X[4]:(1) param f32 Y[4]:(1) "

// Programs that are right serially and wrong in lock step, or the other way round.
static const struct {
  const char *loops, *error;
} lanes[] = {
    {XY "for i:3 vectorized { X[i + 1] = X[i] } }",
     "sim: kernel k: error: buffer X: lanes: lane 0 of loop i writes element 1 after lane 1 reads "
     "it"},
    {XY "for i:3 vectorized { X[i] = X[i + 1] } }", NULL},
    {XY "for i:3 vectorized { X[i] = Y[i] Y[i] = X[i + 1] } }",
     "sim: kernel k: error: buffer X: lanes: lane 0 of loop i reads element 1 after lane 1 writes "
     "it"},
    {XY "for i:3 vectorized { X[i + 1] = Y[i] Y[i] = X[i] } }", NULL},
    {XY "for i:3 vectorized { Y[i] = X[i] X[i + 1] = Y[i] } }",
     "sim: kernel k: error: buffer X: lanes: lane 0 of loop i writes element 1 after lane 1 reads "
     "it"},
    {XY "for i:3 vectorized { X[i + 1] = Y[i] X[i] = 7f32 } }", NULL},
    {XY "for i:3 vectorized { X[i] = Y[i] X[i + 1] = 7f32 } }",
     "sim: kernel k: error: buffer X: lanes: lane 0 of loop i writes element 1 after lane 1 writes "
     "it"},
    // one element of all lanes: the last one wins, or it is a reduction
    {XY "for i:4 vectorized { X[0] = Y[i] } }", NULL},
    {XY "for i:4 vectorized { X[0] += Y[i] } }", NULL},
    {XY "for i:4 vectorized { X[0] += Y[i] X[0] += 1f32 } }", NULL},
    {XY "for i:4 vectorized { if i < 3 { X[0] max=! Y[i] } } }", NULL},
    {XY "for i:4 vectorized { X[0] += Y[i] X[0] max=! 1f32 } }",
     "sim: kernel k: error: buffer X: lanes: lane 0 of loop i writes element 0 after lane 3 writes "
     "it"},
    {XY "for i:4 vectorized { X[0] = 0f32 X[0] += Y[i] } }",
     "sim: kernel k: error: buffer X: lanes: lane 0 of loop i writes element 0 after lane 3 writes "
     "it"},
    {XY "for i:4 vectorized { X[0] += X[0] * Y[i] } }",
     "sim: kernel k: error: buffer X: lanes: lane 0 of loop i writes element 0 after lane 3 reads "
     "it"},
    {XY "for i:4 vectorized { X[0] += 1f32 Y[i] = X[0] } }",
     "sim: kernel k: error: buffer X: lanes: lane 0 of loop i reads element 0 after lane 3 writes "
     "it"},
    {XY "for i:4 vectorized { X[i / 2] += Y[i] } }",
     "sim: kernel k: error: buffer X: lanes: lane 0 of loop i writes element 0 after lane 1 reads "
     "it"},
    // lanes that are off do nothing; memory inside is each lane's own
    {XY "for i:3 vectorized { if i < 1 { X[i + 2] = X[i] } } }", NULL},
    {"kernel k { param f32 X[4]:(1) param f32 Y[4]:(1) local f32 T[2]:(1) for i:4 vectorized { "
     "alloc T { for k:2 { T[k] = X[i] * f32(k + 1) } Y[i] = T[0] + T[1] } } }",
     NULL},
    {"kernel k { param f32 X[4]:(1) param f32 Y[4]:(1) local f32 T[2]:(1) for i:4 vectorized { "
     "alloc T { if i < 2 { T[1] = X[i] } Y[i] = T[1] } } }",
     "sim: kernel k: error: buffer T: element 1 must be written before it is read"},
    // a loop in each lane: statement by statement, too
    {XY "for i:2 vectorized { for k:2 { X[i + k + 1] = X[i + k] } } }",
     "sim: kernel k: error: buffer X: lanes: lane 0 of loop i writes element 1 after lane 1 reads "
     "it"},
    {XY "for i:2 vectorized { for k:2 { X[i + k*2] = Y[i + k*2] } } }", NULL},
    {XY "for i:4 vectorized { for k:i { Y[i] += X[k] } } }", NULL},
    {XY "for j:2 { for i:2 vectorized { X[i + j + 1] = Y[i] } Y[0] = X[1] } }", NULL},
};

static void lanes_and_their_order_agree(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(lanes); row++) {
    bench b;
    float x[4] = {1, 2, 3, 4}, y[4] = {5, 6, 7, 8};
    void *args[] = {x, y};
    const kiln_status st = run(&b, lanes[row].loops, args);
    if (lanes[row].error) {
      assert_int_equal(st, KILN_INTERNAL);
      assert_string_equal(kiln_diag_message(b.diag, 0), lanes[row].error);
    } else if (st != KILN_OK) {
      fail_msg("%s\n%s", kiln_diag_message(b.diag, 0), lanes[row].loops);
    }
    close(&b);
  }
}

// Where both orders agree, results are those of serial loops.
static void lanes_compute(void **state) {
  (void)state;
  bench b;
  float x[4] = {1, 2, 3, 4}, y[4] = {5, 6, 7, 8};
  void *args[] = {x, y};
  assert_int_equal(run(&b,
                       "kernel k { param f32 X[4]:(1) param f32 Y[4]:(1) local f32 T[1]:(1) "
                       "for i:3 vectorized { X[i] = X[i + 1] if i < 2 { alloc T { T[0] = 0f32 "
                       "for k:i + 1 { T[0] += Y[k] } Y[i + 2] = T[0] } } } "
                       "for j:4 vectorized { X[0] += Y[j] } }",
                       args),
                   KILN_OK);
  assert_true(x[0] == 2 + 5 + 6 + 5 + 11 && x[1] == 3 && x[2] == 4 && x[3] == 4);
  assert_true(y[0] == 5 && y[1] == 6 && y[2] == 5 && y[3] == 11);
  close(&b);
}

// Tiles of a shifted tail overlap; they write the same values.
static void equal_values_are_no_race(void **state) {
  (void)state;
  bench b;
  float x[5] = {0};
  void *args[] = {x};
  assert_int_equal(
      run(&b,
          "kernel k { param f32 X[5]:(1) "
          "for i:2 parallel { for j:3 { X[min(i*3, 2) + j] = f32(min(i*3, 2) + j) } } }",
          args),
      KILN_OK);
  assert_true(x[0] == 0 && x[2] == 2 && x[4] == 4);
  close(&b);
}

// A thread loop waits for the one before it; blocks have memory of their own.
static void a_loop_waits_for_the_one_before(void **state) {
  (void)state;
  bench b;
  float x[4] = {1, 2, 3, 4}, y[8] = {0};
  void *args[] = {x, y};
  assert_int_equal(run(&b,
                       "kernel k { param f32 X[4]:(1) param f32 Y[8]:(1) shared f32 T[4]:(1) "
                       "for b:2 block.x { alloc T { for t:4 thread.x { T[t] = X[t] + f32(b) } "
                       "for u:4 thread.x { Y[b*4 + u] = T[3 - u] } } } }",
                       args),
                   KILN_OK);
  assert_true(y[0] == 4 && y[3] == 1 && y[4] == 5 && y[7] == 2);
  close(&b);
}

// --- traffic ---

// 16 x 64 times 64 x 128 floats: with lines of 16 floats, A is 64 lines, B 512, C 128.
#define MATMUL(loops)                                                                              \
  "kernel k { param f32 A[16, 64]:(64, 1) param f32 B[64, 128]:(128, 1) "                          \
  "param f32 C[16, 128]:(128, 1) " loops " }"
static const char naive[] =
    MATMUL("for i:16 { for j:128 { for k:64 { C[i, j] += A[i, k] * B[k, j] } } }");
static const char tiled[] = MATMUL("for o:8 { for i:16 { for j:16 { for k:64 { "
                                   "C[i, o*16 + j] += A[i, k] * B[k, o*16 + j] } } } }");
static const char stencil[] = "kernel k { param f32 X[1026]:(1) param f32 Y[1024]:(1) for i:1024 { "
                              "Y[i] = X[i] + X[i + 1] + X[i + 2] } }";
static const char conflict[] = "kernel k { param f32 X[64]:(1) param f32 Y[1]:(1) for i:10 { "
                               "for j:2 { Y[0] += X[j * 32] } } }";

enum { LINE = 64 };
#define L(lines, ways, fetch)                                                                      \
  { "L", (int64_t)(lines)*LINE, LINE, ways, fetch }
static const struct {
  const char *loops;
  int n_levels;
  kiln_sim_level levels[2];
  kiln_sim_flow flows[2]; // in lines
} traffic[] = {
    // B is read again for each row, as it does not fit: 16 * 512, and A and C once
    {naive, 1, {L(256, 0, true)}, {{16 * 512 + 64 + 128, 128}}},
    {naive, 1, {L(1024, 0, true)}, {{512 + 64 + 128, 128}}},
    // 64 lines of B stay for all rows; A is read again for each of 8 tiles where it does not fit
    {tiled, 1, {L(100, 0, true)}, {{512 + 8 * 64 + 128, 128}}},
    {tiled, 1, {L(256, 0, true)}, {{512 + 64 + 128, 128}}},
    {tiled, 2, {L(100, 0, true), L(1024, 0, true)}, {{512 + 8 * 64 + 128, 128}, {704, 128}}},
    // compulsory: every line once
    {stencil, 1, {L(8, 0, false)}, {{65, 64}}},
    {stencil, 1, {L(8, 0, true)}, {{65 + 64, 64}}},
    // lines 0 and 2 of X share the one way of their set; Y lies on a page of its own, in set 0 too
    {conflict, 1, {L(2, 1, true)}, {{10 * 2 + 20, 20}}},
    {conflict, 1, {L(3, 0, true)}, {{3, 1}}},
};

static void expect_same(const char *what, int i, kiln_sim_flow want, kiln_sim_flow got) {
  if (want.read_bytes != got.read_bytes || want.written_bytes != got.written_bytes)
    fail_msg("%s %d: the trace must read %d and write %d bytes, got %d and %d", what, i,
             (int)want.read_bytes, (int)want.written_bytes, (int)got.read_bytes,
             (int)got.written_bytes);
}

static void expect_same_trace(kiln_ctx *cx, kiln_loops *l, void *const *args, int n_levels,
                              const kiln_sim_level *levels, const kiln_sim_traffic *want) {
  kiln_sim_traffic got;
  if (kiln_sim_trace(cx, l, args, n_levels, levels, &got) != KILN_OK)
    fail_msg("%s", kiln_diag_message(cx->diag, 0));
  for (int i = 0; i < l->buffers.n; i++) expect_same("buffer", i, want->buffers[i], got.buffers[i]);
  for (int i = 0; i <= KILN_SCOPE_REGISTER; i++)
    expect_same("scope", i, want->scopes[i], got.scopes[i]);
  for (int i = 0; i < n_levels; i++) expect_same("level", i, want->levels[i], got.levels[i]);
}

// The trace: lanes, and conditions, loops and memory inside of them; selections; reductions over
// lanes; strides of all kinds; indices that are not affine, or data.
static const char *const traced[] = {
    "kernel k { param f32 X[512]:(1) param f32 Y[512]:(1) for i:16 { for j:32 vectorized { "
    "Y[i*32 + j] = X[511 - i*32 - j] + X[j*16] } } }",
    "kernel k { param f32 X[512]:(1) param f32 Y[512]:(1) for i:16 { for j:32 vectorized { "
    "if i*32 + j < 500 { Y[i*32 + j] += j % 3 < 1 ? X[j*7 % 512] : X[i] } } } }",
    "kernel k { param f32 X[512]:(1) param f32 Y[16]:(1) local f32 T[8]:(1) for i:16 { "
    "for j:4 vectorized { alloc T { for a:8 { T[a] = X[i*32 + j*8 + a] } for b:7 { "
    "Y[i] += T[b] * T[b + 1] } } } } }",
    "kernel k { param f32 X[4096]:(1) param f32 Y[64]:(1) local f32 T[64]:(1) for i:8 { alloc T { "
    "for a:64 { T[a] = X[a*64 + i] } for b:64 { Y[b/2*2 + b%2] max= T[63 - b] + X[min(b*3, 100)] } "
    "} "
    "} }",
    "kernel k { param i64 I[64]:(1) param f32 X[64, 16]:(16, 1) param f32 Y[64, 16]:(16, 1) "
    "for i:64 { for j:16 vectorized { Y[i, j] = X[min(max(I[i], 0), 63), j] } } }",
    "kernel k { param f32 X[40, 24]:(24, 1) param f32 Y[40, 24]:(24, 1) for i:40 { for j:24 { "
    "Y[i, j] = i >= 1 && j < 23 ? X[i - 1, j + 1] : X[i, j] } } }",
};

static void tracing_counts_what_measuring_counts(void **state) {
  (void)state;
  static const kiln_sim_level levels[][2] = {{L(8, 2, true), L(32, 4, true)},
                                             {L(6, 0, true), L(24, 0, false)},
                                             {L(2, 1, false), L(64, 8, true)}};
  for (size_t i = 0; i < KILN_LEN(traced) * KILN_LEN(levels); i++) {
    bench b = {.diag = kiln_diag_create()};
    kiln_loops *l = NULL;
    kiln_sim_traffic t;
    const kiln_sim_level *with = levels[i % KILN_LEN(levels)];
    assert_int_equal(kiln_ctx_init(&b.cx, b.diag), KILN_OK);
    if (kiln_loops_parse(&b.cx, traced[i / KILN_LEN(levels)], &l) != KILN_OK)
      fail_msg("%s", kiln_diag_message(b.diag, 0));
    int64_t *memory = test_calloc(3 * 4096, sizeof *memory);
    for (int k = 0; k < 64; k++) memory[k] = k * 29 % 64;
    void *args[] = {memory, memory + 4096, memory + 8192};
    if (kiln_sim_measure(&b.cx, l, args, 2, with, &t) != KILN_OK)
      fail_msg("%s", kiln_diag_message(b.diag, 0));
    expect_same_trace(&b.cx, l, args, 2, with, &t);
    test_free(memory);
    close(&b);
  }
}

static void an_index_that_is_computed_is_not_traced(void **state) {
  (void)state;
  bench b = {.diag = kiln_diag_create()};
  kiln_loops *l = NULL;
  kiln_sim_traffic t;
  assert_int_equal(kiln_ctx_init(&b.cx, b.diag), KILN_OK);
  assert_int_equal(kiln_loops_parse(&b.cx,
                                    "kernel k { param i64 I[4]:(1) param f32 X[4]:(1) for i:4 { "
                                    "I[i] = i X[I[i]] = 0f32 } }",
                                    &l),
                   KILN_OK);
  assert_int_equal(kiln_sim_trace(&b.cx, l, NULL, 0, NULL, &t), KILN_INTERNAL);
  assert_non_null(strstr(kiln_diag_message(b.diag, 0),
                         "buffer X: index 0 must not depend on what the kernel computes"));
  close(&b);
}

static void traffic_is_counted_exactly(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(traffic); i++) {
    bench b = {.diag = kiln_diag_create()};
    kiln_loops *l = NULL;
    kiln_sim_traffic t;
    assert_int_equal(kiln_ctx_init(&b.cx, b.diag), KILN_OK);
    assert_int_equal(kiln_loops_parse(&b.cx, traffic[i].loops, &l), KILN_OK);
    float *memory = test_calloc(3 * 8192, sizeof *memory);
    void *args[] = {memory, memory + 8192, memory + 16384};
    assert_int_equal(kiln_sim_measure(&b.cx, l, args, traffic[i].n_levels, traffic[i].levels, &t),
                     KILN_OK);
    expect_same_trace(&b.cx, l, args, traffic[i].n_levels, traffic[i].levels, &t);
    for (int k = 0; k < traffic[i].n_levels; k++) {
      const kiln_sim_flow want = traffic[i].flows[k], got = t.levels[k];
      if (got.read_bytes != want.read_bytes * LINE ||
          got.written_bytes != want.written_bytes * LINE)
        fail_msg("row %d level %d: must read %d and write %d lines, got %d and %d", (int)i, k,
                 (int)want.read_bytes, (int)want.written_bytes, (int)(got.read_bytes / LINE),
                 (int)(got.written_bytes / LINE));
    }
    test_free(memory);
    close(&b);
  }
}

static void statements_count_by_buffer_and_scope(void **state) {
  (void)state;
  bench b = {.diag = kiln_diag_create()};
  kiln_loops *l = NULL;
  kiln_sim_traffic t;
  float x[8] = {0}, y[8] = {0};
  void *args[] = {x, y};
  const kiln_sim_level levels[] = {L(4, 0, false)};
  assert_int_equal(kiln_ctx_init(&b.cx, b.diag), KILN_OK);
  const char *text = "kernel k { param f32 X[8]:(1) param f32 Y[8]:(1) local f16 T[8]:(1) "
                     "register f64 R[1]:(1) alloc T { alloc R { R[0] = 0f64 for i:8 { "
                     "T[i] = f16(X[i]) R[0] += f64(T[i]) } for j:8 { Y[j] = f32(R[0]) } } } }";
  assert_int_equal(kiln_loops_parse(&b.cx, text, &l), KILN_OK);
  assert_int_equal(kiln_sim_measure(&b.cx, l, args, 1, levels, &t), KILN_OK);
  assert_true(t.buffers[0].read_bytes == 32 && t.buffers[0].written_bytes == 0);
  assert_true(t.scopes[KILN_SCOPE_PARAM].read_bytes == 32);
  assert_true(t.scopes[KILN_SCOPE_PARAM].written_bytes == 32);
  assert_true(t.scopes[KILN_SCOPE_LOCAL].read_bytes == 16);
  assert_true(t.scopes[KILN_SCOPE_LOCAL].written_bytes == 16);
  assert_true(t.scopes[KILN_SCOPE_REGISTER].read_bytes == 16 * 8);
  assert_true(t.scopes[KILN_SCOPE_REGISTER].written_bytes == 9 * 8);
  assert_true(t.levels[0].read_bytes == LINE && t.levels[0].written_bytes == 2 * LINE);
  kiln_text out;
  kiln_text_init(&out, &b.cx.perm);
  kiln_sim_traffic_print(&b.cx, l, levels, &t, &out);
  assert_string_equal(out.data, "                               bytes read  bytes written\n"
                                "buffer    X                            32              0\n"
                                "buffer    Y                             0             32\n"
                                "buffer    T                            16             16\n"
                                "buffer    R                           128             72\n"
                                "scope     param                        32             32\n"
                                "scope     local                        16             16\n"
                                "scope     register                    128             72\n"
                                "level     L of memory                  64            128\n");
  close(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loops_compute),
      cmocka_unit_test(affine_subscripts_touch_what_they_name),
      cmocka_unit_test(rows_are_their_points),
      cmocka_unit_test(types_wrap_and_saturate),
      cmocka_unit_test(breaches_are_named),
      cmocka_unit_test(lanes_and_their_order_agree),
      cmocka_unit_test(lanes_compute),
      cmocka_unit_test(equal_values_are_no_race),
      cmocka_unit_test(indices_follow_their_loops_however_these_lie),
      cmocka_unit_test(a_loop_waits_for_the_one_before),
      cmocka_unit_test(traffic_is_counted_exactly),
      cmocka_unit_test(tracing_counts_what_measuring_counts),
      cmocka_unit_test(an_index_that_is_computed_is_not_traced),
      cmocka_unit_test(statements_count_by_buffer_and_scope),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

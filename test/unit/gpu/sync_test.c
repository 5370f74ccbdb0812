// Barriers: where they stand and where not, what the arena shares, and what is refused.
#include "target/gpu/gpu.h"

#include "unit/loops.h"

#include "unit/fixture.h"

// What the emitter makes of |text| for |machine|, or its message.
static const char *emitted(fixture *f, const char *machine, const char *text,
                           kiln_gpu_launch **out_launches) {
  kiln_machine m;
  kiln_text source;
  int n = 0;
  kiln_loops *l = loops_parse(&f->cx, text);
  assert_int_equal(kiln_loops_verify(&f->cx, l), KILN_OK);
  assert_int_equal(kiln_gpu_machine_named(&f->cx, machine, &m), KILN_OK);
  kiln_text_init(&source, &f->cx.perm);
  if (kiln_gpu_emit(&f->cx, &m, l, "k", &source, &n, out_launches) == KILN_OK) return source.data;
  return kiln_diag_message(f->diag, kiln_diag_count(f->diag) - 1);
}

// The statements of the function in order, in short: what it stores to (A, ...), B for a barrier, W
// for one of a warp, { } for a serial loop.
static const char *outline(fixture *f, const char *source) {
  kiln_text t;
  const char *at = strstr(source, "__global__");
  kiln_text_init(&t, &f->cx.perm);
  if (!at) return source;
  int depth = 0, loops[64] = {0};
  for (const char *line = strchr(at, '\n'); line; line = strchr(line + 1, '\n')) {
    const char *s = line + 1 + strspn(line + 1, " ");
    const size_t n = strcspn(s, "\n");
    if (strncmp(s, "__syncthreads", 13) == 0) kiln_text_add(&t, "B");
    else if (strncmp(s, "__syncwarp", 10) == 0) kiln_text_add(&t, "W");
    else if (n > 3 && s[1] == '[') kiln_text_add_bytes(&t, s, 1);
    if (s[0] == '}' && depth > 0 && loops[--depth]) kiln_text_add(&t, "}");
    if (n > 0 && s[n - 1] == '{') {
      loops[depth++] = strncmp(s, "for (", 5) == 0;
      if (loops[depth - 1]) kiln_text_add(&t, "{");
    }
  }
  return t.data ? t.data : "";
}

#define KERNEL(params, body)                                                                       \
  "kernel k { param f32 X[8, 64]:(64, 1) param f32 Y[8, 64]:(64, 1) " params                       \
  " for b:8 block.x { " body " } }"

static const struct {
  const char *loops, *outline;
} rows[] = {
    // each thread what it has written itself
    {KERNEL(
         "shared f32 S[64]:(1)",
         "alloc S { for t:64 thread.x { S[t] = X[b, t] } for u:64 thread.x { Y[b, u] = S[u] } }"),
     "SY"},
    // what another thread of the block has written
    {KERNEL("shared f32 S[64]:(1)", "alloc S { for t:64 thread.x { S[t] = X[b, t] } for u:64 "
                                    "thread.x { Y[b, u] = S[63 - u] } }"),
     "SBY"},
    // of the warp
    {KERNEL("shared f32 S[64]:(1)", "alloc S { for t:64 thread.x { S[t] = X[b, t] } for u:64 "
                                    "thread.x { Y[b, u] = S[u/32*32 + (u + 1)%32] } }"),
     "SWY"},
    // the warp has waited, the block has not
    {KERNEL(
         "shared f32 S[64]:(1)",
         "alloc S { for t:64 thread.x { S[t] = X[b, t] } for u:64 thread.x { Y[b, u] = S[u/32*32 + "
         "(u + 1)%32] } for v:64 thread.x { Y[b, v] += S[63 - v] } }"),
     "SWYBY"},
    // a read before a write
    {KERNEL(
         "shared f32 S[64]:(1)",
         "alloc S { for t:64 thread.x { S[t] = X[b, t] } for u:64 thread.x { Y[b, u] = S[63 - u] } "
         "for v:64 thread.x { S[v] = Y[b, v] } for w:64 thread.x { Y[b, w] += S[w] } }"),
     "SBYBSY"},
    // memory of the caller counts as well
    {KERNEL("",
            "for t:64 thread.x { Y[b, t] = X[b, t] } for u:64 thread.x { Y[b, u] += X[b, 63 - u] } "
            "Y[b, 0] = Y[b, 63]"),
     "YYBY"},
    // one thread, and all others behind it
    {KERNEL("shared f32 S[1]:(1)",
            "alloc S { S[0] = X[b, 0] for t:64 thread.x { Y[b, t] = S[0] } }"),
     "SBY"},
    // a loop: filled and read in each iteration, so twice
    {KERNEL("shared f32 S[64]:(1)",
            "alloc S { for k:8 { for t:64 thread.x { S[t] = X[k, t] } for u:64 "
            "thread.x { Y[b, u] += S[63 - u] } } }"),
     "{BSBY}"},
    // two slots, filled one iteration ahead: once
    {KERNEL("shared f32 S[2, 64]:(64, 1)",
            "alloc S { for t0:64 thread.x { S[0, t0] = X[0, t0] } for k:7 { for t:64 thread.x { "
            "S[(k + "
            "1) % 2, t] = X[k + 1, t] } for u:64 thread.x { Y[b, u] += S[k % 2, 63 - u] } } }"),
     "S{BSY}"},
    // filled before the loop, in which it is read behind something else: once, in front of it
    {KERNEL("shared f32 S[64]:(1)",
            "alloc S { for t:64 thread.x { S[t] = X[b, t] } for k:8 { for v:64 thread.x { Y[b, v] "
            "+= X[k, v] } for u:64 thread.x { Y[b, u] += S[63 - u] } } }"),
     "SB{YY}"},
    // buffers that take turns in one place
    {KERNEL(
         "shared f32 S[1024]:(1) shared f32 T[1024]:(1)",
         "alloc S { for t:64 thread.x { S[t] = X[b, t] } for u:64 thread.x { Y[b, u] = S[u] } } "
         "alloc T { for v:64 thread.x { T[v] = X[b, v] } for w:64 thread.x { Y[b, w] = T[w] } }"),
     "SYBTY"},
    // a row of threads and statements of its first one
    {KERNEL("shared f32 S[2]:(1)", "alloc S { for r:2 thread.y { S[r] = X[b, r] for t:32 thread.x "
                                   "{ Y[b, 32*r + t] = S[r] } } }"),
     "SWY"},
    // a block of one thread waits for nobody
    {"kernel k { param f32 X[8, 64]:(64, 1) param f32 Y[8]:(1) shared f32 S[1]:(1) for b:8 block.x "
     "{ alloc "
     "S { S[0] = 0f32 for k:64 { S[0] += X[b, k] } Y[b] = S[0] } } }",
     "S{S}Y"},
};

static void barriers_stand_where_threads_meet_and_nowhere_else(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    kiln_gpu_launch *launches = NULL;
    const char *got = outline(f, emitted(f, "cuda:sm_80", rows[i].loops, &launches));
    if (strcmp(got, rows[i].outline))
      fail_msg("%s\nmust be %s, got %s", rows[i].loops, rows[i].outline, got);
  }
}

// Two halves of a block, each of which reads what other threads have written: in OpenCL C one
// barrier in front of both conditions (PoCL's loops over threads do not end where each has its
// own), in CUDA's one in the half that is run.
static void barriers_of_conditions_stand_in_front_of_them(void **state) {
  static const char *const loops = KERNEL(
      "shared f32 S[64]:(1)", "alloc S { for t:64 thread.x { S[t] = X[b, t] } "
                              "if b < 4 { for u:64 thread.x { Y[b, u] = S[63 - u] } } "
                              "if b >= 4 { for v:64 thread.x { Y[b, v] = S[63 - v] + 1f32 } } }");
  fixture *f = *state;
  kiln_gpu_launch *launches = NULL;
  assert_string_equal(outline(f, emitted(f, "cuda:sm_80", loops, &launches)), "SBYBY");
  const char *source = strstr(emitted(f, "opencl", loops, &launches), "__kernel");
  const char *barrier = strstr(source, "barrier("), *condition = strstr(source, "if (");
  assert_true(barrier && condition && barrier < condition);
  assert_null(strstr(barrier + 1, "barrier("));
}

static void shared_memory_is_used_again(void **state) {
  static const struct {
    const char *loops;
    int64_t bytes;
  } arenas[] = {
      // so little that a barrier would cost more
      {KERNEL("shared f32 S[64]:(1) shared f32 T[64]:(1)",
              "alloc S { for t:64 thread.x { S[t] = X[b, t] } } alloc T { for v:64 thread.x { T[v] "
              "= X[b, v] } }"),
       512},
      {KERNEL(
           "shared f32 S[1024]:(1) shared f32 T[1024]:(1)",
           "alloc S { for t:64 thread.x { S[t] = X[b, t] } } alloc T { for v:64 thread.x { T[v] = "
           "X[b, v] } }"),
       4096},
      // alive at once
      {KERNEL("shared f32 S[1024]:(1) shared f32 T[1024]:(1)",
              "alloc S { alloc T { for t:64 thread.x { S[t] = X[b, t] T[t] = S[t] } } }"),
       8192},
      // allocated together, but dead before the other is used
      {KERNEL("shared f32 S[1024]:(1) shared f32 T[1024]:(1)",
              "alloc S { alloc T { for t:64 thread.x { S[t] = X[b, t] } for u:64 thread.x { T[u] = "
              "X[b, "
              "u] } } }"),
       4096},
      // used again in the next iteration
      {KERNEL(
           "shared f32 S[1024]:(1) shared f32 T[1024]:(1)",
           "alloc S { alloc T { for k:2 { for t:64 thread.x { S[t] = X[b, t] } for u:64 thread.x { "
           "T[u] = X[b, u] } } } }"),
       8192},
  };
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(arenas); i++) {
    kiln_gpu_launch *launches = NULL;
    (void)emitted(f, "cuda:sm_80", arenas[i].loops, &launches);
    assert_non_null(launches);
    assert_int_equal(launches[0].shared_bytes, arenas[i].bytes);
    assert_int_equal(launches[0].grid[0], 8);
    assert_int_equal(launches[0].block[0], 64);
  }
}

static void what_cannot_run_is_refused(void **state) {
  static const struct {
    const char *machine, *loops, *message;
  } refusals[] = {
      {"opencl", "kernel k { param f32 X[512]:(1) for t:512 thread.x { X[t] = 0f32 } }",
       "gpu: kernel k, nest 0: error: threads of a block must be 256 at most, and 64 along z, got "
       "512x1x1: bind shorter loops"},
      {"opencl",
       "kernel k { param f32 X[9000]:(1) shared f32 S[9000]:(1) for b:1 block.x { alloc S { for "
       "t:90 "
       "thread.x { for i:100 { S[t*100 + i] = 0f32 } } for u:90 thread.x { X[u] = S[u] } } } }",
       "gpu: kernel k, nest 0: error: shared memory of a block must be 32768 bytes at most, got "
       "36096: "
       "stage smaller tiles"},
      {"opencl", "kernel k { param f32 X[70000]:(1) for b:70000 block.y { X[b] = 0f32 } }",
       "gpu: kernel k, nest 0: error: blocks along y must be 65535 at most, got 70000"},
      {"opencl",
       "kernel k { param f32 X[8]:(1) local f32 T[8]:(1) for b:1 block.x { alloc T { for t:8 "
       "thread.x { "
       "T[t] = X[t] } for u:8 thread.x { X[u] = T[7 - u] } } } }",
       "gpu: kernel k, nest 0: error: buffer T, which is allocated outside of thread loops, must "
       "be distributed: "
       "each of the 8 threads must touch its own of 1 elements in a row, got one among [-7, "
       "7] of its "
       "own"},
      // a barrier that not all threads would come to
      {"opencl",
       "kernel k { param f32 X[4, 8]:(8, 1) shared f32 S[4, 8]:(8, 1) for b:1 block.x { alloc S { "
       "for r:4 "
       "thread.y { if r < 3 { for t:8 thread.x { S[r, t] = X[r, t] } for u:8 thread.x { X[r, u] = "
       "S[r, 7 - "
       "u] } } } } } }",
       "gpu: kernel k, nest 0: error: threads would have to wait for each other within a loop or a "
       "condition that not all of them go through alike, in front of loop u: bind loops further "
       "outside, "
       "or keep the condition within the thread loops"},
      {"opencl", "kernel k { param f32 X[8]:(1) for k:4 { for b:8 block.x { X[b] += X[7 - b] } } }",
       "gpu: kernel k, nest 0: error: blocks must not use what other blocks of the same nest "
       "write, got "
       "buffer X: cut the nest in two, or bind a loop further outside"},
  };
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(refusals); i++) {
    kiln_gpu_launch *launches = NULL;
    assert_string_equal(emitted(f, refusals[i].machine, refusals[i].loops, &launches),
                        refusals[i].message);
    assert_null(launches);
  }
}

// Slots that are filled two iterations ahead; |slot| is what iteration k reads.
#define AHEAD(slot)                                                                                \
  KERNEL(                                                                                          \
      "shared f32 S[3, 64]:(64, 1)",                                                               \
      "alloc S { for f:2 { for t0:16 thread.x { for v0:4 vectorized { S[f, 4*t0 + v0] = X[f, "     \
      "4*t0 + v0] } } } for k:8 { if k + 2 < 8 { for t:16 thread.x { for v:4 vectorized { "        \
      "S[(k + 2) % 3, 4*t + v] = X[k + 2, 4*t + v] } } } for u:16 thread.x { Y[b, u] += S[" slot   \
      ", 63 - u] } } }")

// Three slots for three iterations, all of them filled in front; |use| is an iteration.
#define IN_FRONT(use)                                                                              \
  KERNEL("shared f32 S[3, 4, 64]:(256, 64, 1)",                                                    \
         "alloc S { for f:3 { for r:4 thread.y { for t:16 thread.x { for v:4 vectorized { S[f, "   \
         "r, 4*t + v] = X[f + r, 4*t + v] } } } } for k:3 { " use " } }")
#define ADD "for w:4 thread.y { for u:16 thread.x { Y[b, 16*w + u] += S[k, 3 - w, 63 - u] } }"
#define ADD_FLAT "for u:64 thread.x { Y[b, u] += S[k, 3, 63 - u] }"

static int count_of(const char *text, const char *what) {
  int n = 0;
  for (; (text = strstr(text, what)) != NULL; text++) n++;
  return n;
}

static void copies_go_on_while_threads_do(void **state) {
  static const struct {
    const char *machine, *loops;
    int copies, groups;
    const char *wait;
    int waits;
  } cases[] = {
      {"cuda:sm_80", AHEAD("k % 3"), 2, 2, "cp.async.wait_group 1;", 1},
      {"cuda:sm_80", IN_FRONT(ADD), 1, 2, "cp.async.wait_group 0;",
       1}, // once, in front of the loop
      {"cuda:sm_80", IN_FRONT(ADD_FLAT), 1, 2, "cp.async.wait_group 2;", 1},
      {"cuda:sm_80", AHEAD("(k + 1) % 3"), 0, 0, "cp.async.wait",
       0}, // it is filled for the next iteration
      {"cuda:sm_75", AHEAD("k % 3"), 0, 0, "cp.async.wait", 0}, // there are none
      {"opencl", AHEAD("k % 3"), 0, 0, "cp.async.wait", 0},
  };
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(cases); i++) {
    kiln_gpu_launch *launches = NULL;
    const char *source = emitted(f, cases[i].machine, cases[i].loops, &launches);
    assert_non_null(launches);
    assert_int_equal(count_of(source, "kiln_copy_async(&S["), cases[i].copies);
    assert_int_equal(count_of(source, "cp.async.commit_group;"), cases[i].groups);
    assert_int_equal(count_of(source, cases[i].wait), cases[i].waits);
    const char *waited = strstr(source, cases[i].wait);
    if (waited) { // threads see what the others waited for behind a barrier
      waited = strchr(waited, '\n') + 1;
      assert_memory_equal(waited + strspn(waited, " "), "__syncthreads();", 16);
    }
  }
}

static void halves_are_made_by_fast_instructions_and_in_words(void **state) {
  static const struct {
    const char *value;
    int reciprocals, words;
  } cases[] = {
      {"f16(1f32 / (1f32 + exp(-f32(X[b, 8*t + v]))))", 1, 2},
      {"f16(1f32 / (0.5f32 + exp(-f32(X[b, 8*t + v]))))", 0, 2},      // it may divide by little
      {"f16(1f32 / (1f32 + exp(-f32(X[b, 8*t + v]))) - 1f32)", 0, 2}, // what it gives cancels
      {"b < 3 ? f16(f32(X[b, 8*t + v]) + 1f32) : 0f16", 0, 2},
      {"8*t + v < 20 ? f16(f32(X[b, 8*t + v]) + 1f32) : 0f16", 0, 1}, // lanes choose otherwise
      {"f16(f32(X[I[b], 8*t + v]) + 1f32)", 0, 2},
      {"f16(f32(X[b, I[b] + v]) + 1f32)", 0, 1}, // words may begin anywhere
      {"f16(f32(X[I[t + v], v]) + 1f32)", 0, 1}, // lanes read different rows
  };
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(cases); i++) {
    kiln_gpu_launch *launches = NULL;
    const char *loops = kiln_arena_printf(
        &f->cx.perm,
        "kernel k { param f16 X[8, 64]:(64, 1) param i64 I[16]:(1) param f16 Y[8, "
        "64]:(64, 1) for b:8 block.x { for t:8 "
        "thread.x { for v:8 vectorized { Y[b, 8*t + v] = %s } } } }",
        cases[i].value);
    const char *source = emitted(f, "cuda:sm_80", loops, &launches);
    assert_non_null(launches);
    assert_int_equal(count_of(source, "(kiln_reciprocal("), cases[i].reciprocals);
    assert_int_equal(count_of(source, "*(uint4 *)"), cases[i].words);
  }
}

static void machines_have_names(void **state) {
  fixture *f = *state;
  kiln_machine m;
  assert_int_equal(kiln_gpu_machine_named(&f->cx, "cuda:sm_90a", &m), KILN_OK);
  assert_ptr_equal(m.target, &kiln_target_cuda);
  assert_int_equal(m.gpu.capability, 90);
  assert_int_equal(m.gpu.shared_bytes, 227 * 1024);
  assert_true(m.device && kiln_device_level(m.device, "shared") > 0);
  assert_int_equal(kiln_gpu_machine_named(&f->cx, "cuda:sm_90b", &m), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(f->diag, 0), "cuda:sm_80, "));
}

// A source that is wrong gives the compiler's log; without the compiler there is a message.
static void nvrtc_says_what_is_wrong(void **state) {
  fixture *f = *state;
  kiln_machine m;
  kiln_object out[3];
  const char *const sources[] = {"__global__ void a() {}", "__global__ void b() { nothing; }",
                                 "__global__ void c() {}"};
  const char *const names[] = {"a", "b", "c"};
  assert_int_equal(kiln_gpu_machine_named(&f->cx, "cuda:sm_90a", &m), KILN_OK);
  const kiln_status s = kiln_target_cuda.compiler->compile(&f->cx, &m, 3, sources, names, 3, out);
  for (int i = 0; i < 3; i++) assert_null(out[i].data);
  const char *message = kiln_diag_message(f->diag, 0);
  if (s == KILN_DEVICE_ERROR) {
    assert_non_null(strstr(message, "NVRTC must be found"));
    return;
  }
  assert_int_equal(s, KILN_INTERNAL);
  assert_non_null(strstr(message, "b: error: NVRTC must take it for sm_90a"));
  assert_non_null(strstr(message, "nothing"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(barriers_stand_where_threads_meet_and_nowhere_else),
      FIXTURE_TEST(barriers_of_conditions_stand_in_front_of_them),
      FIXTURE_TEST(shared_memory_is_used_again),
      FIXTURE_TEST(what_cannot_run_is_refused),
      FIXTURE_TEST(copies_go_on_while_threads_do),
      FIXTURE_TEST(halves_are_made_by_fast_instructions_and_in_words),
      FIXTURE_TEST(machines_have_names),
      FIXTURE_TEST(nvrtc_says_what_is_wrong),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// distribute: nests on the threads that hold the elements of a fragment, or along a buffer in
// memory; random layouts in the simulator, which checks that each thread touches its own part.
#include "unit/schedule/table.h"

#include "target/sim/sim.h"

// A warp's tile of 16 x 8 sums, as the instruction mma.m16n8 leaves them, and |body|.
#define SUMS(body)                                                                                 \
  "kernel k { param f32 Y[16, 8]:(8, 1) local f32 F[8, 4, 2, 2]:(16, 4, 2, 1) for b:1 block.x { "  \
  "alloc F { for m:16 { for n:8 { " body " } } } } }"
#define MINE "F[m%8, n/2, m/8, n%2]"
// The same of four warps, 2 along each axis, and 40 of 64 rows.
#define WARPS(body)                                                                                \
  "kernel k { param f32 Y[40, 48]:(48, 1) local f32 F[2, 2, 8, 4, 2, 3, 2, 2]:(1536, 768, 96, "    \
  "24, 12, 4, 2, 1) for b:1 block.x { alloc F { " body " } } }"
#define THEIRS "F[m/32, n/24, m%8, n%8/2, m%32/16, n%24/8, m%16/8, n%2]"
#define MEMORY(body)                                                                               \
  "kernel k { param f32 X[6, 32]:(32, 1) param f32 Y[6, 32]:(32, 1) for b:1 block.x { " body " } " \
  "}"

static const table_row rows[] = {
    {SUMS("Y[m, n] = " MINE), "distribute m like F 32",
     "kernel k { param f32 Y[16, 8]:(8, 1) local f32 F[8, 4, 2, 2]:(16, 4, 2, 1) for b:1 block.x { "
     "alloc F { for m.lane:32 thread.x { for m.r:2 unrolled { for n.r:2 vectorized { Y[m.r*8 + "
     "m.lane/4, m.lane%4*2 + n.r] = F[m.lane/4, m.lane%4, m.r, n.r] } } } } } }",
     NULL},
    {WARPS("for m:64 { for k:3 { for n:48 { " THEIRS " += 1f32 } } }"), "distribute m like F 32 4",
     WARPS("for m.warp:4 thread.y { for m.lane:32 thread.x { for m.r:4 unrolled { for n.r:3 "
           "unrolled { for n.r1:2 unrolled { for k:3 { F[m.warp/2, m.warp%2, m.lane/4, m.lane%4, "
           "m.r/2, n.r, m.r%2, n.r1] += 1f32 } } } } } }"),
     NULL},
    {WARPS("for k:3 { for m:64 { for n:48 { " THEIRS " += 1f32 } } }"), "distribute k like F 32 4",
     WARPS("for k.warp:4 thread.y { for k.lane:32 thread.x { for k:3 { for m.r:4 unrolled { for "
           "n.r:3 unrolled { for n.r1:2 unrolled { F[k.warp/2, k.warp%2, k.lane/4, k.lane%4, "
           "m.r/2, n.r, m.r%2, n.r1] += 1f32 } } } } } }"),
     NULL},
    {WARPS("for m:40 { for n:48 { Y[m, n] = " THEIRS " } }"), "distribute m like F 32 4",
     WARPS("for m.warp:4 thread.y { for m.lane:32 thread.x { for m.r:4 unrolled { if m.warp/2*32 + "
           "m.r*8 + m.lane/4 < 40 { for n.r:3 unrolled { for n.r1:2 vectorized { Y[m.warp/2*32 + "
           "m.r*8 + m.lane/4, m.warp%2*24 + n.r*8 + m.lane%4*2 + n.r1] = F[m.warp/2, m.warp%2, "
           "m.lane/4, m.lane%4, m.r/2, n.r, m.r%2, n.r1] } } } } } }"),
     NULL},
    {MEMORY("for j:32 { for i:6 { Y[i, j] = X[i, j] } }"), "distribute j like X 32",
     MEMORY("for j.thread:32 thread.x { for j.turn:2 { if j.turn*32 + j.thread < 48 { for j.v:4 "
            "vectorized { Y[j.turn*4 + j.thread/8, j.thread%8*4 + j.v] = X[j.turn*4 + j.thread/8, "
            "j.thread%8*4 + j.v] } } } }"),
     NULL},
    {MEMORY("for i:6 { for j:30 { Y[i, j] += X[i, j + 1] } }"), "distribute i like Y 32 4",
     MEMORY("for i.warp:4 thread.y { for i.lane:32 thread.x { for i.turn:2 { if i.turn*128 + "
            "i.warp*32 + i.lane < 180 { Y[i.turn*4 + i.warp + (i.turn*8 + i.warp*2 + i.lane)/30, "
            "(i.turn*8 + i.warp*2 + i.lane)%30] += X[i.turn*4 + i.warp + (i.turn*8 + i.warp*2 + "
            "i.lane)/30, (i.turn*8 + i.warp*2 + i.lane)%30 + 1] } } } }"),
     NULL},
    {SUMS("Y[m, n] = 1f32"), "distribute m like F 32", NULL,
     "schedule: distribute m: error: the nest must read or write buffer F, element by element"},
    {SUMS("Y[m, n] = " MINE), "distribute m like G 32", NULL,
     "schedule: distribute m: error: buffer must be one of the kernel's, got \"G\""},
    {SUMS("Y[m, n] = " MINE), "distribute q like F 32", NULL,
     "schedule: distribute q: error: loop must be one of the kernel's, got \"q\""},
    {SUMS("Y[m, n] = " MINE), "distribute m like F 0", NULL,
     "schedule: distribute m: error: threads must be 1 to 1024 along each axis, got 0 x 1"},
    {SUMS("Y[m, n] = " MINE), "distribute m like F 32 3", NULL,
     "schedule: distribute m: error: threads must divide the 128 elements of buffer F, got 96"},
    {SUMS("Y[m, n] = " MINE), "distribute n like F 32", NULL,
     "schedule: distribute n: error: the nest must run over the parts of all 32 x 1 threads of "
     "buffer F"},
    {SUMS("Y[m, n] = F[7 - m%8, n/2, m/8, n%2]"), "distribute m like F 32", NULL,
     "schedule: distribute m: error: loop m must index buffer F by its digits"},
    {SUMS("Y[m, n] = F[m%8, n/2, m/8, n%2] Y[m, n] += 1f32"), "distribute m near F 32", NULL,
     "schedule: line 1: error: distribute: must be like, got \"near\""},
    {"kernel k { param f32 Y[4]:(1) local f32 F[4]:(1) for b:4 thread.x { alloc F { for i:4 { F[i] "
     "= 1f32 } for j:4 { Y[j] = F[j] } } } }",
     "distribute i like F 4", NULL,
     "schedule: distribute i: error: buffer F must be shared by threads, got one of a thread"},
    {SUMS("Y[m, 0] += " MINE), "distribute m like F 32", NULL,
     "schedule: distribute m: bind m.lane: error: loop m.lane carries a dependence: Y(m.lane=0, "
     "m.r=0, n.r=0) and Y(m.lane=1, m.r=0, n.r=0) combine into Y[0, 0]"},
};

static void rows_hold(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) table_run(&rows[i]);
}

// --- random layouts ---

typedef struct random_layout {
  uint64_t seed;
  int64_t extents[2], threads[2]; // of the tile; lanes and warps
  int n;
  struct {
    int axis, holder; // 0: warps, 1: lanes, 2: registers
    int64_t stride, extent;
  } digits[8];
} random_layout;

static int64_t pick_of(random_layout *r, int64_t n) {
  r->seed = r->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (int64_t)((r->seed >> 33) % (uint64_t)n);
}

static void make_layout(random_layout *r) {
  static const int64_t factors[] = {2, 2, 3, 4};
  r->threads[0] = r->threads[1] = 1;
  for (int a = 0; a < 2; a++) {
    const int n = 2 + (int)pick_of(r, 2);
    r->extents[a] = 1;
    for (int i = 0; i < n; i++, r->n++) {
      r->digits[r->n].axis = a;
      r->digits[r->n].holder = (int)pick_of(r, 3);
      r->digits[r->n].stride = r->extents[a];
      r->extents[a] *= r->digits[r->n].extent = factors[pick_of(r, KILN_LEN(factors))];
    }
  }
  for (int i = r->n - 1; i > 0; i--) { // shuffled, then by holder
    const int k = (int)pick_of(r, i + 1);
    const __typeof__(r->digits[0]) d = r->digits[i];
    r->digits[i] = r->digits[k], r->digits[k] = d;
  }
  for (int i = 1; i < r->n; i++)
    for (int k = i; k > 0 && r->digits[k].holder < r->digits[k - 1].holder; k--) {
      const __typeof__(r->digits[0]) d = r->digits[k];
      r->digits[k] = r->digits[k - 1], r->digits[k - 1] = d;
    }
  for (int i = 0; i < r->n; i++)
    if (r->digits[i].holder < 2) r->threads[1 - r->digits[i].holder] *= r->digits[i].extent;
}

// The declaration of fragment |name|, or its element at (|row|, |column|).
static void put_fragment(kiln_text *t, const random_layout *r, const char *name) {
  int64_t stride = 1, strides[8];
  for (int i = r->n - 1; i >= 0; i--) strides[i] = stride, stride *= r->digits[i].extent;
  kiln_text_printf(t, "local f32 %s[", name);
  for (int i = 0; i < r->n; i++)
    kiln_text_printf(t, "%s%d", i ? ", " : "", (int)r->digits[i].extent);
  kiln_text_add(t, "]:(");
  for (int i = 0; i < r->n; i++) kiln_text_printf(t, "%s%d", i ? ", " : "", (int)strides[i]);
  kiln_text_add(t, ") ");
}
static void put_element(kiln_text *t, const random_layout *r, const char *name, const char *row,
                        const char *column) {
  kiln_text_printf(t, "%s[", name);
  for (int i = 0; i < r->n; i++)
    kiln_text_printf(t, "%s%s/%d%%%d", i ? ", " : "", r->digits[i].axis ? column : row,
                     (int)r->digits[i].stride, (int)r->digits[i].extent);
  kiln_text_add(t, "]");
}

// Y = 2 X + X by way of two fragments, whose nests run over rows and columns in either order.
static const char *random_kernel(kiln_ctx *cx, random_layout *r, int64_t stored) {
  const int m = (int)r->extents[0], n = (int)r->extents[1];
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  kiln_text_printf(&t, "kernel k { param f32 X[%d, %d]:(%d, 1) param f32 Y[%d, %d]:(%d, 1) ", m, n,
                   n, m, n, n);
  put_fragment(&t, r, "F");
  put_fragment(&t, r, "G");
  kiln_text_printf(&t, "for b:1 block.x { alloc F { alloc G { for i:%d { for j:%d { ", m, n);
  put_element(&t, r, "F", "i", "j");
  kiln_text_printf(&t, " = X[i, j] } } for q:%d { for p:%d { ", n, m);
  put_element(&t, r, "G", "p", "q");
  kiln_text_add(&t, " = ");
  put_element(&t, r, "F", "p", "q");
  kiln_text_printf(&t, " * 2f32 + X[p, q] } } for u:%d { for v:%d { Y[u, v] = ", (int)stored, n);
  put_element(&t, r, "G", "u", "v");
  kiln_text_add(&t, " } } } } } }");
  return t.data;
}

// The nests by the threads of the fragments; false: the last one, of some rows alone, is refused.
static bool distribute_all(kiln_schedule *s, random_layout *r, bool is_whole) {
  const char *const nests[] = {"i", "q", "u"}, *likes[] = {"F", pick_of(r, 2) ? "F" : "G", "G"};
  for (int k = 0; k < 3; k++) {
    const char *line = kiln_arena_printf(&s->cx->perm, "distribute %s like %s %d %d\n", nests[k],
                                         likes[k], (int)r->threads[0], (int)r->threads[1]);
    if (kiln_schedule_replay(s, line) == KILN_OK) continue;
    if (k == 2 && !is_whole) return false;
    fail_msg("%s\n%s", kiln_diag_message(s->cx->diag, 0), loops_text(s->cx, s->loops));
  }
  return true;
}

static void check_results(kiln_schedule *s, int64_t n, int64_t stored) {
  float x[4096], y[4096];
  void *args[] = {x, y};
  for (int64_t i = 0; i < n; i++) x[i] = (float)i, y[i] = -1;
  if (kiln_sim_run(s->cx, s->loops, args) != KILN_OK)
    fail_msg("%s\n%s", kiln_diag_message(s->cx->diag, 0), loops_text(s->cx, s->loops));
  for (int64_t i = 0; i < n; i++)
    if (y[i] != (i < stored ? 3 * x[i] : -1))
      fail_msg("element %d\n%s", (int)i, loops_text(s->cx, s->loops));
}

static bool check_random(uint64_t seed) {
  random_layout r = {.seed = seed};
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  make_layout(&r);
  const int64_t m = r.extents[0], n = r.extents[1],
                stored = pick_of(&r, 2) ? m : 1 + pick_of(&r, m);
  const char *kernel = random_kernel(&cx, &r, stored);
  kiln_schedule s = {
      .cx = &cx, .prog = kiln_program_make(&cx, "k"), .loops = loops_parse(&cx, kernel)};
  kiln_text_init(&s.script, &cx.perm);
  const bool is_run = distribute_all(&s, &r, stored == m);
  if (is_run) {
    kiln_schedule again = {.cx = &cx, .prog = s.prog, .loops = loops_parse(&cx, kernel)};
    kiln_text_init(&again.script, &cx.perm);
    assert_int_equal(kiln_loops_verify(&cx, s.loops), KILN_OK);
    check_results(&s, m * n, stored * n);
    assert_int_equal(kiln_schedule_replay(&again, kiln_schedule_script(&s)), KILN_OK);
    assert_string_equal(loops_text(&cx, s.loops), loops_text(&cx, again.loops));
  }
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
  return is_run;
}

static void random_layouts_are_run_by_their_threads(void **state) {
  enum { RUNS = 200 };
  int n_run = 0;
  (void)state;
  for (uint64_t seed = 0; seed < RUNS; seed++) n_run += check_random(seed);
  assert_true(n_run > RUNS / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_hold),
                                     cmocka_unit_test(random_layouts_are_run_by_their_threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

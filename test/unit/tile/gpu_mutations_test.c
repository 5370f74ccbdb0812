// Device loops that templates make, changed in one place: each change is found without a card, by a
// report of the simulator or by a wrong result.
#include "unit/tile/lowering.h"

#include "target/gpu/gpu.h"

#include "schedule/instr.h"
#include "target/gpu/device/device.h"
#include "target/sim/device.h"

typedef struct program {
  const char *name, *text;
  const kiln_template *family;
  int units;            // multiprocessors
  int64_t blocks;       // of a cluster; 1: there are none
  const char *form;     // that the candidate's device loops contain
  const char *not_form; // and do not; NULL
} program;

#define PRODUCT(m, n, k)                                                                           \
  "p { in f16 X(" #m ", " #k ") in f16 Z(" #k ", " #n ") temp f32 t0(" #m ", " #n                  \
  ") out f16 y(" #m ", " #n ") t0(i0:" #m ", i1:" #n " | r0:" #k                                   \
  ") +=! f32(X(i0, r0)) * f32(Z(r0, i1)) "                                                         \
  "y(i0:" #m ", i1:" #n ") = f16(t0(i0, i1)) }"

static const program products = {
    "a product", PRODUCT(64, 64, 448), &kiln_template_gpu_wgmma, 132, 1, "tma.", "role.consumers"};
static const program clusters = {
    "clusters", PRODUCT(256, 256, 320), &kiln_template_gpu_wgmma, 132, 2, "arrive.cluster", NULL};
static const program specialized = {"one consumer",
                                    PRODUCT(64, 64, 640),
                                    &kiln_template_gpu_wgmma,
                                    132,
                                    1,
                                    "role.consumers consumer(0, 1, 1)",
                                    NULL};
static const program pingpong = {"ping-pong",
                                 PRODUCT(200, 136, 320),
                                 &kiln_template_gpu_wgmma,
                                 2,
                                 1,
                                 "role.consumers consumer(0, 1, 2)",
                                 NULL};
static const program stream_k = {
    "stream-K", PRODUCT(64, 128, 192), &kiln_template_gpu_wgmma, 4, 1, "tile.steps", NULL};

static const program attention = {
    "attention",
    "p { in f16 Q(1, 128, 64) in f16 K(1, 320, 64) in f16 V(1, 320, 64) out f16 Y(1, 128, 64) "
    "temp f32 X(1, 128, 320) temp f32 Z(1, 128, 320) temp f32 M(1, 128) temp f16 E(1, 128, 320) "
    "temp f32 S(1, 128) temp f16 P(1, 128, 320) temp f32 O(1, 128, 64) "
    "X(i0:1, i1:128, i2:320 | r0:64) +=! f32(Q(i0, i1, r0)) * f32(K(i0, i2, r0)) "
    "Z(i0:1, i1:128, i2:320) = X(i0, i1, i2) * 0.125f32 "
    "M(i0:1, i1:128 | r0:320) max=! Z(i0, i1, r0) "
    "E(i0:1, i1:128, i2:320) = f16(exp(Z(i0, i1, i2) - M(i0, i1))) "
    "S(i0:1, i1:128 | r0:320) +=! f32(E(i0, i1, r0)) "
    "P(i0:1, i1:128, i2:320) = f16(f32(E(i0, i1, i2)) * (1f32 / S(i0, i1))) "
    "O(i0:1, i1:128, i2:64 | r0:320) +=! f32(P(i0, i1, r0)) * f32(V(i0, r0, i2)) "
    "Y(i0:1, i1:128, i2:64) = f16(O(i0, i1, i2)) }",
    &kiln_template_gpu_flash_attention,
    132,
    1,
    "wgmma.take",
    NULL};

static const program *const programs[] = {&products, &clusters, &specialized,
                                          &pingpong, &stream_k, &attention};

static const kiln_loop *blocks_in(const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->how == KILN_BLOCK_X) return l;
    const kiln_loop *inner = blocks_in(l->body);
    if (inner) return inner;
  }
  return NULL;
}

typedef struct made {
  test_kernel k;
  kiln_machine m;
  kiln_device few;
  kiln_loops *loops;
  kiln_gpu_device device; // of its first nest
  const char *text;
  void *results; // of these device loops
} made;

static const char *printed(made *p) {
  kiln_text t;
  kiln_text_init(&t, &p->k.cx.perm);
  kiln_loops_print(&p->k.cx, p->device.loops, &t);
  return t.data;
}

// Lowers the first candidate of the form that |of| wants.
static void make(const program *of, made *out) {
  kiln_tile_candidates found = {0};
  kiln_lowering w = lowering_open(&out->k, &out->m, of->text);
  assert_int_equal(kiln_gpu_machine_named(&out->k.cx, "cuda:sm_90a", &out->m), KILN_OK);
  out->few = *out->m.device;
  out->few.n_units = of->units;
  out->m.device = &out->few;
  assert_true(of->family->match(&out->k.cx, &out->m, out->k.prog));
  w.root = out->k.prog->stmts.data[out->k.prog->stmts.n - 1];
  assert_int_equal(of->family->propose(&w, &found), KILN_OK);
  for (int i = 0; i < found.n; i++) {
    assert_int_equal(kiln_schedule_begin(&out->k.cx, out->k.prog, &w.s), KILN_OK);
    w.s.instrs = kiln_gpu_instrs(&out->k.cx, &out->m, &w.s.n_instrs);
    lowering_expect_ok(&out->k, &w, of->family->lower(&w, &found.data[i].tiling));
    const kiln_loop *l = blocks_in(w.s.loops->body);
    if (of->blocks > 1 && kiln_cluster(&w.s, l->var, of->blocks) != KILN_OK) continue;
    out->loops = w.s.loops;
    if (kiln_gpu_lower(&out->k.cx, &out->m, out->loops, 0, &out->device) != KILN_OK) continue;
    out->text = printed(out);
    if (strstr(out->text, of->form) && !(of->not_form && strstr(out->text, of->not_form))) return;
  }
  fail_msg("%s: no candidate is of the form %s", of->name, of->form);
}

static kiln_status run_nest(made *p, const kiln_loops *l, const kiln_gpu_device *d,
                            void *const *args) {
  kiln_sim_launch launch = {.cluster = d->cluster,
                            .warp = p->m.gpu.warp,
                            .offsets = d->offsets,
                            .registers = p->m.gpu.registers,
                            .n_maps = d->n_maps,
                            .maps = d->maps};
  memcpy(launch.grid, d->grid, sizeof launch.grid);
  memcpy(launch.block, d->block, sizeof launch.block);
  return kiln_sim_run_device(&p->k.cx, l, &launch, args, NULL);
}

// The result, as bytes.
static void *result_of(const made *p, const kernel_args *a, size_t *out_bytes) {
  for (int i = 0; i < a->n; i++)
    if (a->of[i]->tensor >= 0 && p->k.prog->tensors.data[a->of[i]->tensor]->role == KILN_OUTPUT) {
      *out_bytes = kernel_bytes(a->of[i]);
      return a->data[i];
    }
  fail_msg("there must be a result");
  return NULL;
}

// Runs |text| in the place of the first nest; gives what is wrong, NULL: nothing.
static const char *run(made *p, const char *text) {
  kiln_ctx *cx = &p->k.cx;
  kiln_loops *l = NULL;
  size_t bytes = 0;
  kiln_instr_table table = {.cx = cx};
  table.instrs = kiln_gpu_instrs(cx, &p->m, &table.n);
  kernel_args a = kernel_args_make(&p->k, p->loops);
  int number = 1;
  kiln_status st = kiln_device_parse(cx, text, kiln_instr_find_in, &table, &l);
  if (st == KILN_OK) st = kiln_device_verify(cx, l);
  if (st == KILN_OK) st = run_nest(p, l, &p->device, a.data);
  for (const kiln_loop *nest = p->loops->body->next; st == KILN_OK && nest; nest = nest->next) {
    kiln_gpu_device d;
    assert_int_equal(kiln_gpu_lower(cx, &p->m, p->loops, number++, &d), KILN_OK);
    st = run_nest(p, d.loops, &d, a.data);
  }
  const void *result = result_of(p, &a, &bytes);
  const char *wrong =
      st == KILN_OK ? NULL : kiln_diag_message(p->k.diag, kiln_diag_count(p->k.diag) - 1);
  if (st == KILN_OK && !p->results) {
    p->results = malloc(bytes);
    memcpy(p->results, result, bytes);
  } else if (st == KILN_OK && memcmp(p->results, result, bytes) != 0) wrong = "another result";
  kernel_args_free(&a);
  return wrong;
}

static void close_made(made *p) {
  free(p->results);
  kernel_close(&p->k);
}

static void device_loops_read_back_and_compute_the_same(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(programs); i++) {
    made p = {0};
    make(programs[i], &p);
    if (getenv("KILN_TEST_PRINT")) printf("== %s\n%s\n", programs[i]->name, p.text);
    const char *wrong = run(&p, p.text);
    if (wrong) fail_msg("%s: %s\n%s", programs[i]->name, wrong, p.text);
    close_made(&p);
  }
}

// Changes of one place, and what is said of it.
static const struct {
  const char *what;
  const program *of;
  const char *from, *to, *report;
} mutations[] = {
    {"one group of instructions too few is waited for", &products, "wgmma.wait(0)", "wgmma.wait(1)",
     "before it waits for"},
    {"the wrong stage is waited for", &products, "mbarrier.wait(A.full[step.k]",
     "mbarrier.wait(A.full[(step.k + 6) % 7]", "race"},
    {"one operand is not waited for", &products, "mbarrier.wait(B.full[step.k], B.phases[0]) ", "",
     "race"},
    {"the parity is that of the next phase", &products, "mbarrier.phases(A.phases[0], 0)",
     "mbarrier.phases(A.phases[0], 127)", "race"},
    {"a copy lands at another's barrier", &products, "A.fill*64 + _1], A.full[A.fill]",
     "A.fill*64 + _1], B.full[A.fill]", "deadlock"},
    {"nobody waits for the barriers' initialisation", &products, "barrier.block() ", "",
     "behind the initialisation"},

    {"a tile's columns begin within a word", &products, "A.full[A.fill], 0, 1, A.fill*64, 0)",
     "A.full[A.fill], 0, 1, A.fill*64 + 4, 0)", "a multiple of 8 elements"},
    {"a tile's columns are the next ones", &products, "A.full[A.fill], 0, 1, A.fill*64, 0)",
     "A.full[A.fill], 0, 1, A.fill*64 + 8, 0)", "by its tensor map"},
    {"a tile's rows are the next ones", &products, "A.full[A.fill], 0, 1, A.fill*64, 0)",
     "A.full[A.fill], 0, 1, A.fill*64, 1)", "by its tensor map"},
    {"a copy is by the other operand's tensor map", &products, "A.full[A.fill], 0, 1,",
     "A.full[A.fill], 0, 0,", "by its tensor map"},
    {"a copy is by a tensor map that is not there", &products, "A.full[A.fill], 0, 1,",
     "A.full[A.fill], 0, 2,", "one of 2 tensor maps"},

    {"a copy goes to a block that is not there", &clusters, "A.full[A.fill], 771, 1,",
     "A.full[A.fill], 1799, 1,", "the cluster's 2 blocks"},
    {"the parity of empty barriers is the other", &clusters, "step.k/4%2", "(step.k/4 + 1) % 2",
     "deadlock"},
    {"the wrong stage is released", &clusters, "arrive.cluster(step.k.empty[step.k%4]",
     "arrive.cluster(step.k.empty[(step.k + 1)%4]", "deadlock"},
    {"a stage is released in too few steps", &clusters, "if step.k < 3 { mbarrier.arrive.cluster",
     "if step.k < 2 { mbarrier.arrive.cluster", "deadlock"},
    {"one block's warps suffice", &clusters, "step.k.empty[0], 4, 16, 771",
     "step.k.empty[0], 4, 4, 771", "deadlock"},
    {"instructions are in flight one step longer", &clusters, "wgmma.wait(1)", "wgmma.wait(2)",
     "race"},
    {"nobody waits for a stage to be empty", &clusters,
     "mbarrier.await(step.k.empty[step.k%4], step.k/4%2) ", "", "race"},
    {"the blocks do not wait for each other's barriers", &clusters, "cluster.sync() alloc",
     "barrier.block() alloc", "initialisation"},

    {"a stage is freed one step early", &specialized,
     "if step.k >= 1 { mbarrier.arrive(empty[(step.k - 1)%6])",
     "if step.k >= 0 { mbarrier.arrive(empty[step.k%6])", "race"},
    {"a stage is freed while one group more is in flight", &specialized, "wgmma.wait(1)",
     "wgmma.wait(2)", "race"},
    {"a step frees nothing", &specialized, "if step.k >= 1 {", "if step.k >= 2 {", "deadlock"},
    {"the producer begins in the other phase", &specialized, "empty.phases[0], 4294967295",
     "empty.phases[0], 0", "deadlock"},
    {"the consumer begins in the other phase", &specialized, "full.phases[0], consumer*48",
     "full.phases[0], 63", "race"},
    {"a consumer does not wait for itself", &specialized, "barrier.sync(consumer + 1, 128) ", "",
     "race"},
    {"a named barrier of more threads than come", &specialized, "barrier.sync(consumer + 1, 128)",
     "barrier.sync(consumer + 1, 256)", "deadlock"},
    {"the producer leaves a step out", &specialized, "if step.k.p < 9 {", "if step.k.p < 8 {",
     "race"},
    {"one of two operands' bytes is expected", &specialized,
     "empty.phases[0]) mbarrier.expect(full[0], 16384)",
     "empty.phases[0]) mbarrier.expect(full[0], 8192)", ""},

    {"a consumer takes more registers than the producer gives", &pingpong, "registers.set(40)",
     "registers.set(48)", "no more registers"},
    {"registers in no eights", &pingpong, "registers.set(40)", "registers.set(44)",
     "a multiple of 8"},
    {"the last tile of columns begins within a word", &pingpong,
     "full[0], 0, 0, B.n.l.b.p*64 + min(block.turn.p*128, 8), 0)",
     "full[0], 0, 0, B.n.l.b.p*64 + min(block.turn.p*128, 7), 0)", "a multiple of 8 elements"},
    {"nobody waits for a turn", &pingpong, "barrier.sync(consumer + 3, 256) ", "", ""},
    {"the second consumer has the first turn", &pingpong, "if consumer == 1 {",
     "if consumer == 0 {", "race"},
    {"both consumers begin in one phase", &pingpong, "consumer != 0 ? 14 : 0", "0", ""},
    {"a stage is freed one step early, by turns", &pingpong,
     "if step.k >= 1 { mbarrier.arrive(empty[(step.k - 1)%4])",
     "if step.k >= 0 { mbarrier.arrive(empty[step.k%4])", "race"},
    {"one group too few, by turns", &pingpong, "wgmma.wait(1)", "wgmma.wait(2)", "race"},
    {"no turn is given", &pingpong, "barrier.arrive(4 - consumer, 256) wgmma.wait(0)",
     "wgmma.wait(0)", "deadlock"},

    {"a tile ends a step early", &stream_k, "step.k == 1 ||", "step.k == 0 ||", ""},
    {"sums are stored under way", &stream_k, "wgmma.wait(0)", "wgmma.wait(1)",
     "before it waits for"},
    {"the wrong stage of a tile is waited for", &stream_k, "mbarrier.wait(B.full[step.k]",
     "mbarrier.wait(B.full[(step.k + 1) % 2]", ""},

    {"scores are read under way", &attention, "wgmma.wait(1)", "wgmma.wait(2)",
     "before it waits for"},
    {"sums are scaled under way", &attention, "wgmma.wait(0) mbarrier.arrive(V_1.empty[M_1.n.o%2])",
     "wgmma.wait(1) mbarrier.arrive(V_1.empty[M_1.n.o%2])", "before it waits for"},
    {"weights are taken under way", &attention, "wgmma.wait(1)",
     "wgmma.take(w[0], w.next[0]) wgmma.wait(1)", "which reads it"},
    {"values are freed while they are multiplied", &attention,
     "wgmma.wait(0) mbarrier.arrive(V_1.empty[M_1.n.o%2])",
     "mbarrier.arrive(V_1.empty[M_1.n.o%2]) wgmma.wait(0)", "race"},
    {"the producer does not wait until keys are free", &attention,
     "mbarrier.wait(B.empty[(M_1.n.o.p + 1)%2], B.empty.phases[0]) ", "", "have arrived"},
    {"one warp group's arrival frees a stage", &attention, "mbarrier.init(V_1.empty[0], 2, 8)",
     "mbarrier.init(V_1.empty[0], 2, 4)", ""},
    {"values of the next step are waited for", &attention, "mbarrier.wait(V_1.full[M_1.n.o%2]",
     "mbarrier.wait(V_1.full[(M_1.n.o + 1)%2]", ""},
    {"no warp group has the first turn", &attention, "if consumer == 1 {", "if consumer == 2 {",
     "deadlock"},
    {"no turn is given behind the products", &attention,
     "barrier.arrive(4 - consumer, 256) wgmma.wait(1)", "wgmma.wait(1)", "deadlock"},
    {"the producer begins in the other phase of values", &attention,
     "V_1.empty.phases[0], 4294967295", "V_1.empty.phases[0], 0", "deadlock"},
    {"the first weights are not taken", &attention, "wgmma.take(w[0], w.next[0]) ", "", ""},
};

// Words apart by one space.
static const char *in_a_line(made *p, const char *text) {
  char *out = kiln_arena_alloc(&p->k.cx.perm, strlen(text) + 1), *to = out;
  for (const char *at = text; *at; at++) {
    const bool is_space = *at == ' ' || *at == '\n';
    if (!is_space) *to++ = *at;
    else if (to > out && to[-1] != ' ') *to++ = ' ';
  }
  *to = 0;
  return out;
}

static void expect_found(const program *of, int *io_n) {
  made p = {0};
  make(of, &p);
  const char *text = in_a_line(&p, p.text), *wrong = run(&p, text);
  if (wrong) fail_msg("%s: %s\n%s", of->name, wrong, p.text);
  for (size_t i = 0; i < KILN_LEN(mutations); i++) {
    if (mutations[i].of != of) continue;
    const char *at = strstr(text, mutations[i].from);
    if (!at) fail_msg("%s: '%s' is not in the loops\n%s", of->name, mutations[i].from, text);
    wrong = run(&p, kiln_arena_printf(&p.k.cx.perm, "%.*s%s%s", (int)(at - text), text,
                                      mutations[i].to, at + strlen(mutations[i].from)));
    if (wrong && strstr(wrong, mutations[i].report)) continue;
    (*io_n)++;
    print_message("%s, %s: expected '%s', got %s\n", of->name, mutations[i].what,
                  mutations[i].report, wrong ? wrong : "nothing");
  }
  close_made(&p);
}

static void every_change_is_found(void **state) {
  (void)state;
  int missed = 0;
  for (size_t i = 0; i < KILN_LEN(programs); i++) expect_found(programs[i], &missed);
  assert_int_equal(missed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(device_loops_read_back_and_compute_the_same),
      cmocka_unit_test(every_change_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Fusion decisions: the statements that share a kernel, and the reasons for others.
#include "driver/pipeline.h"
#include "fuse/kernel.h"
#include "tile/query.h"

#include "unit/fixture.h"

static kiln_machine machine_of(fixture *f, bool is_known) {
  kiln_machine m = {.target = &kiln_target_cpu,
                    .vector_bytes = 64,
                    .n_vector_regs = 32,
                    .has_fma = true,
                    .n_cores = 2,
                    .l1_bytes = 32 << 10,
                    .l2_bytes = 1 << 20,
                    .l3_bytes = 32 << 20,
                    .clock_ghz = 3};
  if (is_known) m.device = kiln_device_make_nominal(&f->cx, &m);
  return m;
}

static kiln_kernels kernels_of(fixture *f, const char *text, bool is_known) {
  kiln_program *p = NULL;
  kiln_kernels k = {0};
  const kiln_machine m = machine_of(f, is_known);
  const kiln_tile_options options = {.search.n_threads = 2};
  if (kiln_program_parse(&f->cx, text, &p) != KILN_OK ||
      kiln_pipeline_tile(&f->cx, p, &m, &options, NULL, &k) != KILN_OK)
    fail_msg("%s: %s", text, kiln_diag_message(f->diag, 0));
  return k;
}

// The decision about the edge that carries the tensor: the first.
static const kiln_edge_decision *decision_of(const kiln_kernels *k, int tensor) {
  for (int i = 0; i < k->edges.n; i++)
    if (k->edges.data[i].tensor == tensor) return &k->edges.data[i];
  fail_msg("no decision about tensor %d", tensor);
  return NULL;
}

static void expect_reason(const kiln_kernels *k, int tensor, const char *part) {
  const kiln_edge_decision *d = decision_of(k, tensor);
  assert_int_equal(d->level, 0);
  assert_non_null(d->reason);
  if (!strstr(d->reason, part)) fail_msg("\"%s\" must say \"%s\"", d->reason, part);
}

// |layers| layers of a product and a maximum, over |rows| of |width|: each row times a matrix, or
// with |across| over all rows, so that a row of the result needs the whole layer before.
static const char *perceptron(fixture *f, int rows, int width, int layers, bool across) {
  const int depth = across ? rows : width, height = across ? rows : width;
  kiln_text t;
  kiln_text_init(&t, &f->cx.perm);
  kiln_text_printf(&t, "p { in f32 H0(%d, %d) ", rows, width);
  for (int l = 1; l <= layers; l++)
    kiln_text_printf(&t, "const f32 W%d(%d, %d) = ... temp f32 P%d(%d, %d) %s f32 H%d(%d, %d) ", l,
                     height, height, l, rows, width, l == layers ? "out" : "temp", l, rows, width);
  for (int l = 1; l <= layers; l++) {
    kiln_text_printf(&t, "P%d(i0:%d, i1:%d | r0:%d) +=! ", l, rows, width, depth);
    kiln_text_printf(&t, across ? "W%d(i0, r0) * H%d(r0, i1) " : "W%d(r0, i1) * H%d(i0, r0) ", l,
                     l - 1);
    kiln_text_printf(&t, "H%d(i0:%d, i1:%d) = max(P%d(i0, i1), 0f32) ", l, rows, width, l);
  }
  kiln_text_add(&t, "}");
  return t.data;
}

enum { PER_LAYER = 3 }; // tensors: W, P, H behind H0

static void narrow_layers_are_one_kernel(void **state) {
  fixture *f = *state;
  const kiln_kernels k = kernels_of(f, perceptron(f, 1 << 20, 64, 4, false), true);
  assert_int_equal(k.launches.n, 1);
  assert_int_equal(k.launches.data[0].n_stmts, 8);
  for (int i = 0; i < k.edges.n; i++) {
    assert_true(k.edges.data[i].level > 0);
    assert_null(k.edges.data[i].reason);
  }
  assert_int_equal(k.edges.n, 7);
}

static void layers_that_mix_rows_stay_apart(void **state) {
  fixture *f = *state;
  const kiln_kernels k = kernels_of(f, perceptron(f, 512, 512, 2, true), true);
  assert_int_equal(k.launches.n, 2);
  assert_int_equal(k.kernels.n, 1);                     // of one form
  expect_reason(&k, PER_LAYER, "no template proposes"); // a block would need all rows
  const kiln_edge_decision *inside = decision_of(&k, PER_LAYER - 1);
  assert_true(inside->level > 0 && !inside->reason); // a product meets its maximum in registers
}

static void a_machine_of_unknown_speed_keeps_the_groups(void **state) {
  fixture *f = *state;
  const kiln_kernels k = kernels_of(f, perceptron(f, 1 << 20, 64, 2, false), false);
  assert_int_equal(k.launches.n, 2);
  expect_reason(&k, PER_LAYER, "the cost of one of them is unknown");
}

static void repeated_layers_are_one_kernel_and_decided_alike(void **state) {
  fixture *f = *state;
  const kiln_kernels few = kernels_of(f, perceptron(f, 512, 512, 3, true), true),
                     many = kernels_of(f, perceptron(f, 512, 512, 24, true), true);
  assert_int_equal(few.kernels.n, many.kernels.n);
  assert_int_equal(many.launches.n, 24);
  const char *first = decision_of(&many, PER_LAYER)->reason;
  for (int l = 2; l < 24; l++)
    assert_string_equal(decision_of(&many, PER_LAYER * l)->reason, first);
}

static void decisions_are_the_same_every_time(void **state) {
  fixture *f = *state;
  const char *text = perceptron(f, 1024, 256, 5, false);
  const kiln_kernels a = kernels_of(f, text, true), b = kernels_of(f, text, true);
  assert_int_equal(a.edges.n, b.edges.n);
  for (int i = 0; i < a.edges.n; i++) {
    const kiln_edge_decision *x = &a.edges.data[i], *y = &b.edges.data[i];
    assert_int_equal(x->level, y->level);
    assert_true(!x->reason == !y->reason);
    if (x->reason) assert_string_equal(x->reason, y->reason);
  }
  for (int i = 0; i < a.kernels.n; i++)
    assert_string_equal(a.kernels.data[i]->script, b.kernels.data[i]->script);
}

// Tensor 2 is a product with another reader.
static const struct {
  const char *text;
  int launches;
  const char *reason;
} shared[] = {
    {"p { in f32 X(4096, 64) const f32 W(64, 64) = ... out f32 H(4096, 64) out f32 Y(4096, 64) "
     "H(i0:4096, i1:64 | r0:64) +=! X(i0, r0) * W(r0, i1) "
     "Y(i0:4096, i1:64 | r0:64) +=! H(i0, r0) * W(r0, i1) }",
     2, "cost"}, // storing it as well costs more than it saves
    {"p { in f32 X(4096, 64) const f32 W(64, 64) = ... temp f32 H(4096, 64) out f32 Y(4096, 64) "
     "out f32 Z(4096, 64) H(i0:4096, i1:64 | r0:64) +=! X(i0, r0) * W(r0, i1) "
     "Y(i0:4096, i1:64 | r0:64) +=! H(i0, r0) * W(r0, i1) "
     "Z(i0:4096, i1:64 | r0:64) +=! H(i0, r0) * W(i1, r0) }",
     3, "cost"},
    {"p { in f32 X(4096, 64) temp f32 H(4096, 64) temp f32 S(4096) out f32 Z(4096) "
     "out f32 Y(4096, 64) H(i0:4096, i1:64) = sqrt(X(i0, i1)) S(i0:4096 | r0:64) +=! H(i0, r0) "
     "Z(i0:4096 | r0:64) max=! H(63 - r0 + i0 / 64, r0) "
     "Y(i0:4096, i1:64) = H(i0, i1) - S(i0) }",
     3, "H is also read by Z, before both are done"},
};

static void what_others_read_is_computed_once(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(shared); i++) {
    const kiln_kernels k = kernels_of(f, shared[i].text, true);
    assert_int_equal(k.launches.n, shared[i].launches);
    bool found = false;
    for (int e = 0; e < k.edges.n; e++) {
      const kiln_edge_decision *d = &k.edges.data[e];
      found |= d->reason && !strncmp(d->reason, shared[i].reason, strlen(shared[i].reason));
    }
    if (!found) fail_msg("no decision says \"%s\"", shared[i].reason);
  }
}

// A sum that is normalized and also read later; statistics that are results.
static const struct {
  const char *text;
  int launches, n_stmts, n_stored; // of the first launch
  const char *lines[2];            // of its program
} stored[] = {
    {"p { in f32 X(256, 64) in f32 R(256, 64) const f32 W(64, 64) = ... const f32 V(64, 64) = ... "
     "temp f32 P(256, 64) temp f32 S(256, 64) temp f32 N(256) out f32 Y(256, 64) out f32 Z(256, "
     "64) "
     "P(i0:256, i1:64 | r0:64) +=! X(i0, r0) * W(r0, i1) S(i0:256, i1:64) = P(i0, i1) + R(i0, i1) "
     "N(i0:256 | r0:64) +=! S(i0, r0) Y(i0:256, i1:64) = S(i0, i1) - N(i0) "
     "Z(i0:256, i1:64 | r0:64) +=! S(i0, r0) * V(r0, 63 - i1) }",
     2,
     4,
     1,
     {"z0(i0:256, j0:64) =", "+=! z0(i0, r0)"}},
    {"p { in f32 X(256, 64) in f32 R(256, 64) out f32 S(256, 64) temp f32 N(256) "
     "out f32 Y(256, 64) S(i0:256, i1:64) = X(i0, i1) + R(i0, i1) N(i0:256 | r0:64) +=! S(i0, r0) "
     "Y(i0:256, i1:64) = S(i0, i1) - N(i0) }",
     1,
     3,
     1,
     {"z0(i0:256, j0:64) =", "+=! z0(i0, r0)"}},
    {"p { in f32 X(256, 64) temp f32 S(256) out f32 M(256) temp f32 Q(256) out f32 V(256) "
     "S(i0:256 | r0:64) +=! X(i0, r0) M(i0:256) = S(i0) / 64f32 "
     "Q(i0:256 | r0:64) +=! (X(i0, r0) - M(i0)) * (X(i0, r0) - M(i0)) "
     "V(i0:256) = Q(i0) / 64f32 }",
     1,
     4,
     1,
     {"z0(i0:256) = t0(i0)/64f32", "z0(i0)"}},
    {"p { in f32 X(256, 64) out f32 S(256) out f32 Y(256, 64) "
     "S(i0:256 | r0:64) +=! X(i0, r0) Y(i0:256, i1:64) = X(i0, i1) - S(i0) }",
     1,
     2,
     1,
     {"z0(i0:256) = t0(i0)", "- t0(i0)"}},
};

static void what_others_read_later_is_reused_and_stored(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(stored); i++) {
    const kiln_kernels k = kernels_of(f, stored[i].text, true);
    const kiln_launch *first = &k.launches.data[0];
    const kiln_kernel *kernel = k.kernels.data[first->kernel];
    kiln_text t;
    kiln_text_init(&t, &f->cx.perm);
    kiln_program_print(&f->cx, kernel->prog, &t);
    assert_int_equal(k.launches.n, stored[i].launches);
    assert_int_equal(first->n_stmts, stored[i].n_stmts);
    assert_int_equal(__builtin_popcountll(first->stored), stored[i].n_stored);
    assert_int_equal(kernel->prog->outputs.n, 1 + stored[i].n_stored);
    for (int l = 0; l < 2; l++)
      if (!strstr(t.data, stored[i].lines[l]))
        fail_msg("%s must have %s", t.data, stored[i].lines[l]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(narrow_layers_are_one_kernel),
      FIXTURE_TEST(layers_that_mix_rows_stay_apart),
      FIXTURE_TEST(a_machine_of_unknown_speed_keeps_the_groups),
      FIXTURE_TEST(repeated_layers_are_one_kernel_and_decided_alike),
      FIXTURE_TEST(decisions_are_the_same_every_time),
      FIXTURE_TEST(what_others_read_is_computed_once),
      FIXTURE_TEST(what_others_read_later_is_reused_and_stored),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

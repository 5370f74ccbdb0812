// The tile graph: results known from the literature or computed by hand, and its boxes against all
// indices of small tiles.
#include "tile/propagate.h"

#include "unit/fixture.h"

enum { L2 = 1, MIB = 1 << 20 };

static kiln_tile_graph *graph_of(fixture *f, const char *text) {
  kiln_program *p = NULL;
  if (kiln_program_parse(&f->cx, text, &p) != KILN_OK)
    fail_msg("%s: %s", text, kiln_diag_message(f->diag, 0));
  if (kiln_program_verify(&f->cx, p) != KILN_OK)
    fail_msg("%s: %s", text, kiln_diag_message(f->diag, 0));
  kiln_tile_graph *g = kiln_tile_graph_make(&f->cx, p);
  kiln_tile_connect_all(g, L2);
  return g;
}

// The first edge that carries the tensor.
static const kiln_tile_edge *edge_of(const kiln_tile_graph *g, const char *tensor) {
  for (int i = 0; i < g->n_edges; i++) {
    const kiln_symbol name = g->p->tensors.data[g->edges[i].tensor]->name;
    if (strcmp(kiln_symbol_text(g->cx, name), tensor) == 0) return &g->edges[i];
  }
  fail_msg("nobody reads %s", tensor);
  return NULL;
}

static int node_of(const kiln_tile_graph *g, const char *tensor) {
  for (int n = 0; n < g->n_nodes; n++) {
    const kiln_symbol name = g->p->tensors.data[g->nodes[n].stmt->out]->name;
    if (strcmp(kiln_symbol_text(g->cx, name), tensor) == 0) return n;
  }
  fail_msg("nobody writes %s", tensor);
  return -1;
}

// "[2,2,16]"
static const char *extents_text(fixture *f, const kiln_tile_span *box, int n) {
  kiln_text t;
  kiln_text_init(&t, &f->cx.perm);
  for (int k = 0; k < n; k++)
    kiln_text_printf(&t, "%s%lld", k ? "," : "[", (long long)box[k].extent);
  kiln_text_add(&t, "]");
  return t.data;
}

static void expect_box(fixture *f, const kiln_tile_graph *g, int which, const char *tensor,
                       const char *extents) {
  const kiln_tile_edge *e = edge_of(g, tensor);
  const char *got = extents_text(f, e->box[which], g->p->tensors.data[e->tensor]->rank);
  if (strcmp(got, extents) != 0) fail_msg("%s: must be %s, got %s", tensor, extents, got);
}

static void expect_origin(fixture *f, const kiln_tile_graph *g, const char *tensor, int axis,
                          const char *text) {
  const kiln_expr *e = edge_of(g, tensor)->box[KILN_TILE_WHOLE][axis].origin;
  const kiln_expr_names names = {.bracket = '('};
  kiln_text t;
  kiln_text_init(&t, &f->cx.perm);
  kiln_expr_print(&f->cx, kiln_simplify(&f->cx, e, NULL), &names, &t);
  assert_string_equal(t.data, text);
}

#define WHOLE KILN_TILE_WHOLE
#define HELD KILN_TILE_HELD

// --- known answers ---

static void a_product_and_its_softmax_move_what_welder_counts(void **state) {
  fixture *f = *state;
  kiln_tile_graph *g = graph_of(
      f, "p { in f32 A(98304, 64) in f32 B(64, 128) temp f32 C(98304, 128) temp f32 M(98304) "
         "temp f32 E(98304, 128) temp f32 S(98304) out f32 Y(98304, 128) "
         "C(i0:98304, i1:128 | r0:64) +=! A(i0, r0) * B(r0, i1) "
         "M(i0:98304 | r0:128) max=! C(i0, r0) "
         "E(i0:98304, i1:128) = exp(C(i0, i1) - M(i0)) "
         "S(i0:98304 | r0:128) +=! E(i0, r0) "
         "Y(i0:98304, i1:128) = E(i0, i1) / S(i0) }");
  static const struct {
    int64_t rows;
    double kib, tiles, mib;
  } rows[] = {{4, 35, 24576, 840}, {16, 44, 6144, 264}};
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    const int64_t tile[] = {rows[i].rows, 128};
    kiln_tile_propagate(g, tile, NULL, NULL);
    assert_true(kiln_tile_traffic(g, 128) == rows[i].kib * 1024);
    const kiln_tile_total t = kiln_tile_sum(g, tile, NULL, NULL, 128);
    assert_true(t.tiles == rows[i].tiles);
    assert_true(t.read_bytes + t.written_bytes == rows[i].mib * MIB);
    for (int n = 0; n < g->n_nodes; n++) assert_true(g->nodes[n].repeats == 1);
  }
  expect_box(f, g, WHOLE, "C", "[16,128]");
  expect_origin(f, g, "A", 0, "b0*16");
}

static void a_tile_of_columns_makes_the_softmax_compute_rows_again(void **state) {
  fixture *f = *state;
  kiln_tile_graph *g = graph_of(f, "p { in f32 C(64, 128) temp f32 E(64, 128) temp f32 S(64) "
                                   "out f32 Y(64, 128) E(i0:64, i1:128) = exp(C(i0, i1)) "
                                   "S(i0:64 | r0:128) +=! E(i0, r0) "
                                   "Y(i0:64, i1:128) = E(i0, i1) / S(i0) }");
  const int64_t tile[] = {4, 32};
  kiln_tile_sum(g, tile, NULL, NULL, 64);
  expect_box(f, g, WHOLE, "C", "[4,128]");
  assert_true(g->nodes[node_of(g, "E")].repeats == 4);
  assert_true(g->nodes[node_of(g, "S")].repeats == 4);
  assert_true(g->nodes[node_of(g, "Y")].repeats == 1);
}

static void a_pixel_of_the_pool_needs_a_window_of_windows(void **state) {
  fixture *f = *state;
  kiln_tile_graph *g =
      graph_of(f, "p { in f32 X(58, 58, 32) const f32 W(3, 3, 32, 16) = ... temp f32 C(56, 56, 16) "
                  "out f32 Y(28, 28, 16) "
                  "C(i0:56, i1:56, i2:16 | r0:3, r1:3, r2:32) +=! X(i0 + r0, i1 + r1, r2) * W(r0, "
                  "r1, r2, i2) "
                  "Y(i0:28, i1:28, i2:16 | r0:2, r1:2) max=! C(2 * i0 + r0, 2 * i1 + r1, i2) }");
  const int64_t tile[] = {1, 1, 16};
  kiln_tile_sum(g, tile, NULL, NULL, 64);
  expect_box(f, g, WHOLE, "C", "[2,2,16]");
  expect_box(f, g, WHOLE, "X", "[4,4,32]");
  expect_origin(f, g, "X", 0, "b0*2");
  assert_true(g->nodes[0].repeats == 1);
  const int64_t rows[] = {7, 28, 16};
  kiln_tile_sum(g, rows, NULL, NULL, 64);
  expect_box(f, g, WHOLE, "X", "[16,58,32]");
}

static void a_halo_shows_in_the_repeats(void **state) {
  fixture *f = *state;
  kiln_tile_graph *g = graph_of(f, "p { in f32 X(36) temp f32 A(34) out f32 Y(32) "
                                   "A(i0:34 | r0:3) +=! X(i0 + r0) "
                                   "Y(i0:32 | r0:3) +=! A(i0 + r0) }");
  const int64_t tile[] = {8};
  const kiln_tile_total t = kiln_tile_sum(g, tile, NULL, NULL, 4);
  expect_box(f, g, WHOLE, "A", "[10]");
  expect_box(f, g, WHOLE, "X", "[12]");
  assert_true(g->nodes[0].repeats == 40.0 / 34);
  assert_true(t.read_bytes == 4 * 12 * 4 && t.written_bytes == 32 * 4);
}

// --- unions, cuts, splits ---

static const struct {
  const char *text;
  int64_t tile[3];
  const char *tensor, *box, *origin; // the origin of axis 0
} boxes[] = {
    // several uses: the hull
    {"p { in f32 X(40) temp f32 A(40) out f32 Y(30) A(i0:40) = X(i0) + 1f32 Y(i0:30) = A(i0) + "
     "A(i0 + 7) }",
     {5},
     "A",
     "[12]",
     "b0*5"},
    // two consumers that need different boxes: the union, whichever comes last
    {"p { in f32 X(40) temp f32 A(40) temp f32 B(30) out f32 Y(30) A(i0:40) = X(i0) + 1f32 "
     "B(i0:30) = A(i0 + 3) Y(i0:30) = A(i0) + B(i0) }",
     {5},
     "X",
     "[8]",
     "b0*5"},
    {"p { in f32 X(40) temp f32 A(40) temp f32 B(30) out f32 Y(30) A(i0:40) = X(i0) + 1f32 "
     "B(i0:30) = A(i0) Y(i0:30) = A(i0 + 3) + B(i0) }",
     {5},
     "X",
     "[8]",
     "b0*5"},
    // a transposed load moves another way: the box covers both
    {"p { in f32 X(40, 40) out f32 Y(40, 40) Y(i0:40, i1:40) = X(i0, i1) + X(i1, i0) }",
     {5, 4},
     "X",
     "[40,40]",
     "0"},
    // heads: rows of 64 split from 768 columns
    {"p { in f32 X(16, 12, 64) out f32 Y(16, 768) Y(i0:16, i1:768) = X(i0, i1 / 64, i1 % 64) }",
     {4, 128},
     "X",
     "[4,2,64]",
     "b0*4"},
    {"p { in f32 X(16, 12, 64) out f32 Y(16, 768) Y(i0:16, i1:768) = X(i0, i1 / 64, i1 % 64) }",
     {4, 16},
     "X",
     "[4,1,16]",
     "b0*4"},
    {"p { in f32 X(16, 12, 64) out f32 Y(16, 768) Y(i0:16, i1:768) = X(i0, i1 / 64, i1 % 64) }",
     {4, 48},
     "X",
     "[4,2,64]",
     "b0*4"},
    // a nearest resize by 2, tiles aligned and not
    {"p { in f32 X(16) out f32 Y(32) Y(i0:32) = X(i0 / 2) }", {8}, "X", "[4]", "b0*4"},
    {"p { in f32 X(16) out f32 Y(32) Y(i0:32) = X(i0 / 2) }", {3}, "X", "[2]", "b0 + b0/2"},
    // backwards
    {"p { in f32 X(16) out f32 Y(16) Y(i0:16) = X(15 - i0) }", {4}, "X", "[4]", "12 - b0*4"},
    // data decides: as many rows as the tile reads indices, at most all, and all of what is
    // computed inside of the tile
    {"p { in f32 X(100, 8) in i64 I(16) out f32 Y(16, 8) Y(i0:16, i1:8) = X(I(i0), i1) }",
     {4, 8},
     "X",
     "[4,8]",
     NULL},
    {"p { in f32 X(100, 8) in i64 I(40) out f32 Y(8) Y(i0:8 | r0:40) +=! X(I(r0), i0) }",
     {4},
     "X",
     "[40,4]",
     NULL},
    {"p { in f32 X(3, 8) in i64 I(16) out f32 Y(16, 8) Y(i0:16, i1:8) = X(I(i0), i1) }",
     {4, 8},
     "X",
     "[3,8]",
     "0"},
    {"p { in f32 X(100, 8) in i64 I(16) temp f32 A(100, 8) out f32 Y(16, 8) "
     "A(i0:100, i1:8) = exp(X(i0, i1)) Y(i0:16, i1:8) = A(I(i0), i1) }",
     {4, 8},
     "A",
     "[100,8]",
     "0"},
    // a padded window is cut to the tensor
    {"p { in f32 X(8, 8) out f32 Y(8, 8) Y(i0:8, i1:8 | r0:3) +=! i0 + r0 >= 1 && i0 + r0 < 9 ? "
     "X(i0 + r0 - 1, i1) : 0f32 }",
     {8, 4},
     "X",
     "[8,4]",
     "0"},
    // edges repeated at the border: as in the middle
    {"p { in f32 X(64) out f32 Y(64) Y(i0:64 | r0:3) +=! X(max(min(i0 + r0 - 1, 63), 0)) }",
     {8},
     "X",
     "[10]",
     "max(min(b0*8 - 1, 63), 0)"},
    {"p { in f32 X(64) out f32 Y(64) Y(i0:64) = X(i0 < 2 ? 2 - i0 : i0 - 2) }",
     {8},
     "X",
     "[8]",
     NULL},
};

static void boxes_follow_the_index_maps(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(boxes); i++) {
    kiln_tile_graph *g = graph_of(f, boxes[i].text);
    kiln_tile_propagate(g, boxes[i].tile, NULL, NULL);
    expect_box(f, g, WHOLE, boxes[i].tensor, boxes[i].box);
    if (boxes[i].origin) expect_origin(f, g, boxes[i].tensor, 0, boxes[i].origin);
  }
}

// --- indices at random ---

static int64_t value_of(const kiln_ctx *cx, const kiln_expr *e, const char *letter,
                        const int64_t *at) {
  if (e->kind == KILN_EXPR_INT) return e->u.i;
  if (e->kind == KILN_EXPR_VAR) {
    const char *name = kiln_symbol_text(cx, e->u.sym);
    assert_true(name[0] == letter[0]);
    return at[atoi(name + 1)];
  }
  const int64_t a = value_of(cx, e->args[0], letter, at),
                b = e->n_args > 1 ? value_of(cx, e->args[1], letter, at) : 0;
  if (e->kind == KILN_EXPR_ADD) return a + b;
  if (e->kind == KILN_EXPR_SUB) return a - b;
  if (e->kind == KILN_EXPR_MUL) return a * b;
  if (e->kind == KILN_EXPR_NEG) return -a;
  if (e->kind == KILN_EXPR_MIN) return a < b ? a : b;
  if (e->kind == KILN_EXPR_MAX) return a > b ? a : b;
  const int64_t q = a / b - (a % b != 0 && (a < 0) != (b < 0));
  if (e->kind == KILN_EXPR_DIV) return q;
  assert_true(e->kind == KILN_EXPR_MOD);
  return a - q * b;
}

static void random_index(uint64_t *seed, kiln_text *t, int depth) {
  const int how = depth ? random_below(seed, 8) : random_below(seed, 2);
  if (how < 2) {
    if (random_below(seed, 4) == 0) kiln_text_printf(t, "%d", random_below(seed, 9));
    else kiln_text_printf(t, "i%d", random_below(seed, 2));
    return;
  }
  static const char *const close[] = {" + ", " - ", " * ", " / ", " % ", ", "};
  if (how == 7) kiln_text_add(t, random_below(seed, 2) ? "min" : "max");
  kiln_text_add(t, "(");
  random_index(seed, t, depth - 1);
  kiln_text_add(t, close[how - 2]);
  if (how >= 4 && how < 7) kiln_text_printf(t, "%d", 1 + random_below(seed, 8));
  else random_index(seed, t, depth - 1);
  kiln_text_add(t, ")");
}

static void a_box_holds_all_that_its_tile_reads(void **state) {
  fixture *f = *state;
  uint64_t seed = 11;
  int exact = 0;
  for (int round = 0; round < 3000; round++) {
    kiln_text t;
    const int64_t extents[2] = {1 + random_below(&seed, 24), 1 + random_below(&seed, 12)},
                  tile[2] = {1 + random_below(&seed, 12), 1 + random_below(&seed, 12)};
    kiln_text_init(&t, &f->cx.perm);
    kiln_text_printf(&t, "p { in f32 X(1000000) out f32 Y(%d, %d) Y(i0:%d, i1:%d) = X(",
                     (int)extents[0], (int)extents[1], (int)extents[0], (int)extents[1]);
    random_index(&seed, &t, 3);
    kiln_text_add(&t, ") }");
    const kiln_tile_graph *g = graph_of(f, t.data);
    kiln_tile_propagate((kiln_tile_graph *)g, tile, NULL, NULL);
    const kiln_tile_edge *e = edge_of(g, "X");
    const kiln_tile_span box = e->box[WHOLE][0];
    bool ends_met = false;
    for (int64_t b = 0; b * g->tile[0] < extents[0]; b++)
      for (int64_t c = 0; c * g->tile[1] < extents[1]; c++) {
        const int64_t at[2] = {b, c}, origin = value_of(&f->cx, box.origin, "b", at);
        int64_t lo = INT64_MAX, hi = INT64_MIN;
        for (int64_t i = b * g->tile[0]; i < extents[0] && i < (b + 1) * g->tile[0]; i++)
          for (int64_t j = c * g->tile[1]; j < extents[1] && j < (c + 1) * g->tile[1]; j++) {
            const int64_t point[2] = {i, j},
                          x = value_of(&f->cx, e->loads.data[0]->args[0], "i", point);
            if (x < lo) lo = x;
            if (x > hi) hi = x;
          }
        if (lo < origin || hi >= origin + box.extent)
          fail_msg("%s: tile %lld,%lld: %lld..%lld must lie in %lld + %lld", t.data, (long long)b,
                   (long long)c, (long long)lo, (long long)hi, (long long)origin,
                   (long long)box.extent);
        ends_met |= hi - lo + 1 == box.extent;
      }
    exact += ends_met;
  }
  assert_true(exact > 2000); // boxes are tight where nothing wraps
}

// --- reductions in pieces ---

static const char attention[] =
    "p { in f32 Q(%d, 64) in f32 K(%d, 64) in f32 V(%d, 64) temp f32 S(%d, %d) temp f32 M(%d) "
    "temp f32 P(%d, %d) temp f32 L(%d) temp f32 O(%d, 64) out f32 Y(%d, 64) "
    "S(i0:%d, i1:%d | r0:64) +=! Q(i0, r0) * K(i1, r0) M(i0:%d | r0:%d) max=! S(i0, r0) "
    "P(i0:%d, i1:%d) = exp(S(i0, i1) - M(i0)) L(i0:%d | r0:%d) +=! P(i0, r0) "
    "O(i0:%d, i1:64 | r0:%d) +=! P(i0, r0) * V(r0, i1) Y(i0:%d, i1:64) = O(i0, i1) / L(i0) }";

static kiln_tile_graph *attention_of(fixture *f, int n) {
  return graph_of(f, kiln_arena_printf(&f->cx.perm, attention, n, n, n, n, n, n, n, n, n, n, n, n,
                                       n, n, n, n, n, n, n, n, n, n));
}

static void stream_attention(kiln_tile_graph *g, int64_t rows, int64_t keys) {
  static const kiln_reduce_mode stream[] = {KILN_REDUCE_STREAM};
  const int64_t tile[] = {rows, 64}, step[] = {keys};
  const kiln_reduce_mode *modes[6] = {0};
  const int64_t *steps[6] = {0};
  static const char *const streamed[] = {"M", "L", "O"};
  for (size_t i = 0; i < KILN_LEN(streamed); i++) {
    modes[node_of(g, streamed[i])] = stream;
    steps[node_of(g, streamed[i])] = step;
  }
  kiln_tile_propagate(g, tile, modes, steps);
}

static void streamed_attention_holds_the_same_at_any_length(void **state) {
  fixture *f = *state;
  static const int lengths[] = {128, 197, 512, 8192};
  double first = 0;
  for (size_t i = 0; i < KILN_LEN(lengths); i++) {
    kiln_tile_graph *g = attention_of(f, lengths[i]);
    stream_attention(g, 32, 64);
    expect_box(f, g, HELD, "S", "[32,64]");
    expect_box(f, g, HELD, "K", "[64,64]");
    expect_box(f, g, HELD, "V", "[64,64]");
    const double held = kiln_tile_footprint(g, L2);
    // Q and Y or O: 32 x 64 each; K and S, then S and P, M, L: K 64 x 64 is the most beside S
    assert_true(held <= 4 * (2 * 32 * 64 + 64 * 64 + 2 * 32 * 64 + 2 * 32 + 32 * 64));
    if (i == 0) first = held;
    assert_true(held == first);
    // keys and values are read once a tile, whatever the chunk
    assert_true(kiln_tile_traffic(g, 64) == 4.0 * 64 * (2 * lengths[i] + 2 * 32));
    kiln_tile_propagate(g, (const int64_t[]){32, 64}, NULL, NULL);
    if (lengths[i] > 128) assert_true(kiln_tile_footprint(g, L2) > 2 * held);
  }
}

static void attention_over_197_rows_has_a_partial_tile(void **state) {
  fixture *f = *state;
  kiln_tile_graph *g = attention_of(f, 197);
  const kiln_tile_total t = kiln_tile_sum(g, (const int64_t[]){32, 64}, NULL, NULL, 4);
  assert_true(t.tiles == 7);
  for (int n = 0; n < g->n_nodes; n++) assert_true(g->nodes[n].repeats == 1); // 5 rows in the last
  assert_true(t.read_bytes == 4.0 * 64 * (197 + 7 * 2 * 197));
  assert_true(t.written_bytes == 4.0 * 64 * 197);
}

static void a_chunk_holds_pieces_of_operands_but_all_of_what_is_inside(void **state) {
  fixture *f = *state;
  kiln_tile_graph *g = graph_of(
      f, "p { in f32 A(64, 1021) in f32 B(1021, 96) temp f32 H(64, 1021) out f32 Y(64, 96) "
         "H(i0:64, i1:1021) = max(A(i0, i1), 0f32) "
         "Y(i0:64, i1:96 | r0:1021) +=! H(i0, r0) * B(r0, i1) }");
  static const kiln_reduce_mode chunk[] = {KILN_REDUCE_CHUNK}, stream[] = {KILN_REDUCE_STREAM};
  const int64_t step[] = {128}, tile[] = {16, 96}; // the depth is prime: the last step is partial
  const kiln_reduce_mode *modes[] = {NULL, chunk};
  const int64_t *steps[] = {NULL, step};
  kiln_tile_propagate(g, tile, modes, steps);
  expect_box(f, g, HELD, "B", "[128,96]");
  expect_box(f, g, WHOLE, "B", "[1021,96]");
  expect_box(f, g, HELD, "H", "[16,1021]");
  modes[1] = stream;
  kiln_tile_propagate(g, tile, modes, steps);
  expect_box(f, g, HELD, "H", "[16,128]");
  expect_box(f, g, HELD, "A", "[16,128]");
  assert_true(kiln_tile_sum(g, tile, modes, steps, 4).flops ==
              64.0 * 1021 * g->nodes[0].flops + 64.0 * 96 * 1021 * 2);
}

// --- memory ---

static void strides_and_runs_decide_what_moves(void **state) {
  fixture *f = *state;
  // a column of floats moves whole lines; neighbouring columns share them
  kiln_tile_graph *g = graph_of(f, "p { in f32 X(64, 64) out f32 Y(64, 64) Y(i0:64, i1:64) = X(i1, "
                                   "i0) }");
  kiln_tile_propagate(g, (const int64_t[]){1, 64}, NULL, NULL);
  assert_true(kiln_tile_traffic(g, 64) == 64 * 64 + 4 * 64);
  kiln_tile_propagate(g, (const int64_t[]){16, 64}, NULL, NULL);
  assert_true(kiln_tile_traffic(g, 64) == 64 * 64 + 16 * 64 * 4);
  kiln_tile_propagate(g, (const int64_t[]){20, 64}, NULL, NULL); // 80 bytes: two lines
  assert_true(kiln_tile_traffic(g, 64) == 64 * 128 + 20 * 64 * 4);
}

static void flat_parameters_count_by_what_their_addresses_touch(void **state) {
  fixture *f = *state;
  // windows of rows in a flat image, every second pixel: 3 rows of 2*7 + 3
  kiln_tile_graph *g = graph_of(
      f, "p { in f32 X(12544) out f32 Y(55, 55) Y(i0:55, i1:55 | r0:3, r1:3) +=! X(112 * (2 "
         "* i0 + r0) + 2 * i1 + r1) }");
  kiln_tile_propagate(g, (const int64_t[]){1, 8}, NULL, NULL);
  assert_true(kiln_tile_traffic(g, 1) == 4 * (3 * 17 + 8));
  kiln_tile_propagate(g, (const int64_t[]){4, 8}, NULL, NULL);
  assert_true(kiln_tile_traffic(g, 1) == 4 * (9 * 17 + 4 * 8));
  // the same with the window written out
  g = graph_of(f, "p { in f32 X(3136) out f32 Y(50, 50) Y(i0:50, i1:50) = X(56 * i0 + i1) + X(56 * "
                  "i0 + i1 + 2) + X(56 * i0 + i1 + 57) + X(56 * i0 + i1 + 112) }");
  kiln_tile_propagate(g, (const int64_t[]){4, 8}, NULL, NULL);
  assert_true(kiln_tile_traffic(g, 1) == 4 * (6 * 10 + 4 * 8));
  // far apart: twice
  g = graph_of(f, "p { in f32 X(20000) out f32 Y(100) Y(i0:100) = X(i0) + X(i0 + 10000) }");
  kiln_tile_propagate(g, (const int64_t[]){10}, NULL, NULL);
  assert_true(kiln_tile_traffic(g, 1) == 4 * (2 * 10 + 10));
}

static void a_tensor_is_reused_and_stored(void **state) {
  fixture *f = *state;
  kiln_tile_graph *g = graph_of(f, "p { in f32 X(64, 32) out f32 A(64, 32) out f32 Y(64, 32) "
                                   "A(i0:64, i1:32) = X(i0, i1) + 1f32 "
                                   "Y(i0:64, i1:32) = A(i0, i1) * 2f32 }");
  assert_true(edge_of(g, "A")->stored);
  const kiln_tile_total t = kiln_tile_sum(g, (const int64_t[]){8, 32}, NULL, NULL, 64);
  assert_true(t.read_bytes == 4 * 64 * 32 && t.written_bytes == 2 * 4 * 64 * 32);
}

static void a_producer_at_memory_takes_no_part(void **state) {
  fixture *f = *state;
  kiln_tile_graph *g = graph_of(f, "p { in f32 X(64, 32) temp f32 A(64, 32) out f32 Y(64, 32) "
                                   "A(i0:64, i1:32) = X(i0, i1) + 1f32 "
                                   "Y(i0:64, i1:32) = A(i0, i1) * 2f32 }");
  kiln_tile_connect_all(g, 0);
  kiln_tile_propagate(g, (const int64_t[]){8, 32}, NULL, NULL);
  assert_false(g->nodes[0].inside);
  assert_true(kiln_tile_traffic(g, 64) == 2 * 4 * 8 * 32); // A, and Y
}

static void windows_of_seven_pad_no_tile(void **state) {
  fixture *f = *state; // 7x7 windows of a 56x56 image, each with its own products
  kiln_tile_graph *g = graph_of(
      f, "p { in f32 X(56, 56, 32) out f32 Y(64, 49, 49) Y(i0:64, i1:49, i2:49 | r0:32) "
         "+=! X(i0 / 8 * 7 + i1 / 7, i0 % 8 * 7 + i1 % 7, r0) * X(i0 / 8 * 7 + i2 / 7, i0 % "
         "8 * 7 + i2 % 7, r0) }");
  kiln_tile_propagate(g, (const int64_t[]){1, 49, 49}, NULL, NULL);
  expect_box(f, g, WHOLE, "X", "[7,7,32]");
  kiln_tile_propagate(g, (const int64_t[]){8, 49, 49}, NULL, NULL);
  expect_box(f, g, WHOLE, "X", "[7,56,32]");
}

// A resample of 16 images to eight times their rows: flat, and by axes.
static void a_table_of_constants_says_which_rows_a_tile_reads(void **state) {
  fixture *f = *state;
  static const struct {
    const char *text;
    int64_t rows;
    const char *box;
  } cases[] = {
      {"p { const i64 T(128, 2) = ... in f32 X(1048576) out f32 Y(16, 128, 4096) "
       "Y(n:16, i:128, j:4096) = X(n*65536 + T(i, 0)*4096 + j) + X(n*65536 + T(i, 1)*4096 + j) }",
       8, "[8192]"},
      {"p { const i64 T(128, 2) = ... in f32 X(16, 16, 4096) out f32 Y(16, 128, 4096) "
       "Y(n:16, i:128, j:4096) = X(n, T(i, 0), j) + X(n, T(i, 1), j) }",
       8, "[1,2,4096]"},
      {"p { const i64 T(256) = ... in f32 X(16, 16, 4096) out f32 Y(16, 128, 4096) "
       "Y(n:16, i:128, j:4096) = X(n, T(i*2), j) + X(n, T(i*2 + 1), j) }",
       64, "[1,9,4096]"},
      {"p { const i64 T(128) = ... in f32 X(16, 16, 4096) out f32 Y(16, 128, 4096) "
       "Y(n:16, i:128, j:4096) = X(n, T(i), j) }",
       128, "[1,16,4096]"},
      {"p { in i64 T(128) in f32 X(16, 16, 4096) out f32 Y(16, 128, 4096) "
       "Y(n:16, i:128, j:4096) = X(n, T(i), j) }",
       8, "[1,8,4096]"}, // any rows, as many as there are indices
  };
  for (size_t i = 0; i < KILN_LEN(cases); i++) {
    kiln_tile_graph *g = graph_of(f, cases[i].text);
    const int64_t tile[] = {1, cases[i].rows, 4096};
    kiln_tile_propagate(g, tile, NULL, NULL);
    expect_box(f, g, WHOLE, "X", cases[i].box);
  }
}

// --- cost ---

static kiln_device device_of(void) {
  kiln_device d = {.n_units = 4, .n_levels = 3, .launch_ns = 100, .fork_ns = 1000};
  d.levels[0] = (kiln_mem_level){"memory", INT64_MAX, 1, 64, 10, 20, 0, 0, 100, 4, false};
  d.levels[1] = (kiln_mem_level){"L2", 1 << 16, 0.5, 64, 50, 200, 0, 0, 5, 1, false};
  d.levels[2] = (kiln_mem_level){"registers", 2048, 1, 64, 400, 1600, 0, 0, 0, 1, true};
  d.unit_flops_ns[KILN_PEAK_F32] = 100;
  d.all_flops_ns[KILN_PEAK_F32] = 300; // they share a clock
  return d;
}

static void time_is_the_slowest_of_what_overlaps_and_the_tail(void **state) {
  (void)state;
  const kiln_device d = device_of();
  static const struct {
    double flops, memory_bytes, l2_bytes;
    int64_t tiles;
    int n_threads;
    double efficiency, ns;
  } rows[] = {
      {1e6, 0, 0, 1, 1, 1, 100 + 10000},          // compute
      {1e6, 0, 0, 1, 1, 0.5, 100 + 20000},        // half of the peak
      {1e6, 2e5, 0, 1, 1, 1, 100 + 20000},        // memory
      {1e6, 2e5, 2e6, 1, 1, 1, 100 + 40000},      // L2
      {1e6, 2e5, 0, 1, 4, 1, 100 + 20000},        // one task: one thread
      {1e6, 2e5, 0, 8, 4, 1, 1100 + 10000},       // all bandwidth, which two fill
      {3e6, 0, 0, 8, 4, 1, 1100 + 10000},         // all cores
      {1e6, 2e5, 0, 5, 4, 1, 1100 + 1.6 * 10000}, // 5 tasks on 4 threads: 2 rounds
      {1e6, 2e5, 0, 400, 4, 1, 1100 + 10000},
  };
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    kiln_tile_cost c = {.flops = rows[i].flops, .tiles = rows[i].tiles};
    c.bytes[0] = rows[i].memory_bytes;
    c.bytes[1] = rows[i].l2_bytes;
    kiln_tile_cost_finish(&d, rows[i].n_threads, KILN_PEAK_F32, rows[i].efficiency, &c);
    if (c.ns < rows[i].ns * 0.9999 || c.ns > rows[i].ns * 1.0001)
      fail_msg("row %zu: must be %g, got %g", i, rows[i].ns, c.ns);
  }
}

// C[512,512] += A[512,512] * B[512,512]: what a cache of a thread keeps
static void blocks_that_fit_a_cache_cross_its_boundary_once(void **state) {
  fixture *f = *state;
  kiln_tile_graph *g = graph_of(f, "p { in f32 A(512, 512) in f32 B(512, 512) out f32 C(512, 512) "
                                   "C(i0:512, i1:512 | r0:512) +=! A(i0, r0) * B(r0, i1) }");
  const int64_t tile[] = {64, 64};
  const kiln_tile_plan plan = {.tile = tile};
  const double matrix = 4 * 512 * 512, panel = matrix / 8;
  // all three fit
  assert_true(kiln_tile_boundary(g, &plan, tile, 3 * matrix, 64) == 3 * matrix);
  // B and a row of tiles fit: A, B and C once
  assert_true(kiln_tile_boundary(g, &plan, tile, matrix + 2 * panel, 64) == 3 * matrix);
  // a tile's panels fit: A's stays along a row, B passes for every row
  assert_true(kiln_tile_boundary(g, &plan, tile, 3 * panel, 64) == 2 * matrix + 8 * matrix);
}

static void fewer_bytes_and_better_balance_cost_less(void **state) {
  fixture *f = *state;
  const kiln_device d = device_of();
  const kiln_machine m = {
      .target = &kiln_target_cpu, .vector_bytes = 64, .n_vector_regs = 32, .device = &d};
  kiln_tile_graph *g =
      graph_of(f, "p { in f32 A(1024, 64) in f32 B(64, 128) temp f32 C(1024, 128) temp f32 S(1024) "
                  "out f32 Y(1024, 128) C(i0:1024, i1:128 | r0:64) +=! A(i0, r0) * B(r0, i1) "
                  "S(i0:1024 | r0:128) +=! C(i0, r0) Y(i0:1024, i1:128) = C(i0, i1) / S(i0) }");
  const int64_t small[] = {4, 128}, good[] = {16, 128}, columns[] = {16, 32}, five[] = {205, 128};
  kiln_tile_cost few, many, again, tail, slow, none;
  const kiln_tile_plan plan = {.tile = good};
  kiln_tile_cost_of(g, &m, 4, &plan, &few);
  kiln_tile_cost_of(g, &m, 4, &(kiln_tile_plan){.tile = small}, &many);
  kiln_tile_cost_of(g, &m, 4, &(kiln_tile_plan){.tile = columns}, &again);
  kiln_tile_cost_of(g, &m, 4, &(kiln_tile_plan){.tile = five, .efficiency = 0.1}, &tail);
  kiln_tile_cost_of(g, &m, 4, &(kiln_tile_plan){.tile = good, .efficiency = 0.1}, &slow);
  assert_true(few.tiles == 64 && few.tail == 1 && tail.tiles == 5);
  assert_true(few.bytes[0] < many.bytes[0]);
  assert_true(few.ns < many.ns && few.ns < again.ns && slow.ns < tail.ns);
  assert_true(again.flops > 3 * few.flops);
  kiln_tile_cost_of(g, &(kiln_machine){.target = &kiln_target_cpu, .vector_bytes = 64}, 4, &plan,
                    &none);
  assert_true(none.ns == 0); // nothing is known of that machine
}

// A sum of dims times numbers of any size.
static const kiln_expr *any_index(kiln_ctx *cx, const kiln_stmt *s, uint64_t *seed) {
  static const int64_t numbers[] = {
      1, -1, 3, INT64_C(1) << 31, -(INT64_C(1) << 62), INT64_MAX, INT64_MIN, INT64_MIN / 3};
  const kiln_expr *e = kiln_int(cx, numbers[random_below(seed, (int)KILN_LEN(numbers))]);
  for (int k = random_below(seed, 4); k >= 0; k--) {
    static const kiln_expr_kind kinds[] = {KILN_EXPR_ADD, KILN_EXPR_SUB, KILN_EXPR_MIN,
                                           KILN_EXPR_MAX};
    const kiln_expr *by = kiln_int(cx, numbers[random_below(seed, (int)KILN_LEN(numbers))]),
                    *term = kiln_mul(cx, kiln_stmt_var(cx, s, random_below(seed, s->n_space)), by);
    if (random_below(seed, 3) == 0)
      term = kiln_binary(cx, random_below(seed, 2) ? KILN_EXPR_DIV : KILN_EXPR_MOD, term,
                         kiln_int(cx, numbers[random_below(seed, (int)KILN_LEN(numbers))]));
    e = kiln_binary(cx, kinds[random_below(seed, (int)KILN_LEN(kinds))], e, term);
  }
  return e;
}

static void spans_hold_numbers_of_any_size(void **state) {
  fixture *f = *state;
  kiln_ctx *cx = &f->cx;
  const kiln_tile_graph *g =
      graph_of(f, "p { in f32 X(40, 60) out f32 Y(40, 60) Y(i:40, j:60) = X(i, j) }");
  const kiln_stmt *s = g->p->stmts.data[0];
  uint64_t seed = 1;
  kiln_tile_propagate((kiln_tile_graph *)(uintptr_t)g, (const int64_t[]){8, 16}, NULL, NULL);
  for (int k = 0; k < 2000; k++) {
    bool known = true;
    const kiln_expr *e = any_index(cx, s, &seed);
    const kiln_tile_indexing x = {g->p, s, g->nodes[0].dims[KILN_TILE_WHOLE], e, 60, 1};
    const kiln_tile_span span = kiln_tile_span_of(cx, x, e, &known);
    if (known && (span.extent < 1 || span.step < 0))
      fail_msg("%s: must have elements, got %lld in steps of %lld", kiln_expr_text(cx, e),
               (long long)span.extent, (long long)span.step);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(spans_hold_numbers_of_any_size),
      FIXTURE_TEST(a_product_and_its_softmax_move_what_welder_counts),
      FIXTURE_TEST(a_tile_of_columns_makes_the_softmax_compute_rows_again),
      FIXTURE_TEST(a_pixel_of_the_pool_needs_a_window_of_windows),
      FIXTURE_TEST(a_halo_shows_in_the_repeats),
      FIXTURE_TEST(boxes_follow_the_index_maps),
      FIXTURE_TEST(a_box_holds_all_that_its_tile_reads),
      FIXTURE_TEST(streamed_attention_holds_the_same_at_any_length),
      FIXTURE_TEST(attention_over_197_rows_has_a_partial_tile),
      FIXTURE_TEST(a_chunk_holds_pieces_of_operands_but_all_of_what_is_inside),
      FIXTURE_TEST(strides_and_runs_decide_what_moves),
      FIXTURE_TEST(flat_parameters_count_by_what_their_addresses_touch),
      FIXTURE_TEST(a_tensor_is_reused_and_stored),
      FIXTURE_TEST(a_producer_at_memory_takes_no_part),
      FIXTURE_TEST(windows_of_seven_pad_no_tile),
      FIXTURE_TEST(a_table_of_constants_says_which_rows_a_tile_reads),
      FIXTURE_TEST(time_is_the_slowest_of_what_overlaps_and_the_tail),
      FIXTURE_TEST(blocks_that_fit_a_cache_cross_its_boundary_once),
      FIXTURE_TEST(fewer_bytes_and_better_balance_cost_less),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Layout: a hand-made program and its kernels become a plan that the runtime's reader accepts, with
// everything where it belongs.
#include "module/build.h"
#include "runtime/features.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const float weights[24] = {1, 2, 3, 4, 5, 6};
static const float large[2048] = {1};

typedef struct world {
  kiln_ctx *cx;
  kiln_model model;
  kiln_build b;
} world;

static kiln_tensor *tensor(world *w, const char *name, kiln_role role, int64_t rows, int64_t cols) {
  const kiln_expr *shape[] = {kiln_int(w->cx, rows), kiln_int(w->cx, cols)};
  return kiln_tensor_make(w->cx, w->b.choices.prog, name, KILN_F32, role, 2, shape);
}

static kiln_tensor *constant(world *w, const char *name, int64_t rows, int64_t cols,
                             const void *data) {
  kiln_const c = {.dtype = KILN_F32, .rank = 2, .shape = {rows, cols}, .data = data};
  c.bytes = (size_t)(4 * rows * cols);
  return kiln_tensor_make_const(w->cx, w->b.choices.prog, name, &c);
}

static kiln_buffer *param(world *w, kiln_loops *l, const char *name, kiln_scope scope, int64_t rows,
                          int64_t cols) {
  const int64_t extents[] = {rows, cols};
  kiln_buffer *b = kiln_buffer_make(w->cx, l, name, KILN_F32, scope, 2, extents, NULL);
  b->tensor = scope == KILN_SCOPE_PARAM ? 0 : -1;
  return b;
}

// |nests| nests that store zero; the last one is parallel.
static void add_nests(world *w, kiln_loops *l, const kiln_buffer *to, int nests) {
  for (int j = 0; j < nests; j++) {
    const kiln_symbol i = kiln_symbol_printf(w->cx, "i%d", j),
                      k = kiln_symbol_printf(w->cx, "k%d", j);
    const kiln_expr *at[] = {kiln_var(w->cx, i), kiln_var(w->cx, k)};
    kiln_loop *store =
        kiln_store_make(w->cx, to, at, KILN_COMBINE_NONE, kiln_number(w->cx, KILN_F32, 0));
    kiln_loop *inner = kiln_for_make(w->cx, k, kiln_int(w->cx, to->extents[1]), store);
    kiln_loop *outer = kiln_for_make(w->cx, i, kiln_int(w->cx, to->extents[0]), inner);
    outer->next = l->body;
    l->body = outer;
    if (j == 0) outer->how = KILN_PARALLEL;
  }
}

static kiln_kernel *kernel(world *w, const char *name, kiln_loops *loops, double flops) {
  kiln_kernel *k = KILN_NEW(&w->cx->perm, kiln_kernel);
  *k = (kiln_kernel){.id = w->b.choices.kernels.kernels.n,
                     .name = kiln_symbol_of(w->cx, name),
                     .prog = w->b.choices.prog,
                     .loops = loops,
                     .flops = flops,
                     .bytes = 100};
  KILN_VEC_PUSH(&w->cx->perm, &w->b.choices.kernels.kernels, k);
  return k;
}

static void launch(world *w, int k, const kiln_tensor *out, int n, const kiln_tensor *const *args) {
  kiln_launch l = {.kernel = k, .origin = out->name, .n_args = n, .n_stmts = 1};
  l.args = KILN_NEW_ARRAY(&w->cx->perm, kiln_argument, n);
  l.stmts = KILN_NEW_ARRAY(&w->cx->perm, int, 1);
  for (int i = 0; i < n; i++) l.args[i].tensor = args[i]->id;
  l.stmts[0] = out->def;
  KILN_VEC_PUSH(&w->cx->perm, &w->b.choices.kernels.launches, l);
}

static kiln_interface face(world *w, int n, const int *tensors) {
  kiln_interface f = {.n = n, .ports = KILN_NEW_ARRAY(&w->cx->perm, kiln_port, n)};
  for (int i = 0; i < n; i++) {
    const kiln_tensor *t = w->b.choices.prog->tensors.data[tensors[i]];
    int64_t *shape = KILN_NEW_ARRAY(&w->cx->perm, int64_t, t->rank);
    kiln_tensor_static_shape(t, shape);
    f.ports[i] = (kiln_port){kiln_symbol_text(w->cx, t->name), "f32", t->rank, shape};
  }
  return f;
}

// mul: t = x W (W packed), u = t W, y = u; outputs y, x, W, y again, t (stored column-major)
static void make_world(world *w, bool may_borrow) {
  kiln_ctx *cx = w->cx;
  w->b = (kiln_build){.request.model = &w->model, .request.may_borrow = may_borrow};
  w->b.request.machine.features = (char *)(uintptr_t) "+sse4.2,-avx9000,+made-up";
  w->b.request.machine.target = &kiln_target_cpu;
  w->b.choices.prog = kiln_program_make(cx, "p");
  kiln_tensor *x = tensor(w, "x", KILN_INPUT, 4, 6), *c = constant(w, "c", 4, 6, weights);
  kiln_tensor *t = tensor(w, "t", KILN_TEMP, 4, 6), *u = tensor(w, "u", KILN_TEMP, 4, 6);
  kiln_tensor *y = tensor(w, "y", KILN_OUTPUT, 4, 6), *b = constant(w, "b", 1, 2048, large);
  t->def = 0;
  u->def = 1;
  y->def = 2;
  t->order[0] = 1;
  t->order[1] = 0;

  kiln_loops *mul = kiln_loops_make(cx, "mul"), *add = kiln_loops_make(cx, "add");
  param(w, mul, "a0", KILN_SCOPE_PARAM, 4, 6);
  kiln_buffer *packed = param(w, mul, "a1", KILN_SCOPE_PARAM, 6, 16);
  param(w, mul, "ws", KILN_SCOPE_WORKSPACE, 10, 10);
  add_nests(w, mul, param(w, mul, "out", KILN_SCOPE_PARAM, 4, 6), 2);
  kiln_pack *pack = KILN_NEW(&cx->perm, kiln_pack);
  pack->source = c->id;
  pack->rank = 2;
  pack->map = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, 2);
  pack->map[0] = kiln_var(cx, kiln_symbol_of(cx, "o1"));
  pack->map[1] = kiln_var(cx, kiln_symbol_of(cx, "o0"));
  packed->pack = pack;
  param(w, add, "a0", KILN_SCOPE_PARAM, 4, 6);
  param(w, add, "a1", KILN_SCOPE_PARAM, 1, 2048);
  add_nests(w, add, param(w, add, "out", KILN_SCOPE_PARAM, 4, 6), 1);

  kernel(w, "mul", mul, 1e6);
  kernel(w, "add", add, 10);
  launch(w, 0, t, 3, (const kiln_tensor *[]){x, c, t});
  launch(w, 0, u, 3, (const kiln_tensor *[]){t, c, u});
  launch(w, 1, y, 3, (const kiln_tensor *[]){u, b, y});
  KILN_VEC_PUSH(&cx->perm, &w->b.choices.prog->inputs, x->id);
  const int outputs[] = {y->id, x->id, c->id, y->id, t->id};
  for (int i = 0; i < 5; i++) KILN_VEC_PUSH(&cx->perm, &w->b.choices.prog->outputs, outputs[i]);
  w->model.inputs = face(w, 1, w->b.choices.prog->inputs.data);
  w->model.outputs = face(w, 5, w->b.choices.prog->outputs.data);
  w->b.product.symbols = KILN_NEW_ARRAY(&cx->perm, const char *, 2);
  w->b.product.symbols[0] = "kiln_k_mul";
  w->b.product.symbols[1] = "kiln_k_add";
}

// The plan as the runtime sees it.
static void read_plan(world *w, kiln_plan *out) {
  void *blob = NULL;
  size_t bytes = 0;
  kiln_plan_write(&w->b.product.plan, &blob, &bytes);
  assert_int_equal(kiln_plan_read(blob, bytes, "plan", w->cx->diag, out), KILN_OK);
  free(blob);
}

static void check_arg(const kiln_plan *p, int launch_number, uint32_t arg, kiln_place where,
                      uint64_t bytes) {
  const kiln_plan_arg *a = &p->args[p->launches[launch_number].first_arg + arg];
  assert_int_equal(a->where, where);
  assert_int_equal(a->bytes, bytes);
}

static kiln_status plan_is_right(kiln_ctx *cx, void *argument) {
  world w = {.cx = cx};
  kiln_plan p;
  const bool may_borrow = *(bool *)argument;
  make_world(&w, may_borrow);
  KILN_TRY(kiln_layout_make(cx, &w.b));
  read_plan(&w, &p);
  assert_int_equal(p.n_launches, 3);
  assert_int_equal(p.n_functions, 3);
  assert_string_equal(p.functions[1], "kiln_k_mul_1");
  assert_string_equal(p.functions[2], "kiln_k_add_0");
  check_arg(&p, 0, 0, KILN_PLACE_INPUT, 96);
  check_arg(&p, 0, 1, KILN_PLACE_WEIGHTS, 6 * 16 * 4);
  check_arg(&p, 0, 2, KILN_PLACE_ARENA, 400);
  check_arg(&p, 0, 3, KILN_PLACE_ARENA, 96);
  check_arg(&p, 1, 1, KILN_PLACE_WEIGHTS, 6 * 16 * 4);
  check_arg(&p, 2, 1, may_borrow ? KILN_PLACE_EXTERN : KILN_PLACE_WEIGHTS, 8192);
  check_arg(&p, 2, 2, KILN_PLACE_OUTPUT, 96);
  // The packed weights are shared by both launches; the constant output has them as they are.
  assert_int_equal(p.weights_bytes, 384 + 128 + (may_borrow ? 0 : 8192));
  // t lives to the end, u beside the workspace: 448 + 128 + 128.
  assert_int_equal(p.arena_bytes, 448 + 128 + 128);
  assert_int_equal(p.launches[0].n_nests, 2);
  assert_int_equal(p.nests[0].extent, 1);
  assert_int_equal(p.nests[1].extent, 4);
  assert_true(p.nests[1].threads > 1);
  assert_int_equal(p.nests[p.launches[2].first_nest].threads, 1); // tiny
  assert_int_equal(p.n_features, kiln_cpu_knows("sse4.2") ? 2 : 1);
  assert_int_equal(p.n_copies, 4);
  assert_int_equal(p.copies[0].from.where, KILN_PLACE_INPUT);
  assert_int_equal(p.copies[1].from.where, KILN_PLACE_WEIGHTS);
  assert_int_equal(p.copies[2].from.where, KILN_PLACE_OUTPUT);
  assert_int_equal(p.copies[3].from.where, KILN_PLACE_ARENA);
  assert_int_equal(p.copies[3].strides[0], 1);
  assert_int_equal(p.copies[3].strides[1], 4);
  kiln_plan_deinit(&p);
  return KILN_OK;
}

static kiln_status weights_are_filled(kiln_ctx *cx, void *argument) {
  world w = {.cx = cx};
  float to[6 * 16] = {0};
  (void)argument;
  make_world(&w, false);
  KILN_TRY(kiln_layout_make(cx, &w.b));
  KILN_TRY(kiln_weight_fill(cx, &w.b.product.weights.data[0], to));
  for (int i = 0; i < 6; i++)
    for (int k = 0; k < 16; k++) assert_true(to[i * 16 + k] == (k < 4 ? weights[k * 6 + i] : 0));
  return KILN_OK;
}

static void run(kiln_status (*body)(kiln_ctx *cx, void *argument), void *argument, kiln_status want,
                const char *message) {
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  assert_int_equal(kiln_ctx_enter(&cx, body, argument), want);
  kiln_ctx_deinit(&cx);
  if (message && !strstr(kiln_diag_message(diag, 0), message))
    fail_msg("%s", kiln_diag_message(diag, 0));
  kiln_diag_destroy(diag);
}

static void everything_lies_where_it_belongs(void **state) {
  bool may_borrow = false;
  (void)state;
  run(plan_is_right, &may_borrow, KILN_OK, NULL);
  may_borrow = true;
  run(plan_is_right, &may_borrow, KILN_OK, NULL);
}

static void packed_weights_hold_the_constant(void **state) {
  (void)state;
  run(weights_are_filled, NULL, KILN_OK, NULL);
}

// Invalid results of a scheduler.
static void unbound(world *w) { w->b.choices.kernels.launches.data[0].n_args = 2; }
static void overbound(world *w) { w->b.choices.kernels.kernels.data[0]->loops->buffers.n = 3; }
static void early(world *w) { w->b.choices.kernels.launches.data[0].stmts[0] = 1; }
static void oversized(world *w) {
  w->b.choices.kernels.kernels.data[1]->loops->buffers.data[0]->extents[0] = 5;
}
static void uncomputed(world *w) { w->b.choices.kernels.launches.n = 0; }

static const struct {
  void (*poke)(world *w);
  const char *message;
} wrongs[] = {
    {unbound, "mul: error: plan: a launch must bind every PARAM"},
    {overbound, "mul: error: plan: a launch must bind nothing but PARAMs"},
    {early, "t: error: plan: a tensor must be computed before it is read"},
    {oversized, "u: error: plan: a buffer must not exceed its tensor"},
    {uncomputed, "t: error: plan: an output must be computed"},
};

static kiln_status poked(kiln_ctx *cx, void *argument) {
  world w = {.cx = cx};
  make_world(&w, false);
  wrongs[*(size_t *)argument].poke(&w);
  return kiln_layout_make(cx, &w.b);
}

static void what_does_not_fit_is_told(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(wrongs); row++)
    run(poked, &row, KILN_INTERNAL, wrongs[row].message);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(everything_lies_where_it_belongs),
      cmocka_unit_test(packed_weights_hold_the_constant),
      cmocka_unit_test(what_does_not_fit_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

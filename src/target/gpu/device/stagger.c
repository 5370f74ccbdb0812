// Lowers a nest with staggered products (target/gpu/stagger.c): two consumers, a warp group each,
// and a producer warp.
//
//     consumers                                    producer
//       wait full[K, 0]  P(0)  wgmma.wait(0)         for i: wait empty[K, i]  copy K[i]
//       arrive empty[K, 0]  W(0)                            wait empty[V, i]  copy V[i]
//       for i {
//         wait full[K, i+1]
//         turn  P(i+1)  wait full[V, i]  Q(i)  next's turn
//         wgmma.wait(1)  arrive empty[K, i+1]  W(i+1)
//         wgmma.wait(0)  arrive empty[V, i]    T *= g  w = w.next
//       }
//       wait full[V, n-1]  Q(n-1)  wgmma.wait(0)
#include "target/gpu/device/lowering.h"

#include "analysis/uses.h"

enum { MAX_LOOPS = 64 };

// A copy of a unit: its loops have names of their own.
typedef struct cloning {
  kiln_ctx *cx;
  const char *suffix;
  int n;
  kiln_symbol vars[MAX_LOOPS];
  const kiln_expr *values[MAX_LOOPS];
  const kiln_buffer *from, *to; // |to| takes the place of |from|; NULL: none does
} cloning;

static const kiln_expr *move_load(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const cloning *c = argument;
  const kiln_expr *index[KILN_MAX_RANK + 4];
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != c->from->id) return NULL;
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], move_load, argument);
  return kiln_load(cx, c->to->id, e->dtype, e->n_args, index);
}

static const kiln_expr *cloned_expr(cloning *c, const kiln_expr *e) {
  if (!e) return NULL;
  e = kiln_expr_substitute(c->cx, e, c->n, c->vars, c->values);
  return c->from && e->has_load ? kiln_expr_replace(c->cx, e, move_load, c) : e;
}

static const kiln_expr **cloned_exprs(cloning *c, int n, const kiln_expr *const *list) {
  const kiln_expr **out = KILN_NEW_ARRAY(&c->cx->perm, const kiln_expr *, n);
  for (int i = 0; i < n; i++) out[i] = cloned_expr(c, list[i]);
  return out;
}

static kiln_loop *cloned(cloning *c, const kiln_loops *p, const kiln_loop *l);

static kiln_loop *cloned_list(cloning *c, const kiln_loops *p, const kiln_loop *l) {
  kiln_loop *first = NULL, **at = &first;
  for (; l; l = l->next, at = &(*at)->next) *at = cloned(c, p, l);
  return first;
}

static kiln_loop *cloned(cloning *c, const kiln_loops *p, const kiln_loop *l) {
  kiln_loop *copy = KILN_NEW(&c->cx->perm, kiln_loop);
  const int n = c->n;
  *copy = *l;
  copy->next = NULL;
  copy->extent = cloned_expr(c, l->extent);
  if (l->kind == KILN_LOOP_FOR && n < MAX_LOOPS) {
    copy->var = kiln_symbol_printf(c->cx, "%s.%s", kiln_symbol_text(c->cx, l->var), c->suffix);
    c->vars[n] = l->var;
    c->values[c->n++] = kiln_var(c->cx, copy->var);
  }
  copy->cond = cloned_expr(c, l->cond);
  copy->value = cloned_expr(c, l->value);
  if (l->index) copy->index = cloned_exprs(c, p->buffers.data[l->buffer]->rank, l->index);
  if (l->operands) copy->operands = cloned_exprs(c, l->n_operands, l->operands);
  if (c->from && l->kind == KILN_LOOP_STORE && l->buffer == c->from->id) copy->buffer = c->to->id;
  copy->body = cloned_list(c, p, l->body);
  c->n = n;
  return copy;
}

// --- steps ---

typedef struct stagger {
  lowering *w;
  const kiln_loop *loop;
  kiln_stagger_units units;
  const kiln_buffer *next; // weights of the next step
} stagger;

// Puts a copy of phase |i| in step |step|; |is_next|: its weights are the next ones.
static kiln_loop *put_unit(stagger *s, int i, const kiln_expr *step, const char *suffix,
                           bool is_next) {
  lowering *w = s->w;
  cloning c = {.cx = w->cx, .suffix = suffix, .n = 1, .vars = {s->loop->var}, .values = {step}};
  if (is_next) c.from = w->n->l->buffers.data[s->units.weights], c.to = s->next;
  kiln_loop *copy = cloned(&c, w->n->l, s->units.phases.data[i]);
  put(w, s->loop, copy);
  return copy;
}

static kiln_loop **body_of_phase(kiln_loop *l) {
  while (kiln_gpu_has_threads(l->body)) l = l->body;
  return &l->body;
}

// Begins product |k| of |step|.
static void put_product(stagger *s, int k, const kiln_expr *step, const char *suffix) {
  lowering *w = s->w;
  const int row = w->n->stagger.operand[k];
  const kiln_expr *stages = number(w, w->n->stagger.stages);
  put_op_of(w, s->loop, KILN_DEVICE_MBARRIER_WAIT,
            element(w, w->full[row], kiln_mod(w->cx, step, stages)),
            element(w, w->phases[row], number(w, 0)));
  kiln_loop *phase = put_unit(s, s->units.product[k], step, suffix, false), **behind = w->at;
  w->at = body_of_phase(phase);
  put_op(w, s->loop, KILN_DEVICE_WGMMA_FENCE);
  w->at = end_of(w->at);
  put_op(w, s->loop, KILN_DEVICE_WGMMA_COMMIT);
  w->at = behind;
}

static void put_release(stagger *s, int k, const kiln_expr *step) {
  lowering *w = s->w;
  put_op_of(w, s->loop, KILN_DEVICE_MBARRIER_ARRIVE,
            element(w, w->empties[k], kiln_mod(w->cx, step, number(w, w->n->stagger.stages))),
            NULL);
}

static bool touches(const stagger *s, int i, int buffer) {
  return kiln_uses_of(s->w->cx, s->w->n->l, s->units.phases.data[i])[buffer] != 0;
}

static int sums_of_first(const stagger *s) {
  const kiln_loop *l = s->units.phases.data[s->units.product[0]];
  while (l->kind != KILN_LOOP_INSTR) l = l->body;
  return l->operands[0]->u.tensor;
}

// What comes before the first product and touches its sums, as clearing them.
static bool is_of_first(const stagger *s, int i) {
  return i < s->units.product[0] && touches(s, i, sums_of_first(s));
}

static void put_first(stagger *s, const kiln_expr *step, const char *suffix) {
  for (int i = 0; i < s->units.product[0]; i++)
    if (is_of_first(s, i)) (void)put_unit(s, i, step, suffix, false);
  put_product(s, 0, step, suffix);
}

// The threads' work of |step|; |of_sums|: what touches the second product's sums, or all else.
static void put_work(stagger *s, const kiln_expr *step, const char *suffix, bool of_sums) {
  for (int i = 0; i < s->units.product[1]; i++)
    if (i != s->units.product[0] && !is_of_first(s, i) && touches(s, i, s->units.sums) == of_sums)
      (void)put_unit(s, i, step, suffix, true);
}

// w = w.next
static void put_take(stagger *s) {
  lowering *w = s->w;
  const kiln_expr *zero = number(w, 0);
  put_op_of(w, s->loop, KILN_DEVICE_WGMMA_TAKE,
            element(w, w->n->l->buffers.data[s->units.weights], zero), element(w, s->next, zero));
}

static void put_turn(stagger *s, bool begins) {
  lowering *w = s->w;
  const kiln_expr *both = number(w, 2 * w->n->n_threads);
  if (begins)
    put_op_of(w, s->loop, KILN_DEVICE_BARRIER_SYNC, kiln_add(w->cx, w->consumer, number(w, 3)),
              both);
  else
    put_op_of(w, s->loop, KILN_DEVICE_BARRIER_ARRIVE, kiln_sub(w->cx, number(w, 4), w->consumer),
              both);
}

// The loop over all steps but the last.
static kiln_loop *steps_of(stagger *s) {
  lowering *w = s->w;
  kiln_loop *l = kiln_for_make(w->cx, s->loop->var, number(w, w->n->stagger.steps - 1), NULL);
  const kiln_expr *step = kiln_var(w->cx, l->var), *next = kiln_add(w->cx, step, number(w, 1));
  w->at = &l->body;
  put_turn(s, true);
  put_first(s, next, "i");
  put_product(s, 1, step, "i");
  put_turn(s, false);
  put_int(w, s->loop, KILN_DEVICE_WGMMA_WAIT, 1);
  put_release(s, 0, next);
  put_work(s, next, "i", false);
  put_int(w, s->loop, KILN_DEVICE_WGMMA_WAIT, 0);
  put_release(s, 1, step);
  put_work(s, next, "i", true);
  put_take(s);
  kiln_loop_annotate(w->cx, l, "unroll", "1");
  return l;
}

static kiln_loop **lower_stagger(lowering *w, kiln_loop **link) {
  stagger s = {.w = w, .loop = *link};
  kiln_loop *behind = (*link)->next, *list = NULL;
  const kiln_expr *zero = number(w, 0), *last = number(w, w->n->stagger.steps - 1);
  (void)kiln_stagger_units_of(w->n, s.loop, &s.units);
  const kiln_buffer *weights = w->n->l->buffers.data[s.units.weights];
  s.next = kiln_device_local(
      w, kiln_arena_printf(&w->cx->perm, "%s.next", kiln_symbol_text(w->cx, weights->name)),
      weights->dtype, weights->extents[0]);
  w->at = &list;
  put_first(&s, zero, "0");
  put_int(w, s.loop, KILN_DEVICE_WGMMA_WAIT, 0);
  put_release(&s, 0, zero);
  put_work(&s, zero, "0", false);
  put_work(&s, zero, "0", true);
  put_take(&s);
  kiln_loop **at = w->at, *steps = steps_of(&s);
  w->at = at;
  put(w, s.loop, steps);
  put_product(&s, 1, last, "n");
  put_int(w, s.loop, KILN_DEVICE_WGMMA_WAIT, 0);
  list = kiln_alloc_make(w->cx, s.next, list);
  for (int i = s.units.allocs.n - 1; i >= 0; i--)
    list = kiln_alloc_make(w->cx, w->n->l->buffers.data[s.units.allocs.data[i]->buffer], list);
  *link = list;
  list->next = behind;
  return &list->next;
}

// --- the nest ---

// Rows of threads become consumers.
static void split_rows(lowering *w, kiln_loop *l) {
  for (; l; l = l->next) {
    if (kiln_gpu_thread_axis(l) == 1) {
      cloning c = {.cx = w->cx, .n = 1, .vars = {l->var}, .values = {w->consumer}, .suffix = "g"};
      l->body = cloned_list(&c, w->n->l, l->body);
      l->extent = number(w, 1);
    } else split_rows(w, l->body);
  }
}

static void make_barriers(lowering *w) {
  kiln_gpu_nest *n = w->n;
  w->full = KILN_NEW_ARRAY(&w->cx->perm, const kiln_buffer *, n->tma.n);
  w->phases = KILN_NEW_ARRAY(&w->cx->perm, const kiln_buffer *, n->tma.n + KILN_STAGGERED);
  w->empties = KILN_NEW_ARRAY(&w->cx->perm, const kiln_buffer *, KILN_STAGGERED);
  for (int i = 0; i < n->tma.n; i++) {
    const char *of = kiln_symbol_text(w->cx, n->l->buffers.data[n->tma.data[i].buffer]->name);
    w->full[i] = kiln_device_mbarriers(w, kiln_arena_printf(&w->cx->perm, "%s.full", of),
                                       n->tma.data[i].stages, n->tma.data[i].at);
    w->phases[i] = kiln_device_phases(w, kiln_arena_printf(&w->cx->perm, "%s.phases", of));
  }
  for (int k = 0; k < KILN_STAGGERED; k++) {
    const int buffer = n->tma.data[n->stagger.operand[k]].buffer;
    const char *of = kiln_symbol_text(w->cx, n->l->buffers.data[buffer]->name);
    w->empties[k] =
        kiln_device_mbarriers(w, kiln_arena_printf(&w->cx->perm, "%s.empty", of), n->stagger.stages,
                              n->stagger.empty + k * n->stagger.stages * (int64_t)sizeof(uint64_t));
    w->phases[n->tma.n + k] =
        kiln_device_phases(w, kiln_arena_printf(&w->cx->perm, "%s.empty.phases", of));
  }
}

void kiln_device_lower_staggered(lowering *w) {
  enum { GROUPS = 2 };
  kiln_gpu_nest *n = w->n;
  const kiln_symbol var = kiln_symbol_of(w->cx, "consumer");
  n->specialized.consumers = GROUPS;
  n->n_threads /= n->block[1];
  n->block[1] = 1;
  w->consumer = kiln_var(w->cx, var);
  w->is_apart = true;
  w->lower_loop = lower_stagger;
  make_barriers(w);
  kiln_loop *produces = kiln_device_produced(w, n->l->body), *consumes = n->l->body;
  split_rows(w, consumes);
  kiln_device_lower_list(w, &consumes);
  kiln_device_take_out(w, &consumes);
  consumes = kiln_device_first_turn(w, consumes);
  for (int i = 0; i < n->tma.n; i++)
    consumes = kiln_device_with_phases(w, w->phases[i], number(w, 0), consumes);
  for (int k = 0; k < KILN_STAGGERED; k++)
    produces = kiln_device_with_phases(w, w->phases[n->tma.n + k], number(w, UINT32_MAX), produces);
  const kiln_expr *threads[] = {number(w, 0), number(w, 1), number(w, GROUPS)},
                  *row = number(w, GROUPS);
  kiln_loop *roles = kiln_device_make(w->cx, KILN_DEVICE_ROLE_CONSUMERS, 3, threads);
  roles->var = var;
  roles->body = kiln_device_with_registers(w, false, consumes);
  roles->next = kiln_device_make(w->cx, KILN_DEVICE_ROLE_PRODUCER, 1, &row);
  roles->next->body = kiln_device_with_registers(w, true, produces);
  n->l->body = roles;
}

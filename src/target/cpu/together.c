// Modules of several kernels, for programs of very many.
#include "target/cpu/together.h"
#include "target/cpu/cpu.h"

static void count_operation(const kiln_expr *x, void *argument) {
  (void)x;
  ++*(int64_t *)argument;
}

// Operations in the expressions of all statements; a node counts for each statement that it is in.
static int64_t operations_of(kiln_ctx *cx, const kiln_loop *l) {
  int64_t n = 0;
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_STORE) kiln_expr_visit(cx, l->value, count_operation, &n);
    n += operations_of(cx, l->body);
  }
  return n;
}

// Whether there are too many short kernels among |kernels| to optimise them.
static bool are_quick(kiln_ctx *cx, int n, kiln_loops *const *kernels) {
  int64_t n_short = 0, operations = 0;
  for (int i = 0; i < n; i++) {
    if (!kiln_cpu_is_short(kernels[i]->body)) continue;
    n_short++;
    operations += operations_of(cx, kernels[i]->body);
  }
  return n_short > KILN_CPU_MANY_KERNELS || operations > KILN_CPU_MANY_OPERATIONS;
}

bool kiln_cpu_are_alone(kiln_ctx *cx, int n, kiln_loops *const *kernels) {
  return n <= KILN_CPU_MANY_KERNELS && !are_quick(cx, n, kernels);
}

// Adds modules of |size| kernels: short ones, or the others.
static void add_modules(kiln_cpu_modules *m, int n, const bool *is_taken, bool is_quick, int size) {
  int at = m->first[m->n], in = 0;
  for (int i = 0; i < n; i++) {
    if (is_taken[i] != is_quick) continue;
    m->kernels[at++] = i;
    in++;
    m->is_quick[m->n] = is_quick;
    m->first[m->n + 1] = at;
    if (in < size) continue;
    m->n++;
    in = 0;
  }
  if (in > 0) m->n++;
}

kiln_cpu_modules kiln_cpu_modules_of(kiln_ctx *cx, int n, kiln_loops *const *kernels) {
  kiln_cpu_modules m = {.kernels = KILN_NEW_ARRAY(&cx->scratch, int, n),
                        .first = KILN_NEW_ARRAY(&cx->scratch, int, n + 1),
                        .is_quick = KILN_NEW_ARRAY(&cx->scratch, bool, n + 1)};
  bool *is_quick = KILN_NEW_ARRAY(&cx->scratch, bool, n);
  const bool has_quick = are_quick(cx, n, kernels);
  for (int i = 0; i < n; i++) is_quick[i] = has_quick && kiln_cpu_is_short(kernels[i]->body);
  add_modules(&m, n, is_quick, false, n > KILN_CPU_MANY_KERNELS ? KILN_CPU_TOGETHER : 1);
  add_modules(&m, n, is_quick, true, KILN_CPU_TOGETHER);
  return m;
}

// --- equal nests ---

// A sequence of numbers that is equal for nests with equal code: expressions are interned, and
// written as their ids.
typedef struct writing {
  kiln_ctx *cx;
  const kiln_loops *loops;
  bool *is_used; // [buffers]
  kiln_text text;
} writing;

static void put(writing *w, int64_t n) {
  kiln_text_add_int(&w->text, n);
  kiln_text_add(&w->text, " ");
}

static void mark_load(const kiln_expr *load, void *argument) {
  ((const writing *)argument)->is_used[load->u.tensor] = true;
}

static void put_expr(writing *w, const kiln_expr *x) {
  put(w, x ? (int64_t)x->id : -1);
  if (x) kiln_expr_visit_loads(w->cx, x, mark_load, w);
}

static void put_element(writing *w, const kiln_loop *l) {
  w->is_used[l->buffer] = true;
  put(w, l->buffer);
  for (int i = 0; l->index && i < w->loops->buffers.data[l->buffer]->rank; i++)
    put_expr(w, l->index[i]);
}

static void put_instr(writing *w, const kiln_loop *l) {
  put(w, (intptr_t)l->instr);
  put_expr(w, l->cond);
  for (int i = 0; i < l->n_operands; i++) put_expr(w, l->operands[i]);
}

static void put_loop(writing *w, const kiln_loop *l) {
  put(w, l->kind);
  switch (l->kind) {
  case KILN_LOOP_FOR:
    put(w, l->var);
    put(w, l->how);
    put_expr(w, l->extent);
    return;
  case KILN_LOOP_IF: put_expr(w, l->cond); return;
  case KILN_LOOP_STORE:
    put_element(w, l);
    put(w, l->combiner);
    put_expr(w, l->value);
    return;
  case KILN_LOOP_ALLOC: put_element(w, l); return;
  case KILN_LOOP_INSTR: put_instr(w, l); return;
  case KILN_LOOP_PREFETCH:
    put_element(w, l);
    put(w, l->is_far);
    return;
  case KILN_LOOP_DEVICE: return; // a GPU's
  }
}

static void put_loops(writing *w, const kiln_loop *l) {
  for (; l; l = l->next) {
    put_loop(w, l);
    kiln_text_add(&w->text, "{");
    put_loops(w, l->body);
    kiln_text_add(&w->text, "}");
  }
}

// A buffer: its argument number or -1, and its layout.
static void put_buffer(writing *w, const kiln_buffer *b, int argument) {
  put(w, b->id);
  put(w, argument);
  put(w, b->scope);
  put(w, b->dtype);
  for (int i = 0; i < b->rank; i++) {
    put(w, b->extents[i]);
    put(w, b->strides[i]);
  }
  kiln_text_add(&w->text, ";");
}

static kiln_symbol text_of(kiln_ctx *cx, const kiln_loops *l, const kiln_loop *nest,
                           bool is_quick) {
  const kiln_mark begin = kiln_arena_mark(&cx->scratch);
  kiln_loop alone = *nest;
  writing w = {.cx = cx, .loops = l, .is_used = KILN_NEW_ARRAY(&cx->scratch, bool, l->buffers.n)};
  alone.next = NULL;
  kiln_text_init(&w.text, &cx->scratch);
  put(&w, is_quick);
  put_loops(&w, &alone);
  for (int i = 0, argument = 0; i < l->buffers.n; i++) {
    const bool is_argument = kiln_scope_is_argument(l->buffers.data[i]->scope);
    if (w.is_used[i]) put_buffer(&w, l->buffers.data[i], is_argument ? argument : -1);
    argument += is_argument;
  }
  const kiln_symbol symbol = kiln_symbol_of(cx, w.text.data);
  kiln_arena_rewind(&cx->scratch, begin);
  return symbol;
}

static int count_nests(int n, kiln_loops *const *kernels) {
  int count = 0;
  for (int i = 0; i < n; i++)
    for (const kiln_loop *l = kernels[i]->body; l; l = l->next) count++;
  return count;
}

const kiln_cpu_nests *kiln_cpu_nests_of(kiln_ctx *cx, int n, kiln_loops *const *kernels) {
  if (kiln_cpu_are_alone(cx, n, kernels)) return NULL;
  const bool has_quick = are_quick(cx, n, kernels);
  kiln_cpu_nests *all = KILN_NEW(&cx->perm, kiln_cpu_nests);
  kiln_map seen; // texts to numbers of nests
  int at = 0;
  all->first = KILN_NEW_ARRAY(&cx->perm, int, n);
  all->same = KILN_NEW_ARRAY(&cx->perm, kiln_cpu_nest, count_nests(n, kernels));
  kiln_map_init(&seen, &cx->perm);
  for (int i = 0; i < n; i++) {
    const bool is_quick = has_quick && kiln_cpu_is_short(kernels[i]->body);
    int nest = 0;
    all->first[i] = at;
    for (const kiln_loop *l = kernels[i]->body; l; l = l->next, nest++, at++) {
      const kiln_symbol text = text_of(cx, kernels[i], l, is_quick);
      const uint64_t *known = kiln_map_find(&seen, text);
      if (!known) kiln_map_put(&seen, text, (uint64_t)at);
      all->same[at] = known ? all->same[*known] : (kiln_cpu_nest){i, nest};
    }
  }
  return all;
}

// Modules of several kernels, where there are very many.
#include "target/cpu/together.h"
#include "target/cpu/cpu.h"

static void count_operation(const kiln_expr *x, void *argument) {
  (void)x;
  ++*(int64_t *)argument;
}

// Operations of the expressions of all statements, each of which counts once for each of these.
static int64_t operations_of(kiln_ctx *cx, const kiln_loop *l) {
  int64_t n = 0;
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_STORE) kiln_expr_visit(cx, l->value, count_operation, &n);
    n += operations_of(cx, l->body);
  }
  return n;
}

// Whether the short ones of |kernels| are too many to be optimised.
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

// Modules of |size| kernels: of the short ones, or of the others.
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

// Tables of constant offsets, for offsets with divisions in functions that LLVM does not optimise:
// a row of lanes for each iteration of the loops around. Compiling such divisions takes LLVM longer
// than the rest of a short function.
#include "target/cpu/cpu.h"

#include "ir/fold.h"

#include <string.h>

enum { MOST_VALUES = 1024, MOST_VARS = 8 };

// An iteration of the loops on which offsets depend: the lane variable, variables of loops with
// known extents, and variables of known value.
typedef struct point {
  int n;
  kiln_symbol vars[MOST_VARS];
  int64_t extents[MOST_VARS]; // 1: the value is fixed
  int64_t values[MOST_VARS];
} point;

static int find_var(const point *p, kiln_symbol var) {
  for (int i = 0; i < p->n; i++)
    if (p->vars[i] == var) return i;
  return -1;
}

static bool add_var(kiln_emit *e, point *p, kiln_symbol var) {
  const kiln_binding *b = kiln_cpu_binding(e, var);
  if (find_var(p, var) >= 0) return true;
  if (!b || p->n == MOST_VARS) return false;
  const kiln_interval r = kiln_expr_interval(e->cx, kiln_var(e->cx, var), &e->ranges);
  const bool is_loop = b->kind == KILN_BOUND_LOOP;
  if (is_loop && (r.lo != 0 || r.hi >= MOST_VALUES)) return false;
  p->vars[p->n] = var;
  p->extents[p->n] = is_loop ? r.hi + 1 : 1;
  p->values[p->n++] = b->kind == KILN_BOUND_CONST ? b->constant : 0;
  return true;
}

static bool add_vars(kiln_emit *e, point *p, const kiln_split_form *f) {
  for (int i = 0; i < f->varying.n; i++) {
    const kiln_expr *x = f->varying.data[i].atom;
    if (x->has_load) return false;
    for (int k = 0; k < x->vars->n; k++)
      if (!add_var(e, p, x->vars->vars[k])) return false;
  }
  return true;
}

static int64_t rows_of(const point *p) {
  int64_t n = 1;
  for (int i = 0; i < p->n && n <= MOST_VALUES; i++) n *= p->extents[i];
  return n;
}

// The last variable runs fastest.
static void go_to_row(point *p, int64_t row) {
  for (int i = p->n - 1; i >= 0; i--) {
    if (p->extents[i] == 1) continue;
    p->values[i] = row % p->extents[i];
    row /= p->extents[i];
  }
}

static bool evaluate(const point *p, const kiln_expr *x, kiln_constant *out) {
  kiln_constant a, b;
  if (kiln_constant_of(x, out)) return true;
  if (x->kind == KILN_EXPR_VAR) {
    *out = (kiln_constant){.dtype = x->dtype, .i = p->values[find_var(p, x->u.sym)]};
    return true;
  }
  if (x->n_args == 0 || !evaluate(p, x->args[0], &a)) return false;
  if (x->kind == KILN_EXPR_SELECT) return evaluate(p, x->args[a.i ? 1 : 2], out);
  if (x->kind == KILN_EXPR_CAST) return kiln_fold_cast(x->dtype, a, out);
  if (x->n_args == 1) return kiln_fold_unary(x->kind, a, out);
  return x->n_args == 2 && evaluate(p, x->args[1], &b) && kiln_fold_binary(x->kind, a, b, out);
}

// The offset for lane |k|.
static bool offset_at(const point *p, const kiln_split_form *f, int k, int32_t *out) {
  int64_t sum = 0;
  if (__builtin_mul_overflow(f->lane, k, &sum)) return false;
  for (int i = 0; i < f->varying.n; i++) {
    kiln_constant c;
    int64_t part = 0;
    if (!evaluate(p, f->varying.data[i].atom, &c) || c.dtype != KILN_I64 ||
        __builtin_mul_overflow(c.i, f->varying.data[i].coef, &part) ||
        __builtin_add_overflow(sum, part, &sum))
      return false;
  }
  *out = (int32_t)sum;
  return sum == *out;
}

// Inactive lanes get the last active one's offset: nothing is read there.
static bool fill_row(const kiln_emit *e, point *p, const kiln_split_form *f, int32_t *out) {
  const int lane = find_var(p, e->lane_var);
  for (int k = 0; k < e->lanes; k++) {
    const int at = k < e->n_active ? k : e->n_active - 1;
    if (lane >= 0) p->values[lane] = e->chunk + at;
    if (!offset_at(p, f, k, &out[k])) return false;
  }
  return true;
}

static bool fill(const kiln_emit *e, point *p, const kiln_split_form *f, int32_t *out) {
  const int64_t n = rows_of(p);
  for (int64_t row = 0; row < n; row++) {
    go_to_row(p, row);
    if (!fill_row(e, p, f, out + row * e->lanes)) return false;
  }
  return true;
}

// Tables of equal contents are shared.
static LLVMValueRef global_of(kiln_emit *e, const int32_t *values, size_t bytes) {
  kiln_cpu_module *m = e->m;
  LLVMValueRef data =
      LLVMConstStringInContext(m->llvm, (const char *)values, (unsigned)bytes, true);
  if (!m->tables.arena) kiln_map_init(&m->tables, &m->cx->perm);
  const uint64_t *known = kiln_map_find(&m->tables, (uintptr_t)data);
  if (known) return (LLVMValueRef)(uintptr_t)*known;
  LLVMValueRef g = LLVMAddGlobal(m->module, LLVMTypeOf(data), "kiln.offsets");
  LLVMSetInitializer(g, data);
  LLVMSetGlobalConstant(g, 1);
  LLVMSetLinkage(g, LLVMPrivateLinkage);
  LLVMSetAlignment(g, (unsigned)m->machine->vector_bytes);
  kiln_map_put(&m->tables, (uintptr_t)data, (uintptr_t)g);
  return g;
}

static LLVMValueRef load_row(kiln_emit *e, const point *p, LLVMValueRef table) {
  kiln_split_form row = {0};
  int64_t stride = e->lanes;
  for (int i = p->n - 1; i >= 0; i--) {
    if (p->extents[i] == 1) continue;
    KILN_VEC_PUSH(&e->cx->perm, &row.uniform,
                  (kiln_form_term){kiln_var(e->cx, p->vars[i]), stride});
    stride *= p->extents[i];
  }
  LLVMValueRef at = kiln_cpu_pointer(e, e->m->i32, table, &row),
               v = LLVMBuildLoad2(e->b, kiln_cpu_lanes_of(e->m->i32, e->lanes), at, "");
  LLVMSetAlignment(v, sizeof(int32_t));
  return v;
}

bool kiln_cpu_table(kiln_emit *e, const kiln_split_form *f, kiln_lanes *out) {
  point p = {0};
  if (!e->m->is_quick || !add_vars(e, &p, f) || rows_of(&p) * e->lanes > MOST_VALUES) return false;
  const kiln_mark mark = kiln_arena_mark(&e->cx->scratch);
  const size_t n = (size_t)(rows_of(&p) * e->lanes);
  int32_t *values = KILN_NEW_ARRAY(&e->cx->scratch, int32_t, n);
  const bool is_filled = fill(e, &p, f, values);
  LLVMValueRef table = is_filled ? global_of(e, values, n * sizeof *values) : NULL;
  kiln_arena_rewind(&e->cx->scratch, mark);
  if (!is_filled) return false;
  *out = (kiln_lanes){load_row(e, &p, table), e->lanes, true};
  return true;
}

// Folds statements whose loads are all of constants (rewrite/constants.h).
#include "rewrite/constants.h"

#include "analysis/interpret.h"
#include "rewrite/dce.h"

#include <string.h>

typedef struct reads {
  const kiln_program *p;
  const bool *constant; // by tensor id
  const bool *known;    // by tensor id: constants, and temporaries that follow from constants alone
  bool any, all, known_all; // a load was seen; all loads were of constants; of known tensors
} reads;

static void see_load(const kiln_expr *e, void *argument) {
  reads *r = argument;
  if (e->kind != KILN_EXPR_LOAD) return;
  r->any = true;
  r->all &= r->constant[e->u.tensor];
  r->known_all &= r->known[e->u.tensor];
}

static reads reads_of(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, const bool *constant,
                      const bool *known) {
  reads r = {p, constant, known, false, true, true};
  const kiln_expr *const parts[] = {s->body, s->guard, s->init};
  for (size_t i = 0; i < KILN_LEN(parts); i++)
    if (parts[i]) kiln_expr_visit(cx, parts[i], see_load, &r);
  for (int k = 0; k < p->tensors.data[s->out]->rank; k++)
    kiln_expr_visit(cx, s->index[k], see_load, &r);
  return r;
}

static int64_t steps_of(const kiln_stmt *s) {
  int64_t n = 1, extent = 0;
  for (int d = 0; d < s->n_space + s->n_reduce; d++)
    if (!kiln_expr_is_int(s->dims[d].extent, &extent) || __builtin_mul_overflow(n, extent, &n))
      return INT64_MAX;
  return n;
}

static void see_division(const kiln_expr *e, void *argument) {
  bool *found = argument;
  *found |= e->kind == KILN_EXPR_DIV || e->kind == KILN_EXPR_MOD;
}

// Whether |s| moves a constant with split or merged axes, as when weights of a transposed
// convolution are sorted by phase: packing cannot do this, because it maps axes to axes.
static bool is_reshaping(kiln_ctx *cx, const kiln_stmt *s) {
  bool divides = false;
  kiln_expr_visit(cx, s->body, see_division, &divides);
  return divides && steps_of(s) <= KILN_MAX_MOVED_STEPS;
}

// A scatter also folds where what it reads only follows from constants, as a mask does that is
// filled and then assigned slice by slice: its elements are written in order, which no kernel does
// well.
// Other such statements are left alone: a kernel that computes an iota needs no memory for it.
static bool foldable(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, const reads *r) {
  const kiln_tensor *out = p->tensors.data[s->out];
  if (out->role != KILN_TEMP || steps_of(s) > KILN_MAX_FOLDED_STEPS) return false;
  if (s->body->kind == KILN_EXPR_LOAD && s->combiner == KILN_COMBINE_NONE && !s->guard &&
      !is_reshaping(cx, s) && !kiln_stmt_is_scatter(p, s))
    return false;
  return r->any && (r->all || (r->known_all && kiln_stmt_is_scatter(p, s))) &&
         !kiln_stmt_decodes(cx, p, s); // stays packed; decoded in every run
}

static kiln_status fold_one(kiln_ctx *cx, kiln_interpreter *in, kiln_tensor *t) {
  const void *data = NULL;
  KILN_TRY(kiln_interpreter_compute(in, t->id, &data));
  t->bytes = (size_t)kiln_tensor_elems(t) * (size_t)kiln_dtype_bytes(t->dtype);
  void *copy = kiln_arena_alloc(&cx->perm, t->bytes + 1);
  if (t->bytes) memcpy(copy, data, t->bytes);
  t->data = copy;
  return KILN_OK;
}

static void destroy(void *interpreter) { kiln_interpreter_destroy(interpreter); }

// The temporaries computed by the interpreter become constants, and their statements are removed.
static void make_constant(kiln_program *p, int n, const int *stmts) {
  int kept = 0, next = 0;
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    kiln_tensor *t = p->tensors.data[s->out];
    if (next < n && stmts[next] == i) {
      t->role = KILN_CONST;
      t->def = -1;
      next++;
      continue;
    }
    t->def = s->id = kept;
    p->stmts.data[kept++] = s;
  }
  p->stmts.n = kept;
}

static kiln_status fold_all(kiln_ctx *cx, kiln_program *p, int n, const int *stmts) {
  kiln_interpreter *in = NULL;
  kiln_status status = KILN_OK;
  KILN_TRY(kiln_interpreter_create(cx, p, &in));
  kiln_cleanup_push(cx, destroy, in);
  for (int i = 0; i < n && status == KILN_OK; i++)
    status = fold_one(cx, in, p->tensors.data[p->stmts.data[stmts[i]]->out]);
  kiln_cleanup_pop(cx);
  kiln_interpreter_destroy(in);
  if (status != KILN_OK) return status;
  make_constant(p, n, stmts);
  kiln_program_dce(cx, p);
  return KILN_OK;
}

kiln_status kiln_program_fold_constants(kiln_ctx *cx, kiln_program *p, int *out_n) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  bool *constant = KILN_NEW_ARRAY(&cx->scratch, bool, p->tensors.n);
  bool *known = KILN_NEW_ARRAY(&cx->scratch, bool, p->tensors.n);
  int *stmts = KILN_NEW_ARRAY(&cx->scratch, int, p->stmts.n), n = 0;
  for (int t = 0; t < p->tensors.n; t++)
    constant[t] = known[t] = p->tensors.data[t]->role == KILN_CONST;
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    const reads r = reads_of(cx, p, s, constant, known);
    known[s->out] = r.known_all && steps_of(s) <= KILN_MAX_FOLDED_STEPS;
    if (!foldable(cx, p, s, &r)) continue;
    constant[s->out] = true;
    stmts[n++] = i;
  }
  const kiln_status status = n > 0 ? fold_all(cx, p, n, stmts) : KILN_OK;
  kiln_arena_rewind(&cx->scratch, mark);
  *out_n = n;
  return status;
}

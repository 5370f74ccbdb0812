// Typed evaluation: syntax trees to interned scalar expressions. Numbers stay weak until they are
// combined with a type; halves are promoted to f32 for arithmetic.
#include "tc/eval.h"
#include "tc/functions.h"
#include "tc/lexer.h"
#include "tc/parser.h"
#include "analysis/interpret.h"
#include "ir/fold.h"

#include <math.h>
#include <string.h>

static kiln_status eval(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out);

static kiln_ctx *cx_of(const kiln_tc_eval *ev) { return ev->env->cx; }
static const char *text_of(const kiln_tc_eval *ev, kiln_symbol s) {
  return kiln_symbol_text(cx_of(ev), s);
}
static kiln_tc_value strong(const kiln_expr *e) { return (kiln_tc_value){e, 0, false}; }
static kiln_tc_value weak(const kiln_expr *e) { return (kiln_tc_value){e, 0, true}; }

static kiln_status fail_at(const kiln_tc_eval *ev, const kiln_tc_expr *e, const char *message) {
  return kiln_tc_fail(&ev->env->file->source, e->at, NULL, "%s", message);
}

// --- types ---

// A cast that folds constants.
static const kiln_expr *cast(kiln_ctx *cx, kiln_dtype t, const kiln_expr *e) {
  int64_t i;
  if (e->dtype == t) return e;
  if (kiln_dtype_is_float(t) && e->kind == KILN_EXPR_FLOAT) return kiln_float(cx, t, e->u.f);
  if (kiln_dtype_is_float(t) && kiln_expr_is_int(e, &i)) return kiln_float(cx, t, (double)i);
  bool picks = e->kind == KILN_EXPR_SELECT && e->args[1]->n_args == 0 && e->args[2]->n_args == 0;
  if (picks) // a choice of two numbers
    return kiln_select(cx, e->args[0], cast(cx, t, e->args[1]), cast(cx, t, e->args[2]));
  return kiln_cast(cx, t, e);
}

static kiln_dtype wider_int(kiln_dtype a, kiln_dtype b) {
  static const kiln_dtype signed_[] = {KILN_I8, KILN_I16, KILN_I32, KILN_I64};
  kiln_dtype most = kiln_dtype_bytes(a) >= kiln_dtype_bytes(b) ? a : b;
  if (kiln_dtype_kind(a) == kiln_dtype_kind(b)) return most;
  for (size_t k = 0; k < KILN_LEN(signed_); k++)
    if (kiln_dtype_bytes(signed_[k]) == kiln_dtype_bytes(most)) return signed_[k];
  return KILN_I64;
}

// The common type of two strong operands.
static kiln_dtype promoted(kiln_dtype a, kiln_dtype b) {
  bool fa = kiln_dtype_is_float(a), fb = kiln_dtype_is_float(b);
  if (a == b) return a;
  if (kiln_dtype_is_half(a) || kiln_dtype_is_half(b))
    return a == KILN_F64 || b == KILN_F64 ? KILN_F64 : KILN_F32;
  if (fa && fb) return a == KILN_F64 || b == KILN_F64 ? KILN_F64 : KILN_F32;
  if (fa || fb) return fa ? a : b;
  if (a == KILN_BOOL) return b;
  return b == KILN_BOOL ? a : wider_int(a, b);
}

static bool fits(kiln_dtype t, int64_t n) {
  kiln_constant c;
  if (t == KILN_U64 && n < 0) return false; // would be read as a large number
  return kiln_fold_cast(t, (kiln_constant){KILN_I64, n, 0.0}, &c) && c.i == n;
}

// Whether a constant changes its value in the integer type |t|.
static bool is_cut(const kiln_tc_value *v, kiln_dtype t) {
  int64_t n;
  return v->weak && !kiln_dtype_is_float(t) && kiln_expr_is_int(v->e, &n) && !fits(t, n);
}

// Converts the operands of |e| to a common type.
static kiln_status unify(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *a,
                         kiln_tc_value *b) {
  kiln_ctx *cx = cx_of(ev);
  kiln_dtype t = promoted(a->e->dtype, b->e->dtype);
  if (a->weak != b->weak) {
    const kiln_tc_value *w = a->weak ? a : b, *s = a->weak ? b : a;
    bool float_meets_int = kiln_dtype_is_float(w->e->dtype) && !kiln_dtype_is_float(s->e->dtype);
    t = float_meets_int ? KILN_F32 : s->e->dtype;
    if (t == KILN_BOOL) t = KILN_I32; // b == 1 compares numbers
    if (is_cut(w, t))
      return kiln_tc_fail(&ev->env->file->source, e->at, NULL,
                          "a number must fit the type that it meets, %s, got %" PRId64
                          "; cast the other operand, as in %s(X(i))",
                          kiln_dtype_text(t), w->e->u.i,
                          fits(KILN_I32, w->e->u.i) && kiln_dtype_bytes(t) < 4 ? "int32" : "int64");
  }
  a->e = cast(cx, t, a->e);
  b->e = cast(cx, t, b->e);
  a->weak = b->weak = a->weak && b->weak;
  return KILN_OK;
}

// Comparisons compare values: a narrow integer is widened if compared with numbers, sizes or
// indices, so that these are not truncated. Indices are below 2^31.
static void widen_compared(kiln_ctx *cx, kiln_tc_value *a, kiln_tc_value *b) {
  if (a->weak == b->weak) return;
  const kiln_tc_value *w = a->weak ? a : b;
  kiln_tc_value *s = a->weak ? b : a;
  kiln_dtype t = s->e->dtype;
  int64_t n;
  if (kiln_dtype_is_float(t) || kiln_dtype_is_float(w->e->dtype) || t == KILN_BOOL) return;
  bool number = kiln_expr_is_int(w->e, &n);
  if (t == KILN_U64) return; // u64 and negative numbers have no common integer type
  if (number ? fits(t, n) : kiln_dtype_bytes(t) > 4 || t == KILN_I32) return;
  bool narrow = kiln_dtype_bytes(t) <= 2 && (!number || fits(KILN_I32, n));
  s->e = cast(cx, narrow ? KILN_I32 : KILN_I64, s->e);
}

static void widen_half(kiln_ctx *cx, kiln_tc_value *v) {
  if (kiln_dtype_is_half(v->e->dtype)) v->e = cast(cx, KILN_F32, v->e);
}

bool kiln_tc_convert(kiln_ctx *cx, const kiln_tc_value *v, kiln_dtype t, const kiln_expr **out) {
  kiln_dtype from = v->e->dtype;
  bool weak_fits = v->weak && (kiln_dtype_is_float(t) || !kiln_dtype_is_float(from));
  bool rounds = kiln_dtype_is_half(t) && from == KILN_F32; // computed in f32
  bool to_half_float = kiln_dtype_is_half(t) && !kiln_dtype_is_float(from);
  *out = cast(cx, t, v->e);
  // a plain copy of a half is not rounded through f32
  bool copies = (*out)->kind == KILN_EXPR_CAST && (*out)->args[0]->kind == KILN_EXPR_CAST &&
                (*out)->args[0]->args[0]->dtype == t && rounds;
  if (copies) *out = (*out)->args[0]->args[0];
  if (is_cut(v, t)) return false;
  return from == t || weak_fits || rounds || to_half_float || promoted(from, t) == t;
}

static kiln_status want_number(const kiln_tc_eval *ev, const kiln_tc_expr *e,
                               const kiln_tc_value *v) {
  return v->e != NULL ? KILN_OK : fail_at(ev, e, "a string can only be compared with a string");
}

static kiln_status eval_bool(kiln_tc_eval *ev, const kiln_tc_expr *e, const kiln_expr **out) {
  kiln_tc_value v;
  KILN_TRY(eval(ev, e, &v));
  KILN_TRY(want_number(ev, e, &v));
  kiln_ctx *cx = cx_of(ev);
  *out = v.e;
  if (v.e->dtype == KILN_BOOL) return KILN_OK;
  // as in C: a number is true if it is nonzero
  *out = kiln_binary(cx, KILN_EXPR_NE, v.e, kiln_number(cx, v.e->dtype, 0.0));
  return KILN_OK;
}

// --- names ---

static kiln_status eval_attr(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out) {
  kiln_ctx *cx = cx_of(ev);
  const kiln_tc_attr *a = kiln_tc_find_attr(ev->env, e->name);
  const kiln_attr *n = kiln_tc_find_given(ev->env, e->name);
  if (n == NULL && (a == NULL || !a->has_default) && !ev->env->caller->trial)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, ev->env->caller->place,
                     "%s: the attribute must be given", text_of(ev, e->name));
  kiln_attr_kind kind = n != NULL ? n->kind : a != NULL ? a->kind : KILN_ATTR_INT;
  if (kind == KILN_ATTR_STRING) {
    *out = (kiln_tc_value){NULL, n != NULL ? n->u.s : a->s, true};
  } else if (kind == KILN_ATTR_FLOAT || (a != NULL && a->kind == KILN_ATTR_FLOAT)) {
    // ONNX attributes are f32, and defaults too: in f64 the difference would show
    double f = n == NULL                  ? (double)(float)a->f
               : n->kind == KILN_ATTR_INT ? (double)n->u.i
                                          : (double)n->u.f;
    *out = weak(kiln_float(cx, KILN_F64, f));
  } else if (kind == KILN_ATTR_INT) {
    int64_t otherwise = a != NULL && a->has_default ? a->i : 1; // 1 for trials
    *out = weak(kiln_int(cx, n != NULL ? n->u.i : otherwise));
  } else {
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, ev->env->caller->place,
                     "%s: the attribute must be an int, a float or a string, got another",
                     text_of(ev, e->name));
  }
  return KILN_OK;
}

static kiln_tc_value constant(const kiln_tc_eval *ev, kiln_symbol name) {
  kiln_ctx *cx = cx_of(ev);
  const char *text = text_of(ev, name);
  if (strcmp(text, "inf") == 0) return weak(kiln_float(cx, KILN_F64, (double)INFINITY));
  if (strcmp(text, "nan") == 0) return weak(kiln_float(cx, KILN_F64, (double)NAN));
  return strong(kiln_int_of(cx, KILN_BOOL, strcmp(text, "true") == 0));
}

static kiln_status eval_access(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out);

static kiln_status eval_let(kiln_tc_eval *ev, int clause, kiln_tc_value *out) {
  for (int i = 0; i < ev->lets.n; i++) {
    const kiln_tc_let *l = &ev->lets.data[i];
    if (l->clause != clause || l->guard != ev->guard) continue;
    *out = l->value; // evaluated once: chains of names would otherwise take exponential time
    return KILN_OK;
  }
  int n_lets = ev->scope.n_lets;
  ev->scope.n_lets = clause;
  KILN_TRY(eval(ev, ev->scope.def->stmts[ev->scope.stmt].clauses[clause].lo, out));
  ev->scope.n_lets = n_lets;
  kiln_tc_let l = {clause, ev->guard, *out};
  KILN_VEC_PUSH(&cx_of(ev)->perm, &ev->lets, l);
  return KILN_OK;
}

static kiln_status eval_name(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out) {
  int at;
  const kiln_tc_size *size;
  const char *text = text_of(ev, e->name);
  if (ev->frame != NULL && text[1] == '\0' && text[0] <= 'd') {
    *out = ev->frame[text[0] - 'a'];
    return KILN_OK;
  }
  if (ev->frame != NULL) { // inside a composed function only constants are visible
    *out = constant(ev, e->name);
    return KILN_OK;
  }
  switch (kiln_tc_role_of(&ev->scope, e->name, &at)) {
  case KILN_TC_LETTED: return eval_let(ev, at, out);
  case KILN_TC_INPUT:
  case KILN_TC_WRITTEN: return eval_access(ev, e, out);
  case KILN_TC_ATTRIBUTE: return eval_attr(ev, e, out);
  case KILN_TC_CONSTANT: *out = constant(ev, e->name); return KILN_OK;
  case KILN_TC_SIZE:
    size = kiln_tc_find_size(ev->env, e->name);
    if (size == NULL || size->pack) return fail_at(ev, e, "a pack has no extent; count(N...) does");
    *out = weak(size->extents[0]);
    return KILN_OK;
  case KILN_TC_INDEX:
    for (int k = 0; k < ev->n_axes; k++) {
      if (ev->axes[k].name != e->name || ev->axes[k].pack) continue;
      *out = weak(kiln_var(cx_of(ev), ev->axes[k].vars[0]));
      return KILN_OK;
    }
    break;
  case KILN_TC_TYPEVAR:
  case KILN_TC_UNWRITTEN: break;
  }
  return fail_at(ev, e, "the name has no value here");
}

// --- accesses ---

bool kiln_tc_is_structured(const kiln_tc_scope *s, const kiln_tc_expr *access,
                           const kiln_tc_tensor *t) {
  if (access->n_args != t->n_dims) return false;
  for (int i = 0; i < t->n_dims; i++)
    if ((kiln_tc_pack_in(s, access->args[i]) != NULL) != t->dims[i].pack) return false;
  return true;
}

int kiln_tc_find_axis(const kiln_tc_eval *ev, kiln_symbol name) {
  for (int k = 0; k < ev->n_axes; k++)
    if (ev->axes[k].name == name) return k;
  return -1;
}

typedef struct position {
  const kiln_tc_expr *arg;
  int axis, element;
} position;

// Expands the packs among the arguments; -1 if there are too many.
static int flatten(const kiln_tc_eval *ev, const kiln_tc_expr *e, position *out, int cap) {
  int n = 0;
  for (int i = 0; i < e->n_args; i++) {
    const kiln_tc_expr *a = e->args[i];
    const kiln_tc_expr *pack = kiln_tc_pack_in(&ev->scope, a);
    int axis = pack != NULL ? kiln_tc_find_axis(ev, pack->name) : -1;
    int rank = pack != NULL ? (axis < 0 ? 0 : ev->axes[axis].rank) : 1;
    for (int k = 0; k < rank; k++) {
      if (n == cap) return -1;
      out[n++] = (position){a, axis, k};
    }
  }
  return n;
}

static void set_match(kiln_tc_match *m, int axis_of_tensor, const position *p) {
  m->of[axis_of_tensor].arg = p->arg;
  m->of[axis_of_tensor].axis = p->axis;
  m->of[axis_of_tensor].element = p->element;
  m->of[axis_of_tensor].broadcast = p->axis >= 0 && p->arg->kind == KILN_TC_PACK;
}

kiln_status kiln_tc_match_access(kiln_tc_eval *ev, const kiln_tc_expr *e, const kiln_tc_tensor *t,
                                 kiln_tc_match *out) {
  const kiln_tc_source *src = &ev->env->file->source;
  *out = (kiln_tc_match){.n = t->rank};
  if (!kiln_tc_is_structured(&ev->scope, e, t)) {
    position flat[2 * KILN_MAX_RANK];
    int n = flatten(ev, e, flat, 2 * KILN_MAX_RANK);
    bool loose = (t->n_dims == 1 && t->dims[0].pack) || e->n_args == 1;
    const bool fits = n == t->rank || (loose && n > t->rank);
    if (!fits && !ev->env->caller->trial) // shapes of these inputs do not match
      return KILN_FAIL(src->cx->diag, KILN_BAD_INPUT, ev->env->caller->place,
                       "%s: rank must be %d to fit the other inputs, got %d", text_of(ev, e->name),
                       n, t->rank);
    if (!fits)
      return kiln_tc_fail(src, e->at, NULL, "%s: expected %d dimensions but found %d",
                          text_of(ev, e->name), t->rank, n);
    for (int i = 0; i < t->rank; i++) set_match(out, i, &flat[n - t->rank + i]);
    return KILN_OK;
  }
  int at = 0;
  for (int i = 0; i < e->n_args; i++) {
    const kiln_tc_expr *a = e->args[i];
    const kiln_tc_expr *pack = kiln_tc_pack_in(&ev->scope, a);
    int axis = pack != NULL ? kiln_tc_find_axis(ev, pack->name) : -1;
    int more = axis >= 0 ? ev->axes[axis].rank - t->ranks[i] : 0; // right-aligned
    if (more < 0)
      return kiln_tc_fail(src, a->at, NULL, "%s...: has %d dimensions where %s has %d",
                          text_of(ev, pack->name), ev->axes[axis].rank, text_of(ev, e->name),
                          t->ranks[i]);
    for (int k = 0; k < t->ranks[i]; k++) {
      position p = {a, axis, more + k};
      set_match(out, at++, &p);
    }
  }
  return KILN_OK;
}

// The subscript of a pack's variable: 0 for axes of extent 1, which broadcast.
static const kiln_expr *pack_index(const kiln_tc_eval *ev, const kiln_tc_axis *axis, int element,
                                   const kiln_expr *extent) {
  kiln_ctx *cx = cx_of(ev);
  int64_t one;
  const kiln_expr *v = kiln_var(cx, axis->vars[element]);
  if (kiln_expr_is_int(extent, &one) && one == 1) return kiln_int(cx, 0);
  if (extent == axis->extents[element]) return v;
  // with symbolic sizes either may apply: decided when sizes are bound
  return kiln_binary(cx, KILN_EXPR_MIN, v, kiln_sub(cx, extent, kiln_int(cx, 1)));
}

static kiln_status subscript(kiln_tc_eval *ev, const kiln_tc_expr *access, const kiln_tc_expr *a,
                             const kiln_tc_tensor *t, int axis, const kiln_expr **out) {
  kiln_ctx *cx = cx_of(ev);
  kiln_tc_value v;
  KILN_TRY(eval(ev, a, &v));
  KILN_TRY(want_number(ev, a, &v));
  if (kiln_dtype_is_float(v.e->dtype)) return fail_at(ev, a, "an index must be an integer");
  const kiln_expr *e = cast(cx, KILN_I64, v.e);
  const kiln_expr *lo = t->origins[axis];
  const kiln_expr *hi = kiln_sub(cx, kiln_add(cx, lo, t->extents[axis]), kiln_int(cx, 1));
  *out = kiln_sub(cx, e, lo);
  if (kiln_expr_has_load(e)) { // data-dependent subscripts may have any value
    int64_t extent;
    if (kiln_expr_is_int(t->extents[axis], &extent) && extent == 0)
      return fail_at(ev, a, "the dimension is empty: it has no element that data could choose");
    const kiln_expr *last = kiln_sub(cx, t->extents[axis], kiln_int(cx, 1));
    *out = kiln_binary(cx, KILN_EXPR_MIN, *out, last);
    *out = kiln_binary(cx, KILN_EXPR_MAX, *out, kiln_int(cx, 0));
    const kiln_tc_loose loose = {e,     lo,        t->extents[axis], ev->guard, t->storage[axis],
                                 a->at, access->at};
    KILN_VEC_PUSH(&cx->perm, &ev->loose, loose);
    return KILN_OK;
  }
  kiln_tc_turn turn = ev->guard != NULL ? KILN_TC_IN_BRANCH : KILN_TC_ALWAYS;
  kiln_tc_access read = {{e, lo, hi, false, 0}, turn, ev->guard, a->at, access->at};
  KILN_VEC_PUSH(&cx->perm, &ev->accesses, read);
  return KILN_OK;
}

static bool is_one_element(const kiln_tensor *t) {
  int64_t shape[KILN_MAX_RANK];
  if (!kiln_tensor_static_shape(t, shape)) return false;
  for (int i = 0; i < t->rank; i++)
    if (shape[i] != 1) return false;
  return true;
}

// The value of a constant with one element, so that broadcasts of it fold.
static const kiln_expr *constant_element(kiln_ctx *cx, const kiln_tensor *t) {
  if (t->role != KILN_CONST || t->data == NULL || !is_one_element(t)) return NULL;
  if (kiln_dtype_is_float(t->dtype))
    return kiln_float(cx, t->dtype, kiln_element_get(t->dtype, t->data, 0));
  return kiln_int_of(cx, t->dtype, kiln_element_get_int(t->dtype, t->data, 0));
}

static kiln_status eval_default(kiln_tc_eval *ev, const kiln_tc_expr *e, const kiln_tc_tensor *t,
                                kiln_tc_value *out) {
  const kiln_expr *converted;
  if (t->value != NULL) *out = weak(t->value);
  else KILN_TRY(eval(ev, t->otherwise, out));
  KILN_TRY(want_number(ev, e, out));
  if (!kiln_tc_convert(cx_of(ev), out, t->type, &converted))
    return fail_at(ev, t->value != NULL ? e : t->otherwise, "the number does not fit the type");
  *out = strong(converted);
  return KILN_OK;
}

static kiln_status eval_access(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out) {
  kiln_ctx *cx = cx_of(ev);
  const kiln_tc_tensor *t = kiln_tc_find_tensor(ev->env, e->name);
  if (t == NULL) return fail_at(ev, e, "the tensor has no value here");
  if (t->tensor == NULL) return eval_default(ev, e, t, out);
  const kiln_expr *index[KILN_MAX_RANK], *number = constant_element(cx, t->tensor);
  for (int i = 0; i < t->tensor->rank; i++) index[i] = kiln_int(cx, 0);
  bool scalar = t->n_dims == 0 && e->n_args == 0; // a scalar may be stored with any rank
  kiln_tc_match m = {0};
  if (!scalar) KILN_TRY(kiln_tc_match_access(ev, e, t, &m));
  for (int i = 0; i < m.n; i++) {
    const kiln_tc_axis *axis = m.of[i].axis >= 0 ? &ev->axes[m.of[i].axis] : NULL;
    int outer = ev->from_right;
    if (axis != NULL) ev->from_right = axis->rank - m.of[i].element;
    if (m.of[i].broadcast && kiln_expr_is_zero(t->origins[i]))
      index[t->storage[i]] = pack_index(ev, axis, m.of[i].element, t->extents[i]);
    else KILN_TRY(subscript(ev, e, m.of[i].arg, t, i, &index[t->storage[i]]));
    ev->from_right = outer;
  }
  *out = strong(number != NULL ? number : kiln_tensor_load(cx, t->tensor, index));
  return KILN_OK;
}

// --- calls and operators ---

static const kiln_expr *linear_index(const kiln_tc_eval *ev, int axis) {
  kiln_ctx *cx = cx_of(ev);
  const kiln_expr *n = kiln_int(cx, 0);
  for (int k = 0; axis >= 0 && k < ev->axes[axis].rank; k++) {
    const kiln_expr *extent = ev->axes[axis].extents[k];
    if (extent != NULL) n = kiln_mul(cx, n, extent);
    n = kiln_add(cx, n, kiln_var(cx, ev->axes[axis].vars[k]));
  }
  return n;
}

// The conjunction of the condition over all axes of its packs.
static kiln_status eval_all(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out) {
  kiln_ctx *cx = cx_of(ev);
  const kiln_tc_expr *pack = kiln_tc_pack_in(&ev->scope, e->args[0]);
  int k = pack != NULL ? kiln_tc_find_axis(ev, pack->name) : -1, outer = ev->from_right;
  const kiln_expr *all = kiln_int_of(cx, KILN_BOOL, 1), *one;
  for (int i = k >= 0 ? ev->axes[k].rank : 0; i > 0; i--) {
    ev->from_right = i;
    KILN_TRY(eval_bool(ev, e->args[0], &one));
    all = kiln_binary(cx, KILN_EXPR_AND, all, one);
  }
  ev->from_right = outer;
  *out = strong(all);
  return KILN_OK;
}

static kiln_status eval_special(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out,
                                bool *out_done) {
  kiln_ctx *cx = cx_of(ev);
  const char *text = text_of(ev, e->name);
  kiln_symbol arg = e->n_args == 1 ? e->args[0]->name : 0;
  kiln_dtype t;
  *out_done = true;
  if (strcmp(text, "given") == 0) {
    const kiln_tc_tensor *tensor = kiln_tc_find_tensor(ev->env, arg);
    bool has = tensor != NULL ? tensor->tensor != NULL || tensor->value != NULL
                              : kiln_tc_find_given(ev->env, arg) != NULL;
    *out = strong(kiln_int_of(cx, KILN_BOOL, has));
    return KILN_OK;
  }
  if (strcmp(text, "count") == 0) {
    const kiln_tc_size *s = kiln_tc_find_size(ev->env, arg);
    const kiln_expr *n = kiln_int(cx, 1);
    for (int i = 0; s != NULL && i < s->rank; i++) n = kiln_mul(cx, n, s->extents[i]);
    *out = weak(n);
    return KILN_OK;
  }
  if (strcmp(text, "linear") == 0) {
    *out = weak(linear_index(ev, kiln_tc_find_axis(ev, arg)));
    return KILN_OK;
  }
  if (strcmp(text, "all") == 0) return eval_all(ev, e, out);
  bool lowest = strcmp(text, "lowest") == 0;
  *out_done = lowest || strcmp(text, "highest") == 0;
  if (!*out_done) return KILN_OK;
  if (!kiln_tc_type_named(ev->env, arg, &t)) return fail_at(ev, e, "no such type");
  const kiln_expr *identity = kiln_combiner_identity(
      cx, lowest ? KILN_COMBINE_MAX : KILN_COMBINE_MIN, t == KILN_BOOL ? KILN_U8 : t);
  *out = strong(identity);
  return KILN_OK;
}

static bool takes_ints(kiln_expr_kind k) {
  return k == KILN_EXPR_ABS || k == KILN_EXPR_SIGN || k == KILN_EXPR_BNOT || k == KILN_EXPR_NEG;
}

static bool rounds(kiln_expr_kind k) {
  return k == KILN_EXPR_FLOOR || k == KILN_EXPR_CEIL || k == KILN_EXPR_ROUND ||
         k == KILN_EXPR_TRUNC;
}

static kiln_tc_value call_unary(kiln_ctx *cx, kiln_expr_kind k, kiln_tc_value a) {
  widen_half(cx, &a);
  bool is_float = kiln_dtype_is_float(a.e->dtype);
  if (!is_float && rounds(k)) return a;
  if (!is_float && !takes_ints(k)) a.e = cast(cx, a.weak ? KILN_F64 : KILN_F32, a.e);
  a.e = kiln_unary(cx, k, a.e);
  if (a.e->dtype == KILN_BOOL) a.weak = false;
  return a;
}

static bool is_bitwise(kiln_expr_kind k) {
  return k == KILN_EXPR_BAND || k == KILN_EXPR_BOR || k == KILN_EXPR_BXOR || k == KILN_EXPR_SHL ||
         k == KILN_EXPR_SHR;
}

static bool is_comparison(kiln_expr_kind k) {
  return k == KILN_EXPR_LT || k == KILN_EXPR_LE || k == KILN_EXPR_GT || k == KILN_EXPR_GE ||
         k == KILN_EXPR_EQ || k == KILN_EXPR_NE;
}

static kiln_status apply(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_expr_kind k, kiln_tc_value a,
                         kiln_tc_value b, kiln_tc_value *out) {
  kiln_ctx *cx = cx_of(ev);
  widen_half(cx, &a); // before the number is converted to a half
  widen_half(cx, &b);
  if (is_comparison(k)) widen_compared(cx, &a, &b);
  KILN_TRY(unify(ev, e, &a, &b));
  kiln_dtype t = a.e->dtype;
  bool only_floats = k == KILN_EXPR_POW || k == KILN_EXPR_ATAN2;
  if (only_floats && !kiln_dtype_is_float(t)) {
    t = a.weak ? KILN_F64 : KILN_F32;
    a.e = cast(cx, t, a.e);
    b.e = cast(cx, t, b.e);
  }
  if ((is_bitwise(k) || k == KILN_EXPR_TDIV) && kiln_dtype_is_float(t))
    return fail_at(ev, e, "the operands must be integers");
  if (t == KILN_BOOL && !is_bitwise(k) && !is_comparison(k)) {
    t = KILN_I32;
    a.e = cast(cx, t, a.e);
    b.e = cast(cx, t, b.e);
  }
  out->e = k == KILN_EXPR_POW ? kiln_power(cx, a.e, b.e) : kiln_binary(cx, k, a.e, b.e);
  out->s = 0;
  out->weak = a.weak && !is_comparison(k);
  return KILN_OK;
}

// Converts the arguments to a common type, which is the result's; wide functions compute in double.
static kiln_status call_composed(kiln_tc_eval *ev, const kiln_tc_expr *e, const kiln_tc_composed *f,
                                 kiln_tc_value *args, kiln_tc_value *out) {
  kiln_ctx *cx = cx_of(ev);
  for (int i = 0; i < f->n_args; i++) widen_half(cx, &args[i]);
  // Twice: the first argument's type may depend on the last's.
  for (int round = 0; round < 2; round++)
    for (int i = 1; i < f->n_args; i++) KILN_TRY(unify(ev, e, &args[i - 1], &args[i]));
  bool is_weak = args[0].weak;
  kiln_dtype t = args[0].e->dtype;
  if (!kiln_dtype_is_float(t)) t = is_weak ? KILN_F64 : KILN_F32;
  for (int i = 0; i < f->n_args && f->wide; i++) args[i] = strong(cast(cx, KILN_F64, args[i].e));
  if (f->text == NULL) {
    *out = (kiln_tc_value){cast(cx, t, f->build(cx, args[0].e)), 0, is_weak};
    return KILN_OK;
  }
  kiln_tc_source source = {cx, f->name, f->text, KILN_INTERNAL, false};
  kiln_tc_expr *body = NULL;
  KILN_TRY(kiln_tc_parse_expression(&source, &body));
  const kiln_tc_value *outer = ev->frame;
  ev->frame = args;
  KILN_TRY(eval(ev, body, out));
  ev->frame = outer;
  if (f->wide) *out = (kiln_tc_value){cast(cx, t, out->e), 0, is_weak};
  return KILN_OK;
}

static kiln_status eval_call(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out) {
  kiln_ctx *cx = cx_of(ev);
  int at, n;
  bool done;
  kiln_dtype t;
  kiln_expr_kind k;
  if (ev->frame == NULL) {
    kiln_tc_role role = kiln_tc_role_of(&ev->scope, e->name, &at);
    if (role == KILN_TC_INPUT || role == KILN_TC_WRITTEN) return eval_access(ev, e, out);
    KILN_TRY(eval_special(ev, e, out, &done));
    if (done) return KILN_OK;
  }
  kiln_tc_value args[KILN_TC_MAX_ARGS];
  for (int i = 0; i < e->n_args; i++) {
    KILN_TRY(eval(ev, e->args[i], &args[i]));
    KILN_TRY(want_number(ev, e->args[i], &args[i]));
  }
  if (kiln_tc_type_named(ev->env, e->name, &t)) {
    *out = strong(cast(cx, t, args[0].e));
    return KILN_OK;
  }
  const kiln_tc_composed *composed = kiln_tc_find_composed(text_of(ev, e->name));
  if (composed != NULL) return call_composed(ev, e, composed, args, out);
  if (!kiln_tc_function(text_of(ev, e->name), &k, &n)) return fail_at(ev, e, "no such function");
  if (n == 1) {
    *out = call_unary(cx, k, args[0]);
    return KILN_OK;
  }
  return apply(ev, e, k, args[0], args[1], out);
}

static kiln_status eval_unary(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out) {
  kiln_ctx *cx = cx_of(ev);
  if (e->op == KILN_EXPR_NOT) {
    const kiln_expr *c;
    KILN_TRY(eval_bool(ev, e->args[0], &c));
    *out = strong(kiln_unary(cx, KILN_EXPR_NOT, c));
    return KILN_OK;
  }
  kiln_tc_value a;
  KILN_TRY(eval(ev, e->args[0], &a));
  KILN_TRY(want_number(ev, e->args[0], &a));
  if (a.e->dtype == KILN_BOOL) a.e = cast(cx, KILN_I32, a.e);
  *out = call_unary(cx, KILN_EXPR_NEG, a);
  return KILN_OK;
}

static kiln_status eval_binary(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out) {
  kiln_ctx *cx = cx_of(ev);
  if (e->op == KILN_EXPR_AND || e->op == KILN_EXPR_OR) {
    const kiln_expr *a, *b;
    int64_t known;
    KILN_TRY(eval_bool(ev, e->args[0], &a));
    bool decided = kiln_expr_is_int(a, &known) && (known != 0) == (e->op == KILN_EXPR_OR);
    if (!decided) KILN_TRY(eval_bool(ev, e->args[1], &b));
    *out = strong(decided ? a : kiln_binary(cx, e->op, a, b));
    return KILN_OK;
  }
  kiln_tc_value a, b;
  KILN_TRY(eval(ev, e->args[0], &a));
  KILN_TRY(eval(ev, e->args[1], &b));
  bool strings = a.e == NULL && b.e == NULL && (e->op == KILN_EXPR_EQ || e->op == KILN_EXPR_NE);
  if (strings) {
    *out = strong(kiln_int_of(cx, KILN_BOOL, (a.s == b.s) == (e->op == KILN_EXPR_EQ)));
    return KILN_OK;
  }
  KILN_TRY(want_number(ev, e->args[0], &a));
  KILN_TRY(want_number(ev, e->args[1], &b));
  return apply(ev, e, e->op, a, b, out);
}

static kiln_status eval_branch(kiln_tc_eval *ev, const kiln_tc_expr *e, const kiln_expr *condition,
                               kiln_tc_value *out) {
  const kiln_expr *outer = ev->guard;
  ev->guard = outer == NULL ? condition : kiln_binary(cx_of(ev), KILN_EXPR_AND, outer, condition);
  KILN_TRY(eval(ev, e, out));
  ev->guard = outer;
  return KILN_OK;
}

// The negation as an inverted comparison, which proofs can use; negates both operands of a || b.
static const kiln_expr *negation(kiln_ctx *cx, const kiln_expr *c) {
  static const struct {
    kiln_expr_kind from, to;
  } rows[] = {{KILN_EXPR_LT, KILN_EXPR_GE}, {KILN_EXPR_GE, KILN_EXPR_LT},
              {KILN_EXPR_GT, KILN_EXPR_LE}, {KILN_EXPR_LE, KILN_EXPR_GT},
              {KILN_EXPR_EQ, KILN_EXPR_NE}, {KILN_EXPR_NE, KILN_EXPR_EQ}};
  if (c->kind == KILN_EXPR_NOT) return c->args[0];
  if (c->kind == KILN_EXPR_OR)
    return kiln_binary(cx, KILN_EXPR_AND, negation(cx, c->args[0]), negation(cx, c->args[1]));
  for (size_t i = 0; i < KILN_LEN(rows); i++)
    if (c->kind == rows[i].from && !kiln_dtype_is_float(c->args[0]->dtype))
      return kiln_binary(cx, rows[i].to, c->args[0], c->args[1]);
  return kiln_unary(cx, KILN_EXPR_NOT, c);
}

static kiln_status eval_ternary(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out) {
  kiln_ctx *cx = cx_of(ev);
  const kiln_expr *c;
  int64_t known;
  KILN_TRY(eval_bool(ev, e->args[0], &c));
  if (kiln_expr_is_int(c, &known)) return eval(ev, e->args[known != 0 ? 1 : 2], out);
  kiln_tc_value a, b;
  KILN_TRY(eval_branch(ev, e->args[1], c, &a));
  KILN_TRY(eval_branch(ev, e->args[2], negation(cx, c), &b));
  KILN_TRY(want_number(ev, e->args[1], &a));
  KILN_TRY(want_number(ev, e->args[2], &b));
  if (a.weak && b.weak && a.e->dtype != b.e->dtype) {
    a.e = cast(cx, KILN_F64, a.e);
    b.e = cast(cx, KILN_F64, b.e);
  }
  KILN_TRY(unify(ev, e, &a, &b));
  *out = (kiln_tc_value){kiln_select(cx, c, a.e, b.e), 0, a.weak};
  return KILN_OK;
}

// The index or size of a pack at one axis.
static kiln_status eval_pack(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out) {
  const kiln_tc_size *size = kiln_tc_find_size(ev->env, e->name);
  int k = kiln_tc_find_axis(ev, e->name);
  int rank = k >= 0 ? ev->axes[k].rank : size != NULL && size->pack ? size->rank : 0;
  int at = rank - ev->from_right;
  if (ev->from_right == 0) return fail_at(ev, e, "a pack may only be an index of a tensor");
  if (at < 0)
    return kiln_tc_fail(&ev->env->file->source, e->at, NULL,
                        "%s...: must have as many elements as the other packs, got %d",
                        text_of(ev, e->name), rank);
  *out = weak(k >= 0 ? kiln_var(cx_of(ev), ev->axes[k].vars[at]) : size->extents[at]);
  return KILN_OK;
}

static kiln_status eval_extent(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out) {
  const kiln_tc_tensor *t = kiln_tc_find_tensor(ev->env, e->name);
  if (t == NULL || t->tensor == NULL || e->i >= t->rank)
    return fail_at(ev, e, "the tensor has no such axis");
  *out = weak(t->extents[e->i]);
  return KILN_OK;
}

static kiln_status eval(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out) {
  kiln_ctx *cx = cx_of(ev);
  *out = (kiln_tc_value){0};
  switch (e->kind) {
  case KILN_TC_INT: *out = weak(kiln_int(cx, e->i)); return KILN_OK;
  case KILN_TC_FLOAT: *out = weak(kiln_float(cx, KILN_F64, e->f)); return KILN_OK;
  case KILN_TC_STRING: *out = (kiln_tc_value){NULL, e->name, true}; return KILN_OK;
  case KILN_TC_NAME: return eval_name(ev, e, out);
  case KILN_TC_CALL: return eval_call(ev, e, out);
  case KILN_TC_EXTENT: return eval_extent(ev, e, out);
  case KILN_TC_UNARY: return eval_unary(ev, e, out);
  case KILN_TC_BINARY: return eval_binary(ev, e, out);
  case KILN_TC_TERNARY: return eval_ternary(ev, e, out);
  case KILN_TC_PACK: return eval_pack(ev, e, out);
  }
  return fail_at(ev, e, "a pack may only be an index of a tensor");
}

kiln_status kiln_tc_evaluate(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_value *out) {
  KILN_TRY(eval(ev, e, out));
  return want_number(ev, e, out);
}

kiln_status kiln_tc_evaluate_size(kiln_tc_eval *ev, const kiln_tc_expr *e, const kiln_expr **out) {
  kiln_tc_value v;
  KILN_TRY(kiln_tc_evaluate(ev, e, &v));
  *out = v.e;
  return v.e->dtype == KILN_I64 ? KILN_OK : fail_at(ev, e, "a range must be of integers");
}

kiln_status kiln_tc_evaluate_condition(kiln_tc_eval *ev, const kiln_tc_expr *e, bool *out) {
  const kiln_expr *c;
  int64_t known = 0;
  KILN_TRY(eval_bool(ev, e, &c));
  bool fixed = kiln_expr_is_int(c, &known);
  *out = known != 0 || !fixed; // decided when sizes are bound
  return KILN_OK;
}

kiln_status kiln_tc_visit_accesses(kiln_tc_eval *ev, const kiln_tc_expr *e, kiln_tc_visit visit) {
  int at, first = 0, end = e->n_args;
  if (e->kind == KILN_TC_NAME || e->kind == KILN_TC_CALL) {
    kiln_tc_role role = kiln_tc_role_of(&ev->scope, e->name, &at);
    const kiln_tc_tensor *t = kiln_tc_find_tensor(ev->env, e->name);
    bool access = role == KILN_TC_INPUT || role == KILN_TC_WRITTEN;
    if (access && t != NULL && t->tensor != NULL) KILN_TRY(visit(ev, e, t));
  }
  if (e->kind == KILN_TC_TERNARY && kiln_tc_is_static(&ev->scope, e->args[0])) {
    const kiln_expr *c;
    int64_t known;
    KILN_TRY(eval_bool(ev, e->args[0], &c));
    if (kiln_expr_is_int(c, &known)) {
      first = known != 0 ? 1 : 2;
      end = first + 1;
    }
  }
  for (int i = first; i < end; i++) KILN_TRY(kiln_tc_visit_accesses(ev, e->args[i], visit));
  return KILN_OK;
}

// The invariants of prim programs.
#include "ir/prim.h"

#include "ir/check.h"

// State shared by the checks of a program.
typedef struct verifier {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_bits *late; // constants without data yet; NULL: none
  kiln_map named;        // named dimensions: variables of shapes
  const char *place;
  int before; // statements before this one may be read
  int own;    // the tensor written by a scatter, which it may read; -1: none
} verifier;

#define BREACH(v, ...) KILN_FAIL((v)->cx->diag, KILN_INTERNAL, (v)->place, __VA_ARGS__)

static const char *tensor_name(const verifier *v, const kiln_tensor *t) {
  return kiln_symbol_text(v->cx, t->name);
}

// Whether |t| is computed when statement |before| runs.
static bool is_available(const kiln_tensor *t, int before) {
  if (t->role == KILN_INPUT || t->role == KILN_CONST) return true;
  return t->def >= 0 && t->def < before;
}

static kiln_status check_load(const kiln_checker *c, const kiln_expr *e) {
  const verifier *v = c->argument;
  const int n = v->p->tensors.n;
  if (e->u.tensor < 0 || e->u.tensor >= n)
    return BREACH(v, "a load must be of a tensor below %d, got %d", n, e->u.tensor);
  const kiln_tensor *t = v->p->tensors.data[e->u.tensor];
  if (e->dtype != t->dtype)
    return BREACH(v, "a load of %s must be %s, got %s", tensor_name(v, t),
                  kiln_dtype_text(t->dtype), kiln_dtype_text(e->dtype));
  if (e->n_args != t->rank)
    return BREACH(v, "a load of %s must have %d indices, got %d", tensor_name(v, t), t->rank,
                  e->n_args);
  if (!is_available(t, v->before) && t->id != v->own)
    return BREACH(v, "a load of %s must come after the statement that writes it",
                  tensor_name(v, t));
  return KILN_OK;
}

static kiln_status check_order(const verifier *v, const kiln_tensor *t) {
  unsigned seen = 0;
  for (int i = 0; i < t->rank; i++) {
    if (t->order[i] < 0 || t->order[i] >= t->rank || (seen >> t->order[i] & 1))
      return BREACH(v, "the order must be a permutation of %d axes, got %d at %d", t->rank,
                    t->order[i], i);
    seen |= 1u << t->order[i];
  }
  return KILN_OK;
}

static kiln_status check_def(const verifier *v, const kiln_tensor *t) {
  const bool is_given = t->role == KILN_INPUT || t->role == KILN_CONST;
  if (is_given && t->def >= 0)
    return BREACH(v, "an input or constant must not be written, got statement %d", t->def);
  if (t->role == KILN_OUTPUT && t->def < 0)
    return BREACH(v, "an output must be written by a statement, got none");
  if (t->def < 0) return KILN_OK;
  if (t->def >= v->p->stmts.n || v->p->stmts.data[t->def]->out != t->id)
    return BREACH(v, "its statement must write it, got statement %d", t->def);
  return KILN_OK;
}

static kiln_status check_constant(const verifier *v, const kiln_tensor *t) {
  if (t->role != KILN_CONST) return KILN_OK;
  const int64_t elems = kiln_tensor_elems(t);
  if (elems < 0) return BREACH(v, "a constant must have a static shape, got a symbolic one");
  const bool has_data = t->data || t->bytes == 0 || (v->late && kiln_bits_has(v->late, t->id));
  if (t->bytes != (size_t)elems * (size_t)kiln_dtype_bytes(t->dtype) || !has_data)
    return BREACH(v, "a constant must have its %" PRId64 " elements, got %zu bytes", elems,
                  t->bytes);
  return KILN_OK;
}

// The place is built for everything checked, also valid things, so it avoids printf.
static kiln_text begin_place(const verifier *v) {
  kiln_text place;
  kiln_text_init(&place, &v->cx->scratch);
  kiln_text_add(&place, "program ");
  kiln_text_add(&place, kiln_symbol_text(v->cx, v->p->name));
  return place;
}

static kiln_status check_tensor(verifier *v, kiln_map *names, int id) {
  const kiln_tensor *t = v->p->tensors.data[id];
  kiln_text place = begin_place(v);
  kiln_text_add(&place, ": tensor ");
  kiln_text_add(&place, tensor_name(v, t));
  v->place = place.data;
  if (t->id != id) return BREACH(v, "its id must be %d, got %d", id, t->id);
  if (!t->name || kiln_map_find(names, t->name))
    return BREACH(v, "its name must be its own, got one that is taken or empty");
  kiln_map_put(names, t->name, 1);
  if (t->rank < 0 || t->rank > KILN_MAX_RANK)
    return BREACH(v, "its rank must be in [0, %d], got %d", KILN_MAX_RANK, t->rank);
  const kiln_checker c = {.cx = v->cx, .place = v->place, .vars = &v->named};
  for (int i = 0; i < t->rank; i++) {
    KILN_TRY(kiln_check_expr(&c, "its extent", KILN_I64, t->shape[i]));
    int64_t extent;
    if (kiln_expr_is_int(t->shape[i], &extent) && extent < 0)
      return BREACH(v, "its extents must not be negative, got %" PRId64, extent);
  }
  KILN_TRY(check_order(v, t));
  KILN_TRY(check_def(v, t));
  return check_constant(v, t);
}

static void collect_named(verifier *v) {
  for (int i = 0; i < v->p->tensors.n; i++) {
    const kiln_tensor *t = v->p->tensors.data[i];
    for (int k = 0; k < t->rank && k < KILN_MAX_RANK; k++) {
      const kiln_expr *e = t->shape[k];
      for (int j = 0; e && j < e->vars->n; j++) kiln_map_put(&v->named, e->vars->vars[j], 1);
    }
  }
}

static kiln_status check_dims(const verifier *v, const kiln_checker *c, const kiln_stmt *s,
                              kiln_map *dims) {
  for (int i = 0; i < s->n_space + s->n_reduce; i++) {
    const kiln_symbol name = s->dims[i].name;
    if (!name || kiln_map_find(dims, name))
      return BREACH(v, "the names of its dims must differ, got '%s' twice or none",
                    kiln_symbol_text(v->cx, name));
    // Extents are over named dimensions, not over outer dims.
    const kiln_checker outer = {.cx = v->cx, .place = v->place, .vars = c->more};
    KILN_TRY(kiln_check_expr(&outer, "the extent of a dim", KILN_I64, s->dims[i].extent));
    kiln_map_put(dims, name, 1);
  }
  return KILN_OK;
}

static kiln_status check_init(const verifier *v, const kiln_checker *c, const kiln_stmt *s,
                              const kiln_tensor *out) {
  if (!s->init) return KILN_OK;
  kiln_map axes;
  kiln_map_init(&axes, &v->cx->scratch);
  for (int i = 0; i < out->rank; i++) kiln_map_put(&axes, kiln_symbol_printf(v->cx, "o%d", i), 1);
  kiln_checker over_output = *c;
  over_output.vars = &axes;
  return kiln_check_expr(&over_output, "its init", out->dtype, s->init);
}

static kiln_status check_stmt(verifier *v, int id) {
  const kiln_stmt *s = v->p->stmts.data[id];
  const char *origin = kiln_symbol_text(v->cx, s->origin);
  kiln_text place = begin_place(v);
  kiln_text_add(&place, ": statement ");
  kiln_text_add_int(&place, id);
  if (*origin) kiln_text_add(&place, " (");
  kiln_text_add(&place, origin);
  if (*origin) kiln_text_add(&place, ")");
  v->place = place.data;
  v->before = id;
  v->own = s->init ? s->out : -1;
  if (s->id != id) return BREACH(v, "its id must be %d, got %d", id, s->id);
  if (s->out < 0 || s->out >= v->p->tensors.n || v->p->tensors.data[s->out]->def != id)
    return BREACH(v, "the tensor it writes must name it, got tensor %d", s->out);
  const kiln_tensor *out = v->p->tensors.data[s->out];
  if (s->n_space < 0 || s->n_reduce < 0)
    return BREACH(v, "its numbers of dims must not be negative, got %d and %d", s->n_space,
                  s->n_reduce);
  if (s->combiner != KILN_COMBINE_NONE && kiln_dtype_is_code(out->dtype))
    return BREACH(v, "a combined type must not be an encoding, got %s",
                  kiln_dtype_text(out->dtype));
  if (s->combiner == KILN_COMBINE_NONE && s->n_reduce > 0 && !s->init)
    return BREACH(v, "a reduction must have a combiner, got none");
  kiln_map dims;
  kiln_map_init(&dims, &v->cx->scratch);
  const kiln_checker c = {.cx = v->cx,
                          .place = v->place,
                          .vars = &dims,
                          .more = &v->named,
                          .load = check_load,
                          .argument = v};
  KILN_TRY(check_dims(v, &c, s, &dims));
  for (int i = 0; i < out->rank; i++)
    KILN_TRY(kiln_check_expr(&c, "its index", KILN_I64, s->index[i]));
  KILN_TRY(kiln_check_expr(&c, "its body", out->dtype, s->body));
  if (s->guard) KILN_TRY(kiln_check_expr(&c, "its guard", KILN_BOOL, s->guard));
  v->own = -1;
  return check_init(v, &c, s, out);
}

// Checks the outputs that hold shapes of others.
static kiln_status check_shapes(verifier *v) {
  const kiln_program *p = v->p;
  const int first = kiln_program_n_results(p);
  for (int i = 0; i < p->shape_of.n; i++) {
    const int of = p->shape_of.data[i];
    if (first < 0 || of < 0 || of >= first)
      return BREACH(v, "shape %d must be of an output before the shapes, got %d", i, of);
    const kiln_tensor *t = p->tensors.data[p->outputs.data[first + i]];
    int64_t n = 0;
    if (t->dtype != KILN_I64 || t->rank != 1 || !kiln_expr_is_int(t->shape[0], &n) ||
        n != p->tensors.data[p->outputs.data[of]]->rank)
      return BREACH(v, "shape %d must be an i64 for every axis of output %d", i, of);
  }
  return KILN_OK;
}

// Checks the output that holds the results of checks.
static kiln_status check_checks(verifier *v) {
  const kiln_program *p = v->p;
  int64_t n = 0;
  if (p->checks.n == 0) return KILN_OK;
  const kiln_tensor *t = p->outputs.n ? p->tensors.data[p->outputs.data[p->outputs.n - 1]] : NULL;
  if (!t || t->dtype != KILN_I64 || t->rank != 1 || !kiln_expr_is_int(t->shape[0], &n) ||
      n != p->checks.n)
    return BREACH(v, "the last output must be an i64 for each of %d checks", p->checks.n);
  return KILN_OK;
}

static kiln_status check_interface(verifier *v) {
  v->place = begin_place(v).data;
  const int n = v->p->tensors.n;
  for (int i = 0; i < v->p->inputs.n; i++) {
    const int t = v->p->inputs.data[i];
    if (t < 0 || t >= n || v->p->tensors.data[t]->role != KILN_INPUT)
      return BREACH(v, "input %d must be an INPUT tensor, got tensor %d", i, t);
  }
  for (int i = 0; i < v->p->outputs.n; i++) {
    const int t = v->p->outputs.data[i];
    if (t < 0 || t >= n || !is_available(v->p->tensors.data[t], v->p->stmts.n))
      return BREACH(v, "output %d must be a tensor that is given or written, got tensor %d", i, t);
  }
  KILN_TRY(check_shapes(v));
  return check_checks(v);
}

static kiln_status verify(verifier *v) {
  kiln_map names;
  kiln_map_init(&names, &v->cx->scratch);
  kiln_map_init(&v->named, &v->cx->scratch);
  collect_named(v);
  for (int i = 0; i < v->p->tensors.n; i++) KILN_TRY(check_tensor(v, &names, i));
  for (int i = 0; i < v->p->stmts.n; i++) KILN_TRY(check_stmt(v, i));
  return check_interface(v);
}

kiln_status kiln_program_verify(kiln_ctx *cx, const kiln_program *p) {
  return kiln_program_verify_without(cx, p, NULL);
}

kiln_status kiln_program_verify_without(kiln_ctx *cx, const kiln_program *p,
                                        const kiln_bits *late) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  verifier v = {.cx = cx, .p = p, .late = late};
  const kiln_status status = verify(&v);
  kiln_arena_rewind(&cx->scratch, mark);
  return status;
}

// The invariants of loop programs.
#include "ir/loop.h"

#include "ir/check.h"
#include "support/bits.h"

typedef struct verifier {
  kiln_ctx *cx;
  const kiln_loops *l;
  const char *place;
  kiln_map vars;        // every loop variable seen so far: 1 inside of its loop, 0 after it
  kiln_bits *in_scope;  // buffers
  kiln_bits *allocated; // buffers whose ALLOC was visited
  unsigned bound;       // bit mask of kiln_how of the enclosing loops
  kiln_checker checker;
} verifier;

#define BREACH(v, ...) KILN_FAIL((v)->cx->diag, KILN_INTERNAL, (v)->place, __VA_ARGS__)

static const char *buffer_name(const verifier *v, int b) {
  return kiln_symbol_text(v->cx, v->l->buffers.data[b]->name);
}

static kiln_status check_buffer_use(const verifier *v, int b) {
  if (b < 0 || b >= v->l->buffers.n)
    return BREACH(v, "a buffer must be below %d, got %d", v->l->buffers.n, b);
  if (kiln_bits_has(v->in_scope, b)) return KILN_OK;
  return BREACH(v, "buffer %s must be used inside its alloc", buffer_name(v, b));
}

static kiln_status check_load(const kiln_checker *c, const kiln_expr *e) {
  const verifier *v = c->argument;
  KILN_TRY(check_buffer_use(v, e->u.tensor));
  const kiln_buffer *b = v->l->buffers.data[e->u.tensor];
  if (e->dtype != b->dtype)
    return BREACH(v, "a load of %s must be %s, got %s", buffer_name(v, b->id),
                  kiln_dtype_text(b->dtype), kiln_dtype_text(e->dtype));
  if (e->n_args != b->rank)
    return BREACH(v, "a load of %s must have %d indices, got %d", buffer_name(v, b->id), b->rank,
                  e->n_args);
  return KILN_OK;
}

static kiln_status check_pack(const verifier *v, const kiln_buffer *b) {
  if (b->scope != KILN_SCOPE_PARAM || b->pack->source < 0)
    return BREACH(v, "a packed buffer must be a param with a source");
  kiln_map axes;
  kiln_map_init(&axes, &v->cx->scratch);
  for (int i = 0; i < b->rank; i++) kiln_map_put(&axes, kiln_symbol_printf(v->cx, "o%d", i), 1);
  const kiln_checker c = {.cx = v->cx, .place = v->place, .vars = &axes};
  for (int i = 0; i < b->pack->rank; i++)
    KILN_TRY(kiln_check_expr(&c, "the map of its pack", KILN_I64, b->pack->map[i]));
  return KILN_OK;
}

static kiln_status check_buffer(verifier *v, kiln_map *names, int id) {
  const kiln_buffer *b = v->l->buffers.data[id];
  v->place = kiln_arena_printf(&v->cx->scratch, "kernel %s: buffer %s",
                               kiln_symbol_text(v->cx, v->l->name), buffer_name(v, id));
  if (b->id != id) return BREACH(v, "its id must be %d, got %d", id, b->id);
  if (!b->name || kiln_map_find(names, b->name))
    return BREACH(v, "its name must be its own, got one that is taken or empty");
  kiln_map_put(names, b->name, 1);
  if (b->rank < 0 || b->rank > KILN_MAX_RANK + 4)
    return BREACH(v, "its rank must be in [0, %d], got %d", KILN_MAX_RANK + 4, b->rank);
  for (int i = 0; i < b->rank; i++) {
    if (b->extents[i] < 0)
      return BREACH(v, "its extents must not be negative, got %" PRId64, b->extents[i]);
  }
  const bool is_argument = kiln_scope_is_argument(b->scope);
  if (is_argument) kiln_bits_set(v->in_scope, id);
  return b->pack ? check_pack(v, b) : KILN_OK;
}

static kiln_status check_nest(verifier *v, const kiln_loop *l, int depth);

static kiln_status check_axis(verifier *v, const kiln_loop *l) {
  const bool block = kiln_how_is_block(l->how), thread = kiln_how_is_thread(l->how);
  const char *var = kiln_symbol_text(v->cx, l->var);
  if (!block && !thread) return KILN_OK;
  if (v->bound >> l->how & 1)
    return BREACH(v, "an axis must be bound once in a nest, got it again at %s", var);
  if (block && v->bound >> KILN_THREAD_X)
    return BREACH(v, "a block loop must lie outside of thread loops, got %s inside one", var);
  v->bound |= 1u << l->how;
  return KILN_OK;
}

static kiln_status check_for(verifier *v, const kiln_loop *l, int depth) {
  KILN_TRY(kiln_check_expr(&v->checker, "the extent of a loop", KILN_I64, l->extent));
  if (!l->var || kiln_map_find(&v->vars, l->var))
    return BREACH(v, "the variables of loops must differ, got '%s' twice or none",
                  kiln_symbol_text(v->cx, l->var));
  if (l->how == KILN_PARALLEL && depth > 0)
    return BREACH(v, "only the outermost loop may be parallel, got %s inside another",
                  kiln_symbol_text(v->cx, l->var));
  kiln_map_put(&v->vars, l->var, 1);
  const unsigned bound = v->bound;
  KILN_TRY(check_axis(v, l));
  KILN_TRY(check_nest(v, l->body, depth + 1));
  v->bound = bound;
  kiln_map_put(&v->vars, l->var, 0);
  return KILN_OK;
}

static kiln_status check_index(const verifier *v, const kiln_loop *l) {
  for (int i = 0; i < v->l->buffers.data[l->buffer]->rank; i++)
    KILN_TRY(kiln_check_expr(&v->checker, "the index of a store", KILN_I64, l->index[i]));
  return KILN_OK;
}

static kiln_status check_store(verifier *v, const kiln_loop *l) {
  KILN_TRY(check_buffer_use(v, l->buffer));
  const kiln_buffer *b = v->l->buffers.data[l->buffer];
  if (b->pack)
    return BREACH(v, "a packed constant must not be written, got %s", buffer_name(v, b->id));
  KILN_TRY(check_index(v, l));
  return kiln_check_expr(&v->checker, "the value of a store", b->dtype, l->value);
}

static kiln_status check_alloc(verifier *v, const kiln_loop *l, int depth) {
  if (l->buffer < 0 || l->buffer >= v->l->buffers.n)
    return BREACH(v, "an alloc must be of a buffer below %d, got %d", v->l->buffers.n, l->buffer);
  const kiln_scope scope = v->l->buffers.data[l->buffer]->scope;
  if (kiln_scope_is_argument(scope))
    return BREACH(v, "an alloc must be of a shared, local or register buffer, got %s",
                  buffer_name(v, l->buffer));
  if (kiln_bits_has(v->allocated, l->buffer))
    return BREACH(v, "a buffer must be allocated once, got %s again", buffer_name(v, l->buffer));
  kiln_bits_set(v->allocated, l->buffer);
  kiln_bits_set(v->in_scope, l->buffer);
  KILN_TRY(check_nest(v, l->body, depth + 1));
  kiln_bits_clear(v->in_scope, l->buffer);
  return KILN_OK;
}

// Variables of tiles are bound in operands only.
static void bind_tile(verifier *v, bool bound) {
  for (int k = 0; k < KILN_MAX_TILE_RANK; k++)
    kiln_map_put(&v->vars, kiln_tile_var(v->cx, k), bound);
}

static kiln_status check_instr(verifier *v, const kiln_loop *l) {
  enum { MEANT = 3 }; // behind as many operands device loops may have numbers
  if (!l->instr) return BREACH(v, "an instr must name its instruction, got none");
  bind_tile(v, true);
  for (int i = 0; i < l->n_operands; i++) {
    const kiln_expr *e = l->operands[i];
    if (!e || (e->kind != KILN_EXPR_LOAD && (i < MEANT || e->dtype != KILN_I64)))
      return BREACH(v, "the operands of an instr must be loads, got another expression at %d", i);
    KILN_TRY(kiln_check_expr(&v->checker, "an operand", e->dtype, e));
  }
  if (l->cond)
    KILN_TRY(kiln_check_expr(&v->checker, "the condition of an instr", KILN_BOOL, l->cond));
  bind_tile(v, false);
  return KILN_OK;
}

// Constraints on the arguments are checked by the target, which defines the statements.
static kiln_status check_device(verifier *v, const kiln_loop *l, int depth) {
  if (!l->op) return BREACH(v, "a statement of device loops must have an operation, got none");
  bind_tile(v, true);
  for (int i = 0; i < l->n_operands; i++)
    KILN_TRY(kiln_check_expr(&v->checker, "an argument", l->operands[i]->dtype, l->operands[i]));
  if (l->cond)
    KILN_TRY(kiln_check_expr(&v->checker, "the condition of a copy", KILN_BOOL, l->cond));
  bind_tile(v, false);
  if (l->var && kiln_map_find(&v->vars, l->var))
    return BREACH(v, "the variables of loops must differ, got '%s' twice",
                  kiln_symbol_text(v->cx, l->var));
  if (l->var) kiln_map_put(&v->vars, l->var, 1);
  KILN_TRY(check_nest(v, l->body, depth + 1));
  if (l->var) kiln_map_put(&v->vars, l->var, 0);
  return KILN_OK;
}

static kiln_status check_loop(verifier *v, const kiln_loop *l, int depth) {
  switch (l->kind) {
  case KILN_LOOP_FOR: return check_for(v, l, depth);
  case KILN_LOOP_IF:
    KILN_TRY(kiln_check_expr(&v->checker, "the condition of an if", KILN_BOOL, l->cond));
    return check_nest(v, l->body, depth + 1);
  case KILN_LOOP_STORE: return check_store(v, l);
  case KILN_LOOP_ALLOC: return check_alloc(v, l, depth);
  case KILN_LOOP_INSTR: return check_instr(v, l);
  case KILN_LOOP_PREFETCH: KILN_TRY(check_buffer_use(v, l->buffer)); return check_index(v, l);
  case KILN_LOOP_DEVICE: return check_device(v, l, depth);
  }
  return BREACH(v, "a loop must be of a known kind, got %d", (int)l->kind);
}

static kiln_status check_nest(verifier *v, const kiln_loop *l, int depth) {
  for (; l; l = l->next) KILN_TRY(check_loop(v, l, depth));
  return KILN_OK;
}

static kiln_status verify(verifier *v) {
  kiln_map names;
  kiln_map_init(&names, &v->cx->scratch);
  kiln_map_init(&v->vars, &v->cx->scratch);
  v->in_scope = kiln_bits_make(&v->cx->scratch, v->l->buffers.n);
  v->allocated = kiln_bits_make(&v->cx->scratch, v->l->buffers.n);
  bind_tile(v, false);
  for (int i = 0; i < v->l->buffers.n; i++) KILN_TRY(check_buffer(v, &names, i));
  v->place = kiln_arena_printf(&v->cx->scratch, "kernel %s", kiln_symbol_text(v->cx, v->l->name));
  v->checker = (kiln_checker){
      .cx = v->cx, .place = v->place, .vars = &v->vars, .load = check_load, .argument = v};
  return check_nest(v, v->l->body, 0);
}

kiln_status kiln_loops_verify(kiln_ctx *cx, const kiln_loops *l) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  verifier v = {.cx = cx, .l = l};
  const kiln_status status = verify(&v);
  kiln_arena_rewind(&cx->scratch, mark);
  return status;
}

// Loop programs as text: the buffers, then the nests, one statement a line.
#include "ir/cursor.h"

#include "ir/loop.h"

#include <string.h>

enum { MAX_BUFFER_RANK = KILN_MAX_RANK + 4, MAX_OPERANDS = 12 };

typedef struct scope {
  kiln_ctx *cx;
  const kiln_loops *l;
  kiln_map buffers; // name to id
} scope;

static const char *name_of(const void *program, int buffer) {
  const scope *s = program;
  if (buffer < 0 || buffer >= s->l->buffers.n) return "?";
  return kiln_symbol_text(s->cx, s->l->buffers.data[buffer]->name);
}

static int find(const void *program, const char *name, size_t n, kiln_dtype *out_dtype,
                int *out_rank) {
  const scope *s = program;
  const uint64_t *id = kiln_map_find(&s->buffers, kiln_symbol_of_bytes(s->cx, name, n));
  if (!id) return -1;
  *out_dtype = s->l->buffers.data[*id]->dtype;
  *out_rank = s->l->buffers.data[*id]->rank;
  return (int)*id;
}

static kiln_expr_names names_of(const scope *s) {
  return (kiln_expr_names){.name_of = name_of, .find = find, .program = s, .bracket = '['};
}

static const char *const scope_words[] = {[KILN_SCOPE_PARAM] = "param",
                                          [KILN_SCOPE_WORKSPACE] = "workspace",
                                          [KILN_SCOPE_SHARED] = "shared",
                                          [KILN_SCOPE_LOCAL] = "local",
                                          [KILN_SCOPE_REGISTER] = "register"};
static const char *const how_words[] = {
    [KILN_SERIAL] = "serial",     [KILN_PARALLEL] = "parallel", [KILN_VECTORIZED] = "vectorized",
    [KILN_UNROLLED] = "unrolled", [KILN_BLOCK_X] = "block.x",   [KILN_BLOCK_Y] = "block.y",
    [KILN_BLOCK_Z] = "block.z",   [KILN_THREAD_X] = "thread.x", [KILN_THREAD_Y] = "thread.y",
    [KILN_THREAD_Z] = "thread.z"};
const char *kiln_scope_text(kiln_scope s) { return scope_words[s]; }
const char *kiln_how_text(kiln_how h) { return how_words[h]; }

// As in the notation, without the '!' of reductions that start from the identity.
static const char *const store_words[] = {
    [KILN_COMBINE_NONE] = "=",   [KILN_COMBINE_SUM] = "+=",   [KILN_COMBINE_PROD] = "*=",
    [KILN_COMBINE_MAX] = "max=", [KILN_COMBINE_MIN] = "min=", [KILN_COMBINE_AND] = "and=",
    [KILN_COMBINE_OR] = "or="};

// --- printing ---

typedef struct printer {
  kiln_ctx *cx;
  const kiln_loops *l;
  kiln_expr_names names;
  kiln_text *out;
} printer;

static void print_ints(kiln_text *out, int n, const int64_t *values) {
  for (int i = 0; i < n; i++) {
    if (i > 0) kiln_text_add(out, ", ");
    kiln_text_add_int(out, values[i]);
  }
}

static void print_buffer(printer *p, const kiln_buffer *b) {
  kiln_text_printf(p->out, "  %s %s ", scope_words[b->scope], kiln_dtype_text(b->dtype));
  kiln_name_print(p->out, kiln_symbol_text(p->cx, b->name));
  kiln_text_add(p->out, "[");
  print_ints(p->out, b->rank, b->extents);
  kiln_text_add(p->out, "]:(");
  print_ints(p->out, b->rank, b->strides);
  kiln_text_add(p->out, ")");
  if (b->is_swizzled) kiln_text_add(p->out, " swizzled");
  if (b->tensor >= 0) kiln_text_printf(p->out, " tensor %d", b->tensor);
  if (b->pack) {
    kiln_text_printf(p->out, " pack %d ", b->pack->source);
    kiln_exprs_print(p->cx, b->pack->rank, b->pack->map, NULL, "(", ")", p->out);
  }
  kiln_text_add(p->out, "\n");
}

static void print_element(printer *p, const kiln_loop *l) {
  const int rank = p->l->buffers.data[l->buffer]->rank;
  kiln_name_print(p->out, name_of(p->names.program, l->buffer));
  kiln_exprs_print(p->cx, rank, l->index, &p->names, "[", "]", p->out);
}

static void print_store(printer *p, const kiln_loop *l) {
  print_element(p, l);
  kiln_text_add(p->out, " ");
  kiln_text_add(p->out, store_words[l->combiner]);
  kiln_text_add(p->out, " ");
  kiln_expr_print(p->cx, l->value, &p->names, p->out);
}

// NAME [VAR] (ARGUMENTS) [where COND]
static void print_device(printer *p, const kiln_loop *l) {
  kiln_name_print(p->out, *(const char *const *)(const void *)l->op); // as an instruction's
  if (l->var) {
    kiln_text_add(p->out, " ");
    kiln_name_print(p->out, kiln_symbol_text(p->cx, l->var));
  }
  kiln_exprs_print(p->cx, l->n_operands, l->operands, &p->names, "(", ")", p->out);
  if (!l->cond) return;
  kiln_text_add(p->out, " where ");
  kiln_expr_print(p->cx, l->cond, &p->names, p->out);
}

// Prints the line of a loop without its body.
static void print_head(printer *p, const kiln_loop *l) {
  switch (l->kind) {
  case KILN_LOOP_FOR:
    kiln_text_add(p->out, "for ");
    kiln_name_print(p->out, kiln_symbol_text(p->cx, l->var));
    kiln_text_add(p->out, ":");
    kiln_expr_print(p->cx, l->extent, &p->names, p->out);
    if (l->how != KILN_SERIAL) kiln_text_printf(p->out, " %s", how_words[l->how]);
    for (const kiln_note *n = l->notes; n; n = n->next) {
      kiln_text_add(p->out, " @");
      kiln_name_print(p->out, kiln_symbol_text(p->cx, n->key));
      kiln_text_add(p->out, "=");
      kiln_name_print(p->out, kiln_symbol_text(p->cx, n->value));
    }
    return;
  case KILN_LOOP_IF:
    kiln_text_add(p->out, "if ");
    kiln_expr_print(p->cx, l->cond, &p->names, p->out);
    return;
  case KILN_LOOP_STORE: print_store(p, l); return;
  case KILN_LOOP_ALLOC:
    kiln_text_add(p->out, "alloc ");
    kiln_name_print(p->out, name_of(p->names.program, l->buffer));
    return;
  case KILN_LOOP_INSTR:
    // Instructions are defined by targets; their first member is their name.
    kiln_text_add(p->out, "instr ");
    kiln_name_print(p->out, *(const char *const *)(const void *)l->instr);
    kiln_exprs_print(p->cx, l->n_operands, l->operands, &p->names, "(", ")", p->out);
    if (!l->cond) return;
    kiln_text_add(p->out, " where ");
    kiln_expr_print(p->cx, l->cond, &p->names, p->out);
    return;
  case KILN_LOOP_PREFETCH:
    kiln_text_add(p->out, l->is_far ? "prefetch far " : "prefetch ");
    print_element(p, l);
    return;
  case KILN_LOOP_DEVICE: print_device(p, l); return;
  }
}

static void print_nest(printer *p, const kiln_loop *l, int depth) {
  for (; l; l = l->next) {
    for (int i = 0; i < depth; i++) kiln_text_add(p->out, "  ");
    print_head(p, l);
    const bool has_body = l->kind == KILN_LOOP_FOR || l->kind == KILN_LOOP_IF ||
                          l->kind == KILN_LOOP_ALLOC || (l->kind == KILN_LOOP_DEVICE && l->body);
    kiln_text_add(p->out, has_body ? " {\n" : "\n");
    if (!has_body) continue;
    print_nest(p, l->body, depth + 1);
    for (int i = 0; i < depth; i++) kiln_text_add(p->out, "  ");
    kiln_text_add(p->out, "}\n");
  }
}

void kiln_loops_print(kiln_ctx *cx, const kiln_loops *l, kiln_text *out) {
  const scope s = {.cx = cx, .l = l};
  printer p = {cx, l, names_of(&s), out};
  kiln_text_add(out, "kernel ");
  kiln_name_print(out, kiln_symbol_text(cx, l->name));
  kiln_text_add(out, " {\n");
  for (int i = 0; i < l->buffers.n; i++) print_buffer(&p, l->buffers.data[i]);
  print_nest(&p, l->body, 1);
  kiln_text_add(out, "}\n");
}

// --- parsing ---

typedef struct parser {
  kiln_cursor c;
  kiln_loops *l;
  scope scope;
  kiln_expr_names names;
  kiln_instr_find find; // NULL: no instructions
  const void *argument;
  kiln_device_op_find find_op; // NULL: they are no device loops
} parser;

// Integers between |open| and |close|; at most |max|.
static kiln_status parse_ints(kiln_cursor *c, const char *open, const char *close, int max,
                              int *out_n, int64_t *out) {
  *out_n = 0;
  KILN_TRY(kiln_cursor_expect(c, open));
  while (!kiln_cursor_accept(c, close)) {
    if (*out_n > 0) KILN_TRY(kiln_cursor_expect(c, ","));
    if (*out_n == max) return kiln_cursor_fail(c, "at most %d integers", max);
    KILN_TRY(kiln_cursor_int(c, "an integer", &out[*out_n]));
    ++*out_n;
  }
  return KILN_OK;
}

static kiln_status parse_id(kiln_cursor *c, int *out) {
  int64_t id = 0;
  KILN_TRY(kiln_cursor_int(c, "a tensor's number", &id));
  if (id < 0 || id > INT32_MAX) return kiln_cursor_fail(c, "a tensor's number before this place");
  *out = (int)id;
  return KILN_OK;
}

static kiln_status parse_pack(parser *p, kiln_buffer *b) {
  kiln_pack *pack = KILN_NEW(&p->c.cx->perm, kiln_pack);
  const kiln_expr *map[KILN_MAX_RANK];
  KILN_TRY(parse_id(&p->c, &pack->source));
  KILN_TRY(kiln_cursor_exprs(&p->c, NULL, "(", ")", KILN_MAX_RANK, &pack->rank, map));
  pack->map = KILN_NEW_ARRAY(&p->c.cx->perm, const kiln_expr *, pack->rank);
  for (int i = 0; i < pack->rank; i++) pack->map[i] = map[i];
  b->pack = pack;
  return KILN_OK;
}

static kiln_status parse_buffer(parser *p, kiln_scope where) {
  kiln_cursor *c = &p->c;
  kiln_dtype t = KILN_F32;
  kiln_symbol name = 0;
  int64_t extents[MAX_BUFFER_RANK], strides[MAX_BUFFER_RANK];
  int rank = 0, n_strides = 0;
  KILN_TRY(kiln_cursor_dtype(c, &t));
  KILN_TRY(kiln_cursor_name(c, "the buffer's name", &name, NULL));
  if (kiln_map_find(&p->scope.buffers, name))
    return kiln_cursor_fail(c, "a new name before this place, not '%s'",
                            kiln_symbol_text(c->cx, name));
  KILN_TRY(parse_ints(c, "[", "]", MAX_BUFFER_RANK, &rank, extents));
  const bool has_strides = kiln_cursor_accept(c, ":");
  if (has_strides) KILN_TRY(parse_ints(c, "(", ")", MAX_BUFFER_RANK, &n_strides, strides));
  int64_t elems = 1;
  for (int i = 0; i < rank; i++) {
    if (extents[i] < 0 || __builtin_mul_overflow(elems, extents[i] + (extents[i] == 0), &elems))
      return kiln_cursor_fail(c, "extents from 0, with a product that 64 bits hold, before here");
  }
  if (has_strides && n_strides != rank)
    return kiln_cursor_fail(c, "%d strides before this place, not %d", rank, n_strides);
  kiln_buffer *b = kiln_buffer_make(c->cx, p->l, kiln_symbol_text(c->cx, name), t, where, rank,
                                    extents, has_strides ? strides : NULL);
  kiln_map_put(&p->scope.buffers, name, (uint64_t)b->id);
  b->is_swizzled = kiln_cursor_accept_word(c, "swizzled");
  if (kiln_cursor_accept_word(c, "tensor")) KILN_TRY(parse_id(c, &b->tensor));
  return kiln_cursor_accept_word(c, "pack") ? parse_pack(p, b) : KILN_OK;
}

static kiln_status parse_nest(parser *p, kiln_loop **out);

static kiln_status parse_known_buffer(parser *p, const kiln_buffer **out) {
  kiln_symbol name = 0;
  KILN_TRY(kiln_cursor_name(&p->c, "a buffer's name", &name, NULL));
  const uint64_t *id = kiln_map_find(&p->scope.buffers, name);
  if (!id)
    return kiln_cursor_fail(&p->c, "a declared buffer before this place, not '%s'",
                            kiln_symbol_text(p->c.cx, name));
  *out = p->l->buffers.data[*id];
  return KILN_OK;
}

static kiln_status parse_notes(parser *p, const kiln_note **out) {
  kiln_cursor *c = &p->c;
  while (kiln_cursor_accept(c, "@")) {
    kiln_note *n = KILN_NEW(&c->cx->perm, kiln_note);
    KILN_TRY(kiln_cursor_name(c, "the note's key", &n->key, NULL));
    if (n->key) n->key = kiln_symbol_of(c->cx, kiln_note_key(kiln_symbol_text(c->cx, n->key)));
    KILN_TRY(kiln_cursor_expect(c, "="));
    KILN_TRY(kiln_cursor_name(c, "the note's value", &n->value, NULL));
    *out = n;
    out = (const kiln_note **)&n->next;
  }
  return KILN_OK;
}

static kiln_status parse_for(parser *p, kiln_loop **out) {
  kiln_cursor *c = &p->c;
  kiln_symbol var = 0;
  const kiln_expr *extent = NULL;
  kiln_loop *body = NULL;
  const kiln_note *notes = NULL;
  int how = KILN_THREAD_Z;
  KILN_TRY(kiln_cursor_name(c, "the loop's variable", &var, NULL));
  KILN_TRY(kiln_cursor_expect(c, ":"));
  KILN_TRY(kiln_cursor_expr_of(c, &p->names, KILN_I64, &extent));
  while (how > KILN_SERIAL && !kiln_cursor_accept_word(c, how_words[how])) how--;
  KILN_TRY(parse_notes(p, &notes));
  KILN_TRY(parse_nest(p, &body));
  *out = kiln_for_make(c->cx, var, extent, body);
  (*out)->how = (kiln_how)how;
  (*out)->notes = notes;
  return KILN_OK;
}

static kiln_status parse_if(parser *p, kiln_loop **out) {
  const kiln_expr *cond = NULL;
  kiln_loop *body = NULL;
  KILN_TRY(kiln_cursor_expr_of(&p->c, &p->names, KILN_BOOL, &cond));
  KILN_TRY(parse_nest(p, &body));
  *out = kiln_if_make(p->c.cx, cond, body);
  return KILN_OK;
}

static kiln_status parse_alloc(parser *p, kiln_loop **out) {
  const kiln_buffer *b = NULL;
  kiln_loop *body = NULL;
  KILN_TRY(parse_known_buffer(p, &b));
  KILN_TRY(parse_nest(p, &body));
  *out = kiln_alloc_make(p->c.cx, b, body);
  return KILN_OK;
}

// Accepts the notation's form with '!', too.
static kiln_status parse_combiner(kiln_cursor *c, kiln_combiner *out) {
  for (int k = KILN_COMBINE_OR; k >= KILN_COMBINE_NONE; k--) {
    *out = (kiln_combiner)k;
    if (!kiln_cursor_accept(c, store_words[k])) continue;
    if (k != KILN_COMBINE_NONE && *c->at == '!') c->at++;
    return KILN_OK;
  }
  return kiln_cursor_fail(c, "'=', '+=', 'max=' or another combiner");
}

// Parses an element; |index| has room for MAX_BUFFER_RANK.
static kiln_status parse_element(parser *p, const kiln_buffer **b, const kiln_expr **index) {
  int n = 0;
  KILN_TRY(parse_known_buffer(p, b));
  KILN_TRY(kiln_cursor_exprs(&p->c, &p->names, "[", "]", MAX_BUFFER_RANK, &n, index));
  if (n == (*b)->rank) return KILN_OK;
  return kiln_cursor_fail(&p->c, "%d indices before this place, not %d", (*b)->rank, n);
}

static kiln_status parse_prefetch(parser *p, kiln_loop **out) {
  const kiln_buffer *b = NULL;
  const kiln_expr *index[MAX_BUFFER_RANK];
  (void)kiln_cursor_accept_word(&p->c, "prefetch");
  const bool is_far = kiln_cursor_accept_word(&p->c, "far");
  KILN_TRY(parse_element(p, &b, index));
  *out = kiln_prefetch_make(p->c.cx, b, index);
  (*out)->is_far = is_far;
  return KILN_OK;
}

static kiln_status parse_store(parser *p, kiln_loop **out) {
  kiln_cursor *c = &p->c;
  const kiln_buffer *b = NULL;
  const kiln_expr *index[MAX_BUFFER_RANK], *value = NULL;
  kiln_combiner combiner = KILN_COMBINE_NONE;
  KILN_TRY(parse_element(p, &b, index));
  KILN_TRY(parse_combiner(c, &combiner));
  KILN_TRY(kiln_cursor_expr_of(c, &p->names, b->dtype, &value));
  *out = kiln_store_make(c->cx, b, index, combiner, value);
  return KILN_OK;
}

// Parses the operands, in brackets, of an instruction or of a device loop's statement.
static kiln_status parse_operands(parser *p, kiln_loop *l, bool may_be_none) {
  kiln_cursor *c = &p->c;
  const kiln_expr *operands[MAX_OPERANDS];
  int n = 0;
  KILN_TRY(kiln_cursor_expect(c, "("));
  if (may_be_none && kiln_cursor_accept(c, ")")) return KILN_OK;
  do {
    if (n == MAX_OPERANDS) return kiln_cursor_fail(c, "at most %d operands", MAX_OPERANDS);
    KILN_TRY(kiln_cursor_expr(c, &p->names, &operands[n++]));
  } while (kiln_cursor_accept(c, ","));
  KILN_TRY(kiln_cursor_expect(c, ")"));
  l->n_operands = n;
  l->operands = KILN_NEW_ARRAY(&c->cx->perm, const kiln_expr *, n);
  memcpy(l->operands, operands, (size_t)n * sizeof *operands);
  return KILN_OK;
}

static kiln_status parse_where(parser *p, kiln_loop *l) {
  return kiln_cursor_accept_word(&p->c, "where")
             ? kiln_cursor_expr_of(&p->c, &p->names, KILN_BOOL, &l->cond)
             : KILN_OK;
}

static kiln_status parse_instr(parser *p, kiln_loop **out) {
  kiln_cursor *c = &p->c;
  kiln_symbol name = 0;
  (void)kiln_cursor_accept_word(c, "instr");
  KILN_TRY(kiln_cursor_name(c, "the instruction's name", &name, NULL));
  const char *text = kiln_symbol_text(c->cx, name);
  const struct kiln_instr *instr = p->find ? p->find(p->argument, text) : NULL;
  if (!instr) return kiln_cursor_fail(c, "a known instruction before this place, not '%s'", text);
  *out = KILN_NEW(&c->cx->perm, kiln_loop);
  **out = (kiln_loop){.kind = KILN_LOOP_INSTR, .buffer = -1, .instr = instr};
  KILN_TRY(parse_operands(p, *out, false));
  return parse_where(p, *out);
}

// The statement of device loops whose name comes next; NULL: it is another statement.
static const struct kiln_device_op *accept_op(parser *p) {
  kiln_cursor *c = &p->c;
  const char *at = c->at;
  size_t n = 0;
  char name[32];
  kiln_cursor_skip(c);
  while (n + 1 < sizeof name && (c->at[n] == '.' || c->at[n] == '_' || // of all of them
                                 (c->at[n] >= 'a' && c->at[n] <= 'z')))
    name[n] = c->at[n], n++;
  name[n] = 0;
  const struct kiln_device_op *op = p->find_op && n ? p->find_op(name) : NULL;
  c->at = op && (c->at[n] == '(' || c->at[n] == ' ') ? c->at + n : at;
  return c->at == at ? NULL : op;
}

static kiln_status parse_device(parser *p, const struct kiln_device_op *op, kiln_loop **out) {
  kiln_cursor *c = &p->c;
  *out = KILN_NEW(&c->cx->perm, kiln_loop);
  **out = (kiln_loop){.kind = KILN_LOOP_DEVICE, .buffer = -1, .op = op};
  if (!kiln_cursor_at(c, "("))
    KILN_TRY(kiln_cursor_name(c, "a variable, or '('", &(*out)->var, NULL));
  KILN_TRY(parse_operands(p, *out, true));
  KILN_TRY(parse_where(p, *out));
  return kiln_cursor_at(c, "{") ? parse_nest(p, &(*out)->body) : KILN_OK;
}

static kiln_status parse_loop(parser *p, kiln_loop **out) {
  if (kiln_cursor_accept_word(&p->c, "for")) return parse_for(p, out);
  if (kiln_cursor_accept_word(&p->c, "if")) return parse_if(p, out);
  if (kiln_cursor_accept_word(&p->c, "alloc")) return parse_alloc(p, out);
  if (kiln_cursor_at(&p->c, "instr ")) return parse_instr(p, out);
  if (kiln_cursor_at(&p->c, "prefetch ")) return parse_prefetch(p, out);
  const struct kiln_device_op *op = accept_op(p);
  return op ? parse_device(p, op, out) : parse_store(p, out);
}

// Parses loops up to the closing brace.
static kiln_status parse_rest(parser *p, kiln_loop **out) {
  for (*out = NULL; !kiln_cursor_accept(&p->c, "}"); out = &(*out)->next)
    KILN_TRY(parse_loop(p, out));
  return KILN_OK;
}

static kiln_status parse_nest(parser *p, kiln_loop **out) {
  KILN_TRY(kiln_cursor_enter(&p->c));
  KILN_TRY(kiln_cursor_expect(&p->c, "{"));
  KILN_TRY(parse_rest(p, out));
  p->c.depth--;
  return KILN_OK;
}

static bool accept_scope(kiln_cursor *c, kiln_scope *out) {
  for (int s = KILN_SCOPE_PARAM; s <= KILN_SCOPE_REGISTER; s++) {
    *out = (kiln_scope)s;
    if (kiln_cursor_accept_word(c, scope_words[s])) return true;
  }
  return false;
}

kiln_status kiln_loops_parse(kiln_ctx *cx, const char *text, kiln_loops **out) {
  return kiln_loops_parse_with(cx, text, NULL, NULL, out);
}

kiln_status kiln_loops_parse_with(kiln_ctx *cx, const char *text, kiln_instr_find find_instr,
                                  const void *argument, kiln_loops **out) {
  return kiln_loops_parse_device(cx, text, find_instr, argument, NULL, out);
}

kiln_status kiln_loops_parse_device(kiln_ctx *cx, const char *text, kiln_instr_find find_instr,
                                    const void *argument, kiln_device_op_find find_op,
                                    kiln_loops **out) {
  *out = NULL;
  parser p = {.c = {.cx = cx, .what = "kernel", .start = text, .at = text},
              .find = find_instr,
              .argument = argument,
              .find_op = find_op};
  kiln_symbol name = 0;
  kiln_scope where;
  if (!kiln_cursor_accept_word(&p.c, "kernel")) return kiln_cursor_fail(&p.c, "'kernel'");
  KILN_TRY(kiln_cursor_name(&p.c, "the kernel's name", &name, NULL));
  KILN_TRY(kiln_cursor_expect(&p.c, "{"));
  p.l = kiln_loops_make(cx, kiln_symbol_text(cx, name));
  p.scope = (scope){.cx = cx, .l = p.l};
  kiln_map_init(&p.scope.buffers, &cx->perm);
  p.names = names_of(&p.scope);
  while (accept_scope(&p.c, &where)) KILN_TRY(parse_buffer(&p, where));
  KILN_TRY(parse_rest(&p, &p.l->body));
  KILN_TRY(kiln_cursor_end(&p.c));
  *out = p.l;
  return KILN_OK;
}

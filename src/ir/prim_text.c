// Prim programs as text: one line a tensor, one line a statement.
#include "ir/cursor.h"

#include "ir/prim.h"

#include <string.h>

enum { SHOWN_BYTES = 64, MAX_CONST_BYTES = 256 << 20 };

// Names in expressions: the program and, for parsing, its tensors by name.
typedef struct scope {
  kiln_ctx *cx;
  const kiln_program *p;
  kiln_map tensors; // name to id
} scope;

static const char *name_of(const void *program, int tensor) {
  const scope *s = program;
  if (tensor < 0 || tensor >= s->p->tensors.n) return "?";
  return kiln_symbol_text(s->cx, s->p->tensors.data[tensor]->name);
}

static int find(const void *program, const char *name, size_t n, kiln_dtype *out_dtype,
                int *out_rank) {
  const scope *s = program;
  const uint64_t *id = kiln_map_find(&s->tensors, kiln_symbol_of_bytes(s->cx, name, n));
  if (!id) return -1;
  *out_dtype = s->p->tensors.data[*id]->dtype;
  *out_rank = s->p->tensors.data[*id]->rank;
  return (int)*id;
}

static kiln_expr_names names_of(const scope *s) {
  return (kiln_expr_names){.name_of = name_of, .find = find, .program = s, .bracket = '('};
}

static const char *const role_words[] = {
    [KILN_INPUT] = "in", [KILN_CONST] = "const", [KILN_TEMP] = "temp", [KILN_OUTPUT] = "out"};

// --- printing ---

static bool has_plain_order(const kiln_tensor *t) {
  for (int i = 0; i < t->rank; i++) {
    if (t->order[i] != i) return false;
  }
  return true;
}

static void print_ints(kiln_text *out, const char *word, int n, const int64_t *values) {
  kiln_text_printf(out, " %s (", word);
  for (int i = 0; i < n; i++) {
    if (i > 0) kiln_text_add(out, ", ");
    kiln_text_add_int(out, values[i]);
  }
  kiln_text_add(out, ")");
}

static void print_tensor(const kiln_ctx *cx, const kiln_tensor *t, kiln_text *out) {
  kiln_text_printf(out, "  %s %s ", role_words[t->role], kiln_dtype_text(t->dtype));
  kiln_name_print(out, kiln_symbol_text(cx, t->name));
  kiln_exprs_print(cx, t->rank, t->shape, NULL, "(", ")", out);
  if (!has_plain_order(t)) {
    int64_t order[KILN_MAX_RANK];
    for (int i = 0; i < t->rank; i++) order[i] = t->order[i];
    print_ints(out, "order", t->rank, order);
  }
  if (t->strides) print_ints(out, "strides", t->rank, t->strides);
  if (t->role == KILN_CONST && t->data && t->bytes <= SHOWN_BYTES) {
    kiln_text_add(out, " = 0x");
    for (size_t i = 0; i < t->bytes; i++)
      kiln_text_printf(out, "%02x", ((const unsigned char *)t->data)[i]);
  } else if (t->role == KILN_CONST) {
    kiln_text_add(out, " = ...");
  }
  kiln_text_add(out, "\n");
}

static void print_stmt(const kiln_ctx *cx, const kiln_stmt *s, const kiln_expr_names *names,
                       int out_rank, kiln_text *out) {
  kiln_text_add(out, "  ");
  kiln_name_print(out, names->name_of(names->program, s->out));
  kiln_text_add(out, "(");
  for (int i = 0; i < s->n_space + s->n_reduce; i++) {
    kiln_text_add(out, i == s->n_space ? (i > 0 ? " | " : "| ") : i > 0 ? ", " : "");
    kiln_name_print(out, kiln_symbol_text(cx, s->dims[i].name));
    kiln_text_add(out, ":");
    kiln_expr_print(cx, s->dims[i].extent, names, out);
  }
  kiln_text_add(out, ")");
  bool identity = s->n_space == out_rank;
  for (int i = 0; i < out_rank && identity; i++)
    identity = s->index[i]->kind == KILN_EXPR_VAR && s->index[i]->u.sym == s->dims[i].name;
  if (!identity) kiln_exprs_print(cx, out_rank, s->index, names, " at (", ")", out);
  kiln_text_printf(out, " %s ", kiln_combiner_text(s->combiner));
  if (s->body) kiln_expr_print(cx, s->body, names, out);
  else kiln_text_add(out, "?");
  if (s->guard) {
    kiln_text_add(out, " if ");
    kiln_expr_print(cx, s->guard, names, out);
  }
  if (s->init) kiln_exprs_print(cx, 1, &s->init, names, " init (", ")", out);
  if (s->origin) {
    kiln_text_add(out, " from ");
    kiln_name_print(out, kiln_symbol_text(cx, s->origin));
  }
  kiln_text_add(out, "\n");
}

void kiln_stmt_print(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, kiln_text *out) {
  const scope around = {.cx = cx, .p = p};
  const kiln_expr_names names = names_of(&around);
  print_stmt(cx, s, &names, p->tensors.data[s->out]->rank, out);
}

// Whether |ids| are exactly the tensors of |role| in order, which is the default when text says
// nothing.
static bool is_default(const kiln_program *p, kiln_role role, int n, const int *ids) {
  int k = 0;
  for (int t = 0; t < p->tensors.n; t++) {
    if (p->tensors.data[t]->role != role) continue;
    if (k == n || ids[k] != t) return false;
    k++;
  }
  return k == n;
}

static void print_interface(const char *word, int n, const int *ids, const kiln_expr_names *names,
                            kiln_text *out) {
  kiln_text_printf(out, "  %s (", word);
  for (int i = 0; i < n; i++) {
    if (i > 0) kiln_text_add(out, ", ");
    kiln_name_print(out, names->name_of(names->program, ids[i]));
  }
  kiln_text_add(out, ")\n");
}

static void print_checks(const kiln_ctx *cx, const kiln_program *p, kiln_text *out) {
  for (int i = 0; i < p->checks.n; i++) {
    const kiln_index_check *c = &p->checks.data[i];
    kiln_text_add(out, "  check ");
    kiln_name_print(out, kiln_symbol_text(cx, c->place));
    kiln_text_add(out, " ");
    kiln_name_print(out, kiln_symbol_text(cx, c->index));
    kiln_text_printf(out, " axis %d in %" PRId64 ":%" PRId64 "\n", c->axis, c->least, c->end);
  }
}

void kiln_program_print(kiln_ctx *cx, const kiln_program *p, kiln_text *out) {
  const scope s = {.cx = cx, .p = p};
  const kiln_expr_names names = names_of(&s);
  kiln_name_print(out, kiln_symbol_text(cx, p->name));
  kiln_text_add(out, " {\n");
  for (int i = 0; i < p->tensors.n; i++) print_tensor(cx, p->tensors.data[i], out);
  if (!is_default(p, KILN_INPUT, p->inputs.n, p->inputs.data))
    print_interface("inputs", p->inputs.n, p->inputs.data, &names, out);
  if (!is_default(p, KILN_OUTPUT, p->outputs.n, p->outputs.data))
    print_interface("outputs", p->outputs.n, p->outputs.data, &names, out);
  for (int i = 0; i < p->shape_of.n; i++)
    kiln_text_printf(out, "%s%d%s", i ? ", " : "  shapes (", p->shape_of.data[i],
                     i + 1 < p->shape_of.n ? "" : ")\n");
  print_checks(cx, p, out);
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *st = p->stmts.data[i];
    if (st) print_stmt(cx, st, &names, p->tensors.data[st->out]->rank, out);
  }
  kiln_text_add(out, "}\n");
}

// --- parsing ---

typedef struct parser {
  kiln_cursor c;
  kiln_program *p;
  scope scope;
  kiln_expr_names names;
  bool has_inputs, has_outputs; // said explicitly
} parser;

// `= 0x...`, or `= ...` for zeros.
static kiln_status parse_data(parser *p, kiln_tensor *t) {
  kiln_cursor *c = &p->c;
  const int64_t width = kiln_dtype_bytes(t->dtype);
  int64_t shape[KILN_MAX_RANK], bytes = width;
  if (!kiln_tensor_static_shape(t, shape))
    return kiln_cursor_fail(c, "a constant shape before this place");
  for (int i = 0; i < t->rank; i++) {
    if (shape[i] < 0 || __builtin_mul_overflow(bytes, shape[i], &bytes) || bytes > MAX_CONST_BYTES)
      return kiln_cursor_fail(c, "a constant of at most %d bytes", MAX_CONST_BYTES);
  }
  unsigned char *data = kiln_arena_zalloc(&p->c.cx->perm, (size_t)bytes);
  t->data = data;
  t->bytes = (size_t)bytes;
  KILN_TRY(kiln_cursor_expect(c, "="));
  if (kiln_cursor_accept(c, "...")) return KILN_OK;
  KILN_TRY(kiln_cursor_expect(c, "0x"));
  for (int64_t i = 0; i < bytes; i++, c->at += 2) {
    const int high = kiln_hex_digit(c->at[0]), low = high < 0 ? -1 : kiln_hex_digit(c->at[1]);
    if (low < 0) return kiln_cursor_fail(c, "%" PRId64 " more bytes in hexadecimal", bytes - i);
    data[i] = (unsigned char)(high * 16 + low);
  }
  return KILN_OK;
}

static kiln_status parse_int_list(kiln_cursor *c, int n, int64_t *out) {
  KILN_TRY(kiln_cursor_expect(c, "("));
  for (int i = 0; i < n; i++) {
    if (i > 0) KILN_TRY(kiln_cursor_expect(c, ","));
    KILN_TRY(kiln_cursor_int(c, "an integer", &out[i]));
  }
  return kiln_cursor_expect(c, ")");
}

static kiln_status parse_order(parser *p, kiln_tensor *t) {
  int64_t order[KILN_MAX_RANK];
  unsigned seen = 0;
  KILN_TRY(parse_int_list(&p->c, t->rank, order));
  for (int i = 0; i < t->rank; i++) {
    if (order[i] < 0 || order[i] >= t->rank || (seen >> order[i] & 1))
      return kiln_cursor_fail(&p->c, "a permutation of the axes before this place");
    seen |= 1u << order[i];
    t->order[i] = (int8_t)order[i];
  }
  return KILN_OK;
}

static kiln_status parse_tensor(parser *p, kiln_role role) {
  kiln_cursor *c = &p->c;
  kiln_dtype t = KILN_F32;
  kiln_symbol name = 0;
  const kiln_expr *shape[KILN_MAX_RANK];
  int rank = 0;
  KILN_TRY(kiln_cursor_dtype(c, &t));
  KILN_TRY(kiln_cursor_name(c, "the tensor's name", &name, NULL));
  if (!name || kiln_map_find(&p->scope.tensors, name))
    return kiln_cursor_fail(c, "a new name before this place, not '%s'",
                            kiln_symbol_text(c->cx, name));
  KILN_TRY(kiln_cursor_exprs(c, NULL, "(", ")", KILN_MAX_RANK, &rank, shape));
  kiln_tensor *x =
      kiln_tensor_make(c->cx, p->p, kiln_symbol_text(c->cx, name), t, role, rank, shape);
  kiln_map_put(&p->scope.tensors, name, (uint64_t)x->id);
  if (kiln_cursor_accept_word(c, "order")) KILN_TRY(parse_order(p, x));
  if (kiln_cursor_accept_word(c, "strides")) {
    int64_t *strides = KILN_NEW_ARRAY(&c->cx->perm, int64_t, rank);
    KILN_TRY(parse_int_list(c, rank, strides));
    x->strides = strides;
  }
  return role == KILN_CONST ? parse_data(p, x) : KILN_OK;
}

static kiln_status parse_known_tensor(parser *p, kiln_tensor **out) {
  kiln_symbol name = 0;
  KILN_TRY(kiln_cursor_name(&p->c, "a tensor's name", &name, NULL));
  const uint64_t *id = kiln_map_find(&p->scope.tensors, name);
  if (!id)
    return kiln_cursor_fail(&p->c, "a declared tensor before this place, not '%s'",
                            kiln_symbol_text(p->c.cx, name));
  *out = p->p->tensors.data[*id];
  return KILN_OK;
}

static kiln_status parse_interface(parser *p, bool inputs) {
  bool first = true;
  KILN_TRY(kiln_cursor_expect(&p->c, "("));
  for (; !kiln_cursor_accept(&p->c, ")"); first = false) {
    kiln_tensor *t = NULL;
    if (!first) KILN_TRY(kiln_cursor_expect(&p->c, ","));
    KILN_TRY(parse_known_tensor(p, &t));
    if (inputs) KILN_VEC_PUSH(&p->c.cx->perm, &p->p->inputs, t->id);
    else KILN_VEC_PUSH(&p->c.cx->perm, &p->p->outputs, t->id);
  }
  if (inputs) p->has_inputs = true;
  else p->has_outputs = true;
  return KILN_OK;
}

// `shapes (0, 2)`: the outputs whose shapes the last outputs hold
static kiln_status parse_shapes(parser *p) {
  bool first = true;
  KILN_TRY(kiln_cursor_expect(&p->c, "("));
  for (; !kiln_cursor_accept(&p->c, ")"); first = false) {
    int64_t of = 0;
    if (!first) KILN_TRY(kiln_cursor_expect(&p->c, ","));
    KILN_TRY(kiln_cursor_int(&p->c, "the number of an output", &of));
    KILN_VEC_PUSH(&p->c.cx->perm, &p->p->shape_of, (int)of);
  }
  return KILN_OK;
}

// `check NODE INDEX axis 1 in -4:4`: describes an element of the last output
static kiln_status parse_check(parser *p) {
  kiln_cursor *c = &p->c;
  kiln_index_check check = {0};
  int64_t axis = 0;
  KILN_TRY(kiln_cursor_name(c, "the node's name", &check.place, NULL));
  KILN_TRY(kiln_cursor_name(c, "the index's name", &check.index, NULL));
  KILN_TRY(kiln_cursor_expect(c, "axis"));
  KILN_TRY(kiln_cursor_int(c, "an axis", &axis));
  KILN_TRY(kiln_cursor_expect(c, "in"));
  KILN_TRY(kiln_cursor_int(c, "the least index", &check.least));
  KILN_TRY(kiln_cursor_expect(c, ":"));
  KILN_TRY(kiln_cursor_int(c, "the end of the indices", &check.end));
  check.axis = (int)axis;
  KILN_VEC_PUSH(&c->cx->perm, &p->p->checks, check);
  return KILN_OK;
}

// `(i0:4, i1:n | r0:8)`
static kiln_status parse_dims(parser *p, kiln_stmt *s) {
  KILN_VEC(kiln_dim) dims = {0};
  bool reduce = false;
  kiln_cursor *c = &p->c;
  KILN_TRY(kiln_cursor_expect(c, "("));
  while (!kiln_cursor_accept(c, ")")) {
    kiln_dim d = {0};
    if (!reduce && kiln_cursor_accept(c, "|")) reduce = true;
    else if (dims.n > 0) KILN_TRY(kiln_cursor_expect(c, ","));
    KILN_TRY(kiln_cursor_name(c, "a dim's name", &d.name, NULL));
    KILN_TRY(kiln_cursor_expect(c, ":"));
    KILN_TRY(kiln_cursor_expr_of(c, &p->names, KILN_I64, &d.extent));
    KILN_VEC_PUSH(&c->cx->perm, &dims, d);
    if (reduce) s->n_reduce++;
    else s->n_space++;
  }
  s->dims = dims.data;
  return KILN_OK;
}

static kiln_status parse_index(parser *p, kiln_stmt *s, const kiln_tensor *out) {
  kiln_cursor *c = &p->c;
  s->index = KILN_NEW_ARRAY(&c->cx->perm, const kiln_expr *, out->rank);
  if (kiln_cursor_accept_word(c, "at")) {
    const kiln_expr *index[KILN_MAX_RANK];
    int n = 0;
    KILN_TRY(kiln_cursor_exprs(c, &p->names, "(", ")", KILN_MAX_RANK, &n, index));
    if (n != out->rank) return kiln_cursor_fail(c, "%d indices before this place", out->rank);
    for (int i = 0; i < n; i++) s->index[i] = index[i];
    return KILN_OK;
  }
  if (s->n_space != out->rank)
    return kiln_cursor_fail(c, "'at', or %d space dims before this place, not %d", out->rank,
                            s->n_space);
  for (int i = 0; i < s->n_space; i++) s->index[i] = kiln_stmt_var(c->cx, s, i);
  return KILN_OK;
}

static kiln_status parse_combiner(kiln_cursor *c, kiln_combiner *out) {
  for (int k = KILN_COMBINE_OR; k >= KILN_COMBINE_NONE; k--) {
    *out = (kiln_combiner)k;
    if (kiln_cursor_accept(c, kiln_combiner_text(*out))) return KILN_OK;
  }
  return kiln_cursor_fail(c, "'=', '+=!', 'max=!' or another combiner");
}

static kiln_status parse_stmt(parser *p) {
  kiln_cursor *c = &p->c;
  kiln_tensor *out = NULL;
  KILN_TRY(parse_known_tensor(p, &out));
  if (out->def >= 0 || out->role == KILN_INPUT || out->role == KILN_CONST)
    return kiln_cursor_fail(c, "a tensor that nothing else writes before this place, not '%s'",
                            kiln_symbol_text(c->cx, out->name));
  kiln_stmt *s = KILN_NEW(&c->cx->perm, kiln_stmt);
  s->out = out->id;
  KILN_TRY(parse_dims(p, s));
  KILN_TRY(parse_index(p, s, out));
  KILN_TRY(parse_combiner(c, &s->combiner));
  KILN_TRY(kiln_cursor_expr_of(c, &p->names, out->dtype, &s->body));
  if (kiln_cursor_accept_word(c, "if"))
    KILN_TRY(kiln_cursor_expr_of(c, &p->names, KILN_BOOL, &s->guard));
  if (kiln_cursor_accept_word(c, "init")) {
    KILN_TRY(kiln_cursor_expect(c, "("));
    KILN_TRY(kiln_cursor_expr_of(c, &p->names, out->dtype, &s->init));
    KILN_TRY(kiln_cursor_expect(c, ")"));
  }
  if (kiln_cursor_accept_word(c, "from"))
    KILN_TRY(kiln_cursor_name(c, "the origin's name", &s->origin, NULL));
  kiln_stmt_append(c->cx, p->p, s);
  return KILN_OK;
}

static kiln_status parse_item(parser *p) {
  for (int role = KILN_INPUT; role <= KILN_OUTPUT; role++) {
    if (kiln_cursor_accept_word(&p->c, role_words[role])) return parse_tensor(p, (kiln_role)role);
  }
  if (kiln_cursor_accept_word(&p->c, "inputs")) return parse_interface(p, true);
  if (kiln_cursor_accept_word(&p->c, "outputs")) return parse_interface(p, false);
  if (kiln_cursor_accept_word(&p->c, "shapes")) return parse_shapes(p);
  if (kiln_cursor_accept_word(&p->c, "check")) return parse_check(p);
  return parse_stmt(p);
}

static void default_interface(parser *p) {
  for (int t = 0; t < p->p->tensors.n; t++) {
    const kiln_role role = p->p->tensors.data[t]->role;
    if (role == KILN_INPUT && !p->has_inputs) KILN_VEC_PUSH(&p->c.cx->perm, &p->p->inputs, t);
    if (role == KILN_OUTPUT && !p->has_outputs) KILN_VEC_PUSH(&p->c.cx->perm, &p->p->outputs, t);
  }
}

kiln_status kiln_program_parse(kiln_ctx *cx, const char *text, kiln_program **out) {
  *out = NULL;
  parser p = {.c = {.cx = cx, .what = "program", .start = text, .at = text}};
  kiln_symbol name = 0;
  KILN_TRY(kiln_cursor_name(&p.c, "the program's name", &name, NULL));
  KILN_TRY(kiln_cursor_expect(&p.c, "{"));
  p.p = kiln_program_make(cx, kiln_symbol_text(cx, name));
  p.scope = (scope){.cx = cx, .p = p.p};
  kiln_map_init(&p.scope.tensors, &cx->perm);
  p.names = names_of(&p.scope);
  while (!kiln_cursor_accept(&p.c, "}")) KILN_TRY(parse_item(&p));
  KILN_TRY(kiln_cursor_end(&p.c));
  default_interface(&p);
  *out = p.p;
  return KILN_OK;
}

// Checks that need only the text: names, arities, reductions, immutability.
#include "tc/check.h"
#include "tc/functions.h"
#include "tc/library.h"
#include "tc/lexer.h"
#include "tc/parser.h"

#include <string.h>

// --- names ---

static const struct {
  const char *text;
  kiln_expr_kind kind;
  int n_args;
} functions[] = {
#define CLASS_LEAF(name, text, n)
#define CLASS_INFIX(name, text, n)
#define CLASS_CMP(name, text, n)
#define CLASS_OTHER(name, text, n)
#define CLASS_CALL(name, text, n) {text, KILN_EXPR_##name, n},
#define KILN_EXPR(name, text, n, cls) CLASS_##cls(name, text, n)
#include "ir/expr.def"
#undef KILN_EXPR
    {"fabs", KILN_EXPR_ABS, 1},
};

static const char *const constants[] = {"inf", "nan", "true", "false"};
static const char *const words[] = {"given", "count", "linear", "lowest",  "highest", "where",
                                    "in",    "for",   "end",    "require", "exists",  "def",
                                    "onnx",  "test",  "all",    "size"};

bool kiln_tc_function(const char *name, kiln_expr_kind *out, int *out_n_args) {
  for (size_t i = 0; i < KILN_LEN(functions); i++) {
    if (strcmp(functions[i].text, name) != 0) continue;
    *out = functions[i].kind;
    *out_n_args = functions[i].n_args;
    return true;
  }
  return false;
}

static bool is_constant(const char *name) {
  for (size_t i = 0; i < KILN_LEN(constants); i++)
    if (strcmp(constants[i], name) == 0) return true;
  return false;
}

// Names that definitions must not use.
static bool is_reserved(const char *name) {
  kiln_expr_kind k;
  kiln_dtype t;
  int n;
  for (size_t i = 0; i < KILN_LEN(words); i++)
    if (strcmp(words[i], name) == 0) return true;
  return is_constant(name) || kiln_tc_function(name, &k, &n) || kiln_tc_type_of(name, &t);
}

bool kiln_tc_typevar_of(kiln_ctx *cx, const kiln_tc_def *def, kiln_symbol name,
                        kiln_tc_class *out) {
  for (int i = 0; i < def->n_typevars; i++) {
    if (def->typevars[i].name != name) continue;
    *out = def->typevars[i].class_;
    return true;
  }
  const char *text = kiln_symbol_text(cx, name);
  if (text[0] == '\0' || text[1] != '\0') return false;
  *out = strchr("FGH", text[0]) ? KILN_TC_FLOATS : text[0] == 'I' ? KILN_TC_INTS : KILN_TC_ANY;
  return strchr("TUVFGHI", text[0]) != NULL;
}

kiln_dtype kiln_tc_example_type(kiln_ctx *cx, const kiln_tc_def *def, const kiln_tc_type *t,
                                bool half) {
  kiln_tc_class c = KILN_TC_ANY;
  if (t->var == 0) return t->dtype;
  (void)kiln_tc_typevar_of(cx, def, t->var, &c);
  switch (c) {
  case KILN_TC_INTS:
  case KILN_TC_SIGNED: return KILN_I32;
  case KILN_TC_UNSIGNED: return KILN_U8;
  case KILN_TC_BOOLS: return KILN_BOOL;
  case KILN_TC_HALVES: return KILN_BF16;
  case KILN_TC_ANY:
  case KILN_TC_FLOATS:
  case KILN_TC_NUMBERS: break;
  }
  return half ? KILN_F16 : KILN_F32;
}

// Whether |name| is a type variable of a parameter or output of |def|; T, U, ... that no parameter
// uses are ordinary names.
static bool is_typevar(kiln_ctx *cx, const kiln_tc_def *def, kiln_symbol name) {
  kiln_tc_class class_;
  if (!kiln_tc_typevar_of(cx, def, name, &class_)) return false;
  for (int i = 0; i < def->n_typevars; i++)
    if (def->typevars[i].name == name) return true;
  for (int i = 0; i < def->n_params; i++)
    if (def->params[i].type.var == name) return true;
  return false;
}

static int find_param(const kiln_tc_def *def, kiln_symbol name) {
  for (int i = 0; i < def->n_params; i++)
    if (def->params[i].name == name) return i;
  return -1;
}

int kiln_tc_find_out(const kiln_tc_def *def, kiln_symbol name) {
  for (int i = 0; i < def->n_outs; i++)
    if (def->outs[i].name == name) return i;
  return -1;
}

static bool is_size(const kiln_tc_def *def, kiln_symbol name) {
  for (int i = 0; i < def->n_params + def->n_outs; i++) {
    const kiln_tc_param *p = i < def->n_params ? &def->params[i] : &def->outs[i - def->n_params];
    for (int k = 0; k < p->n_dims; k++)
      if (p->dims[k].name == name && name != 0) return true;
    if (p->size && p->name == name) return true;
  }
  return false;
}

static bool is_attribute(const kiln_tc_file *file, kiln_symbol name) {
  for (int i = 0; i < file->n_headers; i++)
    for (int a = 0; a < file->headers[i].n_attrs; a++)
      if (file->headers[i].attrs[a].name == name) return true;
  return false;
}

bool kiln_tc_writes(const kiln_tc_stmt *st, kiln_symbol name) {
  for (int i = 0; i < st->n_more; i++)
    if (st->more[i].name == name) return true;
  return st->out == name && name != 0;
}

static int find_writer(const kiln_tc_scope *s, kiln_symbol name) {
  for (int i = s->stmt - 1; i >= 0; i--)
    if (kiln_tc_writes(&s->def->stmts[i], name)) return i;
  return -1;
}

static bool on_left_side(const kiln_tc_stmt *st, kiln_symbol name) {
  for (int i = 0; i < st->n_lhs; i++)
    if (st->lhs[i].name == name) return true;
  return false;
}

kiln_tc_role kiln_tc_role_of(const kiln_tc_scope *s, kiln_symbol name, int *out_at) {
  const kiln_tc_stmt *st = &s->def->stmts[s->stmt];
  kiln_ctx *cx = s->file->source.cx;
  *out_at = -1;
  if (on_left_side(st, name)) return KILN_TC_INDEX;
  for (int i = 0; i < s->n_lets; i++) {
    if (st->clauses[i].name != name) continue;
    *out_at = i;
    if (st->clauses[i].kind == KILN_TC_LET) return KILN_TC_LETTED;
    if (st->clauses[i].kind == KILN_TC_RANGE) return KILN_TC_INDEX;
  }
  if ((*out_at = find_param(s->def, name)) >= 0)
    return s->def->params[*out_at].size ? KILN_TC_SIZE : KILN_TC_INPUT;
  if ((*out_at = find_writer(s, name)) >= 0) return KILN_TC_WRITTEN;
  if ((*out_at = kiln_tc_find_out(s->def, name)) >= 0) return KILN_TC_UNWRITTEN;
  if (is_size(s->def, name)) return KILN_TC_SIZE;
  if (is_attribute(s->file, name)) return KILN_TC_ATTRIBUTE;
  if (is_constant(kiln_symbol_text(cx, name))) return KILN_TC_CONSTANT;
  kiln_dtype t;
  bool type = is_typevar(cx, s->def, name) || kiln_tc_type_of(kiln_symbol_text(cx, name), &t);
  return type ? KILN_TC_TYPEVAR : KILN_TC_INDEX;
}

// --- calls ---

static bool is_callable(const kiln_tc_scope *s, kiln_symbol name) {
  const kiln_tc_file *f = s->file;
  for (int i = 0; i < f->n_defs && &f->defs[i] != s->def; i++)
    if (f->defs[i].name == name) return true;
  return kiln_tc_library_has(kiln_symbol_text(f->source.cx, name));
}

bool kiln_tc_is_call(const kiln_tc_scope *s) {
  const kiln_tc_stmt *st = &s->def->stmts[s->stmt];
  int at, n;
  kiln_expr_kind k;
  if (st->n_more > 0) return true;
  if (st->out == 0 || st->n_lhs > 0 || st->rhs->kind != KILN_TC_CALL) return false;
  if (st->combiner != KILN_COMBINE_NONE || st->n_clauses > 0) return false;
  const char *text = kiln_symbol_text(s->file->source.cx, st->rhs->name);
  return kiln_tc_role_of(s, st->rhs->name, &at) == KILN_TC_INDEX && is_callable(s, st->rhs->name) &&
         !kiln_tc_function(text, &k, &n);
}

// --- indices ---

static void note_index(const kiln_tc_scope *s, kiln_symbol name, bool pack, const char *at,
                       kiln_tc_indices *out) {
  for (int i = 0; i < out->n; i++)
    if (out->data[i].name == name) return;
  kiln_tc_index x = {name, pack, at};
  KILN_VEC_PUSH(&s->file->source.cx->perm, out, x);
}

static void indices_of(const kiln_tc_scope *s, const kiln_tc_expr *e, kiln_tc_indices *out) {
  int at;
  if (e->kind == KILN_TC_NAME || e->kind == KILN_TC_PACK) {
    kiln_tc_role role = kiln_tc_role_of(s, e->name, &at);
    if (role == KILN_TC_INDEX) note_index(s, e->name, e->kind == KILN_TC_PACK, e->at, out);
    return;
  }
  for (int i = 0; i < e->n_args; i++) indices_of(s, e->args[i], out);
}

int kiln_tc_collect_indices(const kiln_tc_scope *s, kiln_tc_indices *out) {
  const kiln_tc_stmt *st = &s->def->stmts[s->stmt];
  for (int i = 0; i < st->n_lhs; i++) {
    const kiln_tc_dim *d = &st->lhs[i];
    if (d->e != NULL) indices_of(s, d->e, out);
    else note_index(s, d->name, d->pack, d->at, out);
  }
  int n_left = out->n;
  indices_of(s, st->rhs, out);
  for (int i = 0; i < st->n_clauses; i++)
    if (st->clauses[i].kind != KILN_TC_RANGE) indices_of(s, st->clauses[i].lo, out);
  return n_left;
}

const kiln_tc_expr *kiln_tc_pack_in(const kiln_tc_scope *s, const kiln_tc_expr *e) {
  int at;
  if (e->kind == KILN_TC_PACK) return kiln_tc_role_of(s, e->name, &at) == KILN_TC_INDEX ? e : NULL;
  for (int i = 0; i < e->n_args; i++) {
    const kiln_tc_expr *found = kiln_tc_pack_in(s, e->args[i]);
    if (found != NULL) return found;
  }
  return NULL;
}

bool kiln_tc_is_static(const kiln_tc_scope *s, const kiln_tc_expr *e) {
  int at;
  const char *text = kiln_symbol_text(s->file->source.cx, e->name);
  if (e->kind == KILN_TC_CALL && (strcmp(text, "given") == 0 || strcmp(text, "count") == 0))
    return true;
  if (e->kind == KILN_TC_PACK) return false;
  if (e->kind == KILN_TC_NAME || e->kind == KILN_TC_CALL) {
    switch (kiln_tc_role_of(s, e->name, &at)) {
    case KILN_TC_INPUT:
    case KILN_TC_WRITTEN:
    case KILN_TC_UNWRITTEN:
    case KILN_TC_LETTED: return false;
    case KILN_TC_INDEX:
      if (e->kind == KILN_TC_NAME) return false;
      break;
    case KILN_TC_ATTRIBUTE:
    case KILN_TC_SIZE:
    case KILN_TC_CONSTANT:
    case KILN_TC_TYPEVAR: break;
    }
  }
  for (int i = 0; i < e->n_args; i++)
    if (!kiln_tc_is_static(s, e->args[i])) return false;
  return true;
}

// --- checks ---

typedef struct checker {
  const kiln_tc_source *source;
  kiln_tc_scope scope;
  bool in_bound; // in a bound of a where clause: no tensor elements
  bool on_left;  // in a left side: no tensor elements
  bool in_pack;  // where packs may occur, meaning one expression for each axis
} checker;

static const char *text_of(const checker *c, kiln_symbol s) {
  return kiln_symbol_text(c->source->cx, s);
}

static kiln_status check_expr(checker *c, const kiln_tc_expr *e);

// The number of dimensions of a tensor; -1 if it has packs.
static int fixed_rank(const checker *c, kiln_tc_role role, int at) {
  const kiln_tc_def *d = c->scope.def;
  const kiln_tc_scope writer = {c->scope.file, d, at, 0};
  if (role != KILN_TC_INPUT && kiln_tc_is_call(&writer)) return -1;
  int n = role == KILN_TC_INPUT ? d->params[at].n_dims : d->stmts[at].n_lhs;
  const kiln_tc_dim *dims = role == KILN_TC_INPUT ? d->params[at].dims : d->stmts[at].lhs;
  for (int i = 0; i < n; i++)
    if (dims[i].pack) return -1;
  return n;
}

// An expression in which packs may stand, for each of their axes.
static kiln_status check_packs(checker *c, const kiln_tc_expr *e) {
  bool outer = c->in_pack;
  c->in_pack = true;
  KILN_TRY(check_expr(c, e));
  c->in_pack = outer;
  return KILN_OK;
}

static kiln_status check_access(checker *c, const kiln_tc_expr *e, kiln_tc_role role, int at) {
  if (c->in_bound)
    return kiln_tc_fail(c->source, e->at, NULL,
                        "%s: tensor accesses cannot be used in the range of an index",
                        text_of(c, e->name));
  if (c->on_left)
    return kiln_tc_fail(c->source, e->at, NULL,
                        "%s: tensor accesses cannot be used on the left side; compare instead, as "
                        "in H(x) +=! %s(r) == x ? 1 : 0",
                        text_of(c, e->name), text_of(c, e->name));
  bool packs = false;
  for (int i = 0; i < e->n_args; i++)
    packs = packs || kiln_tc_pack_in(&c->scope, e->args[i]) != NULL;
  int rank = fixed_rank(c, role, at);
  if (rank >= 0 && !packs && rank != e->n_args)
    return kiln_tc_fail(c->source, e->at, NULL, "%s: expected %d dimensions but found %d",
                        text_of(c, e->name), rank, e->n_args);
  for (int i = 0; i < e->n_args; i++) {
    int where;
    const kiln_tc_expr *a = e->args[i];
    if (a->kind != KILN_TC_PACK) KILN_TRY(check_packs(c, a));
    else if (kiln_tc_role_of(&c->scope, a->name, &where) != KILN_TC_INDEX)
      return kiln_tc_fail(c->source, a->at, NULL, "%s...: is not a pack of indices",
                          text_of(c, a->name));
  }
  return KILN_OK;
}

static kiln_status want_args(const checker *c, const kiln_tc_expr *e, int n) {
  if (e->n_args == n) return KILN_OK;
  return kiln_tc_fail(c->source, e->at, NULL, "%s: expected %d arguments but found %d",
                      text_of(c, e->name), n, e->n_args);
}

// given(x), count(N...), linear(i...), lowest(T), highest(T), whose arguments are names rather than
// values.
static kiln_status check_special(checker *c, const kiln_tc_expr *e, bool *out_is_special) {
  static const char *const specials[] = {"given", "count", "linear", "lowest", "highest", "all"};
  size_t k = 0;
  while (k < KILN_LEN(specials) && strcmp(specials[k], text_of(c, e->name)) != 0) k++;
  *out_is_special = k < KILN_LEN(specials);
  if (!*out_is_special) return KILN_OK;
  KILN_TRY(want_args(c, e, 1));
  const kiln_tc_expr *a = e->args[0];
  int at;
  kiln_dtype t;
  if (k == 5) {
    if (kiln_tc_pack_in(&c->scope, a) != NULL) return check_packs(c, a);
    return kiln_tc_fail(c->source, a->at, NULL,
                        "all: expected a condition on a pack of indices, as in all(i... >= 0)");
  }
  kiln_tc_role role = kiln_tc_role_of(&c->scope, a->name, &at);
  bool fits = false;
  if (k == 0)
    fits = a->kind == KILN_TC_NAME && (role == KILN_TC_INPUT || role == KILN_TC_ATTRIBUTE);
  if (k == 1) fits = a->kind == KILN_TC_PACK && role == KILN_TC_SIZE;
  if (k == 2) fits = a->kind == KILN_TC_PACK && role == KILN_TC_INDEX;
  if (k >= 3)
    fits = a->kind == KILN_TC_NAME &&
           (role == KILN_TC_TYPEVAR || kiln_tc_type_of(text_of(c, a->name), &t));
  static const char *const wants[] = {"an input or attribute",
                                      "a pack of dimensions, as in count(N...)",
                                      "a pack of indices, as in linear(i...)", "a type", "a type"};
  return fits ? KILN_OK
              : kiln_tc_fail(c->source, a->at, NULL, "%s: expected %s", specials[k], wants[k]);
}

static bool has_def(const checker *c, kiln_symbol name) {
  for (int i = 0; i < c->scope.file->n_defs; i++)
    if (c->scope.file->defs[i].name == name) return true;
  return kiln_tc_library_has(text_of(c, name));
}

static kiln_status check_call(checker *c, const kiln_tc_expr *e) {
  kiln_expr_kind k;
  kiln_dtype t;
  int at, n;
  bool special;
  KILN_TRY(check_special(c, e, &special));
  if (special) return KILN_OK;
  kiln_tc_role role = kiln_tc_role_of(&c->scope, e->name, &at);
  if (role == KILN_TC_INPUT || role == KILN_TC_WRITTEN) return check_access(c, e, role, at);
  const char *text = text_of(c, e->name);
  if (role == KILN_TC_TYPEVAR || kiln_tc_type_of(text, &t)) KILN_TRY(want_args(c, e, 1));
  else if (kiln_tc_function(text, &k, &n)) KILN_TRY(want_args(c, e, n));
  else if (kiln_tc_find_composed(text) != NULL)
    KILN_TRY(want_args(c, e, kiln_tc_find_composed(text)->n_args));
  else
    return kiln_tc_fail(
        c->source, e->at, NULL, "%s: undefined variable: no tensor or function %s", text,
        role == KILN_TC_UNWRITTEN ? "has a value of that name yet"
        : has_def(c, e->name) ? "has that name; a definition is called by a statement of its own, "
                                "Z = f(X), after it: there is no recursion"
                              : "has that name");
  for (int i = 0; i < e->n_args; i++) KILN_TRY(check_expr(c, e->args[i]));
  return KILN_OK;
}

static kiln_status check_name(checker *c, const kiln_tc_expr *e) {
  int at;
  kiln_tc_role role = kiln_tc_role_of(&c->scope, e->name, &at);
  if (role == KILN_TC_INPUT || role == KILN_TC_WRITTEN) return check_access(c, e, role, at);
  if (role == KILN_TC_UNWRITTEN || role == KILN_TC_TYPEVAR)
    return kiln_tc_fail(c->source, e->at, NULL, "%s: undefined variable: it has no value here",
                        text_of(c, e->name));
  const kiln_tc_stmt *st = &c->scope.def->stmts[c->scope.stmt];
  for (int i = 0; i < st->n_clauses && role == KILN_TC_INDEX; i++)
    if (st->clauses[i].kind == KILN_TC_LET && st->clauses[i].name == e->name)
      return kiln_tc_fail(c->source, e->at, NULL, "%s: is used before the clause that defines it",
                          text_of(c, e->name));
  if (role == KILN_TC_INDEX && c->in_bound)
    return kiln_tc_fail(c->source, e->at, NULL,
                        "%s: the range of an index must be known beforehand, this is undefined or "
                        "an index; choose with ?:, as in k <= %s ? X(k) : 0",
                        text_of(c, e->name), text_of(c, e->name));
  return KILN_OK;
}

static kiln_status check_expr(checker *c, const kiln_tc_expr *e) {
  int at;
  switch (e->kind) {
  case KILN_TC_INT:
  case KILN_TC_FLOAT:
  case KILN_TC_STRING: return KILN_OK;
  case KILN_TC_NAME: return check_name(c, e);
  case KILN_TC_CALL: return check_call(c, e);
  case KILN_TC_PACK:
    at = 0;
    bool known = kiln_tc_role_of(&c->scope, e->name, &at) == KILN_TC_SIZE;
    if (c->in_pack && (known || !c->in_bound)) return KILN_OK;
    return kiln_tc_fail(c->source, e->at, NULL, "%s...: a pack may only be an index of a tensor",
                        text_of(c, e->name));
  case KILN_TC_EXTENT:
    switch (kiln_tc_role_of(&c->scope, e->name, &at)) {
    case KILN_TC_INPUT:
    case KILN_TC_WRITTEN: return KILN_OK;
    case KILN_TC_INDEX:
    case KILN_TC_LETTED:
    case KILN_TC_ATTRIBUTE:
    case KILN_TC_SIZE:
    case KILN_TC_CONSTANT:
    case KILN_TC_TYPEVAR:
    case KILN_TC_UNWRITTEN: break;
    }
    return kiln_tc_fail(c->source, e->at, NULL, "%s: .d%d asks for a tensor that has a value",
                        text_of(c, e->name), (int)e->i);
  case KILN_TC_UNARY:
  case KILN_TC_BINARY:
  case KILN_TC_TERNARY: break;
  }
  for (int i = 0; i < e->n_args; i++) KILN_TRY(check_expr(c, e->args[i]));
  return KILN_OK;
}

// A where clause must define a new name.
static kiln_status check_clause_name(const checker *c, const kiln_tc_stmt *st, int i) {
  const kiln_tc_clause *w = &st->clauses[i];
  const char *name = text_of(c, w->name);
  bool taken = find_param(c->scope.def, w->name) >= 0;
  if (w->kind == KILN_TC_EXISTS) return KILN_OK;
  for (int k = 0; k < i; k++)
    taken = taken || (st->clauses[k].kind != KILN_TC_EXISTS && st->clauses[k].name == w->name);
  if (taken) return kiln_tc_fail(c->source, w->at, NULL, "%s: already defined", name);
  if (is_reserved(name))
    return kiln_tc_fail(c->source, w->at, NULL, "%s: is built in and cannot be redefined", name);
  if (w->kind == KILN_TC_LET && on_left_side(st, w->name))
    return kiln_tc_fail(c->source, w->at, NULL, "%s: already defined: it is an index", name);
  return KILN_OK;
}

static kiln_status check_clauses(checker *c, const kiln_tc_stmt *st) {
  for (int i = 0; i < st->n_clauses; i++) {
    const kiln_tc_clause *w = &st->clauses[i];
    KILN_TRY(check_clause_name(c, st, i));
    c->scope.n_lets = i;
    c->in_bound = w->kind == KILN_TC_RANGE;
    c->in_pack = w->kind == KILN_TC_RANGE && w->like != 0;
    if (w->lo != NULL) KILN_TRY(check_expr(c, w->lo));
    if (w->hi != NULL) KILN_TRY(check_expr(c, w->hi));
    c->in_pack = false;
    if (w->like != 0 && !is_size(c->scope.def, w->like))
      return kiln_tc_fail(c->source, w->at, NULL, "%s: no pack of dimensions has that name",
                          text_of(c, w->like));
  }
  c->in_bound = false;
  c->scope.n_lets = st->n_clauses;
  return KILN_OK;
}

// All writes of a tensor must have the same number of subscripts.
static kiln_status check_rank(const checker *c, const kiln_tc_stmt *st) {
  int before = find_writer(&c->scope, st->out);
  int want = before < 0 ? -1 : fixed_rank(c, KILN_TC_WRITTEN, before);
  int got = fixed_rank(c, KILN_TC_WRITTEN, c->scope.stmt);
  if (want < 0 || got < 0 || want == got) return KILN_OK;
  return kiln_tc_fail(c->source, st->at, NULL, "%s: expected %d dimensions but found %d",
                      text_of(c, st->out), want, got);
}

// The name must be writable: an output or temporary.
static kiln_status check_result(const checker *c, kiln_symbol name, const char *at) {
  if (find_param(c->scope.def, name) >= 0)
    return kiln_tc_fail(c->source, at, NULL, "%s: TC inputs are immutable", text_of(c, name));
  if (is_reserved(text_of(c, name)))
    return kiln_tc_fail(c->source, at, NULL, "%s: is built in and cannot be redefined",
                        text_of(c, name));
  return KILN_OK;
}

static kiln_status check_left_index(checker *c, const kiln_tc_stmt *st, int i) {
  const kiln_tc_dim *d = &st->lhs[i];
  const char *name = text_of(c, st->out);
  if (d->e != NULL) {
    c->on_left = true;
    KILN_TRY(check_expr(c, d->e));
    c->on_left = false;
    return KILN_OK;
  }
  if (is_size(c->scope.def, d->name) && !d->pack)
    return kiln_tc_fail(c->source, d->at, NULL, "%s: is a size; an index needs another name",
                        text_of(c, d->name));
  for (int j = 0; j < i; j++)
    if (st->lhs[j].name == d->name && st->lhs[j].e == NULL)
      return kiln_tc_fail(c->source, d->at, NULL, "%s: index %s occurs twice", name,
                          text_of(c, d->name));
  return KILN_OK;
}

static kiln_status check_left_side(checker *c, const kiln_tc_stmt *st) {
  KILN_TRY(check_result(c, st->out, st->at));
  KILN_TRY(check_rank(c, st));
  for (int i = 0; i < st->n_lhs; i++) KILN_TRY(check_left_index(c, st, i));
  return KILN_OK;
}

static kiln_status check_combiner(const checker *c, const kiln_tc_stmt *st) {
  kiln_tc_indices all = {0};
  int n_left = kiln_tc_collect_indices(&c->scope, &all);
  bool reduces = all.n > n_left;
  if (st->combiner == KILN_COMBINE_NONE && reduces)
    return kiln_tc_fail(c->source, all.data[n_left].at, NULL,
                        "%s: = includes reduction variable '%s' but does not specify a reduction",
                        text_of(c, st->out), text_of(c, all.data[n_left].name));
  bool updates = st->combiner != KILN_COMBINE_NONE && !st->fresh;
  bool has_value = find_writer(&c->scope, st->out) >= 0;
  if (updates && !has_value && kiln_tc_find_out(c->scope.def, st->out) < 0)
    return kiln_tc_fail(c->source, st->at, NULL,
                        "%s: reduction without initialization; use the assignment with '!'",
                        text_of(c, st->out));
  for (int i = 0; i < st->n_clauses; i++) {
    bool found = st->clauses[i].kind != KILN_TC_RANGE;
    for (int k = 0; k < all.n; k++) found = found || all.data[k].name == st->clauses[i].name;
    if (!found)
      return kiln_tc_fail(c->source, st->clauses[i].at, NULL, "%s: is no index of this statement",
                          text_of(c, st->clauses[i].name));
  }
  return KILN_OK;
}

// Whether an argument of a call is a tensor rather than a number.
static bool is_tensor(const checker *c, const kiln_tc_expr *e) {
  int at;
  if (e->kind != KILN_TC_NAME) return false;
  kiln_tc_role role = kiln_tc_role_of(&c->scope, e->name, &at);
  return role == KILN_TC_INPUT || role == KILN_TC_WRITTEN;
}

// A, B = f(X, 3): arguments are tensors and constant numbers.
static kiln_status check_call_stmt(checker *c, const kiln_tc_stmt *st) {
  KILN_TRY(check_result(c, st->out, st->at));
  for (int i = 0; i < st->n_more; i++) KILN_TRY(check_result(c, st->more[i].name, st->more[i].at));
  bool is_definition = st->rhs->kind == KILN_TC_CALL && is_callable(&c->scope, st->rhs->name);
  if (!is_definition)
    return kiln_tc_fail(c->source, st->rhs->at, NULL,
                        "must be a call of an earlier definition, as in "
                        "A, B = f(X)");
  if (st->n_clauses > 0 || st->n_lhs > 0 || st->combiner != KILN_COMBINE_NONE)
    return kiln_tc_fail(c->source, st->at, NULL,
                        "%s: a call gives whole tensors: it takes no indices and no where clause",
                        text_of(c, st->out));
  for (int i = 0; i < st->rhs->n_args; i++) {
    const kiln_tc_expr *a = st->rhs->args[i];
    if (is_tensor(c, a)) continue;
    KILN_TRY(check_expr(c, a));
    if (!kiln_tc_is_static(&c->scope, a))
      return kiln_tc_fail(c->source, a->at, NULL,
                          "an argument must be a tensor or a number known beforehand; write the "
                          "expression to a tensor first");
  }
  return KILN_OK;
}

static kiln_status check_stmt(checker *c, const kiln_tc_stmt *st) {
  c->scope.n_lets = st->n_clauses;
  if (st->out == 0) {
    KILN_TRY(check_expr(c, st->rhs));
    if (kiln_tc_is_static(&c->scope, st->rhs)) return KILN_OK;
    return kiln_tc_fail(c->source, st->at, NULL,
                        "require: must hold of attributes and sizes alone");
  }
  if (kiln_tc_is_call(&c->scope)) return check_call_stmt(c, st);
  KILN_TRY(check_left_side(c, st));
  KILN_TRY(check_clauses(c, st));
  KILN_TRY(check_expr(c, st->rhs));
  return check_combiner(c, st);
}

static kiln_status check_param(const kiln_tc_file *f, const kiln_tc_def *d, int i) {
  const kiln_tc_param *p = i < d->n_params ? &d->params[i] : &d->outs[i - d->n_params];
  const char *name = kiln_symbol_text(f->source.cx, p->name);
  kiln_tc_class class_;
  if (is_reserved(name))
    return kiln_tc_fail(&f->source, p->at, NULL, "%s: is built in and cannot be redefined", name);
  for (int k = 0; k < i; k++) {
    kiln_symbol other = k < d->n_params ? d->params[k].name : d->outs[k - d->n_params].name;
    if (other == p->name) return kiln_tc_fail(&f->source, p->at, NULL, "%s: already defined", name);
  }
  bool unknown = p->type.var != 0 && !kiln_tc_typevar_of(f->source.cx, d, p->type.var, &class_);
  if (unknown)
    return kiln_tc_fail(&f->source, p->at, NULL, "%s: no type is called %s", name,
                        kiln_symbol_text(f->source.cx, p->type.var));
  return KILN_OK;
}

static kiln_status check_def(const kiln_tc_file *f, const kiln_tc_def *d) {
  checker c = {.source = &f->source, .scope = {f, d, 0, 0}, .in_bound = false};
  if (d->n_outs == 0)
    return kiln_tc_fail(&f->source, d->at, NULL, "%s: a definition has outputs",
                        kiln_symbol_text(f->source.cx, d->name));
  for (int i = 0; i < d->n_params + d->n_outs; i++) KILN_TRY(check_param(f, d, i));
  for (int i = 0; i < d->n_stmts; i++) {
    c.scope.stmt = i;
    KILN_TRY(check_stmt(&c, &d->stmts[i]));
  }
  c.scope.stmt = d->n_stmts;
  for (int i = 0; i < d->n_outs; i++)
    if (find_writer(&c.scope, d->outs[i].name) < 0)
      return kiln_tc_fail(&f->source, d->outs[i].at, NULL, "%s: no statement writes this output",
                          kiln_symbol_text(f->source.cx, d->outs[i].name));
  return KILN_OK;
}

static kiln_status check_header(const kiln_tc_file *f, int i) {
  const kiln_tc_header *h = &f->headers[i];
  const char *name = kiln_symbol_text(f->source.cx, h->name);
  bool found = h->def == 0 ? f->n_defs > 0 : false;
  for (int d = 0; d < f->n_defs; d++) found = found || f->defs[d].name == h->def;
  if (!found)
    return kiln_tc_fail(&f->source, h->at, NULL, "%s: the file has no such definition", name);
  for (int k = 0; k < i; k++) {
    const kiln_tc_header *o = &f->headers[k];
    bool apart = (o->until != 0 && o->until < h->since) || (h->until != 0 && h->until < o->since);
    if (o->name == h->name && o->domain == h->domain && !apart)
      return kiln_tc_fail(&f->source, h->at, NULL, "%s: two headers hold for one opset", name);
  }
  return KILN_OK;
}

kiln_status kiln_tc_read(const kiln_tc_source *source, kiln_tc_file *out) {
  kiln_status first = kiln_tc_parse(source, out);
  for (int i = 0; i < out->n_headers && first == KILN_OK; i++) first = check_header(out, i);
  for (int i = 0, n_wrong = 0; i < out->n_defs; i++) {
    kiln_tc_def *d = &out->defs[i];
    if (d->wrong) continue;
    d->wrong = n_wrong == KILN_TC_MAX_WRONG;
    const kiln_status st = d->wrong ? first : check_def(out, d);
    if (st == KILN_OK) continue;
    if (first == KILN_OK) first = st;
    n_wrong += !d->wrong;
    d->wrong = true;
  }
  return first;
}

kiln_status kiln_tc_read_once(const kiln_tc_source *source, const kiln_tc_file **out) {
  kiln_ctx *cx = source->cx;
  const uint64_t key = (uintptr_t)source->text;
  const uint64_t *known = kiln_map_find(&cx->read, key);
  kiln_tc_file *file =
      known ? (kiln_tc_file *)(uintptr_t)*known : KILN_NEW(&cx->perm, kiln_tc_file);
  *out = file;
  if (known) return KILN_OK;
  KILN_TRY(kiln_tc_read(source, file));
  kiln_map_put(&cx->read, key, (uintptr_t)file);
  return KILN_OK;
}

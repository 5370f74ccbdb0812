// Calls of definitions: Z = f(X), A, B = g(X, 3). The definition's statements are inlined into the
// caller's program, with the caller's tensors as parameters.
#include "tc/env.h"
#include "tc/eval.h"
#include "tc/lexer.h"
#include "tc/library.h"

typedef struct callee {
  kiln_tc_env *env; // of the caller
  int stmt;
  const kiln_tc_stmt *st;
  kiln_tc_caller *caller; // the definition's caller
  const char *why;        // the last candidate's mismatch
} callee;

static const char *text_of(const callee *c, kiln_symbol s) {
  return kiln_symbol_text(c->env->cx, s);
}

static kiln_status fail_in(const callee *c, const char *why) {
  return kiln_tc_fail(&c->env->file->source, c->st->at, NULL, "%s: in this call of %s: %s",
                      text_of(c, c->st->out), text_of(c, c->st->rhs->name), why);
}

static kiln_status argument(callee *c, const kiln_tc_expr *e, kiln_tc_argument *out) {
  kiln_tc_env *env = c->env;
  const kiln_tc_tensor *t = e->kind == KILN_TC_NAME ? kiln_tc_find_tensor(env, e->name) : NULL;
  if (t != NULL && t->tensor != NULL) {
    kiln_tc_tensor *view = KILN_NEW(&env->cx->perm, kiln_tc_tensor);
    *view = *t;
    *out = (kiln_tc_argument){.tensor = t->tensor, .view = view};
    return KILN_OK;
  }
  kiln_tc_eval ev = {.env = env, .scope = {env->file, env->def, c->stmt, 0}};
  kiln_tc_value v;
  KILN_TRY(kiln_tc_evaluate(&ev, e, &v));
  *out = (kiln_tc_argument){.value = v.e};
  return KILN_OK;
}

static kiln_status make_caller(callee *c) {
  kiln_ctx *cx = c->env->cx;
  int n = c->st->rhs->n_args, n_results = 1 + c->st->n_more;
  kiln_tc_argument *inputs = KILN_NEW_ARRAY(&cx->perm, kiln_tc_argument, n);
  const char **names = KILN_NEW_ARRAY(&cx->perm, const char *, n_results);
  for (int i = 0; i < n; i++) KILN_TRY(argument(c, c->st->rhs->args[i], &inputs[i]));
  names[0] = kiln_tc_name_of(c->env, c->stmt, c->st->out);
  for (int i = 1; i < n_results; i++)
    names[i] = kiln_tc_name_of(c->env, c->stmt, c->st->more[i - 1].name);
  c->caller = KILN_NEW(&cx->perm, kiln_tc_caller);
  *c->caller = *c->env->caller;
  c->caller->owns_program = false;
  c->caller->n_inputs = n;
  c->caller->inputs = inputs;
  c->caller->n_outputs = n_results;
  c->caller->outputs = names;
  c->caller->prefix = names[0];
  return KILN_OK;
}

// Declares output |i| of the definition as a result in the caller.
static void declare(callee *c, const kiln_tc_env *env, int i) {
  kiln_tc_tensor t = *kiln_tc_find_tensor(env, env->def->outs[i].name);
  t.name = i == 0 ? c->st->out : c->st->more[i - 1].name;
  KILN_VEC_PUSH(&c->env->cx->perm, &c->env->tensors, t);
}

static kiln_status call(callee *c, const kiln_tc_file *file, const kiln_tc_def *d, bool *out_fits) {
  if (d->wrong) return fail_in(c, "the definition must be right");
  kiln_tc_env *env = KILN_NEW(&c->env->cx->perm, kiln_tc_env);
  env->cx = c->env->cx;
  env->caller = c->caller;
  env->file = file;
  env->header = file == c->env->file ? c->env->header : NULL;
  env->def = d;
  kiln_tc_misfit m;
  KILN_TRY(kiln_tc_fit(env, &m));
  c->why = m.message != 0 ? text_of(c, m.message) : m.why;
  *out_fits = c->why == NULL;
  if (!*out_fits) return KILN_OK;
  if (c->caller->n_outputs > d->n_outs)
    return fail_in(c, kiln_arena_printf(&env->cx->perm, "there must be at most %d results, got %d",
                                        d->n_outs, c->caller->n_outputs));
  kiln_status st = kiln_tc_emit_all(env);
  if (st != KILN_OK) { // the message before has the place in the definition
    (void)fail_in(c, "it cannot be bound to these arguments");
    return st;
  }
  for (int i = 0; i < c->caller->n_outputs; i++) declare(c, env, i);
  return KILN_OK;
}

// Calls the first matching definition of that name in |file|, before |end|.
static kiln_status call_first(callee *c, const kiln_tc_file *file, const kiln_tc_def *end,
                              bool *out_fits) {
  *out_fits = false;
  for (int i = 0; i < file->n_defs && &file->defs[i] != end && !*out_fits; i++)
    if (file->defs[i].name == c->st->rhs->name) KILN_TRY(call(c, file, &file->defs[i], out_fits));
  return KILN_OK;
}

static kiln_status read_library(kiln_ctx *cx, const kiln_tc_file **out) {
  const kiln_tc_source source = {cx, "library", kiln_tc_library_text, KILN_BAD_INPUT, false};
  return kiln_tc_read_once(&source, out);
}

kiln_status kiln_tc_emit_call(kiln_tc_env *env, int stmt) {
  callee c = {.env = env, .stmt = stmt, .st = &env->def->stmts[stmt]};
  bool fits;
  KILN_TRY(make_caller(&c));
  KILN_TRY(call_first(&c, env->file, env->def, &fits));
  if (!fits && kiln_tc_library_has(text_of(&c, c.st->rhs->name))) {
    const kiln_tc_file *library = NULL;
    KILN_TRY(read_library(env->cx, &library));
    KILN_TRY(call_first(&c, library, NULL, &fits));
  }
  return fits ? KILN_OK : fail_in(&c, c.why);
}

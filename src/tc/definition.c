// Definitions as programs of their own: inputs are made from the declared dimensions, with the
// given sizes or symbolic ones.
#include "tc/definition.h"

#include "rewrite/checks.h"
#include "tc/env.h"
#include "tc/lexer.h"

#include <string.h>

// --- signatures ---

static kiln_status read_file(kiln_ctx *cx, const char *file, const char *text, bool quiet,
                             kiln_tc_file *out) {
  kiln_tc_source source = {cx, file, text, KILN_BAD_INPUT, quiet};
  const kiln_status st = kiln_tc_read(&source, out);
  out->source.quiet = false;
  return st;
}

static void add_size(kiln_ctx *cx, kiln_tc_signature *s, bool *packs, const kiln_tc_dim *d) {
  const char *text = kiln_symbol_text(cx, d->name);
  for (int i = 0; i < s->n_sizes; i++)
    if (strcmp(s->sizes[i], text) == 0) return;
  packs[s->n_sizes] = d->pack;
  s->sizes[s->n_sizes++] = text;
}

static int count_dims(int n, const kiln_tc_param *params) {
  int sum = 0;
  for (int i = 0; i < n; i++) sum += params[i].n_dims > 0 ? params[i].n_dims : 0;
  return sum;
}

static const char **names_of(kiln_ctx *cx, int n, const kiln_tc_param *params) {
  const char **out = KILN_NEW_ARRAY(&cx->perm, const char *, n);
  for (int i = 0; i < n; i++) out[i] = kiln_symbol_text(cx, params[i].name);
  return out;
}

static int line_of(const char *text, const char *at) {
  int line = 1;
  for (const char *p = text; p < at; p++) line += *p == '\n';
  return line;
}

static kiln_tc_signature signature_of(kiln_ctx *cx, const char *text, const kiln_tc_def *d) {
  kiln_tc_signature s = {.name = kiln_symbol_text(cx, d->name), .line = line_of(text, d->at)};
  s.inputs = KILN_NEW_ARRAY(&cx->perm, const char *, d->n_params);
  for (int i = 0; i < d->n_params; i++)
    if (!d->params[i].size) s.inputs[s.n_inputs++] = kiln_symbol_text(cx, d->params[i].name);
  s.n_outputs = d->n_outs;
  s.outputs = names_of(cx, d->n_outs, d->outs);
  int n = d->n_params + count_dims(d->n_params, d->params) + count_dims(d->n_outs, d->outs);
  bool *packs = KILN_NEW_ARRAY(&cx->perm, bool, n);
  s.sizes = KILN_NEW_ARRAY(&cx->perm, const char *, n);
  s.packs = packs;
  for (int i = 0; i < d->n_params + d->n_outs; i++) {
    const kiln_tc_param *p = i < d->n_params ? &d->params[i] : &d->outs[i - d->n_params];
    const kiln_tc_dim size = {.name = p->name, .pack = p->pack};
    if (p->size) add_size(cx, &s, packs, &size);
    for (int k = 0; k < p->n_dims; k++)
      if (p->dims[k].name != 0) add_size(cx, &s, packs, &p->dims[k]);
  }
  return s;
}

kiln_status kiln_tc_signatures(kiln_ctx *cx, const char *file, const char *text, bool quiet,
                               int *out_n, kiln_tc_signature **out) {
  kiln_tc_file f;
  const kiln_status st = read_file(cx, file, text, quiet, &f);
  *out_n = 0;
  *out = KILN_NEW_ARRAY(&cx->perm, kiln_tc_signature, f.n_defs);
  for (int i = 0; i < f.n_defs; i++)
    if (!f.defs[i].wrong) (*out)[(*out_n)++] = signature_of(cx, text, &f.defs[i]);
  return st;
}

// --- inputs ---

typedef struct maker {
  kiln_ctx *cx;
  const kiln_tc_file *file;
  const kiln_tc_def *def;
  int n_bindings;
  const kiln_tc_binding *bindings;
  bool *used; // [n_bindings]
  kiln_program *prog;
  KILN_VEC(kiln_tc_argument) arguments;
} maker;

static const kiln_tc_binding *find_binding(maker *m, const char *name) {
  for (int i = 0; i < m->n_bindings; i++) {
    if (strcmp(m->bindings[i].name, name) != 0) continue;
    m->used[i] = true;
    return &m->bindings[i];
  }
  return NULL;
}

static kiln_status extent_of(maker *m, const kiln_tc_dim *d, const char *name,
                             const kiln_expr **out) {
  const kiln_tc_binding *b = find_binding(m, name);
  *out = b != NULL ? kiln_int(m->cx, b->value) : kiln_var(m->cx, kiln_symbol_of(m->cx, name));
  if (b == NULL || b->value >= 0) return KILN_OK;
  return kiln_tc_fail(&m->file->source, d->at, NULL,
                      "%s: the size must not be negative, got %" PRId64, name, b->value);
}

// The number of dimensions of a pack, from N.rank or else from the axes with given sizes.
static int rank_of_pack(maker *m, const char *name) {
  const kiln_tc_binding *b = find_binding(m, kiln_arena_printf(&m->cx->perm, "%s.rank", name));
  if (b != NULL) return b->value < 0 || b->value > KILN_MAX_RANK ? -1 : (int)b->value;
  int n = 0;
  while (find_binding(m, kiln_arena_printf(&m->cx->perm, "%s.%d", name, n)) != NULL) n++;
  return n > 0 ? n : -1;
}

static kiln_status want_rank(const maker *m, const kiln_tc_dim *d, const char *name) {
  return kiln_tc_fail(&m->file->source, d->at, NULL,
                      "%s...: the number of its dimensions must be given, in [0, %d], as in "
                      "%s.rank=2",
                      name, KILN_MAX_RANK, name);
}

static kiln_status add_dim(maker *m, const kiln_tc_dim *d, int *rank, const kiln_expr **shape) {
  kiln_ctx *cx = m->cx;
  const char *name = kiln_symbol_text(cx, d->name);
  int n = d->pack ? rank_of_pack(m, name) : 1;
  if (n < 0) return want_rank(m, d, name);
  if (*rank + n > KILN_MAX_RANK)
    return kiln_tc_fail(&m->file->source, d->at, NULL, "%s: at most %d dimensions are allowed here",
                        name, KILN_MAX_RANK);
  for (int k = 0; k < n; k++, (*rank)++) {
    const char *axis = d->pack ? kiln_arena_printf(&cx->perm, "%s.%d", name, k) : name;
    if (d->name == 0) shape[*rank] = kiln_int(cx, d->value);
    else KILN_TRY(extent_of(m, d, axis, &shape[*rank]));
  }
  return KILN_OK;
}

static kiln_status add_argument(maker *m, kiln_tc_argument a) {
  KILN_VEC_PUSH(&m->cx->perm, &m->arguments, a);
  return KILN_OK;
}

// A size parameter is not an input: only its value is set.
static kiln_status make_size(maker *m, const kiln_tc_param *p) {
  const kiln_tc_dim d = {.at = p->at, .name = p->name, .pack = p->pack};
  const char *name = kiln_symbol_text(m->cx, p->name);
  int n = p->pack ? rank_of_pack(m, name) : 1;
  if (n < 0) return want_rank(m, &d, name);
  for (int k = 0; k < n; k++) {
    kiln_tc_argument a = {0};
    KILN_TRY(extent_of(m, &d, p->pack ? kiln_arena_printf(&m->cx->perm, "%s.%d", name, k) : name,
                       &a.value));
    KILN_TRY(add_argument(m, a));
  }
  return KILN_OK;
}

static kiln_status make_input(maker *m, const kiln_tc_param *p) {
  if (p->size) return make_size(m, p);
  const kiln_expr *shape[KILN_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < p->n_dims; i++) KILN_TRY(add_dim(m, &p->dims[i], &rank, shape));
  kiln_tensor *t = kiln_tensor_make(m->cx, m->prog, kiln_symbol_text(m->cx, p->name),
                                    kiln_tc_example_type(m->cx, m->def, &p->type, false),
                                    KILN_INPUT, rank, shape);
  KILN_VEC_PUSH(&m->cx->perm, &m->prog->inputs, t->id);
  return add_argument(m, (kiln_tc_argument){.tensor = t});
}

// Marks bindings of other names as used: attributes, and dimensions of outputs only.
static void use_other_names(maker *m, const kiln_tc_header *h) {
  for (int o = 0; o < m->def->n_outs; o++)
    for (int i = 0; i < m->def->outs[o].n_dims; i++)
      if (m->def->outs[o].dims[i].name != 0)
        (void)find_binding(m, kiln_symbol_text(m->cx, m->def->outs[o].dims[i].name));
  for (int i = 0; h != NULL && i < h->n_attrs; i++)
    (void)find_binding(m, kiln_symbol_text(m->cx, h->attrs[i].name));
}

static kiln_status check_bindings(const maker *m) {
  for (int i = 0; i < m->n_bindings; i++)
    if (!m->used[i])
      return kiln_tc_fail(&m->file->source, m->def->at, NULL,
                          "%s: has no size or attribute of the name %s",
                          kiln_symbol_text(m->cx, m->def->name), m->bindings[i].name);
  return KILN_OK;
}

// --- programs ---

static const kiln_tc_def *find_def(const kiln_tc_file *f, const char *entry) {
  if (entry == NULL) return f->n_defs > 0 ? &f->defs[f->n_defs - 1] : NULL;
  for (int i = 0; i < f->n_defs; i++)
    if (strcmp(kiln_symbol_text(f->source.cx, f->defs[i].name), entry) == 0) return &f->defs[i];
  return NULL;
}

static const kiln_tc_def *nth_right(const kiln_tc_file *f, int nth) {
  for (int i = 0; i < f->n_defs; i++)
    if (!f->defs[i].wrong && nth-- == 0) return &f->defs[i];
  return NULL;
}

static kiln_status no_def(const kiln_tc_file *f, const char *entry) {
  kiln_ctx *cx = f->source.cx;
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  for (int i = 0; i < f->n_defs; i++)
    kiln_text_printf(&t, "%s%s", i > 0 ? ", " : "", kiln_symbol_text(cx, f->defs[i].name));
  if (f->n_defs == 0)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, f->source.file, "must have a definition, got none");
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, f->source.file,
                   "entry: must be a definition of the file (%s), got %s", t.data, entry);
}

static const kiln_tc_header *header_of(const kiln_tc_file *f, const kiln_tc_def *d) {
  for (int i = 0; i < f->n_headers; i++)
    if (f->headers[i].def == 0 || f->headers[i].def == d->name) return &f->headers[i];
  return NULL;
}

static kiln_status fit(kiln_tc_env *env) {
  kiln_tc_misfit misfit;
  KILN_TRY(kiln_tc_fit(env, &misfit));
  const char *why = misfit.message != 0 ? kiln_symbol_text(env->cx, misfit.message) : misfit.why;
  if (why == NULL) return KILN_OK;
  return kiln_tc_fail(&env->file->source, env->def->at, NULL, "%s: %s",
                      kiln_symbol_text(env->cx, env->def->name), why);
}

static kiln_status bind(maker *m, const kiln_tc_caller *caller, const kiln_tc_header *header) {
  kiln_tc_env *env = KILN_NEW(&m->cx->perm, kiln_tc_env);
  env->cx = m->cx;
  env->caller = caller;
  env->file = m->file;
  env->header = header;
  env->def = m->def;
  KILN_TRY(fit(env));
  KILN_TRY(kiln_tc_emit_all(env));
  for (int i = 0; i < m->def->n_outs; i++) {
    const kiln_tc_tensor *found = kiln_tc_find_tensor(env, m->def->outs[i].name);
    kiln_tensor *t = m->prog->tensors.data[found->tensor->id];
    if (t->role == KILN_TEMP) t->role = KILN_OUTPUT;
    KILN_VEC_PUSH(&m->cx->perm, &m->prog->outputs, t->id);
  }
  kiln_checks_finish(m->cx, m->prog, caller->checks);
  return kiln_program_verify(m->cx, m->prog);
}

static kiln_status program_of(const kiln_tc_file *f, const kiln_tc_def *d, int n_bindings,
                              const kiln_tc_binding *bindings, kiln_program **out) {
  kiln_ctx *cx = f->source.cx;
  const char *name = kiln_symbol_text(cx, d->name);
  maker m = {.cx = cx, .file = f, .def = d, .n_bindings = n_bindings, .bindings = bindings};
  m.prog = kiln_program_make(cx, name);
  m.used = KILN_NEW_ARRAY(&cx->perm, bool, n_bindings);
  for (int i = 0; i < d->n_params; i++) KILN_TRY(make_input(&m, &d->params[i]));
  const kiln_tc_header *header = header_of(f, d);
  use_other_names(&m, header);
  KILN_TRY(check_bindings(&m));
  kiln_tc_caller *caller = KILN_NEW(&cx->perm, kiln_tc_caller);
  *caller = (kiln_tc_caller){.prog = m.prog,
                             .place = f->source.file,
                             .origin = d->name,
                             .owns_program = true,
                             .checks = KILN_NEW(&cx->perm, kiln_checks),
                             .n_bindings = n_bindings,
                             .bindings = bindings,
                             .n_inputs = m.arguments.n,
                             .inputs = m.arguments.data,
                             .n_outputs = d->n_outs,
                             .outputs = names_of(cx, d->n_outs, d->outs)};
  KILN_TRY(bind(&m, caller, header));
  *out = m.prog;
  return KILN_OK;
}

kiln_status kiln_tc_program(kiln_ctx *cx, const char *file, const char *text, const char *entry,
                            int n_bindings, const kiln_tc_binding *bindings, kiln_program **out) {
  kiln_tc_file *f = KILN_NEW(&cx->perm, kiln_tc_file);
  *out = NULL;
  KILN_TRY(read_file(cx, file, text, false, f));
  const kiln_tc_def *d = find_def(f, entry);
  return d != NULL ? program_of(f, d, n_bindings, bindings, out) : no_def(f, entry);
}

kiln_status kiln_tc_program_nth(kiln_ctx *cx, const char *file, const char *text, int nth,
                                int n_bindings, const kiln_tc_binding *bindings,
                                kiln_program **out) {
  kiln_tc_file *f = KILN_NEW(&cx->perm, kiln_tc_file);
  *out = NULL;
  (void)read_file(cx, file, text, true, f);
  const kiln_tc_def *d = nth_right(f, nth);
  return d != NULL ? program_of(f, d, n_bindings, bindings, out) : no_def(f, NULL);
}

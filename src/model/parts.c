// Division of a program with regions into parts (parts.h).
#include "model/parts.h"

#include "rewrite/dce.h"
#include "rewrite/empty.h"

#include <string.h>

typedef struct division {
  kiln_ctx *cx;
  kiln_program *p;
  const kiln_data_dependent_extents *counts;
  const kiln_checks *checks;
  const kiln_kept_loops *regions;
  kiln_bits *live;   // tensors that are needed
  int *owner;        // [stmts] the innermost region; -1: none
  int *parent;       // [regions]
  int *level;        // [tensors] within the scope that makes them
  int *part_of;      // [tensors] the part that makes them; -1: none
  kiln_flow_arg *at; // [tensors] where they lie
  bool *has_place;   // [tensors]
  KILN_VEC(kiln_flow_value) values;
  KILN_VEC(kiln_flow_step) steps;
  KILN_VEC(kiln_flow_arg) args;
  KILN_VEC(kiln_program *) parts;
  KILN_VEC(int) consts; // constants that lie in buffers, which the first part fills
  kiln_status status;
} division;

static kiln_tensor *tensor(const division *d, int t) { return d->p->tensors.data[t]; }

// --- what is read ---

typedef struct reading {
  const division *d;
  kiln_bits *out;
} reading;

static void note_load(const kiln_expr *e, void *argument) {
  reading *r = argument;
  if (e->kind == KILN_EXPR_LOAD) kiln_bits_set(r->out, e->u.tensor);
  const kiln_data_dependent_extent *c = kiln_data_dependent_find(r->d->counts, e);
  if (c) kiln_bits_set(r->out, c->tensor);
}

static void note_expr(reading *r, const kiln_expr *e) {
  if (e) kiln_expr_visit(r->d->cx, e, note_load, r);
}

// Sets the tensors that |s| reads, and those that count its extents.
static void note_stmt(const division *d, const kiln_stmt *s, kiln_bits *out) {
  reading r = {d, out};
  const kiln_tensor *t = tensor(d, s->out);
  note_expr(&r, s->body);
  note_expr(&r, s->guard);
  note_expr(&r, s->init);
  for (int a = 0; a < t->rank; a++) {
    note_expr(&r, s->index[a]);
    note_expr(&r, t->shape[a]);
  }
  for (int i = 0; i < s->n_space + s->n_reduce; i++) note_expr(&r, s->dims[i].extent);
}

// Shapes of what is read matter, too: whether an index lies in them.
static void note_shapes(const division *d, kiln_bits *io) {
  for (int t = 0; t < d->p->tensors.n; t++) {
    reading r = {d, io};
    for (int a = 0; kiln_bits_has(io, t) && a < tensor(d, t)->rank; a++)
      note_expr(&r, tensor(d, t)->shape[a]);
  }
}

static void keep(const division *d, int t) {
  if (t >= 0) kiln_bits_set(d->live, t);
}

static void find_live(division *d) {
  for (int i = 0; i < d->p->outputs.n; i++) keep(d, d->p->outputs.data[i]);
  for (int i = 0; i < d->checks->all.n; i++) keep(d, d->checks->all.data[i].tensor);
  for (int i = 0; i < d->regions->all.n; i++) {
    const kiln_kept_loop *g = &d->regions->all.data[i];
    if (g->kind != KILN_KEPT_LOOP) keep(d, g->decide);
    for (int k = 0; k < g->results.n; k++) keep(d, g->results.data[k].source);
    keep(d, g->count);
    for (int k = 0; k < g->states.n; k++) {
      keep(d, g->states.data[k].initial);
      keep(d, g->states.data[k].next);
    }
    for (int k = 0; k < g->rows.n; k++)
      keep(d, g->rows.data[k].is_output ? g->rows.data[k].row : g->rows.data[k].whole);
  }
  note_shapes(d, d->live);
  for (int i = d->p->stmts.n - 1; i >= 0; i--)
    if (kiln_bits_has(d->live, d->p->stmts.data[i]->out)) {
      note_stmt(d, d->p->stmts.data[i], d->live);
      note_shapes(d, d->live);
    }
}

// --- scopes and levels ---

static bool is_other_branch(const kiln_kept_loop *a, const kiln_kept_loop *b) {
  return a->kind != KILN_KEPT_LOOP && b->kind != KILN_KEPT_LOOP && a->pair == b->pair;
}

static void find_owners(division *d) {
  for (int i = 0; i < d->p->stmts.n; i++) d->owner[i] = -1;
  for (int g = d->regions->all.n - 1; g >= 0; g--) { // outer ones first
    const kiln_kept_loop *r = &d->regions->all.data[g];
    d->parent[g] = r->first < d->p->stmts.n && r->first < r->end ? d->owner[r->first] : -1;
    for (int i = r->first; i < r->end; i++) d->owner[i] = g;
  }
  // An empty body has no statement that tells its parent.
  for (int g = 0; g < d->regions->all.n; g++) {
    const kiln_kept_loop *r = &d->regions->all.data[g];
    for (int o = g + 1; o < d->regions->all.n && r->first == r->end; o++) {
      const kiln_kept_loop *outer = &d->regions->all.data[o];
      if (is_other_branch(r, outer)) continue;
      if (outer->first > r->first || outer->end < r->end || outer == r) continue;
      d->parent[g] = o;
      break;
    }
  }
}

static int level_of(const division *d, const kiln_bits *read) {
  int level = 0;
  for (int t = 0; t < d->p->tensors.n; t++)
    if (kiln_bits_has(read, t) && d->level[t] > level) level = d->level[t];
  return level;
}

// The tensors that a region needs from outside, among others.
static kiln_bits *reads_of(const division *d, const kiln_kept_loop *g) {
  kiln_bits *read = kiln_bits_make(&d->cx->perm, d->p->tensors.n);
  for (int i = g->first; i < g->end; i++)
    if (kiln_bits_has(d->live, d->p->stmts.data[i]->out)) note_stmt(d, d->p->stmts.data[i], read);
  if (g->kind != KILN_KEPT_LOOP) kiln_bits_set(read, g->decide);
  for (int k = 0; k < g->results.n; k++) kiln_bits_set(read, g->results.data[k].source);
  if (g->count >= 0) kiln_bits_set(read, g->count);
  for (int k = 0; k < g->states.n; k++) {
    kiln_bits_set(read, g->states.data[k].initial);
    kiln_bits_set(read, g->states.data[k].next);
  }
  for (int k = 0; k < g->rows.n; k++)
    kiln_bits_set(read, g->rows.data[k].is_output ? g->rows.data[k].row : g->rows.data[k].whole);
  note_shapes(d, read);
  return read;
}

// --- values ---

static bool shape_of(division *d, const kiln_tensor *t, int64_t *out) {
  for (int a = 0; a < t->rank; a++) {
    const kiln_expr *most = kiln_data_dependent_most(d->cx, d->counts, t->shape[a]);
    if (!most || !kiln_expr_is_int(most, &out[a])) return false;
  }
  return true;
}

static uint32_t add_value(division *d, const kiln_tensor *t, const char *name) {
  kiln_flow_value v = {
      .name = name, .type = kiln_type_find(kiln_dtype_text(t->dtype)), .rank = t->rank};
  const bool fits = shape_of(d, t, v.shape) && v.type &&
                    (!kiln_type_is_packed(v.type) || t->dtype == KILN_BOOL) &&
                    kiln_shape_bytes(v.rank, v.shape, kiln_type_bytes(v.type), &v.bytes);
  if (!fits && d->status == KILN_OK)
    d->status = KILN_FAIL(d->cx->diag, KILN_UNSUPPORTED, kiln_symbol_text(d->cx, t->name),
                          "value of a loop: must have whole bytes and a shape with a bound, got %s",
                          kiln_dtype_text(t->dtype));
  KILN_VEC_PUSH(&d->cx->perm, &d->values, v);
  return (uint32_t)d->values.n - 1;
}

static void put_at(division *d, int t, kiln_flow_arg at) {
  d->at[t] = at;
  d->has_place[t] = true;
}

static kiln_flow_arg place_of(division *d, int t) {
  if (!d->has_place[t]) {
    const kiln_flow_arg made = {
        add_value(d, tensor(d, t), kiln_symbol_text(d->cx, tensor(d, t)->name)), 0, 0};
    put_at(d, t, made);
    if (tensor(d, t)->role == KILN_CONST) KILN_VEC_PUSH(&d->cx->perm, &d->consts, t);
  }
  return d->at[t];
}

// --- steps ---

static kiln_flow_step *add_step(division *d, kiln_flow_op op) {
  const kiln_flow_step s = {.op = op, .first_arg = (uint32_t)d->args.n};
  KILN_VEC_PUSH(&d->cx->perm, &d->steps, s);
  return &d->steps.data[d->steps.n - 1];
}

static void add_arg(division *d, kiln_flow_arg a) {
  KILN_VEC_PUSH(&d->cx->perm, &d->args, a);
  d->steps.data[d->steps.n - 1].n_args++;
}

static void add_copy(division *d, kiln_flow_arg from, kiln_flow_arg to) {
  if (memcmp(&from, &to, sizeof from) == 0) return;
  add_step(d, KILN_FLOW_COPY);
  add_arg(d, from);
  add_arg(d, to);
}

// The program of statements |mine|, bits, which gives |outputs|.
static kiln_status make_part(division *d, const kiln_bits *mine, int n_outputs, const int *outputs,
                             const kiln_bits *read, int part) {
  kiln_ctx *cx = d->cx;
  kiln_program *q = kiln_program_copy(cx, d->p);
  kiln_checks checks = {0};
  int n = 0;
  for (int i = 0; i < q->stmts.n; i++)
    if (kiln_bits_has(mine, i)) q->stmts.data[n++] = q->stmts.data[i];
  q->stmts.n = n;
  q->inputs.n = q->outputs.n = q->output_names.n = q->shape_of.n = 0;
  kiln_flow_step *step = add_step(d, KILN_FLOW_RUN);
  step->part = (uint32_t)part;
  for (int t = 0; t < d->p->tensors.n; t++) {
    kiln_tensor *x = q->tensors.data[t];
    const bool makes = x->def >= 0 && kiln_bits_has(mine, x->def);
    if (!makes) x->def = -1;
    if (x->role == KILN_CONST) continue;
    x->role = KILN_TEMP;
    if (makes || !kiln_bits_has(read, t)) continue;
    x->role = KILN_INPUT;
    KILN_VEC_PUSH(&cx->perm, &q->inputs, t);
    add_arg(d, place_of(d, t));
  }
  for (int i = 0; i < n_outputs; i++) {
    KILN_VEC_PUSH(&cx->perm, &q->outputs, outputs[i]);
    add_arg(d, place_of(d, outputs[i]));
  }
  kiln_outputs_mark(q);
  for (int i = 0; i < d->checks->all.n; i++) {
    const int def = tensor(d, d->checks->all.data[i].tensor)->def;
    if (def >= 0 && kiln_bits_has(mine, def))
      KILN_VEC_PUSH(&cx->perm, &checks.all, d->checks->all.data[i]);
  }
  KILN_TRY(kiln_data_dependent_resolve(cx, q, d->counts, &checks));
  kiln_stmts_renumber(q);
  kiln_checks_finish(cx, q, &checks);
  kiln_program_drop_unwritten(cx, q);
  kiln_program_fold_empty(cx, q);
  kiln_program_dce(cx, q);
  KILN_VEC_PUSH(&cx->perm, &d->parts, q);
  return kiln_program_verify(cx, q);
}

// Whether a tensor that |part| makes is needed elsewhere.
static kiln_bits *needed_outside(const division *d, const kiln_bits *mine) {
  kiln_bits *read = kiln_bits_make(&d->cx->perm, d->p->tensors.n);
  for (int i = 0; i < d->p->stmts.n; i++)
    if (!kiln_bits_has(mine, i) && kiln_bits_has(d->live, d->p->stmts.data[i]->out))
      note_stmt(d, d->p->stmts.data[i], read);
  for (int i = 0; i < d->p->outputs.n; i++) kiln_bits_set(read, d->p->outputs.data[i]);
  for (int g = 0; g < d->regions->all.n; g++) {
    const kiln_kept_loop *r = &d->regions->all.data[g];
    if (r->kind != KILN_KEPT_LOOP) kiln_bits_set(read, r->decide);
    for (int k = 0; k < r->results.n; k++) kiln_bits_set(read, r->results.data[k].source);
    if (r->count >= 0) kiln_bits_set(read, r->count);
    for (int k = 0; k < r->states.n; k++) {
      kiln_bits_set(read, r->states.data[k].initial);
      kiln_bits_set(read, r->states.data[k].next);
    }
    for (int k = 0; k < r->rows.n; k++)
      kiln_bits_set(read, r->rows.data[k].is_output ? r->rows.data[k].row : r->rows.data[k].whole);
  }
  note_shapes(d, read);
  return read;
}

// The statements of |scope| at |level|; NULL: none are needed.
static kiln_bits *stmts_at(const division *d, int scope, int level) {
  kiln_bits *mine = kiln_bits_make(&d->cx->perm, d->p->stmts.n);
  bool any = false;
  for (int i = 0; i < d->p->stmts.n; i++) {
    const kiln_stmt *s = d->p->stmts.data[i];
    if (d->owner[i] != scope || d->level[s->out] != level || !kiln_bits_has(d->live, s->out))
      continue;
    kiln_bits_set(mine, i);
    any = true;
  }
  return any ? mine : NULL;
}

static kiln_status add_part(division *d, int scope, int level) {
  kiln_bits *mine = stmts_at(d, scope, level);
  if (!mine) return KILN_OK;
  kiln_bits *read = kiln_bits_make(&d->cx->perm, d->p->tensors.n);
  const kiln_bits *outside = needed_outside(d, mine);
  int *outputs = KILN_NEW_ARRAY(&d->cx->perm, int, d->p->tensors.n), n = 0;
  for (int i = 0; i < d->p->stmts.n; i++) {
    if (!kiln_bits_has(mine, i)) continue;
    note_stmt(d, d->p->stmts.data[i], read);
    if (kiln_bits_has(outside, d->p->stmts.data[i]->out)) outputs[n++] = d->p->stmts.data[i]->out;
  }
  note_shapes(d, read);
  for (int i = 0; i < n; i++) d->part_of[outputs[i]] = d->parts.n;
  return make_part(d, mine, n, outputs, read, d->parts.n);
}

static kiln_status add_scope(division *d, int scope);

static bool is_invariant(const kiln_loop_state *s) { return s->next == s->in; }

// Gives states, rows and results their places.
static void place_region(division *d, const kiln_kept_loop *g, uint32_t loop) {
  for (int k = 0; k < g->states.n; k++) {
    const kiln_loop_state *s = &g->states.data[k];
    if (is_invariant(s)) put_at(d, s->in, place_of(d, s->initial));
    else (void)place_of(d, s->in);
    if (s->result >= 0) put_at(d, s->result, d->at[s->in]);
    if (!is_invariant(s) && !d->has_place[s->next] && tensor(d, s->next)->def >= g->first &&
        tensor(d, s->next)->def < g->end)
      (void)place_of(d, s->next);
  }
  for (int k = 0; k < g->rows.n; k++) {
    const kiln_loop_row *r = &g->rows.data[k];
    const kiln_flow_arg at = {place_of(d, r->whole).value, loop + 1, r->backwards};
    const int def = tensor(d, r->row)->def;
    if (!r->is_output || (!d->has_place[r->row] && def >= g->first && def < g->end))
      put_at(d, r->row, at);
  }
}

static uint32_t number_of(division *d, int t) { return t < 0 ? 0 : place_of(d, t).value + 1; }

static kiln_status add_loop(division *d, int g) {
  const kiln_kept_loop *r = &d->regions->all.data[g];
  for (int k = 0; k < r->states.n; k++)
    if (!is_invariant(&r->states.data[k]))
      add_copy(d, place_of(d, r->states.data[k].initial), place_of(d, r->states.data[k].in));
  const uint32_t loop = (uint32_t)d->steps.n;
  place_region(d, r, loop);
  kiln_flow_step s = {.op = KILN_FLOW_LOOP,
                      .count = number_of(d, r->count),
                      .iteration = number_of(d, r->iteration),
                      .made = number_of(d, r->made),
                      .most = r->most,
                      .is_limit = r->is_limit,
                      .place = r->place};
  if (r->condition >= 0) s.condition = number_of(d, r->states.data[r->condition].in);
  KILN_VEC(kiln_loop_state) moved = {0};
  *add_step(d, KILN_FLOW_LOOP) = s;
  d->steps.data[loop].first_arg = (uint32_t)d->args.n;
  kiln_flow_arg *next = KILN_NEW_ARRAY(&d->cx->perm, kiln_flow_arg, r->states.n);
  for (int k = 0; k < r->states.n; k++) {
    const kiln_loop_state *state = &r->states.data[k];
    if (is_invariant(state)) continue;
    bool is_taken = d->at[state->next].row != 0 || !d->has_place[state->next];
    const int def = tensor(d, state->next)->def;
    is_taken |= def < r->first || def >= r->end;
    for (int j = 0; j < k; j++) is_taken |= r->states.data[j].next == state->next;
    next[k] = is_taken ? (kiln_flow_arg){add_value(d, tensor(d, state->in), "next"), 0, 0}
                       : d->at[state->next];
    add_arg(d, d->at[state->in]);
    add_arg(d, next[k]);
    if (is_taken) KILN_VEC_PUSH(&d->cx->perm, &moved, *state);
  }
  KILN_TRY(add_scope(d, g));
  for (int k = 0; k < r->states.n; k++)
    for (int j = 0; j < moved.n; j++)
      if (moved.data[j].in == r->states.data[k].in)
        add_copy(d, place_of(d, r->states.data[k].next), next[k]);
  for (int k = 0; k < r->rows.n; k++) {
    const kiln_loop_row *row = &r->rows.data[k];
    const kiln_flow_arg to = {place_of(d, row->whole).value, loop + 1, row->backwards};
    if (row->is_output) add_copy(d, place_of(d, row->row), to);
  }
  add_step(d, KILN_FLOW_END);
  return KILN_OK;
}

static int other_branch(const division *d, int g) {
  int other = g;
  for (int o = 0; o < d->regions->all.n; o++)
    if (o != g && is_other_branch(&d->regions->all.data[g], &d->regions->all.data[o])) other = o;
  return other;
}

// The steps of a branch, which give the results.
static kiln_status add_branch(division *d, int g) {
  const kiln_kept_loop *r = &d->regions->all.data[g];
  for (int k = 0; k < r->results.n; k++) {
    const int source = r->results.data[k].source, def = tensor(d, source)->def;
    const kiln_flow_arg at = place_of(d, r->results.data[k].result);
    if (!d->has_place[source] && def >= r->first && def < r->end) put_at(d, source, at);
  }
  KILN_TRY(add_scope(d, g));
  for (int k = 0; k < r->results.n; k++)
    add_copy(d, place_of(d, r->results.data[k].source), place_of(d, r->results.data[k].result));
  return KILN_OK;
}

static kiln_status add_if(division *d, int g) {
  const uint32_t condition = number_of(d, d->regions->all.data[g].decide);
  add_step(d, KILN_FLOW_IF)->condition = condition;
  KILN_TRY(add_branch(d, g));
  add_step(d, KILN_FLOW_ELSE);
  KILN_TRY(add_branch(d, other_branch(d, g)));
  add_step(d, KILN_FLOW_ENDIF);
  return KILN_OK;
}

static kiln_status add_region(division *d, int g) {
  const kiln_kept_kind kind = d->regions->all.data[g].kind;
  if (kind == KILN_KEPT_LOOP) return add_loop(d, g);
  return kind == KILN_KEPT_THEN ? add_if(d, g) : KILN_OK;
}

static kiln_status add_scope(division *d, int scope) {
  int n_levels = 1;
  int *levels = KILN_NEW_ARRAY(&d->cx->perm, int, d->regions->all.n + 1);
  const int first = scope < 0 ? 0 : d->regions->all.data[scope].first,
            end = scope < 0 ? d->p->stmts.n : d->regions->all.data[scope].end;
  for (int t = 0; t < d->p->tensors.n; t++) d->level[t] = 0;
  for (int i = first; i <= end; i++) {
    for (int g = 0; g < d->regions->all.n; g++) {
      const kiln_kept_loop *r = &d->regions->all.data[g];
      if (r->end != i || d->parent[g] != scope || g == scope) continue;
      levels[g] = level_of(d, reads_of(d, r));
      if (r->kind == KILN_KEPT_ELSE) { // both branches run behind what either needs
        const int then = other_branch(d, g);
        if (levels[then] > levels[g]) levels[g] = levels[then];
        levels[then] = levels[g];
        for (int k = 0; k < r->results.n; k++) d->level[r->results.data[k].result] = levels[g] + 1;
      }
      for (int k = 0; k < r->states.n; k++)
        if (r->states.data[k].result >= 0) d->level[r->states.data[k].result] = levels[g] + 1;
      for (int k = 0; k < r->rows.n; k++)
        if (r->rows.data[k].is_output) d->level[r->rows.data[k].whole] = levels[g] + 1;
      if (r->made >= 0) d->level[r->made] = levels[g] + 1;
      if (levels[g] + 2 > n_levels) n_levels = levels[g] + 2;
    }
    if (i == end || d->owner[i] != scope) continue;
    kiln_bits *read = kiln_bits_make(&d->cx->perm, d->p->tensors.n);
    note_stmt(d, d->p->stmts.data[i], read);
    note_shapes(d, read);
    kiln_bits_clear(read, d->p->stmts.data[i]->out);
    d->level[d->p->stmts.data[i]->out] = level_of(d, read);
  }
  int *mine = KILN_NEW_ARRAY(&d->cx->perm, int, d->p->tensors.n + 1);
  memcpy(mine, d->level, (size_t)d->p->tensors.n * sizeof *mine);
  for (int level = 0; level < n_levels; level++) {
    memcpy(d->level, mine, (size_t)d->p->tensors.n * sizeof *mine);
    KILN_TRY(add_part(d, scope, level));
    for (int g = 0; g < d->regions->all.n; g++)
      if (d->parent[g] == scope && levels[g] == level) KILN_TRY(add_region(d, g));
  }
  return d->status;
}

// A part in front of all that writes the constants that lie in buffers. There is a part at least.
static kiln_status add_constants(division *d) {
  if (d->consts.n == 0 && d->parts.n > 0) return KILN_OK;
  const kiln_bits *none = kiln_bits_make(&d->cx->perm, d->p->stmts.n);
  const kiln_bits *nothing = kiln_bits_make(&d->cx->perm, d->p->tensors.n);
  KILN_TRY(make_part(d, none, d->consts.n, d->consts.data, nothing, d->parts.n));
  const kiln_flow_step last = d->steps.data[d->steps.n - 1];
  for (int i = d->steps.n - 1; i > 0; i--) d->steps.data[i] = d->steps.data[i - 1];
  d->steps.data[0] = last;
  for (int i = 0; i < d->args.n; i++)
    if (d->args.data[i].row) d->args.data[i].row++; // the loops are one step further
  return KILN_OK;
}

static void give_offsets(division *d, uint32_t n_ports) {
  uint64_t at = 0;
  for (int i = (int)n_ports; i < d->values.n; i++) {
    d->values.data[i].offset = at;
    at += (d->values.data[i].bytes + KILN_PLAN_ALIGN - 1) / KILN_PLAN_ALIGN * KILN_PLAN_ALIGN;
  }
}

// Where output |i| has its shape from, if only the run knows it.
static kiln_flow_shape find_shape(const division *d, int i) {
  const int t = d->p->outputs.data[i], part = d->part_of[t];
  for (int k = 0; part >= 0 && k < d->parts.data[part]->shape_of.n; k++) {
    const int of = d->parts.data[part]->shape_of.data[k];
    const int made = d->parts.data[part]->outputs.data[of];
    if (d->parts.data[part]->tensors.data[made]->name == tensor(d, t)->name)
      return (kiln_flow_shape){(uint32_t)part + 1, (uint32_t)of};
  }
  return (kiln_flow_shape){0};
}

// Inputs and outputs are the first values; a tensor that is an output is made in its place.
static void add_ports(division *d) {
  kiln_program *p = d->p;
  for (int i = 0; i < p->inputs.n; i++) (void)place_of(d, p->inputs.data[i]);
  for (int i = 0; i < p->outputs.n; i++) {
    kiln_tensor *t = tensor(d, p->outputs.data[i]);
    const char *name =
        kiln_symbol_text(d->cx, i < p->output_names.n ? p->output_names.data[i] : t->name);
    const kiln_flow_arg at = {add_value(d, t, name), 0, 0};
    if (!d->has_place[t->id] && t->def >= 0 && d->owner[t->def] < 0) put_at(d, t->id, at);
  }
}

static kiln_status divide(division *d) {
  const uint32_t n_inputs = (uint32_t)d->p->inputs.n, n_outputs = (uint32_t)d->p->outputs.n;
  find_live(d);
  find_owners(d);
  add_ports(d);
  KILN_TRY(add_scope(d, -1));
  for (uint32_t i = 0; i < n_outputs; i++)
    add_copy(d, place_of(d, d->p->outputs.data[i]), (kiln_flow_arg){n_inputs + i, 0, 0});
  return add_constants(d);
}

kiln_status kiln_parts_divide(kiln_ctx *cx, kiln_program *p, const kiln_unresolved *u,
                              kiln_parted **out) {
  const int n = p->tensors.n;
  division d = {.cx = cx,
                .p = p,
                .counts = &u->counts,
                .checks = &u->checks,
                .regions = &u->regions,
                .live = kiln_bits_make(&cx->perm, n),
                .owner = KILN_NEW_ARRAY(&cx->perm, int, p->stmts.n + 1),
                .parent = KILN_NEW_ARRAY(&cx->perm, int, u->regions.all.n),
                .level = KILN_NEW_ARRAY(&cx->perm, int, n),
                .part_of = KILN_NEW_ARRAY(&cx->perm, int, n),
                .at = KILN_NEW_ARRAY(&cx->perm, kiln_flow_arg, n),
                .has_place = KILN_NEW_ARRAY(&cx->perm, bool, n)};
  for (int t = 0; t < n; t++) d.part_of[t] = -1;
  KILN_TRY(divide(&d));
  if (d.status != KILN_OK) return d.status;
  kiln_parted *made = KILN_NEW(&cx->perm, kiln_parted);
  const uint32_t n_ports = (uint32_t)(p->inputs.n + p->outputs.n);
  give_offsets(&d, n_ports);
  made->parts = d.parts.data;
  made->flow = (kiln_flow){.n_inputs = (uint32_t)p->inputs.n,
                           .n_outputs = (uint32_t)p->outputs.n,
                           .n_values = (uint32_t)d.values.n,
                           .n_parts = (uint32_t)d.parts.n,
                           .n_steps = (uint32_t)d.steps.n,
                           .n_args = (uint32_t)d.args.n,
                           .values = d.values.data,
                           .steps = d.steps.data,
                           .args = d.args.data,
                           .shapes = KILN_NEW_ARRAY(&cx->perm, kiln_flow_shape, p->outputs.n + 1),
                           .parts = KILN_NEW_ARRAY(&cx->perm, kiln_flow_part, d.parts.n + 1)};
  for (int i = 0; i < p->outputs.n; i++) made->flow.shapes[i] = find_shape(&d, i);
  *out = made;
  kiln_checks none = {0};
  p->stmts.n = 0; // its ports are left, with the shapes that they have at most
  return kiln_data_dependent_resolve(cx, p, &u->counts, &none);
}

void kiln_parts_halve(kiln_parted *io, kiln_dtype half) {
  const kiln_type *from = kiln_type_find(kiln_dtype_text(KILN_F32)),
                  *to = kiln_type_find(kiln_dtype_text(half));
  for (uint32_t i = 0; from != to && i < io->flow.n_values; i++) {
    kiln_flow_value *v = &io->flow.values[i];
    if (v->type != from) continue;
    v->type = to;
    v->bytes = v->bytes / kiln_type_bytes(from) * kiln_type_bytes(to);
  }
}

// --- models of parts ---

static void set_ports(kiln_ctx *cx, const kiln_program *p, kiln_dtype half, int n,
                      const int *tensors, kiln_interface *out) {
  kiln_interface_init(cx, out, n);
  for (int i = 0; i < n; i++) {
    const kiln_tensor *t = p->tensors.data[tensors[i]];
    const kiln_dtype dtype = t->dtype == KILN_F32 ? half : t->dtype;
    kiln_interface_set(cx, out, i, kiln_symbol_text(cx, t->name), kiln_dtype_text(dtype), t->rank,
                       t->shape);
  }
}

kiln_model kiln_parts_model(kiln_ctx *cx, const kiln_model *m, int i) {
  const kiln_program *p = m->parted->parts[i];
  kiln_model one = *m;
  one.parted = NULL;
  one.halved = NULL;
  one.defaults = NULL;
  one.prog = p;
  set_ports(cx, p, m->half, p->inputs.n, p->inputs.data, &one.inputs);
  set_ports(cx, p, m->half, p->outputs.n, p->outputs.data, &one.outputs);
  return one;
}

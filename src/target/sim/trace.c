// Counting without computing: the accesses of a loop program in the order of the simulator, their
// addresses alone. Where lanes, or iterations of a loop around one statement, stay in the lines of
// the one before, nothing moves and nothing changes its place in a cache: they are counted and
// passed over.
#include "target/sim/eval.h"
#include "target/instr.h"

typedef struct term {
  kiln_symbol var;
  int64_t factor;
} term;
typedef struct atom { // an index expression that is not affine
  const kiln_expr *e;
  int64_t factor;
} atom;

// An address: sum of terms and atoms, and a constant.
typedef struct form {
  int64_t constant;
  KILN_VEC(term) terms;
  KILN_VEC(atom) atoms;
} form;

// One step of a statement: an access, or a choice among others.
typedef struct item item;
typedef KILN_VEC(item) items;
struct item {
  int buffer; // -1: a choice
  bool is_write;
  int64_t bytes, step; // |step| bytes from one turn to the next
  form at;
  bool is_decided; // a choice: |cond| can be evaluated; else both branches count
  const kiln_expr *cond;
  items *yes, *no;
};

// The instances of a statement: lanes of a vectorized loop, iterations of the loop around it, or
// one.
typedef struct turns {
  kiln_symbol var; // 0: there is one
  int64_t n;
  const uint8_t *on; // [n]; NULL: all
} turns;

typedef struct stmt {
  items before, behind; // lanes do all of |before| first
  bool is_lanes;
  bool is_straight; // no choices, and addresses that move evenly from turn to turn
} stmt;

// A loop program prepared to run.
typedef struct node node;
struct node {
  const kiln_loop *n;
  node *next, *body;
  stmt *s;     // STORE
  items reads; // IF: of the condition
};

typedef struct tracer {
  kiln_ctx *cx;
  sim m; // evaluates expressions; its lanes are one, its accesses uncounted
  sim_lanes one;
  sim_meter *meter;
  bool *is_written; // [buffers] by a store
  bool *is_own;     // [buffers] allocated by each lane
  int64_t line_bytes;
  int most; // accesses that surely stay in the first level together
  turns lanes;
} tracer;

// --- statements ---

static kiln_search find_unknown(const kiln_expr *e, void *argument) {
  const tracer *t = argument;
  if (!e->has_load) return KILN_SEARCH_PAST;
  if (e->kind != KILN_EXPR_LOAD) return KILN_SEARCH_INTO;
  const kiln_buffer *b = t->m.l->buffers.data[e->u.tensor];
  const bool is_known =
      b->scope == KILN_SCOPE_PARAM && !t->is_written[b->id] && t->m.cells[b->id].data;
  return is_known ? KILN_SEARCH_INTO : KILN_SEARCH_ENDS;
}

static bool is_evaluable(tracer *t, const kiln_expr *e) {
  return !e->has_load || !kiln_expr_search(t->cx, e, find_unknown, t);
}

static void add_terms(tracer *t, const kiln_expr *e, int64_t factor, form *out) {
  int64_t c;
  if (e->n_tree > KILN_LONG_TREE) KILN_VEC_PUSH(&t->cx->scratch, &out->atoms, (atom){e, factor});
  else if (kiln_expr_is_int(e, &c)) out->constant += factor * c;
  else if (e->kind == KILN_EXPR_VAR)
    KILN_VEC_PUSH(&t->cx->scratch, &out->terms, (term){e->u.sym, factor});
  else if (e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB) {
    add_terms(t, e->args[0], factor, out);
    add_terms(t, e->args[1], e->kind == KILN_EXPR_ADD ? factor : -factor, out);
  } else if (e->kind == KILN_EXPR_MUL && kiln_expr_is_int(e->args[1], &c))
    add_terms(t, e->args[0], factor * c, out);
  else if (e->kind == KILN_EXPR_MUL && kiln_expr_is_int(e->args[0], &c))
    add_terms(t, e->args[1], factor * c, out);
  else KILN_VEC_PUSH(&t->cx->scratch, &out->atoms, (atom){e, factor});
}

static void add_access(tracer *t, const kiln_buffer *b, const kiln_expr *const *index,
                       bool is_write, items *out) {
  item x = {.buffer = b->id, .is_write = is_write, .bytes = kiln_dtype_bytes(b->dtype)};
  x.at.constant = kiln_sim_meter_base(t->meter, b);
  for (int k = 0; k < b->rank; k++) {
    if (!is_evaluable(t, index[k]))
      kiln_sim_fail(&t->m, "buffer %s: index %d must not depend on what the kernel computes",
                    kiln_symbol_text(t->cx, b->name), k);
    else add_terms(t, index[k], b->strides[k] * x.bytes, &x.at);
  }
  if (t->is_own[b->id]) // allocated by each lane
    KILN_VEC_PUSH(&t->cx->scratch, &x.at.terms,
                  (term){t->lanes.var, kiln_buffer_elems(b) * x.bytes});
  KILN_VEC_PUSH(&t->cx->scratch, out, x);
}

static void add_reads(tracer *t, const kiln_expr *e, items *out);

static void add_choice(tracer *t, const kiln_expr *e, items *out) {
  item x = {.buffer = -1, .cond = e->args[0], .is_decided = is_evaluable(t, e->args[0])};
  add_reads(t, e->args[0], out);
  x.yes = KILN_NEW(&t->cx->scratch, items);
  x.no = KILN_NEW(&t->cx->scratch, items);
  add_reads(t, e->args[1], x.yes);
  add_reads(t, e->args[2], x.no);
  if (x.yes->n || x.no->n) KILN_VEC_PUSH(&t->cx->scratch, out, x);
}

typedef struct reader {
  tracer *t;
  items *out;
} reader;

static void add_read(const kiln_expr *load, void *argument) {
  const reader *r = argument;
  bool is_direct = true;
  for (int k = 0; k < load->n_args; k++) is_direct &= !load->args[k]->has_load;
  if (is_direct)
    add_access(r->t, r->t->m.l->buffers.data[load->u.tensor], load->args, false, r->out);
}

// The reads of |e| in the order of evaluation; where its tree is long, each once, whatever is
// chosen, but for those at places that are read themselves.
static void add_reads(tracer *t, const kiln_expr *e, items *out) {
  if (!e->has_load) return;
  if (e->n_tree > KILN_LONG_TREE) {
    reader r = {t, out};
    kiln_expr_visit_loads(t->cx, e, add_read, &r);
    return;
  }
  if (e->kind == KILN_EXPR_SELECT) {
    add_choice(t, e, out);
    return;
  }
  for (int i = 0; i < e->n_args; i++) add_reads(t, e->args[i], out);
  if (e->kind == KILN_EXPR_LOAD)
    add_access(t, t->m.l->buffers.data[e->u.tensor], e->args, false, out);
}

static kiln_search find_own(const kiln_expr *e, void *argument) {
  const tracer *t = argument;
  const bool is_own = e->kind == KILN_EXPR_LOAD && t->is_own[e->u.tensor];
  return is_own ? KILN_SEARCH_ENDS : e->has_load ? KILN_SEARCH_INTO : KILN_SEARCH_PAST;
}

static bool varies(tracer *t, const kiln_expr *e, kiln_symbol var) {
  return kiln_expr_uses(e, var) || (e->has_load && kiln_expr_search(t->cx, e, find_own, t));
}

// Whether all lanes combine into one element, as in sim.c.
static bool reduces(tracer *t, const kiln_loop *n, bool is_lanes) {
  if (n->combiner == KILN_COMBINE_NONE || !is_lanes || t->is_own[n->buffer]) return false;
  for (int k = 0; k < t->m.l->buffers.data[n->buffer]->rank; k++)
    if (varies(t, n->index[k], t->lanes.var)) return false;
  return true;
}

// Finds out how the addresses of |list| move with |var|; false where they do not move evenly.
static bool find_steps(tracer *t, items *list, kiln_symbol var) {
  for (int i = 0; i < list->n; i++) {
    item *x = &list->data[i];
    if (x->buffer < 0) return false;
    for (int k = 0; k < x->at.terms.n; k++)
      if (x->at.terms.data[k].var == var) x->step += x->at.terms.data[k].factor;
    for (int k = 0; k < x->at.atoms.n; k++)
      if (varies(t, x->at.atoms.data[k].e, var)) return false;
  }
  return true;
}

static stmt *make_stmt(tracer *t, const kiln_loop *n, kiln_symbol var, bool is_lanes) {
  const kiln_buffer *b = t->m.l->buffers.data[n->buffer];
  const bool combines = n->combiner != KILN_COMBINE_NONE, is_reduction = reduces(t, n, is_lanes);
  stmt *s = KILN_NEW(&t->cx->scratch, stmt);
  add_reads(t, n->value, &s->before);
  for (int k = 0; k < b->rank; k++) add_reads(t, n->index[k], &s->before);
  if (combines) add_access(t, b, n->index, false, is_reduction ? &s->behind : &s->before);
  add_access(t, b, n->index, true, &s->behind);
  s->is_lanes = is_lanes;
  s->is_straight = find_steps(t, &s->before, var);
  s->is_straight = find_steps(t, &s->behind, var) && s->is_straight;
  return s;
}

static bool is_one_store(const kiln_loop *n) {
  return n->body && n->body->kind == KILN_LOOP_STORE && !n->body->next;
}

static bool makes_lanes(const tracer *t, const kiln_loop *n) {
  int64_t extent;
  return n->how == KILN_VECTORIZED && !t->lanes.var &&
         !(kiln_expr_is_int(n->extent, &extent) && extent == 1);
}

// |var|: of the loop around |first| where that is all of its body.
static node *make_nodes(tracer *t, const kiln_loop *first, kiln_symbol var) {
  node *out = NULL, **at = &out;
  for (const kiln_loop *n = first; n; n = n->next) {
    node *x = *at = KILN_NEW(&t->cx->scratch, node);
    at = &x->next;
    x->n = n;
    const bool is_lanes = n->kind == KILN_LOOP_FOR && makes_lanes(t, n);
    if (is_lanes) t->lanes.var = n->var;
    if (n->kind == KILN_LOOP_ALLOC) t->is_own[n->buffer] = t->lanes.var != 0;
    if (n->kind == KILN_LOOP_IF) {
      add_reads(t, n->cond, &x->reads);
      if (!is_evaluable(t, n->cond))
        kiln_sim_fail(&t->m, "a condition around statements must not depend on what the kernel "
                             "computes");
    }
    if (n->kind == KILN_LOOP_STORE)
      x->s = make_stmt(t, n, t->lanes.var ? t->lanes.var : var, t->lanes.var != 0);
    x->body = make_nodes(t, n->body,
                         n->kind == KILN_LOOP_FOR && !t->lanes.var && is_one_store(n) ? n->var : 0);
    if (is_lanes) t->lanes.var = 0;
  }
  return out;
}

// --- accesses ---

static int64_t address(tracer *t, const item *x) {
  int64_t a = x->at.constant;
  for (int i = 0; i < x->at.terms.n; i++)
    a += x->at.terms.data[i].factor * t->m.vars[x->at.terms.data[i].var];
  for (int i = 0; i < x->at.atoms.n; i++)
    a += x->at.atoms.data[i].factor * kiln_sim_eval_index(&t->m, x->at.atoms.data[i].e);
  return a;
}

static void count(tracer *t, const item *x, int64_t n) {
  const kiln_buffer *b = t->m.l->buffers.data[x->buffer];
  kiln_sim_meter_add(t->meter, b, n * x->bytes, x->is_write);
}

static void run_items(tracer *t, const items *list) {
  for (int i = 0; i < list->n && t->m.status == KILN_OK; i++) {
    const item *x = &list->data[i];
    if (x->buffer >= 0) {
      count(t, x, 1);
      if (t->m.l->buffers.data[x->buffer]->scope != KILN_SCOPE_REGISTER)
        kiln_sim_meter_touch(t->meter, address(t, x), x->bytes, x->is_write);
    } else {
      const bool is_yes = x->is_decided && kiln_sim_eval(&t->m, x->cond).i != 0;
      if (is_yes || !x->is_decided) run_items(t, x->yes);
      if (!is_yes) run_items(t, x->no);
    }
  }
}

typedef struct stream {
  int64_t at, step, bytes;
  bool is_write;
} stream;
enum { MAX_STREAMS = 64 };

// Turns until |x| leaves its line.
static int64_t turns_in_line(const tracer *t, const stream *x) {
  const int64_t line = t->line_bytes, in = x->at % line;
  if (x->step == 0) return INT64_MAX;
  if (x->step > 0) return x->step >= line ? 1 : (line - in + x->step - 1) / x->step;
  return -x->step >= line ? 1 : in / -x->step + 1;
}

static void run_streams(tracer *t, int n, stream *s, int64_t n_turns) {
  for (int64_t k = 0; k < n_turns;) {
    int64_t skip = n_turns - k;
    for (int i = 0; i < n; i++) {
      kiln_sim_meter_touch(t->meter, s[i].at, s[i].bytes, s[i].is_write);
      const int64_t here = turns_in_line(t, &s[i]);
      if (here < skip) skip = here;
    }
    if (n > t->most) skip = 1;
    for (int i = 0; i < n; i++) s[i].at += skip * s[i].step;
    k += skip;
  }
}

static int add_streams(tracer *t, const items *list, int64_t n_turns, int n, stream *out) {
  for (int i = 0; i < list->n; i++) {
    const item *x = &list->data[i];
    count(t, x, n_turns);
    if (t->m.l->buffers.data[x->buffer]->scope == KILN_SCOPE_REGISTER) continue;
    out[n++] = (stream){address(t, x), x->step, x->bytes, x->is_write};
  }
  return n;
}

static void run_slowly(tracer *t, const items *list, const turns *x) {
  for (int64_t k = 0; k < x->n; k++) {
    if (x->on && !x->on[k]) continue;
    if (x->var) t->m.vars[x->var] = k;
    run_items(t, list);
  }
}

// Iterations of a loop run one behind the other.
static void run_crooked(tracer *t, const stmt *s, const turns *x) {
  if (s->is_lanes) {
    run_slowly(t, &s->before, x);
    run_slowly(t, &s->behind, x);
    return;
  }
  for (int64_t k = 0; k < x->n; k++) {
    if (x->var) t->m.vars[x->var] = k;
    run_items(t, &s->before);
    run_items(t, &s->behind);
  }
}

static void run_stmt(tracer *t, const stmt *s, const turns *x) {
  stream streams[MAX_STREAMS];
  if (x->n == 0) return;
  if (!s->is_straight || x->on || s->before.n + s->behind.n > MAX_STREAMS) {
    run_crooked(t, s, x);
    return;
  }
  if (x->var) t->m.vars[x->var] = 0;
  int n_before = add_streams(t, &s->before, x->n, 0, streams);
  if (s->is_lanes) {
    run_streams(t, n_before, streams, x->n);
    n_before = 0;
  }
  run_streams(t, add_streams(t, &s->behind, x->n, n_before, streams), streams, x->n);
}

// --- loops ---

static void run(tracer *t, const node *first);

static bool enter(tracer *t, int64_t lane) {
  if (t->lanes.var) t->m.vars[t->lanes.var] = lane;
  return !t->lanes.on || t->lanes.on[lane];
}

static void run_masked(tracer *t, const node *body, const uint8_t *on) {
  const uint8_t *before = t->lanes.on;
  int64_t n_on = 0;
  for (int64_t k = 0; k < t->lanes.n; k++) n_on += on[k] != 0;
  t->lanes.on = n_on == t->lanes.n ? NULL : on;
  if (n_on) run(t, body);
  t->lanes.on = before;
}

static void run_if(tracer *t, const node *x) {
  uint8_t *on = kiln_arena_zalloc(&t->cx->scratch, (size_t)t->lanes.n);
  for (int64_t k = 0; k < t->lanes.n && t->m.status == KILN_OK; k++) {
    if (!enter(t, k)) continue;
    run_items(t, &x->reads);
    on[k] = kiln_sim_eval(&t->m, x->n->cond).i != 0;
  }
  run_masked(t, x->body, on);
}

static void run_lanes(tracer *t, const node *x, int64_t extent) {
  t->lanes = (turns){x->n->var, extent, NULL};
  run(t, x->body);
  t->lanes = (turns){0, 1, NULL};
}

// Lanes whose loop is over wait for the others.
static void run_in_lanes(tracer *t, const node *x) {
  int64_t most = 0, *extents = KILN_NEW_ARRAY(&t->cx->scratch, int64_t, t->lanes.n);
  uint8_t *on = kiln_arena_zalloc(&t->cx->scratch, (size_t)t->lanes.n);
  for (int64_t k = 0; k < t->lanes.n; k++) {
    if (enter(t, k)) extents[k] = kiln_sim_eval_index(&t->m, x->n->extent);
    if (extents[k] > most) most = extents[k];
  }
  for (int64_t i = 0; i < most && t->m.status == KILN_OK; i++) {
    for (int64_t k = 0; k < t->lanes.n; k++) on[k] = i < extents[k];
    t->m.vars[x->n->var] = i;
    run_masked(t, x->body, on);
  }
}

static void run_iterations(tracer *t, const node *x) {
  const int64_t extent = kiln_sim_eval_index(&t->m, x->n->extent);
  if (makes_lanes(t, x->n)) run_lanes(t, x, extent);
  else if (is_one_store(x->n)) run_stmt(t, x->body->s, &(turns){x->n->var, extent, NULL});
  else
    for (int64_t i = 0; i < extent && t->m.status == KILN_OK; i++) {
      t->m.vars[x->n->var] = i;
      run(t, x->body);
    }
}

static void run_node(tracer *t, const node *x) {
  const kiln_mark mark = kiln_arena_mark(&t->cx->scratch);
  switch (x->n->kind) {
  case KILN_LOOP_FOR:
    if (t->lanes.var) run_in_lanes(t, x);
    else run_iterations(t, x);
    break;
  case KILN_LOOP_IF: run_if(t, x); break;
  case KILN_LOOP_STORE: run_stmt(t, x->s, &t->lanes); break;
  case KILN_LOOP_ALLOC: run(t, x->body); break;
  case KILN_LOOP_INSTR: break; // expanded
  case KILN_LOOP_PREFETCH: break;
  case KILN_LOOP_DEVICE: break; // not in loops
  }
  kiln_arena_rewind(&t->cx->scratch, mark);
}

static void run(tracer *t, const node *first) {
  for (const node *x = first; x && t->m.status == KILN_OK; x = x->next) run_node(t, x);
}

// --- the whole ---

static void find_written(const kiln_loop *first, bool *is_written) {
  for (; first; first = first->next) {
    if (first->kind == KILN_LOOP_STORE) is_written[first->buffer] = true;
    find_written(first->body, is_written);
  }
}

static void bind(tracer *t, void *const *args) {
  int next = 0;
  for (int i = 0; i < t->m.l->buffers.n; i++) {
    sim_cell *c = &t->m.cells[i];
    *c = (sim_cell){.buffer = t->m.l->buffers.data[i], .alive = true};
    c->elems = kiln_buffer_elems(c->buffer);
    const kiln_scope s = c->buffer->scope;
    if (args && kiln_scope_is_argument(s)) c->data = args[next++];
  }
}

static kiln_status trace(kiln_ctx *cx, const kiln_loops *l, void *const *args, sim_meter *meter,
                         const kiln_sim_level *first) {
  tracer t = {.cx = cx, .meter = meter, .most = INT32_MAX, .line_bytes = 64, .lanes = {.n = 1}};
  uint8_t on = 1;
  t.one = (sim_lanes){.n = 1, .on = &on};
  t.m = (sim){.cx = cx, .l = l, .next_stamp = 1, .lanes = &t.one};
  t.m.place = kiln_arena_printf(&cx->scratch, "sim: kernel %s", kiln_symbol_text(cx, l->name));
  t.m.cells = KILN_NEW_ARRAY(&cx->scratch, sim_cell, l->buffers.n);
  t.m.n_vars = kiln_sim_n_vars(l);
  t.m.vars = KILN_NEW_ARRAY(&cx->scratch, int64_t, t.m.n_vars);
  t.is_written = KILN_NEW_ARRAY(&cx->scratch, bool, l->buffers.n);
  t.is_own = KILN_NEW_ARRAY(&cx->scratch, bool, l->buffers.n);
  if (first) {
    t.line_bytes = first->line_bytes;
    t.most = (int)(first->ways ? first->ways : first->capacity_bytes / first->line_bytes);
  }
  find_written(l->body, t.is_written);
  bind(&t, args);
  const node *body = make_nodes(&t, l->body, 0);
  run(&t, body);
  return t.m.status;
}

kiln_status kiln_sim_trace(kiln_ctx *cx, kiln_loops *l, void *const *args, int n_levels,
                           const kiln_sim_level *levels, kiln_sim_traffic *out) {
  l = kiln_instrs_expand(cx, l);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  sim_meter *meter = kiln_sim_meter_make(cx, l, n_levels, levels, out);
  const kiln_status s = trace(cx, l, args, meter, n_levels ? levels : NULL);
  kiln_sim_meter_flush(meter);
  kiln_arena_rewind(&cx->scratch, mark);
  return s;
}

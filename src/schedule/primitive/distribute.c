// distribute: a nest runs on the threads that hold the elements of a buffer, as one step of the
// script for the splits, the reorder and the bindings that this takes.
//
// Where the buffer is a fragment, distributed over the threads of a block, digits of the nest's
// loops are found by what they add to an element's place:
//
//     for i:16 { for j:8 { F[i%8, j/2, i/8, j%2] = .. } }     32 threads, 4 elements of each
//     i = 8 i1 + i0:  i0 adds 16, i1 2;  j = 2 j1 + j0:  j1 adds 4, j0 1
//     thread 4 i0 + j1, element 2 i1 + j0
#include "schedule/nest.h"
#include "support/integer.h"

enum { MAX_LOOPS = 24, MAX_DIGITS = 32, WORD = 16, MAX_WORD = 16 };

// Which threads, or what of a thread, a digit counts.
typedef enum holder { WARP, LANE, OWN, FREE } holder;
static const char letters[] = "wlrf";

// value / stride % extent of a loop's variable.
typedef struct digit {
  int loop; // its number in the nest
  int64_t stride, extent;
  int64_t weight; // what one more adds to the place in the buffer
  holder by;
  kiln_symbol name; // of the loop that it becomes
} digit;

typedef struct distribution {
  kiln_edit e; // reads the loops; each step has its own
  kiln_schedule *s;
  kiln_symbol loop, names[MAX_LOOPS];
  int64_t extents[MAX_LOOPS];
  int n_loops;
  const kiln_loop *body; // of the innermost loop
  const kiln_buffer *like;
  const kiln_expr *const *index; // of the nest's first access
  int64_t lanes, warps, own;     // elements of a thread
  digit digits[MAX_DIGITS];
  int n;
} distribution;

// --- the nest ---

static kiln_status read_nest(distribution *d, const kiln_loop *l) {
  for (; l && (l->kind == KILN_LOOP_FOR || l->kind == KILN_LOOP_IF); l = l->body) {
    if (l->kind == KILN_LOOP_FOR) {
      if (d->n_loops == MAX_LOOPS)
        return kiln_refuse(&d->e, "the nest must have at most %d loops", MAX_LOOPS);
      KILN_TRY(kiln_edit_serial(&d->e, l));
      KILN_TRY(kiln_edit_extent(&d->e, l, &d->extents[d->n_loops]));
      d->names[d->n_loops++] = l->var;
    }
    d->body = l->body;
    if (l->body && l->body->next) break;
  }
  return KILN_OK;
}

static kiln_status find_access(distribution *d, kiln_loop *nest) {
  const kiln_accesses all = kiln_accesses_of(d->e.cx, d->e.l, nest, false, d->like->id);
  for (int i = 0; i < all.n && !d->index; i++)
    if (!all.data[i].opaque) d->index = all.data[i].index;
  if (d->index) return KILN_OK;
  return kiln_refuse(&d->e, "the nest must read or write buffer %s, element by element",
                     kiln_edit_text(&d->e, d->like->name));
}

// The value of an index where loop |var| is |at| and all others are 0.
static bool value_of(const kiln_expr *e, kiln_symbol var, int64_t at, int64_t *out) {
  int64_t a, b;
  if (e->kind == KILN_EXPR_INT) *out = e->u.i;
  else if (e->kind == KILN_EXPR_VAR) *out = e->u.sym == var ? at : 0;
  else if (e->n_args != 2 || e->kind == KILN_EXPR_LOAD || !value_of(e->args[0], var, at, &a) ||
           !value_of(e->args[1], var, at, &b))
    return false;
  else if (e->kind == KILN_EXPR_ADD) *out = a + b;
  else if (e->kind == KILN_EXPR_SUB) *out = a - b;
  else if (e->kind == KILN_EXPR_MUL) *out = a * b;
  else if (e->kind == KILN_EXPR_DIV) *out = kiln_floor_div(a, b);
  else if (e->kind == KILN_EXPR_MOD) *out = kiln_floor_mod(a, b);
  else return false;
  return true;
}

// What loop |k|, at |at|, adds to the place of the element; |*io_known|: whether it can be told.
static int64_t place_of(const distribution *d, int k, int64_t at, bool *io_known) {
  int64_t place = 0, here = 0, zero = 0;
  for (int a = 0; a < d->like->rank && *io_known; a++) {
    const kiln_expr *x = d->index[a];
    if (x->n_tree > KILN_LONG_TREE || !value_of(x, d->names[k], at, &here) ||
        !value_of(x, d->names[k], 0, &zero))
      *io_known = false;
    else place += (here - zero) * d->like->strides[a];
  }
  return place;
}

// --- digits ---

static kiln_status add_digit(distribution *d, digit x) {
  if (d->n == MAX_DIGITS) return kiln_refuse(&d->e, "the layout must be simpler");
  d->digits[d->n++] = x;
  return KILN_OK;
}

// Cuts a digit where it goes on from a thread's own elements to lanes, or from lanes to warps.
static kiln_status add_cut(distribution *d, digit x) {
  const int64_t ends[] = {d->own, d->own * d->lanes};
  for (int i = 0; i < 2 && x.weight > 0; i++) {
    if (x.weight >= ends[i] || x.weight * (x.extent - 1) < ends[i]) continue;
    if (ends[i] % x.weight)
      return kiln_refuse(&d->e, "buffer %s must be distributed by whole digits of loop %s",
                         kiln_edit_text(&d->e, d->like->name),
                         kiln_edit_text(&d->e, d->names[x.loop]));
    digit low = x;
    low.extent = ends[i] / x.weight;
    KILN_TRY(add_digit(d, low));
    x.stride *= low.extent;
    x.weight *= low.extent;
    x.extent = kiln_divide_up(x.extent, low.extent);
  }
  return add_digit(d, x);
}

// Finds the digits of loop |k|, the lowest first.
static kiln_status read_digits(distribution *d, int k) {
  const int64_t extent = d->extents[k];
  if (extent == 1) return add_digit(d, (digit){.loop = k, .stride = 1, .extent = 1});
  for (int64_t stride = 1; stride < extent;) {
    digit x = {.loop = k, .stride = stride, .extent = 1};
    bool known = true;
    x.weight = place_of(d, k, stride, &known);
    while (known && x.extent * stride < extent &&
           place_of(d, k, x.extent * stride, &known) == x.extent * x.weight)
      x.extent++;
    if (!known || x.weight < 0)
      return kiln_refuse(&d->e, "loop %s must index buffer %s by its digits",
                         kiln_edit_text(&d->e, d->names[k]), kiln_edit_text(&d->e, d->like->name));
    stride *= x.extent;
    KILN_TRY(add_cut(d, x));
  }
  return KILN_OK;
}

static void find_holders(distribution *d) {
  for (int i = 0; i < d->n; i++) {
    digit *x = &d->digits[i];
    x->by = x->weight == 0                  ? FREE
            : x->weight < d->own            ? OWN
            : x->weight < d->own * d->lanes ? LANE
                                            : WARP;
  }
}

// The digits of |by| in order: threads' by weight, the highest first; others loop by loop, the
// highest of each first.
static int take(const distribution *d, holder by, digit const **out) {
  int n = 0;
  for (int i = 0; i < d->n; i++) {
    const digit *x = &d->digits[i];
    if (x->by != by) continue;
    int at = n++;
    for (; at > 0; at--) {
      const digit *before = out[at - 1];
      if (by == OWN || by == FREE ? before->loop < x->loop : before->weight > x->weight) break;
      out[at] = before;
    }
    out[at] = x;
  }
  return n;
}

static kiln_status refuse_threads(const distribution *d) {
  return kiln_refuse(&d->e,
                     "the nest must run over the parts of all %" PRId64 " x %" PRId64
                     " threads of buffer %s",
                     d->lanes, d->warps, kiln_edit_text(&d->e, d->like->name));
}

// Requires that the digits of |by| are those of a number below |n|; where the highest ends early,
// the last threads are idle.
static kiln_status check_threads(const distribution *d, holder by, int64_t unit, int64_t n) {
  const digit *x[MAX_DIGITS];
  int64_t next = unit;
  int i = take(d, by, x) - 1;
  for (; i >= 0 && x[i]->weight == next; i--) next *= x[i]->extent;
  return i < 0 && next <= unit * n && (next > unit || n == 1) ? KILN_OK : refuse_threads(d);
}

// Requires that the nest moves along all axes that number threads.
static kiln_status check_axes(const distribution *d) {
  for (int a = 0; a < d->like->rank; a++) {
    bool moves = d->like->extents[a] == 1 || d->like->strides[a] < d->own;
    for (int k = 0; k < d->n_loops; k++) moves |= kiln_expr_uses(d->index[a], d->names[k]);
    if (!moves) return refuse_threads(d);
  }
  return KILN_OK;
}

// Joins a loop's neighbouring digits of a thread's own elements, which one loop can run over.
static void join_own(distribution *d) {
  int n = 0;
  for (int i = 0; i < d->n; i++) {
    digit *last = n > 0 ? &d->digits[n - 1] : NULL;
    const digit x = d->digits[i];
    if (last && last->loop == x.loop && last->by == x.by && (x.by == OWN || x.by == FREE) &&
        last->weight != 1)
      last->extent *= x.extent;
    else d->digits[n++] = x;
  }
  d->n = n;
}

// --- fragments ---

static void name_digits(distribution *d) {
  for (int i = d->n - 1; i >= 0; i--) {
    digit *x = &d->digits[i];
    const char *loop = kiln_edit_text(&d->e, d->names[x->loop]);
    int same = 0, others = 0; // digits of the loop above: of that holder, and of all
    for (int k = i + 1; k < d->n && d->digits[k].loop == x->loop; k++, others++)
      same += d->digits[k].by == x->by;
    const bool is_alone = !others && (i == 0 || d->digits[i - 1].loop != x->loop);
    x->name = is_alone ? d->names[x->loop]
              : same   ? kiln_symbol_printf(d->s->cx, "%s.%c%d", loop, letters[x->by], same)
                       : kiln_symbol_printf(d->s->cx, "%s.%c", loop, letters[x->by]);
  }
}

// Splits each loop into its digits, the highest first.
static kiln_status split_loops(const distribution *d) {
  kiln_symbol rest = 0;
  for (int i = d->n - 1; i > 0; i--) {
    const digit *x = &d->digits[i], *low = x - 1;
    if (i + 1 == d->n || x[1].loop != x->loop) rest = d->names[x->loop];
    if (low->loop != x->loop) continue;
    const bool is_lowest = i == 1 || low[-1].loop != x->loop;
    const kiln_symbol name =
        is_lowest ? low->name
                  : kiln_symbol_printf(d->s->cx, "%s.d%d", kiln_edit_text(&d->e, d->names[x->loop]),
                                       i - 1);
    KILN_TRY(kiln_split(d->s, rest, x->stride, KILN_TAIL_GUARD, x->name, name));
    rest = name;
  }
  return KILN_OK;
}

// Fuses n neighbouring loops into LOOP.|part| and binds it; a single one keeps its name.
static kiln_status bind_threads(const distribution *d, const char *part, int n,
                                const digit *const *loops, kiln_how axis) {
  kiln_symbol all = n > 0 ? loops[0]->name : 0;
  for (int i = 1; i < n; i++) {
    const char *name = kiln_edit_text(&d->e, d->loop);
    const kiln_symbol both = i + 1 < n ? kiln_symbol_printf(d->s->cx, "%s.%s%d", name, part, i)
                                       : kiln_symbol_printf(d->s->cx, "%s.%s", name, part);
    KILN_TRY(kiln_fuse(d->s, all, loops[i]->name, both));
    all = both;
  }
  return n > 0 ? kiln_bind(d->s, all, axis) : KILN_OK;
}

static bool assigns(const distribution *d) {
  return d->body && !d->body->next && d->body->kind == KILN_LOOP_STORE &&
         d->body->combiner == KILN_COMBINE_NONE;
}

// Unrolls the loops over a thread's own elements; the innermost one becomes a vector where it runs
// over neighbours that are assigned.
static kiln_status run_own(const distribution *d, int n, const digit *const *own,
                           bool is_innermost) {
  for (int i = 0; i < n; i++) {
    const bool is_vector = i + 1 == n && is_innermost && own[i]->weight == 1 &&
                           own[i]->stride == 1 && own[i]->extent <= MAX_WORD && assigns(d);
    KILN_TRY((is_vector ? kiln_vectorize : kiln_unroll)(d->s, own[i]->name));
  }
  return KILN_OK;
}

static kiln_status run_fragment(distribution *d) {
  const digit *warps[MAX_DIGITS], *lanes[MAX_DIGITS], *own[MAX_DIGITS], *others[MAX_DIGITS];
  kiln_symbol order[MAX_DIGITS];
  int n = 0, first = MAX_LOOPS, n_inside = 0;
  for (int k = 0; k < d->n_loops; k++) KILN_TRY(read_digits(d, k));
  find_holders(d);
  join_own(d);
  KILN_TRY(check_axes(d));
  KILN_TRY(check_threads(d, LANE, d->own, d->lanes));
  KILN_TRY(check_threads(d, WARP, d->own * d->lanes, d->warps));
  name_digits(d);
  const int n_warps = take(d, WARP, warps), n_lanes = take(d, LANE, lanes),
            n_own = take(d, OWN, own), n_others = take(d, FREE, others);
  for (int i = 0; i < d->n; i++)
    if (d->digits[i].by != FREE && d->digits[i].loop < first) first = d->digits[i].loop;
  for (int i = 0; i < n_warps; i++) order[n++] = warps[i]->name;
  for (int i = 0; i < n_lanes; i++) order[n++] = lanes[i]->name;
  for (int i = 0; i < n_others; i++)
    if (others[i]->loop < first && others[i]->extent > 1) order[n++] = others[i]->name;
  for (int i = 0; i < n_own; i++) order[n++] = own[i]->name;
  for (int i = 0; i < n_others; i++) {
    if (others[i]->loop < first && others[i]->extent > 1) continue;
    order[n++] = others[i]->name;
    n_inside += others[i]->extent > 1;
  }
  KILN_TRY(split_loops(d));
  if (n > 1) KILN_TRY(kiln_reorder(d->s, n, order));
  KILN_TRY(bind_threads(d, "warp", n_warps, warps, KILN_THREAD_Y));
  KILN_TRY(bind_threads(d, "lane", n_lanes, lanes, KILN_THREAD_X));
  return run_own(d, n_own, own, n_inside == 0);
}

// --- memory ---

// Fuses the loops that move along the buffer, the slowest first, but for the elements of a word.
static kiln_status fuse_moving(distribution *d, kiln_symbol *out_all, kiln_symbol *out_word) {
  const int64_t word = WORD / kiln_dtype_bytes(d->like->dtype);
  const digit *moving[MAX_DIGITS], *others[MAX_DIGITS];
  kiln_symbol order[MAX_DIGITS + 1];
  int n = 0;
  for (int k = 0; k < d->n_loops; k++) {
    bool known = true;
    digit x = {.loop = k, .stride = 1, .extent = d->extents[k], .name = d->names[k]};
    x.weight = place_of(d, k, 1, &known);
    x.by = known && x.weight > 0 ? LANE : FREE;
    KILN_TRY(add_digit(d, x));
  }
  const int n_moving = take(d, LANE, moving), n_others = take(d, FREE, others);
  if (n_moving == 0)
    return kiln_refuse(&d->e, "a loop of the nest must index buffer %s",
                       kiln_edit_text(&d->e, d->like->name));
  const digit *last = moving[n_moving - 1];
  bool has_words = word > 1 && last->weight == 1 && last->extent % word == 0;
  for (int i = 0; i + 1 < n_moving; i++) has_words &= moving[i]->weight % word == 0;
  for (int i = 0; i < n_moving; i++) order[n++] = moving[i]->name;
  for (int i = 0; i < n_others; i++) order[n++] = others[i]->name;

  if (has_words) {
    const char *name = kiln_edit_text(&d->e, last->name);
    *out_word = order[n++] = kiln_symbol_printf(d->s->cx, "%s.v", name);
    order[n_moving - 1] = kiln_symbol_printf(d->s->cx, "%s.w", name);
    KILN_TRY(kiln_split(d->s, last->name, word, KILN_TAIL_EXACT, order[n_moving - 1], *out_word));
  }
  if (n > 1) KILN_TRY(kiln_reorder(d->s, n, order));
  *out_all = order[0];
  for (int i = 1; i < n_moving; i++) {
    const kiln_symbol both = kiln_symbol_printf(d->s->cx, "%s.f", kiln_edit_text(&d->e, order[i]));
    KILN_TRY(kiln_fuse(d->s, *out_all, order[i], both));
    *out_all = both;
  }
  return KILN_OK;
}

static kiln_symbol part_of(const distribution *d, const char *part) {
  return kiln_symbol_printf(d->s->cx, "%s.%s", kiln_edit_text(&d->e, d->loop), part);
}

static int64_t extent_of(const distribution *d, kiln_symbol loop) {
  return kiln_expr_int_or(kiln_loops_find(d->s->loops, loop)->extent, 1);
}

// Neighbouring threads take neighbouring words, each thread every |lanes| * |warps|-th.
static kiln_status run_memory(distribution *d) {
  kiln_symbol all = 0, word = 0;
  KILN_TRY(fuse_moving(d, &all, &word));
  if (extent_of(d, all) > d->lanes * d->warps) {
    const kiln_symbol turn = part_of(d, "turn"), thread = part_of(d, "thread");
    KILN_TRY(kiln_split(d->s, all, d->lanes * d->warps, KILN_TAIL_GUARD, turn, thread));
    KILN_TRY(kiln_reorder(d->s, 2, (const kiln_symbol[]){thread, turn}));
    all = thread;
  }
  if (extent_of(d, all) > d->lanes) {
    const kiln_symbol warp = part_of(d, "warp"), lane = part_of(d, "lane");
    KILN_TRY(kiln_split(d->s, all, d->lanes, KILN_TAIL_GUARD, warp, lane));
    KILN_TRY(kiln_bind(d->s, warp, KILN_THREAD_Y));
    all = lane;
  }
  KILN_TRY(kiln_bind(d->s, all, KILN_THREAD_X));
  return word && assigns(d) ? kiln_vectorize(d->s, word) : KILN_OK;
}

// --- the primitive ---

static bool is_fragment(const distribution *d) {
  kiln_loop *path[KILN_MAX_DEPTH];
  const kiln_loop *alloc = kiln_nest_find_alloc(d->e.l->body, d->like->id);
  if (!alloc || !kiln_scope_is_private(d->like->scope)) return false;
  for (int i = kiln_nest_path(d->e.l, alloc, path) - 1; i >= 0; i--)
    if (path[i]->kind == KILN_LOOP_FOR && kiln_how_is_thread(path[i]->how)) return false;
  return true;
}

static kiln_status run(distribution *d) {
  const int64_t n = kiln_buffer_elems(d->like), threads = d->lanes * d->warps;
  if (kiln_scope_is_private(d->like->scope) && !is_fragment(d))
    return kiln_refuse(&d->e, "buffer %s must be shared by threads, got one of a thread",
                       kiln_edit_text(&d->e, d->like->name));
  if (!kiln_scope_is_private(d->like->scope)) return run_memory(d);
  if (n % threads)
    return kiln_refuse(&d->e,
                       "threads must divide the %" PRId64 " elements of buffer %s, got %" PRId64, n,
                       kiln_edit_text(&d->e, d->like->name), threads);
  d->own = n / threads;
  return run_fragment(d);
}

kiln_status kiln_distribute(kiln_schedule *s, kiln_symbol loop, kiln_symbol buffer, int64_t lanes,
                            int64_t warps) {
  enum { MAX_THREADS = 1024 };
  distribution d = {.e = kiln_edit_begin(s, "distribute", loop),
                    .s = s,
                    .loop = loop,
                    .lanes = lanes,
                    .warps = warps};
  kiln_loop *l = NULL;
  kiln_buffer *like = NULL;
  KILN_TRY(kiln_edit_loop(&d.e, loop, &l));
  KILN_TRY(kiln_edit_buffer(&d.e, buffer, &like));
  if (lanes < 1 || warps < 1 || lanes > MAX_THREADS || warps > MAX_THREADS)
    return kiln_refuse(&d.e, "threads must be 1 to %d along each axis, got %" PRId64 " x %" PRId64,
                       MAX_THREADS, lanes, warps);
  d.like = like;
  KILN_TRY(read_nest(&d, l));
  KILN_TRY(find_access(&d, l));
  const kiln_steps steps = kiln_steps_begin(&d.e);
  return kiln_steps_end(&d.e, &steps, run(&d), "distribute %s like %s %" PRId64 " %" PRId64,
                        kiln_edit_word(&d.e, loop), kiln_edit_word(&d.e, buffer), lanes, warps);
}

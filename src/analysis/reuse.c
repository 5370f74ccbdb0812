#include "analysis/reuse.h"

#include "analysis/access.h"

#include <limits.h>
#include <math.h>
#include <string.h>

// Accesses of one buffer with equal strides in all outer loops, and the cache lines that they miss
// in one run of the loops visited so far. A buffer that is written has two groups: one of all
// accesses, and one of the writes alone, whose misses are the lines that become dirty.
typedef struct group group;
typedef struct stay stay;
struct stay { // the units of a loop body that access a group that the loop does not move
  const access_unit *body;
  int first, last;
  bool is_split;     // conditions keep some of these units from running in the same iteration
  const stay *inner; // inside the loop, if the only unit is a loop; NULL: unknown
};
struct group {
  group *next;
  bool is_dirty; // a group of writes, for dirty lines
  KILN_VEC(const access_summary *) members;
  access_summary hull; // iterations in which any member runs
  double (*miss)[2];   // [levels] by reads, by writes
  int first, last;     // first and last unit of the current body that access it
  bool is_split;       // conditions keep some of these units from running in the same iteration
  const stay *stay;    // in the body visited before; NULL: unknown
  struct foot *now;    // its footprints in the current body
};

// A footprint with one access that has it.
typedef struct part part;
struct part {
  kiln_footprint footprint;
  const access_summary *who; // one of the accesses with this footprint
  KILN_VEC(const access_summary *) others;
  double lines;
  double **loads;  // [levels][sets] lines in each set; NULL: not yet computed
  double **shares; // [levels][MAX_WAYS + 2] share of sets with 0, 1, ... lines, or more
  part *two;       // footprint of two iterations of the loop outside; NULL: not yet computed
  part *step;      // footprint of an iteration of the loop at |step_depth| inside
  int step_depth;
};
typedef struct foot foot;
struct foot {
  KILN_VEC(part) parts;
  double lines;
};

// The footprints of a loop: of one iteration, and of all.
typedef struct loop_foot {
  foot body, whole;
} loop_foot;

typedef struct cache {
  double ways; // of a set
  int64_t n_sets;
} cache;

typedef struct analysis {
  kiln_arena *arena;
  int n_levels;
  const kiln_reuse_level *levels;
  cache *caches;
  int64_t line;
  loop_foot *feet; // [loops]
  foot *singles;   // [accesses]
} analysis;

enum { MAX_WAYS = 32 };

// --- footprints of groups ---

static void add_part(analysis *a, foot *f, const part *x) {
  for (int i = 0; i < f->parts.n; i++) {
    part *p = &f->parts.data[i];
    if (!kiln_footprint_unite(&p->footprint, &x->footprint, a->line)) continue;
    const double before = p->lines;
    *p = (part){.footprint = p->footprint,
                .who = p->who,
                .others = p->others,
                .lines = kiln_footprint_lines(&p->footprint, a->line)};
    KILN_VEC_PUSH(a->arena, &p->others, x->who);
    for (int k = 0; k < x->others.n; k++) KILN_VEC_PUSH(a->arena, &p->others, x->others.data[k]);
    f->lines += p->lines - before;
    return;
  }
  KILN_VEC_PUSH(
      a->arena, &f->parts,
      (part){.footprint = x->footprint, .who = x->who, .others = x->others, .lines = x->lines});
  f->lines += x->lines;
}

static void add_region(analysis *a, foot *f, const access_summary *who, int depth) {
  const kiln_footprint r = kiln_access_footprint(who, depth, a->line);
  add_part(a, f, &(part){.footprint = r, .who = who, .lines = kiln_footprint_lines(&r, a->line)});
}

static foot foot_of(analysis *a, const group *g, int depth) {
  foot f = {0};
  for (int i = 0; i < g->members.n; i++) add_region(a, &f, g->members.data[i], depth);
  return f;
}

static void add_foot(analysis *a, foot *to, const foot *from) {
  for (int i = 0; i < from->parts.n; i++) KILN_VEC_PUSH(a->arena, &to->parts, from->parts.data[i]);
  to->lines += from->lines;
}

static const double *load_of(analysis *a, part *p, int level) {
  const int64_t n = a->caches[level].n_sets;
  if (!p->loads) p->loads = KILN_NEW_ARRAY(a->arena, double *, a->n_levels);
  if (p->loads[level]) return p->loads[level];
  p->loads[level] = KILN_NEW_ARRAY(a->arena, double, n);
  kiln_footprint_count_sets(&p->footprint, a->line, n, p->loads[level]);
  return p->loads[level];
}

// Adds a set with |lines| lines to the histogram; a fractional count is divided between its two
// neighbours.
static void add_share(double lines, int ways, double *shares) {
  const double most = ways + 1, at = lines < most ? lines : most;
  const int low = (int)at;
  shares[low] += 1 - (at - low);
  if (low <= ways) shares[low + 1] += at - low;
}

static const double *all_shares_of(analysis *a, part *p, int level) {
  const cache *c = &a->caches[level];
  if (!p->shares) p->shares = KILN_NEW_ARRAY(a->arena, double *, a->n_levels);
  if (p->shares[level]) return p->shares[level];
  const double *load = load_of(a, p, level);
  double *shares = KILN_NEW_ARRAY(a->arena, double, MAX_WAYS + 2);
  for (int64_t s = 0; s < c->n_sets; s++) add_share(load[s], (int)c->ways, shares);
  for (int i = 0; i <= (int)c->ways + 1; i++) shares[i] /= (double)c->n_sets;
  return p->shares[level] = shares;
}

// Adds the histogram of |times| the lines of |p| to out[MAX_WAYS + 2].
static void add_shares(analysis *a, part *p, int level, double times, double *out) {
  const int ways = (int)a->caches[level].ways;
  const double *all = all_shares_of(a, p, level);
  for (int i = 0; i <= ways + 1; i++) {
    double one[MAX_WAYS + 2] = {0};
    add_share(i * times, ways, one);
    for (int k = 0; k <= ways + 1; k++) out[k] += all[i] * one[k];
  }
}

// --- windows: the accesses between two uses of a line ---

static bool moves(const group *g, int depth) {
  for (int i = 0; i < g->members.n; i++)
    if (kiln_access_moves(g->members.data[i], depth)) return true;
  return false;
}

// The number of iterations of the loops outside of |depth| in which any member of |g| runs.
static double runs_of(const group *g, int depth) {
  return kiln_access_common_iterations(&g->hull, &g->hull, depth);
}

// The average number of iterations of the loop at |depth| in which it runs.
static double iterations(const group *g, int depth) {
  const double n = g->hull.ranges[depth].n;
  if (!g->hull.hole || g->hull.hole_depth != depth + 1) return n;
  access_summary whole = g->hull;
  whole.hole_depth = 0;
  whole.hole = NULL;
  return n * runs_of(g, depth + 1) / kiln_access_common_iterations(&whole, &whole, depth + 1);
}

// Extends |hull|, whose |ranges| are its own, to the iterations in which |x| runs; loops that only
// one of them has are dropped.
static void widen(access_summary *hull, const access_summary *x) {
  if (x->depth < hull->depth) hull->depth = x->depth;
  if (x->hole != hull->hole) hull->hole_depth = 0;
  if (x->hole != hull->hole) hull->hole = NULL;
  for (int d = 0; d < hull->depth; d++) {
    const kiln_stride r = x->ranges[d];
    kiln_stride *h = &hull->ranges[d];
    const double begin = fmin((double)h->step, (double)r.step),
                 end = fmax((double)h->step + h->n, (double)r.step + r.n);
    *h = (kiln_stride){(int64_t)begin, end - begin};
  }
}

static access_summary hull_of(analysis *a, const access_summary *x) {
  access_summary out = *x;
  out.ranges = KILN_NEW_ARRAY(a->arena, kiln_stride, x->depth + 1);
  for (int d = 0; d < x->depth; d++) out.ranges[d] = x->ranges[d];
  return out;
}

// The innermost loop of the perfect nest from |l| on whose loops do not move |g|.
static const access_loop *still(const group *g, const access_loop *l) {
  while (l->body && l->body->loop && !l->body->next && !moves(g, l->body->loop->depth))
    l = l->body->loop;
  return l;
}

// The footprints of one sweep of |u| over |g|: the part before the last access of a line when |u|
// ends a window, after its first when |u| begins one.
static foot *pass(analysis *a, const group *g, const access_unit *u) {
  if (u->access) return &a->singles[u->access->id];
  if (moves(g, u->loop->depth)) return &a->feet[u->loop->id].whole;
  return &a->feet[still(g, u->loop)->id].body;
}

static foot *whole(analysis *a, const access_unit *u) {
  return u->access ? &a->singles[u->access->id] : &a->feet[u->loop->id].whole;
}

// The footprints accessed between two uses of a line of |mine|, whose lines compete for the sets.
enum { MAX_FEET = 64 };
typedef struct window {
  const group *g;
  foot *mine;
  int depth; // loops outside of this depth are fixed
  int n;
  foot *feet[MAX_FEET];
  bool is_from_to;     // begins somewhere in the first foot and ends at the same place in the last
  bool is_next;        // the uses are in neighbouring iterations of the loop at |depth| - 1
  bool is_around_hole; // and an iteration in which the group does not run lies between
  const access_loop *over; // the same if not NULL; the feet are those of an iteration of this loop
} window;

static void push_foot(window *w, foot *f) {
  if (w->n < MAX_FEET) w->feet[w->n++] = f;
}

static part *part_of(analysis *a, const access_summary *who, kiln_footprint r) {
  part *p = KILN_NEW(a->arena, part);
  *p = (part){.footprint = r, .who = who, .lines = kiln_footprint_lines(&r, a->line)};
  return p;
}

// The lines of a part in the window: |first| times those of |p| and |second| times those of
// |other|.
typedef struct amount {
  double first;
  part *p;
  double second;
  part *other;  // NULL: none
  double share; // fraction of the group's runs in which it runs, by conditions on outer loops
} amount;

// The lines of |p|, in the body of |w->over|, between uses in neighbouring iterations. If one sweep
// over |p| goes with one sweep over the group, these are the rest of one sweep and the beginning of
// the next; if |p| is swept again for each step of the group, all of both, except in the first and
// the last step.
static amount between_iterations(analysis *a, const window *w, part *p) {
  const access_summary *g = w->g->members.data[0], *x = p->who;
  const int depth = w->over->depth + 1;
  if (!kiln_access_moves(x, depth - 1)) return (amount){1, p, 0, NULL, 1};
  for (int d = depth; d < x->depth && d < g->depth && x->path[d] == g->path[d]; d++) {
    const bool x_moves = kiln_access_moves(x, d);
    if (!moves(w->g, d)) return (amount){1, p, 0, NULL, 1};
    if (!p->two) p->two = part_of(a, x, kiln_access_footprint_over(x, depth, 2, a->line));
    if (!x_moves) return (amount){1 / g->path[d]->n, p, 1 - 1 / g->path[d]->n, p->two, 1};
    if (!p->step || p->step_depth != d)
      p->step = part_of(a, x, kiln_access_footprint(x, d + 1, a->line));
    p->step_depth = d;
    const double anew = (p->two->lines - p->lines) / p->lines;
    return (amount){1, p, anew < 0 ? 0 : anew > 1 ? 1 : anew, p->step, 1};
  }
  return (amount){1, p, 0, NULL, 1};
}

// Of all pairs of neighbouring iterations of the innermost loop that the hole of |g| depends on,
// the fraction with the hole between them.
static double share_around_hole(const group *g) {
  const int last = g->hull.hole_depth - 1;
  const kiln_stride *r = &g->hull.ranges[last], *h = &g->hull.hole[last];
  const double outer = runs_of(g, last), pairs = runs_of(g, last + 1) - outer;
  double around = h->step > r->step && (double)h->step + h->n < (double)r->step + r->n;
  for (int d = 0; d < last; d++) around *= g->hull.hole[d].n;
  return around > 0 && pairs > 0 ? fmin(1, around / pairs) : 0;
}

// The fraction of the runs of |w->g| in which |x| runs as well.
static double share_with(const window *w, const access_summary *x) {
  const int depth = x->depth < w->depth ? x->depth : w->depth;
  const double all = runs_of(w->g, depth),
               both = kiln_access_common_iterations(&w->g->hull, x, depth);
  if (all > 0 && both <= 0 && w->is_around_hole)
    return kiln_access_common_iterations(&w->g->hull, x, depth - 1) > 0;
  return all > 0 ? both / all : 0;
}

// |at| in [0, 1]: the position in the first and in the last foot.
static amount amount_of(analysis *a, const window *w, int i, part *p, double at) {
  amount out = {1, p, 0, NULL, 1};
  if (w->over) out = between_iterations(a, w, p);
  else if (w->is_from_to && (i == 0 || i == w->n - 1)) out.first = i == 0 ? 1 - at : at;
  out.share = share_with(w, p->who);
  return out;
}

static double lines_between(analysis *a, const window *w, double at) {
  double lines = 0;
  for (int i = 0; i < w->n; i++)
    for (int k = 0; k < w->feet[i]->parts.n; k++) {
      const amount x = amount_of(a, w, i, &w->feet[i]->parts.data[k], at);
      lines += x.share * (x.first * x.p->lines + (x.other ? x.second * x.other->lines : 0));
    }
  return lines;
}

// Histogram of the sum of two independent counts of lines in a set.
static void convolve(int ways, double *a, const double *b) {
  double out[MAX_WAYS + 2] = {0};
  for (int i = 0; i <= ways + 1; i++)
    for (int k = 0; a[i] != 0 && k <= ways + 1; k++)
      out[i + k > ways ? ways + 1 : i + k] += a[i] * b[k];
  memcpy(a, out, (size_t)(ways + 2) * sizeof *a);
}

// A fraction of a sweep has that fraction of its lines; a count that alternates between one
// iteration and two is a mean of the two histograms.
static void convolve_amount(analysis *a, const amount *x, int level, double *shares) {
  const int ways = (int)a->caches[level].ways;
  double here[MAX_WAYS + 2] = {0}, there[MAX_WAYS + 2] = {0};
  if (!x->other || x->first == 1) {
    add_shares(a, x->p, level, x->first, here);
    if (x->other) add_shares(a, x->other, level, x->second, there);
    if (x->other) convolve(ways, here, there);
  } else {
    const double *one = all_shares_of(a, x->p, level), *two = all_shares_of(a, x->other, level);
    for (int i = 0; i <= ways + 1; i++) here[i] = x->first * one[i] + x->second * two[i];
  }
  for (int i = 0; i <= ways + 1; i++) here[i] *= x->share;
  here[0] += 1 - x->share;
  convolve(ways, shares, here);
}

static void add_load(analysis *a, part *p, int level, double n, double *load) {
  if (!p) return;
  const double *own = load_of(a, p, level);
  for (int64_t s = 0; s < a->caches[level].n_sets; s++) load[s] += n * own[s];
}

// Divides the lines in the window: those of accesses that move in parallel with the group always
// hit the same sets, and are added to load[sets]; for the others a histogram suffices.
static void split_window(analysis *a, const window *w, int level, double at, double *load,
                         double *shares) {
  const cache *c = &a->caches[level];
  const int64_t way_bytes = c->n_sets * a->line;
  for (int i = 0; i < w->n; i++)
    for (int k = 0; k < w->feet[i]->parts.n; k++) {
      part *p = &w->feet[i]->parts.data[k];
      const amount x = amount_of(a, w, i, p, at);
      if (x.share <= 0) continue;
      if (!kiln_access_is_parallel(w->g->members.data[0], p->who, w->depth, way_bytes)) {
        convolve_amount(a, &x, level, shares);
        continue;
      }
      add_load(a, x.p, level, x.share * x.first, load);
      add_load(a, x.other, level, x.share * x.second, load);
    }
}

// Probability that a set has room for |load| lines and a random number of others; below[n] is the
// probability of at most n.
static double room_for(int ways, double load, const double *below) {
  const double room = ways - load + 1e-9;
  if (room <= -1) return 0;
  if (room < 0) return (1 + room) * below[0];
  const int low = (int)room < ways ? (int)room : ways;
  const double next = low < ways ? below[low + 1] : below[low];
  return below[low] + (room - low) * (next - below[low]);
}

static double kept_at(analysis *a, const window *w, int level, double at) {
  const cache *c = &a->caches[level];
  const double capacity = (double)c->n_sets * c->ways, lines = lines_between(a, w, at);
  enum { MANY_SETS = 8192 };
  if (lines <= c->ways || w->mine->lines == 0) return 1;
  if (c->n_sets > MANY_SETS)
    return fmin(1, fmax(0, (1.1 - lines / capacity) / 0.15)); // many sets fill evenly
  if (c->n_sets == 1 || lines > 4 * capacity) return 0;
  double *own = KILN_NEW_ARRAY(a->arena, double, c->n_sets);
  double *load = KILN_NEW_ARRAY(a->arena, double, c->n_sets);
  double below[MAX_WAYS + 2] = {1}, all = 0, stays = 0;
  for (int i = 0; i < w->mine->parts.n; i++)
    kiln_footprint_count_sets(&w->mine->parts.data[i].footprint, a->line, c->n_sets, own);
  split_window(a, w, level, at, load, below);
  for (int i = 1; i <= (int)c->ways + 1; i++) below[i] += below[i - 1];
  for (int64_t s = 0; s < c->n_sets; s++) {
    all += own[s];
    if (own[s] > 0) stays += own[s] * room_for((int)c->ways, load[s], below);
  }
  return all > 0 ? stays / all : 1;
}

static double kept_on_average(analysis *a, const window *w, int level) {
  enum { PLACES = 3 };
  double sum = 0;
  if (!w->is_from_to) return kept_at(a, w, level, 0);
  for (int i = 0; i < PLACES; i++) sum += kept_at(a, w, level, (i + 0.5) / PLACES);
  return sum / PLACES;
}

// The fraction of the group's lines that are still cached at the window's end: lines in sets that
// have room for everything accessed between.
static double kept(analysis *a, const window *w, int level) {
  const bool has_hole = w->is_next && w->g->hull.hole && w->g->hull.hole_depth == w->depth;
  const double around = has_hole ? share_around_hole(w->g) : 0;
  double out = around < 1 ? (1 - around) * kept_on_average(a, w, level) : 0;
  window longer = *w;
  longer.is_around_hole = true;
  if (around > 0) out += around * kept_on_average(a, &longer, level);
  return out;
}

// --- bodies ---

static const access_unit *unit_at(const access_unit *body, int i) {
  for (; i > 0; i--) body = body->next;
  return body;
}

static void reduce_miss(double *miss, double by) {
  const double all = miss[0] + miss[1];
  if (all <= 0) return;
  const double rest = all > by ? all - by : 0;
  miss[0] *= rest / all;
  miss[1] *= rest / all;
}

static void save(analysis *a, const window *w, double lines, int level, double miss[2]) {
  if (lines > 1e-9) reduce_miss(miss, lines * kept(a, w, level));
}

// The number of iterations of loops outside of |depth| in which each group runs, both run, and any
// runs (by the hull of both).
typedef struct meeting {
  double e, g, both, either;
} meeting;
static meeting meet(analysis *a, const group *e, const group *g, int depth) {
  access_summary either = hull_of(a, &e->hull);
  widen(&either, &g->hull);
  return (meeting){runs_of(e, depth), runs_of(g, depth),
                   kiln_access_common_iterations(&e->hull, &g->hull, depth),
                   kiln_access_common_iterations(&either, &either, depth)};
}

// The number of iterations in which both run; if a member of |e| accesses the lines of |g| in other
// iterations than the rest of |e| does, that member's.
static double runs_of_both(const group *e, const group *g, int depth, double otherwise) {
  const access_summary *y = g->members.data[0];
  for (int i = 0; g->members.n == 1 && i < e->members.n; i++) {
    const access_summary *x = e->members.data[i];
    if (kiln_access_is_same(x, y)) return kiln_access_common_iterations(x, y, depth);
  }
  return otherwise;
}

static window between(analysis *a, const access_unit *body, int at, int depth, const group *e,
                      const group *g, foot *mine) {
  window w = {.g = g, .mine = mine, .depth = depth, .is_from_to = e->last != at};
  if (w.is_from_to) push_foot(&w, pass(a, g, unit_at(body, e->last)));
  for (int i = e->last + 1; i < at; i++) push_foot(&w, whole(a, unit_at(body, i)));
  push_foot(&w, w.is_from_to ? pass(a, g, unit_at(body, at)) : whole(a, unit_at(body, at)));
  return w;
}

// Adds |x| to the members of |g|; accesses of two branches to the same bytes are merged into one.
static void add_member(analysis *a, group *g, const access_summary *x) {
  for (int i = 0; i < g->members.n; i++) {
    const access_summary *merged = kiln_access_merge(a->arena, g->members.data[i], x);
    if (!merged) continue;
    g->members.data[i] = merged;
    return;
  }
  KILN_VEC_PUSH(a->arena, &g->members, x);
}

// Adds |g|, of unit |at| of |body|, to |e|, which accessed some of its lines earlier. If conditions
// let one run less often, misses are averages over all runs.
static void join(analysis *a, const access_unit *body, int at, int depth, group *e,
                 const group *g) {
  const double of_e = e->now->lines, of_g = g->now->lines;
  meeting m = meet(a, e, g, depth);
  e->is_split = e->is_split || m.both < m.either / 2;
  m.both = runs_of_both(e, g, depth, m.both);
  const window w = between(a, body, at, depth, e, g, g->now);
  for (int i = 0; i < g->now->parts.n; i++) add_part(a, e->now, &g->now->parts.data[i]);
  const double common = of_e + of_g - e->now->lines;
  for (int k = 0; k < a->n_levels; k++) {
    double miss[2] = {g->miss[k][0], g->miss[k][1]};
    save(a, &w, common * m.both / m.g, k, miss);
    for (int i = 0; i < 2; i++) e->miss[k][i] = (e->miss[k][i] * m.e + miss[i] * m.g) / m.either;
  }
  for (int i = 0; i < g->members.n; i++) add_member(a, e, g->members.data[i]);
  widen(&e->hull, &g->hull);
  e->last = at;
  e->stay = NULL;
}

static void add_to_groups(analysis *a, const access_unit *body, int at, int depth, group *g,
                          group **out) {
  group **end = out;
  g->now = KILN_NEW(a->arena, foot);
  *g->now = foot_of(a, g, depth);
  for (; *end; end = &(*end)->next)
    if ((*end)->is_dirty == g->is_dirty &&
        kiln_access_is_alike((*end)->members.data[0], g->members.data[0], depth)) {
      join(a, body, at, depth, *end, g);
      return;
    }
  g->first = g->last = at;
  g->is_split = false;
  g->next = NULL;
  *end = g;
}

static group *group_of(analysis *a, const access_summary *x, bool is_dirty) {
  group *g = KILN_NEW(a->arena, group);
  g->is_dirty = is_dirty;
  g->hull = hull_of(a, x);
  KILN_VEC_PUSH(a->arena, &g->members, x);
  g->miss = kiln_arena_zalloc(a->arena, (size_t)a->n_levels * sizeof *g->miss);
  for (int k = 0; k < a->n_levels; k++) g->miss[k][x->is_write] = a->singles[x->id].lines;
  return g;
}

static void note_stay(analysis *a, group *g, const access_unit *body) {
  const access_unit *u = unit_at(body, g->last);
  const bool is_still = g->first == g->last && u->loop && !moves(g, u->loop->depth);
  if (is_still && g->stay && !body->next) return; // the loop is the only unit
  stay *s = KILN_NEW(a->arena, stay);
  *s = (stay){body, g->first, g->last, g->is_split, is_still ? g->stay : NULL};
  g->stay = s;
}

static group *visit_loop(analysis *a, const access_loop *l);

static group *visit_body(analysis *a, const access_unit *body, int depth) {
  group *out = NULL;
  int at = 0;
  for (const access_unit *u = body; u; u = u->next, at++) {
    if (u->loop) {
      for (group *g = visit_loop(a, u->loop), *next; g; g = next) {
        next = g->next;
        add_to_groups(a, body, at, depth, g, &out);
      }
      continue;
    }
    foot *f = &a->singles[u->access->id];
    add_region(a, f, u->access, depth);
    add_to_groups(a, body, at, depth, group_of(a, u->access, false), &out);
    if (u->access->is_write) add_to_groups(a, body, at, depth, group_of(a, u->access, true), &out);
  }
  for (group *g = out; g; g = g->next) note_stay(a, g, body);
  return out;
}

// --- loops ---

// The fraction of the runs of |g|, over the loops outside of |depth|, in which an access with
// footprint |p| runs.
static double share_of(const group *g, const part *p, int depth) {
  const double all = runs_of(g, depth);
  double runs = kiln_access_common_iterations(p->who, p->who, depth);
  for (int i = 0; i < p->others.n && runs < all * (1 - 1e-9); i++) {
    const access_summary *x = p->others.data[i];
    double known = kiln_access_common_iterations(p->who, x, depth);
    for (int k = 0; k < i; k++)
      known = fmax(known, kiln_access_common_iterations(p->others.data[k], x, depth));
    runs += kiln_access_common_iterations(x, x, depth) - known;
  }
  return all > 0 ? fmin(1, runs / all) : 1;
}

// Average number of lines that |f|, footprints of |g| inside of |depth|, has in |n| iterations of
// the loop outside, weighted by how often conditions let each access run.
static double lines_of_runs(analysis *a, const group *g, const foot *f, int depth, double n) {
  double lines = 0;
  for (int i = 0; i < f->parts.n; i++) {
    const part *p = &f->parts.data[i];
    const kiln_footprint r =
        n == 1 ? p->footprint : kiln_access_footprint_over(p->who, depth, n, a->line);
    lines += kiln_footprint_lines(&r, a->line) * share_of(g, p, depth);
  }
  return lines;
}

// The number of iterations of |l| after which a line of |body| is used again: doubled while all
// lines are new.
static double period(analysis *a, const access_loop *l, const group *g, const foot *body,
                     double one, double n) {
  double k = 2;
  while (k < n && lines_of_runs(a, g, body, l->depth + 1, k) > k * one * (1 - 1e-6)) k *= 2;
  return k < n ? k : n;
}

static foot foot_of_runs(analysis *a, const foot *f, int depth, double n) {
  foot out = {0};
  for (int i = 0; i < f->parts.n; i++) {
    const access_summary *who = f->parts.data[i].who;
    const part *p = part_of(a, who, kiln_access_footprint_over(who, depth, n, a->line));
    KILN_VEC_PUSH(a->arena, &out.parts, *p);
    out.lines += p->lines;
  }
  return out;
}

static void push_others(analysis *a, window *w, const access_unit *body, int begin, int end) {
  for (int i = 0; body; body = body->next, i++)
    if (i >= begin && i < end) push_foot(w, whole(a, body));
}

// The window from an iteration of |over| to the next. If |over| does not move the group, it begins
// at the last use in one iteration and ends at the first in the next.
static window next_iteration(analysis *a, const access_loop *over, const group *g, foot *mine,
                             bool is_moved) {
  window w = {.g = g, .mine = mine, .depth = over->depth + 1, .is_next = true};
  const stay *s = g->stay;
  while (s && s->inner) s = s->inner;
  if (is_moved || !s || s->is_split || g->stay->body != over->body || s->first == s->last) {
    w.over = over;
    push_foot(&w, &a->feet[over->id].body);
    return w;
  }
  w.is_from_to = true;
  push_foot(&w, pass(a, g, unit_at(s->body, s->last)));
  push_others(a, &w, s->body, s->last + 1, INT_MAX);
  for (const stay *o = g->stay; o != s; o = o->inner) {
    push_others(a, &w, o->body, 0, o->first);
    push_others(a, &w, o->body, o->last + 1, INT_MAX);
  }
  push_others(a, &w, s->body, 0, s->first);
  push_foot(&w, pass(a, g, unit_at(s->body, s->first)));
  return w;
}

// A line that is written back was fetched before, so there are no more dirty lines than fetched
// ones.
static void bound_dirty(const analysis *a, group *all, int depth) {
  for (group *g = all; g; g = g->next)
    for (const group *e = all; e && g->is_dirty; e = e->next) {
      if (e->is_dirty || !kiln_access_is_alike(e->members.data[0], g->members.data[0], depth))
        continue;
      for (int k = 0; k < a->n_levels; k++) {
        const double dirt = g->miss[k][0] + g->miss[k][1], fetched = e->miss[k][0] + e->miss[k][1];
        if (dirt > fetched) reduce_miss(g->miss[k], dirt - fetched);
      }
    }
}

static void scale_miss(const analysis *a, group *g, double by) {
  for (int k = 0; k < a->n_levels; k++)
    for (int i = 0; i < 2; i++) g->miss[k][i] *= by;
}

// |body| has the footprints of |g| in one iteration, |all| in all of them.
static void repeat(analysis *a, const access_loop *l, group *g, foot *body, const foot *all) {
  const double n = iterations(g, l->depth);
  if (n <= 1) {
    scale_miss(a, g, n);
    return;
  }
  const double one = lines_of_runs(a, g, body, l->depth + 1, 1);
  // new lines come from movement and from conditions that hold only in later iterations
  const double common = fmax(0, one - (lines_of_runs(a, g, all, l->depth, 1) - one) / (n - 1));
  double near = common;
  if (moves(g, l->depth)) {
    near = 2 * one - lines_of_runs(a, g, body, l->depth + 1, 2);
    near = near < 0 ? 0 : near > common ? common : near;
  }
  const access_loop *over = still(g, l);
  const window w = next_iteration(a, over, g, body, moves(g, l->depth));
  window far = {.g = g, .mine = body, .depth = l->depth};
  foot rest = {0};
  if (common - near > 1e-3 * one) {
    rest = foot_of_runs(a, &a->feet[l->id].body, l->depth + 1, period(a, l, g, body, one, n));
    push_foot(&far, &rest);
  }
  for (int k = 0; k < a->n_levels; k++) {
    double again[2] = {g->miss[k][0], g->miss[k][1]};
    save(a, &w, near, k, again);
    if (far.n) save(a, &far, common - near, k, again);
    g->miss[k][0] += (n - 1) * again[0];
    g->miss[k][1] += (n - 1) * again[1];
  }
}

static group *visit_loop(analysis *a, const access_loop *l) {
  group *out = visit_body(a, l->body, l->depth + 1);
  int n = 0;
  for (const group *g = out; g; g = g->next) n++;
  foot *body = KILN_NEW_ARRAY(a->arena, foot, n), *all = KILN_NEW_ARRAY(a->arena, foot, n);
  loop_foot *own = &a->feet[l->id];
  n = 0;
  for (const group *g = out; g; g = g->next, n++) {
    body[n] = foot_of(a, g, l->depth + 1);
    all[n] = foot_of(a, g, l->depth);
    if (g->is_dirty) continue;
    add_foot(a, &own->body, &body[n]);
    add_foot(a, &own->whole, &all[n]);
  }
  n = 0;
  for (group *g = out; g; g = g->next, n++) repeat(a, l, g, &body[n], &all[n]);
  bound_dirty(a, out, l->depth);
  return out;
}

// --- totals ---

static void add_flow(const analysis *a, const group *g, int level, kiln_reuse_flow *to) {
  const double *m = g->miss[level], line = a->levels[level].line_bytes;
  if (g->is_dirty) to->written_bytes += line * (m[0] + m[1]);
  else to->read_bytes += line * (m[0] + (a->levels[level].stores_fetch ? m[1] : 0));
}

static cache cache_of(const kiln_reuse_level *l) {
  const double lines = l->usable_bytes / l->line_bytes;
  if (l->ways == 0 || lines < l->ways) return (cache){lines < 1 ? 1 : lines, 1};
  return (cache){l->ways, (int64_t)(lines / l->ways)};
}

static kiln_status predict(kiln_ctx *cx, const kiln_loops *l, int n_levels,
                           const kiln_reuse_level *levels, kiln_reuse_flow *out,
                           kiln_reuse_flow *out_buffers) {
  access_list t;
  KILN_TRY(kiln_accesses_make(cx, l, &t));
  analysis a = {&cx->scratch, n_levels, levels, NULL, 64, NULL, NULL};
  if (n_levels) a.line = levels[0].line_bytes;
  a.caches = KILN_NEW_ARRAY(a.arena, cache, n_levels);
  for (int k = 0; k < n_levels; k++) a.caches[k] = cache_of(&levels[k]);
  a.feet = KILN_NEW_ARRAY(a.arena, loop_foot, t.n_loops);
  a.singles = KILN_NEW_ARRAY(a.arena, foot, t.n_accesses);
  for (const group *g = visit_body(&a, t.body, 0); g; g = g->next)
    for (int k = 0; k < n_levels; k++) {
      add_flow(&a, g, k, &out[k]);
      if (out_buffers)
        add_flow(&a, g, k, &out_buffers[g->members.data[0]->buffer->id * n_levels + k]);
    }
  return KILN_OK;
}

kiln_status kiln_reuse_predict(kiln_ctx *cx, const kiln_loops *l, int n_levels,
                               const kiln_reuse_level *levels, kiln_reuse_flow *out,
                               kiln_reuse_flow *out_buffers) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  memset(out, 0, (size_t)n_levels * sizeof *out);
  if (out_buffers) memset(out_buffers, 0, (size_t)(l->buffers.n * n_levels) * sizeof *out_buffers);
  const kiln_status st = predict(cx, l, n_levels, levels, out, out_buffers);
  kiln_arena_rewind(&cx->scratch, mark);
  return st;
}

// Test support: random programs and random sequences of all primitives, as lines of a script. A
// case is determined by its number, on every machine.
#ifndef KILN_TEST_SCHEDULE_CASES_H
#define KILN_TEST_SCHEDULE_CASES_H

#include "schedule/nest.h"
#include "unit/schedule/kernel.h"

// --- programs that resemble kernels ---

// %1 .. %4 are random extents.
static const char *const programs[] = {
    "chain { in f32 X(%1, %2) in f32 B(%2) temp f32 T(%1, %2) temp f32 U(%1, %2) out f32 Y(%1, %2) "
    "T(i0:%1, i1:%2) = X(i0, i1) * 2f32 + 1f32 "
    "U(i0:%1, i1:%2) = max(T(i0, i1), B(i1)) "
    "Y(i0:%1, i1:%2) = U(i0, i1) + T(i0, i1) }",
    "mm { in f32 A(%1, %3) const f32 B(%3, %2) = ... in f32 D(%2) temp f32 C(%1, %2) out f32 Y(%1, "
    "%2) "
    "C(i0:%1, i1:%2 | r0:%3) +=! A(i0, r0) * B(r0, i1) "
    "Y(i0:%1, i1:%2) = max(C(i0, i1) + D(i1), 0f32) }",
    "bmm { in f32 A(%4, %1, %3) in f32 B(%4, %2, %3) temp f32 C(%4, %1, %2) out f32 Y(%4, %1, %2) "
    "C(i0:%4, i1:%1, i2:%2 | r0:%3) +=! A(i0, i1, r0) * B(i0, i2, r0) "
    "Y(i0:%4, i1:%1, i2:%2) = C(i0, i1, i2) * 2f32 }",
    "conv { in f32 P(%4, %1 * 2 + 2, %2 * 2 + 2) const f32 W(%3, %4, 3, 3) = ... temp f32 C(%1, "
    "%2, %3) "
    "out f32 Y(%1, %2, %3) "
    "C(i0:%1, i1:%2, i2:%3 | r0:%4, r1:3, r2:3) +=! P(r0, i0 * 2 + r1, i1 * 2 + r2) * W(i2, r0, "
    "r1, r2) "
    "Y(i0:%1, i1:%2, i2:%3) = max(C(i0, i1, i2), 0f32) }",
    "padded { in f32 P(%1, %2) temp f32 C(%1, %2) out f32 Y(%1, %2) "
    "C(i0:%1, i1:%2 | r0:3, r1:3) +=! i0 + r0 - 1 < 0 || i0 + r0 - 1 >= %1 || i1 + r1 - 1 < 0 || "
    "i1 + r1 - 1 >= %2 "
    "? 0f32 : P(i0 + r0 - 1, i1 + r1 - 1) "
    "Y(i0:%1, i1:%2) = C(i0, i1) * 0.5f32 }",
    "blur { in f32 X(%1 + 2, %2 + 2) temp f32 H(%1 + 2, %2) out f32 Y(%1, %2) "
    "H(i0:%1 + 2, i1:%2 | r0:3) +=! X(i0, i1 + r0) "
    "Y(i0:%1, i1:%2 | r0:3) +=! H(i0 + r0, i1) }",
    "pool { in f32 X(%1 * 2 + 1, %2 * 2 + 1, %3) out f32 Y(%1, %2, %3) "
    "Y(i0:%1, i1:%2, i2:%3 | r0:3, r1:3) max=! X(i0 * 2 + r0, i1 * 2 + r1, i2) }",
    "softmax { in f32 X(%1, %2) temp f32 M(%1) temp f32 E(%1, %2) temp f32 S(%1) out f32 Y(%1, %2) "
    "M(i0:%1 | r0:%2) max=! X(i0, r0) "
    "E(i0:%1, i1:%2) = exp(X(i0, i1) - M(i0)) "
    "S(i0:%1 | r0:%2) +=! E(i0, r0) "
    "Y(i0:%1, i1:%2) = E(i0, i1) / S(i0) }",
    "attention { in f32 X(%1, %2) in f32 V(%2, %3) temp f32 M(%1) temp f32 E(%1, %2) temp f32 "
    "S(%1) "
    "temp f32 C(%1, %3) out f32 Y(%1, %3) "
    "M(i0:%1 | r0:%2) max=! X(i0, r0) "
    "E(i0:%1, i1:%2) = exp(X(i0, i1) - M(i0)) "
    "S(i0:%1 | r0:%2) +=! E(i0, r0) "
    "C(i0:%1, i1:%3 | r0:%2) +=! E(i0, r0) / S(i0) * V(r0, i1) "
    "Y(i0:%1, i1:%3) = C(i0, i1) + 1f32 }",
    "sums { in f32 X(%1, %2, %3) out f32 Y(%1) Y(i0:%1 | r0:%2, r1:%3) +=! X(i0, r0, r1) }",
    "total { in f32 X(%1, %2) temp f32 T() out f32 Y(%1) T( | r0:%1, r1:%2) +=! X(r0, r1) "
    "Y(i0:%1) = X(i0, 0) + T() }",
    "twice { in f32 P(%1 + 4, %2) temp f32 C(%1 + 2, %3) temp f32 R(%1 + 2, %3) temp f32 D(%1, %2) "
    "in f32 V(%3, 3) "
    "in f32 W(%2, 3) out f32 Y(%1, %2) "
    "C(i0:%1 + 2, i1:%3 | r0:%2, r1:3) +=! P(i0 + r1, r0) * V(i1, r1) "
    "R(i0:%1 + 2, i1:%3) = max(C(i0, i1), 0f32) "
    "D(i0:%1, i1:%2 | r0:%3, r1:3) +=! R(i0 + r1, r0) * W(i1, r1) "
    "Y(i0:%1, i1:%2) = D(i0, i1) - 1f32 }",
    "norm { in f32 X(%4, %1, %2) temp f32 S(%4, %1) temp f32 D(%4, %1, %2) temp f32 V(%4, %1) out "
    "f32 Y(%4, %1, %2) "
    "S(i0:%4, i1:%1 | r0:%2) +=! X(i0, i1, r0) "
    "D(i0:%4, i1:%1, i2:%2) = X(i0, i1, i2) - S(i0, i1) "
    "V(i0:%4, i1:%1 | r0:%2) +=! D(i0, i1, r0) * D(i0, i1, r0) "
    "Y(i0:%4, i1:%1, i2:%2) = D(i0, i1, i2) / (V(i0, i1) + 1f32) }",
    "shuffle { in f32 X(%1 * 2, %2) temp f32 T(%1, %2 * 2) out f32 Y(%1, %2 * 2) "
    "T(i0:%1, i1:%2 * 2) = X(i0 * 2 + i1 % 2, i1 / 2) + 1f32 "
    "Y(i0:%1, i1:%2 * 2) = T(i0, i1) * T(i0, %2 * 2 - 1 - i1) }",
    "put { in f32 X(%1, %2) in i64 I(%1) in f32 Z(3, %2) out f32 Y(3, %2) "
    "Y(i0:%1, i1:%2) at (I(i0), i1) = X(i0, i1) init (Z(o0, o1)) }",
    "add { in f32 X(%1, %2) in i64 I(%1, %2) out f32 Y(%1, 3) "
    "Y(i0:%1, i1:%2) at (i0, I(i0, i1)) +=! X(i0, i1) }",
    "odd { in f32 X(%1, %2) temp f32 T(%1 * 2 + 1, %2) out f32 Y(%1 * 2, %2) "
    "T(i0:%1, i1:%2) at (i0 * 2 + 1, i1) = X(i0, i1) init (f32(o1)) "
    "Y(i0:%1 * 2, i1:%2) = T(i0, i1) + T(i0 + 1, i1) }",
    "last { in f32 X(%1, %2) out f32 Y((%1 + 1) / 2, %2) "
    "Y(i0:%1, i1:%2) at (i0 / 2, i1) = X(i0, i1) init (0f32) }",
    "tri { in f32 A(%1, %3) in f32 B(%3, %2) temp f32 C(%1, %2) out f32 Y(%1, %2) "
    "C(i0:%1, i1:%2 | r0:%3) +=! A(i0, r0) * B(r0, i1) if r0 <= i0 "
    "Y(i0:%1, i1:%2) = C(i0, i1) + 1f32 }",
    "rounds { in f32 X(%1, %2) out f32 Y(%1, %2 + 1) "
    "Y(i0:%1 | r0:%3, r1:2, r2:%2) at (i0, r1 < 1 ? %2 : r2) max=! r1 < 1 ? Y(i0, r2) - X(i0, r2) "
    ": Y(i0, %2) - 1f32 if Y(i0, %2) < 1f32 init (o1 < %2 ? X(o0, min(o1, %2 - 1)) : -8f32) }",
    "follow { in f32 X(%1, %2) out f32 Y(%1, %2 + 1) "
    "Y(i0:%1 | r0:%2) at (i0, r0 + 1) = max(Y(i0, r0) - 1f32, X(i0, r0)) init (0f32) }",
    "turn { in f32 X(%1, %2, %3) out f32 Y(%3, %1, %2) Y(i0:%3, i1:%1, i2:%2) = X(i1, i2, i0) }",
    "gather { in f32 X(3, %2) in i64 I(%1) out f32 Y(%1, %2) Y(i0:%1, i1:%2) = X(I(i0), i1) }",
};

static void instantiate(const char *from, const int64_t *extents, char *to, size_t room) {
  size_t n = 0;
  for (; *from && n + 24 < room; from++) {
    if (from[0] == '%' && from[1] >= '1' && from[1] <= '4') {
      n += (size_t)snprintf(to + n, room - n, "%lld", (long long)extents[from[1] - '1']);
      from++;
    } else {
      to[n++] = *from;
    }
  }
  to[n] = 0;
}

// --- programs: random ones ---

static int pick_of(uint64_t *seed, int n) {
  return (int)(kernel_random(seed) % (uint32_t)(n > 0 ? n : 1));
}

typedef struct author {
  uint64_t *seed;
  char text[4096];
  size_t n;
  const char *dtype;
  int n_inputs, n_tensors; // that may be read
  int rank[8], extent[8][3];
  int n_dims, dims[5]; // of the statement that is written: d0, d1, ...
} author;

static void put(author *a, const char *format, ...) KILN_PRINTF(2, 3);
static void put(author *a, const char *format, ...) {
  va_list args;
  va_start(args, format);
  a->n += (size_t)vsnprintf(a->text + a->n, sizeof a->text - a->n, format, args);
  va_end(args);
  assert_true(a->n < sizeof a->text);
}

// A random index in [0, extent) over the dims: plain, shifted, reversed, strided, wrapped, or data.
static void put_index(author *a, int extent) {
  for (int tries = 0; tries < 8; tries++) {
    const int v = pick_of(a->seed, a->n_dims), w = pick_of(a->seed, a->n_dims);
    const int n = a->dims[v], m = a->dims[w];
    switch (pick_of(a->seed, 10)) {
    case 0:
    case 1:
    case 2:
      if (n > extent) continue;
      if (n < extent && pick_of(a->seed, 2))
        put(a, "d%d + %d", v, pick_of(a->seed, extent - n + 1));
      else put(a, "d%d", v);
      return;
    case 3:
      if (n > extent) continue;
      put(a, "%d - d%d", extent - 1, v);
      return;
    case 4:
      if (2 * (n - 1) >= extent) continue;
      put(a, "d%d * 2", v);
      return;
    case 5:
      if ((n - 1) / 2 >= extent) continue;
      put(a, "d%d / 2", v);
      return;
    case 6:
      if (v == w || n + m - 1 > extent) continue;
      put(a, "d%d + d%d", v, w);
      return;
    case 7: put(a, "(d%d + d%d) %% %d", v, w, extent); return;
    case 8:
      if (extent < 3) continue;
      put(a, "I(d%d)", v);
      return;
    default: put(a, "%d", pick_of(a->seed, extent)); return;
    }
  }
  put(a, "d%d %% %d", pick_of(a->seed, a->n_dims), extent);
}

static void put_load(author *a, int t) {
  put(a, "%c(", 'A' + t);
  for (int k = 0; k < a->rank[t]; k++) {
    if (k > 0) put(a, ", ");
    put_index(a, a->extent[t][k]);
  }
  put(a, ")");
}

static void put_condition(author *a) {
  static const char *const kinds[] = {"d%d < d%d", "d%d + d%d < 3", "d%d >= d%d", "d%d %% 2 == 0"};
  const int v = pick_of(a->seed, a->n_dims), w = pick_of(a->seed, a->n_dims);
  switch (pick_of(a->seed, (int)KILN_LEN(kinds))) {
  case 0: put(a, "d%d < d%d", v, w); break;
  case 1: put(a, "d%d + d%d < 3", v, w); break;
  case 2: put(a, "d%d >= d%d", v, w); break;
  default: put(a, "d%d %% 2 == 0", v); break;
  }
}

// The newest tensor, or often an earlier one.
static void put_body(author *a) {
  const int newest = a->n_tensors - 1, some = pick_of(a->seed, a->n_tensors);
  const bool is_first = a->n_tensors == a->n_inputs; // products of products grow too large
  switch (pick_of(a->seed, is_first ? 8 : 6)) {
  case 0: put_load(a, newest); break;
  case 6:
  case 7:
    put_load(a, newest);
    put(a, " * ");
    put_load(a, some);
    break;
  case 1:
    put_load(a, newest);
    put(a, " + ");
    put_load(a, newest);
    break;
  case 2:
    put_load(a, newest);
    put(a, " * 2%s - ", a->dtype);
    put_load(a, some);
    break;
  case 3:
    put(a, "max(");
    put_load(a, newest);
    put(a, ", ");
    put_load(a, some);
    put(a, ")");
    break;
  case 4:
    put_condition(a);
    put(a, " ? ");
    put_load(a, newest);
    put(a, " : ");
    put_load(a, some);
    break;
  default:
    put_load(a, newest);
    put(a, " + %s(d%d)", a->dtype, pick_of(a->seed, a->n_dims));
    break;
  }
}

static void put_shape(author *a, int t) {
  put(a, "%c(", 'A' + t);
  for (int k = 0; k < a->rank[t]; k++) put(a, "%s%d", k ? ", " : "", a->extent[t][k]);
  put(a, ") ");
}

static void put_statement(author *a, int t) {
  static const char *const combiners[] = {"+=!", "max=!", "min=!"};
  const int n_reduce = pick_of(a->seed, 2) ? 1 + pick_of(a->seed, 2) : 0;
  a->n_dims = a->rank[t] + n_reduce;
  put(a, "%c(", 'A' + t);
  for (int k = 0; k < a->n_dims; k++) {
    a->dims[k] = k < a->rank[t] ? a->extent[t][k] : 1 + pick_of(a->seed, 4);
    put(a, "%sd%d:%d", k == 0 ? "" : k == a->rank[t] ? " | " : ", ", k, a->dims[k]);
  }
  put(a, ") %s ", n_reduce ? combiners[pick_of(a->seed, 3)] : "=");
  put_body(a);
  if (n_reduce && !pick_of(a->seed, 4)) {
    put(a, " if ");
    put_condition(a);
  }
  put(a, " ");
}

// 1 to 4 statements over one or two inputs; the last is the output, and each reads the one before.
static const char *random_program(author *a) {
  static const char *const dtypes[] = {"f32", "f32", "f64", "i32"};
  const int n_inputs = 1 + pick_of(a->seed, 2), n = n_inputs + 1 + pick_of(a->seed, 4);
  a->dtype = dtypes[pick_of(a->seed, (int)KILN_LEN(dtypes))];
  a->n_inputs = n_inputs;
  put(a, "random { in i64 I(5) ");
  for (int t = 0; t < n; t++) {
    a->rank[t] = 1 + pick_of(a->seed, t < n_inputs ? 3 : 2);
    for (int k = 0; k < a->rank[t]; k++) a->extent[t][k] = 1 + pick_of(a->seed, 5);
    put(a, "%s %s ", t < n_inputs ? "in" : t + 1 < n ? "temp" : "out", a->dtype);
    put_shape(a, t);
  }
  for (a->n_tensors = n_inputs; a->n_tensors < n; a->n_tensors++) put_statement(a, a->n_tensors);
  put(a, "}");
  return a->text;
}

// --- random steps, as lines of a script ---

enum { STEPS = 14, MAX_LINES = 64, N_STEPS = 40 };

typedef struct walker {
  test_kernel *k;
  kiln_schedule *s;
  uint64_t seed;
  const kiln_loop *loops[64];
  int n_loops, n_names;
  bool is_rare;
  int accepted[N_STEPS];
  kiln_text line;
} walker;

static int pick(walker *w, int n) { return pick_of(&w->seed, n); }

static void list_loops(walker *w, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR && w->n_loops < 64) w->loops[w->n_loops++] = l;
    list_loops(w, l->body);
  }
}

static const char *text_of(const walker *w, kiln_symbol s) {
  return kiln_symbol_text(&w->k->cx, s);
}

static const char *some_loop(walker *w) { return text_of(w, w->loops[pick(w, w->n_loops)]->var); }

static const kiln_buffer *some_buffer(walker *w) {
  return w->s->loops->buffers.data[pick(w, w->s->loops->buffers.n)];
}

static const char *buffer_name(walker *w) { return text_of(w, some_buffer(w)->name); }

// Often one that a statement of the program computes.
static const char *computed(walker *w) {
  const kiln_program *p = w->k->prog;
  if (!pick(w, 4)) return buffer_name(w);
  const kiln_stmt *s = p->stmts.data[pick(w, p->stmts.n)];
  return text_of(w, p->tensors.data[s->out]->name);
}

static const char *new_name(walker *w) {
  return text_of(w, kiln_symbol_printf(&w->k->cx, "n%d", w->n_names++));
}

static const char *some_tail(walker *w) {
  static const char *const tails[] = {"guard", "guard", "shift", "peel", "round", "exact"};
  return tails[pick(w, (int)KILN_LEN(tails))];
}

// Each function writes a line, or several, to w->line.

static void step_split(walker *w) {
  const char *loop = some_loop(w), *outer = new_name(w);
  kiln_text_printf(&w->line, "split %s %d %s %s %s\n", loop, 1 + pick(w, 5), some_tail(w), outer,
                   new_name(w));
}

// Neighbours in the listing are often on one path.
static void step_tile(walker *w) {
  const int from = pick(w, w->n_loops - 1);
  if (w->n_loops < 2) return;
  kiln_text_printf(&w->line, "tile %s %s %d %d %s n%d n%d n%d n%d\n",
                   text_of(w, w->loops[from]->var), text_of(w, w->loops[from + 1]->var),
                   1 + pick(w, 4), 1 + pick(w, 4), some_tail(w), w->n_names, w->n_names + 1,
                   w->n_names + 2, w->n_names + 3);
  w->n_names += 4;
}

static void step_fuse(walker *w) {
  const int from = pick(w, w->n_loops - 1);
  if (w->n_loops < 2) return;
  kiln_text_printf(&w->line, "fuse %s %s %s\n", text_of(w, w->loops[from]->var),
                   text_of(w, w->loops[from + 1]->var), new_name(w));
}

static void step_reorder(walker *w) {
  int order[4];
  const int n = 2 + pick(w, 3), from = pick(w, w->n_loops);
  if (from + n > w->n_loops) return;
  for (int i = 0; i < n; i++) order[i] = from + i;
  for (int i = n - 1; i > 0; i--) {
    const int j = pick(w, i + 1), t = order[i];
    order[i] = order[j];
    order[j] = t;
  }
  kiln_text_add(&w->line, "reorder");
  for (int i = 0; i < n; i++)
    kiln_text_printf(&w->line, " %s", text_of(w, w->loops[order[i]]->var));
  kiln_text_add(&w->line, "\n");
}

static void step_merge(walker *w) {
  const kiln_loop *first = w->loops[pick(w, w->n_loops)], *second = first->next;
  while (second && (second->kind != KILN_LOOP_FOR || (second->next && !pick(w, 3))))
    second = second->next;
  if (second)
    kiln_text_printf(&w->line, "merge %s %s %d\n", text_of(w, first->var), text_of(w, second->var),
                     pick(w, 2) ? 0 : pick(w, 5));
}

static void step_parallel(walker *w) { kiln_text_printf(&w->line, "parallel %s\n", some_loop(w)); }

static void step_vectorize(walker *w) {
  kiln_text_printf(&w->line, "vectorize %s\n", some_loop(w));
}

static void step_unroll(walker *w) { kiln_text_printf(&w->line, "unroll %s\n", some_loop(w)); }

static void step_annotate(walker *w) {
  kiln_text_printf(&w->line, "annotate %s key v%d\n", some_loop(w), pick(w, 3));
}

static void step_bind(walker *w) {
  static const char *const axes[] = {"block.x", "block.y", "thread.x", "thread.y"};
  kiln_text_printf(&w->line, "bind %s %s\n", some_loop(w), axes[pick(w, (int)KILN_LEN(axes))]);
}

static void step_distribute(walker *w) {
  kiln_text_printf(&w->line, "distribute %s like %s %d %d\n", some_loop(w), buffer_name(w),
                   1 + pick(w, 4), 1 + pick(w, 2));
}

static void step_replicate(walker *w) {
  kiln_text_printf(&w->line, "replicate %s %d\n", buffer_name(w), 2 + pick(w, 3));
}

// Of a buffer that has copies now.
static void step_use_copy(walker *w) {
  const char *buffer = buffer_name(w), *loop = some_loop(w);
  if (pick(w, 4)) kiln_text_printf(&w->line, "replicate %s 2\n", buffer);
  kiln_text_printf(&w->line, "use_copy %s %s ", loop, buffer);
  if (pick(w, 2)) kiln_text_printf(&w->line, "%d\n", pick(w, 3));
  else kiln_text_printf(&w->line, "%s%%2\n", loop);
}

static void step_pad(walker *w) {
  kiln_text_printf(&w->line, "pad %s %d\n", some_loop(w), 2 + pick(w, 4));
}

static void step_peel(walker *w) {
  kiln_text_printf(&w->line, "peel %s %d\n", some_loop(w), 1 + pick(w, 4));
}

// Often one with a condition in it.
static void step_hoist(walker *w) {
  int at = pick(w, w->n_loops);
  for (int n = 0; n < w->n_loops && w->loops[at]->body->kind != KILN_LOOP_IF; n++)
    at = (at + 1) % w->n_loops;
  kiln_text_printf(&w->line, "hoist %s\n", text_of(w, w->loops[at]->var));
}

static void step_unswitch(walker *w) { kiln_text_printf(&w->line, "unswitch %s\n", some_loop(w)); }

static const char *some_scope(walker *w) {
  static const char *const scopes[] = {"local", "local", "local", "register", "shared"};
  return scopes[pick(w, (int)KILN_LEN(scopes))];
}

// A loop that reads the buffer, if the first few that are tried do.
static int some_reader(walker *w, const char *buffer) {
  int at = pick(w, w->n_loops);
  for (int tries = 0; tries < 6; tries++, at = pick(w, w->n_loops)) {
    kiln_loop *l = kiln_loops_find(w->s->loops, w->loops[at]->var);
    for (int b = 0; b < w->s->loops->buffers.n; b++)
      if (strcmp(text_of(w, w->s->loops->buffers.data[b]->name), buffer) == 0 &&
          kiln_nest_uses(&w->k->cx, w->s->loops, l, b, false))
        return at;
  }
  return at;
}

static void step_compute_at(walker *w) {
  const char *b = computed(w), *loop = text_of(w, w->loops[some_reader(w, b)]->var);
  kiln_text_printf(&w->line, "compute_at %s %s %s\n", b, loop, some_scope(w));
}

static void step_compute_root(walker *w) {
  kiln_text_printf(&w->line, "compute_root %s\n", computed(w));
}

// Loops listed before one are often around it.
static void step_store_at(walker *w) {
  const char *b = computed(w);
  const int at = some_reader(w, b), outer = at > 0 ? at - 1 - pick(w, at < 3 ? at : 3) : 0;
  kiln_text_printf(&w->line, "compute_at %s %s local\n", b, text_of(w, w->loops[at]->var));
  kiln_text_printf(&w->line, "store_at %s %s%s\n", b, text_of(w, w->loops[outer]->var),
                   pick(w, 2) ? " fold" : "");
}

static void step_reverse_compute_at(walker *w) {
  const char *b = computed(w);
  kiln_text_printf(&w->line, "reverse_compute_at %s %s\n", b, some_loop(w));
}

static void step_decompose_reduction(walker *w) {
  const char *b = computed(w);
  kiln_text_printf(&w->line, "decompose_reduction %s %s\n", b, some_loop(w));
}

static void step_inline(walker *w) { kiln_text_printf(&w->line, "inline %s\n", computed(w)); }

// The maximum and sums of a softmax, and a weighted sum, in chunks or unsplit.
static void step_online_softmax(walker *w) {
  const int chunk = 1 + pick(w, 4), n = 2 + pick(w, 2);
  static const char *const results[] = {"M", "S", "C"};
  const char *loops[3];
  if (pick(w, 8)) kiln_text_add(&w->line, "inline E\n");
  for (int i = 0; i < n; i++) {
    loops[i] = new_name(w);
    kiln_text_printf(&w->line, "split %s.r0 %d guard %s %s\n", results[i], chunk, loops[i],
                     new_name(w));
    kiln_text_printf(&w->line, "reorder %s %s.i0\n", loops[i], results[i]);
  }
  kiln_text_printf(&w->line, "online_softmax %s", new_name(w));
  for (int i = 0; i < n; i++) kiln_text_printf(&w->line, " %s", loops[i]);
  kiln_text_add(&w->line, "\n");
}

static void step_rfactor(walker *w) {
  const char *loop = some_loop(w);
  kiln_text_printf(&w->line, "rfactor %s %s\n", loop, new_name(w));
}

static void step_stream_k(walker *w) {
  static const int counts[] = {1, 2, 3, 4, 6};
  const char *loop = some_loop(w), *names[4];
  for (size_t i = 0; i < KILN_LEN(names); i++) names[i] = new_name(w);
  kiln_text_printf(&w->line, "stream_k %s %d %s %s %s %s\n", loop,
                   counts[pick(w, (int)KILN_LEN(counts))], names[0], names[1], names[2], names[3]);
}

// All axes in random order; one may be split in two or rounded up.
static void put_axes(walker *w, const kiln_buffer *b) {
  char words[2 * KILN_MAX_RANK + 8][16];
  int n = 0;
  const int special = pick(w, 2 * b->rank), block = 2 + pick(w, 4), kind = pick(w, 3);
  for (int a = 0; a < b->rank && a < KILN_MAX_RANK; a++) {
    if (a != special) snprintf(words[n++], sizeof words[0], "%d", a);
    else if (kind == 0) snprintf(words[n++], sizeof words[0], "%d^%d", a, block);
    else snprintf(words[n++], sizeof words[0], "%d/%d", a, block);
    if (a == special && kind > 0) snprintf(words[n++], sizeof words[0], "%d%%%d", a, block);
  }
  for (int i = n - 1; i >= 0; i--) {
    const int j = pick(w, i + 1);
    kiln_text_printf(&w->line, " %s", words[j]);
    memcpy(words[j], words[i], sizeof words[0]);
  }
  kiln_text_add(&w->line, "\n");
}

static void step_cache_write(walker *w) {
  const kiln_buffer *b = some_buffer(w);
  kiln_text_printf(&w->line, "cache_write %s %s", text_of(w, b->name), new_name(w));
  if (pick(w, 2)) put_axes(w, b);
  else kiln_text_add(&w->line, "\n");
}

static void step_stage(walker *w) {
  const kiln_buffer *b = some_buffer(w);
  const bool whole = !pick(w, 3);
  const char *loop = whole ? "0" : some_loop(w);
  kiln_text_printf(&w->line, "stage %s %s %s %s", text_of(w, b->name), loop,
                   whole ? "workspace" : some_scope(w), new_name(w));
  put_axes(w, b);
}

static void step_transform_layout(walker *w) {
  const kiln_buffer *b = some_buffer(w);
  kiln_text_printf(&w->line, "transform_layout %s", text_of(w, b->name));
  put_axes(w, b);
}

static void step_view(walker *w) {
  const kiln_buffer *b = some_buffer(w);
  const int axis = pick(w, b->rank);
  int64_t block = 1 + pick(w, (int)b->extents[axis]);
  while (pick(w, 8) && b->extents[axis] % block != 0) block--;
  kiln_text_printf(&w->line, "view %s %d %" PRId64 "\n", text_of(w, b->name), axis, block);
}

static void step_storage_align(walker *w) {
  const kiln_buffer *b = some_buffer(w);
  kiln_text_printf(&w->line, "storage_align %s %d %d %d\n", text_of(w, b->name), pick(w, b->rank),
                   4 + pick(w, 5), pick(w, 3));
}

static void step_prefetch(walker *w) {
  const char *b = buffer_name(w), *loop = some_loop(w);
  kiln_text_printf(&w->line, "prefetch %s %s %d", b, loop, 1 + pick(w, 3));
  if (pick(w, 3) == 0) kiln_text_printf(&w->line, " %s", some_loop(w));
  kiln_text_add(&w->line, "\n");
}

static void step_specialize(walker *w) {
  const char *loop = some_loop(w);
  kiln_text_printf(&w->line, "specialize %s %s %s %d\n", loop, pick(w, 3) ? loop : some_loop(w),
                   pick(w, 2) ? "<" : "==", 1 + pick(w, 3));
}

// Few buffers are computed or copied in a loop, so one is often made.
static void step_pipeline(walker *w) {
  const char *loop = some_loop(w), *b = buffer_name(w);
  if (pick(w, 2)) {
    const kiln_buffer *of = some_buffer(w);
    b = new_name(w);
    kiln_text_printf(&w->line, "stage %s %s local %s", text_of(w, of->name), loop, b);
    put_axes(w, of);
  }
  const int depth = 2 + pick(w, 2);
  kiln_text_printf(&w->line, "pipeline %s %s %d%s\n", b, loop, depth,
                   depth == 3 && pick(w, 2) ? " 1" : "");
}

static void step_swizzle(walker *w) {
  const char *loop = some_loop(w), *b = buffer_name(w);
  if (pick(w, 2)) {
    const kiln_buffer *of = some_buffer(w);
    b = new_name(w);
    kiln_text_printf(&w->line, "stage %s %s shared %s", text_of(w, of->name), loop, b);
    put_axes(w, of);
  }
  kiln_text_printf(&w->line, "swizzle %s\n", b);
}

static void step_cluster(walker *w) {
  const char *loop = some_loop(w);
  if (pick(w, 2)) {
    const char *blocks = new_name(w);
    kiln_text_printf(&w->line, "split %s %d round %s %s\n", loop, 2 << pick(w, 3), new_name(w),
                     blocks);
    loop = blocks;
  }
  if (pick(w, 4)) kiln_text_printf(&w->line, "bind %s block.x\n", loop);
  kiln_text_printf(&w->line, "cluster %s %d\n", loop, 2 << pick(w, 3));
}

static void step_warp_specialize(walker *w) {
  const char *loop = some_loop(w);
  if (pick(w, 2)) kiln_text_printf(&w->line, "bind %s block.x\n", loop);
  kiln_text_printf(&w->line, "warp_specialize %s %d\n", loop, 1 + pick(w, 2));
}

static void step_fuse_horizontally(walker *w) {
  kiln_text_printf(&w->line, "fuse_horizontally %s\n", some_loop(w));
}

static void step_tidy(walker *w) { kiln_text_add(&w->line, "tidy\n"); }

// A loop of two iterations, innermost, of a product.
static void step_tensorize(walker *w) {
  const int v = pick(w, w->n_loops);
  const kiln_loop *inner = w->loops[v];
  while (inner->body && inner->body->kind == KILN_LOOP_FOR) inner = inner->body;
  const char *outer = new_name(w), *two = new_name(w);
  kiln_text_printf(&w->line, "split %s 2 %s %s %s\n", text_of(w, w->loops[v]->var),
                   pick(w, 2) ? "exact" : "peel", outer, two);
  if (inner != w->loops[v])
    kiln_text_printf(&w->line, "reorder %s %s\n", text_of(w, inner->var), two);
  kiln_text_printf(&w->line, "tensorize %s axpy2\n", two);
}

static const kiln_instr axpy2_row = {
    .name = "axpy2",
    .meaning =
        "def axpy2(float A, float(2) B, float(2) C) -> (D) { D(i) = C(i)  D(i) += A * B(i) }",
    .spelling = "none",
    .is_there = true};

typedef struct step {
  const char *name;
  void (*put)(walker *w);
  int weight, at_least; // |at_least|: times that it must be accepted in 20,000 cases
  int rare;             // its weight in the cases of rare steps, if that is another
} step;

static const step steps[N_STEPS] = {
    {"split", step_split, 6, 100, 0},
    {"tile", step_tile, 3, 100, 0},
    {"fuse", step_fuse, 2, 100, 0},
    {"reorder", step_reorder, 4, 100, 0},
    {"merge", step_merge, 4, 100, 30},
    {"parallel", step_parallel, 1, 100, 0},
    {"vectorize", step_vectorize, 1, 100, 0},
    {"unroll", step_unroll, 1, 100, 0},
    {"annotate", step_annotate, 1, 100, 0},
    {"bind", step_bind, 1, 100, 0},
    {"distribute", step_distribute, 1, 100, 0},
    {"replicate", step_replicate, 1, 100, 0},
    {"use_copy", step_use_copy, 2, 20, 0},
    {"pad", step_pad, 1, 100, 0},
    {"peel", step_peel, 1, 100, 0},
    {"hoist", step_hoist, 2, 100, 0},
    {"unswitch", step_unswitch, 2, 100, 0},
    {"compute_at", step_compute_at, 5, 100, 0},
    {"compute_root", step_compute_root, 1, 100, 0},
    {"store_at", step_store_at, 5, 100, 30},
    {"reverse_compute_at", step_reverse_compute_at, 5, 100, 0},
    {"decompose_reduction", step_decompose_reduction, 3, 100, 0},
    {"cache_write", step_cache_write, 2, 100, 0},
    {"inline", step_inline, 1, 100, 0},
    {"stage", step_stage, 4, 100, 0},
    {"transform_layout", step_transform_layout, 2, 100, 0},
    {"view", step_view, 1, 100, 0},
    {"storage_align", step_storage_align, 1, 100, 0},
    {"prefetch", step_prefetch, 1, 100, 0},
    {"specialize", step_specialize, 1, 100, 15},
    {"pipeline", step_pipeline, 3, 100, 30},
    {"swizzle", step_swizzle, 1, 30, 0},
    {"cluster", step_cluster, 1, 30, 0},
    {"warp_specialize", step_warp_specialize, 1, 30, 0},
    {"fuse_horizontally", step_fuse_horizontally, 1, 30, 10},
    {"online_softmax", step_online_softmax, 2, 30, 20},
    {"rfactor", step_rfactor, 3, 100, 0},
    {"stream_k", step_stream_k, 3, 100, 0},
    {"tidy", step_tidy, 1, 100, 0},
    {"tensorize", step_tensorize, 4, 30, 0},
};

static int weight_of(const walker *w, const step *s) {
  return w->is_rare && s->rare ? s->rare : s->weight;
}

static const step *some_step(walker *w) {
  int total = 0;
  for (size_t i = 0; i < KILN_LEN(steps); i++) total += weight_of(w, &steps[i]);
  int at = pick(w, total);
  for (size_t i = 0; i < KILN_LEN(steps); i++)
    if ((at -= weight_of(w, &steps[i])) < 0) return &steps[i];
  return &steps[0];
}

// --- cases ---

typedef struct test_case {
  char program[4096];
  uint64_t number, seed; // seed: of the data and the steps
  int n_lines;
  const char *lines[MAX_LINES]; // accepted
  bool left_out[MAX_LINES];
} test_case;

static void open_case(const test_case *c, test_kernel *k, kiln_schedule *s, kiln_instr *instr) {
  kernel_open(k, c->program, c->seed);
  *instr = axpy2_row;
  assert_int_equal(kiln_schedule_begin(&k->cx, k->prog, s), KILN_OK);
  s->instrs = instr;
  s->n_instrs = 1;
}

// Runs the lines of a step one by one, and stores those that are accepted.
static bool run_lines(walker *w, test_case *c) {
  bool any = false;
  for (char *line = w->line.data, *end; line && *line; line = end + 1) {
    end = strchr(line, '\n');
    if (c->n_lines == MAX_LINES) return any;
    const char *one = kiln_arena_strndup(&w->k->cx.perm, line, (size_t)(end - line));
    const kiln_status st = kiln_schedule_replay(w->s, one);
    if (st != KILN_OK && st != KILN_BAD_INPUT) {
      c->lines[c->n_lines++] = one;
      fail_msg("case %" PRIu64 ": %s\nprogram: %s\nscript:\n%s%s", c->number, kernel_message(w->k),
               c->program, kiln_schedule_script(w->s), one);
    }
    if (st != KILN_OK) return any;
    any = true;
    c->lines[c->n_lines++] = one;
    for (size_t i = 0; i < KILN_LEN(steps); i++)
      if (strncmp(one, steps[i].name, strcspn(one, " ")) == 0 &&
          steps[i].name[strcspn(one, " ")] == 0)
        w->accepted[i]++;
  }
  return any;
}

// Whether a step was tried and, if so, accepted in part at least.
static bool take_step(walker *w, test_case *c) {
  w->n_loops = 0;
  list_loops(w, w->s->loops->body);
  if (w->n_loops == 0) return false;
  kiln_text_init(&w->line, &w->k->cx.perm);
  some_step(w)->put(w);
  return run_lines(w, c);
}

static uint64_t mixed(uint64_t x) { // a hash, so that neighbouring cases differ
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static void choose_program(test_case *c, uint64_t *seed) {
  int64_t extents[4];
  const int n = (int)KILN_LEN(programs), p = pick_of(seed, 3 * n);
  for (int i = 0; i < 4; i++) extents[i] = 1 + kernel_random(seed) % 6;
  author a = {.seed = seed};
  if (p < n) instantiate(programs[p], extents, c->program, sizeof c->program);
  else memcpy(c->program, random_program(&a), sizeof c->program);
}

// Case |number|: its program, with the naive schedule. In one of four the rarer steps are frequent.
static walker begin_case(uint64_t number, test_case *c, test_kernel *k, kiln_schedule *s,
                         kiln_instr *instr) {
  *c = (test_case){.number = number, .seed = mixed(number)};
  uint64_t state = c->seed;
  choose_program(c, &state);
  open_case(c, k, s, instr);
  return (walker){.k = k, .s = s, .seed = state, .is_rare = number % 4 == 0};
}

#endif

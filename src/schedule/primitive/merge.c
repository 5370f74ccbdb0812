// merge: fuses two sibling loops; the second may run some iterations behind the first.
#include "schedule/legality.h"
#include "schedule/nest.h"

static kiln_loop *body_if(kiln_ctx *cx, const kiln_expr *cond, kiln_loop *body) {
  return kiln_expr_is_int(cond, NULL) ? body : kiln_if_make(cx, cond, body);
}

// A buffer that statements of |a| and |b| (neither inside of the other) both access and one writes;
// -1 if there is none.
static int shared_buffer(kiln_edit *e, kiln_loop *a, kiln_loop *b) {
  const kiln_accesses of_a = kiln_accesses_of(e->cx, e->l, a, false, -1);
  for (int i = 0; i < of_a.n; i++) {
    const int buffer = of_a.data[i].buffer;
    if (kiln_nest_uses(e->cx, e->l, b, buffer, true)) return buffer;
    if (of_a.data[i].write && kiln_nest_uses(e->cx, e->l, b, buffer, false)) return buffer;
  }
  return -1;
}

// The second loop moves to the first, before everything that stands between them.
static kiln_status check_between(kiln_edit *e, kiln_loop *first, kiln_loop *second) {
  for (kiln_loop *l = first->next; l && l != second; l = l->next) {
    const int buffer = shared_buffer(e, l, second);
    if (buffer >= 0)
      return kiln_refuse(e,
                         "statements between loops %s and %s must be independent of the order, got "
                         "one that shares buffer %s with the second: merge that before",
                         kiln_edit_text(e, first->var), kiln_edit_text(e, second->var),
                         kiln_edit_text(e, e->l->buffers.data[buffer]->name));
  }
  return KILN_OK;
}

static bool is_behind(const kiln_loop *l, const kiln_loop *first) {
  while (first && first != l) first = first->next;
  return first;
}

// Suggests how to make the loops siblings: their ancestors in one list can be merged first, unless
// a condition of an earlier shift is between.
static const char *remedy(kiln_edit *e, const kiln_loop *first, const kiln_loop *second) {
  kiln_loop *f[KILN_MAX_DEPTH], *g[KILN_MAX_DEPTH];
  const int n_f = kiln_nest_path(e->l, first, f), n_g = kiln_nest_path(e->l, second, g);
  int at = 0;
  while (at < n_f && at < n_g && f[at] == g[at]) at++;
  if (at == n_f || at == n_g) return ", got one in the other";
  const kiln_loop *a = f[at], *b = g[at];
  if (!is_behind(b, a->next)) return ", got it before that: name the one that stands first";
  if (a->kind == KILN_LOOP_IF || b->kind == KILN_LOOP_IF) return ", got one in a condition";
  const bool can =
      a != first && b != second && a->kind == KILN_LOOP_FOR && b->kind == KILN_LOOP_FOR;
  if (!can) return ", got one further inside";
  return kiln_arena_printf(&e->cx->perm, ": merge %s %s before", kiln_edit_word(e, a->var),
                           kiln_edit_word(e, b->var));
}

static kiln_status find_siblings(kiln_edit *e, kiln_loop *first, kiln_loop *second) {
  if (first != second && is_behind(second, first->next)) return KILN_OK;
  return kiln_refuse(e, "loop %s must stand behind loop %s in the same body%s",
                     kiln_edit_text(e, second->var), kiln_edit_text(e, first->var),
                     remedy(e, first, second));
}

// first: v < n; second: shift <= v < shift + n. Conditions that the merged range implies are left
// out. |var|: the name of the merged loop.
static void join(kiln_edit *e, kiln_loop *f, kiln_loop *g, int64_t n_f, int64_t n_g, int64_t shift,
                 kiln_symbol var) {
  kiln_ctx *cx = e->cx;
  const int64_t n = n_f > n_g + shift ? n_f : n_g + shift;
  const kiln_expr *v = kiln_var(cx, var), *yes = kiln_int_of(cx, KILN_BOOL, 1);
  const kiln_expr *before = kiln_binary(cx, KILN_EXPR_LT, v, kiln_int(cx, n_f));
  const kiln_expr *from = kiln_binary(cx, KILN_EXPR_GE, v, kiln_int(cx, shift));
  const kiln_expr *to = kiln_binary(cx, KILN_EXPR_LT, v, kiln_int(cx, n_g + shift));
  const kiln_expr *moved = kiln_sub(cx, v, kiln_int(cx, shift));
  kiln_loop **slot = kiln_nest_slot(e->l, g);
  *slot = g->next;
  if (moved != kiln_var(cx, g->var)) kiln_nest_substitute(cx, e->l, g->body, 1, &g->var, &moved);
  if (f->var != var) kiln_nest_substitute(cx, e->l, f->body, 1, &f->var, &v);
  f->var = var;
  kiln_loop *second = body_if(cx, n_g + shift < n ? to : yes, g->body);
  second = body_if(cx, shift > 0 ? from : yes, second);
  f->body = body_if(cx, n_f < n ? before : yes, f->body);
  *kiln_nest_end(&f->body) = second;
  f->extent = kiln_int(cx, n);
}

static kiln_status merge(kiln_schedule *s, kiln_symbol first, kiln_symbol second, int64_t shift,
                         bool keeps_second) {
  kiln_edit e = kiln_edit_begin(s, "merge", first);
  kiln_loop *f = NULL, *g = NULL;
  int64_t n_f = 0, n_g = 0, end = 0;
  KILN_TRY(kiln_edit_loop(&e, first, &f));
  KILN_TRY(kiln_edit_loop(&e, second, &g));
  if (shift < 0 || shift > INT32_MAX)
    return kiln_refuse(&e, "shift must be 0 or positive, got %" PRId64, shift);
  KILN_TRY(kiln_edit_serial(&e, f));
  KILN_TRY(kiln_edit_serial(&e, g));
  KILN_TRY(kiln_edit_extent(&e, f, &n_f));
  KILN_TRY(kiln_edit_extent(&e, g, &n_g));
  if (__builtin_add_overflow(n_g, shift, &end)) return kiln_refuse(&e, "extents must be smaller");
  KILN_TRY(find_siblings(&e, f, g));
  KILN_TRY(check_between(&e, f, g));
  KILN_TRY(kiln_check_merge(&e, f, g, shift));
  join(&e, f, g, n_f, n_g, shift, keeps_second ? second : first);
  const char *word = kiln_edit_word(&e, second);
  if (keeps_second)
    return kiln_edit_commit(&e, "merge %s %s %" PRId64 " second", kiln_edit_word(&e, first), word,
                            shift);
  if (shift == 0) return kiln_edit_commit(&e, "merge %s %s", kiln_edit_word(&e, first), word);
  return kiln_edit_commit(&e, "merge %s %s %" PRId64, kiln_edit_word(&e, first), word, shift);
}

kiln_status kiln_merge(kiln_schedule *s, kiln_symbol first, kiln_symbol second, int64_t shift) {
  return merge(s, first, second, shift, false);
}

kiln_status kiln_merge_into(kiln_schedule *s, kiln_symbol first, kiln_symbol second,
                            int64_t shift) {
  return merge(s, first, second, shift, true);
}

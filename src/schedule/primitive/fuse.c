// fuse: an outer loop and the only loop in it become one, with the same iterations in the same
// order.
#include "schedule/nest.h"

kiln_status kiln_fuse(kiln_schedule *s, kiln_symbol outer, kiln_symbol inner, kiln_symbol fused) {
  kiln_edit e = kiln_edit_begin(s, "fuse", outer);
  kiln_ctx *cx = e.cx;
  kiln_loop *o = NULL, *i = NULL;
  int64_t n_outer = 0, n_inner = 0, n = 0;
  KILN_TRY(kiln_edit_loop(&e, outer, &o));
  KILN_TRY(kiln_edit_loop(&e, inner, &i));
  KILN_TRY(kiln_edit_extent(&e, o, &n_outer));
  KILN_TRY(kiln_edit_extent(&e, i, &n_inner));
  KILN_TRY(kiln_edit_serial(&e, o));
  KILN_TRY(kiln_edit_serial(&e, i));
  KILN_TRY(kiln_edit_new_loop(&e, fused));
  if (__builtin_mul_overflow(n_outer, n_inner, &n))
    return kiln_refuse(&e, "extents must be smaller");
  kiln_loop **slot = &o->body; // conditions of the outer loop stay around the inner body
  while (*slot && (*slot)->kind == KILN_LOOP_IF && !(*slot)->next) slot = &(*slot)->body;
  if (*slot != i || i->next)
    return kiln_refuse(&e, "loop %s must be the only thing in loop %s: reorder them together",
                       kiln_edit_text(&e, inner), kiln_edit_text(&e, outer));
  *slot = i->body;
  const kiln_expr *f = kiln_var(cx, fused), *c = kiln_int(cx, n_inner);
  const kiln_symbol vars[] = {outer, inner};
  const kiln_expr *const values[] = {kiln_div(cx, f, c), kiln_mod(cx, f, c)};
  kiln_nest_substitute(cx, e.l, o->body, 2, vars, values);
  o->var = fused;
  o->extent = kiln_int(cx, n);
  return kiln_edit_commit(&e, "fuse %s %s %s", kiln_edit_word(&e, outer), kiln_edit_word(&e, inner),
                          kiln_edit_word(&e, fused));
}

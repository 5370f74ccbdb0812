// reverse: a loop's iterations in the opposite order.
#include "schedule/legality.h"
#include "schedule/nest.h"

kiln_status kiln_reverse(kiln_schedule *s, kiln_symbol loop) {
  kiln_edit e = kiln_edit_begin(s, "reverse", loop);
  kiln_loop *l = NULL;
  int64_t extent = 0;
  KILN_TRY(kiln_edit_loop(&e, loop, &l));
  KILN_TRY(kiln_edit_serial(&e, l));
  KILN_TRY(kiln_edit_extent(&e, l, &extent));
  KILN_TRY(kiln_check_parallel(&e, l)); // no iteration needs one before
  const kiln_expr *at = kiln_sub(e.cx, kiln_int(e.cx, extent - 1), kiln_var(e.cx, loop));
  kiln_nest_substitute(e.cx, e.l, l->body, 1, &loop, &at);
  return kiln_edit_commit(&e, "reverse %s", kiln_edit_word(&e, loop));
}

#include "rewrite/readers.h"

typedef struct readers {
  int *n, *last, stmt;
} readers;

static void count_reader(const kiln_expr *e, void *argument) {
  readers *r = argument;
  if (r->last[e->u.tensor] == r->stmt) return;
  r->last[e->u.tensor] = r->stmt;
  r->n[e->u.tensor]++;
}

int *kiln_readers_count(kiln_ctx *cx, const kiln_program *p) {
  readers r = {KILN_NEW_ARRAY(&cx->scratch, int, p->tensors.n),
               KILN_NEW_ARRAY(&cx->scratch, int, p->tensors.n), 0};
  for (int i = 0; i < p->stmts.n; i++) {
    r.stmt = i + 1;
    kiln_stmt_visit_loads(cx, p, p->stmts.data[i], count_reader, &r);
  }
  return r.n;
}

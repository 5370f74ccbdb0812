// Test support: the compiled nests of a loop program, run in order.
#ifndef KILN_TEST_UNIT_NESTS_H
#define KILN_TEST_UNIT_NESTS_H

#include "ir/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef void (*nest_fn)(char *const *args, int64_t begin, int64_t end);
typedef nest_fn (*nest_find)(void *from, int nest);

// Parallel loops run in two parts, as two threads do.
static inline void nests_run(const kiln_loops *l, nest_find find, void *from, char *const *args) {
  int nest = 0;
  for (const kiln_loop *outer = l->body; outer; outer = outer->next, nest++) {
    const nest_fn run = find(from, nest);
    assert_true(run != NULL);
    int64_t extent = 0;
    if (outer->kind == KILN_LOOP_FOR) (void)kiln_expr_is_int(outer->extent, &extent);
    const int64_t half = outer->how == KILN_PARALLEL ? extent / 2 : 0;
    if (half) run(args, 0, half);
    run(args, half, extent);
  }
}

#endif

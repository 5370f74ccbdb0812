// A rule at work: the schedule it builds and the kernel's shape in the terms in which rules think.
#ifndef KILN_TILE_RULES_H
#define KILN_TILE_RULES_H

#include "schedule/schedule.h"
#include "tile/tile.h"

typedef struct kiln_rule_work {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_machine *m;
  int n_threads;
  kiln_schedule s;
  const kiln_stmt *root; // the last statement; it writes y
  int lanes;             // f32 elements of a vector register
} kiln_rule_work;

kiln_symbol kiln_rule_loop(kiln_rule_work *w, const char *tensor, const char *part,
                           kiln_symbol dim); // "t0" "init." i0
kiln_symbol kiln_rule_name(kiln_rule_work *w, const char *suffix, kiln_symbol dim); // i0 -> "i0.o"
int64_t kiln_rule_extent(const kiln_stmt *s, int dim);
// Fuses the first loops of loops[0..n) until there is work for all threads, and runs the result in
// parallel.
//
// gives: *out_first, the loop that now stands for loops[0]; *out_n_fused, how many it swallowed
kiln_status kiln_rule_parallel(kiln_rule_work *w, int n, const kiln_symbol *loops,
                               const int64_t *extents, kiln_symbol *out_first, int *out_n_fused);
// A vector factor for a loop of |extent|: the largest of 4, 2, 1 registers of |t| that fits, or the
// extent itself below one.
int64_t kiln_rule_vector(const kiln_rule_work *w, int64_t extent, kiln_dtype t);

kiln_status kiln_rule_contraction(kiln_rule_work *w);
kiln_status kiln_rule_rows(kiln_rule_work *w);
kiln_status kiln_rule_map(kiln_rule_work *w);
kiln_status kiln_rule_plain(kiln_rule_work *w); // the naive loops, in parallel where that is legal
// Specializes the loops around reads through boundary maps for the tiles that touch no border, where
// these are most; a step behind any rule.
kiln_status kiln_rule_interior(kiln_rule_work *w);

#endif

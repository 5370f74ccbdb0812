// The simulator's state and its evaluation of scalar expressions. Private to target/sim.
#ifndef KILN_TARGET_SIM_EVAL_H
#define KILN_TARGET_SIM_EVAL_H

#include "analysis/interpret.h"
#include "ir/fold.h"
#include "target/sim/sim.h"

// A buffer at run time.
typedef struct sim_cell {
  const kiln_buffer *buffer;
  char *data;
  int64_t elems;
  uint8_t *written;         // [elems]; NULL: the caller wrote all
  int32_t *writer, *reader; // [elems]: the iteration of the parallel loop; NOBODY, SEVERAL
  bool alive;               // in its ALLOC
} sim_cell;
enum { SIM_NOBODY = -1, SIM_SEVERAL = -2 };

typedef struct sim {
  kiln_ctx *cx;
  const kiln_loops *l;
  const char *place;
  sim_cell *cells; // [buffers]
  int64_t *vars;   // [n_vars], by symbol
  uint32_t n_vars;
  int32_t iteration; // of the parallel loop; NOBODY outside
  kiln_status status;
} sim;

// The value of |e|; the first breach sets |status|, after which values do not matter. Half types
// are computed as f32.
kiln_constant kiln_sim_eval(sim *m, const kiln_expr *e);
int64_t kiln_sim_eval_index(sim *m, const kiln_expr *e);
// The element of |c| at |index|, checked; -1 after a breach.
int64_t kiln_sim_element(sim *m, const sim_cell *c, const kiln_expr *const *index);
kiln_constant kiln_sim_read(sim *m, sim_cell *c, int64_t element);
void kiln_sim_write(sim *m, sim_cell *c, int64_t element, kiln_constant value);
kiln_constant kiln_sim_binary(kiln_expr_kind k, kiln_constant a, kiln_constant b);
void kiln_sim_fail(sim *m, const char *format, ...) KILN_PRINTF(2, 3);

#endif

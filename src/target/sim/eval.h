// The simulator's state and its evaluation of scalar expressions. Private to target/sim.
#ifndef KILN_TARGET_SIM_EVAL_H
#define KILN_TARGET_SIM_EVAL_H

#include "analysis/interpret.h"
#include "ir/fold.h"
#include "target/sim/sim.h"

typedef struct sim_lanes sim_lanes;

// A buffer at run time.
typedef struct sim_cell {
  const kiln_buffer *buffer;
  char *data;
  int64_t elems;            // of one copy
  const sim_lanes *lanes;   // where it is allocated: each lane has a copy, one behind the other
  uint8_t *written;         // [copies][elems]; NULL: the caller wrote all
  int64_t *writer, *reader; // [copies][elems][max_depth]: stamps (see access.c)
  int64_t *lane_writer,
      *lane_reader;  // [copies][elems]: of the last lane; NULL: no loop is vectorized
  uint8_t *lane_how; // [copies][elems]: a combiner, or NONE where lanes did not only combine
  int depth;         // concurrent loops around its memory: each iteration has its own
  bool alive;        // in its ALLOC
  bool is_spread;    // memory of threads that is allocated outside of thread loops that use it
} sim_cell;

// A concurrent loop at run time. Its iterations have the stamps several + 1, several + 2, ...
typedef struct sim_concurrent {
  kiln_symbol var;
  kiln_how how;
  int64_t extent, several, stamp;
} sim_concurrent;

// What a lane is about to store.
typedef struct sim_pending {
  kiln_constant value;
  int64_t element;
  bool is_nothing; // a copy of what nobody wrote
} sim_pending;

// The iterations that run at once, statement by statement: those of a vectorized loop, else one.
struct sim_lanes {
  kiln_symbol var;      // 0: there is no loop
  int64_t n, at;        // |at|: the lane that computes
  int64_t stamp;        // of lane 0
  uint8_t *on;          // [n]: that run the statement
  sim_pending *pending; // [n]
};

// The value of an index without loads in an iteration of the innermost loop that it depends on.
typedef struct sim_value {
  const kiln_expr *e;
  int level;
  int64_t turn, value;
} sim_value;

// The elements that an access of the text touches while its innermost loop runs.
typedef struct sim_walk {
  const kiln_expr *const *index; // the place, with |cell|
  const sim_cell *cell;
  kiln_symbol var; // of the loop
  int level;
  int64_t turn;        // of the loop around it
  bool is_even;        // the elements of all its iterations are |step| apart, and exist
  int64_t first, step; // the first iteration's
} sim_walk;

typedef struct sim_meter sim_meter;

typedef struct sim sim;
struct sim {
  kiln_ctx *cx;
  const kiln_loops *l;
  const char *place;
  sim_cell *cells;   // [buffers]
  int64_t *vars;     // [n_vars], by symbol
  sim_value *values; // [SIM_VALUES] the last of each place, by node; NULL: none are kept
  int *levels;       // [n_vars] loops around each variable's, that one included
  int64_t *turns;    // [levels] the one that runs: every iteration of every loop has another number
  kiln_symbol *inner; // [levels] the loops that run
  int64_t *extents;   // [levels] their iterations; 0: lanes
  sim_walk *walks;    // [SIM_WALKS] the last of each place; NULL: none are kept
  int level;
  int64_t n_turns;
  uint32_t n_vars;
  sim_lanes *lanes;
  bool has_vectors;
  int depth, max_depth;
  sim_concurrent *around; // [max_depth] the concurrent loops that run, outermost first
  int64_t next_stamp;
  int64_t threads[3]; // of a block of the nest that runs, along x, y, z
  int in_warp;        // loops around that a warp's instruction became
  sim_meter *meter;   // NULL: nothing is counted
  kiln_map *
      known; // values by node, while an expression with a long tree is evaluated: each is computed once; NULL
  kiln_constant (*load)(sim *m, const kiln_expr *e); // what loads are, in the place of cells; NULL
  kiln_status status;
};

// The value of |e|; the first breach sets |status|, after which values do not matter. Half types
// are computed as f32.
kiln_constant kiln_sim_eval(sim *m, const kiln_expr *e);
int64_t kiln_sim_eval_index(sim *m, const kiln_expr *e);
// The element of |c| at |index|, checked; -1 after a breach.
int64_t kiln_sim_element(sim *m, const sim_cell *c, const kiln_expr *const *index);
// access.c
kiln_constant kiln_sim_read(sim *m, sim_cell *c, int64_t element);
void kiln_sim_write(sim *m, sim_cell *c, int64_t element, kiln_constant value);
// Combines |value| into an element that all lanes combine into.
void kiln_sim_reduce(sim *m, sim_cell *c, int64_t element, kiln_combiner how, kiln_constant value);
// Copies an element that nobody wrote: |to| counts as unwritten.
void kiln_sim_move_nothing(sim *m, sim_cell *to, int64_t element);
void kiln_sim_note_read(sim *m, sim_cell *c, int64_t element);
// Checks that memory of a thread or a block lies inside of the block loops in which it is used.
void kiln_sim_check_place(sim *m, const sim_cell *c);
// Checks that the element of a distributed buffer is of the thread that runs.
void kiln_sim_check_owner(sim *m, const sim_cell *c, int64_t element);
// The first element of the copy that the lane which runs has; 0: there is one copy.
int64_t kiln_sim_own_copy(const sim *m, const sim_cell *c);

// values.c
kiln_constant kiln_sim_combine(sim *m, kiln_combiner how, kiln_constant a, kiln_constant b);
kiln_constant kiln_sim_binary(sim *m, kiln_expr_kind k, kiln_constant a, kiln_constant b);
kiln_constant kiln_sim_no_value(sim *m, kiln_expr_kind k, kiln_dtype t); // fails
// cache.c: the meter lies in the scratch arena, the counts of |out| in the perm arena.
sim_meter *kiln_sim_meter_make(kiln_ctx *cx, const kiln_loops *l, int n_levels,
                               const kiln_sim_level *levels, kiln_sim_traffic *out);
void kiln_sim_meter_count(sim_meter *t, const kiln_buffer *b, int64_t element, bool is_write);
// The two halves of it: bytes that statements move, and an access of the caches.
void kiln_sim_meter_add(sim_meter *t, const kiln_buffer *b, int64_t bytes, bool is_write);
void kiln_sim_meter_touch(sim_meter *t, int64_t address, int64_t bytes, bool is_write);
int64_t kiln_sim_meter_base(const sim_meter *t,
                            const kiln_buffer *b); // its first element's address
void kiln_sim_meter_flush(sim_meter *t);           // writes back what is dirty
uint32_t kiln_sim_n_vars(const kiln_loops *l); // behind the last symbol that is a loop's variable
enum { SIM_WALKS = 1024 };
// Keeps values of indices from now on; loops say where they begin, turn and end.
void kiln_sim_keep_values(sim *m, int n_levels);
// |extent|: of its iterations; 0: they are lanes.
void kiln_sim_begin_loop(sim *m, kiln_symbol var, int64_t extent);
void kiln_sim_turn(sim *m, kiln_symbol var, int64_t i);
void kiln_sim_end_loop(sim *m);
void kiln_sim_fail(sim *m, const char *format, ...) KILN_PRINTF(2, 3);

#endif

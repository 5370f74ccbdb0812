// The simulator's state and its evaluation of scalar expressions. Private to target/sim.
#ifndef KILN_TARGET_SIM_EVAL_H
#define KILN_TARGET_SIM_EVAL_H

#include "analysis/interpret.h"
#include "ir/fold.h"
#include "target/sim/sim.h"

typedef struct sim_lanes sim_lanes;

// A buffer of the simulated run.
typedef struct sim_cell {
  const kiln_buffer *buffer;
  char *data;
  int64_t elems;            // of one copy
  const sim_lanes *lanes;   // at its ALLOC: each lane has a contiguous copy
  uint8_t *written;         // [copies][elems]; NULL: the caller has written all
  int64_t *writer, *reader; // [copies][elems][max_depth]: stamps (see access.c)
  int64_t *lane_writer,
      *lane_reader;  // [copies][elems]: the last lane; NULL: no loop is vectorized
  uint8_t *lane_how; // [copies][elems]: a combiner, or NONE if a lane did another access
  int depth;         // concurrent loops around its allocation, each iteration of which has a copy
  bool alive;        // inside of its ALLOC
  bool is_spread;    // distributed over threads: allocated outside of the thread loops that use it
} sim_cell;

// A running concurrent loop. Its iterations have the stamps several + 1, several + 2, ...
typedef struct sim_concurrent {
  kiln_symbol var;
  kiln_how how;
  int64_t extent, several, stamp;
} sim_concurrent;

// The pending store of a lane.
typedef struct sim_pending {
  kiln_constant value;
  int64_t element;
  bool is_nothing; // a copy of an unwritten element
} sim_pending;

// The iterations that run in lock step: the lanes of a vectorized loop, or a single one.
struct sim_lanes {
  kiln_symbol var;      // 0: there is no loop
  int64_t n, at;        // |at|: the current lane
  int64_t stamp;        // of lane 0
  uint8_t *on;          // [n]: active lanes
  sim_pending *pending; // [n]
};

// The value of an index without loads, in an iteration of the innermost loop that it depends on.
typedef struct sim_value {
  const kiln_expr *e;
  int level;
  int64_t turn, value;
} sim_value;

// The elements that an access addresses as its innermost loop runs.
typedef struct sim_walk {
  const kiln_expr *const *index; // identifies the access, with |cell|
  const sim_cell *cell;
  kiln_symbol var; // of the loop
  int level;
  int64_t turn;        // of the loop around it
  bool is_even;        // the elements of all iterations have the stride |step|, and exist
  int64_t first, step; // |first|: of the first iteration
} sim_walk;

// The elements that an access addresses along a row: |n| of them, |step| apart.
typedef struct sim_run {
  int64_t first, step, n;
} sim_run;

// A load of a row: its buffer, and how its indices change from one point to the next.
typedef struct sim_row_load {
  int buffer, rank;
  const kiln_expr *const *index;
  int64_t steps[KILN_MAX_RANK + 4];
} sim_row_load;

// The value of a store as a list of operators, each of whose operands stand in front of it: row.c.
enum { SIM_ROW_LOADS = 6, SIM_ROW_NODES = 24, SIM_ROW_POINTS = 64 };
typedef struct sim_row_node {
  const kiln_expr *e;
  int a, b, load; // operands by number; of a load, its number; -1: there is none
  bool is_even;   // a scalar, the same at all points
} sim_row_node;
typedef struct sim_row {
  const kiln_loop *store;
  const kiln_expr *value; // of the store, where it chose
  kiln_symbol var;
  int n_nodes, n_loads;
  sim_row_load to, loads[SIM_ROW_LOADS];
  sim_row_node nodes[SIM_ROW_NODES];
} sim_row;

typedef struct sim_meter sim_meter;

typedef struct sim sim;
struct sim {
  kiln_ctx *cx;
  const kiln_loops *l;
  const char *place;
  sim_cell *cells;   // [buffers]
  int64_t *vars;     // [n_vars], by symbol
  sim_value *values; // [SIM_VALUES] a cache, by node; NULL: not cached
  int *levels;       // [n_vars] loops around each variable's loop, including that one
  int64_t *turns; // [levels] the current iteration; numbers of iterations are unique over all loops
  kiln_symbol *inner; // [levels] variables of the running loops
  int64_t *extents;   // [levels] their extents; 0: lanes
  sim_walk *walks;    // [SIM_WALKS] a cache; NULL: not cached
  int level;
  int64_t n_turns;
  uint32_t n_vars;
  sim_lanes *lanes;
  bool has_vectors;
  int depth, max_depth;
  sim_concurrent *around; // [max_depth] the running concurrent loops, outermost first
  int64_t next_stamp;
  int64_t threads[3]; // of a block of the current nest, along x, y, z
  int in_warp;        // number of enclosing loops that replace a warp's instruction
  sim_meter *meter;   // NULL: traffic is not counted
  kiln_map rows;      // by store, value and variable: its sim_row; 0: it has none
  // values by node, while an expression with a large tree is evaluated; NULL
  kiln_map *known;
  kiln_arena *values_of;                             // its values
  kiln_constant (*load)(sim *m, const kiln_expr *e); // evaluates loads, in place of cells; NULL
  kiln_status status;
};

// The value of |e|. The first error sets |status|; values after it are arbitrary. Half types are
// computed as f32.
kiln_constant kiln_sim_eval(sim *m, const kiln_expr *e);
int64_t kiln_sim_eval_index(sim *m, const kiln_expr *e);
// The element of |c| at |index|, checked; -1 after an error.
int64_t kiln_sim_element(sim *m, const sim_cell *c, const kiln_expr *const *index);
// Whether |e| changes by a constant, |*out|, per step of |var|.
bool kiln_sim_step_of(const kiln_expr *e, kiln_symbol var, int64_t *out);
// |a| as |t|; half types are computed as f32.
kiln_constant kiln_sim_convert(kiln_dtype t, kiln_constant a);
kiln_constant kiln_sim_bits(const kiln_expr *e, kiln_constant a);
// access.c
kiln_constant kiln_sim_read(sim *m, sim_cell *c, int64_t element);
void kiln_sim_write(sim *m, sim_cell *c, int64_t element, kiln_constant value);
// Combines |value| into an element in a reduction over lanes.
void kiln_sim_reduce(sim *m, sim_cell *c, int64_t element, kiln_combiner how, kiln_constant value);
// Copies an unwritten element: |to| becomes unwritten.
void kiln_sim_move_nothing(sim *m, sim_cell *to, int64_t element);
void kiln_sim_note_read(sim *m, sim_cell *c, int64_t element);
// Checks that private or shared memory is allocated inside of the block loops that use it.
void kiln_sim_check_place(sim *m, const sim_cell *c);
// Checks that the element of a distributed buffer belongs to the current thread.
void kiln_sim_check_owner(sim *m, const sim_cell *c, int64_t element);
// Whether nothing is wrong with an access of the elements |r| of |c|, which are those of lanes if
// there are several; a read's too, where it |reads|. Says nothing; changes nothing.
bool kiln_sim_may_touch(const sim *m, const sim_cell *c, sim_run r, bool reads);
// Reads them all, which may be done: their values to |out|.
void kiln_sim_read_run(sim *m, sim_cell *c, sim_run r, kiln_constant *out);
// The first element of the current lane's copy; 0 if there is one copy.
int64_t kiln_sim_own_copy(const sim *m, const sim_cell *c);

// row.c
// The row of |store| with |value|, to a buffer of |rank|, along |var|; NULL: it has none.
const sim_row *kiln_sim_row_find(sim *m, const kiln_loop *store, const kiln_expr *value, int rank,
                                 kiln_symbol var);
// The value at each of |n| points, with what the loads gave.
void kiln_sim_row_values(sim *m, const sim_row *r, int n, kiln_constant (*loaded)[SIM_ROW_POINTS],
                         kiln_constant *out);
// Combines |n| values into |*sum|, one behind the other.
void kiln_sim_row_combine(sim *m, kiln_combiner how, int64_t n, const kiln_constant *v,
                          kiln_constant *sum);
// Runs |store| for all |n| points of |var|: iterations of the loop around it, or lanes. False where
// they must be run one by one, or something is wrong with them: nothing is done then.
bool kiln_sim_run_row(sim *m, const kiln_loop *store, kiln_symbol var, int64_t n);

// values.c
kiln_constant kiln_sim_combine(sim *m, kiln_combiner how, kiln_constant a, kiln_constant b);
kiln_constant kiln_sim_binary(sim *m, kiln_expr_kind k, kiln_constant a, kiln_constant b);
kiln_constant kiln_sim_no_value(sim *m, kiln_expr_kind k, kiln_dtype t); // fails
// cache.c: the meter is in the scratch arena, the counts of |out| in the perm arena.
sim_meter *kiln_sim_meter_make(kiln_ctx *cx, const kiln_loops *l, int n_levels,
                               const kiln_sim_level *levels, kiln_sim_traffic *out);
void kiln_sim_meter_count(sim_meter *t, const kiln_buffer *b, int64_t element, bool is_write);
// Its two parts: counting bytes that statements move, and accessing the caches.
void kiln_sim_meter_add(sim_meter *t, const kiln_buffer *b, int64_t bytes, bool is_write);
void kiln_sim_meter_touch(sim_meter *t, int64_t address, int64_t bytes, bool is_write);
int64_t kiln_sim_meter_base(const sim_meter *t,
                            const kiln_buffer *b); // its first element's address
void kiln_sim_meter_flush(sim_meter *t);           // writes back dirty lines
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

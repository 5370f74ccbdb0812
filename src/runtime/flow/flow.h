// Flow: a module whose plan has parts, each an ordinary plan, that steps run in order, some of them
// repeatedly. What parts pass to one another are values: inputs and outputs of the module, and
// buffers in the arena.
//
//     0 run part 0: input 0 -> buffer 2                    before the loop
//     1 copy: input 1 -> buffer 3                          the first state
//     2 loop: count buffer 2, exchanges buffers 3 and 4
//     3   run part 1: buffer 3, input 0[row] -> buffer 4, output 0[row]
//     4 end of 2
//
// Its blob replaces the plan's in a module, and is checked in the same way.
#ifndef KILN_RUNTIME_FLOW_H
#define KILN_RUNTIME_FLOW_H

#include "runtime/plan.h"

enum { KILN_FLOW_VERSION = 1, KILN_FLOW_DEPTH = 16 };

typedef enum kiln_flow_op {
  KILN_FLOW_RUN,  // runs |part|: args are its inputs, then its outputs
  KILN_FLOW_COPY, // copies args[0] to args[1]
  // Begins a loop, up to the END of the same depth. After each iteration, args[0] and args[1],
  // args[2] and args[3], ... exchange their memory: a state, and what it will be.
  KILN_FLOW_LOOP,
  KILN_FLOW_END,
  KILN_FLOW_IF, // runs the steps up to the ELSE of the same depth if |condition| holds, else those
                // from there up to the ENDIF
  KILN_FLOW_ELSE,
  KILN_FLOW_ENDIF,
  KILN_N_FLOW_OPS
} kiln_flow_op;

typedef struct kiln_flow_arg {
  uint32_t value;
  uint32_t row;       // 0: the whole value; otherwise 1 + the loop whose iteration is the row
  uint32_t backwards; // 1: the last row first
} kiln_flow_arg;

typedef struct kiln_flow_step {
  kiln_flow_op op;
  uint32_t part;
  uint32_t first_arg, n_args; // in args
  // Of a LOOP, 0: none, otherwise 1 + a value of one element:
  uint32_t count;     // i64, the iterations, read at the begin
  uint32_t condition; // bool, whether another iteration runs, read before each; also of an IF
  uint32_t iteration; // i64, written before each
  uint32_t made;      // i64, the number of iterations, written at the end
  int64_t most;       // iterations; another one is an error where |is_limit|, else the end
  uint32_t is_limit;
  const char *place; // the node, for messages
} kiln_flow_step;

typedef struct kiln_flow_value {
  const char *name;
  const kiln_type *type;
  int32_t rank;
  int64_t shape[KILN_PORT_MAX_RANK];
  uint64_t bytes;  // computed by the reader
  uint64_t offset; // of a buffer, in the arena
} kiln_flow_value;

// The shape of an output that only the run knows: that of output |output| of part |part| - 1; 0:
// the shape is static.
typedef struct kiln_flow_shape {
  uint32_t part, output;
} kiln_flow_shape;

typedef struct kiln_flow_part {
  const void *plan; // a blob of its own
  uint64_t plan_bytes;
} kiln_flow_part;

typedef struct kiln_flow {
  uint32_t n_inputs, n_outputs, n_values, n_parts, n_steps, n_args;
  uint64_t arena_bytes;    // of the parts, which share it, and of the buffers behind
  kiln_flow_value *values; // inputs, outputs, buffers
  kiln_flow_shape *shapes; // [n_outputs]
  kiln_flow_part *parts;
  kiln_flow_step *steps;
  kiln_flow_arg *args;
  void *text; // reader: the copy of the blob that strings and plans point into
} kiln_flow;

bool kiln_flow_is(const void *blob, size_t bytes); // whether |blob| has the magic number
// gives: *out, malloc'ed; NULL if memory ran out
void kiln_flow_write(const kiln_flow *f, void **out, size_t *out_bytes);
// gives: *out, to be freed by kiln_flow_deinit; zeroed on failure
// errors: KILN_BAD_INPUT with |place| and the byte, KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_flow_read(const void *blob, size_t bytes, const char *place,
                                         kiln_diag *diag, kiln_flow *out);
void kiln_flow_deinit(kiln_flow *f);
// Whether |plans|, [n_parts], have the ports that the steps give them.
bool kiln_flow_suits(const kiln_flow *f, const kiln_plan *const *plans);

#endif

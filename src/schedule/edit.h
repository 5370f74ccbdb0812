// The transaction of a primitive: it edits a copy of the loops, which replaces them only if the
// edit succeeds and the checks of the whole program pass.
#ifndef KILN_SCHEDULE_EDIT_H
#define KILN_SCHEDULE_EDIT_H

#include "analysis/simplify.h"
#include "schedule/schedule.h"

#define KILN_MAX_AXES (KILN_MAX_RANK + 4)

typedef struct kiln_edit {
  kiln_schedule *s;
  kiln_ctx *cx;
  kiln_loops *l;      // a copy; becomes the schedule's loops when the edit is committed
  const char *place;  // of messages: "schedule: split Y.i0"
  kiln_ranges ranges; // of all loop variables, which are unique in a program
} kiln_edit;

// A copy of |l| where the schedule has its copies.
kiln_loops *kiln_schedule_copy(kiln_schedule *s, const kiln_loops *l);
kiln_edit kiln_edit_begin(kiln_schedule *s, const char *primitive, kiln_symbol subject);
// Tidies the copy, makes it the schedule's loops and appends a line to the script.
kiln_status kiln_edit_commit(kiln_edit *e, const char *format, ...) KILN_PRINTF(2, 3);
// Gives KILN_BAD_INPUT with a message; the loops stay as they were.
kiln_status kiln_refuse(const kiln_edit *e, const char *format, ...) KILN_PRINTF(2, 3);
kiln_status kiln_edit_loop(kiln_edit *e, kiln_symbol name, kiln_loop **out);
kiln_status kiln_edit_buffer(kiln_edit *e, kiln_symbol name, kiln_buffer **out);
kiln_status kiln_edit_extent(kiln_edit *e, const kiln_loop *loop, int64_t *out); // a constant
kiln_status kiln_edit_serial(kiln_edit *e, const kiln_loop *loop);
// Refuses vectorized loops around |node|, and itself: a vector loop holds no loops and buffers.
kiln_status kiln_edit_scalar(kiln_edit *e, const kiln_loop *node);
kiln_status kiln_edit_new_loop(kiln_edit *e, kiln_symbol name); // must not be taken
kiln_status kiln_edit_new_buffer(kiln_edit *e, kiln_symbol name);
const char *kiln_edit_text(const kiln_edit *e, kiln_symbol s);
kiln_expr_names kiln_edit_names(const kiln_edit *e); // of the buffers, for texts of expressions
// The name as a word of a script: quoted where it would not read back bare.
const char *kiln_edit_word(const kiln_edit *e, kiln_symbol s);

// Collects the ranges of all loops anew, after loops have been made or changed.
void kiln_edit_measure(kiln_edit *e);
const kiln_expr *kiln_edit_simplify(kiln_edit *e, const kiln_expr *x);

// --- limits.c: how large a program may become ---

// Refuses a buffer that is too large: of one that lives in a loop it is a thread's stack.
kiln_status kiln_edit_size(const kiln_edit *e, const kiln_buffer *b);
// Refuses extents whose product no memory holds, before a buffer is made of them.
kiln_status kiln_edit_extents(const kiln_edit *e, kiln_symbol name, int rank,
                              const int64_t *extents);
kiln_status kiln_edit_reshape(const kiln_edit *e, kiln_buffer *b, int rank,
                              const int64_t *extents); // row-major; the same
// Checks the whole program: the depth of loops, and the memory that lives in one nest.
kiln_status kiln_check_limits(const kiln_edit *e);

// --- bind.c ---

// Checks the whole program: an axis is bound once in a nest, no block loop lies in a thread loop,
// and no bound loop uses memory of one thread (of one block, for block loops) that it does not
// hold.
kiln_status kiln_check_bound(kiln_edit *e);

// --- tensorize.c ---

// Checks the whole program: the operands of instructions still lie as their spellings want them.
kiln_status kiln_check_instrs(kiln_edit *e);

// --- pad.c ---

// kiln_pad without its line of the script.
kiln_status kiln_pad_loop(kiln_edit *e, kiln_loop *loop, int64_t factor);

#endif

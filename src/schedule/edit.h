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
  kiln_loops *l;      // a copy, which becomes the schedule's loops when the edit is committed
  const char *place;  // of messages: "schedule: split Y.i0"
  kiln_ranges ranges; // of all loop variables; a variable is unique in a program
} kiln_edit;

// A copy of |l| in the arena of the schedule's copies.
kiln_loops *kiln_schedule_copy(kiln_schedule *s, const kiln_loops *l);
kiln_edit kiln_edit_begin(kiln_schedule *s, const char *primitive, kiln_symbol subject);
// Tidies the copy, checks the whole program, makes the copy the schedule's loops and appends a line
// to the script.
kiln_status kiln_edit_commit(kiln_edit *e, const char *format, ...) KILN_PRINTF(2, 3);
// Reports the message as KILN_BAD_INPUT; the schedule keeps its loops.
kiln_status kiln_refuse(const kiln_edit *e, const char *format, ...) KILN_PRINTF(2, 3);
kiln_status kiln_edit_loop(kiln_edit *e, kiln_symbol name, kiln_loop **out);
kiln_status kiln_edit_buffer(kiln_edit *e, kiln_symbol name, kiln_buffer **out);
kiln_status kiln_edit_extent(kiln_edit *e, const kiln_loop *loop, int64_t *out); // a constant
kiln_status kiln_edit_serial(kiln_edit *e, const kiln_loop *loop);
// Requires that neither |node| nor a loop around it is vectorized: a vector loop may hold no loops
// and buffers.
kiln_status kiln_edit_scalar(kiln_edit *e, const kiln_loop *node);
kiln_status kiln_edit_new_loop(kiln_edit *e, kiln_symbol name); // must not be taken
kiln_status kiln_edit_new_buffer(kiln_edit *e, kiln_symbol name);
const char *kiln_edit_text(const kiln_edit *e, kiln_symbol s);
kiln_expr_names kiln_edit_names(const kiln_edit *e); // print buffers by name
// The name as a word of a script, quoted if it would not parse bare.
const char *kiln_edit_word(const kiln_edit *e, kiln_symbol s);

// Several primitives as one step of the script: all of them or none.
typedef struct kiln_steps {
  kiln_loops before;
  int n_script;
  const char *where;
} kiln_steps;
// Until the end, messages begin with |e|'s place.
kiln_steps kiln_steps_begin(const kiln_edit *e);
// Puts one line in the place of the steps' lines, or undoes them where |st| is a failure; gives
// |st|.
kiln_status kiln_steps_end(const kiln_edit *e, const kiln_steps *steps, kiln_status st,
                           const char *format, ...) KILN_PRINTF(4, 5);

// Computes the ranges of all loop variables again, after loops were made or changed.
void kiln_edit_measure(kiln_edit *e);
const kiln_expr *kiln_edit_simplify(kiln_edit *e, const kiln_expr *x);

// --- limits.c: limits on the size of programs ---

// Refuses a buffer that is too large; one that lives in a loop is on a thread's stack.
kiln_status kiln_edit_size(const kiln_edit *e, const kiln_buffer *b);
// Refuses extents whose product exceeds any memory, before a buffer of that shape is made.
kiln_status kiln_edit_extents(const kiln_edit *e, kiln_symbol name, int rank,
                              const int64_t *extents);
kiln_status kiln_edit_reshape(const kiln_edit *e, kiln_buffer *b, int rank,
                              const int64_t *extents); // row-major; the same
// Checks the whole program: depth of loops, and bytes of the buffers that live in one nest.
kiln_status kiln_check_limits(const kiln_edit *e);

// --- pad.c ---

// kiln_pad without its line of the script.
kiln_status kiln_pad_loop(kiln_edit *e, kiln_loop *loop, int64_t factor);

#endif

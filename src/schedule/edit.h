// What the primitives share: an edit of a copy of the loops, which replaces them only when it
// succeeds; walks over nests; and the index analysis behind legality and boxes.
#ifndef KILN_SCHEDULE_EDIT_H
#define KILN_SCHEDULE_EDIT_H

#include "analysis/simplify.h"
#include "schedule/schedule.h"

#define KILN_MAX_AXES (KILN_MAX_RANK + 4)

// --- edit.c: the transaction ---

typedef struct kiln_edit {
  kiln_schedule *s;
  kiln_ctx *cx;
  kiln_loops *l;      // a copy; becomes the schedule's loops when the edit is committed
  const char *place;  // of messages: "schedule: split Y.i0"
  kiln_ranges ranges; // of all loop variables, which are unique in a program
} kiln_edit;

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
// The name as a word of a script: quoted where it would not read back bare.
const char *kiln_edit_word(const kiln_edit *e, kiln_symbol s);
// The nearest of the names offered to a word that is none of them, for messages.
typedef struct kiln_nearest {
  const char *word;
  const char *name; // NULL: none is near
  int distance;
} kiln_nearest;
void kiln_nearest_offer(kiln_nearest *n, const char *name);
const char *kiln_nearest_text(kiln_ctx *cx, const kiln_nearest *n); // ": did you mean ...?", or ""

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

// --- nest.c: walks ---

// One use of a buffer by a statement. |opaque|: an instruction's operand, of which only the first
// element is known.
typedef struct kiln_access {
  int buffer;
  int n;
  const kiln_expr *const *index;
  bool write, opaque;
  kiln_combiner combiner; // of a write
  kiln_loop *node;
} kiln_access;
typedef struct kiln_accesses {
  kiln_access *data;
  int n, cap;
} kiln_accesses;

// The uses under |first| and, if |siblings|, the nodes that follow it; of all buffers, or only of
// |buffer| when it is not negative. Lives in perm.
kiln_accesses kiln_accesses_of(kiln_ctx *cx, const kiln_loops *l, kiln_loop *first, bool siblings,
                               int buffer);
bool kiln_nest_uses(kiln_ctx *cx, const kiln_loops *l, kiln_loop *node, int buffer, bool writes);
// The nodes above |node| and itself, from the outside; 0 when it is not there.
enum { KILN_MAX_DEPTH = 128 };
int kiln_nest_path(const kiln_loops *l, const kiln_loop *node, kiln_loop **out);
kiln_loop **kiln_nest_slot(kiln_loops *l, const kiln_loop *node); // where it hangs
void kiln_nest_map(kiln_ctx *cx, const kiln_loops *l, kiln_loop *first, kiln_expr_map map,
                   void *argument); // rewrites all expressions of |first| and its siblings
void kiln_nest_substitute(kiln_ctx *cx, const kiln_loops *l, kiln_loop *first, int n,
                          const kiln_symbol *vars, const kiln_expr *const *values);
// The elements of a buffer move: index |index| of |from| becomes |out| of |to|, which has |rank| axes.
typedef struct kiln_reindexing {
  int from, to, rank;
  void (*move)(kiln_ctx *cx, const void *argument, const kiln_expr *const *index,
               const kiln_expr **out);
  const void *argument;
} kiln_reindexing;
// A kiln_expr_map of LOADs; |argument| is a kiln_reindexing.
const kiln_expr *kiln_reindex_load(kiln_ctx *cx, const kiln_expr *e, void *argument);
// Rewrites all uses under |first| and its siblings, while the buffer still has its old rank.
void kiln_nest_reindex(kiln_ctx *cx, const kiln_loops *l, kiln_loop *first, kiln_reindexing *r);
kiln_loop **kiln_nest_end(kiln_loop **list); // the NULL at the end
// The first node of |list| that reads |buffer|, looked for inside of an ALLOC that holds all that
// do; the end if none does.
kiln_loop **kiln_nest_first_use(kiln_ctx *cx, kiln_loops *l, kiln_loop **list, int buffer);
// The ALLOC of |buffer| under |first| or a sibling of it; NULL when there is none.
kiln_loop *kiln_nest_find_alloc(kiln_loop *first, int buffer);
bool kiln_nest_allocates(const kiln_loop *first, int buffer);
bool kiln_loop_is_unit(const kiln_loop *l); // a FOR that runs once
// Lets the parallel and bound loops of |first| and its siblings run serially: they come to lie in
// other loops, around which it is decided what runs at once.
void kiln_nest_unbind(kiln_loop *first);
void kiln_nest_drop_hints(kiln_loop **list, int buffer); // the prefetches of |buffer|
// Nests the body in loops over |vars| from 0 to |extents|, the first outermost.
kiln_loop *kiln_nest_around(kiln_ctx *cx, int n, const kiln_symbol *vars, const int64_t *extents,
                            kiln_loop *body);
// A copy of the loop and what is in it, without what follows it, not yet hung anywhere. Its loops and
// buffers are suffixed ".b", or as many of that as makes them new.
kiln_status kiln_nest_twin(kiln_edit *e, kiln_loop *loop, kiln_loop **out);
const char *kiln_tail_text(kiln_tail tail); // "guard", ...
// Simplifies all expressions, drops decided IFs, empty loops and empty bodies.
void kiln_nest_tidy(kiln_edit *e);
void kiln_buffer_reshape(kiln_buffer *b, int rank, const int64_t *extents); // row-major

// --- terms.c: affine forms over atoms ---

// e = sum(coef * atom) + constant, an atom being a variable or an expression that is not affine.
typedef struct kiln_term {
  const kiln_expr *atom;
  int64_t coef;
} kiln_term;
typedef struct kiln_terms {
  kiln_term *data;
  int n, cap;
  int64_t constant;
} kiln_terms;
kiln_terms kiln_terms_of(kiln_ctx *cx, const kiln_expr *e);

// A set of variables.
typedef struct kiln_vars {
  kiln_symbol *data;
  int n, cap;
} kiln_vars;
bool kiln_vars_has(const kiln_vars *v, kiln_symbol s);
bool kiln_vars_in(const kiln_vars *v, const kiln_expr *e);       // |e| uses one of them
kiln_vars kiln_vars_under(kiln_ctx *cx, const kiln_loop *first); // loops of |first| and siblings
kiln_vars kiln_vars_of(kiln_ctx *cx, const kiln_loop *nest);     // loops of |nest| alone

// Whether equal indices imply equal values of |v|, whatever the other |unknown| variables are.
bool kiln_index_determines(kiln_edit *e, int n, const kiln_expr *const *index,
                           const kiln_vars *unknown, kiln_symbol v);

// --- span.c ---

// Whether the loops |inner| make |x| take all of lo, lo + 1, ..., lo + n - 1, and nothing else, with lo
// free of them.
bool kiln_index_spans(kiln_edit *e, const kiln_expr *x, const kiln_vars *inner,
                      const kiln_expr **out_lo, int64_t *out_n);
// Whether they make the indices take all of [0, extents), as far as no condition keeps them from it.
bool kiln_index_covers(kiln_edit *e, int n, const kiln_expr *const *index, const kiln_vars *inner,
                       const int64_t *extents);
// The axis of which |cond| says that its index is below the extent (`<`), or not below 0 (`>=`), and
// nothing else, as what splits and merges leave does; -1: it says something else.
int kiln_index_kept(kiln_edit *e, int n, const kiln_expr *const *index, const int64_t *extents,
                    const kiln_expr *cond);

// --- box.c: what part of a buffer a loop's iteration touches ---

// Axis k: [lo[k], lo[k] + extent[k]), lo affine in variables outside of the loop.
typedef struct kiln_box {
  int rank;
  const kiln_expr *lo[KILN_MAX_AXES];
  int64_t extent[KILN_MAX_AXES];
} kiln_box;
// The box that holds all |accesses| (n > 0) to |b|, with |inner| variables running through their
// ranges. It may overhang the buffer unless it is as large (then it is the buffer).
void kiln_box_of(kiln_edit *e, const kiln_buffer *b, const kiln_accesses *accesses,
                 const kiln_vars *inner, kiln_box *out);
// Bounds |x|: lo <= x <= lo + width with lo free of |inner|. False when nothing is known.
bool kiln_box_bound(kiln_edit *e, const kiln_expr *x, const kiln_vars *inner,
                    const kiln_expr **out_lo, int64_t *out_width);
// An interval of b - a, which often hold the same parts.
kiln_interval kiln_box_distance(kiln_edit *e, const kiln_expr *a, const kiln_expr *b);
bool kiln_box_below(kiln_edit *e, const kiln_box *box, int axis); // lo < 0 is possible
bool kiln_box_above(kiln_edit *e, const kiln_box *box, int axis, int64_t extent); // the end too
// Moves the box inwards, so that it does not overhang [0, extent).
void kiln_box_shift_low(kiln_edit *e, kiln_box *box, int axis);
void kiln_box_shift_high(kiln_edit *e, kiln_box *box, int axis, int64_t extent);

// --- legality.c ---

// Each says why not in a message that names two instances of statements and the element that they
// fight over. Index analysis decides what is easy, isl (conflict.c) the rest: exactly where the loops
// are affine, and otherwise by refusing.
//
// The n loops |from|, of one path from the outside, come to stand in the order |to|; |body| is what
// they run.
kiln_status kiln_check_reorder(kiln_edit *e, int n, const kiln_symbol *from, const kiln_symbol *to,
                               kiln_loop *body);
kiln_status kiln_check_parallel(kiln_edit *e, kiln_loop *loop);
kiln_status kiln_check_vectorize(kiln_edit *e, kiln_loop *loop);
// Registers have no addresses: indices may use loops inside of the ALLOC only.
kiln_status kiln_check_register(kiln_edit *e, kiln_loop *alloc);
kiln_status kiln_check_recompute(kiln_edit *e, kiln_loop *loop); // for KILN_TAIL_SHIFT
// The loops around |node| whose iterations run at once may still do so, after it was changed.
kiln_status kiln_check_around(kiln_edit *e, kiln_loop *node);
// Iteration i of |second| comes to run behind iteration i + shift of |first|, which it ran behind all
// iterations of. Both are siblings in |e|'s loops, |first| before |second|, as they were before the
// merge. What stands between them is the caller's matter.
kiln_status kiln_check_merge(kiln_edit *e, kiln_loop *first, kiln_loop *second, int64_t shift);

// |nest| comes to run a part at a time, each with its own copy of the buffers in the nest: refuses
// iterations that hand values on in one of them, as sliding windows and pipelines do.
kiln_status kiln_check_cut(kiln_edit *e, kiln_loop *nest);

// --- conflict.c ---

// A change of the order in which iterations run.
typedef enum kiln_reordering_kind {
  KILN_REORDERING_PARALLEL, // those of |first| at once
  KILN_REORDERING_VECTOR,   // the same, in lanes
  KILN_REORDERING_LOOPS,    // n loops change places
  KILN_REORDERING_MERGE,    // those of |second| |shift| behind those of |first|
  KILN_REORDERING_REPEAT,   // some of |first|, in order, once more behind themselves
  KILN_REORDERING_CUT       // those of |first| each with memory of their own
} kiln_reordering_kind;
typedef struct kiln_reordering {
  kiln_reordering_kind kind;
  kiln_symbol first, second;
  int64_t shift;
  int n;
  const kiln_symbol *from, *to;
} kiln_reordering;
// Whether two instances that touch one element of |buffer|, and do not commute, change places.
kiln_status kiln_check_exactly(kiln_edit *e, const kiln_reordering *change, int buffer);

// --- layout.c ---

// Where a source axis lies in a copy: as a whole, perhaps rounded up to blocks, or in two parts.
typedef struct kiln_source_axis {
  int whole, outer, inner; // axes of the copy; -1: not so
  int64_t block;           // 0: not rounded up
} kiln_source_axis;

// Refuses axes that do not name each source axis whole or in both parts. All arrays of source axes
// and what is about them have |rank| entries.
kiln_status kiln_axes_read(const kiln_edit *e, int rank, int n, const kiln_stage_axis *axes,
                           kiln_source_axis *out);
void kiln_axes_extents(int rank, const kiln_source_axis *s, const int64_t *from, int64_t *out);
void kiln_axes_index(kiln_ctx *cx, int rank, const kiln_source_axis *s,
                     const kiln_expr *const *from, const kiln_expr **out);
bool kiln_axes_ragged(const kiln_source_axis *s,
                      int64_t extent); // has elements besides the source's
const char *kiln_axes_text(kiln_ctx *cx, int n, const kiln_stage_axis *axes); // " 1/32 0 1%32"

// --- bind.c ---

// Checks the whole program: an axis is bound once in a nest, no block loop lies in a thread loop, and
// no bound loop uses memory of one thread (of one block, for block loops) that it does not hold.
kiln_status kiln_check_bound(kiln_edit *e);

// --- tensorize.c ---

// Checks the whole program: the operands of instructions still lie as their spellings want them.
kiln_status kiln_check_instrs(kiln_edit *e);

// --- pad.c ---

// kiln_pad without its line of the script.
kiln_status kiln_pad_loop(kiln_edit *e, kiln_loop *loop, int64_t factor);

#endif

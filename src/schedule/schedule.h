// The waist: checked primitives on loop programs. Nothing else transforms a kernel's loops.
//
// Every primitive either preserves meaning or is refused with a message (KILN_BAD_INPUT, place
// "schedule: split x"), and then the loops are unchanged. Every one that succeeds is appended to
// the script, which prints, parses and replays to the identical loops. Reassociating a reduction
// counts as preserving meaning.
//
// Programs stay small enough to run: loops at most 128 deep, a buffer that lives in a loop at most
// 1 MiB, all that live in one nest at most 6 MiB (a thread's stack holds them).
#ifndef KILN_SCHEDULE_SCHEDULE_H
#define KILN_SCHEDULE_SCHEDULE_H

#include "ir/loop.h"
#include "target/target.h"

typedef struct kiln_schedule {
  kiln_ctx *cx;
  const kiln_program *prog;
  kiln_loops *loops;
  kiln_arena *copies; // of edits: lives as long as the schedule; NULL: |cx|'s perm
  kiln_text script;
  kiln_instr *instrs; // what a script's `tensorize` may name; begin sets none
  int n_instrs;
  const char *where; // of the line that is replayed from a file, for messages: "blur.sched:3"
} kiln_schedule;

// Makes the naive loops of a kernel: |p| has static shapes; its INPUT and CONST tensors and its
// outputs are PARAMs (buffer extents = shape, strides = kiln_tensor_strides), its TEMPs WORKSPACEs
// (row-major). One top-level nest a statement, in order; a reduction (or a statement with init) has
// two: the init nest, with loop variables T.init.D, and the update nest, with variables T.D, T
// being the output tensor's name and D the dim's. A statement without reduction has the update nest
// only. The buffers have the tensors' names.
kiln_status kiln_schedule_begin(kiln_ctx *cx, const kiln_program *p, kiln_schedule *out);

// How a split whose factor does not divide the extent keeps to the range. (Halide's TailStrategy.)
typedef enum kiln_tail {
  KILN_TAIL_GUARD, // if (outer*factor + inner < extent)
  KILN_TAIL_SHIFT, // the last tile starts at extent - factor and recomputes what the one before did;
                   // needs factor <= extent, and that the nest only assigns (no reduction into what
                   // it writes outside its own init)
  KILN_TAIL_PEEL,  // the last, partial tile becomes a loop of its own behind the full ones, as
                   // kiln_peel cuts it off: LOOP.b; needs factor <= extent
  KILN_TAIL_ROUND, // the extent is rounded up as by kiln_pad, then split without a tail
  KILN_TAIL_EXACT  // refused unless the factor divides the extent
} kiln_tail;

// Loop |loop| becomes outer*factor + inner. |outer| and |inner| name the new loops (0: LOOP.o,
// LOOP.i).
kiln_status kiln_split(kiln_schedule *s, kiln_symbol loop, int64_t factor, kiln_tail tail,
                       kiln_symbol outer, kiln_symbol inner);
kiln_status kiln_fuse(kiln_schedule *s, kiln_symbol outer, kiln_symbol inner,
                      kiln_symbol fused); // perfectly nested neighbours
// Puts the n loops, which lie on one path (other loops between them stay where they are), in the
// given order from the outside.
kiln_status kiln_reorder(kiln_schedule *s, int n, const kiln_symbol *loops);
kiln_status kiln_parallel(kiln_schedule *s,
                          kiln_symbol loop); // outermost loop of a nest, no dependence carried
kiln_status
kiln_vectorize(kiln_schedule *s,
               kiln_symbol loop); // constant extent, no dependence carried except a reduction
kiln_status kiln_unroll(kiln_schedule *s, kiln_symbol loop); // constant extent
// Cuts the loop at |at|: [0, at) keeps its name, [at, extent) is a copy of the body with variables
// suffixed by ".b", or ".b.b" and so on where that is taken; guards decided by the narrower ranges
// disappear. For peeling borders.
kiln_status kiln_peel(kiln_schedule *s, kiln_symbol loop, int64_t at);
// Moves what of a condition around the whole body of |loop| is the same in all of its iterations
// out of it, so that it is asked once. No iteration may write what the condition reads in one
// behind it.
kiln_status kiln_hoist(kiln_schedule *s, kiln_symbol loop);
// The body of |loop| becomes `if cond { body } else { body }`, |cond| being the first of the
// conditions of its selections that is the same in all iterations of the loops inside, by what the
// loop does not write: each body without that selection (loop unswitching). Loops of the second are
// suffixed ".b".
kiln_status kiln_unswitch(kiln_schedule *s, kiln_symbol loop);
enum { KILN_MAX_STACK_BYTES = 1 << 20 }; // of one buffer that lives in a loop
// Moves the nests that compute WORKSPACE buffer |producer| into the body of |loop| (of its
// consumer), before the first use, computing only the box that one iteration needs; the buffer
// shrinks to it and gets |scope| (LOCAL or REGISTER). Bounds come from interval analysis; computing
// more than the domain is avoided by clamping the box into it (box extent <= domain). The moved
// loops keep their names.
kiln_status kiln_compute_at(kiln_schedule *s, kiln_symbol producer, kiln_symbol loop,
                            kiln_scope scope);
// Substitutes the definition of |producer| (no reduction) at every use and removes its nest and
// buffer.
kiln_status kiln_inline(kiln_schedule *s, kiln_symbol producer);
// Carries out the nest that computes |buffer| when the module is made: it must move elements of one
// CONST PARAM, which nothing else reads, or write zero. The PARAM becomes the buffer (kiln_pack).
kiln_status kiln_prepack(kiln_schedule *s, kiln_symbol buffer);
// Copies the box of |buffer| that one iteration of |loop| (0: the whole kernel) reads into a new
// buffer |name| with axes split and permuted: axis k of the copy is source axis axes[k].axis, in
// blocks: the part `/ block` if axes[k].outer, else the part `% block`; or the whole axis (block
//         0),
// which |pad| rounds up to a multiple of |block|. In scripts: 1/32, 1%32, 1, 1^32.
// Reads in the loop go to the copy; ragged blocks are filled with zeros. At the whole kernel a copy
// of a CONST PARAM is made at compile time (kiln_pack), any other is a WORKSPACE with its own nest
// before the first use, whose loops are named NAME.0, NAME.1, ...
typedef struct kiln_stage_axis {
  int axis;
  int64_t block;
  bool outer;
  bool pad; // the whole axis, rounded up to a multiple of |block|
} kiln_stage_axis;
kiln_status kiln_stage(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, kiln_scope scope,
                       int n_axes, const kiln_stage_axis *axes, kiln_symbol name);
// Factors the reduction loop |loop| of a nest out: partial results per iteration of |loop| go to a
// new buffer |name| with one more, innermost axis, and a new nest combines them. Afterwards |loop|
// is a space loop of the partial nest. The loops that set the partial results are NAME.init.0, ...,
// those that combine them NAME.0, ..., one for each axis of |name| (the last is |loop|'s).
kiln_status kiln_rfactor(kiln_schedule *s, kiln_symbol loop, kiln_symbol name);
// Cuts the iterations of the reduction loop |loop| and of the loops around it, which index the
// result and hold nothing else, into |portions| equal portions of consecutive ones: loops |outer|
// and |inner|. Each portion keeps the sums of the tile at which it is in the buffer |kept|, local
// to |outer|, and stores them in the new buffer |name|, over portions, the tiles of each and the
// elements of these, when it or the tile ends. A new nest, of loops NAME.0, ... over the result's
// axes and a tile's parts, combines these in their order.
kiln_status kiln_stream_k(kiln_schedule *s, kiln_symbol loop, int64_t portions, kiln_symbol name,
                          kiln_symbol kept, kiln_symbol outer, kiln_symbol inner);
// Removes the loops of extent 1, which all primitives keep, so that a script may name them whatever
// the shapes are. Their variables are 0 everywhere already.
kiln_status kiln_tidy(kiln_schedule *s);
// The nest of |loop| becomes one |instr|. It must compute what the instruction means, up to the
// names of loops and buffers and the order of loops, with operands that lie in memory as it wants
// them. What would let them lie otherwise is refused from then on.
kiln_status kiln_tensorize(kiln_schedule *s, kiln_symbol loop, kiln_instr *instr);

// Splits two loops of one path and puts them in the order x_outer, y_outer, x_inner, y_inner (other
// loops between them stay where they are). Recorded as one step; what split and reorder would do.
kiln_status kiln_tile(kiln_schedule *s, kiln_symbol x, kiln_symbol y, int64_t x_factor,
                      int64_t y_factor, kiln_tail tail, kiln_symbol x_outer, kiln_symbol y_outer,
                      kiln_symbol x_inner, kiln_symbol y_inner);
// Binds the loop to a block or thread axis (|axis| is KILN_BLOCK_X and behind it): as parallel, but
// at any depth. Two loops around one statement are not bound to one axis.
kiln_status kiln_bind(kiln_schedule *s, kiln_symbol loop, kiln_how axis);

// Asks that |buffer| be computed in nests of its own, as all are at first; refused, with what moved
// it, otherwise. For scripts that say where everything is computed.
kiln_status kiln_compute_root(kiln_schedule *s, kiln_symbol buffer);
// Moves the ALLOC of |buffer|, which is computed at a loop inside of |loop|, out into the body of
// |loop|: the buffer grows to the box that one iteration of |loop| needs. Where successive
// iterations of the one serial loop between touch overlapping boxes, each computes only what the
// ones before it have not (sliding window; Halide, PLDI'13, section 4.3). With |fold|, the axis
// that slides is stored modulo the rows in use (storage folding), the number of them rounded up to
// a power of two. Chains are stored from the first producer to the last. |loop| 0: the whole
// kernel.
kiln_status kiln_store_at(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, bool fold);
// Moves the nest that computes |consumer|, a map of what the nest of |loop| computes, into |loop|
// behind its body: each iteration computes the elements whose inputs it has completed. No condition
// may stand around |loop| but on the range of what it computes.
kiln_status kiln_reverse_compute_at(kiln_schedule *s, kiln_symbol consumer, kiln_symbol loop);
// Moves the nest that initialises |buffer| to just before |loop| of the nest that accumulates into
// it: each entry initialises the elements that this run of |loop| accumulates into, in copies of
// the loops from |loop| on that index |buffer|, suffixed ".init". |loop| and all loops inside of it
// must hold all reduction loops.
kiln_status kiln_decompose_reduction(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop);
// The nests that compute |buffer| compute a new WORKSPACE |name| instead, with its axes blocked and
// permuted as in kiln_stage (n_axes 0: as they are), and a new nest with loops BUFFER.copy.0, ...
// over the axes of |buffer| copies it there. compute_at then places |name| at one of those loops.
kiln_status kiln_cache_write(kiln_schedule *s, kiln_symbol buffer, kiln_symbol name, int n_axes,
                             const kiln_stage_axis *axes);

// Rounds the extent of |loop| up to a multiple of |factor|. What the added iterations store goes
// into padding that nobody reads (a buffer that is not a PARAM grows) or is guarded; what they load
// stays in range; into a reduction they combine the identity. A reduction is padded along its
// space loops when its init is, before.
kiln_status kiln_pad(kiln_schedule *s, kiln_symbol loop, int64_t factor);
// Stores |buffer|, which is not a PARAM, with its axes blocked and permuted as in kiln_stage.
kiln_status kiln_transform_layout(kiln_schedule *s, kiln_symbol buffer, int n_axes,
                                  const kiln_stage_axis *axes);
// Reads and writes |buffer|, a PARAM that is no constant, by two axes in place of |axis|: / block
// and % block, where
// |block| divides its extent. What lies where does not change.
kiln_status kiln_view(kiln_schedule *s, kiln_symbol buffer, int axis, int64_t block);
// Lengthens the rows of |buffer|, which is not a PARAM, so that the stride of |axis| is |offset|
// modulo |factor| elements (against bank and cache set conflicts).
kiln_status kiln_storage_align(kiln_schedule *s, kiln_symbol buffer, int axis, int64_t factor,
                               int64_t offset);
// Stores the words of |buffer|, which is SHARED, in another order within each 1024 bytes
// (kiln_buffer): rows of 128 bytes can be read and written along either axis at once, and matrix
// instructions of warp groups take no other.
kiln_status kiln_swizzle(kiln_schedule *s, kiln_symbol buffer);
// Overlaps the filling of |buffer|, which is copied or computed at the begin of each iteration of
// the serial loop |loop|, with the use of it: the buffer gets |depth| slots, the first depth - 1
// are filled before the loop, and an iteration fills the slot depth - 1 ahead before it uses its
// own. The loop before is BUFFER.fill, the loops in it are suffixed ".b".
kiln_status kiln_pipeline(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, int depth);
// The same, filled |ahead| iterations ahead, 1 to depth - 1: the other slots are those of
// iterations whose use may go on.
kiln_status kiln_pipeline_ahead(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, int depth,
                                int ahead);
// The body of |loop| becomes `if cond { body } else { body }` with the first simplified under
// |condition|, text over loop variables outside of it, |loop|'s own and elements of PARAMs that the
// kernel does not write, as in "y.i0 < 3" or "stride[] == 1". Loops of the second are suffixed
// ".b".
kiln_status kiln_specialize(kiln_schedule *s, kiln_symbol loop, const char *condition);
// In each iteration of |loop|, asks for the first lines, at most 16, of the part of |buffer| that
// the iteration |distance| ahead will read, or write where it reads none. Their loops are
// LOOP.BUFFER.fetch.K, one for each axis K along which they are many. Primitives that give the
// buffer another shape drop the hint.
kiln_status kiln_prefetch(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, int64_t distance);
// The iterations of |inner|, a loop in |loop|, ask in turns for all of that part, piece by piece
// where it lies in several, and to have it in the L2: for what is not needed until |loop|'s next
// iterations, while others are computed. Where it is one piece and the parts of |loop|'s
// iterations overlap, as those of a window do, they ask for the end that the iteration before has
// not. Their loop is INNER.BUFFER.fetch where an iteration asks for several lines, at most 16.
kiln_status kiln_prefetch_in_turns(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop,
                                   int64_t distance, kiln_symbol inner);
// Lets |blocks| (2, 4 or 8) consecutive iterations of |loop|, which is bound to block.x, run
// together on devices that have clusters, where equal copies are multicast. They must divide its
// extent.
kiln_status kiln_cluster(kiln_schedule *s, kiln_symbol loop, int64_t blocks);
// Warp specialization, on devices that have TMA: a producer warp issues the copies of |loop|, which
// is bound to block.x, or a serial loop within it whose iterations do not depend on each other;
// these may be taken by 2 |consumers| in turns (ping-pong).
kiln_status kiln_warp_specialize(kiln_schedule *s, kiln_symbol loop, int64_t consumers);
// Lets the nest of |loop|, its outermost, run at the same time as the nest in front of it, on
// devices that launch nests.
kiln_status kiln_fuse_horizontally(kiln_schedule *s, kiln_symbol loop);
// Attaches a note to the loop; it replaces one with the same key.
kiln_status kiln_annotate(kiln_schedule *s, kiln_symbol loop, kiln_symbol key, kiln_symbol value);
// Joins two sibling nests, |second| running |shift| >= 0 iterations behind |first| (Halide's
// compute_with; loop fusion): one loop of extent max(first, second + shift) with the first one's
// name, each body guarded where the extents differ. What stands between them must not depend on
// the order.
kiln_status kiln_merge(kiln_schedule *s, kiln_symbol first, kiln_symbol second, int64_t shift);
// Joins n reduction loops that stand in one body (chunks of one axis) into the first, where sums
// may be weighted by exp(u - M), M being the maximum of u that one of the loops looks for: in each
// chunk M is updated, what was summed before is multiplied by exp(M before - M), the weights of the
// chunk are computed into the new buffer |name|, and the sums go on. A sum that is divided or
// multiplied by another's result gets that behind the loop. Sums are NaN where all u are -inf, as
// by exp(u - M). New
// loops: NAME.K over the chunk, as the loops that look for M; NAME.before.K, NAME.shift.K and
// NAME.scale.K over M; BUFFER.scale.K and BUFFER.end.K over each sum. With one chunk nothing is
// multiplied.
//
// |flushes|: weights that would be subnormal (below 2^-126 of the largest, 2^-1022 in f64) are 0:
// many processors take a hundred cycles or more for a product with one. What that changes of a sum
// is less than so much of its largest term's other factor, for each key.
// |copy|: not NULL where M has copies along one of its axes, with which u does not move: weights,
// which have no such axis, are computed by the one that it numbers, text over the loops NAME.K.
// Others may be in other threads.
kiln_status kiln_stream(kiln_schedule *s, int n, const kiln_symbol *loops, kiln_symbol name,
                        bool flushes, const char *copy);

// Replays a script on |s|: one primitive a line; `#` begins a comment; names that hold other
// characters than letters, digits, '_' and '.' are quoted as loop programs print them. Messages
// name the line. Steps before a line that is refused stay.
kiln_status kiln_schedule_replay(kiln_schedule *s, const char *script);
// The same for a script that begins at line |first_line| of |file|: messages begin "FILE:LINE: ".
kiln_status kiln_schedule_replay_file(kiln_schedule *s, const char *script, const char *file,
                                      int first_line);
// The script so far, as text; owned by the ctx.
const char *kiln_schedule_script(const kiln_schedule *s);

#endif

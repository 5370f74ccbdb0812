// Schedules: checked primitives on loop programs, the only way in which a kernel's loops are
// transformed.
//
// A primitive either preserves the meaning of the loops or is refused with a message
// (KILN_BAD_INPUT, place "schedule: split x"), and then leaves them unchanged. Each successful one
// is appended to the script, which prints, parses and replays to identical loops. Reassociating a
// reduction counts as preserving its meaning.
//
// Programs stay small enough to run: loops at most 128 deep, a buffer that lives in a loop at most
// 1 MiB, and all that live in one nest, on a thread's stack, at most 6 MiB.
#ifndef KILN_SCHEDULE_SCHEDULE_H
#define KILN_SCHEDULE_SCHEDULE_H

#include "ir/loop.h"
#include "target/target.h"

typedef struct kiln_schedule {
  kiln_ctx *cx;
  const kiln_program *prog;
  kiln_loops *loops;
  kiln_arena *copies; // of copies of the loops: lives as long as the schedule; NULL: |cx|'s perm
  kiln_text script;
  kiln_instr *instrs; // that a script's `tensorize` may name; begin sets none
  int n_instrs;
  const char *where; // of the line that is replayed from a file, for messages: "blur.sched:3"
  // Loops that are looked at and thrown away: what plain rules do not decide counts as legal.
  bool is_draft;
} kiln_schedule;

// Makes the naive loops of a kernel. |p| has static shapes. Its INPUT and CONST tensors and its
// outputs become PARAMs (extents are the shape, strides kiln_tensor_strides), its TEMPs WORKSPACEs
// (row-major); buffers have the tensors' names. Each statement becomes one top-level nest, in
// order, with loop variables T.D for output tensor T and dim D. A reduction, or a statement with
// init, has an init nest before it, with loop variables T.init.D.
kiln_status kiln_schedule_begin(kiln_ctx *cx, const kiln_program *p, kiln_schedule *out);

// How a split keeps to the range when its factor does not divide the extent (Halide's
// TailStrategy).
typedef enum kiln_tail {
  KILN_TAIL_GUARD, // if (outer*factor + inner < extent)
  // the last tile starts at extent - factor and recomputes elements of the tile before; needs
  // factor <= extent and a nest that only assigns (no reduction into a buffer that it writes
  // outside of its own init)
  KILN_TAIL_SHIFT,
  // the partial last tile becomes a loop LOOP.b after the full ones, as by kiln_peel; needs factor
  // <= extent
  KILN_TAIL_PEEL,
  KILN_TAIL_ROUND, // the extent is rounded up as by kiln_pad, then split without a tail
  KILN_TAIL_EXACT  // refused unless the factor divides the extent
} kiln_tail;

// Replaces loop |loop| by two loops, of value outer*factor + inner, named |outer| and |inner| (0:
// LOOP.o, LOOP.i).
kiln_status kiln_split(kiln_schedule *s, kiln_symbol loop, int64_t factor, kiln_tail tail,
                       kiln_symbol outer, kiln_symbol inner);
kiln_status kiln_fuse(kiln_schedule *s, kiln_symbol outer, kiln_symbol inner,
                      kiln_symbol fused); // perfectly nested neighbours
// Runs the iterations of |loop|, which must not need one another, in the opposite order.
kiln_status kiln_reverse(kiln_schedule *s, kiln_symbol loop);
// Orders the n loops, which lie on one path, as given, outermost first. Other loops between them
// stay at their depth.
kiln_status kiln_reorder(kiln_schedule *s, int n, const kiln_symbol *loops);
kiln_status kiln_parallel(kiln_schedule *s,
                          kiln_symbol loop); // outermost loop of a nest, no dependence carried
kiln_status
kiln_vectorize(kiln_schedule *s,
               kiln_symbol loop); // constant extent, no dependence carried except a reduction
kiln_status kiln_unroll(kiln_schedule *s, kiln_symbol loop); // constant extent
// Cuts the loop at |at|: [0, at) keeps its name, [at, extent) becomes a copy of the body with
// variables suffixed ".b" (".b.b" and so on if that is taken). Guards that the narrower ranges
// decide disappear. For peeling borders.
kiln_status kiln_peel(kiln_schedule *s, kiln_symbol loop, int64_t at);
// Loop-invariant code motion of conditions: those terms of a condition around the whole body of
// |loop| that are the same in all of its iterations move out of the loop. No iteration may write
// what a later evaluation of the condition reads.
kiln_status kiln_hoist(kiln_schedule *s, kiln_symbol loop);
// Loop unswitching: the body of |loop| becomes `if cond { body } else { body }`, each without the
// selection that |cond| decided. |cond| is the condition of the first selection that is invariant
// in all loops inside and does not read what |loop| writes. Loops of the second body are suffixed
// ".b".
kiln_status kiln_unswitch(kiln_schedule *s, kiln_symbol loop);
enum { KILN_MAX_STACK_BYTES = 1 << 20 }; // of one buffer that lives in a loop
// Moves the nests that compute WORKSPACE |producer| into the body of |loop|, of its consumer,
// before the first use. They then compute only the box that one iteration needs (bounds by interval
// analysis, clamped into the domain so that extents never exceed it), and the buffer shrinks to
// that box in |scope| (LOCAL, REGISTER or SHARED). The moved loops keep their names.
kiln_status kiln_compute_at(kiln_schedule *s, kiln_symbol producer, kiln_symbol loop,
                            kiln_scope scope);
// Substitutes the definition of |producer|, which has no reduction, for every load of it, and
// removes its nest and buffer.
kiln_status kiln_inline(kiln_schedule *s, kiln_symbol producer);
// Executes the nest that computes |buffer| at compile time. Its elements must be elements of one
// CONST PARAM, which nothing else reads, or zero. The PARAM becomes the buffer (kiln_pack).
kiln_status kiln_prepack(kiln_schedule *s, kiln_symbol buffer);
// Copies the box of |buffer| that one iteration of |loop| (0: the whole kernel) reads into a new
// buffer |name|, whose axes may be blocked and permuted: axis k of the copy is, of source axis
// axes[k].axis, the block's number `/ block` if axes[k].outer, the place in the block `% block`
// otherwise, or with block 0 the whole axis. |pad| rounds a whole axis up to a multiple of |block|.
// In scripts: 1/32, 1%32, 1, 1^32. Loads in the loop then read the copy; ragged blocks are filled
// with zeros. At the whole kernel, a copy of a CONST PARAM is made at compile time (kiln_pack); any
// other is a WORKSPACE with its own nest before the first use, of loops NAME.0, NAME.1, ...
typedef struct kiln_stage_axis {
  int axis;
  int64_t block;
  bool outer;
  bool pad; // it is whole, rounded up to a multiple of |block|
} kiln_stage_axis;
kiln_status kiln_stage(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, kiln_scope scope,
                       int n_axes, const kiln_stage_axis *axes, kiln_symbol name);
// Factors out the reduction loop |loop| of a nest: partial results, one for each of its iterations,
// go to a new buffer |name| with one more, innermost axis, and a new nest combines them. |loop| is
// then a space loop of the partial nest. New loops: NAME.init.0, ... set the partial results,
// NAME.0, ... combine them, one loop for each axis of |name| (the last is |loop|'s).
kiln_status kiln_rfactor(kiln_schedule *s, kiln_symbol loop, kiln_symbol name);
// Stream-K: cuts the iterations of the reduction loop |loop| and of the loops around it, which
// index the result and contain nothing else, into |portions| equal runs of consecutive iterations:
// loops |outer| and |inner|. A portion keeps the sums of its current tile in the buffer |kept|,
// local to |outer|, and stores them in the new buffer |name| (portions x tiles of each x elements
// of a tile) when the portion or the tile ends. A new nest of loops NAME.0, ..., over the result's
// axes and the portions of a tile, combines them in order.
kiln_status kiln_stream_k(kiln_schedule *s, kiln_symbol loop, int64_t portions, kiln_symbol name,
                          kiln_symbol kept, kiln_symbol outer, kiln_symbol inner);
// Removes loops of extent 1. Other primitives keep these, so that a script may name them for any
// shapes; their variables are already replaced by 0.
kiln_status kiln_tidy(kiln_schedule *s);
// Replaces the nest of |loop| by |instr|. It must have the instruction's meaning, up to names of
// loops and buffers and the order of loops, with operands of the strides that the instruction
// needs. Later primitives that would change these strides are refused.
kiln_status kiln_tensorize(kiln_schedule *s, kiln_symbol loop, kiln_instr *instr);

// Splits two loops of one path and orders them x_outer, y_outer, x_inner, y_inner (other loops
// between them stay at their depth). One step of the script for two splits and a reorder.
kiln_status kiln_tile(kiln_schedule *s, kiln_symbol x, kiln_symbol y, int64_t x_factor,
                      int64_t y_factor, kiln_tail tail, kiln_symbol x_outer, kiln_symbol y_outer,
                      kiln_symbol x_inner, kiln_symbol y_inner);
// Binds the loop to a block or thread axis (KILN_BLOCK_X to KILN_THREAD_Z): legal as `parallel` is,
// but at any depth. No two loops around a statement may be bound to one axis.
kiln_status kiln_bind(kiln_schedule *s, kiln_symbol loop, kiln_how axis);

// Runs the nest of |loop| on the threads of a block that hold the elements of |buffer|, which it
// reads or writes. One step of the script for splits, a reorder, fusions and bindings to thread.x,
// |lanes| threads, and thread.y, |warps| of them.
//
// A fragment, LOCAL or REGISTER outside of thread loops: its elements in memory order are
// distributed over the threads in equal parts (ir/loop.h), and each thread runs the iterations of
// its own elements, unrolled; the innermost loop is vectorized where it assigns neighbours. Loops
// that do not index |buffer| stay inside a thread's; those in front of all others, around its
// elements.
//
// Memory: words of 16 bytes along |buffer|, cyclically: neighbouring threads take neighbouring
// words.
//
// New loops: LOOP.lane and LOOP.warp where several are fused; X.w, X.l, X.r, X.f, the parts of loop
// X that count warps, lanes, a thread's own elements, and what does not index |buffer|, followed by
// a number where there are several; in memory X.w and X.v, words and their elements, X.f, fused
// loops, LOOP.turn, LOOP.thread.
kiln_status kiln_distribute(kiln_schedule *s, kiln_symbol loop, kiln_symbol buffer, int64_t lanes,
                            int64_t warps);

// Gives |buffer|, no PARAM, a last axis of |copies| copies of each element, so that as many threads
// can have their own. Each store becomes a loop BUFFER.c over them (BUFFER.c1, ... the next ones);
// loads read copy 0.
kiln_status kiln_replicate(kiln_schedule *s, kiln_symbol buffer, int64_t copies);
// Lets loads of copy 0 of |buffer| in the nest of |loop| read the copy that |copy| numbers: text
// over the loops around them, as in "n%8/2". All stores to |buffer| must be as replicate makes
// them: in loops of their own over all copies, with values that are the same for each.
kiln_status kiln_use_copy(kiln_schedule *s, kiln_symbol loop, kiln_symbol buffer, const char *copy);

// Requires that |buffer| be computed in nests of its own, as all are initially; otherwise refuses
// and names the step that moved it. For scripts that state the place of every computation.
kiln_status kiln_compute_root(kiln_schedule *s, kiln_symbol buffer);
// Moves the ALLOC of |buffer|, which is computed at a loop inside of |loop|, out into the body of
// |loop|; the buffer grows to the box that one iteration of |loop| needs. If successive iterations
// of the one serial loop between need overlapping boxes, each computes only the elements that
// earlier ones have not (sliding window; Halide, PLDI'13, section 4.3). With |fold|, the sliding
// axis is stored modulo the number of rows in use, rounded up to a power of two (storage folding).
// Of a chain of producers the first is stored first. |loop| 0: the whole kernel.
kiln_status kiln_store_at(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, bool fold);
// Moves the nest of |consumer|, a map of the result of |loop|'s nest, into |loop| after its body:
// each iteration computes the elements whose inputs it completes. The only conditions around |loop|
// may be guards of the producer's range.
kiln_status kiln_reverse_compute_at(kiln_schedule *s, kiln_symbol consumer, kiln_symbol loop);
// Moves the nest that initialises |buffer| to just before |loop| of the nest that accumulates into
// it: each entry of |loop| initialises the elements into which it accumulates, in copies of the
// loops from |loop| on that index |buffer|, suffixed ".init". All reduction loops must be |loop| or
// inside of it.
kiln_status kiln_decompose_reduction(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop);
// The nests that compute |buffer| compute a new WORKSPACE |name| instead, with axes blocked and
// permuted as in kiln_stage (n_axes 0: the same axes). A new nest of loops BUFFER.copy.0, ... over
// |buffer|'s axes copies it there; compute_at can then move |name| to one of these loops.
kiln_status kiln_cache_write(kiln_schedule *s, kiln_symbol buffer, kiln_symbol name, int n_axes,
                             const kiln_stage_axis *axes);

// Rounds the extent of |loop| up to a multiple of |factor|. Stores of the added iterations go to
// padding that nobody reads (a buffer that is no PARAM grows) or are guarded; their loads stay in
// range; into a reduction they combine the identity. Pad the init of a reduction before its space
// loops.
kiln_status kiln_pad(kiln_schedule *s, kiln_symbol loop, int64_t factor);
// Stores |buffer|, which must not be a PARAM, with its axes blocked and permuted as in kiln_stage.
kiln_status kiln_transform_layout(kiln_schedule *s, kiln_symbol buffer, int n_axes,
                                  const kiln_stage_axis *axes);
// Indexes |buffer|, a PARAM that is no constant, by two axes, / block and % block, in place of
// |axis|, whose extent |block| divides. Elements keep their addresses.
kiln_status kiln_view(kiln_schedule *s, kiln_symbol buffer, int axis, int64_t block);
// Lengthens the rows of |buffer|, which must not be a PARAM, until the stride of |axis| is |offset|
// modulo |factor| elements (against bank conflicts and cache set conflicts).
kiln_status kiln_storage_align(kiln_schedule *s, kiln_symbol buffer, int axis, int64_t factor,
                               int64_t offset);
// Permutes the 16-byte words of |buffer|, which must be SHARED, within each 1024 bytes
// (kiln_buffer), so that rows of 128 bytes can be accessed along either axis without bank
// conflicts; matrix instructions of warp groups need this layout.
kiln_status kiln_swizzle(kiln_schedule *s, kiln_symbol buffer);
// Leaves out the iterations of |loop|, made by kiln_online_softmax, before |from| and from |to| on:
// numbers as text over loops around it. Refused unless the scores of those are all masked, by
// conditions on loops, so that their weights are 0 (analysis/masking.h). The extent of |loop| then
// varies: to - from, at least 1.
kiln_status kiln_skip(kiln_schedule *s, kiln_symbol loop, const char *from, const char *to);
// Software pipelining: |buffer|, which is filled at the begin of each iteration of the serial loop
// |loop|, becomes a circular buffer of |depth| stages. The first depth - 1 stages are filled before
// the loop, and each iteration fills the stage of the iteration depth - 1 ahead before it uses its
// own. The loop before is BUFFER.fill; the loops in it are suffixed ".b".
kiln_status kiln_pipeline(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, int depth);
// The same with fills |ahead| iterations ahead, 1 to depth - 1; the other stages belong to
// iterations that may still be in use.
kiln_status kiln_pipeline_ahead(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, int depth,
                                int ahead);
// The body of |loop| becomes `if cond { body } else { body }`, the first simplified under
// |condition|: text over |loop|'s variable, those outside of it, and elements of PARAMs that the
// kernel does not write, as in "y.i0 < 3" or "stride[] == 1". Loops of the second body are suffixed
// ".b".
kiln_status kiln_specialize(kiln_schedule *s, kiln_symbol loop, const char *condition);
// Prefetches in each iteration of |loop| the first cache lines, at most 16, of the box of |buffer|
// that the iteration |distance| ahead will read, or write if it reads none. The new loops are
// LOOP.BUFFER.fetch.K, one for each axis K along which there are several lines. Primitives that
// reshape the buffer drop the prefetch.
kiln_status kiln_prefetch(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, int64_t distance);
// Distributes the prefetch of that whole box over the iterations of |inner|, a loop in |loop|, into
// the L2: for data that |loop|'s next iterations need, while this one computes. If the boxes of
// successive iterations of |loop| overlap, as those of a sliding window, and a box is contiguous,
// only its new end is prefetched. The new loop is INNER.BUFFER.fetch if an iteration prefetches
// several lines, at most 16.
kiln_status kiln_prefetch_in_turns(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop,
                                   int64_t distance, kiln_symbol inner);
// Thread block clusters: runs |blocks| (2, 4 or 8) consecutive iterations of |loop|, which is bound
// to block.x, as one cluster on devices that have them, where equal copies are multicast. |blocks|
// must divide the extent.
kiln_status kiln_cluster(kiln_schedule *s, kiln_symbol loop, int64_t blocks);
// Warp specialization, on devices that have TMA: a producer warp issues the copies of |loop|, which
// is bound to block.x, or is a serial loop within it with independent iterations; these may be
// distributed over 2 |consumers| in turns (ping-pong).
kiln_status kiln_warp_specialize(kiln_schedule *s, kiln_symbol loop, int64_t consumers);
// Horizontal fusion: the outermost loop |loop|'s nest and the nest before it run in one launch, on
// devices that launch nests.
kiln_status kiln_fuse_horizontally(kiln_schedule *s, kiln_symbol loop);
// Attaches a note to the loop; it replaces one with the same key.
kiln_status kiln_annotate(kiln_schedule *s, kiln_symbol loop, kiln_symbol key, kiln_symbol value);
// Loop fusion with a shift (Halide's compute_with): two sibling loops become one with the first
// one's name and extent max(first, second + shift), in which |second| runs |shift| >= 0 iterations
// behind |first|; each body is guarded where extents differ. Statements between them must be
// independent of one of the two.
kiln_status kiln_merge(kiln_schedule *s, kiln_symbol first, kiln_symbol second, int64_t shift);
// The same with the second one's name, so that its statements are not renamed: merging n nests into
// the last, one after the other, takes work in proportion to n.
kiln_status kiln_merge_into(kiln_schedule *s, kiln_symbol first, kiln_symbol second, int64_t shift);
// Online softmax: fuses n reduction loops of one body, over chunks of one axis, into the first.
// Sums may be weighted by exp(u - M), where M is the maximum of u that one of the loops computes.
// In each chunk M is updated, the sums so far are multiplied by exp(M before - M), the weights of
// the chunk are computed into the new buffer |name|, and the sums continue. A division or
// multiplication of a sum by another's result moves behind the loop. Sums are NaN where all u are
// -inf, as exp(u - M) is. With one chunk nothing is rescaled. New loops: NAME.K over the chunk;
// NAME.before.K, NAME.shift.K and NAME.scale.K over M; BUFFER.scale.K and BUFFER.end.K over each
// sum.
//
// |flushes|: weights that would be subnormal (below 2^-126 of the largest, 2^-1022 in f64) become
// 0, because many processors take a hundred cycles or more to multiply by one. This changes a sum
// by less than that share of its largest term's other factor, for each key.
//
// |copy|: not NULL if M has an axis of copies, which u does not depend on. It is the number of the
// copy by which weights are computed, as text over the loops NAME.K; other copies may be in other
// threads.
kiln_status kiln_online_softmax(kiln_schedule *s, int n, const kiln_symbol *loops, kiln_symbol name,
                                bool flushes, const char *copy);

// Replays a script on |s|: one primitive a line; `#` begins a comment. Names with other characters
// than letters, digits, '_' and '.' are quoted as loop programs print them. Messages name the line.
// Steps before a refused line stay.
kiln_status kiln_schedule_replay(kiln_schedule *s, const char *script);
// The same for a script that begins at line |first_line| of |file|: messages begin "FILE:LINE: ".
kiln_status kiln_schedule_replay_file(kiln_schedule *s, const char *script, const char *file,
                                      int first_line);
// The script so far, as text; owned by the ctx.
const char *kiln_schedule_script(const kiln_schedule *s);

#endif

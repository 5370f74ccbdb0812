// The waist: checked primitives on loop programs. Nothing else transforms a kernel's loops.
//
// Every primitive either preserves meaning or is refused with a message (KILN_BAD_INPUT, place
// "schedule: split x"), and then the loops are unchanged. Every one that succeeds is appended to
// the script, which prints, parses and replays to the identical loops. Reassociating a reduction
// counts as preserving meaning.
#ifndef KILN_SCHEDULE_SCHEDULE_H
#define KILN_SCHEDULE_SCHEDULE_H

#include "ir/loop.h"
#include "target/target.h"

typedef struct kiln_schedule {
  kiln_ctx *cx;
  const kiln_program *prog;
  kiln_loops *loops;
  kiln_text script;
  const kiln_instr *instrs; // what a script's `tensorize` may name; begin sets none
  int n_instrs;
} kiln_schedule;

// Makes the naive loops of a kernel: |p| has static shapes; its INPUT and CONST tensors and its
// outputs are PARAMs (buffer extents = shape, strides = kiln_tensor_strides), its TEMPs WORKSPACEs
// (row-major). One top-level nest a statement, in order; a reduction (or a statement with init) has
// two: the init nest, with loop variables T.init.D, and the update nest, with variables T.D, T
// being the output tensor's name and D the dim's. A statement without reduction has the update nest
// only. The buffers have the tensors' names.
kiln_status kiln_schedule_begin(kiln_ctx *cx, const kiln_program *p, kiln_schedule *out);

// How a split whose factor does not divide the extent keeps to the range.
typedef enum kiln_tail {
  KILN_TAIL_GUARD, // if (outer*factor + inner < extent)
  KILN_TAIL_SHIFT // the last tile starts at extent - factor and recomputes what the one before did;
                  // needs factor <= extent, and that the nest only assigns (no reduction into what
                  // it writes outside its own init)
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
// suffixed by ".b"; guards decided by the narrower ranges disappear. For peeling borders.
kiln_status kiln_peel(kiln_schedule *s, kiln_symbol loop, int64_t at);
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
// Copies the box of |buffer| that one iteration of |loop| (0: the whole kernel) reads into a new
// buffer |name| with axes split and permuted: axis k of the copy is source axis axes[k].axis, in
// blocks: the part `/ block` if axes[k].outer, else the part `% block` (block 0: the whole axis).
// Reads in the loop go to the copy; ragged blocks are filled with zeros. At the whole kernel a copy
// of a CONST PARAM is made at compile time (kiln_pack), any other is a WORKSPACE with its own nest
// before the first use, whose loops are named NAME.0, NAME.1, ...
typedef struct kiln_stage_axis {
  int axis;
  int64_t block;
  bool outer;
} kiln_stage_axis;
kiln_status kiln_stage(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop, kiln_scope scope,
                       int n_axes, const kiln_stage_axis *axes, kiln_symbol name);
// Factors the reduction loop |loop| of a nest out: partial results per iteration of |loop| go to a
// new buffer |name| with one more, innermost axis, and a new nest combines them. Afterwards |loop|
// is a space loop of the partial nest. The loops that set the partial results are NAME.init.0, ...,
// those that combine them NAME.0, ..., one for each axis of |name| (the last is |loop|'s).
kiln_status kiln_rfactor(kiln_schedule *s, kiln_symbol loop, kiln_symbol name);
// Removes the loops of extent 1, which all primitives keep, so that a script may name them whatever
// the shapes are. Their variables are 0 everywhere already.
kiln_status kiln_tidy(kiln_schedule *s);
kiln_status kiln_tensorize(kiln_schedule *s, kiln_symbol loop, const kiln_instr *instr);

// Replays a script (one primitive a line, `#` comments) on |s|; messages name the line.
kiln_status kiln_schedule_replay(kiln_schedule *s, const char *script);
// The script so far, as text; owned by the ctx.
const char *kiln_schedule_script(const kiln_schedule *s);

#endif

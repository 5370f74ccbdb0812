// What the emitter knows while it writes a function: functions.c begins one, emit.c writes what
// stands in it.
#ifndef KILN_TARGET_GPU_EMIT_H
#define KILN_TARGET_GPU_EMIT_H

#include "target/gpu/nest.h"

// Who of a crew the text is for (crew.c): those that work, or the one that asks for boxes.
typedef enum kiln_crew_role { KILN_ROLE_ALL, KILN_ROLE_TEAMS, KILN_ROLE_ASKER } kiln_crew_role;

typedef struct kiln_emitter {
  kiln_c_writer w; // the first member: its put_other finds the others
  kiln_gpu_nest *n;
  bool in_phase;
  bool asks;                  // the phase is boxes that several threads ask for
  const kiln_loop *loops[64]; // bound ones around, the outermost first
  int n_loops;
  int n_guards;
  const char *guards[8];               // conditions under which a thread is not idle
  KILN_VEC(const kiln_instr *) instrs; // of warps, each once
  bool copies_ahead, swizzles, has_boxes, has_pairs, has_sharers, has_crew;
  kiln_crew_role role;
  kiln_gpu_launch *launch;
  bool fills;          // threads write operands of warp groups' instructions
  int *arguments;      // of the function, by buffers
  const uint8_t *uses; // [buffers] what the nest does with them
  const kiln_loop *
      waits; // the first node that touches what may have been written by launches; NULL: it is not asked
  kiln_lined *device; // where the nests' loops are printed; NULL: nowhere
} kiln_emitter;

// emit.c
void kiln_emit_line(kiln_emitter *e, const char *format, ...) KILN_PRINTF(2, 3);
// A line, behind which the others are indented, until kiln_emit_close.
void kiln_emit_open(kiln_emitter *e, const char *text);
void kiln_emit_close(kiln_emitter *e);
// A node of the nest: the writer's put_other.
bool kiln_emit_node(kiln_c_writer *w, const kiln_loop *l);
// The nest's own text, barriers of its boxes in front.
void kiln_emit_nest(kiln_emitter *e);
// Adds the maps of the boxes in |l| and its siblings to the launch's.
void kiln_emit_maps(kiln_emitter *e, const kiln_loop *l);
int kiln_gpu_count_boxes(const kiln_loop *l);
// The node of |l| and its siblings, or in what is around all phases, in front of which all threads
// wait for launches.
const kiln_loop *kiln_emit_first_dependent(kiln_emitter *e, const kiln_loop *l);
// Whether functions may begin while the launch before them ends.
bool kiln_gpu_begins_early(const kiln_machine *m);

#endif

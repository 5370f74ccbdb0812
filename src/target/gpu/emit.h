// The emitter's state while it writes a device function: functions.c begins one, emit.c writes its
// body.
#ifndef KILN_TARGET_GPU_EMIT_H
#define KILN_TARGET_GPU_EMIT_H

#include "target/gpu/device/device.h"
#include "target/gpu/nest.h"

typedef struct kiln_emitter {
  kiln_c_writer w; // the first member: its put_other finds the others
  kiln_gpu_nest *n;
  bool in_phase;
  bool is_shared;             // several nests share the launch
  const kiln_loop *loops[64]; // enclosing bound loops, outermost first
  int n_loops;
  int n_guards;
  const char *guards[8];               // conditions under which a thread is not idle
  KILN_VEC(const kiln_instr *) instrs; // of warps, each once
  bool copies_async, swizzles, has_tma, has_pairs, has_multicast, has_producer, has_takes;
  const char *group;       // of consumers, where there are several: their number; NULL
  int64_t group_rows;      // of threads; 0: there are no groups
  const kiln_loop *behind; // the consumers that were written last; NULL
  int64_t expected; // bytes that the next copy's mbarrier expects of it; 0: it was told before
  const char *tile; // the variable of the loop over tiles around; NULL
  kiln_gpu_launch *launch;
  const int *maps;     // numbers of the nest's tensor maps in the launch
  int *arguments;      // of the function, by buffers
  const uint8_t *uses; // [buffers] how the nest accesses each
  kiln_lined *device;  // where the nests' loops are printed; NULL: nowhere
} kiln_emitter;

// emit.c
void kiln_emit_line(kiln_emitter *e, const char *format, ...) KILN_PRINTF(2, 3);
// A line, behind which the others are indented, until kiln_emit_close.
void kiln_emit_open(kiln_emitter *e, const char *text);
void kiln_emit_close(kiln_emitter *e);
// A node of the nest: the writer's put_other.
bool kiln_emit_node(kiln_c_writer *w, const kiln_loop *l);
// The nest's own text, behind the initialization of its mbarriers.
void kiln_emit_nest(kiln_emitter *e);

#endif

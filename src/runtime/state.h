// State of a session: outputs of a run that are inputs of the next one, in memory that the session
// owns, as a decoder's key-value cache.
//
// A run that gives NULL for a state's input reads the session's value, and one that gives NULL for
// its output replaces that value. Each state has two buffers of its capacity, of which only pages
// that were written take memory.
//
// A state that *stays* is one whose output a plan stores over its input, as when rows are appended
// (dynamic/append_in_place.h) or updated (dynamic/update_in_place.h): runs read and write one
// buffer, which has the strides of the plan's port, and is 0 beyond the value's extents. The other
// serves where a run must not change the value. Of other states the two take turns, so that a run
// never writes what it reads, and a value is row-major with its own extents.
#ifndef KILN_RUNTIME_STATE_H
#define KILN_RUNTIME_STATE_H

#include "runtime/module.h"

typedef struct kiln_state_value {
  DLTensor tensors[2]; // |shapes| are theirs
  int64_t shapes[2][KILN_PORT_MAX_RANK];
  // Of a state that stays, by tensor: its elements have the strides of a row-major tensor of
  // |layout|, and where not |is_clean| those beyond |written| are 0; otherwise all are.
  int64_t layout[2][KILN_PORT_MAX_RANK], written[2][KILN_PORT_MAX_RANK];
  bool is_clean[2];
  bool stays;
  bool is_placed;    // in the current run
  int now;           // the tensor that is the value
  bool is_set;       // false: the next run begins anew, with zeros
  int axis;          // along which a run appends; -1: none
  uint64_t capacity; // bytes of each buffer
} kiln_state_value;

typedef struct kiln_session_states {
  const kiln_module *module;
  uint32_t n;
  kiln_state_value *values; // [n]
  const DLTensor **inputs;  // of the current run
  DLTensor **outputs;
} kiln_session_states;

// gives: *out, to be destroyed; NULL if the module has no states
KILN_MUST_USE kiln_status kiln_states_create(const kiln_module *m, kiln_diag *diag,
                                             kiln_session_states **out);
void kiln_states_destroy(kiln_session_states *s); // NULL is allowed

// The inputs and outputs of a run, with the states' for those that are NULL; owned by |s|, until
// its next run. |n_inputs| and |n_outputs| are the module's.
KILN_MUST_USE kiln_status kiln_states_begin(kiln_session_states *s, const DLTensor *const *inputs,
                                            DLTensor *const *outputs, kiln_diag *diag);
// The values of the dimensions for inputs of which states' may be NULL.
KILN_MUST_USE kiln_status kiln_states_find_dims(kiln_session_states *s,
                                                const DLTensor *const *inputs, kiln_diag *diag,
                                                int64_t *out_values);
// Whether state |i| of plan |p| is stored over its input.
bool kiln_plan_state_stays(const kiln_plan *p, uint32_t i);
// The memory that a run of |p|, a variant's plan, reads and writes for state |i|, which stays; it
// has the value of the run's input.
char *kiln_states_place(kiln_session_states *s, const kiln_plan *p, uint32_t i);
// Takes back what a run that failed has stored.
void kiln_states_undo(kiln_session_states *s);
// Makes the outputs that were NULL in |outputs| the states' values, after a run without error.
void kiln_states_end(kiln_session_states *s, DLTensor *const *outputs);

void kiln_states_reset(kiln_session_states *s);
// errors: KILN_BAD_INPUT: no state grows, or one is shorter
KILN_MUST_USE kiln_status kiln_states_truncate(kiln_session_states *s, int64_t length,
                                               kiln_diag *diag);
// The value of state |i|, row-major; NULL: it begins anew.
const DLTensor *kiln_states_value(kiln_session_states *s, uint32_t i);
// Copies the values of |from|, of the same module, to |to|.
void kiln_states_copy(const kiln_session_states *from, kiln_session_states *to);
// errors: KILN_BAD_INPUT: the file is of another module's states, damaged, or cannot be read or
//         written
KILN_MUST_USE kiln_status kiln_states_save(kiln_session_states *s, const char *path,
                                           kiln_diag *diag);
KILN_MUST_USE kiln_status kiln_states_load(kiln_session_states *s, const char *path,
                                           kiln_diag *diag);

#endif

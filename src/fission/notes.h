// Facts about tensors that the traversal of a graph gathers in addition to the program: a table by
// tensor, which goes with the walk.
#ifndef KILN_FISSION_NOTES_H
#define KILN_FISSION_NOTES_H

#include "fission/bytes.h"

typedef struct kiln_tensor_note {
  const kiln_expr *const *values;  // of a small integer tensor, as expressions of named dimensions
  const kiln_quantised *quantised; // what the tensor was dequantised from
} kiln_tensor_note;

typedef struct kiln_notes {
  kiln_tensor_note *data; // by tensor; NULLs, as behind the end: nothing is known
  int n, cap;
} kiln_notes;

// Drops the notes of tensors from |n| on, whose numbers others get.
void kiln_notes_cut(kiln_notes *io, int n);

#endif

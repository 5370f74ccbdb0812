// Facts about tensors that the traversal of a graph records beside the program, indexed by tensor.
#ifndef KILN_FISSION_NOTES_H
#define KILN_FISSION_NOTES_H

#include "fission/bytes.h"

typedef struct kiln_tensor_note {
  const kiln_expr *const *values;  // of a small integer tensor, as expressions of named dimensions
  const kiln_quantised *quantised; // the operands of the dequantization that made the tensor
} kiln_tensor_note;

typedef struct kiln_notes {
  kiln_tensor_note *data; // by tensor; entries may be NULL, and the table may be shorter: nothing
                          // is known
  int n, cap;
} kiln_notes;

// Drops the notes of tensors from |n| on: their ids will be reused.
void kiln_notes_cut(kiln_notes *io, int n);

#endif

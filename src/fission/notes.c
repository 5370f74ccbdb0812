// The table of notes, as long as the greatest tensor id with a note requires.
#include "fission/notes.h"

static kiln_tensor_note note_of(const kiln_lower *lw, const kiln_tensor *t) {
  const kiln_notes *notes = lw->notes;
  return notes && t->id < notes->n ? notes->data[t->id] : (kiln_tensor_note){0};
}

static kiln_tensor_note *note_at(const kiln_lower *lw, const kiln_tensor *t) {
  kiln_notes *io = lw->notes;
  while (io->n <= t->id) KILN_VEC_PUSH(&lw->cx->perm, io, (kiln_tensor_note){0});
  return &io->data[t->id];
}

const kiln_expr *const *kiln_lower_values(const kiln_lower *lw, const kiln_tensor *t) {
  return note_of(lw, t).values;
}

void kiln_lower_note_values(const kiln_lower *lw, const kiln_tensor *t,
                            const kiln_expr *const *values) {
  if (lw->notes && values) note_at(lw, t)->values = values;
}

const kiln_quantised *kiln_lower_quantised(const kiln_lower *lw, const kiln_tensor *t) {
  return note_of(lw, t).quantised;
}

void kiln_lower_note_quantised(const kiln_lower *lw, const kiln_tensor *t,
                               const kiln_quantised *from) {
  if (lw->notes && from) note_at(lw, t)->quantised = from;
}

void kiln_notes_cut(kiln_notes *io, int n) {
  if (io && io->n > n) io->n = n;
}

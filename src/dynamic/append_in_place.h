// States that grow, appended in place:
//
//     present(b, i, d) = i < p ? past(b, i, d) : new(b, i - p, d)        i < p + t
//
// becomes a store of the new rows only, at an index that the run knows, over what the state has:
//
//     present(b, p + i, d) = new(b, i, d)   if i < t,   over   present(b, i, d) = i < p ? past : 0
//
// Input and output get one shape, the greatest of all buckets, and so one place in memory
// (transform/state_in_place.c). Rows from the length on are 0 there, which the runtime sees to: so
// what a state begins with is its memory as it is, and so is a pad with 0 beyond the length. Those
// readers that select 0 there read what is there.
#ifndef KILN_DYNAMIC_APPEND_IN_PLACE_H
#define KILN_DYNAMIC_APPEND_IN_PLACE_H

#include "model/model.h"

// Changes the programs of all buckets, for those states of |m| whose outputs are so made in each.
void kiln_states_append_in_place(kiln_ctx *cx, kiln_model *m);

#endif

// States of which a step replaces elements in a band of an axis:
//
//     present(b, i, d) = f(b) <= i && i < f(b) + n ? new(b, i, d) : past(b, i, d)
//
// becomes a store of the band's elements only, over what the state has:
//
//     present(b, f(b) + j, d) = new(b, f(b) + j, d)   if j < n,   over   present = past
//
// so that it is stored in place (transform/state_in_place.c). The band is found in the condition of
// the statement: bounds of an index that differ by less than half of the axis. Conditions that
// other statements compute, as masks are, and tables whose entries are an affine function of their
// index, are looked through.
#ifndef KILN_DYNAMIC_UPDATE_IN_PLACE_H
#define KILN_DYNAMIC_UPDATE_IN_PLACE_H

#include "model/model.h"

// Changes the program of |m|, or those of all buckets, for the states that are so made.
void kiln_states_update_in_place(kiln_ctx *cx, kiln_model *m);

#endif

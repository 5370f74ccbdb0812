// Cases of the rules that take axes and constant places apart.
#ifndef KILN_TEST_REWRITE_AXES_H
#define KILN_TEST_REWRITE_AXES_H

#include "unit/rewrite/rules.h"

static const rule_case unflatten[] = {
    // a product with its bias between two reshapes; with a map in front and one behind, of windows
    // whose rows are cut from both axes of an image
    {"p { in f32 X(3, 4, 6) const f32 W(6, 5) = ... const f32 B(5) = ... temp f32 R(12, 6) "
     "temp f32 T(12, 5) temp f32 S(12, 5) out f32 Y(3, 4, 5)\n"
     "R(i0:12, i1:6) = X(i0/4, i0%4, i1) T(i0:12, i1:5 | r0:6) +=! R(i0, r0)*W(r0, i1)\n"
     "S(i0:12, i1:5) = T(i0, i1) + B(i1) Y(i0:3, i1:4, i2:5) = exp(S(i0*4 + i1, i2)) }",
     1, 4},
    {"p { in f32 X(2, 2, 2, 3, 6) const f32 W(6, 5) = ... temp f32 R(24, 6) temp f32 E(24, 6) "
     "temp f32 T(24, 5) temp f32 S(24, 5) out f32 Y(4, 5, 6)\n"
     "R(i0:24, i1:6) = X(i0/12, i0/3%2, i0/6%2, i0%3, i1) E(i0:24, i1:6) = R(i0, i1)*0.5f32\n"
     "T(i0:24, i1:5 | r0:6) +=! W(r0, i1)*E(i0, r0) S(i0:24, i1:5) = exp(T(i0, i1))\n"
     "Y(i0:4, i1:5, i2:6) = S(i0*6 + i2, i1) }",
     1, 5},
    // three axes become one and three again: two splits; two products in a row; two readers
    {"p { in f32 X(2, 3, 4, 6) const f32 W(6, 5) = ... const f32 V(5, 2) = ... temp f32 R(24, 6) "
     "temp f32 T(24, 5) temp f32 U(24, 2) out f32 Y(2, 3, 4, 2) out f32 Z(2, 4, 3, 5)\n"
     "R(i0:24, i1:6) = X(i0/12, i0/4%3, i0%4, i1) T(i0:24, i1:5 | r0:6) +=! R(i0, r0)*W(r0, i1)\n"
     "U(i0:24, i1:2 | r0:5) +=! T(i0, r0)*V(r0, i1)\n"
     "Y(i0:2, i1:3, i2:4, i3:2) = exp(U(i0*12 + i1*4 + i2, i3))\n"
     "Z(i0:2, i1:4, i2:3, i3:5) = T(i0*12 + i2*4 + i1, i3) }",
     2, 5},
    // heads beside each other: what is summed stays flat
    {"p { in f32 X(3, 2, 4, 3) const f32 W(6, 5) = ... temp f32 R(12, 6) temp f32 T(12, 5) "
     "out f32 Y(3, 4, 5)\n"
     "R(i0:12, i1:6) = X(i0/4, i1/3, i0%4, i1%3) T(i0:12, i1:5 | r0:6) +=! R(i0, r0)*W(r0, i1)\n"
     "Y(i0:3, i1:4, i2:5) = T(i0*4 + i1, i2) }",
     1, 3},
    // the rows are a result; are summed; are cut elsewhere behind; come flat; weights differ
    // between rows; a row needs its number; no product
    {"p { in f32 X(3, 4, 6) const f32 W(6, 5) = ... temp f32 R(12, 6) out f32 T(12, 5)\n"
     "R(i0:12, i1:6) = X(i0/4, i0%4, i1) T(i0:12, i1:5 | r0:6) +=! R(i0, r0)*W(r0, i1) }",
     0, 2},
    {"p { in f32 X(3, 4, 6) const f32 W(6, 5) = ... temp f32 R(12, 6) temp f32 T(12, 5) "
     "out f32 Y(5)\n"
     "R(i0:12, i1:6) = X(i0/4, i0%4, i1) T(i0:12, i1:5 | r0:6) +=! R(i0, r0)*W(r0, i1)\n"
     "Y(i0:5 | r0:12) +=! T(r0, i0) }",
     0, 3},
    {"p { in f32 X(3, 4, 6) const f32 W(6, 5) = ... temp f32 R(12, 6) temp f32 T(12, 5) "
     "out f32 Y(4, 3, 5)\n"
     "R(i0:12, i1:6) = X(i0/4, i0%4, i1) T(i0:12, i1:5 | r0:6) +=! R(i0, r0)*W(r0, i1)\n"
     "Y(i0:4, i1:3, i2:5) = T(i0*3 + i1, i2) }",
     0, 3},
    {"p { in f32 X(12, 6) const f32 W(6, 5) = ... temp f32 T(12, 5) out f32 Y(3, 4, 5)\n"
     "T(i0:12, i1:5 | r0:6) +=! X(i0, r0)*W(r0, i1) Y(i0:3, i1:4, i2:5) = T(i0*4 + i1, i2) }",
     0, 2},
    {"p { in f32 X(3, 4, 6) const f32 W(12, 6, 5) = ... temp f32 R(12, 6) temp f32 T(12, 5) "
     "out f32 Y(3, 4, 5)\n"
     "R(i0:12, i1:6) = X(i0/4, i0%4, i1) T(i0:12, i1:5 | r0:6) +=! R(i0, r0)*W(i0, r0, i1)\n"
     "Y(i0:3, i1:4, i2:5) = T(i0*4 + i1, i2) }",
     0, 3},
    {"p { in f32 X(3, 4, 6) const f32 W(6, 5) = ... temp f32 R(12, 6) temp f32 T(12, 5) "
     "temp f32 S(12, 5) out f32 Y(3, 4, 5)\n"
     "R(i0:12, i1:6) = X(i0/4, i0%4, i1) T(i0:12, i1:5 | r0:6) +=! R(i0, r0)*W(r0, i1)\n"
     "S(i0:12, i1:5) = i0 < 7 ? T(i0, i1) : 0f32 Y(i0:3, i1:4, i2:5) = S(i0*4 + i1, i2) }",
     0, 4},
    {"p { in f32 X(3, 4, 6) temp f32 R(12, 6) temp f32 T(12, 6) out f32 Y(3, 4, 6)\n"
     "R(i0:12, i1:6) = X(i0/4, i0%4, i1) T(i0:12, i1:6) = exp(R(i0, i1))\n"
     "Y(i0:3, i1:4, i2:6) = T(i0*4 + i1, i2) }",
     0, 3},
    // windows keep the axes that convolutions know
    {"p { in f32 X(3, 4, 2, 5) const f32 W(3, 2, 3) = ... temp f32 R(12, 2, 5) "
     "temp f32 T(12, 3, 3) out f32 Y(3, 4, 3, 3)\n"
     "R(i0:12, i1:2, i2:5) = X(i0/4, i0%4, i1, i2)\n"
     "T(i0:12, i1:3, i2:3 | r0:2, r1:3) +=! R(i0, r0, i2 + r1)*W(i1, r0, r1)\n"
     "Y(i0:3, i1:4, i2:3, i3:3) = T(i0*4 + i1, i2, i3) }",
     0, 3},
};

// Tables are of i64: 2 4 6; 1 0; 0 2 1 3; 5 3 4 2 3 1.
static const rule_case gathers[] = {
    // every second row, reversed columns
    {"p { in f32 X(8, 2) const i64 P(3) = 0x020000000000000004000000000000000600000000000000 "
     "const i64 Q(2) = 0x01000000000000000000000000000000 out f32 Y(3, 2)\n"
     "Y(i0:3, i1:2) = X(P(i0), Q(i1)) }",
     2, 1},
    // two digits change places; those that fall
    {"p { in f32 X(4, 3) const i64 P(4) = "
     "0x0000000000000000020000000000000001000000000000000300000000000000 out f32 Y(4, 3)\n"
     "Y(i0:4, i1:3) = X(P(i0), i1) + X(P(3 - i0), i1) }",
     2, 1},
    {"p { in f32 X(6) const i64 P(6) = "
     "0x050000000000000003000000000000000400000000000000020000000000000003000000000000000100000000"
     "000000 out f32 Y(6) Y(i0:6) = X(P(i0)) }",
     1, 1},
    // four parts of two, each in an order of its own: 6 7 2 3 5 4 0 1
    {"p { in f32 X(8) const i64 P(8) = "
     "0x060000000000000007000000000000000200000000000000030000000000000005000000000000000400000000"
     "00000000000000000000000100000000000000 out f32 Y(8) Y(i0:8) = X(P(i0)) }",
     1, 1},
    // a place that comes twice in a row, no order, a table that is data, places that are values
    {"p { in f32 X(4) in i64 R(4) const i64 P(4) = "
     "0x0000000000000000000000000000000001000000000000000100000000000000 const i64 Q(4) = "
     "0x0000000000000000020000000000000003000000000000000100000000000000 out f32 Y(4) out i64 "
     "Z(4)\n"
     "Y(i0:4) = X(P(i0)) + X(Q(i0)) + X(R(i0)) Z(i0:4) = Q(3 - i0) }",
     0, 2},
};

#endif

// Cases of the rules of linear algebra.
#ifndef KILN_TEST_REWRITE_ALGEBRA_H
#define KILN_TEST_REWRITE_ALGEBRA_H

#include "unit/rewrite/rules.h"

// Q is (12, 2), K (2, 12), V (12, 3): (Q K) V takes 12*12*(2 + 3) multiplications, Q (K V)
// 12*2*3*2.
static const rule_case reassociate[] = {
    {"p { in f32 Q(12, 2) in f32 K(2, 12) in f32 V(12, 3) temp f32 T(12, 12) out f32 Y(12, 3)\n"
     "T(i0:12, i1:12 | r0:2) +=! Q(i0, r0)*K(r0, i1)\n"
     "Y(i0:12, i1:3 | r0:12) +=! T(i0, r0)*V(r0, i1) }",
     1, 2},
    // a scale in between, operands swapped, a transposed load
    {"p { in f32 Q(12, 2) in f32 K(2, 12) in f32 V(12, 3) temp f32 T(12, 12) temp f32 S(12, 12) "
     "temp f32 Z(12, 12) out f32 Y(12, 3)\n"
     "T(i0:12, i1:12 | r0:2) +=! K(r0, i0)*Q(i1, r0)\n"
     "S(i0:12, i1:12) = T(i0, i1)/8f32\n"
     "Z(i0:12, i1:12) = S(i1, i0)\n"
     "Y(i0:12, i1:3 | r0:12) +=! V(r0, i1)*Z(i0, r0) }",
     1, 2},
    // parallel heads: each product loses one reduction
    {"p { in f32 Q(2, 12, 2) in f32 K(2, 2, 12) in f32 V(24, 3) temp f32 T(2, 12, 12) "
     "temp f32 R(12, 24) out f32 Y(12, 3)\n"
     "T(i0:2, i1:12, i2:12 | r0:2) +=! Q(i0, i1, r0)*K(i0, r0, i2)\n"
     "R(i0:12, i1:24) = T(i1/12, i0, i1%12)\n"
     "Y(i0:12, i1:3 | r0:24) +=! R(i0, r0)*V(r0, i1) }",
     1, 2},
    // a nonlinear map in between
    {"p { in f32 Q(12, 2) in f32 K(2, 12) in f32 V(12, 3) temp f32 T(12, 12) temp f32 E(12, 12) "
     "out f32 Y(12, 3)\n"
     "T(i0:12, i1:12 | r0:2) +=! Q(i0, r0)*K(r0, i1)\n"
     "E(i0:12, i1:12) = exp(T(i0, i1))\n"
     "Y(i0:12, i1:3 | r0:12) +=! E(i0, r0)*V(r0, i1) }",
     0, 3},
    // a scale that is not constant
    {"p { in f32 Q(12, 2) in f32 K(2, 12) in f32 V(12, 3) in f32 F(12) temp f32 T(12, 12) "
     "temp f32 S(12, 12) out f32 Y(12, 3)\n"
     "T(i0:12, i1:12 | r0:2) +=! Q(i0, r0)*K(r0, i1)\n"
     "S(i0:12, i1:12) = T(i0, i1)*F(i1)\n"
     "Y(i0:12, i1:3 | r0:12) +=! S(i0, r0)*V(r0, i1) }",
     0, 3},
    // T has another reader
    {"p { in f32 Q(12, 2) in f32 K(2, 12) in f32 V(12, 3) temp f32 T(12, 12) out f32 Y(12, 3) "
     "out f32 X(12)\n"
     "T(i0:12, i1:12 | r0:2) +=! Q(i0, r0)*K(r0, i1)\n"
     "X(i0:12 | r0:12) max=! T(i0, r0)\n"
     "Y(i0:12, i1:3 | r0:12) +=! T(i0, r0)*V(r0, i1) }",
     0, 3},
    // deeper than long: the order is optimal already
    {"p { in f32 Q(4, 12) in f32 K(12, 4) in f32 V(4, 12) temp f32 T(4, 4) out f32 Y(4, 12)\n"
     "T(i0:4, i1:4 | r0:12) +=! Q(i0, r0)*K(r0, i1)\n"
     "Y(i0:4, i1:12 | r0:4) +=! T(i0, r0)*V(r0, i1) }",
     0, 2},
    // both factors depend on the sum
    {"p { in f32 Q(12, 2) in f32 K(12, 12) in f32 V(12, 3) temp f32 T(12) out f32 Y(12)\n"
     "T(i0:12 | r0:2) +=! Q(i0, r0)*K(i0, r0)\n"
     "Y(i0:12 | r0:12) +=! T(r0)*K(r0, i0) }",
     0, 2},
    // padded: not linear at the border
    {"p { in f32 X(8, 2) const f32 W(2, 8) = ... const f32 U(8, 2, 3) = ... temp f32 T(8, 8) "
     "temp f32 P(10, 8) out f32 Y(8, 2)\n"
     "T(i0:8, i1:8 | r0:2) +=! X(i0, r0)*W(r0, i1)\n"
     "P(i0:10, i1:8) = i0 >= 1 && i0 < 9 ? T(i0 - 1, i1) : 0f32\n"
     "Y(i0:8, i1:2 | r0:8, r1:3) +=! P(i0 + r1, r0)*U(r0, i1, r1) }",
     0, 3},
    // Two layers: X is (9, 3), widened to 8, narrowed to 2; products of weights alone are left to
    // `constants`.
    {"p { in f32 X(9, 3) const f32 W(3, 8) = ... const f32 B(8) = ... const f32 U(8, 2) = ... "
     "const f32 F(8) = ... temp f32 T(9, 8) temp f32 A(9, 8) out f32 Y(9, 2)\n"
     "T(i0:9, i1:8 | r0:3) +=! X(i0, r0)*W(r0, i1)\n"
     "A(i0:9, i1:8) = 2f32 - (T(i0, i1) + B(i1))*F(i1)\n"
     "Y(i0:9, i1:2 | r0:8) +=! A(i0, r0)*U(r0, i1) }",
     1, 4},
    // two layers of one row: products of weights alone stay constant, although computing them in a
    // run would take longer
    {"p { in f32 X(1, 16) const f32 W(16, 12) = ... const f32 V(12, 8) = ... temp f32 T(1, 12) "
     "out f32 Y(1, 8)\n"
     "T(i0:1, i1:12 | r0:16) +=! X(i0, r0)*W(r0, i1)\n"
     "Y(i0:1, i1:8 | r0:12) +=! T(i0, r0)*V(r0, i1) }",
     1, 2},
    // behind a window, in other axes
    {"p { in f32 X(1, 3, 6, 6) const f32 W(8, 3, 3, 3) = ... const f32 B(8) = ... "
     "const f32 U(8, 2) = ... temp f32 T(1, 8, 4, 4) temp f32 A(1, 16, 8) out f32 Y(1, 16, 2)\n"
     "T(i0:1, i1:8, i2:4, i3:4 | r0:3, r1:3, r2:3) +=! X(i0, r0, i2 + r1, i3 + r2)*W(i1, r0, r1, "
     "r2)\n"
     "A(i0:1, i1:16, i2:8) = T(0, i2, i1/4, i1%4) - B(i2)\n"
     "Y(i0:1, i1:16, i2:2 | r0:8) +=! A(0, i1, r0)*U(r0, i2) }",
     1, 4},
    // before one: the border is cropped instead of padded
    {"p { in f32 X(1, 3, 6, 6) const f32 W(8, 3, 1, 1) = ... const f32 U(2, 8, 3, 3) = ... "
     "temp f32 T(1, 8, 6, 6) out f32 Y(1, 2, 4, 4)\n"
     "T(i0:1, i1:8, i2:6, i3:6 | r0:3, r1:1, r2:1) +=! X(i0, r0, i2 + r1, i3 + r2)*W(i1, r0, r1, "
     "r2)\n"
     "Y(i0:1, i1:2, i2:4, i3:4 | r0:8, r1:3, r2:3) +=! T(i0, r0, i2 + r1, i3 + r2)*U(i1, r0, r1, "
     "r2) }",
     1, 2},
    // a bottleneck: its two factors are thin on purpose
    {"p { in f32 X(9, 8) const f32 W(8, 2) = ... const f32 U(2, 8) = ... temp f32 T(9, 2) "
     "out f32 Y(9, 8)\n"
     "T(i0:9, i1:2 | r0:8) +=! X(i0, r0)*W(r0, i1)\n"
     "Y(i0:9, i1:8 | r0:2) +=! T(i0, r0)*U(r0, i1) }",
     0, 2},
};

static const rule_case ones[] = {
    // a mean and a contraction with weights, before it and after it; views are left to inlining
    {"p { in f32 X(4, 6) const f32 W(6, 5) = ... temp f32 S(4) temp f32 P(4, 5) temp f32 M(4) "
     "out f32 Y(4, 5)\n"
     "S(i0:4 | r0:6) +=! X(i0, r0) M(i0:4) = S(i0)/6f32\n"
     "P(i0:4, i1:5 | r0:6) +=! W(r0, i1)*X(i0, r0) Y(i0:4, i1:5) = P(i0, i1)*M(i0) }",
     1, 6},
    {"p { in f32 X(1, 6, 4) const f32 W(5, 6) = ... out f32 P(1, 5, 4) out f32 S(1, 4)\n"
     "P(i0:1, i1:5, i2:4 | r0:6) +=! X(i0, r0, i2)*W(i1, r0) S(i0:1, i1:4 | r0:6) +=! X(0, r0, "
     "i1) }",
     1, 4},
    // a softmax, batched, with values that are computed
    {"p { in f32 U(2, 4, 6) in f32 V(2, 6, 3) temp f32 M(2, 4) temp f32 E(2, 4, 6) temp f32 S(2, "
     "4) temp f32 Q(2, 4, 6)\n"
     "temp f32 G(2, 6, 3) out f32 Y(2, 4, 3)\n"
     "G(i0:2, i1:6, i2:3) = exp(V(i0, i1, i2)) M(i0:2, i1:4 | r0:6) max=! U(i0, i1, r0)\n"
     "E(i0:2, i1:4, i2:6) = exp(U(i0, i1, i2) - M(i0, i1)) S(i0:2, i1:4 | r0:6) +=! E(i0, i1, "
     "r0)\n"
     "Q(i0:2, i1:4, i2:6) = E(i0, i1, i2)*(1f32/S(i0, i1))\n"
     "Y(i0:2, i1:4, i2:3 | r0:6) +=! Q(i0, i1, r0)*G(i0, r0, i2) }",
     1, 7},
    // both axes are summed
    {"p { in f32 X(4, 6, 2) const f32 W(2, 5, 6) = ... temp f32 S(4) temp f32 P(5, 4) out f32 Y(5, "
     "4)\n"
     "S(i0:4 | r0:6, r1:2) +=! X(i0, r0, r1) P(i0:5, i1:4 | r0:2, r1:6) +=! X(i1, r1, r0)*W(r0, "
     "i0, r1)\n"
     "Y(i0:5, i1:4) = P(i0, i1)/S(i1) }",
     1, 5},
    // another operand, another axis, one axis of two, a maximum, a guard, squares, an operand
    // without a contraction
    {"p { in f32 X(6, 6) in f32 Z(6, 6) const f32 W(6, 5) = ... temp f32 A(6) temp f32 B(6) temp "
     "f32 C(1) temp f32 D(6)\n"
     "temp f32 E(6) temp f32 F(6) temp f32 P(6, 5) out f32 Y(6, 5)\n"
     "A(i0:6 | r0:6) +=! Z(i0, r0) B(i0:6 | r0:6) +=! X(r0, i0) C(i0:1 | r0:6, r1:6) +=! X(r0, "
     "r1)\n"
     "D(i0:6 | r0:6) max=! X(i0, r0) E(i0:6 | r0:6) +=! X(i0, r0) if r0 < 3\n"
     "F(i0:6 | r0:6) +=! X(i0, r0)*X(i0, r0) P(i0:6, i1:5 | r0:6) +=! X(i0, r0)*W(r0, i1)\n"
     "Y(i0:6, i1:5) = P(i0, i1) + A(i0) + B(i0)*C(0) + D(i0) + E(i0) + F(i0) }",
     0, 8},
    // no columns, columns of a part of the weights, values after the sum that includes them
    {"p { in f32 X(4, 6) const f32 w(6) = ... const f32 W(6, 7) = ... temp f32 S(4) temp f32 V(6, "
     "5) out f32 Y(4) out f32 Z(4, 5) out f32 T(4, 5)\n"
     "Y(i0:4 | r0:6) +=! X(i0, r0)*w(r0) Z(i0:4, i1:5 | r0:6) +=! X(i0, r0)*W(r0, i1) S(i0:4 | "
     "r0:6) +=! X(i0, r0)\n"
     "V(i0:6, i1:5) = S(i1%4)*W(i0, i1) T(i0:4, i1:5 | r0:6) +=! X(i0, r0)*V(r0, i1) }",
     0, 5},
    // a softmax: Y is larger than E, the quotient has other readers, the divisor depends on the sum
    {"p { in f32 E(4, 6) const f32 W(6, 7) = ... const f32 V(6, 3) = ... temp f32 S(4) temp f32 "
     "Q(4, 6) temp f32 R(4, 6) temp f32 U(4, 6)\n"
     "out f32 Y(4, 7) out f32 Z(4, 3) out f32 T(4, 6) out f32 G(4, 3)\n"
     "S(i0:4 | r0:6) +=! E(i0, r0) Q(i0:4, i1:6) = E(i0, i1)/S(i0) R(i0:4, i1:6) = E(i0, "
     "i1)/S(i0)\n"
     "U(i0:4, i1:6) = E(i0, i1)/S(i1%4) Y(i0:4, i1:7 | r0:6) +=! Q(i0, r0)*W(r0, i1)\n"
     "T(i0:4, i1:6) = exp(R(i0, i1)) Z(i0:4, i1:3 | r0:6) +=! R(i0, r0)*V(r0, i1)\n"
     "G(i0:4, i1:3 | r0:6) +=! U(i0, r0)*V(r0, i1) }",
     0, 8},
};

// N is (2, 40), its rows and those of M divided by their lengths; the product is (2, 2).
static const rule_case defer[] = {
    {"p { in f32 N(2, 40) in f32 M(3, 40) temp f32 A(2) temp f32 L(2, 1) temp f32 E(2, 40) "
     "temp f32 U(2, 40) temp f32 V(40, 2) out f32 Y(3, 2)\n"
     "A(i0:2 | r0:40) +=! N(i0, r0)*N(i0, r0)\n"
     "L(i0:2, i1:1) = max(sqrt(A(i0)), 0.001f32)\n"
     "E(i0:2, i1:40) = L(i0, 0)\n"
     "U(i0:2, i1:40) = N(i0, i1)/E(i0, i1)\n"
     "V(i0:40, i1:2) = U(i1, i0)\n"
     "Y(i0:3, i1:2 | r0:40) +=! M(i0, r0)*V(r0, i1) }",
     1, 4},
    // both operands, one after the other; a product with a reciprocal
    {"p { in f32 N(2, 40) in f32 D(2) in f32 F(2) temp f32 U(2, 40) temp f32 V(2, 40) out f32 Y(2, "
     "2)\n"
     "U(i0:2, i1:40) = N(i0, i1)/D(i0)\n"
     "V(i0:2, i1:40) = (1f32/F(i0))*N(i0, i1)\n"
     "Y(i0:2, i1:2 | r0:40) +=! U(i0, r0)*V(i1, r0) }",
     2, 3},
    // the divisor depends on the sum
    {"p { in f32 N(2, 40) in f32 D(40) in f32 M(2, 40) temp f32 U(2, 40) out f32 Y(2, 2)\n"
     "U(i0:2, i1:40) = N(i0, i1)/D(i1)\n"
     "Y(i0:2, i1:2 | r0:40) +=! U(i0, r0)*M(i1, r0) }",
     0, 2},
    // the operand is the divisor
    {"p { in f32 N(2, 40) in f32 D(2) in f32 M(2, 40) temp f32 U(2, 40) out f32 Y(2, 2)\n"
     "U(i0:2, i1:40) = D(i0)/N(i0, i1)\n"
     "Y(i0:2, i1:2 | r0:40) +=! U(i0, r0)*M(i1, r0) }",
     0, 2},
    // the result is larger
    {"p { in f32 N(2, 4) in f32 D(2) in f32 M(40, 4) temp f32 U(2, 4) out f32 Y(2, 40)\n"
     "U(i0:2, i1:4) = N(i0, i1)/D(i0)\n"
     "Y(i0:2, i1:40 | r0:4) +=! U(i0, r0)*M(i1, r0) }",
     0, 2},
    // the quotient has other readers
    {"p { in f32 N(2, 40) in f32 D(2) in f32 M(2, 40) temp f32 U(2, 40) out f32 Y(2, 2) out f32 "
     "Z(2)\n"
     "U(i0:2, i1:40) = N(i0, i1)/D(i0)\n"
     "Z(i0:2 | r0:40) max=! U(i0, r0)\n"
     "Y(i0:2, i1:2 | r0:40) +=! U(i0, r0)*M(i1, r0) }",
     0, 3},
    // a softmax's own sum
    {"p { in f32 X(2, 40) in f32 M(40, 2) temp f32 E(2, 40) temp f32 S(2) temp f32 P(2, 40) out "
     "f32 "
     "Y(2, 2)\n"
     "E(i0:2, i1:40) = exp(X(i0, i1))\n"
     "S(i0:2 | r0:40) +=! E(i0, r0)\n"
     "P(i0:2, i1:40) = E(i0, i1)*(1f32/S(i0))\n"
     "Y(i0:2, i1:2 | r0:40) +=! P(i0, r0)*M(r0, i1) }",
     0, 4},
};

// A convolution of two channels to three.
static const rule_case scale[] = {
    // bias and batch normalization
    {"p { in f32 X(1, 2, 8, 8) const f32 W(3, 2, 3, 3) = ... const f32 B(3) = ... const f32 F(3) = "
     "... "
     "const f32 S(3) = ... temp f32 C(1, 3, 6, 6) temp f32 T(1, 3, 6, 6) temp f32 N(1, 3, 6, 6) "
     "out f32 Y(1, 3, 6, 6)\n"
     "C(i0:1, i1:3, i2:6, i3:6 | r0:2, r1:3, r2:3) +=! X(i0, r0, i2 + r1, i3 + r2)*W(i1, r0, r1, "
     "r2)\n"
     "T(i0:1, i1:3, i2:6, i3:6) = C(0, i1, i2, i3) + B(i1)\n"
     "N(i0:1, i1:3, i2:6, i3:6) = T(i0, i1, i2, i3)*F(i1) + S(i1)\n"
     "Y(i0:1, i1:3, i2:6, i3:6) = max(N(0, i1, i2, i3), 0f32) }",
     1, 5},
    // a divisor inside of a map, and another tensor
    {"p { in f32 X(9, 2) in f32 Z(9, 3) const f32 W(2, 3) = ... temp f32 T(9, 3) out f32 Y(9, 3)\n"
     "T(i0:9, i1:3 | r0:2) +=! X(i0, r0)*W(r0, i1)\n"
     "Y(i0:9, i1:3) = Z(i0, i1) + tanh(T(i0, i1)/8f32) }",
     1, 3},
    // before the contraction, after a transposition
    {"p { in f32 X(9, 2) const f32 F(2) = ... const f32 W(2, 3) = ... temp f32 U(9, 2) temp f32 "
     "V(2, 9) "
     "out f32 Y(9, 3)\n"
     "U(i0:9, i1:2) = X(i0, i1)*F(i1)\n"
     "V(i0:2, i1:9) = U(i1, i0)\n"
     "Y(i0:9, i1:3 | r0:2) +=! V(r0, i0)*W(r0, i1) }",
     1, 2},
    // along an axis on which the weights do not depend
    {"p { in f32 X(9, 2) const f32 F(9) = ... const f32 W(2, 3) = ... temp f32 T(9, 3) out f32 "
     "Y(9, 3)\n"
     "T(i0:9, i1:3 | r0:2) +=! X(i0, r0)*W(r0, i1)\n"
     "Y(i0:9, i1:3) = T(i0, i1)*F(i0) }",
     0, 2},
    // more weights than results
    {"p { in f32 X(1, 2) const f32 F(3) = ... const f32 W(2, 3) = ... temp f32 T(1, 3) out f32 "
     "Y(1, 3)\n"
     "T(i0:1, i1:3 | r0:2) +=! X(i0, r0)*W(r0, i1)\n"
     "Y(i0:1, i1:3) = T(i0, i1)*F(i1) }",
     0, 2},
    // the unscaled result has another reader
    {"p { in f32 X(9, 2) const f32 W(2, 3) = ... temp f32 T(9, 3) out f32 Y(9, 3)\n"
     "T(i0:9, i1:3 | r0:2) +=! X(i0, r0)*W(r0, i1)\n"
     "Y(i0:9, i1:3) = T(i0, i1)*tanh(T(i0, i1)*2f32) }",
     0, 2},
    // the factor is not constant; no operand is constant
    {"p { in f32 X(9, 2) in f32 F(3) const f32 W(2, 3) = ... temp f32 T(9, 3) out f32 Y(9, 3)\n"
     "T(i0:9, i1:3 | r0:2) +=! X(i0, r0)*W(r0, i1)\n"
     "Y(i0:9, i1:3) = T(i0, i1)*F(i1) }",
     0, 2},
    {"p { in f32 X(9, 2) const f32 F(3) = ... in f32 W(2, 3) temp f32 T(9, 3) out f32 Y(9, 3)\n"
     "T(i0:9, i1:3 | r0:2) +=! X(i0, r0)*W(r0, i1)\n"
     "Y(i0:9, i1:3) = T(i0, i1)*F(i1) }",
     0, 2},
    // it has another reader
    {"p { in f32 X(3, 2) const f32 F(3) = ... const f32 W(2, 3) = ... temp f32 T(3, 3) out f32 "
     "Y(3, 3)\n"
     "T(i0:3, i1:3 | r0:2) +=! X(i0, r0)*W(r0, i1)\n"
     "Y(i0:3, i1:3) = T(i1, i0)*F(i1) }",
     0, 2},
};

#endif

// The index of an operand as digits of a mixed-radix number: x(b * 6000 + c * 100 + p), whose x has
// one axis, has the digits b, c and p.
#ifndef KILN_TEMPLATE_CPU_ADDRESS_H
#define KILN_TEMPLATE_CPU_ADDRESS_H

#include "template/cpu/contraction.h"

enum { KILN_MAX_DIGITS = 8 };

// An axis of the operand, or a part of one: adds |e| * |coef| to its index.
typedef struct kiln_digit {
  const kiln_expr *e;
  int64_t coef;
} kiln_digit;

// Outermost first. Where |is_cut|, the digits are parts of the operand's one axis.
typedef struct kiln_address {
  int n;
  kiln_digit digits[KILN_MAX_DIGITS];
  bool is_cut;
} kiln_address;

// Reads the index of |load|, an operand of |k|.
//
// gives: false where it is no sum of digits
bool kiln_address_read(const kiln_contraction *k, const kiln_expr *load, kiln_address *out);
// Lets the schedule read the operand of |load| by an axis for each digit.
KILN_MUST_USE kiln_status kiln_address_view(const kiln_contraction *k, const kiln_expr *load,
                                            const kiln_address *a);

#endif

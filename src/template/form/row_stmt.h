// Statements that share a product's rows, on GPUs: in front of it, of its left operand's elements
// (norm.h), or behind it, of its results (strip.h).
#ifndef KILN_TEMPLATE_FORM_ROW_STMT_H
#define KILN_TEMPLATE_FORM_ROW_STMT_H

#include "template/form/product.h"

// A contraction's rows, all of its space dims but the last, and how many columns are beside them.
typedef struct kiln_rows_of {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_stmt *t; // the contraction
  int n_rows;         // dims
  int64_t columns;
} kiln_rows_of;

typedef enum kiln_row_kind {
  KILN_ROW_ELEMENTS, // a map of rows and columns
  KILN_ROW_SUM,      // a sum or maximum along the columns
  KILN_ROW_MAP       // a map of rows
} kiln_row_kind;

// The kind of |s|; false: it has none. Sums and maps of rows are f32 or the like, and not stored.
bool kiln_row_kind_of(const kiln_rows_of *r, const kiln_stmt *s, kiln_row_kind *out);
// Whether |s| reads what these statements compute at its own rows and columns, which are its first
// dims.
bool kiln_row_reads_in_place(const kiln_rows_of *r, const kiln_stmt *s);

// What such statements become.
typedef enum kiln_row_nest {
  KILN_NEST_ELEMENTS, // a map of elements
  KILN_NEST_PARTS,    // of a sum or maximum, the columns of each lane
  KILN_NEST_WHOLE,    // the same of the four
  KILN_NEST_ROWS      // a map of rows' copies
} kiln_row_nest;
enum {
  KILN_ROW_CAPABILITY = 80, // of the GPUs that have such forms
  KILN_ROW_UNIT = 16        // columns come in multiples of it
};
enum { KILN_QUAD = 4 };                             // copies of what is known of a row
kiln_row_nest kiln_row_nest_of(const kiln_stmt *s); // of one over rows' copies

// What is known of a row lies with the four lanes of a quad, a copy each (quad_reduce.h), which |q|
// numbers. A sum or maximum
// |combiner| of |body| over |extent| columns is that of each lane's own columns, 8*h + 2*q + e, in
// a statement that is appended to |io|, and then that of the four, which is given.
enum {
  KILN_ROW_MOST = 16,
  KILN_ROW_MADE = 48
}; // statements of a program that become such, and what they become
typedef struct kiln_row_list {
  kiln_stmt *stmts[KILN_ROW_MADE];
  int n;
} kiln_row_list;
const kiln_expr *kiln_row_column(kiln_ctx *cx);                           // 8*h + 2*q + e
const kiln_expr *kiln_row_copy(kiln_ctx *cx);                             // q
const kiln_expr *kiln_row_copy_of(kiln_ctx *cx, const kiln_expr *column); // of the lane that has it
kiln_stmt *kiln_row_add(const kiln_product_numbers *f, kiln_row_list *io, kiln_stmt *s,
                        kiln_combiner combiner, const kiln_expr *body);
// A statement over the rows' copies and |n_more| dims that it reduces, whose tensor is a new TEMP.
kiln_stmt *kiln_row_over(const kiln_product_numbers *f, const kiln_row_list *l, const char *name,
                         kiln_dtype t, int n_more, const kiln_symbol *more, const int64_t *extents);
kiln_stmt *kiln_row_reduce(const kiln_product_numbers *f, kiln_row_list *io, kiln_combiner combiner,
                           int64_t extent, const kiln_expr *body);
kiln_tensor *kiln_row_temp(const kiln_product_numbers *f, const kiln_row_list *l, const char *name,
                           kiln_dtype t);
// |e| in f32 if it is half, and not rounded to halves on the way to what it is.
const kiln_expr *kiln_row_unrounded(kiln_ctx *cx, const kiln_expr *e);

#endif

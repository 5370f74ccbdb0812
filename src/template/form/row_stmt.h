// Statements over the rows of a product, on GPUs: a normalization prologue of its left operand
// (norm_prologue.h) or a row-wise epilogue of its results (row_epilogue.h).
#ifndef KILN_TEMPLATE_FORM_ROW_STMT_H
#define KILN_TEMPLATE_FORM_ROW_STMT_H

#include "template/form/product.h"

// The rows of a contraction, which are all of its space dims but the last, and their columns.
typedef struct kiln_rows_of {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_stmt *t; // the contraction
  int n_rows;         // number of dims
  int64_t columns;
} kiln_rows_of;

typedef enum kiln_row_kind {
  KILN_ROW_ELEMENTS, // a map of rows and columns
  KILN_ROW_SUM,      // a sum or maximum along the columns
  KILN_ROW_MAP       // a map of rows
} kiln_row_kind;

// The kind of |s|; false if it has none. Sums and maps of rows are f32 or wider, and not stored.
bool kiln_row_kind_of(const kiln_rows_of *r, const kiln_stmt *s, kiln_row_kind *out);
// Whether |s| loads the results of these statements at its own rows and columns, which are its
// first dims.
bool kiln_row_reads_in_place(const kiln_rows_of *r, const kiln_stmt *s);

// The statement that such a statement becomes.
typedef enum kiln_row_nest {
  KILN_NEST_ELEMENTS, // a map of elements
  KILN_NEST_PARTS,    // a lane's part of a sum or maximum, over its columns
  KILN_NEST_WHOLE,    // the combination of the four lanes' parts
  KILN_NEST_ROWS      // a map of rows, for each copy
} kiln_row_nest;
enum {
  KILN_ROW_CAPABILITY = 80, // the least compute capability
  KILN_ROW_UNIT = 16        // columns are a multiple of it
};
enum { KILN_QUAD = 4 }; // copies of a row's results
// the kind of |s|, a statement over rows' copies
kiln_row_nest kiln_row_nest_of(const kiln_stmt *s);

// Each of the four lanes of a quad (quad_reduce.h) has a copy of a row's results; q numbers the
// copies. A sum or maximum |combiner| of |body| over |extent| columns becomes two statements: one
// over each lane's own columns, 8*h + 2*q + e, which is appended to |io|, and the combination of
// the four lanes, which is returned.
enum {
  KILN_ROW_MOST = 16,
  KILN_ROW_MADE = 48
}; // the most statements of a program, and the most that they become
typedef struct kiln_row_list {
  kiln_stmt *stmts[KILN_ROW_MADE];
  int n;
} kiln_row_list;
const kiln_expr *kiln_row_column(kiln_ctx *cx); // 8*h + 2*q + e
const kiln_expr *kiln_row_copy(kiln_ctx *cx);   // q
// the copy of the lane that has |column|
const kiln_expr *kiln_row_copy_of(kiln_ctx *cx, const kiln_expr *column);
kiln_stmt *kiln_row_add(const kiln_product_numbers *f, kiln_row_list *io, kiln_stmt *s,
                        kiln_combiner combiner, const kiln_expr *body);
// A statement over rows, their copies and |n_more| dims that it reduces; its result is a new TEMP.
kiln_stmt *kiln_row_over(const kiln_product_numbers *f, const kiln_row_list *l, const char *name,
                         kiln_dtype t, int n_more, const kiln_symbol *more, const int64_t *extents);
kiln_stmt *kiln_row_reduce(const kiln_product_numbers *f, kiln_row_list *io, kiln_combiner combiner,
                           int64_t extent, const kiln_expr *body);
kiln_tensor *kiln_row_temp(const kiln_product_numbers *f, const kiln_row_list *l, const char *name,
                           kiln_dtype t);
// |e| in f32 if it is half, and without roundings to halves between its loads and its result.
const kiln_expr *kiln_row_unrounded(kiln_ctx *cx, const kiln_expr *e);

#endif

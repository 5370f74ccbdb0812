// Checks of the text before any shape is known; the roles of names in a statement.
#ifndef KILN_TC_CHECK_H
#define KILN_TC_CHECK_H

#include "tc/ast.h"

typedef enum kiln_tc_role {
  KILN_TC_INDEX,
  KILN_TC_LETTED,
  KILN_TC_INPUT,
  KILN_TC_WRITTEN, // an output or temporary that an earlier statement writes
  KILN_TC_ATTRIBUTE,
  KILN_TC_SIZE,     // a dimension or pack of dimensions
  KILN_TC_CONSTANT, // inf, nan, true, false
  KILN_TC_TYPEVAR,
  KILN_TC_UNWRITTEN // an output that no earlier statement writes
} kiln_tc_role;

// The scope of a name: statement |stmt| of |def|, where the first |n_lets| clauses are visible.
typedef struct kiln_tc_scope {
  const kiln_tc_file *file;
  const kiln_tc_def *def;
  int stmt, n_lets;
} kiln_tc_scope;

// |*out_at| is the position in the list that the role belongs to: clause, param, size, ...
kiln_tc_role kiln_tc_role_of(const kiln_tc_scope *s, kiln_symbol name, int *out_at);
// The class of a type variable; false if |name| is not a type variable of |def|.
bool kiln_tc_typevar_of(kiln_ctx *cx, const kiln_tc_def *def, kiln_symbol name, kiln_tc_class *out);
// An example dtype for a parameter of |def|, for synthetic inputs; with |half| a half float if
// possible.
kiln_dtype kiln_tc_example_type(kiln_ctx *cx, const kiln_tc_def *def, const kiln_tc_type *t,
                                bool half);
int kiln_tc_find_out(const kiln_tc_def *def, kiln_symbol name); // -1: none

// Whether statement |st| writes the tensor |name|.
bool kiln_tc_writes(const kiln_tc_stmt *st, kiln_symbol name);
// Whether the statement of the scope calls a definition: Z = f(X).
bool kiln_tc_is_call(const kiln_tc_scope *s);
// The first index pack in |e|; NULL: none.
const kiln_tc_expr *kiln_tc_pack_in(const kiln_tc_scope *s, const kiln_tc_expr *e);

// An index of a statement: those of the left side first, then the reduced ones as they appear.
typedef struct kiln_tc_index {
  kiln_symbol name;
  bool pack;
  const char *at;
} kiln_tc_index;
typedef KILN_VEC(kiln_tc_index) kiln_tc_indices;
// Gives the number of left-side indices.
int kiln_tc_collect_indices(const kiln_tc_scope *s, kiln_tc_indices *out);

// Whether |e| depends on no index and no tensor element: attributes, sizes, given(), constants.
bool kiln_tc_is_static(const kiln_tc_scope *s, const kiln_tc_expr *e);

// Parses the file |source->text|, which must outlive |*out|, and checks every definition and
// header. Invalid definitions are marked |wrong|; the others are usable.
//
// errors: source->status with line and caret, the first mistake of each definition
kiln_status kiln_tc_read(const kiln_tc_source *source, kiln_tc_file *out);
// The same with a cache, for a text that lives as long as the context; valid texts are parsed once.
kiln_status kiln_tc_read_once(const kiln_tc_source *source, const kiln_tc_file **out);

#endif

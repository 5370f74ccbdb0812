// The environment of a bound definition: types, sizes, attributes and tensors by name. Filled by
// tc/bind.c, read by tc/eval.c and tc/emit.c.
#ifndef KILN_TC_ENV_H
#define KILN_TC_ENV_H

#include "tc/check.h"
#include "tc/definition.h"
#include "tc/infer.h"

// A dimension of a definition: one extent, or those of a pack.
typedef struct kiln_tc_size {
  kiln_symbol name;
  bool pack, known;
  int rank;                // of a pack; 1 otherwise
  bool spread;             // a pack whose axes are given by an attribute and need not be adjacent
  int axes[KILN_MAX_RANK]; // [rank] of a spread pack
  const kiln_expr *extents[KILN_MAX_RANK];
} kiln_tc_size;

typedef struct kiln_tc_tensor {
  kiln_symbol name;
  const kiln_tensor *tensor;     // NULL: an omitted input; its default is used
  const kiln_tc_expr *otherwise; // the default
  const kiln_expr *value;        // or a number from a call
  kiln_dtype type;               // element type, also of an omitted input
  bool weak;                     // so far only numbers were written; the next write decides the
                                 // type
  int n_dims;                    // as declared, or as on the left side of its first write
  const kiln_tc_dim *dims;
  int ranks[KILN_MAX_RANK]; // [n_dims] axes of each dimension
  int rank;
  const kiln_expr *extents[KILN_MAX_RANK]; // [rank]
  const kiln_expr *origins[KILN_MAX_RANK]; // [rank] index of the first element
  int storage[KILN_MAX_RANK];              // [rank] the axis of |tensor|
} kiln_tc_tensor;

// A caller's argument: a tensor, a number (in calls), or nothing.
typedef struct kiln_tc_argument {
  const kiln_tensor *tensor;
  const kiln_tc_tensor *view; // in a call: the caller's view of |tensor|; NULL: none
  const kiln_expr *value;     // of a size or scalar
} kiln_tc_argument;

// The caller of a definition: a graph node, a program of its own, or a call in another definition.
typedef struct kiln_tc_caller {
  kiln_program *prog;
  const char *place;     // for messages about arguments
  const kiln_node *node; // source of attributes; NULL: use |bindings|
  kiln_symbol origin;    // of the statements
  bool trial;            // bound to synthetic inputs: `require` is not enforced
  bool owns_program;     // may add inputs, for accumulated tensors without earlier values
  int n_bindings;
  const kiln_tc_binding *bindings;
  int n_inputs;
  const kiln_tc_argument *inputs;
  int n_outputs;
  const char *const *outputs; // names of the outputs' tensors; NULL: not wanted
  const char *prefix;         // prefix of names of temporaries; NULL: none
  struct kiln_checks *checks; // of indices (rewrite/checks.h); NULL: no checks
  const kiln_expr *when;      // condition under which a run needs the results; NULL: always
  const char *node_place;     // place of checks; NULL: the subscript in the definition's text
} kiln_tc_caller;

typedef struct kiln_tc_env {
  kiln_ctx *cx;
  const kiln_tc_caller *caller;
  const kiln_tc_file *file;
  const kiln_tc_header *header; // NULL: none
  const kiln_tc_def *def;
  kiln_dtype types[KILN_N_DTYPES]; // of type variables, parallel to type_names
  kiln_symbol type_names[KILN_N_DTYPES];
  int n_types;
  KILN_VEC(kiln_tc_size) sizes;
  // Inputs first; a tensor that is written again has a further entry.
  KILN_VEC(kiln_tc_tensor) tensors;
  KILN_VEC(struct kiln_tc_whole *) wholes; // tensors whose pieces are collected
} kiln_tc_env;

// A piece: the part of a tensor that one statement writes, if several write it or the left side is
// not a plain list of indices.
typedef struct kiln_tc_piece {
  const char *at;
  int n_vars;
  const kiln_tc_range *vars;             // [n_vars]
  const kiln_symbol *names;              // [n_vars] names in the text
  const kiln_expr *index[KILN_MAX_RANK]; // the written element as a function of the variables
  const kiln_expr *body;                 // its value as a function of the variables
} kiln_tc_piece;

// A tensor whose pieces are collected until it is read.
typedef struct kiln_tc_whole {
  kiln_symbol name;
  const char *text; // name of the tensor
  kiln_dtype type;
  bool weak; // only weak values so far
  int rank;
  bool has_base;
  kiln_tc_tensor base;      // the tensor's earlier value
  const kiln_expr *fill;    // value of elements outside of all pieces; NULL: there must be none
  const kiln_tc_stmt *stmt; // the latest
  KILN_VEC(kiln_tc_piece) pieces;
} kiln_tc_whole;

// Emits one statement for all pieces of |w| and declares its tensor.
//
// errors: an element outside of all pieces; pieces that cannot be inverted
kiln_status kiln_tc_assemble(kiln_tc_env *env, const kiln_tc_whole *w);

// A mismatch of a definition.
typedef struct kiln_tc_misfit {
  kiln_symbol message; // of the `require` that failed; 0: none
  const char *why;     // another reason; NULL: it matches
  bool types_fit;
} kiln_tc_misfit;

// Binds env->def to env->caller: types, sizes and inputs; |*out| tells whether they match.
kiln_status kiln_tc_fit(kiln_tc_env *env, kiln_tc_misfit *out);
// Emits all statements that a wanted output needs; then kiln_tc_find_tensor finds the outputs.
//
// needs: the definition matches
kiln_status kiln_tc_emit_all(kiln_tc_env *env);

const kiln_tc_size *kiln_tc_find_size(const kiln_tc_env *env, kiln_symbol name); // NULL: unknown
// The latest entry.
const kiln_tc_tensor *kiln_tc_find_tensor(const kiln_tc_env *env, kiln_symbol name);
const kiln_tc_attr *kiln_tc_find_attr(const kiln_tc_env *env, kiln_symbol name);
// The caller's value of an attribute; NULL: none.
const kiln_attr *kiln_tc_find_given(const kiln_tc_env *env, kiln_symbol name);
// The dtype of a declared type; a type variable that no input binds is f32.
kiln_dtype kiln_tc_type_in(const kiln_tc_env *env, const kiln_tc_type *t);
// The storage axis of each axis of declared dimensions: the identity, except that a spread pack's
// axes are at the positions given by its attribute, with the others around them.
void kiln_tc_storage_of(const kiln_tc_env *env, int n_dims, const kiln_tc_dim *dims, int rank,
                        int *out);
bool kiln_tc_type_named(const kiln_tc_env *env, kiln_symbol name, kiln_dtype *out);

// Whether the `require` statement |stmt| holds.
kiln_status kiln_tc_holds(kiln_tc_env *env, int stmt, bool *out);
// Emits statement |stmt| of the definition.
kiln_status kiln_tc_emit(kiln_tc_env *env, int stmt);
// Emits a call: the definition's statements, its outputs being the results.
kiln_status kiln_tc_emit_call(kiln_tc_env *env, int stmt);
// The program's name of tensor |written| by statement |stmt|.
const char *kiln_tc_name_of(const kiln_tc_env *env, int stmt, kiln_symbol written);
// Assembles the pieces of tensors that statement |stmt| reads (-1: of all).
kiln_status kiln_tc_finish(kiln_tc_env *env, int stmt);
// Whether statement |s| reads the tensor |name| on its right side or updates it.
bool kiln_tc_reads(const kiln_tc_stmt *s, kiln_symbol name);

#endif

// What the names of a definition stand for once it is bound to a caller: types, sizes, attributes,
// tensors. Filled by tc/bind.c, read by tc/eval.c and tc/emit.c.
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
  bool spread;             // the axes of the pack need not stand together
  int axes[KILN_MAX_RANK]; // [rank] of a spread pack
  const kiln_expr *extents[KILN_MAX_RANK];
} kiln_tc_size;

typedef struct kiln_tc_tensor {
  kiln_symbol name;
  const kiln_tensor *tensor;     // NULL: an omitted input, which is its default
  const kiln_tc_expr *otherwise; // the default
  const kiln_expr *value;        // or the number that a call gives
  kiln_dtype type;               // of the elements, or of the omitted input
  bool weak;                     // written as numbers: what is written next says the type
  int n_dims;                    // as declared, or as on the left side
  const kiln_tc_dim *dims;
  int ranks[KILN_MAX_RANK]; // [n_dims] axes of each dimension
  int rank;
  const kiln_expr *extents[KILN_MAX_RANK]; // [rank]
  const kiln_expr *origins[KILN_MAX_RANK]; // [rank] the index of the first element
  int storage[KILN_MAX_RANK];              // [rank] the axis of |tensor| that each is
} kiln_tc_tensor;

// What a caller gives for a parameter: a tensor, a number (a call's), or nothing.
typedef struct kiln_tc_argument {
  const kiln_tensor *tensor;
  const kiln_tc_tensor
      *view;              // of a call: |tensor| as the calling definition sees it; NULL: as it is
  const kiln_expr *value; // of a size or a scalar: its value
} kiln_tc_argument;

// Who binds a definition: a node of a graph, a program of its own, or another definition's call.
typedef struct kiln_tc_caller {
  kiln_program *prog;
  const char *place;     // for messages about what it gives
  const kiln_node *node; // has attributes; NULL: |bindings| have them
  kiln_symbol origin;    // of the statements
  bool trial;            // bound to made-up inputs: `require` is not enforced
  bool owns_program;     // may add inputs: the first values of what it accumulates into
  int n_bindings;
  const kiln_tc_binding *bindings;
  int n_inputs;
  const kiln_tc_argument *inputs;
  int n_outputs;
  const char *const *outputs; // names of their tensors; NULL: not wanted
  const char *prefix;         // of the names of temporaries; NULL: none
  struct kiln_checks *checks; // of indices (rewrite/checks.h); NULL: none are made
  const kiln_expr *when;      // the run computes what is made; NULL: always
  const char *node_place;     // of checks; NULL: where the definition's text has the subscript
} kiln_tc_caller;

typedef struct kiln_tc_env {
  kiln_ctx *cx;
  const kiln_tc_caller *caller;
  const kiln_tc_file *file;
  const kiln_tc_header *header; // NULL: the definition has none
  const kiln_tc_def *def;
  kiln_dtype types[KILN_N_DTYPES]; // of type variables, beside type_names
  kiln_symbol type_names[KILN_N_DTYPES];
  int n_types;
  KILN_VEC(kiln_tc_size) sizes;
  KILN_VEC(kiln_tc_tensor) tensors; // inputs first; a tensor written again stands again, later
  KILN_VEC(struct kiln_tc_whole *) wholes; // tensors of which pieces are written
} kiln_tc_env;

// What one statement writes of a tensor that several write, or that is not written in the order of
// its elements.
typedef struct kiln_tc_piece {
  const char *at;
  int n_vars;
  const kiln_tc_range *vars;             // [n_vars]
  const kiln_symbol *names;              // [n_vars] what the text calls them
  const kiln_expr *index[KILN_MAX_RANK]; // the element that it writes, over the variables
  const kiln_expr *body;                 // its value, over the variables
} kiln_tc_piece;

// A tensor whose pieces are collected until it is read.
typedef struct kiln_tc_whole {
  kiln_symbol name;
  const char *text; // the name that the tensor gets
  kiln_dtype type;
  bool weak; // so far
  int rank;
  bool has_base;
  kiln_tc_tensor base;      // what was there before
  const kiln_expr *fill;    // what the elements are that no piece writes; NULL: there must be none
  const kiln_tc_stmt *stmt; // the newest
  KILN_VEC(kiln_tc_piece) pieces;
} kiln_tc_whole;

// Makes one statement of the pieces of |w| and declares its tensor.
//
// errors: an element that no piece writes; pieces that cannot be inverted
kiln_status kiln_tc_assemble(kiln_tc_env *env, const kiln_tc_whole *w);

// Why a definition was passed over.
typedef struct kiln_tc_misfit {
  kiln_symbol message; // of a requirement that does not hold; 0: none
  const char *why;     // else; NULL: it fits
  bool types_fit;
} kiln_tc_misfit;

// Binds env->def to env->caller: types, sizes and inputs; |*out| says whether it fits.
kiln_status kiln_tc_fit(kiln_tc_env *env, kiln_tc_misfit *out);
// Adds the statements that a wanted output needs; kiln_tc_find_tensor then finds the outputs.
//
// needs: the definition fits
kiln_status kiln_tc_emit_all(kiln_tc_env *env);

const kiln_tc_size *kiln_tc_find_size(const kiln_tc_env *env, kiln_symbol name); // NULL: unknown
const kiln_tc_tensor *kiln_tc_find_tensor(const kiln_tc_env *env, kiln_symbol name); // the newest
const kiln_tc_attr *kiln_tc_find_attr(const kiln_tc_env *env, kiln_symbol name);
// The value that the caller gives an attribute; NULL: none.
const kiln_attr *kiln_tc_find_given(const kiln_tc_env *env, kiln_symbol name);
// The dtype of a type as written: a type variable not bound by any input is f32.
kiln_dtype kiln_tc_type_in(const kiln_tc_env *env, const kiln_tc_type *t);
// The axis of storage of each axis of declared dimensions: the identity but for a spread pack,
// whose axes are where its attribute says, the others around them.
void kiln_tc_storage_of(const kiln_tc_env *env, int n_dims, const kiln_tc_dim *dims, int rank,
                        int *out);
bool kiln_tc_type_named(const kiln_tc_env *env, kiln_symbol name, kiln_dtype *out);

// Whether the `require` statement |stmt| holds.
kiln_status kiln_tc_holds(kiln_tc_env *env, int stmt, bool *out);
// Emits statement |stmt| of the definition.
kiln_status kiln_tc_emit(kiln_tc_env *env, int stmt);
// The same of a call: the definition's statements, and its outputs as the results.
kiln_status kiln_tc_emit_call(kiln_tc_env *env, int stmt);
// What the tensor |written| of statement |stmt| is called in the program.
const char *kiln_tc_name_of(const kiln_tc_env *env, int stmt, kiln_symbol written);
// Assembles the tensors that statement |stmt| reads (-1: all).
kiln_status kiln_tc_finish(kiln_tc_env *env, int stmt);
// Whether statement |s| mentions the tensor |name| on its right side or updates it.
bool kiln_tc_reads(const kiln_tc_stmt *s, kiln_symbol name);

#endif

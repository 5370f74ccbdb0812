// The C emitter's private parts.
//
// c.h        the entry; emit.c: files, functions, loops
// expr.c     expressions, and the constants that name what an expression uses twice
// prelude.c  the helper functions, as text
#ifndef KILN_TARGET_C_WRITER_H
#define KILN_TARGET_C_WRITER_H

#include "analysis/simplify.h"
#include "target/c/c.h"

typedef enum kiln_c_helper {
  KILN_C_SMALL,   // what rounds to the half types
  KILN_C_TO_HALF, // of f64
  KILN_C_OF_HALF, // to f32
  KILN_C_SATURATE,
  KILN_C_DIV,
  KILN_C_MOD,
  KILN_C_TDIV,
  KILN_C_REM,
  KILN_C_MIN,
  KILN_C_MAX,
  KILN_C_POW,
  KILN_C_SHL,
  KILN_C_SHR,
  KILN_C_ABS,
  KILN_C_SIGN,
  KILN_N_C_HELPERS
} kiln_c_helper;

// Helpers met so far, by type.
typedef struct kiln_c_prelude {
  bool used[KILN_N_C_HELPERS][KILN_N_DTYPES];
} kiln_c_prelude;
// The name of a helper, "kiln_div_i64"; marks it as used.
const char *kiln_c_helper_of(kiln_ctx *cx, kiln_c_prelude *p, kiln_c_helper h, kiln_dtype t);
void kiln_c_prelude_print(const kiln_c_prelude *p, kiln_text *out);
const char *kiln_c_memory_type(kiln_dtype t); // "uint16_t" for f16
const char *kiln_c_value_type(kiln_dtype t);  // "float" for f16, "bool" for bool

typedef struct kiln_c_writer {
  kiln_ctx *cx;
  const kiln_loops *l;
  kiln_c_prelude *prelude;
  kiln_text *out;
  int depth;
  kiln_ranges ranges;
  kiln_map names;       // variable to identifier (a symbol)
  kiln_map taken;       // identifiers of the function
  kiln_symbol *buffers; // [buffers] identifiers
  // Named constants of the statement at hand: expression id to identifier.
  kiln_map temps;
  KILN_VEC(uint64_t) live; // their ids, those of inner blocks last
} kiln_c_writer;

void kiln_c_line(kiln_c_writer *w); // indentation
// An identifier for |name| that the function has not used.
kiln_symbol kiln_c_identifier(kiln_c_writer *w, const char *name);

// expr.c
// Names what the roots use twice, as constants in front of the statement. kiln_c_temps_end forgets
// those made since |mark|.
int kiln_c_temps_begin(kiln_c_writer *w, int n, const kiln_expr *const *roots);
void kiln_c_temps_end(kiln_c_writer *w, int mark);
void kiln_c_expr(kiln_c_writer *w, const kiln_expr *e);
// B[...], without a conversion.
void kiln_c_element(kiln_c_writer *w, int buffer, const kiln_expr *const *index);
const kiln_expr *kiln_c_offset(kiln_c_writer *w, int buffer, const kiln_expr *const *index);

#endif

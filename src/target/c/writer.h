// Private parts of the C emitter.
//
// c.h        the entry; emit.c: files, functions, loops
// expr.c     expressions, and constants for common subexpressions
// prelude.c  the helper functions, as text
// dialect.c  C17; target/gpu has further dialects
#ifndef KILN_TARGET_C_WRITER_H
#define KILN_TARGET_C_WRITER_H

#include "analysis/simplify.h"
#include "ir/lines.h"
#include "target/c/c.h"

typedef enum kiln_c_helper {
  KILN_C_SMALL,       // rounds to the half types
  KILN_C_TO_HALF,     // from f64; from f32 if the dialect has another helper for f64
  KILN_C_TO_HALF_F64, // of f64
  KILN_C_OF_HALF,     // to f32
  KILN_C_SATURATE,    // of f64
  KILN_C_SATURATE_F32,
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
  KILN_C_BITS,    // of a float, as an unsigned integer
  KILN_C_OF_BITS, // the float
  KILN_N_C_HELPERS
} kiln_c_helper;

// A dialect of C. |head| defines the types and macros of <stdint.h> if there are no headers.
typedef struct kiln_c_dialect {
  const char *head;
  const char *function; // specifier of helper functions
  const char *math_prefix, *float_suffix,
      *wide_suffix;    // suffixes of math functions: of both, of float, of double
  const char *aligned; // before a thread's array
  const char *restricted;
  const char *unroll; // before a loop; NULL: GCC's pragma, which has a count
  bool is_narrow;     // index arithmetic is int where its ranges allow it
  bool avoids_f64;    // f32 values are not computed through f64
  // 2^x, x/y and erf x of f32 with fewer digits, used if the result is rounded to a half type;
  // NULL: none.
  const char *coarse_exp2, *coarse_divide, *coarse_erf;
  const char *coarse_reciprocal; // of numbers >= 1
  // a * b + c with one rounding, of f32 and f64, used for sums of products only; NULL: left to the
  // compiler.
  const char *multiply_add[2];
  // functions of one instruction for kiln_min_f32 and kiln_max_f32; NULL: the helpers
  const char *extremes[2];
  const char *of_half[2], *to_half[2], *to_half_f64[2]; // helpers: f16, bf16
  int n_reserved;
  const char *const *reserved; // further keywords
  // of GPUs only
  const char *block[3], *thread[3];   // block and thread coordinates along x, y, z
  const char *global, *shared;        // address spaces
  const char *barrier, *warp_barrier; // NULL: threads do not run in lock step
  const char *words[3], *zeros[3];    // types of 4, 8 and 16 bytes, and zero of each
  // Writes the begin of a kernel function, before its name. |neighbours|: blocks that should be
  // resident on a multiprocessor; |cluster|: blocks of a cluster; 1: no requirement.
  void (*put_kernel)(kiln_text *out, const int64_t block[3], int64_t neighbours, int64_t cluster);
  // The declaration of shared memory, before and after its size; [1] NULL: the launch states the
  // size.
  const char *arena[2];
  // Warp instructions are emitted as such, and swizzled buffers are swizzled; otherwise
  // instructions are written as their meaning.
  bool has_instructions;
  // Horizontal fusion: a launch may contain independent nests. (PoCL 3.1 loses conditions after a
  // barrier that some blocks skip.)
  bool shares_launches;
  // A barrier at the begin of a condition's body is moved before the condition. Compilers for
  // processors turn code between barriers into loops over threads, and PoCL 3.1's does not
  // terminate if two conditions with a barrier each follow each other.
  bool waits_before_conditions;
} kiln_c_dialect;
extern const kiln_c_dialect kiln_c17; // dialects of GPUs are in folders of target/gpu

// The helpers that were used, by type.
typedef struct kiln_c_prelude {
  const kiln_c_dialect *dialect;
  bool used[KILN_N_C_HELPERS][KILN_N_DTYPES];
} kiln_c_prelude;
// The name of a helper, "kiln_div_i64"; marks it as used.
const char *kiln_c_helper_of(kiln_ctx *cx, kiln_c_prelude *p, kiln_c_helper h, kiln_dtype t);
void kiln_c_prelude_print(const kiln_c_prelude *p, kiln_text *out);
const char *kiln_c_memory_type(kiln_dtype t); // "uint16_t" for f16
const char *kiln_c_value_type(kiln_dtype t);  // "float" for f16, "bool" for bool

typedef struct kiln_c_writer kiln_c_writer;
struct kiln_c_writer {
  kiln_ctx *cx;
  const kiln_c_dialect *dialect;
  // Writes |l| in the dialect's way; false: it is written as in C17. NULL: all are.
  bool (*put_other)(kiln_c_writer *w, const kiln_loop *l);
  const kiln_loops *l;
  kiln_c_prelude *prelude;
  kiln_text *out;
  int depth;
  kiln_ranges ranges;
  kiln_map names;           // variable to identifier (a symbol)
  kiln_map taken;           // identifiers of the function
  kiln_symbol *buffers;     // [buffers] identifiers
  bool swizzles;            // elements of swizzled buffers are permuted
  bool is_coarse;           // the current value is rounded to a half type
  const kiln_expr *sigmoid; // a factor of the current value
  // Named constants of the current statement: expression id to identifier.
  kiln_map temps;
  KILN_VEC(uint64_t) live; // their ids; those of inner blocks last
  kiln_line_marks *marks;  // the lines of the kernel of each line of |out|; NULL: not wanted
  int line;                // of the current statement
};

// writer.c
void kiln_c_line(kiln_c_writer *w); // indentation
// An identifier for |name| that is new in the function.
kiln_symbol kiln_c_identifier(kiln_c_writer *w, const char *name);

// emit.c
void kiln_c_list(kiln_c_writer *w, const kiln_loop *l); // statements
void kiln_c_function_begin(kiln_c_writer *w);           // resets the function's names

// expr.c
// Names common subexpressions of the roots as constants before the statement. kiln_c_temps_end
// forgets those made since |mark|.
int kiln_c_temps_begin(kiln_c_writer *w, int n, const kiln_expr *const *roots);
void kiln_c_temps_end(kiln_c_writer *w, int mark);
void kiln_c_expr(kiln_c_writer *w, const kiln_expr *e);
// A CAST to a half type, as the bits that are stored.
void kiln_c_rounded(kiln_c_writer *w, const kiln_expr *e);
// the operand of the rounding, as a float
void kiln_c_rounding(kiln_c_writer *w, const kiln_expr *e);
// Whether |e| may be computed with the precision of a half type, given |is_coarse|.
bool kiln_c_may_be_coarse(kiln_c_writer *w, const kiln_expr *e);
// Whether a variable or an index expression is an int.
bool kiln_c_is_narrow(kiln_c_writer *w, const kiln_expr *e);
// B[...], without a conversion.
void kiln_c_element(kiln_c_writer *w, int buffer, const kiln_expr *const *index);
const kiln_expr *kiln_c_offset(kiln_c_writer *w, int buffer, const kiln_expr *const *index);

#endif

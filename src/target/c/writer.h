// The C emitter's private parts.
//
// c.h        the entry; emit.c: files, functions, loops
// expr.c     expressions, and the constants that name what an expression uses twice
// prelude.c  the helper functions, as text
// dialect.c  how C17 is spelled: target/gpu writes other dialects with the same parts
#ifndef KILN_TARGET_C_WRITER_H
#define KILN_TARGET_C_WRITER_H

#include "analysis/simplify.h"
#include "ir/lines.h"
#include "target/c/c.h"

typedef enum kiln_c_helper {
  KILN_C_SMALL,       // what rounds to the half types
  KILN_C_TO_HALF,     // of f64; of f32 where the dialect has another for f64
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

// How a C is spelled. |head| defines the types and macros of <stdint.h> where there are no headers.
typedef struct kiln_c_dialect {
  const char *head;
  const char *function; // what the helper functions begin with
  const char *math_prefix, *float_suffix,
      *wide_suffix;    // of the math functions; of those of float, of double
  const char *aligned; // in front of a thread's array
  const char *restricted;
  const char *unroll; // in front of a loop; NULL: GCC's, which wants the number
  bool is_narrow;     // index arithmetic is int where its ranges allow it
  bool avoids_f64;    // what is of f32 does not go by way of f64
  // 2^x, x/y and erf x of f32 where a half type is made of them, which has fewer digits; NULL:
  // there are none.
  const char *coarse_exp2, *coarse_divide, *coarse_erf;
  const char *coarse_reciprocal; // of what is no smaller than 1
  // a * b + c with one rounding, of f32 and f64: what sums of products may use, and nothing else;
  // NULL: the compiler's matter.
  const char *multiply_add[2];
  const char *
      extremes[2]; // kiln_min_f32 and kiln_max_f32, where one instruction does it; NULL: as for all
  const char *of_half[2], *to_half[2], *to_half_f64[2]; // helpers: f16, bf16
  int n_reserved;
  const char *const *reserved; // words besides those of C17
  // GPUs' only
  const char *block[3], *thread[3];   // where one is along x, y, z
  const char *global, *shared;        // address spaces
  const char *barrier, *warp_barrier; // NULL: threads do not run in step
  const char *words[3], *zeros[3];    // types of 4, 8 and 16 bytes, and zero of each
  // What a kernel's function begins with, its name left out. |neighbours|: blocks that are to run
  // on a multiprocessor; |cluster|: blocks of a cluster; 1: no matter.
  void (*put_kernel)(kiln_text *out, const int64_t block[3], int64_t neighbours, int64_t cluster);
  // What declares the shared memory, in front of its bytes and behind; [1] NULL: the launch says
  // how many there are.
  const char *arena[2];
  // Instructions of warps are written, and swizzled buffers lie so; else what they mean is written.
  bool has_instructions;
  // Nests may run side by side in one launch. (PoCL 3.1 forgets conditions behind a barrier that
  // not all blocks come to.)
  bool shares_launches;
  // A barrier at the begin of a condition's body stands in front of the condition: compilers for
  // processors make loops over threads between barriers, and PoCL's (3.1) never end where two
  // conditions with a barrier each follow one another.
  bool waits_before_conditions;
} kiln_c_dialect;
extern const kiln_c_dialect kiln_c17; // those of GPUs: target/gpu, a folder each

// Helpers met so far, by type.
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
  // Writes |l| in a way of its own; false: it is written as in C17. NULL: all are.
  bool (*put_other)(kiln_c_writer *w, const kiln_loop *l);
  const kiln_loops *l;
  kiln_c_prelude *prelude;
  kiln_text *out;
  int depth;
  kiln_ranges ranges;
  kiln_map names;           // variable to identifier (a symbol)
  kiln_map taken;           // identifiers of the function
  kiln_symbol *buffers;     // [buffers] identifiers
  bool swizzles;            // elements of swizzled buffers lie so; else in order
  bool is_coarse;           // what is written is rounded to a half type
  const kiln_expr *sigmoid; // of which that is a multiple
  // Named constants of the statement at hand: expression id to identifier.
  kiln_map temps;
  KILN_VEC(uint64_t) live; // their ids, those of inner blocks last
  kiln_line_marks *marks;  // of |out|: which lines of the kernel it is made of; NULL: nobody asks
  int line;                // of the statement at hand
};

// writer.c
void kiln_c_line(kiln_c_writer *w); // indentation
// An identifier for |name| that the function has not used.
kiln_symbol kiln_c_identifier(kiln_c_writer *w, const char *name);

// emit.c
void kiln_c_list(kiln_c_writer *w, const kiln_loop *l); // statements
void kiln_c_function_begin(kiln_c_writer *w);           // forgets the names of the one before

// expr.c
// Names what the roots use twice, as constants in front of the statement. kiln_c_temps_end forgets
// those made since |mark|.
int kiln_c_temps_begin(kiln_c_writer *w, int n, const kiln_expr *const *roots);
void kiln_c_temps_end(kiln_c_writer *w, int mark);
void kiln_c_expr(kiln_c_writer *w, const kiln_expr *e);
// A CAST to a half type, as the bits that are stored.
void kiln_c_rounded(kiln_c_writer *w, const kiln_expr *e);
void kiln_c_rounding(kiln_c_writer *w, const kiln_expr *e); // what is rounded, as a float
// Whether the value |e| may be computed as exactly only as a half type shows, as |is_coarse| says
// to.
bool kiln_c_may_be_coarse(kiln_c_writer *w, const kiln_expr *e);
// Whether a variable or an index expression is an int.
bool kiln_c_is_narrow(kiln_c_writer *w, const kiln_expr *e);
// B[...], without a conversion.
void kiln_c_element(kiln_c_writer *w, int buffer, const kiln_expr *const *index);
const kiln_expr *kiln_c_offset(kiln_c_writer *w, int buffer, const kiln_expr *const *index);

#endif

// Bytecode of the reference interpreter: scalar expressions compiled to a flat list of instructions
// over numbered registers. Private to analysis/.
//
// A register holds a double where the expression's dtype is a float, an int64 otherwise (u64 as the
// same bits, narrower integers wrapped to their width). Affine functions of the loop variables are
// *streams*: registers that the loops advance by a constant instead of computing them.
#ifndef KILN_ANALYSIS_BYTECODE_H
#define KILN_ANALYSIS_BYTECODE_H

#include "ir/prim.h"

typedef union kiln_cell {
  double f;
  int64_t i;
} kiln_cell;

typedef enum kiln_insn_op {
  KILN_INSN_LOAD_F32, // out = data[reg a], by dtype
  KILN_INSN_LOAD_F64,
  KILN_INSN_LOAD_FLOAT,
  KILN_INSN_LOAD_INT,
  KILN_INSN_ADDRESS, // out = bounds-checked element number of load a's index registers
  KILN_INSN_MOVE,
  KILN_INSN_JUMP,
  KILN_INSN_JUMP_UNLESS, // if the bool in register a is false
  KILN_INSN_FADD,
  KILN_INSN_FSUB,
  KILN_INSN_FMUL,
  KILN_INSN_FDIV,
  KILN_INSN_IADD, // i64: wraps, needs no narrowing
  KILN_INSN_ISUB,
  KILN_INSN_IMUL,
  KILN_INSN_FLOAT1,
  KILN_INSN_FLOAT2,
  KILN_INSN_FLOAT_TEST, // floats in, bool out
  KILN_INSN_INT1,
  KILN_INSN_INT2,
  KILN_INSN_CAST,
  KILN_INSN_BITS
} kiln_insn_op;

typedef struct kiln_insn {
  uint8_t op;      // kiln_insn_op
  uint8_t t, from; // dtypes of the result and of the first argument
  uint8_t kind;    // the kiln_expr_kind of generic operators
  int out, a, b;   // registers; |a| is the load of ADDRESS; |b| is the target of jumps
} kiln_insn;

typedef struct kiln_stream {
  int reg;
  int64_t start;
  int64_t *coef; // [n_dims]
} kiln_stream;

typedef struct kiln_bytecode_load {
  int tensor;
  const void *data;
  int n;
  int regs[KILN_MAX_RANK];
  int64_t extents[KILN_MAX_RANK], strides[KILN_MAX_RANK];
} kiln_bytecode_load;

typedef struct kiln_bytecode {
  kiln_ctx *cx;
  const kiln_program *p;
  kiln_arena *arena;
  void *const *data; // [n_tensors], row-major elements; NULL if not available
  int n_dims;
  const kiln_symbol *vars; // [n_dims]
  const int64_t *extents;  // [n_dims]
  const char *place;       // prefix of messages
  KILN_VEC(kiln_insn) insns;
  KILN_VEC(kiln_stream) streams;
  KILN_VEC(kiln_bytecode_load) loads;
  KILN_VEC(kiln_cell) regs;  // initial values
  kiln_map known;            // expression id -> register + 1 (0: none) in the scopes that are open
  KILN_VEC(uint64_t) opened; // ids added to |known| since the scope opened
  kiln_status status;
  int fault_load, fault_axis; // set by kiln_bytecode_run
  int64_t fault_index;
} kiln_bytecode;

void kiln_bytecode_init(kiln_bytecode *c, kiln_ctx *cx, const kiln_program *p, void *const *data,
                        int n_dims, const kiln_symbol *vars, const int64_t *extents,
                        const char *place);
// Appends the instructions of |e|; gives its result register. On failure |c->status| is set.
int kiln_bytecode_add(kiln_bytecode *c, const kiln_expr *e);
// Appends the row-major element number of |tensor| at |index|, checked against its bounds; gives
// its register.
int kiln_bytecode_add_address(kiln_bytecode *c, int tensor, const kiln_expr *const *index);
// Whether the row-major address of |load| is sum(coef * dim) + *start and always in range.
bool kiln_bytecode_affine_address(const kiln_bytecode *c, const kiln_expr *load, int64_t *coef,
                                  int64_t *start);

// Sets the streams to their values at the point |at|.
void kiln_bytecode_seek(kiln_bytecode *c, const int64_t *at);
// Moves the streams by |steps| along a dim.
static inline void kiln_bytecode_step(kiln_bytecode *c, int dim, int64_t steps) {
  for (int k = 0; k < c->streams.n; k++) { // two's complement
    int64_t *at = &c->regs.data[c->streams.data[k].reg].i;
    *at = (int64_t)((uint64_t)*at + (uint64_t)c->streams.data[k].coef[dim] * (uint64_t)steps);
  }
}
// Runs instructions [from, to). False if an index is out of range.
bool kiln_bytecode_run(kiln_bytecode *c, int from, int to);
// Reports the index that made kiln_bytecode_run give false.
kiln_status kiln_bytecode_fault(const kiln_bytecode *c);

// Semantics of single operators, also used by the error analysis (analysis/rounding_error.h).
double kiln_bytecode_float1(kiln_expr_kind k, double a);
double kiln_bytecode_float2(kiln_expr_kind k, double a, double b);
kiln_cell kiln_bytecode_cast(kiln_dtype to, kiln_dtype from, kiln_cell a);
kiln_cell kiln_bytecode_bits(kiln_dtype to, kiln_dtype from, kiln_cell a);

// |value| wrapped to an integer dtype.
int64_t kiln_bytecode_wrap(kiln_dtype t, int64_t value);

#endif

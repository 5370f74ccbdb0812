// Fusion groups: statements that become one kernel, as rules group them, before cost-driven fusion
// (connect.h).
#ifndef KILN_FUSE_GROUP_H
#define KILN_FUSE_GROUP_H

#include "template/template.h"

// The most loads of one kernel: each may be an argument, and the code generator states for each
// pair of arguments that they do not overlap.
enum { KILN_MOST_LOADS = 256 };
typedef struct kiln_group {
  kiln_group_kind kind;
  int n_stmts;
  int *stmts; // ids, ascending; the last writes the result
  // by position in |stmts|: other kernels read that tensor, too, or it is an output
  uint64_t stored;
  double parts_ns; // what its statements take as several kernels, if that is less; 0: it is not
} kiln_group;
// The fusion decision about one edge of the program, from a statement to a consumer of its result.
typedef struct kiln_edge_decision {
  int producer, consumer; // statement ids of the main program; |consumer| is in a kernel
  int tensor;             // the tensor that |consumer| reads
  int level;              // the level of memory through which its tiles pass; 0: main memory
  // why it is not connected deeper; NULL: it is in one kernel and nothing is wrong
  const char *reason;
} kiln_edge_decision;
typedef struct kiln_edge_decisions {
  kiln_edge_decision *data;
  int n, cap;
} kiln_edge_decisions;

typedef struct kiln_groups {
  kiln_group *data;
  int n, cap;
  kiln_edge_decisions edges; // by consumer, of edges for which there was a choice
} kiln_groups;
// Groups the statements of |p| by rule.
kiln_status kiln_tile_group(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                            const kiln_machine *m, kiln_groups *out);
// The kind of kernel that the statements stmts[0..n), ascending, make together.
kiln_group_kind kiln_tile_kind_of(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                  const kiln_machine *m, int n, const int *stmts, uint64_t stored);

// The statements stmts[0..n) of a kernel. On GPUs, of a kernel with a product, without the maps
// that a single other map reads element by element: these are substituted into it, without the
// rounding of what is not stored. For example
//     T(m, n) +=! A(m, k) * B(k, n);  U(m, n) = f16(T(m, n) + b(n));
//     Y(m, n) = X(m, n) + s(n) * U(m, n)
// has the epilogue Y(m, n) = X(m, n) + s(n) * (T(m, n) + b(n)).
//
// gives: *out_n; statements of |p|, or new ones in the scratch arena
const kiln_stmt **kiln_group_fold(kiln_ctx *cx, const kiln_program *p, const kiln_machine *m, int n,
                                  const int *stmts, uint64_t stored, int *out_n);

#endif

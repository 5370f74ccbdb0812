// Fusion groups: statements that become one kernel, as rules group them, before cost-driven fusion
// (connect.h).
#ifndef KILN_FUSE_GROUP_H
#define KILN_FUSE_GROUP_H

#include "template/template.h"

// Loads of the statements of one kernel that grows: each may be an argument, and what the code
// generator knows of arguments, that no two overlap, is quadratic in them.
enum { KILN_MOST_LOADS = 256 };
typedef struct kiln_group {
  kiln_group_kind kind;
  int n_stmts;
  int *stmts; // ids, ascending; the last writes the result
  uint64_t
      stored; // by position in |stmts|: other kernels read that tensor, too, or it is an output
} kiln_group;
// The fusion decision about one edge of the program, from a statement to a consumer of its result.
typedef struct kiln_edge_decision {
  int producer, consumer; // statement ids of the main program; |consumer| is in a kernel
  int tensor;             // what flows
  int level;              // of the device: where a tile of it passes; 0: through memory
  const char
      *reason; // why it is not connected deeper; NULL: it is in one kernel and nothing is wrong
} kiln_edge_decision;
typedef struct kiln_edge_decisions {
  kiln_edge_decision *data;
  int n, cap;
} kiln_edge_decisions;

typedef struct kiln_groups {
  kiln_group *data;
  int n, cap;
  kiln_edge_decisions edges; // of the choices that there were, by consumer
} kiln_groups;
kiln_status kiln_tile_group(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                            const kiln_machine *m, kiln_groups *out);
// The kind of kernel that stmts[0..n), ascending, are, whoever has put them together.
kiln_group_kind kiln_tile_kind_of(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                  const kiln_machine *m, int n, const int *stmts, uint64_t stored);

#endif

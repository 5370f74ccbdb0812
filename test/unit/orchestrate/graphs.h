// Graphs of prims with known answers.
//
// source: Korch (ASPLOS'24), figure 4 and the decode head of Segformer
#ifndef KILN_TEST_UNIT_ORCHESTRATE_GRAPHS_H
#define KILN_TEST_UNIT_ORCHESTRATE_GRAPHS_H

#include "orchestrate/states.h"

typedef struct edge {
  int from, to;
} edge;

static inline kiln_prim_graph *graph_of(kiln_arena *a, int n, int n_edges, const edge *edges) {
  kiln_prim_graph *g = kiln_prim_graph_make(a, n);
  for (int i = 0; i < n_edges; i++) kiln_prim_graph_edge(g, edges[i].from, edges[i].to);
  kiln_bits_set(g->needed, n - 1);
  return g;
}

// Attention of queries, keys and values that are slices of one tensor: 0 makes it, 1, 2 and 3 are
// the slices, 4 turns the values; 5 multiplies; 6 and 7 are the sum and the quotient of the
// softmax; 8 multiplies; 9, 10 and 11 move the result. Of the products each is a kernel of its own.
enum { ATTENTION_PRIMS = 12, FIRST_PRODUCT = 5, SECOND_PRODUCT = 8 };
static inline kiln_prim_graph *attention_graph(kiln_arena *a) {
  static const edge edges[] = {{0, 1}, {0, 2}, {0, 3}, {3, 4}, {1, 5}, {2, 5},  {5, 6},
                               {5, 7}, {6, 7}, {7, 8}, {4, 8}, {8, 9}, {9, 10}, {10, 11}};
  return graph_of(a, ATTENTION_PRIMS, sizeof edges / sizeof *edges, edges);
}

// Branches of |length| prims each, and one prim that joins them.
static inline kiln_prim_graph *branches_graph(kiln_arena *a, int branches, int length) {
  kiln_prim_graph *g = kiln_prim_graph_make(a, branches * length + 1);
  for (int b = 0; b < branches; b++)
    for (int i = 0; i < length; i++)
      kiln_prim_graph_edge(g, b * length + i,
                           i + 1 < length ? b * length + i + 1 : branches * length);
  kiln_bits_set(g->needed, g->n - 1);
  return g;
}

static inline bool has_product(const kiln_bits *prims) {
  return kiln_bits_has(prims, FIRST_PRODUCT) || kiln_bits_has(prims, SECOND_PRODUCT);
}
static inline bool product_is_alone(void *user, const kiln_bits *prims) {
  (void)user;
  return !has_product(prims) || kiln_bits_count(prims) == 1;
}

#endif

// SPDX-License-Identifier: Apache-2.0
// Levels in one sweep, components by union-find, inputs and outputs of parts in two more sweeps.
#include "partition.h"

static void set_levels(ep_graph *g) {
  for (int i = 0; i < g->n_nodes; i++) {
    ep_node *n = &g->nodes[i];
    n->level = 0;
    for (int k = 0; k < ep_node_n_read(n); k++) {
      const ep_value *v = ep_node_input(g, n, k);
      if (!v || v->producer < 0) continue;
      const ep_node *from = &g->nodes[v->producer];
      const int level = from->level + (n->refused && !from->refused);
      if (level > n->level) n->level = level;
    }
  }
}

static int root_of(ep_graph *g, int i) {
  while (g->nodes[i].region != i) {
    g->nodes[i].region = g->nodes[g->nodes[i].region].region;
    i = g->nodes[i].region;
  }
  return i;
}

// Joins nodes of a level that share a value; if a node of the level produces it, that comes first.
static void join(ep_graph *g, int *first) {
  for (int v = 0; v < g->n_values; v++) first[v] = -1;
  for (int i = 0; i < g->n_nodes; i++) g->nodes[i].region = i;
  for (int i = 0; i < g->n_nodes; i++) {
    const ep_node *n = &g->nodes[i];
    for (int k = 0; !n->refused && k < ep_node_n_read(n) + n->n_outputs; k++) {
      const int v = n->values[k];
      if (v < 0 || g->values[v].is_constant) continue;
      const int other = first[v];
      if (other < 0 || g->nodes[other].level != n->level) {
        first[v] = i;
        continue;
      }
      const int a = root_of(g, other), b = root_of(g, i);
      g->nodes[a > b ? a : b].region = a > b ? b : a;
    }
  }
  for (int i = 0; i < g->n_nodes; i++) g->nodes[i].region = root_of(g, i);
}

// Marks the values that are used outside of the region that computes them.
static void find_wanted(const ep_graph *g, bool *wanted) {
  for (int v = 0; v < g->n_values; v++) wanted[v] = g->values[v].is_result;
  for (int i = 0; i < g->n_nodes; i++) {
    const ep_node *n = &g->nodes[i];
    for (int k = 0; k < ep_node_n_read(n); k++) {
      const ep_value *v = ep_node_input(g, n, k);
      if (!v || v->producer < 0) continue;
      const ep_node *from = &g->nodes[v->producer];
      if (n->refused || from->region != n->region) wanted[v - g->values] = true;
    }
  }
}

static void add_once(int *list, int *io_n, int value) {
  for (int i = 0; i < *io_n; i++)
    if (list[i] == value) return;
  list[(*io_n)++] = value;
}

static void add_node(const ep_graph *g, int number, const bool *wanted, ep_part *part) {
  const ep_node *n = &g->nodes[number];
  part->nodes[part->n_nodes++] = number;
  for (int k = 0; k < ep_node_n_read(n); k++) {
    const ep_value *v = ep_node_input(g, n, k);
    if (!v || v->is_constant) continue;
    const ep_node *from = v->producer < 0 ? NULL : &g->nodes[v->producer];
    if (!from || from->refused || from->region != n->region)
      add_once(part->inputs, &part->n_inputs, n->values[k]);
  }
  for (int k = ep_node_n_read(n); k < ep_node_n_read(n) + n->n_outputs; k++)
    if (n->values[k] >= 0 && wanted[n->values[k]]) part->outputs[part->n_outputs++] = n->values[k];
}

typedef struct sizes {
  int nodes, read, made;
} sizes;

static ort_status *make_parts(ep_graph *g, ep_arena *arena, const bool *wanted, int *out_n,
                              ep_part **out_parts) {
  sizes *of = ep_alloc(arena, (size_t)g->n_nodes, sizeof *of);
  ep_part *by_region = ep_alloc(arena, (size_t)g->n_nodes, sizeof *by_region);
  ep_part *parts = ep_alloc(arena, (size_t)g->n_nodes, sizeof *parts);
  if (!of || !by_region || !parts) return ep_no_memory(g->host);
  for (int i = 0; i < g->n_nodes; i++) {
    const ep_node *n = &g->nodes[i];
    of[n->region].nodes++;
    of[n->region].read += ep_node_n_read(n);
    of[n->region].made += n->n_outputs;
  }
  for (int i = 0; i < g->n_nodes; i++) {
    const int r = g->nodes[i].region;
    ep_part *p = &by_region[r];
    if (g->nodes[i].refused) continue;
    if (!p->nodes) {
      p->nodes = ep_alloc(arena, (size_t)of[r].nodes, sizeof(int));
      p->inputs = ep_alloc(arena, (size_t)of[r].read, sizeof(int));
      p->outputs = ep_alloc(arena, (size_t)of[r].made, sizeof(int));
      if (!p->nodes || !p->inputs || !p->outputs) return ep_no_memory(g->host);
    }
    add_node(g, i, wanted, p);
  }
  *out_n = 0;
  for (int r = 0; r < g->n_nodes; r++)
    if (by_region[r].n_nodes > 0) parts[(*out_n)++] = by_region[r];
  *out_parts = parts;
  return NULL;
}

ort_status *ep_partition(ep_graph *g, ep_arena *arena, int *out_n, ep_part **out_parts) {
  int *first = ep_alloc(arena, (size_t)g->n_values, sizeof *first);
  bool *wanted = ep_alloc(arena, (size_t)g->n_values, sizeof *wanted);
  if (!first || !wanted) return ep_no_memory(g->host);
  set_levels(g);
  join(g, first);
  find_wanted(g, wanted);
  return make_parts(g, arena, wanted, out_n, out_parts);
}

// Enumerates states by breadth-first search from the empty one.
#include "orchestrate/states.h"

kiln_prim_graph *kiln_prim_graph_make(kiln_arena *arena, int n) {
  kiln_prim_graph *g = KILN_NEW(arena, kiln_prim_graph);
  g->n = n;
  g->reads = KILN_NEW_ARRAY(arena, kiln_bits *, n);
  g->readers = KILN_NEW_ARRAY(arena, kiln_bits *, n);
  g->needed = kiln_bits_make(arena, n);
  for (int i = 0; i < n; i++) {
    g->reads[i] = kiln_bits_make(arena, n);
    g->readers[i] = kiln_bits_make(arena, n);
  }
  return g;
}

void kiln_prim_graph_edge(kiln_prim_graph *g, int from, int to) {
  kiln_bits_set(g->reads[to], from);
  kiln_bits_set(g->readers[from], to);
}

kiln_bits *kiln_prim_graph_live(kiln_arena *arena, const kiln_prim_graph *g) {
  kiln_bits *live = kiln_bits_copy(arena, g->needed);
  for (int i = g->n - 1; i >= 0; i--)
    if (kiln_bits_has(live, i)) kiln_bits_add(live, g->reads[i]);
  return live;
}

bool kiln_state_is_ready(const kiln_prim_graph *g, const kiln_bits *state, int i) {
  return !kiln_bits_has(state, i) && kiln_bits_is_subset(g->reads[i], state);
}

kiln_states kiln_states_of(kiln_arena *arena, const kiln_prim_graph *g, int most) {
  kiln_states s = {0};
  bool is_new = false;
  kiln_bits_table_init(&s.table, arena);
  kiln_bits *next = kiln_bits_make(arena, g->n);
  kiln_bits_table_add(&s.table, next, &is_new);
  for (int at = 0; at < s.table.sets.n; at++)
    for (int i = 0; i < g->n; i++) {
      const kiln_bits *state = s.table.sets.data[at];
      if (!kiln_state_is_ready(g, state, i)) continue;
      kiln_bits_remove(next, next);
      kiln_bits_add(next, state);
      kiln_bits_set(next, i);
      if (s.table.sets.n < most) kiln_bits_table_add(&s.table, next, &is_new);
      else s.is_capped |= kiln_bits_table_find(&s.table, next) < 0;
    }
  return s;
}

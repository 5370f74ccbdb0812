// Nests side by side: a function of several, each with blocks of its own, where one alone would leave multiprocessors
// idle. Blocks of one never wait for those of another, so nests that need something of each other are launched apart.
//
// source: "Rammer" (OSDI'20) runs operators side by side in one kernel, too
#include "target/gpu/nest.h"

#include "analysis/uses.h"

static bool has_cluster(kiln_ctx *cx, const kiln_loop *l) {
  for (; l; l = l->next)
    if (kiln_loop_note(cx, l, KILN_CLUSTER_NOTE) || has_cluster(cx, l->body)) return true;
  return false;
}

// Whether |nest| may share the launch of those from |first| on. OpenCL C is not written so: PoCL 3.1 forgets conditions
// behind a barrier that not all blocks come to.
static bool joins(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *kernel,
                  const kiln_loop *first, const kiln_loop *nest) {
  bool may = m->kind != KILN_MACHINE_OPENCL && nest->kind == KILN_LOOP_FOR &&
             kiln_loop_note(cx, nest, KILN_BESIDE_NOTE) &&
             !has_cluster(cx, first); // nor has any behind it
  for (const kiln_loop *l = first; may && l != nest; l = l->next)
    may = !kiln_nests_meet(cx, kernel, l, nest);
  return may;
}

int kiln_gpu_beside(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *kernel,
                    const kiln_loop *nest) {
  int n = 1;
  for (const kiln_loop *l = nest->next; l && joins(cx, m, kernel, nest, l); l = l->next) n++;
  return n;
}

int kiln_gpu_launches(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *kernel) {
  int n = 0;
  for (const kiln_loop *l = kernel->body; l; n++)
    for (int k = kiln_gpu_beside(cx, m, kernel, l); k > 0; k--) l = l->next;
  return n;
}

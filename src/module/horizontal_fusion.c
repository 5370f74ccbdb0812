// Horizontal fusion (HFuse, Rammer): independent kernels that would each leave multiprocessors idle
// become one launch, in which each has blocks of its own (target/gpu/horizontal_fusion.c).
//     launches:  A  B  C     B does not depend on A     =>     [A | B]  C
// That saves launch overhead, and blocks of one kernel run while those of the other wait.
//
// A launch may move up to an earlier one, if its operands are ready there; the order is kept
// otherwise. Kernels are fused only if all their blocks are resident at once, so that none waits
// for others to finish.
#include "module/compiler.h"

#include "analysis/uses.h"
#include "support/bits.h"

#include <string.h>

enum {
  MOST = 6,        // kernels in a fused launch
  MOST_ARGS = 128, // arguments of all of them
  AHEAD = 64       // launches searched after the first
};

// Resources of a kernel by nest; a library kernel has no nests.
typedef struct needs {
  int n_nests, n_args;
  kiln_gpu_demand *nests;
  uint8_t *writes; // [PARAMs]
} needs;

// The kernels that a fused kernel consists of.
typedef struct parts {
  int n, kernels[MOST];
} parts;

typedef struct fusing {
  kiln_ctx *cx;
  const kiln_build *b;
  needs *of;            // [kernels]
  kiln_bits *is_done;   // [launches] already fused or kept
  kiln_kernels fused;   // the new kernels and launches
  KILN_VEC(parts) made; // [fused.kernels]
} fusing;

// --- resources ---

static needs needs_of(fusing *j, const kiln_kernel *k) {
  const kiln_loops *l = k->loops;
  needs out = {.n_nests = kiln_kernel_nests(l)};
  int n = 0;
  out.nests = KILN_NEW_ARRAY(&j->cx->scratch, kiln_gpu_demand, out.n_nests);
  out.writes = KILN_NEW_ARRAY(&j->cx->scratch, uint8_t, l->buffers.n);
  for (const kiln_loop *nest = l->body; nest; nest = nest->next) {
    const uint8_t *uses = kiln_uses_of(j->cx, l, nest);
    out.nests[n++] = kiln_gpu_demand_of(j->cx, l, nest);
    for (int i = 0, param = 0; i < l->buffers.n; i++)
      if (l->buffers.data[i]->scope == KILN_SCOPE_PARAM)
        out.writes[param++] |= uses[i] & KILN_USES_WRITES;
  }
  for (int i = 0; i < l->buffers.n; i++) {
    out.n_args += kiln_scope_is_argument(l->buffers.data[i]->scope);
    if (k->by_library) out.writes[i] = 1; // a library kernel may write any
  }
  return out;
}

// --- dependences ---

static bool lies_in(const kiln_tensor *t, const kiln_tensor *in) {
  while (t && t != in) t = t->inside;
  return t != NULL;
}

// Whether one of the launches writes a tensor that the other accesses.
static bool conflicts(const fusing *j, const kiln_launch *a, const kiln_launch *b) {
  const kiln_program *p = j->b->choices.prog;
  for (int i = 0; i < a->n_args; i++)
    for (int k = 0; k < b->n_args; k++) {
      const kiln_tensor *x = p->tensors.data[a->args[i].tensor],
                        *y = p->tensors.data[b->args[k].tensor];
      if ((j->of[a->kernel].writes[i] || j->of[b->kernel].writes[k]) &&
          (lies_in(x, y) || lies_in(y, x)))
        return true;
    }
  return false;
}

// Whether launch |l| can run right after those that are done; launches before |first| are all done.
static bool is_ready(const fusing *j, int first, int l) {
  const kiln_launch *all = j->b->choices.kernels.launches.data;
  for (int i = first; i < l; i++)
    if (!kiln_bits_has(j->is_done, i) && conflicts(j, &all[i], &all[l])) return false;
  return true;
}

// --- selection ---

// Whether the blocks of all |n| launches are resident at once, nest by nest.
static bool fit(const fusing *j, int n, const int *launches) {
  const needs *all[MOST];
  int n_args = 0, n_nests = 0;
  for (int i = 0; i < n; i++) {
    all[i] = &j->of[j->b->choices.kernels.launches.data[launches[i]].kernel];
    n_args += all[i]->n_args;
    if (all[i]->n_nests == 0) return false;
    if (all[i]->n_nests > n_nests) n_nests = all[i]->n_nests;
  }
  for (int nest = 0; nest < n_nests; nest++) {
    kiln_gpu_demand sum = {.can_share = true, .threads = 1, .registers = 1};
    for (int i = 0; i < n; i++)
      if (nest < all[i]->n_nests) kiln_gpu_demand_add(&all[i]->nests[nest], &sum);
    if (!sum.can_share || sum.n_maps > KILN_MAX_MAPS ||
        sum.blocks > kiln_gpu_room(&j->b->request.machine, &sum))
      return false;
  }
  return n_args <= MOST_ARGS;
}

// Counts the tensor maps of |one|'s nests where windows may need more than are known. A nest that
// cannot be lowered is refused when it is emitted.
static bool count_maps(const fusing *j, const kiln_kernel *k, needs *one) {
  for (int nest = 0; nest < one->n_nests; nest++) {
    kiln_gpu_demand *d = &one->nests[nest];
    kiln_gpu_device lowered;
    if (!d->has_windows) continue;
    if (kiln_gpu_lower(j->cx, &j->b->request.machine, k->loops, nest, &lowered) != KILN_OK)
      return false;
    d->n_maps = lowered.n_maps;
    d->has_windows = false; // they are counted
  }
  return true;
}

// The same with all tensor maps, which takes time to count.
static bool fit_with_maps(const fusing *j, int n, const int *launches) {
  if (!fit(j, n, launches)) return false;
  for (int i = 0; i < n; i++) {
    const int kernel = j->b->choices.kernels.launches.data[launches[i]].kernel;
    if (!count_maps(j, j->b->choices.kernels.kernels.data[kernel], &j->of[kernel])) return false;
  }
  return fit(j, n, launches);
}

// Selects the launches to fuse with |first|: out[MOST], beginning with |first|.
static int choose(const fusing *j, int first, int *out) {
  const int n_launches = j->b->choices.kernels.launches.n;
  int n = 0;
  out[n++] = first;
  for (int l = first + 1; l < n_launches && l <= first + AHEAD && n < MOST; l++) {
    if (kiln_bits_has(j->is_done, l)) continue;
    out[n] = l;
    if (is_ready(j, first, l) && fit_with_maps(j, n + 1, out)) n++;
  }
  return n;
}

// --- fused kernels ---

static const char *suffix_of(kiln_ctx *cx, int part) {
  return kiln_arena_printf(&cx->scratch, ".%c", 'a' + part);
}

// Orders the nests: first nests of all kernels, side by side, then the second ones, and so on.
static void order_nests(kiln_ctx *cx, kiln_loops *all, int n, kiln_loop **nests) {
  kiln_loop **end = &all->body;
  for (bool any = true; any;) {
    any = false;
    for (int i = 0; i < n; i++) {
      kiln_loop *nest = nests[i];
      if (!nest) continue;
      nests[i] = nest->next;
      nest->next = NULL;
      if (any) kiln_loop_annotate(cx, nest, KILN_HORIZONTAL_FUSION_NOTE, "1");
      any = true;
      *end = nest;
      end = &nest->next;
    }
  }
}

// Appends the buffers of |one| to |k|, and its tensors to |prog|, the program of |k|.
//
// gives: its nests, on these buffers
static kiln_loop *add_part(kiln_ctx *cx, kiln_kernel *k, kiln_program *prog, const kiln_kernel *one,
                           const char *suffix) {
  const int first_buffer = k->loops->buffers.n, first_tensor = prog->tensors.n;
  kiln_loop *nests = kiln_loops_append(cx, k->loops, one->loops, suffix);
  for (int t = 0; t < one->prog->tensors.n; t++)
    KILN_VEC_PUSH(&cx->perm, &prog->tensors, one->prog->tensors.data[t]);
  for (int b = first_buffer; b < k->loops->buffers.n; b++) {
    kiln_buffer *buffer = k->loops->buffers.data[b];
    if (buffer->tensor >= 0) buffer->tensor += first_tensor;
    if (!buffer->pack) continue;
    kiln_pack *pack = KILN_NEW(&cx->perm, kiln_pack);
    *pack = *buffer->pack;
    pack->source += first_tensor;
    buffer->pack = pack;
  }
  k->flops += one->flops;
  k->bytes += one->bytes;
  return nests;
}

// The fused kernel. Its program has only the tensors that its buffers are named after.
static kiln_kernel *fuse_kernels(fusing *j, const parts *p) {
  kiln_ctx *cx = j->cx;
  kiln_kernel *k = KILN_NEW(&cx->perm, kiln_kernel);
  kiln_program *prog = KILN_NEW(&cx->perm, kiln_program);
  kiln_loop *nests[MOST];
  const char *name = "";
  *k = (kiln_kernel){.prog = prog,
                     .loops = kiln_loops_make(cx, name),
                     .n_members = p->n,
                     .members = KILN_NEW_ARRAY(&cx->perm, const kiln_kernel *, p->n)};
  for (int i = 0; i < p->n; i++) {
    k->members[i] = j->b->choices.kernels.kernels.data[p->kernels[i]];
    nests[i] = add_part(cx, k, prog, k->members[i], suffix_of(cx, i));
    name = kiln_arena_printf(&cx->scratch, "%s%s%s", name, i ? "_with_" : "",
                             kiln_symbol_text(cx, k->members[i]->name));
  }
  k->name = k->loops->name = kiln_symbol_of(cx, name);
  order_nests(cx, k->loops, p->n, nests);
  return k;
}

// The index of the fused kernel of |p|; makes it at the first use.
static int kernel_of(fusing *j, const parts *p) {
  kiln_kernel *k = NULL;
  for (int i = 0; i < j->made.n; i++)
    if (j->made.data[i].n == p->n &&
        memcmp(j->made.data[i].kernels, p->kernels, (size_t)p->n * sizeof *p->kernels) == 0)
      return i;
  if (p->n > 1) k = fuse_kernels(j, p);
  else {
    k = KILN_NEW(&j->cx->perm, kiln_kernel);
    *k = *j->b->choices.kernels.kernels.data[p->kernels[0]];
  }
  k->id = j->fused.kernels.n;
  KILN_VEC_PUSH(&j->cx->perm, &j->fused.kernels, k);
  KILN_VEC_PUSH(&j->cx->scratch, &j->made, *p);
  return k->id;
}

static kiln_launch join_launches(fusing *j, int n, const int *launches) {
  kiln_ctx *cx = j->cx;
  kiln_launch out = j->b->choices.kernels.launches.data[launches[0]];
  parts p = {.n = n};
  if (n > 1) out.stored = 0; // only meaningful for outlined kernels
  for (int i = 1; i < n; i++) {
    const kiln_launch *one = &j->b->choices.kernels.launches.data[launches[i]];
    kiln_argument *args = KILN_NEW_ARRAY(&cx->perm, kiln_argument, out.n_args + one->n_args);
    int *stmts = KILN_NEW_ARRAY(&cx->perm, int, out.n_stmts + one->n_stmts);
    for (int k = 0; k < out.n_args; k++) args[k] = out.args[k];
    for (int k = 0; k < one->n_args; k++) args[out.n_args++] = one->args[k];
    for (int k = 0; k < out.n_stmts; k++) stmts[k] = out.stmts[k];
    for (int k = 0; k < one->n_stmts; k++) stmts[out.n_stmts++] = one->stmts[k];
    out.args = args;
    out.stmts = stmts;
    out.origin = kiln_symbol_printf(cx, "%s | %s", kiln_symbol_text(cx, out.origin),
                                    kiln_symbol_text(cx, one->origin));
  }
  for (int i = 0; i < n; i++)
    p.kernels[i] = j->b->choices.kernels.launches.data[launches[i]].kernel;
  out.kernel = kernel_of(j, &p);
  return out;
}

static fusing begin(kiln_ctx *cx, const kiln_build *b) {
  fusing j = {.cx = cx, .b = b};
  j.of = KILN_NEW_ARRAY(&cx->scratch, needs, b->choices.kernels.kernels.n);
  j.is_done = kiln_bits_make(&cx->scratch, b->choices.kernels.launches.n);
  for (int i = 0; i < b->choices.kernels.kernels.n; i++)
    j.of[i] = needs_of(&j, b->choices.kernels.kernels.data[i]);
  return j;
}

static bool is_asked_for(const kiln_build *b) {
  return b->request.machine.target->has_grids &&
         !b->request.model->compiler->omits(b, "horizontal-fusion");
}

// The next launches to run as one: out[MOST]; gives their number, 0 at the end.
static int next(fusing *j, int *out) {
  int first = 0, n = 0;
  while (first < j->b->choices.kernels.launches.n && kiln_bits_has(j->is_done, first)) first++;
  if (first == j->b->choices.kernels.launches.n) return 0;
  n = choose(j, first, out);
  for (int i = 0; i < n; i++) kiln_bits_set(j->is_done, out[i]);
  return n;
}

int *kiln_build_horizontally_fused(kiln_ctx *cx, const kiln_build *b) {
  int *of = KILN_NEW_ARRAY(&cx->perm, int, b->choices.kernels.launches.n), launches[MOST];
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  for (int i = 0; i < b->choices.kernels.launches.n; i++) of[i] = i;
  if (is_asked_for(b)) {
    fusing j = begin(cx, b);
    for (int n, number = 0; (n = next(&j, launches)); number++)
      for (int i = 0; i < n; i++) of[launches[i]] = number;
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return of;
}

void kiln_build_fuse_horizontally(kiln_ctx *cx, kiln_build *b) {
  int launches[MOST];
  if (!is_asked_for(b)) return;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  fusing j = begin(cx, b);
  for (int n; (n = next(&j, launches));) {
    const kiln_launch one = join_launches(&j, n, launches);
    KILN_VEC_PUSH(&cx->perm, &j.fused.launches, one);
  }
  b->choices.kernels.kernels = j.fused.kernels;
  b->choices.kernels.launches = j.fused.launches;
  kiln_arena_rewind(&cx->scratch, mark);
}

// Staggered products: of a loop whose iteration has two products, the second of what threads make
// of the first's result, as attention's has, the first product of the next iteration is begun
// before the second of this one. Tensor cores so have two products at once, and threads work on the
// result of the first while the second runs.
//
//     one after the other                  staggered
//
//       for i {                              P(0)  W(0)
//         P(i)     X = K[i] ..               for i {
//         W(i)     w = f(X)  T *= g            P(i+1)  Q(i)
//         Q(i)     T += w V[i]                 wait for P   W(i+1), of w.next
//       }                                      wait for Q   T *= g   w = w.next
//                                            }
//                                            Q(n-1)
//
// Warp groups take turns in beginning their products, so that one's work runs beside the other's
// products. Each of the two has a stage of its own operand to release, so the barriers of the two
// are apart; a producer warp issues the copies.
// source: Shah et al., "FlashAttention-3", 2024
#include "target/gpu/nest.h"

#include "analysis/uses.h"
#include "target/gpu/device/map.h"
#include "target/gpu/instr.h"

// --- the loop's body ---

// Adds the phases and ALLOCs of |l| and its siblings; false: there is something else.
static bool list_units(const kiln_gpu_nest *n, const kiln_loop *l, kiln_stagger_units *out) {
  for (; l; l = l->next) {
    if (kiln_gpu_has_tma(l)) continue;
    if (l->kind == KILN_LOOP_ALLOC) {
      if (!kiln_scope_is_private(n->l->buffers.data[l->buffer]->scope)) return false;
      KILN_VEC_PUSH(&n->cx->scratch, &out->allocs, l);
      if (!list_units(n, l->body, out)) return false;
    } else KILN_VEC_PUSH(&n->cx->scratch, &out->phases, l);
  }
  return true;
}

static const kiln_loop *instr_in(const kiln_loop *l) {
  if (l->kind == KILN_LOOP_INSTR) return l;
  const kiln_loop *found = NULL;
  for (l = l->body; l && !found; l = l->next) found = instr_in(l);
  return found;
}

static bool touches(const kiln_gpu_nest *n, const kiln_loop *l, int buffer) {
  return kiln_uses_of(n->cx, n->l, l)[buffer] != 0;
}

// Whether |a|, which comes first, may come behind |b|: none writes what the other one uses.
static bool may_swap(const kiln_gpu_nest *n, const kiln_loop *a, const kiln_loop *b) {
  const uint8_t *x = kiln_uses_of(n->cx, n->l, a), *y = kiln_uses_of(n->cx, n->l, b);
  for (int i = 0; i < n->l->buffers.n; i++)
    if (x[i] && y[i] && ((x[i] | y[i]) & KILN_USES_WRITES)) return false;
  return true;
}

// Whether what touches the second product's sums may come behind all else of an iteration.
static bool may_wait(const kiln_gpu_nest *n, const kiln_stagger_units *u) {
  for (int i = 0; i < u->product[1]; i++)
    for (int k = i + 1; k < u->product[1] && touches(n, u->phases.data[i], u->sums); k++)
      if (!touches(n, u->phases.data[k], u->sums) &&
          !may_swap(n, u->phases.data[i], u->phases.data[k]))
        return false;
  return true;
}

bool kiln_stagger_units_of(const kiln_gpu_nest *n, const kiln_loop *loop, kiln_stagger_units *out) {
  int products = 0;
  *out = (kiln_stagger_units){0};
  if (!list_units(n, loop->body, out)) return false;
  for (int i = 0; i < out->phases.n; i++) {
    if (!kiln_gpu_is_product(out->phases.data[i])) continue;
    if (products < KILN_STAGGERED) out->product[products] = i;
    products++;
  }
  if (products != KILN_STAGGERED || out->product[1] != out->phases.n - 1) return false;
  const kiln_loop *second = instr_in(out->phases.data[out->product[1]]);
  out->sums = second->operands[0]->u.tensor;
  out->weights = second->operands[1]->u.tensor;
  bool is_own = false; // of an iteration
  for (int i = 0; i < out->allocs.n; i++) is_own |= out->allocs.data[i]->buffer == out->weights;
  return is_own && kiln_scope_is_private(n->l->buffers.data[out->sums]->scope) && may_wait(n, out);
}

// --- whether it can be ---

static const kiln_loop *find_noted(const kiln_gpu_nest *n, const kiln_loop *l) {
  const kiln_loop *found = NULL;
  for (; l && !found; l = l->next)
    found = l->kind == KILN_LOOP_FOR && kiln_loop_note(n->cx, l, KILN_STAGGER_NOTE)
                ? l
                : find_noted(n, l->body);
  return found;
}

// Whether a block runs |loop| once.
static bool is_once(const kiln_loop *list, const kiln_loop *loop) {
  int64_t extent = 0;
  for (const kiln_loop *l = list; l; l = l->next) {
    if (l == loop) return true;
    if (!kiln_gpu_is_in(l->body, loop)) continue;
    return (l->kind == KILN_LOOP_ALLOC || kiln_gpu_block_axis(l) >= 0 ||
            (l->kind == KILN_LOOP_FOR && kiln_expr_is_int(l->extent, &extent) && extent == 1)) &&
           is_once(l->body, loop);
  }
  return false;
}

// Whether threads wait for each other nowhere else, and for nothing but TMA copies.
static bool waits_for_copies_alone(const kiln_gpu_nest *n, const kiln_loop *loop) {
  for (int id = 1; id < n->n_nodes; id++)
    if (n->found[id].commits ||
        (n->found[id].wait != KILN_WAIT_NONE && id != loop->id && id != loop->body->id))
      return false;
  return n->empties.n == 1 && n->empties.data[0].loop == loop;
}

// Finds the rows of |tma| that the products read; whether the others are filled once.
static bool find_operands(const kiln_gpu_nest *n, const kiln_stagger_units *u,
                          const kiln_loop *loop, kiln_stagger *out) {
  int found = 0;
  for (int i = 0; i < n->tma.n; i++) {
    const kiln_full_barriers *t = &n->tma.data[i];
    if (!kiln_gpu_is_in(loop->body, t->use)) {
      if (t->stages != 1) return false;
      continue;
    }
    for (int k = 0; k < KILN_STAGGERED; k++)
      if (touches(n, u->phases.data[u->product[k]], t->buffer)) out->operand[k] = i, found++;
    out->stages = t->stages;
  }
  return found == KILN_STAGGERED && out->stages > 1 &&
         n->tma.data[out->operand[0]].stages == n->tma.data[out->operand[1]].stages;
}

// Whether all shared memory is filled by TMA.
static bool has_copies_alone(const kiln_gpu_nest *n) {
  for (int i = 0; i < n->l->buffers.n; i++) {
    bool has = n->l->buffers.data[i]->scope != KILN_SCOPE_SHARED || n->offsets[i] < 0;
    for (int k = 0; k < n->tma.n; k++) has |= n->tma.data[k].buffer == i;
    if (!has) return false;
  }
  return true;
}

// --- what fills stages ---

// Notes |node|, the copies of a stage of one of the operands.
static void note_fill(kiln_gpu_nest *n, const kiln_loop *node) {
  const kiln_loop *copy = instr_in(node);
  for (int k = 0; k < KILN_STAGGERED; k++) {
    if (copy->operands[0]->u.tensor != n->tma.data[n->stagger.operand[k]].buffer) continue;
    kiln_gpu_found *f = kiln_gpu_found_of(n, node);
    f->leads = true;
    f->operand = k;
    f->stage = kiln_tile_begin(n->cx, copy->operands[0])->args[0];
  }
}

// The loops in front of the staggered one, and the conditions in it, whose bodies fill stages.
static void note_fills(kiln_gpu_nest *n, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (!kiln_gpu_has_tma(l)) continue;
    const bool is_around = l->kind == KILN_LOOP_ALLOC || kiln_gpu_block_axis(l) >= 0 ||
                           kiln_gpu_is_in(l->body, n->stagger.loop);
    if (is_around || l == n->stagger.loop) note_fills(n, l->body);
    else
      for (const kiln_loop *node = l->body; node; node = node->next) note_fill(n, node);
  }
}

// The producer fills the first product's operand first.
static void order_fills(const kiln_gpu_nest *n, kiln_loop *loop) {
  kiln_loop *first = loop->body, *second = first ? first->next : NULL;
  if (!second || first->kind != KILN_LOOP_IF || second->kind != KILN_LOOP_IF ||
      kiln_gpu_found_of(n, first->body)->operand == 0)
    return;
  first->next = second->next;
  second->next = first;
  loop->body = second;
}

void kiln_gpu_nest_stagger(kiln_gpu_nest *n) {
  enum { CAPABILITY = 90, GROUP = 128, GROUPS = 2 };
  kiln_stagger s = {.loop = find_noted(n, n->l->body)};
  kiln_stagger_units units;
  n->stagger = (kiln_stagger){0};
  if (!s.loop || n->m->gpu.capability < CAPABILITY || n->cluster > 1 || n->specialized.consumers ||
      n->block[0] != GROUP || n->block[1] != GROUPS || n->block[2] != 1 ||
      !kiln_expr_is_int(s.loop->extent, &s.steps) || s.steps < 2 || !is_once(n->l->body, s.loop) ||
      !waits_for_copies_alone(n, s.loop) || !has_copies_alone(n) ||
      !kiln_stagger_units_of(n, s.loop, &units) || !find_operands(n, &units, s.loop, &s))
    return;
  s.empty = n->shared_bytes;
  const int64_t bytes = n->shared_bytes + KILN_STAGGERED * s.stages * (int64_t)sizeof(uint64_t);
  if (bytes > n->m->gpu.shared_bytes) return;
  n->shared_bytes = bytes;
  n->stagger = s;
  kiln_gpu_found_of(n, s.loop)->wait = KILN_WAIT_NONE;
  kiln_gpu_found_of(n, s.loop->body)->wait = KILN_WAIT_NONE;
  n->empties.n = 0;
  note_fills(n, n->l->body);
  order_fills(n, (kiln_loop *)(uintptr_t)s.loop);
}

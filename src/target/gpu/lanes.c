// Reductions across lanes (reduce.c) as loops over shared memory, for languages without shuffles:
//
//     for y:2 thread.y { for r:4 unrolled { instr lanes.sum.4.f32(D, A) } }
//
// becomes, with T(y, r, i, j) in shared memory,
//
//     for y:2 thread.y { for r:4 unrolled { for t:32 thread.x { T(y, r, t/4, t%4) = A } } }
//     for y:2 thread.y { for r:4 unrolled { for t:32 thread.x {
//       for k:4 { D += T(y, r, t/4, k) } } } }
//
// whose barriers sync.c places as those of all loops.
#include "target/gpu/instr.h"

#include "analysis/simplify.h"

enum { MAX_PATH = 32, MAX_RANK = KILN_MAX_RANK + 4 };

typedef struct speller {
  kiln_ctx *cx;
  kiln_loops *l;
} speller;

// The loops and conditions around an instruction, from the outermost loop over threads on; each
// holds the next alone.
typedef struct path {
  const kiln_loop *nodes[MAX_PATH], *instr;
  int n, n_loops;
  kiln_symbol vars[MAX_PATH]; // of its loops
  const kiln_expr *renamed[MAX_PATH];
} path;

static bool is_lanes(const kiln_loop *l) {
  return l->kind == KILN_LOOP_INSTR && kiln_gpu_instr_is_lanes(l->instr);
}

// Whether |l| is a path to such an instruction.
static bool find_path(const kiln_loop *l, path *out) {
  *out = (path){0};
  for (; l; l = l->body) {
    if (is_lanes(l)) {
      out->instr = l;
      return true;
    }
    if ((l->kind != KILN_LOOP_FOR && l->kind != KILN_LOOP_IF) || !l->body || l->body->next ||
        out->n == MAX_PATH)
      return false;
    out->nodes[out->n++] = l;
    if (l->kind == KILN_LOOP_FOR) out->vars[out->n_loops++] = l->var;
  }
  return false;
}

static kiln_symbol suffixed(const speller *p, kiln_symbol name, const char *suffix) {
  return kiln_symbol_printf(p->cx, "%s%s", kiln_symbol_text(p->cx, name), suffix);
}

// The nodes of |x| around |body|, its loops called with |suffix|.
static kiln_loop *around(const speller *p, const path *x, const char *suffix, kiln_loop *body) {
  for (int i = x->n - 1; i >= 0; i--) {
    const kiln_loop *from = x->nodes[i];
    if (from->kind == KILN_LOOP_IF) {
      body = kiln_if_make(
          p->cx, kiln_expr_substitute(p->cx, from->cond, x->n_loops, x->vars, x->renamed), body);
    } else {
      body = kiln_for_make(p->cx, suffixed(p, from->var, suffix), from->extent, body);
      body->how = from->how;
      body->notes = from->notes;
    }
    body->line = from->line;
  }
  return body;
}

// The instruction's store: buffer 0, the result, combines buffer 1, which is loaded with one index
// of its own.
static const kiln_loop *store_of(const kiln_loop *instr) {
  const kiln_loop *l = instr->instr->loops->body;
  while (l->kind == KILN_LOOP_FOR) l = l->body;
  return l;
}

// Operand |k| of the instruction at |index| of its tile, with |x|'s loops renamed.
static const kiln_expr *operand(const speller *p, const path *x, int k,
                                const kiln_expr *const *index, int rank) {
  kiln_symbol tile[KILN_MAX_TILE_RANK];
  for (int d = 0; d < rank; d++) tile[d] = kiln_tile_var(p->cx, d);
  const kiln_expr *e =
      kiln_expr_substitute(p->cx, x->instr->operands[k], x->n_loops, x->vars, x->renamed);
  return kiln_expr_substitute(p->cx, e, rank, tile, index);
}

// The two halves: threads store their terms; threads combine those of their lanes.
typedef struct halves {
  kiln_buffer *terms;
  const kiln_buffer *tile; // of the instruction
  int64_t threads;
} halves;

// The loops of one half, with |suffix|.
static kiln_loop *make_half(const speller *p, path *x, const halves *h, const char *suffix,
                            bool combines) {
  kiln_ctx *cx = p->cx;
  const kiln_expr *index[MAX_RANK], *at[KILN_MAX_TILE_RANK];
  const kiln_symbol name = h->terms->name,
                    thread = kiln_symbol_printf(cx, "%s.t%s", kiln_symbol_text(cx, name), suffix),
                    lane = kiln_symbol_printf(cx, "%s.k%s", kiln_symbol_text(cx, name), suffix);
  const kiln_loop *meant = store_of(x->instr);
  int64_t stride = h->threads, lanes = 1;
  for (int i = 0; i < x->n_loops; i++)
    index[i] = x->renamed[i] = kiln_var(cx, suffixed(p, x->vars[i], suffix));
  for (int d = 0; d < h->tile->rank; d++) {
    stride /= h->tile->extents[d];
    at[d] = kiln_mod(cx, kiln_div(cx, kiln_var(cx, thread), kiln_int(cx, stride)),
                     kiln_int(cx, h->tile->extents[d]));
    const bool is_reduced = meant->index[d] != meant->value->args[d];
    if (is_reduced) lanes = h->tile->extents[d];
    index[x->n_loops + d] = combines && is_reduced ? kiln_var(cx, lane) : at[d];
  }
  kiln_loop *body;
  if (combines) {
    const kiln_expr *to = operand(p, x, 0, at, h->tile->rank);
    body = kiln_store_make(cx, p->l->buffers.data[to->u.tensor], to->args, meant->combiner,
                           kiln_load(cx, h->terms->id, h->terms->dtype, h->terms->rank, index));
    body = kiln_for_make(cx, lane, kiln_int(cx, lanes), body);
  } else {
    body = kiln_store_make(cx, h->terms, index, KILN_COMBINE_NONE,
                           operand(p, x, 1, at, h->tile->rank));
  }
  body = kiln_for_make(cx, thread, kiln_int(cx, h->threads), body);
  body->how = KILN_THREAD_X;
  return around(p, x, suffix, body);
}

static bool spell(const speller *p, kiln_loop **slot) {
  path x;
  halves h = {.threads = 1};
  int64_t extents[MAX_RANK];
  if (!find_path(*slot, &x)) return false;
  h.tile = x.instr->instr->loops->buffers.data[0];
  if (x.n_loops + h.tile->rank > MAX_RANK) return false;
  for (int i = 0, k = 0; i < x.n; i++)
    if (x.nodes[i]->kind == KILN_LOOP_FOR && !kiln_expr_is_int(x.nodes[i]->extent, &extents[k++]))
      return false;
  for (int d = 0; d < h.tile->rank; d++) {
    extents[x.n_loops + d] = h.tile->extents[d];
    h.threads *= h.tile->extents[d];
  }
  const char *name = kiln_arena_printf(
      &p->cx->scratch, "%s.across%d",
      kiln_symbol_text(p->cx, p->l->buffers.data[x.instr->operands[0]->u.tensor]->name),
      p->l->buffers.n);
  h.terms = kiln_buffer_make(p->cx, p->l, name, KILN_F32, KILN_SCOPE_SHARED,
                             x.n_loops + h.tile->rank, extents, NULL);
  kiln_loop *first = make_half(p, &x, &h, ".x", false), *after = (*slot)->next;
  first->next = make_half(p, &x, &h, "", true);
  *slot = kiln_alloc_make(p->cx, h.terms, first);
  (*slot)->next = after;
  return true;
}

static void spell_all(const speller *p, kiln_loop **slot) {
  for (; *slot; slot = &(*slot)->next) {
    kiln_loop *l = *slot;
    const bool is_begin = is_lanes(l) || (l->kind == KILN_LOOP_FOR && kiln_how_is_thread(l->how));
    if (!is_begin || !spell(p, slot)) spell_all(p, &l->body);
  }
}

static bool has_lanes(const kiln_loop *l) {
  for (; l; l = l->next)
    if (is_lanes(l) || has_lanes(l->body)) return true;
  return false;
}

kiln_loops *kiln_gpu_spell_lanes(kiln_ctx *cx, kiln_loops *l) {
  if (!has_lanes(l->body)) return l;
  const speller p = {cx, kiln_loops_copy(&cx->perm, l)};
  spell_all(&p, &p.l->body);
  return p.l;
}

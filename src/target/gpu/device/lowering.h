// The state of the lowering to device loops. Private to target/gpu/device.
#ifndef KILN_TARGET_GPU_DEVICE_LOWERING_H
#define KILN_TARGET_GPU_DEVICE_LOWERING_H

#include "target/gpu/device/lower.h"

enum { MAX_RENAMED = 64 };

typedef struct lowering {
  kiln_gpu_nest *n;
  kiln_ctx *cx;
  const kiln_loop *dependent;       // the first node that needs earlier launches; NULL: none does
  bool fills;                       // threads write operands of warp groups' instructions
  const kiln_buffer **full, *empty; // [tma] full barriers; a producer warp's empty ones
  const kiln_buffer **phases;       // [tma] the thread's, of full barriers
  const kiln_buffer **empties;      // [empties]
  const kiln_expr *consumer;        // the number of the consumer; NULL: there is no producer warp
  bool is_apart;                    // with a producer warp each buffer has barriers of its own
  // Lowers n->stagger.loop at |link|; gives where the next node stands. NULL: there is none.
  kiln_loop **(*lower_loop)(struct lowering *w, kiln_loop **link);
  const kiln_expr *tile_begin;    // the first step of the tile, in a persistent tile loop; NULL
  KILN_VEC(kiln_loop *) deferred; // fills that are issued behind a phase, and not put so far
  kiln_loop **at;                 // where the next statement is put
  int n_renamed;                  // loops of the producer, which are others than the consumers'
  kiln_symbol renamed[MAX_RENAMED];
  const kiln_expr *names[MAX_RENAMED];
} lowering;

static inline void put(lowering *w, const kiln_loop *of, kiln_loop *statement) {
  statement->line = of->line;
  statement->next = *w->at;
  *w->at = statement;
  w->at = &statement->next;
}

static inline void put_op(lowering *w, const kiln_loop *of, kiln_device_kind k) {
  put(w, of, kiln_device_make(w->cx, k, 0, NULL));
}

// |b| may be NULL.
static inline void put_op_of(lowering *w, const kiln_loop *of, kiln_device_kind k,
                             const kiln_expr *a, const kiln_expr *b) {
  const kiln_expr *arguments[] = {a, b};
  put(w, of, kiln_device_make(w->cx, k, b ? 2 : 1, arguments));
}

static inline void put_int(lowering *w, const kiln_loop *of, kiln_device_kind k, int64_t argument) {
  put(w, of, kiln_device_make_int(w->cx, k, argument));
}

static inline const kiln_expr *element(const lowering *w, const kiln_buffer *b,
                                       const kiln_expr *index) {
  return kiln_load(w->cx, b->id, b->dtype, 1, &index);
}

static inline const kiln_expr *number(const lowering *w, int64_t n) { return kiln_int(w->cx, n); }

static inline kiln_loop **end_of(kiln_loop **list) {
  while (*list) list = &(*list)->next;
  return list;
}

// lower.c
// Lowers |list| for the threads of a block, or for consumers.
void kiln_device_lower_list(lowering *w, kiln_loop **list);
// The row of |buffer|'s full barriers; -1: TMA does not fill it.
int kiln_device_tma_of(const lowering *w, int buffer);
// Lowers the copy *|link|, which so many warps issue.
void kiln_device_lower_tma(lowering *w, kiln_loop **link, int64_t issuers);
// if (|cond|) { |statement| }
void kiln_device_put_if(lowering *w, const kiln_loop *of, const kiln_expr *cond,
                        kiln_loop *statement);

// role.c
// The producer's part of |from| and its siblings: TMA copies, and the control around them.
kiln_loop *kiln_device_produced(lowering *w, const kiln_loop *from);
// Takes the ALLOCs of buffers that TMA fills out of |list|: both roles have them.
void kiln_device_take_out(lowering *w, kiln_loop **list);
const kiln_buffer *kiln_device_mbarriers(lowering *w, const char *name, int64_t n, int64_t at);
const kiln_buffer *kiln_device_phases(lowering *w, const char *name);
const kiln_buffer *kiln_device_local(lowering *w, const char *name, kiln_dtype t, int64_t n);
// alloc |phases| { sets them to |bits|  |body| }
kiln_loop *kiln_device_with_phases(lowering *w, const kiln_buffer *phases, const kiln_expr *bits,
                                   kiln_loop *body);
// The consumers' part, with the arrival that gives the first of them the first turn.
kiln_loop *kiln_device_first_turn(lowering *w, kiln_loop *consumes);
// Puts the number of registers that the threads of a role have in front of |body|.
kiln_loop *kiln_device_with_registers(lowering *w, bool is_producer, kiln_loop *body);

// stagger.c
// The consumers' and the producer's loops of a nest with staggered products.
void kiln_device_lower_staggered(lowering *w);

#endif

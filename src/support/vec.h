// The typed vector: `KILN_VEC(int) v = {0};`. Its memory is in an arena and is not freed
// individually.
#ifndef KILN_SUPPORT_VEC_H
#define KILN_SUPPORT_VEC_H

#include "support/arena.h"

#define KILN_VEC(T)                                                                                \
  struct {                                                                                         \
    T *data;                                                                                       \
    int n, cap;                                                                                    \
  }

// Makes room for |extra| more elements in |v|, which is allocated in |arena|.
#define KILN_VEC_RESERVE(arena, v, extra)                                                          \
  ((v)->data = kiln_vec_grow((arena), (v)->data, (v)->n, &(v)->cap, (extra), sizeof(*(v)->data)))

#define KILN_VEC_PUSH(arena, v, ...)                                                               \
  do {                                                                                             \
    KILN_VEC_RESERVE(arena, v, 1);                                                                 \
    (v)->data[(v)->n++] = (__VA_ARGS__);                                                           \
  } while (0)

void *kiln_vec_grow(kiln_arena *arena, void *data, int n, int *cap, int extra, size_t elem_bytes);

#endif

// SPDX-License-Identifier: Apache-2.0
// Memory of the provider: an arena for objects of one call or one compiled sub-graph, and a growing
// buffer. Out of memory is tested once, at the end: an arena returns NULL, a buffer is marked as
// incomplete.
#ifndef KILN_ORT_MEMORY_H
#define KILN_ORT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ep_block ep_block;
typedef struct ep_arena {
  ep_block *blocks; // newest first
} ep_arena;

void *ep_alloc(ep_arena *arena, size_t n, size_t bytes); // zeroed; NULL if memory ran out
char *ep_text(ep_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ep_arena_deinit(ep_arena *arena);

typedef struct ep_buffer {
  char *data; // malloc'ed
  size_t n, cap;
  bool is_lost; // out of memory: it is incomplete
} ep_buffer;

void ep_buffer_add(ep_buffer *b, const void *data, size_t n);
void ep_buffer_printf(ep_buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ep_buffer_deinit(ep_buffer *b);

// A map from texts to numbers.
typedef struct ep_names {
  size_t n, n_slots;
  struct ep_name *slots; // in the arena
} ep_names;

// The number of |text|; if it is new, *io_next, which is incremented. -1: memory ran out. |text| is
// borrowed.
int ep_names_put(ep_names *names, ep_arena *arena, const char *text, int *io_next);
int ep_names_find(const ep_names *names, const char *text); // -1: not found

#endif

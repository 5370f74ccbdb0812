// SPDX-License-Identifier: Apache-2.0
// Memory of the provider: an arena for what lives as long as one call or one compiled sub-graph,
// and a buffer that grows. Without memory both say so once, at the end: an arena gives NULL, a
// buffer loses what is added.
#ifndef KILN_ORT_MEMORY_H
#define KILN_ORT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ep_block ep_block;
typedef struct ep_arena {
  ep_block *blocks; // the newest first
} ep_arena;

void *ep_alloc(ep_arena *arena, size_t n, size_t bytes); // zeroed; NULL: no memory
char *ep_text(ep_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ep_arena_deinit(ep_arena *arena);

typedef struct ep_buffer {
  char *data; // malloc'ed
  size_t n, cap;
  bool is_lost; // something was not added
} ep_buffer;

void ep_buffer_add(ep_buffer *b, const void *data, size_t n);
void ep_buffer_printf(ep_buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ep_buffer_deinit(ep_buffer *b);

// Texts to numbers.
typedef struct ep_names {
  size_t n, n_slots;
  struct ep_name *slots; // in the arena
} ep_names;

// The number of |text|, |*io_next| and one more where it is new; -1: no memory. The text is
// borrowed.
int ep_names_put(ep_names *names, ep_arena *arena, const char *text, int *io_next);
int ep_names_find(const ep_names *names, const char *text); // -1: it has none

#endif

// SPDX-License-Identifier: Apache-2.0
// An arena of blocks, a buffer and a hash table with linear probing.
#include "memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 14 };

struct ep_block {
  ep_block *next;
  size_t used, room;
  _Alignas(max_align_t) char data[];
};

void *ep_alloc(ep_arena *arena, size_t n, size_t bytes) {
  const size_t unit = _Alignof(max_align_t);
  if (bytes > 0 && n > (SIZE_MAX - BLOCK_BYTES) / bytes) return NULL;
  // at least one unit, so that addresses are distinct
  const size_t want = (n * bytes + unit) / unit * unit;
  ep_block *b = arena->blocks;
  if (!b || b->room - b->used < want) {
    const size_t room = want > BLOCK_BYTES ? want : BLOCK_BYTES;
    b = calloc(1, sizeof *b + room);
    if (!b) return NULL;
    b->room = room;
    b->next = arena->blocks;
    arena->blocks = b;
  }
  void *at = b->data + b->used;
  b->used += want;
  return at;
}

char *ep_text(ep_arena *arena, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int n = vsnprintf(NULL, 0, format, arguments);
  char *text = n < 0 ? NULL : ep_alloc(arena, (size_t)n + 1, 1);
  if (text) vsnprintf(text, (size_t)n + 1, format, again);
  va_end(again);
  va_end(arguments);
  return text;
}

void ep_arena_deinit(ep_arena *arena) {
  for (ep_block *b = arena->blocks, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  arena->blocks = NULL;
}

// --- buffers ---

static bool has_room(ep_buffer *b, size_t n) {
  if (b->is_lost || n > SIZE_MAX / 4 - b->n) return false;
  if (b->cap - b->n >= n) return true;
  const size_t cap = (b->n + n) * 2;
  char *data = realloc(b->data, cap);
  if (!data) return false;
  b->data = data;
  b->cap = cap;
  return true;
}

void ep_buffer_add(ep_buffer *b, const void *data, size_t n) {
  b->is_lost = !has_room(b, n);
  if (b->is_lost || n == 0) return;
  memcpy(b->data + b->n, data, n);
  b->n += n;
}

void ep_buffer_printf(ep_buffer *b, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int n = vsnprintf(NULL, 0, format, arguments);
  b->is_lost = n < 0 || !has_room(b, (size_t)n + 1);
  if (!b->is_lost) {
    vsnprintf(b->data + b->n, (size_t)n + 1, format, again);
    b->n += (size_t)n; // the terminating zero stays
  }
  va_end(again);
  va_end(arguments);
}

void ep_buffer_deinit(ep_buffer *b) {
  free(b->data);
  *b = (ep_buffer){0};
}

// --- names ---

struct ep_name {
  const char *text; // NULL: empty slot
  int number;
};

static uint64_t hash(const char *text) { // FNV-1a
  uint64_t h = UINT64_C(14695981039346656037);
  for (; *text; text++) h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
  return h;
}

static struct ep_name *slot_of(const ep_names *names, const char *text) {
  size_t at = hash(text) & (names->n_slots - 1);
  while (names->slots[at].text && strcmp(names->slots[at].text, text) != 0)
    at = (at + 1) & (names->n_slots - 1);
  return &names->slots[at];
}

static bool grow(ep_names *names, ep_arena *arena) {
  if (names->n * 2 < names->n_slots) return true;
  ep_names larger = {.n = names->n, .n_slots = names->n_slots ? names->n_slots * 4 : 64};
  larger.slots = ep_alloc(arena, larger.n_slots, sizeof *larger.slots);
  if (!larger.slots) return false;
  for (size_t i = 0; i < names->n_slots; i++)
    if (names->slots[i].text) *slot_of(&larger, names->slots[i].text) = names->slots[i];
  *names = larger;
  return true;
}

int ep_names_put(ep_names *names, ep_arena *arena, const char *text, int *io_next) {
  if (!grow(names, arena)) return -1;
  struct ep_name *slot = slot_of(names, text);
  if (!slot->text) {
    *slot = (struct ep_name){text, (*io_next)++};
    names->n++;
  }
  return slot->number;
}

int ep_names_find(const ep_names *names, const char *text) {
  const struct ep_name *slot = names->n_slots ? slot_of(names, text) : NULL;
  return slot && slot->text ? slot->number : -1;
}

// Limits on programs: bytes of buffers, and depth of loops.
#include "schedule/nest.h"

enum { MAX_NEST_BYTES = 6 << 20 };                 // of all buffers that live in one nest
static const int64_t max_bytes = INT64_C(1) << 42; // of any buffer

static int64_t bytes_of(const kiln_buffer *b) {
  const int64_t elem = kiln_dtype_bytes(b->dtype);
  int64_t bytes = elem, span = 0;
  bool fits = true, empty = false;
  for (int k = 0; k < b->rank; k++) {
    empty |= b->extents[k] == 0;
    fits &= !__builtin_mul_overflow(b->extents[k] - 1, b->strides[k], &span) &&
            !__builtin_mul_overflow(span, elem, &span) &&
            !__builtin_add_overflow(bytes, span, &bytes);
  }
  return empty ? 0 : fits ? bytes : INT64_MAX;
}

kiln_status kiln_edit_size(const kiln_edit *e, const kiln_buffer *b) {
  const int64_t most = b->scope > KILN_SCOPE_WORKSPACE ? KILN_MAX_STACK_BYTES : max_bytes;
  if (bytes_of(b) <= most) return KILN_OK;
  return kiln_refuse(e, "buffer %s must have at most %" PRId64 " bytes, got %" PRId64,
                     kiln_edit_text(e, b->name), most, bytes_of(b));
}

kiln_status kiln_edit_extents(const kiln_edit *e, kiln_symbol name, int rank,
                              const int64_t *extents) {
  int64_t elems = 1;
  for (int k = 0; k < rank; k++)
    if (__builtin_mul_overflow(elems, extents[k] > 0 ? extents[k] : 1, &elems) || elems > max_bytes)
      return kiln_refuse(e, "buffer %s must have at most %" PRId64 " elements, got more",
                         kiln_edit_text(e, name), max_bytes);
  return KILN_OK;
}

kiln_status kiln_edit_reshape(const kiln_edit *e, kiln_buffer *b, int rank,
                              const int64_t *extents) {
  KILN_TRY(kiln_edit_extents(e, b->name, rank, extents));
  kiln_buffer_reshape(b, rank, extents);
  return kiln_edit_size(e, b);
}

// A nest is one function, which holds all its buffers on the stack. Walks of nests recurse, so the
// depth is limited.
static kiln_status check_node(const kiln_edit *e, const kiln_loop *l, int depth, int64_t *bytes) {
  const kiln_buffer *held = l->kind == KILN_LOOP_ALLOC ? e->l->buffers.data[l->buffer] : NULL;
  if (depth >= KILN_MAX_DEPTH)
    return kiln_refuse(e, "loops must be nested at most %d deep", KILN_MAX_DEPTH);
  if (held && (__builtin_add_overflow(*bytes, bytes_of(held), bytes) || *bytes > MAX_NEST_BYTES))
    return kiln_refuse(e,
                       "the buffers that live in one nest must have at most %d bytes together, got "
                       "more with %s: choose a loop further inside, or a workspace",
                       MAX_NEST_BYTES, kiln_edit_text(e, held->name));
  for (const kiln_loop *b = l->body; b; b = b->next) KILN_TRY(check_node(e, b, depth + 1, bytes));
  return KILN_OK;
}

kiln_status kiln_check_limits(const kiln_edit *e) {
  for (const kiln_loop *l = e->l->body; l; l = l->next) {
    int64_t bytes = 0;
    KILN_TRY(check_node(e, l, 0, &bytes));
  }
  return KILN_OK;
}

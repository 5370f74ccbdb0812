// Packs weights in pieces that threads take in turn: directly into memory, or into the file through
// a buffer that fits in the cache.
#include "module/build.h"
#include "module/pack.h"

#include <errno.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20, SHARED_BYTES = 8 << 20 };

// A weight divided into units that can be computed independently: bytes of a copy, slices of a
// packing, Winograd transforms, or rounded elements.
typedef struct source {
  const kiln_weight *w;
  const kiln_packing *packing; // NULL: another kind of source
  int64_t n;
  uint64_t unit_bytes; // of the largest unit
} source;

bool kiln_weight_is_rounded(const kiln_weight *w) {
  return w->buffer && !w->pack && !w->late && w->tensor->dtype == KILN_F32 &&
         w->buffer->dtype != KILN_F32;
}

static kiln_status make_source(kiln_ctx *cx, const kiln_weight *w, source *out) {
  *out = (source){.w = w, .n = (int64_t)w->bytes, .unit_bytes = 1};
  if (w->late) {
    out->n = kiln_winograd_count(w->late);
    out->unit_bytes = out->n > 0 ? w->bytes / (uint64_t)out->n : 0;
  }
  if (kiln_weight_is_rounded(w)) {
    out->n = kiln_buffer_elems(w->buffer);
    out->unit_bytes = (uint64_t)kiln_dtype_bytes(w->buffer->dtype);
  }
  if (!w->pack) return KILN_OK;
  kiln_const from = {.dtype = w->tensor->dtype,
                     .rank = w->view->rank,
                     .bytes = w->tensor->bytes,
                     .data = w->tensor->data};
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_static_shape(w->view, from.shape);
  kiln_tensor_strides(w->view, strides);
  KILN_TRY(kiln_packing_make(cx, w->buffer, w->pack, &from, strides, &out->packing));
  out->n = kiln_packing_slices(out->packing);
  out->unit_bytes = kiln_packing_offset(out->packing, out->n > 1 ? 1 : out->n);
  return KILN_OK;
}

// The distance of consecutive transform points, in floats, when |n| units are computed.
static int64_t plane_of(const source *s, int64_t n) { return n * s->w->late->panel; }

static void round_to(const source *s, int64_t begin, int64_t end, char *to) {
  kiln_halves_of_floats(s->w->buffer->dtype, end - begin,
                        (const char *)s->w->tensor->data + begin * (int64_t)sizeof(float), to);
}

// Computes the units [begin, end) at their place in the whole weight |to|.
static bool make_in_place(const source *s, int64_t begin, int64_t end, char *to) {
  const kiln_weight *w = s->w;
  if (s->packing)
    return kiln_packing_fill(s->packing, begin, end, to + kiln_packing_offset(s->packing, begin));
  if (w->late)
    kiln_winograd_transform(w->late, begin, end, plane_of(s, s->n),
                            (float *)(void *)to + plane_of(s, begin));
  else if (kiln_weight_is_rounded(w)) round_to(s, begin, end, to + begin * (int64_t)s->unit_bytes);
  else memcpy(to + begin, (const char *)w->tensor->data + begin, (size_t)(end - begin));
  return true;
}

kiln_status kiln_weight_fill(kiln_ctx *cx, const kiln_weight *w, void *to) {
  source s;
  KILN_TRY(make_source(cx, w, &s));
  return s.n == 0 || make_in_place(&s, 0, s.n, to) ? KILN_OK : kiln_packing_wrong(cx, s.packing);
}

// --- all weights ---

typedef struct piece {
  int source;
  int64_t begin, end;
} piece;

typedef struct filling {
  const kiln_build *b;
  char *memory; // NULL: write to |out|
  const kiln_output *out;
  source *sources;
  int n_sources;
  atomic_llong *left; // [sources] units still to do
  KILN_VEC(piece) pieces;
  uint64_t piece_bytes; // of the largest piece
  char *buffers;        // one for each thread
  atomic_int next;
  atomic_int wrong;      // errno of a failed write; 0: none
  atomic_int unpackable; // index of a source that cannot be packed; -1: none
} filling;

static kiln_status list_sources(kiln_ctx *cx, filling *f) {
  const kiln_build *b = f->b;
  f->sources = KILN_NEW_ARRAY(&cx->scratch, source, b->product.weights.n);
  f->left = KILN_NEW_ARRAY(&cx->scratch, atomic_llong, b->product.weights.n);
  for (int i = 0; i < b->product.weights.n; i++) {
    if (b->product.weights.data[i].borrowed >= 0) continue;
    source *s = &f->sources[f->n_sources];
    KILN_TRY(make_source(cx, &b->product.weights.data[i], s));
    atomic_init(&f->left[f->n_sources++], s->n);
  }
  return KILN_OK;
}

static void cut_sources(kiln_ctx *cx, filling *f) {
  for (int i = 0; i < f->n_sources; i++) {
    const source *s = &f->sources[i];
    const uint64_t unit = s->unit_bytes > 0 ? s->unit_bytes : 1;
    const int64_t most = unit < PIECE_BYTES ? (int64_t)(PIECE_BYTES / unit) : 1;
    for (int64_t at = 0; at < s->n; at += most) {
      const piece p = {i, at, s->n - at < most ? s->n : at + most};
      KILN_VEC_PUSH(&cx->scratch, &f->pieces, p);
    }
    if (unit * (uint64_t)most > f->piece_bytes) f->piece_bytes = unit * (uint64_t)most;
  }
}

static bool write_transforms(const filling *f, const source *s, int64_t begin, int64_t end,
                             char *buffer) {
  const kiln_winograd_weights *w = s->w->late;
  const int points = w->form->points * w->form->points;
  const int64_t plane = plane_of(s, end - begin), all = plane_of(s, s->n);
  kiln_winograd_transform(w, begin, end, plane, (float *)(void *)buffer);
  for (int i = 0; i < points; i++) {
    const uint64_t at = (uint64_t)(i * all + plane_of(s, begin)) * sizeof(float);
    if (!kiln_output_write(f->out, s->w->offset + at, buffer + i * plane * (int64_t)sizeof(float),
                           (size_t)plane * sizeof(float)))
      return false;
  }
  return true;
}

// gives: false with errno set, or with |*out_packed| false
static bool write_piece(const filling *f, const source *s, int64_t begin, int64_t end, char *buffer,
                        bool *out_packed) {
  const kiln_weight *w = s->w;
  *out_packed = true;
  if (w->late) return write_transforms(f, s, begin, end, buffer);
  if (kiln_weight_is_rounded(w)) {
    round_to(s, begin, end, buffer);
    return kiln_output_write(f->out, w->offset + (uint64_t)begin * s->unit_bytes, buffer,
                             (size_t)(end - begin) * s->unit_bytes);
  }
  if (!s->packing)
    return kiln_output_write(f->out, w->offset + (uint64_t)begin,
                             (const char *)w->tensor->data + begin, (size_t)(end - begin));
  const uint64_t at = kiln_packing_offset(s->packing, begin),
                 bytes = kiln_packing_offset(s->packing, end) - at;
  if (!kiln_packing_is_whole(s->packing)) memset(buffer, 0, bytes);
  *out_packed = kiln_packing_fill(s->packing, begin, end, buffer);
  return *out_packed && kiln_output_write(f->out, w->offset + at, buffer, bytes);
}

// The model's pages just read are not needed again: they may be evicted.
static void forget(filling *f, const piece *p) {
  const kiln_weight *w = f->sources[p->source].w;
  const kiln_tensor *t = w->late ? w->late->source : w->tensor;
  const int64_t n = p->end - p->begin;
  if (atomic_fetch_sub(&f->left[p->source], n) == n && f->b->request.model->core->file)
    kiln_onnx_file_forget(f->b->request.model->core->file, t->data, t->bytes);
}

static void fill_piece(filling *f, const piece *p, char *buffer) {
  const source *s = &f->sources[p->source];
  bool packed = true;
  if (f->memory) packed = make_in_place(s, p->begin, p->end, f->memory + s->w->offset);
  else if (!write_piece(f, s, p->begin, p->end, buffer, &packed) && packed)
    atomic_store(&f->wrong, errno ? errno : EIO);
  if (!packed) atomic_store(&f->unpackable, p->source);
  forget(f, p);
}

// Threads take pieces dynamically, so that a descheduled thread does not delay the others.
static void work(void *argument, size_t thread) {
  filling *f = argument;
  char *buffer = f->buffers ? f->buffers + thread * f->piece_bytes : NULL;
  for (int i = atomic_fetch_add(&f->next, 1); i < f->pieces.n; i = atomic_fetch_add(&f->next, 1))
    if (!atomic_load(&f->wrong) && atomic_load(&f->unpackable) < 0)
      fill_piece(f, &f->pieces.data[i], buffer);
}

static kiln_status run(kiln_ctx *cx, filling *f, kiln_build *b) {
  const int threads =
      b->product.plan.weights_bytes < SHARED_BYTES ? 1 : b->request.model->options.threads;
  f->piece_bytes = (f->piece_bytes + 63) / 64 * 64;
  if (!f->memory) f->buffers = kiln_arena_alloc(&cx->scratch, f->piece_bytes * (uint64_t)threads);
  if (threads == 1) {
    work(f, 0);
    return KILN_OK;
  }
  KILN_TRY(kiln_pool_create(threads, 0, KILN_POOL_SPIN_NS, cx->diag, &b->product.pool));
  kiln_pool_begin(b->product.pool);
  kiln_pool_run(b->product.pool, work, f, (size_t)threads);
  return KILN_OK;
}

kiln_status kiln_weights_fill(kiln_ctx *cx, kiln_build *b, char *memory, const kiln_output *out) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  filling f = {.b = b, .memory = memory, .out = out};
  atomic_init(&f.next, 0);
  atomic_init(&f.wrong, 0);
  atomic_init(&f.unpackable, -1);
  KILN_TRY(list_sources(cx, &f));
  cut_sources(cx, &f);
  KILN_TRY(run(cx, &f, b));
  const int wrong = atomic_load(&f.wrong), unpackable = atomic_load(&f.unpackable);
  if (unpackable >= 0) return kiln_packing_wrong(cx, f.sources[unpackable].packing);
  if (wrong)
    return KILN_FAIL(cx->diag, kiln_status_of_error(wrong), out->path, "must be writable: %s",
                     strerror(wrong));
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

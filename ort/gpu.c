// SPDX-License-Identifier: Apache-2.0
// Memory by best fit among freed pieces, and streams. A freed piece has a bit for each stream with
// work that was not waited for at that time, since that may still use it.
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

struct ep_piece {
  char *at;
  size_t bytes;
  bool is_used;
  uint64_t waits; // of a free one: streams, by their bits
};

struct ep_stream {
  ep_gpu *gpu;
  ep_stream *next;
  void *handle;
  const void *object; // ONNX Runtime's
  uint64_t bit;
  bool is_busy;    // has work that was not waited for,
  bool has_copies; // copies among it
  ep_pending *sessions;
};

enum { UNIT = 512 };

ort_status *ep_gpu_init(ep_gpu *gpu, const ep_host *host, int index) {
  static const ort_access accesses[EP_N_MEMORIES] = {ORT_DEVICE_ONLY, ORT_HOST_ACCESSIBLE};
  gpu->host = host;
  gpu->index = index;
  pthread_mutex_init(&gpu->lock, NULL);
  for (int kind = 0; kind < EP_N_MEMORIES; kind++)
    EP_TRY(host->api->create_memory_info("Kiln", ORT_ON_GPU, EP_NVIDIA, index, accesses[kind], 0,
                                         ORT_DEVICE_ALLOCATOR, &gpu->memory[kind]));
  return NULL;
}

// --- the device ---

// Opens it, if nobody has. Under the lock.
static kiln_status open_device(ep_gpu *gpu, kiln_diag *diag) {
  if (gpu->device) return KILN_OK;
  kiln_gpu_handle *device = NULL;
  kiln_status st = kiln_gpu_create("cuda", gpu->index, diag, &device);
  if (st == KILN_OK) st = kiln_gpu_stream_create(device, diag, &gpu->copies);
  if (st == KILN_OK) gpu->device = device;
  else kiln_gpu_destroy(device);
  return st;
}

// The status of a call, with its messages, which it frees.
static ort_status *told(const ep_gpu *gpu, kiln_status st, KILN_TAKE kiln_diag *diag) {
  ort_status *status = st == KILN_OK ? NULL : ep_fail_with(gpu->host, st, "GPU", diag);
  kiln_diag_destroy(diag);
  return status;
}

// --- memory ---

static kiln_status get(ep_gpu *gpu, ep_memory_kind kind, size_t bytes, kiln_diag *diag,
                       void **out) {
  return kind == EP_ON_DEVICE ? kiln_gpu_allocate(gpu->device, bytes, diag, out)
                              : kiln_gpu_allocate_host(gpu->device, bytes, diag, out);
}

static void put_back(ep_gpu *gpu, ep_memory_kind kind, void *memory) {
  if (kind == EP_ON_DEVICE) kiln_gpu_free(gpu->device, memory);
  else kiln_gpu_free_host(gpu->device, memory);
}

// Gives the driver what is not in use; also what streams may still use, for which it waits.
static void trim(ep_gpu *gpu, ep_memory_kind kind) {
  ep_pool *pool = &gpu->pools[kind];
  int n = 0;
  for (int i = 0; i < pool->n; i++) {
    if (pool->pieces[i].is_used) pool->pieces[n++] = pool->pieces[i];
    else put_back(gpu, kind, pool->pieces[i].at);
  }
  pool->n = n;
}

// The smallest free piece that is not much too large.
static ep_piece *find_free(ep_pool *pool, size_t bytes, uint64_t own) {
  ep_piece *best = NULL;
  for (int i = 0; i < pool->n; i++) {
    ep_piece *p = &pool->pieces[i];
    if (p->is_used || (p->waits & ~own) || p->bytes < bytes || p->bytes - bytes > bytes / 4)
      continue;
    if (!best || p->bytes < best->bytes) best = p;
  }
  return best;
}

static bool has_room(ep_pool *pool) {
  if (pool->n < pool->cap) return true;
  const int cap = pool->cap ? pool->cap * 2 : 64;
  ep_piece *pieces = realloc(pool->pieces, (size_t)cap * sizeof *pieces);
  if (!pieces) return false;
  pool->pieces = pieces;
  pool->cap = cap;
  return true;
}

static ep_piece *find_piece(ep_gpu *gpu, ep_memory_kind kind, size_t bytes, uint64_t own,
                            kiln_diag *diag) {
  ep_pool *pool = &gpu->pools[kind];
  void *memory = NULL;
  ep_piece *found = find_free(pool, bytes, own);
  if (found) return found;
  if (!has_room(pool) || open_device(gpu, diag) != KILN_OK) return NULL;
  kiln_status st = get(gpu, kind, bytes, diag, &memory);
  if (st == KILN_NO_MEMORY) {
    trim(gpu, kind);
    kiln_diag_clear(diag);
    st = get(gpu, kind, bytes, diag, &memory);
  }
  if (st != KILN_OK) return NULL;
  pool->pieces[pool->n] = (ep_piece){.at = memory, .bytes = bytes};
  return &pool->pieces[pool->n++];
}

void *ep_gpu_allocate(ep_gpu *gpu, ep_memory_kind kind, size_t bytes, const ep_stream *stream) {
  kiln_diag *diag = kiln_diag_create();
  if (bytes == 0 || bytes > SIZE_MAX - UNIT) return kiln_diag_destroy(diag), NULL;
  pthread_mutex_lock(&gpu->lock);
  ep_piece *p =
      find_piece(gpu, kind, (bytes + UNIT - 1) / UNIT * UNIT, stream ? stream->bit : 0, diag);
  if (p) p->is_used = true;
  void *at = p ? p->at : NULL;
  pthread_mutex_unlock(&gpu->lock);
  const char *why = kiln_diag_message(diag, 0);
  if (!at)
    ep_log(gpu->host, gpu->host->logger, ORT_WARNING, "Kiln: %s", why ? why : "no memory left");
  kiln_diag_destroy(diag);
  return at;
}

void ep_gpu_free(ep_gpu *gpu, ep_memory_kind kind, void *memory) {
  ep_pool *pool = &gpu->pools[kind];
  uint64_t busy = 0;
  if (!memory) return;
  pthread_mutex_lock(&gpu->lock);
  for (const ep_stream *s = gpu->streams; s; s = s->next)
    if (s->is_busy) busy |= s->bit;
  for (int i = 0; i < pool->n; i++)
    if (pool->pieces[i].at == memory) {
      pool->pieces[i].is_used = false;
      pool->pieces[i].waits = busy;
    }
  pthread_mutex_unlock(&gpu->lock);
}

void ep_gpu_deinit(ep_gpu *gpu) {
  if (!gpu->host) return;
  for (int kind = 0; kind < EP_N_MEMORIES; kind++) {
    trim(gpu, kind);
    free(gpu->pools[kind].pieces);
    if (gpu->memory[kind]) gpu->host->api->release_memory_info(gpu->memory[kind]);
  }
  if (gpu->device) kiln_gpu_stream_destroy(gpu->device, gpu->copies);
  kiln_gpu_destroy(gpu->device);
  pthread_mutex_destroy(&gpu->lock);
  *gpu = (ep_gpu){0};
}

// --- copies ---

bool ep_gpu_has(const ep_gpu *gpu, const ort_value *value) {
  const ort_ep_api *ep = gpu->host->ep;
  const ort_memory_device *d = ep->value_device(value);
  return d && ep->place(d) == ORT_ON_GPU && ep->access(d) == ORT_DEVICE_ONLY &&
         ep->memory_vendor(d) == EP_NVIDIA && ep->memory_index(d) == (uint32_t)gpu->index;
}

static void set_copies(ep_stream *s) {
  pthread_mutex_lock(&s->gpu->lock);
  s->is_busy = s->has_copies = true;
  pthread_mutex_unlock(&s->gpu->lock);
}

static kiln_status ready(ep_gpu *gpu, kiln_diag *diag) {
  pthread_mutex_lock(&gpu->lock);
  const kiln_status st = open_device(gpu, diag);
  pthread_mutex_unlock(&gpu->lock);
  return st;
}

ort_status *ep_gpu_copy(ep_gpu *gpu, ep_stream *stream, void *to, const void *from, size_t bytes) {
  if (bytes == 0) return NULL;
  if (!to || !from)
    return ep_fail(gpu->host, ORT_EP_FAIL, "Kiln: a copy of %zu bytes: no memory left", bytes);
  kiln_diag *diag = kiln_diag_create();
  kiln_status st = ready(gpu, diag);
  if (stream) set_copies(stream);
  void *const in = stream ? stream->handle : gpu->copies;
  if (st == KILN_OK) st = kiln_gpu_copy(gpu->device, in, to, from, bytes, diag);
  if (st == KILN_OK && !stream) st = kiln_gpu_stream_wait(gpu->device, in, diag);
  return told(gpu, st, diag);
}

// --- streams ---

// A bit that no other stream has; 0: all are taken. Under the lock.
static uint64_t free_bit(const ep_gpu *gpu) {
  uint64_t taken = 0;
  for (const ep_stream *s = gpu->streams; s; s = s->next) taken |= s->bit;
  return ~taken & (taken + 1);
}

ort_status *ep_stream_create(ep_gpu *gpu, const void *object, ep_stream **out) {
  *out = NULL;
  kiln_diag *diag = kiln_diag_create();
  ep_stream *s = calloc(1, sizeof *s);
  kiln_status st = s ? KILN_OK : KILN_NO_MEMORY;
  pthread_mutex_lock(&gpu->lock);
  if (st == KILN_OK) st = open_device(gpu, diag);
  if (st == KILN_OK) st = kiln_gpu_stream_create(gpu->device, diag, &s->handle);
  if (st == KILN_OK && !(s->bit = free_bit(gpu)))
    st = kiln_diag_fail(diag, KILN_BAD_INPUT, "streams", "number: must be at most %d",
                        EP_MAX_STREAMS);
  if (st == KILN_OK) {
    s->gpu = gpu;
    s->object = object;
    s->next = gpu->streams;
    gpu->streams = s;
  } else if (s) {
    if (s->handle) kiln_gpu_stream_destroy(gpu->device, s->handle);
    free(s);
  }
  pthread_mutex_unlock(&gpu->lock);
  if (st == KILN_OK) *out = s;
  return told(gpu, st, diag);
}

void ep_stream_destroy(ep_stream *s) {
  ep_gpu *gpu = s->gpu;
  ort_status *last = ep_stream_finish(s);
  if (last) gpu->host->api->release_status(last); // there is no one to report to
  pthread_mutex_lock(&gpu->lock);
  ep_stream **at = &gpu->streams;
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  pthread_mutex_unlock(&gpu->lock);
  kiln_gpu_stream_destroy(gpu->device, s->handle);
  free(s);
}

void *ep_stream_handle(const ep_stream *s) { return s->handle; }
ep_gpu *ep_stream_gpu(const ep_stream *s) { return s->gpu; }

ep_stream *ep_stream_find(ep_gpu *gpu, const void *handle) {
  pthread_mutex_lock(&gpu->lock);
  ep_stream *s = gpu->streams;
  while (s && s->handle != handle) s = s->next;
  pthread_mutex_unlock(&gpu->lock);
  return s;
}

ep_stream *ep_stream_of(ep_gpu *gpu, const void *object) {
  pthread_mutex_lock(&gpu->lock);
  ep_stream *s = gpu->streams;
  while (s && s->object != object) s = s->next;
  pthread_mutex_unlock(&gpu->lock);
  return s;
}

void ep_stream_keep(ep_stream *s, ep_pending *session) {
  pthread_mutex_lock(&s->gpu->lock);
  session->next = s->sessions;
  s->sessions = session;
  s->is_busy = true;
  pthread_mutex_unlock(&s->gpu->lock);
}

// Under the lock.
static ep_pending *unlink_of(ep_stream *s, const void *owner) {
  ep_pending **at = &s->sessions;
  while (*at && (*at)->owner != owner) at = &(*at)->next;
  ep_pending *found = *at;
  if (found) *at = found->next;
  return found;
}

ep_pending *ep_stream_take(ep_stream *s, const void *owner) {
  pthread_mutex_lock(&s->gpu->lock);
  ep_pending *found = unlink_of(s, owner);
  pthread_mutex_unlock(&s->gpu->lock);
  return found;
}

// Finishes all; the first error is kept, others are dropped.
static ort_status *finish_all(const ep_host *host, ep_pending *sessions, ort_status *status) {
  for (ep_pending *p = sessions, *next; p; p = next) {
    next = p->next;
    ort_status *one = p->finish(p);
    if (one && status) host->api->release_status(one);
    else if (one) status = one;
  }
  return status;
}

// What was freed while |s| had work is free for all, as far as |s| goes. Under the lock.
static void release_pieces(ep_gpu *gpu, const ep_stream *s) {
  for (int kind = 0; kind < EP_N_MEMORIES; kind++)
    for (int i = 0; i < gpu->pools[kind].n; i++) gpu->pools[kind].pieces[i].waits &= ~s->bit;
}

ort_status *ep_stream_finish(ep_stream *s) {
  ep_gpu *gpu = s->gpu;
  pthread_mutex_lock(&gpu->lock);
  const bool was_busy = s->is_busy, had_copies = s->has_copies;
  ep_pending *sessions = s->sessions;
  s->sessions = NULL;
  pthread_mutex_unlock(&gpu->lock);
  if (!was_busy) return NULL;
  ort_status *status = NULL;
  if (had_copies || !sessions) { // a session waits for its own runs
    kiln_diag *diag = kiln_diag_create();
    status = told(gpu, kiln_gpu_stream_wait(gpu->device, s->handle, diag), diag);
  }
  status = finish_all(gpu->host, sessions, status);
  pthread_mutex_lock(&gpu->lock);
  s->is_busy = s->has_copies = false;
  release_pieces(gpu, s);
  pthread_mutex_unlock(&gpu->lock);
  return status;
}

void ep_gpu_finish(ep_gpu *gpu, const void *owner) {
  ep_pending *sessions = NULL;
  pthread_mutex_lock(&gpu->lock);
  for (ep_stream *s = gpu->streams; s; s = s->next)
    for (ep_pending *p; (p = unlink_of(s, owner));) {
      p->next = sessions;
      sessions = p;
    }
  pthread_mutex_unlock(&gpu->lock);
  ort_status *status = finish_all(gpu->host, sessions, NULL);
  if (status) gpu->host->api->release_status(status);
}

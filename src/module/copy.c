// Threads take pieces of a file in turn, each through a buffer that fits in the L2 cache.
#include "module/copy.h"
#include "runtime/pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 18, SHARED_BYTES = 8 << 20 };

bool kiln_write_all(int fd, const void *data, size_t bytes, int64_t offset) {
  const char *at = data;
  while (bytes > 0) {
    ssize_t n = pwrite(fd, at, bytes, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) return false;
    at += n;
    bytes -= (size_t)n;
    offset += n;
  }
  return true;
}

static bool read_all(int fd, void *data, size_t bytes, int64_t offset) {
  char *at = data;
  while (bytes > 0) {
    ssize_t n = pread(fd, at, bytes, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENODATA;
    if (n <= 0) return false;
    at += n;
    bytes -= (size_t)n;
    offset += n;
  }
  return true;
}

typedef struct reading {
  int from, to; // -1: digest only
  uint64_t bytes;
  long long n; // number of pieces
  unsigned char (*digests)[KILN_DIGEST_BYTES];
  char *buffers; // one for each thread
  atomic_llong next;
  atomic_int wrong; // errno of the first failure; 0: none
} reading;

static bool read_piece(const reading *r, long long i, char *buffer) {
  const uint64_t at = (uint64_t)i * PIECE_BYTES, left = r->bytes - at;
  const size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
  kiln_digest d;
  if (!read_all(r->from, buffer, n, (int64_t)at)) return false;
  kiln_digest_init(&d);
  kiln_digest_add(&d, buffer, n);
  kiln_digest_end(&d, r->digests[i]);
  return r->to < 0 || kiln_write_all(r->to, buffer, n, (int64_t)at);
}

static void work(void *argument, size_t thread) {
  reading *r = argument;
  char *buffer = r->buffers + thread * PIECE_BYTES;
  for (long long i = atomic_fetch_add(&r->next, 1); i < r->n && !atomic_load(&r->wrong);
       i = atomic_fetch_add(&r->next, 1))
    if (!read_piece(r, i, buffer)) atomic_store(&r->wrong, errno ? errno : EIO);
}

static void run(reading *r, int threads) {
  kiln_pool *pool = NULL;
  if (threads > 1 && kiln_pool_create(threads, 0, KILN_POOL_SPIN_NS, NULL, &pool) == KILN_OK) {
    kiln_pool_begin(pool);
    kiln_pool_run(pool, work, r, (size_t)threads);
    kiln_pool_destroy(pool);
  } else work(r, 0);
}

static uint64_t count_pieces(uint64_t bytes) { return (bytes + PIECE_BYTES - 1) / PIECE_BYTES; }

// gives: 0, or errno
static int read_pieces(int from, uint64_t bytes, int to, int threads,
                       unsigned char (*digests)[KILN_DIGEST_BYTES]) {
  if (bytes < SHARED_BYTES) threads = 1;
  reading r = {.from = from,
               .to = to,
               .bytes = bytes,
               .n = (long long)count_pieces(bytes),
               .digests = digests,
               .buffers = malloc((size_t)threads * PIECE_BYTES)};
  atomic_init(&r.next, 0);
  atomic_init(&r.wrong, digests && r.buffers ? 0 : ENOMEM);
  if (!atomic_load(&r.wrong)) run(&r, threads);
  free(r.buffers);
  return atomic_load(&r.wrong);
}

bool kiln_file_copy(int from, uint64_t bytes, int to, int threads,
                    unsigned char out[KILN_DIGEST_BYTES]) {
  const size_t n = count_pieces(bytes);
  unsigned char(*pieces)[KILN_DIGEST_BYTES] = malloc((n + 1) * sizeof *pieces);
  const int wrong = read_pieces(from, bytes, to, threads, pieces);
  if (!wrong) {
    kiln_digest d;
    kiln_digest_init(&d);
    kiln_digest_add_int(&d, (int64_t)bytes);
    kiln_digest_add(&d, pieces, n * sizeof *pieces);
    kiln_digest_end(&d, out);
  }
  free(pieces);
  errno = wrong;
  return !wrong;
}

bool kiln_file_digest(int from, uint64_t bytes, int threads, unsigned char out[KILN_DIGEST_BYTES]) {
  return kiln_file_copy(from, bytes, -1, threads, out);
}

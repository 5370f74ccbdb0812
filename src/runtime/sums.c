// Threads take pieces of the table in turn. Mapped memory is read ahead in steps that stay in the
// cache, because one call for hundreds of pages costs less than their faults.
#include "runtime/sums.h"
#include "runtime/pool.h"
#include "runtime/wire.h"
#include "support/checksum.h"
#include "support/thread.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SHARED_BYTES = 16 << 20, MOST_THREADS = 8, ROWS = 16, STEP_BYTES = 1 << 20 };

void kiln_sum_write(const kiln_piece_sum *s, unsigned char out[KILN_SUM_BYTES]) {
  kiln_wire_put(out, s->offset, 8);
  kiln_wire_put(out + 8, s->bytes, 8);
  kiln_wire_put(out + 16, s->sum, 8);
}

kiln_piece_sum kiln_sum_read(const unsigned char from[KILN_SUM_BYTES]) {
  return (kiln_piece_sum){kiln_wire_get(from, 8), kiln_wire_get(from + 8, 8),
                          kiln_wire_get(from + 16, 8)};
}

typedef struct matching {
  const unsigned char *table;
  const char *weights;
  uint64_t n, bytes;
  atomic_ullong next, wrong; // the next row; the offset of the first that differs
} matching;

static void read_ahead(const char *from, uint64_t bytes) {
#ifdef MADV_POPULATE_READ
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)from / page * page;
  (void)madvise((void *)at, (uintptr_t)from + bytes - at, MADV_POPULATE_READ);
#else
  (void)from, (void)bytes;
#endif
}

static bool matches(const matching *m, const kiln_piece_sum *s) {
  if (s->offset > m->bytes || s->bytes > m->bytes - s->offset) return false;
  if (s->bytes >= STEP_BYTES / 4) read_ahead(m->weights + s->offset, s->bytes);
  return kiln_checksum(m->weights + s->offset, (size_t)s->bytes) == s->sum;
}

static void *match(void *argument) {
  matching *m = argument;
  for (uint64_t i; (i = atomic_fetch_add(&m->next, ROWS)) < m->n;)
    for (uint64_t k = i; k < m->n && k < i + ROWS; k++) {
      const kiln_piece_sum s = kiln_sum_read(m->table + k * KILN_SUM_BYTES);
      if (matches(m, &s)) continue;
      const uint64_t at = s.offset < UINT64_MAX ? s.offset : UINT64_MAX - 1; // no valid offset
      unsigned long long first = atomic_load(&m->wrong);
      while (at < first && !atomic_compare_exchange_weak(&m->wrong, &first, at)) {}
    }
  return NULL;
}

bool kiln_sums_match(const unsigned char *table, uint64_t n, const char *weights, uint64_t bytes,
                     uint64_t *out_offset) {
  matching m = {.table = table, .weights = weights, .n = n, .bytes = bytes};
  pthread_t threads[MOST_THREADS];
  const int most = bytes < SHARED_BYTES ? 1 : kiln_cpu_cores();
  int started = 0;
  atomic_init(&m.next, 0);
  atomic_init(&m.wrong, UINT64_MAX);
  while (started < MOST_THREADS && started + 1 < most &&
         kiln_thread_start(&threads[started], NULL, match, &m))
    started++;
  match(&m);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  *out_offset = atomic_load(&m.wrong);
  return *out_offset == UINT64_MAX;
}

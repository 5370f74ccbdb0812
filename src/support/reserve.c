// Regions of address space, one for each thread that works in a library. Blocks have power-of-two
// sizes, are allocated from a region sequentially, and reused after they are freed. A region is
// released when no block is in use and no thread holds it: a library may keep objects in it.
#include "support/reserve.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
  int depth, holds, region; // |region| - 1 is an index in the table; 0: none
  bool is_drawn;
} own; // initial-exec TLS: the first access must not allocate

#ifdef KILN_WRAPS_MALLOC

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
void __real_free(void *block);

enum { MOST_REGIONS = 512, ALIGN = 16, CLASSES = 64 };

// Header of a block.
typedef struct head {
  _Alignas(ALIGN) size_t bytes; // requested size
  struct head *next;            // next free block of its size class
} head;

typedef struct region {
  char *begin, *at, *end; // |begin| NULL: unused
  long n_live;            // blocks in use
  bool is_held;           // by a thread
  head *free[CLASSES];    // by size class: 2^i bytes after the header
} region;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static region regions[MOST_REGIONS];
static int n_regions;        // regions ever created
static atomic_long n_blocks; // in all regions: lookups are skipped while it is 0
static atomic_int
    loading; // region of LLVM's static constructors, as |own.region|, from begin_loading to the
             // first call

static void drop_unused(region *r) {
  if (!r->begin || r->is_held || r->n_live > 0) return;
  munmap(r->begin, (size_t)(r->end - r->begin));
  *r = (region){0};
}

static bool map_region(region *r, size_t bytes) {
  void *begin =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) return false;
  *r = (region){.begin = begin, .at = begin, .end = (char *)begin + bytes};
  return true;
}

// Creates a region; as |own.region|; 0: the system refuses.
static int take_region(size_t bytes) {
  int i = 0;
  while (i < n_regions && regions[i].begin &&
         (regions[i].is_held || (size_t)(regions[i].end - regions[i].at) < bytes))
    i++;
  if (i == MOST_REGIONS || (!regions[i].begin && !map_region(&regions[i], bytes))) return 0;
  if (i == n_regions) n_regions++;
  regions[i].is_held = true;
  return i + 1;
}

static region *region_of(const void *block) {
  for (int i = 0; i < n_regions; i++)
    if ((const char *)block >= regions[i].begin && (const char *)block < regions[i].end)
      return &regions[i];
  return NULL;
}

static int class_of(size_t bytes) {
  int class = 4;
  while (((size_t)1 << class) < bytes) class ++;
  return class;
}

static void *cut(region *r, size_t align, size_t bytes) {
  const size_t room = (size_t)1 << class_of(bytes), left = (size_t)(r->end - r->at);
  const size_t lead = sizeof(head) + (align - (uintptr_t)(r->at + sizeof(head)) % align) % align;
  if (left < lead || left - lead < room) return NULL;
  char *block = r->at + lead;
  r->at = block + room;
  return block;
}

static void *cut_or_find(region *r, size_t align, size_t bytes) {
  head **list = &r->free[class_of(bytes)], *found = align > ALIGN ? NULL : *list;
  if (!found) return cut(r, align, bytes);
  *list = found->next;
  return found + 1;
}

// Allocates from the reserve; NULL: there is none, or it is exhausted.
static void *draw(size_t align, size_t bytes) {
  const int held = own.depth ? own.region : atomic_load_explicit(&loading, memory_order_relaxed);
  if (!held || bytes > PTRDIFF_MAX / 2) return NULL;
  pthread_mutex_lock(&lock);
  region *r = &regions[held - 1];
  void *block = cut_or_find(r, align < ALIGN ? ALIGN : align, bytes);
  if (block) {
    ((head *)block)[-1] = (head){bytes, NULL};
    r->n_live++;
    atomic_fetch_add(&n_blocks, 1);
    own.is_drawn = true;
  }
  pthread_mutex_unlock(&lock);
  return block;
}

// Frees |block| if it is from a reserve; gives whether it was.
static bool give(void *block) {
  if (!block || atomic_load_explicit(&n_blocks, memory_order_relaxed) == 0) return false;
  pthread_mutex_lock(&lock);
  region *r = region_of(block);
  if (r) {
    head *h = (head *)block - 1, **list = &r->free[class_of(h->bytes)];
    h->next = *list;
    *list = h;
    r->n_live--;
    atomic_fetch_sub(&n_blocks, 1);
    drop_unused(r);
  }
  pthread_mutex_unlock(&lock);
  return r != NULL;
}

// Size of a block from a reserve; SIZE_MAX: another block.
static size_t drawn_bytes(const void *block) {
  if (!block || atomic_load_explicit(&n_blocks, memory_order_relaxed) == 0) return SIZE_MAX;
  pthread_mutex_lock(&lock);
  const bool is_drawn = region_of(block) != NULL;
  pthread_mutex_unlock(&lock);
  return is_drawn ? ((const head *)block)[-1].bytes : SIZE_MAX;
}

// --- replacements of the C library's functions ---

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
int __wrap_posix_memalign(void **out, size_t align, size_t bytes);
char *__wrap_strdup(const char *text);
void __wrap_free(void *block);

void *__wrap_malloc(size_t bytes) {
  void *block = __real_malloc(bytes);
  return block ? block : draw(ALIGN, bytes);
}

void *__wrap_calloc(size_t n, size_t bytes) {
  void *block = __real_calloc(n, bytes);
  if (block || (bytes > 0 && n > SIZE_MAX / bytes)) return block;
  block = draw(ALIGN, n * bytes);
  return block ? memset(block, 0, n * bytes) : NULL;
}

void *__wrap_aligned_alloc(size_t align, size_t bytes) {
  void *block = __real_aligned_alloc(align, bytes);
  return block ? block : draw(align, bytes);
}

int __wrap_posix_memalign(void **out, size_t align, size_t bytes) {
  void *block = __wrap_aligned_alloc(align, bytes);
  if (block) *out = block;
  return block ? 0 : ENOMEM;
}

char *__wrap_strdup(const char *text) {
  const size_t n = strlen(text) + 1;
  char *copy = __wrap_malloc(n);
  return copy ? memcpy(copy, text, n) : NULL;
}

void *__wrap_realloc(void *block, size_t bytes) {
  size_t had = drawn_bytes(block);
  const bool is_drawn = had != SIZE_MAX;
  void *grown = is_drawn ? NULL : __real_realloc(block, bytes);
  if (grown || (bytes == 0 && !is_drawn)) return grown;
  grown = draw(ALIGN, bytes);
  if (!grown || !block) return grown;
  if (!is_drawn) had = malloc_usable_size(block);
  memcpy(grown, block, had < bytes ? had : bytes);
  if (!give(block)) __real_free(block);
  return grown;
}

void __wrap_free(void *block) {
  if (!give(block)) __real_free(block);
}

void *kiln_reserve_pass(size_t bytes) { return __real_malloc(bytes); }
void *kiln_reserve_pass_aligned(size_t align, size_t bytes) {
  return __real_aligned_alloc(align, bytes);
}

// Makes sure that this thread has a region.
static bool take(size_t bytes) {
  if (own.region) return true;
  pthread_mutex_lock(&lock);
  own.region = take_region(bytes);
  pthread_mutex_unlock(&lock);
  return own.region > 0;
}

static void leave_region(int held) {
  if (!held) return;
  pthread_mutex_lock(&lock);
  regions[held - 1].is_held = false;
  drop_unused(&regions[held - 1]);
  pthread_mutex_unlock(&lock);
}

static void put_back(void) {
  leave_region(own.region);
  own.region = 0;
}

// LLVM's static constructors allocate, too: this constructor runs first, and the reserve is
// released at the first call.
__attribute__((constructor(101))) static void begin_loading(void) {
  atomic_store(&loading, take_region(KILN_RESERVE_BYTES));
}

static void end_loading(void) {
  if (atomic_load_explicit(&loading, memory_order_relaxed))
    leave_region(atomic_exchange(&loading, 0));
}

#else

void *kiln_reserve_pass(size_t bytes) { return malloc(bytes); }
void *kiln_reserve_pass_aligned(size_t align, size_t bytes) { return aligned_alloc(align, bytes); }
static bool take(size_t bytes) { return (void)bytes, true; }
static void put_back(void) {}
static void end_loading(void) {}

#endif

static kiln_status no_memory(kiln_diag *diag) {
  return KILN_FAIL(diag, KILN_NO_MEMORY, NULL, "no memory left");
}

void kiln_reserve_hold(void) {
  end_loading();
  if (own.holds++ == 0 && own.depth == 0) (void)take(KILN_RESERVE_BYTES);
}

void kiln_reserve_release(void) {
  if (--own.holds == 0 && own.depth == 0) put_back();
}

kiln_status kiln_reserve_begin(kiln_diag *diag) {
  end_loading();
  if (!take(KILN_RESERVE_BYTES)) return no_memory(diag);
  if (own.depth++ == 0) own.is_drawn = false;
  return KILN_OK;
}

kiln_status kiln_reserve_end(kiln_diag *diag, kiln_status status) {
  const bool was_drawn = own.is_drawn;
  if (--own.depth == 0) own.is_drawn = false;
  if (own.depth == 0 && (own.holds == 0 || was_drawn)) put_back();
  return was_drawn ? no_memory(diag) : status;
}

bool kiln_reserve_is_drawn(void) { return own.depth > 0 && own.is_drawn; }

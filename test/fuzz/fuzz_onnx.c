// ONNX files with fields exchanged, through the reader, its report and, where they are small,
// fission; as whole messages, so that what is wrong lies deep: dropped, doubled, swapped with
// others' or nested in themselves, numbers replaced by extreme ones, lengths and bytes that lie.
// Whatever comes out is read or refused with a message, never
// more: no crash, no hang, no leak, no memory beyond what a small file may ask for.
//
// fuzz_onnx [RUNS [SEED [FIRST]]]: 3000 runs, seed 1 and run 0 by default; build with
// -DKILN_SANITIZE=ON for more. A run is a function of its number and the seed: one that fails is
// told and run again with `fuzz_onnx 1 SEED NUMBER`.
#include "fission/lower.h"
#include "onnx/reader.h"
#include "onnx/report.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  MAX_SEEDS = 4096,
  SMALL_BYTES = 16 << 10,
  LARGEST_BYTES = 8 << 20,
  MAX_FIELDS = 1 << 16,
  MAX_DEPTH = 24,
  SECONDS_EACH = 20,
  MAX_MEBIBYTES = 2048, // of a worker, the sanitizer's own among them
};

typedef struct bytes {
  unsigned char *data;
  size_t n;
} bytes;

static bytes seeds[MAX_SEEDS];
static int n_seeds, n_small; // the small ones come first
static int file = -1;        // what is read
static char path[64];

static uint64_t next(uint64_t *state) { // splitmix64
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}

static size_t below(uint64_t *state, size_t n) { return n ? (size_t)(next(state) % n) : 0; }

static void *must(void *memory) {
  if (memory) return memory;
  fprintf(stderr, "fuzz_onnx: no memory left\n");
  exit(2);
}

// --- seeds ---

static void add_file(const char *from) {
  FILE *f = fopen(from, "rb");
  if (!f) return;
  fseek(f, 0, SEEK_END);
  const long n = ftell(f);
  rewind(f);
  if (n > 0 && n <= LARGEST_BYTES && n_seeds < MAX_SEEDS) {
    bytes b = {must(malloc((size_t)n)), (size_t)n};
    if (fread(b.data, 1, b.n, f) == b.n) seeds[n_seeds++] = b;
    else free(b.data);
  }
  fclose(f);
}

// The models of a folder, or of the folders in it, in order of their names.
static void add_folder(const char *folder, bool inner) {
  struct dirent **list = NULL;
  const int n = scandir(folder, &list, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    char name[1024];
    const char *dot = strrchr(list[i]->d_name, '.');
    snprintf(name, sizeof name, inner ? "%s/%s/model.onnx" : "%s/%s", folder, list[i]->d_name);
    if (inner ? list[i]->d_name[0] != '.' : dot && !strcmp(dot, ".onnx")) add_file(name);
    free(list[i]);
  }
  free(list);
}

static int by_size(const void *a, const void *b) {
  const bytes *x = a, *y = b;
  if (x->n != y->n) return x->n < y->n ? -1 : 1;
  return memcmp(x->data, y->data, x->n);
}

static const bytes *pick(uint64_t *state) {
  const bool any = next(state) % 64 == 0 || n_small == 0;
  return &seeds[below(state, (size_t)(any ? n_seeds : n_small))];
}

// --- fields ---

// A field of a message: its tag, the length if it has one, what it holds, and the message that it
// is in.
typedef struct field {
  size_t tag, length, begin, end;
  int parent; // -1: the model
  int wire;   // 0: varint, 1: 64 bits, 2: bytes or a message, 5: 32 bits
} field;

typedef struct fields {
  int n;
  field at[MAX_FIELDS];
} fields;

static fields found;

static bool take_varint(const bytes *b, size_t end, size_t *at, uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 64 && *at < end; shift += 7) {
    const unsigned char byte = b->data[(*at)++];
    *out |= (uint64_t)(byte & 127) << shift;
    if (!(byte & 128)) return true;
  }
  return false;
}

static bool take_field(const bytes *b, size_t end, size_t *at, field *out) {
  uint64_t tag = 0, value = 0;
  out->tag = *at;
  if (!take_varint(b, end, at, &tag) || tag < 8 || tag >> 3 > 4096) return false;
  out->wire = (int)(tag & 7);
  out->length = *at;
  if (out->wire == 2 && !take_varint(b, end, at, &value)) return false;
  out->begin = *at;
  if (out->wire == 0 && !take_varint(b, end, at, &value)) return false;
  if (out->wire == 1 || out->wire == 5) value = out->wire == 1 ? 8 : 4;
  else if (out->wire != 0 && out->wire != 2) return false;
  else if (out->wire == 0) value = 0;
  if (value > end - *at) return false;
  *at += (size_t)value;
  out->end = *at;
  return true;
}

// The fields of [begin, end), and of what in it looks like messages; false, and none, where it is
// none itself.
static bool find_fields(const bytes *b, size_t begin, size_t end, int parent, int depth) {
  const int before = found.n;
  for (size_t at = begin; at < end;) {
    field f = {.parent = parent};
    if (found.n == MAX_FIELDS || !take_field(b, end, &at, &f)) {
      found.n = before;
      return false;
    }
    const int own = found.n;
    found.at[found.n++] = f;
    if (f.wire == 2 && f.end > f.begin && depth < MAX_DEPTH)
      (void)find_fields(b, f.begin, f.end, own, depth + 1);
  }
  return true;
}

static size_t put_varint(unsigned char *to, uint64_t value) {
  size_t n = 0;
  for (; value > 127; value >>= 7) to[n++] = (unsigned char)(value | 128);
  to[n++] = (unsigned char)value;
  return n;
}

// The bytes [from, to) replaced by |content|, in place of field |i| and with the lengths of all
// around it.
static bytes replaced(const bytes *b, int parent, size_t from, size_t to, const bytes *content) {
  bytes part = {must(malloc(content->n + 1)), content->n};
  memcpy(part.data, content->data, content->n);
  for (int p = parent;; p = found.at[p].parent) {
    const field *f = p >= 0 ? &found.at[p] : NULL;
    const size_t begin = f ? f->begin : 0, end = f ? f->end : b->n;
    const size_t inner = (from - begin) + part.n + (end - to), head = f ? f->length - f->tag : 0;
    bytes whole = {must(malloc(inner + head + 11)), 0};
    if (f) {
      memcpy(whole.data, b->data + f->tag, head);
      whole.n = head + put_varint(whole.data + head, inner);
    }
    memcpy(whole.data + whole.n, b->data + begin, from - begin);
    memcpy(whole.data + whole.n + (from - begin), part.data, part.n);
    memcpy(whole.data + whole.n + (from - begin) + part.n, b->data + to, end - to);
    whole.n += inner;
    free(part.data);
    part = whole;
    if (!f) return part;
    from = f->tag;
    to = f->end;
  }
}

static uint64_t extreme(uint64_t *state) {
  static const uint64_t numbers[] = {0,
                                     1,
                                     2,
                                     7,
                                     255,
                                     65536,
                                     INT32_MAX,
                                     UINT32_MAX,
                                     UINT64_C(1) << 40,
                                     INT64_MAX,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX,
                                     UINT64_MAX - 1,
                                     UINT64_MAX - 6};
  const uint64_t r = next(state);
  return r % 3 ? numbers[next(state) % KILN_LEN(numbers)] : r >> (next(state) % 64);
}

// --- mutations: each gives new bytes ---

static bytes as_is(const bytes *b, const field *f, const bytes *content) {
  return replaced(b, f->parent, f->tag, f->end, content);
}

static bytes drop(uint64_t *state, const bytes *b, const field *f) {
  (void)state;
  return as_is(b, f, &(bytes){b->data, 0});
}

static bytes repeat(uint64_t *state, const bytes *b, const field *f) {
  const size_t n = f->end - f->tag, times = 2 + (next(state) % 16 ? 0 : below(state, 200));
  bytes c = {must(malloc(n * times + 1)), n * times};
  for (size_t i = 0; i < times; i++) memcpy(c.data + i * n, b->data + f->tag, n);
  const bytes made = c.n < LARGEST_BYTES ? as_is(b, f, &c) : drop(state, b, f);
  free(c.data);
  return made;
}

// A field of this file or another in its place.
static bytes exchange(uint64_t *state, const bytes *b, const field *f) {
  const field copy = *f;
  if (next(state) % 2 && found.n > 0) {
    const field *other = &found.at[below(state, (size_t)found.n)];
    return as_is(b, &copy, &(bytes){b->data + other->tag, other->end - other->tag});
  }
  const bytes *other = pick(state);
  const size_t at = below(state, other->n), most = other->n - at;
  return as_is(b, &copy, &(bytes){other->data + at, below(state, most < 256 ? most + 1 : 257)});
}

// The field holds itself, some times.
static bytes nest(uint64_t *state, const bytes *b, const field *f) {
  bytes inner = {must(malloc(f->end - f->begin + 1)), f->end - f->begin};
  memcpy(inner.data, b->data + f->begin, inner.n);
  for (size_t k = 1 + (next(state) % 8 ? below(state, 3) : below(state, 400)); k > 0; k--) {
    const size_t head = f->length - f->tag;
    if (f->wire != 2 || inner.n > SMALL_BYTES) break;
    bytes more = {must(malloc(inner.n + head + 11)), head};
    memcpy(more.data, b->data + f->tag, head);
    more.n += put_varint(more.data + head, inner.n);
    memcpy(more.data + more.n, inner.data, inner.n);
    more.n += inner.n;
    free(inner.data);
    inner = more;
  }
  const bytes made = replaced(b, f->parent, f->begin, f->end, &inner);
  free(inner.data);
  return made;
}

static bytes renumber(uint64_t *state, const bytes *b, const field *f) {
  unsigned char number[11];
  const size_t at = f->wire == 0 ? f->begin : f->tag;
  const size_t n = put_varint(
      number, f->wire == 0 ? extreme(state) : (1 + next(state) % 32) << 3 | (unsigned)f->wire);
  return replaced(b, f->parent, at, f->wire == 0 ? f->end : f->length, &(bytes){number, n});
}

// Packed or typed elements, names and raw data: others.
static bytes refill(uint64_t *state, const bytes *b, const field *f) {
  unsigned char content[64];
  size_t n = 0;
  if (next(state) % 2)
    while (n + 10 < sizeof content && next(state) % 6) n += put_varint(content + n, extreme(state));
  else
    for (size_t k = below(state, 40); n < k;) content[n++] = (unsigned char)next(state);
  const bool number = f->wire != 2;
  return replaced(b, f->parent, number ? f->tag : f->begin, f->end, &(bytes){content, n});
}

static bytes cut_field(uint64_t *state, const bytes *b, const field *f) {
  const size_t n = below(state, f->end - f->begin + 1);
  return replaced(b, f->parent, f->begin, f->end, &(bytes){b->data + f->begin, n});
}

// A length that lies, with those around it as they were.
static bytes lie(uint64_t *state, const bytes *b, const field *f) {
  unsigned char number[11];
  const size_t n = put_varint(number, extreme(state)), from = f->length;
  const size_t to = f->wire == 2 ? f->begin : f->length;
  bytes made = {must(malloc(b->n + n + 1)), b->n - (to - from) + n};
  memcpy(made.data, b->data, from);
  memcpy(made.data + from, number, n);
  memcpy(made.data + from + n, b->data + to, b->n - to);
  return made;
}

static bytes flip(uint64_t *state, const bytes *b, const field *f) {
  bytes made = {must(malloc(b->n + 1)), b->n};
  (void)f;
  memcpy(made.data, b->data, b->n);
  for (size_t k = 1 + below(state, 4); k > 0; k--)
    made.data[below(state, made.n)] ^= (unsigned char)(1u << next(state) % 8);
  return made;
}

static bytes cut(uint64_t *state, const bytes *b, const field *f) {
  bytes made = {must(malloc(b->n + 1)), below(state, b->n)};
  (void)f;
  memcpy(made.data, b->data, made.n);
  return made;
}

static bytes mutated(uint64_t *state) {
  static bytes (*const kinds[])(uint64_t *, const bytes *, const field *) = {
      drop,     repeat, exchange, exchange,  nest, renumber, renumber,
      renumber, refill, refill,   cut_field, lie,  flip,     cut};
  const bytes *seed = pick(state);
  bytes b = {must(malloc(seed->n + 1)), seed->n};
  memcpy(b.data, seed->data, b.n);
  for (size_t k = 1 + below(state, 3); k > 0 && b.n > 0; k--) {
    found.n = 0;
    (void)find_fields(&b, 0, b.n, -1, 0);
    const field whole = {0, 0, 0, b.n, -1, 2};
    const field *f = found.n ? &found.at[below(state, (size_t)found.n)] : &whole;
    // Of many fields the deep ones are the most, and attributes' and shapes' numbers are among
    // them.
    const bytes more = kinds[next(state) % KILN_LEN(kinds)](state, &b, f);
    free(b.data);
    b = more;
  }
  return b;
}

// --- a run ---

static bool is_small(const kiln_graph *g) {
  int64_t elements = 0;
  for (int i = 0; i < g->n_values; i++) {
    const kiln_value *v = g->values[i];
    int64_t n = 1;
    for (int a = 0; v->has_shape && a < v->rank; a++) {
      int64_t extent = 1;
      (void)kiln_expr_is_int(v->shape[a], &extent);
      if (extent > 4096 || (n *= extent) > 1 << 16) return false;
    }
    elements += v->constant ? (int64_t)v->constant->bytes : 0;
  }
  return g->n_nodes <= 64 && elements <= 1 << 16;
}

typedef struct job {
  kiln_onnx_file *file;
  bool lowered;
} job;

static kiln_status run(kiln_ctx *cx, void *argument) {
  static const kiln_onnx_options none;
  job *j = argument;
  kiln_graph *g = NULL;
  kiln_program *p = NULL;
  const char *text = NULL;
  KILN_TRY(kiln_onnx_read(cx, path, &none, &j->file, &g));
  KILN_TRY(kiln_onnx_report(cx, g, true, &text));
  if (!is_small(g)) return KILN_OK;
  j->lowered = true;
  return kiln_fission(cx, g, &p);
}

// What may be wrong with a run that came to its end; NULL: nothing.
static const char *try_bytes(const bytes *b, bool *out_accepted) {
  if (ftruncate(file, 0) || pwrite(file, b->data, b->n, 0) != (ssize_t)b->n) exit(2);
  kiln_diag *diag = must(kiln_diag_create());
  kiln_ctx cx;
  if (kiln_ctx_init(&cx, diag) != KILN_OK) exit(2);
  job j = {0};
  const kiln_status st = kiln_ctx_enter(&cx, run, &j);
  const char *wrong = NULL;
  if (st == KILN_INTERNAL) wrong = kiln_diag_message(diag, kiln_diag_count(diag) - 1);
  else if (st != KILN_OK && kiln_diag_count(diag) == 0) wrong = "refused without a message";
  if (wrong) fprintf(stderr, "%s\n", wrong);
  *out_accepted = st == KILN_OK;
  kiln_onnx_close(j.file);
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
  return wrong ? "wrong" : NULL;
}

// --- workers ---

// What a worker tells of itself, in memory that both see.
typedef struct progress {
  long at, accepted;
} progress;

static long mebibytes(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss >> 10;
}

// Ends with the number of a run's fault: 3 wrong, 4 too much memory; a crash or a hang ends it
// earlier.
static void work(volatile progress *p, long end, uint64_t seed) {
  for (; p->at < end; p->at++) {
    uint64_t state = seed * UINT64_C(0x2545F4914F6CDD1D) + (uint64_t)p->at;
    bool accepted = false;
    const bytes b = mutated(&state);
    alarm(SECONDS_EACH);
    const char *wrong = try_bytes(&b, &accepted);
    alarm(0);
    free(b.data);
    p->accepted += accepted;
    if (wrong) exit(3);
    if (mebibytes() > MAX_MEBIBYTES) exit(4);
  }
  for (int i = 0; i < n_seeds; i++) free(seeds[i].data); // or they would be taken for leaks
}

static const char *what_ended(int status) {
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGALRM ? "hangs" : "crashes";
  return WEXITSTATUS(status) == 3   ? "is answered wrongly"
         : WEXITSTATUS(status) == 4 ? "takes too much memory"
                                    : "ends the process";
}

int main(int argc, char **argv) {
  const long n = argc > 1 ? atol(argv[1]) : 3000, first = argc > 3 ? atol(argv[3]) : 0;
  const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  int faults = 0;
  add_folder(KILN_SOURCE_DIR "/models", false);
  add_folder("/usr/share/libonnx-testdata/data/node", true);
  qsort(seeds, (size_t)n_seeds, sizeof *seeds, by_size);
  while (n_small < n_seeds && seeds[n_small].n <= SMALL_BYTES) n_small++;
  file = memfd_create("model.onnx", 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  volatile progress *p =
      mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (file < 0 || p == MAP_FAILED || n_seeds == 0) return 2;
  for (p->at = first; p->at < first + n; p->at++) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
      work(p, first + n, seed);
      exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) return 2;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    // Behind the last run it is what the whole worker left behind.
    printf("fuzz_onnx 1 %llu %ld: %s\n", (unsigned long long)seed, p->at,
           p->at < first + n ? what_ended(status) : "leaks, or a run before it");
    faults++;
  }
  printf("%ld runs from %d models, %ld accepted, %d faults\n", n, n_seeds, p->accepted, faults);
  for (int i = 0; i < n_seeds; i++) free(seeds[i].data);
  return faults == 0 && (n < 100 || (p->accepted > n / 50 && p->accepted < n)) ? 0 : 1;
}

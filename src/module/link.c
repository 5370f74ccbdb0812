// Module files: runs ld as a child process, without a shell; objects are passed as memory files, so
// that only the output is written to disk.
#include "module/link.h"
#include "module/copy.h"
#include "runtime/sums.h"
#include "runtime/wire.h"
#include "support/checksum.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static kiln_status no_memory(const kiln_output *out, kiln_diag *diag) {
  return KILN_FAIL(diag, KILN_NO_MEMORY, out->path, "module file: no memory left");
}

static kiln_status unwritable(const kiln_output *out, kiln_diag *diag) {
  return KILN_FAIL(diag, KILN_BAD_INPUT, out->path, "must be writable: %s", strerror(errno));
}

kiln_status kiln_output_open(kiln_output *out, const char *path, kiln_diag *diag) {
  struct stat info;
  *out = (kiln_output){.path = strdup(path), .file.fd = -1};
  if (!out->path) return no_memory(out, diag);
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
    return KILN_FAIL(diag, KILN_BAD_INPUT, path, "must be writable: it is there and no file");
  return kiln_temporary_open(&out->file, path, 0777) ? KILN_OK : unwritable(out, diag);
}

// --- the linker ---

// The child's argv; objects are paths of this process's file descriptors.
typedef struct command {
  int n_objects, result;
  char result_name[64];
  int *fds;
  char (*names)[64];
  const char **argv;
} command;

static void command_deinit(command *c) {
  for (int i = 0; i < c->n_objects; i++)
    if (c->fds[i] >= 0) close(c->fds[i]);
  if (c->result >= 0) close(c->result);
  free(c->fds);
  free(c->names);
  free(c->argv);
}

static kiln_status make_command(const kiln_output *out, int n, const kiln_object *objects,
                                kiln_diag *diag, command *c) {
  static const char *const head[] = {
      "ld",  "-shared", "--hash-style=gnu", "--build-id=none", "-z", "noexecstack", "-z",
      "now", "-o"};
  static const char *const tail[] = {"--as-needed", "-l:libm.so.6", "-l:libc.so.6"};
  int at = 0;
  *c = (command){.fds = calloc((size_t)n + 1, sizeof(int)), .names = calloc((size_t)n + 1, 64)};
  c->result = memfd_create("kiln-module", MFD_CLOEXEC);
  c->argv = calloc(KILN_LEN(head) + KILN_LEN(tail) + (size_t)n + 2, sizeof(char *));
  if (!c->fds || !c->names || !c->argv) return no_memory(out, diag);
  for (size_t i = 0; i < KILN_LEN(head); i++) c->argv[at++] = head[i];
  if (c->result < 0) return no_memory(out, diag);
  snprintf(c->result_name, sizeof c->result_name, "/proc/%ld/fd/%d", (long)getpid(), c->result);
  c->argv[at++] = c->result_name;
  for (int i = 0; i < n; i++) {
    c->fds[i] = memfd_create("kiln-object", MFD_CLOEXEC);
    c->n_objects = i + 1;
    if (c->fds[i] < 0 || !kiln_write_all(c->fds[i], objects[i].data, objects[i].bytes, 0))
      return KILN_FAIL(diag, KILN_NO_MEMORY, out->path, "object: memory file: %s", strerror(errno));
    snprintf(c->names[i], sizeof c->names[i], "/proc/%ld/fd/%d", (long)getpid(), c->fds[i]);
    c->argv[at++] = c->names[i];
  }
  const size_t first = n == 0; // without any input ld makes no loadable file
  for (size_t i = first; i < KILN_LEN(tail); i++) c->argv[at++] = tail[i];
  return KILN_OK;
}

// Keeps the first |cap| bytes and drains the rest, so that the child never blocks on a full pipe.
static void read_output(int fd, char *text, size_t cap) {
  char rest[512];
  size_t n = 0;
  for (;;) {
    const bool keep = n + 1 < cap;
    ssize_t got = keep ? read(fd, text + n, cap - 1 - n) : read(fd, rest, sizeof rest);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (keep) n += (size_t)got;
  }
  while (n > 0 && text[n - 1] == '\n') n--;
  text[n] = 0;
}

// gives: 0, or errno of the spawn; the child's stderr and exit status
static int spawn(const char *const *argv, char *text, size_t cap, int *out_status) {
  posix_spawn_file_actions_t actions;
  int pipes[2];
  pid_t child = 0;
  *out_status = -1;
  text[0] = 0;
  if (pipe2(pipes, O_CLOEXEC) != 0) return errno;
  int wrong = posix_spawn_file_actions_init(&actions);
  if (wrong == 0) {
    wrong = posix_spawn_file_actions_adddup2(&actions, pipes[1], STDERR_FILENO);
    if (wrong == 0)
      wrong =
          posix_spawnp(&child, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  close(pipes[1]);
  if (wrong == 0) {
    read_output(pipes[0], text, cap);
    while (waitpid(child, out_status, 0) < 0 && errno == EINTR) {}
  }
  close(pipes[0]);
  return wrong;
}

static kiln_status run_linker(const kiln_output *out, const command *c, kiln_diag *diag) {
  char text[2048];
  int status = 0;
  int wrong = spawn(c->argv, text, sizeof text, &status);
  if (wrong != 0)
    return KILN_FAIL(diag, KILN_DEVICE_ERROR, out->path,
                     "linker: ld (binutils) must be installed and startable: %s", strerror(wrong));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return KILN_FAIL(diag, KILN_DEVICE_ERROR, out->path, "linker: ld must succeed, it says: %s",
                     text[0] ? text : "nothing");
  return KILN_OK;
}

static void set_code(kiln_output *out, const void *code, uint64_t bytes) {
  const uint64_t align = KILN_CONTAINER_ALIGN;
  out->parts.code_bytes = bytes;
  out->parts.code_sum = kiln_wire_sum(code, bytes);
  out->parts.weights_offset = (bytes + align - 1) / align * align;
}

kiln_status kiln_output_code(kiln_output *out, const char *code, uint64_t bytes, kiln_diag *diag) {
  struct stat info;
  if (fstat(out->file.fd, &info) != 0 || fchmod(out->file.fd, info.st_mode & 0666) != 0 ||
      !kiln_write_all(out->file.fd, code, bytes, 0))
    return unwritable(out, diag);
  set_code(out, code, bytes);
  return KILN_OK;
}

static kiln_status take_code(kiln_output *out, int from, kiln_diag *diag) {
  struct stat info;
  void *map = fstat(from, &info) == 0 && info.st_size > 0
                  ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, from, 0)
                  : MAP_FAILED;
  if (map == MAP_FAILED)
    return KILN_FAIL(diag, KILN_DEVICE_ERROR, out->path, "linker: ld must write its output");
  const bool written = kiln_write_all(out->file.fd, map, (size_t)info.st_size, 0);
  if (written) set_code(out, map, (uint64_t)info.st_size);
  const int error = errno;
  munmap(map, (size_t)info.st_size);
  errno = error;
  return written ? KILN_OK : unwritable(out, diag);
}

kiln_status kiln_output_link(kiln_output *out, int n, const kiln_object *objects, kiln_diag *diag) {
  command c;
  kiln_status st = make_command(out, n, objects, diag, &c);
  if (st == KILN_OK) st = run_linker(out, &c, diag);
  if (st == KILN_OK) st = take_code(out, c.result, diag);
  command_deinit(&c);
  return st;
}

// --- checksums of weights ---

// In completion order of the threads until they are sorted.
typedef struct kiln_output_sums {
  pthread_mutex_t lock;
  kiln_piece_sum *rows; // malloc'ed
  size_t n, cap;
} sums;

static sums *create_sums(void) {
  sums *s = calloc(1, sizeof *s);
  if (s && pthread_mutex_init(&s->lock, NULL) == 0) return s;
  free(s);
  return NULL;
}

static void destroy_sums(sums *s) {
  if (!s) return;
  pthread_mutex_destroy(&s->lock);
  free(s->rows);
  free(s);
}

static bool add_sum(sums *s, const kiln_piece_sum *row) {
  pthread_mutex_lock(&s->lock);
  if (s->n == s->cap) {
    const size_t cap = s->cap ? 2 * s->cap : 256;
    kiln_piece_sum *more = realloc(s->rows, cap * sizeof *more);
    if (more) s->rows = more, s->cap = cap;
  }
  const bool has_room = s->n < s->cap;
  if (has_room) s->rows[s->n++] = *row;
  pthread_mutex_unlock(&s->lock);
  return has_room;
}

static int by_offset(const void *a, const void *b) {
  const kiln_piece_sum *x = a, *y = b;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

// The table as stored in the file; malloc'ed, NULL: no memory.
static unsigned char *table_of(sums *s, size_t *out_bytes) {
  unsigned char *table = malloc(s->n * KILN_SUM_BYTES + 1);
  *out_bytes = s->n * KILN_SUM_BYTES;
  if (s->n > 1) qsort(s->rows, s->n, sizeof *s->rows, by_offset);
  for (size_t i = 0; table && i < s->n; i++)
    kiln_sum_write(&s->rows[i], table + i * KILN_SUM_BYTES);
  return table;
}

static bool write_table(kiln_output *out) {
  kiln_container *c = &out->parts;
  size_t bytes = 0;
  unsigned char *table = table_of(out->sums, &bytes);
  c->sums_offset = (c->weights_offset + c->weights_bytes + 63) / 64 * 64;
  c->sums_bytes = bytes;
  c->sums_sum = table ? kiln_wire_sum(table, bytes) : 0;
  const bool written = table && kiln_write_all(out->file.fd, table, bytes, (int64_t)c->sums_offset);
  if (!table) errno = ENOMEM;
  free(table);
  return written;
}

// --- weights, plan, trailer ---

// Allocates disk space first, to find a full disk at once. Weights are written with pwrite rather
// than through a mapping, which would first fault on and zero every page.
kiln_status kiln_output_weights(kiln_output *out, uint64_t bytes, kiln_diag *diag) {
  out->parts.weights_bytes = bytes;
  if (!out->sums && !(out->sums = create_sums())) return no_memory(out, diag);
  errno = bytes ? posix_fallocate(out->file.fd, (off_t)out->parts.weights_offset, (off_t)bytes) : 0;
  return errno == 0 ? KILN_OK : unwritable(out, diag);
}

bool kiln_output_write(const kiln_output *out, uint64_t at, const void *data, size_t bytes) {
  const kiln_piece_sum s = {at, bytes, kiln_checksum(data, bytes)};
  if (!add_sum(out->sums, &s)) return errno = ENOMEM, false;
  return kiln_write_all(out->file.fd, data, bytes, (int64_t)(out->parts.weights_offset + at));
}

uint64_t kiln_output_weights_sum(const kiln_output *out) {
  size_t bytes = 0;
  unsigned char *table = out->sums ? table_of(out->sums, &bytes) : NULL;
  const uint64_t sum = table ? kiln_wire_sum(table, bytes) : 0;
  free(table);
  return sum;
}

bool kiln_output_take_name(kiln_output *out) { return kiln_temporary_take_name(&out->file); }

kiln_status kiln_output_finish(kiln_output *out, const void *plan, size_t plan_bytes,
                               kiln_diag *diag) {
  unsigned char trailer[KILN_TRAILER_BYTES];
  kiln_container *c = &out->parts;
  if (!out->sums && !(out->sums = create_sums())) return no_memory(out, diag);
  if (!write_table(out)) return unwritable(out, diag);
  c->plan_offset = (c->sums_offset + c->sums_bytes + 63) / 64 * 64;
  c->plan_bytes = plan_bytes;
  c->plan_sum = kiln_wire_sum(plan, plan_bytes);
  c->file_bytes = c->plan_offset + plan_bytes + sizeof trailer;
  kiln_trailer_write(c, trailer);
  if (!kiln_write_all(out->file.fd, plan, plan_bytes, (int64_t)c->plan_offset) ||
      !kiln_write_all(out->file.fd, trailer, sizeof trailer,
                      (int64_t)(c->plan_offset + plan_bytes)) ||
      !kiln_output_take_name(out))
    return unwritable(out, diag);
  return KILN_OK;
}

bool kiln_output_copy(kiln_output *out, int from, uint64_t bytes, int threads,
                      unsigned char out_digest[KILN_DIGEST_BYTES]) {
  struct stat info;
  const int fd = out->file.fd;
  return fstat(from, &info) == 0 && fchmod(fd, info.st_mode & 0777) == 0 &&
         posix_fallocate(fd, 0, (off_t)bytes) == 0 &&
         kiln_file_copy(from, bytes, fd, threads, out_digest);
}

void kiln_output_discard(kiln_output *out) {
  kiln_temporary_discard(&out->file);
  destroy_sums(out->sums);
  free(out->path);
  *out = (kiln_output){.file.fd = -1};
}

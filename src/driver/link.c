// Module files: ld as a child process without a shell, objects handed over as memory files, so that
// nothing but the output touches the disk.
#include "driver/link.h"
#include "driver/copy.h"
#include "runtime/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static kiln_status no_memory(const kiln_output *out, kiln_diag *diag) {
  return KILN_FAIL(diag, KILN_NO_MEMORY, out->path, "module file: no memory left");
}

static kiln_status unwritable(const kiln_output *out, kiln_diag *diag) {
  return KILN_FAIL(diag, KILN_BAD_INPUT, out->path, "must be writable: %s", strerror(errno));
}

kiln_status kiln_output_open(kiln_output *out, const char *path, kiln_diag *diag) {
  const size_t n = strlen(path) + 32;
  struct stat info;
  *out = (kiln_output){.path = strdup(path), .fd = -1};
  char *tmp = malloc(n);
  if (!out->path || !tmp) {
    free(tmp);
    return no_memory(out, diag);
  }
  snprintf(tmp, n, "%s.%ld.tmp", path, (long)getpid());
  int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd >= 0) out->tmp = tmp;
  else free(tmp);
  if (fd < 0) return unwritable(out, diag);
  close(fd);
  unlink(tmp); // until there is something to write: who is killed before that leaves nothing
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
    return KILN_FAIL(diag, KILN_BAD_INPUT, path, "must be writable: it is there and no file");
  return KILN_OK;
}

// --- the linker ---

// The child's argv; the objects are named by this process's descriptors.
typedef struct command {
  int n_objects;
  int *fds;
  char (*names)[64];
  const char **argv;
} command;

static void command_deinit(command *c) {
  for (int i = 0; i < c->n_objects; i++)
    if (c->fds[i] >= 0) close(c->fds[i]);
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
  c->argv = calloc(KILN_LEN(head) + KILN_LEN(tail) + (size_t)n + 2, sizeof(char *));
  if (!c->fds || !c->names || !c->argv) return no_memory(out, diag);
  for (size_t i = 0; i < KILN_LEN(head); i++) c->argv[at++] = head[i];
  c->argv[at++] = out->tmp;
  for (int i = 0; i < n; i++) {
    c->fds[i] = memfd_create("kiln-object", MFD_CLOEXEC);
    c->n_objects = i + 1;
    if (c->fds[i] < 0 || !kiln_write_all(c->fds[i], objects[i].data, objects[i].bytes, 0))
      return KILN_FAIL(diag, KILN_NO_MEMORY, out->path, "object: memory file: %s", strerror(errno));
    snprintf(c->names[i], sizeof c->names[i], "/proc/%ld/fd/%d", (long)getpid(), c->fds[i]);
    c->argv[at++] = c->names[i];
  }
  for (size_t i = 0; i < KILN_LEN(tail); i++) c->argv[at++] = tail[i];
  return KILN_OK;
}

// Keeps the first bytes and reads on, so that the child never waits for a full pipe.
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

// gives: 0, or the error number of the spawn; what the child writes to stderr; its exit status
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

// The linker has made a new file of that name.
static kiln_status measure_code(kiln_output *out, kiln_diag *diag) {
  struct stat info;
  out->fd = open(out->tmp, O_RDWR | O_CLOEXEC);
  if (out->fd < 0 || fstat(out->fd, &info) != 0) return unwritable(out, diag);
  void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, out->fd, 0);
  if (map == MAP_FAILED) return unwritable(out, diag);
  set_code(out, map, (uint64_t)info.st_size);
  munmap(map, (size_t)info.st_size);
  return KILN_OK;
}

kiln_status kiln_output_code(kiln_output *out, const char *code, uint64_t bytes, kiln_diag *diag) {
  out->fd = open(out->tmp, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (out->fd < 0 || !kiln_write_all(out->fd, code, bytes, 0)) return unwritable(out, diag);
  set_code(out, code, bytes);
  return KILN_OK;
}

kiln_status kiln_output_link(kiln_output *out, int n, const kiln_object *objects, kiln_diag *diag) {
  command c;
  kiln_status st = make_command(out, n, objects, diag, &c);
  if (st == KILN_OK) st = run_linker(out, &c, diag);
  command_deinit(&c);
  return st == KILN_OK ? measure_code(out, diag) : st;
}

// --- weights, plan, trailer ---

// Room on the disk first: a full one is found at once. The weights are written and not stored into a map of the
// file, which would zero every page and fault on it before.
kiln_status kiln_output_weights(kiln_output *out, uint64_t bytes, kiln_diag *diag) {
  out->parts.weights_bytes = bytes;
  errno = bytes ? posix_fallocate(out->fd, (off_t)out->parts.weights_offset, (off_t)bytes) : 0;
  return errno == 0 ? KILN_OK : unwritable(out, diag);
}

bool kiln_output_write(const kiln_output *out, uint64_t at, const void *data, size_t bytes) {
  return kiln_write_all(out->fd, data, bytes, (int64_t)(out->parts.weights_offset + at));
}

// An exchange with the file that has the name: where a rename replaces one, ext4 starts writing the new one to the
// disk before it returns.
bool kiln_output_take_name(kiln_output *out) {
  if (renameat2(AT_FDCWD, out->tmp, AT_FDCWD, out->path, RENAME_EXCHANGE) == 0) unlink(out->tmp);
  else if (rename(out->tmp, out->path) != 0) return false;
  free(out->tmp);
  out->tmp = NULL;
  return true;
}

kiln_status kiln_output_finish(kiln_output *out, const void *plan, size_t plan_bytes,
                               kiln_diag *diag) {
  unsigned char trailer[KILN_TRAILER_BYTES];
  kiln_container *c = &out->parts;
  c->plan_offset = (c->weights_offset + c->weights_bytes + 63) / 64 * 64;
  c->plan_bytes = plan_bytes;
  c->plan_sum = kiln_wire_sum(plan, plan_bytes);
  c->file_bytes = c->plan_offset + plan_bytes + sizeof trailer;
  kiln_trailer_write(c, trailer);
  if (!kiln_write_all(out->fd, plan, plan_bytes, (int64_t)c->plan_offset) ||
      !kiln_write_all(out->fd, trailer, sizeof trailer, (int64_t)(c->plan_offset + plan_bytes)) ||
      !kiln_output_take_name(out))
    return unwritable(out, diag);
  return KILN_OK;
}

bool kiln_output_copy(kiln_output *out, int from, uint64_t bytes, int threads, uint64_t *out_sum) {
  struct stat info;
  out->fd = open(out->tmp, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  return out->fd >= 0 && fstat(from, &info) == 0 && fchmod(out->fd, info.st_mode & 0777) == 0 &&
         posix_fallocate(out->fd, 0, (off_t)bytes) == 0 &&
         kiln_file_copy(from, bytes, out->fd, threads, out_sum);
}

void kiln_output_discard(kiln_output *out) {
  if (out->fd >= 0) close(out->fd);
  if (out->tmp) unlink(out->tmp);
  free(out->tmp);
  free(out->path);
  *out = (kiln_output){.fd = -1};
}

#include "support/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// O_NONBLOCK: opening a pipe must not wait for a writer.
enum { READING = O_RDONLY | O_CLOEXEC | O_NONBLOCK };

// The path of an open file according to the kernel.
static bool path_of(int fd, char out[PATH_MAX]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, out, PATH_MAX - 1);
  if (n <= 0) return false;
  out[n] = 0;
  return out[0] == '/';
}

static bool is_beneath(int folder, int file) {
  char outer[PATH_MAX], inner[PATH_MAX];
  if (!path_of(folder, outer) || !path_of(file, inner)) return false;
  size_t n = strlen(outer);
  while (n > 0 && outer[n - 1] == '/') n--; // of the root
  return strncmp(outer, inner, n) == 0 && inner[n] == '/';
}

static int reopen(int file) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  return open(link, READING);
}

int kiln_open_beneath_by_path(int folder, const char *name) {
  const int found = name[0] == '/' ? -1 : openat(folder, name, O_PATH | O_CLOEXEC);
  if (name[0] == '/') errno = EXDEV;
  if (found < 0) return -1;
  int fd = -1, error = EXDEV;
  if (is_beneath(folder, found)) {
    fd = reopen(found); // the file found, even if its name was replaced meanwhile
    error = errno;
  }
  close(found);
  errno = error;
  return fd;
}

int kiln_open_beneath(int folder, const char *name) {
  struct open_how how = {.flags = READING, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
  const long fd = syscall(SYS_openat2, folder, name, &how, sizeof how);
  // ENOSYS: before Linux 5.6; EPERM: a sandbox without openat2
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM && errno != EAGAIN)) return (int)fd;
  return kiln_open_beneath_by_path(folder, name);
}

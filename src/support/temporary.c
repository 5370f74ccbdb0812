#include "support/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = ".kiln-", suffix[] = ".tmp";
enum { DIGITS = 16, NAME_BYTES = sizeof prefix - 1 + DIGITS + sizeof suffix, TRIES = 100 };

bool kiln_temporary_is_name(const char *name) {
  const size_t head = sizeof prefix - 1;
  return strlen(name) == NAME_BYTES - 1 && strncmp(name, prefix, head) == 0 &&
         strspn(name + head, "0123456789abcdef") == DIGITS &&
         strcmp(name + head + DIGITS, suffix) == 0;
}

// Length of the folder part of |path|, with its '/'.
static size_t folder_length(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) + 1 : 0;
}

// A name in the same folder, malloc'ed; NULL with errno set.
static char *random_name(const char *path) {
  uint64_t random = 0;
  const size_t n = folder_length(path);
  if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) return NULL;
  char *name = malloc(n + NAME_BYTES);
  if (!name) return NULL;
  memcpy(name, path, n);
  snprintf(name + n, NAME_BYTES, "%s%016" PRIx64 "%s", prefix, random, suffix);
  return name;
}

static char *folder_of(const char *path) {
  const size_t n = folder_length(path);
  return n ? strndup(path, n) : strdup(".");
}

// Removes temporary files of dead processes: a live writer holds a lock on its file.
static void remove_stale(const char *folder) {
  DIR *files = opendir(folder);
  for (const struct dirent *e = files ? readdir(files) : NULL; e; e = readdir(files)) {
    if (!kiln_temporary_is_name(e->d_name)) continue;
    const int fd = openat(dirfd(files), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat info;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0)
      (void)unlinkat(dirfd(files), e->d_name, 0);
    if (fd >= 0) close(fd);
  }
  if (files) closedir(files);
}

// Whether another process removed the file before it was locked, taking it for a stale one.
static bool is_removed(int fd) {
  struct stat info;
  return fstat(fd, &info) != 0 || info.st_nlink == 0;
}

static bool make_named(kiln_temporary *t, mode_t mode) {
  for (int i = 0; i < TRIES; i++) {
    if (!(t->name = random_name(t->path))) return false;
    t->fd = open(t->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    int error = errno;
    if (t->fd >= 0 && flock(t->fd, LOCK_EX | LOCK_NB) == 0 && !is_removed(t->fd)) return true;
    if (t->fd >= 0) error = EWOULDBLOCK;
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
    free(t->name);
    t->name = NULL;
    if (error != EEXIST && error != EWOULDBLOCK) return errno = error, false;
  }
  return errno = EEXIST, false;
}

static bool begin(kiln_temporary *t, const char *path, char **out_folder) {
  *t = (kiln_temporary){.path = strdup(path), .fd = -1};
  *out_folder = folder_of(path);
  if (t->path && *out_folder) {
    remove_stale(*out_folder);
    return true;
  }
  free(*out_folder);
  return errno = ENOMEM, false;
}

bool kiln_temporary_open_named(kiln_temporary *t, const char *path, mode_t mode) {
  char *folder = NULL;
  if (!begin(t, path, &folder)) return false;
  free(folder);
  return make_named(t, mode);
}

static void link_of(int fd, char out[64]) { snprintf(out, 64, "/proc/self/fd/%d", fd); }

bool kiln_temporary_open(kiln_temporary *t, const char *path, mode_t mode) {
  char *folder = NULL, link[64];
  if (!begin(t, path, &folder)) return false;
#ifdef O_TMPFILE
  t->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
#endif
  free(folder);
  link_of(t->fd, link);
  if (t->fd >= 0 && access(link, F_OK) == 0 && flock(t->fd, LOCK_EX | LOCK_NB) == 0) return true;
  if (t->fd >= 0) close(t->fd);
  t->fd = -1;
  return make_named(t, mode);
}

// rename over an existing file makes ext4 flush the new file before returning; RENAME_EXCHANGE does
// not.
static bool replace(kiln_temporary *t) {
  if (renameat2(AT_FDCWD, t->name, AT_FDCWD, t->path, RENAME_EXCHANGE) == 0) (void)unlink(t->name);
  else if (rename(t->name, t->path) != 0) return false;
  free(t->name);
  t->name = NULL;
  return true;
}

static bool name_and_replace(kiln_temporary *t) {
  char link[64];
  link_of(t->fd, link);
  if (!t->name) {
    if (linkat(AT_FDCWD, link, AT_FDCWD, t->path, AT_SYMLINK_FOLLOW) == 0) return true;
    if (errno != EEXIST || !(t->name = random_name(t->path))) return false;
    if (linkat(AT_FDCWD, link, AT_FDCWD, t->name, AT_SYMLINK_FOLLOW) != 0) {
      const int error = errno;
      free(t->name); // it is another process's file now
      t->name = NULL;
      return errno = error, false;
    }
  }
  return replace(t);
}

// A fatal signal can only leave both names behind in the short time between two system calls.
bool kiln_temporary_take_name(kiln_temporary *t) {
  sigset_t all, before;
  sigfillset(&all);
  const bool is_blocked = pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
  const bool is_named = name_and_replace(t);
  const int error = errno;
  if (is_blocked) pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = error;
  return is_named;
}

bool kiln_temporary_take_new_name(kiln_temporary *t) {
  char of_file[64];
  link_of(t->fd, of_file);
  return linkat(AT_FDCWD, t->name ? t->name : of_file, AT_FDCWD, t->path,
                t->name ? 0 : AT_SYMLINK_FOLLOW) == 0;
}

void kiln_temporary_discard(kiln_temporary *t) {
  if (t->name) (void)unlink(t->name);
  if (t->fd >= 0) close(t->fd);
  free(t->name);
  free(t->path);
  *t = (kiln_temporary){.fd = -1};
}

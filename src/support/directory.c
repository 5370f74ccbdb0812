#include "support/directory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool kiln_directory_find_cache(char *out, size_t room) {
  const char *own = getenv("KILN_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"),
             *home = getenv("HOME");
  int n = 0;
  if (own) n = snprintf(out, room, "%s", own);
  else if (xdg && xdg[0] == '/') n = snprintf(out, room, "%s/kiln", xdg);
  else if (home && home[0]) n = snprintf(out, room, "%s/.cache/kiln", home);
  return n > 0 && (size_t)n < room;
}

bool kiln_directory_make(char *path) {
  for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
    *at = 0;
    const bool made = mkdir(path, 0700) == 0 || errno == EEXIST || errno == EROFS;
    *at = '/';
    if (!made) return false;
  }
  return mkdir(path, 0700) == 0 || errno == EEXIST;
}

bool kiln_directory_is_own(const char *path, char why[KILN_DIRECTORY_WHY]) {
  struct stat info;
  why[0] = 0;
  if (stat(path, &info) != 0) snprintf(why, KILN_DIRECTORY_WHY, "%s", strerror(errno));
  else if (!S_ISDIR(info.st_mode)) snprintf(why, KILN_DIRECTORY_WHY, "no folder");
  else if (info.st_uid != geteuid())
    snprintf(why, KILN_DIRECTORY_WHY, "one of user %u, who is not user %u", (unsigned)info.st_uid,
             (unsigned)geteuid());
  else if (info.st_mode & (S_IWGRP | S_IWOTH))
    snprintf(why, KILN_DIRECTORY_WHY, "one that others may write to (mode %03o); chmod go-w",
             (unsigned)info.st_mode & 0777);
  return !why[0];
}

// Files that appear under their name only when they are complete. Until then a file is unnamed
// (O_TMPFILE), so that a killed process leaves nothing behind. If the file system does not support
// this, it has a random name ".kiln-....tmp" and a lock; the next writer in the folder removes
// those that are not locked.
#ifndef KILN_SUPPORT_TEMPORARY_H
#define KILN_SUPPORT_TEMPORARY_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct kiln_temporary {
  char *path; // final path, malloc'ed
  char *name; // current temporary path, malloc'ed; NULL: unnamed
  int fd;     // -1: closed
} kiln_temporary;

// Creates an empty file in the folder of |path|, open for reading and writing; |mode| as for
// open(2).
//
// gives: false with errno set; call kiln_temporary_discard in either case
bool kiln_temporary_open(kiln_temporary *t, const char *path, mode_t mode);
// The same without O_TMPFILE.
bool kiln_temporary_open_named(kiln_temporary *t, const char *path, mode_t mode);
// Gives the file its final name |t->path|, replacing an existing file. A symbolic link is replaced
// rather than followed.
//
// gives: false with errno set
bool kiln_temporary_take_name(kiln_temporary *t);
// The same unless a file of that name exists: EEXIST.
bool kiln_temporary_take_new_name(kiln_temporary *t);
void kiln_temporary_discard(kiln_temporary *t);
bool kiln_temporary_is_name(const char *name); // whether a file name in a folder is one of ours

#endif

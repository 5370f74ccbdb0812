// Files that get their name when they are whole. Until then a file has none, so that whoever is
// killed leaves nothing behind; no signal is caught for that. Where the file system cannot do so it
// has one of random letters, ".kiln-....tmp", and a lock: the next who writes to the folder removes
// those that nobody has locked.
#ifndef KILN_SUPPORT_TEMPORARY_H
#define KILN_SUPPORT_TEMPORARY_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct kiln_temporary {
  char *path; // what it will be called, malloc'ed
  char *name; // what it is called now, malloc'ed; NULL: nothing
  int fd;     // -1: there is none
} kiln_temporary;

// Makes an empty file, to be written and read, in the folder of |path|; |mode| as for open(2).
//
// gives: false, and errno says why; in either case to be ended by kiln_temporary_discard
bool kiln_temporary_open(kiln_temporary *t, const char *path, mode_t mode);
// The same where the file system has no files without a name.
bool kiln_temporary_open_named(kiln_temporary *t, const char *path, mode_t mode);
// Calls it |t->path|, in place of what is called so. A link is replaced, not followed.
//
// gives: false, and errno says why
bool kiln_temporary_take_name(kiln_temporary *t);
// The same where nothing is called so yet; EEXIST: something is.
bool kiln_temporary_take_new_name(kiln_temporary *t);
void kiln_temporary_discard(kiln_temporary *t);
bool kiln_temporary_is_name(const char *name); // of a file in its folder: one of ours

#endif

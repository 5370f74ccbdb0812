// The user's cache directory: where it is, and making it.
#ifndef KILN_SUPPORT_DIRECTORY_H
#define KILN_SUPPORT_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>

enum { KILN_DIRECTORY_WHY = 128 };

// Writes the path of Kiln's cache directory: $KILN_CACHE_DIR, else $XDG_CACHE_HOME/kiln, else
// ~/.cache/kiln. It need not exist.
//
// gives: false where there is none: $KILN_CACHE_DIR is set and empty, nothing is set, |room| is too
//        small
bool kiln_directory_find_cache(char *out, size_t room);
// Makes |path| and the directories that it lies in; true when it is there. |path| is unchanged.
bool kiln_directory_make(char *path);

// Whether |path| is a folder of this user's, which no other may write to; else |why| says what it
// is.
bool kiln_directory_is_own(const char *path, char why[KILN_DIRECTORY_WHY]);

#endif

// The user's cache directory.
#ifndef KILN_SUPPORT_DIRECTORY_H
#define KILN_SUPPORT_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>

enum { KILN_DIRECTORY_WHY = 128 };

// Writes the path of Kiln's cache directory: $KILN_CACHE_DIR, else $XDG_CACHE_HOME/kiln, else
// ~/.cache/kiln. The directory need not exist.
//
// gives: false if there is none: $KILN_CACHE_DIR is empty, no variable is set, or |room| is too
//        small
bool kiln_directory_find_cache(char *out, size_t room);
// Creates |path| and its parents; true if it exists afterwards. |path| is unchanged on return.
bool kiln_directory_make(char *path);

// Whether |path| is a directory owned by this user and not writable by others; otherwise |why| has
// the reason.
bool kiln_directory_is_own(const char *path, char why[KILN_DIRECTORY_WHY]);

#endif

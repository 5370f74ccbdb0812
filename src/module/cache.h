// The cache on disk, a key-value store: each result of compiling under a digest of its inputs.
//
// One SQLite database in the user's cache directory ($KILN_CACHE_DIR, else $XDG_CACHE_HOME/kiln,
// else ~/.cache/kiln), and beside it a file for each whole module. The directory must be the user's
// own, with no right for others to write. An entry is authenticated with a key that lies there and
// only its owner may read: what does not match, a process that was killed, a disk or another user
// having left it so, is not there. Nothing here fails a compilation: without a directory that can
// be written there is no cache. Any number of processes and threads may use one directory, each
// thread its own kiln_cache.
#ifndef KILN_MODULE_CACHE_H
#define KILN_MODULE_CACHE_H

#include "support/arena.h"
#include "support/digest.h"
#include "support/status.h"

#include <stdbool.h>

#define KILN_CACHE_LIMIT_BYTES (INT64_C(512) << 20)

enum { KILN_CACHE_FILES_SHARE = 2, KILN_CACHE_PATH_ROOM = 4096 };
typedef enum kiln_cache_kind {
  KILN_CACHE_OBJECT,   // a kernel's object code
  KILN_CACHE_SCHEDULE, // a program's kernels and their scripts
  KILN_CACHE_MODULE,   // what a whole module was made of (module_cache.h); it is a file of its own
  KILN_CACHE_KINDS
} kiln_cache_kind;
typedef struct kiln_cache_key {
  unsigned char bytes[KILN_DIGEST_BYTES];
} kiln_cache_key;
typedef struct kiln_cache kiln_cache;

// Warns of an existing directory that is not used because of its owner or permissions.
void kiln_cache_warn(kiln_diag *diag);
// Opens the database in |directory|, making both; NULL |directory| is the user's.
// gives: NULL where there is no cache: nothing to open or write, or $KILN_CACHE_DIR is set and
//        empty
kiln_cache *kiln_cache_open(const char *directory, int64_t limit_bytes);
// Commits what was put, and evicts least recently used entries beyond the size limit; for modules
// the limit is KILN_CACHE_FILES_SHARE times as much.
void kiln_cache_close(kiln_cache *c); // NULL is allowed

// gives: the data, malloc'ed, a NUL behind it; NULL when it is not there. |c| may be NULL
void *kiln_cache_find(kiln_cache *c, kiln_cache_kind kind, const kiln_cache_key *key,
                      size_t *out_bytes);
// |label| is for people who list the cache. |c| may be NULL.
void kiln_cache_put(kiln_cache *c, kiln_cache_kind kind, const kiln_cache_key *key,
                    const char *label, const void *data, size_t bytes);
// The path of the file of a module's entry, whether it is there or not; false where it is too long.
bool kiln_cache_file(const kiln_cache *c, const kiln_cache_key *key,
                     char out[KILN_CACHE_PATH_ROOM]);
// kiln_cache_put of a module, whose file of |file_bytes| has got that path.
void kiln_cache_put_module(kiln_cache *c, const kiln_cache_key *key, const char *label,
                           const void *data, size_t bytes, int64_t file_bytes);

// Begins a key with what every entry depends on: this very build of the compiler.
void kiln_cache_key_begin(kiln_digest *d);
// This very build of the compiler as text: "0.1.0 3f2a..."; in |arena|.
const char *kiln_compiler_text(kiln_arena *arena);

#endif

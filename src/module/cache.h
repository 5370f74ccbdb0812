// The cache on disk, a key-value store: results of compilation under a digest of its inputs.
//
// One SQLite database in the user's cache directory ($KILN_CACHE_DIR, else $XDG_CACHE_HOME/kiln,
// else ~/.cache/kiln), and next to it a file for each whole module. The directory must be the
// user's own and not writable by others. Entries are authenticated with a key that is stored there
// and readable by the owner only: an entry damaged by a killed process, a disk or another user does
// not verify, and counts as missing. No error here fails a compilation: without a writable
// directory there is no cache. Any number of processes and threads may use one directory, each
// thread with its own kiln_cache.
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
  KILN_CACHE_MODULE,   // description of a whole module (module_cache.h), which is a separate file
  KILN_CACHE_KINDS
} kiln_cache_kind;
typedef struct kiln_cache_key {
  unsigned char bytes[KILN_DIGEST_BYTES];
} kiln_cache_key;
typedef struct kiln_cache kiln_cache;

// Warns if the directory exists but is not used because of its owner or permissions.
void kiln_cache_warn(kiln_diag *diag);
// Opens the database in |directory| (NULL: the user's cache directory), creating both if needed.
// gives: NULL if there is no cache: the directory cannot be opened or written, or $KILN_CACHE_DIR
// is set and empty
kiln_cache *kiln_cache_open(const char *directory, int64_t limit_bytes);
// Commits all writes and evicts least recently used entries beyond the size limit; the limit for
// modules is KILN_CACHE_FILES_SHARE times as large.
void kiln_cache_close(kiln_cache *c); // NULL is allowed

// gives: the data, malloc'ed and NUL-terminated; NULL if missing. |c| may be NULL
void *kiln_cache_find(kiln_cache *c, kiln_cache_kind kind, const kiln_cache_key *key,
                      size_t *out_bytes);
// |label| describes the entry in listings. |c| may be NULL.
void kiln_cache_put(kiln_cache *c, kiln_cache_kind kind, const kiln_cache_key *key,
                    const char *label, const void *data, size_t bytes);
// The path of a module's file, which need not exist; false if it is too long.
bool kiln_cache_file(const kiln_cache *c, const kiln_cache_key *key,
                     char out[KILN_CACHE_PATH_ROOM]);
// kiln_cache_put of a module whose file, of |file_bytes|, has been written to that path.
void kiln_cache_put_module(kiln_cache *c, const kiln_cache_key *key, const char *label,
                           const void *data, size_t bytes, int64_t file_bytes);

// Begins a key with the compiler's build, on which every entry depends.
void kiln_cache_key_begin(kiln_digest *d);
// Version and build of the compiler: "0.1.0 3f2a..."; in |arena|.
const char *kiln_compiler_text(kiln_arena *arena);

#endif

// The cache as a table of SQLite's. A process reads without a lock that others could see and writes
// in one transaction when it closes; who finds the database locked for long goes without.
#include "driver/cache.h"
#include "kiln/compile.h"
#include "support/directory.h"

#include <dirent.h>
#include <link.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 1, WAIT_MS = 2000, PATH_ROOM = KILN_CACHE_PATH_ROOM, ID_BYTES = 64 };

static const char *const kinds[] = {[KILN_CACHE_OBJECT] = "object",
                                    [KILN_CACHE_SCHEDULE] = "schedule",
                                    [KILN_CACHE_MODULE] = "module"};
static const char file_suffix[] = ".kmod";

// Entries that were found, to be marked as used.
typedef struct used {
  sqlite3_int64 *rows; // malloc'ed
  int n, cap;
} used;

struct kiln_cache {
  char path[PATH_ROOM];
  sqlite3 *db; // NULL after damage that could not be mended
  int64_t limit_bytes;
  bool is_writing; // a transaction is open
  bool is_locked;  // by others, for too long
  used used;
};

// --- which compiler ---

typedef struct build_id {
  unsigned char bytes[ID_BYTES];
  size_t n;
} build_id;

// The note that the linker made from the contents of the object that holds this function.
static int find_build_id(struct dl_phdr_info *info, size_t size, void *argument) {
  build_id *id = argument;
  const uintptr_t here = (uintptr_t)&kiln_cache_key_begin;
  bool is_ours = false;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    is_ours |= h->p_type == PT_LOAD && here >= info->dlpi_addr + h->p_vaddr &&
               here < info->dlpi_addr + h->p_vaddr + h->p_memsz;
  }
  for (int i = 0; is_ours && i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    const char *at = (const char *)(info->dlpi_addr + h->p_vaddr), *end = at + h->p_memsz;
    while (h->p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      memcpy(&note, at, sizeof note);
      const char *name = at + sizeof note, *data = name + (note.n_namesz + 3) / 4 * 4;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
        id->n = note.n_descsz < ID_BYTES ? note.n_descsz : ID_BYTES;
        memcpy(id->bytes, data, id->n);
      }
      at = data + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return is_ours;
}

// gives: no bytes where the linker made no such note
static build_id own_build_id(void) {
  build_id id = {.n = 0};
  dl_iterate_phdr(find_build_id, &id);
  return id;
}

void kiln_cache_key_begin(kiln_digest *d) {
  const build_id id = own_build_id();
  kiln_digest_init(d);
  kiln_digest_add_int(d, FORMAT);
  kiln_digest_add_text(d, kiln_version());
  kiln_digest_add(d, id.bytes, id.n);
}

const char *kiln_compiler_text(kiln_arena *arena) {
  const build_id id = own_build_id();
  char hex[2 * ID_BYTES + 1] = "";
  for (size_t i = 0; i < id.n; i++) snprintf(hex + 2 * i, 3, "%02x", id.bytes[i]);
  return kiln_arena_printf(arena, "%s %s", kiln_version(), hex);
}

// --- where ---

// gives: false where there is none
static bool find_directory(const char *asked, char *out, size_t room) {
  if (!asked) return kiln_directory_find_cache(out, room);
  const int n = snprintf(out, room, "%s", asked);
  return n > 0 && (size_t)n < room;
}

static bool find_file(const char *directory, char *out) {
  char folder[PATH_ROOM - 32];
  if (!find_directory(directory, folder, sizeof folder) || !kiln_directory_make(folder))
    return false;
  snprintf(out, PATH_ROOM, "%s/kiln.sqlite", folder);
  return true;
}

// --- files ---

static int folder_length(const kiln_cache *c) { return (int)(strrchr(c->path, '/') - c->path); }

bool kiln_cache_file(const kiln_cache *c, const kiln_cache_key *key,
                     char out[KILN_CACHE_PATH_ROOM]) {
  char hex[2 * KILN_DIGEST_BYTES + 1];
  for (size_t i = 0; i < KILN_DIGEST_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", key->bytes[i]);
  const int n = snprintf(out, PATH_ROOM, "%.*s/%s%s", folder_length(c), c->path, hex, file_suffix);
  return n > 0 && n < PATH_ROOM;
}

static bool is_file_of_ours(const char *name) {
  const size_t n = strlen(name), hex = 2 * KILN_DIGEST_BYTES;
  return n == hex + strlen(file_suffix) && strspn(name, "0123456789abcdef") == hex &&
         strcmp(name + hex, file_suffix) == 0;
}

static void remove_files(const kiln_cache *c) {
  char folder[PATH_ROOM];
  snprintf(folder, sizeof folder, "%.*s", folder_length(c), c->path);
  DIR *files = opendir(folder);
  for (const struct dirent *e = files ? readdir(files) : NULL; e; e = readdir(files))
    if (is_file_of_ours(e->d_name)) (void)unlinkat(dirfd(files), e->d_name, 0);
  if (files) closedir(files);
}

// --- the database ---

static bool execute(kiln_cache *c, const char *sql) {
  return c->db && sqlite3_exec(c->db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static int read_format(kiln_cache *c) {
  sqlite3_stmt *s = NULL;
  int format = -1;
  if (sqlite3_prepare_v2(c->db, "PRAGMA user_version", -1, &s, NULL) == SQLITE_OK &&
      sqlite3_step(s) == SQLITE_ROW)
    format = sqlite3_column_int(s, 0);
  sqlite3_finalize(s);
  return format;
}

// A new database gets its table; two processes may both try.
static bool prepare(kiln_cache *c) {
  sqlite3_busy_timeout(c->db, WAIT_MS);
  int format = read_format(c);
  if (format == 0 &&
      execute(c, "PRAGMA auto_vacuum = FULL; PRAGMA synchronous = OFF; BEGIN IMMEDIATE;"
                 "CREATE TABLE IF NOT EXISTS entries (kind INTEGER, key BLOB, label TEXT,"
                 "  used INTEGER, bytes INTEGER, digest BLOB, data BLOB, UNIQUE (kind, key));"
                 "CREATE INDEX IF NOT EXISTS by_use ON entries (used);"
                 "PRAGMA user_version = 1; COMMIT"))
    format = FORMAT;
  return format == FORMAT && execute(c, "PRAGMA synchronous = OFF");
}

static bool open_database(kiln_cache *c) {
  if (sqlite3_open(c->path, &c->db) == SQLITE_OK && prepare(c)) return true;
  sqlite3_close(c->db);
  c->db = NULL;
  return false;
}

// What is no database, or of another format, gives way to a new one.
static bool replace_database(kiln_cache *c) {
  char journal[PATH_ROOM + 16];
  sqlite3_close(c->db);
  c->db = NULL;
  c->is_writing = false;
  c->used.n = 0;
  snprintf(journal, sizeof journal, "%s-journal", c->path);
  unlink(journal);
  remove_files(c);
  return unlink(c->path) == 0 && open_database(c);
}

static bool is_damage(int code) {
  return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

static bool is_foreign(kiln_cache *c) {
  sqlite3 *db = NULL;
  bool foreign = false;
  if (sqlite3_open_v2(c->path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK) {
    kiln_cache probe = {.db = db};
    const int format = read_format(&probe);
    foreign = format > 0 ? format != FORMAT : is_damage(sqlite3_errcode(db));
  }
  sqlite3_close(db);
  return foreign;
}

kiln_cache *kiln_cache_open(const char *directory, int64_t limit_bytes) {
  kiln_cache *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->limit_bytes = limit_bytes;
  if (own_build_id().n > 0 && find_file(directory, c->path) &&
      (open_database(c) || (is_foreign(c) && replace_database(c))))
    return c;
  free(c);
  return NULL;
}

// --- entries ---

// Of everything in an entry: a row that was torn is not taken for another's.
static void digest_entry(kiln_cache_kind kind, const kiln_cache_key *key, const void *data,
                         size_t bytes, unsigned char out[KILN_DIGEST_BYTES]) {
  kiln_digest d;
  kiln_digest_init(&d);
  kiln_digest_add_int(&d, kind);
  kiln_digest_add(&d, key->bytes, sizeof key->bytes);
  kiln_digest_add(&d, data, bytes);
  kiln_digest_end(&d, out);
}

static void mark_used(kiln_cache *c, sqlite3_int64 row) {
  used *u = &c->used;
  if (u->n == u->cap) {
    const int cap = u->cap ? 2 * u->cap : 64;
    sqlite3_int64 *more = realloc(u->rows, (size_t)cap * sizeof *more);
    if (!more) return;
    u->rows = more;
    u->cap = cap;
  }
  u->rows[u->n++] = row;
}

static sqlite3_stmt *select_entry(kiln_cache *c, kiln_cache_kind kind, const kiln_cache_key *key) {
  sqlite3_stmt *s = NULL;
  static const char sql[] = "SELECT rowid, used < (SELECT max(used) FROM entries), digest, data "
                            "FROM entries WHERE kind = ? AND key = ?";
  if (sqlite3_prepare_v2(c->db, sql, -1, &s, NULL) != SQLITE_OK) return NULL;
  sqlite3_bind_int(s, 1, (int)kind);
  sqlite3_bind_blob(s, 2, key->bytes, sizeof key->bytes, SQLITE_STATIC);
  return s;
}

static void *take_entry(kiln_cache *c, kiln_cache_kind kind, const kiln_cache_key *key,
                        sqlite3_stmt *s, size_t *out_bytes) {
  unsigned char digest[KILN_DIGEST_BYTES];
  const void *data = sqlite3_column_blob(s, 3);
  const size_t n = (size_t)sqlite3_column_bytes(s, 3);
  const void *kept = sqlite3_column_blob(s, 2);
  const bool is_whole_digest = kept && sqlite3_column_bytes(s, 2) == (int)sizeof digest;
  digest_entry(kind, key, data, n, digest);
  if (!is_whole_digest || memcmp(digest, kept, sizeof digest) != 0) return NULL;
  char *copy = malloc(n + 1);
  if (!copy) return NULL;
  if (n > 0) memcpy(copy, data, n);
  copy[n] = 0;
  *out_bytes = n;
  if (sqlite3_column_int(s, 1)) mark_used(c, sqlite3_column_int64(s, 0));
  return copy;
}

void *kiln_cache_find(kiln_cache *c, kiln_cache_kind kind, const kiln_cache_key *key,
                      size_t *out_bytes) {
  *out_bytes = 0;
  if (!c || !c->db) return NULL;
  sqlite3_stmt *s = select_entry(c, kind, key);
  int code = s ? sqlite3_step(s) : sqlite3_errcode(c->db);
  void *data = code == SQLITE_ROW ? take_entry(c, kind, key, s, out_bytes) : NULL;
  sqlite3_finalize(s);
  if (is_damage(code)) (void)replace_database(c);
  return data;
}

static int64_t limit_of(const kiln_cache *c, kiln_cache_kind kind) {
  return c->limit_bytes * (kind == KILN_CACHE_MODULE ? KILN_CACHE_FILES_SHARE : 1);
}

// One transaction holds all that a process puts; its entries are the most recently used.
static bool begin_writing(kiln_cache *c) {
  if (!c->is_writing && !c->is_locked) {
    c->is_writing = execute(c, "BEGIN IMMEDIATE");
    c->is_locked = !c->is_writing;
  }
  return c->is_writing;
}

// |room_bytes|: what the entry takes on the disk.
static void put(kiln_cache *c, kiln_cache_kind kind, const kiln_cache_key *key, const char *label,
                const void *data, size_t bytes, int64_t room_bytes) {
  static const char sql[] =
      "INSERT OR REPLACE INTO entries (kind, key, label, used, bytes, digest, data) VALUES "
      "(?1, ?2, ?3, (SELECT coalesce(max(used), 0) + ?7 FROM entries), ?4, ?5, ?6)";
  unsigned char digest[KILN_DIGEST_BYTES];
  sqlite3_stmt *s = NULL;
  if (!c || !c->db || room_bytes > limit_of(c, kind)) return;
  const bool is_first = !c->is_writing;
  if (!begin_writing(c)) return;
  digest_entry(kind, key, data, bytes, digest);
  if (sqlite3_prepare_v2(c->db, sql, -1, &s, NULL) != SQLITE_OK) return;
  sqlite3_bind_int(s, 1, (int)kind);
  sqlite3_bind_blob(s, 2, key->bytes, sizeof key->bytes, SQLITE_STATIC);
  sqlite3_bind_text(s, 3, label, -1, SQLITE_STATIC);
  sqlite3_bind_int64(s, 4, room_bytes);
  sqlite3_bind_blob(s, 5, digest, sizeof digest, SQLITE_STATIC);
  sqlite3_bind_blob64(s, 6, data, bytes, SQLITE_STATIC);
  sqlite3_bind_int(s, 7, is_first);
  const int code = sqlite3_step(s);
  sqlite3_finalize(s);
  if (is_damage(code)) (void)replace_database(c);
}

void kiln_cache_put(kiln_cache *c, kiln_cache_kind kind, const kiln_cache_key *key,
                    const char *label, const void *data, size_t bytes) {
  put(c, kind, key, label, data, bytes, (int64_t)bytes);
}

void kiln_cache_put_module(kiln_cache *c, const kiln_cache_key *key, const char *label,
                           const void *data, size_t bytes, int64_t file_bytes) {
  put(c, KILN_CACHE_MODULE, key, label, data, bytes, (int64_t)bytes + file_bytes);
}

// --- closing ---

static void touch_used(kiln_cache *c) {
  static const char sql[] = "UPDATE entries SET used = (SELECT max(used) FROM entries) "
                            "WHERE rowid = ?";
  sqlite3_stmt *s = NULL;
  if (c->used.n == 0 || !begin_writing(c)) return;
  if (sqlite3_prepare_v2(c->db, sql, -1, &s, NULL) != SQLITE_OK) return;
  for (int i = 0; i < c->used.n; i++) {
    sqlite3_bind_int64(s, 1, c->used.rows[i]);
    sqlite3_step(s);
    sqlite3_reset(s);
  }
  sqlite3_finalize(s);
}

static void remove_file(const kiln_cache *c, sqlite3_stmt *s) {
  char path[PATH_ROOM];
  kiln_cache_key key;
  if (sqlite3_column_bytes(s, 0) != (int)sizeof key.bytes) return;
  memcpy(key.bytes, sqlite3_column_blob(s, 0), sizeof key.bytes);
  if (kiln_cache_file(c, &key, path)) unlink(path);
}

// Modules have a limit of their own, and files.
static void evict(const kiln_cache *c, bool are_modules) {
  static const char sql[] =
      "DELETE FROM entries WHERE rowid IN (SELECT rowid FROM (SELECT rowid, sum(bytes) OVER "
      "(ORDER BY used DESC, rowid DESC) AS total FROM entries WHERE (kind = ?1) = ?2) "
      "WHERE total > ?3) RETURNING key";
  sqlite3_stmt *s = NULL;
  if (sqlite3_prepare_v2(c->db, sql, -1, &s, NULL) != SQLITE_OK) return;
  sqlite3_bind_int(s, 1, KILN_CACHE_MODULE);
  sqlite3_bind_int(s, 2, are_modules);
  sqlite3_bind_int64(s, 3, limit_of(c, are_modules ? KILN_CACHE_MODULE : KILN_CACHE_OBJECT));
  while (sqlite3_step(s) == SQLITE_ROW)
    if (are_modules) remove_file(c, s);
  sqlite3_finalize(s);
}

void kiln_cache_close(kiln_cache *c) {
  if (!c) return;
  if (c->db) touch_used(c);
  if (c->is_writing) {
    evict(c, false);
    evict(c, true);
    execute(c, "COMMIT");
  }
  sqlite3_close(c->db);
  free(c->used.rows);
  free(c);
}

// --- for people ---

typedef struct listing {
  void (*on_entry)(void *user, const kiln_cache_entry *entry);
  void *user;
} listing;

static kiln_status unusable(kiln_diag *diag) {
  char folder[PATH_ROOM];
  const bool known = find_directory(NULL, folder, sizeof folder);
  return kiln_diag_fail(diag, KILN_BAD_INPUT, known ? folder : "cache",
                        "cache: must be a directory that can be written; $KILN_CACHE_DIR names "
                        "another");
}

kiln_status kiln_cache_list(kiln_diag *diag,
                            void (*on_entry)(void *user, const kiln_cache_entry *entry),
                            void *user) {
  sqlite3_stmt *s = NULL;
  KILN_TRY(kiln_argument_check(diag, __func__, "on_entry", on_entry));
  kiln_cache *c = kiln_cache_open(NULL, KILN_CACHE_LIMIT_BYTES);
  if (!c) return unusable(diag);
  if (sqlite3_prepare_v2(c->db,
                         "SELECT kind, label, bytes FROM entries ORDER BY used DESC, kind, label",
                         -1, &s, NULL) == SQLITE_OK)
    while (sqlite3_step(s) == SQLITE_ROW) {
      const int kind = sqlite3_column_int(s, 0);
      const kiln_cache_entry entry = {.kind =
                                          kind >= 0 && kind < KILN_CACHE_KINDS ? kinds[kind] : "?",
                                      .label = (const char *)sqlite3_column_text(s, 1),
                                      .bytes = (uint64_t)sqlite3_column_int64(s, 2)};
      on_entry(user, &entry);
    }
  sqlite3_finalize(s);
  kiln_cache_close(c);
  return KILN_OK;
}

kiln_status kiln_cache_clear(kiln_diag *diag) {
  kiln_cache *c = kiln_cache_open(NULL, KILN_CACHE_LIMIT_BYTES);
  const bool cleared = c && execute(c, "DELETE FROM entries");
  if (cleared) remove_files(c);
  kiln_cache_close(c);
  return cleared ? KILN_OK : unusable(diag);
}

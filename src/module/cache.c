// The cache as an SQLite table. Reads take no lasting lock; writes go in one transaction at close.
// If the database stays locked for too long, the process continues without the cache.
#include "module/cache.h"
#include "kiln/compile.h"
#include "support/directory.h"
#include "support/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FORMAT = 2, WAIT_MS = 2000, PATH_ROOM = KILN_CACHE_PATH_ROOM, ID_BYTES = 64 };

static const char *const kinds[] = {[KILN_CACHE_OBJECT] = "object",
                                    [KILN_CACHE_SCHEDULE] = "schedule",
                                    [KILN_CACHE_MODULE] = "module"};
static const char file_suffix[] = ".kmod", key_name[] = "key", database_name[] = "kiln.sqlite";
enum { FOLDER_ROOM = KILN_CACHE_PATH_ROOM - 96 };

// Rows that were read, for updating their time of last use.
typedef struct used {
  sqlite3_int64 *rows; // malloc'ed
  int n, cap;
} used;

struct kiln_cache {
  char path[PATH_ROOM];
  sqlite3 *db;                             // NULL after damage that could not be repaired
  unsigned char owner[KILN_MAC_KEY_BYTES]; // secret key for authenticating the owner's entries
  int64_t limit_bytes;
  bool is_writing; // a transaction is open
  bool is_locked;  // by another process, for longer than the timeout
  used used;
};

// --- the compiler's build id ---

typedef struct build_id {
  unsigned char bytes[ID_BYTES];
  size_t n;
} build_id;

// The build id note that the linker computed from the contents of the shared object that holds this
// function.
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

// gives: an empty id if the linker made no note
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

// --- the directory ---

// gives: false if there is none
static bool find_directory(const char *asked, char *out, size_t room) {
  if (!asked) return kiln_directory_find_cache(out, room);
  const int n = snprintf(out, room, "%s", asked);
  return n > 0 && (size_t)n < room;
}

// Opens the directory, which must be the user's own; makes it if it does not exist.
static bool open_folder(const char *directory, char folder[FOLDER_ROOM], kiln_diag *diag) {
  char why[KILN_DIRECTORY_WHY];
  folder[0] = 0;
  if (!find_directory(directory, folder, FOLDER_ROOM)) return false;
  if (!kiln_directory_make(folder)) return false;
  if (kiln_directory_is_own(folder, why)) return true;
  (void)kiln_diag_fail(
      diag, KILN_BAD_INPUT, folder,
      "cache: must be a folder of this user's, to which no other may write, got %s", why);
  return false;
}

void kiln_cache_warn(kiln_diag *diag) {
  char folder[FOLDER_ROOM], why[KILN_DIRECTORY_WHY];
  if (find_directory(NULL, folder, sizeof folder) && access(folder, F_OK) == 0 &&
      !kiln_directory_is_own(folder, why))
    kiln_diag_warn(
        diag, folder,
        "cache: must be a folder of this user's, to which no other may write, got %s; it is "
        "not used",
        why);
}

// --- the secret key ---

// gives: false if there is no key file, or others may read it
static bool read_key(const char *path, unsigned char out[KILN_MAC_KEY_BYTES]) {
  struct stat info;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const bool right = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                     info.st_uid == geteuid() && (info.st_mode & 0077) == 0 && info.st_nlink == 1 &&
                     info.st_size == KILN_MAC_KEY_BYTES &&
                     read(fd, out, KILN_MAC_KEY_BYTES) == KILN_MAC_KEY_BYTES;
  if (fd >= 0) close(fd);
  return right;
}

// If several processes create one, a single one succeeds.
static bool make_key(const char *path) {
  unsigned char key[KILN_MAC_KEY_BYTES];
  kiln_temporary file;
  const bool made = kiln_temporary_open(&file, path, 0600) &&
                    getrandom(key, sizeof key, 0) == (ssize_t)sizeof key &&
                    write(file.fd, key, sizeof key) == (ssize_t)sizeof key &&
                    (kiln_temporary_take_new_name(&file) || errno == EEXIST);
  kiln_temporary_discard(&file);
  return made;
}

// A key file that others may read is replaced: entries authenticated with it become invisible.
static bool find_key(const char *folder, unsigned char out[KILN_MAC_KEY_BYTES]) {
  char path[PATH_ROOM];
  snprintf(path, sizeof path, "%s/%s", folder, key_name);
  if (read_key(path, out)) return true;
  if (access(path, F_OK) == 0 && !read_key(path, out)) (void)unlink(path);
  return make_key(path) && read_key(path, out);
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

static bool is_module(const char *name) {
  const size_t n = strlen(name), hex = 2 * KILN_DIGEST_BYTES;
  return n == hex + strlen(file_suffix) && strspn(name, "0123456789abcdef") == hex &&
         strcmp(name + hex, file_suffix) == 0;
}

// Names of temporary files before they had locks: a module's or a device's name and a process id.
static bool is_old_temporary(const char *name) {
  const size_t hex = 2 * KILN_DIGEST_BYTES + strlen(file_suffix);
  const bool of_module = strspn(name, "0123456789abcdef") == 2 * KILN_DIGEST_BYTES &&
                         strncmp(name + 2 * KILN_DIGEST_BYTES, ".kmod.", 6) == 0 &&
                         strstr(name + hex, ".tmp");
  const char *device = strncmp(name, "device-", 7) == 0 ? strstr(name, ".json.") : NULL;
  return of_module ||
         (device && device[6] && strspn(device + 6, "0123456789") == strlen(device + 6));
}

// The kind of a file in the folder; NULL: not made by Kiln.
static const char *kind_of(const char *name) {
  const size_t n = strlen(name);
  if (is_module(name)) return kinds[KILN_CACHE_MODULE];
  if (kiln_temporary_is_name(name) || is_old_temporary(name)) return "temporary";
  if (strcmp(name, key_name) == 0) return "key";
  if (strncmp(name, database_name, strlen(database_name)) == 0) return "database";
  if (strncmp(name, "tuned.sqlite", 12) == 0) return "tuned";
  if (strncmp(name, "device-", 7) == 0 && n > 5 && strcmp(name + n - 5, ".json") == 0)
    return "device";
  return NULL;
}

static void remove_files(const char *folder, bool (*is_meant)(const char *name)) {
  DIR *files = opendir(folder);
  for (const struct dirent *e = files ? readdir(files) : NULL; e; e = readdir(files))
    if (is_meant(e->d_name)) (void)unlinkat(dirfd(files), e->d_name, 0);
  if (files) closedir(files);
}

static bool is_ours(const char *name) { return kind_of(name) != NULL; }

static void folder_of(const kiln_cache *c, char out[PATH_ROOM]) {
  snprintf(out, PATH_ROOM, "%.*s", folder_length(c), c->path);
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

// Creates the table of a new database; two processes may try at the same time.
static bool prepare(kiln_cache *c) {
  sqlite3_busy_timeout(c->db, WAIT_MS);
  int format = read_format(c);
  if (format == 0 &&
      execute(c, "PRAGMA auto_vacuum = FULL; PRAGMA synchronous = OFF; BEGIN IMMEDIATE;"
                 "CREATE TABLE IF NOT EXISTS entries (kind INTEGER, key BLOB, label TEXT,"
                 "  used INTEGER, bytes INTEGER, digest BLOB, data BLOB, UNIQUE (kind, key));"
                 "CREATE INDEX IF NOT EXISTS by_use ON entries (used);"
                 "PRAGMA user_version = 2; COMMIT"))
    format = FORMAT;
  return format == FORMAT && execute(c, "PRAGMA synchronous = OFF");
}

static bool open_database(kiln_cache *c) {
  if (sqlite3_open(c->path, &c->db) == SQLITE_OK && prepare(c)) return true;
  sqlite3_close(c->db);
  c->db = NULL;
  return false;
}

// Replaces a file that is not a database, or of another format, by a new database.
static bool replace_database(kiln_cache *c) {
  char journal[PATH_ROOM + 16], folder[PATH_ROOM];
  sqlite3_close(c->db);
  c->db = NULL;
  c->is_writing = false;
  c->used.n = 0;
  snprintf(journal, sizeof journal, "%s-journal", c->path);
  unlink(journal);
  folder_of(c, folder);
  remove_files(folder, is_module);
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
  char folder[FOLDER_ROOM];
  if (!c) return NULL;
  c->limit_bytes = limit_bytes;
  const bool has_place = own_build_id().n > 0 && open_folder(directory, folder, NULL);
  if (has_place) snprintf(c->path, sizeof c->path, "%s/%s", folder, database_name);
  if (has_place && find_key(folder, c->owner) &&
      (open_database(c) || (is_foreign(c) && replace_database(c))))
    return c;
  free(c);
  return NULL;
}

// --- entries ---

// Authenticates all fields of an entry with the owner's key: torn or forged rows do not verify.
static void digest_entry(const kiln_cache *c, kiln_cache_kind kind, const kiln_cache_key *key,
                         const void *data, size_t bytes, unsigned char out[KILN_DIGEST_BYTES]) {
  kiln_mac m;
  kiln_mac_init(&m, c->owner);
  kiln_digest_add_int(&m.inner, kind);
  kiln_digest_add(&m.inner, key->bytes, sizeof key->bytes);
  kiln_digest_add(&m.inner, data, bytes);
  kiln_mac_end(&m, out);
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
  digest_entry(c, kind, key, data, n, digest);
  if (!is_whole_digest || !kiln_mac_is_same(digest, kept)) return NULL;
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

// All writes of a process are one transaction; its entries are the most recently used.
static bool begin_writing(kiln_cache *c) {
  if (!c->is_writing && !c->is_locked) {
    c->is_writing = execute(c, "BEGIN IMMEDIATE");
    c->is_locked = !c->is_writing;
  }
  return c->is_writing;
}

// |room_bytes| is the entry's size on disk.
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
  digest_entry(c, kind, key, data, bytes, digest);
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

static int64_t pragma_of(const kiln_cache *c, const char *sql) {
  sqlite3_stmt *s = NULL;
  int64_t value = INT64_MAX;
  if (sqlite3_prepare_v2(c->db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
    value = sqlite3_column_int64(s, 0);
  sqlite3_finalize(s);
  return value;
}

// Whether the file, which has all entries but modules, is within their limit. Their sum would take
// a scan of the file.
static bool is_small(const kiln_cache *c) {
  const int64_t pages = pragma_of(c, "PRAGMA page_count"), bytes = pragma_of(c, "PRAGMA page_size");
  return pages <= limit_of(c, KILN_CACHE_OBJECT) / bytes;
}

// Modules have a size limit of their own, and are files to be removed.
static void evict(const kiln_cache *c, bool are_modules) {
  static const char sql[] =
      "DELETE FROM entries WHERE rowid IN (SELECT rowid FROM (SELECT rowid, sum(bytes) OVER "
      "(ORDER BY used DESC, rowid DESC) AS total FROM entries WHERE kind BETWEEN ?1 AND ?2) "
      "WHERE total > ?3) RETURNING key";
  sqlite3_stmt *s = NULL;
  if (!are_modules && is_small(c)) return;
  if (sqlite3_prepare_v2(c->db, sql, -1, &s, NULL) != SQLITE_OK) return;
  sqlite3_bind_int(s, 1, are_modules ? KILN_CACHE_MODULE : 0);
  sqlite3_bind_int(s, 2, are_modules ? KILN_CACHE_MODULE : KILN_CACHE_MODULE - 1);
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

// --- listing and clearing ---

typedef struct listing {
  void (*on_entry)(void *user, const kiln_cache_entry *entry);
  void *user;
} listing;

static kiln_status find_own_folder(char folder[FOLDER_ROOM], kiln_diag *diag) {
  const size_t told = kiln_diag_count(diag);
  if (open_folder(NULL, folder, diag)) return KILN_OK;
  if (kiln_diag_count(diag) > told) return KILN_BAD_INPUT;
  return kiln_diag_fail(diag, KILN_BAD_INPUT, folder[0] ? folder : "cache",
                        "cache: must be a directory that can be written; $KILN_CACHE_DIR names "
                        "another");
}

static void list_entries(kiln_cache *c, const listing *l) {
  sqlite3_stmt *s = NULL;
  if (sqlite3_prepare_v2(c->db,
                         "SELECT kind, label, bytes FROM entries ORDER BY used DESC, kind, label",
                         -1, &s, NULL) == SQLITE_OK)
    while (sqlite3_step(s) == SQLITE_ROW) {
      const int kind = sqlite3_column_int(s, 0);
      const kiln_cache_entry entry = {.kind =
                                          kind >= 0 && kind < KILN_CACHE_KINDS ? kinds[kind] : "?",
                                      .label = (const char *)sqlite3_column_text(s, 1),
                                      .bytes = (uint64_t)sqlite3_column_int64(s, 2)};
      l->on_entry(l->user, &entry);
    }
  sqlite3_finalize(s);
}

// Whether an entry refers to the file.
static bool has_entry(kiln_cache *c, const char *name) {
  sqlite3_stmt *s = NULL;
  char hex[2 * KILN_DIGEST_BYTES + 1];
  bool has = false;
  if (!c) return false;
  if (strcmp(name, database_name) == 0) return true;
  if (!is_module(name)) return false;
  snprintf(hex, sizeof hex, "%.*s", 2 * KILN_DIGEST_BYTES, name);
  if (sqlite3_prepare_v2(c->db, "SELECT 1 FROM entries WHERE kind = ? AND lower(hex(key)) = ?", -1,
                         &s, NULL) == SQLITE_OK) {
    sqlite3_bind_int(s, 1, KILN_CACHE_MODULE);
    sqlite3_bind_text(s, 2, hex, -1, SQLITE_STATIC);
    has = sqlite3_step(s) == SQLITE_ROW;
  }
  sqlite3_finalize(s);
  return has;
}

static void list_files(kiln_cache *c, const char *folder, const listing *l) {
  DIR *files = opendir(folder);
  for (const struct dirent *e = files ? readdir(files) : NULL; e; e = readdir(files)) {
    struct stat info;
    const char *kind = kind_of(e->d_name);
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || has_entry(c, e->d_name))
      continue;
    if (fstatat(dirfd(files), e->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const kiln_cache_entry entry = {kind ? kind : "other", e->d_name, (uint64_t)info.st_size};
    l->on_entry(l->user, &entry);
  }
  if (files) closedir(files);
}

// Listing does not create a cache.
kiln_status kiln_cache_list(kiln_diag *diag,
                            void (*on_entry)(void *user, const kiln_cache_entry *entry),
                            void *user) {
  char folder[FOLDER_ROOM], path[PATH_ROOM];
  const listing l = {on_entry, user};
  KILN_TRY(kiln_argument_check(diag, __func__, "on_entry", on_entry));
  KILN_TRY(find_own_folder(folder, diag));
  snprintf(path, sizeof path, "%s/%s", folder, database_name);
  kiln_cache *c = access(path, F_OK) == 0 ? kiln_cache_open(NULL, KILN_CACHE_LIMIT_BYTES) : NULL;
  if (c) list_entries(c, &l);
  list_files(c, folder, &l);
  kiln_cache_close(c);
  return KILN_OK;
}

kiln_status kiln_cache_clear(kiln_diag *diag) {
  char folder[FOLDER_ROOM];
  KILN_TRY(find_own_folder(folder, diag));
  kiln_cache *c = kiln_cache_open(NULL, KILN_CACHE_LIMIT_BYTES);
  const bool cleared =
      c && execute(c, "DELETE FROM entries"); // also for processes that have it open
  kiln_cache_close(c);
  if (cleared) remove_files(folder, is_ours);
  return cleared ? KILN_OK
                 : kiln_diag_fail(diag, KILN_BAD_INPUT, folder,
                                  "cache: must be a directory that can be written");
}

int32_t kiln_cache_folder(char *out, size_t room) {
  if (out && room) *out = 0;
  return out && room && find_directory(NULL, out, room);
}

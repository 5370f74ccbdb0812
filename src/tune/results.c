// The tuning database in SQLite. Every measurement is a transaction of its own, so that none is
// lost.
#include "tune/results.h"

#include "support/directory.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, APPLICATION = 0x4b694c6e, WAIT_MS = 30000, PATH_ROOM = 4096 };

struct kiln_results {
  char path[PATH_ROOM];
  sqlite3 *db;
};

// --- the file ---

static kiln_status wrong(const kiln_results *r, kiln_diag *diag, const char *got) {
  return KILN_FAIL(diag, KILN_BAD_INPUT, r->path,
                   "tuned results: must be a database of version %d that can be written, got: %s",
                   FORMAT, got);
}

static bool execute(kiln_results *r, const char *sql) {
  return sqlite3_exec(r->db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

// gives: false if the database cannot be read
static bool read_number(kiln_results *r, const char *sql, int *out) {
  sqlite3_stmt *s = NULL;
  const bool found =
      sqlite3_prepare_v2(r->db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW;
  *out = found ? sqlite3_column_int(s, 0) : 0;
  sqlite3_finalize(s);
  return found;
}

// Creates the table of a new database; two processes may try at the same time.
static bool make_table(kiln_results *r) {
  return execute(r, "BEGIN IMMEDIATE;"
                    "CREATE TABLE IF NOT EXISTS results ("
                    "  program BLOB NOT NULL, device TEXT NOT NULL, driver TEXT NOT NULL,"
                    "  compiler TEXT NOT NULL, script TEXT NOT NULL, label TEXT NOT NULL,"
                    "  is_first INTEGER NOT NULL, verdict INTEGER NOT NULL, us REAL NOT NULL,"
                    "  predicted_us REAL NOT NULL,"
                    "  UNIQUE (program, device, driver, compiler, script));"
                    "PRAGMA application_id = 1265192046; PRAGMA user_version = 1; COMMIT");
}

static kiln_status prepare(kiln_results *r, kiln_diag *diag) {
  int format = 0, application = 0, tables = 0;
  char got[64];
  sqlite3_busy_timeout(r->db, WAIT_MS);
  // read in one transaction: another process may be creating the table
  if (!execute(r, "BEGIN") || !read_number(r, "PRAGMA user_version", &format) ||
      !read_number(r, "PRAGMA application_id", &application) ||
      !read_number(r, "SELECT count(*) FROM sqlite_master", &tables) || !execute(r, "COMMIT"))
    return wrong(r, diag, sqlite3_errmsg(r->db));
  if (format == 0 && application == 0 && tables == 0)
    return make_table(r) ? KILN_OK : wrong(r, diag, sqlite3_errmsg(r->db));
  if (application != APPLICATION) return wrong(r, diag, "another program's database");
  snprintf(got, sizeof got, "one of version %d", format);
  (void)execute(r, "PRAGMA synchronous = NORMAL");
  return format == FORMAT ? KILN_OK : wrong(r, diag, got);
}

static bool find_path(const char *asked, char *out) {
  char folder[PATH_ROOM - 32];
  if (asked) return snprintf(out, PATH_ROOM, "%s", asked) < PATH_ROOM;
  if (!kiln_directory_find_cache(folder, sizeof folder) || !kiln_directory_make(folder))
    return false;
  snprintf(out, PATH_ROOM, "%s/tuned.sqlite", folder);
  return true;
}

kiln_status kiln_results_open(const char *path, kiln_diag *diag, kiln_results **out) {
  kiln_results *r = calloc(1, sizeof *r);
  *out = NULL;
  if (!r) return KILN_FAIL(diag, KILN_NO_MEMORY, "tuned results", "no memory left");
  if (!find_path(path, r->path)) {
    free(r);
    if (!path) return KILN_OK;
    return KILN_FAIL(diag, KILN_BAD_INPUT, "tuned results", "path: must be shorter than %d",
                     PATH_ROOM);
  }
  kiln_status st = sqlite3_open(r->path, &r->db) == SQLITE_OK
                       ? prepare(r, diag)
                       : wrong(r, diag, r->db ? sqlite3_errmsg(r->db) : "no memory");
  if (st == KILN_OK) *out = r;
  else kiln_results_close(r);
  return st;
}

void kiln_results_close(kiln_results *r) {
  if (!r) return;
  sqlite3_close(r->db);
  free(r);
}

// --- rows ---

static void bind_text(sqlite3_stmt *s, int at, const char *text) {
  sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
}

// The key's four columns, numbered as in the table; a NULL driver stays NULL.
static void bind_key(sqlite3_stmt *s, const kiln_results_key *key) {
  sqlite3_bind_blob(s, 1, key->program, sizeof key->program, SQLITE_STATIC);
  bind_text(s, 2, key->device);
  if (key->driver) bind_text(s, 3, key->driver);
  bind_text(s, 4, key->compiler);
}

bool kiln_results_find(kiln_results *r, const kiln_results_key *key, kiln_result *io) {
  static const char sql[] =
      "SELECT verdict, us, predicted_us FROM results WHERE program = ?1 AND device = ?2 "
      "AND driver = ?3 AND compiler = ?4 AND script = ?5";
  sqlite3_stmt *s = NULL;
  if (!r || sqlite3_prepare_v2(r->db, sql, -1, &s, NULL) != SQLITE_OK) return false;
  bind_key(s, key);
  bind_text(s, 5, io->script);
  const bool found = sqlite3_step(s) == SQLITE_ROW && sqlite3_column_int(s, 0) >= 0 &&
                     sqlite3_column_int(s, 0) < KILN_N_VERDICTS;
  if (found) {
    io->verdict = (kiln_verdict)sqlite3_column_int(s, 0);
    io->us = sqlite3_column_double(s, 1);
    io->predicted_us = sqlite3_column_double(s, 2);
  }
  sqlite3_finalize(s);
  return found;
}

kiln_status kiln_results_put(kiln_results *r, const kiln_results_key *key, const char *label,
                             const kiln_result *result, kiln_diag *diag) {
  static const char sql[] =
      "INSERT OR REPLACE INTO results (program, device, driver, compiler, script, label, is_first,"
      " verdict, us, predicted_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
  sqlite3_stmt *s = NULL;
  if (!r) return KILN_OK;
  if (sqlite3_prepare_v2(r->db, sql, -1, &s, NULL) != SQLITE_OK)
    return wrong(r, diag, sqlite3_errmsg(r->db));
  bind_key(s, key);
  bind_text(s, 5, result->script);
  bind_text(s, 6, label);
  sqlite3_bind_int(s, 7, result->is_first);
  sqlite3_bind_int(s, 8, (int)result->verdict);
  sqlite3_bind_double(s, 9, result->us);
  sqlite3_bind_double(s, 10, result->predicted_us);
  const bool kept = sqlite3_step(s) == SQLITE_DONE;
  const kiln_status st = kept ? KILN_OK : wrong(r, diag, sqlite3_errmsg(r->db));
  sqlite3_finalize(s);
  return st;
}

const char *kiln_results_best(kiln_ctx *cx, kiln_results *r, const kiln_results_key *key) {
  static const char sql[] =
      "SELECT script FROM results WHERE program = ?1 AND device = ?2 AND compiler = ?4 AND driver ="
      " coalesce(?3, (SELECT driver FROM results WHERE program = ?1 AND device = ?2 "
      "AND compiler = ?4 ORDER BY rowid DESC LIMIT 1)) AND verdict = 0 "
      "ORDER BY us * iif(is_first, ?5, 1), rowid LIMIT 1";
  sqlite3_stmt *s = NULL;
  const char *script = NULL;
  if (!r || sqlite3_prepare_v2(r->db, sql, -1, &s, NULL) != SQLITE_OK) return NULL;
  bind_key(s, key);
  sqlite3_bind_double(s, 5, KILN_RESULTS_GAIN);
  if (sqlite3_step(s) == SQLITE_ROW)
    script = kiln_arena_strdup(&cx->perm, (const char *)sqlite3_column_text(s, 0));
  sqlite3_finalize(s);
  return script;
}

double kiln_results_first_us(kiln_results *r, const kiln_results_key *key) {
  static const char sql[] = "SELECT us FROM results WHERE program = ?1 AND device = ?2 AND driver ="
                            " ?3 AND compiler = ?4 AND is_first = 1 AND verdict = 0";
  sqlite3_stmt *s = NULL;
  if (!r || sqlite3_prepare_v2(r->db, sql, -1, &s, NULL) != SQLITE_OK) return 0;
  bind_key(s, key);
  const double us = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_double(s, 0) : 0;
  sqlite3_finalize(s);
  return us;
}

int64_t kiln_results_stamp(kiln_results *r, const kiln_results_key *key) {
  static const char sql[] = "SELECT max(rowid) FROM results WHERE device = ?2 AND driver = ?3 AND "
                            "compiler = ?4 AND is_first = 1 AND verdict = 0 AND ?1 IS NOT NULL";
  sqlite3_stmt *s = NULL;
  if (!r || sqlite3_prepare_v2(r->db, sql, -1, &s, NULL) != SQLITE_OK) return 0;
  bind_key(s, key);
  const int64_t stamp = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
  sqlite3_finalize(s);
  return stamp;
}

const char *kiln_results_devices(kiln_ctx *cx, kiln_results *r) {
  sqlite3_stmt *s = NULL;
  kiln_text all;
  kiln_text_init(&all, &cx->perm);
  if (r && sqlite3_prepare_v2(r->db, "SELECT DISTINCT device FROM results ORDER BY device", -1, &s,
                              NULL) == SQLITE_OK)
    while (sqlite3_step(s) == SQLITE_ROW)
      kiln_text_printf(&all, "%s%s", all.n ? ", " : "", (const char *)sqlite3_column_text(s, 0));
  sqlite3_finalize(s);
  return all.n ? all.data : "none";
}

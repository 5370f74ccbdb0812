// kiln tc --search: times fillings of a schedule's holes and prints the best one.
#include "kiln.h"

#include <stdlib.h>
#include <string.h>

typedef struct table {
  const options *o;
  size_t n_right, n_wrong, n_refused;
  double own_ms; // of Kiln's own schedule; 0 until it was timed
  char *best;    // the script; malloc'ed
  char refused[512];
  struct row {
    double ms;
    char choices[96];
  } * rows;
  size_t n_rows, room;
} table;

static void keep_row(table *t, const kiln_search_result *r) {
  if (t->n_rows == t->room) {
    struct row *more = realloc(t->rows, (t->room = t->room ? 2 * t->room : 64) * sizeof *more);
    if (!more) return;
    t->rows = more;
  }
  t->rows[t->n_rows].ms = r->median_ms;
  snprintf(t->rows[t->n_rows++].choices, sizeof t->rows->choices, "%s", r->choices);
}

static void on_search_result(void *user, const kiln_search_result *r) {
  table *t = user;
  if (r->refused && t->n_refused++ == 0) snprintf(t->refused, sizeof t->refused, "%s", r->refused);
  if (r->refused && t->o->verbose) printf("refused     %s: %s\n", r->choices, r->refused);
  if (r->refused) return;
  t->n_right += r->right != 0;
  t->n_wrong += !r->right;
  if (!r->right) printf("WRONG       %s\n", r->choices);
  if (!r->right) return;
  keep_row(t, r);
  if (!r->script) t->own_ms = r->median_ms;
  else if (!t->best) t->best = strdup(r->script);
}

static void print_table(const table *t) {
  printf("%10s  %8s  %s\n", "median ms", "speed", "choices");
  for (size_t i = 0; i < t->n_rows; i++)
    printf("%10.4f  %7.2fx  %s\n", t->rows[i].ms, t->own_ms / t->rows[i].ms, t->rows[i].choices);
  printf("%zu right, %zu wrong, %zu refused%s%s\n", t->n_right, t->n_wrong, t->n_refused,
         t->n_refused ? ", such as: " : "", t->n_refused ? t->refused : "");
}

static bool write_best(const table *t) {
  const char *path = t->o->out;
  if (!t->best) return fprintf(stderr, "kiln: error: search: no filling is right\n"), false;
  if (!path) printf("\n");
  return write_text(path, "output", t->best);
}

int command_search(const options *o) {
  kiln_diag *diag = kiln_diag_create();
  compile_storage *storage = calloc(1, sizeof *storage);
  kiln_compile_options co;
  table t = {.o = o};
  const kiln_search_options so = {.struct_size = sizeof so,
                                  .n = (uint64_t)o->search,
                                  .seed = (uint64_t)o->seed,
                                  .rtol = o->rtol,
                                  .atol = o->atol,
                                  .on_result = on_search_result,
                                  .user = &t};
  kiln_status st = KILN_BAD_INPUT;
  if (diag && storage && compile_options_make(o, storage, &co) && schedule_read(storage, &co))
    st = kiln_schedule_search(o->args.at[0], &co, &so, diag);
  if (diag) print_messages(diag);
  if (st == KILN_OK) print_table(&t);
  const bool right = st == KILN_OK && t.n_wrong == 0 && write_best(&t);
  free(t.best);
  free(t.rows);
  kiln_diag_destroy(diag);
  compile_storage_free(storage);
  return right ? EXIT_RIGHT : EXIT_WRONG;
}

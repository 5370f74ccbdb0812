// kiln cache: lists or clears the caches of compilation and tuning.
#include "kiln.h"

#include <string.h>

enum { MAX_KINDS = 16, KIND_ROOM = 16 };

typedef struct kind_row {
  char name[KIND_ROOM];
  size_t n;
  double bytes;
} kind_row;

typedef struct listing {
  bool each; // prints entries
  size_t n_kinds;
  kind_row kinds[MAX_KINDS], all;
} listing;

static void count(listing *l, const kiln_cache_entry *e) {
  size_t i = 0;
  while (i < l->n_kinds && strncmp(l->kinds[i].name, e->kind, KIND_ROOM - 1) != 0) i++;
  l->all.n++;
  l->all.bytes += (double)e->bytes;
  if (i == MAX_KINDS) return;
  if (i == l->n_kinds) snprintf(l->kinds[l->n_kinds++].name, KIND_ROOM, "%s", e->kind);
  l->kinds[i].n++;
  l->kinds[i].bytes += (double)e->bytes;
}

static void on_entry(void *user, const kiln_cache_entry *e) {
  listing *l = user;
  count(l, e);
  if (l->each) printf("%-8s %9llu bytes  %s\n", e->kind, (unsigned long long)e->bytes, e->label);
}

static void print_kinds(const listing *l) {
  for (size_t i = 0; i < l->n_kinds; i++)
    printf("%-10s %6zu  %9.1f MB\n", l->kinds[i].name, l->kinds[i].n, l->kinds[i].bytes / 1e6);
}

static kiln_status show(const options *o, kiln_diag *diag) {
  listing l = {.each = o->list};
  char folder[4096];
  if (!kiln_cache_folder(folder, sizeof folder))
    return printf("none: KILN_CACHE_DIR is empty\n"), KILN_OK;
  if (!o->list) printf("%s\n", folder);
  const kiln_status st = kiln_cache_list(diag, on_entry, &l);
  if (st != KILN_OK) return st;
  if (!o->list) print_kinds(&l);
  printf("%zu entries, %.1f MB\n", l.all.n, l.all.bytes / 1e6);
  return KILN_OK;
}

int command_cache(const options *o) {
  if (o->list && o->clear)
    return options_complain(command_find("cache"), "--list", "must be left out with --clear",
                            "both"),
           EXIT_USAGE;
  kiln_diag *diag = kiln_diag_create();
  const kiln_status st = o->clear ? kiln_cache_clear(diag) : show(o, diag);
  if (diag) print_messages(diag);
  kiln_diag_destroy(diag);
  return st == KILN_OK ? EXIT_RIGHT : EXIT_WRONG;
}

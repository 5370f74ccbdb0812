// Schedules from the cache: what an earlier compilation answered, and keeping what this one does.
#ifndef KILN_MODULE_RECALL_H
#define KILN_MODULE_RECALL_H

#include "module/cache.h"
#include "fuse/kernel.h"

typedef struct kiln_recall {
  kiln_ctx *cx;
  const kiln_machine *machine;
  int n_threads;
  const char *orchestration; // how it is solved, or the text that was given; NULL: none
  bool is_asked;             // then |key| is the question's
  kiln_cache_key key;
  const char *answer; // that was found
} kiln_recall;

// Adds all of a machine that decides how a program is scheduled for it.
void kiln_recall_add_machine(kiln_digest *d, const kiln_machine *m);
// kiln_tile_options.recall, |object| being a kiln_recall.
const char *kiln_recall_find(void *object, const char *question);
// Keeps the kernels as the answer, unless it is the one that was found.
void kiln_recall_keep(kiln_recall *r, const char *label, const kiln_kernels *k);
void kiln_recall_keep_text(kiln_recall *r, const char *label, const char *answer);

#endif

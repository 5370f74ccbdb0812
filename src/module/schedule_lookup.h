// The schedule cache: looks up the schedule that an earlier compilation found for an equal program,
// and stores the one that this compilation found.
#ifndef KILN_MODULE_SCHEDULE_LOOKUP_H
#define KILN_MODULE_SCHEDULE_LOOKUP_H

#include "module/cache.h"
#include "fuse/kernel.h"

typedef struct kiln_schedule_lookup {
  kiln_ctx *cx;
  const kiln_machine *machine;
  int n_threads;
  const char *orchestration; // how it is solved, or the text that was given; NULL: none
  bool is_asked;             // |key| is set: a lookup was made
  kiln_cache_key key;
  const char *schedule; // that was found
} kiln_schedule_lookup;

// Adds every property of |m| that schedules depend on to a key.
void kiln_schedule_key_add_machine(kiln_digest *d, const kiln_machine *m);
// kiln_tile_options.look_up, |object| being a kiln_schedule_lookup.
const char *kiln_schedule_lookup_find(void *object, const char *program);
// Stores the kernels' schedule, unless the lookup found the same.
void kiln_schedule_lookup_store(kiln_schedule_lookup *r, const char *label, const kiln_kernels *k);
void kiln_schedule_lookup_store_text(kiln_schedule_lookup *r, const char *label,
                                     const char *schedule);

#endif

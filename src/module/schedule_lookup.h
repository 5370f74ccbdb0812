// The schedule cache: looks up the schedule found by an earlier compilation of an equal program,
// and stores a new one.
#ifndef KILN_MODULE_SCHEDULE_LOOKUP_H
#define KILN_MODULE_SCHEDULE_LOOKUP_H

#include "module/cache.h"
#include "fuse/kernel.h"

typedef struct kiln_schedule_lookup {
  kiln_ctx *cx;
  const kiln_machine *machine;
  int n_threads;
  const char *orchestration; // how orchestration is solved, or the text given by the user; NULL:
                             // none
  bool is_asked;             // a lookup was made and |key| is set
  kiln_cache_key key;
  const char *schedule; // the schedule found; NULL: none
} kiln_schedule_lookup;

// Adds all properties of |m| that schedules depend on to a key.
void kiln_schedule_key_add_machine(kiln_digest *d, const kiln_machine *m);
// kiln_tile_options.look_up, |object| being a kiln_schedule_lookup.
const char *kiln_schedule_lookup_find(void *object, const char *program);
// Stores the kernels' schedule, unless it came from the cache.
void kiln_schedule_lookup_store(kiln_schedule_lookup *r, const char *label, const kiln_kernels *k);
void kiln_schedule_lookup_store_text(kiln_schedule_lookup *r, const char *label,
                                     const char *schedule);

#endif

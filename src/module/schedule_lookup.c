// The schedule cache: programs equal to earlier ones, for an equal machine and options, reuse their
// schedules.
#include "module/schedule_lookup.h"
#include "support/numbers.h"
#include "fuse/cached_schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_level(kiln_digest *d, const kiln_mem_level *l) {
  char text[256];
  kiln_number_format(text, sizeof text, "%.17g %.17g %.17g %.17g %.17g %.17g", l->usable,
                     l->unit_bytes_ns, l->all_bytes_ns, l->copy_unit_bytes_ns, l->copy_all_bytes_ns,
                     l->latency_ns);
  kiln_digest_add_text(d, l->name);
  kiln_digest_add_text(d, text);
  kiln_digest_add_int(d, l->capacity_bytes);
  kiln_digest_add_int(d, l->transaction_bytes);
  kiln_digest_add_int(d, l->n_sharing);
  kiln_digest_add_int(d, l->is_explicit);
}

static void add_device(kiln_digest *d, const kiln_device *device) {
  char text[256];
  if (!device) return;
  for (int i = 0; i < device->n_levels; i++) add_level(d, &device->levels[i]);
  for (int i = 0; i < KILN_N_PEAKS; i++) {
    kiln_number_format(text, sizeof text, "%.17g %.17g", device->unit_flops_ns[i],
                       device->all_flops_ns[i]);
    kiln_digest_add_text(d, text);
  }
  kiln_number_format(text, sizeof text, "%d %.17g %.17g", device->n_units, device->launch_ns,
                     device->fork_ns);
  kiln_digest_add_text(d, text);
}

void kiln_schedule_key_add_machine(kiln_digest *d, const kiln_machine *m) {
  kiln_digest_add_text(d, m->triple);
  kiln_digest_add_text(d, m->cpu);
  kiln_digest_add_text(d, m->features);
  kiln_digest_add_int(d, m->n_cores);
  kiln_digest_add_int(d, m->l1_bytes);
  kiln_digest_add_int(d, m->l2_bytes);
  kiln_digest_add_int(d, m->l3_bytes);
  for (int level = 1; level <= 3; level++) kiln_digest_add_int(d, kiln_machine_ways(m, level));
  kiln_digest_add_int(d, m->gpu.rounds_to_tf32);
  add_device(d, m->device);
}

static kiln_cache_key key_of(const kiln_schedule_lookup *r, const char *program) {
  kiln_cache_key key;
  kiln_digest d;
  kiln_cache_key_begin(&d);
  kiln_digest_add_text(&d, "schedule");
  kiln_schedule_key_add_machine(&d, r->machine);
  kiln_digest_add_int(&d, r->n_threads);
  if (r->orchestration) kiln_digest_add_text(&d, r->orchestration);
  kiln_digest_add_text(&d, program);
  kiln_digest_end(&d, key.bytes);
  return key;
}

const char *kiln_schedule_lookup_find(void *object, const char *program) {
  kiln_schedule_lookup *r = object;
  size_t bytes = 0;
  r->key = key_of(r, program);
  r->is_asked = true;
  kiln_cache *c = kiln_cache_open(NULL, KILN_CACHE_LIMIT_BYTES);
  char *found = kiln_cache_find(c, KILN_CACHE_SCHEDULE, &r->key, &bytes);
  kiln_cache_close(c);
  r->schedule = found ? kiln_arena_strdup(&r->cx->perm, found) : NULL;
  free(found);
  return r->schedule;
}

void kiln_schedule_lookup_store_text(kiln_schedule_lookup *r, const char *label,
                                     const char *schedule) {
  if (r->schedule && strcmp(r->schedule, schedule) == 0) return;
  kiln_cache *c = kiln_cache_open(NULL, KILN_CACHE_LIMIT_BYTES);
  kiln_cache_put(c, KILN_CACHE_SCHEDULE, &r->key, label, schedule, strlen(schedule));
  kiln_cache_close(c);
}

void kiln_schedule_lookup_store(kiln_schedule_lookup *r, const char *label, const kiln_kernels *k) {
  if (r->is_asked && !k->is_cached)
    kiln_schedule_lookup_store_text(r, label, kiln_cached_schedule_print(r->cx, r->machine, k));
}

// The table of targets.
#include "target/target.h"

const kiln_target *const kiln_targets[] = {
#define KILN_TARGET(name) &kiln_target_##name,
#include "target/targets.def"
#undef KILN_TARGET
    NULL};

const kiln_target *kiln_target_find(const char *name) {
  int i = 0;
  while (kiln_targets[i + 1] && !kiln_targets[i]->takes(name)) i++;
  return kiln_targets[i];
}

kiln_status kiln_target_machine(kiln_ctx *cx, const char *name, kiln_machine *out) {
  return kiln_target_find(name)->find(cx, name, out);
}

bool kiln_target_makes_modules(const char *name) {
  const kiln_target *t = kiln_target_find(name);
  return t->makes_modules && t->makes_modules(name);
}

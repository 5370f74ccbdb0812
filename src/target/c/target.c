// C17 as a target: source for any compiler, scheduled for this computer's processor. It has no
// modules.
#include "target/cpu/row.h"

#include <string.h>

static bool takes(const char *name) { return name && strcmp(name, "c") == 0; }

static kiln_status find(kiln_ctx *cx, const char *name, kiln_machine *out) {
  (void)name;
  const kiln_status st = kiln_machine_host(cx, out);
  out->target = &kiln_target_c;
  return st;
}

const kiln_target kiln_target_c = {
    KILN_PROCESSOR_TARGET, .name = "c", .title = "C17", .takes = takes, .find = find,
};

// Processors as targets: this machine's, and others by name.
#include "target/cpu/row.h"

#include "backend/backend.h"
#include "runtime/features.h"

#include <string.h>

static bool is_own(const char *name) {
  return !name || strcmp(name, "cpu") == 0 || strcmp(name, "native") == 0;
}

static kiln_status find_own(kiln_ctx *cx, const char *name, kiln_machine *out) {
  (void)name;
  return kiln_machine_host(cx, out);
}

const kiln_target kiln_target_cpu = {
    KILN_PROCESSOR_TARGET,
    .name = "cpu",
    .title = "processors",
    .takes = is_own,
    .find = find_own,
    .makes_modules = is_own,
    .libraries = 1u << KILN_BACKEND_CPU,
};

static bool is_any(const char *name) { return name != NULL; }

// Objects are linked here, so the machine must have this computer's architecture.
static bool is_of_this_kind(const char *name) {
  return kiln_machine_is_x86(name) && kiln_cpu_knows("x86_64");
}

const kiln_target kiln_target_processor = {
    KILN_PROCESSOR_TARGET, .name = "processor",        .title = "processors by name",
    .takes = is_any,       .find = kiln_machine_named, .makes_modules = is_of_this_kind,
};

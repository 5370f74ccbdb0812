// A provider's library that stands between ONNX Runtime and Kiln's, $ORT_SPY_LIBRARY. When it is
// unregistered, it writes down which entries of the table of functions Kiln called: their numbers,
// a line each, to $ORT_SPY_CALLS.
#include "../../ort/abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_ENTRIES = sizeof(ort_api) / sizeof(void *), THUNK_BYTES = 32 };
_Static_assert(N_ENTRIES == 391, "as many as there are thunks");

// Thunk i counts a call of entry i and goes on there; arguments stay as they are.
extern const char ort_spy_thunks[];
__attribute__((visibility("hidden"))) uint64_t ort_spy_counts[N_ENTRIES];
__attribute__((visibility("hidden"))) void *ort_spy_entries[N_ENTRIES];
__asm__(".pushsection .text\n"
        ".balign 32\n"
        ".hidden ort_spy_thunks\n"
        ".globl ort_spy_thunks\n"
        "ort_spy_thunks:\n"
        ".set i, 0\n"
        ".rept 391\n"
        "lock incq ort_spy_counts+8*i(%rip)\n"
        "jmp *ort_spy_entries+8*i(%rip)\n"
        ".balign 32\n"
        ".set i, i+1\n"
        ".endr\n"
        ".popsection\n");

typedef ort_status *create_fn(const char *, const ort_api_base *, const ort_logger *,
                              ort_ep_factory **, size_t, size_t *);
typedef ort_status *release_fn(ort_ep_factory *);

static const ort_api_base *real;
static void *table[N_ENTRIES];
static void *library;

static const ort_api *api(uint32_t version) {
  void *const *from = (void *const *)real->api(version);
  for (int i = 0; from && i < N_ENTRIES; i++) {
    ort_spy_entries[i] = from[i];
    table[i] = (void *)(uintptr_t)(ort_spy_thunks + (size_t)i * THUNK_BYTES);
  }
  return from ? (const ort_api *)table : NULL;
}

__attribute__((visibility("default"))) create_fn CreateEpFactories;
__attribute__((visibility("default"))) release_fn ReleaseEpFactory;

ort_status *CreateEpFactories(const char *name, const ort_api_base *base, const ort_logger *logger,
                              ort_ep_factory **out, size_t room, size_t *out_n) {
  static ort_api_base spied;
  real = base;
  spied = (ort_api_base){api, base->version};
  library = dlopen(getenv("ORT_SPY_LIBRARY"), RTLD_NOW);
  if (!library)
    return ((const ort_api *)base->api(ORT_API_USED))->create_status(ORT_FAIL, dlerror());
  create_fn *create = (create_fn *)(uintptr_t)dlsym(library, "CreateEpFactories");
  return create(name, &spied, logger, out, room, out_n);
}

ort_status *ReleaseEpFactory(ort_ep_factory *factory) {
  release_fn *release = (release_fn *)(uintptr_t)dlsym(library, "ReleaseEpFactory");
  FILE *f = fopen(getenv("ORT_SPY_CALLS"), "w");
  ort_status *status = release(factory);
  for (int i = 0; f && i < N_ENTRIES; i++)
    if (ort_spy_counts[i] > 0) fprintf(f, "%d\n", i);
  if (f) fclose(f);
  return status;
}

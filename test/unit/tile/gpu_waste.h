// Test support: loops of a GPU of which some waste time, for all prices of them.
#ifndef KILN_TEST_UNIT_TILE_GPU_WASTE_H
#define KILN_TEST_UNIT_TILE_GPU_WASTE_H

#include "target/gpu/gpu.h"

#include "unit/fixture.h"

static kiln_machine gpu_machine(fixture *f) {
  kiln_machine m;
  if (kiln_gpu_machine_named(&f->cx, "cuda:sm_90a", &m) != KILN_OK)
    fail_msg("%s", kiln_diag_message(f->diag, 0));
  return m;
}

static kiln_loops *gpu_loops(fixture *f, const char *text) {
  kiln_loops *l = NULL;
  if (kiln_loops_parse(&f->cx, text, &l) != KILN_OK)
    fail_msg("%s: %s", text, kiln_diag_message(f->diag, 0));
  return l;
}

#define NOTHING                                                                                    \
  "kernel k { param f32 y[1]:(1) for b:1 block.x { for t:1 thread.x { y[0] = 0f32 } } }"
#define COPY "kernel k { param f32 X[33554432]:(1) param f32 y[33554432]:(1) for b:4096 block.x { "
#define NEIGHBOURS COPY "for t:256 thread.x { y[b*256 + t] = X[b*256 + t] } } }"
#define SUM                                                                                        \
  "kernel k { param f32 X[1048576]:(1) param f32 y[65536]:(1) local f32 s[1]:(1) for b:256 "       \
  "block.x { for t:256 thread.x { alloc s { s[0] = 0f32 "
#define END_SUM " y[b*256 + t] = s[0] } } } }"
#define STAGED                                                                                     \
  "kernel k { param f32 X[8650752]:(1) param f32 y[8388608]:(1) shared f32 s[1056]:(1) for "       \
  "b:8192 block.x { alloc s { for u:1024 thread.x { s[u + u / 32] = X[b*1024 + u] } for t:1024 "   \
  "thread.x { "

// Factors of what is more than NOTHING: by price/gpu_work.h at least and at most, by
// price/gpu_price.h at least.
static const struct waste {
  const char *name, *dearer, *cheaper;
  double work_least, work_most, price_least;
} wastes[] = {
    {"neighbours read far from each other",
     COPY "for t:256 thread.x { y[b*256 + t] = X[b + t*4096] } } }", NEIGHBOURS, 3, 16, 1.5},
    {"one thread of a warp at work",
     COPY "for t:1 thread.x { for i:256 { y[b*256 + i] = X[b*256 + i] } } } }", NEIGHBOURS, 5, 50,
     2},
    {"a sixteenth of the blocks",
     "kernel k { param f32 X[1048576]:(1) param f32 y[1048576]:(1) for b:16 block.x { for t:256 "
     "thread.x { for i:256 { y[b*65536 + i*256 + t] = X[b*65536 + i*256 + t] } } } }",
     "kernel k { param f32 X[1048576]:(1) param f32 y[1048576]:(1) for b:256 block.x { for t:256 "
     "thread.x { for i:16 { y[b*4096 + i*256 + t] = X[b*4096 + i*256 + t] } } } }",
     8, 100, 3},
    {"a long sum, and one of a sixteenth", SUM "for k:1024 { s[0] += X[b*1024 + k] }" END_SUM,
     SUM "for k:64 { s[0] += X[b*1024 + k] }" END_SUM, 6, 20, 4},
    {"one bank of shared memory", STAGED "y[b*1024 + t] = s[t % 32 * 32 + t / 32] } } } }",
     STAGED "y[b*1024 + t] = s[t % 32 * 33 + t / 32] } } } }", 1.5, 32, 1.2},
    {"another nest",
     COPY "for t:256 thread.x { y[b*256 + t] = X[b*256 + t] } } for c:4096 block.x { for u:256 "
          "thread.x { y[c*256 + u] = X[c*256 + u] } } }",
     NEIGHBOURS, 1.9, 3.1, 1.8},
};

#endif

// Candidates of a GPU template for a product, on an H200 with a given number of multiprocessors.
#ifndef KILN_TEST_UNIT_TILE_GPU_LOWERING_H
#define KILN_TEST_UNIT_TILE_GPU_LOWERING_H

#include "unit/tile/lowering.h"

#include "target/gpu/gpu.h"
#include "template/gpu/grid.h"
#include "template/form/product.h"

// Opens |k| over |text|; |m| and |few| are the machine's storage.
static kiln_lowering lowering_propose(test_kernel *k, kiln_machine *m, kiln_device *few, int units,
                                      const char *text, const kiln_template *family,
                                      kiln_tile_candidates *out) {
  kiln_lowering w = lowering_open(k, m, text);
  assert_int_equal(kiln_gpu_machine_named(&k->cx, "cuda:sm_90a", m), KILN_OK);
  *few = *m->device;
  few->n_units = units;
  m->device = few;
  kiln_product_make(&k->cx, m, k->prog);
  w.root = k->prog->stmts.data[k->prog->stmts.n - 1];
  assert_int_equal(family->propose(&w, out), KILN_OK);
  return w;
}

#endif

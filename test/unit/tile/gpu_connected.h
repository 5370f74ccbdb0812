// The number of kernels that fusion makes of a program for a GPU.
#ifndef KILN_TEST_UNIT_TILE_GPU_CONNECTED_H
#define KILN_TEST_UNIT_TILE_GPU_CONNECTED_H

#include "driver/pipeline.h"
#include "unit/tile/launches.h"

#include "target/gpu/gpu.h"

// How many kernels |text| takes on an H200; nothing is run.
static int count_kernels(const char *text, bool no_connect) {
  const kiln_tile_options options = {.search.n_threads = 1, .search.no_connect = no_connect};
  kiln_diag *diag = kiln_diag_create();
  kiln_machine m;
  kiln_program *p = NULL;
  kiln_kernels kernels;
  kiln_ctx cx;
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  assert_int_equal(kiln_gpu_machine_named(&cx, "cuda:sm_90a", &m), KILN_OK);
  assert_int_equal(kiln_program_parse(&cx, text, &p), KILN_OK);
  assert_int_equal(kiln_pipeline_tile(&cx, p, &m, &options, NULL, &kernels), KILN_OK);
  const int n = kernels.launches.n;
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
  return n;
}

#endif

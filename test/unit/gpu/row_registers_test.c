// A row's reduction without shared memory: parts of the lanes that share a row by rfactor, copies
// of its result by replicate, shuffles between them, and maps that read their own thread's copy.
#include "target/sim/device.h"

#include "unit/schedule/kernel.h"

#include "unit/gpu/device.h"

// Rows of 64 less their sum, in the layout of sums of mma.m16n8: four lanes have a row.
static const char program[] =
    "rows { in f32 X(32, 64) temp f32 F(32, 64) temp f32 S(32) temp f32 R(32) out f32 Y(32, 64) "
    "F(i0:32, i1:64) = X(i0, i1) * 2f32 "
    "S(i0:32 | r0:64) +=! F(i0, r0) "
    "R(i0:32) = S(i0) * 0.5f32 "
    "Y(i0:32, i1:64) = F(i0, i1) - R(i0) }";
static const char script[] =
    "split S.r0 8 exact h c\nsplit c 2 exact q e\nreorder q S.i0 h e\nrfactor q P\n"
    "split Y.i0 16 exact block row\nbind block block.x\n"
    "compute_at R block local\ncompute_at S block local\ncompute_at P block local\n"
    "compute_at F block local\n"
    "replicate S 4\nreplicate R 4\nuse_copy R.i0 S R.c\nuse_copy row R Y.i1%8/2\n"
    "transform_layout F 0/8 0%8 1/8 1%8\ntransform_layout F 1 3/2 2 0 3%2\n"
    "transform_layout P 0%8 1 0/8\ntransform_layout S 0%8 1 0/8\ntransform_layout R 0%8 1 0/8\n"
    "distribute F.i0 like F 32\ndistribute P.init.0 like P 32\ndistribute q like F 32\n"
    "distribute S.init.i0 like S 32\n"
    "split P.0 8 exact half rows\nreorder half rows S.c1 P.1\ntensorize rows lanes.sum.4.f32\n"
    "unroll half\n"
    "distribute R.i0 like R 32\ndistribute row like F 32\n";

static void check(test_kernel *k, kernel_args *a, const char *how) {
  const char *wrong = kernel_args_wrong(k, a);
  kernel_args_free(a);
  if (wrong) fail_msg("%s: %s", how, wrong);
}

static void run_device_loops(test_kernel *k, kiln_loops *l) {
  kiln_machine m;
  kiln_gpu_device d;
  assert_int_equal(kiln_gpu_machine_named(&k->cx, "cuda:sm_75", &m), KILN_OK);
  kernel_args a = kernel_args_make(k, l);
  if (kiln_gpu_lower(&k->cx, &m, l, 0, &d) != KILN_OK) fail_msg("%s", kernel_message(k));
  for (int i = 0; i < d.loops->buffers.n; i++)
    assert_int_not_equal(d.loops->buffers.data[i]->scope, KILN_SCOPE_SHARED);
  kiln_sim_launch launch = {.cluster = d.cluster, .warp = m.gpu.warp, .offsets = d.offsets};
  memcpy(launch.grid, d.grid, sizeof launch.grid);
  memcpy(launch.block, d.block, sizeof launch.block);
  if (kiln_sim_run_device(&k->cx, d.loops, &launch, a.data, NULL) != KILN_OK)
    fail_msg("%s", kernel_message(k));
  check(k, &a, "device loops");
}

static void run_opencl(test_kernel *k, kiln_loops *l) {
  enum { MOST = 8 };
  opencl device;
  kiln_machine m;
  kiln_text source;
  kiln_gpu_launch *launches = NULL;
  size_t bytes[MOST];
  int n = 0;
  kiln_text_init(&source, &k->cx.perm);
  assert_int_equal(kiln_gpu_machine_named(&k->cx, "opencl", &m), KILN_OK);
  if (kiln_gpu_emit(&k->cx, &m, l, "k", &source, &n, &launches) != KILN_OK)
    fail_msg("%s", kernel_message(k));
  if (!opencl_open(&device)) {
    print_message("no OpenCL device: nothing is run\n");
    return;
  }
  kernel_args a = kernel_args_make(k, l);
  assert_true(a.n <= MOST);
  for (int i = 0; i < a.n; i++) bytes[i] = kernel_bytes(a.of[i]) + KERNEL_SLACK;
  opencl_run(&device, source.data, "k", n, launches, a.n, a.data, bytes);
  opencl_close(&device);
  check(k, &a, "OpenCL");
}

static void rows_are_reduced_in_registers(void **state) {
  test_kernel k;
  kiln_schedule s;
  kiln_machine m;
  (void)state;
  kernel_open(&k, program, 3);
  assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
  assert_int_equal(kiln_gpu_machine_named(&k.cx, "cuda:sm_75", &m), KILN_OK);
  s.instrs = kiln_gpu_instrs(&k.cx, &m, &s.n_instrs);
  if (kiln_schedule_replay(&s, script) != KILN_OK)
    fail_msg("%s\n%s", kernel_message(&k), kernel_text(&k, s.loops));
  const char *wrong = kernel_try(&k, s.loops);
  if (wrong) fail_msg("%s\n%s", wrong, kernel_text(&k, s.loops));
  run_device_loops(&k, s.loops);
  run_opencl(&k, s.loops);
  kernel_close(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_reduced_in_registers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// GPU templates: their candidates give the reference interpreter's results in the simulator.
#include "driver/pipeline.h"
#include "unit/tile/launches.h"
#include "unit/tile/lowering.h"
#include "unit/share.h"

#include "target/gpu/gpu.h"
#include "template/gpu/grid.h"
#include "template/form/persistent_rows.h"
#include "template/form/moment.h"
#include "template/form/product.h"
#include "template/form/window.h"
#include "transform/transform.h"

static const kiln_device device = {
    .name = "test",
    .n_units = 4,
    .n_levels = 4,
    .levels = {{"memory", INT64_MAX, 1, 32, 100, 1000, 100, 1000, 500, 4, false},
               {"L2", 1 << 22, 0.5, 32, 100, 4000, 100, 4000, 200, 4, false},
               {"shared", 96 << 10, 1, 4, 400, 1600, 400, 1600, 30, 1, true},
               {"registers", 256 << 10, 1, 4, 4000, 16000, 4000, 16000, 0, 1, true}},
    .unit_flops_ns = {400, 4000, 0},
    .all_flops_ns = {1600, 0, 0},
    .launch_ns = 2000};
static const kiln_machine machine = {.target = &kiln_target_cuda,
                                     .gpu = {.arch = "sm_80",
                                             .capability = 80,
                                             .warp = 32,
                                             .max_threads = 1024,
                                             .shared_bytes = 96 << 10,
                                             .registers = 65536,
                                             .rounds_to_tf32 = true,
                                             .max_resident = 2048},
                                     .vector_bytes = 16,
                                     .n_vector_regs = 255,
                                     .n_cores = 4,
                                     .device = &device};

static const struct {
  const char *name, *text;
  const kiln_template *family; // whose candidates are all lowered
  int n;                       // how many there are
} cases[] = {
    {"a map of vectors",
     "p { in f32 X(37, 40) in f32 B(40) out f32 y(37, 40) y(i0:37, i1:40) = max(X(i0, i1) + B(i1), "
     "0f32) }",
     &kiln_template_gpu_pointwise, 1},
    {"a map that transposes",
     "p { in f32 X(40, 33) out f32 y(33, 40) y(i0:33, i1:40) = X(i1, i0) }",
     &kiln_template_gpu_pointwise, 1},
    {"a map that reads along another dim than it writes",
     "p { in f16 X(2, 200, 72) in f16 B(200) out f16 y(2, 72, 200) y(i0:2, i1:72, i2:200) = X(i0, "
     "i2, i1) + B(i2) }",
     &kiln_template_gpu_transpose, 1},
    {"the same, of no whole number of tiles",
     "p { in f32 X(131, 70) out f32 y(70, 131) y(i0:70, i1:131) = X(i1, i0) }",
     &kiln_template_gpu_transpose, 1},
    {"the same, from three tensors to three numbers",
     "p { in f16 X(3, 1000) out f16 y(1000, 3) y(i0:1000, i1:3) = X(i1, i0) }",
     &kiln_template_gpu_transpose, 1},
    {"an interpolation, tiles of a thread",
     "p { in f16 X(20, 24, 16) out f16 y(40, 48, 16) y(i0:40, i1:48, i2:16) = "
     "f16((i1%2 == 0 ? 0.25f32 : 0.75f32) * (0.5f32 * f32(X(max((i0 + 1)/2 - 1, 0), max((i1 + 1)/2 "
     "- 1, 0), i2)) + 0.5f32 * f32(X(min((i0 + 1)/2, 19), max((i1 + 1)/2 - 1, 0), i2))) + "
     "(i1%2 == 0 ? 0.75f32 : 0.25f32) * (0.5f32 * f32(X(max((i0 + 1)/2 - 1, 0), min((i1 + 1)/2, "
     "23), i2)) + 0.5f32 * f32(X(min((i0 + 1)/2, 19), min((i1 + 1)/2, 23), i2)))) }",
     &kiln_template_gpu_pointwise, 7},
    {"the same along the contiguous dim",
     "p { in f16 X(64, 24) out f16 y(128, 48) y(i0:128, i1:48) = "
     "f16((i1%2 == 0 ? 0.25f32 : 0.75f32) * (0.5f32 * f32(X(max((i0 + 1)/2 - 1, 0), max((i1 + 1)/2 "
     "- 1, 0))) + 0.5f32 * f32(X(min((i0 + 1)/2, 63), max((i1 + 1)/2 - 1, 0)))) + "
     "(i1%2 == 0 ? 0.75f32 : 0.25f32) * (0.5f32 * f32(X(max((i0 + 1)/2 - 1, 0), min((i1 + 1)/2, "
     "23))) + 0.5f32 * f32(X(min((i0 + 1)/2, 63), min((i1 + 1)/2, 23))))) }",
     &kiln_template_gpu_pointwise, 2},
    {"neighbours of which no tile shares more",
     "p { in f32 X(41, 40) out f32 y(40, 40) y(i0:40, i1:40) = X(i0, i1) + X(i0 + 1, i1) }",
     &kiln_template_gpu_pointwise, 1},
    {"a map of one that has fewer dims",
     "p { in f32 X(37, 40) in f32 B(40) temp f32 t0(40) out f32 y(37, 40) t0(i1:40) = exp(B(i1)) "
     "y(i0:37, i1:40) = X(i0, i1) * t0(i1) }",
     &kiln_template_gpu_pointwise, 1},
    {"a window and its finish",
     "p { in f32 X(10, 16, 20) in f32 W(3, 3, 20) temp f32 t0(8, 14, 20) out f32 y(8, 14, 20) "
     "t0(i0:8, i1:14, i2:20 | r0:3, r1:3) +=! X(i0 + r0, i1 + r1, i2) * W(r0, r1, i2) "
     "y(i0:8, i1:14, i2:20) = max(t0(i0, i1, i2), 0f32) }",
     &kiln_template_gpu_pointwise, 1},
    {"softmax: rows of a block",
     "p { in f32 X(5, 300) temp f32 t0(5) temp f32 t1(5, 300) temp f32 t2(5) out f32 y(5, 300) "
     "t0(i0:5 | r0:300) max=! X(i0, r0) t1(i0:5, j0:300) = X(i0, j0) - t0(i0) "
     "t2(i0:5 | r0:300) +=! t1(i0, r0) y(i0:5, i1:300) = t1(i0, i1) + t2(i0) }",
     &kiln_template_gpu_row_reduce, 1},
    {"softmax: a row a warp",
     "p { in f32 X(3, 60, 70) temp f32 t0(3, 60) temp f32 t1(3, 60, 70) temp f32 t2(3, 60) out f32 "
     "y(3, 60, 70) "
     "t0(i0:3, i1:60 | r0:70) max=! X(i0, i1, r0) t1(i0:3, i1:60, j0:70) = X(i0, i1, j0) - t0(i0, "
     "i1) t2(i0:3, i1:60 | r0:70) +=! t1(i0, i1, r0) y(i0:3, i1:60, i2:70) = t1(i0, i1, i2) + "
     "t2(i0, i1) }",
     &kiln_template_gpu_row_reduce, 2},
    {"rows of halves in registers, some a block",
     "p { in f16 X(12, 96) in f16 W(96) temp f32 t0(12) temp f32 t1(12) out f16 y(12, 96) "
     "t0(i0:12 | r0:96) +=! f32(X(i0, r0)) t1(i0:12) = t0(i0) * 0.01f32 "
     "y(i0:12, i1:96) = f16((f32(X(i0, i1)) - t1(i0)) * f32(W(i1))) }",
     &kiln_template_gpu_row_reduce, 2},
    {"the same of many words, the last ones of fewer threads",
     "p { in f16 X(3, 1352) temp f32 t0(3) temp f32 t1(3, 1352) temp f32 t2(3) out f16 y(3, 1352) "
     "t0(i0:3 | r0:1352) max=! f32(X(i0, r0)) t1(i0:3, j0:1352) = exp(f32(X(i0, j0)) - t0(i0)) "
     "t2(i0:3 | r0:1352) +=! t1(i0, r0) y(i0:3, i1:1352) = f16(t1(i0, i1) / t2(i0)) }",
     &kiln_template_gpu_row_reduce, 2},
    {"rows so long that what is computed of them is computed again",
     "p { in f16 X(2, 32768) temp f32 t0(2) temp f32 t1(2, 32768) temp f32 t2(2) out f32 y(2, "
     "32768) t0(i0:2 | r0:32768) max=! f32(X(i0, r0)) t1(i0:2, j0:32768) = f32(X(i0, j0)) - t0(i0) "
     "t2(i0:2 | r0:32768) +=! t1(i0, r0) y(i0:2, i1:32768) = t1(i0, i1) + t2(i0) }",
     &kiln_template_gpu_row_reduce, 2},
    {"rows of an odd length, their mean stored",
     "p { in f16 X(2, 7, 49) temp f32 t0(2, 7) out f16 y(2, 7) "
     "t0(i0:2, i1:7 | r0:49) +=! f32(X(i0, i1, r0)) y(i0:2, i1:7) = f16(t0(i0, i1) / 49f32) }",
     &kiln_template_gpu_row_reduce, 2},
    {"rows of a thread",
     "p { in f32 X(500, 7) temp f32 t0(500) out f32 y(500, 7) t0(i0:500 | r0:7) +=! X(i0, r0) "
     "y(i0:500, i1:7) = X(i0, i1) - t0(i0) }",
     &kiln_template_gpu_row_reduce, 1},
    {"sums of two dims across rows",
     "p { in f32 X(3, 40, 36) temp f32 t0(3) out f32 y(3, 40, 36) t0(i0:3 | r0:40, r1:36) +=! "
     "X(i0, r0, r1) "
     "y(i0:3, i1:40, i2:36) = X(i0, i1, i2) - t0(i0) }",
     &kiln_template_gpu_row_reduce, 1},
    {"windows channel by channel, their padding guarded",
     "p { in f16 X(2, 9, 8, 24) const f16 W(24, 3, 3) = ... temp f32 t0(2, 9, 8, 24) out f16 "
     "y(2, 9, 8, 24) "
     "t0(i0:2, i1:9, i2:8, i3:24 | r0:3, r1:3) +=! f32(i1 + r0 >= 1 && i1 + r0 < 10 && i2 + r1 >= "
     "1 && i2 + r1 < 9 ? X(i0, i1 + r0 - 1, i2 + r1 - 1, i3) : 0f16) * f32(W(i3, r0, r1)) "
     "y(i0:2, i1:9, i2:8, i3:24) = f16(max(t0(i0, i1, i2, i3), 0f32)) }",
     &kiln_template_gpu_sliding_window, 1},
    {"windows of 5 x 5, two apart, channels that fill no word",
     "p { in f16 X(16, 21, 14) const f16 W(14, 5, 5) = ... temp f32 t0(6, 9, 14) temp f16 t1(6, 9, "
     "14) out f16 y(6, 9, 14) "
     "t0(i0:6, i1:9, i2:14 | r0:5, r1:5) +=! f32(X(i0 * 2 + r0, i1 * 2 + r1, i2)) * f32(W(i2, r0, "
     "r1)) t1(i0:6, i1:9, i2:14) = f16(t0(i0, i1, i2)) "
     "y(i0:6, i1:9, i2:14) = t1(i0, i1, i2) * 2f16 }",
     &kiln_template_gpu_sliding_window, 1},
    {"the largest of windows that reach over the edge",
     "p { in f16 X(10, 12, 32) temp f16 t0(5, 6, 32) out f16 y(5, 6, 32) "
     "t0(i0:5, i1:6, i2:32 | r0:3, r1:3) max=! i0 * 2 + r0 >= 1 && i1 * 2 + r1 >= 1 ? X(i0 * 2 + "
     "r0 - 1, i1 * 2 + r1 - 1, i2) : -inff16 "
     "y(i0:5, i1:6, i2:32) = t0(i0, i1, i2) }",
     &kiln_template_gpu_sliding_window, 1},
    {"the largest of widened numbers, which stay narrow until they are compared",
     "p { in f16 X(10, 12, 32) temp f32 t0(5, 6, 32) out f16 y(5, 6, 32) "
     "t0(i0:5, i1:6, i2:32 | r0:3, r1:3) max=! i0 * 2 + r0 >= 1 && i1 * 2 + r1 >= 1 ? f32(X(i0 * 2 "
     "+ r0 - 1, i1 * 2 + r1 - 1, i2)) : -inff32 "
     "y(i0:5, i1:6, i2:32) = f16(t0(i0, i1, i2)) }",
     &kiln_template_gpu_sliding_window, 1},
    {"windows along one dim",
     "p { in f32 X(40, 20) const f32 W(7, 20) = ... temp f32 t0(34, 20) out f32 y(34, 20) "
     "t0(i0:34, i1:20 | r0:7) +=! X(i0 + r0, i1) * W(r0, i1) "
     "y(i0:34, i1:20) = t0(i0, i1) + 1f32 }",
     &kiln_template_gpu_sliding_window, 1},
    {"long windows along one dim, their padding guarded, of what two halves give",
     "p { in f16 X(2, 24, 64) const f16 W(32, 11) = ... in f16 B(32) temp f32 t0(2, 24, 32) "
     "temp f16 t1(2, 24, 32) out f16 y(2, 24, 32) "
     "t0(i0:2, i1:24, i2:32 | r0:11) +=! f32(i1 + r0 >= 5 && i1 + r0 < 29 ? X(i0, i1 + r0 - 5, "
     "i2) * X(i0, i1 + r0 - 5, i2 + 32) : 0f16) * f32(W(i2, r0)) "
     "t1(i0:2, i1:24, i2:32) = f16(t0(i0, i1, i2)) "
     "y(i0:2, i1:24, i2:32) = t1(i0, i1, i2) + B(i2) }",
     &kiln_template_gpu_sliding_window_1d, 1},
    {"the largest of long windows, of floats, inside",
     "p { in f32 X(60, 24) temp f32 t0(50, 24) out f32 y(50, 24) "
     "t0(i0:50, i1:24 | r0:11) max=! X(i0 + r0, i1) y(i0:50, i1:24) = t0(i0, i1) * 2f32 }",
     &kiln_template_gpu_sliding_window_1d, 1},
    {"windows of what two halves of the channels give",
     "p { in f16 X(30, 32) const f16 W(16, 5) = ... temp f32 t0(30, 16) out f16 y(30, 16) "
     "t0(i0:30, i1:16 | r0:5) +=! f32(i0 + r0 >= 2 && i0 + r0 < 32 ? X(i0 + r0 - 2, i1) * X(i0 + "
     "r0 - 2, i1 + 16) : 0f16) * f32(W(i1, r0)) y(i0:30, i1:16) = f16(t0(i0, i1)) }",
     &kiln_template_gpu_sliding_window, 1},
    {"an image's mean and squares around it, shared by blocks, and what they finish",
     "p { in f16 X(512, 32) in f16 R(512, 32) temp f32 t0(32) temp f32 t1(32) temp f32 t2(32) "
     "out f32 y(512, 32) "
     "t0(i1:32 | r0:512) +=! f32(X(r0, i1)) t1(i1:32) = min(max(t0(i1), -1f32), 1f32) "
     "t2(i1:32 | r0:512) +=! (f32(X(r0, i1)) - t1(i1)) * (f32(X(r0, i1)) - t1(i1)) "
     "y(i0:512, i1:32) = f32(X(i0, i1)) * t1(i1) + t2(i1) + f32(R(i0, i1)) }",
     &kiln_template_gpu_welford, 1},
    {"the same of some images, stored by image alone, squares rounded on the way",
     "p { in f16 X(2, 16, 32, 24) temp f32 t0(2, 24) temp f32 t1(2, 24) temp f32 t2(2, 24) "
     "temp f32 t3(2, 24) out f32 y(2, 24) "
     "t0(i0:2, i1:24 | r0:512) +=! f32(X(i0, r0 / 32, r0 % 32, i1)) t1(i0:2, i1:24) = "
     "min(max(t0(i0, i1), -2f32), 2f32) "
     "t2(i0:2, i1:24 | r0:512) +=! f32(f16(f32(f16(f32(X(i0, r0 / 32, r0 % 32, i1)) - t1(i0, i1))) "
     "* f32(f16(f32(X(i0, r0 / 32, r0 % 32, i1)) - t1(i0, i1))))) "
     "t3(i0:2, i1:24 | r0:512) +=! f32(X(i0, r0 / 32, r0 % 32, i1)) "
     "y(i0:2, i1:24) = t2(i0, i1) + t3(i0, i1) }",
     &kiln_template_gpu_welford, 1},
    {"sums of images of an odd number of rows, finished with two dims",
     "p { in f32 X(2, 441, 24) temp f32 t0(2, 24) out f32 y(2, 3, 7, 24) "
     "t0(i0:2, i3:24 | r0:441) +=! abs(X(i0, r0, i3)) "
     "y(i0:2, i1:3, i2:7, i3:24) = t0(i0, i3) + X(i0, i1 * 7 + i2, i3) }",
     &kiln_template_gpu_welford, 1},
    {"few sums whose terms lie side by side",
     "p { in f32 X(300) in f32 W(4, 37, 300) temp f32 t0(4, 37) out f32 y(4, 37) "
     "t0(i0:4, i1:37 | r0:300) +=! X(r0) * W(i0, i1, r0) "
     "y(i0:4, i1:37) = max(t0(i0, i1), 0f32) }",
     &kiln_template_gpu_block_reduce, 1},
    {"few sums that lie side by side",
     "p { in f32 X(300) in f32 W(15, 20, 37) temp f32 t0(37) out f32 y(37) "
     "t0(i0:37 | r0:15, r1:20) +=! X(r0 * 20 + r1) * W(r0, r1, i0) "
     "y(i0:37) = max(t0(i0), 0f32) }",
     &kiln_template_gpu_block_reduce, 1},
    {"very few and very long sums that lie side by side",
     "p { in f32 X(90, 50, 3) temp f32 t0(3) out f32 y(3) t0(i0:3 | r0:90, r1:50) +=! X(r0, r1, "
     "i0) "
     "y(i0:3) = t0(i0) * 0.001f32 }",
     &kiln_template_gpu_grid_reduce, 1},
    {"long sums of what another long sum gives",
     "p { in f32 X(4200, 5) temp f32 t0(5) temp f32 t1(5) temp f32 t2(5) out f32 y(5) "
     "t0(i0:5 | r0:4200) +=! X(r0, i0) t1(i0:5) = min(max(t0(i0), -3f32), 3f32) "
     "t2(i0:5 | r0:4200) +=! (X(r0, i0) - t1(i0)) * (X(r0, i0) - t1(i0)) "
     "y(i0:5) = t2(i0) + t1(i0) }",
     &kiln_template_gpu_grid_reduce, 1},
    {"the sum of everything, its terms side by side",
     "p { in f32 X(1, 5000) temp f32 t0(1) out f32 y(1) t0(i0:1 | r0:5000) +=! X(i0, r0) "
     "y(i0:1) = sqrt(abs(t0(i0))) }",
     &kiln_template_gpu_grid_reduce, 1},
    {"nests of their own",
     "p { in f32 X(30, 20) temp f32 t0(30) out f32 y(30, 20) t0(i0:30 | r0:20) +=! X(i0, r0) "
     "y(i0:30, i1:20) = X(i0, i1) - t0(29 - i0) }",
     &kiln_template_gpu_fallback, 1},
    {"a product by constants",
     "p { in f32 X(4000) const f32 W(40, 64) = ... in f32 B(64) temp f32 t0(100, 64) out f32 "
     "y(100, 64) "
     "t0(i0:100, i1:64 | r0:40) +=! X(i0*40 + r0) * W(r0, i1) y(i0:100, i1:64) = t0(i0, i1) + "
     "B(i1) }",
     &kiln_template_gpu_simt, 6},
    {"a batch of products, k ragged",
     "p { in f32 X(2, 40, 19) in f32 Z(2, 19, 36) temp f32 t0(2, 40, 36) out f32 y(2, 40, 36) "
     "t0(i0:2, i1:40, i2:36 | r0:19) +=! X(i0, i1, r0) * Z(i0, r0, i2) "
     "y(i0:2, i1:40, i2:36) = t0(i0, i1, i2) * 2f32 }",
     &kiln_template_gpu_simt, 3},
    {"a convolution, channels last",
     "p { in f32 X(2, 10, 10, 5) const f32 W(24, 5, 3, 3) = ... temp f32 t0(2, 8, 8, 24) out f32 "
     "y(2, 8, "
     "8, 24) "
     "t0(i0:2, i1:8, i2:8, i3:24 | r0:5, r1:3, r2:3) +=! X(i0, i1 + r1, i2 + r2, r0) * W(i3, r0, "
     "r1, r2) "
     "y(i0:2, i1:8, i2:8, i3:24) = max(t0(i0, i1, i2, i3), 0f32) }",
     &kiln_template_gpu_simt, 1},
    {"a convolution, channels first: columns are pixels",
     "p { in f32 X(2, 5, 10, 10) const f32 W(24, 5, 3, 3) = ... temp f32 t0(2, 24, 8, 8) out f32 "
     "y(2, "
     "24, 8, 8) "
     "t0(i0:2, i1:24, i2:8, i3:8 | r0:5, r1:3, r2:3) +=! X(i0, r0, i2 + r1, i3 + r2) * W(i1, r0, "
     "r1, r2) "
     "y(i0:2, i1:24, i2:8, i3:8) = max(t0(i0, i1, i2, i3), 0f32) }",
     &kiln_template_gpu_simt, 2},
    {"tensor cores: a batch of products of halves",
     "p { in f16 X(2, 64, 64) in f16 Z(2, 64, 32) temp f32 t0(2, 64, 32) out f16 y(2, 64, 32) "
     "t0(i0:2, i1:64, i2:32 | r0:64) +=! f32(X(i0, i1, r0)) * f32(Z(i0, r0, i2)) "
     "y(i0:2, i1:64, i2:32) = f16(t0(i0, i1, i2)) }",
     &kiln_template_gpu_mma, 4},
    {"tensor cores: a convolution by constants",
     "p { in f16 X(1, 10, 10, 16) const f16 W(24, 16, 3, 3) = ... temp f32 t0(1, 8, 8, 24) out f16 "
     "y(1, 8, 8, 24) "
     "t0(i0:1, i1:8, i2:8, i3:24 | r0:16, r1:3, r2:3) +=! f32(X(i0, i1 + r1, i2 + r2, r0)) * "
     "f32(W(i3, r0, r1, r2)) "
     "y(i0:1, i1:8, i2:8, i3:24) = f16(t0(i0, i1, i2, i3)) }",
     &kiln_template_gpu_mma, 1},
    {"tensor cores: a batch of products rounded to tf32",
     "p { in f32 X(2, 64, 64) in f32 Z(2, 64, 32) temp f32 t0(2, 64, 32) out f32 y(2, 64, 32) "
     "t0(i0:2, i1:64, i2:32 | r0:64) +=! X(i0, i1, r0) * Z(i0, r0, i2) "
     "y(i0:2, i1:64, i2:32) = max(t0(i0, i1, i2), 0f32) }",
     &kiln_template_gpu_mma, 4},
    {"tensor cores: a convolution of bytes by constants",
     "p { in u8 X(1, 10, 10, 32) const u8 W(24, 32, 3, 3) = ... temp i32 t0(1, 8, 8, 24) out f32 "
     "y(1, 8, 8, 24) "
     "t0(i0:1, i1:8, i2:8, i3:24 | r0:32, r1:3, r2:3) +=! i32(X(i0, i1 + r1, i2 + r2, r0)) * "
     "i32(W(i3, r0, r1, r2)) "
     "y(i0:1, i1:8, i2:8, i3:24) = f32(t0(i0, i1, i2, i3)) * 0.001f32 }",
     &kiln_template_gpu_mma, 1},
    {"tensor cores: a product of signed bytes",
     "p { in i8 X(64, 64) in i8 Z(64, 32) temp i32 t0(64, 32) out i32 y(64, 32) "
     "t0(i0:64, i1:32 | r0:64) +=! i32(X(i0, r0)) * i32(Z(r0, i1)) "
     "y(i0:64, i1:32) = t0(i0, i1) + 1i32 }",
     &kiln_template_gpu_mma, 4},
    {"tensor cores: sums over flattened channels, rows and columns of what is stored otherwise",
     "p { in f16 X(32, 2, 3, 16) const f16 W(24, 96) = ... temp f32 t0(32, 24) out f16 y(32, 24) "
     "t0(i0:32, i1:24 | r0:96) +=! f32(X(i0, r0 / 3 % 2, r0 % 3, r0 / 6)) * f32(W(i1, r0)) "
     "y(i0:32, i1:24) = f16(t0(i0, i1)) }",
     &kiln_template_gpu_mma, 1},
    {"sums in parts: a batch of products, with a residual",
     "p { in f16 X(2, 40, 64) in f16 Z(2, 64, 32) in f16 R(2, 40, 32) temp f32 t0(2, 40, 32) "
     "out f16 y(2, 40, 32) "
     "t0(i0:2, i1:40, i2:32 | r0:64) +=! f32(X(i0, i1, r0)) * f32(Z(i0, r0, i2)) "
     "y(i0:2, i1:40, i2:32) = f16(t0(i0, i1, i2)) + R(i0, i1, i2) }",
     &kiln_template_gpu_parallel_k, 12},
    {"sums in parts: a convolution by constants",
     "p { in f16 X(1, 8, 8, 32) const f16 W(24, 32, 3, 3) = ... temp f32 t0(1, 6, 6, 24) out f16 "
     "y(1, 6, 6, 24) "
     "t0(i0:1, i1:6, i2:6, i3:24 | r0:32, r1:3, r2:3) +=! f32(X(i0, i1 + r1, i2 + r2, r0)) * "
     "f32(W(i3, r0, r1, r2)) "
     "y(i0:1, i1:6, i2:6, i3:24) = f16(t0(i0, i1, i2, i3)) }",
     &kiln_template_gpu_parallel_k, 2},
    {"sums in parts: a convolution with borders, ragged rows",
     "p { in f16 X(1, 5, 5, 32) const f16 W(32, 32, 2) = ... in f16 R(1, 5, 5, 32) "
     "temp f32 t0(1, 5, 5, 32) out f16 y(1, 5, 5, 32) "
     "t0(i0:1, i1:5, i2:5, i3:32 | r0:32, r1:2) +=! f32(i1 + r1 >= 1 ? "
     "X(i0, i1 + r1 - 1, i2, r0) : 0f16) * f32(W(i3, r0, r1)) "
     "y(i0:1, i1:5, i2:5, i3:32) = f16(t0(i0, i1, i2, i3)) + R(i0, i1, i2, i3) }",
     &kiln_template_gpu_parallel_k, 3},
    {"columns that are no multiple of a tile's",
     "p { in f16 X(66, 24) const f16 W(24, 24) = ... in f16 B(24) temp f32 t0(66, 24) out f16 "
     "y(66, 24) t0(i0:66, i1:24 | r0:24) +=! f32(X(i0, r0)) * f32(W(r0, i1)) "
     "y(i0:66, i1:24) = f16(t0(i0, i1)) + B(i1) }",
     &kiln_template_gpu_mma, 6},
    {"few columns of many rows",
     "p { in f16 X(1030, 16) const f16 W(16, 6) = ... temp f32 t0(1030, 6) out f16 y(1030, 6) "
     "t0(i0:1030, i1:6 | r0:16) +=! f32(X(i0, r0)) * f32(W(r0, i1)) "
     "y(i0:1030, i1:6) = f16(t0(i0, i1)) }",
     &kiln_template_gpu_mma, 1},
    {"a product of each batch with an odd column, in parts",
     "p { in f16 X(2, 64, 40) temp f32 t0(2, 16, 17) out f16 y(2, 16, 17) "
     "t0(i0:2, i1:16, i2:17 | r0:64) +=! f32(max(X(i0, r0, i1), 0f16)) * f32(i2 < 16 ? "
     "X(i0, r0, i2 + 16) : 1f16) y(i0:2, i1:16, i2:17) = f16(t0(i0, i1, i2)) }",
     &kiln_template_gpu_parallel_k, 3},
    {"a convolution to three channels",
     "p { in f16 X(32, 34, 8) const f16 W(3, 8, 3, 3) = ... in f32 B(3) temp f32 t0(3, 32, 34) "
     "temp f32 t1(3, 32, 34) out f16 y(3, 32, 34) "
     "t0(i0:3, i1:32, i2:34 | r0:8, r1:3, r2:3) +=! f32(i1 + r1 >= 1 && i1 + r1 < 33 && i2 + r2 "
     ">= 1 && i2 + r2 < 35 ? X(i1 + r1 - 1, i2 + r2 - 1, r0) : 0f16) * f32(W(i0, r0, r1, r2)) "
     "t1(i0:3, i1:32, i2:34) = t0(i0, i1, i2) + B(i0) "
     "y(i0:3, i1:32, i2:34) = f16(max(t1(i0, i1, i2), 0f32)) }",
     &kiln_template_gpu_gemv, 2},
    {"a convolution with strides to one channel",
     "p { in f32 X(66, 68, 4) const f32 W(4, 3, 3) = ... temp f32 t0(32, 33) out f32 y(32, 33) "
     "t0(i1:32, i2:33 | r0:4, r1:3, r2:3) +=! X(i1 * 2 + r1, i2 * 2 + r2, r0) * W(r0, r1, r2) "
     "y(i1:32, i2:33) = max(t0(i1, i2), 0f32) }",
     &kiln_template_gpu_gemv, 1},
    {"a product by a narrow matrix",
     "p { in f16 X(1030, 24) const f16 W(24, 3) = ... temp f32 t0(1030, 3) out f16 y(1030, 3) "
     "t0(i0:1030, i1:3 | r0:24) +=! f32(X(i0, r0)) * f32(W(r0, i1)) "
     "y(i0:1030, i1:3) = f16(t0(i0, i1)) }",
     &kiln_template_gpu_gemv, 1},
    {"a short reduction: a batch of products, with a residual, ragged tiles",
     "p { in f16 X(4, 130, 32) in f16 Z(4, 32, 40) in f16 R(4, 130, 40) temp f32 t0(4, 130, 40) "
     "out f16 y(4, 130, 40) "
     "t0(i0:4, i1:130, i2:40 | r0:32) +=! f32(X(i0, i1, r0)) * f32(Z(i0, r0, i2)) "
     "y(i0:4, i1:130, i2:40) = f16(t0(i0, i1, i2) + f32(R(i0, i1, i2))) }",
     &kiln_template_gpu_small_k, 2},
    {"a short reduction: by constants, a bias",
     "p { in f16 X(512, 32) const f16 W(32, 96) = ... in f32 B(96) temp f32 t0(512, 96) "
     "out f16 y(512, 96) "
     "t0(i0:512, i1:96 | r0:32) +=! f32(X(i0, r0)) * f32(W(r0, i1)) "
     "y(i0:512, i1:96) = f16(max(t0(i0, i1) + B(i1), 0f32)) }",
     &kiln_template_gpu_small_k, 3},
};

static void check_case(size_t row) {
  test_kernel k;
  kiln_lowering w = lowering_open(&k, &machine, cases[row].text);
  kiln_tile_candidates found = {0};
  if (cases[row].family->match) assert_true(cases[row].family->match(&k.cx, &machine, k.prog));
  assert_int_equal(kiln_program_verify(&k.cx, k.prog), KILN_OK);
  w.root = k.prog->stmts.data[k.prog->stmts.n - 1];
  assert_int_equal(cases[row].family->propose(&w, &found), KILN_OK);
  if (found.n < cases[row].n)
    fail_msg("%s: must have %d candidates, got %d", cases[row].name, cases[row].n, found.n);
  for (int i = 0; i < found.n; i++) {
    if (i > 0 && !test_takes(row << 8 | (unsigned)i)) continue;
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &w.s), KILN_OK);
    w.s.instrs = kiln_gpu_instrs(&k.cx, &machine, &w.s.n_instrs);
    lowering_expect_ok(&k, &w, cases[row].family->lower(&w, &found.data[i].tiling));
    kernel_check_replay(&k, &w.s);
    lowering_expect_right(&k, &w);
  }
  kernel_close(&k);
}

static void templates_compute_what_is_asked(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(cases); row++) check_case(row);
}

// A product of a vector by |n| rows of 4096.
static int count_splits(int n) {
  char text[256];
  test_kernel k;
  kiln_tile_candidates found = {0};
  snprintf(text, sizeof text,
           "p { in f32 X(4096) in f32 W(%d, 4096) temp f32 t0(%d) out f32 y(%d) "
           "t0(i0:%d | r0:4096) +=! X(r0) * W(i0, r0) y(i0:%d) = max(t0(i0), 0f32) }",
           n, n, n, n, n);
  kiln_lowering w = lowering_open(&k, &machine, text);
  w.root = k.prog->stmts.data[k.prog->stmts.n - 1];
  assert_int_equal(kiln_template_gpu_grid_reduce.propose(&w, &found), KILN_OK);
  kernel_close(&k);
  return found.n;
}

// One block for every four of them suffices: their parts need no launches of their own.
static void sums_that_keep_all_multiprocessors_busy_are_not_split(void **state) {
  (void)state;
  assert_int_equal(count_splits(4), 1);
  assert_int_equal(count_splits(4 * machine.n_cores - 1), 1);
  assert_int_equal(count_splits(4 * machine.n_cores), 0);
}

// The cost of the cheapest candidate of a product of 32 terms with the epilogue |finish|.
static double cheapest_ns(const kiln_template *family, const char *finish) {
  char text[512];
  test_kernel k;
  kiln_tile_candidates found = {0};
  double ns = INFINITY;
  snprintf(text, sizeof text,
           "p { in f16 X(16384, 32) in f16 W(32, 256) in f16 R(16384, 256) in f16 H(8192, 256) "
           "temp f32 t0(16384, 256) "
           "out f16 y(16384, 256) t0(i0:16384, i1:256 | r0:32) +=! f32(X(i0, r0)) * f32(W(r0, i1)) "
           "y(i0:16384, i1:256) = f16(t0(i0, i1) + %s) }",
           finish);
  kiln_lowering w = lowering_open(&k, &machine, text);
  kiln_product_make(&k.cx, &machine, k.prog);
  w.root = k.prog->stmts.data[k.prog->stmts.n - 1];
  assert_int_equal(family->propose(&w, &found), KILN_OK);
  assert_true(found.n > 0);
  for (int i = 0; i < found.n; i++) ns = fmin(ns, found.data[i].cost.ns);
  kernel_close(&k);
  return ns;
}

static void what_finishes_products_is_read_by_words_where_it_is_much(void **state) {
  static const char residual[] = "f32(R(i0, i1))";
  static const char more[] =
      "f32(R(i0, i1)) + f32(H(i0 / 2, i1)) + f32(H(8191 - i0 / 2, i1)) + f32(R(16383 - i0, i1))";
  static const char rows[] = "f32(R(i0, i1)) + f32(R(i0, 3)) + f32(R(7, i1)) + f32(H(i0 / 2, 5))";
  const kiln_template *pairs = &kiln_template_gpu_small_k, *words = &kiln_template_gpu_parallel_k;
  (void)state;
  assert_true(cheapest_ns(pairs, residual) < cheapest_ns(words, residual));
  assert_true(cheapest_ns(pairs, more) > cheapest_ns(words, more));
  assert_true(cheapest_ns(pairs, rows) < cheapest_ns(words, rows)); // of each row, or column, one
}

static const struct {
  const char *name, *text;
  int launches;
} programs[] = {
    {"a convolution reads its padding through a guard",
     "p { in f32 X(1, 16, 9, 9) const f32 W(16, 16, 3, 3) = ... temp f32 P(1, 16, 11, 11) out f32 "
     "Y(1, 16, 9, 9) "
     "P(i0:1, i1:16, i2:11, i3:11) = i2 >= 1 && i2 < 10 && i3 >= 1 && i3 < 10 ? "
     "X(i0, i1, i2 - 1, i3 - 1) : 0f32 "
     "Y(i0:1, i1:16, i2:9, i3:9 | r0:16, r1:3, r2:3) +=! P(i0, r0, i2 + r1, i3 + r2) * W(i1, r0, "
     "r1, r2) }",
     1},
    {"groups of channels lie between a product's rows and its columns",
     "p { in f16 X(70, 48) const f16 W(3, 16, 16) = ... temp f32 T(70, 3, 16) out f16 Y(70, 3, 16) "
     "T(i0:70, i1:3, i2:16 | r0:16) +=! f32(X(i0, i1 * 16 + r0)) * f32(W(i1, i2, r0)) "
     "Y(i0:70, i1:3, i2:16) = f16(T(i0, i1, i2)) }",
     1},
    {"rows that are rotated twice stay with their sums, and one map moves them",
     "p { in f32 X(8, 16, 32) temp f32 S(8, 16) temp f32 C(8, 16, 32) temp f32 R(8, 16, 32) "
     "out f32 Y(8, 16, 32) "
     "S(i0:8, i1:16 | r0:32) +=! X(i0, i1, r0) * X(i0, i1, r0) "
     "C(i0:8, i1:16, i2:32) = X(i0, i1, i2) / sqrt(S(i0, i1)) "
     "R(i0:8, i1:16, i2:32) = i1 < 13 ? C(i0, i1 + 3, i2) : C(i0, i1 - 13, i2) "
     "Y(i0:8, i1:16, i2:32) = i0 < 6 ? R(i0 + 2, i1, i2) : R(i0 - 6, i1, i2) }",
     2},
    {"windows do, and cast what they read",
     "p { in f16 X(4, 9, 9) temp f32 C(4, 9, 9) temp f32 P(4, 11, 11) out f32 Y(4, 9, 9) "
     "C(i0:4, i1:9, i2:9) = f32(X(i0, i1, i2)) "
     "P(i0:4, i1:11, i2:11) = i1 >= 1 && i1 < 10 && i2 >= 1 && i2 < 10 ? C(i0, i1 - 1, i2 - 1) : "
     "-1f32 "
     "Y(i0:4, i1:9, i2:9 | r0:3, r1:3) max=! P(i0, i1 + r0, i2 + r1) }",
     1},
    {"products read slices and transposes as views",
     "p { in f32 X(20, 64) in f32 B(64, 64) temp f32 C(20, 64) temp f32 Q(20, 32) temp f32 K(32, "
     "20) out f32 Y(2, 20, 20) "
     "C(i0:20, i1:64 | r0:64) +=! X(i0, r0) * B(r0, i1) Q(i0:20, i1:32) = C(i0, i1) K(i0:32, "
     "i1:20) "
     "= C(i1, i0 + 32) "
     "Y(i0:2, i1:20, i2:20 | r0:16) +=! Q(i1, i0 * 16 + r0) * K(i0 * 16 + r0, i2) }",
     2},
    {"a product computes its operand",
     "p { in f32 X(40, 32) in f32 B(32, 32) temp f32 C(40, 32) out f32 Y(40, 32) "
     "C(i0:40, i1:32) = max(X(i0, i1) * 3f32 + 1f32, 0f32) "
     "Y(i0:40, i1:32 | r0:32) +=! C(i0, r0) * B(r0, i1) }",
     1},
    {"what computes an operand joins a product of few columns",
     "p { in f32 X(256, 32) in f32 B(32, 128) temp f32 C(256, 32) out f32 Y(256, 128) "
     "C(i0:256, i1:32) = exp(exp(exp(exp(exp(exp(X(i0, i1) * 0.1f32) * 0.1f32) * 0.1f32) * 0.1f32) "
     "* 0.1f32) * 0.1f32) "
     "Y(i0:256, i1:128 | r0:32) +=! C(i0, r0) * B(r0, i1) }",
     1},
    {"windows compute what they read, once",
     "p { in f32 X(104, 32) const f32 W(32, 5) = ... temp f32 C(104, 32) out f32 Y(100, 32) "
     "C(i0:104, i1:32) = exp(exp(exp(exp(exp(exp(X(i0, i1) * 0.1f32) * 0.1f32) * 0.1f32) * 0.1f32) "
     "* 0.1f32) * 0.1f32) "
     "Y(i0:100, i1:32 | r0:5) +=! C(i0 + r0, i1) * W(i1, r0) }",
     1},
    {"tensors side by side are assembled, their padding is not",
     "p { in f32 X(16, 6, 6) in f32 Z(16, 6, 6) const f32 W(32, 32, 3, 3) = ... temp f32 A(16, 6, "
     "6) temp f32 B(16, 6, 6) temp f32 C(32, 6, 6) temp f32 P(32, 8, 8) out f32 Y(32, 6, 6) "
     "A(i0:16, i1:6, i2:6 | r0:6) +=! X(i0, i1, r0) * X(i0, r0, i2) "
     "B(i0:16, i1:6, i2:6 | r0:6) max=! Z(i0, i1, r0) * Z(i0, r0, i2) "
     "C(i0:32, i1:6, i2:6) = i0 < 16 ? A(i0, i1, i2) : B(i0 - 16, i1, i2) "
     "P(i0:32, i1:8, i2:8) = i1 >= 1 && i1 < 7 && i2 >= 1 && i2 < 7 ? C(i0, i1 - 1, i2 - 1) : 0f32 "
     "Y(i0:32, i1:6, i2:6 | r0:32, r1:3, r2:3) +=! P(r0, i1 + r1, i2 + r2) * W(i0, r0, r1, r2) }",
     3},
    {"neighbours along one axis are added up anew for those along the other",
     "p { in f16 X(1, 24, 20, 20) temp f32 H(1, 24, 40, 20) out f16 Y(1, 24, 40, 40) "
     "H(i0:1, i1:24, i2:40, i3:20) = 0.25f32 * f32(X(i0, i1, max((i2 + 1)/2 - 1, 0), i3)) + "
     "0.75f32 "
     "* f32(X(i0, i1, min((i2 + 1)/2, 19), i3)) "
     "Y(i0:1, i1:24, i2:40, i3:40) = f16(0.25f32 * H(i0, i1, i2, max((i3 + 1)/2 - 1, 0)) + 0.75f32 "
     "* H(i0, i1, i2, min((i3 + 1)/2, 19))) }",
     1},
    {"not so what takes longer than storing it",
     "p { in f16 X(1, 24, 20, 20) temp f32 H(1, 24, 20, 20) out f16 Y(1, 24, 160, 160) "
     "H(i0:1, i1:24, i2:20, i3:20) = 0.25f32 * f32(X(i0, i1, i2, i3)) + 0.75f32 "
     "* f32(X(i0, i1, min(i2 + 1, 19), i3)) "
     "Y(i0:1, i1:24, i2:160, i3:160) = f16(0.25f32 * H(i0, i1, i2/8, i3/8) + 0.75f32 "
     "* H(i0, i1, i2/8, min(i3/8 + 1, 19))) }",
     2},
    {"a padded product channel by channel",
     "p { in f32 X(1, 16, 9, 9) const f32 W(16, 3, 3) = ... temp f32 P(1, 16, 11, 11) temp f32 "
     "C(1, 16, 9, 9) out f32 Y(1, 16, 9, 9) "
     "P(i0:1, i1:16, i2:11, i3:11) = i2 >= 1 && i2 < 10 && i3 >= 1 && i3 < 10 ? "
     "X(i0, i1, i2 - 1, i3 - 1) : 0f32 "
     "C(i0:1, i1:16, i2:9, i3:9 | r1:3, r2:3) +=! P(i0, i1, i2 + r1, i3 + r2) * W(i1, r1, r2) "
     "Y(i0:1, i1:16, i2:9, i3:9) = max(C(i0, i1, i2, i3), 0f32) }",
     1},
};

static void check_program(const char *name, const char *text, int launches, bool by_rules) {
  test_kernel k;
  kiln_kernels kernels;
  const kiln_tile_options options = {.search.n_threads = 1, .search.no_connect = by_rules};
  kernel_open(&k, text, 7);
  if (kiln_pipeline_tile(&k.cx, k.prog, &machine, &options, NULL, &kernels) != KILN_OK)
    fail_msg("%s: %s", name, kernel_message(&k));
  check_launches(&k, &kernels, compare_elements, name);
  if (kernels.launches.n != launches)
    fail_msg("%s: must take %d kernels, got %d", name, launches, kernels.launches.n);
  kernel_close(&k);
}

static void programs_take_few_kernels(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(programs); row++)
    check_program(programs[row].name, programs[row].text, programs[row].launches, false);
}

// A product does not compute what it reads anew for each of its tiles. A fused tile of all columns
// would compute it once.
static void products_of_many_tiles_read_what_is_stored(void **state) {
  (void)state;
  check_program(
      "by rules",
      "p { in f32 X(256, 32) in f32 B(32, 256) temp f32 C(256, 32) out f32 Y(256, 256) "
      "C(i0:256, i1:32) = exp(exp(exp(exp(exp(exp(exp(exp(exp(exp(X(i0, i1) * 0.1f32) * 0.1f32) * "
      "0.1f32) * 0.1f32) * 0.1f32) * 0.1f32) * 0.1f32) * 0.1f32) * 0.1f32) * 0.1f32) "
      "Y(i0:256, i1:256 | r0:32) +=! C(i0, r0) * B(r0, i1) }",
      2, true);
  check_program(
      "what a row's sums give stays with them",
      "p { in f32 X(40, 32) in f32 B(32, 32) temp f32 S(40) temp f32 M(40) temp f32 C(40, 32) out "
      "f32 "
      "Y(40, 32) "
      "S(i0:40 | r0:32) +=! X(i0, r0) M(i0:40) = S(i0) * 0.5f32 C(i0:40, i1:32) = X(i0, i1) - "
      "M(i0) "
      "Y(i0:40, i1:32 | r0:32) +=! C(i0, r0) * B(r0, i1) }",
      2, true);
}

// By the number of statements after producers were inlined.
static const struct {
  const char *name, *text;
  int left;
} absorbed[] = {
    {"rows that are turned stay with their sums",
     "p { in f32 X(16, 32) temp f32 S(16) temp f32 C(16, 32) out f32 Y(32, 16) "
     "S(i0:16 | r0:32) +=! X(i0, r0) * X(i0, r0) "
     "C(i0:16, i1:32) = X(i0, i1) / sqrt(S(i0)) "
     "Y(i0:32, i1:16) = max(C(i1, i0), 0f32) }",
     3},
    {"images whose channels lie side by side are no rows",
     "p { in f32 X(4, 8, 16) temp f32 T(16, 4, 8) temp f32 S(16) temp f32 C(16, 4, 8) "
     "out f32 Y(4, 8, 16) "
     "T(i0:16, i1:4, i2:8) = X(i1, i2, i0) "
     "S(i0:16 | r0:4, r1:8) +=! T(i0, r0, r1) * T(i0, r0, r1) "
     "C(i0:16, i1:4, i2:8) = T(i0, i1, i2) / sqrt(S(i0)) "
     "Y(i0:4, i1:8, i2:16) = max(C(i2, i0, i1), 0f32) }",
     2},
    {"long sums of sums are one, whose terms threads share",
     "p { in f32 X(256, 256, 8) temp f32 T(256, 8) out f32 Y(8) "
     "T(i0:256, i1:8 | r0:256) +=! X(i0, r0, i1) Y(i0:8 | r0:256) +=! T(r0, i0) }",
     1},
};

static void rows_keep_their_maps(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(absorbed); row++) {
    test_kernel k;
    int left = 0, n_absorbed = 0;
    kernel_open(&k, absorbed[row].text, 5);
    assert_int_equal(kiln_tile_inline(&k.cx, k.prog, &machine, &n_absorbed), KILN_OK);
    for (int i = 0; i < k.prog->stmts.n; i++) left += k.prog->stmts.data[i] != NULL;
    if (left != absorbed[row].left)
      fail_msg("%s: %d statements are left", absorbed[row].name, left);
    kernel_close(&k);
  }
}

static const struct {
  const char *name, *text, *tensor;
  int8_t order[5];
} layouts[] = {
    {"halves of a grouped convolution's sums lie with their channels",
     "p { in f16 X(1, 12, 4, 4) const f16 W(12, 4, 1, 1) = ... temp f32 T(1, 3, 4, 4, 4) "
     "temp f16 H(1, 3, 4, 4, 4) out f16 Y(1, 3, 4, 4, 4) "
     "T(i0:1, i1:3, i2:4, i3:4, i4:4 | r0:4, r1:1, r2:1) +=! "
     "f32(X(i0, i1 * 4 + r0, i3 + r1, i4 + r2)) * f32(W(i1 * 4 + i2, r0, r1, r2)) "
     "H(i0:1, i1:3, i2:4, i3:4, i4:4) = f16(T(i0, i1, i2, i3, i4)) "
     "Y(i0:1, i1:3, i2:4, i3:4, i4:4) = exp(H(i0, i1, i2, i3, i4)) }",
     "H",
     {0, 3, 4, 1, 2}},
    {"what a convolution to few channels reads lies channels last",
     "p { in f16 X(1, 8, 4, 40) const f16 W(2, 8, 1, 1) = ... temp f16 R(1, 8, 4, 40) out f32 "
     "Y(1, 2, 4, 40) R(i0:1, i1:8, i2:4, i3:40) = max(X(i0, i1, i2, i3), 0f16) "
     "Y(i0:1, i1:2, i2:4, i3:40 | r0:8, r1:1, r2:1) +=! f32(R(i0, r0, i2 + r1, i3 + r2)) * "
     "f32(W(i1, r0, r1, r2)) }",
     "R",
     {0, 2, 3, 1}},
    {"so do results of tokens, whose channels lie behind pixels that are one axis",
     "p { in f16 X(2, 64, 16) const f16 W(8, 16, 2, 2) = ... temp f32 T(2, 8, 4, 4) temp f16 H(2, "
     "8, 4, 4) out f16 Y(2, 16, 8) "
     "T(i0:2, i1:8, i2:4, i3:4 | r0:16, r1:2, r2:2) +=! f32(X(i0, i2 * 16 + r1 * 8 + i3 * 2 + r2, "
     "r0)) * f32(W(i1, r0, r1, r2)) "
     "H(i0:2, i1:8, i2:4, i3:4) = f16(T(i0, i1, i2, i3)) "
     "Y(i0:2, i1:16, i2:8) = exp(H(i0, i2, i1 / 4, i1 % 4)) }",
     "H",
     {0, 2, 3, 1}},
    {"products of tokens have theirs there",
     "p { in f16 X(2, 64, 16) const f16 W(16, 32) = ... temp f32 T(2, 64, 32) out f16 Y(2, 64, 32) "
     "T(i0:2, i1:64, i2:32 | r0:16) +=! f32(X(i0, i1, r0)) * f32(W(r0, i2)) "
     "Y(i0:2, i1:64, i2:32) = f16(exp(T(i0, i1, i2))) }",
     "T",
     {0, 1, 2}},
};

static void channels_are_stored_last(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(layouts); row++) {
    test_kernel k;
    kernel_open(&k, layouts[row].text, 7);
    assert_int_equal(kiln_tile_layout(&k.cx, k.prog, &machine), KILN_OK);
    for (int i = 0; i < k.prog->tensors.n; i++) {
      const kiln_tensor *t = k.prog->tensors.data[i];
      if (t->name != kiln_symbol_of(&k.cx, layouts[row].tensor)) continue;
      for (int d = 0; d < t->rank; d++)
        if (t->order[d] != layouts[row].order[d])
          fail_msg("%s: axis %d is %d", layouts[row].name, d, t->order[d]);
    }
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(templates_compute_what_is_asked),
      cmocka_unit_test(sums_that_keep_all_multiprocessors_busy_are_not_split),
      cmocka_unit_test(what_finishes_products_is_read_by_words_where_it_is_much),
      cmocka_unit_test(channels_are_stored_last),
      cmocka_unit_test(programs_take_few_kernels),
      cmocka_unit_test(products_of_many_tiles_read_what_is_stored),
      cmocka_unit_test(rows_keep_their_maps)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

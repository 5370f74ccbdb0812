// A library call: a matrix product or convolution with its epilogue, described by numbers, so that
// a plan can store it as text.
//
// Elements of the result c are sums of products of elements of a and b, to which the posts are
// applied in order. All is computed in f32, whatever the stored types, and rounded once. A product
// has the axes
//     batch[0..n_batch)   of c, and of a, b or both (stride 0: not of that one)
//     m                   of a and c
//     n                   of b and c, contiguous in c
//     k                   of a and b, summed over
// and a convolution has batch[0], its images; batch[1], its groups; n, the result's channels of a
// group (of b and c); k, the input's channels of a group (of a and b); and a window along height
// and one along width. Strides are in elements. A parsed call has extents of at least 1 and strides
// of at least 0.
#ifndef KILN_BACKEND_LIBRARY_CALL_H
#define KILN_BACKEND_LIBRARY_CALL_H

#include "kiln/status.h"

#include <stdbool.h>

enum { KILN_CALL_BATCH = 4, KILN_CALL_POSTS = 4, KILN_CALL_AXES = KILN_CALL_BATCH + 3 };

typedef enum kiln_library_call_kind {
  KILN_CALL_PRODUCT,
  KILN_CALL_CONVOLUTION
} kiln_library_call_kind;

// The stored type of elements.
typedef enum kiln_library_call_type {
  KILN_CALL_F32,
  KILN_CALL_TF32, // f32; products may round their operands to 10 bits of fraction
  KILN_CALL_F16,
  KILN_CALL_BF16,
  KILN_N_CALL_TYPES
} kiln_library_call_type;
int64_t kiln_library_call_type_bytes(kiln_library_call_type t);

// The begin of a tensor: an offset in elements into an argument of the launch.
typedef struct kiln_library_call_tensor {
  int64_t arg, offset;
  kiln_library_call_type type;
} kiln_library_call_tensor;

// An argument that the kernel may use as workspace; no bytes: there is none.
typedef struct kiln_library_call_workspace {
  int64_t arg, bytes;
} kiln_library_call_workspace;

typedef struct kiln_library_call_axis {
  int64_t extent, a, b, c; // |a|, |b|, |c|: strides in the tensors
} kiln_library_call_axis;

// Element i of |out| in c reads the elements stride*i - pad + dilation*r of a, r < |kernel|;
// elements outside of [0, |in|) are zero.
typedef struct kiln_library_call_window {
  int64_t out, in, kernel, stride, dilation, pad;
  int64_t a, b, c; // strides in the tensors
} kiln_library_call_window;

typedef enum kiln_library_call_post_kind {
  KILN_POST_SCALE, // x * low
  KILN_POST_ADD,   // x + an element of a tensor
  KILN_POST_CLIP,  // min(max(x, low), high)
  KILN_POST_SILU,  // x / (1 + exp(-x))
  KILN_POST_GELU,  // x / 2 * (1 + erf(x / sqrt 2))
  KILN_POST_SIGMOID,
  KILN_POST_TANH,
  KILN_POST_GELU_TANH, // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
  KILN_N_POSTS
} kiln_library_call_post_kind;

typedef struct kiln_library_call_post {
  kiln_library_call_post_kind kind;
  float low, high;
  kiln_library_call_tensor tensor;
  // along batch, m or height, width, n; 0 along axes that it is broadcast over
  int64_t strides[KILN_CALL_AXES];
} kiln_library_call_post;
enum { KILN_CALL_M = KILN_CALL_BATCH, KILN_CALL_W, KILN_CALL_N }; // positions among the axes

typedef struct kiln_library_call {
  kiln_library_call_kind kind;
  kiln_library_call_tensor a, b, c;
  int n_batch; // of a product; 2 for a convolution
  kiln_library_call_axis batch[KILN_CALL_BATCH], m, n, k;
  kiln_library_call_window window[2];
  int n_posts;
  kiln_library_call_post posts[KILN_CALL_POSTS];
  kiln_library_call_workspace workspace;
} kiln_library_call;

// The text of a call, for example
//     product a 0:0 b 1:0 c 3:0 m 128:3072:0:768 n 768:0:1:1 k 3072:1:768:0 add 2:0:0:0:0:0:0:0:1
//     clip 0:7f800000
// with floats as bits. Types other than f32 are suffixes, as a.f16; workspace 4:1048576 comes last.
//
// gives: the length of the text, as snprintf
size_t kiln_library_call_print(const kiln_library_call *call, char *text, size_t room);
// gives: false if |text| is no valid call
bool kiln_library_call_parse(const char *text, kiln_library_call *out);
// Whether all accesses of the call are within its arguments.
bool kiln_library_call_fits(const kiln_library_call *call, uint32_t n_args, const uint64_t *bytes);

// Whether all its tensors are f32, and products are not rounded.
bool kiln_library_call_is_f32(const kiln_library_call *call);

// The extents of the result along each axis; 1 along axes that the call lacks.
void kiln_library_call_extents(const kiln_library_call *call, int64_t extents[KILN_CALL_AXES]);
// Whether |p| adds a contiguous vector along n, or along the channels of all groups, broadcast
// along other axes.
bool kiln_library_call_is_bias(const kiln_library_call *call, const kiln_library_call_post *p);
// Whether the channels of consecutive groups are contiguous.
bool kiln_library_call_walks_on(int64_t groups, int64_t by_group, int64_t channels,
                                int64_t by_channel);

// A matrix in memory: row-major, or column-major (is_turned), and the distance of its rows or
// columns in elements.
typedef struct kiln_library_call_matrix {
  bool is_turned;
  int64_t leading;
} kiln_library_call_matrix;
// The matrices a (m x k), b (k x n) and c (m x n) of a product; false if one is no such matrix, or
// c not row-major.
bool kiln_library_call_matrices(const kiln_library_call *call, kiln_library_call_matrix *out_a,
                                kiln_library_call_matrix *out_b, kiln_library_call_matrix *out_c);

// Splits the call into independent parts: along its longest batch axis, or its rows or columns.
//
// gives: the number of parts, at most |most|
int kiln_library_call_parts(const kiln_library_call *call, int most);
// Part |part| of |n|, a number that kiln_library_call_parts gave.
kiln_library_call kiln_library_call_part(const kiln_library_call *call, int n, int part);

#endif

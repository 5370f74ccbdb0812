// A library call: a matrix product or a convolution with its epilogue, described by plain numbers,
// so that a plan can store it as text.
//
// The elements of the result c, an axis for each way to walk through it, are sums of products of
// those of a and b, and what the posts make of these one after the other, in f32 whatever type the
// elements are stored as, and rounded once. A product has the axes
//     batch[0..n_batch)   of c, and of a, b or both (a stride of 0: not of that one)
//     m                   of a and c
//     n                   of b and c, side by side in c
//     k                   of a and b, which is summed over
// and a convolution batch[0], its images, batch[1], its groups, n, a group's channels of the result
// (of b and c), k, a group's channels that are read (of a and b), and a window for its height and
// one for its width. Strides count elements. A call that was parsed has sizes of at least 1 and
// strides of at least 0.
#ifndef KILN_BACKEND_LIBRARY_CALL_H
#define KILN_BACKEND_LIBRARY_CALL_H

#include "kiln/status.h"

#include <stdbool.h>

enum { KILN_CALL_BATCH = 4, KILN_CALL_POSTS = 4, KILN_CALL_AXES = KILN_CALL_BATCH + 3 };

typedef enum kiln_library_call_kind {
  KILN_CALL_PRODUCT,
  KILN_CALL_CONVOLUTION
} kiln_library_call_kind;

// What elements are stored as.
typedef enum kiln_library_call_type {
  KILN_CALL_F32,
  KILN_CALL_TF32, // f32, which products may round to 10 bits behind the point before they multiply
  KILN_CALL_F16,
  KILN_CALL_BF16,
  KILN_N_CALL_TYPES
} kiln_library_call_type;
int64_t kiln_library_call_type_bytes(kiln_library_call_type t);

// Where a tensor begins: so many elements behind the begin of an argument of the launch.
typedef struct kiln_library_call_tensor {
  int64_t arg, offset;
  kiln_library_call_type type;
} kiln_library_call_tensor;

// Memory that the kernel may use while it runs, all of an argument; no bytes: it gets none.
typedef struct kiln_library_call_workspace {
  int64_t arg, bytes;
} kiln_library_call_workspace;

typedef struct kiln_library_call_axis {
  int64_t extent, a, b, c; // and strides in the tensors
} kiln_library_call_axis;

// c's |out| elements read a's from |stride| times their number minus |pad| on, |kernel| of them,
// each |dilation| behind the one before; zero stands before the first of |in| and behind the last.
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
  int64_t
      strides[KILN_CALL_AXES]; // batch, m or height, width, n; 0 along axes that it is repeated for
} kiln_library_call_post;
enum { KILN_CALL_M = KILN_CALL_BATCH, KILN_CALL_W, KILN_CALL_N }; // places among the axes

typedef struct kiln_library_call {
  kiln_library_call_kind kind;
  kiln_library_call_tensor a, b, c;
  int n_batch; // of a product; a convolution has 2
  kiln_library_call_axis batch[KILN_CALL_BATCH], m, n, k;
  kiln_library_call_window window[2];
  int n_posts;
  kiln_library_call_post posts[KILN_CALL_POSTS];
  kiln_library_call_workspace workspace;
} kiln_library_call;

// As in
//     product a 0:0 b 1:0 c 3:0 m 128:3072:0:768 n 768:0:1:1 k 3072:1:768:0 add 2:0:0:0:0:0:0:0:1
//     clip 0:7f800000
// with the bits of floats; types other than f32 stand behind the tensors, a.f16, and workspace
// 4:1048576 last.
//
// gives: as snprintf, how long the text is
size_t kiln_library_call_print(const kiln_library_call *call, char *text, size_t room);
// gives: false where |text| is no such call
bool kiln_library_call_parse(const char *text, kiln_library_call *out);
// Whether all that the call reads and writes lies inside its arguments.
bool kiln_library_call_fits(const kiln_library_call *call, uint32_t n_args, const uint64_t *bytes);

// Whether all its tensors are stored as f32, to be multiplied as that.
bool kiln_library_call_is_f32(const kiln_library_call *call);

// How many elements the result has along each axis; 1 along those that the call has not.
void kiln_library_call_extents(const kiln_library_call *call, int64_t extents[KILN_CALL_AXES]);
// Whether |p| adds neighbours along n, or along the channels of all groups, the same everywhere
// else.
bool kiln_library_call_is_bias(const kiln_library_call *call, const kiln_library_call_post *p);
// Whether the channels of groups lie one behind the other.
bool kiln_library_call_walks_on(int64_t groups, int64_t by_group, int64_t channels,
                                int64_t by_channel);

// How a matrix lies in memory: one element behind the other in its rows, or in its columns
// (is_turned), and these so many elements apart.
typedef struct kiln_library_call_matrix {
  bool is_turned;
  int64_t leading;
} kiln_library_call_matrix;
// a (m x k), b (k x n) and c (m x n) of a product, if they are such matrices, and c in rows.
bool kiln_library_call_matrices(const kiln_library_call *call, kiln_library_call_matrix *out_a,
                                kiln_library_call_matrix *out_b, kiln_library_call_matrix *out_c);

// The call in parts that can be computed at the same time: of its longest batch, or else of its
// rows or columns.
//
// gives: how many there are, of |most|
int kiln_library_call_parts(const kiln_library_call *call, int most);
// Part |part| of |n|, kiln_library_call_parts of it.
kiln_library_call kiln_library_call_part(const kiln_library_call *call, int n, int part);

#endif

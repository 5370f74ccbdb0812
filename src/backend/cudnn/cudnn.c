// cuDNN: convolutions with epilogues on NVIDIA's GPUs.
//
// A call becomes a graph of cuDNN's operations: the convolution, and one operation for each post.
// All parameters are attributes of descriptors; types and numbers are from NVIDIA's documentation
// of cuDNN 9, whose header is not needed.
//
// A kernel is the first execution plan that the library's heuristic proposes whose workspace is
// available and which declares f32 sums, determinism, and no rounding of f32 to TF32 unless the
// call says so. Values between operations are f32. A handle may be used by one thread at a time and
// is shared, so a lock is held during its use.
#include "backend/nvidia.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
  LEAST_VERSION = 90000,
  NOT_SUPPORTED = 3000, // and any other number from 3000 to 3999
  // data types
  DATA_FLOAT = 0,
  DATA_HALF = 2,
  DATA_BFLOAT16 = 9,
  // descriptors
  POINTWISE = 0,
  CONVOLUTION = 1,
  ENGINE = 2,
  ENGINE_CONFIG = 3,
  HEURISTIC = 4,
  PLAN = 5,
  CONVOLUTION_FORWARD = 10,
  OPERATION_POINTWISE = 13,
  GRAPH = 15,
  VARIANT_PACK = 16,
  TENSOR = 17,
  // types of attributes
  TYPE_HANDLE = 0,
  TYPE_DATA_TYPE = 1,
  TYPE_BOOLEAN = 2,
  TYPE_INT64 = 3,
  TYPE_FLOAT = 4,
  TYPE_DOUBLE = 5,
  TYPE_POINTER = 6,
  TYPE_CONVOLUTION_MODE = 7,
  TYPE_HEURISTIC_MODE = 8,
  TYPE_NOTE = 11,
  TYPE_POINTWISE_MODE = 14,
  TYPE_DESCRIPTOR = 15,
  // attributes
  POINTWISE_MODE = 0,
  POINTWISE_PRECISION = 1,
  POINTWISE_UPPER_CLIP = 4,
  CONVOLUTION_TYPE = 100,
  CONVOLUTION_MODE = 101,
  CONVOLUTION_DILATIONS = 102,
  CONVOLUTION_STRIDES = 103,
  CONVOLUTION_PADDING_BEHIND = 104,
  CONVOLUTION_PADDING = 105,
  CONVOLUTION_RANK = 106,
  HEURISTIC_MODE = 200,
  HEURISTIC_GRAPH = 201,
  HEURISTIC_RESULTS = 202,
  CONFIG_ENGINE = 300,
  PLAN_HANDLE = 400,
  PLAN_CONFIG = 401,
  PLAN_WORKSPACE = 402,
  FORWARD_ALPHA = 700,
  FORWARD_BETA = 701,
  FORWARD_CONVOLUTION = 702,
  FORWARD_W = 703,
  FORWARD_X = 704,
  FORWARD_Y = 705,
  APPLY_POINTWISE = 750,
  APPLY_X = 751,
  APPLY_B = 752,
  APPLY_Y = 753,
  GRAPH_HANDLE = 800,
  GRAPH_OPERATIONS = 801,
  TENSOR_ALIGNMENT = 900,
  TENSOR_TYPE = 901,
  TENSOR_DIMS = 902,
  TENSOR_STRIDES = 903,
  TENSOR_ID = 906,
  TENSOR_IS_VIRTUAL = 907,
  PACK_IDS = 1000,
  PACK_POINTERS = 1001,
  PACK_WORKSPACE = 1003,
  ENGINE_NOTES = 1303,
  // values
  CROSS_CORRELATION = 1,
  MODE_FALLBACK = 2,
  MODE_A = 3,
  ADD = 0,
  RELU = 100,
  TANH = 101,
  SIGMOID = 102,
  GELU = 104,
  SWISH = 106,
  GELU_TANH = 107,
  NOTE_TENSOR_CORE = 0,
  NOTE_DOWN_CONVERTS = 1,
  NOTE_SUMS_NARROWLY = 2,
  NOTE_NOT_DETERMINISTIC = 4,
  MOST_NOTES = 32,
  MOST_CONFIGS = 64
};

typedef int status;

typedef struct library {
  kiln_nvidia base;
  status (*set_stream)(void *handle, void *stream);
  status (*make)(int kind, void **out);
  status (*drop)(void *descriptor);
  status (*finalize)(void *descriptor);
  status (*set)(void *descriptor, int attribute, int type, int64_t n, const void *values);
  status (*get)(void *descriptor, int attribute, int type, int64_t room, int64_t *out_n, void *out);
  status (*execute)(void *handle, void *plan, void *pack);
} library;

static const kiln_library_entry entries[] = {
    {"cudnnGetVersion", offsetof(library, base.version)},
    {"cudnnGetErrorString", offsetof(library, base.status_name)},
    {"cudnnCreate", offsetof(library, base.create)},
    {"cudnnDestroy", offsetof(library, base.destroy)},
    {"cudnnSetStream", offsetof(library, set_stream)},
    {"cudnnBackendCreateDescriptor", offsetof(library, make)},
    {"cudnnBackendDestroyDescriptor", offsetof(library, drop)},
    {"cudnnBackendFinalize", offsetof(library, finalize)},
    {"cudnnBackendSetAttribute", offsetof(library, set)},
    {"cudnnBackendGetAttribute", offsetof(library, get)},
    {"cudnnBackendExecute", offsetof(library, execute)},
    {0},
};

// --- supported calls ---

// of weights: output channels, input channels, rows, columns
enum { IMAGES, CHANNELS, ROWS, COLUMNS, RANK };

typedef struct tensor {
  const kiln_library_call_tensor *at;
  int64_t dims[RANK], strides[RANK];
} tensor;

typedef enum layout { CHANNELS_LAST, CHANNELS_FIRST, N_LAYOUTS } layout;
static const int orders[N_LAYOUTS][RANK] = {{CHANNELS, COLUMNS, ROWS, IMAGES},
                                            {COLUMNS, ROWS, CHANNELS, IMAGES}};

// A call in cuDNN's terms.
typedef struct convolution {
  tensor x, w, y, posts[KILN_CALL_POSTS]; // |posts|: tensors of posts that add
  int64_t strides[2], dilations[2], front[2], back[2];
} convolution;

// Whether the elements of |t| are dense in that layout; axes of extent 1 get the strides that they
// would have in it.
static bool lies(tensor *t, layout l) {
  int64_t step = 1;
  for (int i = 0; i < RANK; i++) {
    const int axis = orders[l][i];
    if (t->dims[axis] > 1 && t->strides[axis] != step) return false;
    t->strides[axis] = step;
    step *= t->dims[axis];
  }
  return true;
}

static int64_t channel_stride(const kiln_library_call_axis *groups, int64_t by_group,
                              int64_t channels, int64_t by_channel) {
  return channels > 1 || groups->extent == 1 ? by_channel : by_group;
}

static void shape(const kiln_library_call *c, convolution *out) {
  const kiln_library_call_axis *images = &c->batch[0], *groups = &c->batch[1];
  const kiln_library_call_window *h = &c->window[0], *w = &c->window[1];
  const int64_t by_k = channel_stride(groups, groups->a, c->k.extent, c->k.a),
                by_n = channel_stride(groups, groups->c, c->n.extent, c->n.c);
  out->x = (tensor){&c->a,
                    {images->extent, groups->extent * c->k.extent, h->in, w->in},
                    {images->a, by_k, h->a, w->a}};
  out->w = (tensor){&c->b,
                    {groups->extent * c->n.extent, c->k.extent, h->kernel, w->kernel},
                    {channel_stride(groups, groups->b, c->n.extent, c->n.b), c->k.b, h->b, w->b}};
  out->y = (tensor){&c->c,
                    {images->extent, groups->extent * c->n.extent, h->out, w->out},
                    {images->c, by_n, h->c, w->c}};
}

// The number of results of |in| elements.
static int64_t results_of(const kiln_library_call_window *w, int64_t in) {
  const int64_t wide = (w->kernel - 1) * w->dilation;
  return in > wide ? (in - wide - 1) / w->stride + 1 : 0;
}

// Finds the padding after the last element. It is made equal to that before the first if the number
// of results stays the same, because most kernels of the library support only equal padding.
static bool pad(const kiln_library_call_window *w, int64_t in, int64_t *front, int64_t *back) {
  const int64_t needed = (w->out - 1) * w->stride + (w->kernel - 1) * w->dilation + 1 - w->pad - in;
  *front = *back = w->pad;
  if (results_of(w, in + 2 * w->pad) != w->out) *back = needed > 0 ? needed : 0;
  return results_of(w, in + w->pad + *back) == w->out;
}

// The shape of a post's tensor: a bias along channels, or a tensor with the result's layout.
static bool shape_added(const kiln_library_call *c, const kiln_library_call_post *p,
                        convolution *io) {
  tensor *t = &io->posts[p - c->posts];
  int64_t extents[KILN_CALL_AXES];
  *t = io->y;
  t->at = &p->tensor;
  kiln_library_call_extents(c, extents);
  if (kiln_library_call_is_bias(c, p)) {
    t->dims[IMAGES] = t->dims[ROWS] = t->dims[COLUMNS] = 1;
    t->strides[CHANNELS] = 1;
    return true;
  }
  const int64_t like[KILN_CALL_AXES] = {c->batch[0].c,  c->batch[1].c,  0,     0,
                                        c->window[0].c, c->window[1].c, c->n.c};
  for (int i = 0; i < KILN_CALL_AXES; i++)
    if (extents[i] > 1 && p->strides[i] != like[i]) return false;
  return true;
}

// The library's operation for a post; -1 if it has none.
static int mode_of(const kiln_library_call_post *p) {
  switch (p->kind) {
  case KILN_POST_ADD: return ADD;
  case KILN_POST_CLIP: return p->low == 0 ? RELU : -1;
  case KILN_POST_SILU: return SWISH;
  case KILN_POST_GELU: return GELU;
  case KILN_POST_SIGMOID: return SIGMOID;
  case KILN_POST_TANH: return TANH;
  case KILN_POST_GELU_TANH: return GELU_TANH;
  case KILN_POST_SCALE:
  case KILN_N_POSTS: break;
  }
  return -1;
}

static bool posts_fit(const kiln_library_call *c) {
  for (int i = 0; i < c->n_posts; i++)
    if (mode_of(&c->posts[i]) < 0 ||
        (c->posts[i].kind == KILN_POST_ADD && c->posts[i].tensor.type != c->c.type))
      return false;
  return true;
}

// Channels-first kernels support one pattern only: a tensor, a bias, which is required, and relu
// last.
static bool is_fixed_pattern(const kiln_library_call *c) {
  int n_bias = 0, n_added = 0;
  for (int i = 0; i < c->n_posts; i++) {
    const kiln_library_call_post *p = &c->posts[i];
    if (p->kind == KILN_POST_ADD) *(kiln_library_call_is_bias(c, p) ? &n_bias : &n_added) += 1;
    else if (p->kind != KILN_POST_CLIP || i + 1 < c->n_posts) return false;
  }
  return n_bias == (c->n_posts > 0) && n_added <= 1;
}

static bool types_fit(const kiln_library_call *c) {
  return c->a.type == c->b.type &&
         c->c.type == (c->a.type == KILN_CALL_TF32 ? KILN_CALL_F32 : c->a.type);
}

static bool groups_fit(const kiln_library_call *c) {
  const kiln_library_call_axis *g = &c->batch[1];
  return kiln_library_call_walks_on(g->extent, g->a, c->k.extent, c->k.a) &&
         kiln_library_call_walks_on(g->extent, g->b, c->n.extent, c->n.b) &&
         kiln_library_call_walks_on(g->extent, g->c, c->n.extent, c->n.c);
}

static bool describe_as(const kiln_library_call *c, layout l, convolution *out) {
  shape(c, out);
  for (int i = 0; i < 2; i++) {
    out->strides[i] = c->window[i].stride;
    out->dilations[i] = c->window[i].dilation;
    if (!pad(&c->window[i], out->x.dims[ROWS + i], &out->front[i], &out->back[i])) return false;
  }
  for (int i = 0; i < c->n_posts; i++)
    if (c->posts[i].kind == KILN_POST_ADD &&
        !(shape_added(c, &c->posts[i], out) && lies(&out->posts[i], l)))
      return false;
  return lies(&out->x, l) && lies(&out->w, l) && lies(&out->y, l);
}

// gives: false if cuDNN does not support the convolution
static bool describe(const kiln_library_call *c, convolution *out) {
  if (c->kind != KILN_CALL_CONVOLUTION || !types_fit(c) || !groups_fit(c) || !posts_fit(c))
    return false;
  return describe_as(c, CHANNELS_LAST, out) ||
         (is_fixed_pattern(c) && describe_as(c, CHANNELS_FIRST, out));
}

static bool takes(const kiln_library_call *c) {
  convolution unused;
  return describe(c, &unused);
}

static int64_t elems_of(const tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < RANK; i++)
    if (__builtin_mul_overflow(n, t->dims[i], &n)) return INT64_MAX;
  return n;
}

// For partial sums, and for all operands in another layout.
static int64_t workspace(const kiln_library_call *c) {
  const int64_t least = 4 << 20, most = 64 << 20;
  convolution x;
  int64_t elems[3] = {0}, bytes = least;
  if (describe(c, &x))
    elems[0] = elems_of(&x.x), elems[1] = elems_of(&x.w), elems[2] = elems_of(&x.y);
  for (int i = 0; i < 3; i++)
    if (elems[i] > most || (bytes += 2 * (int64_t)sizeof(float) * elems[i]) > most) return most;
  return bytes;
}

// --- the library ---

static kiln_status open_library(const char *file, kiln_diag *diag, void **out) {
  const kiln_status st =
      kiln_library_create(file, "KILN_CUDNN", entries, sizeof(library), diag, out);
  return st == KILN_OK ? kiln_nvidia_start(file, "cuDNN 9", LEAST_VERSION, diag, out) : st;
}

// --- descriptors ---

enum {
  MOST_TENSORS = 3 + KILN_CALL_POSTS,
  // the plan and a variant pack
  MOST_DESCRIPTORS = 5 + 4 * (1 + KILN_CALL_POSTS) + 2 * (1 + MOST_CONFIGS) + 2
};

typedef struct kernel {
  library *l;
  kiln_library_call call;
  int n_tensors, n_made;
  int64_t ids[MOST_TENSORS];
  const kiln_library_call_tensor *at[MOST_TENSORS]; // the tensors' arguments in |call|
  void *made[MOST_DESCRIPTORS], *plan;
  status status; // of the first failed step
} kernel;

typedef struct attribute {
  int name, type;
  int64_t n;
  const void *values;
} attribute;

static bool step(kernel *k, status s) {
  if (!k->status) k->status = s;
  return !k->status;
}

static void drop_last(kernel *k) { (void)k->l->drop(k->made[--k->n_made]); }

// Creates a descriptor without attributes, which the kernel owns; NULL on failure.
static void *make_empty(kernel *k, int kind) {
  void **made = &k->made[k->n_made];
  if (k->status || !step(k, k->l->make(kind, made))) return NULL;
  k->n_made++;
  return *made;
}

// Creates and finalizes a descriptor with the attributes before the first one without values.
static void *make_descriptor(kernel *k, int kind, const attribute *a) {
  void *made = make_empty(k, kind);
  for (; made && a->values; a++)
    if (!step(k, k->l->set(made, a->name, a->type, a->n, a->values))) return NULL;
  return made && step(k, k->l->finalize(made)) ? made : NULL;
}

static int data_type(kiln_library_call_type t) {
  return t == KILN_CALL_F16 ? DATA_HALF : t == KILN_CALL_BF16 ? DATA_BFLOAT16 : DATA_FLOAT;
}

static int64_t alignment_of(const kiln_library_call_tensor *t) {
  const int64_t begin = t->offset * kiln_library_call_type_bytes(t->type);
  int64_t align = KILN_BACKEND_ALIGN;
  while (begin % align) align /= 2;
  return align;
}

// The factors are declared with equal alignment; otherwise kernels that are compiled at run time
// read wrong weights (cuDNN 9).
static int64_t alignment_in(const kiln_library_call *c, const kiln_library_call_tensor *t) {
  const int64_t own = alignment_of(t);
  if (t != &c->a && t != &c->b) return own;
  const int64_t other = alignment_of(t == &c->a ? &c->b : &c->a);
  return own < other ? own : other;
}

// |at| NULL: a virtual tensor between two operations.
static void *make_tensor(kernel *k, const tensor *t, const kiln_library_call_tensor *at) {
  const int64_t id = k->n_made + 1, align = at ? alignment_in(&k->call, at) : KILN_BACKEND_ALIGN;
  const int type = at ? data_type(at->type) : DATA_FLOAT;
  const bool is_virtual = !at;
  if (at) {
    k->ids[k->n_tensors] = id;
    k->at[k->n_tensors++] = at;
  }
  return make_descriptor(k, TENSOR,
                         (attribute[]){{TENSOR_ID, TYPE_INT64, 1, &id},
                                       {TENSOR_ALIGNMENT, TYPE_INT64, 1, &align},
                                       {TENSOR_TYPE, TYPE_DATA_TYPE, 1, &type},
                                       {TENSOR_DIMS, TYPE_INT64, RANK, t->dims},
                                       {TENSOR_STRIDES, TYPE_INT64, RANK, t->strides},
                                       {TENSOR_IS_VIRTUAL, TYPE_BOOLEAN, 1, &is_virtual},
                                       {0}});
}

static void *make_convolution(kernel *k, const convolution *c, void *y) {
  const int64_t rank = 2;
  const int type = DATA_FLOAT, mode = CROSS_CORRELATION;
  const float one = 1, zero = 0;
  void *x = make_tensor(k, &c->x, c->x.at), *w = make_tensor(k, &c->w, c->w.at);
  void *how = make_descriptor(k, CONVOLUTION,
                              (attribute[]){{CONVOLUTION_TYPE, TYPE_DATA_TYPE, 1, &type},
                                            {CONVOLUTION_MODE, TYPE_CONVOLUTION_MODE, 1, &mode},
                                            {CONVOLUTION_RANK, TYPE_INT64, 1, &rank},
                                            {CONVOLUTION_DILATIONS, TYPE_INT64, 2, c->dilations},
                                            {CONVOLUTION_STRIDES, TYPE_INT64, 2, c->strides},
                                            {CONVOLUTION_PADDING, TYPE_INT64, 2, c->front},
                                            {CONVOLUTION_PADDING_BEHIND, TYPE_INT64, 2, c->back},
                                            {0}});
  return make_descriptor(k, CONVOLUTION_FORWARD,
                         (attribute[]){{FORWARD_CONVOLUTION, TYPE_DESCRIPTOR, 1, &how},
                                       {FORWARD_X, TYPE_DESCRIPTOR, 1, &x},
                                       {FORWARD_W, TYPE_DESCRIPTOR, 1, &w},
                                       {FORWARD_Y, TYPE_DESCRIPTOR, 1, &y},
                                       {FORWARD_ALPHA, TYPE_FLOAT, 1, &one},
                                       {FORWARD_BETA, TYPE_FLOAT, 1, &zero},
                                       {0}});
}

static void *make_pointwise(kernel *k, const kiln_library_call_post *p) {
  const int mode = mode_of(p), precision = DATA_FLOAT;
  const double high = (double)p->high;
  const bool is_clipped = p->kind == KILN_POST_CLIP && p->high != INFINITY;
  return make_descriptor(
      k, POINTWISE,
      (attribute[]){{POINTWISE_MODE, TYPE_POINTWISE_MODE, 1, &mode},
                    {POINTWISE_PRECISION, TYPE_DATA_TYPE, 1, &precision},
                    {POINTWISE_UPPER_CLIP, TYPE_DOUBLE, 1, is_clipped ? &high : NULL},
                    {0}});
}

// Makes the operation of post |i| from |x| to |y|.
static void *make_post(kernel *k, const convolution *c, int i, void *x, void *y) {
  const kiln_library_call_post *p = &k->call.posts[i];
  void *how = make_pointwise(k, p);
  void *b = p->kind == KILN_POST_ADD ? make_tensor(k, &c->posts[i], c->posts[i].at) : NULL;
  return make_descriptor(k, OPERATION_POINTWISE,
                         (attribute[]){{APPLY_POINTWISE, TYPE_DESCRIPTOR, 1, &how},
                                       {APPLY_X, TYPE_DESCRIPTOR, 1, &x},
                                       {APPLY_Y, TYPE_DESCRIPTOR, 1, &y},
                                       {APPLY_B, TYPE_DESCRIPTOR, 1, b ? &b : NULL},
                                       {0}});
}

static void *make_graph(kernel *k, const convolution *c) {
  const int n = k->call.n_posts;
  void *operations[1 + KILN_CALL_POSTS], *values[1 + KILN_CALL_POSTS];
  for (int i = 0; i <= n; i++) values[i] = make_tensor(k, &c->y, i == n ? c->y.at : NULL);
  operations[0] = make_convolution(k, c, values[0]);
  for (int i = 0; i < n; i++) operations[1 + i] = make_post(k, c, i, values[i], values[1 + i]);
  return make_descriptor(k, GRAPH,
                         (attribute[]){{GRAPH_HANDLE, TYPE_HANDLE, 1, &k->l->base.handle},
                                       {GRAPH_OPERATIONS, TYPE_DESCRIPTOR, 1 + n, operations},
                                       {0}});
}

// --- plans ---

static bool is_refused(const kernel *k, int note) {
  return note == NOTE_DOWN_CONVERTS || note == NOTE_SUMS_NARROWLY ||
         note == NOTE_NOT_DETERMINISTIC ||
         (note == NOTE_TENSOR_CORE && k->call.a.type == KILN_CALL_F32);
}

// Whether the engine of |config| has the required numerical properties.
static bool is_right(kernel *k, void *config) {
  const library *l = k->l;
  int notes[MOST_NOTES];
  int64_t n = 0;
  void *engine = make_empty(k, ENGINE);
  if (!engine) return false;
  bool right = !l->get(config, CONFIG_ENGINE, TYPE_DESCRIPTOR, 1, &n, &engine) &&
               !l->get(engine, ENGINE_NOTES, TYPE_NOTE, MOST_NOTES, &n, notes);
  for (int i = 0; right && i < n && i < MOST_NOTES; i++) right = !is_refused(k, notes[i]);
  drop_last(k);
  return right;
}

// Tries a plan; failure is no error, since there may be others.
static bool take_plan(kernel *k, void *config) {
  const int before = k->n_made;
  int64_t bytes = 0, n = 0;
  void *plan = make_descriptor(k, PLAN,
                               (attribute[]){{PLAN_HANDLE, TYPE_HANDLE, 1, &k->l->base.handle},
                                             {PLAN_CONFIG, TYPE_DESCRIPTOR, 1, &config},
                                             {0}});
  if (plan && !k->l->get(plan, PLAN_WORKSPACE, TYPE_INT64, 1, &n, &bytes) &&
      bytes <= kiln_backend_workspace_room(&k->call)) {
    k->plan = plan;
    return true;
  }
  k->status = 0;
  while (k->n_made > before) drop_last(k);
  return false;
}

static bool find_plan(kernel *k, void *graph, int mode) {
  void *configs[MOST_CONFIGS];
  int64_t n = 0;
  void *heuristic = make_descriptor(k, HEURISTIC,
                                    (attribute[]){{HEURISTIC_GRAPH, TYPE_DESCRIPTOR, 1, &graph},
                                                  {HEURISTIC_MODE, TYPE_HEURISTIC_MODE, 1, &mode},
                                                  {0}});
  for (int i = 0; i < MOST_CONFIGS; i++) configs[i] = make_empty(k, ENGINE_CONFIG);
  if (k->status ||
      !step(k, k->l->get(heuristic, HEURISTIC_RESULTS, TYPE_DESCRIPTOR, MOST_CONFIGS, &n, configs)))
    return false;
  for (int i = 0; i < n && i < MOST_CONFIGS && !k->plan; i++)
    if (is_right(k, configs[i])) (void)take_plan(k, configs[i]);
  return k->plan;
}

static bool is_unsupported(status s) { return s / 1000 == NOT_SUPPORTED / 1000; }

static void make(kernel *k) {
  convolution c;
  (void)describe(&k->call, &c); // takes() has checked it
  if (!k->l->base.handle) step(k, k->l->base.create(&k->l->base.handle));
  void *graph = make_graph(k, &c);
  if (k->status || find_plan(k, graph, MODE_A)) return;
  if (is_unsupported(k->status)) k->status = 0;
  if (!k->status && !find_plan(k, graph, MODE_FALLBACK)) step(k, NOT_SUPPORTED);
}

// --- kernels ---

static void destroy(void *made) {
  kernel *k = made;
  if (!k) return;
  while (k->n_made > 0) drop_last(k);
  free(k);
}

// The channels-first pattern adds the tensor first.
static void order_posts(kiln_library_call *c) {
  for (int i = 0; i + 1 < c->n_posts; i++) {
    const kiln_library_call_post bias = c->posts[i];
    if (c->posts[i + 1].kind != KILN_POST_ADD || !kiln_library_call_is_bias(c, &bias) ||
        kiln_library_call_is_bias(c, &c->posts[i + 1]))
      continue;
    c->posts[i] = c->posts[i + 1];
    c->posts[i + 1] = bias;
  }
}

static kiln_status create(void *opened, const kiln_library_call *call, char *const *constants,
                          kiln_diag *diag, void **out) {
  library *l = opened;
  (void)constants;
  *out = NULL;
  if (!takes(call))
    return kiln_diag_fail(diag, KILN_UNSUPPORTED, "cudnn",
                          "call: must be a convolution with channels last, or first");
  kernel *k = calloc(1, sizeof *k);
  if (!k) return kiln_diag_fail(diag, KILN_NO_MEMORY, "cudnn", "no memory left");
  k->l = l;
  k->call = *call;
  order_posts(&k->call);
  pthread_mutex_lock(&l->base.lock);
  make(k);
  pthread_mutex_unlock(&l->base.lock);
  if (!k->status) {
    *out = k;
    return KILN_OK;
  }
  const status s = k->status;
  destroy(k);
  return kiln_nvidia_refuse(&l->base, "cudnn", is_unsupported(s), s, diag);
}

// Runs the kernel; the variant pack that it makes is destroyed at the end.
static status put(kernel *k, char *const *args, void *stream) {
  const int before = k->n_made;
  void *pointers[MOST_TENSORS], *room = kiln_backend_workspace(&k->call, args);
  for (int i = 0; i < k->n_tensors; i++)
    pointers[i] =
        args[k->at[i]->arg] + k->at[i]->offset * kiln_library_call_type_bytes(k->at[i]->type);
  k->status = 0;
  step(k, k->l->set_stream(k->l->base.handle, stream));
  void *pack = make_descriptor(k, VARIANT_PACK,
                               (attribute[]){{PACK_IDS, TYPE_INT64, k->n_tensors, k->ids},
                                             {PACK_POINTERS, TYPE_POINTER, k->n_tensors, pointers},
                                             {PACK_WORKSPACE, TYPE_POINTER, 1, &room},
                                             {0}});
  if (pack) step(k, k->l->execute(k->l->base.handle, k->plan, pack));
  while (k->n_made > before) drop_last(k);
  return k->status;
}

static bool run(void *made, char *const *args, void *stream, kiln_diag *diag) {
  kernel *k = made;
  pthread_mutex_lock(&k->l->base.lock);
  const status s = put(k, args, stream);
  pthread_mutex_unlock(&k->l->base.lock);
  if (s)
    (void)kiln_diag_fail(diag, KILN_DEVICE_ERROR, "cudnn", "convolution: must succeed, got %s",
                         k->l->base.status_name(s));
  return s == 0;
}

const kiln_backend kiln_backend_cudnn = {.name = "cudnn",
                                         .place = KILN_BACKEND_CUDA,
                                         .files = {"libcudnn.so.9"},
                                         .variable = "KILN_CUDNN",
                                         .takes = takes,
                                         .workspace = workspace,
                                         .open = open_library,
                                         .close = kiln_nvidia_close,
                                         .version = kiln_nvidia_version,
                                         .create = create,
                                         .destroy = destroy,
                                         .run = run};

// A stand-in for cuDNN, on the CPU and the stand-in for CUDA's driver: graphs of descriptors,
// convolutions by plain loops, put into its streams. It refuses what the library refuses:
// attributes of another type, descriptors that are not finalized or changed afterwards, shapes that
// do not belong together, layouts that are neither channels last nor first, addresses that are not
// aligned as was said, workspace that is missing; and images and weights of different alignments,
// of which the library computes what is wrong. Of the engines that it proposes those in front are
// of no use: they round, or are not always the same, or make no plan; they compute what is wrong.
#include "fake_library.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
  NOT_INITIALIZED = 1001,
  BAD = 2000,
  NOT_SUPPORTED = 3000,
  FAILED = 5000,
  VERSION = 92800,
  POINTWISE = 0,
  CONVOLUTION = 1,
  ENGINE = 2,
  CONFIG = 3,
  HEURISTIC = 4,
  PLAN = 5,
  FORWARD = 10,
  APPLY = 13,
  GRAPH = 15,
  PACK = 16,
  TENSOR = 17,
  N_KINDS,
  MODE_FALLBACK = 2,
  MODE_A = 3,
  ADD = 0,
  RELU = 100,
  TANH = 101,
  SIGMOID = 102,
  GELU = 104,
  SWISH = 106,
  GELU_TANH = 107,
  MOST_ATTRIBUTES = 8,
  MOST_POSTS = 8,
  MOST_VALUES = 8,
  WORKSPACE = 4096, // of every plan
};

// --- descriptors ---

typedef struct attribute {
  int name, type;
  int64_t n;
  char values[MOST_VALUES * 8];
} attribute;

typedef struct descriptor {
  int kind, is_final, n;
  attribute attributes[MOST_ATTRIBUTES];
  int engine;               // of a configuration, an engine or a plan
  const struct graph *made; // of a graph and what is made of it; a graph's own
} descriptor;

static const int64_t bytes_of[] = {[0] = 8, [1] = 4, [2] = 1, [3] = 8,  [4] = 4,  [5] = 8,
                                   [6] = 8, [7] = 4, [8] = 4, [11] = 4, [14] = 4, [15] = 8};

static const attribute *find(const descriptor *d, int name) {
  for (int i = 0; i < d->n; i++)
    if (d->attributes[i].name == name) return &d->attributes[i];
  return NULL;
}

// |n| values of that type; NULL: it has no such.
static const void *values_of(const descriptor *d, int name, int type, int64_t n) {
  const attribute *a = find(d, name);
  return a && a->type == type && a->n == n ? a->values : NULL;
}

static int int_of(const descriptor *d, int name, int type, int otherwise) {
  const int *value = values_of(d, name, type, 1);
  return value ? *value : otherwise;
}

// The descriptor of that kind that an attribute names, if it is finalized.
static const descriptor *part_of(const descriptor *d, int name, int kind) {
  descriptor *const *part = values_of(d, name, 15, 1);
  return part && *part && (*part)->kind == kind && (*part)->is_final ? *part : NULL;
}

// --- graphs, as numbers ---

typedef struct tensor {
  int64_t id, alignment, dims[4], strides[4];
  int type;
  bool is_virtual;
} tensor;

typedef struct post {
  int mode;
  double low, high;
  tensor b; // of ADD
} post;

typedef struct graph {
  tensor x, w, y;
  int64_t strides[2], dilations[2], front[2], back[2];
  int n_posts;
  post posts[MOST_POSTS];
} graph;

static bool read_tensor(const descriptor *d, tensor *out) {
  const int64_t *id = values_of(d, 906, 3, 1), *alignment = values_of(d, 900, 3, 1),
                *dims = values_of(d, 902, 3, 4), *strides = values_of(d, 903, 3, 4);
  const bool *is_virtual = values_of(d, 907, 2, 1);
  *out = (tensor){.type = int_of(d, 901, 1, -1), .is_virtual = is_virtual && *is_virtual};
  if (!id || !alignment || !dims || !strides || out->type < 0) return false;
  out->id = *id;
  out->alignment = *alignment;
  memcpy(out->dims, dims, sizeof out->dims);
  memcpy(out->strides, strides, sizeof out->strides);
  for (int i = 0; i < 4; i++)
    if (dims[i] < 1 || strides[i] < 1) return false;
  return *alignment >= 1 && *alignment % (out->type ? 2 : 4) == 0;
}

static bool read_part(const descriptor *d, int name, tensor *out) {
  const descriptor *t = part_of(d, name, TENSOR);
  return t && read_tensor(t, out);
}

static bool read_pairs(const descriptor *d, int name, int64_t least, int64_t out[2]) {
  const int64_t *pair = values_of(d, name, 3, 2);
  if (!pair) return false;
  memcpy(out, pair, 2 * sizeof *out);
  return out[0] >= least && out[1] >= least;
}

static bool read_convolution(const descriptor *d, graph *out) {
  const int64_t *rank = values_of(d, 106, 3, 1);
  return rank && *rank == 2 && int_of(d, 100, 1, -1) == 0 && int_of(d, 101, 7, -1) == 1 &&
         read_pairs(d, 102, 1, out->dilations) && read_pairs(d, 103, 1, out->strides) &&
         read_pairs(d, 104, 0, out->back) && read_pairs(d, 105, 0, out->front);
}

static bool read_forward(const descriptor *d, graph *out) {
  const descriptor *how = part_of(d, 702, CONVOLUTION);
  const float *alpha = values_of(d, 700, 4, 1), *beta = values_of(d, 701, 4, 1);
  if (!how || !read_convolution(how, out) || !alpha || *alpha != 1 || !beta || *beta != 0 ||
      !read_part(d, 703, &out->w) || !read_part(d, 704, &out->x) || !read_part(d, 705, &out->y))
    return false;
  const int64_t *x = out->x.dims, *w = out->w.dims, *y = out->y.dims;
  for (int i = 0; i < 2; i++) {
    const int64_t room =
        x[2 + i] + out->front[i] + out->back[i] - (w[2 + i] - 1) * out->dilations[i] - 1;
    if (room < 0 || y[2 + i] != room / out->strides[i] + 1) return false;
  }
  return x[1] % w[1] == 0 && w[0] % (x[1] / w[1]) == 0 && y[0] == x[0] && y[1] == w[0] &&
         out->x.alignment == out->w.alignment;
}

static bool read_pointwise(const descriptor *d, post *out) {
  const double *low = values_of(d, 3, 5, 1), *high = values_of(d, 4, 5, 1);
  *out = (post){int_of(d, 0, 14, -1), low ? *low : 0, high ? *high : (double)INFINITY, {0}};
  return out->mode >= 0 && int_of(d, 1, 1, -1) == 0;
}

// |io_y|: the value in front, and then behind it.
static bool read_apply(const descriptor *d, post *out, tensor *io_y) {
  const descriptor *how = part_of(d, 750, POINTWISE);
  tensor x;
  if (!how || !read_pointwise(how, out) || !read_part(d, 751, &x) || x.id != io_y->id ||
      !x.is_virtual || !read_part(d, 753, io_y) || memcmp(x.dims, io_y->dims, sizeof x.dims) != 0)
    return false;
  if (out->mode != ADD) return !find(d, 752);
  if (!read_part(d, 752, &out->b) || out->b.is_virtual) return false;
  for (int i = 0; i < 4; i++)
    if (out->b.dims[i] != 1 && out->b.dims[i] != x.dims[i]) return false;
  return true;
}

static bool read_graph(const descriptor *d, graph *out) {
  const attribute *a = find(d, 801);
  descriptor *operations[1 + MOST_POSTS];
  if (!values_of(d, 800, 0, 1) || !a || a->type != 15 || a->n < 1 || a->n > 1 + MOST_POSTS)
    return false;
  memcpy(operations, a->values, (size_t)a->n * sizeof *operations);
  *out = (graph){.n_posts = (int)a->n - 1};
  for (int64_t i = 0; i < a->n; i++) {
    const descriptor *o = operations[i];
    if (!o || !o->is_final || o->kind != (i ? APPLY : FORWARD)) return false;
    if (!(i ? read_apply(o, &out->posts[i - 1], &out->y) : read_forward(o, out))) return false;
  }
  return !out->x.is_virtual && !out->w.is_virtual && !out->y.is_virtual;
}

// --- what there are engines for ---

static bool is_packed(const tensor *t, bool is_last) {
  static const int orders[2][4] = {{3, 2, 1, 0}, {1, 3, 2, 0}};
  int64_t step = 1;
  for (int i = 0; i < 4; i++) {
    const int axis = orders[is_last][i];
    if (t->strides[axis] != step) return false;
    step *= t->dims[axis];
  }
  return true;
}

static bool lie_as(const graph *g, bool is_last) {
  bool is = is_packed(&g->x, is_last) && is_packed(&g->w, is_last) && is_packed(&g->y, is_last);
  for (int i = 0; i < g->n_posts; i++)
    is = is && (g->posts[i].mode != ADD || is_packed(&g->posts[i].b, is_last));
  return is;
}

// All that is fused with channels first: a tensor, a bias, and relu.
static bool is_pattern(const graph *g) {
  const bool is_point =
      g->y.dims[0] * g->y.dims[2] * g->y.dims[3] == 1; // where each tensor is a bias
  int place = g->n_posts ? 0 : 2;
  bool has_bias = !g->n_posts;
  for (int i = 0; i < g->n_posts; i++) {
    const post *p = &g->posts[i];
    const bool is_bias = p->b.dims[0] == 1 && p->b.dims[2] == 1 && p->b.dims[3] == 1;
    const int at = p->mode == RELU ? 3 : p->mode != ADD ? 0 : is_bias ? 2 : 1;
    if (at == 0 || at < place || (at == place && !(at == 2 && is_point))) return false;
    has_bias = has_bias || at == 2;
    place = at;
  }
  return has_bias;
}

static const struct {
  int notes[2], n_notes; // what it says of itself
  bool is_right, makes_no_plan;
  int64_t workspace;
} engines[] = {
    {{0, 1}, 2, false, false, 0},
    {{4}, 1, false, false, 0},
    {{2}, 1, false, false, 0},
    {{0}, 0, false, true, 0},
    {{0}, 0, false, false, INT64_C(1) << 40},
    {{0}, 1, true, false, WORKSPACE}, // for f32, it rounds to TF32
    {{0}, 0, true, false, WORKSPACE},
};
enum { N_ENGINES = sizeof engines / sizeof engines[0] };

// The first of the engines for |g|; N_ENGINES: there are none; -1: nor will there be.
static int first_engine(const graph *g, int mode) {
  bool same = g->x.type == g->w.type && g->x.type == g->y.type;
  for (int i = 0; i < g->n_posts; i++)
    same = same && (g->posts[i].mode != ADD || g->posts[i].b.type == g->x.type);
  const bool is_last = lie_as(g, true),
             is_hard = g->x.dims[1] > g->w.dims[1] && g->dilations[0] > 1;
  if (!same || (!is_last && !lie_as(g, false)) || fake_library_state()->has_no_kernel) return -1;
  if ((!is_last && !is_pattern(g)) || (mode == MODE_A && is_hard)) return N_ENGINES;
  return mode == MODE_A ? 0 : N_ENGINES - 1;
}

// --- running ---

typedef struct job {
  graph g;
  bool is_right;
  const char *x, *w, *b[MOST_POSTS];
  char *y, *workspace;
} job;

static int64_t at(const tensor *t, int64_t n, int64_t c, int64_t h, int64_t w) {
  const int64_t index[] = {n, c, h, w};
  int64_t sum = 0;
  for (int i = 0; i < 4; i++) sum += t->dims[i] == 1 ? 0 : index[i] * t->strides[i];
  return sum;
}

static double after(const job *j, int i, double x, const int64_t *n) {
  const post *p = &j->g.posts[i];
  switch (p->mode) {
  case ADD: return x + fake_library_get(p->b.type, j->b[i], at(&p->b, n[0], n[1], n[2], n[3]));
  case RELU: return fmin(x > p->low ? x : p->low, p->high);
  case TANH: return tanh(x);
  case SIGMOID: return 1 / (1 + exp(-x));
  case GELU: return x / 2 * (1 + erf(x / sqrt(2)));
  case SWISH: return x / (1 + exp(-x));
  case GELU_TANH: return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  default: return (double)NAN;
  }
}

static double sum_of(const job *j, const int64_t *n) {
  const graph *g = &j->g;
  const int64_t channels = g->w.dims[1],
                first = n[1] / (g->w.dims[0] / (g->x.dims[1] / channels)) * channels;
  float sum = 0;
  for (int64_t h = 0; h < g->w.dims[2]; h++)
    for (int64_t w = 0; w < g->w.dims[3]; w++) {
      const int64_t y = n[2] * g->strides[0] + h * g->dilations[0] - g->front[0],
                    x = n[3] * g->strides[1] + w * g->dilations[1] - g->front[1];
      if (y < 0 || x < 0 || y >= g->x.dims[2] || x >= g->x.dims[3]) continue;
      for (int64_t c = 0; c < channels; c++)
        sum += (float)(fake_library_get(g->x.type, j->x, at(&g->x, n[0], first + c, y, x)) *
                       fake_library_get(g->w.type, j->w, at(&g->w, n[1], c, h, w)));
    }
  return (double)sum;
}

static void run(void *data) {
  const job *j = data;
  const int64_t *dims = j->g.y.dims;
  int64_t n[4] = {0};
  memset(j->workspace, 0x55, WORKSPACE);
  for (int axis = 0; axis >= 0;) {
    double x = sum_of(j, n) + (j->is_right ? 0 : 1);
    for (int i = 0; i < j->g.n_posts; i++) x = after(j, i, x, n);
    fake_library_set(j->g.y.type, j->y, at(&j->g.y, n[0], n[1], n[2], n[3]), x);
    for (axis = 3; axis >= 0 && ++n[axis] == dims[axis]; axis--) n[axis] = 0;
  }
}

// --- the library ---

typedef struct handle {
  void *stream;
} handle;

static int make(void **out, size_t bytes) {
  *out = calloc(1, bytes);
  fake_library_state()->live++;
  return 0;
}
static int drop(void *object) {
  free(object);
  fake_library_state()->live--;
  return 0;
}

size_t cudnnGetVersion(void) {
  const size_t told = fake_library_state()->version;
  return told ? told : VERSION;
}
const char *cudnnGetErrorString(int s) {
  return s == BAD             ? "CUDNN_STATUS_BAD_PARAM"
         : s == NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
         : s == FAILED        ? "CUDNN_STATUS_EXECUTION_FAILED"
                              : "CUDNN_STATUS_NOT_INITIALIZED";
}
int cudnnCreate(void **out) {
  if (fake_library_fails("cudnnCreate")) return FAILED;
  return fake_library_has_context() ? make(out, sizeof(handle)) : NOT_INITIALIZED;
}
int cudnnDestroy(void *h) { return fake_library_has_context() ? drop(h) : NOT_INITIALIZED; }
int cudnnSetStream(handle *h, void *stream) {
  if (fake_library_fails("cudnnSetStream")) return FAILED;
  h->stream = stream;
  return stream ? 0 : BAD;
}

int cudnnBackendCreateDescriptor(int kind, void **out) {
  if (fake_library_fails("cudnnBackendCreateDescriptor")) return FAILED;
  if (kind < 0 || kind >= N_KINDS || make(out, sizeof(descriptor))) return BAD;
  ((descriptor *)*out)->kind = kind;
  return 0;
}
int cudnnBackendDestroyDescriptor(descriptor *d) {
  if (d->kind == GRAPH) free((void *)(uintptr_t)d->made);
  return drop(d);
}
int cudnnBackendSetAttribute(descriptor *d, int name, int type, int64_t n, const void *values) {
  if (fake_library_fails("cudnnBackendSetAttribute")) return FAILED;
  if (d->is_final || d->n == MOST_ATTRIBUTES || n < 1 || n > MOST_VALUES || type < 0 || type > 15 ||
      !bytes_of[type] || find(d, name))
    return BAD;
  attribute *a = &d->attributes[d->n++];
  *a = (attribute){.name = name, .type = type, .n = n};
  memcpy(a->values, values, (size_t)(n * bytes_of[type]));
  return 0;
}

static int finalize_heuristic(descriptor *d) {
  const descriptor *g = part_of(d, 201, GRAPH);
  const int mode = int_of(d, 200, 8, -1);
  if (!g || (mode != MODE_A && mode != MODE_FALLBACK)) return BAD;
  fake_library_state()->kernels++;
  d->made = g->made;
  d->engine = first_engine(g->made, mode);
  return d->engine < 0 ? NOT_SUPPORTED : 0;
}

static int finalize_plan(descriptor *d) {
  const descriptor *config = part_of(d, 401, CONFIG);
  if (!config || !values_of(d, 400, 0, 1)) return BAD;
  d->made = config->made;
  d->engine = config->engine;
  return engines[d->engine].makes_no_plan ? NOT_SUPPORTED : 0;
}

static int finalize_graph(descriptor *d) {
  graph *g = malloc(sizeof *g);
  d->made = g;
  return read_graph(d, g) ? 0 : BAD;
}

int cudnnBackendFinalize(descriptor *d) {
  graph unused = {0};
  tensor t;
  post p;
  if (fake_library_fails("cudnnBackendFinalize")) return FAILED;
  int s = d->is_final ? BAD : 0;
  if (!s && d->kind == TENSOR) s = read_tensor(d, &t) ? 0 : BAD;
  if (!s && d->kind == CONVOLUTION) s = read_convolution(d, &unused) ? 0 : BAD;
  if (!s && d->kind == POINTWISE) s = read_pointwise(d, &p) ? 0 : BAD;
  if (!s && d->kind == FORWARD) s = read_forward(d, &unused) ? 0 : BAD;
  if (!s && d->kind == GRAPH) s = finalize_graph(d);
  if (!s && d->kind == HEURISTIC) s = finalize_heuristic(d);
  if (!s && d->kind == PLAN) s = finalize_plan(d);
  d->is_final = !s;
  return s;
}

static int get_configs(const descriptor *d, int64_t room, int64_t *out_n, descriptor **out) {
  *out_n = 0;
  for (int i = d->engine; i < N_ENGINES && *out_n < room; i++) {
    descriptor *to = out[(*out_n)++];
    if (!to || to->kind != CONFIG || to->is_final) return BAD;
    to->is_final = 1;
    to->engine = i;
    to->made = d->made;
  }
  return 0;
}

int cudnnBackendGetAttribute(const descriptor *d, int name, int type, int64_t room, int64_t *out_n,
                             void *out) {
  if (fake_library_fails("cudnnBackendGetAttribute")) return FAILED;
  if (!d->is_final) return BAD;
  if (d->kind == HEURISTIC && name == 202 && type == 15) return get_configs(d, room, out_n, out);
  *out_n = 1;
  if (d->kind == CONFIG && name == 300 && type == 15 && room == 1) {
    descriptor *to = *(descriptor **)out;
    if (to->kind != ENGINE) return BAD;
    to->engine = d->engine;
    return !(to->is_final = 1);
  }
  if (d->kind == PLAN && name == 402 && type == 3 && room == 1)
    return memcpy(out, &engines[d->engine].workspace, 8), 0;
  if (d->kind != ENGINE || name != 1303 || type != 11) return BAD;
  *out_n = engines[d->engine].n_notes;
  if (*out_n <= room) memcpy(out, engines[d->engine].notes, (size_t)*out_n * sizeof(int));
  return *out_n <= room ? 0 : BAD;
}

// The memory of |t| in the pack, if it begins as was said.
static char *memory_of(const descriptor *pack, const tensor *t) {
  const attribute *ids = find(pack, 1000), *pointers = find(pack, 1001);
  if (!ids || !pointers || ids->type != 3 || pointers->type != 6 || ids->n != pointers->n)
    return NULL;
  for (int64_t i = 0; i < ids->n; i++) {
    int64_t id = 0;
    char *memory = NULL;
    memcpy(&id, ids->values + 8 * i, sizeof id);
    memcpy(&memory, pointers->values + 8 * i, sizeof memory);
    if (id == t->id) return (uintptr_t)memory % (uintptr_t)t->alignment ? NULL : memory;
  }
  return NULL;
}

static bool find_memory(const descriptor *pack, job *j) {
  char *const *workspace = values_of(pack, 1003, 6, 1);
  bool all = (j->x = memory_of(pack, &j->g.x)) && (j->w = memory_of(pack, &j->g.w)) &&
             (j->y = memory_of(pack, &j->g.y)) && workspace && *workspace &&
             (uintptr_t)*workspace % 256 == 0;
  for (int i = 0; i < j->g.n_posts; i++)
    all = all && (j->g.posts[i].mode != ADD || (j->b[i] = memory_of(pack, &j->g.posts[i].b)));
  if (all) j->workspace = *workspace;
  return all;
}

int cudnnBackendExecute(handle *h, const descriptor *plan, const descriptor *pack) {
  fake_library_state()->runs++;
  if (fake_library_fails("cudnnBackendExecute")) return FAILED;
  if (!h || !h->stream || plan->kind != PLAN || !plan->is_final || pack->kind != PACK ||
      !pack->is_final)
    return BAD;
  job *j = malloc(sizeof *j);
  *j = (job){.g = *plan->made, .is_right = engines[plan->engine].is_right};
  fake_library_state()->rounded += plan->made->x.type == 0 && engines[plan->engine].n_notes > 0;
  if (!find_memory(pack, j)) return free(j), BAD;
  return fake_library_put(h->stream, run, j) ? NOT_INITIALIZED : 0;
}

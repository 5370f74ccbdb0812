// oneDNN: products and convolutions with epilogues.
//
// Constant operands are reordered to the library's preferred layout when a kernel is made; others
// are read in their own layout. Debian's oneDNN uses OpenMP, which is set to one thread around
// every use.
#include "backend/backend.h"

#include <oneapi/dnnl/dnnl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Functions are called through pointers of the types that dnnl.h declares.
typedef struct api {
  __typeof__(&dnnl_version) version;
  __typeof__(&dnnl_engine_create) engine_create;
  __typeof__(&dnnl_engine_destroy) engine_destroy;
  __typeof__(&dnnl_stream_create) stream_create;
  __typeof__(&dnnl_stream_destroy) stream_destroy;
  __typeof__(&dnnl_stream_wait) stream_wait;
  __typeof__(&dnnl_memory_desc_init_by_strides) desc_by_strides;
  __typeof__(&dnnl_memory_desc_init_by_tag) desc_by_tag;
  __typeof__(&dnnl_memory_desc_get_size) desc_size;
  __typeof__(&dnnl_memory_desc_equal) desc_equal;
  __typeof__(&dnnl_memory_create) memory_create;
  __typeof__(&dnnl_memory_destroy) memory_destroy;
  __typeof__(&dnnl_memory_set_data_handle) memory_set;
  __typeof__(&dnnl_matmul_desc_init) matmul_init;
  __typeof__(&dnnl_dilated_convolution_forward_desc_init) convolution_init;
  __typeof__(&dnnl_reorder_primitive_desc_create) reorder_create;
  __typeof__(&dnnl_primitive_desc_create) primitive_desc_create;
  __typeof__(&dnnl_primitive_desc_destroy) primitive_desc_destroy;
  __typeof__(&dnnl_primitive_desc_query) query;
  __typeof__(&dnnl_primitive_desc_query_md) query_md;
  __typeof__(&dnnl_primitive_create) primitive_create;
  __typeof__(&dnnl_primitive_destroy) primitive_destroy;
  __typeof__(&dnnl_primitive_execute) execute;
  __typeof__(&dnnl_primitive_attr_create) attr_create;
  __typeof__(&dnnl_primitive_attr_destroy) attr_destroy;
  __typeof__(&dnnl_primitive_attr_set_scratchpad_mode) attr_scratchpad;
  __typeof__(&dnnl_primitive_attr_set_post_ops) attr_posts;
  __typeof__(&dnnl_post_ops_create) posts_create;
  __typeof__(&dnnl_post_ops_destroy) posts_destroy;
  __typeof__(&dnnl_post_ops_append_eltwise) posts_eltwise;
  __typeof__(&dnnl_post_ops_append_binary) posts_binary;
  void (*omp_set)(int n);
  int (*omp_get)(void);
} api;

typedef struct library {
  api f;
  dnnl_engine_t engine;
} library;

static const kiln_library_entry entries[] = {
    {"dnnl_version", offsetof(library, f.version)},
    {"dnnl_engine_create", offsetof(library, f.engine_create)},
    {"dnnl_engine_destroy", offsetof(library, f.engine_destroy)},
    {"dnnl_stream_create", offsetof(library, f.stream_create)},
    {"dnnl_stream_destroy", offsetof(library, f.stream_destroy)},
    {"dnnl_stream_wait", offsetof(library, f.stream_wait)},
    {"dnnl_memory_desc_init_by_strides", offsetof(library, f.desc_by_strides)},
    {"dnnl_memory_desc_init_by_tag", offsetof(library, f.desc_by_tag)},
    {"dnnl_memory_desc_get_size", offsetof(library, f.desc_size)},
    {"dnnl_memory_desc_equal", offsetof(library, f.desc_equal)},
    {"dnnl_memory_create", offsetof(library, f.memory_create)},
    {"dnnl_memory_destroy", offsetof(library, f.memory_destroy)},
    {"dnnl_memory_set_data_handle", offsetof(library, f.memory_set)},
    {"dnnl_matmul_desc_init", offsetof(library, f.matmul_init)},
    {"dnnl_dilated_convolution_forward_desc_init", offsetof(library, f.convolution_init)},
    {"dnnl_reorder_primitive_desc_create", offsetof(library, f.reorder_create)},
    {"dnnl_primitive_desc_create", offsetof(library, f.primitive_desc_create)},
    {"dnnl_primitive_desc_destroy", offsetof(library, f.primitive_desc_destroy)},
    {"dnnl_primitive_desc_query", offsetof(library, f.query)},
    {"dnnl_primitive_desc_query_md", offsetof(library, f.query_md)},
    {"dnnl_primitive_create", offsetof(library, f.primitive_create)},
    {"dnnl_primitive_destroy", offsetof(library, f.primitive_destroy)},
    {"dnnl_primitive_execute", offsetof(library, f.execute)},
    {"dnnl_primitive_attr_create", offsetof(library, f.attr_create)},
    {"dnnl_primitive_attr_destroy", offsetof(library, f.attr_destroy)},
    {"dnnl_primitive_attr_set_scratchpad_mode", offsetof(library, f.attr_scratchpad)},
    {"dnnl_primitive_attr_set_post_ops", offsetof(library, f.attr_posts)},
    {"dnnl_post_ops_create", offsetof(library, f.posts_create)},
    {"dnnl_post_ops_destroy", offsetof(library, f.posts_destroy)},
    {"dnnl_post_ops_append_eltwise", offsetof(library, f.posts_eltwise)},
    {"dnnl_post_ops_append_binary", offsetof(library, f.posts_binary)},
    // of the OpenMP library that oneDNN is linked with
    {"omp_set_num_threads", offsetof(library, f.omp_set)},
    {"omp_get_max_threads", offsetof(library, f.omp_get)},
    {0},
};

// A tensor argument of the primitive.
typedef struct operand {
  int name; // DNNL_ARG_SRC
  kiln_library_call_tensor at;
  dnnl_memory_t memory;
  bool is_own; // a reordered constant, which the kernel owns
} operand;

enum { MAX_OPERANDS = 5 + KILN_CALL_POSTS, PLAIN_RANK = KILN_CALL_BATCH + 2 };

typedef struct kernel {
  const api *f;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t primitive;
  int n;
  operand operands[MAX_OPERANDS];
  void *weights, *scratch; // aligned memory inside of our blocks
} kernel;

// --- the library ---

static void close_library(void *opened) {
  library *l = opened;
  if (l->engine) l->f.engine_destroy(l->engine);
  free(l);
}

static kiln_status start(library *l, const char *file, kiln_diag *diag) {
  const dnnl_version_t *v = l->f.version();
  if (v->major != DNNL_VERSION_MAJOR)
    return kiln_diag_fail(diag, KILN_DEVICE_ERROR, file, "library: must be oneDNN %d, got %d.%d",
                          DNNL_VERSION_MAJOR, v->major, v->minor);
  if (l->f.engine_create(&l->engine, dnnl_cpu, 0) != dnnl_success)
    return kiln_diag_fail(diag, KILN_DEVICE_ERROR, file, "library: must have an engine for CPUs");
  return KILN_OK;
}

static kiln_status open_library(const char *file, kiln_diag *diag, void **out) {
  kiln_status st = kiln_library_create(file, "KILN_ONEDNN", entries, sizeof(library), diag, out);
  if (st == KILN_OK && (st = start(*out, file, diag)) != KILN_OK) {
    close_library(*out);
    *out = NULL;
  }
  return st;
}

static size_t version(void *opened, char *text, size_t room) {
  const dnnl_version_t *v = ((library *)opened)->f.version();
  return (size_t)snprintf(text, room, "%d.%d.%d %s", v->major, v->minor, v->patch, v->hash);
}

// --- supported calls ---

// Whether an added tensor has the result's full shape. Some kernels compute wrong results if it is
// broadcast along some axes only.
static bool is_whole(const kiln_library_call *c, const kiln_library_call_post *p) {
  const bool is_product = c->kind == KILN_CALL_PRODUCT;
  const int64_t *s = p->strides, high = is_product ? c->m.extent : c->window[0].out,
                wide = is_product ? 1 : c->window[1].out;
  bool whole = (s[KILN_CALL_M] || high == 1) && (s[KILN_CALL_W] || wide == 1) &&
               (s[KILN_CALL_N] || c->n.extent == 1);
  for (int i = 0; i < c->n_batch; i++) whole = whole && (s[i] || c->batch[i].extent == 1);
  return whole;
}

// A row added to batched products must be the first post, as a bias; later ones crash.
static bool adds_right(const kiln_library_call *c, int i) {
  const kiln_library_call_post *p = &c->posts[i];
  const bool is_batch = c->kind == KILN_CALL_PRODUCT && c->n_batch > 0;
  if (p->kind != KILN_POST_ADD || is_whole(c, p)) return true;
  return kiln_library_call_is_bias(c, p) ? i == 0 || !is_batch
                                         : c->kind == KILN_CALL_PRODUCT && !is_batch;
}

// oneDNN 2.6 gives two element-wise posts of one kind the parameters of one of them.
static bool repeats_a_kind(const kiln_library_call *c) {
  for (int i = 0; i < c->n_posts; i++)
    for (int j = 0; j < i; j++)
      if (c->posts[i].kind == c->posts[j].kind && c->posts[i].kind != KILN_POST_ADD) return true;
  return false;
}

static bool takes(const kiln_library_call *c) {
  const kiln_library_call_axis *g = &c->batch[1];
  if (!kiln_library_call_is_f32(c) || repeats_a_kind(c)) return false;
  for (int i = 0; i < c->n_posts; i++)
    if (!adds_right(c, i) || c->posts[i].kind == KILN_POST_GELU_TANH) return false;
  if (c->kind == KILN_CALL_PRODUCT) return true;
  for (int i = 0; i < c->n_posts; i++)
    if (!kiln_library_call_walks_on(g->extent, c->posts[i].strides[1], c->n.extent,
                                    c->posts[i].strides[KILN_CALL_N]))
      return false;
  return kiln_library_call_walks_on(g->extent, g->a, c->k.extent, c->k.a) &&
         kiln_library_call_walks_on(g->extent, g->c, c->n.extent, c->n.c);
}

// --- memory descriptors ---

typedef struct shape {
  int n;
  dnnl_dims_t dims, strides;
} shape;

// A stride of 0 broadcasts: the dim gets extent 1.
static void add_dim(shape *s, int64_t extent, int64_t stride) {
  s->dims[s->n] = stride == 0 ? 1 : extent;
  s->strides[s->n++] = stride;
}

// Strides of dims of extent 1 are arbitrary, but must not appear to overlap others.
static dnnl_status_t describe(const api *f, shape *s, dnnl_memory_desc_t *out) {
  int64_t span = 1;
  for (int i = 0; i < s->n; i++)
    if (s->dims[i] > 1 && s->dims[i] * s->strides[i] > span) span = s->dims[i] * s->strides[i];
  for (int i = 0; i < s->n; i++)
    if (s->dims[i] == 1) s->strides[i] = span;
  return f->desc_by_strides(out, s->n, s->dims, dnnl_f32, s->strides);
}

typedef struct tensors {
  shape a, b, c, bias, posts[KILN_CALL_POSTS];
  bool has_bias;
} tensors;

static void shape_product(const kiln_library_call *c, tensors *t) {
  for (int i = 0; i < c->n_batch; i++) {
    add_dim(&t->a, c->batch[i].extent, c->batch[i].a);
    add_dim(&t->b, c->batch[i].extent, c->batch[i].b);
    add_dim(&t->c, c->batch[i].extent, c->batch[i].c);
    add_dim(&t->bias, 1, 0);
    for (int p = 0; p < c->n_posts; p++)
      add_dim(&t->posts[p], c->batch[i].extent, c->posts[p].strides[i]);
  }
  add_dim(&t->a, c->m.extent, c->m.a);
  add_dim(&t->a, c->k.extent, c->k.a);
  add_dim(&t->b, c->k.extent, c->k.b);
  add_dim(&t->b, c->n.extent, c->n.b);
  add_dim(&t->c, c->m.extent, c->m.c);
  add_dim(&t->c, c->n.extent, c->n.c);
  add_dim(&t->bias, 1, 0);
  add_dim(&t->bias, c->n.extent, 1);
  for (int p = 0; p < c->n_posts; p++) {
    add_dim(&t->posts[p], c->m.extent, c->posts[p].strides[KILN_CALL_M]);
    add_dim(&t->posts[p], c->n.extent, c->posts[p].strides[KILN_CALL_N]);
  }
}

static void add_channels(shape *s, int64_t groups, int64_t by_group, int64_t channels,
                         int64_t by_channel) {
  const int64_t stride = channels > 1 || groups == 1 ? by_channel : by_group;
  add_dim(s, groups * channels, stride);
  if (stride == 0 && groups * channels == 1) s->strides[s->n - 1] = 1;
}

static void shape_convolution(const kiln_library_call *c, tensors *t) {
  const kiln_library_call_axis *g = &c->batch[1];
  const kiln_library_call_window *w = c->window;
  add_dim(&t->a, c->batch[0].extent, c->batch[0].a);
  add_channels(&t->a, g->extent, g->a, c->k.extent, c->k.a);
  add_dim(&t->c, c->batch[0].extent, c->batch[0].c);
  add_channels(&t->c, g->extent, g->c, c->n.extent, c->n.c);
  if (g->extent > 1) add_dim(&t->b, g->extent, g->b);
  add_dim(&t->b, c->n.extent, c->n.b);
  add_dim(&t->b, c->k.extent, c->k.b);
  add_dim(&t->bias, g->extent * c->n.extent, 1);
  for (int i = 0; i < 2; i++) {
    const int64_t needed =
        (w[i].out - 1) * w[i].stride + (w[i].kernel - 1) * w[i].dilation + 1 - w[i].pad;
    add_dim(&t->a, w[i].in < needed ? w[i].in : needed, w[i].a);
    add_dim(&t->b, w[i].kernel, w[i].b);
    add_dim(&t->c, w[i].out, w[i].c);
  }
  for (int p = 0; p < c->n_posts; p++) {
    const int64_t *strides = c->posts[p].strides;
    add_dim(&t->posts[p], c->batch[0].extent, strides[0]);
    add_channels(&t->posts[p], g->extent, strides[1], c->n.extent, strides[KILN_CALL_N]);
    add_dim(&t->posts[p], w[0].out, strides[KILN_CALL_M]);
    add_dim(&t->posts[p], w[1].out, strides[KILN_CALL_W]);
  }
}

// --- making a kernel ---

typedef struct making {
  const library *l;
  const api *f;
  const kiln_library_call *call;
  char *const *constants;
  kernel *k;
  tensors tensors;
  dnnl_memory_desc_t a, b, c, bias;
  dnnl_post_ops_t posts;
  dnnl_primitive_attr_t attr;
  dnnl_primitive_desc_t desc;
  dnnl_status_t status; // of the first failed step
} making;

static bool step(making *m, dnnl_status_t status) {
  if (m->status == dnnl_success) m->status = status;
  return m->status == dnnl_success;
}

static void add_operand(making *m, int name, const kiln_library_call_tensor *at,
                        const dnnl_memory_desc_t *desc, void *own) {
  operand *o = &m->k->operands[m->k->n];
  *o = (operand){.name = name, .is_own = own != NULL};
  if (at) o->at = *at;
  if (step(m, m->f->memory_create(&o->memory, desc, m->k->engine, own ? own : DNNL_MEMORY_NONE)))
    m->k->n++;
}

static void add_post(making *m, int i) {
  const kiln_library_call_post *p = &m->call->posts[i];
  dnnl_memory_desc_t desc;
  switch (p->kind) {
  case KILN_POST_SCALE:
    step(m, m->f->posts_eltwise(m->posts, 1, dnnl_eltwise_linear, p->low, 0));
    break;
  case KILN_POST_CLIP:
    if (p->low == 0 && p->high > 3e38f)
      step(m, m->f->posts_eltwise(m->posts, 1, dnnl_eltwise_relu, 0, 0));
    else step(m, m->f->posts_eltwise(m->posts, 1, dnnl_eltwise_clip, p->low, p->high));
    break;
  case KILN_POST_SILU: step(m, m->f->posts_eltwise(m->posts, 1, dnnl_eltwise_swish, 1, 0)); break;
  case KILN_POST_GELU:
    step(m, m->f->posts_eltwise(m->posts, 1, dnnl_eltwise_gelu_erf, 0, 0));
    break;
  case KILN_POST_SIGMOID:
    step(m, m->f->posts_eltwise(m->posts, 1, dnnl_eltwise_logistic, 0, 0));
    break;
  case KILN_POST_TANH: step(m, m->f->posts_eltwise(m->posts, 1, dnnl_eltwise_tanh, 0, 0)); break;
  case KILN_POST_ADD:
    if (step(m, describe(m->f, &m->tensors.posts[i], &desc)) &&
        step(m, m->f->posts_binary(m->posts, dnnl_binary_add, &desc)))
      add_operand(m, DNNL_ARG_ATTR_MULTIPLE_POST_OP(i - m->tensors.has_bias) | DNNL_ARG_SRC_1,
                  &p->tensor, &desc, NULL);
    break;
  case KILN_POST_GELU_TANH: // not taken: wrong results after other operations
  case KILN_N_POSTS: break;
  }
}

static void make_attributes(making *m) {
  const bool has_bias = m->tensors.has_bias;
  if (!step(m, m->f->attr_create(&m->attr)) || !step(m, m->f->posts_create(&m->posts))) return;
  step(m, m->f->attr_scratchpad(m->attr, dnnl_scratchpad_mode_user));
  for (int i = has_bias; i < m->call->n_posts && m->status == dnnl_success; i++) add_post(m, i);
  step(m, m->f->attr_posts(m->attr, m->posts));
}

static void describe_operands(making *m) {
  const bool is_product = m->call->kind == KILN_CALL_PRODUCT;
  tensors *t = &m->tensors;
  if (is_product) shape_product(m->call, t);
  else shape_convolution(m->call, t);
  t->has_bias = m->call->n_posts > 0 && kiln_library_call_is_bias(m->call, &m->call->posts[0]);
  step(m, describe(m->f, &t->a, &m->a));
  step(m, describe(m->f, &t->b, &m->b));
  step(m, describe(m->f, &t->c, &m->c));
  if (t->has_bias) step(m, describe(m->f, &t->bias, &m->bias));
}

// oneDNN 2.6 on AVX2: if it computes a convolution by GEMM, a tensor added to channels-last results
// is added to the wrong elements.
static bool adds_wrong(const making *m) {
  const kiln_library_call *c = m->call;
  const char *made_as = "";
  bool adds = false;
  for (int i = m->tensors.has_bias; i < c->n_posts; i++)
    adds = adds || c->posts[i].kind == KILN_POST_ADD;
  return adds && c->kind == KILN_CALL_CONVOLUTION && c->n.c == 1 &&
         m->f->query(m->desc, dnnl_query_impl_info_str, 0, &made_as) == dnnl_success &&
         strstr(made_as, "gemm");
}

static void make_desc(making *m) {
  const bool is_constant = m->constants[m->call->b.arg] != NULL;
  const dnnl_memory_desc_t *bias = m->tensors.has_bias ? &m->bias : NULL;
  dnnl_memory_desc_t b = m->b;
  dnnl_matmul_desc_t matmul;
  dnnl_convolution_desc_t convolution;
  if (is_constant &&
      !step(m, m->f->desc_by_tag(&b, b.ndims, m->tensors.b.dims, dnnl_f32, dnnl_format_tag_any)))
    return;
  if (m->call->kind == KILN_CALL_PRODUCT) {
    if (step(m, m->f->matmul_init(&matmul, &m->a, &b, bias, &m->c)))
      step(m, m->f->primitive_desc_create(&m->desc, &matmul, m->attr, m->k->engine, NULL));
    return;
  }
  dnnl_dims_t strides, dilations, front, back;
  for (int i = 0; i < 2; i++) {
    const kiln_library_call_window *w = &m->call->window[i];
    strides[i] = w->stride;
    dilations[i] = w->dilation - 1;
    front[i] = w->pad;
    back[i] = (w->out - 1) * w->stride + (w->kernel - 1) * w->dilation + 1 - w->pad -
              m->tensors.a.dims[2 + i];
  }
  if (step(m, m->f->convolution_init(&convolution, dnnl_forward_inference, dnnl_convolution_direct,
                                     &m->a, &b, bias, &m->c, strides, dilations, front, back)))
    step(m, m->f->primitive_desc_create(&m->desc, &convolution, m->attr, m->k->engine, NULL));
}

static void *allocate(making *m, const dnnl_memory_desc_t *desc) {
  const size_t bytes = m->f->desc_size(desc);
  void *data = aligned_alloc(64, (bytes + 127) / 64 * 64);
  step(m, data ? dnnl_success : dnnl_out_of_memory);
  return data;
}

// Reorders |from|, of the layout m->b, to the layout |to| at m->k->weights.
static void reorder(making *m, void *from, const dnnl_memory_desc_t *to) {
  dnnl_memory_t memories[2] = {0};
  dnnl_primitive_desc_t desc = NULL;
  dnnl_primitive_t primitive = NULL;
  step(m, m->f->memory_create(&memories[0], &m->b, m->k->engine, from));
  step(m, m->f->memory_create(&memories[1], to, m->k->engine, m->k->weights));
  if (m->status == dnnl_success)
    step(m, m->f->reorder_create(&desc, &m->b, m->k->engine, to, m->k->engine, NULL));
  if (m->status == dnnl_success) step(m, m->f->primitive_create(&primitive, desc));
  const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, memories[0]}, {DNNL_ARG_TO, memories[1]}};
  if (m->status == dnnl_success) step(m, m->f->execute(primitive, m->k->stream, 2, args));
  if (m->status == dnnl_success) step(m, m->f->stream_wait(m->k->stream));
  if (primitive) m->f->primitive_destroy(primitive);
  if (desc) m->f->primitive_desc_destroy(desc);
  for (int i = 0; i < 2; i++)
    if (memories[i]) m->f->memory_destroy(memories[i]);
}

static void add_weights(making *m) {
  const kiln_library_call_tensor *b = &m->call->b;
  const dnnl_memory_desc_t *liked = m->f->query_md(m->desc, dnnl_query_weights_md, 0);
  char *constant = m->constants[b->arg];
  if (!constant || m->f->desc_equal(liked, &m->b)) {
    add_operand(m, DNNL_ARG_WEIGHTS, b, &m->b, NULL);
    return;
  }
  m->k->weights = allocate(m, liked);
  if (m->status != dnnl_success) return;
  reorder(m, (float *)(void *)constant + b->offset, liked);
  add_operand(m, DNNL_ARG_WEIGHTS, NULL, liked, m->k->weights);
}

static void add_operands(making *m) {
  const dnnl_memory_desc_t *scratch = m->f->query_md(m->desc, dnnl_query_scratchpad_md, 0);
  add_operand(m, DNNL_ARG_SRC, &m->call->a, &m->a, NULL);
  add_operand(m, DNNL_ARG_DST, &m->call->c, &m->c, NULL);
  if (m->tensors.has_bias) add_operand(m, DNNL_ARG_BIAS, &m->call->posts[0].tensor, &m->bias, NULL);
  add_weights(m);
  if (!scratch || m->f->desc_size(scratch) == 0) return;
  m->k->scratch = allocate(m, scratch);
  if (m->k->scratch) add_operand(m, DNNL_ARG_SCRATCHPAD, NULL, scratch, m->k->scratch);
}

static void make(making *m) {
  if (!step(m, m->f->stream_create(&m->k->stream, m->k->engine, dnnl_stream_default_flags))) return;
  describe_operands(m);
  if (m->status == dnnl_success) make_attributes(m);
  if (m->status == dnnl_success) make_desc(m);
  if (m->status == dnnl_success && adds_wrong(m)) m->status = dnnl_unimplemented;
  if (m->status == dnnl_success) step(m, m->f->primitive_create(&m->k->primitive, m->desc));
  if (m->status == dnnl_success) add_operands(m);
}

static void destroy(void *made) {
  kernel *k = made;
  if (!k) return;
  for (int i = 0; i < k->n; i++) k->f->memory_destroy(k->operands[i].memory);
  if (k->primitive) k->f->primitive_destroy(k->primitive);
  if (k->stream) k->f->stream_destroy(k->stream);
  free(k->weights);
  free(k->scratch);
  free(k);
}

static kiln_status create(void *opened, const kiln_library_call *call, char *const *constants,
                          kiln_diag *diag, void **out) {
  const library *l = opened;
  kernel *k = calloc(1, sizeof *k);
  *out = NULL;
  if (!k) return kiln_diag_fail(diag, KILN_NO_MEMORY, "onednn", "no memory left");
  k->f = &l->f;
  k->engine = l->engine;
  making m = {.l = l, .f = &l->f, .call = call, .constants = constants, .k = k};
  const int threads = l->f.omp_get();
  l->f.omp_set(1);
  if (takes(call)) make(&m);
  else m.status = dnnl_unimplemented;
  l->f.omp_set(threads);
  if (m.posts) l->f.posts_destroy(m.posts);
  if (m.attr) l->f.attr_destroy(m.attr);
  if (m.desc) l->f.primitive_desc_destroy(m.desc);
  if (m.status == dnnl_success) {
    *out = k;
    return KILN_OK;
  }
  destroy(k);
  if (m.status == dnnl_out_of_memory)
    return kiln_diag_fail(diag, KILN_NO_MEMORY, "onednn", "no memory left");
  return kiln_diag_fail(diag, KILN_UNSUPPORTED, "onednn",
                        "call: must be one that the library has a kernel for, got status %d",
                        (int)m.status);
}

static bool run(void *made, char *const *args, void *stream, kiln_diag *diag) {
  (void)stream, (void)diag;
  const kernel *k = made;
  dnnl_exec_arg_t all[MAX_OPERANDS];
  bool right = true;
  for (int i = 0; i < k->n; i++) {
    const operand *o = &k->operands[i];
    all[i] = (dnnl_exec_arg_t){o->name, o->memory};
    if (o->is_own) continue;
    float *data = (float *)(void *)args[o->at.arg] + o->at.offset;
    right = k->f->memory_set(o->memory, data) == dnnl_success && right;
  }
  const int threads = k->f->omp_get();
  k->f->omp_set(1);
  right = right && k->f->execute(k->primitive, k->stream, k->n, all) == dnnl_success &&
          k->f->stream_wait(k->stream) == dnnl_success;
  k->f->omp_set(threads);
  return right;
}

const kiln_backend kiln_backend_onednn = {.name = "onednn",
                                          .files = {"libdnnl.so.2"},
                                          .variable = "KILN_ONEDNN",
                                          .takes = takes,
                                          .open = open_library,
                                          .close = close_library,
                                          .version = version,
                                          .create = create,
                                          .destroy = destroy,
                                          .run = run};

// Buffer assignment: the location of every argument of every launch in the plan. Constants are in
// the weights (or stay in the model's memory), temporaries and workspaces in the arena, results in
// the caller's memory.
#include "module/build.h"
#include "module/checked.h"
#include "module/planner.h"
#include "runtime/features.h"
#include "runtime/gpu/gpu_session.h"
#include "target/cpu/together.h"
#include "tile/panels.h"

#include <string.h>

enum { BORROW_BYTES = 4096 };

// The storage class of a tensor of the program.
typedef enum home { HOME_NONE, HOME_INPUT, HOME_OUTPUT, HOME_ARENA } home;
typedef struct residence {
  home home;
  int index; // of the input, output or block
} residence;

// An argument in arena block |block|, whose offset is added when all blocks are placed.
typedef struct patch {
  int arg, block;
  uint64_t offset; // in bytes from the block's beginning
} patch;

typedef struct layout {
  kiln_ctx *cx;
  kiln_build *b;
  residence *at; // [tensors]
  KILN_VEC(kiln_block) blocks;
  KILN_VEC(patch) patches;
  KILN_VEC(kiln_plan_arg) args;
  KILN_VEC(kiln_plan_nest) nests;
  KILN_VEC(uint32_t) indices; // for the nests of a GPU
  KILN_VEC(kiln_plan_call) calls;
  KILN_VEC(kiln_plan_copy) copies;
  KILN_VEC(patch) copy_patches;
} layout;

static const kiln_target *target_of(const layout *y) { return y->b->request.machine.target; }

// |bytes| rounded up to the target's alignment.
static uint64_t placed_bytes(const layout *y, uint64_t bytes) {
  const uint64_t align = (uint64_t)target_of(y)->place_bytes;
  return (bytes + align - 1) / align * align;
}

int kiln_kernel_nests(const kiln_loops *l) {
  int n = 0;
  for (const kiln_loop *nest = l->body; nest; nest = nest->next) n++;
  return n;
}

int64_t kiln_nest_extent(const kiln_loops *l, int j) {
  const kiln_loop *nest = l->body;
  int64_t extent = 1;
  while (j-- > 0) nest = nest->next;
  if (nest->kind != KILN_LOOP_FOR || nest->how != KILN_PARALLEL) return 1;
  return kiln_expr_is_int(nest->extent, &extent) ? extent : 1;
}

int kiln_build_functions(kiln_ctx *cx, const kiln_build *b, int kernel) {
  const kiln_loops *l = b->choices.kernels.kernels.data[kernel]->loops;
  const kiln_target *t = b->request.machine.target;
  return t->launches ? t->launches(cx, &b->request.machine, l) : kiln_kernel_nests(l);
}

static kiln_status broken(layout *y, const char *place, const char *what) {
  return KILN_FAIL(y->cx->diag, KILN_INTERNAL, place, "plan: %s", what);
}

static uint64_t buffer_bytes(const kiln_buffer *b) {
  return (uint64_t)kiln_buffer_elems(b) * (uint64_t)kiln_dtype_bytes(b->dtype);
}

static bool is_dense(int rank, const int64_t *extents, const int64_t *strides) {
  int64_t want = 1;
  for (int k = rank - 1; k >= 0; k--) {
    if (extents[k] == 0) return true;
    if (extents[k] != 1 && strides[k] != want) return false;
    want *= extents[k];
  }
  return true;
}

static bool is_row_major(const kiln_tensor *t) {
  int64_t shape[KILN_MAX_RANK], strides[KILN_MAX_RANK];
  kiln_tensor_static_shape(t, shape);
  kiln_tensor_strides(t, strides);
  return is_dense(t->rank, shape, strides);
}

// --- weights ---

static bool same_view(const kiln_tensor *a, const kiln_tensor *b) {
  int64_t shape[2][KILN_MAX_RANK], strides[2][KILN_MAX_RANK];
  if (a->rank != b->rank) return false;
  kiln_tensor_static_shape(a, shape[0]);
  kiln_tensor_static_shape(b, shape[1]);
  kiln_tensor_strides(a, strides[0]);
  kiln_tensor_strides(b, strides[1]);
  for (int k = 0; k < a->rank; k++)
    if (shape[0][k] != shape[1][k] || strides[0][k] != strides[1][k]) return false;
  return true;
}

static bool same_data(const kiln_tensor *a, const kiln_tensor *b) {
  if (a->dtype != b->dtype || a->bytes != b->bytes || !same_view(a, b)) return false;
  return a->data == b->data || (a->data && b->data && memcmp(a->data, b->data, a->bytes) == 0);
}

// Whether both have the same elements; another shape bucket has tensors of its own, so contents are
// compared.
static bool same_source(const kiln_weight *w, const kiln_weight *v, bool is_shared) {
  if (w->tensor == v->tensor) return true;
  if (!is_shared || !w->late != !v->late) return false;
  if (!w->late) return same_data(w->tensor, v->tensor);
  return w->late->form == v->late->form && w->late->panel == v->late->panel &&
         same_view(w->tensor, v->tensor) && same_data(w->late->source, v->late->source);
}

// |is_shared|: |w| is from another shape bucket.
static bool same_layout(const kiln_weight *w, const kiln_weight *v, bool is_shared) {
  const bool is_rounded = kiln_weight_is_rounded(w);
  if (w->is_default != v->is_default || !w->pack != !v->pack ||
      is_rounded != kiln_weight_is_rounded(v) ||
      (is_rounded && w->buffer->dtype != v->buffer->dtype) || !same_source(w, v, is_shared))
    return false;
  if (!w->pack) return true;
  if (w->pack->rank != v->pack->rank || w->buffer->rank != v->buffer->rank ||
      !same_view(w->view, v->view))
    return false;
  for (int r = 0; r < w->pack->rank; r++)
    if (w->pack->map[r] != v->pack->map[r]) return false; // interned: equal is identical
  for (int k = 0; k < w->buffer->rank; k++)
    if (w->buffer->extents[k] != v->buffer->extents[k] ||
        w->buffer->strides[k] != v->buffer->strides[k])
      return false;
  return true;
}

// The panel width of a packed layout: the elements of an axis that are contiguous inside of a
// panel, where the outermost axis counts panels; 0: not a panel layout.
static int64_t panel_of(kiln_ctx *cx, const kiln_weight *w) {
  const kiln_symbol outer = kiln_symbol_of(cx, "o0");
  for (int k = w->buffer->rank - 1; k > 0; k--) {
    const kiln_symbol inner = kiln_symbol_printf(cx, "o%d", k);
    for (int r = 0; r < w->pack->rank; r++)
      if (kiln_expr_uses(w->pack->map[r], outer) && kiln_expr_uses(w->pack->map[r], inner))
        return w->buffer->extents[k];
  }
  return 0;
}

const uint32_t *kiln_build_panels(kiln_ctx *cx, const kiln_build *b) {
  const int64_t lanes = b->request.machine.vector_bytes / 4;
  uint32_t *panels = KILN_NEW_ARRAY(&cx->perm, uint32_t, b->choices.prog->tensors.n);
  for (int i = 0; i < b->choices.prog->tensors.n; i++) {
    const kiln_tensor *t = b->choices.prog->tensors.data[i];
    for (int k = 0; t && t->role == KILN_CONST && k < b->product.weights.n; k++) {
      const kiln_weight *w = &b->product.weights.data[k];
      if (!same_data(w->late ? w->late->source : w->tensor, t)) continue;
      if (w->late) panels[i] |= kiln_panels_bit(w->late->form->outputs, w->late->panel / lanes);
      else if (w->pack) panels[i] |= kiln_panels_bit(0, panel_of(cx, w) / lanes);
    }
  }
  return panels;
}

// Whether the bytes of |w| are a prefix of those of |v|, of another shape bucket.
static bool begins(const kiln_weight *w, const kiln_weight *v) {
  const kiln_tensor *a = w->tensor, *b = v->tensor;
  return !w->pack && !v->pack && !w->late && !v->late && !kiln_weight_is_rounded(w) &&
         !kiln_weight_is_rounded(v) && a->data && b->data && a->bytes <= b->bytes &&
         (a->data == b->data || memcmp(a->data, b->data, a->bytes) == 0);
}

static bool can_borrow(const layout *y, const kiln_weight *w) {
  return y->b->request.may_borrow && !target_of(y)->has_own_memory && !w->is_default && !w->pack &&
         !w->late && w->bytes >= BORROW_BYTES &&
         (uintptr_t)w->tensor->data % (uintptr_t)kiln_dtype_bytes(w->tensor->dtype) == 0;
}

static kiln_plan_arg weight_arg(const kiln_weight *w) {
  if (w->borrowed >= 0)
    return (kiln_plan_arg){KILN_PLACE_EXTERN, (uint32_t)w->borrowed, 0, w->bytes};
  return (kiln_plan_arg){KILN_PLACE_WEIGHTS, 0, w->offset, w->bytes};
}

// The transform that computes the elements of |t|; NULL: |t| has data.
static const kiln_winograd_weights *find_late(const kiln_build *b, const kiln_tensor *t) {
  const kiln_winograd_list *late = &b->choices.kernels.late;
  for (int i = 0; i < late->n; i++)
    if (late->data[i].tensor == t) return &late->data[i];
  return NULL;
}

// The model's bytes that |w| adds; 0 if the tensor already has a weight in another layout.
static uint64_t new_model_bytes(const kiln_build *b, const kiln_weight *w) {
  for (int i = 0; i < b->product.weights.n; i++)
    if (same_source(&b->product.weights.data[i], w, i < b->product.n_shared_weights)) return 0;
  return w->late ? w->late->source->bytes : w->tensor->bytes;
}

static void find_weight(layout *y, kiln_weight w, kiln_plan_arg *out) {
  kiln_build *build = y->b;
  w.late = find_late(build, w.tensor);
  w.bytes = w.pack || kiln_weight_is_rounded(&w) ? buffer_bytes(w.buffer) : w.tensor->bytes;
  for (int i = 0; i < build->product.weights.n; i++) {
    const kiln_weight *v = &build->product.weights.data[i];
    const bool is_shared = i < build->product.n_shared_weights;
    if (!same_layout(v, &w, is_shared) && !(is_shared && begins(&w, v))) continue;
    *out = weight_arg(v);
    out->bytes = w.bytes;
    return;
  }
  w.offset = build->product.plan.weights_bytes;
  w.borrowed = -1;
  build->request.model->memory.model_weight_bytes += new_model_bytes(build, &w);
  build->request.model->memory.weight_bytes += w.bytes;
  if (can_borrow(y, &w)) {
    w.borrowed = build->product.externs.n;
    KILN_VEC_PUSH(&y->cx->perm, &build->product.externs, w.tensor->data);
  } else build->product.plan.weights_bytes += placed_bytes(y, w.bytes);
  KILN_VEC_PUSH(&y->cx->perm, &build->product.weights, w);
  *out = weight_arg(&w);
}

// A constant as PARAM |b| of |kernel|: packed, or a view of its elements in place.
static kiln_status const_arg(layout *y, const kiln_kernel *kernel, const kiln_tensor *t,
                             const kiln_buffer *b, kiln_plan_arg *out) {
  kiln_weight w = {.tensor = t, .buffer = b, .pack = b->pack};
  const char *name = kiln_symbol_text(y->cx, t->name);
  if (!is_row_major(t)) return broken(y, name, "a constant must be stored row-major");
  if (b->pack && find_late(y->b, t)) return broken(y, name, "a packed constant must have data");
  if (b->pack) w.view = kernel->prog->tensors.data[b->pack->source];
  else if (buffer_bytes(b) > t->bytes)
    return broken(y, name, "a buffer must not exceed its tensor");
  if (w.view && kiln_storage_bytes(w.view) > t->bytes)
    return broken(y, name, "a view must not exceed its tensor");
  find_weight(y, w, out);
  return KILN_OK;
}

// --- storage of tensors ---

static int add_block(layout *y, uint64_t bytes, int launch) {
  const kiln_block block = {placed_bytes(y, bytes), launch, launch, 0};
  KILN_VEC_PUSH(&y->cx->scratch, &y->blocks, block);
  return y->blocks.n - 1;
}

// Row-major outputs are computed in the caller's memory; a tensor that is two outputs is copied to
// the second.
static void find_homes(layout *y) {
  const kiln_program *p = y->b->choices.prog;
  y->at = KILN_NEW_ARRAY(&y->cx->scratch, residence, p->tensors.n);
  for (int i = 0; i < p->inputs.n; i++) y->at[p->inputs.data[i]] = (residence){HOME_INPUT, i};
  for (int i = 0; i < p->outputs.n; i++) {
    const int t = p->outputs.data[i];
    const kiln_tensor *tensor = p->tensors.data[t];
    if (y->at[t].home == HOME_NONE && tensor->inside && tensor->role == KILN_OUTPUT)
      y->at[t] = y->at[tensor->inside->id]; // a state, in its input's memory
    else if (y->at[t].home == HOME_NONE && tensor->role != KILN_CONST && is_row_major(tensor))
      y->at[t] = (residence){HOME_OUTPUT, i};
  }
}

static bool computes(const kiln_launch *l, int stmt) {
  for (int i = 0; i < l->n_stmts; i++)
    if (l->stmts[i] == stmt) return true;
  return false;
}

// The live range of a temporary's block: from the launch that computes it, or the first of the
// tensors inside of it, to its last reader.
static kiln_status tensor_arg(layout *y, int launch, const kiln_argument *argument, uint64_t bytes,
                              kiln_plan_arg *out) {
  const kiln_tensor *t = y->b->choices.prog->tensors.data[argument->tensor];
  const kiln_tensor *own = t; // the tensor that owns the storage
  const char *name = kiln_symbol_text(y->cx, t->name);
  const uint64_t elem = (uint64_t)kiln_dtype_bytes(t->dtype),
                 first = (uint64_t)argument->offset * elem;
  uint64_t offset = first;
  if (kiln_storage_bytes(t) == 0) bytes = 0; // an empty tensor, whatever the view's strides
  if (bytes > 0 && first + bytes > kiln_storage_bytes(t))
    return broken(y, name, "a buffer must not exceed its tensor");
  for (; own->inside; own = own->inside) offset += (uint64_t)own->offset * elem;
  residence *at = &y->at[own->id];
  *out = (kiln_plan_arg){KILN_PLACE_ARENA, 0, 0, bytes};
  if (at->home == HOME_NONE) {
    if (!computes(&y->b->choices.kernels.launches.data[launch], t->def))
      return broken(y, name, "a tensor must be computed before it is read");
    *at = (residence){HOME_ARENA, add_block(y, kiln_storage_bytes(own), launch)};
  }
  switch (at->home) {
  case HOME_INPUT:
    *out = (kiln_plan_arg){KILN_PLACE_INPUT, (uint32_t)at->index, offset, bytes};
    break;
  case HOME_OUTPUT:
    *out = (kiln_plan_arg){KILN_PLACE_OUTPUT, (uint32_t)at->index, offset, bytes};
    break;
  case HOME_ARENA: {
    const patch p = {y->args.n, at->index, offset};
    y->blocks.data[at->index].last = launch;
    KILN_VEC_PUSH(&y->cx->scratch, &y->patches, p);
    break;
  }
  case HOME_NONE: break;
  }
  if (offset % (uint64_t)target_of(y)->param_align_bytes != 0)
    return broken(y, name,
                  kiln_arena_printf(&y->cx->perm,
                                    "a part of another tensor must begin at a multiple of %d bytes",
                                    target_of(y)->param_align_bytes));
  return KILN_OK;
}

static kiln_plan_arg workspace_arg(layout *y, int launch, uint64_t bytes) {
  const patch p = {y->args.n, add_block(y, bytes, launch), 0};
  KILN_VEC_PUSH(&y->cx->scratch, &y->patches, p);
  return (kiln_plan_arg){KILN_PLACE_ARENA, 0, 0, bytes};
}

// --- launches ---

static kiln_status add_args(layout *y, int launch) {
  const kiln_launch *l = &y->b->choices.kernels.launches.data[launch];
  const kiln_kernel *kernel = y->b->choices.kernels.kernels.data[l->kernel];
  const kiln_loops *loops = kernel->loops;
  int n = 0;
  for (int i = 0; i < loops->buffers.n; i++) {
    const kiln_buffer *b = loops->buffers.data[i];
    kiln_plan_arg arg = {0};
    if (!b || !kiln_scope_is_argument(b->scope)) continue;
    if (b->scope == KILN_SCOPE_WORKSPACE) arg = workspace_arg(y, launch, buffer_bytes(b));
    else {
      if (n >= l->n_args)
        return broken(y, kiln_symbol_text(y->cx, loops->name), "a launch must bind every PARAM");
      const kiln_argument *a = &l->args[n++];
      const kiln_tensor *t = y->b->choices.prog->tensors.data[a->tensor];
      if (t->role == KILN_CONST) KILN_TRY(const_arg(y, kernel, t, b, &arg));
      else KILN_TRY(tensor_arg(y, launch, a, buffer_bytes(b), &arg));
    }
    KILN_VEC_PUSH(&y->cx->perm, &y->args, arg);
  }
  if (n == l->n_args) return KILN_OK;
  return broken(y, kiln_symbol_text(y->cx, loops->name), "a launch must bind nothing but PARAMs");
}

// The number of threads that a nest is worth: waking one costs about a microsecond, so its share of
// the work must take several. Throughput is assumed low (16 flops, 8 bytes a cycle), which favours
// splitting.
static uint32_t worth_threads(double flops, double bytes) {
  const double cycles = flops / 16 + bytes / 8;
  const double threads = cycles / 5000;
  return threads < 2 ? 1 : threads > 1024 ? 1024 : (uint32_t)threads;
}

kiln_plan_map kiln_gpu_plan_map(const kiln_gpu_map *m) {
  kiln_plan_map map = {.index = (uint32_t)m->arg,
                       .n_axes = m->steps[0] ? KILN_MAP_AXES : 1,
                       .box_rows = (uint32_t)m->box_rows,
                       .box_columns = (uint32_t)m->box_columns,
                       .columns = (uint64_t)m->columns};
  for (uint32_t a = 0; a < map.n_axes; a++) {
    map.rows[a] = (uint64_t)m->rows[a];
    map.pitches[a] = 2 * (uint64_t)m->pitches[a];
  }
  for (int a = 0; a < 2; a++) {
    map.steps[a] = (uint32_t)m->steps[a];
    map.lower[a] = (int32_t)m->lower[a];
    map.upper[a] = (int32_t)m->upper[a];
  }
  return map;
}

// A grid without blocks, of an empty tensor, has zero sizes throughout.
static void set_grid(layout *y, const kiln_gpu_launch *l, int image, kiln_plan_nest *nest) {
  nest->image = (uint32_t)image;
  for (int k = 0; k < 3; k++) {
    nest->grid[k] = (uint32_t)l->grid[k];
    nest->block[k] = l->block[k] > 0 ? (uint32_t)l->block[k] : 1;
  }
  nest->shared_bytes = (uint32_t)l->shared_bytes;
  nest->waits = l->waits;
  nest->first_index = (uint32_t)y->indices.n;
  nest->n_indices = (uint32_t)l->n_args;
  for (int i = 0; i < l->n_args; i++)
    KILN_VEC_PUSH(&y->cx->perm, &y->indices, (uint32_t)l->args[i]);
  _Static_assert((int)KILN_MAX_MAPS <= (int)KILN_PLAN_MAX_MAPS,
                 "a plan has room for a launch's maps");
  nest->n_maps = (uint32_t)l->n_maps;
  for (int i = 0; i < l->n_maps; i++) nest->maps[i] = kiln_gpu_plan_map(&l->maps[i]);
}

static void add_nests(layout *y, const kiln_kernel *k, double flops, double bytes) {
  const int n = kiln_build_functions(y->cx, y->b, k->id);
  for (int j = 0; j < n; j++) {
    kiln_plan_nest nest = {
        .function = (uint32_t)(y->b->product.first_function[k->id] + j), .threads = 1, .extent = 1};
    if (target_of(y)->has_grids)
      set_grid(y, &y->b->product.gpu_launches[k->id][j], y->b->product.gpu_images[k->id], &nest);
    else {
      nest.threads = worth_threads(flops, bytes);
      nest.extent = kiln_nest_extent(k->loops, j);
    }
    KILN_VEC_PUSH(&y->cx->perm, &y->nests, nest);
  }
}

// Index of the kernel's library call plus 1; 0: none.
static uint32_t find_call(layout *y, const kiln_kernel *k, double bytes) {
  const kiln_library_candidate *o = k->by_library;
  if (!o) return 0;
  for (int i = 0; i < y->calls.n; i++)
    if (y->calls.data[i].text == o->call) return (uint32_t)i + 1;
  const kiln_plan_call call = {o->backend, o->call,
                               target_of(y)->has_grids ? 1 : worth_threads(k->flops, bytes)};
  KILN_VEC_PUSH(&y->cx->perm, &y->calls, call);
  return (uint32_t)y->calls.n;
}

static kiln_status add_launches(layout *y) {
  kiln_plan *p = &y->b->product.plan;
  const kiln_kernels *k = &y->b->choices.kernels;
  p->n_launches = (uint32_t)k->launches.n;
  p->launches = KILN_NEW_ARRAY(&y->cx->perm, kiln_plan_launch, k->launches.n);
  for (int i = 0; i < k->launches.n; i++) {
    const kiln_kernel *kernel = k->kernels.data[k->launches.data[i].kernel];
    kiln_plan_launch *l = &p->launches[i];
    double touched = 0;
    *l = (kiln_plan_launch){.kernel = kiln_symbol_text(y->cx, kernel->name),
                            .nodes = kiln_symbol_text(y->cx, k->launches.data[i].origin),
                            .flops = kernel->flops,
                            .bytes = kernel->bytes,
                            .first_arg = (uint32_t)y->args.n,
                            .first_nest = (uint32_t)y->nests.n};
    KILN_TRY(add_args(y, i));
    l->n_args = (uint32_t)y->args.n - l->first_arg;
    for (uint32_t a = l->first_arg; a < l->first_arg + l->n_args; a++)
      touched += (double)y->args.data[a].bytes;
    if (kernel->bytes > touched) touched = kernel->bytes;
    add_nests(y, kernel, kernel->flops, touched);
    l->call = find_call(y, kernel, touched);
    l->n_nests = (uint32_t)y->nests.n - l->first_nest;
  }
  return KILN_OK;
}

static const char *function_of(const layout *y, int kernel, int nest) {
  const kiln_cpu_nests *all = y->b->product.nests;
  const kiln_cpu_nest own = {kernel, nest}, is = all ? all->same[all->first[kernel] + nest] : own;
  return kiln_arena_printf(&y->cx->perm, "%s_%d", y->b->product.symbols[is.kernel], is.nest);
}

static void make_functions(layout *y) {
  kiln_plan *p = &y->b->product.plan;
  const int n = y->b->choices.kernels.kernels.n;
  int count = 0;
  y->b->product.first_function = KILN_NEW_ARRAY(&y->cx->perm, int, n);
  for (int i = 0; i < n; i++) {
    y->b->product.first_function[i] = count;
    count += kiln_build_functions(y->cx, y->b, i);
  }
  p->n_functions = (uint32_t)count;
  p->functions = KILN_NEW_ARRAY(&y->cx->perm, const char *, count);
  for (int i = 0, at = 0; i < n; i++)
    for (int j = 0; at < (i + 1 < n ? y->b->product.first_function[i + 1] : count); j++)
      p->functions[at++] = function_of(y, i, j);
}

// --- outputs that need a copy ---

static kiln_status add_copy(layout *y, int output) {
  const kiln_tensor *t = y->b->choices.prog->tensors.data[y->b->choices.prog->outputs.data[output]];
  const residence *at = &y->at[t->id];
  kiln_plan_copy copy = {.output = (uint32_t)output};
  kiln_tensor_strides(t, copy.strides);
  if (t->role == KILN_CONST) find_weight(y, (kiln_weight){.tensor = t}, &copy.from);
  else if (at->home == HOME_NONE)
    return broken(y, kiln_symbol_text(y->cx, t->name), "an output must be computed");
  else if (at->home == HOME_ARENA) {
    const patch p = {y->copies.n, at->index, 0};
    copy.from = (kiln_plan_arg){KILN_PLACE_ARENA, 0, 0, kiln_storage_bytes(t)};
    y->blocks.data[at->index].last = y->b->choices.kernels.launches.n;
    KILN_VEC_PUSH(&y->cx->scratch, &y->copy_patches, p);
  } else {
    const kiln_place where = at->home == HOME_INPUT ? KILN_PLACE_INPUT : KILN_PLACE_OUTPUT;
    copy.from = (kiln_plan_arg){where, (uint32_t)at->index, 0, kiln_storage_bytes(t)};
  }
  KILN_VEC_PUSH(&y->cx->perm, &y->copies, copy);
  return KILN_OK;
}

static kiln_status add_copies(layout *y) {
  const kiln_program *p = y->b->choices.prog;
  for (int i = 0; i < p->outputs.n; i++) {
    const residence *at = &y->at[p->outputs.data[i]];
    if (at->home != HOME_OUTPUT || at->index != i) KILN_TRY(add_copy(y, i));
  }
  return KILN_OK;
}

// --- the rest of the plan ---

static void place_blocks(layout *y) {
  uint64_t bytes = 0;
  kiln_blocks_place(&y->cx->scratch, y->blocks.n, y->blocks.data, &bytes);
  for (int i = 0; i < y->patches.n; i++)
    y->args.data[y->patches.data[i].arg].offset =
        y->blocks.data[y->patches.data[i].block].offset + y->patches.data[i].offset;
  for (int i = 0; i < y->copy_patches.n; i++)
    y->copies.data[y->copy_patches.data[i].arg].from.offset =
        y->blocks.data[y->copy_patches.data[i].block].offset;
  y->b->product.plan.arena_bytes = bytes;
  y->b->product.plan.arena_bound_bytes =
      kiln_blocks_bound(&y->cx->scratch, y->blocks.n, y->blocks.data);
  y->b->request.model->memory.arena_bytes = bytes;
  y->b->request.model->memory.arena_lower_bound_bytes = y->b->product.plan.arena_bound_bytes;
}

static kiln_plan_port *make_ports(layout *y, const kiln_interface *face, uint32_t *out_n) {
  kiln_plan_port *ports = KILN_NEW_ARRAY(&y->cx->perm, kiln_plan_port, face->n);
  for (int i = 0; i < face->n; i++) {
    const kiln_port *from = &face->ports[i];
    ports[i] = (kiln_plan_port){
        .name = from->name, .type = kiln_type_find(from->dtype), .rank = from->rank};
    memcpy(ports[i].shape, from->shape, (size_t)from->rank * sizeof(int64_t));
  }
  *out_n = (uint32_t)face->n;
  return ports;
}

// Default values of optional inputs are stored in the weights, row-major.
static void place_defaults(layout *y) {
  const kiln_model *m = y->b->request.model;
  for (int i = 0; m->defaults && i < m->inputs.n; i++) {
    if (!m->defaults[i]) continue;
    const DLTensor *from = &m->defaults[i]->dl_tensor;
    kiln_tensor *t = KILN_NEW(&y->cx->perm, kiln_tensor);
    t->role = KILN_CONST;
    t->dtype = KILN_U8;
    t->rank = 1;
    t->bytes = kiln_tensor_bytes(from);
    t->shape = KILN_NEW_ARRAY(&y->cx->perm, const kiln_expr *, 1);
    t->shape[0] = kiln_int(y->cx, (int64_t)t->bytes);
    t->data = from->data;
    kiln_plan_arg at;
    find_weight(y, (kiln_weight){.tensor = t, .is_default = true}, &at);
    y->b->product.plan.inputs[i].initial = at.offset + 1;
  }
}

// The CPU features that the code uses and that a runtime can detect.
static void make_features(layout *y) {
  kiln_plan *p = &y->b->product.plan;
  int n = 0;
  if (target_of(y)->has_images) return; // their driver checks what the device supports
  const char *const *needs = kiln_cpu_needs(y->cx, &y->b->request.machine, y->b->product.n_objects,
                                            y->b->product.objects, &n);
  p->features = KILN_NEW_ARRAY(&y->cx->perm, const char *, n + 1);
  p->features[p->n_features++] = kiln_cpu_architecture();
  for (int i = 0; i < n; i++)
    if (kiln_cpu_knows(needs[i])) p->features[p->n_features++] = needs[i];
}

static void make_target(layout *y) {
  kiln_plan *p = &y->b->product.plan;
  if (target_of(y)->has_runtime) p->kind = target_of(y)->runtime;
  p->arch = y->b->request.machine.gpu.arch;
  p->compiler = kiln_version();
  p->processor = y->b->request.machine.cpu;
  p->threads = (uint32_t)y->b->request.model->options.threads;
  p->n_indices = (uint32_t)y->indices.n;
  p->indices = y->indices.data;
}

kiln_status kiln_layout_make(kiln_ctx *cx, kiln_build *b) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  layout y = {.cx = cx, .b = b};
  kiln_plan *p = &b->product.plan;
  b->request.model->memory = (kiln_memory){0};
  find_homes(&y);
  make_functions(&y);
  KILN_TRY(add_launches(&y));
  KILN_TRY(add_copies(&y));
  place_blocks(&y);
  p->inputs = make_ports(&y, &b->request.model->inputs, &p->n_inputs);
  p->outputs = make_ports(&y, &b->request.model->outputs, &p->n_outputs);
  place_defaults(&y);
  p->n_shapes = (uint32_t)b->choices.prog->shape_of.n;
  p->shape_of = KILN_NEW_ARRAY(&cx->perm, uint32_t, p->n_shapes);
  for (uint32_t i = 0; i < p->n_shapes; i++)
    p->shape_of[i] = (uint32_t)b->choices.prog->shape_of.data[i];
  p->n_checks = (uint32_t)b->choices.prog->checks.n;
  p->checks = kiln_plan_checks_of(cx, b->choices.prog);
  p->n_states = (uint32_t)b->request.model->states.n;
  p->states = KILN_NEW_ARRAY(&cx->perm, kiln_plan_state, p->n_states);
  for (uint32_t i = 0; i < p->n_states; i++) {
    const kiln_state_ports *s = &b->request.model->states.data[i];
    p->states[i] = (kiln_plan_state){(uint32_t)s->input, (uint32_t)s->output};
  }
  make_features(&y);
  make_target(&y);
  p->n_args = (uint32_t)y.args.n;
  p->args = y.args.data;
  p->n_nests = (uint32_t)y.nests.n;
  p->nests = y.nests.data;
  p->n_copies = (uint32_t)y.copies.n;
  p->copies = y.copies.data;
  p->n_calls = (uint32_t)y.calls.n;
  p->calls = y.calls.data;
  p->n_externs = (uint32_t)b->product.externs.n;
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

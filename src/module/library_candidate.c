// External-codegen (BYOC) candidates: calls of libraries as candidates of kernels.
#include "module/library_candidate.h"
#include "backend/backend.h"
#include "module/library_match.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_ROOM = 512 };

static const char always[] = "always";

// --- which backends ---

static bool has_name(const char *list, const char *name) {
  const size_t n = strlen(name);
  for (const char *at = list; at && *at; at += *at == ',') {
    const size_t length = strcspn(at, ",");
    if (length == n && strncmp(at, name, n) == 0) return true;
    at += length;
  }
  return false;
}

static kiln_status unknown(const char *name, size_t length, kiln_diag *diag) {
  char names[256] = "";
  for (int i = 0; kiln_backends[i]; i++) {
    const size_t n = strlen(names);
    snprintf(names + n, sizeof names - n, "%s, ", kiln_backends[i]->name);
  }
  return KILN_FAIL(diag, KILN_BAD_INPUT, "options",
                   "backends: must be none, all, or of %salways, joined by ',', got \"%.*s\"",
                   names, (int)length, name);
}

kiln_status kiln_backends_check(const char *list, kiln_diag *diag) {
  if (!list || strcmp(list, "none") == 0) return KILN_OK;
  for (const char *at = list; *at || at == list; at += *at == ',') {
    const size_t length = strcspn(at, ",");
    bool is_known = (length == strlen(always) && strncmp(always, at, length) == 0) ||
                    (length == 3 && strncmp("all", at, length) == 0);
    for (int i = 0; kiln_backends[i]; i++) {
      const char *name = kiln_backends[i]->name;
      is_known |= strlen(name) == length && strncmp(name, at, length) == 0;
    }
    if (!is_known) return unknown(at, length, diag);
    at += length;
  }
  return KILN_OK;
}

// --- candidates ---

typedef struct offering {
  kiln_ctx *cx;
  kiln_build *b;
  const kiln_library *library;
  const kiln_template *row; // the template row with the library's name
  const char *version;
} offering;

static const kiln_dtype dtypes[KILN_N_CALL_TYPES] = {KILN_F32, KILN_F32, KILN_F16, KILN_BF16};

// The dtype of argument |arg| in the call.
static kiln_dtype dtype_of(const kiln_library_call *c, int64_t arg, kiln_dtype otherwise) {
  const kiln_library_call_tensor *all[3 + KILN_CALL_POSTS] = {&c->a, &c->b, &c->c};
  int n = 3;
  for (int i = 0; i < c->n_posts; i++)
    if (c->posts[i].kind == KILN_POST_ADD) all[n++] = &c->posts[i].tensor;
  for (int i = 0; i < n; i++)
    if (all[i]->arg == arg) return dtypes[all[i]->type];
  return otherwise;
}

// An axis of a convolution's weights, with its stride in the call.
typedef struct weight_axis {
  int64_t extent, *stride;
} weight_axis;
enum { WEIGHT_AXES = 5 };

// The weights' axes in preferred storage order, following the image: channels last, or before rows.
static void order_weights(kiln_library_call *c, weight_axis out[WEIGHT_AXES]) {
  const bool are_last = (c->k.extent > 1 ? c->k.a : c->batch[1].a) == 1;
  const weight_axis groups = {c->batch[1].extent, &c->batch[1].b}, n = {c->n.extent, &c->n.b},
                    k = {c->k.extent, &c->k.b}, rows = {c->window[0].kernel, &c->window[0].b},
                    columns = {c->window[1].kernel, &c->window[1].b};
  const weight_axis last[] = {groups, n, rows, columns, k}, first[] = {groups, n, k, rows, columns};
  memcpy(out, are_last ? last : first, sizeof last);
}

// A buffer that packs the constant |t| in the order of |axes|; updates the call's strides.
static kiln_buffer *store_in_order(kiln_ctx *cx, kiln_loops *l, const kiln_tensor *t, int tensor,
                                   const weight_axis *axes) {
  int64_t extents[WEIGHT_AXES], shape[KILN_MAX_RANK], strides[KILN_MAX_RANK], step = 1;
  const kiln_expr *element = kiln_int(cx, 0);
  kiln_pack *pack = KILN_NEW(&cx->perm, kiln_pack);
  for (int i = WEIGHT_AXES - 1; i >= 0; i--) {
    const kiln_expr *at = kiln_var(cx, kiln_symbol_printf(cx, "o%d", i));
    element = kiln_add(cx, element, kiln_mul(cx, at, kiln_int(cx, *axes[i].stride)));
    extents[i] = axes[i].extent;
    *axes[i].stride = step;
    step *= axes[i].extent;
  }
  (void)kiln_tensor_static_shape(t, shape);
  kiln_tensor_strides(t, strides);
  *pack = (kiln_pack){tensor, t->rank, KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, t->rank)};
  for (int r = 0; r < t->rank; r++)
    pack->map[r] =
        kiln_mod(cx, kiln_div(cx, element, kiln_int(cx, strides[r])), kiln_int(cx, shape[r]));
  kiln_buffer *b = kiln_buffer_make(cx, l, kiln_symbol_text(cx, t->name), t->dtype,
                                    KILN_SCOPE_PARAM, WEIGHT_AXES, extents, NULL);
  b->pack = pack;
  return b;
}

// Whether |t|, argument |arg| of a GPU call, is exactly a convolution's constant weights, stored in
// another order than the preferred one.
static bool is_misplaced(const offering *o, const kiln_tensor *t, const kiln_library_call *c,
                         int64_t arg, const weight_axis *axes) {
  int64_t elems = 1;
  bool is_in_order = true;
  if (o->library->backend->place == KILN_BACKEND_CPU || c->kind != KILN_CALL_CONVOLUTION ||
      t->role != KILN_CONST || arg != c->b.arg || arg == c->a.arg || c->b.offset)
    return false;
  for (int i = 0; i < c->n_posts; i++)
    if (c->posts[i].kind == KILN_POST_ADD && c->posts[i].tensor.arg == arg) return false;
  for (int i = WEIGHT_AXES - 1; i >= 0; i--) {
    is_in_order &= axes[i].extent == 1 || *axes[i].stride == elems;
    elems *= axes[i].extent;
  }
  return !is_in_order && elems == kiln_tensor_elems(t);
}

// Loops with the kernel's arguments and an empty body.
static kiln_loops *bare_loops(const offering *o, const kiln_kernel *k, kiln_library_call *call) {
  kiln_ctx *cx = o->cx;
  weight_axis axes[WEIGHT_AXES];
  kiln_loops *l = kiln_loops_make(cx, kiln_symbol_text(cx, k->name));
  int64_t n = 0;
  for (int i = 0; i < k->prog->tensors.n; i++) {
    const kiln_tensor *t = k->prog->tensors.data[i];
    int64_t shape[KILN_MAX_RANK], strides[KILN_MAX_RANK];
    if (!kiln_tensor_is_param(k->prog, i) || !kiln_tensor_static_shape(t, shape)) continue;
    kiln_tensor_strides(t, strides);
    order_weights(call, axes);
    if (is_misplaced(o, t, call, n, axes)) store_in_order(cx, l, t, i, axes);
    else
      kiln_buffer_make(cx, l, kiln_symbol_text(cx, t->name), dtype_of(call, n, t->dtype),
                       KILN_SCOPE_PARAM, t->rank, shape, strides)
          ->tensor = i;
    n++;
  }
  return l;
}

// Whether the library supports the call, which only it can tell; on a GPU it is asked when the
// kernel is measured.
static bool can_bind(const offering *o, const kiln_kernel *k, const kiln_library_call *call) {
  const kiln_mark mark = kiln_arena_mark(&o->cx->scratch);
  char **none = KILN_NEW_ARRAY(&o->cx->scratch, char *, k->prog->tensors.n);
  kiln_bound bound;
  if (o->library->backend->place != KILN_BACKEND_CPU) return o->library->backend->takes(call);
  const bool can = o->library->backend->takes(call) &&
                   kiln_bound_create(o->library, call, o->b->request.model->options.threads, none,
                                     NULL, &bound) == KILN_OK;
  if (can) kiln_bound_deinit(&bound);
  kiln_arena_rewind(&o->cx->scratch, mark);
  return can;
}

static int64_t count_params(const kiln_program *p) {
  int64_t n = 0;
  for (int i = 0; i < p->tensors.n; i++) n += kiln_tensor_is_param(p, i);
  return n;
}

// Appends a workspace for the library to the kernel's arguments.
static void add_workspace(const offering *o, const kiln_kernel *k, kiln_loops *l,
                          kiln_library_call *call) {
  if (!o->library->backend->workspace) return;
  call->workspace =
      (kiln_library_call_workspace){count_params(k->prog), o->library->backend->workspace(call)};
  if (call->workspace.bytes)
    kiln_buffer_make(o->cx, l, "workspace", KILN_U8, KILN_SCOPE_WORKSPACE, 1,
                     &call->workspace.bytes, NULL);
}

// Adds the library candidate, if the library supports it.
static void offer(const offering *o, kiln_kernel *k, kiln_library_call *call) {
  kiln_ctx *cx = o->cx;
  kiln_library_candidate *made = KILN_NEW(&cx->perm, kiln_library_candidate);
  kiln_tile_candidate c = {.from = o->row, .cost = {.ns = INFINITY}, .by_library = made};
  char text[TEXT_ROOM];
  c.loops = bare_loops(o, k, call);
  if (!can_bind(o, k, call)) return;
  add_workspace(o, k, c.loops, call);
  if (kiln_library_call_print(call, text, sizeof text) >= sizeof text) return;
  *made = (kiln_library_candidate){.backend = o->library->backend->name,
                                   .version = o->version,
                                   .call = kiln_arena_strdup(&cx->perm, text)};
  c.script = kiln_arena_printf(&cx->perm, "# by %s: %s\n", made->backend, text);
  KILN_VEC_PUSH(&cx->perm, &k->candidates, c);
}

static void offer_all(const offering *o) {
  kiln_kernels *k = &o->b->choices.kernels;
  for (int i = 0; i < k->kernels.n; i++) {
    kiln_kernel *one = k->kernels.data[i];
    kiln_library_call
        call; // matched on the outlined program: after canonicalization patterns are lost
    if (one->key && one->candidates.n > 0 &&
        kiln_library_match(o->cx, &o->b->request.machine, one->outlined, &call))
      offer(o, one, &call);
  }
}

static const char *version_of(kiln_ctx *cx, const kiln_library *l) {
  char text[TEXT_ROOM] = "";
  (void)l->backend->version(l->opened, text, sizeof text);
  return kiln_arena_strdup(&cx->perm, text);
}

static kiln_status offer_by(kiln_ctx *cx, kiln_build *b, const kiln_backend *backend,
                            bool is_named) {
  kiln_library library;
  const kiln_status st = kiln_library_open(backend, is_named ? cx->diag : NULL, &library);
  if (st != KILN_OK) return is_named ? st : KILN_OK;
  kiln_template *row = KILN_NEW(&cx->perm, kiln_template);
  row->name = backend->name;
  const offering o = {cx, b, &library, row, version_of(cx, &library)};
  offer_all(&o);
  kiln_library_close(&library);
  return KILN_OK;
}

// Whether modules of |b| may call |backend|.
static bool is_for(const kiln_build *b, const kiln_backend *backend) {
  return b->request.machine.target->libraries >> backend->place & 1;
}

kiln_status kiln_build_add_library_candidates(kiln_ctx *cx, kiln_build *b) {
  const char *list = b->request.model->options.backends;
  for (int i = 0; list && kiln_backends[i]; i++) {
    const bool is_named = has_name(list, kiln_backends[i]->name);
    if (is_for(b, kiln_backends[i]) && (is_named || has_name(list, "all")))
      KILN_TRY(offer_by(cx, b, kiln_backends[i], is_named));
  }
  return KILN_OK;
}

kiln_status kiln_build_take_library_candidates(kiln_ctx *cx, kiln_build *b, bool *out_taken) {
  const kiln_kernels *k = &b->choices.kernels;
  *out_taken = has_name(b->request.model->options.backends, always);
  if (!*out_taken) return KILN_OK;
  kiln_tuning *sum = &b->request.model->tuning;
  kiln_text won;
  kiln_text_init(&won, &cx->perm);
  *sum = (kiln_tuning){0};
  KILN_TRY(kiln_build_add_library_candidates(cx, b));
  for (int i = 0; i < k->kernels.n; i++) {
    kiln_kernel *one = k->kernels.data[i];
    const kiln_tile_candidate *first = one->candidates.data, *end = first + one->candidates.n;
    while (first < end && !first->by_library) first++;
    sum->kernels++;
    if (first == end) continue;
    sum->offered++;
    kiln_kernel_take(cx, one, first);
    kiln_text_printf(&won, "%s  by %s\n", kiln_symbol_text(cx, one->name),
                     first->by_library->backend);
  }
  sum->won = won.data ? won.data : "";
  return KILN_OK;
}

// --- running a candidate ---

static kiln_status run_parts(kiln_ctx *cx, const kiln_library *l,
                             const kiln_library_candidate *offer, char *const *constants,
                             char *const *args) {
  kiln_library_call call;
  kiln_bound bound;
  bool ran = kiln_library_call_parse(offer->call, &call);
  if (!ran) return KILN_FAIL(cx->diag, KILN_INTERNAL, offer->call, "call: must be one");
  KILN_TRY(kiln_bound_create(l, &call, 2, constants, cx->diag, &bound));
  for (int i = 0; i < bound.n; i++) ran = kiln_bound_run(&bound, i, args, NULL, cx->diag) && ran;
  kiln_bound_deinit(&bound);
  if (ran) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_DEVICE_ERROR, offer->backend, "library: must run \"%s\"",
                   offer->call);
}

kiln_status kiln_library_candidate_run(kiln_ctx *cx, const kiln_library_candidate *offer,
                                       const kiln_program *p, char *const *args) {
  char **constants = KILN_NEW_ARRAY(&cx->scratch, char *, p->tensors.n);
  kiln_library library;
  for (int i = 0, n = 0; i < p->tensors.n; i++) {
    if (p->tensors.data[i]->role == KILN_CONST) constants[n] = args[n];
    n += kiln_tensor_is_param(p, i);
  }
  KILN_TRY(kiln_library_open(kiln_backend_find(offer->backend), cx->diag, &library));
  const kiln_status st = run_parts(cx, &library, offer, constants, args);
  kiln_library_close(&library);
  return st;
}

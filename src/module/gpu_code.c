// Code generation for GPUs: kernels become sources and, if the target has a compiler, binary
// images, from the cache if they are there.
#include "module/build.h"
#include "module/cache.h"
#include "runtime/pool.h"
#include "runtime/gpu/resident.h"
#include "target/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

// --- sources ---

static kiln_status emit_one(kiln_ctx *cx, kiln_build *b, int i, const char **out_source) {
  kiln_loops *loops = b->choices.kernels.kernels.data[i]->loops;
  kiln_text source;
  int n_launches = 0;
  kiln_text_init(&source, &cx->perm);
  KILN_TRY(kiln_gpu_emit(cx, &b->request.machine, loops, b->product.symbols[i], &source,
                         &n_launches, &b->product.gpu_launches[i]));
  if (n_launches != kiln_build_functions(cx, b, i))
    return KILN_FAIL(cx->diag, KILN_INTERNAL, b->product.symbols[i],
                     "functions: must be as many as launches");
  *out_source = source.data;
  return KILN_OK;
}

kiln_status kiln_build_device_loops(kiln_ctx *cx, kiln_build *b) {
  kiln_text_init(&b->product.device_loops, &cx->perm);
  kiln_text_add(&b->product.device_loops, "");
  for (int i = 0; i < b->choices.kernels.kernels.n; i++) {
    const kiln_kernel *k = b->choices.kernels.kernels.data[i];
    const int n = k->by_library ? 0 : kiln_kernel_nests(k->loops);
    for (int nest = 0; nest < n; nest++) {
      kiln_gpu_device d;
      KILN_TRY(kiln_gpu_lower(cx, &b->request.machine, k->loops, nest, &d));
      kiln_loops_print(cx, d.loops, &b->product.device_loops);
      kiln_text_add(&b->product.device_loops, "\n");
    }
  }
  return KILN_OK;
}

static const char *level_of(const kiln_build *b) {
  return b->request.machine.target->code_levels[0];
}

static bool dumps_sources(const kiln_build *b) {
  return kiln_model_dumps(b->request.model, level_of(b));
}

static void dump(kiln_ctx *cx, kiln_build *b, const char *const *sources) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_text text;
  if (!dumps_sources(b)) return;
  kiln_text_init(&text, &cx->scratch);
  for (int i = 0; i < b->choices.kernels.kernels.n; i++)
    if (sources[i]) kiln_text_printf(&text, "%s\n", sources[i]);
  kiln_model_dump(b->request.model, level_of(b), &text);
  kiln_arena_rewind(&cx->scratch, mark);
}

// --- images ---

typedef struct coding {
  kiln_ctx *cx;
  kiln_build *b;
  kiln_cache *cache; // NULL: no cache
  const char **sources;
  kiln_cache_key *keys;
  int n; // number of kernels not found in the cache
  int *missing;
} coding;

static kiln_status no_memory(kiln_ctx *cx, const kiln_build *b) {
  return KILN_FAIL(cx->diag, KILN_NO_MEMORY, b->request.model->path, "objects: no memory left");
}

// The printed loops and the architecture's name determine the code completely.
static kiln_cache_key key_of(const coding *c, int kernel, int version) {
  const kiln_mark mark = kiln_arena_mark(&c->cx->scratch);
  kiln_cache_key key;
  kiln_digest d;
  kiln_text text;
  kiln_text_init(&text, &c->cx->scratch);
  kiln_loops_print(c->cx, c->b->choices.kernels.kernels.data[kernel]->loops, &text);
  kiln_cache_key_begin(&d);
  kiln_digest_add_text(&d, "cubin");
  kiln_digest_add_text(&d, c->b->request.machine.gpu.arch);
  kiln_digest_add_int(&d, version);
  kiln_digest_add_text(&d, c->b->product.symbols[kernel]);
  kiln_digest_add_text(&d, text.data);
  kiln_digest_end(&d, key.bytes);
  kiln_arena_rewind(&c->cx->scratch, mark);
  return key;
}

static void add(kiln_text *out, const void *bytes, size_t n) {
  kiln_text_add_bytes(out, (const char *)bytes, n);
}

// An entry has the launch parameters of each nest, followed by the cubin.
static void put_launches(const coding *c, int kernel, kiln_text *out) {
  const int n = kiln_build_functions(c->cx, c->b, kernel);
  for (int j = 0; j < n; j++) {
    const kiln_gpu_launch *l = &c->b->product.gpu_launches[kernel][j];
    add(out, l->grid, sizeof l->grid);
    add(out, l->block, sizeof l->block);
    add(out, &l->shared_bytes, sizeof l->shared_bytes);
    add(out, &l->waits, sizeof l->waits);
    add(out, &l->n_args, sizeof l->n_args);
    add(out, l->args, (size_t)l->n_args * sizeof *l->args);
    add(out, &l->n_maps, sizeof l->n_maps);
    add(out, l->maps, (size_t)l->n_maps * sizeof *l->maps);
  }
}

static bool take(const char **at, size_t *left, void *to, size_t bytes) {
  if (bytes > *left) return false;
  if (bytes) memcpy(to, *at, bytes);
  *at += bytes;
  *left -= bytes;
  return true;
}

static bool take_launches(const coding *c, int kernel, const char **at, size_t *left) {
  const int n = kiln_build_functions(c->cx, c->b, kernel);
  kiln_gpu_launch *launches = KILN_NEW_ARRAY(&c->cx->perm, kiln_gpu_launch, n);
  for (int j = 0; j < n; j++) {
    kiln_gpu_launch *l = &launches[j];
    if (!take(at, left, l->grid, sizeof l->grid) || !take(at, left, l->block, sizeof l->block) ||
        !take(at, left, &l->shared_bytes, sizeof l->shared_bytes) ||
        !take(at, left, &l->waits, sizeof l->waits) ||
        !take(at, left, &l->n_args, sizeof l->n_args) || l->n_args < 0 ||
        (size_t)l->n_args > *left / sizeof *l->args)
      return false;
    l->args = KILN_NEW_ARRAY(&c->cx->perm, int, l->n_args);
    if (!take(at, left, l->args, (size_t)l->n_args * sizeof *l->args) ||
        !take(at, left, &l->n_maps, sizeof l->n_maps) || l->n_maps < 0 ||
        (size_t)l->n_maps > *left / sizeof *l->maps)
      return false;
    l->maps = KILN_NEW_ARRAY(&c->cx->perm, kiln_gpu_map, l->n_maps);
    if (!take(at, left, l->maps, (size_t)l->n_maps * sizeof *l->maps)) return false;
  }
  c->b->product.gpu_launches[kernel] = launches;
  return true;
}

static bool take_entry(const coding *c, int kernel, const void *entry, size_t bytes) {
  kiln_object *o = &c->b->product.objects[kernel];
  const char *at = entry;
  if (!take_launches(c, kernel, &at, &bytes) || bytes == 0 || !(o->data = malloc(bytes)))
    return false;
  memcpy(o->data, at, bytes);
  o->bytes = bytes;
  return true;
}

static void find_known(coding *c, int version) {
  for (int i = 0; i < c->b->choices.kernels.kernels.n; i++) {
    size_t bytes = 0;
    void *entry = NULL;
    if (c->b->choices.kernels.kernels.data[i]->by_library) continue; // a library kernel has no code
    if (c->cache) {
      c->keys[i] = key_of(c, i, version);
      entry = kiln_cache_find(c->cache, KILN_CACHE_OBJECT, &c->keys[i], &bytes);
    }
    if (!entry || !take_entry(c, i, entry, bytes)) c->missing[c->n++] = i;
    free(entry);
  }
}

static kiln_status emit_missing(coding *c) {
  for (int i = 0; i < c->n; i++)
    KILN_TRY(emit_one(c->cx, c->b, c->missing[i], &c->sources[c->missing[i]]));
  dump(c->cx, c->b, c->sources);
  return KILN_OK;
}

static void keep(const coding *c, int kernel) {
  const kiln_object *o = &c->b->product.objects[kernel];
  const kiln_mark mark = kiln_arena_mark(&c->cx->scratch);
  kiln_text entry;
  kiln_text_init(&entry, &c->cx->scratch);
  put_launches(c, kernel, &entry);
  add(&entry, o->data, o->bytes);
  kiln_cache_put(c->cache, KILN_CACHE_OBJECT, &c->keys[kernel], c->b->product.symbols[kernel],
                 entry.data, (size_t)entry.n);
  kiln_arena_rewind(&c->cx->scratch, mark);
}

static kiln_status compile_missing(coding *c) {
  const char **sources = KILN_NEW_ARRAY(&c->cx->perm, const char *, c->n);
  const char **names = KILN_NEW_ARRAY(&c->cx->perm, const char *, c->n);
  kiln_object *objects = KILN_NEW_ARRAY(&c->cx->perm, kiln_object, c->n);
  KILN_TRY(emit_missing(c));
  if (c->n == 0) return KILN_OK;
  for (int i = 0; i < c->n; i++) {
    sources[i] = c->sources[c->missing[i]];
    names[i] = c->b->product.symbols[c->missing[i]];
  }
  KILN_TRY(c->b->request.machine.target->compiler->compile(
      c->cx, &c->b->request.machine, c->n, sources, names, kiln_cpu_cores(), objects));
  for (int i = 0; i < c->n; i++) {
    c->b->product.objects[c->missing[i]] = objects[i];
    if (c->cache) keep(c, c->missing[i]);
  }
  return KILN_OK;
}

static void close_cache(void *cache) { kiln_cache_close(cache); }

static kiln_status make_images(kiln_ctx *cx, kiln_build *b, const char **sources) {
  const int n = b->choices.kernels.kernels.n;
  coding c = {.cx = cx, .b = b, .sources = sources};
  int version = 0;
  KILN_TRY(b->request.machine.target->compiler->version(cx, &version));
  c.keys = KILN_NEW_ARRAY(&cx->perm, kiln_cache_key, n);
  c.missing = KILN_NEW_ARRAY(&cx->perm, int, n);
  if (b->request.model->options.cache && !dumps_sources(b)) // dumps need emission
    c.cache = kiln_cache_open(NULL, KILN_CACHE_LIMIT_BYTES);
  kiln_cleanup_push(cx, close_cache, c.cache);
  find_known(&c, version);
  const kiln_status st = compile_missing(&c);
  kiln_cleanup_pop(cx);
  kiln_cache_close(c.cache);
  return st;
}

// Without a compiler: the GPU's driver compiles the sources when the module is loaded.
static kiln_status keep_sources(kiln_ctx *cx, kiln_build *b, const char **sources) {
  for (int i = 0; i < b->product.n_objects; i++) KILN_TRY(emit_one(cx, b, i, &sources[i]));
  dump(cx, b, sources);
  for (int i = 0; i < b->product.n_objects; i++) {
    b->product.objects[i] = (kiln_object){strdup(sources[i]), strlen(sources[i])};
    if (!b->product.objects[i].data) return no_memory(cx, b);
  }
  return KILN_OK;
}

// Concatenates the objects; the plan's images have their offsets. Library kernels have none.
static kiln_status join(kiln_ctx *cx, kiln_build *b) {
  kiln_plan *p = &b->product.plan;
  p->n_images = 0;
  p->images = KILN_NEW_ARRAY(&cx->perm, kiln_plan_image, b->product.n_objects);
  b->product.gpu_images = KILN_NEW_ARRAY(&cx->perm, int, b->product.n_objects);
  p->code_bytes = 0;
  for (int i = 0; i < b->product.n_objects; i++) {
    b->product.gpu_images[i] = -1;
    if (b->product.objects[i].bytes == 0) continue;
    b->product.gpu_images[i] = (int)p->n_images;
    p->images[p->n_images++] = (kiln_plan_image){p->code_bytes, b->product.objects[i].bytes};
    p->code_bytes +=
        (b->product.objects[i].bytes + KILN_PLAN_ALIGN - 1) / KILN_PLAN_ALIGN * KILN_PLAN_ALIGN;
  }
  free(b->product.code);
  b->product.code = aligned_alloc(KILN_PLAN_ALIGN, p->code_bytes + KILN_PLAN_ALIGN);
  if (!b->product.code) return no_memory(cx, b);
  memset(b->product.code, 0, p->code_bytes);
  for (int i = 0; i < b->product.n_objects; i++)
    if (b->product.gpu_images[i] >= 0)
      memcpy(b->product.code + p->images[b->product.gpu_images[i]].offset,
             b->product.objects[i].data, b->product.objects[i].bytes);
  return KILN_OK;
}

kiln_status kiln_build_gpu_code(kiln_ctx *cx, kiln_build *b) {
  const int n = b->choices.kernels.kernels.n;
  const char **sources = KILN_NEW_ARRAY(&cx->perm, const char *, n);
  b->product.gpu_launches = KILN_NEW_ARRAY(&cx->perm, kiln_gpu_launch *, n);
  b->product.objects = calloc((size_t)n + 1, sizeof *b->product.objects);
  if (!b->product.objects) return no_memory(cx, b);
  b->product.n_objects = n;
  KILN_TRY(b->request.machine.target->compiler ? make_images(cx, b, sources)
                                               : keep_sources(cx, b, sources));
  return join(cx, b);
}

// --- trying one launch ---

typedef struct trying {
  kiln_gpu_context *gpu;
  kiln_gpu_stream *stream;
  uint32_t n;
  char **memory; // copies of the arguments on the device
} trying;

static kiln_status put_call(const trying *t, const kiln_plan *p, const kiln_plan_launch *l,
                            const kiln_resident *r, kiln_diag *diag) {
  kiln_bound bound;
  kiln_status st = kiln_gpu_enter(t->gpu, diag);
  if (st != KILN_OK) return st;
  st = kiln_libraries_bind(&r->libraries, p, l, 1, t->memory, diag, &bound);
  t->gpu->api->leave(t->gpu);
  if (st != KILN_OK) return st;
  st = kiln_gpu_put_bound(t->gpu, t->stream, &bound, t->memory, diag);
  const kiln_status end = t->gpu->api->wait(t->gpu, t->stream, diag);
  kiln_gpu_bound_deinit(t->gpu, &bound);
  return st == KILN_OK ? end : kiln_library_call_failed(p, l, diag);
}

static kiln_status put_nests(const trying *t, const kiln_plan *p, const kiln_plan_launch *l,
                             const kiln_resident *r, kiln_diag *diag) {
  char *args[KILN_GPU_TRY_ARGS];
  if (l->call) return put_call(t, p, l, r, diag);
  for (uint32_t k = 0; k < l->n_nests; k++) {
    const kiln_plan_nest *n = &p->nests[l->first_nest + k];
    if (n->grid[0] == 0 || n->grid[1] == 0 || n->grid[2] == 0) continue;
    for (uint32_t i = 0; i < n->n_indices; i++) args[i] = t->memory[p->indices[n->first_index + i]];
    const kiln_gpu_call call = {.function = r->functions[l->first_nest + k],
                                .grid = n->grid,
                                .block = n->block,
                                .shared_bytes = n->shared_bytes,
                                .n_args = n->n_indices,
                                .args = args,
                                .n_maps = n->n_maps,
                                .maps = n->maps};
    const kiln_status st = t->gpu->api->launch(t->gpu, t->stream, &call, diag);
    if (st != KILN_OK) return st;
  }
  return KILN_OK;
}

static kiln_status copy_args(const trying *t, const uint64_t *bytes, char *const *args, bool back,
                             kiln_diag *diag) {
  kiln_status st = KILN_OK;
  for (uint32_t i = 0; i < t->n && st == KILN_OK; i++)
    st = t->gpu->api->copy(t->gpu, t->stream, back ? args[i] : t->memory[i],
                           back ? t->memory[i] : args[i], bytes[i], diag);
  return st == KILN_OK ? t->gpu->api->wait(t->gpu, t->stream, diag) : st;
}

kiln_status kiln_gpu_try_launch(kiln_module *m, uint32_t launch, const uint64_t *bytes,
                                char *const *args, kiln_diag *diag) {
  const kiln_plan_launch *l = &m->plan.launches[launch];
  char *memory[KILN_GPU_TRY_ARGS] = {0};
  trying t = {.n = l->n_args, .memory = memory};
  kiln_resident *r = NULL;
  if (l->n_args > KILN_GPU_TRY_ARGS)
    return KILN_FAIL(diag, KILN_UNSUPPORTED, l->kernel,
                     "arguments: must be at most %d, got %" PRIu32, KILN_GPU_TRY_ARGS, l->n_args);
  kiln_status st = kiln_resident_find(m, 0, diag, &r);
  if (st != KILN_OK) return st;
  t.gpu = r->gpu;
  st = t.gpu->api->stream(t.gpu, diag, &t.stream);
  for (uint32_t i = 0; i < t.n && st == KILN_OK; i++)
    st = t.gpu->api->allocate(t.gpu, bytes[i], l->kernel, diag, &memory[i]);
  if (st == KILN_OK) st = copy_args(&t, bytes, args, false, diag);
  if (st == KILN_OK) st = put_nests(&t, &m->plan, l, r, diag);
  if (st == KILN_OK) st = copy_args(&t, bytes, args, true, diag);
  for (uint32_t i = 0; i < t.n; i++) t.gpu->api->free(t.gpu, memory[i]);
  t.gpu->api->end_stream(t.gpu, t.stream);
  return st;
}

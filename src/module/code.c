// Code generation for CPUs: kernels become object code, from the cache if it is there.
#include "module/build.h"
#include "module/cache.h"
#include "target/cpu/together.h"

#include <stdlib.h>
#include <string.h>

typedef struct coding {
  kiln_ctx *cx;
  kiln_build *b;
  kiln_cache *cache; // NULL: no cache
  kiln_cache_key *keys;
  int n; // number of kernels not found in the cache
  int *missing;
} coding;

// The printed loops and the machine's strings determine the code completely.
static kiln_cache_key key_of(const coding *c, int kernel) {
  const kiln_machine *m = &c->b->request.machine;
  kiln_cache_key key;
  kiln_digest d;
  kiln_text text;
  kiln_text_init(&text, &c->cx->scratch);
  kiln_loops_print(c->cx, c->b->choices.kernels.kernels.data[kernel]->loops, &text);
  kiln_cache_key_begin(&d);
  kiln_digest_add_text(&d, m->triple);
  kiln_digest_add_text(&d, m->cpu);
  kiln_digest_add_text(&d, m->features);
  kiln_digest_add_int(&d, m->vector_bytes);
  kiln_digest_add_int(&d, m->n_vector_regs);
  kiln_digest_add_text(&d, c->b->product.symbols[kernel]);
  kiln_digest_add_text(&d, text.data);
  kiln_digest_end(&d, key.bytes);
  return key;
}

static void find_known(coding *c) {
  for (int i = 0; i < c->b->choices.kernels.kernels.n; i++) {
    kiln_object *o = &c->b->product.objects[i];
    const kiln_mark mark = kiln_arena_mark(&c->cx->scratch);
    if (c->cache) {
      c->keys[i] = key_of(c, i);
      o->data = kiln_cache_find(c->cache, KILN_CACHE_OBJECT, &c->keys[i], &o->bytes);
    }
    kiln_arena_rewind(&c->cx->scratch, mark);
    if (!o->data) c->missing[c->n++] = i;
  }
}

static kiln_status compile_missing(coding *c, const kiln_cpu_options *options) {
  kiln_loops **loops = KILN_NEW_ARRAY(&c->cx->perm, kiln_loops *, c->n);
  const char **symbols = KILN_NEW_ARRAY(&c->cx->perm, const char *, c->n);
  kiln_object *objects = KILN_NEW_ARRAY(&c->cx->perm, kiln_object, c->n);
  int n = 0;
  for (int i = 0; i < c->n; i++) {
    loops[i] = c->b->choices.kernels.kernels.data[c->missing[i]]->loops;
    symbols[i] = c->b->product.symbols[c->missing[i]];
  }
  KILN_TRY(
      kiln_cpu_compile(c->cx, &c->b->request.machine, c->n, loops, symbols, options, &n, objects));
  for (int i = 0; i < n; i++) {
    const int k = c->missing[i];
    c->b->product.objects[k] = objects[i];
    kiln_cache_put(c->cache, KILN_CACHE_OBJECT, &c->keys[k], symbols[i], objects[i].data,
                   objects[i].bytes);
  }
  return KILN_OK;
}

// A kernel whose nests are all shared with others has no object of its own.
static void drop_empty(kiln_build *b) {
  int n = 0;
  for (int i = 0; i < b->product.n_objects; i++)
    if (b->product.objects[i].data) b->product.objects[n++] = b->product.objects[i];
  for (int i = n; i < b->product.n_objects; i++) b->product.objects[i] = (kiln_object){0};
  b->product.n_objects = n;
}

// The nests that get code of their own; equal nests of several kernels share it. Objects then
// depend on several kernels, so they are not cached.
static const kiln_cpu_nests *nests_of(kiln_ctx *cx, const kiln_build *b) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const int n = b->choices.kernels.kernels.n;
  kiln_loops **loops = KILN_NEW_ARRAY(&cx->scratch, kiln_loops *, n);
  for (int i = 0; i < n; i++) loops[i] = b->choices.kernels.kernels.data[i]->loops;
  const kiln_cpu_nests *nests = kiln_cpu_nests_of(cx, n, loops);
  kiln_arena_rewind(&cx->scratch, mark);
  return nests;
}

static void close_cache(void *cache) { kiln_cache_close(cache); }

static kiln_status make_objects(kiln_ctx *cx, kiln_build *b, kiln_cpu_options *options) {
  const bool dumps = options->dump_llvm || options->dump_asm; // dumps need compilation
  const int n = b->choices.kernels.kernels.n;
  coding c = {.cx = cx, .b = b};
  c.keys = KILN_NEW_ARRAY(&cx->perm, kiln_cache_key, n);
  c.missing = KILN_NEW_ARRAY(&cx->perm, int, n);
  b->product.objects = calloc((size_t)n + 1, sizeof *b->product.objects);
  if (!b->product.objects)
    return KILN_FAIL(cx->diag, KILN_NO_MEMORY, b->request.model->path, "objects: no memory left");
  b->product.n_objects = n;
  options->nests = b->product.nests = nests_of(cx, b);
  if (b->request.model->options.cache && !dumps && !b->product.nests)
    c.cache = kiln_cache_open(NULL, KILN_CACHE_LIMIT_BYTES);
  kiln_cleanup_push(cx, close_cache, c.cache);
  find_known(&c);
  const kiln_status st = compile_missing(&c, options);
  if (st == KILN_OK) drop_empty(b);
  kiln_cleanup_pop(cx);
  kiln_cache_close(c.cache);
  return st;
}

kiln_status kiln_build_code(kiln_ctx *cx, kiln_build *b) {
  if (b->request.machine.target->has_images) return kiln_build_gpu_code(cx, b);
  kiln_text llvm, assembly;
  kiln_text_init(&llvm, &cx->perm);
  kiln_text_init(&assembly, &cx->perm);
  kiln_cpu_options options = {.n_threads = kiln_cpu_cores()};
  if (b->request.may_stop) options.stop = b->request.model->options.stop;
  if (kiln_model_dumps(b->request.model, "llvm")) options.dump_llvm = &llvm;
  if (kiln_model_dumps(b->request.model, "asm")) options.dump_asm = &assembly;
  KILN_TRY(make_objects(cx, b, &options));
  if (options.dump_llvm) kiln_model_dump(b->request.model, "llvm", &llvm);
  if (options.dump_asm) kiln_model_dump(b->request.model, "asm", &assembly);
  return KILN_OK;
}

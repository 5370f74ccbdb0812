// The probes' loop programs.
#include "tune/probe.h"

#include <string.h>

// Independent chains of additions, enough to keep the execution units of current cores busy.
enum { CHAINS = 8, CALL_BYTES = 16 << 20, PEAK_STEPS = 100000 };

typedef struct maker {
  kiln_ctx *cx;
  const kiln_machine *m;
  int n_instrs;
  const kiln_instr *instrs;
} maker;

static const char *read_text(maker *k, kiln_probe *p) {
  const int lanes = k->m->vector_bytes / 4, chunk = CHAINS * lanes;
  const int64_t n = p->bytes / (4 * chunk);
  const int64_t times = p->bytes < CALL_BYTES ? CALL_BYTES / p->bytes : 1;
  p->work = (double)(n * chunk * 4 * times);
  return kiln_arena_printf(
      &k->cx->scratch,
      "kernel read { param f32 A[%" PRId64
      "]:(1) param f32 O[%d]:(1) register f32 s[%d, %d]:(%d, 1)"
      " alloc s { for a:%d unrolled { for b:%d vectorized { s[a, b] = 0f32 } }"
      " for t:%" PRId64 " { for i:%" PRId64 " { for c:%d unrolled { for d:%d vectorized {"
      " s[c, d] += A[%d*i + %d*c + d] } } } }"
      " for e:%d unrolled { for f:%d vectorized { O[%d*e + f] = s[e, f] } } } }",
      n * chunk, chunk, CHAINS, lanes, lanes, CHAINS, lanes, times, n, CHAINS, lanes, chunk, lanes,
      CHAINS, lanes, lanes);
}

static const char *copy_text(maker *k, kiln_probe *p) {
  const int lanes = k->m->vector_bytes / 4, chunk = CHAINS * lanes;
  const int64_t n = p->bytes / 2 / (4 * chunk), half = n * chunk;
  const int64_t times = p->bytes < CALL_BYTES ? CALL_BYTES / p->bytes : 1;
  p->work = (double)(2 * half * 4 * times);
  return kiln_arena_printf(&k->cx->scratch,
                           "kernel copy { param f32 A[%" PRId64 "]:(1) param f32 O[1]:(1)"
                           " for t:%" PRId64 " { for i:%" PRId64 " { for c:%d unrolled {"
                           " for d:%d vectorized { A[%" PRId64 " + %d*i + %d*c + d] ="
                           " A[%d*i + %d*c + d] + 1f32 } } } } }",
                           2 * half, times, n, CHAINS, lanes, half, chunk, lanes, chunk, lanes);
}

// Instructions that may reach a peak; the first that the machine has is used.
static const struct {
  kiln_probe_kind kind;
  const char *instr, *sum, *a, *b;
} peaks[] = {
    {KILN_PROBE_F32, "fma", "f32", "f32", "f32"},
    {KILN_PROBE_BF16, "vdpbf16ps", "f32", "bf16", "bf16"},
    {KILN_PROBE_INT8, "vpdpbusd", "i32", "u8", "i8"},
    {KILN_PROBE_INT8, "vpdpbusd.vex", "i32", "u8", "i8"},
    {KILN_PROBE_INT8, "sdot", "i32", "i8", "i8"},
};

static const kiln_instr *find_instr(const void *argument, const char *name) {
  const maker *k = argument;
  for (int i = 0; i < k->n_instrs; i++)
    if (strcmp(k->instrs[i].name, name) == 0) return &k->instrs[i];
  return NULL;
}

static const char *peak_text_of(maker *k, const kiln_instr *in, size_t row, kiln_probe *p) {
  const int n = in->lanes * in->vectors;
  const bool grouped = in->group > 1;
  const char *rows = kiln_arena_printf(&k->cx->scratch, grouped ? "%d, %d]:(%d, 1)" : "%d]:(1)",
                                       in->rows, in->group, in->group);
  const char *cols = kiln_arena_printf(&k->cx->scratch, grouped ? "%d, %d]:(%d, 1)" : "%d]:(1)", n,
                                       in->group, in->group);
  const char *at = grouped ? "_0, _1" : "_0";
  p->work = 2.0 * PEAK_STEPS * in->rows * n * in->group;
  return kiln_arena_printf(
      &k->cx->scratch,
      "kernel peak { param %s A[%s param %s O[%d, %d]:(%d, 1) param %s B[%s"
      " register %s s[%d, %d]:(%d, 1)"
      " alloc s { for a:%d unrolled { for b:%d vectorized { s[a, b] = O[a, b] } }"
      " for t:%d { instr %s(s[_0, _1], A[%s], B[%s]) }"
      " for e:%d unrolled { for f:%d vectorized { O[e, f] = s[e, f] } } } }",
      peaks[row].a, rows, peaks[row].sum, in->rows, n, n, peaks[row].b, cols, peaks[row].sum,
      in->rows, n, n, in->rows, n, PEAK_STEPS, in->name, at, at, in->rows, n);
}

static const char *peak_text(maker *k, kiln_probe *p) {
  for (size_t i = 0; i < KILN_LEN(peaks); i++) {
    if (peaks[i].kind != p->kind) continue;
    const char *name = kiln_arena_printf(&k->cx->scratch, "%s.%dx1", peaks[i].instr, CHAINS);
    const kiln_instr *in = find_instr(k, name);
    if (in && in->is_there) return peak_text_of(k, in, i, p);
  }
  return NULL;
}

static const char *text_of(maker *k, kiln_probe *p) {
  switch (p->kind) {
  case KILN_PROBE_READ: return read_text(k, p);
  case KILN_PROBE_COPY: return copy_text(k, p);
  case KILN_PROBE_F32:
  case KILN_PROBE_BF16:
  case KILN_PROBE_INT8: return peak_text(k, p);
  case KILN_PROBE_NOTHING: break;
  }
  p->work = 1;
  return "kernel nothing { param f32 A[1]:(1) param f32 O[1]:(1) O[0] = 1f32 }";
}

static kiln_status make(maker *k, kiln_probe *p, kiln_loops **out) {
  *out = NULL;
  p->work = 0;
  p->run = NULL;
  const char *text = text_of(k, p);
  if (!text) return KILN_OK;
  KILN_TRY(kiln_loops_parse_with(k->cx, text, find_instr, k, out));
  return kiln_loops_verify(k->cx, *out);
}

static kiln_status find(kiln_ctx *cx, kiln_jit *jit, const char *kernel, kiln_kernel_fn *out) {
  void *function = NULL;
  const char *symbol = kiln_arena_printf(&cx->scratch, "%s_0", kernel);
  KILN_TRY(kiln_jit_find(jit, symbol, cx->diag, &function));
  memcpy(out, &function, sizeof *out); // ISO C has no cast from object to function pointers
  return KILN_OK;
}

kiln_status kiln_probes_compile(kiln_ctx *cx, const kiln_machine *m, int n, kiln_probe *probes,
                                kiln_jit **out_jit) {
  maker k = {.cx = cx, .m = m};
  kiln_loops **loops = KILN_NEW_ARRAY(&cx->perm, kiln_loops *, n);
  const char **symbols = KILN_NEW_ARRAY(&cx->perm, const char *, n);
  int *probe_of = KILN_NEW_ARRAY(&cx->perm, int, n), n_kernels = 0, n_objects = 0;
  *out_jit = NULL;
  k.instrs = kiln_cpu_instrs(cx, m, &k.n_instrs);
  for (int i = 0; i < n; i++) {
    KILN_TRY(make(&k, &probes[i], &loops[n_kernels]));
    if (!loops[n_kernels]) continue;
    symbols[n_kernels] = kiln_arena_printf(&cx->perm, "kiln_probe_%d", i);
    probe_of[n_kernels++] = i;
  }
  kiln_object *objects = KILN_NEW_ARRAY(&cx->perm, kiln_object, n_kernels + 1);
  const kiln_cpu_options options = {.n_threads = 1};
  KILN_TRY(kiln_cpu_compile(cx, m, n_kernels, loops, symbols, &options, &n_objects, objects));
  const kiln_status st = kiln_jit_create(cx, m, n_objects, objects, out_jit);
  for (int i = 0; i < n_objects; i++) kiln_object_deinit(&objects[i]);
  if (st != KILN_OK) return st;
  for (int i = 0; i < n_kernels; i++)
    KILN_TRY(find(cx, *out_jit, symbols[i], &probes[probe_of[i]].run));
  return KILN_OK;
}

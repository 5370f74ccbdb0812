// Nests as device functions, and the helpers that these need.
#include "target/gpu/device/lower.h"
#include "target/gpu/device/map.h"
#include "target/gpu/emit.h"

#include "analysis/uses.h"
#include "target/gpu/instr.h"
#include "target/instr.h"

#include <string.h>

// source: PTX ISA, "cp.async": of 16 bytes, those behind the first |bytes| are zeros
static const char COPY_AHEAD[] =
    "static __device__ __forceinline__ void kiln_copy_async(void *to, const void *from, int bytes) "
    "{\n"
    "  const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);\n"
    "  asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\"\n"
    "      :: \"r\"(at), \"l\"(from), \"r\"(bytes) : \"memory\");\n"
    "}\n";

static const char SWIZZLED[] =
    "static __device__ __forceinline__ int kiln_swizzled(int at, int places) {\n"
    "  return at ^ (at >> 3 & places);\n"
    "}\n";

// Writes of earlier launches are visible behind kiln_wait, and stores must not come before it. Nor
// may accesses be moved in front of it, as restricted pointers to constants allow: they are offset
// by the 0 that it returns, which the compiler cannot see. The assembler can, so that an exit which
// is never taken follows the wait.
// source: PTX ISA, "griddepcontrol"
static const char WAIT[] =
    "static __device__ __forceinline__ int kiln_wait(void) {\n"
    "  int none;\n"
    "  asm volatile(\"{\\n.reg .pred p;\\n.reg .u32 n;\\ngriddepcontrol.wait;\\n\"\n"
    "      \"mov.u32 n, %%nctaid.x;\\nsetp.eq.u32 p, n, 0;\\n@p exit;\\nmov.u32 %0, 0;\\n}\"\n"
    "      : \"=r\"(none) :: \"memory\");\n"
    "  return none;\n"
    "}\n";

// source: PTX ISA, "cvt": the first operand becomes the upper half
static const char PAIRS[] =
    "static __device__ __forceinline__ uint32_t kiln_pair_f16(float low, float high) {\n"
    "  uint32_t y;\n"
    "  asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(y) : \"f\"(high), \"f\"(low));\n"
    "  return y;\n"
    "}\n"
    "static __device__ __forceinline__ uint32_t kiln_pair_bf16(float low, float high) {\n"
    "  uint32_t y;\n"
    "  asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(y) : \"f\"(high), \"f\"(low));\n"
    "  return y;\n"
    "}\n";

// Without the 0 that the assembler does not know to be one, it computes |from| in the registers of
// |to|, and waits for the instructions that read these (C7513 of `ptxas -v`).
static const char TAKE[] =
    "static __device__ __forceinline__ void kiln_take(uint16_t *to, const uint16_t *from, int n) "
    "{\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < n; i += 2)\n"
    "    *(uint32_t *)&to[i] = *(const uint32_t *)&from[i] ^ threadIdx.z;\n"
    "}\n";

// Registers of a thread for the buffers under |l|: of those within loops, about half are live at a
// time.
static int64_t registers_of(const kiln_gpu_nest *n, const kiln_loop *l, bool in_loop) {
  int64_t sum = 0, extent = 0;
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_ALLOC) {
      const kiln_buffer *b = n->l->buffers.data[l->buffer];
      const int64_t bytes = kiln_buffer_elems(b) * kiln_dtype_bytes(b->dtype);
      if (b->scope != KILN_SCOPE_SHARED) sum += bytes / (in_loop ? 8 : 4);
    }
    const bool repeats = l->kind == KILN_LOOP_FOR && l->how == KILN_SERIAL &&
                         !(kiln_expr_is_int(l->extent, &extent) && extent == 1);
    sum += registers_of(n, l->body, in_loop || repeats);
  }
  return sum;
}

static int64_t launched_threads(const kiln_gpu_nest *n) {
  int64_t block[3];
  kiln_specialized_block(n, block);
  return block[0] * block[1] * block[2];
}

// Whether |l| has quad reductions: there ptxas's own choice of registers is better.
static bool combines_rows(const kiln_loop *l) {
  for (; l; l = l->next)
    if ((l->kind == KILN_LOOP_INSTR && l->instr->combines_rows) || combines_rows(l->body))
      return true;
  return false;
}

static bool drains(const kiln_gpu_nest *n) {
  for (int id = 1; id < n->n_nodes; id++)
    if (n->found[id].drains) return true;
  return false;
}

// Whether roles set their registers, which are then those of one block on a multiprocessor.
static bool sets_registers(const kiln_loop *l) {
  for (; l; l = l->next)
    if (kiln_device_is(l, KILN_DEVICE_REGISTERS_SET) || sets_registers(l->body)) return true;
  return false;
}

static bool has_products(const kiln_loop *l) {
  for (; l; l = l->next)
    if (kiln_gpu_is_product(l)) return true;
  return false;
}

// The occupancy that __launch_bounds__ asks for, in blocks of a multiprocessor: with warp groups,
// as many as its shared memory and registers hold; of many threads with fragments, two, if the
// registers that are left suffice.
static int64_t neighbours_of(const kiln_gpu_nest *n) {
  enum { MANY = 512, WORK = 32, WORK_OF_GROUPS = 16 }; // threads, registers
  if (combines_rows(n->l->body) || sets_registers(n->l->body)) return 1;
  if (!has_products(n->l->body))
    return n->held_bytes && n->n_threads >= MANY &&
                   2 * n->n_threads * (n->held_bytes / 4 + WORK) <= n->m->gpu.registers
               ? 2
               : 1;
  const kiln_gpu_block one = {launched_threads(n),
                              registers_of(n, n->l->body, false) + WORK_OF_GROUPS, n->shared_bytes};
  const int64_t resident = kiln_gpu_resident(&n->m->gpu, &one);
  return drains(n) && resident > 2 ? 2 : resident; // wgmma in flight needs registers
}

// A nest of a function. Where there are several, each has blocks of its own.
typedef struct part {
  kiln_gpu_nest n;
  const uint8_t *uses;     // [buffers] how it accesses each
  const int *maps;         // numbers of its tensor maps in the launch
  int64_t blocks, threads; // of the launch
} part;

// Writes |p| from now on.
static void enter(kiln_emitter *e, part *p) {
  e->n = &p->n;
  e->w.l = p->n.l;
  e->uses = p->uses;
  e->maps = p->maps;
}

// The grid of a fused launch, the blocks of all parts in a row along x; and the threads that the
// largest part needs.
static void measure_launch(int n, const part *parts, kiln_gpu_launch *launch) {
  memcpy(launch->grid, parts[0].n.grid, sizeof launch->grid);
  kiln_specialized_block(&parts[0].n, launch->block);
  if (n == 1) return;
  for (int k = 0; k < 3; k++) launch->grid[k] = launch->block[k] = 1;
  launch->grid[0] = 0;
  for (int i = 0; i < n; i++) {
    launch->grid[0] += parts[i].blocks;
    if (parts[i].threads > launch->block[0]) launch->block[0] = parts[i].threads;
  }
}

// Adds a nest's tensor maps to the launch's; gives their numbers there.
static const int *add_maps(kiln_emitter *e, const kiln_gpu_nest *n) {
  kiln_gpu_launch *launch = e->launch;
  int *numbers = KILN_NEW_ARRAY(&e->w.cx->perm, int, n->maps.n);
  for (int i = 0; i < n->maps.n; i++) {
    kiln_gpu_map map = n->maps.data[i];
    int at = 0;
    for (map.arg = 0; e->arguments[map.arg] != n->maps.data[i].arg;) map.arg++;
    while (at < launch->n_maps && !kiln_device_map_is_same(&launch->maps[at], &map)) at++;
    if (at == launch->n_maps) launch->maps[launch->n_maps++] = map;
    numbers[i] = at;
  }
  return numbers;
}

static void put_parameters(kiln_emitter *e, int n, part *parts) {
  kiln_gpu_launch *launch = e->launch;
  const int n_buffers = parts[0].n.l->buffers.n;
  int place = 0, n_maps = 0;
  launch->args = KILN_NEW_ARRAY(&e->w.cx->perm, int, n_buffers);
  e->arguments = KILN_NEW_ARRAY(&e->w.cx->scratch, int, n_buffers);
  for (int i = 0; i < n_buffers; i++) {
    const kiln_buffer *b = parts[0].n.l->buffers.data[i];
    if (!kiln_scope_is_argument(b->scope)) continue;
    const int number = place++;
    int uses = 0;
    for (int k = 0; k < n; k++) uses |= parts[k].uses[i];
    if (!uses) continue;
    e->w.buffers[i] = kiln_c_identifier(&e->w, kiln_symbol_text(e->w.cx, b->name));
    kiln_text_printf(e->w.out, "%s\n    %s%s%s *%s %s", launch->n_args ? "," : "",
                     e->w.dialect->global, uses & KILN_USES_WRITES ? "" : "const ",
                     kiln_c_memory_type(b->dtype), e->w.dialect->restricted,
                     kiln_symbol_text(e->w.cx, e->w.buffers[i]));
    e->arguments[launch->n_args] = i;
    launch->args[launch->n_args++] = number;
  }
  for (int k = 0; k < n; k++) n_maps += parts[k].n.maps.n;
  launch->maps = KILN_NEW_ARRAY(&e->w.cx->perm, kiln_gpu_map, n_maps);
  for (int k = 0; k < n; k++) parts[k].maps = add_maps(e, &parts[k].n);
  for (int i = 0; i < launch->n_maps; i++)
    kiln_text_printf(e->w.out, ",\n    const __grid_constant__ kiln_map kiln_map_%d", i);
  kiln_text_add(e->w.out, ") {\n");
}

static void put_arena(kiln_emitter *e, int64_t bytes) {
  if (!bytes) return;
  const char *const *arena = e->w.dialect->arena;
  if (arena[1]) kiln_emit_line(e, "%s%" PRId64 "%s", arena[0], bytes, arena[1]);
  else {
    kiln_emit_line(e, "%s", arena[0]);
    e->launch->shared_bytes = bytes;
  }
}

// The coordinate along |axis| of the linear index |number| in |sizes|.
static const char *place_of(const kiln_emitter *e, const char *number, const int64_t *sizes,
                            int axis) {
  const int64_t inside = axis == 0 ? 1 : axis == 1 ? sizes[0] : sizes[0] * sizes[1];
  return kiln_arena_printf(&e->w.cx->perm, "(%s / %" PRId64 " %% %" PRId64 ")", number, inside,
                           sizes[axis]);
}

// One nest of a fused launch: its blocks begin with |first|; its surplus threads exit.
static void put_among(kiln_emitter *e, const part *p, int64_t first, bool is_last) {
  const kiln_c_dialect *d = e->w.dialect;
  kiln_c_dialect *own = KILN_NEW(&e->w.cx->perm, kiln_c_dialect);
  int64_t block[3];
  kiln_specialized_block(e->n, block);
  *own = *d;
  for (int k = 0; k < 3; k++) {
    own->block[k] = place_of(e, "kiln_block", e->n->grid, k);
    own->thread[k] = place_of(e, "kiln_thread", block, k);
  }
  kiln_emit_open(e, is_last
                        ? "else {"
                        : kiln_arena_printf(&e->w.cx->perm, "%sif (%s < %" PRId64 ") {",
                                            first ? "else " : "", d->block[0], first + p->blocks));
  kiln_emit_line(e, "const int kiln_block = (int)%s - %" PRId64 ", kiln_thread = (int)%s;",
                 d->block[0], first, d->thread[0]);
  if (p->threads < e->launch->block[0])
    kiln_emit_line(e, "if (kiln_thread >= %" PRId64 ") return;", p->threads);
  e->w.dialect = own;
  kiln_emit_nest(e);
  e->w.dialect = d;
  kiln_emit_close(e);
}

static void put_function(kiln_emitter *e, const char *name, int number, int n, part *parts,
                         kiln_gpu_launch *launch) {
  int64_t bytes = 0, first = 0;
  int n_buffers = 0;
  for (int i = 0; i < n; i++) {
    const kiln_gpu_nest *one = &parts[i].n;
    if (one->shared_bytes > bytes) bytes = one->shared_bytes;
    if (one->l->buffers.n > n_buffers) n_buffers = one->l->buffers.n;
  }
  *launch = (kiln_gpu_launch){.waits = kiln_gpu_begins_early(parts[0].n.m)};
  measure_launch(n, parts, launch);
  e->launch = launch;
  e->is_shared = n > 1;
  e->n = &parts[0].n;
  kiln_c_function_begin(&e->w);
  e->w.buffers = KILN_NEW_ARRAY(&e->w.cx->scratch, kiln_symbol, n_buffers);
  kiln_text_printf(e->w.out, "\n// %s: nest %d", kiln_symbol_text(e->w.cx, e->n->l->name), number);
  if (n > 1) kiln_text_printf(e->w.out, " to %d, side by side", number + n - 1);
  kiln_text_add(e->w.out, "\n");
  e->w.dialect->put_kernel(e->w.out, launch->block, n > 1 ? 1 : neighbours_of(e->n), e->n->cluster);
  kiln_text_printf(e->w.out, " %s(", name);
  put_parameters(e, n, parts);
  e->w.depth = 1;
  put_arena(e, bytes);
  for (int i = 0; i < n; i++) {
    enter(e, &parts[i]);
    if (n == 1) kiln_emit_nest(e);
    else put_among(e, &parts[i], first, i == n - 1);
    first += parts[i].blocks;
  }
  kiln_text_add(e->w.out, "}\n");
}

// The nest alone, in a program that may be changed.
static kiln_loops *program_of(kiln_ctx *cx, const kiln_loops *kernel, int number) {
  kiln_loops *l = kiln_loops_copy(&cx->perm, kernel);
  for (; number > 0; number--) l->body = l->body->next;
  l->body->next = NULL;
  return l;
}

// Runs all analyses of nest |number| of |kernel|.
static kiln_status prepare(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *kernel,
                           int number, kiln_gpu_nest *out) {
  *out = (kiln_gpu_nest){.cx = cx, .m = m, .l = program_of(cx, kernel, number)};
  out->place = kiln_arena_printf(&cx->scratch, "gpu: kernel %s, nest %d",
                                 kiln_symbol_text(cx, kernel->name), number);
  kiln_gpu_nest_enumerate(out);
  KILN_TRY(kiln_gpu_nest_measure(out));
  KILN_TRY(kiln_gpu_nest_cluster(out));
  KILN_TRY(kiln_gpu_nest_specialize(out));
  KILN_TRY(kiln_gpu_nest_distribute(out));
  KILN_TRY(kiln_gpu_nest_im2col(out));
  kiln_gpu_nest_vectorize(out);
  kiln_gpu_nest_enumerate(out);
  KILN_TRY(kiln_gpu_nest_allocate_shared(out));
  KILN_TRY(kiln_gpu_nest_sync(out));
  KILN_TRY(kiln_gpu_nest_pipeline(out));
  kiln_gpu_nest_stagger(out);
  kiln_device_lower(out);
  return kiln_device_verify(cx, out->l);
}

// [buffers] How the nest and the statements around it access each.
static const uint8_t *uses_of(kiln_ctx *cx, const kiln_loops *l) {
  uint8_t *all = KILN_NEW_ARRAY(&cx->perm, uint8_t, l->buffers.n);
  for (const kiln_loop *node = l->body; node; node = node->next) {
    const uint8_t *uses = kiln_uses_of(cx, l, node);
    for (int i = 0; i < l->buffers.n; i++) all[i] |= uses[i];
  }
  return all;
}

// The function |name| of |n| nests from |number| on.
static kiln_status emit_nests(kiln_emitter *e, const kiln_machine *m, const kiln_loops *kernel,
                              int number, int n, const char *name, kiln_gpu_launch *launch) {
  part *parts = KILN_NEW_ARRAY(&e->w.cx->perm, part, n);
  e->w.swizzles = m->target->dialect->has_instructions; // elsewhere no buffer is swizzled
  for (int i = 0; i < n; i++) {
    kiln_gpu_nest *one = &parts[i].n;
    KILN_TRY(prepare(e->w.cx, m, kernel, number + i, one));
    if (e->device) kiln_loops_print_lined(e->w.cx, one->l, e->device);
    parts[i].uses = uses_of(e->w.cx, one->l);
    parts[i].blocks = one->grid[0] * one->grid[1] * one->grid[2];
    parts[i].threads = launched_threads(one);
    for (int k = 0; k < one->l->buffers.n; k++)
      e->swizzles |= e->w.swizzles && one->l->buffers.data[k]->is_swizzled;
  }
  put_function(e, name, number, n, parts, launch);
  return launch->n_maps <= KILN_MAX_MAPS
             ? KILN_OK
             : kiln_gpu_refuse(&parts[0].n, "TMA copies must be of %d tensor maps at most, got %d",
                               KILN_MAX_MAPS, launch->n_maps);
}

static const kiln_loops *expanded(kiln_ctx *cx, const kiln_machine *m, kiln_loops *kernel) {
  return m->target->dialect->has_instructions
             ? kiln_instrs_expand_threads(cx, kernel)
             : kiln_instrs_expand(cx, kiln_gpu_spell_lanes(cx, kernel));
}

kiln_status kiln_gpu_lower(kiln_ctx *cx, const kiln_machine *m, kiln_loops *kernel, int number,
                           kiln_gpu_device *out) {
  kiln_gpu_nest n;
  KILN_TRY(prepare(cx, m, expanded(cx, m, kernel), number, &n));
  int64_t *offsets = KILN_NEW_ARRAY(&cx->perm, int64_t, n.l->buffers.n);
  memcpy(offsets, n.offsets, (size_t)n.l->buffers.n * sizeof *offsets);
  *out = (kiln_gpu_device){.loops = n.l,
                           .cluster = n.cluster,
                           .offsets = offsets,
                           .n_maps = n.maps.n,
                           .maps = n.maps.data};
  memcpy(out->grid, n.grid, sizeof out->grid);
  kiln_specialized_block(&n, out->block);
  return KILN_OK;
}

kiln_status kiln_gpu_check(kiln_ctx *cx, const kiln_machine *m, kiln_loops *kernel) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_loops *l = expanded(cx, m, kernel);
  kiln_status st = KILN_OK;
  kiln_gpu_nest n;
  int number = 0;
  for (const kiln_loop *nest = l->body; st == KILN_OK && nest; nest = nest->next)
    st = prepare(cx, m, l, number++, &n);
  kiln_arena_rewind(&cx->scratch, mark);
  return st;
}

// All functions of a kernel into |e|'s text.
static kiln_status emit_functions(kiln_emitter *e, const kiln_machine *m, const kiln_loops *l,
                                  const char *symbol, int n, kiln_gpu_launch *launches) {
  kiln_ctx *cx = e->w.cx;
  const kiln_loop *nest = l->body;
  for (int i = 0, number = 0; i < n; i++) {
    const int many = kiln_gpu_fused_nests(cx, m, l, nest);
    KILN_TRY(emit_nests(e, m, l, number, many, kiln_arena_printf(&cx->scratch, "%s_%d", symbol, i),
                        &launches[i]));
    number += many;
    for (int k = 0; k < many; k++) nest = nest->next;
  }
  return KILN_OK;
}

// The helpers that the functions use, in front of these.
static void put_head(const kiln_emitter *e, const kiln_machine *m, kiln_text *out) {
  kiln_ctx *cx = e->w.cx;
  bool has_groups = false;
  kiln_text_add(out, m->target->dialect->head);
  kiln_c_prelude_print(e->w.prelude, out);
  for (int i = 0; i < e->instrs.n; i++) has_groups |= kiln_gpu_instr_is_group(e->instrs.data[i]);
  if (has_groups) kiln_text_printf(out, "\n%s", kiln_wgmma_helpers());
  for (int i = 0; i < e->instrs.n; i++)
    kiln_text_printf(out, "\n%s", kiln_gpu_instr_text(cx, e->instrs.data[i]));
  if (e->has_tma) kiln_text_printf(out, "\n%s", kiln_tma_text());
  if (e->has_multicast) kiln_text_printf(out, "\n%s", kiln_cluster_text());
  if (e->has_producer) kiln_text_printf(out, "\n%s", kiln_specialized_text());
  if (kiln_gpu_begins_early(m)) kiln_text_printf(out, "\n%s", WAIT);
  if (e->copies_async) kiln_text_printf(out, "\n%s", COPY_AHEAD);
  if (e->has_takes) kiln_text_printf(out, "\n%s", TAKE);
  if (e->has_pairs) kiln_text_printf(out, "\n%s", PAIRS);
  if (e->swizzles) kiln_text_printf(out, "\n%s", SWIZZLED);
}

// Writes the functions of |kernel| to |functions|, and gives their launches.
static kiln_status write_kernel(kiln_emitter *e, const kiln_machine *m, kiln_loops *kernel,
                                const char *symbol, kiln_text *functions, int *out_n,
                                kiln_gpu_launch **out_launches) {
  kiln_ctx *cx = e->w.cx;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_loops *l = expanded(cx, m, kernel);
  const int n = kiln_gpu_launches(cx, m, l);
  *out_n = 0;
  *out_launches = NULL;
  kiln_text_init(functions, &cx->perm);
  e->w.dialect = m->target->dialect;
  e->w.put_other = kiln_emit_node;
  e->w.out = functions;
  kiln_gpu_launch *launches = KILN_NEW_ARRAY(&cx->perm, kiln_gpu_launch, n);
  KILN_TRY(emit_functions(e, m, l, symbol, n, launches));
  kiln_arena_rewind(&cx->scratch, mark);
  *out_n = n;
  *out_launches = launches;
  return KILN_OK;
}

kiln_status kiln_gpu_emit(kiln_ctx *cx, const kiln_machine *m, kiln_loops *kernel,
                          const char *symbol, kiln_text *out, int *out_n,
                          kiln_gpu_launch **out_launches) {
  kiln_text functions;
  kiln_c_prelude prelude = {.dialect = m->target->dialect};
  kiln_emitter e = {.w = {.cx = cx, .prelude = &prelude}};
  KILN_TRY(write_kernel(&e, m, kernel, symbol, &functions, out_n, out_launches));
  kiln_text_printf(out, "// Kernel %s: made by Kiln.\n", kiln_symbol_text(cx, kernel->name));
  put_head(&e, m, out);
  if (functions.data) kiln_text_add(out, functions.data);
  return KILN_OK;
}

kiln_status kiln_gpu_show(kiln_ctx *cx, const kiln_machine *m, kiln_loops *kernel,
                          const char *symbol, kiln_lined *out_device, kiln_lined *out_source) {
  kiln_text functions, head;
  kiln_line_marks marks = {0};
  kiln_gpu_launch *launches = NULL;
  int n = 0;
  kiln_c_prelude prelude = {.dialect = m->target->dialect};
  kiln_emitter e = {.w = {.cx = cx, .prelude = &prelude, .marks = &marks}, .device = out_device};
  KILN_TRY(write_kernel(&e, m, kernel, symbol, &functions, &n, &launches));
  kiln_text_init(&head, &cx->perm);
  put_head(&e, m, &head);
  kiln_lined_add(out_source, head.data, 0);
  if (functions.data) kiln_lined_add_marked(out_source, functions.data, &marks);
  return KILN_OK;
}

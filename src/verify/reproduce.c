// The reproducer of a wrong kernel: texts and raw memory, one file each.
#include "verify/reproduce.h"
#include "module/build.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static kiln_status write_file(kiln_ctx *cx, const kiln_reproducer *r, const char *suffix,
                              const void *data, size_t bytes) {
  const char *path = kiln_arena_printf(&cx->scratch, "%s/%s.%s", r->dir,
                                       kiln_symbol_text(cx, r->kernel->name), suffix);
  FILE *f = fopen(path, "we");
  bool ok = f && (bytes == 0 || fwrite(data, 1, bytes, f) == bytes);
  if (f && fclose(f) != 0) ok = false;
  if (ok) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path, "reproducer: must be writable: %s",
                   strerror(errno));
}

static kiln_status write_text(kiln_ctx *cx, const kiln_reproducer *r, const char *suffix,
                              const kiln_text *text) {
  return write_file(cx, r, suffix, text->data, (size_t)text->n);
}

// Prints the kernel, or all kernels horizontally fused in it.
static void print_kernel(kiln_ctx *cx, const kiln_kernel *k, kiln_text *prim, kiln_text *script) {
  for (int i = 0; i < k->n_members; i++) {
    const char *name = kiln_symbol_text(cx, k->members[i]->name);
    kiln_text_printf(prim, "# kernel %s\n", name);
    kiln_text_printf(script, "kernel %s\n", name);
    print_kernel(cx, k->members[i], prim, script);
  }
  if (k->n_members) return;
  kiln_facts_print(cx, k->prog, &k->facts, "# ", prim);
  kiln_program_print(cx, k->prog, prim);
  kiln_text_add(script, k->script ? k->script : "");
}

static kiln_status write_texts(kiln_ctx *cx, const kiln_reproducer *r) {
  kiln_text prim, loop, script;
  kiln_text_init(&prim, &cx->scratch);
  kiln_text_init(&loop, &cx->scratch);
  kiln_text_init(&script, &cx->scratch);
  print_kernel(cx, r->kernel, &prim, &script);
  kiln_loops_print(cx, r->kernel->loops, &loop);
  KILN_TRY(write_text(cx, r, "prim", &prim));
  KILN_TRY(write_text(cx, r, "loop", &loop));
  return write_text(cx, r, "schedule", &script);
}

// |a| is NULL for a workspace.
static uint64_t arg_bytes(const kiln_buffer *b, const kiln_argument *a, const kiln_tensor *t) {
  if (t && t->role == KILN_CONST && !b->pack) return t->bytes;
  if (t && t->role != KILN_CONST)
    return kiln_storage_bytes(t) - (uint64_t)a->offset * (uint64_t)kiln_dtype_bytes(t->dtype);
  return (uint64_t)kiln_buffer_elems(b) * (uint64_t)kiln_dtype_bytes(b->dtype);
}

static kiln_status write_arg(kiln_ctx *cx, const kiln_reproducer *r, int n, const kiln_buffer *b,
                             const kiln_argument *a, kiln_text *table) {
  const kiln_tensor *t = a ? r->prog->tensors.data[a->tensor] : NULL;
  char suffix[32];
  const char *name = t ? kiln_symbol_text(cx, t->name) : "workspace";
  snprintf(suffix, sizeof suffix, "arg%d.raw", n);
  kiln_text_printf(table, "%s\t%s\t%s\t%s\n", suffix, kiln_symbol_text(cx, b->name),
                   kiln_dtype_text(b->dtype), name);
  KILN_TRY(write_file(cx, r, suffix, r->args[n], arg_bytes(b, a, t)));
  if (!t || t->role == KILN_CONST || t->def < 0) return KILN_OK;
  bool written = false;
  for (int i = 0; i < r->launch->n_stmts; i++) written |= r->launch->stmts[i] == t->def;
  if (!written) return KILN_OK;
  const void *want = NULL;
  KILN_TRY(kiln_interpreter_compute(r->reference, t->id, &want));
  snprintf(suffix, sizeof suffix, "want%d.raw", n);
  kiln_text_printf(table, "%s\t%s\t%s\t%s, row-major, by the reference\n", suffix,
                   kiln_symbol_text(cx, b->name), kiln_dtype_text(b->dtype), name);
  return write_file(cx, r, suffix, want,
                    (size_t)kiln_tensor_elems(t) * (size_t)kiln_dtype_bytes(t->dtype));
}

kiln_status kiln_reproducer_write(kiln_ctx *cx, const kiln_reproducer *r) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_loops *loops = r->kernel->loops;
  kiln_text table;
  int n = 0, param = 0;
  kiln_text_init(&table, &cx->scratch);
  if (mkdir(r->dir, 0777) != 0 && errno != EEXIST)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, r->dir, "reproducer: must be writable: %s",
                     strerror(errno));
  KILN_TRY(write_texts(cx, r));
  for (int i = 0; i < loops->buffers.n; i++) {
    const kiln_buffer *b = loops->buffers.data[i];
    const kiln_argument *a = NULL;
    if (!b || !kiln_scope_is_argument(b->scope)) continue;
    if (b->scope == KILN_SCOPE_PARAM) a = &r->launch->args[param++];
    KILN_TRY(write_arg(cx, r, n++, b, a, &table));
  }
  KILN_TRY(write_text(cx, r, "args", &table));
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

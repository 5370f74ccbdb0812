// What memory is known to hold where code is emitted: what the basic block at hand has loaded from
// a buffer, or stored to it, as long as it has not written the buffer again. LLVM finds the same,
// but walks over all writes in between for each load: of a kernel that computes twenty tensors
// which read each other, that is most of what its passes do.
#include "target/cpu/cpu.h"

// A pointer of the block, or a constant step from one.
static uint64_t key_of(const void *from, const void *type, int64_t by) {
  const uint64_t words[] = {(uintptr_t)from, (uintptr_t)type, (uint64_t)by};
  return kiln_hash_bytes(words, sizeof words, 0);
}

static kiln_known *find(const kiln_emit *e, uint64_t key) {
  const uint64_t *at = kiln_map_find(&e->known, key);
  return at ? (kiln_known *)(uintptr_t)*at : NULL;
}

static void note(kiln_emit *e, uint64_t key, kiln_known one) {
  kiln_known *to = find(e, key);
  if (!to) {
    to = KILN_NEW(&e->cx->perm, kiln_known);
    kiln_map_put(&e->known, key, (uintptr_t)to);
  }
  one.block = LLVMGetInsertBlock(e->b);
  *to = one;
}

static bool holds(const kiln_emit *e, const kiln_known *k, LLVMValueRef from, LLVMTypeRef type,
                  int64_t by) {
  return k && k->from == from && k->type == type && k->by == by &&
         k->block == LLVMGetInsertBlock(e->b);
}

LLVMValueRef kiln_cpu_step(kiln_emit *e, LLVMTypeRef type, LLVMValueRef from, int64_t by) {
  if (by == 0) return from;
  const uint64_t key = key_of(from, type, by);
  const kiln_known *k = find(e, key);
  if (holds(e, k, from, type, by)) return k->value;
  LLVMValueRef index = kiln_cpu_const_int(e->m->i64, by);
  LLVMValueRef p = LLVMBuildGEP2(e->b, type, from, &index, 1, "");
  note(e, key, (kiln_known){.from = from, .type = type, .by = by, .value = p});
  return p;
}

// Others than arguments become registers.
static bool is_followed(const kiln_emit *e, int buffer) {
  return kiln_scope_is_argument(e->loops->buffers.data[buffer]->scope);
}

LLVMValueRef kiln_cpu_held(const kiln_emit *e, int buffer, LLVMTypeRef type, LLVMValueRef p) {
  if (!is_followed(e, buffer)) return NULL;
  const kiln_known *k = find(e, key_of(p, type, 0));
  return holds(e, k, p, type, 0) && k->n_written == e->n_written[buffer] ? k->value : NULL;
}

void kiln_cpu_note_held(kiln_emit *e, int buffer, LLVMValueRef p, LLVMValueRef value) {
  if (!is_followed(e, buffer)) return;
  LLVMTypeRef type = LLVMTypeOf(value);
  note(e, key_of(p, type, 0),
       (kiln_known){.from = p, .type = type, .value = value, .n_written = e->n_written[buffer]});
}

void kiln_cpu_note_written(kiln_emit *e, int buffer) { e->n_written[buffer]++; }

void kiln_cpu_forget_memory(kiln_emit *e) {
  for (int i = 0; i < e->loops->buffers.n; i++) kiln_cpu_note_written(e, i);
}

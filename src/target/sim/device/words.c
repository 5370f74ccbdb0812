// What is accessed at once must be aligned: words of vector loads, stores and copies, rows that
// instructions read, operands of warp groups. And the registers that roles set must be there.
// source: PTX ISA, "ld", "st", "cp.async", "ldmatrix", "wgmma.mma_async", "setmaxnreg"
#include "target/sim/device/state.h"

enum { ROW = 16 }; // bytes of a row that the hardware reads at once

// The byte of an element: in its block's arena, or from its buffer's begin on, which is aligned.
static int64_t byte_of(const sim_device *d, const sim_memory *c, int64_t element) {
  return c->b->scope == KILN_SCOPE_SHARED
             ? sim_shared_byte(d, c, element) - d->space * d->arena_bytes
             : element * kiln_dtype_bytes(c->b->dtype);
}

void sim_check_word(sim_device *d, const sim_memory *c, int64_t element, int64_t bytes) {
  const int64_t at = byte_of(d, c, element);
  if (d->m.status != KILN_OK || at % bytes == 0) return;
  SIM_FAIL(d,
           "buffer %s: `%s` accesses %" PRId64
           " bytes at once, which must begin at a multiple, got byte %" PRId64,
           kiln_symbol_text(d->m.cx, c->b->name), sim_text_of(d, d->by), bytes, at);
}

// --- vectorized loops ---

static void check_word_at(sim_device *d, int buffer, const kiln_expr *const *index, int64_t lanes) {
  const sim_memory *c = &d->cells[buffer];
  const int64_t element = sim_element_of(d, c, index);
  sim_check_word(d, c, element, lanes * kiln_dtype_bytes(c->b->dtype));
}

void sim_check_words(sim_device *d, const kiln_loop *l) {
  const kiln_loop *s = l->body;
  const int64_t lanes = kiln_sim_eval_index(&d->m, l->extent);
  if (s->kind != KILN_LOOP_STORE || s->next) return;
  const kiln_expr *from = s->value;
  if (from->kind == KILN_EXPR_SELECT)
    from = kiln_sim_eval(&d->m, from->args[0]).i ? from->args[1] : from->args[2];
  d->by = s;
  check_word_at(d, s->buffer, s->index, lanes);
  if (from->kind == KILN_EXPR_LOAD) check_word_at(d, from->u.tensor, from->args, lanes);
}

// --- operands of instructions ---

static int64_t operand_element(sim_device *d, const kiln_expr *o, int64_t row) {
  for (int k = 0; k < KILN_MAX_TILE_RANK; k++) d->m.vars[d->tile_vars[k]] = k == 0 ? row : 0;
  return sim_element_of(d, &d->cells[o->u.tensor], o->args);
}

// A descriptor has the addresses of operands in 14 bits, by 16 bytes; no offset within the
// swizzle's period.
static void check_descriptor(sim_device *d, const sim_memory *c, int64_t element) {
  enum { END = 1 << 18 };
  const int64_t at = byte_of(d, c, element);
  const bool is =
      c->b->is_swizzled && at % SIM_SWIZZLE_PERIOD < SIM_SWIZZLE_SPAN && at % ROW == 0 && at < END;
  if (is || d->m.status != KILN_OK) return;
  SIM_FAIL(
      d,
      "buffer %s: `%s` must read a swizzled buffer from a multiple of %d bytes on, in the first "
      "%d of a period of %d, got byte %" PRId64,
      kiln_symbol_text(d->m.cx, c->b->name), sim_text_of(d, d->by), ROW, SIM_SWIZZLE_SPAN,
      SIM_SWIZZLE_PERIOD, at);
}

void sim_check_operand(sim_device *d, int operand) {
  const kiln_instr *instr = d->instr->instr;
  const kiln_buffer *tile = instr->loops->buffers.data[operand];
  const kiln_expr *o = d->instr->operands[operand];
  const sim_memory *c = &d->cells[o->u.tensor];
  if (instr->swizzled) {
    check_descriptor(d, c, operand_element(d, o, 0));
    return;
  }
  for (int64_t i = 0; i < tile->extents[0] && d->m.status == KILN_OK; i++)
    sim_check_word(d, c, operand_element(d, o, i), ROW);
}

// --- registers ---

// The registers of threads in roles under |l|, less |each| for each of these threads.
static int64_t taken(const sim_device *d, const kiln_loop *l, int64_t each) {
  int64_t sum = 0, rows = 1, n = 1, registers = 0;
  for (; l; l = l->next) {
    const bool are_consumers = kiln_device_is(l, KILN_DEVICE_ROLE_CONSUMERS);
    sum += taken(d, l->body, each);
    if (!l->body || !kiln_device_is(l->body, KILN_DEVICE_REGISTERS_SET)) continue;
    rows = n = 1;
    if (are_consumers) (void)kiln_expr_is_int(l->operands[1], &rows);
    if (are_consumers) (void)kiln_expr_is_int(l->operands[2], &n);
    (void)kiln_expr_is_int(l->body->operands[0], &registers);
    sum += (registers - each) * rows * n * d->launch->block[0] * d->launch->block[2];
  }
  return sum;
}

void sim_check_registers(sim_device *d) {
  enum { UNIT = 8, MOST = 255 };
  const int64_t threads = d->n_block_threads;
  int64_t each = d->launch->registers / threads / UNIT * UNIT; // that a thread begins with
  if (!d->launch->registers) return;
  if (each > MOST) each = MOST / UNIT * UNIT;
  const int64_t more = taken(d, d->l->body, each);
  if (more > 0)
    SIM_FAIL(d,
             "roles must have no more registers than the %" PRId64 " that each of %" PRId64
             " threads begins with, got %" PRId64 " more",
             each, threads, more);
}

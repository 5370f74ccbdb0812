// The invariants of device loops.
#include "target/gpu/device/device.h"

#include "target/instr.h"

#include <string.h>

typedef struct verifier {
  kiln_ctx *cx;
  const kiln_loops *l;
  const char *place;
  int threads, blocks;   // loops around, bound to them
  const kiln_loop *role; // around; NULL: none
  int64_t next_row;      // behind the rows of the roles so far; -1: a producer's
  bool has_copies;       // that are not committed
  uint8_t *is_made;      // [buffers] mbarriers that are initialised
} verifier;

static kiln_status breach(const verifier *v, const kiln_loop *l, const char *must) {
  kiln_text t;
  kiln_loops one = *v->l;
  kiln_loop alone = *l;
  alone.next = alone.body = NULL;
  one.body = &alone;
  kiln_text_init(&t, &v->cx->scratch);
  kiln_loops_print(v->cx, &one, &t);
  char *line = strstr(t.data, l->op->name), *end = strchr(line, '\n');
  if (end) *end = 0;
  return KILN_FAIL(v->cx->diag, KILN_INTERNAL, v->place, "%s %s", line, must);
}

// --- arguments ---

static const kiln_buffer *buffer_of(const verifier *v, const kiln_expr *e) {
  return e->kind == KILN_EXPR_LOAD ? v->l->buffers.data[e->u.tensor] : NULL;
}

static bool is_mbarrier(const kiln_buffer *b) {
  return b && b->scope == KILN_SCOPE_SHARED && b->dtype == KILN_U64;
}

static const char *misfit(const verifier *v, char kind, const kiln_expr *e) {
  const kiln_buffer *b = buffer_of(v, e);
  switch (kind) {
  case 'i': return e->dtype == KILN_I64 ? NULL : "must have a number there";
  case 's':
    return b && b->scope == KILN_SCOPE_SHARED ? NULL : "must copy to an element of shared memory";
  case 'g':
    return b && kiln_scope_is_argument(b->scope)
               ? NULL
               : "must copy from an element of the caller's memory";
  case 'm': return is_mbarrier(b) ? NULL : "must name an mbarrier, a u64 of shared memory";
  case 'r': return b && kiln_scope_is_private(b->scope) ? NULL : "must name memory of the thread";
  default:
    return b && kiln_scope_is_private(b->scope) && b->dtype == KILN_U32
               ? NULL
               : "must keep phases in a u32 of the thread";
  }
}

static kiln_status check_arguments(const verifier *v, const kiln_loop *l) {
  if (l->n_operands != (int)strlen(l->op->arguments))
    return breach(v, l, "must have as many arguments as its row says");
  for (int i = 0; i < l->n_operands; i++) {
    const char *must = misfit(v, l->op->arguments[i], l->operands[i]);
    if (must) return breach(v, l, must);
  }
  if (l->body && !l->op->has_body) return breach(v, l, "must have no body");
  if (l->cond && l->op->kind != KILN_DEVICE_COPY_ASYNC && l->op->kind != KILN_DEVICE_TILE_STEPS)
    return breach(v, l, "must have no condition");
  return KILN_OK;
}

// A number that must be known and at least |least|.
static kiln_status check_int(const verifier *v, const kiln_loop *l, int argument, int64_t least) {
  int64_t value = 0;
  if (kiln_expr_is_int(l->operands[argument], &value) && value >= least) return KILN_OK;
  return breach(v, l,
                least ? "must have a constant above zero" : "must have a constant from zero on");
}

// --- places ---

static kiln_status check_roles(verifier *v, const kiln_loop *l) {
  int64_t row = 0, rows = 1, n = 1;
  const bool are_consumers = l->op->kind == KILN_DEVICE_ROLE_CONSUMERS;
  if (v->role || v->threads) return breach(v, l, "must lie in no thread loop and no other role");
  KILN_TRY(check_int(v, l, 0, 0));
  if (are_consumers) KILN_TRY(check_int(v, l, 1, 1));
  if (are_consumers) KILN_TRY(check_int(v, l, 2, 1));
  (void)kiln_expr_is_int(l->operands[0], &row);
  if (are_consumers) {
    (void)kiln_expr_is_int(l->operands[1], &rows);
    (void)kiln_expr_is_int(l->operands[2], &n);
  }
  if (row < v->next_row)
    return breach(v, l, "must have rows of threads behind those of other roles");
  v->next_row = row + rows * n;
  return KILN_OK;
}

static kiln_status check_copies(verifier *v, const kiln_loop *l) {
  switch ((int)l->op->kind) {
  case KILN_DEVICE_COPY_ASYNC: v->has_copies = true; return KILN_OK;
  case KILN_DEVICE_COPY_COMMIT: v->has_copies = false; return KILN_OK;
  case KILN_DEVICE_COPY_WAIT:
    if (v->has_copies) return breach(v, l, "must follow a commit of the copies before it");
    return check_int(v, l, 0, 0);
  default: return KILN_OK;
  }
}

static kiln_status check_mbarrier(verifier *v, const kiln_loop *l) {
  const int b = l->operands[0]->u.tensor;
  if (l->op->kind == KILN_DEVICE_MBARRIER_INIT ||
      l->op->kind == KILN_DEVICE_MBARRIER_INIT_CLUSTER) {
    v->is_made[b] = 1;
    KILN_TRY(check_int(v, l, 1, 1));
    int64_t n = 0;
    (void)kiln_expr_is_int(l->operands[1], &n);
    return n <= kiln_buffer_elems(v->l->buffers.data[b])
               ? KILN_OK
               : breach(v, l, "must initialise no more mbarriers than there are");
  }
  return v->is_made[b] ? KILN_OK : breach(v, l, "must come behind the mbarrier's initialisation");
}

// source: PTX ISA, "setmaxnreg"
static kiln_status check_registers(const verifier *v, const kiln_loop *l) {
  enum { LEAST = 24, MOST = 256, UNIT = 8 };
  int64_t n = 0;
  (void)kiln_expr_is_int(l->operands[0], &n);
  if (n < LEAST || n > MOST || n % UNIT)
    return breach(v, l, "must have a multiple of 8 from 24 to 256");
  return v->role && v->role->body == l ? KILN_OK
                                       : breach(v, l, "must stand at the begin of a role");
}

static kiln_status check_place(verifier *v, const kiln_loop *l) {
  switch (l->op->kind) {
  case KILN_DEVICE_BARRIER_BLOCK:
  case KILN_DEVICE_CLUSTER_SYNC:
  case KILN_DEVICE_LAUNCH_WAIT: break;
  case KILN_DEVICE_BARRIER_SYNC:
  case KILN_DEVICE_BARRIER_ARRIVE: return check_int(v, l, 1, 1);
  case KILN_DEVICE_COPY_ASYNC:
  case KILN_DEVICE_COPY_COMMIT:
  case KILN_DEVICE_COPY_WAIT: return check_copies(v, l);
  case KILN_DEVICE_MBARRIER_INIT:
  case KILN_DEVICE_MBARRIER_INIT_CLUSTER:
  case KILN_DEVICE_MBARRIER_ARRIVE_CLUSTER:
  case KILN_DEVICE_MBARRIER_ARRIVE:
  case KILN_DEVICE_MBARRIER_EXPECT:
  case KILN_DEVICE_MBARRIER_WAIT:
  case KILN_DEVICE_MBARRIER_AWAIT: return check_mbarrier(v, l);
  case KILN_DEVICE_WGMMA_WAIT: return check_int(v, l, 0, 0);
  case KILN_DEVICE_REGISTERS_SET: return check_registers(v, l);
  case KILN_DEVICE_ROLE_CONSUMERS:
  case KILN_DEVICE_ROLE_PRODUCER: return check_roles(v, l);
  case KILN_DEVICE_BARRIER_WARP:
  case KILN_DEVICE_FENCE_ASYNC:
  case KILN_DEVICE_FENCE_CLUSTER:
  case KILN_DEVICE_WGMMA_FENCE:
  case KILN_DEVICE_WGMMA_COMMIT:
  case KILN_DEVICE_WGMMA_SETTLE:
  case KILN_DEVICE_WGMMA_TAKE:
  case KILN_DEVICE_ROLE_FIRST:
  case KILN_DEVICE_ROLE_LEADERS:
  case KILN_DEVICE_ROLE_WARP:
  case KILN_DEVICE_MAPS_FETCH:
  case KILN_DEVICE_MBARRIER_PHASES:
  case KILN_DEVICE_MBARRIER_FLIP:
  case KILN_DEVICE_TILES:
  case KILN_DEVICE_TILE_STEPS:
  case KILN_N_DEVICE_KINDS: return KILN_OK;
  }
  if (v->role && l->op->kind != KILN_DEVICE_LAUNCH_WAIT)
    return breach(v, l, "must not stand in a role, which has some of the threads alone");
  return KILN_OK;
}

// Whether some of the threads run |l|'s body, the others another role.
static bool is_role(const kiln_loop *l) {
  return l->op->kind == KILN_DEVICE_ROLE_CONSUMERS || l->op->kind == KILN_DEVICE_ROLE_PRODUCER;
}

static kiln_status check_list(verifier *v, const kiln_loop *l) {
  for (; l; l = l->next) {
    const bool is_device = l->kind == KILN_LOOP_DEVICE,
               is_thread = l->kind == KILN_LOOP_FOR && kiln_how_is_thread(l->how);
    if (is_device) KILN_TRY(check_arguments(v, l));
    if (is_device) KILN_TRY(check_place(v, l));
    const kiln_loop *role = v->role;
    if (is_device && is_role(l)) v->role = l;
    v->threads += is_thread;
    KILN_TRY(check_list(v, l->body));
    v->threads -= is_thread;
    v->role = role;
  }
  return KILN_OK;
}

kiln_status kiln_device_verify(kiln_ctx *cx, const kiln_loops *l) {
  KILN_TRY(kiln_loops_verify(cx, l));
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  verifier v = {.cx = cx, .l = l};
  v.place = kiln_arena_printf(&cx->scratch, "device loops of %s", kiln_symbol_text(cx, l->name));
  v.is_made = KILN_NEW_ARRAY(&cx->scratch, uint8_t, l->buffers.n);
  const kiln_status status = check_list(&v, l->body);
  kiln_arena_rewind(&cx->scratch, mark);
  return status;
}

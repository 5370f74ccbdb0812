// Loads and stores. An access is classified by its stride between lanes: 0 is a scalar, 1 a vector,
// -1 a reversed vector, a small constant is loaded as vectors and shuffled, any other is a gather
// or scatter.
//
// Memory is never read where a guard is false: a scalar guard selects between the address and that
// of zeros, a lane guard masks, unless the access is in bounds anyway.
#include "target/cpu/cpu.h"

#include "support/integer.h"

#include <stdlib.h>

enum { ZERO_BYTES = 2048 }; // the widest load: 256 lanes of 8 bytes

LLVMValueRef kiln_cpu_tag(kiln_emit *e, int buffer, LLVMValueRef access) {
  if (e->md_scopes[buffer]) LLVMSetMetadata(access, e->m->md_scope, e->md_scopes[buffer]);
  if (e->md_others[buffer]) LLVMSetMetadata(access, e->m->md_noalias, e->md_others[buffer]);
  return access;
}

static LLVMValueRef make_zeros(kiln_cpu_module *m) {
  LLVMTypeRef type = LLVMArrayType2(m->i8, ZERO_BYTES);
  LLVMValueRef g = LLVMAddGlobal(m->module, type, "kiln.zeros");
  LLVMSetInitializer(g, LLVMConstNull(type));
  LLVMSetGlobalConstant(g, 1);
  LLVMSetLinkage(g, LLVMPrivateLinkage);
  LLVMSetAlignment(g, ZERO_BYTES); // all in one page
  return g;
}

// A masked load without active lanes does not fault its page in, and takes a thousand cycles until
// another access does: the function reads a byte of it first.
static LLVMValueRef zeros(kiln_emit *e) {
  if (!e->m->zeros) e->m->zeros = make_zeros(e->m);
  if (!e->has_zeros) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    LLVMPositionBuilderBefore(e->b, LLVMGetBasicBlockTerminator(e->entry));
    LLVMSetVolatile(LLVMBuildLoad2(e->b, e->m->i8, e->m->zeros, ""), 1);
    LLVMPositionBuilderAtEnd(e->b, here);
    kiln_cpu_say_line(e);
    e->has_zeros = true;
  }
  return e->m->zeros;
}

static bool is_thread_private(const kiln_emit *e, int buffer) {
  const kiln_scope s = e->loops->buffers.data[buffer]->scope;
  return !kiln_scope_is_argument(s);
}

// The scalar condition under which an access may be made; NULL: always.
static LLVMValueRef access_guard(kiln_emit *e, bool uniform) {
  LLVMValueRef any = uniform && e->mask ? kiln_cpu_any(e, e->mask) : NULL;
  return kiln_cpu_and(e, e->guard, any);
}

static LLVMValueRef aligned_load(kiln_emit *e, int buffer, LLVMTypeRef type, LLVMValueRef p) {
  LLVMValueRef v = kiln_cpu_held(e, buffer, type, p);
  if (v) return v;
  v = LLVMBuildLoad2(e->b, type, p, "");
  LLVMSetAlignment(v, (unsigned)kiln_dtype_bytes(e->loops->buffers.data[buffer]->dtype));
  kiln_cpu_note_held(e, buffer, p, v);
  return kiln_cpu_tag(e, buffer, v);
}

static LLVMValueRef masked_load(kiln_emit *e, int buffer, LLVMTypeRef type, LLVMValueRef p) {
  const unsigned align = (unsigned)kiln_dtype_bytes(e->loops->buffers.data[buffer]->dtype);
  LLVMValueRef args[] = {p, LLVMConstInt(e->m->i32, align, 0), e->mask, LLVMConstNull(type)};
  LLVMTypeRef types[] = {type, e->m->ptr};
  return kiln_cpu_tag(e, buffer, kiln_cpu_call(e, "llvm.masked.load", 2, types, 4, args));
}

static LLVMValueRef lane_pointers(kiln_emit *e, LLVMTypeRef scalar, const kiln_cpu_place *a) {
  LLVMValueRef index = a->index.v ? a->index.v // i32 lanes are sign-extended
                                  : kiln_cpu_lane_ids(e, e->m->i64, e->lanes, 0, a->lane_stride);
  return LLVMBuildGEP2(e->b, scalar, a->pointer, &index, 1, "");
}

static LLVMValueRef gather(kiln_emit *e, int buffer, LLVMTypeRef scalar, const kiln_cpu_place *a,
                           LLVMValueRef mask) {
  LLVMTypeRef type = kiln_cpu_lanes_of(scalar, e->lanes);
  LLVMValueRef known = kiln_cpu_gather(e, scalar, a, mask);
  if (known) return known;
  LLVMValueRef p = lane_pointers(e, scalar, a);
  const unsigned align = (unsigned)kiln_dtype_bytes(e->loops->buffers.data[buffer]->dtype);
  if (!mask) mask = kiln_cpu_const_int(kiln_cpu_lanes_of(e->m->i1, e->lanes), 1);
  LLVMValueRef args[] = {p, LLVMConstInt(e->m->i32, align, 0), mask, LLVMConstNull(type)};
  LLVMTypeRef types[] = {type, LLVMTypeOf(p)};
  return kiln_cpu_tag(e, buffer, kiln_cpu_call(e, "llvm.masked.gather", 2, types, 4, args));
}

// Lane k is element k*stride of |stride| loaded vectors; the last vector ends at the last lane's
// element, so that no later element is read.
static LLVMValueRef load_strided(kiln_emit *e, int buffer, LLVMTypeRef scalar, LLVMValueRef p,
                                 int stride) {
  const int lanes = e->lanes, last = (lanes - 1) * stride + 1 - lanes;
  LLVMTypeRef type = kiln_cpu_lanes_of(scalar, lanes);
  LLVMValueRef sum = NULL;
  for (int piece = 0; piece < stride; piece++) {
    const int first = piece == stride - 1 ? last : piece * lanes;
    LLVMValueRef v = aligned_load(e, buffer, type, kiln_cpu_step(e, scalar, p, first));
    LLVMValueRef select[256];
    for (int k = 0; k < lanes; k++) {
      const int at = k * stride - first;
      const bool mine =
          at >= 0 && at < lanes && (piece == stride - 1 || k * stride < first + lanes);
      const bool before = sum && k * stride < piece * lanes;
      select[k] = before ? LLVMConstInt(e->m->i32, (unsigned)k, 0)
                  : mine ? LLVMConstInt(e->m->i32, (unsigned)(lanes + at), 0)
                         : LLVMGetPoison(e->m->i32);
    }
    LLVMValueRef mask = LLVMConstVector(select, (unsigned)lanes);
    sum = LLVMBuildShuffleVector(e->b, sum ? sum : LLVMGetPoison(type), v, mask, "");
  }
  return sum;
}

// A reversed vector that begins at the last active lane's element. Inactive lanes read past the
// first lane's element, as in a forward vector, and then hold the last active lane's.
static LLVMValueRef load_reversed(kiln_emit *e, int buffer, LLVMTypeRef scalar, LLVMValueRef p) {
  LLVMTypeRef type = kiln_cpu_lanes_of(scalar, e->lanes);
  const int last = e->n_active - 1;
  LLVMValueRef v = aligned_load(e, buffer, type, kiln_cpu_step(e, scalar, p, -last)), from[256];
  for (int k = 0; k < e->lanes; k++)
    from[k] = LLVMConstInt(e->m->i32, (unsigned)(k < last ? last - k : 0), 0);
  return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(type),
                                LLVMConstVector(from, (unsigned)e->lanes), "");
}

// A short vector, each element repeated for |repeats| lanes.
static LLVMValueRef load_repeated(kiln_emit *e, int buffer, LLVMTypeRef scalar, LLVMValueRef p,
                                  int repeats) {
  LLVMTypeRef type = kiln_cpu_lanes_of(scalar, e->lanes / repeats);
  LLVMValueRef v = aligned_load(e, buffer, type, p), from[256];
  for (int k = 0; k < e->lanes; k++) from[k] = LLVMConstInt(e->m->i32, (unsigned)(k / repeats), 0);
  return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(type),
                                LLVMConstVector(from, (unsigned)e->lanes), "");
}

// Whether lane |k| is active: 1 or 0, -1 if it is only known at run time.
static int lane_is_on(const kiln_emit *e, int k) {
  if (!e->mask) return 1;
  LLVMValueRef bit = LLVMIsConstant(e->mask) ? LLVMGetAggregateElement(e->mask, (unsigned)k) : NULL;
  return bit && LLVMIsAConstantInt(bit) ? (int)LLVMConstIntGetZExtValue(bit) : -1;
}

static bool lanes_are_known(const kiln_emit *e) {
  for (int k = 0; k < e->lanes; k++) {
    if (lane_is_on(e, k) < 0) return false;
  }
  return true;
}

static bool lanes_are_off(const kiln_emit *e) {
  for (int k = 0; k < e->lanes; k++) {
    if (lane_is_on(e, k) != 0) return false;
  }
  return true;
}

static LLVMValueRef load_scalars(kiln_emit *e, int buffer, LLVMTypeRef scalar,
                                 const kiln_cpu_place *a) {
  LLVMValueRef v = LLVMConstNull(kiln_cpu_lanes_of(scalar, e->lanes));
  for (int k = 0; k < e->lanes; k++) {
    if (lane_is_on(e, k) == 0) continue;
    LLVMValueRef p = kiln_cpu_step(e, scalar, a->pointer, k * a->lane_stride);
    LLVMValueRef x = aligned_load(e, buffer, scalar, p);
    v = LLVMBuildInsertElement(e->b, v, x, LLVMConstInt(e->m->i32, (unsigned)k, 0), "");
  }
  return v;
}

// Selects between the address and zeros; the access must not exceed the zeros' size.
static LLVMValueRef guarded_pointer(kiln_emit *e, const kiln_cpu_place *a, LLVMTypeRef scalar,
                                    LLVMValueRef guard) {
  const int64_t s = a->lane_stride;
  const int64_t bytes = 8 * (llabs(s) * (e->lanes > 0 ? e->lanes - 1 : 0) + 1);
  if (bytes > ZERO_BYTES) return NULL;
  LLVMValueRef zero = kiln_cpu_step(e, scalar, zeros(e), s < 0 ? -s * (e->lanes - 1) : 0);
  return LLVMBuildSelect(e->b, guard, a->pointer, zero, "");
}

static LLVMValueRef load_lanes(kiln_emit *e, int buffer, LLVMTypeRef scalar,
                               const kiln_cpu_place *a, bool needs_mask) {
  LLVMTypeRef type = kiln_cpu_lanes_of(scalar, e->lanes);
  const int64_t s = a->lane_stride;
  if (a->repeats) return load_repeated(e, buffer, scalar, a->pointer, a->repeats);
  if (a->index.v) {
    LLVMValueRef mask = e->mask;
    if (e->guard) mask = kiln_cpu_and(e, mask, kiln_cpu_splat(e, e->guard, e->lanes));
    return gather(e, buffer, scalar, a, mask);
  }
  if (s == 1 && needs_mask) {
    // A masked load of no lane from a page that does not exist is correct but takes hundreds of
    // cycles. SELECTs between tensors do this, guards of tails do not.
    LLVMValueRef any = e->memo_masked ? kiln_cpu_any(e, e->mask) : NULL;
    LLVMValueRef p = any ? guarded_pointer(e, a, scalar, any) : NULL;
    return masked_load(e, buffer, type, p ? p : a->pointer);
  }
  if (s == 1) return aligned_load(e, buffer, type, a->pointer);
  if (needs_mask)
    return lanes_are_known(e) ? load_scalars(e, buffer, scalar, a)
                              : gather(e, buffer, scalar, a, e->mask);
  if (s == -1) return load_reversed(e, buffer, scalar, a->pointer);
  if (s >= 2 && s <= 4 && e->lanes >= 4) return load_strided(e, buffer, scalar, a->pointer, (int)s);
  return load_scalars(e, buffer, scalar, a);
}

// Whether the elements of all lanes are in the buffer's memory, including inactive lanes and lanes
// past the end of the vector loop, which continue at the same stride.
static bool all_lanes_lie_inside(kiln_emit *e, int buffer, const kiln_expr *const *index,
                                 const kiln_cpu_place *a) {
  const kiln_buffer *b = e->loops->buffers.data[buffer];
  const int64_t copies = e->is_private[buffer] ? e->lane_extent : 1;
  int64_t lo = 0, hi = 0;
  for (int i = 0; i < b->rank; i++) {
    const kiln_interval r = kiln_expr_interval(e->cx, index[i], &e->ranges);
    lo = kiln_add_sat(lo, kiln_mul_sat(r.lo, b->strides[i] * copies));
    hi = kiln_add_sat(hi, kiln_mul_sat(r.hi, b->strides[i] * copies));
  }
  const int64_t n_behind = e->lanes - e->n_active;
  const int64_t behind = n_behind * (a->lane_stride == -1 ? 1 : a->lane_stride);
  lo = kiln_add_sat(lo, behind < 0 ? behind : 0);
  hi = kiln_add_sat(hi, copies > 1 ? e->chunk + e->n_active - 1 : 0);
  hi = kiln_add_sat(hi, behind > 0 ? behind : 0);
  return lo >= 0 &&
         hi < (is_thread_private(e, buffer) ? kiln_cpu_alloc_elems(e, b) : kiln_buffer_elems(b));
}

kiln_lanes kiln_cpu_load(kiln_emit *e, const kiln_expr *load) {
  const int buffer = load->u.tensor;
  LLVMTypeRef scalar = kiln_cpu_memory_type(e->m, load->dtype);
  kiln_cpu_place a = kiln_cpu_load_address(e, load);
  const bool uniform = !a.index.v && !a.repeats && a.lane_stride == 0;
  const bool inside = e->mask && all_lanes_lie_inside(e, buffer, load->args, &a);
  const bool padded = e->lanes > e->n_active && !inside;
  const bool safe = (e->mask || e->guard) && kiln_cpu_in_bounds(e, buffer, load->args);
  LLVMValueRef guard = safe ? NULL : access_guard(e, uniform);
  const bool in_row = e->loops->buffers.data[buffer]->scope == KILN_SCOPE_REGISTER &&
                      a.lane_stride == 1 && inside; // beyond the row are other rows, or padding
  const bool needs_mask = !uniform && !in_row && e->mask && (padded || !safe);
  if (guard && !a.index.v) {
    LLVMValueRef p = guarded_pointer(e, &a, scalar, guard);
    if (p) {
      a.pointer = p;
    } else { // the access exceeds the zeros: the guard becomes a mask
      a.index = (kiln_lanes){kiln_cpu_lane_ids(e, e->m->i64, e->lanes, 0, a.lane_stride), e->lanes,
                             false};
    }
  }
  LLVMValueRef raw = uniform ? aligned_load(e, buffer, scalar, a.pointer)
                             : load_lanes(e, buffer, scalar, &a, needs_mask);
  return (kiln_lanes){kiln_cpu_from_memory(e, load->dtype, raw), uniform ? 0 : e->lanes, false};
}

LLVMValueRef kiln_cpu_from_memory(kiln_emit *e, kiln_dtype t, LLVMValueRef raw) {
  const int lanes = kiln_cpu_type_lanes(LLVMTypeOf(raw));
  LLVMTypeRef f32 = kiln_cpu_lanes_of(e->m->f32, lanes), i32 = kiln_cpu_lanes_of(e->m->i32, lanes);
  if (t == KILN_BOOL)
    return LLVMBuildICmp(e->b, LLVMIntNE, raw, LLVMConstNull(LLVMTypeOf(raw)), "");
  if (t == KILN_BF16) {
    LLVMValueRef high =
        LLVMBuildShl(e->b, LLVMBuildZExt(e->b, raw, i32, ""), kiln_cpu_const_int(i32, 16), "");
    return LLVMBuildBitCast(e->b, high, f32, "");
  }
  if (t == KILN_F16 && !kiln_cpu_has_f16c(e->m)) return kiln_cpu_f16_from_bits(e, raw);
  if (t == KILN_F16) {
    LLVMValueRef half = LLVMBuildBitCast(e->b, raw, kiln_cpu_lanes_of(e->m->f16, lanes), "");
    return LLVMBuildFPExt(e->b, half, f32, "");
  }
  return raw;
}

LLVMValueRef kiln_cpu_to_memory(kiln_emit *e, kiln_dtype t, LLVMValueRef value) {
  const int lanes = kiln_cpu_type_lanes(LLVMTypeOf(value));
  if (t == KILN_BOOL) return LLVMBuildZExt(e->b, value, kiln_cpu_lanes_of(e->m->i8, lanes), "");
  if (kiln_dtype_is_half(t)) return kiln_cpu_round_half(e, t, value);
  return value;
}

// --- stores ---

static void aligned_store(kiln_emit *e, int buffer, LLVMValueRef v, LLVMValueRef p) {
  LLVMValueRef s = LLVMBuildStore(e->b, v, p);
  LLVMSetAlignment(s, (unsigned)kiln_dtype_bytes(e->loops->buffers.data[buffer]->dtype));
  kiln_cpu_tag(e, buffer, s);
  kiln_cpu_note_written(e, buffer);
  kiln_cpu_note_held(e, buffer, p, v);
}

static void masked_store(kiln_emit *e, int buffer, LLVMValueRef v, LLVMValueRef p) {
  const unsigned align = (unsigned)kiln_dtype_bytes(e->loops->buffers.data[buffer]->dtype);
  LLVMValueRef args[] = {v, p, LLVMConstInt(e->m->i32, align, 0), e->mask};
  LLVMTypeRef types[] = {LLVMTypeOf(v), e->m->ptr};
  kiln_cpu_tag(e, buffer, kiln_cpu_call(e, "llvm.masked.store", 2, types, 4, args));
  kiln_cpu_note_written(e, buffer);
}

static void scatter(kiln_emit *e, int buffer, LLVMTypeRef scalar, LLVMValueRef v,
                    const kiln_cpu_place *a) {
  LLVMValueRef p = lane_pointers(e, scalar, a);
  const unsigned align = (unsigned)kiln_dtype_bytes(e->loops->buffers.data[buffer]->dtype);
  LLVMValueRef mask =
      e->mask ? e->mask : kiln_cpu_const_int(kiln_cpu_lanes_of(e->m->i1, e->lanes), 1);
  LLVMValueRef args[] = {v, p, LLVMConstInt(e->m->i32, align, 0), mask};
  LLVMTypeRef types[] = {LLVMTypeOf(v), LLVMTypeOf(p)};
  kiln_cpu_tag(e, buffer, kiln_cpu_call(e, "llvm.masked.scatter", 2, types, 4, args));
  kiln_cpu_note_written(e, buffer);
}

static void store_scalars(kiln_emit *e, int buffer, LLVMTypeRef scalar, LLVMValueRef v,
                          const kiln_cpu_place *a) {
  for (int k = 0; k < e->lanes; k++) {
    if (lane_is_on(e, k) == 0) continue;
    LLVMValueRef x = LLVMBuildExtractElement(e->b, v, LLVMConstInt(e->m->i32, (unsigned)k, 0), "");
    aligned_store(e, buffer, x, kiln_cpu_step(e, scalar, a->pointer, k * a->lane_stride));
  }
}

// The lanes by which a row of registers is short of a power of two belong to the row (see ALLOC).
static bool is_padded_row(const kiln_emit *e, int buffer) {
  const kiln_buffer *b = e->loops->buffers.data[buffer];
  return b->scope == KILN_SCOPE_REGISTER && b->rank > 0 && e->lane_conds.n == 0 &&
         b->extents[b->rank - 1] == e->lane_extent && !e->is_private[buffer];
}

// Memory that is private to a thread may be stored outside of the mask with its old contents,
// because its allocation is padded.
static void store_lanes(kiln_emit *e, const kiln_loop *l, LLVMValueRef v, const kiln_cpu_place *a) {
  const int buffer = l->buffer;
  LLVMTypeRef scalar = kiln_cpu_scalar_of(LLVMTypeOf(v));
  const bool contiguous = !a->index.v && a->lane_stride == 1;
  if (contiguous && e->mask && is_thread_private(e, buffer) &&
      all_lanes_lie_inside(e, buffer, l->index, a)) {
    LLVMValueRef old = aligned_load(e, buffer, LLVMTypeOf(v), a->pointer);
    if (!is_padded_row(e, buffer)) v = LLVMBuildSelect(e->b, e->mask, v, old, "");
    aligned_store(e, buffer, v, a->pointer);
  } else if (contiguous && e->mask) {
    masked_store(e, buffer, v, a->pointer);
  } else if (contiguous) {
    aligned_store(e, buffer, v, a->pointer);
  } else if (!a->index.v && lanes_are_known(e)) {
    store_scalars(e, buffer, scalar, v, a);
  } else {
    scatter(e, buffer, scalar, v, a);
  }
}

// The old contents of the destination of a combining store.
static LLVMValueRef load_old(kiln_emit *e, const kiln_loop *l, const kiln_cpu_place *a) {
  const kiln_buffer *b = e->loops->buffers.data[l->buffer];
  LLVMTypeRef scalar = kiln_cpu_memory_type(e->m, b->dtype);
  const bool masked = e->mask && (!is_thread_private(e, l->buffer) ||
                                  !all_lanes_lie_inside(e, l->buffer, l->index, a));
  return kiln_cpu_from_memory(e, b->dtype, load_lanes(e, l->buffer, scalar, a, masked));
}

// The product that |value| sums, through casts that do not round; NULL if there is none.
static const kiln_expr *product_of(const kiln_expr *value) {
  const kiln_expr *x = value;
  while (x->kind == KILN_EXPR_CAST && x->dtype == KILN_F32 &&
         kiln_dtype_is_float(x->args[0]->dtype) && x->args[0]->dtype != KILN_F64)
    x = x->args[0];
  return x->kind == KILN_EXPR_MUL && kiln_dtype_is_float(value->dtype) ? x : NULL;
}

static LLVMValueRef combined(kiln_emit *e, const kiln_loop *l, LLVMValueRef old, int lanes) {
  const kiln_expr *product = l->combiner == KILN_COMBINE_SUM ? product_of(l->value) : NULL;
  if (product) {
    LLVMValueRef a = kiln_cpu_broadcast(e, kiln_cpu_eval(e, product->args[0]), lanes).v;
    LLVMValueRef b = kiln_cpu_broadcast(e, kiln_cpu_eval(e, product->args[1]), lanes).v;
    return kiln_cpu_fma(e, a, b, old);
  }
  kiln_lanes v = kiln_cpu_widen(e, kiln_cpu_broadcast(e, kiln_cpu_eval(e, l->value), lanes));
  return kiln_cpu_combine(e, l->combiner, l->value->dtype, old, v.v);
}

static LLVMValueRef identity(kiln_emit *e, const kiln_loop *l, LLVMTypeRef type) {
  const kiln_expr *x = kiln_combiner_identity(e->cx, l->combiner, l->value->dtype);
  LLVMValueRef scalar = x->kind == KILN_EXPR_FLOAT
                            ? LLVMConstReal(kiln_cpu_scalar_of(type), x->u.f)
                            : LLVMConstInt(kiln_cpu_scalar_of(type), (unsigned long long)x->u.i, 1);
  return kiln_cpu_splat(e, scalar, kiln_cpu_type_lanes(type));
}

static LLVMValueRef reduce_sum(kiln_emit *e, const char *name, LLVMValueRef v, double start) {
  LLVMTypeRef type = LLVMTypeOf(v);
  LLVMValueRef args[] = {LLVMConstReal(kiln_cpu_scalar_of(type), start), v};
  LLVMValueRef r = kiln_cpu_call(e, name, 1, &type, 2, args);
  LLVMSetFastMathFlags(r, LLVMFastMathAllowReassoc);
  return r;
}

// Combines halves of the lanes until one is left, for combiners without an intrinsic.
static LLVMValueRef reduce_halves(kiln_emit *e, const kiln_loop *l, LLVMValueRef v) {
  for (int n = kiln_cpu_type_lanes(LLVMTypeOf(v)); n > 1; n /= 2) {
    LLVMValueRef none = LLVMGetPoison(LLVMTypeOf(v));
    LLVMValueRef low = kiln_cpu_lane_ids(e, e->m->i32, n / 2, 0, 1);
    LLVMValueRef high = kiln_cpu_lane_ids(e, e->m->i32, n / 2, n / 2, 1);
    low = LLVMBuildShuffleVector(e->b, v, none, low, "");
    high = LLVMBuildShuffleVector(e->b, v, none, high, "");
    v = kiln_cpu_combine(e, l->combiner, l->value->dtype, low, high);
  }
  return LLVMBuildExtractElement(e->b, v, LLVMConstInt(e->m->i32, 0, 0), "");
}

// Reduces all lanes to one; their number is a power of two.
static LLVMValueRef reduce_lanes(kiln_emit *e, const kiln_loop *l, LLVMValueRef v) {
  const bool is_float = kiln_dtype_is_float(l->value->dtype);
  if (l->combiner == KILN_COMBINE_SUM)
    return is_float ? reduce_sum(e, "llvm.vector.reduce.fadd", v, -0.0)
                    : kiln_cpu_call1(e, "llvm.vector.reduce.add", v);
  if (l->combiner == KILN_COMBINE_PROD && is_float)
    return reduce_sum(e, "llvm.vector.reduce.fmul", v, 1);
  return reduce_halves(e, l, v);
}

// Combines a chunk with |sum| (NULL: none yet), lane by lane; inactive lanes count as the identity.
static LLVMValueRef reduce_chunk(kiln_emit *e, const kiln_loop *l, LLVMValueRef sum) {
  LLVMTypeRef type = kiln_cpu_lanes_of(kiln_cpu_value_type(e->m, l->value->dtype), e->lanes);
  LLVMValueRef next =
      sum ? combined(e, l, sum, e->lanes)
          : kiln_cpu_widen(e, kiln_cpu_broadcast(e, kiln_cpu_eval(e, l->value), e->lanes)).v;
  if (!e->mask) return next;
  return LLVMBuildSelect(e->b, e->mask, next, sum ? sum : identity(e, l, type), "");
}

// How a statement splits a vector loop into chunks.
typedef struct chunking {
  int lanes; // of a chunk, a power of two
  bool keep; // keep the width in the last chunk, and mask its rest
} chunking;

static int chunk_lanes(chunking c, int64_t left) {
  int lanes = c.lanes;
  while (!c.keep && lanes / 2 >= left) lanes /= 2;
  return lanes;
}

// All statements must split the rows of a register buffer in the same way, or these would not
// become SSA values.
static void keep_rows(kiln_emit *e, int buffer, const kiln_expr *const *index, chunking *c) {
  const kiln_buffer *b = e->loops->buffers.data[buffer];
  if (b->scope != KILN_SCOPE_REGISTER || b->rank == 0 || e->is_private[buffer]) return;
  if (kiln_cpu_is_uniform(e, index[b->rank - 1])) return;
  const int64_t row = b->rank > 1 ? b->strides[b->rank - 2] : kiln_cpu_row(e->m, b->extents[0]);
  const int64_t unit = row & -row;
  if (unit < c->lanes) c->lanes = (int)unit;
  c->keep = true;
}

typedef struct row_keeping {
  kiln_emit *e;
  chunking *c;
} row_keeping;

static void keep_loaded_rows(const kiln_expr *load, void *argument) {
  const row_keeping *k = argument;
  keep_rows(k->e, load->u.tensor, load->args, k->c);
}

// The number of lanes by the statement's widest type.
static chunking chunking_of(kiln_emit *e, const kiln_loop *l, int widest) {
  const int all = e->m->machine->vector_bytes / widest,
            native = all < KILN_CPU_MAX_LANES ? all : KILN_CPU_MAX_LANES;
  chunking c = {native > 2 ? native : 2, false};
  keep_rows(e, l->buffer, l->index, &c);
  row_keeping loaded = {e, &c};
  kiln_expr_visit_loads(e->cx, l->value, keep_loaded_rows, &loaded);
  return c;
}

static int lane_bytes(const kiln_expr *x) {
  return kiln_dtype_is_half(x->dtype) ? 4 : kiln_dtype_bytes(x->dtype);
}

static bool is_index(const kiln_expr *x) { return x->dtype == KILN_I64 && !x->has_load; }

static kiln_search find_widest(const kiln_expr *x, void *argument) {
  int *widest = argument;
  if (is_index(x)) return KILN_SEARCH_PAST; // counted only as an operand of data
  if (lane_bytes(x) > *widest) *widest = lane_bytes(x);
  if (x->kind == KILN_EXPR_LOAD) return KILN_SEARCH_PAST;
  const bool takes_index = kiln_expr_kind_is_cmp(x->kind) || x->kind == KILN_EXPR_CAST;
  for (int i = 0; i < x->n_args && !takes_index; i++)
    if (is_index(x->args[i]) && lane_bytes(x->args[i]) > *widest) *widest = lane_bytes(x->args[i]);
  return KILN_SEARCH_INTO;
}

// Bytes of a statement's widest type, without indices.
static int widest_of(kiln_ctx *cx, const kiln_expr *x) {
  int widest = lane_bytes(x);
  (void)kiln_expr_search(cx, x, find_widest, &widest);
  return widest;
}

static void begin_chunk(kiln_emit *e, int64_t at, int lanes) {
  e->chunk = at;
  e->lanes = lanes;
  e->n_active = e->lane_extent - at < lanes ? (int)(e->lane_extent - at) : lanes;
  e->mask = NULL;
  e->guard = NULL;
  kiln_cpu_memo_clear(e);
  kiln_ranges_push(&e->ranges, e->lane_var, at, at + e->n_active - 1);
  if (e->n_active < lanes) {
    LLVMValueRef bits[KILN_CPU_MAX_LANES];
    for (int i = 0; i < lanes; i++) bits[i] = LLVMConstInt(e->m->i1, i < e->n_active, 0);
    e->mask = LLVMConstVector(bits, (unsigned)lanes);
  }
  for (int i = 0; i < e->lane_conds.n; i++) {
    kiln_lanes c = kiln_cpu_broadcast(e, kiln_cpu_eval(e, e->lane_conds.data[i]), lanes);
    LLVMValueRef mask = kiln_cpu_and(e, e->mask, c.v);
    if (e->mask != mask) kiln_cpu_memo_clear(e);
    e->mask = mask;
  }
}

static void end_chunk(kiln_emit *e) {
  kiln_ranges_pop(&e->ranges, 1);
  e->mask = NULL;
  e->guard = NULL;
  e->lanes = 0;
  e->n_active = 0;
  e->chunk = 0;
}

kiln_lanes kiln_cpu_eval_chunk(kiln_emit *e, kiln_symbol lane, int lanes, const kiln_expr *x) {
  const kiln_binding b = {.var = lane, .kind = KILN_BOUND_LANE};
  KILN_VEC_PUSH(&e->cx->perm, &e->vars, b);
  e->lane_var = lane;
  e->lane_extent = lanes;
  begin_chunk(e, 0, lanes);
  const kiln_lanes v = kiln_cpu_widen(e, kiln_cpu_broadcast(e, kiln_cpu_eval(e, x), lanes));
  end_chunk(e);
  e->lane_extent = 0;
  e->lane_var = 0;
  e->vars.n--;
  return v;
}

// The value of an assignment without a cast to a half type, because the store rounds.
static const kiln_expr *stored_value(const kiln_loop *l) {
  const kiln_expr *x = l->value;
  const bool half = kiln_dtype_is_half(x->dtype);
  const bool rounds = half && x->kind == KILN_EXPR_CAST && kiln_dtype_is_float(x->args[0]->dtype);
  return rounds ? x->args[0] : x;
}

static void store_chunk(kiln_emit *e, const kiln_loop *l) {
  const kiln_dtype t = e->loops->buffers.data[l->buffer]->dtype;
  const kiln_cpu_place a = kiln_cpu_address(e, l, l->buffer, l->index);
  LLVMValueRef v;
  if (l->combiner == KILN_COMBINE_NONE)
    v = kiln_cpu_widen(e, kiln_cpu_broadcast(e, kiln_cpu_eval(e, stored_value(l)), e->lanes)).v;
  else v = combined(e, l, load_old(e, l, &a), e->lanes);
  store_lanes(e, l, kiln_cpu_to_memory(e, t, v), &a);
}

static void store_scalar(kiln_emit *e, const kiln_loop *l) {
  const kiln_buffer *b = e->loops->buffers.data[l->buffer];
  LLVMTypeRef type = kiln_cpu_memory_type(e->m, b->dtype);
  kiln_cpu_memo_clear(e);
  const kiln_cpu_place a = kiln_cpu_address(e, l, l->buffer, l->index);
  LLVMValueRef v;
  if (l->combiner == KILN_COMBINE_NONE) {
    v = kiln_cpu_widen(e, kiln_cpu_eval(e, stored_value(l))).v;
  } else {
    LLVMValueRef old = aligned_load(e, l->buffer, type, a.pointer);
    v = combined(e, l, kiln_cpu_from_memory(e, b->dtype, old), 0);
  }
  aligned_store(e, l->buffer, kiln_cpu_to_memory(e, b->dtype, v), a.pointer);
}

// All lanes store to one element: they are reduced, and the result is combined with it once.
static void store_reduced(kiln_emit *e, const kiln_loop *l, chunking c) {
  const kiln_buffer *b = e->loops->buffers.data[l->buffer];
  LLVMValueRef sum = NULL, scalar = NULL;
  int lanes = 0;
  for (int64_t at = 0; at < e->lane_extent; at += lanes) {
    const int next = chunk_lanes(c, e->lane_extent - at);
    if (sum && next != lanes) {
      LLVMValueRef part = reduce_lanes(e, l, sum);
      scalar = scalar ? kiln_cpu_combine(e, l->combiner, b->dtype, scalar, part) : part;
      sum = NULL;
    }
    lanes = next;
    begin_chunk(e, at, lanes);
    sum = reduce_chunk(e, l, sum);
    end_chunk(e);
  }
  LLVMValueRef part = reduce_lanes(e, l, sum);
  scalar = scalar ? kiln_cpu_combine(e, l->combiner, b->dtype, scalar, part) : part;
  const kiln_cpu_place a = kiln_cpu_address(e, l, l->buffer, l->index);
  LLVMTypeRef type = kiln_cpu_memory_type(e->m, b->dtype);
  LLVMValueRef old = kiln_cpu_from_memory(e, b->dtype, aligned_load(e, l->buffer, type, a.pointer));
  LLVMValueRef v = kiln_cpu_combine(e, l->combiner, b->dtype, old, scalar);
  aligned_store(e, l->buffer, kiln_cpu_to_memory(e, b->dtype, v), a.pointer);
}

bool kiln_cpu_store_is_uniform(kiln_emit *e, const kiln_loop *l) {
  if (e->is_private[l->buffer]) return false;
  for (int i = 0; i < e->loops->buffers.data[l->buffer]->rank; i++) {
    if (!kiln_cpu_is_uniform(e, l->index[i])) return false;
  }
  return true;
}

void kiln_cpu_store(kiln_emit *e, const kiln_loop *l) {
  if (!e->lane_var) {
    store_scalar(e, l);
    return;
  }
  const bool uniform = kiln_cpu_store_is_uniform(e, l);
  const int value = widest_of(e->cx, l->value);
  const int memory = kiln_dtype_bytes(e->loops->buffers.data[l->buffer]->dtype);
  const chunking c = chunking_of(e, l, value > memory ? value : memory);
  if (uniform && l->combiner != KILN_COMBINE_NONE) {
    store_reduced(e, l, c);
    return;
  }
  int lanes = 0;
  for (int64_t at = 0; at < e->lane_extent; at += lanes) {
    lanes = chunk_lanes(c, e->lane_extent - at);
    begin_chunk(e, at, lanes);
    if (!lanes_are_off(e)) store_chunk(e, l);
    end_chunk(e);
  }
}

// Functions of the C library, called lane by lane: rare ones in f32, all of them in f64. Their
// names are resolved where the module is loaded, or in this process from the table.
#include "target/cpu/cpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CALL(f) ((kiln_function)(f))
// clang-format off
static const kiln_libm_row rows[] = {
    // kind             f32       f64      in this process
    {KILN_EXPR_EXP,   "expf",   "exp",   CALL(expf),   CALL(exp)},
    {KILN_EXPR_EXPM1, "expm1f", "expm1", CALL(expm1f), CALL(expm1)},
    {KILN_EXPR_LOG,   "logf",   "log",   CALL(logf),   CALL(log)},
    {KILN_EXPR_LOG1P, "log1pf", "log1p", CALL(log1pf), CALL(log1p)},
    {KILN_EXPR_SIN,   "sinf",   "sin",   CALL(sinf),   CALL(sin)},
    {KILN_EXPR_COS,   "cosf",   "cos",   CALL(cosf),   CALL(cos)},
    {KILN_EXPR_TAN,   "tanf",   "tan",   CALL(tanf),   CALL(tan)},
    {KILN_EXPR_ASIN,  "asinf",  "asin",  CALL(asinf),  CALL(asin)},
    {KILN_EXPR_ACOS,  "acosf",  "acos",  CALL(acosf),  CALL(acos)},
    {KILN_EXPR_ATAN,  "atanf",  "atan",  CALL(atanf),  CALL(atan)},
    {KILN_EXPR_SINH,  "sinhf",  "sinh",  CALL(sinhf),  CALL(sinh)},
    {KILN_EXPR_COSH,  "coshf",  "cosh",  CALL(coshf),  CALL(cosh)},
    {KILN_EXPR_TANH,  "tanhf",  "tanh",  CALL(tanhf),  CALL(tanh)},
    {KILN_EXPR_ASINH, "asinhf", "asinh", CALL(asinhf), CALL(asinh)},
    {KILN_EXPR_ACOSH, "acoshf", "acosh", CALL(acoshf), CALL(acosh)},
    {KILN_EXPR_ATANH, "atanhf", "atanh", CALL(atanhf), CALL(atanh)},
    {KILN_EXPR_ERF,   "erff",   "erf",   CALL(erff),   CALL(erf)},
    {KILN_EXPR_POW,   "powf",   "pow",   CALL(powf),   CALL(pow)},
    {KILN_EXPR_ATAN2, "atan2f", "atan2", CALL(atan2f), CALL(atan2)},
    {KILN_EXPR_FMOD,  "fmodf",  "fmod",  CALL(fmodf),  CALL(fmod)},
};
// clang-format on

const kiln_libm_row *kiln_cpu_libm_rows(int *out_n) {
  *out_n = (int)KILN_LEN(rows);
  return rows;
}

static LLVMValueRef library_function(kiln_emit *e, const char *name, LLVMTypeRef type) {
  LLVMValueRef f = LLVMGetNamedFunction(e->m->module, name);
  return f ? f : LLVMAddFunction(e->m->module, name, type);
}

// Fills in a helper function that loops over the lanes, which it gets and returns through memory.
static void fill_helper(kiln_emit *e, LLVMValueRef helper, LLVMValueRef f, LLVMTypeRef f_type,
                        LLVMTypeRef scalar, int lanes, int n_args) {
  LLVMContextRef c = e->m->llvm;
  LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(c, helper, "entry"),
                    loop = LLVMAppendBasicBlockInContext(c, helper, "lane"),
                    done = LLVMAppendBasicBlockInContext(c, helper, "done");
  LLVMTypeRef type = LLVMVectorType(scalar, (unsigned)lanes);
  LLVMValueRef slots[3], args[2];
  LLVMPositionBuilderAtEnd(e->b, entry);
  for (int i = 0; i <= n_args; i++) slots[i] = LLVMBuildAlloca(e->b, type, "");
  for (int i = 0; i < n_args; i++)
    LLVMBuildStore(e->b, LLVMGetParam(helper, (unsigned)i), slots[i]);
  LLVMBuildBr(e->b, loop);
  LLVMPositionBuilderAtEnd(e->b, loop);
  LLVMValueRef lane = LLVMBuildPhi(e->b, e->m->i64, ""), zero = LLVMConstInt(e->m->i64, 0, 0);
  for (int i = 0; i < n_args; i++)
    args[i] = LLVMBuildLoad2(e->b, scalar, LLVMBuildGEP2(e->b, scalar, slots[i], &lane, 1, ""), "");
  LLVMValueRef y = LLVMBuildCall2(e->b, f_type, f, args, (unsigned)n_args, "");
  LLVMBuildStore(e->b, y, LLVMBuildGEP2(e->b, scalar, slots[n_args], &lane, 1, ""));
  LLVMValueRef next = LLVMBuildAdd(e->b, lane, LLVMConstInt(e->m->i64, 1, 0), "");
  LLVMValueRef end = LLVMConstInt(e->m->i64, (unsigned)lanes, 0);
  LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntULT, next, end, ""), loop, done);
  LLVMAddIncoming(lane, (LLVMValueRef[]){zero, next}, (LLVMBasicBlockRef[]){entry, loop}, 2);
  LLVMPositionBuilderAtEnd(e->b, done);
  LLVMBuildRet(e->b, LLVMBuildLoad2(e->b, type, slots[n_args], ""));
}

LLVMValueRef kiln_cpu_libm(kiln_emit *e, kiln_expr_kind k, LLVMValueRef a, LLVMValueRef b) {
  size_t row = 0;
  while (row < KILN_LEN(rows) - 1 && rows[row].kind != k) row++;
  KILN_ASSERT(rows[row].kind == k);
  const int lanes = kiln_cpu_type_lanes(LLVMTypeOf(a)), n_args = b ? 2 : 1;
  LLVMTypeRef scalar = kiln_cpu_scalar_of(LLVMTypeOf(a)), scalars[] = {scalar, scalar};
  const char *name = scalar == e->m->f64 ? rows[row].name_f64 : rows[row].name_f32;
  LLVMTypeRef f_type = LLVMFunctionType(scalar, scalars, (unsigned)n_args, 0);
  LLVMValueRef f = library_function(e, name, f_type), args[] = {a, b};
  kiln_cpu_forget_memory(e);
  if (!lanes) return LLVMBuildCall2(e->b, f_type, f, args, (unsigned)n_args, "");

  char helper_name[64];
  snprintf(helper_name, sizeof helper_name, "kiln.%s.%d", name, lanes);
  LLVMTypeRef vectors[] = {LLVMTypeOf(a), LLVMTypeOf(a)};
  LLVMTypeRef type = LLVMFunctionType(vectors[0], vectors, (unsigned)n_args, 0);
  LLVMValueRef helper = LLVMGetNamedFunction(e->m->module, helper_name);
  if (!helper) {
    LLVMBasicBlockRef at = LLVMGetInsertBlock(e->b);
    helper = LLVMAddFunction(e->m->module, helper_name, type);
    LLVMSetLinkage(helper, LLVMInternalLinkage);
    kiln_cpu_function_attributes(e->m, helper);
    fill_helper(e, helper, f, f_type, scalar, lanes, n_args);
    LLVMPositionBuilderAtEnd(e->b, at);
  }
  return LLVMBuildCall2(e->b, type, helper, args, (unsigned)n_args, "");
}

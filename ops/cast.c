// Cast, CastLike and BitCast. Floats become integers as in C where the value fits and saturate
// where it does not; anything but zero is true; numbers become codes as the attributes say.
// source: ONNX Cast-6, 9, 13, 19, 21, 23, 24; CastLike-15, 19, 21, 23, 24; BitCast-26
#include "fission/terms.h"
#include "ir/encoding.h"

#include <string.h>

static kiln_status read_encoding(kiln_lower *lw, kiln_encoding *out) {
  static const struct {
    const char *name;
    kiln_rounding rounding;
  } modes[] = {{"up", KILN_ROUND_UP}, {"down", KILN_ROUND_DOWN}, {"nearest", KILN_ROUND_NEAREST}};
  int64_t saturates = 1;
  const char *mode = NULL;
  KILN_TRY(kiln_lower_int(lw, "saturate", 1, &saturates));
  KILN_TRY(kiln_lower_string(lw, "round_mode", "up", &mode));
  out->saturates = saturates != 0;
  for (size_t i = 0; i < KILN_LEN(modes); i++) {
    out->rounding = modes[i].rounding;
    if (strcmp(modes[i].name, mode) == 0) return KILN_OK;
  }
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "attribute round_mode: must be up, down or nearest, got \"%s\"", mode);
}

static kiln_status cast_to(kiln_lower *lw, kiln_dtype to) {
  kiln_tensor *x = lw->inputs[0];
  kiln_encoding how;
  if (!kiln_dtype_is_code(to) || x->dtype == to) return kiln_lower_cast(lw, x, to, &lw->outputs[0]);
  KILN_TRY(read_encoding(lw, &how));
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(lw, "cast", x, to, at);
  s->body = kiln_encode(lw->cx, to, kiln_tensor_load(lw->cx, x, at), how);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status read_to(kiln_lower *lw, kiln_dtype *out) {
  int64_t code = 0;
  KILN_TRY(kiln_lower_int(lw, "to", 0, &code));
  if (kiln_dtype_of_onnx(code, out)) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "attribute to: must be an element type that Kiln has, got %" PRId64, code);
}

static kiln_status lower_cast(kiln_lower *lw) {
  kiln_dtype to = KILN_F32;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(read_to(lw, &to));
  return cast_to(lw, to);
}

static kiln_status lower_cast_like(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  return cast_to(lw, lw->inputs[1]->dtype);
}

// A byte that becomes a bool is true unless it is 0.
static kiln_status lower_bitcast(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  kiln_dtype to = KILN_F32;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(read_to(lw, &to));
  const kiln_tensor *x = lw->inputs[0];
  if (kiln_dtype_bits(to) != kiln_dtype_bits(x->dtype))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "attribute to: must be a type as wide as %s, got %s",
                     kiln_dtype_text(x->dtype), kiln_dtype_text(to));
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(lw, "bitcast", x, to, at);
  s->body = kiln_bitcast(cx, to, kiln_tensor_load(cx, x, at));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_cast[] = {
    {"", "Cast", 6, 0, lower_cast, NULL, "ops/cast.c"},
    {"", "CastLike", 15, 0, lower_cast_like, NULL, "ops/cast.c"},
    {"", "BitCast", 26, 0, lower_bitcast, NULL, "ops/cast.c"},
    {0},
};

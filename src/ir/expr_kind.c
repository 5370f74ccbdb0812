// The rows of expr.def: the syntax of each kind of expression, and its operand types.
#include "ir/expr.h"

#include <string.h>

typedef enum kind_class { CLASS_LEAF, CLASS_INFIX, CLASS_CALL, CLASS_CMP, CLASS_OTHER } kind_class;
typedef struct kind_row {
  const char *text;
  int n_args;
  kind_class class;
} kind_row;

static const kind_row kinds[KILN_N_EXPRS] = {
#define KILN_EXPR(name, text, n, cls) [KILN_EXPR_##name] = {text, n, CLASS_##cls},
#include "ir/expr.def"
#undef KILN_EXPR
};

const char *kiln_expr_kind_text(kiln_expr_kind k) { return kinds[k].text; }
int kiln_expr_kind_args(kiln_expr_kind k) { return kinds[k].n_args; }
bool kiln_expr_kind_is_cmp(kiln_expr_kind k) { return kinds[k].class == CLASS_CMP; }
bool kiln_expr_kind_is_call(kiln_expr_kind k) { return kinds[k].class == CLASS_CALL; }

bool kiln_expr_is_call_name(const char *name) {
  for (int k = 0; k < KILN_N_EXPRS; k++)
    if (kinds[k].class == CLASS_CALL && kinds[k].text[0] == name[0] &&
        strcmp(kinds[k].text, name) == 0)
      return true;
  return false;
}

bool kiln_expr_kind_takes(kiln_expr_kind k, kiln_dtype t) {
  const bool is_bool = t == KILN_BOOL;
  if (k == KILN_EXPR_BITCAST) return !is_bool;
  if (kiln_dtype_is_code(t)) return false;
  if (kiln_expr_kind_is_cmp(k) || k == KILN_EXPR_MIN || k == KILN_EXPR_MAX) return true;
  if (k == KILN_EXPR_AND || k == KILN_EXPR_OR || k == KILN_EXPR_NOT) return is_bool;
  if (k == KILN_EXPR_BAND || k == KILN_EXPR_BOR || k == KILN_EXPR_BXOR || k == KILN_EXPR_BNOT)
    return !kiln_dtype_is_float(t);
  if (k == KILN_EXPR_SHL || k == KILN_EXPR_SHR || k == KILN_EXPR_TDIV) return kiln_dtype_is_int(t);
  if ((k >= KILN_EXPR_SQRT && k <= KILN_EXPR_ERF) || k == KILN_EXPR_ATAN2)
    return kiln_dtype_is_float(t);
  return k == KILN_EXPR_CAST || !is_bool;
}

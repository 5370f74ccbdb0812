// Splits an operand's index into digits.
#include "template/cpu/address.h"

#include "analysis/simplify.h"
#include "schedule/index.h"

static const kiln_tensor *tensor_of(const kiln_contraction *k, const kiln_expr *load) {
  return k->w->p->tensors.data[load->u.tensor];
}

static bool add_digit(const kiln_expr *e, int64_t coef, kiln_address *out) {
  if (out->n == KILN_MAX_DIGITS || coef <= 0) return false;
  int at = out->n++;
  for (; at > 0 && out->digits[at - 1].coef < coef; at--) out->digits[at] = out->digits[at - 1];
  out->digits[at] = (kiln_digit){e, coef};
  return true;
}

// Whether the digits are those of a mixed-radix number: each is less than the ratio of the
// coefficient before it to its own.
static bool is_positional(const kiln_contraction *k, const kiln_tensor *t, const kiln_address *a) {
  const kiln_ranges ranges = kiln_stmt_ranges(&k->w->cx->scratch, k->c);
  int64_t above = kiln_tensor_elems(t);
  for (int i = 0; i < a->n; i++) {
    const kiln_digit *d = &a->digits[i];
    const kiln_interval in = kiln_expr_interval(k->w->cx, d->e, &ranges);
    if (above % d->coef != 0 || in.lo < 0 || in.hi >= above / d->coef) return false;
    above = d->coef;
  }
  return above == 1;
}

bool kiln_address_read(const kiln_contraction *k, const kiln_expr *load, kiln_address *out) {
  *out = (kiln_address){.is_cut = load->n_args == 1};
  if (out->is_cut) {
    const kiln_terms t = kiln_terms_of(k->w->cx, load->args[0]);
    for (int i = 0; i < t.n; i++)
      if (!add_digit(t.data[i].atom, t.data[i].coef, out)) return false;
    return t.constant == 0 && is_positional(k, tensor_of(k, load), out);
  }
  for (int i = 0; i < load->n_args; i++)
    if (!add_digit(load->args[i], 1, out)) return false;
  return true;
}

kiln_status kiln_address_view(const kiln_contraction *k, const kiln_expr *load,
                              const kiln_address *a) {
  for (int i = 0; i + 1 < a->n && a->is_cut; i++)
    KILN_TRY(kiln_view(&k->w->s, tensor_of(k, load)->name, i, a->digits[i].coef));
  return KILN_OK;
}

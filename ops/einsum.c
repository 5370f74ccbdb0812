// Einsum: letters become dims, those of the output first; a letter that an operand repeats takes
// its diagonal. An ellipsis stands for axes that broadcast, aligned at the right. source: ONNX
// Einsum-12
#include "fission/terms.h"

#include <ctype.h>
#include <string.h>

enum { MAX_OPERANDS = 16, ELLIPSIS = 128 }; // labels: letters, and ELLIPSIS + place from the right

typedef struct term {
  int n;
  int labels[KILN_MAX_RANK];
} term;

typedef struct equation {
  kiln_lower *lw;
  int n_operands, n_ellipsis; // the most axes that an ellipsis stands for
  term operands[MAX_OPERANDS], out;
  bool has_out;
  const kiln_expr *extents[ELLIPSIS + KILN_MAX_RANK]; // by label, NULL when it does not occur
  int uses[ELLIPSIS + KILN_MAX_RANK];
} equation;

static kiln_status bad(const equation *q, const char *what) {
  return KILN_FAIL(q->lw->cx->diag, KILN_BAD_INPUT, q->lw->place, "equation: %s", what);
}

static kiln_status push_label(const equation *q, term *t, int label) {
  if (t->n >= KILN_MAX_RANK) return bad(q, "a term has too many letters");
  t->labels[t->n++] = label;
  return KILN_OK;
}

// Reads one term from |*text| up to ',', '-' or the end; |axes| is how many an ellipsis stands for,
// given the letters of the term, or -1: as many as the operand of |rank| leaves.
static kiln_status read_term(equation *q, const char **text, int rank, term *out) {
  int letters = 0;
  bool dots = false;
  *out = (term){0};
  for (const char *p = *text; *p && *p != ',' && *p != '-'; p++)
    letters += isalpha((uint8_t)*p) != 0;
  for (; **text && **text != ',' && **text != '-'; ++*text) {
    const char c = **text;
    if (isspace((uint8_t)c)) continue;
    if (isalpha((uint8_t)c)) {
      KILN_TRY(push_label(q, out, c));
    } else if (!strncmp(*text, "...", 3) && !dots) {
      const int n = rank < 0 ? q->n_ellipsis : rank - letters;
      if (n < 0) return bad(q, "a term has more letters than its operand has axes");
      if (rank >= 0 && n > q->n_ellipsis) q->n_ellipsis = n;
      for (int i = 0; i < n; i++) KILN_TRY(push_label(q, out, ELLIPSIS + n - 1 - i));
      dots = true;
      *text += 2;
    } else {
      return bad(q, "must hold letters, '...', ',' and '->' only");
    }
  }
  if (rank >= 0 && out->n != rank) return bad(q, "a term must have a letter for each axis");
  return KILN_OK;
}

static kiln_status parse(equation *q, const char *text) {
  q->n_operands = q->lw->n_inputs;
  if (q->n_operands > MAX_OPERANDS) return bad(q, "has too many operands");
  for (int i = 0; i < q->n_operands; i++) {
    KILN_TRY(read_term(q, &text, q->lw->inputs[i]->rank, &q->operands[i]));
    const bool last = i + 1 == q->n_operands;
    if (!last && *text++ != ',') return bad(q, "must have a term for each input");
  }
  if (*text == ',') return bad(q, "must not have more terms than inputs");
  q->has_out = *text == '-';
  if (!q->has_out) return KILN_OK;
  if (text[1] != '>') return bad(q, "must have '->' before the output");
  text += 2;
  KILN_TRY(read_term(q, &text, -1, &q->out));
  return *text ? bad(q, "must end after the output") : KILN_OK;
}

static kiln_status bind_extents(equation *q) {
  for (int k = 0; k < q->n_operands; k++) {
    const kiln_tensor *t = q->lw->inputs[k];
    for (int i = 0; i < t->rank; i++) {
      const int label = q->operands[k].labels[i];
      const kiln_expr **extent = &q->extents[label];
      int64_t have = 0, want = 0;
      q->uses[label]++;
      if (*extent && kiln_expr_is_int(*extent, &want) && kiln_expr_is_int(t->shape[i], &have) &&
          have != want && have != 1 && want != 1)
        return KILN_FAIL(q->lw->cx->diag, KILN_BAD_INPUT, q->lw->place,
                         "equation: a letter must have one extent, got %" PRId64 " and %" PRId64,
                         want, have);
      const bool is_number = kiln_expr_is_int(t->shape[i], NULL) && !kiln_expr_is(t->shape[i], 1);
      if (!*extent || kiln_expr_is(*extent, 1) || is_number) *extent = t->shape[i];
    }
  }
  return KILN_OK;
}

// Without '->' the output has the ellipsis and then the letters that occur once, in order.
static kiln_status implicit_output(equation *q) {
  for (int i = q->n_ellipsis - 1; i >= 0; i--) KILN_TRY(push_label(q, &q->out, ELLIPSIS + i));
  for (int label = 0; label < ELLIPSIS; label++)
    if (q->uses[label] == 1) KILN_TRY(push_label(q, &q->out, label));
  return KILN_OK;
}

// Gives every label its dim: those of the output, then the rest; the number of dims of both.
static kiln_status place_dims(const equation *q, int *dim_of, const kiln_expr **extents,
                              int *out_n_reduce) {
  int n = 0;
  for (int i = 0; i < ELLIPSIS + KILN_MAX_RANK; i++) dim_of[i] = -1;
  for (int i = 0; i < q->out.n; i++) {
    const int label = q->out.labels[i];
    if (dim_of[label] >= 0) return bad(q, "the output must not repeat a letter");
    if (!q->extents[label]) return bad(q, "the output must have letters of the inputs only");
    dim_of[label] = n;
    extents[n++] = q->extents[label];
  }
  for (int label = 0; label < ELLIPSIS + KILN_MAX_RANK; label++) {
    if (!q->extents[label] || dim_of[label] >= 0) continue;
    dim_of[label] = n;
    extents[n++] = q->extents[label];
  }
  *out_n_reduce = n - q->out.n;
  return KILN_OK;
}

static kiln_status lower_einsum(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, MAX_OPERANDS));
  KILN_TRY(kiln_lower_want_inputs(lw, lw->n_inputs, MAX_OPERANDS));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_number, "a number"));
  const char *text = NULL;
  equation q = {.lw = lw};
  int dim_of[ELLIPSIS + KILN_MAX_RANK], n_reduce = 0;
  const kiln_expr *extents[ELLIPSIS + KILN_MAX_RANK];
  KILN_TRY(kiln_lower_string(lw, "equation", "", &text));
  KILN_TRY(parse(&q, text));
  KILN_TRY(bind_extents(&q));
  if (!q.has_out) KILN_TRY(implicit_output(&q));
  KILN_TRY(place_dims(&q, dim_of, extents, &n_reduce));
  const kiln_dtype t = lw->inputs[0]->dtype, sum = n_reduce ? kiln_accumulator(t) : t;
  kiln_stmt *s = kiln_lower_stmt(lw, "einsum", sum, q.out.n, n_reduce, extents);
  for (int k = 0; k < q.n_operands; k++) {
    const kiln_tensor *x = lw->inputs[k];
    const kiln_expr *at[KILN_MAX_RANK];
    for (int i = 0; i < x->rank; i++)
      at[i] = kiln_expr_is(x->shape[i], 1) ? kiln_int(cx, 0)
                                           : kiln_stmt_var(cx, s, dim_of[q.operands[k].labels[i]]);
    const kiln_expr *load = kiln_cast(cx, sum, kiln_tensor_load(cx, x, at));
    s->body = s->body ? kiln_mul(cx, s->body, load) : load;
  }
  if (n_reduce) s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_cast(lw, kiln_lower_tensor(lw, s), t, &lw->outputs[0]);
}

const kiln_op kiln_op_einsum[] = {
    {"", "Einsum", 12, 0, lower_einsum, NULL, "ops/einsum.c"},
    {0},
};

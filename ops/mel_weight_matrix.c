// MelWeightMatrix: its five scalars must be known when compiling, and the matrix is a constant.
// source: ONNX MelWeightMatrix-17
#include "fission/terms.h"

#include "analysis/interpret.h"

#include <math.h>

enum { MAX_ELEMS = 1 << 26 };

static kiln_status read_scalars(kiln_lower *lw, double out[5]) {
  for (int i = 0; i < 5; i++) {
    int n = 0;
    const double *values = NULL;
    KILN_TRY(kiln_lower_const_floats(lw, i, &n, &values));
    if (n != 1)
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                       "input %d: must have one element, got %d", i, n);
    out[i] = values[0];
  }
  return KILN_OK;
}

// The triangle between three bins: rising to 1 at the middle one, falling to 0 behind it.
static double weight(double bin, double low, double centre, double high) {
  if (low == centre && bin == centre) return 1;
  if (bin >= centre && bin < high) return (high - bin) / (high - centre);
  return bin >= low && bin <= centre && low < centre ? (bin - low) / (centre - low) : 0;
}

// The first bin at or below the frequency at |step| of the mel scale.
static double bin_of(const double v[5], double step) {
  const double low = 2595 * log10(1 + v[3] / 700), high = 2595 * log10(1 + v[4] / 700);
  const double mel = low + step * ((high - low) / (v[0] + 2));
  return floor((v[1] + 1) * (700 * (pow(10, mel / 2595) - 1)) / v[2]);
}

static kiln_status lower_mel(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  double v[5]; // num_mel_bins, dft_length, sample_rate, lower and upper edge
  int64_t code = 1;
  kiln_dtype t = KILN_F32;
  KILN_TRY(kiln_lower_want_inputs(lw, 5, 5));
  KILN_TRY(read_scalars(lw, v));
  KILN_TRY(kiln_lower_int(lw, "output_datatype", 1, &code));
  if (!kiln_dtype_of_onnx(code, &t) || !kiln_dtype_is_number(t))
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "output_datatype: must be a number type that Kiln has, got %" PRId64, code);
  if (!(v[0] >= 1 && v[1] >= 1 && v[2] >= 1 && v[0] * (v[1] / 2 + 1) <= MAX_ELEMS))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "num_mel_bins, dft_length and sample_rate: must be positive and make a matrix "
                     "of at most %d elements, got %g, %g and %g",
                     MAX_ELEMS, v[0], v[1], v[2]);
  const int64_t shape[] = {(int64_t)v[1] / 2 + 1, (int64_t)v[0]};
  char *data = kiln_arena_alloc(&cx->perm, (size_t)(shape[0] * shape[1] * kiln_dtype_bytes(t)));
  for (int64_t m = 0; m < shape[1]; m++) {
    const double low = bin_of(v, (double)m), centre = bin_of(v, (double)m + 1),
                 high = bin_of(v, (double)m + 2);
    for (int64_t k = 0; k < shape[0]; k++)
      kiln_element_set(t, data, k * shape[1] + m, weight((double)k, low, centre, high));
  }
  lw->outputs[0] = kiln_lower_make_const(lw, NULL, t, 2, shape, data);
  return KILN_OK;
}

const kiln_op kiln_op_mel_weight_matrix[] = {
    {"", "MelWeightMatrix", 17, 0, lower_mel, NULL, "ops/mel_weight_matrix.c"},
    {0},
};

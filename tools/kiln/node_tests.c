// ONNX's node tests: categories of operators, and the tests that need a wider tolerance.
#include "kiln.h"

#include <string.h>
#include <sys/stat.h>

#define MAPS "maps of elements" // category of operators without a row

static const struct {
  const char *category, *operators; // each between spaces
} kinds[] = {
    {"attention", " Attention FlexAttention LinearAttention RotaryEmbedding TensorScatter "},
    {"reductions, scans, sorting", " ArgMax ArgMin CumProd CumSum ReduceL1 ReduceL2 ReduceLogSum "
                                   "ReduceLogSumExp ReduceMax ReduceMean"
                                   " ReduceMin ReduceProd ReduceSum ReduceSumSquare TopK "},
    {"moving data",
     " CenterCropPad Col2Im Concat ConstantOfShape DepthToSpace Expand EyeLike Flatten Gather"
     " GatherElements GatherND Identity OneHot Pad Range Reshape ReverseSequence Scatter"
     " ScatterElements ScatterND Shape Size Slice SpaceToDepth Split Squeeze Tile Transpose Trilu"
     " Unsqueeze "},
    {"normalizations, softmax",
     " BatchNormalization GroupNormalization Hardmax InstanceNormalization LayerNormalization"
     " LogSoftmax LpNormalization LRN MeanVarianceNormalization RMSNormalization Softmax "},
    {"convolutions, pooling, regions",
     " AveragePool CausalConvWithState Conv ConvTranspose DeformConv GlobalAveragePool GlobalLpPool"
     " GlobalMaxPool LpPool MaxPool MaxRoiPool MaxUnpool RoiAlign "},
    {"resampling", " AffineGrid GridSample Resize Upsample "},
    {"quantized",
     " ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul"
     " QuantizeLinear "},
    {"products", " Det Einsum Gemm MatMul "},
    {"recurrent", " GRU LSTM RNN "},
    {"types", " BitCast Cast CastLike "},
    {"signal", " BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT "},
    {"control flow", " If Loop Scan "},
    {"shapes that depend on data", " Compress NonMaxSuppression NonZero Unique "},
    {"losses, training, random",
     " Adagrad Adam Bernoulli Dropout Momentum Multinomial NegativeLogLikelihoodLoss RandomNormal"
     " RandomNormalLike RandomUniform RandomUniformLike SoftmaxCrossEntropyLoss "},
    {"sequences, optional values",
     " ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt "
     "SequenceConstruct"
     " SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence "},
    {"strings, images",
     " ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer "},
};

static const struct {
  const char *test, *why;
  double atol;
} exceptions[] = {
    {"test_dft_inverse", "sums of f32 that cancel, compared with zeros", 1e-5},
    {"test_dft_inverse_opset19", "sums of f32 that cancel, compared with zeros", 1e-5},
    {"test_roialign_aligned_false", "expected values have four digits", 1e-7},
    {"test_roialign_aligned_true", "expected values have four digits", 1e-7},
};

const char *test_exception(size_t i, const char **out_name, double *out_atol) {
  if (i >= sizeof exceptions / sizeof *exceptions) return NULL;
  *out_name = exceptions[i].test;
  *out_atol = exceptions[i].atol;
  return exceptions[i].why;
}

static const char *kind_of_operator(const char *name) {
  char word[80];
  snprintf(word, sizeof word, " %.64s ", name);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strstr(kinds[i].operators, word)) return kinds[i].category;
  return MAPS;
}

static void add_operator(void *user, const char *domain, const char *name) {
  test_kind *k = user;
  char text[64];
  snprintf(text, sizeof text, "%.30s%s%.30s", domain, *domain ? "." : "", name);
  for (size_t i = 0; i < k->n_operators; i++)
    if (!strcmp(k->operators[i], text)) return;
  if (k->n_operators < MAX_TEST_OPERATORS)
    snprintf(k->operators[k->n_operators++], sizeof text, "%s", text);
}

static bool read_operators(const char *dir, test_kind *out) {
  char path[4096];
  snprintf(path, sizeof path, "%.4000s/model.onnx", dir);
  return kiln_model_read_operators(path, add_operator, out, NULL) == KILN_OK;
}

// A category of sequences or control flow counts before their contents; otherwise that of the first
// operator but constants.
static const char *category_of(const test_kind *k) {
  static const char *const first[] = {"sequences, optional values", "control flow"};
  for (size_t i = 0; i < k->n_operators; i++)
    if (!strncmp(k->operators[i], "ai.onnx.ml.", 11)) return "ai.onnx.ml";
  for (size_t f = 0; f < 2; f++)
    for (size_t i = 0; i < k->n_operators; i++)
      if (!strcmp(kind_of_operator(k->operators[i]), first[f])) return first[f];
  for (size_t i = 0; i < k->n_operators; i++) {
    const char *dot = strrchr(k->operators[i], '.');
    if (strcmp(k->operators[i], "Constant"))
      return kind_of_operator(dot ? dot + 1 : k->operators[i]);
  }
  return k->n_operators ? "moving data" : "other";
}

// The category of "test_x" for tests of function bodies, "test_x_expanded" or
// "test_x_expanded_ver18".
static const char *plain_category(const char *dir) {
  char plain[4096];
  snprintf(plain, sizeof plain, "%.4000s", dir);
  char *end = strstr(plain, "_expanded");
  for (char *next = end; next; next = strstr(next + 1, "_expanded")) end = next;
  test_kind k = {0};
  if (!end) return NULL;
  *end = 0;
  return read_operators(plain, &k) ? category_of(&k) : NULL;
}

test_kind test_kind_of(const char *dir) {
  test_kind k = {0};
  const char *slash = strrchr(dir, '/'), *name = slash ? slash + 1 : dir;
  (void)read_operators(dir, &k);
  const char *plain = plain_category(dir);
  k.category = plain ? plain : category_of(&k);
  for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
    if (!strcmp(exceptions[i].test, name)) k.atol = exceptions[i].atol;
  return k;
}

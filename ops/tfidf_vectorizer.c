// TfIdfVectorizer over integers: for each length of n-grams one statement counts the places and
// skips at which each n-gram of the pool stands, one puts the counts where ngram_indexes says.
// source: ONNX TfIdfVectorizer-9
#include "fission/terms.h"

#include <string.h>

enum { MAX_COLUMNS = 1 << 24 };

typedef struct tfidf {
  kiln_lower *lw;
  const kiln_tensor *x; // (N, C) or (C)
  int64_t shortest, longest, skips, columns;
  int n_counts, n_indexes, n_pool;
  const int64_t *counts, *indexes, *pool; // counts: where the n-grams of each length begin
  const kiln_attr *weights;               // by n-gram; NULL: 1
  bool binary, weighted;                  // IDF; IDF and TFIDF
  const kiln_expr *rows, *length;
} tfidf;

static kiln_status wrong(const tfidf *v, const char *what) {
  return KILN_FAIL(v->lw->cx->diag, KILN_BAD_INPUT, v->lw->place, "%s", what);
}

static kiln_status read_mode(tfidf *v) {
  const char *mode = NULL;
  KILN_TRY(kiln_lower_string(v->lw, "mode", "", &mode));
  v->binary = !strcmp(mode, "IDF");
  v->weighted = v->binary || !strcmp(mode, "TFIDF");
  v->weights = kiln_lower_attr(v->lw, "weights");
  if (!v->weighted && strcmp(mode, "TF") != 0) return wrong(v, "mode: must be TF, IDF or TFIDF");
  if (v->weights && (v->weights->kind != KILN_ATTR_FLOATS || v->weights->n != v->n_indexes))
    return wrong(v, "weights: must be a float for each of ngram_indexes");
  return KILN_OK;
}

// The n-grams of |length| in the pool: where they begin, their number, and the number of the first.
static bool find_grams(const tfidf *v, int64_t length, int64_t *begin, int64_t *n, int64_t *first) {
  *first = 0;
  for (int64_t k = 1; k <= v->n_counts; k++) {
    *begin = v->counts[k - 1];
    const int64_t end = k < v->n_counts ? v->counts[k] : v->n_pool;
    if (*begin < 0 || end < *begin || end > v->n_pool || (end - *begin) % k != 0) return false;
    *n = (end - *begin) / k;
    if (k == length) return *first + *n <= v->n_indexes;
    *first += *n;
  }
  *n = 0;
  return true;
}

static kiln_status read_node(kiln_lower *lw, tfidf *v) {
  *v = (tfidf){.lw = lw};
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_index, "i32 or i64"));
  v->x = lw->inputs[0];
  KILN_TRY(kiln_lower_want_rank(lw, v->x, 1, 2));
  KILN_TRY(kiln_lower_int(lw, "min_gram_length", 1, &v->shortest));
  KILN_TRY(kiln_lower_int(lw, "max_gram_length", 1, &v->longest));
  KILN_TRY(kiln_lower_int(lw, "max_skip_count", 0, &v->skips));
  KILN_TRY(kiln_lower_ints(lw, "ngram_counts", &v->n_counts, &v->counts));
  KILN_TRY(kiln_lower_ints(lw, "ngram_indexes", &v->n_indexes, &v->indexes));
  KILN_TRY(kiln_lower_ints(lw, "pool_int64s", &v->n_pool, &v->pool));
  if (v->n_pool < 0 || v->n_counts < 1 || v->n_indexes < 1)
    return wrong(v, "pool_int64s, ngram_counts and ngram_indexes: must be given");
  if (v->shortest < 1 || v->longest < v->shortest || v->longest > v->n_counts || v->skips < 0 ||
      v->skips > MAX_COLUMNS)
    return wrong(v, "min_gram_length, max_gram_length and max_skip_count: must be ordered, "
                    "positive, and within ngram_counts");
  for (int i = 0; i < v->n_indexes; i++) {
    if (v->indexes[i] < 0 || v->indexes[i] >= MAX_COLUMNS)
      return wrong(v, "ngram_indexes: must lie in [0, 2^24)");
    if (v->indexes[i] >= v->columns) v->columns = v->indexes[i] + 1;
  }
  v->rows = v->x->rank == 2 ? v->x->shape[0] : kiln_int(lw->cx, 1);
  v->length = v->x->shape[v->x->rank - 1];
  return read_mode(v);
}

// Counts(n, g): at how many places and skips n-gram |g| stands in row |n|.
static const kiln_tensor *count(const tfidf *v, int64_t length, int64_t begin, int64_t n) {
  kiln_ctx *cx = v->lw->cx;
  const int64_t shape[] = {n, length};
  const kiln_tensor *pool =
      kiln_lower_make_const(v->lw, "pool", KILN_I64, 2, shape, v->pool + begin);
  const kiln_expr *extents[] = {v->rows, kiln_int(cx, n), v->length,
                                kiln_int(cx, length > 1 ? v->skips + 1 : 1)};
  const kiln_expr *d[4], *stands = NULL;
  kiln_stmt *s = kiln_lower_stmt(v->lw, "ngrams", KILN_F32, 2, 2, extents);
  kiln_stmt_vars(cx, s, 0, 4, d);
  const kiln_expr *step = kiln_add(cx, d[3], kiln_int(cx, 1));
  const kiln_expr *end = kiln_add(cx, d[2], kiln_mul(cx, step, kiln_int(cx, length - 1)));
  const kiln_expr *fits = kiln_compare(cx, KILN_EXPR_LT, end, v->length);
  const kiln_expr *zero = kiln_float(cx, KILN_F32, 0);
  for (int64_t k = 0; k < length; k++) {
    const kiln_expr *place = kiln_add(cx, d[2], kiln_mul(cx, step, kiln_int(cx, k)));
    const kiln_expr *at[] = {d[0], place}, *at_pool[] = {d[1], kiln_int(cx, k)};
    const kiln_expr *item = kiln_tensor_load(cx, v->x, v->x->rank == 2 ? at : at + 1);
    const kiln_expr *same = kiln_compare(cx, KILN_EXPR_EQ, kiln_cast(cx, KILN_I64, item),
                                         kiln_tensor_load(cx, pool, at_pool));
    stands = kiln_both(cx, stands, same);
  }
  s->body = kiln_select(cx, fits, kiln_cast(cx, KILN_F32, stands), zero);
  s->combiner = KILN_COMBINE_SUM;
  kiln_stmt_tidy(cx, s);
  return kiln_lower_tensor(v->lw, s);
}

typedef struct grams {
  const kiln_tensor *counts;    // (N, n); NULL: the pool has none of this length
  const kiln_tensor *of_column; // the n-gram that a column counts, -1: none of this length
} grams;

static kiln_status make_grams(const tfidf *v, int64_t length, grams *out) {
  kiln_ctx *cx = v->lw->cx;
  int64_t begin = 0, n = 0, first = 0;
  *out = (grams){0};
  if (!find_grams(v, length, &begin, &n, &first))
    return wrong(v, "ngram_counts: must ascend within pool_int64s, in steps of whole n-grams, with "
                    "an index for each");
  if (n == 0) return KILN_OK;
  int64_t *of_column = KILN_NEW_ARRAY(&cx->scratch, int64_t, v->columns);
  for (int64_t i = 0; i < v->columns; i++) of_column[i] = -1;
  for (int64_t g = 0; g < n; g++) of_column[v->indexes[first + g]] = g;
  out->of_column =
      kiln_lower_make_const(v->lw, "gram_of_column", KILN_I64, 1, &v->columns, of_column);
  out->counts = count(v, length, begin, n);
  return KILN_OK;
}

// What |g| counts for |column| of |row|.
static const kiln_expr *by_column(const tfidf *v, const grams *g, const kiln_expr *row,
                                  const kiln_expr *column) {
  kiln_ctx *cx = v->lw->cx;
  const kiln_expr *gram = kiln_tensor_load(cx, g->of_column, &column), *at[] = {row, gram};
  const kiln_expr *is_one = kiln_compare(cx, KILN_EXPR_GE, gram, kiln_int(cx, 0));
  return kiln_select(cx, is_one, kiln_tensor_load(cx, g->counts, at), kiln_float(cx, KILN_F32, 0));
}

static const kiln_expr *weigh(const tfidf *v, const kiln_expr *counted, const kiln_expr *column) {
  kiln_ctx *cx = v->lw->cx;
  if (v->binary) counted = kiln_least(cx, counted, kiln_float(cx, KILN_F32, 1));
  if (!v->weighted || !v->weights) return counted;
  float *of_column = KILN_NEW_ARRAY(&cx->scratch, float, v->columns);
  for (int i = 0; i < v->n_indexes; i++) of_column[v->indexes[i]] = v->weights->u.floats[i];
  const kiln_tensor *weights =
      kiln_lower_make_const(v->lw, "weights", KILN_F32, 1, &v->columns, of_column);
  return kiln_mul(cx, counted, kiln_tensor_load(cx, weights, &column));
}

static kiln_status lower_tfidf(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  tfidf v;
  KILN_TRY(read_node(lw, &v));
  const int n_lengths = (int)(v.longest - v.shortest + 1);
  grams *all = KILN_NEW_ARRAY(&cx->scratch, grams, n_lengths);
  for (int k = 0; k < n_lengths; k++) KILN_TRY(make_grams(&v, v.shortest + k, &all[k]));
  const bool batched = v.x->rank == 2;
  const kiln_expr *extents[] = {v.rows, kiln_int(cx, v.columns)}, *d[] = {kiln_int(cx, 0), NULL};
  kiln_stmt *s =
      kiln_lower_stmt(lw, "tfidf", KILN_F32, batched ? 2 : 1, 0, batched ? extents : extents + 1);
  kiln_stmt_vars(cx, s, 0, batched ? 2 : 1, batched ? d : d + 1);
  const kiln_expr *sum = kiln_float(cx, KILN_F32, 0);
  for (int k = 0; k < n_lengths; k++)
    if (all[k].counts) sum = kiln_add(cx, sum, by_column(&v, &all[k], d[0], d[1]));
  s->body = weigh(&v, sum, d[1]);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_tfidf_vectorizer[] = {
    {"", "TfIdfVectorizer", 9, 0, lower_tfidf, NULL, "ops/tfidf_vectorizer.c"},
    {0},
};

// CumSum and CumProd over axes that are cut into blocks, once and twice, beside plain loops.
#include "unit/ops/rows.h"

enum { ROWS = 2, COLS = 2 };

typedef struct way {
  const char *op;
  int opset;
  bool exclusive, reverse;
} way;

static const way ways[] = {
    {"CumSum", 11, false, false}, {"CumSum", 14, true, false},  {"CumSum", 14, false, true},
    {"CumSum", 14, true, true},   {"CumProd", 26, false, true}, {"CumProd", 26, true, false},
};

static int64_t element(const way *w, int i, int k, int col) {
  const int number = (i * 7 + k * 5 + col * 3) % 11 - 5;
  return w->op[3] == 'P' ? (number > 0 ? 1 : -1) : number;
}

// (ROWS, n, COLS)
static void print_shape(kiln_text *out, int n) {
  kiln_text_printf(out, "i64 %dx%dx%d:", ROWS, n, COLS);
}

static void print_inputs(kiln_text *out, const way *w, int n) {
  print_shape(out, n);
  for (int i = 0; i < ROWS; i++)
    for (int k = 0; k < n; k++)
      for (int col = 0; col < COLS; col++) kiln_text_printf(out, " %d", (int)element(w, i, k, col));
  kiln_text_add(out, "; const i64: 1");
}

static int64_t scanned(const way *w, int n, int i, int at, int col) {
  const bool product = w->op[3] == 'P';
  int64_t y = product;
  for (int k = 0; k < n; k++) {
    const bool is_before = w->reverse ? k > at : k < at;
    if (!is_before && (k != at || w->exclusive)) continue;
    if (product) y *= element(w, i, k, col);
    else y += element(w, i, k, col);
  }
  return y;
}

static void print_outputs(kiln_text *out, const way *w, int n) {
  print_shape(out, n);
  for (int i = 0; i < ROWS; i++)
    for (int k = 0; k < n; k++)
      for (int col = 0; col < COLS; col++)
        kiln_text_printf(out, " %d", (int)scanned(w, n, i, k, col));
}

static void blocks_add_up(void **state) {
  (void)state;
  static const int lengths[] = {1, 16, 32, 33, 48, 100, 290};
  for (size_t c = 0; c < KILN_LEN(ways) * KILN_LEN(lengths); c++) {
    const way *w = &ways[c / KILN_LEN(lengths)];
    const int n = lengths[c % KILN_LEN(lengths)];
    kiln_arena arena;
    kiln_text in, out, attrs;
    kiln_arena_init(&arena, NULL);
    kiln_text_init(&in, &arena);
    kiln_text_init(&out, &arena);
    kiln_text_init(&attrs, &arena);
    print_inputs(&in, w, n);
    print_outputs(&out, w, n);
    kiln_text_printf(&attrs, "exclusive=%d reverse=%d", w->exclusive, w->reverse);
    const row r = {w->op, w->op, w->opset, attrs.data, in.data, out.data, NULL};
    if (!row_holds(&r)) fail_msg("%s %s, %d elements", w->op, attrs.data, n);
    kiln_arena_deinit(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_add_up)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

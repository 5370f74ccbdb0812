// TopK in rounds, by counting and by selection: the same answer, that of a plain sort that keeps
// the order of equals.
#include "unit/ops/rows.h"

enum { ROWS = 2, COLS = 2, ROOM = 1 << 13 };

typedef struct form {
  int n, k; // elements along the axis, and how many of them
  bool largest;
} form;

static const form forms[] = {
    {100, 1, true},   {100, 5, true},   {100, 5, false}, {60, 16, true},
    {20, 5, true},    {200, 32, false}, {200, 33, true}, {9, 9, false},
    {300, 40, false}, {127, 50, true},  {128, 64, true},
};

// With many ties, and numbers that nothing is below.
static int element(int i, int k, int col) { return (i * 31 + k * 17 + col * 5) % 13 - 6; }

static bool comes_before(const form *f, int i, int col, int a, int b) {
  const int x = element(i, a, col), y = element(i, b, col);
  return x == y ? a < b : f->largest ? x > y : x < y;
}

// The place of the element of rank |rank|.
static int place_of(const form *f, int i, int col, int rank) {
  for (int a = 0; a < f->n; a++) {
    int before = 0;
    for (int b = 0; b < f->n; b++) before += comes_before(f, i, col, b, a);
    if (before == rank) return a;
  }
  return -1;
}

static int print_outputs(char *text, const form *f, bool places) {
  int at = snprintf(text, ROOM, "%s %dx%dx%d:", places ? "i64" : "f32", ROWS, f->k, COLS);
  for (int i = 0; i < ROWS; i++)
    for (int k = 0; k < f->k; k++)
      for (int col = 0; col < COLS; col++) {
        const int place = place_of(f, i, col, k);
        at +=
            snprintf(text + at, ROOM - (size_t)at, " %d", places ? place : element(i, place, col));
      }
  return at;
}

static void what_comes_first_is_found(void **state) {
  (void)state;
  for (size_t c = 0; c < KILN_LEN(forms); c++) {
    const form *f = &forms[c];
    char in[ROOM], out[2 * ROOM], attrs[64];
    int at = snprintf(in, sizeof in, "f32 %dx%dx%d:", ROWS, f->n, COLS);
    for (int i = 0; i < ROWS; i++)
      for (int k = 0; k < f->n; k++)
        for (int col = 0; col < COLS; col++)
          at += snprintf(in + at, sizeof in - (size_t)at, " %d", element(i, k, col));
    snprintf(in + at, sizeof in - (size_t)at, "; const i64 1: %d", f->k);
    at = print_outputs(out, f, false);
    at += snprintf(out + at, 3, "; ");
    print_outputs(out + at, f, true);
    snprintf(attrs, sizeof attrs, "axis=1 largest=%d", f->largest);
    const row r = {"topk", "TopK", 11, attrs, in, out, NULL};
    if (!row_holds(&r)) fail_msg("%d of %d, largest %d", f->k, f->n, f->largest);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_comes_first_is_found)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

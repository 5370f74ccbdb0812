// Operator files with bytes and words exchanged: whatever comes out is accepted or refused with a
// message, never more. KILN_FUZZ sets the number of texts.
#include "unit/tc/harness.h"

static const char *const files[] = {"ops/softmax.tc",
                                    "ops/group_normalization.tc",
                                    "ops/lrn.tc",
                                    "ops/clip.tc",
                                    "ops/hardmax.tc",
                                    "ops/pow.tc",
                                    "ops/mean_variance_normalization.tc"};
static const char *const words[] = {
    "i...", "(",  ")",     "N",  "n",    ":",    "...", "where", "+=!",    "=",         "1",
    "-",    "X(", "given", "in", ",",    "max=", "D",   "?",     "linear", "count",     "T",
    "F",    "0",  "r_d",   "{ ", "\"\"", "for",  "def", "axis",  "/",      "9999999999"};

static uint32_t next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

// Replaces, drops or doubles a few spans of |text|.
static void mutate(uint64_t *state, char *text, size_t cap) {
  for (uint32_t k = 1 + next(state) % 4; k > 0; k--) {
    size_t n = strlen(text), at = n > 0 ? next(state) % n : 0, span = next(state) % 6;
    if (at + span > n) span = n - at;
    const char *word = next(state) % 4 == 0 ? "" : words[next(state) % KILN_LEN(words)];
    size_t m = strlen(word);
    if (n - span + m + 1 >= cap) continue;
    memmove(text + at + m, text + at + span, n - at - span + 1);
    memcpy(text + at, word, m);
  }
}

static void mutated_texts_never_crash(void **unused) {
  (void)unused;
  const char *wanted = getenv("KILN_FUZZ");
  int n = wanted != NULL ? atoi(wanted) : 3000, refused = 0;
  uint64_t state = 1;
  char *originals[KILN_LEN(files)];
  for (size_t i = 0; i < KILN_LEN(files); i++) originals[i] = harness_read(files[i]);
  for (int i = 0; i < n; i++) {
    char text[1 << 14];
    snprintf(text, sizeof text, "%s", originals[next(&state) % KILN_LEN(files)]);
    mutate(&state, text, sizeof text);
    harness h;
    harness_begin(&h);
    kiln_status st = kiln_tc_check(&h.cx, "mutated.tc", text);
    if (st == KILN_INTERNAL) fail_msg("%s\n%s", harness_messages(&h), text);
    if (st != KILN_OK && kiln_diag_count(h.diag) == 0) fail_msg("no message for\n%s", text);
    refused += st != KILN_OK;
    harness_end(&h);
  }
  assert_true(refused > n / 4 && refused < n);
  for (size_t i = 0; i < KILN_LEN(files); i++) free(originals[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mutated_texts_never_crash)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

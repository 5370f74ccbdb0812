// Spelling suggestions by edit distance.
#include "schedule/nearest.h"

#include <string.h>

enum { MAX_NAME = 96 }; // longer names get no suggestion

static int least(int a, int b, int c) {
  const int m = a < b ? a : b;
  return m < c ? m : c;
}

// The edit distance of Levenshtein: insertions, deletions and replacements.
static int distance(const char *a, const char *b) {
  int row[MAX_NAME + 1];
  const int n = (int)strlen(b);
  for (int j = 0; j <= n; j++) row[j] = j;
  for (int i = 1; *a; a++, i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= n; j++) {
      const int above = row[j];
      row[j] = least(above + 1, row[j - 1] + 1, diagonal + (*a != b[j - 1]));
      diagonal = above;
    }
  }
  return row[n];
}

void kiln_nearest_offer(kiln_nearest *n, const char *name) {
  const size_t length = strlen(n->word), other = strlen(name);
  if (length > MAX_NAME || other > MAX_NAME) return;
  const int d = distance(n->word, name), limit = (int)length / 3;
  if (d > limit || (n->name && d >= n->distance)) return;
  n->name = name;
  n->distance = d;
}

const char *kiln_nearest_text(kiln_ctx *cx, const kiln_nearest *n) {
  return n->name ? kiln_arena_printf(&cx->perm, ": did you mean \"%s\"?", n->name) : "";
}

// Texts of the notation with bytes and words exchanged, through parse, check and bind at small
// sizes; what is accepted is run by the interpreter. Whatever comes out is accepted or refused with
// a message, never more: no crash, no hang, no read out of range, no leak.
//
// fuzz_tc [INPUTS [SEED]]: 4000 inputs and seed 1 by default; build with -DKILN_SANITIZE=ON for
// more.
#include "analysis/interpret.h"
#include "fission/notation.h"
#include "tc/definition.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TEXTS = 256, MAX_BYTES = 1 << 14, MAX_POINTS = 20000, SECONDS_EACH = 20 };

static const char *const samples[] = {
    "def f(float(N) X) -> (Y) { Y(2*i) = X(i) Y(2*i + 1) = -X(i) }",
    "def f(float(N, 3) X) -> (Y) { Y(3*i + j) = X(i, j) Y(0) = 7 }",
    "def f(float(N) X) -> (float(M) Y) { Y(i) = 0 where i in 0:M Y(M - 1 - i) += X(i) }",
    "def g(float(N) X, size p) -> (P, M) { P(i) = X(i) + p M(i) = X(i - 1) }\n"
    "def f(float(N) X) -> (Z) { A, B = g(X, 2) Z(i) = A(i) * B(i + 1) }",
    "def f(float(H, W) I) -> (O) { P = mirror_interior(I, 1, 2) Q = constant_exterior(P, 0, 1, 0)"
    " O(h, w) = Q(h - 1, w + 1) }",
    "def f(T(N...) X, T v, size p...) -> (T Y) { Y(i...) = all(i... >= 0 && i... < N...) ?"
    " X(min(max(i..., 0), N... - 1)) : v where i... in -p... : N... + p... for N... }",
    "def f(float(D, L) E, int32(N) I) -> (Y) { Y(n, l) = E(I(n) + 1, l) * lgamma(E(0, l)) }",
    "def f(float(N) X) -> (Y) { Y(i) = i % 2 == 0 && b > 1 ? X(i / 2) : nextafter(b, 1)"
    " where b = X(0) + X.0, i in 0:2 * N, exists X(i / 3) }",
    "def f(float(M, K) A, float(K, N) B) -> (C) { C(m, n) += A(m, k) * B(k, n) C(0, n) max= 3 }",
};

static const char *const words[] = {"i...",    "(",
                                    ")",       "N",
                                    "n",       ":",
                                    "...",     "where",
                                    "+=!",     "=",
                                    "1",       "-",
                                    "X(",      "in",
                                    "given",   ",",
                                    "max=",    "D",
                                    "?",       "linear",
                                    "T",       "F",
                                    "0",       "r_d",
                                    "count",   "{ ",
                                    "\"\"",    "for",
                                    "def",     "axis",
                                    "/",       "%",
                                    "2*",      "Y",
                                    "size",    "all(",
                                    "N...",    "exists",
                                    "f(X)",    "i",
                                    "j",       "}",
                                    "+=",      "X.0",
                                    "float(",  "int32(",
                                    "min(",    "9999999",
                                    "erfinv(", "repeat_edge(",
                                    "&&",      "<",
                                    "-1",      "1e9",
                                    "*=!",     "i + 1",
                                    "min=!",   "9999999999999"};

static char *texts[MAX_TEXTS];
static int n_texts;

static uint32_t next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

static void add_text(const char *text) {
  if (n_texts < MAX_TEXTS) texts[n_texts++] = strdup(text);
}

static void add_file(const char *path) {
  char text[MAX_BYTES];
  FILE *f = fopen(path, "rb");
  if (f == NULL) return;
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  add_text(text);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

// The .tc files of a folder and the folders in it, in order of their names.
static void add_folder(const char *folder, int depth) {
  struct dirent **list = NULL;
  int n = scandir(folder, &list, NULL, by_name);
  for (int i = 0; i < n; i++) {
    char path[1024];
    const char *dot = strrchr(list[i]->d_name, '.');
    snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
    if (dot != NULL && strcmp(dot, ".tc") == 0) add_file(path);
    else if (dot == NULL && depth > 0) add_folder(path, depth - 1);
    free(list[i]);
  }
  free(list);
}

// Replaces, drops or doubles a few spans of |text|.
static void mutate(uint64_t *state, char *text, size_t cap) {
  for (uint32_t k = next(state) % 5; k > 0; k--) {
    size_t n = strlen(text), at = n > 0 ? next(state) % n : 0, span = next(state) % 6;
    if (at + span > n) span = n - at;
    char byte[2] = {(char)(1 + next(state) % 127), '\0'};
    uint32_t kind = next(state) % 8;
    const char *word = kind < 2 ? "" : kind == 2 ? byte : words[next(state) % KILN_LEN(words)];
    size_t m = strlen(word);
    if (n - span + m + 1 >= cap) continue;
    memmove(text + at + m, text + at + span, n - at - span + 1);
    memcpy(text + at, word, m);
  }
}

// Whether the interpreter is done with |p| soon.
static bool is_small(const kiln_program *p) {
  int64_t sum = 0;
  for (int i = 0; i < p->tensors.n; i++) {
    int64_t n = kiln_tensor_elems(p->tensors.data[i]);
    if (n < 0 || (sum += n) > MAX_POINTS) return false;
  }
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    int64_t points = 1, extent;
    for (int d = 0; d < s->n_space + s->n_reduce; d++) {
      if (!kiln_expr_is_int(s->dims[d].extent, &extent) || extent > MAX_POINTS) return false;
      if ((points *= extent) > MAX_POINTS) return false;
    }
    if ((sum += points) > MAX_POINTS) return false;
  }
  return true;
}

static kiln_status interpret(kiln_ctx *cx, const kiln_program *p, uint64_t *state) {
  kiln_interpreter *in = NULL;
  kiln_status st = kiln_interpreter_create(cx, p, &in);
  for (int i = 0; i < p->inputs.n && st == KILN_OK; i++) {
    const kiln_tensor *t = p->tensors.data[p->inputs.data[i]];
    int64_t n = kiln_tensor_elems(t);
    // of its own, to its size: a read out of range is seen
    void *data = malloc((size_t)(n * kiln_dtype_bytes(t->dtype)) + (n == 0));
    if (data == NULL) abort();
    kiln_cleanup_push(cx, free, data);
    for (int64_t k = 0; k < n; k++)
      kiln_element_set(t->dtype, data, k, (double)(next(state) % 9) - 3);
    kiln_interpreter_bind(in, t->id, data);
  }
  if (st == KILN_OK) st = kiln_interpreter_run(in);
  kiln_interpreter_destroy(in);
  while (cx->cleanups.n > 0) {
    free(cx->cleanups.data[cx->cleanups.n - 1].object);
    kiln_cleanup_pop(cx);
  }
  return st;
}

// Binds each definition to small sizes and runs it.
static kiln_status bind(kiln_ctx *cx, const char *text, uint64_t *state) {
  int n;
  kiln_tc_signature *list;
  KILN_TRY(kiln_tc_signatures(cx, "fuzz.tc", text, false, &n, &list));
  kiln_status st = KILN_OK;
  for (int i = 0; i < n && i < 4; i++) {
    kiln_tc_binding bindings[64];
    int n_bindings = 0;
    for (int k = 0; k < list[i].n_sizes && n_bindings < 60; k++) {
      const char *name = list[i].sizes[k];
      int rank = (int)(next(state) % 3);
      if (!list[i].packs[k]) {
        bindings[n_bindings++] = (kiln_tc_binding){name, next(state) % 6};
        continue;
      }
      for (int a = 0; a < rank; a++)
        bindings[n_bindings++] =
            (kiln_tc_binding){kiln_arena_printf(&cx->perm, "%s.%d", name, a), next(state) % 6};
      if (rank == 0)
        bindings[n_bindings++] =
            (kiln_tc_binding){kiln_arena_printf(&cx->perm, "%s.rank", name), 0};
    }
    kiln_program *p = NULL;
    st = kiln_tc_program(cx, "fuzz.tc", text, list[i].name, n_bindings, bindings, &p);
    if (st == KILN_OK && is_small(p)) st = interpret(cx, p, state);
    if (st == KILN_INTERNAL) return st;
  }
  return st;
}

typedef struct job {
  const char *text;
  uint64_t *state;
  bool by_node;
} job;

static kiln_status run(kiln_ctx *cx, void *argument) {
  job *j = argument;
  if (j->by_node) return kiln_tc_check(cx, "fuzz.tc", j->text);
  return bind(cx, j->text, j->state);
}

// False, with the text: a fault of ours.
static bool try_text(const char *text, uint64_t *state, bool by_node, long *accepted) {
  kiln_diag *diag = kiln_diag_create();
  kiln_ctx cx;
  if (diag == NULL || kiln_ctx_init(&cx, diag) != KILN_OK) abort();
  job j = {text, state, by_node};
  kiln_status st = kiln_ctx_enter(&cx, run, &j);
  bool fine = st != KILN_INTERNAL && (st == KILN_OK || kiln_diag_count(diag) > 0);
  if (st == KILN_OK) (*accepted)++;
  if (!fine) {
    for (size_t i = 0; i < kiln_diag_count(diag); i++)
      fprintf(stderr, "%s\n", kiln_diag_message(diag, i));
    fprintf(stderr, "%s: %s\n%s\n", kiln_status_name(st), by_node ? "node" : "definition", text);
  }
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
  return fine;
}

int main(int argc, char **argv) {
  long n = argc > 1 ? atol(argv[1]) : 4000, accepted = 0;
  uint64_t state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  bool fine = true;
  add_folder(KILN_SOURCE_DIR "/ops", 0);
  add_folder(KILN_SOURCE_DIR "/examples", 1);
  for (size_t i = 0; i < KILN_LEN(samples); i++) add_text(samples[i]);
  for (long i = 0; i < n && fine; i++) {
    char text[2 * MAX_BYTES];
    // the samples half of the time: they are dense
    size_t pick = next(&state) % 2 ? next(&state) % (uint32_t)n_texts
                                   : (size_t)n_texts - 1 - next(&state) % KILN_LEN(samples);
    snprintf(text, sizeof text, "%s", texts[pick]);
    mutate(&state, text, sizeof text);
    alarm(SECONDS_EACH); // a hang ends the program
    fine = try_text(text, &state, strstr(text, "onnx") != NULL, &accepted);
  }
  for (int i = 0; i < n_texts; i++) free(texts[i]);
  printf("%ld inputs, %ld accepted\n", n, accepted);
  return fine && accepted > n / 20 && accepted < n ? 0 : 1;
}

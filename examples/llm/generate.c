// Generates tokens with a decoder: a module that keeps its cache of keys and values in the session.
//
//   python -m kiln.export llama --tiny -o llama           (docs/guide/language-models.md)
//   kiln compile llama/model.onnx --state auto --dim ... -o llama.so
//   cc examples/llm/generate.c -Iinclude -Lbuild -lkiln_rt -o generate
//   ./generate llama.so --tokens 16 1 15043 3186
//
// The prompt runs in chunks, then each step takes the token that the last one chose: the likeliest,
// or with --temperature one of the --top likeliest by their probabilities.
#include <kiln/module.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1 << 20, MAX_PORTS = 1024 };

typedef struct generator {
  kiln_diag *diag;
  kiln_module *module;
  kiln_session *session;
  size_t n_in, n_out, logits; // |logits|: the output's number
  int64_t past;               // tokens in the cache
  double temperature;         // 0: the likeliest token
  int64_t top;
  uint64_t seed;
} generator;

static int fail(const generator *g, const char *what) {
  for (size_t i = 0; i < kiln_diag_count(g->diag); i++)
    fprintf(stderr, "%s\n", kiln_diag_message(g->diag, i));
  fprintf(stderr, "generate: %s\n", what);
  return 0;
}

static int find_output(const kiln_module *m, const char *name, size_t *out) {
  for (size_t i = 0; i < kiln_module_output_count(m); i++)
    if (strcmp(kiln_module_output(m, i).name, name) == 0) return *out = i, 1;
  return 0;
}

// --- a step ---

// Input |port|, of one sequence, in |to|: the new tokens, ones for the mask of all, or positions.
static int fill(const generator *g, kiln_port port, int64_t n, const int64_t *tokens, int64_t *to,
                int64_t *out_n) {
  if (strcmp(port.dtype, "i64") != 0) return 0;
  *out_n = strcmp(port.name, "attention_mask") == 0 ? g->past + n : n;
  for (int64_t i = 0; i < *out_n; i++) {
    if (strcmp(port.name, "input_ids") == 0) to[i] = tokens[i];
    else if (strcmp(port.name, "attention_mask") == 0) to[i] = 1;
    else if (strcmp(port.name, "position_ids") == 0) to[i] = g->past + i;
    else return 0;
  }
  return 1;
}

static int is_state(const kiln_module *m, size_t input) {
  for (size_t s = 0; s < kiln_module_state_count(m); s++)
    if (kiln_module_state(m, s).input == input) return 1;
  return 0;
}

static uint64_t random_bits(generator *g) { // xorshift64*
  g->seed ^= g->seed >> 12;
  g->seed ^= g->seed << 25;
  g->seed ^= g->seed >> 27;
  return g->seed * UINT64_C(2685821657736338717);
}

// A token by its probability among the |top| likeliest of n.
static int64_t sample(generator *g, const float *logits, int64_t n) {
  int64_t best = 0, n_kept = g->top < n ? g->top : n;
  for (int64_t i = 1; i < n; i++)
    if (logits[i] > logits[best]) best = i;
  if (g->temperature <= 0 || n_kept <= 1) return best;
  int64_t *kept = malloc((size_t)n_kept * sizeof *kept);
  double sum = 0;
  if (!kept) return best;
  for (int64_t k = 0; k < n_kept; k++) { // selection: |top| is small
    int64_t at = -1;
    for (int64_t i = 0; i < n; i++) {
      int is_taken = 0;
      for (int64_t j = 0; j < k && !is_taken; j++) is_taken = kept[j] == i;
      if (!is_taken && (at < 0 || logits[i] > logits[at])) at = i;
    }
    kept[k] = at;
    sum += exp((logits[at] - logits[best]) / g->temperature);
  }
  double left = (double)(random_bits(g) >> 11) * 0x1p-53 * sum;
  int64_t k = 0;
  for (; k + 1 < n_kept; k++) {
    left -= exp((logits[kept[k]] - logits[best]) / g->temperature);
    if (left < 0) break;
  }
  best = kept[k];
  free(kept);
  return best;
}

// Runs |n| tokens behind those in the cache; *out_next, the token after them.
static int step(generator *g, int64_t n, const int64_t *tokens, int64_t *out_next) {
  const DLTensor *inputs[MAX_PORTS] = {NULL}; // NULL: the session's state
  DLTensor *outputs[MAX_PORTS] = {NULL}, given[MAX_PORTS], logits = {0};
  int64_t shapes[MAX_PORTS][2], values[KILN_MAX_DIMS], shape[KILN_MAX_PORT_RANK];
  int64_t *room = malloc(g->n_in * (size_t)(g->past + n) * sizeof *room), *at = room;
  int right = room != NULL;
  for (size_t i = 0; i < g->n_in && right; i++) {
    if (is_state(g->module, i)) continue;
    const kiln_port port = kiln_module_input(g->module, i);
    shapes[i][0] = 1;
    if (!fill(g, port, n, tokens, at, &shapes[i][1])) {
      right = fail(g, "inputs must be i64: input_ids, attention_mask, position_ids, and states");
      break;
    }
    given[i] = (DLTensor){
        .data = at, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 64, 1}, .shape = shapes[i]};
    inputs[i] = &given[i];
    at += g->past + n;
  }
  right = right &&
          kiln_session_find_dims(g->session, g->n_in, inputs, g->diag, values) == KILN_OK &&
          kiln_module_output_shape(g->module, g->logits, values, g->diag, shape) == KILN_OK;
  DLManagedTensorVersioned *result =
      right ? kiln_tensor_create("f32", 3, shape, g->diag) : NULL; // batch, tokens, vocabulary
  if (result) {
    logits = result->dl_tensor;
    outputs[g->logits] = &logits;
    right = kiln_session_run(g->session, g->n_in, inputs, g->n_out, outputs, g->diag) == KILN_OK;
  } else right = 0;
  if (right) {
    *out_next = sample(g, (const float *)logits.data + (n - 1) * shape[2], shape[2]);
    g->past += n;
  }
  kiln_tensor_destroy(result);
  free(room);
  return right ? 1 : fail(g, "a step failed");
}

static int generate(generator *g, int64_t n, const int64_t *prompt, int64_t chunk, int64_t n_new) {
  int64_t next = 0;
  for (int64_t at = 0; at < n; at += chunk)
    if (!step(g, n - at < chunk ? n - at : chunk, prompt + at, &next)) return 0;
  for (int64_t i = 0; i < n_new; i++) {
    printf("%lld%c", (long long)next, i + 1 < n_new ? ' ' : '\n');
    fflush(stdout);
    if (i + 1 < n_new && !step(g, 1, &next, &next)) return 0;
  }
  return 1;
}

static int open_module(generator *g, const char *path, int threads) {
  const kiln_session_options o = {.struct_size = sizeof o, .threads = threads};
  if (kiln_module_load(path, g->diag, &g->module) != KILN_OK ||
      kiln_session_create(g->module, &o, g->diag, &g->session) != KILN_OK)
    return fail(g, "the module must load");
  g->n_in = kiln_module_input_count(g->module);
  g->n_out = kiln_module_output_count(g->module);
  if (kiln_module_state_count(g->module) == 0)
    return fail(g, "the module must keep its cache: compile it with --state auto");
  if (!find_output(g->module, "logits", &g->logits) || g->n_in > MAX_PORTS || g->n_out > MAX_PORTS)
    return fail(g, "the module must have an output named logits");
  return 1;
}

int main(int argc, char **argv) {
  generator g = {.diag = kiln_diag_create(), .top = 40, .seed = 1};
  int64_t *prompt = malloc((size_t)argc * sizeof *prompt), n = 0, n_new = 16, chunk = 512;
  int threads = 0, right = g.diag && prompt;
  for (int i = 2; i < argc && right; i++) {
    const char *value = argv[i][0] == '-' && i + 1 < argc ? argv[i + 1] : NULL;
    if (value && strcmp(argv[i], "--tokens") == 0) n_new = atoll(value);
    else if (value && strcmp(argv[i], "--chunk") == 0) chunk = atoll(value);
    else if (value && strcmp(argv[i], "--threads") == 0) threads = atoi(value);
    else if (value && strcmp(argv[i], "--temperature") == 0) g.temperature = atof(value);
    else if (value && strcmp(argv[i], "--top") == 0) g.top = atoll(value);
    else if (value && strcmp(argv[i], "--seed") == 0) g.seed = strtoull(value, NULL, 10) | 1;
    else if (argv[i][0] != '-') {
      prompt[n++] = atoll(argv[i]);
      continue;
    } else right = 0;
    i++;
  }
  if (!right || argc < 3 || n == 0 || n_new < 1 || n_new > MAX_TOKENS || chunk < 1) {
    fprintf(stderr,
            "usage: generate MODULE [--tokens N] [--chunk N] [--threads N] [--temperature T] "
            "[--top K] [--seed S] TOKEN...\n");
    right = 0;
  } else right = open_module(&g, argv[1], threads) && generate(&g, n, prompt, chunk, n_new);
  kiln_session_destroy(g.session);
  kiln_module_release(g.module);
  kiln_diag_destroy(g.diag);
  free(prompt);
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}

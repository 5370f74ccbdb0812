// kiln compare: compares two ways of computing a model, output by output, and their times.
//
//   A, B   a model (which is compiled), a module, or ONNX Runtime on a model
//   right  if one of them is a model, the reference interpreter judges both; otherwise the two may
//          differ by a tolerance
//   times  A and B run alternately, so that other load on the machine affects both
//
//   one turn:  pause | A | A | pause | B | B
//                          t              t
//
// The second run of each pair is timed: caches then hold its own data, and the other's threads,
// which spin after a run, are asleep.
#include "peer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct side {
  char letter;
  const char *name;       // as given on the command line
  const char *peer_model; // the model that ONNX Runtime reads; NULL: Kiln runs
  loaded l;
  kiln_session *session;
  const DLTensor **inputs; // malloc'ed; in the module's order, borrowed
  peer peer;
  tensors outputs;
  double *ms; // of the timed runs
  stats s;
} side;

typedef struct comparing {
  const options *o;
  side sides[2];
  side *base;     // a side that Kiln runs; its ports name the inputs and outputs of both
  tensors inputs; // in the order of |base|'s ports
  kiln_diag *diag;
  loaded reference;            // if |base| is a module and ONNX Runtime reads the model
  kiln_model *model;           // the reference; NULL: none
  kiln_judgement *verdicts[2]; // [outputs of the model], malloc'ed
  json_t *rows;
  size_t n_wrong;
  const char *first_wrong;
} comparing;

static bool complain(const char *subject, const char *must, const char *got) {
  return options_complain(command_find("compare"), subject, must, got);
}

// --- the two

static const char peer_name[] = "onnxruntime";

static bool is_peer(const char *name) {
  const size_t n = strlen(peer_name);
  return !strncmp(name, peer_name, n) && (!name[n] || name[n] == ':');
}

static bool has_end(const char *path, const char *end) {
  const size_t n = strlen(path), k = strlen(end);
  return n > k && !strcmp(path + n - k, end);
}

// False after a message if the command line is wrong.
static bool name_sides(comparing *c) {
  const values *args = &c->o->args;
  for (int i = 0; i < 2; i++) {
    side *s = &c->sides[i];
    const char *name = args->at[i], *other = args->at[1 - i];
    *s = (side){.letter = (char)('A' + i), .name = name, .peer = {.child = -1}};
    if (!is_peer(name)) {
      if (!c->base) c->base = s;
      continue;
    }
    const size_t n = strlen(peer_name);
    s->peer_model = name[n] ? name + n + 1 : other;
    if (is_peer(other))
      return complain(peer_name, "must be compared with a model or a module", other);
    if (!has_end(s->peer_model, ".onnx") || kiln_module_is_file(s->peer_model))
      return complain(peer_name, "must be given its model, as onnxruntime:MODEL.onnx", name);
  }
  return true;
}

// The options for loading one of the two.
static options options_of(const comparing *c, const char *path) {
  options o = *c->o;
  o.args = (values){.n = 1, .at = {path}};
  if (o.all_layers && !is_definition(path)) o.marks = (values){.n = 1, .at = {"*"}};
  return o;
}

static bool load_side(comparing *c, side *s) {
  const options o = options_of(c, s->name);
  return s->peer_model || load_model(&o, s->name, true, &s->l);
}

// --- inputs

static size_t find_input(const kiln_module *m, const char *name) {
  size_t i = 0;
  while (i < kiln_module_input_count(m) && strcmp(kiln_module_input(m, i).name, name)) i++;
  return i;
}

// Orders inputs by name, or by number if the module has other names.
static bool order_inputs(const comparing *c, side *s) {
  const kiln_module *base = c->base->l.module, *m = s->l.module;
  const size_t n = kiln_module_input_count(m);
  s->inputs = calloc(n + 1, sizeof *s->inputs);
  if (!s->inputs) return false;
  if (n != c->inputs.n)
    return fprintf(stderr, "%s: error: compare: must have %zu inputs as the other, got %zu\n",
                   s->name, c->inputs.n, n),
           false;
  for (size_t i = 0; i < n; i++) {
    const size_t k = find_input(base, kiln_module_input(m, i).name);
    s->inputs[i] = c->inputs.views[k < n ? k : i];
  }
  return true;
}

// --- runs

static double run_side(comparing *c, side *s) {
  if (s->peer_model) return peer_run(&s->peer);
  const double start = now_ms();
  const size_t n = kiln_module_input_count(s->l.module);
  const bool right = kiln_session_run(s->session, n, s->inputs, s->outputs.n, s->outputs.views,
                                      c->diag) == KILN_OK;
  return right ? now_ms() - start : -1;
}

static bool open_session(comparing *c, side *s) {
  const options *o = c->o;
  const kiln_session_options so = {
      .struct_size = sizeof so, .threads = (int32_t)o->threads, .device = (int32_t)o->device};
  const tensors in = {.n = c->inputs.n, .views = (DLTensor **)(uintptr_t)s->inputs};
  return order_inputs(c, s) &&
         kiln_session_create(s->l.module, &so, c->diag, &s->session) == KILN_OK &&
         tensors_for_outputs(s->l.module, &in, &s->outputs);
}

// Whether the model lacks an output of the module, so that ONNX Runtime must expose inner values.
static bool lacks_outputs(const comparing *c, const char *path) {
  options o = options_of(c, path);
  loaded l;
  bool lacks = false;
  o.read_only = true;
  o.marks = (values){0};
  if (!load_model(&o, path, false, &l)) return false; // ONNX Runtime reports the error
  for (size_t i = 0; i < kiln_module_output_count(c->base->l.module); i++) {
    const char *name = kiln_module_output(c->base->l.module, i).name;
    bool has = false;
    for (size_t k = 0; k < kiln_model_output_count(l.model); k++)
      has |= !strcmp(kiln_model_output(l.model, k).name, name);
    lacks |= !has;
  }
  loaded_free(&l);
  return lacks;
}

static bool open_side(comparing *c, side *s) {
  const kiln_module *m = c->base->l.module;
  if (!s->peer_model) return open_session(c, s);
  const int32_t threads = c->o->threads ? (int32_t)c->o->threads : kiln_module_about(m).threads;
  return peer_start(&s->peer, c->o, s->peer_model, lacks_outputs(c, s->peer_model), threads, m,
                    &c->inputs);
}

static bool take_outputs(comparing *c, side *s) {
  if (run_side(c, s) < 0) return false;
  if (s->peer_model) return peer_outputs(&s->peer, c->base->l.module, &s->outputs);
  bool right = true;
  for (size_t i = 0; right && i < s->outputs.n; i++)
    right = tensors_crop(&s->outputs, i, kiln_session_output_shape(s->session, i));
  return right;
}

// --- outputs

static const kiln_module *module_of(const comparing *c, const side *s) {
  // gives names to the outputs of ONNX Runtime
  return s->peer_model ? c->base->l.module : s->l.module;
}

// The output of that name; NULL if there is none.
static const DLTensor *find_output(const comparing *c, const side *s, const char *name) {
  const kiln_module *m = module_of(c, s);
  for (size_t i = 0; i < s->outputs.n; i++)
    if (!strcmp(kiln_module_output(m, i).name, name)) return s->outputs.views[i];
  return NULL;
}

static bool shares_names(const comparing *c, const side *s) {
  for (size_t i = 0; i < kiln_module_output_count(c->base->l.module); i++)
    if (find_output(c, s, kiln_module_output(c->base->l.module, i).name)) return true;
  return false;
}

// The side's output for output |i| of the base: by name, or by number if no names are equal.
static const DLTensor *output_of(const comparing *c, const side *s, size_t i) {
  if (shares_names(c, s)) return find_output(c, s, kiln_module_output(c->base->l.module, i).name);
  const bool fits = s->outputs.n == c->base->outputs.n;
  return fits ? s->outputs.views[i] : NULL;
}

// A copy of the elements in another type; NULL if memory ran out.
static tensor *in_type(const DLTensor *t, const char *dtype) {
  tensor *made = kiln_tensor_create(dtype, t->ndim, t->shape, NULL);
  for (int64_t i = 0; made && i < kiln_tensor_count(t); i++)
    kiln_tensor_set_element(&made->dl_tensor, i, kiln_tensor_element(t, i));
  return made;
}

// --- the reference

static size_t base_output(const comparing *c, const char *name) {
  const kiln_module *m = c->base->l.module;
  size_t i = 0;
  while (i < kiln_module_output_count(m) && strcmp(kiln_module_output(m, i).name, name)) i++;
  return i;
}

// Collects the side's results for the model's outputs; false if one is missing.
static bool gather(const comparing *c, const side *s, const DLTensor **out) {
  for (size_t k = 0; k < kiln_model_output_count(c->model); k++) {
    const size_t i = base_output(c, kiln_model_output(c->model, k).name);
    out[k] = i < c->base->outputs.n ? output_of(c, s, i) : NULL;
    const char *want = kiln_model_output(c->model, k).dtype;
    if (!out[k] || !want || strcmp(want, kiln_tensor_dtype(out[k]))) return false;
  }
  return true;
}

static bool judge_side(comparing *c, int which) {
  const size_t n = kiln_model_output_count(c->model);
  const DLTensor **got = calloc(n + 1, sizeof *got);
  c->verdicts[which] = calloc(n + 1, sizeof *c->verdicts[which]);
  bool right = got && c->verdicts[which] && gather(c, &c->sides[which], got);
  right = right && kiln_model_judge(c->model, c->inputs.n, (const DLTensor *const *)c->inputs.views,
                                    n, got, c->diag, c->verdicts[which]) == KILN_OK;
  free(got);
  if (right) return true;
  free(c->verdicts[which]);
  c->verdicts[which] = NULL;
  return false;
}

// Finds the reference model: one of the two, or ONNX Runtime's. None if a tolerance is given.
static void find_model(comparing *c) {
  const options *o = c->o;
  if (o->rtol > 0 || o->atol > 0) return;
  c->model = c->base->l.model;
  for (int i = 0; !c->model && i < 2; i++) {
    side *s = &c->sides[i];
    const options with = options_of(c, s->peer_model ? s->peer_model : s->name);
    if (s->l.model) c->model = s->l.model;
    else if (s->peer_model && load_model(&with, s->peer_model, false, &c->reference))
      c->model = c->reference.model;
  }
}

static void judge(comparing *c) {
  find_model(c);
  if (!c->model) return;
  if (!judge_side(c, 0) || !judge_side(c, 1)) c->model = NULL;
}

static const kiln_judgement *verdict(const comparing *c, int which, const char *name) {
  for (size_t k = 0; c->model && k < kiln_model_output_count(c->model); k++)
    if (!strcmp(kiln_model_output(c->model, k).name, name)) return &c->verdicts[which][k];
  return NULL;
}

// --- the report

static void print_fault(char letter, const kiln_judgement *j) {
  if (j->together)
    printf("; %c is wrong: all elements together must be within 3 typical errors, got %.3g", letter,
           j->spread);
  else if (j->first_wrong < 0) printf("; %c is wrong: the shape must be the reference's", letter);
  else
    printf("; %c is wrong: element %lld must be within %.3g of %.9g, got %.9g (%lld elements)",
           letter, (long long)j->first_wrong, j->most, j->want, j->got, (long long)j->n_wrong);
}

static void add_row(comparing *c, const char *name, bool same, const difference *d) {
  if (!same && c->n_wrong++ == 0) c->first_wrong = name;
  json_array_append_new(c->rows, json_pack("{s:s, s:b, s:f, s:f}", "output", name, "same", same,
                                           "rel_l2", d->rel_l2, "max_abs", d->max_abs));
}

static void compare_output(comparing *c, size_t i) {
  const options *o = c->o;
  const char *name = kiln_module_output(c->base->l.module, i).name;
  const DLTensor *a = output_of(c, &c->sides[0], i), *b = output_of(c, &c->sides[1], i);
  const kiln_judgement *of_a = verdict(c, 0, name), *of_b = verdict(c, 1, name);
  difference d = {.first_wrong = -1};
  char why[256] = "";
  if (!a || !b) {
    printf("%s: only %c has it\n", name, a ? 'A' : 'B');
    return;
  }
  tensor *other = in_type(b, kiln_tensor_dtype(a));
  bool same = other && tensor_compare(a, &other->dl_tensor, o->rtol > 0 ? o->rtol : 1e-3,
                                      o->atol > 0 ? o->atol : 1e-5, &d, why);
  kiln_tensor_destroy(other);
  if (of_a && of_b) same = of_a->passed && of_b->passed;
  printf("%s: %s: relative L2 difference %.3g, largest %.3g", name, same ? "same" : "DIFFERS",
         d.rel_l2, d.max_abs);
  if (!same && !(of_a && of_b)) printf(": in A %s", why);
  if (of_a && !of_a->passed) print_fault('A', of_a);
  if (of_b && !of_b->passed) print_fault('B', of_b);
  printf("\n");
  add_row(c, name, same, &d);
}

static void compare_outputs(comparing *c) {
  judge(c);
  for (size_t i = 0; i < kiln_module_output_count(c->base->l.module); i++) compare_output(c, i);
  const size_t n = json_array_size(c->rows);
  printf("%zu of %zu outputs are the same, judged by %s\n", n - c->n_wrong, n,
         c->model ? "the reference interpreter" : "a tolerance");
}

// --- times

enum { PAUSE_NS = 5000000 };

// Milliseconds; negative after a message.
static double time_turn(comparing *c, side *s) {
  const struct timespec pause = {.tv_nsec = PAUSE_NS};
  (void)nanosleep(&pause, NULL);
  return run_side(c, s) < 0 ? -1 : run_side(c, s);
}

static bool time_sides(comparing *c) {
  const size_t n = c->o->iterations > 0 ? (size_t)c->o->iterations : 1;
  bool right = true;
  for (int k = 0; k < 2; k++) right &= (c->sides[k].ms = calloc(n, sizeof(double))) != NULL;
  for (int64_t i = 0; right && i < c->o->warmup; i++)
    right = run_side(c, &c->sides[0]) >= 0 && run_side(c, &c->sides[1]) >= 0;
  for (size_t i = 0; right && i < n; i++) {
    for (int k = 0; right && k < 2; k++)
      right = (c->sides[k].ms[i] = time_turn(c, &c->sides[k])) >= 0;
    if (right && c->sides[0].ms[i] > 50) print_progress("run", i + 1, n);
  }
  if (right) print_progress("run", n, n);
  for (int k = 0; right && k < 2; k++) c->sides[k].s = stats_of(c->sides[k].ms, n);
  return right;
}

static double ratio(const comparing *c) {
  const double a = c->sides[0].s.median, b = c->sides[1].s.median;
  return a > 0 ? b / a : 0;
}

static void print_times(const comparing *c) {
  for (int k = 0; k < 2; k++) {
    const side *s = &c->sides[k];
    printf("%c  min %.3f  median %.3f  p90 %.3f ms  %s", s->letter, s->s.min, s->s.median, s->s.p90,
           s->name);
    printf(s->peer_model ? " (%s)\n" : "\n", s->peer.version);
  }
  printf("B takes %.2f times as long as A\n", ratio(c));
}

static json_t *times_of(const side *s) {
  return json_pack("{s:s, s:f, s:f, s:f}", "name", s->name, "min_ms", s->s.min, "median_ms",
                   s->s.median, "p90_ms", s->s.p90);
}

static bool write_report(const comparing *c) {
  json_t *root = json_pack("{s:o, s:o, s:f, s:s, s:O}", "a", times_of(&c->sides[0]), "b",
                           times_of(&c->sides[1]), "ratio", ratio(c), "judged_by",
                           c->model ? "reference" : "tolerance", "outputs", c->rows);
  char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
  const bool right = text && write_text(c->o->json, "output", text);
  free(text);
  json_decref(root);
  return right;
}

// --- the command

static bool compare(comparing *c) {
  bool right = tensors_for_inputs(c->o, &c->base->l, &c->inputs);
  for (int k = 0; right && k < 2; k++) right = open_side(c, &c->sides[k]);
  for (int k = 0; right && k < 2; k++) right = take_outputs(c, &c->sides[k]);
  if (!right) return false;
  compare_outputs(c);
  if (c->o->all_layers) { // every value is stored, so times are meaningless
    if (c->first_wrong) printf("the first that differs: %s\n", c->first_wrong);
  } else {
    right = time_sides(c);
    if (right) print_times(c);
  }
  return right && (!c->o->json || write_report(c)) && c->n_wrong == 0;
}

static void close_side(side *s) {
  if (s->peer_model) peer_stop(&s->peer);
  kiln_session_destroy(s->session);
  tensors_free(&s->outputs);
  free(s->inputs);
  free(s->ms);
  loaded_free(&s->l);
}

int command_compare(const options *o) {
  comparing *c = calloc(1, sizeof *c);
  if (!c) return EXIT_WRONG;
  c->o = o;
  c->diag = kiln_diag_create();
  c->rows = json_array();
  int code = name_sides(c) ? EXIT_RIGHT : EXIT_USAGE;
  for (int k = 0; code == EXIT_RIGHT && k < 2; k++)
    if (!load_side(c, &c->sides[k])) code = c->sides[k].l.code;
  if (code == EXIT_RIGHT) code = c->diag && compare(c) ? EXIT_RIGHT : EXIT_WRONG;
  if (c->diag) print_messages(c->diag);
  for (int k = 0; k < 2; k++) close_side(&c->sides[k]);
  for (int k = 0; k < 2; k++) free(c->verdicts[k]);
  loaded_free(&c->reference);
  tensors_free(&c->inputs);
  kiln_diag_destroy(c->diag);
  json_decref(c->rows);
  free(c);
  return code;
}

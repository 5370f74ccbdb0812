// ONNX Runtime in a child process: a line on its stdin is a request, a line on its stdout the
// answer.
//
//   kiln                 python
//        <- "ready 1.23"      the session is made of model and in.npz
//   "run\n" ->
//        <- "ms 9.871"
//   "save\n" ->
//        <- "saved"           out.npz has "0", "1", ...: the outputs in order
//
// Any failure is answered by the line "error TEXT", after which the child ends.
#include "peer.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_ROOM = 1024, PATH_ROOM = 256 };

static const char script[] =
    "import sys, time\n"
    "def main(model, folder, threads, names):\n"
    "    import numpy, onnxruntime\n"
    "    how = onnxruntime.SessionOptions()\n"
    "    how.intra_op_num_threads = threads\n"
    "    how.log_severity_level = 3\n"
    "    s = onnxruntime.InferenceSession(model, how, providers=['CPUExecutionProvider'])\n"
    "    own, given = [i.name for i in s.get_inputs()], numpy.load(folder + '/in.npz')\n"
    "    ins, outs = names[:names.index('--')], names[names.index('--') + 1:]\n"
    "    feed = {}\n"
    "    for k, name in enumerate(ins):\n"
    "        if str(k) in given: feed[name if name in own else own[k]] = given[str(k)]\n"
    "    has = [v.name for v in s.get_outputs()]\n"
    "    if not set(outs) & set(has) and len(outs) == len(has): outs = has\n"
    "    lacks = [name for name in outs if name not in has]\n"
    "    if lacks: raise ValueError('the model has no output ' + lacks[0])\n"
    "    print('ready', onnxruntime.__version__, flush=True)\n"
    "    for line in sys.stdin:\n"
    "        if line == 'run\\n':\n"
    "            begin = time.perf_counter()\n"
    "            got = s.run(outs, feed)\n"
    "            print('ms', 1e3 * (time.perf_counter() - begin), flush=True)\n"
    "        else:\n"
    "            numpy.savez(folder + '/out.npz', **{str(k): v for k, v in enumerate(got)})\n"
    "            print('saved', flush=True)\n"
    "try:\n"
    "    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])\n"
    "except Exception as e:\n"
    "    print('error', ' '.join(str(e).split())[:900], flush=True)\n";

static bool complain(const options *o, const char *got) {
  kiln_diag *diag = kiln_diag_create(); // prints the child's text as a message
  (void)kiln_diag_fail(diag, KILN_BAD_INPUT, "onnxruntime",
                       "must run the model in %s (--python names another), got: %s", o->python,
                       got);
  if (diag) print_messages(diag);
  kiln_diag_destroy(diag);
  return false;
}

// In the child.
static void execute(const options *o, const peer *p, int32_t threads, const kiln_module *m,
                    const int to[2], const int from[2]) {
  const size_t n_in = kiln_module_input_count(m), n_out = kiln_module_output_count(m);
  char number[16];
  const char **words = calloc(n_in + n_out + 8, sizeof *words);
  if (!words) _exit(127);
  size_t n = 0;
  snprintf(number, sizeof number, "%d", threads);
  words[n++] = o->python;
  words[n++] = "-c";
  words[n++] = script;
  words[n++] = p->model;
  words[n++] = p->folder;
  words[n++] = number;
  for (size_t i = 0; i < n_in; i++) words[n++] = kiln_module_input(m, i).name;
  words[n++] = "--";
  for (size_t i = 0; i < n_out; i++) words[n++] = kiln_module_output(m, i).name;
  dup2(to[0], 0);
  dup2(from[1], 1);
  close(to[1]);
  close(from[0]);
  (void)signal(SIGPIPE, SIG_DFL);
  execvp(words[0], (char **)(uintptr_t)words);
  _exit(127);
}

// The rest of the answer after |word|, in |line|; NULL after a message.
static const char *answer(peer *p, const options *o, const char *word, char line[LINE_ROOM]) {
  const size_t n = strlen(word);
  if (!fgets(line, LINE_ROOM, p->from)) {
    (void)complain(o, "a process that ended, or none");
    return NULL;
  }
  line[strcspn(line, "\n")] = 0;
  if (strncmp(line, word, n) == 0) return line[n] ? line + n + 1 : line + n;
  (void)complain(o, strncmp(line, "error ", 6) ? line : line + 6);
  return NULL;
}

static void path_in(const peer *p, const char *name, char out[PATH_ROOM]) {
  snprintf(out, PATH_ROOM, "%s/%s", p->folder, name);
}

// Inputs by number, without those that keep their defaults.
static bool write_inputs(const peer *p, const tensors *inputs) {
  char path[PATH_ROOM], (*texts)[24] = calloc(inputs->n + 1, sizeof *texts);
  const char **names = calloc(inputs->n + 1, sizeof *names);
  tensor **given = calloc(inputs->n + 1, sizeof *given);
  size_t n = 0;
  for (size_t i = 0; texts && names && given && i < inputs->n; i++) {
    if (!inputs->at[i]) continue;
    snprintf(texts[n], sizeof *texts, "%zu", i);
    names[n] = texts[n];
    given[n++] = inputs->at[i];
  }
  path_in(p, "in.npz", path);
  const bool right = texts && names && given && npz_write(path, n, names, given);
  free(texts);
  free(names);
  free(given);
  return right;
}

static bool find_model(peer *p, const char *model, bool expose) {
  snprintf(p->model, sizeof p->model, "%s", model);
  if (!expose) return true;
  kiln_diag *diag = kiln_diag_create();
  snprintf(p->model, sizeof p->model, "%s/model.onnx", p->folder);
  const bool right = diag && kiln_model_expose(model, p->model, diag) == KILN_OK;
  if (diag) print_messages(diag);
  kiln_diag_destroy(diag);
  return right;
}

static bool start(peer *p, const options *o, int32_t threads, const kiln_module *m) {
  int to[2] = {-1, -1}, from[2] = {-1, -1};
  if (pipe(to) || pipe(from)) return complain(o, strerror(errno));
  (void)signal(SIGPIPE, SIG_IGN); // a write to a dead child fails; the answer's read reports it
  fflush(NULL);
  p->child = fork();
  if (p->child == 0) execute(o, p, threads, m, to, from);
  close(to[0]);
  close(from[1]);
  p->to = fdopen(to[1], "w");
  p->from = fdopen(from[0], "r");
  return p->child > 0 && p->to && p->from;
}

bool peer_start(peer *p, const options *o, const char *model, bool expose, int32_t threads,
                const kiln_module *module, const tensors *inputs) {
  char line[LINE_ROOM];
  *p = (peer){.o = o, .child = -1};
  const char *temporary = getenv("TMPDIR");
  const int n = snprintf(p->folder, sizeof p->folder, "%s/kiln-compare-XXXXXX",
                         temporary && *temporary ? temporary : "/tmp");
  if (n >= (int)sizeof p->folder || !mkdtemp(p->folder)) {
    p->folder[0] = 0;
    return complain(o, strerror(errno));
  }
  if (!find_model(p, model, expose) || !write_inputs(p, inputs)) return false;
  const char *version = start(p, o, threads, module) ? answer(p, o, "ready", line) : NULL;
  if (version) snprintf(p->version, sizeof p->version, "%.60s", version);
  return version != NULL;
}

static const char *ask(peer *p, const char *request, const char *word, char line[LINE_ROOM]) {
  fprintf(p->to, "%s\n", request);
  fflush(p->to);
  return answer(p, p->o, word, line);
}

double peer_run(peer *p) {
  char line[LINE_ROOM];
  const char *ms = ask(p, "run", "ms", line);
  return ms ? strtod(ms, NULL) : -1;
}

bool peer_outputs(peer *p, const kiln_module *module, tensors *out) {
  char line[LINE_ROOM], path[PATH_ROOM];
  const size_t n = kiln_module_output_count(module);
  *out = (tensors){0};
  if (!ask(p, "save", "saved", line)) return false;
  path_in(p, "out.npz", path);
  npz *z = npz_open(path);
  bool right = z && tensors_alloc(out, n);
  for (size_t i = 0; right && i < n; i++) {
    char name[24];
    bool failed = false;
    snprintf(name, sizeof name, "%zu", i);
    tensor *t = npz_find(z, name, UINT64_MAX / 2, &failed);
    right = t != NULL;
    if (right) tensors_add(out, t);
  }
  npz_close(z);
  if (z && !right) (void)complain(p->o, "outputs of types that NumPy lacks");
  return right;
}

void peer_stop(peer *p) {
  static const char *const files[] = {"in.npz", "out.npz", "model.onnx"};
  char path[PATH_ROOM];
  if (p->to) fclose(p->to);
  if (p->from) fclose(p->from);
  if (p->child > 0) (void)waitpid(p->child, NULL, 0);
  for (size_t i = 0; p->folder[0] && i < sizeof files / sizeof *files; i++) {
    path_in(p, files[i], path);
    (void)unlink(path);
  }
  if (p->folder[0]) (void)rmdir(p->folder);
  *p = (peer){.child = -1};
}

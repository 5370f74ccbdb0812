// kiln report: one page, without anything from the network, that shows the compiler's decisions and
// their cost. The page is tools/kiln/report/, which the build embeds; its data is JSON in it. Code
// makes up most of its size: it is compressed by kernel, and the page unpacks the kernel that is
// shown.
#include "kiln.h"

#include <dlfcn.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

extern const char report_html[], report_css[], report_js[]; // cmake/embed.c

enum { WARM_RUNS = 3, RUNS = 21, CACHE_LINE = 64 };

typedef struct report {
  const options *o;
  loaded l;
  kiln_diag *diag;
  tensors inputs, outputs;
  json_t *root; // the page's data
  FILE *out;
} report;

// --- measuring

static bool run(report *r, kiln_session *s) {
  return kiln_session_run(s, r->inputs.n, (const DLTensor *const *)r->inputs.views, r->outputs.n,
                          r->outputs.views, r->diag) == KILN_OK;
}

static kiln_session *open_session(const report *r, int32_t profile) {
  const kiln_session_options so = {.struct_size = sizeof so,
                                   .threads = (int32_t)r->o->threads,
                                   .device = (int32_t)r->o->device,
                                   .profile = profile};
  kiln_session *s = NULL;
  return kiln_session_create(r->l.module, &so, r->diag, &s) == KILN_OK ? s : NULL;
}

static bool is_of_gpu(const kiln_module *m) {
  const char *target = kiln_module_about(m).target;
  return !strncmp(target, "cuda", 4) || !strncmp(target, "opencl", 6);
}

// Times runs without profiling, and counts cache misses of one of them.
static bool time_runs(report *r, json_t *to) {
  double ms[RUNS];
  const char *why = "those of GPUs are not asked for";
  const int counter = is_of_gpu(r->l.module) ? -1 : misses_open(&why);
  kiln_session *s = open_session(r, 0);
  bool right = s != NULL;
  for (int i = 0; right && i < WARM_RUNS; i++) right = run(r, s);
  misses_begin(counter);
  for (int i = 0; right && i < RUNS; i++) {
    const double start = now_ms();
    right = run(r, s);
    ms[i] = now_ms() - start;
  }
  const double misses = misses_end(counter);
  if (counter >= 0) close(counter);
  kiln_session_destroy(s);
  if (!right) return false;
  const stats of = stats_of(ms, RUNS);
  json_object_set_new(to, "runs", json_integer(RUNS));
  json_object_set_new(to, "median_ms", json_real(of.median));
  json_object_set_new(to, "least_ms", json_real(of.min));
  if (counter >= 0 && misses == 0) why = "the processor's counter counted none";
  if (misses > 0) json_object_set_new(to, "missed_bytes", json_real(misses / RUNS * CACHE_LINE));
  else json_object_set_new(to, "no_counters", json_string(why));
  return true;
}

// One recorded run, in microseconds: [launch, start, time] for each launch, and [launch, thread,
// start, time] for each span.
typedef struct recording {
  json_t *launches, *spans;
  double us;
} recording;

static recording record(const kiln_module *m, const kiln_session *s) {
  const size_t n = kiln_module_launch_count(m);
  const uint64_t zero = n ? kiln_session_launch_start_ns(s, 0) : 0;
  const kiln_span *spans = NULL;
  recording r = {json_array(), json_array(), 0};
  for (size_t i = 0; i < n; i++) {
    const double start = (double)(kiln_session_launch_start_ns(s, i) - zero) / 1e3,
                 us = (double)kiln_session_launch_ns(s, i) / 1e3;
    json_array_append_new(r.launches, json_pack("[i, f, f]", (int)i, start, us));
    if (start + us > r.us) r.us = start + us;
  }
  const size_t n_spans = kiln_session_spans(s, &spans);
  for (size_t i = 0; i < n_spans; i++)
    json_array_append_new(
        r.spans, json_pack("[i, i, f, f]", (int)spans[i].launch, (int)spans[i].thread,
                           (double)(spans[i].start_ns - zero) / 1e3, (double)spans[i].ns / 1e3));
  return r;
}

static void drop(recording *r) {
  json_decref(r->launches);
  json_decref(r->spans);
}

static void keep_faster(recording *best, recording now) {
  if (best->launches && best->us <= now.us) {
    drop(&now);
    return;
  }
  drop(best);
  *best = now;
}

static json_t *launches_of(const kiln_module *m, double *ms) {
  json_t *list = json_array();
  for (size_t i = 0; i < kiln_module_launch_count(m); i++) {
    const kiln_launch_info info = kiln_module_launch(m, i);
    const stats of = stats_of(ms + i * RUNS, RUNS);
    json_array_append_new(list,
                          json_pack("{s:s, s:s, s:f, s:f}", "kernel", info.kernel, "nodes",
                                    info.nodes, "us", of.median * 1e3, "least_us", of.min * 1e3));
  }
  return list;
}

// The median and the minimum time of each launch, and the time line of the fastest run.
static bool profile_runs(report *r, json_t *to) {
  const size_t n = kiln_module_launch_count(r->l.module);
  double *ms = calloc(n * RUNS + 1, sizeof *ms);
  kiln_session *s = open_session(r, 2);
  recording best = {0};
  bool right = s && ms;
  for (int i = 0; right && i < WARM_RUNS; i++) right = run(r, s);
  for (size_t k = 0; right && k < RUNS; k++) {
    right = run(r, s);
    for (size_t i = 0; i < n; i++) ms[i * RUNS + k] = (double)kiln_session_launch_ns(s, i) / 1e6;
    if (right) keep_faster(&best, record(r->l.module, s));
  }
  if (right) json_object_set_new(to, "launches", launches_of(r->l.module, ms));
  json_object_set(to, "run", best.launches);
  json_object_set(to, "spans", best.spans);
  drop(&best);
  kiln_session_destroy(s);
  free(ms);
  return right;
}

static bool measure(report *r) {
  json_t *to = json_object();
  json_object_set_new(r->root, "measured", to);
  return tensors_for_inputs(r->o, &r->l, &r->inputs) &&
         tensors_for_outputs(r->l.module, &r->inputs, &r->outputs) && time_runs(r, to) &&
         profile_runs(r, to);
}

// --- the data

static char *read_text(const char *path) {
  FILE *f = fopen(path, "rb");
  char *text = NULL;
  size_t n = 0, room = 0;
  for (size_t got = 1; f && got;) {
    if (n + 4096 > room) {
      char *more = realloc(text, room = 2 * room + 8192);
      if (!more) break;
      text = more;
    }
    got = fread(text + n, 1, 4095, f);
    n += got;
  }
  if (f) fclose(f);
  if (text) text[n] = 0;
  return text;
}

static bool explain(report *r) {
  const kiln_explain_options eo = {
      .struct_size = sizeof eo, .json = 1, .detail = 1, .count = r->o->count};
  const char *text = NULL;
  if (kiln_model_explain(r->l.model, &eo, r->diag, &text) != KILN_OK) return false;
  print_tuning(r->o, r->l.model);
  r->root = json_loads(text, 0, NULL);
  if (!r->root) return fprintf(stderr, "kiln: error: report: no memory left\n"), false;
  json_object_set_new(r->root, "kiln", json_string(kiln_version()));
  json_object_set_new(r->root, "path", json_string(r->o->args.at[0]));
  if (!is_definition(r->o->args.at[0])) return true;
  char *source = read_text(r->o->args.at[0]);
  if (source) json_object_set_new(r->root, "definition", json_string(source));
  free(source);
  return true;
}

// --- the page

// The text of a script element must contain neither "</script" nor "<!--"; in JSON strings '<' may
// be escaped.
static void write_escaped(const char *text, FILE *out) {
  for (const char *end; *text; text = end) {
    end = text + strcspn(text, "<");
    fwrite(text, 1, (size_t)(end - text), out);
    if (*end == '<') {
      fputs("\\u003c", out);
      end++;
    }
  }
}

static void write_base64(const unsigned char *data, size_t n, FILE *out) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < n; i += 3) {
    const unsigned a = data[i], b = i + 1 < n ? data[i + 1] : 0, c = i + 2 < n ? data[i + 2] : 0;
    fputc(digits[a >> 2], out);
    fputc(digits[(a & 3) << 4 | b >> 4], out);
    fputc(i + 1 < n ? digits[(b & 15) << 2 | c >> 6] : '=', out);
    fputc(i + 2 < n ? digits[c & 63] : '=', out);
  }
}

// zlib's compress2, loaded on demand; NULL: not installed, and texts stay uncompressed.
static __typeof__(&compress2) find_compress(void) {
  void *library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
  union {
    void *object;
    __typeof__(&compress2) function;
  } symbol = {library ? dlsym(library, "compress2") : NULL};
  return symbol.function;
}

// Writes the texts of one kernel: <script class=code data-kernel=NAME
// data-form=deflate|plain>base64</script>
static bool write_code(report *r, const json_t *code, __typeof__(&compress2) compressed) {
  char *text = json_dumps(code, JSON_COMPACT);
  const size_t n = text ? strlen(text) : 0;
  uLongf room = (uLongf)(n + n / 500 + 64);
  unsigned char *packed = malloc(room);
  const bool right = text && packed;
  const bool is_packed =
      right && compressed && compressed(packed, &room, (const Bytef *)text, n, 9) == Z_OK;
  if (right) {
    fprintf(r->out, "<script type=\"application/octet-stream\" class=\"code\" data-form=\"%s\">",
            is_packed ? "deflate" : "plain");
    if (is_packed) write_base64(packed, room, r->out);
    else write_base64((const unsigned char *)text, n, r->out);
    fputs("</script>\n", r->out);
  }
  free(packed);
  free(text);
  return right;
}

static bool write_data(report *r) {
  json_t *code = json_incref(json_object_get(r->root, "code"));
  json_object_del(r->root, "code");
  char *text = json_dumps(r->root, JSON_COMPACT | JSON_REAL_PRECISION(6));
  __typeof__(&compress2) compressed = find_compress();
  bool right = text != NULL;
  fputs("<script type=\"application/json\" id=\"data\">", r->out);
  if (right) write_escaped(text, r->out);
  fputs("</script>\n", r->out);
  for (size_t i = 0; right && i < json_array_size(code); i++)
    right = write_code(r, json_array_get(code, i), compressed);
  free(text);
  json_decref(code);
  return right;
}

// Writes the page with its parts at their marks.
static bool write_page(report *r) {
  static const struct {
    const char *mark, *text; // |text| NULL: the data
  } places[] = {{"{{css}}", report_css}, {"{{data}}", NULL}, {"{{js}}", report_js}};
  const char *at = report_html;
  bool right = true;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const char *mark = strstr(at, places[i].mark);
    fwrite(at, 1, (size_t)(mark - at), r->out);
    if (places[i].text) fputs(places[i].text, r->out);
    else right &= write_data(r);
    at = mark + strlen(places[i].mark);
  }
  fputs(at, r->out);
  return right;
}

static bool write_report(report *r) {
  char *text = NULL;
  size_t n = 0;
  if (!may_write(r->o, r->l.model, r->o->out)) return false;
  r->out = open_memstream(&text, &n);
  bool right = r->out && write_page(r);
  if (r->out && fclose(r->out)) right = false;
  right = right && write_text(r->o->out, "report", text);
  if (right) printf("%s: %.2f MB\n", r->o->out, (double)n / 1e6);
  free(text);
  return right;
}

int command_report(const options *o) {
  report r = {.o = o, .diag = kiln_diag_create()};
  bool right = r.diag && !refuse_module(o->args.at[0], "report") &&
               load_model(o, o->args.at[0], o->measure, &r.l) && explain(&r) &&
               (!o->measure || measure(&r)) && write_report(&r);
  if (r.diag) print_messages(r.diag);
  json_decref(r.root);
  tensors_free(&r.inputs);
  tensors_free(&r.outputs);
  kiln_diag_destroy(r.diag);
  loaded_free(&r.l);
  return right ? EXIT_RIGHT : EXIT_WRONG;
}

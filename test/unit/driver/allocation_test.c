// Allocations that are refused: whichever it is, a call ends with a status, leaks nothing, leaves
// no file, and can be made again. Each is tried in a child of this process, so that an abort is one
// that is refused, too.
//
//   driver_allocation_test [STEP [SCENE]]   STEP 1: every allocation of every scene (or of the one
//   that is named), which
//                                           takes hours; left out: some of each
#include "unit/driver/models.h"
#include "unit/driver/refuse.h"

#include <signal.h>
#include <sys/wait.h>

enum { BATCH = 3, SPREAD = 8, FIRST = 4 };

static long step_asked;
static const char *way_asked;

typedef struct scene {
  folder f;
  char tc[96];
  float x[BATCH * IN], y[BATCH * HIDDEN], w[IN * HIDDEN];
  int64_t ids[BATCH], ids2[BATCH];
  kiln_diag *diag;
  // of what was done last
  uint64_t sum; // of what it gave
  bool was_refused, has_message;
} scene;

typedef struct way {
  const char *name;
  kiln_status (*body)(scene *s);
} way;

// --- what is done ---

static void add_to_sum(scene *s, const void *data, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    s->sum = (s->sum ^ ((const uint8_t *)data)[i]) * 1099511628211u;
}

typedef struct ports {
  int64_t x[2], y[2], n[1], w[2];
  DLTensor t[5];
  const DLTensor *in[2];
  DLTensor *out[3];
} ports;

static DLTensor view(void *data, DLDataTypeCode code, int bits, int rank, int64_t *shape) {
  return (DLTensor){.data = data,
                    .device = {kDLCPU, 0},
                    .ndim = rank,
                    .dtype = {(uint8_t)code, (uint8_t)bits, 1},
                    .shape = shape};
}

static void ports_init(scene *s, ports *p) {
  *p = (ports){{BATCH, IN}, {BATCH, HIDDEN}, {BATCH}, {IN, HIDDEN}, {{0}}, {0}, {0}};
  p->t[0] = view(s->x, kDLFloat, 32, 2, p->x);
  p->t[1] = view(s->ids, kDLInt, 64, 1, p->n);
  p->t[2] = view(s->y, kDLFloat, 32, 2, p->y);
  p->t[3] = view(s->ids2, kDLInt, 64, 1, p->n);
  p->t[4] = view(s->w, kDLFloat, 32, 2, p->w);
  for (int i = 0; i < 2; i++) p->in[i] = &p->t[i];
  for (int i = 0; i < 3; i++) p->out[i] = &p->t[2 + i];
  memset(s->y, 0, sizeof s->y);
}

static void add_outputs(scene *s) {
  add_to_sum(s, s->y, sizeof s->y);
  add_to_sum(s, s->ids2, sizeof s->ids2);
  add_to_sum(s, s->w, sizeof s->w);
}

static kiln_status run(scene *s, kiln_module *module) {
  ports p;
  kiln_session *session = NULL;
  const kiln_session_options o = {.struct_size = sizeof o, .threads = 2};
  kiln_status st = kiln_session_create(module, &o, s->diag, &session);
  for (int i = 0; i < 2 && st == KILN_OK; i++) {
    ports_init(s, &p);
    st = kiln_session_run(session, 2, p.in, 3, p.out, s->diag);
    if (st == KILN_OK) add_outputs(s);
  }
  kiln_session_destroy(session);
  return st;
}

static const kiln_dim_value batch = {"batch", BATCH};
static const kiln_dim_range batches = {"batch", 1, 40, 1};

static kiln_compile_options fixed(void) {
  return (kiln_compile_options){
      .struct_size = sizeof(kiln_compile_options), .dims = &batch, .n_dims = 1, .threads = 2};
}

static kiln_status in_memory(scene *s) {
  const kiln_compile_options o = fixed();
  kiln_model *m = NULL;
  kiln_module *module = NULL;
  kiln_status st = kiln_model_load(s->f.model, &o, s->diag, &m);
  if (st == KILN_OK) st = kiln_model_compile(m, s->diag, &module);
  kiln_model_destroy(m);
  if (st == KILN_OK) st = run(s, module);
  kiln_module_release(module);
  return st;
}

static kiln_status load_and_run(scene *s) {
  kiln_module *module = NULL;
  kiln_status st = kiln_module_load(s->f.module, s->diag, &module);
  if (st == KILN_OK) st = run(s, module);
  kiln_module_release(module);
  return st;
}

static kiln_status to_file(scene *s, const kiln_compile_options *o) {
  kiln_model *m = NULL;
  kiln_status st = kiln_model_load(s->f.model, o, s->diag, &m);
  if (st == KILN_OK) st = kiln_model_compile_to(m, s->f.module, s->diag);
  kiln_model_destroy(m);
  if (st == KILN_OK) st = load_and_run(s);
  return st;
}

static kiln_status through_a_file(scene *s) {
  const kiln_compile_options o = fixed();
  return to_file(s, &o);
}

static kiln_status ranges(scene *s) {
  const kiln_compile_options o = {
      .struct_size = sizeof o, .ranges = &batches, .n_ranges = 1, .threads = 2};
  return to_file(s, &o);
}

static void add_file(scene *s, const char *path) {
  char bytes[4096];
  FILE *f = fopen(path, "rb");
  for (size_t n = 1; f && (n = fread(bytes, 1, sizeof bytes, f)) > 0;) add_to_sum(s, bytes, n);
  if (f) fclose(f);
}

// Its header and its weights lie beside the archive, which has the module's name.
static kiln_status static_library(scene *s) {
  char header[112], weights[112];
  snprintf(header, sizeof header, "%s/m.h", s->f.path);
  snprintf(weights, sizeof weights, "%s/m.weights", s->f.path);
  const kiln_compile_options o = fixed();
  const kiln_archive_options archive = {
      .struct_size = sizeof archive, .weights = weights, .prefix = "m"};
  kiln_model *m = NULL;
  kiln_status st = kiln_model_load(s->f.model, &o, s->diag, &m);
  if (st == KILN_OK) st = kiln_model_compile_to_archive(m, s->f.module, &archive, s->diag);
  kiln_model_destroy(m);
  if (st != KILN_OK) return st;
  add_file(s, s->f.module);
  add_file(s, header);
  add_file(s, weights);
  (void)unlink(header);
  (void)unlink(weights);
  return st;
}

static void on_dump(void *user, const char *level, const char *text) {
  (void)level;
  add_to_sum(user, text, strlen(text));
}

static kiln_status emit(scene *s, const char *target, const char *dump) {
  kiln_compile_options o = fixed();
  o.target = target;
  o.dump = dump;
  o.on_dump = on_dump;
  o.dump_user = s;
  kiln_model *m = NULL;
  kiln_status st = kiln_model_load(s->f.model, &o, s->diag, &m);
  if (st == KILN_OK) st = kiln_model_emit(m, s->diag);
  kiln_model_destroy(m);
  return st;
}

static kiln_status opencl_text(scene *s) { return emit(s, "opencl", "opencl,plan"); }
static kiln_status cuda_loops(scene *s) { return emit(s, "cuda:sm_90a", "prim,loop,schedule"); }
static kiln_status c_text(scene *s) { return emit(s, "c", "graph,c"); }
static kiln_status assembly(scene *s) { return emit(s, NULL, "plan,llvm,asm"); }

static void on_verified(void *user, const kiln_verify_result *r) {
  add_to_sum(user, &r->passed, sizeof r->passed);
}

static kiln_status judge(scene *s, kiln_model *m) {
  ports p;
  kiln_judgement judged[3];
  const char *text = NULL;
  size_t n_failed = 0;
  const kiln_explain_options e = {.struct_size = sizeof e};
  const kiln_verify_options v = {
      .struct_size = sizeof v, .on_result = on_verified, .user = s, .simulate = 1};
  ports_init(s, &p);
  KILN_TRY(kiln_model_simulate(m, 2, p.in, 3, p.out, s->diag, &text));
  add_outputs(s);
  KILN_TRY(kiln_model_judge(m, 2, p.in, 3, (const DLTensor *const *)p.out, s->diag, judged));
  for (int i = 0; i < 3; i++) add_to_sum(s, &judged[i].passed, sizeof judged[i].passed);
  KILN_TRY(kiln_model_verify(m, &v, s->diag, &n_failed));
  KILN_TRY(kiln_model_explain(m, &e, s->diag, &text));
  add_to_sum(s, text, strlen(text));
  return KILN_OK;
}

static kiln_status simulated(scene *s) {
  const kiln_compile_options o = fixed();
  kiln_model *m = NULL;
  kiln_status st = kiln_model_load(s->f.model, &o, s->diag, &m);
  if (st == KILN_OK) st = judge(s, m);
  kiln_model_destroy(m);
  return st;
}

static kiln_status polyhedral(scene *s) {
  static const kiln_dim_value sizes[] = {{"M", 12}, {"K", 20}, {"N", 18}};
  const kiln_compile_options o = {.struct_size = sizeof o,
                                  .dims = sizes,
                                  .n_dims = 3,
                                  .threads = 1,
                                  .scheduler = "max+promote",
                                  .dump = "schedule,loop",
                                  .on_dump = on_dump,
                                  .dump_user = s};
  kiln_model *m = NULL;
  kiln_status st = kiln_model_load(s->tc, &o, s->diag, &m);
  if (st == KILN_OK) st = kiln_model_emit(m, s->diag);
  kiln_model_destroy(m);
  return st;
}

static kiln_status cached(scene *s) {
  kiln_compile_options o = fixed();
  kiln_compiled c = {0};
  o.cache = 1;
  kiln_status st = kiln_compile_file(s->f.model, &o, s->f.module, s->diag, &c);
  kiln_model_destroy(c.model);
  if (st == KILN_OK) st = load_and_run(s);
  return st;
}

static kiln_status tuned(scene *s) {
  kiln_compile_options o = fixed();
  kiln_model *m = NULL;
  o.tune = 2;
  kiln_status st = kiln_model_load(s->f.model, &o, s->diag, &m);
  if (st == KILN_OK) st = kiln_model_compile_to(m, s->f.module, s->diag);
  kiln_model_destroy(m);
  return st;
}

static const way ways[] = {{"in_memory", in_memory},   {"through_a_file", through_a_file},
                           {"ranges", ranges},         {"opencl_text", opencl_text},
                           {"cuda_loops", cuda_loops}, {"c_text", c_text},
                           {"assembly", assembly},     {"static_library", static_library},
                           {"simulated", simulated},   {"polyhedral", polyhedral},
                           {"cached", cached},         {"tuned", tuned}};

// --- refusing ---

static kiln_status do_once(scene *s, const way *w, long n, bool all) {
  s->diag = kiln_diag_create();
  s->sum = 0;
  refuse(n, all);
  const kiln_status st = w->body(s);
  s->was_refused = n > 0 && atomic_load(&n_asked) >= atomic_load(&refuse_from);
  refuse(0, false);
  s->has_message = st == KILN_OK || kiln_diag_count(s->diag) > 0;
  if (st != KILN_OK && st != KILN_NO_MEMORY)
    for (size_t i = 0; i < kiln_diag_count(s->diag); i++)
      fprintf(stderr, "    %s\n", kiln_diag_message(s->diag, i));
  kiln_diag_destroy(s->diag);
  (void)unlink(s->f.module);
  return st;
}

// The error after that allocation was refused; NULL: none.
static const char *complaint(scene *s, const way *w, long n, bool all, bool is_warm) {
  static char text[128];
  const uint64_t want = s->sum;
  const int files = is_warm ? folder_count(&s->f) : 0;
  const long live = atomic_load(&n_live);
  kiln_status st = do_once(s, w, n, all);
  const long left = atomic_load(&n_live) - live;
  if (st != KILN_OK && !(s->was_refused && st == KILN_NO_MEMORY)) {
    snprintf(text, sizeof text, "%s", kiln_status_name(st));
    return text;
  }
  if (!s->has_message) return "a failure without a message";
  if (st == KILN_OK && is_warm && s->sum != want) return "other results";
  if (is_warm && left != 0) {
    snprintf(text, sizeof text, "%s, and %ld blocks left", kiln_status_name(st), left);
    return text;
  }
  if (is_warm && folder_count(&s->f) != files) return "files left";
  st = do_once(s, w, 0, false);
  if (st != KILN_OK || (is_warm && s->sum != want)) return "it cannot be done again";
  return NULL;
}

// In a child. Whether nothing is wrong.
static bool try_one(scene *s, const way *w, long n, bool all, bool is_warm) {
  int status = 0;
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    for (int i = 1; i < NSIG; i++) (void)signal(i, SIG_DFL); // cmocka's would not let it end
    const char *wrong = complaint(s, w, n, all, is_warm);
    if (wrong)
      fprintf(stderr, "%s: allocation %ld%s%s: %s\n", w->name, n, all ? " and all behind it" : "",
              is_warm ? "" : ", cold", wrong);
    _exit(wrong ? 1 : 0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status))
    fprintf(stderr, "%s: allocation %ld%s%s: signal %d\n", w->name, n,
            all ? " and all behind it" : "", is_warm ? "" : ", cold", WTERMSIG(status));
  return status == 0;
}

static int try_some(scene *s, const way *w, long n_all, long step, bool is_warm) {
  int wrong = 0;
  for (long n = 1, i = 0; n <= n_all; n += n <= FIRST ? 1 : step, i++) {
    if (step_asked > 0 || i % 2 == 0) wrong += !try_one(s, w, n, false, is_warm);
    if (step_asked > 0 || i % 2 != 0) wrong += !try_one(s, w, n, true, is_warm);
  }
  return wrong;
}

static int try_way(scene *s, const way *w, long step) {
  int wrong = step > 0 ? 0 : try_some(s, w, FIRST, 1, false);
  // twice: what libraries keep for good is made, and then the allocations are always as many
  for (int i = 0; i < 2; i++) assert_int_equal(do_once(s, w, 0, false), KILN_OK);
  const long before = atomic_load(&n_asked);
  assert_int_equal(do_once(s, w, 0, false), KILN_OK);
  const long n = atomic_load(&n_asked) - before;
  printf("%s: %ld allocations\n", w->name, n);
  wrong += try_some(s, w, n, step > 0 ? step : n / SPREAD + 1, true);
  return wrong;
}

static scene *scene_make(void) {
  scene *s = calloc(1, sizeof *s);
  assert_non_null(s);
  s->f = folder_make();
  setenv("KILN_CACHE_DIR", s->f.path, 1);
  save_mlp(s->f.model, "batch");
  for (int i = 0; i < BATCH * IN; i++) s->x[i] = (float)(i * 7 % 31 - 15) / 16;
  for (int i = 0; i < BATCH; i++) s->ids[i] = i;
  snprintf(s->tc, sizeof s->tc, "%s/m.tc", s->f.path);
  FILE *f = fopen(s->tc, "w");
  assert_non_null(f);
  fputs("def mm(float(M, K) A, float(K, N) B) -> (C, D) {\n"
        "  C(m, n) +=! A(m, k) * B(k, n)\n  D(m, n) = max(C(m, n), 0)\n}\n",
        f);
  fclose(f);
  return s;
}

static void a_refused_allocation_is_a_status(void **state) {
  (void)state;
  scene *s = scene_make();
  int wrong = 0;
  for (size_t i = 0; i < KILN_LEN(ways); i++)
    if (!way_asked || !strcmp(way_asked, ways[i].name)) wrong += try_way(s, &ways[i], step_asked);
  folder_remove(&s->f);
  free(s);
  assert_int_equal(wrong, 0);
}

int main(int argc, char **argv) {
  if (argc > 1) step_asked = atol(argv[1]);
  if (argc > 2) way_asked = argv[2];
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_refused_allocation_is_a_status)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

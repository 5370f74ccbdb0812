// Fuzzing of what reads schedules and IR: random changes of real scripts, replayed on small
// kernels; of the text of the loops that come of it; and of the text of programs.
//
//     fuzz_script [N [SEED]]
//
// runs N inputs (20,000 by default, some seconds; the long run is 500,000 in a build with
// -DKILN_SANITIZE=ON) and fails when accepted loops break an invariant, when a script does not
// replay to what it made, or when an input takes a second. Crashes and leaks are for the
// sanitizers.
#include "schedule/holes.h"
#include "schedule/schedule.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROOM = 1 << 13, SLOW_MS = 1000 };

static const char *const programs[] = {
    "mm { in f32 A(4, 3) const f32 B(3, 5) = ... in f32 D(5) temp f32 C(4, 5) out f32 Y(4, 5) "
    "C(i0:4, i1:5 | r0:3) +=! A(i0, r0) * B(r0, i1) "
    "Y(i0:4, i1:5) = max(C(i0, i1) + D(i1), 0f32) }",
    "blur { in f32 X(6, 6) temp f32 C(6, 4) out f32 Y(4, 4) "
    "C(i0:6, i1:4 | r0:3) +=! X(i0, i1 + r0) "
    "Y(i0:4, i1:4 | r0:3) +=! C(i0 + r0, i1) }",
    "softmax { in f32 X(3, 4) temp f32 M(3) temp f32 C(3, 4) temp f32 S(3) out f32 Y(3, 4) "
    "M(i0:3 | r0:4) max=! X(i0, r0) C(i0:3, i1:4) = exp(X(i0, i1) - M(i0)) "
    "S(i0:3 | r0:4) +=! C(i0, r0) Y(i0:3, i1:4) = C(i0, i1) / S(i0) }",
    "put { in f32 X(3, 2) in i64 I(3) in f32 Z(3, 2) out f32 Y(3, 2) "
    "Y(i0:3, i1:2) at (I(i0), i1) = X(i0, i1) init (Z(o0, o1)) }",
    "\"odd name\" { in f32 \"x y\"(5) temp f32 \"C#1\"(5) out f32 Y(5) "
    "\"C#1\"(i0:5) = \"x y\"(i0) + 1f32 Y(i0:5) = \"C#1\"(4 - i0) }",
    "none { in f32 X(0, 3) temp f32 C(0, 3) out f32 Y(0, 3) C(i0:0, i1:3) = X(i0, i1) "
    "Y(i0:0, i1:3) = C(i0, i1) }",
};

static const char *const scripts[] = {
    "split Y.i0 2 guard Y.i0.o Y.i0.i\nsplit Y.i1 ?{2,3,4} shift Y.i1.o Y.i1.i\n"
    "reorder Y.i0.o Y.i1.o Y.i0.i Y.i1.i\ncompute_at C Y.i1.o local\nparallel Y.i0.o\n"
    "vectorize Y.i1.i\nunroll Y.i0.i\n",
    "stage B 0 workspace P 1/?b{2,4} 0 1%?b\nsplit C.i1 ?b peel jo ji\nreorder C.i0 jo C.r0 ji\n"
    "vectorize ji\nparallel C.i0\n",
    "tile Y.i0 Y.i1 2 2 round a b c d\nbind a block.x\nbind b block.y\nbind c thread.x\n"
    "compute_at C b shared\nannotate a \"k#y\" v\n",
    "fuse C.init.i0 C.init.i1 f\nparallel f\nrfactor C.r0 R\npad C.init.i0 4\ntidy\n",
    "pad C.init.i1 8\npad C.i1 8 # to whole vectors\ntransform_layout C 1/4 0 1%4\n"
    "storage_align C 0 16 1\nprefetch X Y.i0 2\n",
    "split C.r0 2 guard ko ki\nreorder C.i0 ko C.i1 ki\nstage A ko local Q 0 1^4\n"
    "pipeline Q ko 2\nspecialize ko ko < 1 && C.i0 >= 0\npeel C.i0 1\n",
    "inline C\nsplit Y.i0 2 exact o i\nmerge M.i0 S.i0 0\nstore_at C o fold\n",
    "compute_root C\ncache_write Y W 1 0\ncompute_at W Y.copy.0 register\n"
    "decompose_reduction C C.r0\nreverse_compute_at Y C.i0\n",
    "split \"C#1.i0\" 2 guard \"p q\" i\ncompute_at \"C#1\" Y.i0 local\nstage \"x y\" i local L "
    "0\n",
    "kernel mm\nparallel Y.i0\nkernel \"odd name\"\nunroll Y.i0\n",
    "parallel Y.i0\nsplit Y.i1 4 guard jo ji\nvectorize ji\ntensorize ji fma\n",
};

static const char *const words[] = {
    "split",
    "tile",
    "fuse",
    "reorder",
    "parallel",
    "vectorize",
    "unroll",
    "bind",
    "distribute",
    "replicate",
    "use_copy",
    "like",
    "compute_at",
    "store_at",
    "compute_root",
    "inline",
    "reverse_compute_at",
    "stage",
    "cache_write",
    "rfactor",
    "stream_k",
    "decompose_reduction",
    "pipeline",
    "pad",
    "transform_layout",
    "view",
    "storage_align",
    "tensorize",
    "specialize",
    "prefetch",
    "annotate",
    "cluster",
    "warp_specialize",
    "fuse_horizontally",
    "merge",
    "peel",
    "tidy",
    "kernel",
    "guard",
    "shift",
    "round",
    "exact",
    "local",
    "shared",
    "register",
    "workspace",
    "param",
    "block.x",
    "thread.y",
    "Y.i0",
    "Y.i1",
    "Y.r0",
    "C.i0",
    "C.i1",
    "C.r0",
    "C.init.i0",
    "C.init.i1",
    "M.i0",
    "S.i0",
    "S.r0",
    "X",
    "Y",
    "C",
    "A",
    "B",
    "D",
    "M",
    "S",
    "I",
    "Z",
    "n1",
    "n2",
    "n3",
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "8",
    "16",
    "-1",
    "1000000",
    "9223372036854775807",
    "0/2",
    "0%2",
    "1/4",
    "1%4",
    "1^8",
    "?{2,4}",
    "?x{1,2}",
    "?x",
    "\"",
    "\"x y\"",
    "#",
    "Y.i0 < 2",
    "X[0, 0] > 0f32",
    "==",
    "&&",
    "\n",
};

typedef struct input {
  uint64_t seed;
  uint64_t steps; // accepted so far
  char text[ROOM];
} input;

static uint32_t next(input *in) {
  in->seed = in->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(in->seed >> 33);
}

static size_t pick(input *in, size_t n) { return n ? next(in) % n : 0; }

// Replaces [at, at + n) by |with|, if there is room.
static void splice(input *in, size_t at, size_t n, const char *with) {
  const size_t length = strlen(in->text), added = strlen(with);
  if (length - n + added >= ROOM) return;
  memmove(in->text + at + added, in->text + at + n, length - at - n + 1);
  memcpy(in->text + at, with, added);
}

static void change_word(input *in) {
  size_t at = pick(in, strlen(in->text));
  while (at > 0 && !strchr(" \n", in->text[at - 1])) at--;
  const size_t n = strcspn(in->text + at, " \n");
  const char *word = words[pick(in, KILN_LEN(words))];
  const size_t how = pick(in, 8);
  if (how == 0) splice(in, at, n, "");
  else if (how == 1) splice(in, at, 0, " ");
  else splice(in, at, n, word);
}

static void change_bytes(input *in) {
  const size_t length = strlen(in->text), at = pick(in, length);
  char byte[2] = {(char)(1 + pick(in, 255)), 0};
  switch (pick(in, 4)) {
  case 0: splice(in, at, length ? 1 : 0, byte); break;
  case 1: splice(in, at, 0, byte); break;
  case 2: splice(in, at, length > at ? pick(in, length - at) : 0, ""); break;
  default: splice(in, at, 0, words[pick(in, KILN_LEN(words))]); break;
  }
}

static size_t line_at(input *in) {
  size_t at = pick(in, strlen(in->text));
  while (at > 0 && in->text[at - 1] != '\n') at--;
  return at;
}

static void change_lines(input *in) {
  char line[256];
  const size_t from = line_at(in), n = strcspn(in->text + from, "\n");
  snprintf(line, sizeof line, "%.*s\n", (int)(n < 200 ? n : 200), in->text + from);
  if (pick(in, 2)) splice(in, from, n + (in->text[from + n] == '\n'), "");
  if (pick(in, 4)) splice(in, line_at(in), 0, line);
}

static void make_script(input *in) {
  snprintf(in->text, ROOM, "%s", scripts[pick(in, KILN_LEN(scripts))]);
  if (pick(in, 2)) splice(in, line_at(in), 0, scripts[pick(in, KILN_LEN(scripts))]);
  for (size_t n = pick(in, 6); n > 0; n--) {
    const size_t how = pick(in, 8);
    if (how < 5) change_word(in);
    else if (how < 7) change_lines(in);
    else change_bytes(in);
  }
}

// --- what must hold ---

static void fail(const input *in, const char *what, const kiln_diag *diag) {
  const size_t n = kiln_diag_count(diag);
  fprintf(stderr, "%s\n%s\ninput:\n%s\n", what, n ? kiln_diag_message(diag, n - 1) : "", in->text);
  exit(1);
}

static const char *text_of(kiln_ctx *cx, const kiln_loops *l) {
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  kiln_loops_print(cx, l, &t);
  return t.data;
}

static void check_replay(kiln_ctx *cx, const input *in, const kiln_schedule *s) {
  kiln_schedule again;
  const char *script = kiln_schedule_script(s);
  if (kiln_schedule_begin(cx, s->prog, &again) != KILN_OK ||
      kiln_schedule_replay(&again, script) != KILN_OK)
    fail(in, script, cx->diag);
  if (strcmp(text_of(cx, again.loops), text_of(cx, s->loops)) != 0 ||
      strcmp(kiln_schedule_script(&again), script) != 0)
    fail(in, "the script makes other loops", cx->diag);
}

// Line by line, those that are refused left out.
static kiln_status replay_lines(kiln_schedule *s, const char *script) {
  kiln_status worst = KILN_OK;
  while (*script) {
    const size_t n = strcspn(script, "\n");
    const char *line = kiln_arena_strndup(&s->cx->perm, script, n);
    const kiln_status st = kiln_schedule_replay_file(s, line, "f", 1);
    if (st != KILN_OK && worst <= KILN_BAD_INPUT) worst = st;
    script += n + (script[n] == '\n');
  }
  return worst;
}

// Replays every section, holes filled at random.
static void run_script(kiln_ctx *cx, input *in, const kiln_program *p, kiln_loops **out) {
  kiln_sections sections;
  kiln_schedule s;
  *out = NULL;
  if (kiln_sections_parse(cx, in->text, "f", &sections) != KILN_OK) return;
  for (int i = 0; i < sections.n; i++) {
    const kiln_section *part = &sections.data[i];
    kiln_space *space = NULL;
    const char *plain = part->text;
    if (kiln_schedule_begin(cx, p, &s) != KILN_OK) fail(in, "begin", cx->diag);
    if (kiln_space_parse(cx, part->text, "f", part->first_line, &space) == KILN_OK) {
      int *choices = KILN_NEW_ARRAY(&cx->perm, int, space->n_holes);
      kiln_space_draw(space, in->seed, choices);
      plain = kiln_space_fill(cx, space, choices);
    }
    const kiln_status st = pick(in, 4)
                               ? replay_lines(&s, plain)
                               : kiln_schedule_replay_file(&s, plain, "f", part->first_line);
    if (st != KILN_OK && st != KILN_BAD_INPUT) fail(in, "status", cx->diag);
    for (const char *c = kiln_schedule_script(&s); *c; c++) in->steps += *c == '\n';
    if (kiln_loops_verify(cx, s.loops) != KILN_OK) fail(in, text_of(cx, s.loops), cx->diag);
    if (pick(in, 16) == 0) check_replay(cx, in, &s);
    *out = s.loops;
  }
}

// Changes the loops' text, and reads what has come of it.
static void run_loops(kiln_ctx *cx, input *in, const kiln_loops *l) {
  kiln_loops *read = NULL;
  const char *text = text_of(cx, l);
  if (kiln_loops_parse(cx, text, &read) != KILN_OK) fail(in, text, cx->diag);
  if (strcmp(text_of(cx, read), text) != 0) fail(in, text, cx->diag);
  snprintf(in->text, ROOM, "%s", text);
  for (size_t n = 1 + pick(in, 4); n > 0; n--) pick(in, 2) ? change_bytes(in) : change_word(in);
  if (kiln_loops_parse(cx, in->text, &read) == KILN_OK) (void)!kiln_loops_verify(cx, read);
}

static void run_program(kiln_ctx *cx, input *in, const char *program) {
  kiln_program *p = NULL;
  snprintf(in->text, ROOM, "%s", program);
  for (size_t n = 1 + pick(in, 4); n > 0; n--) pick(in, 2) ? change_bytes(in) : change_word(in);
  if (kiln_program_parse(cx, in->text, &p) == KILN_OK) (void)!kiln_program_verify(cx, p);
}

static kiln_status run_one(kiln_ctx *cx, void *argument) {
  input *in = argument;
  const char *program = programs[pick(in, KILN_LEN(programs))];
  kiln_program *p = NULL;
  kiln_loops *loops = NULL;
  if (pick(in, 8) == 0) {
    run_program(cx, in, program);
    return KILN_OK;
  }
  make_script(in);
  if (kiln_program_parse(cx, program, &p) != KILN_OK) fail(in, program, cx->diag);
  run_script(cx, in, p, &loops);
  if (loops && pick(in, 4) == 0) run_loops(cx, in, loops);
  return KILN_OK;
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
  const uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
  const uint64_t from = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  double slowest = 0;
  static input in;
  for (uint64_t i = 0; i < n; i++) {
    kiln_ctx cx;
    kiln_diag *diag = kiln_diag_create();
    in.seed = (from + i) * UINT64_C(0x9e3779b97f4a7c15);
    if (!diag || kiln_ctx_init(&cx, diag) != KILN_OK) return 1;
    const double start = now_ms();
    if (kiln_ctx_enter(&cx, run_one, &in) != KILN_OK) fail(&in, "no memory", diag);
    const double ms = now_ms() - start;
    if (ms > SLOW_MS) fail(&in, "too slow", diag);
    if (ms > slowest) slowest = ms;
    kiln_ctx_deinit(&cx);
    kiln_diag_destroy(diag);
  }
  printf("%llu inputs, %llu steps accepted, the slowest input in %.1f ms\n", (unsigned long long)n,
         (unsigned long long)in.steps, slowest);
  return 0;
}

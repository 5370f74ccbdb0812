// The text of a cached schedule: a line for each round of materialized paddings, one for each fused
// group with the number of its kernel, then templates, scripts and loops with their lengths.
#include "fuse/cached_schedule.h"
#include "schedule/instr.h"
#include "target/target.h"
#include "transform/transform.h"

#include <stdlib.h>
#include <string.h>

static const char head[] = "parts ", materialized[] = "materialized ";

const char *kiln_schedule_key(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts) {
  kiln_text t;
  kiln_text_init(&t, &cx->scratch);
  kiln_program_print(cx, p, &t);
  for (int i = 0; i < p->tensors.n; i++) { // kiln_program_text leaves this out
    const kiln_tensor *x = p->tensors.data[i];
    if (x->inside) kiln_text_printf(&t, "inside %d %d %" PRId64 "\n", i, x->inside->id, x->offset);
  }
  for (int i = 0; i < p->stmts.n; i++)
    if (!p->stmts.data[i]) kiln_text_printf(&t, "gone %d\n", i);
  kiln_facts_print(cx, p, facts, "", &t);
  return t.data;
}

// --- loops ---

kiln_loops *kiln_cached_kernel_loops(kiln_ctx *cx, const kiln_machine *m,
                                     const kiln_cached_kernel *a) {
  kiln_instr_table known = {.cx = cx};
  kiln_loops *l = NULL;
  if (!a->loops[0]) return NULL;
  known.instrs = m->target->instrs(cx, m, &known.n);
  kiln_diag *outer = cx->diag;
  cx->diag = NULL; // a failure is no error: the script is stored as well
  const bool right =
      kiln_loops_parse_with(cx, a->loops, kiln_instr_find_in, &known, &l) == KILN_OK &&
      kiln_loops_verify(cx, l) == KILN_OK;
  cx->diag = outer;
  return right ? l : NULL;
}

static const char *loops_text(kiln_ctx *cx, const kiln_loops *l) {
  kiln_text t;
  kiln_text_init(&t, &cx->scratch);
  kiln_loops_print(cx, l, &t);
  return t.data;
}

typedef struct reading {
  kiln_ctx own; // owns the loops that are read, and is destroyed with them
  bool is_open;
  const kiln_machine *m;
  const char *text;
  bool prints_alike;
} reading;

static kiln_status read_back(kiln_ctx *cx, void *argument) {
  reading *r = argument;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_cached_kernel a = {.loops = r->text};
  const kiln_loops *l = kiln_cached_kernel_loops(cx, r->m, &a);
  r->prints_alike = l && strcmp(loops_text(cx, l), r->text) == 0;
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

// The text of |l| if it parses to loops that print the same text; else "".
static const char *print_loops(kiln_ctx *cx, reading *r, const kiln_loops *l) {
  r->text = loops_text(cx, l);
  r->prints_alike = false;
  return r->is_open && kiln_ctx_enter(&r->own, read_back, r) == KILN_OK && r->prints_alike ? r->text
                                                                                           : "";
}

// --- printing ---

static void print_text(kiln_text *t, const char *text) {
  kiln_text_printf(t, "%zu\n", strlen(text));
  kiln_text_add(t, text);
  kiln_text_add(t, "\n");
}

static void print_scripts(kiln_ctx *cx, reading *r, const kiln_kernels *k, kiln_text *t) {
  kiln_text_printf(t, "scripts %d\n", k->kernels.n);
  for (int i = 0; i < k->kernels.n; i++) {
    const kiln_mark mark = kiln_arena_mark(&cx->scratch);
    const kiln_template *from = k->kernels.data[i]->from;
    print_text(t, from ? from->name : "");
    print_text(t, k->kernels.data[i]->script);
    print_text(t, print_loops(cx, r, k->kernels.data[i]->loops));
    kiln_arena_rewind(&cx->scratch, mark);
  }
}

static void deinit_ctx(void *cx) { kiln_ctx_deinit(cx); }

const char *kiln_cached_schedule_print(kiln_ctx *cx, const kiln_machine *m, const kiln_kernels *k) {
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  for (int i = 0; i < k->materialized.n; i++) {
    kiln_text_printf(&t, "%s%d", materialized, k->materialized.data[i].n);
    for (int s = 0; s < k->materialized.data[i].n; s++)
      kiln_text_printf(&t, " %d", k->materialized.data[i].stmts[s]);
    kiln_text_add(&t, "\n");
  }
  kiln_text_printf(&t, "%s%d\n", head, k->launches.n);
  for (int i = 0; i < k->launches.n; i++) {
    const kiln_launch *l = &k->launches.data[i];
    kiln_text_printf(&t, "%d %d %d", l->kernel, (int)k->kernels.data[l->kernel]->kind, l->n_stmts);
    for (int s = 0; s < l->n_stmts; s++)
      kiln_text_printf(&t, " %d%s", l->stmts[s], l->stored >> s & 1 ? "*" : "");
    kiln_text_add(&t, "\n");
  }
  reading *r = KILN_NEW(&cx->perm, reading);
  r->m = m;
  r->is_open = kiln_ctx_init(&r->own, NULL) == KILN_OK;
  kiln_cleanup_push(cx, deinit_ctx, &r->own);
  print_scripts(cx, r, k, &t);
  kiln_cleanup_pop(cx);
  kiln_ctx_deinit(&r->own);
  return t.data;
}

// --- reading ---

// The number at the cursor, which must be in [low, high]; -1 otherwise.
static long read_number(const char **at, long low, long high) {
  char *end = NULL;
  const long n = strtol(*at, &end, 10);
  if (end == *at || n < low || n > high) return -1;
  *at = end;
  return n;
}

static bool read_group(kiln_ctx *cx, const kiln_program *p, const char **at, kiln_group *out) {
  const long kind = read_number(at, 0, KILN_GROUP_FUSED_LAYERS),
             n = read_number(at, 1, KILN_MAX_MEMBERS);
  if (kind < 0 || n < 0) return false;
  *out = (kiln_group){
      .kind = (kiln_group_kind)kind, .n_stmts = (int)n, .stmts = KILN_NEW_ARRAY(&cx->perm, int, n)};
  for (int i = 0; i < n; i++) {
    const long s = read_number(at, 0, p->stmts.n - 1);
    if (s < 0 || !p->stmts.data[s]) return false;
    out->stmts[i] = (int)s;
    if (**at != '*') continue;
    out->stored |= (uint64_t)1 << i;
    ++*at;
  }
  return true;
}

static bool read_materialized(kiln_ctx *cx, kiln_program *p, kiln_facts *facts, const char **at,
                              kiln_kernels *io) {
  while (!strncmp(*at, materialized, sizeof materialized - 1)) {
    *at += sizeof materialized - 1;
    const long n = read_number(at, 1, p->stmts.n);
    if (n < 0) return false;
    int *stmts = KILN_NEW_ARRAY(&cx->perm, int, n);
    for (int i = 0; i < n; i++) {
      const long s = read_number(at, i > 0 ? stmts[i - 1] + 1 : 0, p->stmts.n - 1);
      if (s < 0 || !p->stmts.data[s] || !kiln_fact_of(facts, p->stmts.data[s]->out).waits)
        return false;
      stmts[i] = (int)s;
    }
    if (kiln_tile_materialize(cx, p, facts, (int)n, stmts) != KILN_OK) return false;
    KILN_VEC_PUSH(&cx->perm, &io->materialized, (kiln_materialized){(int)n, stmts});
    if (**at != '\n') return false;
    ++*at;
  }
  return true;
}

static bool read_parts(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                       const kiln_machine *m, const char **at, kiln_fused_groups *out) {
  if (strncmp(*at, head, sizeof head - 1) != 0) return false;
  *at += sizeof head - 1;
  const long n = read_number(at, 0, p->stmts.n);
  int n_kernels = 0;
  for (long i = 0; i < n; i++) {
    kiln_fused_group fusion = {.kernel = (int)read_number(at, 0, n_kernels)};
    if (fusion.kernel < 0 || !read_group(cx, p, at, &fusion.group) ||
        kiln_tile_outline_keyless(cx, p, facts, &fusion.group, m, &fusion.outline) != KILN_OK)
      return false;
    n_kernels += fusion.kernel == n_kernels;
    KILN_VEC_PUSH(&cx->perm, out, fusion);
  }
  return n >= 0;
}

// The text that follows its length; NULL if there is none.
static const char *read_text(kiln_ctx *cx, const char **at, const char *end) {
  const long bytes = read_number(at, 0, end - *at);
  if (bytes < 0 || **at != '\n' || end - *at < 1 + bytes) return NULL;
  const char *text = kiln_arena_strndup(&cx->perm, *at + 1, (size_t)bytes);
  *at += 1 + bytes;
  return text;
}

static bool read_kernels(kiln_ctx *cx, const char **at, const char *end, int most,
                         kiln_cached_kernel **out, int *out_n) {
  static const char word[] = "\nscripts ";
  if (strncmp(*at, word, sizeof word - 1) != 0) return false;
  *at += sizeof word - 1;
  const long n = read_number(at, 0, most);
  *out = KILN_NEW_ARRAY(&cx->perm, kiln_cached_kernel, n);
  for (*out_n = 0; *out_n < n; ++*out_n) {
    kiln_cached_kernel *k = &(*out)[*out_n];
    if (!(k->from = read_text(cx, at, end)) || !(k->script = read_text(cx, at, end)) ||
        !(k->loops = read_text(cx, at, end)))
      return false;
  }
  return n >= 0;
}

bool kiln_cached_schedule_read(kiln_ctx *cx, kiln_program *p, kiln_facts *facts,
                               const kiln_machine *m, const char *text, kiln_kernels *io,
                               kiln_fused_groups *out_fusions, kiln_cached_kernel **out_kernels,
                               int *out_n_kernels) {
  kiln_diag *outer = cx->diag;
  const char *end = text + strlen(text);
  *out_fusions = (kiln_fused_groups){0};
  cx->diag = NULL; // text that does not parse is a miss, and reports no error
  const bool right = read_materialized(cx, p, facts, &text, io) &&
                     read_parts(cx, p, facts, m, &text, out_fusions) &&
                     read_kernels(cx, &text, end, out_fusions->n, out_kernels, out_n_kernels);
  cx->diag = outer;
  return right;
}

// Verification of definitions at random sizes.
//
// Rejection sampling: sizes are drawn at random, and used if the definition accepts them and is
// cheap to interpret. Constraints of a definition (H at least KH, H even) thus need not be solved.
// The draws are the same in every run.
#include "verify/ragged.h"
#include "tile/query.h"

#include <string.h>

enum { N_CHOICES = 3, MAX_DRAWS = 400, MAX_DIMS = 64 };
#define CHEAP_FLOPS 4e6 // of a run in the interpreter

typedef struct ragged {
  kiln_ctx *cx;
  const kiln_compiler *compiler;
  const char *path;
  const kiln_compile_options *options;
  const kiln_verify_options *verify;
  kiln_diag *diag;          // the caller's
  kiln_diag *first, *tried; // of the first draw; of the current draw
  uint64_t random;
  const kiln_tc_signature *definition; // the current one
  int nth;                             // index among the valid definitions
  int n_dims;
  kiln_dim_value dims[MAX_DIMS];
  const char *sizes; // "matmul M=7 N=17"
  size_t failed;
} ragged;

// --- drawing sizes ---

static int64_t next_size(ragged *r, bool small) {
  static const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 12, 17, 33};
  r->random = r->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return sizes[(r->random >> 33) % (small ? 5 : KILN_LEN(sizes))];
}

static bool is_given(const ragged *r, const char *name) {
  for (size_t i = 0; i < r->options->n_dims; i++)
    if (strcmp(r->options->dims[i].name, name) == 0) return true;
  return false;
}

static void set(ragged *r, const char *name, int64_t value) {
  if (r->n_dims < MAX_DIMS && !is_given(r, name))
    r->dims[r->n_dims++] = (kiln_dim_value){name, value};
}

// Adds the sizes given by the user for this definition.
static void add_given(ragged *r) {
  const kiln_tc_signature *s = r->definition;
  for (size_t i = 0; i < r->options->n_dims && r->n_dims < MAX_DIMS; i++) {
    const char *name = r->options->dims[i].name;
    const size_t n = strcspn(name, ".");
    for (int k = 0; k < s->n_sizes; k++)
      if (strlen(s->sizes[k]) == n && strncmp(s->sizes[k], name, n) == 0) {
        r->dims[r->n_dims++] = r->options->dims[i];
        break;
      }
  }
}

static void add_pack(ragged *r, const char *name, bool small) {
  int64_t rank = 1 + next_size(r, true) % 3;
  for (size_t i = 0; i < r->options->n_dims; i++)
    if (strcmp(r->options->dims[i].name, kiln_arena_printf(&r->cx->perm, "%s.rank", name)) == 0)
      rank = r->options->dims[i].value;
  set(r, kiln_arena_printf(&r->cx->perm, "%s.rank", name), rank);
  for (int64_t k = 0; k < rank && k < KILN_MAX_RANK; k++) // binding refuses higher ranks
    set(r, kiln_arena_printf(&r->cx->perm, "%s.%d", name, (int)k), next_size(r, small));
}

static const char *sizes_text(ragged *r) {
  kiln_text t;
  kiln_text_init(&t, &r->cx->perm);
  kiln_text_add(&t, r->definition->name);
  for (int i = 0; i < r->n_dims; i++)
    kiln_text_printf(&t, " %s=%" PRId64, r->dims[i].name, r->dims[i].value);
  return t.data;
}

// Some draws give all sizes the same value, for definitions that need equal sizes.
static void draw(ragged *r, int round) {
  static const int64_t equal[] = {17, 8, 7, 4};
  const kiln_tc_signature *s = r->definition;
  r->n_dims = 0;
  add_given(r);
  for (int i = 0; i < s->n_sizes; i++) {
    const bool small = s->n_sizes > 3 && round % 2;
    if (s->packs[i]) add_pack(r, s->sizes[i], small);
    else if (round % 8 == 5) set(r, s->sizes[i], equal[(round / 8) % 4]);
    else set(r, s->sizes[i], next_size(r, small));
  }
  r->sizes = sizes_text(r);
}

// --- one draw ---

static void pass_on(void *user, const kiln_verify_result *result) {
  ragged *r = user;
  kiln_verify_result named = *result;
  named.nodes = r->sizes;
  if (r->verify->on_result) r->verify->on_result(r->verify->user, &named);
}

static kiln_status load(const ragged *r, const char *schedule, kiln_diag *diag,
                        kiln_model **out_model) {
  kiln_compile_options o = *r->options;
  o.struct_size = sizeof o;
  o.dims = r->dims;
  o.n_dims = (size_t)r->n_dims;
  o.schedule = schedule;
  return r->compiler->load(r->path, &o, r->nth, diag, out_model);
}

static kiln_status check_model(ragged *r, kiln_model *m, kiln_diag *diag) {
  kiln_verify_options v = *r->verify;
  size_t failed = 0;
  v.on_result = pass_on;
  v.user = r;
  const kiln_status st = kiln_model_verify(m, &v, diag, &failed);
  r->failed += failed;
  return st;
}

// Also checks the unscheduled loops, in addition to those of the user or Kiln.
static kiln_status check_naive(ragged *r, kiln_diag *diag) {
  kiln_model *m = NULL;
  kiln_status st = load(r, "", diag, &m);
  if (st == KILN_OK) st = check_model(r, m, diag);
  kiln_model_destroy(m);
  return st;
}

// Binds the definition to the current sizes and checks it if it has at most |most| operations.
// *out_flops: operations; -1: the sizes do not fit, with the reason in |diag|.
static kiln_status check_choice(ragged *r, kiln_diag *diag, double most, double *out_flops) {
  kiln_model *m = NULL;
  kiln_status st = load(r, r->options->schedule, diag, &m);
  const bool fits = st == KILN_OK && kiln_model_want_program(m, diag) == KILN_OK;
  *out_flops = fits ? kiln_program_flops(&m->core->cx, m->prog) : -1;
  if (fits && *out_flops <= most) {
    st = check_model(r, m, diag);
    if (st == KILN_OK) st = check_naive(r, diag);
  }
  kiln_model_destroy(m);
  return st;
}

// --- one definition ---

static kiln_status no_choice(ragged *r, kiln_status st) {
  kiln_diag_append(r->diag, r->first);
  return KILN_FAIL(r->diag, st == KILN_OK ? KILN_BAD_INPUT : st, r->path,
                   "definition %s: must fit one of %d choices of its sizes, got none: give sizes "
                   "with --size",
                   r->definition->name, MAX_DRAWS);
}

// Results of all draws for a definition.
typedef struct draws {
  int n_checked;
  kiln_status refused;
  double cheapest; // fewest operations of a draw that fits; -1: none
  int n_dims;
  kiln_dim_value dims[MAX_DIMS];
} draws;

static kiln_status try_draw(ragged *r, draws *d, int round) {
  kiln_diag *diag = round == 0 ? r->first : r->tried;
  double flops = -1;
  kiln_diag_clear(diag);
  draw(r, round);
  const kiln_status st = check_choice(r, diag, CHEAP_FLOPS, &flops);
  const bool is_checked = flops >= 0 && flops <= CHEAP_FLOPS;
  const bool is_answer = st == KILN_BAD_INPUT || st == KILN_UNSUPPORTED;
  if (st != KILN_OK && (is_checked || !is_answer)) {
    kiln_diag_append(r->diag, diag);
    return st;
  }
  if (st != KILN_OK) d->refused = st;
  d->n_checked += is_checked;
  if (flops < 0 || (d->cheapest >= 0 && flops >= d->cheapest)) return KILN_OK;
  d->cheapest = flops;
  d->n_dims = r->n_dims;
  memcpy(d->dims, r->dims, sizeof d->dims);
  return KILN_OK;
}

// Checks the cheapest draw that fits, if all were too expensive because of the definition itself.
static kiln_status check_cheapest(ragged *r, const draws *d) {
  double flops = 0;
  r->n_dims = d->n_dims;
  memcpy(r->dims, d->dims, sizeof d->dims);
  r->sizes = sizes_text(r);
  return check_choice(r, r->diag, d->cheapest, &flops);
}

static kiln_status check_definition(ragged *r) {
  const int most = r->definition->n_sizes > 0 ? MAX_DRAWS : 1;
  draws d = {.cheapest = -1};
  r->random = r->verify->seed;
  kiln_diag_clear(r->first);
  for (int round = 0; round < most && d.n_checked < N_CHOICES; round++)
    KILN_TRY(try_draw(r, &d, round));
  if (d.n_checked > 0) return KILN_OK;
  return d.cheapest >= 0 ? check_cheapest(r, &d) : no_choice(r, d.refused);
}

static kiln_status check_file(kiln_ctx *cx, void *argument) {
  ragged *r = argument;
  const char *text = NULL;
  int n = 0;
  kiln_tc_signature *all = NULL;
  bool found = false;
  r->cx = cx;
  KILN_TRY(kiln_text_take(cx, r->options, r->path, &text));
  kiln_status worst = kiln_tc_signatures(cx, r->path, text, false, &n, &all);
  for (int i = 0; i < n; i++) {
    if (r->options->entry && strcmp(all[i].name, r->options->entry) != 0) continue;
    found = true;
    r->definition = &all[i];
    r->nth = i;
    const kiln_status st = check_definition(r);
    if (st == KILN_NO_MEMORY) return st;
    if (worst == KILN_OK) worst = st;
  }
  kiln_program *none; // for the message of a program that cannot be made
  return found || worst != KILN_OK
             ? worst
             : kiln_tc_program(cx, r->path, text, r->options->entry, 0, NULL, &none);
}

kiln_status kiln_ragged_verify(const kiln_compiler *compiler, const char *path,
                               const kiln_compile_options *options,
                               const kiln_verify_options *verify, kiln_diag *diag,
                               size_t *out_failed) {
  kiln_compile_options o = {0};
  kiln_verify_options v = {.struct_size = sizeof v};
  ragged r = {.compiler = compiler, .path = path, .options = &o, .verify = &v, .diag = diag};
  kiln_ctx cx;
  if (options)
    memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  KILN_TRY(kiln_options_check(&o, diag));
  if (verify) memcpy(&v, verify, verify->struct_size < sizeof v ? verify->struct_size : sizeof v);
  v.struct_size = sizeof v;
  o.dump = NULL; // dumps of many compilations would be indistinguishable
  kiln_status st = kiln_ctx_init(&cx, diag);
  if (st != KILN_OK) return st;
  r.first = kiln_diag_create();
  r.tried = kiln_diag_create();
  st = r.first && r.tried ? kiln_ctx_enter(&cx, check_file, &r) : KILN_NO_MEMORY;
  kiln_diag_destroy(r.first);
  kiln_diag_destroy(r.tried);
  kiln_ctx_deinit(&cx);
  *out_failed = r.failed;
  return st;
}

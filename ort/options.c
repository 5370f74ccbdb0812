// SPDX-License-Identifier: Apache-2.0
// Parsing of options, which are texts. Dimensions are written as for `kiln compile --dim`.
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ort_status *get(const ep_host *h, const ort_session_options *from, ep_arena *arena,
                       const char *key, const char **out) {
  int has = 0;
  size_t n = 0;
  *out = NULL;
  EP_TRY(h->api->has_option(from, key, &has));
  if (!has) return NULL;
  ort_status *sized = h->api->option(from, key, NULL, &n);
  if (sized) h->api->release_status(sized);
  char *text = ep_alloc(arena, n + 1, 1);
  if (!text) return ep_no_memory(h);
  *out = text;
  return h->api->option(from, key, text, &n);
}

// Provider options are session entries with the provider's name in lower case as prefix.
static ort_status *get_own(const ep_host *h, const ort_session_options *from, ep_arena *arena,
                           const char *name, const char **out) {
  char *key = ep_text(arena, "ep.kilnexecutionprovider.%s", name);
  return key ? get(h, from, arena, key, out) : ep_no_memory(h);
}

static ort_status *get_int(const ep_host *h, const ort_session_options *from, ep_arena *arena,
                           const char *name, int least, int most, int *io) {
  const char *text = NULL;
  char *end = NULL;
  EP_TRY(get_own(h, from, arena, name, &text));
  if (!text || !*text) return NULL;
  const long value = strtol(text, &end, 10);
  if (*end || value < least || value > most)
    return ep_fail(h, ORT_INVALID_ARGUMENT, "Kiln: option %s: must be %d to %d, got \"%s\"", name,
                   least, most, text);
  *io = (int)value;
  return NULL;
}

static ort_status *get_bool(const ep_host *h, const ort_session_options *from, ep_arena *arena,
                            const char *name, bool *io) {
  int value = *io;
  EP_TRY(get_int(h, from, arena, name, 0, 1, &value));
  *io = value != 0;
  return NULL;
}

// --- dimensions: batch=8, batch=1..64, batch=1..64/8, kv=past+t ---

static bool parse_dim(ep_options *o, char *text) {
  char *is = strchr(text, '='), *end = NULL;
  if (!is || is == text) return false;
  *is++ = 0;
  const long long least = strtoll(is, &end, 10);
  if (end == is) { // no number follows: a sum of names
    o->sums[o->n_sums++] = (kiln_dim_sum){text, is};
    return *is != 0;
  }
  if (*end == 0) {
    o->dims[o->n_dims++] = (kiln_dim_value){text, least};
    return least >= 0;
  }
  kiln_dim_range range = {text, least, 0, 1};
  if (strncmp(end, "..", 2) != 0) return false;
  is = end + 2;
  range.most = strtoll(is, &end, 10);
  if (end == is) return false;
  if (*end == '/') {
    is = end + 1;
    range.step = strtoll(is, &end, 10);
  }
  o->ranges[o->n_ranges++] = range;
  return *end == 0 && end != is && range.step > 0;
}

static ort_status *read_dims(const ep_host *h, const ort_session_options *from, ep_options *o) {
  const char *text = NULL;
  size_t n = 1;
  EP_TRY(get_own(h, from, &o->arena, "dims", &text));
  if (!text || !*text) return NULL;
  for (const char *at = text; *at; at++) n += *at == ',';
  char *copy = ep_text(&o->arena, "%s", text);
  o->dims = ep_alloc(&o->arena, n, sizeof *o->dims);
  o->ranges = ep_alloc(&o->arena, n, sizeof *o->ranges);
  o->sums = ep_alloc(&o->arena, n, sizeof *o->sums);
  if (!copy || !o->dims || !o->ranges || !o->sums) return ep_no_memory(h);
  for (char *next = copy; next;) {
    char *one = next;
    next = strchr(one, ',');
    if (next) *next++ = 0;
    if (!parse_dim(o, one))
      return ep_fail(h, ORT_INVALID_ARGUMENT,
                     "Kiln: option dims: must be NAME=N, NAME=A..B, NAME=A..B/STEP or NAME=P+Q, "
                     "separated by ',', got \"%s\"",
                     text);
  }
  return NULL;
}

// Options of ONNX Runtime for compiled models.
static ort_status *read_contexts(const ep_host *h, const ort_session_options *from, ep_options *o) {
  const char *enable = NULL, *embed = NULL;
  EP_TRY(get(h, from, &o->arena, "ep.context_enable", &enable));
  EP_TRY(get(h, from, &o->arena, "ep.context_embed_mode", &embed));
  EP_TRY(get(h, from, &o->arena, "ep.context_file_path", &o->context_path));
  EP_TRY(get(h, from, &o->arena, "ep.context_node_name_prefix", &o->context_prefix));
  o->makes_contexts = enable && strcmp(enable, "1") == 0;
  o->embeds_contexts = embed && strcmp(embed, "1") == 0;
  if (!o->context_path) o->context_path = "";
  if (!o->context_prefix) o->context_prefix = "";
  return NULL;
}

// The target is checked by loading something: later errors ONNX Runtime would only log.
static ort_status *check_target(const ep_host *h, const ep_options *o) {
  static const char text[] = "def same(float(N) X) -> (Y) { Y(n) = X(n) }";
  const kiln_memory_file file = {"same.tc", text, sizeof text - 1};
  const kiln_dim_value dim = {"N", 1};
  const kiln_compile_options options = {.struct_size = sizeof options,
                                        .dims = &dim,
                                        .n_dims = 1,
                                        .target = o->target,
                                        .files = &file,
                                        .n_files = 1};
  kiln_model *model = NULL;
  kiln_diag *diag = kiln_diag_create();
  if (!diag) return ep_no_memory(h);
  const kiln_status loaded = kiln_model_load(file.name, &options, diag, &model);
  ort_status *status =
      loaded == KILN_OK ? NULL : ep_fail_with(h, KILN_BAD_INPUT, "option target", diag);
  kiln_model_destroy(model);
  kiln_diag_destroy(diag);
  return status;
}

ort_status *ep_options_read(const ep_host *h, const ort_session_options *from, ep_options *o) {
  ep_arena *arena = &o->arena;
  const char *target = NULL;
  o->shapes = 16;
  o->cache = true;
  EP_TRY(get_int(h, from, arena, "threads", 0, 1024, &o->threads));
  EP_TRY(get_int(h, from, arena, "spin_us", -1, 10000000, &o->spin_us));
  EP_TRY(get_int(h, from, arena, "shapes", 1, 1 << 20, &o->shapes));
  EP_TRY(get_int(h, from, arena, "device", 0, 1 << 20, &o->device));
  EP_TRY(get_bool(h, from, arena, "cache", &o->cache));
  EP_TRY(get_bool(h, from, arena, "load_contexts", &o->loads_contexts));
  EP_TRY(get_own(h, from, arena, "target", &target));
  if (target && *target) o->target = target;
  if (o->target) EP_TRY(check_target(h, o));
  EP_TRY(read_dims(h, from, o));
  return read_contexts(h, from, o);
}

void ep_options_deinit(ep_options *o) { ep_arena_deinit(&o->arena); }

// --- compile options of a part ---

static bool has_dim(const ep_graph *g, const ep_part *part, const char *name) {
  for (int i = 0; i < part->n_inputs; i++) {
    const ep_value *v = &g->values[part->inputs[i]];
    for (int k = 0; k < v->rank; k++)
      if (v->dims[k] < 0 && v->dim_names[k] && strcmp(v->dim_names[k], name) == 0) return true;
  }
  return false;
}

static bool is_said(const ep_options *o, const char *name) {
  bool said = false;
  for (int i = 0; i < o->n_dims; i++) said |= strcmp(o->dims[i].name, name) == 0;
  for (int i = 0; i < o->n_ranges; i++) said |= strcmp(o->ranges[i].name, name) == 0;
  for (int i = 0; i < o->n_sums; i++) said |= strcmp(o->sums[i].name, name) == 0;
  return said;
}

static bool is_late(const ep_options *o, const ep_graph *g, const ep_part *part) {
  for (int i = 0; i < part->n_inputs; i++) {
    const ep_value *v = &g->values[part->inputs[i]];
    for (int k = 0; k < v->rank; k++)
      if (v->dims[k] < 0 && !(v->dim_names[k] && is_said(o, v->dim_names[k]))) return true;
  }
  return false;
}

ort_status *ep_question_make(const ep_options *o, const ep_graph *g, const ep_part *part,
                             const ep_source *source, ep_arena *arena, ep_question *out) {
  kiln_dim_value *dims = ep_alloc(arena, (size_t)o->n_dims, sizeof *dims);
  kiln_dim_range *ranges = ep_alloc(arena, (size_t)o->n_ranges, sizeof *ranges);
  kiln_dim_sum *sums = ep_alloc(arena, (size_t)o->n_sums, sizeof *sums);
  if (!dims || !ranges || !sums) return ep_no_memory(g->host);
  *out = (ep_question){.is_late = is_late(o, g, part)};
  kiln_compile_options *to = &out->options;
  *to = (kiln_compile_options){.struct_size = sizeof *to,
                               .dims = dims,
                               .ranges = ranges,
                               .sums = sums,
                               .threads = o->threads,
                               .target = o->target,
                               .cache = o->cache,
                               .files = source->files,
                               .n_files = (size_t)source->n_files};
  for (int i = 0; i < o->n_dims; i++)
    if (has_dim(g, part, o->dims[i].name)) dims[to->n_dims++] = o->dims[i];
  for (int i = 0; i < o->n_ranges && !out->is_late; i++)
    if (has_dim(g, part, o->ranges[i].name)) ranges[to->n_ranges++] = o->ranges[i];
  for (int i = 0; i < o->n_sums && !out->is_late; i++)
    if (has_dim(g, part, o->sums[i].name)) sums[to->n_sums++] = o->sums[i];
  return NULL;
}

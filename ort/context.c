// SPDX-License-Identifier: Apache-2.0
// Files of modules. A module that is not kept is loaded from a temporary folder of its own, because
// the dynamic linker identifies libraries by path.
#include "context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --- files ---

typedef struct scratch {
  char folder[512], path[560];
} scratch;

static ort_status *scratch_make(const ep_host *h, scratch *s) {
  const char *root = getenv("TMPDIR");
  const int n =
      snprintf(s->folder, sizeof s->folder, "%s/kiln-XXXXXX", root && *root ? root : "/tmp");
  if (n >= (int)sizeof s->folder || !mkdtemp(s->folder))
    return ep_fail(h, ORT_EP_FAIL, "Kiln: no folder for a module can be made as %s", s->folder);
  snprintf(s->path, sizeof s->path, "%s/module.kmod", s->folder);
  return NULL;
}

static void scratch_remove(const scratch *s) {
  unlink(s->path);
  rmdir(s->folder);
}

static bool read_file(const char *path, ep_buffer *out) {
  char some[1 << 16];
  FILE *f = fopen(path, "rb");
  size_t n = 0;
  while (f && (n = fread(some, 1, sizeof some, f)) > 0) ep_buffer_add(out, some, n);
  const bool good = f && !ferror(f) && !out->is_lost;
  if (f) fclose(f);
  return good;
}

static bool write_file(const char *path, const void *data, size_t n) {
  FILE *f = fopen(path, "wb");
  bool good = f && fwrite(data, 1, n, f) == n;
  if (f) good &= fclose(f) == 0;
  return good;
}

// --- making ---

// The model with contexts is the requested file, or model_ctx.onnx for model.onnx; its module k is
// model_ctx_kiln_k.kmod.
static ort_status *module_path(ep_provider *p, const ort_graph *graph, ep_arena *arena,
                               const char **out) {
  const char *model = NULL, *asked = p->options.context_path;
  EP_TRY(p->host.api->graph_path(graph, &model));
  if (!*asked && (!model || !*model))
    return ep_fail(&p->host, ORT_INVALID_ARGUMENT,
                   "Kiln: ep.context_file_path must say where the modules of a model from memory "
                   "go, or ep.context_embed_mode be 1");
  const char *of = *asked ? asked : model, *dot = strrchr(of, '.'), *slash = strrchr(of, '/');
  const int n = dot && (!slash || dot > slash) ? (int)(dot - of) : (int)strlen(of);
  *out = ep_text(arena, "%.*s%s_kiln_%d.kmod", n, of, *asked ? "" : "_ctx", p->n_contexts);
  return *out ? NULL : ep_no_memory(&p->host);
}

static ort_status *compile_to(const ep_provider *p, const char *name, const ep_question *question,
                              const char *path, kiln_module **out) {
  kiln_model *model = NULL;
  kiln_diag *diag = kiln_diag_create();
  if (!diag) return ep_no_memory(&p->host);
  kiln_status made = kiln_model_load(EP_MODEL_NAME, &question->options, diag, &model);
  if (made == KILN_OK) made = kiln_model_compile_to(model, path, diag);
  if (made == KILN_OK) made = kiln_module_load(path, diag, out);
  ort_status *status = made == KILN_OK ? NULL : ep_fail_with(&p->host, made, name, diag);
  kiln_model_destroy(model);
  kiln_diag_destroy(diag);
  return status;
}

typedef struct node_names {
  size_t n_inputs, n_outputs;
  const char **inputs, **outputs;
} node_names;

static ort_status *names_of(const ep_host *h, ep_arena *arena, const ort_node *node,
                            node_names *out) {
  EP_TRY(h->api->n_node_inputs(node, &out->n_inputs));
  EP_TRY(h->api->n_node_outputs(node, &out->n_outputs));
  const size_t n = out->n_inputs + out->n_outputs;
  const ort_value_info **infos = ep_alloc(arena, n, sizeof *infos);
  out->inputs = ep_alloc(arena, n, sizeof *out->inputs);
  if (!infos || !out->inputs) return ep_no_memory(h);
  out->outputs = out->inputs + out->n_inputs;
  EP_TRY(h->api->node_inputs(node, infos, out->n_inputs));
  EP_TRY(h->api->node_outputs(node, infos + out->n_inputs, out->n_outputs));
  for (size_t i = 0; i < n; i++) EP_TRY(h->api->info_name(infos[i], &out->inputs[i]));
  return NULL;
}

enum { N_ATTRIBUTES = 7 };

static ort_status *make_attributes(const ep_provider *p, const char *name, const char *content,
                                   size_t n_content, const kiln_module *module,
                                   ort_attribute **out) {
  const int64_t one = 1, embeds = p->options.embeds_contexts;
  const char *target = kiln_module_about(module).target, *version = kiln_version();
  const struct {
    const char *name;
    const void *data;
    size_t n;
    ort_attribute_type type;
  } rows[N_ATTRIBUTES] = {{"main_context", &one, 1, ORT_ATTR_INT},
                          {"embed_mode", &embeds, 1, ORT_ATTR_INT},
                          {"ep_cache_context", content, n_content, ORT_ATTR_STRING},
                          {"source", EP_CONTEXT_SOURCE, strlen(EP_CONTEXT_SOURCE), ORT_ATTR_STRING},
                          {"ep_sdk_version", version, strlen(version), ORT_ATTR_STRING},
                          {"hardware_architecture", target, strlen(target), ORT_ATTR_STRING},
                          {"partition_name", name, strlen(name), ORT_ATTR_STRING}};
  for (int i = 0; i < N_ATTRIBUTES; i++) {
    if (rows[i].n > INT32_MAX)
      return ep_fail(&p->host, ORT_EP_FAIL,
                     "Kiln: %s: a module of %zu bytes is too large to be in the model: "
                     "ep.context_embed_mode must be 0",
                     name, rows[i].n);
    EP_TRY(p->host.api->create_attribute(rows[i].name, rows[i].data, (int)rows[i].n, rows[i].type,
                                         &out[i]));
  }
  return NULL;
}

static ort_status *make_node(const ep_provider *p, const ort_node *fused, const char *content,
                             size_t n_content, const kiln_module *module, ort_node **out) {
  ep_arena arena = {0};
  node_names names = {0};
  const char *name = NULL;
  ort_attribute *attributes[N_ATTRIBUTES] = {NULL};
  ort_status *status = p->host.api->node_name(fused, &name);
  if (!status) status = names_of(&p->host, &arena, fused, &names);
  const char *prefixed = ep_text(&arena, "%s%s", p->options.context_prefix, name);
  if (!status && !prefixed) status = ep_no_memory(&p->host);
  if (!status) status = make_attributes(p, name, content, n_content, module, attributes);
  if (!status)
    status = p->host.editor->create_node("EPContext", "com.microsoft", prefixed, names.inputs,
                                         names.n_inputs, names.outputs, names.n_outputs, attributes,
                                         N_ATTRIBUTES, out);
  for (int i = 0; i < N_ATTRIBUTES; i++)
    if (attributes[i]) p->host.api->release_attribute(attributes[i]);
  ep_arena_deinit(&arena);
  return status;
}

static ort_status *make_beside(ep_provider *p, const ort_graph *graph, const ort_node *fused,
                               const char *name, const ep_question *question, kiln_module **out,
                               ort_node **out_node) {
  ep_arena arena = {0};
  const char *path = NULL;
  ort_status *status = module_path(p, graph, &arena, &path);
  if (!status) status = compile_to(p, name, question, path, out);
  if (!status) {
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    status = make_node(p, fused, file, strlen(file), *out, out_node);
    p->n_contexts++;
  }
  ep_arena_deinit(&arena);
  return status;
}

ort_status *ep_compile_ahead(ep_provider *p, const ort_graph *graph, const ort_node *fused,
                             const ep_question *question, kiln_module **out, ort_node **out_node) {
  const ep_host *h = &p->host;
  const char *name = NULL;
  scratch s;
  ep_buffer content = {0};
  *out = NULL;
  *out_node = NULL;
  EP_TRY(h->api->node_name(fused, &name));
  if (p->options.makes_contexts && !p->options.embeds_contexts)
    return make_beside(p, graph, fused, name, question, out, out_node);
  EP_TRY(scratch_make(h, &s));
  ort_status *status = compile_to(p, name, question, s.path, out);
  if (!status && p->options.makes_contexts)
    status = read_file(s.path, &content)
                 ? make_node(p, fused, content.data, content.n, *out, out_node)
                 : ep_no_memory(h);
  ep_buffer_deinit(&content);
  scratch_remove(&s);
  return status;
}

// --- loading ---

static ort_status *get_text(const ep_host *h, ep_arena *arena, const ep_node *n, const char *name,
                            const char **out, size_t *out_n) {
  const ort_attribute *a = NULL;
  *out = "";
  *out_n = 0;
  EP_TRY(h->api->node_attribute(n->ort, name, &a));
  if (!a) return NULL;
  ort_status *sized = h->api->read_attribute(a, ORT_ATTR_STRING, NULL, 0, out_n);
  if (sized) h->api->release_status(sized);
  char *text = ep_alloc(arena, *out_n + 1, 1);
  if (!text) return ep_no_memory(h);
  *out = text;
  return h->api->read_attribute(a, ORT_ATTR_STRING, text, *out_n, out_n);
}

ort_status *ep_context_is(const ep_host *h, const ep_node *n, bool *out) {
  ep_arena arena = {0};
  const char *source = NULL;
  size_t n_source = 0;
  *out = false;
  if (strcmp(n->op, "EPContext") != 0 || strcmp(n->domain, "com.microsoft") != 0) return NULL;
  ort_status *status = get_text(h, &arena, n, "source", &source, &n_source);
  *out = !status && strcmp(source, EP_CONTEXT_SOURCE) == 0;
  ep_arena_deinit(&arena);
  return status;
}

static ort_status *load(const ep_host *h, const char *name, const char *path, kiln_module **out) {
  kiln_diag *diag = kiln_diag_create();
  if (!diag) return ep_no_memory(h);
  const kiln_status made = kiln_module_load(path, diag, out);
  ort_status *status = made == KILN_OK ? NULL : ep_fail_with(h, made, name, diag);
  kiln_diag_destroy(diag);
  return status;
}

static ort_status *load_embedded(const ep_host *h, const ep_node *n, const char *content,
                                 size_t n_content, kiln_module **out) {
  scratch s;
  EP_TRY(scratch_make(h, &s));
  ort_status *status = write_file(s.path, content, n_content)
                           ? load(h, n->name, s.path, out)
                           : ep_fail(h, ORT_EP_FAIL, "Kiln: %s cannot be written", s.path);
  scratch_remove(&s);
  return status;
}

// |file| must be a plain name in the folder of the model.
static ort_status *load_beside(const ep_provider *p, const ort_graph *graph, const ep_node *n,
                               ep_arena *arena, const char *file, kiln_module **out) {
  const char *model = NULL;
  EP_TRY(p->host.api->graph_path(graph, &model));
  if (!model || !*model) model = p->options.context_path;
  if (!*file || strchr(file, '/') || strcmp(file, "..") == 0)
    return ep_fail(&p->host, ORT_INVALID_GRAPH,
                   "Kiln: node %s: ep_cache_context must name a file of the model's folder, got "
                   "\"%.200s\"",
                   n->name, file);
  const char *slash = strrchr(model, '/');
  const char *path = ep_text(arena, "%.*s%s", slash ? (int)(slash - model) + 1 : 0, model, file);
  return path ? load(&p->host, n->name, path, out) : ep_no_memory(&p->host);
}

ort_status *ep_context_load(const ep_provider *p, const ort_graph *graph, const ep_node *n,
                            kiln_module **out) {
  const ep_host *h = &p->host;
  ep_arena arena = {0};
  const ort_attribute *a = NULL;
  const char *content = NULL;
  size_t n_content = 0, n_read = 0;
  int64_t embeds = 1;
  *out = NULL;
  if (!p->options.loads_contexts)
    return ep_fail(h, ORT_EP_FAIL,
                   "Kiln: node \"%s\" is a compiled module, which is a program: whoever trusts "
                   "where the model is from sets the provider's option load_contexts to 1",
                   n->name);
  EP_TRY(h->api->node_attribute(n->ort, "embed_mode", &a));
  if (a) EP_TRY(h->api->read_attribute(a, ORT_ATTR_INT, &embeds, sizeof embeds, &n_read));
  ort_status *status = get_text(h, &arena, n, "ep_cache_context", &content, &n_content);
  if (!status)
    status = embeds ? load_embedded(h, n, content, n_content, out)
                    : load_beside(p, graph, n, &arena, content, out);
  ep_arena_deinit(&arena);
  return status;
}

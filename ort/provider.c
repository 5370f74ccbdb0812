// SPDX-License-Identifier: Apache-2.0
// The provider's table: parts are chosen (take.c) and compiled to kernels (kernel.c), or loaded if
// they were compiled ahead (context.c).
#include "provider.h"
#include "context.h"
#include "device.h"

#include <stdlib.h>
#include <string.h>

static const char *name(const ort_ep *base) {
  (void)base;
  return EP_NAME;
}

static ort_status *capability(ort_ep *base, const ort_graph *graph, ort_support *support) {
  return ep_take((ep_provider *)base, graph, support);
}

// --- compiling ---

// Inputs and outputs in the order of the fused node; its constant inputs are weights.
static ort_status *border(const ep_graph *g, const ort_node *fused, ep_kernel *k, ep_part *out) {
  const ort_api *api = g->host->api;
  size_t n_in = 0, n_out = 0;
  EP_TRY(api->n_node_inputs(fused, &n_in));
  EP_TRY(api->n_node_outputs(fused, &n_out));
  const ort_value_info **infos = ep_alloc(&k->arena, n_in + n_out, sizeof *infos);
  k->input_at = ep_alloc(&k->arena, n_in, sizeof *k->input_at);
  out->inputs = ep_alloc(&k->arena, n_in, sizeof *out->inputs);
  out->outputs = ep_alloc(&k->arena, n_out, sizeof *out->outputs);
  if (!infos || !k->input_at || !out->inputs || !out->outputs) return ep_no_memory(g->host);
  EP_TRY(api->node_inputs(fused, infos, n_in));
  EP_TRY(api->node_outputs(fused, infos + n_in, n_out));
  for (size_t i = 0; i < n_in + n_out; i++) {
    const char *value = NULL;
    EP_TRY(api->info_name(infos[i], &value));
    const int id = ep_names_find(&g->names, value);
    if (id < 0)
      return ep_fail(g->host, ORT_EP_FAIL, "Kiln: %s: the nodes must have its value %s", k->name,
                     value);
    if (i >= n_in) {
      out->outputs[out->n_outputs++] = id;
    } else if (!g->values[id].is_constant) {
      k->input_at[out->n_inputs] = (int)i;
      out->inputs[out->n_inputs++] = id;
    }
  }
  k->n_inputs = out->n_inputs;
  k->n_outputs = out->n_outputs;
  return NULL;
}

static ort_status *whole(const ep_graph *g, ep_kernel *k, ep_part *out) {
  out->n_nodes = g->n_nodes;
  out->nodes = ep_alloc(&k->arena, (size_t)g->n_nodes, sizeof *out->nodes);
  if (!out->nodes) return ep_no_memory(g->host);
  for (int i = 0; i < g->n_nodes; i++) out->nodes[i] = i;
  return NULL;
}

// The positions of a late kernel's weights among the inputs.
static ort_status *find_weights(const ep_graph *g, const ort_node *fused, ep_kernel *k) {
  const ort_api *api = g->host->api;
  size_t n = 0;
  EP_TRY(api->n_node_inputs(fused, &n));
  const ort_value_info **infos = ep_alloc(&k->arena, n, sizeof *infos);
  k->weight_at = ep_alloc(&k->arena, (size_t)k->source.n_files, sizeof *k->weight_at);
  if (!infos || !k->weight_at) return ep_no_memory(g->host);
  EP_TRY(api->node_inputs(fused, infos, n));
  for (int f = 1; f < k->source.n_files; f++) {
    k->weight_at[f] = -1;
    for (size_t i = 0; i < n && k->weight_at[f] < 0; i++) {
      const char *value = NULL;
      EP_TRY(api->info_name(infos[i], &value));
      if (strcmp(value, k->source.weights[f]) == 0) k->weight_at[f] = (int)i;
    }
    if (k->weight_at[f] < 0)
      return ep_fail(g->host, ORT_EP_FAIL, "Kiln: %s: must be given its weight %s", k->name,
                     k->source.weights[f]);
  }
  return NULL;
}

// A copy of the weights: runs would give them in the GPU's memory.
static ort_status *copy_weights(const ep_graph *g, ep_kernel *k) {
  for (int f = 1; f < k->source.n_files; f++) {
    kiln_memory_file *file = &k->source.files[f];
    void *copy = ep_alloc(&k->arena, file->n_bytes, 1);
    if (!copy) return ep_no_memory(g->host);
    if (file->n_bytes > 0) memcpy(copy, file->data, file->n_bytes);
    file->data = copy;
  }
  return NULL;
}

// Stores what a late kernel needs for compiling: names, and its weights or where they are given.
static ort_status *keep(const ep_graph *g, const ep_part *part, const ort_node *fused,
                        ep_kernel *k) {
  k->input_names = ep_alloc(&k->arena, (size_t)part->n_inputs, sizeof *k->input_names);
  if (!k->input_names) return ep_no_memory(g->host);
  for (int i = 0; i < part->n_inputs; i++) {
    k->input_names[i] = ep_text(&k->arena, "%s", g->values[part->inputs[i]].name);
    if (!k->input_names[i]) return ep_no_memory(g->host);
  }
  k->is_late = true;
  return k->p->gpu ? copy_weights(g, k) : find_weights(g, fused, k);
}

static ort_status *compile_part(ep_provider *p, const ep_graph *g, const ort_node *fused,
                                ep_kernel *k, ort_node **out_context) {
  ep_part part = {0};
  ep_question question;
  const char *why = NULL;
  int node = -1;
  kiln_module *module = NULL;
  EP_TRY(whole(g, k, &part));
  EP_TRY(border(g, fused, k, &part));
  EP_TRY(ep_source_write(g, &part, &k->arena, &k->source, &why, &node));
  if (why) return ep_fail(&p->host, ORT_EP_FAIL, "Kiln: node %s: %s", g->nodes[node].name, why);
  EP_TRY(ep_question_make(&p->options, g, &part, &k->source, &k->arena, &question));
  if (question.is_late) return keep(g, &part, fused, k);
  ort_status *status = ep_compile_ahead(p, g->ort, fused, &question, &module, out_context);
  if (status) {
    kiln_module_release(module);
    return status;
  }
  ep_source_deinit(&k->source);
  return ep_kernel_add(k, module, NULL, 0);
}

static ort_status *load_context(const ep_provider *p, const ep_graph *g, const ort_node *fused,
                                ep_kernel *k) {
  ep_part part = {0};
  kiln_module *module = NULL;
  EP_TRY(border(g, fused, k, &part));
  EP_TRY(ep_context_load(p, g->ort, &g->nodes[0], &module));
  return ep_kernel_add(k, module, NULL, 0);
}

static ort_status *compile_one(ep_provider *p, const ort_graph *graph, const ort_node *fused,
                               ep_kernel **out, ort_node **out_context) {
  ep_graph g = {0};
  bool is_context = false;
  EP_TRY(ep_kernel_create(p, fused, out));
  ort_status *status = ep_graph_read(&g, &p->host, graph);
  if (!status && g.n_nodes == 1) status = ep_context_is(&p->host, &g.nodes[0], &is_context);
  if (!status)
    status = is_context ? load_context(p, &g, fused, *out)
                        : compile_part(p, &g, fused, *out, out_context);
  ep_graph_deinit(&g);
  return status;
}

static void release_computes(ort_ep *base, ort_compute **computes, size_t n) {
  (void)base;
  for (size_t i = 0; i < n; i++) ep_kernel_destroy((ep_kernel *)computes[i]);
}

static ort_status *compile(ort_ep *base, const ort_graph **graphs, const ort_node **fused, size_t n,
                           ort_compute **out, ort_node **out_contexts) {
  ep_provider *p = (ep_provider *)base;
  ort_status *status = NULL;
  size_t made = 0;
  for (; made < n && !status; made++) {
    ep_kernel *k = NULL;
    ort_node *context = NULL;
    status = compile_one(p, graphs[made], fused[made], &k, &context);
    out[made] = k ? &k->base : NULL;
    if (context) out_contexts[made] = context;
  }
  for (size_t i = 0; status && i < made; i++) {
    if (out[i]) ep_kernel_destroy((ep_kernel *)out[i]);
    out[i] = NULL;
  }
  return status;
}

static const char *compatibility(ort_ep *base, const ort_graph *graph) {
  (void)graph;
  return ((ep_provider *)base)->compatibility;
}

static ort_status *registry(ort_ep *base, const ort_registry **out) {
  *out = ((ep_provider *)base)->copies; // NULL: there are none
  return NULL;
}

static ort_status *read_options(ep_provider *p, const ort_session_options *options, ep_gpu *gpu) {
  if (gpu) p->options.target = "cuda";
  if (gpu) p->options.device = gpu->index;
  EP_TRY(ep_options_read(&p->host, options, &p->options));
  const bool is_other = gpu && (p->options.device != gpu->index ||
                                strncmp(p->options.target, "cuda", strlen("cuda")) != 0);
  if (is_other)
    return ep_fail(&p->host, ORT_INVALID_ARGUMENT,
                   "Kiln: options target, device: must be those of the chosen device, cuda and %d",
                   gpu->index);
  if (!gpu || !p->host.has_kernels) return NULL;
  p->gpu = gpu;
  return ep_copy_kernels_create(gpu, EP_NAME, &p->copies);
}

ort_status *ep_provider_create(const ep_host *host, const ort_session_options *options,
                               const ort_logger *logger, ep_gpu *gpu, const char *fits,
                               ep_provider **out) {
  *out = NULL;
  ep_provider *p = calloc(1, sizeof *p);
  if (!p) return ep_no_memory(host);
  p->base = (ort_ep){.version = host->version,
                     .name = name,
                     .capability = capability,
                     .compile = compile,
                     .release_computes = release_computes,
                     .compatibility = compatibility,
                     .registry = registry};
  p->host = *host;
  p->compatibility = fits;
  p->logger = logger;
  ort_status *status = read_options(p, options, gpu);
  if (status) ep_provider_destroy(p);
  else *out = p;
  return status;
}

void ep_provider_destroy(ep_provider *p) {
  if (!p) return;
  if (p->copies) p->host.ep->release_registry(p->copies);
  ep_options_deinit(&p->options);
  free(p->graph);
  free(p);
}

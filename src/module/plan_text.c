// The plan as text, as in
//   arena 1024 bytes, lower bound 1024 bytes, weights 64 bytes
//   0 add: input 0+16:48 weights+0:48 arena+64:48 | 2 threads of 3
//   1 product: arena+64:48 input 1:48 output 0:64 | 1 thread of openblas: product a 0:0 b 1:0 ...
// An argument is written place+offset:bytes, in bytes; each nest has the number of threads that may
// share its extent.
#include "module/build.h"

static void print_arg(const kiln_plan_arg *a, kiln_text *out) {
  static const char *const words[KILN_N_PLACES] = {[KILN_PLACE_INPUT] = "input",
                                                   [KILN_PLACE_OUTPUT] = "output",
                                                   [KILN_PLACE_ARENA] = "arena",
                                                   [KILN_PLACE_WEIGHTS] = "weights",
                                                   [KILN_PLACE_EXTERN] = "extern"};
  const bool is_numbered = a->where != KILN_PLACE_ARENA && a->where != KILN_PLACE_WEIGHTS;
  kiln_text_printf(out, " %s", words[a->where]);
  if (is_numbered) kiln_text_printf(out, " %" PRIu32, a->index);
  if (!is_numbered || a->offset) kiln_text_printf(out, "+%" PRIu64, a->offset);
  kiln_text_printf(out, ":%" PRIu64, a->bytes);
}

// "| grid 8 x 1 x 1 of 256 x 1 x 1 threads, 1024 bytes shared"
static void print_grid(const kiln_plan_nest *n, kiln_text *out) {
  kiln_text_printf(out, " grid %" PRIu32 " x %" PRIu32 " x %" PRIu32, n->grid[0], n->grid[1],
                   n->grid[2]);
  kiln_text_printf(out, " of %" PRIu32 " x %" PRIu32 " x %" PRIu32 " threads", n->block[0],
                   n->block[1], n->block[2]);
  if (n->shared_bytes) kiln_text_printf(out, ", %" PRIu32 " bytes shared", n->shared_bytes);
}

static void print_launch(const kiln_plan *p, uint32_t i, kiln_text *out) {
  const kiln_plan_launch *l = &p->launches[i];
  kiln_text_printf(out, "%" PRIu32 " %s:", i, l->kernel);
  for (uint32_t k = 0; k < l->n_args; k++) print_arg(&p->args[l->first_arg + k], out);
  for (uint32_t k = 0; k < l->n_nests; k++) {
    const kiln_plan_nest *nest = &p->nests[l->first_nest + k];
    if (p->kind != KILN_PLAN_CPU) {
      kiln_text_add(out, k ? "," : " |");
      print_grid(nest, out);
      continue;
    }
    kiln_text_printf(out, "%s %" PRIu32 " thread%s of %" PRId64, k ? "," : " |", nest->threads,
                     nest->threads == 1 ? "" : "s", nest->extent);
  }
  if (l->call) {
    const kiln_plan_call *c = &p->calls[l->call - 1];
    kiln_text_add(out, " | ");
    if (p->kind == KILN_PLAN_CPU)
      kiln_text_printf(out, "%" PRIu32 " thread%s of ", c->threads, c->threads == 1 ? "" : "s");
    kiln_text_printf(out, "%s: %s", c->backend, c->text);
  }
  kiln_text_add(out, "\n");
}

// "shape of output 0: output 2"
static void print_shapes(const kiln_plan *p, kiln_text *out) {
  for (uint32_t i = 0; i < p->n_shapes; i++)
    kiln_text_printf(out, "shape of output %" PRIu32 ": output %" PRIu32 "\n", p->shape_of[i],
                     kiln_plan_n_results(p) + i);
  for (uint32_t i = 0; i < p->n_checks; i++)
    kiln_text_printf(out,
                     "check %s: %s along axis %" PRId32 " in [%" PRId64 ", %" PRId64
                     "): output %" PRIu32 "[%" PRIu32 "]\n",
                     p->checks[i].place, p->checks[i].index, p->checks[i].axis, p->checks[i].least,
                     p->checks[i].end, p->n_outputs - 1, i);
}

void kiln_plan_print(const kiln_plan *p, kiln_text *out) {
  kiln_text_printf(
      out, "arena %" PRIu64 " bytes, lower bound %" PRIu64 " bytes, weights %" PRIu64 " bytes\n",
      p->arena_bytes, p->arena_bound_bytes, p->weights_bytes);
  for (uint32_t i = 0; i < p->n_launches; i++) print_launch(p, i, out);
  for (uint32_t i = 0; i < p->n_copies; i++) {
    kiln_text_printf(out, "copy to output %" PRIu32 ":", p->copies[i].output);
    print_arg(&p->copies[i].from, out);
    kiln_text_add(out, "\n");
  }
  print_shapes(p, out);
  for (uint32_t i = 0; i < p->n_states; i++)
    kiln_text_printf(out, "state: output %" PRIu32 " is the next run's input %" PRIu32 "\n",
                     p->states[i].output, p->states[i].input);
}

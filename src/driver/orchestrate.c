// The choice of kernels, as the options ask for it, and what it has come to.
#include "driver/build.h"

#include "orchestrate/orchestrate.h"

static void dump(kiln_ctx *cx, const kiln_build *b, const kiln_program *p) {
  kiln_text text;
  if (!kiln_model_dumps(b->model, "orchestration")) return;
  kiln_text_init(&text, &cx->scratch);
  kiln_orchestration_print(cx, p, b->orchestration, &text);
  kiln_model_dump(b->model, "orchestration", &text);
}

kiln_status kiln_build_orchestrate(kiln_ctx *cx, void *build, const kiln_program *p,
                                   const kiln_tile_search_options *search, kiln_searches *known,
                                   kiln_parts *io, kiln_edge_decisions *io_edges) {
  kiln_build *b = build;
  const kiln_orchestrate_options options = {.worth = KILN_USUAL_WORTH,
                                            .given = b->given_orchestration};
  const double start = kiln_now_ms();
  b->orchestration = KILN_NEW(&cx->perm, kiln_orchestration);
  KILN_TRY(kiln_orchestrate(cx, p, search, known, &options, io, io_edges, b->orchestration));
  kiln_model_time(b->model, "orchestrate", start);
  dump(cx, b, p);
  return KILN_OK;
}

kiln_status kiln_build_find_orchestration(kiln_ctx *cx, kiln_build *b) {
  const kiln_compile_options *asked = &b->model->options;
  if (!asked->orchestration) return KILN_OK;
  return kiln_text_read(cx, asked->orchestration, &b->given_orchestration);
}

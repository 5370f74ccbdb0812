#include "model/states.h"

#include "target/target.h"

static int port_named(const kiln_interface *face, const char *name, size_t n_name) {
  for (int i = 0; i < face->n; i++)
    if (strlen(face->ports[i].name) == n_name && memcmp(face->ports[i].name, name, n_name) == 0)
      return i;
  return -1;
}

static bool is_counted(const kiln_model *m, int output) {
  for (int i = 0; m->prog && i < m->prog->shape_of.n; i++)
    if (m->prog->shape_of.data[i] == output) return true;
  return false;
}

static const char *shape_of(kiln_ctx *cx, const kiln_interface *face, int i) {
  const kiln_port *p = &face->ports[i];
  const char *text = kiln_arena_printf(&cx->scratch, "%s(", p->dtype);
  for (int k = 0; k < p->rank; k++) {
    const char *name = face->dim_names[i] ? face->dim_names[i][k] : NULL;
    const char *comma = k ? ", " : "";
    text = name ? kiln_arena_printf(&cx->scratch, "%s%s%s", text, comma, name)
                : kiln_arena_printf(&cx->scratch, "%s%s%lld", text, comma, (long long)p->shape[k]);
  }
  return kiln_arena_printf(&cx->scratch, "%s)", text);
}

// Whether one may become the other: equal type and rank, and equal extents, but for ranges.
static bool fit(const kiln_port *in, const kiln_port *out) {
  bool fits = strcmp(in->dtype, out->dtype) == 0 && in->rank == out->rank;
  for (int k = 0; fits && k < in->rank; k++)
    fits = in->shape[k] < 0 || out->shape[k] < 0 || in->shape[k] == out->shape[k];
  return fits;
}

static kiln_status add_pair(kiln_ctx *cx, kiln_model *m, const char *text, int input, int output) {
  for (int i = 0; i < m->states.n; i++) {
    const kiln_state_ports *s = &m->states.data[i];
    if (s->input == input || s->output == output)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, m->path,
                       "state %s: an input and an output must be of one state, got them in two",
                       text);
  }
  if (!fit(&m->inputs.ports[input], &m->outputs.ports[output]))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, m->path,
                     "state %s: input and output must have one type and shape, but for ranges, got "
                     "%s and %s",
                     text, shape_of(cx, &m->inputs, input), shape_of(cx, &m->outputs, output));
  if (is_counted(m, output))
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, m->path,
                     "state %s: the output's extents must be known before a run, they depend on "
                     "its data",
                     text);
  KILN_VEC_PUSH(&cx->perm, &m->states, ((kiln_state_ports){input, output, false}));
  return KILN_OK;
}

static kiln_status add_text(kiln_ctx *cx, kiln_model *m, const char *text) {
  int input = -1, output = -1;
  for (const char *at = strchr(text, '='); at; at = strchr(at + 1, '=')) { // names may have one
    const int in = port_named(&m->inputs, text, (size_t)(at - text)),
              out = port_named(&m->outputs, at + 1, strlen(at + 1));
    if (in >= 0) input = in;
    if (out >= 0) output = out;
    if (in >= 0 && out >= 0) return add_pair(cx, m, text, in, out);
  }
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, m->path,
                   "state %s: must be INPUT=OUTPUT of the model or auto, got no %s of that name",
                   text, input >= 0 || output < 0 ? input >= 0 ? "output" : "input" : "input");
}

// |name| with the first |from| replaced; NULL: it has none.
static const char *replaced(kiln_ctx *cx, const char *name, const char *from, const char *to) {
  const char *at = strstr(name, from);
  if (!at) return NULL;
  return kiln_arena_printf(&cx->scratch, "%.*s%s%s", (int)(at - name), name, to, at + strlen(from));
}

static kiln_status add_all(kiln_ctx *cx, kiln_model *m) {
  static const char *const renamings[][2] = {{"past_key_values", "present"},
                                             {"past_key_values", "present_key_values"},
                                             {"past", "present"}};
  for (int i = 0; i < m->inputs.n; i++)
    for (size_t r = 0; r < KILN_LEN(renamings); r++) {
      const char *name = m->inputs.ports[i].name,
                 *want = replaced(cx, name, renamings[r][0], renamings[r][1]);
      const int output = want ? port_named(&m->outputs, want, strlen(want)) : -1;
      if (output < 0 || !fit(&m->inputs.ports[i], &m->outputs.ports[output])) continue;
      KILN_TRY(add_pair(cx, m, name, i, output));
      break;
    }
  if (m->states.n > 0) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, m->path,
                   "state auto: an input named past... and an output named present... must be "
                   "there, got none: name the pairs as INPUT=OUTPUT");
}

kiln_status kiln_states_find(kiln_ctx *cx, kiln_model *m, size_t n, const char *const *texts) {
  if (n > 0 && kiln_target_find(m->options.target)->has_own_memory)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, m->path,
                     "state %s: the target must be a CPU, got %s", texts[0], m->options.target);
  for (size_t i = 0; i < n; i++)
    KILN_TRY(strcmp(texts[i], "auto") == 0 ? add_all(cx, m) : add_text(cx, m, texts[i]));
  return KILN_OK;
}

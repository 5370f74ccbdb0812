// C headers of static libraries. Ports become parameters in_NAME and out_NAME, so no name of the
// model can be a keyword of C or C++.
#include "module/c_header.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

typedef struct header {
  const kiln_c_header *h;
  kiln_arena *arena;
  kiln_text *out;
  const char *macro;  // |prefix| in capitals
  const char **names; // parameter names of inputs, then results, then shapes
} header;

// --- names ---

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static char *identifier(kiln_arena *arena, const char *before, const char *text, size_t n) {
  char *name = kiln_arena_printf(arena, "%s%.*s", before, (int)n, text);
  for (char *c = name; *c; c++)
    if (!is_letter(*c)) *c = '_';
  return name;
}

const char *kiln_c_name(kiln_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
             *dot = strrchr(name, '.');
  if (strncmp(name, "lib", 3) == 0 && name[3] && name[3] != '.') name += 3; // "libm.a" becomes "m"
  const size_t n = dot && dot > name ? (size_t)(dot - name) : strlen(name);
  return identifier(arena, *name >= 'a' && *name <= 'z' ? "" : "m", name, n);
}

static const char *capitals(kiln_arena *arena, const char *name) {
  char *text = kiln_arena_strdup(arena, name);
  for (char *c = text; *c; c++) *c = (char)toupper((unsigned char)*c);
  return text;
}

static bool is_taken(const header *x, int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (strcasecmp(x->names[i], name) == 0) return true; // macros differ in more than case
  return false;
}

static void name_port(header *x, int i, const char *before, const char *name, const char *after) {
  const char *base =
      kiln_arena_printf(x->arena, "%s%s", identifier(x->arena, before, name, strlen(name)), after);
  x->names[i] = base;
  for (int k = 2; is_taken(x, i, x->names[i]); k++)
    x->names[i] = kiln_arena_printf(x->arena, "%s_%d", base, k);
}

static void name_ports(header *x) {
  const kiln_plan *p = x->h->plan;
  const uint32_t n_results = kiln_plan_n_results(p);
  int at = 0;
  x->names = KILN_NEW_ARRAY(x->arena, const char *, (int)(p->n_inputs + n_results + p->n_shapes));
  for (uint32_t i = 0; i < p->n_inputs; i++) name_port(x, at++, "in_", p->inputs[i].name, "");
  for (uint32_t i = 0; i < n_results; i++) name_port(x, at++, "out_", p->outputs[i].name, "");
  for (uint32_t i = 0; i < p->n_shapes; i++)
    name_port(x, at++, "out_", p->outputs[p->shape_of[i]].name, "_shape");
}

// --- types ---

// clang-format off
static const struct { const char *type, *c; } c_types[] = {
    {"f64", "double"},   {"f32", "float"},    {"f16", "uint16_t"}, {"bf16", "uint16_t"},
    {"i8", "int8_t"},    {"i16", "int16_t"},  {"i32", "int32_t"},  {"i64", "int64_t"},
    {"u16", "uint16_t"}, {"u32", "uint32_t"}, {"u64", "uint64_t"}, {"bool", "bool"},
};
// clang-format on

// Other types (minifloats and bytes) are passed as bytes.
static const char *c_type(const kiln_type *t) {
  for (size_t i = 0; i < KILN_LEN(c_types); i++)
    if (strcmp(c_types[i].type, t->text) == 0) return c_types[i].c;
  return "uint8_t";
}

static int64_t elements(const kiln_plan_port *p) {
  int64_t n = 1;
  for (int32_t k = 0; k < p->rank; k++) n *= p->shape[k];
  return n;
}

// --- text ---

// A name of the model for use in a comment, which it must not end.
static const char *in_comment(header *x, const char *text) {
  char *copy = kiln_arena_strdup(x->arena, text);
  for (char *c = copy; *c; c++)
    if (c[0] == '*' && c[1] == '/') c[1] = '_';
  return copy;
}

static void print_list(header *x, const char *title, int n, const char *const *texts) {
  kiln_text line;
  kiln_text_init(&line, x->arena);
  kiln_text_printf(&line, "   %s", title);
  for (int i = 0; i < n; i++) {
    if (line.n + (int)strlen(texts[i]) > 96) {
      kiln_text_printf(x->out, "%s\n", line.data);
      kiln_text_init(&line, x->arena);
      kiln_text_add(&line, "    ");
    }
    kiln_text_printf(&line, " %s", texts[i]);
  }
  kiln_text_printf(x->out, "%s%s\n", line.data, n ? "" : " nothing");
}

static void print_head(header *x) {
  const kiln_machine *m = x->h->machine;
  const char *dash = strchr(m->triple, '-');
  kiln_text_printf(x->out, "/* Made by Kiln %s of %s for %.*s (%s).\n\n", x->h->plan->compiler,
                   in_comment(x, x->h->model), dash ? (int)(dash - m->triple) : 0, m->triple,
                   m->cpu);
  print_list(x, "The code uses of the processor:", x->h->n_features, x->h->features);
  print_list(x, "It calls:", x->h->n_needs, x->h->needs);
  kiln_text_add(x->out, "*/\n");
  kiln_text_printf(x->out, "#ifndef %s_H\n#define %s_H\n\n", x->macro, x->macro);
  kiln_text_add(x->out, "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n"
                        "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
}

static void print_port(header *x, const char *name, const kiln_plan_port *p) {
  char shape[256];
  kiln_shape_text(p->rank, p->shape, shape, sizeof shape);
  kiln_text_printf(x->out, "   %-20s %s%s", name, p->type->text, shape);
  if (kiln_type_is_packed(p->type)) kiln_text_add(x->out, ", an element a byte, in its low bits");
  if (p->initial) kiln_text_add(x->out, ", or NULL: the model's own");
  kiln_text_add(x->out, "\n");
}

// The type of the caller's function that runs parts of kernels concurrently.
static void print_parallel_for(header *x) {
  const char *p = x->h->prefix;
  kiln_text_printf(x->out,
                   "\n/* Runs part(job, begin, end) for ranges that make up 0 to extent, in any "
                   "order and on any threads, and\n   comes back when all are done. More ranges "
                   "than |most| do not pay. It must not be left by an exception. */\n"
                   "typedef void %s_part(const void *job, int64_t begin, int64_t end);\n"
                   "typedef void %s_parallel_for(void *pool, %s_part *part, const void *job, "
                   "int64_t extent, int64_t most);\n",
                   p, p, p);
}

static void print_ports(header *x) {
  const kiln_plan *p = x->h->plan;
  const uint32_t n_results = kiln_plan_n_results(p);
  const char *const *name = x->names;
  for (uint32_t i = 0; i < p->n_inputs; i++) print_port(x, *name++, &p->inputs[i]);
  for (uint32_t i = 0; i < n_results; i++) print_port(x, *name++, &p->outputs[i]);
  for (uint32_t i = 0; i < p->n_shapes; i++)
    kiln_text_printf(x->out,
                     "   %-20s [%d] the extents that the run found, at the front of each axis\n",
                     *name++, p->outputs[p->shape_of[i]].rank);
  kiln_text_printf(x->out, "   %-20s %s_WORKSPACE_BYTES, aligned to %d, of no use between runs\n",
                   "workspace", x->macro, KILN_PLAN_ALIGN);
  if (x->h->has_weights_file)
    kiln_text_printf(x->out, "   %-20s the file of weights in memory, aligned to %d\n", "weights",
                     KILN_PLAN_ALIGN);
  if (x->h->has_parallel_for)
    kiln_text_printf(x->out,
                     "   %-20s runs kernels' parts side by side; NULL: the caller's thread runs "
                     "all\n   %-20s its first argument\n",
                     "parallel_for", "pool");
}

static void print_results(header *x) {
  const kiln_plan *p = x->h->plan;
  const bool can_fail = kiln_cpu_entry_workspace(p) > 0 || x->h->has_weights_file || p->n_checks;
  kiln_text_printf(x->out, "\n   Gives 0%s\n", can_fail ? ", or" : "");
  if (kiln_cpu_entry_workspace(p) > 0)
    kiln_text_printf(x->out, "   %5d  workspace is not aligned\n", KILN_ENTRY_BAD_WORKSPACE);
  if (x->h->has_weights_file)
    kiln_text_printf(x->out, "   %5d  weights are not aligned, or not of this library\n",
                     KILN_ENTRY_BAD_WEIGHTS);
  for (uint32_t i = 0; i < p->n_checks; i++)
    kiln_text_printf(
        x->out, "   %5" PRIu32 "  %s: %s: an index along axis %" PRId32 " is out of range\n", i + 1,
        in_comment(x, p->checks[i].place), in_comment(x, p->checks[i].index), p->checks[i].axis);
}

static void print_parameters(header *x) {
  const kiln_plan *p = x->h->plan;
  const uint32_t n_results = kiln_plan_n_results(p);
  const char *const *name = x->names;
  for (uint32_t i = 0; i < p->n_inputs; i++)
    kiln_text_printf(x->out, "const %s *%s, ", c_type(p->inputs[i].type), *name++);
  for (uint32_t i = 0; i < n_results; i++)
    kiln_text_printf(x->out, "%s *%s, ", c_type(p->outputs[i].type), *name++);
  for (uint32_t i = 0; i < p->n_shapes; i++) kiln_text_printf(x->out, "int64_t *%s, ", *name++);
  kiln_text_printf(x->out, "void *workspace%s",
                   x->h->has_weights_file ? ", const void *weights" : "");
  if (x->h->has_parallel_for)
    kiln_text_printf(x->out, ", %s_parallel_for *parallel_for, void *pool", x->h->prefix);
}

static void print_sizes(header *x) {
  const kiln_plan *p = x->h->plan;
  const uint32_t n_results = kiln_plan_n_results(p);
  const char *const *name = x->names;
  kiln_text_printf(x->out, "#define %s_WORKSPACE_BYTES %" PRIu64 "\n", x->macro,
                   kiln_cpu_entry_workspace(p));
  kiln_text_printf(x->out, "#define %s_ALIGN %d /* of workspace%s */\n", x->macro, KILN_PLAN_ALIGN,
                   x->h->has_weights_file ? " and weights" : "");
  if (x->h->has_weights_file)
    kiln_text_printf(x->out, "#define %s_WEIGHTS_BYTES %" PRIu64 " /* of the file */\n", x->macro,
                     p->weights_bytes + KILN_WEIGHTS_HEAD_BYTES);
  for (uint32_t i = 0; i < p->n_inputs + n_results; i++) {
    const kiln_plan_port *port = i < p->n_inputs ? &p->inputs[i] : &p->outputs[i - p->n_inputs];
    kiln_text_printf(x->out, "#define %s_%s_ELEMS %" PRId64 "\n", x->macro,
                     capitals(x->arena, *name++), elements(port));
  }
}

void kiln_c_header_print(kiln_arena *scratch, const kiln_c_header *h, kiln_text *out) {
  header x = {h, scratch, out, capitals(scratch, h->prefix), NULL};
  name_ports(&x);
  print_head(&x);
  print_sizes(&x);
  if (h->has_parallel_for) print_parallel_for(&x);
  kiln_text_printf(out,
                   "\n/* Runs the model once%s. Any number of threads may run it at once, each\n"
                   "   with a workspace of its own. Tensors are row-major; no output overlaps "
                   "another one or an input.\n\n",
                   h->has_parallel_for ? "" : ", on the caller's thread");
  print_ports(&x);
  print_results(&x);
  kiln_text_printf(out, "*/\nint %s_run(", h->prefix);
  print_parameters(&x);
  kiln_text_add(out, ");\n\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
}

// Definitions in TC notation as models: one definition of a .tc file, bound to sizes.
#include "model/model.h"
#include "rewrite/checks.h"
#include "rewrite/empty.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_TEXT_BYTES = 16 << 20 };

bool kiln_path_is_definition(const char *path) {
  const size_t n = strlen(path);
  return n > 3 && strcmp(path + n - 3, ".tc") == 0;
}

kiln_status kiln_text_read(kiln_ctx *cx, const char *path, const char **out) {
  struct stat info;
  *out = NULL;
  if (stat(path, &info) != 0)
    return KILN_FAIL(cx->diag, kiln_status_of_error(errno), path, "file: must be readable, got: %s",
                     strerror(errno));
  if (!S_ISREG(info.st_mode) || info.st_size > MAX_TEXT_BYTES)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path, "file: must be a text of at most %d MB",
                     MAX_TEXT_BYTES >> 20);
  // Allocated before the file is opened.
  char *text = kiln_arena_alloc(&cx->perm, (size_t)info.st_size + 1);
  FILE *f = fopen(path, "re");
  const size_t n = f ? fread(text, 1, (size_t)info.st_size, f) : 0;
  const int wrong = f && !ferror(f) ? 0 : errno;
  if (f) fclose(f);
  if (wrong)
    return KILN_FAIL(cx->diag, kiln_status_of_error(wrong), path, "file: must be readable, got: %s",
                     strerror(wrong));
  text[n] = 0;
  if (strlen(text) != n)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path, "file: must be text, got a zero byte");
  *out = text;
  return KILN_OK;
}

static const kiln_memory_file *find_in_memory(const kiln_compile_options *o, const char *path) {
  for (size_t i = 0; i < o->n_files; i++)
    if (strcmp(o->files[i].name, path) == 0) return &o->files[i];
  return NULL;
}

kiln_status kiln_text_take(kiln_ctx *cx, const kiln_compile_options *o, const char *path,
                           const char **out) {
  const kiln_memory_file *f = find_in_memory(o, path);
  if (!f) return kiln_text_read(cx, path, out);
  *out = NULL;
  if (f->n_bytes > MAX_TEXT_BYTES)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path, "file: must be a text of at most %d MB",
                     MAX_TEXT_BYTES >> 20);
  if (f->n_bytes > 0 && memchr(f->data, 0, f->n_bytes))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path, "file: must be text, got a zero byte");
  *out = kiln_arena_strndup(&cx->perm, f->n_bytes > 0 ? f->data : "", f->n_bytes);
  return KILN_OK;
}

// --- sizes ---

static kiln_status take_sizes(kiln_ctx *cx, const char *path, const kiln_compile_options *o,
                              kiln_tc_binding *out) {
  for (size_t i = 0; i < o->n_dims; i++) {
    out[i] = (kiln_tc_binding){o->dims[i].name, o->dims[i].value};
    for (size_t k = 0; k < i; k++)
      if (strcmp(out[k].name, out[i].name) == 0)
        return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                         "size %s: must have one value, got %" PRId64 " and %" PRId64, out[i].name,
                         out[k].value, out[i].value);
  }
  return KILN_OK;
}

// Sizes and offsets must be below 2^62 bytes.
static kiln_status check_bytes(kiln_ctx *cx, const char *path, const kiln_program *p) {
  for (int i = 0; i < p->tensors.n; i++) {
    const kiln_tensor *t = p->tensors.data[i];
    if (kiln_tensor_elems(t) > (INT64_C(1) << 62) / kiln_dtype_bytes(t->dtype))
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                       "tensor %s: must have fewer than 2^62 bytes: the sizes are too large",
                       kiln_symbol_text(cx, t->name));
  }
  return KILN_OK;
}

// --- the interface ---

static void make_signature(kiln_ctx *cx, const kiln_program *p, int n, const int *tensors,
                           int n_named, const char *const *names, kiln_interface *face) {
  kiln_interface_init(cx, face, n);
  for (int i = 0; i < n; i++) {
    const kiln_tensor *t = p->tensors.data[tensors[i]];
    const char *own = kiln_symbol_text(cx, t->name); // may have a suffix
    kiln_interface_set(cx, face, i, i < n_named ? names[i] : own, kiln_dtype_text(t->dtype),
                       t->rank, t->shape);
  }
}

static kiln_tc_signature *find_definition(int n, kiln_tc_signature *all, const char *entry) {
  for (int i = 0; entry && i < n; i++)
    if (strcmp(all[i].name, entry) == 0) return &all[i];
  return &all[n - 1];
}

kiln_status kiln_definition_load(kiln_ctx *cx, kiln_model *m, const kiln_compile_options *o) {
  const char *text = NULL;
  kiln_program *p = NULL;
  kiln_tc_binding *sizes = KILN_NEW_ARRAY(&cx->perm, kiln_tc_binding, o->n_dims);
  KILN_TRY(take_sizes(cx, m->path, o, sizes));
  KILN_TRY(kiln_text_take(cx, o, m->path, &text));
  const int n_sizes = (int)o->n_dims;
  const bool whole = m->nth < 0; // every definition must be valid
  KILN_TRY(whole ? kiln_tc_program(cx, m->path, text, o->entry, n_sizes, sizes, &p)
                 : kiln_tc_program_nth(cx, m->path, text, m->nth, n_sizes, sizes, &p));
  if (o->clamp_indices || o->read_only) kiln_checks_drop(cx, p);
  kiln_program_fold_empty(cx, p);
  KILN_TRY(check_bytes(cx, m->path, p));
  const kiln_status st =
      kiln_tc_signatures(cx, m->path, text, !whole, &m->n_definitions, &m->definitions);
  if (whole) KILN_TRY(st);
  const kiln_tc_signature *d =
      whole ? find_definition(m->n_definitions, m->definitions, o->entry) : &m->definitions[m->nth];
  m->definition = d;
  make_signature(cx, p, p->inputs.n, p->inputs.data, d->n_inputs, d->inputs, &m->inputs);
  make_signature(cx, p, p->outputs.n, p->outputs.data, d->n_outputs, d->outputs, &m->outputs);
  if (!o->read_only) m->prog = p;
  return KILN_OK;
}

// --- the report ---

static void list_names(kiln_text *t, int n, const char *const *names) {
  for (int i = 0; i < n; i++) kiln_text_printf(t, "%s%s", i ? ", " : "", names[i]);
}

static void report_line(kiln_text *out, const kiln_tc_signature *s) {
  kiln_text_printf(out, "%-12s%s, line %d: sizes ", "definition", s->name, s->line);
  list_names(out, s->n_sizes, s->sizes);
  kiln_text_add(out, s->n_sizes ? "; inputs " : "none; inputs ");
  list_names(out, s->n_inputs, s->inputs);
  kiln_text_add(out, s->n_inputs ? "; outputs " : "none; outputs ");
  list_names(out, s->n_outputs, s->outputs);
  kiln_text_add(out, "\n");
}

static void report_ports(kiln_text *out, const char *word, const kiln_interface *face) {
  kiln_text_printf(out, "%s\n", word);
  for (int i = 0; i < face->n; i++) {
    const kiln_port *p = &face->ports[i];
    kiln_text_printf(out, "  %s: %s[", p->name, p->dtype);
    for (int k = 0; k < p->rank; k++) {
      kiln_text_add(out, k ? ", " : "");
      if (p->shape[k] < 0) kiln_text_add(out, face->dim_names[i][k]);
      else kiln_text_printf(out, "%" PRId64, p->shape[k]);
    }
    kiln_text_add(out, "]\n");
  }
}

static const char *report_text(kiln_ctx *cx, const kiln_model *m) {
  kiln_text out;
  kiln_text_init(&out, &cx->perm);
  kiln_text_printf(&out, "%-12s%s\n", "file", m->path);
  for (int i = 0; i < m->n_definitions; i++) report_line(&out, &m->definitions[i]);
  kiln_text_printf(&out, "%-12s%s\n", "entry", m->definition->name);
  report_ports(&out, "inputs", &m->inputs);
  report_ports(&out, "outputs", &m->outputs);
  return out.data;
}

static json_t *json_names(int n, const char *const *names) {
  json_t *list = json_array();
  for (int i = 0; i < n; i++) json_array_append_new(list, json_string(names[i]));
  return list;
}

static json_t *json_ports(const kiln_interface *face) {
  json_t *list = json_array();
  for (int i = 0; i < face->n; i++) {
    const kiln_port *p = &face->ports[i];
    json_t *shape = json_array();
    for (int k = 0; k < p->rank; k++)
      json_array_append_new(shape, p->shape[k] < 0 ? json_string(face->dim_names[i][k])
                                                   : json_integer(p->shape[k]));
    json_array_append_new(
        list, json_pack("{s:s, s:s, s:o}", "name", p->name, "dtype", p->dtype, "shape", shape));
  }
  return list;
}

static json_t *json_report(const kiln_model *m) {
  json_t *list = json_array();
  for (int i = 0; i < m->n_definitions; i++) {
    const kiln_tc_signature *s = &m->definitions[i];
    json_array_append_new(list, json_pack("{s:s, s:i, s:o, s:o, s:o}", "name", s->name, "line",
                                          s->line, "sizes", json_names(s->n_sizes, s->sizes),
                                          "inputs", json_names(s->n_inputs, s->inputs), "outputs",
                                          json_names(s->n_outputs, s->outputs)));
  }
  return json_pack("{s:s, s:o, s:s, s:o, s:o}", "file", m->path, "definitions", list, "entry",
                   m->definition->name, "inputs", json_ports(&m->inputs), "outputs",
                   json_ports(&m->outputs));
}

kiln_status kiln_definition_report(kiln_ctx *cx, const kiln_model *m, bool json,
                                   const char **out_text) {
  if (!json) {
    *out_text = report_text(cx, m);
    return KILN_OK;
  }
  json_t *root = json_report(m);
  char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
  json_decref(root);
  if (!text) return KILN_FAIL(cx->diag, KILN_NO_MEMORY, m->path, "report: no memory left");
  kiln_cleanup_push(cx, free, text);
  *out_text = kiln_arena_printf(&cx->perm, "%s\n", text);
  kiln_cleanup_pop(cx);
  free(text);
  return KILN_OK;
}

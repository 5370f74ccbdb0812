// Checks of options: pointers must not be NULL.
#include "model/model.h"

// A list of |n| rows of |row_bytes| bytes, each beginning with a pointer.
static kiln_status check_rows(const char *list, const char *what, const void *rows, size_t n,
                              size_t row_bytes, kiln_diag *diag) {
  if (n > 0 && !rows)
    return KILN_FAIL(diag, KILN_BAD_INPUT, "options", "%s: must not be NULL where there are %zu",
                     list, n);
  for (size_t i = 0; i < n; i++) {
    const void *first = NULL;
    memcpy(&first, (const char *)rows + i * row_bytes, sizeof first);
    if (!first)
      return KILN_FAIL(diag, KILN_BAD_INPUT, "options", "%s[%zu]: %s must not be NULL", list, i,
                       what);
  }
  return KILN_OK;
}

kiln_status kiln_options_check(const kiln_compile_options *o, kiln_diag *diag) {
  const struct {
    const char *list, *what;
    const void *rows;
    size_t n, row_bytes;
  } lists[] = {{"dims", "the name", o->dims, o->n_dims, sizeof *o->dims},
               {"shapes", "the name", o->shapes, o->n_shapes, sizeof *o->shapes},
               {"ranges", "the name", o->ranges, o->n_ranges, sizeof *o->ranges},
               {"sums", "the name", o->sums, o->n_sums, sizeof *o->sums},
               {"constant_names", "it", o->constant_names, o->n_constants, sizeof(char *)},
               {"constant_values", "it", o->constant_values, o->n_constants, sizeof(void *)},
               {"op_files", "it", o->op_files, o->n_op_files, sizeof(char *)},
               {"without", "it", o->without, o->n_without, sizeof(char *)},
               {"with_rules", "it", o->with_rules, o->n_with_rules, sizeof(char *)},
               {"overridable", "it", o->overridable, o->n_overridable, sizeof(char *)},
               {"marks", "it", o->marks, o->n_marks, sizeof(char *)},
               {"states", "it", o->states, o->n_states, sizeof(char *)},
               {"files", "the name", o->files, o->n_files, sizeof *o->files}};
  for (size_t i = 0; i < KILN_LEN(lists); i++)
    KILN_TRY(check_rows(lists[i].list, lists[i].what, lists[i].rows, lists[i].n, lists[i].row_bytes,
                        diag));
  for (size_t i = 0; i < o->n_sums; i++)
    if (!o->sums[i].is)
      return KILN_FAIL(diag, KILN_BAD_INPUT, "options", "sums[%zu]: the sum must not be NULL", i);
  for (size_t i = 0; i < o->n_files; i++)
    if (o->files[i].n_bytes > 0 && !o->files[i].data)
      return KILN_FAIL(diag, KILN_BAD_INPUT, "options", "files[%zu]: the data must not be NULL", i);
  for (size_t i = 0; i < o->n_shapes; i++)
    if (o->shapes[i].rank > 0 && !o->shapes[i].shape)
      return KILN_FAIL(diag, KILN_BAD_INPUT, "options", "shapes[%zu]: the shape must not be NULL",
                       i);
  return KILN_OK;
}

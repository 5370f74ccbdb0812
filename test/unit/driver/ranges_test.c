// Modules for ranges of dimensions: what their variants share.
#include "unit/driver/models.h"

// One row, a few and many are tiled otherwise, but all read the weights in one layout.
static void variants_hold_the_weights_once(void **state) {
  (void)state;
  folder f = folder_make();
  kiln_diag *diag = kiln_diag_create();
  kiln_model *m = NULL;
  const kiln_dim_range rows = {"rows", 1, 256, 1};
  const kiln_compile_options o = {
      .struct_size = sizeof o, .ranges = &rows, .n_ranges = 1, .threads = 1};
  save_pair(f.model, "rows");
  if (kiln_model_load(f.model, &o, diag, &m) != KILN_OK ||
      kiln_model_compile_to(m, f.module, diag) != KILN_OK)
    fail_msg("%s", kiln_diag_message(diag, 0));
  const kiln_memory memory = kiln_model_memory(m);
  assert_int_equal(memory.model_weight_bytes, 4 * (WIDE * WIDE + WIDE + WIDE * NARROW));
  if (10 * memory.weight_bytes > 12 * memory.model_weight_bytes)
    fail_msg("weights: must be at most 1.2 times the model's %zu bytes, got %zu",
             (size_t)memory.model_weight_bytes, (size_t)memory.weight_bytes);
  kiln_model_destroy(m);
  kiln_diag_destroy(diag);
  folder_remove(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(variants_hold_the_weights_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

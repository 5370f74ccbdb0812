// Plans: written ones read back equal; no damaged plan crashes the reader, or is accepted with
// offsets out of range.
#include "gpu/module.h"
#include "runtime/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *features[] = {"x86_64", "avx2"};
static const char *functions[] = {"add_0", "add_1"};
static kiln_plan_call calls[] = {
    {"openblas", "product a 0:0 b 0:0 c 1:0 m 3:4:0:4 n 4:0:1:1 k 2:1:4:0", 2}};

static uint32_t shape_of[] = {1};
static kiln_plan_state states[] = {{0, 0}};

static kiln_plan make(kiln_plan_port *inputs, kiln_plan_port *outputs, kiln_plan_launch *launches,
                      kiln_plan_arg *args, kiln_plan_nest *nests, kiln_plan_copy *copies) {
  const kiln_type *f32 = kiln_type_find("f32");
  inputs[0] = (kiln_plan_port){"x", f32, 2, {3, 4}, 48, 0};
  inputs[1] = (kiln_plan_port){"scale", f32, 0, {0}, 4, 0};
  outputs[0] = (kiln_plan_port){"y", f32, 2, {3, 4}, 48, 0};
  outputs[1] = (kiln_plan_port){"z", f32, 2, {4, 3}, 48, 0};
  outputs[2] = (kiln_plan_port){"shape", kiln_type_find("i64"), 1, {2}, 16, 0};
  launches[0] = (kiln_plan_launch){"add", "n1+n2", 12, 96, 0, 3, 0, 1, 0};
  launches[1] = (kiln_plan_launch){"mul", "n3", 12, 96, 3, 2, 1, 0, 1};
  args[0] = (kiln_plan_arg){KILN_PLACE_INPUT, 0, 0, 48};
  args[1] = (kiln_plan_arg){KILN_PLACE_WEIGHTS, 0, 64, 48};
  args[2] = (kiln_plan_arg){KILN_PLACE_ARENA, 0, 128, 48};
  args[3] = (kiln_plan_arg){KILN_PLACE_ARENA, 0, 128, 48};
  args[4] = (kiln_plan_arg){KILN_PLACE_OUTPUT, 0, 0, 48};
  nests[0] = (kiln_plan_nest){.function = 0, .threads = 8, .extent = 3};
  nests[1] = (kiln_plan_nest){.function = 1, .threads = 1, .extent = 1};
  copies[0] = (kiln_plan_copy){{KILN_PLACE_INPUT, 0, 0, 48}, 1, {1, 4}};
  return (kiln_plan){.arena_bytes = 192,
                     .arena_bound_bytes = 64,
                     .weights_bytes = 112,
                     .n_features = 2,
                     .n_inputs = 2,
                     .n_outputs = 3,
                     .n_shapes = 1,
                     .shape_of = shape_of,
                     .n_states = 1,
                     .states = states,
                     .n_functions = 2,
                     .n_launches = 2,
                     .n_args = 5,
                     .n_nests = 2,
                     .n_copies = 1,
                     .n_calls = 1,
                     .calls = calls,
                     .features = features,
                     .inputs = inputs,
                     .outputs = outputs,
                     .functions = functions,
                     .launches = launches,
                     .args = args,
                     .nests = nests,
                     .copies = copies};
}

static void *blob_of(size_t *bytes) {
  kiln_plan_port inputs[2], outputs[3];
  kiln_plan_launch launches[2];
  kiln_plan_arg args[5];
  kiln_plan_nest nests[2];
  kiln_plan_copy copies[1];
  kiln_plan plan = make(inputs, outputs, launches, args, nests, copies);
  void *blob = NULL;
  kiln_plan_write(&plan, &blob, bytes);
  assert_non_null(blob);
  return blob;
}

static void a_plan_reads_back_as_it_was_written(void **state) {
  (void)state;
  size_t bytes = 0, again_bytes = 0;
  void *blob = blob_of(&bytes), *again = NULL;
  kiln_diag *diag = kiln_diag_create();
  kiln_plan p;
  assert_int_equal(kiln_plan_read(blob, bytes, "m.so", diag, &p), KILN_OK);
  assert_string_equal(p.inputs[0].name, "x");
  assert_int_equal(p.outputs[1].bytes, 48);
  assert_string_equal(p.launches[0].nodes, "n1+n2");
  assert_int_equal(p.nests[0].extent, 3);
  assert_int_equal(p.launches[1].call, 1);
  assert_string_equal(p.calls[0].text, calls[0].text);
  assert_int_equal(p.copies[0].strides[1], 4);
  assert_int_equal(p.shape_of[0], 1);
  assert_int_equal(p.n_states, 1);
  kiln_plan_write(&p, &again, &again_bytes);
  assert_int_equal(bytes, again_bytes);
  assert_memory_equal(blob, again, bytes);
  kiln_plan_deinit(&p);
  kiln_diag_destroy(diag);
  free(again);
  free(blob);
}

// The message for one wrong field of the plan above, which |poke| sets.
static void wrong_arena(kiln_plan *p) { p->arena_bytes = 191 - 48 - 1; }
static void wrong_weights(kiln_plan *p) { p->weights_bytes = 111; }
static void wrong_bound(kiln_plan *p) { p->arena_bound_bytes = 193; }
static void wrong_huge(kiln_plan *p) { p->arena_bytes = UINT64_C(1) << 50; }
static void wrong_align(kiln_plan *p) { p->args[1].offset = 8; }
static void wrong_wrap(kiln_plan *p) { p->args[2].offset = UINT64_MAX - 63; }
static void wrong_input(kiln_plan *p) { p->args[0].index = 2; }
static void wrong_input_offset(kiln_plan *p) {
  p->args[0] = (kiln_plan_arg){KILN_PLACE_INPUT, 0, 64, 0};
}
static void wrong_extern(kiln_plan *p) { p->args[0].where = KILN_PLACE_EXTERN; }
static void wrong_launch(kiln_plan *p) { p->launches[1].n_args = 3; }
static void wrong_function(kiln_plan *p) { p->nests[1].function = 2; }
static void wrong_threads(kiln_plan *p) { p->nests[1].threads = 0; }
static void wrong_extent(kiln_plan *p) { p->nests[0].extent = -1; }
static void wrong_shape(kiln_plan *p) { p->inputs[0].shape[1] = -4; }
static void wrong_size(kiln_plan *p) { p->inputs[0].shape[1] = INT64_MAX / 2; }
static void wrong_call(kiln_plan *p) { p->launches[1].call = 2; }
static void wrong_call_nests(kiln_plan *p) { p->launches[1].n_nests = 1; }
static void wrong_call_text(kiln_plan *p) {
  static kiln_plan_call wrong = {"openblas", "quotient a 0:0", 2};
  p->calls = &wrong;
}
static void wrong_call_reach(kiln_plan *p) { p->args[4].bytes -= 4; }
static void wrong_call_threads(kiln_plan *p) {
  static kiln_plan_call wrong;
  wrong = (kiln_plan_call){calls[0].backend, calls[0].text, 0};
  p->calls = &wrong;
}
static void wrong_shape_of(kiln_plan *p) {
  static uint32_t itself[] = {2};
  p->shape_of = itself;
}
static void wrong_shape_type(kiln_plan *p) { p->outputs[2].type = kiln_type_find("u64"); }
static void wrong_shape_rank(kiln_plan *p) { p->outputs[2].shape[0] = 3; }
static void wrong_state_output(kiln_plan *p) {
  static kiln_plan_state wrong = {0, 2}; // a hidden one
  p->states = &wrong;
}
static void wrong_state_rank(kiln_plan *p) {
  static kiln_plan_state wrong = {1, 0};
  p->states = &wrong;
}
static void wrong_state_twice(kiln_plan *p) {
  static kiln_plan_state wrong[] = {{0, 0}, {0, 1}};
  p->n_states = 2;
  p->states = wrong;
}
static void wrong_copy(kiln_plan *p) { p->copies[0].strides[0] = 2; }
static void wrong_copy_sign(kiln_plan *p) { p->copies[0].strides[0] = -1; }
static void wrong_copy_wrap(kiln_plan *p) { p->copies[0].strides[0] = INT64_MAX; }

static const struct {
  void (*poke)(kiln_plan *p);
  const char *message;
} wrongs[] = {
    {wrong_arena, "must lie inside its memory"},
    {wrong_weights, "must lie inside its memory"},
    {wrong_shape_of, "a shape must be of an output before the shapes"},
    {wrong_shape_type, "a shape must be an i64 for every axis"},
    {wrong_shape_rank, "a shape must be an i64 for every axis"},
    {wrong_huge, "below 2^46"},
    {wrong_bound, "below its lower bound"},
    {wrong_align, "aligned to 64 bytes"},
    {wrong_wrap, "must lie inside its memory"},
    {wrong_input, "must lie inside its memory"},
    {wrong_input_offset, "must lie inside its memory"},
    {wrong_extern, "must lie inside its memory"},
    {wrong_launch, "arguments and nests of this plan"},
    {wrong_function, "function of this plan"},
    {wrong_threads, "at least 1 thread"},
    {wrong_extent, "extent of at least 0"},
    {wrong_shape, "extents of a shape"},
    {wrong_size, "extents of a shape"},
    {wrong_call, "a call of this plan"},
    {wrong_call_nests, "nests, or a call"},
    {wrong_call_text, "of a known form"},
    {wrong_call_reach, "all its elements in its arguments"},
    {wrong_call_threads, "at least 1 thread"},
    {wrong_state_output, "a state must be an input and an output of one type and rank"},
    {wrong_state_rank, "a state must be an input and an output of one type and rank"},
    {wrong_state_twice, "each once"},
    {wrong_copy, "read inside its source"},
    {wrong_copy_sign, "read inside its source"},
    {wrong_copy_wrap, "read inside its source"},
};

static void every_wrong_field_has_its_message(void **state) {
  (void)state;
  for (size_t row = 0; row < sizeof wrongs / sizeof wrongs[0]; row++) {
    kiln_plan_port inputs[2], outputs[3];
    kiln_plan_launch launches[2];
    kiln_plan_arg args[5];
    kiln_plan_nest nests[2];
    kiln_plan_copy copies[1];
    kiln_plan plan = make(inputs, outputs, launches, args, nests, copies), read;
    kiln_diag *diag = kiln_diag_create();
    void *blob = NULL;
    size_t bytes = 0;
    wrongs[row].poke(&plan);
    kiln_plan_write(&plan, &blob, &bytes);
    assert_int_equal(kiln_plan_read(blob, bytes, "m.so", diag, &read), KILN_BAD_INPUT);
    assert_int_equal(kiln_diag_count(diag), 1);
    if (!strstr(kiln_diag_message(diag, 0), wrongs[row].message))
      fail_msg("row %zu: %s", row, kiln_diag_message(diag, 0));
    free(blob);
    kiln_diag_destroy(diag);
  }
}

// The same for a plan of a device.
static void device_image(kiln_plan *p) { p->nests[1].image = 2; }
static void device_image_end(kiln_plan *p) { p->images[1].bytes += 64; }
static void device_image_align(kiln_plan *p) { p->images[1].offset = 32; }
static void device_image_wrap(kiln_plan *p) { p->images[1].offset = UINT64_MAX - 63; }
static void device_image_empty(kiln_plan *p) { p->images[0].bytes = 0; }
static void device_index(kiln_plan *p) { p->indices[3] = 2; }
static void device_indices(kiln_plan *p) { p->nests[1].n_indices = 3; }
static void device_indices_again(kiln_plan *p) { p->nests[1].first_index = 2; }
static void device_nests_again(kiln_plan *p) { p->launches[1].first_nest = 0; }
static void device_grid(kiln_plan *p) { p->nests[0].grid[1] = 65536; }
static void device_no_block(kiln_plan *p) { p->nests[0].block[2] = 0; }
static void device_block(kiln_plan *p) { p->nests[0].block[1] = 65; }
static void device_block_wrap(kiln_plan *p) { p->nests[0].block[1] = UINT32_MAX; }
static void device_shared(kiln_plan *p) { p->nests[0].shared_bytes = UINT32_MAX; }
static void device_maps(kiln_plan *p) { p->nests[1].n_maps = 5; }
static void device_map_index(kiln_plan *p) { p->nests[1].maps[0].index = 2; }
static void device_map_box(kiln_plan *p) { p->nests[1].maps[0].box_rows = 257; }
static void device_map_pitch(kiln_plan *p) { p->nests[1].maps[0].pitches[0] += 8; }
static void device_map_columns(kiln_plan *p) { p->nests[1].maps[0].columns++; }
static void device_map_rows(kiln_plan *p) { p->nests[1].maps[0].rows[0]++; }
static void device_map_wrap(kiln_plan *p) { p->nests[1].maps[0].rows[0] = UINT64_MAX; }
static void device_map_axes(kiln_plan *p) { p->nests[1].maps[0].n_axes = 2; }
static void device_windows_step(kiln_plan *p) { p->nests[1].maps[1].steps[1] = 9; }
static void device_windows_corner(kiln_plan *p) { p->nests[1].maps[1].lower[0] = -129; }
static void device_windows_images(kiln_plan *p) { p->nests[1].maps[1].rows[2]++; }
static void device_windows_wrap(kiln_plan *p) { p->nests[1].maps[1].rows[2] = UINT64_MAX; }
static void device_extern(kiln_plan *p) { p->n_externs = 1; }
static void device_calls(kiln_plan *p) {
  p->kind = KILN_PLAN_OPENCL;
  p->n_calls = 1;
  p->calls = calls;
}
static void device_kind(kiln_plan *p) { p->kind = KILN_PLAN_CPU; }
static void device_no_kind(kiln_plan *p) { p->kind = KILN_N_PLAN_KINDS; }
static void device_code(kiln_plan *p) { p->code_bytes = UINT64_C(1) << 50; }

static const struct {
  void (*poke)(kiln_plan *p);
  const char *message;
} device_wrongs[] = {
    {device_image, "an image and arguments of this plan"},
    {device_image_end, "must lie inside the code"},
    {device_image_align, "must lie inside the code"},
    {device_image_wrap, "must lie inside the code"},
    {device_image_empty, "must lie inside the code"},
    {device_index, "arguments of its launch"},
    {device_indices, "an image and arguments of this plan"},
    {device_indices_again, "in the order of nests"},
    {device_nests_again, "in the order of launches"},
    {device_grid, "a grid must be at most"},
    {device_no_block, "1 to 4096 threads"},
    {device_block, "1 to 4096 threads"},
    {device_block_wrap, "1 to 4096 threads"},
    {device_shared, "at most 1 MiB"},
    {device_maps, "at most 4 maps"},
    {device_map_index, "a map must be of an argument of its nest"},
    {device_map_box, "boxes of 1 to 256"},
    {device_map_pitch, "multiples of 16 bytes apart"},
    {device_map_columns, "multiples of 16 bytes apart"},
    {device_map_rows, "a map must lie inside its argument"},
    {device_map_wrap, "a map must be of an argument of its nest"},
    {device_map_axes, "an axis of rows, or three"},
    {device_windows_step, "1 to 8 elements apart"},
    {device_windows_corner, "corners from -128 to 127"},
    {device_windows_images, "a map must lie inside its argument"},
    {device_windows_wrap, "a map must be of an argument of its nest"},
    {device_calls, "OpenCL must have no calls"},
    {device_extern, "all constants in its weights"},
    {device_kind, "must have no images"},
    {device_no_kind, "one of Kiln's"},
    {device_code, "below 2^46"},
};

static void every_wrong_field_of_a_device_has_its_message(void **state) {
  (void)state;
  for (size_t row = 0; row < sizeof device_wrongs / sizeof device_wrongs[0]; row++) {
    gpu_plan g;
    kiln_plan read;
    kiln_diag *diag = kiln_diag_create();
    void *blob = NULL;
    size_t bytes = 0;
    gpu_plan_make(&g, KILN_PLAN_CUDA, "sm_90a", (const size_t[]){100, 100});
    device_wrongs[row].poke(&g.plan);
    kiln_plan_write(&g.plan, &blob, &bytes);
    assert_int_equal(kiln_plan_read(blob, bytes, "m.kmod", diag, &read), KILN_BAD_INPUT);
    assert_int_equal(kiln_diag_count(diag), 1);
    if (!strstr(kiln_diag_message(diag, 0), device_wrongs[row].message))
      fail_msg("row %zu: %s", row, kiln_diag_message(diag, 0));
    free(blob);
    kiln_diag_destroy(diag);
  }
}

// Whatever is accepted of a device's plan must be usable.
static void check_device(const kiln_plan *p) {
  for (uint32_t i = 0; i < p->n_images; i++)
    assert_true(p->images[i].offset + p->images[i].bytes <= p->code_bytes);
  for (uint32_t i = 0; p->kind != KILN_PLAN_CPU && i < p->n_launches; i++)
    for (uint32_t k = 0; k < p->launches[i].n_nests; k++) {
      const kiln_plan_nest *n = &p->nests[p->launches[i].first_nest + k];
      assert_true(n->image < p->n_images && n->function < p->n_functions);
      for (uint32_t a = 0; a < n->n_indices; a++)
        assert_true(p->indices[n->first_index + a] < p->launches[i].n_args);
    }
}

// Reads a damaged copy; if it is accepted, everything in it must be usable.
static void try_read(const unsigned char *blob, size_t bytes) {
  kiln_diag *diag = kiln_diag_create();
  kiln_plan p;
  kiln_status st = kiln_plan_read(blob, bytes, "m.so", diag, &p);
  assert_int_equal(kiln_diag_count(diag), st == KILN_OK ? 0 : 1);
  if (st == KILN_OK) {
    void *again = NULL;
    size_t again_bytes = 0;
    for (uint32_t i = 0; i < p.n_args; i++)
      if (p.args[i].where == KILN_PLACE_ARENA)
        assert_true(p.args[i].offset + p.args[i].bytes <= p.arena_bytes);
    check_device(&p);
    kiln_plan_write(&p, &again, &again_bytes);
    assert_int_equal(again_bytes, bytes);
    free(again);
    kiln_plan_deinit(&p);
  }
  kiln_diag_destroy(diag);
}

static void damage(unsigned char *blob, size_t bytes) {
  for (size_t n = 0; n < bytes; n++) { // cut short: in a block of that size, for the sanitizer
    unsigned char *cut = malloc(n ? n : 1);
    memcpy(cut, blob, n);
    kiln_diag *diag = kiln_diag_create();
    kiln_plan p;
    assert_int_equal(kiln_plan_read(cut, n, "m.so", diag, &p), KILN_BAD_INPUT);
    kiln_diag_destroy(diag);
    free(cut);
  }
  srand(11);
  for (int round = 0; round < 20000; round++) {
    unsigned char *bad = malloc(bytes);
    memcpy(bad, blob, bytes);
    for (int i = 0; i <= round % 3; i++) {
      static const unsigned char favourites[] = {0, 1, 0x7f, 0x80, 0xff};
      size_t at = (size_t)rand() % bytes;
      bad[at] = rand() % 2 ? favourites[rand() % 5] : (unsigned char)rand();
    }
    try_read(bad, bytes);
    free(bad);
  }
}

static void damaged_plans_never_crash(void **state) {
  (void)state;
  size_t bytes = 0;
  void *blob = blob_of(&bytes);
  damage(blob, bytes);
  free(blob);
}

static void damaged_plans_of_devices_never_crash(void **state) {
  (void)state;
  gpu_plan g;
  size_t bytes = 0;
  void *blob = NULL;
  gpu_plan_make(&g, KILN_PLAN_OPENCL, "", (const size_t[]){100, 100});
  kiln_plan_write(&g.plan, &blob, &bytes);
  damage(blob, bytes);
  free(blob);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_plan_reads_back_as_it_was_written),
      cmocka_unit_test(every_wrong_field_has_its_message),
      cmocka_unit_test(every_wrong_field_of_a_device_has_its_message),
      cmocka_unit_test(damaged_plans_never_crash),
      cmocka_unit_test(damaged_plans_of_devices_never_crash),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

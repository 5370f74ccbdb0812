// The file of a measured machine: a written file reads back equal; a damaged file, or another
// machine's, is ignored with a warning.
#include "target/gpu/gpu.h"
#include "target/target.h"
#include "unit/fixture.h"

#include <sys/stat.h>
#include <unistd.h>

// A machine with figures other than the nominal ones.
static kiln_device *odd_device(fixture *f, kiln_machine *m) {
  kiln_device *d = KILN_NEW(&f->cx.perm, kiln_device);
  assert_int_equal(kiln_machine_named(&f->cx, "avx512vnni", m), KILN_OK);
  *d = *m->device;
  d->is_measured = true;
  d->launch_ns = 7.25;
  d->levels[1].usable = 0.375;
  d->levels[2].latency_ns = 4.75;
  return d;
}

static char *temporary(fixture *f) {
  char *folder = kiln_arena_strdup(&f->cx.perm, "/tmp/kiln-device-XXXXXX");
  assert_non_null(mkdtemp(folder));
  return folder;
}

static void put_text(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static void what_is_written_is_read_back(void **state) {
  fixture *f = *state;
  kiln_machine m;
  const kiln_device *d = odd_device(f, &m);
  const char *folder = temporary(f);
  const char *deep = kiln_arena_printf(&f->cx.perm, "%s/a/b", folder);
  const char *path = kiln_arena_printf(&f->cx.perm, "%s/d.json", deep);
  assert_null(kiln_device_read(&f->cx, &m, path)); // a missing file is no error
  assert_int_equal(kiln_diag_count(f->diag), 0);
  assert_int_equal(kiln_device_write(&f->cx, &m, d, path), KILN_OK);
  const kiln_device *got = kiln_device_read(&f->cx, &m, path);
  assert_non_null(got);
  assert_true(got->is_measured && got->n_levels == d->n_levels && got->n_units == d->n_units);
  assert_true(got->launch_ns == 7.25 && got->levels[1].usable == 0.375);
  assert_true(got->levels[0].capacity_bytes == INT64_MAX && got->levels[2].latency_ns == 4.75);
  assert_string_equal(kiln_device_print(&f->cx, &m, got), kiln_device_print(&f->cx, &m, d));
  unlink(path);
  rmdir(deep);
  rmdir(kiln_arena_printf(&f->cx.perm, "%s/a", folder));
  rmdir(folder);
}

// |from| in the file replaced by |to|.
static const struct {
  const char *from, *to, *message;
} damages[] = {
    {"{", "", "line 2: must be JSON"},
    {"\"format\": 1", "\"format\": 2", "format must be this machine's 1, got 2"},
    {"\"cores\": 2", "\"cores\": 64", "cores must be this machine's 2, got 64"},
    {"\"l2_bytes\": ", "\"l2_bytes\": 1", "l2_bytes must be this machine's 524288"},
    {"x86-64-v4", "power9", "must be this machine's \"x86-64-v4\", got \"power9\""},
    {"\"usable\": 0.375", "\"usable\": 1.5",
     "levels[1].usable must be a number above 0 and at most 1"},
    {"\"usable\": 0.375", "\"usable\": \"all\"", "levels[1].usable must be a number"},
    {"\"launch_ns\": 7.25", "\"launch_ns\": -1.0", "launch_ns must be a number above 0"},
    {"\"levels\"", "\"floors\"", "levels must be a list of 5, got nothing"},
    {"\"levels\": [", "\"levels\": \"L1\", \"was\": [", "levels must be a list of 5, got \"L1\""},
    {"\"levels\": [", "\"levels\": [], \"was\": [",
     "levels[0].name must be \"memory\", got nothing"},
    {"\"name\": \"L2\"", "\"name\": \"L1\"", "levels[2].name must be \"L2\", got \"L1\""},
    {"\"name\": \"L3\"", "\"name\": 3", "levels[1].name must be \"L3\", got 3"},
    {"\"explicit\": true", "\"explicit\": \"yes\"",
     "levels[4].explicit must be true or false, got \"yes\""},
    {"\"explicit\": false", "\"implicit\": false",
     "levels[0].explicit must be true or false, got nothing"},
    {"\"measured\": true", "\"measured\": 1", "measured must be true or false, got 1"},
    {"    }\n  ],", "    }, {}\n  ],", "levels must be 5, got 6"},
    {"\"capacity_bytes\": null", "\"capacity_bytes\": 9", "levels[0].capacity_bytes must be null"},
    {"\"capacity_bytes\": 524288", "\"capacity_bytes\": 0", "above 0 and below that of the level"},
    {"\"sharing\": 2", "\"sharing\": 0", "levels[0].sharing must be 1 to"},
    {"\"f32\"", "\"f23\"", "peaks.f32.unit_flops_ns must be a number above 0"},
};

static void a_damaged_or_foreign_file_is_not_used(void **state) {
  fixture *f = *state;
  kiln_machine m;
  const char *text = kiln_device_print(&f->cx, &m, odd_device(f, &m));
  const char *folder = temporary(f);
  const char *path = kiln_arena_printf(&f->cx.perm, "%s/d.json", folder);
  for (size_t i = 0; i < KILN_LEN(damages); i++) {
    const char *at = strstr(text, damages[i].from);
    assert_non_null(at);
    put_text(path, kiln_arena_printf(&f->cx.perm, "%.*s%s%s", (int)(at - text), text, damages[i].to,
                                     at + strlen(damages[i].from)));
    kiln_diag_clear(f->diag);
    assert_null(kiln_device_read(&f->cx, &m, path));
    assert_int_equal(kiln_diag_count(f->diag), 1);
    const char *message = kiln_diag_message(f->diag, 0);
    if (!strstr(message, damages[i].message) || !strstr(message, "kiln device --measure") ||
        !strstr(message, "warning"))
      fail_msg("row %zu: %s", i, message);
  }
  unlink(path);
  rmdir(folder);
}

static void every_shorter_file_is_refused(void **state) {
  fixture *f = *state;
  kiln_machine m;
  const char *text = kiln_device_print(&f->cx, &m, odd_device(f, &m));
  const char *folder = temporary(f);
  const char *path = kiln_arena_printf(&f->cx.perm, "%s/d.json", folder);
  for (int n = (int)strlen(text) - 3; n >= 0; n -= 7) {
    put_text(path, kiln_arena_printf(&f->cx.perm, "%.*s", n, text));
    kiln_diag_clear(f->diag);
    assert_null(kiln_device_read(&f->cx, &m, path));
    assert_int_equal(kiln_diag_count(f->diag), 1);
  }
  unlink(path);
  rmdir(folder);
}

static void the_host_takes_the_file_of_its_directory(void **state) {
  fixture *f = *state;
  kiln_machine m;
  const char *folder = temporary(f);
  setenv("KILN_CACHE_DIR", folder, 1);
  assert_int_equal(kiln_machine_host(&f->cx, &m), KILN_OK);
  assert_false(m.device->is_measured);
  kiln_device d = *m.device;
  d.is_measured = true;
  d.fork_ns = 12345;
  const char *path = kiln_device_path(&f->cx, &m);
  assert_true(strncmp(path, folder, strlen(folder)) == 0);
  assert_int_equal(kiln_device_write(&f->cx, &m, &d, path), KILN_OK);
  assert_int_equal(kiln_machine_host(&f->cx, &m), KILN_OK);
  assert_true(m.device->is_measured && m.device->fork_ns == 12345);
  put_text(path, "[]"); // compiling continues with the nominal figures
  assert_int_equal(kiln_machine_host(&f->cx, &m), KILN_OK);
  assert_false(m.device->is_measured);
  assert_int_equal(kiln_diag_count(f->diag), 1);
  unlink(path);
  rmdir(folder);
  setenv("KILN_CACHE_DIR", "", 1);
  assert_null(kiln_device_path(&f->cx, &m));
}

static void a_file_that_cannot_be_written_is_a_message(void **state) {
  fixture *f = *state;
  kiln_machine m;
  const kiln_device *d = odd_device(f, &m);
  assert_int_equal(kiln_device_write(&f->cx, &m, d, "/dev/null/d.json"), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(f->diag, 0), "must be writable"));
}

// A card of fewer multiprocessors than its architecture's largest, with figures of its own.
static void a_cards_figures_are_read_back_by_the_name_of_their_file(void **state) {
  fixture *f = *state;
  kiln_machine m, got;
  const kiln_gpu_card card = {.name = "NVIDIA A10",
                              .n_units = 60,
                              .l2_bytes = 5 << 20,
                              .shared_bytes = 99 << 10,
                              .max_resident = 1536};
  assert_int_equal(kiln_gpu_machine_named(&f->cx, "cuda:sm_86", &m), KILN_OK);
  kiln_gpu_machine_take_card(&f->cx, &card, &m);
  assert_int_equal(m.device->n_units, 60);
  kiln_device d = *m.device;
  d.is_measured = true;
  d.gpu[KILN_GPU_MMA_F16] = 2.125;
  const char *folder = temporary(f), *path = kiln_arena_printf(&f->cx.perm, "%s/d.json", folder);
  assert_int_equal(kiln_device_write(&f->cx, &m, &d, path), KILN_OK);
  const char *target = kiln_arena_printf(&f->cx.perm, "cuda:%s", path);
  assert_int_equal(kiln_target_machine(&f->cx, target, &got), KILN_OK);
  assert_true(got.device->is_measured && got.device->gpu[KILN_GPU_MMA_F16] == 2.125);
  assert_string_equal(got.processor, "NVIDIA A10");
  assert_string_equal(got.gpu.arch, "sm_86");
  assert_int_equal(got.device->n_units, 60);
  assert_int_equal(got.l2_bytes, 5 << 20);
  assert_string_equal(kiln_device_print(&f->cx, &got, got.device),
                      kiln_device_print(&f->cx, &m, &d));
  put_text(path, "{}");
  assert_int_equal(kiln_target_machine(&f->cx, target, &got), KILN_BAD_INPUT);
  unlink(path);
  rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(what_is_written_is_read_back),
      FIXTURE_TEST(a_damaged_or_foreign_file_is_not_used),
      FIXTURE_TEST(every_shorter_file_is_refused),
      FIXTURE_TEST(the_host_takes_the_file_of_its_directory),
      FIXTURE_TEST(a_file_that_cannot_be_written_is_a_message),
      FIXTURE_TEST(a_cards_figures_are_read_back_by_the_name_of_their_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Sessions through CUDA's interface, played by fake_cuda.c: what is captured, replayed, used in
// place and freed, and every message. That results are right on a GPU is for gpu_test.py.
#include "gpu/fake_cuda.h"
#include "gpu/module.h"
#include "kiln/gpu.h"
#include "runtime/gpu/gpu.h"
#include "runtime/gpu/resident.h"

#include <dlfcn.h>
#include <stdio.h>

static const char *const sources[] = {"fake sm_90 add", "fake sm_90 scale"};
static fake_cuda *fake;

static int reset(void **state) {
  (void)state;
  assert_int_equal(fake->live, 0); // whatever a test did, nothing is left
  *fake = (fake_cuda){
      .n_devices = 1, .major = 9, .memory_bytes = 1 << 20, .fail_launch = -1, .version = 13000};
  return 0;
}

static void must(kiln_status st, kiln_diag *diag) {
  if (st != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
}

static void the_second_run_is_captured_and_later_ones_replay_it(void **state) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = gpu_module_make(KILN_PLAN_CUDA, "sm_90a", sources);
  gpu_tensors t = gpu_tensors_make();
  kiln_session *s = NULL;
  (void)state;
  must(kiln_session_create(m, NULL, diag, &s), diag);
  for (int run = 0; run < 5; run++) {
    gpu_tensors_fill(&t, (float)run);
    must(kiln_session_run(s, 1, t.in, 3, t.out, diag), diag);
    gpu_tensors_check(&t);
    assert_int_equal(fake->captures, run > 0);
    assert_int_equal(fake->replays, run);
  }
  assert_int_equal(fake->launches, 4); // of the first run and the capture
  assert_int_equal(fake->maps, 2);     // of one of the two functions
  assert_int_equal(fake->window_maps, 2);
  kiln_session_destroy(s);
  gpu_tensors_destroy(&t);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

// A launch behind a copy is not early, nor one that is timed alone; no driver is asked for what it
// does not know.
static void launches_behind_others_begin_early(void **state) {
  static const struct {
    int version, profile, early;
  } rows[] = {{13000, 0, 1}, {12030, 0, 1}, {12020, 0, 0}, {13000, 1, 0}};
  (void)state;
  for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
    kiln_diag *diag = kiln_diag_create();
    kiln_module *m = gpu_module_make(KILN_PLAN_CUDA, "sm_90a", sources);
    const kiln_session_options o = {.struct_size = sizeof o, .profile = rows[row].profile};
    gpu_tensors t = gpu_tensors_make();
    kiln_session *s = NULL;
    fake->version = rows[row].version;
    fake->launches = fake->early = 0;
    must(kiln_session_create(m, &o, diag, &s), diag);
    gpu_tensors_fill(&t, 1);
    must(kiln_session_run(s, 1, t.in, 3, t.out, diag), diag);
    gpu_tensors_check(&t);
    assert_int_equal(fake->launches, 2);
    assert_int_equal(fake->early, rows[row].early);
    kiln_session_destroy(s);
    gpu_tensors_destroy(&t);
    kiln_module_release(m);
    kiln_diag_destroy(diag);
  }
}

static void on_device(DLTensor *t, char *memory) {
  memcpy(memory, t->data, 4 * N);
  t->data = memory;
  t->device = (DLDevice){kDLCUDA, 0};
}

static void tensors_of_the_device_are_used_in_place(void **state) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = gpu_module_make(KILN_PLAN_CUDA, "sm_90a", sources);
  const kiln_session_options o = {.struct_size = sizeof o, .is_async = 1};
  char *memory[2][4];
  kiln_session *s = NULL;
  (void)state;
  must(kiln_session_create(m, &o, diag, &s), diag);
  for (int set = 0; set < 2; set++)
    for (int i = 0; i < 4; i++) memory[set][i] = aligned_alloc(64, (4 * N + 63) / 64 * 64);
  const int before = fake->live;
  for (int run = 0; run < 6; run++) {
    gpu_tensors t = gpu_tensors_make();
    DLTensor x = t.all[0]->dl_tensor, out[3];
    DLTensor *outs[] = {&out[0], &out[1], &out[2]};
    const DLTensor *in[] = {&x};
    gpu_tensors_fill(&t, (float)run);
    on_device(&x, memory[run / 3][0]);
    for (int i = 0; i < 3; i++) {
      out[i] = *t.out[i];
      on_device(&out[i], memory[run / 3][i + 1]);
    }
    must(kiln_session_run(s, 1, in, 3, outs, diag), diag);
    for (int i = 0; i < 3; i++) memcpy(t.out[i]->data, out[i].data, 4 * N);
    gpu_tensors_check(&t);
    assert_int_equal(fake->captures, run < 1   ? 0
                                     : run < 4 ? 1
                                               : 2); // other addresses, another graph
    gpu_tensors_destroy(&t);
  }
  assert_int_equal(fake->live, before + 1); // the graph: nothing was staged
  const int waits = fake->waits;
  must(kiln_session_wait(s, diag), diag);
  must(kiln_session_wait(s, diag), diag);
  assert_int_equal(fake->waits, waits + 1);
  kiln_session_destroy(s);
  for (int set = 0; set < 2; set++)
    for (int i = 0; i < 4; i++) free(memory[set][i]);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

static void launches_are_timed_by_events(void **state) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = gpu_module_make(KILN_PLAN_CUDA, "sm_90a", sources);
  const kiln_session_options o = {.struct_size = sizeof o, .profile = 1};
  gpu_tensors t = gpu_tensors_make();
  kiln_session *s = NULL;
  (void)state;
  must(kiln_session_create(m, &o, diag, &s), diag);
  for (int run = 0; run < 3; run++) {
    gpu_tensors_fill(&t, (float)run);
    must(kiln_session_run(s, 1, t.in, 3, t.out, diag), diag);
    gpu_tensors_check(&t);
    assert_int_equal(kiln_session_launch_start_ns(s, 1), 1000000);
    assert_int_equal(kiln_session_launch_ns(s, 1), 1000000);
  }
  assert_int_equal(fake->captures, 0);
  kiln_session_destroy(s);
  gpu_tensors_destroy(&t);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

static void the_weights_are_on_a_device_once(void **state) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = gpu_module_make(KILN_PLAN_CUDA, "sm_90a", sources);
  kiln_session *s[2];
  (void)state;
  must(kiln_session_create(m, NULL, diag, &s[0]), diag);
  const int one = fake->live;
  must(kiln_session_create(m, NULL, diag, &s[1]), diag);
  assert_int_equal(fake->live, one + 2); // its stream and its arena
  kiln_session_destroy(s[0]);
  kiln_module_release(m); // the other session keeps it
  kiln_session_destroy(s[1]);
  kiln_diag_destroy(diag);
}

static void expect(kiln_status want, kiln_module *m, const kiln_session_options *o,
                   const char *message) {
  kiln_diag *diag = kiln_diag_create();
  kiln_session *s = NULL;
  assert_int_equal(kiln_session_create(m, o, diag, &s), want);
  assert_null(s);
  if (!strstr(kiln_diag_message(diag, 0), message)) fail_msg("%s", kiln_diag_message(diag, 0));
  kiln_diag_destroy(diag);
  kiln_module_release(m);
}

static void what_cannot_be_had_gives_a_message(void **state) {
  const char *const others[] = {"fake sm_80 add", "fake sm_90 scale"};
  const char *const broken[] = {"torn", "fake sm_90 scale"};
  const char *const missing[] = {"fake sm_90 nothing", "fake sm_90 scale"};
  const kiln_session_options far = {.struct_size = sizeof far, .device = 1};
  (void)state;
  expect(KILN_DEVICE_ERROR, gpu_module_make(KILN_PLAN_CUDA, "sm_80", sources), NULL,
         "must have the architecture that the module was compiled for, sm_80, got sm_90 (Fake 0): "
         "compile with "
         "--target=cuda:sm_90");
  expect(KILN_DEVICE_ERROR, gpu_module_make(KILN_PLAN_CUDA, "sm_90a", others), NULL,
         "image 0: its code must be for sm_90 (Fake 0)");
  expect(KILN_DEVICE_ERROR, gpu_module_make(KILN_PLAN_CUDA, "sm_90a", broken), NULL,
         "image 0: must succeed, got CUDA_ERROR_INVALID_VALUE (1): invalid argument");
  expect(KILN_DEVICE_ERROR, gpu_module_make(KILN_PLAN_CUDA, "sm_90a", missing), NULL,
         "add: must succeed");
  expect(KILN_DEVICE_ERROR, gpu_module_make(KILN_PLAN_CUDA, "sm_90a", sources), &far,
         "device: must be 0 to 0, got 1");
  fake->memory_bytes = 1000;
  expect(KILN_NO_MEMORY, gpu_module_make(KILN_PLAN_CUDA, "sm_90a", sources), NULL,
         "arena: 3968 bytes must fit into the memory of Fake 0, free are 936 of 1000");
  fake->n_devices = 0;
  expect(KILN_DEVICE_ERROR, gpu_module_make(KILN_PLAN_CUDA, "sm_90a", sources), NULL,
         "device: there must be an NVIDIA GPU, the driver sees none");
}

static void a_launch_that_fails_is_reported_also_while_captured(void **state) {
  (void)state;
  for (int good = 0; good < 4; good++) {
    kiln_diag *diag = kiln_diag_create();
    kiln_module *m = gpu_module_make(KILN_PLAN_CUDA, "sm_90a", sources);
    gpu_tensors t = gpu_tensors_make();
    kiln_session *s = NULL;
    kiln_status st = KILN_OK;
    must(kiln_session_create(m, NULL, diag, &s), diag);
    fake->launches = 0;
    fake->fail_launch = good;
    for (int run = 0; run < 2 && st == KILN_OK; run++)
      st = kiln_session_run(s, 1, t.in, 3, t.out, diag);
    assert_int_equal(st, KILN_DEVICE_ERROR);
    assert_non_null(strstr(kiln_diag_message(diag, 0), "launch: must succeed"));
    fake->fail_launch = -1;
    gpu_tensors_fill(&t, 5);
    must(kiln_session_run(s, 1, t.in, 3, t.out, diag), diag); // and it can go on
    gpu_tensors_check(&t);
    kiln_session_destroy(s);
    gpu_tensors_destroy(&t);
    kiln_module_release(m);
    kiln_diag_destroy(diag);
  }
}

static void tensors_of_another_device_or_alignment_are_refused(void **state) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = gpu_module_make(KILN_PLAN_CUDA, "sm_90a", sources);
  gpu_tensors t = gpu_tensors_make();
  kiln_session *s = NULL;
  DLTensor *x = &t.all[0]->dl_tensor;
  (void)state;
  must(kiln_session_create(m, NULL, diag, &s), diag);
  x->device = (DLDevice){kDLCUDA, 3};
  assert_int_equal(kiln_session_run(s, 1, t.in, 3, t.out, diag), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "got 3 of DLPack type 2"));
  x->device.device_id = 0;
  x->byte_offset = 4;
  kiln_diag_clear(diag);
  assert_int_equal(kiln_session_run(s, 1, t.in, 3, t.out, diag), KILN_BAD_INPUT);
  assert_non_null(strstr(kiln_diag_message(diag, 0), "aligned to 16 bytes on a device"));
  x->byte_offset = 0;
  x->device = (DLDevice){kDLCPU, 0};
  kiln_session_destroy(s);
  gpu_tensors_destroy(&t);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

static const struct {
  const char *code, *device;
  bool fits;
} archs[] = {{"sm_80", "sm_80", true},     {"sm_80", "sm_86", true},    {"sm_86", "sm_80", false},
             {"sm_80", "sm_90", false},    {"sm_90a", "sm_90", true},   {"sm_90", "sm_90", true},
             {"sm_100a", "sm_103", false}, {"sm_100f", "sm_103", true}, {"sm_100", "sm_103", true},
             {"sm_75", "sm_90", false},    {"gfx90a", "sm_90", false},  {"", "sm_90", false}};

static void code_fits_its_generation(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
    if (kiln_arch_fits(archs[i].code, archs[i].device) != archs[i].fits)
      fail_msg("%s on %s", archs[i].code, archs[i].device);
}

static void any_strides_are_copied(void **state) {
  static const struct {
    int32_t rank;
    int64_t shape[4], strides[4];
  } rows[] = {{0, {0}, {0}},
              {1, {5}, {3}},
              {2, {3, 4}, {1, 3}},
              {2, {3, 4}, {0, 1}},
              {2, {4, 3}, {1, 1}},
              {3, {2, 3, 4}, {12, 1, 3}},
              {3, {2, 3, 4}, {1, 8, 2}},
              {4, {2, 3, 2, 2}, {1, 8, 4, 2}},
              {4, {2, 1, 3, 2}, {6, 77, 2, 1}}};
  kiln_diag *diag = kiln_diag_create();
  kiln_gpu_context *c = NULL;
  kiln_gpu_stream *s = NULL;
  float from[256], got[64], want[64];
  (void)state;
  for (int i = 0; i < 256; i++) from[i] = (float)i;
  must(kiln_cuda_api.open(0, diag, &c), diag);
  must(kiln_cuda_api.stream(c, diag, &s), diag);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kiln_strided what = {(char *)got,  (const char *)from, 4,
                         rows[i].rank, rows[i].shape,      rows[i].strides};
    memset(got, 0xff, sizeof got);
    memset(want, 0xff, sizeof want);
    must(kiln_cuda_api.copy_strided(c, s, &what, false, diag), diag);
    what.to = (char *)want;
    kiln_strided_copy(&what);
    if (memcmp(got, want, sizeof got)) fail_msg("row %zu", i);
  }
  kiln_cuda_api.end_stream(c, s);
  kiln_cuda_api.close(c);
  kiln_diag_destroy(diag);
}

// --- the public interface to devices ---

static void memory_is_copied_and_streams_are_waited_for(void **state) {
  kiln_diag *diag = kiln_diag_create();
  kiln_gpu_handle *d = NULL;
  void *memory = NULL, *host = NULL, *streams[2] = {NULL}, *event = NULL;
  float back[4] = {0};
  (void)state;
  assert_int_equal(kiln_gpu_count("cuda"), 1);
  must(kiln_gpu_create("cuda", 0, diag, &d), diag);
  must(kiln_gpu_allocate(d, sizeof back, diag, &memory), diag);
  must(kiln_gpu_allocate_host(d, sizeof back, diag, &host), diag);
  for (int i = 0; i < 2; i++) must(kiln_gpu_stream_create(d, diag, &streams[i]), diag);
  must(kiln_gpu_event_create(d, diag, &event), diag);
  memcpy(host, (float[]){1, 2, 3, 4}, sizeof back);
  must(kiln_gpu_copy(d, streams[0], memory, host, sizeof back, diag), diag);
  must(kiln_gpu_event_record(d, event, streams[0], diag), diag);
  must(kiln_gpu_event_wait(d, event, streams[1], diag), diag);
  must(kiln_gpu_event_wait(d, event, NULL, diag), diag);
  must(kiln_gpu_copy(d, streams[1], back, memory, sizeof back, diag), diag);
  must(kiln_gpu_stream_wait(d, streams[1], diag), diag);
  assert_memory_equal(back, host, sizeof back);
  kiln_gpu_event_destroy(d, event);
  for (int i = 0; i < 2; i++) kiln_gpu_stream_destroy(d, streams[i]);
  kiln_gpu_free_host(d, host);
  kiln_gpu_free(d, memory);
  kiln_gpu_destroy(d);
  assert_int_equal(fake->live, 0);
  kiln_diag_destroy(diag);
}

static void devices_that_cannot_be_had_give_a_message(void **state) {
  static const struct {
    const char *target;
    int index, n_devices;
    kiln_status want;
    const char *says;
  } rows[] = {{"opencl", 0, 1, KILN_BAD_INPUT, "must be \"cuda\", got \"opencl\""},
              {"cuda", 1, 1, KILN_DEVICE_ERROR, "must be 0 to 0, got 1"},
              {"cuda", -1, 1, KILN_DEVICE_ERROR, "must be 0 to 0, got -1"},
              {"cuda", 0, 0, KILN_DEVICE_ERROR, "the driver sees none"},
              {NULL, 0, 1, KILN_BAD_INPUT, "target"}};
  (void)state;
  for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
    kiln_diag *diag = kiln_diag_create();
    kiln_gpu_handle *d = NULL;
    fake->n_devices = rows[row].n_devices;
    assert_int_equal(kiln_gpu_create(rows[row].target, rows[row].index, diag, &d), rows[row].want);
    assert_null(d);
    assert_non_null(strstr(kiln_diag_message(diag, 0), rows[row].says));
    kiln_diag_destroy(diag);
  }
  fake->n_devices = 0;
  assert_int_equal(kiln_gpu_count("cuda"), 0);
  assert_int_equal(kiln_gpu_count("opencl"), 0);
  assert_int_equal(fake->live, 0);
}

// Each call of the driver fails once: a status, and nothing stays.
static void what_the_driver_refuses_is_a_status(void **state) {
  int n = 0, failed = 0;
  (void)state;
  for (bool more = true; more;) {
    kiln_diag *diag = kiln_diag_create();
    kiln_gpu_handle *d = NULL;
    void *memory = NULL, *stream = NULL, *event = NULL;
    float back = 0;
    fake->fail_call = ++n;
    kiln_status st = kiln_gpu_create("cuda", 0, diag, &d);
    if (st == KILN_OK) st = kiln_gpu_allocate(d, 4, diag, &memory);
    if (st == KILN_OK) st = kiln_gpu_stream_create(d, diag, &stream);
    if (st == KILN_OK) st = kiln_gpu_event_create(d, diag, &event);
    if (st == KILN_OK) st = kiln_gpu_copy(d, stream, &back, memory, 4, diag);
    if (st == KILN_OK) st = kiln_gpu_event_record(d, event, stream, diag);
    if (st == KILN_OK) st = kiln_gpu_event_wait(d, event, stream, diag);
    if (st == KILN_OK) st = kiln_gpu_stream_wait(d, stream, diag);
    more = fake->fail_call <= 0;
    fake->fail_call = 0;
    assert_int_equal(st == KILN_OK, !more);
    assert_int_equal(st == KILN_OK, kiln_diag_count(diag) == 0);
    failed += st != KILN_OK;
    if (d) kiln_gpu_event_destroy(d, event);
    if (d) kiln_gpu_stream_destroy(d, stream);
    if (d) kiln_gpu_free(d, memory);
    kiln_gpu_destroy(d);
    assert_int_equal(fake->live, 0);
    kiln_diag_destroy(diag);
  }
  assert_int_equal(failed, 9);
}

static void a_session_may_change_its_stream(void **state) {
  kiln_diag *diag = kiln_diag_create();
  kiln_module *m = gpu_module_make(KILN_PLAN_CUDA, "sm_90a", sources);
  gpu_tensors t = gpu_tensors_make();
  kiln_session *s = NULL;
  kiln_gpu_handle *d = NULL;
  void *stream = NULL;
  (void)state;
  must(kiln_gpu_create("cuda", 0, diag, &d), diag);
  must(kiln_gpu_stream_create(d, diag, &stream), diag);
  must(kiln_session_create(m, NULL, diag, &s), diag);
  for (int run = 0; run < 6; run++) {
    must(kiln_session_set_stream(s, run % 2 ? stream : NULL, diag), diag);
    gpu_tensors_fill(&t, (float)run);
    must(kiln_session_run(s, 1, t.in, 3, t.out, diag), diag);
    gpu_tensors_check(&t);
  }
  assert_int_equal(fake->captures, 1); // one graph, in either stream
  kiln_session_destroy(s);
  kiln_gpu_stream_destroy(d, stream);
  kiln_gpu_destroy(d);
  gpu_tensors_destroy(&t);
  kiln_module_release(m);
  kiln_diag_destroy(diag);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(the_second_run_is_captured_and_later_ones_replay_it, reset),
      cmocka_unit_test_setup(tensors_of_the_device_are_used_in_place, reset),
      cmocka_unit_test_setup(launches_are_timed_by_events, reset),
      cmocka_unit_test_setup(launches_behind_others_begin_early, reset),
      cmocka_unit_test_setup(the_weights_are_on_a_device_once, reset),
      cmocka_unit_test_setup(what_cannot_be_had_gives_a_message, reset),
      cmocka_unit_test_setup(a_launch_that_fails_is_reported_also_while_captured, reset),
      cmocka_unit_test_setup(tensors_of_another_device_or_alignment_are_refused, reset),
      cmocka_unit_test_setup(any_strides_are_copied, reset),
      cmocka_unit_test_setup(code_fits_its_generation, reset),
      cmocka_unit_test_setup(memory_is_copied_and_streams_are_waited_for, reset),
      cmocka_unit_test_setup(devices_that_cannot_be_had_give_a_message, reset),
      cmocka_unit_test_setup(what_the_driver_refuses_is_a_status, reset),
      cmocka_unit_test_setup(a_session_may_change_its_stream, reset),
  };
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  fake_cuda *(*find)(void) = NULL;
  void *symbol = library ? dlsym(library, "fake_cuda_state") : NULL;
  if (!symbol) {
    puts("skipped: libcuda.so.1 is not the stand-in: run it as ctest does");
    return 77;
  }
  memcpy(&find, &symbol, sizeof find);
  fake = find();
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// What the stand-ins for NVIDIA's libraries have in common: their state, the way to the stand-in
// for the driver, and halves.
#include "fake_library.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { F32 = 0, F16 = 2, NO_DRIVER = 1 };

static fake_library state;
fake_library *fake_library_state(void) { return &state; }

int fake_library_fails(const char *function) {
  const char *told = getenv("FAKE_LIBRARY_FAILS");
  return (state.fails && strcmp(state.fails, function) == 0) ||
         (told && strcmp(told, function) == 0);
}

// Found where it is used: whoever only asks for the version has no driver.
static void *in_driver(const char *name) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver ? dlsym(driver, name) : NULL;
}

int fake_library_has_context(void) {
  int (*is_entered)(void) = NULL;
  void *symbol = in_driver("fake_cuda_is_entered");
  memcpy(&is_entered, &symbol, sizeof symbol);
  return is_entered && is_entered();
}

static void load_first(void) {
  static int is_loaded;
  const char *told = getenv("FAKE_LIBRARY_LOADS");
  void (*pass)(int) = NULL;
  void *symbol = in_driver("fake_cuda_pass");
  memcpy(&pass, &symbol, sizeof symbol);
  if (told && pass && !is_loaded) pass(atoi(told));
  is_loaded = 1;
}

int fake_library_put(void *stream, void (*run)(void *data), void *data) {
  int (*into)(void *, void (*)(void *), void *) = NULL;
  void *symbol = in_driver("fake_cuda_put");
  memcpy(&into, &symbol, sizeof symbol);
  load_first();
  return into ? into(stream, run, data) : NO_DRIVER;
}

static double half(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double fraction = (bits & 1023) / 1024.0, sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
  return sign * (exponent ? ldexp(1 + fraction, exponent - 15) : ldexp(fraction, -14));
}

double fake_library_get(int type, const char *base, int64_t i) {
  uint16_t bits;
  float x;
  if (type == F32) return memcpy(&x, base + 4 * i, 4), (double)x;
  memcpy(&bits, base + 2 * i, 2);
  if (type == F16) return half(bits);
  const uint32_t wide = (uint32_t)bits << 16;
  return memcpy(&x, &wide, 4), (double)x;
}

// To the nearest, by trying both neighbours of what is cut off.
static void set_half(int type, char *to, double x) {
  uint16_t low = 0, sign = signbit(x) ? 0x8000 : 0;
  const double size = fabs(x);
  for (int bit = 14; bit >= 0; bit--) {
    const uint16_t more = (uint16_t)(low | 1 << bit);
    if (fake_library_get(type, (const char *)&more, 0) <= size) low = more;
  }
  const uint16_t high = (uint16_t)(low + 1);
  const double below = size - fake_library_get(type, (const char *)&low, 0),
               above = fake_library_get(type, (const char *)&high, 0) - size;
  if (above < below || (above == below && low & 1)) low = high;
  low |= sign;
  memcpy(to, &low, 2);
}

void fake_library_set(int type, char *base, int64_t i, double x) {
  const float f = (float)x;
  if (type == F32) memcpy(base + 4 * i, &f, 4);
  else set_half(type, base + 2 * i, x);
}

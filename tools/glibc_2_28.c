// SPDX-License-Identifier: Apache-2.0
// Functions that libraries of a newer system take from its C library and glibc 2.28 lacks:
// tools/wheels.py links them into the libraries of the wheels. Needs _GNU_SOURCE.
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>

// In glibc 2.36; libstdc++'s random_device.
uint32_t arc4random(void) {
  uint32_t x = 0;
  while (getrandom(&x, sizeof x, 0) != sizeof x) {}
  return x;
}

// In glibc 2.32: whether atomic operations can be left out; they never are.
char __libc_single_threaded = 0;

// In glibc 2.33, for statistics of LLVM's: the counts of mallinfo, which end at 2 GiB.
struct mallinfo2 mallinfo2(void) {
  return (struct mallinfo2){0};
}

// Archives that were not made for shared libraries reach these by their distance, which a library
// may only with variables of its own: tools/wheels.py gives them these names there.
FILE *own_stdin, *own_stdout, *own_stderr;
char *own_program_invocation_name;
__attribute__((constructor)) static void take_streams(void) {
  own_stdin = stdin;
  own_stdout = stdout;
  own_stderr = stderr;
  own_program_invocation_name = program_invocation_name;
}

// Of libudev, which hwloc asks for the names of disks: there is none.
void *udev_new(void);
void *udev_unref(void *u);
void *udev_device_new_from_subsystem_sysname(void *u, const char *subsystem, const char *name);
void *udev_device_unref(void *device);
const char *udev_device_get_property_value(void *device, const char *key);

void *udev_new(void) { return NULL; }
void *udev_unref(void *u) { return u; }
void *udev_device_new_from_subsystem_sysname(void *u, const char *subsystem, const char *name) {
  (void)u, (void)subsystem, (void)name;
  return NULL;
}
void *udev_device_unref(void *device) { return device; }
const char *udev_device_get_property_value(void *device, const char *key) {
  (void)device, (void)key;
  return NULL;
}

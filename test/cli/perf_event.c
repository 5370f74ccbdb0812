// A stand-in for perf_event_open, put before libc's syscall(): it fails with the number in
// KILN_PERF_ERRNO, or gives a counter that reads KILN_PERF_COUNT.
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int make_counter(const char *count) {
  const uint64_t n = strtoull(count, NULL, 10);
  const int fd = memfd_create("counter", 0);
  if (fd < 0 || write(fd, &n, sizeof n) != sizeof n || lseek(fd, 0, SEEK_SET)) abort();
  return fd;
}

long syscall(long number, ...) {
  long a[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
  va_end(list);
  const char *error = getenv("KILN_PERF_ERRNO"), *count = getenv("KILN_PERF_COUNT");
  if (number == SYS_perf_event_open && error) return errno = atoi(error), -1;
  if (number == SYS_perf_event_open && count) return make_counter(count);
  long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

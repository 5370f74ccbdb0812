// Hardware counters of last-level cache misses.
#include "kiln.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// Counts this process and the threads that it starts later.
int misses_open(const char **out_why) {
  struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
                                 .size = sizeof attr,
                                 .config = PERF_COUNT_HW_CACHE_MISSES,
                                 .disabled = 1,
                                 .inherit = 1,
                                 .exclude_kernel = 1,
                                 .exclude_hv = 1};
  const int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
  *out_why = fd >= 0                             ? NULL
             : errno == EACCES || errno == EPERM ? "the system does not permit it "
                                                   "(/proc/sys/kernel/perf_event_paranoid)"
             : errno == ENOSYS                   ? "the system has no perf_event_open"
             : errno == ENOENT || errno == ENODEV || errno == EOPNOTSUPP
                 ? "this machine has no counters of its processor, as virtual machines have not"
                 : strerror(errno);
  return fd;
}

void misses_begin(int fd) {
  if (fd < 0) return;
  ioctl(fd, PERF_EVENT_IOC_RESET, 0);
  ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
}

double misses_end(int fd) {
  uint64_t n = 0;
  if (fd < 0) return 0;
  ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
  return read(fd, &n, sizeof n) == (ssize_t)sizeof n ? (double)n : 0;
}

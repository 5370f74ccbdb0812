// A device: the memory levels of a machine and their speeds, which is all that the scheduler knows
// about its speed (DESIGN section 6).
//
// A device is measured once (`kiln device`) and stored in a file for each machine. Without the
// file, figures are derived from cache sizes, so that a compilation never measures and equal input
// gives equal bytes. Immutable; lives in the ctx that made it.
#ifndef KILN_TARGET_DEVICE_H
#define KILN_TARGET_DEVICE_H

#include "support/ctx.h"

enum { KILN_MAX_LEVELS = 6 };

// A level of memory or cache, with the speed of a core that reads an array which is in this level
// and in no faster one. Stores count as traffic of their own.
typedef struct kiln_mem_level {
  const char *name;          // "memory", "L3", "L2", "L1", "registers"
  int64_t capacity_bytes;    // of one instance; INT64_MAX: memory
  double usable;             // the share that a kernel may use; for caches a soft limit
  int transaction_bytes;     // the unit of transfer: a cache line
  double unit_bytes_ns;      // bandwidth of one core, bytes a nanosecond (GB/s)
  double all_bytes_ns;       // of all cores together
  double copy_unit_bytes_ns; // of one core that copies, bytes read plus written
  double copy_all_bytes_ns;
  double latency_ns; // of a dependent load; 0: registers
  int n_sharing;     // cores that share an instance
  bool is_explicit;  // filled by copies (registers, shared memory); caches fill themselves
} kiln_mem_level;

typedef enum kiln_peak { KILN_PEAK_F32, KILN_PEAK_BF16, KILN_PEAK_INT8, KILN_N_PEAKS } kiln_peak;

typedef struct kiln_device {
  const char *name; // of the processor, by the operating system
  int n_units;      // physical cores
  int n_levels;     // slowest first; the last one is the registers
  kiln_mem_level levels[KILN_MAX_LEVELS];
  // multiply and add count as two operations; 0: no instructions of that kind
  double unit_flops_ns[KILN_N_PEAKS];
  double all_flops_ns[KILN_N_PEAKS];
  double launch_ns; // of a kernel on one thread
  double fork_ns;   // of distributing work to all threads and waiting for them
  bool is_measured;
} kiln_device;

// The level named |name|, or -1.
int kiln_device_level(const kiln_device *d, const char *name);

// Derives typical figures from |m|'s caches, registers and clock (docs/guide/machine.md), without
// measuring: equal machines get equal figures. Lives in cx->perm.
struct kiln_machine;
const kiln_device *kiln_device_make_nominal(kiln_ctx *cx, const struct kiln_machine *m);

// --- the file of a measured machine (docs/guide/machine.md)

// The path of |m|'s file in the user's cache directory, named by processor, cores, caches and
// format version; NULL if there is no cache directory.
const char *kiln_device_path(kiln_ctx *cx, const struct kiln_machine *m);
// Reads the file. A damaged file, or another machine's, is ignored with a warning.
//
// gives: the device, in cx->perm; NULL if there is no usable file
const kiln_device *kiln_device_read(kiln_ctx *cx, const struct kiln_machine *m, const char *path);
// Writes the file atomically, and makes its directory.
//
// errors: KILN_BAD_INPUT: the file cannot be written
KILN_MUST_USE kiln_status kiln_device_write(kiln_ctx *cx, const struct kiln_machine *m,
                                            const kiln_device *d, const char *path);
// The text of the file, in cx->perm. Figures that were read print as the same text.
const char *kiln_device_print(kiln_ctx *cx, const struct kiln_machine *m, const kiln_device *d);

#endif

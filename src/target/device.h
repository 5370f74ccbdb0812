// Memory levels as data: what the scheduler knows of the speed of a machine, and nothing else of it
// (DESIGN section 6).
//
// A device is measured once (`kiln device`) and kept in a file a machine; where there is none, the
// figures are derived from the caches' sizes, so that a compilation never measures and the same
// input gives the same bytes. Immutable once made; lives in the ctx that made it.
#ifndef KILN_TARGET_DEVICE_H
#define KILN_TARGET_DEVICE_H

#include "support/ctx.h"

enum { KILN_MAX_LEVELS = 6 };

// One level of memory, or of caches in front of it: what a core gets when it reads there (a loop
// over an array that lies in this level and in no faster one). Writing is counted as traffic of its
// own.
typedef struct kiln_mem_level {
  const char *name;          // "memory", "L3", "L2", "L1", "registers"
  int64_t capacity_bytes;    // of one instance; INT64_MAX: memory
  double usable;             // the share of it that a kernel may count on; caches are a soft limit
  int transaction_bytes;     // what moves at once: a cache line
  double unit_bytes_ns;      // bandwidth of one core, bytes a nanosecond (GB/s)
  double all_bytes_ns;       // of all cores together
  double copy_unit_bytes_ns; // of one core copying: bytes read and bytes written together
  double copy_all_bytes_ns;
  double latency_ns; // of a load that waits for the one before; 0: registers
  int n_sharing;     // cores that share an instance
  bool is_explicit;  // filled by copies (registers, shared memory); caches fill themselves
} kiln_mem_level;

typedef enum kiln_peak { KILN_PEAK_F32, KILN_PEAK_BF16, KILN_PEAK_INT8, KILN_N_PEAKS } kiln_peak;

typedef struct kiln_device {
  const char *name; // of the processor, as the operating system says it
  int n_units;      // physical cores
  int n_levels;     // slowest first; the last one is the registers
  kiln_mem_level levels[KILN_MAX_LEVELS];
  double unit_flops_ns[KILN_N_PEAKS]; // multiply and add count as two; 0: no such instructions
  double all_flops_ns[KILN_N_PEAKS];
  double launch_ns; // of a kernel on one thread
  double fork_ns;   // of giving work to all threads and waiting for them
  bool is_measured;
} kiln_device;

// The level named |name|, or -1.
int kiln_device_level(const kiln_device *d, const char *name);

// Derives the figures from |m|'s caches, registers and clock, as they are for most processors of
// today (docs/guide/machine.md): the same for the same machine, nothing is measured. Lives in
// cx->perm.
struct kiln_machine;
const kiln_device *kiln_device_make_nominal(kiln_ctx *cx, const struct kiln_machine *m);

// --- the file of a measured machine (docs/guide/machine.md)

// Where |m|'s figures are kept: a file in the user's cache directory, named after processor, cores,
// caches and the version of the format. NULL: there is no such directory.
const char *kiln_device_path(kiln_ctx *cx, const struct kiln_machine *m);
// Reads the figures. A file that is damaged or another machine's is not used, and a warning says
// why.
//
// gives: the device, in cx->perm; NULL when there is no file or it is not used
const kiln_device *kiln_device_read(kiln_ctx *cx, const struct kiln_machine *m, const char *path);
// Writes the figures, at once or not at all, making the directory.
//
// errors: KILN_BAD_INPUT: the file cannot be written
KILN_MUST_USE kiln_status kiln_device_write(kiln_ctx *cx, const struct kiln_machine *m,
                                            const kiln_device *d, const char *path);
// The text of such a file, in cx->perm. What is read from it prints as the same text.
const char *kiln_device_print(kiln_ctx *cx, const struct kiln_machine *m, const kiln_device *d);

#endif

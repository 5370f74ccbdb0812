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

// Figures of a GPU besides its levels. Of an instruction: clocks of a multiprocessor for one
// warp's, for wgmma one warp group's, where enough warps issue it.
typedef enum kiln_gpu_figure {
  KILN_GPU_FMA_F32,
  KILN_GPU_FMA_F16, // of pairs
  KILN_GPU_EXP2,
  KILN_GPU_RECIPROCAL,
  KILN_GPU_SQRT,
  KILN_GPU_CONVERT,     // f32 to f16
  KILN_GPU_SHARED_LOAD, // of 16 bytes by each lane
  KILN_GPU_LDMATRIX,    // of four matrices
  KILN_GPU_MMA_F16,     // m16n8k16
  KILN_GPU_MMA_BF16,    // m16n8k16
  KILN_GPU_MMA_TF32,    // m16n8k8
  KILN_GPU_MMA_INT8,    // m16n8k32
  KILN_GPU_WGMMA_64,    // m64nNk16 of halves, both operands in shared memory
  KILN_GPU_WGMMA_128,
  KILN_GPU_WGMMA_192,
  KILN_GPU_WGMMA_256,
  // Clocks until threads go on: a barrier of 256 threads, a load, a copy that is waited for.
  KILN_GPU_BARRIER,
  KILN_GPU_SHARED_LATENCY,
  KILN_GPU_L2_LATENCY,
  KILN_GPU_MEMORY_LATENCY,
  KILN_GPU_CP_ASYNC_LATENCY, // from the L2
  KILN_GPU_TMA_LATENCY,      // of 8 KiB from the L2
  // Bytes a clock of a multiprocessor that reads alone, and of each of all.
  KILN_GPU_L2_UNIT,
  KILN_GPU_L2_ALL,
  KILN_GPU_MEMORY_UNIT,
  KILN_GPU_MEMORY_ALL,
  KILN_GPU_COPY_ALL, // read and written bytes
  // Nanoseconds in a graph of launches: of an empty kernel that depends on the one before; where it
  // may begin early; of a kernel beyond what its blocks compute; of a block of 128 threads that
  // begins and ends, on one multiprocessor.
  KILN_GPU_LAUNCH_NS,
  KILN_GPU_EARLY_NS,
  KILN_GPU_BEGIN_END_NS,
  KILN_GPU_BLOCK_NS,
  KILN_N_GPU_FIGURES
} kiln_gpu_figure;
extern const char *const kiln_gpu_figure_names[KILN_N_GPU_FIGURES]; // "mma.m16n8k16.f16"

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
  // A GPU's, whose |levels| are nominal in any case: the prices of templates are fitted to these.
  double clock_ghz;               // under load
  double gpu[KILN_N_GPU_FIGURES]; // 0: it has no such instruction
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
// A card, as its driver or the file of its figures describes it; 0: not known.
typedef struct kiln_gpu_card {
  char name[64]; // "NVIDIA H200"
  int n_units;
  int64_t l2_bytes, shared_bytes, max_resident;
} kiln_gpu_card;
// Whether the user's cache directory has a file of some machine like |m|: of the same processor, or
// for GPUs of the same architecture.
bool kiln_device_was_measured(const struct kiln_machine *m);
// Reads the name, the sizes and the architecture of the card that a file is of.
//
// errors: KILN_BAD_INPUT: it is not a GPU's
KILN_MUST_USE kiln_status kiln_device_read_card(kiln_ctx *cx, const char *path, kiln_gpu_card *out,
                                                char arch[16]);
// The text of the file, in cx->perm. Figures that were read print as the same text.
const char *kiln_device_print(kiln_ctx *cx, const struct kiln_machine *m, const kiln_device *d);

#endif

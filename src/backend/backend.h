// Backends: libraries of kernels that others have written. Where a library's kernel is measured to
// be faster than Kiln's own, a module calls it.
//
// A backend is one folder of src/backend and one kiln_backend, found by the build. It sees calls
// (library_call.h), says of which it has a kernel, and runs them. Its library is opened when a
// module needs it, never before.
//
// On a CPU it always computes on the thread that calls it: a call is cut into parts, one a thread
// of the session, so that the library runs on just the session's threads and its own stay out of
// the way. On a GPU a call is put into the session's stream as a whole, which may be captured:
// running it neither allocates nor waits, and its workspace is one of the launch's arguments, which
// the plan has given a place. The device's context is the thread's wherever a kernel is created,
// destroyed or run, and the library closed; to open it no device is needed.
#ifndef KILN_BACKEND_BACKEND_H
#define KILN_BACKEND_BACKEND_H

#include "backend/library_call.h"

// What its kernels run on, and read and write the memory of.
typedef enum kiln_backend_place { KILN_BACKEND_CPU, KILN_BACKEND_CUDA } kiln_backend_place;

typedef struct kiln_backend {
  const char *name; // "openblas"
  kiln_backend_place place;
  // Whether it has a kernel for such a call, as far as the numbers say.
  bool (*takes)(const kiln_library_call *call);
  // How much workspace a kernel for such a call may have use for; NULL: none.
  int64_t (*workspace)(const kiln_library_call *call);
  // Opens the library |file| and finds what is called of it.
  //
  // gives:  *out, to be closed
  // errors: KILN_DEVICE_ERROR: there is no such library, or a function is missing
  kiln_status (*open)(const char *file, kiln_diag *diag, void **out);
  void (*close)(void *library);
  // What decides how fast it is: "OpenBLAS 0.3.21 ... SkylakeX"; gives: as snprintf
  size_t (*version)(void *library, char *text, size_t room);
  // A kernel for |call|, run by one thread at a time. constants[i] is the memory of an argument
  // that never changes, to be read now or later, NULL for others. On a device all arguments begin
  // at multiples of KILN_BACKEND_ALIGN.
  //
  // gives:  *out, to be destroyed before the library is closed
  // errors: KILN_UNSUPPORTED: the library has no such kernel; KILN_NO_MEMORY; KILN_DEVICE_ERROR
  kiln_status (*create)(void *library, const kiln_library_call *call, char *const *constants,
                        kiln_diag *diag, void **out);
  void (*destroy)(void *kernel); // NULL is allowed
  // |stream|: of the device; NULL on a CPU. |diag|: where there is more to say than that it fails;
  // NULL: to nobody
  //
  // gives: false where the library fails
  bool (*run)(void *kernel, char *const *args, void *stream, kiln_diag *diag);
  const char *files[3]; // the library's names for dlopen, the best first, NULL behind the last
  const char *variable; // of the environment, that names another file
} kiln_backend;
enum { KILN_BACKEND_ALIGN = 16, KILN_BACKEND_WORKSPACE_ALIGN = 256 };

// A call's workspace from the first multiple of KILN_BACKEND_WORKSPACE_ALIGN on: how much of it
// there is for certain, and where it begins; 0 and NULL where there is none.
int64_t kiln_backend_workspace_room(const kiln_library_call *call);
char *kiln_backend_workspace(const kiln_library_call *call, char *const *args);

// All of them, NULL behind the last; made by the build.
extern const kiln_backend *const kiln_backends[];
const kiln_backend *kiln_backend_find(const char *name); // NULL: there is none

// A library that was opened.
typedef struct kiln_library {
  const kiln_backend *backend;
  void *opened;
} kiln_library;
// errors: as kiln_backend.open
KILN_MUST_USE kiln_status kiln_library_open(const kiln_backend *b, kiln_diag *diag,
                                            kiln_library *out);
void kiln_library_close(kiln_library *l); // zeroed: nothing

// A call's kernels, one a part.
typedef struct kiln_bound {
  const kiln_backend *backend;
  int n;
  void **kernels; // [n]
} kiln_bound;
// Makes kernels for at most |most| parts.
//
// errors: as kiln_backend.create
KILN_MUST_USE kiln_status kiln_bound_create(const kiln_library *l, const kiln_library_call *call,
                                            int most, char *const *constants, kiln_diag *diag,
                                            kiln_bound *out);
void kiln_bound_deinit(kiln_bound *b);
// threads: any, each another part
bool kiln_bound_run(const kiln_bound *b, int part, char *const *args, void *stream,
                    kiln_diag *diag);

// A function, and where a pointer to it has its place in what a backend keeps of its library.
typedef struct kiln_library_entry {
  const char *name; // NULL: behind the last
  size_t at;
} kiln_library_entry;
// What every kiln_backend.open begins with: |bytes| of zeroed memory, and in it the functions of
// the library |file|, which is opened for good: libraries start threads, which cannot be unloaded.
//
// gives:  *out, to be freed
// errors: KILN_NO_MEMORY; KILN_DEVICE_ERROR: there is no such library, or a function is missing
KILN_MUST_USE kiln_status kiln_library_create(const char *file, const char *variable,
                                              const kiln_library_entry *entries, size_t bytes,
                                              kiln_diag *diag, void **out);

#endif

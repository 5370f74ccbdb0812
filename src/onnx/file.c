// Maps the model and its external data. The list of mappings outlives the context, so it is
// malloc'ed.
#include "onnx/file.h"
#include "support/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct map map;
struct map {
  map *next;
  onnx_bytes bytes; // data NULL: mapping failed, which was reported
  bool is_memory;   // borrowed from the caller instead of mapped
  dev_t device;     // device and inode number
  ino_t number;
  char path[];
};

struct kiln_onnx_file {
  int folder; // the model's, open; -1: not yet
  map *model;
  map *external; // newest first
  int n_memory;
  const kiln_onnx_memory *memory; // until reading is done
};

// Length of the folder part of the model's path, with its '/'.
static size_t folder_length(const kiln_onnx_file *file) {
  const char *slash = strrchr(file->model->path, '/');
  return slash == NULL ? 0 : (size_t)(slash - file->model->path) + 1;
}

static map *create_map(const char *path) {
  const size_t n = strlen(path) + 1;
  map *m = calloc(1, sizeof(*m) + n);
  if (m != NULL) memcpy(m->path, path, n);
  return m;
}

static void destroy_maps(map *m) {
  while (m != NULL) {
    map *next = m->next;
    if (m->bytes.n > 0 && !m->is_memory) munmap((void *)(uintptr_t)m->bytes.data, m->bytes.n);
    free(m);
    m = next;
  }
}

// Maps the file open as |fd| and closes it; with |alone|, it must have no other hard links. Gives
// NULL, or a description of the error, with errno set (0 if it is not a system error).
static const char *map_file(map *m, int fd, bool alone) {
  struct stat info;
  if (fd < 0)
    return errno == EXDEV ? "a link that leads out of the model's folder" : strerror(errno);
  const char *wrong = NULL;
  int error = 0;
  if (fstat(fd, &info) != 0) {
    error = errno;
    close(fd);
    return errno = error, strerror(error);
  }
  m->device = info.st_dev;
  m->number = info.st_ino;
  if (!S_ISREG(info.st_mode)) {
    wrong = S_ISDIR(info.st_mode) ? "a directory" : "no regular file";
  } else if (alone && info.st_nlink > 1) {
    wrong = "a file that has other names (hard links), which may lie outside of the model's "
            "folder; a copy has none";
  } else if (info.st_size == 0) {
    m->bytes.data = "";
  } else {
    void *at = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) wrong = strerror(error = errno);
    else m->bytes = (onnx_bytes){at, (size_t)info.st_size};
  }
  close(fd);
  errno = error;
  return wrong;
}

// Whether |m| is the file |name| from the caller's memory.
static bool takes_memory(const kiln_onnx_file *file, const char *name, map *m) {
  for (int i = 0; i < file->n_memory && !m->is_memory; i++) {
    if (strcmp(file->memory[i].name, name) != 0) continue;
    const char *data = file->memory[i].data;
    m->bytes = (onnx_bytes){data ? data : "", file->memory[i].n};
    m->is_memory = true;
  }
  return m->is_memory;
}

kiln_status kiln_onnx_file_open(kiln_ctx *cx, const char *path, int n_memory,
                                const kiln_onnx_memory *memory, kiln_onnx_file **out_file) {
  *out_file = NULL;
  kiln_onnx_file *file = calloc(1, sizeof(*file));
  if (file != NULL) {
    *file = (kiln_onnx_file){.folder = -1, .n_memory = n_memory, .memory = memory};
    file->model = create_map(path);
  }
  if (file == NULL || file->model == NULL) {
    free(file);
    return KILN_FAIL(cx->diag, KILN_NO_MEMORY, path, "no memory left");
  }
  const char *wrong = NULL;
  if (!takes_memory(file, path, file->model))
    wrong = map_file(file->model, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), false);
  if (wrong == NULL && file->model->bytes.n == 0) wrong = "an empty file";
  if (wrong != NULL) {
    const kiln_status status = KILN_FAIL(cx->diag, kiln_status_of_error(errno), path,
                                         "file: must be readable, got: %s", wrong);
    kiln_onnx_close(file);
    return status;
  }
  *out_file = file;
  return KILN_OK;
}

void kiln_onnx_file_is_read(kiln_onnx_file *file) {
  file->n_memory = 0;
  file->memory = NULL;
}

void kiln_onnx_close(kiln_onnx_file *file) {
  if (file == NULL) return;
  destroy_maps(file->model);
  destroy_maps(file->external);
  if (file->folder >= 0) close(file->folder);
  free(file);
}

static bool holds(const map *m, uintptr_t begin, size_t n) {
  const uintptr_t base = (uintptr_t)m->bytes.data;
  return m->bytes.n > 0 && !m->is_memory && begin >= base && begin - base <= m->bytes.n &&
         n <= m->bytes.n - (begin - base);
}

void kiln_onnx_file_forget(const kiln_onnx_file *file, const void *data, size_t n) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)data;
  const uintptr_t begin = (at + page - 1) / page * page, end = (at + n) / page * page;
  bool mapped = holds(file->model, at, n);
  for (const map *m = file->external; m != NULL && !mapped; m = m->next) mapped = holds(m, at, n);
  if (mapped && begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void kiln_onnx_file_forget_all(const kiln_onnx_file *file) {
  kiln_onnx_file_forget(file, file->model->bytes.data, file->model->bytes.n);
  for (const map *m = file->external; m != NULL; m = m->next)
    kiln_onnx_file_forget(file, m->bytes.data, m->bytes.n);
}

const char *kiln_onnx_file_path(const kiln_onnx_file *file) { return file->model->path; }

const char *kiln_onnx_file_location(const kiln_onnx_file *file, int i) {
  const map *m = file->external;
  for (; m != NULL && i > 0; i--) m = m->next;
  return m == NULL ? NULL : m->path + folder_length(file);
}

static bool is_of(const map *m, const struct stat *info) {
  return !m->is_memory && m->device == info->st_dev && m->number == info->st_ino;
}

bool kiln_onnx_file_is_of(const kiln_onnx_file *file, const struct stat *info) {
  bool is = is_of(file->model, info);
  for (const map *m = file->external; m != NULL; m = m->next) is |= is_of(m, info);
  return is;
}

onnx_bytes kiln_onnx_file_model(const kiln_onnx_file *file) { return file->model->bytes; }

static bool climbs_out(const char *location) {
  for (const char *part = location; part != NULL; part = strchr(part, '/')) {
    if (*part == '/') part++;
    if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == 0)) return true;
  }
  return false;
}

// Opens |name| in the model's folder; paths must not lead out of it.
static int open_external(kiln_ctx *cx, kiln_onnx_file *file, const char *name) {
  const int n = (int)folder_length(file);
  const char *folder = n ? kiln_arena_printf(&cx->scratch, "%.*s", n, file->model->path) : ".";
  if (file->folder < 0) file->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  return file->folder < 0 ? -1 : kiln_open_beneath(file->folder, name);
}

// The mapping of an external file that was opened before; NULL: none.
static const map *find_external(const kiln_onnx_file *file, const char *path) {
  const map *m = file->external;
  while (m != NULL && strcmp(m->path, path) != 0) m = m->next;
  return m;
}

static bool has_memory(const kiln_onnx_file *file, const char *name) {
  for (int i = 0; i < file->n_memory; i++)
    if (strcmp(file->memory[i].name, name) == 0) return true;
  return false;
}

bool kiln_onnx_file_external(kiln_onnx_file *file, onnx_problems *problems, const char *place,
                             onnx_bytes location, onnx_bytes *out) {
  kiln_ctx *cx = problems->cx;
  *out = (onnx_bytes){0};
  if (location.n == 0 || memchr(location.data, 0, location.n) != NULL) {
    kiln_onnx_problem(problems, KILN_BAD_INPUT, place, "external data: location must name a file");
    return false;
  }
  const char *name = kiln_arena_strndup(&cx->scratch, location.data, location.n);
  if (!has_memory(file, name) && (name[0] == '/' || climbs_out(name))) {
    kiln_onnx_problem(problems, KILN_BAD_INPUT, place,
                      "external data: location must be a relative path without \"..\", got \"%s\"",
                      name);
    return false;
  }
  const char *path =
      kiln_arena_printf(&cx->scratch, "%.*s%s", (int)folder_length(file), file->model->path, name);
  const map *known = find_external(file, path);
  if (known != NULL) {
    *out = known->bytes;
    return known->bytes.data != NULL;
  }
  map *m = create_map(path);
  if (m == NULL) {
    kiln_onnx_problem(problems, KILN_NO_MEMORY, place, "external data: no memory left");
    return false;
  }
  m->next = file->external;
  file->external = m;
  const char *wrong = NULL;
  if (!takes_memory(file, name, m)) wrong = map_file(m, open_external(cx, file, name), true);
  if (wrong != NULL)
    kiln_onnx_problem(problems, kiln_status_of_error(errno), place,
                      "external data: file \"%s\" must be readable, got: %s", path, wrong);
  *out = m->bytes;
  return wrong == NULL;
}

// NumPy's .npz, a zip archive of .npy files, by libzip. libzip is loaded on demand, because it
// depends on a cryptography library, megabytes that running a model does not need.
#include "kiln.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

static void *find(const char *name) {
  static const char *const files[] = {"libzip.so.5", "libzip.so.4"};
  static void *library;
  for (size_t i = 0; !library && i < sizeof files / sizeof *files; i++)
    library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
  void *symbol = library ? dlsym(library, name) : NULL;
  if (symbol) return symbol;
  fprintf(stderr, "npz: error: libzip 1.x must be installed, got no %s\n", name);
  exit(EXIT_WRONG);
}

// As in compiler.c: ISO C has no cast from a pointer to an object to one to a function.
#define ZIP(name)                                                                                  \
  (((union {                                                                                       \
     void *object;                                                                                 \
     __typeof__(&name) function;                                                                   \
   }){find(#name)})                                                                                \
       .function)

struct npz {
  zip_t *zip;
  const char *path;
};

npz *npz_open(const char *path) {
  int code = 0;
  zip_t *zip = ZIP(zip_open)(path, ZIP_RDONLY, &code);
  npz *z = zip ? malloc(sizeof *z) : NULL;
  if (!z) {
    if (zip) ZIP(zip_discard)(zip);
    fprintf(stderr, "%s: error: npz: must be a readable zip archive\n", path);
    return NULL;
  }
  *z = (npz){zip, path};
  return z;
}

size_t npz_count(npz *z) {
  zip_int64_t n = ZIP(zip_get_num_entries)(z->zip, 0);
  return n > 0 ? (size_t)n : 0;
}

char *npz_name(npz *z, size_t i) {
  const char *entry = ZIP(zip_get_name)(z->zip, i, 0);
  size_t n = entry ? strlen(entry) : 0;
  if (n > 4 && !strcmp(entry + n - 4, ".npy")) n -= 4;
  return entry ? strndup(entry, n) : NULL;
}

static char *entry_of(const char *name) {
  char *entry = malloc(strlen(name) + 5);
  if (entry) sprintf(entry, "%s.npy", name);
  return entry;
}

// Reads a whole entry. libzip verifies the checksum at a read past the end, which must give
// nothing.
static bool read_entry(zip_file_t *f, char *data, zip_uint64_t bytes) {
  char more;
  zip_uint64_t n = 0;
  for (zip_int64_t k = 1; n < bytes && k > 0; n += k > 0 ? (zip_uint64_t)k : 0)
    k = ZIP(zip_fread)(f, data + n, bytes - n);
  return n == bytes && ZIP(zip_fread)(f, &more, 1) == 0;
}

static tensor *read_tensor(npz *z, const char *entry, zip_uint64_t bytes) {
  zip_file_t *f = ZIP(zip_fopen)(z->zip, entry, 0);
  char *data = f ? malloc((size_t)bytes + 1) : NULL;
  const bool right = data && read_entry(f, data, bytes);
  if (!right)
    fprintf(stderr, "%s: error: npz: %s must be readable, with the checksum that it has\n", z->path,
            entry);
  tensor *t = right ? npy_parse(data, (size_t)bytes, z->path) : NULL;
  free(data);
  if (f) ZIP(zip_fclose)(f);
  return t;
}

tensor *npz_find(npz *z, const char *name, uint64_t most_bytes, bool *out_failed) {
  enum { HEADER_MOST = 1 << 16 };
  zip_stat_t info;
  char *entry = entry_of(name);
  tensor *t = NULL;
  *out_failed = true;
  if (!entry) fprintf(stderr, "%s: error: npz: no memory left\n", z->path);
  else if (ZIP(zip_stat)(z->zip, entry, 0, &info) || !(info.valid & ZIP_STAT_SIZE))
    *out_failed = false;
  else if (info.size > most_bytes && info.size - most_bytes > HEADER_MOST)
    fprintf(stderr, "%s: error: npz: %s must be of at most %llu bytes, got %llu\n", z->path, entry,
            (unsigned long long)most_bytes + HEADER_MOST, (unsigned long long)info.size);
  else *out_failed = !(t = read_tensor(z, entry, info.size));
  free(entry);
  return t;
}

void npz_close(npz *z) {
  if (!z) return;
  ZIP(zip_discard)(z->zip);
  free(z);
}

bool npz_write(const char *path, size_t n, const char *const *names, tensor *const *at) {
  int code = 0;
  zip_t *zip = ZIP(zip_open)(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
  bool right = zip != NULL;
  for (size_t i = 0; right && i < n; i++) {
    size_t bytes;
    char *entry = entry_of(names[i]);
    void *data = npy_format(&at[i]->dl_tensor, &bytes);
    zip_source_t *source =
        data ? ZIP(zip_source_buffer)(zip, data, bytes, 1) : NULL; // owned by the archive
    zip_int64_t index =
        source && entry ? ZIP(zip_file_add)(zip, entry, source, ZIP_FL_ENC_UTF_8) : -1;
    free(entry);
    if (index < 0 && source) ZIP(zip_source_free)(source);
    right = index >= 0 && !ZIP(zip_set_file_compression)(zip, (zip_uint64_t)index, ZIP_CM_STORE, 0);
  }
  if (zip && right) right = !ZIP(zip_close)(zip);
  if (zip && !right) ZIP(zip_discard)(zip);
  if (!right) fprintf(stderr, "%s: error: output: must be writable\n", path);
  return right;
}

// NumPy's .npz: a zip archive of .npy files, through libzip.
#include "kiln.h"

#include <stdlib.h>
#include <string.h>
#include <zip.h>

struct npz {
  zip_t *zip;
  const char *path;
};

npz *npz_open(const char *path) {
  int code = 0;
  zip_t *zip = zip_open(path, ZIP_RDONLY, &code);
  npz *z = zip ? malloc(sizeof *z) : NULL;
  if (!z) {
    if (zip) zip_discard(zip);
    fprintf(stderr, "%s: error: npz: must be a readable zip archive\n", path);
    return NULL;
  }
  *z = (npz){zip, path};
  return z;
}

size_t npz_count(npz *z) {
  zip_int64_t n = zip_get_num_entries(z->zip, 0);
  return n > 0 ? (size_t)n : 0;
}

bool npz_name(npz *z, size_t i, char name[512]) {
  const char *entry = zip_get_name(z->zip, i, 0);
  if (!entry) return false;
  size_t n = strlen(entry);
  if (n > 4 && !strcmp(entry + n - 4, ".npy")) n -= 4;
  snprintf(name, 512, "%.*s", (int)(n < 511 ? n : 511), entry);
  return true;
}

tensor *npz_find(npz *z, const char *name, bool *out_failed) {
  char entry[512];
  zip_stat_t info;
  *out_failed = false;
  snprintf(entry, sizeof entry, "%s.npy", name);
  if (zip_stat(z->zip, entry, 0, &info) || !(info.valid & ZIP_STAT_SIZE)) return NULL;
  zip_file_t *f = zip_fopen(z->zip, entry, 0);
  char *data = f && info.size < SIZE_MAX ? malloc((size_t)info.size + 1) : NULL;
  zip_int64_t n = data ? zip_fread(f, data, info.size) : -1;
  const bool whole = n >= 0 && (zip_uint64_t)n == info.size;
  if (!whole) fprintf(stderr, "%s: error: npz: %s must be readable\n", z->path, entry);
  tensor *t = whole ? npy_parse(data, info.size, z->path) : NULL;
  *out_failed = t == NULL;
  free(data);
  if (f) zip_fclose(f);
  return t;
}

void npz_close(npz *z) {
  if (!z) return;
  zip_discard(z->zip);
  free(z);
}

bool npz_write(const char *path, size_t n, const char *const *names, tensor *const *at) {
  int code = 0;
  zip_t *zip = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
  bool right = zip != NULL;
  for (size_t i = 0; right && i < n; i++) {
    size_t bytes;
    char entry[512];
    void *data = npy_format(&at[i]->dl_tensor, &bytes);
    zip_source_t *source =
        data ? zip_source_buffer(zip, data, bytes, 1) : NULL; // the archive frees |data|
    snprintf(entry, sizeof entry, "%s.npy", names[i]);
    zip_int64_t index =
        source ? zip_file_add(zip, entry, source, ZIP_FL_OVERWRITE | ZIP_FL_ENC_UTF_8) : -1;
    if (index < 0 && source) zip_source_free(source);
    right = index >= 0 && !zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_STORE, 0);
  }
  if (zip && right) right = !zip_close(zip);
  if (zip && !right) zip_discard(zip);
  if (!right) fprintf(stderr, "%s: error: output: must be writable\n", path);
  return right;
}

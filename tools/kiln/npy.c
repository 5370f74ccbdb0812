// NumPy's .npy: a magic number, a Python dictionary as header, the elements. Little-endian, C or
// Fortran order. source: NumPy Enhancement Proposal 1 (format versions 1.0 to 3.0).
#include "kiln.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct descr {
  const char *descr, *dtype;
} descrs[] = {{"<f8", "f64"}, {"<f4", "f32"}, {"<f2", "f16"}, {"|i1", "i8"},
              {"<i2", "i16"}, {"<i4", "i32"}, {"<i8", "i64"}, {"|u1", "u8"},
              {"<u2", "u16"}, {"<u4", "u32"}, {"<u8", "u64"}, {"|b1", "bool"}};

static tensor *fail(const char *place, const char *must) {
  fprintf(stderr, "%s: error: npy: %s\n", place, must);
  return NULL;
}

static const char *dtype_of(const char *descr, size_t n) {
  for (size_t i = 0; i < sizeof descrs / sizeof *descrs; i++)
    if (n == 3 && !strncmp(descr, descrs[i].descr, 3)) return descrs[i].dtype;
  return NULL;
}

static const char *find_key(const char *header, const char *key) {
  const char *at = strstr(header, key);
  return at ? strchr(at, ':') : NULL;
}

static bool parse_tuple(const char *at, int64_t *shape, int32_t *rank) {
  *rank = 0;
  at = at ? strchr(at, '(') : NULL;
  if (!at) return false;
  for (at++; *at && *at != ')';) {
    char *end;
    int64_t e = strtoll(at, &end, 10);
    if (end == at || e < 0 || *rank == 16) return false;
    shape[(*rank)++] = e;
    for (at = end; *at == ',' || *at == ' ' || *at == 'L';) at++;
  }
  return *at == ')';
}

// Copies from Fortran to C order, element by element.
static void reorder(char *to, const char *from, int32_t rank, const int64_t *shape, size_t element,
                    int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    int64_t rest = i, at = 0, stride = 1, index[16];
    for (int32_t k = rank - 1; k >= 0; k--) index[k] = rest % shape[k], rest /= shape[k];
    for (int32_t k = 0; k < rank; k++) at += index[k] * stride, stride *= shape[k];
    memcpy(to + (size_t)i * element, from + (size_t)at * element, element);
  }
}

tensor *npy_parse(const void *data, size_t bytes, const char *place) {
  const unsigned char *b = data;
  if (bytes < 10 || memcmp(b, "\x93NUMPY", 6))
    return fail(place, "must begin with the magic of a .npy file");
  size_t start = b[6] == 1 ? 10 : 12, length = (size_t)b[8] | (size_t)b[9] << 8;
  if (b[6] > 1 && bytes >= 12) length |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
  if (start + length > bytes) return fail(place, "header must lie in the file");
  char *header = strndup((const char *)b + start, length);
  if (!header) return fail(place, "no memory left");
  int64_t shape[16];
  int32_t rank = 0;
  const char *descr = find_key(header, "'descr'"), *quote = descr ? strchr(descr, '\'') : NULL;
  const char *dtype = quote ? dtype_of(quote + 1, strcspn(quote + 1, "'")) : NULL;
  const char *order = find_key(header, "'fortran_order'");
  bool shaped = parse_tuple(find_key(header, "'shape'"), shape, &rank),
       fortran = order && strstr(order, "True");
  free(header);
  if (!dtype) return fail(place, "element type must be a little-endian number or bool");
  if (!shaped) return fail(place, "header must have a shape of at most 16 axes");
  kiln_diag *diag = kiln_diag_create();
  tensor *t = diag ? kiln_tensor_create(dtype, rank, shape, diag) : NULL;
  if (diag) print_messages(diag);
  kiln_diag_destroy(diag);
  if (!t) return NULL;
  size_t want = kiln_tensor_bytes(&t->dl_tensor);
  const char *elements = (const char *)b + start + length;
  if (bytes - start - length < want) {
    kiln_tensor_destroy(t);
    return fail(place, "must hold all elements of its shape");
  }
  if (fortran && rank > 1)
    reorder(t->dl_tensor.data, elements, rank, shape, t->dl_tensor.dtype.bits / 8u,
            kiln_tensor_count(&t->dl_tensor));
  else if (want) memcpy(t->dl_tensor.data, elements, want);
  return t;
}

static char *read_all(const char *path, size_t *out_bytes) {
  FILE *f = fopen(path, "rb");
  char *data = NULL;
  struct stat info;
  *out_bytes = 0;
  if (!f) return NULL;
  if (!fstat(fileno(f), &info) && S_ISREG(info.st_mode)) { // a folder can be opened, too
    data = malloc((size_t)info.st_size + 1);
    if (data) *out_bytes = fread(data, 1, (size_t)info.st_size, f);
  }
  fclose(f);
  return data;
}

tensor *npy_read(const char *path) {
  size_t bytes;
  char *data = read_all(path, &bytes);
  if (!data) return fail(path, "must be a readable file");
  tensor *t = npy_parse(data, bytes, path);
  free(data);
  return t;
}

void *npy_format(const DLTensor *t, size_t *out_bytes) {
  const char *dtype = kiln_tensor_dtype(t);
  const char *descr =
      // types that NumPy lacks: their bits, a byte for each minifloat
      t->dtype.bits > 8 ? "<u2" : "|u1";
  for (size_t i = 0; dtype && i < sizeof descrs / sizeof *descrs; i++)
    if (!strcmp(descrs[i].dtype, dtype)) descr = descrs[i].descr;
  char header[1024];
  int n =
      snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (int32_t k = 0; k < t->ndim; k++)
    n += snprintf(header + n, sizeof header - (size_t)n, "%lld,", (long long)t->shape[k]);
  n += snprintf(header + n, sizeof header - (size_t)n, "), }");
  size_t length = ((size_t)n + 1 + 10 + 63) / 64 * 64 - 10,
         bytes = t->dtype.bits < 8 ? (size_t)kiln_tensor_count(t) : kiln_tensor_bytes(t);
  char *data = malloc(10 + length + bytes);
  *out_bytes = 10 + length + bytes;
  if (!data) return NULL;
  memcpy(data, "\x93NUMPY\x01\x00", 8);
  data[8] = (char)(length & 255);
  data[9] = (char)(length >> 8);
  memset(data + 10, ' ', length);
  memcpy(data + 10, header, (size_t)n);
  data[10 + length - 1] = '\n';
  if (bytes) kiln_tensor_unpack(t, data + 10 + length);
  return data;
}

bool npy_write(const char *path, const DLTensor *t) {
  size_t bytes;
  void *data = npy_format(t, &bytes);
  FILE *f = data ? fopen(path, "wb") : NULL;
  bool right = f && fwrite(data, 1, bytes, f) == bytes;
  if (f && fclose(f)) right = false;
  free(data);
  if (!right) fprintf(stderr, "%s: error: output: must be writable\n", path);
  return right;
}

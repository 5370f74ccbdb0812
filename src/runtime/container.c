// Reads and writes the trailer of a module file.
#include "runtime/container.h"
#include "runtime/wire.h"

#include <inttypes.h>

static const char magic[8] = {'K', 'I', 'L', 'N', 'M', 'O', 'D', '\n'};
enum { N_FIELDS = 11 };

bool kiln_trailer_is(const unsigned char trailer[KILN_TRAILER_BYTES]) {
  return memcmp(trailer, magic, sizeof magic) == 0;
}

void kiln_trailer_write(const kiln_container *c, unsigned char out[KILN_TRAILER_BYTES]) {
  const uint64_t fields[N_FIELDS] = {c->code_bytes,    c->code_sum,    c->weights_offset,
                                     c->weights_bytes, c->sums_offset, c->sums_bytes,
                                     c->sums_sum,      c->plan_offset, c->plan_bytes,
                                     c->plan_sum,      c->file_bytes};
  memcpy(out, magic, 8);
  kiln_wire_put(out + 8, KILN_WIRE_ENDIAN_MARK, 4);
  kiln_wire_put(out + 12, KILN_CONTAINER_VERSION, 4);
  for (int i = 0; i < N_FIELDS; i++) kiln_wire_put(out + 16 + 8 * i, fields[i], 8);
}

static bool is_consistent(const kiln_container *c, uint64_t file_bytes) {
  return c->file_bytes == file_bytes && c->weights_offset % KILN_CONTAINER_ALIGN == 0 &&
         c->code_bytes <= c->weights_offset && c->weights_offset <= c->sums_offset &&
         c->weights_bytes <= c->sums_offset - c->weights_offset &&
         c->sums_offset <= c->plan_offset && c->sums_bytes <= c->plan_offset - c->sums_offset &&
         c->plan_offset <= file_bytes - KILN_TRAILER_BYTES &&
         c->plan_bytes == file_bytes - KILN_TRAILER_BYTES - c->plan_offset;
}

kiln_status kiln_trailer_read(const unsigned char trailer[KILN_TRAILER_BYTES], uint64_t file_bytes,
                              const char *place, kiln_diag *diag, kiln_container *out) {
  uint64_t version = kiln_wire_get(trailer + 12, 4);
  if (memcmp(trailer, magic, 8) != 0)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, place,
                          "must be a module made by kiln compile: it has no trailer at its end");
  if (kiln_wire_get(trailer + 8, 4) != KILN_WIRE_ENDIAN_MARK || version != KILN_CONTAINER_VERSION)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, place,
                          "module format: must be version %d, got %" PRIu64, KILN_CONTAINER_VERSION,
                          version);
  uint64_t *const fields[N_FIELDS] = {&out->code_bytes,    &out->code_sum,    &out->weights_offset,
                                      &out->weights_bytes, &out->sums_offset, &out->sums_bytes,
                                      &out->sums_sum,      &out->plan_offset, &out->plan_bytes,
                                      &out->plan_sum,      &out->file_bytes};
  for (int i = 0; i < N_FIELDS; i++) *fields[i] = kiln_wire_get(trailer + 16 + 8 * i, 8);
  if (!is_consistent(out, file_bytes))
    return kiln_diag_fail(diag, KILN_BAD_INPUT, place,
                          "damaged module: its parts must lie inside the file of %" PRIu64
                          " bytes, in order",
                          file_bytes);
  return KILN_OK;
}

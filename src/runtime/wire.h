// Little-endian integers and the magic numbers of the file formats, for writers and readers.
#ifndef KILN_RUNTIME_WIRE_H
#define KILN_RUNTIME_WIRE_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define KILN_WIRE_PLAN_MAGIC UINT32_C(0x4e4c504b)    // "KPLN"
#define KILN_WIRE_DYNAMIC_MAGIC UINT32_C(0x4e59444b) // "KDYN"
#define KILN_WIRE_FLOW_MAGIC UINT32_C(0x4f4c464b)    // "KFLO"
#define KILN_WIRE_ENDIAN_MARK UINT32_C(0x01020304)   // differs if read in the other byte order

static inline void kiln_wire_put(unsigned char *to, uint64_t v, int n_bytes) {
  for (int i = 0; i < n_bytes; i++) to[i] = (unsigned char)(v >> (8 * i));
}

static inline uint64_t kiln_wire_get(const unsigned char *from, int n_bytes) {
  uint64_t v = 0;
  for (int i = 0; i < n_bytes; i++) v |= (uint64_t)from[i] << (8 * i);
  return v;
}

// A checksum against accidental damage. It takes eight bytes a step, so that megabytes of code cost
// less than a millisecond each.
static inline uint64_t kiln_wire_sum(const void *bytes, size_t n) {
  const unsigned char *p = bytes;
  uint64_t h = UINT64_C(0xcbf29ce484222325) ^ n;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t v;
    memcpy(&v, p, 8);
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 29;
  }
  for (; n; n--, p++) h = (h ^ *p) * UINT64_C(0x100000001b3);
  return h ^ h >> 32;
}

#endif

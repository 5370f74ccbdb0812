#include "support/printable.h"

#include <stdint.h>
#include <string.h>

// Decodes the UTF-8 character at |at|, of which |left| bytes are available.
//
// gives: its length in bytes, 0 if it is invalid. source: RFC 3629, section 4
static size_t decode(const unsigned char *at, size_t left, uint32_t *out) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const size_t n = at[0] < 0x80 ? 1 : at[0] < 0xc0 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
  if (n == 0 || n > left || at[0] > 0xf4) return 0;
  *out = n == 1 ? at[0] : at[0] & (0x7fu >> n);
  for (size_t i = 1; i < n; i++) {
    if ((at[i] & 0xc0) != 0x80) return 0;
    *out = *out << 6 | (at[i] & 0x3f);
  }
  return *out < least[n] || *out > 0x10ffff || (*out >= 0xd800 && *out < 0xe000) ? 0 : n;
}

// C0 and C1 controls, line separators, bidirectional controls, and zero-width characters.
static bool is_control(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
         (c >= 0xfff9 && c <= 0xfffb) || c == 0xad || c == 0x61c;
}

// Length in bytes of the printable character at |at|; 0: the byte must be escaped.
static size_t step(const unsigned char *at, size_t left) {
  uint32_t c = 0;
  const size_t n = decode(at, left, &c);
  return n > 0 && is_control(c) ? 0 : n;
}

static bool is_hex(unsigned char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

static bool is_replacement(const unsigned char *at, size_t left) {
  return left >= 4 && at[0] == '\\' && at[1] == 'x' && is_hex(at[2]) && is_hex(at[3]);
}

static char *put_byte(char *out, unsigned char byte) {
  static const char digits[] = "0123456789abcdef";
  const char text[] = {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
  memcpy(out, text, sizeof text);
  return out + sizeof text;
}

bool kiln_text_is_printable(const char *bytes, size_t n) {
  const unsigned char *at = (const unsigned char *)bytes, *const end = at + n;
  size_t k = 1;
  for (; at < end && k > 0; at += k) k = step(at, (size_t)(end - at));
  return k > 0;
}

bool kiln_name_is_shown_as_is(const char *bytes, size_t n) {
  const unsigned char *at = (const unsigned char *)bytes, *const end = at + n;
  if (!kiln_text_is_printable(bytes, n)) return false;
  while (at < end && !is_replacement(at, (size_t)(end - at))) at++;
  return at == end;
}

void kiln_name_printable(const char *bytes, size_t n, char *out) {
  const unsigned char *at = (const unsigned char *)bytes, *const end = at + n;
  for (size_t k = 0; at < end; at += k ? k : 1) {
    k = is_replacement(at, (size_t)(end - at)) ? 0 : step(at, (size_t)(end - at));
    if (k == 0) out = put_byte(out, *at);
    memcpy(out, at, k);
    out += k;
  }
  *out = 0;
}

void kiln_message_printable(const char *bytes, size_t n, char *out) {
  const unsigned char *at = (const unsigned char *)bytes, *const end = at + n;
  for (size_t k = 0; at < end; at += k ? k : 1) {
    k = *at == '\n' || *at == '\t' ? 1 : step(at, (size_t)(end - at));
    if (k == 0) out = put_byte(out, *at);
    memcpy(out, at, k);
    out += k;
  }
  *out = 0;
}

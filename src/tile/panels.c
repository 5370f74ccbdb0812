// Numbering of the bits of layouts: transformed forms follow the plain one.
#include "tile/panels.h"

enum { MAX_VECTORS = 8, A_FORM = MAX_VECTORS + 1 };

uint32_t kiln_panels_bit(int outputs, int64_t vectors) {
  if (vectors < 1 || vectors > MAX_VECTORS) return 0;
  return (uint32_t)1 << (outputs / 2 * A_FORM + (int)vectors);
}

uint32_t kiln_panels_plain(uint32_t panels) { return panels & (((uint32_t)1 << A_FORM) - 1); }

bool kiln_panels_lack(uint32_t panels, int64_t vectors) {
  const uint32_t plain = kiln_panels_plain(panels);
  return plain && !(plain & kiln_panels_bit(0, vectors));
}

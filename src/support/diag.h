// Messages of attempts: where one way fails and another one is tried, the messages of the first are
// dropped if the second succeeds. Appending is in support/status.h.
#ifndef KILN_SUPPORT_DIAG_H
#define KILN_SUPPORT_DIAG_H

#include "support/status.h"

// Removes messages [first, end).
void kiln_diag_drop(kiln_diag *diag, size_t first, size_t end);
// Removes messages from |end| on that are among [first, end).
void kiln_diag_drop_repeated(kiln_diag *diag, size_t first, size_t end);

#endif

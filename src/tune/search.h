// Search in the space of a schedule with holes.
#ifndef KILN_TUNE_SEARCH_H
#define KILN_TUNE_SEARCH_H

#include "module/compiler.h"

// Implements kiln_schedule_search with |compiler|.
kiln_status kiln_space_search(const kiln_compiler *compiler, const char *path,
                              const kiln_compile_options *options, const kiln_search_options *how,
                              kiln_diag *diag);

#endif

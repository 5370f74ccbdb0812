// The details of `kiln report`: the machine, the launches and the traffic between them, and each
// kernel's script, loops and code side by side.
#ifndef KILN_EXPLAIN_DETAIL_H
#define KILN_EXPLAIN_DETAIL_H

#include "module/build.h"

// Appends "machine", "launch_list", "flows" and "code" as members of a JSON object. With |only|,
// "code" has only the kernel of that name; NULL: all.
//
// needs:  the kernels of |b|, named
// errors: as kiln_cpu_compile and kiln_gpu_show
kiln_status kiln_explain_detail(kiln_ctx *cx, kiln_build *b, const char *only, kiln_text *out);
// The members "launch_list" and "flows". (traffic.c)
void kiln_explain_traffic(kiln_ctx *cx, const kiln_build *b, kiln_text *out);

#endif

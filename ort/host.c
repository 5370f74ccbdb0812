// SPDX-License-Identifier: Apache-2.0
// Lookup of ONNX Runtime's tables, and reporting of errors to it.
#include "host.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool ep_host_find(const ort_api_base *base, ep_host *out) {
  int minor = 0; // ONNX Runtime prints an error if asked for a version that it lacks
  if (sscanf(base->version(), "%*d.%d", &minor) != 1 || minor < ORT_API_USED) return false;
  const bool has_kernels = minor >= ORT_API_HAS_KERNELS;
  *out = (ep_host){.api = base->api(ORT_API_USED),
                   .version = has_kernels ? ORT_API_HAS_KERNELS : ORT_API_USED,
                   .tells_shape = minor >= ORT_API_HAS_SHAPE,
                   .has_kernels = has_kernels};
  if (!out->api) return false;
  out->ep = out->api->ep_api();
  out->editor = out->api->editor_api();
  return out->ep != NULL;
}

ort_status *ep_fail(const ep_host *h, ort_error code, const char *format, ...) {
  char text[2048]; // longer names are cut
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return h->api->create_status(code, text);
}

ort_status *ep_no_memory(const ep_host *h) {
  return h->api->create_status(ORT_EP_FAIL, "Kiln: no memory left");
}

ort_status *ep_fail_with(const ep_host *h, kiln_status status, const char *what,
                         const kiln_diag *diag) {
  const ort_error code = status == KILN_BAD_INPUT ? ORT_INVALID_ARGUMENT : ORT_EP_FAIL;
  ep_buffer text = {0};
  ep_buffer_printf(&text, "Kiln: %s", what);
  for (size_t i = 0; i < kiln_diag_count(diag); i++)
    ep_buffer_printf(&text, "\n  %s", kiln_diag_message(diag, i));
  ort_status *failure = text.is_lost ? ep_no_memory(h) : h->api->create_status(code, text.data);
  ep_buffer_deinit(&text);
  return failure;
}

void ep_log(const ep_host *h, const ort_logger *logger, ort_severity severity, const char *format,
            ...) {
  char text[4096];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  ort_status *status = h->api->log(logger, severity, text, "kiln", 0, "kiln");
  if (status) h->api->release_status(status);
}

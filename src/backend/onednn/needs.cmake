# oneDNN 2's headers, of which only types are taken.
find_path(ONEDNN_HEADERS oneapi/dnnl/dnnl_version.h)
if(ONEDNN_HEADERS)
  file(STRINGS ${ONEDNN_HEADERS}/oneapi/dnnl/dnnl_version.h major REGEX "DNNL_VERSION_MAJOR 2")
endif()
if(NOT major)
  set(backend_is_here FALSE)
  message("oneDNN 2 is not there: its backend is left out")
endif()

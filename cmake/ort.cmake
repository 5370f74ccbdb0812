# libkiln_ort: Kiln as an execution provider of ONNX Runtime, which loads it by its path.
file(GLOB ort_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ort/*.c)
add_library(kiln_ort MODULE ${ort_sources})
target_include_directories(kiln_ort PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(kiln_ort PRIVATE kiln_lib ${CMAKE_DL_LIBS} pthread)
set_target_properties(kiln_ort PROPERTIES BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN")

# The backends: every folder NAME of src/backend exports `const kiln_backend kiln_backend_NAME`. The table of them is made
# here, so that adding a backend is adding a folder. One whose library's headers are missing is left out.
file(GLOB backend_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/*.c)
file(GLOB backend_folders CONFIGURE_DEPENDS LIST_DIRECTORIES true ${PROJECT_SOURCE_DIR}/src/backend/*)
set(backend_declared "")
set(backend_listed "")
foreach(folder ${backend_folders})
  get_filename_component(name ${folder} NAME)
  set(backend_is_here TRUE)
  include(${folder}/needs.cmake OPTIONAL) # may unset it
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c)
  if(sources AND backend_is_here)
    list(APPEND backend_sources ${sources})
    string(APPEND backend_declared "extern const kiln_backend kiln_backend_${name};\n")
    string(APPEND backend_listed "  &kiln_backend_${name},\n")
  endif()
endforeach()
set(backend_table ${PROJECT_BINARY_DIR}/backends_made.c)
file(CONFIGURE OUTPUT ${backend_table} CONTENT "#include \"backend/backend.h\"
${backend_declared}const kiln_backend *const kiln_backends[] = {
${backend_listed}  0};
" @ONLY)
list(APPEND backend_sources ${backend_table})
add_library(kiln_backend STATIC ${backend_sources})
target_include_directories(kiln_backend PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(kiln_backend PUBLIC ${CMAKE_DL_LIBS})

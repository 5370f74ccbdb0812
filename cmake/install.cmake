# cmake --install build --prefix /usr/local: the libraries, their headers, what pkg-config and CMake find them by; with the
# compiler also the command, its manual page and what completes command lines, which it writes itself.
set(kiln_package ${CMAKE_INSTALL_LIBDIR}/cmake/kiln)
install(TARGETS kiln_rt_shared kiln_rt_static EXPORT kilnTargets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kiln DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# Files for pkg-config say where they lie by their own place, so that what is installed can be moved.
file(RELATIVE_PATH kiln_prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
function(kiln_pkg_config name)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
kiln_pkg_config(kiln_rt)

if(KILN_COMPILER)
  install(TARGETS kiln_tool kiln_lib EXPORT kilnTargets)
  install(TARGETS kiln_ort LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS kiln_worker RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/kiln)
  kiln_pkg_config(kiln)

  set(pages ${PROJECT_BINARY_DIR}/pages)
  file(MAKE_DIRECTORY ${pages})
  set(written)
  foreach(page man:kiln.1 bash:kiln zsh:_kiln fish:kiln.fish)
    string(REGEX MATCH "^[^:]+" format ${page})
    string(REGEX REPLACE "^[^:]+:" "" file ${page})
    add_custom_command(OUTPUT ${pages}/${file} DEPENDS kiln_tool VERBATIM
                       COMMAND kiln_tool help --format=${format} > ${pages}/${file})
    list(APPEND written ${pages}/${file})
  endforeach()
  add_custom_target(kiln_pages ALL DEPENDS ${written})
  install(FILES ${pages}/kiln.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${pages}/kiln DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${pages}/_kiln DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${pages}/kiln.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# find_package(kiln): kiln::kiln, kiln::rt, kiln::rt_static, kiln::command, and kiln_add_library.
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/kilnConfig.cmake ${PROJECT_SOURCE_DIR}/cmake/kilnModels.cmake
        ${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake DESTINATION ${kiln_package})
install(EXPORT kilnTargets NAMESPACE kiln:: DESTINATION ${kiln_package})

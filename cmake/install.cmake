# cmake --install build --prefix /usr/local: the command and its compiler, the runtime, the headers, the manual page and what
# completes command lines, which the command writes itself.
if(TARGET kiln_tool)
  set(pages ${CMAKE_BINARY_DIR}/pages)
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

  # Where the command looks for the compiler, and that for the process that --tune runs kernels in.
  install(TARGETS kiln_tool RUNTIME DESTINATION bin)
  install(TARGETS kiln_lib LIBRARY DESTINATION lib)
  install(TARGETS kiln_worker RUNTIME DESTINATION libexec/kiln)
  install(TARGETS kiln_rt_shared kiln_rt_static LIBRARY DESTINATION lib ARCHIVE DESTINATION lib)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/kiln DESTINATION include FILES_MATCHING PATTERN "*.h")
  install(FILES ${pages}/kiln.1 DESTINATION share/man/man1)
  install(FILES ${pages}/kiln DESTINATION share/bash-completion/completions)
  install(FILES ${pages}/_kiln DESTINATION share/zsh/site-functions)
  install(FILES ${pages}/kiln.fish DESTINATION share/fish/vendor_completions.d)
endif()

# Manual pages are printed by the tools themselves, from the tables that drive them, and land in <build>/man/.
# Where mandoc is found, a page that it warns about fails the build.
find_program(MS_MANDOC mandoc)
if(NOT TARGET man)
  add_custom_target(man ALL)
  add_dependencies(installed man)
endif()

# ms_man_page(ms-data.1 COMMAND ms-data --man): the page is what the command prints. A command that is a target is a
# dependency of its page, and so are the targets that NEEDS names: what it loads. It is installed in the section that
# its name ends in.
function(ms_man_page page)
  cmake_parse_arguments(ARG "" "" "COMMAND;NEEDS" ${ARGN})
  set(file ${CMAKE_BINARY_DIR}/man/${page})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/man)
  set(lint)
  if(MS_MANDOC)
    set(lint COMMAND ${MS_MANDOC} -Tlint -Wwarning ${file})
  endif()
  add_custom_command(OUTPUT ${file} COMMAND ${ARG_COMMAND} > ${file} ${lint} DEPENDS ${ARG_NEEDS}
    COMMENT "Manual page ${page}" VERBATIM)
  add_custom_target(man_${page} DEPENDS ${file})
  add_dependencies(man man_${page})
  string(REGEX MATCH "[0-9]$" section ${page})
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endfunction()

# Manual pages and sample configurations are printed by the tools themselves, from the tables that drive them, and land in
# <build>/man/. Where mandoc is found, a page that it warns about fails the build.
find_program(MS_MANDOC mandoc)
if(NOT TARGET man)
  add_custom_target(man ALL)
endif()

# ms_install_text(FILE PART FOLDER NAME): installs a text. The paths below /usr/local that it names become those below the
# prefix that it is installed under.
function(ms_install_text file part folder name)
  install(FILES ${file} DESTINATION ${folder} COMPONENT ${part} RENAME ${name})
  set(place "\${CMAKE_INSTALL_PREFIX}/${folder}")
  if(IS_ABSOLUTE ${folder})  # /etc, as distributions give it
    set(place ${folder})
  endif()
  install(CODE "
    set(file \"\$ENV{DESTDIR}${place}/${name}\")
    file(READ \"\${file}\" text)
    string(REPLACE /usr/local/lib/ms/ \"\${CMAKE_INSTALL_PREFIX}/${MS_INSTALL_LIBDIR}/\" text \"\${text}\")
    string(REPLACE /usr/local/nvidia @nvidia@ text \"\${text}\")  # no folder of ours
    string(REPLACE /usr/local \"\${CMAKE_INSTALL_PREFIX}\" text \"\${text}\")
    string(REPLACE @nvidia@ /usr/local/nvidia text \"\${text}\")
    file(WRITE \"\${file}\" \"\${text}\")" COMPONENT ${part})
endfunction()

# ms_printed(NAME COMMAND command... [NEEDS target...] [LINT command...]): <build>/man/NAME is what the command prints. A
# command that is a target is a dependency, and so are the targets that NEEDS names: what it loads.
function(ms_printed name)
  cmake_parse_arguments(ARG "" "" "COMMAND;NEEDS;LINT" ${ARGN})
  set(file ${CMAKE_BINARY_DIR}/man/${name})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/man)
  list(GET ARG_COMMAND 0 program)
  if(TARGET ${program})
    list(APPEND ARG_NEEDS ${program})  # Ninja runs the command again when the program is another one
  endif()
  if(ARG_LINT)
    set(lint COMMAND ${ARG_LINT} ${file})
  endif()
  add_custom_command(OUTPUT ${file} COMMAND ${ARG_COMMAND} > ${file} ${lint} DEPENDS ${ARG_NEEDS} COMMENT "${name}" VERBATIM)
  add_custom_target(man_${name} DEPENDS ${file})
  add_dependencies(man man_${name})
endfunction()

# ms_man_page(ms-data.1 COMMAND ms-data --man): a page, installed in the section that its name ends in.
function(ms_man_page page)
  if(MS_MANDOC)
    set(lint LINT ${MS_MANDOC} -Tlint -Wwarning)
  endif()
  ms_printed(${page} ${ARGN} ${lint})
  ms_needed(doc man_${page})
  set_property(GLOBAL APPEND PROPERTY MS_PAGES ${CMAKE_BINARY_DIR}/man/${page})
  string(REGEX MATCH "[0-9]$" section ${page})
  ms_install_text(${CMAKE_BINARY_DIR}/man/${page} doc ${CMAKE_INSTALL_MANDIR}/man${section} ${page})
endfunction()

# ms_sample(ms-diag.toml PART COMMAND ms-diag --sample-policy): a configuration with every key commented out. Packages have it
# in /etc/ms; elsewhere it lies under the prefix, to be copied.
function(ms_sample name part)
  ms_printed(${name} ${ARGN})
  ms_needed(${part} man_${name})
  install(FILES ${CMAKE_BINARY_DIR}/man/${name} DESTINATION ${CMAKE_INSTALL_SYSCONFDIR}/ms COMPONENT ${part})
endfunction()

# ms_overview_page(ms.7 TEMPLATE): the page that leads to all pages above.
function(ms_overview_page page template)
  get_property(pages GLOBAL PROPERTY MS_PAGES)
  list(SORT pages)
  list(JOIN pages "," names)
  set(script ${PROJECT_SOURCE_DIR}/cmake/ms_overview.cmake)
  set(file ${CMAKE_BINARY_DIR}/overview/${page})
  add_custom_command(OUTPUT ${file}
    COMMAND ${CMAKE_COMMAND} -DIN=${template} -DOUT=${file} -DPAGES=${names} -P ${script}
    DEPENDS ${template} ${script} ${pages} COMMENT "Overview ${page}" VERBATIM)
  ms_man_page(${page} COMMAND cat ${file} NEEDS ${file})
endfunction()

# Completion for bash, zsh and fish is printed by the tools themselves, from the tables that drive them, and lands in
# <build>/completion/ and where the shells look for it.
add_custom_target(completion ALL)

# ms_completion(ms-data PART): the scripts of a tool, under the names that the shells want.
function(ms_completion tool part)
  set(dir ${CMAKE_BINARY_DIR}/completion)
  file(MAKE_DIRECTORY ${dir})
  add_custom_command(OUTPUT ${dir}/${tool} ${dir}/_${tool} ${dir}/${tool}.fish
    COMMAND ${tool} --completion bash > ${dir}/${tool}
    COMMAND ${tool} --completion zsh > ${dir}/_${tool}
    COMMAND ${tool} --completion fish > ${dir}/${tool}.fish
    DEPENDS ${tool}
    COMMENT "Completion of ${tool}" VERBATIM)
  add_custom_target(completion_${tool} DEPENDS ${dir}/${tool})
  add_dependencies(completion completion_${tool})
  ms_needed(${part} completion_${tool})
  install(FILES ${dir}/${tool} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT ${part})
  install(FILES ${dir}/_${tool} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT ${part})
  install(FILES ${dir}/${tool}.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT ${part})
endfunction()

# Rooms, tools and tests. A room may depend only on rooms declared before it, so the order of the
# ms_module() lines in libms/CMakeLists.txt is the architecture, and CMake is who enforces it.

# ms_module(NAME DEPENDS room... [LIBRARIES target...]): a static, position-independent library of libms/NAME/*.cpp.
# A source that needs an option that is off, or is the door of a library of its own, is taken out by name (EXCLUDE
# file...). A room that is APART is not gathered into libms.so.
function(ms_module name)
  cmake_parse_arguments(ARG "APART" "" "DEPENDS;LIBRARIES;EXCLUDE" ${ARGN})
  get_property(declared GLOBAL PROPERTY MS_ROOMS)
  foreach(dep IN LISTS ARG_DEPENDS)
    if(NOT dep IN_LIST declared)
      message(FATAL_ERROR "room ${name} depends on ${dep}, which is not declared above it")
    endif()
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  foreach(file IN LISTS ARG_EXCLUDE)
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${name}/${file})
  endforeach()
  list(TRANSFORM ARG_DEPENDS PREPEND ms_ OUTPUT_VARIABLE deps)
  if(sources)
    add_library(ms_${name} STATIC ${sources})
    target_include_directories(ms_${name} PUBLIC ${PROJECT_SOURCE_DIR}/libms)
    target_link_libraries(ms_${name} PUBLIC ${deps} PRIVATE ms_flags ${ARG_LIBRARIES})
  else()  # a room of headers only
    add_library(ms_${name} INTERFACE)
    target_include_directories(ms_${name} INTERFACE ${PROJECT_SOURCE_DIR}/libms)
    target_link_libraries(ms_${name} INTERFACE ${deps})
  endif()
  set_property(GLOBAL APPEND PROPERTY MS_ROOMS ${name})
  if(NOT ARG_APART)
    set_property(GLOBAL APPEND PROPERTY MS_GATHERED ${name})
  endif()
endfunction()

# ms_isa_sources(NAME FOLDER [LIBRARIES target...]): FOLDER/*.cpp compiled once for every instruction set into the room NAME, in
# the namespace MS_ISA. Always optimised: a plain op without optimisation is of no use to anybody.
function(ms_isa_sources name folder)
  cmake_parse_arguments(ARG "" "" "LIBRARIES" ${ARGN})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    set(isas x86-64-v2 x86-64-v3 x86-64-v4)
  else()
    set(isas generic)
  endif()
  if(MS_SANITIZE)
    set(optimisation -O1)
  else()
    set(optimisation -O3)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  foreach(isa IN LISTS isas)
    string(REPLACE "-" "_" id ${isa})
    set(objects ms_${name}_${id})
    add_library(${objects} OBJECT ${sources})
    target_compile_definitions(${objects} PRIVATE MS_ISA=${id})
    target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/libms)
    target_link_libraries(${objects} PRIVATE ms_flags ${ARG_LIBRARIES})
    target_compile_options(${objects} PRIVATE
      ${optimisation} -ffp-contract=fast -fno-math-errno -fno-trapping-math
      $<$<NOT:$<STREQUAL:${isa},generic>>:-march=${isa}> $<$<STREQUAL:${isa},x86-64-v4>:-mprefer-vector-width=512>)
    target_sources(ms_${name} PRIVATE $<TARGET_OBJECTS:${objects}>)
    set_property(GLOBAL APPEND PROPERTY MS_ISA_NAMESPACES ${id})
  endforeach()
endfunction()

# ms_tool(NAME): tools/NAME.cpp, linked to libms.so.
function(ms_tool name)
  add_executable(${name} ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE ms ms_flags)
  install(TARGETS ${name})
endfunction()

# ms_bare_tool(NAME ROOMS room...): tools/NAME.cpp with these rooms in it, and no library but libc and libstdc++.
function(ms_bare_tool name)
  cmake_parse_arguments(ARG "" "" "ROOMS" ${ARGN})
  add_executable(${name} ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cpp)
  list(TRANSFORM ARG_ROOMS PREPEND ms_ OUTPUT_VARIABLE rooms)
  target_link_libraries(${name} PRIVATE ${rooms} ms_flags ${CMAKE_DL_LIBS})
  target_compile_definitions(${name} PRIVATE FMT_HEADER_ONLY)
  target_link_options(${name} PRIVATE -Wl,--as-needed)
  # No search path for libraries at all, not even the room that CMake leaves for one: root runs it anywhere.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "" BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS ${name})
endfunction()

# ms_test(NAME SOURCES file... ROOMS room... LABELS label... [LIBRARIES target...]): one GoogleTest program, one ctest.
function(ms_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;ROOMS;LABELS;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_ROOMS PREPEND ms_ OUTPUT_VARIABLE rooms)
  target_link_libraries(${name} PRIVATE ${rooms} GTest::gmock GTest::gtest_main ms_flags ${ARG_LIBRARIES})
  target_compile_definitions(${name} PRIVATE MS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

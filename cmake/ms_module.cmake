# Rooms, tools and tests. A room may depend only on rooms declared before it, so the order of the
# ms_module() lines in libms/CMakeLists.txt is the architecture, and CMake is who enforces it.

# ms_module(NAME DEPENDS room... [LIBRARIES target...]): a static, position-independent library of libms/NAME/*.cpp.
# A source that needs an option is taken out by name where the option is off (EXCLUDE file...).
function(ms_module name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBRARIES;EXCLUDE" ${ARGN})
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
endfunction()

# ms_tool(NAME): tools/NAME.cpp, linked to libms.so.
function(ms_tool name)
  add_executable(${name} ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE ms ms_flags)
endfunction()

# ms_test(NAME SOURCES file... ROOMS room... LABELS label... [LIBRARIES target...]): one GoogleTest program, one ctest.
function(ms_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;ROOMS;LABELS;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_ROOMS PREPEND ms_ OUTPUT_VARIABLE rooms)
  target_link_libraries(${name} PRIVATE ${rooms} GTest::gmock GTest::gtest_main ms_flags ${ARG_LIBRARIES})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

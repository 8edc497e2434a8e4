# Modules, tools and tests. A module may depend only on modules declared before it, in its own house or in core, so the
# ms_module() lines in libms/HOUSE/CMakeLists.txt are the architecture, and CMake enforces it.
set(MS_HOUSES core engine ops traces)
list(TRANSFORM MS_HOUSES PREPEND ${PROJECT_SOURCE_DIR}/libms/ OUTPUT_VARIABLE MS_INCLUDES)  # for what is in no house

# ms_needed(PART TARGET): what goes into the package of this name (ms_package.cmake) needs the target: installed_PART builds
# it, and so does `installed`, which is what ./bootstrap build builds.
add_custom_target(installed)
function(ms_needed part target)
  if(NOT TARGET installed_${part})
    add_custom_target(installed_${part})
    add_dependencies(installed installed_${part})
  endif()
  add_dependencies(installed_${part} ${target})
endfunction()

# ms_install(TARGET PART FOLDER [EXPORT name]): the target is installed into the folder, and goes into that package.
function(ms_install target part folder)
  install(TARGETS ${target} ${ARGN} DESTINATION ${folder} COMPONENT ${part})
  ms_needed(${part} ${target})
endfunction()

# Headers of the standard library and of fmt are compiled once for each set of flags: ms_precompiled(TARGET) lets a target
# that is compiled as ms_pch (-O2) or ms_pch_small (-O1) use what was compiled for those.
function(ms_precompiled target with)
  if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    target_precompile_headers(${target} REUSE_FROM ${with})
  endif()
endfunction()

# ms_precompile(NAME OPTIMISATION): such a set of flags, for static libraries.
function(ms_precompile name optimisation)
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:${optimisation}>)
  target_link_libraries(${name} PRIVATE ms_flags)
  target_precompile_headers(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/pch.h)
endfunction()
ms_precompile(ms_pch -O2)
ms_precompile(ms_pch_small -O1)

# ms_together(SOURCE...): what a build that compiles several sources at once (CMAKE_UNITY_BUILD, the presets but dev) has to
# know: a source with a using-directive is compiled alone, since the names would be those of its neighbours too.
function(ms_together)
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} directives REGEX "^using namespace" LIMIT_COUNT 1)
    if(directives)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()

# ms_module(NAME DEPENDS module... [FOLDERS folder...] [LIBRARIES target...]): a static, position-independent library of
# NAME/*.cpp and NAME/FOLDER/*.cpp in the house that declares it. A folder may include the files beside the folders and the
# folders listed before it; the include lint checks that. EXCLUDE file... names sources that need an option that is off, or
# that belong to a library of their own. A module that is APART is not gathered into libms.so. One that is SMALL reads a few
# files a run or writes a page: it is compiled at -O1, the others at -O2. An EXTENSION is the part of ops that a tool loads
# from libms.so: it may depend on the engine.
function(ms_module name)
  cmake_parse_arguments(ARG "APART;EXTENSION;SMALL" "" "DEPENDS;FOLDERS;LIBRARIES;EXCLUDE" ${ARGN})
  get_property(declared GLOBAL PROPERTY MS_MODULES)
  get_filename_component(house ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  set(houses core ${house})
  if(ARG_EXTENSION)
    list(APPEND houses engine)
  endif()
  foreach(dep IN LISTS ARG_DEPENDS)
    if(NOT dep IN_LIST declared)
      message(FATAL_ERROR "module ${name} depends on ${dep}, which is not declared above it")
    endif()
    get_property(house_of_dep GLOBAL PROPERTY MS_HOUSE_${dep})
    if(NOT house_of_dep IN_LIST houses)
      message(FATAL_ERROR "module ${name} of ${house} depends on ${dep} of ${house_of_dep}")
    endif()
  endforeach()
  set(globs ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  foreach(folder IN LISTS ARG_FOLDERS)
    list(APPEND globs ${CMAKE_CURRENT_SOURCE_DIR}/${name}/${folder}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${globs})
  foreach(file IN LISTS ARG_EXCLUDE)
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${name}/${file})
  endforeach()
  list(TRANSFORM ARG_DEPENDS PREPEND ms_ OUTPUT_VARIABLE deps)
  if(sources)
    ms_together(${sources})
    add_library(ms_${name} STATIC ${sources})
    target_include_directories(ms_${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(ms_${name} PUBLIC ${deps} PRIVATE ms_flags ${ARG_LIBRARIES})
    set(pch ms_pch)
    set(optimisation -O2)
    if(ARG_SMALL)
      set(pch ms_pch_small)
      set(optimisation -O1)
    endif()
    target_compile_options(ms_${name} PRIVATE $<$<CONFIG:Release>:${optimisation}>)
    if(NOT "OpenMP::OpenMP_CXX" IN_LIST ARG_LIBRARIES)  # the standard library's headers ask for OpenMP's macro
      ms_precompiled(ms_${name} ${pch})
    endif()
  else()  # a module of headers only
    add_library(ms_${name} INTERFACE)
    target_include_directories(ms_${name} INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(ms_${name} INTERFACE ${deps})
  endif()
  set_property(GLOBAL APPEND PROPERTY MS_MODULES ${name})
  set_property(GLOBAL PROPERTY MS_HOUSE_${name} ${house})
  if(NOT ARG_APART)
    set_property(GLOBAL APPEND PROPERTY MS_GATHERED ${name})
  endif()
endfunction()

# ms_embed(MODULE FILE NAME): the text of FILE in this house, a script or a style sheet, becomes the constant ms::NAME of MODULE, a
# PagePart of base/html.h with its checksum.
function(ms_embed module file name)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  file(READ ${source} text)
  file(SHA256 ${source} sha256)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/embedded.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/embedded/${name}.cpp @ONLY)
  target_sources(ms_${module} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/embedded/${name}.cpp)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
endfunction()

# ms_isa_objects(TARGET ISA FOLDER): FOLDER/*.cpp compiled for an instruction set, in a namespace MS_ISA of its name. Always
# optimised: a plain op without optimisation is of no use to anybody.
function(ms_isa_objects target isa folder)
  if(MS_SANITIZE)
    set(flags -O1)
  else()
    set(flags -O3)
  endif()
  if(isa MATCHES "^(x86-64-v.)")
    list(APPEND flags -march=${CMAKE_MATCH_1})
  endif()
  if(isa MATCHES v4)
    list(APPEND flags -mprefer-vector-width=512)
  endif()
  if(isa MATCHES "bf16|amx")
    list(APPEND flags -mavx512bf16)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/libms/engine/${folder}/*.cpp)
  string(REPLACE "-" "_" id ${isa})
  add_library(${target} OBJECT ${sources})
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)  # inlined, and so rounded, the same in every build
  target_compile_definitions(${target} PRIVATE MS_ISA=${id})
  target_include_directories(${target} PRIVATE ${MS_INCLUDES})
  target_link_libraries(${target} PRIVATE ms_flags)
  target_compile_options(${target} PRIVATE -ffp-contract=fast -fno-math-errno -fno-trapping-math ${flags})
endfunction()

# ms_isa_sources(NAME FOLDER): FOLDER/*.cpp compiled once for every instruction set into the module NAME.
function(ms_isa_sources name folder)
  if(MS_SANITIZE)
    set(isas generic)  # one is enough to find what sanitizers find
    target_compile_definitions(ms_${name} PRIVATE MS_ONE_ISA)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    set(isas x86-64-v2 x86-64-v3 x86-64-v4 x86-64-v4-bf16 x86-64-v4-amx)
  else()
    set(isas generic)
  endif()
  foreach(isa IN LISTS isas)
    string(REPLACE "-" "_" id ${isa})
    ms_isa_objects(ms_${name}_${id} ${isa} ${folder})
    if(isa MATCHES amx)
      target_compile_options(ms_${name}_${id} PRIVATE -mamx-tile -mamx-bf16)
    endif()
    target_sources(ms_${name} PRIVATE $<TARGET_OBJECTS:ms_${name}_${id}>)
    set_property(GLOBAL APPEND PROPERTY MS_ISA_NAMESPACES ${id})
  endforeach()
endfunction()

# ms_tool(NAME): tools/NAME.cpp, linked to libms.so.
function(ms_tool name)
  add_executable(${name} ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE ms ms_flags)
  ms_install(${name} tools ${CMAKE_INSTALL_BINDIR})
endfunction()

# ms_bare_tool(NAME PART part MODULES module...): tools/NAME.cpp with these modules in it instead of libms.so: it starts at
# once, and where neither MPI nor oneDNN is installed.
function(ms_bare_tool name)
  cmake_parse_arguments(ARG "" "PART" "MODULES" ${ARGN})
  add_executable(${name} ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cpp)
  list(TRANSFORM ARG_MODULES PREPEND ms_ OUTPUT_VARIABLE modules)
  target_link_libraries(${name} PRIVATE ${modules} ms_flags ${CMAKE_DL_LIBS})
  target_link_options(${name} PRIVATE -Wl,--as-needed)
  # No search path for libraries at all, not even the space that CMake leaves for one: root runs it anywhere.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "" BUILD_WITH_INSTALL_RPATH ON)
  ms_install(${name} ${ARG_PART} ${CMAKE_INSTALL_BINDIR})
endfunction()

# ms_test_program(NAME SOURCES file... LIBRARIES target... [COMPUTES]): a GoogleTest program. One that COMPUTES what it
# compares with is optimised; compiling the others takes longer than running them.
function(ms_test_program name)
  cmake_parse_arguments(ARG "COMPUTES" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main ms_flags)
  target_include_directories(${name} PRIVATE ${MS_INCLUDES} ${PROJECT_SOURCE_DIR}/tests)  # support/
  target_compile_definitions(${name} PRIVATE MS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${name} PRIVATE -Wno-array-bounds -Wno-stringop-overflow)  # false alarms on std::string, too
  endif()
  if(NOT ARG_COMPUTES)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O0>)
    ms_precompiled(${name} ms_test_pch)
  endif()
endfunction()

# ms_test(NAME SOURCES file... MODULES module... LABELS label... [LIBRARIES target...] [COMPUTES] [TIMEOUT seconds]): such a
# program, and one ctest.
function(ms_test name)
  cmake_parse_arguments(ARG "COMPUTES" "TIMEOUT" "SOURCES;MODULES;LABELS;LIBRARIES" ${ARGN})
  list(TRANSFORM ARG_MODULES PREPEND ms_ OUTPUT_VARIABLE modules)
  if(ARG_COMPUTES)
    set(computes COMPUTES)
  endif()
  ms_test_program(${name} SOURCES ${ARG_SOURCES} LIBRARIES ${modules} ${ARG_LIBRARIES} ${computes})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  if(MS_SANITIZE AND ARG_TIMEOUT LESS 1200)
    set(ARG_TIMEOUT 1200)  # behind whatever else wants the processors
  endif()
  if(MS_SANITIZE_ALL)
    set(ARG_TIMEOUT 7200)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

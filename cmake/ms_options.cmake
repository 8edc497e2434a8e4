# What the build stands on. AUTO takes a package where it is found and says so; ON insists; OFF leaves it.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(toml11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(dnnl REQUIRED)
find_package(ZLIB REQUIRED)
find_package(LibLZMA REQUIRED)
find_package(BZip2 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(simdjson CONFIG REQUIRED)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)

# ms_optional(MS_MPI "OpenMPI" FOUND_VARIABLE): resolves AUTO and refuses an ON that cannot be had.
function(ms_optional option what found)
  set(${option} AUTO CACHE STRING "${what}: AUTO, ON or OFF")
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
  if(${option} STREQUAL "OFF")
    set(enabled FALSE)
  elseif(found)
    set(enabled TRUE)
  elseif(${option} STREQUAL "ON")
    message(FATAL_ERROR "${option}=ON, but ${what} was not found")
  else()
    set(enabled FALSE)
  endif()
  set(${option}_ENABLED ${enabled} PARENT_SCOPE)
  message(STATUS "${what}: ${enabled}")
endfunction()

set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
ms_optional(MS_MPI "OpenMPI" "${MPI_CXX_FOUND}")
pkg_check_modules(pmix QUIET IMPORTED_TARGET pmix)
ms_optional(MS_PMIX "PMIx" "${pmix_FOUND}")
# Debian's pmix.pc asks for a search path, to a library that is found without one.
find_library(MS_PMIX_SYSTEM pmix PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib64 /usr/lib NO_DEFAULT_PATH)
if(pmix_FOUND AND MS_PMIX_SYSTEM)
  set_target_properties(PkgConfig::pmix PROPERTIES INTERFACE_LINK_OPTIONS "")
endif()

find_path(MS_SLURM_INCLUDE slurm/spank.h)
ms_optional(MS_SLURM "Slurm's SPANK API" "${MS_SLURM_INCLUDE}")

# Debian's pkg-config name of the serial flavour; "hdf5" is everybody else's, but may be the one of MPI, which we cannot use.
pkg_search_module(hdf5 QUIET IMPORTED_TARGET hdf5-serial hdf5)
if(hdf5_FOUND)
  find_file(MS_HDF5_SETTINGS H5pubconf.h HINTS ${hdf5_INCLUDE_DIRS} REQUIRED)
  file(STRINGS ${MS_HDF5_SETTINGS} parallel REGEX "define H5_HAVE_PARALLEL 1")
  if(parallel)
    set(hdf5_FOUND FALSE)
  endif()
endif()
ms_optional(MS_HDF5 "HDF5" "${hdf5_FOUND}")

pkg_check_modules(munge QUIET IMPORTED_TARGET munge)
ms_optional(MS_MUNGE "MUNGE" "${munge_FOUND}")

find_package(SQLite3 QUIET)
ms_optional(MS_SQLITE "SQLite" "${SQLite3_FOUND}")

find_package(CURL QUIET)
ms_optional(MS_CURL "libcurl" "${CURL_FOUND}")

find_package(JPEG QUIET)
find_package(PNG QUIET)
if(JPEG_FOUND AND PNG_FOUND)
  set(images_found TRUE)
endif()
ms_optional(MS_IMAGES "libjpeg and libpng" "${images_found}")

add_library(ms_flags INTERFACE)
target_compile_options(ms_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
  # GCC 12 at -O3 warns about its own std::string (GCC bug 105651).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-restrict>
  $<$<BOOL:${MS_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # collects garbage from 1 GiB on: a tenth less time to compile, a fifth more memory
  target_compile_options(ms_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(ms_flags INTERFACE -Wno-restrict)  # false alarms on std::string at -O3 (GCC bug 105651)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(ms_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # sources look like headers there
endif()
if(MS_SANITIZE)
  target_compile_options(ms_flags INTERFACE -fsanitize=${MS_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(ms_flags INTERFACE -fsanitize=${MS_SANITIZE})
  if(MS_SANITIZE MATCHES undefined)
    # A third of the time to compile: the address sanitizer stops at null and freed objects, and the fuzzed parsers, where
    # loads may be unaligned, are checked for that by clang.
    target_compile_options(ms_flags INTERFACE -fno-sanitize=null,vptr,alignment)
    # What is found ends the program; it would otherwise be a line of a test that passes.
    target_compile_options(ms_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
find_program(MS_MOLD mold)
if(MS_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
find_program(MS_CCACHE ccache)
if(MS_CCACHE)
  # What ccache's manual asks for where headers are precompiled, and for entries that serve another clone, too. Only where
  # somebody steps through the program do they depend on the folder that its debug information names.
  set(MS_CCACHE_ENVIRONMENT CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_SLOPPINESS=pch_defines,time_macros)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" OR MS_SANITIZE)
    list(APPEND MS_CCACHE_ENVIRONMENT CCACHE_NOHASHDIR=1)
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${MS_CCACHE_ENVIRONMENT} ${MS_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  target_compile_options(ms_flags INTERFACE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess> "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endif()

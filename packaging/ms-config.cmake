# find_package(ms) gives ms::ms: libms.so and its headers. The headers include those of fmt, of which libms.so has its own copy.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(fmt)
include(${CMAKE_CURRENT_LIST_DIR}/ms-targets.cmake)
target_compile_features(ms::ms INTERFACE cxx_std_20)
target_include_directories(ms::ms INTERFACE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)

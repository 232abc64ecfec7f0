# libpolar as others see it: the shared library, what `make install` copies, pkg-config's polar.pc and CMake's find_package(polar).
# Objects are compiled once: the shared library is linked from those of the static one (target polar).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_target_property(polar_link_libraries polar LINK_LIBRARIES)
add_library(polar_shared SHARED $<TARGET_OBJECTS:polar> ${kernel_objects})
target_link_libraries(polar_shared PRIVATE ${polar_link_libraries})
set_target_properties(polar_shared PROPERTIES OUTPUT_NAME polar LINKER_LANGUAGE C VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/polar.map)
target_link_options(polar_shared PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/polar.map)
if(NOT POLAR_SANITIZE)
  target_link_options(polar_shared PRIVATE -Wl,--no-undefined)
endif()
# XLA's handlers for polar.jax: loaded after libpolar, from which they take their functions.
set(xla_sources ${CMAKE_SOURCE_DIR}/python/xla/polar_xla.c ${CMAKE_SOURCE_DIR}/python/xla/polar_xla_map.c ${CMAKE_SOURCE_DIR}/python/xla/polar_xla_step.c)
add_library(polar_xla MODULE ${xla_sources})
target_link_libraries(polar_xla PRIVATE Threads::Threads m)
set_target_properties(polar_xla PROPERTIES OUTPUT_NAME polar_xla)
if(SKBUILD)    # beside the Python files that load them
  install(PROGRAMS $<TARGET_FILE:polar_shared> DESTINATION polar COMPONENT python RENAME libpolar.so)
  install(PROGRAMS $<TARGET_FILE:polar_xla> DESTINATION polar COMPONENT python)
endif()
if(POLAR_LAB)
  set_target_properties(polar_program PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)    # for libraries in folders of their own
  install(TARGETS polar_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# What a program needs beside libpolar.a, as flags: "/dir/libx.so" gives -lx, after -L/dir where the linker does not look by itself.
set(polar_private_libs "")
function(polar_private_file file)
  get_filename_component(dir ${file} DIRECTORY)
  get_filename_component(name ${file} NAME_WE)
  string(REGEX REPLACE "^lib" "" name ${name})
  if(NOT dir IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
    list(APPEND polar_private_libs -L${dir})
  endif()
  set(polar_private_libs ${polar_private_libs} -l${name} PARENT_SCOPE)
endfunction()
if(POLAR_CUDA)
  polar_private_file(${CUDA_cudart_static_LIBRARY})
  list(APPEND polar_private_libs -lrt -ldl -lstdc++)    # nvcc writes C++
endif()
list(APPEND polar_private_libs -lpthread -ldl -lm)
string(REPLACE ";" " " polar_private_flags "${polar_private_libs}")

install(TARGETS polar polar_shared ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/polar DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# polar.pc names the prefix, which may be chosen as late as `cmake --install --prefix`: that one value is filled in then.
set(polar_pc_prefix "@CMAKE_INSTALL_PREFIX@")
configure_file(cmake/polar.pc.in polar.pc.in @ONLY)
install(CODE "configure_file(\"${CMAKE_BINARY_DIR}/polar.pc.in\" \"${CMAKE_BINARY_DIR}/polar.pc\" @ONLY)")
install(FILES ${CMAKE_BINARY_DIR}/polar.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(polar_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/polar)
configure_package_config_file(cmake/polarConfig.cmake.in ${CMAKE_BINARY_DIR}/polarConfig.cmake INSTALL_DESTINATION ${polar_package_dir}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/polarConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/polarConfig.cmake ${CMAKE_BINARY_DIR}/polarConfigVersion.cmake DESTINATION ${polar_package_dir})
